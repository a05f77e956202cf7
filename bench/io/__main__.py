"""`make bench-io`."""

import sys

from bench.rows import main

MODULES = ("calls", "small_writes", "truth")

if __name__ == "__main__":
    sys.exit(main("io", MODULES))

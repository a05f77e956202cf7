"""`make bench-io`."""

import sys

from bench.rows import main

MODULES = ("calls", "small_writes", "transfers", "truth", "stacks", "peers", "opening")

if __name__ == "__main__":
    sys.exit(main("io", MODULES))

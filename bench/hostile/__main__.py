"""`make bench-hostile`."""

import sys

from bench import rows

MODULES = ("frames", "crowd", "peer")

if __name__ == "__main__":
    sys.exit(rows.main("hostile", MODULES))

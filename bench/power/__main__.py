"""`make bench-power`."""

import sys

from bench import rows

MODULES = ("killed", "worlds", "node", "verdict", "bridge", "orders")

if __name__ == "__main__":
    sys.exit(rows.main("power", MODULES, strict=True))

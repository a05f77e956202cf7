"""`make bench-store`."""

import sys

from bench import rows

MODULES = ("transports", "hybrid", "peers", "idle", "wakeups", "hdf5")

if __name__ == "__main__":
    sys.exit(rows.main("store", MODULES))

"""`make bench-bus`."""

import sys

from bench import rows

MODULES = ("layer", "sockets", "ddsperf", "calls", "discovery", "security")

if __name__ == "__main__":
    sys.exit(rows.main("bus", MODULES))

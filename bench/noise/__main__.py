"""`make bench-noise`."""

import sys

from bench import rows

MODULES = ("keeping", "false_alarms", "power", "live")

if __name__ == "__main__":
    sys.exit(rows.main("noise", MODULES))

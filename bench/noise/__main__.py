"""`make bench-noise`."""

import sys

from bench import rows

MODULES = ("keeping", "false_alarms", "power", "against_source", "live", "stated")

if __name__ == "__main__":
    sys.exit(rows.main("noise", MODULES))

"""`make bench-net`: every row with its bar, printed and written to bench/out/net.json."""

from __future__ import annotations

import sys

from bench import rows

MODULES = ("netpipe", "steps", "stopping", "spectra", "memory", "slow_links", "startup")

if __name__ == "__main__":
    sys.exit(rows.main("net", MODULES))

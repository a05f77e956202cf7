"""`make bench-truth`: whether what is wrong is named, and nothing else; into bench/out/truth.json."""

from __future__ import annotations

import sys

from bench import rows

MODULES = ("networks", "histories", "checks")

if __name__ == "__main__":
    sys.exit(rows.main("truth", MODULES))

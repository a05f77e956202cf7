"""`make bench-budget`: whether commands end within their --budget, analysis included; into bench/out/budget.json."""

from __future__ import annotations

import sys

from bench import rows

MODULES = ("commands",)

if __name__ == "__main__":
    sys.exit(rows.main("budget", MODULES))

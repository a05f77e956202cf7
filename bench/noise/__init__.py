"""The bars of `sonde noise`. What keeps a machine busy is that of the tests (tests/busy.py)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

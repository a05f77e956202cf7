"""Whether what is wrong is named, and nothing else. What keeps a machine busy is that of the tests (tests/busy.py)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

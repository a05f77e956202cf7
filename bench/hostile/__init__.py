"""Strangers and greedy clients beside a storage server. Frames are those of the tests (tests/store_frames.py)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

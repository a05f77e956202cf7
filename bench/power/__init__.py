"""Benches of the power stack: over the daemons, trees and brokers that its tests start."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

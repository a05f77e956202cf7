"""What `noise` says of the node manager: whether it disturbs a parallel job on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.power.stack import Row, row
from sonde.noise.agents import find_recipe
from sonde.noise.run_agents import missing

BUDGET = "90s"


def rows() -> list[Row]:
    """Rows of this bench."""
    agent = "node-manager" if not missing(find_recipe("node-manager")) else "node-manager-simulated"
    what = f"`sonde noise run --agent {agent}`: slowdown, %"
    with tempfile.TemporaryDirectory(prefix="sonde-bench-verdict-") as folder:
        words = [str(Path(sys.executable).parent / "sonde"), "noise", "run", "--agent", agent]
        words += ["--period", "1s", "--budget", BUDGET, "--json", "-o", f"{folder}/noise.nc"]
        ran = subprocess.run(words, capture_output=True, text=True, check=False)
    if ran.returncode not in (0, 1, 4):
        said = ran.stderr.strip().splitlines()
        return [row(what, "verdict reported", None, None, None, said[0] if said else f"exit code {ran.returncode}")]
    told = json.loads(ran.stdout)
    return [judged(what, told)]


def judged(what: str, told: dict) -> Row:
    raise NotImplementedError

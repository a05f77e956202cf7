"""What `noise` says of the node manager: whether it disturbs a parallel job on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.rows import Row, row
from sonde.noise.agents.recipes import find_recipe
from sonde.noise.agents.run import missing

BUDGET = "90s"
JUDGED = (0, 1, 4)  # no slowdown that matters; one; not settled


def rows() -> list[Row]:
    """Rows of this bench."""
    agent = "node-manager" if not missing(find_recipe("node-manager")) else "node-manager-simulated"
    what, bar = f"sonde noise run --agent {agent} --budget {BUDGET}: slowdown, %", "verdict reported"
    with tempfile.TemporaryDirectory(prefix="sonde-bench-verdict-") as folder:
        words = [str(Path(sys.executable).parent / "sonde"), "noise", "run", "--agent", agent]
        words += ["--budget", BUDGET, "--json", "-o", f"{folder}/noise.nc"]
        ran = subprocess.run(words, capture_output=True, text=True, check=False)
    if ran.returncode not in JUDGED:
        said = ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"]
        return [row(what, bar, None, None, None, said[0])]
    told = json.loads(ran.stdout)
    note = (
        f"{told['verdict']}; {told['wakeups_per_s']:.0f} wake-ups/s, {told['agent_cpu_pct']:.3f} % of a core"
    )
    ci = told["ci_pct"] if None not in told["ci_pct"] else None
    return [row(what, bar, told["slowdown_pct"], ci, None, note)]

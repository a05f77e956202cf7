"""The memory bench at a scale that a test can take: the real writer, the real seal, the schema of net."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_writing_and_sealing_a_run_stay_within_their_memory():
    code = "import json; from bench.net import memory; print(json.dumps(memory.rows(ranks=48, analysed=8)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    writing, sealing = json.loads(done.stdout)
    assert writing["bar"] == sealing["bar"] == "< 200 MB"
    assert 5 < writing["value"] < 200, writing["note"]
    assert 5 < sealing["value"] < 200, sealing["note"]
    assert writing["met"]
    assert sealing["met"]
    assert "48 block files" in writing["note"]

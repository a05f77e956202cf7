"""The quick start of the store does what it says: its commands and its Python are run as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sonde._store", reason="the store is not built")

from sonde_shell import PROGRAM
from store_service import serving

PAGE = Path(__file__).parents[2] / "docs/tutorial/store.md"
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE.read_text(), re.S | re.M)


def test_every_block_of_the_quick_start_works(sonde):
    from sonde._store import backends

    if "lmdb" not in backends("kv"):
        pytest.skip("built without LMDB, where the page keeps its keys")
    kinds = [kind for kind, _ in BLOCKS]
    assert kinds[0] == "serve"
    assert kinds.count("python") >= 4
    words = BLOCKS[0][1].split()[3:]
    with serving(sonde, *words) as running:
        env = sonde.env | {
            "SONDE_STORE_SERVERS": running.address,
            "PATH": f"{PROGRAM.parent}:{sonde.env['PATH']}",
        }
        code = "import sonde.store\n"
        for kind, block in BLOCKS[1:]:
            if kind == "text":
                continue
            if kind == "python":
                own = block.replace("127.0.0.1:5440", running.address)
                line = [sys.executable, "-c", code + own]
            else:
                line = ["bash", "-euo", "pipefail", "-c", block]
            ran = subprocess.run(
                line, cwd=sonde.cwd, env=env, capture_output=True, text=True, timeout=120, check=False
            )
            assert ran.returncode == 0, f"{block}\n{ran.stdout}\n{ran.stderr}"
    assert sorted(path.name for path in (sonde.cwd / "store").iterdir()) == ["keys", "objects", "tables"]

"""The pages of the store do what they say: their commands, Python and C++ are run as they stand there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sonde._store", reason="the store is not built")

from sonde_shell import PROGRAM
from store_service import serving

DOCS = Path(__file__).parents[2] / "docs"


def blocks_of(page: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w*)\n(.*?)^```", (DOCS / page).read_text(), re.S | re.M)


BLOCKS = blocks_of("tutorial/store.md")
PYTHON = "reference/store-python.md"


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


def test_the_program_of_the_page_on_cpp_is_built_and_runs(sonde):
    shutil.which("g++") or pytest.skip("no g++")
    blocks = blocks_of("howto/store-cpp.md")
    assert [kind for kind, _ in blocks] == ["serve", "cpp", "sh", "sh"]
    (sonde.cwd / "notes.cpp").write_text(blocks[1][1])
    with serving(sonde, *blocks[0][1].split()[3:]) as running:
        env = sonde.env | {
            "SONDE_STORE_SERVERS": running.address,
            "PATH": f"{PROGRAM.parent}:{sonde.env['PATH']}",
        }
        env.pop("LD_LIBRARY_PATH", None)
        for _, block in blocks[2:]:
            ran = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block],
                cwd=sonde.cwd,
                env=env,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            assert ran.returncode == 0, f"{block}\n{ran.stdout}\n{ran.stderr}"
            assert ran.stdout == "steps = 1000\nthe name does not exist\n"


def test_the_python_of_the_reference_works(sonde):
    from sonde._store import backends

    if "sqlite" not in backends("db"):
        pytest.skip("built without SQLite, which keeps the page's table")
    code = "".join(block for kind, block in blocks_of(PYTHON) if kind == "python")
    assert code.count("assert") >= 15
    with serving(sonde, "--memory") as running:
        line = [sys.executable, "-c", code.replace("127.0.0.1:5440", running.address)]
        ran = subprocess.run(line, env=sonde.env, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr


def test_every_call_and_option_of_python_is_in_the_reference():
    from sonde.store import client, tables

    page = (DOCS / PYTHON).read_text()
    told = set(re.findall(r"\w+", page))
    for kind in (client.Client, client.Batch, tables.Table, client._store.Striped, client._store.Item):
        missing = {name for name in dir(kind) if not name.startswith("_")} - told
        assert missing <= ({"table"} if kind is client.Batch else set()), f"{kind.__name__}: {missing}"
    assert set(client.OPTIONS) <= set(re.findall(r"`(\w+)`", page.split("Options of `connect`")[1]))


def test_every_setting_of_every_backend_is_in_the_reference():
    from sonde.store.run import (
        has,
    )  # asks a program: in this process another test may have loaded a backend of its own

    there = has()
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", (DOCS / "reference/store.md").read_text(), re.M)
    told = {name: set(re.findall(r"`(\w+)`", settings)) for name, _, settings in rows}
    for role in ("data", "kv", "db"):
        for name in there[role]:
            with pytest.raises(Exception, match="allowed: ") as caught:
                client_of(role, f"{name},no_such_setting=1")
            allowed = str(caught.value).partition("allowed: ")[2]
            assert told[name] == (set() if allowed == "none" else set(allowed.split(", "))), name


def client_of(role: str, backend: str) -> object:
    from sonde.store import embedded

    return embedded(**{role: backend})

"""Settings of others: what Sonde reads, and what it leaves alone, in a folder that somebody else prepared."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.root, pytest.mark.skipif(not shutil.which("setpriv"), reason="no setpriv")]
USER, STRANGER = 1000, 65534
SONDE = [sys.executable, "-P", "-c", "import sys; from sonde.cli.entry import main; sys.exit(main())"]
MODULE = '[store.serve]\nmodule = ["/nowhere/mine.so"]\n'
NONSENSE = "[net.modes]\nnonsense = 1\n"  # an unknown key: who reads the file says so


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="sonde-hostile-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def prepared(folder: Path, text: str, owner: int, mode: int = 0o644, folder_mode: int = 0o755) -> None:
    (folder / "sonde.toml").write_text(text)
    (folder / "sonde.toml").chmod(mode)
    os.chown(folder / "sonde.toml", owner, owner)
    os.chown(folder, owner, owner)
    folder.chmod(folder_mode)


def sonde(folder: Path, uid: int, *words: str) -> subprocess.CompletedProcess[str]:
    who = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    env = {
        name: value for name, value in os.environ.items() if name not in ("SONDE_CONFIG", "XDG_CONFIG_HOME")
    }
    line = [*who, *SONDE, *words]
    return subprocess.run(
        line, cwd=folder, env=env | {"HOME": str(folder)}, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    ("reader", "owner", "mode", "folder_mode", "why"),
    [
        (0, STRANGER, 0o644, 0o755, "root takes no defaults"),
        (0, 0, 0o644, 0o755, "root takes no defaults"),
        (USER, STRANGER, 0o644, 0o755, f"the file is user {STRANGER}'s"),
        (USER, USER, 0o666, 0o755, "everybody may write the file"),
        (USER, USER, 0o644, 0o777, "everybody may write its folder"),
    ],
)
def test_defaults_of_somebody_else_s_folder_are_not_read(
    folder: Path, reader: int, owner: int, mode: int, folder_mode: int, why: str
):
    prepared(folder, NONSENSE, owner, mode, folder_mode)
    ran = sonde(folder, reader, "net", "modes")
    assert why in " ".join(ran.stderr.split())
    assert "unknown key" not in ran.stderr


def test_one_s_own_is_read(folder: Path):
    prepared(folder, NONSENSE, USER)
    ran = sonde(folder, USER, "net", "modes")
    assert (ran.returncode, "unknown key 'nonsense'" in ran.stderr) == (2, True)
    assert (
        "unknown key" in sonde(folder, 0, "net", "modes", "--config", "sonde.toml").stderr
    )  # named, it is read


def test_no_folder_says_what_code_is_loaded(folder: Path):
    prepared(folder, MODULE, USER)
    ran = sonde(folder, USER, "store", "serve", "--memory")
    assert (ran.returncode, "'module' is not taken from the folder" in " ".join(ran.stderr.split())) == (
        2,
        True,
    )

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sonde.cli import commands, entry


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def sonde(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Ran]:
    """Runs a command line in this process: in an empty folder, without a config file, 80 columns wide.

    The room `fake` stands in the table, and so do rooms whose modules are missing or do not load.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("SONDE_CONFIG", "")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setitem(
        commands.COMMANDS, "fake", commands.Command("fake_room", "group", "For tests.", commands.ROOMS)
    )
    monkeypatch.setitem(
        commands.COMMANDS, "gone", commands.Command("no_such_room.cli", "group", "Gone.", commands.ROOMS)
    )
    (tmp_path / "broken_room.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(
        commands.COMMANDS, "broken", commands.Command("broken_room", "group", "Broken.", commands.ROOMS)
    )

    def run(*words: str) -> Ran:
        capsys.readouterr()
        code = entry.main(list(words))
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run

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

    The room `fake` is in the table, and so are rooms whose modules are missing or do not load.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("SONDE_CONFIG", "")
    monkeypatch.delenv("NO_COLOR", raising=False)
    (tmp_path / "broken_room.py").write_text("import no_such_library\n")
    (tmp_path / "hollow_room.py").write_text("import sonde.no_such_part\n")
    (tmp_path / "empty_room.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    modules = {
        "fake": "fake_room",
        "gone": "no_such_room.cli",
        "broken": "broken_room",
        "hollow": "hollow_room",
        "empty": "empty_room",
    }
    for name, module in modules.items():
        entry_of = commands.Command(module, "group", "For tests.", commands.ROOMS)
        monkeypatch.setitem(commands.COMMANDS, name, entry_of)

    def run(*words: str) -> Ran:
        capsys.readouterr()
        code = entry.main(list(words))
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run

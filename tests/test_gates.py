"""Each gate of `make check`, tried on a file with a fault of its kind, and on one without."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import gates

# gate: (path, text with the fault, text without)
FAULTS = {
    "format-python": ("src/sonde/x.py", "x = {'a':1}\n", 'x = {"a": 1}\n'),
    "lint-python": ("src/sonde/x.py", "import os\n", "x = 1\n"),
    "types": (
        "src/sonde/core/x.py",
        "def f(x: int) -> str:\n    return x\n",
        "def f(x: int) -> str:\n    return str(x)\n",
    ),
    "format-c++": ("native/core/x.cpp", "int  x=1;\n", "int x = 1;\n"),
    "spelling": ("docs/x.md", "It recieves nothing.\n", "It receives nothing.\n"),
    "sentences": (
        "src/sonde/x.py",
        "# Of those only the newest.\nx = 1\n",
        "# Only the newest ones.\nx = 1\n",
    ),
    "scripts": (
        "deploy/x",
        "#!/bin/sh\nrm -rf $1\ncd $2/y\nif [ $x == 1 ]; then :; fi\n",
        "#!/bin/sh\necho\n",
    ),
    "lint-c++": (
        "native/core/x.hpp",
        "#pragma once\ninline long area(int a) { return a * 1000L + sizeof(int*) * 0; }\n"
        "inline const char* name() { return 0; }\ninline bool same(int a) { return a == a; }\n"
        "inline unsigned long product(int a, int b) { return static_cast<unsigned long>(a * b); }\n",
        "#pragma once\ninline int area(int a, int b) { return a * b; }\n",
    ),
}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with this project's settings and no sources."""
    for name in ("pyproject.toml", ".clang-format", ".clang-tidy"):
        (tmp_path / name).write_text((gates.ROOT / name).read_text())
    (tmp_path / "src/sonde/core").mkdir(parents=True)
    (tmp_path / "src/sonde/__init__.py").touch()
    (tmp_path / "src/sonde/core/__init__.py").touch()
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    monkeypatch.setattr(gates, "ROOT", tmp_path)
    monkeypatch.setattr(gates, "COMPILE_COMMANDS", tmp_path / "build")
    return tmp_path


def gate(name: str) -> gates.Gate:
    return next(gate for gate in gates.GATES if gate.name == name)


def test_each_gate_has_a_fault():
    assert FAULTS.keys() == {gate.name for gate in gates.GATES}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_makes_its_gate_fail(name: str, checkout: Path):
    path, wrong, right = FAULTS[name]
    (checkout / path).parent.mkdir(parents=True, exist_ok=True)
    (checkout / path).write_text(right)
    assert gates.judge(gate(name), gates.sources(), True)[:2] == ("✓", "")
    (checkout / path).write_text(wrong)
    mark, text, _ = gates.judge(gate(name), gates.sources(), True)
    assert mark == "✗"
    assert Path(path).name in text
    assert "hint: " in text


def test_clang_reads_what_gcc_compiles_by_options_of_its_own(checkout: Path):
    source = checkout / "native/core/own.cpp"
    source.parent.mkdir(parents=True)
    source.write_text("int own(int a);\nint own(int a) { return a; }\n")
    options = "-Werror -Wno-restrict -Wno-error=maybe-uninitialized -Wno-error=stringop-overread -mgeneral-regs-only"
    entry = {"directory": str(checkout), "file": str(source), "command": f"g++ {options} -c {source}"}
    (checkout / "build").mkdir()
    (checkout / "build/compile_commands.json").write_text(json.dumps([entry]))
    assert gates.judge(gate("lint-c++"), ["native/core/own.cpp"], True)[:2] == ("✓", "")


def test_a_tool_that_is_not_there_is_reported_and_fails_where_all_is_required():
    absent = gates.Gate("x", "no-such-tool", lambda paths: [["no-such-tool"]], "")
    assert gates.judge(absent, [], False)[0] == "-"
    mark, text, _ = gates.judge(absent, [], True)
    assert mark == "✗"
    assert "no-such-tool" in text


def test_an_unknown_gate_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        gates.main(["spelin"])
    assert "no gate is called spelin; there are format-python" in capsys.readouterr().err


def commit(checkout: Path, message: str) -> None:
    author = ["-c", "user.name=x", "-c", "user.email=x@y.z"]
    subprocess.run(["git", "-C", checkout, "add", "-A"], check=True)
    subprocess.run(["git", "-C", checkout, *author, "commit", "-q", "-m", message], check=True)


def test_what_changed_is_counted_from_the_upstream_or_the_last_commit(checkout: Path):
    (checkout / "a.cpp").write_text("")
    commit(checkout, "one")
    assert gates.changed(gates.base(), gates.sources()) == []
    (checkout / "b.cpp").write_text("")
    commit(checkout, "two")
    assert gates.changed(gates.base(), gates.sources()) == ["b.cpp"]
    subprocess.run(["git", "-C", checkout, "branch", "-q", "upstream"], check=True)
    subprocess.run(["git", "-C", checkout, "branch", "-q", "-u", "upstream"], check=True)
    (checkout / "a.cpp").write_text("int a;\n")
    commit(checkout, "three")
    (checkout / "c.cpp").write_text("")
    assert gates.changed(gates.base(), gates.sources()) == ["a.cpp", "c.cpp"]


def test_scripts_are_known_by_their_first_line(checkout: Path):
    (checkout / "a").write_text("#!/usr/bin/env bash\n")
    (checkout / "b").write_text("#!/bin/sh -e\n")
    (checkout / "c").write_text("#!/usr/bin/env python3\n")
    (checkout / "d").write_text("no line of a shell's\n")
    assert gates.scripts(["a", "b", "c", "d"]) == ["a", "b"]

"""Commands in errors, findings and hints exist, with their options; so do packages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from sonde.cli.commands import root
from sonde.core.distribution import PYTHON_PACKAGES

ROOT = Path(__file__).parents[2]
HOLE = "{}"  # a part of a text that is filled in
# A command in a message: a whole text, within quotes, or after a colon.
COMMAND = re.compile(r"(?:^|(?<=')|(?<=`)|(?<=: ))sonde (?=[a-z{])([^';`]*)")
# Texts that begin with Sonde's name but are not commands: the magic strings of protocols, names of tools, a page's
# title.
OTHERS = ("store tls 1", "guard", "clustbench clustbench-v1", "power ·", "power order 1", "has no command")
PIP = re.compile(r"\bpip install ([^;`]*)")
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"(?:\s*"((?:[^"\\\n]|\\.)*)")*')


def python_texts(path: Path) -> Iterator[str]:
    """The texts of a module, with HOLE for values that are filled in; docstrings are not messages."""
    tree = ast.parse(path.read_text())
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    without = inner | {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else HOLE for part in node.values)
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in without:
            yield node.value
        elif isinstance(node, ast.Call | ast.List | ast.Tuple):  # typed("sonde", "net", "show", path)
            words = node.args if isinstance(node, ast.Call) else node.elts
            parts = [word.value if isinstance(word, ast.Constant) else HOLE for word in words]
            if len(parts) > 1 and parts[0] == "sonde":
                yield " ".join(map(str, parts))


def native_texts(path: Path) -> Iterator[str]:
    """The string literals of a C++ source; adjacent ones are joined."""
    code = re.sub(r"//[^\n]*|^\s*#include[^\n]*", "", path.read_text(), flags=re.M)
    for found in LITERAL.finditer(code):
        parts = re.findall(r'"((?:[^"\\\n]|\\.)*)"', found[0])
        yield "".join(parts).replace("\\n", "\n").replace('\\"', '"')


def texts() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "src/sonde").rglob("*.py")):
        yield from ((str(path.relative_to(ROOT)), text) for text in python_texts(path))
    for path in sorted([*(ROOT / "native").rglob("*.cpp"), *(ROOT / "native").rglob("*.hpp")]):
        yield from ((str(path.relative_to(ROOT)), text) for text in native_texts(path))


def commands() -> list[tuple[str, str]]:
    """The place and the words after `sonde` of every command in a message."""
    return [
        (place, found[1].strip())
        for place, text in texts()
        for line in text.splitlines()
        for found in COMMAND.finditer(line)
        if not found[1].startswith(OTHERS) and "/fuzz/" not in place
    ]


def wrong(words: str) -> str:
    """The fault of a command; "" if it and its options exist."""
    command: click.Command = root
    rest = words.split()
    while isinstance(command, click.Group) and rest and not rest[0].startswith(("-", HOLE)):
        name = rest[0].rstrip(".,:)")
        found = command.get_command(click.Context(command), name)
        if found is None:
            return f"no command {name!r}"
        command, rest = found, rest[1:]
    if isinstance(command, click.Group) and rest and rest[0].startswith(HOLE):
        return ""  # the program fills in the command
    known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    for word in rest[: rest.index("--")] if "--" in rest else rest:
        option = re.match(r"--[a-z][a-z-]*", word)
        if option and HOLE not in word.split("=")[0] and option[0] not in known | {"--help"}:
            return f"no option {option[0]}"
    return ""


def test_every_command_of_a_message_exists_with_its_options():
    all_ = commands()
    assert len(all_) > 120  # else the search no longer finds them
    assert any(place.startswith("native/") for place, _ in all_)
    failed = {f"{place}: sonde {words}: {why}" for place, words in all_ if (why := wrong(words))}
    assert not failed, "\n".join(sorted(failed))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("net shw a.nc", "no command 'shw'"),
        ("nett show", "no command 'nett'"),
        ("net show --preciseness 5 a.nc", "no option --preciseness"),
        ("net show {} --pair 0,1", ""),
        ("{} check {}", ""),
        ("io run -- program --option", ""),
    ],
)
def test_a_wrong_command_would_be_noticed(words, why):
    assert wrong(words) == why


def test_no_message_names_a_package_that_does_not_exist():
    """Sonde itself is on no index: an installation of its name from an index would install somebody else's program."""
    named = [(place, found[1]) for place, text in texts() for found in PIP.finditer(text)]
    allowed = {re.split(r"[<>=\[]", spec)[0] for spec in PYTHON_PACKAGES.values()} | {"h5py"}
    for place, words in named:
        packages = [
            re.split(r"[<>=\[]", word.strip("'\""))[0] for word in words.split() if word[0] not in "-{"
        ]
        assert set(packages[:1]) <= allowed, f"{place}: pip install {words}"
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert not [page for page in pages if re.search(r"pip install \S*sonde", page.read_text())]

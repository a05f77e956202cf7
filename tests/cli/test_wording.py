"""wording.txt is a list of command lines with their output and exit codes; every one is run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

CASES = Path(__file__).with_name("wording.txt")


def cases(text: str) -> Iterator[tuple[str, str, str, int]]:
    """(command line, stderr, stdout, exit code) of each case."""
    line, err, out = "", [], []
    for number, written in enumerate(text.splitlines(), 1):
        mark, rest = written[:1], written[2:]
        if mark == "$":
            line, err, out = rest, [], []
        elif mark == "!":
            err.append(rest)
        elif mark == ">":
            out.append(rest)
        elif mark == "=":
            assert line, f"line {number}: an exit code without a command"
            yield line, "\n".join(err), "\n".join(out), int(rest)
            line = ""
        else:
            assert mark in ("", "#"), f"line {number}: {written}"
    assert not line, f"{line}: no exit code"


@pytest.mark.parametrize(
    ("line", "err", "out", "code"), [pytest.param(*case, id=case[0]) for case in cases(CASES.read_text())]
)
def test_words_and_exit_code(sonde, line, err, out, code):
    words = shlex.split(line)
    assert words[0] == "sonde"
    ran = sonde(*words[1:])
    assert ran.err.strip("\n") == err
    assert ran.out.strip("\n") == out
    assert ran.code == code


def test_the_case_reader_refuses_what_it_does_not_know():
    with pytest.raises(AssertionError, match="line 2"):
        list(cases("$ sonde\n? what\n= 0\n"))
    with pytest.raises(AssertionError, match="no exit code"):
        list(cases("$ sonde\n"))

"""No C++ file is longer than a reader can hold, unless its head gives the reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parent.parent / "native"
MAX_FILE = 800  # lines
REASON = re.compile(r"^// Long because: \S", re.MULTILINE)
HEAD = 12  # lines in which the reason must be


def fault(text: str) -> str:
    """The reason why a file is too long, or ""."""
    lines = text.splitlines()
    if len(lines) <= MAX_FILE or REASON.search("\n".join(lines[:HEAD])):
        return ""
    return f"{len(lines)} lines; at most {MAX_FILE}, or a line '// Long because: ...' in its head"


def test_no_file_is_too_long():
    found = {str(path.relative_to(NATIVE)): fault(path.read_text()) for path in NATIVE.rglob("*.[ch]pp")}
    assert len(found) > 300, "the search finds sources"
    assert not {path: why for path, why in found.items() if why}


def test_no_reason_is_left_at_a_short_file():
    short = [
        path.name
        for path in NATIVE.rglob("*.[ch]pp")
        if REASON.search(path.read_text()) and len(path.read_text().splitlines()) <= MAX_FILE
    ]
    assert not short


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("int x;\n" * MAX_FILE, 0),
        ("int x;\n" * (MAX_FILE + 1), MAX_FILE + 1),
        ("// One table.\n// Long because: a row for each name.\n" + "int x;\n" * MAX_FILE, 0),
        ("// Long because:\n" + "int x;\n" * MAX_FILE, MAX_FILE + 1),
        ("int x;\n" * MAX_FILE + "// Long because: it is.\n", MAX_FILE + 1),
    ],
    ids=["at the limit", "over it", "with a reason", "without words", "where nobody looks"],
)
def test_which_files_are_too_long(text, lines):
    why = f"{lines} lines; at most 800, or a line '// Long because: ...' in its head"
    assert fault(text) == (why if lines else "")

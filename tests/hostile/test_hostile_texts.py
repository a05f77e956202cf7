"""Texts of others on a terminal: they are displayed, and never executed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.core import dataset_file
from sonde.core.errors import Warning
from sonde.core.printable import printable, printable_json
from sonde.net.analyse import analyse
from sonde.net.synthetic import Network
from sonde_shell import Typed

# The window's title, the clipboard, a colour by CSI as one character, and a change of the order of characters.
ORDERS = "\x1b]0;root@login\x07\x1b]52;c;cm0gLXJmIH4K\x07\x9b31m\u202egnp.exe\u202c\rall is well"
OBEYED = ("\x1b", "\x07", "\x9b", "\u202e", "\r")
READERS = [
    ("net", "show"),
    ("net", "check"),
    ("data", "validate"),
    ("data", "convert", "--to", "md", "-o", "-"),
    ("report", "-o", "a.html"),
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset in which each displayed text contains orders for a terminal."""
    path = tmp_path_factory.mktemp("hostile") / "a.nc"
    raw = Network(ranks=3, sizes=(8, 1024)).raw(10, 10, seed=1)
    attrs = {"schema": "net/1", "mode": "one_to_one", "stop_reason": "converged", "complete": 1}
    warnings = [Warning(f"net.{ORDERS}", f"said {ORDERS}", f"type {ORDERS}")]
    dataset_file.write_dataset(
        path, raw, analyse(raw), attrs | {"command": ORDERS, "host": ORDERS}, {}, warnings
    )
    return path


@pytest.mark.parametrize("words", READERS, ids=" ".join)
@pytest.mark.parametrize("how", [(), ("--json",), ("--debug",)])
def test_no_order_of_a_dataset_reaches_the_terminal(
    typed: Typed, hostile: Path, words: tuple[str, ...], how: tuple[str, ...]
):
    ran = typed(*words, str(hostile), *how)
    for order in OBEYED:
        assert order not in ran.out, words
        assert order not in ran.err, words


def test_a_warning_is_still_reported(typed: Typed, hostile: Path):
    ran = typed("net", "show", str(hostile))
    assert r"\x1b]0;root@login\x07" in "".join(ran.err.split())
    told = typed("net", "show", str(hostile), "--json").json
    assert any(ORDERS in one["evidence"] for one in told["warnings"])


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left_of_any_text(text: str):
    shown = printable(text)
    assert all(char in "\n\t" or char.isprintable() or char.isspace() or ord(char) > 0x9F for char in shown)
    assert not any(order in shown for order in OBEYED)
    if text.isprintable() and text.isascii():
        assert shown == text


@given(st.dictionaries(st.text(), st.text()))
def test_json_says_what_it_said(value: dict[str, str]):
    text = printable_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value
    assert not any(order in text for order in OBEYED)

"""Which output goes where: stdout, stderr, JSON, colour."""

from __future__ import annotations

import io
import json
import math
import re
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

from sonde.cli import streams
from sonde.cli.console import Console, foreseen, plain
from sonde.cli.faults import Fault
from sonde.core.errors import Exit, Finding, UsageError, Warning
from sonde.core.events import NullProgress
from sonde.core.options import Settings
from sonde.core.outcome import Outcome, Table

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    """A stream that reports that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


def printed(outcome: Outcome, stream: io.StringIO | None = None, **settings: object) -> str:
    out = stream or io.StringIO()
    Console(Settings(**settings), out, io.StringIO()).show(outcome)
    return out.getvalue()


FULL = Outcome(
    "net",
    "run",
    "3 of 64 links are slow.",
    tables=[Table("Links", ("from", "median"), [("n01", "1.21 µs")], (1,), "2 more")],
    findings=[Finding("net.slow", "n01 is slow", next="sonde net show a.nc")],
    dataset="a.nc",
)


def test_json_is_one_object_on_stdout_and_nothing_else(sonde):
    ran = sonde("fake", "show", "a.nc", "--json")
    assert ran.err == ""
    assert json.loads(ran.out) == {
        "room": "fake",
        "verb": "show",
        "schema": "fake/1",
        "dataset": "a.nc",
        "complete": True,
        "verdict": "3 of 64 links are slow.",
        "findings": [
            {
                "code": "fake.slow",
                "text": "n01 to n02 is 21% slower than its class",
                "evidence": {"ratio": 1.21},
                "next": "sonde fake show",
            }
        ],
        "warnings": [
            {
                "code": "fake.virtual",
                "evidence": "the machine is virtualised",
                "hint": "repeat at another hour",
            }
        ],
        "median_s": 1.5e-6,
        "worst_s": None,
    }


def test_json_holds_what_a_command_was_given(sonde):
    ran = sonde("--json", "fake", "run", "--budget", "2min", "-o", "a.nc")
    given = json.loads(ran.out)["given"]
    assert given["budget_s"] == 120
    assert given["output"] == "a.nc"
    assert given["sizes"] == list(range(0, 1000, 100))


def test_a_document_becomes_a_key_in_json(sonde):
    assert json.loads(sonde("fake", "document", "--json").out)["document"] == "a,b\n1,2\n"


@pytest.mark.parametrize(
    "words", [("fake", "nonsense"), ("nonsense",), ("fake", "fail", "bug"), ("--nonsense",), ("gone",)]
)
def test_an_error_is_json_wherever_it_comes_up(sonde, words):
    for line in ((*words, "--json"), ("--json", *words)):
        ran = sonde(*line)
        assert ran.err == ""
        told = json.loads(ran.out)
        assert set(told) == {"error", "room", "verb"}
        assert set(told["error"]) == {"code", "what", "hint", "log"}
        assert ran.code != 0


def test_what_follows_two_dashes_is_not_ours():
    assert foreseen(["--json"]).json
    assert not foreseen(["io", "run", "--", "prog", "--json", "--debug"]).json
    assert foreseen(["--color=never"]).color == "never"
    assert foreseen(["--color", "always", "x"]).color == "always"
    assert foreseen(["--color", "bright"]).color == "auto"


def test_json_holds_no_number_that_json_does_not_know():
    pair = namedtuple("pair", "low high")
    value = {
        "nan": math.nan,
        "inf": -math.inf,
        1: Path("a/b"),
        "np": np.float32(0.5),
        "bad": np.float64("nan"),
        "array": np.array([[1.0, np.nan]]),
        "pair": pair(1, 2),
        "exit": Exit.USAGE,
        "flag": np.bool_(True),
        "set": {3},
    }
    assert plain(value) == {
        "nan": None,
        "inf": None,
        "1": "a/b",
        "np": 0.5,
        "bad": None,
        "array": [[1.0, None]],
        "pair": [1, 2],
        "exit": 2,
        "flag": True,
        "set": [3],
    }
    json.dumps(plain(value), allow_nan=False)


def test_there_is_colour_on_a_terminal_and_none_elsewhere(monkeypatch):
    assert ESCAPE.search(printed(FULL, Terminal()))
    assert not ESCAPE.search(printed(FULL))
    assert not ESCAPE.search(printed(FULL, Terminal(), color="never"))
    assert ESCAPE.search(printed(FULL, color="always"))
    monkeypatch.setenv("TERM", "dumb")
    assert not ESCAPE.search(printed(FULL, Terminal()))


def test_no_color_is_honoured_unless_colour_is_asked_for(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert not ESCAPE.search(printed(FULL, Terminal()))
    assert ESCAPE.search(printed(FULL, Terminal(), color="always"))


def test_colour_changes_no_character():
    assert ESCAPE.sub("", printed(FULL, color="always")) == printed(FULL)


def test_no_line_ends_in_blanks_nor_is_wider_than_the_terminal(monkeypatch):
    wide = Outcome(
        "net",
        "show",
        "word " * 60,
        lines=["word " * 60],
        tables=[Table("T" * 30, ("a", "b"), [("word " * 30, "x" * 200)], note="word " * 40)],
        findings=[Finding("net.slow", "word " * 60)],
    )
    for columns in ("40", "80", "132"):
        monkeypatch.setenv("COLUMNS", columns)
        lines = printed(wide).splitlines()
        assert [line for line in lines if len(line) > int(columns)] == []
        assert [line for line in lines if line != line.rstrip()] == []


def test_what_is_to_be_copied_is_never_wrapped():
    path = "/scratch/" + "deep/" * 40 + "a.nc"
    out = printed(
        Outcome(
            "net", "run", "x", dataset=path, findings=[Finding("a.b", "c", next=f"sonde net show {path}")]
        )
    )
    assert f"→ {path}\n" in out
    assert f"next: sonde net show {path}\n" in out


def test_what_to_do_next_is_wrapped_where_it_is_words(monkeypatch):
    words = "try fewer aggregators or none: the hints cb_nodes, cb_buffer_size, romio_cb_write=disable; " * 3
    out = Outcome("io", "check", findings=[Finding("io.a", "b", next=words.strip())])
    for columns in (40, 80, 132):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = [line for line in printed(out).splitlines() if line.startswith("  ")]
        assert lines[0].startswith("  next: try fewer")
        assert all(line.startswith(" " * 8) and line[8] != " " for line in lines[1:])
        assert max(map(len, lines)) <= columns
        assert " ".join(line.strip() for line in lines) == f"next: {words.strip()}"
    assert ESCAPE.sub("", printed(out, color="always")) == printed(out)


@pytest.mark.parametrize(
    "command", ["sonde data validate 'a b.nc' --values", "pip install 'h5py>=3.16'", "'make setup'"]
)
def test_a_command_within_words_is_not_broken(command):
    text = f"{'word ' * 13}then: {command}"
    out, err = io.StringIO(), io.StringIO()
    outcome = Outcome("io", "check", findings=[Finding("io.a", "b", next=text)])
    Console(Settings(), out, err).show(outcome)
    fault = Fault("io.a", text, text, "", Exit.USAGE)
    Console(Settings(), io.StringIO(), err).fail(fault, UsageError("io.a", text))
    for shown, times in ((out.getvalue(), 1), (err.getvalue(), 2)):
        assert sum(line.strip() == command for line in shown.splitlines()) == times
        assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("number", ["37.9 µs", "16 KiB", "1.21 MB/s", "0.10 %", "5 min"])
def test_a_number_and_its_unit_are_not_parted(monkeypatch, number):
    note = Table("t", ("a",), [("b",)], note=f"of {number} " * 40)
    rows = [(f"of {number} and {number}, {number}", "x" * 25)] * 3
    out = Outcome("net", "run", f"of {number} " * 40, lines=[f"of {number} " * 40])
    out.tables = [note, Table("t", ("what", "else"), rows)]
    for columns in range(50, 90):
        monkeypatch.setenv("COLUMNS", str(columns))
        shown = printed(out)
        lines = shown.splitlines()
        assert max(map(len, lines)) <= columns
        head = number.split(" ")[0]
        assert not [line for line in lines if line.split("   ")[0].rstrip().endswith(head)]


def test_a_name_of_a_scope_is_broken_behind_its_colons():
    rows = [("sonde::bus::probe::Message", "word " * 14, "x" * 40)]
    shown = printed(Outcome("net", "run", tables=[Table("t", ("type", "words", "else"), rows)]))
    assert "\n  :" not in shown
    assert "::" in shown


def test_a_line_that_begins_with_a_blank_is_a_command_and_is_not_wrapped():
    command = " mpirun " + "-x SOMETHING=1 " * 20 + "probe"
    path = "/scratch/" + "deep/" * 40
    out = printed(Outcome("net", "run", lines=["word " * 30, command, f"report: {path}"]))
    assert f"  {command}\n" in out
    assert f"{path}\n" in out
    assert max(len(line) for line in out.splitlines() if "word" in line) <= 80


def test_text_that_looks_like_markup_is_printed_as_it_is():
    text = "[bold]not bold[/bold] :smile: [n01]"
    out = printed(Outcome("net", "run", text, lines=[text], tables=[Table(text, (text,), [(text,)])]))
    assert out.count(text) == 5


class Pipe(io.StringIO):
    """A stream that also takes bytes; a terminal or not."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.buffer, self.terminal = io.BytesIO(), terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize("pieces", [[b"\x00\xff", b"b"], [], ["µ".encode()[:1], "µ".encode()[1:]]])
def test_bytes_are_poured_as_they_come(pieces):
    out = Pipe(terminal=False)
    Console(Settings(), out, io.StringIO()).show(Outcome("store", "get", stream=iter(pieces)))
    assert out.buffer.getvalue() == b"".join(pieces)
    assert out.getvalue() == ""


class Unread(io.StringIO):
    """A pipe after `| head -1`: reports its end once (streams.py)."""

    met = False

    def flush(self) -> None:
        if self.getvalue() and not self.met:
            self.met = True
            raise streams.ReaderGone


@pytest.mark.parametrize("asked", [{}, {"json": True}])
def test_a_check_that_finds_a_fault_says_so_by_its_exit_code_to_a_reader_that_has_gone(asked):
    err = io.StringIO()
    outcome = Outcome(
        "net", "check", "Bad.", exit=Exit.FINDING, warnings=[Warning("net.w", "it is noisy", "")]
    )
    assert Console(Settings(**asked), Unread(), err).show(outcome) == Exit.FINDING
    assert err.getvalue() == ("" if asked else "warning: it is noisy\n")


def test_json_has_names_as_datasets_have_them_and_is_text_to_every_reader():
    out = io.StringIO()
    outcome = Outcome("io", "show", values={"paths": ["bad\udcff", "line\nbreak"], "\udcfe": Path("\udcfd")})
    Console(Settings(json=True), out, io.StringIO()).show(outcome)
    assert out.getvalue().encode().isascii()
    read = json.loads(out.getvalue())
    assert (read["paths"], read[r"\xfe"]) == ([r"bad\xff", "line\nbreak"], r"\xfd")


def test_a_name_with_line_breaks_stays_in_its_row():
    out = printed(
        Outcome("io", "show", tables=[Table("", ("file", "n"), [("a\nb\tc\udcff", "1"), ("d", "2")], (1,))])
    )
    assert [line.split() for line in out.splitlines()[-2:]] == [[r"a\x0ab\x09c\xff", "1"], ["d", "2"]]


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([b"a\tb\r\n"], True),
        (["µ".encode()[:1], "µ\n".encode()[1:]], True),
        ([b"\xff"], False),
        ([b"\x1b[2J"], False),
        ([b"a\0"], False),
        ([b"good ", b"\xc3("], False),
    ],
)
def test_a_terminal_gets_text_only(pieces, text):
    out = Pipe(terminal=True)
    console = Console(Settings(), out, io.StringIO())
    if text:
        console.show(Outcome("store", "get", stream=iter(pieces)))
        assert out.buffer.getvalue() == b"".join(pieces)
    else:
        with pytest.raises(UsageError, match="stdout is a terminal"):
            console.show(Outcome("store", "get", stream=iter(pieces)))
        assert pieces[-1] not in out.buffer.getvalue()


def test_what_cannot_wait_is_reported_on_stderr_at_once():
    err = io.StringIO()
    console = Console(Settings(), io.StringIO(), err)
    console.settings.say("listening on 127.0.0.1:5440: " + "objects in a folder, " * 5 + "keys")
    console.settings.say("  sonde store status --server 127.0.0.1:5440" + " --long" * 10)
    lines = err.getvalue().splitlines()
    assert max(map(len, lines[:-1])) <= 80
    assert lines[-1].endswith("--long")
    assert len(lines[-1]) > 80


def test_an_outcome_without_anything_prints_nothing():
    assert printed(Outcome("net", "run")) == ""


def test_a_table_without_rows_shows_its_head():
    assert printed(Outcome("net", "run", tables=[Table("", ("from", "to"), [])])).split() == [
        "from",
        "to",
        "─" * 9,
    ]


def test_the_mark_says_whether_all_is_well():
    assert printed(Outcome("net", "run", "Fine.")).startswith("✓ Fine.")
    assert printed(Outcome("net", "run", "Bad.", exit=Exit.INCOMPLETE)).startswith("! Bad.")
    assert printed(FULL).startswith("! ")
    assert printed(Outcome("net", "run", "Unknown.", sound=False)).startswith("! Unknown.")


def test_a_terminal_without_the_letters_gets_the_units_spelt(monkeypatch):
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    assert Console(Settings(), out, io.StringIO()).show(FULL) == 0
    assert b"1.21 us" in raw.getvalue()


def test_json_for_a_terminal_without_the_letters_is_still_json():
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="latin-1")
    Console(Settings(json=True), out, io.StringIO()).show(Outcome("net", "run", "1 µs → 2"))
    assert json.loads(raw.getvalue().decode("latin-1"))["verdict"] == "1 µs → 2"
    assert raw.getvalue().isascii()


def test_long_errors_wrap_with_a_hanging_indent(sonde):
    err = sonde("fake", "run", "--sizes", "9" * 30).err
    lines = err.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("       ")


def test_debug_shows_the_traceback_on_stderr(sonde):
    ran = sonde("fake", "fail", "bug", "--debug")
    assert "Traceback (most recent call last)" in ran.err
    assert "fake_room.py" in ran.err
    assert "error: fake: internal: ZeroDivisionError" in ran.err
    assert "Traceback" not in sonde("fake", "fail", "bug").err
    together = sonde("fake", "fail", "bug", "--debug", "--json")
    assert json.loads(together.out)["error"]["code"] == "core.internal"


def test_progress_is_drawn_on_a_terminal_and_where_it_is_asked_for():
    def bar(err: io.StringIO, **settings: object) -> object:
        return Console(Settings(**settings), io.StringIO(), err).bar("net run", 60.0)

    assert not isinstance(bar(Terminal()), NullProgress)
    assert not isinstance(bar(io.StringIO(), progress="always"), NullProgress)
    assert isinstance(bar(io.StringIO()), NullProgress)
    assert isinstance(bar(Terminal(), progress="never"), NullProgress)
    assert isinstance(bar(Terminal(), json=True), NullProgress)


def test_progress_goes_to_stderr_and_leaves_stdout_alone(sonde):
    ran = sonde("fake", "long", "--progress", "always")
    assert "4 ranks" in ran.err
    assert ran.out == "✓ Done.\n"
    assert sonde("fake", "long").err == ""


def test_a_table_without_names_has_no_head():
    out = printed(Outcome("net", "run", tables=[Table("Title", ("", ""), [("a", "b")])]))
    assert out == "\n  Title\n  a   b\n"


def test_a_table_that_is_too_wide_breaks_names_at_their_seams_and_no_numbers(monkeypatch):
    names = ("mca_common_ompio_file_set_view", "romio_cb_write=disable", "a" * 40)
    columns = ("function", "layer", "calls", "in itself", "95 %")
    rows = [(name, "ompio", "123456", "1.23 ms", "0.253 to 0.262") for name in names]
    table = Table("", columns, rows, right=(2, 3, 4))
    monkeypatch.setenv("COLUMNS", "64")
    lines = printed(Outcome("io", "show", tables=[table])).splitlines()
    assert max(map(len, lines)) <= 64
    assert sum("0.253 to 0.262" in line for line in lines) == len(names)
    rule = next(k for k, line in enumerate(lines) if "──" in line)
    parts = [line.split()[0] for line in lines[rule + 1 :]]
    whole = "".join(parts)
    assert all(name in whole for name in names)
    assert all(part.endswith(("_", "=", "view", "disable", "a")) for part in parts)
    assert not any(line.split() == ["n"] for line in lines)  # from a heading that was split anywhere
    # If even numbers must be broken, they are broken between their words.
    monkeypatch.setenv("COLUMNS", "56")
    lines = printed(Outcome("io", "show", tables=[table])).splitlines()
    assert max(map(len, lines)) <= 56
    assert {"itself", "function", "layer", "calls"} <= {word for line in lines for word in line.split()}
    monkeypatch.setenv("COLUMNS", "200")
    assert sum(
        "mca_common_ompio_file_set_view" in line
        for line in printed(Outcome("io", "show", tables=[table])).splitlines()
    )


def test_a_table_that_cannot_fit_is_drawn_all_the_same(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    table = Table("", ("one", "two"), [("1234567890", "1234567890")], right=(0, 1))
    assert "".join(printed(Outcome("io", "show", tables=[table])).split()).count("7") == 2


def test_an_interruption_says_how_to_go_on():
    err = io.StringIO()
    fault = Fault("io.interrupted", "not saved", "sonde data recover big.run", exit=Exit.INTERRUPTED)
    Console(Settings(command=("io", "run")), io.StringIO(), err).fail(fault, KeyboardInterrupt())
    assert err.getvalue() == "\nio: not saved\n  hint: sonde data recover big.run\n"


def test_cells_that_are_marks_have_their_colour():
    out = printed(
        Outcome("net", "run", tables=[Table("", ("",), [("✓",), ("✗",), ("✓ and text",)])]), color="always"
    )
    assert "\x1b[32m✓\x1b[0m" in out
    assert "\x1b[31m✗\x1b[0m" in out
    assert "✓ and text" in ESCAPE.sub("", out)
    assert out.count("\x1b[32m") == 1


def test_coloured_lines_do_not_end_in_blanks_either():
    lines = [ESCAPE.sub("", line) for line in printed(FULL, color="always").splitlines()]
    assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.parametrize("columns", [80, 60, 40])
def test_no_number_of_a_table_is_split_over_lines(monkeypatch, columns):
    """Tables of any shape, with numbers in units, signs, powers, dates and names."""
    random = np.random.default_rng(4)
    words = ("4400 × 6.55 KiB", "10.4 KiB", "-5.9 %", "1e-05", "2026-11-26 15:38", "net;ofi_rxm 5.14 µs")
    words += ("−16 to 0 %", "1,198,477", "342.6 W", "1.012 kW", "2.2 GHz", "7 of 8", "host-0123.rack-17")
    heads = ("name", "size", "a head of words", "n", "duration")
    token = re.compile(
        r"\d{4}-\d\d-\d\d|(?:(?<!\w)[-−])?\d(?:[.,:]?\d)*(?:e-05)?(?: (?:[kM]?i?B|%|µs|k?W|GHz))?"
    )
    monkeypatch.setenv("COLUMNS", str(columns))
    for _ in range(100):
        n = int(random.integers(2, 9))
        rows = [tuple(random.choice(words, n)) for _ in range(3)]
        right = tuple(k for k in range(n) if random.random() < 0.5)
        table = Table("Title", tuple(random.choice(heads, n)), rows, right)
        shown = printed(Outcome("net", "run", tables=[table]))
        assert max(map(len, shown.splitlines())) <= columns
        drawn = " ".join(re.split(r"\s{2,}|\n", shown))
        asked = sorted(found for row in rows for cell in row for found in token.findall(cell))
        assert sorted(token.findall(drawn)) == asked, shown


def test_a_table_that_is_too_wide_for_its_numbers_has_its_cells_below_each_other(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    rows = [("fast", *["1.25 µs to 1.35 µs"] * 4), ("slow", *["12.5 µs to 13.5 µs"] * 4)]
    table = Table("Delays", ("what", "8 B", "1 KiB", "64 KiB", "1 MiB"), rows, (1, 2, 3, 4), "a note")
    shown = printed(Outcome("net", "run", tables=[table])).splitlines()
    assert shown[1:5] == [
        "  Delays",
        "  what    fast",
        "  8 B     1.25 µs to 1.35 µs",
        "  1 KiB   1.25 µs to 1.35 µs",
    ]
    assert shown[6:9] == ["  1 MiB   1.25 µs to 1.35 µs", "", "  what    slow"]
    assert shown[-1] == "  a note"

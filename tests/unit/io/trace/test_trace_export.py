"""Every call in other tools' forms."""

from __future__ import annotations

import csv
import io
import json

import pytest
import traces
from traces import OPEN, PREAD, PWRITE, WRITE_ALL, call, note

import sonde
from sonde.io.trace import export
from sonde.io.trace.events import FAILED, UNFINISHED


@pytest.fixture
def raw(tmp_path):
    folder = traces.run(tmp_path / "a.run")
    records = [
        note(1000, 3, 'a "name", with commas'), call(OPEN, 1000, 1500, file=3),
        call(PWRITE, 2100, 2500, depth=1, size=64, offset=128, file=3), call(WRITE_ALL, 2000, 3000, flags=FAILED),
        call(PREAD, 4000, 0, flags=UNFINISHED),
    ]  # fmt: skip
    traces.add(folder, records, rank=5, pid=41)
    traces.add(folder, [call(PWRITE, 100, 200)], pid=77)
    with sonde.open(traces.sealed(folder)) as tree:
        yield tree["raw"].to_dataset()


@pytest.mark.parametrize("piece", [1, 2, 100])
def test_csv_has_a_line_for_each_call(raw, monkeypatch, piece):
    monkeypatch.setattr(export, "PIECE", piece)
    lines = list(csv.reader(io.StringIO(b"".join(export.csv_text(raw)).decode())))
    assert lines[0][:6] == ["rank", "host", "process", "thread", "layer", "function"]
    assert "duration (ns)" in lines[0]
    table = [dict(zip(lines[0], line)) for line in lines[1:]]
    assert [row["function"] for row in table] == ["open", "pwrite", "MPI_File_write", "pread", "pwrite"]
    assert table[1] == {
        "rank": "5", "host": "n1", "process": "41", "thread": "42", "layer": "posix", "function": "pwrite",
        "engine": "interposition", "begin (ns)": "2100", "duration (ns)": "400", "size (B)": "64", "offset (B)": "128",
        "request": "", "path": 'a "name", with commas', "failed": "0", "unfinished": "0",
    }  # fmt: skip
    assert (table[2]["failed"], table[3]["unfinished"], table[3]["size (B)"]) == ("1", "1", "-1")


def test_chrome_s_format_holds_each_call_in_microseconds(raw):
    told = json.loads(b"".join(export.chrome_text(raw)))
    calls = [event for event in told["traceEvents"] if event["ph"] == "X"]
    assert len(calls) == 5
    write = next(event for event in calls if event["name"] == "pwrite" and event["pid"] == 41)
    assert (write["ts"], write["dur"], write["cat"], write["tid"]) == (2.1, 0.4, "posix", 42)
    assert write["args"] == {"size": 64, "offset": 128, "path": 'a "name", with commas'}
    assert next(event for event in calls if event["name"] == "MPI_File_write")["args"] == {"failed": 1}
    names = {
        event["pid"]: event["args"]["name"]
        for event in told["traceEvents"]
        if event["name"] == "process_name"
    }
    assert names == {41: "rank 5 on n1", 77: "prog on n1"}


@pytest.mark.parametrize("piece", [1, 2, 100])
def test_calls_for_one_request_are_reported_and_joined_by_arrows(tmp_path, monkeypatch, piece):
    monkeypatch.setattr(export, "PIECE", piece)
    rules = [[0, 4, 1], [1, 4, 1], [1, 1, 0], [1, 3, 0]]
    folder = traces.run(tmp_path / "a.run", {"rules": rules})
    a, b, alone = 5, (1 << 63) + 7, 9
    made = [
        call(WRITE_ALL, 1000, 1100, offset=a),
        call(WRITE_ALL, 1200, 1300, offset=b),
        call(OPEN, 1400, 1500),
    ]
    traces.add(
        folder,
        [*made, call(WRITE_ALL, 9000, 9001, offset=b), call(WRITE_ALL, 9500, 9600, offset=alone)],
        pid=41,
    )
    traces.add(folder, [call(PWRITE, 3000, 3100, offset=b), call(PWRITE, 4000, 4100, offset=a)], pid=77)
    with sonde.open(traces.sealed(folder)) as tree:
        raw = tree["raw"].to_dataset()
        told = json.loads(b"".join(export.chrome_text(raw)))["traceEvents"]
        lines = list(csv.DictReader(io.StringIO(b"".join(export.csv_text(raw)).decode())))
    assert [line["request"] for line in lines] == [
        "5", "8000000000000007", "", "8000000000000007", "9", "8000000000000007", "5",
    ]  # fmt: skip
    assert {line["offset (B)"] for line in lines} == {"-1"}
    arrows = [(one["id"], one["ph"], one["pid"], one["tid"], one["ts"]) for one in told if one["ph"] in "stf"]
    assert sorted(arrows, key=lambda one: (one[0], one[-1])) == [
        ("5", "s", 41, 42, 1.0), ("5", "f", 77, 78, 4.0),
        ("8000000000000007", "s", 41, 42, 1.2), ("8000000000000007", "t", 77, 78, 3.0),
        ("8000000000000007", "f", 41, 42, 9.0),
    ]  # fmt: skip
    assert all(one["bp"] == "e" for one in told if one["ph"] == "f")
    sent = next(one for one in told if one["ph"] == "X" and one["ts"] == 1.0)
    assert sent["args"] == {"request": "5"}


def test_a_trace_without_calls(tmp_path):
    folder = traces.run(tmp_path / "a.run")
    traces.add(folder, [])
    with sonde.open(traces.sealed(folder)) as tree:
        raw = tree["raw"].to_dataset()
        assert json.loads(b"".join(export.chrome_text(raw)))["traceEvents"]
        assert len(b"".join(export.csv_text(raw)).splitlines()) == 1

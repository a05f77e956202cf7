"""What servers counted, in a trace and in words, beside what clients did."""

from __future__ import annotations

import json

import numpy as np
import pytest
import traces
from traces import OPEN, PWRITE, call, note

import sonde
from sonde.io.kinds import SCHEMA
from sonde.io.trace import servers, verdict

KIB = 1024


def server(name: str, writes: int, **more):
    return {
        "name": name,
        "answered": 1,
        "bytes": [0, writes * 128 * KIB],
        "sizes": [[128 * KIB, [0, writes]]],
        "operations": {
            "WRITE": [writes, 1e-3, 0.5e-3, 2e-3],
            "LOOKUP": [3, 1e-4, 1e-5, 1e-3],
            "RELEASE": [1, None, None, None],
        },
    } | more


def told(*each, **more):
    return {
        "volume": "vol",
        "profiling": "ours",
        "system": "GlusterFS volume vol, Distribute",
        "mounts": ["/mnt"],
        "cwd": "/home/user",
        "servers": list(each),
    } | more


@pytest.fixture
def tree(tmp_path):
    """tree(what servers told): of a program that wrote 2 × 256 KiB to /mnt/f and 64 KiB to a file of its host's."""

    def make(said):
        folder = traces.run(tmp_path / "a.run")
        (folder / servers.FILE).write_text(json.dumps(said))
        traces.add(
            folder,
            [
                note(100, 7, "../../mnt/f"), call(OPEN, 100, 200, file=7),
                call(PWRITE, 300, 400, size=256 * KIB, file=7), call(PWRITE, 500, 700, size=256 * KIB, file=7),
                note(800, 8, "/mnt2/f"), call(OPEN, 800, 900, file=8),
                call(PWRITE, 1000, 1100, size=64 * KIB, file=8),
            ],
        )  # fmt: skip
        return sonde.open(traces.sealed(folder))

    return make


def test_counters_are_in_the_dataset_and_in_no_sum_of_the_trace(tree):
    with tree(told(server("n1:/b", 3), server("n2:/b", 1))) as data:
        assert SCHEMA.validate(data) == []
        raw, summary = (data[group].to_dataset().load() for group in ("raw", "summary"))
    assert raw["server_name"].values.tolist() == ["n1:/b", "n2:/b"]
    assert raw["operation_name"].values.tolist() == ["LOOKUP", "RELEASE", "WRITE"]
    assert raw["server_calls"].values.tolist() == [[3, 1, 3], [3, 1, 1]]
    assert np.allclose(raw["server_mean"].values[0], [1e-4, np.nan, 1e-3], equal_nan=True)
    assert raw["server_most"].attrs["units"] == "s"
    assert raw["server_bytes"].values.tolist() == [[0, 3 * 128 * KIB], [0, 128 * KIB]]
    # A class k holds 2^(k-1) to 2^k - 1 B: those of 128 KiB are the eighteenth.
    assert np.argwhere(raw["server_sizes"].values).tolist() == [[0, 1, 18], [1, 1, 18]]
    assert dict(zip(raw["path"].values, raw["file_served"].values)) == {"../../mnt/f": 1, "/mnt2/f": 0}
    assert summary["server_calls"].values.tolist() == raw["server_calls"].values.tolist()
    assert verdict.traced_s(summary) == pytest.approx(600e-9)


def test_requests_are_held_against_those_of_the_clients(tree):
    with tree(told(server("n1:/b", 3), server("n2:/b", 1))) as data:
        summary = data["summary"].to_dataset().load()
    (written,) = servers.against_clients(summary)
    assert written["direction"] == "write"
    assert written["client"] == "POSIX"
    assert (written["client_requests"], written["client_bytes"]) == (2, 512 * KIB)  # not those to /mnt2/f
    assert (written["server_requests"], written["server_bytes"]) == (4, 512 * KIB)
    assert (written["requests_ratio"], written["bytes_ratio"]) == (2.0, 1.0)
    assert written["server_s"] == pytest.approx(4e-3)
    assert written["time_ratio"] == pytest.approx(4e-3 / 300e-9)
    against, each, operations = servers.tables(summary)
    assert against.rows[0][:5] == ("written", "2 × 256 KiB", "4 × 128 KiB", "2", "100 %")
    assert "counters, not from events" in each.note
    assert [row[:3] for row in each.rows] == [("n1:/b", "", "3 × 128 KiB"), ("n2:/b", "", "1 × 128 KiB")]
    assert operations.rows[0][:5] == ("WRITE", "4", "1.00 ms", "500 µs", "2.00 ms")
    assert operations.rows[-1][:3] == ("RELEASE", "2", "–")
    shown = verdict.tables(summary)[-3:]
    assert shown[:2] == [against, each]
    assert (shown[2].title, shown[2].rows) == (operations.title, operations.rows)
    assert shown[2].note == (
        "Smallest detectable slowdown of a server: WRITE: not compared, 2 servers had it, but a comparison needs 3."
    )


def test_a_server_that_is_down_says_so(tree):
    down = server("n2:/b", 0, answered=0, sizes=[], operations={})
    with tree(told(server("n1:/b", 3), down)) as data:
        summary = data["summary"].to_dataset().load()
    assert [one["answered"] for one in servers.values(summary)["servers"]] == [True, False]
    each = next(table for table in servers.tables(summary) if table.title.startswith("Servers"))
    assert each.rows[1][:2] == ("n2:/b", "down")


def test_without_servers_nothing_is_reported_of_them(tree):
    with tree(told()) as data:
        summary = data["summary"].to_dataset().load()
        assert "server_name" not in data["raw"]
    assert servers.values(summary) is None
    assert servers.tables(summary) == []


def test_what_a_killed_run_says_of_servers(tmp_path):
    folder = traces.run(tmp_path / "a.run")
    traces.add(folder, [call(PWRITE, 300, 400, size=1)])
    run = json.loads((folder / "run.json").read_text())
    del run["attrs"]["stop_reason"]
    (folder / "run.json").write_text(json.dumps(run))
    (folder / servers.FILE).write_text(json.dumps({"volume": "vol", "profiling": "ours", "servers": None}))
    with sonde.open(traces.sealed(folder)) as data:
        warnings = dict(zip(data["warnings"]["code"].values, data["warnings"]["hint"].values))
    assert warnings["io.no_server_counters"] == "gluster volume profile vol stop"

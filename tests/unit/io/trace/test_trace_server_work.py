"""What servers did for clients, from the tracer's files to the summary's tables."""

from __future__ import annotations

import numpy as np
import pytest
from traces import add, call, note, run, sealed, thread

import sonde
from sonde.io.maps.layers import KINDS
from sonde.io.trace import joined_requests, server_work
from sonde.io.trace.analyse import analyse
from sonde.io.trace.schema import UNSEEN

LAYERS = [
    {"name": "app", "title": "Client", "serves": ""},
    {"name": "daemon", "title": "Server", "serves": "app"},
    {"name": "posix", "title": "POSIX", "serves": ""},
]
SEND, ANSWERED, SERVE, REPLY, PWRITE = range(5)
KIND = [KINDS.index(name) for name in ("write", "other", "write", "communicate", "write")]
RULES = [[layer, kind, int(k != PWRITE)] for k, (layer, kind) in enumerate(zip((0, 0, 1, 1, 2), KIND))]
NAMES = ("send", "answered", "serve", "reply", "pwrite")
FUNCTIONS = "".join(f"{k}\t{k}\t{name}\tlib.so\n" for k, name in enumerate(NAMES))
A, B = (7 << 32) | 1, (0xFFFFFFFF << 32) | 1  # the second is negative as 64 bits with a sign


def of(folder, rules=RULES, layers=LAYERS):
    return run(folder, {"layers": layers, "rules": rules, "clocks": [["n1", 0, 0], ["n1", 10**9, 10**9]]})


def client(folder, *records, pid=100):
    return add(folder, records, FUNCTIONS, pid=pid)


@pytest.fixture
def joined(tmp_path):
    """Two requests of a client under way at once, a server that works on them in two threads."""
    folder = of(tmp_path / "a.run")
    client(
        folder,
        call(SEND, 100, 200, size=4096, offset=A),
        call(SEND, 200, 300, size=1000, offset=B),
        call(ANSWERED, 800, 800, size=0, offset=B),
        call(ANSWERED, 1000, 1010, size=0, offset=A),
    )
    add(
        folder,
        [
            call(PWRITE, 410, 430, depth=1, size=4096, offset=0),
            call(SERVE, 400, 440, size=4096, offset=A),
            call(SERVE, 450, 460, size=1000, offset=B),
            call(REPLY, 600, 610, size=0, offset=B),
            call(REPLY, 700, 720, size=0, offset=A),
            thread(201),
            call(PWRITE, 500, 550, depth=1, size=1000, offset=4096),
            call(SERVE, 490, 560, size=1000, offset=B),
            call(PWRITE, 900, 950, size=1, offset=0),
        ],
        FUNCTIONS,
        pid=200,
    )
    with sonde.open(sealed(folder)) as tree:
        yield tree.load()


class TestDataset:
    def test_a_request_s_number_is_no_offset(self, joined):
        raw = joined["raw"].to_dataset()
        names = raw["function_name"].values[raw["function_index"].values]
        assert set(raw["offset"].values[names != "pwrite"]) == {-1}
        assert sorted(raw["offset"].values[names == "pwrite"]) == [0, 0, 4096]
        assert raw["request_event"].values.tolist() == np.flatnonzero(names != "pwrite").tolist()
        numbers = raw["request_number"].values.view(np.uint64).tolist()
        assert numbers == [A, B, B, A, A, B, B, A, B]
        assert raw["layer_serves"].values.tolist() == ["", "app", ""]

    def test_it_is_valid(self, joined):
        from sonde.io.kinds import SCHEMA

        assert SCHEMA.validate(joined) == []


class TestSums:
    def test_time_of_both_sides(self, joined):
        (one,) = joined_requests.values(joined["summary"].to_dataset())
        assert (one["server"], one["by"], one["requests"], one["joined"], one["share"]) == (
            "daemon",
            "number",
            2,
            2,
            1,
        )
        assert one["strays"] == 0
        (send,) = one["operations"]
        assert (send["function"], send["bytes"]) == ("send", 5096)
        # 100..1010 and 200..800 for the client, 400..720 and 450..610 for the server.
        ns = {name: round(send[name] * 1e9) for name in ("time_s", "server_s", "away_s", "waiting_s")}
        assert ns == {"time_s": 1510, "server_s": 480, "away_s": 590 + 440, "waiting_s": 480 - 150}
        assert {name: round(s * 1e9) for name, s in send["layers"].items()} == {"daemon": 80, "posix": 70}
        assert send["servers"] == [
            {"host": "n1", "pid": 200, "requests": 2, "server_s": pytest.approx(480e-9)}
        ]

    def test_what_is_reported_of_it(self, joined):
        (table,) = joined_requests.tables(joined["summary"].to_dataset())
        assert table.title == "Requests to Server"
        assert table.rows[0][:3] == ("send", "2 × 2.49 KiB", "in all")
        assert [row[2] for row in table.rows] == [
            "in all", "under way", "waiting there", "there in Server", "there in POSIX",
        ]  # fmt: skip
        assert "100 % of the requests of Client were joined, by their number" in table.note

    def test_its_figure(self, joined):
        made = joined_requests.figure(joined["summary"].to_dataset())
        data = made.data
        assert data["x"].values.tolist() == ["send"]
        assert data["part"].values.tolist() == [
            "under way",
            "waiting there",
            "there in Server",
            "there in POSIX",
        ]
        assert (data["y"].values[:, 0] * 1e9).round().tolist() == [515, 165, 40, 35]
        assert "100 % of the requests of Client" in made.caption
        from sonde.io.trace.figures import section

        (whole,) = [one for one in section(joined).figures if one.id == "io-requests"]
        assert whole.title == made.title


def summed(folder):
    with sonde.open(sealed(folder)) as tree:
        return tree["summary"].to_dataset().load()


def test_requests_are_distinguished_by_the_outermost_call_that_made_them(tmp_path):
    folder = of(tmp_path / "a.run")
    calls = [call(SEND, 100, 200, depth=1, size=10, offset=A), call(PWRITE, 50, 2000, size=10, offset=0)]
    calls += [call(SEND, 3000 + 10 * k, 3005 + 10 * k, size=10, offset=A + 1 + k) for k in range(2)]
    client(folder, *calls)
    client(folder, *(call(SERVE, 5000 + 10 * k, 5005 + 10 * k, offset=A + k) for k in range(3)), pid=200)
    summary = summed(folder)
    (one,) = joined_requests.values(summary)
    assert {(x["within"], x["function"], x["requests"]) for x in one["operations"]} == {
        ("pwrite", "send", 1),
        ("send", "send", 2),
    }
    (table,) = joined_requests.tables(summary)
    assert {row[0] for row in table.rows} == {"pwrite › send", "send", ""}


def test_the_terminal_tells_of_the_longest(tmp_path, monkeypatch):
    monkeypatch.setattr(joined_requests, "SHOWN", 1)
    folder = of(tmp_path / "a.run")
    client(
        folder, call(SEND, 0, 10, depth=1, offset=A), call(PWRITE, 0, 20), call(SEND, 100, 9000, offset=A + 1)
    )
    client(folder, call(SERVE, 3, 4, offset=A), call(SERVE, 200, 201, offset=A + 1), pid=200)
    summary = summed(folder)
    (table,), (whole,) = joined_requests.tables(summary), joined_requests.tables(summary, every=True)
    assert [row[0] for row in table.rows if row[0]] == ["send"]
    assert "there in Server" not in [row[2] for row in table.rows]  # 1 of 8900 ns
    assert table.note.startswith("1 more with less time: --all. ")
    assert [row[0] for row in whole.rows if row[0]] == ["send", "pwrite › send"]
    assert "there in Server" in [row[2] for row in whole.rows]
    assert "--all" not in whole.note


class TestOneSide:
    def test_a_client_whose_server_was_not_traced(self, tmp_path):
        folder = of(tmp_path / "a.run")
        client(folder, call(SEND, 100, 200, size=4096, offset=A))
        summary = summed(folder)
        (one,) = joined_requests.values(summary)
        assert (one["requests"], one["joined"], one["share"]) == (1, 0, 0.0)
        (table,) = joined_requests.tables(summary)
        assert "No server was traced" in table.note
        assert [row[2] for row in table.rows] == ["in all", "not joined"]
        assert joined_requests.figure(summary) is None

    def test_a_server_whose_clients_were_not(self, tmp_path):
        folder = of(tmp_path / "a.run")
        client(folder, call(SERVE, 100, 200, size=4096, offset=A), call(REPLY, 300, 310, offset=A))
        summary = summed(folder)
        (one,) = joined_requests.values(summary)
        assert (one["requests"], one["strays"], one["share"]) == (0, 1, None)
        assert joined_requests.tables(summary) == []

    def test_nobody_serves(self, tmp_path):
        folder = of(tmp_path / "a.run")
        client(folder, call(PWRITE, 100, 200, size=4096, offset=0))
        summary = summed(folder)
        assert joined_requests.values(summary) == []
        assert joined_requests.tables(summary) == []


def test_without_numbers_calls_are_joined_by_what_they_are_like(tmp_path):
    folder = of(tmp_path / "a.run", [[layer, kind, 0] for layer, kind, _ in RULES])
    client(folder, *(call(SEND, 1000 * k, 1000 * k + 900, size=64, offset=64 * k) for k in range(4)))
    served = [call(SERVE, 1000 * k + 100, 1000 * k + 400, size=64, offset=64 * k) for k in (0, 1, 3)]
    client(folder, *served, call(SERVE, 9000, 9001, size=64, offset=0), pid=200)
    (one,) = joined_requests.values(summed(folder))
    assert (one["by"], one["requests"], one["joined"], one["share"], one["strays"]) == (
        "likeness",
        4,
        3,
        0.75,
        1,
    )
    (send,) = one["operations"]
    assert round(send["server_s"] * 1e9) == 900
    assert round(send["away_s"] * 1e9) == 3 * 600


def test_a_dataset_of_an_earlier_version_has_no_joins(joined):
    raw = joined["raw"].to_dataset().drop_vars(["layer_serves", "request_event", "request_number"])
    summary = analyse(raw)
    assert summary.sizes["join"] == 0
    assert joined_requests.values(summary) == []
    assert (
        joined_requests.values(summary.drop_vars([name for name in summary if str(name).startswith("join")]))
        == []
    )


def test_a_run_s_folder_of_an_earlier_version_is_read(tmp_path):
    folder = of(
        tmp_path / "a.run", [rule[:2] for rule in RULES], [{"name": x["name"], "title": ""} for x in LAYERS]
    )
    client(folder, call(SEND, 100, 200, size=4096, offset=8192))
    with sonde.open(sealed(folder)) as tree:
        assert tree["raw"]["offset"].values.tolist() == [8192]
        assert tree["raw"].sizes["request"] == 0


def test_a_descriptor_that_nobody_was_seen_to_open_is_no_file(tmp_path):
    folder = of(tmp_path / "a.run")
    client(folder, note(10, 3, "f"), call(PWRITE, 10, 20, file=3), call(PWRITE, 30, 40, file=9))
    with sonde.open(sealed(folder)) as tree:
        raw = tree["raw"].to_dataset().load()
    raw["file_index"].values[:] = 0, UNSEEN
    side = server_work._all_of(raw, np.ones(raw.sizes["function"], bool))
    assert side.calls.file.tolist() == [0, -1]

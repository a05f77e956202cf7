"""Several traces as one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import traces
import xarray as xr
from traces import add, call, note, run, sealed, thread

import sonde
from sonde.core.errors import DataError, UsageError
from sonde.io import cli_files
from sonde.io.maps.layers import KINDS
from sonde.io.trace import joined_requests, merge
from sonde.io.trace.analyse import analyse
from sonde.io.trace.schema import RAW, UNSEEN

SEND, SERVE, OPEN, PWRITE = range(4)
WRITE = KINDS.index("write")
FUNCTIONS = "0\t0\tsend\tlib.so\n1\t1\tserve\tlib.so\n2\t2\topen\tlibc.so\n3\t3\tpwrite\tlibc.so\n"
APP, DAEMON, POSIX, OWN = (
    {"name": name, "title": name.upper(), "serves": serves}
    for name, serves in (("app", ""), ("daemon", "app"), ("posix", ""), ("tracer", ""))
)
RULES = [[0, WRITE, 1], [1, WRITE, 1], [2, KINDS.index("open"), 0], [2, WRITE, 0]]
ZERO_NS = 10**18


def traced(folder, *processes, layers=(APP, DAEMON, POSIX, OWN), rules=RULES, later_ns=0):
    """/raw of processes (records, and what their headers say) that began that much later."""
    made = run(folder, {"layers": list(layers), "rules": rules, "own": len(layers) - 1})
    for records, more in processes:
        add(made, records, FUNCTIONS, began_utc_ns=ZERO_NS + later_ns, **more)
    with sonde.open(sealed(made)) as tree:
        return tree["raw"].to_dataset().load(), int(tree.attrs["began_utc_ns"])


CLIENT = (
    [call(SEND, 1000, 9000, size=64, offset=5), call(SEND, 9000, 9500, size=64, offset=6)],
    {"pid": 100},
)
SERVER = (
    [
        note(100, 3, "data"),
        call(OPEN, 100, 110, file=3),
        thread(201),
        call(PWRITE, 2100, 2200, depth=1, size=64, offset=0, file=3),
        call(SERVE, 2000, 2500, size=64, offset=5),
        call(SERVE, 9100, 9200, size=64, offset=6),
    ],
    {"pid": 200},
)


def shifted(records, ticks):
    moved = [record.copy() for record in records]
    for record in moved:
        record["begin"][record["function"] < 0xFFFE] -= ticks
        record["end"][record["function"] < 0xFFFE] -= ticks
    return moved


def test_two_traces_say_the_same_as_one_of_both(tmp_path):
    whole, _ = traced(tmp_path / "whole.run", CLIENT, SERVER)
    # The same, but the server's trace began 90 ns later, and was of fewer layers.
    client, client_ns = traced(tmp_path / "client.run", CLIENT)
    records = [note(10, 3, "data"), *shifted(SERVER[0][1:], 90)]
    server, server_ns = traced(tmp_path / "server.run", (records, SERVER[1]), later_ns=90)
    assert server_ns - client_ns == 90
    both = merge.merged([client, server], [client_ns, server_ns])
    for name in ("begin", "duration", "size", "offset", "depth", "flags", "request_event", "request_number"):
        assert both[name].values.tolist() == whole[name].values.tolist(), name
    for number, text in (("function_index", "function_name"), ("file_index", "path")):
        named = [np.append(one[text].values, "")[one[number].values].tolist() for one in (both, whole)]
        assert named[0] == named[1]
    assert joined_requests.values(analyse(both)) == joined_requests.values(analyse(whole))
    ((one),) = joined_requests.values(analyse(both))
    assert (one["requests"], one["joined"]) == (2, 2)


def test_a_copy_names_its_source_in_the_whole_too(tmp_path):
    copying = 4
    rules = [*([*rule, 0, None] for rule in traces.RULES), [1, KINDS.index("copy"), 0, None]]
    raws = []
    for name in ("one", "two"):
        folder = run(tmp_path / f"{name}.run", {"rules": rules})
        records = [
            note(10, 3, f"{name}.from"), call(traces.OPEN, 10, 20, file=3),
            note(30, 4, "to"), call(traces.OPEN, 30, 40, file=4),
            call(copying, 100, 200, size=70, offset=3, file=4),
        ]  # fmt: skip
        add(folder, records, f"{traces.FUNCTIONS}4\t{copying}\tcopy_file_range\tlibc.so\n")
        with sonde.open(sealed(folder)) as tree:
            raws.append(tree["raw"].to_dataset().load())
    s = analyse(merge.merged(raws, [0, 0]))
    layer = s["layer_name"].values.tolist().index("posix")
    moved = dict(zip(s["path"].values.tolist(), s["file_bytes"].values[:, layer].tolist()))
    assert moved == {"one.from": [70, 0], "two.from": [70, 0], "to": [0, 140]}
    assert s["requests"].values[:, layer].sum(axis=0).tolist() == [2, 2]
    assert raws[0]["offset"].values.tolist() == [-1] * 3  # what stood there was the source's handle


def test_every_variable_is_there_as_it_should_be(tmp_path):
    client, server = traced(tmp_path / "a.run", CLIENT), traced(tmp_path / "b.run", SERVER)
    both = merge.merged([client[0], server[0]], [client[1], server[1]])
    assert set(both.variables) == set(client[0].variables)
    for name, what in ((name, RAW[str(name)]) for name in both.variables):
        assert both[name].dims == what.dims, name
        assert both[name].attrs.get("units", "") == what.units, name
    assert both["begin"].attrs == client[0]["begin"].attrs
    assert both["function_kind"].attrs["flag_meanings"] == client[0]["function_kind"].attrs["flag_meanings"]


def test_layers_come_from_the_application_down_and_the_tracer_last(tmp_path):
    rule = [[0, WRITE, 1], [1, WRITE, 1], [1, 1, 0], [1, WRITE, 0]]
    client, _ = traced(tmp_path / "a.run", CLIENT, layers=(APP, POSIX, OWN), rules=rule)
    rule = [[0, WRITE, 1], [0, WRITE, 1], [1, 1, 0], [1, WRITE, 0]]
    server, _ = traced(tmp_path / "b.run", SERVER, layers=(DAEMON, POSIX, OWN), rules=rule)
    for pair in ([client, server], [server, client]):
        assert merge.merged(pair, [0, 0])["layer_name"].values.tolist()[-2:] == ["posix", "tracer"]
        both = merge.merged(pair, [0, 0], ["else", "app", "daemon", "posix"])
        names = both["layer_name"].values.tolist()
        assert names == ["app", "daemon", "posix", "tracer"]
        assert both["layer_serves"].values.tolist()[names.index("daemon")] == "app"
        # A server's trace that had no layer of clients is of use with theirs.
        (one,) = joined_requests.values(analyse(both))
        assert (one["requests"], one["joined"]) == (2, 2)


def test_events_are_read_when_they_are_asked_for_and_no_more_of_them(tmp_path):
    """However long the traces are, they are never held in memory."""
    read: list[int] = []

    def watched(raw):
        def noted(values):
            read.append(len(values))
            return values

        long = {name: raw[name].variable for name in (*merge.EVENT, *merge.OF_REQUEST)}
        return raw.assign(
            {
                name: merge._lazily([(variable, noted)], variable.dims, variable.dtype.str, variable.attrs)
                for name, variable in long.items()
            }
        )

    client, server = traced(tmp_path / "a.run", CLIENT)[0], traced(tmp_path / "b.run", SERVER)[0]
    both = merge.merged([watched(client), watched(server)], [1000, 0])
    assert read == []
    whole = merge.merged([client, server], [1000, 0]).load()
    count = client.sizes["event"]
    assert (
        both["begin"][count - 1 : count + 2].values.tolist()
        == whole["begin"].values[count - 1 : count + 2].tolist()
    )
    assert read == [1, 2]
    for name in (*merge.EVENT, *merge.OF_REQUEST):
        assert both[name].values.tolist() == whole[name].values.tolist()
        assert both[name][1::2].values.tolist() == whole[name].values[1::2].tolist()
        assert both[name][2].values == whole[name].values[2]
        assert both[name].dtype == RAW[name].dtype
        assert both[name].encoding["chunksizes"]


def test_a_descriptor_that_nobody_was_seen_to_open_is_no_file_of_the_whole(tmp_path):
    raws = []
    for k, (records, more) in enumerate((CLIENT, SERVER)):
        raw, _ = traced(tmp_path / f"{k}.run", (records, more))
        raw["file_index"].values[-1] = UNSEEN
        raws.append(raw)
    before = np.concatenate([raw["file_index"].values for raw in raws])
    index = merge.merged(raws, [0, 0])["file_index"].values
    assert index[index < 0].tolist() == before[before < 0].tolist()
    assert (index == UNSEEN).sum() >= 2
    assert (index[before >= 0] == 0).all()


def test_counters_of_servers_are_those_of_one(tmp_path):
    raws = []
    for k in range(2):
        records = [
            note(100, 3, f"own{k}"),
            call(OPEN, 100, 110, file=3),
            note(200, 4, "both"),
            call(OPEN, 200, 210, file=4),
        ]
        raw, _ = traced(tmp_path / f"{k}.run", (records, {"pid": 100 + k}))
        raws.append(raw)
    told = {
        "server_name": ("server", np.array(["brick"], object)),
        "server_bytes": (("server", "direction"), np.array([[1, 2]])),
        "file_served": ("file", np.array([0, 1], np.int8)),
    }
    raws[1] = raws[1].assign(told)
    assert raws[1]["path"].values.tolist() == ["own1", "both"]
    assert not set(told) & set(merge.merged(raws, [0, 0]).variables)
    both = merge.merged(raws, [0, 0], counted=1)
    assert both["server_bytes"].values.tolist() == [[1, 2]]
    assert dict(zip(both["path"].values.tolist(), both["file_served"].values.tolist())) == {
        "own0": 0,
        "both": 1,
        "own1": 0,
    }


@pytest.mark.parametrize(
    ("have", "asked", "kept"),
    [((0, 0), None, None), ((0, 1), None, 1), ((1, 0), None, 0), ((1, 1), "b.nc", 1), ((0, 1), "b.nc", 1)],
)
def test_whose_counters_are_preserved(have, asked, kept):
    files = [Path("a.nc"), Path("b.nc")]
    assert cli_files._counted(files, list(map(bool, have)), asked and Path(asked)) == kept


def test_counters_of_two_are_not_added():
    files = [Path("a.nc"), Path("b.nc")]
    with pytest.raises(UsageError, match=r"a.nc and b.nc all have server counters") as told:
        cli_files._counted(files, [True, True], None)
    assert (told.value.code, told.value.hint) == (
        "io.counters_twice",
        "choose whose to use: --servers-of a.nc",
    )
    for asked, hint in (("c.nc", "these have some: b.nc"), ("a.nc", "these have some: b.nc")):
        with pytest.raises(UsageError, match="this trace has no server counters") as told:
            cli_files._counted(files, [False, True], Path(asked))
        assert told.value.hint == hint


def test_ranks_come_first_in_order(tmp_path):
    one, _ = traced(
        tmp_path / "a.run", (CLIENT[0], {"pid": 100, "rank": -1}), (CLIENT[0], {"pid": 101, "rank": 1})
    )
    two, _ = traced(tmp_path / "b.run", (CLIENT[0], {"pid": 200, "rank": 0}))
    both = merge.merged([one, two], [0, 0])
    assert both["process_rank"].values.tolist() == [0, 1, -1]
    assert both["process_pid"].values.tolist() == [200, 101, 100]
    # one's threads are of its processes 101 and 100, two's of 200
    assert both["process_pid"].values[both["thread_process"].values].tolist() == [101, 100, 200]


def test_more_functions_than_can_be_distinguished(tmp_path, monkeypatch):
    client, server = traced(tmp_path / "a.run", CLIENT), traced(tmp_path / "b.run", SERVER)
    monkeypatch.setattr(merge, "MOST_FUNCTIONS", 3)
    with pytest.raises(DataError, match="4 functions in all"):
        merge.merged([client[0], server[0]], [0, 0])


def test_traces_of_an_earlier_version(tmp_path):
    client, server = traced(tmp_path / "a.run", CLIENT), traced(tmp_path / "b.run", SERVER)
    old: list[xr.Dataset] = [
        raw.drop_vars(["layer_serves", "request_event", "request_number"]) for raw, _ in (client, server)
    ]
    both = merge.merged(old, [0, 0])
    assert both.sizes["request"] == 0
    assert joined_requests.values(analyse(both)) == []

"""The store under the tracer: one tree from HDF5 to the server's files, every request joined to what a server did."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import sonde as library
from sonde.core.launch import libexec
from sonde_shell import PROGRAM, Shell, finish
from store_service import serving
from watching import wait_for

pytest.importorskip("sonde._store", reason="the store is not built")

DATA = Path(__file__).parents[1] / "data" / "io"
STORE = ("store", "store_transport", "store_server", "store_backend")
LAYERS = ("--layers", ",".join(("hdf5", *STORE, "posix")))
PLUGINS = libexec().parent / "lib" / "hdf5"

# $1 between a server that begins and one that ends; it finds $address and $server, its process.
SERVED = """
"$STORED" --listen 127.0.0.1:0 --backend data=posix,path=files --backend kv=memory >told &
server=$!
while ! grep -q port told; do sleep 0.05; done
address=127.0.0.1:$(sed -n 's/.*"port":\\([0-9]*\\).*/\\1/p' told)
eval "$1"
status=$?
kill $server
wait $server
exit $status
"""


@pytest.fixture(scope="module")
def pipelined(tmp_path_factory):
    """The program of data/io/pipelined.cpp."""
    compiler = shutil.which("c++") or pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("pipelined")
    flags = subprocess.run(
        [PROGRAM, "store", "conformance", "--flags"], check=True, capture_output=True, text=True
    ).stdout.split()
    line = [compiler, "-O1", DATA / "pipelined.cpp", *flags, "-pthread", "-o", folder / "pipelined"]
    subprocess.run(list(map(str, line)), check=True, timeout=300)
    return folder / "pipelined"


def traced(sonde: Shell, script: str, code: int = 0, layers: tuple[str, ...] = LAYERS, **env: str) -> dict:
    """What is told of `script`, which finds a server at $address, and a.nc."""
    env |= {"STORED": str(libexec() / "sonde-stored"), "PYTHON": sys.executable, "SONDE": str(PROGRAM)}
    line = ("io", "run", *layers, "--json", "-o", "a.nc", "--", "sh", "-c", SERVED, "sh", script)
    return sonde(*line, **env).expect(code).json


def layer_of(told: dict, name: str) -> dict:
    return next(layer for layer in told["layers"] if layer["layer"] == name)


def calls_of(told: dict, function: str) -> int:
    return sum(one["calls"] for one in told["functions"] if one["function"] == f"sonde_store_{function}")


def paths_in(file: Path) -> set[tuple[str, ...]]:
    """Layers of every path of calls, one name for calls of one layer that follow each other."""
    with library.open(file) as tree:
        summary = tree["summary"].to_dataset().load()
    layer = summary["function_layer"].values[summary["node_function"].values]
    found: list[tuple[str, ...]] = []
    for parent, own in zip(summary["node_parent"].values.tolist(), summary["layer_name"].values[layer]):
        above = found[parent] if parent >= 0 else ()
        found.append(above if above[-1:] == (own,) else (*above, str(own)))
    return set(found)


def has_connector() -> bool:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    version = ".".join(h5py.version.hdf5_version.split(".")[:2])
    return (PLUGINS / "connector" / f"sonde-h5-{version}.so").exists()


HDF5 = """
import h5py, numpy as np
with h5py.File("x.h5", "w") as f:
    d = f.create_dataset("a", (32, 16384), "f8")
    for k in range(32): d[k] = np.full(16384, k, "f8")
with h5py.File("x.h5", "r") as f:
    assert f["a"][31, 5] == 31
    assert f["a"][:].sum() == 16384 * 31 * 16
"""


class TestHdf5:
    @pytest.fixture
    def told(self, sonde):
        if not has_connector():
            pytest.skip("no HDF5 connector for h5py's HDF5 was built")
        (sonde.cwd / "script.py").write_text(HDF5)
        script = 'HDF5_VOL_CONNECTOR="sonde servers=$address" "$PYTHON" script.py'
        return traced(sonde, script, HDF5_PLUGIN_PATH=str(PLUGINS))

    def test_one_tree_from_hdf5_to_the_server_s_files(self, told, sonde):
        size = 32 * 16384 * 8
        assert (layer_of(told, "hdf5")["write"]["requests"], layer_of(told, "hdf5")["write"]["bytes"]) == (
            32,
            size,
        )
        for name in ("store", "store_server", "store_backend"):
            assert layer_of(told, name)["write"]["bytes"] >= size, name
            assert layer_of(told, name)["read"]["bytes"] >= size, name
        paths = paths_in(sonde.cwd / "a.nc")
        assert ("hdf5", "store", "store_transport") in paths
        assert ("store_server", "store_backend", "posix") in paths
        stored = [one for one in told["files"] if one["layer"] == "posix" and one["write"]["bytes"] > 65536]
        assert size <= sum(one["write"]["bytes"] for one in stored) <= 1.1 * size
        assert not (sonde.cwd / "x.h5").exists()

    def test_all_requests_are_joined_and_their_time_is_shared_out(self, told):
        (joined,) = told["joins"]
        assert (joined["server"], joined["by"], joined["strays"]) == ("store_server", "number", 0)
        assert joined["requests"] == joined["joined"] > 0
        assert joined["share"] == 1
        names = {(one["within"], one["function"]) for one in joined["operations"]}
        assert {("H5Dwrite", "sonde_store_message_write"), ("H5Dread", "sonde_store_message_read")} <= names
        for one in joined["operations"]:
            assert one["server_s"] + one["away_s"] == pytest.approx(one["time_s"])
            inside = sum(one["layers"].values())
            assert one["waiting_s"] + inside == pytest.approx(one["server_s"], abs=1e-9)
            assert one["layers"]["store_server"] > 0
            if one["within"] in ("H5Dwrite", "H5Dread"):
                assert one["layers"]["posix"] > 0


def transports() -> list[str]:
    listed = subprocess.run(
        [libexec() / "sonde-stored", "--list"], capture_output=True, check=True, text=True
    )
    return [name for name in ("tcp", "ofi-msg", "ofi-rdm", "ofi-rma") if f'"{name}"' in listed.stdout]


class TestTransports:
    @pytest.mark.parametrize("transport", ["tcp", "ofi-msg", "ofi-rdm", "ofi-rma"])
    def test_commands_and_batches_under_way_at_once(self, sonde, pipelined, transport):
        if transport not in transports():
            pytest.skip(f"this build does not have {transport}")
        (sonde.cwd / "blob").write_bytes(os.urandom(700_000))
        script = (
            f"to='--server '$address' --transport {transport}'\n"
            f'"$SONDE" store put $to object:runs/blob blob --safety storage >/dev/null &&\n'
            f'"$SONDE" store get $to object:runs/blob - | cmp - blob &&\n'
            f'"{pipelined}" $address {transport} 100'
        )
        told = traced(sonde, script, layers=("--layers", ",".join(STORE)))
        (joined,) = told["joins"]
        assert (joined["share"], joined["strays"]) == (1, 0)
        # What the program made, batch by batch: each one message to the one server.
        with library.open(sonde.cwd / "a.nc") as tree:
            raw = tree["raw"].to_dataset().load()
        names = raw["function_name"].values[raw["function_index"].values]
        process = raw["thread_process"].values[
            raw["thread_first"].values.searchsorted(range(len(names)), side="right") - 1
        ]
        mine = [str(name).endswith("/pipelined") for name in raw["process_program"].values[process]]
        assert (names[mine] == "sonde_store_message_write").sum() == 100
        assert (names[mine] == "sonde_store_message_read").sum() == 100
        assert (names[mine] == "sonde_store_answered").sum() == 200
        assert set(raw["size"].values[mine & (names == "sonde_store_message_write")]) == {5000}
        assert calls_of(told, "backend_sync") > 0
        assert calls_of(told, "serve_write") == calls_of(told, "message_write") + _extra_frames(raw, names)

    def test_an_embedded_store_has_its_backend_below_its_client(self, sonde):
        (sonde.cwd / "blob").write_bytes(b"x" * 100_000)
        line = (PROGRAM, "store", "put", "--embedded", "here", "object:runs/blob", "blob")
        told = sonde("io", "run", *LAYERS, "--json", "-o", "a.nc", "--", *line).expect(0).json
        assert ("store", "store_backend", "posix") in paths_in(sonde.cwd / "a.nc")
        assert told["joins"] == []


def _extra_frames(raw, names) -> int:
    """Frames of writes that are not the first of their message."""
    numbers = raw["request_number"].values[names[raw["request_event"].values] == "sonde_store_serve_write"]
    return len(numbers) - len(set(numbers.tolist()))


KILLED = """
import os, signal, sys
import sonde.store
store = sonde.store.connect(sys.argv[1], connect_timeout_s=2)
for k in range(200):
    store.write("s", "o", b"x" * 3000, 3000 * k)
os.kill(int(sys.argv[2]), signal.SIGKILL)
try:
    for k in range(200): store.write("s", "o", b"x" * 3000, 3000 * k)
except Exception as error:
    print(type(error).__name__)
"""


def test_a_server_that_is_killed_keeps_its_trace(sonde):
    (sonde.cwd / "script.py").write_text(KILLED)
    told = traced(sonde, '"$PYTHON" script.py $address $server >&2')
    (joined,) = told["joins"]
    assert calls_of(told, "execute_write") >= 200
    # The one that was under way may have reached nobody.
    assert joined["joined"] >= 200
    assert joined["requests"] - joined["joined"] <= 1
    assert joined["share"] >= 0.99


def test_without_the_server_s_trace_the_share_says_so(sonde):
    (sonde.cwd / "blob").write_bytes(b"x" * 1000)
    with serving(sonde, "--memory") as service:
        line = (PROGRAM, "store", "put", "--server", service.address, "object:runs/blob", "blob")
        told = sonde("io", "run", *LAYERS, "--json", "-o", "a.nc", "--", *line).expect(0).json
    (joined,) = told["joins"]
    assert joined["requests"] > 0
    assert (joined["joined"], joined["share"]) == (0, 0)
    assert "start the servers under the tracer, too" in sonde("io", "show", "a.nc").expect(0).out.replace(
        "\n  ", " "
    )


@pytest.mark.root
def test_a_server_that_runs_already_is_attached_to(sonde, pipelined):
    """Its library is the client's, too: there each function is interposed, and returns by way of the kernel besides."""
    with serving(sonde, "--memory") as service:
        words = ("--attach", service.pid, "--layers", ",".join(STORE), "--json", "-o", "a.nc")
        told = sonde("io", "run", *words, "--", pipelined, service.address, "tcp", 50).expect(0).json
    (joined,) = told["joins"]
    assert (joined["requests"], joined["share"], joined["strays"]) == (100, 1, 0)
    assert calls_of(told, "serve_write") == calls_of(told, "execute_write") == 50
    assert {one["engine"] for one in told["functions"] if "serve" in one["function"]} == {"uprobe"}
    assert {one["unfinished"] for one in told["functions"] if one["layer"] == "store"} == {0}


class TestTwoTraces:
    def test_a_server_s_and_a_client_s_are_joined(self, sonde):
        (sonde.cwd / "blob").write_bytes(os.urandom(700_000))
        only = ("--layers", ",".join(STORE))
        told = sonde.cwd / "ready"
        line = ("store", "serve", "--listen", "127.0.0.1:0", "--memory", "--ready", told)
        server = sonde.start("io", "run", *only, "-o", "server.nc", "--", PROGRAM, *line)
        try:
            assert wait_for(told.exists)
            put = (
                PROGRAM,
                "store",
                "put",
                "--server",
                json.loads(told.read_text())["listen"],
                "object:runs/blob",
                "blob",
            )
            client = sonde("io", "run", *only, "--json", "-o", "client.nc", "--", *put).expect(0).json
        finally:
            server.send_signal(signal.SIGINT)
            ended = finish(server)
        assert ended.code in (0, 130), ended.err
        assert client["joins"][0]["joined"] == 0
        both = sonde("io", "join", "client.nc", "server.nc", "-o", "both.nc", "--json").expect(0).json
        (joined,) = both["joins"]
        assert (joined["requests"], joined["share"], joined["strays"]) == (
            client["joins"][0]["requests"],
            1,
            0,
        )
        for one in joined["operations"]:
            assert one["server_s"] + one["away_s"] == pytest.approx(one["time_s"])
        assert sonde("data", "validate", "both.nc").expect(0)
        assert [layer["layer"] for layer in both["layers"]] == [*STORE, "tracer"]
        with library.open(sonde.cwd / "both.nc") as tree:
            assert tree.attrs["stop_reason"] == "ended"
            raw = tree["raw"].to_dataset().load()
        # Both are of this host: what a server did for a request was between its calls of the client.
        number = dict(zip(raw["request_event"].values.tolist(), raw["request_number"].values.tolist()))
        begin, end = raw["begin"].values, (raw["begin"] + raw["duration"]).values
        names = raw["function_name"].values[raw["function_index"].values]
        begun = {number[k]: begin[k] for k in number if "message" in names[k]}
        answered = {number[k]: end[k] for k in number if "answered" in names[k]}
        served = [k for k in number if "serve" in names[k]]
        assert len(served) >= len(begun) > 0
        for k in served:
            assert begun[number[k]] - 100_000_000 < begin[k] < end[k] < answered[number[k]] + 100_000_000

    def test_what_cannot_be_joined_is_reported(self, sonde):
        (sonde.cwd / "blob").write_bytes(b"x")
        line = (PROGRAM, "store", "put", "--embedded", "here", "object:runs/blob", "blob")
        sonde("io", "run", "--layers", "store", "-o", "a.nc", "--", *line).expect(0)
        for words in (["a.nc"], ["a.nc", "./a.nc"]):
            assert "two or more traces" in sonde("io", "join", *words).expect(2).said
        assert "b.nc does not exist" in sonde("io", "join", "a.nc", "b.nc").expect(3).said

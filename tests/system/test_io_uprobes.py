"""`sonde io run --uprobes` and `--attach`: functions that cannot be interposed, and processes that run already."""

from __future__ import annotations

import json
import lzma
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import sonde as library
from sonde.io.trace.schema import ENGINES
from sonde_shell import Shell, finish
from watching import wait_for

DATA = Path(__file__).parents[1] / "data" / "io"
MAP = DATA / "held.toml"
ONLY = ("--map", MAP, "--layers", "held,posix")
HELD = ("--map", MAP, "--layers", "held")  # none of the C library, which would slow all that runs here
pytestmark = pytest.mark.root

# What held_rest calls, and held_write with 20 chunks.
REST = {"held_many": 3, "held_deep": 100, "held_leave": 6, "held_null": 7}
WRITE = {"held_open": 2, "held_chunk": 20, "held_vector": 1, "held_close": 1}


def compiled(folder: Path, name: str, *options: object) -> Path:
    line = ["cc", "-O1", "-fno-optimize-sibling-calls", "-g0", "-o", folder / name, *options, DATA / "held.c"]
    subprocess.run([*map(str, line), "-lpthread"], check=True)
    return folder / name


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """A folder with `program`, linked with libheld.so; `static`; and `server`, which has all in itself."""
    folder = tmp_path_factory.mktemp("held")
    compiled(folder, "libheld.so", "-shared", "-fPIC")
    (folder / "program.c").write_text(
        "#include <stdlib.h>\nlong held_write(const char*, int), held_rest(void);\n"
        "int main(int c, char** v) { return held_write(v[1], atoi(v[2])) < 0 || held_rest() < 0; }\n"
    )
    linked = ["-L", folder, "-lheld", f"-Wl,-rpath,{folder}"]
    subprocess.run(
        list(map(str, ["cc", "-o", folder / "program", folder / "program.c", *linked])), check=True
    )
    compiled(folder, "static", "-static", "-DPROGRAM")
    compiled(folder, "server", "-DPROGRAM")
    return folder


def tracefs(script: str) -> str:
    """What a shell says in tracefs, which need not be mounted now, and is not where Sondes look, for our sake."""
    mount = "cd /sys/kernel/tracing && { [ -d instances ] || { mount -t tracefs none . && cd /sys/kernel/tracing; }; }"
    line = ["unshare", "--mount", "sh", "-c", f"{mount} && {script}"]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout


def left() -> list[str]:
    """Of ours in tracefs: instances, and probes. Not of processes that live: tracefs is the whole machine's."""
    instances = [name for name in tracefs("ls instances").split() if name.startswith("sonde-")]
    names = instances + sorted(set(re.findall(r"sonde_io_\w+", tracefs("cat uprobe_events"))))
    return [name for name in names if not Path("/proc", re.findall(r"\d+", name)[0]).exists()]


def counts(told: dict, layer: str = "held") -> dict[str, int]:
    return {one["function"]: one["calls"] for one in told["functions"] if one["layer"] == layer}


def codes(told: dict) -> list[str]:
    return [warning["code"] for warning in told["warnings"] if warning["code"] != "io.probes_hit_elsewhere"]


def events(sonde: Shell, file: str = "a.nc"):
    """Columns of the events of a trace, with names instead of numbers."""
    with library.open(sonde.cwd / file) as tree:
        raw = tree["raw"].to_dataset().load()
    at = raw["function_index"].values
    names = raw["path"].values
    return {
        "function": raw["function_name"].values[at].astype(str),
        "engine": np.array(ENGINES)[raw["function_engine"].values[at]],
        "path": np.array([str(names[k]) if k >= 0 else "" for k in raw["file_index"].values]),
        **{name: raw[name].values for name in ("begin", "duration", "size", "offset", "flags")},
    }


def parents(sonde: Shell, function: str, file: str = "a.nc") -> set[str]:
    """Functions that a function was called within."""
    with library.open(sonde.cwd / file) as tree:
        summary = tree["summary"].to_dataset().load()
    names = summary["function_name"].values.astype(str)[summary["node_function"].values]
    above = summary["node_parent"].values[names == function]
    return {names[node] if node >= 0 else "" for node in above}


class TestFunctionsThatAreNotExported:
    def test_calls_values_engines_and_places(self, sonde, programs):
        run = ("io", "run", "--uprobes", "--kernel", *ONLY, "--json", "-o", "a.nc")
        told = sonde(*run, "--", programs / "program", "data", 20).expect(0).json
        assert counts(told) == {"held_write": 1, "held_rest": 1, **WRITE, **REST}
        assert counts(told, "posix")["pwrite"] == 20
        assert codes(told) == ["io.ends_not_seen", "io.values_unknown"]
        assert "held_vector (size)" in told["warnings"][1]["evidence"]
        # One within the other: interposed, probed, interposed, seen by the kernel.
        assert parents(sonde, "held_chunk") == {"held_write"}
        assert parents(sonde, "pwrite") == {"held_chunk"}
        assert parents(sonde, "pwrite64") == {"pwrite"}
        assert parents(sonde, "held_deep") == {"held_rest", "held_deep"}
        seen = events(sonde)
        engines = set(zip(seen["function"].tolist(), seen["engine"].tolist()))
        # What the kernel saw of the tracer's own work is in the events, and nobody's call.
        assert engines >= {(one["function"], one["engine"]) for one in told["functions"]}
        engine = dict(engines)
        assert {engine[name] for name in (*WRITE, *REST)} == {"uprobe"}
        assert (engine["held_write"], engine["pwrite"], engine["pwrite64"]) == (
            "interposition",
            "interposition",
            "tracepoint",
        )
        chunk = seen["function"] == "held_chunk"
        assert seen["offset"][chunk].tolist() == [4096 * k for k in range(20)]
        assert set(seen["size"][chunk]) == {4096}
        assert set(seen["path"][chunk]) == {"data"}
        assert (seen["duration"][chunk] > 0).all()
        many = seen["function"] == "held_many"
        assert seen["size"][many].tolist() == [30, 35, 40]  # of the stack
        assert seen["offset"][many].tolist() == [512] * 3  # behind a pointer
        assert seen["size"][seen["function"] == "held_vector"].tolist() == [-1]
        failed = {
            one["function"]: (one["failed"], one["unfinished"])
            for one in told["functions"]
            if one["failed"] or one["unfinished"]
        }
        # The kernel remembers 64 returns of a thread: those of the innermost calls are not seen.
        assert failed.pop("held_deep")[1] == 100 - 64
        assert failed.pop("held_leave") == (0, 5)
        assert failed == {"held_open": (1, 0), "open": (1, 0), "openat": (1, 0), "held_null": (4, 0)}
        assert left() == []
        assert sonde.left() == []

    def test_without_uprobes_they_are_not_seen(self, sonde, programs):
        told = (
            sonde("io", "run", *ONLY, "--json", "-o", "a.nc", "--", programs / "program", "data", 20)
            .expect(0)
            .json
        )
        assert counts(told) == {"held_write": 1, "held_rest": 1}

    def test_a_stripped_library_that_has_its_names_packed(self, sonde, programs, tmp_path):
        """As Fedora and its like have them, in .gnu_debugdata."""
        (packed := tmp_path / "packed").write_bytes(lzma.compress((programs / "libheld.so").read_bytes()))
        stripped = tmp_path / "libheld.so"
        subprocess.run(["strip", "-o", stripped, programs / "libheld.so"], check=True)
        line = (
            "io",
            "run",
            "--uprobes",
            *ONLY,
            "--json",
            "-o",
            "a.nc",
            "--",
            programs / "program",
            "data",
            20,
        )
        # The folder that the program names itself comes after LD_LIBRARY_PATH.
        told = sonde(*line, LD_LIBRARY_PATH=str(tmp_path)).expect(0).json
        assert "held_chunk" not in counts(told)
        subprocess.run(["objcopy", "--add-section", f".gnu_debugdata={packed}", stripped], check=True)
        told = sonde(*line, LD_LIBRARY_PATH=str(tmp_path)).expect(0).json
        assert counts(told)["held_chunk"] == 20


class TestStaticallyLinked:
    def test_its_own_functions_and_those_of_the_c_library(self, sonde, programs):
        line = (
            "io",
            "run",
            "--uprobes",
            *ONLY,
            "--json",
            "-o",
            "a.nc",
            "--",
            programs / "static",
            "data",
            20,
        )
        told = sonde(*line).expect(0).json
        assert counts(told) == {"held_write": 1, "held_rest": 1, **WRITE, **REST}
        assert counts(told, "posix") == {"open": 2, "pwrite": 20, "writev": 1, "close": 1} | {
            name: n for name, n in counts(told, "posix").items() if name in ("fstat", "fstatat", "readlink")
        }
        assert parents(sonde, "pwrite") == {"held_chunk"}
        files = {(one["path"], one["layer"]): one["write"] for one in told["files"]}
        assert files["data", "posix"]["bytes"] == 20 * 4096 + 300
        seen = events(sonde)
        assert set(seen["path"][np.isin(seen["function"], ("held_chunk", "held_vector", "pwrite"))]) == {
            "data"
        }
        assert left() == []

    def test_a_stripped_one_says_what_can_still_be_seen(self, sonde, programs):
        subprocess.run(["strip", "-o", sonde.cwd / "renamed", programs / "static"], check=True)
        ran = sonde("io", "run", "--uprobes", *ONLY, "-o", "a.nc", "--", "./renamed", "data", 3).expect(3)
        assert "stripped" in ran.said
        assert "--kernel traces its system calls" in ran.said
        told = (
            sonde(
                *("io", "run", "--uprobes", "--kernel", *ONLY, "--json", "-o", "a.nc", "--"),
                *("./renamed", "data", 3),
            )
            .expect(0)
            .json
        )
        assert codes(told) == ["io.nothing_to_probe"]
        assert counts(told, "kernel")["pwrite64"] == 3


@contextmanager
def serving(sonde: Shell, *words: object) -> Iterator[subprocess.Popen[str]]:
    server = subprocess.Popen(
        list(map(str, words)),
        cwd=sonde.cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield server
    finally:
        server.kill()
        server.wait()


def served(server: subprocess.Popen[str], line: str) -> None:
    """Has a server do something, and waits until it has."""
    assert server.stdin
    assert server.stdout
    server.stdin.write(f"{line}\n")
    server.stdin.flush()
    assert server.stdout.readline() == "done\n"


def attached(sonde: Shell, *words: object) -> subprocess.Popen[str]:
    """`sonde io run WORDS`, once it traces."""
    process = sonde.start("io", "run", *words)
    assert process.stderr
    line = process.stderr.readline()
    assert line.startswith("tracing "), line + process.stderr.read()
    return process


class TestAttach:
    def test_a_server_s_calls_until_ctrl_c(self, sonde, programs):
        with serving(sonde, programs / "server", "kept") as server:
            served(server, "1 5 before")
            process = attached(sonde, "--attach", server.pid, *ONLY, "--kernel", "--json", "-o", "a.nc")
            for k in range(3):
                served(server, f"4 {10 + k} data{k}")
            process.send_signal(signal.SIGINT)
            told = finish(process).expect(0).json
            served(server, "1 1 after")
        chunks = 4 * (10 + 11 + 12) + 3
        writes = counts(told)
        assert (writes["held_chunk"], writes["held_vector"], writes["held_open"]) == (chunks, 12, 24)
        assert counts(told, "posix")["pwrite"] == chunks
        assert counts(told, "kernel")["pwrite64"] == chunks
        assert (told["stop_reason"], told["complete"]) == ("stopped", True)
        assert [one["pid"] for one in told["processes"]] == [server.pid]
        assert parents(sonde, "pwrite64") == {"pwrite"}
        assert parents(sonde, "pwrite") == {"held_chunk"}
        seen = events(sonde)
        assert set(seen["engine"]) == {"uprobe", "tracepoint"}
        # What was open before has its name, too.
        for layer in ("held", "posix", "kernel"):
            files = {one["path"]: one["write"] for one in told["files"] if one["layer"] == layer}
            assert files[str(sonde.cwd / "kept")] == {"requests": 3, "bytes": 30}, layer
            if layer != "held":  # there all of it is within held_write, which says nothing of its file
                assert files["data1"]["bytes"] == 4 * (11 * 4096 + 300), layer
            assert "before" not in files
        assert "stopped" not in sonde("io", "show", "a.nc").expect(0).err
        assert left() == []
        assert sonde.left() == []

    def test_unless_it_is_named_the_c_library_of_all_programs_is_left_alone(self, sonde, programs):
        with serving(sonde, programs / "server") as server:
            process = attached(sonde, "--attach", server.pid, "--map", MAP, "--json", "-o", "a.nc")
            served(server, "1 5 data")
            process.send_signal(signal.SIGINT)
            told = finish(process).expect(0).json
        assert counts(told)["held_chunk"] == counts(told, "kernel")["pwrite64"] == 5
        assert counts(told, "posix") == {}
        assert "io.probes_hit_elsewhere" not in [warning["code"] for warning in told["warnings"]]

    def test_until_it_ends_or_for_a_time(self, sonde, programs):
        with serving(sonde, programs / "server") as server:
            ran = sonde("io", "run", "--attach", server.pid, *HELD, "--for", "0.2s", "-o", "a.nc").expect(3)
            assert "was called during that time" in ran.said
            process = attached(sonde, "--attach", server.pid, *HELD, "--json", "-o", "a.nc")
            served(server, "1 5 data")
            assert server.stdin
            server.stdin.close()
            told = finish(process).expect(0).json
        assert told["stop_reason"] == "ended"
        assert counts(told)["held_chunk"] == 5
        with serving(sonde, programs / "server") as server:
            words = ("--attach", server.pid, *HELD, "--for", "3s", "--json", "-o", "b.nc")
            process = attached(sonde, *words)
            served(server, "1 5 data")
            told = finish(process).expect(0).json
        assert told["stop_reason"] == "budget"
        assert left() == []

    def test_client_and_server_in_one_trace(self, sonde, programs):
        with serving(sonde, programs / "server") as server:
            assert server.stdin
            # The client writes into what the server reads.
            script = "import os, time; os.write(0, b'2 6 data\\n'); time.sleep(1)"
            process = subprocess.run(
                [
                    *(str(Path(sys.executable).with_name("sonde")), "io", "run", "--attach", str(server.pid)),
                    *(*map(str, ONLY), "--json", "-o", "a.nc", "--", sys.executable, "-c"),
                    script,
                ],
                cwd=sonde.cwd,
                env=sonde.env,
                stdin=server.stdin,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert process.returncode == 0, process.stderr
        told = json.loads(process.stdout)
        assert [one["pid"] == server.pid for one in told["processes"]].count(True) == 1
        assert counts(told)["held_chunk"] == 12
        # The client's calls are interposed; the probes that stand in the same C library do not count them again.
        with library.open(sonde.cwd / "a.nc") as tree:
            raw = tree["raw"].to_dataset().load()
        engine = raw["function_engine"].values[raw["function_index"].values]
        process_of = np.repeat(raw["thread_process"].values, raw["thread_events"].values)
        servers = raw["process_pid"].values[process_of] == server.pid
        assert set(engine[servers]) == {ENGINES.index("uprobe")}
        assert set(engine[~servers]) == {ENGINES.index("interposition")}

    def test_a_process_in_another_mount_namespace(self, sonde, programs):
        here = sonde.cwd / "renamed"
        script = f"mount -t tmpfs tmpfs {sonde.cwd} && cp {programs / 'server'} {here} && cd / && exec {here} /dev/null"
        with serving(sonde, "unshare", "--mount", "sh", "-c", script) as server:
            served(server, "1 1 /dev/null")
            assert not here.exists()
            process = attached(sonde, "--attach", server.pid, *HELD, "--json", "-o", "a.nc")
            served(server, "1 7 /dev/null")
            process.send_signal(signal.SIGTERM)
            told = finish(process).expect(0).json
        assert counts(told)["held_chunk"] == 8
        assert left() == []

    def test_what_cannot_be_attached_to(self, sonde, programs):
        for words, code, said in (
            (("--attach", 99999999), 2, "no process has the number 99999999"),
            (("--attach", 2), 3, "process 2 (kthreadd) has no program"),
            (("--attach", "one"), 2, "'one' does not name processes"),
            (("--for", "1s", "--", "true"), 2, "--for limits how long the processes of --attach are traced"),
            ((), 2, "there is nothing to trace"),
        ):
            assert said in sonde("io", "run", "-o", "a.nc", *words).expect(code).said
        with serving(sonde, "sleep", "1000") as process:
            line = ("io", "run", "--attach", process.pid, "--layers", "mpiio", "-o", "a.nc")
            ran = sonde(*line).expect(3)
            assert f"process {process.pid} (sleep) has no function of mpiio that can be found" in ran.said
            assert "--kernel" in ran.said
        assert [path.name for path in sonde.cwd.iterdir()] == []

    def test_when_sonde_is_killed_nothing_stays_on_and_the_trace_is_preserved(self, sonde, programs):
        with serving(sonde, programs / "server") as server:
            process = attached(sonde, "--attach", server.pid, *HELD, "-o", "a.nc")
            served(server, "2 30 data")
            process.kill()
            process.communicate()
            assert wait_for(lambda: not sonde.processes())  # the watcher ends by itself
            # A run of root that begins now, of another test, may have removed what was left, or some of it.
            switches = f"instances/sonde-*{process.pid}*/events/sonde_io_*/*/enable"
            assert "1" not in tracefs(f"cat {switches} 2>&1 || true").split()
            sonde("io", "run", *HELD, "-o", "b.nc", "--", programs / "program", "data", 1).expect(0)
            assert [name for name in left() if str(process.pid) in name] == []
            sonde("data", "recover", "a.run").expect(4)
            assert not (sonde.cwd / "a.run").exists()
        told = sonde("io", "show", "--json", "a.nc").expect(0).json
        assert counts(told)["held_chunk"] == 60
        assert told["complete"] is False

    def test_redis_writes_what_it_was_told_to(self, sonde):
        server, client = shutil.which("redis-server"), shutil.which("redis-cli")
        if not server or not client:
            pytest.skip("no redis-server: deploy/setup test installs it")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        options = ("--appendonly", "yes", "--appendfsync", "always", "--save", "", "--dir", str(sonde.cwd))
        with serving(sonde, server, "--port", port, "--bind", "127.0.0.1", *options) as process:
            asked = [client, "-p", port]
            assert wait_for(lambda: subprocess.run([*asked, "ping"], capture_output=True).stdout == b"PONG\n")
            watching = attached(
                *(sonde, "--attach", process.pid, "--layers", "posix", "--kernel", "--json", "-o", "a.nc")
            )
            for k in range(20):
                subprocess.run([*asked, "set", f"key{k}", "value"], capture_output=True, check=True)
            said = subprocess.run(
                [*asked, "info", "commandstats"], capture_output=True, text=True, check=True
            )
            watching.send_signal(signal.SIGINT)
            told = finish(watching).expect(0).json
            served_sets = int(re.search(r"cmdstat_set:calls=(\d+)", said.stdout)[1])
        assert served_sets == 20
        # Each set is appended to the log and reaches the disk before its answer.
        log = next(one for one in told["files"] if one["layer"] == "posix" and one["path"].endswith(".aof"))
        assert log["write"]["requests"] == 20
        for layer in ("posix", "kernel"):
            assert counts(told, layer)["fdatasync"] == 20
        assert counts(told, "posix")["write"] == counts(told, "kernel")["write"]
        assert left() == []

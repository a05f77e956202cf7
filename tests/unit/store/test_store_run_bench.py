"""What happens beside the probe: servers that start, do not start, or die; and what is kept of a flood of warnings."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from sonde.core.errors import EnvironmentFailure, SondeError, UsageError
from sonde.core.events import NullProgress
from sonde.core.launch.process import Ending
from sonde.store import run_bench
from sonde.store.plan import Case, Plan, choose_variants
from sonde.store.run_bench import MAX_FAILED, Listener, Request, Servers, backends_of, runnable, watched
from watching import wait_for

HAS = {"data": ["null", "memory", "posix"], "kv": ["null", "memory", "lmdb"], "db": ["null"]}

# A server that says where it listens, makes a file in the folder it was given, and ends with its standard input.
SERVER = """
import json, pathlib, sys
for word in sys.argv[1:]:
    if "path=" in word:
        (pathlib.Path(word.partition("path=")[2]) / "kept").write_text("x")
print(json.dumps({"event": "ready", "listen": "127.0.0.1:7", "port": 7, "pid": 1}), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def server(tmp_path, monkeypatch):
    """server(script): what is started instead of sonde-stored."""

    def use(script: str) -> None:
        path = tmp_path / "server"
        path.write_text(f"#!{sys.executable}\n{script}")
        path.chmod(0o755)
        monkeypatch.setattr(run_bench, "program", lambda: path)

    return use


@pytest.fixture
def run_dir(tmp_path) -> Path:
    folder = tmp_path / "a.run"
    folder.mkdir()
    return folder


class TestBackends:
    def test_with_null_keys_are_preserved_in_memory_all_the_same(self):
        all_there = HAS | {"db": ["null", "memory", "sqlite"]}
        assert backends_of("null", all_there) == {"data": "null", "kv": "memory", "db": "memory"}
        assert backends_of("posix+lmdb", all_there)["db"] == "sqlite,path={}/tables"

    def test_tables_may_lack_a_backend_and_are_left_out(self):
        assert backends_of("memory", HAS) == {"data": "memory", "kv": "memory"}

    def test_a_misspelt_name_names_the_nearest(self):
        with pytest.raises(UsageError, match="nearest: memory"):
            backends_of("memroy", HAS)

    def test_what_this_build_lacks_is_reported(self):
        with pytest.raises(UsageError, match="no backend rocksdb") as told:
            backends_of("posix+rocksdb", HAS)
        assert told.value.code == "store.unknown_backend"

    @pytest.mark.parametrize("name", ["null", "memory"])
    def test_what_is_on_no_disk_is_not_promised_to_be(self, name):
        with pytest.raises(UsageError, match=f"--backend {name} stores nothing on stable storage") as told:
            backends_of(name, HAS, "storage")
        assert told.value.code == "store.bad_safety"
        assert told.value.hint == "add --backend posix+lmdb, or leave --safety out"
        with pytest.raises(UsageError) as told:
            backends_of(name, {"data": ["null"], "kv": ["memory"]}, "storage")
        assert "sonde doctor" in told.value.hint
        assert backends_of("posix+lmdb", HAS, "storage")["data"].startswith("posix")


class TestRunnable:
    CASES = (Case("object", "write", 64), Case("db", "query", 64), Case("dataset", "read", 64))
    ALL = ("data", "kv", "db")

    @pytest.fixture
    def library(self, monkeypatch):
        """library(path): what is found; without one nothing is."""

        def found(path: str | None) -> None:
            def look() -> Path:
                if path is None:
                    raise EnvironmentFailure("store.no_hdf5", "there is none", "install one")
                return Path(path)

            monkeypatch.setattr(run_bench.run_hdf5, "library", look)

        return found

    def test_what_is_there_is_run(self, library):
        library("/lib/libhdf5.so")
        assert runnable(self.CASES, self.ALL) == (list(self.CASES), [], "/lib/libhdf5.so")
        assert runnable(self.CASES, None)[0] == list(self.CASES)  # of servers that could not be asked

    def test_nobody_looks_for_hdf5_where_no_case_needs_it(self, monkeypatch):
        def never() -> Path:
            raise AssertionError

        monkeypatch.setattr(run_bench.run_hdf5, "library", never)
        assert runnable(self.CASES[:2], self.ALL) == (list(self.CASES[:2]), [], "")

    def test_without_hdf5_one_warning_says_what_to_install(self, library):
        library(None)
        kept, (warning,), path = runnable(self.CASES, self.ALL)
        assert kept == list(self.CASES[:2])
        assert (warning.code, warning.hint, path) == ("store.cases_left_out", "install one", "")
        assert "1 cases of HDF5 are left out: there is none" in warning.evidence

    def test_without_hdf5_and_nothing_else_asked_for_it_is_an_error(self, library):
        library(None)
        with pytest.raises(EnvironmentFailure) as told:
            runnable(self.CASES[2:], self.ALL)
        assert told.value.code == "store.no_hdf5"

    def test_a_role_that_is_lacking_costs_its_own_cases(self, library):
        library("/lib/libhdf5.so")
        kept, (warning,), _ = runnable(self.CASES, ("data", "kv"))
        assert kept == [self.CASES[0], self.CASES[2]]
        assert "(database)" in warning.evidence
        assert "data, kv" in warning.evidence
        kept, (warning,), path = runnable(self.CASES, ("data",))
        assert (kept, path) == ([self.CASES[0]], "")
        assert "the role data" in warning.evidence

    def test_no_role_for_anything_is_an_error(self):
        with pytest.raises(UsageError) as told:
            runnable(self.CASES[1:2], ("data",))
        assert told.value.code == "store.no_case"


class TestServers:
    def test_they_live_as_long_as_the_run_and_their_folders_too(self, server, run_dir):
        server(SERVER)
        died: list[SondeError] = []
        servers = Servers(
            2, {"data": "posix,path={}/objects", "kv": "lmdb,path={}/keys", "db": "memory"}, died.append
        )
        with servers.working(run_dir):
            assert servers.addresses == ["127.0.0.1:7"] * 2
            for number in range(2):
                assert wait_for(lambda n=number: (run_dir / f"server-{n}" / "keys" / "kept").exists())
        assert [child.poll() for child in servers._children] == [0, 0]
        assert [path.name for path in run_dir.iterdir()] == ["log"]
        time.sleep(0.1)
        assert died == []

    def test_they_let_clients_name_the_providers_of_variants(self, server, run_dir):
        server(SERVER.replace('"127.0.0.1:7"', '" ".join(sys.argv[1:])'))
        names = [
            variant.provider
            for variant in choose_variants(
                ("thesis", "tcp", "ofi-rdm/udp;ofi_rxd"), ("tcp", "ofi-msg", "ofi-rdm")
            )
        ]
        assert names == ["sockets", "", "udp;ofi_rxd"]
        servers = Servers(1, {"kv": "memory"}, print, providers=[names[0], names[2]])
        with servers.working(run_dir):
            assert "--allow-provider sockets --allow-provider udp;ofi_rxd" in servers.addresses[0]

    def test_one_that_refuses_says_why(self, server, run_dir):
        server(
            'print(\'{"event":"error","code":"store.full","what":"no room","hint":"make some"}\', flush=True)'
        )
        with pytest.raises(EnvironmentFailure) as told, Servers(1, {}, print).working(run_dir):
            pass
        assert (told.value.code, told.value.what, told.value.hint) == (
            "store.full",
            "the server: no room",
            "make some",
        )

    def test_one_that_ends_before_it_listens_leaves_its_last_words(self, server, run_dir):
        server("import sys\nsys.stderr.write('no such library\\n')\nsys.exit(7)")
        with pytest.raises(EnvironmentFailure) as told, Servers(1, {}, print).working(run_dir):
            pass
        assert told.value.code == "store.server_died"
        assert "exit status 7" in told.value.what
        assert "no such library" in told.value.hint

    def test_one_that_never_listens_is_given_up(self, server, run_dir, monkeypatch):
        monkeypatch.setattr(run_bench, "START_S", 0.3)
        server("import sys\nsys.stdin.read()")
        servers = Servers(1, {}, print)
        with pytest.raises(EnvironmentFailure) as told, servers.working(run_dir):
            pass
        assert told.value.code == "store.server_failed"
        assert servers._children[0].poll() is not None

    def test_one_that_dies_meanwhile_is_reported_once(self, server, run_dir):
        server(SERVER)
        died: list[SondeError] = []
        heard = threading.Event()
        servers = Servers(2, {}, lambda error: (died.append(error), heard.set())[0])
        with servers.working(run_dir):
            for child in servers._children:
                child.kill()
            assert heard.wait(30)
        assert [error.code for error in died] == ["store.server_died"]
        assert "SIGKILL" in died[0].what

    def test_one_that_does_not_end_is_ended(self, server, run_dir, monkeypatch):
        monkeypatch.setattr(run_bench, "STOP_S", 0.2)
        script = SERVER.replace("sys.stdin.read()", "import time; time.sleep(600)")
        server(f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{script}")
        servers = Servers(1, {}, print)
        with servers.working(run_dir):
            pass
        assert servers._children[0].poll() == -9


class TestListener:
    def warning(self, code: str) -> dict:
        return {"event": "warning", "code": code, "evidence": "e", "hint": "h"}

    def test_a_flood_of_failed_cases_is_counted(self):
        listener = Listener(NullProgress())
        for _ in range(MAX_FAILED + 5):
            listener.take(self.warning("store.case_failed"))
        listener.take(self.warning("store.variant_absent"))
        listener.take({"event": "end", "stop_reason": "budget", "samples": 1, "elapsed_s": 1.0, "dropped": 0})
        codes = [warning.code for warning in listener.warnings]
        assert codes == ["store.case_failed"] * MAX_FAILED + ["store.variant_absent", "store.case_failed"]
        assert listener.warnings[-1].evidence == "and 5 more cells failed"

    def absent(self, name: str) -> dict:
        evidence = f"{name}: cannot connect to 127.0.0.1:1: Connection refused"
        return self.warning("store.variant_absent") | {"variant": name, "evidence": evidence}

    def test_when_no_variant_reaches_a_server_that_was_named_nothing_is_measured(self):
        listener = Listener(NullProgress(), ("127.0.0.1:1",), ("tcp", "ofi-msg"))
        for name in ("tcp", "raw-ofi", "tcp"):  # a raw limit needs no server
            listener.take(self.absent(name))
        with pytest.raises(EnvironmentFailure) as told:
            listener.take(self.absent("ofi-msg"))
        assert told.value.code == "store.unreachable"
        assert told.value.what == (
            "no variant reached the server at 127.0.0.1:1: cannot connect to 127.0.0.1:1: Connection refused"
        )
        assert told.value.hint == "h"

    def test_of_servers_started_here_a_variant_may_be_absent(self):
        listener = Listener(NullProgress(), (), ("tcp",))
        listener.take(self.absent("tcp"))
        assert [warning.code for warning in listener.warnings] == ["store.variant_absent"]

    def test_a_dead_server_is_why_a_run_failed(self):
        listener = Listener(NullProgress())
        assert listener.stop_reason(Ending("done", 0)) == "failed"  # of a probe that said nothing
        listener.take({"event": "end", "stop_reason": "budget", "samples": 1, "elapsed_s": 1.0, "dropped": 0})
        assert listener.stop_reason(Ending("done", 0)) == "budget"
        listener.lost(EnvironmentFailure("store.server_died", "x"))
        assert listener.stop_reason(Ending("done", 0)) == "failed"

    def test_a_probe_without_mpi_names_none(self):
        listener = Listener(NullProgress())
        listener.take({"event": "start", "ranks": 1, "mpi": "", "mpi_version": "", "oversubscribed": False})
        assert "mpi_library" not in listener.attrs
        assert listener.attrs["oversubscribed"] is False


class TestWatched:
    """Whether a server that says nothing is noticed, whoever else it is that waits for it."""

    @pytest.fixture(autouse=True)
    def quick(self, monkeypatch):
        for name, value in {"QUIET_S": 0.05, "LOOK_S": 0.01, "SILENT_S": 0.1, "LATE_S": 0.0}.items():
            monkeypatch.setattr(run_bench, name, value)

    def progress(self, samples: int) -> dict:
        return {"event": "progress", "samples": samples}

    def test_one_that_says_nothing_is_named_and_nobody_waits_for_it_to_end(self):
        listener, servers = Listener(NullProgress()), Servers(0, {}, print, ["n1:1", "n2:1"])
        with watched(listener, lambda address: address == "n1:1", servers, time.monotonic() + 1000):
            assert wait_for(lambda: listener.died is not None)
        assert listener.died is not None
        assert listener.died.code == "store.server_silent"
        assert "server n2:1 stopped answering after 0 s" in listener.died.what
        assert servers.silent == {"n2:1"}
        assert [warning.code for warning in listener.warnings] == ["store.server_silent"]
        assert listener.stop_reason(Ending("killed", -15)) == "failed"

    def test_behind_the_end_of_the_budget_there_is_no_patience(self, monkeypatch):
        monkeypatch.setattr(run_bench, "SILENT_S", 1e9)
        listener, servers = Listener(NullProgress()), Servers(0, {}, print, ["n1:1"])
        with watched(listener, lambda _: False, servers, time.monotonic()):
            assert wait_for(lambda: listener.died is not None)

    def failed(self, number: int) -> dict:
        return {"event": "warning", "code": "store.case_failed", "evidence": f"case {number}", "hint": "h"}

    def test_one_that_refused_until_the_probe_was_done_is_named_and_not_what_followed_from_it(
        self, monkeypatch
    ):
        monkeypatch.setattr(run_bench, "LOOK_S", 1e9)
        monkeypatch.setattr(run_bench, "QUIET_S", 1e9)  # the probe is done before anybody looks
        listener, servers = Listener(NullProgress()), Servers(0, {}, print, ["n1:1"])
        with watched(listener, lambda _: False, servers, time.monotonic() + 1000):
            listener.take({"event": "warning", "code": "store.variant_absent", "evidence": "e", "hint": "h"})
            for number in range(MAX_FAILED + 1):
                listener.take(self.failed(number))
            listener.take({"event": "error", "code": "store.nothing_left", "what": "w", "hint": "h"})
            end = {"event": "end", "stop_reason": "failed", "samples": 1, "elapsed_s": 1.0, "dropped": 0}
            listener.take(end)
        assert listener.died is not None
        assert listener.died.what == "server n1:1 stopped answering after 0 s"
        assert [warning.code for warning in listener.warnings] == [
            "store.variant_absent",
            "store.server_silent",
        ]

    def test_cases_that_failed_though_the_server_answers_stay_reported(self):
        listener, servers = Listener(NullProgress()), Servers(0, {}, print, ["n1:1"])
        with watched(listener, lambda _: True, servers, time.monotonic() + 1000):
            listener.take(self.failed(1))
            assert wait_for(lambda: not listener.in_doubt)
        listener.lost(EnvironmentFailure("store.server_died", "x"))
        assert [warning.evidence for warning in listener.warnings] == ["case 1", "x"]
        listener.take(self.failed(2))  # which is but what followed
        assert len(listener.warnings) == 2

    def test_an_answer_is_a_sign_of_life_where_samples_are_seldom(self):
        """Else a server that is stopped later would be said to have been silent since the last sample."""
        listener, servers = Listener(NullProgress()), Servers(0, {}, print, ["n1:1"])
        listener.alive = 0.0
        with watched(listener, lambda _: True, servers, time.monotonic() + 1000):
            assert wait_for(lambda: listener.alive > 0.0)

    def test_one_that_answers_may_take_its_time(self):
        listener, servers = Listener(NullProgress()), Servers(0, {}, print, ["n1:1"])
        asked: list[str] = []
        with watched(listener, lambda address: asked.append(address) is None, servers, time.monotonic()):
            assert wait_for(lambda: len(asked) > 20)
        assert listener.died is None

    def test_nobody_is_asked_while_samples_come(self, monkeypatch):
        monkeypatch.setattr(run_bench, "QUIET_S", 1e9)
        listener, servers = Listener(NullProgress()), Servers(0, {}, print, ["n1:1"])
        asked: list[str] = []
        with watched(listener, lambda address: asked.append(address) is None, servers, time.monotonic()):
            time.sleep(0.1)
        assert asked == []

    def test_only_more_samples_are_a_sign_of_life(self):
        listener = Listener(NullProgress())
        listener.take(self.progress(5))
        listener.alive = 0.0
        listener.take(self.progress(5))
        assert listener.alive == 0.0
        listener.take(self.progress(6))
        assert listener.alive > 0.0

    def test_behind_a_case_that_failed_samples_are_none_until_a_server_has_answered(self):
        """Those of raw limits need no server."""
        listener, servers = Listener(NullProgress()), Servers(0, {}, print, ["n1:1"])
        listener.take({"event": "warning", "code": "store.case_failed", "evidence": "e", "hint": "h"})
        listener.alive = 0.0
        listener.take(self.progress(7))
        assert listener.alive == 0.0
        with watched(listener, lambda _: True, servers, time.monotonic() + 1000):
            assert wait_for(lambda: not listener.in_doubt)
        listener.take(self.progress(8))
        assert listener.alive > 0.0


def test_time_that_is_gone_is_not_measured_in():
    plan = Plan(choose_variants((), ["tcp"]), (Case("object", "write", 64),))
    now = time.monotonic()
    late, early = (Request(plan, Path("a.nc"), (), 60.0, now - gone).left_s() for gone in (50.0, 0.0))
    assert late < 10.0 < early < 60.0

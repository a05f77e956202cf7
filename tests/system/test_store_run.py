"""`sonde store run` as a user starts it: short real runs, and what becomes of them when something dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import sonde as library
from sonde.core.launch import libexec
from sonde_shell import finish, shell
from watching import samples_in, wait_for

pytestmark = pytest.mark.skipif(
    not os.access(libexec() / "sonde-stored", os.X_OK), reason="this build has no storage server"
)

SHORT = ("--ops", "object.write,kv", "--sizes", "64,4KiB", "--variant", "raw,tcp,plain", "--seed", "3")
# As many samples as whatever is not about their number needs: done when they are there, however busy the machine is.
FEW = ("--rule", "fixed:5", "--budget", "100s")
# Never content, so that whatever ends it is what the test does.
ENDLESS = (
    *("--ops", "object", "--sizes", "64,4KiB", "--variant", "raw,tcp", "--rule", "fixed:100000000"),
    *("--cap", "100000000", "--budget", "3min", "--seed", "3"),
)


def servers(sonde) -> list[int]:
    return [pid for pid, name in sonde.processes().items() if Path(name).name == "sonde-stored"]


def probes(sonde) -> list[int]:
    return [pid for pid, name in sonde.processes().items() if Path(name).name == "sonde-storebench"]


def under_way(sonde, name: str = "a") -> None:
    """Waits until samples of a run are on the disk."""
    assert wait_for(lambda: samples_in(sonde.cwd / f"{name}.run") > 200)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A whole run, a.nc: the shell in its folder, and what it said."""
    made = shell(tmp_path_factory.mktemp("store"), None)
    run = next(made)
    told = run("store", "run", *SHORT, "--budget", "6s", "-o", "a.nc", "--json").expect(0).json
    assert run.left() == []
    yield run, told
    next(made, None)


class TestWholeRun:
    def test_it_says_what_it_measured(self, ran):
        _, told = ran
        assert (told["room"], told["verb"], told["schema"], told["dataset"]) == (
            "store",
            "run",
            "store/1",
            "a.nc",
        )
        assert told["complete"]
        assert told["stop_reason"] in ("budget", "converged")
        assert told["cells"] == 3 * 6 == len(told["results"])
        assert not told["findings"]
        assert not told["warnings"]
        keys = {
            "client",
            "op",
            "size",
            "batch",
            "depth",
            "transport",
            "provider",
            "variant",
            "ops_s",
            "mib_s",
            "ci",
        }
        keys |= {"p50_s", "p99_s", "ratio_to_tcp", "ratio_to_raw"}
        for row in told["results"]:
            assert keys <= set(row)
            assert row["ops_s"] > 0
            assert 0 < row["p50_s"] <= row["p99_s"]
            assert row["ops_s"] * row["p50_s"] == pytest.approx(row["batch"] * row["depth"])
        default = [row for row in told["results"] if row["variant"] == "default"]
        assert [row["transport"] for row in default] == ["tcp"] * 6

    def test_the_dataset_is_sound_and_says_how_it_came_about(self, ran):
        run, _ = ran
        run("data", "validate", "a.nc").expect(0)
        with library.open(run.cwd / "a.nc") as tree:
            assert tree.attrs["schema"] == "store/1"
            assert (tree.attrs["backend"], tree.attrs["safety"], tree.attrs["transport"]) == (
                "null",
                "network",
                "tcp",
            )
            assert "mpi_library" not in tree.attrs
            raw = tree["raw"].to_dataset().load()
        assert list(raw["variant"].values) == ["raw", "tcp", "plain"]
        assert (raw["n"] > 0).all()
        for v, c in np.ndindex(*raw["n"].shape):
            began = raw["t_start"][v, c, : int(raw["n"][v, c])].values
            assert (np.diff(began) > 0).all()  # one after the other, in the order of time
        assert np.isfinite(raw["backend"].sel(variant="tcp")[:, 0]).all()
        assert np.isnan(raw["backend"].sel(variant="raw")).all()

    def test_show_says_the_same_again(self, ran):
        run, told = ran
        again = run("store", "show", "a.nc", "--json").expect(0).json
        assert again["results"] == told["results"]
        assert again["verdict"] == told["verdict"]
        full = run("store", "show", "a.nc", "--case", "object.write:4096:1:1", COLUMNS="80").expect(0).out
        assert all(name in full for name in ("raw", "tcp", "plain", "object write, 4 KiB"))
        wrong = run("store", "show", "a.nc", "--case", "item").expect(2)
        assert "object.write:4096:1:1" in wrong.said

    def test_tables_keep_to_80_columns(self, ran):
        run, _ = ran
        out = run("store", "show", "a.nc", COLUMNS="80").expect(0).out
        assert max(map(len, out.splitlines())) <= 80

    def test_a_run_does_not_differ_from_itself(self, ran):
        run, _told = ran
        ran_ = run("store", "diff", "a.nc", "a.nc", "--json")
        same = ran_.json
        assert (same["slower"], same["faster"], same["median_ratio"]) == (0, 0, 1.0)
        said = 0 if same["detectable"] <= 1 else 4  # of a machine with much else to do, nothing can be said
        assert ran_.code == said
        run("store", "check", "a.nc", "--against", "a.nc").expect(said)

    def test_a_limit_that_nothing_keeps_is_a_finding(self, ran):
        run, _ = ran
        run("store", "check", "a.nc").expect(2)
        run("store", "check", "a.nc", "--min-ratio", "0").expect(2)
        kept = run("store", "check", "a.nc", "--min-ratio", "0.01").expect(4)  # nothing is there beside tcp
        assert "it has no cell to compare with tcp" in kept.out

    def test_its_report_has_a_section(self, ran):
        run, _ = ran
        run("report", "a.nc", "-o", "a.html").expect(0)
        page = (run.cwd / "a.html").read_text()
        for title in (
            "Storage service by transport",
            "Throughput by size and transport",
            "Where the time of an iteration",
        ):
            assert title in page

    def test_its_table_can_be_had_as_csv(self, ran):
        run, _ = ran
        run("data", "convert", "a.nc", "-o", "a.csv").expect(0)
        head, *rows = (run.cwd / "a.csv").read_text().splitlines()
        assert {"variant", "case", "rate [1/s]", "ratio_to_tcp"} <= set(head.split(","))
        assert len(rows) == 18


def test_a_dry_run_starts_nothing(sonde):
    told = sonde("store", "run", "--budget", "60s", "--dry-run", "--json").expect(0).json
    assert "object.write:4096:1:1" in told["cases"]
    assert {"raw", "tcp", "plain"} <= set(told["variants"])
    assert "sonde-storebench" in told["command"]
    assert list(sonde.cwd.iterdir()) == []


def test_a_short_budget_postpones_cases_and_says_so(sonde):
    told = (
        sonde("store", "run", "--budget", "5s", "--variant", "raw,tcp", "-o", "a.nc", "--json").expect(0).json
    )
    assert told["warnings"][0]["code"] == "store.cases_postponed"
    assert told["results"][0]["client"] == "object"


@pytest.mark.parametrize("backend", ["memory", "posix+lmdb"])
def test_what_servers_keep_is_removed_with_them(sonde, backend):
    from sonde.store.run import has
    from sonde.store.run_bench import BACKENDS

    there = has()
    if any(text.partition(",")[0] not in there[role] for role, text in BACKENDS[backend].items()):
        pytest.skip(f"this build has no {backend}")
    ops = "object,striped,item,kv,db"
    words = ("--ops", ops, "--sizes", "4KiB", "--batch", "1,16", "--variant", "tcp", "--servers", "2", *FEW)
    told = sonde("store", "run", *words, "--backend", backend, "-o", "a.nc", "--json").expect(0).json
    assert told["complete"]
    assert told["cells"] == 22
    assert [path.name for path in sonde.cwd.iterdir()] == ["a.nc"]
    with library.open(sonde.cwd / "a.nc") as tree:
        assert (tree.attrs["backend"], tree.attrs["servers"]) == (backend, 2)
    assert sonde.left() == []


@contextmanager
def stored(sonde, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server with backends, "kv=memory", and other options, and where it listens."""
    backends = [word for word in words if "=" in word]
    options = [word for word in words if "=" not in word]
    process = subprocess.Popen(
        [
            *(str(libexec() / "sonde-stored"), "--listen", "127.0.0.1:0"),
            *(part for text in backends for part in ("--backend", text)),
            *options,
        ],
        stdout=subprocess.PIPE, text=True, env=sonde.env, cwd=sonde.cwd,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())["listen"]
    finally:
        process.terminate()
        process.wait(20)


def test_a_server_that_runs_already_is_measured_and_left_alone(sonde):
    with stored(sonde, "data=memory", "kv=memory") as (server, listen):
        words = ("--ops", "item,kv", "--sizes", "64", "--variant", "raw,tcp", *FEW, "-o", "a.nc")
        told = sonde("store", "run", "--server", listen, *words, "--json").expect(0).json
        assert told["complete"]
        assert server.poll() is None
        with library.open(sonde.cwd / "a.nc") as tree:
            assert tree.attrs["server"] == listen


@pytest.mark.parametrize("variants", [("--variant", "tcp"), ("--variant", "raw,tcp,plain"), ()])
def test_nobody_there_is_an_error_and_leaves_nothing(sonde, variants):
    words = ("--ops", "object", "--sizes", "64", *variants, "--budget", "4s", "-o", "a.nc")
    told = sonde("store", "run", "--server", "127.0.0.1:1", *words).expect(3)
    assert "no variant reached the server at 127.0.0.1:1" in " ".join(told.said.split())
    assert "sonde store serve" in told.said
    assert list(sonde.cwd.iterdir()) == []
    assert sonde.left() == []


def test_keys_that_nobody_keeps_are_incomplete_not_lost(sonde):
    """A case that fails costs its own cells only."""
    with stored(sonde, "data=null", "kv=null") as (_, listen):
        words = ("--ops", "kv", "--sizes", "64", "--variant", "tcp", *FEW, "-o", "a.nc", "--json")
        told = sonde("store", "run", "--server", listen, *words).expect(4).json
        assert not told["complete"]
        assert [row["op"] for row in told["results"]] == ["put"]
        assert {"store.case_failed", "store.cells_without_data"} <= {
            warning["code"] for warning in told["warnings"]
        }


def results(told: dict, **wanted: object) -> list[dict]:
    return [row for row in told["results"] if all(row[key] == value for key, value in wanted.items())]


def measure(sonde, words: str, *more: str):
    """A run into a.nc, with words as one types them, and more that have blanks or are made; of few samples unless
    they have a budget.
    """
    enough = () if "--budget" in words else FEW
    return sonde("store", "run", *words.split(), *more, *enough, "-o", "a.nc", "--json")


def needs_libfabric() -> None:
    from sonde.store.run import has

    if "ofi-rdm" not in has()["transports"]:
        pytest.skip("this build has no libfabric")


class TestDatabase:
    def test_rows_are_inserted_found_and_changed(self, sonde):
        words = "--ops db --sizes 64,4KiB --batch 1,100 --depth 1,2 --variant raw,tcp"
        told = measure(sonde, words).expect(0).json
        assert told["complete"]
        assert {warning["code"] for warning in told["warnings"]} <= {"store.drift"}
        assert len(told["results"]) == 2 * 3 * 8
        assert {row["op"] for row in results(told, name="raw")} == {"insert", "query", "update"}
        with library.open(sonde.cwd / "a.nc") as tree:
            raw = tree["raw"].to_dataset().load()
        single = (raw["depth"] == 1).values
        assert np.isfinite(raw["backend"].sel(variant="tcp")[single, 0]).all()
        sonde("data", "validate", "a.nc").expect(0)

    def test_inserts_go_on_when_the_table_was_full(self, sonde):
        words = "--ops db.insert --sizes 1MiB --batch 32 --variant tcp --rule fixed:8 --budget 20s"
        (row,) = measure(sonde, words).expect(0).json["results"]
        assert row["n"] >= 8  # each of which fills it

    def test_servers_without_tables_are_measured_without_them(self, sonde):
        with stored(sonde, "data=memory", "kv=memory") as (_, listen):
            words = f"--server {listen} --sizes 64 --variant tcp"
            told = measure(sonde, words, "--ops", "object,db").expect(0).json
            assert told["complete"]
            assert {row["client"] for row in told["results"]} == {"object"}
            (warning,) = [w for w in told["warnings"] if w["code"] == "store.cases_left_out"]
            assert "database" in warning["evidence"]
            assert "data, kv" in warning["evidence"]
            assert "nothing can be measured" in measure(sonde, words, "--ops", "db").expect(2).out

    def test_tables_that_nobody_keeps_are_named(self, sonde):
        with stored(sonde, "data=null", "db=null") as (_, listen):
            words = f"--server {listen} --ops db --sizes 64 --variant tcp"
            told = measure(sonde, words).expect(4).json
            assert [row["op"] for row in told["results"]] == ["insert"]
            assert "store.case_failed" in {warning["code"] for warning in told["warnings"]}


@pytest.fixture
def with_hdf5():
    """Skips where there is no HDF5 with a connector."""
    from sonde.core.errors import EnvironmentFailure
    from sonde.store import run_hdf5

    try:
        run_hdf5.library()
    except EnvironmentFailure as error:
        pytest.skip(error.what)


@pytest.mark.usefixtures("with_hdf5")
class TestHdf5:
    @pytest.mark.parametrize("backend", ["null", "memory", "posix+lmdb"])
    def test_datasets_and_attributes_are_written_and_read(self, sonde, backend):
        from sonde.store.run import has

        if "lmdb" in backend and "lmdb" not in has()["kv"]:
            pytest.skip("this build has no LMDB")
        # One byte; what lies with others in an object; what is just too large for that.
        words = f"--ops hdf5 --sizes 1,64KiB,65537 --batch 1,40 --variant raw,tcp --backend {backend}"
        told = measure(sonde, words).expect(0).json
        assert told["complete"]
        assert {warning["code"] for warning in told["warnings"]} <= {"store.drift"}
        assert {row["name"] for row in told["results"]} == {"tcp"}  # a raw limit there is none
        assert len(told["results"]) == 2 * 2 * 6
        assert all(row["ratio_to_raw"] is None for row in told["results"])
        sonde("data", "validate", "a.nc").expect(0)
        assert [path.name for path in sonde.cwd.iterdir()] == ["a.nc"]
        assert sonde.left() == []

    def test_a_file_of_writes_is_made_anew_before_it_grows_large(self, sonde):
        # 17 are more than a file should have, and are written all the same; for twenty times so much there is no room.
        words = "--ops dataset.write --sizes 4MiB --batch 1,17 --variant tcp --rule fixed:20 --budget 30s"
        with stored(sonde, "data=memory,limit=600MiB", "kv=memory") as (_, listen):
            told = measure(sonde, words, "--server", listen).expect(0).json
        assert [row["n"] >= 20 for row in told["results"]] == [True, True]

    def test_every_variant_has_a_way_of_its_own(self, sonde):
        """Among them a provider with a ';' in its name, which the connector's settings keep apart with."""
        from sonde.store.run import has

        fabric = ["ofi-rdm/tcp;ofi_rxm"] if "ofi-rdm" in has()["transports"] else []
        names = ("tcp", "mine=tcp,cork=yes,spin=20us", *fabric)
        variants = [word for name in names for word in ("--variant", name)]
        told = measure(sonde, "--ops hdf5 --sizes 64 --backend posix+lmdb --safety storage", *variants)
        told = told.expect(0).json
        assert told["complete"]
        assert {row["name"] for row in told["results"]} == {"tcp", "mine", *fabric}
        assert len(told["results"]) == 4 * (2 + len(fabric))

    def test_a_token_reaches_the_connector_too(self, sonde):
        sonde("store", "token", "secret").expect(0)
        with stored(sonde, "data=memory", "kv=memory", "--auth", "token", "--token-file", "secret") as (
            _,
            listen,
        ):
            words = f"--server {listen} --token-file secret --ops hdf5 --sizes 64 --variant tcp"
            told = measure(sonde, words).expect(0).json
            assert told["complete"]
            assert len(told["results"]) == 4

    def test_keys_that_nobody_keeps_are_no_files(self, sonde):
        with stored(sonde, "data=memory", "kv=null") as (_, listen):
            words = f"--server {listen} --ops object,dataset --sizes 64 --variant tcp"
            told = measure(sonde, words).expect(4).json
            assert {row["op"] for row in results(told, client="object")} == {"write", "read"}
            assert results(told, client="dataset", op="read") == []


class TestRawLimits:
    def test_libfabric_alone_is_measured_beside_the_socket(self, sonde):
        needs_libfabric()
        # Less than a message without data; a piece and one byte; more than the memory that a case has.
        words = "--ops object --sizes 1,524289 --batch 1,9 --depth 1,3"
        told = measure(sonde, words, "--variant", "raw,raw-ofi,raw-ofi/tcp,tcp,ofi-rdm").expect(0).json
        assert told["complete"]
        assert len(told["results"]) == 5 * 16
        assert {row["provider"] for row in results(told, name="raw-ofi/tcp")} == {"tcp"}
        (alone,) = {row["provider"] for row in results(told, name="raw-ofi")}
        (of_store,) = {row["provider"] for row in results(told, name="ofi-rdm")}
        assert alone == of_store != ""
        assert all(row["variant"] == "raw" for row in results(told, transport="raw-ofi"))
        assert all(row["ratio_to_raw_ofi"] for row in results(told, name="ofi-rdm"))
        assert sonde.left() == []

    def test_a_provider_that_is_not_there_leaves_the_limit_out(self, sonde):
        needs_libfabric()
        words = "--ops object --sizes 64 --variant raw-ofi/nothing,tcp"
        told = measure(sonde, words).expect(4).json
        (absent,) = [w for w in told["warnings"] if w["code"] == "store.variant_absent"]
        assert "there is no 'nothing'" in absent["evidence"]
        assert {row["name"] for row in told["results"]} == {"tcp"}


def test_what_is_slow_on_purpose_and_too_slow_is_left_out_before(sonde):
    needs_libfabric()
    words = "--ops object.write --sizes 4KiB --batch 1,10000 --variant tcp,thesis --budget 5s"
    told = measure(sonde, words).expect(0).json
    assert told["complete"]
    (warning,) = [w for w in told["warnings"] if w["code"] == "store.cells_left_out"]
    assert "thesis, object.write:4096:10000:1" in warning["evidence"]
    assert {(row["name"], row["batch"]) for row in told["results"]} == {
        ("tcp", 1), ("tcp", 10000), ("thesis", 1)
    }  # fmt: skip


@pytest.mark.parametrize(("option", "value"), [("--backend", "memory"), ("--servers", "2")])
def test_what_is_of_servers_started_here_is_refused_beside_one_that_runs_already(sonde, option, value):
    words = ("--server", "127.0.0.1:1", option, value, "--json")
    error = sonde("store", "run", *words).expect(2).json["error"]
    assert error["code"] == "store.two_stores"
    assert f"--server and {option} were both given" in error["what"]


@pytest.fixture(scope="module")
def silenced(tmp_path_factory):
    """By whether their server was named: shell, where the server listens, and outcome of runs whose server was stopped.

    They are under way at once: each gives its server 10 s to answer.
    """
    made = {named: shell(tmp_path_factory.mktemp("silenced"), None) for named in (True, False)}
    shells = {named: next(one) for named, one in made.items()}
    with stored(shells[True], "data=memory", "kv=memory") as (child, listen):
        words = ("store", "run", *ENDLESS, "-o", "a.nc", "--json")
        runs = {True: shells[True].start(*words, "--server", listen), False: shells[False].start(*words)}
        for named, sonde in shells.items():
            under_way(sonde)
            os.kill(child.pid if named else servers(sonde)[0], signal.SIGSTOP)
        try:
            ended = {named: finish(process) for named, process in runs.items()}
        finally:
            os.kill(child.pid, signal.SIGCONT)
    yield {True: (shells[True], listen, ended[True]), False: (shells[False], "127.0.0.1:", ended[False])}
    for one in made.values():
        next(one, None)


class TestEndings:
    def test_ctrl_c_saves_what_there_is(self, sonde):
        process = sonde.start("store", "run", *ENDLESS, "-o", "a.nc", "--json")
        under_way(sonde)
        process.send_signal(signal.SIGINT)
        ran = finish(process).expect(130)
        codes = [warning["code"] for warning in ran.json["warnings"]]
        assert codes[0] == "store.interrupted"
        assert "core.run_was_interrupted" not in codes
        assert "the run was interrupted before its end" in sonde("store", "show", "a.nc").expect(0).err
        with library.open(sonde.cwd / "a.nc") as tree:
            assert tree.attrs["stop_reason"] == "interrupted"
            assert int(tree["raw"]["n"].sum()) > 200
        sonde("data", "validate", "a.nc").expect(0)
        assert [path.name for path in sonde.cwd.iterdir()] == ["a.nc"]
        assert sonde.left() == []

    def test_ctrl_c_before_the_first_sample_leaves_nothing(self, sonde):
        process = sonde.start("store", "run", *ENDLESS, "-o", "a.nc")
        assert wait_for(lambda: (sonde.cwd / "a.run").exists())
        process.send_signal(signal.SIGINT)
        ran = finish(process).expect(130)
        left = sorted(path.name for path in sonde.cwd.iterdir())
        assert left in ([], ["a.nc"]), ran.err  # it may have been faster than the signal
        assert sonde.left() == []

    def test_after_kill_9_recover_saves_every_flushed_sample(self, sonde):
        words = ("--backend", "memory", "-o", "a.nc")
        process = sonde.start("store", "run", *ENDLESS, *words)
        under_way(sonde)
        process.kill()
        finish(process)
        assert wait_for(lambda: not servers(sonde) and not probes(sonde))  # the kernel told them
        kept = samples_in(sonde.cwd / "a.run")
        assert kept > 200
        sonde("data", "recover", "a.run").expect(4)
        with library.open(sonde.cwd / "a.nc") as tree:
            assert tree.attrs["stop_reason"] == "killed"
            assert int(tree["raw"]["n"].sum()) == kept
            assert "summary" in tree.children
        sonde("data", "validate", "a.nc").expect(0)
        assert [path.name for path in sonde.cwd.iterdir()] == ["a.nc"]

    def test_after_kill_9_servers_that_were_named_keep_nothing_of_it(self, sonde):
        folders = {"data": sonde.cwd / "objects", "kv": sonde.cwd / "keys"}
        for folder in folders.values():
            folder.mkdir()
        with stored(sonde, f"data=posix,path={folders['data']}", f"kv=lmdb,path={folders['kv']}") as (
            _,
            listen,
        ):
            words = (
                "--ops",
                "object,item,kv",
                "--sizes",
                "4096",
                "--variant",
                "tcp",
                "--rule",
                "fixed:20000",
            )
            process = sonde.start(
                "store", "run", "--server", listen, *words, "--budget", "100s", "-o", "a.nc"
            )
            assert wait_for(lambda: any(path.is_file() for path in folders["data"].glob("*/*")))
            under_way(sonde)
            process.kill()
            finish(process)
            assert wait_for(lambda: not probes(sonde))
            assert [path.name for path in folders["data"].glob("*/*") if path.is_file()] == []
            status = sonde("store", "status", "--server", listen, "--json").expect(0).json
            (kv,) = (role for role in status["servers"][0]["report"]["roles"] if role["role"] == "kv")
            assert ", 0 keys," in kv["detail"]

    def test_a_server_that_is_killed_ends_the_run_and_what_was_measured_stays(self, sonde):
        process = sonde.start("store", "run", *ENDLESS, "-o", "a.nc", "--json")
        under_way(sonde)
        (server,) = servers(sonde)
        os.kill(server, signal.SIGKILL)
        ran = finish(process).expect(3)
        error = json.loads(ran.out)["error"]
        assert error["code"] == "store.server_died"
        assert "SIGKILL" in error["what"]
        assert "a.nc" in error["hint"]
        with library.open(sonde.cwd / "a.nc") as tree:
            assert tree.attrs["stop_reason"] == "failed"
            assert int(tree["raw"]["n"].sum()) > 200
        assert sonde.left() == []

    @pytest.mark.parametrize("named", [True, False])
    def test_a_server_that_is_stopped_ends_the_run_and_is_named(self, silenced, named):
        """It answers nothing and refuses nothing, as one whose host hangs."""
        sonde, listen, ran = silenced[named]
        error = json.loads(ran.expect(3).out)["error"]
        assert error["code"] == "store.server_silent"
        assert f"server {listen}" in error["what"]
        assert "stopped answering after" in error["what"]
        assert "a.nc" in error["hint"]
        with library.open(sonde.cwd / "a.nc") as tree:
            assert tree.attrs["stop_reason"] == "failed"
            assert int(tree["raw"]["n"].sum()) > 200
            assert "store.server_silent" in tree["warnings"].to_dataset()["code"].values
        assert sonde.left() == []

    def test_a_named_server_that_is_killed_ends_the_run_and_is_named(self, sonde):
        """It refuses at once, and every case on it fails: the probe ends first, and knows not why."""
        with stored(sonde, "data=memory", "kv=memory") as (child, listen):
            process = sonde.start("store", "run", *ENDLESS, "--server", listen, "-o", "a.nc", "--json")
            under_way(sonde)
            child.kill()
            ran = finish(process).expect(3)
        error = json.loads(ran.out)["error"]
        assert error["code"] == "store.server_silent"
        assert f"server {listen} stopped answering after" in error["what"]
        assert "a.nc" in error["hint"]
        with library.open(sonde.cwd / "a.nc") as tree:
            assert tree.attrs["stop_reason"] == "failed"
            codes = list(tree["warnings"].to_dataset()["code"].values)
        assert "store.server_silent" in codes
        assert "store.case_failed" not in codes
        assert sonde.left() == []

    def test_an_error_that_says_see_the_warnings_has_them(self, sonde):
        words = ("--ops", "kv.put", "--sizes", "4KiB", "--variant", "tcp=tcp", "--safety", "storage")
        with stored(sonde, "data=memory", "kv=memory") as (_, listen):
            told = sonde("store", "run", *words, "--server", listen, "--budget", "10s").expect(3)
            told_json = sonde("store", "run", *words, "--server", listen, "--budget", "10s", "--json").expect(
                3
            )
        assert told.err.startswith("warning: tcp, kv.put:4096:1:1: "), told.err
        assert "see the warnings" in told.err
        assert [warning["code"] for warning in told_json.json["warnings"]] == ["store.case_failed"]

    def test_a_probe_that_is_killed_leaves_its_samples_and_no_server(self, sonde):
        process = sonde.start("store", "run", *ENDLESS, "-o", "a.nc", "--json")
        under_way(sonde)
        for pid in probes(sonde):
            os.kill(pid, signal.SIGKILL)
        ran = finish(process).expect(3)
        assert "SIGKILL" in json.loads(ran.out)["error"]["what"]
        with library.open(sonde.cwd / "a.nc") as tree:
            assert int(tree["raw"]["n"].sum()) > 200
        assert sonde.left() == []

    def test_a_server_that_does_not_start_leaves_no_folder(self, sonde):
        ran = sonde(
            *("store", "run", "--backend", "posix+nothing", "--budget", "3s", "-o", "a.nc"),
        ).expect(2)
        assert "there is no backend 'posix+nothing'" in ran.said
        assert list(sonde.cwd.iterdir()) == []

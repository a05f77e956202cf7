"""`sonde bus run` as a user starts it: short real runs over the DDS that are there, and what becomes of them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

import sonde as library
from sonde.bus import run_probe
from sonde.bus.plan import Plan
from sonde.bus.variants import variant_of
from sonde.core.errors import SondeError
from sonde.core.launch import libexec
from sonde_shell import Typed, finish, shell
from watching import samples_in, wait_for

pytestmark = pytest.mark.skipif(
    not os.access(libexec() / run_probe.PROBE, os.X_OK), reason="this build has no data bus"
)

ENDLESS = ("--rule", "fixed:100000000", "--cap", "100000000", "--budget", "3min", "--seed", "3")


def there() -> list[str]:
    """The implementations of DDS that can be opened here."""
    plan = Plan(tuple(variant_of(name, "udp4") for name in ("cyclonedds", "fastdds")), ())
    try:
        told = run_probe.check(plan)
    except SondeError:
        return []
    return [str(event["implementation"]) for event in told if event["event"] == "variant"]


@pytest.fixture(scope="module")
def dds() -> list[str]:
    found = there()
    if not found:
        pytest.skip("no implementation of DDS is here")
    return found


@pytest.fixture(scope="module")
def ran(tmp_path_factory, dds):
    """A whole run over every DDS that is here, a.nc: the shell in its folder, and what it said."""
    made = shell(tmp_path_factory.mktemp("bus"), None)
    run = next(made)
    words = ("latency", "fanout", "--sizes", "64,1KiB", "--subscribers", "1,4", "--seed", "3")
    variants = ",".join([*dds, "null", "raw/udp4"])
    few = ("--rule", "fixed:200", "--epoch-length", "10")
    told = run(
        "bus", "run", *words, *few, "--variants", variants, "--budget", "2min", "-o", "a.nc", "--json"
    ).expect(0).json  # fmt: skip
    assert run.left() == []
    yield run, told, dds
    next(made, None)


@pytest.fixture
def read(ran, capfd) -> Typed:
    """For commands that only read what was measured: in the folder of that run, and in this process."""
    return Typed(ran[0].cwd, ran[0].env, capfd)


class TestWholeRun:
    def test_it_says_what_it_measured(self, ran):
        _, told, dds = ran
        assert (told["room"], told["verb"], told["schema"]) == ("bus", "run", "bus/1")
        assert told["complete"]
        assert told["findings"] == []
        assert told["stop_reason"] in ("budget", "converged")
        assert told["cells"] == (len(dds) + 2) * (2 + 4)
        implementations = {row["implementation"] for row in told["results"]}
        assert implementations == {*dds, "null", "raw"}
        for row in told["results"]:
            assert {"test", "transport", "n", "size", "value", "unit", "ci", "lost"} <= set(row)
            assert row["value"] >= 0
            if row["ci"] is not None:
                assert row["ci"][0] <= row["value"] <= row["ci"][1]
        rtt = [row for row in told["results"] if row["quantity"] == "rtt" and row["implementation"] in dds]
        assert len(rtt) == 2 * len(dds)
        assert all(0 < row["value"] < 1 and row["unit"] == "s" for row in rtt)
        assert {row["n"] for row in told["results"] if row["test"] == "fanout"} == {1, 4}
        versions = [lesson["code"] for lesson in told["lessons"]]
        assert "bus.latency" in versions

    def test_the_dataset_is_sound_and_says_how_it_came_about(self, ran, read):
        run, _, dds = ran
        read("data", "validate", "a.nc").expect(0)
        with library.open(run.cwd / "a.nc") as tree:
            assert tree.attrs["schema"] == "bus/1"
            assert tree.attrs["cycles_per_s"] > 0
            assert tree.attrs["instructions"]
            assert "mpi_library" not in tree.attrs
            raw = tree["raw"].to_dataset().load()
        version = dict(zip(raw["implementation"].values, raw["version"].values))
        assert all(version[name] for name in dds)
        for k in range(raw.sizes["series"]):
            epoch = raw["epoch"][k, : int(raw["n"][k])].values
            assert (np.diff(epoch) >= 0).all()

    def test_show_says_the_same_again(self, ran, read):
        _, told, _ = ran
        again = read("bus", "show", "a.nc", "--json").expect(0).json
        assert again["results"] == told["results"]
        assert again["verdict"] == told["verdict"]
        full = read("bus", "show", "a.nc", "--case", "latency, 64 B").expect(0).out
        assert "rtt" in full
        wrong = read("bus", "show", "a.nc", "--case", "calls").expect(2)
        assert "latency, 64 B" in wrong.said

    def test_a_run_does_not_differ_from_itself(self, ran, read):
        same = read("bus", "diff", "a.nc", "a.nc", "--json")
        assert (same.json["slower"], same.json["faster"]) == (0, 0)
        assert same.code == (0 if same.json["detectable"] and same.json["detectable"] <= 1 else 4)
        read("bus", "check", "a.nc").expect(2)

    def test_it_gives_advice_with_the_numbers_behind_it(self, ran, read):
        run, told, _dds = ran
        words = ("--subscribers", "4", "--size", "64")
        (run.cwd / "bus.nc").write_bytes((run.cwd / "a.nc").read_bytes())
        found = read("bus", "advise", *words, "--local", "--json").expect(0).json
        assert found["dataset"] == "bus.nc"  # the newest here
        measured = {row["variant"] for row in told["results"] if row["implementation"] not in ("null", "raw")}
        assert {one["variant"] for one in found["advice"]} == measured
        assert all(one["because"] and one["latency_s"] > 0 for one in found["advice"])
        remote = read("bus", "advise", *words, "--remote", "--from", "a.nc", "--json").expect(0).json
        assert "within one host" in " ".join(remote["advice"][0]["outside"])
        assert read("bus", "advise", *words).expect(2).said

    def test_its_report_has_a_section(self, ran, read):
        run, *_ = ran
        read("report", "a.nc", "-o", "a.html").expect(0)
        page = (run.cwd / "a.html").read_text()
        for title in ("Data-distribution bus", "Latency by size", "Several subscribers"):
            assert title in page

    def test_its_table_can_be_had_as_csv(self, ran, read):
        run, told, _ = ran
        read("data", "convert", "a.nc", "-o", "a.csv").expect(0)
        head, *rows = (run.cwd / "a.csv").read_text().splitlines()
        assert {"median [quantity_unit]", "ratio_to_raw [1]"} & set(head.split(","))
        assert len(rows) >= len(told["results"])


def run_of(sonde, dds, *words, samples=1):
    """A run of one test over each DDS, that ends when each series has so many samples."""
    variants = ",".join(dds)
    rule = ("--rule", f"fixed:{samples}", "--epoch-length", "10", "--budget", "2min", "--seed", "5")
    told = sonde("bus", "run", *words, "--variants", variants, *rule, "-o", "a.nc", "--json").expect(0).json
    assert told["stop_reason"] == "converged"
    assert told["complete"]
    assert sonde.left() == []
    return told


def test_discovery_is_counted(sonde, dds):
    told = run_of(sonde, dds, "discovery", "--participants", "2,4,8", "--steady", "100ms")
    datagrams = {
        (row["variant"], row["n"]): row["value"] for row in told["results"] if row["quantity"] == "datagrams"
    }
    assert set(datagrams) == {(f"{name}/udp4", n) for name in dds for n in (2, 4, 8)}
    for name in dds:  # of so few the number grows with each, whatever the machine does
        assert 0 < datagrams[f"{name}/udp4", 2] < datagrams[f"{name}/udp4", 4] < datagrams[f"{name}/udp4", 8]
    assert {row["treatment"] for row in told["results"]} == {"star"}
    matched = [row["value"] for row in told["results"] if row["quantity"] == "matched"]
    assert matched
    assert all(share == 1 for share in matched)
    laws = {law["variant"]: law for law in told["laws"]}
    assert set(laws) == {f"{name}/udp4" for name in dds}
    assert all(law["points"] == 3 for law in laws.values())


def test_discovery_of_all_to_all_is_another_case(sonde, dds):
    told = run_of(sonde, dds[:1], "discovery", "--participants", "4", "--all-to-all", "--steady", "100ms")
    assert {row["treatment"] for row in told["results"]} == {"all"}
    assert "Discovery, all to all, 4 participants" in sonde("bus", "show", "a.nc", "--case", "discovery").out


def test_a_run_that_overruns_ends_with_what_it_has_and_says_what_it_has_not(sonde, dds):
    hub = '<sonde-bus version="1"><profile name="hub" domain="93"><discovery kind="peers" peers="127.0.0.1"/>'
    (sonde.cwd / "hub.xml").write_text(f"{hub}</profile></sonde-bus>")
    words = ("discovery", "--all-to-all", "--participants", "4,5", "--within", "2min")
    variant = f"hub={dds[0]},profile={sonde.cwd}/hub.xml"  # all name the first, and so do not all meet
    ran = sonde("bus", "run", *words, "--variants", variant, "--budget", "3s", "-o", "a.nc", "--json")
    told = ran.expect(4).json
    codes = {warning["code"] for warning in told["warnings"]}
    assert {"bus.not_matched", "bus.cells_without_data"} <= codes
    (matched,) = (row for row in told["results"] if row["quantity"] == "matched")
    assert 0 < matched["value"] < 1
    assert not [row for row in told["results"] if row["quantity"] == "datagrams"]
    assert any(lesson["code"] == "bus.discovery_unmatched" for lesson in told["lessons"])
    assert sonde.left() == []


def test_throughput_has_its_loss_beside_it(sonde, dds):
    told = run_of(sonde, dds, "throughput", "--sizes", "64", "--subscribers", "1")
    rates = [row for row in told["results"] if row["quantity"] == "message_rate"]
    assert {(row["variant"], row["treatment"]) for row in rates} == {
        (f"{name}/udp4", how) for name in dds for how in ("reliable", "best-effort")
    }
    assert all(row["value"] > 0 and 0 <= row["lost"] <= 1 for row in rates)


def test_a_first_message_is_taken_apart(sonde, dds):
    told = run_of(sonde, dds[:1], "first-message", samples=3)
    (first, *_) = (lesson for lesson in told["lessons"] if lesson["code"] == "bus.first_message")
    evidence = first["evidence"]
    assert evidence["value_s"] > 0
    assert evidence["usual_s"] > 0
    assert {part["treatment"] for part in evidence["parts"]} >= {"pause", "prefaulted"}
    assert all(part["judged"] in ("most", "part", "none", "worse", "unclear") for part in evidence["parts"])


def test_calls_are_all_answered(sonde, dds):
    told = run_of(sonde, dds, "calls", "--clients", "1,4", "--calls", "20", samples=40)
    calls = [row for row in told["results"] if row["quantity"] == "rtt"]
    assert {(row["variant"], row["n"]) for row in calls} == {(f"{d}/udp4", n) for d in dds for n in (1, 4)}
    assert all(row["lost"] in (0, None) for row in calls)
    wrong = [row for row in told["results"] if row["quantity"] == "mismatched"]
    assert all(row["value"] == 0 for row in wrong)


def test_partitions_and_topics_are_compared(sonde, dds):
    told = run_of(sonde, dds, "partitions", "--groups", "2", samples=40)
    found = {row["treatment"] for row in told["results"] if row["quantity"] == "publish"}
    assert found == {"topic", "partition", "wildcard", "domain"}


def test_a_dry_run_starts_nothing(typed):
    told = typed("bus", "run", "all", "--budget", "60s", "--dry-run", "--json").expect(0).json
    assert any(case.startswith("discovery:") for case in told["cases"])
    assert {"cyclonedds/udp4", "raw/udp4"} <= set(told["variants"])
    assert run_probe.PROBE in told["command"]
    assert list(typed.cwd.iterdir()) == []


class TestRefused:
    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            (("latncy",), 2, "latency"),
            (("latency", "--variants", "cyclondds"), 2, "cyclonedds"),
            (("discovery", "--participants", "500"), 2, "119"),
            (("latency", "--sizes", "1GiB"), 2, "32 MiB"),
            (("latency", "--variants", "raw/udp4"), 2, "cyclonedds/udp4"),
        ],
    )
    def test_what_is_not_understood_says_what_is_allowed(self, typed, words, code, said):
        ran = typed("bus", "run", *words).expect(code)
        assert said in ran.said
        assert list(typed.cwd.iterdir()) == []

    def test_an_implementation_that_is_not_there_names_what_to_install(self, typed):
        # What a module needs is not found in a folder without it: as if it had not been built.
        ran = typed("bus", "run", "latency", "--variants", "x=otherdds", "--json").expect(3)
        assert "no implementation" in ran.json["error"]["what"]
        assert list(typed.cwd.iterdir()) == []

    def test_advice_needs_a_run(self, typed):
        ran = typed("bus", "advise", "--local").expect(3)
        assert "sonde bus run" in ran.said


class TestEndings:
    def test_ctrl_c_saves_what_there_is(self, sonde, dds):
        started = sonde.start(
            "bus", "run", "latency", "--sizes", "64", "--variants", dds[0], *ENDLESS, "-o", "a.nc"
        )
        assert wait_for(lambda: samples_in(sonde.cwd / "a.run") > 200, 60)
        started.send_signal(signal.SIGINT)
        finish(started).expect(130)
        with library.open(sonde.cwd / "a.nc") as tree:
            assert tree.attrs["stop_reason"] == "interrupted"
            assert int(tree["raw/n"].values.sum()) > 200
        assert sonde.left() == []

    def test_after_a_kill_nothing_stays_but_the_samples(self, sonde, dds):
        started = sonde.start(
            "bus", "run", "latency", "--sizes", "64", "--variants", dds[0], *ENDLESS, "-o", "a.nc"
        )
        assert wait_for(lambda: samples_in(sonde.cwd / "a.run") > 200, 60)
        os.kill(started.pid, signal.SIGKILL)
        started.communicate()
        assert sonde.left() == []
        sonde("data", "recover", "a.run").expect(4)  # it was killed, and so is not whole
        with library.open(sonde.cwd / "a.nc") as tree:
            assert tree.attrs["stop_reason"] == "killed"
        assert not Path(sonde.cwd / "a.run").exists()

    def test_a_kill_leaves_no_program_and_no_shared_memory(self, sonde, dds):
        variants = f"{dds[0]},fastdds/shm" if "fastdds" in dds else dds[0]
        words = ("latency", "discovery", "--sizes", "64", "--participants", "12", "--steady", "1s")
        started = sonde.start("bus", "run", *words, "--variants", variants, *ENDLESS, "-o", "a.nc")

        def under_way():
            return len(sonde.processes()) > 12 and (sonde.shm or "fastdds" not in dds)

        assert wait_for(under_way, 90)
        os.kill(started.pid, signal.SIGKILL)
        started.communicate()
        assert sonde.left() == []


def test_who_is_on_a_bus(sonde, dds):
    told = (
        sonde("bus", "ls", "--variant", dds[0], "--domain", "77", "--seconds", "1s", "--json").expect(0).json
    )
    assert (told["domain"], told["implementation"]) == (77, dds[0])
    assert isinstance(told["participants"], list)


def test_the_doctor_tells_of_it(sonde, dds):
    told = sonde("doctor", "--json").expect(0).json
    (room,) = (room for room in told["rooms"] if room["room"] == "bus")
    assert room["built"]
    assert set(told["checks"]["bus"]["implementations"]) == set(dds)

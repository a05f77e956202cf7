"""The probe's parent: what it asks, what it makes of the answers, and what stays when there is nothing to measure."""

from __future__ import annotations

import sys
import time

import pytest

from sonde.bus import run_probe
from sonde.bus.cases import Case
from sonde.bus.plan import Host, Plan
from sonde.bus.variants import read_variant, variant_of
from sonde.core.errors import EnvironmentFailure, SondeError, UsageError
from sonde.core.events import NullProgress
from sonde.core.launch import start

# A probe that prints the lines below its own words, and ends as told.
SAYS = """
import json, sys
for event in {events!r}:
    print(json.dumps(event), flush=True)
sys.exit({status})
"""
ABSENT = {
    "event": "warning",
    "code": "bus.variant_absent",
    "variant": "cyclonedds/udp4",
    "evidence": "cyclonedds/udp4: the implementation cyclonedds is not in this build",
    "hint": "install it (apt install cyclonedds-dev)",
}
START = {"event": "start", "cycles_per_s": 1e9, "instructions": "counted", "clock_cost_s": 1e-8}


@pytest.fixture
def probe(tmp_path, monkeypatch):
    """probe(events, status): what is started instead of sonde-busprobe."""

    def use(*events, status=0):
        path = tmp_path / "libexec" / run_probe.PROBE
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!{sys.executable}\n{SAYS.format(events=events, status=status)}")
        path.chmod(0o755)
        monkeypatch.setattr(run_probe, "program", lambda: path)
        monkeypatch.setattr(start, "libexec", lambda: path.parent)
        return path

    return use


def plan(*names):
    return Plan(tuple(read_variant(name) for name in names), (Case("latency", 64),))


class TestAsking:
    def test_an_error_is_raised_as_it_was_told(self, probe):
        probe({"event": "error", "code": "bus.bad_option", "what": "no", "hint": "try"}, status=2)
        with pytest.raises(UsageError) as caught:
            run_probe.check(plan("cyclonedds"))
        assert (caught.value.code, caught.value.hint) == ("bus.bad_option", "try")

    def test_a_probe_that_dies_without_a_word_is_an_error(self, probe):
        probe(status=9)
        with pytest.raises(EnvironmentFailure) as caught:
            run_probe.check(plan("cyclonedds"))
        assert caught.value.code == "bus.probe_died"
        assert "status 9" in caught.value.what

    def test_what_was_named_and_is_not_there_says_what_to_install(self, probe):
        probe(ABSENT, status=3)
        with pytest.raises(EnvironmentFailure) as caught:
            run_probe.require(plan("cyclonedds"))
        assert caught.value.code == "bus.no_implementation"
        assert "cyclonedds-dev" in caught.value.hint

    def test_where_another_is_there_it_can_go_on(self, probe):
        probe(ABSENT, {"event": "variant", "name": "fastdds/udp4", "implementation": "fastdds"}, status=3)
        run_probe.require(plan("cyclonedds", "fastdds"))

    def test_what_nobody_named_is_not_asked_for(self, probe):
        probe(status=9)
        run_probe.require(Plan((variant_of("cyclonedds", "udp4"),), (Case("latency", 64),)))

    def test_who_is_there(self, probe):
        told = {"domain": 3, "implementation": "cyclonedds", "participants": [], "endpoints": []}
        probe(told)
        assert run_probe.participants("", 3, 0.1) == told

    def test_an_absent_build(self, monkeypatch, tmp_path):
        monkeypatch.setattr(run_probe.launch, "libexec", lambda: tmp_path)
        with pytest.raises(EnvironmentFailure) as caught:
            run_probe.program()
        assert caught.value.code == "bus.not_built"


class TestMeasuring:
    def measure(self, tmp_path, which):
        request = run_probe.Request(which, tmp_path / "a.nc", ("sonde", "bus", "run"), 5.0, time.monotonic())
        return run_probe.measure(request, NullProgress())

    def test_without_any_bus_nothing_is_left(self, probe, tmp_path):
        probe(START, ABSENT)
        with pytest.raises(EnvironmentFailure) as caught:
            self.measure(tmp_path, plan("cyclonedds"))
        assert caught.value.code == "bus.no_implementation"
        assert not (tmp_path / "a.run").exists()
        assert not (tmp_path / "a.nc").exists()

    def test_an_error_of_the_probe_is_the_error(self, probe, tmp_path):
        probe(START, {"event": "error", "code": "bus.open", "what": "no socket", "hint": "see it"}, status=3)
        with pytest.raises(SondeError) as caught:
            self.measure(tmp_path, plan("cyclonedds"))
        assert caught.value.code == "bus.open"
        assert not (tmp_path / "a.run").exists()


class TestListener:
    def test_a_start_without_mpi_is_taken(self):
        listener = run_probe.Listener(NullProgress())
        listener.take(START | {"namespace": "own"})
        assert listener.attrs["counters_of"] == "own"
        assert "mpi_library" not in listener.attrs

    def test_a_flood_of_failures_is_counted(self):
        listener = run_probe.Listener(NullProgress())
        for k in range(20):
            listener.take({"event": "warning", "code": "bus.case_failed", "evidence": f"{k}", "hint": ""})
        listener.take({"event": "end", "stop_reason": "budget", "samples": 0, "elapsed_s": 1.0, "dropped": 0})
        assert len(listener.warnings) == run_probe.MOST_FAILED + 1
        assert "12 more" in listener.warnings[-1].evidence

    def test_hosts_are_counted_by_what_they_call_themselves(self):
        def told(*machines):
            listener = run_probe.Listener(NullProgress())
            for name, machine in machines:
                listener.take(
                    {"event": "host", "name": name, "host": machine, "address": f"10.0.0.{name[-1]}"}
                )
            listener.take({"event": "variant", "name": "cyclonedds/udp4"})
            return listener

        two = told(("n1", "a"), ("n2", "b"))
        assert two.attrs["hosts"] == 2
        assert two.attrs["host_addresses"] == "n1 10.0.0.1, n2 10.0.0.2"
        assert not two.warnings
        one = told(("n1", "a"), ("n2", "a"))
        assert one.attrs["hosts"] == 1
        assert one.warnings[0].code == "bus.one_machine"


class TestHosts:
    def test_this_machine_needs_no_words(self):
        hosts, launcher = run_probe.hosts_of("local", ["localhost", "127.0.0.1:4"])
        assert hosts == (Host("localhost"), Host("127.0.0.1"))
        assert launcher == "local"
        assert run_probe.hosts_of("auto", []) == ((), "local")

    def test_another_machine_is_not_for_the_launcher_of_this_one(self):
        with pytest.raises(UsageError) as caught:
            run_probe.hosts_of("local", ["n1", "n2"])
        assert caught.value.code == "launch.local_hosts"


def test_the_newest_dataset_is_taken_by_its_name(tmp_path):
    for name in ("bus-a-20260101T000000Z-0000.nc", "bus-a-20260301T000000Z-0000.nc", "net.nc", "bus.nc"):
        (tmp_path / name).touch()
    found = run_probe.newest(tmp_path)
    assert found is not None
    assert found.name == "bus-a-20260301T000000Z-0000.nc"
    assert run_probe.newest(tmp_path / "nowhere") is None

"""The osnoise tracer, on a folder that looks like the kernel's: what is written there, and that it is set back."""

from __future__ import annotations

from pathlib import Path

import pytest

from sonde.core import tracefs
from sonde.noise.host.run_osnoise import EVENTS, Osnoise, absent, totals

TRACE = """# tracer: osnoise
     osnoise/0-900     [000] d.h.  100.001: irq_noise: local_timer:236 start 100.000999 duration 2000 ns
     osnoise/0-900     [000] d.h.  100.005: irq_noise: local_timer:236 start 100.004999 duration 3000 ns
     osnoise/0-900     [000] ..s.  100.006: softirq_noise: TIMER:1 start 100.005 duration 1500 ns
     osnoise/0-900     [001] d...  100.007: thread_noise: collectd:4711 start 100.006 duration 70000 ns
     osnoise/0-900     [000] d...  100.008: nmi_noise: start 100.008 duration 900 ns
     something else altogether
"""


@pytest.fixture
def tracing(tmp_path) -> Path:
    (tmp_path / "available_tracers").write_text("hwlat osnoise function nop\n")
    (tmp_path / "osnoise").mkdir()
    (tmp_path / "osnoise" / "options").write_text("NO_PANIC_ON_STOP OSNOISE_WORKLOAD\n")
    instance = own(tmp_path)  # the kernel fills an instance as it is made
    for event in EVENTS:
        (instance / "events" / "osnoise" / event).mkdir(parents=True)
    (instance / "trace").write_text(TRACE)
    return tmp_path


def own(tracing: Path) -> Path:
    return tracing / "instances" / f"sonde-{tracefs.mark()}-osnoise-workload"


def test_starts_without_workload_sums_and_sets_back(tracing):
    tracer = Osnoise(tracing)
    assert tracer.start()
    instance = own(tracing)
    assert (instance / "current_tracer").read_text() == "osnoise"
    assert (tracing / "osnoise" / "options").read_text() == "NO_OSNOISE_WORKLOAD"
    assert all((instance / "events" / "osnoise" / event / "enable").read_text() == "1" for event in EVENTS)
    found = tracer.stop([0, 1])
    assert [(one["cpu"], one["kind"], one["name"], one["count"]) for one in found] == [
        (1, "thread", "collectd", 1),
        (0, "irq", "local_timer", 2),
        (0, "softirq", "TIMER", 1),
        (0, "nmi", "nmi", 1),
    ]
    assert found[1]["total_s"] == pytest.approx(5e-6)
    assert (instance / "current_tracer").read_text() == "nop"
    assert (instance / "tracing_on").read_text() == "0"
    assert (tracing / "osnoise" / "options").read_text() == "OSNOISE_WORKLOAD"


def test_other_cpus_are_left_out():
    assert {one["cpu"] for one in totals(TRACE.splitlines(), [0])} == {0}
    assert totals([], [0]) == []


def test_why_it_cannot_be_used(tmp_path, tracing):
    assert "there is no" in absent(tmp_path / "none")
    (tracing / "available_tracers").write_text("function nop\n")
    assert "without the osnoise tracer" in absent(tracing)
    (tracing / "available_tracers").write_text("osnoise nop\n")
    assert absent(tracing) == ""
    (tracing / "osnoise" / "options").unlink()
    assert "5.18" in absent(tracing)


def test_an_instance_that_cannot_be_made_is_reported_and_undone(tracing):
    instance = own(tracing)
    (instance / "current_tracer").mkdir()  # cannot be written
    tracer = Osnoise(tracing)
    assert not tracer.start()
    assert "cannot be started" in tracer.why_not
    assert (tracing / "osnoise" / "options").read_text() == "OSNOISE_WORKLOAD"
    assert tracer.stop([0]) == []

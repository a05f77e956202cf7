"""Modules that a command need not load: scipy.stats alone takes most of a second of a processor."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "modules",
    [
        "sonde.io.record.run_trace, sonde.io.trace.analyse, sonde.io.trace.verdict, sonde.io.trace.whatif_verdict",
        "sonde.store.analyse, sonde.store.verdict, sonde.store.limits",
        "sonde.bus.analyse, sonde.bus.verdict, sonde.bus.limits",
        "sonde.noise.detector.analyse, sonde.noise.detector.verdict, sonde.noise.host.analyse",
        "sonde.power.recording.analyse, sonde.power.recording.verdict",
    ],
)
def test_a_run_and_its_verdict_load_no_scipy(modules: str) -> None:
    told = f"import sys, {modules}; print([name for name in sys.modules if name.startswith('scipy')])"
    ran = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"

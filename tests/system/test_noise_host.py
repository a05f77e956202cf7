"""The host view on real cores. What it finds depends on the machine; that it agrees with itself does not."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

import sonde as library
from sonde.core.blocks import BlockFile
from sonde.core.errors import SondeError
from sonde_shell import finish
from watching import wait_for


def windows(path) -> int:
    """Windows that are on the disk already."""
    try:
        return BlockFile(path).records
    except SondeError:
        return 0


def test_both_methods_on_all_cores(sonde, typed):
    ran = sonde("noise", "host", "--budget", "3s", "--method", "both", "-o", "a.nc", "--json").expect(0)
    allowed = sorted(os.sched_getaffinity(0))
    assert [core["cpu"] for core in ran.json["cores"]] == allowed
    assert " of its time" in ran.json["verdict"]
    with library.open(sonde.cwd / "a.nc") as tree:
        assert tree.attrs["kind"] == "host"
        raw = tree["raw"].to_dataset().load()
        summary = tree["summary"].to_dataset().load()
    for row in range(len(allowed)):
        n, w = int(raw["detour_n"][row]), int(raw["window_n"][row])
        assert w > 1
        assert set(raw["window_method"].values[row, :w].tolist()) == {0, 1}
        begin, end = raw["window_begin"].values[row, :w], raw["window_end"].values[row, :w]
        assert (end > begin).all()
        assert (begin[1:] >= end[:-1] - 1e-6).all()
        lengths = raw["detour_length"].values[row, :n]
        assert (lengths > raw["threshold"].values[row] * 0.99).all()
        by_loop = raw["window_method"].values[row, :w] == 0
        assert raw["window_gaps"].values[row, :w][by_loop].sum() == n
        np.testing.assert_allclose(raw["window_lost"].values[row, :w].sum(), lengths.sum(), rtol=1e-6)
        # A detour lies in its window, but for the end of the last one; the anchor's own cost is below 10 µs.
        which = np.searchsorted(begin, raw["detour_begin"].values[row, :n] + 1e-5, side="right") - 1
        assert (which >= 0).all()
        assert by_loop[which].all()
        assert 0 <= float(summary["share"][row]) < 1
        assert float(summary["fwq_least"][row]) > 0
        assert (raw["counters"].values[row, :w] >= 0).all()
    typed("data", "validate", "a.nc").expect(0)
    assert sonde.left() == []
    assert [path.name for path in sonde.cwd.iterdir()] == ["a.nc"]


def test_one_core_with_a_threshold(sonde):
    cpu = min(os.sched_getaffinity(0))
    ran = sonde(
        "noise", "host", "--cpus", cpu, "--budget", "2s", "--threshold", "50us", "-o", "a.nc", "--json"
    ).expect(0)
    (core,) = ran.json["cores"]
    assert core["threshold"] == pytest.approx(50e-6)
    with library.open(sonde.cwd / "a.nc") as tree:
        raw = tree["raw"].to_dataset().load()
    assert (raw["detour_length"].values[0, : int(raw["detour_n"][0])] > 49e-6).all()


def test_ctrl_c_saves(sonde):
    process = sonde.start("noise", "host", "--budget", "5min", "-o", "a.nc", "--json")
    cpu = min(os.sched_getaffinity(0))
    assert wait_for(lambda: windows(sonde.cwd / "a.run" / f"window-{cpu:05d}.blk") > 0)
    process.send_signal(signal.SIGINT)
    ran = finish(process).expect(130)
    assert ran.json["verdict"].startswith("interrupted: ")
    assert ran.json["cores"][0]["observed"] > 0
    assert sonde.left() == []
    assert [path.name for path in sonde.cwd.iterdir()] == ["a.nc"]


def test_killed_it_is_recovered(sonde, typed):
    process = sonde.start("noise", "host", "--budget", "5min", "-o", "a.nc")
    cpu = min(os.sched_getaffinity(0))
    assert wait_for(lambda: windows(sonde.cwd / "a.run" / f"window-{cpu:05d}.blk") > 0)
    process.kill()
    process.communicate()
    assert sonde.left() == []
    typed("data", "recover", "a.run", "-o", "a.nc").expect(4)
    with library.open(sonde.cwd / "a.nc") as tree:
        assert float(tree["summary"]["observed"][0]) > 0


def test_dry_run_does_nothing(typed):
    ran = typed("noise", "host", "--dry-run", "--json").expect(0)
    assert "sonde-detour" in ran.json["commands"][0][0]
    assert list(typed.cwd.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--cpus", "99999"), ("CPU 99999", "may use")),
        (("--cpus", "x"), ("--cpus", "0,2-5")),
        (("--cpus", "3-1"), ("'3-1'",)),
        (("--threshold", "5"), ("--threshold", "5us")),
        (("--method", "magic"), ("magic",)),
        (("--budget", "0s"), ("--budget",)),
    ],
)
def test_nonsense_is_told_and_nothing_is_started(typed, words, parts):
    ran = typed("noise", "host", "-o", "a.nc", *words).expect(2)
    for part in parts:
        assert part in ran.said
    assert list(typed.cwd.iterdir()) == []


def test_a_core_that_affinity_forbids_is_refused(typed):
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("one core only")
    try:
        os.sched_setaffinity(0, {allowed[0]})  # inherited by what is started
        ran = typed("noise", "host", "--cpus", allowed[1], "-o", "a.nc").expect(2)
    finally:
        os.sched_setaffinity(0, allowed)
    assert f"CPU {allowed[1]} cannot be used; this process may use: {allowed[0]}" in ran.said

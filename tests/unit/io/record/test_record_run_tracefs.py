"""What is left of a Sonde that was killed, and whose a mount is, without a kernel."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sonde.core import tracefs
from sonde.core.errors import EnvironmentFailure
from sonde.io.record import run_tracefs

PLACE = Path("/sys/kernel/tracing")


def test_without_root_it_is_refused(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(EnvironmentFailure) as told, run_tracefs.instance_of_ours():
        pass
    assert told.value.code == "io.no_root"


@pytest.mark.parametrize(
    ("mounts", "ours"),
    [
        ("", False),
        ("tracefs /sys/kernel/tracing tracefs rw 0 0\n", False),
        ("sonde /sys/kernel/tracing tracefs rw 0 0\n", True),
        ("sonde /sys/kernel/tracing tracefs rw 0 0\ntracefs /sys/kernel/tracing tracefs rw 0 0\n", False),
        ("tracefs /sys/kernel/tracing tracefs rw 0 0\nsonde /sys/kernel/tracing tracefs rw 0 0\n", True),
        ("sonde /sys/kernel/debug/tracing tracefs rw 0 0\n", False),
    ],
)
def test_a_mount_is_sonde_s_where_its_uppermost_says_so(mounts, ours):
    assert run_tracefs.is_mounted_by_sonde(PLACE, f"sysfs /sys sysfs rw 0 0\n{mounts}") is ours


def test_what_is_left_is_of_processes_that_are_gone(tmp_path):
    mine = tracefs.mark()
    earlier = f"{os.getpid()}_1"  # of a process that had this one's number
    osnoise = [f"sonde-{mine}-osnoise", f"sonde-{earlier}-osnoise", f"sonde-{earlier}-osnoise-workload"]
    for name in (f"sonde-{mine}", f"sonde-{earlier}", "sonde-nobody", "perf", *osnoise):
        (tmp_path / "instances" / name).mkdir(parents=True)
    group = "sonde_io_{0}/e0_{0} /usr/bin/true:0x10 arg=%di:u64"
    lines = [
        "p:" + group.format(mine),
        "p:" + group.format(earlier),
        "r:" + group.format(earlier),
        "p:other/x /a:0x1",
    ]
    (tmp_path / "uprobe_events").write_text("".join(f"{line}\n" for line in lines))
    assert run_tracefs.left_over(tmp_path) == [
        f"sonde-{earlier}",
        *osnoise[1:],
        f"sonde_io_{earlier}",
    ]


@pytest.mark.parametrize("times", [0, 3])
def test_an_instance_that_somebody_reads_in_is_removed_when_he_has_done(tmp_path, monkeypatch, times):
    """Where `events/enable` is a file, as in tracefs, whose files go with their folder."""
    instance = tmp_path / "sonde-1_1"
    (instance / "events").mkdir(parents=True)
    tries, rmdir = [], Path.rmdir

    def busy(path: Path) -> None:
        tries.append(path)
        if len(tries) <= times:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        (instance / "events" / "enable").unlink()
        rmdir(instance / "events")
        rmdir(path)

    monkeypatch.setattr(Path, "rmdir", busy)
    run_tracefs._remove(instance)
    assert not instance.exists()
    assert len(tries) == times + 1

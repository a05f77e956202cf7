"""The processor time that other programs take."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from sonde.survey import others
from sonde.survey.others import Sample

WORK = "sum(range(5_000_000))"  # of which the kernel takes nothing


def stat(path, ticks: list[int]) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    lines = ["cpu  1 2 3 4 5 6 7 8 9 10"]
    lines += [f"cpu{cpu} {' '.join(map(str, ticks))}" for cpu in cpus]
    path.write_text("\n".join([*lines, "cpu99999 9 9 9 9", "intr 1", ""]))


def test_what_is_counted(tmp_path):
    stat(tmp_path / "stat", [100, 10, 50, 9999, 9999, 9999, 9999, 40, 9999])
    got = others.sample(tmp_path / "stat")
    assert got is not None
    cpus = len(os.sched_getaffinity(0))
    assert got.processors == cpus
    assert got.all_s == pytest.approx(cpus * 150 / os.sysconf("SC_CLK_TCK"))


@pytest.mark.parametrize("text", ["", "cpu 1 2 3", "cpu0 a b c d e f g h"])
def test_what_the_kernel_does_not_say_is_not_known(tmp_path, text):
    (tmp_path / "stat").write_text(text)
    assert others.sample(tmp_path / "stat") is None
    assert others.sample(tmp_path / "none") is None
    assert others.share(None, others.sample()) == 0


def test_the_share_of_others():
    before = Sample(10.0, 100.0, 5.0, 2)
    assert others.share(before, Sample(20.0, 110.0, 10.0, 2)) == pytest.approx(5 / 20)
    assert others.share(before, Sample(20.0, 105.0, 10.1, 2)) == 0, "clocks differ by a tick"
    assert others.share(before, Sample(10.0, 100.0, 5.0, 2)) == 0


def test_a_child_of_ours_is_nobody_else():
    before = others.sample()
    subprocess.run([sys.executable, "-c", WORK], check=True)
    after = others.sample()
    assert before is not None
    assert after is not None
    assert after.own_s > before.own_s
    assert time.monotonic() >= after.at_s

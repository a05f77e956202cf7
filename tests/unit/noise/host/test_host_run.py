"""Who else ran: /proc as a folder that is known."""

from __future__ import annotations

import os

import pytest

from sonde.noise.host.run import threads, used

HZ = os.sysconf("SC_CLK_TCK")


def task(root, pid: int, tid: int, name: str, cpu: int, ticks: int, schedstat: str | None = None) -> None:
    folder = root / str(pid) / "task" / str(tid)
    folder.mkdir(parents=True)
    fields = ["S", *["0"] * 10, str(ticks), "0", *["0"] * 23, str(cpu), *["0"] * 10]
    (folder / "stat").write_text(f"{tid} ({name}) {' '.join(fields)}\n")
    if schedstat is not None:
        (folder / "schedstat").write_text(schedstat)


def test_threads_of_all_processes_with_their_time_in_ns_where_it_is_told(tmp_path):
    task(tmp_path, 10, 10, "agent", 1, 5, "123456789 5 6\n")
    task(tmp_path, 10, 11, "agent:io (x)", 0, HZ)
    (tmp_path / "self").mkdir()
    (tmp_path / "20" / "task" / "20").mkdir(parents=True)  # it ended while it was looked at
    found = threads(tmp_path)
    assert found == {(10, 10): ("agent", 1, pytest.approx(0.123456789)), (10, 11): ("agent:io (x)", 0, 1.0)}
    assert threads(tmp_path / "none") == {}


def test_time_used_is_summed_by_process_and_cpu_without_the_measuring_threads():
    before = {(1, 1): ("a", 0, 1.0), (2, 2): ("b", 0, 5.0), (3, 3): ("sonde-detour", 0, 0.0)}
    after = {
        (1, 1): ("a", 0, 1.5),
        (1, 4): ("a-worker", 0, 0.25),  # new
        (2, 2): ("b", 0, 5.0),  # did nothing
        (3, 3): ("sonde-detour", 0, 9.0),
        (5, 5): ("c", 1, 2.0),
        (6, 6): ("elsewhere", 7, 2.0),
    }
    assert used(before, after, [0, 1]) == [
        {"pid": 5, "cpu": 1, "name": "c", "cpu_s": 2.0},
        {"pid": 1, "cpu": 0, "name": "a", "cpu_s": 0.75},
    ]

"""What a place does alone: by fio's own words, by the plain loop, and that nothing stays behind."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess

import pytest

from sonde.core.errors import EnvironmentFailure
from sonde.io.study import run_limits

# As fio 3.33 prints with --output-format=json, shortened; fio says such notes in front.
FIO = """note: both iodepth >= 1 and synchronous I/O engine are selected, queue depth will be capped at 1
{"fio version": "fio-3.33", "jobs": [{"jobname": "sonde", "error": 0,
  "read": {"io_bytes": 0, "bw_bytes": 0, "bw": 0, "runtime": 0},
  "write": {"io_bytes": 67108864, "bw_bytes": 524288000, "bw": 512000, "runtime": 128}}]}
"""


def test_what_fio_says():
    assert run_limits.parse_fio(FIO, "write") == run_limits.FioResult(524288000.0, 64 << 20, 0.128)
    assert run_limits.parse_fio(FIO, "read") == run_limits.FioResult(0.0, 0, 0.0)


def fio_that_takes(monkeypatch, runtime_ms):
    """A fio that says so, and moved all. Returns the command lines that it was started with."""
    lines = []

    def run(words, **_):
        lines.append(words)
        what = next(word.removeprefix("--rw=") for word in words if word.startswith("--rw="))
        size, writers = (
            int(next(word.partition("=")[2] for word in words if word.startswith(f"--{name}=")))
            for name in ("size", "numjobs")
        )
        moved = {"io_bytes": size * writers, "bw_bytes": 1 << 30, "runtime": runtime_ms}
        return subprocess.CompletedProcess(words, 0, json.dumps({"jobs": [{what: moved}]}), "")

    monkeypatch.setattr(run_limits.shutil, "which", lambda name: name)
    monkeypatch.setattr(run_limits.subprocess, "run", run)
    return lines


def test_a_disk_is_not_measured_with_what_it_moves_in_no_time(tmp_path, monkeypatch):
    lines = fio_that_takes(monkeypatch, 300)
    found = run_limits.disk(tmp_path, 2)
    assert [limit.by for limit in found] == [run_limits.FIO] * 2
    for line in lines:
        assert f"--size={run_limits.MOST_BYTES // 2}" in line
        assert "--runtime=1" in line


def test_what_fio_cannot_time_the_plain_loop_does(tmp_path, monkeypatch):
    fio_that_takes(monkeypatch, 3)
    monkeypatch.setattr(run_limits, "MOST_BYTES", 4 << 20)
    found = run_limits.disk(tmp_path, 2)
    assert run_limits.FIO not in {limit.by for limit in found}
    assert all(limit.rate > 0 for limit in found)


def test_of_a_small_file_system_some_is_left_free(tmp_path, monkeypatch):
    lines = fio_that_takes(monkeypatch, 300)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(
        run_limits.shutil, "disk_usage", lambda place: usage._replace(free=run_limits.ROOM + (8 << 20))
    )
    run_limits.disk(tmp_path, 2)
    assert f"--size={4 << 20}" in lines[0]


def test_the_plain_loop_moves_what_it_was_told(tmp_path, monkeypatch):
    monkeypatch.setattr(run_limits.shutil, "which", lambda name: None)
    moved = []
    real = os.pwrite

    def counted(descriptor, data, at):
        moved.append(real(descriptor, data, at))
        return moved[-1]

    monkeypatch.setattr(run_limits.os, "pwrite", counted)
    monkeypatch.setattr(run_limits, "MOST_S", 60.0)
    monkeypatch.setattr(run_limits, "MOST_BYTES", 8 << 20)
    write, read = run_limits.disk(tmp_path, 2)
    assert sum(moved) == 8 << 20
    assert (write.what, read.what) == ("write", "read")
    assert write.by == read.by
    assert write.by in (run_limits.LOOP, run_limits.CACHED)
    assert write.rate > 0 < read.rate
    assert list(tmp_path.iterdir()) == []


def test_where_direct_io_is_refused_the_cache_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(run_limits.shutil, "which", lambda name: None)
    real = os.open

    def refuses(path, flags, *mode, **more):
        if flags & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return real(path, flags, *mode, **more)

    monkeypatch.setattr(run_limits.os, "open", refuses)
    monkeypatch.setattr(run_limits, "MOST_BYTES", 4 << 20)
    assert {limit.by for limit in run_limits.disk(tmp_path, 2)} == {run_limits.CACHED}


def test_a_place_that_is_gone_is_reported(tmp_path):
    with pytest.raises(EnvironmentFailure) as caught:
        run_limits.disk(tmp_path / "gone", 1)
    assert caught.value.code == "core.cannot_write"
    assert "--no-limits" in caught.value.hint


def test_what_a_killed_study_left_in_a_place_goes_and_nothing_else(tmp_path):
    host = socket.gethostname()
    dead = next(pid for pid in range(4_000_000, 4_200_000) if not os.path.exists(f"/proc/{pid}"))
    (tmp_path / f".sonde-study-{host}-{dead}-abc").mkdir()
    (tmp_path / f".sonde-study-{host}-{dead}-abc" / "data").write_text("x")
    kept = [
        f".sonde-study-{host}-{os.getpid()}-abc",
        f".sonde-study-another-host-{dead}-abc",
        ".sonde-study-odd",
        "data",
    ]
    for name in kept:
        (tmp_path / name).mkdir()
    run_limits.sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)
    assert run_limits.prefix("study") == f".sonde-study-{host}-{os.getpid()}-"


def test_a_file_system_has_a_name(tmp_path):
    assert " on " in run_limits.file_system(tmp_path)
    assert run_limits.file_system(tmp_path / "gone") == "unknown"

"""What a place does alone: by fio's own words, by the plain loop, and that nothing stays behind."""

from __future__ import annotations

import os
import socket

import pytest

from sonde.core.errors import EnvironmentFailure
from sonde.io import run_limits

# As fio 3.33 prints with --output-format=json, shortened; fio says such notes in front.
FIO = """note: both iodepth >= 1 and synchronous I/O engine are selected, queue depth will be capped at 1
{"fio version": "fio-3.33", "jobs": [{"jobname": "sonde", "error": 0,
  "read": {"io_bytes": 0, "bw_bytes": 0, "bw": 0},
  "write": {"io_bytes": 67108864, "bw_bytes": 524288000, "bw": 512000}}]}
"""


def test_what_fio_says():
    assert run_limits.fio_rate(FIO, "write") == 524288000
    assert run_limits.fio_rate(FIO, "read") == 0


def test_the_plain_loop_moves_what_it_was_told(tmp_path, monkeypatch):
    monkeypatch.setattr(run_limits.shutil, "which", lambda name: None)
    moved = []
    real = os.pwrite

    def counted(descriptor, data, at):
        moved.append(real(descriptor, data, at))
        return moved[-1]

    monkeypatch.setattr(run_limits.os, "pwrite", counted)
    monkeypatch.setattr(run_limits, "MOST_S", 60.0)
    write, read = run_limits.disk(tmp_path, 2, 8 << 20)
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
    assert {limit.by for limit in run_limits.disk(tmp_path, 2, 4 << 20)} == {run_limits.CACHED}


def test_a_place_that_is_gone_is_told(tmp_path):
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

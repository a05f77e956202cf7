"""Which files are none that a program is traced for."""

from __future__ import annotations

import pytest

from sonde.io.trace.ignored_paths import is_beside


@pytest.mark.parametrize(
    "path",
    [
        "/proc", "/proc/self/maps", "/sys/devices/system/node", "/dev/null", "/etc/hosts", "/usr/share/zoneinfo/UTC",
        "/lib64/ld-linux-x86-64.so.2", "/tmp/ompi.n1.0/pid.7/pmix_dstor_ds12_7/lock", "/dev/shm/vader_segment.n1.0.1",
        "/home/user/lib/libown.so", "/home/user/lib/libown.so.1.2", "/home/user/env/lib/site-packages/numpy/x.pyi",
        "script.py", "/home/user/__pycache__/a.cpython-311.pyc", "/dev/shm/mpich_shar_tmp1",
    ],
)  # fmt: skip
def test_files_of_the_system_of_mpi_and_code(path):
    assert is_beside(path)


@pytest.mark.parametrize(
    ("path", "beside"),
    [
        ("/opt/app/data", False), ("/usr/local/share/x", False), ("/home/user/libown.so", False), ("made.py", False),
        ("/dev/null", True), ("/proc/self/oom_score_adj", True), ("/dev/shm/vader_segment.n1.0.1", True),
        ("/home/user/__pycache__/a.cpython-311.pyc.140283", True), ("/dev/shm/libown.so", False),
    ],
)  # fmt: skip
def test_what_a_program_writes_is_its_own_wherever_it_lies(path, beside):
    assert is_beside(path, written=True) == beside


@pytest.mark.parametrize(
    "path",
    [
        "data", "/home/user/data.h5", "/tmp/data", "/dev/shm/data", "/scratch/etc/x", "/usrdata/x", "/var/tmp/x",
        "run.so_far", "/mnt/lib/x", "/tmp/my.ompi.out", "notes.python",
    ],
)  # fmt: skip
def test_files_that_may_be_anybodys(path):
    assert not is_beside(path)

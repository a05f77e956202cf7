"""A command that fork_server.py forks is the command that a shell starts."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

import fork_server
from sonde_shell import finish


@pytest.mark.parametrize(
    "words",
    [
        ("--version",),
        ("io", "layers", "list", "posix"),
        ("io", "layers", "list", "--json"),
        ("io", "show", "none.nc"),
        ("io", "shwo"),
        ("io", "run", "--layers", "hdf5", "--", "true"),
    ],
    ids=" ".join,
)
def test_it_prints_and_ends_as_a_process_of_its_own_does(sonde, words):
    forked = finish(fork_server.start(words, sonde.cwd, sonde.env))
    assert forked == finish(sonde.start(*words))


def test_it_has_the_folder_environment_and_streams_that_it_was_given(sonde):
    script = 'pwd; echo "$NAME" $COLUMNS; cat; ls /proc/self/fd | grep -c "^.$"; '
    script += 'taskset -pc $$ | sed "s/.*: //"; ps -o sess= $$'
    line = ("io", "run", "-o", "a.nc", "--", "sh", "-c", script)
    env = sonde.env | {"NAME": "ü", "COLUMNS": "71"}
    cpus = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(cpus)})
        forked = fork_server.start(line, sonde.cwd, env, b"given\n" * 50_000)
    finally:
        os.sched_setaffinity(0, cpus)
    assert forked is not None
    out, err = forked.communicate(60)
    assert forked.returncode == 0, err
    told, _, rest = out.partition("given\n" * 50_000)
    assert told.splitlines() == [str(sonde.cwd), "ü 71"]
    # Its three and that of the listing; the tracer's are numbered from 700.
    assert rest.split()[:3] == ["4", str(min(cpus)), str(forked.pid)]


def test_a_signal_that_ends_it_is_its_code(sonde):
    forked = fork_server.start(
        ("io", "run", "-o", "a.nc", "--", "sh", "-c", "echo here; exec sleep 100"), sonde.cwd, sonde.env
    )
    assert forked is not None
    with pytest.raises(subprocess.TimeoutExpired):
        forked.communicate(0.01)
    os.killpg(forked.pid, signal.SIGKILL)
    forked.communicate(60)
    assert forked.returncode == -signal.SIGKILL


@pytest.mark.parametrize("name", ["PYTHONWARNINGS", "LC_ALL", "LD_PRELOAD", "HDF5_USE_FILE_LOCKING"])
def test_what_is_settled_at_the_start_of_python_needs_a_process_of_its_own(sonde, name):
    assert fork_server.start(("--version",), sonde.cwd, sonde.env | {name: ""}) is None

"""Who starts the ranks of what is traced."""

from __future__ import annotations

from pathlib import Path

import pytest

from sonde.core import launch
from sonde.core.errors import UsageError
from sonde.io.record import run_request

HERE = ("./program", "--size", "8")


@pytest.mark.parametrize(
    ("command", "launcher", "ntasks", "hosts", "ranks"),
    [
        (HERE, "auto", None, (), 0),
        (HERE, "local", None, (), 0),
        (HERE, "auto", 3, (), 3),
        (HERE, "srun", 3, (), 3),
        (HERE, "srun", None, (), 5),
        (HERE, "mpirun", None, (), 5),
        (HERE, "auto", None, ("n1",), 5),
        (("srun", "-n", "2", *HERE), "srun", None, (), 0),
        (("env", "A=1", "/usr/bin/mpirun", *HERE), "mpirun", None, (), 0),
        ((), "srun", None, (), 0),
    ],
)
def test_how_many_ranks_are_started(monkeypatch, command, launcher, ntasks, hosts, ranks):
    monkeypatch.setattr(run_request, "default_ntasks", lambda: 5)
    assert run_request.ranks_of(command, launcher, ntasks, hosts) == ranks


@pytest.mark.parametrize(("ntasks", "hosts"), [(2, ()), (None, ("n1",))])
def test_ranks_are_started_once(ntasks, hosts):
    with pytest.raises(UsageError, match="'mpirun' starts its own ranks") as told:
        run_request.ranks_of(("mpirun", *HERE), "auto", ntasks, hosts)
    assert told.value.code == "io.two_launchers"
    with pytest.raises(UsageError, match="need a program"):
        run_request.ranks_of((), "auto", ntasks, hosts)


def test_the_line_is_the_launcher_s(monkeypatch):
    made = []

    class Starts:
        def command(self, *given):
            made.append(given)
            return ["started"]

    monkeypatch.setattr(launch, "launcher", lambda name: {"srun": Starts()}[name])
    request = run_request.Request(HERE, (), Path("a.nc"), 0, (), "srun", 3, ("n1", "n2"))
    assert run_request.with_variables(request, {"A": "1"}) == ["started"]
    assert made == [(list(HERE), ("n1", "n2"), 3, {"A": "1"})]

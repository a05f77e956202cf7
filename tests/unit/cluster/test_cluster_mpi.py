"""What MPIs are told, so that their ranks find each other over the bridge and nowhere else."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from sonde.cluster import mpi, plan
from sonde.core.errors import UsageError
from sonde.core.launch.mpirun import Mpi

OPENMPI = Mpi("openmpi", "Open MPI", "4.1.4", Path("/usr/bin/mpirun.openmpi"))
MPICH = Mpi("mpich", "MPICH", "4.0.2", Path("/usr/bin/mpirun.mpich"))
MADE = plan.plan("test", 3, subnet="10.9.0.0/24")


def pairs(line):
    return list(pairwise(line))


def test_every_launcher_has_the_agent_and_the_network():
    env = mpi.environment(MADE, "/run/x/agent", {"HOME": "/root"})
    assert env["HOME"] == "/root"
    agents = ("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent", "HYDRA_LAUNCHER_EXEC")
    assert {env[name] for name in agents} == {"/run/x/agent"}
    networks = ("OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include", "PRTE_MCA_prte_if_include")
    assert {env[name] for name in networks} == {"10.9.0.0/24"}
    assert env["HYDRA_IFACE"] == env["UCX_NET_DEVICES"] == "eth0"
    assert env["OMPI_MCA_mpi_yield_when_idle"] == "1"


def test_no_batch_system_tells_other_hosts():
    env = mpi.environment(MADE, "/agent", {"SLURM_JOB_ID": "7", "PBS_NODEFILE": "/x", "A": "b"})
    assert "SLURM_JOB_ID" not in env
    assert "PBS_NODEFILE" not in env
    assert env["A"] == "b"


@pytest.mark.parametrize(("found", "flag"), [(OPENMPI, "--host"), (MPICH, "-hosts")])
def test_ranks_are_spread_evenly_and_not_bound(found, flag):
    line = mpi.line(found, ["./program", "-x"], ["test-0", "test-1", "test-2"], 5)
    assert line[0] == str(found.mpirun)
    assert line[-2:] == ["./program", "-x"]
    assert (flag, "test-0:2,test-1:2,test-2:2") in pairs(line)
    assert ("-n", "5") in pairs(line)
    assert {("--bind-to", "none"), ("-bind-to", "none")} & set(pairs(line))


def test_only_mpich_is_reported_which_provider_to_take():
    assert " -genv FI_PROVIDER tcp " in " ".join(mpi.line(MPICH, ["a"], ["test-0"], 1))
    assert "FI_PROVIDER" not in " ".join(mpi.line(OPENMPI, ["a"], ["test-0"], 1))


def test_no_ranks_at_all_are_refused():
    with pytest.raises(UsageError, match="allowed: 1 or more"):
        mpi.line(OPENMPI, ["a"], ["test-0"], 0)

"""MPI across the nodes of a virtual cluster: the settings that its launchers and libraries need. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sonde.cluster.plan import DEVICE, Plan
from sonde.core.launch import Placement
from sonde.core.launch.mpirun import RESOURCE_MANAGER, Mpi, Mpirun

SCRATCH = "/dev/shm"  # each node has its own, which ends with the cluster


def environment(cluster: Plan, agent: str, around: Mapping[str, str]) -> dict[str, str]:
    """Variables of every command in a node, so that any mpirun in it reaches the other nodes.

    agent: the path of the program that `plan.agent` returns as text. around: the environment of the caller. All of it
    stays, except the variables by which a batch system names the hosts.
    """
    environ = {name: value for name, value in around.items() if name not in RESOURCE_MANAGER}
    return environ | _openmpi(cluster, agent) | _prrte(cluster, agent) | _mpich(agent)


def _openmpi(cluster: Plan, agent: str) -> dict[str, str]:
    """Variables for Open MPI 4, and for those parts of Open MPI 5 that are not its launcher."""
    parameters = {
        "plm": "rsh",
        "plm_rsh_agent": agent,
        "oob_tcp_if_include": cluster.subnet,
        "btl_tcp_if_include": cluster.subnet,
        "pml": "ob1",  # a fast network of the host would bypass the bridge
        "btl": "self,vader,tcp",  # Open MPI 5 accepts the old name of its shared memory too
        "mpi_yield_when_idle": "1",  # the nodes share the machine's cores
        "hwloc_base_binding_policy": "none",  # otherwise each node's first rank is bound to the same core
        "orte_tmpdir_base": SCRATCH,
    }
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {f"OMPI_MCA_{name}": value for name, value in parameters.items()} | root


def _prrte(cluster: Plan, agent: str) -> dict[str, str]:
    """Variables for the launcher of Open MPI 5."""
    parameters = {
        "plm": "ssh",
        "plm_ssh_agent": agent,
        "prte_if_include": cluster.subnet,
        "hwloc_default_binding_policy": "none",
        "prte_tmpdir_base": SCRATCH,
    }
    root = {"PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {f"PRTE_MCA_{name}": value for name, value in parameters.items()} | root


def _mpich(agent: str) -> dict[str, str]:
    """Variables for MPICH's launcher, and for the two libraries that MPICH is built on.

    UCX assumes that processes of one pid namespace are neighbours that share memory. Ranks of two nodes are not.
    """
    return {
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": agent,
        "HYDRA_IFACE": DEVICE,
        "HYDRA_RMK": "user",
        "UCX_TLS": "tcp,self",
        "UCX_NET_DEVICES": DEVICE,
        "FI_TCP_IFACE": DEVICE,
    }


class _Across(Mpirun):
    """mpirun for nodes that share the cores of one machine: no rank is bound, and a waiting rank yields its core."""

    def placement(self, hosts: Sequence[str], ntasks: int) -> Placement:
        return Placement("none", True, "the nodes share this machine's cores")


def line(mpi: Mpi, program: Sequence[str], hosts: Sequence[str], ntasks: int) -> list[str]:
    """The command that starts `ntasks` ranks of a program evenly across `hosts`, to be run in one of the nodes.

    UsageError  launch.ntasks.
    """
    # Among libfabric's providers only this one is sure to use the bridge.
    env = {"FI_PROVIDER": "tcp"} if mpi.flavour == "mpich" else {}
    return _Across(found=mpi).command(program, hosts, ntasks, env)

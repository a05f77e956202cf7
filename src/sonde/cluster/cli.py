"""sonde cluster: the commands. Each returns an Outcome; nothing is printed here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from sonde.core.errors import EnvironmentFailure, UsageError, Warning, typed
from sonde.core.options import DURATION, RATE, Whole, common, settings
from sonde.core.outcome import Outcome, Table

if TYPE_CHECKING:
    from sonde.cluster.plan import Plan
    from sonde.cluster.run import Cluster
    from sonde.cluster.run_state import Kept


@click.group()
def group() -> None:
    """Nodes on this machine, each with its own name, address and network; needs root."""


def _name(required: bool = True, text: str = "The cluster's name.") -> Callable[[Any], Any]:
    return click.option("--name", required=required, metavar="NAME", help=text)


@group.command()
@common()
@_name()
@click.option("--nodes", type=Whole(1), default="4", show_default=True, metavar="N", help="How many.")
@click.option(
    "--rate", type=RATE, metavar="RATE", help="Rate of each node's link in each direction, such as 1gbit."
)
@click.option(
    "--delay",
    "delay_s",
    type=DURATION,
    metavar="TIME",
    help="Delay of packets that enter each link, such as 1ms.",
)
@click.option(
    "--prefix", metavar="TEXT", help="Prefix of the host names, before a number; else NAME-0, NAME-1, ..."
)
@click.option(
    "--subnet", default="10.77.0.0/24", show_default=True, metavar="NET", help="Subnet of the nodes."
)
@click.option(
    "--private",
    multiple=True,
    metavar="DIR",
    help="Give each node its own folder at DIR, in memory; may be repeated.",
)
@click.option(
    "--gluster",
    metavar="DIR",
    help="Mount GlusterFS at DIR, with a brick in each node's memory.",
)
def up(
    name: str,
    nodes: int,
    rate: int | None,
    delay_s: float | None,
    prefix: str | None,
    subnet: str,
    private: tuple[str, ...],
    gluster: str | None,
) -> Outcome:
    """Build a cluster of nodes on this machine.

    A bridge connects the nodes in a network of their own. Nothing of the host changes, and the nodes reach neither the
    host nor anything beyond it. They see the host's files and share its processors. The cluster stays until it is
    ended. With --gluster the nodes also have a parallel file system: a volume with the cluster's name.

    \b
    sonde cluster up --name test --nodes 5 --rate 1gbit
    sonde cluster exec --name test --all -- hostname
    sonde cluster down --name test
    """
    from sonde.cluster import plan, run

    cluster = run.Cluster.up(
        name,
        nodes,
        rate=rate,
        delay_s=delay_s or 0.0,
        prefix=prefix,
        subnet=subnet,
        private=private,
        gluster=gluster,
    )
    built = cluster.plan
    return Outcome(
        "cluster",
        "up",
        f"the cluster '{name}' is up: {plan.describe(built)}",
        lines=[
            "Run a command in it, and end it:",
            f"  {typed('sonde', 'cluster', 'exec', '--name', name, '--all', '--', 'hostname')}",
            f"  {typed('sonde', 'cluster', 'down', '--name', name)}",
        ],
        tables=[
            Table(
                "Nodes",
                ("node", "host name", "address"),
                [(str(node), built.hostnames[node], built.addresses[node]) for node in built.nodes],
                right=(0,),
            )
        ],
        values={"cluster": _as_json(built, "up") | {"nodes": [_node(built, node) for node in built.nodes]}},
    )


def _as_json(cluster: Plan, state: str) -> dict[str, Any]:
    return {
        "name": cluster.name,
        "state": state,
        "subnet": cluster.subnet,
        "rate_bit_s": cluster.rate,
        "delay_s": cluster.delay_s,
        "private": list(cluster.private),
        "gluster": cluster.gluster or None,
    }


def _node(cluster: Plan, node: int) -> dict[str, Any]:
    return {"node": node, "host": cluster.hostnames[node], "address": cluster.addresses[node]}


@group.command("exec", context_settings={"allow_interspersed_args": False})
@common("ntasks")
@_name()
@click.option("--node", type=Whole(0), metavar="K", help="Run the command in this node.  [default: 0]")
@click.option("--nodes", metavar="LIST", help="Run the command in these nodes at once: 0,2-3, or host names.")
@click.option("--all", "everywhere", is_flag=True, help="Run the command in all nodes at once.")
@click.argument("command", nargs=-1, required=True, metavar="COMMAND...", type=click.UNPROCESSED)
def exec_(
    name: str,
    node: int | None,
    nodes: str | None,
    everywhere: bool,
    ntasks: int | None,
    command: tuple[str, ...],
) -> Outcome:
    """Run a command in one node, in several at once, or as an MPI job across them.

    In one node the command has the terminal, or reads stdin. In several nodes each line of output begins with the
    host's name. With --ntasks mpirun starts the command in that number of ranks, spread evenly over the nodes, or over
    those of --nodes. The exit code is the command's; with several commands it is the largest.

    \b
    sonde cluster exec --name test --node 2 -- ip addr
    sonde cluster exec --name test --nodes 1-3 -- ping -c 1 test-0
    sonde cluster exec --name test --ntasks 4 -- ./solver input.toml
    """
    from sonde.cluster import plan, run, run_exec

    if sum((node is not None, nodes is not None, everywhere)) > 1:
        raise UsageError(
            "cluster.two_places", "--node, --nodes and --all exclude each other", "give only one of them"
        )
    run.check_here()
    cluster = run.Cluster.find(name)
    text = "all" if everywhere else nodes if nodes is not None else None if node is None else str(node)
    chosen = None if text is None else plan.chosen(cluster.plan, text)
    argv: Sequence[str] = command
    if ntasks is not None:
        hosts = chosen if chosen is not None else list(cluster.plan.nodes)
        argv = _mpirun(cluster, hosts, ntasks, command)
        chosen = hosts[:1]  # where mpirun runs
    one = ntasks is not None or not (everywhere or nodes is not None)
    chosen = [0] if chosen is None else chosen
    say = settings().say
    if one and not settings().json:
        ended = [run_exec.attached(cluster, chosen[0], argv, say)]
    else:
        ended = run_exec.together(cluster, chosen, argv, say, keep=settings().json)
    outcome = Outcome("cluster", "exec", exit=max(end.status for end in ended))
    outcome.values = {
        "command": list(argv),
        "nodes": [
            _node(cluster.plan, end.node) | {"status": end.status, "out": end.out, "err": end.err}
            for end in ended
        ],
    }
    return outcome


def _mpirun(cluster: Cluster, hosts: Sequence[int], ntasks: int, program: Sequence[str]) -> list[str]:
    """The mpirun command that starts a program across nodes. EnvironmentFailure  cluster.no_mpi."""
    from sonde.cluster import mpi
    from sonde.core.launch.mpirun import find_mpi

    try:
        found = find_mpi()
    except EnvironmentFailure as error:
        error.code = "cluster.no_mpi"
        raise
    return mpi.line(found, program, [cluster.hostname(node) for node in hosts], ntasks)


@group.command()
@common()
@_name(required=False, text="Show only this cluster.")
def status(name: str | None) -> Outcome:
    """Show the clusters, the processes in their nodes, and the traffic over their links.

    \b
    sonde cluster status
    sonde cluster status --name test --json
    """
    from sonde.cluster import plan, run, run_state

    if name is not None:
        plan.check_name(name)
        if name not in run_state.names():
            run.Cluster.find(name)  # the error lists the clusters that exist
    shown: list[dict[str, Any]] = []
    outcome = Outcome("cluster", "status", values={"clusters": shown})
    for each in run_state.names() if name is None else [name]:
        stored = run_state.kept_in(run_state.STATE / each)
        if stored is None:
            shown.append({"name": each, "state": "gone"})
        else:
            try:
                shown.append(_seen(stored, outcome))
            except EnvironmentFailure:  # it ended while it was looked at
                shown.append({"name": each, "state": "gone"})
        if shown[-1]["state"] != "up":
            outcome.warnings.append(_left(shown[-1]))
    states = [one["state"] for one in shown]
    outcome.verdict = f"{states.count('up')} of {len(shown)} clusters are up" if shown else "no cluster is up"
    outcome.sound = all(state == "up" for state in states)
    return outcome


def _left(one: dict[str, Any]) -> Warning:
    name = one["name"]
    if one["state"] == "elsewhere":
        return Warning(
            "cluster.elsewhere", f"the cluster '{name}' was built elsewhere; its state is not known here"
        )
    what = {
        "gone": f"the cluster '{name}' has ended, but its folder is still there",
        "building": f"the cluster '{name}' is being built, or its 'up' command was killed",
    }[one["state"]]
    return Warning(f"cluster.{one['state']}", what, typed("sonde", "cluster", "down", "--name", name))


def _seen(stored: Kept, outcome: Outcome) -> dict[str, Any]:
    """A cluster as JSON; its nodes become a table of the outcome."""
    from sonde.cluster import plan, run
    from sonde.core.units import format_size

    built = stored.plan
    one = _as_json(built, stored.state) | {"created_utc": stored.created_utc, "nodes": []}
    if stored.state != "up":
        return one
    cluster = run.Cluster(stored)
    processes = cluster.processes()
    one |= {"keeper": stored.reaper.pid, "outside": processes.get(-1, [])}
    rows = []
    for node in built.nodes:
        counted = cluster.counters(node)
        one["nodes"].append(_node(built, node) | {"processes": processes[node], **vars(counted)})
        rows.append(
            (
                *(str(node), built.hostnames[node], built.addresses[node], str(len(processes[node]))),
                *(format_size(counted.bytes_in), format_size(counted.bytes_out)),
            )
        )
    columns = ("node", "host name", "address", "processes", "in", "out")
    title = f"{built.name}: {plan.describe(built)}, since {stored.created_utc}"
    outcome.tables.append(Table(title, columns, rows, right=(0, 3, 4, 5)))
    return one


@group.command()
@common()
@_name(required=False, text="The cluster to end.")
@click.option("--all-stale", is_flag=True, help="Remove the remains of all clusters that have ended.")
def down(name: str | None, all_stale: bool) -> Outcome:
    """End all processes of a cluster, and remove it.

    Processes get SIGTERM, and SIGKILL after 5 s. Remains of a killed command or a killed reaper are removed too.

    \b
    sonde cluster down --name test
    sonde cluster down --all-stale
    """
    from sonde.cluster import run

    if (name is None) == (not all_stale):
        raise UsageError(
            "cluster.which", "the command names no cluster to end", "give either --name NAME or --all-stale"
        )
    if name is not None:
        was = run.down(name)
        verdict = {
            "ended": f"the cluster '{name}' has ended",
            "removed": f"the remains of the cluster '{name}' were removed",
            "none": f"there is no cluster '{name}': nothing to do",
        }[was]
        return Outcome("cluster", "down", verdict, values={"ended": [name] if was != "none" else []})
    left = run.stale()
    for each in left:
        run.down(each)
    verdict = f"removed the remains of {', '.join(left)}" if left else "no cluster has left remains"
    return Outcome("cluster", "down", verdict, values={"ended": left})

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
    from sonde.cluster.run import Cluster, Kept


@click.group()
def group() -> None:
    """Nodes on this machine, with names, addresses and a network of their own; needs root."""


def _name(required: bool = True, text: str = "The cluster's name.") -> Callable[[Any], Any]:
    return click.option("--name", required=required, metavar="NAME", help=text)


@group.command()
@common()
@_name()
@click.option("--nodes", type=Whole(1), default="4", show_default=True, metavar="N", help="How many.")
@click.option("--rate", type=RATE, metavar="RATE", help="What each node's link carries, each way: 1gbit.")
@click.option(
    "--delay", "delay_s", type=DURATION, metavar="TIME", help="How late is what goes into each link: 1ms."
)
@click.option(
    "--prefix", metavar="TEXT", help="Host names are this and a number, instead of NAME-0, NAME-1, ..."
)
@click.option("--subnet", default="10.77.0.0/24", show_default=True, metavar="NET", help="Their addresses.")
@click.option(
    "--private",
    multiple=True,
    metavar="DIR",
    help="Give each node a folder of its own there, in memory; may be repeated.",
)
@click.option(
    "--gluster",
    metavar="DIR",
    help="Mount GlusterFS there, of a brick in each node's memory.",
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

    A bridge connects them, in a network of its own: nothing of the host's changes, and they reach neither it nor
    what is beyond it. They see the host's files, and share its processors. The cluster stays until it is ended.
    With --gluster they have a parallel file system as well: a volume called as the cluster.

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
    made = cluster.plan
    return Outcome(
        "cluster",
        "up",
        f"the cluster '{name}' is up: {plan.describe(made)}",
        lines=[
            "Run something in it, and end it:",
            f"  {typed('sonde', 'cluster', 'exec', '--name', name, '--all', '--', 'hostname')}",
            f"  {typed('sonde', 'cluster', 'down', '--name', name)}",
        ],
        tables=[
            Table(
                "Nodes",
                ("node", "host name", "address"),
                [(str(node), made.hostnames[node], made.addresses[node]) for node in made.nodes],
                right=(0,),
            )
        ],
        values={"cluster": _as_json(made, "up") | {"nodes": [_node(made, node) for node in made.nodes]}},
    )


def _as_json(made: Plan, state: str) -> dict[str, Any]:
    return {
        "name": made.name,
        "state": state,
        "subnet": made.subnet,
        "rate_bit_s": made.rate,
        "delay_s": made.delay_s,
        "private": list(made.private),
        "gluster": made.gluster or None,
    }


def _node(made: Plan, node: int) -> dict[str, Any]:
    return {"node": node, "host": made.hostnames[node], "address": made.addresses[node]}


@group.command("exec", context_settings={"allow_interspersed_args": False})
@common("ntasks")
@_name()
@click.option("--node", type=Whole(0), metavar="K", help="Run it in this node.  [default: 0]")
@click.option("--nodes", metavar="LIST", help="Run it in these at once: 0,2-3, or host names.")
@click.option("--all", "everywhere", is_flag=True, help="Run it in all at once.")
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

    In one node it has the terminal, or what comes on stdin. In several, each line of what it prints has the host's
    name in front. With --ntasks it is started by mpirun, in as many ranks, spread evenly over the nodes, or over
    those of --nodes. The exit code is the command's; of several the largest.

    \b
    sonde cluster exec --name test --node 2 -- ip addr
    sonde cluster exec --name test --nodes 1-3 -- ping -c 1 test-0
    sonde cluster exec --name test --ntasks 4 -- ./solver input.toml
    """
    from sonde.cluster import plan, run, run_exec

    if sum((node is not None, nodes is not None, everywhere)) > 1:
        raise UsageError(
            "cluster.two_places", "--node, --nodes and --all exclude each other", "give one of them"
        )
    run.check_here()
    cluster = run.Cluster.find(name)
    text = "all" if everywhere else nodes if nodes is not None else None if node is None else str(node)
    chosen = None if text is None else plan.chosen(cluster.plan, text)
    words: Sequence[str] = command
    if ntasks is not None:
        hosts = chosen if chosen is not None else list(cluster.plan.nodes)
        words = _mpirun(cluster, hosts, ntasks, command)
        chosen = hosts[:1]  # where mpirun runs
    one = ntasks is not None or not (everywhere or nodes is not None)
    chosen = [0] if chosen is None else chosen
    say = settings().say
    if one and not settings().json:
        ended = [run_exec.attached(cluster, chosen[0], words, say)]
    else:
        ended = run_exec.together(cluster, chosen, words, say, keep=settings().json)
    outcome = Outcome("cluster", "exec", exit=max(end.status for end in ended))
    outcome.values = {
        "command": list(words),
        "nodes": [
            _node(cluster.plan, end.node) | {"status": end.status, "out": end.out, "err": end.err}
            for end in ended
        ],
    }
    return outcome


def _mpirun(cluster: Cluster, hosts: Sequence[int], ntasks: int, program: Sequence[str]) -> list[str]:
    """The mpirun that starts a program across nodes. EnvironmentFailure  cluster.no_mpi."""
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
@_name(required=False, text="This one only.")
def status(name: str | None) -> Outcome:
    """Which clusters there are, what runs in their nodes, and what went over their links.

    \b
    sonde cluster status
    sonde cluster status --name test --json
    """
    from sonde.cluster import plan, run

    if name is not None:
        plan.check_name(name)
        if name not in run.names():
            run.Cluster.find(name)  # says what there is instead
    told: list[dict[str, Any]] = []
    outcome = Outcome("cluster", "status", values={"clusters": told})
    for each in run.names() if name is None else [name]:
        kept = run.kept_in(run.STATE / each)
        if kept is None:
            told.append({"name": each, "state": "gone"})
        else:
            try:
                told.append(_seen(kept, outcome))
            except EnvironmentFailure:  # it ended while it was looked at
                told.append({"name": each, "state": "gone"})
        if told[-1]["state"] != "up":
            outcome.warnings.append(_left(told[-1]))
    states = [one["state"] for one in told]
    outcome.verdict = (
        f"{states.count('up')} of {len(told)} clusters are up" if told else "there is no cluster here"
    )
    outcome.sound = all(state == "up" for state in states)
    return outcome


def _left(one: dict[str, Any]) -> Warning:
    name = one["name"]
    if one["state"] == "elsewhere":
        return Warning(
            "cluster.elsewhere", f"of the cluster '{name}', built elsewhere, nothing is known here"
        )
    what = {
        "gone": f"the cluster '{name}' has ended, and its folder is left",
        "building": f"the cluster '{name}' is being built, or its 'up' was killed",
    }[one["state"]]
    return Warning(f"cluster.{one['state']}", what, typed("sonde", "cluster", "down", "--name", name))


def _seen(kept: Kept, outcome: Outcome) -> dict[str, Any]:
    """What is told of a cluster; its nodes become a table of the outcome."""
    from sonde.cluster import plan, run
    from sonde.core.units import format_size

    made = kept.plan
    one = _as_json(made, kept.state) | {"created_utc": kept.created_utc, "nodes": []}
    if kept.state != "up":
        return one
    cluster = run.Cluster(kept)
    processes = cluster.processes()
    one |= {"keeper": kept.keeper.pid, "outside": processes.get(-1, [])}
    rows = []
    for node in made.nodes:
        counted = cluster.counters(node)
        one["nodes"].append(_node(made, node) | {"processes": processes[node], **vars(counted)})
        rows.append(
            (
                *(str(node), made.hostnames[node], made.addresses[node], str(len(processes[node]))),
                *(format_size(counted.bytes_in), format_size(counted.bytes_out)),
            )
        )
    columns = ("node", "host name", "address", "processes", "in", "out")
    title = f"{made.name}: {plan.describe(made)}, since {kept.created_utc}"
    outcome.tables.append(Table(title, columns, rows, right=(0, 3, 4, 5)))
    return one


@group.command()
@common()
@_name(required=False, text="The cluster to end.")
@click.option("--all-stale", is_flag=True, help="Remove what is left of all that have ended already.")
def down(name: str | None, all_stale: bool) -> Outcome:
    """End all that runs in a cluster, and remove it.

    Processes get SIGTERM, and SIGKILL after 5 s. What a killed command or a killed keeper left goes, too.

    \b
    sonde cluster down --name test
    sonde cluster down --all-stale
    """
    from sonde.cluster import run

    if (name is None) == (not all_stale):
        raise UsageError(
            "cluster.which", "it is not said which cluster to end", "give either --name NAME or --all-stale"
        )
    if name is not None:
        was = run.down(name)
        verdict = {
            "ended": f"the cluster '{name}' has ended",
            "removed": f"what was left of the cluster '{name}' is removed",
            "none": f"there is no cluster '{name}': nothing was to be done",
        }[was]
        return Outcome("cluster", "down", verdict, values={"ended": [name] if was != "none" else []})
    left = run.stale()
    for each in left:
        run.down(each)
    verdict = f"removed what was left of {', '.join(left)}" if left else "nothing was left of any cluster"
    return Outcome("cluster", "down", verdict, values={"ended": left})

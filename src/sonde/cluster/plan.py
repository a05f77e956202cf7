"""What a virtual cluster is: its nodes' names and addresses, its limits, and what makes a kernel build it. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from sonde.core import hostlist, units
from sonde.core.errors import UsageError

MOST_NODES = 254
DEFAULT_SUBNET = "10.77.0.0/24"
NAMESPACES = ("net", "uts", "ipc", "mnt")  # what each node has of its own, as /proc/PID/ns calls them
_HELD = (*NAMESPACES, "root")  # descriptors that the keeper has of each node, in this order
FIRST_FD = 16  # below it the keeper has its pipes
DEVICE = "eth0"  # of a node; its other end is a port of the bridge, "node3"
BRIDGE = "bridge"

# A bucket of tokens lets that much through at once. A millisecond's worth keeps the timer's coarseness out of the
# rate; below 16 KiB it would be less than ten packets, and the rate would suffer.
_BURST_S, _LEAST_BURST_B = 1e-3, 16 * 1024
_QUEUE_S = 50e-3  # what waits longer for its turn is dropped, as a switch does
_NETEM_PACKETS = 1_000_000  # its own limit, 1000 packets, would drop what is only late

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,29}[a-z0-9])?", re.ASCII)
_PREFIX = re.compile(r"[a-z]([a-z0-9-]{0,29})?", re.ASCII)
# Folders that the cluster itself is made of. /run has its state, and the agent that mpirun calls.
_NOT_PRIVATE = ("/", "/dev", "/proc", "/run", "/sys")

# Where GlusterFS has the state, the sockets and the logs of a server, and its brick here: of each node its own.
_GLUSTER_PRIVATE = ("/run", "/var/lib/glusterd", "/var/log/glusterfs")
BRICK = "/dev/shm/brick"


@dataclass(frozen=True)
class Plan:
    """A cluster as it is to be. rate: bit/s of each node's link in each direction, None for no limit.

    delay_s: by which each node's link delays what goes into it. private: folders of which each node has its own.
    gluster: where each node mounts a GlusterFS volume over all of them; "" for none.
    """

    name: str
    hostnames: tuple[str, ...]
    addresses: tuple[str, ...]
    subnet: str
    rate: int | None = None
    delay_s: float = 0.0
    private: tuple[str, ...] = ()
    gluster: str = ""

    @property
    def nodes(self) -> range:
        return range(len(self.hostnames))

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Plan:
        """The plan that `as_json` wrote. KeyError, TypeError, ValueError: it is not one."""
        lists = {name: tuple(told[name]) for name in ("hostnames", "addresses", "private")}
        return cls(**{**told, **lists})


def check_name(name: str) -> str:
    """`name`, where a cluster may be called so. UsageError  cluster.bad_name."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            "cluster.bad_name",
            f"'{name}' is no name for a cluster; allowed: up to 31 of a-z, 0-9 and -, with no - at either end",
            "write it like test or io-study",
        )
    return name


def plan(
    name: str,
    nodes: int,
    *,
    rate: int | None = None,
    delay_s: float = 0.0,
    prefix: str | None = None,
    subnet: str = DEFAULT_SUBNET,
    private: Sequence[str] = (),
    gluster: str | None = None,
) -> Plan:
    """A cluster of that name. prefix: host names are that and a number; else name-0, name-1, ...

    Raises
    ------
    UsageError  cluster.bad_name, cluster.bad_nodes, cluster.bad_subnet, cluster.bad_private.
    """
    check_name(name)
    if not 1 <= nodes <= MOST_NODES:
        raise UsageError(
            "cluster.bad_nodes",
            f"{nodes} nodes were asked for; allowed: 1 to {MOST_NODES}",
            "give another number with --nodes",
        )
    if prefix is not None and not _PREFIX.fullmatch(prefix):
        raise UsageError(
            "cluster.bad_name",
            f"'{prefix}' is no beginning of host names; allowed: up to 30 of a-z, 0-9 and -, a letter first",
            "write it like --prefix node",
        )
    stem = f"{name}-" if prefix is None else prefix
    return Plan(
        name,
        tuple(f"{stem}{node}" for node in range(nodes)),
        _addresses(subnet, nodes),
        str(ipaddress.ip_network(subnet)),
        rate,
        delay_s,
        tuple(dict.fromkeys((*map(_private, private), *(_GLUSTER_PRIVATE if gluster is not None else ())))),
        "" if gluster is None else _mount_point(gluster),
    )


def _addresses(subnet: str, nodes: int) -> tuple[str, ...]:
    def bad(why: str) -> UsageError:
        return UsageError("cluster.bad_subnet", f"'{subnet}' {why}", f"write it like {DEFAULT_SUBNET}")

    try:
        network = ipaddress.ip_network(subnet)
    except ValueError:
        raise bad("is no subnet, or has bits set behind its prefix") from None
    if network.version != 4 or "/" not in subnet:
        raise bad("is not allowed; allowed: subnets of IPv4, an address, a slash and the prefix's length")
    first = network.network_address
    if (
        first.is_multicast
        or first.is_loopback
        or first.is_link_local
        or first.is_reserved
        or first.packed[0] == 0
    ):
        raise bad("is not for hosts; allowed: private subnets, as in 10.0.0.0/8 or 192.168.0.0/16")
    room = max(0, network.num_addresses - 2)  # the first and the last are the subnet's own and its broadcast
    if nodes > room:
        raise bad(f"has {room} addresses for {nodes} nodes")
    return tuple(str(network[1 + node]) for node in range(nodes))


def _private(folder: str) -> str:
    if (clean := _folder(folder)) is None:
        raise UsageError(
            "cluster.bad_private",
            f"nodes cannot each have a folder '{folder}' of their own; allowed: full paths, but not "
            f"{', '.join(_NOT_PRIVATE)}",
            "write it like --private /tmp",
        )
    return clean


def _mount_point(folder: str) -> str:
    if (clean := _folder(folder)) is None or clean == "/tmp":
        raise UsageError(
            "cluster.bad_gluster",
            f"nodes cannot have GlusterFS at '{folder}'; allowed: full paths of folders that nothing else is looked "
            f"for in, and not {', '.join((*_NOT_PRIVATE, '/tmp'))}",
            "write it like --gluster /mnt",
        )
    return clean


def _folder(text: str) -> str | None:
    """A full path without what it need not have; None where nodes must not have something of their own there."""
    path = PurePosixPath(text)
    clean = str(path)
    if (
        not path.is_absolute()
        or ".." in path.parts
        or clean in _NOT_PRIVATE
        or clean.startswith(("/proc/", "/sys/"))
    ):
        return None
    return clean


def chosen(cluster: Plan, text: str) -> list[int]:
    """Nodes by a list of numbers, "0,2-3", or of host names, "test-[0,2-3]", "^test-1"; "all".

    Raises
    ------
    UsageError  core.bad_hosts, cluster.no_such_node.
    """
    if text.strip() == "all":
        return list(cluster.nodes)
    bare = "".join(text.split())
    if re.fullmatch(r"[0-9,-]+", bare):
        names = [name[1:] for name in hostlist.expand(f"n[{bare}]")]
        numbers = [int(name) for name in names]
    else:
        names = hostlist.expand(bare, within=cluster.hostnames)
        known = {host: node for node, host in enumerate(cluster.hostnames)}
        numbers = [known.get(name, -1) for name in names]
    for name, number in zip(names, numbers):
        if number not in cluster.nodes:
            raise UsageError(
                "cluster.no_such_node",
                f"cluster '{cluster.name}' has no node {name}; it has {_span(cluster)}",
                "write it like 0,2-3, or all",
            )
    return list(dict.fromkeys(numbers))


def _span(cluster: Plan) -> str:
    last = cluster.nodes[-1]
    return "node 0 only" if last == 0 else f"nodes 0 to {last}, {hostlist.fold(cluster.hostnames)}"


# ---- what the keeper is told to do


def fd(node: int, kind: str) -> int:
    """The keeper's descriptor that holds a namespace of a node, or "root", its root folder: what there is no process in
    stays by it."""
    return FIRST_FD + len(_HELD) * node + _HELD.index(kind)


def port(node: int) -> str:
    """The bridge's device at the other end of a node's."""
    return f"node{node}"


def enter(keeper: str, node: int) -> list[str]:
    """The beginning of a command that runs in a node. keeper: its folder in /proc."""
    flags = {"mnt": "mount"}
    # Who enters a mount namespace stands at its very root, outside of the chroot that all of this may be in.
    root = f"{keeper}/fd/{fd(node, 'root')}"
    held = (f"--{flags.get(kind, kind)}={keeper}/fd/{fd(node, kind)}" for kind in NAMESPACES)
    return ["nsenter", *held, f"--root={root}", f"--wd={root}"]


def orders(cluster: Plan, hosts: str) -> dict[str, Any]:
    """What run_keeper.py is told. hosts: the file that is to be /etc/hosts in the nodes."""
    return {
        "name": cluster.name,
        "hosts": hosts,
        "private": list(cluster.private),
        "kept": str(PurePosixPath(hosts).parent.parent),
        "namespaces": list(NAMESPACES),
        "first_fd": FIRST_FD,
        "nodes": [
            {
                "hostname": cluster.hostnames[node],
                "ip": _node_links(cluster, node),
                "tc": _limits(cluster, DEVICE),
            }
            for node in cluster.nodes
        ],
        "bridge_before": f"link set lo up\nlink add name {BRIDGE} type bridge\nlink set {BRIDGE} up\n",
        "bridge_after": "".join(f"link set {port(node)} master {BRIDGE} up\n" for node in cluster.nodes),
        "tc": "".join(_limits(cluster, port(node), delay=False) for node in cluster.nodes),
    }


def _node_links(cluster: Plan, node: int) -> str:
    """For `ip -batch` in a node. Process 1 of the cluster is the keeper, in whose namespace the bridge is."""
    length = cluster.subnet.partition("/")[2]
    return (
        "link set lo up\n"
        f"link add name {DEVICE} type veth peer name {port(node)} netns 1\n"
        f"addr add {cluster.addresses[node]}/{length} broadcast + dev {DEVICE}\n"
        f"link set {DEVICE} up\n"
        f"route add 224.0.0.0/4 dev {DEVICE}\n"  # there is no default route that multicast would take
    )


def _limits(cluster: Plan, device: str, delay: bool = True) -> str:
    """For `tc -batch`: what goes out of `device` at the rate, and late. tc(8): `bit` is bit/s, `b` bytes."""
    lines = []
    place = "root"
    if delay and cluster.delay_s:
        lines.append(
            f"qdisc add dev {device} root handle 1: netem delay {cluster.delay_s * 1e6:.0f}us limit {_NETEM_PACKETS}\n"
        )
        place = "parent 1:1 handle 2:"
    if cluster.rate is not None:
        burst = burst_bytes(cluster)
        limit = burst + round(cluster.rate / 8 * _QUEUE_S)
        lines.append(
            f"qdisc add dev {device} {place} tbf rate {cluster.rate}bit burst {burst}b limit {limit}b\n"
        )
    return "".join(lines)


def burst_bytes(cluster: Plan) -> int:
    """What a node's link lets through at once before its rate counts, B; 0 without a rate."""
    return 0 if cluster.rate is None else max(_LEAST_BURST_B, round(cluster.rate / 8 * _BURST_S))


def hosts_file(cluster: Plan) -> str:
    """/etc/hosts of the nodes."""
    lines = [f"{address} {host}" for address, host in zip(cluster.addresses, cluster.hostnames)]
    return "\n".join(["127.0.0.1 localhost", "::1 localhost", *lines, ""])


def agent(cluster: Plan) -> str:
    """The program that is to these nodes what ssh is to others: AGENT [options] HOST COMMAND..., from any node.

    Words are put together with blanks and read by a shell again, as ssh does. The process that calls it is in the
    cluster's pid namespace already, where the keeper is process 1.
    """
    cases = "\n".join(
        f'  {host} | {address}) set -- {" ".join(enter("/proc/1", node)[1:])} -- /bin/sh -c "$*" ;;'
        for node, (host, address) in enumerate(zip(cluster.hostnames, cluster.addresses))
    )
    return f"""#!/bin/sh
# Starts a command in a node of the virtual cluster '{cluster.name}', as ssh would.
while [ "${{1#-}}" != "$1" ]; do shift; done
host=$1
shift
case $host in
{cases}
  *) echo "$0: cluster '{cluster.name}' has no node '$host'" >&2; exit 255 ;;
esac
exec nsenter "$@"
"""


def describe(cluster: Plan) -> str:
    """ "5 nodes at 1 Gbit/s, 1.00 ms late"."""
    count = len(cluster.hostnames)
    text = f"{count} node{'' if count == 1 else 's'}"
    if cluster.rate is not None:
        text += f" at {units.format_rate(cluster.rate)}"
    if cluster.delay_s:
        text += f", {units.format_duration(cluster.delay_s)} late"
    if cluster.gluster:
        text += f", GlusterFS at {cluster.gluster}"
    return text

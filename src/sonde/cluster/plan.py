"""The description of a virtual cluster: names and addresses of its nodes, limits, and the kernel commands that build
it. Pure.
"""

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
NAMESPACES = ("net", "uts", "ipc", "mnt")  # each node has its own; the names are those in /proc/PID/ns
_NODE_FDS = (*NAMESPACES, "root")  # descriptors that the reaper holds for each node, in this order
FIRST_FD = 16  # the reaper's pipes are below it
DEVICE = "eth0"  # in each node; its other end is a port of the bridge, such as "node3"
BRIDGE = "bridge"

# A token bucket lets this amount through at once. The tokens of one millisecond hide the coarseness of the timer from
# the rate. Below 16 KiB the bucket would hold fewer than ten packets, and the rate would suffer.
_BURST_S, _LEAST_BURST_B = 1e-3, 16 * 1024
_QUEUE_S = 50e-3  # packets that wait longer are dropped, as a switch does
_NETEM_PACKETS = 1_000_000  # netem's default limit, 1000 packets, would drop packets that are only delayed

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,29}[a-z0-9])?", re.ASCII)
_PREFIX = re.compile(r"[a-z]([a-z0-9-]{0,29})?", re.ASCII)
# The cluster itself uses these folders. /run holds its state, and the agent that mpirun calls.
_NOT_PRIVATE = ("/", "/dev", "/proc", "/run", "/sys")

# GlusterFS keeps the state, the sockets and the logs of a server here, and its brick. Each node has its own folders.
_GLUSTER_PRIVATE = ("/run", "/var/lib/glusterd", "/var/log/glusterfs")
BRICK = "/dev/shm/brick"


@dataclass(frozen=True)
class Plan:
    """The description of a cluster to build. rate: bit/s of each node's link in each direction, None for no limit.

    delay_s: the delay that each node's link adds to packets that enter it. private: folders that each node has for
    itself. gluster: where each node mounts a GlusterFS volume over all nodes; "" for no volume.
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
    def from_json(cls, stored: Mapping[str, Any]) -> Plan:
        """The plan that `as_json` wrote. KeyError, TypeError, ValueError: the input is no plan."""
        lists = {name: tuple(stored[name]) for name in ("hostnames", "addresses", "private")}
        return cls(**{**stored, **lists})


def check_name(name: str) -> str:
    """Return `name` if a cluster may have it. UsageError  cluster.bad_name."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            "cluster.bad_name",
            f"'{name}' is not a valid cluster name; allowed: up to 31 of a-z, 0-9 and -, with no - at either end",
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
    """A cluster of that name. prefix: each host name is this text and a number; else name-0, name-1, ...

    Raises
    ------
    UsageError  cluster.bad_name, cluster.bad_nodes, cluster.bad_subnet, cluster.bad_private.
    """
    check_name(name)
    if not 1 <= nodes <= MOST_NODES:
        raise UsageError(
            "cluster.bad_nodes",
            f"{nodes} nodes were requested; allowed: 1 to {MOST_NODES}",
            "give another number with --nodes",
        )
    if prefix is not None and not _PREFIX.fullmatch(prefix):
        raise UsageError(
            "cluster.bad_name",
            f"'{prefix}' is not a valid prefix of host names; allowed: up to 30 of a-z, 0-9 and -, a letter first",
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
        raise bad("is not a subnet, or has bits set after its prefix") from None
    if network.version != 4 or "/" not in subnet:
        raise bad("is not an IPv4 subnet; allowed: an address, a slash and the length of the prefix")
    first = network.network_address
    if (
        first.is_multicast
        or first.is_loopback
        or first.is_link_local
        or first.is_reserved
        or first.packed[0] == 0
    ):
        raise bad("is not a subnet for hosts; allowed: private subnets, such as 10.0.0.0/8 or 192.168.0.0/16")
    room = max(
        0, network.num_addresses - 2
    )  # the first is the subnet's own address, the last is its broadcast
    if nodes > room:
        raise bad(f"has {room} addresses for {nodes} nodes")
    return tuple(str(network[1 + node]) for node in range(nodes))


def _private(folder: str) -> str:
    if (clean := _folder(folder)) is None:
        raise UsageError(
            "cluster.bad_private",
            f"nodes cannot each have their own folder '{folder}'; allowed: full paths, except "
            f"{', '.join(_NOT_PRIVATE)}",
            "write it like --private /tmp",
        )
    return clean


def _mount_point(folder: str) -> str:
    if (clean := _folder(folder)) is None or clean == "/tmp":
        raise UsageError(
            "cluster.bad_gluster",
            f"nodes cannot mount GlusterFS at '{folder}'; allowed: full paths of folders that hold nothing else in "
            f"use, except {', '.join((*_NOT_PRIVATE, '/tmp'))}",
            "write it like --gluster /mnt",
        )
    return clean


def _folder(text: str) -> str | None:
    """A full path in its shortest form; None where nodes must not have their own folder."""
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
    """Nodes by a list of numbers, such as "0,2-3", or of host names, such as "test-[0,2-3]" or "^test-1"; or "all".

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


# ---- the orders for the reaper


def fd(node: int, kind: str) -> int:
    """The reaper's descriptor of a namespace of a node, or of "root", its root folder. A descriptor keeps a namespace
    alive while no process is in it.
    """
    return FIRST_FD + len(_NODE_FDS) * node + _NODE_FDS.index(kind)


def port(node: int) -> str:
    """The bridge's device at the other end of a node's link."""
    return f"node{node}"


def enter(reaper: str, node: int) -> list[str]:
    """The beginning of a command line that runs a command in a node. reaper: the reaper's folder in /proc."""
    flags = {"mnt": "mount"}
    # A process that enters a mount namespace is at its very root, outside of the chroot that this process may be in.
    root = f"{reaper}/fd/{fd(node, 'root')}"
    namespaces = (f"--{flags.get(kind, kind)}={reaper}/fd/{fd(node, kind)}" for kind in NAMESPACES)
    return ["nsenter", *namespaces, f"--root={root}", f"--wd={root}"]


def orders(cluster: Plan, hosts: str) -> dict[str, Any]:
    """The orders for run_reaper.py. hosts: the file that becomes /etc/hosts in the nodes."""
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
    """Input of `ip -batch` in a node. Process 1 of the cluster is the reaper, whose namespace holds the bridge."""
    length = cluster.subnet.partition("/")[2]
    return (
        "link set lo up\n"
        f"link add name {DEVICE} type veth peer name {port(node)} netns 1\n"
        f"addr add {cluster.addresses[node]}/{length} broadcast + dev {DEVICE}\n"
        f"link set {DEVICE} up\n"
        f"route add 224.0.0.0/4 dev {DEVICE}\n"  # multicast has no default route to take
    )


def _limits(cluster: Plan, device: str, delay: bool = True) -> str:
    """Input of `tc -batch`: limits the rate and adds the delay of packets that leave `device`. tc(8): `bit` is bit/s,
    `b` is bytes.
    """
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
    """Bytes that a node's link lets through at once before its rate applies; 0 without a rate."""
    return 0 if cluster.rate is None else max(_LEAST_BURST_B, round(cluster.rate / 8 * _BURST_S))


def hosts_file(cluster: Plan) -> str:
    """The text of /etc/hosts in the nodes."""
    lines = [f"{address} {host}" for address, host in zip(cluster.addresses, cluster.hostnames)]
    return "\n".join(["127.0.0.1 localhost", "::1 localhost", *lines, ""])


def agent(cluster: Plan) -> str:
    """The program that replaces ssh between the nodes: AGENT [options] HOST COMMAND..., from any node.

    It joins its words with blanks and lets a shell read them again, as ssh does. The calling process is already in the
    cluster's pid namespace, where the reaper is process 1.
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
    """The cluster in a few words, such as "5 nodes at 1 Gbit/s, 1.00 ms delay"."""
    count = len(cluster.hostnames)
    text = f"{count} node{'' if count == 1 else 's'}"
    if cluster.rate is not None:
        text += f" at {units.format_rate(cluster.rate)}"
    if cluster.delay_s:
        text += f", {units.format_duration(cluster.delay_s)} delay"
    if cluster.gluster:
        text += f", GlusterFS at {cluster.gluster}"
    return text

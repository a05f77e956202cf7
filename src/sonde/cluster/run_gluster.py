"""GlusterFS over the nodes of a virtual cluster: on each node a server with a brick in memory, and the volume mounted.

It consists of processes and mounts in the nodes only, so it ends with the cluster. It is started before the cluster is
complete: when the builder is killed, the remains end with the reaper.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from sonde.cluster import plan
from sonde.core import distribution
from sonde.core.errors import EnvironmentFailure, UsageError

PROGRAMS = ("glusterd", "glusterfs", "gluster", "mount.glusterfs")
_DEVICE = Path("/dev/fuse")
_START_S = 60.0  # a server needs some seconds, more when many nodes start at once
_COMMAND_S = 60.0

# Options that a volume for parallel jobs needs and that are not defaults. Sharding spreads one large file over the
# bricks, in pieces of the smallest allowed size. Caches of clients are off, because they do not see the writes of other
# nodes: a rank would read the file as it was a second ago. The mount turns off the kernel's caches too.
OPTIONS = {
    "features.shard": "on",
    "features.shard-block-size": "4MB",
    "performance.stat-prefetch": "off",
    "performance.quick-read": "off",
    "performance.io-cache": "off",
    "performance.read-ahead": "off",
}
MOUNT_OPTIONS = "direct-io-mode=enable,attribute-timeout=0,entry-timeout=0"

# [when] E [MSGID: 106229] [glusterd.c:500:glusterd_check_gsync_present] 0-glusterd: what is wrong
_ERROR = re.compile(
    r"\[[^]]*\] [EC] (?:\[MSGID: \d+\] )?\[(?P<file>[^]:]+):[^]]*\] (?:[\w.-]+: )?(?P<text>.*)"
)


class Nodes(Protocol):
    """The part of a cluster (`run.Cluster`) that GlusterFS needs."""

    plan: plan.Plan

    @property
    def name(self) -> str: ...
    def hostname(self, node: int) -> str: ...
    def run(self, node: int, command: Sequence[str], *, timeout_s: float, check: bool) -> Any: ...
    def popen(self, node: int, command: Sequence[str], **keywords: Any) -> subprocess.Popen[Any]: ...


def check(where: str, path: str) -> None:
    """Check whether GlusterFS can be used here. where: the folder to mount it at. path: where programs are searched.

    Raises
    ------
    EnvironmentFailure  cluster.no_program, cluster.no_kernel. UsageError  cluster.bad_gluster.
    """
    for program in PROGRAMS:
        if not shutil.which(program, path=path):
            raise EnvironmentFailure(
                "cluster.no_program",
                f"--gluster needs the program '{program}', which is not installed",
                distribution.install("glusterfs"),
            )
    if not _DEVICE.exists():
        raise EnvironmentFailure(
            "cluster.no_kernel",
            f"there is no {_DEVICE}, which mounts of GlusterFS need",
            "load the module fuse (modprobe); in a container, pass the device to it",
        )
    if not Path(where).is_dir():
        raise UsageError(
            "cluster.bad_gluster",
            f"there is no folder {where}",
            "create it, or name another, such as --gluster /mnt",
        )


def start(cluster: Nodes) -> None:
    """Start servers, create a volume with the cluster's name and a brick on each node, and mount it on each.

    Raises
    ------
    EnvironmentFailure  cluster.no_gluster.
    """
    nodes = cluster.plan.nodes
    hosts = cluster.plan.hostnames
    quiet = subprocess.DEVNULL
    # A server starts only if its gsyncd does. gsyncd is run by $PYTHON if that is set, even if it is empty as under
    # Sonde's own Makefile. PYTHONHOME and PYTHONPATH, which environment modules set, mislead it.
    around = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    servers = [
        cluster.popen(
            node,
            ["sh", "-c", f"mkdir -p {plan.BRICK} && exec glusterd"],
            stdin=quiet,
            stdout=quiet,
            stderr=quiet,
            env=around,
        )
        for node in nodes
    ]
    until_s = time.monotonic() + _START_S
    for node, server in zip(nodes, servers):
        # The server goes into the background once it answers.
        status = _waited(server, until_s)
        if status != 0:
            how = (
                f"it ended with status {status}" if status is not None else f"no answer within {_START_S:g} s"
            )
            raise _failed("glusterd", hosts[node], _log(cluster, node) or how)
    for node in nodes[1:]:
        _gluster(cluster, "peer", "probe", hosts[node])
    bricks = [f"{host}:{plan.BRICK}" for host in hosts]
    # Servers know each other only a moment after each of them has answered.
    _gluster(
        cluster,
        "volume",
        "create",
        cluster.name,
        *bricks,
        "force",
        patience=("not connected", "not in 'Peer in"),
    )
    _gluster(cluster, "volume", "set", cluster.name, *(item for pair in OPTIONS.items() for item in pair))
    _gluster(cluster, "volume", "start", cluster.name)
    for node in nodes:
        source = f"{hosts[node]}:/{cluster.name}"
        argv = ["mount", "-t", "glusterfs", "-o", MOUNT_OPTIONS, source, cluster.plan.gluster]
        ran = cluster.run(node, argv, timeout_s=_COMMAND_S, check=False)
        if ran.returncode != 0:
            raise _failed("mount", hosts[node], ran.stderr or ran.stdout)


def _gluster(cluster: Nodes, *arguments: str, patience: Sequence[str] = ()) -> None:
    """Run a `gluster` command in node 0. patience: messages that it may give for a while."""
    until_s = time.monotonic() + _START_S
    while True:
        ran = cluster.run(0, ["gluster", "--mode=script", *arguments], timeout_s=_COMMAND_S, check=False)
        if ran.returncode == 0:
            return
        message = ran.stderr or ran.stdout
        if time.monotonic() > until_s or not any(each in message for each in patience):
            raise _failed(f"gluster {' '.join(arguments[:2])}", cluster.hostname(0), message)
        time.sleep(0.1)


def _waited(server: subprocess.Popen[Any], until_s: float) -> int | None:
    try:
        return int(server.wait(max(0.0, until_s - time.monotonic())))
    except subprocess.TimeoutExpired:
        return None


def _log(cluster: Nodes, node: int) -> str:
    """Why a server ended, from its log, which ends with the cluster."""
    argv = ["cat", "/var/log/glusterfs/glusterd.log"]
    return errors_in(cluster.run(node, argv, timeout_s=_COMMAND_S, check=False).stdout)


def errors_in(log: str) -> str:
    """The last errors in the log of a server, one of which gives the reason for its end.

    Messages from xlator.c and graph.c only say that the server did not start. One fault gives up to three lines.
    """
    found = [_ERROR.fullmatch(line) for line in log.splitlines()]
    errors = [one["text"].strip() for one in found if one and one["file"] not in ("xlator.c", "graph.c")]
    return "; ".join(list(dict.fromkeys(errors))[-3:])


def _failed(what: str, host: str, message: str) -> EnvironmentFailure:
    lines = [line for line in message.strip().splitlines() if line.strip()]
    return EnvironmentFailure(
        "cluster.no_gluster",
        f"GlusterFS did not start: {what} failed on {host}{f': {lines[-1][:400]}' if lines else ''}",
        "free memory for the bricks, and check that a cluster without --gluster can be built",
    )

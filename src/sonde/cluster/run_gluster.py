"""GlusterFS over the nodes of a virtual cluster: a server with a brick in memory on each, the volume mounted on each.

All of it is processes and mounts in the nodes, so it ends with the cluster. It is made before the cluster is complete:
what a killed builder leaves of it goes with the keeper.
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
_START_S = 60.0  # a server takes some seconds; of many nodes all at once
_COMMAND_S = 60.0

# What a volume for parallel jobs has to have and does not have by itself. Sharding spreads one large file over the
# bricks, in pieces of the least size that is allowed. The caches of clients, which know nothing of what other nodes
# write, would show a rank the file as it was a second ago; so they are off, and the kernel's are not used (the mount).
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
    r"\[[^]]*\] [EC] (?:\[MSGID: \d+\] )?\[(?P<file>[^]:]+):[^]]*\] (?:[\w.-]+: )?(?P<said>.*)"
)


class Nodes(Protocol):
    """What GlusterFS needs of a cluster that is up (`run.Cluster`)."""

    plan: plan.Plan

    @property
    def name(self) -> str: ...
    def hostname(self, node: int) -> str: ...
    def run(self, node: int, command: Sequence[str], *, timeout_s: float, check: bool) -> Any: ...
    def popen(self, node: int, command: Sequence[str], **keywords: Any) -> subprocess.Popen[Any]: ...


def check(where: str, path: str) -> None:
    """Whether GlusterFS can be had here. where: the folder to mount it at. path: where programs are looked for.

    Raises
    ------
    EnvironmentFailure  cluster.no_program, cluster.no_kernel. UsageError  cluster.bad_gluster.
    """
    for program in PROGRAMS:
        if not shutil.which(program, path=path):
            raise EnvironmentFailure(
                "cluster.no_program",
                f"there is no program '{program}' here, which --gluster needs",
                distribution.install("glusterfs"),
            )
    if not _DEVICE.exists():
        raise EnvironmentFailure(
            "cluster.no_kernel",
            f"there is no {_DEVICE} here, by which GlusterFS is mounted",
            "load the module fuse (modprobe); in a container, give it the device",
        )
    if not Path(where).is_dir():
        raise UsageError(
            "cluster.bad_gluster",
            f"there is no folder {where} here",
            "make it, or name another, as --gluster /mnt",
        )


def start(cluster: Nodes) -> None:
    """Servers, a volume called as the cluster with a brick on each node, and the volume mounted on each.

    Raises
    ------
    EnvironmentFailure  cluster.no_gluster.
    """
    nodes = cluster.plan.nodes
    hosts = cluster.plan.hostnames
    quiet = subprocess.DEVNULL
    # A server begins only if its gsyncd does, which is run by $PYTHON if there is one, be it empty as under Sonde's own
    # Makefile, and is led astray by PYTHONHOME and PYTHONPATH, which modules set.
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
        # It goes into the background once it answers.
        status = _waited(server, until_s)
        if status != 0:
            how = (
                f"it ended with status {status}" if status is not None else f"no answer within {_START_S:g} s"
            )
            raise _failed("glusterd", hosts[node], _log(cluster, node) or how)
    for node in nodes[1:]:
        _gluster(cluster, "peer", "probe", hosts[node])
    bricks = [f"{host}:{plan.BRICK}" for host in hosts]
    # Servers know each other only a moment after each has answered.
    _gluster(
        cluster,
        "volume",
        "create",
        cluster.name,
        *bricks,
        "force",
        patience=("not connected", "not in 'Peer in"),
    )
    _gluster(cluster, "volume", "set", cluster.name, *(word for pair in OPTIONS.items() for word in pair))
    _gluster(cluster, "volume", "start", cluster.name)
    for node in nodes:
        source = f"{hosts[node]}:/{cluster.name}"
        words = ["mount", "-t", "glusterfs", "-o", MOUNT_OPTIONS, source, cluster.plan.gluster]
        ran = cluster.run(node, words, timeout_s=_COMMAND_S, check=False)
        if ran.returncode != 0:
            raise _failed("mount", hosts[node], ran.stderr or ran.stdout)


def _gluster(cluster: Nodes, *words: str, patience: Sequence[str] = ()) -> None:
    """A `gluster` command in node 0. patience: what it may say for a while."""
    until_s = time.monotonic() + _START_S
    while True:
        ran = cluster.run(0, ["gluster", "--mode=script", *words], timeout_s=_COMMAND_S, check=False)
        if ran.returncode == 0:
            return
        said = ran.stderr or ran.stdout
        if time.monotonic() > until_s or not any(each in said for each in patience):
            raise _failed(f"gluster {' '.join(words[:2])}", cluster.hostname(0), said)
        time.sleep(0.1)


def _waited(server: subprocess.Popen[Any], until_s: float) -> int | None:
    try:
        return int(server.wait(max(0.0, until_s - time.monotonic())))
    except subprocess.TimeoutExpired:
        return None


def _log(cluster: Nodes, node: int) -> str:
    """Why a server ended, as it wrote into its log, which goes with the cluster."""
    words = ["cat", "/var/log/glusterfs/glusterd.log"]
    return errors_in(cluster.run(node, words, timeout_s=_COMMAND_S, check=False).stdout)


def errors_in(log: str) -> str:
    """The last errors in the log of a server, of which one names why it ended. What it goes through on its way out says
    only, from xlator.c and graph.c, that it did not begin; and what went wrong for it comes as up to three lines.
    """
    found = [_ERROR.fullmatch(line) for line in log.splitlines()]
    said = [one["said"].strip() for one in found if one and one["file"] not in ("xlator.c", "graph.c")]
    return "; ".join(list(dict.fromkeys(said))[-3:])


def _failed(what: str, host: str, said: str) -> EnvironmentFailure:
    lines = [line for line in said.strip().splitlines() if line.strip()]
    return EnvironmentFailure(
        "cluster.no_gluster",
        f"GlusterFS was not started: {what} failed on {host}{f': {lines[-1][:400]}' if lines else ''}",
        "see whether a cluster without --gluster can be built, and free memory for the bricks",
    )

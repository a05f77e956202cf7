"""Building, finding and ending virtual clusters, and processes in their nodes.

How nothing stays behind:
  - A cluster has one process that users do not start: the reaper, first of a pid namespace. Only the reaper holds the
    namespaces, devices and mounts; they have no name outside. When the reaper ends, by whatever signal, the kernel ends
    every process inside and removes the rest.
  - The kernel does not know the folder STATE/NAME. The command that builds or ends the cluster holds a lock on this
    folder; the state in it is "incomplete" until the cluster is complete. A killed command can leave an incomplete
    cluster that nobody locks, or a complete one without its reaper: the next `up` or `down` of that name removes it.
  - While it builds, the reaper reads a pipe from its builder, and ends when the builder ends.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sonde.cluster import mpi, plan, run_gluster, run_state
from sonde.cluster.plan import Plan
from sonde.core import distribution, units
from sonde.core.errors import EnvironmentFailure, SondeError, UsageError, nearest, typed
from sonde.core.launch.process import MARK, die_with_parent, sweep
from sonde.core.processes import signal_found, stat_fields

if TYPE_CHECKING:
    from types import TracebackType
from sonde.cluster.run_state import (
    Kept,
    Reaper,
    held,
    kept_in,
    names,
    namespace_of,
    processes,
    remove_files,
    status_field,
    store,
    write,
)
from sonde.core.surroundings import place_of_ranks

PROGRAMS = {
    "ip": "iproute2",
    "tc": "iproute2",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "setsid": "util-linux",
    "env": "coreutils",
}
# capabilities(7): CAP_SYS_CHROOT is for entering a mount namespace.
_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_CHROOT": 18, "CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21}
_BUILD_S = 120.0
# When nsenter dies before it has asked for the signal of its parent's death, nobody sends that signal. It is outside of
# the pid namespace, where getppid(2) is 0 whether the parent lives or not. The parent's /proc/pid/stat, open as
# descriptor 9, can be read until the parent is reaped.
_IF_PARENT_LIVES = (
    'read -r pid name state rest <&9 && case $state in [ZXx]) ;; *) exec 9<&- "$@" ;; esac; exit 1'
)


# ---- before


def check_here() -> None:
    """Check whether clusters can be built here.

    Raises
    ------
    EnvironmentFailure  cluster.no_permission, cluster.no_program.
    """
    capabilities = int(status_field(os.getpid(), "CapEff") or "0", 16)
    lacking = [name for name, bit in _CAPABILITIES.items() if not capabilities >> bit & 1]
    if lacking or os.geteuid() != 0:
        user = os.geteuid()
        what = f"this process has no {', '.join(lacking)}" if user == 0 else f"this process is user {user}"
        raise EnvironmentFailure(
            "cluster.no_permission",
            f"network namespaces need root, and {what}",
            "run it as root, with sudo; in a container, one that is given these capabilities",
        )
    for program, package in PROGRAMS.items():
        if not shutil.which(program, path=program_path(os.environ)):
            hint = f"install the package {package}"
            if package in distribution.PACKAGES:
                hint = distribution.install(package)
            raise EnvironmentFailure("cluster.no_program", f"the program '{program}' is not installed", hint)


def program_path(environ: Mapping[str, str]) -> str:
    """Where programs are searched: ip and tc are in folders that are not on an ordinary user's PATH."""
    return f"{environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


# ---- clusters


@dataclass(frozen=True)
class Counters:
    """The traffic over a node's link since it was built: bytes and packets, in and out."""

    bytes_in: int
    packets_in: int
    bytes_out: int
    packets_out: int


class NodeProcess(subprocess.Popen[Any]):
    """A command in a node. Signals reach the command, not the nsenter that waits for it. It gets SIGTERM when this
    process dies.

    mark: a variable in the environment of the command and its children, by which `sweep` finds them. The thread that
    starts the command must outlive it (PR_SET_PDEATHSIG).
    """

    def __init__(self, cluster: Cluster, node: int, command: Sequence[str], **keywords: Any) -> None:
        self.mark = uuid.uuid4().hex
        env = cluster.environment(keywords.pop("env", None) or os.environ) | {MARK: self.mark}
        cwd = keywords.pop("cwd", None) or os.getcwd()
        super().__init__(
            cluster.enter(node, command, cwd),
            env=env,
            start_new_session=True,  # a terminal's Ctrl-C would end nsenter, which waits for the command
            preexec_fn=die_with_parent(os.getpid(), signal.SIGKILL),
            **keywords,
        )

    def send_signal(self, sig: int) -> None:
        if self.poll() is not None:
            return
        if commands := self._commands():
            signal_found(commands, sig, self._commands)
        else:  # nsenter has not started the command yet
            super().send_signal(sig)

    def _commands(self) -> list[int]:
        """Children of nsenter, and the processes in its process group."""
        # Fields 1 and 2 of stat: parent and process group.
        return [pid for pid in processes() if pid != self.pid and str(self.pid) in stat_fields(pid)[1:3]]

    def sweep(self) -> None:
        """End the command and all its descendants, daemons too."""
        sweep(self.mark)
        self.wait()


class Cluster:
    """A virtual cluster that is up. Nodes are numbered from 0.

    Example
    -------
    >>> with Cluster.up("test", 3, rate="1gbit") as cluster:   # doctest: +SKIP
    ...     cluster.run(2, ["hostname"]).stdout
    'test-2\\n'
    """

    def __init__(self, stored: Kept) -> None:
        self.plan, self.reaper, self.created_utc = stored.plan, stored.reaper, stored.created_utc

    # life

    @classmethod
    def up(
        cls,
        name: str,
        nodes: int,
        *,
        rate: str | int | None = None,
        delay_s: float = 0.0,
        prefix: str | None = None,
        subnet: str = plan.DEFAULT_SUBNET,
        private: Sequence[str] = (),
        gluster: str | None = None,
    ) -> Self:
        """Build a cluster. Remains of an older one of that name are removed first.

        rate: of each node's link in each direction, "1gbit" or bit/s. delay_s: the delay that each link adds to packets
        that enter it. prefix: each host name is this text and a number; else name-0, name-1, ... private: folders that
        each node has for itself, in memory and empty at first. gluster: a folder at which each node mounts a GlusterFS
        volume with the cluster's name; each node has a brick in its memory.

        Raises
        ------
        UsageError  cluster.bad_*, cluster.in_use, core.bad_rate.
        EnvironmentFailure  cluster.no_permission, cluster.no_program, cluster.no_kernel, cluster.not_built,
        cluster.no_gluster, cluster.busy, cluster.elsewhere.
        """
        wanted = plan.plan(
            name,
            nodes,
            rate=units.parse_rate(rate) if isinstance(rate, str) else rate,
            delay_s=delay_s,
            prefix=prefix,
            subnet=subnet,
            private=private,
            gluster=gluster,
        )
        check_here()
        if wanted.gluster:
            run_gluster.check(wanted.gluster, program_path(os.environ))
        for path in wanted.private:
            if not Path(path).is_dir():
                raise UsageError(
                    "cluster.bad_private",
                    f"there is no folder {path}",
                    "create it, or leave --private out",
                )
        with held(name, make=True) as folder:
            if folder is None:
                raise EnvironmentFailure(
                    "core.cannot_write", f"there is no folder {run_state.STATE.parent}", "create it"
                )
            previous = kept_in(folder)
            state = previous.state if previous else ""
            if state == "elsewhere":
                raise _elsewhere(name)
            if previous and state == "up":
                raise UsageError(
                    "cluster.in_use",
                    f"there is a cluster '{name}' already: {plan.describe(previous.plan)}",
                    f"choose another name, or end it first: {typed('sonde', 'cluster', 'down', '--name', name)}",
                )
            if previous:
                previous.reaper.end()
            remove_files(folder)
            return cls(_build(wanted, folder))

    @classmethod
    def find(cls, name: str) -> Self:
        """The cluster of that name.

        Raises
        ------
        UsageError  cluster.unknown, cluster.bad_name. EnvironmentFailure  cluster.gone, cluster.building,
        cluster.elsewhere.
        """
        plan.check_name(name)
        known = names()
        stored = kept_in(run_state.STATE / name)
        if name not in known or stored is None:
            is_up = f"clusters: {', '.join(known)}" if known else "no cluster is up"
            raise UsageError(
                "cluster.unknown",
                f"there is no cluster '{name}'{nearest(name, known)}; {is_up}",
                f"build it: {typed('sonde', 'cluster', 'up', '--name', name, '--nodes', 3)}",
            )
        state = stored.state  # read only once: a reaper that ends between two reads would pass both tests
        if state == "elsewhere":
            raise _elsewhere(name)
        if state == "gone":
            raise _gone(name, stored.reaper)
        if state == "building":
            raise EnvironmentFailure(
                "cluster.building",
                f"the cluster '{name}' is not complete: it is being built, or its 'up' command was killed",
                f"wait, or remove it: {typed('sonde', 'cluster', 'down', '--name', name)}",
            )
        return cls(stored)

    def down(self) -> None:
        """End all processes of the cluster, and remove it. A second call does nothing."""
        down(self.plan.name, self.reaper)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    # nodes

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def folder(self) -> Path:
        return run_state.STATE / self.plan.name

    def address(self, node: int) -> str:
        return self.plan.addresses[self._checked(node)]

    def hostname(self, node: int) -> str:
        return self.plan.hostnames[self._checked(node)]

    def _checked(self, node: int) -> int:
        return plan.chosen(self.plan, str(node))[0]

    def environment(self, around: Mapping[str, str]) -> dict[str, str]:
        """The environment of a command in a node: the caller's, with the settings that mpirun needs."""
        return mpi.environment(self.plan, str(self.folder / "agent"), around) | {"PATH": program_path(around)}

    def enter(self, node: int, command: Sequence[str], cwd: str | os.PathLike[str]) -> list[str]:
        """The command line that runs a command in a node."""
        return [
            *("sh", "-c", 'exec 9</proc/self/stat "$@"', "sh"),
            *plan.enter(self.reaper.proc, self._checked(node)),
            *(f"--pid={self.reaper.proc}/ns/pid", "--"),
            *("setpriv", "--pdeathsig", "TERM"),
            *("sh", "-c", _IF_PARENT_LIVES, "sh"),
            *("env", "--default-signal", f"--chdir={os.fspath(cwd)}", "--"),
            *command,
        ]

    def popen(self, node: int, command: Sequence[str], **keywords: Any) -> NodeProcess:
        """Start a command in a node. keywords: those of subprocess.Popen, except preexec_fn and start_new_session."""
        return NodeProcess(self, node, command, **keywords)

    def run(
        self,
        node: int,
        command: Sequence[str],
        *,
        input: str | None = None,
        timeout_s: float | None = None,
        check: bool = True,
        **keywords: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a node and return its output as text.

        timeout_s: the time after which the command and all its descendants are ended. check: whether a status other
        than 0 is an error.

        Raises
        ------
        EnvironmentFailure  cluster.command_failed, cluster.too_long.
        """
        stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
        pipes = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | keywords
        with self.popen(node, command, text=True, errors="replace", **pipes) as process:
            try:
                out, err = process.communicate(input, timeout=timeout_s)
            except subprocess.TimeoutExpired:
                process.sweep()
                raise EnvironmentFailure(
                    "cluster.too_long",
                    f"'{typed(*command)}' did not end within {timeout_s:g} s on {self.hostname(node)}, and was killed",
                ) from None
            except BaseException:
                process.sweep()
                raise
        if check and process.returncode != 0:
            lines = (err or "").strip().splitlines()
            raise EnvironmentFailure(
                "cluster.command_failed",
                f"'{typed(*command)}' ended with status {process.returncode} on {self.hostname(node)}",
                f"its last line: {lines[-1]}" if lines else "",
            )
        return subprocess.CompletedProcess(list(command), process.returncode, out, err)

    def counters(self, node: int) -> Counters:
        """The traffic over a node's link, read at the bridge's end of it, where "in" is "out"."""
        device = plan.port(self._checked(node))
        # proc(5), /proc/pid/net/dev: eight numbers of received packets, then eight of sent ones.
        with suppress(OSError):
            for line in Path(f"{self.reaper.proc}/net/dev").read_text().splitlines():
                name, colon, rest = line.partition(":")
                if colon and name.strip() == device:
                    numbers = [int(word) for word in rest.split()]
                    return Counters(numbers[8], numbers[9], numbers[0], numbers[1])
        raise _gone(self.plan.name, self.reaper)

    def processes(self) -> dict[int, list[int]]:
        """Process ids, in this namespace, of the cluster's processes by node. Those that left their node's network are
        under -1.
        """
        try:
            spaces = [
                os.readlink(f"{self.reaper.proc}/fd/{plan.fd(node, 'net')}") for node in self.plan.nodes
            ]
        except OSError:
            raise _gone(self.plan.name, self.reaper) from None
        place = {space: node for node, space in enumerate(spaces)}
        found: dict[int, list[int]] = {node: [] for node in self.plan.nodes}
        for pid in self.reaper.inside():
            if space := namespace_of(pid, "net"):
                found.setdefault(place.get(space, -1), []).append(pid)
        return found


def down(name: str, only: Reaper | None = None) -> str:
    """End a cluster, or remove its remains. only: do so only if the cluster has this reaper, and was not built again
    since.

    Returns "ended", "removed" (of what had ended before) or "none".

    Raises
    ------
    UsageError  cluster.bad_name. EnvironmentFailure  cluster.no_permission, cluster.busy, cluster.will_not_end,
    cluster.elsewhere.
    """
    plan.check_name(name)
    if not (run_state.STATE / name).exists():
        return "none"
    check_here()
    with held(name, make=False) as folder:
        if folder is None:
            return "none"
        stored = kept_in(folder)
        if only and stored and stored.reaper != only:
            return "none"
        state = stored.state if stored else ""
        if state == "elsewhere":
            raise _elsewhere(name)
        if stored and stored.reaper.alive:
            stored.reaper.calm()
            stored.reaper.end()
        remove_files(folder)
        return "ended" if state == "up" else "removed"


def _gone(name: str, reaper: Reaper) -> EnvironmentFailure:
    return EnvironmentFailure(
        "cluster.gone",
        f"the cluster '{name}' has ended: its reaper, process {reaper.pid}, was killed",
        f"remove what is left: {typed('sonde', 'cluster', 'down', '--name', name)}",
    )


def _elsewhere(name: str) -> EnvironmentFailure:
    return EnvironmentFailure(
        "cluster.elsewhere",
        f"the cluster '{name}' was built in another pid namespace, as in a container or in a cluster's node",
        f"end it there; if that place no longer exists, remove the folder {run_state.STATE / name}",
    )


def stale() -> list[str]:
    """Names of clusters that have ended, or were never complete, and that have left something."""
    found = []
    for name in names():
        with held(name, make=False) as folder:
            stored = kept_in(folder) if folder else None
            if folder and (stored is None or stored.state in ("gone", "building")):
                found.append(name)
    return found


# ---- building


def _build(wanted: Plan, folder: Path) -> Kept:
    """Start the reaper, which builds, and release it when all is done; otherwise leave nothing."""
    hosts, agent = folder / "hosts", folder / "agent"
    process = None
    stored = None
    try:
        write(hosts, plan.hosts_file(wanted))
        write(agent, plan.agent(wanted), 0o755)
        process = subprocess.Popen(
            # -I -S: no code of the user, and no site-packages, which take a while to load.
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("run_reaper.py")), wanted.name],
            cwd=place_of_ranks(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # so that Ctrl-C in the terminal does not reach it
            env={"PATH": program_path(os.environ), "LC_ALL": "C"},
        )
        event = _next_event(process)
        reaper = Reaper.of(int(event["pid"]))
        if reaper is None:
            raise _not_built("its reaper has died")
        created = datetime.now(UTC).isoformat(timespec="seconds")
        stored = Kept(wanted, reaper, False, created, namespace_of("self", "pid"))
        store(folder, stored)
        _say(process, json.dumps(plan.orders(wanted, str(hosts))))
        _next_event(process)
        if wanted.gluster:
            run_gluster.start(Cluster(stored))
        _say(process, "keep")
        assert process.stdout
        if process.stdout.read() or not reaper.alive:  # end of file: the reaper is independent
            raise _not_built("its reaper has died")
        stored = replace(stored, complete=True)
        store(folder, stored)
        return stored
    except BaseException:
        if process is not None:
            assert process.stdin
            with suppress(OSError):
                process.stdin.close()  # before its process id is known, only this ends it
        if stored is not None:
            stored.reaper.end()
        remove_files(folder)
        raise
    finally:
        if process is not None:
            for pipe in (process.stdin, process.stdout, process.stderr):
                with suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]
            process.wait()


def _say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin
    try:
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
    except BrokenPipeError:
        raise _not_built("its reaper has died") from None


def _next_event(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The reaper's next message. EnvironmentFailure  cluster.not_built, cluster.no_kernel."""
    assert process.stdout
    assert process.stderr
    if not select.select([process.stdout], [], [], _BUILD_S)[0]:
        raise _not_built(f"its reaper gave no answer for {_BUILD_S:g} s")
    line = process.stdout.readline()
    if not line:
        lines = process.stderr.read().strip().splitlines()
        raise _not_built(f"its reaper has died{f': {lines[-1]}' if lines else ''}")
    event: dict[str, Any] = json.loads(line)
    if "failed" in event:
        raise _refused(str(event["failed"]), str(event["text"]))
    return event


def _not_built(why: str) -> EnvironmentFailure:
    return EnvironmentFailure("cluster.not_built", f"the cluster was not built: {why}", "try again")


def _refused(what: str, text: str) -> SondeError:
    """The error for a refusal by ip, tc or the kernel."""
    message = " ".join(line for line in text.splitlines() if line and not line.startswith("Command failed"))
    if what == "tc" and "kind is unknown" in message:
        return EnvironmentFailure(
            "cluster.no_kernel",
            "this kernel cannot limit links as requested: it lacks tbf for rates, or netem for delays",
            "load the modules sch_tbf and sch_netem (modprobe), or leave --rate or --delay out",
        )
    if what == "ip" and ("nknown device type" in message or "not supported" in message):
        return EnvironmentFailure(
            "cluster.no_kernel",
            f"this kernel lacks bridges or pairs of virtual devices: {message}",
            "load the modules bridge and veth (modprobe)",
        )
    return EnvironmentFailure("cluster.not_built", f"the cluster was not built: {what}: {message}")

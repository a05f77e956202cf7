"""Starts a small power stack on this machine, kills its manager, records everything, and stops what it started.

Daemons are real processes on their own bus on loopback; the hardware below node managers is simulated, and every sample
states so. Daemons end with this process, however it ends, because their standard input ends.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from sonde.bus import run_keys
from sonde.bus.keys import DOMAINS, Grant
from sonde.core.deadline import within
from sonde.core.errors import EnvironmentFailure, UsageError, Warning
from sonde.core.events import Progress
from sonde.core.launch import libexec
from sonde.core.launch.measured import Measured
from sonde.core.owned_files import make_folder, write_whole
from sonde.core.surroundings import place_of_ranks
from sonde.power.demo import scenario
from sonde.power.recording.run_record import Recorder, Request, measure
from sonde.power.stack import run_bus, run_state
from sonde.power.stack.config import Stack
from sonde.power.stack.telemetry import JOB, NODE, Latest, NodeSample
from sonde.power.workflows import run_workflow_bus
from sonde.power.workflows.workflow_run import GOING, RUNNING

READY_S, END_S = 30.0, 10.0
RESERVE_S, QUICK_RESERVE_S = 4.0, 2.5  # for starting and stopping daemons, and for saving
# The ports of these domains lie above the ephemeral ports of connections; the bus measurements use domains 1 to 100.
FIRST_DOMAIN, LAST_DOMAIN = 215, 230
_IDENTITY = "demo"
NATIVE_ROLES = ("node-manager", "system-manager")
JOB_ROLES = ("resource-manager", "job-manager", "job-scheduler", "workflow-engine")


def program() -> Path:
    """The path of sonde-powerd.

    Raises
    ------
    EnvironmentFailure  power.not_built.
    """
    path = libexec() / "sonde-powerd"
    if not os.access(path, os.X_OK):
        raise EnvironmentFailure(
            "power.not_built",
            f"there is no sonde-powerd in {path.parent}",
            "'sonde doctor' shows what to install; then 'make setup' builds it",
        )
    return path


def roles() -> list[str]:
    """The roles of this build of sonde-powerd."""
    result = subprocess.run(
        [str(program()), "--list"],
        cwd=place_of_ranks(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )
    with suppress(ValueError):
        return [str(role) for role in json.loads(result.stdout)["roles"]]
    return []


class Daemon:
    """One process of the demo. Its events go to the recorder; its log to a file in the demo's folder."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, recorder: Recorder | None) -> None:
        self.name, self.recorder = name, recorder
        self.ready: dict[str, Any] | None = None
        self.events: list[dict[str, Any]] = []
        self._known = threading.Event()
        self.log = folder / f"{name}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                start_new_session=True,
            )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        stdout: IO[bytes] | None = self.process.stdout
        assert stdout is not None
        for line in stdout:
            with suppress(ValueError, TypeError, KeyError):
                event = json.loads(line)
                self.events.append(event)
                if event["event"] == "ready":
                    self.ready = event
                    self._known.set()
                if self.recorder is not None:
                    self.recorder.event(self.name, str(event["event"]))
        self._known.set()

    def wait_ready(self, seconds: float) -> None:
        """
        Raises
        ------
        EnvironmentFailure  power.daemon_failed.
        """
        self._known.wait(seconds)
        if self.ready is None:
            error_event = next((event for event in self.events if event["event"] == "error"), {})
            last = self.log.read_text("utf-8", "replace").strip().splitlines()[-1:]
            why = str(error_event.get("what") or "".join(last) or f"no message within {seconds:g} s")
            raise EnvironmentFailure(
                "power.daemon_failed", f"{self.name} did not start: {why}", str(error_event.get("hint", ""))
            )

    def kill(self) -> None:
        """Kill it with SIGKILL, as a crash would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(END_S)

    def ask_to_end(self) -> None:
        """End its standard input, as the end of this process would."""
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()

    def stop(self) -> None:
        """Stop it; returns when it is gone, and all its output was read."""
        self.ask_to_end()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                # it began a session, so it has a group of its own
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(END_S)
        self._thread.join(END_S)
        if self.process.stdout is not None:
            with suppress(OSError):
                self.process.stdout.close()


def run(
    out: Path, command: Sequence[str], length_s: float, progress: Progress, began: float, quick: bool = False
) -> Measured:
    """Run the whole demo, within length_s of `began` (time.monotonic), or little more.

    quick: only the managers and the nodes, without monitor, bridge and workflow.

    Raises
    ------
    EnvironmentFailure  power.not_built, power.daemon_failed, core.cannot_write, core.folder_of_others. UsageError
    power.budget_too_short.
    """
    lacking = [role for role in NATIVE_ROLES if role not in roles()]
    if lacking:
        raise EnvironmentFailure(
            "power.not_built",
            f"this build has no {' and no '.join(lacking)}",
            "'sonde doctor' shows what to install",
        )
    reserve = QUICK_RESERVE_S if quick else RESERVE_S
    left = length_s - (time.monotonic() - began) - reserve
    timing = scenario.timing(max(left, scenario.LEAST_S) if quick else left)
    with ExitStack() as stack:
        folder = out.absolute().with_suffix(".demo")
        try:
            make_folder(folder, 0o700)
        except OSError as error:
            raise EnvironmentFailure(
                "core.cannot_write",
                f"cannot make {folder}: {error.strerror}",
                "remove it, or choose another with -o",
            ) from None
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        show = Show(folder, timing, quick)
        request = Request(
            show.stack,
            out,
            command,
            timing.length_s,
            "demo",
            warnings=tuple(show.warnings),
            deadline=within(length_s, began),
        )
        return measure(request, progress, show.play)


class Show:
    """The demo in its folder. warnings: parts that could not be started."""

    def __init__(self, folder: Path, timing: scenario.Timing, quick: bool) -> None:
        self.folder, self.timing, self.quick = folder, timing, quick
        self.warnings: list[Warning] = []
        self._mosquitto = shutil.which(
            "mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
        )
        bridge = "mqtt-bridge" in roles()
        self.with_bridge = bool(self._mosquitto) and bridge and not quick
        if not self.with_bridge and not quick:
            why = "this build has no mqtt-bridge" if not bridge else "mosquitto is not installed"
            self.warnings.append(Warning("power.no_bridge", f"the demo runs without MQTT: {why}", ""))
        self._port = _free_port() if self.with_bridge else 0
        self._loads = [folder / f"load-{name}" for name in scenario.NODES]
        self._set_loads(scenario.LOADS[0])
        # A job manager carries out every order on its bus; with keys only this demo can send orders.
        self._secure = not quick and _has_security()
        if not quick and not self._secure:
            what = "job managers refuse a bus without access control, and no keys can be made here"
            hint = "'sonde doctor' shows which DDS has security; the Python package 'cryptography' makes the keys"
            self.warnings.append(Warning("power.no_jobs", f"the demo runs without jobs: {what}", hint))
        if self._secure:
            run_keys.init(folder / "keys", 2, DOMAINS, "sign")
            run_keys.add(folder / "keys", _IDENTITY, Grant(("*",), ("*",)), 1, None, False)
        if self._secure:
            (folder / "work").write_text(scenario.WORK, "utf-8")
            (folder / "work").chmod(0o755)
            (folder / "demo.toml").write_text(scenario.workflow(timing), "utf-8")
        self._write("power.toml", "monitor")
        (folder / "bus.xml").write_text(_profile(_free_domain(folder), self._secure), "utf-8")
        self.stack: Stack = run_bus.load(folder / "power.toml")

    def _write(self, file: str, name: str, node: int = -1) -> Path:
        broker = f"127.0.0.1:{self._port}" if self.with_bridge else ""
        user = run_state.own_user() if self._secure else ""
        text = scenario.configuration(
            name, self.timing, [str(path) for path in self._loads], node, broker, user
        )
        path = self.folder / file
        path.write_text(text, "utf-8")
        return path

    def _set_loads(self, loads: Sequence[float]) -> None:
        for path, load in zip(self._loads, loads):
            write_whole(path, f"{load}\n".encode())

    def play(self, recorder: Recorder, ended: threading.Event) -> None:
        """Start everything, run the scenario, and stop everything."""
        with ExitStack() as running:

            def start(name: str, command: Sequence[str], recorded: bool = True) -> Daemon:
                daemon = Daemon(name, command, self.folder, recorder if recorded else None)
                running.callback(daemon.stop)
                return daemon

            def powerd(role: str, name: str, config: Path) -> Daemon:
                command = [str(program()), role, "--config", str(config), "--name", name, "--with-parent"]
                return start(name, command)

            if self.with_bridge:
                (self.folder / "mosquitto.conf").write_text(
                    f"listener {self._port} 127.0.0.1\nallow_anonymous true\n", "utf-8"
                )
                # A broker does not watch its standard input: a shell does it instead.
                script = '"$0" -c mosquitto.conf & cat > /dev/null; kill $!; wait $!'
                start("mosquitto", ["/bin/sh", "-c", script, str(self._mosquitto)], recorded=False)
            nodes = [
                powerd("node-manager", name, self._write(f"{name}.toml", name, k))
                for k, name in enumerate(scenario.NODES)
            ]
            managers = {
                name: powerd("system-manager", name, self._write(f"{name}.toml", name))
                for name in (scenario.LEADER,)
            }
            others = []
            for role in () if self.quick else ("monitor", *(JOB_ROLES if self._secure else ())):
                command = ["power", "serve", role, "--config", "power.toml", "--with-parent"]
                others.append(start(role, [*_sonde(), *command]))
            if self.with_bridge:
                others.append(powerd("mqtt-bridge", "bridge", self.folder / "power.toml"))
            for daemon in (*nodes, *managers.values(), *others):
                daemon.wait_ready(READY_S)
            # The standby starts when the first manager leads: of two that start together, chance decides which leads.
            managers[scenario.STANDBY] = powerd(
                "system-manager", scenario.STANDBY, self._write(f"{scenario.STANDBY}.toml", scenario.STANDBY)
            )
            managers[scenario.STANDBY].wait_ready(READY_S)
            with self._workflow(recorder) if self._secure else nullcontext():
                self._happen(recorder, ended, managers[scenario.LEADER])
            for daemon in (*managers.values(), *nodes, *others):
                daemon.ask_to_end()

    @contextmanager
    def _workflow(self, recorder: Recorder) -> Iterator[None]:
        """Context in which the demo's workflow runs; at its end the rest of the workflow is cancelled."""
        called = {"run": scenario.WORKFLOW}
        mine = {**called, "user": run_state.own_user()[:64]}
        path = self.folder / "demo.toml"
        begin = {"order": "RUN_WORKFLOW", **mine, "path": str(path), "text": path.read_text("utf-8")}
        question = {"ask": "GET_WORKFLOW", **called}
        with run_workflow_bus.open_bus(self.stack, "demo workflow") as bus:
            ask = partial(run_workflow_bus.ask, bus, timeout_s=READY_S)
            ask(run_workflow_bus.SET, begin)
            recorder.event(scenario.WORKFLOW, "workflow begins")
            try:
                yield
            finally:
                end = time.monotonic() + END_S
                (state,) = ask(run_workflow_bus.GET, question)
                well = sum(job["state"] == "ended" for job in state["jobs"])
                recorder.event(scenario.WORKFLOW, f"{well} of {state['total']} jobs ended")
                if state["state"] == RUNNING:
                    try:
                        ask(
                            run_workflow_bus.SET,
                            {"order": "CANCEL_WORKFLOW", **mine, "reason": "the demo is over"},
                        )
                    except UsageError as no:
                        if no.code != "power.workflow_over":  # its last job ended meanwhile
                            raise
                while state["state"] in GOING and time.monotonic() < end:
                    time.sleep(0.2)
                    (state,) = ask(run_workflow_bus.GET, question)

    def _happen(self, recorder: Recorder, ended: threading.Event, leader: Daemon) -> None:
        begin, stretch, killed = time.monotonic(), 0, False
        latest, energy = Latest(), dict.fromkeys((name for name, *_ in scenario.JOBS), 0.0)
        before = begin
        with run_bus.open_bus(self.stack, "demo") as bus:
            reader, writer = run_bus.reader(bus, NODE), run_bus.writer(bus, JOB)
            while not ended.wait(self.timing.telemetry_s):
                now = time.monotonic()
                at = now - begin
                if at >= self.timing.length_s:
                    return
                while stretch + 1 < len(self.timing.at_s) and at >= self.timing.at_s[stretch + 1]:
                    stretch += 1
                    if not self._secure:
                        self._set_loads(scenario.LOADS[stretch])
                if not killed and at >= self.timing.kill_s:
                    killed = True
                    leader.kill()
                    recorder.event(leader.name, "killed")
                if self._secure:
                    continue
                for sample in reader.take():
                    if sample.has_data:
                        latest.take(NodeSample.of(sample.value), now)
                self._tell_jobs(writer, latest, energy, stretch, now - before)
                before = now

    def _tell_jobs(
        self, writer: Any, latest: Latest, energy: dict[str, float], stretch: int, elapsed_s: float
    ) -> None:
        """Jobs of the demo are loads of simulated nodes: it reports for them the values of their nodes."""
        for name, nodes, first, last in scenario.JOBS:
            if stretch < first:
                continue
            known = [latest.nodes[node].power_w for node in nodes if node in latest.nodes]
            power = scenario.job_power(known) if len(known) == len(nodes) else float("nan")
            running = stretch < last
            if running and power == power:
                energy[name] += power * elapsed_s
            writer.write(
                job=name,
                user="demo",
                name=name,
                at_ns=time.time_ns(),
                nodes=list(nodes),
                power_w=power if running else 0.0,
                energy_j=energy[name],
                iteration_s=float("nan"),
                progress=float("nan"),
                state="running" if running else "ended",
            )


def _sonde() -> list[str]:
    # -P: the daemons work in the demo's folder, which must not be where Python looks for modules.
    return [sys.executable, "-P", "-c", "from sonde.cli.entry import main; main()"]


def _has_security() -> bool:
    """Whether the default bus can restrict access to participants with keys."""
    from sonde._bus import caps, implementations

    known = [name for name in implementations() if name != "null"]
    return bool(known) and bool(caps(known[0])["security"]) and find_spec("cryptography") is not None


def _profile(domain: int, secure: bool = False) -> str:
    security = f'<security folder="keys" identity="{_IDENTITY}"/>' if secure else ""
    return (
        f'<sonde-bus version="1"><profile name="default" domain="{domain}">{security}</profile></sonde-bus>\n'
    )


def _free_domain(folder: Path) -> int:
    """A domain that no participant uses, as far as a short check can show."""
    from sonde.bus import client as bus

    domain = 0
    for _ in range(5):
        domain = FIRST_DOMAIN + secrets.randbelow(LAST_DOMAIN - FIRST_DOMAIN + 1)
        with bus.open_text(_profile(domain), folder=folder) as here:
            time.sleep(0.3)
            if not here.peers():
                return domain
    return domain


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

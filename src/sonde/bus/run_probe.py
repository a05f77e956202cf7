"""Run sonde-busprobe and seal its records; list the participants of a bus with it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sonde.bus.plan import Host, Plan
from sonde.bus.schema import SAMPLES
from sonde.bus.sealing import SCHEMA
from sonde.bus.variants import RAW
from sonde.core import launch
from sonde.core.deadline import within
from sonde.core.errors import EnvironmentFailure, SondeError, from_code
from sonde.core.events import Event, Progress
from sonde.core.events import parse as parse_event
from sonde.core.launch import session
from sonde.core.launch.measured import Measured
from sonde.core.launch.mpirun import split_slots
from sonde.core.launch.process import without_log
from sonde.core.launch.session import Job
from sonde.core.launch.start import prepare_alone
from sonde.core.surroundings import place_of_ranks

PROBE = "sonde-busprobe"
CHECK_S = 30.0
CHECK_HOST_S = 15.0  # additional time for each host on which programs are started
ABSENT, LEFT_OUT = "bus.variant_absent", "bus.case_left_out"
MOST_FAILED = 8  # failed cases that are named; further ones are only counted
# Fields that only the start event of a probe with MPI has.
ALONE: Mapping[str, Any] = {"ranks": 1, "mpi": "no MPI", "mpi_version": "", "oversubscribed": False}
NOT_BUILT = "'sonde doctor' says what to install; then 'make setup' builds it"


def program() -> Path:
    """The probe's path. EnvironmentFailure  bus.not_built."""
    path = launch.libexec() / PROBE
    if not os.access(path, os.X_OK):
        raise EnvironmentFailure("bus.not_built", "this build of Sonde has no data bus", NOT_BUILT)
    return path


def hosts_of(launcher: str, names: Sequence[str]) -> tuple[tuple[Host, ...], str]:
    """The hosts on which programs run, each with the command that starts one there, and the launcher's name.

    launcher: its name, or "auto". names: expanded; without names all programs run on this machine.

    Raises
    ------
    UsageError  launch.unknown, launch.local_hosts. EnvironmentFailure: the launcher is not installed.
    """
    start = launch.launcher(launcher if names else "local")
    lines = start.per_host([], names) if names else []
    if len(lines) != len(names):  # this launcher starts everything on this machine
        lines = [list(lines[0]) for _ in names]
    return tuple(Host(split_slots(name)[0], tuple(line)) for name, line in zip(names, lines)), start.name


def check(plan: Plan) -> list[Event]:
    """The events of a check by the probe: are the variants and cases valid and available? Nothing is measured.

    Raises
    ------
    SondeError: the error that the probe reported: bus.unknown_implementation names the package to install.
    EnvironmentFailure  bus.not_built, bus.probe_died.
    """
    timeout_s = CHECK_S + CHECK_HOST_S * len(plan.hosts)
    return _asked([str(program()), "check", *plan.cells_argv()], timeout_s)


def participants(variant: str, domain: int | None, seconds: float) -> dict[str, Any]:
    """The participants that discovery finds on a bus: {"domain", "implementation", "participants", "endpoints"}.

    variant: as sonde-busprobe takes it, "ls=cyclonedds"; "" for its default.

    Raises
    ------
    As `check`.
    """
    command = [str(program()), "list", "--seconds", f"{seconds:g}"]
    command += ["--variant", variant] if variant else []
    command += ["--domain", str(domain)] if domain is not None else []
    for event in _asked(command, seconds + CHECK_S, plain=True):
        if "participants" in event:
            return dict(event)
    raise EnvironmentFailure("bus.probe_died", f"{PROBE} did not list the participants", NOT_BUILT)


def _asked(command: Sequence[str], timeout_s: float = CHECK_S, plain: bool = False) -> list[Event]:
    """The objects that the probe prints. plain: accept objects that are not events."""
    try:
        ran = subprocess.run(
            command,
            cwd=place_of_ranks(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentFailure(
            "bus.probe_died", f"{PROBE} did not answer: {error}", "build it again with 'make setup'"
        ) from None
    found: list[Event] = []
    for line in ran.stdout.splitlines():
        event = parse_event(line) or (_object(line) if plain else None)
        if event is None:
            continue
        if event.get("event") == "error":
            raise from_code(str(event.get("code")), str(event.get("what")), str(event.get("hint", "")))
        found.append(event)
    if ran.returncode and not found:
        error_lines = ran.stderr.strip().splitlines()
        raise EnvironmentFailure(
            "bus.probe_died",
            f"{PROBE} ended with exit status {ran.returncode}",
            error_lines[-1] if error_lines else "build it again with 'make setup'",
        )
    return found


def _object(line: str) -> Event | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def require(plan: Plan) -> None:
    """Check, before anything starts, that at least one of the variants that the user named is available.

    Raises
    ------
    EnvironmentFailure  bus.no_implementation: what to install; an error in keys or a profile; and as `check`.
    """
    asked = tuple(variant for variant in plan.variants if variant.asked)
    if not asked:
        return
    cases = tuple(case for case in plan.cases if any(variant.takes(case) for variant in asked))
    events = check(replace(plan, variants=asked, cases=cases))
    absent = {str(event.get("variant")): event for event in events if event.get("code") == ABSENT}
    real = [variant.name for variant in plan.variants if variant.implementation != RAW]
    if absent and all(name in absent for name in real):
        # The user's own mistake is more helpful to report than a missing package.
        mistakes = [name for name in real if absent[name].get("why") != "bus.unknown_implementation"]
        raise none_there(absent[(mistakes or real)[0]])


def none_there(event: Event) -> SondeError:
    """The error if only raw transports are available, and no bus. event: the warning about the last variant; its `why`
    is the code of the cause.
    """
    why = str(event.get("why", ""))
    if why in ("", "bus.unknown_implementation"):
        why = "bus.no_implementation"
    return from_code(why, str(event["evidence"]), str(event.get("hint", "")))


class Listener(session.Listener):
    """Handles the events of sonde-busprobe.

    variants: the variants that are a bus. If none of these is available, the run ends: raw transports alone give no
    result about a bus. unwanted: prefixes of messages about cells that the plan excludes.
    """

    room = "bus"
    sample_kinds = (SAMPLES,)
    dropped = ("records", "a coarser --precision (such as 5 %) or a shorter --epoch-length needs less space")
    patience = "raise --timeout for very many participants"
    who = "the probe was"

    def __init__(
        self, progress: Progress, variants: Collection[str] = (), unwanted: Collection[str] = ()
    ) -> None:
        super().__init__(progress)
        self.failed = 0
        self.hosts: list[
            dict[str, str]
        ] = []  # for several hosts: name in the host list, own host name, address
        self.awaited = set(variants)
        self.none: SondeError | None = None  # the error that was raised because no variant is available
        self.unwanted = tuple(unwanted)

    def take(self, event: Event) -> None:
        if event["event"] == "start":
            event = {**ALONE, **event}
        failed = event["event"] == "warning" and event.get("code") == "bus.case_failed"
        self.failed += failed
        if event.get("code") == LEFT_OUT and str(event["evidence"]).startswith(self.unwanted):
            return
        if failed and self.failed > MOST_FAILED:
            self.progress.show(event)
            return
        if event["event"] == "host":
            self.hosts.append({name: str(event[name]) for name in ("name", "host", "address")})
        if event["event"] == "error":
            self.progress.show(event)
            self.error = from_code(str(event["code"]), str(event["what"]), str(event["hint"]))
            return
        super().take(event)
        if event.get("code") == ABSENT and str(event.get("variant")) in self.awaited:
            self.awaited.discard(str(event["variant"]))
            if not self.awaited and not self.interrupted:
                self.none = none_there(event)
                raise self.none
        self.attrs.pop("mpi_library", None)  # this probe does not use MPI
        if event["event"] == "start" and "namespace" in event:
            self.attrs["counters_of"] = str(event["namespace"])
        if event["event"] == "variant" and self.hosts and "hosts" not in self.attrs:
            self._record_hosts()
        if event["event"] == "end" and self.failed > MOST_FAILED:
            self.warn(
                "case_failed",
                f"and {self.failed - MOST_FAILED} more cells failed",
                "see the cells named above",
            )

    def _record_hosts(self) -> None:
        """Record the hosts and the number of machines, by their own host names. All hosts have reported by now."""
        machines = dict.fromkeys(one["host"] for one in self.hosts)
        self.attrs["hosts"] = len(machines)
        self.attrs["host_addresses"] = ", ".join(f"{one['name']} {one['address']}" for one in self.hosts)
        if len(machines) == 1:
            names = ", ".join(one["name"] for one in self.hosts)
            evidence = (
                f"{names} are the same machine, {self.hosts[0]['host']}: nothing was measured between hosts"
            )
            self.warn("one_machine", evidence, "name other hosts with --hosts")


@dataclass(frozen=True)
class Request:
    """The plan of a measurement and its dataset.

    command: as the user typed it. budget_s: time for the whole run since `began` (time.monotonic).
    """

    plan: Plan
    out: Path
    command: tuple[str, ...]
    budget_s: float
    began: float
    timeout_s: float = 60.0

    def left_s(self) -> float:
        """The time left for measuring."""
        return self.plan.measuring_s(self.budget_s - (time.monotonic() - self.began))

    def line(self, run_dir: Path) -> list[str]:
        """The command line of the probe, for a dry run."""
        return [str(prepare_alone("bus", PROBE).program), *self.plan.argv(str(run_dir), self.left_s())]


def measure(request: Request, progress: Progress) -> Measured:
    """Measure, and seal the result even if the run ended early. progress: shows the events.

    Raises
    ------
    As `session.run`; EnvironmentFailure  bus.no_implementation: what to install; no dataset is left behind.
    """
    plan = request.plan
    unwanted = [f"{v.name}, {case.spec}: " for v in plan.variants for case in plan.cases if not v.takes(case)]
    real = [variant.name for variant in plan.variants if variant.implementation != RAW]
    listener = Listener(progress, real, unwanted)
    job = Job(
        schema=SCHEMA,
        start=prepare_alone("bus", PROBE),
        ntasks=1,
        words=plan.argv,
        plan=plan.document(),
        out=request.out,
        command=request.command,
        seed=plan.seed,
        time_s=request.left_s,
        deadline=within(request.budget_s, request.began),
        timeout_s=request.timeout_s,
        attrs=plan.labels(),
        warnings=plan.warnings(),
    )
    try:
        return session.run(job, listener)
    except SondeError as failed:
        if failed is listener.none:  # only raw transports can have results
            session.forget(job.run_dir)
            without_log(failed)
        raise


def newest(folder: Path) -> Path | None:
    """The newest dataset of this room in a folder, by the time in its name, else by the time of the file."""

    def age(path: Path) -> tuple[str, float]:
        stamp = re.search(r"-(\d{8}T\d{6}Z)-", path.name)
        return (stamp[1] if stamp else "", path.stat().st_mtime)

    return max(folder.glob("bus*.nc"), key=age, default=None)

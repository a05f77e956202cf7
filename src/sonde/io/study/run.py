"""`sonde io study`: run benchmarks with the tracer and without, in mixed order, and make one dataset of all runs."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from sonde import _core
from sonde.core import disk, launch, provenance, run_folder, seal
from sonde.core.deadline import within
from sonde.core.errors import (
    DataError,
    EnvironmentFailure,
    Interrupted,
    SondeError,
    UsageError,
    Warning,
    nearest,
    reason_not_written,
)
from sonde.core.interrupt import signals
from sonde.core.launch import session
from sonde.core.launch.measured import Measured
from sonde.core.launch.mpirun import Mpi
from sonde.core.launch.start import Start, mpi_environment
from sonde.core.owned_files import make_folder
from sonde.core.surroundings import place_of_ranks
from sonde.io.maps.layers import Layer
from sonde.io.record import run_command, run_request, run_trace
from sonde.io.study import analyse, ior_output, run_limits
from sonde.io.study import plan as study_plan
from sonde.io.study.plan import Cell, Plan, Step
from sonde.io.study.schema import FIELDS, LIMITS, RECORD
from sonde.io.study.sealing import StudySchema
from sonde.io.trace import hints
from sonde.io.trace.schema import NAME

if TYPE_CHECKING:
    from sonde.cluster import Cluster
    from sonde.core.events import Progress

LOAD = "sonde-ioload"
FAILURES = (
    2  # of a cell, one after the other, after which it is left out; so with the tracer, or without, alone
)
MIDDLE = {"romio": "ROMIO", "ompio": "OMPIO"}  # layers that an --io must have called
_MOST_BYTES = 256 << 20  # of one trace


@dataclass(frozen=True)
class Request:
    """A study. start: how ranks are started here. keep: folder for a trace of each cell; None: none is stored.

    warnings: about the plan. limit_s: time limit of one run. budget_s: time limit of the study since `began`
    (time.monotonic).
    """

    plan: Plan
    start: Start
    layers: Sequence[Layer]
    out: Path
    command: Sequence[str]
    budget_s: float
    began: float
    limit_s: float = 600.0
    keep: Path | None = None
    warnings: Sequence[Warning] = ()


def components(mpi: Mpi | None) -> tuple[str, ...]:
    """Open MPI's components for MPI-IO, from ompi_info; () for another MPI, or if it does not list them."""
    if mpi is None or mpi.flavour != "openmpi":
        return ()
    program = mpi.mpirun.with_name("ompi_info")
    words = [str(program if program.exists() else "ompi_info"), "--parsable", "--param", "io", "all"]
    try:
        ran = subprocess.run(
            words,
            cwd=place_of_ranks(),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = re.findall(r"^mca:io:(\w+):version:", ran.stdout, re.M)
    return tuple(dict.fromkeys(name for name in found if name != "base"))


def check_components(asked: Sequence[str], mpi: Mpi | None) -> None:
    """Refuse components that this MPI does not have.

    Raises
    ------
    UsageError  io.no_component.
    """
    named = [name for name in asked if name != study_plan.NO_IO]
    if not named:
        return
    if mpi is None or mpi.flavour != "openmpi":
        raise UsageError(
            "io.no_component",
            f"{mpi or 'this MPI'} has no choice of components for MPI-IO, but --io {','.join(named)} was "
            "given",
            "leave --io out, or use Open MPI: SONDE_MPI=openmpi",
        )
    existing = components(mpi)
    for name in named:
        if existing and name not in existing:
            raise UsageError(
                "io.no_component",
                f"{mpi} has no component '{name}' for MPI-IO{nearest(name, existing)}; it has: "
                f"{', '.join(existing)}",
                f"give --io {','.join(existing)}",
            )


def check_places(places: Sequence[Path], needed: int) -> None:
    """Refuse a place that is no folder, is not writable, or has no room for one run.

    Raises
    ------
    UsageError  io.bad_place. EnvironmentFailure  core.cannot_write, core.disk_full.
    """
    for place in places:
        if not place.is_dir():
            problem = "is not a folder" if place.exists() else "does not exist"
            raise UsageError(
                "io.bad_place", f"--place {place} {problem}", "name a folder on the file system to measure"
            )
        try:
            with tempfile.TemporaryFile(dir=place):
                pass
        except OSError as error:
            raise EnvironmentFailure(
                "core.cannot_write",
                f"cannot write in {place}: {reason_not_written(error)}",
                "choose another --place",
            ) from None
        free = shutil.disk_usage(place).free
        if free < needed + (64 << 20):
            from sonde.core.units import format_size

            raise EnvironmentFailure(
                "core.disk_full",
                f"{place} has {format_size(free)} free, but a run writes {format_size(needed)}",
                "give a smaller --size, or another --place",
            )


def check_clusters(names: Sequence[str]) -> None:
    """Refuse a cluster that is not up, or that the user may not enter. Errors of `Cluster.find`."""
    wanted = [name for name in dict.fromkeys(names) if name]
    if wanted:
        from sonde.cluster import Cluster
        from sonde.cluster.run import check_here

        check_here()
        for name in wanted:
            Cluster.find(name)


@dataclass(frozen=True)
class Line:
    """The start of a cell's benchmark: variables for its ranks, its words, where its results are written."""

    env: Mapping[str, str]
    words: tuple[str, ...]
    hints_text: str
    results: Path | None  # None: on stdout


def line_of(cell: Cell, plan: Plan, start: Start, folder: Path) -> Line:
    """A cell's command, without a launcher. folder: of the run, for files that are not measured."""
    words = study_plan.sized(cell.workload, cell.size, plan.ntasks)
    load = cell.workload.kind != "real"
    env, text = hints.environment(cell.stack.io, dict(cell.stack.hints), load, str(folder / "hints"))
    if not load:
        return Line(env, words, text, None)
    results = folder / "results.json"
    first = ("--bt-io",) if cell.workload.kind == "bt-io" else ()
    shown = ("-H",) if cell.stack.hints else ()  # for `check_hints`
    return Line(
        env, (str(start.program), *first, *words, *shown, "-o", "data", "--json", str(results)), text, results
    )


def started(
    line: Line,
    cell: Cell,
    plan: Plan,
    start: Start,
    more: Mapping[str, str],
    cluster: Cluster | None,
    cwd: str,
) -> list[str]:
    """The words that start a cell's ranks. more: the tracer's variables. cwd: where the benchmark's files go."""
    env = {**line.env, **more}
    if cluster is None:
        return start.launcher.command(list(line.words), start.hosts, plan.ntasks, env)
    from sonde.cluster import mpi

    assert start.mpi is not None
    program = launch.with_environment(line.words, env)
    hosts = [cluster.hostname(node) for node in cluster.plan.nodes]
    return cluster.enter(0, mpi.line(start.mpi, program, hosts, plan.ntasks), cwd)


class _Study:
    """A study under way."""

    def __init__(self, request: Request, run_dir: Path, progress: Progress) -> None:
        self.request, self.plan, self.run_dir, self.progress = request, request.plan, run_dir, progress
        self.warnings = list(request.warnings)
        self.took: dict[tuple[int | None, bool, tuple[str, str]], list[float]] = {}
        self.failed = dict.fromkeys(range(len(self.plan.cells)), 0)
        self.failed_so = {(cell, traced): 0 for cell in self.failed for traced in (True, False)}
        self.words: dict[int, str] = {}  # the last output of a failed cell
        self.interrupted = False
        self.files = self.done = self.good = 0
        self.clusters: dict[str, Cluster] = {}
        self.kept: set[int] = set()

    def run(self) -> str:
        """Measure until all is done; returns the reason of the end."""
        deadline = self.request.began + self.request.budget_s
        for number in range(self.plan.rounds):
            steps = [step for step in self.plan.round(number) if not self.left_out(step)]
            if all(step.cell is None for step in steps):
                return "failed"
            # An incomplete round compares nothing: except for the first, a round begins only if it fits into the
            # budget.
            if number and time.monotonic() + sum(map(self.expected_s, steps)) > deadline:
                return "budget"
            for step in steps:
                if self.interrupted:
                    return "interrupted"
                if self.left_out(step):
                    continue
                if self.good and time.monotonic() + self.expected_s(step) > deadline:
                    return "budget"
                self.show(number)
                began = time.monotonic()
                if step.cell is None:
                    self.limit(step)
                else:
                    self.cell(step, self.plan.cells[step.cell])
                if self.interrupted:
                    return "interrupted"
                self.done += 1
                key = (step.cell, step.traced, step.limit)
                self.took.setdefault(key, []).append(time.monotonic() - began)
        return "repetitions"

    def left_out(self, step: Step) -> bool:
        if step.cell is None:
            return False
        return max(self.failed[step.cell], self.failed_so[step.cell, step.traced]) >= FAILURES

    def expected_s(self, step: Step) -> float:
        seen = self.took.get((step.cell, step.traced, step.limit))
        return float(np.median(seen)) if seen else study_plan.rough_s(self.plan, step)

    def show(self, number: int) -> None:
        everything = sum(len(self.plan.round(one)) for one in range(self.plan.rounds))
        self.progress.show(
            {
                "event": "progress", "done": self.done, "active": 1, "steps": everything, "decided": self.done,
                "cells": everything, "epoch": number + 1, "samples": self.files,
                "elapsed_s": time.monotonic() - self.request.began,
            }
        )  # fmt: skip

    def ask(self, _signal: int, _frame: Any) -> None:
        self.interrupted = True

    def write(self, head: dict[str, Any], records: np.ndarray) -> None:
        """Write a finished run's block file, in one step."""
        path = self.run_dir / f"{head['what']}-{self.files:05}.blk"
        part = path.with_suffix(".part")
        try:
            writer = _core.BlockWriter(str(part), json.dumps(FIELDS | head), records.itemsize, len(records))
            writer.append(records)
            writer.flush()
            writer.close()
            part.replace(path)
        except OSError as error:
            raise disk.cannot_write(path, error, "free space there, or choose another --output") from None
        self.files += 1

    def warn(self, code: str, evidence: str, hint: str) -> None:
        warning = Warning(code, evidence, hint)
        if warning not in self.warnings:
            self.warnings.append(warning)

    def limit(self, step: Step) -> None:
        """Measure a place's disk or a cluster's network alone."""
        place, cluster = step.limit
        try:
            found = (
                run_limits.disk(Path(place), self.plan.ntasks)
                if place
                else run_limits.network(self.cluster(cluster))
            )
        except SondeError as error:
            self.warn(error.code, error.what, error.hint)
            return
        for one in found:
            head = {
                "what": "limit",
                "limit_place": place,
                "limit_cluster": cluster,
                "limit_what": LIMITS.index(one.what),
                "limit_by": one.by,
                "limit_round": step.round,
                "limit_rate": one.rate,
            }
            self.write(head, analyse.whole_run(0.0))

    def cluster(self, name: str) -> Cluster:
        from sonde.cluster import Cluster

        if name not in self.clusters:
            self.clusters[name] = Cluster.find(name)
        return self.clusters[name]

    def cell(self, step: Step, cell: Cell) -> None:
        """Run a cell once."""
        assert step.cell is not None
        for name in ("results.json", "out", "err", "hints"):
            (self.run_dir / name).unlink(missing_ok=True)
        line = line_of(cell, self.plan, self.request.start, self.run_dir.resolve())
        if line.hints_text:
            (self.run_dir / "hints").write_text(line.hints_text)
        cluster = self.cluster(cell.cluster) if cell.cluster else None
        around: Mapping[str, str] = os.environ if cluster is None else cluster.environment(os.environ)
        began = time.monotonic()
        functions: list[tuple[str, str, int]] = []
        records = np.zeros(0, RECORD)
        with (
            tempfile.TemporaryDirectory(
                prefix=run_limits.prefix("study"), dir=cell.place, ignore_cleanup_errors=True
            ) as folder,
            (self.run_dir / "out").open("wb") as out,
            (self.run_dir / "err").open("wb") as err,
        ):

            def start(more: Mapping[str, str]) -> list[str]:
                return started(line, cell, self.plan, self.request.start, more, cluster, folder)

            if step.traced:
                status, length, functions, records = self.traced(
                    step.cell, start, around, Path(folder), out, err
                )
            else:
                status, asked = run_command.run(
                    start({}), around, out, err, subprocess.DEVNULL, Path(folder), self.request.limit_s
                )
                self.interrupted |= asked
                length = time.monotonic() - began
        self.log(cell)
        if self.interrupted:
            return
        rates = ior_output.Rates()
        if status == 0:
            try:
                results = self.results(line)
                rates = ior_output.rates(results)
                self.check_hints(cell, results)
            except (SondeError, OSError, ValueError) as error:
                status = 1
                self.words[step.cell] = (
                    error.what if isinstance(error, SondeError) else f"no results: {error}"
                )
        if status:
            self.failed_so[step.cell, step.traced] += 1
            self.fail(step, cell, status)
        else:
            self.failed[step.cell] = self.failed_so[step.cell, step.traced] = 0
            self.good += 1
        head = {
            "what": "run",
            "run_cell": step.cell,
            "run_round": step.round,
            "run_traced": int(step.traced),
            "run_status": status,
            "run_begin": began - self.request.began,
            "run_length": length,
            "run_io": rates.io_s,
            "run_write": rates.write,
            "run_read": rates.read,
            "functions": functions,
        }
        self.write(head, np.concatenate([analyse.whole_run(length), records]))

    def results(self, line: Line) -> dict[str, Any]:
        if line.results is not None:
            return dict(json.loads(line.results.read_text()))
        return ior_output.parse((self.run_dir / "out").read_text("utf-8", "replace"))

    def traced(
        self,
        number: int,
        start: Callable[[Mapping[str, str]], list[str]],
        around: Mapping[str, str],
        folder: Path,
        out: IO[Any],
        err: IO[Any],
    ) -> tuple[int, float, list[tuple[str, str, int]], np.ndarray]:
        """Status, time, and the functions in the trace. A trace for --keep-traces is stored there."""
        import sonde

        keep = self.request.keep if number not in self.kept else None
        path = self.run_dir / "trace.nc" if keep is None else keep / f"cell-{number:02}.nc"
        request = run_request.Request(
            start({}), self.request.layers, path, _MOST_BYTES, self.request.command,
            start=start, env=around, cwd=folder, limit_s=self.request.limit_s,
        )  # fmt: skip
        try:
            done = run_trace.trace(request, out, errors=err)
        except Interrupted:
            self.interrupted = True
            return 130, 0.0, [], np.zeros(0, RECORD)
        except EnvironmentFailure as error:
            if error.code != "io.nothing_traced":
                raise
            self.words[number] = error.what
            return 1, 0.0, [], np.zeros(0, RECORD)
        length = done.length_s
        self.interrupted |= done.asked
        if done.status or done.asked:
            path.unlink(missing_ok=True)
            return done.status or 130, length, [], np.zeros(0, RECORD)
        with sonde.open(path) as tree:
            if "summary" not in tree.children:
                raise DataError("core.no_summary", f"{path} has no /summary", "look at its warnings")
            summary = tree["summary"].to_dataset().load()
            functions, records = analyse.functions_of(
                summary, tree["raw"].to_dataset(), str(folder.resolve())
            )
        known_codes = {warning.code for warning in self.warnings}  # the next trace has the same warnings
        for warning in done.file.warnings:
            if warning.code not in known_codes:
                self.warn(warning.code, warning.evidence, warning.hint)
        self.check_stack(self.plan.cells[number], {layer for layer, _, _ in functions})
        if keep is None:
            path.unlink(missing_ok=True)
        else:
            self.kept.add(number)
        return 0, length, functions, records

    def check_stack(self, cell: Cell, layers: set[str]) -> None:
        """Check whether the chosen component did the work: an MPI may use another one without a message."""
        wanted = next((layer for layer in MIDDLE if cell.stack.io.startswith(layer)), None)
        if wanted and "mpiio" in layers and wanted not in layers:
            self.warn(
                "io.other_stack",
                f"{cell.stack.io} was requested, but none of its functions was called under MPI-IO",
                "its library may hide them: sonde io layers check; or the MPI used another component",
            )

    def check_hints(self, cell: Cell, results: Mapping[str, Any]) -> None:
        """Check whether the file had the given hints: an MPI may ignore or change them without a message."""
        given = dict(cell.stack.hints)
        options = results.get("options")
        of_file = options.get("hints_of_file") if isinstance(options, Mapping) else None
        for name, value in hints.not_taken(given, of_file or {}).items():
            self.warn(
                "io.hint_not_taken",
                f"{cell.stack.io}: {name}={given[name]} was given, and the open file has {name}={value}",
                f"read these cells as measured with {name}={value}",
            )

    def log(self, cell: Cell) -> None:
        """Append the benchmark's stderr to the log."""
        with suppress(OSError), (self.run_dir / "log").open("a") as log:
            log.write(f"--- {cell.benchmark}: {cell.stack.name}\n")
            log.write((self.run_dir / "err").read_text("utf-8", "replace"))

    def fail(self, step: Step, cell: Cell, status: int) -> None:
        number = step.cell
        assert number is not None
        self.failed[number] += 1
        messages = [
            line.strip()
            for name in ("err", "out")
            for line in (self.run_dir / name).read_text("utf-8", "replace").splitlines()
            if re.search(r"error|cannot|fail|refused|not allowed|no such|denied", line, re.IGNORECASE)
        ]
        message = messages[0] if messages else self.words.get(number, "it printed no message")
        how = (
            f"did not end within {self.request.limit_s:g} s, and was killed"
            if status == run_command.TOO_LONG
            else f"ended with exit status {status}"
        )
        self.words[number] = message
        self.warn(
            "io.run_failed",
            f"{cell.benchmark}, {cell.stack.name}{f' on {cell.cluster}' if cell.cluster else ''}: "
            f"a run {'with' if step.traced else 'without'} the tracer {how}: "
            f"{message[:300]}",
            "try its command alone: --dry-run shows it",
        )


def measure(request: Request, progress: Progress) -> Measured:
    """Run the study, and make its dataset, however the study ended.

    Raises
    ------
    EnvironmentFailure  io.nothing_measured, core.cannot_write, core.disk_full, core.folder_of_others.
    Interrupted  before there was a run.
    """
    run_dir, plan = run_folder.folder_of(request.out), request.plan
    clusters = [name for name in dict.fromkeys(cell.cluster for cell in plan.cells) if name]
    if request.keep is not None:
        try:
            make_folder(request.keep, parents=True, exist_ok=True, option="--keep-traces")
        except OSError as error:
            raise disk.cannot_write(request.keep, error, "choose another --keep-traces") from None
    facts = {
        "run_id": secrets.token_hex(8),
        "launcher": request.start.launcher.name,
        "file_systems": [
            f"{place}: {run_limits.file_system(Path(place))}"
            for place in dict.fromkeys(c.place for c in plan.cells)
        ],
        "clusters": ", ".join(clusters) or "none",
        "rounds_asked": plan.rounds,
    }
    begin = partial(
        run_folder.start,
        run_dir,
        room="io",
        schema=NAME,
        attrs=provenance.attrs(
            command=request.command,
            seed=plan.seed,
            hostlist=request.start.hostlist or socket.gethostname(),
            mpi=request.start.mpi,
        )
        | facts,
        plan=plan.as_json(),
        env=mpi_environment(os.environ),
    )
    with session.unless_interrupted(run_dir, "io", begin) as made, run_folder.hold(run_dir, made) as held:
        for place in dict.fromkeys(cell.place for cell in plan.cells):
            run_limits.sweep(Path(place))
        study = _Study(request, run_dir, progress)
        broken: SondeError | None = None
        try:
            with signals(study.ask), progress:
                stop_reason = study.run()
        except SondeError as failed:
            stop_reason, broken = "failed", failed
        if not study.good:
            session.forget(run_dir)
            if broken is not None:
                raise broken
            if study.interrupted:
                raise session.interrupted("io")
            raise _nothing(study)
        with session.saving(run_dir, "io") as asked:
            files = seal.seal(
                run_dir,
                request.out,
                StudySchema(),
                attrs={"stop_reason": stop_reason, "elapsed_s": time.monotonic() - request.began},
                warnings=study.warnings,
                held=held,
                progress=asked.leave,
                deadline=within(request.budget_s, request.began),
            )
    return Measured(files, stop_reason, study.interrupted or asked.came, broken)


def _nothing(study: _Study) -> EnvironmentFailure:
    reason = next(
        (message for message in study.words.values() if message), "its budget was too short for one run"
    )
    return EnvironmentFailure(
        "io.nothing_measured",
        f"no run of the study succeeded: {reason}",
        "try its command alone: --dry-run shows it",
    )

"""Visits the rooms, and writes the report. Touches the machine only through the rooms' own run modules."""

from __future__ import annotations

import secrets
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from sonde.core.errors import EnvironmentFailure, Interrupted, SondeError
from sonde.core.events import Progress
from sonde.survey.rooms import RoomResult

Bar = Callable[[str, float | None], Progress]

# Message lengths of the quick form: one below, at and above where MPIs change protocol.
NET_SIZES = (8, 256, 1024, 4096, 16384, 65536, 262144)
NET_MODES = "one_to_one,all_to_all"


def here() -> str:
    """This host's name, for titles."""
    return socket.gethostname()


def survey(
    folder: Path,
    *,
    launcher: str,
    hosts: str | None,
    ntasks: int | None,
    budget_s: float,
    began: float,
    seed: int | None,
    bar: Bar,
) -> list[RoomResult]:
    """Visits every room. What a room lacks is its result, not an error.

    Raises
    ------
    EnvironmentFailure  core.cannot_write: the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFailure(
            "core.cannot_write",
            f"cannot make the folder {folder}: {error.strerror}",
            "choose another with --output",
        ) from error
    return [_net(folder, launcher, hosts, ntasks, budget_s, began, seed, bar)]


def _net(
    folder: Path,
    launcher: str,
    hosts: str | None,
    ntasks: int | None,
    budget_s: float,
    began: float,
    seed: int | None,
    bar: Bar,
) -> RoomResult:
    from sonde.core import hostlist
    from sonde.core.launch.start import default_ntasks, prepare
    from sonde.net import run as net
    from sonde.net.modes import read_modes
    from sonde.net.plan import Plan, gap_for

    try:
        start = prepare("net", "sonde-net", launcher, hostlist.expand(hosts) if hosts else ())
        plan = Plan(
            modes=read_modes(NET_MODES),
            sizes=NET_SIZES,
            ntasks=default_ntasks() if ntasks is None else ntasks,
            seed=secrets.randbits(32) if seed is None else seed,
            gap_s=gap_for(budget_s),
        )
        request = net.Request(plan, start, folder / "net.nc", ("sonde", *sys.argv[1:]), budget_s, began)
        measured = net.measure(request, bar("survey: net", budget_s))
    except Interrupted:
        with suppress(OSError):  # somebody keeps something there
            folder.rmdir()
        raise
    except SondeError as error:
        return RoomResult("net", skipped=error.what, hint=error.hint)
    result = read_net(measured.paths)
    result.interrupted = measured.interrupted
    if measured.error is not None:
        result.skipped, result.hint = measured.error.what, measured.error.hint
    return result


def read_net(paths: Sequence[Path]) -> RoomResult:
    """What datasets of the net room come to."""
    import sonde
    from sonde.core import dataset
    from sonde.net import verdict
    from sonde.net.figures import summary_of

    result = RoomResult("net", datasets=list(paths))
    for path in paths:
        with sonde.open(path) as tree:
            summary = summary_of(tree).load()
            result.sound &= verdict.sound(summary)
            result.findings += verdict.findings(summary, str(path))
            result.lines.append(f"{tree.attrs['mode']}: {verdict.sentence(summary, str(path))}")
            result.complete &= bool(tree.attrs.get("complete", 1))
            result.warnings += [w for w in dataset.warnings_of(tree) if w not in result.warnings]
    result.verdict = result.lines[0] if result.lines else "nothing was measured"
    return result


def compare(results: list[RoomResult], against: Path | None) -> None:
    """Adds to each room's findings what is worse than in an earlier survey's folder.

    Raises
    ------
    DataError  core.no_such_file: the folder holds no dataset of a room.
    """
    if against is None:
        return
    import sonde
    from sonde.core import dataset
    from sonde.net import limits
    from sonde.net.figures import summary_of

    for result in results:
        for path in result.datasets:
            with sonde.open(against / path.name) as before, sonde.open(path) as now:
                machine = (dataset.attrs(before), dataset.attrs(now))
                names = (str(against / path.name), str(path))
                result.findings += limits.diff(
                    summary_of(before).load(), summary_of(now).load(), names, machine=machine
                ).findings


def write_report(folder: Path, results: Sequence[RoomResult], title: str) -> Path:
    """report.html in the folder, from all datasets.

    Raises
    ------
    EnvironmentFailure  core.cannot_write, core.disk_full.
    """
    from contextlib import ExitStack
    from datetime import UTC, datetime

    import sonde
    from sonde.report import collect, publish

    target = folder / "report.html"
    with ExitStack() as opened:
        trees = {}
        for path in (path for result in results for path in result.datasets):
            trees[path.name] = sonde.open(path)
            opened.callback(trees[path.name].close)
        report = collect.collect(trees, datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), title)
        publish.write(report, target)
    return target


def summary(results: Sequence[RoomResult]) -> list[str]:
    """At most ten lines for the terminal."""
    lines = []
    for result in results:
        if result.skipped:
            lines.append(f"{result.room}: skipped: {result.skipped}")
            if result.hint:
                lines.append(f"  {result.hint}")
        lines += [f"{result.room} {line}" for line in result.lines]
        lines += [f"  finding: {finding.text}" for finding in result.findings]
        lines += [f"  warning: {warning.evidence}" for warning in result.warnings]
    return lines if len(lines) <= 9 else [*lines[:8], f"… and {len(lines) - 8} more, in the report"]

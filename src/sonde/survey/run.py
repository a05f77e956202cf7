"""Visits the rooms, and writes the report. Touches the machine only through the rooms' own run modules."""

from __future__ import annotations

import math
import os
import re
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sonde.core.errors import DataError, EnvironmentFailure, Exit, Finding, Interrupted, SondeError, Warning
from sonde.core.interrupt import signals
from sonde.core.room import NAMES
from sonde.core.room import room as room_of
from sonde.core.survey_entry import Bar, Call, SurveyEntry
from sonde.survey import blame, others
from sonde.survey.result import RoomResult

LATE_S = 0.5  # by which rooms may overrun
LATE = 0.6  # of what they need, that rooms are content with where those before them did


def entry(room: str) -> SurveyEntry:
    """The quick form of a room."""
    return room_of(room).survey_entry()


def here() -> str:
    """This host's name, for titles."""
    return socket.gethostname()


@contextmanager
def report_interruption(folder: Path, saved: bool) -> Iterator[None]:
    """Ctrl-C and SIGTERM end what is inside, wherever they come. The error names the rooms that are not measured, and
    what is left. A second signal ends the process at once.

    folder: of the survey. saved: it stays.

    Raises
    ------
    Interrupted  survey.interrupted.
    """

    def end(number: int, _frame: Any) -> None:
        signal.signal(number, lambda *_: os._exit(Exit.INTERRUPTED))
        raise KeyboardInterrupt

    before = _datasets(folder)
    try:
        with signals(end):
            yield
    except (KeyboardInterrupt, Interrupted) as error:
        if saved and isinstance(error, Interrupted):  # it knows more, such as how to recover a run
            raise
        measured = [name for name, _ in _datasets(folder) - before]  # of a survey before there may be others
        missing = [room for room in NAMES if not any(re.match(rf"{room}\b", name) for name in measured)]
        if not measured:
            with suppress(OSError):  # it never was there, or somebody keeps something there
                folder.rmdir()
        raise Interrupted(
            "survey.interrupted", *interruption_text(missing, folder if measured and saved else None)
        ) from None


def _datasets(folder: Path) -> set[tuple[str, int]]:
    """Names, and when they were written."""
    return {(path.name, path.stat().st_mtime_ns) for path in folder.glob("*.nc")}


def interruption_text(missing: Sequence[str], folder: Path | None) -> tuple[str, str]:
    """What was not done, and what is left; and what to type next. folder: in which something is left, None: nowhere."""
    not_done = f"{', '.join(missing)} not measured to the end" if missing else "not judged to the end"
    left = f"what was measured is in {folder}" if folder else "nothing is left"
    return f"interrupted: {not_done}; {left}", "run it again for all of it"


def interrupted_warning(results: Sequence[RoomResult], folder: Path | None) -> Warning | None:
    """What a survey that was interrupted says of it; None for one that was not. folder: as in interruption_text()."""
    if not any(result.interrupted for result in results):
        return None
    first = next(k for k, result in enumerate(results) if result.interrupted)
    missing = [result.room for result in results[first:]]
    return Warning("survey.interrupted", *interruption_text(missing, folder))


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
    rooms: Sequence[str] | None = None,
) -> list[RoomResult]:
    """Visits every room, or those of `rooms`, one after the other. What a room lacks is its result, not an error.

    Of the time that is left of `budget_s` since `began` (time.monotonic) each room gets what it needs, and a share by
    its weight of what all of them leave. Rooms that cannot run here leave their time to all others, and what one does
    not use goes to those after it. Where it is too little for all, those that need most are skipped.

    Raises
    ------
    EnvironmentFailure  core.cannot_write: the folder cannot be made. Interrupted: before anything was measured.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFailure(
            "core.cannot_write",
            f"cannot make the folder {folder}: {error.strerror}",
            "choose another with --output",
        ) from error
    number = secrets.randbits(32) if seed is None else seed
    command = ("sonde", *sys.argv[1:])
    needs: dict[str, float] = {}
    cannot: dict[str, SondeError] = {}
    wanted = [room for room in NAMES if rooms is None or room in rooms]
    for room in wanted:
        call = Call(room, folder, launcher, hosts, ntasks, number, command, 0.0, began, bar)
        try:
            needs[room] = entry(room).needs_s(call)
        except SondeError as error:
            cannot[room] = error
    planned = share([(entry(room).weight, needs[room]) for room in needs], budget_s)
    fits = [room for room, share_s in zip(needs, planned) if share_s is not None]
    results: list[RoomResult] = []
    measured_rooms: list[str] = []
    for k, room in enumerate(wanted):
        since = time.monotonic() if measured_rooms else began
        left_s = began + budget_s - since
        ahead = [name for name in wanted[k:] if name in fits]
        shares = dict(zip(ahead, share([(entry(name).weight, needs[name]) for name in ahead], left_s, LATE)))
        if any(result.interrupted for result in results):
            results.append(RoomResult(room, skipped="the survey was interrupted", hint="run it again"))
        elif room in cannot:
            results.append(RoomResult(room, skipped=cannot[room].what, hint=cannot[room].hint))
        elif left_s <= 0:
            taken = f"{' and '.join(measured_rooms) or 'getting ready'} took all of the {budget_s:g} s"
            results.append(RoomResult(room, skipped=taken, hint="give more with --budget"))
        elif (share_s := shares.get(room)) is None:
            results.append(_too_short(room, needs, budget_s, left_s))
        else:
            measured_rooms.append(room)
            call = Call(room, folder, launcher, hosts, ntasks, number, command, share_s, since, bar)
            results.append(_visit(call, results))
    return results


def share(rooms: Sequence[tuple[float, float]], left_s: float, least: float = 1.0) -> list[float | None]:
    """The time of each room, s; None: there is none for it. rooms: weight of each, and what it needs, s.

    least: of what they need, with which rooms are measured_rooms all the same.
    """
    fits = list(range(len(rooms)))
    while fits and (least * sum(rooms[k][1] for k in fits) > left_s or left_s < 0):
        fits.remove(max(fits, key=lambda k: (rooms[k][1], k)))
    need_s = sum(rooms[k][1] for k in fits)
    weights = sum(rooms[k][0] for k in fits)
    cut, beyond_s = min(1.0, left_s / need_s) if need_s else 1.0, max(0.0, left_s - need_s)
    return [
        rooms[k][1] * cut + beyond_s * rooms[k][0] / weights if k in fits else None for k in range(len(rooms))
    ]


def needed_s(room: str, needs: Mapping[str, float]) -> int:
    """The budget of which a room has its share, s: others take what they need, and who needs more is skipped."""
    names = list(needs)
    most = (needs[room], names.index(room))
    return math.ceil(sum(needs[name] for name in names if (needs[name], names.index(name)) <= most) + LATE_S)


def _too_short(room: str, needs: Mapping[str, float], budget_s: float, left_s: float) -> RoomResult:
    """A room for which there is no time beside the others."""
    needed = needed_s(room, needs)
    takes = f"it takes {needs[room]:.1f} s or more"
    if needed > budget_s:
        skipped, hint = (
            f"{takes}: too long for {budget_s:g} s beside the others",
            f"give --budget {needed}s or more",
        )
    else:
        skipped, hint = f"{takes}, and {left_s:.1f} of the {budget_s:g} s are left", "give more with --budget"
    return RoomResult(room, skipped=skipped, hint=hint)


def _visit(call: Call, before: Sequence[RoomResult]) -> RoomResult:
    since = others.sample()
    try:
        measured = entry(call.room).measure(call)
    except Interrupted as error:
        if any(result.datasets for result in before):
            return RoomResult(call.room, skipped=error.what, hint=error.hint, interrupted=True)
        with suppress(OSError):  # somebody keeps something there
            call.folder.rmdir()
        raise
    except SondeError as error:
        return RoomResult(call.room, skipped=error.what, hint=error.hint)
    result = read(call.room, measured.paths)
    until = others.sample()
    result.others = others.share(since, until)
    result.seconds = until.at_s - since.at_s if since and until else 0.0
    result.interrupted = measured.interrupted
    if measured.error is not None:
        result.skipped, result.hint = measured.error.what, measured.error.hint
    return result


def read(room: str, paths: Sequence[Path]) -> RoomResult:
    """What datasets of a room come to.

    Raises
    ------
    DataError  as `sonde.open`.
    """
    import sonde
    from sonde.core import dataset

    result = RoomResult(room, datasets=list(paths))
    for path in paths:
        with sonde.open(path) as tree:
            said = entry(room).judge(tree, str(path))
            result.sound &= said.sound
            result.findings += said.findings
            result.lines.append(said.line)
            result.complete &= bool(tree.attrs.get("complete", 1))
            result.warnings += [w for w in dataset.warnings_of(tree) if w not in result.warnings]
    result.verdict = result.lines[0] if result.lines else "nothing was measured"
    return result


def check_baselines(folders: Sequence[Path]) -> None:
    """Refuses baselines that a comparison would rest on wrongly, before anything is measured.

    Raises
    ------
    DataError  core.no_such_file: no such folder. survey.no_baseline: no survey is in it.
    survey.incomplete_baseline: one of its datasets is of a run that did not end.
    """
    import sonde

    for folder in folders:
        if not folder.is_dir():
            raise DataError(
                "core.no_such_file",
                f"there is no folder {folder} to compare with",
                "make one with sonde survey -o FOLDER",
            )
        paths = [path for room in NAMES for path in datasets_of(folder, room)]
        if not paths:
            raise DataError(
                "survey.no_baseline",
                f"no dataset of a survey is in {folder}",
                "make one with sonde survey -o FOLDER",
            )
        for path in paths:
            with sonde.open(path) as tree:
                if not int(tree.attrs.get("complete", 1)):
                    raise DataError(
                        "survey.incomplete_baseline",
                        f"{path} is of a run that did not end",
                        "take the baseline again: sonde survey -o FOLDER",
                    )


def datasets_of(folder: Path, room: str) -> list[Path]:
    """The datasets of a room in a survey's folder."""
    return sorted(path for path in folder.glob(f"{room}*.nc") if re.match(rf"{room}\b", path.name))


def compare(results: Sequence[RoomResult], baselines: Sequence[Path]) -> None:
    """Puts into each room's suspects what is worse than in every baseline, each the folder of an earlier survey.

    A room that was not measured both times gets a warning, and finding nothing says nothing of it.
    """
    if not baselines:
        return
    import sonde

    for result in results:
        known = [folder for folder in baselines if datasets_of(folder, result.room)]
        if bool(known) != bool(result.datasets):
            result.comparable = False
            result.warnings.append(
                Warning(
                    "survey.nothing_to_compare",
                    f"{result.room} is not compared: "
                    + (
                        "it was not measured now"
                        if known
                        else f"no dataset of it is in {', '.join(map(str, baselines))}"
                    ),
                    "give a longer --budget"
                    if known
                    else "compare with a survey that measured the same rooms",
                )
            )
        for path in result.datasets if known else ():
            found: list[list[Finding]] = []
            for folder in known:
                if not (folder / path.name).exists():
                    continue
                with sonde.open(folder / path.name) as before, sonde.open(path) as now:
                    compared = entry(result.room).compare(before, now, (str(folder / path.name), str(path)))
                found.append(blame.single(compared.findings))
                if compared.doubt:
                    result.sound = result.comparable = False
                    result.warnings.append(
                        Warning("survey.blunt", compared.doubt, "survey both again with a longer --budget")
                    )
            result.suspects += blame.in_all(found)
        result.baselines = len(known)


def hold_against(
    results: Sequence[RoomResult],
    baselines: Sequence[Path],
    again: Callable[[Sequence[str]], Sequence[RoomResult]],
) -> None:
    """Adds to each room's findings what is a fault of this machine; everything else becomes a warning.

    again: measures the rooms that it is given once more; asked for those with suspects while nothing else worked here.
    """
    for result in results:
        blame.unfit(result, [finding for finding in result.findings if entry(result.room).unfit(finding)])
    compare(results, baselines)
    for result in results:
        spread = entry(result.room).spread
        beyond = blame.beyond(result.suspects, spread, result.baselines)
        if len(beyond) < len(result.suspects):
            within = len(result.suspects) - len(beyond)
            result.warnings.append(blame.within_warning(result.room, within, spread, result.baselines))
        result.suspects = beyond
    busy = blame.busy_rooms(results)
    wanted = [result.room for result in results if result.suspects and result.room not in busy]
    if any(result.interrupted for result in results):
        wanted = []
    repeated = {result.room: result for result in again(wanted)} if wanted else {}
    compare(list(repeated.values()), baselines)
    busy |= blame.busy_rooms(list(repeated.values()))
    for result in results:
        if result.room in repeated:
            result.others = max(result.others, repeated[result.room].others)
        if result.room in busy:
            result.comparable = False
        else:
            blame.settle(result, repeated.get(result.room))
    if busy:
        at = [result for result in results if result.room in busy]
        at[0].warnings.insert(0, blame.busy_warning(at))


def draining(results: Sequence[RoomResult]) -> list[Finding]:
    """Findings that are, each by its room's word, a reason to take hosts out of service."""
    return [
        finding for result in results for finding in result.findings if entry(result.room).drains(finding)
    ]


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
    """At most ten lines for the terminal, which tells findings and warnings besides."""
    lines = []
    for result in results:
        if result.skipped:
            lines.append(f"{result.room}: skipped: {result.skipped}")
            if result.hint:
                lines.append(f"  {result.hint}")
        lines += [f"{result.room} {line}" for line in result.lines]
    return lines if len(lines) <= 9 else [*lines[:8], f"… and {len(lines) - 8} more, in the report"]

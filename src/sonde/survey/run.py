"""Measures the rooms, and writes the report. Touches the machine only through the rooms' own run modules."""

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
from sonde.core.owned_files import make_folder
from sonde.core.room import NAMES
from sonde.core.room import room as room_of
from sonde.core.survey_entry import Bar, Call, SurveyEntry
from sonde.survey import blame, others
from sonde.survey.result import RoomResult

REPORT_S = 5.0  # part of a survey's budget for its report
LATE_S = 0.5  # time by which rooms may overrun
LATE = 0.6  # share of their need that is enough for rooms after overrunning ones


def entry(room: str) -> SurveyEntry:
    """The quick form of a room."""
    return room_of(room).survey_entry()


def here() -> str:
    """This host's name, for titles."""
    return socket.gethostname()


@contextmanager
def report_interruption(folder: Path, saved: bool) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the work inside, whenever they come. The error names the rooms that are not measured,
    and the remaining files. A second signal ends the process at once.

    folder: of the survey. saved: whether it stays.

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
        if saved and isinstance(error, Interrupted):  # it has more details, such as how to recover a run
            raise
        measured = [name for name, _ in _datasets(folder) - before]  # an earlier survey may have left others
        missing = [room for room in NAMES if not any(re.match(rf"{room}\b", name) for name in measured)]
        if not measured:
            with suppress(OSError):  # it never existed, or somebody stores files there
                folder.rmdir()
        raise Interrupted(
            "survey.interrupted", *interruption_text(missing, folder if measured and saved else None)
        ) from None


def _datasets(folder: Path) -> set[tuple[str, int]]:
    """The names and times of the datasets."""
    return {(path.name, path.stat().st_mtime_ns) for path in folder.glob("*.nc")}


def interruption_text(missing: Sequence[str], folder: Path | None) -> tuple[str, str]:
    """A text about the missing and the remaining results; and what to type next. folder: of the remaining results,
    None: there are none.
    """
    not_done = f"{', '.join(missing)} not measured completely" if missing else "not judged completely"
    left = f"the results so far are in {folder}" if folder else "no results are left"
    return f"interrupted: {not_done}; {left}", "run it again for the complete result"


def interrupted_warning(results: Sequence[RoomResult], folder: Path | None) -> Warning | None:
    """The warning about an interrupted survey; None if it was not interrupted. folder: as in interruption_text()."""
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
    reserved_s: float = 0.0,
) -> list[RoomResult]:
    """Measure every room, or those of `rooms`, one after the other. A failure of a room becomes its result, not an
    error.

    From the time left of `budget_s` since `began` (time.monotonic) each room gets its need, and by its weight a share
    of the rest. Rooms that cannot run here leave their time to all others, and unused time goes to the rooms after. If
    the time is too short for all, the rooms with the largest needs are skipped. `reserved_s` of the budget remain for
    the steps after the survey.

    Raises
    ------
    EnvironmentFailure  core.cannot_write: the folder cannot be made; core.folder_of_others.
    Interrupted: before anything was measured.
    """
    try:
        make_folder(folder, parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFailure(
            "core.cannot_write",
            f"cannot create the folder {folder}: {error.strerror}",
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
    planned = share([(entry(room).weight, needs[room]) for room in needs], budget_s - reserved_s)
    fits = [room for room, share_s in zip(needs, planned) if share_s is not None]
    results: list[RoomResult] = []
    measured_rooms: list[str] = []
    for k, room in enumerate(wanted):
        since = time.monotonic() if measured_rooms else began
        left_s = began + budget_s - reserved_s - since
        ahead = [name for name in wanted[k:] if name in fits]
        shares = dict(zip(ahead, share([(entry(name).weight, needs[name]) for name in ahead], left_s, LATE)))
        if any(result.interrupted for result in results):
            results.append(RoomResult(room, skipped="the survey was interrupted", hint="run it again"))
        elif room in cannot:
            results.append(RoomResult(room, skipped=cannot[room].what, hint=cannot[room].hint))
        elif left_s <= 0:
            reason = f"{' and '.join(measured_rooms) or 'the preparation'} took all of the {budget_s:g} s"
            results.append(RoomResult(room, skipped=reason, hint="give a longer --budget"))
        elif (share_s := shares.get(room)) is None:
            results.append(_too_short(room, needs, budget_s, left_s, reserved_s))
        else:
            measured_rooms.append(room)
            call = Call(room, folder, launcher, hosts, ntasks, number, command, share_s, since, bar)
            results.append(_visit(call, results))
    return results


def share(rooms: Sequence[tuple[float, float]], left_s: float, least: float = 1.0) -> list[float | None]:
    """The time of each room, s; None: no time for it. rooms: the weight and the need (s) of each.

    least: the share of their need with which rooms are measured all the same.
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
    """The budget with which a room gets its time, s: others take their needs, and rooms with larger needs are
    skipped.
    """
    names = list(needs)
    most = (needs[room], names.index(room))
    return math.ceil(sum(needs[name] for name in names if (needs[name], names.index(name)) <= most) + LATE_S)


def _too_short(
    room: str, needs: Mapping[str, float], budget_s: float, left_s: float, reserved_s: float
) -> RoomResult:
    """The result of a room without time."""
    needed = needed_s(room, needs) + (
        math.ceil(REPORT_S) if reserved_s else 0
    )  # a longer budget may have a larger reserve
    takes = f"it needs {needs[room]:.1f} s or more"
    if needed > budget_s:
        skipped, hint = (
            f"{takes}: too long for {budget_s:g} s together with the others",
            f"give --budget {needed}s or more",
        )
    else:
        skipped, hint = f"{takes}, and {left_s:.1f} of the {budget_s:g} s are left", "give a longer --budget"
    return RoomResult(room, skipped=skipped, hint=hint)


def _visit(call: Call, before: Sequence[RoomResult]) -> RoomResult:
    since = others.sample()
    try:
        measured = entry(call.room).measure(call)
    except Interrupted as error:
        if any(result.datasets for result in before):
            return RoomResult(call.room, skipped=error.what, hint=error.hint, interrupted=True)
        with suppress(OSError):  # somebody stores files there
            call.folder.rmdir()
        raise
    except SondeError as error:
        return RoomResult(call.room, skipped=error.what, hint=error.hint)
    result = read(call.room, measured.paths)
    until = others.sample()
    if (here := others.share(since, until)) > result.others:
        result.others, result.others_host = here, ""
    result.seconds = until.at_s - since.at_s if since and until else 0.0
    result.interrupted = measured.interrupted
    if measured.error is not None:
        result.skipped, result.hint = measured.error.what, measured.error.hint
    return result


def read(room: str, paths: Sequence[Path]) -> RoomResult:
    """The result of a room's datasets.

    Raises
    ------
    DataError  as `sonde.open`.
    """
    import sonde
    from sonde.core import dataset, other_programs

    result = RoomResult(room, datasets=list(paths))
    for path in paths:
        with sonde.open(path) as tree:
            judgement = entry(room).judge(tree, str(path))
            result.sound &= judgement.sound
            result.findings += judgement.findings
            result.lines.append(judgement.line)
            result.complete &= bool(tree.attrs.get("complete", 1))
            for host, share in other_programs.by_host(tree.attrs).items():
                if share > result.others:
                    result.others, result.others_host = share, host
            result.warnings += [w for w in dataset.warnings_of(tree) if w not in result.warnings]
    result.verdict = result.lines[0] if result.lines else "nothing was measured"
    return result


def check_baselines(folders: Sequence[Path]) -> None:
    """Refuse unsuitable baselines before anything is measured.

    Raises
    ------
    DataError  core.no_such_file: no such folder. survey.no_baseline: it contains no survey. survey.incomplete_baseline:
    one of its datasets comes from a run that did not finish. survey.same_baseline: two of them have one and the same
    run.
    """
    import sonde

    seen: dict[str, int] = {}
    for number, folder in enumerate(folders):
        if not folder.is_dir():
            raise DataError(
                "core.no_such_file",
                f"there is no folder {folder} to compare with",
                "create one: sonde survey -o FOLDER",
            )
        paths = [path for room in NAMES for path in datasets_of(folder, room)]
        if not paths:
            raise DataError(
                "survey.no_baseline",
                f"{folder} contains no dataset of a survey",
                "create one: sonde survey -o FOLDER",
            )
        for path in paths:
            with sonde.open(path) as tree:
                run = str(tree.attrs.get("run_id", ""))
                if run and seen.setdefault(run, number) != number:
                    raise DataError(
                        "survey.same_baseline",
                        f"{path} is the same run as in the baseline {folders[seen[run]]}: it cannot show how "
                        "runs differ",
                        "leave one of both out, or create another: sonde survey -o FOLDER",
                    )
                if not int(tree.attrs.get("complete", 1)):
                    raise DataError(
                        "survey.incomplete_baseline",
                        f"{path} comes from a run that did not finish",
                        "create the baseline again: sonde survey -o FOLDER",
                    )


def datasets_of(folder: Path, room: str) -> list[Path]:
    """The datasets of a room in a survey's folder."""
    return sorted(path for path in folder.glob(f"{room}*.nc") if re.match(rf"{room}\b", path.name))


def compare(results: Sequence[RoomResult], baselines: Sequence[Path]) -> None:
    """Put into each room's suspects everything that is worse than in every baseline, each the folder of an earlier
    survey.

    A room that was not measured both times gets a warning, and "no findings" says nothing about it.
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
                        else f"{', '.join(map(str, baselines))} has no dataset of it"
                    ),
                    "give a longer --budget"
                    if known
                    else "compare with a survey that measured the same rooms",
                )
            )
        informative: list[
            int
        ] = []  # baselines beside which something could have been found, for each dataset
        blunt = False
        for path in result.datasets if known else ():
            found: list[list[Finding]] = []
            doubts = []
            for folder in known:
                if not (folder / path.name).exists():
                    continue
                with sonde.open(folder / path.name) as before, sonde.open(path) as now:
                    compared = entry(result.room).compare(before, now, (str(folder / path.name), str(path)))
                if compared.doubt and not compared.findings:
                    doubts.append(compared.doubt)
                else:
                    found.append(blame.single(compared.findings))
            result.suspects += blame.in_all(found)
            if found:
                informative.append(len(found))
            elif doubts:
                blunt = True
                result.warnings.append(
                    Warning("survey.blunt", doubts[0], "survey both again with a longer --budget")
                )
        if result.datasets and known and not informative:
            # Where one mode of several could be compared, finding nothing says something; here it says nothing.
            result.sound = result.comparable = False
            if not blunt:
                names = ", ".join(path.name for path in result.datasets)
                result.warnings.append(
                    Warning(
                        "survey.nothing_to_compare",
                        f"{result.room} is not compared: no earlier survey has {names}",
                        "compare with a survey that measured the same modes",
                    )
                )
        result.baselines = min(informative, default=len(known))


def hold_against(
    results: Sequence[RoomResult],
    baselines: Sequence[Path],
    again: Callable[[Sequence[str]], Sequence[RoomResult]],
) -> None:
    """Add to each room's findings the faults of this machine; all other suspects become warnings.

    again: measures the given rooms once more; called for rooms with suspects if no other program was active here.
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
        if (twice := repeated.get(result.room)) is not None and twice.others > result.others:
            result.others, result.others_host = twice.others, twice.others_host
        if result.room in busy:
            result.comparable = False
        else:
            blame.settle(result, repeated.get(result.room))
    if busy:
        at = [result for result in results if result.room in busy]
        at[0].warnings.insert(0, blame.busy_warning(at))


def draining(results: Sequence[RoomResult]) -> list[Finding]:
    """Findings that are, as each room decides, a reason to take hosts out of service."""
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
    """At most ten lines for the terminal, which shows findings and warnings as well."""
    lines = []
    for result in results:
        if result.skipped:
            lines.append(f"{result.room}: skipped: {result.skipped}")
            if result.hint:
                lines.append(f"  {result.hint}")
        lines += [f"{result.room} {line}" for line in result.lines]
    return lines if len(lines) <= 9 else [*lines[:8], f"… and {len(lines) - 8} more, in the report"]

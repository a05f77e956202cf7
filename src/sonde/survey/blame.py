"""The differences from earlier surveys that are a fault of this machine. Pure.

Two runs of one machine differ by more than the intervals of either show: MPI places its buffers elsewhere, a core is
hotter, other programs come and go. A difference therefore counts only if it exists against every baseline, if it came
again when the room was measured again, and if no other program used the machine during the measurement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sonde.core.errors import Finding, Warning
from sonde.core.printable import printable
from sonde.core.units import format_share
from sonde.survey.result import RoomResult

BUSY, MUCH = (
    0.05,
    0.25,
)  # largest share of the processors' time for other programs, in a whole survey and in one room
ENOUGH_BASELINES = 3  # enough to show how much runs of one machine differ
PLACES = ("src", "dst", "rank")  # numbers in a finding's evidence for a place, not for a size


def subject(finding: Finding) -> tuple[Any, ...]:
    """The place of a finding: equal for the same place in another run."""
    where = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in finding.evidence.items()
        if isinstance(value, str | list) or key in PLACES
    }
    return (finding.code, *sorted((key, str(value)) for key, value in where.items()))


def single(findings: Sequence[Finding]) -> list[Finding]:
    """Findings about one place each, without the one that only counts further ones and has no place and no ratio."""
    return [finding for finding in findings if "more" not in finding.evidence]


def in_all(found: Sequence[Sequence[Finding]]) -> list[Finding]:
    """The findings of the first list that are also in each of the others."""
    if not found:
        return []
    others = [{subject(finding) for finding in each} for each in found[1:]]
    return [finding for finding in found[0] if all(subject(finding) in each for each in others)]


def beyond(suspects: Sequence[Finding], spread: float, baselines: int) -> list[Finding]:
    """The suspects that differ by more than runs of one machine do: by its baselines, or by the room's spread."""
    if baselines >= ENOUGH_BASELINES:
        return list(suspects)
    return [finding for finding in suspects if float(finding.evidence.get("ratio", spread)) >= spread]


def within_warning(room: str, count: int, spread: float, baselines: int) -> Warning:
    """The warning that some differences are within the known differences between runs of one machine."""
    by = f"less than {spread:g} times slower" if math.isfinite(spread) else "of any size"
    few = f"{baselines} baseline{'' if baselines == 1 else 's'}"
    return Warning(
        "survey.few_baselines",
        f"{room}: {differences(count)} may be ordinary differences between runs of this machine ({by}); "
        f"{few} cannot show this",
        f"give {ENOUGH_BASELINES} baselines or more: --against FOLDER --against FOLDER --against FOLDER",
    )


def busy_rooms(results: Sequence[RoomResult]) -> set[str]:
    """The rooms that other programs disturbed: those with a share above MUCH, or all rooms if the whole share is above
    BUSY.

    A room lasts seconds, and the time of ranks that are killed at its end is not counted: so its own share says little.
    """
    measured = [result for result in results if result.seconds > 0]
    seconds = sum(result.seconds for result in measured)
    if seconds and sum(result.others * result.seconds for result in measured) / seconds > BUSY:
        return {result.room for result in measured}
    return {result.room for result in results if result.others > MUCH}


def busy_warning(busy: Sequence[RoomResult]) -> Warning:
    """One warning about all rooms that other programs disturbed."""
    suspects = sum(len(result.suspects) for result in busy)
    worst = max(busy, key=lambda result: result.others)
    where = f" on {printable(worst.others_host)}" if worst.others_host else ""
    excluded = f"; {differences(suspects)} may be caused by them and are not findings" if suspects else ""
    return Warning(
        "survey.busy",
        f"other programs took up to {format_share(worst.others)} of the processors' time{where} while "
        f"{', '.join(result.room for result in busy)} {'was' if len(busy) == 1 else 'were'} measured{excluded}",
        "sonde noise host names them; check again when they have ended",
    )


def settle(result: RoomResult, again: RoomResult | None) -> None:
    """Turn a room's suspects into findings or warnings. again: the result of a second measurement and comparison; None:
    there was none.
    """
    suspects = result.suspects
    if not suspects:
        return
    if again is None or again.skipped:
        result.comparable = False
        result.warnings.append(
            Warning(
                "survey.not_repeated",
                f"{result.room}: {differences(len(suspects))}, but there was no time to measure again",
                "give a longer --budget",
            )
        )
        return
    confirmed = in_all([suspects, again.suspects])
    result.suspects = [finding for finding in suspects if finding not in confirmed]
    result.findings += confirmed
    if result.suspects:
        result.warnings.append(
            Warning(
                "survey.did_not_come_again",
                f"{result.room}: {differences(len(result.suspects))} were not confirmed by a second measurement",
                "nothing to do; several baselines show how much runs differ: --against FOLDER --against FOLDER",
            )
        )


def differences(count: int) -> str:
    """The number of differences, in words."""
    return f"{count} difference{'' if count == 1 else 's'} from the earlier surveys"


def unfit(result: RoomResult, findings: Sequence[Finding]) -> None:
    """Turn findings into warnings if they mean that the machine could not be judged now, not that it is at fault."""
    for finding in findings:
        result.findings.remove(finding)
        result.warnings.append(Warning(finding.code, finding.text, finding.next))
        result.sound = result.comparable = False

"""Which differences to earlier surveys are a fault of this machine. Pure.

Two runs of one machine differ by more than the intervals of either say: MPI places its buffers elsewhere, a core runs
hotter, other programs come and go. So a difference counts where it stands beside every baseline, where it was there
again when the room was measured again, and where nothing else worked on the machine meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sonde.core.errors import Finding, Warning
from sonde.core.units import format_share
from sonde.survey.result import RoomResult

BUSY, MUCH = 0.05, 0.25  # of the processors' time, that others may take of a whole survey and of one room
ENOUGH_BASELINES = 3  # show by themselves how runs of one machine differ
PLACES = ("src", "dst", "rank")  # numbers in a finding's evidence that say where, and not how much


def subject(finding: Finding) -> tuple[Any, ...]:
    """The place that a finding is about: equal for the same place in another run."""
    where = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in finding.evidence.items()
        if isinstance(value, str | list) or key in PLACES
    }
    return (finding.code, *sorted((key, str(value)) for key, value in where.items()))


def single(findings: Sequence[Finding]) -> list[Finding]:
    """Findings about one place each: without the one that only counts further ones, which has no place and no ratio."""
    return [finding for finding in findings if "more" not in finding.evidence]


def in_all(found: Sequence[Sequence[Finding]]) -> list[Finding]:
    """The findings of the first that stand in each of the others, too."""
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
    """Some differences are no more than runs of one machine differ by, as far as that is known."""
    by = f"less than {spread:g} times as slow" if math.isfinite(spread) else "here of any size"
    few = f"{baselines} baseline{'' if baselines == 1 else 's'}"
    return Warning(
        "survey.few_baselines",
        f"{room}: {differences(count)} may be how runs of this machine differ ({by}), which {few} cannot show",
        f"give {ENOUGH_BASELINES} baselines or more: --against FOLDER --against FOLDER --against FOLDER",
    )


def busy_rooms(results: Sequence[RoomResult]) -> set[str]:
    """The rooms beside which other programs were at work: those where it was much, or all where it was BUSY of all.

    A room lasts seconds, and ranks that are killed at its end leave nobody to count their time: so its own share says
    little.
    """
    measured = [result for result in results if result.seconds > 0]
    seconds = sum(result.seconds for result in measured)
    if seconds and sum(result.others * result.seconds for result in measured) / seconds > BUSY:
        return {result.room for result in measured}
    return {result.room for result in results if result.others > MUCH}


def busy_warning(busy: Sequence[RoomResult]) -> Warning:
    """One warning of all rooms beside which other programs were at work."""
    suspects = sum(len(result.suspects) for result in busy)
    worst = max(result.others for result in busy)
    held = f"; {differences(suspects)} may be theirs and are no findings" if suspects else ""
    return Warning(
        "survey.busy",
        f"other programs took up to {format_share(worst)} of the processors' time while "
        f"{', '.join(result.room for result in busy)} {'was' if len(busy) == 1 else 'were'} measured{held}",
        "sonde noise host names them; check again when they are gone",
    )


def settle(result: RoomResult, again: RoomResult | None) -> None:
    """Makes findings or warnings of a room's suspects. again: the room measured once more, and compared; None: not."""
    suspects = result.suspects
    if not suspects:
        return
    if again is None or again.skipped:
        result.comparable = False
        result.warnings.append(
            Warning(
                "survey.not_repeated",
                f"{result.room}: {differences(len(suspects))}, and no time was left to see whether they come again",
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
                f"{result.room}: {differences(len(result.suspects))} did not come again when it was measured again",
                "nothing to do; several baselines tell how much runs differ: --against FOLDER --against FOLDER",
            )
        )


def differences(count: int) -> str:
    """So many differences, in words."""
    return f"{count} difference{'' if count == 1 else 's'} to the earlier surveys"


def unfit(result: RoomResult, findings: Sequence[Finding]) -> None:
    """Makes warnings of findings that say that the machine could not be judged now, and not that it is at fault."""
    for finding in findings:
        result.findings.remove(finding)
        result.warnings.append(Warning(finding.code, finding.text, finding.next))
        result.sound = result.comparable = False

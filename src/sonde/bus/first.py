"""Why a first message costs more than a steady one: the share of the difference that each treatment removes. Pure.

The slow message (the first of a program, or the first after a pause) is measured in the same epochs as a steady message
and as the slow message with one suspected cause removed. The part of a cause is the share of the difference that its
removal takes away, epoch by epoch. The parts of several causes need not add up to one, because one message can wait for
two things at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sonde.bus.cases import FIRST, PAUSE, STEADY, UNCONFIRMED
from sonde.bus.values import Value, Values, Way
from sonde.core import stats

MOST, SOME = 0.5, 0.1  # shares of a difference: from MOST on "most"; below SOME "none"
LEAST_PAIRS = 6  # epochs that an interval needs
# The cause that a treatment removes. A message continues "… of the difference is" with this text.
REMOVES = {
    PAUSE: "the silence before it",
    "warm-other-topic": "work that a program and its participant do once",
    "warm-same-participant-new-writer": "work before the first message of a writer",
    "prefaulted": "the first access to memory",
    "after-lookup": "the lookup of functions at their first call",
    "spinning-subscriber": "the wake-up of the reader",
    "awake-cores": "sleeping processor cores",
    UNCONFIRMED: "the first exchange between a reliable writer and its reader",
}


@dataclass(frozen=True)
class Part:
    """The part of a difference that one treatment removes. share and its ends: of the difference; NaN: no interval.

    value: the message with the treatment, s. judged: "most", "part", "none" (significantly below a tenth), "worse",
    "unclear".
    """

    treatment: str
    removes: str
    value: float
    pairs: int
    share: float
    low: float
    high: float

    @property
    def judged(self) -> str:
        if not math.isfinite(self.low):
            return "unclear"
        if self.low >= MOST:
            return "most"
        if self.high < 0:
            return "worse"
        if self.high < SOME:
            return "none"
        return "part" if self.low > 0 else "unclear"


@dataclass(frozen=True)
class Breakdown:
    """The causes of the slow message of one variant. slow: "first-ever" or "pause". Times in s.

    ratio: of slow to usual, with its interval. pairs: epochs in which both were measured.
    """

    way: Way
    slow: str
    size: int
    slow_s: float
    usual_s: float
    pairs: int
    excess: tuple[float, float, float]
    ratio: tuple[float, float, float]
    parts: list[Part]

    @property
    def real(self) -> bool:
        """Whether the slow message is significantly slower."""
        return self.excess[1] > 0

    @property
    def cause(self) -> Part | None:
        """The largest significant part of at least SOME; None without one."""
        relevant = [part for part in self.parts if part.judged in ("most", "part") and part.share >= SOME]
        return max(relevant, key=lambda part: part.share, default=None)


def share_of(
    whole: np.ndarray, left: np.ndarray, usual: np.ndarray
) -> tuple[int, tuple[float, float, float]]:
    """The share of a difference that a treatment removes: (whole - left) / (whole - usual), with its interval.

    Parameters
    ----------
    whole, left, usual : in each stretch of time, s: the slow message, the slow message with a treatment, the usual
    message; NaN: not measured

    Returns
    -------
    The number of stretches with all three, and estimate, low, high: NaN without a difference; no interval with fewer
    than six stretches.

    The difference and the part are Hodges-Lehmann shifts of the differences in each stretch. The interval is that of
    the part, divided by the estimate of the difference.
    """
    measured = np.isfinite(whole) & np.isfinite(left) & np.isfinite(usual)
    if not measured.any():
        return 0, (float("nan"),) * 3
    excess = stats.hodges_lehmann(whole[measured] - usual[measured]).estimate
    if not excess > 0:
        return int(measured.sum()), (float("nan"),) * 3
    removed = stats.hodges_lehmann(whole[measured] - left[measured])
    return int(measured.sum()), (removed.estimate / excess, removed.low / excess, removed.high / excess)


def breakdowns(values: Values) -> list[Breakdown]:
    """The breakdowns of the first message and of the one after a pause, for variants and sizes with a steady one."""
    out = []
    for way in values.ways:
        own = values.find("first-message", way=way)
        for size in dict.fromkeys(value.case.size for value in own):
            treated = {value.case.treatment: value for value in own if value.case.size == size}
            for slow in (FIRST, PAUSE):
                if slow in treated and STEADY in treated:
                    out.append(_breakdown(way, slow, size, treated))
    return out


def _breakdown(way: Way, slow: str, size: int, treated: dict[str, Value]) -> Breakdown:
    whole, usual = treated[slow], treated[STEADY]
    both = np.isfinite(whole.blocks) & np.isfinite(usual.blocks)
    excess = tuple(stats.hodges_lehmann(whole.blocks[both] - usual.blocks[both]))
    logs = stats.hodges_lehmann(np.log(whole.blocks[both]) - np.log(usual.blocks[both]))
    parts = []
    for treatment, value in treated.items():
        removed = [name for name in treatment.split("+") if name != slow]
        of_pause = PAUSE in treatment.split("+")
        if treatment in (slow, STEADY) or (slow == PAUSE) != of_pause or not set(removed) <= set(REMOVES):
            continue
        pairs, share = share_of(whole.blocks, value.blocks, usual.blocks)
        removes = " and ".join(REMOVES[name] for name in removed)
        parts.append(Part(treatment, removes, value.median, pairs, *share))
    if slow == FIRST and PAUSE in treated:
        parts.insert(0, _silence(whole, treated[PAUSE], usual))
    return Breakdown(
        way,
        slow,
        size,
        whole.median,
        usual.median,
        int(both.sum()),
        (excess[0], excess[1], excess[2]),
        (math.exp(logs.estimate), math.exp(logs.low), math.exp(logs.high)),
        parts,
    )


def _silence(whole: Value, pause: Value, usual: Value) -> Part:
    """The part of silence in the first message: the share of the difference that a message after a pause has, too."""
    pairs, (share, low, high) = share_of(whole.blocks, pause.blocks, usual.blocks)
    return Part(PAUSE, REMOVES[PAUSE], pause.median, pairs, 1 - share, 1 - high, 1 - low)


def sentence(found: Breakdown) -> str:
    """The result of a breakdown in one sentence."""
    from sonde.core.units import format_duration

    what = _what(found)
    times = f"{format_duration(found.slow_s)}, a steady message {format_duration(found.usual_s)}"
    if not math.isfinite(found.excess[1]):
        few = "1 epoch is" if found.pairs == 1 else f"{found.pairs} epochs are"
        return f"over {found.way.name} {what} took {times}; {few} too few to find the cause"
    if not found.real:
        return f"over {found.way.name} {what} is not significantly slower: {times}"
    text = (
        f"over {found.way.name} {what} takes {found.ratio[0]:.3g} times as long as a steady message ({times})"
    )
    cause = found.cause
    without_effect = [part.removes for part in found.parts if part.judged in ("none", "worse")]
    if cause is None:
        if found.parts:
            text += "; no treatment removes a significant part of the difference"
        else:
            text += "; no treatment was measured"
    else:
        text += f"; {_percent(cause)} of the difference is {cause.removes}"
        others = [
            p for p in found.parts if p is not cause and p.judged in ("most", "part") and p.share >= SOME
        ]
        others.sort(key=lambda part: -part.share)
        if others:
            text += ", " + _listed([f"{_percent(part)} {part.removes}" for part in others])
    if without_effect:
        text += f"; no effect: {_listed(without_effect)}"
    return text


def brief(found: Breakdown) -> tuple[str, str, str] | None:
    """For a breakdown without a result: start of a sentence about several variants, the part about this one, end."""
    from sonde.core.units import format_duration

    if math.isfinite(found.excess[1]):
        return None
    times = f"{found.way.name} {format_duration(found.slow_s)}, steady {format_duration(found.usual_s)}"
    return f"time of {_what(found)} and of a steady message", times, "; too few epochs to find the cause"


def _what(found: Breakdown) -> str:
    return "the first message" if found.slow == FIRST else "a message after a pause"


def _percent(part: Part) -> str:
    return f"{part.share:.0%} ({part.low:.0%} to {part.high:.0%})"


def _listed(items: Sequence[str], last: str = "and") -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}"

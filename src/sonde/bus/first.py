"""Why a first message costs more than one among others: how much of the difference each treatment takes away. Pure.

The message that is slow (the first of a program, or the first after a pause) is measured beside a message among
others, and beside itself with one suspected cause removed, in the same epochs. What a treatment takes away of the
difference, epoch by epoch, is that cause's part; the parts of several causes need not add up to one, as one message
can wait for two things at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sonde.bus.plan import FIRST, PAUSE, STEADY, UNCONFIRMED
from sonde.bus.values import Value, Values, Way
from sonde.core import stats

MOST, SOME = 0.5, 0.1  # shares of a difference: "most of it", and what is no longer "nothing that matters"
LEAST_PAIRS = 6  # epochs for an interval
# What a treatment removes, in words: what stands behind "is".
REMOVES = {
    PAUSE: "the silence before it",
    "warm-other-topic": "what a program and its participant do once",
    "warm-same-participant-new-writer": "what comes before a writer's own first message",
    "prefaulted": "memory that is touched for the first time",
    "after-lookup": "functions that are looked up when they are first called",
    "spinning-subscriber": "waking up the reader",
    "awake-cores": "processor cores that have gone to sleep",
    UNCONFIRMED: "what a reliable writer and its reader have to tell each other first",
}


@dataclass(frozen=True)
class Part:
    """What one treatment takes away of a difference. share and its ends: of the difference; NaN: no interval.

    value: the message with the treatment, s. judged: "most", "part", "none" (below a tenth, beyond doubt), "worse",
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
    """The slow message of one variant, taken apart. slow: "first-ever" or "pause". times in s.

    ratio: slow over usual, with its interval. pairs: epochs in which both were measured.
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
        """Whether the slow message is slower beyond doubt."""
        return self.excess[1] > 0

    @property
    def cause(self) -> Part | None:
        """The part that takes away the most beyond doubt, of those that take away something that matters; or None."""
        told = [part for part in self.parts if part.judged in ("most", "part") and part.share >= SOME]
        return max(told, key=lambda part: part.share, default=None)


def share_of(
    whole: np.ndarray, left: np.ndarray, usual: np.ndarray
) -> tuple[int, tuple[float, float, float]]:
    """What share of a difference is gone: (whole - left) / (whole - usual), with the interval of the part taken away.

    Parameters
    ----------
    whole, left, usual : the slow message, the same with a treatment, the usual one in each stretch of time, s; NaN:
    none

    Returns
    -------
    In how many stretches all three were measured, and estimate, low, high: NaN where there is no difference to take
    away from; no interval below six stretches.

    Both the difference and the part are Hodges-Lehmann shifts of differences stretch by stretch; the interval is the
    part's, over the typical difference.
    """
    there = np.isfinite(whole) & np.isfinite(left) & np.isfinite(usual)
    if not there.any():
        return 0, (float("nan"),) * 3
    excess = stats.hodges_lehmann(whole[there] - usual[there]).estimate
    if not excess > 0:
        return int(there.sum()), (float("nan"),) * 3
    taken = stats.hodges_lehmann(whole[there] - left[there])
    return int(there.sum()), (taken.estimate / excess, taken.low / excess, taken.high / excess)


def breakdowns(values: Values) -> list[Breakdown]:
    """Of each variant and size the first message, and the first after a pause, where there is one among others."""
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
        words = [word for word in treatment.split("+") if word != slow]
        of_pause = PAUSE in treatment.split("+")
        if treatment in (slow, STEADY) or (slow == PAUSE) != of_pause or not set(words) <= set(REMOVES):
            continue
        pairs, share = share_of(whole.blocks, value.blocks, usual.blocks)
        removes = " and ".join(REMOVES[word] for word in words)
        parts.append(Part(treatment, removes, value.median, pairs, *share))
    if slow == FIRST and PAUSE in treated:
        parts.insert(0, _explained(whole, treated[PAUSE], usual))
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


def _explained(whole: Value, pause: Value, usual: Value) -> Part:
    """Of a first message what silence alone brings: a message after a pause has that much of the difference."""
    pairs, (share, low, high) = share_of(whole.blocks, pause.blocks, usual.blocks)
    return Part(PAUSE, REMOVES[PAUSE], pause.median, pairs, 1 - share, 1 - high, 1 - low)


def sentence(found: Breakdown) -> str:
    """What came of one, from its numbers alone."""
    from sonde.core.units import format_duration

    what = _what(found)
    times = f"{format_duration(found.slow_s)} against {format_duration(found.usual_s)} of one among others"
    if not math.isfinite(found.excess[1]):
        few = "1 epoch is" if found.pairs == 1 else f"{found.pairs} epochs are"
        return f"over {found.way.name} {what} took {times}; {few} too few to say why"
    if not found.real:
        return f"over {found.way.name} {what} costs no more beyond doubt: {times}"
    text = f"over {found.way.name} {what} takes {found.ratio[0]:.3g} times as long ({times})"
    cause = found.cause
    nothing = [part.removes for part in found.parts if part.judged in ("none", "worse")]
    if cause is None:
        if found.parts:
            text += "; none of what was tried takes a part of that away beyond doubt"
        else:
            text += "; nothing was tried that may take a part of that away"
    else:
        text += f"; {_percent(cause)} of the difference is {cause.removes}"
        others = [
            p for p in found.parts if p is not cause and p.judged in ("most", "part") and p.share >= SOME
        ]
        others.sort(key=lambda part: -part.share)
        if others:
            text += ", " + _listed([f"{_percent(part)} {part.removes}" for part in others])
    if nothing:
        text += f"; not {_listed(nothing, 'or')}"
    return text


def brief(found: Breakdown) -> tuple[str, str, str] | None:
    """Where nothing can be said of it: how a sentence on several such begins, what it says of this one, how it ends."""
    from sonde.core.units import format_duration

    if math.isfinite(found.excess[1]):
        return None
    times = f"{found.way.name} {format_duration(found.slow_s)} against {format_duration(found.usual_s)}"
    return f"{_what(found)} took, against one among others", times, "; too few epochs to say why"


def _what(found: Breakdown) -> str:
    return "the first message" if found.slow == FIRST else "a message after a pause"


def _percent(part: Part) -> str:
    return f"{part.share:.0%} ({part.low:.0%} to {part.high:.0%})"


def _listed(words: Sequence[str], last: str = "and") -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"

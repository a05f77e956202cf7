"""The end of a command's --budget, for work that is done piece by piece until then: above all, analyses.

A pure module reads no clock. It gets a Deadline, asks it before each piece, and reports the part that is left out:

    pieces = deadline.pieces()
    for done, cell in enumerate(cells):
        if not pieces.fits():
            deadline.leave_out("laws of cells", done, len(cells))
            break
        ...
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class LeftOut:
    """A part of an analysis for which the time was too short. what: a plural, such as "laws of cells". done: the
    finished number, out of `of`.
    """

    what: str
    done: int
    of: int

    def text(self) -> str:
        return f"{self.what}: {self.done} of {self.of} were computed in time"


@dataclass(frozen=True)
class Deadline:
    """The moment at which the time is over, on a given clock.

    end_s: on `clock`; infinite: never. left_out: the parts that were reported as left out, by this deadline and by
    those derived from it.
    """

    end_s: float = math.inf
    clock: Callable[[], float] = time.monotonic
    left_out: list[LeftOut] = field(default_factory=list)

    @property
    def never(self) -> bool:
        return math.isinf(self.end_s)

    def left_s(self) -> float:
        """The time left, s; 0 when it is over, infinite without a limit."""
        return math.inf if self.never else max(0.0, self.end_s - self.clock())

    def fits(self, seconds: float) -> bool:
        """Whether work of this duration ends in time. Nothing fits when the time is over."""
        left = self.left_s()
        return left > 0 and seconds <= left

    def earlier(self, by_s: float) -> Deadline:
        """An earlier deadline, for work that must leave time for the next step."""
        return replace(self, end_s=self.end_s - by_s)

    def part(self, share: float) -> Deadline:
        """A deadline after this share of the time left."""
        return self if self.never else replace(self, end_s=self.clock() + share * self.left_s())

    def pieces(self, first_s: float = 0.0) -> Pieces:
        """For work in pieces that must end in time. first_s: forecast of the first piece, s."""
        return Pieces(self, first_s)

    def leave_out(self, what: str, done: int, of: int) -> None:
        """Report that an analysis ends with `done` of `of`."""
        self.left_out.append(LeftOut(what, done, of))


class Pieces:
    """Work piece by piece: whether the next piece ends in time, judged by the longest one before it on this machine."""

    def __init__(self, deadline: Deadline, first_s: float = 0.0) -> None:
        self.deadline, self.forecast_s = deadline, first_s
        self._began: float | None = None
        self._longest_s = 0.0

    def fits(self) -> bool:
        """Whether the next piece fits. Call it before each piece; the previous piece ends here."""
        if self.deadline.never:
            return True
        now = self.deadline.clock()
        if self._began is not None:
            self._longest_s = max(self._longest_s, now - self._began)
            self.forecast_s = self._longest_s
        self._began = now
        left_s = self.deadline.end_s - now
        return left_s > 0 and self.forecast_s <= left_s


def within(budget_s: float | None, began: float) -> Deadline:
    """The end of a budget that counts from `began` (time.monotonic); None: no end."""
    return Deadline() if budget_s is None else Deadline(began + budget_s)


def left_of(budget_s: float, began: float, reserve_s: float = 1.0) -> float:
    """The time for programs, s, if a command may use budget_s since `began` (time.monotonic).

    reserve_s: the time for saving, at most a quarter of the budget.
    """
    return max(0.2, budget_s - (time.monotonic() - began) - min(reserve_s, budget_s / 4))

"""Stopping rules: a list of them, and the decision of one on a recorded series.

The rules are C++ (native/core/rules), the same objects for live runs and replays; this is their Python interface.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from sonde import _core
from sonde.core.errors import UsageError

DECISIONS = tuple(_core.decision_names())  # by code: proceed, converged, cap, drift

check_rule = _core.check_rule


@dataclass(frozen=True)
class Option:
    """An option of a rule. kind: "int", "float" or "share"; least and most bound it."""

    name: str
    kind: str
    text: str
    default: float
    least: float
    most: float

    @property
    def shown(self) -> str:
        """The default as a person would type it."""
        return f"{self.default:.4g}" if self.kind != "share" else f"{100 * self.default:.4g}%"


@dataclass(frozen=True)
class Rule:
    """One stopping rule. The first option may be given without its name: "ci:1%"."""

    name: str
    text: str
    source: str
    options: tuple[Option, ...]


@cache
def rules() -> tuple[Rule, ...]:
    """All rules, in the order of the help."""
    return tuple(
        Rule(name, text, source, tuple(Option(*option) for option in options))
        for name, text, source, options in _core.rule_list()
    )


def rule_with(precision: float | None, rule: str | None, default: str, room: str) -> str:
    """The rule from --rule, or from --precision, which is short for ci; without both: the default.

    Raises
    ------
    UsageError  <room>.rule_twice: both were given and contradict each other.
    """
    if precision is None:
        return rule or default
    if rule and rule not in ("ci", f"ci:{precision:g}"):
        raise UsageError(
            f"{room}.rule_twice",
            f"--precision {precision:g} is the rule ci:{precision:g}, but --rule asks for {rule}",
            "give one of the two",
        )
    return f"ci:{precision:g}"


@dataclass(frozen=True)
class Replay:
    """The decision of a rule on a series.

    decision : one of DECISIONS; "proceed" if the series ended first. n : samples that the decision rests on.
    skipped : those among them that were left out as warm-up. estimate, low, high : median of the remaining samples and
    its interval, s; NaN if there is no estimate. why : the rule's explanation.
    """

    decision: str
    n: int
    skipped: int
    epochs: int
    estimate: float
    low: float
    high: float
    why: str


def replay(
    series: np.ndarray,
    epoch: np.ndarray | None,
    spec: str,
    *,
    cap: int = 20000,
    least: int = 0,
    seed: int = 1,
    burst: int = 50,
    level: float = 0.95,
) -> Replay:
    """Feeds a recorded series to a rule, epoch by epoch, as the probe would have.

    Parameters
    ----------
    series : (n,) s, in order of measurement; NaN are left out of the estimate
    epoch : (n,) int, burst of each sample, negative for no burst; None: cut into bursts of `burst`
    spec : the rule: "ci:1%", "fixed:1000"
    cap, least : largest number of samples, and the number before which the rule does not stop
    level : of the interval

    Raises
    ------
    UsageError  core.bad_rule. DataError  core.unequal_lengths.
    """
    x = np.ascontiguousarray(series, np.float64)
    e = None if epoch is None else np.ascontiguousarray(epoch, np.int32)
    code, n, skipped, epochs, estimate, low, high, why = _core.replay(
        x, e, spec, cap, least, seed, burst, level
    )
    return Replay(DECISIONS[code], n, skipped, epochs, estimate, low, high, why)

"""Stopping rules: what there are, and what one would have said of a recorded series.

The rules are C++ (native/core/rules), one object for live and replay; this is their Python face.
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
    """Every rule there is, in the order help shows them."""
    return tuple(
        Rule(name, text, source, tuple(Option(*option) for option in options))
        for name, text, source, options in _core.rule_list()
    )


def rule_with(precision: float | None, rule: str | None, default: str, room: str) -> str:
    """The rule asked for by --rule, or by --precision, which is short for ci; neither: the default.

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
    """What a rule said of a series.

    decision : one of DECISIONS; "proceed" when the series ended first. n : samples the decision rests on.
    skipped : of those, left out as warm-up. estimate, low, high : median of what was kept and its interval, s;
    NaN where there is none. why : in the rule's own words.
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
    epoch : (n,) int, burst of each sample, negative where there is none; None: cut into bursts of `burst`
    spec : the rule: "ci:1%", "fixed:1000"
    cap, least : samples at most, and before which it does not stop
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

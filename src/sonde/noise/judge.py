# ruff: noqa: PT028  (`test` is not one of pytest)
"""Does the agent disturb the loop? The judge of `native/noise/judge.hpp`, on blocks of a dataset.

What is said live and what is computed again from the file is one code: this is its only caller here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde import _core
from sonde.core.errors import DataError, UsageError
from sonde.noise.histogram import quantiles

if TYPE_CHECKING:
    import xarray as xr
    from numpy.typing import NDArray

    from sonde.core.deadline import Deadline

LEVELS = (0.5, 0.9, 0.99, 0.999)
"""Quantiles of the iteration that blocks are ranked by, besides their stalls."""

# As in native/noise/judge.cpp; only names depend on it.
_STALLS_A_SECOND = (0.5, 2, 8, 32, 128, 512, 2048)
_MOST_PERMUTATIONS = 10_000_000


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks with and without an agent, in the order measured. Arrays are (block,) but for levels (block, level).

    number     of the block in its run
    segment    within which labels were drawn; blocks of one segment follow each other
    on         whether the agent was on
    begin_s    since the run began
    length_s
    resumed_s  how long before its begin the block's agent was let go; of blocks without one, would have been
    levels     natural logarithm of quantiles of the iteration, in s
    stall_block, stall_t_s, stall_length_s  (stall,): index into the blocks, time since the block's begin
    """

    number: NDArray[np.int32]
    segment: NDArray[np.int32]
    on: NDArray[np.int32]
    begin_s: NDArray[np.float64]
    length_s: NDArray[np.float64]
    resumed_s: NDArray[np.float64]
    levels: NDArray[np.float64]
    stall_block: NDArray[np.int32]
    stall_t_s: NDArray[np.float64]
    stall_length_s: NDArray[np.float64]

    def __post_init__(self) -> None:
        n, stalls = len(self.segment), len(self.stall_block)
        for f in fields(self):
            values = getattr(self, f.name)
            wanted = stalls if f.name.startswith("stall_") else n
            if values.ndim != (2 if f.name == "levels" else 1) or len(values) != wanted:
                raise DataError(
                    "noise.bad_blocks", f"{f.name} has shape {values.shape}; its length must be {wanted}", ""
                )
            # NaN among ranked numbers, or as a time, has no order: the judge's sort would never agree with itself.
            if not np.isfinite(values).all():
                raise DataError(
                    "noise.bad_blocks", f"{f.name} is not known of every block", "leave those out"
                )
        if np.count_nonzero(np.diff(self.segment)) + 1 > max(1, len(np.unique(self.segment))):
            raise DataError(
                "noise.bad_blocks", "blocks of one segment do not follow each other", "sort them by time"
            )
        if stalls and not ((self.stall_block >= 0) & (self.stall_block < n)).all():
            raise DataError("noise.bad_blocks", f"a stall belongs to none of the {n} blocks", "")

    def __len__(self) -> int:
        return len(self.segment)

    @cached_property
    def native(self) -> _core.NoiseBlocks:
        """As the judge takes them; stalls of several ranks that overlap are one there."""
        return _core.NoiseBlocks(
            self.segment,
            self.on,
            self.begin_s,
            self.length_s,
            self.resumed_s,
            self.levels,
            self.stall_block,
            self.stall_t_s,
            self.stall_length_s,
        )

    def where(self, chosen: NDArray[np.bool_]) -> Blocks:
        """Some of the blocks. chosen: (block,)."""
        place = np.cumsum(chosen) - 1
        mine = chosen[self.stall_block]
        kept = {
            f.name: np.ascontiguousarray(
                getattr(self, f.name)[mine if f.name.startswith("stall_") else chosen]
            )
            for f in fields(self)
        }
        kept["stall_block"] = place[kept["stall_block"]].astype(np.int32)
        return Blocks(**kept)

    def clean(self) -> Blocks:
        """The blocks without an agent, one after the other at the pitch of all blocks."""
        off = self.where(self.on == 0)
        pitch = float(np.median(np.diff(self.begin_s))) if len(self) > 1 else 0.0
        moved = {f.name: getattr(off, f.name) for f in fields(off)}
        return Blocks(**{**moved, "begin_s": np.arange(len(off)) * pitch})

    @property
    def comparable(self) -> bool:
        """Whether some segment has blocks of both kinds."""
        kinds = {(int(s), int(on)) for s, on in zip(self.segment, self.on)}
        return any((s, 1 - on) in kinds for s, on in kinds)


@dataclass(frozen=True)
class TestResult:
    """What the permutation test says. p is that of the pair of statistics; each also by itself."""

    p: float
    p_fold: float
    p_ranked: float
    z_fold: float
    z_ranked: float
    period_s: float  # where the fold was largest; 0 without a fold
    phase_s: float
    from_resume: bool  # the phase counts from the moment the agent was let go
    feature: int
    permutations: int  # behind p


@dataclass(frozen=True)
class Look(TestResult):
    """A test on the first `blocks` blocks. p_so_far: min of p / spend, what a run may claim that ends here."""

    blocks: int
    p_so_far: float


@dataclass(frozen=True)
class Design:
    """Segments of a run: pairs of blocks in each, and what share of alpha the look after each may spend."""

    rounds: tuple[int, ...]
    spend: tuple[float, ...]
    alpha: float = 0.01

    def __post_init__(self) -> None:
        if not self.rounds or min(self.rounds) < 1:
            raise UsageError(
                "noise.bad_design", f"rounds are {list(self.rounds)}; each segment needs at least 1", ""
            )
        _check_spend(self.spend)
        if not 0 < self.alpha < 1:
            raise UsageError(
                "noise.bad_alpha", f"alpha is {self.alpha}; allowed is above 0 and below 1", "--alpha 0.01"
            )


@dataclass(frozen=True)
class Search:
    """A search from coarse to fine for the shortest burst that is found.

    burst_s: the shortest so far, to about 10 % after all `steps`; ended after `done` of them it errs on the long side.
    None: not even the longest is found, or `done` is 0.
    """

    burst_s: float | None
    done: int
    steps: int


@dataclass(frozen=True)
class Power:
    """Share of simulated runs that find the bursts, and the blocks each needed; 0 where it did not find them."""

    share: float
    blocks: tuple[int, ...]


def blocks_of(raw: xr.Dataset, on: int | None = 1, off: int = 0) -> Blocks:
    """Blocks of two variants of a run, as the judge sees them.

    A block begins when its first rank begins. Its agent was let go when the first rank says so; where none does, the
    settling time (root attribute settle_s) before the begin is taken. Levels come from the `reader`. All as the
    detector does it live, so that a run judged again gives what it gave then.

    Parameters
    ----------
    raw : /raw of a dataset of kind `run`; may be lazy. Attribute settle_s (default 0), s
    on, off : numbers of the variants; on None: of the blocks without an agent alone

    Returns
    -------
    Blocks with `status` 1 of these variants, in order; empty where there is none.

    Raises
    ------
    UsageError  noise.no_such_variant. DataError  noise.bad_blocks.
    """
    known = raw.sizes["variant_index"]
    for asked in (on, off):
        if asked is not None and not 0 <= asked < known:
            raise UsageError(
                "noise.no_such_variant", f"variant {asked} is asked for; the run has 0 to {known - 1}", ""
            )
    if on == off:
        raise UsageError("noise.no_such_variant", f"variant {on} cannot be compared with itself", "")
    variant = raw["variant"].values
    chosen = np.flatnonzero(
        (raw["status"].values == 1) & np.isin(variant, (off,) if on is None else (on, off))
    )
    t_begin = raw["t_begin"].values[:, chosen]
    present = np.isfinite(t_begin).any(axis=1) if len(chosen) else np.zeros(raw.sizes["rank"], bool)
    ranks = np.flatnonzero(present)
    is_on = np.zeros(len(chosen), bool) if on is None else variant[chosen] == on
    if not len(ranks):
        chosen, is_on, t_begin = chosen[:0], is_on[:0], t_begin[:, :0]
    begin = _least(t_begin)
    settle_s = float(raw.attrs.get("settle_s", 0) or 0)
    resumed = _first(raw["resumed"].values[:, chosen])
    before = np.where(np.isfinite(resumed), begin - resumed, settle_s)
    length = raw["length"].values[ranks][:, chosen]
    return Blocks(
        number=chosen.astype(np.int32),
        segment=raw["segment"].values[chosen].astype(np.int32),
        on=is_on.astype(np.int32),
        begin_s=begin,
        length_s=length.max(axis=0) if len(ranks) else np.zeros(0),
        resumed_s=before,
        levels=_levels(raw, chosen),
        **_stalls(raw, ranks, chosen, begin),
    )


def _least(times: np.ndarray) -> NDArray[np.float64]:
    """Least over ranks of each block; NaN where no rank knows."""
    if not len(times):
        return np.full(times.shape[1], np.nan)
    least = np.where(np.isnan(times), np.inf, times).min(axis=0)
    return np.where(np.isinf(least), np.nan, least)


def _first(times: np.ndarray) -> NDArray[np.float64]:
    """What the first rank that knows says of each block, as live; NaN where none knows."""
    out = np.full(times.shape[1], np.nan)
    for row in times:
        out = np.where(np.isnan(out), row, out)
    return out


def reader(raw: xr.Dataset) -> int:
    """The rank that timed iterations most finely, of several the first; 0 where no rank's calibration is known.

    raw: stamp_every (rank).
    """
    every = raw["stamp_every"].values
    return int(np.argmin(np.where(every > 0, every, np.inf)))


def _levels(raw: xr.Dataset, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
    rank = reader(raw)
    edges = raw["class_edge"][rank].values
    if (
        not len(chosen) or not np.isfinite(edges).all()
    ):  # no calibration: it is warned of, and all levels are alike
        return np.zeros((len(chosen), len(LEVELS)))
    found = quantiles(raw["count"][rank].values[chosen], edges, LEVELS)
    return np.log(np.maximum(np.nan_to_num(found), float(raw["tick"][rank])))


def _stalls(
    raw: xr.Dataset, ranks: NDArray[np.intp], chosen: NDArray[np.intp], begin: NDArray[np.float64]
) -> dict[str, Any]:
    place = np.full(raw.sizes["block"], -1, np.int32)
    place[chosen] = np.arange(len(chosen))
    blocks, times, lengths = [np.zeros(0, np.int32)], [np.zeros(0)], [np.zeros(0)]
    for rank in ranks.tolist():
        n = int(raw["n_stalls"][rank])
        if n == 0 or not len(chosen):
            continue
        block = place[raw["stall_block"][rank, :n].values]
        mine = block >= 0
        blocks.append(block[mine])
        times.append(raw["stall_t"][rank, :n].values[mine] - begin[block[mine]])
        lengths.append(raw["stall_length"][rank, :n].values[mine])
    return {
        "stall_block": np.concatenate(blocks),
        "stall_t_s": np.concatenate(times),
        "stall_length_s": np.concatenate(lengths),
    }


def test(
    blocks: Blocks,
    periods_s: Iterable[float] = (),
    *,
    fold_weight: float = 0.8,
    permutations: int = 1999,
    seed: int = 1,
) -> TestResult:
    """The permutation test on all blocks.

    Parameters
    ----------
    periods_s : s, to fold stalls at; without one the fold is left out
    fold_weight : share of alpha for the fold, in (0, 1)
    permutations, seed : of the labels

    Returns
    -------
    TestResult; p is 1 where no segment has blocks of both kinds.

    Raises
    ------
    UsageError  noise.bad_period, noise.bad_weight, noise.bad_permutations, noise.bad_seed.
    """
    options = _options(periods_s, fold_weight, permutations, seed)
    return TestResult(**blocks.native.test(*options))


def looks(
    blocks: Blocks,
    ends: Sequence[int],
    spend: Sequence[float],
    periods_s: Iterable[float] = (),
    *,
    fold_weight: float = 0.8,
    permutations: int = 1999,
    seed: int = 1,
    deadline: Deadline | None = None,
    known: Sequence[Look] = (),
) -> list[Look]:
    """What a run would have said after each of its segments.

    By the deadline a look is ended with the permutations that it has: its p is as valid, and cannot be as small.

    Parameters
    ----------
    ends : numbers of blocks, rising; each at most len(blocks)
    spend : share of alpha for each look, together at most 1; looks beyond it decide nothing
    periods_s, fold_weight, permutations, seed : as for `test`
    known : the first looks, which are not repeated

    Raises
    ------
    UsageError  noise.bad_looks, noise.bad_spend, and those of `test`.
    """
    wanted = [int(end) for end in ends]
    if any(not 0 < end <= len(blocks) for end in wanted) or any(b <= a for a, b in pairwise(wanted)):
        raise UsageError(
            "noise.bad_looks",
            f"looks after {wanted} blocks; they must rise from 1 to at most {len(blocks)}",
            "",
        )
    _check_spend(spend)
    options = _options(periods_s, fold_weight, permutations, seed)
    rest = wanted[len(known) :]
    over = None if deadline is None or deadline.never else deadline.pieces().fits
    before = known[-1].p_so_far if known else 1.0
    rows = blocks.native.looks(rest, [float(s) for s in spend], *options, over, len(known), before)
    return [*known, *(Look(blocks=end, **row) for end, row in zip(rest, rows))]


def power(
    blocks: Blocks,
    design: Design,
    period_s: float,
    burst_s: float,
    shortest_s: float,
    periods_s: Iterable[float] | None = None,
    *,
    fold_weight: float = 0.8,
    permutations: int = 999,
    seed: int = 1,
    runs: int = 200,
) -> Power:
    """How often runs of a design find bursts that are put into the blocks without an agent.

    Parameters
    ----------
    blocks : those without an agent are drawn from
    period_s, burst_s : s, of the bursts; a burst of 0 gives the false alarms
    shortest_s : s, bursts below it are not seen: the threshold of a stall
    periods_s : s, that the judge folds at; by default period_s
    runs : simulated
    fold_weight, permutations, seed : as for `test`

    Raises
    ------
    UsageError  noise.bad_burst, noise.bad_runs, and those of `test`. DataError  noise.no_clean_blocks.
    """
    clean, options = _simulated(
        blocks, period_s, shortest_s, periods_s, fold_weight, permutations, seed, runs
    )
    if not (math.isfinite(burst_s) and 0 <= burst_s <= period_s):
        raise UsageError(
            "noise.bad_burst", f"a burst of {burst_s} s; allowed is 0 to the period of {period_s} s", ""
        )
    share, needed = clean.native.power(
        list(design.rounds), list(design.spend), design.alpha, period_s, burst_s, shortest_s, *options, runs
    )
    return Power(share, tuple(needed))


def detectable_burst(
    blocks: Blocks,
    design: Design,
    period_s: float,
    shortest_s: float,
    periods_s: Iterable[float] | None = None,
    *,
    wanted: float = 0.9,
    fold_weight: float = 0.8,
    permutations: int = 999,
    seed: int = 1,
    runs: int = 100,
    deadline: Deadline | None = None,
    run_s: float = 0.0,
) -> Search:
    """A search, by the deadline, for the shortest burst a period that a run of the design finds with power `wanted`.

    run_s: forecast of a simulated run, s. Other parameters and errors as for `power`; shortest_s above 0;
    noise.bad_power where `wanted` is not in (0, 1].
    """
    clean, options = _simulated(
        blocks, period_s, shortest_s, periods_s, fold_weight, permutations, seed, runs
    )
    if not 0 < wanted <= 1:
        raise UsageError("noise.bad_power", f"a power of {wanted} is asked for; allowed is above 0, to 1", "")
    over = None if deadline is None or deadline.never else deadline.pieces(run_s).fits
    rounds, spend = list(design.rounds), list(design.spend)
    return Search(
        *clean.native.detectable_burst(
            rounds, spend, design.alpha, period_s, shortest_s, *options, wanted, runs, over
        )
    )


def _simulated(
    blocks: Blocks,
    period_s: float,
    shortest_s: float,
    periods_s: Iterable[float] | None,
    fold_weight: float,
    permutations: int,
    seed: int,
    runs: int,
) -> tuple[Blocks, tuple[list[float], float, int, int]]:
    options = _options(
        (period_s,) if periods_s is None else periods_s, fold_weight, permutations, seed, also=period_s
    )
    if not (math.isfinite(shortest_s) and shortest_s > 0):
        raise UsageError("noise.bad_burst", f"the shortest burst is {shortest_s} s; it must be above 0", "")
    if runs < 1:
        raise UsageError("noise.bad_runs", f"{runs} simulated runs; at least 1 is needed", "")
    clean = blocks.clean()
    if not len(clean):
        raise DataError(
            "noise.no_clean_blocks",
            "no block without an agent was measured: there is nothing to put bursts into",
            "measure longer",
        )
    return clean, options


def _options(
    periods_s: Iterable[float], fold_weight: float, permutations: int, seed: int, also: float = 1.0
) -> tuple[list[float], float, int, int]:
    periods = [float(period) for period in periods_s]
    for period in (*periods, also):
        if not (math.isfinite(period) and period > 0):
            raise UsageError("noise.bad_period", f"a period of {period} s; it must be above 0", "--period 1s")
    if not 0 < fold_weight < 1:
        raise UsageError(
            "noise.bad_weight", f"the fold's share of alpha is {fold_weight}; it must lie between 0 and 1", ""
        )
    if not 1 <= permutations <= _MOST_PERMUTATIONS:
        raise UsageError(
            "noise.bad_permutations",
            f"{permutations} permutations; allowed are 1 to {_MOST_PERMUTATIONS}",
            "",
        )
    if not 0 <= seed < 2**64:
        raise UsageError("noise.bad_seed", f"the seed is {seed}; allowed are 0 to 2^64 - 1", "--seed 1")
    return periods, fold_weight, permutations, seed


def _check_spend(spend: Sequence[float]) -> None:
    # Shares such as three times a third add up to a little more than 1 in floating point.
    if not spend or any(not 0 <= share <= 1 for share in spend) or math.fsum(spend) > 1 + 1e-9:
        raise UsageError(
            "noise.bad_spend",
            f"looks spend {list(spend)} of alpha; each must be 0 to 1, together at most 1",
            "",
        )

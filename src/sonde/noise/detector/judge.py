# ruff: noqa: PT028  (`test` is not a pytest function)
"""The test whether the agent disturbs the loop: the judge of `native/noise/judge.hpp`, on blocks of a dataset.

The live verdict and the analysis of the file use the same native code; only this module calls it from Python.
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
from sonde.noise.detector.histogram import quantiles

if TYPE_CHECKING:
    import xarray as xr
    from numpy.typing import NDArray

    from sonde.core.deadline import Deadline

LEVELS = (0.5, 0.9, 0.99, 0.999)
"""The quantiles of the iteration by which blocks are ranked, besides their stalls."""

# As in native/noise/judge.cpp; only names depend on this.
_STALLS_A_SECOND = (0.5, 2, 8, 32, 128, 512, 2048)
_MAX_PERMUTATIONS = 10_000_000


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks with and without an agent, in the measured order. Arrays are (block,), only levels is (block, level).

    number     number of the block in its run
    segment    labels were drawn within a segment; blocks of one segment follow each other
    on         whether the agent was on
    begin_s    time since the run began
    length_s
    resumed_s  time from resuming the agent to the begin of the block; without an agent, the same as if there were one
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
            # NaN has no order, so the judge's sort would be inconsistent.
            if not np.isfinite(values).all():
                raise DataError(
                    "noise.bad_blocks", f"{f.name} is unknown for some blocks", "leave out these blocks"
                )
        if np.count_nonzero(np.diff(self.segment)) + 1 > max(1, len(np.unique(self.segment))):
            raise DataError(
                "noise.bad_blocks", "blocks of one segment do not follow each other", "sort them by time"
            )
        if stalls and not ((self.stall_block >= 0) & (self.stall_block < n)).all():
            raise DataError(
                "noise.bad_blocks", f"a stall belongs to a block that is not one of the {n} blocks", ""
            )

    def __len__(self) -> int:
        return len(self.segment)

    @cached_property
    def native(self) -> _core.NoiseBlocks:
        """The blocks in the form for the judge, which merges overlapping stalls of several ranks."""
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
        """The chosen blocks. chosen: (block,)."""
        new_index = np.cumsum(chosen) - 1
        in_chosen = chosen[self.stall_block]
        columns = {
            f.name: np.ascontiguousarray(
                getattr(self, f.name)[in_chosen if f.name.startswith("stall_") else chosen]
            )
            for f in fields(self)
        }
        columns["stall_block"] = new_index[columns["stall_block"]].astype(np.int32)
        return Blocks(**columns)

    def clean(self) -> Blocks:
        """The blocks without an agent, one after the other, with the median pitch of all blocks."""
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
    """The result of the permutation test. p is that of both statistics together; p_fold and p_ranked are for each."""

    p: float
    p_fold: float
    p_ranked: float
    z_fold: float
    z_ranked: float
    period_s: float  # period with the largest fold; 0 without a fold
    phase_s: float
    from_resume: bool  # the phase counts from the moment the agent was resumed
    feature: int
    permutations: int  # permutations used for p


@dataclass(frozen=True)
class Look(TestResult):
    """A test on the first `blocks` blocks. p_so_far: min of p / spend, the valid p of a run that ends here."""

    blocks: int
    p_so_far: float


@dataclass(frozen=True)
class Design:
    """The segments of a run: pairs of blocks in each, and the share of alpha that the look after each may spend."""

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
                "noise.bad_alpha", f"alpha is {self.alpha}; it must be above 0 and below 1", "--alpha 0.01"
            )


@dataclass(frozen=True)
class Search:
    """The result of a search, from coarse to fine, for the shortest burst that is detected.

    burst_s: the shortest so far, exact to about 10 % after all `steps`. If the search ended after `done` steps, the
    value may be too long. None: even the longest burst is not detected, or `done` is 0.
    """

    burst_s: float | None
    done: int
    steps: int


@dataclass(frozen=True)
class Power:
    """The share of simulated runs that detect the bursts, and the blocks that each run needed; 0 if it did not."""

    share: float
    blocks: tuple[int, ...]


def blocks_of(raw: xr.Dataset, on: int | None = 1, off: int = 0) -> Blocks:
    """The blocks of two variants of a run, for the judge.

    A block begins when its first rank begins. The first rank that has recorded it gives the time at which the agent
    was resumed; otherwise it is the settling time (root attribute settle_s) before the begin. Levels come from the
    `reader`. All this is the same as in the live detector, so a run that is judged again gives the same result.

    Parameters
    ----------
    raw : /raw of a dataset of kind `run`; may be lazy. Attribute settle_s (default 0), s
    on, off : numbers of the variants; on None: only the blocks without an agent

    Returns
    -------
    The blocks of these variants with `status` 1, in order; empty where there are no such blocks.

    Raises
    ------
    UsageError  noise.no_such_variant. DataError  noise.bad_blocks.
    """
    known = raw.sizes["variant_index"]
    for number in (on, off):
        if number is not None and not 0 <= number < known:
            raise UsageError(
                "noise.no_such_variant", f"there is no variant {number}; the run has 0 to {known - 1}", ""
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
    """The least value over ranks for each block; NaN where no rank has a value."""
    if not len(times):
        return np.full(times.shape[1], np.nan)
    least = np.where(np.isnan(times), np.inf, times).min(axis=0)
    return np.where(np.isinf(least), np.nan, least)


def _first(times: np.ndarray) -> NDArray[np.float64]:
    """The value of the first rank that has one, for each block, as in the live detector; NaN where no rank has one."""
    out = np.full(times.shape[1], np.nan)
    for row in times:
        out = np.where(np.isnan(out), row, out)
    return out


def reader(raw: xr.Dataset) -> int:
    """The rank that timed iterations most finely, the first of several; 0 where no rank has a calibration.

    raw: stamp_every (rank).
    """
    every = raw["stamp_every"].values
    return int(np.argmin(np.where(every > 0, every, np.inf)))


def _levels(raw: xr.Dataset, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
    rank = reader(raw)
    edges = raw["class_edge"][rank].values
    # Without a calibration all levels are equal; there is a warning for this case.
    if not len(chosen) or not np.isfinite(edges).all():
        return np.zeros((len(chosen), len(LEVELS)))
    found = quantiles(raw["count"][rank].values[chosen], edges, LEVELS)
    return np.log(np.maximum(np.nan_to_num(found), float(raw["tick"][rank])))


def _stalls(
    raw: xr.Dataset, ranks: NDArray[np.intp], chosen: NDArray[np.intp], begin: NDArray[np.float64]
) -> dict[str, Any]:
    new_index = np.full(raw.sizes["block"], -1, np.int32)
    new_index[chosen] = np.arange(len(chosen))
    blocks, times, lengths = [np.zeros(0, np.int32)], [np.zeros(0)], [np.zeros(0)]
    for rank in ranks.tolist():
        n = int(raw["n_stalls"][rank])
        if n == 0 or not len(chosen):
            continue
        block = new_index[raw["stall_block"][rank, :n].values]
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
    periods_s : periods at which stalls are folded, s; without any the fold is left out
    fold_weight : share of alpha for the fold, in (0, 1)
    permutations, seed : number and seed of the permutations of the labels

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
    """The looks of a run after each of its segments.

    At the deadline a look ends with the permutations that it has. Its p is still valid, but cannot be as small.

    Parameters
    ----------
    ends : numbers of blocks, increasing; each at most len(blocks)
    spend : share of alpha for each look, together at most 1; looks without a share cannot detect
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
            f"looks after {wanted} blocks; the numbers must increase, from 1 to at most {len(blocks)}",
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
    """The share of runs of a design that detect bursts which are put into the blocks without an agent.

    Parameters
    ----------
    blocks : the blocks without an agent among them are sampled
    period_s, burst_s : period and length of the bursts, s; a burst of 0 gives the false alarms
    shortest_s : the threshold of a stall, s; shorter bursts are invisible
    periods_s : the periods at which the judge folds, s; by default period_s
    runs : number of simulated runs
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
            "noise.bad_burst",
            f"the burst is {burst_s} s; it must be from 0 to the period of {period_s} s",
            "",
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
    """Search for the shortest burst in each period that a run of the design detects with power `wanted`.

    It ends by the deadline. run_s: expected time of a simulated run, s. Other parameters and errors as for `power`;
    shortest_s above 0;
    noise.bad_power where `wanted` is not in (0, 1].
    """
    clean, options = _simulated(
        blocks, period_s, shortest_s, periods_s, fold_weight, permutations, seed, runs
    )
    if not 0 < wanted <= 1:
        raise UsageError("noise.bad_power", f"the power is {wanted}; it must be above 0 and at most 1", "")
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
        raise UsageError("noise.bad_runs", f"{runs} simulated runs were requested; at least 1 is needed", "")
    clean = blocks.clean()
    if not len(clean):
        raise DataError(
            "noise.no_clean_blocks",
            "no block without an agent was measured, so there are no blocks to put bursts into",
            "measure longer",
        )
    return clean, options


def _options(
    periods_s: Iterable[float], fold_weight: float, permutations: int, seed: int, also: float = 1.0
) -> tuple[list[float], float, int, int]:
    periods = [float(period) for period in periods_s]
    for period in (*periods, also):
        if not (math.isfinite(period) and period > 0):
            raise UsageError(
                "noise.bad_period", f"the period is {period} s; it must be above 0", "--period 1s"
            )
    if not 0 < fold_weight < 1:
        raise UsageError(
            "noise.bad_weight", f"the fold's share of alpha is {fold_weight}; it must lie between 0 and 1", ""
        )
    if not 1 <= permutations <= _MAX_PERMUTATIONS:
        raise UsageError(
            "noise.bad_permutations",
            f"{permutations} permutations were requested; 1 to {_MAX_PERMUTATIONS} are allowed",
            "",
        )
    if not 0 <= seed < 2**64:
        raise UsageError("noise.bad_seed", f"the seed is {seed}; it must be from 0 to 2^64 - 1", "--seed 1")
    return periods, fold_weight, permutations, seed


def _check_spend(spend: Sequence[float]) -> None:
    # Shares such as three times a third add up to a little more than 1 in floating point.
    if not spend or any(not 0 <= share <= 1 for share in spend) or math.fsum(spend) > 1 + 1e-9:
        raise UsageError(
            "noise.bad_spend",
            f"looks spend {list(spend)} of alpha; each must be 0 to 1, together at most 1",
            "",
        )

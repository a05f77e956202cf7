"""Which of several members that should be equal, such as the servers of a file system, is slower than the others. Pure.

A member is compared with the median of the others, separately in each block of equal operations. It is slower if the
difference passes Benjamini and Hochberg's step over all comparisons *and* is at least `matters`: two healthy members
are never exactly alike.

Two kinds of data have two tests. Single operations are compared epoch by epoch: operations that a pause delays
together, and regimes that come and go, are in one epoch and count once (`by_epoch`). Counters that report a mean, the
shortest and the longest operation bound the error of the mean, whatever the law (`by_mean`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

from sonde.core import stats

LEVEL = 0.01  # false-discovery level
POWER = 0.8
MATTERS = 0.25  # relative difference below which a member is as fast as the others
MIN_MEMBERS = 3  # with two members, nothing shows which one is at fault
MIN_OPERATIONS = 2  # per member and epoch
MIN_EPOCHS = 10  # with fewer, no p of signed ranks passes the level even for a few members
MIN_CUT, MAX_CUT = 12, 32  # number of epochs that operations are cut into; some may lack a member
ALL = -1  # block: operations of all blocks, each relative to the median of its block
_NORMAL_95 = 1.96


@dataclass(frozen=True)
class Compared:
    """Comparisons of a member with the others; arrays of one length.

    member, block : numbers from the caller; `ALL` for all blocks together
    operations : of the member in that block
    ratio, low, high : its time over the median of the others, with the 95 % interval; NaN if not compared
    p : one-sided; NaN: too few operations or members
    own_error, others_error : relative standard errors of the member's time and of the others' median; NaN as `p`
    expected_s : the time that the median of the others would have needed for these operations, s; NaN as `p`, and from
    `by_epoch`
    """

    member: np.ndarray
    block: np.ndarray
    operations: np.ndarray
    ratio: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p: np.ndarray
    own_error: np.ndarray
    others_error: np.ndarray
    expected_s: np.ndarray


def joined(parts: Sequence[Compared]) -> Compared:
    """Comparisons of one question, to be judged together. parts : at least one."""
    columns = zip(*(astuple(part) for part in parts))
    return Compared(*(np.concatenate(column) for column in columns))


def over_blocks(parts: Sequence[Compared]) -> Compared:
    """Comparisons of each member over all operations in which it was compared, as block `ALL`.

    A member that is slow itself is slow in all operations, but a single operation may be inconclusive.

    parts : from `by_mean`, each of one operation; members that were compared in fewer than two operations have no
    comparison here. The ratio is the member's total time over the time that the others would have needed for the same
    operations.

    Source: Stouffer et al., The American Soldier, 1949: sums of standard normal values.
    """
    from scipy import stats as sps

    rows = []
    one = joined(parts)
    for member in np.unique(one.member).tolist():
        mine = np.flatnonzero((one.member == member) & np.isfinite(one.p))
        if len(mine) < 2:
            continue
        k, weight = len(mine), one.expected_s[mine]
        z = float(sps.norm.isf(np.clip(one.p[mine], 1e-300, 1 - 1e-12)).sum()) / k**0.5
        # Weighted as in the sum of z: operations with small errors count most.
        with np.errstate(divide="ignore"):
            own, others = (
                float(k**0.5 / (1 / error[mine]).sum()) for error in (one.own_error, one.others_error)
            )
        ratio = float(np.average(one.ratio[mine], weights=weight))
        width = float(np.sqrt((((one.high - one.ratio)[mine] * weight) ** 2).sum()) / weight.sum())
        p = float(sps.norm.sf(z))
        operations = float(one.operations[mine].sum())
        low, high = max(0.0, ratio - width), ratio + width
        rows.append(
            (float(member), float(ALL), operations, ratio, low, high, p, own, others, float(weight.sum()))
        )
    return _compared(rows)


def _compared(rows: Sequence[Sequence[float]]) -> Compared:
    columns = np.array(rows, np.float64).reshape(-1, 10).T
    return Compared(*(column.astype(np.int64) for column in columns[:3]), *columns[3:])


@dataclass(frozen=True)
class Judged:
    """q : p corrected for the number of comparisons. slower : bool. detectable : the ratio that is detected with 80 %
    power; infinite if no ratio is detectable, NaN if nothing was compared.
    """

    q: np.ndarray
    slower: np.ndarray
    detectable: np.ndarray


def judged(
    ratio: np.ndarray,
    p: np.ndarray,
    own_error: np.ndarray,
    others_error: np.ndarray,
    matters: float = MATTERS,
    level: float = LEVEL,
) -> Judged:
    """Find the comparisons with a slower member. Arguments as in `Compared`; give all comparisons of one question at
    once.

    Source: Benjamini and Hochberg 1995.
    """
    from scipy import stats as sps

    q = stats.false_discovery(p)
    count = max(1, int(np.isfinite(p).sum()))
    # The level that a single slower member must pass at the first step of the correction.
    reach = float(sps.norm.isf(level / count) + sps.norm.isf(1 - POWER))
    own, others = ((reach * error) ** 2 for error in (own_error, others_error))
    with np.errstate(invalid="ignore", divide="ignore"):
        # (r - 1)^2 = r^2 own + others: a slower member's error grows with its time.
        root = (1 + np.sqrt(np.maximum(1 - (1 - own) * (1 - others), 0))) / (1 - own)
        detectable = np.where(own < 1, np.maximum(root, 1 + matters), np.inf)
        slower = (q <= level) & (ratio >= 1 + matters)
    return Judged(q, slower, np.where(np.isfinite(p), detectable, np.nan))


def by_epoch(
    time_s: np.ndarray,
    begin: np.ndarray,
    member: np.ndarray,
    block: np.ndarray,
    members: int,
    stratum: np.ndarray | None = None,
) -> Compared:
    """Compare members by their single operations.

    Parameters
    ----------
    time_s : (n,) float, above 0     duration of each operation, s
    begin : (n,) int or float        when it began, any unit: epochs are stretches of it
    member : (n,) int in [0, members)
    block : (n,) int >= 0            operations of one block are equal: of one kind and size class
    members : int                    number of members
    stratum : (n,) int               a finer division of blocks, as by client: what differs between strata is no
                                     difference between members. None: blocks are not divided

    Returns
    -------
    Compared, for each member in each block, and, with two blocks or more, for all of them together. In each epoch, the
    median of the member's log times is compared with the median of the others' medians; p and the interval come from
    the differences of the epochs.

    Source: Hodges and Lehmann 1963; Wilcoxon 1945 (signed ranks); aligned strata: Hodges and Lehmann 1962.
    """
    strata = np.unique(
        block if stratum is None else np.stack([block, stratum]), axis=-1, return_inverse=True
    )[1]
    log_time, known = _aligned(np.log(time_s), member, strata.reshape(-1), members)
    blocks = np.unique(block).tolist()
    rows: list[tuple[float, ...]] = []
    for one in [*blocks, ALL] if len(blocks) > 1 else blocks:
        mine = known & ((block == one) | (one == ALL))
        counts = np.bincount(member[(block == one) | (one == ALL)], minlength=members)
        rows += _in_block(log_time[mine], begin[mine], member[mine], counts, one)
    return _compared(rows)


def _aligned(
    log_time: np.ndarray, member: np.ndarray, stratum: np.ndarray, members: int
) -> tuple[np.ndarray, np.ndarray]:
    """Log times minus the median of the members' medians of their stratum, and a mask of those in a stratum with enough
    members: a member that has most of a stratum's operations does not move its median.
    """
    strata = int(stratum.max(initial=-1)) + 1
    cell, place = np.unique(stratum * members + member, return_inverse=True)
    of_stratum = cell // members
    middle = _medians(_medians(log_time, place, len(cell), 1), of_stratum, strata, MIN_MEMBERS)
    known = np.isfinite(middle)[stratum]
    return np.where(known, log_time - middle[stratum], 0.0), known


def _in_block(
    log_time: np.ndarray, begin: np.ndarray, member: np.ndarray, counts: np.ndarray, block: int
) -> list[tuple[float, ...]]:
    """Rows of `Compared`, one for each member that has operations. counts : per member, including operations in no
    usable stratum.
    """
    from scipy import stats as sps

    nan = float("nan")
    n, members = len(log_time), len(counts)
    present = np.flatnonzero(counts)
    cut = int(np.clip(n // (2 * MIN_OPERATIONS * max(1, len(present))), MIN_CUT, MAX_CUT))
    epoch = np.empty(n, np.int64)
    epoch[np.argsort(begin, kind="stable")] = np.arange(n) * cut // max(1, n)
    each = _medians(log_time, epoch * members + member, cut * members, MIN_OPERATIONS)
    middle = each.reshape(cut, members)[:, present]
    rows: list[tuple[float, ...]] = []
    for k, one in enumerate(present.tolist()):
        others = np.delete(middle, k, axis=1)
        usable = np.isfinite(middle[:, k]) & (np.isfinite(others).sum(axis=1) >= MIN_MEMBERS - 1)
        row = (float(one), float(block), float(counts[one]))
        if usable.sum() < MIN_EPOCHS:
            rows.append((*row, nan, nan, nan, nan, nan, nan, nan))
            continue
        difference = middle[usable, k] - np.nanmedian(others[usable], axis=1)
        shift = stats.hodges_lehmann(difference)
        p = float(sps.wilcoxon(difference, alternative="greater").pvalue) if difference.any() else 1.0
        error = (shift.high - shift.low) / (2 * _NORMAL_95)
        rows.append((*row, *np.exp([shift.estimate, shift.low, shift.high]).tolist(), p, error, 0.0, nan))
    return rows


def _medians(values: np.ndarray, group: np.ndarray, groups: int, at_least: int) -> np.ndarray:
    """Median of each group; NaN for groups with fewer values."""
    order = np.lexsort((values, group))
    count = np.bincount(group, minlength=groups)
    first = np.cumsum(count) - count
    enough = count >= at_least
    found = np.full(groups, np.nan)
    low, high = (first + (count - 1) // 2)[enough], (first + count // 2)[enough]
    found[enough] = (values[order[low]] + values[order[high]]) / 2
    return found


def by_mean(
    calls: np.ndarray,
    mean: np.ndarray,
    least: np.ndarray,
    longest: np.ndarray,
    together: float = 1.0,
    block: int = 0,
) -> Compared:
    """Compare members by counters of equal operations.

    Parameters
    ----------
    calls : (members,) int           how often each did it
    mean, least, longest : (members,) float     duration, s; NaN: unknown
    together : float >= 1            operations that one request became: a pause holds them up together, so that they
                                     count as one
    block : int                      number of the operation

    Returns
    -------
    Compared, for each member with calls. Not compared: members with unknown extremes or fewer than two independent
    calls, and all members if fewer than MIN_MEMBERS are left.

    The variance of values between `least` and `longest` with this mean is at most (longest - mean)(mean - least),
    whatever their law: the test is conservative.

    Source: Bhatia and Davis, American Mathematical Monthly 107, 2000, 353-357; design effect of clusters: Kish 1965.
    """
    from scipy import stats as sps

    calls = np.asarray(calls, np.float64)
    present = np.flatnonzero(calls > 0)
    independent = calls / max(1.0, together)
    columns = np.full((7, len(calls)), np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = np.maximum((longest - mean) * (mean - least), 0.0) / (independent - 1)
    usable = np.flatnonzero(np.isfinite(variance) & (independent >= 2) & (mean > 0))
    for k in usable.tolist() if len(usable) >= MIN_MEMBERS else ():
        others = usable[usable != k]
        middle = float(np.median(mean[others]))
        # Healthy members differ among themselves by more than the error of their means: use the larger of the two.
        spread = 1.4826 * float(np.median(np.abs(mean[others] - middle)))
        theirs = max(float(np.median(variance[others])), spread**2)
        error = float(np.sqrt(variance[k] + theirs))
        excess = float(mean[k]) - middle
        p = float(sps.norm.sf(excess / error)) if error > 0 else (0.0 if excess > 0 else 1.0)
        ratio, width = float(mean[k]) / middle, _NORMAL_95 * error / middle
        own = float(np.sqrt(variance[k])) / float(mean[k])
        low, high, theirs = max(0.0, ratio - width), ratio + width, float(np.sqrt(theirs)) / middle
        columns[:, k] = ratio, low, high, p, own, theirs, calls[k] * middle
    return Compared(
        present,
        np.full(len(present), block),
        calls[present].astype(np.int64),
        *(column[present] for column in columns),
    )

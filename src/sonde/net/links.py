"""Slow links: pairs of ranks that are slower than ranks, sizes and link class explain, with significance.

    log latency(pair, size) = class(pair, size) + sender(src) + receiver(dst) + rest(pair, size)

The model is fitted by medians, so that slow links do not pull it towards themselves. The rest is compared with the
usual differences between links of a class and with the error of the link itself. A rank that is slow as a whole is
reported separately: it moves its own effect, not the rest of its links.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats as sps

from sonde.core.comparison import LEAST_ERROR
from sonde.core.stats import false_discovery
from sonde.net.link_causes import LEAST_OF_CAUSE, Slow, by_cause, by_host
from sonde.net.link_model import Fit, fitted, median_last
from sonde.net.pairs import LEAST_LINKS_OF_RANK, LEAST_RANKS, Pairs, shrunk_errors

# With fewer links than this a class has no spread of its own and uses that of all classes.
LEAST_LINKS_FOR_SPREAD = 8
# From this number of links on, the spread accounts for the reach of the slowest 2.5 %.
LEAST_LINKS_FOR_TAIL = 100
# Far outlying links count as crowded at a rank if the probability of such a number there is at most this.
CROWD_CHANCE = 1e-3
# A MAD estimates a spread as precisely as an sd of this share of normal values.
SCALE_DEGREES = 0.37
# The law of the rest is never assumed to have thinner tails than Student's with this many degrees of freedom.
MOST_DEGREES = 30
# A set of sizes counts as slow, without doubt, from this level on.
SURE = 1e-3
# A slow-down must be at least this large to be reported, however significant it is.
LEAST_SLOWDOWN = 0.05


@dataclass(frozen=True)
class LinkTest:
    """The result of the test for slow links in all pairs.

    ratio : (P, S) measured over expected. p, q : (P,) one-sided over all sizes at once. expected : (P, S), s
    detectable, detectable_one : the slow-down (0.2 = 20 %) of a single slow link, at all sizes and at the size with the
    largest error, that is detected with probability `power`; NaN if nothing could be tested
    """

    links: list[Slow]
    ranks: list[Slow]
    ratio: np.ndarray
    expected: np.ndarray
    p: np.ndarray
    q: np.ndarray
    detectable: float
    detectable_one: float
    power: float
    alpha: float
    least: float
    note: str = ""


def slow_links(
    pairs: Pairs,
    classes: np.ndarray,
    alpha: float = 0.05,
    least: float = LEAST_SLOWDOWN,
    power: float = 0.95,
) -> LinkTest:
    """Find links and ranks that are slower than the model explains.

    Parameters
    ----------
    pairs : links with medians and their errors
    classes : (P,) int, class of each link
    alpha : allowed share of false reports (false-discovery rate)
    least : the smallest slow-down that is reported, 0.05 = 5 %
    power : for `detectable`

    Returns
    -------
    LinkTest. With fewer than 4 links there is no test: p and q are NaN, and `note` gives the reason.

    Source: two-way fit by medians, Tukey, Exploratory Data Analysis, 1977, ch. 11; one p over sizes that
    depend on each other by the Cauchy combination, Liu & Xie, J. Am. Stat. Assoc. 115, 2020, 393-402;
    Benjamini & Hochberg, J. R. Statist. Soc. B 57, 1995, 289-300.
    """
    rows, sizes = pairs.log_latency.shape
    nothing = np.full(rows, np.nan)
    if rows < 4:
        return LinkTest(
            [],
            [],
            np.ones((rows, sizes)),
            np.exp(pairs.log_latency),
            nothing,
            nothing,
            np.nan,
            np.nan,
            power,
            alpha,
            least,
            f"{rows} link{'s are' if rows != 1 else ' is'} too few to find a slow one (4 are needed)",
        )
    fit = fitted(pairs, pairs.ways, classes)
    singles = bool(np.isfinite(pairs.low).any())
    # A link with more than its share of slow spells has a slow median but ordinary fast delays. A slow link does not,
    # nor does a slow rank.
    quick = fitted(pairs, pairs.low, classes) if singles else fit
    ranks = _slow_ranks(pairs, np.fmin(fit.effect, quick.effect), fit.weight, alpha, least)
    for one in {id(fit): fit, id(quick): quick}.values():
        _excuse(pairs, one, ranks)
    rest = _mean_of(fit.rest)
    ratio, expected = np.exp(rest), np.exp(pairs.log_latency - rest)
    note = (
        ""
        if pairs.ranks >= LEAST_RANKS
        else f"with {pairs.ranks} ranks a slow rank cannot be distinguished from slow links"
    )
    if not singles:
        note = "; ".join(
            filter(None, [note, "no low quantiles: a link may be reported because of a slow spell"])
        )
    cuts = column_sizes(len(pairs.size), singles)
    columns = _columns(np.fmin(fit.rest, quick.rest), cuts)
    errors = _column_errors(shrunk_errors(pairs.log_error, pairs.degrees)[0], cuts)
    columns, scale = _centred_and_scaled(pairs, columns, errors, classes, fit.widen)
    p_each = _upper_tail(columns / scale, classes)
    p = _cauchy(p_each)
    q = false_discovery(p)
    links = _named(pairs, cuts, columns, scale, p_each, p, q, expected, alpha, least)
    causes, links = by_cause(links, pairs)
    tests = max(int(np.isfinite(p).sum()), 1)
    whole, parts = (_detectable(part, tests, alpha, least, power) for part in (scale[:, :1], scale))
    slow = sorted([*by_host(ranks, pairs), *causes], key=lambda one: -one.ratio)
    return LinkTest(
        links,
        slow,
        ratio,
        expected,
        p,
        q,
        whole,
        parts,
        power,
        alpha,
        least,
        note,
    )


def _detectable(scale: np.ndarray, tests: int, alpha: float, least: float, power: float) -> float:
    """The smallest detectable slow-down of a link in the column with the largest error. scale : (P, C)."""
    known = np.isfinite(scale).any(axis=0)
    if not known.any():
        return float("nan")
    own = float(np.nanmedian(scale[:, known], axis=0).max())
    threshold = sps.norm.isf(alpha / (tests * scale.shape[1]))
    return float(np.expm1(max((threshold + sps.norm.ppf(power)) * own, np.log1p(least))))


def pairs_to_retest(
    test: LinkTest, pairs: Pairs, most: int = 64, q_below: float = 0.5
) -> list[tuple[int, int]]:
    """The pairs to measure again: every suspect, the worst first.

    Parameters
    ----------
    most : largest number of pairs
    q_below : suspects are links with q up to this. It is well above the level of the verdict, so that a slow link with
    a large error in the first pass gets a second chance

    Returns
    -------
    [(src, dst), …] with src < dst for undirected links; [] without suspects.
    """
    suspect = np.flatnonzero(np.isfinite(test.q) & (test.q <= q_below) & (_over_sizes(test.ratio) > 0))
    worst = suspect[np.argsort(test.p[suspect], kind="stable")][:most]
    return [(int(pairs.src[i]), int(pairs.dst[i])) for i in worst]


def after_retest(
    first: LinkTest, pairs: Pairs, classes: np.ndarray, again: Pairs, suspects: Sequence[tuple[int, int]]
) -> LinkTest:
    """The verdict on suspects from new data only.

    Parameters
    ----------
    first : the test that chose the suspects; its model gives their expected delays
    pairs, classes : the input of the first test
    again : new medians of the suspects and, if measured, of other links of their classes, which show whether the whole
    machine moved in between
    suspects : the result of pairs_to_retest

    Returns
    -------
    LinkTest over the suspects that were measured again. q counts all links of the first pass, the others with p = 1:
    new data correct bad luck in measuring, but not the choice of suspects as the slowest of many.
    """
    where = {(int(s), int(d)): i for i, (s, d) in enumerate(zip(pairs.src, pairs.dst))}
    fresh = {(int(s), int(d)): i for i, (s, d) in enumerate(zip(again.src, again.dst))}
    asked = [pair for pair in suspects if pair in where and pair in fresh]
    note = f"{len(asked)} of {len(suspects)} suspects measured again"
    if not asked:
        none = np.zeros((0, len(again.size)))
        return replace(
            first, links=[], ranks=[], ratio=none, expected=none, p=none[:, 0], q=none[:, 0], note=note
        )
    rows = np.array([where[pair] for pair in asked], int)
    again_rows = np.array([fresh[pair] for pair in asked], int)
    controls = [pair for pair in fresh if pair in where and pair not in set(suspects)]
    log_expected = np.log(first.expected)
    common = [s for s in pairs.size if s in set(again.size.tolist())]
    mine = np.searchsorted(pairs.size, common)
    theirs = np.searchsorted(again.size, common)
    shift = np.zeros(len(common))
    if len(controls) >= LEAST_LINKS_OF_RANK:
        control = again.log_latency[[fresh[c] for c in controls]][:, theirs]
        shift = np.nanmedian(control - log_expected[[where[c] for c in controls]][:, mine], axis=0)
    fresh_pairs = again.take(again_rows).at_sizes(theirs)
    rest = fresh_pairs.ways - (log_expected[rows][:, mine] + shift)[:, None, :]
    cuts = column_sizes(len(common))
    columns = _columns(rest, cuts)
    errors = _column_errors(shrunk_errors(fresh_pairs.log_error, fresh_pairs.degrees)[0], cuts)
    # The differences between links of a class come from the first pass: suspects say nothing about them.
    before = _columns(np.log(first.ratio)[:, None, mine], cuts)
    before_errors = _column_errors(shrunk_errors(pairs.log_error, pairs.degrees)[0][:, mine], cuts)
    scale = np.empty_like(columns)
    for i, row in enumerate(rows):
        like = classes == classes[row]
        # The error of the first pass is not a difference between its links.
        noise = np.nan_to_num(median_last(before_errors[like].T))
        spread = np.sqrt(np.maximum(_robust_scale(before[like]) ** 2 - noise**2, LEAST_ERROR**2))
        scale[i] = np.sqrt(spread**2 + np.nan_to_num(errors[i]) ** 2)
    p_each = _upper_tail(columns / scale, classes, rows)
    p = _cauchy(p_each)
    q = false_discovery(p, int(np.isfinite(first.p).sum()))
    expected = np.exp(log_expected[rows][:, mine] + shift)
    links = _named(fresh_pairs, cuts, columns, scale, p_each, p, q, expected, first.alpha, first.least)
    return LinkTest(
        links,
        [],
        np.exp(_mean_of(rest)),
        expected,
        p,
        q,
        first.detectable,
        first.detectable_one,
        first.power,
        first.alpha,
        first.least,
        note,
    )


def column_sizes(count: int, singles: bool = True) -> list[slice]:
    """The sets of sizes that are tested together: all, then halves of them, down to single ones.

    Down to two if a slow spell cannot be distinguished from a slow link (singles False).
    """
    out: list[slice] = []
    waiting = [slice(0, count)]
    while waiting:
        part = waiting.pop(0)
        out.append(part)
        width = part.stop - part.start
        if width >= 4 or (singles and width > 1):
            middle = part.start + width // 2
            waiting += [slice(part.start, middle), slice(middle, part.stop)]
    return out


def _columns(rest: np.ndarray, cuts: list[slice]) -> np.ndarray:
    """The tested values of a link, (P, W, S) -> (P, C) for C sets of sizes.

    They are lower medians over sizes and directions: one direction at one size may have had bad luck, but a slow link
    is slow throughout.
    """
    parts = [rest[:, :, cut].reshape(len(rest), -1) for cut in cuts]
    return np.column_stack([_low_median(part) for part in parts])


def _column_errors(errors: np.ndarray, cuts: list[slice]) -> np.ndarray:
    """Standard errors of the columns, (P, S) -> (P, C)."""
    parts = []
    for cut in cuts:
        part = errors[:, cut]
        count = np.isfinite(part).sum(axis=1)
        square = np.where(np.isfinite(part), part**2, 0).sum(axis=1)
        parts.append(np.where(count > 0, np.sqrt(square) / np.maximum(count, 1), np.nan))
    return np.column_stack(parts)


def _low_median(x: np.ndarray) -> np.ndarray:
    """Lower median over columns, without NaN; NaN for empty input."""
    ordered = np.sort(x, axis=1)
    n = np.isfinite(x).sum(axis=1)
    return np.where(n > 0, ordered[np.arange(len(x)), np.maximum((n - 1) // 2, 0)], np.nan)


def _mean_of(rest: np.ndarray) -> np.ndarray:
    """Mean over directions; a single one if the other is missing; NaN if both are."""
    present = np.isfinite(rest)
    count = present.sum(axis=1)
    return np.where(count > 0, np.where(present, rest, 0).sum(axis=1) / np.maximum(count, 1), np.nan)


def _robust_scale(x: np.ndarray) -> np.ndarray:
    """Spread of each column as a normal sd, such that a normal law is no narrower on the slow side. NaN left out.

    It is the largest estimate from the MAD, the 84 % and the 97.5 % quantile: links are slower by accident more easily
    than faster, and up to 2.5 % of truly slow links do not blur it.
    """
    out = np.full(x.shape[1], LEAST_ERROR)
    for column in range(x.shape[1]):
        v = x[np.isfinite(x[:, column]), column]
        if not len(v):
            continue
        middle = np.median(v)
        estimates = [1.4826 * np.median(np.abs(v - middle))]
        if len(v) >= LEAST_LINKS_FOR_SPREAD:
            estimates.append(np.quantile(v, 0.8413) - middle)
        if len(v) >= LEAST_LINKS_FOR_TAIL:
            estimates.append((np.quantile(v, 0.975) - middle) / 1.96)
        out[column] = max(*estimates, LEAST_ERROR) if len(estimates) > 1 else max(estimates[0], LEAST_ERROR)
    return out


def _centred_and_scaled(
    pairs: Pairs, columns: np.ndarray, errors: np.ndarray, classes: np.ndarray, widen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Columns about their class's median, and their scale.

    A link with an unusually large error in its class gets a larger scale, never a smaller one. A class with few links
    uses the spread of all. Slow links that crowd at one rank do not count for the differences between links.
    """
    centred, scale = columns.copy(), np.full(columns.shape, np.nan)
    for k in np.unique(classes):
        mine = classes == k
        centred[mine] -= median_last(columns[mine].T)
    usual_ones = centred.copy()
    for k in np.unique(classes):
        mine = np.flatnonzero(classes == k)
        usual_ones[mine] = np.where(_crowded(pairs.take(mine), centred[mine]), np.nan, centred[mine])
    pooled = _robust_scale(usual_ones)
    for k in np.unique(classes):
        mine = np.flatnonzero(classes == k)
        spread = _robust_scale(usual_ones[mine]) if len(mine) >= LEAST_LINKS_FOR_SPREAD else pooled
        usual = median_last(errors[mine].T)
        more = np.maximum(np.nan_to_num(errors[mine] ** 2 - usual**2), 0)
        # If the class looks quieter than the errors of its links, the links' own errors decide.
        scale[mine] = np.sqrt(np.maximum(spread * widen[mine][0], usual) ** 2 + more)
    scale[~np.isfinite(columns)] = np.nan
    return centred, scale


def _crowded(pairs: Pairs, centred: np.ndarray) -> np.ndarray:
    """Links of one class that are far out together with others of one of their ranks. (P, C) -> (P, C) bool

    Far out means five times the spread of the middle half. Links that differ by nature are far out here and there;
    those of a rank with a fault are all at that rank, more of them than expected by chance.
    """
    middle = 1.4826 * median_last(np.abs(centred).T)
    far = np.nan_to_num(centred) > 5 * np.maximum(middle, LEAST_ERROR)
    ends = np.stack([np.bincount(pairs.src, column, pairs.ranks) for column in far.T])
    ends += np.stack([np.bincount(pairs.dst, column, pairs.ranks) for column in far.T])
    chance = sps.poisson.sf(ends - 1, ends.mean(axis=1, keepdims=True))
    at_fault = (ends >= LEAST_OF_CAUSE) & (chance < CROWD_CHANCE)
    return np.asarray(far & (at_fault[:, pairs.src] | at_fault[:, pairs.dst]).T)


def _upper_tail(z: np.ndarray, classes: np.ndarray, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
    """One-sided p of standardised columns: Student's law, because the scale was estimated from a class's links."""
    _, position, count = np.unique(classes, return_inverse=True, return_counts=True)
    degrees = np.clip(SCALE_DEGREES * count, 3, MOST_DEGREES)[position]
    return np.asarray(sps.t.sf(z, degrees[rows, None]))


def _cauchy(p: np.ndarray) -> np.ndarray:
    """One p from several dependent ones; without NaN, NaN if there are none. (P, K) -> (P,)."""
    present = np.isfinite(p)
    bounded = np.clip(np.where(present, p, 0.5), 1e-300, 1 - 1e-12)
    # tan(pi (1/2 - p)) is 1 / (pi p) for tiny p, where the tangent itself loses all digits.
    term = np.where(bounded < 1e-12, 1 / (np.pi * bounded), np.tan(np.pi * (0.5 - bounded)))
    count = present.sum(axis=1)
    mean = np.where(present, term, 0.0).sum(axis=1) / np.maximum(count, 1)
    combined = np.where(mean > 1e12, 1 / (np.pi * np.maximum(mean, 1)), 0.5 - np.arctan(mean) / np.pi)
    return np.where(count > 0, combined, np.nan)


def _over_sizes(ratio: np.ndarray) -> np.ndarray:
    """Largest log ratio of each link over sizes; -inf without any."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(ratio), np.log(ratio), -np.inf).max(axis=1)


def _named(
    pairs: Pairs,
    cuts: list[slice],
    columns: np.ndarray,
    scale: np.ndarray,
    p_each: np.ndarray,
    p: np.ndarray,
    q: np.ndarray,
    expected: np.ndarray,
    alpha: float,
    least: float,
) -> list[Slow]:
    found = []
    for i in np.flatnonzero(np.isfinite(q) & (q <= alpha)):
        at = _widest(p_each[i])
        rest, error = float(columns[i, at]), float(scale[i, at])
        where = _slow_sizes(columns[i], cuts, at)
        if rest < np.log1p(least):
            continue
        found.append(
            Slow(
                "link",
                int(pairs.src[i]),
                int(pairs.dst[i]),
                tuple(int(v) for v in pairs.size[where]),
                float(np.exp(rest)),
                float(np.exp(rest - 1.96 * error)),
                float(np.exp(rest + 1.96 * error)),
                float(np.nanmedian(expected[i, where])),
                float(p[i]),
                float(q[i]),
            )
        )
    return sorted(found, key=lambda s: (-s.ratio, s.src, s.dst))


def _slow_ranks(
    pairs: Pairs, effect: np.ndarray, weight: np.ndarray, alpha: float, least: float
) -> list[Slow]:
    """Ranks whose own effect differs from that of other ranks, at all sizes or at some.

    effect : (2, N, S), as sender and as receiver. weight : (N, S), links behind it.
    """
    known = (weight > 0).any(axis=1)
    if known.sum() < LEAST_RANKS:
        return []
    names = np.flatnonzero(known)
    # A rank's effect is the median of many links: one size is enough.
    cuts = column_sizes(len(pairs.size), True)
    with np.errstate(invalid="ignore"):
        both = np.where(weight > 0, effect, np.nan)[:, known]
    columns = np.fmax(*(_columns(way[:, None, :], cuts) for way in both))
    columns = columns - median_last(columns.T)
    # With few ranks, their spread at one size has a large error; the common part of the spreads of all sizes is better
    # known.
    degrees = SCALE_DEGREES * len(names)
    spread, together = shrunk_errors(_robust_scale(columns), np.full(len(cuts), degrees))
    # The precision of the median of a rank's links; the spread of ranks cannot be smaller than this.
    spread = np.maximum(spread, 2 * LEAST_ERROR)
    together = np.clip(np.minimum(together, degrees * len(pairs.size)), 3, MOST_DEGREES)
    p_each = sps.t.sf(columns / spread, together)
    p_each = np.where(np.isfinite(columns), p_each, np.nan)
    p = _cauchy(p_each)
    q = false_discovery(p)
    found = []
    for i in np.flatnonzero(np.isfinite(q) & (q <= alpha)):
        at = _widest(p_each[i])
        rest, error = float(columns[i, at]), float(spread[at])
        where = _slow_sizes(columns[i], cuts, at)
        if rest < np.log1p(least):
            continue
        rank = int(names[i])
        has = int(((pairs.src == rank) | (pairs.dst == rank)).sum())
        found.append(
            Slow(
                "rank",
                rank,
                rank,
                tuple(int(v) for v in pairs.size[where]),
                float(np.exp(rest)),
                float(np.exp(rest - 1.96 * error)),
                float(np.exp(rest + 1.96 * error)),
                float("nan"),
                float(p[i]),
                float(q[i]),
                str(pairs.host[rank]),
                has,
                has,
            )
        )
    return found


def _widest(p_each: np.ndarray) -> int:
    """The set of sizes to report: the widest one that is slow without doubt; otherwise the most significant one."""
    sure = np.flatnonzero(p_each <= SURE)
    return int(sure[0]) if len(sure) else int(np.nanargmin(p_each))


def _slow_sizes(row: np.ndarray, cuts: list[slice], at: int) -> slice:
    """The sizes of a set without those at its ends at which the link, or rank, is less than half as slow as in the set.

    row : (C,), by set of sizes. A set is slow if most of its sizes are.
    """
    own = {cut.start: value for cut, value in zip(cuts, row) if cut.stop - cut.start == 1}
    cut = cuts[at]
    slow = [size for size in range(cut.start, cut.stop) if not own.get(size, row[at]) < row[at] / 2]
    return slice(slow[0], slow[-1] + 1) if slow else cut


def _excuse(pairs: Pairs, fit: Fit, ranks: list[Slow]) -> None:
    """Remove a slow rank's factor from its links in classes in which it has too few of them to be visible."""
    factor = np.zeros((pairs.ranks, len(pairs.size)))
    for slow in ranks:
        factor[slow.src, np.isin(pairs.size, slow.sizes)] = np.log(slow.ratio)
    fit.rest[fit.bare] -= (factor[pairs.src] + factor[pairs.dst])[fit.bare, None]

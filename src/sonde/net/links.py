"""Slow links: which pairs of ranks are slower than ranks, sizes and link class explain, and how sure that is.

    log latency(pair, size) = class(pair, size) + sender(src) + receiver(dst) + rest(pair, size)

is fitted by medians, so that slow links do not pull the model towards themselves. The rest is judged against
how much links of a class differ anyway and against how well the link itself is known. A rank that is slow as
a whole is told apart: it moves its own effect, not the rest of its links.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats as sps

from sonde.core.comparison import LEAST_ERROR
from sonde.net.pairs import Pairs, shrunk_errors

# A rank's effect needs this many links of one class; with fewer it is 0.
LEAST_LINKS_OF_RANK = 4
# Below this many links a class has no spread of its own and borrows that of all classes.
LEAST_LINKS_FOR_SPREAD = 8
# From this many links on the spread heeds how far the slowest 2.5 % reach.
LEAST_LINKS_FOR_TAIL = 100
# Below this many ranks a slow rank cannot be told from others.
LEAST_RANKS = 6
# The law of the rest is never taken to be thinner-tailed than Student's with so many degrees of freedom.
MOST_DEGREES = 30
# One set of sizes is slow beyond doubt from here on.
SURE = 1e-3
# A slow-down must be at least this large to be named, however sure it is.
LEAST_SLOWDOWN = 0.05


@dataclass(frozen=True)
class Slow:
    """One link, or one rank, that is slower than the model says.

    subject: "link" | "rank" | "host". src, dst: ranks (equal for a rank; -1 for a host); host: its name.
    sizes: where it is slow, B; () for a rank: at all. ratio: measured over expected, with its 95 % interval.
    expected: median over those sizes, s (NaN for a rank).
    p: one-sided; q: the same after false-discovery control over all links (or ranks).
    """

    subject: str
    src: int
    dst: int
    sizes: tuple[int, ...]
    ratio: float
    low: float
    high: float
    expected: float
    p: float
    q: float
    host: str = ""


@dataclass(frozen=True)
class LinkTest:
    """What the test for slow links found in all pairs.

    ratio : (P, S) measured over expected. p, q : (P,) one-sided over all sizes at once. expected : (P, S), s
    rank_ratio : (N,) a rank's own factor; NaN where it has too few links
    detectable : the slow-down (0.2 = 20 %) at all sizes that a single slow link must have to be found with
                 probability `power`; NaN when nothing could be tested
    """

    links: list[Slow]
    ranks: list[Slow]
    ratio: np.ndarray
    expected: np.ndarray
    p: np.ndarray
    q: np.ndarray
    rank_ratio: np.ndarray
    detectable: float
    power: float
    alpha: float
    least: float
    note: str = ""


@dataclass
class _Fit:
    """The model of all classes.

    bare : (P,), whether a rank of the link has too few links in its class for an effect there
    rest : (P, W, S), by direction and size. effect : (2, N, S), a rank as sender and as receiver, in the
        class where it has most links.
    weight : (N, S), links behind the effect. widen : (P,), how much fitting has quietened the rest.
    """

    bare: np.ndarray
    rest: np.ndarray
    effect: np.ndarray
    weight: np.ndarray
    widen: np.ndarray


def slow_links(
    pairs: Pairs,
    classes: np.ndarray,
    alpha: float = 0.05,
    least: float = LEAST_SLOWDOWN,
    power: float = 0.95,
) -> LinkTest:
    """Finds links and ranks that are slower than the model explains.

    Parameters
    ----------
    pairs : links with medians and their errors
    classes : (P,) int, class of each link
    alpha : share of false ones allowed among those named (false-discovery rate)
    least : slow-down below which nothing is named, 0.05 = 5 %
    power : for `detectable`

    Returns
    -------
    LinkTest. Fewer than 4 links: nothing can be told, p and q are NaN and `note` says so.

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
            np.full(pairs.ranks, np.nan),
            np.nan,
            power,
            alpha,
            least,
            f"{rows} link{'s are' if rows != 1 else ' is'} too few to tell a slow one from the rest (4 are needed)",
        )
    fit = _fitted(pairs, pairs.ways, classes)
    ranks, rank_ratio = _slow_ranks(pairs, fit.effect, fit.weight, alpha, least)
    _excuse(pairs, fit, ranks)
    rest = _mean_of(fit.rest)
    ratio, expected = np.exp(rest), np.exp(pairs.log_latency - rest)
    note = (
        ""
        if pairs.ranks >= LEAST_RANKS
        else f"with {pairs.ranks} ranks a slow rank cannot be told from slow links"
    )
    singles = bool(np.isfinite(pairs.low).any())
    if singles:
        # A link that had more than its share of slow spells has a slow median but usual fast delays; a slow
        # link has neither.
        surely = np.fmin(fit.rest, _fitted(pairs, pairs.low, classes).rest)
    else:
        surely = fit.rest
        note = "; ".join(filter(None, [note, "no low quantiles: a link may be named for a slow spell"]))
    cuts = column_sizes(len(pairs.size), singles)
    columns = _columns(surely, cuts)
    errors = _column_errors(shrunk_errors(pairs.log_error, pairs.degrees)[0], cuts)
    columns, scale = _centred_and_scaled(columns, errors, classes, fit.widen)
    p_each = _upper_tail(columns / scale, classes)
    p = _cauchy(p_each)
    q = _false_discovery(p)
    links = _named(pairs, cuts, columns, scale, p_each, p, q, expected, alpha, least)
    threshold = sps.norm.isf(alpha / max(int(np.isfinite(p).sum()), 1))
    own = np.nanmedian(scale[:, 0]) if np.isfinite(scale[:, 0]).any() else np.nan
    detectable = float(np.expm1(max((threshold + sps.norm.ppf(power)) * own, np.log1p(least))))
    return LinkTest(
        links,
        _by_host(ranks, pairs.host),
        ratio,
        expected,
        p,
        q,
        rank_ratio,
        detectable,
        power,
        alpha,
        least,
        note,
    )


def pairs_to_retest(
    test: LinkTest, pairs: Pairs, most: int = 64, q_below: float = 0.5
) -> list[tuple[int, int]]:
    """Which pairs to measure again: every suspect, the worst first.

    Parameters
    ----------
    most : how many pairs at most
    q_below : suspects are links with q up to this; well above the level of the verdict, so that a slow link
              that the first pass knew too badly gets its second chance

    Returns
    -------
    [(src, dst), …] with src < dst for undirected links; [] when there is no suspect.
    """
    suspect = np.flatnonzero(np.isfinite(test.q) & (test.q <= q_below) & (_over_sizes(test.ratio) > 0))
    worst = suspect[np.argsort(test.p[suspect], kind="stable")][:most]
    return [(int(pairs.src[i]), int(pairs.dst[i])) for i in worst]


def after_retest(
    first: LinkTest, pairs: Pairs, classes: np.ndarray, again: Pairs, suspects: Sequence[tuple[int, int]]
) -> LinkTest:
    """The verdict on suspects from fresh data alone.

    Parameters
    ----------
    first : the test that chose the suspects; its model says what they should take
    pairs, classes : what it was made of
    again : fresh medians of the suspects and, where measured, of other links of their classes, which tell
            whether the whole machine moved in between
    suspects : what pairs_to_retest gave

    Returns
    -------
    LinkTest over the suspects measured again. q counts all links of the first pass, the others with p = 1:
    fresh data undo bad luck in measuring, but not that suspects were picked as the slowest of many.
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
    # How much links of a class differ comes from the first pass: suspects say nothing about that.
    before = _columns(np.log(first.ratio)[:, None, mine], cuts)
    before_errors = _column_errors(shrunk_errors(pairs.log_error, pairs.degrees)[0][:, mine], cuts)
    scale = np.empty_like(columns)
    for i, row in enumerate(rows):
        like = classes == classes[row]
        # What the first pass did not know about its links is no difference between them.
        noise = np.nan_to_num(_median_last(before_errors[like].T))
        spread = np.sqrt(np.maximum(_robust_scale(before[like]) ** 2 - noise**2, LEAST_ERROR**2))
        scale[i] = np.sqrt(spread**2 + np.nan_to_num(errors[i]) ** 2)
    p_each = _upper_tail(columns / scale, classes, rows)
    p = _cauchy(p_each)
    q = _false_discovery(p, int(np.isfinite(first.p).sum()))
    expected = np.exp(log_expected[rows][:, mine] + shift)
    links = _named(fresh_pairs, cuts, columns, scale, p_each, p, q, expected, first.alpha, first.least)
    return LinkTest(
        links,
        [],
        np.exp(_mean_of(rest)),
        expected,
        p,
        q,
        first.rank_ratio,
        first.detectable,
        first.power,
        first.alpha,
        first.least,
        note,
    )


# ---- the model --------------------------------------------------------------------------------


def _fitted(pairs: Pairs, y: np.ndarray, classes: np.ndarray) -> _Fit:
    """The two-way model of y (P, W, S) in every class."""
    rows, ways, sizes = y.shape
    fit = _Fit(
        np.zeros(rows, bool),
        np.full(y.shape, np.nan),
        np.full((2, pairs.ranks, sizes), np.nan),
        np.zeros((pairs.ranks, sizes)),
        np.ones(rows),
    )
    for k in np.unique(classes):
        mine = np.flatnonzero(classes == k)
        rest, effect, free = _two_way(pairs.take(mine), y[mine].reshape(len(mine), ways * sizes))
        fit.rest[mine] = rest.reshape(len(mine), ways, sizes)
        fit.widen[mine] = np.sqrt(len(mine) / max(len(mine) - free, len(mine) / 4))
        counts = np.bincount(np.concatenate([pairs.src[mine], pairs.dst[mine]]), minlength=pairs.ranks)
        enough = np.where(counts >= LEAST_LINKS_OF_RANK, counts, 0)[:, None]
        fit.bare[mine] = np.minimum(counts[pairs.src[mine]], counts[pairs.dst[mine]]) < LEAST_LINKS_OF_RANK
        better = np.broadcast_to(enough, fit.weight.shape) > fit.weight
        fit.effect[:, better] = effect.reshape(2, pairs.ranks, ways, sizes).mean(axis=2)[:, better]
        fit.weight = np.where(better, enough, fit.weight)
    return fit


def _two_way(pairs: Pairs, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Rest (P, S) and effects (2, N, S) of one class by medians, and how many effects were fitted."""
    rest = pairs.matrix(y - _median_last(y.T))
    ranks, sizes = pairs.ranks, y.shape[1]
    effect = np.zeros((2, ranks, sizes))
    there = np.isfinite(rest).any(axis=2)
    senders = there.sum(axis=1) >= LEAST_LINKS_OF_RANK
    receivers = there.sum(axis=0) >= LEAST_LINKS_OF_RANK
    # A class in which few ranks have enough links cannot tell ranks from links.
    if ranks < LEAST_RANKS or senders.sum() < 3 or receivers.sum() < 3:
        return rest[pairs.src, pairs.dst], effect, 1
    for _ in range(12):
        if pairs.directed:
            step = _median_last(rest.transpose(0, 2, 1)) * senders[:, None]
            effect[0] += step
            rest -= step[:, None, :]
            step = _median_last(rest.transpose(1, 2, 0)) * receivers[:, None]
            effect[1] += step
            rest -= step[None, :, :]
        else:
            # Both ends move at once; the damping keeps them from overshooting together.
            step = 0.7 * _median_last(rest.transpose(0, 2, 1)) * senders[:, None]
            effect += step
            rest -= step[:, None, :] + step[None, :, :]
        rest -= _median_last(rest.reshape(-1, sizes).T)
        if np.abs(step).max(initial=0.0) < 1e-4:
            break
    free = int(senders.sum()) + (int(receivers.sum()) - 1 if pairs.directed else 0)
    return rest[pairs.src, pairs.dst], effect, free


def _median_last(x: np.ndarray) -> np.ndarray:
    """Median over the last axis, NaN left out; 0 where there is nothing. Much faster than nanmedian."""
    ordered = np.sort(x, axis=-1)
    n = np.isfinite(x).sum(axis=-1, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum((n - 1) // 2, 0), axis=-1)
    high = np.take_along_axis(ordered, np.minimum(n // 2, x.shape[-1] - 1), axis=-1)
    return np.where(n > 0, (low + high) / 2, 0.0)[..., 0]


# ---- the test ---------------------------------------------------------------------------------


def column_sizes(count: int, singles: bool = True) -> list[slice]:
    """Which sizes are tested together: all, then halves of them, down to two; single ones only up to 3 sizes.

    A link that is slow for one size alone is no slow link where many sizes were measured; nor where a slow
    spell could not be told from a slow link (singles False).
    """
    out: list[slice] = []
    waiting = [slice(0, count)]
    while waiting:
        part = waiting.pop(0)
        out.append(part)
        width = part.stop - part.start
        if width >= 4 or (singles and count <= 3 and width > 1):
            middle = part.start + width // 2
            waiting += [slice(part.start, middle), slice(middle, part.stop)]
    return out


def _columns(rest: np.ndarray, cuts: list[slice]) -> np.ndarray:
    """What of a link is tested, (P, W, S) -> (P, C) for C sets of sizes.

    The lower median over sizes and directions: one direction at one size may have had bad luck, a slow link
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
    """Lower median over columns, NaN left out; NaN where there is nothing."""
    ordered = np.sort(x, axis=1)
    n = np.isfinite(x).sum(axis=1)
    return np.where(n > 0, ordered[np.arange(len(x)), np.maximum((n - 1) // 2, 0)], np.nan)


def _mean_of(rest: np.ndarray) -> np.ndarray:
    """Mean over directions, one alone where the other is missing; NaN where both are."""
    there = np.isfinite(rest)
    count = there.sum(axis=1)
    return np.where(count > 0, np.where(there, rest, 0).sum(axis=1) / np.maximum(count, 1), np.nan)


def _robust_scale(x: np.ndarray) -> np.ndarray:
    """Spread of each column as a normal sd, such that a normal is no narrower on the slow side. NaN left out.

    The largest of what the MAD, the 84 % and the 97.5 % quantile say: links are slower by accident more
    easily than faster, and up to 2.5 % of truly slow links do not blur it.
    """
    out = np.full(x.shape[1], LEAST_ERROR)
    for column in range(x.shape[1]):
        v = x[np.isfinite(x[:, column]), column]
        if not len(v):
            continue
        middle = np.median(v)
        says = [1.4826 * np.median(np.abs(v - middle))]
        if len(v) >= LEAST_LINKS_FOR_SPREAD:
            says.append(np.quantile(v, 0.8413) - middle)
        if len(v) >= LEAST_LINKS_FOR_TAIL:
            says.append((np.quantile(v, 0.975) - middle) / 1.96)
        out[column] = max(*says, LEAST_ERROR) if len(says) > 1 else max(says[0], LEAST_ERROR)
    return out


def _centred_and_scaled(
    columns: np.ndarray, errors: np.ndarray, classes: np.ndarray, widen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Columns about their class's median, and their scale.

    A link known worse than is usual in its class gets a larger scale, never a smaller one. A class of few
    links borrows the spread of all.
    """
    centred, scale = columns.copy(), np.full(columns.shape, np.nan)
    for k in np.unique(classes):
        mine = classes == k
        centred[mine] -= _median_last(columns[mine].T)
    pooled = _robust_scale(centred)
    for k in np.unique(classes):
        mine = np.flatnonzero(classes == k)
        spread = _robust_scale(centred[mine]) if len(mine) >= LEAST_LINKS_FOR_SPREAD else pooled
        usual = _median_last(errors[mine].T)
        more = np.maximum(np.nan_to_num(errors[mine] ** 2 - usual**2), 0)
        # Where the class looks quieter than its links are known, the links' own errors decide.
        scale[mine] = np.sqrt(np.maximum(spread * widen[mine][0], usual) ** 2 + more)
    scale[~np.isfinite(columns)] = np.nan
    return centred, scale


def _upper_tail(z: np.ndarray, classes: np.ndarray, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
    """One-sided p of standardised columns: Student's law, since the scale was read from a class's links.

    A MAD knows a spread about 0.37 times as well as an sd of as many normal values does.
    """
    _, position, count = np.unique(classes, return_inverse=True, return_counts=True)
    degrees = np.clip(0.37 * count, 3, MOST_DEGREES)[position]
    return np.asarray(sps.t.sf(z, degrees[rows, None]))


def _cauchy(p: np.ndarray) -> np.ndarray:
    """One p from several that depend on each other; NaN left out, NaN when there is none. (P, K) -> (P,)."""
    there = np.isfinite(p)
    bounded = np.clip(np.where(there, p, 0.5), 1e-300, 1 - 1e-12)
    # tan(pi (1/2 - p)) is 1 / (pi p) for tiny p, where the tangent itself loses all digits.
    term = np.where(bounded < 1e-12, 1 / (np.pi * bounded), np.tan(np.pi * (0.5 - bounded)))
    count = there.sum(axis=1)
    mean = np.where(there, term, 0.0).sum(axis=1) / np.maximum(count, 1)
    combined = np.where(mean > 1e12, 1 / (np.pi * np.maximum(mean, 1)), 0.5 - np.arctan(mean) / np.pi)
    return np.where(count > 0, combined, np.nan)


def _false_discovery(p: np.ndarray, of: int = 0) -> np.ndarray:
    """q of p, NaN left out; tests beyond len(p), up to `of`, count with p = 1."""
    tested = np.isfinite(p)
    q = np.full(len(p), np.nan)
    if tested.any():
        others = np.ones(max(of - int(tested.sum()), 0))
        q[tested] = sps.false_discovery_control(np.concatenate([p[tested], others]), method="bh")[
            : tested.sum()
        ]
    return q


def _over_sizes(ratio: np.ndarray) -> np.ndarray:
    """Largest log ratio of each link over sizes; -inf where there is none."""
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
        # The widest set of sizes that is slow beyond doubt; else whichever says most.
        sure = np.flatnonzero(p_each[i] <= SURE)
        at = int(sure[0]) if len(sure) else int(np.nanargmin(p_each[i]))
        rest, error = float(columns[i, at]), float(scale[i, at])
        if rest < np.log1p(least):
            continue
        found.append(
            Slow(
                "link",
                int(pairs.src[i]),
                int(pairs.dst[i]),
                tuple(int(v) for v in pairs.size[cuts[at]]),
                float(np.exp(rest)),
                float(np.exp(rest - 1.96 * error)),
                float(np.exp(rest + 1.96 * error)),
                float(np.nanmedian(expected[i, cuts[at]])),
                float(p[i]),
                float(q[i]),
            )
        )
    return sorted(found, key=lambda s: (-s.ratio, s.src, s.dst))


def _slow_ranks(
    pairs: Pairs, effect: np.ndarray, weight: np.ndarray, alpha: float, least: float
) -> tuple[list[Slow], np.ndarray]:
    """Ranks whose own effect sticks out among ranks, and every rank's factor (N,)."""
    known = (weight > 0).any(axis=1)
    ratio = np.full(pairs.ranks, np.nan)
    if not known.any():
        return [], ratio
    with np.errstate(invalid="ignore"):
        both = np.where(weight > 0, effect, np.nan)
        level = np.full((2, pairs.ranks), np.nan)
        level[:, known] = np.nanmedian(both[:, known], axis=2)
    ratio[known] = np.exp(np.maximum(level[0], level[1])[known])
    if known.sum() < LEAST_RANKS:
        return [], ratio
    names, log_ratio = np.flatnonzero(known), np.log(ratio[known])
    # How well the median of a rank's links is known; the spread of ranks cannot be believed to be smaller.
    middle = np.median(log_ratio)
    spread = max(float(_robust_scale(log_ratio[:, None])[0]), 2 * LEAST_ERROR)
    p = sps.t.sf((log_ratio - middle) / spread, max(len(names) / 2, 3))
    q = sps.false_discovery_control(p, method="bh")
    found = [
        Slow(
            "rank", int(r), int(r), (), float(np.exp(v - middle)), float(np.exp(v - middle - 1.96 * spread)),
            float(np.exp(v - middle + 1.96 * spread)), float("nan"), float(pv), float(qv), str(pairs.host[r]),
        )
        for r, v, pv, qv in zip(names, log_ratio, p, q)
        if qv <= alpha and v - middle >= np.log1p(least)
    ]  # fmt: skip
    return found, ratio


def _excuse(pairs: Pairs, fit: _Fit, ranks: list[Slow]) -> None:
    """Takes a slow rank's factor out of its links in classes where it has too few of them to show there."""
    factor = np.zeros(pairs.ranks)
    for slow in ranks:
        factor[slow.src] = np.log(slow.ratio)
    fit.rest[fit.bare] -= (factor[pairs.src] + factor[pairs.dst])[fit.bare, None, None]


def _by_host(found: list[Slow], host: np.ndarray) -> list[Slow]:
    """Ranks of one host put together when all of them, at least two, are slow."""
    out: list[Slow] = []
    slow_of: dict[str, list[Slow]] = {}
    for one in found:
        slow_of.setdefault(one.host or f"rank {one.src}", []).append(one)
    for name, group in slow_of.items():
        if len(group) >= 2 and len(group) == int((host == name).sum()):
            worst = min(group, key=lambda s: s.p)
            ratio = float(np.median([s.ratio for s in group]))
            low, high = min(s.low for s in group), max(s.high for s in group)
            out.append(Slow("host", -1, -1, (), ratio, low, high, float("nan"), worst.p, worst.q, name))
        else:
            out += group
    return sorted(out, key=lambda s: -s.ratio)

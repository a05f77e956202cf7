"""Classes of links: links that behave alike over all sizes, and whether they agree with the topology.

Links are joined into a tree by the distance of their latencies. The tree is cut only at a true valley between two
groups, so that a network of similar links stays one class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.cluster.hierarchy import linkage, to_tree
from scipy.special import betainc, gammaln

from sonde.core.comparison import LEAST_ERROR
from sonde.net.pairs import LEAST_LINKS_OF_RANK, LEAST_RANKS, LEVEL_NAMES, Pairs

# Two groups that are closer than this at every size are one class, however clear the valley is.
LEAST_CLASS_RATIO = 1.10
# Probability with which links of one class are cut in two.
CUT_ALPHA = 0.01
# Two ranks are alike if at least this share of their links, to the same third ranks, are in the same class.
ALIKE = 0.85
# With more links than this, the tree is built from cells of the profile space, not from single links.
MOST_LEAVES = 1500
# A drawn tree has at most this many leaves.
MOST_DRAWN = 40


@dataclass(frozen=True)
class Classes:
    """Link classes, 0 the fastest.

    label : (P,) int, by latency only; expected : (P,) int, the same except for links that, by the other links of their
    ranks, belong to a faster class
    count : (K,) links; centre : (K, S) median latency, s; spread : (K,) sd of log latency
    level : (K,) str, the topological class of most of its links ("" if unknown), level_share : (K,)
    merge : (L - 1, 4) as scipy's linkage over `leaves` leaves for drawing; leaf : (L,) names; leaf_class : (L,)
    agreement : adjusted Rand index with the topology (1 identical, 0 chance; NaN if unknown), p : its p
    """

    label: np.ndarray
    expected: np.ndarray
    count: np.ndarray
    centre: np.ndarray
    spread: np.ndarray
    level: list[str]
    level_share: np.ndarray
    merge: np.ndarray
    leaf: list[str]
    leaf_class: np.ndarray
    agreement: float
    p: float
    cuts: list[tuple[float, float]]  # ratio between the two sides and p, of each cut made

    def __len__(self) -> int:
        return len(self.count)


def link_classes(pairs: Pairs, seed: int = 0) -> Classes:
    """Clusters links by their latency over sizes.

    Parameters
    ----------
    pairs : links
    seed : for the permutation test of agreement with the topology

    Returns
    -------
    Classes; one class if there is no valley, and for 0 or 1 link.

    The distance of two links is the mean over sizes of the squared difference of log latency; sizes with larger errors
    have less weight. A cut must (a) leave on each side at least a quarter as many links as there are ranks, (b)
    separate medians by LEAST_CLASS_RATIO at some size, (c) show a valley that links of one class would show with
    probability below CUT_ALPHA (times the chance of coincidence if the topology separates the same links). Groups too
    small for (a) are outlying links: they join the nearest class. Ranks that are slow as a whole, at some size or at
    all sizes, do not form classes: their own factor is removed first. Links that all share one host form no class
    either, unless all links of their kind do.

    Source: average linkage as in scipy.cluster.hierarchy; the valley is that of `valley_p`; agreement by
    Hubert & Arabie, Journal of Classification 2, 1985, 193-218, p by permuting ranks.
    """
    rows = len(pairs)
    if rows < 2:
        return _single(pairs)
    profile = _filled(_without_slow_ranks(pairs))
    weights = _size_weights(pairs)
    point = profile * np.sqrt(weights)
    least = max(2, pairs.ranks // 4)
    centres, cell, weight = _cells_of(point)
    tree = linkage(centres, "average") if len(centres) > 1 else np.zeros((0, 4))
    groups, cuts = _cut(tree, point, profile, pairs.level, cell, weight, least)
    label, order = _labels(groups, point, profile, rows)
    label = _without_faults(label, pairs)
    used, label = np.unique(label, return_inverse=True)
    order = len(used)
    cell_class = np.array([np.bincount(label[cell == c]).argmax() for c in range(len(centres))], int)
    merge, leaf, leaf_class = _drawn(tree, cell_class, cell, pairs)
    centre = np.array([np.exp(_medians(pairs.log_latency[label == k])) for k in range(order)])
    spread = np.array([_spread(profile[label == k]) for k in range(order)])
    level, share = _levels_of(label, pairs, order)
    agreement, p = topology_agreement(label, pairs, seed)
    return Classes(
        label,
        expected_class(label, pairs),
        np.bincount(label, minlength=order),
        centre,
        spread,
        level,
        share,
        merge,
        leaf,
        leaf_class,
        agreement,
        p,
        cuts,
    )


def expected_class(label: np.ndarray, pairs: Pairs) -> np.ndarray:
    """The class that a link should have, if it is faster than the class that it has.

    Parameters
    ----------
    label : (P,) int, classes by latency, 0 the fastest
    pairs : the links

    Returns
    -------
    (P,) int, nowhere above label. A link between two switches and a slow link within one may take equally long. But
    ranks that are like one end (their links are in the same classes) reach the other end in the class that the link
    should have. If ranks have no similar ones, as on a torus, or do not agree on one class: label.
    """
    count = int(label.max(initial=0)) + 1
    if count < 2 or pairs.ranks < 6:
        return label
    matrix = pairs.matrix(label, -1)
    known = (matrix >= 0).astype(np.float32)
    one_hot = [(matrix == k).astype(np.float32) for k in range(count)]
    compared = np.maximum(known @ known.T, 1)
    alike = sum(b @ b.T for b in one_hot) / compared >= ALIKE
    np.fill_diagonal(alike, False)
    like = alike.astype(np.float32)
    votes = np.stack([b @ like.T + like @ b for b in one_hot], axis=2)[pairs.src, pairs.dst]
    total = votes.sum(axis=1)
    winner = votes.argmax(axis=1)
    clear = (total >= 4) & (votes.max(axis=1) >= 0.75 * total)
    return np.where(clear & (winner < label), winner, label)


def valley_p(values: np.ndarray, boundary: float, floor: float = 0.01, searched: bool = True) -> float:
    """Probability that links of one class leave such a wide gap about `boundary`.

    Parameters
    ----------
    values : (n,) positions of links on the line between two groups
    boundary : where the groups separate
    floor : links closer than this are not distinguished, so that a coarse clock does not create classes
    searched : whether `boundary` was found in these values; False tests only the one gap that contains it

    Returns
    -------
    p, 1 with fewer than 2 values on a side.

    One class has one peak, so links in the gap are at least as dense as on one of its sides. If the m links next to it
    span s, a gap of width w has probability (1 + w / s)^-m on that side (a ratio of sums of exponential spacings); with
    j links within it the beta prime law takes its place. The p accounts for every tried gap, m and j.
    """
    v = np.sort(values[np.isfinite(values)])
    n, split = len(v), int(np.searchsorted(v, boundary))
    if split < 2 or n - split < 2:
        return 1.0
    low, high = ((split - 1) // 2, split + (n - split) // 2) if searched else (split - 1, split)
    best, tried = 1.0, 0
    for inside in range(3 if searched else 1):
        start = np.arange(low, high)
        stop = start + inside + 1
        start, stop = start[stop < n], stop[stop < n]
        width = v[stop] - v[start]
        tried += len(start)
        sides = np.ones((2, len(start)))
        counts = [m for m in 2 ** np.arange(20) if m < n]
        for m in counts:
            for side, (edge, far) in enumerate(((start, start - m), (stop, stop + m))):
                valid = (far >= 0) & (far < n)
                span = np.maximum(np.abs(v[edge[valid]] - v[far[valid]]), floor)
                p = betainc(m, inside + 1, span / (span + width[valid]))
                sides[side, valid] = np.minimum(sides[side, valid], len(counts) * p)
        best = min(best, float(sides.max(axis=0).min(initial=1.0)))
    return min(1.0, best * tried)


def adjusted_rand(a: np.ndarray, b: np.ndarray) -> float:
    """Adjusted Rand index of two labellings (non-negative) of the same things; 1.0 if both have one class only.

    Source: Hubert & Arabie, Journal of Classification 2, 1985, 193-218, eq. 5.
    """
    width = int(b.max(initial=0)) + 1
    table = (
        np.bincount(a * width + b, minlength=(int(a.max(initial=0)) + 1) * width)
        .reshape(-1, width)
        .astype(float)
    )
    both = (table * (table - 1) / 2).sum()
    rows, columns, n = table.sum(axis=1), table.sum(axis=0), table.sum()
    row_pairs, column_pairs = (rows * (rows - 1) / 2).sum(), (columns * (columns - 1) / 2).sum()
    expected = row_pairs * column_pairs / max(n * (n - 1) / 2, 1)
    most = (row_pairs + column_pairs) / 2
    return 1.0 if most == expected else float((both - expected) / (most - expected))


def topology_agreement(
    label: np.ndarray, pairs: Pairs, seed: int = 0, permutations: int = 199
) -> tuple[float, float]:
    """Adjusted Rand index of classes with topological classes, and its p.

    p comes from assigning the places to other ranks: links share ranks, so links themselves cannot be shuffled.

    Returns
    -------
    (index, p); (NaN, NaN) if the topology is unknown or either side has one class only.
    """
    if (pairs.level < 0).any() or len(np.unique(pairs.level)) < 2 or len(np.unique(label)) < 2:
        return float("nan"), float("nan")
    found = adjusted_rand(label, pairs.level)
    level = pairs.matrix(pairs.level, -1)
    rng = np.random.default_rng(seed)
    at_least = 0
    for _ in range(permutations):
        moved = rng.permutation(pairs.ranks)
        shuffled = level[moved[pairs.src], moved[pairs.dst]]
        # A pair without measurements in the shuffled place has no level there.
        measured = shuffled >= 0
        at_least += adjusted_rand(label[measured], shuffled[measured]) >= found - 1e-12
    return found, (1 + at_least) / (1 + permutations)


# ---- profiles ---------------------------------------------------------------------------------


def _single(pairs: Pairs) -> Classes:
    rows, sizes = pairs.log_latency.shape
    count = 1 if rows else 0
    level, share = _levels_of(np.zeros(rows, int), pairs, count)
    return Classes(
        np.zeros(rows, int),
        np.zeros(rows, int),
        np.full(count, rows),
        np.exp(pairs.log_latency[:count].reshape(count, sizes)),
        np.zeros(count),
        level,
        share,
        np.zeros((0, 4)),
        [pairs.name(i) for i in range(rows)],
        np.zeros(rows, int),
        float("nan"),
        float("nan"),
        [],
    )


def _without_slow_ranks(pairs: Pairs) -> np.ndarray:
    """Log latency (P, S) without the factor of ranks that are slow, or fast, at a size: a fault forms no class.

    Links within hosts and between hosts are examined separately: a slow adapter slows only the latter.
    """
    y = pairs.log_latency.copy()
    for mine in _kinds_of_links(pairs):
        links = pairs.take(mine)
        factor = np.column_stack([_outlying_ranks(links, column) for column in links.log_latency.T])
        y[mine] -= factor[links.src] + factor[links.dst]
    return y


def _kinds_of_links(pairs: Pairs) -> list[np.ndarray]:
    """Rows of the links within hosts, and of those between hosts; all together if hosts are unknown."""
    if not all(pairs.host):
        return [np.arange(len(pairs))]
    within = pairs.host[pairs.src] == pairs.host[pairs.dst]
    return [rows for rows in (np.flatnonzero(within), np.flatnonzero(~within)) if len(rows)]


def _outlying_ranks(links: Pairs, y: np.ndarray) -> np.ndarray:
    """The log factor of each rank that is slow, or fast, as a whole at one size; 0 for the others. y : (P,) -> (N,).

    Such a rank's links are above those of others at every quantile; the links of a rank that merely has more far links
    than most agree with others at some quantile. A machine of two halves has no outlying ranks: at most a fifth of the
    ranks are outlying, or one host.
    """
    factor = np.zeros(links.ranks)
    if not np.isfinite(y).any():
        return factor
    level = links.matrix(y - np.nanmedian(y))
    both = np.concatenate([level, level.T], axis=1)
    enough = np.isfinite(both).sum(axis=1) >= 2 * LEAST_LINKS_OF_RANK
    if enough.sum() < LEAST_RANKS:
        return factor
    at = np.nanquantile(both[enough], [0.15, 0.3, 0.5, 0.7, 0.85], axis=1)
    shift = at - np.median(at, axis=1, keepdims=True)
    own = np.zeros(links.ranks)
    own[enough] = np.maximum(shift.min(axis=0), 0) + np.minimum(shift.max(axis=0), 0)
    spread = max(1.4826 * float(np.median(np.abs(own[enough]))), 0.02)
    outlying = np.abs(own) > 5 * spread
    one_host = len(set(links.host[outlying])) == 1 and len(set(links.host[enough])) >= LEAST_RANKS
    if outlying.sum() > max(1, enough.sum() / 5) and not one_host:
        return factor
    return np.where(outlying, own, 0.0)


def _without_faults(label: np.ndarray, pairs: Pairs) -> np.ndarray:
    """Classes without those whose links all share one rank or host: that is a fault, not a class.

    label : (P,) int. A class stays if the topology explains it: if all links of its kind (within hosts, or between
    them) touch that host. The links of a removed class join the class of most other links of their kind.
    """
    if pairs.ranks < LEAST_RANKS:
        return label
    out = label.copy()
    hosts = pairs.host if all(pairs.host) else np.arange(pairs.ranks).astype(str)
    for kind in _kinds_of_links(pairs):
        ends = np.column_stack([hosts[pairs.src[kind]], hosts[pairs.dst[kind]]])
        for k in np.unique(label[kind]):
            mine = label[kind] == k
            shared = set.intersection(*(set(pair) for pair in ends[mine]))
            for host in sorted(shared):
                others = (ends != host).all(axis=1)
                if others.any() and (label[kind][others] != k).all():
                    out[kind[mine]] = np.bincount(label[kind][others]).argmax()
                    break
    return out


def _filled(y: np.ndarray) -> np.ndarray:
    """NaN replaced by an estimate from the link's other sizes: its mean distance from the median link."""
    usual = np.nanmedian(y, axis=0)
    usual = np.where(np.isfinite(usual), usual, 0.0)
    own = np.nanmean(y - usual, axis=1, keepdims=True)
    return np.where(np.isfinite(y), y, usual + own)


def _size_weights(pairs: Pairs) -> np.ndarray:
    """(S,), sum 1: sizes with larger errors have less weight; all equal if errors are unknown."""
    with np.errstate(invalid="ignore"):
        known = np.isfinite(pairs.log_error).any(axis=0)
        error = np.full(len(pairs.size), LEAST_ERROR)
        error[known] = np.nanmedian(pairs.log_error[:, known], axis=0)
    # A minimum of a few per cent: below it links differ for other reasons than their errors.
    weight = np.isfinite(pairs.log_latency).any(axis=0) / (np.maximum(error, LEAST_ERROR) ** 2 + 0.03**2)
    return weight / weight.sum()


def _cells_of(point: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Few enough points for a tree: the links, or means of cells of a grid that is fine relative to the whole.

    Returns
    -------
    centres (C, S), cell of each link (P,), links of each cell (C,)
    """
    rows = len(point)
    if rows <= MOST_LEAVES:
        return point, np.arange(rows), np.ones(rows)
    middle = np.median(point, axis=0)
    _, _, axes = np.linalg.svd(point[:: max(1, rows // 20000)] - middle, full_matrices=False)
    short = (point - middle) @ axes[:3].T
    step = max(float(np.ptp(short[:, 0])) / 400, 1e-6)
    while True:
        keys, cell = np.unique(np.floor(short / step).astype(np.int64), axis=0, return_inverse=True)
        cell = cell.reshape(-1)
        if len(keys) <= MOST_LEAVES:
            break
        step *= 1.5
    weight = np.bincount(cell).astype(float)
    centres = np.stack([np.bincount(cell, weights=c) for c in point.T], axis=1) / weight[:, None]
    return centres, cell, weight


# ---- cutting the tree -------------------------------------------------------------------------


def _cut(
    tree: np.ndarray,
    point: np.ndarray,
    profile: np.ndarray,
    level: np.ndarray,
    cell: np.ndarray,
    weight: np.ndarray,
    least: int,
) -> tuple[list[np.ndarray], list[tuple[float, float]]]:
    """Groups of links (rows), from the root down, and the cuts."""
    everything = np.arange(len(point))
    if not len(tree):
        return [everything], []
    _, nodes = to_tree(tree, rd=True)
    by_cell = np.argsort(cell, kind="stable")
    begin = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=len(weight)))])

    def links(node: int) -> np.ndarray:
        leaves = nodes[node].pre_order(lambda leaf: leaf.id)
        return np.concatenate([by_cell[begin[c] : begin[c + 1]] for c in leaves])

    total = np.zeros(len(nodes))
    for node in nodes:
        total[node.id] = weight[node.id] if node.is_leaf() else total[node.left.id] + total[node.right.id]
    groups: list[np.ndarray] = []
    cuts: list[tuple[float, float]] = []
    waiting = [len(nodes) - 1]
    while waiting:
        top = here = waiting.pop()
        # Walk down past outlying links: a side too small for a class is no reason to stop the search.
        while True:
            node = nodes[here]
            if node.is_leaf():
                groups.append(links(top))
                break
            left, right = node.left.id, node.right.id
            if total[left] >= least and total[right] >= least:
                a, b = links(left), links(right)
                chance = _coincidence(level, a, b)
                ratio, p = _parted(point, profile, a, b, searched=chance == 1)
                p *= chance
                if ratio >= LEAST_CLASS_RATIO and p <= CUT_ALPHA:
                    cuts.append((ratio, p))
                    waiting += [left, right]
                    break
                # No cut here; a class may still be hidden further down the larger side.
            larger = left if total[left] >= total[right] else right
            if total[larger] < 2 * least:
                groups.append(links(top))
                break
            here = larger
    return groups, cuts


def _parted(
    point: np.ndarray, profile: np.ndarray, a: np.ndarray, b: np.ndarray, searched: bool
) -> tuple[float, float]:
    """Largest ratio over sizes between two groups' medians, and the p of the valley between them."""
    centre_a, centre_b = np.median(point[a], axis=0), np.median(point[b], axis=0)
    ratio = float(np.exp(np.abs(np.median(profile[a], axis=0) - np.median(profile[b], axis=0)).max()))
    line = centre_b - centre_a
    length = float(np.linalg.norm(line))
    if length == 0:
        return ratio, 1.0
    on_a, on_b = (point[a] - centre_a) @ line / length, (point[b] - centre_a) @ line / length
    values = np.concatenate([on_a, on_b])
    boundary = (min(on_a.max(), length) + max(on_b.min(), 0.0)) / 2
    return ratio, valley_p(values, boundary, searched=searched)


def _coincidence(level: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    """The chance that two groups of these sizes are exactly the nearer and the farther links; 1 if they are not.

    The topology was not used to form the groups, so its agreement is independent evidence. It helps when there are too
    few links for a cut from the links alone, as with four ranks on two hosts.
    """
    levels_a, levels_b = level[a], level[b]
    if min(levels_a.min(), levels_b.min()) < 0 or not (
        levels_a.max() < levels_b.min() or levels_b.max() < levels_a.min()
    ):
        return 1.0
    n, k = len(a) + len(b), min(len(a), len(b))
    return float(np.exp(gammaln(k + 1) + gammaln(n - k + 1) - gammaln(n + 1)))


def _labels(
    groups: list[np.ndarray], point: np.ndarray, profile: np.ndarray, rows: int
) -> tuple[np.ndarray, int]:
    """Labels in order of latency: every link, including outlying ones, joins the group with the nearest median."""
    order = np.argsort([float(np.median(profile[g].mean(axis=1))) for g in groups], kind="stable")
    centres = np.array([np.median(point[groups[k]], axis=0) for k in order])
    label = np.zeros(rows, int)
    nearest = np.full(rows, np.inf)
    for rank, centre in enumerate(centres):
        distance = ((point - centre) ** 2).sum(axis=1)
        label[distance < nearest] = rank
        nearest = np.minimum(nearest, distance)
    return label, len(groups)


def _medians(y: np.ndarray) -> np.ndarray:
    """Median of each column of (links, sizes); NaN if no link of a class has that size."""
    out = np.full(y.shape[1], np.nan)
    known = np.isfinite(y).any(axis=0)
    out[known] = np.nanmedian(y[:, known], axis=0)
    return out


def _spread(profile: np.ndarray) -> float:
    """Robust sd of the links' mean log latency; 0 for one link."""
    mean = profile.mean(axis=1)
    return float(1.4826 * np.median(np.abs(mean - np.median(mean))))


def _levels_of(label: np.ndarray, pairs: Pairs, order: int) -> tuple[list[str], np.ndarray]:
    names, share = [], np.full(order, np.nan)
    for k in range(order):
        level = pairs.level[label == k]
        level = level[level >= 0]
        if not len(level):
            names.append("")
            continue
        counts = np.bincount(level, minlength=len(LEVEL_NAMES))
        names.append(LEVEL_NAMES[int(counts.argmax())])
        share[k] = counts.max() / len(level)
    return names, share


def _drawn(
    tree: np.ndarray, cell_class: np.ndarray, cell: np.ndarray, pairs: Pairs
) -> tuple[np.ndarray, list[str], np.ndarray]:
    """The top of the tree with at most MOST_DRAWN leaves, counts in links, leaves named by their links."""
    leaves = len(cell_class)
    members = [np.flatnonzero(cell == c) for c in range(leaves)]
    shown = tree[max(0, len(tree) - (MOST_DRAWN - 1)) :]
    first = leaves + len(tree) - len(shown)
    content: dict[int, np.ndarray] = {c: members[c] for c in range(leaves)}
    for i, (a, b, _, _) in enumerate(tree[: len(tree) - len(shown)]):
        content[leaves + i] = np.concatenate([content.pop(int(a)), content.pop(int(b))])
    ids = sorted(content)
    number = {old: new for new, old in enumerate(ids)}
    counts = [len(content[i]) for i in ids]
    merge = np.zeros((len(shown), 4))
    for i, (a, b, height, _) in enumerate(shown):
        number[first + i] = len(ids) + i
        left, right = number[int(a)], number[int(b)]
        counts.append(counts[left] + counts[right])
        merge[i] = left, right, height, counts[-1]
    names = [
        pairs.name(int(content[i][0]))
        if len(content[i]) == 1
        else f"{pairs.name(int(content[i][0]))} +{len(content[i]) - 1}"
        for i in ids
    ]
    classes = np.array([np.bincount(cell_class[cell[content[i]]]).argmax() for i in ids], int)
    return merge, names, classes

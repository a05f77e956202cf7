"""Models of a link: the duration of a message of any size, fitted to measurements, or assumed and compared with them.

Hockney's model is T(s) = alpha + s / bandwidth. MPIs change protocol with size (eager, rendezvous, pipelined), so the
line may have several segments, each with its own alpha and beta. LogGP's parameters follow as far as they can be known:
half a round trip gives L + 2o and G, and many messages at once (all_to_all) give the gap g. Such data cannot separate L
and o, so they are not separated.

Source: Hockney 1994, Parallel Computing 20, 389-398; Alexandrov, Ionescu, Schauser, Scheiman 1995, LogGP,
SPAA 95.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import xarray as xr
from scipy import stats as sps

from sonde.core.comparison import LEAST_ERROR
from sonde.core.errors import DataError, Finding, UsageError, Warning, nearest, typed
from sonde.core.units import format_duration, format_size
from sonde.net.pairs import LEVEL_NAMES, centre, log_errors, pairs_of

MOST_SEGMENTS = 3
LEAST_POINTS = 3  # sizes in a segment
MOST_SIZES = 400  # more sizes are thinned before a fit
MOST_LEFT_OUT = 60  # sizes that are forecast from the others
MOST_FINDINGS = 50
UNKNOWN_LOG_ERROR = 0.05  # for a median without an interval


@dataclass(frozen=True)
class Segment:
    """One line of a model: T(s) = alpha_s + beta_s_per_b * s for begin <= s <= end (B).

    covariance : (2, 2), of (alpha_s, beta_s_per_b).
    """

    begin: int
    end: int
    alpha_s: float
    beta_s_per_b: float
    covariance: np.ndarray

    def at(self, size: float) -> float:
        return self.alpha_s + self.beta_s_per_b * size

    def error_at(self, size: float) -> float:
        """Standard error of the line at a size, s."""
        x = np.array([1.0, size])
        return float(np.sqrt(max(0.0, x @ self.covariance @ x)))


@dataclass(frozen=True)
class LinkModel:
    """A fitted model of one link or class.

    scatter : relative sd of the measured medians about the lines. left_out : relative error of the forecast of each
    size from the others (leave one out), (S,); NaN if the others are not enough, and beyond MOST_LEFT_OUT sizes, which
    are spread evenly. size, latency_s : the fitted data.
    """

    segments: tuple[Segment, ...]
    scatter: float
    left_out: np.ndarray
    size: np.ndarray
    latency_s: np.ndarray

    def residuals(self) -> np.ndarray:
        """Measured over fitted, minus one, at every size of the fit."""
        fitted = np.array([self.segment(s).at(s) for s in self.size])
        return np.asarray(self.latency_s / fitted - 1)

    @property
    def latency_zero_s(self) -> float:
        """alpha of the first segment: the start-up time, s."""
        return self.segments[0].alpha_s

    @property
    def half_size_b(self) -> float:
        """Hockney's n_1/2: the size at which half of the last segment's bandwidth is reached, B."""
        last = self.segments[-1]
        return max(0.0, last.alpha_s / last.beta_s_per_b) if last.beta_s_per_b > 0 else float("inf")

    @property
    def worst_left_out(self) -> float:
        """Largest relative error of a size that is forecast from the others; NaN if unknown."""
        known = self.left_out[np.isfinite(self.left_out)]
        return float(known.max()) if known.size else float("nan")

    def extrapolates(self, size: float) -> bool:
        """Whether a size is outside of the measured ones."""
        return not float(self.size.min()) <= size <= float(self.size.max())

    def segment(self, size: float) -> Segment:
        """The line for a size; beyond both ends the first or last one."""
        for left, right in zip(self.segments, self.segments[1:]):
            if size < (left.end + right.begin) / 2:
                return left
        return self.segments[-1]

    def predict(self, size: float, level: float = 0.95) -> tuple[float, float, float]:
        """Forecast for a size: (value, low, high) in s, low and high a prediction interval for a link's median.

        Beyond the measured sizes the interval holds only if the protocol stays the same there.
        """
        segment = self.segment(size)
        value = segment.at(size)
        inside = (self.size >= segment.begin) & (self.size <= segment.end)
        degrees = max(1, int(inside.sum()) - 2)
        spread = np.hypot(segment.error_at(size), self.scatter * abs(value))
        wide = float(sps.t.ppf(0.5 + level / 2, degrees) * spread)
        return value, max(0.0, value - wide), value + wide


def beyond(fitted: Sequence[LinkModel], sizes: Sequence[int]) -> Warning | None:
    """The warning about those of `sizes` (B) outside of the measured ones, where a forecast extends the last line."""
    out = [size for size in sizes if any(link.extrapolates(size) for link in fitted)]
    if not out:
        return None
    low = max(int(link.size.min()) for link in fitted)
    high = min(int(link.size.max()) for link in fitted)
    names = ", ".join(format_size(size, exact=True) for size in out)
    return Warning(
        "net.extrapolated",
        f"the forecast for {names} is an extrapolation: the measured sizes are {format_size(low, exact=True)} to "
        f"{format_size(high, exact=True)}",
        "it holds only if the protocol stays the same there; measure such sizes with --sizes",
    )


def fit(size: np.ndarray, latency: np.ndarray, error: np.ndarray | None = None) -> LinkModel:
    """Fit lines to medians over sizes.

    Parameters
    ----------
    size : (S,) B, ascending. latency : (S,) s; NaN are left out. error : (S,) relative standard errors, or
        None.

    Returns
    -------
    LinkModel. The number of segments, at most three of at least three sizes each, is the one with the smallest BIC;
    residuals are relative, so that small messages count as much as large ones. Slopes are not below zero.

    Raises
    ------
    DataError  net.too_few_sizes: fewer than two sizes with data.
    """
    valid = np.isfinite(latency) & (latency > 0)
    x, y = np.asarray(size, float)[valid], np.asarray(latency, float)[valid]
    if len(x) < 2:
        raise DataError(
            "net.too_few_sizes",
            f"a model over size needs two sizes with data, and there is {len(x)}",
            "measure more with --sizes, e.g. 8,1KiB,64KiB",
        )
    e = np.full(len(x), LEAST_ERROR) if error is None else np.asarray(error, float)[valid]
    e = np.where(np.isfinite(e), np.maximum(e, LEAST_ERROR), LEAST_ERROR)
    place = np.flatnonzero(valid)
    if len(x) > MOST_SIZES:
        thin = np.unique(np.linspace(0, len(x) - 1, MOST_SIZES).round().astype(int))
        x, y, e, place = x[thin], y[thin], e[thin], place[thin]
    segments, scatter = _best(x, y, e)
    left_out = np.full(len(size), np.nan)
    if len(x) > 2:
        for k in np.unique(np.linspace(0, len(x) - 1, min(len(x), MOST_LEFT_OUT)).round().astype(int)):
            keep = np.arange(len(x)) != k
            lines, _ = _best(x[keep], y[keep], e[keep])
            rest = LinkModel(lines, 0.0, np.empty(0), x[keep], y[keep])
            left_out[place[k]] = abs(rest.segment(x[k]).at(x[k]) / y[k] - 1)
    return LinkModel(segments, scatter, left_out, np.asarray(size)[place], y)


def _best(x: np.ndarray, y: np.ndarray, e: np.ndarray) -> tuple[tuple[Segment, ...], float]:
    # Relative residuals with a minimum: below it the medians themselves are unknown.
    floor = float(np.sum(np.square(e)))
    best: tuple[float, list[tuple[int, int]], float] | None = None
    for cuts, chi2 in _cuts(_costs(x, y)):
        score = len(x) * np.log((chi2 + floor) / len(x)) + (3 * len(cuts) - 1) * np.log(len(x))
        if best is None or score < best[0] - 1e-9:
            best = (score, cuts, chi2)
    assert best is not None
    _, cuts, chi2 = best
    free = max(1, len(x) - 2 * len(cuts))
    scatter = float(np.sqrt(max(chi2 / free, 0.0)))
    spread = max(scatter, float(np.sqrt(np.mean(np.square(e)))))
    lines = []
    for a, b in cuts:
        alpha, beta, _, unit = _line(x[a:b], y[a:b])
        lines.append(Segment(int(x[a]), int(x[b - 1]), alpha, beta, unit * spread**2))
    return tuple(lines), scatter


def _costs(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Squared relative residuals of the best line, slope not below zero, through x[a:b]: (n, n + 1), a < b.

    The same as `_line` piece by piece, without the n^2 calls.
    """
    n = len(x)
    x = x / max(float(np.max(x)), 1.0)
    w = np.median(y) / y  # in any unit: a line's relative residuals do not depend on it

    def running(v: np.ndarray) -> np.ndarray:
        # Summed again from every start: differences of one running sum would cancel if delays differ much.
        return np.cumsum(np.triu(np.broadcast_to(v, (n, n))), axis=1)

    s, sx, sxx = (running(w**2 * x**k) for k in range(3))
    sy, sxy = running(w), running(w * x)
    count = np.triu(np.arange(n)[None, :] - np.arange(n)[:, None] + 1.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        flat = count - sy**2 / s
        spread, together = sxx - sx**2 / s, sxy - sx * sy / s
        slope = np.where((together > 0) & (spread > 1e-14 * sxx), together**2 / spread, 0.0)
    cost = np.full((n, n + 1), np.inf)
    cost[:, 1:] = np.where(count > 0, np.maximum(np.nan_to_num(flat - slope), 0.0), np.inf)
    return cost


def _cuts(cost: np.ndarray) -> list[tuple[list[tuple[int, int]], float]]:
    """The best cut of n sizes into one, two … MOST_SEGMENTS runs of at least LEAST_POINTS, with its cost."""
    n, m = cost.shape[0], LEAST_POINTS
    out = [([(0, n)], float(cost[0, n]))]
    # reach[b]: smallest cost of [0, b) in the runs so far; back: the begin of its last run.
    reach, back = cost[0].copy(), []
    reach[:m] = np.inf
    long = np.arange(n + 1)[None, :] - np.arange(n)[:, None] >= m
    for _ in range(1, MOST_SEGMENTS):
        total = reach[:n, None] + np.where(long, cost, np.inf)
        back.append(total.argmin(axis=0))
        reach = total.min(axis=0)
        if not np.isfinite(reach[n]):
            break
        ends = [n]
        for step in reversed(back):
            ends.append(int(step[ends[-1]]))
        ends = [0, *ends[::-1]]
        out.append((list(pairwise(ends)), float(reach[n])))
    return out


def _line(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float, np.ndarray]:
    """Least squares of relative residuals: alpha, beta >= 0, sum of squares, covariance for a relative sd of 1."""
    design = np.column_stack([1 / y, x / y])
    scale = np.array(
        [1.0, max(float(x.max()), 1.0)]
    )  # otherwise the normal matrix is singular in floating point
    inverse = np.linalg.pinv((design / scale).T @ (design / scale)) / np.outer(scale, scale)
    alpha, beta = inverse @ design.sum(axis=0)
    if beta < 0 or len(np.unique(x)) < 2:
        beta = 0.0
        weight = float(np.sum(1 / y**2))
        alpha = float(np.sum(1 / y)) / weight
        inverse = np.array([[1 / weight, 0.0], [0.0, 0.0]])
    residual = design @ np.array([alpha, beta]) - 1
    return float(alpha), float(beta), float(residual @ residual), inverse


def class_models(summary: xr.Dataset) -> list[LinkModel]:
    """One model for each link class of a summary, from the class's median at every size; [] with too few sizes."""
    links = pairs_of(summary)
    if len(links) == 0:
        return []
    label = _labels(summary, links.src, links.dst)
    out = []
    for k in range(label.max() + 1):
        rows = label == k
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # sizes without measurements are NaN, as intended
            middle = np.exp(np.nanmedian(links.log_latency[rows], axis=0))
            error = np.nanmedian(links.log_error[rows], axis=0) / np.sqrt(rows.sum())
        try:
            out.append(fit(links.size, middle, error))
        except DataError:
            return []
    return out


def _labels(summary: xr.Dataset, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    if "class" not in summary:
        return np.zeros(len(src), int)
    return np.maximum(np.asarray(summary["class"].values)[src, dst].astype(int), 0)


@dataclass(frozen=True)
class LogGP:
    """LogGP's parameters as far as half round trips, and all_to_all if there is one, show them.

    latency_overhead_s : L + 2o. gap_per_byte_s : G, s/B. gap_s : g at the smallest size; NaN without all_to_all.
    """

    latency_overhead_s: float
    gap_per_byte_s: float
    gap_s: float

    def at(self, size: float) -> float:
        """The duration of one message of a size, s: L + 2o + (size - 1) G; an empty one takes as long as one of 1 B."""
        return self.latency_overhead_s + max(size - 1, 0.0) * self.gap_per_byte_s


def loggp(model: LinkModel, together: xr.Dataset | None = None) -> LogGP:
    """LogGP's parameters of a class.

    together : summary of an all_to_all run of the same ranks; with it the gap g follows from the time between
    the first and the last of the messages that reach a rank at once.
    """
    gap = float("nan")
    if together is not None:
        cells = centre(together)[:, :, 0]
        with np.errstate(all="ignore"):
            spans = np.nanmax(cells, axis=0) - np.nanmin(cells, axis=0)
        others = cells.shape[0] - 2
        if others > 0 and np.isfinite(spans).any():
            gap = float(np.nanmedian(spans) / others)
    return LogGP(model.latency_zero_s, model.segments[-1].beta_s_per_b, gap)


# ---- assumed models ------------------------------------------------------------------------------

_KEYS = ("tolerance", "level", "matrix")
_LEVEL_KEYS = ("name", "latency_s", "bandwidth_b_per_s")


def expected(model: Mapping[str, Any], summary: xr.Dataset) -> np.ndarray:
    """The delay of each cell by an assumed model: (src, dst, size), s; NaN if the model does not cover it.

    Parameters
    ----------
    model : {"level": [{"name": "same host", "latency_s": 1e-6, "bandwidth_b_per_s": 5e9}, …]} by topological
        level (LEVEL_NAMES; "any" is every other pair), or {"matrix": N x N of s, the same for every size}.
    summary : with the places of the ranks, which levels need.

    Raises
    ------
    UsageError  net.bad_model: an unknown key or level, a missing or negative number, a matrix of another
    shape.
    """
    for key in model:
        if key not in _KEYS:
            raise _bad_model(f"unknown key '{key}'{nearest(key, _KEYS)}; keys: {', '.join(_KEYS)}")
    ranks, size = summary.sizes["src"], summary["size"].values.astype(float)
    out = np.full((ranks, ranks, len(size)), np.nan)
    if "matrix" in model:
        matrix = np.asarray(model["matrix"], float)
        if matrix.shape != (ranks, ranks):
            raise _bad_model(f"the matrix is {'x'.join(map(str, matrix.shape))}, but there are {ranks} ranks")
        out[:] = matrix[..., None]
    levels = _levels(model.get("level", ()))
    if not levels and "matrix" not in model:
        raise _bad_model("it has neither a matrix nor a level")
    links = pairs_of(summary)
    for row in range(len(links)):
        name = _speaks(levels, int(links.level[row]))
        if name is None:
            continue
        alpha, beta = levels[name]
        ends = [(links.src[row], links.dst[row])]
        if not links.directed:
            ends.append((links.dst[row], links.src[row]))
        for a, b in ends:
            out[a, b] = alpha + beta * size
    return out


_OTHER_HOST = len(LEVEL_NAMES) - 1


def _speaks(levels: Mapping[str, Any], level: int) -> str | None:
    """The level of an assumed model for a pair: its own, else the next wider one on its host, else "any".

    level: position in LEVEL_NAMES, -1 if unknown. The network does not count for pairs on one host.
    """
    wider: tuple[str, ...] = ()
    if level >= 0:
        wider = LEVEL_NAMES[level : max(level + 1, _OTHER_HOST)]
    return next((name for name in (*wider, "any") if name in levels), None)


def stand_ins(model: Mapping[str, Any], summary: xr.Dataset) -> list[Warning]:
    """Warnings about levels that an assumed model lacks, and about the levels that replace them.

    Raises
    ------
    UsageError  as `expected`.
    """
    levels = _levels(model.get("level", ()))
    out = []
    for level in sorted({int(level) for level in pairs_of(summary).level if level >= 0}):
        used = _speaks(levels, level)
        if used is not None and used not in (LEVEL_NAMES[level], "any"):
            out.append(
                Warning(
                    "net.wider_level",
                    f"the assumed model has no level '{LEVEL_NAMES[level]}': its links were compared with "
                    f"'{used}'",
                    f'give it a [[level]] with name = "{LEVEL_NAMES[level]}"',
                )
            )
    return out


def _levels(rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    known = (*LEVEL_NAMES, "any")
    out: dict[str, tuple[float, float]] = {}
    for row in rows:
        for key in row:
            if key not in _LEVEL_KEYS:
                raise _bad_model(
                    f"'{key}' is not a key of a level{nearest(key, _LEVEL_KEYS)}; keys: {', '.join(_LEVEL_KEYS)}"
                )
        name = str(row.get("name", ""))
        if name not in known:
            raise _bad_model(f"there is no level '{name}'{nearest(name, known)}; levels: {', '.join(known)}")
        latency, bandwidth = row.get("latency_s"), row.get("bandwidth_b_per_s", float("inf"))
        if not isinstance(latency, int | float) or not latency > 0 or not bandwidth > 0:
            raise _bad_model(
                f"level '{name}' needs a latency_s above 0, and a bandwidth_b_per_s above 0 if any"
            )
        out[name] = (float(latency), 1 / float(bandwidth))
    return out


def _bad_model(why: str) -> UsageError:
    return UsageError(
        "net.bad_model",
        f"the assumed model: {why}",
        "see docs/reference/net-model.md for its format",
    )


def violations(
    summary: xr.Dataset,
    model: Mapping[str, Any],
    tolerance: float = 0.2,
    level: float = 0.05,
    dataset: str = "FILE",
) -> list[Finding]:
    """Links that differ from an assumed model, worst first.

    A cell breaks the model if it is significantly slower or faster than expected by more than `tolerance`: one-sided
    test of |log(median / expected)| against log(1 + tolerance), false-discovery level `level` over all cells.
    """
    wanted, cells = expected(model, summary), centre(summary)
    both = np.isfinite(wanted) & np.isfinite(cells) & (cells > 0)
    if not both.any():
        raise DataError(
            "net.nothing_to_compare",
            "the assumed model does not cover any measured link",
            "add a level 'any', or measure with ranks bound to cores so that their places are known",
        )
    apart = np.log(cells[both] / wanted[both])
    known = log_errors(summary)[0][both]
    error = np.where(np.isfinite(known), np.maximum(known, LEAST_ERROR), UNKNOWN_LOG_ERROR)
    p = sps.norm.sf((np.abs(apart) - np.log1p(tolerance)) / error)
    q = np.full(cells.shape, np.nan)
    q[both] = sps.false_discovery_control(p)
    broken = np.nan_to_num(q, nan=1.0) <= level
    out = []
    with np.errstate(all="ignore"):
        off = np.where(broken, np.abs(np.log(cells / wanted)), -np.inf)
    for a, b in sorted(np.argwhere(broken.any(axis=2)).tolist(), key=lambda ab: -off[ab[0], ab[1]].max()):
        s = int(off[a, b].argmax())
        size = int(summary["size"].values[s])
        ratio = float(cells[a, b, s] / wanted[a, b, s])
        out.append(
            Finding(
                "net.model_violated",
                f"link {a}→{b} takes {format_duration(float(cells[a, b, s]))} at {format_size(size, exact=True)}, "
                f"{ratio:.2f} times the {format_duration(float(wanted[a, b, s]))} of the model",
                {"src": a, "dst": b, "size": size, "ratio": ratio, "q": float(q[a, b, s])},
                typed("sonde", "net", "show", dataset, "--pair", f"{a},{b}"),
            )
        )
    if len(out) > MOST_FINDINGS:
        rest = len(out) - MOST_FINDINGS
        out = [
            *out[:MOST_FINDINGS],
            Finding("net.model_violated", f"{rest} more links differ from the model", {"more": rest}),
        ]
    return out

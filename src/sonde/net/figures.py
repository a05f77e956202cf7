"""The figures of one dataset of delays, and its section of a report. Specifications only: nothing is drawn here."""

from __future__ import annotations

import numpy as np
import xarray as xr
from scipy.cluster import hierarchy
from scipy.special import ndtri

from sonde.core.dataset import summary_of as stored_summary
from sonde.core.figure import Axis, Figure, Kind, Slider
from sonde.core.section import MEDIAN, Fact, Method, Section
from sonde.core.status import NOT_MEASURED, STATUS_NAMES
from sonde.core.units import format_duration, format_size
from sonde.net import cells, models, verdict
from sonde.net.analyse import shown_cells, structure
from sonde.net.pairs import centre

CELL = ("src", "dst", "size")
SIZE = Slider("size", "message size", "B")
# The largest number of delays of a long series in a figure.
MOST_POINTS, MOST_WINDOWS, MOST_QUANTILES = 40000, 300, 240
ROW, COLUMN = Axis("sender"), Axis("receiver")


def section(tree: xr.DataTree, dataset: str = "FILE") -> Section:
    """One dataset's part of a report.

    Parameters
    ----------
    tree : groups /summary and, if delays were stored, /raw; opened lazily
    dataset : the file's name, for commands in hints

    Returns
    -------
    Section. Figures without data are left out.
    """
    summary = summary_of(tree)
    return Section(
        "net",
        f"Latency, {tree.attrs.get('mode') or summary.attrs.get('mode') or 'unknown mode'}",
        verdict.sentence(summary, dataset),
        findings=verdict.findings(summary, dataset),
        tables=verdict.tables(summary),
        figures=list(figures(tree)),
        facts=facts(summary),
        runs={"a delay is": VALUES[value]} if (value := str(summary.attrs.get("value"))) in VALUES else {},
        method=list(METHODS),
        warnings=verdict.warnings(summary),
        doubt=verdict.doubt(summary),
    )


VALUES = {
    "rtt_half": "half a round trip",
    "one_way": "one way, by synchronised clocks",
    "recv_duration": "the receiver's time in MPI_Recv",
    "completion": "from the start until the operation is complete",
}


def facts(summary: xr.Dataset) -> list[Fact]:
    """The few numbers that a reader looks for first: delays at both ends of the sizes, precision, number of cells."""
    cells = centre(summary)
    out = []
    size = summary["size"].values
    measured = [k for k in range(len(size)) if np.isfinite(cells[..., k]).any()]
    for k in dict.fromkeys(measured[:1] + measured[-1:]):
        delays = cells[..., k][np.isfinite(cells[..., k])]
        low, middle, high = (
            format_duration(float(v)) for v in (delays.min(), np.median(delays), delays.max())
        )
        between = f"{low} to {high} between" if low != high else f"{low} in all"
        between = f"{between} {delays.size} cells" if delays.size > 1 else "one cell"
        out.append(Fact(f"median delay at {format_size(int(size[k]), exact=True)}", middle, between))
    if {"median_low", "median_high", "median"} <= set(summary.variables):
        half = ((summary["median_high"] - summary["median_low"]) / (2 * summary["median"])).values
        half = half[np.isfinite(half)]
        if half.size:
            out.append(Fact("precision", f"±{np.median(half):.1%}", f"worst cell ±{half.max():.0%}"))
    counts = verdict.counts(summary)
    if "converged" in counts and counts["cells"]:
        rule = str(summary.attrs.get("rule", ""))
        out.append(
            Fact(
                "converged",
                f"{counts['converged']} of {counts['cells']}",
                f"cells, by {rule}" if rule else "cells",
            )
        )
    return out


def figures(tree: xr.DataTree) -> tuple[Figure, ...]:
    """Every figure that the dataset has the data for, in reading order."""
    summary = summary_of(tree)
    shown: Shown = {}
    if "raw" in tree.children:
        raw = tree["raw"].to_dataset()
        shown = {
            name: (spot, cells.series_of(raw, spot))
            for name, spot in shown_cells(summary).items()
            if all(spot[k] < raw.sizes[dim] for k, dim in enumerate(CELL))
        }
        shown = {name: (spot, series) for name, (spot, series) in shown.items() if len(series) >= 2}
    figures_ = [
        median_matrix(summary),
        over_size(summary),
        ratio_matrix(summary),
        dendrogram(summary),
        delay_series(summary, shown),
        spectrogram(summary, shown),
        distribution(summary, shown),
        status_matrix(summary),
        known_matrix(summary),
        spread_matrix(summary),
        min_matrix(summary),
    ]
    return tuple(figure for figure in figures_ if figure is not None)


def summary_of(tree: xr.DataTree) -> xr.Dataset:
    """/summary with root attributes, completed if it comes from another tool and has statistics only.

    Raises
    ------
    DataError  net.not_net: a dataset of another room. core.no_summary.
    """
    summary = stored_summary(tree, "net")
    summary = summary.assign_attrs({**tree.attrs, **summary.attrs})
    return summary if "class_links" in summary else structure(summary)


METHODS = (
    MEDIAN,
    Method(
        "Slow links",
        "A link is slow if neither its class nor its ranks explain its delay; 5 % of the reported links may be false.",
        "Benjamini & Hochberg, J. R. Statist. Soc. B 57, 1995; Tukey, Exploratory Data Analysis, 1977",
    ),
    Method(
        "Classes of links",
        "Average linkage over log latencies of all sizes; cut only at a true valley between two groups.",
        "scipy.cluster.hierarchy; Hubert & Arabie, Journal of Classification 2, 1985",
    ),
    Method(
        "Models of a link",
        "Hockney's line, in up to three pieces by BIC, fitted to relative residuals; LogGP's L + 2o and G "
        "follow from its first start-up and last slope.",
        "Hockney, Parallel Computing 20, 1994; Alexandrov et al., LogGP, SPAA 1995",
    ),
    Method(
        "Distribution of delays",
        "A lognormal with a shift, fitted to the delays of a cell, and its distance from them.",
        "Kolmogorov-Smirnov distance, its p by parametric bootstrap",
    ),
    Method(
        "Jumps and regimes",
        "Breaks of a piecewise linear delay over sizes; moments at which most cells change together.",
        "Bellman & Roth, J. Am. Stat. Assoc. 64, 1969; Pettitt, Applied Statistics 28, 1979",
    ),
)


def _matrix(summary: xr.Dataset, name: str, values: np.ndarray, units: str, long_name: str) -> xr.Dataset:
    data = xr.Dataset(
        {"value": (("row", "col", "size"), values, {"units": units, "long_name": long_name})},
        coords={
            "row": summary["src"].values,
            "col": summary["dst"].values,
            "size": ("size", summary["size"].values, {"units": "B", "long_name": "message size"}),
        },
    )
    if "host" in summary:
        host = summary["host"].values.astype(str)
        data["sender_host"] = ("row", host, {"long_name": "host of the sender"})
        data["receiver_host"] = ("col", host, {"long_name": "host of the receiver"})
    return data


NOTHING = 1e-6  # rounding error of a ratio of 1
LEAST = 0.05  # colours of delays span at least this share of the median to either side
WIDTHS = 0.25  # the same for widths, which are known less precisely


def _with_doubt(summary: xr.Dataset, data: xr.Dataset) -> xr.Dataset:
    """The data with the range that its colours must span: LEAST, or the error of a size's medians if that is larger."""
    least = np.full(summary.sizes["size"], LEAST)
    if {"median_low", "median_high", "median"} <= set(summary.variables):
        width = (summary["median_high"] - summary["median_low"]) / (2 * summary["median"])
        half = width.transpose(*CELL).values
        for k in range(len(least)):
            known = half[..., k][np.isfinite(half[..., k])]
            least[k] = max(LEAST, float(np.median(known))) if known.size else LEAST
    return data.assign(least=("size", least))


def median_matrix(summary: xr.Dataset) -> Figure | None:
    """Median delay of every pair, by size."""
    values = centre(summary)
    if not np.isfinite(values).any():
        return None
    data = _with_doubt(summary, _matrix(summary, "median", values, "s", "median delay"))
    return Figure(
        "net-median",
        "Median delay between ranks",
        "Each cell is one pair. Blocks along the diagonal are ranks that are close together; a stripe is a "
        "slow rank, a lone cell a slow link.",
        Kind.MATRIX,
        data,
        {"row": ROW, "col": COLUMN, "value": Axis("median delay", "s", log=True)},
        (SIZE,),
    )


def ratio_matrix(summary: xr.Dataset) -> Figure | None:
    """The part of the delays that ranks and classes do not explain."""
    if "ratio" not in summary:
        return None
    away = np.abs(summary["ratio"].values - 1)
    if not (away > NOTHING).any():  # NaN is not; with one link, the link explains all of its own delay
        return None
    data = _matrix(summary, "ratio", summary["ratio"].values, "1", "measured over expected")
    data = _with_doubt(summary, data)
    return Figure(
        "net-ratio",
        "Delay relative to its class and ranks",
        "1 is as expected. A link that stands out here is slow itself, not because of its ends.",
        Kind.MATRIX,
        data,
        {
            "row": ROW,
            "col": COLUMN,
            "value": Axis("measured over expected", centre=1.0),
        },
        (SIZE,),
    )


def min_matrix(summary: xr.Dataset) -> Figure | None:
    """Smallest delay of every pair."""
    if "min" not in summary or not np.isfinite(summary["min"].values).any():
        return None
    values = summary["min"].transpose(*CELL).values
    return Figure(
        "net-min",
        "Smallest delay between ranks",
        "The best that the wire and the software can do. If the median is far above it, something else "
        "has a share.",
        Kind.MATRIX,
        _with_doubt(summary, _matrix(summary, "min", values, "s", "smallest delay")),
        {"row": ROW, "col": COLUMN, "value": Axis("smallest delay", "s", log=True)},
        (SIZE,),
    )


def spread_matrix(summary: xr.Dataset) -> Figure | None:
    """Interquartile range over the median."""
    if not {"q25", "q75", "median"} <= set(summary.variables):
        return None
    values = ((summary["q75"] - summary["q25"]) / summary["median"]).transpose(*CELL).values
    if not np.isfinite(values).any():
        return None
    return Figure(
        "net-spread",
        "Variation of the single delays of a pair",
        "Width of the middle half of the delays over their median: 0.1 means that half of all messages "
        "lie within "
        "about 5 % of the median. Pairs that stand out share their path with other traffic.",
        Kind.MATRIX,
        _matrix(summary, "spread", values, "1", "interquartile range over median"),
        {"row": ROW, "col": COLUMN, "value": Axis("interquartile range / median", least=WIDTHS)},
        (SIZE,),
    )


def known_matrix(summary: xr.Dataset) -> Figure | None:
    """The precision of the medians."""
    if not {"median_low", "median_high", "median"} <= set(summary.variables):
        return None
    half = (summary["median_high"] - summary["median_low"]) / (2 * summary["median"])
    values = half.transpose(*CELL).values
    if not np.isfinite(values).any():
        return None
    return Figure(
        "net-known",
        "Precision of each median",
        "Half the width of the 95 % interval over the median: 0.02 means a precision of 2 %. Differences "
        "between cells "
        "smaller than this mean nothing.",
        Kind.MATRIX,
        _matrix(summary, "known", values, "1", "half width of the 95 % interval over median"),
        {"row": ROW, "col": COLUMN, "value": Axis("half width / median", least=WIDTHS)},
        (SIZE,),
    )


Shown = dict[str, tuple[cells.Spot, cells.Series]]


def _label(summary: xr.Dataset, name: str, spot: cells.Spot) -> str:
    src, dst = int(summary["src"].values[spot[0]]), int(summary["dst"].values[spot[1]])
    return f"{name}: {src}→{dst}"


def _at(summary: xr.Dataset, shown: Shown) -> str:
    size = int(summary["size"].values[next(iter(shown.values()))[0][2]])
    return format_size(size, exact=True)


def _distinct(shown: Shown) -> Shown:
    """One entry per cell, with all its names."""
    names: dict[cells.Spot, list[str]] = {}
    for name, (spot, _) in shown.items():
        names.setdefault(spot, []).append(name)
    return {" and ".join(names[spot]): (spot, shown[names[spot][0]][1]) for spot in names}


def delay_series(summary: xr.Dataset, shown: Shown) -> Figure | None:
    """Single delays of the cells that represent the run, in order of time."""
    if not shown:
        return None
    chosen = _distinct(shown)
    longest = max(len(series) for _, series in chosen.values())
    keep = np.unique(np.linspace(0, longest - 1, min(longest, MOST_POINTS)).round().astype(int))
    timed = all(series.t is not None for _, series in chosen.values())
    shape = (len(chosen), len(keep))
    x, y, group = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, -1)
    for row, (_, series) in enumerate(chosen.values()):
        own = keep[keep < len(series)]
        x[row, : len(own)] = series.t[own] if timed and series.t is not None else own
        y[row, : len(own)] = series.latency[own]
        group[row, : len(own)] = series.epoch[own]
    data = xr.Dataset(
        {
            "y": (("series", "x"), y, {"units": "s", "long_name": "delay"}),
            "group": (("series", "x"), group),
            "x": (("series", "x"), x),
        },
        coords={
            "series": [_label(summary, name, spot) for name, (spot, _) in chosen.items()],
        },
    )
    thinned = f" {len(keep)} of {longest} delays are drawn." if len(keep) < longest else ""
    return Figure(
        "net-series",
        f"Single delays over the run, {_at(summary, shown)}",
        "The fastest, the median and the slowest pair by median, and the most irregular one (widest from "
        "the 5 % to "
        "the 95 % quantile). Shades alternate between epochs, and the dark line is their median: its steps are "
        f"regimes, which a single burst would not show.{thinned}",
        Kind.SERIES,
        data,
        {
            "x": Axis("time since the run began", "s") if timed else Axis("sample"),
            "y": Axis("delay", "s", log=True),
        },
    )


def spectrogram(summary: xr.Dataset, shown: Shown) -> Figure | None:
    """Power over frequency for every window of the most irregular pair."""
    name = "most irregular" if "most irregular" in shown else next(iter(shown), "")
    if not name:
        return None
    spot, series = shown[name]
    rows = cells.windows(series)
    if len(rows) < 4 or rows.shape[1] < 8 or not (rows > 0).all():
        return None
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), MOST_WINDOWS)).round().astype(int))]
    width = rows.shape[1] if rows.shape[1] <= 512 else 512
    y = np.log(rows[:, :width])
    y = (y - y.mean(axis=1, keepdims=True)) * np.hanning(width)
    power = np.abs(np.fft.rfft(y, axis=1))[:, 1:] ** 2 / width
    data = xr.Dataset(
        {"power": (("x", "frequency"), power, {"long_name": "power of log delay"})},
        coords={
            "x": np.arange(len(rows), dtype=float),
            "frequency": np.arange(1, power.shape[1] + 1) / width,
        },
    )
    what = "epoch" if series.epochs >= 2 else "window"
    return Figure(
        "net-spectrogram",
        f"Spectrum of each {what}, {_label(summary, name, spot)}, {_at(summary, shown)}",
        f"A bright horizontal line is a lasting cycle; different columns mean that one {what} is not "
        "like the "
        "next. Frequency is in cycles a sample; the mean of each is left out.",
        Kind.SPECTROGRAM,
        data,
        {"x": Axis(what), "frequency": Axis("frequency (cycles a sample)"), "power": Axis("power", log=True)},
    )


def distribution(summary: xr.Dataset, shown: Shown) -> Figure | None:
    """Distribution of delays and the lognormal fitted to it."""
    if not shown:
        return None
    chosen = _distinct(shown)
    p = np.concatenate([np.linspace(0.001, 0.99, MOST_QUANTILES - 40), 1 - np.geomspace(0.0098, 0.001, 40)])
    names, xs, ps, styles, hues, keys, distances = [], [], [], [], [], [], []
    for hue, (name, (spot, series)) in enumerate(chosen.items()):
        label = _label(summary, name, spot)
        names.append(label)
        xs.append(np.quantile(series.latency, p))
        ps.append(p)
        styles.append("steps")
        hues.append(hue)
        keys.append("")
        if "lognormal_shift" not in summary:
            continue
        shift, mu, sigma, ks = (
            float(summary[f"lognormal_{part}"].values[spot]) for part in ("shift", "mu", "sigma", "ks")
        )
        if np.isfinite([shift, mu, sigma]).all():
            names.append(f"{label}, lognormal")
            xs.append(shift + np.exp(mu + sigma * ndtri(p)))
            ps.append(p)
            styles.append("line")
            hues.append(hue)
            keys.append("lognormal fitted to it")
            distances.append(f"{name} {ks:.2f}")
    data = xr.Dataset(
        {
            "x": (("series", "point"), np.array(xs), {"units": "s", "long_name": "delay"}),
            "p": (("series", "point"), np.array(ps)),
            "style": ("series", styles),
            "hue": ("series", hues),
            "key": ("series", keys),
        },
        coords={"series": names},
    )
    fits = f" Largest distance from the fit: {', '.join(distances)}." if distances else ""
    return Figure(
        "net-cdf",
        f"Distribution of delays, {_at(summary, shown)}",
        "Solid steps are measured, dashed lines are fitted three-parameter lognormals. If a line leaves its "
        "steps, "
        f"delays come from more than one regime and no single law holds.{fits}",
        Kind.CDF,
        data,
        {"x": Axis("delay", "s", log=True), "p": Axis("share of delays")},
    )


# A model is drawn beyond the measured sizes by this factor.
BEYOND = 2.0
MODEL_POINTS = 60


def over_size(summary: xr.Dataset) -> Figure | None:
    """Median delay of each class over message size, the fitted models, and the jumps."""
    if summary.sizes.get("link_class", 0) < 1 or summary.sizes["size"] < 2:
        return None
    size = summary["size"].values.astype(float)
    medians = summary["class_median"].values
    fits = models.class_models(summary)
    positive = size[size > 0]
    # Sizes that span decades need a logarithmic axis, even if one of them is 0.
    log = bool(len(positive) > 1 and (len(positive) == len(size) or positive[-1] / positive[0] > 50))
    series: list[tuple[str, np.ndarray, np.ndarray, str, int, int, str]] = []
    notes = []
    for k, fit in enumerate(fits[: len(medians)]):
        name = _class_name(summary, k) if len(medians) > 1 else "all links"
        gp = models.loggp(fit)
        low, high = float(fit.size[0]), float(fit.size[-1])
        reach = (max(1.0, low / BEYOND) if log else 0.0, high * BEYOND if log else high + (high - low) / 5)
        parts = [
            (_grid(low, high, log, fit), "line"),
            (_grid(reach[0], low, log), "dashed"),
            (_grid(high, reach[1], log), "dashed"),
        ]
        for key, tone, at in (("LogGP", 1, gp.at), ("Hockney", 0, lambda s, f=fit: f.segment(s).at(s))):
            for x, style in parts:
                if len(x) > 1:
                    y = np.array([at(s) for s in x])
                    said_as = key if style == "line" else "" if tone else "beyond the measured sizes"
                    series.append((f"{name}, {key}", x, y, style, k, tone, said_as))
        notes.append(_residuals(name, fit, gp))
    for k, y in enumerate(medians):
        name = _class_name(summary, k) if len(medians) > 1 else "median of all links"
        series.append((name, size, y, "points", k, 0, ""))
    data = _series_data(series)
    if summary.sizes.get("jump", 0):
        common = summary["jump_src"].values < 0
        marks = np.unique(summary["jump_size_high"].values[common])
        if len(marks):
            data["mark"] = ("mark", marks.astype(float))
            data["mark_name"] = ("mark", [f"jump at {format_size(int(m), exact=True)}" for m in marks])
    most = 3
    if len(notes) > most:
        notes = [*notes[:most], f"{len(notes) - most} more classes: sonde net model FILE."]
    caption = (
        "Points are medians over the links of a class. Hockney's model is start-up plus size over bandwidth, "
        "in a new line where the protocol changes; LogGP's is one line for all sizes. A marked jump is a "
        "buffer that overflows or a protocol that switches."
        if fits
        else "Medians over the links of a class; there are too few sizes to fit a model."
    )
    return Figure(
        "net-size",
        "Model against measurement",
        "\n".join([caption, *notes]),
        Kind.SCATTER,
        data,
        {"x": Axis("message size", "B", log=log), "y": Axis("median delay", "s", log=True)},
    )


def _class_name(summary: xr.Dataset, k: int) -> str:
    level = str(summary["class_level"].values[k])
    return f"class {k}" + (f" ({level})" if level else "")


def _grid(low: float, high: float, log: bool, fit: models.LinkModel | None = None) -> np.ndarray:
    """Sizes at which a model is drawn; both sides of each change of its line, so that it appears as a step."""
    if not high > low or (log and low <= 0 and high <= 1):
        return np.empty(0)
    x = np.geomspace(max(low, 1.0), high, MODEL_POINTS) if log else np.linspace(low, high, MODEL_POINTS)
    for left, right in zip(fit.segments, fit.segments[1:]) if fit else ():
        change = (left.end + right.begin) / 2
        x = np.append(x, [np.nextafter(change, 0), change])
    return np.unique(x)


def _residuals(name: str, fit: models.LinkModel, gp: models.LogGP) -> str:
    """A class's models in numbers, and their differences from the measurements."""
    away = np.abs(fit.residuals())
    other = np.abs(fit.latency_s / np.array([gp.at(s) for s in fit.size]) - 1)
    worst = format_size(int(fit.size[away.argmax()]), exact=True)
    lines = []
    for segment in fit.segments:
        beta = segment.beta_s_per_b
        speed = f" + size / ({format_size(round(1 / beta))}/s)" if beta > 0 else " at any size"
        upto = "" if len(fit.segments) == 1 else f" to {format_size(segment.end, exact=True)}"
        lines.append(f"{format_duration(segment.alpha_s)}{speed}{upto}")
    return (
        f"{name[:1].upper()}{name[1:]}: Hockney {', then '.join(lines)}; measurements are "
        f"{_share(float(np.median(away)))} from it in the median, {_share(float(away.max()))} at most, at "
        f"{worst}. LogGP L + 2o = {format_duration(gp.latency_overhead_s)}, "
        f"G = {format_duration(gp.gap_per_byte_s)}/B; they are {_share(float(np.median(other)))} from it in the "
        f"median, {_share(float(other.max()))} at most."
    )


def _share(part: float) -> str:
    return f"{part:.1%}".replace("%", " %") if part < 0.1 else f"{part:.0%}".replace("%", " %")


def _series_data(series: list[tuple[str, np.ndarray, np.ndarray, str, int, int, str]]) -> xr.Dataset:
    """(name, x, y, style, hue, tone, key) of each series as the data of a SCATTER, padded with NaN."""
    names, xs, ys, styles, hues, tones, keys = zip(*series)
    x, y = (np.full((len(series), max(map(len, xs))), np.nan) for _ in range(2))
    for row, (one, other) in enumerate(zip(xs, ys)):
        x[row, : len(one)], y[row, : len(one)] = one, other
    return xr.Dataset(
        {
            "x": (("series", "point"), x, {"units": "B"}),
            "y": (("series", "point"), y, {"units": "s"}),
            "style": ("series", list(styles)),
            "hue": ("series", list(hues)),
            "tone": ("series", list(tones)),
            "key": ("series", list(keys)),
        },
        coords={"series": list(names)},
    )


def dendrogram(summary: xr.Dataset) -> Figure | None:
    """The tree of links."""
    if summary.sizes.get("merge", 0) < 1:
        return None
    data = xr.Dataset(
        {
            "merge": (("link", "part"), summary["merge_tree"].values),
            "leaf": ("leaf", summary["leaf_name"].values.astype(str)),
        }
    )
    caption = "Links that join at a low height are alike at all sizes; the height is the log of the ratio between them."
    cut = _class_cut(summary)
    if cut is not None:
        data["threshold"] = cut
        data["hue"] = ("leaf", summary["leaf_class"].values.astype(int))
        caption += " The dotted line is the cut into classes, in the colours of the models above."
    return Figure(
        "net-tree",
        "Which links behave alike",
        caption,
        Kind.DENDROGRAM,
        data,
        {"leaf": Axis("link"), "height": Axis("distance (log ratio)")},
    )


def _class_cut(summary: xr.Dataset) -> float | None:
    """The height at which the tree splits into the classes; None if it does not, or if there is one class."""
    merge, label = summary["merge_tree"].values.astype(float), summary["leaf_class"].values
    count = len(np.unique(label))
    if not 1 < count <= len(merge):
        return None
    # scipy counts leaves, the tree counts links, of which a leaf may have several
    members = [1.0] * (len(merge) + 1)
    for row in merge:
        row[3] = members[int(row[0])] + members[int(row[1])]
        members.append(row[3])
    heights = np.sort(merge[:, 2])
    cut = float(heights[-count] + heights[1 - count]) / 2
    found = hierarchy.fcluster(merge, cut, "distance")
    same = len(np.unique(found)) == len(set(zip(found.tolist(), label.tolist()))) == count
    return cut if same else None


def status_matrix(summary: xr.Dataset) -> Figure | None:
    """How the measurement of each cell ended."""
    if "status" not in summary:
        return None
    values = summary["status"].transpose(*CELL).values.astype(int)
    # A rank does not measure itself: the diagonal is a hole, not a state of a measurement.
    own = np.arange(min(values.shape[:2]))
    values[own, own] = np.where(values[own, own] == NOT_MEASURED, -1, values[own, own])
    data = _matrix(summary, "status", values, "1", "how measuring ended")
    return Figure(
        "net-status",
        "How the measurement of each cell ended",
        "Converged cells have the requested precision; others reached a cap, drifted, or ran out of time.",
        Kind.STATUS,
        data,
        {
            "row": ROW,
            "col": COLUMN,
            "value": Axis("status", labels=tuple(s.replace("_", " ") for s in STATUS_NAMES)),
        },
        (SIZE,),
    )

"""The figures of one dataset of the store, and its section of a report. Specifications only: nothing is drawn here."""

from __future__ import annotations

import numpy as np
import xarray as xr

from sonde.core.dataset import summary_of
from sonde.core.figure import Axis, Figure, Kind, Slider
from sonde.core.section import MEDIAN, Fact, Method, Section
from sonde.core.units import format_size
from sonde.store import verdict
from sonde.store.plan import BLOCK, CLIENT_NAMES, HDF5, READS, TCP, Case

MIB = verdict.MIB
STAGES = ("serialise", "wire", "wait", "backend")


def section(tree: xr.DataTree, dataset: str = "FILE") -> Section:
    """The section of one dataset in a report.

    Parameters
    ----------
    tree : group /summary; opened lazily
    dataset : the file's name, for the commands in hints

    Returns
    -------
    Section. Figures without data are left out.

    Raises
    ------
    DataError  core.no_summary.
    """
    summary = summary_of(tree, "store", dataset)
    return Section(
        "store",
        "Storage service by transport",
        verdict.sentence(summary, dataset),
        tables=[verdict.variant_table(summary)],
        numbers=verdict.tables(summary, intervals=True),
        figures=list(figures(summary)),
        facts=facts(summary),
        method=list(METHODS),
        warnings=verdict.warnings(summary),
        runs={
            "a sample is": "the time until all batches of an iteration are answered",
            **{
                label: str(tree.attrs[key])
                for key, label in (
                    ("backend", "servers store data in"),
                    ("safety", "a write is acknowledged at"),
                )
                if tree.attrs.get(key)
            },
        },
        doubt=verdict.caveats(summary),
    )


METHODS = (
    MEDIAN,
    Method(
        "Transports compared",
        "All variants of a case are measured in every epoch, in a random order; ratios are taken epoch by epoch, and "
        "their typical value is the Hodges-Lehmann shift of the logs with the signed-rank interval.",
        "Hollander & Wolfe, Nonparametric Statistical Methods, 1999, 3.3",
    ),
    Method(
        "The raw limits",
        "A socket, and libfabric over the provider of ofi-rdm, move the bytes of each case between two processes in "
        "the same run, from and into the memory that the case uses. They show what each can do alone on this machine "
        "at that time. HDF5 calls have no such limit, because the bytes to move are not defined.",
    ),
)


def facts(summary: xr.Dataset) -> list[Fact]:
    """The few numbers that a reader looks for first."""
    out = []
    names, cases = verdict.names_of(summary), verdict.cases_of(summary)
    first = next((c for c in range(len(cases)) if summary["n"].values[:, c].any()), None)
    if first is not None:
        shown = [
            v for v in dict.fromkeys([names.index(TCP) if TCP in names else 0, verdict.best(summary, first)])
        ]
        for v in shown:
            if v is None or not summary["n"].values[v, first]:
                continue
            low, high = (float(summary[f"rate_{end}"].values[v, first]) for end in ("low", "high"))
            between = (
                f"{verdict.rate_text(low)} to {verdict.rate_text(high)}"
                if np.isfinite(low)
                else "no interval"
            )
            out.append(
                Fact(
                    f"{cases[first].title}, {verdict.label(summary, v)}",
                    verdict.rate_text(float(summary["rate"].values[v, first])),
                    between,
                )
            )
    half = (summary["median_high"].values - summary["median_low"].values) / (2 * summary["median"].values)
    half = half[np.isfinite(half)]
    if half.size:
        worst = (
            f"worst cell: ±{half.max():.0%}"
            if half.max() < 10
            else "worst cell: interval too wide to be useful"
        )
        out.append(Fact("precision of the medians", f"±{np.median(half):.1%}", worst))
    number = verdict.counts(summary)
    out.append(Fact("converged", f"{number['converged']} of {number['cells']}", "cells"))
    return out


def figures(summary: xr.Dataset) -> tuple[Figure, ...]:
    """All figures for which the summary has data, in reading order."""
    candidates = (
        by_size(summary),
        by_client(summary),
        by_operation(summary),
        compared(summary),
        distribution(summary),
        stages(summary),
    )
    return tuple(figure for figure in candidates if figure is not None)


def _shown(summary: xr.Dataset, raw: bool = True) -> list[int]:
    """The rows of the variants that have data. raw: whether to include raw limits."""
    measured = [v for v in range(summary.sizes["variant"]) if summary["n"].values[v].any()]
    return [v for v in measured if raw or str(summary["style"].values[v]) != "raw"]


ALONE = {"raw-tcp": "a socket alone", "raw-ofi": "libfabric alone"}


def _hues(summary: xr.Dataset, rows: list[int]) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """The colour, tone and legend of each variant's line. A raw limit has the colour of its variant, but paler."""
    names = verdict.names_of(summary)
    raw = [str(summary["style"].values[v]) == "raw" for v in rows]
    hue: dict[int, int] = {}
    for k, v in enumerate(rows):
        if not raw[k]:
            hue[v] = len(hue)
    for k, v in enumerate(rows):
        if raw[k]:
            of = verdict.limited_by(summary, names[v])
            hue[v] = hue[of] if of in hue else len(set(hue.values()))
    keys = [
        f"{names[v]}: {ALONE.get(str(summary['transport'].values[v]), 'alone')}" if raw[k] else ""
        for k, v in enumerate(rows)
    ]
    return np.array([hue[v] for v in rows]), np.array(raw, int), keys


def _kind(case: Case) -> str:
    """The kind of an operation: read, write or update. A put is a write, so that clients can be compared."""
    return "read" if case.op in READS else "update" if case.op == "update" else "write"


BY_SIZE = (
    "Single operations, one after the other, with 95 % confidence intervals. Where the lines are close together, "
    "memory or wire limit the throughput; where they are apart, the cost of a message does. The pale lines show a "
    "socket alone and libfabric alone."
)


def _lessons(summary: xr.Dataset) -> list[str]:
    """The lessons of the run, one paragraph each."""
    texts = [lesson["text"] for lesson in verdict.lessons(summary)]
    return [f"{text[0].upper()}{text[1:]}." for text in texts]


def by_size(summary: xr.Dataset) -> Figure | None:
    """The figure of throughput by size for single operations, with one line for each variant."""
    cases, rows = verdict.cases_of(summary), _shown(summary)
    single = {(c.client, c.op, c.size): k for k, c in enumerate(cases) if c.batch == 1 and c.depth == 1}
    ops = [
        pair
        for pair in dict.fromkeys((client, op) for client, op, _ in single)
        if len({size for client, op, size in single if (client, op) == pair}) >= 2
    ]
    if not ops or not rows:
        return None
    sizes = sorted({size for _, _, size in single})
    x = np.array(sizes, float)
    shape = (len(rows), len(sizes), len(ops))
    y, low, high = (np.full(shape, np.nan) for _ in range(3))
    for j, size in enumerate(sizes):
        for k, (client, op) in enumerate(ops):
            c = single.get((client, op, size))
            if c is None:
                continue
            for i, v in enumerate(rows):
                y[i, j, k] = summary["throughput"].values[v, c] / MIB
                low[i, j, k] = summary["throughput_low"].values[v, c] / MIB
                high[i, j, k] = summary["throughput_high"].values[v, c] / MIB
    names = [verdict.label(summary, v) for v in rows]
    hue, tone, keys = _hues(summary, rows)
    dims = ("series", "point", "operation")
    nothing = np.full(shape, np.nan)
    points = np.where(tone[:, None, None] == 1, np.nan, y)  # a raw limit has a line only, below the others
    data = xr.Dataset(
        {
            "x": (("series", "point"), np.tile(x, (2 * len(rows), 1)), {"units": "B"}),
            "y": (dims, np.concatenate([y, points])),
            "low": (dims, np.concatenate([nothing, low])),
            "high": (dims, np.concatenate([nothing, high])),
            "style": ("series", ["line"] * len(rows) + ["points"] * len(rows)),
            "hue": ("series", np.concatenate([hue, hue])),
            "tone": ("series", np.concatenate([tone, tone])),
            "key": (
                "series",
                [*(key or "joined for the eye" for key in keys), *("" for _ in tone)],
            ),
        },
        coords={
            "series": [*(f"{name}, joined" for name in names), *names],
            "operation": [f"{CLIENT_NAMES[client]} {op}" for client, op in ops],
        },
    )
    return Figure(
        "store-size",
        "Throughput by size and transport",
        "\n".join([BY_SIZE, *_lessons(summary)]),
        Kind.SCATTER,
        data,
        {"x": Axis("bytes of an operation", "B", log=True), "y": Axis("throughput, MiB/s", log=True)},
        (Slider("operation", "operation"),),
    )


def by_client(summary: xr.Dataset) -> Figure | None:
    """The figure of all operations, single and in batches, with one row for each variant, on one scale."""
    cases, rows = verdict.cases_of(summary), _shown(summary)
    own = [
        c
        for c, case in enumerate(cases)
        if case.depth == 1 and (case.size == BLOCK or case.client in HDF5) and summary["n"].values[:, c].any()
    ]
    if not own or not rows:
        return None

    def label(case: Case) -> str:
        return f"{_kind(case)}, batch" if case.batch > 1 else _kind(case)

    groups = list(dict.fromkeys((cases[c].client, cases[c].size) for c in own))
    ordered = sorted(
        own, key=lambda c: (cases[c].batch > 1, ("write", "read", "update").index(_kind(cases[c])))
    )
    bars = list(dict.fromkeys(label(cases[c]) for c in ordered))
    shape = (len(bars), len(rows), len(groups))
    y, low, high = (np.full(shape, np.nan) for _ in range(3))
    for c in own:
        where = bars.index(label(cases[c])), slice(None), groups.index((cases[c].client, cases[c].size))
        for end, target in (("", y), ("_low", low), ("_high", high)):
            target[where] = summary[f"throughput{end}"].values[rows, c] / MIB
    wide = high > verdict.WIDEST * low  # such an interval is not informative, and would take the whole scale
    low[wide] = high[wide] = np.nan
    order = ("bar", "series", "client")
    return Figure(
        "store-clients",
        "Throughput by operation and variant",
        "Inserts and puts count as writes, queries and gets as reads; with 95 % confidence intervals. A variant that "
        "is much slower than the others in single operations, but as fast in batches, spends its time on messages.",
        Kind.BAR,
        xr.Dataset(
            {
                name: (order, values.swapaxes(0, 1))
                for name, values in (("y", y), ("low", low), ("high", high))
            },
            coords={
                "bar": [verdict.label(summary, v) for v in rows],
                "series": bars,
                "client": [
                    f"{CLIENT_NAMES[client]}, {format_size(size, exact=True)}" for client, size in groups
                ],
            },
        ),
        {"bar": Axis("Variant"), "y": Axis("throughput, MiB/s", log=True)},
        (Slider("client", "client"),),
    )


def by_operation(summary: xr.Dataset) -> Figure | None:
    """The figure of operations of 4 KiB, single and in batches, by client, with one group of bars for each variant."""
    cases, rows = verdict.cases_of(summary), _shown(summary)
    chosen: dict[tuple[str, str], dict[str, int]] = {}
    for c, case in enumerate(cases):
        if case.size == BLOCK and case.depth == 1 and summary["n"].values[:, c].any():
            chosen.setdefault((case.client, case.op), {}).setdefault(
                "batch" if case.batch > 1 else "single", c
            )
    kinds = [kind for kind in ("single", "batch") if any(kind in found for found in chosen.values())]
    if not kinds or not rows:
        return None
    shape = (len(rows), len(kinds), len(chosen))
    y, low, high = (np.full(shape, np.nan) for _ in range(3))
    for k, found in enumerate(chosen.values()):
        for kind, c in found.items():
            for end, target in (("", y), ("_low", low), ("_high", high)):
                target[:, kinds.index(kind), k] = summary[f"throughput{end}"].values[rows, c] / MIB
    dims = ("bar", "series", "operation")
    batches = sorted({case.batch for case in cases if case.batch > 1 and case.size == BLOCK})
    of = f" of {' or '.join(map(str, batches))}" if batches else ""
    return Figure(
        "store-operations",
        "Operations of 4 KiB by client",
        f"Throughput of each variant, one operation at a time and in batches{of}, with 95 % confidence intervals. "
        "Batches hide the cost of a message: a variant whose two bars are far apart spends its time on messages.",
        Kind.BAR,
        xr.Dataset(
            {"y": (dims, y), "low": (dims, low), "high": (dims, high)},
            coords={
                "bar": [verdict.label(summary, v) for v in rows],
                "series": kinds,
                "operation": [f"{CLIENT_NAMES[client]} {op}" for client, op in chosen],
            },
        ),
        {"bar": Axis("Variant"), "y": Axis("throughput, MiB/s")},
        (Slider("operation", "operation"),),
    )


def compared(summary: xr.Dataset) -> Figure | None:
    """The figure of the rate relative to tcp, for every variant and case."""
    cases = verdict.cases_of(summary)
    ratio = summary["ratio_to_tcp"].values
    rows = [v for v in range(len(ratio)) if np.isfinite(ratio[v]).any()]
    own = [c for c in range(len(cases)) if rows and np.isfinite(ratio[rows, c]).any()]
    if not rows or not own:
        return None

    def label(case: Case) -> str:
        return f"{_kind(case)} {verdict.short_title(case)}"

    clients = list(dict.fromkeys(cases[c].client for c in own))
    ordered = sorted(
        own, key=lambda c: (cases[c].batch > 1, cases[c].depth, cases[c].size, _kind(cases[c]) == "read")
    )
    columns = list(dict.fromkeys(label(cases[c]) for c in ordered))
    shape = (len(columns), len(rows), len(clients))
    ratios = {name: np.full(shape, np.nan) for name in ("value", "low", "high")}
    for c in own:
        where = columns.index(label(cases[c])), slice(None), clients.index(cases[c].client)
        for name, key in (
            ("value", "ratio_to_tcp"),
            ("low", "ratio_to_tcp_low"),
            ("high", "ratio_to_tcp_high"),
        ):
            ratios[name][where] = summary[key].values[rows, c]
    dims = ("row", "col", "client")
    texts = {"value": "rate relative to tcp", "low": "lower end of its 95 % interval", "high": "upper end"}
    data = xr.Dataset(
        {name: (dims, values, {"long_name": texts[name], "units": "1"}) for name, values in ratios.items()},
        coords={
            "row": columns,
            "col": [verdict.names_of(summary)[v] for v in rows],
            "client": [CLIENT_NAMES[client] for client in clients],
        },
    )
    return Figure(
        "store-ratio",
        "Rate relative to tcp",
        "1 means as fast as well-tuned TCP, in the same epochs of the same run. A number in brackets, such as (16), is "
        "the number of batches in flight at once.",
        Kind.MATRIX,
        data,
        {
            "row": Axis("Case"),
            "col": Axis("Variant"),
            "value": Axis("rate relative to tcp", log=True, centre=1.0),
        },
        (Slider("client", "client"),),
    )


def distribution(summary: xr.Dataset) -> Figure | None:
    """The figure of the distribution of durations in each case, with one curve for each variant."""
    rows = _shown(summary)
    own = [c for c in range(summary.sizes["case"]) if summary["n"].values[:, c].any()]
    if not rows or not own or "quantile" not in summary:
        return None
    x = summary["quantile"].values[np.ix_(rows, own)]  # variant, case, share
    cases = verdict.cases_of(summary)
    hue, tone, keys = _hues(summary, rows)
    p = np.broadcast_to(summary["share"].values, (len(rows), summary.sizes["share"]))
    data = xr.Dataset(
        {
            "x": (
                ("series", "point", "operation"),
                np.moveaxis(x, 1, 2),
                {"units": "s", "long_name": "duration"},
            ),
            "p": (("series", "point"), p),
            "style": ("series", ["steps"] * len(rows)),
            "hue": ("series", hue),
            "tone": ("series", tone),
            "key": ("series", keys),
        },
        coords={
            "series": [verdict.label(summary, v) for v in rows],
            "operation": [cases[c].title for c in own],
        },
    )
    return Figure(
        "store-latency",
        "Distribution of durations",
        "Duration of one iteration: a single operation, or a whole batch. A step to the right that all variants share "
        "is caused by the machine; a step that only one variant has is caused by this variant.",
        Kind.CDF,
        data,
        {"x": Axis("duration", "s", log=True), "p": Axis("share of iterations")},
        (Slider("operation", "case"),),
    )


def stages(summary: xr.Dataset) -> Figure | None:
    """The figure of the stages of an iteration, for the regular variants."""
    rows = [v for v in (*verdict.styled(summary, "default"), *verdict.styled(summary, "provider"))]
    known = np.isfinite(summary["wire_time"].values)
    rows = sorted(v for v in rows if known[v].any())
    own = [c for c in range(summary.sizes["case"]) if rows and known[rows, c].any()]
    if not rows or not own:
        return None
    cases = verdict.cases_of(summary)
    y = np.stack([summary[f"{stage}_time"].values[np.ix_(rows, own)] for stage in STAGES], axis=1)
    return Figure(
        "store-stages",
        "Where the time of an iteration goes",
        "Medians over bursts. Serialise: the client builds its message, including checksums. Wait: the message waits "
        "in the server for its backend. Wire: everything else: sending, transfer in both directions, waking up, "
        "receiving. Variants that are slow on purpose are left out.",
        Kind.BAR,
        xr.Dataset(
            {"y": (("bar", "series", "operation"), y)},
            coords={
                "bar": [verdict.label(summary, v) for v in rows],
                "series": list(STAGES),
                "operation": [cases[c].title for c in own],
            },
        ),
        {"bar": Axis("Variant"), "y": Axis("time", "s")},
        (Slider("operation", "case"),),
    )

"""The results of a summary: one sentence, findings, warnings and tables. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from scipy.stats import false_discovery_control

from sonde.core.errors import Finding, UsageError, Warning, typed
from sonde.core.outcome import Table
from sonde.core.status import mostly_converged, status_counts
from sonde.core.units import format_duration, format_share, format_size, parse_duration
from sonde.net.modes import modes
from sonde.net.pairs import centre

MOST_ROWS = 20

CLOCKS_MATTER = 0.05  # errors of two clocks are reported from this share of the median delay on
ROUND_TRIPS = "measure half round trips, which need no common clock: sonde net run --value rtt_half"
FAST_S = 1e-3  # shortest period of anything that an operating system starts by a clock
FAST_HINT = (
    "a rhythm of a few round trips comes from the exchange itself (buffer slots, polling), not from a daemon"
)
SLOW_HINT = "something on the machine runs at that pace: a daemon, a timer, a power manager"


def sizes_text(sizes: Sequence[int] | np.ndarray) -> str:
    """ "8 B", or the smallest and largest of several: "8 B to 64 KiB"."""
    if not len(sizes):
        return "no size"
    first, last = (format_size(int(s), exact=True) for s in (min(sizes), max(sizes)))
    return first if len(sizes) == 1 else f"{first} to {last}"


def counts(summary: xr.Dataset) -> dict[str, int]:
    """How cells ended: cells, converged, capped, drift, undecided; only cells with data."""
    measured = np.isfinite(centre(summary))
    if "status" not in summary:
        return {"cells": int(measured.sum())}
    return status_counts(summary["status"].values)


def values(summary: xr.Dataset) -> dict[str, Any]:
    """The numbers of `net run` and `net show` for --json: counts, median_s {min, median, max}, slow_links, classes."""
    cells = centre(summary)
    measured = cells[np.isfinite(cells)]
    median = {
        "min": float(measured.min()) if measured.size else None,
        "median": float(np.median(measured)) if measured.size else None,
        "max": float(measured.max()) if measured.size else None,
    }
    return {
        **counts(summary),
        "median_s": median,
        "slow_links": [f.evidence for f in findings(summary) if f.code == "net.slow_link"],
        "classes": class_rows(summary),
        **rhythms(summary),
        "jumps": jump_rows(summary),
    }


def class_rows(summary: xr.Dataset) -> list[dict[str, Any]]:
    """One mapping for each link class: links, median_s by size, spread, topology."""
    if "class_links" not in summary:
        return []
    size = summary["size"].values
    return [
        {
            "class": k,
            "links": int(summary["class_links"].values[k]),
            "median_s": {str(int(s)): float(v) for s, v in zip(size, summary["class_median"].values[k])},
            "spread": float(summary["class_spread"].values[k]),
            "topology": str(summary["class_level"].values[k]),
        }
        for k in range(summary.sizes["link_class"])
    ]


def sentence(summary: xr.Dataset, dataset: str = "FILE") -> str:
    """The verdict in one sentence."""
    cells = centre(summary)
    measured = cells[np.isfinite(cells)]
    if not measured.size:
        return "No delay was measured."
    ranks, size = summary.sizes["src"], summary["size"].values
    middle = float(np.median(measured))
    spread = f"{format_duration(float(measured.min()))} to {format_duration(float(measured.max()))}"
    parts = [
        f"{ranks} ranks, {sizes_text(size)}: median delay {format_duration(middle)} ({spread} between cells)"
    ]
    classes = summary.sizes.get("link_class", 0)
    if classes > 1:
        parts.append(f"{classes} classes of links")
    found = findings(summary, dataset)
    slow = [f for f in found if f.code in ("net.slow_link", "net.slow_rank", "net.slow_host")]
    if slow:
        parts.append(
            "; ".join(f.text for f in slow[:2]) + (f" and {len(slow) - 2} more" if len(slow) > 2 else "")
        )
    elif not oversubscribed(summary) and np.isfinite(
        detectable := float(summary.attrs.get("detectable_slowdown", np.nan))
    ):
        one = float(summary.attrs.get("detectable_slowdown_one_size", np.nan))
        where = f"at all sizes, or {one:.0%} at one, " if np.isfinite(one) and len(size) > 1 else ""
        parts.append(f"no slow link (one that is {detectable:.0%} slower {where}is detectable)")
    count_of = counts(summary)
    if not _enough(summary):
        few = f"only {count_of['converged']}" if count_of["converged"] else "none"
        parts.append(f"{few} of {count_of['cells']} cells converged: {advice(summary)}")
    elif count_of.get("converged", count_of["cells"]) < count_of["cells"]:
        parts.append(f"{count_of['converged']} of {count_of['cells']} cells converged")
    if oversubscribed(summary):
        parts.append("ranks shared cores, so another run may differ by more than the intervals show")
    return "; ".join(parts) + "."


def sound(summary: xr.Dataset) -> bool:
    """Whether at least half of the cells have the precision of their rule, and no ranks shared cores.

    True if no rule decided. A run that is not sound may report slow links, but "no slow link" means nothing for it.
    """
    if oversubscribed(summary):
        return False
    return _enough(summary)


def _enough(summary: xr.Dataset) -> bool:
    return mostly_converged(counts(summary))


def doubt(summary: xr.Dataset) -> str:
    """The reason, in three words, why a clean verdict means little; "" if it is reliable."""
    if sound(summary):
        return ""
    count_of = counts(summary)
    if _enough(summary):
        return "Ranks shared cores"
    return (
        f"{count_of['converged']} of {count_of['cells']} converged"
        if count_of["converged"]
        else "Nothing converged"
    )


# Steps to which a budget or a precision is rounded up.
TIMES_S = (30, 60, 120, 300, 600, 1200, 1800, 3600)
PRECISIONS = (0.02, 0.05, 0.1, 0.2)  # coarser precisions are useless


def advice(summary: xr.Dataset) -> str:
    """The options that make more cells converge, from the most frequent reason why they did not."""
    count_of = counts(summary)
    worst = max(("undecided", "capped", "drift"), key=lambda name: count_of.get(name, 0))
    if worst == "drift":
        return "delays drifted, so measure again when the machine is quiet"
    asked, known = _asked(summary), _known_to(summary)
    coarser = next((p for p in PRECISIONS if p > max(asked, known)), None) if asked and known else None
    less = f" or use a coarser one (--rule ci:{coarser * 100:g}%)" if coarser else ""
    if not (asked and known):
        less = " or choose a coarser --rule"
    if "sonde survey" in str(summary.attrs.get("command", "")):  # it has no --rule
        less = ""
    if worst == "capped":
        return f"allow more samples per cell (--cap){less}"
    # An interval narrows with the root of the spent time.
    longer = _budget(summary) * (known / asked) ** 2 if asked and known else 0.0
    time = next((t for t in TIMES_S if t >= longer), None) if longer else None
    return f"measure longer (--budget{f' {_round_time(time)}' if time else ''}){less}"


def _asked(summary: xr.Dataset) -> float:
    """The precision of a ci rule; 0 for every other rule."""
    found = re.match(r"ci:([\d.]+)%", str(summary.attrs.get("rule", "")))
    return float(found[1]) / 100 if found else 0.0


def _known_to(summary: xr.Dataset) -> float:
    """The precision that three quarters of the medians have; 0 without intervals."""
    if not {"median", "median_low", "median_high"} <= set(summary.variables):
        return 0.0
    half = ((summary["median_high"] - summary["median_low"]) / (2 * summary["median"])).values
    half = half[np.isfinite(half)]
    return float(np.quantile(half, 0.75)) if half.size else 0.0


def _budget(summary: xr.Dataset) -> float:
    """The --budget of the run's command, s; 0 without one."""
    found = re.search(r"--budget[ =](\S+)", str(summary.attrs.get("command", "")))
    try:
        return parse_duration(found[1]) if found else 0.0
    except UsageError:
        return 0.0


def _round_time(time_s: float) -> str:
    return f"{time_s:.0f}s" if time_s < 60 else f"{time_s / 60:.0f}min" if time_s < 3600 else "1h"


def findings(summary: xr.Dataset, dataset: str = "FILE") -> list[Finding]:
    """Slow links, ranks and hosts, worst first; none if ranks shared cores, because sharing itself slows pairs."""
    out: list[Finding] = []
    if oversubscribed(summary):
        return out
    for k in range(summary.sizes.get("link", 0)):
        row = {name: summary[f"link_{name}"].values[k] for name in LINK if f"link_{name}" in summary}
        directed = summary.attrs.get("value") != "rtt_half"
        out.append(_slow(row, summary.sizes["src"], directed, dataset))
    return out


LINK = (
    "subject",
    "src",
    "dst",
    "host",
    "size_low",
    "size_high",
    "ratio",
    "ratio_low",
    "ratio_high",
    "expected",
    "p",
    "q",
    "slow",
    "of",
)
"""Columns of the table of slow links, ranks and hosts; files from before December 2026 lack the last two."""


def _slow(row: dict[str, Any], ranks: int, directed: bool, dataset: str) -> Finding:
    subject = str(row["subject"])
    src, dst = int(row["src"]), int(row["dst"])
    evidence: dict[str, Any] = {
        "ratio": float(row["ratio"]),
        "ci": [float(row["ratio_low"]), float(row["ratio_high"])],
        "p": float(row["p"]),
        "q": float(row["q"]),
    }
    sizes = sorted({int(row[name]) for name in ("size_low", "size_high")} - {-1})
    at = f" at {sizes_text(sizes)}" if sizes else ""
    slower = f"{row['ratio'] - 1:.0%} slower than"
    if subject == "link":
        name = f"{src}{'→' if directed else '–'}{dst}"
        evidence |= {"src": src, "dst": dst, "sizes": [int(row["size_low"]), int(row["size_high"])]}
        return Finding(
            "net.slow_link",
            f"link {name} is {slower} its class and ranks explain{at}",
            evidence,
            typed("sonde", "net", "show", dataset, "--pair", f"{src},{dst}"),
        )
    links, of = int(row.get("slow", 0)), int(row.get("of", 0))
    some = f"{links} of {of}" if links < of else "all"
    evidence |= {"sizes": sizes, "links": links, "of": of} if of else {}
    if subject == "host":
        evidence |= {"host": str(row["host"])}
        text = f"{some} links of host {row['host']} are {slower} those of other hosts{at}"
        return Finding(
            "net.slow_host", text, evidence, typed("sonde", "net", "run", "--hosts", f"^{row['host']}")
        )
    evidence |= {"rank": src, "host": str(row["host"])}
    where = f" on {row['host']}" if str(row["host"]) else ""
    text = f"{some} links of rank {src}{where} are {slower} those of other ranks{at}"
    look = typed("sonde", "net", "show", dataset, "--pair", f"{src},{(src + 1) % ranks}")
    return Finding("net.slow_rank", text, evidence, look)


def oversubscribed(summary: xr.Dataset) -> bool:
    """Whether more ranks than cores ran, in a way that slows pairs. If a pair has the machine for itself, ranks of
    nodes that share a kernel only wait, and yield their cores.
    """

    def holds(name: str) -> bool:
        return str(summary.attrs.get(name, 0)).lower() not in ("0", "false", "")

    mode = modes().get(str(summary.attrs.get("mode", "one_to_one")))
    alone = mode is not None and mode.pattern == "pairs"
    return holds("oversubscribed") or (holds("crowded_kernel") and not alone)


def warnings(summary: xr.Dataset) -> list[Warning]:
    """Warnings for a reader of this summary, the most important first."""
    out: list[Warning] = []
    slow = summary.sizes.get("link", 0)
    if slow and oversubscribed(summary):
        out.append(
            Warning(
                "net.slow_or_shared",
                f"{slow} links or ranks look slow, but ranks share cores: a pair that shares one is slow "
                "by that",
                "run with no more ranks than cores to test links",
            )
        )
    out += _clocks(summary)
    fitted, measured = (int(summary.attrs.get(f"{name}_cells", 0)) for name in ("fitted", "measured"))
    if fitted < measured:
        out.append(
            Warning(
                "net.sampled_cells",
                f"laws, cycles and periodic outliers were analysed in {fitted} of {measured} cells",
                "these are the shown pairs and random others; medians cover all cells",
            )
        )
    for name, what in (("cyclic", "cycles in their delays"), ("outlier", "outliers at regular times")):
        found = _discoveries(summary, f"{name}_p")
        if found is not None and found.any():
            looked = int(np.isfinite(summary[f"{name}_p"].values).sum())
            text, period_s = _usual_period(summary, name, found)
            first = rhythms(summary)[RHYTHMS[name]][0]
            clearest = f"{first['src']}→{first['dst']} at {format_size(first['size'], exact=True)}"
            out.append(
                Warning(
                    f"net.{name}",
                    f"{int(found.sum())} of {looked} analysed cells show {what}, {text}; the clearest is "
                    f"{clearest}, every {_period(first)}",
                    FAST_HINT if period_s < FAST_S else SLOW_HINT,
                )
            )
    out += _events(summary)
    note = str(summary.attrs.get("slow_links_note", ""))
    if note:
        out.append(Warning("net.slow_links_limited", f"slow links: {note}", ""))
    return out


def _clocks(summary: xr.Dataset) -> list[Warning]:
    """One-way delays are only as good as the clocks of both ends."""
    if summary.attrs.get("value") != "one_way":
        return []
    known = summary["clock_error"].values.astype(float) if "clock_error" in summary else np.array([np.nan])
    if not np.isfinite(known).any():
        text = "one-way delays with unknown errors of the ranks' clocks"
        return [
            Warning("net.unknown_clocks", f"{text}: a direction may look slower because of them", ROUND_TRIPS)
        ]
    error = float(np.nanmax(np.abs(known)))
    delays = centre(summary)
    delay = float(np.nanmedian(delays)) if np.isfinite(delays).any() else np.nan
    if not 2 * error >= CLOCKS_MATTER * delay:
        return []
    return [
        Warning(
            "net.clock_error",
            f"one-way delays: each clock is known to ±{format_duration(error)}, and the median delay is "
            f"{format_duration(delay)}: classes and slow links use the mean of both directions, and their "
            "difference only if clocks cannot explain it",
            ROUND_TRIPS,
        )
    ]


def _events(summary: xr.Dataset) -> list[Warning]:
    """One warning about all moments at which the machine changed: their number, the largest, up to three.

    /summary contains all of them.
    """
    count = summary.sizes.get("event", 0)
    if not count:
        return []
    t, ratio, share = (summary[f"event_{name}"].values.astype(float) for name in ("t", "ratio", "share"))
    order = sorted(range(count), key=lambda k: -abs(np.log(ratio[k])))

    def description(k: int) -> str:
        return f"from {format_duration(t[k])} on delays are {ratio[k]:.2f} times what they were"

    first = order[0]
    if count == 1:
        text = f"{description(first)}, in {share[first]:.0%} of cells at once"
    else:
        others = [f"{ratio[k]:.2f} times from {format_duration(t[k])} on" for k in order[1:3]]
        text = f"delays of most cells changed together {count} times; the largest: {description(first)}, in "
        text += f"{share[first]:.0%} of cells; {'then' if count <= 3 else 'next'}: {', '.join(others)}"
    return [
        Warning("net.machine_event", text, "medians mix these states; measure again when the machine is idle")
    ]


RHYTHMS = {"cyclic": "cycles", "outlier": "periodic_outliers"}
"""Findings in single delays: the key of --json by the name of their variables."""


def rhythms(summary: xr.Dataset) -> dict[str, list[dict[str, Any]]]:
    """Cycles of delays and outliers at regular times, the clearest first, by the keys of RHYTHMS.

    Each has src, dst, size (B), p; period_s, or period_samples if samples have no times (else None); for outliers also
    share, of the samples.
    """
    out: dict[str, list[dict[str, Any]]] = {}
    for name, key in RHYTHMS.items():
        found = _discoveries(summary, f"{name}_p")
        spots = [] if found is None else [tuple(map(int, spot)) for spot in np.argwhere(found)]

        def at(variable: str, spot: tuple[int, ...]) -> float | None:
            value = float(summary[variable].values[spot]) if variable in summary else np.nan
            return value if np.isfinite(value) else None

        out[key] = [
            {
                "src": spot[0],
                "dst": spot[1],
                "size": int(summary["size"].values[spot[2]]),
                "period_s": at(f"{name}_period", spot),
                "period_samples": at(f"{name}_samples", spot),
                "p": at(f"{name}_p", spot),
                **({"share": at("outlier_share", spot)} if name == "outlier" else {}),
            }
            for spot in sorted(spots, key=lambda spot: float(summary[f"{name}_p"].values[spot]))
        ]
    return out


def _period(row: dict[str, Any]) -> str:
    if row["period_s"] is not None:
        return format_duration(row["period_s"])
    return "– samples" if row["period_samples"] is None else f"{row['period_samples']:.3g} samples"


def jump_rows(summary: xr.Dataset) -> list[dict[str, Any]]:
    """Message lengths at which delays change course, those of whole classes first.

    Each has src and dst, None for a whole class; link_class, None for a pair; size_low and size_high (B), the lengths
    around it; height_s; ratio; share of the class's pairs that show it; p.
    """
    if not summary.sizes.get("jump", 0):
        return []
    column = {name: summary[f"jump_{name}"].values for name in JUMP_COLUMNS if f"jump_{name}" in summary}

    def number(name: str, k: int) -> float | None:
        value = float(column[name][k]) if name in column else np.nan
        return value if np.isfinite(value) else None

    def index(name: str, k: int) -> int | None:
        value = int(column[name][k]) if name in column else -1
        return value if value >= 0 else None

    rows = [
        {
            **{name: index(name, k) for name in ("src", "dst")},
            "link_class": index("class", k),
            **{name: index(name, k) for name in ("size_low", "size_high")},
            "height_s": number("height", k),
            **{name: number(name, k) for name in ("ratio", "share", "p")},
        }
        for k in range(summary.sizes["jump"])
    ]
    return sorted(rows, key=lambda row: row["src"] is not None)


JUMP_COLUMNS = ("src", "dst", "class", "size_low", "size_high", "height", "ratio", "share", "p")
RHYTHM_TITLE = "Cycles, periodic outliers and jumps"
MAX_RHYTHM_ROWS = 5  # per kind, on a terminal


def rhythm_table(summary: xr.Dataset) -> Table | None:
    """Cycles, outliers at regular times and jumps, with pair and length; None if there are none of these."""
    rows: list[tuple[str, ...]] = []
    more: list[str] = []

    def add(what: str, found: Sequence[tuple[str, ...]]) -> None:
        rows.extend((what, *row) for row in found[:MAX_RHYTHM_ROWS])
        if len(found) > MAX_RHYTHM_ROWS:
            more.append(f"{len(found) - MAX_RHYTHM_ROWS} of {what}")

    for what, key in (("cycle", "cycles"), ("periodic outliers", "periodic_outliers")):
        found = []
        for row in rhythms(summary)[key]:
            share = f", {format_share(row['share'])} of samples" if row.get("share") is not None else ""
            size = format_size(row["size"], exact=True)
            found.append((f"{row['src']}→{row['dst']}", size, f"every {_period(row)}{share}"))
        add(what, found)
    jumps = []
    for row in jump_rows(summary):
        pair = f"{row['src']}→{row['dst']}" if row["src"] is not None else "all"
        if row["src"] is None and summary.sizes.get("link_class", 1) > 1 and row["link_class"] is not None:
            pair = f"class {row['link_class']}"
        height, ratio = row["height_s"], row["ratio"]
        text = "" if height is None else f"{'+' if height >= 0 else '−'}{format_duration(abs(height))}"
        text += "" if ratio is None else f", {ratio:.3g} times"
        text += "" if row["share"] is None else f", {format_share(row['share'])} of pairs"
        low, high = (format_size(row[name] or 0, exact=True) for name in ("size_low", "size_high"))
        jumps.append((pair, f"{low} to {high}", text))
    add("jump", jumps)
    if not rows:
        return None
    note = f"and {', '.join(more)} more: --json has them all" if more else ""
    return Table(RHYTHM_TITLE, ("what", "pair", "size", "how"), rows, (), note)


def _usual_period(summary: xr.Dataset, name: str, found: np.ndarray) -> tuple[str, float]:
    """ "typically every 1.25 s" and the period in s; in samples if there are no times, and then NaN s."""
    for unit in ("period", "samples"):
        if f"{name}_{unit}" in summary:
            period = summary[f"{name}_{unit}"].values[found]
            period = period[np.isfinite(period)]
            if period.size:
                usual = float(np.median(period))
                if unit == "period":
                    return f"typically every {format_duration(usual)}", usual
                return f"typically every {usual:.3g} samples", float("nan")
    return "without a common period", float("nan")


def _discoveries(summary: xr.Dataset, name: str) -> np.ndarray | None:
    """Cells whose p stays below 1 % after false-discovery control, as a mask over the cells tested."""
    if name not in summary:
        return None
    p = summary[name].values
    found = np.zeros(p.shape, bool)
    tested = np.isfinite(p)
    if tested.any():
        found[tested] = false_discovery_control(p[tested], method="bh") <= 0.01
    return found


def tables(summary: xr.Dataset) -> list[Table]:
    """Tables for the terminal: delays by size, and link classes if there are several."""
    out = [_by_size(summary)]
    if summary.sizes.get("link_class", 0) > 1:
        out.append(_by_class(summary))
    if (found := rhythm_table(summary)) is not None:
        out.append(found)
    return out


def _by_size(summary: xr.Dataset) -> Table:
    cells = centre(summary)
    rows = []
    size = summary["size"].values
    chosen = np.unique(np.linspace(0, len(size) - 1, min(MOST_ROWS, len(size))).round().astype(int))
    for k in chosen:
        v = cells[..., k][np.isfinite(cells[..., k])]
        if not v.size:
            rows.append([format_size(int(size[k]), exact=True), "—", "—", "—", "—", "0"])
            continue
        half = _half_width(summary, k)
        rows.append(
            [
                format_size(int(size[k]), exact=True),
                format_duration(float(v.min())),
                format_duration(float(np.median(v))),
                format_duration(float(v.max())),
                "—" if np.isnan(half) else f"±{half:.1%}",
                str(v.size),
            ]
        )
    note = f"{len(chosen)} of {len(size)} sizes" if len(chosen) < len(size) else ""
    columns = ["size", "fastest", "median", "slowest", "known to", "cells"]
    return Table("Median delay by message size", columns, rows, tuple(range(6)), note)


def _half_width(summary: xr.Dataset, k: int) -> float:
    """Median over cells of half the relative width of the 95 % interval."""
    if "median_low" not in summary:
        return float("nan")
    one = summary.isel(size=k)
    width = ((one["median_high"] - one["median_low"]) / (2 * one["median"])).values
    width = width[np.isfinite(width)]
    return float(np.median(width)) if width.size else float("nan")


def _by_class(summary: xr.Dataset) -> Table:
    rows = []
    size = summary["size"].values
    ends = sorted({0, len(size) - 1})
    for row in class_rows(summary):
        medians = [format_duration(row["median_s"][str(int(size[k]))]) for k in ends]
        rows.append([str(row["class"]), str(row["links"]), *medians, f"{row['spread']:.1%}", row["topology"]])
    names = [f"at {format_size(int(size[k]), exact=True)}" for k in ends]
    columns = ["class", "links", *names, "spread", "mostly"]
    return Table("Classes of links", columns, rows, tuple(range(len(columns) - 1)))


def _interval(low: float, high: float) -> str:
    """ "2.03–2.04 µs", or "960 ns–1.04 µs": short, so that the table fits 80 columns."""
    if not np.isfinite([low, high]).all():
        return "–"
    (a, _, unit), b = format_duration(low).rpartition(" "), format_duration(high)
    return f"{a}–{b}" if b.partition(" ")[2] == unit and " " not in a else f"{format_duration(low)}–{b}"


def pair_table(summary: xr.Dataset, src: int, dst: int) -> Table:
    """One pair at every size: median with its interval, quantiles, samples, and its expected value.

    Raises
    ------
    UsageError  net.bad_pair: there are no such ranks.
    """
    ranks = summary.sizes["src"]
    if not (0 <= src < ranks and 0 <= dst < ranks):
        raise UsageError(
            "net.bad_pair",
            f"pair {src},{dst}: the ranks are 0 to {ranks - 1}",
            "give a pair as 0,1",
        )
    rows = []
    for k, size in enumerate(summary["size"].values):
        cell = {
            str(name): float(value.isel(src=src, dst=dst, size=k))
            for name, value in summary.data_vars.items()
            if value.dims == ("src", "dst", "size") and value.dtype.kind in "if"
        }
        middle = cell.get("median", cell.get("mean", float("nan")))
        if not np.isfinite(middle):
            continue
        low, high = cell.get("median_low", float("nan")), cell.get("median_high", float("nan"))
        rows.append(
            (
                format_size(int(size), exact=True),
                format_duration(middle),
                _interval(low, high),
                *(format_duration(cell[q]) if q in cell else "–" for q in ("min", "q95", "q99")),
                f"{cell['n']:.0f}" if "n" in cell else "–",
                f"{cell['ratio']:.2f}" if np.isfinite(cell.get("ratio", float("nan"))) else "–",
            )
        )
    host = summary["host"].values if "host" in summary else None
    where = f" ({host[src]} to {host[dst]})" if host is not None and (host[src] or host[dst]) else ""
    head = ("size", "median", "95 % interval", "min", "95 %", "99 %", "n", "ratio")
    note = "ratio: median over the value expected from class and ranks"
    return Table(f"{src}→{dst}{where}", head, rows, right=(0, 1, 2, 3, 4, 5, 6, 7), note=note)

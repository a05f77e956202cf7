"""The figures of one dataset of the bus, and its section of a report. Specifications only: it draws nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import xarray as xr

from sonde.bus import first, lessons, model, tables, verdict
from sonde.bus.cases import EACH
from sonde.bus.figure_data import (
    MEDIANS,
    QUANTITY,
    SERIES_POINTS,
    WORDS,
    bars_of,
    by_quantity,
    lines_over,
    median_and_ends,
    paragraphs,
    ratio_matrix,
    raw_keys,
    scatter,
)
from sonde.bus.growth import SOURCE_SQUARE, power_law
from sonde.bus.texts import capitalised, text_of
from sonde.bus.values import Value, Values, between
from sonde.core.dataset import summary_of
from sonde.core.errors import DataError
from sonde.core.figure import Axis, Figure, Kind, Slider
from sonde.core.outcome import Table
from sonde.core.section import MEDIAN, Fact, Method, Section
from sonde.core.status import status_counts
from sonde.core.units import format_duration, format_size

# The subject of each lesson.
LESSONS = {
    "latency": "round trip",
    "above_raw": "relative to raw",
    "keys": "keys",
    "fanout_publish": "subscribers",
    "fanout_last": "subscribers",
    "discovery_growth": "discovery",
    "discovery_kinds": "discovery",
    "discovery_unmatched": "discovery",
    "divisions": "dividing a bus",
    "message_rate": "throughput",
    "byte_rate": "throughput",
    "loss": "loss",
    "first_message": "first messages",
    "calls": "requests",
}


def section(tree: xr.DataTree, dataset: str = "FILE") -> Section:
    """One dataset's part of a report.

    Parameters
    ----------
    tree : group /summary; opened lazily
    dataset : the file's name, for the suggested commands

    Returns
    -------
    Section. Figures without data are left out.

    Raises
    ------
    DataError  core.no_summary.
    """
    summary = summary_of(tree, "bus", dataset)
    results = Values(summary)
    shown = [tables.variant_table(summary)]
    if found := lessons.lessons(results):
        lines: list[tuple[str, str]] = []
        about = ""
        for lesson in lessons.merged_lessons(found):
            before, about = about, LESSONS[str(lesson["code"]).removeprefix("bus.")]
            text = capitalised(f"{lesson['text']}.")
            lines.append(("" if about == before else about, text))
        shown.append(Table("Lessons", ("subject", "result"), lines))
    advice = advice_table(results, between(tree.attrs))
    runs = {"asked": verdict.test_titles(results)}
    if hosts := between(tree.attrs):
        runs["measured between"] = f"{hosts} ({tree.attrs.get('host_addresses', 'addresses unknown')})"
    return Section(
        "bus",
        "Data-distribution bus",
        verdict.sentence(summary, dataset, between(tree.attrs)),
        tables=shown + ([advice] if advice else []),
        numbers=tables.tables(summary, intervals=True),
        figures=list(figures(summary)),
        facts=facts(results),
        method=list(METHODS),
        warnings=verdict.warnings(summary),
        runs=runs,
        doubt=verdict.doubt(summary),
    )


METHODS = (
    MEDIAN,
    Method(
        "Comparison of variants",
        "Every epoch measures all variants of a case, in random order. Ratios are paired by epoch; the estimate is the "
        "Hodges-Lehmann shift of their logarithms, with the signed-rank interval.",
        "Hollander & Wolfe, Nonparametric Statistical Methods, 1999, 3.3",
    ),
    Method(
        "Laws of growth",
        "A power law is fitted to one median for each number of participants, by least squares of the logarithms. Its "
        "interval comes from the distance of the medians from the law. Akaike's criterion compares it with an "
        "exponential.",
        "Akaike, IEEE Transactions on Automatic Control 19, 1974",
    ),
    Method(
        "Why a first message is slow",
        "The slow message, a steady message, and the slow message with one suspected cause removed are measured in the "
        "same epochs. The part of a cause is the share of the difference that its removal takes away, with the "
        "signed-rank interval.",
    ),
    Method(
        "Raw transports",
        "Bare UDP and TCP sockets, and shared memory with a futex, move the bytes of each case between two programs "
        "in the same run. Waiting threads sleep, as in the bus.",
    ),
)


def facts(results: Values) -> list[Fact]:
    """The most important numbers."""
    out = []
    for test in results.tests[:3]:
        cells = [value for value in results.find(test) if not value.way.raw]
        if cells:
            value = cells[0]
            ends = "no interval"
            low, high = value.ends
            if math.isfinite(low):
                ends = f"{text_of(low, value.unit)} to {text_of(high, value.unit)}"
            name = f"{value.case.title}, {value.way.name}"
            out.append(Fact(name, text_of(value.median, value.unit), ends))
    counted = status_counts(results.statuses())
    out.append(Fact("converged", f"{counted['converged']} of {counted['cells']}", "cells"))
    return out


def advice_table(results: Values, hosts: str = "") -> Table | None:
    """The recommendations at the corners of the measured range; None without any."""
    sizes = sorted({value.case.size for value in results.find("latency")})
    subscribers = sorted({value.case.subscribers for value in results.find("fanout")}) or [1]
    entities = sorted({value.case.entities for value in results.find("discovery")}) or [1]
    if not sizes:
        return None
    lines = []
    for local in (True, False):
        for many in dict.fromkeys((subscribers[0], subscribers[-1])):
            for size in dict.fromkeys((sizes[0], sizes[-1])):
                need = model.Need(entities[-1], many, size, local)
                try:
                    best = model.advise(results, need, hosts)[0]
                except DataError:
                    continue
                discovery = best.discovery.kind or "–" if best.discovery else "–"
                name = "too few numbers" if best.too_few else best.way.name
                latency = format_duration(best.latency_s) if math.isfinite(best.latency_s) else "–"
                where = "one host" if local else "several"
                lines.append((where, str(many), format_size(size, exact=True), name, latency, discovery))
    if not lines:
        return None
    head = ("where", "subscribers", "size", "best", "until the last receives it", "discovery")
    note = f"Discovery of {entities[-1]} participants. For other numbers: sonde bus advise."
    if hosts:
        note += f"\nMeasured between {hosts}, not within one host."
    else:
        note += "\nMeasured within one host: between hosts a network adds its own delay."
    return Table("Recommended variants", head, lines, (1, 2, 4), note)


def figures(summary: xr.Dataset) -> tuple[Figure, ...]:
    """All figures for which the summary has data, in reading order."""
    results = Values(summary)
    candidates = (
        latency_by_size(results),
        latency_distribution(results, summary),
        above_raw(results),
        keys(results),
        cycles(results),
        fanout(results),
        early(results, summary),
        discovery_growth(results),
        discovery_bytes(results),
        discovery_time(results),
        discovery_cycles(results),
        divisions(results, "s"),
        divisions(results, "1"),
        throughput(results),
        throughput_by_subscribers(results, ("message_rate", "publish_rate"), "/s"),
        throughput_by_subscribers(results, ("byte_rate",), "B/s"),
        loss(results),
        first_message(results),
        first_parts(results),
        calls(results),
    )
    return tuple(figure for figure in candidates if figure is not None)


def latency_by_size(results: Values) -> Figure | None:
    """Round trip, publish and one way over the size of a sample; with a single size, by variant."""
    groups = by_quantity(results, "latency", ("rtt", "one_way", "publish"))
    sizes = {value.case.size for values in groups.values() for value in values}
    if len(sizes) == 1:
        size = format_size(sizes.pop(), exact=True)
        cells = {
            name: {(v.way.name, size): median_and_ends(v) for v in values} for name, values in groups.items()
        }
        return Figure(
            "bus-size",
            f"Latency of {size}",
            paragraphs(
                results, f"{MEDIANS}. Bare sockets and shared memory show the limit.", "latency", "above_raw"
            ),
            Kind.BAR,
            bars_of(cells),
            {"bar": Axis("Variant"), "y": Axis("time", "s", log=True)},
            (Slider("position", QUANTITY),),
        )
    data = lines_over(groups, lambda case: case.size, lambda value: value.way.name, QUANTITY)
    caption = f"{MEDIANS}. The pale lines are bare sockets and shared memory: they show the limit."
    return scatter(
        "bus-size",
        "Latency by size",
        paragraphs(results, caption, "latency", "above_raw"),
        data,
        Axis("size of a sample", "B", log=True),
        Axis("time", "s", log=True),
        QUANTITY,
    )


def latency_distribution(results: Values, summary: xr.Dataset) -> Figure | None:
    """Distribution of the times of each case, one curve for each variant."""
    found = [value for test in ("latency", "calls", "first-message") for value in results.find(test)]
    if not found or "quantile" not in summary:
        return None
    ways = [way for way in results.ways if any(value.way == way for value in found)]
    cases = [case for case in results.cases if any(value.case == case for value in found)]
    share = summary["share"].values
    x = np.full((len(ways), len(share), len(cases)), np.nan)
    for value in found:
        x[ways.index(value.way), :, cases.index(value.case)] = summary["quantile"].values[value.row]
    data = xr.Dataset(
        {
            "x": ((*SERIES_POINTS, "position"), x, {"units": "s", "long_name": "time"}),
            "p": (SERIES_POINTS, np.tile(share, (len(ways), 1))),
            "style": ("series", ["steps"] * len(ways)),
            "hue": ("series", np.arange(len(ways))),
            **raw_keys(ways),
        },
        coords={"series": [way.name for way in ways], "position": [case.title for case in cases]},
    )
    return Figure(
        "bus-latency",
        "Distribution of round trips",
        "Times of one message there and back. A step to the right in all variants comes from the machine; a step in a "
        "single variant comes from this variant.",
        Kind.CDF,
        data,
        {"x": Axis("round trip", "s", log=True), "p": Axis("share of messages")},
        (Slider("position", "case"),),
    )


def above_raw(results: Values) -> Figure | None:
    """Ratio of the latency to that of the raw transport of the same kind."""
    ratios = {
        (value.case.size, value.way.name): value.ratio_to_raw
        for value in results.find("latency")
        if math.isfinite(value.ratio_to_raw[0])
    }
    return ratio_matrix(
        "bus-above-raw",
        "Round trip relative to a bare socket or shared memory",
        "1 is as fast as the raw transport of the same kind, in the same epochs of the same run.",
        ratios,
        "ratio to raw",
    )


def keys(results: Values) -> Figure | None:
    """Ratio of a round trip with keys to one without."""
    ratios = {
        (value.case.size, value.way.name): value.ratio
        for value in results.keyed()
        if value.case.test == "latency"
    }
    caption = "DDS Security relative to the same variant without it, in the same epochs of the same run."
    return ratio_matrix(
        "bus-keys",
        "Cost of keys for a round trip",
        paragraphs(results, caption, "keys"),
        ratios,
        "ratio to the same without keys",
    )


def cycles(results: Values) -> Figure | None:
    """Cycles and instructions of a publish, by variant."""
    cells: dict[str, dict[tuple[str, str], tuple[float, float, float]]] = {}
    for test in ("latency", "fanout"):
        for quantity in ("cycles", "instructions"):
            for value in results.find(test, quantity):
                cells.setdefault(value.case.title, {})[value.way.name, quantity] = median_and_ends(value)
    if not cells:
        return None
    counted = any(name == "instructions" for group in cells.values() for _, name in group)
    caption = "Ticks of the processor's time-stamp counter during the call of write()"
    caption += ", and instructions of the thread" if counted else ""
    caption += ", with 95 % intervals if there are at least six epochs."
    caption += "" if counted else " Instructions were not counted on this machine."
    return Figure(
        "bus-cycles",
        "Cycles of a publish",
        caption,
        Kind.BAR,
        bars_of(cells),
        {"bar": Axis("Variant"), "y": Axis("cycles, instructions")},
        (Slider("position", "case"),),
    )


def fanout(results: Values) -> Figure | None:
    """Publish and reception over the number of subscribers."""
    groups = {}
    for size in sorted({value.case.size for value in results.find("fanout", "publish")}):
        for name, values in by_quantity(
            results, "fanout", ("last", "one_way", "first", "publish"), size=size
        ).items():
            groups[f"{name}, {format_size(size, exact=True)}"] = values
    data = lines_over(groups, lambda case: case.subscribers, lambda value: value.way.name, QUANTITY)
    caption = f"{MEDIANS}. A line that rises steadily has a cost for each subscriber; a flat line does not."
    return scatter(
        "bus-fanout",
        "Several subscribers",
        paragraphs(results, caption, "fanout_publish", "fanout_last"),
        data,
        Axis("subscribers"),
        Axis("time", "s", log=True),
        QUANTITY,
    )


def early(results: Values, summary: xr.Dataset) -> Figure | None:
    """The first messages of new programs, by their position."""
    found = [value for value in results.find("first-message", "early") if "early" in summary]
    if not found:
        return None
    ways = list(dict.fromkeys(value.way for value in found))
    cases = list(dict.fromkeys(value.case for value in found))
    places = summary.sizes["place"]
    y = np.full((len(ways), places, len(cases)), np.nan)
    for value in found:
        y[ways.index(value.way), :, cases.index(value.case)] = summary["early"].values[value.row]
    count = int(np.isfinite(y).any(axis=(0, 2)).sum())
    if count < 2:
        return None
    x = np.tile(np.arange(1, count + 1, dtype=float), (len(ways), 1))
    return Figure(
        "bus-early",
        "The first messages of a program",
        "Median round trip of the first, second, … message of new pairs of programs. Nothing was sent before the first "
        "message. Other figures show why it is slow.",
        Kind.SCATTER,
        xr.Dataset(
            {
                "x": (SERIES_POINTS, x),
                "y": ((*SERIES_POINTS, "position"), y[:, :count]),
                "style": ("series", ["line"] * len(ways)),
                "hue": ("series", np.arange(len(ways))),
                **raw_keys(ways),
            },
            coords={"series": [way.name for way in ways], "position": [case.title for case in cases]},
        ),
        {"x": Axis("number of the message"), "y": Axis("round trip", "s", log=True)},
        (Slider("position", "case"),),
    )


def _law_lines(
    results: Values, quantity: str, group: str
) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """The fitted law of each variant, as a line."""
    out = {}
    for way in results.ways:
        own = results.discovered(quantity, way)
        law = power_law([value.case.entities for value in own], [value.median for value in own])
        if law is None:
            continue
        x = np.geomspace(*law.numbers, 24)
        out[f"{way.name}: {lessons.law_text(law)}"] = {group: (x, law.factor * x**law.exponent)}
    return out


def discovery_growth(results: Values) -> Figure | None:
    """Datagrams until all participants match, with the fitted laws."""
    groups = by_quantity(results, "discovery", ("datagrams",))
    if not groups:
        return None
    more = _law_lines(results, "datagrams", WORDS["datagrams"])
    numbers = [value.case.entities for values in groups.values() for value in values]
    x = np.geomspace(min(numbers), max(numbers), 24)
    more[f"source: {SOURCE_SQUARE:g}·N²"] = {WORDS["datagrams"]: (x, SOURCE_SQUARE * x**2)}
    data = lines_over(groups, lambda case: case.entities, lambda value: value.way.name, QUANTITY, more)
    caption = (
        f"Participants: {lessons.SHAPES[results.shape]}. The kernel counts datagrams from the start of participants "
        "until all match. On these axes a power law is a straight line. The source shows only the quadratic growth of "
        "simple discovery."
    )
    return scatter(
        "bus-discovery",
        "Discovery: datagrams by participants",
        paragraphs(results, caption, "discovery_growth", "discovery_kinds"),
        data,
        Axis("participants", log=True),
        Axis("datagrams until all match", log=True),
        QUANTITY,
    )


def discovery_bytes(results: Values) -> Figure | None:
    """Bytes until all participants match."""
    groups = by_quantity(results, "discovery", ("wire_bytes",))
    data = lines_over(groups, lambda case: case.entities, lambda value: value.way.name, QUANTITY)
    return scatter(
        "bus-discovery-bytes",
        "Discovery: bytes by participants",
        "Bytes that the IP layer sent until all participants match, headers included.",
        data,
        Axis("participants", log=True),
        Axis("bytes until all match", "B", log=True),
        QUANTITY,
    )


def discovery_time(results: Values) -> Figure | None:
    """Time and processor time until all participants match."""
    groups = by_quantity(results, "discovery", ("time_to_match", "cpu"))
    data = lines_over(groups, lambda case: case.entities, lambda value: value.way.name, QUANTITY)
    begin = "All participants start" if results.shape == EACH else "The writer exists before the others start"
    return scatter(
        "bus-discovery-time",
        "Discovery: time by participants",
        f"{begin} at the same moment. Processor time is the sum over all programs.",
        data,
        Axis("participants", log=True),
        Axis("time", "s", log=True),
        QUANTITY,
    )


def discovery_cycles(results: Values) -> Figure | None:
    """Cycles and instructions to create a participant while others are created, too."""
    groups = by_quantity(results, "discovery", ("make_cycles", "make_instructions"))
    data = lines_over(groups, lambda case: case.entities, lambda value: value.way.name, QUANTITY)
    return scatter(
        "bus-discovery-cycles",
        "Discovery: cost to create a participant",
        "Cycles and instructions of the thread that creates a participant and its endpoints, while the others do, too.",
        data,
        Axis("participants", log=True),
        Axis("cycles, instructions", log=True),
        QUANTITY,
    )


def divisions(results: Values, unit: str) -> Figure | None:
    """Cost of a publish over the number of groups of a bus. unit: "s", or "1": cycles and instructions."""
    groups: dict[str, list[Value]] = {}
    for quantity in ("publish", "one_way", "rtt") if unit == "s" else ("cycles", "instructions"):
        for value in results.find("partitions", quantity):
            groups.setdefault(f"{value.way.name}: {WORDS[quantity]}", []).append(value)
    data = lines_over(groups, lambda case: case.entities, lambda value: value.case.treatment, "variant")
    return scatter(
        "bus-divisions" if unit == "s" else "bus-divisions-cycles",
        "Topics, partitions, wildcards, domains" + ("" if unit == "s" else ": cycles"),
        paragraphs(results, "A program has this number of groups and uses them in turn.", "divisions"),
        data,
        Axis("groups", log=True),
        Axis("time", "s") if unit == "s" else Axis("cycles, instructions"),
        "variant",
    )


def throughput(results: Values) -> Figure | None:
    """Received and lost messages, by variant."""
    cells: dict[str, dict[tuple[str, str], tuple[float, float, float]]] = {}
    for value in results.find("throughput"):
        group = cells.setdefault(value.case.title, {})
        group[value.way.name, "received"] = median_and_ends(value)
        lost = results.lost(value)
        if 0 <= lost < 1:
            lost_rate = value.median * lost / (1 - lost)
            group[value.way.name, "written and lost"] = (lost_rate, math.nan, math.nan)
    if not cells:
        return None
    return Figure(
        "bus-throughput",
        "Throughput, with loss",
        paragraphs(
            results,
            "Messages per second that a subscriber received, and those per second that were written for it and lost.",
            "message_rate",
            "byte_rate",
            "loss",
        ),
        Kind.BAR,
        bars_of(cells),
        {"bar": Axis("Variant"), "y": Axis("messages for one subscriber", "/s")},
        (Slider("position", "case"),),
    )


def throughput_by_subscribers(results: Values, quantities: Sequence[str], unit: str) -> Figure | None:
    """Rates over the number of subscribers. unit: "/s" for messages, "B/s" for bytes."""
    groups: dict[str, list[Value]] = {}
    for quantity in quantities:
        for value in results.find("throughput", quantity):
            size = format_size(value.case.size, exact=True)
            groups.setdefault(f"{WORDS[quantity]}, {size}, {value.case.treatment}", []).append(value)
    groups = {
        name: values
        for name, values in groups.items()
        if len({value.case.subscribers for value in values}) > 1
    }
    data = lines_over(groups, lambda case: case.subscribers, lambda value: value.way.name, QUANTITY)
    what = "bytes" if unit == "B/s" else "messages"
    return scatter(
        "bus-throughput-bytes" if unit == "B/s" else "bus-throughput-subscribers",
        f"Throughput by subscribers: {what}",
        "Rate of each subscriber. Where the line is flat, the total rate grows in proportion to their number.",
        data,
        Axis("subscribers"),
        Axis(what, unit, log=True),
        QUANTITY,
    )


def loss(results: Values) -> Figure | None:
    """The share of lost messages, for each case and variant."""
    found = (
        results.find("throughput", "lost") + results.find("fanout", "lost") + results.find("calls", "lost")
    )
    if not found:
        return None
    ways = list(dict.fromkeys(value.way.name for value in found))
    cases = list(dict.fromkeys(value.case.title for value in found))
    values = np.full((len(cases), len(ways)), np.nan)
    for value in found:
        values[cases.index(value.case.title), ways.index(value.way.name)] = value.mean
    return Figure(
        "bus-loss",
        "Lost messages",
        "Share of lost messages over all bursts. A rate is meaningful only together with its loss.",
        Kind.MATRIX,
        xr.Dataset(
            {"value": (("row", "col"), values, {"long_name": "share lost", "units": "1"})},
            coords={"row": cases, "col": ways},
        ),
        {"row": Axis("Case"), "col": Axis("Variant"), "value": Axis("share lost")},
    )


def first_message(results: Values) -> Figure | None:
    """The first message, a steady message, and the first message with causes removed."""
    cells: dict[str, dict[tuple[str, str], tuple[float, float, float]]] = {}
    for value in results.find("first-message"):
        group = f"{value.way.name}, {format_size(value.case.size, exact=True)}"
        cells.setdefault(group, {})[value.case.treatment, "round trip"] = median_and_ends(value)
    if not cells:
        return None
    return Figure(
        "bus-first",
        "The first message, and its treatments",
        paragraphs(results, f"{MEDIANS}. A steady message is one among others.", "first_message"),
        Kind.BAR,
        bars_of(cells),
        {"bar": Axis("Message"), "y": Axis("round trip", "s", log=True)},
        (Slider("position", "variant"),),
    )


def first_parts(results: Values) -> Figure | None:
    """The share of the extra cost of the first message that each treatment removes."""
    cells: dict[str, dict[tuple[str, str], tuple[float, float, float]]] = {}
    for found in first.breakdowns(results):
        group = f"{found.way.name}, {found.slow}"
        for part in found.parts:
            if math.isfinite(part.share):
                cells.setdefault(group, {})[part.removes, "share"] = (part.share, part.low, part.high)
    if not cells:
        return None
    return Figure(
        "bus-first-parts",
        "Why a first message is slow",
        "Share of the difference to a steady message that disappears with a cause, with 95 % intervals. The parts need "
        "not add up to one: a message can wait for two things at once.",
        Kind.BAR,
        bars_of(cells),
        {"bar": Axis("Cause"), "y": Axis("share of the difference")},
        (Slider("position", "message"),),
    )


def calls(results: Values) -> Figure | None:
    """Requests and replies over the number of clients."""
    groups = by_quantity(results, "calls", ("rtt",))
    data = lines_over(groups, lambda case: case.entities, lambda value: value.way.name, QUANTITY)
    return scatter(
        "bus-calls",
        "Requests and replies",
        paragraphs(
            results,
            "Calls of one server. Each client sends its next request when it has received the reply.",
            "calls",
        ),
        data,
        Axis("clients", log=True),
        Axis("request and reply", "s", log=True),
        QUANTITY,
    )

"""The figures of one trace, and its section of a report. Specifications only: nothing is drawn here.

All of it is read from /summary, so that a trace of ten million calls opens as fast as one of a thousand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from sonde.core.dataset import summary_of
from sonde.core.figure import Axis, Figure, Kind, Slider
from sonde.core.printable import one_line
from sonde.core.section import Fact, Method, Section
from sonde.core.units import format_duration, format_share, format_size
from sonde.io.maps.layers import DIRECTIONS
from sonde.io.trace import (
    ignored_paths,
    joined_requests,
    servers,
    tables,
    verdict,
    whatif,
    whatif_verdict,
    worlds,
)
from sonde.io.trace.findings import findings

if TYPE_CHECKING:
    from collections.abc import Sequence

NARROW = 0.005  # paths with a smaller share of the time of the path around them are drawn as one
FUNCTIONS = 6  # number of functions in the figure of durations: as many as there are colours for lines
FILES = 12  # shown at once; tables.NUMBERS of them in the tables behind the figures
SERVERS = 32
LEAST_OF_CLASS = np.array([0.0, *(2.0**k for k in range(servers.CLASSES - 1))])  # B
CHOICES = 64  # processes that can be chosen in a figure


def section(tree: xr.DataTree, dataset: str = "FILE") -> Section:
    """The section of a report about one trace, or about one study.

    Parameters
    ----------
    tree : group /summary; opened lazily
    dataset : the name of the file, for suggested commands

    Returns
    -------
    Section. Figures that the data cannot fill are left out.

    Raises
    ------
    DataError  core.no_summary.
    """
    summary = summary_of(tree, "io", dataset)
    layers, *_ = verdict.tables(summary)
    tried = whatif.read(summary)
    files, datasets = tables.file_rows(summary), tables.dataset_rows(summary)
    return Section(
        "io",
        f"I/O of {program(summary)}",
        f"{verdict.sentence(summary, verdict.elapsed(tree))}.",
        findings=findings(summary),
        tables=[
            layers,
            *joined_requests.tables(summary),
            *servers.tables(summary),
            *([tables.files_table(summary, files, FILES)] if files else []),
            *([tables.datasets_table(datasets, FILES)] if datasets else []),
            *([table] if tried and (table := whatif_verdict.table(tried)) else []),
        ],
        numbers=[
            tables.functions_table(summary),
            *([tables.files_table(summary, files, tables.NUMBERS)] if len(files) > FILES + 1 else []),
            *([tables.datasets_table(datasets, tables.NUMBERS)] if len(datasets) > FILES else []),
            *([tables.processes_table(summary)] if summary.sizes["process"] > 1 else []),
        ],
        figures=list(figures(summary)),
        facts=facts(summary),
        method=[*METHODS, *([SERVERS_METHOD] if "server_name" in summary else [])],
        runs={
            label: str(tree.attrs[key])
            for key, label in (("traced", "traced command"), ("status", "its exit status"))
            if tree.attrs.get(key) not in (None, "")
        },
        doubt="calls are missing" if summary["process_dropped"].values.any() else "",
        untold=("seed",),  # nothing is drawn
    )


METHODS = (
    Method(
        "Time, and own time",
        "The time of a call includes traced calls within it; its own time does not. Each moment of a "
        "thread belongs to the own time of one call only, so own times add up to the traced time. Times "
        "are summed over threads and ranks, and may exceed the time of the run.",
    ),
    Method(
        "Requests to a layer",
        "Reads and writes are counted where they enter a layer from above. Calls that a layer makes to "
        "itself are not counted again.",
    ),
    Method(
        "Paths of calls",
        "Nested calls of the same functions form one path. Paths are drawn as an icicle: calls within a "
        "call are below it, as wide as their time.",
        "Kruskal & Landwehr, The American Statistician 37, 1983, 162-168",
    ),
)
SERVERS_METHOD = Method(
    "Servers' counters",
    "The counters of a file system's servers are read before and after the run: operations, bytes, and the "
    "shortest, mean and longest duration of each. They count for all clients of the volume and contain no "
    "points in time, so they are shown separately from the trace and are in none of its sums.",
)


def program(summary: xr.Dataset) -> str:
    """The name of the traced program: among the ranks' programs, or among all if there are no ranks, the one with most
    I/O."""
    if not summary.sizes["process"]:
        return "nothing"
    ranks = summary["process_rank"].values >= 0
    whole, own = summary["traced_time"].values, tables.io_time(summary)
    order = np.lexsort(
        (whole, own, ranks)
    )  # a script that starts ranks, and what it runs first, also count as ranks
    return one_line(str(summary["process_program"].values[order[-1]]).rpartition("/")[2]) or "a program"


def members(summary: xr.Dataset) -> list[tuple[int, list[int]]]:
    """Processes that belong together: (rank, processes) for each rank, then (-1, [process]) for each other process.

    A rank may have run several programs: the script that starts it, and what that script calls, have its rank, too.
    """
    ranks, members_ = summary["process_rank"].values.tolist(), worlds.members(summary).tolist()
    of: dict[int, list[int]] = {}
    for k, member in enumerate(members_):
        if member >= 0:
            of.setdefault(member, []).append(k)
    grouped = [(ranks[mine[0]], mine) for _, mine in sorted(of.items())]
    return [*grouped, *((-1, [k]) for k, rank in enumerate(ranks) if rank < 0)]


def facts(summary: xr.Dataset) -> list[Fact]:
    """The few numbers that a reader looks for first."""
    out = []
    ours = verdict.beside(summary)
    total = verdict.traced_s(summary)
    calls = int(summary["calls"].values[:, ~ours[summary["function_layer"].values]].sum())
    each = f", {format_duration(total / calls)} each" if calls else ""
    out.append(Fact("time in traced calls", format_duration(total), f"{calls} calls{each}"))
    own = np.where(ours, 0.0, summary["layer_self_time"].values.sum(axis=0))
    for layer in np.argsort(-own, kind="stable")[:2].tolist():
        if own[layer] > 0:
            title = str(summary["layer_title"].values[layer])
            out.append(
                Fact(f"in {title} itself", format_share(own[layer] / total), format_duration(own[layer]))
            )
    for direction in (1, 0):
        moved = summary["request_bytes"].values[:, :, direction].sum(axis=0)
        requests = summary["requests"].values[:, :, direction].sum(axis=0)
        moving = np.flatnonzero((moved > 0) & ~ours)
        if moving.size:
            low = int(moving[-1])
            out.append(
                Fact(
                    f"{('read', 'written')[direction]} through {summary['layer_title'].values[low]}",
                    format_size(int(moved[low])),
                    f"{requests[low]} × {format_size(round(moved[low] / requests[low]))}",
                )
            )
    each_s = tables.io_time(summary)
    called = worlds.named(summary)
    ranks = [(called[mine[0]], float(each_s[mine].sum())) for rank, mine in members(summary) if rank >= 0]
    if len(ranks) > 1 and (mean := sum(time for _, time in ranks) / len(ranks)) > 0:
        slowest, most = max(ranks, key=lambda one: one[1])
        ratio = most / mean
        note = f"rank {slowest} spent most" if ratio >= 1.01 else "all ranks spent as much"
        out.append(Fact("traced time, largest over mean of ranks", f"{ratio:.2f}", note))
    return out


def figures(summary: xr.Dataset) -> tuple[Figure, ...]:
    """All figures that the summary has data for, in reading order."""
    ways = (paths, sizes, timeline, by_rank, durations, joined_requests.figure, on_servers)
    made = (way(summary) for way in ways)
    return tuple(figure for figure in made if figure is not None)


# ---- paths of calls ----


def paths(summary: xr.Dataset) -> Figure | None:
    """Paths of calls as an icicle, the application on top, in colours of layers; only of the program's I/O, if any."""
    function = summary["node_function"].values
    layer = summary["function_layer"].values[function]
    own, calls, moved = (summary[f"node_{name}"].values for name in ("self_time", "calls", "bytes"))
    shown = ~verdict.beside(summary)
    if not own[shown[layer]].any():
        shown[:] = True  # the program may have done nothing but start
    visible = shown[layer]
    # The width of a path is the sum of the own times shown at it and below: these add up to the headline's time.
    time = np.where(visible, own, 0.0)
    parent = summary["node_parent"].values.astype(np.int64)
    for node in range(len(parent) - 1, -1, -1):  # a path comes after the path around it
        if parent[node] >= 0:
            time[parent[node]] += time[node]
    total = float(time[parent < 0].sum())
    if total <= 0:
        return None
    hue = hues(summary)
    names = summary["function_name"].values
    above_of = parent.copy()
    within: dict[int, list[int]] = {}
    for node, above in enumerate(parent.tolist()):
        above_of[node] = above if above < 0 or visible[above] else above_of[above]
        if visible[node]:
            within.setdefault(int(above_of[node]), []).append(node)
    made = int(summary["calls"].values[:, shown[summary["function_layer"].values]].sum())
    root = ["all traced calls", -1, -1, total, np.nan, float(made), np.nan]
    nodes: list[list[object]] = [root]  # label, parent, hue, time, own, calls, bytes
    waiting = [(-1, 0)]  # a path, and its index in nodes
    while waiting:
        above, place = waiting.pop()
        inside = within.get(above, [])
        around = total if above < 0 else time[above]
        small = [node for node in inside if time[node] < NARROW * around]
        if len(small) == 1:
            small = []
        for node in inside:
            if node in small or time[node] <= 0:
                continue
            waiting.append((node, len(nodes)))
            amounts_of_node = (time[node], own[node], calls[node], moved[node] if moved[node] > 0 else np.nan)
            nodes.append([str(names[function[node]]), place, hue[layer[node]], *amounts_of_node])
        rest = float(time[small].sum())
        if rest > 0:
            amounts_of_node = (rest, np.nan, calls[small].sum(), np.nan)
            nodes.append([f"{len(small)} others", place, -1, *amounts_of_node])
    label, up, colour, *amounts = zip(*nodes)
    columns_of = {
        "own": ("in itself", "s"),
        "calls": ("calls", "1"),
        "bytes": ("bytes", "B"),
    }
    value, *others = (np.array(column, float) for column in amounts)
    data = xr.Dataset(
        {
            "label": ("node", list(label)),
            "parent": ("node", np.array(up, np.int64)),
            "hue": ("node", np.array(colour, np.int64)),
            "value": ("node", value),
            **{
                name: ("node", column, {"long_name": label_, "units": unit})
                for (name, (label_, unit)), column in zip(columns_of.items(), others)
            },
        }
    )
    return Figure(
        "io-paths",
        "Where the time went, call by call",
        "Read it downwards: a call is below the call that made it, and its width is its time. A part with "
        "nothing below it spent its time itself; wide parts of another colour below it are time in another "
        f"layer. Paths under {format_share(NARROW, trim=True)} of the one around them are drawn as one."
        + _left_out(summary, shown)
        + _unseen(summary),
        Kind.ICICLE,
        data,
        {"value": Axis("time", "s"), "hue": Axis("layer", labels=_titles_by_hue(summary))},
    )


def hues(summary: xr.Dataset) -> np.ndarray:
    """The colour of each layer, the same in all figures: called layers are numbered from the application down."""
    called = _called(summary)
    return np.where(called, np.cumsum(called) - 1, -1)


def _called(summary: xr.Dataset) -> np.ndarray:
    layer = summary["function_layer"].values.astype(np.int64)
    return np.bincount(layer, summary["calls"].values.sum(axis=0), minlength=summary.sizes["layer"]) > 0


def _titles_by_hue(summary: xr.Dataset) -> tuple[str, ...]:
    return tuple(str(title) for title in summary["layer_title"].values[_called(summary)])


def _left_out(summary: xr.Dataset, shown: np.ndarray) -> str:
    """A sentence about time outside the program's I/O. shown: the layers that are drawn nevertheless."""
    own = summary["layer_self_time"].values.sum(axis=0)
    texts = {
        ignored_paths.LAYER: "in start-up and system files",
        verdict.TRACER: "in the work of Sonde's tracer",
    }
    names = summary["layer_name"].values.astype(str).tolist()
    found = [
        f"{format_duration(own[k])} {text}"
        for name, text in texts.items()
        if name in names and own[k := names.index(name)] > 0
    ]
    if not found:
        return ""
    if shown.all():
        return f" All of it is outside the program's I/O, of which there is none: {' and '.join(found)}."
    return f" Left out, here as in all totals: {' and '.join(found)}."


def _unseen(summary: xr.Dataset) -> str:
    """A paragraph about layers with no visible function in the program."""
    none = (summary["layer_watched"].values == 0) & (summary["layer_name"].values != verdict.TRACER)
    unseen = [str(title) for title in summary["layer_title"].values[none]]
    return f"\nNot in this program, or hidden in it: {', '.join(unseen)}." if unseen else ""


# ---- sizes of requests ----


def sizes(summary: xr.Dataset) -> Figure | None:
    """Sizes of reads and writes as they enter each layer: how layers change the requests."""
    ours = ~verdict.beside(summary)[:, np.newaxis, np.newaxis]
    count, moved = (  # layer, direction, class
        np.where(ours, summary[name].values, 0) for name in ("request_sizes", "request_size_bytes")
    )
    titles, hue = [str(title) for title in summary["layer_title"].values], hues(summary)
    if "server_name" in summary:  # below all layers
        of_servers = summary["server_sizes"].values.sum(axis=0)
        # Servers count bytes in all, and requests by class; most requests have the smallest size of their class.
        about = of_servers * LEAST_OF_CLASS
        whole = summary["server_bytes"].values.sum(axis=0)
        about = about * (whole / np.maximum(about.sum(axis=1), 1.0))[:, np.newaxis]
        count = np.concatenate([count, of_servers[np.newaxis]])
        moved = np.concatenate([moved, about[np.newaxis]])
        titles.append("Servers, by their own counters")
        hue = np.append(hue, hue.max() + 1)
    layers = np.flatnonzero(count.any(axis=(1, 2)))
    directions = [d for d in (1, 0) if count[:, d].any()]
    if not layers.size:
        return None
    filled = np.flatnonzero(count.any(axis=(0, 1)))
    classes = np.arange(filled[0], filled[-1] + 1)
    ways = ("number", "bytes")
    shape = (len(layers), len(classes), len(directions), len(ways))
    y = np.zeros(shape)
    text, heading = np.full(shape, "", object), np.full((len(layers), len(directions), len(ways)), "", object)
    for k, layer in enumerate(layers.tolist()):
        for d, direction in enumerate(directions):
            verb = DIRECTIONS[direction]
            requests, all_bytes = int(count[layer, direction].sum()), round(moved[layer, direction].sum())
            if not requests:
                heading[k, d, :] = f"{titles[layer]}: no {verb}s"
                continue
            mean = format_size(round(all_bytes / requests))
            heading[k, d, :] = f"{titles[layer]}: {requests} × {mean}, {format_size(all_bytes)}"
            for w, values in enumerate((count[layer, direction], moved[layer, direction])):
                y[k, :, d, w] = 100 * values[classes] / max(1, values.sum())
            for c, size_class in enumerate(classes.tolist()):
                here = int(count[layer, direction, size_class])
                of = format_size(int(moved[layer, direction, size_class]))
                text[k, c, d, :] = f"{verdict.counted(here, verb)}, {of} in all"
    data = xr.Dataset(
        {
            "y": (("part", "x", "direction", "way"), y),
            "text": (("part", "x", "direction", "way"), text.astype(str)),
            "heading": (("part", "direction", "way"), heading.astype(str)),
            "hue": ("part", hue[layers]),
        },
        coords={
            "part": [titles[layer] for layer in layers],
            "x": [_class_name(k) for k in classes.tolist()],
            "direction": [f"{DIRECTIONS[d]}s" for d in directions],
            "way": list(ways),
        },
    )
    unsized = [
        titles[layer]
        for layer in np.flatnonzero(summary["requests"].values.any(axis=(0, 2)))
        if layer not in layers and ours[layer]
    ]
    more = f" The sizes of requests to {', '.join(unsized)} are unknown." if unsized else ""
    return Figure(
        "io-sizes",
        "How each layer changes the requests",
        "Sizes of requests where they enter a layer, the application's side on top; a bar holds sizes from "
        "its own up to twice that. If bars move left from one panel to the next, requests are split; if "
        "they move right, requests are merged. If the bytes of two layers differ, one of them reads or "
        "writes extra data, or caches some." + more,
        Kind.STACK,
        data,
        {"x": Axis("bytes of a request"), "y": Axis("share", "%")},
        (Slider("direction", "requests"), Slider("way", "share by")),
    )


def _class_name(size_class: int) -> str:
    return format_size(1 << (size_class - 1), exact=True) if size_class else "0 B"


# ---- over time and by rank ----


def timeline(summary: xr.Dataset) -> Figure | None:
    """Own time of each layer over the run, as the number of threads in it."""
    begin = summary["bin_begin"].values
    busy = summary["busy"].values  # process, layer, bin
    parts = [layer for layer in np.flatnonzero(busy.any(axis=(0, 2)))[::-1].tolist()]
    if begin.size < 2 or not parts:
        return None
    width = float(begin[1] - begin[0])
    chosen, names = _choice(summary)
    y = np.stack([busy.sum(axis=0), *(busy[mine].sum(axis=0) for mine in chosen)])
    data = xr.Dataset(
        {
            "y": (("part", "x", "process"), np.moveaxis(y[:, parts], 0, 2) / width),
            "hue": ("part", hues(summary)[parts]),
        },
        coords={
            "part": [str(summary["layer_title"].values[layer]) for layer in parts],
            "x": begin - begin[0],
            "process": [f"all {_whom(summary)}", *names],
        },
    )
    left_out = (
        f" You can choose the {CHOICES // 2} with the most and the {CHOICES // 2} with the least time in "
        "traced calls."
        if chosen and len(chosen) < len(members(summary))
        else ""
    )
    return Figure(
        "io-timeline",
        "Time in each layer over the run",
        "The number of threads in each layer itself over time; if the stack is lower than the number of "
        "threads, the others computed or waited untraced. A stretch in one colour is a phase of the "
        f"program; a layer that fills a whole phase limits that phase.{left_out}",
        Kind.STACK,
        data if chosen else data.isel(process=0),
        {"x": Axis("time since the first traced call", "s"), "y": Axis("threads in the layer")},
        (Slider("process", "process"),) if chosen else (),
    )


def _whom(summary: xr.Dataset) -> str:
    return "ranks" if (summary["process_rank"].values >= 0).all() else "processes"


def _choice(summary: xr.Dataset) -> tuple[list[list[int]], list[str]]:
    """Ranks and processes that can be chosen in a figure, with their names; empty if there is only one."""
    groups = [mine for _, mine in members(summary)]
    if len(groups) < 2:
        return [], []
    chosen = np.arange(len(groups))
    if len(groups) > CHOICES:
        order = np.argsort([summary["traced_time"].values[mine].sum() for mine in groups], kind="stable")
        chosen = np.sort(np.concatenate([order[: CHOICES // 2], order[-CHOICES // 2 :]]))
    shown = [groups[k] for k in chosen.tolist()]
    names = _names(summary, [mine[0] for mine in shown])
    return shown, [f"rank {name}" if name.replace(":", "").isdigit() else name for name in names]


def _names(summary: xr.Dataset, processes: Sequence[int] | np.ndarray) -> list[str]:
    """Unique names of processes: ranks by their numbers, others by their programs."""
    made: dict[str, None] = {}
    ranks = worlds.named(summary)
    for k in processes:
        name = ranks[k] or str(summary["process_program"].values[k]).rpartition("/")[2]
        if name in made:
            name = f"{name} {summary['process_pid'].values[k]}"
        if name in made:
            name = f"{name} on {summary['process_host'].values[k]}"
        while name in made:
            name += " again"
        made[name] = None
    return list(made)


def by_rank(summary: xr.Dataset) -> Figure | None:
    """Own time of each layer, one bar for each rank or process; only of the program's I/O."""
    groups, each_s = members(summary), tables.io_time(summary)
    ranks = any(rank >= 0 for rank, _ in groups)
    if ranks:  # the processes that start the ranks hardly have I/O of their own
        groups = [(rank, mine) for rank, mine in groups if rank >= 0 or each_s[mine].sum() > 0]
    of_layers = np.where(verdict.beside(summary), 0.0, summary["layer_self_time"].values)
    own = np.array([of_layers[mine].sum(axis=0) for _, mine in groups])
    parts = np.flatnonzero(own.any(axis=0))[::-1].tolist() if groups else []
    if len(groups) < 2 or not parts:
        return None
    data = xr.Dataset(
        {"y": (("part", "x"), own[:, parts].T), "hue": ("part", hues(summary)[parts])},
        coords={
            "part": [str(summary["layer_title"].values[layer]) for layer in parts],
            "x": _names(summary, [mine[0] for _, mine in groups]),
        },
    )
    reading = (
        "Bars of equal height mean evenly spread work. A rank that stands out in a low layer does the work "
        "of others, as aggregators of collective I/O do; the others then stand out in the layer in which "
        "they wait for it."
        if ranks
        else "Which process did the I/O, and in which layer: a bar with much of a low layer moves the "
        "bytes, one with much of a high layer prepares them or waits."
    )
    return Figure(
        "io-ranks",
        "Time in each layer, by rank" if ranks else "Time in each layer, by process",
        reading,
        Kind.STACK,
        data,
        {"x": Axis("rank" if ranks else "process"), "y": Axis("time in the layer itself", "s")},
    )


# ---- functions and files ----


def durations(summary: xr.Dataset) -> Figure | None:
    """The distribution of call durations, for the functions with the most own time."""
    counts = summary["durations"].values  # function, class
    ours = verdict.beside(summary)[summary["function_layer"].values]
    own = np.where(ours, -1.0, summary["self_time"].values.sum(axis=0))
    shown = [k for k in np.argsort(-own, kind="stable").tolist() if counts[k].sum() >= 2 and own[k] >= 0]
    shown = shown[:FUNCTIONS]
    if not shown:
        return None
    # Class k ends below 2^k ns; durations too short for the clock count as 1 ns. A curve goes from the begin of its
    # first class to the end of its last.
    ends = 2.0 ** np.arange(counts.shape[1]) * 1e-9
    share = np.cumsum(counts[shown], axis=1) / counts[shown].sum(axis=1, keepdims=True)
    first = np.maximum((share > 0).argmax(axis=1), 1)
    last = np.maximum((share >= 1).argmax(axis=1), first)
    k = np.arange(counts.shape[1])
    p = np.where(k < first[:, None], 0.0, share)
    p[(k < first[:, None] - 1) | (k > last[:, None])] = np.nan
    layer = summary["layer_name"].values[summary["function_layer"].values[shown]]
    names = [f"{summary['function_name'].values[k]} ({of})" for k, of in zip(shown, layer)]
    twice = {name for name in names if names.count(name) > 1}
    names = [f"{name} {k + 1}" if name in twice else name for k, name in enumerate(names)]
    data = xr.Dataset(
        {
            "x": (("series", "point"), np.tile(ends, (len(shown), 1)), {"units": "s"}),
            "p": (("series", "point"), p),
            "style": ("series", ["steps"] * len(shown)),
        },
        coords={"series": names},
    )
    return Figure(
        "io-durations",
        "How long calls took",
        "For the functions with most own time, calls within them included. A steep curve is a function "
        "that always takes the same time; a long way from half to all of its calls means that few of them "
        "took most of it: requests that reached the storage, or a wait for another rank. Durations are "
        "stored in classes, each twice as long as the one before: a step is at the end of its class.",
        Kind.CDF,
        data,
        {"x": Axis("duration", "s", log=True), "p": Axis("share of calls")},
    )


# ---- servers ----


def on_servers(summary: xr.Dataset) -> Figure | None:
    """The duration of each operation on each server, by the servers' own counters."""
    if "server_name" not in summary:
        return None
    mean = summary["server_mean"].values
    known = np.isfinite(mean) & (summary["server_calls"].values > 0)
    columns = np.flatnonzero(known.any(axis=0))
    if not columns.size:
        return None
    time = np.where(known, mean * summary["server_calls"].values, 0.0).sum(axis=0)
    columns = columns[np.argsort(-time[columns], kind="stable")]
    rows = np.arange(min(SERVERS, summary.sizes["server"]))
    left = summary.sizes["server"] - rows.size
    data = xr.Dataset(
        {
            name: (
                ("bar", "operation"),
                np.where(known, summary[source].values, np.nan)[np.ix_(rows, columns)],
            )
            for name, source in (("y", "server_mean"), ("low", "server_least"), ("high", "server_most"))
        },
        coords={
            "bar": [servers.hosts(summary)[k] for k in rows.tolist()],
            "operation": summary["operation_name"].values[columns].astype(str),
        },
    )
    return Figure(
        "io-servers",
        "Operations on the servers",
        "Mean duration of an operation on each server, and the range from its shortest to its longest. A "
        "server that stands out in all operations is slow itself; in one alone, it has work that the "
        "others do not have, or a file that all clients use. From the servers' own counters, not from "
        "events: for all clients while the command ran."
        + (f" {left} more servers are left out." if left > 0 else ""),
        Kind.BAR,
        data,
        {"bar": Axis("Server"), "y": Axis("duration", "s", log=True)},
        (Slider("operation", "operation"),),
    )

"""The verdict, tables and data of a /summary of io/1. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.outcome import Table
from sonde.core.printable import one_line
from sonde.core.units import format_duration, format_share, format_size
from sonde.io.maps.layers import DIRECTIONS
from sonde.io.trace import ignored_paths, joined_requests, not_seen, servers, slow_servers, worlds
from sonde.io.trace.schema import ENGINES

if TYPE_CHECKING:
    import xarray as xr

FUNCTIONS_SHOWN = 15
RANKS_SHOWN = 16
FILES_SHOWN = 10
MAPPED_SHOWN = 3
LEAST_SHARE = 1e-3  # smaller shares are shown as less than this
SAID = 0.005  # of the traced time: from this share on the cost of tracing is shown
TRACER = "tracer"  # the layer of the tracer's own work
BESIDE = (TRACER, ignored_paths.LAYER)  # layers that are no part of the program's I/O


def sentence(summary: xr.Dataset, elapsed_s: float | None = None) -> str:
    """Where most of the traced time was spent, and how many calls are missing. elapsed_s: how long the run took."""
    lost, spent = dropped(summary), _spent(summary, elapsed_s)
    if not lost:
        return spent
    are = "is" if lost == 1 else "are"
    return (
        f"{spent}; {counted(lost, 'more call')} did not fit into the trace, and {are} missing in all numbers"
    )


def dropped(summary: xr.Dataset) -> int:
    """The number of calls that did not fit into the trace."""
    return int(summary["process_dropped"].values.sum())


def _spent(summary: xr.Dataset, elapsed_s: float | None) -> str:
    total = traced_s(summary)
    who = _who(summary)
    if elapsed_s is not None:
        who = f"in {format_duration(elapsed_s)} {who}"
    calls = int(summary["calls"].values[:, _program(summary)].sum())
    if (not calls or total <= 0) and (other := beside_s(summary)) > 0:
        return (
            f"{who} spent {format_duration(other)} in start-up and in system files, and no time in other "
            "files"
        )
    if not calls or total <= 0:
        return f"{who} made {calls} traced calls, which took no measurable time"
    layer_time = summary["layer_self_time"].values.sum(axis=0)
    layer = int(np.where(beside(summary), -1.0, layer_time).argmax())
    own = summary["self_time"].values.sum(axis=0)
    inside = np.where(summary["function_layer"].values == layer, own, -1.0)
    function = int(inside.argmax())
    return (
        f"{who} spent {format_duration(total)} in {counted(calls, 'traced call')}: "
        f"{share_of(layer_time[layer] / total)} of it in {summary['layer_title'].values[layer]}, "
        f"{share_of(own[function] / total)} in {summary['function_name'].values[function]}"
    )


def elapsed(tree: xr.DataTree) -> float | None:
    """How long the run of a trace took, s; None if unknown."""
    return float(tree.attrs["elapsed_s"]) if "elapsed_s" in tree.attrs else None


def share_of(share: float) -> str:
    """A share as text; a tiny one as less than the smallest shown share."""
    return f"< {format_share(LEAST_SHARE, trim=True)}" if 0 < share < LEAST_SHARE else format_share(share)


def values(summary: xr.Dataset) -> dict[str, Any]:
    """The verdict as data: `layers`, `functions` in the order of their own time, `ranks`."""
    return {
        "traced_s": traced_s(summary),
        "layers": [_layer_value(summary, k) for k in range(summary.sizes["layer"])],
        "functions": [_function_value(summary, k) for k in _functions(summary)],
        "processes": [_process_value(summary, k) for k in range(summary.sizes["process"])],
        "hosts": _hosts(summary),
        "tracing": dict(zip(("call_cost_ns", "taken_off_s"), tracing(summary))),
        "files": _files(summary),
        "mapped": [{"path": path, "bytes": size} for path, size in _mapped(summary)],
        "under_way": under_way(summary),
        "joins": joined_requests.values(summary),
        "servers": servers.values(summary),
        "slow_servers": slow_servers.values(slow_servers.verdict(summary)),
    }


def tables(summary: xr.Dataset, every: bool = False) -> list[Table]:
    """Tables of layers and functions, and those that are not empty of: data moved, files, requests to servers, ranks,
    server counters.

    every: show all rows.
    """

    def some(one: Table) -> list[Table]:
        return [one] if one.rows else []

    compared = slow_servers.verdict(summary)

    def noted(several: list[Table], by: str) -> list[Table]:
        """Add a note to the last table: how slow a server must be for a finding."""
        if not several or not (text := slow_servers.note(compared, by)):
            return several
        last = several[-1]
        return [*several[:-1], replace(last, note=" ".join(filter(None, (last.note, text))))]

    return [
        _layers_table(summary),
        *some(_data_table(summary)),
        _functions_table(summary, every),
        *some(_files_table(summary, every)),
        *noted(joined_requests.tables(summary, every), "requests"),
        *([_processes_table(summary, every)] if summary.sizes["process"] > 1 else []),
        *noted(servers.tables(summary, every), "counters"),
    ]


def under_way(summary: xr.Dataset) -> list[dict[str, Any]]:
    """For each thread the calls under way when its process ended, the outermost first, and their file."""
    if "under_way_begin" not in summary:  # a dataset of an earlier version
        return []
    columns = (
        summary[f"under_way_{name}"].values for name in ("process", "thread", "function", "file", "begin")
    )
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for process, thread, function, file, begin in zip(*(column.tolist() for column in columns)):
        one = found.setdefault(
            (process, thread),
            {
                "rank": int(summary["process_rank"].values[process]),
                "world": int(worlds.of(summary)[process]),
                "host": str(summary["process_host"].values[process]),
                "pid": int(summary["process_pid"].values[process]),
                "program": str(summary["process_program"].values[process]),
                "thread": thread,
                "calls": [],
                "file": "",
                "since_s": begin,
            },
        )
        one["calls"].append(str(summary["function_name"].values[function]))
        if file >= 0:
            one["file"] = str(summary["path"].values[file])
    return list(found.values())


def under_way_table(summary: xr.Dataset, every: bool = False) -> Table:
    """The calls under way as a table, one row a thread."""
    stalled = under_way(summary)
    rows = [
        (
            f"{one['rank']}" if one["rank"] >= 0 else one["program"].rpartition("/")[2],
            one["host"],
            f"{one['pid']}",
            " > ".join(one["calls"]),
            one["file"],
            format_duration(one["since_s"]),
        )
        for one in stalled[: None if every else RANKS_SHOWN]
    ]
    more = len(stalled) - len(rows)
    outside = sorted({*summary["process_rank"].values.tolist()} - {-1} - {one["rank"] for one in stalled})
    named = ", ".join(map(str, outside[:RANKS_SHOWN])) + (", …" if len(outside) > RANKS_SHOWN else "")
    return Table(
        "Calls under way when their process ended",
        ("rank", "host", "process", "in", "file", "began at"),
        rows,
        right=(2, 5),
        note="; ".join(
            filter(
                None,
                (
                    f"and {more} more: --all" if more > 0 else "",
                    f"no call: {'rank' if len(outside) == 1 else 'ranks'} {named}" if outside else "",
                ),
            )
        ),
    )


def traced_s(summary: xr.Dataset) -> float:
    """Time in traced calls of the program's I/O, summed over all threads, s."""
    return float(summary["layer_self_time"].values[:, ~beside(summary)].sum())


def beside_s(summary: xr.Dataset) -> float:
    """Time in traced calls outside the program's I/O: start-up, files of the system."""
    mine = summary["layer_name"].values == ignored_paths.LAYER
    return float(summary["layer_self_time"].values[:, mine].sum())


def beside(summary: xr.Dataset) -> np.ndarray:
    """A mask of the layers outside the program's I/O: totals and shares leave them out."""
    return np.isin(summary["layer_name"].values.astype(str), BESIDE)


def tracing(summary: xr.Dataset) -> tuple[float, float]:
    """The cost of tracing a call, ns, median over all processes; and the cost that was subtracted from the times of
    calls, s."""
    return float(np.median(summary["call_cost"].values)), float(summary["tracing_time"].values.sum())


def _program(summary: xr.Dataset) -> np.ndarray:
    """A mask of the functions that belong to the program's I/O."""
    return ~beside(summary)[summary["function_layer"].values]


def _who(summary: xr.Dataset) -> str:
    ranks, members, of_programs = summary["process_rank"].values, worlds.members(summary), worlds.of(summary)
    count, programs = (len(np.unique(which[which >= 0])) for which in (members, of_programs))
    others = int((ranks < 0).sum())
    parts = [counted(count, "rank")] if count else []
    if programs > 1:
        parts = [f"{parts[0]} of {programs} MPI programs"]
    if others:
        name = one_line(str(summary["process_program"].values[ranks < 0][0]).rpartition("/")[2])
        parts.append(
            name if not count and others == 1 else counted(others, "other process" if count else "process")
        )
    return " and ".join(parts) or "no process"


def _layer_value(summary: xr.Dataset, layer: int) -> dict[str, Any]:
    total = traced_s(summary)
    own = float(summary["layer_self_time"].values[:, layer].sum())
    mine = summary["function_layer"].values == layer
    moved = {}
    of_rank = np.unique(worlds.members(summary), return_inverse=True)[
        1
    ]  # processes without a rank count as one
    for direction, name in enumerate(DIRECTIONS):
        requests = int(summary["requests"].values[:, layer, direction].sum())
        size = int(summary["request_bytes"].values[:, layer, direction].sum())
        times = summary["request_time"].values[:, layer, direction]
        longest_s = max(np.bincount(of_rank, times)) if times.size else 0.0
        moved[name] = {
            "requests": requests,
            "sized": int(summary["request_sizes"].values[layer, direction].sum()),
            "bytes": size,
            "time_s": float(times.sum()),
            "rate_B_per_s": float(size / longest_s)
            if size and longest_s > 0 and not_seen.bytes_known(summary, layer, direction)
            else None,
        }
    return {
        "layer": str(summary["layer_name"].values[layer]),
        "title": str(summary["layer_title"].values[layer]),
        "watched": int(summary["layer_watched"].values[layer]),
        "functions": int((summary["calls"].values.sum(axis=0)[mine] > 0).sum()),
        "calls": int(summary["calls"].values[:, mine].sum()),
        "failed": int(summary["failed"].values[:, mine].sum()),
        "unfinished": int(summary["unfinished"].values[:, mine].sum()),
        "time_s": float(summary["layer_time"].values[:, layer].sum()),
        "self_s": own,
        "share": own / total if total > 0 and not beside(summary)[layer] else None,
        **moved,
    }


def _functions(summary: xr.Dataset) -> list[int]:
    """Functions by their own time, those of the program's I/O first."""
    own = summary["self_time"].values.sum(axis=0)
    return [int(k) for k in np.lexsort((-own, ~_program(summary)))]


def _function_value(summary: xr.Dataset, k: int) -> dict[str, Any]:
    layer = int(summary["function_layer"].values[k])
    return {
        "function": str(summary["function_name"].values[k]),
        "layer": str(summary["layer_name"].values[layer]),
        "library": str(summary["function_library"].values[k]),
        "engine": ENGINES[int(summary["function_engine"].values[k])],
        "calls": int(summary["calls"].values[:, k].sum()),
        "failed": int(summary["failed"].values[:, k].sum()),
        "unfinished": int(summary["unfinished"].values[:, k].sum()),
        "bytes": int(summary["bytes"].values[:, k].sum()),
        "time_s": float(summary["time"].values[:, k].sum()),
        "self_s": float(summary["self_time"].values[:, k].sum()),
        "longest_s": float(summary["longest"].values[:, k].max()),
    }


def _process_value(summary: xr.Dataset, k: int) -> dict[str, Any]:
    return {
        "host": str(summary["process_host"].values[k]),
        "pid": int(summary["process_pid"].values[k]),
        "rank": int(summary["process_rank"].values[k]),
        "world": int(worlds.of(summary)[k]),
        "program": str(summary["process_program"].values[k]),
        "calls": int(summary["calls"].values[k, _program(summary)].sum()),
        "traced_s": float(summary["traced_time"].values[k]),
        "dropped": int(summary["process_dropped"].values[k]),
        "layers": {
            str(name): float(own)
            for name, own in zip(summary["layer_name"].values, summary["layer_self_time"].values[k])
        },
    }


def _files(summary: xr.Dataset) -> list[dict[str, Any]]:
    if not summary.sizes["file"]:
        return []
    paths, names = summary["path"].values, summary["layer_name"].values
    requests, bytes_ = summary["file_requests"].values, summary["file_bytes"].values
    lost = summary["file_lost"].values if "file_lost" in summary else np.zeros(requests.shape[:2], int)
    found = []
    for k, layer in np.argwhere(requests.any(axis=2) | (lost > 0)).tolist():
        moved = {
            direction: {"requests": int(requests[k, layer, d]), "bytes": int(bytes_[k, layer, d])}
            for d, direction in enumerate(DIRECTIONS)
        }
        failed = int(lost[k, layer])
        found.append({"path": str(paths[k]), "layer": str(names[layer]), **moved, "failed": failed})
    return found


def _mapped(summary: xr.Dataset) -> list[tuple[str, int]]:
    """Files that the program mapped into memory, and the mapped bytes, the largest first."""
    if "file_mapped" not in summary:
        return []
    size = summary["file_mapped"].values
    order = np.argsort(-size, kind="stable")
    return [(str(summary["path"].values[k]), int(size[k])) for k in order if size[k]]


def _ill(values: list[dict[str, Any]]) -> tuple[str, ...]:
    """Which of the columns of failed and unfinished calls are not empty."""
    return tuple(name for name in ("failed", "unfinished") if any(value[name] for value in values))


def _layers_table(summary: xr.Dataset) -> Table:
    called = [value for k in range(summary.sizes["layer"]) if (value := _layer_value(summary, k))["calls"]]
    ill = _ill([value for value in called if value["share"] is not None])
    rows = [
        (
            value["title"],
            f"{value['calls']}",
            *(f"{value[name] or ''}" for name in ill),
            _requests(value["read"]),
            _requests(value["write"]),
            format_duration(value["self_s"]),
            share_of(value["share"]) if value["share"] is not None else "–",
        )
        for value in called
    ]
    unseen = [
        str(summary["layer_title"].values[k])
        for k in range(summary.sizes["layer"])
        if summary["layer_watched"].values[k] == 0 and summary["layer_name"].values[k] != TRACER
    ]
    note = "Reads and writes: requests that entered a layer from above × their mean size."
    if unseen:
        note += f" In none of the traced programs, or hidden there: {', '.join(unseen)}."
    calls = {
        str(name): _layer_value(summary, k)["calls"] for k, name in enumerate(summary["layer_name"].values)
    }
    if calls.get("mpiio") and not calls.get("romio") and not calls.get("ompio"):
        note += (
            " This MPI hides the functions below MPI-IO, as MPICH does: their time is part of MPI-IO here."
        )
    cost_ns, took_s = tracing(summary)
    if took_s >= SAID * traced_s(summary):
        note += (
            f" Tracing costs {format_duration(cost_ns * 1e-9)} a call: {format_duration(took_s)} were "
            "subtracted."
        )
    return Table(
        "Layers, from the program down",
        ("layer", "calls", *ill, "read", "written", "time in it", "share"),
        rows,
        right=tuple(range(1, 6 + len(ill))),
        note=note,
    )


def _requests(moved: dict[str, Any]) -> str:
    """The number of requests, and the mean size of those with a known size."""
    if not moved["sized"]:
        return f"{moved['requests'] or ''}"
    return f"{moved['requests']} × {format_size(round(moved['bytes'] / moved['sized']))}"


def _data_table(summary: xr.Dataset) -> Table:
    """The amount of data that each layer moved, and the rate."""
    rows = []
    for k in np.flatnonzero(~beside(summary)).tolist():
        value = _layer_value(summary, k)
        if value["read"]["bytes"] or value["write"]["bytes"]:
            cells = [
                (_size(value[way]["bytes"]), _mib_per_s(value[way]["rate_B_per_s"])) for way in DIRECTIONS
            ]
            rows.append((value["title"], *cells[0], *cells[1]))
    return Table(
        "Data moved, by layer",
        ("layer", "read", "MiB/s", "written", "MiB/s"),
        rows,
        right=(1, 2, 3, 4),
        names=(2, 4),
        note="MiB/s: over the time of the rank that spent most in such calls; too high for calls that do "
        "not wait for their data (MPI_File_iwrite).",
    )


def _size(size: int) -> str:
    return format_size(size) if size else ""


def _mib_per_s(rate: float | None) -> str:
    if rate is None:
        return ""
    value = rate / (1 << 20)
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _files_table(summary: xr.Dataset, every: bool = False) -> Table:
    """Bytes read from and written to each file, by layer."""
    beside_ = {str(name) for name in summary["layer_name"].values[beside(summary)]}
    moved = [value for value in _files(summary) if value["layer"] not in beside_]
    moved.sort(key=lambda value: -sum(value[way]["bytes"] for way in DIRECTIONS))
    ill = ("failed",) if any(value["failed"] for value in moved) else ()
    shown = moved if every else moved[:FILES_SHOWN]
    rows = [
        (
            one_line(value["path"]),
            value["layer"],
            *(f"{value[name] or ''}" for name in ill),
            *(_of_file(value[way]) for way in DIRECTIONS),
        )
        for value in shown
    ]
    mapped = [f"{one_line(path)} ({format_size(size)})" for path, size in _mapped(summary)]
    notes = [f"and {len(moved) - len(shown)} more: --all" if len(moved) > len(shown) else ""]
    if mapped:
        more = ", …" if len(mapped) > MAPPED_SHOWN and not every else ""
        named = ", ".join(mapped if every else mapped[:MAPPED_SHOWN])
        notes.append(f"mapped into memory, where reading and writing make no calls: {named}{more}")
        rows = rows or [("(only mapped)", "", *("" for _ in ill), "", "")]
    return Table(
        "Files, by the bytes moved",
        ("file", "layer", *ill, "read", "written"),
        rows,
        right=tuple(range(2, 4 + len(ill))),
        note="; ".join(filter(None, notes)),
    )


def _of_file(moved: dict[str, Any]) -> str:
    if not moved["requests"]:
        return ""
    return f"{_size(moved['bytes']) or '?'} in {moved['requests']}"


def _functions_table(summary: xr.Dataset, every: bool = False) -> Table:
    total = traced_s(summary)
    order, mine = _functions(summary), _program(summary)
    listed = [(k, _function_value(summary, k)) for k in (order if every else order[:FUNCTIONS_SHOWN])]
    ill = _ill([value for k, value in listed if mine[k]])
    rows = [
        (
            value["function"],
            value["layer"],
            f"{value['calls']}",
            *(f"{value[name] or ''}" for name in ill),
            format_duration(value["time_s"]),
            format_duration(value["self_s"]),
            share_of(value["self_s"] / total) if total > 0 and mine[k] else "–",
            format_duration(value["longest_s"]),
        )
        for k, value in listed
    ]
    more = len(order) - len(rows)
    return Table(
        "Functions, by their own time",
        ("function", "layer", "calls", *ill, "time", "own time", "share", "longest"),
        rows,
        right=tuple(range(2, 7 + len(ill))),
        note="; ".join(
            filter(None, (f"and {more} more with less time: --all" if more > 0 else "", _probed(summary)))
        ),
    )


def _probed(summary: xr.Dataset) -> str:
    """A note on the times of functions under uprobes, if there are any."""
    probed = int((summary["function_engine"].values == ENGINES.index("uprobe")).sum())
    return (
        f"times of {counted(probed, 'function')} include the cost of uprobes, microseconds a call"
        if probed
        else ""
    )


def _hosts(summary: xr.Dataset) -> list[dict[str, Any]]:
    """Each host, and the offset of its clock from the clock of the first process's host; error None: unknown."""
    hosts, first = np.unique(summary["process_host"].values.astype(str), return_index=True)
    found = []
    for host, k in zip(hosts.tolist(), first.tolist()):
        error = float(summary["clock_error"].values[k])
        found.append(
            {
                "host": host,
                "clock_offset_s": float(summary["clock_offset"].values[k]),
                "clock_drift": float(summary["clock_drift"].values[k]),
                "clock_error_s": error if np.isfinite(error) else None,
            }
        )
    return found


def _clocks(summary: xr.Dataset) -> str:
    """How well times of several hosts can be compared; "" for one host."""
    hosts = _hosts(summary)
    if len(hosts) < 2:
        return ""
    unknown = [one["host"] for one in hosts if one["clock_error_s"] is None]
    if not unknown:
        worst = max(one["clock_error_s"] for one in hosts)
        furthest = max(abs(one["clock_offset_s"]) for one in hosts)
        return (
            f"the clocks of {len(hosts)} hosts, up to {format_duration(furthest)} apart, were aligned by "
            f"the collective calls of the ranks, to within {format_duration(worst)}"
        )
    named = ", ".join(unknown[:3]) + (", …" if len(unknown) > 3 else "")
    return (
        f"times of {named} rely on the time-of-day clock there, which a time service keeps right to a "
        "millisecond or so"
    )


def _processes_table(summary: xr.Dataset, every: bool = False) -> Table:
    """Time in layers by rank, or by program for processes without one: a rank may have run several programs in turn."""
    own = summary["layer_self_time"].values
    used = [k for k in range(summary.sizes["layer"]) if own[:, k].sum() > 0]
    groups: dict[tuple[str, str], list[int]] = {}
    ranks = worlds.named(summary)
    for k in range(summary.sizes["process"]):
        name = ranks[k] or _program_name(summary, k)
        groups.setdefault((name, str(summary["process_host"].values[k])), []).append(k)
    groups = _without_servers_in_one(summary, groups)
    rows = []
    for (name, host), members in list(groups.items())[: None if every else RANKS_SHOWN]:
        rows.append((name, host, *(format_duration(own[members, layer].sum()) for layer in used)))
    more = len(groups) - len(rows)
    return Table(
        "Time in each layer itself, by rank",
        ("rank", "host", *(str(summary["layer_name"].values[k]) for k in used)),
        rows,
        right=tuple(range(2, 2 + len(used))),
        note="; ".join(
            filter(
                None, (f"and {more} more: --all" if more > 0 else "", _programs(summary), _clocks(summary))
            )
        ),
    )


def _program_name(summary: xr.Dataset, process: int) -> str:
    return one_line(str(summary["process_program"].values[process]).rpartition("/")[2])


def _without_servers_in_one(
    summary: xr.Dataset, groups: dict[tuple[str, str], list[int]]
) -> dict[tuple[str, str], list[int]]:
    """The groups, but with each process of a program on its own, named by its number, if all of them work at one time,
    as the servers of one host do. Processes that a program starts one after another stay one group."""
    busy = summary["busy"].values.sum(axis=1) > 0
    found: dict[tuple[str, str], list[int]] = {}
    for (name, host), members in groups.items():
        active = [np.flatnonzero(busy[k]) for k in members if busy[k].any()]
        at_once = len(active) > 1 and max(bins[0] for bins in active) <= min(bins[-1] for bins in active)
        if at_once and name == _program_name(summary, members[0]):
            found |= {(f"{name} {int(summary['process_pid'].values[k])}", host): [k] for k in members}
        else:
            found[name, host] = members
    return found


def _programs(summary: xr.Dataset) -> str:
    """A note on the names of the ranks of several MPI programs; "" if there is only one program."""
    return (
        "1:0 is rank 0 of the first MPI program, 2:0 is rank 0 of the second"
        if any(":" in name for name in worlds.named(summary))
        else ""
    )


def counted(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 'es' if what.endswith('s') else 's'}"

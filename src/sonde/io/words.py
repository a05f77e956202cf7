"""What a /summary of io/1 says, in words and tables. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.outcome import Table
from sonde.core.units import format_duration, format_share, format_size
from sonde.io import aside, joins, servers
from sonde.io.schema import ENGINES

if TYPE_CHECKING:
    import xarray as xr

FUNCTIONS_SHOWN = 15
RANKS_SHOWN = 16
SAID = 0.005  # of the traced time, from which on what tracing took is told
TRACER = "tracer"  # the layer of the tracer's own work
BESIDE = (TRACER, aside.LAYER)  # layers that are no part of the program's I/O


def sentence(summary: xr.Dataset) -> str:
    """Where most of the traced time was spent, and how much of it is not known."""
    lost = dropped(summary)
    if not lost:
        return _spent(summary)
    are = "is" if lost == 1 else "are"
    return (
        f"{_spent(summary)}; {counted(lost, 'more call')} found no room in the trace, and {are} in no number"
    )


def dropped(summary: xr.Dataset) -> int:
    """Calls that found no room in the trace."""
    return int(summary["process_dropped"].values.sum())


def _spent(summary: xr.Dataset) -> str:
    total = traced_s(summary)
    who = _who(summary)
    calls = int(summary["calls"].values[:, _program(summary)].sum())
    if (not calls or total <= 0) and (other := beside_s(summary)) > 0:
        return (
            f"{who} spent {format_duration(other)} in starting and in files of the system, and none in others"
        )
    if not calls or total <= 0:
        return f"{who} made {calls} traced calls, which took no time that can be told"
    layer_time = summary["layer_self_time"].values.sum(axis=0)
    layer = int(np.where(beside(summary), -1.0, layer_time).argmax())
    own = summary["self_time"].values.sum(axis=0)
    inside = np.where(summary["function_layer"].values == layer, own, -1.0)
    function = int(inside.argmax())
    return (
        f"{who} spent {format_duration(total)} in {counted(calls, 'traced call')}: "
        f"{format_share(layer_time[layer] / total)} of it in {summary['layer_title'].values[layer]}, "
        f"{format_share(own[function] / total)} in {summary['function_name'].values[function]}"
    )


def values(summary: xr.Dataset) -> dict[str, Any]:
    """The same as data: `layers`, `functions` in the order of their own time, `ranks`."""
    return {
        "traced_s": traced_s(summary),
        "layers": [_layer_value(summary, k) for k in range(summary.sizes["layer"])],
        "functions": [_function_value(summary, k) for k in _functions(summary)],
        "processes": [_process_value(summary, k) for k in range(summary.sizes["process"])],
        "hosts": _hosts(summary),
        "tracing": dict(zip(("call_cost_ns", "taken_off_s"), tracing(summary))),
        "files": _files(summary),
        "under_way": under_way(summary),
        "joins": joins.values(summary),
        "servers": servers.values(summary),
    }


def tables(summary: xr.Dataset, every: bool = False) -> list[Table]:
    """Layers, functions, requests to servers, ranks where there are several, what servers counted.

    every: all rows of all of them.
    """
    found = [_layers_table(summary), _functions_table(summary, every), *joins.tables(summary, every)]
    if summary.sizes["process"] > 1:
        found.append(_processes_table(summary, every))
    return found + servers.tables(summary, every)


def under_way(summary: xr.Dataset) -> list[dict[str, Any]]:
    """Of each thread the calls that were under way when its process ended, the outermost first, and their file."""
    if "under_way_begin" not in summary:  # of an earlier version
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
    """The same as a table; a row a thread."""
    told = under_way(summary)
    rows = [
        (
            f"{one['rank']}" if one["rank"] >= 0 else one["program"].rpartition("/")[2],
            one["host"],
            f"{one['pid']}",
            " > ".join(one["calls"]),
            one["file"],
            format_duration(one["since_s"]),
        )
        for one in told[: None if every else RANKS_SHOWN]
    ]
    more = len(told) - len(rows)
    outside = sorted({*summary["process_rank"].values.tolist()} - {-1} - {one["rank"] for one in told})
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
                    f"in none: {'rank' if len(outside) == 1 else 'ranks'} {named}" if outside else "",
                ),
            )
        ),
    )


def traced_s(summary: xr.Dataset) -> float:
    """Time in traced calls of the program's I/O, of all threads, s."""
    return float(summary["layer_self_time"].values[:, ~beside(summary)].sum())


def beside_s(summary: xr.Dataset) -> float:
    """Time in traced calls that are no part of it: start-up, files of the system."""
    mine = summary["layer_name"].values == aside.LAYER
    return float(summary["layer_self_time"].values[:, mine].sum())


def beside(summary: xr.Dataset) -> np.ndarray:
    """Which layers are no part of the program's I/O: left out of totals and shares."""
    return np.isin(summary["layer_name"].values.astype(str), BESIDE)


def tracing(summary: xr.Dataset) -> tuple[float, float]:
    """What tracing adds to a call, ns, the median of all processes; what of it was taken off the times of calls, s."""
    return float(np.median(summary["call_cost"].values)), float(summary["tracing_time"].values.sum())


def _program(summary: xr.Dataset) -> np.ndarray:
    """Functions that are of the program's I/O."""
    return ~beside(summary)[summary["function_layer"].values]


def _who(summary: xr.Dataset) -> str:
    ranks = summary["process_rank"].values
    count = len(np.unique(ranks[ranks >= 0]))
    others = int((ranks < 0).sum())
    words = [counted(count, "rank")] if count else []
    if others:
        name = str(summary["process_program"].values[ranks < 0][0]).rpartition("/")[2]
        words.append(
            name if not count and others == 1 else counted(others, "other process" if count else "process")
        )
    return " and ".join(words) or "no process"


def _layer_value(summary: xr.Dataset, layer: int) -> dict[str, Any]:
    total = traced_s(summary)
    own = float(summary["layer_self_time"].values[:, layer].sum())
    mine = summary["function_layer"].values == layer
    moved = {}
    for direction, name in enumerate(("read", "write")):
        requests = int(summary["requests"].values[:, layer, direction].sum())
        moved[name] = {
            "requests": requests,
            "bytes": int(summary["request_bytes"].values[:, layer, direction].sum()),
            "time_s": float(summary["request_time"].values[:, layer, direction].sum()),
        }
    return {
        "layer": str(summary["layer_name"].values[layer]),
        "title": str(summary["layer_title"].values[layer]),
        "watched": int(summary["layer_watched"].values[layer]),
        "functions": int((summary["calls"].values.sum(axis=0)[mine] > 0).sum()),
        "calls": int(summary["calls"].values[:, mine].sum()),
        "time_s": float(summary["layer_time"].values[:, layer].sum()),
        "self_s": own,
        "share": own / total if total > 0 and not beside(summary)[layer] else None,
        **moved,
    }


def _functions(summary: xr.Dataset) -> list[int]:
    """By their own time, those first that are of the program's I/O."""
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
    found = []
    for k, layer in np.argwhere(requests.any(axis=2)).tolist():
        moved = {
            direction: {"requests": int(requests[k, layer, d]), "bytes": int(bytes_[k, layer, d])}
            for d, direction in enumerate(("read", "write"))
        }
        found.append({"path": str(paths[k]), "layer": str(names[layer]), **moved})
    return found


def _layers_table(summary: xr.Dataset) -> Table:
    rows = []
    for k in range(summary.sizes["layer"]):
        value = _layer_value(summary, k)
        if value["calls"]:
            rows.append(
                (
                    value["title"],
                    f"{value['calls']}",
                    _requests(value["read"]),
                    _requests(value["write"]),
                    format_duration(value["self_s"]),
                    format_share(value["share"]) if value["share"] is not None else "–",
                )
            )
    unseen = [
        str(summary["layer_title"].values[k])
        for k in range(summary.sizes["layer"])
        if summary["layer_watched"].values[k] == 0 and summary["layer_name"].values[k] != TRACER
    ]
    note = "Reads and writes: what entered a layer from above, as requests × their mean size."
    if unseen:
        note += f" Of no library here: {', '.join(unseen)}."
    calls = {
        str(name): _layer_value(summary, k)["calls"] for k, name in enumerate(summary["layer_name"].values)
    }
    if calls.get("mpiio") and not calls.get("romio") and not calls.get("ompio"):
        note += " This MPI keeps the functions below MPI-IO to itself, as MPICH does: their time is MPI-IO's own here."
    cost_ns, took_s = tracing(summary)
    if took_s >= SAID * traced_s(summary):
        note += f" Tracing takes {format_duration(cost_ns * 1e-9)} a call: {format_duration(took_s)} are taken off."
    return Table(
        "Layers, from the program down",
        ("layer", "calls", "read", "written", "time in it", "share"),
        rows,
        right=(1, 2, 3, 4, 5),
        note=note,
    )


def _requests(moved: dict[str, Any]) -> str:
    if not moved["requests"]:
        return ""
    return f"{moved['requests']} × {format_size(round(moved['bytes'] / moved['requests']))}"


def _functions_table(summary: xr.Dataset, every: bool = False) -> Table:
    total = traced_s(summary)
    order, mine = _functions(summary), _program(summary)
    rows = []
    for k in order if every else order[:FUNCTIONS_SHOWN]:
        value = _function_value(summary, k)
        rows.append(
            (
                value["function"],
                value["layer"],
                f"{value['calls']}",
                format_duration(value["time_s"]),
                format_duration(value["self_s"]),
                format_share(value["self_s"] / total) if total > 0 and mine[k] else "–",
                format_duration(value["longest_s"]),
            )
        )
    more = len(order) - len(rows)
    return Table(
        "Functions, by the time in themselves",
        ("function", "layer", "calls", "time", "in itself", "share", "longest"),
        rows,
        right=(2, 3, 4, 5, 6),
        note="; ".join(
            filter(None, (f"and {more} more with less time: --all" if more > 0 else "", _probed(summary)))
        ),
    )


def _probed(summary: xr.Dataset) -> str:
    """What is not right with the times of functions under uprobes, where there are any."""
    probed = int((summary["function_engine"].values == ENGINES.index("uprobe")).sum())
    return (
        f"times of {counted(probed, 'function')} hold what uprobes cost, microseconds a call"
        if probed
        else ""
    )


def _hosts(summary: xr.Dataset) -> list[dict[str, Any]]:
    """Each host, and what its clock was found to show more than the first process's host's; error None: not known."""
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
    """How well times of several hosts may be compared; "" for one."""
    hosts = _hosts(summary)
    if len(hosts) < 2:
        return ""
    unknown = [one["host"] for one in hosts if one["clock_error_s"] is None]
    if not unknown:
        worst = max(one["clock_error_s"] for one in hosts)
        furthest = max(abs(one["clock_offset_s"]) for one in hosts)
        return (
            f"clocks of {len(hosts)} hosts, up to {format_duration(furthest)} apart, were put together by the "
            f"collective calls of the ranks, to {format_duration(worst)}"
        )
    named = ", ".join(unknown[:3]) + (", …" if len(unknown) > 3 else "")
    return (
        f"times of {named} rest on the clock of the day there: a time service is right to a millisecond or so"
    )


def _processes_table(summary: xr.Dataset, every: bool = False) -> Table:
    """By rank, or by program where there are none: a rank may have run several programs, one after another."""
    own = summary["layer_self_time"].values
    used = [k for k in range(summary.sizes["layer"]) if own[:, k].sum() > 0]
    groups: dict[tuple[str, str], list[int]] = {}
    for k in range(summary.sizes["process"]):
        rank, program = int(summary["process_rank"].values[k]), str(summary["process_program"].values[k])
        name = f"{rank}" if rank >= 0 else program.rpartition("/")[2]
        groups.setdefault((name, str(summary["process_host"].values[k])), []).append(k)
    rows = []
    for (name, host), members in list(groups.items())[: None if every else RANKS_SHOWN]:
        rows.append((name, host, *(format_duration(own[members, layer].sum()) for layer in used)))
    more = len(groups) - len(rows)
    return Table(
        "Time in each layer itself, by rank",
        ("rank", "host", *(str(summary["layer_name"].values[k]) for k in used)),
        rows,
        right=tuple(range(2, 2 + len(used))),
        note="; ".join(filter(None, (f"and {more} more: --all" if more > 0 else "", _clocks(summary)))),
    )


def counted(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 'es' if what.endswith('s') else 's'}"

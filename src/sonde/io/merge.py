"""Several traces of one time as one: a server's and its clients', say. Pure.

Tables are put together by what they name; events stay as they are, but for their times, which are told since the first
process of all began, and for the numbers of what they name.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.errors import DataError
from sonde.io.schema import EVENT, OF_PROCESS, OF_THREAD, RANKLESS, RAW
from sonde.io.words import TRACER

if TYPE_CHECKING:
    import xarray as xr

_FUNCTION = ("function_name", "function_library", "function_layer", "function_kind", "function_engine")
MOST_FUNCTIONS = 1 << 15  # as many as an event's number of its function can tell


def merged(raws: Sequence[xr.Dataset], begins_ns: Sequence[int], order: Sequence[str] = ()) -> xr.Dataset:
    """One /raw of several.

    What is told of no process, call or name, as counters of servers, is left out.

    Parameters
    ----------
    raws : memory is taken for all of them twice
    begins_ns : when the first process of each began, by a clock that they share
    order : names of layers from the application down, whether they are there or not; those that it does not name come
            behind what they were behind

    Raises
    ------
    DataError  io.too_many_functions.
    """
    import xarray as xr

    raws = [raw.load() for raw in raws]
    shifts = [begin - min(begins_ns) for begin in begins_ns]
    layers = _layers(raws, order)
    layer_at = [
        np.array([layers.index(str(name)) for name in raw["layer_name"].values] + [-1]) for raw in raws
    ]
    functions, function_at = _together(
        [_rows([raw[name].values if name != "function_layer" else at[raw[name].values] for name in _FUNCTION])
         for raw, at in zip(raws, layer_at)],
        order=_FUNCTION.index("function_layer"),
    )  # fmt: skip
    if len(functions) > MOST_FUNCTIONS:
        raise DataError(
            "io.too_many_functions",
            f"the traces have {len(functions)} functions in all; one can tell {MOST_FUNCTIONS} apart",
            "join fewer of them",
        )
    paths, path_at = _together([_rows([raw["path"].values]) for raw in raws])
    ranks = np.concatenate([raw["process_rank"].values for raw in raws])
    by_rank = np.lexsort((ranks, ranks == RANKLESS))  # ranks first, in order
    process_at = np.argsort(by_rank)
    columns: dict[str, Any] = {name: [] for name in (*EVENT, *OF_PROCESS, *OF_THREAD)}
    requests: dict[str, list[np.ndarray]] = {"request_event": [], "request_number": []}
    events = processes = 0
    for raw, shift, functions_of, paths_of in zip(raws, shifts, function_at, path_at):
        changed = {
            "begin": raw["begin"].values + shift,
            "function_index": functions_of[raw["function_index"].values],
            "file_index": paths_of[raw["file_index"].values],
            "process_begin": raw["process_begin"].values + shift,
            "thread_process": process_at[raw["thread_process"].values + processes],
            "thread_first": raw["thread_first"].values + events,
        }
        for name, parts in columns.items():
            parts.append(changed.get(name, raw[name].values))
        if "request_event" in raw:
            requests["request_event"].append(raw["request_event"].values + events)
            requests["request_number"].append(raw["request_number"].values)
        events, processes = events + raw.sizes["event"], processes + raw.sizes["process"]
    whole: dict[str, Any] = {name: np.concatenate(parts) for name, parts in columns.items()}
    whole |= {name: whole[name][by_rank] for name in OF_PROCESS}
    whole |= {name: np.concatenate([np.zeros(0, np.int64), *parts]) for name, parts in requests.items()}
    whole |= dict(zip(_FUNCTION, _columns(functions, len(_FUNCTION))))
    whole["path"] = _columns(paths, 1)[0]
    whole |= _of_layers(raws, layers, layer_at)
    return xr.Dataset(
        {
            name: (
                what.dims,
                np.asarray(whole[name], object if what.dtype == "str" else what.dtype),
                next((dict(raw[name].attrs) for raw in raws if name in raw), what.attrs()),
            )
            for name, what in RAW.items()
            if name in whole
        }
    )


def _layers(raws: Sequence[xr.Dataset], order: Sequence[str]) -> list[str]:
    there = {str(name) for raw in raws for name in raw["layer_name"].values}
    found = [name for name in order if name in there]
    for raw in raws:
        at = 0
        for name in map(str, raw["layer_name"].values):
            if name in found:
                at = found.index(name) + 1
            else:
                found.insert(at, name)
                at += 1
    return [name for name in found if name != TRACER] + [name for name in found if name == TRACER]


def _of_layers(raws: Sequence[xr.Dataset], names: list[str], at: list[np.ndarray]) -> dict[str, Any]:
    titles = [""] * len(names)
    watched, serves = np.zeros(len(names), np.int32), [""] * len(names)
    for raw, places in zip(raws, at):
        for k, place in enumerate(places[:-1].tolist()):
            titles[place] = str(raw["layer_title"].values[k])
            watched[place] = max(watched[place], int(raw["layer_watched"].values[k]))
            if "layer_serves" in raw:
                serves[place] = serves[place] or str(raw["layer_serves"].values[k])
    return {"layer_name": names, "layer_title": titles, "layer_watched": watched, "layer_serves": serves}


def _rows(columns: list[np.ndarray]) -> list[tuple[Hashable, ...]]:
    return list(zip(*(column.tolist() for column in columns)))


def _together(
    tables: list[list[tuple[Hashable, ...]]], order: int | None = None
) -> tuple[list[tuple[Any, ...]], list[np.ndarray]]:
    """Rows of all tables, each once, and where each table's own are; -1 stays -1. order : a column to sort by."""
    found: list[tuple[Any, ...]] = list(dict.fromkeys(row for table in tables for row in table))
    if order is not None:
        found.sort(key=lambda row: row[order])
    place = {row: k for k, row in enumerate(found)}
    return found, [np.array([*(place[row] for row in table), -1], np.int64) for table in tables]


def _columns(rows: list[tuple[Any, ...]], count: int) -> list[list[Any]]:
    return [[row[k] for row in rows] for k in range(count)]

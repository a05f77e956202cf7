"""Merge several traces of one time, for example a server's and its clients', into one. Pure.

Tables are merged by names; events stay as they are, except for their times, which now count from the begin of the very
first process, and the indices into the tables. Events are read on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.errors import DataError
from sonde.io.trace import servers, worlds
from sonde.io.trace.schema import CHUNK, EVENT, OF_PROCESS, OF_REQUEST, OF_SOURCE, OF_THREAD, RANKLESS, RAW
from sonde.io.trace.verdict import TRACER

if TYPE_CHECKING:
    import xarray as xr

_FUNCTION = ("function_name", "function_library", "function_layer", "function_kind", "function_engine")
MOST_FUNCTIONS = 1 << 15  # the largest number of functions that an event's function index can address


def merged(
    raws: Sequence[xr.Dataset],
    begins_ns: Sequence[int],
    order: Sequence[str] = (),
    counted: int | None = None,
) -> xr.Dataset:
    """Merge several /raw into one, whose events are read from `raws` piece by piece; they take no memory.

    Parameters
    ----------
    raws : open until the result was read
    begins_ns : when the first process of each began, by a clock that they share
    order : names of layers from the application down, present or not; other layers come behind their predecessors
    counted : the index of the trace whose server counters are used; None for none. Counters of two traces cannot be
              added: their times overlap, and they count the requests of every client

    Raises
    ------
    DataError  io.too_many_functions.
    """
    import xarray as xr

    whole_raws = raws
    raws = [raw.drop_vars(_LONG, errors="ignore").load() for raw in whole_raws]
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
            f"the traces have {len(functions)} functions in all; a dataset can hold {MOST_FUNCTIONS}",
            "join fewer of them",
        )
    paths, path_at = _together([_rows([raw["path"].values]) for raw in raws])
    ranks = np.concatenate([raw["process_rank"].values for raw in raws])
    by_rank = np.lexsort((ranks, ranks == RANKLESS))  # ranks first, in order
    process_at = np.argsort(by_rank)
    columns: dict[str, list[np.ndarray]] = {name: [] for name in (*OF_PROCESS, *OF_THREAD)}
    programs, seen = 0, set[int]()  # MPI programs of the traces before, and their ranks
    long: dict[str, list[_Part]] = {name: [] for name in _LONG}
    events = processes = 0
    for raw, present, shift, functions_of, paths_of in zip(raws, whole_raws, shifts, function_at, path_at):
        of_ranks, its = worlds.of(raw), {rank for rank in raw["process_rank"].values.tolist() if rank >= 0}
        if not seen & its:  # other ranks of the same program, or of the first program
            programs = 0
        seen |= its
        changed = {
            "process_world": np.where(of_ranks >= 0, of_ranks + programs, worlds.NONE).astype(np.int32),
            "process_begin": raw["process_begin"].values + shift,
            "thread_process": process_at[raw["thread_process"].values + processes],
            "thread_first": raw["thread_first"].values + events,
        }
        for name, parts in columns.items():
            parts.append(changed[name] if name in changed else raw[name].values)
        programs = max(programs + int(of_ranks.max(initial=worlds.NONE)) + 1, programs)
        read: dict[str, Callable[[np.ndarray], np.ndarray]] = {
            "begin": _plus(shift),
            "function_index": _of_table(functions_of),
            "file_index": _of_table(paths_of),
            "request_event": _plus(events),
            "source_event": _plus(events),
            "source_file": _of_table(paths_of),
        }
        for name in _LONG:
            if name in present:
                long[name].append((present[name].variable, read.get(name, _plus(0))))
        events, processes = events + present.sizes["event"], processes + raw.sizes["process"]
    whole: dict[str, Any] = {name: np.concatenate(parts) for name, parts in columns.items()}
    whole |= {name: whole[name][by_rank] for name in OF_PROCESS}
    whole |= dict(zip(_FUNCTION, _columns(functions, len(_FUNCTION))))
    whole["path"] = _columns(paths, 1)[0]
    whole |= _of_layers(raws, layers, layer_at)
    if counted is not None and "server_name" in raws[counted]:
        whole |= {name: raws[counted][name].values for name in servers.RAW if name in raws[counted]}
        served = np.zeros(len(paths), np.int8)
        served[path_at[counted][:-1]] = raws[counted]["file_served"].values
        whole["file_served"] = served
    attrs = {
        name: next((dict(raw[name].attrs) for raw in whole_raws if name in raw), what.attrs())
        for name, what in RAW.items()
    }
    return xr.Dataset(
        {
            name: _lazily(long[name], RAW[name].dims, RAW[name].dtype, attrs[name])
            if name in long
            else xr.Variable(
                what.dims, np.asarray(whole[name], object if what.dtype == "str" else what.dtype), attrs[name]
            )
            for name, what in RAW.items()
            if name in whole or name in long
        }
    )


_LONG = (*EVENT, *OF_REQUEST, *OF_SOURCE)  # too long for memory
_Part = tuple["xr.Variable", "Callable[[np.ndarray], np.ndarray]"]


def _plus(number: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda values: values + number if number else values


def _of_table(place: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Indices into a table as indices into the merged table; values below 0 stay as they are."""
    return lambda values: np.where(values >= 0, place[np.maximum(values, -1)], values)


def _lazily(parts: list[_Part], dims: tuple[str, ...], dtype: str, attrs: dict[str, Any]) -> xr.Variable:
    """Concatenated columns, each read and changed on demand."""
    import xarray as xr
    from xarray.backends import BackendArray
    from xarray.core import indexing

    ends = np.cumsum([0, *(variable.size for variable, _ in parts)]).tolist()

    class Chain(BackendArray):  # type: ignore[misc]
        shape = (ends[-1],)

        def __init__(self) -> None:
            self.dtype = np.dtype(dtype)

        def __getitem__(self, key: Any) -> Any:
            basic = indexing.IndexingSupport.BASIC
            return indexing.explicit_indexing_adapter(key, self.shape, basic, self._values)

        def _values(self, key: tuple[int | slice, ...]) -> Any:
            if not isinstance(key[0], slice):
                return self._values((slice(key[0], key[0] + 1),))[0]
            first, last, step = key[0].indices(ends[-1])
            found = [np.zeros(0, self.dtype)]
            for (variable, change), begin, end in zip(parts, ends, ends[1:]):
                if (low := max(first, begin)) < (high := min(last, end)):
                    values = change(variable[low - begin : high - begin].values)
                    found.append(values.astype(self.dtype, copy=False))
            return np.concatenate(found)[::step]

    variable = xr.Variable(dims, indexing.LazilyIndexedArray(Chain()), attrs)
    variable.encoding["chunksizes"] = (CHUNK,)
    return variable


def _layers(raws: Sequence[xr.Dataset], order: Sequence[str]) -> list[str]:
    present = {str(name) for raw in raws for name in raw["layer_name"].values}
    found = [name for name in order if name in present]
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
    """Unique rows of all tables, and the index of each table's rows in them; -1 stays -1. order : a column to sort
    by."""
    found: list[tuple[Any, ...]] = list(dict.fromkeys(row for table in tables for row in table))
    if order is not None:
        found.sort(key=lambda row: row[order])
    place = {row: k for k, row in enumerate(found)}
    return found, [np.array([*(place[row] for row in table), -1], np.int64) for table in tables]


def _columns(rows: list[tuple[Any, ...]], count: int) -> list[list[Any]]:
    return [[row[k] for row in rows] for k in range(count)]

"""The file of a dataset: built next to its place, filled, and published by renaming.

A dataset is built as `NAME.….part`, fsynced, and renamed when it is finished: at its place it is whole or absent.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sonde.core.disk import cannot_write, sync_folder
from sonde.core.errors import DataError, Warning, typed
from sonde.core.owned_files import NewFile
from sonde.core.printable import encodable, encodable_within, name_text
from sonde.core.values import pieces, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import xarray as xr

    from sonde.core.layout import Layout
    from sonde.core.netcdf import netCDF4

_CACHE_BYTES = 48 << 20  # for the chunks of all variables of the group that is written


def write_dataset(
    path: str | PathLike[str],
    raw: xr.Dataset | None,
    summary: xr.Dataset | None,
    attrs: Mapping[str, Any],
    env: Mapping[str, Any] | None = None,
    warnings: Iterable[Warning] = (),
) -> Path:
    """Write a dataset from arrays (such as another tool's file) in one step: `path` is whole or does not exist.

    raw, summary: lazy variables are read in pieces. attrs: root attributes, `schema` at least; `sonde_version`,
    `created_utc`, `command`, `hostlist`, `job_id` and `complete` (1) have defaults. env: attributes of /env.

    Raises
    ------
    EnvironmentFailure  core.disk_full, core.cannot_write.
    DataError  core.bad_variable: a type that a dataset cannot hold.
    """
    target = Path(path)
    draft = Draft(target, None)
    try:
        with draft.opened("w") as file:
            write_attrs(file, {**default_attrs(), "complete": 1, **attrs})
            if raw is not None:
                _write_group(draft, file, "raw", raw)
            finish_file(draft, file, summary, env or {}, list(warnings))
        draft.publish()
    except BaseException:
        draft.discard()
        raise
    return target


def add_variables(path: str | PathLike[str], groups: Mapping[str, xr.Dataset]) -> None:
    """Add variables to groups of an existing dataset, in one step: a copy of it takes its place.

    Raises
    ------
    EnvironmentFailure  core.disk_full, core.cannot_write; the dataset is unchanged.
    DataError  core.bad_variable.
    """
    draft = Draft(Path(path), None)
    try:
        with draft.writing(), draft.target.open("rb") as source, draft.new.file() as copy:
            shutil.copyfileobj(source, copy)
        with draft.opened("a") as file:
            for name, data in groups.items():
                _fill_group(draft, file[name], data)
        draft.publish()
    except BaseException:
        draft.discard()
        raise


class Draft:
    """An unfinished dataset: a new file next to its place, with readable errors, published by renaming."""

    def __init__(self, target: Path, folder: Path | None) -> None:
        self.target = target
        self._new: NewFile | None = None
        self._hint = (
            f"save it elsewhere: {typed('sonde', 'data', 'recover', folder, '-o', 'ELSEWHERE')}"
            if folder
            else "choose another place"
        )

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """A context for every call that writes: netCDF's errors do not report what failed."""
        try:
            yield
        except (OSError, RuntimeError) as error:
            raise cannot_write(self.target, error, self._hint, probe=True) from error

    @property
    def new(self) -> NewFile:
        """The file, created at the first use. HDF5 locks it itself."""
        if self._new is None:
            with self.writing():
                self._new = NewFile(self.target, locked=False)
        return self._new

    @property
    def part(self) -> Path:
        """The path by which it is opened."""
        return self.new.path

    @contextlib.contextmanager
    def opened(self, mode: Literal["w", "a"]) -> Iterator[netCDF4.Dataset]:
        from sonde.core.netcdf import netCDF4

        with self.writing():
            file = netCDF4.Dataset(str(self.part), mode, format="NETCDF4")
        try:
            yield file
        except BaseException:
            with contextlib.suppress(OSError, RuntimeError):
                file.close()
            raise
        with self.writing():
            file.close()

    def publish(self) -> None:
        with self.writing():
            self.new.publish(sync=True)
            sync_folder(self.target.parent)

    def discard(self) -> None:
        if self._new is not None:
            self._new.discard()


def default_attrs() -> dict[str, Any]:
    from sonde import __version__

    return {
        "sonde_version": __version__,
        "command": "",
        "created_utc": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "hostlist": "",
        "job_id": "",
    }


def attribute(value: Any) -> Any:
    """A value in a form for an attribute: text, number, or a list of these; anything else as JSON text."""
    value = plain(value)
    if isinstance(value, bool):
        return np.int32(value)
    if value is None:
        return ""
    if isinstance(value, int):
        if abs(value) < 2**31:
            return np.int32(value)
        return np.int64(value) if abs(value) < 2**63 else str(value)
    if isinstance(value, str):  # a command line may hold bytes that are not text
        return encodable(value)
    if isinstance(value, float):
        return value
    if isinstance(value, list | tuple) and value:
        if all(isinstance(item, str) for item in value):
            return [encodable(item) for item in value]
        if all(isinstance(item, int | float) for item in value):
            return np.asarray(value)
    return json.dumps(encodable_within(value), default=plain)


def write_attrs(group: netCDF4.Dataset | netCDF4.Variable[Any], attrs: Mapping[str, Any]) -> None:
    group.setncatts({str(name): attribute(value) for name, value in attrs.items() if name != "_FillValue"})


def define(draft: Draft, group: netCDF4.Group, layout: Layout) -> dict[str, Any]:
    """Creates the dims, coordinates and variables of a layout. Returns the variables by name."""
    with draft.writing():
        for name, length in layout.dims.items():
            group.createDimension(name, length or None)
        for name, (values, attrs) in layout.coords.items():
            array = np.asarray(values)
            kind = "str" if array.dtype.kind in "OUT" else array.dtype.str
            assign(_create(group, name, (name,), kind, attrs), (slice(0, array.size),), array)
        created = {
            name: _create(group, name, v.dims, v.dtype, v.attrs, v.fill, v.chunks)
            for name, v in layout.variables.items()
        }
        _bound_cache(created.values())
    return created


def _create(
    group: netCDF4.Group,
    name: str,
    dims: tuple[str, ...],
    dtype: str,
    attrs: Mapping[str, Any],
    fill: float | int | None = None,
    chunks: tuple[int, ...] | None = None,
) -> netCDF4.Variable[Any]:
    if dtype == "str":
        variable = group.createVariable(name, str, dims)
    else:
        kind = np.dtype(dtype)
        if fill is None and kind.kind == "f":
            fill = float("nan")
        lengths = [max(1, len(group.dimensions[dim])) for dim in dims]
        packed: dict[str, Any] = {"compression": "zlib", "complevel": 1, "shuffle": True} if dims else {}
        if chunks and dims:
            packed["chunksizes"] = [
                max(1, min(wish, length)) for wish, length in zip(chunks, lengths, strict=True)
            ]
        variable = group.createVariable(name, kind, dims, fill_value=fill, **packed)
        variable.set_auto_maskandscale(False)
    write_attrs(variable, attrs)
    return variable


def _bound_cache(variables: Iterable[netCDF4.Variable[Any]]) -> None:
    """Divide the cache by chunk size. By default netCDF-C takes 64 MiB for each variable."""
    sized = []
    for variable in variables:
        lengths = variable.chunking()
        if isinstance(lengths, list) and variable.dtype is not str:
            sized.append((variable, math.prod(lengths) * variable.dtype.itemsize))
    total = sum(size for _, size in sized)
    for variable, size in sized:
        # Never 1.0: HDF5 would then hold chunks at the edge, which are never written whole, beyond any limit.
        variable.set_var_chunk_cache(min(_CACHE_BYTES * size // total, 16 * size), 1009, 0.75)


def assign(variable: netCDF4.Variable[Any], where: tuple[int | slice, ...], values: Any) -> None:
    if variable.dtype is str:
        values = np.asarray(values, dtype=object)
    variable[where or ...] = values


def _write_group(draft: Draft, file: netCDF4.Dataset, name: str, data: xr.Dataset) -> None:
    with draft.writing():
        group = file.createGroup(name)
        write_attrs(group, data.attrs)
    _fill_group(draft, group, data)


def _fill_group(draft: Draft, group: netCDF4.Group, data: xr.Dataset) -> None:
    with draft.writing():
        for dim, length in data.sizes.items():
            group.createDimension(str(dim), length or None)
    for key, variable in data.variables.items():
        _write_variable(draft, group, str(key), variable)


def _write_variable(draft: Draft, group: netCDF4.Group, name: str, variable: xr.Variable) -> None:
    kind = variable.dtype.kind
    if kind not in "biufOUST":
        raise DataError(
            "core.bad_variable",
            f"variable {name} is of type {variable.dtype}; allowed: integers, floats, booleans, strings",
            "convert it first; times are float seconds",
        )
    text = kind in "OUST"
    dtype = "str" if text else "i1" if kind == "b" else variable.dtype.newbyteorder("<").str
    fill = variable.attrs.get("_FillValue", variable.encoding.get("_FillValue"))
    chunks = variable.encoding.get("chunksizes")
    if chunks is not None and len(chunks) != variable.ndim:
        chunks = None
    dims = tuple(map(str, variable.dims))
    with draft.writing():
        created = _create(group, name, dims, dtype, variable.attrs, None if text else fill, chunks)
        _bound_cache([created])
    for where in pieces(variable):
        values = variable[where].values
        if text:
            values = _texts(name, values)
        with draft.writing():
            assign(created, where, values)


def _texts(name: str, values: np.ndarray) -> np.ndarray:
    flat = [
        name_text(item) if isinstance(item, bytes) else encodable(item) if isinstance(item, str) else item
        for item in values.ravel().tolist()
    ]
    if not all(isinstance(item, str) for item in flat):
        odd = next(item for item in flat if not isinstance(item, str))
        raise DataError(
            "core.bad_variable", f"variable {name} mixes strings with {odd!r}", "make them all strings"
        )
    texts = np.empty(len(flat), dtype=object)
    texts[:] = flat
    return texts.reshape(values.shape)


def finish_file(
    draft: Draft,
    file: netCDF4.Dataset,
    summary: xr.Dataset | None,
    env: Mapping[str, Any],
    warnings: Sequence[Warning],
) -> None:
    if summary is not None:
        _write_group(draft, file, "summary", summary)
    with draft.writing():
        write_attrs(file.createGroup("env"), env)
        group = file.createGroup("warnings")
        group.createDimension("warning", None)
        for column, long_name in (
            ("code", "stable name of the warning"),
            ("evidence", "what was seen"),
            ("hint", "advice"),
        ):
            variable = _create(group, column, ("warning",), "str", {"long_name": long_name})
            for row, warning in enumerate(warnings):
                variable[row] = encodable(getattr(warning, column))

"""Datasets, for reading: open them lazily, report what is wrong with them, validate them."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sonde.core.errors import DataError, Finding, SondeError, Warning, nearest, typed
from sonde.core.owned_files import reading
from sonde.core.room import find_room, rooms
from sonde.core.room import room as room_of
from sonde.core.values import bad_attribute, pieces, plain

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.described import Tables
    from sonde.core.layout import RoomSchema
    from sonde.core.netcdf import netCDF4

GROUPS = ("raw", "summary", "env", "warnings")
ROOT_ATTRIBUTES = (
    "schema",
    "sonde_version",
    "command",
    "created_utc",
    "seed",
    "stop_reason",
    "complete",
    "hostlist",
    "job_id",
)

INTERRUPTED = Warning(
    "core.run_was_interrupted",
    "the run was interrupted before its end; the dataset holds the results until then",
    "run it again for the complete result",
)

_HDF5 = b"\x89HDF\r\n\x1a\n"
_CLASSIC = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
_CACHE_BYTES = 16 << 20  # netCDF-C's own default, 64 MiB for each variable read, would use most of our memory
_DEFLATE_RATIO = 1032
"""The largest expansion of a byte by deflate: no complete file holds more values than that.
Source: zlib, "Maximum Compression Factor".
"""
_FREE_BYTES = (
    256 << 20
)  # allowed for values that are nowhere in the file, such as those of a run that ended at once
_TEXT_BYTES = 16  # size of a text's reference in the file; the length of the text is known only after reading
_POSITION_BYTES = 8
_COMPOSED = ("CompoundType", "VLType")
"""Types whose values are lists and records, which no array of numbers or texts can hold."""
_OF_VALUES = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError)
"""Errors that calculations on damaged values may raise; mistakes of ours raise them too."""
_FORMAL = ("data.no_long_name", "data.no_units", "data.unknown_group")
"""Findings about information for readers: no calculation fails because of these."""

# The files that this process has opened, and whether each may have any size. Errors from reading values do not name
# their file, and this does.
_opened: dict[Path, bool] = {}


def open(path: str | PathLike[str], any_size: bool = False, any_values: bool = False) -> xr.DataTree:
    """Open a dataset as an xarray DataTree, lazily: values are read when they are used, and not cached.

    path: a file that Sonde wrote. The tree holds the file open: use it in a `with`, or call `.close()`.
    any_size: accept a file that claims far more values than it can hold (see `check_claims`).
    any_values: accept a file whose variables or attributes are not as its room declares them, to find out what is wrong
    with it.
    Values are not decoded: seconds stay numbers, integers stay integers, and a missing float is NaN.
    Use one thread at a time: netCDF-C and HDF5 lock nothing, and a process with two threads in them crashes.

    Raises
    ------
    DataError  core.no_such_file, core.not_a_file, core.not_netcdf, core.not_sonde (NetCDF, but another's),
    core.damaged_file (truncated, say, or with an index that names nothing), core.newer_schema, core.claims_too_much,
    core.foreign_type.
    """
    file = Path(path)
    _recognise(file)
    import xarray as xr

    from sonde.core.netcdf import named, netCDF4

    netCDF4.set_chunk_cache(_CACHE_BYTES, 1009, 0.75)
    stack = ExitStack()
    try:
        name = stack.enter_context(named(file))
        with netCDF4.Dataset(name) as root:
            schema = root.__dict__.get("schema")
            _read_schema(file, schema)
            if not any_size:
                check_claims(root, file)  # before xarray, which reads coordinates at once
        tree = xr.open_datatree(
            name,
            engine="netcdf4",
            mask_and_scale=False,
            decode_times=False,
            decode_timedelta=False,
            cache=False,
        )
        stack.callback(tree._close or (lambda: None))
        tree.set_close(stack.close)
        tree.encoding["source"] = str(file)
    except (OSError, RuntimeError, ValueError, AttributeError, KeyError, UnicodeDecodeError) as error:
        stack.close()
        raise _damaged(file, error) from error
    _opened[file] = any_size
    if not any_values:
        try:
            found = next(misfits(tree, all_values=False), None)
        except (OSError, RuntimeError) as error:
            tree.close()
            raise _damaged(file, error) from error
        if found is not None:
            tree.close()
            raise _unfit(file, found)
    return tree


def room_schema(room: str) -> RoomSchema | None:
    """A room's schema by the room's name; None if this Sonde has no such room."""
    found = find_room(room)
    return found.schema() if found is not None else None


def misfits(tree: xr.DataTree, all_values: bool = True) -> Iterator[Finding]:
    """Findings: variables and root attributes of a dataset that its room's tables do not allow.

    all_values: check also long columns that hold neither indices nor codes.
    """
    from sonde.core import described

    room, _ = schema_of(tree)
    for name, table in _declared(tree).items():
        if not name:
            yield from described.bad_attributes(tree.attrs, table)
        elif name in tree.children:
            group = tree.children[name].to_dataset(inherit=False)
            yield from described.misfits(room, f"/{name}", group, table, all_values)


def other_titles(tree: xr.DataTree) -> list[Warning]:
    """A warning for each group with variables whose titles are not those of its room's tables."""
    from sonde.core import described

    groups = {name: table for name, table in _declared(tree).items() if name in tree.children}
    found = (
        described.other_titles(f"/{name}", tree.children[name].to_dataset(inherit=False), table)
        for name, table in groups.items()
    )
    return [warning for warning in found if warning is not None]


def _declared(tree: xr.DataTree) -> Tables:
    """The tables of a dataset's room; {} if it has none."""
    tables = getattr(room_schema(schema_of(tree)[0]), "tables", None)
    return cast("Tables", tables(tree)) if tables is not None else {}


def _unfit(file: Path, finding: Finding) -> DataError:
    """The error for a finding about a dataset that keeps a command from reading it."""
    what = f"{file} is damaged: {finding.text.removeprefix(f'{file} ')}"
    return DataError("core.damaged_file", what, _rescue(file, parts=True))


def check_claims(root: netCDF4.Dataset, file: Path) -> None:
    """Refuse a file whose variables claim far more values than its bytes can hold, or have types of the file's own.

    A few KiB can claim exabytes: chunks that were never written are read as fill values. A program that reads them all
    never ends, or runs out of memory. The limit is 256 MiB plus 1032 B for each byte of the file, the largest expansion
    of deflate. A dim counts as one column of positions, whether or not a variable uses it.

    root: the open file. file: its path.

    Raises
    ------
    DataError  core.claims_too_much, core.foreign_type.
    """
    claimed, waiting = 0, [root]
    while waiting:
        group = waiting.pop()
        waiting += group.groups.values()
        claimed += sum(_POSITION_BYTES * len(dim) for dim in group.dimensions.values())
        for variable in group.variables.values():
            dtype = variable.dtype
            if dtype is not str and type(variable.datatype).__name__ in _COMPOSED:
                raise DataError(
                    "core.foreign_type",
                    f"{file}: {group.path.rstrip('/')}/{variable.name} has a type that the file defines itself; "
                    "allowed: integers, floats, strings",
                    _rescue(file),
                )
            each = _TEXT_BYTES if dtype is str else max(1, getattr(dtype, "itemsize", 1))
            claimed += each * math.prod(map(int, variable.shape))
    size = file.stat().st_size
    if claimed > _FREE_BYTES + _DEFLATE_RATIO * size:
        raise DataError(
            "core.claims_too_much",
            f"{file} holds {size} B and claims {_decimal(claimed)} of values; allowed: 256 MiB, and "
            f"{_DEFLATE_RATIO} B for each byte of the file",
            f"if you trust it: {typed('sonde', 'data', 'validate', file, '--any-size')}, which may take long; "
            "in Python: sonde.open(FILE, any_size=True)",
        )


def _decimal(count: int) -> str:
    """A number of bytes as text: "286 GiB"."""
    for prefix in ("", "Ki", "Mi", "Gi", "Ti", "Pi"):
        if count < 1024:
            return f"{count} {prefix}B"
        count //= 1024
    return f"{count} EiB"


def expect_room(tree: xr.DataTree, room: str) -> None:
    """Refuse a dataset of another room, and name the command that shows it. A dataset without a schema passes.

    Raises
    ------
    DataError  <room>.not_<room>, as net.not_net.
    """
    schema = str(tree.attrs.get("schema", ""))
    its = schema.partition("/")[0]
    if its and its != room:
        file = tree.encoding.get("source") or "FILE"
        raise DataError(
            f"{room}.not_{room}",
            f"{file} is {schema}, not {room}/{room_of(room).version}",
            typed("sonde", its, "show", file),
        )


def summary_of(tree: xr.DataTree, room: str, path: object = None) -> xr.Dataset:
    """/summary of a room's dataset, as read. path: the file's name in errors; None for its own path.

    Raises
    ------
    DataError  those of `expect_room`; core.no_summary, with the reason if the dataset records one.
    """
    expect_room(tree, room)
    if "summary" in tree.children:
        return tree["summary"].to_dataset().load()
    name = path or tree.encoding.get("source") or "FILE"
    for warning in warnings_of(tree):
        if warning.code in ("core.analysis_failed", "core.not_analysed"):
            raise DataError("core.no_summary", f"{name}: {warning.evidence}", warning.hint)
    raise DataError("core.no_summary", f"{name} has no /summary", typed("sonde", "data", "validate", name))


def begin() -> None:
    """Mark the begin of a command: files that were opened before have nothing to do with its errors."""
    _opened.clear()


def blamed(error: BaseException, room_check: RoomCheck | None = None) -> DataError | None:
    """The cause of an error from reading values, if a dataset opened since `begin` is damaged and this explains the
    error.

    error: any error that left a command. room_check: further checks of the dataset's room. None if no opened file
    explains the error: then it is a mistake of ours. It reads the datasets again, piecewise.

    A damage is named by what is wrong in the file, never by the error alone: a mistake of ours would hide behind it.
    """
    for file, any_size in tuple(_opened.items()):
        try:
            check = room_check(file, any_size) if room_check else None
            found = validate(file, check, any_size=any_size)
            reason = next((one for one in found if _explains(one, error)), None)
            if reason is None and isinstance(error, _OF_VALUES):
                with open(file, any_size, any_values=True) as tree:
                    reason = next(itertools.chain(_absent(tree, error), _implausible(tree)), None)
        except DataError as refused:
            return refused
        if reason is not None:
            return _unfit(file, reason)
    if _opened and _of_netcdf(error):
        names = ", ".join(map(str, _opened))
        return DataError(
            "core.damaged_file", f"{names} could not be read to the end", _rescue(next(iter(_opened)))
        )
    return None


def _explains(finding: Finding, error: BaseException) -> bool:
    """Whether a finding can cause an error: findings about information for readers cannot."""
    if finding.code == "data.unreadable":
        return True
    if not isinstance(error, _OF_VALUES) or finding.code in _FORMAL:
        return False
    absent = finding.code == "data.missing_attribute" or finding.code.endswith(".missing")
    return not absent or _names(error, finding.evidence.get("variable") or finding.evidence.get("attribute"))


def _names(error: BaseException, name: object) -> bool:
    """Whether an error reports a missing item of this name."""
    return (
        isinstance(error, LookupError | AttributeError)
        and re.search(rf"(?<!\w){re.escape(str(name))}(?!\w)", str(error)) is not None
    )


def _absent(tree: xr.DataTree, error: BaseException) -> Iterator[Finding]:
    """The variable, dim or attribute that an error names, that the room declares, and that a dataset lacks."""
    for group, table in _declared(tree).items():
        if not group:
            for name in table.keys() - tree.attrs.keys():
                if _names(error, name):
                    yield Finding(
                        "data.missing_attribute", f"root attribute {name} is missing", {"attribute": name}
                    )
            continue
        if group not in tree.children:
            continue
        data = tree.children[group].to_dataset(inherit=False)
        names = {*table, *(dim for what in table.values() for dim in what.dims)}
        for name in sorted(names - set(data.variables) - set(data.dims)):
            if _names(error, name):
                yield Finding("data.missing_variable", f"/{group}/{name} is missing", {"variable": name})


def _implausible(tree: xr.DataTree) -> Iterator[Finding]:
    """Findings for numbers that no dataset holds: infinite, or 10^18 and more. For declared variables the room sets the
    limits.
    """
    from sonde.core.allowed import PLAUSIBLE, first_wrong

    declared = _declared(tree)
    for group in ("raw", "summary"):
        if group not in tree.children:
            continue
        data = tree.children[group].to_dataset(inherit=False)
        for name, variable in data.variables.items():
            what = declared.get(group, {}).get(str(name))
            if what is not None and what.allowed is not None:
                continue
            if (wrong := first_wrong(variable, PLAUSIBLE, data.sizes)) is not None:
                yield Finding("data.implausible", wrong.text(f"/{group}/{name}"), {"variable": str(name)})


def _of_netcdf(error: BaseException) -> bool:
    """Whether an error comes from the library itself: its numbers are below 0, which no errno is."""
    if isinstance(error, OSError):
        return (error.errno or 0) < 0
    return isinstance(error, RuntimeError) and str(error).startswith("NetCDF:")


def schema_of(tree: xr.DataTree) -> tuple[str, int]:
    """Room and version of a dataset: ("net", 1).

    Raises
    ------
    DataError  core.not_sonde: there is no `schema` attribute, or it is not "<room>/<version>".
    """
    return _parse_schema(tree.attrs.get("schema"), "the dataset")


def attrs(node: xr.DataTree | xr.Dataset) -> dict[str, Any]:
    """Attributes of a group as plain Python values: str, int, float, or a list of one of them."""
    return {str(name): plain(value) for name, value in node.attrs.items()}


def warnings_of(tree: xr.DataTree) -> list[Warning]:
    """The warnings in /warnings, after a warning that the run was interrupted, if it was."""
    warnings = []
    if "warnings" in tree.children:
        group = tree["warnings"]
        columns = [np.asarray(group[name]).tolist() for name in ("code", "evidence", "hint")]
        warnings = [Warning(str(code), str(evidence), str(hint)) for code, evidence, hint in zip(*columns)]
    if tree.attrs.get("stop_reason") == "interrupted" and INTERRUPTED.code not in {w.code for w in warnings}:
        warnings.insert(0, INTERRUPTED)
    return warnings


Check = Callable[["xr.DataTree"], Iterable[Finding]]
RoomCheck = Callable[[Path, bool], Check]


def validate(
    path: str | PathLike[str], room: Check | None = None, values: bool = True, any_size: bool = False
) -> list[Finding]:
    """All properties of a dataset that violate the format; an empty list if it is valid.

    path: the file. room: further checks of the dataset's room. values: also read every value, which finds damaged
    chunks and intervals that do not contain their estimate. any_size: as for `open`.

    Raises
    ------
    DataError  as `open`, when the file cannot be opened as a dataset at all.
    """
    with open(path, any_size, any_values=True) as tree:
        found = [*_check_root(tree), *_check_groups(tree), *_check_warnings(tree)]
        for name in ("raw", "summary"):
            if name in tree.children:
                group = tree.children[name].to_dataset(inherit=False)
                found += _check_variables(name, group)
                if values:
                    found += _check_values(name, group)
        if any(finding.code == "data.unreadable" for finding in found):
            return found
        if values:
            unfit = list(misfits(tree))
            found += unfit
        else:
            unfit = []
        if (
            room is not None and not unfit
        ):  # a room's own check calculates with the values that its tables promise
            found += room(tree)
    return found


def _check_root(tree: xr.DataTree) -> Iterator[Finding]:
    here = attrs(tree)
    for name in ROOT_ATTRIBUTES:
        if name not in here:
            yield Finding("data.missing_attribute", f"root attribute {name} is missing", {"attribute": name})
    if "complete" in here and here["complete"] not in (0, 1):
        yield bad_attribute("complete", here["complete"], "0 or 1")
    if "seed" in here and type(here["seed"]) is not int:
        yield bad_attribute("seed", here["seed"], "an integer")
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)"
    if "created_utc" in here and not re.fullmatch(stamp, str(here["created_utc"])):
        yield bad_attribute("created_utc", here["created_utc"], "a time such as 2026-11-20T21:47:57Z")


def _check_groups(tree: xr.DataTree) -> Iterator[Finding]:
    if "raw" not in tree.children and "summary" not in tree.children:
        yield Finding("data.missing_group", "there is neither /raw nor /summary, so nothing was measured", {})
    for name in ("env", "warnings"):
        if name not in tree.children:
            yield Finding("data.missing_group", f"group /{name} is missing", {"group": name})
    for name in tree.children:
        if name not in GROUPS:
            yield Finding(
                "data.unknown_group", f"group /{name} is unknown{nearest(name, GROUPS)}", {"group": name}
            )


def _check_warnings(tree: xr.DataTree) -> Iterator[Finding]:
    if "warnings" not in tree.children:
        return
    group = tree["warnings"]
    for name in ("code", "evidence", "hint"):
        if name not in group.data_vars:
            yield Finding(
                "data.missing_variable",
                f"/warnings has no {name}(warning)",
                {"group": "warnings", "variable": name},
            )
        elif group[name].dims != ("warning",):
            yield Finding(
                "data.bad_dims",
                f"/warnings/{name} has dims ({', '.join(map(str, group[name].dims))}); allowed: (warning)",
                {"group": "warnings", "variable": name},
            )


def _check_variables(group: str, data: xr.Dataset) -> Iterator[Finding]:
    for name, variable in data.variables.items():
        where = {"group": group, "variable": str(name)}
        if "long_name" not in variable.attrs:
            yield Finding("data.no_long_name", f"/{group}/{name} has no long_name", where)
        if "units" not in variable.attrs and variable.dtype.kind in "iuf":
            yield Finding("data.no_units", f"/{group}/{name} has no units", where)
        if variable.dtype.kind not in "iufOUST":
            yield Finding(
                "data.bad_type",
                f"/{group}/{name} is of type {variable.dtype}; allowed: integers, floats, strings",
                where,
            )
    for name in data.data_vars:
        for end in ("_low", "_high"):
            other = f"{name}{end}"
            if other in data.data_vars and data[other].dims != data[name].dims:
                yield Finding(
                    "data.bad_dims",
                    f"/{group}/{other} has dims ({', '.join(map(str, data[other].dims))}), "
                    f"but {name} has ({', '.join(map(str, data[name].dims))})",
                    {"group": group, "variable": other},
                )


def _check_values(group: str, data: xr.Dataset) -> Iterator[Finding]:
    for name, variable in data.variables.items():
        try:
            for where in pieces(variable):
                variable[where].values  # noqa: B018
        except (OSError, RuntimeError, ValueError) as error:
            yield Finding(
                "data.unreadable",
                f"/{group}/{name} cannot be read",
                {"group": group, "variable": str(name), "library": str(error)},
            )
            return
    for name in data.data_vars:
        low, high = data.get(f"{name}_low"), data.get(f"{name}_high")
        if low is None or high is None or not low.dims == high.dims == data[name].dims:
            continue
        if any(one.dtype.kind not in "iuf" for one in (low, data[name], high)):
            yield Finding(
                "data.bad_type",
                f"/{group}/{name} has an interval, so {name}, {name}_low and {name}_high must be numbers",
                {"group": group, "variable": str(name)},
            )
            continue
        wrong = 0
        for where in pieces(low.variable):
            a, m, b = (
                low.variable[where].values,
                data[name].variable[where].values,
                high.variable[where].values,
            )
            wrong += int(np.count_nonzero((a > m) | (m > b)))
        if wrong:
            yield Finding(
                "data.bad_interval",
                f"/{group}/{name} is outside [{name}_low, {name}_high] in {wrong} of {low.size} cells",
                {"group": group, "variable": str(name), "cells": wrong},
            )


def _recognise(file: Path) -> None:
    """Raise the DataError for a file that cannot be a dataset, judged by its first bytes."""
    try:
        size = file.stat().st_size
        if file.is_dir():
            raise DataError(
                "core.not_a_file",
                f"{file} is a folder, not a dataset",
                typed("sonde", "data", "recover", file)
                if (file / "run.json").exists()
                else "give a .nc file in it",
            )
        with reading(file) as stream:
            head = stream.read(48)
    except FileNotFoundError:
        raise DataError(
            "core.no_such_file", f"{file} does not exist{_alike(file)}", _folder_hint(file)
        ) from None
    except OSError as error:
        raise DataError(
            "core.cannot_read", f"cannot read {file}: {error.strerror or error}", "check its permissions"
        ) from None
    if head.startswith(_CLASSIC):
        raise _foreign(file, "is NetCDF of the classic format")
    if size == 0 or (_HDF5.startswith(head[:8]) and size < 48):
        raise DataError("core.damaged_file", f"{file} is cut off: it holds {size} bytes", _rescue(file))
    if not head.startswith(_HDF5):
        raise DataError(
            "core.not_netcdf",
            f"{file} is not NetCDF: it begins with {head[:8]!r}",
            "give a .nc file that Sonde wrote; block files are read with `sonde data recover RUN_DIR`",
        )
    if (promised := _hdf5_bytes(head)) is not None and promised > size:
        raise DataError(
            "core.damaged_file",
            f"{file} is cut off: it holds {size} of {promised} bytes",
            _rescue(file),
        )


def _hdf5_bytes(head: bytes) -> int | None:
    """The length of an HDF5 file as its header states it; None if the header does not state it.

    Source: HDF5 File Format Specification 3.0, II.A.
    """
    version = head[8]
    if version in (0, 1) and head[13] == 8:
        begin = 40 if version == 0 else 44
    elif version in (2, 3) and head[9] == 8:
        begin = 28
    else:
        return None
    return int.from_bytes(head[begin : begin + 8], "little") if len(head) >= begin + 8 else None


def _alike(file: Path) -> str:
    try:
        return nearest(file.name, [entry.name for entry in file.parent.iterdir()])
    except OSError:
        return ""


def _folder_hint(file: Path) -> str:
    run = file.with_suffix(".run")
    return f"its run did not end properly: {_recover(run)}" if run.is_dir() else "check the name"


def _recover(run: Path) -> str:
    return typed("sonde", "data", "recover", run)


def _rescue(file: Path, parts: bool = False) -> str:
    """The hint for a damaged file. parts: whether some of it can be read."""
    for stem in (file.stem, file.stem.rpartition("-")[0]):  # a run with several modes has one folder
        if stem and (run := file.with_name(f"{stem}.run")).is_dir():
            return _recover(run)
    if parts:
        which = typed("sonde", "data", "validate", file)
        return f"copy it again from where it was measured; {which} shows which parts are lost"
    return "copy it again from where it was measured; the missing part cannot be computed"


def _damaged(file: Path, error: Exception) -> DataError:
    if isinstance(error, OSError) and (error.errno or 0) > 0:
        return DataError(
            "core.cannot_read", f"cannot read {file}: {error.strerror or error}", "check its permissions"
        )
    what = "is damaged: the NetCDF library cannot read its structure"
    return DataError("core.damaged_file", f"{file} {what}", _rescue(file))


def _foreign(file: Path, what: str) -> DataError:
    expected = ", ".join(f"{room.name}/{room.version}" for room in rooms())
    return DataError(
        "core.not_sonde",
        f"{file} {what}, not a dataset of Sonde (expected schema: {expected})",
        f"if clustbench wrote it: {typed('sonde', 'net', 'convert', file, f'{file.stem}-sonde.nc', '--to', 'sonde')}",
    )


def _parse_schema(schema: Any, what: str) -> tuple[str, int]:
    match = re.fullmatch(r"([a-z]+)/([1-9]\d{0,8})", schema) if isinstance(schema, str) else None
    if match is None:
        raise DataError(
            "core.not_sonde",
            f"{what} has the schema {schema!r}, not one such as net/1",
            "sonde data validate FILE",
        )
    return match[1], int(match[2])


def _read_schema(file: Path, schema: Any) -> None:
    try:
        room, version = _parse_schema(schema, str(file))
    except SondeError:
        fault = "holds no attribute `schema`" if schema is None else f"has the schema {schema!r}"
        raise _foreign(file, f"is NetCDF and {fault}") from None
    known = find_room(room)
    if known is not None and version > known.version:
        raise DataError(
            "core.newer_schema",
            f"{file} has the schema {room}/{version}; this Sonde reads up to {room}/{known.version}",
            "use the version of Sonde that wrote it, or a newer one",
        )

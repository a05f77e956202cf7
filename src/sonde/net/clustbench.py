"""clustbench's files: their format, and how to read them through handles that the caller opens.

All are NetCDF-3 with 64-bit offsets, in seconds, without attributes.

    v1            PREFIX_{average,median,deviation,min}.nc: data(n, x, y), test_type is a number
    v2            the same, test_type is a text; PREFIX_measurements_amount.nc: data(n, x, y);
                  PREFIX_all.nc: data(n, x, y, z), every delay, -1 past the last
    fixed length  fixed_length_SIZE.nc: data(n, x, y), n is the repetition
    spectrum      spectrum_SIZE_WINDOW.nc: data(src, dest, pos, spek), amplitude of every harmonic

Matrix k is for messages of begin + k * step bytes. The axes are misleading: a row contains the measurements of one
process, so x is the receiver and y the sender (for `put` the reverse), although clustbench's own scripts call the first
axis "src". Outside `data`, (src, dst) here always means sender and receiver.

Source: the files themselves, and docs/reference/clustbench.md, which gives the source of each definition.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sonde.core.errors import DataError, nearest

if TYPE_CHECKING:
    from sonde.core.netcdf import netCDF4

Form = Literal["v1", "v2", "fixed_length", "spectrum"]

KINDS = {"average": 1, "median": 2, "deviation": 3, "min": 4, "all": 5, "measurements_amount": 6}
STATISTICS = ("average", "median", "deviation", "min")
_KIND_OF = {number: kind for kind, number in KINDS.items()}

TEST_TYPES = {
    "one_to_one": 1,
    "all_to_all": 2,
    "async_one_to_one": 3,
    "send_recv_and_recv_send": 4,
    "noise": 5,
    "noise_blocking": 6,
    "bcast": 7,
    "put": 8,
    "get": 9,
    "directed_one_to_one": 10,
}
_MODE_OF = {number: mode for mode, number in TEST_TYPES.items()}

# The quantity that clustbench times in each mode, in the terms of net/1.
VALUE_OF_MODE = {
    "one_to_one": "recv_duration",
    "directed_one_to_one": "recv_duration",
    "noise": "recv_duration",
    "noise_blocking": "recv_duration",
    "all_to_all": "completion",
    "async_one_to_one": "completion",
    "send_recv_and_recv_send": "completion",
    "bcast": "completion",
    "put": "completion",
    "get": "completion",
}

# Modes in which a process also sends to itself. In the others the diagonal contains arbitrary memory.
SELF_MODES = ("all_to_all", "async_one_to_one", "bcast")

PADDING = -1.0


def row_is_sender(mode: str) -> bool:
    """Whether a row of `data` is the sender: only in `put`, where the sender measures."""
    return mode == "put"


# ---- names ---------------------------------------------------------------------------------------

_SET_NAME = re.compile(
    r"(?P<prefix>.*)_(?P<kind>measurements_amount|average|median|deviation|min|all)\.nc", re.S
)
_FIXED_NAME = re.compile(r"fixed_length_(?P<size>\d+)\.nc")
_SPECTRUM_NAME = re.compile(r"spectrum_(?P<size>\d+)_(?P<window>\d+)\.nc")


def split_name(name: str) -> tuple[str, str] | None:
    """("PREFIX", "median") from "PREFIX_median.nc"; None if the name does not belong to a set."""
    found = _SET_NAME.fullmatch(name)
    return (found["prefix"], found["kind"]) if found else None


def set_name(prefix: str, kind: str) -> str:
    """The name of one file of a set; kind is one of KINDS, or "hosts"."""
    return f"{prefix}_hosts.txt" if kind == "hosts" else f"{prefix}_{kind}.nc"


def fixed_length_name(size: int) -> str:
    return f"fixed_length_{size}.nc"


def spectrum_name(size: int, window: int) -> str:
    return f"spectrum_{size}_{window}.nc"


def fixed_length_of(name: str) -> int | None:
    """The message size (B) in the name of a fixed-length file, which is not in the file itself."""
    found = _FIXED_NAME.fullmatch(name)
    return int(found["size"]) if found else None


def spectrum_of(name: str) -> tuple[int, int] | None:
    """The size (B) and window (samples) in the name of a spectrum file; neither is in the file."""
    found = _SPECTRUM_NAME.fullmatch(name)
    return (int(found["size"]), int(found["window"])) if found else None


# ---- header --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Header:
    """The scalar variables of a file. Sizes in B; matrix k is for begin + k * step, end excluded."""

    ranks: int
    mode: str
    begin: int
    end: int
    step: int
    repeats: int
    noise_size: int = 0
    noise_messages: int = 0
    noise_ranks: int = 0

    def count(self) -> int:
        """The number of matrices that the header promises."""
        return max(0, -(-(self.end - self.begin) // self.step)) if self.step > 0 else 1

    def sizes(self, count: int) -> np.ndarray:
        """(count,) int, B: the message size of each matrix."""
        return self.begin + self.step * np.arange(count, dtype=np.int64)


@dataclass(frozen=True)
class Structure:
    """Everything in a file except `data`: dims in order (None is unlimited), variables in order, values.

    variables: name, type as numpy writes it, dims. Unknown variables are stored like known ones.
    """

    dims: tuple[tuple[str, int | None], ...]
    variables: tuple[tuple[str, str, tuple[str, ...]], ...]
    values: Mapping[str, int | float | str | list[Any]]
    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # "" for global ones

    def as_json(self) -> str:
        parts = {"dims": self.dims, "variables": self.variables, "values": self.values}
        return json.dumps({**parts, "attributes": self.attributes})

    @staticmethod
    def from_json(text: str) -> Structure:
        """The structure that `as_json` wrote. KeyError, TypeError, ValueError: the text is something else."""
        try:
            parts = json.loads(text)
        except RecursionError as error:
            raise ValueError(str(error)) from None
        dims = tuple((str(name), length) for name, length in parts["dims"])
        if not all(length is None or (type(length) is int and 0 <= length < 2**63) for _, length in dims):
            raise ValueError("a dimension's length is not a number")
        values, attributes = parts["values"], parts["attributes"]
        if not isinstance(values, dict) or not isinstance(attributes, dict):
            raise TypeError("values and attributes are not objects")
        return Structure(
            dims,
            tuple((str(name), str(kind), tuple(map(str, its))) for name, kind, its in parts["variables"]),
            values,
            attributes,
        )

    def strange(self) -> list[str]:
        """Names of the variables that clustbench's own writer does not define for every test."""
        return [name for name, _, _ in self.variables if name not in _KNOWN]

    def with_records(self, chosen: Sequence[int]) -> Structure:
        """The same with only these records of dim n."""
        lengths = dict(self.dims)
        values = dict(self.values)
        for name, kind, dims in self.variables:
            if name == "data" or dims[:1] != ("n",):
                continue
            if kind[1] == "S":
                width = math.prod(lengths[dim] or 1 for dim in dims[1:])
                text = str(values[name])
                values[name] = "".join(text[k * width : (k + 1) * width] for k in chosen)
            else:
                values[name] = np.asarray(values[name])[list(chosen)].tolist()
        dims_ = tuple((name, len(chosen) if name == "n" and length else length) for name, length in self.dims)
        return replace(self, dims=dims_, values=values)

    def with_values(self, **values: int | float | str | list[Any]) -> Structure:
        """The same with new values of existing variables."""
        known = {name for name, _, _ in self.variables}
        return replace(self, values={**self.values, **{k: v for k, v in values.items() if k in known}})


_KNOWN = (
    "proc_num",
    "test_type",
    "data_type",
    "begin_mes_length",
    "end_mes_length",
    "step_length",
    "noise_mes_length",
    "num_noise_mes",
    "num_noise_proc",
    "num_repeates",
    "num_repeats",
    "data",
)


@dataclass(frozen=True)
class View:
    """An open file of a recognised kind.

    kind: one of KINDS, or "fixed_length", "spectrum". count: matrices (repetitions in a fixed-length file, windows in a
    spectrum). depth: z of _all, spek of a spectrum, else 0.
    """

    name: str
    form: Form
    kind: str
    header: Header
    count: int
    depth: int
    nc: netCDF4.Dataset

    @property
    def data(self) -> netCDF4.Variable:
        return self.nc.variables["data"]


def look(nc: netCDF4.Dataset, name: str) -> View:
    """Recognise an open file by its content.

    Parameters
    ----------
    nc : an open file; conversions of values are switched off on it
    name : its file name, for messages and for information that only names contain

    Raises
    ------
    DataError  net.not_clustbench, net.clustbench_empty, net.clustbench_contradiction (dims, counts and
    names that do not agree).
    """
    nc.set_auto_maskandscale(False)
    nc.set_auto_chartostring(False)
    data = nc.variables.get("data")
    dims = tuple(data.dimensions) if data is not None and _is_number(data) else ()
    if dims == ("src", "dest", "pos", "spek"):
        return _look_at_spectrum(nc, name)
    if dims not in (("n", "x", "y"), ("n", "x", "y", "z")):
        found = f"data({', '.join(dims)})" if dims else "no numbers named data"
        raise DataError(
            "net.not_clustbench",
            f"{name} is NetCDF, but not a file of clustbench: it has {found}",
            "a file of clustbench has data(n, x, y), data(n, x, y, z) or data(src, dest, pos, spek)",
        )
    lengths = {dim: len(nc.dimensions[dim]) for dim in dims}
    if lengths["x"] != lengths["y"]:
        raise _contradiction(name, f"its matrices are {lengths['x']} × {lengths['y']}, not square")
    names = list(nc.variables)
    header = _read_header(nc, name)
    if header.ranks != lengths["x"]:
        wide = f"{lengths['x']} × {lengths['x']}"
        raise _contradiction(name, f"proc_num is {header.ranks}, but its matrices are {wide}")
    form: Form
    # clustbench's slicer defines the noise variables after data; its benchmarks define them before data or not at all.
    if "noise_mes_length" in names and names.index("noise_mes_length") > names.index("data"):
        form = "fixed_length"
    else:
        form = "v1" if _is_number(_variable(nc, name, "test_type")) else "v2"
    kind = _kind(nc, name, form)
    count = lengths["n"]
    if form != "fixed_length":
        if (kind == "all") != ("z" in lengths):
            claim = f"data_type means {kind}"
            raise _contradiction(name, f"{claim}, but it has data({', '.join(dims)})")
        if count > header.count():
            steps = f"{header.begin} to {header.end} B by {header.step}"
            promised = f"lengths {steps} make {header.count()} matrices"
            raise _contradiction(name, f"{promised}, but there are {count}")
    if count == 0:
        raise DataError(
            "net.clustbench_empty",
            f"{name} has no matrix",
            "its run was stopped before the first length was finished: measure again",
        )
    return View(name, form, kind, header, count, lengths.get("z", 0), nc)


def structure_of(view: View) -> Structure:
    """The content of the file except `data`, in a form that can be written again unchanged."""
    nc = view.nc
    dims = tuple((name, None if dim.isunlimited() else len(dim)) for name, dim in nc.dimensions.items())
    variables = tuple((n, v.dtype.str, tuple(v.dimensions)) for n, v in nc.variables.items())
    values: dict[str, Any] = {}
    attributes: dict[str, Mapping[str, Any]] = {}
    for name, variable in nc.variables.items():
        if name != "data":
            values[name] = _plain(variable[...])
        if variable.ncattrs():
            attributes[name] = {key: _plain(variable.getncattr(key)) for key in variable.ncattrs()}
    if nc.ncattrs():
        attributes[""] = {key: _plain(nc.getncattr(key)) for key in nc.ncattrs()}
    return Structure(dims, variables, values, attributes)


def _plain(value: Any) -> Any:
    array = np.asarray(value)
    if array.dtype.kind == "S":
        return array.tobytes().decode("latin-1")
    return array.tolist()


def _look_at_spectrum(nc: netCDF4.Dataset, name: str) -> View:
    ranks, others, count, depth = (len(nc.dimensions[dim]) for dim in ("src", "dest", "pos", "spek"))
    if ranks != others:
        raise _contradiction(name, f"it has spectra of {ranks} × {others} pairs, not square")
    size_and_window = spectrum_of(name)
    if size_and_window and size_and_window[1] // 2 + 1 != depth:
        harmonics = f"a window of {size_and_window[1]} has {size_and_window[1] // 2 + 1} harmonics"
        raise _contradiction(name, f"{harmonics}, but it has {depth}")
    if count == 0:
        raise DataError("net.clustbench_empty", f"{name} has no spectrum", "use a smaller window")
    size = size_and_window[0] if size_and_window else 0
    return View(
        name, "spectrum", "spectrum", Header(ranks, "unknown", size, size + 1, 1, 0), count, depth, nc
    )


def _read_header(nc: netCDF4.Dataset, name: str) -> Header:
    # clustbench has used both spellings.
    repeats = "num_repeats" if "num_repeats" in nc.variables else "num_repeates"
    return Header(
        ranks=_scalar(nc, name, "proc_num"),
        mode=_mode(nc, name),
        begin=_scalar(nc, name, "begin_mes_length"),
        end=_scalar(nc, name, "end_mes_length"),
        step=_scalar(nc, name, "step_length"),
        repeats=_scalar(nc, name, repeats),
        noise_size=_scalar(nc, name, "noise_mes_length", 0),
        noise_messages=_scalar(nc, name, "num_noise_mes", 0),
        noise_ranks=_scalar(nc, name, "num_noise_proc", 0),
    )


def _mode(nc: netCDF4.Dataset, name: str) -> str:
    if _is_number(_variable(nc, name, "test_type")):
        number = _scalar(nc, name, "test_type")
        return _MODE_OF.get(number, f"unknown_{number}")
    text = str(_plain(_variable(nc, name, "test_type")[...])).split("\0")[0].strip()
    return text.encode("latin-1", "replace").decode("utf-8", "replace") or "unknown"


def _kind(nc: netCDF4.Dataset, name: str, form: Form) -> str:
    if form == "fixed_length":
        return "fixed_length"
    number = _scalar(nc, name, "data_type")
    kind = _KIND_OF.get(number)
    if kind is None:
        known = ", ".join(f"{value} {key}" for key, value in KINDS.items())
        raise _contradiction(name, f"data_type is {number}; known: {known}")
    parts = split_name(name)
    if parts and parts[1] != kind:
        raise _contradiction(name, f"its name means {parts[1]}, but data_type is {number}, {kind}")
    return kind


def _is_number(variable: netCDF4.Variable) -> bool:
    return isinstance(variable.dtype, np.dtype) and variable.dtype.kind in "fiu"


def _variable(nc: netCDF4.Dataset, name: str, variable: str) -> netCDF4.Variable:
    if variable not in nc.variables:
        raise DataError(
            "net.not_clustbench",
            f"{name} has no variable {variable}" + nearest(variable, list(nc.variables)),
            "it looks like an incomplete file of clustbench; copy it again",
        )
    return nc.variables[variable]


def _scalar(nc: netCDF4.Dataset, name: str, variable: str, fallback: int | None = None) -> int:
    if fallback is not None and variable not in nc.variables:
        return fallback
    values = np.ravel(_variable(nc, name, variable)[...])
    if values.dtype.kind not in "iu" or len(values) != 1:
        raise _contradiction(name, f"{variable} is not one whole number")
    return int(values[0])


def _contradiction(name: str, what: str) -> DataError:
    return DataError(
        "net.clustbench_contradiction",
        f"{name} contradicts itself: {what}",
        "copy it again from where it was measured; was it edited or renamed?",
    )


def check_together(views: Sequence[View]) -> None:
    """Check that files of one set belong to one run.

    Raises
    ------
    DataError  net.clustbench_contradiction, which names two files and their difference.
    """
    first = views[0]
    for view in views[1:]:
        for what, mine, its in (
            ("proc_num", first.header.ranks, view.header.ranks),
            ("test_type", first.header.mode, view.header.mode),
            ("begin_mes_length", first.header.begin, view.header.begin),
            ("end_mes_length", first.header.end, view.header.end),
            ("step_length", first.header.step, view.header.step),
            ("the number of repetitions", first.header.repeats, view.header.repeats),
            ("the format", first.form, view.form),
        ):
            if mine != its:
                raise DataError(
                    "net.clustbench_contradiction",
                    f"{first.name} and {view.name} are not from one run: "
                    f"{what} is {mine} in the first and {its} in the second",
                    "move the files of different runs to different folders",
                )


# ---- reading -------------------------------------------------------------------------------------


def read_matrix(view: View, k: int) -> np.ndarray:
    """Matrix k of a statistic as in the file, turned to (src, dst)."""
    matrix = np.asarray(view.data[k], np.float64)
    return matrix if row_is_sender(view.header.mode) else matrix.T


def without_padding(matrix: np.ndarray, mode: str) -> np.ndarray:
    """A matrix with NaN for values that are no measurements: negative ones, and a diagonal that is not measured."""
    out = np.where(matrix < 0, np.nan, matrix)
    diagonal = np.diagonal(out)
    np.fill_diagonal(out, np.where(diagonal == 0, np.nan, diagonal) if mode in SELF_MODES else np.nan)
    return out


def read_block(view: View, src: slice, dst: slice, size: slice, sample: slice) -> np.ndarray:
    """Delays of `_all` or of a fixed-length file with padding, as (src, dst, size, sample), s."""
    turned = row_is_sender(view.header.mode)
    rows, columns = (src, dst) if turned else (dst, src)
    if view.form == "fixed_length":
        block = np.asarray(view.data[sample, rows, columns], np.float64)[None]  # size, sample, row, column
        return block.transpose(2, 3, 0, 1) if turned else block.transpose(3, 2, 0, 1)
    block = np.asarray(view.data[size, rows, columns, sample], np.float64)  # size, row, column, sample
    return block.transpose(1, 2, 0, 3) if turned else block.transpose(2, 1, 0, 3)


def series_shape(view: View) -> tuple[int, int]:
    """The number of sizes and of repetitions that `read_block` can give."""
    return (1, view.count) if view.form == "fixed_length" else (view.count, view.depth)


@dataclass(frozen=True)
class Counts:
    """The content of a file of series. n: (src, dst, size) delays before the first padding.

    after: values after padding, which are left out. negative: delays below 0, which are included.
    """

    n: np.ndarray
    after: int
    negative: int


def count_series(view: View, batch_bytes: int = 32 << 20) -> Counts:
    """Read a file of series once, in pieces of at most `batch_bytes` (or one row), and count.

    Source: clustbench fills the repetitions that its stopping rule saved with -1, and the diagonal not at all.
    """
    ranks, mode = view.header.ranks, view.header.mode
    sizes, samples = series_shape(view)
    n = np.zeros((ranks, ranks, sizes), np.int32)
    after = negative = 0
    whole, every = slice(0, ranks), slice(0, samples)
    rows = max(1, batch_bytes // max(1, 8 * ranks * samples))
    for k in range(sizes):
        for first in range(0, ranks, rows):
            part = slice(first, min(first + rows, ranks))
            where = (part, whole) if row_is_sender(mode) else (whole, part)
            block = read_block(view, *where, slice(k, k + 1), every)[:, :, 0, :]
            padded = block == PADDING
            count = np.where(padded.any(axis=-1), np.argmax(padded, axis=-1), samples)
            src, dst = np.ogrid[where[0], where[1]]
            empty = (src == dst) & ((mode not in SELF_MODES) | (block == 0).all(axis=-1))
            count[empty] = 0
            counted = np.arange(samples) < count[..., None]
            after += int((~padded & ~counted & ~empty[..., None]).sum())
            negative += int((counted & (block < 0)).sum())
            n[where[0], where[1], k] = count
    return Counts(n, after, negative)


def read_hosts(text: str, ranks: int) -> list[str] | None:
    """Hosts by rank from a `_hosts.txt`; None if it does not have one line for each rank."""
    lines = [line.strip() for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return lines if len(lines) == ranks and all(lines) else None


def hosts_text(hosts: Sequence[str]) -> str:
    """The text of a `_hosts.txt`: one host per line, by rank."""
    return "".join(f"{host}\n" for host in hosts)

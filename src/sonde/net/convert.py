"""Conversion between net/1 and clustbench's files, and slices and spectra of either. The caller opens the handles."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Literal

import numpy as np
import xarray as xr
from xarray.backends import BackendArray
from xarray.core import indexing

from sonde.core import hostlist
from sonde.core.errors import DataError, UsageError, Warning
from sonde.core.status import CAP, CONVERGED, NOT_MEASURED
from sonde.net import clustbench, schema
from sonde.net.clustbench import Counts, Header, Structure, View

# Root attribute of an imported dataset: the content of clustbench's files besides data, as JSON by kind.
STORED = "clustbench"
# Variables of /summary that store a matrix of clustbench exactly as in its file, with the diagonal.
KEPT = "clustbench_"
DIAGONAL = KEPT + "diagonal"
BLOCK_BYTES = 32 << 20

# Root attributes with the settings of the noise modes, and their names in clustbench's header.
NOISE = {"noise_bytes": "noise_size", "noise_messages": "noise_messages", "noise_ranks": "noise_ranks"}

Target = Literal["v1", "v2"]


# ---- lazy arrays ---------------------------------------------------------------------------------


class _Lazy(BackendArray):
    """An array that calls `read` for its values when they are needed: spans of each dim to values."""

    def __init__(
        self, shape: tuple[int, ...], dtype: str, read: Callable[[tuple[slice, ...]], np.ndarray]
    ) -> None:
        self.shape, self.dtype, self._spans = shape, np.dtype(dtype), read

    def __getitem__(self, key: indexing.ExplicitIndexer) -> np.ndarray:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self._take)

    def _take(self, key: tuple[int | slice, ...]) -> np.ndarray:
        spans: list[slice] = []
        rest: list[slice | int] = []
        for item, length in zip(key, self.shape):
            if isinstance(item, slice):
                chosen = range(length)[item]
                low, high = (min(chosen), max(chosen) + 1) if chosen else (0, 0)
                spans.append(slice(low, high))
                rest.append(slice(None, None, chosen.step) if chosen.step != 1 else slice(None))
            else:
                at = range(length)[int(item)]
                spans.append(slice(at, at + 1))
                rest.append(0)
        shape = tuple(span.stop - span.start for span in spans)
        values = self._spans(tuple(spans)) if 0 not in shape else np.zeros(shape, self.dtype)
        return np.asarray(values, self.dtype)[tuple(rest)]


def _lazy(
    dims: tuple[str, ...],
    shape: tuple[int, ...],
    dtype: str,
    read: Callable[[tuple[slice, ...]], np.ndarray],
    attrs: Mapping[str, Any],
    **encoding: Any,
) -> xr.Variable:
    array = indexing.LazilyIndexedArray(_Lazy(shape, dtype, read))
    return xr.Variable(dims, array, dict(attrs), encoding=encoding)


# ---- from clustbench -----------------------------------------------------------------------------


@dataclass
class Imported:
    """A run of another tool in the form of net/1. `raw` is lazy: it reads from its source handles."""

    raw: xr.Dataset | None
    summary: xr.Dataset  # the content of the files; if there is raw, to be joined with its analysis
    attrs: dict[str, Any]
    warnings: list[Warning] = field(default_factory=list)

    def tree(self) -> xr.DataTree:
        """The same in the form of an opened dataset."""
        groups = {"/": xr.Dataset(attrs=self.attrs), "/summary": self.summary}
        if self.raw is not None:
            groups["/raw"] = self.raw
        return xr.DataTree.from_dict(groups)


def from_set(views: Mapping[str, View], hosts: Sequence[str] | None) -> Imported:
    """A run from the files of one prefix.

    Parameters
    ----------
    views : open files by kind (of `clustbench.KINDS`), at least one
    hosts : host of each rank, if known

    Returns
    -------
    Imported. With `_all` there is /raw; without it /summary contains only the values of the files.

    Raises
    ------
    DataError  net.clustbench_contradiction, net.clustbench_no_delays (only _measurements_amount),
    net.one_rank.
    """
    ordered = [views[kind] for kind in clustbench.KINDS if kind in views]
    clustbench.check_together(ordered)
    first = ordered[0]
    _check_ranks(first)
    if set(views) == {"measurements_amount"}:
        raise DataError(
            "net.clustbench_no_delays",
            f"{first.name} has the numbers of delays, but no delay",
            "put the files _all, _average, _median, _deviation or _min of the same run next to it",
        )
    count = min(view.count for view in ordered)
    warnings: list[Warning] = []
    header = first.header
    if count < header.count():
        warnings.append(
            Warning(
                "net.clustbench_stopped",
                f"{count} of {header.count()} message lengths are present: the run was stopped",
                "the present lengths are complete",
            )
        )
    sizes = header.sizes(count)
    matrices = {
        kind: np.stack([clustbench.read_matrix(views[kind], k) for k in range(count)], axis=-1)
        for kind in (*clustbench.STATISTICS, "measurements_amount")
        if kind in views
    }
    attrs = _attrs(ordered, header, hosts)
    attrs["stop_reason"] = "interrupted" if count < header.count() else "epochs"
    if header.mode == "send_recv_and_recv_send" and {"median", "min"} & set(matrices):
        warnings.append(
            Warning(
                "net.clustbench_half_average",
                "in this mode clustbench halves the average, but neither median nor min",
                "compare averages with averages only",
            )
        )
    if "all" not in views:
        summary = _summary_only(header, sizes, matrices, hosts, warnings)
        return Imported(None, summary, attrs, warnings)

    view = views["all"]
    counts = clustbench.count_series(view)
    counts = replace(counts, n=counts.n[:, :, :count])
    _warn_of_counts(counts, view.name, warnings)
    amount = matrices.get("measurements_amount")
    raw = _raw(view, counts, sizes, hosts, amount, attrs)
    attrs["complete"] = _complete(counts.n, header.mode, sizes, warnings)
    _warn_of_disagreement(matrices, raw, header, warnings)
    summary = xr.Dataset(coords=_coords(header.ranks, sizes))
    _keep(summary, matrices)
    if view.header.mode not in clustbench.SELF_MODES:
        diagonal = np.stack(
            [_diagonal(view, rank, count) for rank in range(header.ranks)]
        )  # rank, size, repetition
        if diagonal.any():
            summary[DIAGONAL] = xr.Variable(
                ("src", "size", "repetition"),
                diagonal,
                {"units": "1", "long_name": "diagonal of clustbench's _all, which it does not measure"},
            )
    return Imported(raw, summary, attrs, warnings)


def from_fixed_length(view: View, size: int, hosts: Sequence[str] | None = None) -> Imported:
    """A run with one message size (B) from a fixed-length file, which does not contain that size itself."""
    _check_ranks(view)
    header = replace(view.header, begin=size, end=size + 1, step=1, repeats=view.count)
    counts = clustbench.count_series(view)
    warnings: list[Warning] = []
    _warn_of_counts(counts, view.name, warnings)
    attrs = _attrs([view], header, hosts)
    attrs["stop_reason"] = "epochs"
    sizes = np.asarray([size], np.int64)
    raw = _raw(view, counts, sizes, hosts, None, attrs)
    attrs["complete"] = _complete(counts.n, header.mode, sizes, warnings)
    return Imported(raw, xr.Dataset(coords=_coords(header.ranks, sizes)), attrs, warnings)


def from_spectrum(view: View) -> Imported:
    """Spectra from a spectrum file: /summary/spectrum (src, dst, position, harmonic). There is no /raw."""
    _check_ranks(view)
    size_and_window = clustbench.spectrum_of(view.name)
    window = size_and_window[1] if size_and_window else 0
    ranks, sizes = view.header.ranks, np.asarray([view.header.begin], np.int64)

    def read(spans: tuple[slice, ...]) -> np.ndarray:
        src, dst, position, harmonic = spans
        return np.asarray(view.data[dst, src, position, harmonic], np.float64).transpose(1, 0, 2, 3)

    summary = xr.Dataset(
        {"spectrum": _spectrum_variable(ranks, view.count, view.depth, window, read)},
        coords=_coords(ranks, sizes),
    )
    attrs = _attrs([view], view.header, None)
    del attrs[STORED]
    attrs["stop_reason"] = "epochs"
    warnings = []
    if not size_and_window:
        warnings.append(
            Warning(
                "net.clustbench_unnamed",
                f"{view.name} does not contain its message size and window; only a file name can give them",
                f"name it spectrum_SIZE_WINDOW.nc; {view.depth} harmonics belong to a window of "
                f"{2 * view.depth - 2} or {2 * view.depth - 1}",
            )
        )
    return Imported(None, summary, attrs, warnings)


def _check_ranks(view: View) -> None:
    if view.header.ranks < 2:
        raise DataError(
            "net.one_rank",
            f"{view.name} has {view.header.ranks} rank, so it has no pair",
            "measure with --ntasks 2 or more",
        )


def _attrs(views: Sequence[View], header: Header, hosts: Sequence[str] | None) -> dict[str, Any]:
    form = {"v1": "clustbench v1", "v2": "clustbench v2"}.get(views[0].form, f"clustbench {views[0].kind}")
    attrs: dict[str, Any] = {
        "schema": schema.NAME,
        "mode": header.mode,
        "epoch_length": header.repeats,
        "seed": 0,
        "hostlist": _hostlist(hosts or ()),
        "imported_from": form,
        "imported_files": ", ".join(view.name for view in views),
        STORED: json.dumps(
            {
                "form": views[0].form,
                "files": {v.kind: json.loads(clustbench.structure_of(v).as_json()) for v in views},
            }
        ),
    }
    attrs |= {name: number for name, field in NOISE.items() if (number := getattr(header, field))}
    if header.mode in ("one_to_one", "send_recv_and_recv_send", "async_one_to_one", "put", "get"):
        attrs["pairing"] = "serial"
    return attrs


def _coords(ranks: int, sizes: np.ndarray) -> dict[str, xr.Variable]:
    coordinates = schema.coordinates(ranks, sizes)
    return {name: xr.Variable((name,), values, dict(attrs)) for name, (values, attrs) in coordinates.items()}


def _hostlist(hosts: Sequence[str]) -> str:
    try:
        return hostlist.listed(dict.fromkeys(hosts))
    except UsageError:  # not valid as host names: use them unchanged
        return ",".join(dict.fromkeys(hosts))


def _keep(summary: xr.Dataset, matrices: Mapping[str, np.ndarray]) -> None:
    for kind, matrix in matrices.items():
        amount = kind == "measurements_amount"
        label = "measurements per cell" if amount else f"{kind} of the delays"
        attrs = {"units": "1" if amount else "s", "long_name": f"{label}, as clustbench wrote it"}
        summary[KEPT + kind] = xr.Variable(schema.CELL, matrix, attrs)


def _summary_only(
    header: Header,
    sizes: np.ndarray,
    matrices: Mapping[str, np.ndarray],
    hosts: Sequence[str] | None,
    warnings: list[Warning],
) -> xr.Dataset:
    clean = {
        kind: np.stack(
            [clustbench.without_padding(matrix[..., k], header.mode) for k in range(len(sizes))], axis=-1
        )
        for kind, matrix in matrices.items()
    }
    present = [clean[kind] for kind in clustbench.STATISTICS if kind in clean]
    measured = ~np.isnan(present[0])
    amount = clean.get("measurements_amount")
    n = np.where(measured, header.repeats if amount is None else np.nan_to_num(amount), 0).astype(np.int32)
    summary = xr.Dataset(coords=_coords(header.ranks, sizes))

    def put(name: str, values: np.ndarray, **more: str) -> None:
        summary[name] = xr.Variable(schema.CELL, values, {**schema.SUMMARY[name].attrs(), **more})

    put("n", n)
    if "average" in clean:
        put("mean", clean["average"])
    if "median" in clean:
        put("median", clean["median"], definition="upper of the middle two for even n: sorted[n / 2]")
    if "min" in clean:
        put("min", clean["min"])
    if "deviation" in clean:
        with np.errstate(divide="ignore", invalid="ignore"):
            widened = clean["deviation"] * np.sqrt(n / (n - 1.0))
        put("sd", np.where(n > 1, widened, np.nan), definition="from the population's deviation and n")
    if hosts:
        summary["host"] = xr.Variable(
            ("rank",), np.asarray(hosts, object), {"long_name": schema.RAW["host"].long_name}
        )
    _keep(summary, matrices)
    missing = [kind for kind in clustbench.STATISTICS if kind not in matrices]
    if missing:
        warnings.append(
            Warning(
                "net.clustbench_partial",
                f"the file of {', '.join(missing)} is missing, and there are no single delays to compute it from",
                "put the other files of the run next to this one and convert again",
            )
        )
    return summary


def _raw(
    view: View,
    counts: Counts,
    sizes: np.ndarray,
    hosts: Sequence[str] | None,
    amount: np.ndarray | None,
    attrs: dict[str, Any],
) -> xr.Dataset:
    ranks, n = view.header.ranks, counts.n
    samples = max(1, int(n.max(initial=0)))
    repeats = clustbench.series_shape(view)[1]
    mode = view.header.mode
    axis = 0 if clustbench.row_is_sender(mode) else 1
    # Chunks lie along src, in the order in which they are written, whichever rank measured.
    described = schema.raw_variables(
        ranks, len(sizes), samples, 0, clustbench.VALUE_OF_MODE.get(mode, "unknown")
    )
    shape = (ranks, ranks, len(sizes), samples)

    def measured(spans: tuple[slice, ...]) -> np.ndarray:
        return np.arange(spans[3].start, spans[3].stop) < n[spans[:3]][..., None]

    def latency(spans: tuple[slice, ...]) -> np.ndarray:
        return np.where(measured(spans), clustbench.read_block(view, *spans), np.nan)

    def epoch(spans: tuple[slice, ...]) -> np.ndarray:
        return np.where(measured(spans), 0, -1)  # clustbench measures a cell in one burst

    def t_start(spans: tuple[slice, ...]) -> np.ndarray:
        return np.full([span.stop - span.start for span in spans], np.nan)

    status = np.where(n > 0, CONVERGED, NOT_MEASURED).astype(np.int8)
    ruled = amount is not None or (n[n > 0] < repeats).any()
    if ruled:
        status[n == repeats] = CAP
    attrs["rule"] = "clustbench, unknown rule" if ruled else f"fixed:{repeats}"
    values: dict[str, Any] = {"n": n, "status": status, "host": np.asarray(hosts or [""] * ranks, object)}
    values.update({name: np.full(ranks, -1, np.int32) for name in schema.RANK_FACTS})
    raw = xr.Dataset(coords=_coords(ranks, sizes))
    for name, read in (("latency", latency), ("epoch", epoch), ("t_start", t_start)):
        what = described[name]
        about = {**what.attrs, "measured_by": schema.CELL[axis]} if name == "latency" else what.attrs
        raw[name] = _lazy(
            what.dims, shape, what.dtype, read, about, chunksizes=what.chunks, _FillValue=what.fill
        )
    for name, array in values.items():
        raw[name] = xr.Variable(described[name].dims, array, dict(described[name].attrs))
    raw.attrs = {}
    return raw


def _diagonal(view: View, rank: int, count: int) -> np.ndarray:
    one = slice(rank, rank + 1)
    return clustbench.read_block(view, one, one, slice(0, count), slice(0, view.depth))[0, 0]


def _complete(n: np.ndarray, mode: str, sizes: np.ndarray, warnings: list[Warning]) -> int:
    hint = "clustbench did not measure them, or was stopped"
    lacking = schema.without_data(n, sizes.tolist(), mode, hint)
    if lacking is not None:
        warnings.append(lacking)
    return int(lacking is None)


def _warn_of_counts(counts: Counts, name: str, warnings: list[Warning]) -> None:
    if counts.after:
        warnings.append(
            Warning(
                "net.clustbench_holes",
                f"{name} has {counts.after} values after the padding (-1) that ends a series",
                "they are left out; the file was changed after clustbench wrote it",
            )
        )
    if counts.negative:
        warnings.append(
            Warning(
                "net.clustbench_negative",
                f"{counts.negative} delays in {name} are negative",
                "the clock was set back during the measurement; measure again",
            )
        )


def _warn_of_disagreement(
    matrices: Mapping[str, np.ndarray], raw: xr.Dataset, header: Header, warnings: list[Warning]
) -> None:
    """Check that statistics given in addition to single delays agree with them; they are stored unchanged."""
    if header.mode == "send_recv_and_recv_send":
        return  # in these modes clustbench halves
    wrong: dict[str, int] = {}
    n = raw["n"].values
    amount = matrices.get("measurements_amount")
    if amount is not None:
        off = ~np.eye(header.ranks, dtype=bool)[:, :, None]
        wrong["measurements_amount"] = int(((amount != n) & off).sum())
    cells = _Cells(raw, header.mode)
    compared = [kind for kind in clustbench.STATISTICS if kind in matrices]
    for k in range(n.shape[2] if compared else 0):
        for rows, series, count in cells.blocks(k):
            own = clustbench.statistics(series.reshape(-1, series.shape[-1]), count.reshape(-1))
            for kind in compared:
                theirs = cells.turned(matrices[kind][..., k])[rows].reshape(-1)
                differs = np.abs(theirs - own[kind]) > 1e-6 * np.abs(own[kind])
                wrong[kind] = wrong.get(kind, 0) + int(differs.sum())
    for kind, cells_wrong in wrong.items():
        if cells_wrong:
            warnings.append(
                Warning(
                    "net.clustbench_disagree",
                    f"_{kind}.nc does not agree with the delays in _all.nc in {cells_wrong} cells",
                    "do both belong to the same run? Sonde computes from the delays",
                )
            )


# ---- a dataset's cells by the measuring process --------------------------------------------------


class _Cells:
    """Series of /raw in clustbench's orientation: a row contains the measurements of one process."""

    def __init__(self, raw: xr.Dataset, mode: str) -> None:
        self.latency, self.mode = raw["latency"].variable, mode
        self.ranks, self.samples = raw.sizes["src"], raw.sizes["sample"]
        self.n = raw["n"].values.astype(np.int64)
        self.sender_rows = clustbench.row_is_sender(mode)

    def turned(self, matrix: np.ndarray) -> np.ndarray:
        """(src, dst, …) as (row, column, …), and back."""
        return matrix if self.sender_rows else matrix.swapaxes(0, 1)

    def blocks(self, k: int) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Size k by pieces of about BLOCK_BYTES: rows, series (row, column, sample) s, n (row, column)."""
        step = max(1, BLOCK_BYTES // (8 * self.ranks * self.samples))
        for first in range(0, self.ranks, step):
            rows = slice(first, min(first + step, self.ranks))
            where = {"src" if self.sender_rows else "dst": rows, "size": k}
            block = self.latency.isel(where).transpose("src", "dst", "sample").values
            yield rows, self.turned(block), self.turned(self.n[:, :, k])[rows]


def raw_of(tree: xr.DataTree, name: str, what: str) -> xr.Dataset:
    """/raw of a dataset. what: the command that needs it.

    Raises
    ------
    DataError  net.no_raw: the dataset has statistics only.
    """
    if "raw" not in tree.children:
        raise DataError(
            "net.no_raw",
            f"{name} has statistics only, but {what} needs every single delay",
            "use the dataset of a run with --raw, or clustbench's PREFIX_all.nc",
        )
    return tree["raw"].to_dataset()


def index_of_size(sizes: np.ndarray, size: int, name: str) -> int:
    """The position of a message size (B) in a dataset.

    Raises
    ------
    UsageError  net.no_such_size, which lists the existing sizes.
    """
    found = np.flatnonzero(sizes == size)
    if len(found):
        return int(found[0])
    near = int(sizes[np.argmin(np.abs(sizes - size))])
    raise UsageError(
        "net.no_such_size",
        f"{name} has no messages of {size} B; it has {_listed(sizes.tolist())} B",
        f"the nearest: --size {near}",
    )


def _listed(sizes: Sequence[int], most: int = 12) -> str:
    text = ", ".join(str(size) for size in sizes[:most])
    return text + (f", … {sizes[-1]}" if len(sizes) > most else "")


# ---- to clustbench -------------------------------------------------------------------------------


@dataclass
class Exported:
    """The result of an export, and notes that a reader of the files needs but cannot see in them."""

    kinds: list[str]
    sizes: list[int]
    hosts: list[str] | None
    notes: list[str] = field(default_factory=list)
    warnings: list[Warning] = field(default_factory=list)


def export(
    tree: xr.DataTree,
    name: str,
    form: Target,
    create: Callable[[str], BinaryIO],
    sizes: Sequence[int] | None = None,
) -> Exported:
    """Write a dataset as clustbench's files.

    Parameters
    ----------
    tree : a net/1 dataset, opened lazily; read in pieces
    name : its name, for messages
    form : v1 (statistics) or v2 (statistics, and with /raw also every delay and their counts)
    create : gives an empty file for a kind, opened for writing in binary; the caller closes it
    sizes : message sizes (B) to export; default all

    Returns
    -------
    Exported. Files of a dataset that was imported from clustbench are written with the imported values.

    Raises
    ------
    DataError  net.uneven_sizes, net.clustbench_range, net.nothing_to_export.
    UsageError  net.no_such_size.
    """
    raw = tree["raw"].to_dataset() if "raw" in tree.children else None
    summary = tree["summary"].to_dataset() if "summary" in tree.children else xr.Dataset()
    of = raw if raw is not None else summary
    if "size" not in of.coords or "src" not in of.coords:
        raise DataError("net.nothing_to_export", f"{name} has no cells", "sonde data validate " + name)
    own = np.asarray(of["size"].values, np.int64)
    chosen = sorted(own.tolist() if sizes is None else set(sizes))
    at = [index_of_size(own, size, name) for size in chosen]
    begin, end, step = clustbench.progression(chosen)
    mode = str(tree.attrs.get("mode", "unknown"))
    out = Exported([], chosen, _hosts(raw, summary))
    stored = _stored(tree, form)
    sources = _sources(raw, summary, form, out)
    if not sources:
        raise DataError(
            "net.nothing_to_export",
            f"{name} has neither delays nor a mean, median, min or deviation",
            "a spectrum is written with: sonde net spectrum FILE --size S --window W",
        )
    repeats = _repeats(stored, raw, summary)
    header = Header(of.sizes["src"], mode, begin, end, step, repeats, **_noise(tree))
    structures = _structures(form, list(sources), header, stored, at, whole=len(chosen) == len(own))
    out.kinds = list(sources)
    data = {kind: clustbench.build(create(kind), structures[kind], len(at)) for kind in out.kinds}

    empty = 0
    cells = _Cells(raw, mode) if raw is not None else None
    for k, index in enumerate(at):
        for kind, take in sources.items():
            if take is not None:
                values = take(index)
                matrix = values if clustbench.row_is_sender(mode) else values.T
                data[kind].put((k, 0, 0), matrix)
        if cells is None:
            continue
        needed = [kind for kind, take in sources.items() if take is None]
        for rows, series, n in cells.blocks(index):
            ranks = np.arange(rows.start, rows.stop)
            own_cell = ranks[:, None] == np.arange(cells.ranks)
            empty += int(((n == 0) & ~own_cell).sum())
            padding = np.where(own_cell, 0.0, clustbench.PADDING)
            found = clustbench.statistics(series.reshape(-1, series.shape[-1]), n.reshape(-1))
            for kind in needed:
                if kind == "all":
                    block = _padded(series, n, own_cell, repeats, summary, rows, index)
                    data[kind].put((k, rows.start, 0, 0), block)
                elif kind == "measurements_amount":
                    data[kind].put((k, rows.start, 0), n)
                else:
                    values = found[kind].reshape(n.shape)
                    data[kind].put((k, rows.start, 0), np.where(np.isnan(values), padding, values))
    if empty:
        out.warnings.append(
            Warning(
                "net.clustbench_padded",
                f"{empty} cells have no data; they are -1 in clustbench's files",
                "clustbench's viewers draw -1 as if it were a delay",
            )
        )
    value = raw["latency"].attrs.get("value") if raw is not None else None
    usual = clustbench.VALUE_OF_MODE.get(mode)
    if value is not None and usual is not None and value != usual:
        out.notes.append(
            f"a sample here is {value}, but in clustbench's own files of mode {mode} it is {usual}: "
            "compare the two with care"
        )
    return out


def _hosts(raw: xr.Dataset | None, summary: xr.Dataset) -> list[str] | None:
    for group in (raw, summary):
        if group is not None and "host" in group:
            hosts = [str(host) for host in group["host"].values]
            if all(hosts):
                return hosts
    return None


def _stored(tree: xr.DataTree, form: Target) -> dict[str, Structure]:
    """Structures of the files from which a dataset was imported, by kind; {} for other datasets, and for another
    form.
    """
    try:
        parts = json.loads(str(tree.attrs.get(STORED, "{}")))
        if parts.get("form") != form:
            return {}
        return {kind: Structure.from_json(json.dumps(part)) for kind, part in parts["files"].items()}
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ):  # an attribute from another program
        return {}


_Take = Callable[[int], np.ndarray]


def _sources(
    raw: xr.Dataset | None, summary: xr.Dataset, form: Target, out: Exported
) -> dict[str, _Take | None]:
    """The source of each kind of file: a matrix (src, dst) by size index, or None: computed from the delays."""

    def matrix(name: str, scale: np.ndarray | None = None) -> _Take:
        def take(k: int) -> np.ndarray:
            values = np.array(summary[name].isel(size=k).transpose("src", "dst").values, np.float64)
            if name.startswith(KEPT):
                return values
            if scale is not None:
                values = values * scale[..., k]
            values = np.where(np.isnan(values), clustbench.PADDING, values)
            diagonal = np.diagonal(values)
            np.fill_diagonal(values, np.where(diagonal < 0, 0, diagonal))
            return values

        return take

    kinds = [*clustbench.STATISTICS, *(("all", "measurements_amount") if form == "v2" else ())]
    sources: dict[str, _Take | None] = {}
    for kind in kinds:
        if KEPT + kind in summary:
            sources[kind] = matrix(KEPT + kind)
        elif raw is not None:
            sources[kind] = None
    if raw is not None:
        if None in sources.values():
            out.notes.append(
                "clustbench's definitions: deviation with divisor n, median the upper of the middle two"
            )
        return sources
    for kind, name in (("average", "mean"), ("median", "median"), ("min", "min")):
        if kind not in sources and name in summary:
            sources[kind] = matrix(name)
            if kind == "median":
                out.notes.append("median from the dataset: for even n the mean of the middle two")
    if "deviation" not in sources and "sd" in summary:
        if "n" in summary:
            n = np.asarray(summary["n"].transpose(*schema.CELL).values, np.float64)
            with np.errstate(divide="ignore", invalid="ignore"):
                sources["deviation"] = matrix("sd", np.sqrt((n - 1) / n))
        else:
            sources["deviation"] = matrix("sd")
            out.notes.append("deviation with divisor n - 1: the dataset does not contain n")
    return sources


def _repeats(stored: Mapping[str, Structure], raw: xr.Dataset | None, summary: xr.Dataset) -> int:
    most = 1
    for structure in stored.values():
        lengths = dict(structure.dims)
        named = [structure.values.get(key) for key in ("num_repeates", "num_repeats")]
        most = max([most, lengths.get("z") or 0, *(int(v) for v in named if isinstance(v, int))])
    if raw is not None:
        return max(most, int(raw["n"].values.max(initial=0)))
    return max(most, int(summary["n"].values.max(initial=0)) if "n" in summary else 0)


def _noise(tree: xr.DataTree) -> dict[str, int]:
    """clustbench v1's numbers of its noise modes, from root attributes if they are known."""
    return {field: int(tree.attrs.get(name, 0)) for name, field in NOISE.items()}


def _structures(
    form: Target,
    kinds: Sequence[str],
    header: Header,
    stored: Mapping[str, Structure],
    chosen: Sequence[int],
    whole: bool,
) -> dict[str, Structure]:
    steps = {"begin_mes_length": header.begin, "end_mes_length": header.end, "step_length": header.step}
    others = [structure for kind, structure in stored.items() if kind != "all"] or list(stored.values())
    structures: dict[str, Structure] = {}
    for kind in kinds:
        if kind in stored:
            structure = stored[kind].with_records(chosen)
            structures[kind] = structure if whole else structure.with_values(**steps)
            continue
        structure = clustbench.standard(form, kind, header)
        if others:  # clustbench's plug-ins add the same variables to every file of a run
            example = others[0].with_records(chosen)
            lengths = {name for name, _ in structure.dims}
            extra = tuple(
                variable
                for variable in example.variables
                if variable[0] in example.strange() and set(variable[2]) <= lengths
            )
            structure = replace(
                structure,
                variables=(*structure.variables, *extra),
                values={**structure.values, **{name: example.values[name] for name, _, _ in extra}},
            )
            if whole:
                known = {key: example.values[key] for key in steps if key in example.values}
                structure = structure.with_values(
                    **known
                )  # preserves an end that is not a multiple of the step
        structures[kind] = structure
    return structures


def _padded(
    series: np.ndarray,
    n: np.ndarray,
    own_cell: np.ndarray,
    repeats: int,
    summary: xr.Dataset,
    rows: slice,
    index: int,
) -> np.ndarray:
    """Rows of `_all`: delays, then -1, and on the diagonal clustbench's original values, or 0."""
    out = np.full((*n.shape, repeats), clustbench.PADDING)
    width = min(repeats, series.shape[-1])
    measured = np.arange(width) < n[..., None]
    out[..., :width] = np.where(measured, series[..., :width], clustbench.PADDING)
    silent = own_cell & (n == 0)
    out[silent] = 0.0
    if DIAGONAL in summary:
        diagonal = summary[DIAGONAL].isel(src=rows, size=index).values
        out[silent] = diagonal[:, :repeats]
    return out


# ---- slices and spectra --------------------------------------------------------------------------


def slice_raw(raw: xr.Dataset, k: int) -> xr.Dataset:
    """/raw with only one message size, still lazy, cut to its longest series."""
    one = raw.isel(size=[k])
    longest = max(1, int(one["n"].values.max(initial=0)))
    return one.isel(sample=slice(0, longest))


def write_fixed_length(tree: xr.DataTree, raw: xr.Dataset, k: int, stream: BinaryIO) -> int:
    """Write size number k of a dataset as clustbench's fixed-length file; return its repetitions."""
    mode = str(tree.attrs.get("mode", "unknown"))
    cells = _Cells(raw, mode)
    repetitions = max(1, int(cells.n[:, :, k].max(initial=0)))
    header = Header(cells.ranks, mode, 0, repetitions, 1, repetitions, **_noise(tree))
    data = clustbench.build(stream, clustbench.fixed_length(header, repetitions), 0)
    for rows, series, n in cells.blocks(k):
        own_cell = np.arange(rows.start, rows.stop)[:, None] == np.arange(cells.ranks)
        block = _padded(series, n, own_cell, repetitions, xr.Dataset(), rows, k)
        data.put((0, rows.start, 0), block.transpose(2, 0, 1))
    return repetitions


def no_statistics(raw: xr.Dataset) -> xr.Dataset:
    """A /summary that contains only the coordinates of the cells."""
    return xr.Dataset(coords={name: raw[name].variable for name in schema.CELL})


Amplitude = Callable[[np.ndarray, int], np.ndarray]


def check_window(longest: int, window: int) -> None:
    """Check that a window (samples) fits a series.

    Raises
    ------
    UsageError  net.bad_window.
    """
    if not 2 <= window <= longest:
        raise UsageError(
            "net.bad_window",
            f"a window of {window} samples does not fit the longest series, {longest}",
            f"--window takes 2 to {longest}" if longest >= 2 else "measure more samples",
        )


def write_spectrum(
    tree: xr.DataTree, raw: xr.Dataset, k: int, window: int, amplitude: Amplitude, stream: BinaryIO
) -> int:
    """Write the spectra of all windows of size number k as clustbench's spectrum file, pair by pair.

    Parameters
    ----------
    amplitude : series (n,) s, window -> (n - window + 1, window // 2 + 1) s
    stream : an empty file, opened for writing in binary

    Returns
    -------
    Window positions written: n - window + 1 for the longest series (clustbench itself leaves out the last one). NaN if
    a pair has fewer, or was not measured.
    """
    cells = _Cells(raw, str(tree.attrs.get("mode", "unknown")))
    longest = int(cells.n[:, :, k].max(initial=0))
    check_window(longest, window)
    positions = longest - window + 1
    data = clustbench.build(stream, clustbench.spectrum(cells.ranks, positions, window), 0)
    for rows, series, n in cells.blocks(k):
        for row in range(rows.start, rows.stop):
            for column in range(cells.ranks):
                count = int(n[row - rows.start, column])
                out = np.full((positions, window // 2 + 1), np.nan)
                if count >= window:
                    delays = np.ascontiguousarray(series[row - rows.start, column, :count])
                    out[: count - window + 1] = amplitude(delays, window)
                data.put((row, column, 0, 0), out)
    return positions


def spectrum_summary(raw: xr.Dataset, k: int, window: int, amplitude: Amplitude) -> xr.Dataset:
    """/summary with spectrum (src, dst, position, harmonic) of size number k; lazy, one pair at a time."""
    n = raw["n"].transpose(*schema.CELL).values[:, :, k].astype(np.int64)
    longest = int(n.max(initial=0))
    check_window(longest, window)
    latency = raw["latency"].variable.isel(size=k).transpose("src", "dst", "sample")
    last: dict[tuple[int, int], np.ndarray] = {}

    def pair(src: int, dst: int) -> np.ndarray:
        if (src, dst) not in last:
            out = np.full((longest - window + 1, window // 2 + 1), np.nan)
            count = int(n[src, dst])
            if count >= window:
                delays = np.ascontiguousarray(latency[src, dst, :count].values, np.float64)
                out[: count - window + 1] = amplitude(delays, window)
            last.clear()
            last[src, dst] = out
        return last[src, dst]

    def read(spans: tuple[slice, ...]) -> np.ndarray:
        src, dst, position, harmonic = (range(span.start, span.stop) for span in spans)
        out = np.empty((len(src), len(dst), len(position), len(harmonic)))
        for i, s in enumerate(src):
            for j, d in enumerate(dst):
                out[i, j] = pair(s, d)[spans[2], spans[3]]
        return out

    ranks = raw.sizes["src"]
    variable = _spectrum_variable(ranks, longest - window + 1, window // 2 + 1, window, read)
    sizes = np.asarray([int(raw["size"].values[k])], np.int64)
    return xr.Dataset({"spectrum": variable}, coords=_coords(ranks, sizes))


def _spectrum_variable(
    ranks: int,
    positions: int,
    harmonics: int,
    window: int,
    read: Callable[[tuple[slice, ...]], np.ndarray],
) -> xr.Variable:
    attrs = schema.SUMMARY["spectrum"].attrs()
    if window:
        attrs["window"] = window
    shape = (ranks, ranks, positions, harmonics)
    chunk = (1, 1, max(1, min(positions, schema.CHUNK_BYTES // 8 // harmonics)), harmonics)
    return _lazy(schema.SUMMARY["spectrum"].dims, shape, "<f8", read, attrs, chunksizes=chunk)


def joined_summary(imported: Imported) -> tuple[xr.Dataset, list[Warning]]:
    """/summary of an imported run: the results of its analysis, and the statistics from its files.

    Without delays, medians still give link classes and slow links. As in sealing, a failed analysis is a warning: the
    imported data are still stored.
    """
    try:
        if imported.raw is None:
            if "median" not in imported.summary:
                return imported.summary, []
            from sonde.net.analyse import structure

            found = structure(imported.summary)
        else:
            found = schema.SCHEMA.analyse(imported.raw.assign_attrs(imported.attrs))
        return found.merge(imported.summary, compat="override", combine_attrs="override"), []
    except Exception as error:
        return imported.summary, [
            Warning(
                "core.analysis_failed",
                f"/summary could not be computed: {type(error).__name__}: {error}",
                "the imported data are complete; a corrected version of Sonde can analyse them",
            )
        ]

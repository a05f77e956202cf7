"""Runs of clustbench as datasets of net/1. The caller opens the files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import xarray as xr

from sonde.core import hostlist
from sonde.core.errors import DataError, UsageError, Warning
from sonde.core.status import CAP, CONVERGED, NOT_MEASURED
from sonde.net import clustbench, clustbench_layout, schema, sealing
from sonde.net.clustbench import Counts, Header, View
from sonde.net.clustbench_cells import Cells
from sonde.net.variables import coords, lazy, spectrum_variable

# Root attribute of an imported dataset: the content of clustbench's files besides data, as JSON by kind.
STORED = "clustbench"
# Variables of /summary that store a matrix of clustbench exactly as in its file, with the diagonal.
DIAGONAL = f"{schema.CLUSTBENCH}diagonal"

# Root attributes with the settings of the noise modes, and their names in clustbench's header.
NOISE = {"noise_bytes": "noise_size", "noise_messages": "noise_messages", "noise_ranks": "noise_ranks"}


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
    summary = xr.Dataset(coords=coords(header.ranks, sizes))
    _keep(summary, matrices)
    if view.header.mode not in clustbench.SELF_MODES:
        diagonal = np.stack(
            [_diagonal(view, rank, count) for rank in range(header.ranks)]
        )  # rank, size, repetition
        if diagonal.any():
            summary[DIAGONAL] = schema.SUMMARY[DIAGONAL].with_values(diagonal)
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
    return Imported(raw, xr.Dataset(coords=coords(header.ranks, sizes)), attrs, warnings)


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
        {"spectrum": spectrum_variable(ranks, view.count, view.depth, window, read)},
        coords=coords(ranks, sizes),
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


def _hostlist(hosts: Sequence[str]) -> str:
    try:
        return hostlist.listed(dict.fromkeys(hosts))
    except UsageError:  # not valid as host names: use them unchanged
        return ",".join(dict.fromkeys(hosts))


def _keep(summary: xr.Dataset, matrices: Mapping[str, np.ndarray]) -> None:
    for kind, matrix in matrices.items():
        name = schema.CLUSTBENCH + kind
        summary[name] = schema.SUMMARY[name].with_values(matrix)


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
    summary = xr.Dataset(coords=coords(header.ranks, sizes))

    def put(name: str, values: np.ndarray, **more: str) -> None:
        what = replace(schema.SUMMARY[name], method="")  # clustbench computed it
        summary[name] = what.with_values(values, more)

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
        summary["host"] = schema.SUMMARY["host"].with_values(hosts)
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
    raw = xr.Dataset(coords=coords(ranks, sizes))
    for name, read in (("latency", latency), ("epoch", epoch), ("t_start", t_start)):
        what = described[name]
        about = {**what.attrs, "measured_by": schema.CELL[axis]} if name == "latency" else what.attrs
        raw[name] = lazy(
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
    lacking = sealing.without_data(n, sizes.tolist(), mode, hint)
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
    cells = Cells(raw, header.mode)
    compared = [kind for kind in clustbench.STATISTICS if kind in matrices]
    for k in range(n.shape[2] if compared else 0):
        for rows, series, count in cells.blocks(k):
            own = clustbench_layout.statistics(series.reshape(-1, series.shape[-1]), count.reshape(-1))
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
            found = sealing.SCHEMA.analyse(imported.raw.assign_attrs(imported.attrs))
        return found.merge(imported.summary, compat="override", combine_attrs="override"), []
    except Exception as error:
        return imported.summary, [
            Warning(
                "core.analysis_failed",
                f"/summary could not be computed: {type(error).__name__}: {error}",
                "the imported data are complete; a corrected version of Sonde can analyse them",
            )
        ]

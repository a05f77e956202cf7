"""Datasets of net/1 as clustbench's files. The caller creates the files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Literal

import numpy as np
import xarray as xr

from sonde.core.errors import DataError, Warning
from sonde.net import clustbench, clustbench_layout, schema
from sonde.net.clustbench import Header, Structure
from sonde.net.clustbench_cells import Cells, index_of_size
from sonde.net.clustbench_layout import Data
from sonde.net.convert import DIAGONAL, NOISE, STORED

Target = Literal["v1", "v2"]


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
    begin, end, step = clustbench_layout.progression(chosen)
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
    header = Header(of.sizes["src"], mode, begin, end, step, repeats, **noise(tree))
    structures = _structures(form, list(sources), header, stored, at, whole=len(chosen) == len(own))
    out.kinds = list(sources)
    data = {kind: clustbench_layout.build(create(kind), structures[kind], len(at)) for kind in out.kinds}
    for k, index in enumerate(at):
        for kind, take in sources.items():
            if take is not None:
                values = take(index)
                data[kind].put((k, 0, 0), values if clustbench.row_is_sender(mode) else values.T)
    if raw is not None:
        computed = {kind: data[kind] for kind, take in sources.items() if take is None}
        empty = _write_computed(computed, Cells(raw, mode), summary, at, repeats)
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


def _write_computed(
    data: Mapping[str, Data], cells: Cells, summary: xr.Dataset, at: Sequence[int], repeats: int
) -> int:
    """Write what is computed from the delays, size by size; return the number of cells without data.

    data: by kind. at: positions of the sizes in the dataset.
    """
    empty = 0
    for k, index in enumerate(at):
        for rows, series, n in cells.blocks(index):
            ranks = np.arange(rows.start, rows.stop)
            own_cell = ranks[:, None] == np.arange(cells.ranks)
            empty += int(((n == 0) & ~own_cell).sum())
            padding = np.where(own_cell, 0.0, clustbench.PADDING)
            found = clustbench_layout.statistics(series.reshape(-1, series.shape[-1]), n.reshape(-1))
            for kind, file in data.items():
                if kind == "all":
                    block = padded(series, n, own_cell, repeats, summary, rows, index)
                    file.put((k, rows.start, 0, 0), block)
                elif kind == "measurements_amount":
                    file.put((k, rows.start, 0), n)
                else:
                    values = found[kind].reshape(n.shape)
                    file.put((k, rows.start, 0), np.where(np.isnan(values), padding, values))
    return empty


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
            if name.startswith(schema.CLUSTBENCH):
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
        if schema.CLUSTBENCH + kind in summary:
            sources[kind] = matrix(schema.CLUSTBENCH + kind)
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


def noise(tree: xr.DataTree) -> dict[str, int]:
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
        structure = clustbench_layout.standard(form, kind, header)
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


def padded(
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

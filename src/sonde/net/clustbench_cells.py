"""A dataset's cells in clustbench's orientation, by the measuring process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import xarray as xr

from sonde.core.errors import DataError, UsageError
from sonde.net import clustbench

BLOCK_BYTES = 32 << 20


class Cells:
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

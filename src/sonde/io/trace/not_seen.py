"""Warnings about reads and writes that a trace could not see or size, computed from its /summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sonde.core.errors import Warning
from sonde.core.units import format_size
from sonde.io.trace import ignored_paths
from sonde.io.trace.schema import OPENED_UNSEEN

if TYPE_CHECKING:
    import xarray as xr

_NAMED = 3  # functions that a warning names


def warnings(summary: xr.Dataset) -> list[Warning]:
    """Warnings about bytes that are unknown, and about files whose opening was not seen."""
    return [*_unsized(summary), *_asked(summary), *_opened(summary)]


def bytes_known(summary: xr.Dataset, layer: int, direction: int) -> bool:
    """Whether the bytes of all requests of a layer are what came: only then they have a rate."""
    if "request_asked" not in summary:  # analysed by an earlier version
        return True
    requests, asked = (
        int(summary[name].values[:, layer, direction].sum()) for name in ("requests", "request_asked")
    )
    return not asked and requests <= int(summary["request_sizes"].values[layer, direction].sum())


def _unsized(summary: xr.Dataset) -> list[Warning]:
    calls, names = _counted(summary, "unsized")
    return [
        Warning(
            "io.values_unknown",
            f"the bytes of {_calls(calls)} are unknown, and count as none: {names}",
            "calls and times are right; the layers below show what reached them",
        )
    ] * bool(calls)


def _asked(summary: xr.Dataset) -> list[Warning]:
    calls, names = _counted(summary, "asked")
    return [
        Warning(
            "io.values_unknown",
            f"the bytes of {_calls(calls)} are those that were asked for, because what came is not known when "
            f"the call ends: {names}",
            "at the end of a file less comes; the layers below show what reached them",
        )
    ] * bool(calls)


def _opened(summary: xr.Dataset) -> list[Warning]:
    mine = np.flatnonzero(summary["path"].values == OPENED_UNSEEN)
    if "file_requests" not in summary or not mine.size:
        return []
    requests = int(summary["file_requests"].values[mine].max(axis=1).sum())
    moved = int(summary["file_bytes"].values[mine].max(axis=1).sum())
    return [
        Warning(
            "io.not_seen",
            f"{_calls(requests)} moved {format_size(moved)} through descriptors that no traced call opened, as by "
            f"syscall(2), io_uring or from another process; they count as the program's, as {OPENED_UNSEEN}",
            "as root, --kernel shows how they were opened",
        )
    ] * bool(requests)


def _counted(summary: xr.Dataset, name: str) -> tuple[int, str]:
    """How many calls of the program's I/O a variable counts, and the functions with most of them."""
    if name not in summary:  # analysed by an earlier version
        return 0, ""
    layer = summary["layer_name"].values[summary["function_layer"].values]
    each = np.where(layer == ignored_paths.LAYER, 0, summary[name].values.sum(axis=0))
    of_name: dict[str, int] = {}
    for k in np.flatnonzero(each).tolist():
        function = str(summary["function_name"].values[k])
        of_name[function] = of_name.get(function, 0) + int(each[k])
    order = sorted(of_name.items(), key=lambda one: -one[1])
    names = ", ".join(f"{function} ({calls})" for function, calls in order[:_NAMED])
    return sum(of_name.values()), names + (", …" if len(order) > _NAMED else "")


def _calls(count: int) -> str:
    return "1 call" if count == 1 else f"{count} calls"

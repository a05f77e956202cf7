"""store/1: the variables of a dataset of `sonde store run`, and its validation.

docs/reference/schemas.md, "store/1", is the definition; the tables RAW and SUMMARY contain the same as data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sonde.core import described
from sonde.core.allowed import COUNT, FINITE, NUMBERED, Allowed, codes, count_of, from_
from sonde.core.described import Described
from sonde.core.described import optional as _of
from sonde.core.errors import Finding
from sonde.core.status import STATUS
from sonde.store.plan import CLIENT_NAMES

if TYPE_CHECKING:
    import xarray as xr


NAME = "store/1"

BURST, VERDICT = 0, 1  # kinds of record

CELL = ("variant", "case")
SERIES, BURSTS = (*CELL, "sample"), (*CELL, "burst")
STAGES = ("serialise", "wait", "backend")

OF_VARIANT: dict[str, Described] = {
    "style": Described(
        ("variant",), "str", "", "kind of the variant: default, plain, thesis, provider, raw, or its own name"
    ),
    "transport": Described(("variant",), "str", "", "transport"),
    "provider": Described(("variant",), "str", "", "libfabric provider that was used; empty without one"),
    "detail": Described(("variant",), "str", "", "description of the connection by the transport"),
    "options": Described(("variant",), "str", "", "how the variant differs from its transport's default"),
}
OF_CASE: dict[str, Described] = {
    "client": Described(
        ("case",), "str", "", f"client: {', '.join(CLIENT_NAMES)}", allowed=Allowed(texts=tuple(CLIENT_NAMES))
    ),
    "op": Described(("case",), "str", "", "operation"),
    "size": Described(("case",), "<i8", "B", "bytes of an operation", allowed=COUNT),
    "batch": Described(("case",), "<i8", "1", "operations of a batch", allowed=from_(1)),
    "depth": Described(("case",), "<i8", "1", "batches in flight at once", allowed=from_(1)),
}
RAW: dict[str, Described] = {
    "duration": Described(
        SERIES, "<f8", "s", "duration of an iteration: `depth` batches of `batch` operations", allowed=COUNT
    ),
    "epoch": Described(
        SERIES, "<i4", "1", "burst that a sample belongs to; -1 without a sample", allowed=NUMBERED
    ),
    "t_start": Described(SERIES, "<f8", "s", "begin of the iteration since measuring began", allowed=FINITE),
    "n": Described(CELL, "<i4", "1", "samples stored", allowed=count_of("sample")),
    "status": Described(CELL, "|i1", "1", "how measuring a cell ended", allowed=STATUS),
    "bursts": Described(CELL, "<i4", "1", "bursts stored", allowed=count_of("burst")),
    "burst_epoch": Described(BURSTS, "<i4", "1", "epoch of a burst; -1 without a burst", allowed=NUMBERED),
    "serialise": Described(
        BURSTS, "<f8", "s", "mean over a burst: building the messages of an iteration", allowed=FINITE
    ),
    "wait": Described(
        BURSTS, "<f8", "s", "mean over a burst: in the server, before the backend", allowed=FINITE
    ),
    "backend": Described(BURSTS, "<f8", "s", "mean over a burst: in the backend", allowed=FINITE),
    **OF_VARIANT,
    **OF_CASE,
}


COORDINATES: dict[str, Described] = {
    "variant": _of(("variant",), "", "variant: how the server was reached", "str"),
    "case": _of(("case",), "", "case: client.operation:bytes:batch:depth", "str"),
}


def _cell(units: str, long_name: str, dtype: str = "<f8", allowed: Allowed | None = None) -> Described:
    return _of(CELL, units, long_name, dtype, allowed)


def _with_ends(name: str, units: str, long_name: str) -> dict[str, Described]:
    ends = {"low": "lower", "high": "upper"}
    return {name: _cell(units, long_name)} | {
        f"{name}_{end}": _cell(units, f"{word} end of the 95 % interval of the {long_name}")
        for end, word in ends.items()
    }


SUMMARY: dict[str, Described] = {
    "n": _cell("1", "samples", "<i4", allowed=COUNT),
    "epochs": _cell("1", "epochs with samples", "<i4", allowed=COUNT),
    "status": _cell("1", "how measuring a cell ended", "|i1", allowed=STATUS),
    "steady": _cell("1", "whether no change of the level was detected", "|i1", allowed=codes(0, 1)),
    **_with_ends("median", "s", "median duration of an iteration"),
    **_with_ends("p99", "s", "99 % quantile of the durations"),
    "mean": _cell("s", "mean duration"),
    "min": _cell("s", "smallest duration"),
    **_with_ends("rate", "1/s", "operations a second at the median duration"),
    **_with_ends("throughput", "B/s", "bytes a second at the median duration"),
    "mean_rate": _cell("1/s", "number of all operations over their total time"),
    **_with_ends("ratio_to_tcp", "1", "rate relative to the variant tcp, epoch by epoch"),
    **_with_ends("ratio_to_raw", "1", "rate relative to the raw limit, epoch by epoch"),
    **_with_ends("ratio_to_raw_ofi", "1", "rate relative to libfabric alone, epoch by epoch"),
    "pairs_tcp": _cell("1", "epochs in which both the cell and tcp were measured", "<i4", allowed=COUNT),
    "pairs_raw": _cell(
        "1", "epochs in which both the cell and the raw limit were measured", "<i4", allowed=COUNT
    ),
    "pairs_raw_ofi": _cell(
        "1", "epochs in which both the cell and libfabric alone were measured", "<i4", allowed=COUNT
    ),
    "quantile": _of((*CELL, "share"), "s", "quantiles of the durations"),
    **{
        f"{stage}_time": _cell("s", f"{text}, median over bursts")
        for stage, text in (
            ("serialise", "building the messages of an iteration"),
            ("wait", "in the server, before the backend"),
            ("backend", "in the backend"),
            ("wire", "the rest of an iteration: sending, the wire, waking up, receiving"),
        )
    },
    **OF_VARIANT,
    **OF_CASE,
    **COORDINATES,
    "share": _of(("share",), "1", "share of the iterations that took no longer"),
}
"""Variables of /summary. Every variable is optional, and other variables are allowed."""


def validate(tree: xr.DataTree) -> list[Finding]:
    """The faults of a dataset of this room; [] for a valid one."""
    found: list[Finding] = []
    if "raw" not in tree.children:
        return [Finding("store.missing", "/raw is missing", {"variable": "raw"})]
    raw = tree["raw"].to_dataset()
    found += described.check("store", "/raw", raw, RAW, CELL)
    if "summary" in tree.children:
        found += described.check("store", "/summary", tree["summary"].to_dataset(), SUMMARY, CELL)
    if found:
        return found
    unknown = sorted({str(name) for name in raw["client"].values} - set(CLIENT_NAMES))
    if unknown:
        found.append(Finding("store.client", f"/raw/client names {', '.join(unknown)}", {"clients": unknown}))
    n, bursts = raw["n"].values, raw["bursts"].values
    if (n < 0).any() or (n > raw.sizes["sample"]).any() or (bursts > raw.sizes["burst"]).any():
        found.append(Finding("store.counts", "/raw/n or /raw/bursts is larger than its dimension", {}))
        return found
    for v, c in np.argwhere(n > 0):
        cell = f"{raw['variant'].values[v]}, {raw['case'].values[c]}"
        values = raw["duration"][v, c, : n[v, c]].values
        if not (np.isfinite(values) & (values > 0)).all():
            found.append(Finding("store.duration", f"{cell}: a duration is not above 0", {"cell": cell}))
        if (raw["epoch"][v, c, : n[v, c]].values < 0).any():
            found.append(Finding("store.epoch", f"{cell}: a sample belongs to no epoch", {"cell": cell}))
    return found

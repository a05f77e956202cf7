"""bus/1: the content of a dataset of `sonde bus run`, and its validation.

The definition is in docs/reference/schemas.md, "bus/1". The tables RAW and SUMMARY here express it as data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sonde.bus.cases import TESTS
from sonde.core import described
from sonde.core.allowed import COUNT, FINITE, NUMBERED, Allowed, codes, count_of, index
from sonde.core.described import Described
from sonde.core.described import optional as _of
from sonde.core.errors import Finding
from sonde.core.status import STATUS

if TYPE_CHECKING:
    import xarray as xr


NAME = "bus/1"

SAMPLES, DECISION = 0, 1  # kinds of record


SERIES = ("series",)
SAMPLE = ("series", "sample")
MIXED = "quantity_unit"  # unit of variables with several quantities: the variable that names the unit of each

OF_VARIANT: dict[str, Described] = {
    "variant_name": Described(
        ("variant",), "str", "", "variant: an implementation with its transport and options"
    ),
    "implementation": Described(
        ("variant",), "str", "", "implementation; raw: bare sockets and shared memory of the machine"
    ),
    "version": Described(("variant",), "str", "", "version of the implementation"),
    "transport": Described(("variant",), "str", "", "transport; for a profile, the one that it names"),
    "options": Described(
        ("variant",), "str", "", "how the variant differs from its implementation's default"
    ),
}
OF_CASE: dict[str, Described] = {
    "test": Described(("case",), "str", "", f"test: {', '.join(TESTS)}", allowed=Allowed(texts=tuple(TESTS))),
    "size": Described(("case",), "<i8", "B", "bytes of a sample; -1: not applicable", allowed=NUMBERED),
    "subscribers": Described(
        ("case",), "<i8", "1", "readers of the topic; -1: not applicable", allowed=NUMBERED
    ),
    "entities": Described(
        ("case",), "<i8", "1", "participants, partitions, clients; -1: not applicable", allowed=NUMBERED
    ),
    "treatment": Described(("case",), "str", "", "treatment of the case; empty: no treatment"),
}
OF_QUANTITY: dict[str, Described] = {
    "quantity_name": Described(("quantity",), "str", "", "quantity"),
    "quantity_unit": Described(("quantity",), "str", "", "its unit; 1 for bare numbers"),
}
OF_SERIES: dict[str, Described] = {
    "series_variant": Described(SERIES, "<i4", "1", "variant of a series", allowed=index("variant")),
    "series_case": Described(SERIES, "<i4", "1", "case of a series", allowed=index("case")),
    "series_quantity": Described(SERIES, "<i4", "1", "quantity of a series", allowed=index("quantity")),
}
FACTS = {**OF_VARIANT, **OF_CASE, **OF_QUANTITY, **OF_SERIES}
RAW: dict[str, Described] = {
    "value": Described(SAMPLE, "<f8", MIXED, "value in the quantity's unit", allowed=COUNT),
    "epoch": Described(SAMPLE, "<i4", "1", "burst that a sample belongs to; -1: no burst", allowed=NUMBERED),
    "t_start": Described(SAMPLE, "<f8", "s", "begin of the sample since measuring began", allowed=FINITE),
    "n": Described(SERIES, "<i4", "1", "samples stored", allowed=count_of("sample")),
    "status": Described(SERIES, "|i1", "1", "how measuring a series ended", allowed=STATUS),
    **FACTS,
}


def _ends(name: str, units: str, long_name: str) -> dict[str, Described]:
    ends = {"low": "lower", "high": "upper"}
    return {name: _of(SERIES, units, long_name)} | {
        f"{name}_{end}": _of(SERIES, units, f"{word} end of the 95 % interval of the {long_name}")
        for end, word in ends.items()
    }


SUMMARY: dict[str, Described] = {
    "n": _of(SERIES, "1", "samples", "<i4", allowed=COUNT),
    "absent": _of(SERIES, "1", "samples without a value: lost messages", "<i4", allowed=COUNT),
    "epochs": _of(SERIES, "1", "epochs with samples", "<i4", allowed=COUNT),
    "status": _of(SERIES, "1", "how measuring a series ended", "|i1", allowed=STATUS),
    "steady": _of(
        SERIES,
        "1",
        "whether the level stayed the same, as far as can be determined",
        "|i1",
        allowed=codes(0, 1),
    ),
    **_ends("median", MIXED, "median, in the quantity's unit"),
    **_ends("p99", MIXED, "99 % quantile, in the quantity's unit"),
    "mean": _of(SERIES, MIXED, "mean, in the quantity's unit"),
    "min": _of(SERIES, MIXED, "smallest value"),
    "max": _of(SERIES, MIXED, "largest value"),
    "base": _of(
        SERIES, "1", "variant that the ratio refers to; -1: no variant", "<i4", allowed=index("variant", -1)
    ),
    **_ends("ratio", "1", "ratio to the value of the variant `base`, paired by epoch"),
    "pairs": _of(SERIES, "1", "stretches of time in which both were measured", "<i4", allowed=COUNT),
    **_ends("ratio_to_raw", "1", "ratio to the value of the raw transport, paired by epoch"),
    "pairs_raw": _of(SERIES, "1", "stretches of time in which both were measured", "<i4", allowed=COUNT),
    "quantile": _of(("series", "share"), MIXED, "quantiles of the values"),
    "block": _of(
        ("series", "stretch"),
        MIXED,
        "median of each stretch of neighbouring epochs, for shares (lost, matched) the mean; the same for all series",
    ),
    "early": _of(
        ("series", "place"), MIXED, "typical value of the first samples of a burst, by their place in it"
    ),
    **FACTS,
    "share": _of(("share",), "1", "share of the values that are not larger"),
}
"""Variables of /summary. Every variable is optional, and further variables are allowed."""


def validate(tree: xr.DataTree) -> list[Finding]:
    """The defects of a dataset of this room; [] for a valid one."""
    found: list[Finding] = []
    if "raw" not in tree.children:
        return [Finding("bus.missing", "/raw is missing", {"variable": "raw"})]
    raw = tree["raw"].to_dataset()
    found += described.check("bus", "/raw", raw, RAW)
    if "summary" in tree.children:
        found += described.check("bus", "/summary", tree["summary"].to_dataset(), SUMMARY)
    if found:
        return found
    unknown = sorted({str(name) for name in raw["test"].values} - set(TESTS))
    if unknown:
        found.append(
            Finding("bus.test", f"/raw/test has unknown tests: {', '.join(unknown)}", {"tests": unknown})
        )
    for name, dim in (
        ("series_variant", "variant"),
        ("series_case", "case"),
        ("series_quantity", "quantity"),
    ):
        index = raw[name].values
        if len(index) and ((index < 0) | (index >= raw.sizes[dim])).any():
            found.append(
                Finding("bus.index", f"/raw/{name} has an index of a missing {dim}", {"variable": name})
            )
    n = raw["n"].values
    if (n < 0).any() or (n > raw.sizes["sample"]).any():
        found.append(Finding("bus.counts", "/raw/n has counts above the number of samples", {}))
    if found:
        return found
    for k in np.flatnonzero(n > 0):
        name = _name(raw, int(k))
        values = raw["value"][k, : n[k]].values
        if np.isinf(values).any() or (values < 0).any():
            found.append(Finding("bus.value", f"{name}: a value is negative or infinite", {"series": name}))
        if (raw["epoch"][k, : n[k]].values < 0).any():
            found.append(Finding("bus.epoch", f"{name}: a sample belongs to no epoch", {"series": name}))
    return found


def _name(raw: xr.Dataset, k: int) -> str:
    variant, case, quantity = (int(raw[f"series_{dim}"].values[k]) for dim in ("variant", "case", "quantity"))
    what = f"{raw['quantity_name'].values[quantity]} of {raw['test'].values[case]}"
    return f"{raw['variant_name'].values[variant]}, {what}, case {case}"

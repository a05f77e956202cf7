"""The errors of a dataset of kind `run`: differences from its tables, and contradictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sonde.core import described
from sonde.core.described import Described
from sonde.core.errors import Finding
from sonde.noise.detector.schema import COMPLETE, MISSING, RAW
from sonde.noise.detector.summary import SUMMARY

if TYPE_CHECKING:
    import xarray as xr


def validate(tree: xr.DataTree, summary: Mapping[str, Described] = SUMMARY) -> list[Finding]:
    """The differences between a run's dataset and its tables, and its contradictions.

    Parameters
    ----------
    tree : groups /raw and /summary, opened lazily; all of /raw but counts and single iterations is read
    summary : the table of /summary

    Returns
    -------
    Findings, [] for a valid dataset.
    """
    found: list[Finding] = []
    if "raw" in tree.children:
        raw = tree["raw"].to_dataset()
        needed = {name: replace(what, required=True) for name, what in RAW.items() if name in NEEDED}
        found += described.check("noise", "/raw", raw, RAW | needed, ("rank", "block"))
        if not found:
            found += _check_raw(raw)
    if "summary" in tree.children:
        found += described.check("noise", "/summary", tree["summary"].to_dataset(), summary, ("variant",))
    return found


def _check_raw(raw: xr.Dataset) -> list[Finding]:
    """The findings for labels without a meaning, stalls without a block, and times that decrease."""
    whole = np.asarray(raw["status"].values) == COMPLETE
    blocks, variants = raw.sizes["block"], raw.sizes["variant_index"]
    variant, segment = (np.asarray(raw[name].values)[whole] for name in ("variant", "segment"))
    begin = np.asarray(raw["t_begin"].values, np.float64)[:, whole]
    length = np.asarray(raw["length"].values, np.float64)[:, whole]
    stall_block, n = np.asarray(raw["stall_block"].values), np.asarray(raw["n_stalls"].values)
    filled = np.arange(stall_block.shape[1]) < n[:, None]
    stall = np.asarray(raw["stall_length"].values, np.float64)
    wrong = {
        "status": (
            ~np.isin(raw["status"].values, (MISSING, COMPLETE)),
            "blocks whose status is no known code",
        ),
        "variant": (
            (variant < 0) | (variant >= variants),
            f"blocks with a variant that is not one of the {variants} variants",
        ),
        "segment": (np.diff(segment) < 0, "blocks of an earlier segment than the block before"),
        "time": (~(np.diff(begin, axis=1) > 0), "blocks that do not begin after the block before"),
        "length": (~(length > 0), "blocks without a length"),
        "count": ((stall_block >= 0) != filled, "stalls after n_stalls, or missing before it"),
        "stall": (
            filled & ((stall_block >= blocks) | ~(stall > 0)),
            "stalls without a block or without a length",
        ),
    }
    return [
        Finding(f"noise.{what}", f"/raw has {int(bad.sum())} {text}", {"count": int(bad.sum())})
        for what, (bad, text) in wrong.items()
        if bad.any()
    ]


# The variables that are needed to judge a run again.
NEEDED = frozenset(
    (
        *("count", "class_edge", "segment", "variant", "variant_name", "status", "n_stalls"),
        *("t_begin", "length", "excluded", "iterations", "stall_block", "stall_t", "stall_length"),
        *("stall_threshold", "stamp_every"),
    )
)

"""The section of a report for a dataset of kind `source`. It has no figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.core.dataset import summary_of
from sonde.core.section import Section
from sonde.noise.source import verdict

if TYPE_CHECKING:
    import xarray as xr


def section(tree: xr.DataTree, dataset: str = "FILE") -> Section:
    """The section of a report for one dataset. dataset: the file's name, for the hints.

    Raises
    ------
    DataError  core.no_summary.
    """
    summary = summary_of(tree, "noise", dataset)
    return Section(
        "noise",
        "Noise, source",
        verdict.sentence(summary),
        tables=verdict.tables(summary),
        warnings=verdict.warnings(summary),
    )

"""From the records of block files to datasets of noise/1 of kind `run`: layout, place, analysis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sonde.core.deadline import Deadline
from sonde.core.described import Described, Tables
from sonde.core.errors import Finding
from sonde.core.layout import Layout
from sonde.noise.detector.layout import RunLayout, layout_of
from sonde.noise.detector.placing import place_rank, place_shared, place_source
from sonde.noise.detector.schema import ATTRIBUTES, COORDINATES, RAW
from sonde.noise.detector.summary import SUMMARY
from sonde.noise.detector.validity import validate

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.blocks import BlockFile


class RunSchema:
    """RoomSchema of the kind. Plan keys: docs of `layout_of`."""

    room, version = "noise", 1
    summary: ClassVar[Mapping[str, Described]] = SUMMARY

    def parts(self, plan: Mapping[str, Any]) -> Sequence[str]:
        """One dataset."""
        return [""]

    def layout(self, plan: Mapping[str, Any], files: Sequence[BlockFile], part: str) -> RunLayout:
        """The layout, from a count of the records in the files: `layout_of`."""
        return layout_of(plan, files)

    def place(
        self, plan: Mapping[str, Any], layout: Layout, file: BlockFile, part: str
    ) -> Iterator[tuple[str, tuple[int | slice, ...], np.ndarray]]:
        """The pieces of /raw from one file, which is read once. The first file also gives the data of all ranks."""
        assert isinstance(layout, RunLayout)
        if file.header.get("kind") == "source":
            if file.path.name in layout.sources:
                yield from place_source(layout, file)
            return
        rank = int(file.header["rank"])
        if rank == layout.writers[0]:
            yield from place_shared(layout)
        yield from place_rank(layout, file, rank)

    def analyse(self, raw: xr.Dataset, deadline: Deadline | None = None) -> xr.Dataset:
        """From /raw to /summary: `analyse.analyse`."""
        from sonde.noise.detector.analyse import analyse

        return analyse(raw, deadline)

    def tables(self, tree: xr.DataTree) -> Tables:
        """The declared variables and root attributes, with which `dataset.open` compares a file."""
        return {"raw": RAW | COORDINATES, "summary": self.summary, "": ATTRIBUTES}

    def validate(self, tree: xr.DataTree) -> list[Finding]:
        """The errors of a dataset; [] for a valid one. See `validate`."""
        return validate(tree, self.summary)


SCHEMA = RunSchema()

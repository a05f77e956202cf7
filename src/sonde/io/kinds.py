"""The two kinds of datasets of io/1, traces and studies: the root attribute `kind` shows which one a dataset is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.errors import Finding, Warning
from sonde.core.layout import Layout
from sonde.core.run_folder import read
from sonde.core.section import Section
from sonde.io.trace.sealing import TraceSchema

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.blocks import BlockFile
    from sonde.core.deadline import Deadline
    from sonde.core.described import Tables
    from sonde.io.study.sealing import StudySchema


class IoSchema:
    """RoomSchema of io/1: of a trace, or of a study, as `kind` of the plan and of the dataset shows."""

    room = "io"
    version = 1

    def close(self, folder: Path, ended: bool) -> tuple[dict[str, Any], list[Warning]]:
        """Close the files of a trace; a study has no open files."""
        if read(folder).plan.get("kind") == "study":
            return {}, []
        return TraceSchema().close(folder, ended)

    def parts(self, plan: Mapping[str, Any]) -> Sequence[str]:
        return [""]

    def layout(self, plan: Mapping[str, Any], files: Sequence[BlockFile], part: str) -> Layout:
        return _kind(plan).layout(plan, files, part)

    def place(
        self, plan: Mapping[str, Any], layout: Layout, file: BlockFile, part: str
    ) -> Iterator[tuple[str, tuple[int | slice, ...], np.ndarray]]:
        return _kind(plan).place(plan, layout, file, part)

    def analyse(self, raw: xr.Dataset, deadline: Deadline | None = None) -> xr.Dataset:
        return _kind(raw.attrs).analyse(raw, deadline)

    def leading_dims(self, tree: xr.DataTree) -> Sequence[tuple[str, ...]]:
        """Dims of the tables that a file with one table is made of, first the one with rows; for `data convert`."""
        return [("cell", "direction")] if tree.attrs.get("kind") == "study" else []

    def tables(self, tree: xr.DataTree) -> Tables:
        """The tables of the dataset's kind."""
        return _kind(tree.attrs).tables(tree)

    def validate(self, tree: xr.DataTree) -> list[Finding]:
        """The errors in a dataset; [] for a valid one."""
        return _kind(tree.attrs).validate(tree)


def _kind(attrs: Mapping[Any, Any]) -> TraceSchema | StudySchema:
    if attrs.get("kind") == "study":
        from sonde.io.study.sealing import StudySchema

        return StudySchema()
    return TraceSchema()


SCHEMA = IoSchema()


def section(tree: xr.DataTree, dataset: str) -> Section:
    """The section of a report about a dataset. dataset: the file's name, for commands to copy.

    Raises
    ------
    DataError  core.no_summary.
    """
    if tree.attrs.get("kind") == "study":
        from sonde.io.study import figures as study

        return study.section(tree, dataset)
    from sonde.io.trace import figures as trace

    return trace.section(tree, dataset)

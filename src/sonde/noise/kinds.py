"""The kinds of datasets of the room, `noise/1`. The root attribute `kind` names the kind.

run     blocks of a timed loop of collectives, with an agent on in some of them (`detector`, of studies `studies`)
source  bursts of the noise source (`source`)
host    interruptions of each core, without MPI (`host`)

The package of each kind has a SCHEMA with the methods of `layout.RoomSchema`, and a `section` of a report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.allowed import Allowed
from sonde.core.described import Described
from sonde.core.errors import DataError, Finding
from sonde.core.layout import Layout

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.blocks import BlockFile
    from sonde.core.deadline import Deadline
    from sonde.core.described import Tables
    from sonde.core.section import Section
    from sonde.noise.detector.sealing import RunSchema
    from sonde.noise.host.sealing import HostSchema
    from sonde.noise.source.schema import SourceSchema

# The most important tables of /summary, by kind. A run without an agent has no variants.
LEADING: dict[str, tuple[tuple[str, ...], ...]] = {
    "run": (("variant",), ("group",), ()),
    "source": (("source",),),
    "host": (("cpu",),),
}
KINDS = tuple(LEADING)


def is_study(attrs: Mapping[Any, Any]) -> bool:
    """Whether the root attributes are those of a study's run."""
    from sonde.noise.studies.plan import STUDIES

    return str(attrs.get("study")) in STUDIES


def schema_of(attrs: Mapping[Any, Any]) -> RunSchema | SourceSchema | HostSchema:
    """The schema of a dataset with these root attributes, or of a run with this plan.

    Raises
    ------
    DataError  noise.unknown_kind.
    """
    kind = str(attrs.get("kind"))
    if kind == "source":
        from sonde.noise.source import schema as source

        return source.SCHEMA
    if kind == "host":
        from sonde.noise.host import sealing as host

        return host.SCHEMA
    if kind != "run":
        raise DataError(
            "noise.unknown_kind",
            f"the dataset is of kind '{kind}'; this Sonde knows {', '.join(KINDS)}",
            "use the Sonde that made it, or a newer one",
        )
    if is_study(attrs):
        from sonde.noise.studies import sealing as study

        return study.SCHEMA
    from sonde.noise.detector import sealing as run

    return run.SCHEMA


class NoiseSchema:
    """The schema of the room's records, for `seal`."""

    room, version = "noise", 1

    def parts(self, plan: Mapping[str, Any]) -> Sequence[str]:
        return schema_of(plan).parts(plan)

    def layout(self, plan: Mapping[str, Any], files: Sequence[BlockFile], part: str) -> Layout:
        layout = schema_of(plan).layout(plan, files, part)
        layout.attrs.setdefault("kind", str(plan.get("kind")))
        return layout

    def place(
        self, plan: Mapping[str, Any], layout: Layout, file: BlockFile, part: str
    ) -> Iterator[tuple[str, tuple[int | slice, ...], np.ndarray]]:
        return schema_of(plan).place(plan, layout, file, part)

    def analyse(self, raw: xr.Dataset, deadline: Deadline | None = None) -> xr.Dataset:
        return schema_of(raw.attrs).analyse(raw, deadline)

    def leading_dims(self, tree: xr.DataTree) -> Sequence[tuple[str, ...]]:
        """The dims of the tables for a file with one table, for `data convert`. It takes the first that has rows."""
        return LEADING.get(str(tree.attrs.get("kind")), ())

    def tables(self, tree: xr.DataTree) -> Tables:
        """The tables that its kind declares. For an unknown kind, they declare only the allowed kinds.

        The kind selects a module, so no other value may be used.
        """
        kind = tree.attrs.get("kind", "run")
        if not (isinstance(kind, str) and kind in KINDS):
            known = Described((), "str", "", "what was measured", False, Allowed(texts=tuple(KINDS)))
            return {"": {"kind": known}}
        return schema_of({**tree.attrs, "kind": kind}).tables(tree)

    def validate(self, tree: xr.DataTree) -> list[Finding]:
        """The errors of a dataset, by the rules of its kind; [] for a valid one."""
        kind = str(tree.attrs.get("kind"))
        if kind not in KINDS:
            return [
                Finding(
                    "noise.unknown_kind",
                    f"its kind is {kind!r}; known are {', '.join(KINDS)}",
                    {"kind": kind},
                )
            ]
        check = getattr(schema_of(tree.attrs), "validate", None)
        return list(check(tree)) if check else []


SCHEMA = NoiseSchema()


def section(tree: xr.DataTree, dataset: str = "FILE") -> Section:
    """The section of a report for one dataset of any kind.

    Parameters
    ----------
    tree : groups /summary and, where it is stored, /raw; opened lazily
    dataset : the file's name, for the hints

    Returns
    -------
    Section. Figures that the data cannot fill are left out.

    Raises
    ------
    DataError  core.no_summary: a section needs /summary, and this run was not analysed.
    """
    kind = str(tree.attrs.get("kind", "run"))
    if kind == "source":
        from sonde.noise.source import figures as source

        return source.section(tree, dataset)
    if kind == "host":
        from sonde.noise.host import figures as host

        return host.section(tree, dataset)
    if is_study(tree.attrs):
        from sonde.noise.studies import figures as study

        return study.section(tree, dataset)
    from sonde.noise.detector import figures as run

    return run.section(tree, dataset)

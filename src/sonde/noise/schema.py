"""Datasets of the room, `noise/1`: one schema with several kinds. The root attribute `kind` names the kind.

run     blocks of a timed loop of collectives, with an agent on in some of them (`blocks`)
source  bursts of the noise source (`source_schema`)
host    interruptions of each core, without MPI (`host_schema`)

The module of each kind has a SCHEMA with the methods of `seal.RoomSchema`; this module calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sonde.core.allowed import Allowed
from sonde.core.described import Described
from sonde.core.errors import DataError, Finding
from sonde.core.layout import Layout, RoomSchema

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.blocks import BlockFile
    from sonde.core.deadline import Deadline
    from sonde.core.described import Tables

NAME = "noise/1"
# The most important tables of /summary, by kind. A run without an agent has no variants.
LEADING: dict[str, tuple[tuple[str, ...], ...]] = {
    "run": (("variant",), ("group",), ()),
    "source": (("source",),),
    "host": (("cpu",),),
}
KINDS = {
    "run": "sonde.noise.blocks",
    "source": "sonde.noise.source_schema",
    "host": "sonde.noise.host_sealing",
}


def kind_schema(kind: str) -> RoomSchema:
    """The SCHEMA of a kind of dataset.

    Raises
    ------
    DataError  noise.unknown_kind.
    """
    if kind not in KINDS:
        raise DataError(
            "noise.unknown_kind",
            f"the dataset is of kind '{kind}'; this Sonde knows {', '.join(KINDS)}",
            "use the Sonde that made it, or a newer one",
        )
    return cast(RoomSchema, import_module(KINDS[kind]).SCHEMA)


class NoiseSchema:
    """The schema of the room's records, for `seal`."""

    room, version = "noise", 1

    def parts(self, plan: Mapping[str, Any]) -> Sequence[str]:
        return kind_schema(str(plan.get("kind"))).parts(plan)

    def layout(self, plan: Mapping[str, Any], files: Sequence[BlockFile], part: str) -> Layout:
        kind = str(plan.get("kind"))
        layout = kind_schema(kind).layout(plan, files, part)
        layout.attrs.setdefault("kind", kind)
        return layout

    def place(
        self, plan: Mapping[str, Any], layout: Layout, file: BlockFile, part: str
    ) -> Iterator[tuple[str, tuple[int | slice, ...], np.ndarray]]:
        return kind_schema(str(plan.get("kind"))).place(plan, layout, file, part)

    def analyse(self, raw: xr.Dataset, deadline: Deadline | None = None) -> xr.Dataset:
        return kind_schema(str(raw.attrs.get("kind"))).analyse(raw, deadline)

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
        declared: Tables = kind_schema(kind).tables(tree)  # type: ignore[attr-defined]
        return declared

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
        check = getattr(kind_schema(kind), "validate", None)
        return list(check(tree)) if check else []


SCHEMA = NoiseSchema()

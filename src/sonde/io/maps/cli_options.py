"""Options that select the layers of a command."""

from __future__ import annotations

from pathlib import Path

import click

from sonde.core.errors import UsageError
from sonde.core.options import BuiltinType
from sonde.io.maps.layers import Layer


class Names(BuiltinType):
    """Names of layers: "mpiio,posix". Value: tuple of str."""

    name, allowed = "names", "names of layers, comma-separated"

    def read(self, text: str) -> tuple[str, ...]:
        names = tuple(part.strip() for part in text.split(",") if part.strip())
        if not names:
            raise UsageError(
                "io.no_such_layer",
                "it has no name of a layer",
                "for example mpiio,posix; 'sonde io layers list' shows all",
            )
        return names


LAYERS = click.option(
    "--layers", "names", type=Names(), metavar="NAMES", help="Trace only these layers: mpiio,posix."
)

MAPS = click.option(
    "--map",
    "maps",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE.toml",
    help="A layer map of your own; may be repeated.",
)


def chosen(names: tuple[str, ...] | None, maps: tuple[Path, ...], kernel: bool = False) -> list[Layer]:
    """The layers of a command."""
    from sonde.io.maps import run_maps

    return run_maps.chosen(names or (), maps, kernel)

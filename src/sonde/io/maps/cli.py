"""sonde io layers: the maps that say which functions belong to a layer."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonde.core.errors import Exit, Finding, UsageError, nearest, typed
from sonde.core.options import common
from sonde.core.outcome import Outcome, Table
from sonde.io.maps.cli_options import MAPS, chosen

if TYPE_CHECKING:
    from sonde.io.maps.layers import Layer, Value


@click.group()
def layers() -> None:
    """The maps that say which functions of which libraries belong to a layer."""


@layers.command(name="list")
@common()
@MAPS
@click.argument("name", metavar="[LAYER]", required=False)
def list_(maps: tuple[Path, ...], name: str | None) -> Outcome:
    """The layers that Sonde knows, from the application down; of one, all that its map says."""
    every = chosen(None, maps, kernel=True)
    if name is not None:
        return _one(every, name)
    rows = [
        (
            layer.name,
            layer.title,
            f"{sum(len(function.names) for function in layer.functions)}",
            ", ".join(_libraries(layer)),
        )
        for layer in every
    ]
    return Outcome(
        "io",
        "layers list",
        f"{len(every)} layers",
        tables=[
            Table(
                "Layers, from the application down",
                ("layer", "is", "names", "of libraries called"),
                rows,
                right=(2,),
                note=f"{typed('sonde', 'io', 'layers', 'check')} tells which of them are on this machine.",
            )
        ],
        values={"layers": [_value(layer) for layer in every]},
    )


def _one(every: Sequence[Layer], name: str) -> Outcome:
    """All that the map of one layer says."""
    one = next((layer for layer in every if layer.name == name), None)
    if one is None:
        names = [layer.name for layer in every]
        raise UsageError(
            "io.no_such_layer",
            f"there is no layer '{name}'{nearest(name, names)}",
            f"there are {', '.join(names)}",
        )
    rows = [
        (
            ", ".join(function.names),
            function.kind,
            _said(function.size),
            _said(function.offset),
            _said(function.file),
        )
        for function in one.functions
    ]
    return Outcome(
        "io",
        "layers list",
        f"{one.title}: {sum(len(function.names) for function in one.functions)} names in {one.source}",
        tables=[Table("Functions", ("names", "kind", "size", "offset", "file"), rows, note=one.note)],
        values={"layer": _value(one)},
    )


@layers.command()
@common()
@MAPS
@click.argument("files", metavar="[LIBRARY|PROGRAM]...", nargs=-1, type=click.Path(path_type=Path))
def check(maps: tuple[Path, ...], files: tuple[Path, ...]) -> Outcome:
    """Which functions of the maps the libraries here export; exit 1 when a map of yours names some that none does.

    Without names: all libraries of this machine that some map asks for, those of this Python among them. Of a program
    its libraries, but not the plug-ins that it loads when it runs.
    """
    from sonde.io.maps import run_exports

    every = chosen(None, maps, kernel=True)
    if files:
        paths = list(dict.fromkeys(path for file in files for path in _libraries_of(file)))
    else:
        paths = run_exports.of_machine(every)
    found = run_exports.found_in(every, paths)
    own = [layer for layer in every if not layer.shipped]
    lost = run_exports.nowhere(one for one in found if not one.layer.shipped)
    alone = run_exports.without_library(own, paths)
    seen = [one for one in found if one.names]
    order = {layer.name: k for k, layer in enumerate(every)}
    seen.sort(key=lambda one: order[one.layer.name])
    rows = [(one.layer.title, str(one.library), f"{len(one.names)}") for one in seen]
    without = [
        layer.title
        for layer in every
        if layer.name != "kernel" and layer.name not in {one.layer.name for one in seen}
    ]
    names = {one.layer.name for one in seen}
    return Outcome(
        "io",
        "layers check",
        f"{len(names)} of {len(every)} layers can be seen in {len({one.library for one in seen})} libraries",
        findings=[
            Finding(
                "io.not_exported",
                f"no library here exports '{name}'{near}",
                {"name": name},
                "correct the map, or delete the name",
            )
            for name, near in lost.items()
        ]
        + [
            Finding(
                "io.no_library",
                f"the layer '{name}' is of no library {'of these programs' if files else 'here'}: "
                f"none is called {asked}",
                {"layer": name},
                "correct `libraries` in the map, or look where the library is: sonde io layers check LIBRARY",
            )
            for name, asked in alone.items()
        ],
        tables=[
            Table(
                "What can be interposed",
                ("layer", "library", "functions"),
                rows,
                right=(2,),
                note=f"Nothing of: {', '.join(without)}. Functions that a library keeps to itself cannot be interposed."
                if without
                else "Functions that a library keeps to itself cannot be interposed.",
            )
        ],
        values={
            "found": [
                {
                    "layer": one.layer.name,
                    "library": str(one.library),
                    "functions": list(one.names),
                    "not_exported": list(one.missing),
                }
                for one in seen
            ]
        },
        exit=Exit.FINDING if lost or alone else Exit.DONE,
    )


@layers.command()
@common()
@click.option("--layer", "name", metavar="NAME", help="What the layer is called; by default as the library.")
@click.option(
    "--names", default="*", show_default=True, metavar="GLOB", help="Only functions of such names: llapi_*."
)
@click.argument("library", metavar="LIBRARY", type=click.Path(path_type=Path))
def new(name: str | None, names: str, library: Path) -> Outcome:
    """Writes a map to begin with, from the functions that a library exports, to standard output.

    What a function does is guessed from its name; where its size, offset and file are among its arguments, its header
    says.
    """
    from sonde.io.maps import run_exports, skeleton
    from sonde.io.maps.layers import parse

    exported = [
        one for one in run_exports.functions(library) if fnmatchcase(one, names) and not one.startswith("_")
    ]
    if not exported:
        raise UsageError(
            "io.nothing_exported",
            f"{library} exports no function called '{names}'",
            "--names takes a pattern, as 'H5*'",
        )
    layer = (
        name
        or "".join(
            c if c.isalnum() else "_" for c in library.name.split(".so")[0].removeprefix("lib")
        ).lower()
    )
    text = skeleton.skeleton(layer, library.name, exported)
    parse(text, "the new map")
    return Outcome("io", "layers new", document=text, values={"map": text})


def _libraries_of(file: Path) -> list[Path]:
    from sonde.io.maps import run_exports

    run_exports.functions(file)  # what cannot be read is told
    return run_exports.of_program(file)


def _libraries(layer: Layer) -> list[str]:
    return list(dict.fromkeys(glob for function in layer.functions for glob in function.libraries))


def _said(value: Value) -> str:
    forms = {
        "none": "", "arg": "arg({a})", "ref": "ref({a})", "out": "out({a})", "product": "arg({a}) * arg({b})",
        "mpi": "arg({a}) * mpi({b})", "mpi_ref": "ref({a}) * mpi_ref({b})", "iov": "iov({a}, {b})", "result": "result",
        "result_product": "result * arg({a})", "text": "text({a})", "hdf5": "hdf5({a})",
        "hdf5_attribute": "hdf5_attribute({a})", "constant": "{a}", "length": "length({a})",
        "out_length": "out_length({a})", "counted_text": "text({a}, {b})",
    }  # fmt: skip
    if value.how == "ref" and value.b:
        return f"ref({value.a} + {value.b})"
    return forms[value.how].format(a=value.a, b=value.b)


def _value(layer: Layer) -> dict[str, Any]:
    return {
        "layer": layer.name,
        "title": layer.title,
        "source": layer.source,
        "libraries": _libraries(layer),
        "functions": [
            {
                "names": list(function.names),
                "kind": function.kind,
                **{
                    key: _said(getattr(function, key))
                    for key in ("size", "offset", "request", "file", "source", "copy", "path")
                },
            }
            for function in layer.functions
        ],
    }

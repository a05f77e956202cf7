"""sonde io layers: the maps of functions to layers."""

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
    """Show the maps of functions to layers, check them, or begin a new one."""


@layers.command(name="list")
@common()
@MAPS
@click.argument("name", metavar="[LAYER]", required=False)
def list_(maps: tuple[Path, ...], name: str | None) -> Outcome:
    """List the layers that Sonde knows, from the application down; with a name, everything in the map of that layer."""
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
                ("layer", "title", "names", "libraries"),
                rows,
                right=(2,),
                note=f"{typed('sonde', 'io', 'layers', 'check')} shows which of them are on this machine.",
            )
        ],
        values={"layers": [_value(layer) for layer in every]},
    )


def _one(every: Sequence[Layer], name: str) -> Outcome:
    """Everything in the map of one layer."""
    one = next((layer for layer in every if layer.name == name), None)
    if one is None:
        names = [layer.name for layer in every]
        raise UsageError(
            "io.no_such_layer",
            f"there is no layer '{name}'{nearest(name, names)}",
            f"known layers: {', '.join(names)}",
        )
    rows = [
        (
            ", ".join(function.names),
            function.kind,
            _text_of(function.size),
            _text_of(function.offset),
            _text_of(function.file),
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
    """Check which functions of the maps the libraries here export; exit 1 if no library exports a name in your own map.

    Without FILES: all libraries of this machine that some map lists, those of this Python included. For a program: its
    libraries, but not the plug-ins that it loads at run time.
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
        f"{len(names)} of {len(every)} layers are visible in {len({one.library for one in seen})} libraries",
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
                f"no library {'of these programs' if files else 'here'} belongs to the layer '{name}': none "
                f"has the name {asked}",
                {"layer": name},
                "correct `libraries` in the map, or give the library's path: sonde io layers check LIBRARY",
            )
            for name, asked in alone.items()
        ],
        tables=[
            Table(
                "What can be interposed",
                ("layer", "library", "functions"),
                rows,
                right=(2,),
                note=f"Without any visible function: {', '.join(without)}. Functions that a library hides "
                "cannot be interposed."
                if without
                else "Functions that a library hides cannot be interposed.",
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
@click.option(
    "--layer", "name", metavar="NAME", help="The name of the layer.  [default: the name of the library]"
)
@click.option(
    "--names",
    default="*",
    show_default=True,
    metavar="GLOB",
    help="Only functions with matching names: llapi_*.",
)
@click.argument("library", metavar="LIBRARY", type=click.Path(path_type=Path))
def new(name: str | None, names: str, library: Path) -> Outcome:
    """Write a first version of a map to standard output, from the functions that a library exports.

    The kind of a function is guessed from its name; look up the positions of its size, offset and file among the
    arguments in its header.
    """
    from sonde.io.maps import run_exports, skeleton
    from sonde.io.maps.layers import parse

    exported = [
        one for one in run_exports.functions(library) if fnmatchcase(one, names) and not one.startswith("_")
    ]
    if not exported:
        raise UsageError(
            "io.nothing_exported",
            f"{library} exports no function with the name '{names}'",
            "--names takes a pattern, for example 'H5*'",
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

    run_exports.functions(file)  # raises an error if the file cannot be read
    return run_exports.of_program(file)


def _libraries(layer: Layer) -> list[str]:
    return list(dict.fromkeys(glob for function in layer.functions for glob in function.libraries))


def _text_of(value: Value) -> str:
    forms = {
        "none": "", "arg": "arg({a})", "ref": "ref({a})", "out": "out({a})", "product": "arg({a}) * arg({b})",
        "mpi": "arg({a}) * mpi({b})", "mpi_ref": "ref({a}) * mpi_ref({b})", "iov": "iov({a}, {b})", "result": "result",
        "result_product": "result * arg({a})", "text": "text({a})", "hdf5": "hdf5({a})",
        "hdf5_attribute": "hdf5_attribute({a})", "constant": "{a}", "length": "length({a})",
        "out_length": "out_length({a})", "counted_text": "text({a}, {b})",
        "mpi_status": "mpi_status({a}, {b})", "mpi_ref_status": "mpi_ref_status({a}, {b})", "later": "later",
    }  # fmt: skip
    if value.how in ("ref", "out") and value.b:
        return f"{value.how}({value.a} + {value.b})"
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
                    key: _text_of(getattr(function, key))
                    for key in ("size", "moved", "offset", "request", "file", "source", "copy", "path")
                },
            }
            for function in layer.functions
        ],
    }

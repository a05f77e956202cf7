"""Load layer maps: those that come with Sonde, and the user's own files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path

from sonde.core.errors import DataError, UsageError, nearest
from sonde.core.owned_files import reading
from sonde.io.maps.layers import Layer, ordered, parse

MOST_BYTES = 1 << 20


def shipped() -> list[Layer]:
    """The maps that come with Sonde, from the application down."""
    folder = resources.files("sonde.io") / "maps"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda f: f.name)
    return ordered(replace(parse(file.read_text("utf-8"), file.name), shipped=True) for file in files)


def chosen(words: Sequence[str], files: Iterable[Path] = (), kernel: bool = False) -> list[Layer]:
    """The layers of a run.

    Parameters
    ----------
    words : names of shipped layers; empty for all of them
    files : the user's own maps; a map with the name of a shipped layer replaces it
    kernel : include the layer `kernel`, which is otherwise included only by name

    Raises
    ------
    UsageError  io.no_such_layer, io.no_map (unreadable), io.bad_map.
    """
    own = [read(file) for file in files]
    replaced = {layer.name for layer in own}
    known = [layer for layer in shipped() if layer.name not in replaced]
    names = [layer.name for layer in (*own, *known)]
    for word in words:
        if word not in names:
            raise UsageError(
                "io.no_such_layer",
                f"there is no layer '{word}'{nearest(word, names)}",
                f"known layers: {', '.join(names)}; 'sonde io layers list' describes them",
            )
    usual = [name for name in names if name != "kernel"]
    wanted = {*(words or usual), *(["kernel"] if kernel else [])}
    return ordered([*own, *(layer for layer in known if layer.name in wanted)])


def read(file: Path) -> Layer:
    """Read one of the user's maps. UsageError io.no_map, io.bad_map."""
    try:
        with reading(file) as stream:
            raw = stream.read(MOST_BYTES + 1)
        text = raw.decode()
    except OSError as error:
        raise UsageError("io.no_map", f"cannot read {file}: {error.strerror}", "name a layer map") from None
    except DataError as error:
        raise UsageError("io.no_map", f"cannot read {error.what}", "name a layer map") from None
    except UnicodeDecodeError:
        raise UsageError("io.bad_map", f"{file}: is not text", "a layer map is TOML in UTF-8") from None
    if len(raw) > MOST_BYTES:
        raise UsageError("io.bad_map", f"{file}: is larger than 1 MiB", "name a layer map")
    return parse(text, str(file))

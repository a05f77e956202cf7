"""Find what the libraries of this machine export, and which of it is in layer maps."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from sonde.core import launch
from sonde.core.errors import UsageError, nearest
from sonde.core.surroundings import place_of_ranks
from sonde.io.maps import run_linked
from sonde.io.maps.layers import Layer
from sonde.io.maps.run_elf import X86_64, Program

# Folders of plug-ins, below a library's own folder: they are loaded by path and are in no cache.
PLUGINS = ("openmpi*/lib/openmpi*", "openmpi*", "*.libs", "ompi*/lib/openmpi*", "pmix*/lib")
_MAGIC = b"\x7fELF"


@dataclass(frozen=True)
class Found:
    """Functions of a layer's map that a library exports. missing : names without wildcards that it does not export."""

    layer: Layer
    library: Path
    names: tuple[str, ...]
    missing: tuple[str, ...]


def functions(path: Path) -> dict[str, int]:
    """Names and addresses of the functions that a library exports; a name with several versions appears once.

    Raises
    ------
    UsageError  io.not_a_library: it cannot be read, or is not an ELF file.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    try:
        with path.open("rb") as file:
            if file.read(4) != _MAGIC:
                raise ELFError("it is not an ELF file")
            file.seek(0)
            table = ELFFile(file).get_section_by_name(".dynsym")
            if not isinstance(table, SymbolTableSection):
                return {}
            return {
                symbol.name: symbol["st_value"]
                for symbol in table.iter_symbols()
                if symbol["st_shndx"] != "SHN_UNDEF"
                and symbol["st_info"]["type"] in ("STT_FUNC", "STT_LOOS")  # LOOS: an indirect function
                and symbol.name
            }
    except OSError as error:
        what = f"cannot read {path}: {error.strerror}"
    except (ELFError, ValueError, KeyError) as error:
        what = f"{path} is not a library: {error}"
    raise UsageError("io.not_a_library", what, "give a shared library, or a dynamically linked program")


def found_in(layers: Sequence[Layer], paths: Iterable[Path]) -> list[Found]:
    """For each library, the functions of each layer's map that it exports, without libraries that no map lists."""
    found = []
    for path in paths:
        wanted = [(layer, _wanted(layer, path.name)) for layer in layers]
        if not any(names for _, names in wanted):
            continue
        exported = functions(path)
        for layer, globs in wanted:
            names = sorted({name for name in exported for glob in globs if fnmatchcase(name, glob)})
            missing = sorted(glob for glob in globs if not _is_glob(glob) and glob not in exported)
            if globs:
                found.append(Found(layer, path, tuple(names), tuple(missing)))
    return found


def nowhere(found: Iterable[Found]) -> dict[str, str]:
    """Names that none of a layer's libraries exports, each with the nearest exported name: {"pwirte": " (nearest:
    …)"}."""
    by_layer: dict[str, list[Found]] = {}
    for one in found:
        by_layer.setdefault(one.layer.name, []).append(one)
    lost = {}
    for group in by_layer.values():
        exported = {name for one in group for name in one.names}
        every = {name for one in group for name in functions(one.library)}
        for name in sorted({name for one in group for name in one.missing} - exported):
            lost[name] = nearest(name, tuple(every))
    return lost


def without_library(layers: Iterable[Layer], paths: Sequence[Path]) -> dict[str, str]:
    """Layers without a library among `paths`, and the names that they need: {"foo": "'libfo.so' (nearest:
    libfoo.so)"}."""
    names = tuple(dict.fromkeys(path.name for path in paths))
    lost = {}
    for layer in layers:
        globs = list(dict.fromkeys(glob for function in layer.functions for glob in function.libraries))
        if not any(fnmatchcase(name, glob) for name in names for glob in globs):
            names_of_globs = (f"'{glob}'{nearest(glob.rstrip('*.0123456789'), names)}" for glob in globs)
            lost[layer.name] = ", ".join(names_of_globs)
    return lost


def why_nothing(layer: Layer) -> str:
    """Why no program has a function of a layer, as far as the libraries of this machine show it."""
    if lost := without_library([layer], list(_candidates(()))):
        return f"no library in the usual places here has the name {lost[layer.name]}"
    found = found_in([layer], of_machine([layer]))
    if not found:
        return "its library is of another architecture"
    if not any(one.names for one in found):
        missing = ", ".join(f"'{name}'{near}" for name, near in nowhere(found).items())
        return f"{found[0].library} exports none of it" + (f", as {missing}" if missing else "")
    return (
        f"no program has loaded {' or '.join(dict.fromkeys(one.library.name for one in found if one.names))}"
    )


def _wanted(layer: Layer, library: str) -> list[str]:
    return [
        name
        for function in layer.functions
        if any(fnmatchcase(library, glob) for glob in function.libraries)
        for name in function.names
    ]


def _is_glob(name: str) -> bool:
    return bool(set("*?[") & set(name))


def of_program(path: Path) -> list[Path]:
    """A program or library, and the libraries that the loader adds to it; without plug-ins that it loads later."""
    return [path, *run_linked.libraries(path)]


def of_machine(layers: Sequence[Layer], more: Iterable[Path] = ()) -> list[Path]:
    """Libraries here that a map lists: in the loader's cache, their plug-ins, those of this Python, and those in `more`
    folders."""
    globs = {glob for layer in layers for function in layer.functions for glob in function.libraries}
    seen: dict[Path, None] = {}
    for path in _candidates(more):
        if any(fnmatchcase(path.name, glob) for glob in globs) and Program.read(path).machine == X86_64:
            seen.setdefault(path.resolve())
    return sorted(seen)


def _candidates(more: Iterable[Path]) -> Iterator[Path]:
    folders: dict[Path, None] = dict.fromkeys(more)
    for tool in ("ldconfig", "/sbin/ldconfig"):
        try:
            ran = subprocess.run(
                [tool, "-p"],
                cwd=place_of_ranks(),
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=20,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        for match in re.findall(r"=> (/\S+)", ran.stdout):
            folders.setdefault(Path(match).parent)
            yield Path(match)
        break
    folders.update(
        dict.fromkeys(Path(entry) for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":") if entry)
    )
    folders.update(dict.fromkeys(Path(entry) for entry in sys.path if entry.endswith("site-packages")))
    folders.setdefault(Path(sys.prefix) / "lib")
    folders.setdefault(launch.libexec().parent / "lib")  # Sonde's own: the store's
    for folder in folders:
        for glob in ("", *PLUGINS):
            yield from (folder.glob(f"{glob}/*.so*") if glob else folder.glob("*.so*"))

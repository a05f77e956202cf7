"""Find the libraries that the loader would add to a program, without using the loader.

`ldd` has the loader load the program, and the loader runs the code of audit modules that a file names (DT_AUDIT):
merely looking at a program would run code of its author.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sonde.core.surroundings import place_of_ranks
from sonde.io.maps.run_elf import X86_64, Program

# The loader looks here after its cache. Source: ld.so(8).
_DEFAULT = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
_ORIGIN = re.compile(r"\$(?:ORIGIN\b|\{ORIGIN\})")
_CACHED = re.compile(r"^\s*(\S+) \(([^)]*)\) => (/.*)$")
_MAX_LIBRARIES = 4096  # libraries of one program


@dataclass(frozen=True)
class Linked:
    """The libraries that a file needs. rpath, runpath: folders, as they are written."""

    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()


def of_file(path: Path) -> Linked:
    """Reads what a file needs; empty for a file that cannot be read or is not ELF."""
    from elftools.elf.dynamic import DynamicSegment
    from elftools.elf.elffile import ELFFile

    # pyelftools may raise any error on a damaged file: AssertionError, TypeError, its own.
    with suppress(Exception), path.open("rb") as file:
        tags = [
            tag
            for segment in ELFFile(file).iter_segments()
            if isinstance(segment, DynamicSegment)
            for tag in segment.iter_tags()
        ]

        def texts(kind: str, name: str) -> list[str]:
            return [str(getattr(tag, name)) for tag in tags if tag.entry.d_tag == kind]

        def folders(kind: str, name: str) -> tuple[str, ...]:
            return tuple(folder for text in texts(kind, name) for folder in text.split(":") if folder)

        return Linked(
            tuple(texts("DT_NEEDED", "needed")),
            folders("DT_RPATH", "rpath"),
            folders("DT_RUNPATH", "runpath"),
        )
    return Linked()


def libraries(program: Path) -> list[Path]:
    """Returns the libraries of a program or library, and theirs in turn, in the order in which they are found.

    A library that is not found is left out; so are plug-ins that the program loads later.
    """
    cache = _cache()
    found: dict[str, Path] = {}
    # Each file with the DT_RPATH of the files that needed it: the loader searches these folders for it, too.
    left: list[tuple[Path, tuple[str, ...]]] = [(program, ())]
    for path, above in left:
        linked = of_file(path)
        own = () if linked.runpath else tuple(_folders(linked.rpath, path))
        for name in linked.needed:
            if name in found or len(found) >= _MAX_LIBRARIES:
                continue
            places = [
                *(() if linked.runpath else (*own, *above)),
                *(folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder),
                *_folders(linked.runpath, path),
            ]
            library = _look_up(name, places, cache)
            if library is not None:
                found[name] = library
                left.append((library, (*own, *above)))
    return list(dict.fromkeys(found.values()))


def _look_up(name: str, folders: list[str], cache: Mapping[str, Path]) -> Path | None:
    if "/" in name:
        candidates: Iterator[Path] = iter([Path(name)])
    else:
        candidates = _candidates(name, folders, cache)
    return next((one for one in candidates if _is_library(one)), None)


def _candidates(name: str, folders: list[str], cache: Mapping[str, Path]) -> Iterator[Path]:
    yield from (Path(folder) / name for folder in folders)
    if name in cache:
        yield cache[name]
    yield from (Path(folder) / name for folder in _DEFAULT)


def _is_library(path: Path) -> bool:
    with suppress(OSError, ValueError):
        return path.is_file() and Program.read(path).machine == X86_64
    return False


def _folders(words: tuple[str, ...], of: Path) -> Iterator[str]:
    """Replaces $ORIGIN by the folder of the file; other words of the loader stay as they are."""
    origin = str(Path(os.path.realpath(of)).parent)
    yield from (_ORIGIN.sub(lambda _: origin, word) for word in words)


def _cache() -> dict[str, Path]:
    """The loader's cache of libraries of this kind of machine; of several with one name, the first."""
    found: dict[str, Path] = {}
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
        for line in ran.stdout.splitlines():
            match = _CACHED.match(line)
            if match and "x86-64" in match[2]:
                found.setdefault(match[1], Path(match[3]))
        break
    return found

"""Draws docs/explain/structure.md: which part of Sonde imports which, from the code's own imports.

python docs/structure.py          writes the page
python docs/structure.py --check  exit status 1 where the page is not what it would write
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/explain/structure.md"
TOP = "sonde"
PACKAGED = ("io", "noise", "power")  # rooms that have packages

HEAD = """# Structure

`python docs/structure.py` draws this page from the imports in `src/sonde`, and a test compares it with them. An arrow
leads from a part to one that it imports; an arrow that two others imply is left out.
[ARCHITECTURE.md](../../ARCHITECTURE.md) explains what each part is for, and which arrows are allowed.
"""


def modules() -> dict[str, Path]:
    """All modules of the package, by dotted name."""
    found = {}
    for path in sorted((ROOT / "src" / TOP).rglob("*.py")):
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Modules of the package that a module imports, in functions and for types as well."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in known or node.module in known:
                    yield full if full in known else node.module


def part(name: str, depth: int) -> str:
    """The part of a module at some depth: "core" of sonde.core.units at depth 1."""
    return ".".join(name.split(".")[1 : 1 + depth])


def arrows(depth: int, inside: str = "") -> list[tuple[str, str]]:
    """Which parts import which. inside: only parts of this one."""
    known, found = modules(), set[tuple[str, str]]()
    for name, path in known.items():
        for other in imported(path, known):
            pair = (part(name, depth), part(other, depth))
            if pair[0] != pair[1] and all(
                one and one.startswith(inside) and one != inside.rstrip(".") for one in pair
            ):
                found.add(pair)
    return sorted(found)


def direct(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The arrows without those that others imply: a to c, where a leads to b and b to c."""
    beyond: dict[str, set[str]] = {}

    def reached(one: str) -> set[str]:
        if one not in beyond:
            beyond[one] = set()
            beyond[one] = {x for a, b in pairs if a == one for x in ({b} | reached(b))}
        return beyond[one]

    return [
        (a, c) for a, c in pairs if not any(c in reached(b) for x, b in pairs if x == a and b not in (a, c))
    ]


def drawing(parts: list[str], pairs: list[tuple[str, str]]) -> str:
    """Mermaid's graph of them. Nodes have a number: `end` and `graph` are words of its own."""
    number = {part: f"p{k}" for k, part in enumerate(parts)}
    lines = [f'    {number[part]}["{part.rpartition(".")[2]}"]' for part in parts]
    lines += [f"    {number[a]} --> {number[b]}" for a, b in direct(pairs)]
    return "\n".join(["```mermaid", "graph LR", *lines, "```"])


def page() -> str:
    """The page's text."""
    folders = {part(name, 1) for name, path in modules().items() if path.parent.name == part(name, 1)}
    whole = sorted(folder for folder in folders if folder)
    parts = [HEAD, "## All parts\n"]
    parts.append(drawing(whole, [pair for pair in arrows(1) if set(pair) <= set(whole)]) + "\n")
    for room in PACKAGED:
        packages = sorted(
            f"{room}.{path.name}"
            for path in (ROOT / "src" / TOP / room).iterdir()
            if (path / "__init__.py").exists()
        )
        inside = [pair for pair in arrows(2, room + ".") if set(pair) <= set(packages)]
        parts.append(f"## The packages of `{room}`\n\n{drawing(packages, inside)}\n")
    return "\n".join(parts)


def main(words: list[str]) -> int:
    text = page()
    if words == ["--check"]:
        return int(PAGE.read_text() != text)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

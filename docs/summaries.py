"""Writes the tables of variables in docs/reference/*-summary.md, from the tables in the rooms' schemas.

python docs/summaries.py          writes the pages
python docs/summaries.py --check  exit status 1 where a page is not what it would write

A page has a table after each line "Dims: `src`, `dst`.": the variables of /summary that have these dims. A heading
"Kind `host`" begins the part of the page about datasets of that kind.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import xarray as xr

from sonde.core.dataset import room_schema
from sonde.core.described import Described

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs/reference"
HEAD = "| variable | units | meaning |\n|---|---|---|"
DIMS = re.compile(r"Dims: (.*)\.$|(No dims)\.$")
KIND = re.compile(r"#+ Kind `(\w+)`")


def declared(room: str, kind: str) -> dict[str, Described]:
    """The variables of /summary of a room's datasets of one kind, without coordinates."""
    tree = xr.DataTree(xr.Dataset(attrs={"schema": f"{room}/1", "kind": kind}))
    schema = room_schema(room)
    table = schema.tables(tree)["summary"]
    return {name: what for name, what in table.items() if what.dims != (name,)}


def row(name: str, what: Described) -> str:
    meaning = " — ".join(text for text in (what.long_name, what.method) if text)
    return f"| `{name}` | {what.units or '–'} | {meaning.replace('|', chr(92) + '|')} |"


def page(room: str, text: str) -> str:
    """The page with the tables as the schema has them.

    Raises
    ------
    ValueError  a variable has dims that the page does not name.
    """
    kind, out, listed = "", [], dict[str, set[str]]()
    table = False
    for line in text.splitlines():
        if table and (line.startswith("|") or not line):
            continue
        if table:
            out.append("")
        table = False
        out.append(line)
        if found := KIND.match(line):
            kind = found[1]
        elif found := DIMS.search(line):
            dims = tuple(re.findall(r"`(\w+)`", found[1] or ""))
            rows = {name: row(name, what) for name, what in declared(room, kind).items() if what.dims == dims}
            listed.setdefault(kind, set()).update(rows)
            out += ["", HEAD, *rows.values()]
            table = True
    for each, names in listed.items():
        if missing := set(declared(room, each)) - names:
            raise ValueError(f"{room}-summary.md has no table for {', '.join(sorted(missing))}")
    return "\n".join(out) + "\n"


def main() -> int:
    stale = []
    for path in sorted(PAGES.glob("*-summary.md")):
        old = path.read_text()
        new = page(path.stem.removesuffix("-summary"), old)
        if new != old:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(new)
    if stale and "--check" in sys.argv:
        print(f"run: python docs/summaries.py ({', '.join(stale)})")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

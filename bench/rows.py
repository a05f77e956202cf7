"""Rows of a room's bench, each with its bar: run its modules, print them, keep them in bench/out/<room>.json.

A module has a function rows() that returns dicts with these keys:

what   what was measured, in words
bar    what is asked of it
value  the number; None: not measured
ci     [low, high], or None
met    whether the bar is met; None where there is none
note   how it was measured
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

OUT = Path("bench/out")

Row = dict[str, Any]


def row(
    what: str,
    bar: str,
    value: float | None,
    ci: list[float] | None,
    met: Callable[[float], bool] | None,
    note: str,
) -> Row:
    """A row of the bench; without a value it is neither met nor missed."""
    judged = None if value is None or met is None else bool(met(value))
    return {"what": what, "bar": bar, "value": value, "ci": ci, "met": judged, "note": note}


def main(room: str, modules: Sequence[str], strict: bool = False) -> int:
    """`make bench-<room>`: every module of bench/<room>, or those named as arguments; rows of the others stay.

    strict: 1 is returned where a bar is missed.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m bench.{room}",
        description=f"`make bench-{room}`: every row with its bar, printed and written to {OUT / room}.json.",
    )
    parser.add_argument("modules", nargs="*", help=f"only these: {', '.join(modules)}")
    wanted = parser.parse_args().modules or list(modules)
    unknown = sorted(set(wanted) - set(modules))
    if unknown:
        parser.error(f"there is no bench '{unknown[0]}'; there are: {', '.join(modules)}")
    out = OUT / f"{room}.json"
    known = json.loads(out.read_text()).get("modules", {}) if out.exists() else {}
    out.parent.mkdir(parents=True, exist_ok=True)
    for name in wanted:
        began, load = time.monotonic(), os.getloadavg()[0]
        print(f"bench-{room}: {name} …", file=sys.stderr, flush=True)
        known[name] = importlib.import_module(f"bench.{room}.{name}").rows()
        for row in known[name]:
            row["load_before"] = load
        print(f"bench-{room}: {name} took {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        rows = [row for each in modules for row in known.get(each, [])]
        out.write_text(json.dumps({"rows": rows, "modules": known}, indent=1) + "\n")
    shown = [row for name in wanted for row in known[name]]
    show(f"bench-{room}", shown)
    return int(strict and any(row["met"] is False for row in shown))


def _load(row: dict) -> str:
    """What else ran when the row's bench began: times mean little on a busy machine."""
    return f"; load {row['load_before']:.1f} before" if "load_before" in row else ""


def show(title: str, rows: list[dict]) -> None:
    """Prints rows: what, bar, value with its interval, met or not, and the note beneath."""
    console = Console()
    table = Table(title=title, show_lines=True, title_justify="left")
    table.add_column("what, bar", ratio=3)
    table.add_column("value", justify="right", ratio=1)
    table.add_column("met", justify="center")
    for row in rows:
        value = "not measured" if row["value"] is None else f"{row['value']:.4g}"
        if row["ci"]:
            value += f"\n[dim]{row['ci'][0]:.4g} … {row['ci'][1]:.4g}[/dim]"
        met = {True: "[green]yes[/green]", False: "[red]no[/red]", None: "–"}[row["met"]]
        table.add_row(
            f"{row['what']}\n[bold]{row['bar']}[/bold]\n[dim]{row['note']}{_load(row)}[/dim]", value, met
        )
    console.print(table)

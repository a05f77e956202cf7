"""`make bench-net`: every row with its bar, printed and written to bench/out/net.json."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

MODULES = ("netpipe", "steps", "stopping", "spectra", "memory", "slow_links", "startup")
OUT = Path("bench/out/net.json")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.net", description=__doc__)
    parser.add_argument("modules", nargs="*", help=f"only these: {', '.join(MODULES)}")
    wanted = parser.parse_args().modules or list(MODULES)
    unknown = sorted(set(wanted) - set(MODULES))
    if unknown:
        parser.error(f"there is no bench '{unknown[0]}'; there are: {', '.join(MODULES)}")
    known = json.loads(OUT.read_text()).get("modules", {}) if OUT.exists() else {}
    for name in wanted:
        began, load = time.monotonic(), os.getloadavg()[0]
        print(f"bench-net: {name} …", file=sys.stderr, flush=True)
        known[name] = importlib.import_module(f"bench.net.{name}").rows()
        for row in known[name]:
            row["load_before"] = load
        print(f"bench-net: {name} took {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    rows = [row for name in MODULES for row in known.get(name, [])]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps({"rows": rows, "modules": known}, indent=1) + "\n")
    show([row for name in wanted for row in known[name]])
    return 0


def _load(row: dict) -> str:
    """What else ran when the row's bench began: times mean little on a busy machine."""
    return f"; load {row['load_before']:.1f} before" if "load_before" in row else ""


def show(rows: list[dict]) -> None:
    """Prints rows: what, bar, value with its interval, met or not, and the note beneath."""
    console = Console()
    table = Table(title="bench-net", show_lines=True, title_justify="left")
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


if __name__ == "__main__":
    sys.exit(main())

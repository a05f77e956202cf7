"""`sonde store run` from a bench: its results, and what of them a bar asks for."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from netCDF4 import Dataset

Result = dict[str, Any]


def run(
    budget: str, environment: Mapping[str, str] | None = None, **options: str | Sequence[str]
) -> list[Result]:
    """The results of one run, in an environment of its own where one is given.

    options: of the command, "_" for "-" in names; a sequence gives one several times.
    """
    with tempfile.TemporaryDirectory() as folder:
        words = [str(Path(sys.executable).parent / "sonde")]
        words += ["store", "run", "--json", "--budget", budget, "-o", str(Path(folder) / "bench.nc")]
        for name, value in options.items():
            for one in [value] if isinstance(value, str) else value:
                words += [f"--{name.replace('_', '-')}", one]
        ran = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
        if ran.returncode not in (0, 4):
            raise SystemExit(f"{' '.join(words)}\n{ran.stderr}")
        told = json.loads(ran.stdout)
        for warning in told["warnings"]:
            print(f"  {warning['code']}: {warning['evidence']}", file=sys.stderr)
        details = _details(Path(told["dataset"]))
        return [result | {"detail": details.get(result["name"], "")} for result in told["results"]]


def _details(dataset: Path) -> dict[str, str]:
    """What each variant's way to the server tells of itself: where remote reads begin, and how many there were."""
    with Dataset(str(dataset)) as opened:
        raw = opened["raw"]
        return dict(zip(map(str, raw["variant"][:]), map(str, raw["detail"][:]), strict=True))


def cell(
    results: Iterable[Result], name: str, op: str, size: int, batch: int = 1, depth: int = 1
) -> Result | None:
    """The result of one variant for "object.write" of a size; None when there is none."""
    client, verb = op.split(".")
    return next(
        (
            r
            for r in results
            if (r["name"], r["client"], r["op"], r["size"], r["batch"], r["depth"])
            == (name, client, verb, size, batch, depth)
        ),
        None,
    )


def shown(size: int, batch: int) -> str:
    """A case in words: "64 KiB", "1000 x 4 KiB"."""
    from sonde.core.units import format_size

    return format_size(size) if batch == 1 else f"{batch} x {format_size(size)}"

"""A room that only produces the cases that the console must handle."""

from __future__ import annotations

import errno
import logging
import warnings
from pathlib import Path

import click
import numpy as np

from sonde.core.errors import EnvironmentFailure, Exit, Finding, Warning
from sonde.core.options import SIZES, common, settings
from sonde.core.outcome import Outcome, Table


@click.group()
def group() -> None:
    """A room for tests."""


@group.command()
@common("output", "launcher", "hosts", "ntasks", "budget", "precision", "seed", "dry_run")
@click.option("--sizes", type=SIZES, default="0:1000:100", help="Message lengths.")
@click.option("--mode", type=click.Choice(["one_to_one", "all_to_all"]), default="one_to_one", help="Mode.")
@click.option("--raw", is_flag=True, help="Keep every sample.")
def run(**given: object) -> Outcome:
    """Returns its arguments."""
    return Outcome("fake", "run", "It ran.", values={"given": given})


@group.command()
@common()
@click.argument("file", type=click.Path(path_type=Path))
def show(file: Path) -> Outcome:
    """A full result."""
    return Outcome(
        "fake",
        "show",
        "3 of 64 links are slow.",
        schema="fake/1",
        dataset=str(file),
        findings=[
            Finding(
                "fake.slow", "n01 to n02 is 21% slower than its class", {"ratio": 1.21}, "sonde fake show"
            )
        ],
        warnings=[Warning("fake.virtual", "the machine is virtualised", "repeat at another hour")],
        values={"median_s": 1.5e-6, "worst_s": float("nan")},
        tables=[
            Table(
                "Links",
                ("from", "to", "median"),
                [("n01", "n02", "1.21 µs"), ("n03", "n04", "1.00 µs")],
                (2,),
            )
        ],
        lines=["64 ranks on 4 hosts"],
    )


@group.command()
@common()
def document() -> Outcome:
    """Raw text."""
    return Outcome("fake", "document", document="a,b\n1,2\n")


@group.command()
@common()
@click.argument("how")
def fail(how: str) -> Outcome:
    """Every way to fail."""
    match how:
        case "house":
            raise EnvironmentFailure(
                "fake.peer_timeout",
                "3 of 64 ranks on node n017 did not answer within 30 s",
                "leave it out with --hosts '^n017', or raise --timeout",
                "fake-alpha-20261120T214757Z-3f9a.run/log",
            )
        case "bug":
            raise ZeroDivisionError("division by zero")
        case "full":
            raise OSError(errno.ENOSPC, "No space left on device", "/scratch/a.nc")
        case "os":
            raise OSError(errno.ENOTDIR, "Not a directory", "/scratch/a.nc")
        case "interrupt":
            raise KeyboardInterrupt
        case "forget":
            return None  # type: ignore[return-value]
        case "finding":
            return Outcome("fake", "fail", "It was found.", exit=Exit.FINDING)
        case "grumble":
            np.array([1.0]) / np.array([0.0])
            warnings.warn("this will be removed", DeprecationWarning, stacklevel=1)
            logging.getLogger("matplotlib.font_manager").warning("findfont: no such family")
            return Outcome("fake", "fail", "All is well.")
        case "incomplete":
            return Outcome("fake", "fail", "2 cells have no data.", complete=False, exit=Exit.INCOMPLETE)
    raise AssertionError(how)


@group.command()
@common("budget")
def long(budget_s: float | None) -> Outcome:
    """Draws progress."""
    with settings().bar("fake long", budget_s) as bar:
        bar.show(
            {"event": "start", "ranks": 4, "mpi": "openmpi", "mpi_version": "4", "oversubscribed": False}
        )
        bar.show({"event": "nonsense"})
    return Outcome("fake", "long", "Done.")

"""sonde io join: traces that belong together, as one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonde.core.errors import UsageError, Warning, typed
from sonde.core.options import common
from sonde.core.outcome import Outcome

if TYPE_CHECKING:
    import xarray as xr


@click.command()
@common("output")
@click.option(
    "--servers-of",
    "counted",
    type=click.Path(path_type=Path),
    metavar="FILE.nc",
    help="Where several hold what servers counted (--gluster): whose counters are kept.",
)
@click.argument("files", metavar="A.nc B.nc...", nargs=-1, required=True, type=click.Path(path_type=Path))
def join(files: tuple[Path, ...], counted: Path | None, output: Path | None) -> Outcome:
    """Traces of one time as one dataset: a server's and its clients', each under a 'sonde io run' of its own.

    What servers did is then joined to the requests of their clients. What the servers of a file system counted is
    taken from the one trace that has it: counters of two would count twice what both saw.

    \b
    sonde io run -o server.nc -- sonde store serve --memory
    sonde io run -o client.nc -- python app.py               # in another terminal
    sonde io join client.nc server.nc -o both.nc
    """
    import sonde
    from sonde.core import dataset, seal
    from sonde.core.launch.start import output_path
    from sonde.io import merge, run_maps
    from sonde.io.analyse import analyse
    from sonde.io.cli import told_of
    from sonde.io.schema import NAME

    if len({file.resolve() for file in files}) < max(2, len(files)):
        raise UsageError(
            "io.nothing_to_join", "it takes two traces or more, each once", "as: sonde io join A.nc B.nc"
        )
    raws, attrs, warnings = [], [], list[Warning]()
    order = [layer.name for layer in run_maps.shipped()]
    path = output_path("io", output)
    with ExitStack() as stack:
        for file in files:
            tree = stack.enter_context(sonde.open(file))
            dataset.expect_room(tree, "io")
            raws.append(_events(tree, file))
            attrs.append(dataset.attrs(tree))
            warnings += [warning for warning in dataset.warnings_of(tree) if warning not in warnings]
        servers = _counted(files, ["server_name" in raw for raw in raws], counted)
        whole = merge.merged(raws, [int(one["began_utc_ns"]) for one in attrs], order, servers)
        about = _attrs(attrs, NAME)
        if about["stop_reason"] != "interrupted":
            warnings = [warning for warning in warnings if warning.code != dataset.INTERRUPTED.code]
        if servers is not None:
            warnings.append(
                Warning(
                    "io.counters_of_one",
                    f"what servers counted is of the time of {files[servers]} alone",
                    "hold it against what was asked for in that time",
                )
            )
        seal.write_dataset(path, whole, analyse(whole), about, warnings=warnings)
    return told_of(path, "join")


def _events(tree: xr.DataTree, file: Path) -> xr.Dataset:
    if "raw" not in tree.children or "begin" not in tree["raw"].variables:
        raise UsageError("io.no_events", f"{file} holds no events", "give traces of 'sonde io run'")
    return tree["raw"].to_dataset()


def _counted(files: Sequence[Path], have: Sequence[bool], asked: Path | None) -> int | None:
    """Which file's counters of servers are kept; None where there are none."""
    there = [file for file, has in zip(files, have) if has]
    if asked is not None:
        if asked not in there:
            raise UsageError(
                "io.no_counters",
                f"--servers-of {asked}: that is none of the traces that hold what servers counted",
                f"these do: {', '.join(map(str, there))}" if there else "none of them does: leave it out",
            )
        return files.index(asked)
    if len(there) > 1:
        raise UsageError(
            "io.counters_twice",
            f"{' and '.join(map(str, there))} all hold what servers counted; counts of times that overlap cannot be "
            "added",
            f"say whose are kept: {typed('--servers-of', there[0])}",
        )
    return files.index(there[0]) if there else None


def _attrs(attrs: list[dict[str, Any]], schema: str) -> dict[str, Any]:
    """Of the whole: what is the same in all, how it was made, and when it began."""
    from sonde.core import hostlist

    same = {name: value for name, value in attrs[0].items() if all(one.get(name) == value for one in attrs)}
    hosts = [host for one in attrs for host in hostlist.expand(str(one["hostlist"]))]
    reasons = [str(one["stop_reason"]) for one in attrs]
    return same | {
        "schema": schema,
        "command": typed("sonde", *sys.argv[1:]),
        "traced": " + ".join(str(one["traced"]) for one in attrs),
        "joined": [str(one.get("run_id", "")) for one in attrs],
        "hostlist": hostlist.listed(dict.fromkeys(hosts)),
        "stop_reason": "ended" if "ended" in reasons else reasons[0],  # of a server nothing else is the end
        "complete": min(int(one.get("complete", 1)) for one in attrs),
        "began_utc_ns": min(int(one["began_utc_ns"]) for one in attrs),
    }

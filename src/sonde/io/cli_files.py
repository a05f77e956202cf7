"""sonde io convert, join: traces for other tools, and traces that belong together as one."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonde.core import distribution
from sonde.core.errors import EnvironmentFailure, UsageError, Warning, typed
from sonde.core.options import FILE, common
from sonde.core.outcome import Outcome
from sonde.core.owned_files import NewFile

if TYPE_CHECKING:
    import xarray as xr


ENDINGS = {".csv": "csv", ".parquet": "parquet", ".json": "perfetto"}


@click.command()
@common("output")
@FILE
@click.option(
    "--to",
    type=click.Choice(["perfetto", "csv", "parquet"]),
    help="By default, as OUT ends: .json .csv .parquet.",
)
def convert(file: Path, to: str | None, output: Path | None) -> Outcome:
    """Every call of a trace, for Perfetto, or as a table.

    perfetto: Chrome's trace format, which ui.perfetto.dev and chrome://tracing open; arrows lead from a client's
    request to the server and back. A name that ends in .gz is compressed.

    Without -o, or with -o -, text goes to standard output.

    \b
    sonde io convert a.nc -o a.json.gz
    sonde io convert a.nc --to csv > a.csv
    """
    import sonde
    from sonde.io.trace import export

    if output == Path("-"):
        output = None
    chosen = to or _by_name(output)
    with sonde.open(file) as tree:
        if "raw" not in tree.children or "begin" not in tree["raw"].variables:
            raise UsageError("io.no_events", f"{file} holds no events", "give a trace of 'sonde io run'")
        raw = tree["raw"].to_dataset()
        events = raw.sizes["event"]
        outcome = Outcome("io", "convert", schema=str(tree.attrs["schema"]), dataset=str(output or file))
        outcome.values = {"events": events, "to": chosen}
        outcome.verdict = f"{output}: {events} events"
        if chosen == "parquet":
            _parquet(raw, output)
            return outcome
        text = export.csv_text(raw) if chosen == "csv" else export.chrome_text(raw)
        if output is None:
            outcome.document = b"".join(text).decode()  # the file is closed before a stream would be read
            return outcome
        _written(text, output)
    return outcome


def _by_name(output: Path | None) -> str:
    suffix = "" if output is None else Path(output.name.removesuffix(".gz")).suffix
    if suffix not in ENDINGS:
        raise UsageError(
            "io.no_format",
            f"'{output}' does not say what is wanted" if output else "nothing says what is wanted",
            "--to perfetto, csv or parquet; or -o OUT.json, OUT.csv, OUT.parquet",
        )
    return ENDINGS[suffix]


def _written(text: Iterator[bytes], output: Path) -> None:
    """Whole or not at all."""
    try:
        with NewFile(output) as new:
            with new.file() as file:
                name = output.name.removesuffix(".gz")  # which gzip keeps
                stream = gzip.GzipFile(name, "wb", 6, file) if output.suffix == ".gz" else None
                with stream or nullcontext():
                    for piece in text:
                        (stream or file).write(piece)
            new.publish()
    except OSError as error:
        from sonde.core.seal import cannot_write

        raise cannot_write(output, error, "choose another place") from None


def _parquet(raw: xr.Dataset, output: Path | None) -> None:
    from sonde.io.trace import export

    if output is None:
        raise UsageError("io.no_output", "Parquet is no text for a terminal", "name a file: -o OUT.parquet")
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise EnvironmentFailure(
            "io.no_parquet",
            "pyarrow is not installed",
            f"{distribution.install_python('pyarrow')}, or --to csv",
        ) from None
    kinds: dict[str, Any] = {"rank": pa.int32(), "process": pa.int32(), "thread": pa.int32()}
    texts = ("host", "layer", "function", "engine", "request", "path")
    fields = [
        pa.field(
            name,
            pa.dictionary(pa.int32(), pa.string()) if name in texts else kinds.get(name, pa.int64()),
            metadata={"units": unit} if unit else None,
        )
        for name, unit in export.COLUMNS.items()
    ]
    schema = pa.schema(fields)
    try:
        with NewFile(output) as new:
            with pq.ParquetWriter(new.path, schema) as writer:
                for columns in export.rows(raw):
                    arrays = [pa.array(columns[field.name].tolist(), field.type) for field in schema]
                    writer.write_table(pa.table(arrays, schema=schema))
            new.publish()
    except OSError as error:
        from sonde.core.seal import cannot_write

        raise cannot_write(output, error, "choose another place") from None


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
    from sonde.io.cli import told_of
    from sonde.io.maps import run_maps
    from sonde.io.trace import merge
    from sonde.io.trace.analyse import analyse
    from sonde.io.trace.schema import NAME

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

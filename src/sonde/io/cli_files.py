"""sonde io convert, join: export traces for other tools, and join traces of one time into one dataset."""

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
    help="The format. The default follows the name of OUT: .json .csv .parquet.",
)
def convert(file: Path, to: str | None, output: Path | None) -> Outcome:
    """Write every call of a trace for Perfetto, or as a table.

    perfetto: the Chrome trace format, which ui.perfetto.dev and chrome://tracing open; arrows lead from a client's
    request to the server and back. If the file name ends in .gz, the output is compressed.

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
            f"the name '{output}' does not show the format" if output else "no format is given",
            "give --to perfetto, csv or parquet; or -o OUT.json, OUT.csv, OUT.parquet",
        )
    return ENDINGS[suffix]


def _written(text: Iterator[bytes], output: Path) -> None:
    """Write the file completely or not at all."""
    try:
        with NewFile(output) as new:
            with new.file() as file:
                name = output.name.removesuffix(".gz")  # gzip stores this name
                stream = gzip.GzipFile(name, "wb", 6, file) if output.suffix == ".gz" else None
                with stream or nullcontext():
                    for piece in text:
                        (stream or file).write(piece)
            new.publish()
    except OSError as error:
        from sonde.core.disk import cannot_write

        raise cannot_write(output, error, "choose another place") from None


def _parquet(raw: xr.Dataset, output: Path | None) -> None:
    from sonde.io.trace import export

    if output is None:
        raise UsageError(
            "io.no_output", "Parquet is binary and not for a terminal", "give a file: -o OUT.parquet"
        )
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
        from sonde.core.disk import cannot_write

        raise cannot_write(output, error, "choose another place") from None


@click.command()
@common("output")
@click.option(
    "--servers-of",
    "counted",
    type=click.Path(path_type=Path),
    metavar="FILE.nc",
    help="The trace whose server counters (--gluster) are used, if several have some.",
)
@click.argument("files", metavar="A.nc B.nc...", nargs=-1, required=True, type=click.Path(path_type=Path))
def join(files: tuple[Path, ...], counted: Path | None, output: Path | None) -> Outcome:
    """Join traces of one time into one dataset: a server's and its clients', each made by its own 'sonde io run'.

    The work of servers is then linked to the requests of their clients. The counters of a file system's servers come
    from the one trace that has them: two sets of counters would count the same work twice.

    \b
    sonde io run -o server.nc -- sonde store serve --memory
    sonde io run -o client.nc -- python app.py               # in another terminal
    sonde io join client.nc server.nc -o both.nc
    """
    import sonde
    from sonde.core import dataset, dataset_file
    from sonde.core.launch.start import output_path
    from sonde.io.cli import told_of
    from sonde.io.maps import run_maps
    from sonde.io.trace import merge
    from sonde.io.trace.analyse import analyse
    from sonde.io.trace.schema import NAME

    if len({file.resolve() for file in files}) < max(2, len(files)):
        raise UsageError(
            "io.nothing_to_join", "give two or more traces, each once", "for example: sonde io join A.nc B.nc"
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
                    f"the server counters are only from the time of {files[servers]}",
                    "compare them only with the requests of that time",
                )
            )
        dataset_file.write_dataset(path, whole, analyse(whole), about, warnings=warnings)
    return told_of(path, "join")


def _events(tree: xr.DataTree, file: Path) -> xr.Dataset:
    if "raw" not in tree.children or "begin" not in tree["raw"].variables:
        raise UsageError("io.no_events", f"{file} holds no events", "give traces of 'sonde io run'")
    return tree["raw"].to_dataset()


def _counted(files: Sequence[Path], have: Sequence[bool], asked: Path | None) -> int | None:
    """The index of the file whose server counters are used; None if no file has any."""
    present = [file for file, has in zip(files, have) if has]
    if asked is not None:
        if asked not in present:
            raise UsageError(
                "io.no_counters",
                f"--servers-of {asked}: this trace has no server counters",
                f"these have some: {', '.join(map(str, present))}"
                if present
                else "none of them has any: leave the option out",
            )
        return files.index(asked)
    if len(present) > 1:
        raise UsageError(
            "io.counters_twice",
            f"{' and '.join(map(str, present))} all have server counters; counts of overlapping times "
            "cannot be added",
            f"choose whose to use: {typed('--servers-of', present[0])}",
        )
    return files.index(present[0]) if present else None


def _attrs(attrs: list[dict[str, Any]], schema: str) -> dict[str, Any]:
    """The attributes of the joined dataset: those equal in all, and how and when it was made."""
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
        "stop_reason": "ended" if "ended" in reasons else reasons[0],  # a server has no end of its own
        "complete": min(int(one.get("complete", 1)) for one in attrs),
        "began_utc_ns": min(int(one["began_utc_ns"]) for one in attrs),
    }

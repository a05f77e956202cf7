"""sonde io convert: a trace for other tools."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonde.core import distribution
from sonde.core.errors import EnvironmentFailure, UsageError
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
    from sonde.io import export

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
    from sonde.io import export

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

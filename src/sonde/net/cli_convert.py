"""`sonde net convert`, `slice` and `spectrum`: between Sonde's datasets and clustbench's files."""

from __future__ import annotations

import errno
import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from sonde.core.errors import DataError, EnvironmentFailure, SondeError, UsageError, Warning, nearest, typed
from sonde.core.options import SIZE, SIZES, common
from sonde.core.outcome import Outcome
from sonde.core.owned_files import NewFile, reading

if TYPE_CHECKING:
    import xarray as xr

    from sonde.net.clustbench import View
    from sonde.net.convert import Imported

_HDF5, _CDF = b"\x89HDF\r\n\x1a\n", b"CDF"


@click.command("convert")
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "to",
    type=click.Choice(["sonde", "clustbench", "clustbench-v1", "clustbench-v2"]),
    required=True,
    help="sonde: a dataset. clustbench (version 2) or one of its versions: files OUT_median.nc and so on.",
)
@click.option("--sizes", type=SIZES, metavar="LIST", help="Message sizes to export; default: all.")
@click.option(
    "--size", type=SIZE, metavar="BYTES", help="Message size of a fixed-length file whose name lacks it."
)
@common()
def convert(source: Path, target: Path, to: str, sizes: tuple[int, ...] | None, size: int | None) -> Outcome:
    """Convert clustbench's files into a dataset, or a dataset into clustbench's files.

    IN is a dataset, any file of clustbench (the other files of its set are found), or the common prefix of such files.
    """
    with ExitStack() as stack:
        found = _Source.find(source, stack, size)
        if to == "sonde":
            return _to_sonde(found, target, sizes)
        form = "v1" if to == "clustbench-v1" else "v2"
        return _to_clustbench(found, target, form, sizes)


@click.command("slice")
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.option("--size", type=SIZE, metavar="BYTES", required=True, help="Message size to extract.")
@click.option(
    "--to",
    type=click.Choice(["clustbench", "sonde"]),
    default="clustbench",
    help="sonde: a dataset with one size. clustbench: fixed_length_SIZE.nc.",
)
@common("output")
def cut(source: Path, size: int, to: str, output: Path | None) -> Outcome:
    """Extract one message size from a dataset or from clustbench's PREFIX_all.nc."""
    from sonde.net import clustbench, clustbench_cells, convert, slices

    with ExitStack() as stack:
        found = _Source.find(source, stack, size)
        raw = clustbench_cells.raw_of(found.tree, found.name, "slice")
        k = clustbench_cells.index_of_size(raw["size"].values, size, found.name)
        if to == "sonde":
            target = output or Path(f"{found.stem}-{size}.nc")
            one = slices.slice_raw(raw, k)
            part = convert.Imported(one, slices.no_statistics(one), found.plain_attrs(), found.warnings)
            warnings = _write(part, target, found.files)
            outcome = _outcome("slice", f"messages of {size} B", [target], warnings)
        else:
            target = output or Path(clustbench.fixed_length_name(size))
            with _drafts(found.files) as drafts:
                repetitions = slices.write_fixed_length(found.tree, raw, k, drafts.create(target))
            what = f"clustbench, messages of {size} B, {repetitions} repetitions"
            outcome = _outcome("slice", what, [target], found.warnings)
        outcome.values["size"] = size
        return outcome


@click.command("spectrum")
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.option("--size", type=SIZE, metavar="BYTES", required=True, help="Message size.")
@click.option("--window", type=click.IntRange(min=2), metavar="N", required=True, help="Samples in a window.")
@click.option(
    "--to",
    type=click.Choice(["clustbench", "sonde"]),
    default="clustbench",
    help="sonde: a dataset with /summary/spectrum. clustbench: spectrum_SIZE_WINDOW.nc.",
)
@common("output")
def spectrum(source: Path, size: int, window: int, to: str, output: Path | None) -> Outcome:
    """Compute the amplitude of every harmonic, in all windows of N consecutive samples, for each pair."""
    from sonde.core.spectra import sliding_amplitude
    from sonde.net import clustbench, clustbench_cells, convert, slices

    with ExitStack() as stack:
        found = _Source.find(source, stack, size)
        raw = clustbench_cells.raw_of(found.tree, found.name, "spectrum")
        k = clustbench_cells.index_of_size(raw["size"].values, size, found.name)
        if to == "sonde":
            target = output or Path(f"{found.stem}-spectrum-{size}-{window}.nc")
            summary = slices.spectrum_summary(raw, k, window, sliding_amplitude)
            positions = summary.sizes["position"]
            part = convert.Imported(None, summary, found.plain_attrs(), found.warnings)
            warnings = _write(part, target, found.files)
        else:
            target = output or Path(clustbench.spectrum_name(size, window))
            warnings = found.warnings
            with _drafts(found.files) as drafts:
                positions = slices.write_spectrum(
                    found.tree, raw, k, window, sliding_amplitude, drafts.create(target)
                )
        what = f"spectra of {positions} windows of {window} samples at {size} B"
        outcome = _outcome("spectrum", what, [target], warnings)
        outcome.values |= {"size": size, "window": window, "positions": positions}
        return outcome


# ---- input ---------------------------------------------------------------------------------------


class _Source:
    """A dataset or files of clustbench, open as a tree until the stack closes."""

    def __init__(self, name: str, stem: str, tree: xr.DataTree, files: list[Path]) -> None:
        self.name, self.stem, self.tree, self.files = name, stem, tree, files
        self.imported: Imported | None = None

    @property
    def warnings(self) -> list[Warning]:
        return self.imported.warnings if self.imported else []

    def plain_attrs(self) -> dict[str, Any]:
        """Root attributes, without those that only an export to clustbench needs."""
        from sonde.net.convert import STORED

        return {str(key): value for key, value in self.tree.attrs.items() if key != STORED}

    @classmethod
    def find(cls, path: Path, stack: ExitStack, size: int | None) -> _Source:
        """Open a dataset, a file of clustbench, or a prefix of such files.

        Raises
        ------
        DataError  those of `dataset.open` and `clustbench.look`, net.no_such_files.
        """
        if path.is_file() and not _is_clustbench(path):
            from sonde.core import dataset

            tree = stack.enter_context(dataset.open(path))
            if dataset.schema_of(tree)[0] != "net":
                schema = tree.attrs["schema"]
                raise DataError(
                    "net.other_room", f"{path} is a dataset of {schema}, not of net", "give a net dataset"
                )
            return cls(path.name, path.stem, tree, [path])
        from sonde.net import clustbench, convert

        views = _open_set(path, stack)
        first = next(iter(views.values()))[1]
        hosts, files = None, [file for file, _ in views.values()]
        warnings: list[Warning] = []
        split = clustbench.split_name(files[0].name)
        if split:
            hosts_file = files[0].with_name(clustbench.set_name(split[0], "hosts"))
            if hosts_file.is_file():
                files.append(hosts_file)
                hosts = clustbench.read_hosts(_text(hosts_file), first.header.ranks)
                if hosts is None:
                    warnings.append(
                        Warning(
                            "net.clustbench_hosts",
                            f"{hosts_file.name} does not have a host for each of {first.header.ranks} ranks",
                            "it is ignored: ranks have no hosts",
                        )
                    )
        if first.form == "fixed_length":
            named = clustbench.fixed_length_of(first.name)
            if named is None and size is None:
                raise UsageError(
                    "net.size_unknown",
                    f"{first.name} has one message size, which only its name can give: fixed_length_64.nc",
                    "give it with --size",
                )
            imported = convert.from_fixed_length(first, size if named is None else named)  # type: ignore[arg-type]
        elif first.form == "spectrum":
            imported = convert.from_spectrum(first)
        else:
            imported = convert.from_set({kind: view for kind, (_, view) in views.items()}, hosts)
        imported.warnings[:0] = warnings
        stem = split[0] if split else path.stem
        found = cls(path.name, stem, imported.tree(), files)
        found.imported = imported
        return found


def _is_clustbench(path: Path) -> bool:
    """Whether a file is NetCDF-3, or NetCDF-4 without a schema. `dataset.open` handles all others."""
    with _told(path), reading(path) as stream:
        head = stream.read(8)
    if head[:3] == _CDF:
        return True
    if head != _HDF5:
        return False
    from sonde.core.netcdf import named, netCDF4

    with suppress(OSError, RuntimeError), named(path) as name, netCDF4.Dataset(name) as nc:
        return "schema" not in nc.ncattrs() and "data" in nc.variables
    return False


def _open_set(path: Path, stack: ExitStack) -> dict[str, tuple[Path, View]]:
    """Open files of clustbench by kind: the given one and those that share its prefix."""
    from sonde.net import clustbench

    if path.is_file():
        split = clustbench.split_name(path.name)
        first = _open(path, stack)
        if not split or first.form in ("fixed_length", "spectrum"):
            return {first.kind: (path, first)}
        prefix = split[0]
    else:
        first, prefix = None, path.name
    names = {kind: path.with_name(clustbench.set_name(prefix, kind)) for kind in clustbench.KINDS}
    existing = {kind: file for kind, file in names.items() if file.is_file()}
    if not existing:
        raise _nothing_there(path, [file.name for file in names.values()])
    return {
        kind: (file, first if first is not None and file == path else _open(file, stack))
        for kind, file in existing.items()
    }


def _nothing_there(path: Path, names: list[str]) -> DataError:
    if path.is_dir():
        return DataError(
            "net.no_such_files",
            f"{path} is a folder",
            "give a file in it, or the prefix of clustbench's files",
        )
    beside = [] if not path.parent.is_dir() else [entry.name for entry in path.parent.iterdir()]
    return DataError(
        "net.no_such_files",
        f"{path} does not exist{nearest(path.name, beside)}",
        f"a prefix stands for files of clustbench: {', '.join(names[:4])} and so on",
    )


def _open(path: Path, stack: ExitStack) -> View:
    from sonde.core import dataset
    from sonde.core.netcdf import named, netCDF4
    from sonde.net import clustbench
    from sonde.net.classic import check_whole

    with _told(path), reading(path) as stream:
        check_whole(stream, path.stat().st_size, path.name)
    try:
        nc = stack.enter_context(netCDF4.Dataset(stack.enter_context(named(path))))
        dataset.check_claims(nc, path)
        return clustbench.look(nc, path.name)
    except (OSError, RuntimeError):
        raise DataError(
            "net.not_netcdf",
            f"{path} is damaged: the NetCDF library cannot read its structure",
            "copy it again from its source",
        ) from None


def _text(path: Path) -> str:
    with _told(path), reading(path) as file:
        return io.TextIOWrapper(file, "utf-8", "replace").read()


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise DataError("core.cannot_read", f"cannot read {path}: {why}", "check its permissions") from None


# ---- output --------------------------------------------------------------------------------------


def _to_sonde(found: _Source, target: Path, sizes: Sequence[int] | None) -> Outcome:

    if found.imported is None:
        raise UsageError(
            "net.nothing_to_convert",
            f"{found.name} is a dataset of Sonde already",
            "export it with --to clustbench-v1 or clustbench-v2, or extract one size with sonde net slice",
        )
    if sizes is not None:
        raise UsageError(
            "net.sizes_of_import",
            "--sizes selects sizes for an export to clustbench; an import reads all sizes",
            "convert all sizes, then: sonde net slice OUT --size S --to sonde",
        )
    from sonde.net.schema import CLUSTBENCH

    warnings = _write(found.imported, target, found.files)
    imported = found.imported
    of = imported.raw if imported.raw is not None else imported.summary
    what = f"{of.sizes['src']} ranks, {of.sizes['size']} message sizes"
    what += ", every delay" if imported.raw is not None else ", statistics only"
    outcome = _outcome("convert", f"{imported.attrs['imported_from']}, {what}", [target], warnings)
    outcome.schema, outcome.dataset = imported.attrs["schema"], str(target)
    outcome.complete = bool(imported.attrs.get("complete", 1))
    outcome.values["kept_statistics"] = sorted(
        str(name) for name in imported.summary.data_vars if str(name).startswith(CLUSTBENCH)
    )
    return outcome


def _to_clustbench(found: _Source, prefix: Path, form: str, sizes: Sequence[int] | None) -> Outcome:
    from sonde.net import clustbench, export

    if prefix.suffix == ".nc":
        raise UsageError(
            "net.prefix_expected",
            f"'{prefix}' is the name of one file, but clustbench {form} has several",
            f"give a prefix: '{prefix.with_suffix('')}' gives {prefix.stem}_median.nc and so on",
        )
    files: dict[str, Path] = {}
    with _drafts(found.files) as drafts:

        def create(kind: str) -> BinaryIO:
            files[kind] = prefix.with_name(clustbench.set_name(prefix.name, kind))
            return drafts.create(files[kind])

        target: export.Target = "v1" if form == "v1" else "v2"
        done = export.export(found.tree, found.name, target, create, sizes)
        if done.hosts:
            files["hosts"] = prefix.with_name(clustbench.set_name(prefix.name, "hosts"))
            drafts.create(files["hosts"]).write(clustbench.hosts_text(done.hosts).encode())
    many = "size" if len(done.sizes) == 1 else "sizes"
    what = f"clustbench {form}, {len(done.sizes)} message {many}"
    outcome = _outcome("convert", what, list(files.values()), [*found.warnings, *done.warnings])
    outcome.lines = [f"note: {note}" for note in done.notes]
    outcome.values |= {"sizes": done.sizes, "notes": done.notes}
    return outcome


def _write(imported: Imported, target: Path, sources: Sequence[Path]) -> list[Warning]:
    """Write a dataset; return its warnings, which it also contains."""
    from sonde.core.dataset_file import write_dataset
    from sonde.net import convert

    _check_target(target, sources)
    summary, more = convert.joined_summary(imported)
    warnings = [*imported.warnings, *more]
    attrs = {"command": typed("sonde", *sys.argv[1:]), **imported.attrs}
    write_dataset(target, imported.raw, summary, attrs, warnings=warnings)
    return warnings


def _outcome(verb: str, what: str, files: Sequence[Path], warnings: Sequence[Warning]) -> Outcome:
    names = [str(file) for file in files]
    listed = names[0] if len(names) == 1 else f"{len(names)} files, {names[0]} to {Path(names[-1]).name}"
    outcome = Outcome("net", verb, f"{what}: {listed}", warnings=list(warnings))
    outcome.values["files"] = names
    outcome.dataset = names[0] if len(names) == 1 else None
    return outcome


def _check_target(target: Path, sources: Sequence[Path]) -> None:
    if any(target.resolve() == source.resolve() for source in sources):
        raise UsageError(
            "net.would_overwrite", f"{target} would overwrite its own source", "give another name"
        )


class _Drafts:
    """Unfinished files of clustbench, each next to its final place."""

    def __init__(self, sources: Sequence[Path]) -> None:
        self._sources = sources
        self._open: list[BinaryIO] = []
        self._made: list[NewFile] = []

    def create(self, target: Path) -> BinaryIO:
        """An empty file that `publish` renames to its final name."""
        _check_target(target, self._sources)
        with _writing(target):
            self._made.append(NewFile(target))
            self._open.append(cast(BinaryIO, self._made[-1].file()))
        return self._open[-1]

    def publish(self) -> None:
        for stream, new in zip(self._open, self._made):
            with _writing(new.target):
                stream.close()
                new.publish()

    def discard(self) -> None:
        for stream in self._open:
            with suppress(OSError):
                stream.close()
        for new in self._made:
            new.discard()

    def failed(self, error: OSError | RuntimeError) -> SondeError:
        """The cause of an error during reading and writing: netCDF-C's own errors have no errno, or one below 0."""
        target = self._made[-1].target if self._made else Path()
        if isinstance(error, OSError) and (error.errno or 0) > 0:
            return _unwritable(target, error)
        from sonde.core import dataset

        if data_error := dataset.blamed(error):
            return data_error
        names = ", ".join(str(source) for source in self._sources)
        which = "it is" if len(self._sources) == 1 else "one of them is"
        what = f"cannot read {names} to the end: {which} damaged"
        return DataError("core.damaged_file", what, "copy it again from its source")


@contextmanager
def _drafts(sources: Sequence[Path]) -> Iterator[_Drafts]:
    """Files that appear together when all are complete, and not at all if one cannot be written."""
    drafts = _Drafts(sources)
    try:
        try:
            yield drafts
        except (OSError, RuntimeError) as error:
            raise drafts.failed(error) from error
        drafts.publish()
    except BaseException:
        drafts.discard()
        raise


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _unwritable(target, error) from None


def _unwritable(target: Path, error: OSError) -> EnvironmentFailure:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return EnvironmentFailure(
            "core.disk_full",
            f"cannot write {target}: no space left",
            "free space, or choose another place",
        )
    why = error.strerror or str(error)
    return EnvironmentFailure("core.cannot_write", f"cannot write {target}: {why}", "choose another place")

"""`sonde data recover`: datasets from a run's folder after the run was killed or its saving failed."""

from __future__ import annotations

import fcntl
from pathlib import Path

from sonde.core import dataset, run_folder, seal
from sonde.core.errors import DataError, EnvironmentFailure, UsageError, typed
from sonde.core.interrupt import put_off
from sonde.core.launch import remains
from sonde.core.layout import SealedFile
from sonde.core.owned_files import Folder
from sonde.data import rooms


def recover(run_dir: Path, out: Path | None = None, analyse: bool = True) -> list[SealedFile]:
    """Save the data in a run's folder, and remove the folder. Datasets of killed runs have `complete` 0.

    run_dir: the folder. out: the dataset, or a folder for it; by default the path that the run would have used.
    analyse: compute /summary.

    Raises
    ------
    UsageError  data.would_replace: the dataset of another run has this name.
    DataError, EnvironmentFailure  as `seal.seal`; the folder is then unchanged. core.busy also while a rank still
    writes.

    A folder of another user is only read, and stays unchanged.
    """
    with run_folder.hold(run_dir) as held:
        if (done := seal.finish(run_dir, held, out)) is not None:
            return done
        target = default_target(run_dir) if out is None else out
        _refuse_while_written(held.files)
        if held.writable:
            remains.clear(run_dir)
        run = run_folder.read(run_dir)
        schema = rooms.schema(run.room)
        for part, path in seal.targets(run_dir, target, seal.parts_of(run_dir, run, schema)):
            if path.exists() and not _same_run(path, run):
                raise UsageError(
                    "data.would_replace",
                    f"{path} exists already, and belongs to another run{f' ({part})' if part else ''}",
                    f"choose another name: {typed('sonde', 'data', 'recover', run_dir, '-o', 'ELSEWHERE.nc')}",
                )
        with put_off(f"data: interrupted; {run_dir} is unchanged") as asked:
            return seal.seal(run_dir, target, schema, analyse=analyse, held=held, progress=asked.leave)


def default_target(run_dir: Path) -> Path:
    """The path that a run would have used for its dataset: "a.run" belongs to "a.nc" next to it."""
    folder = run_dir if run_dir.suffix == ".run" else run_dir.resolve()
    return folder.with_suffix(".nc") if folder.suffix == ".run" else folder.with_name(f"{folder.name}.nc")


def _refuse_while_written(run: Folder) -> None:
    """Raise core.busy if a rank has its block file open: the rank may outlive its parent for a while."""
    for name in run.names():
        if not name.endswith(".blk"):
            continue
        try:
            with run.reading(name) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EnvironmentFailure(
                "core.busy",
                f"{run.path / name} is still being written: a rank of the run is still active",
                "wait until it has noticed the end of its parent, then try again",
            ) from None
        except OSError:  # no locks here, or only for writers
            continue


def _same_run(path: Path, run: run_folder.Run) -> bool:
    try:
        with dataset.open(path) as tree:
            found = dataset.attrs(tree)
    except DataError:
        return False
    recorded = {
        name: run.attrs[name] for name in ("run_id", "created_utc", "command", "seed") if name in run.attrs
    }
    return bool(recorded) and all(found.get(name) == value for name, value in recorded.items())

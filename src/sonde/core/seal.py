"""From block files to a dataset, streaming. `recover` does the same with the remains of a kill -9.

A run works in a folder (`run_folder`). `seal` turns it into datasets and removes it. Whenever a process dies in
between, the folder or the dataset exists, and is whole:

- datasets are built next to their place (`dataset_file`), and renamed only when all of them are finished;
- the folder is removed only after that; from the beginning of its removal it names the datasets, so that a half-removed
  folder never overwrites them.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonde.core import run_folder
from sonde.core.blocks import BlockFile
from sonde.core.dataset import ROOT_ATTRIBUTES
from sonde.core.dataset_file import Draft, assign, attribute, default_attrs, define, finish_file, write_attrs
from sonde.core.deadline import Deadline, LeftOut
from sonde.core.disk import sync_folder
from sonde.core.errors import DataError, EnvironmentFailure, Warning, typed
from sonde.core.layout import Layout, RoomSchema, SealedFile
from sonde.core.owned_files import Folder
from sonde.core.run_folder import NO_RUN, RUN_FILE, SEALED_FILE, Hold, Run
from sonde.core.values import plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import xarray as xr

FILES_LEFT = "core.files_left"
_PART_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_READ_CACHE_BYTES = 8 << 20  # for each variable that analyse reads
_FINISH_S = 0.5  # minimum for the steps after an analysis: writing /summary, and reading it for the result


def seal(
    run_dir: str | PathLike[str],
    out: str | PathLike[str],
    schema: RoomSchema,
    *,
    attrs: Mapping[str, Any] | None = None,
    warnings: Iterable[Warning] = (),
    analyse: bool = True,
    keep: bool = False,
    held: Hold | None = None,
    progress: Callable[[int, int], None] | None = None,
    deadline: Deadline | None = None,
) -> list[SealedFile]:
    """Turn a run's folder into its datasets, in bounded memory, and remove the folder.

    A run that did not record its `stop_reason` was killed: its datasets get "killed", `complete` 0 and a warning.
    Damaged block files lose only the damaged part, with a warning in the dataset. If `analyse` fails, /raw is saved all
    the same.

    Parameters
    ----------
    run_dir : the folder
    out : the dataset's path; or a folder, where the dataset gets the name of the run. Each of several parts is named
    <stem>-<part>.nc. An existing file is replaced.
    schema : the room's
    attrs, warnings : as for `run_folder.end`, which is called with them first
    analyse : compute /summary; without it the dataset holds only /raw, and a warning about this
    keep : leave the folder
    held : the result of `run_folder.hold`, if the caller holds the folder; otherwise it is held here
    progress : called with (files placed, files to place)
    deadline : the end of the command's --budget; None: never. Parts that an analysis leaves out are reported by a
    warning in the dataset

    Returns
    -------
    One SealedFile for each part.

    Raises
    ------
    EnvironmentFailure  core.disk_full, core.cannot_write, core.busy, core.unsafe_file, core.unsafe_folder; the folder
    is unchanged.
    DataError  core.not_a_run, core.wrong_schema, core.no_records (nothing was ever recorded).
    """
    folder = Path(run_dir)
    pace = _Pace(deadline or Deadline())
    with contextlib.ExitStack() as stack:
        hold_ = held or stack.enter_context(run_folder.hold(folder))
        if (done := finish(folder, hold_, Path(out))) is not None:
            return done
        run = _ended(hold_, schema, dict(attrs or {}), list(warnings))
        sealed, drafts = [], []
        try:
            sealing = _Sealing(folder, run, schema, *_block_files(hold_.files))
            names = parts_of(folder, run, schema)
            for number, (part, target) in enumerate(targets(folder, Path(out), names)):
                report = _scaled(progress, number, len(names), len(sealing.files))
                drafts.append(draft := Draft(target, folder))
                mine = pace.part(number, len(names)) if analyse else None
                sealed.append(sealing.write(part, draft, report, mine))
            for draft in drafts:
                draft.publish()
        except BaseException:
            for draft in drafts:
                draft.discard()
            raise
        if not keep:
            _remove(folder, sealed, hold_)
        return sealed


def _ended(held: Hold, schema: RoomSchema, attrs: dict[str, Any], warnings: list[Warning]) -> Run:
    """A run whose end is recorded, and whose files are complete.

    Raises
    ------
    DataError  core.not_a_run, core.wrong_schema.
    """
    folder = held.folder
    if attrs or warnings:
        # A full disk must not prevent saving elsewhere; they are added to the run below anyway.
        with contextlib.suppress(EnvironmentFailure):
            run_folder.end_in(held.files, attrs, warnings)
    run = run_folder.read_from(held.files)
    run.attrs |= attrs
    run.warnings += [warning for warning in warnings if warning not in run.warnings]
    if run.schema != f"{schema.room}/{schema.version}":
        raise DataError(
            "core.wrong_schema",
            f"{folder} was recorded as {run.schema}; this Sonde writes {schema.room}/{schema.version}",
            "save it with the version of Sonde that recorded it",
        )
    if (close := getattr(schema, "close", None)) is not None:
        with fitting(folder):
            gained, reported = close(folder, "stop_reason" in run.attrs)
        run.plan |= gained
        run.warnings += reported
    return run


class _Pace:
    """Shares the time until a deadline between the parts of a run, and between each analysis and the steps after it."""

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = replace(deadline, left_out=[])  # for this dataset only
        self._began = deadline.clock()

    def part(self, number: int, parts: int) -> _Pace:
        """The deadline of one dataset, at the beginning of its analysis."""
        return _Pace(self.deadline.part(1 / (parts - number)))

    def placed(self) -> Deadline:
        """The end of the analysis, now that /raw is written: the steps after it take about as long again."""
        return self.deadline.earlier(max(_FINISH_S, self.deadline.clock() - self._began))


def _cut_short(room: str, left: LeftOut) -> Warning:
    """The warning about an analysis that --budget ended."""
    return Warning(
        f"{room}.analysis_cut_short", f"--budget was over: {left.text()}", "give a longer --budget"
    )


_NOT_ANALYSED = Warning(
    "core.not_analysed", "/summary was not computed, as requested", "analyse /raw with sonde.open(FILE)"
)


def _scaled(
    progress: Callable[[int, int], None] | None, part: int, parts: int, files: int
) -> Callable[[int], None]:
    return lambda done: progress(part * files + done, parts * files) if progress else None


def _block_files(run: Folder) -> tuple[list[BlockFile], list[Warning]]:
    """The folder's readable block files, and warnings about the others."""
    files, unread, folder = [], [], run.path
    for name in run.names():
        if not name.endswith(".blk"):
            continue
        try:
            files.append(BlockFile(folder / name, run))
        except DataError as error:
            unread.append(Warning("core.unreadable_block_file", error.what, error.hint))
    if not files:
        why = "; ".join(warning.evidence for warning in unread) or "it has no block file"
        raise DataError(
            "core.no_records",
            f"nothing in {folder} can be saved: {why}",
            f"see {folder / 'log'}; then measure again",
        )
    return files, unread


def parts_of(folder: Path, run: Run, schema: RoomSchema) -> list[str]:
    """Names of the datasets that a run's folder becomes, from its plan, which a stranger may have written.

    Raises
    ------
    DataError  core.not_a_run: the plan names no dataset, one twice, or a name that is unsafe in a file name.
    """
    with fitting(folder):
        names = list(schema.parts(run.plan))
    whole = len(names) == 1
    bad = [name for name in names if not _is_part_name(name, whole)]
    if bad or not names or len(set(names)) < len(names):
        what = f"names the datasets {names!r:.200}" if names else "names no dataset"
        raise DataError(
            "core.not_a_run",
            f"{folder}: the plan in {RUN_FILE} {what}; allowed: words of letters, digits, '_' and '-', each once",
            "copy the folder again from where it was measured",
        )
    return names


def _is_part_name(name: object, whole: bool) -> bool:
    """Whether a part's name is safe in a file name. whole: the run becomes one dataset, which needs no name."""
    return isinstance(name, str) and (bool(_PART_NAME.fullmatch(name)) or (whole and not name))


def targets(folder: Path, out: Path, parts: Sequence[str]) -> list[tuple[str, Path]]:
    """The datasets that a run's folder becomes: (part, path) each. out: as for `seal`.

    Raises
    ------
    EnvironmentFailure  core.cannot_write: their folder does not exist.
    """
    target = out / f"{folder.name.removesuffix('.run')}.nc" if out.is_dir() else out
    if not target.parent.is_dir():
        raise EnvironmentFailure(
            "core.cannot_write",
            f"cannot write {target}: there is no folder {target.parent}",
            f"create it, or save elsewhere: {typed('sonde', 'data', 'recover', folder, '-o', 'ELSEWHERE')}",
        )
    return [(part, target.with_stem(f"{target.stem}-{part}") if len(parts) > 1 else target) for part in parts]


@dataclass
class _Sealing:
    """A run that becomes datasets. files: its readable block files, at least one. unread: warnings about the others."""

    folder: Path
    run: Run
    schema: RoomSchema
    files: Sequence[BlockFile]
    unread: Sequence[Warning]

    @property
    def ended(self) -> bool:
        """Whether the run recorded how it ended; otherwise it was killed."""
        return "stop_reason" in self.run.attrs

    @property
    def stop_reason(self) -> str:
        return str(self.run.attrs.get("stop_reason", "killed"))

    def write(self, part: str, draft: Draft, report: Callable[[int], None], pace: _Pace | None) -> SealedFile:
        """Write the dataset of one part. report: called with the number of files that are placed. pace: for the
        analysis; None: no analysis.
        """
        with fitting(self.folder):
            layout = self.schema.layout({**self.run.plan, "stop_reason": self.stop_reason}, self.files, part)
        root = self._root(layout)
        reported = self._warnings(layout)
        self._place(part, draft, layout, root, report)
        summary, missing = (
            _analysed(draft, root, self.schema, pace.placed()) if pace else (None, [_NOT_ANALYSED])
        )
        reported += missing
        with draft.opened("a") as file:
            finish_file(draft, file, summary, self.run.env, reported)
        return SealedFile(draft.target, root["complete"], reported)

    def _root(self, layout: Layout) -> dict[str, Any]:
        """The root attributes of a dataset; later ones replace earlier ones."""
        return {
            **dict.fromkeys(ROOT_ATTRIBUTES, ""),
            **default_attrs(),
            "schema": self.run.schema,
            **self.run.attrs,
            **layout.attrs,
            "stop_reason": self.stop_reason,
            "complete": bool(layout.complete and self.ended and self.run.attrs.get("complete", 1)),
        }

    def _warnings(self, layout: Layout) -> list[Warning]:
        damaged = [*self.unread, *(warning for file in self.files for warning in file.warnings)]
        reported = [*self.run.warnings, *_folded(damaged), *layout.warnings]
        if not self.ended:
            records = _counted(sum(file.records for file in self.files), "record")
            reported.append(
                Warning(
                    "core.run_was_killed",
                    f"the run did not record its end; {records} in {_counted(len(self.files), 'file')} were saved",
                    "measure again for the missing part",
                )
            )
        return reported

    def _place(
        self,
        part: str,
        draft: Draft,
        layout: Layout,
        root: Mapping[str, Any],
        report: Callable[[int], None],
    ) -> None:
        """Write root attributes and /raw, one block file after another."""
        with draft.opened("w") as file:
            write_attrs(file, root)
            group = file.createGroup("raw")
            places = define(draft, group, layout)
            for done, blocks in enumerate(self.files):
                with fitting(self.folder):
                    for name, where, values in self.schema.place(self.run.plan, layout, blocks, part):
                        with draft.writing():
                            assign(places[name], where, values)
                report(done + 1)


@contextlib.contextmanager
def fitting(folder: Path) -> Iterator[None]:
    """Report errors from a plan that does not fit its files. Only the room understands its plan: a plan that somebody
    else wrote, or that is damaged, may name things that do not exist.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise DataError(
            "core.not_a_run",
            f"{folder}: {RUN_FILE} and the block files do not fit together ({type(error).__name__}: {error})",
            "copy the folder again from where it was measured; --debug shows where it failed",
        ) from error


def _analysed(
    draft: Draft, root: dict[str, Any], schema: RoomSchema, deadline: Deadline
) -> tuple[xr.Dataset | None, list[Warning]]:
    import xarray as xr

    from sonde.core.netcdf import netCDF4

    before = netCDF4.get_chunk_cache()
    netCDF4.set_chunk_cache(_READ_CACHE_BYTES, 1009, 0.75)
    try:
        with xr.open_dataset(
            draft.part,
            group="raw",
            engine="netcdf4",
            mask_and_scale=False,
            decode_times=False,
            decode_timedelta=False,
            cache=False,
        ) as raw:
            raw.attrs = {**{name: attribute(value) for name, value in root.items()}, **raw.attrs}
            summary = schema.analyse(raw, deadline).load()
            return summary, [_cut_short(schema.room, left) for left in deadline.left_out]
    except Exception as error:  # whatever the error is, it must not cost the measurements
        return None, [
            Warning(
                "core.analysis_failed",
                f"/summary could not be computed: {type(error).__name__}: {error}",
                "the measurements in /raw are complete; a corrected version of Sonde can analyse them",
            )
        ]
    finally:
        netCDF4.set_chunk_cache(*before)


def _counted(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def _folded(warnings: list[Warning], limit: int = 8) -> list[Warning]:
    """At most `limit` warnings of one code, and one that counts the others: a thousand ranks may report the same."""
    shown, count = [], dict[str, int]()
    for warning in warnings:
        count[warning.code] = count.get(warning.code, 0) + 1
        if count[warning.code] <= limit:
            shown.append(warning)
    return shown + [
        Warning(code, f"and {total - limit} more files with {code}")
        for code, total in count.items()
        if total > limit
    ]


def finish(run_dir: str | PathLike[str], held: Hold, out: Path | None = None) -> list[SealedFile] | None:
    """Remove a folder that was sealed already but not removed completely; return its datasets.

    None, and no change, if the folder is still to be sealed. out: the dataset, or a folder for it, that the user asked
    for. If the folder belongs to another user, its datasets count only next to it or next to `out`: otherwise its owner
    could make the caller open any file of the machine.

    Raises
    ------
    DataError  core.sealed_already: a dataset is no longer where it was saved; core.not_a_run.
    """
    folder = Path(run_dir)
    path = folder / SEALED_FILE
    if held.files.facts(SEALED_FILE) is None:
        return None
    try:
        listed = json.loads(held.files.read(SEALED_FILE).decode("utf-8"))["datasets"]
        if not isinstance(listed, list) or not listed:
            raise ValueError("it names no dataset")
        names = [Path(name) for name in listed]
        if not held.files.is_own:
            _refuse_elsewhere(names, folder, out)
        missing = [str(name) for name in names if not name.exists()]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError("core.not_a_run", f"{path} is damaged: {error}", NO_RUN) from None
    if missing:
        raise DataError(
            "core.sealed_already",
            f"{folder} was saved as {', '.join(missing)}, which no longer exists",
            f"if the dataset was moved, the folder is of no further use: {typed('rm', '-r', folder)}",
        )
    from sonde.core import dataset

    done = []
    for name in names:
        with dataset.open(name) as tree:
            complete = plain(tree.attrs.get("complete", 0)) == 1
            done.append(SealedFile(name, complete, dataset.warnings_of(tree)))
    _remove(folder, done, held)
    return done


def _refuse_elsewhere(names: Sequence[Path], folder: Path, out: Path | None) -> None:
    """ValueError: a name leads to another folder than that of the run, or that of `out`."""
    near = {folder.resolve().parent}
    if out is not None:
        near |= {out.resolve(), out.resolve().parent}
    for name in names:
        if not name.is_absolute() or name.name in ("", "..") or name.parent.resolve() not in near:
            raise ValueError(
                f"it names {name}, which is not next to it, and the folder belongs to another user"
            )


def _remove(folder: Path, sealed: list[SealedFile], hold_: Hold) -> None:
    """Remove a sealed run's folder. If this fails, the folder stays, with a record that it was sealed.

    Files that Sonde did not create stay, and so does the folder; the first dataset's warnings then list their names.
    """
    if not hold_.writable:
        return
    try:
        content = {"datasets": [str(file.path.resolve()) for file in sealed]}
        run_folder.write_json(hold_.files, SEALED_FILE, content, "")
        if left := run_folder.clear(hold_.files):
            shown = ", ".join(left[:8]) + (f" and {len(left) - 8} more" if len(left) > 8 else "")
            sealed[0].warnings.append(
                Warning(
                    FILES_LEFT,
                    f"{folder} is saved, but still holds files that Sonde did not create: {shown}",
                    f"move them elsewhere; then type {typed('rm', '-r', folder)}",
                )
            )
            return
        folder.rmdir()
        sync_folder(folder.parent)
    except (OSError, EnvironmentFailure):
        return

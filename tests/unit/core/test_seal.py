"""From a run's folder to datasets: what was measured arrives, whatever breaks or dies on the way."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import fakeroom
import netCDF4
import numpy as np
import pytest
from fakeroom import ENDED, SCHEMA, Lab, expected, in_child, make_run

from fake_clock import FakeClock
from sonde.core import dataset, run_folder, seal
from sonde.core.deadline import Deadline
from sonde.core.errors import DataError, EnvironmentFailure, SondeError, Warning


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def check_whole(path: Path, ranks: int = 3, cells: int = 2, count: int = 5, part: int = 0) -> None:
    """The dataset is sound and holds every delay that `make_run` wrote."""
    assert dataset.validate(path) == []
    with dataset.open(path) as tree:
        for rank in range(ranks):
            np.testing.assert_array_equal(tree["raw/delay"][rank].values, expected(rank, cells, count, part))
        np.testing.assert_array_equal(tree["raw/n"], np.full((ranks, cells), count * fakeroom.BURST))
        assert tree["raw/host"].values.tolist() == [f"n{rank + 1:03d}" for rank in range(ranks)]
        want = fakeroom.summary(tree["raw/delay"].values, tree["raw/cell"].values)
        for name, variable in want.items():
            np.testing.assert_array_equal(tree["summary"][name], variable)


def test_a_run_becomes_a_dataset_and_its_folder_goes(tmp_path):
    run = make_run(tmp_path / "a.run")
    (sealed,) = seal.seal(run, tmp_path / "a.nc", SCHEMA)
    assert (sealed.path, sealed.complete, sealed.warnings) == (tmp_path / "a.nc", True, [])
    assert listing(tmp_path) == ["a.nc"]
    check_whole(sealed.path)


def test_root_attributes_are_the_runs_the_layouts_and_how_it_ended(tmp_path):
    run = make_run(
        tmp_path / "a.run", env={"OMPI": "1", "cores": [0, 1], "topology": {"numa": 2}, "smt": True}
    )
    (sealed,) = seal.seal(run, tmp_path / "a.nc", SCHEMA, attrs={"elapsed_s": 1.5})
    with dataset.open(sealed.path) as tree:
        attrs = dataset.attrs(tree)
        assert {k: attrs[k] for k in fakeroom.ATTRS if k != "oversubscribed"} == {
            k: v for k, v in fakeroom.ATTRS.items() if k != "oversubscribed"
        }
        assert attrs["schema"] == "lab/1"
        assert attrs["stop_reason"] == "converged"
        assert attrs["elapsed_s"] == 1.5
        assert (attrs["oversubscribed"], attrs["calibrated"], attrs["complete"]) == (0, 1, 1)
        env = dataset.attrs(tree["env"])
    assert env == {"OMPI": "1", "cores": [0, 1], "topology": '{"numa": 2}', "smt": 1}


def test_storage_is_as_promised(tmp_path):
    run = make_run(tmp_path / "a.run")
    (sealed,) = seal.seal(run, tmp_path / "a.nc", SCHEMA)
    with netCDF4.Dataset(sealed.path) as file:
        assert file.data_model == "NETCDF4"
        delay = file["raw/delay"]
        assert delay.chunking() == [1, 2, 20]  # as asked for, but no longer than the dims
        assert (delay.filters()["zlib"], delay.filters()["complevel"], delay.filters()["shuffle"]) == (
            True,
            1,
            True,
        )
        assert file["raw/host"].dtype is str
        assert file["warnings/code"].dtype is str
        assert np.dtype(file.complete.dtype) == np.int32


def test_parts_become_a_dataset_each(tmp_path):
    run = make_run(tmp_path / "a.run", parts=("ping", "pong"))
    sealed = seal.seal(run, tmp_path / "a.nc", SCHEMA)
    assert [file.path.name for file in sealed] == ["a-ping.nc", "a-pong.nc"]
    assert listing(tmp_path) == ["a-ping.nc", "a-pong.nc"]
    check_whole(sealed[0].path, part=0)
    check_whole(sealed[1].path, part=1)


def test_in_a_folder_the_dataset_is_named_like_its_run(tmp_path):
    run = make_run(tmp_path / "lab-alpha-20261120T214757Z-3f9a.run")
    (tmp_path / "results").mkdir()
    (sealed,) = seal.seal(run, tmp_path / "results", SCHEMA)
    assert sealed.path == tmp_path / "results" / "lab-alpha-20261120T214757Z-3f9a.nc"


def test_the_folder_stays_where_asked(tmp_path):
    run = make_run(tmp_path / "a.run")
    seal.seal(run, tmp_path / "a.nc", SCHEMA, keep=True)
    seal.seal(run, tmp_path / "b.nc", SCHEMA)
    check_whole(tmp_path / "a.nc")
    check_whole(tmp_path / "b.nc")
    assert listing(tmp_path) == ["a.nc", "b.nc"]


def test_progress_counts_the_files_of_all_parts(tmp_path):
    run = make_run(tmp_path / "a.run", parts=("ping", "pong"))
    seen = []
    seal.seal(run, tmp_path / "a.nc", SCHEMA, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(k, 6) for k in range(1, 7)]


def test_a_run_that_was_killed_says_so(tmp_path):
    run = make_run(tmp_path / "a.run", ended=False)
    (sealed,) = seal.seal(run, tmp_path / "a.nc", SCHEMA)
    assert not sealed.complete
    assert [warning.code for warning in sealed.warnings] == ["core.run_was_killed"]
    assert "30 records in 3 files were saved" in sealed.warnings[0].evidence
    with dataset.open(sealed.path) as tree:
        assert tree.attrs["stop_reason"] == "killed"
        assert tree.attrs["complete"] == 0
        assert dataset.warnings_of(tree) == sealed.warnings
    check_whole(sealed.path)


def test_one_is_not_told_as_several():
    assert [seal._counted(n, "file") for n in (0, 1, 2)] == ["0 files", "1 file", "2 files"]


def test_how_the_run_ended_may_be_told_to_seal(tmp_path):
    run = make_run(tmp_path / "a.run", ended=False)
    cut = Warning("lab.hot", "it was hot", "cool it")
    (sealed,) = seal.seal(run, tmp_path / "a.nc", SCHEMA, attrs=ENDED, warnings=[cut], keep=True)
    assert (sealed.complete, sealed.warnings) == (True, [cut])
    assert run_folder.read(run).attrs["stop_reason"] == "converged"
    assert run_folder.read(run).warnings == [cut]
    with dataset.open(sealed.path) as tree:
        assert dataset.warnings_of(tree) == [cut]


def test_a_cut_block_file_costs_its_last_block_and_is_told(tmp_path):
    run = make_run(tmp_path / "a.run")
    victim = run / "rank-00001.blk"
    victim.write_bytes(victim.read_bytes()[:-10])
    (sealed,) = seal.seal(run, tmp_path / "a.nc", SCHEMA)
    (warning,) = sealed.warnings
    assert warning.code == "core.truncated_block"
    assert "rank-00001.blk" in warning.evidence
    with dataset.open(sealed.path) as tree:
        assert dataset.warnings_of(tree) == [warning]
        np.testing.assert_array_equal(tree["raw/n"], [[20, 20], [16, 16], [20, 20]])
        np.testing.assert_array_equal(tree["raw/delay"][1, :, :16], expected(1, 2, 4))
        assert np.isnan(tree["raw/delay"][1, :, 16:]).all()


def test_many_damaged_files_are_told_in_few_words(tmp_path):
    run = make_run(tmp_path / "a.run", ranks=20, count=2)
    for path in run.glob("*.blk"):
        path.write_bytes(path.read_bytes()[:-1])
    (sealed,) = seal.seal(run, tmp_path / "a.nc", SCHEMA)
    assert [warning.code for warning in sealed.warnings] == ["core.truncated_block"] * 9
    assert sealed.warnings[-1].evidence == "and 12 more files with core.truncated_block"


def test_a_file_that_cannot_be_read_at_all_is_left_out_and_told(tmp_path):
    run = make_run(tmp_path / "a.run")
    (run / "rank-00002.blk").write_bytes(b"")
    (sealed,) = seal.seal(run, tmp_path / "a.nc", SCHEMA)
    assert not sealed.complete  # rank 2's cells have no data
    assert [warning.code for warning in sealed.warnings] == ["core.unreadable_block_file"]
    assert "rank-00002.blk is empty" in sealed.warnings[0].evidence
    with dataset.open(sealed.path) as tree:
        assert tree["raw/host"].values.tolist() == ["n001", "n002", ""]
        assert np.isnan(tree["raw/delay"][2]).all()


def test_a_run_that_recorded_nothing_is_an_error_and_stays(tmp_path):
    run = make_run(tmp_path / "a.run", ranks=1)
    (run / "rank-00000.blk").write_bytes(b"SONDE")
    before = listing(run)
    with pytest.raises(DataError, match=r"nothing in .* can be saved: .*rank-00000\.blk") as raised:
        seal.seal(run, tmp_path / "a.nc", SCHEMA)
    assert raised.value.code == "core.no_records"
    assert [name for name in listing(run) if name != ".lock"] == before
    assert listing(tmp_path) == ["a.run"]


def test_probes_that_wrote_no_record_yet_give_an_empty_dataset(tmp_path):
    run = make_run(tmp_path / "a.run", count=0, ended=False)
    (sealed,) = seal.seal(run, tmp_path / "a.nc", SCHEMA)
    assert not sealed.complete
    assert dataset.validate(sealed.path) == []
    with dataset.open(sealed.path) as tree:
        assert tree["raw/delay"].shape == (3, 2, 0)


def test_an_analysis_that_fails_costs_the_summary_only(tmp_path):
    def step(name: str) -> None:
        if name == "analyse":
            raise ZeroDivisionError("no cells")

    run = make_run(tmp_path / "a.run")
    (sealed,) = seal.seal(run, tmp_path / "a.nc", Lab(step))
    (warning,) = sealed.warnings
    assert (warning.code, "ZeroDivisionError: no cells" in warning.evidence) == ("core.analysis_failed", True)
    with dataset.open(sealed.path) as tree:
        assert "summary" not in tree.children
        np.testing.assert_array_equal(tree["raw/delay"][2].values, expected(2, 2, 5))


def test_analysis_can_be_left_out(tmp_path):
    run = make_run(tmp_path / "a.run")
    (sealed,) = seal.seal(
        run,
        tmp_path / "a.nc",
        Lab(lambda name: pytest.fail(name) if name == "analyse" else None),
        analyse=False,
    )
    assert (sealed.complete, [warning.code for warning in sealed.warnings]) == (True, ["core.not_analysed"])
    with dataset.open(sealed.path) as tree:
        assert set(tree.children) == {"raw", "env", "warnings"}


@pytest.mark.parametrize("broken", [RuntimeError("broken"), KeyboardInterrupt()])
def test_what_fails_half_way_leaves_folder_and_older_dataset_as_they_were(tmp_path, broken):
    def step(name: str) -> None:
        if name == "place 1":
            raise broken

    run = make_run(tmp_path / "a.run", parts=("ping", "pong"))
    (tmp_path / "a-ping.nc").write_bytes(b"older")
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    with pytest.raises(type(broken)):
        seal.seal(run, tmp_path / "a.nc", Lab(step))
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.name != ".lock"} == before
    assert listing(tmp_path) == ["a-ping.nc", "a.run"]
    assert (tmp_path / "a-ping.nc").read_bytes() == b"older"
    seal.seal(run, tmp_path / "a.nc", SCHEMA)
    check_whole(tmp_path / "a-ping.nc")


def test_a_schema_of_another_version_is_refused(tmp_path):
    run = make_run(tmp_path / "a.run")
    later = Lab()
    later.version = 2
    with pytest.raises(DataError, match="recorded as lab/1; this Sonde writes lab/2") as raised:
        seal.seal(run, tmp_path / "a.nc", later)
    assert raised.value.code == "core.wrong_schema"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        ("{", "is damaged"),
        ('{"room": "lab"}', "lacks room, schema, attrs or plan"),
        ("[" * 50_000, "is damaged"),
        ("3", "lacks"),
    ],
)
def test_a_folder_that_is_no_run_is_refused_and_left_alone(tmp_path, content, said):
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(DataError, match=said) as raised:
        seal.seal(tmp_path, tmp_path / "a.nc", SCHEMA)
    assert raised.value.code == "core.not_a_run"
    assert listing(tmp_path) == ([] if content is None else ["run.json"])


def test_a_missing_target_folder_is_named_before_anything_is_read(tmp_path):
    run = make_run(tmp_path / "a.run")
    with pytest.raises(EnvironmentFailure, match=r"there is no folder .*none") as raised:
        seal.seal(run, tmp_path / "none" / "a.nc", SCHEMA)
    assert raised.value.code == "core.cannot_write"
    assert f"sonde data recover {run} -o ELSEWHERE" in raised.value.hint


def test_a_target_that_cannot_be_written_loses_nothing(tmp_path):
    run = make_run(tmp_path / "a.run", parts=("ping", "pong"))
    (tmp_path / "a-ping.nc").mkdir()
    with pytest.raises(EnvironmentFailure) as raised:
        seal.seal(run, tmp_path / "a.nc", SCHEMA)
    assert raised.value.code == "core.cannot_write"
    assert listing(tmp_path) == ["a-ping.nc", "a.run"]
    seal.seal(run, tmp_path / "b.nc", SCHEMA)
    check_whole(tmp_path / "b-ping.nc")


def test_a_file_size_limit_in_the_middle_loses_nothing(tmp_path):
    run = make_run(tmp_path / "a.run", ranks=4, count=2000)
    child = in_child(
        """
        import resource, signal
        import fakeroom
        from sonde.core import seal
        from sonde.core.errors import EnvironmentFailure
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
        try:
            seal.seal(sys.argv[1], sys.argv[2], fakeroom.SCHEMA)
        except EnvironmentFailure as error:
            print(error.code, error.hint)
        """,
        run,
        tmp_path / "a.nc",
    )
    out, err = child.communicate(timeout=60)
    assert out.startswith("core.cannot_write"), err
    assert f"sonde data recover {run}" in out
    assert listing(tmp_path) == ["a.run"]
    seal.seal(run, tmp_path / "a.nc", SCHEMA)
    check_whole(tmp_path / "a.nc", ranks=4, count=2000)


mounts = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own at `folder`."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path) -> None:
    """Takes what room is left there."""
    with (folder / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    assert shutil.disk_usage(folder).free == 0


@pytest.mark.root
@mounts
@pytest.mark.parametrize("size", ["16k", "48k", "64k"])
def test_a_full_disk_loses_nothing_and_frees_what_it_took(tmp_path, size):
    run = make_run(tmp_path / "a.run", ranks=4, count=2000)
    with small_disk(tmp_path / "small", size) as small:
        for _ in range(2):
            with pytest.raises(EnvironmentFailure, match="no space left") as raised:
                seal.seal(run, small / "a.nc", SCHEMA)
            assert raised.value.code == "core.disk_full"
            assert f"sonde data recover {run} -o ELSEWHERE" in raised.value.hint
            assert listing(small) == []
            assert shutil.disk_usage(small).used == 0
    seal.seal(run, tmp_path / "a.nc", SCHEMA)
    check_whole(tmp_path / "a.nc", ranks=4, count=2000)


@pytest.mark.root
@mounts
def test_on_a_disk_that_its_records_filled_a_run_notes_how_it_ended(tmp_path):
    said = [Warning("lab.hot", f"it was hot in place {place}", "cool it") for place in range(60)]
    with small_disk(tmp_path / "small", "256k") as small:
        run = make_run(small / "a.run", ended=False)
        fill(small)
        with pytest.raises(EnvironmentFailure, match="no space left") as raised:
            seal.seal(run, small / "a.nc", SCHEMA, attrs=ENDED, warnings=said)
        assert raised.value.code == "core.disk_full"
        assert listing(small) == ["a.run", "filler"]
        (sealed,) = seal.seal(run, tmp_path / "a.nc", SCHEMA)
    assert (sealed.complete, sealed.warnings) == (True, said)
    with dataset.open(tmp_path / "a.nc") as tree:
        assert tree.attrs["stop_reason"] == ENDED["stop_reason"]
    check_whole(tmp_path / "a.nc")


@pytest.mark.root
@mounts
def test_where_the_end_of_a_run_could_not_be_noted_none_is_begun(tmp_path):
    with small_disk(tmp_path / "small", "16k") as small:
        with pytest.raises(EnvironmentFailure, match="no space left") as raised:
            make_run(small / "a.run")
        assert raised.value.code == "core.disk_full"
        assert listing(small) == []


HOLDING = """
    import time
    from sonde.core import run_folder
    with run_folder.hold(sys.argv[1]):
        print("held", flush=True)
        time.sleep(60)
"""


def test_two_cannot_seal_one_folder_and_a_dead_one_does_not_hold_it(tmp_path):
    run = make_run(tmp_path / "a.run")
    child = in_child(HOLDING, run)
    try:
        assert child.stdout.readline() == "held\n"
        with pytest.raises(EnvironmentFailure, match="is in use") as raised:
            seal.seal(run, tmp_path / "a.nc", SCHEMA)
        assert raised.value.code == "core.busy"
        assert listing(tmp_path) == ["a.run"]
    finally:
        child.kill()
        child.communicate()
    seal.seal(run, tmp_path / "a.nc", SCHEMA)
    check_whole(tmp_path / "a.nc")


def test_who_holds_the_folder_may_seal_it(tmp_path):
    run = make_run(tmp_path / "a.run")
    with run_folder.hold(run) as held:
        seal.seal(run, tmp_path / "a.nc", SCHEMA, held=held)
    assert listing(tmp_path) == ["a.nc"]


def test_a_folder_that_can_only_be_read_is_saved_elsewhere_and_stays(tmp_path, monkeypatch):
    run = make_run(tmp_path / "a.run")
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    real = os.open

    inode = run.stat().st_ino

    def read_only(path, flags, *more, **keys):
        inside = "dir_fd" in keys and os.fstat(keys["dir_fd"]).st_ino == inode
        if inside and flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return real(path, flags, *more, **keys)

    monkeypatch.setattr(os, "open", read_only)
    seal.seal(run, tmp_path / "a.nc", SCHEMA)
    check_whole(tmp_path / "a.nc")
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def seal_until(where: str, run: Path, out: Path) -> int:
    """Exit code of a process that seals, and kills itself at a named step.

    Steps before publishing come from the fake room, the later ones from the calls that publish and remove.
    """
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def step(name: str) -> None:
        if name == where:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(method: str) -> None:
        real = getattr(os, method)

        def stopped(path, *more, **keys):
            # What is in the making has a name of its own each time; where it goes to is the same.
            step(f"{method} {Path(more[0] if method == 'replace' else path).name}")
            return real(path, *more, **keys)

        setattr(os, method, stopped)

    try:  # the parent's copy of all this, which must not go on with its tests
        for method in ("replace", "unlink", "rmdir"):
            before(method)
        seal.seal(run, out, Lab(step))
    finally:
        os._exit(1)


@pytest.mark.parametrize(
    "where",
    [
        "layout",
        "place 0",
        "place 2",
        "analyse",
        "replace a-ping.nc",
        "replace a-pong.nc",
        "replace sealed.json",
        "unlink rank-00000.blk",
        "unlink rank-00002.blk",
        "unlink run.json",
        "unlink .lock",
        "unlink sealed.json",
        "rmdir a.run",
    ],
)
def test_kill_9_at_any_step_of_sealing_is_harmless(tmp_path, where):
    run = make_run(tmp_path / "a.run", parts=("ping", "pong"))
    assert seal_until(where, run, tmp_path / "a.nc") == -signal.SIGKILL
    if where == "rmdir a.run":  # an empty folder: there is nothing more to save
        with pytest.raises(DataError, match="is not the folder of a run"):
            seal.seal(run, tmp_path / "a.nc", SCHEMA)
    else:
        sealed = seal.seal(run, tmp_path / "a.nc", SCHEMA)
        assert [file.path for file in sealed] == [tmp_path / "a-ping.nc", tmp_path / "a-pong.nc"]
        assert all(file.complete for file in sealed)
    check_whole(tmp_path / "a-ping.nc", part=0)
    check_whole(tmp_path / "a-pong.nc", part=1)
    assert [name for name in listing(tmp_path) if name != "a.run"] == ["a-ping.nc", "a-pong.nc"]
    assert (tmp_path / "a.run").exists() == (where == "rmdir a.run")


def test_a_folder_saved_before_is_not_saved_again_over_a_moved_dataset(tmp_path):
    run = make_run(tmp_path / "a.run")
    assert seal_until("unlink rank-00001.blk", run, tmp_path / "a.nc") == -signal.SIGKILL
    (tmp_path / "a.nc").rename(tmp_path / "moved.nc")
    with pytest.raises(DataError, match=r"was saved as .*a\.nc, which no longer exists") as raised:
        seal.seal(run, tmp_path / "a.nc", SCHEMA)
    assert raised.value.code == "core.sealed_already"
    check_whole(tmp_path / "moved.nc")


@pytest.mark.slow
def test_memory_does_not_grow_with_the_run(tmp_path):
    """128 MB of /raw in 16 files pass through a process that may add 80 MB to what its imports took."""
    run = tmp_path / "a.run"
    make_run(run, ranks=1, cells=range(250), count=1)
    header = dict(fakeroom.BlockFile(run / "rank-00000.blk").header)
    ranks, count = 16, 1000
    plan = json.loads((run / "run.json").read_text())
    plan["plan"]["ranks"] = ranks
    (run / "run.json").write_text(json.dumps(plan))
    random = np.random.default_rng(3)
    for rank in range(ranks):
        made = fakeroom.bursts(rank, 250, count)
        made["value"] = random.random(made["value"].shape)
        writer = fakeroom._core.BlockWriter(
            str(run / f"rank-{rank:05d}.blk"), json.dumps(header | {"rank": rank}), made.itemsize, len(made)
        )
        writer.append(made)
        writer.close()
    child = in_child(
        """
        import resource
        import fakeroom
        from sonde.core import seal

        class Thin(fakeroom.Lab):
            def analyse(self, raw, deadline=None):
                for rank in range(raw.sizes["rank"]):
                    assert raw["delay"].isel(rank=rank).values.size
                return raw[["n"]].load()

        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seal.seal(sys.argv[1], sys.argv[2], Thin())
        print(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        """,
        run,
        tmp_path / "a.nc",
    )
    out, err = child.communicate(timeout=200)
    before_kib, after_kib = map(int, out.split() or [0, 10**9])
    assert after_kib - before_kib < 80 << 10, err
    with dataset.open(tmp_path / "a.nc") as tree:
        assert tree["raw/delay"].nbytes == 128_000_000


def test_every_error_of_sealing_has_a_hint(tmp_path):
    run = make_run(tmp_path / "a.run", ranks=1)
    (run / "rank-00000.blk").unlink()
    with pytest.raises(SondeError) as raised:
        seal.seal(run, tmp_path / "a.nc", SCHEMA)
    assert raised.value.hint


class Slow(Lab):
    """An analysis of 100 pieces, each of which takes as long as the clock moves."""

    def __init__(self, clock):
        super().__init__()
        self.clock, self.left_s = clock, []

    def analyse(self, raw, deadline=None):
        self.left_s.append(deadline.left_s())
        pieces = deadline.pieces()
        for done in range(100):
            if not pieces.fits():
                deadline.leave_out("pieces", done, 100)
                break
            self.clock.move(1)
        return super().analyse(raw, deadline)


def test_what_an_analysis_leaves_out_for_its_deadline_is_a_warning_in_the_dataset(tmp_path):
    clock = FakeClock()
    schema = Slow(clock)
    run = make_run(tmp_path / "a.run")
    (sealed,) = seal.seal(run, tmp_path / "a.nc", schema, deadline=Deadline(clock.now + 20, clock))
    assert schema.left_s[0] < 20, "what follows the analysis has its time, too"
    (warning,) = sealed.warnings
    assert warning.code == "lab.analysis_cut_short"
    assert "--budget was over: pieces: 19 of 100" in warning.evidence
    with dataset.open(sealed.path) as tree:
        assert dataset.warnings_of(tree) == [warning]
        assert "summary" in tree.children
    check_whole(sealed.path)


def test_without_a_deadline_an_analysis_has_all_the_time(tmp_path):
    run = make_run(tmp_path / "a.run")
    (sealed,) = seal.seal(run, tmp_path / "a.nc", Slow(FakeClock()))
    assert sealed.warnings == []

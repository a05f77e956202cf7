"""Outputs in a folder that another user may write in, such as /tmp: no link there redirects a write.

The name of an unfinished file was once predictable: `a.html.part`. A stranger who put a link with that name there made
root write to the link's target.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from other_users import STRANGER, as_user, place, stranger, victim

from sonde.core import dataset_file, launch
from sonde.core.errors import EnvironmentFailure
from sonde.core.owned_files import NewFile, part_name, write_whole

__all__ = ["place", "stranger", "victim"]
pytestmark = pytest.mark.root


def dataset(path: Path) -> Path:
    raw = xr.Dataset({"x": ("k", np.arange(3.0), {"units": "s", "long_name": "some numbers"})})
    return dataset_file.write_dataset(path, raw, raw, {"schema": "lab/1"})


def written_dataset(to: Path) -> None:
    dataset(to)


def added_to_dataset(to: Path) -> None:
    dataset(to)
    dataset_file.add_variables(
        to, {"raw": xr.Dataset({"y": ("l", np.zeros(3), {"units": "1", "long_name": "more"})})}
    )


def report_checked(to: Path) -> None:
    from sonde.report import publish

    publish.check(to)


def report_written(to: Path) -> None:
    from sonde.report import publish
    from sonde.report.page import Report

    page = publish.render_html.render
    publish.render_html.render = lambda report: "<html>"  # type: ignore[assignment]
    try:
        publish.write(Report.__new__(Report), to)
    finally:
        publish.render_html.render = page


def table(to: Path) -> None:
    from sonde.core import dataset as datasets
    from sonde.data.convert import group_tables, to_files

    with datasets.open(dataset(to.with_name("source.nc"))) as tree:
        to_files(tree, group_tables(tree, "summary"), to.suffix[1:], to, "a")


def trace(to: Path) -> None:
    from sonde.io.cli_files import _written

    _written(iter([b"text"]), to)


def store_ready(to: Path) -> None:
    from sonde.store.run import write_ready

    write_ready(to, {"listen": "here"})


def store_sink(to: Path) -> None:
    from sonde.store.run_transfer import sink

    with sink(to) as write:
        write(b"an object")


def ioload(to: Path) -> None:
    program = next((found for found in sorted(launch.libexec().glob("*/sonde-ioload"))), None)
    if program is None:
        pytest.skip("sonde-ioload is not built")
    line = [program, "-a", "POSIX", "-b", "4k", "-t", "4k", "-w", "-o", to.with_name("data"), "--json", to]
    ran = subprocess.run(line, capture_output=True, text=True, env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                         "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})  # fmt: skip
    assert to.exists(), ran.stderr


# Function, name of its output, and the name that the unfinished output once had.
WRITERS: list[tuple[Callable[[Path], None], str, str]] = [
    (written_dataset, "a.nc", "a.nc.part"),
    (added_to_dataset, "a.nc", "a.nc.part"),
    (report_checked, "a.html", "a.html.part"),
    (report_written, "a.html", "a.html.part"),
    (table, "a.csv", "a.csv.part"),
    (table, "a.json", "a.json.part"),
    (trace, "a.csv", "a.csv.part"),
    (trace, "a.csv.gz", "a.csv.gz.part"),
    (store_ready, "ready", ".ready.part"),
    (store_sink, "object", ".object.{pid}.part"),
    (ioload, "results.json", "results.json.part"),
]


@pytest.mark.parametrize(("write", "name", "part"), WRITERS, ids=lambda one: getattr(one, "__name__", one))
def test_a_link_that_waits_for_an_output_leads_it_nowhere(stranger, victim, write, name, part):
    before, part = victim.read_bytes(), part.format(pid=os.getpid())
    stranger.chmod(0o1777)
    as_user(STRANGER, lambda: (stranger / part).symlink_to(victim))
    write(stranger / name)
    assert victim.read_bytes() == before
    assert (stranger / part).is_symlink()  # and the writer had no right to remove it
    assert victim.stat().st_uid == 0
    if write is not report_checked:
        assert (stranger / name).stat().st_uid == 0
        assert not (stranger / name).is_symlink()


def test_a_link_in_place_of_an_output_is_replaced(stranger, victim):
    before = victim.read_bytes()
    as_user(STRANGER, lambda: (stranger / "a.nc").symlink_to(victim))
    dataset(stranger / "a.nc")
    assert victim.read_bytes() == before
    assert not (stranger / "a.nc").is_symlink()


@pytest.mark.parametrize("name", [".sonde-history.sqlite", ".sonde-history.sqlite-journal"])
@pytest.mark.parametrize("there", [True, False])
def test_the_index_of_a_history_is_not_kept_through_a_link(typed, stranger, victim, name, there):
    before, elsewhere = victim.read_bytes(), victim.with_name("nologin")
    as_user(STRANGER, lambda: (stranger / name).symlink_to(victim if there else elsewhere))
    dataset(stranger / "a.nc")
    typed("data", "history", stranger).expect(0)
    assert victim.read_bytes() == before
    assert not elsewhere.exists()
    assert sorted(path.name for path in stranger.iterdir()) == [name, "a.nc"]


def test_who_swaps_the_file_in_the_making_gets_nothing_written(stranger, victim):
    """The stranger owns the folder: its files may be renamed and replaced at any moment."""
    before = victim.read_bytes()
    new = NewFile(stranger / "a.txt")

    def swap() -> None:
        (made,) = stranger.glob("*.part")
        made.rename(stranger / "mine")
        made.symlink_to(victim)

    as_user(STRANGER, swap)
    with new.file() as file:
        file.write(b"text")
    with pytest.raises(OSError, match="another program took its place"):
        new.publish()
    new.discard()
    assert victim.read_bytes() == before


@pytest.mark.parametrize("write", [written_dataset, store_ready], ids=lambda one: one.__name__)
def test_what_a_killed_command_left_goes_with_the_next(place, write):
    left = place / part_name("out.nc")
    left.write_text("half")
    other = place / part_name("other.nc")
    other.write_text("half")
    write(place / "out.nc")
    assert not left.exists()
    assert other.exists()


def test_what_another_command_still_makes_stays(place):
    with NewFile(place / "a.txt") as first, first.file() as file:
        file.write(b"first")
        write_whole(place / "a.txt", b"second")
        file.flush()
        first.publish()
    assert (place / "a.txt").read_text() == "first"


def test_what_fails_leaves_nothing(place):
    def broken():
        yield b"half"
        raise OSError(28, "No space left on device")

    from sonde.io.cli_files import _written

    with pytest.raises(EnvironmentFailure):
        _written(broken(), place / "a.csv")
    assert list(place.iterdir()) == []


def test_a_folder_in_which_one_may_write_and_not_look(place):
    box = place / "box"
    box.mkdir()
    box.chmod(0o733)
    as_user(STRANGER, lambda: write_whole(box / "letter", json.dumps({"dear": "root"}).encode()))
    assert (box / "letter").exists()


def test_a_long_name(place):
    name = "é" * 120 + ".nc"  # 243 bytes
    write_whole(place / name, b"text")
    assert [path.name for path in place.iterdir()] == [name]


def test_a_figure_does_not_go_through_a_link(stranger, victim):
    import report_demo
    from sonde.report import page, render_static

    figure, before = report_demo.rules(), victim.read_bytes()
    name = f"{page.slug(figure.id)}.svg"
    as_user(STRANGER, lambda: (stranger / name).symlink_to(victim))
    assert render_static.save(figure, stranger, "svg") == stranger / name
    assert victim.read_bytes() == before
    assert not (stranger / name).is_symlink()

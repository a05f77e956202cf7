"""Run folders that a stranger changed: `sonde data recover` ends as documented and writes only its target."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from damaged_folders import FILE_DAMAGES, MAKERS, SEALED, WORDS, places, reworded
from sonde.core.blocks import BlockFile
from sonde.core.errors import DataError
from sonde_shell import Typed

ALLOWED = (0, 2, 3, 4)
OBEYED = ("\x1b", "\x07", "\x9b", "\u202e", "\r")
PER_KIND, PER_KIND_SOAK = 8, 400


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("valid")
    for make in MAKERS.values():
        make(folder)
    return folder


def recovered(typed: Typed, run: Path) -> str:
    """The command's output; the folder and the dataset are removed."""
    ran = typed("data", "recover", run, "-o", "out.nc")
    assert ran.code in ALLOWED, f"exit {ran.code}\n{ran.err}"
    assert "Traceback" not in ran.err
    assert not any(order in ran.out + ran.err for order in OBEYED)
    assert ran.code == 0 or ran.said or ran.out
    beside = {path.name for path in typed.cwd.iterdir()} - {"out.nc", run.name}
    assert not beside, f"it left {beside}"
    (typed.cwd / "out.nc").unlink(missing_ok=True)
    shutil.rmtree(run, ignore_errors=True)
    return ran.said


def drawn(typed: Typed, valid: Path, kind: str, count: int) -> None:
    base = valid / f"{kind}.run"
    document = json.loads((base / "run.json").read_text())
    choices = [(at, word) for at in places(document) for word in ("drop", *WORDS)]
    for at, word in random.Random(kind).sample(choices, min(count, len(choices))):
        recovered(typed, reworded(base, typed.cwd / "a.run", at, word))


@pytest.mark.parametrize("kind", MAKERS)
def test_a_folder_before_its_damage_is_saved(typed, valid, kind):
    shutil.copytree(valid / f"{kind}.run", typed.cwd / "a.run")
    assert typed("data", "recover", "a.run").code in (0, 4)
    assert (typed.cwd / "a.nc").exists()


@pytest.mark.parametrize("kind", MAKERS)
def test_any_word_of_run_json(typed, valid, kind):
    drawn(typed, valid, kind, PER_KIND)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", MAKERS)
def test_many_words_of_run_json(typed, valid, kind):
    drawn(typed, valid, kind, PER_KIND_SOAK)


@pytest.mark.parametrize("word", ["drop", *WORDS])
def test_the_modes_of_a_plan_name_datasets(typed, valid, word):
    text = recovered(typed, reworded(valid / "net.run", typed.cwd / "a.run", ("plan", "modes"), word))
    assert "run.json" in text
    assert "hint:" in text


@pytest.mark.parametrize("word", ["text", "way_out", "nothing", "huge", "list"])
def test_a_mode_that_is_no_part_of_a_file_s_name(typed, valid, word):
    text = recovered(typed, reworded(valid / "net.run", typed.cwd / "a.run", ("plan", "modes", 0), word))
    assert "run.json" in text


@pytest.mark.parametrize("how", FILE_DAMAGES)
@pytest.mark.parametrize("name", ["run.json", "source-here.blk"])
def test_any_file_of_a_folder(typed, valid, name, how):
    shutil.copytree(valid / "noise_source.run", typed.cwd / "a.run")
    FILE_DAMAGES[how](typed.cwd / "a.run" / name)
    recovered(typed, typed.cwd / "a.run")


def test_a_block_file_of_holes_is_refused_before_it_is_read(valid, tmp_path):
    shutil.copyfile(valid / "noise_source.run/source-here.blk", tmp_path / "a.blk")
    FILE_DAMAGES["longer"](tmp_path / "a.blk")
    with pytest.raises(DataError, match="claims 1099511627776 B and stores"):
        BlockFile(tmp_path / "a.blk")


@pytest.mark.parametrize("what", SEALED)
def test_the_note_of_a_sealed_run(typed, valid, what):
    shutil.copytree(valid / "noise_source.run", typed.cwd / "a.run")
    (typed.cwd / "a.run" / "sealed.json").write_text(json.dumps(SEALED[what]))
    recovered(typed, typed.cwd / "a.run")


@pytest.mark.parametrize("room", ["cli.entry", "../net", "", "core", "os.path", "1"])
def test_a_room_that_is_none_loads_nothing(typed, valid, room):
    run = typed.cwd / "a.run"
    shutil.copytree(valid / "noise_source.run", run)
    document = json.loads((run / "run.json").read_text()) | {"room": room}
    (run / "run.json").write_text(json.dumps(document))
    assert "room" in recovered(typed, run)

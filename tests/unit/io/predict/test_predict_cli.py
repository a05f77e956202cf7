"""`sonde io predict`: how files are given, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import traces
from traces import PWRITE, call

from sonde.core.errors import Exit, SondeError
from sonde.io.predict.cli import predict


def made(folder: Path, name: str, each: int) -> Path:
    run = traces.run(folder / f"{name}.run")
    traces.add(run, [call(PWRITE, k * 10_000, k * 10_000 + each, size=4096) for k in range(8)])
    return traces.sealed(run)


@pytest.fixture
def files(tmp_path) -> dict[str, Path]:
    return {name: made(tmp_path, name, each) for name, each in (("a", 1000), ("y", 3000), ("z", 5000))}


def told(*words: object):
    return predict.main(list(map(str, words)), standalone_mode=False)


def test_several_files_behind_one_on(files):
    one = told(files["a"], "--on", files["y"])
    assert one.values["total"]["modelled_s"] == pytest.approx(24e-6)
    assert (one.exit, one.dataset, one.values["on"]) == (Exit.DONE, str(files["a"]), [str(files["y"])])
    for words in (
        (files["a"], "--on", files["y"], files["z"]),
        (files["a"], "--on", files["y"], "--on", files["z"]),
        ("--on", files["y"], files["z"], "--at", "posix", files["a"]),
    ):
        both = told(*words)
        assert both.values["total"]["modelled_s"] == pytest.approx(32e-6)
        assert both.values["on"] == [str(files["y"]), str(files["z"])]
        assert both.values["against"] is None


def test_against_a_run_there(files):
    one = told(files["a"], "--on", files["y"], "--against", files["z"])
    assert one.values["total"]["ratio"] == pytest.approx(24 / 40)
    assert one.values["against"] == str(files["z"])
    assert [warning.code for warning in one.warnings] == ["io.modelled"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("a", "--on", "a"), "io.same_trace"),
        (("a", "--on", "y", "--at", "mpiio"), "io.no_such_layer"),
        (("a", "--on", "none"), "core.no_such_file"),
    ],
)
def test_what_is_refused(files, words, code):
    with pytest.raises(SondeError) as refused:
        told(*(files.get(word, word) for word in words))
    assert refused.value.code == code
    assert refused.value.hint

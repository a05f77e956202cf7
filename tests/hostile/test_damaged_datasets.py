"""Datasets that a stranger changed, read by each command that reads them: the result is a documented exit code and a
sentence, no more.

The chosen damages are those that once caused an internal error; the others are sampled, always in the same way.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import netCDF4
import numpy as np
import pytest

import damaged_datasets as damaged
from damaged_datasets import MAKERS, MARKUP, Skip, Target, commands, damage, parameters
from sonde.core import dataset
from sonde.core.errors import DataError
from sonde_shell import Ran, Typed

ALLOWED = (0, 1, 2, 3, 4)  # 5 is an internal error
OBEYED = ("\x1b", "\x07", "\x9b", "\u202e", "\r")
PER_KIND, PER_KIND_SOAK = 6, 250


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("valid")
    for kind, make in MAKERS.items():
        shutil.copyfile(make(folder), folder / f"{kind}_b.nc")
    return folder


def held(ran: Ran, words: tuple[str, ...], page: Path) -> None:
    """Fails if a command broke a guarantee for arbitrary files."""
    assert ran.code in ALLOWED, f"{words}: exit {ran.code}\n{ran.err}"
    assert "Traceback" not in ran.err
    assert ran.code != 3 or ran.out + ran.err, f"{words} says nothing"
    if words[:2] != ("data", "convert"):
        assert not any(order in ran.out + ran.err for order in OBEYED), words
    if page.exists():
        text = page.read_text()
        assert MARKUP not in text
        assert "<img src=x" not in text
        assert not [order for order in (*OBEYED[:4], "\u2028") if order in text]


def read(typed: Typed, kind: str, path: Path, other: Path, only: tuple[str, ...] = ()) -> list[int]:
    """Exit codes of the commands that read a damaged file; `only`: those commands, by their first words."""
    codes = []
    for words in commands(kind, path, other):
        if only and " ".join(words[:2]) not in only and words[0] not in only:
            continue
        for left in typed.cwd.glob("out*"):
            left.unlink()
        ran = typed(*words)
        held(ran, words, typed.cwd / "out.html")
        codes.append(ran.code)
    return codes


CHOSEN = [
    ("bus", Target("variable", "summary", "series_variant"), "negative", "show", 3),
    ("bus", Target("variable", "summary", "ratio"), "odd", "show", 3),
    ("io_study", Target("variable", "summary", "slowdown"), "texts", "show", 3),
    ("io_trace", Target("variable", "raw", "function_index"), "huge", "convert", 3),
    ("io_trace", Target("variable", "raw", "function_index"), "huge", "predict", 3),
    ("io_trace", Target("variable", "summary", "server_least"), "more", "show", 3),
    ("noise_run", Target("variable", "summary", "drives_failed"), "drop", "show", 3),
    ("noise_source", Target("variable", "summary", "late_quantile"), "flat", "show", 3),
    ("noise_source", Target("variable", "summary", "wall_quantile"), "text", "show", 3),
    ("noise_host", Target("variable", "summary", "quantile"), "none", "show", 3),
    ("power", Target("variable", "summary", "max_sum_caps"), "texts", "show", 3),
    ("power", Target("variable", "raw", "node_cap_since"), "text", "whatif", 3),
]


@pytest.mark.parametrize(
    ("kind", "target", "how", "verb", "code"),
    CHOSEN,
    ids=lambda one: one.name if isinstance(one, Target) else str(one),
)
def test_what_once_was_an_internal_error(typed, valid, tmp_path, kind, target, how, verb, code):
    path = damage(valid / f"{kind}.nc", tmp_path / "damaged.nc", target, how)
    room = kind.partition("_")[0]
    (words,) = [
        line
        for line in commands(kind, path, valid / f"{kind}_b.nc")
        if line[:2] == (room, verb) and not (kind == "io_trace" and verb == "convert" and "perfetto" in line)
    ][:1]
    ran = typed(*words).expect(code)
    assert "damaged.nc" in ran.said
    assert "hint:" in ran.said


REFUSED = [
    (
        "net",
        Target("variable", "raw", "n"),
        "negative",
        "/raw/n at src 0, dst 0, size 0 is -7; allowed: 0 to",
    ),
    (
        "net",
        Target("variable", "raw", "status"),
        "mixed",
        "/raw/status at src 3, dst 3, size 1 is 127; allowed: 0, 1,",
    ),
    ("net", Target("attribute", "/", "epoch_length"), "text", "root attribute epoch_length is '</script"),
    ("noise_run", Target("variable", "raw", "stall_block"), "huge", "allowed: 0 to"),
    ("noise_run", Target("attribute", "/", "alpha"), "text", "root attribute alpha is"),
    (
        "noise_source",
        Target("variable", "raw", "n"),
        "huge",
        "/raw/n at source 0 is 2147483647; allowed: 0 to 10",
    ),
    (
        "noise_source",
        Target("attribute", "/", "kind"),
        "negative",
        "root attribute kind is -7; allowed: a text",
    ),
    ("noise_source", Target("attribute", "/", "kind"), "text", "allowed: 'run', 'source', 'host'"),
    (
        "noise_host",
        Target("variable", "raw", "window_n"),
        "negative",
        "/raw/window_n at cpu 0 is -7; allowed: 0 to",
    ),
    (
        "noise_host",
        Target("variable", "summary", "quantile"),
        "mixed",
        "/summary/quantile at quantile 6 is nan",
    ),
    ("io_trace", Target("variable", "raw", "function_index"), "huge", "(a position in function), or -1"),
    ("io_trace", Target("variable", "summary", "node_parent"), "huge", "(a position in node), or -1"),
    (
        "io_study",
        Target("variable", "raw", "run_cell"),
        "negative",
        "/raw/run_cell at run 0 is -7; allowed: 0 to",
    ),
    ("store", Target("variable", "raw", "bursts"), "huge", "(the length of burst)"),
    ("bus", Target("variable", "summary", "series_case"), "negative", "(a position in case)"),
    ("bus", Target("variable", "raw", "test"), "text", "allowed: 'latency'"),
    (
        "power",
        Target("variable", "raw", "node_time"),
        "inf",
        "/raw/node_time at node 0, sample 0 is inf; allowed: any",
    ),
    ("power", Target("variable", "raw", "node_source"), "text", "'none', 'powercap', 'cpufreq'"),
]


@pytest.mark.parametrize(
    ("kind", "target", "how", "text"), REFUSED, ids=lambda one: one.name if isinstance(one, Target) else None
)
def test_what_a_room_s_tables_do_not_allow_is_refused_at_opening(valid, tmp_path, kind, target, how, text):
    path = damage(valid / f"{kind}.nc", tmp_path / "damaged.nc", target, how)
    with pytest.raises(DataError) as refused:
        dataset.open(path)
    assert refused.value.code == "core.damaged_file"
    assert f"{path} is damaged: " in refused.value.what
    assert text in refused.value.what


def test_the_kind_of_a_dataset_names_no_module_of_its_own(typed, valid, tmp_path):
    target = Target("attribute", "/", "kind")
    for how in ("negative", "text", "list", "empty"):
        path = damage(valid / "noise_source.nc", tmp_path / "damaged.nc", target, how)
        for words in (("noise", "show", path), ("report", path, "-o", "out.html")):
            assert "damaged.nc" in typed(*words).expect(3).said


@pytest.mark.parametrize("kind", MAKERS)
def test_a_mistake_of_ours_is_not_hidden_behind_a_valid_dataset(typed, valid, monkeypatch, kind):
    def fails(*_: object, **__: object) -> None:
        raise IndexError("index 3 is out of bounds for axis 0 with size 3")

    monkeypatch.setattr("sonde.data.convert.group_tables", fails)
    ran = typed("data", "convert", valid / f"{kind}.nc", "--to", "json").expect(5)
    assert "internal: IndexError" in ran.said


def test_units_that_are_no_text_are_a_finding(typed, valid, tmp_path):
    target = Target("attribute", "raw", "units", "depth")
    path = damage(valid / "io_trace.nc", tmp_path / "damaged.nc", target, "list")
    assert "has the unit [0, 1, 2], not" in " ".join(typed("data", "validate", path).expect(3).out.split())


def test_variables_of_a_type_of_the_file_s_own_are_refused_at_once(valid, tmp_path):
    path = damage(valid / "store.nc", tmp_path / "damaged.nc", Target("variable", "raw", "backend"), "odd")
    with pytest.raises(DataError) as refused:
        dataset.open(path)
    assert refused.value.code == "core.foreign_type"
    assert "/raw/backend" in refused.value.what


def test_an_interval_of_texts_is_a_finding(valid, tmp_path):
    path = damage(
        valid / "io_study.nc", tmp_path / "damaged.nc", Target("variable", "summary", "slowdown"), "texts"
    )
    assert "data.bad_type" in {finding.code for finding in dataset.validate(path)}


def test_an_error_without_a_dataset_stays_sonde_s_own():
    dataset.begin()
    assert dataset.blamed(KeyError("x")) is None


@pytest.mark.parametrize("kind", MAKERS)
def test_a_dataset_before_its_damage_is_valid(typed, valid, kind):
    typed("data", "validate", valid / f"{kind}.nc").expect(0)


@pytest.mark.parametrize("kind", MAKERS)
def test_any_damage_ends_in_a_documented_exit_code(typed, valid, tmp_path, kind):
    drawn(typed, valid, tmp_path, kind, PER_KIND, (kind.partition("_")[0] + " show",))


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", MAKERS)
def test_any_damage_and_every_command(typed, valid, tmp_path, kind):
    drawn(typed, valid, tmp_path, kind, PER_KIND_SOAK)


def drawn(typed: Typed, valid: Path, folder: Path, kind: str, count: int, only: tuple[str, ...] = ()) -> None:
    """`count` sampled damages of a dataset, the same each time, each read by the commands."""
    base = valid / f"{kind}.nc"
    done = 0
    choices = list(parameters(base))
    random.Random(kind).shuffle(choices)
    for target, how in choices:
        try:
            path = damage(base, folder / "damaged.nc", target, how)
        except Skip:
            continue
        read(typed, kind, path, valid / f"{kind}_b.nc", only)
        done += 1
        if done == count:
            return
    pytest.fail(f"only {done} damages of {kind}")


@pytest.mark.parametrize("kind", MAKERS)
def test_texts_with_orders_and_markup_are_shown_and_not_obeyed(typed, valid, tmp_path, kind):
    """All texts of a dataset at once, except those that define how to read it."""
    path = tmp_path / "damaged.nc"
    shutil.copyfile(valid / f"{kind}.nc", path)
    with netCDF4.Dataset(path, "a") as root:
        for name in root.ncattrs():
            if isinstance(root.getncattr(name), str) and name not in ("schema", "kind", "mode"):
                root.setncattr(name, damaged.TEXT)
        for group in root.groups.values():
            for name in group.ncattrs():
                group.setncattr(name, damaged.TEXT)
            for variable in group.variables.values():
                if variable.dtype is str and variable.size and not variable.name.startswith("layer"):
                    texts = [f"{text}{damaged.TEXT}" for text in np.ravel(variable[...])]
                    variable[...] = np.array(texts, object).reshape(variable.shape)
            if group.name == "warnings":
                for name in ("code", "evidence", "hint"):
                    group[name][len(group.dimensions["warning"])] = damaged.TEXT
    room = kind.partition("_")[0]
    assert read(typed, kind, path, valid / f"{kind}_b.nc", ("report", f"{room} show"))

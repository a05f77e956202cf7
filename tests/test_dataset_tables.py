"""One source for each fact about a dataset's variables: the table that declares them.

No room writes a unit or a title anywhere else, each variable that an analysis makes is as its table declares it, and
the pages of the reference list what the tables contain.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr

import damaged_datasets
from sonde.core import dataset, described
from sonde.core.described import Described
from sonde.core.room import NAMES

ROOT = Path(__file__).parent.parent
ROOMS = [path for room in NAMES for path in sorted((ROOT / "src/sonde" / room).rglob("*.py"))]
# Modules that show results: the texts of their tables and figures are in no dataset.
SHOWING = re.compile(r"(.*_)?(figures?|verdict|cli|words)(_.*)?")
DECLARING = re.compile(r"from sonde\.core\.described import .*\b(Described|optional)\b")
ABOUT = ("units", "long_name")


# ---- the source


def second_places(text: str) -> list[str]:
    """Lines that give a variable a unit or a title, which only a table may do."""
    found = []
    for node in ast.walk(ast.parse(text)):
        names: list[object] = []
        if isinstance(node, ast.Dict):
            names = [key.value for key in node.keys if isinstance(key, ast.Constant)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("dict", "assign_attrs"):
            names = [word.arg for word in node.keywords]
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            names = [node.slice.value] if isinstance(node.slice, ast.Constant) else []
        elif isinstance(node, ast.Tuple) and all(isinstance(part, ast.Constant) for part in node.elts):
            texts = [part.value for part in node.elts if isinstance(part, ast.Constant)]
            names = texts if set(ABOUT) <= set(texts) else []
        found += [f"line {node.lineno}: {name}" for name in names if name in ABOUT]
    return found


@pytest.mark.parametrize(
    "line",
    [
        'x = xr.Variable("rank", values, {"units": "s"})',
        'attrs = NUMBER | {"long_name": "rank"}',
        'attrs["units"] = "s"',
        'x.assign_attrs(units="s")',
        'attrs = dict(zip(("units", "long_name"), words))',
    ],
)
def test_a_second_place_is_found(line):
    assert second_places(line)


@pytest.mark.parametrize(
    "line", ['unit = x.attrs["units"]', 'x = xr.Variable("rank", values, RAW["n"].attrs())']
)
def test_reading_a_unit_is_no_second_place(line):
    assert second_places(line) == []


@pytest.mark.parametrize("room", NAMES)
def test_only_tables_give_units_and_titles(room):
    folder = ROOT / "src/sonde" / room
    found = [
        f"{path.relative_to(ROOT)} {what}"
        for path in ROOMS
        if path.is_relative_to(folder) and not SHOWING.fullmatch(path.stem)
        for what in second_places(path.read_text())
    ]
    assert found == []


@cache
def tables_of(room: str) -> dict[str, dict[str, dict[str, Described]]]:
    """The tables of a room by kind of dataset ("" if there is one kind), then by group."""
    kinds = {"noise": ("run", "source", "host"), "io": ("trace", "study")}.get(room, ("",))
    schema = dataset.room_schema(room)
    assert schema is not None
    attrs = {kind: {"schema": f"{room}/1", "kind": kind} for kind in kinds}
    if room == "noise":
        attrs["study"] = attrs["run"] | {"study": "stability"}
    return {kind: schema.tables(xr.DataTree(xr.Dataset(attrs=own))) for kind, own in attrs.items()}


@pytest.mark.parametrize("room", NAMES)
def test_a_title_is_written_where_its_table_is(room):
    """A module that declares no variables must not write the title of one again."""
    titles = {
        what.long_name
        for tables in tables_of(room).values()
        for group in ("raw", "summary")
        for what in tables.get(group, {}).values()
        if what.long_name.count(" ") > 1  # shorter ones are phrases of other texts, too
    }
    assert titles
    found = []
    for path in ROOMS:
        text = path.read_text()
        of_room = path.is_relative_to(ROOT / "src/sonde" / room) and not SHOWING.fullmatch(path.stem)
        if not of_room or DECLARING.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and node.value in titles:
                found.append(f"{path.relative_to(ROOT)} line {node.lineno}: {node.value}")
    assert found == []


# ---- the datasets


def study(folder: Path, name: str) -> xr.Dataset:
    from sonde.noise.kinds import SCHEMA

    made = damaged_datasets.helper("noise", "study_raw")
    if name == "sensitivity":
        return SCHEMA.analyse(made.study_raw(folder, made.study_plan(name, (0.02,)), (0.02,)))
    return SCHEMA.analyse(made.study_raw(folder, made.study_plan(name, rounds=(8,) * 6, spend=(1.0,))))


def imported(folder: Path) -> xr.Dataset:
    """A run of clustbench: its /summary has the statistics from clustbench's files as well."""
    from sonde.net import clustbench, convert

    with dataset_stack() as views:
        found = {}
        for path in sorted((ROOT / "tests/data/clustbench").glob("*.nc")):
            view = clustbench.look(views.enter_context(netCDF4.Dataset(path)), path.name)
            found[view.kind] = view
        return convert.joined_summary(convert.from_set(found, None))[0].load()


def dataset_stack():
    from contextlib import ExitStack

    return ExitStack()


KINDS = (*damaged_datasets.MAKERS, "noise_sensitivity", "noise_stability", "net_imported")


@pytest.fixture(scope="module", params=KINDS)
def summary(request, tmp_path_factory) -> tuple[dict[str, Described], xr.Dataset]:
    """/summary of a dataset of each kind, with its table."""
    kind, folder = request.param, tmp_path_factory.mktemp(request.param)
    room = kind.split("_")[0]
    tables = tables_of(room)
    with pytest.MonkeyPatch.context() as patch:
        for module in ("detector.detectable", "studies.analyse"):
            patch.setattr(f"sonde.noise.{module}.MDE_RUNS", 10)
        if kind in damaged_datasets.MAKERS:
            with dataset.open(damaged_datasets.MAKERS[kind](folder)) as tree:
                found = tree["summary"].to_dataset(inherit=False).load()
        elif kind == "net_imported":
            found = imported(folder)
        else:
            found = study(folder, kind.split("_")[1])
    own = {"noise_sensitivity": "study", "noise_stability": "study", "net_imported": ""}
    _, _, part = kind.partition("_")
    return dict(tables[own.get(kind, part)]["summary"]), found


def test_each_variable_of_an_analysis_is_in_the_table(summary):
    table, data = summary
    assert sorted(set(map(str, data.variables)) - set(table)) == []


def test_each_variable_of_an_analysis_is_as_the_table_declares(summary):
    table, data = summary
    for name, variable in data.variables.items():
        what = table[str(name)]
        assert variable.dims == what.dims, name
        about = (*ABOUT, "method", "better")
        assert {key: value for key, value in variable.attrs.items() if key in about} == what.attrs(), name
        if what.dtype == "str":
            assert variable.dtype.kind in "OUT", name
        else:
            assert variable.dtype == np.dtype(what.dtype), name
    assert described.check("x", "/summary", data, table) == []
    assert described.other_titles("/summary", data, table) is None


# ---- the pages


def test_pages_list_what_the_tables_contain():
    done = subprocess.run(
        [sys.executable, ROOT / "docs/summaries.py", "--check"],
        capture_output=True,
        text=True,
        errors="replace",
    )
    assert done.returncode == 0, done.stdout + done.stderr

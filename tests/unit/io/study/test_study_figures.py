"""The figures of a study: what each holds, that they are drawn, and the section they stand in."""

from __future__ import annotations

import numpy as np
import pytest

import sonde
import studies
from sonde.core.errors import DataError
from sonde.core.figure import Kind
from sonde.io import kinds
from sonde.io.study import figures as study_figures
from sonde.report import collect, prepare, render_html

MIB = 1 << 20


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return studies.two_stacks(tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def section(dataset):
    with sonde.open(dataset) as tree:
        return kinds.section(tree, "a.nc")


def named(section, name):
    (figure,) = [figure for figure in section.figures if figure.id == name]
    return figure


def test_the_section(section):
    assert section.title == "I/O study of 1 benchmark in 2 configurations"
    assert section.verdict.startswith("ior -a MPIIO -t 1m, 4 MiB: romio321 writes 2 times as fast as ompio")
    assert [figure.id for figure in section.figures] == [
        "io-study-rates",
        "io-study-times",
        "io-study-layers",
    ]
    assert section.doubt == ""
    assert section.runs["ranks"] == "2"
    titles = [table.title for table in section.tables]
    assert titles[-1].startswith("Functions of each layer that are called")
    assert any("Raw limits" in title for title in titles)
    numbers = [table.title for table in section.numbers]
    assert numbers[0].startswith("Slowdown")
    assert numbers[-1].startswith("Calls of all ranks")


def test_rates_stand_beside_the_disk(section):
    data = named(section, "io-study-rates").data.isel(benchmark=0, direction=0)
    assert data["bar"].values.tolist() == ["romio321", "ompio"]
    assert data["series"].values.tolist() == ["benchmark", "disk alone"]  # there is no network
    assert data["y"].values[:, 1] == pytest.approx([300, 300])
    assert data["y"].values[0, 0] == pytest.approx(2 * data["y"].values[1, 0])
    assert (data["low"].values[:, 0] < data["y"].values[:, 0]).all()


def test_times_hold_only_what_a_configuration_calls(section):
    data = named(section, "io-study-times").data.isel(benchmark=0)
    own = data.sel(time="own time")["y"]
    names = data["bar"].values.tolist()
    assert names[0] == "pwrite (posix)"
    assert np.isnan(own.values[names.index("ADIOI_GEN_WriteStridedColl (romio)"), 1])
    assert np.isnan(own.values[names.index("mca_io_ompio_file_write_all (ompio)"), 0])
    assert own.values[0] == pytest.approx([0.05, 0.1])
    assert data.sel(time="with calls within")["y"].values[0] == pytest.approx([0.1, 0.2])


def test_layers_add_up_to_the_time_of_all_functions(section):
    layers = named(section, "io-study-layers").data.isel(benchmark=0)
    own = named(section, "io-study-times").data.isel(benchmark=0).sel(time="own time")["y"]
    assert layers["y"].values.sum(axis=0) == pytest.approx(np.nansum(own.values, axis=0))
    assert layers["part"].values.tolist() == ["POSIX", "OMPIO", "ROMIO (ADIO)", "MPI-IO"]


def test_an_interval_that_tells_nothing_is_not_drawn(tmp_path):
    made = studies.Folder(tmp_path / "a.run", studies.plan(ios=("romio321",))).begin()
    for number, rate in enumerate((1.0, 100.0, 1e4, 1e6)):
        made.run(0, number, rate * MIB, rate * MIB)
    with sonde.open(made.sealed(stop_reason="repetitions")) as tree:
        data = named(kinds.section(tree, "a.nc"), "io-study-rates").data
    assert np.isfinite(data["y"].values).any()
    assert np.isnan(data["low"].values).all()


def test_a_cluster_has_its_network_beside_it(tmp_path):
    made = studies.Folder(tmp_path / "a.run", studies.plan(ios=("romio321",), clusters=("", "test"))).begin()
    for cell in range(2):
        made.run(cell, 0)
    made.limit("network", 110.0 * MIB, place="", cluster="test")
    with sonde.open(made.sealed(stop_reason="repetitions", clusters="test")) as tree:
        section = kinds.section(tree, "a.nc")
    data = named(section, "io-study-rates").data.isel(benchmark=0, direction=0)
    assert data["series"].values.tolist() == ["benchmark", "network alone"]
    assert np.isnan(data["y"].values[0, 1])
    assert data["y"].values[1, 1] == pytest.approx(110)
    assert section.doubt


def test_a_study_without_functions_has_figures_of_what_there_is(tmp_path):
    made = studies.Folder(tmp_path / "a.run", studies.plan(limits=False)).begin()
    made.run(0, 0)
    with sonde.open(made.sealed(stop_reason="repetitions")) as tree:
        section = kinds.section(tree, "a.nc")
    assert [figure.id for figure in section.figures] == ["io-study-rates"]


def test_all_are_drawn(section, dataset):
    for figure in section.figures:
        prepare.check(figure)
        assert render_html.draw(figure).spec
    assert {figure.kind for figure in section.figures} == {Kind.BAR, Kind.STACK}
    with sonde.open(dataset) as tree:
        made = collect.collect({"a.nc": tree})
    assert made.verdict == section.verdict


def test_without_a_summary_it_says_what_to_type(dataset):
    with sonde.open(dataset) as tree:
        lacking = tree.copy()
        del lacking["summary"]
        with pytest.raises(DataError) as caught:
            study_figures.section(lacking, "a.nc")
    assert caught.value.code == "core.no_summary"

"""net/1: the form of /raw, and what makes a dataset valid."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from net_blocks import MODE, placed, plan, whole_run

from sonde.net import schema
from sonde.net.schema import validate
from sonde.net.sealing import SCHEMA


@pytest.mark.parametrize(("measured_by", "chunks"), [("src", (1, 64, 1, 1000)), ("dst", (64, 1, 1, 1000))])
def test_chunks_lie_along_what_one_rank_measured(measured_by, chunks):
    axis = schema.CELL.index(measured_by)
    variables = schema.raw_variables(64, 5, 1000, axis, "rtt_half")
    for name in ("latency", "epoch", "t_start"):
        assert variables[name].chunks == chunks
    assert variables["latency"].attrs["measured_by"] == measured_by


@pytest.mark.parametrize("samples", [1, 50, 1000, 100_000])
@pytest.mark.parametrize("ranks", [2, 64, 1024])
def test_chunks_stay_under_512_kib(ranks, samples):
    chunks = schema.raw_variables(ranks, 3, samples, 1, "rtt_half")["latency"].chunks
    assert np.prod(chunks) * 8 <= 512 * 1024


# ---- validity ------------------------------------------------------------------------------------


def tree(change=None, summary=None, attrs=None) -> xr.DataTree:
    p = plan()
    layout, arrays = placed(SCHEMA, p, whole_run(p), MODE)
    raw = xr.Dataset(
        {name: (v.dims, arrays[name], dict(v.attrs)) for name, v in layout.variables.items()},
        coords={name: (name, values, dict(about)) for name, (values, about) in layout.coords.items()},
    )
    if change:
        raw = change(raw)
    groups = {"/": xr.Dataset(attrs=attrs or {"schema": "net/1"}), "/raw": raw}
    if summary is not None:
        groups["/summary"] = summary
    return xr.DataTree.from_dict(groups)


def codes(findings) -> list[str]:
    return sorted({finding.code for finding in findings})


def test_what_place_makes_is_valid():
    assert validate(tree()) == []
    assert SCHEMA.validate(tree()) == []


def _set(name, where, value):
    def change(raw):
        raw[name].values[where] = value
        return raw

    return change


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda raw: raw.drop_vars("n"), "net.missing"),
        (lambda raw: raw.drop_vars("size"), "net.coordinate"),
        (lambda raw: raw.assign(n=raw["n"].transpose("dst", "src", "size")), "net.dims"),
        (lambda raw: raw.assign(latency=raw["latency"].assign_attrs(units="us")), "net.units"),
        (lambda raw: raw.assign(host=("rank", [1, 2, 3], raw["host"].attrs)), "net.dtype"),
        (lambda raw: raw.assign(latency=raw["latency"].assign_attrs(value="half")), "net.value"),
        (lambda raw: raw.assign_coords(size=("size", [8, 8], {"units": "B"})), "net.sizes"),
        (lambda raw: raw.isel(src=slice(0, 2)), "net.ranks"),
        (_set("n", (0, 1, 0), 5), "net.count"),
        (_set("latency", (0, 1, 0, 2), np.nan), "net.count"),
        (_set("latency", (0, 1, 0, 2), -1e-6), "net.value"),
        (_set("latency", (0, 1, 0, 2), np.inf), "net.value"),
        (_set("epoch", (0, 1, 0, 0), 3), "net.epoch"),
        (_set("epoch", (0, 1, 0, 5), -1), "net.epoch"),
        (_set("status", (0, 1, 0), 9), "net.status"),
        (_set("status", (0, 1, 0), 0), "net.status"),
        (_set("status", (1, 1, 0), 1), "net.status"),
    ],
)
def test_what_is_wrong_is_found(change, code):
    assert code in codes(validate(tree(change)))


def test_one_way_delays_may_be_negative():
    def change(raw):
        raw["latency"].attrs["value"] = "one_way"
        return _set("latency", (0, 1, 0, 2), -1e-6)(raw)

    assert validate(tree(change)) == []


def test_another_schema_is_named():
    found = validate(tree(attrs={"schema": "net/9"}))
    assert codes(found) == ["net.schema"]
    assert "net/9" in found[0].text


def test_a_tree_with_neither_group():
    assert codes(validate(xr.DataTree.from_dict({"/": xr.Dataset(attrs={"schema": "net/1"})}))) == [
        "net.empty"
    ]


def test_statistics_alone_are_valid_and_others_are_allowed():
    index = {name: (name, np.arange(length)) for name, length in (("src", 2), ("dst", 2), ("size", 1))}
    zeros = np.zeros((2, 2, 1))
    about = schema.SUMMARY["median"].attrs()
    summary = xr.Dataset({"median": (schema.CELL, zeros, about), "my_own": (("link",), [1.0])}, coords=index)
    groups = {"/": xr.Dataset(attrs={"schema": "net/1"}), "/summary": summary}
    assert validate(xr.DataTree.from_dict(groups)) == []
    summary["median"].attrs["units"] = "ms"
    assert codes(validate(xr.DataTree.from_dict(groups))) == ["net.units"]


@pytest.mark.parametrize("name", sorted(schema.SUMMARY))
def test_every_statistic_says_what_it_is(name):
    what = schema.SUMMARY[name]
    assert what.dims
    assert what.long_name
    assert (what.units in ("s", "1", "B", "s/B")) == (what.dtype != "str")


def test_what_the_analysis_makes_is_declared_and_valid():
    raw = tree()["raw"].to_dataset()
    summary = SCHEMA.analyse(raw)
    assert sorted(set(summary.data_vars) - set(schema.SUMMARY)) == []
    assert validate(tree(summary=summary)) == []

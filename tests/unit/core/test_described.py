"""Tables of variables: attributes and what seal makes of them."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from sonde.core import described
from sonde.core.allowed import COUNT, index
from sonde.core.described import Described, attribute, bad_attributes, check, misfits, optional


def test_a_variable_has_its_unit_and_its_long_name():
    what = Described(("rank",), "<f8", "s", "delay")
    assert what.required
    made = what.variable(fill=-1, chunks=(4,), attrs={"value": "rtt_half"})
    assert (made.dims, made.dtype, made.fill, made.chunks) == (("rank",), "<f8", -1, (4,))
    assert made.attrs == {"units": "s", "long_name": "delay", "value": "rtt_half"}


def test_text_has_no_unit_and_an_optional_one_may_be_missing():
    what = optional(("rank",), "", "host a rank ran on", "str")
    assert not what.required
    assert what.attrs() == {"long_name": "host a rank ran on"}
    assert optional((), "1", "p").dtype == "<f8"


TABLE = {
    "delay": Described(("rank",), "<f8", "s", "delay"),
    "host": Described(("rank",), "str", "", "host"),
    "p": optional((), "1", "p"),
}


def data(**changes: xr.Variable) -> xr.Dataset:
    """What TABLE describes, but for the changes."""
    sound = {
        "delay": xr.Variable("rank", [1e-6, 2e-6], {"units": "s"}),
        "host": xr.Variable("rank", np.array(["a", "b"], object)),
    }
    return xr.Dataset({k: v for k, v in (sound | changes).items() if v is not None}, {"rank": [0, 1]})


def test_what_is_as_described_breaks_nothing():
    assert check("lab", "/raw", data(), TABLE, ("rank", "size")) == []


@pytest.mark.parametrize(
    ("changes", "code", "word"),
    [
        ({"delay": None}, "lab.missing", "/raw/delay is missing"),
        ({"delay": xr.Variable("src", [1.0], {"units": "s"})}, "lab.dims", "(src), not (rank)"),
        ({"delay": xr.Variable("rank", [1, 2], {"units": "us"})}, "lab.units", "'us', not 's'"),
        ({"host": xr.Variable("rank", [1, 2])}, "lab.dtype", "not str"),
        (
            {"delay": xr.Variable("rank", np.array(["a", "b"], object), {"units": "s"})},
            "lab.dtype",
            "not <f8",
        ),
        ({"p": xr.Variable("rank", [0.1, 0.2], {"units": "1"})}, "lab.dims", "(rank), not ()"),
    ],
)
def test_what_is_not_is_named(changes, code, word):
    (finding,) = check("lab", "/raw", data(**changes), TABLE)
    assert finding.code == code
    assert word in finding.text


@pytest.mark.parametrize("units", ["", "1"])
def test_a_text_with_no_unit_and_a_bare_number_may_say_it_either_way(units):
    host = xr.Variable("rank", np.array(["a", "b"], object), {"units": units})
    assert check("lab", "/raw", data(host=host, p=xr.Variable((), 0.1, {"units": units})), TABLE) == []


def test_a_text_that_has_a_unit_is_found():
    host = xr.Variable("rank", np.array(["a", "b"], object), {"units": "s"})
    (finding,) = check("lab", "/raw", data(host=host), TABLE)
    assert (finding.code, finding.evidence) == ("lab.units", {"variable": "host", "units": "s"})


def test_another_unit_is_a_misfit_and_a_missing_one_is_not():
    (finding,) = misfits("lab", "/raw", data(delay=xr.Variable("rank", [1.0, 2.0], {"units": "ms"})), TABLE)
    assert finding.code == "lab.units"
    assert list(misfits("lab", "/raw", data(delay=xr.Variable("rank", [1.0, 2.0])), TABLE)) == []


def test_other_titles_are_a_warning_that_names_them():
    delay = xr.Variable("rank", [1.0, 2.0], {"units": "s", "long_name": "latency"})
    found = described.other_titles("/raw", data(delay=delay), TABLE)
    assert (found.code, "/raw/delay ('latency', not 'delay')" in found.evidence) == (
        "data.other_titles",
        True,
    )
    assert check("lab", "/raw", data(delay=delay), TABLE) == []
    assert described.other_titles("/raw", data(), TABLE) is None


def test_an_analysis_makes_variables_as_they_are_declared():
    values = {"delay": [1, 2], "host": ["a", "b"], "p": np.float32(0.5)}
    made = described.variables(TABLE, values)
    assert made["delay"].dtype == np.dtype("<f8")
    assert made["host"].dtype == object
    assert [one.dims for one in made.values()] == [("rank",), ("rank",), ()]
    assert made["delay"].attrs == {"units": "s", "long_name": "delay"}
    assert check("lab", "/raw", xr.Dataset(made), TABLE) == []


def test_the_method_is_an_attribute_and_others_may_be_added():
    what = optional(("rank",), "1", "p of no drift", method="Pettitt 1979")
    assert what.with_values([0.1], {"better": "lower"}).attrs == {
        "units": "1",
        "long_name": "p of no drift",
        "method": "Pettitt 1979",
        "better": "lower",
    }


@pytest.mark.parametrize(
    ("dtype", "values"),
    [("<i4", [1.5]), ("<i4", np.array([np.nan])), ("<f8", ["a"]), ("<f8", [[1.0]])],
)
def test_values_that_do_not_fit_are_a_mistake_of_ours(dtype, values):
    with pytest.raises((TypeError, ValueError)):
        optional(("rank",), "1", "x", dtype).with_values(values)


def test_an_empty_list_has_the_declared_type():
    assert optional(("rank",), "1", "x", "<i8").with_values([]).dtype == np.dtype("<i8")


def test_a_name_that_no_table_declares_is_a_mistake_of_ours():
    with pytest.raises(KeyError):
        described.variables(TABLE, {"other": 1.0})


def test_a_coordinate_that_is_wanted_and_missing():
    (finding,) = check("lab", "/raw", data().drop_vars("rank"), TABLE, ("rank", "size"))
    assert (finding.code, finding.evidence) == ("lab.coordinate", {"dim": "rank"})


VALUES = {
    "delay": Described(("rank",), "<f8", "s", "delay", allowed=COUNT),
    "peer": Described(("rank",), "<i4", "1", "its peer", allowed=index("rank", -1)),
    "host": Described(("rank",), "str", "", "host"),
}


def misfit(**changes: xr.Variable) -> list[str]:
    peer = xr.Variable("rank", np.array([1, -1], np.int32), {"units": "1"})
    return [one.text for one in misfits("lab", "/raw", data(peer=peer, **changes), VALUES)]


def test_values_as_a_table_allows_them_are_no_misfit_and_nor_is_what_is_missing():
    assert misfit() == []
    assert misfit(delay=None, host=None) == []


def test_a_misfit_names_the_variable_the_place_the_value_and_what_is_allowed():
    assert misfit(delay=xr.Variable("rank", [1e-6, -2.0])) == [
        "/raw/delay at rank 1 is -2.0; allowed: 0 and above"
    ]
    (finding,) = misfits("lab", "/raw", data(peer=xr.Variable("rank", [0, 2])), VALUES)
    assert finding.code == "lab.range"
    assert finding.evidence == {"variable": "peer", "at": {"rank": 1}, "value": 2, "count": 1}


def test_of_a_variable_of_other_dims_or_another_type_no_value_is_read():
    assert misfit(delay=xr.Variable("src", [-1.0])) == ["/raw/delay has dims (src), not (rank)"]
    assert misfit(delay=xr.Variable("rank", np.array(["a", "b"], object))) == [
        "/raw/delay has type object, not <f8"
    ]


def test_long_columns_are_read_at_opening_where_they_are_positions_alone(monkeypatch):
    monkeypatch.setattr(described, "WHOLE_AT_OPEN_BYTES", 1)
    wrong = data(delay=xr.Variable("rank", [-1.0, 1.0]), peer=xr.Variable("rank", [0, 2]))
    found = [one.evidence["variable"] for one in misfits("lab", "/raw", wrong, VALUES, all_values=False)]
    assert found == ["peer"]
    assert len(list(misfits("lab", "/raw", wrong, VALUES))) == 2


ATTRIBUTES = {
    "ranks": attribute("ranks", COUNT),
    "levels": attribute("levels", listed=True),
    "op": attribute("operation", texts=True),
}


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"ranks": np.int32(4), "levels": np.array([0.1, 0.2]), "op": "barrier"},
        {"levels": 0.1},
        {"ranks": "", "levels": "[]"},  # as `seal` writes what is not known, and a list of nothing
        {"other": "x"},
    ],
)
def test_attributes_as_a_table_says(attrs):
    assert list(bad_attributes(attrs, ATTRIBUTES)) == []


@pytest.mark.parametrize(
    ("attrs", "text"),
    [
        ({"ranks": -1}, "root attribute ranks is -1; allowed: 0 and above"),
        ({"ranks": "four"}, "root attribute ranks is 'four'; allowed: a number"),
        ({"ranks": np.arange(3)}, "root attribute ranks is [0, 1, 2]; allowed: a number"),
        ({"levels": np.array([0.1, np.inf])}, "allowed: any finite number"),
        ({"levels": ["a", "b"]}, "allowed: a number, or a list of them"),
        ({"op": 7}, "root attribute op is 7; allowed: a text"),
    ],
)
def test_attributes_of_another_type_or_value_are_named(attrs, text):
    (finding,) = bad_attributes(attrs, ATTRIBUTES)
    assert finding.code == "data.bad_attribute"
    assert text in finding.text

"""Tables of variables: attributes and what seal makes of them."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from sonde.core.described import Described, check, optional


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
        ({"delay": xr.Variable("rank", [1, 2], {"units": "us"})}, "lab.units", "'us', not in 's'"),
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


def test_a_coordinate_that_is_wanted_and_missing():
    (finding,) = check("lab", "/raw", data().drop_vars("rank"), TABLE, ("rank", "size"))
    assert (finding.code, finding.evidence) == ("lab.coordinate", {"dim": "rank"})

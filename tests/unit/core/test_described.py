"""Tables of variables: attributes and what seal makes of them."""

from __future__ import annotations

from sonde.core.described import Described, optional


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

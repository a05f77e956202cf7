"""Which way a hint takes to which MPI, and what findings suggest."""

from __future__ import annotations

import pytest

from sonde.core.errors import Finding, UsageError
from sonde.io.trace import hints

CB = {"romio_cb_write": "disable"}


@pytest.mark.parametrize(
    ("io", "given", "load", "env", "text"),
    [
        ("default", {}, True, {}, ""),
        ("romio321", {}, False, {"OMPI_MCA_io": "romio321"}, ""),
        ("romio341", CB, True, {"OMPI_MCA_io": "romio341", "ROMIO_HINTS": "/h"}, "romio_cb_write disable\n"),
        ("default", CB, True, {"IOR_HINT__MPI__romio_cb_write": "disable"}, ""),
        ("default", CB, False, {"ROMIO_HINTS": "/h"}, "romio_cb_write disable\n"),
        ("romio321", CB, False, {"OMPI_MCA_io": "romio321", "ROMIO_HINTS": "/h"}, "romio_cb_write disable\n"),
        ("ompio", {"cb_nodes": "2"}, False, {"OMPI_MCA_io": "ompio", "OMPI_MCA_io_ompio_num_aggregators": "2"}, ""),
        (
            "ompio", {"cb_nodes": "2"}, True,
            {"OMPI_MCA_io": "ompio", "IOR_HINT__MPI__cb_nodes": "2", "OMPI_MCA_io_ompio_num_aggregators": "2"}, "",
        ),
        ("ompio", {"mca:fcoll": "individual"}, True, {"OMPI_MCA_io": "ompio", "OMPI_MCA_fcoll": "individual"}, ""),
    ],
)  # fmt: skip
def test_the_way_of_a_hint(io, given, load, env, text):
    hints.check_hints(io, given, load)
    assert hints.environment(io, given, load, "/h") == (env, text)


def test_a_hint_without_a_way_to_ompio_is_refused():
    with pytest.raises(UsageError) as caught:
        hints.check_hints("ompio", CB, load=False)
    assert caught.value.code == "io.bad_hints"
    assert "romio_cb_write" in caught.value.what
    hints.check_hints("ompio", CB, load=True)  # sonde-ioload passes it on


def test_a_hint_that_the_file_has_with_another_value_was_not_taken():
    given = {"romio_cb_write": "disable", "cb_nodes": "4", "striping_unit": "65536", "cb_config_list": "*:1"}
    of_file = {
        "romio_cb_write": "automatic",
        "cb_nodes": "1",
        "cb_config_list": "*:1 ",
        "romio_ds_read": "disable",
    }
    assert hints.not_taken(given, of_file) == {"romio_cb_write": "automatic", "cb_nodes": "1"}
    assert hints.not_taken({"romio_cb_write": "Disable"}, {"romio_cb_write": "disable"}) == {}


def test_a_users_own_hints_stay_but_those_that_are_tried():
    assert hints.merged("", CB) == "romio_cb_write disable\n"
    mine = "# mine\ncb_nodes 2\n\nromio_cb_write enable\n"
    assert hints.merged(mine, CB) == "# mine\ncb_nodes 2\nromio_cb_write disable\n"


def finding(code, **evidence):
    return Finding(code, "…", evidence)


def test_what_findings_suggest_for_romio():
    found = [
        finding("io.collective_exchange", direction="read"), finding("io.read_to_write"), finding("io.read_more"),
        finding("io.sync"), finding("io.sync"), finding("io.tracer_overhead"),
    ]  # fmt: skip
    for middle in ("romio", ""):  # MPICH hides its ROMIO, which reads the file as well
        attempts, untried = hints.attempts(found, middle)
        assert [dict(one.hints) for one in attempts] == [
            {"romio_cb_read": "disable"}, {"romio_ds_write": "disable"}, {"romio_ds_read": "disable"},
        ]  # fmt: skip
        assert all(not one.variables and "ROMIO_HINTS" in one.channel for one in attempts)
        assert [one.code for one in untried] == ["io.sync"]


def test_what_findings_suggest_for_ompio():
    found = [finding("io.collective_exchange", direction=way) for way in ("read", "write")]
    attempts, untried = hints.attempts([*found, finding("io.read_to_write")], "ompio")
    assert [dict(one.variables) for one in attempts] == [{"OMPI_MCA_fcoll": "individual"}]  # once for both
    assert "OMPI_MCA" in attempts[0].channel
    assert [one.code for one in untried] == ["io.read_to_write"]
    assert "romio321" in untried[0].why


def test_small_requests_of_collective_calls_can_be_tried():
    small = finding("io.small_requests", direction="read", collective=True)
    split = finding("io.split_requests", direction="read", collective=True)
    ((one,), untried) = hints.attempts([small, split], "ompio")
    assert (one.hints, one.variables, untried) == ((), (("OMPI_MCA_io", "^ompio"),), [])
    ((one,), untried) = hints.attempts([small], "romio")
    assert (one.hints, one.variables, untried) == ((("romio_cb_read", "enable"),), (), [])
    assert hints.attempts([finding("io.small_requests", collective=False)], "romio")[0] == []


def test_every_finding_there_is_can_be_tried_or_says_why_not():
    import inspect
    import re

    from sonde.io.trace import findings

    codes = set(re.findall(r'"(io\.\w+)"', inspect.getsource(findings)))
    assert len(codes) >= 8
    for code in codes - {"io.tracer_overhead"}:
        attempts, untried = hints.attempts([finding(code)], "romio")
        assert len(attempts) + len(untried) == 1, code

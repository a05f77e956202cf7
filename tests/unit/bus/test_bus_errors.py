from __future__ import annotations

import pytest

from sonde.bus import errors
from sonde.core.errors import EnvironmentFailure, Exit, UsageError


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("bus.bad_value", UsageError),
        ("bus.unknown_implementation", errors.BusError),
        ("bus.bad_idl", UsageError),
        ("bus.timed_out", errors.TimedOut),
        ("bus.open", errors.BusError),
        ("bus.never_heard_of", errors.BusError),
    ],
)
def test_a_code_of_the_library_is_an_exception_of_its_kind(code, kind):
    made = errors.from_code(code, "what", "hint")
    assert type(made) is kind
    assert (made.code, made.what, made.hint) == (code, "what", "hint")


def test_what_the_caller_did_wrong_exits_otherwise_than_what_the_machine_did():
    assert errors.from_code("bus.bad_value", "").exit == Exit.USAGE
    assert errors.from_code("bus.open", "").exit == Exit.ENVIRONMENT


def test_running_out_of_time_is_a_timeout_of_python_s():
    with pytest.raises(TimeoutError, match="no answer within 5 s"):
        raise errors.from_code("bus.timed_out", "no answer within 5 s")


def test_a_refusal_says_who_refused_and_why():
    refused = errors.Refused("bus.denied", "no", reply="denied", server="n017")
    assert isinstance(refused, EnvironmentFailure)
    assert (refused.reply, refused.server) == ("denied", "n017")

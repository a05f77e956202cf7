from __future__ import annotations

import pytest

from sonde.core.errors import Exit, SondeError, UsageError
from sonde.store import errors


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("store.not_found", errors.NotFound),
        ("store.not_found", KeyError),
        ("store.exists", errors.Exists),
        ("store.unreachable", errors.Unreachable),
        ("store.disconnected", ConnectionError),
        ("store.timed_out", TimeoutError),
        ("store.denied", errors.Denied),
        ("store.bad_backend", UsageError),
        ("store.something_new", errors.StoreError),
    ],
)
def test_a_code_chooses_the_exception(code, kind):
    error = errors.from_code(code, "what failed", "what to type")
    assert isinstance(error, kind)
    assert isinstance(error, SondeError)
    assert (error.code, error.what, error.hint) == (code, "what failed", "what to type")
    assert str(error) == "what failed"


def test_usage_errors_and_others_exit_differently():
    assert errors.from_code("store.bad_address", "x").exit == Exit.USAGE
    assert errors.from_code("store.io_error", "x").exit == Exit.ENVIRONMENT


def test_a_status_brings_its_hint():
    error = errors.of_status("no_space", "kv.put a/b: disk, map or memory is full")
    assert error.code == "store.no_space"
    assert "make room" in error.hint


def test_a_batch_error_says_which_operations_failed():
    assert errors.BatchError("store.exists", "x", failed=[1, 3]).failed == [1, 3]

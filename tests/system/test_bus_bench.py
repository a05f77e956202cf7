"""Rows of the bench: what was not measured is not met."""

from __future__ import annotations

import pytest
from bench.bus.discovery import in_every_visit
from bench.bus.security import CASES, NOT_ALLOWED, ROLE, judged

QUIET = {"matched": False, "seen": 0}
LINKED = {"matched": True, "seen": 0}
MISSING = {"refused": "bus.unknown_implementation: fastdds is not in this build", **QUIET}
KEPT = {
    "refused": f"bus.open: a writer could not be made the {NOT_ALLOWED}: see 'sonde bus keys show'",
    **QUIET,
}


def met(who, write, read):
    made = judged("a try", who, CASES[who], {"write": write, "read": read})
    return made["value"], made["met"]


class TestSecurity:
    @pytest.mark.parametrize("who", CASES)
    def test_a_reader_that_could_not_begin_has_seen_nothing_of_keys(self, who):
        assert met(who, LINKED, MISSING) == (None, None)

    @pytest.mark.parametrize("who", CASES)
    def test_nor_has_one_whose_writer_could_not_begin(self, who):
        assert met(who, MISSING, QUIET) == (None, None)

    def test_a_role_that_may_not_write_is_refused_by_its_own_permissions(self):
        assert met(ROLE, KEPT, QUIET) == (0, True)
        assert met("another site's manager", KEPT, QUIET) == (None, None)

    def test_who_ran_and_met_nobody_is_kept_out(self):
        assert met("nobody's credential", QUIET, QUIET) == (0, True)
        assert met("nobody's credential", LINKED, LINKED) == (0, False)
        assert met("nobody's credential", LINKED, {"matched": True, "seen": 3}) == (3, False)

    def test_who_may_is_seen(self):
        assert met("a system-manager", LINKED, {"matched": True, "seen": 3}) == (3, True)
        assert met("a system-manager", QUIET, QUIET) == (0, False)


def test_all_have_found_all_where_they_had_in_every_visit():
    assert in_every_visit({"value": 1.0, "mean": 1.0})
    assert not in_every_visit({"value": 1.0, "mean": 2.9 / 3})  # 1, 0.9, 1
    assert not in_every_visit(None)

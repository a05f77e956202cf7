"""Which hosts findings would take out of service."""

from __future__ import annotations

from sonde.core.drain import drain_command, drain_words
from sonde.core.errors import Finding


def test_findings_that_name_no_host_drain_nothing():
    assert drain_command([]) == ""
    assert drain_command([Finding("net.not_converged", "1% of cells converged")]) == ""
    assert drain_command([Finding("net.slower", "no host is known", {"hosts": [""]})]) == ""


def test_only_the_hosts_that_findings_name_are_drained_and_for_their_reason():
    short = Finding("net.not_converged", "1% of cells converged")
    nameless = Finding("net.slower", "no host is known", {"hosts": [""]})
    slow = Finding("net.slower", "link 0→3 is slow (also at 8 B)", {"hosts": ["n1", "n0"]})
    noisy = Finding("noise.late_rank", "rank 7 is late", {"host": "n3"})
    told = drain_command([short, nameless, slow])
    assert told == "scontrol update 'NodeName=n[0-1]' State=DRAIN 'Reason=sonde: link 0→3 is slow'"
    told = drain_command([noisy, slow])
    assert told == "scontrol update 'NodeName=n[0-1,3]' State=DRAIN 'Reason=sonde: rank 7 is late'"


def test_a_long_reason_is_cut():
    told = drain_command([Finding("net.slower", "x" * 500, {"host": "n1"})])
    assert told.endswith("x" * 113 + "'")
    assert "x" * 114 not in told


def test_a_program_gets_the_words_one_by_one():
    hostile = "it's slow; touch /tmp/x\n would drain: $(touch /tmp/y)"
    words = drain_words([Finding("net.slower", hostile, {"host": "n1"})])
    assert words == ["scontrol", "update", "NodeName=n1", "State=DRAIN", f"Reason=sonde: {hostile}"]
    assert drain_words([]) == []

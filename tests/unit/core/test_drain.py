"""Which hosts findings would take out of service."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sonde.core.drain import blamed, drain_command, drain_lines, drain_words
from sonde.core.errors import Finding


def test_findings_that_name_no_host_drain_nothing():
    assert drain_command([]) == ""
    assert drain_command([Finding("net.not_converged", "1% of cells converged")]) == ""
    assert drain_command([Finding("net.slower", "no host is known", {"hosts": [""]})]) == ""


def pair(*hosts: str) -> Finding:
    return Finding("net.slower", f"link {'-'.join(hosts)} is slow (also at 8 B)", {"hosts": list(hosts)})


def test_only_the_hosts_that_findings_name_are_drained_and_for_their_reason():
    short = Finding("net.not_converged", "1% of cells converged")
    nameless = Finding("net.slower", "no host is known", {"hosts": [""]})
    slow = Finding("net.slower", "link 0→3 is slow (also at 8 B)", {"hosts": ["n1"]})
    noisy = Finding("noise.late_rank", "rank 7 is late", {"host": "n3"})
    told = drain_command([short, nameless, slow])
    assert told == "scontrol update NodeName=n1 State=DRAIN 'Reason=sonde: link 0→3 is slow'"
    told = drain_command([noisy, slow])
    assert told == "scontrol update 'NodeName=n[1,3]' State=DRAIN 'Reason=sonde: rank 7 is late'"


def test_the_host_that_pairs_share_is_drained_and_its_partners_are_not():
    """Eight nodes, one of them behind a slow link: all eight were to be drained."""
    found = [pair(f"n{k}", "n3") for k in range(8) if k != 3]
    assert blamed(found) == {"n3"}
    assert drain_words(found)[2] == "NodeName=n3"
    assert blamed([*found, *(pair("n3", f"n{k}") for k in range(3))]) == {"n3"}
    two = [pair(f"n{k}", sick) for sick in ("n3", "n5") for k in range(8) if f"n{k}" != sick]
    assert blamed(two) == {"n3", "n5"}
    assert blamed([*found, *(pair("n2", f"n{k}") for k in (0, 4, 6))]) == {"n3"}  # some links of n2 alone
    assert blamed([Finding("net.slow_host", "all links of host n3", {"host": "n3"}), *found]) == {"n3"}


def test_what_is_slow_everywhere_is_no_host():
    found = [pair(f"n{a}", f"n{b}") for a in range(6) for b in range(a)]
    assert blamed(found) == set()
    assert drain_words(found) == []
    (line,) = drain_lines(found)
    assert line.startswith(
        " would not drain: n0–n1, n0–n2, n0–n3 and 12 more pairs: these findings do not show which end is at fault"
    )


def test_one_pair_blames_neither_of_its_ends():
    assert drain_words([pair("n0", "n1")]) == []
    assert drain_lines([pair("n1", "n0")]) == [
        " would not drain: n0–n1: these findings do not show which end is at fault"
    ]
    found = [*(pair(f"n{k}", "n3") for k in (0, 1, 2)), pair("n5", "n6")]
    drain, unclear = drain_lines(found)
    assert drain == " would drain: scontrol update NodeName=n3 State=DRAIN 'Reason=sonde: link n0-n3 is slow'"
    assert unclear == " would not drain: n5–n6: these findings do not show which end is at fault"


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20))
def test_no_host_is_drained_that_no_finding_names(ends):
    found = [pair(f"n{a}", f"n{b}") for a, b in ends]
    assert blamed(found) <= {host for one in found for host in one.evidence["hosts"]}


def test_a_long_reason_is_cut():
    told = drain_command([Finding("net.slower", "x" * 500, {"host": "n1"})])
    assert told.endswith("x" * 113 + "'")
    assert "x" * 114 not in told


def test_a_program_gets_the_words_one_by_one():
    hostile = "it's slow; touch /tmp/x\n would drain: $(touch /tmp/y)"
    words = drain_words([Finding("net.slower", hostile, {"host": "n1"})])
    assert words == [
        "scontrol",
        "update",
        "NodeName=n1",
        "State=DRAIN",
        f"Reason=sonde: {' '.join(hostile.split())}",
    ]
    assert drain_words([]) == []

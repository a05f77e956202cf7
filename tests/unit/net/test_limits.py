"""Limits and comparisons of runs: what is a finding, what is not, and how often chance makes one."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from sonde.core.drain import drain_command
from sonde.core.errors import DataError
from sonde.net.limits import Limits, check, diff, single_link

SIZES = (8, 1024)
ERROR = 0.02  # standard error of a log median in these tests


def run_of(cells, error=ERROR, value="rtt_half", sizes=SIZES, status=None) -> xr.Dataset:
    n = cells.shape[0]
    dims = ("src", "dst", "size")
    data = {
        "median": (dims, cells),
        "median_low": (dims, cells * np.exp(-1.96 * error)),
        "median_high": (dims, cells * np.exp(1.96 * error)),
        "epochs": (dims, np.full(cells.shape, 40)),
    }
    if status is not None:
        data["status"] = (dims, status)
    coords = {"src": np.arange(n), "dst": np.arange(n), "size": np.asarray(sizes), "rank": np.arange(n)}
    data["host"] = ("rank", np.array([f"n{k // 2}" for k in range(n)], object))
    return xr.Dataset(data, coords, {"value": value})


def flat(n=8, noise=0.0, seed=0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    cells = np.stack([np.full((n, n), 1e-6), np.full((n, n), 3e-6)], axis=2)
    cells *= np.exp(rng.normal(0, noise, cells.shape)) if noise else 1
    cells[np.arange(n), np.arange(n)] = np.nan
    return cells


def test_a_median_over_its_limit_names_link_hosts_and_limit():
    cells = flat()
    cells[0, 3, 1] = 9e-6
    found = check(run_of(cells), Limits(max_median_s=5e-6, slow_links=False))
    assert [f.code for f in found] == ["net.median_over_limit"]
    assert (found[0].evidence["src"], found[0].evidence["dst"]) == (0, 3)
    assert found[0].evidence["hosts"] == ["n0", "n1"]
    assert "9.00 µs for 1 KiB; the limit is 5.00 µs" in found[0].text
    assert "--pair 0,3" in found[0].next


def test_a_limit_up_to_a_size_leaves_longer_messages_alone():
    assert check(run_of(flat()), Limits(max_median_s=2e-6, size_b=8, slow_links=False)) == []
    assert check(run_of(flat()), Limits(max_median_s=2e-6, slow_links=False)) != []


def test_very_many_findings_are_counted_instead_of_told():
    found = check(run_of(flat()), Limits(max_median_s=1e-9, slow_links=False))
    assert len(found) == 21
    assert found[-1].evidence["more"] == 8 * 7 - 20


def test_a_link_over_its_limit_at_many_sizes_is_one_finding_that_lists_them():
    sizes = tuple(8 << k for k in range(9))
    cells = np.full((2, 2, 9), np.nan)
    cells[0, 1] = 1e-6
    cells[1, 0] = np.linspace(4e-6, 6e-6, 9)
    found = check(run_of(cells, sizes=sizes), Limits(max_median_s=3e-6, slow_links=False))
    assert len(found) == 1
    assert found[0].evidence["sizes"] == list(sizes)
    assert found[0].evidence["size"] == 2048
    assert "6.00 µs for 2 KiB" in found[0].text
    assert "(also at 8 B, 16 B, 32 B, 64 B, 128 B, 256 B and 2 more)" in found[0].text


def test_an_uneven_class_is_one_finding_that_lists_its_sizes():
    cells = flat()
    cells[2, 5] *= [2.0, 3.0]
    (found,) = check(run_of(cells), Limits(max_ratio=1.5, slow_links=False))
    assert found.evidence["sizes"] == list(SIZES)
    assert (found.evidence["size"], found.evidence["src"], found.evidence["dst"]) == (1024, 2, 5)
    assert "(also at 8 B)" in found.text


def test_two_ranks_have_one_link_and_nothing_to_compare_it_with():
    told = single_link(run_of(flat(n=2)))
    assert told is not None
    assert "--against" in told.hint
    assert single_link(run_of(flat(n=3))) is None


def test_uneven_links_of_a_class_are_a_finding():
    cells = flat()
    cells[2, 5, 0] = 2e-6
    found = check(run_of(cells), Limits(max_ratio=1.5, slow_links=False))
    assert len(found) == 1
    assert found[0].evidence["ratio"] == pytest.approx(2.0)


def test_too_few_converged_cells_are_a_finding():
    status = np.ones((8, 8, 2), np.int8)
    status[0] = 2
    assert check(run_of(flat(), status=status), Limits(min_converged=0.8, slow_links=False)) == []
    found = check(run_of(flat(), status=status), Limits(min_converged=0.9, slow_links=False))
    assert found[0].code == "net.not_converged"


def test_no_limits_find_nothing():
    assert check(run_of(flat()), Limits(slow_links=False)) == []


def test_a_link_that_got_slower_is_found_with_what_changed_in_the_machine():
    before, after = flat(noise=ERROR, seed=1), flat(noise=ERROR, seed=2)
    after[1, 6] *= 1.4
    machine = ({"kernel": "6.1", "created_utc": "x"}, {"kernel": "6.8", "created_utc": "y"})
    result = diff(run_of(before), run_of(after), machine=machine)
    assert [(f.evidence["src"], f.evidence["dst"]) for f in result.findings] == [(1, 6)]
    assert result.findings[0].evidence["machine"] == {"kernel": "6.1 → 6.8"}
    assert result.findings[0].evidence["sizes_slower"] == 2
    assert result.cells == 8 * 7 * 2
    assert result.slower == 2


def test_a_link_that_got_faster_is_counted_but_no_finding():
    after = flat()
    after[1, 6] *= 0.6
    result = diff(run_of(flat()), run_of(after))
    assert result.findings == []
    assert result.faster == 2


def test_two_runs_of_one_network_hardly_ever_differ():
    alarms = 0
    for seed in range(100):
        result = diff(
            run_of(flat(noise=ERROR, seed=seed)), run_of(flat(noise=ERROR, seed=1000 + seed)), matters=0.001
        )
        alarms += bool(result.findings)
    # At a false-discovery level of 5 % with no true difference, 5 runs in 100 alarm; 12 would be 3 sigma.
    assert alarms <= 12


def test_a_difference_that_does_not_matter_is_not_reported():
    result = diff(run_of(flat(), error=0.0001), run_of(flat() * 1.02, error=0.0001))
    assert result.findings == []
    assert result.median_ratio == pytest.approx(1.02)
    assert (
        diff(run_of(flat(), error=0.0001), run_of(flat() * 1.02, error=0.0001), matters=0.01).slower
        == 8 * 7 * 2
    )


def test_a_run_that_is_slower_as_a_whole_is_one_finding_and_blames_no_link():
    (found,) = diff(run_of(flat()), run_of(flat() * 1.4)).findings
    assert found.code == "net.slower"
    assert "src" not in found.evidence
    assert (found.evidence["links"], found.evidence["links_compared"]) == (56, 56)
    assert found.evidence["ratio"] == pytest.approx(1.4)


def test_a_cell_that_drifted_in_either_run_is_not_compared():
    after, status = flat(), np.ones((8, 8, 2), np.int8)
    after[1, 6] *= 2
    status[1, 6, 0] = 3
    (found,) = (result := diff(run_of(flat()), run_of(after, status=status))).findings
    assert (result.drifted, result.cells, result.slower) == (1, 8 * 7 * 2 - 1, 1)
    assert found.evidence["size"] == SIZES[1]
    assert result.warnings[0].code == "net.drifted_cells"
    status[1, 6] = 3
    assert diff(run_of(flat(), status=status), run_of(after)).findings == []


def test_runs_whose_ranks_shared_cores_are_reported():
    crowded = run_of(flat())
    crowded.attrs["oversubscribed"] = 1
    told = diff(run_of(flat()), crowded).warnings
    assert [w.code for w in told] == ["net.oversubscribed_runs"]
    assert "shared cores in B:" in told[0].evidence


def test_what_it_could_have_found_is_stated():
    sharp, blunt = (diff(run_of(flat(), error=e), run_of(flat(), error=e)).detectable for e in (0.005, 0.05))
    assert 0 < sharp < blunt


def test_only_common_sizes_are_compared():
    other = run_of(flat(), sizes=(1024, 4096))
    assert diff(run_of(flat()), other).cells == 8 * 7


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (run_of(flat(n=4)), "8 ranks and B 4"),
        (run_of(flat(), value="recv_duration"), "samples of A are rtt_half, those of B are recv_duration"),
        (run_of(flat(), sizes=(1, 2)), "no message length in common"),
    ],
)
def test_runs_that_cannot_be_compared_are_reported(other, told):
    with pytest.raises(DataError) as error:
        diff(run_of(flat()), other)
    assert told in error.value.what


def test_a_run_too_short_drains_nothing():
    status = np.full((8, 8, 2), 2)
    found = check(run_of(flat(), status=status), Limits(min_converged=0.9, slow_links=False))
    assert [finding.code for finding in found] == ["net.not_converged"]
    assert drain_command(found) == ""

"""Studies: what is to be measured."""

from __future__ import annotations

import pytest

from sonde.core.errors import UsageError
from sonde.noise.studies import plan


@pytest.mark.parametrize(("levels", "share"), [(1, 1), (2, 1), (3, 2), (7, 3), (9, 3), (16, 4)])
def test_off_blocks_are_the_root_of_the_levels(levels, share):
    assert plan.off_share(levels) == share


def test_that_share_knows_differences_best():
    """Of so many blocks in all, what is the variance of off against one of seven levels?"""

    def variance(share):
        rounds = 1 / (share + 7)
        return 1 / (share * rounds) + 1 / rounds

    assert min(range(1, 12), key=variance) == plan.off_share(7)


def test_clean_blocks_come_in_equal_groups():
    design = plan.clean_design(60, 6)
    assert len(design.rounds) == 6
    assert len(set(design.rounds)) == 1
    assert design.rounds[0] * 6 * 1.065 < 60


def test_a_budget_too_short_names_the_one_needed():
    with pytest.raises(UsageError) as error:
        plan.clean_design(10, 6)
    assert error.value.code == "noise.budget_too_short"
    needed = int(error.value.hint.split("--budget ")[1].split("s")[0])
    assert plan.clean_design(needed, 6).rounds == (plan.MIN_IN_GROUP,) * 6


def test_the_standard_design_is_that_of_a_run_of_a_minute():
    design, weight = plan.standard_design()
    assert sum(design.rounds) * 2 * 1.065 < 60
    assert len(design.rounds) == len(design.spend) > 1
    assert 0 < weight < 1

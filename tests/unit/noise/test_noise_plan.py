"""Plans of a noise run: blocks that fit a budget, looks that share alpha, and what the detector is told."""

from __future__ import annotations

import pytest

from sonde.core.errors import UsageError
from sonde.noise import plan
from sonde.noise.plan import OFF, Plan, Variant, design_for, looks, needed_budget


@pytest.mark.parametrize(
    ("period_s", "block_s"), [(0.0, 1.0), (1.0, 1.0), (0.25, 1.0), (0.3, 1.2), (2.0, 2.0), (15.0, 15.0)]
)
def test_a_block_is_the_shortest_that_holds_whole_periods(period_s, block_s):
    assert plan.block_length(period_s) == pytest.approx(block_s)


@pytest.mark.parametrize("pairs", [6, 7, 9, 10, 14, 28, 100, 500])
def test_looks_cover_all_pairs_and_spend_all_of_alpha(pairs):
    rounds, spend = looks(pairs)
    assert sum(rounds) == pairs
    assert min(rounds) > 0
    assert sum(spend) == pytest.approx(1)
    assert len(rounds) == len(spend)


def test_few_pairs_are_looked_at_once():
    assert looks(7) == ((7,), (1.0,))


@pytest.mark.parametrize("pairs", [6, 11, 40])
def test_the_budget_needed_is_that_which_affords(pairs):
    needed = needed_budget(pairs, 1.0)
    assert plan.affordable_pairs(needed + 1e-6, 1.0) == pairs
    assert plan.affordable_pairs(needed - 0.1, 1.0) == pairs - 1
    assert plan.affordable_pairs(0.0, 1.0) == 0


def test_too_short_a_budget_names_the_one_needed():
    with pytest.raises(UsageError) as told:
        design_for(10.0, 1.0)
    assert told.value.code == "noise.budget_too_short"
    needed = float(told.value.hint.split("--budget ")[1].split("s")[0])
    assert design_for(needed, 1.0).pairs == plan.LEAST_PAIRS


def test_an_unknown_period_is_looked_for_among_common_ones():
    assert plan.periods_to_fold(0.0, 1.0) == (0.1, 0.2, 0.25, 0.5, 1.0)
    assert plan.periods_to_fold(0.7, 1.4) == (0.7,)
    assert design_for(60.0, 0.0).fold_weight < design_for(60.0, 1.0).fold_weight


def made(*variants: Variant, **more: object) -> Plan:
    return Plan((OFF, *variants), design_for(60.0, 1.0, shares=[1] * (len(variants) + 1)), 2, **more)


def test_variants_are_told_with_their_place():
    words = made(Variant("agent", None, (1, 3))).argv("here.run", 42.0)
    assert words[words.index("agent") - 1 :][:1] == ["--variant"]
    assert words[words.index("--cpus") + 1] == "1,3"
    assert words[words.index("--budget-s") + 1] == "42"
    assert "--spend" in words


def test_what_is_planned_is_not_told_as_the_machine():
    from sonde.report.collect import RUN, UNTOLD

    assert set(made(Variant("agent")).attrs()) <= UNTOLD | set(RUN)


def test_several_variants_are_not_looked_at_early():
    two = made(Variant("a"), Variant("b"))
    assert not two.sequential
    assert "--spend" not in two.argv("here.run", 0.0)
    assert two.attrs()["fresh_rounds"] == 0


def test_blocks_of_a_plan_are_those_of_its_document():
    one = made(Variant("agent"), seed=4)
    assert len(one.document()["blocks"]) == one.blocks
    assert one.document()["variants"] == ["off", "agent"]
    assert one.expected_s == pytest.approx(one.blocks * plan.pitch(1.0))


def test_permutations_are_enough_for_the_poorest_look():
    one = made(Variant("agent"))
    least = one.alpha * min(one.design.spend) * min(one.design.fold_weight, 1 - one.design.fold_weight)
    assert 1 / (one.permutations + 1) <= least


@pytest.mark.parametrize(("more", "code"), [({"op": "gather"}, "noise.unknown_op")])
def test_what_cannot_be_planned(more, code):
    with pytest.raises(UsageError) as told:
        made(Variant("agent"), **more)
    assert told.value.code == code


def test_one_rank_is_too_few():
    with pytest.raises(UsageError) as told:
        Plan((OFF,), design_for(60.0, 1.0), 1)
    assert told.value.code == "noise.too_few_ranks"
    assert "--ntasks" in told.value.hint


def test_a_size_that_means_nothing_is_told():
    assert [w.code for w in made(Variant("agent"), op="barrier", size=8).warnings()] == ["noise.size_unused"]
    assert made(Variant("agent")).warnings() == []

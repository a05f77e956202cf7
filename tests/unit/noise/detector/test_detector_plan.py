"""What a run is to do: blocks that fit a budget, looks, and the words of the command line."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sonde.core.errors import Exit, UsageError
from sonde.noise.agents.recipes import AgentPlan
from sonde.noise.detector import judge
from sonde.noise.detector import plan as planning
from sonde.noise.detector.plan import (
    COMMON_PERIODS_S,
    KNOWN_WEIGHT,
    MIN_PAIRS,
    OFF,
    SCAN_WEIGHT,
    SHORTEST_BLOCK_S,
    Design,
    Plan,
    Variant,
    affordable_pairs,
    block_length,
    design_for,
    looks,
    needed_budget,
    periods_to_fold,
    pitch,
)

AGENT = Variant("agent", AgentPlan("agent --x 'a b'"), (0, 3), 0.01)


def plan(*variants, ntasks=2, **more):
    return Plan((OFF, *(variants or (AGENT,))), design_for(60, 1.0), ntasks, **more)


def words_after(line, flag):
    return [line[k + 1] for k, word in enumerate(line) if word == flag]


@given(period_s=st.floats(1e-3, 100))
def test_a_block_holds_whole_periods_and_no_more_than_needed(period_s):
    block = block_length(period_s)
    assert block >= SHORTEST_BLOCK_S - 1e-6
    assert block / period_s == pytest.approx(round(block / period_s), abs=1e-6)
    assert block < SHORTEST_BLOCK_S + period_s + 1e-6


def test_a_block_of_an_unknown_period_is_the_shortest():
    assert block_length(0) == block_length(1) == block_length(0.1) == SHORTEST_BLOCK_S


def test_a_known_period_is_folded_at_alone_and_weighs_more():
    assert periods_to_fold(0.7, 1.4) == (0.7,)
    found = periods_to_fold(0, 1.0)
    assert found == tuple(p for p in COMMON_PERIODS_S if p <= 1)
    assert design_for(60, 0.7).fold_weight == KNOWN_WEIGHT
    assert design_for(60, 0).fold_weight == SCAN_WEIGHT


@given(pairs=st.integers(MIN_PAIRS, 5000))
def test_looks_rise_to_the_end_and_spend_all_of_alpha(pairs):
    rounds, spend = looks(pairs)
    assert sum(rounds) == pairs
    assert min(rounds) >= 1
    assert len(rounds) == len(spend)
    assert math.fsum(spend) == pytest.approx(1)
    judge.Design(rounds, spend)  # the judge takes it
    if len(rounds) > 1:
        assert rounds[-1] >= 0.25 * pairs - 1e-9


@given(budget_s=st.floats(1, 3600), block_s=st.floats(1, 60), variants=st.integers(2, 6))
def test_what_is_afforded_fits_the_budget_and_one_more_would_not(budget_s, block_s, variants):
    pairs = affordable_pairs(budget_s, block_s, variants=variants)
    assert pairs >= 0
    if pairs:
        assert needed_budget(pairs, block_s, variants=variants) <= budget_s + 1e-6
    assert needed_budget(pairs + 1, block_s, variants=variants) > budget_s - 1e-6


@example(period_s=59.5, spent_s=0.0, count=5)
@given(period_s=st.floats(0.01, 60), spent_s=st.sampled_from([0.0, 8.0]), count=st.integers(2, 5))
def test_too_short_a_budget_names_one_that_is_enough(period_s, spent_s, count):
    with pytest.raises(UsageError) as caught:
        design_for(5, period_s, shares=[1] * count, spent_s=spent_s)
    assert caught.value.code == "noise.budget_too_short"
    needed = float(caught.value.hint.split("--budget ")[1].split("s")[0])
    assert design_for(needed, period_s, shares=[1] * count, spent_s=spent_s).pairs >= MIN_PAIRS
    with pytest.raises(UsageError):
        design_for(needed - 2, period_s, shares=[1] * count, spent_s=spent_s)


def test_time_that_was_spent_leaves_fewer_blocks():
    assert design_for(60, 1.0, spent_s=20).pairs < design_for(60, 1.0).pairs
    assert design_for(60, 1.0, spent_s=20) == design_for(40, 1.0)


def test_without_looking_there_is_one_look():
    design = design_for(120, 1.0, looking=False)
    assert (len(design.rounds), design.spend) == (1, (1.0,))
    assert len(design_for(120, 1.0).rounds) > 1


@pytest.mark.parametrize("ntasks", [0, 1])
def test_a_collective_needs_two_ranks(ntasks):
    with pytest.raises(UsageError, match="--ntasks is") as caught:
        plan(ntasks=ntasks)
    assert (caught.value.code, caught.value.exit) == ("noise.too_few_ranks", Exit.USAGE)


def test_an_unknown_operation_is_refused():
    with pytest.raises(UsageError, match="gather2") as caught:
        plan(op="gather2")
    assert caught.value.code == "noise.unknown_op"


def test_enough_permutations_for_the_poorest_look():
    given_plan = plan(alpha=0.01)
    weight = min(given_plan.design.fold_weight, 1 - given_plan.design.fold_weight)
    least = given_plan.alpha * min(given_plan.design.spend) * weight
    assert 1 / (given_plan.permutations + 1) <= least
    assert plan(alpha=1e-9).permutations == 99999


def test_the_command_line_says_what_the_plan_says():
    line = plan(seed=7, op="barrier", size=0, poll=True).argv("/a b", 12.5)
    assert words_after(line, "--dir") == ["/a b"]
    assert words_after(line, "--variant") == ["off", "agent"]
    assert words_after(line, "--cpus") == ["0,3"]
    assert words_after(line, "--agent-command") == ["agent --x 'a b'"]
    assert words_after(line, "--budget-s") == ["12.5"]
    assert words_after(line, "--poll") == ["yes"]
    assert len(words_after(line, "--spend")[0].split(",")) == len(words_after(line, "--rounds")[0].split(","))
    # What belongs to a variant follows it.
    assert line.index("--agent-command") > line.index("agent") > line.index("off")


def test_several_variants_are_not_looked_at_early():
    many = plan(AGENT, Variant("other", AgentPlan("b")))
    assert not many.sequential
    assert "--spend" not in many.argv("d", 1)
    assert "--fresh-rounds" not in many.argv("d", 1)
    assert many.attrs()["fresh_rounds"] == 0


def test_all_blocks_are_planned_and_expected():
    double = Plan((Variant("off", share=2), AGENT), Design((3, 4), (0.5, 0.5), 2.0, 0.1), 2)
    blocks = double.document()["blocks"]
    assert len(blocks) == double.blocks == 21
    assert sum(variant == 0 for _, variant in blocks) == 14
    assert [sum(segment == s for segment, _ in blocks) for s in (0, 1)] == [9, 12]
    assert double.expected_s == pytest.approx(21 * pitch(2.0, 0.1))
    assert double.document()["blocks"] == double.document()["blocks"]


def test_attributes_are_what_a_dataset_can_hold():
    attrs = plan(labels={"level": 0.01}).attrs()
    assert attrs["placements"] == ["anywhere", "0,3"]
    assert math.isnan(attrs["levels"][0])
    assert attrs["levels"][1] == attrs["level"] == 0.01
    assert attrs["agent"] == "agent --x 'a b'"
    assert plan(Variant("nothing")).attrs()["agent"] == "none"
    assert all(isinstance(value, str | int | float | list) for value in attrs.values())


def test_a_size_that_means_nothing_is_reported():
    assert [w.code for w in plan(op="barrier", size=64).warnings()] == ["noise.size_unused"]
    assert plan(op="barrier", size=0).warnings() == plan(op="bcast", size=64).warnings() == []


@pytest.mark.parametrize(
    ("period_s", "block_s"), [(0.0, 1.0), (1.0, 1.0), (0.25, 1.0), (0.3, 1.2), (2.0, 2.0), (15.0, 15.0)]
)
def test_a_block_is_the_shortest_that_holds_whole_periods(period_s, block_s):
    assert block_length(period_s) == pytest.approx(block_s)


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
    assert planning.affordable_pairs(needed + 1e-6, 1.0) == pairs
    assert planning.affordable_pairs(needed - 0.1, 1.0) == pairs - 1
    assert planning.affordable_pairs(0.0, 1.0) == 0


def test_too_short_a_budget_names_the_one_needed():
    with pytest.raises(UsageError) as told:
        design_for(10.0, 1.0)
    assert told.value.code == "noise.budget_too_short"
    needed = float(told.value.hint.split("--budget ")[1].split("s")[0])
    assert design_for(needed, 1.0).pairs == planning.MIN_PAIRS


def test_an_unknown_period_is_looked_for_among_common_ones():
    assert planning.periods_to_fold(0.0, 1.0) == (0.1, 0.2, 0.25, 0.5, 1.0)
    assert planning.periods_to_fold(0.7, 1.4) == (0.7,)
    assert design_for(60.0, 0.0).fold_weight < design_for(60.0, 1.0).fold_weight


def made(*variants: Variant, **more: object) -> Plan:
    return Plan((OFF, *variants), design_for(60.0, 1.0, shares=[1] * (len(variants) + 1)), 2, **more)


def test_variants_are_reported_with_their_place():
    words = made(Variant("agent", None, (1, 3))).argv("here.run", 42.0)
    assert words[words.index("agent") - 1 :][:1] == ["--variant"]
    assert words[words.index("--cpus") + 1] == "1,3"
    assert words[words.index("--budget-s") + 1] == "42"
    assert "--spend" in words


def test_what_is_planned_is_not_reported_as_the_machine():
    from sonde.noise.room import ROOM
    from sonde.report.collect import RUN

    assert set(made(Variant("agent")).attrs()) <= ROOM.silent | {"kind"} | set(RUN)


def test_blocks_of_a_plan_are_those_of_its_document():
    one = made(Variant("agent"), seed=4)
    assert len(one.document()["blocks"]) == one.blocks
    assert one.document()["variants"] == ["off", "agent"]
    assert one.expected_s == pytest.approx(one.blocks * planning.pitch(1.0))


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

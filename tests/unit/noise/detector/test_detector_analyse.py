"""/raw to /summary, on simulated runs of which everything is known: the effect, its time, the late rank."""

from __future__ import annotations

import math

import numpy as np
import pytest
import xarray as xr
from run_blocks import CALIBRATION, RunFile, placed
from scipy import stats as scipy_stats

import noise_runs
from fake_clock import FakeClock
from sonde import _core
from sonde.core import stats
from sonde.core.deadline import Deadline
from sonde.noise.agents.recipes import AgentPlan
from sonde.noise.detector import verdict
from sonde.noise.detector.analyse import analyse, holm
from sonde.noise.detector.block_numbers import Numbers, differences, numbers_of
from sonde.noise.detector.detectable import BUSY, SEARCH
from sonde.noise.detector.effect import effect
from sonde.noise.detector.late_ranks import late
from sonde.noise.detector.plan import OFF, Design, Plan, Variant
from sonde.noise.detector.scale import SCALES, scale
from sonde.noise.detector.sealing import SCHEMA
from sonde.noise.detector.source_rule import source_rule
from sonde.noise.detector.wake import Wake

PITCH_S, BLOCK_S, PERIOD_S, PHASE_S = 0.3, 0.25, 0.25, 0.1
ROUNDS, SPEND, FRESH = (10, 10), (0.5, 0.5), 8
AGENT = Variant("agent", AgentPlan("true"))


def labels_of(plan, seed=1, fresh=0, after=0):
    """(segment, variant) of the planned blocks, the last ones replaced by fresh ones where asked."""
    blocks = [tuple(block) for block in _core.noise_plan(plan.shares, plan.design.rounds, seed)]
    if not fresh:
        return blocks
    kept = [block for block in blocks if block[0] <= after]
    return kept + [(after + 1, variant) for _, variant in _core.noise_plan([1, 1], [fresh], seed + 1)]


def simulated(
    folder,
    *,
    variants=(OFF, AGENT),
    design=None,
    burst_s=0.0,
    fresh_burst_s=None,
    ranks=2,
    late_ranks=(1,),
    fresh=0,
    after=0,
    labels=None,
    seed=1,
    stalls_a_block=10,
    detected_s=math.nan,
    **attrs,
):
    """/raw of a run. burst_s: of the agent, one each PERIOD_S at PHASE_S; fresh_burst_s: the same in fresh blocks."""
    plan = Plan(
        variants,
        design or Design(ROUNDS, SPEND, BLOCK_S, 0.02, (PERIOD_S,)),
        ranks,
        period_s=PERIOD_S,
        seed=seed,
    )
    blocks = labels_of(plan, seed, fresh, after) if labels is None else labels
    random = np.random.default_rng(seed)
    files = [RunFile(folder, rank, ranks, variants=[v.name for v in variants]) for rank in range(ranks)]
    for file in files:
        file.values(4, CALIBRATION)
    for number, (segment, variant) in enumerate(blocks):
        begin = 1 + PITCH_S * number
        shared = np.sort(random.uniform(0, BLOCK_S, stalls_a_block))
        lengths = 50e-6 * (1 + random.pareto(3, stalls_a_block))
        d = fresh_burst_s if fresh_burst_s is not None and segment > after and fresh else burst_s
        for rank, file in enumerate(files):
            stalls = [[t, x, 0.0, math.nan] for t, x in zip(shared, lengths)]
            if variant and d:
                at = math.ceil((begin - PHASE_S) / PERIOD_S) * PERIOD_S + PHASE_S - begin
                if at < BLOCK_S:
                    stalls.append([at, d, d if rank in late_ranks else 0.0, math.nan])
            resumed = begin - 0.02 if variant else math.nan
            file.block(number, segment, variant, begin, sorted(stalls), excluded=0.0, resumed=resumed)
    p = plan.document() | {"blocks": [list(b) for b in blocks]}
    layout, arrays = placed(SCHEMA, p, [file.close() for file in files])
    data = {name: (layout.variables[name].dims, values) for name, values in arrays.items()}
    raw = xr.Dataset(data, attrs=layout.attrs | {"seed": seed} | attrs)
    if math.isfinite(detected_s):
        raw.attrs["detected_s"] = detected_s
    return raw


def first(summary):
    return summary.isel(variant=0)


def numbers(variant, mean, **more):
    """Numbers of blocks of 1 s each, one segment."""
    n = len(variant)
    given = {
        "variant": np.array(variant),
        "segment": np.zeros(n, int),
        "begin": np.arange(n) * 1.0,
        "length": np.ones(n),
        "mean": np.array(mean, float),
        "median": np.ones(n),
        "lost": np.zeros(n),
    }
    return Numbers(**given | more)


# ---- a whole run


def test_a_known_effect_is_found_and_lies_in_its_interval(tmp_path):
    summary = analyse(simulated(tmp_path, burst_s=5e-3))
    row = first(summary)
    assert int(row["detected"]) == 1
    assert float(row["p_adjusted"]) <= 0.01
    assert float(row["period"]) == PERIOD_S
    assert float(row["phase"]) == pytest.approx(PHASE_S, abs=PERIOD_S / 80)
    assert int(row["effect_window"]) == 1
    # One burst of 5 ms in blocks of 250 ms.
    assert float(row["stalls_low"]) <= 0.02 <= float(row["stalls_high"])
    assert float(row["stalls"]) == pytest.approx(0.02, rel=0.1)
    assert float(row["slowdown_low"]) <= float(row["slowdown"]) <= float(row["slowdown_high"])
    assert float(row["typical"]) == 0
    assert float(row["wake_lost"]) == pytest.approx(5e-3, rel=0.1)
    assert verdict.findings(summary)
    assert verdict.values(summary)["detected"] is True


def test_every_variable_says_what_it_is(tmp_path):
    for name, variable in analyse(simulated(tmp_path)).variables.items():
        assert variable.attrs.get("long_name"), name
        assert variable.dtype.kind in "OU" or "units" in variable.attrs, name


def test_nothing_is_found_where_nothing_is(tmp_path):
    summary = analyse(simulated(tmp_path))
    row = first(summary)
    assert int(row["detected"]) == 0
    assert math.isnan(float(row["detected_s"]))
    assert int(row["effect_window"]) == int(row["effect_fresh"]) == 0
    assert int(row["effect_pairs"]) == sum(ROUNDS)
    assert float(row["stalls_low"]) <= 0 <= float(row["stalls_high"])
    assert int(row["noisy_rank"]) == -1
    assert math.isnan(float(row["cost_synchronised"]))
    assert verdict.findings(summary) == []


def test_the_size_comes_from_fresh_blocks_alone(tmp_path):
    # What found it was 8 ms long; after the detection bursts were of 2 ms.
    raw = simulated(
        tmp_path,
        burst_s=8e-3,
        fresh_burst_s=2e-3,
        fresh=FRESH,
        detected_s=1 + PITCH_S * 2 * ROUNDS[0] - 0.01,
    )
    row = first(analyse(raw))
    assert int(row["detected"]) == 1
    assert int(row["effect_fresh"]) == 1
    assert int(row["effect_pairs"]) == FRESH
    assert float(row["stalls"]) == pytest.approx(2e-3 / BLOCK_S, rel=0.15)


def test_too_few_fresh_blocks_for_an_interval_leave_all_blocks(tmp_path):
    raw = simulated(tmp_path, burst_s=8e-3, fresh=5, detected_s=1 + PITCH_S * 2 * ROUNDS[0] - 0.01)
    row = first(analyse(raw))
    assert int(row["effect_fresh"]) == 0
    assert int(row["effect_pairs"]) == ROUNDS[0] + 5


def test_a_run_killed_after_its_detection_is_judged_without_detected_s(tmp_path):
    row = first(analyse(simulated(tmp_path, burst_s=8e-3, fresh=FRESH)))
    assert int(row["detected"]) == 1
    assert np.isfinite(float(row["slowdown_low"]))


def test_a_run_without_blocks_of_the_agent_says_nothing_of_it(tmp_path):
    row = first(analyse(simulated(tmp_path, labels=[(0, 0)] * 5)))
    assert float(row["p"]) == 1
    assert int(row["detected"]) == 0
    assert math.isnan(float(row["slowdown"]))
    assert int(row["effect_pairs"]) == 0


def test_a_run_without_off_blocks_says_nothing(tmp_path):
    summary = analyse(simulated(tmp_path, labels=[(0, 1)] * 5, burst_s=5e-3))
    row = first(summary)
    assert float(row["p"]) == 1
    assert int(row["detected"]) == 0
    assert math.isnan(float(row["slowdown"]))
    assert math.isnan(float(row["mde"]))
    assert math.isnan(float(summary["clean_iteration"]))


def test_a_run_without_any_whole_block_has_a_summary(tmp_path):
    raw = simulated(tmp_path, labels=[(0, 0), (0, 1)])
    raw["status"][:] = 0
    row = first(analyse(raw))
    assert float(row["p"]) == 1
    assert int(row["detected"]) == 0


def test_a_run_with_off_blocks_only_by_plan_has_no_variant(tmp_path):
    summary = analyse(
        simulated(
            tmp_path,
            variants=(OFF,),
            design=Design((6,), (), BLOCK_S, 0.02, (PERIOD_S,)),
            labels=[(0, 0)] * 6,
        )
    )
    assert summary.sizes["variant"] == 0
    assert summary.sizes["case"] == 1
    assert verdict.sentence(summary).startswith("clean run")


def test_several_variants_are_distinguished_and_corrected_together(tmp_path):
    variants = (OFF, Variant("loud", AgentPlan("true")), Variant("also", AgentPlan("true")))
    design = Design((20,), (1.0,), BLOCK_S, 0.02, (PERIOD_S,))
    row = analyse(simulated(tmp_path, variants=variants, design=design, burst_s=8e-3))
    assert row["variant"].values.tolist() == ["loud", "also"]
    assert (row["p_adjusted"].values >= row["p"].values).all()
    assert row["p_adjusted"].values.max() >= min(1, 2 * row["p"].values.min())
    assert row["quantile_s"].sizes["case"] == 3


# ---- its parts


def test_slowdown_joins_stalls_and_the_typical_iteration():
    random = np.random.default_rng(5)
    variant = np.tile([0, 1], 20)
    lost = 0.01 + 0.02 * variant + random.normal(0, 1e-4, 40)
    median = 1e-5 * (1 + 0.05 * variant)
    found = effect(numbers(variant, np.ones(40), median=median), np.arange(40), 1, lost)
    assert found["stalls"] == pytest.approx(0.02, abs=2e-4)
    assert found["typical"] == pytest.approx(0.05)
    assert found["slowdown"] == pytest.approx(1.05 * 0.99 / 0.97 - 1, rel=1e-2)


def test_a_loop_that_loses_half_its_time_takes_twice_as_long():
    variant = np.tile([0, 1], 10)
    found = effect(numbers(variant, np.ones(20)), np.arange(20), 1, 0.5 * variant)
    assert found["slowdown"] == pytest.approx(1.0)
    assert found["stalls"] == pytest.approx(0.5)


def test_pairs_are_made_within_segments_and_the_odd_ones_left_out():
    given = numbers([0, 1, 1, 0, 1, 0], np.ones(6), segment=np.array([0, 0, 0, 1, 1, 1]))
    y = np.array([1.0, 5.0, 100.0, 2.0, 4.0, np.nan])
    assert differences(given, np.arange(6), 1, y).tolist() == [4.0, 2.0]


def test_a_rank_that_was_late_is_named(tmp_path):
    for rank in range(3):
        folder = tmp_path / str(rank)
        folder.mkdir()
        row = first(analyse(simulated(folder, burst_s=8e-3, ranks=3, late_ranks=(rank,))))
        assert int(row["noisy_rank"]) == rank
        assert float(row["late_share"].values[rank]) > 0.9
        assert float(row["late_known"]) > 0.9


@pytest.mark.parametrize("late_ranks", [(0, 1), ()])
def test_no_rank_is_named_when_several_or_none_were_late(tmp_path, late_ranks):
    row = first(analyse(simulated(tmp_path, burst_s=8e-3, late_ranks=late_ranks)))
    assert int(row["detected"]) == 1
    assert int(row["noisy_rank"]) == -1
    assert float(row["late_known"]) == pytest.approx(1 if late_ranks else 0, abs=0.1)


def test_no_rank_is_named_where_the_kernel_tells_nothing(tmp_path):
    raw = simulated(tmp_path, burst_s=8e-3)
    raw["stall_delay"][:] = np.nan
    found = late(raw, numbers_of(raw), 1, Wake(PERIOD_S, PHASE_S, False))
    assert found["noisy_rank"] == -1
    assert math.isnan(found["late_known"])


def test_the_model_of_scale_agrees_with_a_simulation(tmp_path):
    raw = simulated(tmp_path, burst_s=8e-3, grain_s=0.01)
    found = scale(raw, numbers_of(raw), 1, Wake(PERIOD_S, PHASE_S, False), PERIOD_S)
    # All bursts are alike: a step waits when any of the nodes is hit.
    random = np.random.default_rng(3)
    for nodes, cost in zip(SCALES[:2], found["cost"]):
        hit = random.random((20_000, nodes)) < 0.01 / PERIOD_S
        steps = np.where(hit, 8e-3, 0.0).max(axis=1)
        assert cost == pytest.approx(steps.mean() / 0.01, rel=0.1)
    assert np.all(np.diff(found["cost"]) >= 0)
    assert found["cost"][-1] == pytest.approx(8e-3 / 0.01, rel=0.05)
    assert found["cost_synchronised"] == pytest.approx(8e-3 / PERIOD_S, rel=0.05)
    assert found["cost"][0] == pytest.approx(found["cost_synchronised"], rel=0.05)


def test_without_a_wake_up_there_is_no_model(tmp_path):
    raw = simulated(tmp_path)
    found = scale(raw, numbers_of(raw), 1, None, 1.0)
    assert np.isnan(found["cost"]).all()


def test_the_rule_of_the_source_is_disjoint_intervals():
    variant = np.tile([0, 1], 6)
    random = np.random.default_rng(1)
    mean = 1 + 0.03 * variant + random.normal(0, 0.005, 12)
    found = source_rule(numbers(variant, mean), 1)
    low = scipy_stats.t.interval(0.99, 5, mean[1::2].mean(), scipy_stats.sem(mean[1::2]))[0]
    high = scipy_stats.t.interval(0.99, 5, mean[::2].mean(), scipy_stats.sem(mean[::2]))[1]
    assert found["source_gap"] == pytest.approx((low - high) / mean[::2].mean())
    assert found["source_detected"] == int(low > high) == 1
    assert 6 <= found["source_detected_s"] <= 12
    assert found["source_detected_s"] <= found["source_separated_s"]
    same = source_rule(numbers(variant, mean - 0.03 * variant), 1)
    assert same["source_detected"] == 0
    assert same["source_gap"] < 0
    assert math.isnan(same["source_separated_s"])


def test_the_rule_of_the_source_has_no_answer_to_few_blocks():
    found = source_rule(numbers([0, 1, 0, 1, 0], [1, 2, 1, 2, 1]), 1)
    assert found["source_detected"] == 0
    assert math.isnan(found["source_gap"])


@pytest.mark.parametrize("p", [[], [0.2], [0.01, 0.04, 0.03], [0.5, 0.5, 0.001], [0.02, 0.02]])
def test_holm_is_that_of_the_definition(p):
    order = np.argsort(p, kind="stable")
    expected = np.zeros(len(p))
    for place, k in enumerate(order):
        expected[k] = max((len(p) - j) * p[order[j]] for j in range(place + 1))
    assert holm(p) == pytest.approx(np.minimum(expected, 1).tolist())


def test_blocks_that_a_rank_lacks_count_for_nothing(tmp_path):
    raw = simulated(tmp_path, burst_s=5e-3)
    raw["status"][3] = 0
    found = numbers_of(raw)
    assert found.variant[3] == -1
    assert np.isfinite(stats.hodges_lehmann(found.lost[found.variant == 0]).estimate)


class TestTheWindow:
    """Time lost about the wake-up counts; a burst that is longer than the first window makes it longer."""

    def judged(self, burst_s, **more):
        return analyse(noise_runs.run([burst_s], pairs=20, **more)).isel(variant=0)

    def by_means(self, raw):
        numbers = numbers_of(raw)
        on, off = (numbers.mean[numbers.variant == kind].mean() for kind in (1, 0))
        return on / off - 1

    def test_a_short_burst_is_sized_by_its_window(self):
        row = self.judged(0.01, machine_per_s=200)
        assert row["effect_window"] == 1
        assert row["window_before"] + row["window_after"] == pytest.approx(4 / 80)
        assert float(row["slowdown"]) == pytest.approx(0.0101, rel=0.1)

    @pytest.mark.parametrize(
        ("burst_s", "machine_per_s"),
        [
            (0.05, 5),
            (0.3, 250),
            *(
                pytest.param(burst_s, machine_per_s, marks=pytest.mark.soak)
                for burst_s in (0.02, 0.05, 0.1, 0.2, 0.3, 0.45)
                for machine_per_s in (5, 250)
                if (burst_s, machine_per_s) not in ((0.05, 5), (0.3, 250))
            ),
        ],
    )
    def test_a_long_burst_that_the_scheduler_cuts_is_sized_whole(self, burst_s, machine_per_s):
        raw = noise_runs.run([burst_s], pairs=20, slice_s=0.003, machine_per_s=machine_per_s)
        row = analyse(raw).isel(variant=0)
        assert row["detected"] == 1
        truth = self.by_means(raw)
        assert truth > 0.7 * burst_s  # some of the last slices fall behind a block's end
        assert float(row["slowdown_low"]) <= truth * 1.1
        assert float(row["slowdown_high"]) >= truth * 0.9
        assert float(row["slowdown"]) == pytest.approx(truth, rel=0.2)
        assert float(row["cost"][0]) == pytest.approx(truth, rel=0.4)  # the model's one node

    def test_a_busy_machine_is_no_base_for_the_model_of_scale(self):
        row = self.judged(0.1, machine_per_s=200, machine_s=1e-3)
        assert row["detected"] == 1
        assert np.isnan(row["cost"]).all()

    def test_a_window_goes_round_the_period(self):
        wake = Wake(1.0, 0.0, False, before=0.1, after=0.3)
        assert wake.holds(np.array([-0.09, 0.0, 0.29])).all()
        assert not wake.holds(np.array([-0.11, 0.31, 0.5])).any()
        wide = Wake(1.0, 0.0, False, before=0.1, after=0.7)
        assert wide.holds(np.array([-0.09, 0.49, -0.4])).all()  # -0.4 is 0.6 after the wake-up before
        assert Wake(1.0, 0.0, False, 0.1, 0.9).whole


class TestWhatWasCutShort:
    """A run that was never looked at would have found nothing."""

    def cut(self, blocks):
        raw = noise_runs.run([0.0], pairs=13)
        raw["status"] = ("block", (np.arange(raw.sizes["block"]) < blocks).astype("i1"))
        return analyse(raw).isel(variant=0)

    def test_before_the_first_look_nothing_would_have_been_found(self):
        assert np.isnan(self.cut(6)["mde"])

    def test_after_it_something_would(self):
        assert self.cut(16)["mde"] < 0.05


class TestBesideOthers:
    """The simulation makes one stall of a burst. Beside others that work on the same cores a burst takes turns, and of
    bursts a quarter longer than such runs stated none was found in 5.
    """

    def test_nothing_is_stated_where_others_took_the_time(self):
        quiet, busy = (
            noise_runs.run([0.0], pairs=13),
            noise_runs.run([0.0], pairs=13, machine_per_s=100, machine_s=1e-3),
        )
        assert np.isfinite(float(analyse(quiet).isel(variant=0)["mde"]))
        summary = analyse(busy)
        assert float(summary["clean_lost"]) > BUSY
        assert np.isnan(float(summary.isel(variant=0)["mde"]))

    @pytest.mark.parametrize("name", ["oversubscribed", "crowded_kernel"])
    def test_nothing_is_stated_of_more_ranks_than_cores(self, name):
        raw = noise_runs.run([0.0], pairs=13).assign_attrs({name: 1})
        assert np.isnan(float(analyse(raw).isel(variant=0)["mde"]))


class TestADeadline:
    """The clock is moved by what is done: whatever asks it finds that more time has gone than was forecast."""

    def at(self, seconds, step_s=0.0):
        clock = FakeClock(step_s)
        return Deadline(clock.now + seconds, clock), clock

    def test_without_one_nothing_is_left_out(self, tmp_path):
        deadline = Deadline()
        summary = first(analyse(simulated(tmp_path), deadline))
        assert deadline.left_out == []
        assert float(summary["mde_searched"]) == 1
        assert int(summary["permutations"]) == 1999

    def test_steps_that_cost_more_than_forecast_end_the_analysis_and_are_reported(self, tmp_path):
        raw = self.recorded(tmp_path, [1999, 1999])
        whole = first(analyse(raw))
        deadline, clock = self.at(5, step_s=0.15)
        summary = first(analyse(raw, deadline))
        assert clock.now < deadline.end_s + 0.2, "when it was asked last, no piece fitted"
        assert [left.what for left in deadline.left_out] == [SEARCH]
        (left,) = deadline.left_out
        assert 0 < left.done < left.of
        assert float(summary["mde_searched"]) == left.done / left.of
        assert float(summary["mde"]) > float(whole["mde"]), "what is known by then errs on the long side"
        assert float(summary["p"]) == 0.25, "the verdict comes first"
        assert float(summary["slowdown"]) == float(whole["slowdown"])

    def test_when_time_is_over_a_verdict_has_the_permutations_that_there_were(self, tmp_path):
        deadline, _ = self.at(-1)
        summary = first(analyse(simulated(tmp_path, burst_s=20e-3), deadline))
        drawn = int(summary["permutations"])
        assert 0 < drawn < 1999
        assert float(summary["p_fold"]) >= 1 / (drawn + 1), "no smaller p than these permutations allow"
        assert not int(summary["detected"])
        assert (deadline.left_out[0].done, deadline.left_out[0].of) == (drawn, 1999)
        assert math.isnan(float(summary["mde"]))
        assert float(summary["mde_searched"]) == 0
        assert math.isfinite(float(summary["stalls"])), "the size of the effect is known"

    def test_variants_share_what_is_left(self, tmp_path):
        variants = (OFF, AGENT, Variant("other", AgentPlan("true"), period_s=0.125))
        deadline, _ = self.at(120, step_s=0.05)
        raw = simulated(tmp_path, variants=variants)
        summary = analyse(raw, deadline)
        assert summary["permutations"].values.tolist() == [1999, 1999]

    def recorded(self, folder, drawn):
        """A run whose looks were recorded: p of 0.25 and 0.125, after so many permutations."""
        raw = simulated(folder)
        looks = {"blocks": [20, 40], "elapsed": [8.0, 14.0], "p": [0.25, 0.125], "p_fold": [0.5, 0.25],
                 "p_ranked": [0.25, 0.125], "z_fold": [2.0, 2.5], "z_ranked": [2.0, 2.5], "period": [0.25] * 2,
                 "phase": [0.1] * 2, "from_resume": [0, 0], "feature": [0, 0], "p_so_far": [0.5, 0.25],
                 "cost": [0.5, 1.0], "permutations": drawn}  # fmt: skip
        return raw.assign({f"look_{name}": ("look", np.array(values)) for name, values in looks.items()})

    def test_a_run_with_a_deadline_keeps_the_looks_that_it_recorded(self, tmp_path):
        raw = self.recorded(tmp_path, [1999, 1999])
        deadline, _ = self.at(1e6)
        assert float(first(analyse(raw, deadline))["p"]) == 0.25
        assert deadline.left_out == []
        assert float(first(analyse(raw))["p"]) != 0.25, (
            "with all time in the world the blocks are judged again"
        )

    def test_a_look_that_the_run_ended_early_stands_whenever_it_is_judged(self, tmp_path):
        raw = self.recorded(tmp_path, [1999, 240])
        deadline = Deadline()
        summary = first(analyse(raw, deadline))
        assert (float(summary["p"]), int(summary["permutations"])) == (0.25, 240)
        assert [(left.done, left.of) for left in deadline.left_out] == [(240, 1999)]

    def test_looks_at_other_blocks_are_repeated(self, tmp_path):
        raw = self.recorded(tmp_path, [1999, 1999])
        raw["look_blocks"].values[:] = [18, 38]
        deadline, _ = self.at(1e6)
        assert float(first(analyse(raw, deadline))["p"]) == float(first(analyse(raw))["p"])

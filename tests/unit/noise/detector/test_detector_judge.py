"""The judge on blocks of a dataset: what it finds, what it leaves alone, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from run_blocks import CALIBRATION, RunFile, placed, plan
from scipy import stats as scipy_stats

from sonde import _core
from sonde.core.errors import DataError, UsageError
from sonde.noise.detector import judge
from sonde.noise.detector.judge import Blocks, Design
from sonde.noise.detector.sealing import SCHEMA

PITCH_S, BLOCK_S = 0.3, 0.25


def noise(seed, rounds=(10, 10), rate=20.0, burst_s=0.0, period_s=1.0, phase_s=0.4):
    """Blocks of a simulated run: stalls at random times, and bursts in the blocks with the agent on."""
    random = np.random.default_rng(seed)
    labels = np.array(_core.noise_plan([1, 1], list(rounds), seed))
    n = len(labels)
    begin = np.arange(n) * PITCH_S
    block, time, length = [], [], []
    for b in range(n):
        many = random.poisson(rate * BLOCK_S)
        block += [b] * many
        time += random.uniform(0, BLOCK_S, many).tolist()
        length += (50e-6 * (1 + random.pareto(2, many))).tolist()
        if labels[b, 1] and burst_s:
            first = np.ceil((begin[b] - phase_s) / period_s) * period_s + phase_s
            for at in np.arange(first, begin[b] + BLOCK_S, period_s):
                block.append(b)
                time.append(at - begin[b])
                length.append(burst_s)
    return Blocks(
        number=np.arange(n, dtype=np.int32),
        segment=labels[:, 0].astype(np.int32),
        on=labels[:, 1].astype(np.int32),
        begin_s=begin,
        length_s=np.full(n, BLOCK_S),
        resumed_s=np.full(n, 0.05),
        levels=random.normal(-10, 0.01, (n, 4)),
        stall_block=np.array(block, np.int32),
        stall_t_s=np.array(time, float),
        stall_length_s=np.array(length, float),
    )


def test_without_an_agent_p_is_as_good_as_uniform():
    p = np.array([judge.test(noise(seed), [1.0], permutations=199, seed=seed).p for seed in range(150)])
    # At least as rare as it says, by the binomial law; and not always 1.
    for alpha in (0.05, 0.2, 0.5):
        alarms = int((p <= alpha).sum())
        assert scipy_stats.binomtest(alarms, len(p), alpha, "greater").pvalue > 0.001
    assert (p < 0.5).sum() >= 20
    ranked = np.array([judge.test(noise(seed), permutations=199, seed=seed).p for seed in range(150)])
    assert scipy_stats.kstest(ranked, "uniform").pvalue > 0.001


def test_bursts_are_found_and_their_phase_is_named():
    blocks = noise(3, rounds=(40, 40), burst_s=5e-3, phase_s=0.4)
    found = judge.test(blocks, [1.0])
    assert found.p <= 0.01
    assert found.period_s == 1.0
    # A cell is 1/80 of the period; those of the run's clock and of the resumption are both told of.
    assert not found.from_resume
    assert found.phase_s == pytest.approx(0.4, abs=1 / 80)


def test_bursts_that_follow_the_resumption_are_reported_as_such():
    blocks = noise(5, rounds=(40, 40))
    random = np.random.default_rng(7)
    before = random.uniform(0.02, 0.3, len(blocks))
    # 0.35 s after it was let go, wherever in the run that was; the period is not that of the blocks.
    at = 0.35 - before
    on = np.flatnonzero((blocks.on == 1) & (at >= 0) & (at < BLOCK_S))
    changed = {name: getattr(blocks, name) for name in Blocks.__dataclass_fields__}
    changed["begin_s"] = np.cumsum(random.uniform(0.3, 1.3, len(blocks)))
    changed["resumed_s"] = before
    changed["stall_block"] = np.concatenate([blocks.stall_block, on]).astype(np.int32)
    changed["stall_t_s"] = np.concatenate([blocks.stall_t_s, at[on]])
    changed["stall_length_s"] = np.concatenate([blocks.stall_length_s, np.full(len(on), 5e-3)])
    found = judge.test(Blocks(**changed), [1.0])
    assert found.p <= 0.01
    assert found.from_resume
    assert found.phase_s == pytest.approx(0.35, abs=1 / 80)


def test_a_slower_loop_without_stalls_is_found_by_its_levels():
    blocks = noise(11)
    blocks.levels[blocks.on == 1, 2] += 1
    found = judge.test(blocks, [1.0])
    assert found.p_ranked <= 0.01
    assert found.feature == 21 + 2


@pytest.mark.parametrize("kind", [0, 1])
def test_blocks_of_one_kind_prove_nothing(kind):
    all_blocks = noise(1, burst_s=5e-3)
    blocks = all_blocks.where(all_blocks.on == kind)
    assert not blocks.comparable
    assert judge.test(blocks, [1.0]).p == 1


def test_no_block_at_all_proves_nothing():
    nothing = noise(1).where(np.zeros(40, bool))
    assert len(nothing) == 0
    assert not nothing.comparable
    assert judge.test(nothing, [1.0]).p == 1


def test_kinds_in_different_segments_only_cannot_be_compared():
    blocks = noise(1, burst_s=5e-3)
    halves = blocks.where((blocks.on == 1) == (blocks.segment == 1))
    assert not halves.comparable
    assert judge.test(halves, [1.0]).p == 1


def test_the_seed_decides():
    blocks = noise(4)
    assert judge.test(blocks, [1.0], seed=9) == judge.test(blocks, [1.0], seed=9)


def test_looks_say_what_a_run_may_claim():
    blocks = noise(2, rounds=(10, 20, 30), burst_s=5e-3)
    looks = judge.looks(blocks, [20, 60, 120], [0.2, 0.3, 0.5], [1.0], permutations=999)
    assert [look.blocks for look in looks] == [20, 60, 120]
    claimed = np.minimum.accumulate([look.p / share for look, share in zip(looks, (0.2, 0.3, 0.5))])
    np.testing.assert_allclose([look.p_so_far for look in looks], np.minimum(claimed, 1))
    assert looks[-1].p_so_far <= 0.02
    # The first look is what a run would have said that ended there.
    assert looks[0].z_fold == judge.test(blocks.where(np.arange(120) < 20), [1.0]).z_fold


def test_overlapping_stalls_of_ranks_are_one():
    """Stalls of a second rank at the same times change nothing; at times of their own they do."""
    blocks = noise(6, burst_s=5e-3)
    values = {name: getattr(blocks, name) for name in Blocks.__dataclass_fields__}

    def twice(later_s):
        return Blocks(
            **values
            | {
                "stall_block": np.tile(blocks.stall_block, 2),
                "stall_t_s": np.concatenate([blocks.stall_t_s, blocks.stall_t_s + later_s]),
                "stall_length_s": np.tile(blocks.stall_length_s, 2),
            }
        )

    once = judge.test(blocks, [1.0])
    assert judge.test(twice(0.0), [1.0]) == once
    assert judge.test(twice(0.02), [1.0]).z_ranked != once.z_ranked


# ---- from a dataset ------------------------------------------------------------------------------


def raw_of(folder, files, p):
    """/raw as it is read: of the pieces that place() gives."""
    layout, arrays = placed(SCHEMA, p, files)
    data = {name: (layout.variables[name].dims, values) for name, values in arrays.items()}
    return xr.Dataset(data, attrs=layout.attrs)


def two_ranks(folder, labels=((0, 0), (0, 1)), p=None, rank_begins=(1.0, 1.001), **blocks):
    files = []
    for rank, begins in enumerate(rank_begins):
        file = RunFile(folder, rank)
        file.values(4, CALIBRATION)
        for number, (segment, variant) in enumerate(labels):
            more = {name: values[rank] for name, values in blocks.items()}
            file.block(number, segment, variant, begins + 0.3 * number, **more)
        files.append(file.close())
    return raw_of(folder, files, p or plan())


def test_blocks_of_a_dataset(tmp_path):
    stalls = ([(0.1, 1e-3, 0, 0)], [(0.1, 2e-3, 0, 0), (0.2, 1e-4, 0, 0)])
    labels = [(0, 1), (0, 0), (1, 0), (1, 1)]
    raw = two_ranks(tmp_path, labels, stalls=stalls, resumed=(0.9, 0.85))
    blocks = judge.blocks_of(raw)
    assert blocks.number.tolist() == [0, 1, 2, 3]
    assert blocks.segment.tolist() == [0, 0, 1, 1]
    assert blocks.on.tolist() == [1, 0, 0, 1]
    np.testing.assert_allclose(blocks.begin_s, [1, 1.3, 1.6, 1.9])
    # As the first rank recorded it, of blocks without an agent too: both kinds have one origin.
    np.testing.assert_allclose(blocks.resumed_s, [0.1, 0.4, 0.7, 1.0])
    assert len(blocks.stall_block) == 12
    first = blocks.stall_block == 0
    np.testing.assert_allclose(blocks.stall_t_s[first], [0.1, 0.101, 0.201], rtol=1e-6)
    np.testing.assert_allclose(blocks.stall_length_s[first], [1e-3, 2e-3, 1e-4], rtol=1e-6)
    assert blocks.levels.shape == (4, 4)


def test_an_agent_whose_resumption_is_not_known_is_taken_to_settle(tmp_path):
    blocks = judge.blocks_of(two_ranks(tmp_path))
    np.testing.assert_allclose(blocks.resumed_s, [0.05, 0.05])


def test_levels_are_quantiles_of_the_rank_that_times_most_finely(tmp_path):
    edges = np.array(_core.noise_edges()) * 1e-9
    raw = two_ranks(tmp_path, [(0, 0)], count=({200: 10}, {300: 10}))
    assert judge.reader(raw) == 0  # of two alike the first
    assert judge.blocks_of(raw).levels[0, 0] == pytest.approx(np.log((edges[200] + edges[201]) / 2))
    raw["stamp_every"] = ("rank", [16, 8])
    assert judge.blocks_of(raw).levels[0, 0] == pytest.approx(np.log((edges[300] + edges[301]) / 2))
    raw["stamp_every"] = ("rank", [16, -1])  # its calibration is lost
    assert judge.reader(raw) == 0


def test_without_any_calibration_levels_tell_nothing(tmp_path):
    files = []
    for rank in range(2):
        file = RunFile(tmp_path, rank)
        file.block(0)
        file.block(1, variant=1)
        files.append(file.close())
    blocks = judge.blocks_of(raw_of(tmp_path, files, plan()))
    assert (blocks.levels == 0).all()
    assert judge.test(blocks, [1.0]).p == 1


def test_a_block_without_readings_has_a_level_all_the_same(tmp_path):
    raw = two_ranks(tmp_path, count=({200: 0}, {200: 0}))
    assert np.isfinite(judge.blocks_of(raw).levels).all()


def test_blocks_of_other_variants_and_missing_ones_are_left_out(tmp_path):
    p = plan(variants=["off", "pinned", "free"])
    raw = two_ranks(tmp_path, [(0, 0), (0, 1), (0, 2), (0, 0)], p, stalls=([(0.1, 1e-3, 0, 0)], []))
    blocks = judge.blocks_of(raw, on=2)
    assert blocks.number.tolist() == [0, 2, 3]
    assert blocks.on.tolist() == [0, 1, 0]
    assert blocks.stall_block.tolist() == [0, 1, 2]
    assert judge.blocks_of(raw, on=1, off=2).number.tolist() == [1, 2]
    raw["status"] = ("block", [0, 1, 1, 1])
    assert judge.blocks_of(raw, on=1).number.tolist() == [1, 3]


def test_a_run_without_any_whole_block_gives_none(tmp_path):
    p = plan()
    files = [RunFile(tmp_path, rank).close() for rank in range(2)]
    assert len(judge.blocks_of(raw_of(tmp_path, files, p))) == 0


@pytest.mark.parametrize(("on", "off"), [(2, 0), (1, -1), (1, 1)])
def test_a_variant_that_the_run_has_not(tmp_path, on, off):
    with pytest.raises(UsageError) as error:
        judge.blocks_of(two_ranks(tmp_path), on, off)
    assert error.value.code == "noise.no_such_variant"


# ---- power ---------------------------------------------------------------------------------------

DESIGN = Design(rounds=(15, 15), spend=(0.5, 0.5), alpha=0.05)


def test_clean_blocks_stand_at_the_pitch_of_all():
    clean = noise(8, rounds=(5,)).clean()
    assert len(clean) == 5
    assert (clean.on == 0).all()
    np.testing.assert_allclose(clean.begin_s, np.arange(5) * PITCH_S)


def test_power_rises_with_the_burst_and_a_null_is_seldom_found():
    blocks = noise(9)
    found = [
        judge.power(blocks, DESIGN, 0.5, burst_s, 50e-6, permutations=199, runs=40).share
        for burst_s in (0.0, 20e-3)
    ]
    assert scipy_stats.binomtest(round(found[0] * 40), 40, DESIGN.alpha, "greater").pvalue > 0.001
    assert found[1] >= 0.9


def test_power_says_how_many_blocks_were_needed():
    found = judge.power(noise(9), DESIGN, 0.5, 20e-3, 50e-6, permutations=199, runs=20)
    assert set(found.blocks) <= {0, 30, 60}
    assert found.share == sum(blocks > 0 for blocks in found.blocks) / 20


def test_the_detectable_burst_lies_between_those_that_are_and_are_not_found():
    blocks = noise(9)
    least = judge.detectable_burst(blocks, DESIGN, 0.5, 50e-6, permutations=199, runs=20).burst_s
    assert least is not None
    assert 50e-6 < least < 0.25
    same = {"permutations": 199, "runs": 20}
    assert judge.power(blocks, DESIGN, 0.5, least, 50e-6, **same).share >= 0.9
    assert judge.power(blocks, DESIGN, 0.5, least / 2, 50e-6, **same).share < 0.9


def test_nothing_is_detectable_with_one_round():
    one = Design(rounds=(1,), spend=(1.0,), alpha=0.01)
    assert judge.detectable_burst(noise(9), one, 0.5, 50e-6, permutations=199, runs=5).burst_s is None


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"periods_s": [0.0]}, "noise.bad_period"),
        ({"periods_s": [np.nan]}, "noise.bad_period"),
        ({"fold_weight": 1.0}, "noise.bad_weight"),
        ({"permutations": 0}, "noise.bad_permutations"),
        ({"seed": -1}, "noise.bad_seed"),
    ],
)
def test_test_refuses(arguments, code):
    with pytest.raises(UsageError) as error:
        judge.test(noise(1), **arguments)
    assert error.value.code == code


@pytest.mark.parametrize(
    ("ends", "spend", "code"),
    [
        ([0], [1.0], "noise.bad_looks"),
        ([20, 20], [0.5, 0.5], "noise.bad_looks"),
        ([41], [1.0], "noise.bad_looks"),
        ([20], [], "noise.bad_spend"),
        ([20], [0.8, 0.3], "noise.bad_spend"),
        ([20], [-0.1], "noise.bad_spend"),
        ([20], [np.nan], "noise.bad_spend"),
    ],
)
def test_looks_refuse(ends, spend, code):
    with pytest.raises(UsageError) as error:
        judge.looks(noise(1), ends, spend)
    assert error.value.code == code


def test_three_thirds_are_one():
    assert len(judge.looks(noise(1), [20], [1 / 3, 1 / 3, 1 / 3], permutations=9)) == 1


@pytest.mark.parametrize(
    ("burst_s", "shortest_s", "runs", "code"),
    [
        (2.0, 1e-4, 1, "noise.bad_burst"),
        (-1.0, 1e-4, 1, "noise.bad_burst"),
        (1e-3, 0.0, 1, "noise.bad_burst"),
        (1e-3, 1e-4, 0, "noise.bad_runs"),
    ],
)
def test_power_refuses(burst_s, shortest_s, runs, code):
    with pytest.raises(UsageError) as error:
        judge.power(noise(1), DESIGN, 1.0, burst_s, shortest_s, runs=runs)
    assert error.value.code == code


def test_power_needs_clean_blocks_and_a_possible_wish():
    blocks = noise(1)
    with pytest.raises(DataError) as error:
        judge.power(blocks.where(blocks.on == 1), DESIGN, 1.0, 1e-3, 1e-4)
    assert error.value.code == "noise.no_clean_blocks"
    with pytest.raises(UsageError) as wish:
        judge.detectable_burst(blocks, DESIGN, 1.0, 1e-4, wanted=1.5)
    assert wish.value.code == "noise.bad_power"


@pytest.mark.parametrize(
    ("rounds", "spend", "alpha", "code"),
    [
        ((), (1.0,), 0.01, "noise.bad_design"),
        ((0,), (1.0,), 0.01, "noise.bad_design"),
        ((5,), (1.5,), 0.01, "noise.bad_spend"),
        ((5,), (1.0,), 0.0, "noise.bad_alpha"),
    ],
)
def test_a_design_that_cannot_be(rounds, spend, alpha, code):
    with pytest.raises(UsageError) as error:
        Design(rounds, spend, alpha)
    assert error.value.code == code


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("begin_s", lambda x: x[:-1]),
        ("levels", lambda x: x[:, 0]),
        ("length_s", lambda x: x * np.nan),
        ("segment", lambda x: x[np.argsort(np.arange(len(x)) % 2)]),
        ("stall_block", lambda x: x + 40),
        ("stall_t_s", lambda x: x[1:]),
    ],
)
def test_blocks_that_do_not_fit_together_are_refused(name, change):
    values = {key: getattr(noise(1), key) for key in Blocks.__dataclass_fields__}
    with pytest.raises(DataError) as error:
        Blocks(**values | {name: change(values[name])})
    assert error.value.code == "noise.bad_blocks"

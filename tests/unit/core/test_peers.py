"""Which of several equal members is slower: how often a healthy one is named, and how slow one must be to be."""

from __future__ import annotations

import numpy as np
import pytest

from sonde.core import peers

MEMBERS = 4


def operations(rng, n, law="lognormal", blocks=1):
    """Times of equal members. law: lognormal and Pareto have heavy tails; stalls are pauses that hold up whatever a
    member has under way."""
    member, block = rng.integers(0, MEMBERS, n), rng.integers(0, blocks, n)
    begin = np.sort(rng.integers(0, 10**9, n))
    if law == "lognormal":
        time = np.exp(rng.normal(0, 1.5, n))
    elif law == "pareto":
        time = (1 - rng.random(n)) ** (-1 / 1.2)  # without a variance
    else:
        time = np.exp(rng.normal(0, 0.5, n))
        for one in range(MEMBERS):
            for at in rng.random(3) * 1e9:
                time[(member == one) & (begin > at) & (begin < at + 2e7)] += 30
    return 1e-4 * time * (1 + 3 * block), begin, member, block


def judged(compared):
    return peers.judged(compared.ratio, compared.p, compared.own_error, compared.others_error)


def named(compared):
    return set(compared.member[judged(compared).slower].tolist())


def counters(rng, n, slow=1.0, pause=0.0, together=1, sigma=1.0):
    """Means and extremes of members, of which the third is slower. pause: what holds up
    `together` operations of one, now and then."""
    found = []
    for one in range(MEMBERS):
        time = np.exp(rng.normal(0, sigma, n)) * (slow if one == 2 else 1)
        for _ in range(int(rng.poisson(1.5)) if pause else 0):
            at = int(rng.integers(0, n))
            time[at : at + together] += pause * rng.random()
        found.append((n, time.mean(), time.min(), time.max()))
    return tuple(np.array(column) for column in zip(*found))


class TestByEpoch:
    @pytest.mark.parametrize("law", ["lognormal", "pareto", "stalls"])
    def test_equal_members_with_heavy_tails_are_seldom_named(self, law):
        rng, runs = np.random.default_rng(1), 80
        wrong = sum(bool(named(peers.by_epoch(*operations(rng, 800, law), MEMBERS))) for _ in range(runs))
        print(f"{law}: {wrong} of {runs} clean runs name a member")
        assert wrong <= 0.05 * runs

    @pytest.mark.parametrize(("slow", "n"), [(1.5, 4000), (2.0, 2000), (5.0, 600)])
    def test_a_slower_member_is_named_alone(self, slow, n):
        rng, runs, right = np.random.default_rng(2), 20, 0
        for _ in range(runs):
            time, begin, member, block = operations(rng, n)
            time[member == 2] *= slow
            compared = peers.by_epoch(time, begin, member, block, MEMBERS)
            right += named(compared) == {2}
        print(f"{slow} times slower: named in {right} of {runs}")
        assert right >= 0.9 * runs
        (row,) = np.flatnonzero(compared.member == 2)
        assert compared.low[row] < slow < compared.high[row]

    def test_a_member_that_is_slow_in_one_block_is_named_there(self):
        rng = np.random.default_rng(3)
        time, begin, member, block = operations(rng, 6000, blocks=3)
        time[(member == 1) & (block == 2)] *= 4
        compared = peers.by_epoch(time, begin, member, block, MEMBERS)
        slower = judged(compared).slower
        assert {(int(m), int(b)) for m, b in zip(compared.member[slower], compared.block[slower])} >= {(1, 2)}
        assert named(compared) == {1}
        assert not slower[(compared.member == 1) & np.isin(compared.block, (0, 1))].any()

    def test_few_operations_are_not_compared(self):
        time, begin, member, block = operations(np.random.default_rng(4), 40)
        time[member == 2] *= 50
        compared = peers.by_epoch(time, begin, member, block, MEMBERS)
        assert np.isnan(compared.p).all()
        assert compared.operations.sum() == 40
        assert np.isnan(judged(compared).detectable).all()
        assert not judged(compared).slower.any()

    def test_of_two_neither_is_the_odd_one(self):
        time, begin, member, block = operations(np.random.default_rng(5), 2000)
        two = member < 2
        time[member == 1] *= 9
        compared = peers.by_epoch(time[two], begin[two], member[two], block[two], MEMBERS)
        assert compared.member.tolist() == [0, 1]
        assert np.isnan(compared.p).all()

    def test_what_differs_between_strata_is_no_difference_of_members(self):
        rng = np.random.default_rng(6)
        time, begin, member, block = operations(rng, 4000)
        client = np.where(rng.random(4000) < 0.7, member % 2, 1 - member % 2)
        time[client == 1] *= 10
        assert named(peers.by_epoch(time, begin, member, block, MEMBERS, client)) == set()
        alone = np.where(member == 2, 1, 0)  # a stratum of one member has nobody to compare it with
        compared = peers.by_epoch(time, begin, member, block, MEMBERS, alone)
        assert np.isnan(compared.p[compared.member == 2]).all()

    def test_members_that_are_quite_equal_have_no_difference(self):
        member = np.tile(np.arange(MEMBERS), 200)
        one = peers.by_epoch(np.full(800, 1e-3), np.arange(800), member, np.zeros(800, int), MEMBERS)
        assert one.ratio.tolist() == [1] * MEMBERS
        assert one.p.tolist() == [1] * MEMBERS
        assert judged(one).detectable.tolist() == [1 + peers.MATTERS] * MEMBERS

    def test_nothing_at_all(self):
        none = np.zeros(0, int)
        compared = peers.by_epoch(np.zeros(0), none, none, none, MEMBERS)
        assert len(compared.p) == len(judged(compared).slower) == 0


class TestByMean:
    @pytest.mark.parametrize(("n", "pause"), [(150, 0), (150, 500), (1000, 500), (5000, 0)])
    def test_equal_members_are_seldom_named_even_where_a_pause_makes_the_mean(self, n, pause):
        rng, runs = np.random.default_rng(7), 100
        wrong = three_times = 0
        for _ in range(runs):
            counted = counters(rng, n, pause=pause, together=9, sigma=1.5)
            wrong += bool(named(peers.by_mean(*counted, 9)))
            means = np.sort(counted[1])
            three_times += means[-1] >= 3 * np.median(means[:-1])
        print(
            f"{n} calls, pauses of {pause}: {wrong} of {runs} named; by three times the median {three_times}"
        )
        assert wrong <= 0.05 * runs
        assert not pause or three_times > 0.05 * runs

    @pytest.mark.parametrize(("slow", "n"), [(1.5, 10_000), (2.0, 3000), (5.0, 400)])
    def test_a_slower_member_is_named_alone(self, slow, n):
        rng, runs = np.random.default_rng(8), 20
        right = sum(named(peers.by_mean(*counters(rng, n, slow))) == {2} for _ in range(runs))
        print(f"{slow} times slower: named in {right} of {runs}")
        assert right >= 0.9 * runs

    def test_the_error_is_that_of_the_widest_law(self):
        # Half of the values at each end: no law between the same extremes varies more.
        calls, mean = np.full(3, 101), np.full(3, 2.0)
        compared = peers.by_mean(calls, mean, np.full(3, 1.0), np.full(3, 3.0))
        assert compared.own_error == pytest.approx([0.1 / 2] * 3)
        cut = peers.by_mean(calls, mean, np.full(3, 1.0), np.full(3, 3.0), together=101 / 26)
        assert cut.own_error == pytest.approx([0.2 / 2] * 3)

    def test_what_would_have_been_found_is_found(self):
        calls, least, longest = np.full(MEMBERS, 2000), np.full(MEMBERS, 0.5), np.full(MEMBERS, 4.0)
        first = judged(peers.by_mean(calls, np.ones(MEMBERS), least, longest)).detectable
        means = np.where(np.arange(MEMBERS) == 2, first[2], 1.0)
        assert named(peers.by_mean(calls, means, least * means, longest * means)) == {2}

    def test_not_compared_without_extremes_or_with_few_members_or_calls(self):
        calls, mean = np.array([100, 100, 100, 1, 0]), np.array([1.0, 1.0, 9.0, 9.0, np.nan])
        least, longest = mean / 2, mean * 2
        compared = peers.by_mean(calls, mean, least, longest)
        assert compared.member.tolist() == [0, 1, 2, 3]
        assert np.isfinite(compared.p).tolist() == [True, True, True, False]
        assert np.isnan(peers.by_mean(calls, mean, np.full(5, np.nan), longest).p).all()
        assert np.isnan(peers.by_mean(calls[1:], mean[1:], least[1:], longest[1:]).p).all()
        assert np.isnan(peers.by_mean(calls, mean, least, longest, together=80).p).all()

    def test_times_that_never_vary(self):
        calls, mean = np.full(3, 100), np.array([1.0, 1.0, 2.0])
        compared = peers.by_mean(calls, mean, mean, mean)
        assert compared.p[2] == 0
        assert named(compared) == {2}

    def test_so_large_an_error_that_nothing_would_have_been_found(self):
        calls, ones = np.full(3, 10), np.ones(3)
        assert np.isinf(judged(peers.by_mean(calls, ones, ones * 0.1, ones * 9)).detectable).all()


class TestOverBlocks:
    def parts(self, slow):
        """Six operations, of which none alone says much."""
        calls = np.full(MEMBERS, 60)
        mean = np.where(np.arange(MEMBERS) == 1, slow, 1.0)
        return [
            peers.by_mean(calls, mean * (k + 1), mean * (k + 1) / 3, mean * (k + 1) * 6, 1, k)
            for k in range(6)
        ]

    def test_a_member_that_is_slow_in_all_operations_is_named(self):
        parts = self.parts(2.0)
        assert named(peers.joined(parts)) == set()
        together = peers.over_blocks(parts)
        assert named(together) == {1}
        assert together.ratio == pytest.approx([1, 2, 1, 1])
        assert together.operations.tolist() == [360] * MEMBERS
        assert together.expected_s == pytest.approx([60.0 * 21] * MEMBERS)
        assert set(together.block.tolist()) == {peers.ALL}

    def test_equal_members_are_not(self):
        assert named(peers.over_blocks(self.parts(1.0))) == set()
        assert len(peers.over_blocks(self.parts(1.0)[:1]).p) == 0

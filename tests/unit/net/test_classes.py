"""Link classes: found where they are, not found where they are not."""

import warnings

import numpy as np
import pytest

from sonde.net.classes import adjusted_rand, expected_class, link_classes, topology_agreement, valley_p
from sonde.net.pairs import Pairs, pairs_of
from sonde.net.synthetic import Network


def pairs_from(y: np.ndarray, ranks: int, level: np.ndarray | None = None) -> Pairs:
    """Undirected pairs of `ranks` ranks whose log latencies are y (P,) or (P, S)."""
    y = y.reshape(len(y), -1)
    src, dst = np.triu_indices(ranks, 1)
    known = np.full(y.shape, 0.01)
    way = np.stack([y, y], axis=1)
    places = np.full(len(y), -1) if level is None else level
    size = 8 << np.arange(y.shape[1])
    return Pairs(src, dst, size, y, known, known * 1000, way, way, ranks, False, places, np.full(ranks, ""))


@pytest.mark.parametrize(
    ("ranks", "per_host", "classes"), [(6, 2, 2), (8, 4, 2), (16, 2, 2), (32, 2, 3), (64, 2, 3)]
)
def test_classes_of_a_tree_of_switches_are_found(ranks, per_host, classes):
    net = Network(ranks=ranks, ranks_per_host=per_host)
    found = link_classes(pairs_of(net.summary(20, np.random.default_rng(ranks))))
    assert len(found) == classes
    assert (np.diff(np.log(found.centre).mean(axis=1)) > 0).all(), "labels are not in the order of latency"
    levels = net.levels()[np.triu_indices(ranks, 1)]
    assert adjusted_rand(found.label, levels) > 0.98
    assert found.level[0] == "same host"


def test_hosts_agree_with_classes_and_shuffled_hosts_do_not():
    summary = Network(ranks=32, hosts_per_switch=99).summary(20, np.random.default_rng(3))
    found = link_classes(pairs_of(summary))
    assert found.agreement == pytest.approx(1.0)
    assert found.p <= 0.01
    summary["host"] = ("rank", np.random.default_rng(1).permutation(summary["host"].values))
    index, p = topology_agreement(found.label, pairs_of(summary))
    assert abs(index) < 0.1
    assert p > 0.01


@pytest.mark.parametrize("law", ["normal", "uniform", "exponential", "heavy"])
@pytest.mark.parametrize("times", [2, pytest.param(10, marks=pytest.mark.soak)])
def test_one_class_stays_one(law, times):
    rng = np.random.default_rng(7)
    draw = {
        "normal": lambda n: rng.normal(0, 0.1, n),
        "uniform": lambda n: rng.uniform(0, 0.5, n),
        "exponential": lambda n: rng.exponential(0.2, n),
        "heavy": lambda n: 0.1 * rng.standard_t(3, n),
    }[law]
    false = 0
    for ranks in (4, 8, 16, 40) * times:
        false += len(link_classes(pairs_from(draw(ranks * (ranks - 1) // 2), ranks))) > 1
    assert false <= max(1, 0.3 * times), f"{false} of {4 * times} networks of one class were cut"


def test_classes_closer_than_ten_per_cent_are_one():
    y = np.where(np.arange(120) < 60, 0.0, 0.08) + np.random.default_rng(1).normal(0, 1e-4, 120)
    assert len(link_classes(pairs_from(y, 16))) == 1
    assert len(link_classes(pairs_from(2 * y, 16))) == 2


def test_slow_links_between_classes_are_expected_in_the_faster_one():
    # 1.3 us within a switch, 1.8 us across: a link within that is 25 % slow looks like one across.
    net = Network(slow_links={(2, 9): 1.25})
    pairs = pairs_of(net.summary(20, np.random.default_rng(0)))
    found = link_classes(pairs)
    row = np.flatnonzero((pairs.src == 2) & (pairs.dst == 9))[0]
    assert found.expected[row] == 1
    changed = np.flatnonzero(found.expected != found.label)
    assert set(changed) <= {row}


def test_ranks_without_likes_keep_their_classes():
    # On a ring no two ranks have the same links.
    ranks = 12
    src, dst = np.triu_indices(ranks, 1)
    hops = np.minimum(dst - src, ranks - (dst - src))
    label = (hops > 1).astype(int)
    assert (expected_class(label, pairs_from(np.log(hops * 1e-6), ranks)) == label).all()


def test_a_machine_of_two_halves_has_three_classes():
    half = np.arange(16) // 8
    src, dst = np.triu_indices(16, 1)
    y = np.log(1e-6) + 0.5 * (half[src] + half[dst]) + np.random.default_rng(2).normal(0, 0.01, len(src))
    found = link_classes(pairs_from(y, 16))
    assert list(found.count) == [28, 64, 28]


def test_a_slow_rank_is_no_class():
    ranks = 24
    src, dst = np.triu_indices(ranks, 1)
    y = np.log(1e-6) + 0.4 * ((src == 5) | (dst == 5)) + np.random.default_rng(2).normal(0, 0.01, len(src))
    assert len(link_classes(pairs_from(y, ranks))) == 1


def test_links_that_all_share_a_host_are_no_class_unless_the_topology_says_so():
    """Three hosts of which one is far, and nobody knows why: that is to be told, and not to be a class."""
    net = Network(ranks=8, ranks_per_host=1, hosts_per_switch=8, slow_hosts={3: (1.0, 2.0, 10.0)})
    classes = link_classes(pairs_of(net.summary(20, np.random.default_rng(9))))
    assert len(classes) == 1
    two = Network(ranks=8, ranks_per_host=4, hosts_per_switch=8)  # all links between hosts touch both
    classes = link_classes(pairs_of(two.summary(20, np.random.default_rng(9))))
    assert len(classes) == 2


def test_two_ranks_are_one_class():
    found = link_classes(pairs_from(np.log([1e-6]), 2))
    assert list(found.count) == [1]
    assert found.merge.shape == (0, 4)
    assert np.isnan(found.agreement)


def test_no_links_are_no_class():
    pairs = pairs_from(np.log([1e-6]), 2).take(np.zeros(0, int))
    found = link_classes(pairs)
    assert len(found) == 0


def test_identical_links_are_one_class():
    assert len(link_classes(pairs_from(np.full(66, np.log(1e-6)), 12))) == 1


def test_a_coarse_clock_makes_no_classes():
    # Medians of one class, rounded to a tick that is 0.5 % of them.
    y = np.log(np.round(np.random.default_rng(4).normal(2e-6, 3e-8, 276) / 1e-8) * 1e-8)
    assert len(link_classes(pairs_from(y, 24))) == 1


def test_missing_sizes_do_not_stop_clustering():
    summary = Network(ranks=16).summary(20, np.random.default_rng(9))
    summary["median"][0:4, :, 1] = np.nan
    assert len(link_classes(pairs_of(summary))) == 2


def test_many_links_are_clustered_in_cells_and_small_classes_survive():
    # 128 ranks: 8128 links, of which 64 within hosts.
    net = Network(ranks=128, sizes=(8,), hosts_per_switch=64)
    found = link_classes(pairs_of(net.summary(10, np.random.default_rng(5))))
    assert list(found.count) == [64, 8064]
    assert found.merge.shape[1] == 4
    assert len(found.leaf) == len(found.merge) + 1 <= 40
    assert found.merge[-1, 3] == 8128


def test_valley_needs_two_links_on_each_side():
    assert valley_p(np.array([0.0, 5.0, 5.1, 5.2]), 2.0) == 1.0
    assert valley_p(np.array([]), 0.0) == 1.0
    assert valley_p(np.concatenate([np.linspace(0, 0.1, 20), np.linspace(2, 2.1, 20)]), 1.0) < 1e-6


def test_adjusted_rand_of_known_tables():
    a = np.array([0, 0, 0, 1, 1, 1])
    assert adjusted_rand(a, a) == 1.0
    assert adjusted_rand(a, 5 - a) == 1.0
    assert adjusted_rand(a, np.zeros(6, int)) == 0.0
    assert adjusted_rand(np.zeros(6, int), np.zeros(6, int)) == 1.0
    # Hubert & Arabie's formula by hand: pairs together in both 2, rows 6, columns 4 of 15.
    assert adjusted_rand(a, np.array([0, 0, 1, 1, 2, 2])) == pytest.approx(
        (2 - 6 * 3 / 15) / (4.5 - 6 * 3 / 15)
    )


def test_a_class_that_lacks_a_size_is_no_matter_for_a_warning():
    """As in a run that was stopped, or chooses pairs: a size of which a whole class has nothing."""
    y = np.where(np.arange(120) < 60, 0.0, 0.5)[:, None] + np.random.default_rng(1).normal(0, 1e-3, (120, 3))
    y[:60, 2] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = link_classes(pairs_from(y, 16))
    assert len(found) == 2
    assert np.isnan(found.centre).tolist() == [[False, False, True], [False, False, False]]

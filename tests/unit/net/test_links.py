"""Slow links: found when they are there, few false ones when they are not."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats as sps

from sonde.net import links
from sonde.net.classes import link_classes
from sonde.net.links import LinkTest, after_retest, pairs_to_retest, slow_links
from sonde.net.pairs import Pairs, pairs_of
from sonde.net.synthetic import Network


def judged(summary: xr.Dataset) -> tuple[Pairs, np.ndarray, LinkTest]:
    pairs = pairs_of(summary)
    classes = link_classes(pairs).expected
    return pairs, classes, slow_links(pairs, classes)


def named(test: LinkTest) -> set[tuple[int, int]]:
    return {(s.src, s.dst) for s in test.links}


def test_slow_links_are_named_and_no_others():
    slow = {(3, 17): 1.2, (9, 40): 1.3, (2, 3): 1.25}
    _, _, test = judged(Network(slow_links=slow).summary(20, np.random.default_rng(1)))
    assert named(test) == set(slow)
    for found in test.links:
        assert found.low < slow[found.src, found.dst] < found.high
        assert found.sizes == (8, 1024, 65536)
        assert found.q <= 0.05


@pytest.mark.parametrize("count", [5, pytest.param(20, marks=pytest.mark.soak)])
def test_false_ones_stay_few_without_slow_links(count):
    rng = np.random.default_rng(2)
    runs = [judged(Network(ranks=32, sizes=(8, 1024)).summary(20, rng))[2] for _ in range(count)]
    assert sum(bool(run.links) for run in runs) <= 3 * count / 20


def test_p_is_uniform_or_higher_for_plain_links():
    rng = np.random.default_rng(3)
    p = np.concatenate([judged(Network(ranks=32).summary(24, rng))[2].p for _ in range(5)])
    for level in (0.05, 0.01, 0.001):
        share = np.mean(p <= level)
        assert share <= 1.5 * level + 3 * np.sqrt(level / len(p))


def test_link_slow_at_large_messages_only_says_so():
    summary = Network(ranks=32, sizes=(8, 64, 65536, 262144)).summary(24, np.random.default_rng(4))
    for name in ("median", "median_low", "median_high", "q05"):
        summary[name][3, 20, 2:] *= 1.4
        summary[name][20, 3, 2:] *= 1.4
    _, _, test = judged(summary)
    assert named(test) == {(3, 20)}
    assert test.links[0].sizes == (65536, 262144)


def test_slow_in_one_direction_only_is_found_where_samples_are_one_way():
    summary = Network(ranks=32, sizes=(8, 64, 512), regime_share=0.1).summary(24, np.random.default_rng(5))
    summary.attrs["value"] = "one_way"
    for name in ("median", "median_low", "median_high", "q05"):
        summary[name][20, 3] *= 1.4
    _, _, test = judged(summary)
    assert named(test) == {(20, 3)}


def test_slow_spells_are_not_slow_links():
    # Half the epochs of one link are slow: its median moves, its fast delays do not.
    net = Network(ranks=24, sizes=(8,), regime_share=0.0)
    medians = net.epoch_medians(20, np.random.default_rng(6))
    medians[3, 20, :, 8:] *= 1.5
    medians[20, 3, :, 8:] *= 1.5
    from sonde.net.synthetic import summary_of_medians

    _, _, test = judged(summary_of_medians(net.sizes, medians))
    assert named(test) == set()


def test_slow_rank_is_distinguished_from_slow_links():
    _, _, test = judged(Network(ranks=32, slow_ranks={5: 1.4}).summary(20, np.random.default_rng(7)))
    assert [(s.subject, s.src) for s in test.ranks] == [("rank", 5)]
    assert test.ranks[0].ratio == pytest.approx(1.4, rel=0.05)
    assert named(test) == set()


def test_slow_host_is_named_once():
    net = Network(ranks=48, ranks_per_host=4, slow_ranks=dict.fromkeys(range(8, 12), 1.3))
    _, _, test = judged(net.summary(20, np.random.default_rng(8)))
    assert [(s.subject, s.host) for s in test.ranks] == [("host", "n002")]


def subjects(test: LinkTest) -> list[tuple[str, int, str, tuple[int, ...]]]:
    return [(slow.subject, slow.src, slow.host, slow.sizes) for slow in [*test.ranks, *test.links]]


SIZES = (8, 1024, 65536, 1 << 20)


@pytest.mark.parametrize("ratio", [1.5, 2.0, 10.0])
@pytest.mark.parametrize("at", [(0,), (2,), (2, 3), (1, 2, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize(("hosts", "per_host"), [(5, 1), (8, 1), (8, 2), (24, 1)])
def test_a_host_that_is_slow_at_some_sizes_is_named_with_them_and_nothing_else(hosts, per_host, at, ratio):
    """Eight hosts, one at a tenth of its bandwidth: it was a class of its own, within which nothing was slow."""
    factor = tuple(ratio if k in at else 1.0 for k in range(len(SIZES)))
    net = Network(
        ranks=hosts * per_host,
        ranks_per_host=per_host,
        hosts_per_switch=24,
        sizes=SIZES,
        slow_hosts={3: factor},
    )
    _, classes, test = judged(net.summary(20, np.random.default_rng(31)))
    sizes = tuple(SIZES[k] for k in at)
    assert subjects(test) == [("rank", 3, "n003", sizes) if per_host == 1 else ("host", -1, "n003", sizes)]
    assert len(np.unique(classes)) == per_host  # within hosts, and between them
    (slow,) = test.ranks
    assert slow.ratio == pytest.approx(ratio, rel=0.1)
    assert slow.low < slow.ratio < slow.high
    assert slow.links == slow.of == (hosts - 1) * per_host**2


def test_a_link_that_is_slow_at_one_size_of_many_is_named_with_it():
    sizes = tuple(8 * 4**k for k in range(8))
    factor = tuple(2.0 if k == 5 else 1.0 for k in range(8))
    net = Network(ranks=16, ranks_per_host=1, hosts_per_switch=16, sizes=sizes, slow_links={(3, 9): factor})
    _, _, test = judged(net.summary(20, np.random.default_rng(32)))
    assert [(slow.src, slow.dst, slow.sizes) for slow in test.links] == [(3, 9, (sizes[5],))]


def test_links_of_a_host_to_some_hosts_are_one_finding_about_it():
    """As with one bad uplink of two: half of its links are slow."""
    slow = {(3, k): 1.6 for k in range(8, 14)}
    net = Network(ranks=16, ranks_per_host=1, hosts_per_switch=16, slow_links=slow)
    _, _, test = judged(net.summary(20, np.random.default_rng(33)))
    assert [(one.subject, one.src, one.host, one.links, one.of) for one in test.ranks] == [
        ("rank", 3, "n003", 6, 15)
    ]
    assert named(test) == set()


@pytest.mark.parametrize("hosts", [4, 5, 6])
def test_few_hosts_without_a_fault_are_clean(hosts):
    rng = np.random.default_rng(34)
    net = Network(ranks=hosts, ranks_per_host=1, hosts_per_switch=8)
    runs = [judged(net.summary(20, rng))[2] for _ in range(20)]
    assert sum(bool(subjects(run)) for run in runs) <= 3


@pytest.mark.parametrize("runs", [6, pytest.param(20, marks=pytest.mark.soak)])
def test_detectable_slowdown_is_detected_about_as_often_as_said(runs):
    rng = np.random.default_rng(9)
    first = judged(Network(ranks=32).summary(20, rng))[2]
    assert 0.02 < first.detectable < 0.25
    hits = [
        (3, 20)
        in named(judged(Network(ranks=32, slow_links={(3, 20): 1 + first.detectable}).summary(20, rng))[2])
        for _ in range(runs)
    ]
    assert sum(hits) >= 0.7 * runs - 1


def test_no_low_quantiles_is_noted():
    summary = Network(ranks=16).summary(20, np.random.default_rng(10)).drop_vars("q05")
    assert "low quantiles" in judged(summary)[2].note


def test_medians_alone_are_enough():
    summary = Network(ranks=24, slow_links={(1, 20): 1.5}).summary(20, np.random.default_rng(11))
    _, _, test = judged(summary[["median"]].assign_attrs(value="rtt_half"))
    assert named(test) == {(1, 20)}


@pytest.mark.parametrize("ranks", [2, 3])
def test_too_few_links_to_tell(ranks):
    _, _, test = judged(Network(ranks=ranks).summary(20, np.random.default_rng(12)))
    if ranks * (ranks - 1) // 2 < 4:
        assert test.links == []
        assert np.isnan(test.q).all()
        assert "too few" in test.note


def test_four_ranks_do_not_name_noise():
    rng = np.random.default_rng(13)
    runs = [judged(Network(ranks=4).summary(20, rng))[2] for _ in range(30)]
    assert sum(bool(run.links) for run in runs) <= 2


def test_missing_cells_are_no_findings():
    summary = Network(ranks=24).summary(20, np.random.default_rng(14))
    summary["median"][3:5] = np.nan
    summary["median"][7, 8, 0] = np.nan
    _, _, test = judged(summary)
    assert test.links == []
    assert np.isfinite(test.p).any()


def test_identical_delays_have_no_slow_link():
    summary = Network(ranks=12).summary(20, np.random.default_rng(15))
    for name in ("median", "median_low", "median_high", "q05"):
        summary[name][:] = 1e-6
    _, _, test = judged(summary)
    assert test.links == []
    assert test.ranks == []


def test_retest_with_fresh_data_decides():
    rng = np.random.default_rng(16)
    net = Network(ranks=48, sizes=(8,), slow_links={(3, 20): 1.12})
    links_true = net.links(rng)
    pairs, classes, first = judged(_run(net, links_true, rng))
    suspects = pairs_to_retest(first, pairs, q_below=0.9)
    assert (3, 20) in suspects
    assert all(s < d for s, d in suspects)
    again = pairs_of(_run(net, links_true, rng, epochs=60))
    second = after_retest(first, pairs, classes, again, suspects)
    assert named(second) == {(3, 20)}


def test_retest_allows_for_a_machine_that_moved_as_a_whole():
    rng = np.random.default_rng(17)
    net = Network(ranks=32, slow_links={(3, 20): 1.25})
    links_true = net.links(rng)
    pairs, classes, first = judged(_run(net, links_true, rng))
    again = pairs_of(_run(net, 1.3 * links_true, rng))
    suspects = [(3, 20), (1, 9), (4, 30)]
    assert named(after_retest(first, pairs, classes, again, suspects)) == {(3, 20)}


def test_retest_names_nothing_that_was_not_measured_again():
    rng = np.random.default_rng(18)
    net = Network(ranks=32, slow_links={(3, 20): 1.4})
    links_true = net.links(rng)
    pairs, classes, first = judged(_run(net, links_true, rng))
    again = pairs_of(_run(net, links_true, rng)).take(np.arange(20, 60))
    test = after_retest(first, pairs, classes, again, [(3, 20)])
    assert test.links == []
    assert "0 of 1" in test.note


def test_nothing_suspect_means_nothing_to_retest():
    _, _, test = judged(Network(ranks=2).summary(20, np.random.default_rng(19)))
    assert pairs_to_retest(test, pairs_of(Network(ranks=2).summary(20, np.random.default_rng(19)))) == []


def test_sets_of_sizes():
    def spans(count: int) -> list[tuple[int, int]]:
        return [(part.start, part.stop) for part in links.column_sizes(count)]

    assert spans(1) == [(0, 1)]
    assert spans(3) == [(0, 3), (0, 1), (1, 3), (1, 2), (2, 3)]
    assert spans(4) == [(0, 4), (0, 2), (2, 4), (0, 1), (1, 2), (2, 3), (3, 4)]
    assert {(size, size + 1) for size in range(11)} < set(spans(11))
    assert [(part.start, part.stop) for part in links.column_sizes(4, singles=False)] == [
        (0, 4),
        (0, 2),
        (2, 4),
    ]


def test_combined_p_keeps_its_digits_and_ignores_nan():
    p = links._cauchy(np.array([[1e-20, 0.5, np.nan], [0.3, 0.3, 0.3], [np.nan] * 3, [1.0, 1.0, 1.0]]))
    assert p[0] == pytest.approx(2e-20, rel=1e-6)
    assert p[1] == pytest.approx(0.3)
    assert np.isnan(p[2])
    assert p[3] > 0.99


def test_combined_p_of_equal_tests_is_uniform():
    rng = np.random.default_rng(20)
    common = rng.standard_normal((4000, 1))
    p = links._cauchy(sps.norm.sf(0.7 * common + np.sqrt(0.51) * rng.standard_normal((4000, 5))))
    assert np.mean(p <= 0.01) < 0.015


def _run(net: Network, centre: np.ndarray, rng: np.random.Generator, epochs: int = 20) -> xr.Dataset:
    """A run of a network whose links are given, so that two runs see the same links."""
    from sonde.net.synthetic import summary_of_medians

    shape = (*centre.shape, epochs)
    noise = np.exp(rng.normal(0, net.epoch_spread, shape))
    hosts = np.array([f"n{h:03d}" for h in net.hosts()])
    return summary_of_medians(net.sizes, centre[..., None] * noise, host=hosts)

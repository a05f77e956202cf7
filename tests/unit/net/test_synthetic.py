"""Made-up networks are what they say they are."""

import numpy as np
import pytest

from sonde.net.synthetic import Network


def test_links_are_symmetric_and_slow_where_told():
    plain = Network(ranks=12, link_spread=0.0, rank_spread=0.0)
    slow = Network(ranks=12, link_spread=0.0, rank_spread=0.0, slow_links={(1, 7): 1.2}, slow_ranks={4: 1.5})
    a, b = (net.links(np.random.default_rng(0)) for net in (plain, slow))
    np.testing.assert_allclose(b, b.swapaxes(0, 1))
    ratio = b / a
    assert ratio[1, 7, 0] == pytest.approx(1.2)
    assert ratio[7, 1, 0] == pytest.approx(1.2)
    assert ratio[4, 9, 0] == pytest.approx(1.5)
    assert ratio[2, 3, 0] == pytest.approx(1.0)
    assert np.isnan(a[range(12), range(12)]).all()


def test_slow_spells_take_their_share_of_time():
    net = Network(ranks=12, sizes=(8,), link_spread=0, rank_spread=0, epoch_spread=0, regime_ratio=2.0)
    medians = net.epoch_medians(200, np.random.default_rng(1))
    slow = (medians / np.fmin.reduce(medians, axis=3, keepdims=True) > 1.5)[~np.isnan(medians)]
    assert slow.mean() == pytest.approx(0.2, abs=0.02)


def test_eager_limit_adds_a_handshake():
    latency = Network(ranks=4, sizes=(100, 200), eager_limit=150, bandwidth=(1e30,) * 3).latency()
    np.testing.assert_allclose(latency[..., 1] - latency[..., 0], 1e-6)


def test_raw_has_the_series_it_promises():
    raw = Network(ranks=3, sizes=(8, 16)).raw(6, 5, seed=2)
    assert dict(raw.sizes) == {"src": 3, "dst": 3, "size": 2, "sample": 30, "rank": 3}
    assert (raw["n"].values[0, 1] == 30).all()
    assert (raw["n"].values[1, 1] == 0).all()
    t = raw["t_start"].values[0, 1, 0]
    assert (np.diff(t) > 0).all()
    assert list(np.unique(raw["epoch"].values[0, 1, 0])) == list(range(6))


def test_the_same_seed_gives_the_same_network():
    net = Network(ranks=4)
    assert net.raw(3, 4, seed=5).identical(net.raw(3, 4, seed=5))
    assert not net.raw(3, 4, seed=5).identical(net.raw(3, 4, seed=6))

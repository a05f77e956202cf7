"""Every mode of sonde-net on the real MPI: who measures, how many samples, and values that can be."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from sonde.net.modes import modes

SIZES = (0, 8, 4096)


@pytest.mark.parametrize("name", list(modes()))
def test_mode_measures_every_ordered_pair(sonde_net, name):
    ranks = 4 if modes()[name].pattern == "one_pair" else 3
    heard = sonde_net(ranks, modes=name, sizes=",".join(map(str, SIZES)))

    assert heard.event("end")["stop_reason"] == "converged"
    assert heard.event("end")["dropped"] == 0
    series = heard.series()
    expected = {(name, size, a, b) for size in SIZES for a in range(ranks) for b in range(ranks) if a != b}
    assert set(series) == expected
    for key, samples in series.items():
        assert len(samples) >= 100, key
        assert np.isfinite(samples).all(), key
        assert (samples > 0).all(), key
        assert np.median(samples) < 1.0, key
    assert heard.event("end")["samples"] == sum(map(len, series.values()))


@pytest.mark.parametrize("name", list(modes()))
def test_the_rank_that_measures_writes(sonde_net, name):
    heard = sonde_net(2, modes=name, sizes="8")
    measured_by = modes()[name].sample(None)[1]
    for file in heard.files():
        records = np.concatenate(list(file))
        bursts = records[records["kind"] == 0]
        assert len(bursts) > 0
        assert (bursts[measured_by] == file.header["rank"]).all()


def test_every_cell_gets_a_verdict(sonde_net):
    heard = sonde_net(2, modes="one_to_one", sizes="8,64", rule="fixed:60")
    for rank in (0, 1):
        verdicts = heard.records(rank, 1)
        assert sorted(verdicts["size"]) == [0, 1]
        assert (verdicts["code"] == 1).all()
        assert (verdicts["n"] == 0).all()


def test_modes_asked_for_together_are_interleaved(sonde_net):
    heard = sonde_net(2, modes="one_to_one,async_one_to_one,put", sizes="8,64", rule="fixed:400")
    records = heard.records(0, 0)
    order = list(zip(records["mode"].tolist(), records["size"].tolist()))
    assert len(set(order)) == 6
    # Were each measured in one go, the mode would change five times; interleaved it changes all the time.
    changes = sum(a != b for a, b in pairwise(order))
    assert changes > len(order) / 2


def test_longer_messages_take_longer(sonde_net):
    heard = sonde_net(2, modes="one_to_one", sizes="8,1048576", rule="fixed:200")
    series = heard.series()
    assert np.median(series["one_to_one", 1048576, 0, 1]) > 3 * np.median(series["one_to_one", 8, 0, 1])


def test_a_slow_link_put_in_is_seen_in_its_direction_alone(sonde_net):
    heard = sonde_net(2, modes="one_to_one", sizes="8", inject_slow="0:1:0.005")
    series = heard.series()
    assert series["one_to_one", 8, 0, 1].min() > 0.005
    assert np.median(series["one_to_one", 8, 1, 0]) < 0.005


def test_recv_duration_is_taken_by_the_receiver(sonde_net):
    heard = sonde_net(2, modes="one_to_one", sizes="1024", value="recv_duration")
    assert heard.files()[0].header["values"] == ["recv_duration"]
    assert {(int(r["src"]), int(r["dst"])) for r in heard.records(0, 0)} == {(1, 0)}


def test_only_the_pairs_asked_for_are_measured(sonde_net):
    heard = sonde_net(4, modes="one_to_one", sizes="8", pairs="0-2,1-3", rule="fixed:40")
    assert {key[2:] for key in heard.series()} == {(0, 2), (2, 0), (1, 3), (3, 1)}


def test_noise_ranks_stop_with_the_measured_pair(sonde_net, ranks_left):
    heard = sonde_net(
        4, modes="noise,noise_blocking", sizes="8", noise_bytes="1024", noise_ranks="2", rule="fixed:40"
    )
    assert heard.reason == "done"
    assert ranks_left() == []

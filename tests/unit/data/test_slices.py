"""Slices of a summary: each label of an axis, and each host by cells that lead to others."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from sonde.data.slices import host_slices, label_slices
from sonde.net.synthetic import Network

HOSTS = np.array(["a", "a", "b", "b", "c", "c", "d", "d"])


def network(**slow) -> xr.DataArray:
    net = Network(
        ranks=8, ranks_per_host=2, sizes=(8, 65536), link_spread=0, rank_spread=0, epoch_spread=0, **slow
    )
    return net.summary(10, np.random.default_rng(1))["median"]


def test_each_size_has_its_median():
    variable = xr.DataArray(
        [[1.0, 5.0], [3.0, 7.0], [np.nan, 6.0]],
        dims=("rank", "size"),
        coords={"size": [8, 65536]},
        attrs={"units": "s"},
    )
    found = list(label_slices("median", variable))
    assert [(one.quantity, one.at, one.value, one.units) for one in found] == [
        ("median", "8 B", 2.0, "s"),
        ("median", "64 KiB", 6.0, "s"),
    ]


def test_axes_without_names_and_with_one_label_have_no_slices():
    plain = xr.DataArray(np.ones((3, 1)), dims=("series", "size"), coords={"size": [8]})
    assert list(label_slices("median", plain)) == []
    long = xr.DataArray(np.ones(257), dims="variant", coords={"variant": [str(k) for k in range(257)]})
    assert list(label_slices("median", long)) == []


def test_a_slow_host_is_slow_at_its_size_and_the_others_are_not():
    clean = {one.at: one.values for one in host_slices("median", network(), HOSTS, "lower")}
    slow = {
        one.at: one.values
        for one in host_slices("median", network(slow_hosts={2: (1.0, 10.0)}), HOSTS, "lower")
    }
    assert list(slow) == ["8 B", "64 KiB"]
    for host in "abd":
        assert slow["64 KiB"][host] == pytest.approx(clean["64 KiB"][host])
    assert slow["64 KiB"]["c"] == pytest.approx(10 * clean["64 KiB"]["c"])
    assert slow["8 B"] == pytest.approx(clean["8 B"])


def test_what_ranks_of_one_host_exchange_is_not_the_hosts():
    values = np.where(HOSTS[:, None] == HOSTS, 99.0, 1.0)
    (found,) = host_slices("median", xr.DataArray(values, dims=("src", "dst")), HOSTS, "lower")
    assert (found.at, found.values) == ("", {host: 1.0 for host in "abcd"})


def test_a_rate_has_its_upper_quartile():
    values = np.array([1.0, 2, 3, 4, 5, 6, 7, 8])
    (found,) = host_slices("rate", xr.DataArray(values, dims="rank"), HOSTS, "higher")
    assert found.values == {"a": 2, "b": 4, "c": 6, "d": 8}


@pytest.mark.parametrize(
    "hosts", [np.array(["a", "a", "b", "b"]), np.array(["a", "b", "c"]), np.array([], str)]
)
def test_two_hosts_and_ranks_without_hosts_have_no_slices(hosts):
    assert (
        list(host_slices("median", xr.DataArray(np.ones((4, 4)), dims=("src", "dst")), hosts, "lower")) == []
    )

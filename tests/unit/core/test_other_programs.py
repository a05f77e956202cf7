"""What probes report of other programs on the hosts of a run."""

from __future__ import annotations

import numpy as np
import pytest

from sonde.core.other_programs import by_host


def test_each_host_has_its_share():
    assert by_host({"others_hosts": ["n1", "n2"], "others_share": [0.0, 0.75]}) == {"n1": 0.0, "n2": 0.75}


def test_attributes_of_one_host_are_read_as_single_values():
    assert by_host({"others_hosts": "n1", "others_share": 0.5}) == {"n1": 0.5}
    assert by_host({"others_hosts": np.str_("n1"), "others_share": np.float64(0.5)}) == {"n1": 0.5}
    assert by_host({"others_hosts": ["n1"], "others_share": np.array([0.5])}) == {"n1": 0.5}


def test_two_kernels_under_one_name_count_with_the_busier_one():
    assert by_host({"others_hosts": ["n1", "n1"], "others_share": [0.2, 0.1]}) == {"n1": 0.2}


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"others_hosts": ["n1"]},
        {"others_share": [0.5]},
        {"others_hosts": ["n1"], "others_share": ["much"]},
        {"others_hosts": ["n1"], "others_share": [float("nan")]},
        {"others_hosts": ["n1"], "others_share": [-0.1]},
        {"others_hosts": [""], "others_share": [0.5]},
        {"others_hosts": [7], "others_share": [0.5]},
        {"others_hosts": 7, "others_share": {"n1": 0.5}},
    ],
)
def test_what_is_no_share_of_a_host_is_left_out(facts):
    assert by_host(facts) == {}

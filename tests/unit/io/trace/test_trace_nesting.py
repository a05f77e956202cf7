"""Which call is within which."""

from __future__ import annotations

import numpy as np
import pytest
from calls_within import tree_of

from sonde.io.trace.nesting import nested


@pytest.mark.parametrize("seed", range(40))
def test_calls_are_put_into_each_other_by_their_times(seed):
    calls = tree_of(seed)
    duration = calls[:, 1] - calls[:, 0]
    found = nested(calls[:, 0], duration, calls[:, 2])
    assert sorted(found.order) == list(range(len(calls)))
    assert (np.diff(calls[found.order, 0]) > 0).all()
    above = np.where(found.parent >= 0, found.order[found.parent], -1)
    assert above.tolist() == calls[found.order, 3].tolist()
    assert found.level.tolist() == calls[found.order, 2].tolist()
    own = duration.copy()
    for k, parent in enumerate(calls[:, 3]):
        if parent >= 0:
            own[parent] -= duration[k]
    assert found.self_ns.tolist() == own[found.order].tolist()


def test_calls_that_overlap_stand_beside_each_other():
    found = nested(np.array([0, 5, 6]), np.array([10, 10, 2]), np.zeros(3, int))
    assert found.parent.tolist() == [-1, -1, 1]
    assert found.self_ns.tolist() == [10, 8, 2]

"""One-way delays on clocks that differ. On one host all clocks are one, so the error is put in."""

from __future__ import annotations

import numpy as np

OFFSET_S, DRIFT = 3.0, 50e-6


def test_offset_of_3_s_and_drift_of_50_ppm_are_taken_out(sonde_net):
    heard = sonde_net(
        2,
        modes="one_to_one",
        sizes="1024",
        value="one_way",
        inject_clock=f"1:{OFFSET_S}:{DRIFT}",
        rule="fixed:4000",
        gap_s="0.02",
    )
    series = heard.series()
    there, back = series["one_to_one", 1024, 0, 1], series["one_to_one", 1024, 1, 0]
    clocks = heard.records(1, 2)["value"]
    offset, drift, error = clocks[-1][:3]

    # The rank's clock runs ahead, so what leads back to rank 0's is negative.
    uptime_drift = abs(offset) - OFFSET_S  # drift times uptime comes on top of the offset
    assert uptime_drift >= 0
    assert np.isclose(drift, -DRIFT, rtol=0.2)
    assert 0 < error < 1e-3
    # Unsynchronised, one direction would be 3 s too long and the other 3 s too short.
    assert abs(np.median(there)) < 1e-3
    assert abs(np.median(back)) < 1e-3
    # The two directions of one pair differ by twice the error of the clocks at most, and by the machine's
    # own noise.
    assert abs(np.median(there) - np.median(back)) < 2 * error + 50e-6


def test_one_way_is_near_half_a_round_trip_where_clocks_are_one(sonde_net):
    one_way = sonde_net(
        2, modes="one_to_one,async_one_to_one", sizes="1024", value="one_way", rule="fixed:2000"
    ).series()
    for series in one_way.values():
        assert np.median(series) > 0

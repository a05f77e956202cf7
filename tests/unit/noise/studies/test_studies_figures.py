"""The section of a study: its own figures."""

from __future__ import annotations

import numpy as np

import noise_runs
from sonde.noise.kinds import section as section_of
from sonde.noise.studies.figures import STEADINESS


def test_groups_of_clean_runs_have_their_intervals():
    raw = noise_runs.run([], pairs=12, agent="none", study="stability", rounds=[6, 6])
    segment = np.arange(raw.sizes["block"]) // (raw.sizes["block"] // 2)
    tree = noise_runs.tree(raw.assign(segment=("block", segment.astype("i4"), raw["segment"].attrs)))
    section = section_of(tree)
    data = next(figure.data for figure in section.figures if figure.id == "noise-groups")
    assert data["x"].values.tolist() == [1, 2]
    assert (data["low"].values < data["y"].values).all()
    assert (data["y"].values < data["high"].values).all()
    assert section.method == [STEADINESS]

"""A room of its own, `lab`, and datasets of it."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # fakeroom

import fakeroom

from sonde.core import dataset_file, seal


@pytest.fixture(autouse=True)
def lab() -> Iterator[None]:
    """`lab` is one of the rooms."""
    remove = fakeroom.install()
    yield
    remove()


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    """A whole dataset of a run: 3 ranks, 2 cells, 20 samples."""
    run = fakeroom.make_run(tmp_path / "a.run")
    return seal.seal(run, tmp_path / "a.nc", fakeroom.SCHEMA)[0].path


@pytest.fixture
def measured(tmp_path: Path) -> Callable[..., Path]:
    """Makes a dataset with medians(rank, cell), s, and intervals of relative half-width `width`."""

    def make(name: str, medians: Any, width: float = 0.01, **attrs: Any) -> Path:
        medians = np.atleast_2d(np.asarray(medians, float))
        cells = list(range(medians.shape[1]))
        summary = fakeroom.summary(np.ones((*medians.shape, 2)), cells).drop_vars("spread")
        for end, factor in (("", 1.0), ("_low", 1 - width), ("_high", 1 + width)):
            summary["median" + end].values[...] = medians * factor
        return dataset_file.write_dataset(
            tmp_path / name,
            None,
            summary,
            fakeroom.ATTRS | {"schema": "lab/1", "stop_reason": "converged"} | attrs,
        )

    return make

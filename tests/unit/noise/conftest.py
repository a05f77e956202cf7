from __future__ import annotations

from collections.abc import Iterator

import pytest

from sonde.noise.detector import detectable
from sonde.noise.studies import analyse as studies


@pytest.fixture(autouse=True, scope="module")
def few_simulated_runs() -> Iterator[None]:
    """The smallest detectable cost is simulated with 10 runs instead of 40, which is most of the time that an
    analysis takes. The simulation itself is tested in test_detector_judge.py, with as many runs as each test asks for.
    """
    with pytest.MonkeyPatch.context() as patch:
        for module in (detectable, studies):
            patch.setattr(module, "MDE_RUNS", 10)
        yield

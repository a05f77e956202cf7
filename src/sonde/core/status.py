"""How the measurement of a cell ended: variable `status` of net/1 and store/1; and why a run ended early."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sonde.core.allowed import codes

# 1 to 3 are the stopping rule's decisions (native/core/rule.hpp).
NOT_MEASURED, CONVERGED, CAP, DRIFT, UNDECIDED = range(5)
ENDED_EARLY = {
    "interrupted": "the run was interrupted",
    "killed": "the run was killed",
    "failed": "the run failed",
    "timeout": "the run was ended because it gave no sign",
}
"""By root attribute `stop_reason`: the reason why cells have no data."""
STATUS = codes(NOT_MEASURED, CONVERGED, CAP, DRIFT, UNDECIDED)
STATUS_NAMES = ("not_measured", "converged", "cap", "drift", "undecided")


def status_flags() -> dict[str, Any]:
    """The variable's attributes by the CF conventions, section 3.5."""
    return {
        "flag_values": np.arange(len(STATUS_NAMES), dtype=np.int8),
        "flag_meanings": " ".join(STATUS_NAMES),
    }


def status_counts(status: np.ndarray) -> dict[str, int]:
    """Numbers of cells, in the form for --json. status: codes, of any shape; a cell has data unless it was not
    measured.
    """
    return {
        "cells": int((status != NOT_MEASURED).sum()),
        "converged": int((status == CONVERGED).sum()),
        "capped": int((status == CAP).sum()),
        "drift": int((status == DRIFT).sum()),
        "undecided": int((status == UNDECIDED).sum()),
    }


def mostly_converged(counts: Mapping[str, int]) -> bool:
    """Whether at least half of the cells with data reached the precision of their rule; True if no rule decided.
    counts: from status_counts, or of cells only.
    """
    return 2 * counts.get("converged", counts["cells"]) >= counts["cells"]

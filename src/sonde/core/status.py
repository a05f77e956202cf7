"""How measuring a cell ended: variable `status` of net/1 and store/1; and what ends a run before its cells."""

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
    "timeout": "the run was ended because it said nothing",
}
"""By root attribute `stop_reason`: why cells have no data, whatever else they may lack."""
STATUS = codes(NOT_MEASURED, CONVERGED, CAP, DRIFT, UNDECIDED)
STATUS_NAMES = ("not_measured", "converged", "cap", "drift", "undecided")


def status_flags() -> dict[str, Any]:
    """The variable's attributes after the CF conventions, section 3.5."""
    return {
        "flag_values": np.arange(len(STATUS_NAMES), dtype=np.int8),
        "flag_meanings": " ".join(STATUS_NAMES),
    }


def status_counts(status: np.ndarray) -> dict[str, int]:
    """Numbers of cells, as --json has them. status: codes, of any shape; a cell has data unless it was not measured."""
    return {
        "cells": int((status != NOT_MEASURED).sum()),
        "converged": int((status == CONVERGED).sum()),
        "capped": int((status == CAP).sum()),
        "drift": int((status == DRIFT).sum()),
        "undecided": int((status == UNDECIDED).sum()),
    }


def mostly_converged(counts: Mapping[str, int]) -> bool:
    """Whether at least half of the cells with data are known as well as their rule asked; where no rule decided, too.
    counts: of status_counts, or of cells alone.
    """
    return 2 * counts.get("converged", counts["cells"]) >= counts["cells"]

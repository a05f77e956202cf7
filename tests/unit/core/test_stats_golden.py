"""The Python face on the values that tests/native/test_stats_golden.cpp checks in C++."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sonde import _core
from sonde.core import stats

GOLDEN = Path(__file__).parents[2] / "data" / "stats" / "golden.txt"


def law(arguments: list[float]) -> stats.Lognormal3:
    return stats.Lognormal3(*arguments, ks=0.0, loglik=0.0, n=1, converged=True)


def summary(field: str) -> Callable[..., Any]:
    return lambda x: getattr(stats.summarise(x), field)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "normal_cdf": _core.normal_cdf,
    "normal_quantile": _core.normal_quantile,
    "incomplete_beta": _core.incomplete_beta,
    "student_cdf": _core.student_cdf,
    "student_quantile": _core.student_quantile,
    "binomial_pmf": lambda k, n, p: _core.binomial_pmf(int(k), int(n), p),
    "binomial_cdf": lambda k, n, p: _core.binomial_cdf(int(k), int(n), p),
    **{f"summarise.{field}": summary(field) for field in stats.Summary._fields},
    "quantile": stats.quantile,
    "mean_ci": stats.mean_ci,
    "quantile_ranks": stats.quantile_ranks,
    "epoch_median_ci.medians": lambda x, level: stats.epoch_median_ci(x, level=level),
    "epoch_medians": stats.epoch_medians,
    "epoch_means": stats.epoch_means,
    "effective_samples.epoch": stats.effective_samples,
    "epoch_quantile_ci": stats.epoch_quantile_ci,
    "autocorrelation": stats.autocorrelation,
    "effective_samples": stats.effective_samples,
    "periodogram": stats.periodogram,
    "welch": stats.welch,
    "welch.epoch": lambda x, epoch, window, overlap: stats.welch(x, window, overlap, epoch),
    "sliding_amplitude": lambda x, window, row: stats.sliding_amplitude(x, window)[int(row)],
    "lognormal3_cdf": lambda x, *a: stats.lognormal3_cdf([x], law(a)),
    "lognormal3_quantile": lambda p, *a: stats.lognormal3_quantile([p], law(a)),
    "ks_distance": lambda x, *a: stats.ks_distance(x, law(a)),
    "fit_lognormal3": lambda x: stats.fit_lognormal3(x)[:3],
    "pettitt": lambda x: tuple(stats.pettitt(x)),
}


def read() -> list[tuple[str, list[np.ndarray], list[float], np.ndarray, float, str]]:
    arrays: dict[str, np.ndarray] = {}
    cases = []
    for line in GOLDEN.read_text().splitlines():
        kind, name, *words = line.split()
        if kind in ("series", "epochs"):
            arrays[name] = np.array(words, dtype=float if kind == "series" else np.int32)
            continue
        colon, equals, tilde = words.index(":"), words.index("="), words.index("~")
        inputs = [arrays[w] for w in words[:colon]]
        arguments = [float(w) for w in words[colon + 1 : equals]]
        values = np.array([float(w) for w in words[equals + 1 : tilde]])
        cases.append((name, inputs, arguments, values, float(words[tilde + 1]), line[:100]))
    return cases


CASES = read()


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_agrees_with_golden_values(name: str) -> None:
    lines = [case for case in CASES if case[0] == name]
    assert lines
    for _, inputs, arguments, expected, tolerance, line in lines:
        got = np.atleast_1d(FUNCTIONS[name](*inputs, *arguments))
        scale = np.nanmax(np.abs(expected))
        np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * scale, err_msg=line)


def test_every_golden_function_is_known() -> None:
    assert {case[0] for case in CASES} == set(FUNCTIONS)

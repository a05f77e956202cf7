"""False alarms at alpha = 1 %: clean runs resampled from recorded traces, labels drawn, looks and all."""

from __future__ import annotations

from scipy.stats import binomtest

from bench.noise import designs, traces
from sonde.noise.detector import judge

RUNS = 400  # of each way of folding, shared out over the traces


def rows() -> list[dict]:
    out = []
    known = traces.load()
    for told, text in ((True, "period known"), (False, "period unknown")):
        folds, weight = designs.folding(told, 1.0)
        alarms = runs = 0
        for number, trace in enumerate(known.values()):
            here = RUNS // len(known)
            found = judge.power(
                trace.blocks,
                designs.design(60.0),
                1.0,
                0.0,
                1e-6,
                folds,
                fold_weight=weight,
                permutations=designs.PERMUTATIONS,
                seed=1000 + number,
                runs=here,
            )
            alarms += round(found.share * here)
            runs += here
        out.append(
            alarm_row(
                f"false alarms, {text}: clean runs resampled from {len(known)} recorded traces", alarms, runs
            )
        )
    return out


def alarm_row(what: str, alarms: int, runs: int) -> dict:
    """A row for so many alarms in so many clean runs."""
    test = binomtest(alarms, runs, designs.ALPHA)
    interval = test.proportion_ci(0.95, "exact")
    return {
        "what": what,
        "bar": "alpha = 1 %; the exact binomial test does not reject it",
        "value": alarms / runs,
        "ci": [float(interval.low), float(interval.high)],
        "met": bool(test.pvalue >= 0.05),
        "note": f"{alarms} of {runs} runs; binomial p = {test.pvalue:.2g}",
    }

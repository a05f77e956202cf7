"""How well stopped series are known: coverage on known truth, and samples and errors on recorded series."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.stats import binomtest

from bench.net.generators import EPOCH, GENERATORS
from sonde.core.rules import replay
from sonde.core.stats import median

SERIES = Path("tests/data/series")
REPLICATIONS = 1000
RULES = ("ci:2%", "fixed:1500")
MOST_EPOCHS = 1200
# On recorded series: cells a series is cut into, and the epochs of 50 that each offers.
CELLS, CELL_EPOCHS = 40, 100
ADAPTIVE = tuple(
    [f"ci:{p}%" for p in (1, 2, 3, 5, 6, 7, 8, 9, 10)]
    + [f"spectral:level={p}" for p in (0.02, 0.05, 0.1, 0.2)]
    + [f"lognormal:precision={p}" for p in (0.02, 0.05, 0.1, 0.2)]
    + [f"entropy:change={p}" for p in (0.05, 0.1, 0.2, 0.4)]
)


def rows() -> list[dict]:
    """Coverage for each generator and rule, samples of the best adaptive rule, epochs against one burst."""
    return [*coverage(), samples(), *epochs_or_burst()]


def coverage(replications: int = REPLICATIONS) -> list[dict]:
    """Share of stated 95 % intervals that hold the true median, of runs in which the rule converged."""
    out = []
    for name, generate in GENERATORS.items():
        for spec in RULES:
            rng = np.random.default_rng(20261120)
            held = converged = 0
            told: dict[str, int] = {}
            taken = []
            for k in range(replications):
                values, truth = generate(rng, MOST_EPOCHS)
                epoch = np.repeat(np.arange(MOST_EPOCHS, dtype=np.int32), EPOCH)
                said = replay(values, epoch, spec, cap=MOST_EPOCHS * EPOCH, seed=k)
                told[said.decision] = told.get(said.decision, 0) + 1
                if said.decision != "converged":
                    continue
                converged += 1
                taken.append(said.n)
                held += said.low <= truth <= said.high
            test = binomtest(held, converged, 0.95) if converged else None
            interval = test.proportion_ci(0.95) if test else None
            decisions = ", ".join(f"{count} {decision}" for decision, count in sorted(told.items()))
            out.append(
                {
                    "what": f"coverage of the stated 95 % CI, {name}, {spec}",
                    "bar": "exact binomial test does not reject 95 %",
                    "value": held / converged if converged else None,
                    "ci": [interval.low, interval.high] if interval else None,
                    "met": bool(test.pvalue >= 0.05) if test else None,
                    "note": f"{held} of {converged} converged runs; p {test.pvalue:.3f}; {decisions}; "
                    f"{np.median(taken):.0f} samples"
                    if test
                    else f"never converged: {decisions}",
                }
            )
    return out


def recorded() -> dict[str, np.ndarray]:
    """The recorded series by name, s."""
    return {path.stem: np.load(path)["value"].astype(float) for path in sorted(SERIES.glob("*.npz"))}


def samples() -> dict:
    """Samples that adaptive rules take against fixed 1000, the same epochs offered to both."""
    rng = np.random.default_rng(7)
    cells = []
    for values in recorded().values():
        truth, stride = median(values), (len(values) - EPOCH) // CELL_EPOCHS
        for _ in range(CELLS):
            begins = rng.integers(0, stride) + stride * rng.permutation(CELL_EPOCHS)
            series = np.concatenate([values[b : b + EPOCH] for b in begins])
            cells.append((series, truth))
    epoch = np.repeat(np.arange(CELL_EPOCHS, dtype=np.int32), EPOCH)

    def run(spec: str) -> tuple[np.ndarray, np.ndarray]:
        said = [(replay(series, epoch, spec, cap=len(series)), truth) for series, truth in cells]
        return np.array([r.n for r, _ in said]), np.array([abs(r.estimate / truth - 1) for r, truth in said])

    _, fixed_error = run("fixed:1000")
    best = None
    for spec in ADAPTIVE:
        n, error = run(spec)
        fewer, middle = float((n < 1000).mean()), float(np.median(error))
        # "At equal error": the rule's middle error over cells is no larger than that of 1000 samples.
        if middle <= np.median(fixed_error) and (best is None or fewer > best[1]):
            best = (spec, fewer, middle, float(np.median(n)), float(n.mean()))
    what = "samples used by the best adaptive rule against fixed 1000 at equal error"
    bar = "fewer in >= 60 % of cells"
    if best is None:
        note = f"no adaptive rule errs as little as 1000 samples do ({np.median(fixed_error):.2%})"
        return {"what": what, "bar": bar, "value": None, "ci": None, "met": False, "note": note}
    interval = binomtest(round(best[1] * len(cells)), len(cells)).proportion_ci(0.95)
    note = (
        f"{best[0]}: middle error {best[2]:.2%} against {np.median(fixed_error):.2%}, {best[3]:.0f} samples in the "
        f"middle, "
        f"{best[4]:.0f} on average; {len(cells)} cells from {len(recorded())} recorded series; best of {len(ADAPTIVE)} "
        "settings, chosen on the same cells"
    )
    return {
        "what": what,
        "bar": bar,
        "value": best[1],
        "ci": [interval.low, interval.high],
        "met": best[1] >= 0.6,
        "note": note,
    }


def epochs_or_burst(placements: int = 400) -> list[dict]:
    """Median error of 1000 samples in one burst over that of 20 epochs of 50 spread over the series."""
    rng = np.random.default_rng(11)
    out, pooled = [], []
    for name, values in recorded().items():
        truth, stride = median(values), len(values) // 20
        burst, spread = [], []
        for _ in range(placements):
            begin = rng.integers(0, len(values) - 1000)
            burst.append(abs(np.median(values[begin : begin + 1000]) / truth - 1))
            offset = rng.integers(0, stride - 50)
            parts = [values[k * stride + offset :][:50] for k in range(20)]
            spread.append(abs(np.median(np.concatenate(parts)) / truth - 1))
        b, s = np.array(burst), np.array(spread)
        ratio = float(np.median(b) / np.median(s))
        again = [
            np.median(rng.choice(b, placements)) / np.median(rng.choice(s, placements)) for _ in range(500)
        ]
        pooled.append(ratio)
        out.append(
            _epochs_row(
                name, ratio, np.quantile(again, [0.025, 0.975]), np.median(b), np.median(s), len(values)
            )
        )
    middle = float(np.median(pooled))
    out.append(
        {
            "what": "median error at equal samples, one burst over epochs, middle of the series",
            "bar": ">= 3 times smaller",
            "value": middle,
            "ci": [min(pooled), max(pooled)],
            "met": middle >= 3,
            "note": f"range over {len(pooled)} series; see each",
        }
    )
    return out


def _epochs_row(name: str, ratio: float, ci: np.ndarray, burst: float, spread: float, n: int) -> dict:
    return {
        "what": f"median error at equal samples, one burst over epochs, {name}",
        "bar": ">= 3 times smaller",
        "value": ratio,
        "ci": [float(ci[0]), float(ci[1])],
        "met": ratio >= 3,
        "note": f"burst {burst:.2%}, epochs {spread:.2%}; {n} samples recorded without pause",
    }

"""Writes golden.txt beside this file, from numpy, scipy and definitions written out. Not run by the tests.

A line of golden.txt is one of
    series NAME v v …                      samples
    epochs NAME e e …                      epoch numbers
    expect FUNCTION NAME… : a a … = v v … ~ TOL    FUNCTION of those series and arguments gives v …, each
                                           within TOL of the largest |v| of the line
and is read by tests/native/core/test_stats_golden.cpp and tests/unit/core/test_stats.py.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy import optimize, signal, special, stats

# Annual flow at Aswan 1871-1970, 1e8 m^3; the level fell in 1899: Cobb, Biometrika 65, 1978.
NILE = (
    "1120 1160 963 1210 1160 1160 813 1230 1370 1140 995 935 1110 994 1020 960 1180 799 958 1140 1100 "
    "1210 1150 1250 1260 1220 1030 1100 774 840 874 694 940 833 701 916 692 1020 1050 969 831 726 456 "
    "824 702 1120 1100 832 764 821 768 845 864 862 698 845 744 796 1040 759 781 865 845 944 984 897 822 "
    "1010 771 676 649 846 812 742 801 1040 860 874 848 890 744 749 838 1050 918 986 797 923 975 815 "
    "1020 906 901 1170 912 746 919 718 714 740 "
)

rng = np.random.default_rng(20261120)
lines: list[str] = []


def text(values) -> str:
    return " ".join(format(float(v), ".17g") for v in np.atleast_1d(values))


def series(name: str, values) -> np.ndarray:
    values = np.asarray(values, dtype=float)
    lines.append(f"series {name} {text(values)}")
    return values


def epochs(name: str, values) -> np.ndarray:
    values = np.asarray(values, dtype=int)
    lines.append(f"epochs {name} " + " ".join(map(str, values)))
    return values


def expect(function: str, names: str, arguments, values, tolerance: float) -> None:
    words = ["expect", function, names, ":", text(arguments), "=", text(values), "~", f"{tolerance:g}"]
    lines.append(" ".join(w for w in words if w))


# --- distribution functions -------------------------------------------------------------------------------
for z in (-37.5, -8.0, -1.96, -1e-9, 0.0, 0.3, 1.0, 5.5):
    expect("normal_cdf", "", [z], special.ndtr(z), 1e-12)
for p in (1e-300, 1e-20, 1e-6, 0.025, 0.31, 0.5, 0.77, 0.975, 1 - 1e-12):
    expect("normal_quantile", "", [p], special.ndtri(p), 1e-12)
for a, b, x in (
    (0.5, 0.5, 0.1),
    (2, 3, 0.4),
    (1e-2, 30, 1e-3),
    (150, 2.5, 0.99),
    (5e4, 5e4, 0.501),
    (1e6, 1e6, 0.5005),
):
    expect("incomplete_beta", "", [a, b, x], special.betainc(a, b, x), 1e-10)
for t, dof in ((-40, 1), (-2.5, 3), (-0.01, 0.5), (0.7, 12.5), (3.1, 250), (1.2, 1e7)):
    expect("student_cdf", "", [t, dof], stats.t.cdf(t, dof), 1e-10)
for p in (1e-10, 0.025, 0.4, 0.9, 0.975, 0.9995):
    for dof in (1, 2, 3, 9, 19, 59, 1e4, 1e8):
        expect("student_quantile", "", [p, dof], stats.t.ppf(p, dof), 1e-10)
for k, n, p in (
    (0, 1, 0.3),
    (3, 10, 0.5),
    (10, 10, 0.9),
    (0, 2000, 0.01),
    (480, 1000, 0.5),
    (499000, 1000000, 0.5),
):
    expect("binomial_pmf", "", [k, n, p], stats.binom.pmf(k, n, p), 1e-10)
    expect("binomial_cdf", "", [k, n, p], stats.binom.cdf(k, n, p), 1e-10)

# --- samples ----------------------------------------------------------------------------------------------
delays = series("delays", 1.8e-6 + 1e-6 * rng.lognormal(0.2, 0.6, 400))
ticks = series("ticks", np.round(delays / 5e-8) * 5e-8)
offset = series("offset", 1e9 + rng.standard_normal(120))
noise = np.empty(600)
noise[0] = rng.standard_normal()
for i in range(1, noise.size):
    noise[i] = 0.9 * noise[i - 1] + np.sqrt(1 - 0.81) * rng.standard_normal()
noise = series("ar9", noise)
anti = series("antithetic", np.tile([1.0, -1.0], 50) + 0.1 * rng.standard_normal(100))
few = series("few", [3.0, 1.0, 2.0])
nile = series(
    "nile",
    [float(v) for v in NILE.split()],
)
e30 = epochs("e30", np.repeat(np.arange(30), 20))
e20 = epochs("e20", np.repeat(np.arange(20), 20))
mixed = epochs("mixed", rng.integers(-1, 12, 400))

for name, x in (("delays", delays), ("ticks", ticks), ("offset", offset), ("ar9", noise), ("few", few)):
    q = np.quantile(x, [0.05, 0.25, 0.75, 0.95, 0.99])
    m = np.median(x)
    values = [x.size, x.mean(), x.std(ddof=1), x.min(), x.max(), m, np.median(np.abs(x - m)), *q]
    for field, value in zip(
        ("n", "mean", "sd", "min", "max", "median", "mad", "q05", "q25", "q75", "q95", "q99"), values
    ):
        expect(f"summarise.{field}", name, [], value, 1e-9 if field in ("sd", "mad") else 1e-14)
    for p in (0.0, 0.123, 0.5, 1.0):
        expect("quantile", name, [p], np.quantile(x, p), 1e-14)
    mean = stats.t.interval(0.9, x.size - 1, loc=x.mean(), scale=stats.sem(x))
    expect("mean_ci", name, [0.9], mean, 1e-11)

# --- ranks: every pair tried ------------------------------------------------------------------------------
for n in (5, 6, 7, 8, 9, 10, 12, 13, 15, 20, 33, 100, 500):
    for p in (0.05, 0.5, 0.9):
        mass = stats.binom.pmf(np.arange(n + 1), n, p)
        best = (0, 0, np.nan)
        width = n + 1
        for low in range(1, n):
            for high in range(low + 1, n + 1):
                cover = mass[low:high].sum()
                if cover < 0.95:
                    continue
                better = cover > best[2] + 1e-12 if high - low == width else high - low < width
                if better:
                    best, width = (low, high, cover), high - low
                break  # the next `high` is further away
        expect("quantile_ranks", "", [n, p, 0.95], best, 1e-10)

for name, x in (("delays", delays), ("ticks", ticks), ("ar9", noise)):
    for level in (0.5, 0.95, 0.999):
        s = np.sort(x)
        # sign-test interval of Hettmansperger and Sheather, as their paper states it
        n = s.size
        d = max(k for k in range(1, n // 2) if 1 - 2 * stats.binom.cdf(k - 1, n, 0.5) >= level)
        outer, inner = (1 - 2 * stats.binom.cdf(k - 1, n, 0.5) for k in (d, d + 1))
        share = (outer - level) / (outer - inner)
        weight = (n - d) * share / (d + (n - 2 * d) * share)
        ci = (1 - weight) * s[d - 1] + weight * s[d], (1 - weight) * s[n - d] + weight * s[n - d - 1]
        expect("epoch_median_ci.medians", name, [level], ci, 1e-9)

# --- epochs -----------------------------------------------------------------------------------------------
for name, x, ename, e in (
    ("delays", delays, "e20", e20),
    ("delays", delays, "mixed", mixed),
    ("ar9", noise, "e30", e30),
):
    groups = [x[e == k] for k in np.unique(e[e >= 0])]
    expect("epoch_medians", f"{name} {ename}", [], [np.median(g) for g in groups], 1e-14)
    expect("epoch_means", f"{name} {ename}", [], [g.mean() for g in groups], 1e-14)
    pooled = np.concatenate(groups)
    count, n = len(groups), pooled.size
    size = np.array([g.size for g in groups])

    def spread(totals, size=size, n=n, count=count):
        """Standard error of sum(totals)/n over clusters of `size`."""
        return np.sqrt(count / (count - 1) * np.sum(((totals - size * totals.sum() / n) / n) ** 2))

    variance = spread(np.array([g.sum() for g in groups])) ** 2
    expect("effective_samples.epoch", f"{name} {ename}", [], min(pooled.var(ddof=1) / variance, n), 1e-10)
    for p in (0.5, 0.9):
        t = stats.t.ppf(0.975, count - 1)

        def shares(m, groups=groups):
            return np.array([float(np.sum(g <= m)) for g in groups])

        def inflation(m, n=n):
            f = shares(m).sum() / n
            return spread(shares(m)) ** 2 / (f * (1 - f)) if 0 < f < 1 else 0.0

        centre = np.sort(pooled)[int(np.ceil(p * n)) - 1]
        inside = []
        for m in np.sort(pooled):
            f = shares(m).sum() / n
            if p == 0.5:
                off = shares(m) - f * np.array([g.size for g in groups])
                alike = np.sum(off[1:] * off[:-1]) / np.sum(off**2) + 1 / count if np.any(off) else 0.0
                alike = np.clip(alike, 0.0, 0.9)
                error = spread(shares(m)) * np.sqrt((1 + alike) / (1 - alike))
            else:
                error = np.sqrt(p * (1 - p) * max(inflation(m), inflation(centre)))
            inside.append(abs(f - p) <= t * error)
        # Where the error is so odd that the values not refused have a hole: the piece around the quantile.
        inside, middle = np.array(inside), int(np.searchsorted(np.sort(pooled), centre))
        first = middle - int(np.argmin(inside[middle::-1])) + 1 if not inside[:middle].all() else 0
        last = middle + int(np.argmin(inside[middle:])) - 1
        ci = np.sort(pooled)[first], np.sort(pooled)[last + 1]
        expect("epoch_quantile_ci", f"{name} {ename}", [p, 0.95], ci, 1e-14)

# --- dependence -------------------------------------------------------------------------------------------
for name, x in (("delays", delays), ("ar9", noise), ("antithetic", anti), ("nile", nile), ("few", few)):
    d = x - x.mean()
    gamma = np.array([np.sum(d[: x.size - k] * d[k:]) for k in range(x.size)])
    for lag in (0, 1, 2, 50, 2000):
        expect("autocorrelation", name, [lag], gamma[lag] / gamma[0] if lag < x.size else 0, 1e-10)
    pairs = gamma[: x.size // 2 * 2].reshape(-1, 2).sum(axis=1)
    stop = np.flatnonzero(pairs <= 0)
    pairs = np.minimum.accumulate(pairs[: stop[0]] if stop.size else pairs)
    variance = 2 * pairs.sum() - gamma[0]
    n = x.size
    worth = n if n < 4 or variance <= 0 else np.clip(n * gamma[0] / variance, 1, n)
    expect("effective_samples", name, [], worth, 1e-9)

# --- spectra ----------------------------------------------------------------------------------------------
for name, x in (("delays", delays), ("ar9", noise), ("antithetic", anti), ("few", few)):
    expect("periodogram", name, [], signal.periodogram(x, scaling="spectrum", detrend="constant")[1], 1e-12)
for name, x, window, overlap in (
    ("delays", delays, 64, 0),
    ("delays", delays, 50, 25),
    ("ar9", noise, 101, 33),
    ("antithetic", anti, 2, 1),
):
    power = signal.welch(x, nperseg=window, noverlap=overlap)[1] / window
    expect("welch", name, [window, overlap], power, 1e-12)
by_epoch = [signal.welch(delays[e20 == k], nperseg=8, noverlap=4)[1] / 8 for k in range(20)]
expect("welch.epoch", "delays e20", [8, 4], np.mean(by_epoch, axis=0), 1e-12)
for name, x, window in (
    ("delays", delays, 16),
    ("ar9", noise, 120),
    ("offset", offset, 37),
    ("few", few, 3),
    ("few", few, 1),
):
    for row in sorted({0, min(1, x.size - window), min(window, x.size - window), x.size - window}):
        expect("sliding_amplitude", name, [window, row], np.abs(np.fft.rfft(x[row : row + window])), 1e-12)

# --- lognormal --------------------------------------------------------------------------------------------
shift, mu, sigma = 1.7e-6, np.log(1.2e-6), 0.55
law = stats.lognorm(s=sigma, loc=shift, scale=np.exp(mu))
for x in (1e-6, 1.7e-6, 1.9e-6, 3e-6, 1e-4):
    expect("lognormal3_cdf", "", [x, shift, mu, sigma], law.cdf(x), 1e-12)
for p in (0.0, 1e-9, 0.4, 0.999):
    expect("lognormal3_quantile", "", [p, shift, mu, sigma], law.ppf(p), 1e-12)
for name, x in (("delays", delays), ("ticks", ticks)):
    expect("ks_distance", name, [shift, mu, sigma], stats.kstest(x, law.cdf).statistic, 1e-10)


def local_maximum(x):
    """Local maximum of the likelihood, which for a large regular sample is where a sound fit lies as well."""

    def negative(log_gap):
        logs = np.log(x - x.min() + np.exp(log_gap))
        return x.size * (logs.mean() + np.log(logs.std()))

    gap = optimize.minimize_scalar(
        negative, bounds=(np.log(1e-3 * np.median(x - x.min())), np.log(np.ptp(x))), method="bounded"
    )
    logs = np.log(x - x.min() + np.exp(gap.x))
    return x.min() - np.exp(gap.x), logs.mean(), logs.std()


large = series("large", 5 + rng.lognormal(0.4, 0.5, 3000))
# a fifth of the standard errors, which are about 0.02
expect("fit_lognormal3", "large", [], local_maximum(large), 1e-3)

# --- change -----------------------------------------------------------------------------------------------
for name, x in (("nile", nile), ("ticks", ticks), ("few", few)):
    u = np.array([np.sign(x[t:, None] - x[None, :t]).sum() for t in range(1, x.size)])
    k = np.abs(u).max()
    n = x.size
    expect(
        "pettitt",
        name,
        [],
        [np.abs(u).argmax() + 1, k, min(1.0, 2 * np.exp(-6 * k**2 / (n**3 + n**2)))],
        1e-12,
    )

Path(__file__).with_name("golden.txt").write_text("\n".join(lines) + "\n")

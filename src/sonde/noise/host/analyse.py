"""The interruptions of each core: from detours and kernel counters to rates, shares, rhythm and cause. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core import spectra, stats
from sonde.core.described import variables
from sonde.core.errors import Warning
from sonde.core.outcome import Table
from sonde.core.units import format_duration, format_share
from sonde.noise.host.schema import OF_CPU, SUMMARY

if TYPE_CHECKING:
    import xarray as xr

# Bounds of the classes of length, s. Ticks and device interrupts are below 30 µs, time slices of others above 100 µs.
EDGES = (0.0, 1e-6, 3e-6, 10e-6, 30e-6, 100e-6, 1e-3, 10e-3, np.inf)
LONG_S = 100e-6
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
BIN_S = 0.2e-3  # bin of the fast spectrum: up to 2.5 kHz, more than twice the fastest tick (1 kHz)
MIN_WINDOWS = 10  # with fewer windows, correlation and spectrum mean nothing
P_RHYTHM = 1e-3
COMB = 10.0  # a second, weaker rhythm is reported from this power over the median
SHARED = 0.01  # there is a warning when others have a core for more than this share of the time
NAMES = {
    "LOC": "timer tick",
    "RES": "rescheduling",
    "CAL": "calls from other CPUs",
    "TLB": "TLB shootdowns",
    "DEV": "device interrupts",
    "NMI": "NMI",
    "IWI": "IRQ work",
    "HYP": "hypervisor callbacks",
}
KEPT_ATTRS = ("virtualised", "processes", "devices", "osnoise", "ticks", "method", "hostname")


def analyse(raw: xr.Dataset) -> xr.Dataset:
    """The rates, shares and causes of the interruptions of each CPU.

    Parameters
    ----------
    raw : in the layout of `schema`; times in s. Its attrs are the root attributes.

    Returns
    -------
    Dataset over cpu, length_class, quantile, counter and frequency. Shares and rates are relative to the time in
    windows of the detour loop. A CPU without such windows has NaN everywhere; its rates are NaN, too, not 0.
    """
    import xarray as xr

    cpus, counters = raw.sizes["cpu"], [str(name) for name in raw["counter"].values]
    classes = len(EDGES) - 1
    per_cpu = {name: np.full(cpus, np.nan) for name in OF_CPU}
    class_rate, class_share = (np.full((cpus, classes), np.nan) for _ in range(2))
    quantile = np.full((cpus, len(QUANTILES)), np.nan)
    short = np.full((cpus, len(QUANTILES)), np.nan)
    rate, match = (np.full((cpus, len(counters)), np.nan) for _ in range(2))
    bins = max(2, round(float(raw.attrs.get("window_s") or 0.1) / BIN_S))
    spectrum = np.full((cpus, bins // 2), np.nan)
    for row in range(cpus):
        windows = {
            str(name): raw[name][row, : int(raw["window_n"][row])].values
            for name in raw.data_vars
            if str(name).startswith("window_") and name != "window_n"
        }
        table = raw["counters"][row, : int(raw["window_n"][row])].values.astype(float)
        lengths = raw["detour_length"][row, : int(raw["detour_n"][row])].values
        begins = raw["detour_begin"][row, : int(raw["detour_n"][row])].values
        results = _one_cpu(windows, table, begins, lengths)
        per_cpu_here, class_rate[row], class_share[row], quantile[row], short[row] = results
        for name, value in per_cpu_here.items():
            per_cpu[name][row] = value
        rate[row], match[row] = _counters(windows, table)
        fast = _fast(windows, begins, bins)
        spectrum[row], per_cpu["rhythm"][row], per_cpu["rhythm_p"][row], per_cpu["second_rhythm"][row] = fast
        per_cpu["slow_rhythm"][row], per_cpu["slow_rhythm_p"][row] = _slow(windows, begins, lengths)
        quanta = raw["fwq_length"][row, : int(raw["fwq_n"][row])].values
        if quanta.size:
            per_cpu["fwq_least"][row], per_cpu["fwq_median"][row] = quanta.min(), stats.median(quanta)
            per_cpu["fwq_q99"][row] = stats.quantile(quanta, 0.99)
            per_cpu["fwq_share"][row] = 1 - quanta.min() / quanta.mean()
    tables = {
        "class_rate": class_rate,
        "class_share": class_share,
        "class_low": np.array(EDGES[:-1]),
        "class_high": np.array(EDGES[1:]),
        "length_quantile": quantile,
        "short_quantile": short,
        "counter_rate": rate,
        "counter_match": match,
        "spectrum": spectrum,
        "threshold": raw["threshold"].values,
        "least_step": raw["least_step"].values,
    }
    coords = {
        "cpu": raw["cpu"].values,
        "counter": raw["counter"].values,
        "quantile": np.array(QUANTILES),
        "frequency": np.arange(1, bins // 2 + 1) / (bins * BIN_S),
    }
    attrs = {name: raw.attrs[name] for name in KEPT_ATTRS if name in raw.attrs}
    return xr.Dataset(variables(SUMMARY, per_cpu | tables), coords=variables(SUMMARY, coords), attrs=attrs)


_CpuResults = tuple[dict[str, float], np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _one_cpu(
    windows: dict[str, np.ndarray], table: np.ndarray, begins: np.ndarray, lengths: np.ndarray
) -> _CpuResults:
    """The shares and rates of one CPU."""
    classes = len(EDGES) - 1
    nothing = np.full(classes, np.nan)
    none = np.full(len(QUANTILES), np.nan)
    by_loop = windows["window_method"] == 0
    spans = windows["window_end"] - windows["window_begin"]
    observed = float(spans[by_loop].sum())
    out: dict[str, float] = {}
    if len(spans):
        whole = float(windows["window_end"][-1] - windows["window_begin"][0])
        out["gap_share"] = float(windows["window_gap"].sum()) / whole if whole > 0 else np.nan
        out["involuntary_rate"] = float(windows["window_involuntary"].sum()) / whole
        out["run_delay_share"] = float(windows["window_run_delay"].sum()) / whole
        out["steal_share"] = float(windows["window_steal"].sum()) / whole
    if observed <= 0:
        return out, nothing, nothing, none, none
    gaps, lost = float(windows["window_gaps"][by_loop].sum()), float(windows["window_lost"][by_loop].sum())
    loops = float(windows["window_loops"][by_loop].sum())
    out |= {"observed": observed, "rate": gaps / observed, "share": lost / observed}
    out["loop"] = (observed - lost) / loops if loops else np.nan
    which = np.searchsorted(EDGES, lengths, side="right") - 1
    counts = np.bincount(which, minlength=classes)[:classes]
    # Some detours did not fit into the buffer, and only their number and total length are known. The stored detours
    # represent them.
    scale = gaps / len(lengths) if len(lengths) else 1.0
    class_rate = counts * scale / observed
    class_share = np.bincount(which, weights=lengths, minlength=classes)[:classes] * scale / observed
    long = lengths > LONG_S
    out["long_rate"], out["short_rate"] = long.sum() * scale / observed, (~long).sum() * scale / observed
    out["long_share"] = float(lengths[long].sum()) * scale / observed
    out["short_share"] = float(lengths[~long].sum()) * scale / observed
    long_s = _in_windows(windows, begins[long], lengths[long])[by_loop]
    if long_s.sum() > 0:
        for name in ("run_delay", "steal"):
            waited = windows[f"window_{name}"][by_loop]
            if np.isfinite(waited).all():
                # The kernel counts steal in whole ticks of 10 ms. Windows are too short for this: compare totals.
                covered = (
                    np.minimum(waited, long_s).sum()
                    if name == "run_delay"
                    else min(waited.sum(), long_s.sum())
                )
                out[f"{name}_covers"] = float(covered / long_s.sum())
    quantile = np.array([stats.quantile(lengths, q) for q in QUANTILES]) if len(lengths) else none
    brief = lengths[~long]
    short = np.array([stats.quantile(brief, q) for q in QUANTILES]) if len(brief) else none
    return out, class_rate, class_share, quantile, short


def _in_windows(windows: dict[str, np.ndarray], begins: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The sums of `weights` in each window. begins: a weight counts in the window that contains its begin."""
    where = np.searchsorted(windows["window_begin"], begins, side="right") - 1
    keep = where >= 0
    return np.bincount(where[keep], weights=weights[keep], minlength=len(windows["window_begin"]))


def _counters(windows: dict[str, np.ndarray], table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rate of each counter, and its rank correlation with the number of detours over windows."""
    names = table.shape[1]
    match = np.full(names, np.nan)
    spans = windows["window_end"] - windows["window_begin"]
    if not len(spans):
        return np.full(names, np.nan), match
    whole = float(windows["window_end"][-1] - windows["window_begin"][0])
    from scipy import stats as sps  # a slow import, needed only for the analysis of a run

    by_loop = windows["window_method"] == 0
    gaps = windows["window_gaps"][by_loop]
    if by_loop.sum() >= MIN_WINDOWS and np.ptp(gaps) > 0:
        for k in range(names):
            if np.ptp(table[by_loop, k]) > 0:
                match[k] = sps.spearmanr(gaps, table[by_loop, k]).statistic
    return table.sum(axis=0) / whole, match


def _fast(
    windows: dict[str, np.ndarray], begins: np.ndarray, bins: int
) -> tuple[np.ndarray, float, float, float]:
    """The spectrum of the number of detours in windows, over its median; the rhythm, its p, and a second rhythm.

    Each whole window is one segment. The average of exponentially distributed powers over segments has a gamma
    distribution.
    """
    starts = windows["window_begin"][windows["window_method"] == 0]
    spans = (windows["window_end"] - windows["window_begin"])[windows["window_method"] == 0]
    starts = starts[spans >= 0.99 * bins * BIN_S]
    flat = np.full(bins // 2, np.nan)
    if len(starts) < MIN_WINDOWS or len(begins) < MIN_WINDOWS:
        return flat, np.nan, np.nan, np.nan
    where = np.searchsorted(starts, begins, side="right") - 1
    at = ((begins - starts[np.maximum(where, 0)]) / BIN_S).astype(int)
    keep = (where >= 0) & (at >= 0) & (at < bins)
    counts = np.bincount(where[keep] * bins + at[keep], minlength=len(starts) * bins).astype(float)
    power = spectra.welch(counts, bins, 0, np.repeat(np.arange(len(starts)), bins))[1:]
    middle = float(np.median(power))
    if len(power) < 8 or middle <= 0:
        return flat, np.nan, np.nan, np.nan
    ratio = power / middle
    from scipy import stats as sps

    tested = ratio[1:]  # the mean was subtracted, and the taper spreads this to the first frequency
    p = float(min(1.0, len(tested) * sps.gamma.sf(tested.max() * len(starts), len(starts))))
    if p > P_RHYTHM:
        return ratio, np.nan, p, np.nan
    # A train of short interruptions has all multiples of its frequency, all equally strong. The lowest one counts.
    peak = np.zeros(len(ratio), bool)
    peak[1:-1] = (ratio[1:-1] >= ratio[:-2]) & (ratio[1:-1] >= ratio[2:])
    strong = np.flatnonzero(peak & (ratio >= 0.3 * ratio.max()))
    first = int(strong[0]) if len(strong) else int(ratio.argmax())
    step_hz = 1 / (bins * BIN_S)
    second = _comb(np.flatnonzero(peak & (ratio >= COMB)) + 1, first + 1)
    return ratio, (first + 1) * step_hz, p, second * step_hz if second else np.nan


def _comb(peaks: np.ndarray, known: int) -> int:
    """The lowest peak whose double and triple are peaks, too, and that is no multiple of `known`; 0: no such peak.

    peaks, known: numbers of frequencies; 1 is the lowest. A peak may be off by one.
    """
    near = {int(peak) + off for peak in peaks for off in (-1, 0, 1)}
    for peak in peaks.tolist():
        multiple = abs(peak - known * round(peak / known)) <= 1 and peak >= known - 1
        if not multiple and 2 * peak in near and 3 * peak in near:
            return int(peak)
    return 0


def _slow(windows: dict[str, np.ndarray], begins: np.ndarray, lengths: np.ndarray) -> tuple[float, float]:
    """The rhythm of the time lost in windows, and its p (the first term of Fisher's test, an upper bound of p)."""
    by_loop = windows["window_method"] == 0
    if by_loop.sum() < 3 * MIN_WINDOWS:
        return np.nan, np.nan
    series = _in_windows(windows, begins, lengths)[by_loop]
    starts = windows["window_begin"][by_loop]
    power = spectra.periodogram(series)[1:]
    total = float(power.sum())
    if total <= 0:
        return np.nan, np.nan
    share = power / total
    p = float(min(1.0, len(power) * (1 - share.max()) ** (len(power) - 1)))
    step = float(np.median(np.diff(starts)))
    return ((int(share.argmax()) + 1) / (len(series) * step) if p <= P_RHYTHM else np.nan), p


# ---- texts -----------------------------------------------------------------------------------------------------------


def per_second(rate: float) -> str:
    """A rate with three digits: "101/s"; "–" for NaN."""
    return "–" if np.isnan(rate) else f"{rate:.3g}/s" if rate < 1000 else f"{rate:.0f}/s"


def sentence(summary: xr.Dataset) -> str:
    """The verdict: the core that loses the most time, and the causes."""
    share = summary["share"].values
    if not np.isfinite(share).any():
        if np.isfinite(summary["fwq_share"].values).any():
            row = int(np.nanargmax(summary["fwq_share"].values))
            return (
                f"core {int(summary['cpu'][row])} takes {format_share(float(summary['fwq_share'][row]))} longer "
                "for its work than in its shortest quantum"
            )
        return "nothing was recorded"
    row = int(np.nanargmax(share))
    text = f"core {int(summary['cpu'][row])} loses {format_share(float(share[row]))} of its time"
    if clauses := [clause for clause in (_short(summary, row), _long(summary, row)) if clause]:
        text += ": " + ", ".join(clauses)
    others = np.delete(share, row)
    others = others[np.isfinite(others)]
    if len(others):
        low, high = format_share(float(others.min())), format_share(float(others.max()))
        text += f"; the other{'s' if len(others) > 1 else ''} " + (low if low == high else f"{low} to {high}")
    return text


def _short(summary: xr.Dataset, row: int) -> str:
    rate = float(summary["short_rate"][row])
    if not rate > 0:
        return ""
    q = list(summary["quantile"].values)
    low, high = (float(summary["short_quantile"][row, q.index(at)]) for at in (0.25, 0.75))
    cause = short_cause(summary, row)
    return f"{per_second(rate)} of {_span(low, high)}" + (f" ({cause})" if cause else "")


def short_cause(summary: xr.Dataset, row: int) -> str:
    """The interrupts in the kernel's counters that may cause the detours up to 100 µs; "" without any."""
    rates = hard_rates(summary, row)
    if not rates:
        return ""
    total, short = sum(rates.values()), float(summary["short_rate"][row])
    name, most = next(iter(rates.items()))
    text = (
        f"{NAMES.get(name, name)}, {name} {per_second(most)}"
        if name in NAMES
        else f"{name} {per_second(most)}"
    )
    if total < 0.5 * short:
        virtual = str(summary.attrs.get("virtualised", "none"))
        source = (
            "the hypervisor"
            if virtual not in ("none", "unknown", "")
            else "firmware or another unknown source"
        )
        text += f"; the kernel does not count the rest: it comes from {source}"
    return text


def hard_rates(summary: xr.Dataset, row: int) -> dict[str, float]:
    """The rates of the interrupts of one CPU, 1/s, the most frequent first; without softirqs and zeros."""
    found = {
        str(name): float(rate)
        for name, rate in zip(summary["counter"].values, summary["counter_rate"].values[row])
        if not str(name).startswith("soft ") and rate > 0
    }
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _long(summary: xr.Dataset, row: int) -> str:
    rate = float(summary["long_rate"][row])
    if not rate > 0:
        return ""
    return f"{per_second(rate)} above {format_duration(LONG_S)} ({long_cause(summary, row)})"


def long_cause(summary: xr.Dataset, row: int) -> str:
    """The cause of the detours above 100 µs, by the kernel's counters."""
    waited, stolen = float(summary["run_delay_covers"][row]), float(summary["steal_covers"][row])
    if waited >= 0.5:
        text = f"CPU given to other programs: run_delay explains {format_share(waited)}"
        names = programs(summary, int(summary["cpu"][row]))[:2]
        return text + (f", most to {' and '.join(names)}" if names else "")
    if stolen >= 0.5:
        return f"the hypervisor gave the CPU to others: steal explains {format_share(stolen)}"
    if np.isnan(waited):
        return "the kernel does not show the cause"
    return f"unexplained: run_delay explains only {format_share(waited)}"


def processes(summary: xr.Dataset, cpu: int | None = None) -> list[dict[str, Any]]:
    """The programs that used CPU time on measured cores, in descending order. cpu: only those on this CPU."""
    found = _listed(summary.attrs.get("processes"))
    return [one for one in found if cpu is None or one.get("cpu") == cpu]


def programs(summary: xr.Dataset, cpu: int) -> list[str]:
    """The names of the programs of `processes`, each once."""
    return list(dict.fromkeys(str(one["name"]) for one in processes(summary, cpu)))


def _listed(value: Any) -> list[dict[str, Any]]:
    """The list of objects that an attribute holds as JSON text; [] for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value or "[]")
        except (ValueError, RecursionError):
            return []
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _span(low: float, high: float) -> str:
    a, b = format_duration(low), format_duration(high)
    if a == b:
        return a
    number, _, unit = a.partition(" ")
    return f"{number}–{b}" if b.endswith(" " + unit) else f"{a} to {b}"


def tables(summary: xr.Dataset) -> list[Table]:
    """A table with a row for each core, the interrupts that the kernel counts, and the other programs."""
    q = list(summary["quantile"].values)
    rows = []
    for row in range(summary.sizes["cpu"]):
        middle, high = (float(summary["length_quantile"][row, q.index(at)]) for at in (0.5, 1.0))
        rows.append(
            (
                str(int(summary["cpu"][row])),
                format_share(float(summary["share"][row])),
                per_second(float(summary["short_rate"][row])),
                _known(middle),
                per_second(float(summary["long_rate"][row])),
                format_share(float(summary["long_share"][row])),
                _known(high),
                rhythms(summary, row),
                format_share(float(summary["fwq_share"][row])),
            )
        )
    out = [
        Table(
            "Cores",
            ("core", "lost", "short", "median", "long", "lost", "longest", "rhythm", "FWQ"),
            rows,
            right=tuple(range(1, 9)),
            note="short, long: detours up to and above 100 µs; FWQ: time of a quantum beyond the shortest",
        )
    ]
    interrupts = []
    for row in range(summary.sizes["cpu"]):
        for name, rate in list(hard_rates(summary, row).items())[:6]:
            k = [str(n) for n in summary["counter"].values].index(name)
            match = float(summary["counter_match"][row, k])
            interrupts.append(
                (
                    str(int(summary["cpu"][row])),
                    name,
                    NAMES.get(name, ""),
                    per_second(rate),
                    "–" if np.isnan(match) else f"{match:.2f}",
                )
            )
    if interrupts:
        columns = ("core", "row", "meaning", "rate", "correlation with detours")
        out.append(Table("Interrupts that the kernel counts", columns, interrupts, right=(0, 3, 4)))
    if ran := processes(summary)[:8]:
        body = [(str(p["cpu"]), str(p["name"]), str(p["pid"]), format_duration(p["cpu_s"])) for p in ran]
        out.append(
            Table(
                "Other programs on these cores", ("core", "program", "pid", "CPU time"), body, right=(0, 2, 3)
            )
        )
    if traced := _listed(summary.attrs.get("osnoise"))[:8]:
        seen = [
            (str(t["cpu"]), str(t["kind"]), str(t["name"]), str(t["count"]), format_duration(t["total_s"]))
            for t in traced
        ]
        columns = ("core", "kind", "name", "times", "total")
        out.append(Table("Interruptions by the kernel's osnoise tracer", columns, seen, right=(0, 3, 4)))
    return out


def rhythms(summary: xr.Dataset, row: int) -> str:
    """The frequencies at which detours of one core recur: "1000, 250 Hz"; "–" where none was found."""
    names = ("rhythm", "second_rhythm", "slow_rhythm")
    found = [value for name in names if np.isfinite(value := float(summary[name][row]))]
    return (
        ", ".join(f"{value:.3g}" if value < 100 else f"{value:.0f}" for value in found) + " Hz"
        if found
        else "–"
    )


def _known(length_s: float) -> str:
    return "–" if np.isnan(length_s) else format_duration(length_s)


def lines(summary: xr.Dataset) -> list[str]:
    """The line below the tables: why the kernel's own tracer was not used."""
    tracer = str(summary.attrs.get("osnoise", ""))
    return [f"osnoise tracer: {tracer}"] if tracer.startswith("absent") else []


def warnings(summary: xr.Dataset) -> list[Warning]:
    """The conditions that make the numbers less reliable."""
    out = []
    busy = [
        (int(cpu), float(share))
        for cpu, share in zip(summary["cpu"].values, summary["run_delay_share"].values)
        if share > SHARED
    ]
    if busy:
        worst = max(busy, key=lambda one: one[1])
        names, more = ", ".join(programs(summary, worst[0])[:3]), len(busy) - 1
        out.append(
            Warning(
                "noise.core_shared",
                f"other programs had core {worst[0]} for {format_share(worst[1])} of the time"
                + (f": {names}" if names else "")
                + (f"; {more} more core{'s are' if more > 1 else ' is'} also shared" if more else ""),
                "stop them, or move them to other cores, to see the kernel's own share",
            )
        )
    if str(summary.attrs.get("ticks")) == "clock":
        out.append(
            Warning(
                "noise.coarse_ticks",
                "this processor has no counter of constant speed: time is read from the kernel's clock, which takes "
                f"{format_duration(float(np.nanmin(summary['least_step'].values)))} in each turn",
                "detours shorter than ten times this are invisible",
            )
        )
    return out


def values(summary: xr.Dataset) -> dict[str, Any]:
    """The values for --json: one object for each core, the processes, and the results of the tracer."""
    cores = []
    for row in range(summary.sizes["cpu"]):
        one: dict[str, Any] = {"cpu": int(summary["cpu"][row])}
        for name in (*OF_CPU, "threshold", "least_step"):
            value = float(summary[name][row])
            one[name] = value if np.isfinite(value) else None
        one["classes"] = [
            {
                "low_s": low,
                "high_s": high if np.isfinite(high) else None,
                "rate": _json(rate),
                "share": _json(share),
            }
            for low, high, rate, share in zip(
                EDGES, EDGES[1:], summary["class_rate"].values[row], summary["class_share"].values[row]
            )
        ]
        one["interrupts"] = hard_rates(summary, row)
        cores.append(one)
    return {
        "cores": cores,
        "processes": processes(summary),
        "devices": _listed(summary.attrs.get("devices")),
        "osnoise": _listed(summary.attrs.get("osnoise")),
    }


def _json(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None

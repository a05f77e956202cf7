"""A report such as `net` makes, from invented measurements: for the report's own tests and for looking at it.

python tests/report_demo.py OUT.html [RANKS]
"""

from __future__ import annotations

import sys

import numpy as np
import xarray as xr
from scipy import stats
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from sonde.core.errors import Finding, Warning
from sonde.core.figure import Axis, Figure, Kind, Slider
from sonde.core.outcome import Table
from sonde.core.section import Fact, Method, Section
from sonde.report.page import Report

RANKS_PER_NODE = 8
SIZES = (8, 64, 512, 1024, 4096, 16384, 65536, 262144)
STATES = ("not measured", "converged", "cap", "drift", "stopped before the rule decided")


def hosts(ranks: int) -> list[str]:
    per_node = RANKS_PER_NODE if ranks > 4 else 2
    return [f"n{1 + r // per_node:03d}" for r in range(ranks)]


def medians(ranks: int, sizes: tuple[int, ...], seed: int = 7) -> np.ndarray:
    """(ranks, ranks, sizes) s: cache, socket, node, leaf switch, spine; one slow pair, one slow cable."""
    rng = np.random.default_rng(seed)
    r = np.arange(ranks)
    per_node = RANKS_PER_NODE if ranks > 4 else 2
    node = r // per_node
    leaf = node // 4
    near = [
        (r // 2)[:, None] == (r // 2)[None],
        (r // 4)[:, None] == (r // 4)[None],
        node[:, None] == node[None],
        leaf[:, None] == leaf[None],
    ]
    start = np.select(near, [0.24e-6, 0.38e-6, 0.61e-6, 1.35e-6], 1.92e-6)
    gap = np.select(near, [1 / 11e9, 1 / 9e9, 1 / 7e9, 1 / 11.2e9], 1 / 10.4e9)
    out = start[..., None] + gap[..., None] * np.array(sizes) + np.where(np.array(sizes) >= 16384, 0.9e-6, 0)
    out = out * rng.lognormal(0, 0.015, out.shape)
    if ranks > 8:
        out[3, ranks - 5] *= 1.62
        out[ranks - 5, 3] *= 1.58
        out[per_node : 2 * per_node, :per_node] *= 1.08
    out[r, r] = np.nan
    return out


def dataset(ranks: int, sizes: tuple[int, ...]) -> xr.Dataset:
    rng = np.random.default_rng(3)
    value = medians(ranks, sizes)
    width = rng.uniform(0.002, 0.009, value.shape)
    n = rng.integers(8, 60, value.shape) * 50
    return xr.Dataset(
        {
            "value": (("row", "col", "size"), value),
            "low": (
                ("row", "col", "size"),
                value * (1 - width),
                {"units": "s", "long_name": "95 % interval from"},
            ),
            "high": (("row", "col", "size"), value * (1 + width), {"units": "s", "long_name": "to"}),
            "n": (("row", "col", "size"), n, {"long_name": "samples"}),
            "effective": (
                ("row", "col", "size"),
                (n * rng.uniform(0.02, 0.3, value.shape)).round(),
                {"long_name": "effective samples"},
            ),
            "src_host": ("row", hosts(ranks), {"long_name": "host"}),
            "dst_host": ("col", hosts(ranks), {"long_name": "host"}),
        },
        coords={
            "row": np.arange(ranks),
            "col": np.arange(ranks),
            "size": ("size", list(sizes), {"units": "B"}),
        },
    )


def matrix(ranks: int = 32, sizes: tuple[int, ...] = SIZES) -> Figure:
    return Figure(
        "median-latency",
        "Median latency of every pair",
        "Blocks along the diagonal are nodes. A single bright cell is a slow pair; a bright row or column is "
        "a slow rank or cable.",
        Kind.MATRIX,
        dataset(ranks, sizes),
        {
            "row": Axis("Sender (rank)"),
            "col": Axis("Receiver (rank)"),
            "value": Axis("Median latency, RTT/2", "s", log=True),
        },
        (Slider("size", "Message length", "B", start=3 if len(sizes) > 3 else 0),),
    )


def status(ranks: int = 32, sizes: tuple[int, ...] = SIZES) -> Figure:
    rng = np.random.default_rng(5)
    codes = rng.choice([1, 2, 3], p=[0.93, 0.05, 0.02], size=(ranks, ranks, len(sizes)))
    codes[np.arange(ranks), np.arange(ranks)] = -1
    if ranks > 8:
        codes[3, 0, :] = 0
    return Figure(
        "status",
        "Where the stopping rule decided",
        "Cells that stopped at the cap or drifted have wider intervals than were asked for.",
        Kind.STATUS,
        xr.Dataset(
            {"value": (("row", "col", "size"), codes)},
            coords={
                "row": np.arange(ranks),
                "col": np.arange(ranks),
                "size": ("size", list(sizes), {"units": "B"}),
            },
        ),
        {"row": Axis("Sender (rank)"), "col": Axis("Receiver (rank)"), "value": Axis("State", labels=STATES)},
        (Slider("size", "Message length", "B"),),
    )


def delays(n: int = 6000, epoch: int = 50, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Delays (n,) s and epochs (n,): regimes longer than an epoch, a beat, and rare outliers."""
    rng = np.random.default_rng(seed)
    k = np.arange(n)
    regime = np.where((k // (7 * epoch)) % 3 == 2, 1.18, 1.0)
    y = 1.05e-6 + rng.lognormal(np.log(0.3e-6), 0.32, n) * regime
    y += 0.04e-6 * np.sin(2 * np.pi * k / 24)
    y[rng.random(n) < 0.002] *= 6
    return y, k // epoch


def series(n: int = 6000, epoch: int = 50) -> Figure:
    y, group = delays(n, epoch)
    return Figure(
        "series",
        "Delays of pair 3 → 7, 1 KiB",
        "Each shade is one epoch: a short burst, all bursts spread over the run. Steps between epochs are "
        "regimes that a single long burst would have missed.",
        Kind.SERIES,
        xr.Dataset(
            {"y": (("series", "x"), y[None]), "group": (("series", "x"), group[None])},
            coords={"series": ["3 → 7"], "x": np.arange(n)},
        ),
        {"x": Axis("Sample"), "y": Axis("Delay", "s", log=True)},
    )


def spectrogram(n: int = 6000, window: int = 128) -> Figure:
    y, _ = delays(n)
    windows = np.lib.stride_tricks.sliding_window_view(np.log(y), window)[::16]
    power = np.abs(np.fft.rfft(windows - windows.mean(axis=1, keepdims=True), axis=1)[:, 1:]) ** 2 / window
    return Figure(
        "spectrogram",
        "Spectrum of pair 3 → 7 as the run goes on",
        "A bright line that stays at one frequency is a delay that returns regularly.",
        Kind.SPECTROGRAM,
        xr.Dataset(
            {"power": (("x", "frequency"), power)},
            coords={"x": np.arange(power.shape[0]) * 16, "frequency": np.fft.rfftfreq(window)[1:]},
        ),
        {
            "x": Axis("First sample of the window"),
            "frequency": Axis("Frequency, cycles per sample"),
            "power": Axis("Power", log=True),
        },
    )


def cdf() -> Figure:
    y = np.sort(delays()[0])
    p = np.arange(1, y.size + 1) / y.size
    shape, loc, scale = 0.33, 1.05e-6, 0.305e-6
    q = np.linspace(0.0005, 0.9995, y.size)
    fitted = stats.lognorm.ppf(q, shape, loc, scale)
    return Figure(
        "cdf",
        "Distribution of pair 3 → 7, 1 KiB, with the fitted lognormal",
        "Where the dashed line leaves the steps the three-parameter lognormal does not hold.",
        Kind.CDF,
        xr.Dataset(
            {
                "x": (("series", "point"), np.stack([y, fitted])),
                "p": (("series", "point"), np.stack([p, q])),
                "style": ("series", ["steps", "line"]),
            },
            coords={"series": ["measured", "lognormal-3 fit, D = 0.06"]},
        ),
        {"x": Axis("Delay", "s", log=True), "p": Axis("Share of delays at or below")},
    )


def dendrogram(ranks: int = 32) -> Figure:
    distance = medians(ranks, (1024,))[..., 0]
    distance = np.nan_to_num((distance + distance.T) / 2)
    np.fill_diagonal(distance, 0)
    links = hierarchy.linkage(squareform(distance, checks=False), "average")
    return Figure(
        "classes",
        "Ranks by nearness",
        "Branches left of the cut are link classes. Where one holds one host only, the two agree.",
        Kind.DENDROGRAM,
        xr.Dataset(
            {
                "merge": (("link", "part"), links),
                "leaf": ("leaf", [f"{r}  {h}" for r, h in enumerate(hosts(ranks))]),
                "threshold": 0.8e-6,
            }
        ),
        {"height": Axis("Median latency between branches", "s")},
    )


def model() -> Figure:
    sizes = np.array([1, *SIZES], dtype=float)
    y = 1.35e-6 + sizes / 11.2e9 + np.where(sizes >= 16384, 0.9e-6, 0)
    rng = np.random.default_rng(2)
    measured = y * rng.lognormal(0, 0.01, y.size)
    grid = np.geomspace(1, 2**20, 120)
    hockney = 1.4e-6 + grid / 10.8e9
    hole = np.full(grid.size - sizes.size, np.nan)
    sizes, measured = np.append(sizes, hole), np.append(measured, hole)
    return Figure(
        "model",
        "Hockney model against measurement, other node",
        "Points above the line are lengths at which the protocol changes. Past the last point the line is a "
        "forecast.",
        Kind.SCATTER,
        xr.Dataset(
            {
                "x": (("series", "point"), np.stack([sizes, grid])),
                "y": (("series", "point"), np.stack([measured, hockney])),
                "low": (("series", "point"), np.stack([measured * 0.96, hockney * np.nan])),
                "high": (("series", "point"), np.stack([measured * 1.05, hockney * np.nan])),
                "style": ("series", ["points", "line"]),
                "mark": ("mark", [16384.0]),
                "mark_name": ("mark", ["rendezvous"]),
            },
            coords={"series": ["measured, 95 % interval", "1.40 µs + 10.8 GB/s"]},
        ),
        {"x": Axis("Message length", "B", log=True), "y": Axis("Median latency, RTT/2", "s", log=True)},
    )


def rules() -> Figure:
    error = np.array([0.021, 0.011, 0.018, 0.029, 0.026, 0.24, 0.47])
    return Figure(
        "rules",
        "Error of each stopping rule against the whole series",
        "Shorter is better; the faithful ports of the source's rules stop early and err.",
        Kind.BAR,
        xr.Dataset(
            {"y": ("bar", error * 100), "low": ("bar", error * 70), "high": ("bar", error * 150)},
            coords={
                "bar": [
                    "fixed:1000",
                    "ci:1%",
                    "spectral",
                    "lognormal",
                    "entropy",
                    "clustbench-fft",
                    "clustbench-modified",
                ]
            },
        ),
        {"bar": Axis("Rule"), "y": Axis("Median error", "%")},
    )


def icicle() -> Figure:
    """A program with two calls, one of which made two others in two layers."""
    return Figure(
        "icicle",
        "Where the time went",
        "Read it downwards: what stands under a call is within it.",
        Kind.ICICLE,
        xr.Dataset(
            {
                "label": ("node", ["all calls", "read", "write", "pwrite", "fsync"]),
                "parent": ("node", [-1, 0, 0, 2, 2]),
                "hue": ("node", [-1, 0, 0, 1, 1]),
                "value": ("node", [1.0, 0.25, 0.75, 0.5, 0.125]),
                "calls": ("node", [8.0, 2, 3, 2, np.nan], {"long_name": "calls", "units": "1"}),
                "moved": ("node", [np.nan, 4096.0, 8192, 8192, np.nan], {"long_name": "bytes", "units": "B"}),
            }
        ),
        {"value": Axis("time", "s"), "hue": Axis("layer", labels=("library", "system"))},
    )


def areas(n: int = 50, ranks: int = 3) -> Figure:
    y = np.abs(np.sin(np.arange(2 * n * ranks).reshape(2, n, ranks) / 7))
    return Figure(
        "areas",
        "Threads in each layer",
        "A stretch of one colour is a phase.",
        Kind.STACK,
        xr.Dataset(
            {"y": (("part", "x", "rank"), y), "hue": ("part", [7, 0])},
            coords={
                "part": ["system", "library"],
                "x": np.arange(n) * 0.002,
                "rank": ["all", "0", "1"][:ranks],
            },
        ),
        {"x": Axis("time", "s"), "y": Axis("threads")},
        (Slider("rank", "rank"),),
    )


def columns(n: int = 4) -> Figure:
    y = np.stack([np.arange(n) + 1.0, np.full(n, 2.0)]) * 1e-3
    return Figure(
        "columns",
        "Time by rank",
        "Bars of one height are work that is spread evenly.",
        Kind.STACK,
        xr.Dataset(
            {"y": (("part", "x"), y)}, coords={"part": ["system", "library"], "x": [str(k) for k in range(n)]}
        ),
        {"x": Axis("rank"), "y": Axis("time", "s")},
    )


def panels() -> Figure:
    y = np.array([[[100.0, 0], [0, 100]], [[0, 25], [100, 75]]])
    text = np.array([[["4 writes", ""], ["", "4 reads"]], [["", "1 read"], ["64 writes", "3 reads"]]])
    return Figure(
        "panels",
        "Sizes of requests",
        "Bars that move from one panel to the next are requests cut up or gathered.",
        Kind.STACK,
        xr.Dataset(
            {
                "y": (("part", "x", "way"), y),
                "text": (("part", "x", "way"), text),
                "heading": (("part", "way"), [["library: 4", "library: 4"], ["system: 64", "system: 4"]]),
            },
            coords={"part": ["library", "system"], "x": ["4 MiB", "64 KiB"], "way": ["writes", "reads"]},
        ),
        {"x": Axis("bytes of a request"), "y": Axis("share", "%")},
        (Slider("way", "requests"),),
    )


def findings(ranks: int) -> list[Finding]:
    if ranks <= 8:
        return []
    far = ranks - 5
    return [
        Finding(
            "net.slow_link",
            f"Pair 3 → {far} is 1.62 times slower than its link class, confirmed by a re-test.",
            {
                "src": 3,
                "dst": far,
                "size_b": 1024,
                "median_s": 3.26e-6,
                "class_median_s": 2.01e-6,
                "ratio": 1.62,
                "false discovery rate": 0.004,
            },
            f"sonde net run --hosts 'n001,{hosts(ranks)[far]}' --sizes 1KiB --rule ci:0.5% --budget 2min",
        ),
        Finding(
            "net.protocol_jump",
            "Delays of all pairs jump by 0.9 µs between 4 KiB and 16 KiB.",
            {"size_b": [4096, 16384], "jump_s": 0.9e-6, "pairs": "all"},
            "sonde net run --sizes 4096:16385:1024 --pairing serial",
        ),
    ]


def section(ranks: int = 32, sizes: tuple[int, ...] = SIZES) -> Section:
    found = findings(ranks)
    figures = [
        matrix(ranks, sizes),
        status(ranks, sizes),
        series(),
        spectrogram(),
        cdf(),
        dendrogram(ranks),
        model(),
    ]
    return Section(
        "net",
        f"Latency of {ranks} ranks, one to one",
        (
            f"One pair of {ranks * (ranks - 1)} is 1.6 times slower than its class; all other links fit "
            "their class within 3 %."
            if found
            else f"All {ranks * (ranks - 1)} pairs fit their link class within 3 %."
        ),
        findings=found,
        facts=[
            Fact("Median, same node", "612 ns", "8 B, 95 % interval 608 to 617 ns"),
            Fact("Median, other node", "1.36 µs", "8 B, 95 % interval 1.35 to 1.37 µs"),
            Fact("Bandwidth, other node", "10.8 GB/s", "Hockney fit"),
            Fact("Converged", "93 %", "5 % at the cap, 2 % drifted"),
        ],
        tables=[
            Table(
                "Link classes",
                ("Class", "Pairs", "Median, 8 B", "Median, 64 KiB", "Agreement with topology"),
                (
                    ("shared cache", "32", "241 ns", "6.2 µs", "complete"),
                    ("same socket", "64", "383 ns", "7.7 µs", "complete"),
                    ("same node", "128", "612 ns", "10.0 µs", "complete"),
                    ("other node", "768", "1.36 µs", "8.1 µs", "766 of 768"),
                ),
                (1, 2, 3),
                "Classes come from clustering; the topology is what hwloc and host names say.",
            )
        ],
        figures=[*figures, rules()],
        method=[
            Method(
                "Interval of a median",
                "Order statistics of epoch medians, 95 %.",
                "J.-Y. Le Boudec, Performance Evaluation of Computer Systems, EPFL Press 2010, ch. 2.",
            ),
            Method(
                "Slow links",
                "Ratio to the link class by median and MAD; false discoveries held at 5 %; each re-tested.",
                "Y. Benjamini, Y. Hochberg, J. R. Stat. Soc. B 57 (1995) 289–300.",
            ),
            Method(
                "Latency model",
                "t = α + β m by weighted least squares on medians.",
                "R. W. Hockney, Parallel Computing 20 (1994) 389–398.",
            ),
        ],
    )


def report(ranks: int = 32, sizes: tuple[int, ...] = SIZES) -> Report:
    made = section(ranks, sizes)
    return Report(
        "Interconnect of alpha, 4 nodes",
        made.verdict,
        [made],
        machine={
            "Host": "n001, 3 others",
            "CPU": "2 × AMD EPYC 7543, 64 cores",
            "Kernel": "6.1.0-28-amd64",
            "MPI": "Open MPI 4.1.4",
            "Transport": "UCX, mlx5 (HDR100)",
            "Clock source": "tsc",
            "Governor": "performance",
            "Virtualised": "no",
            "Load average": "0.04",
        },
        runs=[
            {
                "command": "sonde net run --ntasks 32 --sizes 8,64,512,1KiB,4KiB,16KiB,64KiB,256KiB "
                "--rule ci:1% --budget 10min --raw",
                "dataset": "net-alpha-20261120T214757Z-3f9a.nc",
                "started": "2026-11-20 21:47:57 UTC",
                "samples": "12 644 000",
                "stopped": "converged after 6 min 12 s",
                "seed": "20261120",
            }
        ],
        warnings=[
            Warning(
                "net.oversubscribed",
                "Ranks 24 to 31 share cores with other ranks; their delays include waiting for a core.",
                "Ask for no more ranks than cores: --ntasks 24.",
            ),
            Warning("core.governor", "n003 runs under governor powersave, the others under performance.", ""),
        ],
        method=made.method,
        generated_by="Sonde 0.1.0",
        created_utc="2026-11-20 21:54 UTC",
    )


# Texts that do harm if a page interprets them.
HOSTILE = [
    "<script>window.struck=1</script>",
    "</script><script>window.struck=1</script>",
    '"><img src=x onerror=window.struck=1>',
    "' onmouseover='window.struck=1",
    "<!--<script>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:window.struck=1",
    "\u2028</style><svg onload=window.struck=1>",
    "@ink",
]


def hostile_report(text: str) -> Report:
    """A report in which every text is this one."""
    data = dataset(4, (8, 64)).assign_coords(row=[text, "b", "c", "d"], col=["a", "b", "c", text])
    data["src_host"] = ("row", [text] * 4)
    data["state"] = (("row", "col", "size"), np.full((4, 4, 2), text))
    axes = {"row": Axis(text), "col": Axis(text), "value": Axis(text, text)}
    figure = Figure(text, text, text, Kind.MATRIX, data, axes, (Slider("size", text, text),))
    made = Section(
        text,
        text,
        text,
        findings=[Finding(text, text, {text: text, "src": text, "dst": text}, text)],
        tables=[Table(text, [text], [[text]], note=text)],
        figures=[figure, series()],
        facts=[Fact(text, text, text)],
        method=[Method(text, text, text)],
    )
    warnings = [Warning(text, text, text)]
    return Report(
        text,
        text,
        [made, made],
        {text: text},
        [{text: text, "command": text}],
        warnings,
        made.method,
        text,
        text,
    )


if __name__ == "__main__":
    from pathlib import Path

    from sonde.report import publish

    publish.write(report(int(sys.argv[2]) if len(sys.argv) > 2 else 32), Path(sys.argv[1]))

"""Invented noise runs: /raw as `sonde.noise.detector.schema` describes it, with a known agent in known stalls.

Also a check of the messages of a measured run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from sonde import _core
from sonde.noise.detector.plan import looks
from sonde.noise.detector.schema import RAW
from sonde.noise.kinds import SCHEMA

BLOCK_S, PITCH_S, SETTLE_S, ITERATION_S, TICK_S = 1.0, 1.065, 0.05, 20e-6, 1e-9
LATE_RANK, WAKE_S = 1, 0.4


def run(
    bursts_s: Sequence[float] = (0.01,),
    pairs: int = 7,
    *,
    slice_s: float = 0.0,
    shift: float = 0.0,
    machine_per_s: float = 5.0,
    machine_s: float = 1e-4,
    ranks: int = 2,
    late_rank: int = LATE_RANK,
    names: Sequence[str] | None = None,
    seed: int = 1,
    **attrs: Any,
) -> xr.Dataset:
    """/raw of a run. bursts_s: for each variant, the time that it takes from one rank each second; 0: none.

    slice_s: turns of the scheduler into which a longer burst is cut; the rank's turns in between are as long. shift: by
    which share each iteration is longer with an agent on. machine_per_s, machine_s: stalls that come at any time, and
    their mean length. names: the variants besides off.
    """
    random = np.random.default_rng(seed)
    count = len(bursts_s)
    names = [f"agent {k + 1}" for k in range(count)] if names is None else list(names)
    rounds, spend = looks(pairs) if count == 1 else ((pairs,), (1.0,))
    drawn = _core.noise_plan([1] * (count + 1), list(rounds), seed)
    segment, variant = np.array(drawn, np.int32).T
    blocks = len(segment)
    begin = 0.3 + PITCH_S * np.arange(blocks)
    edges = np.asarray(_core.noise_edges(), float) * TICK_S
    ordinary = int(BLOCK_S / ITERATION_S)
    counts = np.zeros((ranks, blocks, edges.size - 1), np.uint32)
    stalls: list[list[tuple[float, ...]]] = [[] for _ in range(ranks)]
    for block in range(blocks):
        burst = bursts_s[variant[block] - 1] if variant[block] else 0.0
        longer = 1 + (shift if burst else 0.0)
        own = random.lognormal(np.log(ITERATION_S * longer), 0.03, ordinary // 50)
        at = np.searchsorted(edges, own) - 1
        np.add.at(counts, (slice(None), block, at), 50)
        events = [
            (t, machine_s * random.exponential() + 6e-5, -1)
            for t in random.uniform(0, 1, random.poisson(machine_per_s))
        ]
        if burst:
            first = np.ceil((begin[block] - WAKE_S) / 1.0) + WAKE_S - begin[block]
            slices = max(1, round(burst / slice_s)) if slice_s else 1
            wakes = np.arange(first, BLOCK_S, 1.0)[:, None] + 2 * slice_s * np.arange(slices)
            events += [(t, burst / slices + ITERATION_S, late_rank) for t in wakes[wakes < BLOCK_S].tolist()]
        for t, length, guilty in sorted(events):
            counts[:, block, np.searchsorted(edges, length) - 1] += 1
            for rank in range(ranks):
                delay = 0.95 * length if rank == guilty else 0.0
                stalls[rank].append((block, begin[block] + t, length, delay, np.nan))
    most = max(1, max(map(len, stalls)))
    table = np.full((ranks, most, 5), np.nan)
    table[..., 0] = -1
    for rank, mine in enumerate(stalls):
        table[rank, : len(mine)] = np.array(mine).reshape(-1, 5)

    # Ordinary iterations are missing from the time that stalls take.
    lost = np.zeros(blocks)
    for block, _, length, *_ in stalls[0]:
        lost[int(block)] += length
    with_agent = np.array([shift if k and bursts_s[k - 1] else 0.0 for k in variant])
    iterations = np.tile(
        ((BLOCK_S - 0.001 - lost) / (ITERATION_S * (1 + with_agent))).astype("i8"), (ranks, 1)
    )

    def each(value: float | int, dtype: str = "f8") -> np.ndarray:
        return np.full((ranks, blocks), value, dtype)

    settled = np.where(variant > 0, begin - SETTLE_S, np.nan)
    per_rank = {
        **dict(tick=TICK_S, steady=1, iteration_time=ITERATION_S, stall_threshold=6e-5, stamp_cost=8e-9),
        **dict(
            keeping_share=0.004,
            keeping_low=0.001,
            keeping_high=0.008,
            stamp_every=1,
            agree_every=16,
            room=100_000,
        ),
    }
    data = {
        "count": (("rank", "block", "class"), counts),
        "class_edge": (("rank", "edge"), np.tile(edges, (ranks, 1))),
        "segment": ("block", segment),
        "variant": ("block", variant),
        "variant_name": ("variant_index", np.array(["off", *names], object)),
        "status": ("block", np.ones(blocks, np.int8)),
        "n_stalls": ("rank", np.array([len(mine) for mine in stalls])),
        "t_begin": (("rank", "block"), np.tile(begin, (ranks, 1))),
        "length": (("rank", "block"), each(BLOCK_S)),
        "excluded": (("rank", "block"), each(0.001)),
        "run_delay": (("rank", "block"), each(0.0)),
        "cpu_time": (("rank", "block"), each(0.99)),
        "resumed": (("rank", "block"), np.tile(settled, (ranks, 1))),
        "iterations": (("rank", "block"), iterations),
        "involuntary": (("rank", "block"), each(0, "i8")),
        "stalls_lost": (("rank", "block"), each(0, "i8")),
        "stall_block": (("rank", "stall"), table[..., 0].astype("i4")),
        **{name: (("rank", "stall"), table[..., k + 1]) for k, name in enumerate(STALL_NAMES)},
        **{name: ("rank", np.full(ranks, value)) for name, value in per_rank.items()},
        "host": ("rank", np.array(["n000"] * ranks, object)),
        "agent_cpu": (("node", "block"), np.where(variant > 0, 0.011, 0.0)[None]),
        "keeper_cpu": (("node", "block"), np.zeros((1, blocks))),
        "agent_wakeups": (("node", "block"), np.where(variant > 0, 2, 0)[None]),
        "agent_drives": (("node", "block"), np.zeros((1, blocks), "i8")),
        "agent_drives_failed": (("node", "block"), np.zeros((1, blocks), "i8")),
    }
    told = {
        **dict(kind="run", study="run" if count < 2 else "compare", op="alltoall", size=1024, seed=seed),
        **dict(block_s=BLOCK_S, settle_s=SETTLE_S, rounds=list(rounds), spend=list(spend), periods_s=[1.0]),
        **dict(
            fold_weight=0.8,
            permutations=1999,
            variant_periods_s=[1.0] * (count + 1),
            shares=[1] * (count + 1),
            period_s=1.0,
            alpha=0.01,
            matters=0.001,
        ),
        **dict(
            grain_s=0.001, agent="noise source", oversubscribed=0, levels=[np.nan, *bursts_s], fresh_rounds=0
        ),
        **dict(placements=["anywhere", *["1"] * count], blocks_planned=blocks, blocks_measured=blocks),
    }
    raw = xr.Dataset(data, {"rank": np.arange(ranks), "block": np.arange(blocks)}, told | attrs)
    for name, what in RAW.items():
        if name in raw:
            raw[name].attrs = what.attrs()
    return raw


def ran_out_of_time(told: dict[str, Any]) -> bool:
    """Whether a measured run reports that its budget ended before a look, as it may on a busy machine."""
    codes = {warning["code"] for warning in told["warnings"]}
    reasons = {each["stop_reason"] for each in told.get("datasets", [told])}
    return reasons == {"budget"} and "noise.no_whole_segment" in codes


STALL_NAMES = ("stall_t", "stall_length", "stall_delay", "stall_gap")


def tree(raw: xr.Dataset) -> xr.DataTree:
    """The dataset of a run as `sonde.open` gives it."""
    root = xr.Dataset(attrs={"schema": "noise/1", "hostlist": "n000", "complete": 1, **raw.attrs})
    return xr.DataTree.from_dict({"/": root, "/raw": raw, "/summary": SCHEMA.analyse(raw)})

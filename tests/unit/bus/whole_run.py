"""A run of all tests with values that are known, as figures and commands need it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from probe_runs import made, near, planned, sealed

from sonde.bus.cases import TESTS, Case
from sonde.bus.plan import Plan
from sonde.bus.variants import variant_of

CYCLONE, FAST, SHM, RAW, SERVER = (
    variant_of("cyclonedds", "udp4"),
    variant_of("fastdds", "udp4"),
    variant_of("fastdds", "shm"),
    variant_of("raw", "udp4"),
    variant_of("fastdds", "udp4", "server"),
)
FACTOR = {CYCLONE.name: 1.0, FAST.name: 1.8, SHM.name: 0.4, RAW.name: 0.2, SERVER.name: 1.8}
CASES = (
    *(Case("latency", size) for size in (64, 1024, 16384)),
    *(Case("fanout", 64, n) for n in (1, 4, 16)),
    *(Case("discovery", entities=n, treatment="all") for n in (8, 16, 32, 64)),
    *(
        Case("partitions", 64, entities=n, treatment=t)
        for n in (1, 8)
        for t in ("topic", "partition", "domain")
    ),
    *(Case("throughput", 64, n, treatment=t) for n in (1, 4) for t in ("reliable", "best-effort")),
    *(Case("first-message", 64, treatment=t) for t in ("steady", "first-ever", "pause", "prefaulted")),
    *(Case("calls", 64, entities=n) for n in (1, 10)),
)
PLAN = planned(CASES, CYCLONE, FAST, SHM, RAW, SERVER)
FIRST = {"steady": 36e-6, "first-ever": 350e-6, "pause": 340e-6, "prefaulted": 349e-6}


def level(variant, case, epoch, rng):
    f, rtt = FACTOR.get(variant.name, 1.0), 40e-6
    match case.test:
        case "latency":
            one = f * rtt * (1 + case.size / 32768)
            some = {"rtt": near(rng, one), "publish": near(rng, one / 5), "one_way": near(rng, one / 2)}
            return some | {"cycles": near(rng, 9000 * f), "lost": 0.0}
        case "fanout":
            one = f * 1e-5 * case.subscribers
            return {
                "last": near(rng, 2e-5 + one, 3),
                "first": near(rng, 2e-5, 3),
                "publish": near(rng, 5e-6 + one, 3),
                "one_way": near(rng, 2e-5 + one / 2, 6),
            }
        case "discovery":
            n = case.entities
            datagrams = 80 * n if variant.name == SERVER.name else 2.37 * n * n
            return {
                "datagrams": near(rng, datagrams, 1),
                "wire_bytes": near(rng, 300 * datagrams, 1),
                "time_to_match": near(rng, 0.02 * n, 1),
                "cpu": near(rng, 0.01 * n, 1),
                "make_cycles": near(rng, 1e6 * n, 4),
            }
        case "partitions":
            cost = {"topic": 1.0, "partition": 1.0, "wildcard": 1.2, "domain": 0.8}[case.treatment]
            return {"publish": near(rng, f * cost * 1e-5), "cycles": near(rng, f * cost * 2e4)}
        case "throughput":
            lossy = case.treatment == "best-effort"
            rate = 3e5 / f * (2 if lossy else 1)
            lost = [0.08 if lossy else 0.0] * case.subscribers
            return {
                "message_rate": near(rng, rate, case.subscribers),
                "byte_rate": near(rng, 64 * rate, case.subscribers),
                "publish_rate": near(rng, rate, 1),
                "lost": lost,
            }
        case "first-message":
            n = 8 if case.treatment == "steady" else 1
            some = {"rtt": near(rng, f * FIRST.get(case.treatment, 349e-6), n, 0.02)}
            if case.treatment == "first-ever":
                others = near(rng, f * FIRST["steady"], 7, 0.02)
                some["early"] = np.concatenate([near(rng, f * FIRST["first-ever"], 1, 0.02), others])
            return some
        case "calls":
            return {
                "rtt": near(rng, f * 5e-5 * case.entities),
                "lost": 0.0,
                "mismatched": 0.0,
                "call_rate": near(rng, 1e4, 1),
            }
    return {}


def dataset(
    folder: Path,
    name: str = "bus",
    slower: dict[str, float] | None = None,
    lost: float = 0.0,
    plan: Plan = PLAN,
) -> Path:
    """A whole dataset. slower: by test, how many times as much its costs are. lost: more than usual, of throughput."""

    def changed(variant, case, epoch, rng):
        found = dict(level(variant, case, epoch, rng))
        factor = (slower or {}).get(case.test, 1.0)
        main = TESTS[case.test].quantity
        if main in found:
            found[main] = np.asarray(found[main]) * (1 / factor if "rate" in main else factor)
        if case.test == "throughput":
            found["lost"] = np.asarray(found["lost"]) + lost
        return found

    return sealed(folder, plan, made(plan, changed, 8), name).path

"""Against ddsperf, Cyclone DDS's own program, over the same library and loopback: reliable, one key, waitsets; a ping
and its answer keep-last 1, a stream keep-all, of which no datagram goes before it is full, as ddsperf's is."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import statistics
import subprocess
from pathlib import Path
from typing import Any

from bench.bus.programs import CYCLONE, Pair, domain, in_turn, ratio, workshop
from bench.rows import row

ROUNDS = 7
SIZES = (64, 1024, 16384)
STREAM_SIZES = (16, 1024, 16384)
TRIPS = 40_000
SECONDS = 4  # of ddsperf; its first second is left out
STREAM_S = 3.0
_PING = re.compile(r"size \d+ mean ([\d.]+)us min [\d.]+us 50% ([\d.]+)us 90% [\d.]+us 99% ([\d.]+)us")
_SUB = re.compile(r"total (\d+) lost (\d+) delta \d+ lost \d+ rate ([\d.]+) kS/s")


def rows() -> list[dict[str, Any]]:
    """Rows of this bench."""
    if not shutil.which("ddsperf"):
        return [
            row("against ddsperf", ">= 0.9x", None, None, None, "ddsperf is not installed (cyclonedds-tools)")
        ]
    with workshop() as folder:
        out = [each for size in SIZES for each in _latency(folder, size)]
        return out + [each for size in STREAM_SIZES for each in _streams(folder, size)]


def _both(at: str, first: list[str], second: list[str]) -> tuple[str, str]:
    """What two ddsperfs of a domain say; the first runs a second longer."""
    environment = os.environ | {"CYCLONEDDS_URI": CYCLONE}
    keywords: dict[str, Any] = {
        "env": environment,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.DEVNULL,
        "text": True,
    }
    one = subprocess.Popen(["ddsperf", "-i", at, "-D", str(SECONDS + 1), *first], **keywords)
    try:
        two = subprocess.run(["ddsperf", "-i", at, "-D", str(SECONDS), *second], **keywords, check=False)
        return one.communicate(timeout=30)[0], str(two.stdout)
    finally:
        one.kill()
        one.wait()


def _cpu_s() -> float:
    """Of all programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _latency(folder: Path, size: int) -> list[dict[str, Any]]:
    def perf(trigger: str) -> dict[str, float]:
        said = _both(domain(), ["pong", trigger], ["ping", "size", str(size), trigger])[1]
        # It tells half of the way there and back.
        seconds = [tuple(2 * float(us) for us in line) for line in _PING.findall(said)][1:]
        mean, median, p99 = (statistics.median(each) for each in zip(*seconds, strict=True))
        return {"mean": mean, "median": median, "p99": p99}

    with Pair() as pair:

        def bus(*how: str) -> dict[str, float]:
            at, words = domain(), [str(size), str(TRIPS), "keyed", *how]
            ends = [
                [str(folder / "through_bus"), "cyclonedds", "udp4", mode, at, *words]
                for mode in ("pong", "ping")
            ]
            return dict(pair.talk(*ends)[0]["rtt_us"])

        ways = {"bus": bus, "waitset": lambda: perf("waitset"), "listener": lambda: perf("listener")}
        more = {"looks": lambda: bus("spin"), "again": lambda: perf("waitset")}
        got = in_turn(ROUNDS, ways | more)
    out = []
    for key in ("median", "p99"):
        value, between = ratio(*([each[key] for each in got[name]] for name in ("waitset", "again")))
        what = f"{size} B, RTT {key}: ddsperf, waitset, against itself in the same rounds"
        out.append(row(what, "(reported)", value, between, None, "what rounds of one program differ by"))
    for key in ("median", "p99"):
        own, theirs = ([each[key] for each in got[name]] for name in ("looks", "waitset"))
        value, between = ratio(theirs, own)
        note = f"{statistics.median(own):.1f} us against {statistics.median(theirs):.1f} us"
        note += "; with the spin that a profile has by default"
        what = f"{size} B, RTT {key}: the bus that looks before it sleeps against ddsperf, waitset"
        out.append(row(what, "(reported)", value, between, None, note))
    for trigger in ("waitset", "listener"):
        for key in ("median", "p99"):
            own, theirs = ([each[key] for each in got[name]] for name in ("bus", trigger))
            value, between = ratio(theirs, own)
            barred = trigger == "waitset"
            note = f"{statistics.median(own):.1f} us against {statistics.median(theirs):.1f} us"
            note += f"; {ROUNDS} rounds in turn, quartiles"
            note += "" if barred else "; it answers from the DDS's own thread, which the bus does not offer"
            bar = ">= 0.9x" if barred else "(reported)"
            what = f"{size} B, RTT {key}: the bus against ddsperf, {trigger}"
            out.append(row(what, bar, value, between, (lambda v: v >= 0.9) if barred else None, note))
    return out


def _streams(folder: Path, size: int) -> list[dict[str, Any]]:
    def perf() -> dict[str, float]:
        before = _cpu_s()
        said = _both(
            domain(), ["-1", "-k", "all", "sub", "waitset"], ["-k", "all", "pub", "size", str(size)]
        )[0]
        seconds = _SUB.findall(said)
        return {
            "per_s": statistics.median(float(s[2]) * 1e3 for s in seconds[1:-1]),
            "lost": float(seconds[-1][1]),
            "cpu_ns": 1e9 * (_cpu_s() - before) / float(seconds[-1][0]),
        }

    with Pair() as pair:

        def bus() -> dict[str, float]:
            at, before = domain(), _cpu_s()
            ends = [
                [
                    str(folder / "through_bus"),
                    "cyclonedds",
                    "udp4",
                    mode,
                    at,
                    str(size),
                    str(STREAM_S),
                    "keyed",
                ]
                for mode in ("drain", "flood")
            ]
            sent, drain = pair.talk(*ends)
            read = json.loads(drain.communicate(timeout=30)[0])
            cpu_ns = 1e9 * (_cpu_s() - before) / read["got"]
            return {"per_s": read["per_s"], "lost": sent["sent"] - read["got"], "cpu_ns": cpu_ns}

        got = in_turn(ROUNDS, {"bus": bus, "ddsperf": perf, "again": perf})
    rates = {name: [each["per_s"] for each in got[name]] for name in got}
    lost = {name: sum(each["lost"] for each in got[name]) for name in got}
    value, between = ratio(rates["bus"], rates["ddsperf"])
    note = (
        f"{statistics.median(rates['bus']) / 1e3:.0f} k/s, {lost['bus']:.0f} lost, against "
        f"{statistics.median(rates['ddsperf']) / 1e3:.0f} k/s, {lost['ddsperf']:.0f} lost; {ROUNDS} rounds in turn"
    )
    what = f"{size} B, samples/s received: the bus against ddsperf"
    out = [row(what, ">= 0.9x", value, between, lambda v: v >= 0.9, note)]
    value, between = ratio(rates["again"], rates["ddsperf"])
    what = f"{size} B, samples/s received: ddsperf against itself in the same rounds"
    out.append(row(what, "(reported)", value, between, None, "what rounds of one program differ by"))
    cpu = {name: [each["cpu_ns"] for each in got[name]] for name in got}
    value, between = ratio(cpu["bus"], cpu["ddsperf"])
    note = (
        f"{statistics.median(cpu['bus']):.0f} ns a sample against {statistics.median(cpu['ddsperf']):.0f} ns"
    )
    note += "; of both programs, with their start and end"
    return [
        *out,
        row(f"{size} B, CPU a sample: the bus against ddsperf", "(reported)", value, between, None, note),
    ]

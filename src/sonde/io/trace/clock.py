"""Convert ticks of many processes on many hosts to one time: ns since the first process began."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median_low

import numpy as np

from sonde.core.errors import Warning
from sonde.io.trace.collectives import Calls, Line, line, matched

# Minimum time between two readings of both clocks that give the length of a tick: each is accurate to some 50 ns.
LEAST_NS = 1_000_000


@dataclass
class _Host:
    ticks: list[int] = field(default_factory=list)
    ns: list[int] = field(default_factory=list)
    began_ns: list[int] = field(
        default_factory=list
    )  # begins of processes, and the offsets of the time-of-day clock at these moments
    day_ns: list[int] = field(default_factory=list)
    ns_per_tick: float = float("nan")
    zero_ticks: int = 0
    zero_ns: int = 0  # of zero_ticks, since the first process began
    line: Line | None = None  # the offset of this clock to the first host's


class Clocks:
    """Filled by `add`; converts after `settle`.

    Hosts are aligned by their time-of-day clocks, which a time service keeps within some 0.1 ms in a cluster; if an MPI
    program made collective calls, by these (`align`), to within some latencies of the network.
    """

    def __init__(self) -> None:
        self.warnings: list[Warning] = []
        self.zero_utc_ns = 0
        self._hosts: dict[str, _Host] = {}
        self._first = ""
        self._shift_ns = 0

    def add(self, host: str, ticks: int, ns: int, utc_ns: int | None = None) -> None:
        """Add one moment on a host: its ticks, its monotonic clock, and its time-of-day clock if that was read."""
        one = self._hosts.setdefault(host, _Host())
        one.ticks.append(ticks)
        one.ns.append(ns)
        if utc_ns is not None:
            one.began_ns.append(ns)
            one.day_ns.append(utc_ns - ns)

    def settle(self, hosts: Iterable[str]) -> None:
        """hosts: those of the processes; the first is the reference for the other clocks."""
        names = list(dict.fromkeys(hosts))
        self._first = names[0] if names else ""
        for name in names:
            self._rate(name)
        known = [self._hosts[name].ns_per_tick for name in names]
        usual = float(np.nanmedian(known)) if np.isfinite(known).any() else 1.0
        starts = []
        for name in names:
            one = self._hosts[name]
            if not np.isfinite(one.ns_per_tick):
                one.ns_per_tick = usual
                self.warnings.append(
                    Warning(
                        "io.tick_unknown",
                        f"{name} was traced for less than {LEAST_NS / 1e6:g} ms, too short to measure the "
                        f"length of its clock's ticks; the ticks of other hosts are used, {usual:.6g} ns",
                        "its durations may be wrong by the difference between the processors",
                    )
                )
            day = median_low(one.day_ns)
            starts.append(min(one.began_ns) + day)
            one.zero_ticks, one.zero_ns = one.ticks[0], one.ns[0] + day
        self.zero_utc_ns = min(starts, default=0)
        for name in names:
            self._hosts[name].zero_ns -= self.zero_utc_ns

    def _rate(self, name: str) -> None:
        one = self._hosts[name]
        low, high = int(np.argmin(one.ns)), int(np.argmax(one.ns))
        elapsed_ns, elapsed = one.ns[high] - one.ns[low], one.ticks[high] - one.ticks[low]
        if elapsed_ns >= LEAST_NS and elapsed > 0:
            one.ns_per_tick = elapsed_ns / elapsed

    def align(self, ranks: Sequence[Calls]) -> None:
        """Align the hosts by collective calls. Call it after `settle`. ranks: all of the program, in order."""
        hosts = list(dict.fromkeys(one.host for one in ranks))
        if len(hosts) < 2 or (found := matched(ranks)) is None:
            return
        entries, exits = found
        last: dict[str, np.ndarray] = {}  # entry
        first: dict[str, np.ndarray] = {}  # exit
        for one, entry, leave in zip(ranks, entries, exits):
            entry_ns, leave_ns = self.ns(one.host, entry), self.ns(one.host, leave)
            last[one.host] = np.maximum(last.get(one.host, entry_ns), entry_ns)
            first[one.host] = np.minimum(first.get(one.host, leave_ns), leave_ns)
        # The first host's clock is the reference for the others, even if that host has no rank.
        base = self._first if self._first in hosts else hosts[0]
        for host in hosts:
            if host == base:
                continue
            ends = [float(self.ns(host, ticks)) for ticks in self._hosts[host].ticks]
            put = line((last[base], first[base]), (last[host], first[host]), min(ends), max(ends))
            if put is None:
                self.warnings.append(
                    Warning(
                        "io.clocks_disagree",
                        f"the collective calls of the ranks show that the clocks of {base} and {host} did "
                        f"not both run evenly; times of {host} rely on its time-of-day clock",
                        "do not compare times of these hosts; a clock may have been set during the run",
                    )
                )
            else:
                self._hosts[host].line = put
        self._set_zero()

    def _set_zero(self) -> None:
        """Set time zero to the moment when the first process began, by the aligned clocks."""
        starts = []
        for name, one in self._hosts.items():
            if one.began_ns:
                first = int(np.argmin(one.began_ns))
                began = one.began_ns[first] - one.ns[0]  # since zero_ticks
                starts.append((float(self._corrected(one, np.float64(one.zero_ns + began))), name))
        sooner = round(min(starts)[0]) if starts else 0
        self._shift_ns = sooner
        self.zero_utc_ns += sooner

    def _corrected(self, one: _Host, ns: np.ndarray | np.float64) -> np.ndarray | np.float64:
        return ns if one.line is None else ns - one.line.at(np.asarray(ns))

    def ns(self, host: str, ticks: np.ndarray | int) -> np.ndarray:
        """Time since the first process began, ns, as floats; an int gives an array without dims."""
        one = self._hosts[host]
        since = np.asarray(ticks, np.uint64).astype(np.int64) - np.int64(one.zero_ticks)
        return np.asarray(self._corrected(one, since * one.ns_per_tick + one.zero_ns) - self._shift_ns)

    def ns_per_tick(self, host: str) -> float:
        """The length of a tick on a host, ns."""
        return self._hosts[host].ns_per_tick

    def offset_s(self, host: str) -> float:
        """The offset of its time-of-day clock to the first host's when the first process began, s; 0 if unknown."""
        put = self._hosts[host].line
        if put is None:
            return 0.0
        shown = (self._shift_ns + put.offset) / (
            1 - put.drift
        )  # by its own clock, when the first host's showed _shift_ns
        return (shown - self._shift_ns) / 1e9

    def drift(self, host: str) -> float:
        """The relative rate of its clock to the first host's, s/s; 0 if unknown."""
        put = self._hosts[host].line
        return put.drift if put else 0.0

    def error_s(self, host: str) -> float:
        """Error of `offset_s`, s: 0 on the first host, NaN if only time-of-day clocks were compared."""
        put = self._hosts[host].line
        return 0.0 if host == self._first else put.error / 1e9 if put else float("nan")

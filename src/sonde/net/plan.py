"""The plan of a run of sonde-net, before anything is started. Pure: from options to a command line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sonde.core.errors import UsageError, Warning
from sonde.core.rules import check_rule
from sonde.net.modes import Mode

PAIRINGS = ("auto", "parallel", "serial")


@dataclass(frozen=True)
class Plan:
    """The settings that decide what is measured, in which order, and when it is enough.

    sizes: B. pairs: unordered pairs of ranks, empty for all. gap_s: shortest time between the beginnings of two epochs.
    burst_s: longest time of one burst; it limits its samples for slow messages. cap: largest number of samples per
    cell. inject_*: errors added on purpose, for tests; a dataset made with them records this.
    """

    modes: tuple[Mode, ...]
    sizes: tuple[int, ...]
    ntasks: int
    rule: str = "ci:1%"
    value: str | None = None
    pairing: str = "auto"
    pairs: tuple[tuple[int, int], ...] = ()
    seed: int = 1
    cap: int = 20000
    epoch_length: int = 50
    warmup: int = 2
    gap_s: float = 0.0
    burst_s: float = 0.02
    noise_bytes: int = 65536
    noise_ranks: int = 2
    forward: bool = False
    inject_clock: str = ""
    inject_slow: str = ""
    labels: dict[str, Any] = field(default_factory=dict)  # further root attributes

    def __post_init__(self) -> None:
        if self.ntasks < 2:
            raise UsageError(
                "net.too_few_ranks",
                f"a delay needs two ranks, and --ntasks is {self.ntasks}",
                "give --ntasks 2 or more",
            )
        check_rule(self.rule)
        chosen = [mode.name for mode in self.modes if mode.value_choice]
        if self.value and not chosen:
            raise UsageError(
                "net.no_value_choice",
                f"--value {self.value} has no meaning for {', '.join(m.name for m in self.modes)}",
                "leave --value out, or use --mode one_to_one",
            )
        for a, b in self.pairs:
            if not (0 <= a < self.ntasks and 0 <= b < self.ntasks and a != b):
                raise UsageError(
                    "net.bad_pair",
                    f"pair {a}-{b} is not a pair of two of the {self.ntasks} ranks (0 to {self.ntasks - 1})",
                    "give pairs as 0-1,2-5",
                )

    @property
    def samples(self) -> dict[str, tuple[str, str]]:
        """Per mode: the meaning of a sample, and the rank that takes it."""
        return {mode.name: mode.sample(self.value) for mode in self.modes}

    @property
    def cells(self) -> int:
        """(src, dst, size) cells over all modes."""
        n = self.ntasks
        pairs = 2 * len(self.pairs) if self.pairs else n * (n - 1)
        per_mode = [pairs if m.pattern in ("pairs", "one_pair") else n * (n - 1) for m in self.modes]
        return sum(per_mode) * len(self.sizes)

    def steps(self, parallel: bool) -> int:
        """Steps of one epoch: the number of times that ranks meet one after the other."""
        n = self.ntasks
        pairs = len(self.pairs) or n * (n - 1) // 2
        rounds = n - 1 if n % 2 == 0 else n
        each = {
            "pairs": min(rounds, pairs) if parallel else pairs,
            "one_pair": pairs,
            "everyone": 1,
            "rooted": n,
        }
        return sum(each[mode.pattern] for mode in self.modes) * len(self.sizes)

    def argv(self, run_dir: str, budget_s: float) -> list[str]:
        """sonde-net's arguments, without its own name. budget_s: time for measuring, s; 0: no limit."""
        arguments = {
            "--dir": run_dir,
            "--modes": ",".join(mode.name for mode in self.modes),
            "--sizes": ",".join(map(str, self.sizes)),
            "--rule": self.rule,
            "--seed": str(self.seed),
            "--cap": str(self.cap),
            "--epoch-length": str(self.epoch_length),
            "--warmup": str(self.warmup),
            "--gap-s": f"{self.gap_s:.6g}",
            "--burst-s": f"{self.burst_s:.6g}",
            "--budget-s": f"{budget_s:.6g}",
            "--pairing": self.pairing,
            "--noise-bytes": str(self.noise_bytes),
            "--noise-ranks": str(self.noise_ranks),
            "--forward": "yes" if self.forward else "no",
        }
        if self.value:
            arguments["--value"] = self.value
        if self.pairs:
            arguments["--pairs"] = ",".join(f"{a}-{b}" for a, b in self.pairs)
        if self.inject_clock:
            arguments["--inject-clock"] = self.inject_clock
        if self.inject_slow:
            arguments["--inject-slow"] = self.inject_slow
        return [argument for pair in arguments.items() for argument in pair]

    def document(self, facts: dict[str, Any]) -> dict[str, Any]:
        """The plan as stored in run.json and read by `NetSchema.layout`. facts: pairing, transport, …"""
        document: dict[str, Any] = {
            "ranks": self.ntasks,
            "sizes": list(self.sizes),
            "modes": [mode.name for mode in self.modes],
            "values": {name: kind for name, (kind, _) in self.samples.items()},
            "measured_by": {name: taker for name, (_, taker) in self.samples.items()},
            "epoch_length": self.epoch_length,
            "rule": self.rule,
            **facts,
        }
        noisy = [mode.name for mode in self.modes if mode.pattern == "one_pair"]
        if noisy:  # values for the headers of clustbench's files of these modes
            makers = min(self.noise_ranks, self.ntasks - 2) // 2 * 2  # they make noise in pairs
            document["noise"] = {
                name: {"noise_bytes": self.noise_bytes, "noise_ranks": makers} for name in noisy
            }
        if self.pairs:
            document["pairs"] = [list(pair) for a, b in self.pairs for pair in ((a, b), (b, a))]
        return document

    def warnings(self) -> list[Warning]:
        """Warnings for a reader of the result, as far as the plan alone shows them."""
        out = []
        noisy = [mode.name for mode in self.modes if mode.pattern == "one_pair"]
        if noisy and (self.ntasks < 4 or self.noise_ranks < 2):
            out.append(
                Warning(
                    "net.no_noise",
                    f"{', '.join(noisy)}: {self.ntasks} ranks and {self.noise_ranks} noise ranks leave no pair "
                    "to make noise",
                    "give --ntasks 4 or more and --noise-ranks 2 or more",
                )
            )
        if any(mode.name == "bcast" for mode in self.modes) and 0 in self.sizes:
            out.append(
                Warning(
                    "net.empty_bcast",
                    "a broadcast of 0 B sends nothing: its delay is that of the call",
                    "leave 0 out of --sizes for bcast",
                )
            )
        if missed := str(self.labels.get("unclassed_pairs", "")):
            count = missed.count(",") + 1
            out.append(
                Warning(
                    "net.unclassed_links",
                    f"the first pass of --by-class had no time for {count} link{'' if count == 1 else 's'}: each "
                    "is its own class",
                    "give a longer --budget",
                )
            )
        if self.inject_clock or self.inject_slow:
            put_in = " ".join(filter(None, (self.inject_clock, self.inject_slow)))
            out.append(
                Warning(
                    "net.injected",
                    f"errors were added on purpose: {put_in}",
                    "this is a test, not a measurement",
                )
            )
        return out


def read_pairs(text: str) -> tuple[tuple[int, int], ...]:
    """Pairs of ranks from "0-1,2-5".

    Raises
    ------
    UsageError  net.bad_pair.
    """
    pairs = []
    for part in text.split(","):
        ends = part.strip().split("-")
        if len(ends) != 2 or not all(end.isdecimal() for end in ends) or int(ends[0]) == int(ends[1]):
            raise UsageError("net.bad_pair", f"'{part}' is not a pair of two ranks", "give pairs as 0-1,2-5")
        pairs.append((min(map(int, ends)), max(map(int, ends))))
    return tuple(dict.fromkeys(pairs))


def read_pair(text: str) -> tuple[int, int]:
    """One ordered pair of ranks from "0,1" or "0-1".

    Raises
    ------
    UsageError  net.bad_pair.
    """
    ends = text.replace("-", ",").split(",")
    if len(ends) != 2 or not all(end.strip().isdecimal() for end in ends) or int(ends[0]) == int(ends[1]):
        raise UsageError("net.bad_pair", f"'{text}' is not a pair of two ranks", "give a pair as 0,1")
    return int(ends[0]), int(ends[1])


def gap_for(budget_s: float | None) -> float:
    """Time between epochs that spreads a run over its budget and still leaves 200 epochs, s; at most 0.25 s."""
    return 0.0 if budget_s is None else min(0.25, budget_s / 200)

"""Runs sonde-net, and names the next command. The only module of the room that touches the machine."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core import dataset_file, other_programs
from sonde.core.deadline import within
from sonde.core.errors import Interrupted, UsageError
from sonde.core.events import Event, Progress
from sonde.core.launch import session
from sonde.core.launch.measured import Measured
from sonde.core.launch.session import Job
from sonde.core.launch.start import Start
from sonde.core.printable import printable
from sonde.core.units import format_share
from sonde.net.cells import MAX_FITTED
from sonde.net.plan import Plan
from sonde.net.sealing import SCHEMA

if TYPE_CHECKING:
    from sonde.net.classes import Classes
    from sonde.net.links import LinkTest
    from sonde.net.pairs import Pairs

FIRST_PASS = 60  # samples per cell in the first pass of --by-class
REPRESENTATIVES = 4  # measured links per class
CONTROLS = 8  # ordinary links that a second test measures together with its suspects

# The part of a budget that is reserved for the end: sealing and analysis, at most END_SHARE. The number of fitted cells
# depends on the remaining time, at least FEWEST_FITTED.
RESERVE_SHARE, RESERVE_S, RESERVE_CELL_S, RESERVE_FIT_S = 0.05, 1.0, 0.0005, 0.06
END_SHARE, FEWEST_FITTED = 0.5, 8


@dataclass(frozen=True)
class Request:
    """A measurement: its plan, its settings, its dataset (with several modes, <stem>-<mode>.nc).

    command: the user's command line, for the dataset. budget_s: time for everything since `began` (time.monotonic),
    start-up and analysis included; None: no limit. timeout_s: how long the probe may be silent before it counts as
    stuck.
    """

    plan: Plan
    start: Start
    out: Path
    command: tuple[str, ...]
    budget_s: float | None
    began: float
    timeout_s: float = 60.0

    def job(self) -> Job:
        """The run of sonde-net that measures it."""
        plan = self.plan
        return Job(
            schema=SCHEMA,
            start=self.start,
            ntasks=plan.ntasks,
            words=plan.argv,
            plan=plan.document({}),
            out=self.out,
            command=self.command,
            seed=plan.seed,
            time_s=self.left_s,
            deadline=within(self.budget_s, self.began),
            timeout_s=self.timeout_s,
            attrs={"pairing": plan.pairing, **plan.labels, **_fitted(plan, self.budget_s)},
            warnings=plan.warnings(),
        )

    def left_s(self) -> float:
        """The time left for measuring; 0: no limit."""
        return 0.0 if self.budget_s is None else _left(self.plan, self.budget_s, self.began)


BUSY_HOST = 0.25  # a host of which others use more is named in a warning


class Listener(session.Listener):
    """The events of sonde-net in addition to those of every probe: how it pairs ranks."""

    room = "net"
    sample_kinds = (0,)  # bursts; verdicts and clocks are not samples
    crowded = (
        "delays include the kernel's switching between them",
        "use no more ranks than cores to measure only the interconnect",
    )
    dropped = ("bursts", "fewer sizes or a shorter --epoch-length need less room")
    patience = "raise --timeout for very long messages, or exclude the host that hangs with --hosts '^NAME'"

    def take(self, event: Event) -> None:
        super().take(event)
        if event["event"] == "pairing":
            self._pairing(event)
        elif event["event"] == "end":
            self._other_programs(event)

    def _other_programs(self, event: Event) -> None:
        """Store the share of the processors' time that other programs took on each host, and warn of busy hosts."""
        shares = other_programs.by_host(event)
        if not shares:
            return
        self.attrs[other_programs.HOSTS] = list(shares)
        self.attrs[other_programs.SHARES] = list(shares.values())
        busy = {host: share for host, share in shares.items() if share > BUSY_HOST}
        if busy and len(shares) > 1:
            worst = max(busy, key=lambda host: busy[host])
            rest = f" and up to that on {len(busy) - 1} more" if len(busy) > 1 else ""
            self.warn(
                "busy_hosts",
                f"other programs took {format_share(busy[worst])} of the processors' time on {printable(worst)}{rest} "
                "during the measurement: a slow host may be slow because of them",
                "measure again when they have ended",
            )

    def _pairing(self, event: Event) -> None:
        self.attrs["pairing"] = event["pairing"]
        self.attrs["steps"] = event["steps"]
        if (ratio := event.get("interference_median")) is None:
            return
        worst = event.get("interference_worst", ratio)
        self.attrs["interference_ratio"] = ratio
        self.attrs["interference_worst"] = worst
        if event["pairing"] == "serial":
            self.warn(
                "pairs_interfere",
                f"pairs measured at the same time slow each other by a factor of {ratio:.2f} (worst {worst:.2f}), "
                "so they were measured one by one",
                "--pairing parallel measures them together nevertheless",
            )


def measure(request: Request, progress: Progress) -> Measured:
    """Measure, and seal the data, however the measurement ended. progress: shows the events.

    Returns and raises what `session.run` does.
    """
    return session.run(request.job(), Listener(progress))


def measure_by_class(request: Request, bar: Callable[[str, float | None], Progress]) -> Measured:
    """Find the classes of links in a short first pass, then measure REPRESENTATIVES links of each.

    The first pass measures every pair, with few samples of a few lengths; it may use a third of the budget. Only the
    second pass is stored; its dataset records the number of links behind each pair. A pair that the first pass did not
    reach in time represents only itself and is measured, too.
    """
    import sonde
    from sonde.net.classes import link_classes
    from sonde.net.pairs import pairs_of

    plan = request.plan
    few = sorted({plan.sizes[round(k * (len(plan.sizes) - 1) / 3)] for k in range(4)})
    mode = next((mode for mode in plan.modes if mode.pattern == "pairs"), None)
    if mode is None:
        raise UsageError(
            "net.no_pairs",
            f"--by-class chooses pairs, and {', '.join(m.name for m in plan.modes)} measures all ranks at once",
            "use --mode one_to_one, or leave --by-class out",
        )
    first = replace(
        plan, modes=(mode,), sizes=tuple(few), rule=f"fixed:{FIRST_PASS}", epoch_length=20, gap_s=0.0
    )
    share = None if request.budget_s is None else request.budget_s / 3
    with tempfile.TemporaryDirectory(prefix="sonde-net-") as scratch:
        scout = replace(request, plan=first, out=Path(scratch) / "classes.nc", budget_s=share)
        found = measure(scout, bar("classes of links", share))
        if found.error is not None:
            raise found.error
        if found.interrupted:
            raise Interrupted("net.interrupted", "interrupted in the first pass, which is not stored")
        with sonde.open(found.paths[0]) as tree:
            links = pairs_of(tree["summary"].to_dataset().load())
            classes = link_classes(links)
    chosen = representatives(links, classes, plan.seed)
    missed = unseen(links, plan.ntasks)
    labels: dict[str, Any] = {
        "selection": "by-class",
        "link_classes": len(classes),
        "class_links": ",".join(str(int(count)) for count in classes.count),
        "class_pairs": ";".join(",".join(f"{a}-{b}" for a, b in pairs) for pairs in chosen),
    }
    if missed:
        labels["unclassed_pairs"] = ",".join(f"{a}-{b}" for a, b in missed)
    pairs = tuple(sorted({pair for pairs in [*chosen, missed] for pair in pairs}))
    return measure(
        replace(request, plan=replace(plan, pairs=pairs, labels=labels)), bar("net run", request.budget_s)
    )


@dataclass(frozen=True)
class Suspects:
    """The links of a first run that should be measured again.

    pairs: suspects and controls. suspects: as for `after_retest`.
    """

    pairs: tuple[tuple[int, int], ...]
    suspects: list[tuple[int, int]]
    ranks: int
    sizes: tuple[int, ...]
    mode: str


def suspects_in(path: Path, seed: int) -> Suspects:
    """Links of a dataset that may be slow, and CONTROLS ordinary ones that show whether the whole machine moved.

    Raises
    ------
    DataError  as `sonde.open`.
    """
    import sonde
    from sonde.net.figures import summary_of
    from sonde.net.links import pairs_to_retest, slow_links
    from sonde.net.pairs import pairs_of

    with sonde.open(path) as tree:
        summary = summary_of(tree).load()
        mode = str(tree.attrs.get("mode", "one_to_one"))
    links = pairs_of(summary)
    expected = summary["class_expected"].values[links.src, links.dst]
    chosen = pairs_to_retest(slow_links(links, expected), links)
    ordinary = [pair for pair in zip(links.src.tolist(), links.dst.tolist()) if pair not in set(chosen)]
    drawn = np.random.default_rng(seed).permutation(len(ordinary))[:CONTROLS]
    pairs = {(min(pair), max(pair)) for pair in [*chosen, *(ordinary[k] for k in drawn)]}
    sizes = tuple(int(size) for size in summary["size"].values)
    return Suspects(tuple(sorted(pairs)) if chosen else (), chosen, summary.sizes["src"], sizes, mode)


def judge_again(first: Path, again: Path, suspects: Suspects) -> LinkTest:
    """The verdict on suspects, from the second run only."""
    import sonde
    from sonde.net.figures import summary_of
    from sonde.net.links import after_retest, slow_links
    from sonde.net.pairs import pairs_of

    with sonde.open(first) as tree:
        summary = summary_of(tree).load()
    with sonde.open(again) as tree:
        fresh = pairs_of(summary_of(tree).load())
    links = pairs_of(summary)
    classes = summary["class_expected"].values[links.src, links.dst]
    return after_retest(slow_links(links, classes), links, classes, fresh, suspects.suspects)


def representatives(links: Pairs, classes: Classes, seed: int) -> list[list[tuple[int, int]]]:
    """For each class its median link, its slowest link, and others by seed: at most REPRESENTATIVES."""
    rng = np.random.default_rng(seed)
    out = []
    for k in range(len(classes)):
        rows = np.flatnonzero(classes.label == k)
        level = np.nanmean(links.log_latency[rows], axis=1)
        order = rows[np.argsort(level)]
        picked = [int(order[len(order) // 2]), int(order[-1])]
        rest = [int(row) for row in rng.permutation(rows) if row not in picked]
        picked = list(dict.fromkeys(picked + rest))[:REPRESENTATIVES]
        ends = ((int(links.src[row]), int(links.dst[row])) for row in picked)
        out.append(sorted({(min(pair), max(pair)) for pair in ends}))
    return out


def unseen(links: Pairs, ntasks: int) -> list[tuple[int, int]]:
    """Unordered pairs of `ntasks` ranks without data in `links`, in order."""
    seen = {(min(a, b), max(a, b)) for a, b in zip(links.src.tolist(), links.dst.tolist())}
    return [pair for pair in combinations(range(ntasks), 2) if pair not in seen]


def drop_raw(measured: Measured) -> None:
    """Remove /raw from the result; the summary stays, with counts, verdicts and places of the ranks.

    Raises
    ------
    EnvironmentFailure  core.disk_full, core.cannot_write; the dataset is then complete.
    """
    import sonde
    from sonde.core import dataset

    for path in measured.paths:
        with sonde.open(path) as tree:
            summary = tree["summary"].to_dataset().load()  # it contains counts, verdicts and places too
            attrs = dataset.attrs(tree)
            env = dataset.attrs(tree.children["env"])
            warnings = dataset.warnings_of(tree)
        dataset_file.write_dataset(path, None, summary, attrs, env, warnings)


def _left(plan: Plan, budget_s: float, began: float) -> float:
    """The time for measuring. Never 0: even if the budget is too short for the end, the first epoch is measured."""
    most = _fitted(plan, budget_s).get("fitted_at_most", MAX_FITTED)
    reserve = _reading(plan, budget_s) + RESERVE_FIT_S * min(plan.cells, most * len(plan.modes))
    return max(0.2, budget_s - (time.monotonic() - began) - min(reserve, END_SHARE * budget_s))


def _reading(plan: Plan, budget_s: float) -> float:
    """The time of the end without fits, s."""
    return RESERVE_S + RESERVE_SHARE * budget_s + RESERVE_CELL_S * plan.cells


def _fitted(plan: Plan, budget_s: float | None) -> dict[str, int]:
    """The number of cells of a mode that can be fitted at the end of a budget, for the dataset; {} for no limit."""
    if budget_s is None:
        return {}
    time_s = END_SHARE * budget_s - _reading(plan, budget_s)
    most = max(FEWEST_FITTED, int(time_s / RESERVE_FIT_S / len(plan.modes)))
    return {"fitted_at_most": most} if most < MAX_FITTED else {}

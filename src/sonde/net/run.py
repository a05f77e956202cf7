"""Runs sonde-net and says what to run next. The only module of the room that touches the machine."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core import seal
from sonde.core.deadline import within
from sonde.core.errors import Interrupted, UsageError
from sonde.core.events import Event, Progress
from sonde.core.launch import session
from sonde.core.launch.measured import Measured
from sonde.core.launch.session import Job
from sonde.core.launch.start import Start
from sonde.net.cells import FITTED
from sonde.net.plan import Plan
from sonde.net.schema import SCHEMA

if TYPE_CHECKING:
    from sonde.net.classes import Classes
    from sonde.net.links import LinkTest
    from sonde.net.pairs import Pairs

FIRST_PASS = 60  # samples a cell of --by-class's first pass
REPRESENTATIVES = 4  # links measured of each class
CONTROLS = 8  # ordinary links that a re-test measures beside its suspects

# Of a budget, what is kept for the end: sealing and analysis. Of it at most END_SHARE, so cells are fitted for
# as many as that leaves time for, FEWEST_FITTED at least.
RESERVE_SHARE, RESERVE_S, RESERVE_CELL_S, RESERVE_FIT_S = 0.05, 1.0, 0.0005, 0.06
END_SHARE, FEWEST_FITTED = 0.5, 8


@dataclass(frozen=True)
class Request:
    """What is to be measured, with what, into which dataset (of several modes, <stem>-<mode>.nc).

    command: what the user typed, for the dataset. budget_s: time for all of it since `began`
    (time.monotonic), start-up and analysis included; None: no limit. timeout_s: how long the probe may be
    silent before it is taken for stuck.
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
        """Time that measuring may take from now on; 0: no limit."""
        return 0.0 if self.budget_s is None else _left(self.plan, self.budget_s, self.began)


class Listener(session.Listener):
    """What sonde-net says besides what every probe says: how it pairs ranks."""

    room = "net"
    sample_kinds = (0,)  # bursts; verdicts and clocks are none
    crowded = (
        "delays hold the kernel's switching between them",
        "give no more ranks than cores to know the interconnect alone",
    )
    dropped = ("bursts", "fewer sizes or a shorter --epoch-length need less room")
    patience = "raise --timeout for very long messages, or leave out the host that hangs with --hosts '^NAME'"

    def take(self, event: Event) -> None:
        super().take(event)
        if event["event"] == "pairing":
            self._pairing(event)

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
                f"pairs measured at the same time cost each other a factor of {ratio:.2f} (worst {worst:.2f}), "
                "so they were measured one by one",
                "--pairing parallel measures them together all the same",
            )


def measure(request: Request, progress: Progress) -> Measured:
    """Measures, and seals what was measured, however it ended. progress: where events are shown.

    Returns and raises what `session.run` does.
    """
    return session.run(request.job(), Listener(progress))


def measure_by_class(request: Request, bar: Callable[[str, float | None], Progress]) -> Measured:
    """Finds the classes of links in a short first pass, then measures REPRESENTATIVES links of each.

    The first pass visits every pair, with few samples of a few lengths; it may take a third of the budget.
    Only
    the second pass is kept; its dataset says which pairs stood for how many. A pair that the first pass did not
    get to before its time was over stands for itself and is measured, too.
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
            raise Interrupted("net.interrupted", "interrupted in the first pass, which is not kept")
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
    """What a first run says should be measured again.

    pairs: suspects and controls. suspects: as `after_retest` takes them.
    """

    pairs: tuple[tuple[int, int], ...]
    suspects: list[tuple[int, int]]
    ranks: int
    sizes: tuple[int, ...]
    mode: str


def suspects_in(path: Path, seed: int) -> Suspects:
    """Links of a dataset that may be slow, and CONTROLS ordinary ones that tell whether the whole machine moved.

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
    """The verdict on suspects, from the second run alone."""
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
    """For each class the link in its middle, its slowest one, and others drawn by seed: REPRESENTATIVES at most."""
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
    """Unordered pairs of `ntasks` ranks that have no data in `links`, in order."""
    seen = {(min(a, b), max(a, b)) for a, b in zip(links.src.tolist(), links.dst.tolist())}
    return [pair for pair in combinations(range(ntasks), 2) if pair not in seen]


def drop_raw(measured: Measured) -> None:
    """Takes /raw out of what was measured; the summary, with counts, verdicts and places of the ranks, stays.

    Raises
    ------
    EnvironmentFailure  core.disk_full, core.cannot_write; the dataset is then whole.
    """
    import sonde
    from sonde.core import dataset

    for path in measured.paths:
        with sonde.open(path) as tree:
            summary = tree["summary"].to_dataset().load()  # it holds counts, verdicts and places too
            attrs = dataset.attrs(tree)
            env = dataset.attrs(tree.children["env"])
            warnings = dataset.warnings_of(tree)
        seal.write_dataset(path, None, summary, attrs, env, warnings)


def _left(plan: Plan, budget_s: float, began: float) -> float:
    """Time that measuring may take. Never nothing: a budget too short for the end still gets its first epoch."""
    most = _fitted(plan, budget_s).get("fitted_at_most", FITTED)
    reserve = _reading(plan, budget_s) + RESERVE_FIT_S * min(plan.cells, most * len(plan.modes))
    return max(0.2, budget_s - (time.monotonic() - began) - min(reserve, END_SHARE * budget_s))


def _reading(plan: Plan, budget_s: float) -> float:
    """Time of the end besides fits, s."""
    return RESERVE_S + RESERVE_SHARE * budget_s + RESERVE_CELL_S * plan.cells


def _fitted(plan: Plan, budget_s: float | None) -> dict[str, int]:
    """How many cells of a mode the end of a budget has time to fit, for the dataset; {} for all that ever are."""
    if budget_s is None:
        return {}
    time_s = END_SHARE * budget_s - _reading(plan, budget_s)
    most = max(FEWEST_FITTED, int(time_s / RESERVE_FIT_S / len(plan.modes)))
    return {"fitted_at_most": most} if most < FITTED else {}

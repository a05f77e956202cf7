"""Runs sonde-net: start, listen, stop in time, seal. The only module of the room that touches the machine."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core import hostlist, provenance, seal
from sonde.core.blocks import BlockFile
from sonde.core.errors import (
    DataError,
    EnvironmentFailure,
    Interrupted,
    SondeError,
    UsageError,
    Warning,
    typed,
)
from sonde.core.events import Event, Progress
from sonde.core.launch import Launcher, launcher, probe
from sonde.core.launch.cpus import available
from sonde.core.launch.mpirun import Mpi, Mpirun
from sonde.core.launch.process import Ending, ProbeProcess
from sonde.net.cells import FITTED
from sonde.net.plan import Plan
from sonde.net.schema import NAME, SCHEMA

if TYPE_CHECKING:
    from sonde.net.classes import Classes
    from sonde.net.links import LinkTest
    from sonde.net.pairs import Pairs

MPI_PREFIXES = ("OMPI_MCA_", "PRTE_MCA_", "MPIR_CVAR_", "MPICH_", "I_MPI_", "UCX_", "FI_", "HYDRA_")
TRANSPORT_VARIABLES = (
    "OMPI_MCA_pml",
    "OMPI_MCA_btl",
    "OMPI_MCA_mtl",
    "UCX_TLS",
    "UCX_NET_DEVICES",
    "FI_PROVIDER",
    "MPIR_CVAR_CH4_NETMOD",
)
FIRST_PASS = 60  # samples a cell of --by-class's first pass
REPRESENTATIVES = 4  # links measured of each class
CONTROLS = 8  # ordinary links that a re-test measures beside its suspects

# Of a budget, what is kept for the end: sealing and analysis. Of it at most END_SHARE, so cells are fitted for
# as many as that leaves time for, FEWEST_FITTED at least.
RESERVE_SHARE, RESERVE_S, RESERVE_CELL_S, RESERVE_FIT_S = 0.05, 1.0, 0.0005, 0.06
END_SHARE, FEWEST_FITTED = 0.5, 8


@dataclass
class Measured:
    """What a run left: datasets, one a mode; how it ended; whether the user interrupted it."""

    files: list[seal.SealedFile]
    stop_reason: str
    interrupted: bool
    error: SondeError | None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def paths(self) -> list[Path]:
        return [file.path for file in self.files]


@dataclass
class Start:
    """How the ranks are started, settled before anything is measured."""

    launcher: Launcher
    hosts: tuple[str, ...]
    program: Path
    mpi: Mpi


def default_ntasks() -> int:
    """Ranks when nobody says: what Slurm gave, else a rank a core, two at least."""
    given = os.environ.get("SLURM_NTASKS", "")
    return max(2, int(given) if given.isdigit() else available().cores)


def cluster() -> str:
    """Name of the cluster for new datasets: Slurm's word, else this host's."""
    return os.environ.get("SLURM_CLUSTER_NAME") or socket.gethostname()


def _hostlist(hosts: Sequence[str]) -> str:
    return hostlist.fold([host.partition(":")[0] for host in hosts] or [socket.gethostname()])


def output_path(output: Path | None) -> Path:
    """Where the dataset goes: as asked, or a new name here.

    Raises
    ------
    EnvironmentFailure  core.cannot_write: its folder is not there. UsageError  net.bad_output: it is a
    folder.
    """
    if output is None:
        return Path(seal.dataset_name("net", cluster()))
    if output.is_dir():
        raise UsageError(
            "net.bad_output",
            f"--output {output} is a folder",
            f"name the dataset: {typed('-o', output / 'net.nc')}",
        )
    if not output.parent.is_dir():
        raise EnvironmentFailure(
            "core.cannot_write",
            f"cannot write {output}: there is no folder {output.parent}",
            "make it, or choose another with --output",
        )
    return output if output.suffix == ".nc" else output.with_name(output.name + ".nc")


def prepare(name: str, hosts: Sequence[str]) -> Start:
    """Finds launcher, MPI and probe.

    Raises
    ------
    EnvironmentFailure  net.no_mpi, net.no_probe.
    """
    chosen = launcher(name)
    if chosen.name == "local":
        chosen = launcher("mpirun")  # raises what is missing: delays need ranks
    mpi = chosen.mpi if isinstance(chosen, Mpirun) else Mpirun().mpi
    return Start(chosen, tuple(hosts), probe("sonde-net", mpi.flavour), mpi)


def command(plan: Plan, start: Start, run_dir: Path, budget_s: float) -> list[str]:
    """The whole command line that measures."""
    argv = [str(start.program), *plan.argv(str(run_dir.resolve()), budget_s)]
    return start.launcher.command(argv, start.hosts, plan.ntasks, {})


@dataclass(frozen=True)
class Request:
    """What is to be measured, with what, into which dataset (of several modes, <stem>-<mode>.nc).

    command: what the user typed, for the dataset. budget_s: time for all of it since `began`
    (time.monotonic), start-up and analysis included; None: no limit. timeout_s: how long the probe may be
    silent
    before it is taken for stuck.
    """

    plan: Plan
    start: Start
    out: Path
    command: tuple[str, ...]
    budget_s: float | None
    began: float
    timeout_s: float = 60.0


def measure(request: Request, progress: Progress) -> Measured:
    """Measures, and seals what was measured, however it ended. progress: where events are shown.

    Returns
    -------
    Measured. `error` is what went wrong while measuring, when something was measured all the same.

    Raises
    ------
    EnvironmentFailure  nothing could be measured or written; the hint says how to recover what was.
    """
    plan, start = request.plan, request.start
    run_dir = seal.run_folder(request.out)
    placement = start.launcher.placement(start.hosts, plan.ntasks)
    facts: dict[str, Any] = {
        "transport": transport(os.environ),
        "run_id": secrets.token_hex(8),
        "launcher": start.launcher.name,
        "binding": placement.bind,
        "oversubscribed": placement.oversubscribed,
        "pairing": plan.pairing,
        **plan.labels,
        **_fitted(plan, request.budget_s),
    }
    seal.start_run(
        run_dir,
        room="net",
        schema=NAME,
        attrs=provenance.attrs(
            command=request.command, seed=plan.seed, hostlist=_hostlist(start.hosts), mpi=start.mpi
        )
        | _typed(facts),
        plan=plan.document({}),
        env=_mpi_environment(os.environ),
        warnings=plan.warnings(),
    )
    listener = _Listener(progress)
    left = 0.0 if request.budget_s is None else _left(plan, request.budget_s, request.began)
    with _unless_interrupted(run_dir), seal.hold(run_dir) as held:
        ending = _listen(command(plan, start, run_dir, left), run_dir, listener, left, request.timeout_s)
        stop_reason = "interrupted" if listener.interrupted else listener.stop_reason(ending)
        error = ending.error or listener.error
        if listener.interrupted and _nothing_in(run_dir):
            _forget(run_dir)
            raise _interrupted()
        if listener.started is None and error is not None:
            _forget(run_dir)
            raise error
        files = seal.seal(
            run_dir,
            request.out,
            SCHEMA,
            attrs={"stop_reason": stop_reason} | _typed(listener.attrs),
            warnings=listener.warnings,
            held=held,
        )
    return Measured(files, stop_reason, listener.interrupted, error, listener.attrs)


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
            raise Interrupted(
                "net.interrupted", "interrupted in the first pass, which is not kept", "run it again"
            )
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


def transport(environment: Mapping[str, str]) -> str:
    """What the user told the MPI about its transport; "default" when nothing. What it then took is its secret."""
    told = [f"{name}={environment[name]}" for name in TRANSPORT_VARIABLES if environment.get(name)]
    return " ".join(told) or "default"


def _mpi_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What of the environment steers MPIs and their transports; nothing else of it is anybody's business."""
    return {name: value for name, value in environment.items() if name.startswith(MPI_PREFIXES)}


def _typed(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: int(value) if isinstance(value, bool) else value for name, value in facts.items()}


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


def _interrupted() -> Interrupted:
    return Interrupted(
        "net.interrupted", "interrupted before anything was measured; no file is left", "run it again"
    )


@contextmanager
def _unless_interrupted(run_dir: Path) -> Iterator[None]:
    """A Ctrl-C before the probe listens, or while it is saved; what holds samples stays, for `recover`."""
    try:
        yield
    except KeyboardInterrupt:
        if (run_dir / seal.RUN_FILE).exists() and _nothing_in(run_dir):
            _forget(run_dir)
            raise _interrupted() from None
        raise


def _nothing_in(run_dir: Path) -> bool:
    """Whether no rank has written a sample."""
    for path in run_dir.glob("*.blk"):
        with suppress(DataError, OSError):  # not even its head is there
            if any((records["kind"] == 0).any() for records in BlockFile(path)):
                return False
    return True


def _forget(run_dir: Path) -> None:
    """Removes the folder of a run that never began; its log has been told."""
    for name in ("run.json", "log", ".lock", ".seen-by-rank-0"):
        (run_dir / name).unlink(missing_ok=True)
    for block in run_dir.glob("*.blk"):
        block.unlink()
    with suppress(OSError):  # somebody keeps something there; it stays
        run_dir.rmdir()


class _Listener:
    """Takes the probe's events: shows them, and keeps what belongs into the dataset."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.started: Event | None = None
        self.ended: Event | None = None
        self.error: SondeError | None = None
        self.interrupted = False
        self.warnings: list[Warning] = []
        self.attrs: dict[str, Any] = {}
        self.heard = time.monotonic()

    def take(self, event: Event) -> None:
        self.heard = time.monotonic()
        self.progress.show(event)
        match event["event"]:
            case "start":
                self.started = event
                self.attrs["mpi_library"] = event["mpi_version"]
                self.attrs["oversubscribed"] = event["oversubscribed"]
                self.attrs["clock_cost_s"] = event.get("clock_cost_s", float("nan"))
                if event["oversubscribed"]:
                    self.warnings.append(
                        Warning(
                            "net.oversubscribed",
                            f"{event.get('ranks_on_node')} ranks share fewer cores on a host: delays hold the "
                            "kernel's switching between them",
                            "give no more ranks than cores to know the interconnect alone",
                        )
                    )
                if forwarding := event.get("forwarding_ranks"):
                    self.attrs["forwarding_ranks"] = forwarding
            case "pairing":
                self._pairing(event)
            case "warning":
                self.warnings.append(Warning(event["code"], event["evidence"], event["hint"]))
            case "error":
                self.error = EnvironmentFailure(event["code"], event["what"], event["hint"])
            case "end":
                self.ended = event
                if event["dropped"]:
                    self.warnings.append(
                        Warning(
                            "net.records_dropped",
                            f"{event['dropped']} bursts found no room and are lost",
                            "fewer sizes or a shorter --epoch-length need less room",
                        )
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
            self.warnings.append(
                Warning(
                    "net.pairs_interfere",
                    f"pairs measured at the same time cost each other a factor of {ratio:.2f} (worst {worst:.2f}), "
                    "so they were measured one by one",
                    "--pairing parallel measures them together all the same",
                )
            )

    def stop_reason(self, ending: Ending) -> str:
        if self.ended is not None:
            return str(self.ended["stop_reason"])
        return "timeout" if ending.reason == "timeout" else "failed"


def _listen(line: list[str], run_dir: Path, listener: _Listener, budget_s: float, timeout_s: float) -> Ending:
    """Runs the probe to its end; Ctrl-C and SIGTERM ask it to finish."""
    process = ProbeProcess(line, run_dir, listener.take, room="net")
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            if time.monotonic() - listener.heard > timeout_s:
                process.stop("timeout")
                return

    def ask(_signal: int, _frame: Any) -> None:
        listener.interrupted = True
        process.stop()

    watcher = threading.Thread(target=watch, daemon=True)
    with _signals(ask), listener.progress, process:
        listener.heard = time.monotonic()
        watcher.start()
        try:
            ending = process.wait(None if budget_s == 0 else budget_s + timeout_s)
        finally:
            over.set()
    if ending.reason == "timeout":
        silent = time.monotonic() - listener.heard
        ending = Ending(
            ending.reason,
            ending.status,
            EnvironmentFailure(
                "net.peer_timeout",
                f"the ranks were silent for {silent:.0f} s, and --timeout is {timeout_s:.0f} s",
                "raise --timeout for very long messages, or leave out the host that hangs with --hosts '^NAME'",
                str(process.log),
            ),
        )
    return ending


@contextmanager
def _signals(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """SIGINT and SIGTERM go to `handler` meanwhile; only the main thread may ask for that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)

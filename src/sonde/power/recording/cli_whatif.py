"""sonde power whatif, jobs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonde.core.errors import DataError, UsageError
from sonde.core.options import DURATION, common
from sonde.core.outcome import Outcome, Table
from sonde.core.units import format_duration, format_power, format_share
from sonde.power.cli_options import CONFIG, Power

if TYPE_CHECKING:
    from sonde.power.monitor.budget import NodeSeries
    from sonde.power.recording.signature import JobRecord

HISTORY = click.option(
    "--history",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="A monitor's history, or a dataset of 'sonde power run'.",
)


@click.command()
@common(own_config=True)
@HISTORY
@CONFIG
@click.option(
    "--policy", "policies", multiple=True, metavar="NAME", help="Policy; may be repeated; default: all."
)
@click.option(
    "--power-limit",
    "power_limit",
    type=Power(),
    metavar="POWER",
    help="Use this budget instead of the file's.",
)
@click.option(
    "--period", "period_s", type=DURATION, metavar="TIME", help="Use this period instead of the file's."
)
@click.option(
    "--last", "last_s", type=DURATION, metavar="TIME", help="Use only this last part of the history."
)
def whatif(
    history: Path,
    config_path: Path,
    policies: tuple[str, ...],
    power_limit: float | None,
    period_s: float | None,
    last_s: float | None,
) -> Outcome:
    """Replay recorded telemetry through the live policies, and report which would have given nodes too little.

    \b
    sonde power whatif --history power.nc --config power.toml --policy fair
    """
    from sonde.power.recording import policy as live_policies
    from sonde.power.recording.replay import replay
    from sonde.power.stack.run_bus import load

    stack = load(config_path)
    nodes = series_of(history, last_s)
    budget = stack.budget_w if power_limit is None else power_limit
    present = [one for one in stack.nodes if one.name in nodes and len(nodes[one.name].t)]
    safe = sum(one.safe_w for one in present)
    if budget < safe:
        raise UsageError(
            "power.budget_too_small",
            f"the limit is {format_power(budget)}, safe caps of {len(present)} nodes add up to {format_power(safe)}",
            f"no manager would accept it either; give --power-limit {math.ceil(safe)}W or more",
        )
    period = stack.period_s if period_s is None else period_s
    names = ["", *(policies or live_policies.policies())]
    found = [replay(nodes, stack.nodes, budget, period, name) for name in names]
    rows = [
        (
            one.policy,
            format_power(one.max_sum_caps_w),
            format_power(one.mean_lent_w),
            format_share(one.short_s / one.node_s) if one.node_s else "–",
            words_energy(one.short_j),
            format_share(one.unsure_s / one.node_s) if one.node_s else "–",
        )
        for one in found
    ]
    tried = found[1:]
    best = min(tried, key=lambda one: (one.short_j, one.unsure_s))
    share = best.short_s / best.node_s if best.node_s else math.nan
    verdict = f"Under {format_power(budget)} '{best.policy}' leaves nodes short for {format_share(share)} of their time"
    if len(tried) > 1:
        verdict += f", the lowest of {len(tried)} policies"
    head = ("policy", "largest caps", "mean caps", "short", "energy short", "unknown")
    note = "short: node-time with a cap below the known demand. unknown: at the cap, with no higher cap in the replay."
    return Outcome(
        "power",
        "whatif",
        verdict,
        values={"budget_w": budget, "period_s": period, "policies": [vars(one) for one in found]},
        tables=[Table("What if", head, rows, (1, 2, 3, 4, 5), note, (0,))],
    )


def words_energy(energy_j: float) -> str:
    from sonde.power.monitor.verdict import joules

    return joules(energy_j)


def series_of(path: Path, last_s: float | None) -> dict[str, NodeSeries]:
    """The nodes of a history or of a dataset."""
    from sonde.power.monitor import run_history
    from sonde.power.monitor.budget import node_series
    from sonde.power.stack.telemetry import NodeSample

    if path.suffix == ".nc":
        import sonde
        from sonde.core import dataset
        from sonde.power.recording.analyse import node_series_of

        with sonde.open(path) as tree:
            dataset.expect_room(tree, "power")
            series = node_series_of(tree["raw"].to_dataset().load())
    else:
        series = node_series(s for s in run_history.read(path, "node") if isinstance(s, NodeSample))
    if last_s is None or not series:
        return series
    since = max(float(one.t[-1]) for one in series.values() if len(one.t)) - last_s
    return {name: one.since(since) for name, one in series.items()}


@click.command()
@common()
@HISTORY
@click.option(
    "--head",
    "head_s",
    type=DURATION,
    default="60s",
    show_default=True,
    metavar="TIME",
    help="Length of a job's beginning that its signature uses.",
)
def jobs(history: Path, head_s: float) -> Outcome:
    """Show signatures of the jobs of a history, and predict the power of running jobs, with errors tested on finished
    jobs.

    \b
    sonde power jobs --history /var/lib/sonde/power-monitor/history.sqlite
    """
    from sonde.power.recording.estimate import learn
    from sonde.power.stack.telemetry import ENDED

    records = records_of(history)
    done = [one for one in records if one.state in ENDED]
    values: dict[str, Any] = {"jobs": [], "tested": None}
    lines = []
    try:
        estimator = learn(done, head_s)
        tested = estimator.tested()
        values["tested"] = vars(tested)
        covered = (
            f", {format_share(tested.coverage)} within their interval"
            if math.isfinite(tested.coverage)
            else ""
        )
        lines.append(
            f"Each of {tested.jobs} jobs predicted from the others: median error {format_share(tested.error)}, "
            f"largest {format_share(tested.worst)}{covered} ({tested.method}); error of the mean alone: "
            f"{format_share(tested.baseline)}."
        )
    except DataError as error:
        estimator = None
        lines.append(f"No estimate: {error.what}.")
    rows = []
    for one in records:
        whole = one.whole()
        head = one.head(head_s)
        guess = estimator.estimate(head) if estimator and head and one.state not in ENDED else None
        between = "–"
        if guess is not None:
            between = format_power(guess.power_w)
            if math.isfinite(guess.low_w):
                between += f" ({format_power(guess.low_w)} to {format_power(guess.high_w)})"
        values["jobs"].append(
            {
                "job": one.job,
                "name": one.name,
                "user": one.user,
                "state": one.state,
                "signature": whole.as_json() if whole else None,
                "estimate_w": guess.power_w if guess else None,
            }
        )
        period = format_duration(whole.period_s) if whole and math.isfinite(whole.period_s) else "–"
        rows.append(
            (
                f"{one.job} ({one.name[:16]})" if one.name not in ("", one.job) else one.job,
                one.user,
                one.state,
                str(len(one.nodes)),
                format_power(whole.mean_w) if whole else "–",
                format_power(whole.p90_w) if whole else "–",
                format_share(whole.spread) if whole and math.isfinite(whole.spread) else "–",
                period,
                between,
            )
        )
    head_ = ("job", "user", "state", "nodes", "mean", "90 %", "spread", "period", "estimate")
    note = "power of one node"
    verdict = f"{len(records)} jobs, {len(done)} of them over"
    return Outcome(
        "power",
        "jobs",
        verdict,
        values=values,
        tables=[Table("Jobs", head_, rows, (3, 4, 5, 6, 7), note)] if rows else [],
        lines=lines,
    )


def records_of(path: Path) -> list[JobRecord]:
    from sonde.power.monitor import run_history
    from sonde.power.recording.signature import records
    from sonde.power.stack.telemetry import JobSample

    return records(s for s in run_history.read(path, "job") if isinstance(s, JobSample))


COMMANDS = (whatif, jobs)

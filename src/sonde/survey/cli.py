"""sonde survey and sonde check: the quick form of every room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from sonde.core.errors import Exit, Warning
from sonde.core.options import common, settings
from sonde.core.outcome import Outcome
from sonde.core.room import NAMES
from sonde.survey.result import RoomResult

AGAINST_S, REPEAT_S = (
    52.0,
    12.0,
)  # the budget of a check against baselines, and the share for measuring again


@click.command()
@common("output", "launcher", "hosts", "ntasks", "budget", "seed")
def command(
    output: Path | None,
    launcher: str,
    hosts: str | None,
    ntasks: int | None,
    budget_s: float | None,
    seed: int | None,
) -> Outcome:
    """Measure this machine with the quick form of every room, and write one report.

    -o names a folder, which gets the datasets and report.html. Rooms that cannot run here are skipped, with the reason.
    The default budget is 60 s.
    """
    began = settings().began
    from sonde.survey import run as surveys

    folder = output or Path("survey") / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    with surveys.report_interruption(folder, saved=True):
        results = surveys.survey(
            folder,
            launcher=launcher,
            hosts=hosts,
            ntasks=ntasks,
            budget_s=budget_s or 60.0,
            reserved_s=min(surveys.REPORT_S, (budget_s or 60.0) / 8),
            began=began,
            seed=seed,
            bar=settings().bar,
        )
        report = surveys.write_report(folder, results, f"Survey of {surveys.here()}")
    outcome = _outcome("survey", results, str(report))
    outcome.lines = surveys.summary(results)
    _report_interrupted(outcome, surveys.interrupted_warning(results, folder))
    return outcome


@click.command()
@common("output", "launcher", "hosts", "ntasks", "budget", "seed")
@click.option(
    "--against",
    type=click.Path(path_type=Path, exists=False),
    metavar="FOLDER",
    multiple=True,
    help="An earlier survey of this machine to compare with. May be given several times: only differences from all "
    "of them count.",
)
def check(
    output: Path | None,
    launcher: str,
    hosts: str | None,
    ntasks: int | None,
    budget_s: float | None,
    seed: int | None,
    against: tuple[Path, ...],
) -> Outcome:
    """Compare this machine with limits, or with earlier surveys; exit 1 on a finding.

    Fits Slurm's HealthCheckProgram: it ends within 60 s by default. It prints, and never runs, the command that would
    drain the node. With --against, a slower result is measured again in the last quarter of the budget before it
    becomes a finding. Exit 4: other programs were active, or a survey is too short or too unsteady, so "no findings"
    says little.
    """
    began = settings().began
    import tempfile
    import time

    from sonde.core.drain import drain_lines, drain_words
    from sonde.survey import run as surveys

    surveys.check_baselines(against)
    in_all_s = budget_s or (AGAINST_S if against else 40.0)
    kept_back_s = min(REPEAT_S, in_all_s / 4) if against else 0.0
    with tempfile.TemporaryDirectory(prefix="sonde-check-") as scratch:
        folder = output or Path(scratch) / "survey"
        with surveys.report_interruption(folder, saved=output is not None):

            def measure(
                where: Path, budget_s: float, since: float, rooms: Sequence[str] | None = None
            ) -> list[RoomResult]:
                return surveys.survey(
                    where,
                    launcher=launcher,
                    hosts=hosts,
                    ntasks=ntasks,
                    budget_s=budget_s,
                    began=since,
                    seed=seed,
                    bar=settings().bar,
                    rooms=rooms,
                )

            def again(rooms: Sequence[str]) -> list[RoomResult]:
                now = time.monotonic()
                return measure(Path(scratch) / "again", began + in_all_s - now, now, rooms)

            results = measure(folder, in_all_s - kept_back_s, began)
            surveys.hold_against(results, against, again)
    if output is None:
        for result in results:
            result.datasets = []  # they were removed with the scratch folder
            result.findings = [replace(finding, next="sonde survey") for finding in result.findings]
    outcome = _outcome("check", results, None)
    outcome.lines = surveys.summary(results)
    if outcome.findings:
        outcome.exit = Exit.FINDING
        outcome.lines += drain_lines(surveys.draining(results))
        if drain_command := drain_words(surveys.draining(results)):
            outcome.values["drain"] = drain_command
    elif outcome.exit == Exit.DONE and not all(result.comparable for result in results):
        outcome.exit = Exit.INCOMPLETE
    _report_interrupted(outcome, surveys.interrupted_warning(results, output))
    return outcome


def _report_interrupted(outcome: Outcome, warning: Warning | None) -> None:
    if warning is not None:
        outcome.exit = Exit.INTERRUPTED
        outcome.verdict = f"interrupted: {outcome.verdict}"
        outcome.warnings = [warning, *outcome.warnings]


def _outcome(verb: str, results: list[RoomResult], report: str | None) -> Outcome:
    findings = [finding for result in results for finding in result.findings]
    ran = [result for result in results if not result.skipped]
    verdict = (
        f"{len(findings)} finding{'' if len(findings) == 1 else 's'} in {len(ran)} of {len(NAMES)} rooms"
    )
    if not ran:
        verdict = "no room could run here"
    values: dict[str, Any] = {"rooms": [result.as_json() for result in results]}
    if report:
        values["report"] = report
    return Outcome(
        "sonde",
        verb,
        verdict,
        dataset=next((str(path) for result in ran for path in result.datasets), None),
        complete=all(result.complete for result in ran),
        findings=findings,
        warnings=[warning for result in results for warning in result.warnings],
        values=values,
        sound=all(result.sound for result in ran),
        exit=Exit.DONE if ran else Exit.ENVIRONMENT,
    )

"""sonde survey and sonde check: the quick form of every room."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from sonde.core.errors import DataError, Exit, Warning
from sonde.core.options import common, settings
from sonde.core.outcome import Outcome
from sonde.survey.rooms import ROOMS, RoomResult


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

    -o names a folder; it gets the datasets and report.html. What cannot run here is skipped, with the reason.
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
    help="An earlier survey to hold this one against.",
)
def check(
    output: Path | None,
    launcher: str,
    hosts: str | None,
    ntasks: int | None,
    budget_s: float | None,
    seed: int | None,
    against: Path | None,
) -> Outcome:
    """Hold this machine against limits, or against an earlier survey; exit 1 on a finding.

    Fits Slurm's HealthCheckProgram: done within 60 s by default. It prints, and never runs, the command that
    would drain the node. Exit 4: one of the surveys is too short or too unsteady for finding nothing to say much.
    """
    began = settings().began
    import tempfile

    from sonde.core.drain import drain_lines, drain_words
    from sonde.survey import run as surveys

    if against is not None and not against.is_dir():  # told before anything is measured
        raise DataError(
            "core.no_such_file",
            f"there is no folder {against} to compare with",
            "make one with sonde survey -o FOLDER",
        )
    with tempfile.TemporaryDirectory(prefix="sonde-check-") as scratch:
        folder = output or Path(scratch) / "survey"
        with surveys.report_interruption(folder, saved=output is not None):
            results = surveys.survey(
                folder,
                launcher=launcher,
                hosts=hosts,
                ntasks=ntasks,
                budget_s=budget_s or 40.0,
                began=began,
                seed=seed,
                bar=settings().bar,
            )
            surveys.compare(results, against)
    if output is None:
        for result in results:
            result.datasets = []  # they went with the scratch folder
            result.findings = [replace(finding, next="sonde survey") for finding in result.findings]
    outcome = _outcome("check", results, None)
    outcome.lines = surveys.summary(results)
    if outcome.findings:
        outcome.exit = Exit.FINDING
        outcome.lines += drain_lines(surveys.draining(results))
        if words := drain_words(surveys.draining(results)):
            outcome.values["drain"] = words
    elif not all(result.comparable for result in results):
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
        f"{len(findings)} finding{'' if len(findings) == 1 else 's'} in {len(ran)} of {len(ROOMS)} rooms"
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
        warnings=[warning for result in ran for warning in result.warnings],
        values=values,
        sound=all(result.sound for result in ran),
        exit=Exit.DONE if ran else Exit.ENVIRONMENT,
    )

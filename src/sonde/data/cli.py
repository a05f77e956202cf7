"""sonde data: verbs for any dataset. Each returns an Outcome; nothing is printed here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonde.core.errors import DataError, Exit, Finding, UsageError, Warning, typed
from sonde.core.options import SHARE, common, settings
from sonde.core.outcome import Outcome, Table

if TYPE_CHECKING:
    from sonde.data.diff import Difference
    from sonde.data.history import History

FURTHEST_HOSTS = 10  # rows of the table of hosts

_FILE = click.Path(path_type=Path)
_MATTERS = click.option(
    "--matters",
    type=SHARE,
    default="5%",
    show_default=True,
    metavar="SHARE",
    help="Smallest relative change that is reported.",
)
_ANY_SIZE = click.option(
    "--any-size", is_flag=True, help="Accept a file that claims far more values than it can hold."
)


@click.group()
def group() -> None:
    """Validate, convert, compare, recover any dataset."""


@group.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=_FILE)
@click.option("--quick", is_flag=True, help="Check only the structure; do not read every value.")
@_ANY_SIZE
@common()
def validate(files: tuple[Path, ...], quick: bool, any_size: bool) -> Outcome:
    """Check that datasets conform to their format.

    Exit code 3 if one does not.
    """
    from sonde.data.validate import other_titles
    from sonde.data.validate import validate as check
    from sonde.data.words import count

    found = {path: check(path, not quick, any_size) for path in files}
    bad = [path for path in files if found[path]]
    outcome = Outcome("data", "validate", exit=Exit.ENVIRONMENT if bad else Exit.DONE)
    if len(files) == 1:
        outcome.dataset = str(files[0])
    places = count(sum(map(len, found.values())), "place")
    outcome.verdict = (
        f"{len(bad)} of {count(len(files), 'dataset')} {'breaks its' if len(bad) == 1 else 'break their'} "
        f"format in {places}"
        if bad
        else f"{files[0]} is valid"
        if len(files) == 1
        else f"all {len(files)} datasets are valid"
    )
    for path in files:
        for finding in found[path]:
            text = finding.text if str(path) in finding.text else f"{path}: {finding.text}"
            evidence = {"file": str(path), **finding.evidence}
            outcome.findings.append(Finding(finding.code, text, evidence, finding.next))
        outcome.warnings += [
            Warning(warning.code, f"{path}: {warning.evidence}", warning.hint)
            for warning in other_titles(path, any_size)
        ]
    outcome.values = {"files": [{"file": str(path), "violations": len(found[path])} for path in files]}
    return outcome


@group.command()
@click.argument("file", type=_FILE)
@click.option(
    "--to",
    type=click.Choice(["csv", "json", "parquet", "markdown"]),
    help="Format; by default from the ending of OUT.",
)
@click.option(
    "--group", "part", type=click.Choice(["raw", "summary"]), help="Default: summary if present, else raw."
)
@click.option("-v", "--verbose", is_flag=True, help="List the variables that do not fit into one table.")
@_ANY_SIZE
@common("output")
def convert(
    file: Path, to: str | None, part: str | None, verbose: bool, any_size: bool, output: Path | None
) -> Outcome:
    """Write a dataset as CSV, JSON, Parquet or Markdown.

    One row per value, with units in the heads. CSV and Parquet contain one table: for net the one with the most dims,
    for noise a row for each variant, source or CPU. For all tables, give --to and a folder as OUT; a folder that ends
    in / is created if it does not exist.

    \b
    sonde data convert a.nc --to csv                  on the terminal
    sonde data convert a.nc -o a.parquet --group raw
    sonde data convert a.nc --to csv -o folder/
    """
    from sonde.core import dataset
    from sonde.data import convert as conversion
    from sonde.data.words import count

    chosen = conversion.format_of(to, output)
    with dataset.open(file, any_size, any_values=True) as tree:
        tables = conversion.group_tables(tree, part)
        outcome = Outcome("data", "convert", schema=tree.attrs["schema"], dataset=str(file))
        outcome.complete = bool(tree.attrs.get("complete", 1))
        nothing = tables[
            0
        ].empty  # tested here: a value read later would open the file again without our knowledge
        if output is None:
            outcome.document = conversion.to_text(tree, tables, chosen)
            left = tables[1:] if chosen in conversion.ONE_TABLE else []
            outcome.verdict = f"/{tables[0].group} of {file} as {chosen}"
        else:
            done = conversion.to_files(tree, tables, chosen, output, file.stem, settings().output_folder)
            left = done.left_out
            outcome.verdict = "; ".join(f"{one.path}: {count(one.rows, 'row')}" for one in done.files)
            outcome.dataset = str(output)
            outcome.values["files"] = [
                {"file": str(one.path), "table": one.table, "rows": one.rows} for one in done.files
            ]
    if nothing:  # then all other tables are empty too
        outcome.warnings.append(
            Warning(
                "data.no_rows",
                f"/{tables[0].group} of {file} has no values: the output has heads but no rows",
                "see what the dataset contains: sonde data convert --to json --group raw, or measure again",
            )
        )
    if left:
        names = [name for table in left for name in table.variables]
        outcome.values["left_out"] = names
        ending = conversion.SUFFIXES[chosen]
        shown = f": {', '.join(names)}" if verbose else ""
        outcome.warnings.append(
            Warning(
                "data.tables_left_out",
                f"a {ending[1:]} file has one table: {count(len(names), 'variable')} left out{shown}",
                f"--to {chosen} -o FOLDER/ writes each table to its own file"
                + ("" if verbose else "; -v names them"),
            )
        )
    return outcome


@group.command()
@click.argument("base", metavar="A", type=_FILE)
@click.argument("other", metavar="B", type=_FILE)
@_MATTERS
@_ANY_SIZE
@common()
def diff(base: Path, other: Path, matters: float, any_size: bool) -> Outcome:
    """Show where B differs from A beyond the intervals of both.

    Compares every variable of /summary that has an interval, cell by cell, with false-discovery control, and the
    descriptions of the machines. Exit code 1 if a cell differs.
    """
    from sonde.core import dataset
    from sonde.data import diff as comparison
    from sonde.data.words import count

    with dataset.open(base, any_size) as a, dataset.open(other, any_size) as b:
        found = comparison.compare(a, b, matters)
        schema = str(a.attrs["schema"])
    findings = comparison.findings(found, (str(base), str(other)), schema.partition("/")[0])
    least = f"{100 * matters:.3g} %"
    compared = sum(one.compared for one in found.compared)
    differ = sum(int(one.differs.sum()) for one in found.compared)
    outcome = Outcome("data", "diff", schema=schema, dataset=str(other), findings=findings)
    outcome.warnings = found.warnings
    outcome.exit = Exit.FINDING if findings else Exit.DONE
    outcome.verdict = (
        f"{differ} of {count(compared, 'cell')} differ{'s' if differ == 1 else ''} by {least} or more"
        if findings
        else f"0 of {count(compared, 'cell')} differ by {least} or more beyond their intervals"
    )
    outcome.tables = list(_diff_tables(found))
    outcome.values = {
        "base": str(base),
        "matters": matters,
        "variables": [
            {
                "variable": one.name,
                "units": one.units,
                "compared": one.compared,
                "differ": int(one.differs.sum()),
                "median_ratio": _number(comparison.middle(one.ratio)),
                "minimal_detectable_change": _number(one.mde),
            }
            for one in found.compared
        ],
        "machine": [{"attribute": name, "a": old, "b": new} for name, old, new in found.machine],
    }
    return outcome


def _number(value: float) -> float | None:
    import math

    return value if math.isfinite(value) else None


def _diff_tables(found: Difference) -> Any:
    from sonde.data import diff as comparison
    from sonde.data.words import cut, share

    rows = [
        (
            one.name,
            str(one.compared),
            str(int(one.differs.sum())),
            share(comparison.middle(one.ratio) - 1),
            share(one.mde).lstrip("+"),
        )
        for one in found.compared
    ]
    yield Table(
        "Measured",
        ("variable", "cells", "differ", "median change", "detectable"),
        rows,
        (1, 2, 3, 4),
        "detectable: the smallest change that is detected with 80 % power",
    )
    if found.machine:
        yield Table(
            "Machine and settings",
            ("what", "A", "B"),
            [(n, cut(a, 40), cut(b, 40)) for n, a, b in found.machine],
        )


@group.command()
@click.argument("folder", default=".", type=_FILE)
@click.option("--last", type=click.IntRange(min=1), default=20, show_default=True, help="Runs to list.")
@_MATTERS
@common()
def history(folder: Path, last: int, matters: float) -> Outcome:
    """List a folder's past runs, and report whether the newest is worse.

    Runs are comparable if schema, mode, number of hosts and ranks, and measured cells agree. Five earlier runs are
    needed. Besides the whole run, each size (or variant) and each of three or more hosts is followed. The index
    .sonde-history.sqlite in FOLDER stores the results of reading.
    """
    from sonde.data import history as past
    from sonde.data.trends import FEWEST
    from sonde.data.words import count

    found = past.history(folder)
    findings = past.findings(found, folder, matters)
    outcome = Outcome("data", "history", findings=findings, warnings=found.warnings)
    newest = found.runs[-1]
    outcome.schema, outcome.dataset = newest.schema, str(folder / newest.file)
    outcome.complete = newest.complete
    enough = [one for one in found.judged if one.enough]
    if findings:
        values = count(len(findings), "value")
        outcome.verdict = (
            f"{values} of the newest runs {'is' if len(findings) == 1 else 'are'} significantly worse "
            "than before"
        )
    elif enough:
        outcome.verdict = f"{count(len(found.runs), 'run')}; no change"
    else:
        most = max(len(one.earlier) for one in found.judged)
        outcome.verdict = (
            f"{count(len(found.runs), 'run')}; no verdict: {FEWEST} earlier comparable runs are needed, "
            f"and there {'is' if most == 1 else 'are'} {most}"
        )
    outcome.tables = list(_history_tables(found, last))
    outcome.values = {
        "runs": [
            {
                "file": run.file,
                "schema": run.schema,
                "created_utc": run.created,
                "complete": run.complete,
                "comparable": run.key,
                "values": {name: _number(scalar.value) for name, scalar in run.scalars.items()},
            }
            for run in found.runs
        ],
        "trends": [
            {
                "file": one.newest.file,
                "earlier_runs": len(one.earlier),
                "enough": one.enough,
                "changed": [{"attribute": n, "before": a, "now": b} for n, a, b in one.changed],
                "values": [_trend(trend) for trend in one.trends],
                "labels": [_trend(trend) for trend in one.labels],
                "hosts": [{"host": trend.host, "at": trend.at, **_trend(trend)} for trend in one.hosts],
            }
            for one in found.judged
        ],
        "opened": found.read,
    }
    return outcome


def _trend(trend: Any) -> dict[str, Any]:
    return {
        "name": trend.scalar.name,
        "units": trend.scalar.units,
        "value": _number(trend.scalar.value),
        "median": _number(trend.median),
        "change": _number(trend.change),
        "p": trend.p,
        "earlier_runs": trend.earlier,
        "minimal_detectable_change": _number(trend.mde),
    }


def _history_tables(found: History, last: int) -> Any:
    from sonde.data.words import count, cut, quantity, share

    shown = found.runs[-last:]
    rows = []
    for run in shown:
        lead = next(iter(run.scalars.values()), None)
        rows.append(
            (
                run.file,
                run.created[:16].replace("T", " "),
                str(run.key["mode"] or "-"),
                str(run.key["ranks"]),
                quantity(lead.value, lead.units) if lead else "-",
                "" if run.complete else "incomplete",
            )
        )
    # Names are long: columns with the same value in every row are dropped to make room for them.
    heads = ("dataset", "created (UTC)", "mode", "ranks", "first value", "")
    modes = {row[2] for row in rows}
    shown_columns = [
        0,
        1,
        *([2] if len(modes) > 1 else []),
        3,
        4,
        *([5] if any(row[5] for row in rows) else []),
    ]
    left = len(found.runs) - len(rows)
    yield Table(
        f"Runs of {modes.pop()}" if len(modes) == 1 and modes != {"-"} else "Runs",
        [heads[k] for k in shown_columns],
        [[row[k] for k in shown_columns] for row in rows],
        [place for place, k in enumerate(shown_columns) if k in (3, 4)],
        f"not shown: {count(left, 'earlier run')}; --last {len(found.runs)} shows all" if left else "",
    )
    for one in found.judged:
        title = f"{one.newest.file} against {count(len(one.earlier), 'earlier run')}"
        if one.trends:
            yield Table(
                title,
                ("value", "now", "median before", "change", "p", "detectable"),
                [
                    (
                        trend.scalar.name,
                        quantity(trend.scalar.value, trend.scalar.units),
                        quantity(trend.median, trend.scalar.units),
                        share(trend.change),
                        f"{trend.p:.2g}",
                        share(trend.mde).lstrip("+"),
                    )
                    for trend in [*one.trends, *one.labels]
                ],
                (1, 2, 3, 4, 5),
            )
        if one.hosts:
            furthest = sorted(one.hosts, key=lambda trend: trend.p)[:FURTHEST_HOSTS]
            left = len(one.hosts) - len(furthest)
            yield Table(
                "Hosts, the most unusual first",
                ("host", "value", "now", "expected", "change", "p", "detectable"),
                [
                    (
                        cut(trend.host, 24),
                        trend.scalar.name.removesuffix(f" on host {trend.host}"),
                        quantity(trend.scalar.value, trend.scalar.units),
                        quantity(trend.median, trend.scalar.units),
                        share(trend.change),
                        f"{trend.p:.2g}",
                        share(trend.mde).lstrip("+"),
                    )
                    for trend in furthest
                ],
                (2, 3, 4, 5, 6),
                f"not shown: {count(left, 'value')} of hosts; --json has all" if left else "",
            )
        if one.changed and (one.trends or one.earlier):
            yield Table(
                f"Changed in {one.newest.file}",
                ("what", "before", "now"),
                [(name, cut(old, 40), cut(new, 40)) for name, old, new in one.changed],
            )


@group.command()
@click.argument("run_dir", metavar="RUN_DIR", type=_FILE)
@click.option("--raw-only", is_flag=True, help="Do not analyse, for example if that needs too much memory.")
@common("output")
def recover(run_dir: Path, raw_only: bool, output: Path | None) -> Outcome:
    """Save the data of a killed run from its folder, NAME.run.

    Whole blocks are saved, a block that was cut off is lost, and the dataset records both. By default it becomes
    NAME.nc. The folder is removed once the dataset is on the disk. Exit code 4 if a cell has no data.
    """
    from sonde.core.owned_files import owner_name
    from sonde.core.seal import FILES_LEFT
    from sonde.data.recover import recover as save
    from sonde.data.words import count

    if not run_dir.is_dir():
        what = "is a file" if run_dir.exists() else "does not exist"
        raise DataError(
            "core.not_a_run", f"{run_dir} {what}", "give the folder of a run; its name ends in .run"
        )
    if output is not None and output.suffix != ".nc" and not output.is_dir():
        raise UsageError(
            "data.bad_output",
            f"-o {output} is neither a dataset's name nor an existing folder",
            typed("-o", output.with_suffix(".nc")),
        )
    files = save(run_dir, output, not raw_only)
    outcome = Outcome("data", "recover", dataset=str(files[0].path))
    outcome.complete = all(file.complete for file in files)
    outcome.exit = Exit.DONE if outcome.complete else Exit.INCOMPLETE
    outcome.warnings = list(dict.fromkeys(warning for file in files for warning in file.warnings))
    names = ", ".join(str(file.path) for file in files)
    lost = sum(warning.code in _LOSSES for warning in outcome.warnings)
    outcome.verdict = f"saved {names}"
    if lost:
        outcome.verdict += f"; {count(lost, 'warning')} about lost data"
    outcome.values = {
        "datasets": [{"dataset": str(file.path), "complete": file.complete} for file in files],
        "folder_removed": not run_dir.exists(),
    }
    left = any(warning.code == FILES_LEFT for warning in outcome.warnings)
    if run_dir.exists() and not left:
        whose = run_dir.stat().st_uid
        outcome.lines.append(
            f"{run_dir} could not be removed; it is no longer needed."
            if whose == os.geteuid()
            else f"{run_dir} belongs to {owner_name(whose)}, and was not changed."
        )
    return outcome


_LOSSES = ("core.truncated_block", "core.unreadable_block_file", "core.records_dropped")

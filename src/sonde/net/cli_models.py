"""sonde net: the commands that judge recorded delays again, by stopping rules and by models of the network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonde.core.errors import DataError
from sonde.core.options import FILE, SHARE, SIZES, common
from sonde.core.outcome import Outcome, Table

if TYPE_CHECKING:
    from sonde.net.models import LinkModel, LogGP
    from sonde.net.replay import RuleResult

FILES = click.argument(
    "files", nargs=-1, required=True, metavar="FILE.nc...", type=click.Path(path_type=Path)
)


@click.command()
@common("seed")
@FILES
@click.option(
    "--rule",
    "rules_",
    multiple=True,
    default=("all",),
    metavar="RULE",
    help="A rule; may be repeated; or all.",
)
@click.option(
    "--cap",
    type=click.IntRange(min=1),
    default=20000,
    show_default=True,
    help="Largest number of samples per cell.",
)
def replay(files: tuple[Path, ...], rules_: tuple[str, ...], cap: int, seed: int | None) -> Outcome:
    """Show the samples, saved time and error of each stopping rule, on series recorded in full.

    The rules are those that decide in live runs. Several files compare networks and modes.

    \b
    sonde net replay a.nc --rule all
    sonde net replay tcp.nc shm.nc --rule ci:1% --rule fixed:1000
    """
    import sonde
    from sonde.core.rules import check_rule, rules
    from sonde.net.replay import best, replay_all
    from sonde.net.replay import verdict as verdict_of

    specs = [r.name for r in rules()] if "all" in rules_ else list(dict.fromkeys(rules_))
    for spec in specs:
        check_rule(spec)
    outcome = Outcome("net", "replay", schema="net/1", dataset=str(files[0]))
    found: dict[str, list[RuleResult]] = {}
    for file in dict.fromkeys(files):
        with sonde.open(file) as tree:
            if "raw" not in tree.children or "latency" not in tree["raw"].data_vars:
                raise DataError(
                    "net.no_series",
                    f"{file} has no single samples, only their summary",
                    "measure with --raw",
                )
            results = replay_all(
                tree["raw"].to_dataset(),
                specs,
                cap=cap,
                seed=1 if seed is None else seed,
                alone=len(str(tree.attrs.get("modes", "")).split()) <= 1,
            )
        outcome.tables.append(_replay_table(file, results))
        found[str(file)] = results
    outcome.values["rules"] = [{"dataset": name, **r.as_json()} for name, each in found.items() for r in each]
    outcome.values["best"] = best(found)
    outcome.verdict, outcome.sound = verdict_of(found)
    if len(found) > 1:
        outcome.lines = [f"{name}: {verdict_of({name: each})[0]}" for name, each in found.items()]
    return outcome


def _replay_table(file: Path, results: Sequence[RuleResult]) -> Table:
    """One line for each rule."""
    from sonde.core.units import format_duration

    rows = [
        (
            r.rule,
            f"{r.n:.0f}",
            _share(r.error, 2),
            _share(r.error_p95, 2),
            _share(r.coverage, 0),
            f"{r.time_saved:.0%}" if r.wall_s is None else format_duration(r.wall_s),
            str(r.decisions.get("converged", 0)),
        )
        for r in results
    ]
    whole = results[0].recorded_s
    time, what = (
        ("saved", "of the time in samples")
        if whole is None
        else ("run", "duration of the whole run, with pauses and barriers")
    )
    head = ("rule", "n", "error", "95 %", "covers", time, "converged")
    note = (
        "n, error: median over cells, against the median of the whole series\n"
        f"{time}: {what}\nconverged: cells; the others reached a cap, drifted, or the series ended"
    )
    title = f"{file}: {results[0].cells} cells" + (f", {format_duration(whole)}" if whole else "")
    return Table(title, head, rows, right=(1, 2, 3, 4, 5, 6), note=note)


def _share(value: float, digits: int) -> str:
    return f"{value:.{digits}%}" if value == value else "–"


@click.command()
@common()
@FILE
@click.option(
    "--assume",
    type=click.Path(path_type=Path),
    metavar="MODEL.toml",
    help="Model of the network to compare the links with.",
)
@click.option(
    "--tolerance",
    type=SHARE,
    default="20%",
    metavar="SHARE",
    help="Allowed difference between a link and the assumed model.",
)
@click.option("--forecast", type=SIZES, metavar="SIZES", help="Message lengths to forecast.")
@click.option(
    "--together",
    type=click.Path(path_type=Path),
    metavar="ALL.nc",
    help="An all_to_all run, for LogGP's gap.",
)
def model(
    file: Path, assume: Path | None, tolerance: float, forecast: tuple[int, ...] | None, together: Path | None
) -> Outcome:
    """Fit Hockney and LogGP models, forecast delays, and find links that differ from an assumed model."""
    import sonde
    from sonde.core import config
    from sonde.net import models
    from sonde.net.figures import summary_of

    with sonde.open(file) as tree:
        summary = summary_of(tree).load()
    other = None
    if together is not None:
        with sonde.open(together) as tree:
            other = summary_of(tree).load()
    fitted = models.class_models(summary)
    if not fitted:
        raise DataError(
            "net.too_few_sizes",
            f"{file} has too few message lengths for a model",
            "measure more with --sizes",
        )
    described = [
        _model_values(k, link, models.loggp(link, other), forecast or ()) for k, link in enumerate(fitted)
    ]
    tables = [_model_table(fitted)]
    if forecast:
        tables.append(_forecast_table(described))
    outcome = Outcome(
        "net", "model", schema="net/1", dataset=str(file), tables=tables, values={"models": described}
    )
    if warning := models.beyond(fitted, forecast or ()):
        outcome.warnings.append(warning)
    outcome.verdict = f"{len(fitted)} class{'es' if len(fitted) > 1 else ''} of links, modelled"
    if assume is not None:
        assumed = config.read(assume).data
        outcome.findings = models.violations(
            summary, assumed, float(assumed.get("tolerance", tolerance)), dataset=str(file)
        )
        outcome.warnings += models.stand_ins(assumed, summary)
        outcome.verdict += (
            f"; {len(outcome.findings)} links differ from the assumed model"
            if outcome.findings
            else "; all links agree with the assumed model"
        )
    return outcome


def _model_values(k: int, link: LinkModel, gp: LogGP, forecast: Sequence[int]) -> dict[str, Any]:
    """The model of class k, for --json. forecast: sizes, B."""
    return {
        "class": k,
        "segments": [
            {"begin": s.begin, "end": s.end, "alpha_s": s.alpha_s, "beta_s_per_b": s.beta_s_per_b}
            for s in link.segments
        ],
        "scatter": link.scatter,
        "half_size_b": link.half_size_b,
        "loggp": {
            "latency_overhead_s": gp.latency_overhead_s,
            "gap_per_byte_s": gp.gap_per_byte_s,
            "gap_s": gp.gap_s,
        },
        "forecast": [
            dict(zip(("size", "value_s", "low_s", "high_s"), (size, *link.predict(size))))
            | {"extrapolated": link.extrapolates(size)}
            for size in forecast
        ],
    }


def _model_table(fitted: Sequence[LinkModel]) -> Table:
    """One line for each segment of each class."""
    from sonde.core.units import format_duration, format_size

    rows = [
        (
            str(k),
            f"{format_size(segment.begin, exact=True)} to {format_size(segment.end, exact=True)}",
            format_duration(segment.alpha_s),
            f"{format_size(round(1 / segment.beta_s_per_b))}/s" if segment.beta_s_per_b > 0 else "–",
            f"±{link.scatter:.1%}",
            f"{link.worst_left_out:.0%}",
        )
        for k, link in enumerate(fitted)
        for segment in link.segments
    ]
    return Table(
        "T(s) = alpha + s / bandwidth, by class of links",
        ("class", "sizes", "alpha", "bandwidth", "scatter", "left out"),
        rows,
        right=(2, 3, 4, 5),
        note="left out: worst error of a size that is forecast from the others",
    )


def _forecast_table(described: Sequence[dict[str, Any]]) -> Table:
    """One line for each class and forecast size."""
    from sonde.core.units import format_duration, format_size

    rows = [
        (
            str(row["class"]),
            format_size(one["size"], exact=True),
            format_duration(one["value_s"]),
            f"{format_duration(one['low_s'])} to {format_duration(one['high_s'])}",
            "extrapolated" if one["extrapolated"] else "",
        )
        for row in described
        for one in row["forecast"]
    ]
    return Table("Forecast", ("class", "size", "delay", "95 % of links", ""), rows, right=(2, 3))

"""sonde bus advise, ls: recommend a variant from the results of a run; list the participants of a bus."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonde.core.errors import EnvironmentFailure, UsageError, Warning
from sonde.core.options import DURATION, SIZE, Whole, common
from sonde.core.outcome import Outcome, Table

if TYPE_CHECKING:
    from sonde.bus.model import Advice, Need


@click.command()
@common()
@click.option(
    "--entities", type=Whole(1), default="1", show_default=True, metavar="N", help="Number of participants."
)
@click.option(
    "--subscribers",
    type=Whole(1),
    default="1",
    show_default=True,
    metavar="M",
    help="Number of readers of a topic.",
)
@click.option("--size", type=SIZE, default="64", show_default=True, metavar="SIZE", help="Size of a sample.")
@click.option("--local/--remote", "local", default=None, help="All participants on one host, or on several.")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    metavar="FILE.nc",
    help="A run. Default: the newest bus*.nc in this folder.",
)
def advise(entities: int, subscribers: int, size: int, local: bool | None, source: Path | None) -> Outcome:
    """Recommend an implementation, a transport and a discovery, based on the results of a run.

    Variants are ranked by the time until the last subscriber receives a message; if these times are similar, by the
    time of a publish. Each recommendation names the numbers behind it and warns if it is outside the measured range.
    Variants with too few measured numbers are not ranked.

    \b
    sonde bus advise --entities 64 --subscribers 8 --size 1KiB --local
    sonde bus advise --entities 96 --subscribers 48 --remote --from bus.nc
    """
    import sonde
    from sonde.bus import model, run_probe
    from sonde.bus.values import Values, between
    from sonde.core import dataset

    if local is None:
        raise UsageError(
            "bus.where",
            "the command does not state whether all participants are on one host",
            "add --local for one host, or --remote for several",
        )
    if size < 1:
        raise UsageError("bus.bad_size", "a sample has at least 1 B", "write it like --size 64")
    path = source or run_probe.newest(Path())
    if path is None:
        raise EnvironmentFailure(
            "bus.no_dataset",
            "this folder contains no run of the bus",
            f"measure: {model.MEASURE if local else model.MEASURE_BETWEEN}",
        )
    need = model.Need(entities, subscribers, size, local)
    with sonde.open(path) as tree:
        summary = dataset.summary_of(tree, "bus", path)
        values = Values(summary)
        hosts = between(tree.attrs)
        found = model.advise(values, need, hosts)
        schema = str(tree.attrs["schema"])
    best = found[0]
    outcome = Outcome(
        "bus",
        "advise",
        _verdict(found, need, path, hosts),
        schema=schema,
        dataset=str(path),
        tables=[_table(found)],
        lines=[
            f"{advice.way.name}: {'; '.join([*advice.because, *(f'not ranked: {text}' for text in advice.too_few)])}"
            for advice in found
        ],
        values={
            "entities": entities,
            "subscribers": subscribers,
            "size": size,
            "local": local,
            "between": hosts or None,
            "advice": [_as_json(advice, rank) for rank, advice in _ranks(found)],
        },
        sound=not best.outside and not any(advice.too_few for advice in found),
    )
    few = list(dict.fromkeys(text for advice in found for text in advice.too_few))
    if few:
        names = ", ".join(advice.way.name for advice in found if advice.too_few)
        outcome.warnings.append(
            Warning("bus.too_few", f"not ranked: {names}: {'; '.join(few)}", _measure(need))
        )
    if best.outside:
        hint = f"measure there: {model.MEASURE if local else model.MEASURE_BETWEEN}"
        outcome.warnings.append(Warning("bus.outside", f"{best.way.name}: {'; '.join(best.outside)}", hint))
    return outcome


def _ranks(found: list[Advice]) -> list[tuple[int | None, Advice]]:
    """The recommendations with their ranks; None: too few numbers were measured for a rank."""
    return [(None if advice.too_few else k, advice) for k, advice in enumerate(found, 1)]


def _measure(need: Need) -> str:
    """The command that measures the numbers for a need."""
    words = ["measure: sonde bus run latency"]
    options = [f"--sizes {need.size}"]
    if need.subscribers > 1 and need.local:
        words.append("fanout")
        options.append(f"--subscribers 1,{need.subscribers}")
    if need.entities > 1:
        words.append("discovery")
        options.append(f"--participants {need.entities}")
    where = [] if need.local else ["--hosts n[1-2] --unprotected"]
    return " ".join([*words, *options, *where, "-o bus.nc"])


def _verdict(found: list[Advice], need: Need, path: Path, hosts: str) -> str:
    from sonde.core.units import format_duration, format_size

    best, text = found[0], ""
    if bool(hosts) == need.local:  # the run measured the other situation
        text = f"{path} has no results {'within one host' if need.local else 'between hosts'}; "
        text += f"based on its results {f'between {hosts}' if hosts else 'within one host'}: "
    what = f"{need.subscribers} subscriber{'s' * (need.subscribers != 1)} of {format_size(need.size, exact=True)} "
    what += "on one host" if need.local else "on several hosts"
    few = [advice for advice in found if advice.too_few]
    if best.too_few:
        text += f"{'t' if text else 'T'}oo few numbers to rank {len(found)} variants for {what}: "
        return text + "; ".join(dict.fromkeys(reason for advice in few for reason in advice.too_few)) + "."
    if few and len(few) == len(found) - 1:
        text += f"{'e' if text else 'E'}nough numbers for {what} only for {best.way.name}: the others are not ranked"
    else:
        text += f"{'b' if text else 'B'}est for {what}: {best.way.name}"
    if best.discovery is not None and need.entities > 1:
        kind = best.discovery.kind
        text += f" with {kind} discovery of {need.entities} participants" if kind else ""
        text += "" if kind else f" (the best discovery for {need.entities} participants is unknown)"
    if math.isfinite(best.latency_s):
        text += f", about {format_duration(best.latency_s)} until the last subscriber receives a message"
    return text + (" (outside the measured range)." if best.outside else ".")


def _table(found: list[Advice]) -> Table:
    from sonde.bus.model import ALIKE
    from sonde.core.units import format_duration, format_share

    # A restriction of all variants is one note; a restriction of some gets a letter.
    restrictions = list(dict.fromkeys(text for advice in found for text in advice.outside))
    of_all = [text for text in restrictions if all(text in advice.outside for advice in found)]
    letters = {
        text: chr(ord("a") + k) for k, text in enumerate(text for text in restrictions if text not in of_all)
    }
    rows = []
    for rank, advice in _ranks(found):
        discovery = advice.discovery if advice.discovery and advice.discovery.kind else None
        rows.append(
            (
                "–" if rank is None else str(rank),
                advice.way.name,
                format_duration(advice.latency_s) if math.isfinite(advice.latency_s) else "–",
                format_duration(advice.publish_s) if math.isfinite(advice.publish_s) else "–",
                discovery.kind if discovery else "–",
                f"{discovery.datagrams:.0f}" if discovery else "–",
                format_duration(discovery.match_s) if discovery and math.isfinite(discovery.match_s) else "–",
                ", ".join(letters[text] for text in advice.outside if text in letters),
            )
        )
    head = ("", "variant", "latency", "publish", "discovery", "datagrams", "to match", "note")
    shown = len(head) - (not letters)
    notes = [
        "latency: time until the last subscriber receives the message. publish: time of the writer for each message. "
        f"Ranked by latency; variants within {format_share(ALIKE)} of each other by publish."
    ]
    if any(advice.too_few for advice in found):
        notes.append("–: not ranked, because too few numbers were measured.")
    notes += [f"all variants: {text}" for text in of_all]
    notes += [f"{letter}: {text}" for text, letter in letters.items()]
    lines = [row[:shown] for row in rows]
    title = "Measured, not ranked" if found[0].too_few else "Recommendations, best first"
    return Table(title, head[:shown], lines, (0, 2, 3, 5, 6), "\n".join(notes))


def _as_json(advice: Advice, rank: int | None) -> dict[str, Any]:
    def number(value: float) -> float | None:
        return value if math.isfinite(value) else None

    low, high = advice.latency_ends
    discovery = advice.discovery
    return {
        "rank": rank,
        "variant": advice.way.name,
        "implementation": advice.way.implementation,
        "transport": advice.way.transport,
        "latency_s": number(advice.latency_s),
        "ci_s": [low, high] if math.isfinite(low) and math.isfinite(high) else None,
        "publish_s": number(advice.publish_s),
        "lost": number(advice.lost),
        "discovery": discovery.kind or None if discovery else None,
        "datagrams": number(discovery.datagrams) if discovery else None,
        "match_s": number(discovery.match_s) if discovery else None,
        "because": advice.because,
        "outside": advice.outside,
        "too_few": advice.too_few,
    }


@click.command("ls")
@common()
@click.option("--variant", metavar="NAME", help="Variant to look with: cyclonedds, fastdds/shm, …")
@click.option("--domain", type=click.IntRange(0, 232), metavar="N", help="Domain to look in.")
@click.option(
    "--seconds",
    "seconds",
    type=DURATION,
    default="2s",
    show_default=True,
    metavar="TIME",
    help="How long to listen for announcements.",
)
def list_(variant: str | None, domain: int | None, seconds: float) -> Outcome:
    """List the participants of a bus, and the topics that they write and read.

    \b
    sonde bus ls
    sonde bus ls --variant fastdds --domain 3
    """
    from sonde.bus import run_probe
    from sonde.bus.variants import NULL, RAW, read_variant
    from sonde.core.units import format_duration

    way = read_variant(variant) if variant else None
    if way is not None and way.implementation in (RAW, NULL):
        raise UsageError(
            "bus.nobody_to_see",
            f"{way.name} has no discovery, so it has no participants to list",
            "name a DDS: --variant cyclonedds, or fastdds",
        )
    listing = run_probe.participants(way.spec if way else "", domain, seconds)
    found = sorted(listing["participants"], key=lambda one: (str(one["name"]), str(one["guid"])))
    ends = listing.get("endpoints", [])
    where = f"domain {listing['domain']} of {listing['implementation']}"
    verdict = f"{_counted(len(found), 'participant')} and {_counted(len(ends), 'endpoint')} in {where}"
    if not found:
        verdict = f"no participant was found in {where} within {format_duration(seconds)}"
    return Outcome(
        "bus",
        "ls",
        verdict,
        tables=[*_participants(found), *_endpoints(ends, {p["guid"]: str(p["name"]) for p in found})],
        values={
            "domain": listing["domain"],
            "implementation": listing["implementation"],
            "participants": found,
            "endpoints": ends,
        },
    )


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'s' * (n != 1)}"


def _participants(found: list[dict[str, Any]]) -> list[Table]:
    rows = [(str(p["name"]), str(p["host"]), str(p["pid"]), str(p["guid"])) for p in found]
    return [Table("Participants", ("name", "host", "process", "guid"), rows, (2,))] if rows else []


def _endpoints(ends: list[dict[str, Any]], names: dict[str, str]) -> list[Table]:
    """The tables of endpoints and types. A column with one value for all endpoints becomes a note or is left out."""
    if not ends:
        return []
    lines = [
        {
            "topic": str(end["topic"]),
            "": "writes" if end["writes"] else "reads",
            "participant": names.get(end["participant"], str(end["participant"])),
            "partitions": ", ".join(end["partitions"]),
            "reliability": str(end["reliability"]),
        }
        for end in ends
    ]
    lines.sort(key=lambda line: (line["topic"], line[""] == "reads", line["participant"]))
    notes = []
    head = list(lines[0])
    for name in ("partitions", "reliability"):
        found = {line[name] for line in lines}
        if len(found) > 1:
            continue
        head.remove(name)
        if name != "partitions" and len(lines) > 1:
            notes.append(f"all are {found.pop()}")
    rows = [tuple(line[name] for name in head) for line in lines]
    types = dict.fromkeys((str(end["topic"]), str(end["type"])) for end in ends)
    return [
        Table("Endpoints", head, rows, (), "; ".join(notes)),
        Table("Types", ("topic", "type"), sorted(types)),
    ]


COMMANDS: tuple[click.Command, ...] = (advise, list_)

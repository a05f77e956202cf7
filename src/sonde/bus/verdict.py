"""The verdict on a summary: one sentence, lessons, warnings, tables and rows. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from sonde.bus import first
from sonde.bus.growth import SOURCE_SQUARE, Law, Line, crossing, slope_of
from sonde.bus.model import discoveries, law_of
from sonde.bus.plan import EACH, STAR, TESTS, Case
from sonde.bus.texts import rate_text, ratio_text, short_text, text_of
from sonde.bus.values import LEAST_EPOCHS, SHARES, Value, Values, Way
from sonde.core import stats
from sonde.core.errors import Warning
from sonde.core.outcome import Table
from sonde.core.status import DRIFT, mostly_converged, status_counts
from sonde.core.units import format_duration, format_share, format_size

Brief = tuple[str, str, str]  # start of a sentence about several variants, the part about one variant, end

MATTERS = 0.05  # a ratio closer to 1 than this counts as no difference
LOSS_MATTERS = 0.001  # a rate with a larger share of lost messages does not count as free of loss
ENOUGH = 0.5  # smallest share of cells with an interval for a meaningful verdict
MOST_COLUMNS = 4  # variants in a table, so that it fits in 80 columns
LOSSY = "!"  # mark in front of a number
NONE = "–"  # shown in place of a missing number

# The tables of each test: quantity and heading.
SHOWN = {
    "latency": (("rtt", "round trip"), ("publish", "publish")),
    "fanout": (
        ("last", "until the last subscriber received it"),
        ("publish", "publish"),
        ("one_way", "one way"),
    ),
    "discovery": (
        ("datagrams", "datagrams until all match"),
        ("time_to_match", "time until all match"),
        ("cpu", "processor time until all match"),
    ),
    "partitions": (("publish", "publish"), ("cycles", "cycles of a publish")),
    "throughput": (("message_rate", "messages a second to each subscriber"), ("byte_rate", "bytes a second")),
    "first-message": (("rtt", "round trip"),),
    "calls": (("rtt", "request and reply"), ("call_rate", "calls a second")),
}
# Text for the shape of discovery: which participants match each other.
SHAPES = {STAR: "one writer and one reader on each other participant", EACH: "each matches all others"}
RATES = ("message_rate", "byte_rate", "publish_rate", "call_rate", "matched")  # a higher value is better


def values(summary: xr.Dataset) -> dict[str, Any]:
    """The numbers of `bus run` and `bus show` for --json."""
    results = Values(summary)
    return {
        **status_counts(results.statuses()),
        "lessons": [
            {name: lesson[name] for name in ("code", "text", "evidence")} for lesson in lessons(results)
        ],
        "laws": [_law_json(way, law) for way, law in laws(results)],
        "results": rows(results),
    }


def rows(results: Values) -> list[dict[str, Any]]:
    """One mapping for each series with data: `results` in docs/reference/json.md."""
    out = []
    for value in results.all:
        case, base = value.case, value.base
        out.append(
            {
                "test": case.test,
                "implementation": value.way.implementation,
                "transport": value.way.transport,
                "n": _whole(value.number),
                "size": _whole(case.size),
                "value": value.median,
                "unit": value.unit,
                "ci": _pair(value.low, value.high),
                "lost": _number(results.lost(value)),
                "quantity": value.quantity,
                "variant": value.way.name,
                "discovery": value.way.discovery if not value.way.raw else None,
                "treatment": case.treatment or None,
                "p99": _number(value.p99),
                "p99_ci": _pair(*value.p99_ends),
                "mean": _number(value.mean),
                "ratio": _number(value.ratio[0]),
                "ratio_ci": _pair(*value.ratio[1:]),
                "ratio_to": results.ways[base].name if base >= 0 else None,
                "ratio_to_raw": _number(value.ratio_to_raw[0]),
                "ratio_to_raw_ci": _pair(*value.ratio_to_raw[1:]),
                "samples": value.n,
                "absent": value.absent,
                "epochs": value.epochs,
                "drift": value.drifted,
            }
        )
    return out


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _pair(low: float, high: float) -> list[float] | None:
    return [low, high] if math.isfinite(low) and math.isfinite(high) else None


def _whole(value: int) -> int | None:
    return value if value >= 0 else None


def _law_json(way: Way, law: Law) -> dict[str, Any]:
    return {
        "variant": way.name,
        "discovery": way.discovery,
        "exponent": law.exponent,
        "exponent_ci": _pair(law.exponent_low, law.exponent_high),
        "factor": law.factor,
        "square": law.square,
        "square_ci": _pair(law.square_low, law.square_high),
        "source_square": SOURCE_SQUARE,
        "quadratic": law.quadratic,
        "exponential": law.exponential,
        "points": law.points,
        "from": law.numbers[0],
        "to": law.numbers[1],
    }


# ---- lessons


def lessons(results: Values) -> list[dict[str, Any]]:
    """The lessons of a run, each as {code, text, evidence}."""
    out: list[dict[str, Any]] = []
    makers = {
        "latency": lambda results: _latency(results) + _keys(results),
        "fanout": _fanout,
        "discovery": _discovery,
        "partitions": _divisions,
        "throughput": _throughput,
        "first-message": _first,
        "calls": _calls,
    }
    for test in results.tests:
        out += makers[test](results)
    return out


def _lesson(code: str, text: str, evidence: Any, brief: Brief | None = None) -> dict[str, Any]:
    return {"code": f"bus.{code}", "text": text, "evidence": evidence, "brief": brief}


def merged_lessons(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lessons for display: lessons that state the same about several variants become one sentence."""
    out: list[dict[str, Any]] = []
    for lesson in found:
        brief, last = lesson["brief"], out[-1] if out else None
        if brief is None or last is None or last["brief"] is None or last["brief"][::2] != brief[::2]:
            out.append(lesson)
            continue
        begins, parts, ends = last["brief"]
        together = (begins, f"{parts}; {brief[1]}", ends)
        out[-1] = last | {"text": f"{begins}: {together[1]}{ends}", "brief": together}
    return out


def compared(a: Value, b: Value) -> tuple[float, float, float]:
    """Ratio of a to b, paired by stretch of time: estimate, low, high; NaN where unknown."""
    both = (a.blocks > 0) & (b.blocks > 0)
    if not both.any():
        return (math.nan,) * 3
    shift = stats.hodges_lehmann(np.log(a.blocks[both]) - np.log(b.blocks[both]))
    return math.exp(shift.estimate), math.exp(shift.low), math.exp(shift.high)


def _real(found: Sequence[Value]) -> list[Value]:
    """The values of a bus between programs: without raw transports and without the in-process bus."""
    return [value for value in found if not value.way.raw and value.way.transport != "in-process"]


def _best(found: Sequence[Value], least: bool = True) -> tuple[Value, list[Value]] | None:
    """The best of some values, and those that are not significantly worse."""
    if not found:
        return None
    best = (min if least else max)(found, key=lambda value: value.median)
    near = []
    for other in found:
        if other is best:
            continue
        _, low, high = compared(other, best)
        if not (low > 1 if least else high < 1):
            near.append(other)
    return best, near


def _latency(results: Values) -> list[dict[str, Any]]:
    out = []
    sizes: dict[str, list[str]] = {}
    evidence = []
    found = results.find("latency")
    for size in sorted({value.case.size for value in found}):
        best = _best(_real([value for value in found if value.case.size == size]))
        if best is None:
            continue
        value, near = best
        names = value.way.name
        if near:
            names += f" (not significantly faster than {_listed([n.way.name for n in near], 'or')})"
        at = f"{format_size(size, exact=True)} ({format_duration(value.median)})"
        sizes.setdefault(names, []).append(at)
        evidence.append({"size": size, "variant": value.way.name, "rtt_s": value.median})
    if sizes:
        text = "shortest round trip: " + "; ".join(f"{names} at {_listed(at)}" for names, at in sizes.items())
        out.append(_lesson("latency", text, {"by_size": evidence}))
    parts, evidence = [], []
    for value in _real(found):
        ratio, low, high = value.ratio_to_raw
        if value.case.size == min(v.case.size for v in found) and math.isfinite(ratio):
            parts.append(f"{value.way.name} {ratio_text(ratio, low, high)}")
            evidence.append({"variant": value.way.name, "size": value.case.size, "ratio_to_raw": ratio})
    if parts:
        size_text = format_size(min(v.case.size for v in found), exact=True)
        out.append(
            _lesson(
                "above_raw",
                f"round trip of {size_text} relative to a bare socket or shared memory: {'; '.join(parts)}",
                {"ratios": evidence},
            )
        )
    return out


def keys_cost(value: Value) -> tuple[float, float, float]:
    """Ratio of the cost with keys to that without, and its interval; for a rate, the factor by which it is lower."""
    ratio, low, high = value.ratio
    return (1 / ratio, 1 / high, 1 / low) if value.quantity in RATES else (ratio, low, high)


def _keys(results: Values) -> list[dict[str, Any]]:
    parts: dict[str, list[str]] = {}
    evidence = []
    for value in results.keyed():
        if value.case.test != "latency":
            continue
        ratio, low, high = value.ratio
        bare = results.ways[value.base].name
        at = f"{ratio_text(ratio, low, high)} at {format_size(value.case.size, exact=True)}"
        parts.setdefault(f"{value.way.name} relative to {bare}:", []).append(at)
        row = {"variant": value.way.name, "against": bare, "size": value.case.size, "ratio": ratio}
        evidence.append(row | {"ci": _pair(low, high)})
    if not parts:
        return []
    each = "; ".join(f"{names} {_listed(at)}" for names, at in parts.items())
    return [_lesson("keys", f"round trip with keys: {each}", {"ratios": evidence})]


def fanout_lines(results: Values, quantity: str = "publish") -> list[tuple[Way, int, Line]]:
    """The cost of each additional subscriber, by variant and size."""
    out = []
    for way in results.ways:
        own = results.find("fanout", quantity, way)
        for size in sorted({value.case.size for value in own}):
            some = [value for value in own if value.case.size == size]
            if len({value.case.subscribers for value in some}) < 2:
                continue
            numbers = np.array([value.case.subscribers for value in some], float)
            line = slope_of(numbers, np.stack([value.blocks for value in some]))
            if line is not None:
                out.append((way, size, line))
    return out


def _fanout(results: Values) -> list[dict[str, Any]]:
    out = []
    for quantity, what in (
        ("publish", "the time of a publish"),
        ("last", "the time until the last one receives the message"),
    ):
        lines = fanout_lines(results, quantity)
        if not lines:
            continue
        size = min(size for _, size, _ in lines)
        lines = sorted((line for line in lines if line[1] == size), key=lambda line: line[2].slope)
        parts = [f"{way.name} {_slope(line)}" for way, _, line in lines]
        text = f"each additional subscriber adds to {what}: {'; '.join(parts)}"
        evidence = [
            {
                "variant": way.name,
                "size": size,
                "slope_s": line.slope,
                "ci": _pair(line.slope_low, line.slope_high),
            }
            for way, size, line in lines
        ]
        out.append(_lesson(f"fanout_{quantity}", text, {"slopes": evidence}))
    return out


def _slope(line: Line) -> str:
    text = _signed(line.slope)
    if not math.isfinite(line.slope_low):
        return f"about {text}"
    if line.slope_low <= 0 <= line.slope_high:
        return f"nothing significant ({_signed(line.slope_low)} to {_signed(line.slope_high)})"
    return f"{text} ({_signed(line.slope_low)} to {_signed(line.slope_high)})"


def _signed(value_s: float) -> str:
    return f"−{format_duration(-value_s)}" if value_s < 0 else format_duration(value_s)


def laws(results: Values) -> list[tuple[Way, Law]]:
    """The growth law of the datagrams of discovery, by variant."""
    found = [(way, law_of(results, way)) for way in results.ways]
    return [(way, law) for way, law in found if law is not None]


def law_text(law: Law) -> str:
    """ "2.4·N^2.02 (exponent 1.9 to 2.1)"."""
    text = f"{law.factor:.3g}·N^{law.exponent:.2f}"
    if math.isfinite(law.exponent_low):
        text += f" (exponent {law.exponent_low:.2f} to {law.exponent_high:.2f})"
    return text


def _discovery(results: Values) -> list[dict[str, Any]]:
    out = []
    for way, law in laws(results):
        if way.discovery != "simple":
            continue
        text = f"datagrams of simple discovery over {way.name} grow as {law_text(law)} from {law.numbers[0]:.0f} to "
        text += f"{law.numbers[1]:.0f} participants, {SHAPES[results.shape]}"
        if law.quadratic is None:
            text += "; inconclusive whether the growth is quadratic: too few participant counts or too large a misfit"
        elif law.quadratic:
            text += f"; the growth is quadratic: {law.square:.3g}·N² ({law.square_low:.3g} to {law.square_high:.3g})"
        else:
            text += f"; the growth is {'faster' if law.exponent > 2 else 'slower'} than quadratic"
        if law.exponential is not None:
            text += f"; an exponential fits {'better' if law.exponential else 'worse'}"
        text += f" (the figure of the source shows {SOURCE_SQUARE:g}·N² and calls it exponential)"
        out.append(_lesson("discovery_growth", text, _law_json(way, law)))
    by_way = dict((way.row, law) for way, law in laws(results))
    for way in results.ways:
        simple = discoveries(results, way).get("simple") if way.discovery in ("peers", "server") else None
        lesson = _against_simple(results, simple, way, by_way) if simple is not None else None
        if lesson is not None:
            out.append(lesson)
    return out + _unmatched(results)


def _unmatched(results: Values) -> list[dict[str, Any]]:
    """Lessons on discovery that timed out: for each variant the case with the most participants."""
    out = []
    for way in results.ways:
        short = [value for value in results.discovered("matched", way) if value.least < 1]
        if not short:
            continue
        worst = max(short, key=lambda value: value.case.entities)
        sent = results.of(way, worst.case, "datagrams_unmatched")
        text = f"discovery of {worst.case.entities} participants over {way.name}, {SHAPES[results.shape]}, timed out: "
        text += f"{format_share(worst.least)} of the matches were made"
        text += f", after {sent.most:.0f} datagrams" if sent else ""
        evidence = {
            "variant": way.name,
            "participants": worst.case.entities,
            "matched": worst.least,
            "datagrams": sent.most if sent else None,
        }
        out.append(_lesson("discovery_unmatched", text, evidence))
    return out


def _against_simple(
    results: Values, simple: Way, other: Way, by_way: dict[int, Law]
) -> dict[str, Any] | None:
    """The number of participants above which another discovery needs fewer datagrams, and the largest saving."""
    common = {}
    for value in results.discovered("datagrams", simple):
        beside = results.of(other, value.case, "datagrams")
        if beside is not None:
            common[value.case.entities] = (value.median, beside.median)
    if not common:
        return None
    most = max(common)
    a, b = common[most]
    text = f"with {most} participants, {SHAPES[results.shape]}, {other.discovery} discovery over {other.name} needs "
    text += f"{b:.0f} datagrams, " + (f"1/{short_text(a / b)} of" if b < a else "not fewer than")
    text += f" the {a:.0f} of simple discovery over {simple.name}"
    # Fewer datagrams at every measured number from there on.
    more = [n for n, (x, y) in common.items() if not y < x]
    fewer = [n for n in sorted(common) if n > max(more, default=0)]
    where = crossing(by_way.get(simple.row), by_way.get(other.row))
    if fewer and more:
        text += f"; it needs fewer datagrams with {fewer[0]} participants or more"
        if where is not None:
            text += f" (the fitted laws cross at about {where:.0f})"
    elif not fewer and where is not None and where > most:
        text += f"; according to the fitted laws it needs fewer with about {where:.0f} or more"
    evidence = {
        "variant": other.name,
        "against": simple.name,
        "participants": most,
        "datagrams": b,
        "simple": a,
        "crossing": where,
    }
    return _lesson("discovery_kinds", text, evidence)


def _divisions(results: Values) -> list[dict[str, Any]]:
    """The cost of a publish by kind of group, relative to topics, at the largest number of groups."""
    out = []
    for way in results.ways:
        own = results.find("partitions", way=way)
        if not own:
            continue
        most = max(value.case.entities for value in own)
        by_division = {value.case.treatment: value for value in own if value.case.entities == most}
        if "topic" not in by_division:
            continue
        parts, evidence, about = [], [], []
        for division, value in by_division.items():
            if division == "topic":
                continue
            ratio, low, high = compared(value, by_division["topic"])
            parts.append(f"{division}s {_against(ratio, low, high)}")
            evidence.append({"division": division, "ratio_to_topic": _number(ratio), "ci": _pair(low, high)})
            if math.isfinite(ratio) and not math.isfinite(low):
                about.append(f"{division}s about {short_text(ratio)} times")
        if parts:
            groups = f"with {most} group{'s' * (most != 1)}, relative to topics"
            text = f"time of a publish over {way.name} {groups}: {'; '.join(parts)}"
            few = len(about) == len(parts)
            brief = (
                (
                    f"time of a publish {groups}",
                    f"{way.name} {_listed(about)}",
                    " (too few epochs for an interval)",
                )
                if few
                else None
            )
            facts = {"variant": way.name, "groups": most, "ratios": evidence}
            out.append(_lesson("divisions", text, facts, brief))
    return out


def _against(ratio: float, low: float, high: float) -> str:
    if not math.isfinite(ratio):
        return "unknown"
    if not math.isfinite(low):
        return f"about {short_text(ratio)} times (too few epochs for an interval)"
    if low <= 1 <= high:
        return f"no significant difference ({short_text(low)} to {short_text(high)})"
    return ratio_text(ratio, low, high)


def _throughput(results: Values) -> list[dict[str, Any]]:
    found = _real(results.find("throughput"))
    if not found:
        return []
    out = []
    for kind, unit in (("message_rate", "messages/s"), ("byte_rate", "B/s")):
        own = [value for value in _real(results.find("throughput", kind)) if value.case.subscribers == 1]
        whole = [value for value in own if not results.lost(value) > LOSS_MATTERS]
        best = _best(whole, least=False)
        if best is None:
            continue
        value, _ = best
        rate = rate_text(value.median, unit)
        lost = results.lost(value)
        what = "bytes" if unit == "B/s" else "messages"
        text = f"highest rate of {what} to one subscriber with negligible loss: {rate} over "
        text += f"{value.way.name} at {format_size(value.case.size, exact=True)}, {value.case.treatment}"
        text += f" ({format_share(lost)} lost)" if math.isfinite(lost) else " (loss not counted)"
        evidence = {
            "variant": value.way.name,
            "case": value.case.spec,
            "rate": value.median,
            "lost": _number(lost),
        }
        out.append(_lesson(kind, text, evidence))
    lossy = sorted(
        (value for value in found if results.lost(value) > LOSS_MATTERS), key=results.lost, reverse=True
    )
    if lossy:
        parts = [
            f"{value.way.name} {format_share(results.lost(value))} ({value.case.title})"
            for value in lossy[:3]
        ]
        more = f" and {len(lossy) - 3} more" if len(lossy) > 3 else ""
        text = f"messages were lost in {len(lossy)} of {len(found)} cases: {'; '.join(parts)}{more}"
        cells = [{"variant": v.way.name, "case": v.case.spec, "lost": results.lost(v)} for v in lossy]
        out.append(_lesson("loss", text, {"cases": cells}))
    return out


def _first(results: Values) -> list[dict[str, Any]]:
    out = []
    for found in first.breakdowns(results):
        evidence = {
            "variant": found.way.name,
            "message": found.slow,
            "size": found.size,
            "value_s": found.slow_s,
            "usual_s": found.usual_s,
            "ratio": _number(found.ratio[0]),
            "ratio_ci": _pair(*found.ratio[1:]),
            "epochs": found.pairs,
            "parts": [
                {
                    "treatment": part.treatment,
                    "value_s": part.value,
                    "share": _number(part.share),
                    "ci": _pair(part.low, part.high),
                    "judged": part.judged,
                }
                for part in found.parts
            ],
        }
        out.append(_lesson("first_message", first.sentence(found), evidence, first.brief(found)))
    return out


def _calls(results: Values) -> list[dict[str, Any]]:
    out = []
    for way in results.ways:
        own = results.find("calls", way=way)
        if not own or way.raw:
            continue
        value = max(own, key=lambda value: value.case.entities)
        wrong = results.of(way, value.case, "mismatched")
        clients = value.case.entities
        text = f"{clients} client{'s' * (clients != 1)} over {way.name}: "
        text += f"median time of a reply {format_duration(value.median)}, 99 % quantile {format_duration(value.p99)}; "
        text += f"{format_share(results.lost(value))} of the replies were lost"
        mismatched = wrong.mean if wrong else math.nan
        text += f", {format_share(mismatched)} belonged to another request" if wrong else ""
        evidence = {
            "variant": way.name,
            "clients": clients,
            "reply_s": value.median,
            "lost": _number(results.lost(value)),
        }
        out.append(_lesson("calls", text, evidence | {"mismatched": _number(mismatched)}))
    return out


# ---- texts


def sentence(summary: xr.Dataset, dataset: str = "FILE", hosts: str = "") -> str:
    """The verdict in one sentence. hosts: the hosts of the run, "" for a single one."""
    results = Values(summary)
    counted = status_counts(results.statuses())
    if not counted["cells"]:
        return "Nothing was measured."
    parts = [lesson["text"] for lesson in lessons(results)[:1]]
    if not mostly_converged(counted):
        few = f"only {counted['converged']}" if counted["converged"] else "none"
        parts.append(f"{few} of {counted['cells']} cells converged: give a longer --budget")
    elif counted["drift"]:
        parts.append(f"{counted['drift']} of {counted['cells']} cells drifted")
    text = "; ".join(parts) or f"{counted['cells']} cells were measured"
    if hosts:
        text = f"between {hosts}: {text}"
    return capitalised(f"{text}.")


def capitalised(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def sound(summary: xr.Dataset) -> bool:
    """Whether the verdict has enough data: most cells have an interval."""
    cells = Values(summary).cells()
    known = [value for value in cells if math.isfinite(value.low) and value.epochs >= LEAST_EPOCHS]
    return bool(cells) and len(known) >= ENOUGH * len(cells)


def good(summary: xr.Dataset) -> bool:
    """Whether the verdict needs no second look: it has enough data, and most cells reached the requested precision."""
    return sound(summary) and mostly_converged(status_counts(Values(summary).statuses()))


def doubt(summary: xr.Dataset) -> str:
    """The reason why the numbers are unreliable, in a few words; "" where they are reliable."""
    return "" if sound(summary) else "most cells were measured in too few epochs"


def warnings(summary: xr.Dataset) -> list[Warning]:
    """Warnings for a reader of the numbers, as far as they follow from /summary alone."""
    drifted = [value for value in Values(summary).cells() if value.status == DRIFT]
    if not drifted:
        return []
    named = "; ".join(f"{value.way.name}, {value.case.title}" for value in drifted[:3])
    more = f" and {len(drifted) - 3} more" if len(drifted) > 3 else ""
    return [
        Warning(
            "bus.drift",
            f"the level of {len(drifted)} cell{'s' * (len(drifted) > 1)} drifted during the run: {named}{more}",
            "their intervals hold only for the time of this run; ratios are paired by epoch and are more reliable",
        )
    ]


def _listed(items: Sequence[str], last: str = "and") -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}"


# ---- tables


def tables(summary: xr.Dataset, intervals: bool = False) -> list[Table]:
    """The results of each test, one column for each variant. intervals: add the 95 % intervals in brackets."""
    results = Values(summary)
    out: list[Table] = []
    for test in results.tests:
        for quantity, what in SHOWN[test] if intervals else SHOWN[test][:2]:
            out += _tables_of(results, test, quantity, what, intervals)
        if test == "throughput":
            out += _tables_of(results, test, "lost", "share lost", intervals)
        if test == "first-message":
            out += _breakdown_tables(results)
        if test == "discovery" and (shown := laws(results)):
            out.append(_law_table(shown))
    if keyed := results.keyed():
        out += _keys_tables(results, keyed)
    return out


def _tables_of(results: Values, test: str, quantity: str, what: str, intervals: bool) -> list[Table]:
    found = results.find(test, quantity)
    if not found:
        return []
    ways = [way for way in results.ways if any(value.way == way for value in found)]
    cases = [case for case in results.cases if any(value.case == case for value in found)]
    shared, names = _apart(test, cases)
    title = capitalised(f"{test}{shared}: {what}")
    most = MOST_COLUMNS - intervals
    # Variants are columns, unless variants as rows give fewer tables.
    turned = -(-len(cases) // most) < -(-len(ways) // most)
    heads, rows = (names, [way.name for way in ways]) if turned else ([way.name for way in ways], names)
    cells = np.array(
        [
            [_cell(results, results.of(way, case, quantity), quantity, intervals) for case in cases]
            for way in ways
        ]
    )
    cells = cells if turned else cells.T
    out = []
    for part in np.array_split(np.arange(len(heads)), -(-len(heads) // most)):
        lines = [[name, *line] for name, line in zip(rows, cells[:, part].tolist()) if set(line) != {NONE}]
        marked = any(cell.startswith(LOSSY) for line in lines for cell in line)
        lossy = f"more than {format_share(LOSS_MATTERS)} of the messages were lost"
        note = f"{LOSSY} before a rate: {lossy}" if marked else ""
        columns = ("variant" if turned else "case", *(heads[k] for k in part))
        right = tuple(range(1, len(columns)))
        out.append(Table(title, columns, lines, right, note, () if turned else right))
    return out


def _apart(test: str, cases: Sequence[Case]) -> tuple[str, list[str]]:
    """The part common to all cases of a test, such as ", 64 B", and for each case the rest: a row's name."""
    parts = [case.title.removeprefix(f"{test}, ").split(", ") for case in cases]
    if len(cases) < 2 or len({len(part) for part in parts}) > 1:
        return "", [", ".join(part) for part in parts]
    same = [len(set(column)) == 1 for column in zip(*parts)]
    shared = [f", {word}" for word, all_have in zip(parts[0], same) if all_have]
    names = [", ".join(word for word, all_have in zip(part, same) if not all_have) for part in parts]
    return "".join(shared), names


def _cell(results: Values, value: Value | None, quantity: str, intervals: bool) -> str:
    if value is None:
        return NONE
    if quantity in SHARES:
        return format_share(value.mean)
    text = text_of(value.median, value.unit)
    if quantity in RATES and results.lost(value) > LOSS_MATTERS:
        text = f"{LOSSY}{text}"
    if intervals and math.isfinite(value.ends[0]):
        text += f" ({_between(*value.ends, value.unit)})"
    return text


def _breakdown_tables(results: Values) -> list[Table]:
    out = []
    for found in first.breakdowns(results):
        lines = [
            (part.treatment, format_duration(part.value), _taken(part), _ends(part), part.judged)
            for part in found.parts
        ]
        if lines:
            title = (
                f"Why {found.slow} takes longer than {format_duration(found.usual_s)} over {found.way.name}"
            )
            head = ("treatment", "round trip", "share removed", "95 %", "judged")
            out.append(Table(title, head, lines, (1, 2, 3)))
    return out


def _taken(part: first.Part) -> str:
    if part.share < -1:
        return "takes longer"
    return format_share(part.share) if part.share <= 2 else "more than all"


def _ends(part: first.Part) -> str:
    if not math.isfinite(part.low) or max(-part.low, part.high) > 10:
        return ""
    return f"{part.low:.0%} to {part.high:.0%}"


def _keys_tables(results: Values, keyed: Sequence[Value]) -> list[Table]:
    ways = list(dict.fromkeys(value.way for value in keyed))
    cases = [case for case in results.cases if any(value.case == case for value in keyed)]
    by_case = {(value.way, value.case): value for value in keyed}
    note = "Paired by epoch, with 95 % intervals; for a rate, the factor by which it is lower."
    out = []
    for part in np.array_split(np.arange(len(ways)), -(-len(ways) // (MOST_COLUMNS - 1))):
        shown = [ways[k] for k in part]
        lines = []
        for case in cases:
            cells = [by_case.get((way, case)) for way in shown]
            lines.append([case.title, *("–" if value is None else _times(value) for value in cells)])
        against = "; ".join(f"{way.name} relative to {_bare(results, keyed, way)}" for way in shown)
        columns = ("case", *(way.name for way in shown))
        right = tuple(range(1, len(columns)))
        out.append(
            Table(
                "Cost of keys, relative to the same variant without keys",
                columns,
                lines,
                right,
                f"{against}.\n{note}",
                right,
            )
        )
    return out


def _bare(results: Values, keyed: Sequence[Value], way: Way) -> str:
    return next(results.ways[value.base].name for value in keyed if value.way == way)


def _times(value: Value) -> str:
    ratio, low, high = keys_cost(value)
    return (
        f"{short_text(ratio)} ({short_text(low)}–{short_text(high)})"
        if math.isfinite(low)
        else short_text(ratio)
    )


def _law_table(found: Sequence[tuple[Way, Law]]) -> Table:
    lines = []
    for way, law in found:
        square = NONE if law.quadratic is None else ("yes" if law.quadratic else "no")
        range_ = f"{law.numbers[0]:.0f} to {law.numbers[1]:.0f}"
        lines.append((way.name, way.discovery, range_, law_text(law), square))
    head = ("variant", "discovery", "participants", "datagrams", "quadratic?")
    note = f"N: participants. The source's figure of simple discovery shows {SOURCE_SQUARE:g}·N²."
    return Table("Discovery: growth of datagrams", head, lines, (), note)


def variant_table(summary: xr.Dataset) -> Table:
    """The table of variants."""
    lines = [
        (way.name, way.implementation, way.version, way.transport, way.options)
        for way in Values(summary).ways
    ]
    return Table("Variants", ("variant", "implementation", "version", "transport", "options"), lines)


def case_tables(summary: xr.Dataset, name: str) -> list[Table]:
    """The tables of one case, one for each quantity, with intervals and ratios; [] for an unknown name.

    name: the title or specification of the case, or the beginning of it.
    """
    results = Values(summary)
    case = next((case for case in results.cases if name in (case.title, case.spec)), None)
    case = case or next(
        (c for c in results.cases if c.title.startswith(name) or c.spec.startswith(name)), None
    )
    if case is None:
        return []
    return [
        _quantity_table(results, case, quantity)
        for quantity in dict.fromkeys(value.quantity for value in results.all if value.case == case)
    ]


def _quantity_table(results: Values, case: Case, quantity: str) -> Table:
    found = [value for value in results.all if (value.case, value.quantity) == (case, quantity)]
    title = capitalised(f"{case.title}: {quantity}")
    if quantity in SHARES:
        lines = [(value.way.name, format_share(value.mean), str(value.n)) for value in found]
        return Table(title, ("variant", "mean", "n"), lines, (1, 2), "", (1, 2))
    rows = [
        (
            value.way.name,
            text_of(value.median, value.unit),
            _between(*value.ends, value.unit),
            text_of(value.p99, value.unit),
            short_text(value.ratio[0]),
            short_text(value.ratio_to_raw[0]),
            str(value.n),
        )
        for value in found
    ]
    head = ("variant", "median", "95 %", "99 %", "ratio", "× raw", "n")
    columns = [
        k for k in range(len(head)) if k not in (2, 4, 5) or any(row[k] not in ("–", "") for row in rows)
    ]
    table = [tuple(row[k] for k in columns) for row in rows]
    note = _bases(results, found) if 4 in columns else ""
    return Table(title, [head[k] for k in columns], table, tuple(range(1, len(columns))), note)


def _bases(results: Values, found: Sequence[Value]) -> str:
    """The note on what ratios are relative to: mostly the first variant; with keys, the same variant without."""
    over: dict[str, list[str]] = {}
    for value in found:
        if value.base >= 0:
            over.setdefault(results.ways[value.base].name, []).append(value.way.name)
    if len(over) < 2:
        return "".join(f"ratio: relative to {base}" for base in over)
    return "ratio: " + "; ".join(f"{_listed(names)} relative to {base}" for base, names in over.items())


def _between(low: float, high: float, unit: str) -> str:
    """ "36.4–47.7 µs": the unit appears once if both ends have the same."""
    if not math.isfinite(low):
        return ""
    one, other = text_of(low, unit), text_of(high, unit)
    if one == other:
        return one
    number, blank, word = one.rpartition(" ")
    if blank and word and not word.isdigit() and other.endswith(f" {word}"):
        one = number
    return f"{one}–{other}"


def titles(results: Values) -> list[str]:
    return [case.title for case in results.cases]


def test_titles(results: Values) -> str:
    """The titles of the tests that were run."""
    return "; ".join(TESTS[test].title for test in results.tests)

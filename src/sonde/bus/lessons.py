"""The lessons of a run: what its numbers say, each with its evidence. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sonde.bus import first
from sonde.bus.cases import EACH, STAR
from sonde.bus.growth import SOURCE_SQUARE, Law, Line, crossing, slope_of
from sonde.bus.model import discoveries, law_of
from sonde.bus.texts import listed, rate_text, ratio_text, short_text
from sonde.bus.values import Value, Values, Way
from sonde.core import stats
from sonde.core.units import format_duration, format_share, format_size

Brief = tuple[str, str, str]  # start of a sentence about several variants, the part about one variant, end
MATTERS = 0.05  # a ratio closer to 1 than this counts as no difference
LOSS_MATTERS = 0.001  # a rate with a larger share of lost messages does not count as free of loss
# Text for the shape of discovery: which participants match each other.
SHAPES = {STAR: "one writer and one reader on each other participant", EACH: "each matches all others"}
RATES = ("message_rate", "byte_rate", "publish_rate", "call_rate", "matched")  # a higher value is better


def finite(value: float) -> float | None:
    """The number for JSON; None if it is NaN or infinite."""
    return value if math.isfinite(value) else None


def pair(low: float, high: float) -> list[float] | None:
    """An interval for JSON; None without two finite ends."""
    return [low, high] if math.isfinite(low) and math.isfinite(high) else None


def law_document(way: Way, law: Law) -> dict[str, Any]:
    """A growth law for JSON: `laws` in docs/reference/json.md."""
    return {
        "variant": way.name,
        "discovery": way.discovery,
        "exponent": law.exponent,
        "exponent_ci": pair(law.exponent_low, law.exponent_high),
        "factor": law.factor,
        "square": law.square,
        "square_ci": pair(law.square_low, law.square_high),
        "source_square": SOURCE_SQUARE,
        "quadratic": law.quadratic,
        "exponential": law.exponential,
        "points": law.points,
        "from": law.numbers[0],
        "to": law.numbers[1],
    }


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
            names += f" (not significantly faster than {listed([n.way.name for n in near], 'or')})"
        at = f"{format_size(size, exact=True)} ({format_duration(value.median)})"
        sizes.setdefault(names, []).append(at)
        evidence.append({"size": size, "variant": value.way.name, "rtt_s": value.median})
    if sizes:
        text = "shortest round trip: " + "; ".join(f"{names} at {listed(at)}" for names, at in sizes.items())
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
        evidence.append(row | {"ci": pair(low, high)})
    if not parts:
        return []
    each = "; ".join(f"{names} {listed(at)}" for names, at in parts.items())
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
                "ci": pair(line.slope_low, line.slope_high),
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
        out.append(_lesson("discovery_growth", text, law_document(way, law)))
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
            evidence.append({"division": division, "ratio_to_topic": finite(ratio), "ci": pair(low, high)})
            if math.isfinite(ratio) and not math.isfinite(low):
                about.append(f"{division}s about {short_text(ratio)} times")
        if parts:
            groups = f"with {most} group{'s' * (most != 1)}, relative to topics"
            text = f"time of a publish over {way.name} {groups}: {'; '.join(parts)}"
            few = len(about) == len(parts)
            brief = (
                (
                    f"time of a publish {groups}",
                    f"{way.name} {listed(about)}",
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
            "lost": finite(lost),
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
            "ratio": finite(found.ratio[0]),
            "ratio_ci": pair(*found.ratio[1:]),
            "epochs": found.pairs,
            "parts": [
                {
                    "treatment": part.treatment,
                    "value_s": part.value,
                    "share": finite(part.share),
                    "ci": pair(part.low, part.high),
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
            "lost": finite(results.lost(value)),
        }
        out.append(_lesson("calls", text, evidence | {"mismatched": finite(mismatched)}))
    return out

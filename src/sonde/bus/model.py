"""The usage model: recommends a variant for a number of participants and subscribers, from the results of a run. Pure.

The model has no rules of thumb: latency, load and the cost of discovery of each variant come from its measured results.
Each recommendation names the numbers behind it, and states whether it lies outside the measured range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from sonde.bus.growth import Estimate, Law, estimate_at, power_law
from sonde.bus.values import LEAST_EPOCHS, Value, Values, Way
from sonde.bus.variants import NULL, WITHIN_HOST
from sonde.core.errors import DataError
from sonde.core.units import format_duration, format_share, format_size

ALIKE = 0.10  # latencies within this share count as equal; then the load on the publisher decides
SIMPLER = 2.0  # simple discovery needs no server, so it is preferred up to this factor in datagrams
NAN = float("nan")
MEASURE = "sonde bus run latency fanout discovery throughput -o bus.nc"
MEASURE_BETWEEN = "sonde bus run latency discovery throughput --hosts n[1-2] --unprotected -o bus.nc"


@dataclass(frozen=True)
class Need:
    """The requirements of a user. size: B. local: all participants are on one host."""

    entities: int
    subscribers: int
    size: int
    local: bool


@dataclass(frozen=True)
class Discovery:
    """A kind of discovery and its cost for the number of participants.

    kind: "" if too few numbers were measured to choose one. datagrams, match_s: until all participants match; NaN:
    unknown. way: the variant on which it was measured.
    """

    kind: str
    way: Way
    datagrams: float
    match_s: float
    law: Law | None
    beyond: bool
    because: str


@dataclass(frozen=True)
class Advice:
    """A variant, its expected cost, and the reasons.

    latency_s: time until the last subscriber receives a message, with its interval; publish_s: time of the writer's
    program for each message; NaN: unknown. because: the measured numbers behind it. outside: the respects in which it
    lies outside the measured range. too_few: reasons why it has no rank; empty: it has one.
    """

    way: Way
    latency_s: float
    latency_ends: tuple[float, float]
    publish_s: float
    lost: float
    discovery: Discovery | None
    because: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    too_few: list[str] = field(default_factory=list)


def advise(values: Values, need: Need, between: str = "") -> list[Advice]:
    """The recommendations, best first.

    values: of a run of `latency`, and of `fanout` and `discovery` if there is more than one subscriber or participant.
    between: the hosts of the run, "" for a single host (`values.between`).

    Variants are ranked by the time until the last subscriber receives a message. Of variants within a tenth of each
    other, the one with the shortest time of a publish comes first. Variants with too few measured numbers come last, in
    the order of the run, without a rank.

    Raises
    ------
    DataError  bus.nothing_to_advise: the run has no latencies of a usable variant.
    """
    found = []
    for way in values.ways:
        if way.raw or way.implementation == NULL or (not need.local and way.transport in WITHIN_HOST):
            continue
        if (one := _advice(values, way, need, between)) is not None:
            found.append(one)
    if not found:
        raise DataError(
            "bus.nothing_to_advise",
            "the run has no latencies of a usable variant" + ("" if need.local else " between hosts"),
            f"measure them: {MEASURE if need.local else MEASURE_BETWEEN}",
        )
    return _ranked(found)


def _ranked(found: list[Advice]) -> list[Advice]:
    unknown = [advice for advice in found if advice.too_few or not math.isfinite(advice.latency_s)]
    found = sorted((advice for advice in found if advice not in unknown), key=lambda advice: advice.latency_s)
    out: list[Advice] = []
    while found:
        first = found[0].latency_s
        alike = [advice for advice in found if advice.latency_s <= first * (1 + ALIKE)]
        out += sorted(alike, key=lambda a: a.publish_s if math.isfinite(a.publish_s) else math.inf)
        found = [advice for advice in found if advice not in alike]
    return out + unknown


def _advice(values: Values, way: Way, need: Need, between: str) -> Advice | None:
    sources = (
        (values.find("latency", "one_way", way), 1.0, "one way"),
        (values.find("latency", "rtt", way), 0.5, "half a round trip"),
        (values.find("fanout", "last", way, subscribers=1), 1.0, "time to one subscriber"),
    )
    own, half, what = next((each for each in sources if _by(each[0], "size", need.size)), ([], 1.0, ""))
    one = _by(own, "size", need.size)
    if one is None:
        return None
    publish = _by(values.find("latency", "publish", way), "size", need.size)
    latency, ends = one.value * half, (one.low * half, one.high * half)
    publish_s = publish.value if publish else NAN
    sizes = " and ".join(format_size(int(size), exact=True) for size in one.measured)
    because, outside, too_few = [], [], []
    if math.isfinite(latency):
        place = f" between {between}" if between else ""
        because.append(f"{what} {format_duration(latency)}, measured at {sizes}{place}")
    else:
        too_few.append(f"latency was measured only at {sizes}")
    bursts = min(value.epochs for value in own if value.case.size in one.measured)
    if one.beyond:
        outside.append(f"{format_size(need.size)} is outside the measured range ({sizes})")
    if need.subscribers > 1:
        last, writing = (_fanout(values, way, quantity, need) for quantity in ("last", "publish"))
        if last is None:
            latency, ends = NAN, (NAN, NAN)
            outside.append("several subscribers were not measured")
            too_few.append(outside[-1])
        elif not math.isfinite(last.estimate.value):
            latency, ends = NAN, (NAN, NAN)
            too_few.append(f"fan-out was measured only with {last.counts} subscribers")
        elif last.whole:
            latency, ends = last.estimate.value, (last.estimate.low, last.estimate.high)
            because = [
                f"the last of {need.subscribers} subscribers receives it after {format_duration(latency)}, "
                f"{last.measured}"
            ]
            outside, too_few, bursts = [], [], last.bursts
            if last.size != need.size:
                outside.append(f"several subscribers were measured only with {format_size(last.size)}")
        else:
            more = last.estimate
            latency, ends = latency + more.value, (ends[0] + more.low, ends[1] + more.high)
            because.append(
                f"the last of {need.subscribers} subscribers receives it {format_duration(more.value)} later than a "
                f"single one, {last.measured}"
            )
            bursts = min(bursts, last.bursts)
        if last is not None and last.estimate.beyond:
            outside.append(f"{need.subscribers} subscribers are outside the measured range ({last.counts})")
        if writing is None:
            publish_s = NAN
        else:
            publish_s = writing.estimate.value + (0.0 if writing.whole else publish_s)
    if not need.local and not between:
        outside.append("the run measured within one host: a network adds its own delay")
    if need.local and between:
        outside.append(f"the run measured between {between}, not within one host")
    lost, rate = _rate(values, way, need)
    because += [rate] if rate else []
    discovery = best_discovery(values, way, need.entities)
    if need.entities > 1:
        if discovery is None:
            outside.append("discovery was not measured")
        elif not discovery.kind:
            outside.append(discovery.because)
        else:
            because.append(discovery.because)
            if discovery.beyond:
                outside.append(f"{need.entities} participants are outside the measured range")
            if discovery.way.secured != way.secured:
                keys = "without keys" if way.secured else "with keys"
                outside.append(f"discovery was measured {keys}, over {discovery.way.name}")
    if math.isfinite(latency) and bursts < LEAST_EPOCHS:
        too_few.append(
            f"it was measured in {bursts} burst{'s' * (bursts != 1)}: an interval needs {LEAST_EPOCHS}"
        )
    return Advice(way, latency, ends, publish_s, lost, discovery, because, outside, too_few)


def _by(found: list[Value], by: str, at: float) -> Estimate | None:
    """The estimate at a number of the case: a size, or a number of subscribers."""
    numbers = [float(getattr(value.case, by)) for value in found]
    return estimate_at(numbers, [(value.median, value.low, value.high) for value in found], at)


@dataclass(frozen=True)
class _Fanout:
    """The cost that fan-out adds to a single subscriber; whole: the total cost, because a single one was not measured.

    size: of the measured samples, B. bursts: the smallest number of bursts behind one of its numbers.
    """

    estimate: Estimate
    size: int
    whole: bool
    bursts: int

    @property
    def counts(self) -> str:
        return " and ".join(f"{n:.0f}" for n in self.estimate.measured)

    @property
    def measured(self) -> str:
        return f"measured with {self.counts} subscribers at {format_size(self.size, exact=True)}"


def _fanout(values: Values, way: Way, quantity: str, need: Need) -> _Fanout | None:
    """The fan-out to the number of subscribers, at the measured size nearest to the needed one; None: not measured."""
    own = values.find("fanout", quantity, way)
    if not own:
        return None
    size = min({value.case.size for value in own}, key=lambda size: (abs(size - need.size), size))
    own = [value for value in own if value.case.size == size]
    estimate, alone = _by(own, "subscribers", need.subscribers), _by(own, "subscribers", 1)
    if estimate is None or alone is None:
        return None
    bursts = min(value.epochs for value in own if value.case.subscribers in estimate.measured)
    if alone.beyond:
        return _Fanout(estimate, size, True, bursts)
    value, low, high = (_above(one - alone.value) for one in (estimate.value, estimate.low, estimate.high))
    return _Fanout(Estimate(value, low, high, estimate.measured, estimate.beyond), size, False, bursts)


def _above(value: float) -> float:
    """The value, but at least 0. NaN stays NaN, unlike with max()."""
    return 0.0 if value < 0 else value


def _rate(values: Values, way: Way, need: Need) -> tuple[float, str]:
    """The loss at full speed in the measured case nearest to the need, and a text about its rate."""
    from sonde.bus.texts import rate_text

    own = values.find("throughput", way=way)
    if not own:
        return NAN, ""

    def far(value: Value) -> tuple[float, float, float]:
        apart = abs(math.log(max(value.case.size, 1) / need.size))
        return abs(value.case.subscribers - need.subscribers), apart, values.lost(value)

    nearest = min(own, key=far)
    lost = values.lost(nearest)
    many = f"{nearest.case.subscribers} subscriber{'s' * (nearest.case.subscribers != 1)}"
    text = f"highest rate {rate_text(nearest.median, 'messages/s')} to each of {many} at "
    text += f"{format_size(nearest.case.size, exact=True)}, {nearest.case.treatment or 'reliable'}"
    text += f", with {format_share(lost)} lost" if math.isfinite(lost) else ", loss not counted"
    return lost, text


def discoveries(values: Values, way: Way) -> dict[str, Way]:
    """For each kind of discovery, the variant of the same implementation whose results apply to a variant.

    Preferred is the variant itself; then a variant that also has keys, or also has none, first of the same transport. A
    variant that differs in keys is used only if no kind was measured with the same choice of keys: datagrams with keys
    are many times those without, so results with and without keys cannot be compared.
    """
    found = values.find("discovery", treatment=values.shape)
    candidates = dict.fromkeys(value.way for value in found if value.way.implementation == way.implementation)
    out: dict[str, Way] = {}
    for one in sorted(candidates, key=lambda one: _apart(one, way)):
        out.setdefault(one.discovery, one)
    return {kind: one for kind, one in out.items() if one.secured == way.secured} or out


def _apart(one: Way, way: Way) -> tuple[bool, bool, bool, bool, int]:
    """A sort key: how much a variant's discovery differs from that of another variant of its implementation."""
    other = _besides(one) != _besides(way)
    return one != way, one.secured != way.secured, one.transport != way.transport, other, one.row


def _besides(way: Way) -> set[str]:
    """The options of a variant besides transport, kind of discovery and keys."""
    ignored = ("transport=", "multicast=", "discovery=")
    return {word for word in way.kind[2].split(",") if word and not word.startswith(ignored)}


def law_of(values: Values, way: Way, quantity: str = "datagrams") -> Law | None:
    """The growth law of a quantity of discovery with the number of participants, on a variant."""
    own = values.discovered(quantity, way)
    return power_law([value.case.entities for value in own], [value.median for value in own])


def best_discovery(values: Values, way: Way, entities: int) -> Discovery | None:
    """The best discovery of a variant, from its own results or a similar one (`discoveries`); None: unmeasured.

    Its kind is "" if one of the kinds was measured with a single other number of participants: then its cost is
    unknown, and so is the best kind.
    """
    found, unknown = [], []
    for kind, own in discoveries(values, way).items():
        datagrams = _discovery_estimate(values, own, "datagrams", entities)
        match = _discovery_estimate(values, own, "time_to_match", entities)
        if datagrams is None:
            continue
        law = law_of(values, own)
        count, beyond = datagrams.value, datagrams.beyond
        by = ""
        if beyond and law is not None:
            count, by = law.at(entities), " according to the fitted law"
        measured = " and ".join(f"{n:.0f}" for n in datagrams.measured)
        if not math.isfinite(count):
            unknown.append(
                (own, f"{kind} discovery was measured only with {measured} participants, over {own.name}")
            )
            continue
        because = f"{kind} discovery of {entities} participants needs {count:.0f} datagrams{by}"
        because += f" and {format_duration(match.value)}" if match and math.isfinite(match.value) else ""
        because += f", measured with {measured} over {own.name}"
        found.append(Discovery(kind, own, count, match.value if match else NAN, law, beyond, because))
    if unknown:
        because = f"the best discovery for {entities} participants is unknown: "
        because += "; ".join([*(text for _, text in unknown), *(one.because for one in found)])
        return Discovery("", unknown[0][0], NAN, NAN, None, True, because)
    if not found:
        return None
    least = min(found, key=lambda one: one.datagrams)
    simple = next((one for one in found if one.kind == "simple"), None)
    return simple if simple and simple.datagrams <= SIMPLER * least.datagrams else least


def _discovery_estimate(values: Values, way: Way, quantity: str, entities: int) -> Estimate | None:
    return _by(values.discovered(quantity, way), "entities", entities)

"""The usage model: which way over the bus suits so many participants and subscribers, told from a run's numbers.
Pure.

Nothing here is a rule of thumb: latency, load and the cost of discovery of each way are read off what was measured of
it, and each advice names the numbers behind it. What lies outside what was measured is said to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from sonde.bus.growth import Law, Told, power_law, told_of
from sonde.bus.plan import NULL, WITHIN_HOST
from sonde.bus.values import LEAST_EPOCHS, Value, Values, Way
from sonde.core.errors import DataError
from sonde.core.units import format_duration, format_share, format_size

ALIKE = 0.10  # latencies nearer than this share are alike, and the load on the publisher decides
SIMPLER = (
    2.0  # simple discovery, which needs nothing to run, is preferred up to this many times the datagrams
)
NAN = float("nan")
MEASURE = "sonde bus run latency fanout discovery throughput -o bus.nc"
MEASURE_BETWEEN = "sonde bus run latency discovery throughput --hosts n[1-2] --unprotected -o bus.nc"


@dataclass(frozen=True)
class Need:
    """What somebody wants of a bus. size: B. local: all on one host."""

    entities: int
    subscribers: int
    size: int
    local: bool


@dataclass(frozen=True)
class Discovery:
    """A way to find each other for so many participants.

    kind: "" where too few numbers were measured to say which kind suits. datagrams, match_s: until all have; NaN: not
    known. way: the variant that this was measured on.
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
    """One way, what is to be expected of it, and why.

    latency_s: until the last subscriber has a message, with its ends; publish_s: of the writer's program for each;
    NaN: not known. because: the measured numbers behind it. outside: in which respects it lies outside what was
    measured. too_few: why its place among others is not known; empty: it is.
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
    """Ways over the bus, the best first.

    values: of a run of `latency`, and `fanout` and `discovery` where there is more than one subscriber or
    participant. between: the hosts that it was measured between, "" for one alone (`values.between`).

    Ranked by the time until the last subscriber has a message; of ways within a tenth of each other the one whose
    writer is busy for the shortest time comes first. Those of which too few numbers were measured stand at the end, in
    the run's order: they have no rank.

    Raises
    ------
    DataError  bus.nothing_to_advise: the run has no latencies of a way that could be used.
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
            "the run has no latencies of a way that could be used" + ("" if need.local else " between hosts"),
            f"measure some: {MEASURE if need.local else MEASURE_BETWEEN}",
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
        (values.find("fanout", "last", way, subscribers=1), 1.0, "to one subscriber"),
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
        too_few.append(f"latency was measured at {sizes} alone")
    bursts = min(value.epochs for value in own if value.case.size in one.measured)
    if one.beyond:
        outside.append(f"{format_size(need.size)} is outside what was measured ({sizes})")
    if need.subscribers > 1:
        last, writing = (_fanout(values, way, quantity, need) for quantity in ("last", "publish"))
        if last is None:
            latency, ends = NAN, (NAN, NAN)
            outside.append("it was not measured with several subscribers")
            too_few.append(outside[-1])
        elif not math.isfinite(last.told.value):
            latency, ends = NAN, (NAN, NAN)
            too_few.append(f"fan-out was measured at {last.counts} subscribers alone")
        elif last.whole:
            latency, ends = last.told.value, (last.told.low, last.told.high)
            because = [
                f"the last of {need.subscribers} has it after {format_duration(latency)}, {last.measured}"
            ]
            outside, too_few, bursts = [], [], last.bursts
            if last.size != need.size:
                outside.append(f"several subscribers were measured with {format_size(last.size)} alone")
        else:
            more = last.told
            latency, ends = latency + more.value, (ends[0] + more.low, ends[1] + more.high)
            because.append(
                f"the last of {need.subscribers} has it {format_duration(more.value)} later than one alone, "
                f"{last.measured}"
            )
            bursts = min(bursts, last.bursts)
        if last is not None and last.told.beyond:
            outside.append(f"{need.subscribers} subscribers are outside what was measured ({last.counts})")
        if writing is None:
            publish_s = NAN
        else:
            publish_s = writing.told.value + (0.0 if writing.whole else publish_s)
    if not need.local and not between:
        outside.append("it was measured within one host: a network adds its own delay")
    if need.local and between:
        outside.append(f"it was measured between {between}, and not within one host")
    lost, told = _rate(values, way, need)
    because += [told] if told else []
    discovery = best_discovery(values, way, need.entities)
    if need.entities > 1:
        if discovery is None:
            outside.append("discovery was not measured with it")
        elif not discovery.kind:
            outside.append(discovery.because)
        else:
            because.append(discovery.because)
            if discovery.beyond:
                outside.append(f"{need.entities} participants are outside what was measured")
            if discovery.way.secured != way.secured:
                keys = "without keys" if way.secured else "with keys"
                outside.append(f"discovery was measured {keys}, over {discovery.way.name}")
    if math.isfinite(latency) and bursts < LEAST_EPOCHS:
        too_few.append(
            f"it was measured in {bursts} burst{'s' * (bursts != 1)}: an interval takes {LEAST_EPOCHS}"
        )
    return Advice(way, latency, ends, publish_s, lost, discovery, because, outside, too_few)


def _by(found: list[Value], by: str, at: float) -> Told | None:
    """What values tell of a number of their case: a size, subscribers."""
    numbers = [float(getattr(value.case, by)) for value in found]
    return told_of(numbers, [(value.median, value.low, value.high) for value in found], at)


@dataclass(frozen=True)
class _Fanout:
    """What fan-out adds to one subscriber alone; whole: what it takes altogether, where one alone was not measured.

    size: of the samples that it was measured with, B. bursts: in how many its numbers were measured, of the one with
    the fewest.
    """

    told: Told
    size: int
    whole: bool
    bursts: int

    @property
    def counts(self) -> str:
        return " and ".join(f"{n:.0f}" for n in self.told.measured)

    @property
    def measured(self) -> str:
        return f"measured at {self.counts} subscribers of {format_size(self.size, exact=True)}"


def _fanout(values: Values, way: Way, quantity: str, need: Need) -> _Fanout | None:
    """What is told of so many subscribers, at the size that is nearest to what is needed; None: nothing."""
    own = values.find("fanout", quantity, way)
    if not own:
        return None
    size = min({value.case.size for value in own}, key=lambda size: (abs(size - need.size), size))
    own = [value for value in own if value.case.size == size]
    told, alone = _by(own, "subscribers", need.subscribers), _by(own, "subscribers", 1)
    if told is None or alone is None:
        return None
    bursts = min(value.epochs for value in own if value.case.subscribers in told.measured)
    if alone.beyond:
        return _Fanout(told, size, True, bursts)
    value, low, high = (_above(one - alone.value) for one in (told.value, told.low, told.high))
    return _Fanout(Told(value, low, high, told.measured, told.beyond), size, False, bursts)


def _above(value: float) -> float:
    """Not below 0; NaN stays what it is, which max() would not see to."""
    return 0.0 if value < 0 else value


def _rate(values: Values, way: Way, need: Need) -> tuple[float, str]:
    """The loss at full speed of the case that is nearest to what is needed, and what it did there."""
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
    text = f"at most {rate_text(nearest.median, 'messages/s')} to each of {many} at "
    text += f"{format_size(nearest.case.size, exact=True)}, {nearest.case.treatment or 'reliable'}"
    text += f", with {format_share(lost)} lost" if math.isfinite(lost) else ", loss not counted"
    return lost, text


def discoveries(values: Values, way: Way) -> dict[str, Way]:
    """By kind of discovery the variant whose numbers tell of a way, of those of its implementation.

    Itself; else one with keys where it has them, and without where it has none, of the same transport first. What was
    measured otherwise stands in only where no kind was measured so: datagrams with keys are many times those without,
    and one kind with them held against another without says nothing of the two.
    """
    found = values.find("discovery", treatment=values.shape)
    there = dict.fromkeys(value.way for value in found if value.way.implementation == way.implementation)
    out: dict[str, Way] = {}
    for one in sorted(there, key=lambda one: _apart(one, way)):
        out.setdefault(one.discovery, one)
    return {kind: one for kind, one in out.items() if one.secured == way.secured} or out


def _apart(one: Way, way: Way) -> tuple[bool, bool, bool, bool, int]:
    """How far a variant's discovery is from another's of its implementation."""
    other = _besides(one) != _besides(way)
    return one != way, one.secured != way.secured, one.transport != way.transport, other, one.row


def _besides(way: Way) -> set[str]:
    """What a variant's options say besides transport, kind of discovery and keys."""
    told = ("transport=", "multicast=", "discovery=")
    return {word for word in way.kind[2].split(",") if word and not word.startswith(told)}


def law_of(values: Values, way: Way, quantity: str = "datagrams") -> Law | None:
    """How a quantity of discovery grows with the number of participants over a variant."""
    own = values.discovered(quantity, way)
    return power_law([value.case.entities for value in own], [value.median for value in own])


def best_discovery(values: Values, way: Way, entities: int) -> Discovery | None:
    """How participants of a way find each other best, or of one like it (`discoveries`); None: it was not measured.

    Its kind is "" where one of the kinds was measured at one number of participants alone, and another is asked about:
    what it costs is then not known, and which kind suits neither.
    """
    found, unknown = [], []
    for kind, own in discoveries(values, way).items():
        datagrams = _discovery_told(values, own, "datagrams", entities)
        match = _discovery_told(values, own, "time_to_match", entities)
        if datagrams is None:
            continue
        law = law_of(values, own)
        count, beyond = datagrams.value, datagrams.beyond
        by = ""
        if beyond and law is not None:
            count, by = law.at(entities), " by the law that was fitted"
        measured = " and ".join(f"{n:.0f}" for n in datagrams.measured)
        if not math.isfinite(count):
            unknown.append((own, f"{kind} discovery was measured at {measured} alone, over {own.name}"))
            continue
        because = f"{kind} discovery of {entities} participants {count:.0f} datagrams{by}"
        because += f" and {format_duration(match.value)}" if match and math.isfinite(match.value) else ""
        because += f", measured at {measured} over {own.name}"
        found.append(Discovery(kind, own, count, match.value if match else NAN, law, beyond, because))
    if unknown:
        because = f"which discovery suits {entities} participants is not known: "
        because += "; ".join([*(text for _, text in unknown), *(one.because for one in found)])
        return Discovery("", unknown[0][0], NAN, NAN, None, True, because)
    if not found:
        return None
    least = min(found, key=lambda one: one.datagrams)
    simple = next((one for one in found if one.kind == "simple"), None)
    return simple if simple and simple.datagrams <= SIMPLER * least.datagrams else least


def _discovery_told(values: Values, way: Way, quantity: str, entities: int) -> Told | None:
    return _by(values.discovered(quantity, way), "entities", entities)

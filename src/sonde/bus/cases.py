"""The tests of the bus and their cases, from the numbers in the options. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sonde import _core
from sonde.core.errors import UsageError, Warning, nearest
from sonde.core.units import format_size

ONE_HOST = ("fanout",)  # tests whose programs share memory, so they cannot run between hosts


@dataclass(frozen=True)
class Test:
    """One test: its name in the probe, its title, its first quantity, and the field that counts its cases.

    by: the field of a case with its number: "subscribers", "entities", "" for none.
    """

    name: str
    word: str
    title: str
    quantity: str
    by: str = ""


TESTS = {
    test.name: test
    for test in (
        Test("latency", "latency", "one message there and back", "rtt"),
        Test("fanout", "fanout", "one message to several subscribers", "last", "subscribers"),
        Test("discovery", "discovery", "discovery of participants", "datagrams", "entities"),
        Test("partitions", "partitions", "cost of groups for a message", "publish", "entities"),
        Test("throughput", "throughput", "highest rate of messages", "message_rate", "subscribers"),
        Test("first-message", "first", "the first message, and one after a pause", "rtt"),
        Test("calls", "calls", "requests and replies", "rtt", "entities"),
    )
}
DEFAULT_TESTS = ("latency",)
SIZES = (64, 1024, 16384, 32768)
THROUGHPUT_SIZES = (64, 1024, 16384)
SUBSCRIBERS = (1, 2, 4, 8, 16, 32, 48)
THROUGHPUT_SUBSCRIBERS = (1, 2, 4, 8)
PARTICIPANTS = (4, 8, 16, 32, 64, 96)
CLIENTS = (1, 10, 100)
CALLS = 100
GROUPS = (1, 8, 32)
DIVISIONS = ("topic", "partition", "wildcard", "domain")
# Shapes of discovery: one participant has a writer, all others a reader; or each has both, and all match all.
STAR, EACH = "star", "all"
RELIABILITIES = ("reliable", "best-effort")
# Cases of first-message: the measured message and its treatment. `steady` is a message among others.
STEADY, FIRST, PAUSE = "steady", "first-ever", "pause"
TREATMENTS = (
    STEADY, FIRST, PAUSE, "prefaulted", "after-lookup", "warm-other-topic", "warm-same-participant-new-writer",
    "pause+awake-cores", "pause+spinning-subscriber", "spinning-subscriber", "awake-cores",
    "first-ever+best-effort", "pause+best-effort",
)  # fmt: skip
UNCONFIRMED = "best-effort"  # as a treatment
# Limits of the size of a sample, B, and of one datagram: bare UDP does not split samples.
LEAST_SIZE, MOST_SIZE, MOST_DATAGRAM = (
    _core.bus_sizes()[name] for name in ("least", "most", "most_datagram")
)
# A host has ports for this number of participants of a domain before the ports of the next domain begin
# (DDSI-RTPS 2.3, 9.6.2.4: 250 ports a domain, two a participant, the first ten for others).
MOST_PARTICIPANTS = 119
MOST_CALLS, MOST_GROUPS, MOST_CLIENTS = 100_000, 1024, 1000


@dataclass(frozen=True)
class Case:
    """A test with its numbers; -1 and "": not applicable. options: further options for the probe, "within=30s"."""

    test: str
    size: int = -1
    subscribers: int = -1
    entities: int = -1
    treatment: str = ""
    options: str = ""

    @property
    def spec(self) -> str:
        """As sonde-busprobe takes it: "fanout:subscribers=8,size=64"."""
        words = []
        match self.test:
            case "latency":
                words = [f"size={self.size}"]
            case "fanout" | "throughput":
                words = [f"subscribers={self.subscribers}", f"size={self.size}"]
                words += [f"reliability={self.treatment}"] if self.treatment else []
            case "partitions":
                words = [f"treatment={self.treatment}", f"count={self.entities}", f"size={self.size}"]
            case "discovery":
                words = [f"entities={self.entities}"]
                words += [f"treatment={self.treatment}"] if self.treatment else []
            case "first-message":
                # For the probe, best effort is the reliability of the topic, not a treatment.
                parts = self.treatment.split("+")
                words = [
                    f"treatment={'+'.join(part for part in parts if part != UNCONFIRMED)}",
                    f"size={self.size}",
                ]
                words += [f"reliability={UNCONFIRMED}"] if UNCONFIRMED in parts else []
            case "calls":
                words = [f"clients={self.entities}", f"size={self.size}"]
        words += [self.options] if self.options else []
        return ":".join(filter(None, (TESTS[self.test].word, ",".join(words))))

    @property
    def number(self) -> int:
        """The number of subscribers, participants, partitions or clients; -1: not applicable."""
        by = TESTS[self.test].by
        return int(getattr(self, by)) if by else -1

    @property
    def title(self) -> str:
        """ "latency, 64 B", "fanout, 8 subscribers, 64 B"."""
        parts = [self.test]
        if self.treatment:
            parts.append("all to all" if self.treatment == EACH else self.treatment)
        if self.subscribers >= 0:
            parts.append(f"{self.subscribers} subscriber{'s' * (self.subscribers != 1)}")
        if self.entities >= 0:
            things = {"discovery": "participant", "calls": "client", "partitions": "group"}.get(
                self.test, "other"
            )
            parts.append(f"{self.entities} {things}{'s' * (self.entities != 1)}")
        if self.size >= 0:
            parts.append(format_size(self.size, exact=True))
        return ", ".join(parts)

    def document(self) -> dict[str, Any]:
        """The case as stored in run.json."""
        return {
            "spec": self.spec,
            "test": self.test,
            "size": self.size,
            "subscribers": self.subscribers,
            "entities": self.entities,
            "treatment": self.treatment,
        }


def read_tests(names: Sequence[str]) -> tuple[str, ...]:
    """The tests of a command line, each once. Without names: latency; "all" names every test.

    Raises
    ------
    UsageError  bus.bad_test.
    """
    words = {"first": "first-message"}
    found: dict[str, None] = {}
    for name in (part for text in names for part in text.split(",")):
        name = words.get(name, name)
        if name == "all":
            found |= dict.fromkeys(TESTS)
        elif name in TESTS:
            found[name] = None
        else:
            raise UsageError(
                "bus.bad_test",
                f"'{name}' is not a test{nearest(name, list(TESTS))}; tests: {', '.join(TESTS)}, all",
                "sonde bus run latency",
            )
    return tuple(found) or DEFAULT_TESTS


def between(tests: Sequence[str]) -> tuple[tuple[str, ...], tuple[Warning, ...]]:
    """The tests that can run between hosts, and warnings about the others.

    Raises
    ------
    UsageError  bus.one_host: none of the tests can.
    """
    left = [test for test in tests if test in ONE_HOST]
    usable = tuple(test for test in tests if test not in left)
    why = "subscribers use shared memory to confirm a message to the writer"
    if not usable:
        raise UsageError(
            "bus.one_host",
            f"{', '.join(left)} can only be measured within one host: {why}",
            "name another test, such as latency or throughput, or leave --hosts out",
        )
    notes = [Warning("bus.one_host", f"{test} is not measured between hosts: {why}", "") for test in left]
    return usable, tuple(notes)


@dataclass(frozen=True)
class Wanted:
    """The numbers from the options; (), 0: the default numbers.

    all_to_all, within_s, steady_s: for discovery: every participant matches every other, the time limit, and how long
    datagrams are counted afterwards.
    """

    sizes: tuple[int, ...] = ()
    subscribers: tuple[int, ...] = ()
    participants: tuple[int, ...] = ()
    clients: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()
    calls: int = 0
    all_to_all: bool = False
    within_s: float = 0.0
    steady_s: float = 0.0

    @property
    def any(self) -> bool:
        numbers = (self.sizes, self.subscribers, self.participants, self.clients, self.groups)
        return any(numbers) or self.calls > 0

    def check(self) -> None:
        """Check all limits. Raises UsageError  bus.too_many_participants, bus.bad_size, bus.too_many_clients,
        bus.too_many_calls, bus.too_many_groups.
        """
        for option, numbers, others in (
            ("--participants", self.participants, 0),
            ("--subscribers", self.subscribers, 1),
        ):
            if (most := max(numbers, default=0)) + others > MOST_PARTICIPANTS:
                raise UsageError(
                    "bus.too_many_participants",
                    f"{option} {most} is too many: each is a participant, and a host has ports for "
                    f"{MOST_PARTICIPANTS} in one domain",
                    f"use at most {MOST_PARTICIPANTS - others}",
                )
        for size in self.sizes:
            if not LEAST_SIZE <= size <= MOST_SIZE:
                raise UsageError(
                    "bus.bad_size",
                    f"--sizes {size} is not allowed; allowed: {format_size(LEAST_SIZE)}, the header of a "
                    f"message, to {format_size(MOST_SIZE)}",
                    "write it like 64,16KiB",
                )
        if max(self.clients, default=0) > MOST_CLIENTS:
            raise UsageError(
                "bus.too_many_clients",
                f"--clients {max(self.clients)} is too many: each is a thread, and at most {MOST_CLIENTS} are measured",
                f"use at most {MOST_CLIENTS}",
            )
        if self.calls > MOST_CALLS:
            raise UsageError(
                "bus.too_many_calls",
                f"--calls {self.calls} is too many: a client makes at most {MOST_CALLS} in one step",
                "give a longer --budget instead: it has more steps",
            )
        if max(self.groups, default=0) > MOST_GROUPS:
            raise UsageError(
                "bus.too_many_groups",
                f"--groups {max(self.groups)} is too many: a writer has at most {MOST_GROUPS}",
                f"use at most {MOST_GROUPS}",
            )


def cases_of(tests: Sequence[str], wanted: Wanted | None = None) -> list[Case]:
    """The cases of the tests, in turn from each test, so that a short budget contains cases of all tests.

    Raises
    ------
    UsageError  as Wanted.check.
    """
    wanted = wanted or Wanted()
    wanted.check()
    each = [_cases_of(test, wanted) for test in tests]
    longest = max((len(cases) for cases in each), default=0)
    return [cases[k] for k in range(longest) for cases in each if k < len(cases)]


def _cases_of(test: str, wanted: Wanted) -> list[Case]:
    first_size = wanted.sizes[:1] or SIZES[:1]
    match test:
        case "latency":
            return [Case(test, size) for size in wanted.sizes or SIZES]
        case "fanout":
            sizes = wanted.sizes or SIZES[:1]
            return [Case(test, size, n) for size in sizes for n in wanted.subscribers or SUBSCRIBERS]
        case "throughput":
            many = wanted.subscribers or THROUGHPUT_SUBSCRIBERS
            sizes = wanted.sizes or THROUGHPUT_SIZES
            # Every size with one subscriber, every number of subscribers at the middle size.
            middle = sizes[len(sizes) // 2]
            pairs = [(middle, many[0]), *((size, many[0]) for size in sizes), *((middle, n) for n in many)]
            if wanted.sizes and wanted.subscribers:
                pairs = [(size, n) for size in sizes for n in many]
            return [
                Case(test, size, n, treatment=reliability)
                for size, n in dict.fromkeys(pairs)
                for reliability in RELIABILITIES
            ]
        case "partitions":
            return [
                Case(test, size, entities=n, treatment=division)
                for size in first_size
                for n in wanted.groups or GROUPS
                for division in DIVISIONS
            ]
        case "discovery":
            matching = EACH if wanted.all_to_all else STAR
            times = (("within", wanted.within_s), ("steady", wanted.steady_s))
            options = ",".join(f"{name}={value:g}s" for name, value in times if value > 0)
            return [
                Case(test, entities=n, treatment=matching, options=options)
                for n in wanted.participants or PARTICIPANTS
            ]
        case "first-message":
            return [Case(test, size, treatment=treatment) for size in first_size for treatment in TREATMENTS]
        case "calls":
            calls = f"calls={wanted.calls or CALLS}"
            return [
                Case(test, size, entities=n, options=calls)
                for size in first_size
                for n in wanted.clients or CLIENTS
            ]
    raise UsageError("bus.bad_test", f"'{test}' is not a test", f"tests: {', '.join(TESTS)}")


def case_of(known: Mapping[str, Any]) -> Case:
    """The case with the facts of a dataset."""
    return Case(
        str(known["test"]),
        int(known["size"]),
        int(known["subscribers"]),
        int(known["entities"]),
        str(known["treatment"]),
    )

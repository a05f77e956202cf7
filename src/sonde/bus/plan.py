"""What a run of the bus is to do, before anything is started. Pure: from options to a command line of sonde-
busprobe.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sonde import _core
from sonde.core import hostlist
from sonde.core.errors import UsageError, Warning, nearest
from sonde.core.rules import check_rule
from sonde.core.units import format_duration, format_size

RAW = "raw"  # implementation of the machine's own sockets and shared memory, in results
NULL = "null"
IMPLEMENTATIONS = ("cyclonedds", "fastdds", NULL)
WITHIN_HOST = ("shared-memory", "in-process")  # transports that no other host can be reached by
ONE_HOST = ("fanout",)  # tests whose programs share memory: they are not measured between hosts
TITLES = {
    "cyclonedds": "Cyclone DDS",
    "fastdds": "Fast DDS",
    NULL: "in-process",
    RAW: "bare sockets and memory",
}


@dataclass(frozen=True)
class Test:
    """One test: the probe's word for it, what it asks, which quantity is told first, what it is counted by.

    by: the field of a case that is told as its number: "subscribers", "entities", "" for none.
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
        Test("discovery", "discovery", "participants that find each other", "datagrams", "entities"),
        Test("partitions", "partitions", "what dividing a bus costs a message", "publish", "entities"),
        Test("throughput", "throughput", "as many messages as it takes", "message_rate", "subscribers"),
        Test("first-message", "first", "the first message, and one after a pause", "rtt"),
        Test("calls", "calls", "requests and replies", "rtt", "entities"),
    )
}
DEFAULT_TESTS = ("latency",)

# Transports by the names that people type: what the probe is told, and what results call it.
TRANSPORTS = {
    "udp4": ("transport=udp4", "udp4"),
    "multicast": ("multicast=all", "udp4-multicast"),
    "udp6": ("transport=udp6", "udp6"),
    "tcp4": ("transport=tcp4", "tcp4"),
    "shm": ("transport=shared-memory", "shared-memory"),
}
ALIASES = {"udp": "udp4", "tcp": "tcp4", "shared-memory": "shm", "udp4-multicast": "multicast"}
OVER_UDP = ("udp4", "multicast", "udp6")
DISCOVERIES = ("simple", "peers", "server")
RAW_WORDS = {"udp4": "raw-udp", "tcp4": "raw-tcp", "shm": "raw-shm"}
# What the probe takes behind an implementation, and what its value looks like.
VARIANT_OPTIONS = {
    "transport": "udp4|udp6|tcp4|shared-memory",
    "multicast": "none|discovery|all",
    "discovery": "|".join(DISCOVERIES),
    "announce": r"[0-9].*",
    "security": ".+",
    "identity": r"[\w.-]+",
    "batch": r"[0-9].*",
    "spin": r"auto|never|[0-9].*",
    "receive-buffer": r"[0-9].*",
    "send-buffer": r"[0-9].*",
    "interfaces": r"[\w./:+-]+",
    "unprotected": "yes|no",
    "profile": ".+",
    "without": r"[a-z-]+(\+[a-z-]+)*",
    "only": r"[a-z-]+(\+[a-z-]+)*",
}

SIZES = (64, 1024, 16384, 32768)
THROUGHPUT_SIZES = (64, 1024, 16384)
SUBSCRIBERS = (1, 2, 4, 8, 16, 32, 48)
THROUGHPUT_SUBSCRIBERS = (1, 2, 4, 8)
PARTICIPANTS = (4, 8, 16, 32, 64, 96)
CLIENTS = (1, 10, 100)
CALLS = 100
GROUPS = (1, 8, 32)
DIVISIONS = ("topic", "partition", "wildcard", "domain")
# Of discovery: one participant with a writer, all others with a reader; or each with both, and all match all.
STAR, EACH = "star", "all"
RELIABILITIES = ("reliable", "best-effort")
# Of first-message: the message that is looked at, and what is done about it. `steady` is a message among others.
STEADY, FIRST, PAUSE = "steady", "first-ever", "pause"
TREATMENTS = (
    STEADY, FIRST, PAUSE, "prefaulted", "after-lookup", "warm-other-topic", "warm-same-participant-new-writer",
    "pause+awake-cores", "pause+spinning-subscriber", "spinning-subscriber", "awake-cores",
    "first-ever+best-effort", "pause+best-effort",
)  # fmt: skip
UNCONFIRMED = "best-effort"  # as a treatment
OF_TOPICS = (
    "warm-other-topic",
    "warm-same-participant-new-writer",
    UNCONFIRMED,
)  # which a bare socket has none of

# Of samples, B; of one datagram of bare UDP, which splits none.
LEAST_SIZE, MOST_SIZE, MOST_DATAGRAM = (
    _core.bus_sizes()[name] for name in ("least", "most", "most_datagram")
)
# A host has ports for so many participants of a domain before the next domain's begin (DDSI-RTPS 2.3, 9.6.2.4: 250
# ports a domain, two a participant, the first ten for others).
MOST_PARTICIPANTS = 119
MOST_CALLS, MOST_GROUPS, MOST_CLIENTS = 100_000, 1024, 1000

EPOCHS = 8  # that a plan should have time for: six give an interval of a ratio
SELDOM = {"discovery": 2}  # what takes long is visited less often
FEWEST_CASES = 2
BURST_S = (0.02, 0.2)
RESERVE_S, RESERVE_SHARE, RESERVE_CELL_S, RESERVE_MOST = 1.5, 0.05, 0.004, 0.4


@dataclass(frozen=True)
class Case:
    """A test with its numbers; -1 and "" mean nothing in it. options: what the probe is told besides,
    "within=30s".
    """

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
                # The probe has it for a quality of the topic, and tells it behind what is done about the message.
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
        """What it is counted by: subscribers, participants, partitions, clients; -1: nothing."""
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
        """As run.json keeps it."""
        return {
            "spec": self.spec,
            "test": self.test,
            "size": self.size,
            "subscribers": self.subscribers,
            "entities": self.entities,
            "treatment": self.treatment,
        }


@dataclass(frozen=True)
class Variant:
    """A way over the bus. name: unique. implementation: as results tell it. transport: likewise, "udp4-multicast"; ""
    of a profile: the probe tells it.

    probe: what the probe calls the implementation, "raw-udp". options: "discovery=server". tests: those that are
    measured on it. asked: the user named it.
    """

    name: str
    implementation: str
    transport: str
    probe: str
    options: str = ""
    tests: tuple[str, ...] = tuple(TESTS)
    asked: bool = False

    @property
    def spec(self) -> str:
        """As sonde-busprobe takes it."""
        words = [f"{self.name}={self.probe}", self.options]
        without = [TESTS[test].word for test in TESTS if test not in self.tests]
        words += [f"without={'+'.join(without)}"] if without else []
        return ",".join(filter(None, words))

    @property
    def discovery(self) -> str:
        """How its participants find each other."""
        return discovery_of(self.options)

    @property
    def leaves_host(self) -> bool:
        """Whether programs on other hosts can be reached over it."""
        return self.transport not in WITHIN_HOST

    @property
    def guarded(self) -> bool:
        """Whether it is said who may join: by keys, by a profile, or by the user's word that anybody may."""
        return any(_option(self.options, name) for name in ("security", "profile")) or (
            _option(self.options, "unprotected") == "yes"
        )

    def takes(self, case: Case) -> bool:
        """Whether the case is measured on it: as the probe leaves cases out."""
        if case.test not in self.tests:
            return False
        if "profile=" in self.options and (case.test, case.treatment) == ("partitions", "domain"):
            return False
        if self.implementation != RAW:
            return True
        if self.transport == "udp4" and case.size > MOST_DATAGRAM:
            return False
        return not set(case.treatment.split("+")) & set(OF_TOPICS)


def discovery_of(options: str) -> str:
    """How participants of a variant with these options find each other; "simple" unless they say so."""
    return _option(options, "discovery") or "simple"


def secured(options: str) -> bool:
    """Whether a variant with these options has keys; a profile's own are not known."""
    return bool(_option(options, "security"))


def without_keys(options: str) -> str:
    """The options of the same variant without keys, and without the word that none are needed."""
    gone = ("security", "identity", "unprotected")
    return ",".join(word for word in options.split(",") if word and word.partition("=")[0] not in gone)


def _option(options: str, name: str) -> str:
    words = (word.partition("=") for word in options.split(","))
    return next((value for key, _, value in words if key == name), "")


def transports(ways: Iterable[tuple[str, str]]) -> str:
    """The root attribute `transport` of variants, each an implementation and a transport."""
    return ", ".join(dict.fromkeys(transport for name, transport in ways if name != RAW and transport))


def raw_like(transport: str) -> str:
    """The machine's own way that a transport is held against."""
    like = {"udp4-multicast": "udp4", "udp6": "udp4", "udp6-multicast": "udp4", "in-process": "shared-memory"}
    return like.get(transport, transport)


MESSAGES: tuple[str, ...] = ("latency", "fanout", "partitions", "throughput", "first-message", "calls")
RAW_TESTS: tuple[str, ...] = ("latency", "fanout", "throughput", "first-message")


def variant_of(
    implementation: str, transport: str, discovery: str = "simple", asked: bool = False
) -> Variant:
    """A variant by the names that people type."""
    if implementation == RAW:
        name, told = TRANSPORTS[transport][1], RAW_WORDS[transport]
        return Variant(f"raw/{transport}", RAW, name, told, "", RAW_TESTS, asked)
    if implementation == NULL:
        tests: tuple[str, ...] = tuple(test for test in MESSAGES if test != "first-message")
        return Variant(NULL, NULL, "in-process", NULL, "", tests, asked)
    told, transport_name = TRANSPORTS[transport]
    options = "" if transport == "udp4" else told
    name = f"{implementation}/{transport}"
    tests = MESSAGES + ("discovery",) * (transport == "udp4" or (asked and transport in OVER_UDP))
    if discovery != "simple":
        options = ",".join(filter(None, (options, f"discovery={discovery}")))
        name += f"/{discovery}"
        tests = tuple(TESTS) if asked else ("discovery",)
    return Variant(name, implementation, transport_name, implementation, options, tests, asked)


def usual_variants() -> tuple[Variant, ...]:
    """What is measured when nobody names variants: the first is what others are held against."""
    return (
        variant_of("cyclonedds", "udp4"),
        variant_of("cyclonedds", "multicast"),
        variant_of("fastdds", "udp4"),
        variant_of("fastdds", "multicast"),
        variant_of("fastdds", "shm"),
        variant_of(NULL, ""),
        *(variant_of(RAW, transport) for transport in RAW_WORDS),
        variant_of("cyclonedds", "udp4", "peers"),
        variant_of("fastdds", "udp4", "peers"),
        variant_of("fastdds", "udp4", "server"),
    )


def read_variant(text: str) -> Variant:
    """ "cyclonedds", "fastdds/shm", "fastdds/udp4/server", "raw/udp4", "null", or whole: "mine=cyclonedds,batch=1ms".

    Raises
    ------
    UsageError  bus.bad_variant.
    """
    name, whole, rest = text.strip().partition("=")
    if whole:
        return _whole_variant(text, name, rest)
    implementation, *parts = name.split("/")
    known = [*IMPLEMENTATIONS, RAW]
    if implementation not in known:
        raise UsageError(
            "bus.bad_variant",
            f"'{text}' is no variant: there is no implementation '{implementation}'"
            f"{nearest(implementation, known)}; there are {', '.join(known)}",
            "write it like cyclonedds/udp4, or whole: NAME=IMPLEMENTATION,transport=udp4,…",
        )
    if implementation == NULL and parts:
        raise UsageError("bus.bad_variant", f"'{text}' is no variant: null has no transport", "write null")
    transport, discovery = "udp4", "simple"
    for k, part in enumerate(parts):
        part = ALIASES.get(part, part)
        if k == 0 and part in TRANSPORTS and (implementation != RAW or part in RAW_WORDS):
            transport = part
        elif part in DISCOVERIES and implementation != RAW and k == len(parts) - 1 < 2:
            discovery = part
        else:
            allowed = list(RAW_WORDS) if implementation == RAW else [*TRANSPORTS, *DISCOVERIES]
            raise UsageError(
                "bus.bad_variant",
                f"'{text}' is no variant: '{part}' is not known there{nearest(part, allowed)}",
                f"after {implementation}/ there may be: {', '.join(allowed)}",
            )
    return variant_of(implementation, transport, discovery, asked=True)


def _whole_variant(text: str, name: str, rest: str) -> Variant:
    implementation, _, options = rest.partition(",")
    if not re.fullmatch(r"[\w./-]+", name) or not re.fullmatch(r"[\w-]+", implementation):
        raise UsageError(
            "bus.bad_variant",
            f"'{text}' is no variant: NAME=IMPLEMENTATION and options are wanted",
            "write it like mine=cyclonedds,batch=1ms",
        )
    kept, tests = [], tuple(TESTS)
    for word in options.split(",") if options else ():
        option, _, value = word.partition("=")
        if not value or not re.fullmatch(VARIANT_OPTIONS.get(option, "(?!)"), value):
            near = "" if option in VARIANT_OPTIONS else nearest(option, list(VARIANT_OPTIONS))
            raise UsageError(
                "bus.bad_variant",
                f"'{text}' is no variant: '{word}' is not known there{near}",
                f"options are {', '.join(f'{key}=' for key in VARIANT_OPTIONS)}"
                + ("" if value else "; another variant needs another --variants"),
            )
        if option in ("without", "only"):
            named = _tests_of(text, value)
            tests = tuple(test for test in tests if (test in named) == (option == "only"))
        else:
            kept.append(word)
    if _option(",".join(kept), "identity") and not _option(",".join(kept), "security"):
        raise UsageError(
            "bus.bad_variant",
            f"'{text}' is no variant: an identity is a name in the folder of security=",
            "write it like mine=cyclonedds,security=FOLDER,identity=NAME",
        )
    raw = implementation.startswith(RAW)
    if raw:
        transport = next((t for t, word in RAW_WORDS.items() if word == implementation), "udp4")
        transport = TRANSPORTS[transport][1]
        tests = tuple(test for test in tests if test in RAW_TESTS)
    elif implementation == NULL:
        transport = "in-process"
    elif _option(",".join(kept), "profile"):
        transport = ""
    else:
        transport = _option(",".join(kept), "transport") or "udp4"
        if _option(",".join(kept), "multicast") == "all":
            transport += "-multicast"
    told = RAW if raw else implementation
    return Variant(name, told, transport, implementation, ",".join(kept), tests, True)


def _tests_of(text: str, names: str) -> list[str]:
    words = {test.word: test.name for test in TESTS.values()}
    found = []
    for name in names.split("+"):
        if name not in TESTS and name not in words:
            raise UsageError(
                "bus.bad_variant",
                f"'{text}' is no variant: there is no test '{name}'{nearest(name, list(TESTS))}",
                f"there are: {', '.join(TESTS)}",
            )
        found.append(words.get(name, name))
    return found


def choose_variants(asked: Sequence[str], tests: Sequence[str], across: bool = False) -> tuple[Variant, ...]:
    """The variants asked for, or the usual ones, as far as one of the tests is measured on them. Each once, in order.

    across: between hosts; of the usual ones those are left out that do not leave a host.

    Raises
    ------
    UsageError  bus.bad_variant; bus.nothing_to_measure: none of them takes any of the tests; bus.one_host: one that
    was asked for does not leave a host.
    """
    texts = [part for text in asked for part in ([text] if "=" in text else text.split(","))]
    chosen: dict[str, Variant] = {}
    for variant in [read_variant(text) for text in texts] if texts else usual_variants():
        if chosen.setdefault(variant.name, variant) != variant:
            raise UsageError(
                "bus.bad_variant", f"two variants are called '{variant.name}'", "give each its own name"
            )
    if across:
        inside = [name for name, variant in chosen.items() if not variant.leaves_host]
        if inside and texts:
            raise UsageError(
                "bus.one_host",
                f"{inside[0]} does not leave a host, and --hosts names several",
                "leave it out of --variants, or measure it without --hosts",
            )
        chosen = {name: variant for name, variant in chosen.items() if variant.leaves_host}
    kept = tuple(
        replace(variant, tests=own)
        for variant in chosen.values()
        if (own := tuple(test for test in variant.tests if test in tests))
    )
    if not any(variant.implementation != RAW for variant in kept):
        raise UsageError(
            "bus.nothing_to_measure",
            f"none of the variants {', '.join(chosen)} is measured in {', '.join(tests)}",
            "name another with --variants, such as cyclonedds/udp4",
        )
    return kept


def read_tests(names: Sequence[str]) -> tuple[str, ...]:
    """The tests of a command line, each once; none: latency; "all".

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
                f"'{name}' is no test{nearest(name, list(TESTS))}; there are: {', '.join(TESTS)}, all",
                "sonde bus run latency",
            )
    return tuple(found) or DEFAULT_TESTS


def between(tests: Sequence[str]) -> tuple[tuple[str, ...], tuple[Warning, ...]]:
    """Of tests those that are measured between hosts, and what is said of the others.

    Raises
    ------
    UsageError  bus.one_host: none is.
    """
    left = [test for test in tests if test in ONE_HOST]
    kept = tuple(test for test in tests if test not in left)
    why = "subscribers tell the writer by shared memory that they have a message"
    if not kept:
        raise UsageError(
            "bus.one_host",
            f"{', '.join(left)} is measured within one host: {why}",
            "name another test, such as latency or throughput, or leave --hosts out",
        )
    notes = [Warning("bus.one_host", f"{test} is not measured between hosts: {why}", "") for test in left]
    return kept, tuple(notes)


def guarded(variants: Sequence[Variant], unprotected: bool, hosts: Sequence[str]) -> tuple[Variant, ...]:
    """The variants as they may be on the network between hosts: with keys, or by the user's word without.

    Raises
    ------
    UsageError  bus.unprotected: one of them has neither.
    """
    if unprotected:
        return tuple(
            variant
            if variant.guarded
            else replace(variant, options=",".join(filter(None, (variant.options, "unprotected=yes"))))
            for variant in variants
        )
    if bare := [variant.name for variant in variants if not variant.guarded]:
        more = f" and {len(bare) - 3} more" if len(bare) > 3 else ""
        raise UsageError(
            "bus.unprotected",
            f"between {hostlist.fold(hosts)} whoever reaches the network may join {', '.join(bare[:3])}{more}",
            "add --unprotected where that network is trusted, or give variants keys: "
            "NAME=cyclonedds,security=FOLDER,identity=NAME ('sonde bus keys' makes the folder)",
        )
    return tuple(variants)


def with_paths(variant: Variant, absolute: Callable[[str], str]) -> Variant:
    """The variant with the files that it names as other hosts find them."""
    words = []
    for word in variant.options.split(","):
        name, _, value = word.partition("=")
        if name in ("security", "profile"):
            file, mark, rest = value.partition("#")
            word = f"{name}={absolute(file)}{mark}{rest}"
        words.append(word)
    return replace(variant, options=",".join(words))


@dataclass(frozen=True)
class Host:
    """One that programs are spread over. start: words that come before a program to start it there; (): it is this
    one.
    """

    name: str
    start: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wanted:
    """Numbers that options ask for; (), 0: the usual ones.

    all_to_all, within_s, steady_s: of discovery: who matches whom, after how long it is given up, and how long is
    counted after it.
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
        """UsageError  bus.too_many_participants, bus.bad_size, bus.too_many_clients, bus.too_many_calls,
        bus.too_many_groups.
        """
        for option, numbers, beside in (
            ("--participants", self.participants, 0),
            ("--subscribers", self.subscribers, 1),
        ):
            if (most := max(numbers, default=0)) + beside > MOST_PARTICIPANTS:
                raise UsageError(
                    "bus.too_many_participants",
                    f"{option} {most} is too many: each is a participant, and a host has ports for "
                    f"{MOST_PARTICIPANTS} of a domain",
                    f"ask for {MOST_PARTICIPANTS - beside} at most",
                )
        for size in self.sizes:
            if not LEAST_SIZE <= size <= MOST_SIZE:
                raise UsageError(
                    "bus.bad_size",
                    f"--sizes {size} is not allowed; allowed: {format_size(LEAST_SIZE)}, which the head of a "
                    f"message takes, to {format_size(MOST_SIZE)}",
                    "write it like 64,16KiB",
                )
        if max(self.clients, default=0) > MOST_CLIENTS:
            raise UsageError(
                "bus.too_many_clients",
                f"--clients {max(self.clients)} is too many: each is a thread, and at most {MOST_CLIENTS} are measured",
                f"ask for {MOST_CLIENTS} at most",
            )
        if self.calls > MOST_CALLS:
            raise UsageError(
                "bus.too_many_calls",
                f"--calls {self.calls} is too many: a client makes at most {MOST_CALLS} in a visit",
                "give a longer --budget instead: there are more visits then",
            )
        if max(self.groups, default=0) > MOST_GROUPS:
            raise UsageError(
                "bus.too_many_groups",
                f"--groups {max(self.groups)} is too many: a writer holds at most {MOST_GROUPS}",
                "ask for fewer",
            )


def cases_of(tests: Sequence[str], wanted: Wanted | None = None) -> list[Case]:
    """The cases of tests, one of each test after the other, so that a short budget has some of all.

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
    raise UsageError("bus.bad_test", f"'{test}' is no test", f"there are: {', '.join(TESTS)}")


def visit_s(case: Case, burst_s: float = BURST_S[0]) -> float:
    """About what one visit to a case on a variant takes on an ordinary machine, s."""
    match case.test:
        case "fanout":
            return burst_s + 0.05 + 0.01 * case.subscribers
        case "throughput":
            return burst_s + 0.2 + 0.01 * case.subscribers
        case "partitions":
            return burst_s + 0.05 + 0.002 * case.entities
        case "discovery":
            return 2.5 + 0.1 * case.entities
        case "first-message":
            return 0.4 if case.treatment.startswith((STEADY, PAUSE)) else 1.2
        case "calls":
            return burst_s + 0.1 + 0.02 * case.entities
    return burst_s + 0.02


def _epochs(case: Case) -> int:
    return SELDOM.get(case.test, EPOCHS)


def measuring_s(left_s: float, cells: int) -> float:
    """Of `left_s` until a budget is over, what measuring so many cells may take, s."""
    reserve = RESERVE_S + RESERVE_SHARE * left_s + RESERVE_CELL_S * cells
    return max(0.5, left_s - min(reserve, RESERVE_MOST * left_s))


def fitting(cases: Sequence[Case], variants: Sequence[Variant], time_s: float) -> list[Case]:
    """As many of the cases, from the first on, as `time_s` of measuring has time for; what is too long is passed
    over.
    """
    kept: list[Case] = []
    left_s = time_s
    for case in cases:
        need_s = _epochs(case) * visit_s(case) * sum(variant.takes(case) for variant in variants)
        first = sum(other.test == case.test for other in kept) < FEWEST_CASES
        if need_s <= left_s or first:
            kept.append(case)
            left_s -= need_s
    return kept


@dataclass(frozen=True)
class Plan:
    """Everything that decides what is measured, in which order, and when it is enough.

    hosts: over which programs are spread; (): this one alone. launcher: what starts them there. interfaces: by which
    hosts reach each other; (): where the way to the others leads. left_out: cases for which there is no time. notes:
    what whoever starts the run must know, and nobody later.
    """

    variants: tuple[Variant, ...]
    cases: tuple[Case, ...]
    rule: str = "ci:2%"
    seed: int = 1
    cap: int = 100_000
    epoch_length: int = 50
    hosts: tuple[Host, ...] = ()
    launcher: str = "local"
    interfaces: tuple[str, ...] = ()
    left_out: tuple[Case, ...] = ()
    notes: tuple[Warning, ...] = ()

    def __post_init__(self) -> None:
        check_rule(self.rule)

    @property
    def tests(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(case.test for case in self.cases))

    @property
    def hostlist(self) -> str:
        """The hosts, folded; "" for this one alone."""
        return hostlist.listed([host.name for host in self.hosts])

    @property
    def cells(self) -> int:
        return sum(variant.takes(case) for variant in self.variants for case in self.cases)

    def measuring_s(self, left_s: float) -> float:
        """Of `left_s` until the budget is over, what measuring may take: the rest is for sealing and analysis."""
        return measuring_s(left_s, self.cells)

    def burst_s(self, time_s: float) -> float:
        """Length of a visit at most, so that a cell gets EPOCHS of them in `time_s`."""
        if time_s <= 0:
            return BURST_S[1]
        return min(max(time_s / (2 * EPOCHS * max(1, self.cells)), BURST_S[0]), BURST_S[1])

    def argv(self, run_dir: str, time_s: float) -> list[str]:
        """sonde-busprobe's arguments, without its own name. time_s: that measuring may take."""
        words = [
            "run",
            "--dir",
            run_dir,
            "--rule",
            self.rule,
            "--seed",
            str(self.seed),
            "--cap",
            str(self.cap),
        ]
        words += ["--epoch-length", str(self.epoch_length), "--burst-s", f"{self.burst_s(time_s):.6g}"]
        words += ["--budget-s", f"{time_s:.6g}"]
        return [*words, *self.cells_argv()]

    def cells_argv(self) -> list[str]:
        """The part of the arguments that `check` takes, too: hosts, variants and cases."""
        words = []
        for host in self.hosts:
            words += ["--host", host.name, *(part for word in host.start for part in ("--start", word))]
        words += ["--interfaces", ",".join(self.interfaces)] if self.interfaces else []
        words += [word for variant in self.variants for word in ("--variant", variant.spec)]
        return [*words, *(word for case in self.cases for word in ("--case", case.spec))]

    def document(self) -> dict[str, Any]:
        """The plan as run.json keeps it and `BusSchema.layout` reads it."""
        return {
            "variants": [
                {
                    "name": v.name,
                    "implementation": v.implementation,
                    "transport": v.transport,
                    "options": v.options,
                    "tests": list(v.tests),
                    "asked": v.asked,
                    "without": [case.spec for case in self.cases if not v.takes(case)],
                }
                for v in self.variants
            ],
            "cases": [case.document() for case in self.cases],
            "epoch_length": self.epoch_length,
        }

    def labels(self) -> dict[str, Any]:
        """Root attributes of the room's own."""
        where = {"hostlist": self.hostlist, "launcher": self.launcher} if self.hosts else {}
        return where | {
            "rule": self.rule,
            "epoch_length": self.epoch_length,
            "tests": ", ".join(self.tests),
            "transport": transports((v.implementation, v.transport) for v in self.variants),
        }

    def warnings(self) -> list[Warning]:
        """What a reader of the result must know, as far as the plan alone tells."""
        if not self.left_out:
            return []
        tests = ", ".join(dict.fromkeys(case.test for case in self.left_out))
        return [
            Warning(
                "bus.cases_postponed",
                f"the budget has no time for {len(self.left_out)} of {len(self.left_out) + len(self.cases)} cases "
                f"(of {tests})",
                f"give --budget {self.full_budget_s():.0f}s for all of them, or name fewer numbers",
            )
        ]

    def full_budget_s(self) -> float:
        """A budget that is enough for all cases, those left out included, s."""
        cases = (*self.cases, *self.left_out)
        need = sum(_epochs(case) * visit_s(case) for v in self.variants for case in cases if v.takes(case))
        need += RESERVE_CELL_S * len(self.variants) * len(cases) + RESERVE_S + 2
        return 5 * math.ceil(need / (1 - RESERVE_SHARE) / 5)

    def rows(self, time_s: float) -> list[tuple[str, str]]:
        """What a dry run says."""
        return [
            ("tests", ", ".join(self.tests)),
            ("variants", ", ".join(variant.name for variant in self.variants)),
            ("cases", str(len(self.cases))),
            ("cells", str(self.cells)),
            ("rule", self.rule),
            *((("hosts", f"{self.hostlist}, by {self.launcher}"),) if self.hosts else ()),
            ("measuring", format_duration(time_s)),
        ]


def case_of(known: Mapping[str, Any]) -> Case:
    """The case that a dataset's facts tell."""
    return Case(
        str(known["test"]),
        int(known["size"]),
        int(known["subscribers"]),
        int(known["entities"]),
        str(known["treatment"]),
    )


def names(variants: Iterable[Variant]) -> list[str]:
    return [variant.name for variant in variants]

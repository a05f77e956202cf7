"""The plan of a run of the bus: from options to a command line of sonde-busprobe. Pure."""

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

RAW = "raw"  # implementation of bare sockets and shared memory, as named in results
NULL = "null"
IMPLEMENTATIONS = ("cyclonedds", "fastdds", NULL)
WITHIN_HOST = ("shared-memory", "in-process")  # transports that cannot reach another host
ONE_HOST = ("fanout",)  # tests whose programs share memory, so they cannot run between hosts
TITLES = {
    "cyclonedds": "Cyclone DDS",
    "fastdds": "Fast DDS",
    NULL: "in-process",
    RAW: "bare sockets and memory",
}


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

# Transports by their names on the command line: the option of the probe, and the name in results.
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
# The options of a variant in the probe, and the form of their values.
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
OF_TOPICS = (
    "warm-other-topic",
    "warm-same-participant-new-writer",
    UNCONFIRMED,
)  # a bare socket has no topics

# Limits of the size of a sample, B, and of one datagram: bare UDP does not split samples.
LEAST_SIZE, MOST_SIZE, MOST_DATAGRAM = (
    _core.bus_sizes()[name] for name in ("least", "most", "most_datagram")
)
# A host has ports for this number of participants of a domain before the ports of the next domain begin
# (DDSI-RTPS 2.3, 9.6.2.4: 250 ports a domain, two a participant, the first ten for others).
MOST_PARTICIPANTS = 119
MOST_CALLS, MOST_GROUPS, MOST_CLIENTS = 100_000, 1024, 1000

EPOCHS = 8  # epochs that a plan should have time for; the interval of a ratio needs six
SELDOM = {"discovery": 2}  # epochs of slow tests
FEWEST_CASES = 2
BURST_S = (0.02, 0.2)
RESERVE_S, RESERVE_SHARE, RESERVE_CELL_S, RESERVE_MOST = 1.5, 0.05, 0.004, 0.4


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


@dataclass(frozen=True)
class Variant:
    """An implementation with its transport and options. name: unique. implementation, transport: as named in results,
    "udp4-multicast"; for a profile the transport is "", and the probe reports it.

    probe: name of the implementation in the probe, "raw-udp". options: "discovery=server". tests: the tests that run on
    it. asked: the user named it.
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
        """The kind of discovery of its participants."""
        return discovery_of(self.options)

    @property
    def leaves_host(self) -> bool:
        """Whether it can reach programs on other hosts."""
        return self.transport not in WITHIN_HOST

    @property
    def guarded(self) -> bool:
        """Whether its options define who may join: by keys, by a profile, or by the user's consent that anybody may."""
        return any(_option(self.options, name) for name in ("security", "profile")) or (
            _option(self.options, "unprotected") == "yes"
        )

    def takes(self, case: Case) -> bool:
        """Whether the case is measured on this variant, by the same rules as in the probe."""
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
    """The kind of discovery of a variant with these options; "simple" by default."""
    return _option(options, "discovery") or "simple"


def secured(options: str) -> bool:
    """Whether a variant with these options has keys; keys of a profile are unknown."""
    return bool(_option(options, "security"))


def without_keys(options: str) -> str:
    """The options of the same variant without keys, and without `unprotected`."""
    removed = ("security", "identity", "unprotected")
    return ",".join(word for word in options.split(",") if word and word.partition("=")[0] not in removed)


def _option(options: str, name: str) -> str:
    words = (word.partition("=") for word in options.split(","))
    return next((value for key, _, value in words if key == name), "")


def transports(ways: Iterable[tuple[str, str]]) -> str:
    """The root attribute `transport` of variants, each an implementation and a transport."""
    return ", ".join(dict.fromkeys(transport for name, transport in ways if name != RAW and transport))


def raw_like(transport: str) -> str:
    """The raw transport that a transport is compared with."""
    like = {"udp4-multicast": "udp4", "udp6": "udp4", "udp6-multicast": "udp4", "in-process": "shared-memory"}
    return like.get(transport, transport)


MESSAGES: tuple[str, ...] = ("latency", "fanout", "partitions", "throughput", "first-message", "calls")
RAW_TESTS: tuple[str, ...] = ("latency", "fanout", "throughput", "first-message")


def variant_of(
    implementation: str, transport: str, discovery: str = "simple", asked: bool = False
) -> Variant:
    """A variant by its names on the command line."""
    if implementation == RAW:
        name, probe = TRANSPORTS[transport][1], RAW_WORDS[transport]
        return Variant(f"raw/{transport}", RAW, name, probe, "", RAW_TESTS, asked)
    if implementation == NULL:
        tests: tuple[str, ...] = tuple(test for test in MESSAGES if test != "first-message")
        return Variant(NULL, NULL, "in-process", NULL, "", tests, asked)
    option, transport_name = TRANSPORTS[transport]
    options = "" if transport == "udp4" else option
    name = f"{implementation}/{transport}"
    tests = MESSAGES + ("discovery",) * (transport == "udp4" or (asked and transport in OVER_UDP))
    if discovery != "simple":
        options = ",".join(filter(None, (options, f"discovery={discovery}")))
        name += f"/{discovery}"
        tests = tuple(TESTS) if asked else ("discovery",)
    return Variant(name, implementation, transport_name, implementation, options, tests, asked)


def usual_variants() -> tuple[Variant, ...]:
    """The default variants. The others are compared with the first one."""
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
            f"'{text}' is not a variant: unknown implementation '{implementation}'"
            f"{nearest(implementation, known)}; known: {', '.join(known)}",
            "write it like cyclonedds/udp4, or in full: NAME=IMPLEMENTATION,transport=udp4,…",
        )
    if implementation == NULL and parts:
        raise UsageError("bus.bad_variant", f"'{text}' is not a variant: null has no transport", "write null")
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
                f"'{text}' is not a variant: unknown part '{part}'{nearest(part, allowed)}",
                f"after {implementation}/ write one of: {', '.join(allowed)}",
            )
    return variant_of(implementation, transport, discovery, asked=True)


def _whole_variant(text: str, name: str, rest: str) -> Variant:
    implementation, _, options = rest.partition(",")
    if not re.fullmatch(r"[\w./-]+", name) or not re.fullmatch(r"[\w-]+", implementation):
        raise UsageError(
            "bus.bad_variant",
            f"'{text}' is not a variant: it needs NAME=IMPLEMENTATION and options",
            "write it like mine=cyclonedds,batch=1ms",
        )
    other_options, tests = [], tuple(TESTS)
    for option_text in options.split(",") if options else ():
        option, _, value = option_text.partition("=")
        if not value or not re.fullmatch(VARIANT_OPTIONS.get(option, "(?!)"), value):
            near = "" if option in VARIANT_OPTIONS else nearest(option, list(VARIANT_OPTIONS))
            raise UsageError(
                "bus.bad_variant",
                f"'{text}' is not a variant: unknown option '{option_text}'{near}",
                f"options are {', '.join(f'{key}=' for key in VARIANT_OPTIONS)}"
                + ("" if value else "; another variant needs another --variants"),
            )
        if option in ("without", "only"):
            named = _tests_of(text, value)
            tests = tuple(test for test in tests if (test in named) == (option == "only"))
        else:
            other_options.append(option_text)
    if _option(",".join(other_options), "identity") and not _option(",".join(other_options), "security"):
        raise UsageError(
            "bus.bad_variant",
            f"'{text}' is not a variant: identity= needs security=, the folder that contains the identity",
            "write it like mine=cyclonedds,security=FOLDER,identity=NAME",
        )
    raw = implementation.startswith(RAW)
    if raw:
        transport = next((t for t, word in RAW_WORDS.items() if word == implementation), "udp4")
        transport = TRANSPORTS[transport][1]
        tests = tuple(test for test in tests if test in RAW_TESTS)
    elif implementation == NULL:
        transport = "in-process"
    elif _option(",".join(other_options), "profile"):
        transport = ""
    else:
        transport = _option(",".join(other_options), "transport") or "udp4"
        if _option(",".join(other_options), "multicast") == "all":
            transport += "-multicast"
    result_name = RAW if raw else implementation
    return Variant(name, result_name, transport, implementation, ",".join(other_options), tests, True)


def _tests_of(text: str, names: str) -> list[str]:
    words = {test.word: test.name for test in TESTS.values()}
    found = []
    for name in names.split("+"):
        if name not in TESTS and name not in words:
            raise UsageError(
                "bus.bad_variant",
                f"'{text}' is not a variant: unknown test '{name}'{nearest(name, list(TESTS))}",
                f"tests: {', '.join(TESTS)}",
            )
        found.append(words.get(name, name))
    return found


def choose_variants(asked: Sequence[str], tests: Sequence[str], across: bool = False) -> tuple[Variant, ...]:
    """The requested or default variants on which at least one of the tests runs. Each once, in order.

    across: the run is between hosts; default variants that cannot leave a host are left out.

    Raises
    ------
    UsageError  bus.bad_variant; bus.nothing_to_measure: none of the tests runs on any variant; bus.one_host: a
    requested variant cannot leave a host.
    """
    texts = [part for text in asked for part in ([text] if "=" in text else text.split(","))]
    chosen: dict[str, Variant] = {}
    for variant in [read_variant(text) for text in texts] if texts else usual_variants():
        if chosen.setdefault(variant.name, variant) != variant:
            raise UsageError(
                "bus.bad_variant",
                f"two variants have the name '{variant.name}'",
                "give each variant its own name",
            )
    if across:
        inside = [name for name, variant in chosen.items() if not variant.leaves_host]
        if inside and texts:
            raise UsageError(
                "bus.one_host",
                f"{inside[0]} cannot leave a host, but --hosts names several hosts",
                "leave it out of --variants, or measure it without --hosts",
            )
        chosen = {name: variant for name, variant in chosen.items() if variant.leaves_host}
    usable = tuple(
        replace(variant, tests=own)
        for variant in chosen.values()
        if (own := tuple(test for test in variant.tests if test in tests))
    )
    if not any(variant.implementation != RAW for variant in usable):
        raise UsageError(
            "bus.nothing_to_measure",
            f"none of the variants {', '.join(chosen)} is measured in {', '.join(tests)}",
            "name another variant with --variants, such as cyclonedds/udp4",
        )
    return usable


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


def guarded(variants: Sequence[Variant], unprotected: bool, hosts: Sequence[str]) -> tuple[Variant, ...]:
    """The variants for a network between hosts: with keys, or with the user's consent without.

    Raises
    ------
    UsageError  bus.unprotected: a variant has neither.
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
            f"between {hostlist.fold(hosts)}, anyone on the network could join {', '.join(bare[:3])}{more}",
            "add --unprotected if you trust this network, or give the variants keys: "
            "NAME=cyclonedds,security=FOLDER,identity=NAME ('sonde bus keys' creates the folder)",
        )
    return tuple(variants)


def with_paths(variant: Variant, absolute: Callable[[str], str]) -> Variant:
    """The variant with absolute paths of its files, so that other hosts find them."""
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
    """A host on which programs run. start: the command that starts a program there; (): this host."""

    name: str
    start: tuple[str, ...] = ()


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


def step_s(case: Case, burst_s: float = BURST_S[0]) -> float:
    """Estimated time of one step, a case on a variant, on an ordinary machine, s."""
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
    """The time for measuring this number of cells if `left_s` of the budget remain, s."""
    reserve = RESERVE_S + RESERVE_SHARE * left_s + RESERVE_CELL_S * cells
    return max(0.5, left_s - min(reserve, RESERVE_MOST * left_s))


def fitting(cases: Sequence[Case], variants: Sequence[Variant], time_s: float) -> list[Case]:
    """The cases that fit into `time_s` of measuring, in order; cases that take too long are skipped."""
    chosen: list[Case] = []
    left_s = time_s
    for case in cases:
        need_s = _epochs(case) * step_s(case) * sum(variant.takes(case) for variant in variants)
        first = sum(other.test == case.test for other in chosen) < FEWEST_CASES
        if need_s <= left_s or first:
            chosen.append(case)
            left_s -= need_s
    return chosen


@dataclass(frozen=True)
class Plan:
    """Everything that determines what is measured, in which order, and when it ends.

    hosts: where programs run; (): only this host. launcher: starts them there. interfaces: those between hosts;
    (): those of the routes to the other hosts. left_out: cases without enough time. notes: warnings for the user who
    starts the run, which are not stored.
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
        """The folded host list; "" for only this host."""
        return hostlist.listed([host.name for host in self.hosts])

    @property
    def cells(self) -> int:
        return sum(variant.takes(case) for variant in self.variants for case in self.cases)

    def measuring_s(self, left_s: float) -> float:
        """The time for measuring if `left_s` of the budget remain; the rest is for sealing and analysis."""
        return measuring_s(left_s, self.cells)

    def burst_s(self, time_s: float) -> float:
        """The longest burst with which each cell gets EPOCHS bursts in `time_s`."""
        if time_s <= 0:
            return BURST_S[1]
        return min(max(time_s / (2 * EPOCHS * max(1, self.cells)), BURST_S[0]), BURST_S[1])

    def argv(self, run_dir: str, time_s: float) -> list[str]:
        """The arguments of sonde-busprobe, without its name. time_s: the time for measuring."""
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
        """The arguments that are also valid for `check`: hosts, variants and cases."""
        words = []
        for host in self.hosts:
            words += ["--host", host.name, *(part for word in host.start for part in ("--start", word))]
        words += ["--interfaces", ",".join(self.interfaces)] if self.interfaces else []
        words += [word for variant in self.variants for word in ("--variant", variant.spec)]
        return [*words, *(word for case in self.cases for word in ("--case", case.spec))]

    def document(self) -> dict[str, Any]:
        """The plan as stored in run.json and read by `BusSchema.layout`."""
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
        """The root attributes of this room."""
        where = {"hostlist": self.hostlist, "launcher": self.launcher} if self.hosts else {}
        return where | {
            "rule": self.rule,
            "epoch_length": self.epoch_length,
            "tests": ", ".join(self.tests),
            "transport": transports((v.implementation, v.transport) for v in self.variants),
        }

    def warnings(self) -> list[Warning]:
        """Warnings for a reader of the result, as far as they follow from the plan alone."""
        if not self.left_out:
            return []
        tests = ", ".join(dict.fromkeys(case.test for case in self.left_out))
        return [
            Warning(
                "bus.cases_postponed",
                f"the budget is too short for {len(self.left_out)} of {len(self.left_out) + len(self.cases)} cases "
                f"({tests})",
                f"give --budget {self.full_budget_s():.0f}s for all cases, or name fewer numbers",
            )
        ]

    def full_budget_s(self) -> float:
        """A budget that is enough for all cases, including those left out, s."""
        cases = (*self.cases, *self.left_out)
        need = sum(_epochs(case) * step_s(case) for v in self.variants for case in cases if v.takes(case))
        need += RESERVE_CELL_S * len(self.variants) * len(cases) + RESERVE_S + 2
        return 5 * math.ceil(need / (1 - RESERVE_SHARE) / 5)

    def rows(self, time_s: float) -> list[tuple[str, str]]:
        """The rows of a dry run."""
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
    """The case with the facts of a dataset."""
    return Case(
        str(known["test"]),
        int(known["size"]),
        int(known["subscribers"]),
        int(known["entities"]),
        str(known["treatment"]),
    )


def names(variants: Iterable[Variant]) -> list[str]:
    return [variant.name for variant in variants]

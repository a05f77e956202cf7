"""Variants: ways over the bus, read from the options. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from sonde.bus.cases import MOST_DATAGRAM, TESTS, UNCONFIRMED, Case
from sonde.core import hostlist
from sonde.core.errors import UsageError, nearest

RAW = "raw"  # implementation of bare sockets and shared memory, as named in results
NULL = "null"
IMPLEMENTATIONS = ("cyclonedds", "fastdds", NULL)
WITHIN_HOST = ("shared-memory", "in-process")  # transports that cannot reach another host
TITLES = {
    "cyclonedds": "Cyclone DDS",
    "fastdds": "Fast DDS",
    NULL: "in-process",
    RAW: "bare sockets and memory",
}
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
OF_TOPICS = (
    "warm-other-topic",
    "warm-same-participant-new-writer",
    UNCONFIRMED,
)  # a bare socket has no topics


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


def names(variants: Iterable[Variant]) -> list[str]:
    return [variant.name for variant in variants]

"""What a run of the store's bench is to do, before anything is started. Pure: from options to a command line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sonde.core.errors import UsageError, Warning, nearest
from sonde.core.rules import check_rule
from sonde.core.units import format_duration, format_size

# What each client can do, as `object.write`.
OPERATIONS = {
    "object": ("write", "read"),
    "striped": ("write", "read"),
    "item": ("write", "read"),
    "kv": ("put", "get"),
    "db": ("insert", "query", "update"),
    "dataset": ("write", "read"),
    "attribute": ("write", "read"),
}
READS = ("read", "get", "query")
CLIENT_NAMES = {
    "object": "object",
    "striped": "distributed object",
    "item": "item",
    "kv": "key-value",
    "db": "database",
    "dataset": "HDF5 dataset",
    "attribute": "HDF5 attribute",
}
HDF5 = ("dataset", "attribute")  # clients that are calls of libhdf5
GROUPS = {"hdf5": HDF5}  # what --ops takes besides clients
ROLES = {"kv": ("kv",), "db": ("db",), "dataset": ("kv", "data"), "attribute": ("kv", "data")}
"""Roles of a server that a client needs; of others data."""
COUNTED = ("kv", "db", "attribute")
"""Clients of which people say how many operations a second there are, and not how many bytes."""

BLOCK = 4096  # of batches, as in the bench that this one repeats
OBJECT_BATCH, KV_BATCH = 10_000, 1000  # the latter of rows, datasets and attributes, too
LARGE = 4 << 20
SIZES = (64, BLOCK, 65536, LARGE)
# What the probe takes: a value, the values of a batch, an operation, operations of a batch, batches under way.
MOST_VALUE, MOST_KV_BATCH, MOST_ATTRIBUTE, LEAST_ROW = 16 << 20, 32 << 20, 8 << 20, 64
MOST_BYTES, MOST_BATCH, MOST_DEPTH = 1 << 30, 100_000, 1024
MOST_AT_ONCE = 256 << 20  # bytes of one iteration: of a product of options, what is larger is left out

EPOCHS = 9  # that a plan should have time for: six give an interval of a ratio
FEWEST_CASES = 2
BURST_S = (0.003, 0.02)  # shortest and longest burst
SETTLE_S = 0.003  # that the probe spends before one, on what is shorter
MOST_VISIT_S = 0.1  # on the average: the probe visits seldom what takes longer
PATIENCE = 0.25  # the probe's: share of measuring that it waits for an answer
PATIENCE_S = (2.0, 30.0)  # and how long at least and at most
RESERVE_S, RESERVE_SHARE, RESERVE_CELL_S, RESERVE_MOST = 1.0, 0.05, 0.006, 0.4


@dataclass(frozen=True)
class Case:
    """One operation of one client: of so many bytes, so many in a batch, so many batches under way."""

    client: str
    op: str
    size: int
    batch: int = 1
    depth: int = 1

    @property
    def spec(self) -> str:
        """As sonde-storebench writes it."""
        return f"{self.client}.{self.op}:{self.size}:{self.batch}:{self.depth}"

    @property
    def title(self) -> str:
        """ "object write, 4 KiB", "key-value get, 1000 × 4 KiB, 16 under way"."""
        size = format_size(self.size, exact=True)
        many = f"{self.batch} × {size}" if self.batch > 1 else size
        under_way = f", {self.depth} under way" if self.depth > 1 else ""
        return f"{CLIENT_NAMES.get(self.client, self.client)} {self.op}, {many}{under_way}"

    @classmethod
    def read(cls, spec: str) -> Case:
        """The case that a specification means.

        Raises
        ------
        UsageError  store.bad_case.
        """
        found = re.fullmatch(r"(\w+)\.(\w+):(\d{1,18}):(\d{1,18}):(\d{1,18})", spec, re.ASCII)
        if not found or found[2] not in OPERATIONS.get(found[1], ()):
            raise UsageError("store.bad_case", f"'{spec}' is no case", "write it like object.write:4096:1:1")
        return cls(found[1], found[2], int(found[3]), int(found[4]), int(found[5]))

    def refused(self) -> str:
        """Why the probe would not take it, or ""."""
        if not 1 <= self.size <= MOST_BYTES:
            return f"an operation has from 1 B to {format_size(MOST_BYTES)}"
        if not 1 <= self.batch <= MOST_BATCH:
            return f"a batch has from 1 to {MOST_BATCH} operations"
        if not 1 <= self.depth <= MOST_DEPTH:
            return f"from 1 to {MOST_DEPTH} batches may be under way"
        if self.client in ("kv", "db") and self.size > MOST_VALUE:
            return f"a value has at most {format_size(MOST_VALUE)}"
        if self.client in ("kv", "db") and self.size * self.batch > MOST_KV_BATCH:
            return f"a batch of keys or rows has at most {format_size(MOST_KV_BATCH)}"
        if self.client == "db" and self.size < LEAST_ROW:
            return f"a row has at least {format_size(LEAST_ROW)}"
        if self.client == "attribute" and self.size > MOST_ATTRIBUTE:
            return f"an attribute has at most {format_size(MOST_ATTRIBUTE)}"
        if self.client in HDF5 and self.depth > 1:
            return "HDF5 has one operation under way at once"
        if self.size * self.batch * self.depth > MOST_AT_ONCE:
            return f"at most {format_size(MOST_AT_ONCE)} are moved at once"
        return ""


@dataclass(frozen=True)
class Variant:
    """A way to the server. name: unique. style: what is said of it in results, "default" for one as it should be.

    transport: "tcp", "ofi-msg", …; "raw-tcp" and "raw-ofi" are no storage system. options: "nodelay=no,gather=no".
    clients: the only ones that are measured on it; () for all it can. without: specifications of cases that are not.
    """

    name: str
    style: str
    transport: str
    options: str = ""
    text: str = ""
    clients: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def spec(self) -> str:
        """As sonde-storebench takes it."""
        clients = f"clients={'+'.join(self.clients)}" if self.clients else ""
        without = f"without={'+'.join(self.without)}" if self.without else ""
        return ",".join(filter(None, (f"{self.name}={self.transport}", self.options, clients, without)))

    @property
    def provider(self) -> str:
        """Of libfabric, where it names one; else empty."""
        words = (word.partition("=") for word in self.options.split(","))
        return next((value for name, _, value in words if name == "provider"), "")

    @property
    def only(self) -> tuple[str, ...]:
        """The clients that are measured on it; () for all.

        A raw limit has none of HDF5: it has calls, not messages, and nobody can say which bytes they would be.
        """
        if self.style != "raw":
            return self.clients
        return tuple(client for client in self.clients or OPERATIONS if client not in HDF5)

    def takes(self, case: Case) -> bool:
        """Whether the case is measured on it."""
        return (not self.only or case.client in self.only) and case.spec not in self.without


RAW, RAW_OFI, TCP = "raw", "raw-ofi", "tcp"
SLOW = ("plain", "thesis")  # styles of variants that are slow on purpose
VARIANTS = {
    variant.name: variant
    for variant in (
        Variant(RAW, "raw", "raw-tcp", text="a socket alone: the same bytes there and back, no storage system"),
        Variant(RAW_OFI, "raw", "raw-ofi", text="libfabric alone likewise, provider chosen as for ofi-rdm"),
        Variant(TCP, "default", "tcp", text="TCP as it should be used; what the others are compared with"),
        Variant("tls", "tls", "tcp", "tls=yes", "TCP with all of it in TLS 1.3"),
        Variant("plain", "plain", "tcp", "nodelay=no,gather=no", "TCP without a thought: small sends, Nagle on"),
        Variant("ofi-msg", "default", "ofi-msg", text="libfabric messages, provider chosen by where the server is"),
        Variant("ofi-rdm", "default", "ofi-rdm", text="libfabric reliable datagrams, provider chosen likewise"),
        Variant("ofi-rma", "default", "ofi-rma", text="libfabric messages, large data read by the peer"),
        Variant(
            "thesis", "thesis", "ofi-msg", "provider=sockets,await=yes,gather=no",
            "libfabric as in the source: provider sockets, each piece awaited before the next",
        ),
        Variant(
            "thesis-tcp", "thesis", "ofi-msg", "provider=tcp,await=yes,gather=no",
            "the same over the provider tcp: what awaiting alone costs",
        ),
    )
}  # fmt: skip
DEFAULT_VARIANTS = (RAW, RAW_OFI, TCP, "plain", "ofi-msg", "ofi-rdm", "ofi-rma", "thesis")


# What may stand behind a transport, and what its value looks like; as in native/store/storebench/load.cpp.
VARIANT_OPTIONS = dict.fromkeys(("nodelay", "cork", "gather", "await", "tls"), "yes|no") | {
    "provider": r"[\w;.+-]+",
    "rma": r"[0-9]+",
    "spin": r"[0-9].*",
    "checksum": "all|head",
    "clients": r"[a-z]+(\+[a-z]+)*",
}


def read_variant(text: str) -> Variant:
    """A variant by name, a transport with a provider ("ofi-msg/net"), or whole: "mine=tcp,nodelay=no".

    Raises
    ------
    UsageError  store.bad_variant.
    """
    name, whole, rest = text.strip().partition("=")
    if not whole:
        if name in VARIANTS:
            return VARIANTS[name]
        transport, slash, provider = name.partition("/")
        if slash and transport.startswith(("ofi-", RAW_OFI)) and re.fullmatch(r"[\w;.-]+", provider):
            style = "raw" if transport == RAW_OFI else "provider"
            return Variant(name, style, transport, f"provider={provider}", f"{transport} over {provider}")
        raise UsageError(
            "store.bad_variant",
            f"'{name}' is no variant{nearest(name, list(VARIANTS))}; there are: {', '.join(VARIANTS)}",
            "or name a provider, like ofi-msg/net, or write it whole: NAME=TRANSPORT,nodelay=no",
        )
    transport, _, options = rest.partition(",")
    if not re.fullmatch(r"[\w./-]+", name) or not re.fullmatch(r"[\w-]+", transport):
        raise UsageError(
            "store.bad_variant",
            f"'{text}' is no variant: NAME=TRANSPORT and options are wanted",
            "write it like mine=tcp,nodelay=no",
        )
    for word in options.split(",") if options else ():
        option, _, value = word.partition("=")
        if not value or not re.fullmatch(VARIANT_OPTIONS.get(option, "(?!)"), value):
            near = "" if option in VARIANT_OPTIONS else nearest(option, list(VARIANT_OPTIONS))
            raise UsageError(
                "store.bad_variant",
                f"'{text}' is no variant: '{word}' is not known there{near}",
                "options are nodelay=, cork=, gather=, await=, tls= (yes or no), provider=P, rma=BYTES, spin=20us, "
                "checksum=all or head, clients=object+kv",
            )
    return Variant(name, "raw" if transport in ("raw-tcp", RAW_OFI) else name, transport, options)


def choose_variants(asked: Sequence[str], transports: Sequence[str]) -> tuple[Variant, ...]:
    """The variants asked for; by default those whose transport this build has. Each once, in order.

    Raises
    ------
    UsageError  store.bad_variant, store.unknown_transport.
    """
    texts = [part for text in asked for part in (text.split(",") if "=" not in text else [text])]
    if not texts:
        have = {*transports, "raw-tcp"} | ({"raw-ofi"} if "ofi-rdm" in transports else set())
        usual = [VARIANTS[name] for name in DEFAULT_VARIANTS if VARIANTS[name].transport in have]
        # Mistakes are slow, and cost every client the same: they are shown with objects alone.
        return tuple(replace(v, clients=("object",)) if v.style in SLOW else v for v in usual)
    chosen: dict[str, Variant] = {}
    for text in texts:
        variant = read_variant(text)
        if chosen.setdefault(variant.name, variant) != variant:
            raise UsageError(
                "store.bad_variant", f"two variants are called '{variant.name}'", "give each its own name"
            )
        known = sorted({*transports, *(v.transport for v in VARIANTS.values())})
        if variant.transport not in known:
            raise UsageError(
                "store.unknown_transport",
                f"'{text}': there is no transport '{variant.transport}'{nearest(variant.transport, known)}",
                f"there are: {', '.join(known)}; 'sonde doctor' says which of them work here",
            )
    return tuple(chosen.values())


def default_cases() -> list[Case]:
    """All cases of a full run, those that say most first: a short budget measures as many as it has time for."""

    def pair(client: str, *rest: int) -> list[Case]:
        return [Case(client, op, *rest) for op in OPERATIONS[client]]

    cases = pair("object", BLOCK) + pair("object", BLOCK, OBJECT_BATCH)
    for size in SIZES:
        if size != BLOCK:
            cases += pair("object", size)
    cases += pair("kv", BLOCK) + pair("kv", BLOCK, KV_BATCH)
    cases += pair("item", BLOCK) + pair("item", BLOCK, OBJECT_BATCH)
    cases += pair("striped", BLOCK) + pair("striped", BLOCK, OBJECT_BATCH)
    cases += pair("dataset", BLOCK) + pair("dataset", BLOCK, KV_BATCH) + pair("dataset", LARGE)
    cases += pair("attribute", SIZES[0]) + pair("attribute", SIZES[0], KV_BATCH)
    cases += pair("db", BLOCK) + pair("db", BLOCK, KV_BATCH)
    cases += pair("object", BLOCK, 1, 16)
    for size in SIZES:
        if size != BLOCK:
            cases += pair("kv", size) + pair("item", size) + pair("striped", size)
    return cases


def read_operations(text: str) -> list[tuple[str, str]]:
    """(client, operation) pairs of "object.write,kv", "hdf5" or "all"; a client alone means all it can do.

    Raises
    ------
    UsageError  store.bad_operation.
    """
    every = {f"{client}.{op}": (client, op) for client, ops in OPERATIONS.items() for op in ops}
    out: dict[tuple[str, str], None] = {}
    for part in (piece.strip() for piece in text.split(",")):
        clients = GROUPS.get(part, (part,))
        found = [pair for name, pair in every.items() if part in ("all", name) or pair[0] in clients]
        if not found:
            known = ["all", *OPERATIONS, *GROUPS, *every]
            raise UsageError(
                "store.bad_operation",
                f"'{part}' is no operation{nearest(part, known)}; there are: {', '.join(every)}",
                "a client alone means all it can do: --ops object,kv",
            )
        out.update(dict.fromkeys(found))
    return list(out)


def cases_of(
    ops: str | None, sizes: Sequence[int] | None, batches: Sequence[int] | None, depths: Sequence[int] | None
) -> tuple[list[Case], list[Warning]]:
    """The cases of a run: the usual ones, or those that options ask for, every one with every other.

    Returns the cases, and a warning that names those of the product that cannot be run.

    Raises
    ------
    UsageError  store.bad_operation; store.no_case: nothing is left.
    """
    if sizes is None and batches is None and depths is None:
        wanted = read_operations(ops or "all")
        return [case for case in default_cases() if (case.client, case.op) in wanted], []
    made = [
        Case(client, op, size, batch, depth)
        for client, op in read_operations(ops or "all")
        for size in sizes or SIZES
        for batch in batches or (1,)
        for depth in depths or (1,)
    ]
    refused = {case: why for case in made if (why := case.refused())}
    kept = [case for case in made if case not in refused]
    if not kept:
        case, why = next(iter(refused.items()))
        raise UsageError("store.no_case", f"{case.title} cannot be measured: {why}", "ask for less at once")
    if not refused:
        return kept, []
    first = ", ".join(case.spec for case in list(refused)[:4]) + (", …" if len(refused) > 4 else "")
    whys = "; ".join(dict.fromkeys(refused.values()))
    evidence = f"{len(refused)} of {len(made)} cases are left out ({first}): {whys}"
    return kept, [Warning("store.cases_left_out", evidence, "name sizes and batches that fit together")]


def measuring_s(left_s: float, cells: int) -> float:
    """Of `left_s` until a budget is over, what measuring so many cells may take, s."""
    reserve = RESERVE_S + RESERVE_SHARE * left_s + RESERVE_CELL_S * cells
    return max(0.5, left_s - min(reserve, RESERVE_MOST * left_s))


def iteration_s(variant: Variant, case: Case) -> float:
    """About what one iteration of a cell takes on an ordinary machine, s."""
    operations = case.batch * case.depth
    one = 30e-6 + operations * (2e-6 + case.size / 1.5e9)
    one += operations * {"dataset": 50e-6, "attribute": 30e-6, "db": 20e-6}.get(case.client, 0.0)
    if variant.style == "plain":
        one += 0.066  # Nagle waits for an acknowledgement that is delayed
    elif variant.style == "thesis":
        one += 0.02 * case.depth + 250e-6 * case.batch + case.size * operations / 15e6
    return one


def visit_s(variant: Variant, case: Case, burst_s: float = BURST_S[0]) -> float:
    """About what one burst of a cell takes on an ordinary machine, s; of seldom visits the share of an epoch."""
    one = iteration_s(variant, case)
    settle_s = SETTLE_S if one < SETTLE_S else 0.0
    return min(MOST_VISIT_S, settle_s + max(one, min(burst_s, 50 * one)))


def patience_s(time_s: float) -> float:
    """How long the probe waits for one answer in a run that measures for `time_s`, s: none may take all of it."""
    return min(max(PATIENCE * time_s, PATIENCE_S[0]), PATIENCE_S[1])


def without_hopeless(
    variants: Sequence[Variant], cases: Sequence[Case], time_s: float
) -> tuple[tuple[Variant, ...], list[Warning]]:
    """The variants without the cells that are slow on purpose and so slow that one iteration takes too long.

    A case that nobody else would measure stays. time_s: of measuring. Returns them, and a warning that names the cells.
    """
    fair = [variant for variant in variants if variant.style not in (*SLOW, "raw")]
    kept, left = [], []
    for variant in variants:
        specs = tuple(
            case.spec
            for case in cases
            if variant.style in SLOW
            and variant.takes(case)
            and iteration_s(variant, case) > patience_s(time_s)
            and any(other.takes(case) for other in fair)
        )
        kept.append(replace(variant, without=specs) if specs else variant)
        left += [(variant, case) for case in cases if case.spec in specs]
    if not left:
        return tuple(kept), []
    longest_s = max(iteration_s(*cell) for cell in left)
    cells = "; ".join(f"{variant.name}, {case.spec}" for variant, case in left[:4])
    more = f" and {len(left) - 4} more" if len(left) > 4 else ""
    evidence = (
        f"{len(left)} cell{'s' * (len(left) > 1)} slow on purpose {'are' if len(left) > 1 else 'is'} left out "
        f"({cells}{more}): one iteration takes about {format_duration(longest_s)}, and an answer is waited for "
        f"{format_duration(patience_s(time_s))}"
    )
    hint = "ask for smaller batches of them"
    if longest_s <= PATIENCE_S[1]:
        need_s = (longest_s / PATIENCE + RESERVE_S) / (1 - RESERVE_MOST)  # whatever the number of cells
        hint = f"give --budget {5 * math.ceil(need_s / 5):.0f}s for all of them"
    return tuple(kept), [Warning("store.cells_left_out", evidence, hint)]


def fitting(cases: Sequence[Case], variants: Sequence[Variant], time_s: float) -> list[Case]:
    """As many of the cases, from the first on, as `time_s` of measuring has time for on all variants."""
    kept: list[Case] = []
    left_s = time_s / EPOCHS
    for case in cases:
        left_s -= sum(visit_s(variant, case) for variant in variants if variant.takes(case))
        if left_s < 0 and len(kept) >= FEWEST_CASES:
            break
        kept.append(case)
    return kept


@dataclass(frozen=True)
class Plan:
    """Everything that decides what is measured, in which order, and when it is enough.

    backends: by role, as sonde-stored takes them; {} for a server that runs already. servers: how many are started.
    backend: what they are called together. asked: whether the user named the variants. left_out: cases for which there
    is no time. hdf5: path of libhdf5, for cases of HDF5. notes: what whoever starts the run must know, and nobody who
    reads the file later: what is not installed here. hopeless: of `without_hopeless`, which is kept in the file.
    """

    variants: tuple[Variant, ...]
    cases: tuple[Case, ...]
    rule: str = "ci:2%"
    safety: str = "network"
    seed: int = 1
    cap: int = 20000
    epoch_length: int = 50
    servers: int = 1
    backends: dict[str, str] = field(default_factory=dict)
    backend: str = ""
    asked: bool = False
    left_out: tuple[Case, ...] = ()
    hdf5: str = ""
    notes: tuple[Warning, ...] = ()
    hopeless: tuple[Warning, ...] = ()

    def __post_init__(self) -> None:
        check_rule(self.rule)
        if not any(variant.style != "raw" for variant in self.variants):
            raise UsageError(
                "store.nothing_to_compare",
                "the raw limit alone is no storage system",
                "add a variant, such as --variant raw,tcp",
            )

    @property
    def cells(self) -> int:
        return sum(variant.takes(case) for variant in self.variants for case in self.cases)

    def measuring_s(self, left_s: float) -> float:
        """Of `left_s` until the budget is over, what measuring may take: the rest is for sealing and analysis."""
        return measuring_s(left_s, self.cells)

    def burst_s(self, time_s: float) -> float:
        """Length of a burst at most, so that a cell gets EPOCHS of them in `time_s`; 0: no limit of time."""
        if time_s <= 0:
            return BURST_S[1]
        return min(max(time_s / (2 * EPOCHS * max(1, self.cells)), BURST_S[0]), BURST_S[1])

    def argv(
        self, run_dir: str, time_s: float, addresses: Iterable[str], auth: Sequence[str] = ()
    ) -> list[str]:
        """sonde-storebench's arguments, without its own name. time_s: that measuring may take."""
        burst_s = self.burst_s(time_s)
        words = ["--dir", run_dir, "--rule", self.rule, "--seed", str(self.seed), "--cap", str(self.cap)]
        words += ["--epoch-length", str(self.epoch_length), "--burst-s", f"{burst_s:.6g}"]
        words += ["--budget-s", f"{time_s:.6g}", "--safety", self.safety, *auth]
        if self.hdf5:
            words += ["--hdf5", self.hdf5]
        for address in addresses:
            words += ["--server", address]
        for variant in self.variants:
            words += ["--variant", variant.spec]
        for case in self.cases:
            words += ["--case", case.spec]
        return words

    def document(self) -> dict[str, Any]:
        """The plan as run.json keeps it and `StoreSchema.layout` reads it."""
        return {
            "variants": [
                {
                    "name": v.name,
                    "style": v.style,
                    "transport": v.transport,
                    "options": v.options,
                    "clients": list(v.only),
                    "without": list(v.without),
                }
                for v in self.variants
            ],
            "cases": [case.spec for case in self.cases],
            "epoch_length": self.epoch_length,
            "asked_variants": self.asked,
        }

    def labels(self) -> dict[str, Any]:
        """Root attributes of the room's own."""
        return {
            "rule": self.rule,
            "epoch_length": self.epoch_length,
            "safety": self.safety,
            "servers": self.servers,
            "backend": self.backend,
            "transport": ", ".join(dict.fromkeys(v.transport for v in self.variants if v.style != "raw")),
        }

    def warnings(self) -> list[Warning]:
        """What a reader of the result must know, as far as the plan alone tells."""
        out = [*self.hopeless]
        if self.left_out:
            clients = list(dict.fromkeys(case.client for case in self.left_out))
            out.append(
                Warning(
                    "store.cases_postponed",
                    f"the budget has no time for {len(self.left_out)} of {len(self.left_out) + len(self.cases)} cases "
                    f"(of {', '.join(clients)})",
                    f"give --budget {self.full_budget_s():.0f}s for all of them, or name some with --ops",
                )
            )
        return out

    def full_budget_s(self) -> float:
        """A budget that is enough for all cases, those left out included, s."""
        pairs = [(v, case) for v in self.variants for case in (*self.cases, *self.left_out) if v.takes(case)]
        reserved = RESERVE_CELL_S * len(self.variants) * (len(self.cases) + len(self.left_out))
        need = EPOCHS * sum(visit_s(*pair) for pair in pairs) + reserved + RESERVE_S + 2
        return 5 * math.ceil(need / (1 - RESERVE_SHARE) / 5)

    def rows(self, time_s: float) -> list[tuple[str, str]]:
        """What a dry run says."""
        clients = dict.fromkeys(case.client for case in self.cases)
        return [
            ("variants", ", ".join(variant.name for variant in self.variants)),
            ("clients", ", ".join(clients)),
            ("cases", str(len(self.cases))),
            ("cells", str(self.cells)),
            ("backend", self.backend),
            ("safety", self.safety),
            ("rule", self.rule),
            ("measuring", format_duration(time_s)),
        ]

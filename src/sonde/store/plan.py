"""The plan of a run of the store's bench, made before anything is started. Pure: from options to a command line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sonde.core.errors import UsageError, Warning, nearest
from sonde.core.rules import check_rule
from sonde.core.units import format_duration, format_size

# The operations of each client; written as `object.write`.
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
HDF5 = ("dataset", "attribute")  # clients that call libhdf5
GROUPS = {"hdf5": HDF5}  # values of --ops besides clients
ROLES = {"kv": ("kv",), "db": ("db",), "dataset": ("kv", "data"), "attribute": ("kv", "data")}
"""The roles of a server that a client needs; a client that is not listed needs data."""
COUNTED = ("kv", "db", "attribute")
"""Clients whose rate is given in operations per second, not in bytes per second."""

BLOCK = 4096  # size of an operation in a batch, as in the bench that this one reproduces
OBJECT_BATCH, KV_BATCH = 10_000, 1000  # KV_BATCH is also for rows, datasets and attributes
LARGE = 4 << 20
SIZES = (64, BLOCK, 65536, LARGE)
# The probe's limits: of a value, the values of a batch, an operation, the operations of a batch, the batches in flight.
MAX_VALUE, MAX_KV_BATCH, MAX_ATTRIBUTE, MIN_ROW = 16 << 20, 32 << 20, 8 << 20, 64
MAX_BYTES, MAX_BATCH, MAX_DEPTH = 1 << 30, 100_000, 1024
MAX_AT_ONCE = 256 << 20  # bytes of one iteration; larger combinations of options are left out

EPOCHS = 9  # a plan should have time for this many: six are enough for the interval of a ratio
FEWEST_CASES = 2
BURST_S = (0.003, 0.02)  # shortest and longest burst
SETTLE_S = 0.003  # the probe warms up for this time before a burst of shorter iterations
MAX_VISIT_S = 0.1  # average time of a cell in an epoch: the probe measures longer ones less often
PATIENCE = 0.25  # the probe waits for an answer for this share of the measuring time,
PATIENCE_S = (2.0, 30.0)  # but at least and at most this long
RESERVE_S, RESERVE_SHARE, RESERVE_CELL_S, RESERVE_MAX = 1.0, 0.05, 0.006, 0.4


@dataclass(frozen=True)
class Case:
    """One operation of one client. size: bytes. batch: operations in a batch. depth: batches in flight at once."""

    client: str
    op: str
    size: int
    batch: int = 1
    depth: int = 1

    @property
    def spec(self) -> str:
        """The specification, as sonde-storebench writes it."""
        return f"{self.client}.{self.op}:{self.size}:{self.batch}:{self.depth}"

    @property
    def title(self) -> str:
        """The case as text: "object write, 4 KiB", "key-value get, 1000 × 4 KiB, 16 under way"."""
        size = format_size(self.size, exact=True)
        many = f"{self.batch} × {size}" if self.batch > 1 else size
        under_way = f", {self.depth} under way" if self.depth > 1 else ""
        return f"{CLIENT_NAMES.get(self.client, self.client)} {self.op}, {many}{under_way}"

    @classmethod
    def read(cls, spec: str) -> Case:
        """The case of a specification.

        Raises
        ------
        UsageError  store.bad_case.
        """
        found = re.fullmatch(r"(\w+)\.(\w+):(\d{1,18}):(\d{1,18}):(\d{1,18})", spec, re.ASCII)
        if not found or found[2] not in OPERATIONS.get(found[1], ()):
            raise UsageError(
                "store.bad_case", f"'{spec}' is not a case", "write it like object.write:4096:1:1"
            )
        return cls(found[1], found[2], int(found[3]), int(found[4]), int(found[5]))

    def refused(self) -> str:
        """The reason why the probe would refuse the case; "" when it accepts it."""
        if not 1 <= self.size <= MAX_BYTES:
            return f"an operation has from 1 B to {format_size(MAX_BYTES)}"
        if not 1 <= self.batch <= MAX_BATCH:
            return f"a batch has from 1 to {MAX_BATCH} operations"
        if not 1 <= self.depth <= MAX_DEPTH:
            return f"from 1 to {MAX_DEPTH} batches may be under way"
        if self.client in ("kv", "db") and self.size > MAX_VALUE:
            return f"a value has at most {format_size(MAX_VALUE)}"
        if self.client in ("kv", "db") and self.size * self.batch > MAX_KV_BATCH:
            return f"a batch of keys or rows has at most {format_size(MAX_KV_BATCH)}"
        if self.client == "db" and self.size < MIN_ROW:
            return f"a row has at least {format_size(MIN_ROW)}"
        if self.client == "attribute" and self.size > MAX_ATTRIBUTE:
            return f"an attribute has at most {format_size(MAX_ATTRIBUTE)}"
        if self.client in HDF5 and self.depth > 1:
            return "HDF5 has one operation under way at once"
        if self.size * self.batch * self.depth > MAX_AT_ONCE:
            return f"at most {format_size(MAX_AT_ONCE)} are moved at once"
        return ""


@dataclass(frozen=True)
class Variant:
    """A way to reach the server. name: unique. style: its kind in the results, "default" for a regular variant.

    transport: "tcp", "ofi-msg", …; "raw-tcp" and "raw-ofi" are not storage systems. options: "nodelay=no,gather=no".
    clients: only these are measured on it; () for all that it supports. without: specifications of cases that are not
    measured on it.
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
        """The specification, as sonde-storebench reads it."""
        clients = f"clients={'+'.join(self.clients)}" if self.clients else ""
        without = f"without={'+'.join(self.without)}" if self.without else ""
        return ",".join(filter(None, (f"{self.name}={self.transport}", self.options, clients, without)))

    @property
    def provider(self) -> str:
        """The libfabric provider that the options name; "" without one."""
        options = (option.partition("=") for option in self.options.split(","))
        return next((value for name, _, value in options if name == "provider"), "")

    @property
    def only(self) -> tuple[str, ...]:
        """The clients that are measured on this variant; () for all.

        A raw limit has no HDF5 clients: HDF5 has calls, not messages, so the bytes to move are not defined.
        """
        if self.style != "raw":
            return self.clients
        return tuple(client for client in self.clients or OPERATIONS if client not in HDF5)

    def takes(self, case: Case) -> bool:
        """Whether the case is measured on this variant."""
        return (not self.only or case.client in self.only) and case.spec not in self.without


RAW, RAW_OFI, TCP = "raw", "raw-ofi", "tcp"
SLOW = ("plain", "thesis")  # styles of variants that are slow on purpose
VARIANTS = {
    variant.name: variant
    for variant in (
        Variant(RAW, "raw", "raw-tcp", text="a socket alone: the same bytes there and back, no storage system"),
        Variant(RAW_OFI, "raw", "raw-ofi", text="libfabric alone: the same bytes; provider chosen as for ofi-rdm"),
        Variant(TCP, "default", "tcp", text="well-tuned TCP; the other variants are compared with it"),
        Variant("tls", "tls", "tcp", "tls=yes", "TCP in TLS 1.3"),
        Variant("plain", "plain", "tcp", "nodelay=no,gather=no", "untuned TCP: small sends, Nagle on"),
        Variant("ofi-msg", "default", "ofi-msg", text="libfabric messages; provider chosen by where the server is"),
        Variant("ofi-rdm", "default", "ofi-rdm", text="libfabric reliable datagrams; provider chosen the same way"),
        Variant("ofi-rma", "default", "ofi-rma", text="libfabric messages; the peer reads large data"),
        Variant(
            "thesis", "thesis", "ofi-msg", "provider=sockets,await=yes,gather=no",
            "libfabric as in the source: provider sockets, waits for each piece before the next",
        ),
        Variant(
            "thesis-tcp", "thesis", "ofi-msg", "provider=tcp,await=yes,gather=no",
            "the same over the provider tcp: shows the cost of waiting alone",
        ),
    )
}  # fmt: skip
DEFAULT_VARIANTS = (RAW, RAW_OFI, TCP, "plain", "ofi-msg", "ofi-rdm", "ofi-rma", "thesis")


# The options of a transport, and a pattern for the value of each; as in native/store/storebench/load.cpp.
VARIANT_OPTIONS = dict.fromkeys(("nodelay", "cork", "gather", "await", "tls"), "yes|no") | {
    "provider": r"[\w;.+-]+",
    "rma": r"[0-9]+",
    "spin": r"[0-9].*",
    "checksum": "all|head",
    "clients": r"[a-z]+(\+[a-z]+)*",
}


def read_variant(text: str) -> Variant:
    """A variant by name, a transport with a provider ("ofi-msg/net"), or a definition: "mine=tcp,nodelay=no".

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
            f"there is no variant '{name}'{nearest(name, list(VARIANTS))}; there are: {', '.join(VARIANTS)}",
            "or name a provider, like ofi-msg/net, or define a variant: NAME=TRANSPORT,nodelay=no",
        )
    transport, _, options = rest.partition(",")
    if not re.fullmatch(r"[\w./-]+", name) or not re.fullmatch(r"[\w-]+", transport):
        raise UsageError(
            "store.bad_variant",
            f"'{text}' is not a variant: it must be NAME=TRANSPORT and options",
            "write it like mine=tcp,nodelay=no",
        )
    for setting in options.split(",") if options else ():
        option, _, value = setting.partition("=")
        if not value or not re.fullmatch(VARIANT_OPTIONS.get(option, "(?!)"), value):
            near = "" if option in VARIANT_OPTIONS else nearest(option, list(VARIANT_OPTIONS))
            raise UsageError(
                "store.bad_variant",
                f"'{text}' is not a variant: it has no option '{setting}'{near}",
                "options are nodelay=, cork=, gather=, await=, tls= (yes or no), provider=P, rma=BYTES, spin=20us, "
                "checksum=all or head, clients=object+kv",
            )
    return Variant(name, "raw" if transport in ("raw-tcp", RAW_OFI) else name, transport, options)


def choose_variants(asked: Sequence[str], transports: Sequence[str]) -> tuple[Variant, ...]:
    """The variants that were asked for; by default those whose transport this build has. Each once, in order.

    Raises
    ------
    UsageError  store.bad_variant, store.unknown_transport.
    """
    texts = [part for text in asked for part in (text.split(",") if "=" not in text else [text])]
    if not texts:
        have = {*transports, "raw-tcp"} | ({"raw-ofi"} if "ofi-rdm" in transports else set())
        usual = [VARIANTS[name] for name in DEFAULT_VARIANTS if VARIANTS[name].transport in have]
        # The slow variants cost every client the same, so they are measured with objects only.
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
                f"there are: {', '.join(known)}; 'sonde doctor' shows which of them work on this machine",
            )
    return tuple(chosen.values())


def default_cases() -> list[Case]:
    """All cases of a full run, the most informative first: a short budget measures as many as it has time for."""

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
    """The (client, operation) pairs of "object.write,kv", "hdf5" or "all". A client alone means all its operations.

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
                f"there is no operation '{part}'{nearest(part, known)}; there are: {', '.join(every)}",
                "a client alone means all its operations: --ops object,kv",
            )
        out.update(dict.fromkeys(found))
    return list(out)


def cases_of(
    ops: str | None, sizes: Sequence[int] | None, batches: Sequence[int] | None, depths: Sequence[int] | None
) -> tuple[list[Case], list[Warning]]:
    """The cases of a run: the usual ones, or all combinations of the values that options give.

    Returns the cases, and a warning that names the combinations that cannot be run.

    Raises
    ------
    UsageError  store.bad_operation; store.no_case: no combination can be run.
    """
    if sizes is None and batches is None and depths is None:
        wanted = read_operations(ops or "all")
        return [case for case in default_cases() if (case.client, case.op) in wanted], []
    combinations = [
        Case(client, op, size, batch, depth)
        for client, op in read_operations(ops or "all")
        for size in sizes or SIZES
        for batch in batches or (1,)
        for depth in depths or (1,)
    ]
    refused = {case: reason for case in combinations if (reason := case.refused())}
    cases = [case for case in combinations if case not in refused]
    if not cases:
        case, reason = next(iter(refused.items()))
        raise UsageError(
            "store.no_case", f"{case.title} cannot be measured: {reason}", "ask for less at once"
        )
    if not refused:
        return cases, []
    first = ", ".join(case.spec for case in list(refused)[:4]) + (", …" if len(refused) > 4 else "")
    reasons = "; ".join(dict.fromkeys(refused.values()))
    evidence = f"{len(refused)} of {len(combinations)} cases are left out ({first}): {reasons}"
    return cases, [Warning("store.cases_left_out", evidence, "choose sizes and batches that fit together")]


def measuring_s(left_s: float, cells: int) -> float:
    """The part of `left_s`, the time until the end of a budget, in which a number of cells may be measured, s."""
    reserve = RESERVE_S + RESERVE_SHARE * left_s + RESERVE_CELL_S * cells
    return max(0.5, left_s - min(reserve, RESERVE_MAX * left_s))


def iteration_s(variant: Variant, case: Case) -> float:
    """The approximate time of one iteration of a cell on an ordinary machine, s."""
    operations = case.batch * case.depth
    one = 30e-6 + operations * (2e-6 + case.size / 1.5e9)
    one += operations * {"dataset": 50e-6, "attribute": 30e-6, "db": 20e-6}.get(case.client, 0.0)
    if variant.style == "plain":
        one += 0.066  # Nagle's algorithm waits for a delayed acknowledgement
    elif variant.style == "thesis":
        one += 0.02 * case.depth + 250e-6 * case.batch + case.size * operations / 15e6
    return one


def visit_s(variant: Variant, case: Case, burst_s: float = BURST_S[0]) -> float:
    """The approximate time that a cell takes in an epoch on an ordinary machine, s.

    This is one burst; for a cell that is not measured in every epoch, the average.
    """
    one = iteration_s(variant, case)
    settle_s = SETTLE_S if one < SETTLE_S else 0.0
    return min(MAX_VISIT_S, settle_s + max(one, min(burst_s, 50 * one)))


def patience_s(time_s: float) -> float:
    """The time that the probe waits for one answer in a run that measures for `time_s`, s.

    It is limited so that one answer cannot take the whole run.
    """
    return min(max(PATIENCE * time_s, PATIENCE_S[0]), PATIENCE_S[1])


def without_hopeless(
    variants: Sequence[Variant], cases: Sequence[Case], time_s: float
) -> tuple[tuple[Variant, ...], list[Warning]]:
    """The variants without those cells of the variants slow on purpose in which one iteration takes too long.

    A case that no regular variant would measure stays. time_s: measuring time. Returns the variants, and a warning that
    names the cells that were left out.
    """
    regular = [variant for variant in variants if variant.style not in (*SLOW, "raw")]
    remaining, left = [], []
    for variant in variants:
        specs = tuple(
            case.spec
            for case in cases
            if variant.style in SLOW
            and variant.takes(case)
            and iteration_s(variant, case) > patience_s(time_s)
            and any(other.takes(case) for other in regular)
        )
        remaining.append(replace(variant, without=specs) if specs else variant)
        left += [(variant, case) for case in cases if case.spec in specs]
    if not left:
        return tuple(remaining), []
    longest_s = max(iteration_s(*cell) for cell in left)
    cells = "; ".join(f"{variant.name}, {case.spec}" for variant, case in left[:4])
    more = f" and {len(left) - 4} more" if len(left) > 4 else ""
    evidence = (
        f"{len(left)} cell{'s' * (len(left) > 1)} slow on purpose {'are' if len(left) > 1 else 'is'} left out "
        f"({cells}{more}): one iteration takes about {format_duration(longest_s)}, but the probe waits only "
        f"{format_duration(patience_s(time_s))} for an answer"
    )
    hint = "choose smaller batches for them"
    if longest_s <= PATIENCE_S[1]:
        need_s = (longest_s / PATIENCE + RESERVE_S) / (1 - RESERVE_MAX)  # whatever the number of cells
        hint = f"give --budget {5 * math.ceil(need_s / 5):.0f}s for all of them"
    return tuple(remaining), [Warning("store.cells_left_out", evidence, hint)]


def fitting(cases: Sequence[Case], variants: Sequence[Variant], time_s: float) -> list[Case]:
    """The first cases, as many as can be measured on all variants in `time_s`."""
    fit: list[Case] = []
    left_s = time_s / EPOCHS
    for case in cases:
        left_s -= sum(visit_s(variant, case) for variant in variants if variant.takes(case))
        if left_s < 0 and len(fit) >= FEWEST_CASES:
            break
        fit.append(case)
    return fit


@dataclass(frozen=True)
class Plan:
    """Everything that determines what is measured, in which order, and when it is enough.

    backends: by role, in the form of sonde-stored; {} for a server that runs already. servers: the number to start.
    backend: their common name. asked: whether the user named the variants. left_out: cases for which there is no time.
    hdf5: path of libhdf5, for HDF5 cases. notes: warnings for the user who starts the run only, such as software that
    is not installed; they are not stored in the file. hopeless: warnings of `without_hopeless`; these are stored.
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
                "a raw limit alone is not a storage system",
                "add a variant, such as --variant raw,tcp",
            )

    @property
    def cells(self) -> int:
        return sum(variant.takes(case) for variant in self.variants for case in self.cases)

    def measuring_s(self, left_s: float) -> float:
        """The part of `left_s`, the rest of the budget, for measuring. The remainder is for sealing and analysis."""
        return measuring_s(left_s, self.cells)

    def burst_s(self, time_s: float) -> float:
        """The maximum length of a burst, s, so that a cell gets EPOCHS bursts in `time_s`. time_s 0: no time limit."""
        if time_s <= 0:
            return BURST_S[1]
        return min(max(time_s / (2 * EPOCHS * max(1, self.cells)), BURST_S[0]), BURST_S[1])

    def argv(
        self, run_dir: str, time_s: float, addresses: Iterable[str], auth: Sequence[str] = ()
    ) -> list[str]:
        """The arguments of sonde-storebench, without its own name. time_s: the time for measuring."""
        burst_s = self.burst_s(time_s)
        argv = ["--dir", run_dir, "--rule", self.rule, "--seed", str(self.seed), "--cap", str(self.cap)]
        argv += ["--epoch-length", str(self.epoch_length), "--burst-s", f"{burst_s:.6g}"]
        argv += ["--budget-s", f"{time_s:.6g}", "--safety", self.safety, *auth]
        if self.hdf5:
            argv += ["--hdf5", self.hdf5]
        for address in addresses:
            argv += ["--server", address]
        for variant in self.variants:
            argv += ["--variant", variant.spec]
        for case in self.cases:
            argv += ["--case", case.spec]
        return argv

    def document(self) -> dict[str, Any]:
        """The plan as it is stored in run.json, from which `StoreSchema.layout` reads it."""
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
        """The root attributes that are specific to this room."""
        return {
            "rule": self.rule,
            "epoch_length": self.epoch_length,
            "safety": self.safety,
            "servers": self.servers,
            "backend": self.backend,
            "transport": ", ".join(dict.fromkeys(v.transport for v in self.variants if v.style != "raw")),
        }

    def warnings(self) -> list[Warning]:
        """The warnings for a reader of the result that follow from the plan alone."""
        out = [*self.hopeless]
        if self.left_out:
            clients = list(dict.fromkeys(case.client for case in self.left_out))
            out.append(
                Warning(
                    "store.cases_postponed",
                    f"the budget has no time for {len(self.left_out)} of {len(self.left_out) + len(self.cases)} cases "
                    f"(of {', '.join(clients)})",
                    f"give --budget {self.full_budget_s():.0f}s for all of them, or select some with --ops",
                )
            )
        return out

    def full_budget_s(self) -> float:
        """A budget that is enough for all cases, including those that were left out, s."""
        pairs = [(v, case) for v in self.variants for case in (*self.cases, *self.left_out) if v.takes(case)]
        reserved = RESERVE_CELL_S * len(self.variants) * (len(self.cases) + len(self.left_out))
        need = EPOCHS * sum(visit_s(*pair) for pair in pairs) + reserved + RESERVE_S + 2
        return 5 * math.ceil(need / (1 - RESERVE_SHARE) / 5)

    def rows(self, time_s: float) -> list[tuple[str, str]]:
        """The rows of a dry run."""
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

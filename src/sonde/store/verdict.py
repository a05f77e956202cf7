"""The verdict on a summary: one sentence, lessons, warnings, tables and rows. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from sonde.core.errors import Warning
from sonde.core.outcome import Table
from sonde.core.status import DRIFT, mostly_converged, status_counts
from sonde.core.units import format_duration, format_size
from sonde.store.plan import CLIENT_NAMES, COUNTED, OPERATIONS, RAW_OFI, SLOW, TCP, Case

MATTERS = 0.05  # a ratio that is nearer to 1 counts as no difference
MAX_COLUMNS = 6  # variants in a table that fits into 80 columns
MAX_WITH_INTERVALS = 5  # variants in a table with intervals that fits into a report
WIDEST = 100.0  # an interval whose upper end is more than this many times its lower end is not shown
ENOUGH = 0.5  # share of cells that need an interval; with fewer, the verdict is not reliable
MIB = float(1 << 20)
MISTAKES = ("nodelay=no", "gather=no", "await=yes")  # options that make a connection slow
TOO_WIDE = 2.0  # an interval that contains 1 and is wider than this cannot show that two variants are equal
BARE = {"raw": ("raw", "a bare socket"), "raw_ofi": (RAW_OFI, "libfabric alone")}
"""By the ratio's name: the variant that is the raw limit, and a phrase for it."""
# The implementations differ in this: storebench/raw.cpp receives in a blocking call, transport/tcp.cpp spins first. No
# run can show that this makes the socket slower, so the sentence does not claim it.
SLEEPS = {"raw": " (which sleeps at once, while the store spins first)"}
NOTHING = "no transport is significantly faster than tcp"
UNCLEAR, SLOWER = "~", "*"  # marks in front of a number
UNKNOWN = "too little was measured to say which transport is fastest"


def cases_of(summary: xr.Dataset) -> list[Case]:
    """The cases, in the order of the summary."""
    columns = [summary[name].values for name in ("client", "op", "size", "batch", "depth")]
    return [Case(str(c), str(o), int(s), int(b), int(d)) for c, o, s, b, d in zip(*columns)]


def names_of(summary: xr.Dataset) -> list[str]:
    """The names of the variants, in the order of the summary."""
    return [str(name) for name in summary["variant"].values]


def styled(summary: xr.Dataset, style: str) -> list[int]:
    """The rows of the variants that have a style."""
    return [k for k, name in enumerate(summary["style"].values) if str(name) == style]


def counts(summary: xr.Dataset) -> dict[str, int]:
    """The number of cells with data by how measuring ended: cells, converged, capped, drift, undecided."""
    return status_counts(summary["status"].values)


def rows(summary: xr.Dataset) -> list[dict[str, Any]]:
    """One mapping for each cell with data: the `results` of docs/reference/json.md."""
    out = []
    cases = cases_of(summary)
    known = {str(name): variable.values for name, variable in summary.data_vars.items()}
    for c, case in enumerate(cases):
        for v, name in enumerate(names_of(summary)):
            if not known["n"][v, c]:
                continue

            def of(key: str, v: int = v, c: int = c) -> float | None:
                if key not in known:  # a run of an older version, which did not compute it
                    return None
                value = float(known[key][v, c])
                return value if math.isfinite(value) else None

            def ends(key: str, factor: float = 1.0, of: Any = of) -> list[float] | None:
                low, high = of(f"{key}_low"), of(f"{key}_high")
                return None if low is None or high is None else [low * factor, high * factor]

            throughput = of("throughput")
            out.append(
                {
                    "client": case.client,
                    "op": case.op,
                    "size": case.size,
                    "batch": case.batch,
                    "depth": case.depth,
                    "transport": str(known["transport"][v]),
                    "provider": str(known["provider"][v]),
                    "variant": str(known["style"][v]),
                    "name": name,
                    "ops_s": of("rate"),
                    "mib_s": None if throughput is None else throughput / MIB,
                    "ci": ends("rate"),
                    "mean_ops_s": of("mean_rate"),
                    "p50_s": of("median"),
                    "p99_s": of("p99"),
                    "ratio_to_tcp": of("ratio_to_tcp"),
                    "ratio_to_tcp_ci": ends("ratio_to_tcp"),
                    "ratio_to_raw": of("ratio_to_raw"),
                    "ratio_to_raw_ci": ends("ratio_to_raw"),
                    "ratio_to_raw_ofi": of("ratio_to_raw_ofi"),
                    "ratio_to_raw_ofi_ci": ends("ratio_to_raw_ofi"),
                    "n": int(known["n"][v, c]),
                    "epochs": int(known["epochs"][v, c]),
                    "drift": bool(known["status"][v, c] == DRIFT),
                }
            )
    return out


def values(summary: xr.Dataset) -> dict[str, Any]:
    """The numbers of `store run` and `store show` for --json."""
    return {**counts(summary), "lessons": lessons(summary), "results": rows(summary)}


def label(summary: xr.Dataset, v: int) -> str:
    """A variant's name with its provider: "ofi-rdm (shm)"."""
    name, provider = names_of(summary)[v], str(summary["provider"].values[v])
    return f"{name} ({provider})" if provider and provider not in name else name


def _ratio(summary: xr.Dataset, v: int, c: int, to: str = "tcp") -> tuple[float, float, float]:
    low, high = (float(summary[f"ratio_to_{to}_{end}"].values[v, c]) for end in ("low", "high"))
    return float(summary[f"ratio_to_{to}"].values[v, c]), low, high


def ratio_text(ratio: float, low: float = math.nan, high: float = math.nan) -> str:
    """ "2.31 times (2.2 to 2.4)", "1/850"-like ratios as "0.0012 times"."""
    text = f"{_short(ratio)} times"
    return f"{text} ({_short(low)} to {_short(high)})" if math.isfinite(low) and math.isfinite(high) else text


def _short(value: float) -> str:
    """A number with at most three significant digits and without an exponent."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 4)}f}" if value < 1000 else f"{value:.0f}"


def real(summary: xr.Dataset) -> list[int]:
    """The rows of the regular variants: without raw limits, and without variants that are slow on purpose."""
    styles = [str(style) for style in summary["style"].values]
    options = [str(text).split(",") for text in summary["options"].values] if "options" in summary else None
    return [
        v
        for v, style in enumerate(styles)
        if style not in ("raw", *SLOW) and not (options and set(options[v]) & set(MISTAKES))
    ]


def best(summary: xr.Dataset, c: int) -> int | None:
    """The regular variant with the highest rate in a case; None when there is no data."""
    measured = [v for v in real(summary) if summary["n"].values[v, c]]
    return max(measured, key=lambda v: float(summary["rate"].values[v, c]), default=None)


def ahead(summary: xr.Dataset, v: int, c: int) -> bool:
    """Whether a variant is significantly faster than tcp, and by more than MATTERS."""
    ratio, low, _ = _ratio(summary, v, c)
    return ratio > 1 + MATTERS and low > 1


def lessons(summary: xr.Dataset) -> list[dict[str, Any]]:
    """The lessons of the run, each as {code, text, evidence}: which transport is best, and what mistakes cost."""
    client = _main_client(summary)
    out = [lesson for op in OPERATIONS[client] if (lesson := _best_by_size(summary, client, op))]
    for style, code, description in (
        ("plain", "store.plain_tcp", "untuned TCP (small sends, Nagle on)"),
        ("thesis", "store.awaited", "libfabric that waits for each piece of a message"),
    ):
        for v in styled(summary, style):
            provider = str(summary["provider"].values[v])
            subject = f"{description}, provider {provider}," if provider else description
            if lesson := _cost(summary, v, code, subject):
                out.append(lesson)
    if TCP in names_of(summary):
        against = _against(summary, names_of(summary).index(TCP), "raw", "a bare socket's")
        out += [against] if against else []
    fabric = limited_by(summary, RAW_OFI)
    if fabric is not None:
        against = _against(summary, fabric, "raw_ofi", "libfabric's own")
        out += [against] if against else []
    return out


def _main_client(summary: xr.Dataset) -> str:
    """The client that the lesson on the best transport is about: object, or else the client with the most data."""
    cells: dict[str, int] = {}
    for c, case in enumerate(cases_of(summary)):
        if (case.batch, case.depth) == (1, 1):
            cells[case.client] = cells.get(case.client, 0) + int((summary["n"].values[:, c] > 0).sum())
    return "object" if cells.get("object") else max(cells, key=lambda client: cells[client], default="object")


def _best_by_size(summary: xr.Dataset, client: str, op: str) -> dict[str, Any] | None:
    """The lesson on the best transport for single operations of a client, at sizes with several transports."""
    if TCP not in names_of(summary):
        return None
    tcp = names_of(summary).index(TCP)
    alike: dict[str, list[str]] = {}
    evidence, alone = [], []
    for c, case in sorted(enumerate(cases_of(summary)), key=lambda pair: pair[1].size):
        if (case.client, case.op, case.batch, case.depth) != (client, op, 1, 1):
            continue
        measured = [v for v in real(summary) if summary["n"].values[v, c]]
        size = format_size(case.size, exact=True)
        if tcp in measured and len(measured) > 1:
            fastest, v = _fastest(summary, c, [v for v in measured if v != tcp])
            alike.setdefault(fastest, []).append(size)
            name = None if v is None else names_of(summary)[v]
            ratio = None if v is None or v == tcp else _ratio(summary, v, c)[0]
            evidence.append({"size": case.size, "name": name, "ratio_to_tcp": ratio})
        elif measured:
            alone.append((label(summary, measured[0]), size))
    operations = f"{'writes' if op == 'write' else 'reads'} of objects"
    if client != "object":
        operations = f"{CLIENT_NAMES[client]} {op}"
    if alike:
        text = _by_size_text(operations, alike)
    elif alone:
        labels = " and ".join(dict.fromkeys(name for name, _ in alone))
        sizes = _listed([size for _, size in alone])
        text = f"for {operations} {UNKNOWN}: at {sizes} {labels} had no transport to be compared with"
    else:
        return None
    return {
        "code": "store.best_transport",
        "text": text,
        "evidence": {"client": client, "op": op, "by_size": evidence},
    }


def _fastest(summary: xr.Dataset, c: int, rivals: Sequence[int]) -> tuple[str, int | None]:
    """The text that names the fastest transport in a case, and its row.

    The row is tcp's when no variant is faster; it is None when the fastest transport is unknown. rivals: variants with
    data, without tcp. The decision uses 95 % confidence intervals only. A variant without an interval, or with one
    that overlaps the interval of the fastest variant, is named together with the fastest.
    """
    ratios = {v: _ratio(summary, v, c) for v in rivals}
    faster = [v for v in rivals if ahead(summary, v, c)]
    tcp = names_of(summary).index(TCP)
    if faster:
        v = max(faster, key=lambda v: ratios[v][0])
        equal = [r for r in rivals if r != v and not ratios[r][2] < ratios[v][1]]
        labels = " or ".join(label(summary, r) for r in (v, *equal))
        name = f"{names_of(summary)[v]} " if equal else ""
        return f"{labels}, {name}{ratio_text(*ratios[v])} tcp", v
    if all(high < 1 for _, _, high in ratios.values()):
        return "tcp", tcp
    if all(high <= TOO_WIDE * low for _, low, high in ratios.values() if not high < 1):
        return NOTHING, tcp
    return UNKNOWN, None


def _by_size_text(operations: str, alike: dict[str, list[str]]) -> str:
    """One sentence on the fastest transport. alike: for each text about the fastest, the sizes that it applies to."""
    if len(alike) > 1:
        parts = (f"at {_listed(sizes)} {fastest}" for fastest, sizes in alike.items())
        best = "" if set(alike) <= {NOTHING, UNKNOWN} else "best "
        return f"{best}for {operations}: {'; '.join(parts)}"
    ((fastest, sizes),) = alike.items()
    where = f"for {operations} at {_listed(sizes)}"
    if fastest == "tcp":
        return f"{where} tcp is the fastest"
    return f"{where} {fastest}" if fastest in (NOTHING, UNKNOWN) else f"best {where}: {fastest}"


def _listed(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _cost(summary: xr.Dataset, v: int, code: str, subject: str) -> dict[str, Any] | None:
    """The lesson on a variant's cost: its worst case among single operations, and among batches."""
    parts, evidence = [], []
    for many, name in ((False, "single operations"), (True, "batches")):
        ratios = [
            (_ratio(summary, v, c), case)
            for c, case in enumerate(cases_of(summary))
            if (case.batch > 1) == many and np.isfinite(summary["ratio_to_tcp"].values[v, c])
        ]
        if not ratios:
            continue
        (ratio, _, high), case = min(ratios, key=lambda pair: pair[0][0])
        evidence.append({"case": case.spec, "ratio_to_tcp": ratio})
        if ratio < 1 / (1 + MATTERS) and not high >= 1:
            about = "" if math.isfinite(high) else "about "
            parts.append(f"{about}{_short(1 / ratio)} times as slow as tcp in {name} ({case.title})")
        elif all(low > 1 / (1 + MATTERS) for (_, low, _), _ in ratios):
            parts.append(f"no slower in {name}")
        else:
            parts.append(f"not significantly slower in {name}")
    if not parts:
        return None
    return {
        "code": code,
        "text": f"{subject} is {' and '.join(parts)}",
        "evidence": {
            "name": names_of(summary)[v],
            "provider": str(summary["provider"].values[v]),
            "worst": evidence,
        },
    }


def limited_by(summary: xr.Dataset, raw: str) -> int | None:
    """The variant that a raw limit belongs to: tcp for the socket, a variant with the same provider for libfabric."""
    names = names_of(summary)
    if raw != RAW_OFI:
        return names.index(TCP) if TCP in names else None
    if raw not in names:
        return None
    provider = str(summary["provider"].values[names.index(raw)])
    like = [v for v in styled(summary, "default") if str(summary["provider"].values[v]) == provider != ""]
    return min(like, key=lambda v: names[v] != "ofi-rdm", default=None)


def _against(summary: xr.Dataset, v: int, limit: str, whose: str) -> dict[str, Any] | None:
    """The lesson on how close the storage system comes to a raw limit.

    limit: "raw", "raw_ofi". whose: whose rate the limit is, as a phrase.
    """
    key = f"ratio_to_{limit}"
    if key not in summary:
        return None
    known = [
        (case, float(summary[key].values[v, c]))
        for c, case in enumerate(cases_of(summary))
        if case.client == "object" and case.depth == 1 and np.isfinite(summary[key].values[v, c])
    ]
    if not known:
        return None
    passed = [case for case, _ in known if exceeded(summary, limit, cases_of(summary).index(case), v)]
    parts = []
    for many, name in ((False, "single operations"), (True, "batches")):
        ratios = sorted(ratio for case, ratio in known if (case.batch > 1) == many and case not in passed)
        if ratios:
            ends = _short(ratios[0]) if len(ratios) == 1 else f"{_short(ratios[0])} to {_short(ratios[-1])}"
            parts.append(f"{ends} of {whose} rate in {name}")
    text = f"over {label(summary, v)}, objects reach {' and '.join(parts)}" if parts else ""
    if passed:
        than = "" if parts else f" than objects over {label(summary, v)}"
        cases = f"{len(passed)} of {len(known)} cases"
        why = (
            f"{BARE[limit][1]}{SLEEPS.get(limit, '')} was slower{than} in {cases}, so it is not a limit there"
        )
        text = f"{text}; {why}" if text else why
    return {
        "code": f"store.against_{limit}",
        "text": text,
        "evidence": {
            "cases": [{"case": case.spec, key: ratio} for case, ratio in known],
            "no_limit": [case.spec for case in passed],
        },
    }


def exceeded(summary: xr.Dataset, limit: str, c: int, v: int | None = None) -> bool:
    """Whether a variant is significantly faster than a raw limit in a case, so that it is not a limit there.

    limit: "raw", "raw_ofi". v: the variant; None: the variant that the limit belongs to.
    """
    v = limited_by(summary, BARE[limit][0]) if v is None else v
    if v is None or f"ratio_to_{limit}" not in summary:
        return False
    ratio, low, _ = _ratio(summary, v, c, limit)
    return ratio > 1 + MATTERS and not low <= 1


def sentence(summary: xr.Dataset, dataset: str = "FILE") -> str:
    """The verdict in one sentence."""
    number = counts(summary)
    if not number["cells"]:
        return "Nothing was measured."
    parts = [rate] if (rate := _first_rate(summary)) else []
    parts += [lesson["text"] for lesson in lessons(summary)[:1]]
    if not mostly_converged(number):
        few = f"only {number['converged']}" if number["converged"] else "none"
        parts.append(f"{few} of {number['cells']} cells converged: give a longer --budget")
    elif number["drift"]:
        parts.append(f"{number['drift']} of {number['cells']} cells drifted")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _first_rate(summary: xr.Dataset) -> str:
    """The rate of the first case over tcp, or over the first variant that has data for it."""
    names, cases = names_of(summary), cases_of(summary)
    order = sorted(
        range(len(names)), key=lambda v: (names[v] != TCP, str(summary["style"].values[v]) == "raw")
    )
    for c, case in enumerate(cases):
        for v in order:
            if summary["n"].values[v, c]:
                return (
                    f"{case.title}: {rate_text(float(summary['rate'].values[v, c]))} over {label(summary, v)}"
                )
    return ""


def rate_text(rate: float) -> str:
    """ "31.2 k/s" """
    if rate >= 999_500:
        return f"{_short(rate / 1e6)} M/s"
    return f"{_short(rate / 1000)} k/s" if rate >= 1000 else f"{_short(rate)}/s"


def valid(summary: xr.Dataset) -> bool:
    """Whether enough cells have an interval for the verdict to be reliable."""
    cells = counts(summary)["cells"]
    known = int((np.isfinite(summary["median_low"].values) & (summary["epochs"].values >= 6)).sum())
    return bool(cells) and known >= ENOUGH * cells


def good(summary: xr.Dataset) -> bool:
    """Whether the verdict needs no second look: it is valid, and most cells reached the precision that was asked."""
    return valid(summary) and mostly_converged(counts(summary))


def caveats(summary: xr.Dataset) -> str:
    """Why the numbers are not reliable, as a short phrase; "" when they are valid."""
    return "" if valid(summary) else "most cells were measured in too few epochs"


def warnings(summary: xr.Dataset) -> list[Warning]:
    """The warnings for a reader of the numbers that follow from /summary alone."""
    out = []
    drifted = np.argwhere(summary["status"].values == DRIFT)
    if len(drifted):
        names, cases = names_of(summary), cases_of(summary)
        first = "; ".join(f"{names[v]}, {cases[c].title}" for v, c in drifted[:3])
        more = f" and {len(drifted) - 3} more" if len(drifted) > 3 else ""
        out.append(
            Warning(
                "store.drift",
                f"the level of {len(drifted)} cells drifted during the run: {first}{more}",
                "their intervals hold for the time of this run only; ratios are computed epoch by epoch, "
                "and are more reliable",
            )
        )
    return out


def tables(summary: xr.Dataset, intervals: bool = False) -> list[Table]:
    """For each client the rate of each variant, and its ratio to that of tcp. The tables fit into 80 columns.

    intervals: whether to add 95 % confidence intervals in brackets; such tables are wider.
    """
    out: list[Table] = []
    cases = cases_of(summary)
    for client in dict.fromkeys(case.client for case in cases):
        own = [c for c, case in enumerate(cases) if case.client == client and summary["n"].values[:, c].any()]
        if own:
            out += _tables_of(summary, client, own, intervals)
    return out


def _tables_of(summary: xr.Dataset, client: str, own: Sequence[int], intervals: bool) -> list[Table]:
    names, cases = names_of(summary), cases_of(summary)
    name = CLIENT_NAMES[client]
    unit, key, factor = ("1000/s", "rate", 1e3) if client in COUNTED else ("MiB/s", "throughput", MIB)

    limits = {raw: limit for limit, (raw, _) in BARE.items()}

    def cell(v: int, c: int) -> str:
        text = _short(float(summary[key].values[v, c]) / factor)
        if names[v] in limits and exceeded(summary, limits[names[v]], c):
            text = f"{SLOWER}{text}"
        low, high = (float(summary[f"{key}_{end}"].values[v, c]) / factor for end in ("low", "high"))
        narrow = intervals and 0 < low <= high <= WIDEST * low
        return f"{text} ({_short(low)}–{_short(high)})" if narrow else text

    most = MAX_WITH_INTERVALS if intervals else MAX_COLUMNS
    out = []
    title = f"{name[0].upper()}{name[1:]}"
    for shown in _parts([v for v in range(len(names)) if summary["n"].values[v, own].any()], most):
        rows = [(_row(cases[c]), *(cell(v, c) for v in shown)) for c in own]
        head = ("operation", *(names[v] for v in shown))
        notes = ["in brackets: 95 % confidence interval, where it is known"] if intervals else []
        if _marked(rows, SLOWER):
            notes.append(f"{SLOWER} before a raw limit: it was slower than its variant, so it is not a limit")
        note = "\n".join(notes)
        of_variants = tuple(range(1, len(head)))
        out.append(Table(f"{title}: {unit}", head, rows, of_variants, note, of_variants))
    compared = [
        v
        for v in range(len(names))
        if names[v] != TCP and np.isfinite(summary["ratio_to_tcp"].values[v, own]).any()
    ]
    for part in _parts(compared, MAX_COLUMNS):
        rows = [(_row(cases[c]), *(_compared(summary, v, c) for v in part)) for c in own]
        head = ("operation", *(names[v] for v in part))
        note = ""
        if _marked(rows, UNCLEAR):
            note = f"{UNCLEAR} before a ratio: its 95 % confidence interval includes 1, or is unknown"
        of_variants = tuple(range(1, len(head)))
        out.append(Table(f"{title}: rate relative to tcp", head, rows, of_variants, note, of_variants))
    return out


def _marked(rows: Sequence[Sequence[str]], mark: str) -> bool:
    """Whether a number of a table begins with this mark. The first column has names and is not searched."""
    return any(cell.startswith(mark) for row in rows for cell in row[1:])


def _parts(variants: Sequence[int], most: int) -> list[Sequence[int]]:
    """The variants of each table: at most `most` for each, and about as many in all."""
    tables = -(-len(variants) // most)
    return [part.tolist() for part in np.array_split(np.array(variants, int), tables)] if tables else []


def _row(case: Case) -> str:
    return f"{case.op} {short_title(case)}"


def short_title(case: Case) -> str:
    """Size, batch and depth in short form: "4 KiB", "10k×4KiB", "4 KiB (16)"."""
    size = format_size(case.size, exact=True)
    batch = f"{case.batch // 1000}k" if case.batch % 1000 == 0 else str(case.batch)
    return (f"{batch}×{size.replace(' ', '')}" if case.batch > 1 else size) + (
        f" ({case.depth})" if case.depth > 1 else ""
    )


def _compared(summary: xr.Dataset, v: int, c: int) -> str:
    ratio, low, high = _ratio(summary, v, c)
    if not math.isfinite(ratio):
        return "–"
    clear = math.isfinite(low) and (low > 1 or high < 1)
    return _short(ratio) if clear else f"{UNCLEAR}{_short(ratio)}"


def case_table(summary: xr.Dataset, c: int) -> Table:
    """The table of one case: rates, latencies and ratios of all variants, with intervals."""
    rows = []
    for v, name in enumerate(names_of(summary)):
        if not summary["n"].values[v, c]:
            continue
        ratio, low, high = _ratio(summary, v, c)
        ends = f"{_short(low)}–{_short(high)}" if math.isfinite(low) else ""
        rows.append(
            (
                name,
                str(summary["provider"].values[v]),
                rate_text(float(summary["rate"].values[v, c])),
                format_duration(float(summary["median"].values[v, c])),
                format_duration(float(summary["p99"].values[v, c])),
                _short(ratio),
                ends,
                str(int(summary["n"].values[v, c])),
            )
        )
    head = ("variant", "provider", "rate", "median", "99 %", "× tcp", "95 %", "n")
    return Table(cases_of(summary)[c].title, head, rows, (2, 3, 4, 5, 6, 7))


def variant_table(summary: xr.Dataset) -> Table:
    """The table that describes the variants."""
    rows = [
        (name, *(str(summary[key].values[v]) for key in ("transport", "provider", "detail")))
        for v, name in enumerate(names_of(summary))
    ]
    return Table("Variants", ("variant", "transport", "provider", "connection"), rows)

"""libfabric against sockets, against the source's way of using it, and both against bare sockets; null backend."""

from __future__ import annotations

from bench.rows import row
from bench.store.runs import cell, run, shown

OPS = ("object.write", "object.read")
SINGLE = [(64, 1), (4096, 1), (65536, 1), (4 << 20, 1)]
BATCHED = [(4096, 1000), (4096, 10_000)]
BELOW = [case for case in SINGLE if case[0] < 65536]
ABOVE = [case for case in SINGLE if case[0] >= 65536] + BATCHED
HELD = ("ofi-msg/net", "ofi-msg/tcp")
PLACE = "ofi-rma"  # messages, and remote reads from where they were measured to be faster: whatever the provider can do
RECORD = ("ofi-rdm", "ofi-msg", "tls")


def rows() -> list[dict]:
    """Rows of this bench."""
    variants = ",".join(("raw", "tcp", PLACE, *RECORD, *HELD, "thesis"))
    sizes = {"ops": "object", "variant": variants, "depth": "1"}
    results = run("150s", sizes="64,4KiB,64KiB,4MiB", batch="1", **sizes)
    results += run("150s", sizes="4KiB", batch="1000,10000", **sizes)
    out = []
    out += _against_tcp(results, PLACE, SINGLE + BATCHED, 1.0, 0.95)
    for name in RECORD:
        out += _against_tcp(results, name, SINGLE + BATCHED, None, 0)
    for name in HELD:
        out += _against_tcp(results, name, BELOW, 0.75, 0.75)
        out += _against_tcp(results, name, ABOVE, 0.9, 0.9)
    for size, batch, bar in ((4096, 1, 9), (4096, 10_000, 7)):
        for op in OPS:
            ours, theirs = cell(results, PLACE, op, size, batch), cell(results, "thesis", op, size, batch)
            value = ours["ops_s"] / theirs["ops_s"] if ours and theirs else None
            out.append(
                row(
                    f"{op}, {shown(size, batch)}: libfabric as here against the thesis variant on sockets",
                    f">= {bar}x",
                    value,
                    None,
                    lambda v, bar=bar: v >= bar,
                    f"{_provider(ours)} against the provider sockets, each piece awaited",
                )
            )
    return out + _against_raw(results)


def _provider(result: dict | None) -> str:
    return f"{result['transport']} ({result['provider']})" if result else "absent"


def _against_tcp(
    results: list[dict], name: str, cases: list[tuple[int, int]], bar: float | None, least: float
) -> list[dict]:
    out = []
    for size, batch in cases:
        for op in OPS:
            found = cell(results, name, op, size, batch)
            out.append(
                row(
                    f"{op}, {shown(size, batch)}: {name} against tcp",
                    "for the record"
                    if bar is None
                    else f">= {bar:g}" + (f" (tolerance {bar - least:.0%})" if least < bar else ""),
                    found and found["ratio_to_tcp"],
                    found and found["ratio_to_tcp_ci"],
                    None if bar is None else lambda v: v >= least,
                    f"{_provider(found)}; null backend, one client, interleaved",
                )
            )
    return out


def _against_raw(results: list[dict]) -> list[dict]:
    out = []
    for size in (64, 4096, 65536):
        for op in OPS:
            tcp, raw = cell(results, "tcp", op, size), cell(results, "raw", op, size)
            for key, bar in (("p50_s", 1.5), ("p99_s", 3.0)):
                value = tcp[key] / raw[key] if tcp and raw else None
                out.append(
                    row(
                        f"{op}, {shown(size, 1)}: tcp against a raw ping-pong, {key[:3]}",
                        f"<= {bar:g}x",
                        value,
                        None,
                        lambda v, bar=bar: v <= bar,
                        "null backend; the same bytes over a bare socket",
                    )
                )
    for op in OPS:
        found = cell(results, "tcp", op, 4096, 10_000)
        out.append(
            row(
                f"{op}, 40 MB batch: tcp against a raw stream",
                ">= 0.8x",
                found and found["ratio_to_raw"],
                found and found["ratio_to_raw_ci"],
                lambda v: v >= 0.8,
                "null backend, checksums of all data on",
            )
        )
    return out

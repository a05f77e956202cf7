"""Messages or remote reads: whether the measured threshold comes near the better of both at every size.

Each way is taken by its ratio to tcp epoch by epoch. Two processors of a virtual machine share a cache for
a while and then do not; what one writes and the other reads takes up to twice as long then, by whatever way.
A median over a whole run is of the one time for one variant and of the other for the next: where half of the
epochs are slow, two that are alike differ by as much.
"""

from __future__ import annotations

from bench.rows import row
from bench.store.runs import Result, cell, run, shown

SIZES = (4096, 65536, 262144, 1 << 20, 4 << 20)
NEVER = 1 << 60


def _ratio(result: Result | None) -> float | None:
    return result["ratio_to_tcp"] if result else None


def _begins(result: Result | None) -> str:
    """Where remote reads begin, in the connection's own words."""
    words = str(result["detail"]).split(", ") if result else []
    return next((word for word in words if "by RMA" in word), "")


def rows() -> list[dict]:
    """Rows of this bench."""
    out = []
    for provider in ("shm", "tcp"):
        variants = [
            "tcp",
            f"chosen=ofi-rma,provider={provider}",
            f"messages=ofi-rma,provider={provider},rma={NEVER}",
        ]
        variants += [f"reads=ofi-rma,provider={provider},rma=0"]
        results = []
        for op in ("object.write", "object.read"):
            sizes = ",".join(map(str, SIZES))
            results += run("25s", ops=op, batch="1", depth="1", sizes=sizes, variant=variants)
        for size in SIZES:
            for op in ("object.write", "object.read"):
                chosen, messages, reads = (
                    cell(results, name, op, size) for name in ("chosen", "messages", "reads")
                )
                found = [v for v in map(_ratio, (messages, reads)) if v]
                own = _ratio(chosen)
                value = own / max(found) if own and found else None
                rates = [r["ops_s"] for r in (messages, reads) if r]
                medians = f"{chosen['ops_s'] / max(rates):.3f}" if chosen and rates else "none"
                out.append(
                    row(
                        f"{op}, {shown(size, 1)}: ofi-rma ({provider}), its threshold against the better of both",
                        ">= 0.9",
                        value,
                        None,
                        lambda v: v >= 0.9,
                        "better: "
                        + ("reads" if (_ratio(reads) or 0) > (_ratio(messages) or 0) else "messages")
                        + f"; by medians of the whole run {medians}; {_begins(chosen)}",
                    )
                )
    return out

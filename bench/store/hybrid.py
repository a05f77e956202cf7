"""Messages or remote reads: whether the measured threshold comes near the better of both at every size."""

from __future__ import annotations

from bench.store.runs import cell, row, run, shown

SIZES = (4096, 65536, 262144, 1 << 20, 4 << 20)
NEVER = 1 << 60


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
                found = [r["ops_s"] for r in (messages, reads) if r]
                value = chosen["ops_s"] / max(found) if chosen and found else None
                out.append(
                    row(
                        f"{op}, {shown(size, 1)}: ofi-rma ({provider}), its threshold against the better of both",
                        ">= 0.9",
                        value,
                        None,
                        lambda v: v >= 0.9,
                        "better: "
                        + (
                            "reads"
                            if messages and reads and reads["ops_s"] > messages["ops_s"]
                            else "messages"
                        ),
                    )
                )
    return out

"""A recording as the recorder writes it, from samples, without a bus."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sonde.core import run_folder, seal
from sonde.core.layout import SealedFile
from sonde.power.recording.run_record import Recorder
from sonde.power.recording.schema import NAME
from sonde.power.recording.sealing import SCHEMA
from sonde.power.stack.telemetry import ClusterSample, JobSample, NodeSample

S = 1_000_000_000


def steady(
    seconds: int = 20, caps: Sequence[float] = (250.0, 250.0), budget_w: float = 600.0, begin_ns: int = 0
):
    """Two nodes at their caps under one manager, a report a second."""
    out: list[NodeSample | ClusterSample | JobSample] = []
    for k in range(seconds):
        at = begin_ns + k * S
        for n, cap in enumerate(caps):
            out.append(
                NodeSample(
                    f"n{n + 1}", at, 1.0, "simulated", 0.8 * cap, 0.8 * cap * k, cap, cap, 2.0, True, 1, "m1"
                )
            )
        out.append(report(at, budget_w=budget_w, committed_w=sum(caps)))
        out.append(
            JobSample("17", at, "ada", "lbm", ("n1",), 0.8 * caps[0], 0.8 * caps[0] * k, state="running")
        )
    return out


def report(at_ns: int, **more) -> ClusterSample:
    told = {
        "manager": "m1",
        "epoch": 1,
        "state": "active",
        "policy": "fair",
        "period_s": 1.0,
        "lease_s": 3.0,
        "budget_w": 600.0,
        "safe_w": 200.0,
        "committed_w": 500.0,
        "nodes": 2,
        "heard": 2,
        "leased": 2,
    }
    return ClusterSample("demo", at_ns, **{**told, **more})


def recorded(folder: Path, samples, events=(), nodes=("n1", "n2")) -> SealedFile:
    """Sealed as `sonde power run` seals it. events: (who, what), seen at the end."""
    run_dir = folder / "a.run"
    run_folder.start(
        run_dir,
        room="power",
        schema=NAME,
        attrs={"seed": 0},
        plan={"nodes": list(nodes), "cluster": "demo", "kind": "run"},
    )
    recorder = Recorder(run_dir / "telemetry.blk", "demo")
    recorder.began_ns = min((one.at_ns for one in samples), default=0)
    traffic = {"Monitor_report_node_telemetry": (0, 0)}
    recorder.add([], traffic)
    recorder.add(samples, {"Monitor_report_node_telemetry": (len(samples), 100 * len(samples))})
    for who, what in events:
        recorder.event(who, what)
    recorder.close()
    (file,) = seal.seal(run_dir, folder / "a.nc", SCHEMA, attrs={"stop_reason": "budget"})
    return file

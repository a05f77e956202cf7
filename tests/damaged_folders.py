"""Run folders as a stranger may have changed them: run.json value by value, and the files next to it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from damaged_datasets import TEXT, helper
from sonde.core import run_folder

HUGE = 10**15
WORDS: dict[str, Any] = {
    "nothing": None,
    "text": TEXT,
    "way_out": "../../elsewhere",
    "empty": "",
    "zero": 0,
    "negative": -3,
    "huge": HUGE,
    "share": 0.5,
    "yes": True,
    "list": [],
    "nothings": [None],
    "texts": [TEXT, "../../elsewhere"],
    "numbers": [HUGE, -1],
    "object": {},
    "deep": [[[[[[{"a": [None]}]]]]]],
}


def net(folder: Path) -> Path:
    from sonde import _core

    made = helper("net", "net_blocks")
    plan = made.plan()
    run = folder / "net.run"
    attrs = {"stop_reason": "converged", "seed": 1}
    run_folder.start(run, room="net", schema="net/1", attrs=attrs, plan=plan)
    for rank in range(int(plan["ranks"])):
        dtype = made.record_dtype(int(plan["epoch_length"]))
        fields = [[name, dtype[name].base.str, list(dtype[name].shape)] for name in dtype.names]
        head = {"fields": fields, "schema": "net/1", "rank": rank, "host": "n1", "ranks": plan["ranks"]}
        head |= {"sizes": list(plan["sizes"]), "modes": list(plan["modes"])}
        writer = _core.BlockWriter(str(run / f"rank-{rank:05d}.blk"), json.dumps(head), dtype.itemsize, 64)
        writer.flush()
        writer.close()
    return run


def noise_source(folder: Path) -> Path:
    made = helper("noise", "source_blocks")
    run = folder / "noise_source.run"
    plan = {"kind": "source", "hosts": ["n1"]}
    run_folder.start(
        run, room="noise", schema="noise/1", attrs={"stop_reason": "budget", "seed": 1}, plan=plan
    )
    made.write(run / "source-here.blk", made.bursts(5))
    return run


def noise_host(folder: Path) -> Path:
    made = helper("noise", "host_blocks")
    run = folder / "noise_host.run"
    plan = {"kind": "host", "cpus": [0]}
    attrs = {"stop_reason": "budget", "seed": 1, "processes": "[]"}
    run_folder.start(run, room="noise", schema="noise/1", attrs=attrs, plan=plan)
    made.cpu_files(run, 0, 4)
    return run


def io(folder: Path) -> Path:
    made = helper("io", "traces")
    run = made.run(folder / "io.run")
    made.add(run, [made.call(0, 1, 2)])
    return run


def store(folder: Path) -> Path:
    from sonde.store.plan import Case, Plan

    made = helper("store", "bench_runs")
    plan = Plan(made.variants("tcp", "raw"), (Case("object", "write", 4096),))
    run = folder / "store.run"
    attrs = {"stop_reason": "converged", "seed": 1, **plan.labels()}
    run_folder.start(run, room="store", schema="store/1", attrs=attrs, plan=plan.document())
    made.write(run / "rank-00000.blk", plan, made.made(plan, lambda v, c, e: 1e-5, 2))
    return run


def bus(folder: Path) -> Path:
    whole, made = helper("bus", "whole_run"), helper("bus", "probe_runs")
    plan = made.planned(whole.CASES[:2], whole.CYCLONE)
    run = folder / "bus.run"
    attrs = {"stop_reason": "converged", "seed": 1, **plan.labels()}
    run_folder.start(run, room="bus", schema="bus/1", attrs=attrs, plan=plan.document())
    made.write(run / "rank-00000.blk", plan, made.made(plan, whole.level, 2))
    return run


def power(folder: Path) -> Path:
    from sonde.power.recording.run_record import Recorder

    made = helper("power", "recordings")
    run = folder / "power.run"
    plan = {"nodes": ["n1", "n2"], "cluster": "demo", "kind": "run"}
    run_folder.start(
        run, room="power", schema="power/1", attrs={"stop_reason": "budget", "seed": 0}, plan=plan
    )
    recorder = Recorder(run / "telemetry.blk", "demo")
    recorder.add(made.steady(3), {})
    recorder.close()
    return run


MAKERS: dict[str, Callable[[Path], Path]] = {
    one.__name__: one for one in (net, noise_source, noise_host, io, store, bus, power)
}

Path_ = tuple[str | int, ...]


def places(value: Any, at: Path_ = (), depth: int = 4) -> Iterator[Path_]:
    """The places in a document where a value can be replaced."""
    if at:
        yield at
    if depth:
        inner = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for key, one in list(inner)[:12]:
            yield from places(one, (*at, key), depth - 1)


def reworded(run: Path, copy: Path, at: Path_, word: str) -> Path:
    """A copy whose run.json is different in one place; word "drop" removes the place."""
    shutil.copytree(run, copy, symlinks=True)
    document = json.loads((run / "run.json").read_text())
    node = document
    for key in at[:-1]:
        node = node[key]
    if word == "drop":
        del node[at[-1]]
    else:
        node[at[-1]] = WORDS[word]
    (copy / "run.json").write_text(json.dumps(document))
    return copy


def _away(path: Path) -> None:
    path.unlink()


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _emptied(path: Path) -> None:
    os.truncate(path, 0)


def _rubbish(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 16)


def _deep(path: Path) -> None:
    path.write_bytes(b"[" * 100_000)


def _longer(path: Path) -> None:
    os.truncate(path, 1 << 40)  # without blocks: it costs an attacker nothing


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def _circle(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


FILE_DAMAGES: dict[str, Callable[[Path], None]] = {
    one.__name__.strip("_"): one
    for one in (_away, _cut, _emptied, _rubbish, _deep, _longer, _pipe, _folder, _dangling, _circle, _endless)
}
SEALED = {
    "no_list": {"datasets": "a.nc"},
    "none": {"datasets": []},
    "numbers": {"datasets": [1]},
    "zero_byte": {"datasets": ["a\0.nc"]},
    "folder": {"datasets": ["."]},
    "null": None,
}
"""Possible notes of a sealed run, by name."""

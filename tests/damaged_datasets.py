"""Datasets of each room as a stranger may have changed them: what can be damaged, and how.

`MAKERS` writes a valid one of each kind; `targets` lists its contents; `damages` the possible damages of one of these.
A damaged copy has the same units and long names, so only the change itself is a sign of damage.
"""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np

import io_traces
import noise_runs
import studies
from sonde.core import dataset_file, run_folder, seal

UNIT = Path(__file__).parent / "unit"
MARKUP = "</script><script>alert(1)</script>'\"><img src=x onerror=alert(1)>"
ORDERS = "\x1b]0;root@login\x07\x1b[31m\u202egnp\u2028\u2029\r\n\x9b1m"
TEXT = MARKUP + ORDERS
"""Obeyed by a browser, by a script's parser and by a terminal, if either is given it as it is."""


def helper(room: str, name: str) -> Any:
    """A module that the unit tests of a room share."""
    folder = str(UNIT / room)
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)


def net(folder: Path) -> Path:
    from sonde.net.analyse import analyse
    from sonde.net.schema import RAW
    from sonde.net.synthetic import Network

    raw = Network(ranks=4, sizes=(8, 1024)).raw(20, 5, seed=1)
    for name, what in RAW.items():
        if what.required and name not in raw:
            raw[name] = (what.dims, np.zeros(4, what.dtype), what.attrs())
    attrs = {
        "schema": "net/1",
        "mode": "one_to_one",
        "stop_reason": "converged",
        "epoch_length": 5,
        "seed": 1,
    }
    return dataset_file.write_dataset(folder / "net.nc", raw, analyse(raw), attrs)


def noise_run(folder: Path) -> Path:
    from sonde.noise.detector.sealing import SCHEMA

    raw = noise_runs.run([0.01, 0.02], pairs=6)
    for name in ("rank", "block"):
        raw[name].attrs = {"units": "1", "long_name": name}
    attrs = {"schema": "noise/1", "hostlist": "n000", "stop_reason": "converged", **raw.attrs}
    return dataset_file.write_dataset(folder / "noise_run.nc", raw, SCHEMA.analyse(raw), attrs)


def noise_source(folder: Path) -> Path:
    from sonde.noise.kinds import SCHEMA

    made = helper("noise", "source_blocks")
    run = folder / "noise_source.run"
    run_folder.start(
        run, room="noise", schema="noise/1", attrs={"seed": 1}, plan={"kind": "source", "hosts": ["n1"]}
    )
    made.write(run / "source-here.blk", made.bursts(10))
    return seal.seal(run, folder / "noise_source.nc", SCHEMA, attrs={"stop_reason": "budget"})[0].path


def noise_host(folder: Path) -> Path:
    from sonde.noise.kinds import SCHEMA

    made = helper("noise", "host_blocks")
    run = folder / "noise_host.run"
    run_folder.start(
        run, room="noise", schema="noise/1", attrs={"seed": 1}, plan={"kind": "host", "cpus": [0, 3]}
    )
    made.cpu_files(run, 3, 7)
    made.cpu_files(run, 0, 4)
    attrs = {"stop_reason": "budget", "processes": "[]"}
    return seal.seal(run, folder / "noise_host.nc", SCHEMA, attrs=attrs)[0].path


def io_trace(folder: Path) -> Path:
    from sonde.io.trace.analyse import analyse

    raw = io_traces.collective(2, 2)
    raw = io_traces.with_servers(raw, ("s1", {"WRITE": [10, 1e-3, 1e-4, 1e-2]}))
    attrs = {"schema": "io/1", "kind": "trace", "stop_reason": "ended", "seed": 0}
    return dataset_file.write_dataset(folder / "io_trace.nc", raw, analyse(raw), attrs)


def io_study(folder: Path) -> Path:
    (folder / "study").mkdir()
    path = Path(shutil.move(studies.two_stacks(folder / "study", rounds=2), folder / "io_study.nc"))
    with netCDF4.Dataset(path, "a") as root:
        root.setncattr("seed", np.int32(1))
    return path


def store(folder: Path) -> Path:
    from sonde.store.plan import Case, Plan

    made = helper("store", "bench_runs")
    plan = Plan(made.variants("tcp", "raw"), (Case("object", "write", 4096),))
    return made.sealed(folder, plan, made.made(plan, lambda v, c, e: 1e-5 * (v + 1), 4)).path


def bus(folder: Path) -> Path:
    whole = helper("bus", "whole_run")
    cases = [case for k, case in enumerate(whole.CASES) if k % 3 == 0]
    plan = helper("bus", "probe_runs").planned(cases, whole.CYCLONE, whole.FAST, whole.RAW)
    return whole.dataset(folder, plan=plan)


def power(folder: Path) -> Path:
    made = helper("power", "recordings")
    (folder / "power.toml").write_text(
        'cluster = "demo"\n[budget]\npower_limit = "1kW"\n'
        '[[nodes]]\nhosts = "n[1-2]"\nmin = "100W"\nmax = "400W"\nsafe = "150W"\n'
    )
    return Path(
        shutil.move(made.recorded(folder, made.steady(6), [("n1", "joined")]).path, folder / "power.nc")
    )


MAKERS: dict[str, Callable[[Path], Path]] = {
    one.__name__: one
    for one in (net, noise_run, noise_source, noise_host, io_trace, io_study, store, bus, power)
}


@dataclass(frozen=True)
class Target:
    """A part of a dataset. kind: variable, dim, attribute, group."""

    kind: str
    group: str
    name: str
    variable: str = ""  # for an attribute: its variable


def targets(path: Path) -> list[Target]:
    """All parts of a dataset."""
    found = []
    with netCDF4.Dataset(path) as root:
        found += [Target("attribute", "/", name) for name in root.ncattrs()]
        for group in root.groups.values():
            found.append(Target("group", "/", group.name))
            found += [Target("attribute", group.name, name) for name in group.ncattrs()]
            found += [Target("dim", group.name, name) for name in group.dimensions]
            for variable in group.variables.values():
                found.append(Target("variable", group.name, variable.name))
                found += [
                    Target("attribute", group.name, name, variable.name)
                    for name in variable.ncattrs()
                    if name not in ("_FillValue", "long_name")
                ]
    return found


ATTRIBUTE_VALUES: dict[str, Any] = {
    "text": TEXT,
    "empty": "",
    "nan": np.nan,
    "inf": np.inf,
    "negative": np.int32(-7),
    "huge": np.int64(2**62),
    "number": 1.5,
    "list": np.arange(3, dtype=np.int32),
    "texts": [TEXT, "b"],
    "json": '{"a": [1, {"b": null}]}',
}
VALUES: dict[str, Any] = {
    "nan": np.nan,
    "inf": np.inf,
    "negative": -7,
    "zero": 0,
    "huge": 2**62,
    "tiny": 5e-324,
    "big": 1.7e308,
}
SHAPES = (
    "text",
    "texts",
    "numbers",
    "integers",
    "scalar",
    "turned",
    "flat",
    "more",
    "none",
    "long",
    "odd",
    "fill",
)


def damages(target: Target) -> tuple[str, ...]:
    """Possible damages, by name."""
    match target.kind:
        case "attribute":
            return ("drop", *ATTRIBUTE_VALUES)
        case "variable":
            return ("drop", *VALUES, "mixed", *SHAPES)
        case "dim":
            return ("rename", "coordinate")
    return ("rename",)


class Skip(Exception):
    """This damage changes nothing here."""


def damage(source: Path, copy: Path, target: Target, how: str) -> Path:
    """Writes a damaged copy.

    Raises
    ------
    Skip  the damage changes nothing here, or the library refuses to write it.
    """
    shutil.copyfile(source, copy)
    with netCDF4.Dataset(copy, "a") as root:
        group = root if target.group == "/" else root[target.group]
        try:
            if target.kind == "group":
                root.renameGroup(target.name, f"{target.name}_")
            elif target.kind == "dim":
                _dim(group, target.name, how)
            elif target.kind == "attribute":
                node = group[target.variable] if target.variable else group
                node.delncattr(target.name)
                if how != "drop":
                    node.setncattr(target.name, ATTRIBUTE_VALUES[how])
            else:
                _variable(group, target.name, how)
        except (RuntimeError, ValueError, TypeError, OverflowError) as error:
            raise Skip from error
    return copy


def _dim(group: Any, name: str, how: str) -> None:
    if how == "rename":
        group.renameDimension(name, f"{name}_")
        return
    if name in group.variables:
        raise Skip
    made = group.createVariable(name, str, (name,))
    for k in range(len(group.dimensions[name])):
        made[k] = TEXT


def _variable(group: Any, name: str, how: str) -> None:
    old = group.variables[name]
    if how in VALUES or how == "mixed":
        if old.dtype is str:
            raise Skip
        _values(old, how)
        return
    attrs = {key: old.getncattr(key) for key in old.ncattrs() if key != "_FillValue"}
    dims, dtype, values = old.dimensions, old.dtype, old[...]
    group.renameVariable(name, f"{name}_")
    if how == "drop":
        return
    if (how in ("turned", "flat") and len(dims) < 2) or (how == "scalar" and not dims):
        raise Skip
    shape = np.shape(values)
    new: Any = values
    match how:
        case "text" | "texts":
            dtype, new = str, np.full(shape, TEXT if how == "text" else "", object)
        case "numbers":
            dtype, new = np.dtype("f8"), np.full(shape, 0.5)
        case "integers":
            dtype, new = np.dtype("i4"), np.full(shape, 3)
        case "scalar":
            dims, new = (), np.asarray(values).ravel()[:1].reshape(()) if np.size(values) else 0
        case "turned":
            dims, new = dims[::-1], np.transpose(values)
        case "flat":
            dims, new = dims[:1], np.asarray(values).reshape(shape[0], -1)[:, 0]
        case "more":
            dims, new = (*dims, "more_"), np.asarray(values)[..., None]
            group.createDimension("more_", 1)
        case "none" | "long":
            length = 0 if how == "none" else 100
            group.createDimension("other_", length)
            dims = ("other_", *dims[1:])
            new = np.resize(np.asarray(values), (length, *shape[1:]))
        case "odd":
            kind = group.createVLType(np.int32, f"odd_{name}")
            made = group.createVariable(name, kind, dims)
            made.setncatts(attrs)
            return
        case "fill":
            new = None
    made = group.createVariable(name, dtype, dims)
    made.setncatts(attrs)
    if new is not None and np.size(new):
        made[...] = new


def _values(variable: Any, how: str) -> None:
    kind, size = variable.dtype.kind, variable.size
    variable.set_auto_maskandscale(False)
    if not size:
        raise Skip
    if how == "mixed":  # one value only, among unchanged ones
        new = np.asarray(variable[...]).copy()
        new.reshape(-1)[-1] = np.nan if kind == "f" else np.iinfo(new.dtype).max
        variable[...] = new
        return
    value = VALUES[how]
    if kind != "f":
        if not np.isfinite(value) or how in ("tiny", "big"):
            raise Skip
        limits = np.iinfo(variable.dtype)
        value = max(limits.min, min(limits.max, int(value)))
    variable[...] = np.full(variable.shape, value, variable.dtype)


def commands(kind: str, path: Path, other: Path) -> Iterator[tuple[str, ...]]:
    """Command lines that read a dataset of a kind. other: a valid one of the same kind."""
    room = kind.partition("_")[0]
    a, b = str(path), str(other)
    yield room, "show", a
    yield "report", a, "-o", "out.html"
    yield "data", "validate", a
    yield "data", "convert", a, "--to", "csv"
    yield "data", "convert", a, "--to", "json", "--group", "raw"
    yield "data", "diff", a, b
    if room == "net":
        yield "net", "check", a
        yield "net", "diff", b, a
        yield "net", "replay", a, "--rule", "fixed:10"
        yield "net", "model", a
        yield "net", "model", b, "--together", a
        yield "net", "spectrum", a, "--size", "8", "--window", "4", "-o", "out.nc"
        yield "net", "slice", a, "--size", "8", "-o", "out.nc"
        yield "net", "convert", a, "out", "--to", "clustbench"
    elif room == "noise":
        yield "noise", "show", a, b
    elif kind == "io_trace":
        yield "io", "check", a
        yield "io", "diff", b, a
        yield "io", "convert", a, "--to", "csv"
        yield "io", "convert", a, "--to", "perfetto", "-o", "out.json"
        yield "io", "predict", a, "--on", b
        yield "io", "join", a, b, "-o", "out.nc"
    elif room == "io":
        yield "io", "diff", b, a
    elif room in ("store", "bus"):
        yield room, "check", a, "--against", b
        yield room, "diff", b, a
        if room == "bus":
            yield "bus", "advise", "--from", a
    elif room == "power":
        yield "power", "whatif", "--history", a, "--config", str(other.with_name("power.toml"))


@cache
def parameters(path: Path) -> tuple[tuple[Target, str], ...]:
    """All damages of a dataset."""
    return tuple((target, how) for target in targets(path) for how in damages(target))

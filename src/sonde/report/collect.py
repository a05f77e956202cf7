"""From datasets to a Report: each room gives its section, the datasets describe the runs and the machines. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

import sonde
from sonde.core import dataset
from sonde.core.errors import DataError, Warning
from sonde.core.room import find_room
from sonde.core.section import Section
from sonde.core.units import format_size
from sonde.report import page, scale
from sonde.report.page import Report

if TYPE_CHECKING:
    import xarray as xr

# Root attributes that describe the run; all others, and /env, describe the machine. The order is that of the page.
RUN = {
    "command": "command",
    "created_utc": "started",
    "stop_reason": "stopped because",
    "complete": "complete",
    "mode": "mode",
    "rule": "stopping rule",
    "pairing": "pairing",
    "epoch_length": "samples per epoch",
    "value": "value",
    "elapsed_s": "took",
    "samples": "samples",
    "imported_from": "imported from",
    "imported_files": "imported files",
    "seed": "seed",
    "job_id": "job",
    "run_id": "run",
    "schema": "schema",
    "sonde_version": "Sonde",
}
# Attributes of the machine that readers look for first
FIRST = [
    "hostlist",
    "hostname",
    "cpu",
    "sockets",
    "cores",
    "threads",
    "memory_bytes",
    "mpi",
    "mpi_version",
    "transport",
    "oversubscribed",
    "crowded_kernel",
    "infiniband",
    "network",
    "kernel",
    "distribution",
    "virtualised",
    "clock_source",
    "governor",
    "load_average",
]
ACRONYMS = {
    "cpu": "CPU",
    "cpus": "CPUs",
    "mpi": "MPI",
    "numa": "NUMA",
    "os": "operating system",
    "ucx": "UCX",
    "utc": "UTC",
    "l3": "L3",
    "id": "ID",
    "tsc": "TSC",
    "gpu": "GPU",
    "ram": "RAM",
    "smt": "SMT",
    "aslr": "ASLR",
    "bios": "BIOS",
    "infiniband": "InfiniBand",
    "cpufreq": "CPUFreq",
    "hostlist": "hosts",
    "hostname": "host",
}
YES_NO = ("complete", "oversubscribed", "crowded_kernel")  # truth values that NetCDF stores as 0 and 1
ROUNDED = ("memory_b", "memory_bytes")  # nobody needs a machine's memory to the byte
STRUCTURED = 120  # JSON in an attribute is for programs from this length on, in characters
LONGEST = 600  # characters of one value; a list of all kernel flags does not help a reader


def collect(
    trees: Mapping[str, xr.DataTree],
    created_utc: str = "",
    title: str = "",
    paths: Mapping[str, str] | None = None,
) -> Report:
    """The report about some datasets, each under its name, in their order.

    paths: name -> the path of the file for commands, if it is not the name.

    Raises
    ------
    DataError  core.not_sonde; report.no_figures: this Sonde has no figures for a dataset's room.
    """
    sections = []
    warnings: dict[tuple[str, str], Warning] = {}
    told_by: dict[tuple[str, str], list[str]] = {}
    for name, tree in trees.items():
        part = section(name, tree, (paths or {}).get(name, name))
        sections.append(part)
        for warning in [*dataset.warnings_of(tree), *part.warnings]:
            key = (warning.code, warning.evidence)
            warnings.setdefault(key, warning)
            if name not in told_by.setdefault(key, []):
                told_by[key].append(name)
    machines = {name: machine(tree) for name, tree in trees.items()}
    return Report(
        title=title or _title(sections, trees),
        verdict=page.verdict_of(sections),
        sections=sections,
        machine=page.merge_machines(machines),
        runs=[run(name, tree, part) for (name, tree), part in zip(trees.items(), sections)],
        warnings=list(warnings.values()),
        told_by={key: names for key, names in told_by.items() if len(names) < len(trees)},
        method=page.merge_methods(part.method for part in sections),
        generated_by=f"Sonde {sonde.__version__}",
        created_utc=created_utc,
        measured_utc=_span(str(dataset.attrs(tree).get("created_utc", "")) for tree in trees.values()),
    )


def _span(times: Iterable[str]) -> str:
    """ "2026-11-20 21:47 UTC", or the first and the last of several times."""
    known = sorted(one for one in times if one)
    ends = list(dict.fromkeys(known[:1] + known[-1:]))
    return " to ".join(f"{one[:10]} {one[11:16]} UTC" for one in ends)


def section(name: str, tree: xr.DataTree, path: str = "") -> Section:
    """The section of the dataset's room. path: the path of the file for commands, if not `name`.

    Raises
    ------
    DataError  core.not_sonde, report.no_figures.
    """
    room, _ = dataset.schema_of(tree)
    known = find_room(room)
    if known is None:
        raise DataError(
            "report.no_figures",
            f"'{name}' belongs to the room '{room}', for which this Sonde {sonde.__version__} has no figures",
            "use a newer Sonde, or read the file with 'sonde data convert'",
        )
    part = known.section(tree, path or name)
    if (reason := str(tree.attrs.get("stop_reason"))) in ("interrupted", "killed"):
        part.verdict = f"{reason.capitalize()} before its end: {part.verdict}"
    return part


def run(name: str, tree: xr.DataTree, section: Section) -> dict[str, str]:
    """One dataset's row of "What ran": its command first, then its name and its root attributes."""
    attributes = dataset.attrs(tree)
    row = {}
    if attributes.get("command"):
        row["command"] = str(attributes["command"])
    row["dataset"] = name
    for key, label in RUN.items():
        nothing = ("none",) if key == "job_id" else ()
        if key not in ("command", *section.untold) and attributes.get(key) not in (None, "", *nothing):
            row[label] = _text(key, attributes[key])
    return row | section.runs


def machine(tree: xr.DataTree) -> dict[str, str]:
    """The machine as a dataset describes it: root attributes that do not belong to the run, then /env.

    The attributes that readers look for first come first; unknown ones are listed at the end.
    """
    description: dict[str, str] = {}
    unknown: list[str] = []

    def add(key: str, value: Any, label: str = "", unit: str = "") -> None:
        label = label or _label(key)
        if value == "unknown":
            unknown.append(label)
        elif value not in (None, "", []) and not _structured(value):
            description.setdefault(label, _text(key, value, unit))

    attributes = dataset.attrs(tree)
    known = find_room(dataset.schema_of(tree)[0])
    silent = {"kind"} | (known.silent if known is not None else frozenset())
    for key in sorted(attributes, key=lambda k: FIRST.index(k) if k in FIRST else len(FIRST)):
        if key not in RUN and key not in silent:
            add(key, attributes[key])
    if "env" in tree.children:
        env = tree.children["env"]
        for key, value in dataset.attrs(env).items():
            add(key, value)
        for name, variable in env.to_dataset(inherit=False).variables.items():
            if variable.size and variable.ndim <= 1 and name not in env.dims:
                values = list(dict.fromkeys(variable.values.ravel().tolist()))
                label = str(variable.attrs.get("long_name", ""))
                add(str(name), values, label, str(variable.attrs.get("units", "")))
    if unknown:
        description["Not known"] = ", ".join(dict.fromkeys(unknown))
    return description


def _structured(value: Any) -> bool:
    return isinstance(value, str) and len(value) > STRUCTURED and value[0] in "{["


def _title(sections: list[Section], trees: Mapping[str, xr.DataTree]) -> str:
    rooms = list(dict.fromkeys(s.room for s in sections))
    known = find_room(rooms[0]) if len(rooms) == 1 else None
    what = known.title if known is not None else rooms[0] if len(rooms) == 1 else "Survey"
    hosts = list(dict.fromkeys(str(dataset.attrs(t).get("hostlist", "")) for t in trees.values()))
    return f"{what} of {hosts[0]}" if len(hosts) == 1 and 0 < len(hosts[0]) <= 60 else what


def _label(key: str) -> str:
    """A label such as "Clock source" for "clock_source"; a unit at the end of a key goes into its value."""
    name = next((key[: -len(s)] for s in page.SUFFIXES if key.endswith(s) and len(key) > len(s)), key)
    parts = [ACRONYMS.get(w, w) for w in name.replace("-", "_").split("_") if w]
    text = " ".join(parts)
    return text[:1].upper() + text[1:]


def _text(key: str, value: Any, unit: str = "") -> str:
    if key in YES_NO:
        return "yes" if value else "no"
    unit = unit or next((u for s, u in page.SUFFIXES.items() if key.endswith(s) and len(key) > len(s)), "")
    if isinstance(value, (list, tuple)):
        text = ", ".join(scale.quantity(v, unit) for v in value)
    elif key == "seed":
        text = str(value)
    elif key in ROUNDED and isinstance(value, (int, np.integer)):
        text = format_size(int(value))
    else:
        text = scale.quantity(value, unit)
    return text if len(text) <= LONGEST else text[: LONGEST - 2].rstrip() + " …"

"""The plan of a study: benchmark × size × stack configuration × place × cluster, and the order of the runs. Pure.

A *cell* is one such combination. A *round* runs every cell without the tracer, for its rates, and the first rounds also
run it with the tracer, for its times in functions. The order is random, so that changes during the study affect all
cells alike."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isqrt
from typing import Any

import numpy as np

from sonde.core.errors import UsageError, Warning, nearest
from sonde.core.units import format_size, parse_size
from sonde.io.trace import ignored_paths
from sonde.io.trace.hints import check_hints, unread

LOADS = ("ior", "bt-io")
DEFAULT_WORKLOADS = ("ior:-a MPIIO -c -t 1m -e",)
DEFAULT_BYTES = 64 << 20
ROUNDS = 10  # default
LEAST_ROUNDS = 6  # with fewer rounds ratios have no 95 % confidence interval
TRACED_ROUNDS = LEAST_ROUNDS  # default
NO_IO = "default"  # an --io: the MPI's own choice

# Options that the study sets itself: the file, and the output of results.
_OURS = {
    "-o": "--place says where files go",
    "--file": "--place says where files go",
    "--json": "the study reads the results itself",
    "-k": "files are removed after each run",
    "--keep": "files are removed after each run",
    "-U": "hints are given with --hints",
    "--hints": "hints are given with --hints",
    "--bt-io": "bt-io: implies it",
    "--size": "sizes are given with --size",
}
_BYTES = re.compile(r"(\d+)([kmgt]?)", re.ASCII | re.IGNORECASE)
_SCALE = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_IOR_DEFAULTS = {"transfer": 256 << 10, "block": 1 << 20, "segments": 1}
_IOR_OPTIONS = {"transfer": "t", "block": "b", "segments": "s"}
# Points along a side in BT's classes. Source: NPB 3.4, sys/setparams.c.
_CLASSES = {"S": 12, "W": 24, "A": 64, "B": 102, "C": 162}

# Rough values for the estimate before the first run: starting ranks, making a dataset of the trace, and moving bytes.
START_S, TRACE_S, RATE = 1.0, 1.2, 200 << 20


@dataclass(frozen=True)
class Workload:
    """A benchmark. kind: "ior", "bt-io" (of sonde-ioload) or "real", another program. words: its command line."""

    kind: str
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name in tables: "ior -a MPIIO -c -t 1m"."""
        return shlex.join((*((self.kind,) if self.kind in LOADS else ()), *self.words))


@dataclass(frozen=True)
class Stack:
    """The setup of the stack below the benchmark. io: Open MPI's component, or "default"."""

    io: str = NO_IO
    hints: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """ "romio321, romio_cb_write=disable" """
        hints = [f"{key}={value}" for key, value in self.hints]
        return ", ".join([*([self.io] if self.io != NO_IO or not hints else []), *hints])


@dataclass(frozen=True)
class Cell:
    """One combination. size: bytes of the file or files, None: from the workload. cluster: "" is this host."""

    workload: Workload
    size: int | None
    stack: Stack
    place: str
    cluster: str = ""

    @property
    def benchmark(self) -> str:
        """The name of the benchmark. Cells of one benchmark differ only in the stack below it."""
        return self.workload.name + ("" if self.size is None else f", {format_size(self.size, exact=True)}")


@dataclass(frozen=True)
class Step:
    """One measurement. cell: None for the limit of a place or of a cluster's network, in `limit`."""

    round: int
    cell: int | None
    traced: bool = True
    limit: tuple[str, str] = ("", "")  # place, cluster; place "": the cluster's network


@dataclass(frozen=True)
class Plan:
    """A study. traced_rounds: the number of rounds that also trace the cells. limits: also measure places and networks
    alone.

    rates_first: in the first round runs without the tracer come first, because a short budget may end before the
    others."""

    cells: tuple[Cell, ...]
    ntasks: int
    rounds: int = ROUNDS
    traced_rounds: int = TRACED_ROUNDS
    limits: bool = True
    rates_first: bool = False
    seed: int = 0
    layers: tuple[dict[str, Any], ...] = field(default=())

    def places(self) -> list[tuple[str, str]]:
        """The places of files, and clusters' networks, whose limits are measured."""
        if not self.limits:
            return []
        found = dict.fromkeys((cell.place, "") for cell in self.cells)
        found |= dict.fromkeys(("", cell.cluster) for cell in self.cells if cell.cluster)
        return list(found)

    def round(self, number: int) -> list[Step]:
        """The steps of one round, in the random order of the seed."""
        ways = (True, False) if number < self.traced_rounds else (False,)
        steps = [Step(number, k, traced) for k in range(len(self.cells)) for traced in ways]
        steps += [Step(number, None, False, limit) for limit in self.places()]
        order = np.random.default_rng([self.seed, number]).permutation(len(steps))
        drawn = [steps[k] for k in order]
        if self.rates_first and not number:
            drawn.sort(key=lambda step: step.cell is None or step.traced)
        return drawn

    def expected_s(self) -> float:
        """A rough estimate of the whole duration, before anything was measured on this machine."""
        return sum(self.round_s(number) for number in range(self.rounds))

    def round_s(self, number: int) -> float:
        """The same for one round."""
        return sum(rough_s(self, step) for step in self.round(number))

    def as_json(self) -> dict[str, Any]:
        """The part that the dataset's schema needs: a table of cells, and of layers."""
        return {
            "kind": "study",
            "layers": [*self.layers, {"name": ignored_paths.LAYER, "title": ignored_paths.TITLE}],
            "ntasks": self.ntasks,
            "cells": [
                {
                    "workload": cell.workload.name,
                    "benchmark": cell.benchmark,
                    "size": -1 if cell.size is None else cell.size,
                    "stack": cell.stack.name,
                    "io": cell.stack.io,
                    "hints": _named(cell.stack.hints) if cell.stack.hints else "",
                    "place": cell.place,
                    "cluster": cell.cluster,
                }
                for cell in self.cells
            ],
        }


def rough_s(plan: Plan, step: Step) -> float:
    """A rough duration of a step, before a similar step was measured."""
    if step.cell is None:
        return 2.0
    size = bytes_of(plan.cells[step.cell], plan.ntasks) or DEFAULT_BYTES
    return START_S + (TRACE_S if step.traced else 0.0) + 2 * size / RATE


def read_workload(text: str) -> Workload:
    """A workload from "ior:-a MPIIO -t 1m", "bt-io:--class W" or "real:ior -a MPIIO -t 1m -b {block}".

    Raises
    ------
    UsageError  io.bad_workload.
    """
    kind, colon, rest = text.partition(":")
    kind = kind.strip()
    known = (*LOADS, "real")
    if not colon or kind not in known:
        raise _bad(
            text,
            f"does not begin with a kind of workload{nearest(kind, known)}; allowed: {', '.join(known)}",
            'write it like "ior:-a MPIIO -c -t 1m", "bt-io:--class W", or "real:ior -a MPIIO -t 1m -b {block}"',
        )
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise _bad(text, f"has quotes that do not match ({error})", "quote it as a shell would") from None
    if kind == "real":
        if not words:
            raise _bad(text, "names no program", 'write it like "real:ior -a MPIIO -t 1m -b {block}"')
        return Workload(kind, tuple(words))
    for word in words:
        name = word.partition("=")[0]
        if name in _OURS:
            raise _bad(text, f"has {name}, which a study sets itself", f"leave it out: {_OURS[name]}")
    workload = Workload(kind, tuple(words))
    if kind == "ior":
        _ior_numbers(workload)  # refuses what cannot be read
    else:
        _class_of(workload)
    return workload


def _bad(text: str, why: str, hint: str) -> UsageError:
    return UsageError("io.bad_workload", f"'{text}' {why}", hint)


def read_hints(text: str) -> tuple[tuple[str, str], ...]:
    """Hints from "romio_cb_write=disable,cb_buffer_size=4194304"; "none" means no hints.

    A name mca:NAME is a parameter of Open MPI.

    Raises
    ------
    UsageError  io.bad_hints.
    """
    if text.strip() in ("none", ""):
        return ()
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name or not value or re.search(r"\s", name):
            raise UsageError(
                "io.bad_hints",
                f"'{part.strip()}' is not a hint; allowed: NAME=VALUE, separated by commas, or none",
                "write them like romio_cb_write=disable,cb_buffer_size=4194304",
            )
        if name in found:
            raise UsageError("io.bad_hints", f"'{text}' has {name} twice", "give it one value")
        found[name] = value
    return tuple(found.items())


def cells_of(
    workloads: Sequence[Workload],
    sizes: Sequence[int],
    ios: Sequence[str],
    hints: Sequence[tuple[tuple[str, str], ...]],
    places: Sequence[str],
    clusters: Sequence[str],
    ntasks: int,
) -> tuple[Cell, ...]:
    """All combinations, benchmarks outermost; the others of a benchmark are compared with its first cell.

    A benchmark that does not go through MPI-IO gets neither components nor hints, and a component gets no hints that it
    does not read: `unread_hints` reports these.

    Raises
    ------
    UsageError  io.bad_workload: a workload cannot have this size, or this size with this many ranks; io.bad_hints.
    """
    found: dict[Cell, None] = {}
    for workload in workloads:
        if workload.kind == "bt-io" and isqrt(ntasks) ** 2 != ntasks:
            least = isqrt(ntasks) ** 2
            raise UsageError(
                "io.not_square",
                f"BT-IO needs a square number of ranks, not {ntasks}",
                f"give --ntasks {least} or {(isqrt(ntasks) + 1) ** 2}",
            )
        for size in sizes or (None,):
            sized(workload, size, ntasks)  # raises an error for an impossible size
            for cluster in clusters:
                for place in places:
                    for io in ios if _through_mpi(workload) else (NO_IO,):
                        for chosen in hints if _through_mpi(workload) else ((),):
                            left_out = unread(io, dict(chosen))
                            read = tuple(one for one in chosen if one[0] not in left_out)
                            check_hints(io, dict(read), workload.kind != "real")
                            found[Cell(workload, size, Stack(io, read), place, cluster)] = None
    return tuple(found)


def unread_hints(
    workloads: Sequence[Workload], ios: Sequence[str], hints: Sequence[tuple[tuple[str, str], ...]]
) -> list[Warning]:
    """Warnings about hints that `cells_of` leaves out, because a component would not read them.

    Raises
    ------
    UsageError  io.bad_hints: hints that none of the components reads.
    """
    if not any(map(_through_mpi, workloads)):
        return []
    found = []
    for chosen in hints:
        of = {io: names for io in ios if (names := unread(io, dict(chosen)))}
        if of and all(len(names) == len(chosen) for names in of.values()) and len(of) == len(ios):
            raise UsageError(
                "io.bad_hints",
                f"{' and '.join(ios)} read{'s' * (len(ios) == 1)} none of {_named(chosen)}: nothing would "
                "differ",
                "give hints that they read, or another --io",
            )
        for io, names in of.items():
            found.append(
                Warning(
                    "io.hints_not_read",
                    f"{io} does not read {', '.join(names)}: with {_named(chosen)} it is measured with "
                    f"{_named([one for one in chosen if one[0] not in names])}",
                    f"leave {io} out of --io, or give {io} its own hints",
                )
            )
    return found


def _named(hints: Sequence[tuple[str, str]]) -> str:
    return ",".join(f"{name}={value}" for name, value in hints) or "no hints"


def _through_mpi(workload: Workload) -> bool:
    """Whether components and hints of MPI-IO can affect a workload."""
    if workload.kind == "ior":
        return (_value(workload.words, "api", "a") or "POSIX").upper() != "POSIX"
    return workload.kind == "real" or _value(workload.words, "mode", "") not in ("epio", "fortran")


def sized(workload: Workload, size: int | None, ntasks: int) -> tuple[str, ...]:
    """A workload's words for a size of its file, or of all its files together.

    Raises
    ------
    UsageError  io.bad_workload.
    """
    if size is None:
        if workload.kind == "real" and any("{" in word for word in workload.words):
            raise _bad(
                workload.name, "has {block} or {size}, and there is no --size", "give one: --size 64MiB"
            )
        return workload.words
    if workload.kind == "bt-io":
        return (*_without(workload.words, "niter", ""), "--size", str(size))
    if workload.kind == "real":
        if not any("{block}" in word or "{size}" in word for word in workload.words):
            raise _bad(
                workload.name,
                "has no {block} or {size}, so --size cannot be told to it",
                "write {block}, bytes of a rank, or {size}, bytes of all, where the program takes them; "
                "or leave --size out",
            )
        values = {"{block}": str(size // ntasks), "{size}": str(size)}
        return tuple(_filled(word, values) for word in workload.words)
    numbers = _ior_numbers(workload)
    parts = ntasks * numbers["segments"]
    step = parts * numbers["transfer"]
    if size % step or not size:
        near = max(step, round(size / step) * step)
        raise _bad(
            workload.name,
            f"cannot make a file of {format_size(size, exact=True)}: {ntasks} ranks, {numbers['segments']} segments "
            f"and transfers of {format_size(numbers['transfer'], exact=True)} make multiples of "
            f"{format_size(step, exact=True)}",
            f"give --size {format_size(near, exact=True).replace(' ', '')}, or another -t or -s",
        )
    return (*_without(workload.words, "block", "b"), "-b", str(size // parts))


def _filled(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word


def bytes_of(cell: Cell, ntasks: int) -> int | None:
    """Bytes of a cell's file or files, as far as its command line shows them."""
    if cell.size is not None:
        return cell.size
    workload = cell.workload
    if workload.kind == "ior":
        numbers = _ior_numbers(workload)
        return numbers["block"] * numbers["segments"] * ntasks
    if workload.kind == "bt-io":
        points = _CLASSES[_class_of(workload)]
        steps = int(_value(workload.words, "niter", "") or (60 if points == 12 else 200))
        return 40 * points**3 * -(-steps // int(_value(workload.words, "interval", "") or 5))
    return None


def _ior_numbers(workload: Workload) -> dict[str, int]:
    """Bytes of a transfer and of a block, and segments."""
    found = dict(_IOR_DEFAULTS)
    for name, letter in _IOR_OPTIONS.items():
        if (text := _value(workload.words, name, letter)) is not None:
            try:
                match = _BYTES.fullmatch(text)
                found[name] = int(match[1]) * _SCALE[match[2].lower()] if match else parse_size(text)
            except UsageError as error:
                raise _bad(workload.name, f"has -{letter} {text}: {error.what}", error.hint) from None
        if found[name] < 1:
            raise _bad(workload.name, f"has -{letter} {text}", "give at least 1")
    return found


def _class_of(workload: Workload) -> str:
    found = _value(workload.words, "class", "") or "S"
    if found not in _CLASSES:
        raise _bad(workload.name, f"has class {found}; allowed: {', '.join(_CLASSES)}", "give --class W")
    return found


def _value(words: Sequence[str], name: str, letter: str) -> str | None:
    """The value of an option, written -t 4k, -t4k, -t=4k, --transfer 4k or --transfer=4k; the last one counts."""
    found = None
    for _, value in _placed(words, name, letter):
        found = value
    return found


def _without(words: Sequence[str], name: str, letter: str) -> tuple[str, ...]:
    left_out = {k for places, _ in _placed(words, name, letter) for k in places}
    return tuple(word for k, word in enumerate(words) if k not in left_out)


def _placed(words: Sequence[str], name: str, letter: str) -> Iterator[tuple[tuple[int, ...], str]]:
    """The positions of an option's words, and its value, for each occurrence."""
    k = 0
    while k < len(words):
        word = words[k]
        long = word.removeprefix(f"--{name}") if word.startswith(f"--{name}") else None
        short = word[2:] if letter and word.startswith(f"-{letter}") else None
        rest = long if long is not None and (not long or long[0] == "=") else short
        if rest is None:
            k += 1
        elif rest:
            yield (k,), rest.removeprefix("=")
            k += 1
        else:
            yield (k, k + 1), words[k + 1] if k + 1 < len(words) else ""
            k += 2

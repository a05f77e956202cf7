"""Runs one program of HDF5 operations with files on disk and with files in the store, and compares their reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sonde.core.launch import libexec

RUNNER = Path(__file__).parent / "hdf5_program_runner.py"
PLUGINS = libexec().parent / "lib" / "hdf5"
CHUNKED, FILL_NEVER, ALLOC_EARLY, ALLOC_LATE = 2, 1, 1, 2  # as h5py.h5d has them
UNLIMITED = 2**64 - 1
STORED = ("storage", "status", "chunks", "chunk infos", "chunks by iteration", "raw chunks", "chunk")

Facts = dict[str, Any]
Program = list[dict[str, Any]]


@dataclass(frozen=True)
class Question:
    """One fact that differs, with all facts about the same object on disk."""

    name: str  # without the object's path
    disk: Any
    store: Any
    facts: Facts
    disk_message: str
    store_message: str
    damages: bool  # the program writes invalid chunks

    def of_object(self, name: str) -> Any:
        return self.facts.get(name)


def is_own_form(question: Question) -> bool:
    if question.name == "error":
        return question.store is None and "not supported by nbit" in question.disk_message
    return question.name in (*STORED, "filters") and question.of_object("own form") is True


def is_allocated_at_once(question: Question) -> bool:
    if (
        question.of_object("alloc time") not in (ALLOC_EARLY, ALLOC_LATE)
        or question.of_object("layout") != CHUNKED
    ):
        return False
    return question.name in STORED or (question.name == "error" and question.store == "LookupError")


def is_coordinate_of_one_unlimited_axis(question: Question) -> bool:
    space = question.of_object("space")
    if question.name not in ("chunk infos", "chunks by iteration", "raw chunks") or not isinstance(
        space, list
    ):
        return False
    limits = space[2]
    return limits.count(UNLIMITED) == 1 and limits[0] != UNLIMITED


def is_damage(question: Question) -> bool:
    failed = "filter returned failure"
    messages = question.disk_message + question.store_message
    return question.damages and question.name in ("error", "data") and failed in messages


# Known differences, by the first cell of the row in the table "What differs" of docs/reference/store-hdf5.md.
KNOWN: dict[str, Callable[[Question], bool]] = {
    "times": lambda q: q.name == "times" and (q.disk, q.store) == (1, 0),
    "order of the root group": lambda q: (
        q.name in ("file: link order", "file: attribute order") and q.disk == 0
    ),
    "allocation of chunks at once": is_allocated_at_once,
    "coordinates of chunks": is_coordinate_of_one_unlimited_axis,
    "elements of variable length, references": is_own_form,
    "fill time `never`": lambda q: q.name in ("data", *STORED) and q.of_object("fill time") == FILL_NEVER,
    "filters of a dataset without axes": lambda q: (
        q.name in ("filters", "filters available")
        and q.disk in ([], True)
        and not isinstance(q.of_object("space"), list)
    ),
    "a direct chunk of another length": lambda q: (
        q.name == "error" and q.disk is None and "without filters it must have" in q.store_message
    ),
    "a direct chunk at the end": lambda q: (
        q.name == "error" and q.disk is None and "the chunk's offset lies outside" in q.store_message
    ),
    "a damaged chunk": is_damage,
    "soft links in a circle": lambda q: "too many links" in q.disk_message,
}


@dataclass
class Difference:
    operation: int
    name: str
    disk: Any
    store: Any
    messages: tuple[Any, Any]

    def __str__(self) -> str:
        values = f"on disk {self.disk}, in the store {self.store}"
        return f"operation {self.operation}: {self.name}: {values} {self.messages}"


class Worker:
    """A process that runs programs; if a program ends it, it is started again for the next."""

    def __init__(self, folder: Path, log: Path, connector: str | None) -> None:
        self.folder, self.log = folder, log
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("HDF5_", "SONDE_STORE_"))}
        self.environment = clean
        if connector is not None:
            self.environment = clean | {"HDF5_PLUGIN_PATH": str(PLUGINS), "HDF5_VOL_CONNECTOR": connector}
        self.start()

    def start(self) -> None:
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-X", "faulthandler", RUNNER, self.folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self.environment,
            )

    def send(self, program: Program) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(program) + "\n")
        self.process.stdin.flush()

    def receive(self) -> list[Facts] | None:
        """None if the program ended the process."""
        assert self.process.stdout
        if line := self.process.stdout.readline():
            return json.loads(line)
        self.process.communicate()
        self.start()
        return None

    def end(self) -> None:
        self.process.communicate()


@dataclass
class Pair:
    """One process with its files on disk, one with them in the store."""

    folder: Path
    connector: str = "sonde embedded=memory"
    programs: int = 0
    operations: int = 0
    crashes: int = 0  # by HDF5 with files on disk: such a program compares nothing
    met: dict[str, int] = field(default_factory=dict)  # how often a known difference occurred
    on_disk: list[Facts] = field(default_factory=list)  # the report of the last program

    def __post_init__(self) -> None:
        files = self.folder / "files"
        files.mkdir()
        # One folder for both: reports contain the file's name, and the store leaves nothing on disk.
        self.disk = Worker(files, self.folder / "disk.log", None)
        self.store = Worker(files, self.folder / "store.log", self.connector)

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self.disk.end()
        self.store.end()

    def differences(self, program: Program) -> list[Difference]:
        self.disk.send(program)
        self.store.send(program)
        disk, store = self.disk.receive(), self.store.receive()
        self.programs += 1
        self.operations += len(program)
        if disk is None:
            self.crashes += 1
            return []
        if store is None:
            log = self.store.log.read_text(errors="replace")[-2000:]
            return [Difference(-1, "the process", "lives", "ended", ("", log))]
        self.on_disk = disk
        damages = any(operation.get("damaged") or operation.get("no mask") for operation in program)
        out: list[Difference] = []
        for number, (one, other) in enumerate(zip(disk, store, strict=True)):
            out += self.compare(number, one, other, damages)
            if out or one.get("error") != other.get("error"):
                break  # later differences may only follow from this one
        return out

    def compare(self, number: int, disk: Facts, store: Facts, damages: bool) -> list[Difference]:
        out = []
        for name in sorted(disk.keys() | store.keys()):
            if "# " in name or disk.get(name) == store.get(name):
                continue
            path, bar, short = name.rpartition(" | ")
            facts = {
                key.removeprefix(path + bar): fact for key, fact in disk.items() if key.startswith(path + bar)
            }
            message = f"{path}{bar}# {'message' if short == 'error' else short}"
            messages = (str(disk.get(message, "")), str(store.get(message, "")))
            question = Question(short, disk.get(name), store.get(name), facts, *messages, damages)
            for row, may_differ in KNOWN.items():
                if may_differ(question):
                    self.met[row] = self.met.get(row, 0) + 1
                    break
            else:
                out.append(Difference(number, name, disk.get(name), store.get(name), messages))
        return out

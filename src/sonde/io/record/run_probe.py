"""uprobes, through tracefs: breakpoints that the kernel sets at functions, for calls that cannot be interposed.

This module decides which functions of a file are probed, and writes the probes for the kernel and their events for
sonde-io-watch. A probe belongs to a file, so every process that runs the file hits it: tracefs has no probes for one
process.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from sonde.core.errors import EnvironmentFailure, Warning
from sonde.core.lines import kernel_lines
from sonde.io.maps.layers import NOTHING, Function, Layer, Value
from sonde.io.maps.run_elf import X86_64, Object, Program, base_name, read_object
from sonde.io.maps.run_elf import Function as Symbol
from sonde.io.maps.table import rule_names

GROUP = "sonde_io_"  # the names of our groups of probes begin with this; the mark of the process that made them follows
REGISTERS = ("%di", "%si", "%dx", "%cx", "%r8", "%r9")  # the first six arguments on x86-64
NONE = "\\0"  # a number that stands for a missing value
# Kinds of values that only the program itself can read.
UNREADABLE = (
    "mpi", "mpi_ref", "iov", "hdf5", "hdf5_attribute", "out", "length", "out_length", "counted_text",
    "mpi_status", "mpi_ref_status", "later",
)  # fmt: skip
_TYPES = {"i32": "s32", "u32": "u32", "i64": "u64"}
_SPEC_WIDTH = {"i32": ":i32", "u32": ":u32", "i64": ""}
_ENDBR64 = b"\xf3\x0f\x1e\xfa"
CALL_US = 1.6  # cost of a call, entry and end, measured


@dataclass(frozen=True)
class File:
    """A file whose functions may be probed. path : its name in the traced process; at : the name under which it is
    opened here."""

    path: Path
    at: Path


@dataclass(frozen=True)
class Probe:
    """A function of a file.

    rule : its number among the rules of the layers. attached_only : it is interposed in programs that are started.
    changed : the compiler changed the function, so its arguments are unknown. entry_only : its end is not watched
    """

    file: File
    offset: int
    symbol: str
    rule: int
    function: Function
    attached_only: bool = False
    changed: bool = False
    entry_only: bool = False


def of_files(layers: Sequence[Layer], files: Iterable[File], attached: bool) -> list[Probe]:
    """The functions that can be probed in files. attached: include functions that could also be interposed."""
    found: list[Probe] = []
    for file in files:
        known = read_object(file.at)
        if known is not None and known.machine == X86_64:
            found += of_object(layers, file, known, attached)
    return found


def of_object(layers: Sequence[Layer], file: File, known: Object, attached: bool) -> list[Probe]:
    """The functions that can be probed in a file, one probe for each address; names that come earlier in the maps win.

    Functions of libraries that a program is not linked with are also searched in the program: it may contain them.
    """
    rules = []
    for number, (_, function, library, name) in enumerate(rule_names(layers)):
        is_library = fnmatchcase(file.path.name, library)
        if is_library or (
            known.executable and not any(fnmatchcase(other, library) for other in known.needed)
        ):
            rules.append((number, function, name, is_library))
    if not rules:
        return []
    by_name: dict[str, list[tuple[Symbol, bool]]] = {}
    for one in known.functions:
        if (base := base_name(one.name)) is not None:
            by_name.setdefault(base[0], []).append((one, base[1]))
    chosen: dict[int, Probe | None] = {}
    for rule, function, glob, is_library in rules:
        names = fnmatch.filter(by_name, glob) if set(glob) & set("*?[") else [glob]
        for name in (name for name in names if name in by_name):
            others = any(not one.local for one, _ in by_name[name])
            for one, changed in by_name[name]:
                offset = known.offset(one.address)
                if offset is None or (one.local and others and not is_library):
                    continue  # a program's own function may have the name of a library function
                interposed = one.exported and is_library
                if interposed and not attached:
                    chosen[one.address] = None
                elif one.address not in chosen:
                    entry_only = known.moves_stacks or name.startswith("_Z")
                    chosen[one.address] = Probe(
                        file, offset, name, rule, function, interposed, changed, entry_only
                    )
    return [probe for probe in chosen.values() if probe is not None]


def start_of(program: Path) -> Probe:
    """A probe at a program's first instruction, which a process passes once."""
    known = read_object(program)
    assert known is not None
    with program.open("rb") as file:
        entry = int.from_bytes(file.read(32)[24:], "little")  # e_entry
    offset = known.offset(entry)
    assert offset is not None
    return Probe(
        File(program, program), offset, "_start", 0, Function(("_start",), (program.name,)), entry_only=True
    )


def unreadable(probes: Iterable[Probe]) -> list[str]:
    """Functions whose probe lacks values that their map lists: "writev (size)"."""
    found = []
    for probe in probes:
        of = probe.function
        values = {"size": of.amount, "offset": of.at, "file": of.file, "path": of.path, "moved": of.moved}
        lost = [
            name
            for name, value in values.items()
            if value.how != "none" and (probe.changed or value.how in UNREADABLE)
        ]
        if lost:
            found.append(f"{probe.symbol} ({', '.join(lost)})")
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Definition:
    """A probe as it is written into uprobe_events.

    entry, exit : the fields of their events; exit is "" if only the entry is watched. form : the form of the entry's
    event; probes of one form share an event. values : the probe's values that are fields of the entry's event
    """

    probe: Probe
    entry: str
    exit: str
    form: str
    values: Mapping[str, Value]

    @classmethod
    def of(cls, probe: Probe, function: int) -> Definition:
        """function: the probe's number."""
        of = probe.function
        common = f"stack=%sp:u64 function=\\{function}:u32"
        fields: dict[str, Value] = {}
        words, form = [common], []
        for name in ("size", "size_times", "offset", "file", "path"):
            value, fetched, kind = (NOTHING, "", "u64") if probe.changed else _fetched(name, of)
            if fetched:
                fields[name] = value
            elif name == "path":
                continue  # no text stands for a missing value
            words.append(f"{name}={fetched or NONE}:{kind}")
            form.append(kind)
        result = "" if probe.entry_only else f"{common} result=$retval:u64"
        return cls(probe, " ".join(words), result, ".".join(form), fields)

    def line(self, function: int, entry: Mapping[str, int], exit: Mapping[str, int]) -> str:
        """A line of the specification of sonde-io-watch (native/io/watch/spec.hpp).

        function : the probe's number. entry, exit : the offsets of the fields in its events; exit {} if its end is not
        watched
        """
        of, known = self.probe.function, not self.probe.changed

        def at(name: str) -> str:
            if name not in self.values:
                return "-"
            return f"@{entry[name]}{_SPEC_WIDTH[self.values[name].width]}"

        def source(name: str, value: Value) -> str:
            if not known or (value.how.startswith("result") and self.probe.entry_only):
                return "-"
            if value.how == "result":
                return "r"
            if value.how == "result_product":
                return f"r*{at(name)}"
            if value.how == "product":
                return f"{at(name)}*{at(name + '_times')}"
            return at(name)

        result = f"@{exit['result']}{_SPEC_WIDTH[of.result] if known else ''}" if exit else "-"
        words = (
            function,
            "attached" if self.probe.attached_only else "all",
            "both" if exit else "entry",
            entry["stack"],
            exit.get("stack", 0),
            result,
            of.fails if known else "never",
            source("size", of.amount),
            source("offset", of.at),
            source("file", of.file),
            at("path"),
        )
        return f"probe {' '.join(map(str, words))}"


def _fetched(name: str, of: Function) -> tuple[Value, str, str]:
    """A value, the kernel's expression that fetches it, and the type of the result: "%dx", "u64"; "" if the kernel
    cannot fetch it.

    Registers are fetched whole, and sonde-io-watch takes as much as the width gives; memory behind a pointer may be
    shorter.
    """
    if name == "size_times":
        value, place = (of.size, of.size.b) if of.size.how == "product" else (NOTHING, 0)
    else:
        value = {"size": of.amount, "offset": of.at}.get(name) or getattr(of, name)
        place = value.a
    where = REGISTERS[place] if place < len(REGISTERS) else f"$stack{place - len(REGISTERS) + 1}"
    if value.how in ("arg", "product", "result_product"):
        return value, where, "u64"
    if value.how == "ref":
        return value, f"+{value.b}({where})", _TYPES[value.width]
    if value.how == "text":
        return value, f"+0({where})", "string"
    if value.how == "constant":
        return value, f"\\{value.a}", "u64"
    return value, "", "u64"


def does_harm(release: str) -> bool:
    """Whether uprobes kill traced processes on this kernel: Linux 6.11 made the end of a watched function a system
    call, and filters (seccomp) killed for it until it was exempted."""
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", release)
    if match is None:
        return False
    version, patch = (int(match[1]), int(match[2])), int(match[3] or 0)
    return version == (6, 11) or (version == (6, 12) and patch < 14) or (version == (6, 13) and patch < 3)


class Probes:
    """Probes of this process in a tracefs: `add`, `on`, `off`; call `remove` when the instance is gone.

    The kernel takes some 50 ms to disable an event, however many probes it has, so the probes share few events.
    """

    def __init__(self, tracefs: Path, mark: str) -> None:
        self.tracefs, self.group = tracefs, GROUP + mark
        self.suffix = f"_{mark}"
        self.known: dict[int, Definition] = {}  # by number of the function
        self.entries: dict[tuple[Path, str], str] = {}  # file and form -> event
        self.exits: dict[Path, str] = {}
        self.refused: dict[str, str] = {}

    def add(self, probes: Sequence[Probe]) -> None:
        """EnvironmentFailure  io.no_uprobes: the kernel has no uprobes, or they are dangerous on it."""
        if probes and not (self.tracefs / "uprobe_events").exists():
            raise EnvironmentFailure(
                "io.no_uprobes",
                "this kernel has no uprobes (CONFIG_UPROBE_EVENTS)",
                "leave out --uprobes; --kernel traces its system calls",
            )
        if probes and does_harm(release := os.uname().release):
            raise EnvironmentFailure(
                "io.no_uprobes",
                f"on Linux {release} a probe kills services and containers under a filter of system calls "
                "(seccomp) when they reach it",
                "Linux 6.12.14, 6.13.3 and 6.14 are safe; --kernel traces system calls here",
            )
        used: set[str] = set()
        for number, probe in enumerate(probes):
            definition = Definition.of(probe, number)
            entry, exit_ = self.entry_event(definition), self.exit_event(definition)
            try:
                with _named(probe.file) as (name, descriptor):
                    where = f"{name}:{_entry(descriptor, probe.offset):#x}"
                    append(self.tracefs / "uprobe_events", f"p:{entry} {where} {definition.entry}")
                    if exit_:
                        append(self.tracefs / "uprobe_events", f"r:{exit_} {where} {definition.exit}")
            except OSError as error:
                self.refused[probe.symbol] = error.strerror or str(error)
                continue
            self.known[number] = definition
            used |= {entry, exit_}
        self.entries = {key: event for key, event in self.entries.items() if event in used}
        self.exits = {key: event for key, event in self.exits.items() if event in used}

    def entry_event(self, definition: Definition) -> str:
        """The name of the entry's event, below `events` of an instance."""
        key = (definition.probe.file.path, definition.form)
        return self.entries.setdefault(key, f"{self.group}/e{len(self.entries)}{self.suffix}")

    def exit_event(self, definition: Definition) -> str:
        """The name of the end's event; "" if only the entry is watched."""
        if not definition.exit:
            return ""
        return self.exits.setdefault(
            definition.probe.file.path, f"{self.group}/x{len(self.exits)}{self.suffix}"
        )

    def on(self, instance: Path) -> None:
        """Enable all events, those of ends first: otherwise a call whose end was missed would look as if it never
        returned."""
        for event in (*self.exits.values(), *self.entries.values()):
            try:
                (instance / "events" / event / "enable").write_text("1\n")
            except OSError as error:
                for definition in self.known.values():
                    if event in (self.entry_event(definition), self.exit_event(definition)):
                        self.refused[definition.probe.symbol] = error.strerror or str(error)

    def off(self, instance: Path) -> None:
        for event in (*self.entries.values(), *self.exits.values()):
            with suppress(OSError):
                (instance / "events" / event / "enable").write_text("0\n")

    def hits(self) -> int:
        """How often any process reached a probe, as the kernel counts."""
        found = 0
        for line in _lines(self.tracefs / "uprobe_profile"):
            match line.rsplit(None, 2):
                case [_, name, count] if name.startswith("e") and name.endswith(self.suffix):
                    found += int(count)
        return found

    def warnings(self, seen: int, lost: bool) -> list[Warning]:
        """Warnings about the probes. seen: how many hits the watcher saw; lost: it missed some."""
        found = []
        if self.refused:
            names = ", ".join(f"{symbol} ({reason})" for symbol, reason in list(self.refused.items())[:3])
            more = ", …" if len(self.refused) > 3 else ""
            found.append(
                Warning(
                    "io.probes_refused",
                    f"the kernel refused {len(self.refused)} of the probes: {names}{more}",
                    "calls of these functions are not in the trace",
                )
            )
        if lost_values := unreadable(definition.probe for definition in self.known.values()):
            shown = ", ".join(lost_values[:3]) + (", …" if len(lost_values) > 3 else "")
            found.append(
                Warning(
                    "io.values_unknown",
                    f"values of {len(lost_values)} functions under uprobes are unknown, because only the "
                    f"program itself could read them: {shown}",
                    "their calls and times are right; if interposed, they have their sizes, too",
                )
            )
        hits = self.hits()
        if hits > seen and not lost:
            found.append(
                Warning(
                    "io.probes_hit_elsewhere",
                    f"the kernel counted {hits} hits of the probes, but only {seen} belong to the traced "
                    f"processes: others ran the same files, and each of their calls took some {CALL_US:g} "
                    "us longer, or hits were missed",
                    "choose fewer --layers: every program calls the functions of the C library (posix)",
                )
            )
        return found


def groups(tracefs: Path) -> list[str]:
    """Groups of probes that any Sonde made."""
    found = (re.match(rf"[pr]:({GROUP}\w+)/", line) for line in _lines(tracefs / "uprobe_events"))
    return list(dict.fromkeys(match[1] for match in found if match))


def remove(tracefs: Path, group: str) -> None:
    """Remove a group's probes. Probes that are enabled or in use by another program stay."""
    for line in _lines(tracefs / "uprobe_events"):
        if match := re.match(rf"[pr]:({group}/\w+) ", line):
            with suppress(OSError):
                append(tracefs / "uprobe_events", f"-:{match[1]}")


def _lines(path: Path) -> list[str]:
    try:
        return kernel_lines(path)
    except OSError:
        return []


def append(path: Path, line: str) -> None:
    """Append a line to a file of tracefs. Python's append mode fails there, because such a file has no end."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


@contextmanager
def _named(file: File) -> Iterator[tuple[str, int]]:
    """A file name that the kernel accepts, valid inside the context, and a descriptor of the file. The name is the
    file's own, or, if that has blanks or means another file here, the name of the descriptor."""
    descriptor = os.open(file.at, os.O_RDONLY | os.O_CLOEXEC)
    try:
        name = f"/proc/{os.getpid()}/fd/{descriptor}"
        with suppress(OSError):
            if os.path.samestat(os.stat(file.path), os.fstat(descriptor)) and not re.search(
                r"[\s#;:\\]", str(file.path)
            ):
                name = str(file.path)
        yield name, descriptor
    finally:
        os.close(descriptor)


def _entry(descriptor: int, offset: int) -> int:
    """The offset behind a function's endbr64, which does nothing: the kernel can emulate the usual next instruction, a
    push. Other instructions the processor must single-step, which takes ten times as long in a virtual machine."""
    return offset + (len(_ENDBR64) if os.pread(descriptor, len(_ENDBR64), offset) == _ENDBR64 else 0)


def different(files: Iterable[File]) -> dict[tuple[int, int], File]:
    """Files by device and inode number: containers may have several files of one name."""
    found: dict[tuple[int, int], File] = {}
    for file in files:
        with suppress(OSError):
            status = os.stat(file.at)
            found.setdefault((status.st_dev, status.st_ino), file)
    return found


def others_running(files: Iterable[tuple[int, int]], but: Iterable[int]) -> int:
    """The number of processes that have one of the files mapped, without the traced ones and this one."""
    wanted, left_out = set(files), {*but, os.getpid()}
    return sum(
        bool(wanted & set(mapped(int(entry.name))))
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and int(entry.name) not in left_out
    )


def mapped(process: int) -> dict[tuple[int, int], tuple[Path, Path]]:
    """Files with code that a process has mapped: device and inode number -> the process's name for it, and where to
    open it."""
    return mapped_in(_lines(Path(f"/proc/{process}/maps")), process)


_MAPPED = re.compile(
    r"([0-9a-f]{1,16})-([0-9a-f]{1,16}) ..x. [0-9a-f]{1,16} ([0-9a-f]{1,4}):([0-9a-f]{1,5}) ([0-9]{1,20}) +(/.*)",
    re.ASCII | re.DOTALL,
)


def mapped_in(lines: Iterable[str], process: int) -> dict[tuple[int, int], tuple[Path, Path]]:
    """The files that the lines of a process's maps list. Source: proc_pid_maps(5)."""
    found: dict[tuple[int, int], tuple[Path, Path]] = {}
    for line in lines:
        if (match := _MAPPED.fullmatch(line)) is None:
            continue
        key = (os.makedev(int(match[3], 16), int(match[4], 16)), int(match[5]))
        # Names in map_files have no leading zeros; maps has them for a program at a fixed address (Debian's python3).
        begin, end = int(match[1], 16), int(match[2], 16)
        at = Path(f"/proc/{process}/map_files/{begin:x}-{end:x}")
        found.setdefault(key, (Path(match[6].removesuffix(" (deleted)")), at))
    return found


def files_of(process: int) -> list[File]:
    """Files with code that a process has mapped, under the process's own names: of its container, or replaced since."""
    found = []
    for path, at in mapped(process).values():
        try:
            os.stat(at)
        except OSError as error:
            if error.errno == errno.ENOENT:
                continue  # it was unmapped meanwhile
            at = Path(f"/proc/{process}/root") / path.relative_to("/")  # the kernel shows map_files to few
        found.append(File(path, at))
    return found


def each_thread(process: int) -> Iterator[int]:
    with suppress(OSError):
        for entry in Path(f"/proc/{process}/task").iterdir():
            yield int(entry.name)


def files_of_command(command: Sequence[str], layers: Sequence[Layer], starters: Sequence[str]) -> list[File]:
    """Files whose functions a command may run: its programs, the libraries that they are linked with, and libraries of
    this machine that a map lists, plug-ins included."""
    from sonde.io.maps import run_exports

    programs: dict[Path, None] = {}
    for word in command:
        found = shutil.which(word)
        if found is None or Path(found).name in starters:
            continue
        path = Path(found).resolve()
        if (kind := Program.read(path).kind) == "script":
            path = _interpreter(path)
            kind = Program.read(path).kind
        if kind == "elf":
            programs.setdefault(path)
    files = dict.fromkeys(
        library.resolve() for program in programs for library in run_exports.of_program(program)
    )
    folders = tuple(dict.fromkeys(path.parent for path in files))
    files.update(dict.fromkeys(run_exports.of_machine(layers, folders)))
    return [File(path, path) for path in files]


def _interpreter(script: Path) -> Path:
    """The interpreter that a script's first line names."""
    with suppress(OSError):
        with script.open("rb") as file:
            words = file.readline(4096)[2:].decode("utf-8", "replace").split()
        if words and Path(words[0]).name == "env":
            words = [shutil.which(words[-1]) or ""]
        return Path(words[0]).resolve() if words else script
    return script

"""Complete the files that a traced program left: write the checksums of its block files, and append what was in mapped
memory.

The tracer computes no checksums, appends only full blocks, and runs no code when its program is killed
(native/io/record.hpp explains why). Closing computes the checksums, writes each thread's last block, and adds the calls
that were under way. It can be interrupted and repeated at any moment."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from sonde.core.blocks import BLOCK_MAGIC, FILE_MAGIC
from sonde.core.disk import cannot_write
from sonde.core.errors import EnvironmentFailure, Warning, typed
from sonde.core.lines import decoded
from sonde.core.owned_files import Folder
from sonde.core.units import format_size
from sonde.io.trace import servers
from sonde.io.trace.events import CALL_NUMBERS, CLOCK, RECORD, UNFINISHED, UNKNOWN, folded

TAIL_BYTES = 49152
HEADER_BYTES = 8192  # room for the header of a block file, native/io/trace/process.hpp
BLOCK_BYTES = 16384
BLOCK_RECORDS = 409
_MOST_FRAMES = 128
_FRAME_RECORDED = 128
_BLOCK_HEAD = struct.Struct("<4sIIIQ")
# ThreadFile of native/io/record.hpp up to its frames.
_TAIL = struct.Struct("<8sIIIIIIQQQIIQQQ")
_FRAME = np.dtype(
    [
        ("rbx", "<u8"), ("back", "<u8"), ("sp", "<u8"), ("begin", "<u8"), ("size", "<u8"), ("offset", "<u8"),
        ("handle", "<u8"), ("via", "<u8"), ("path", "<u8"), ("function", "<u2"), ("depth", "u1"), ("flags", "u1"),
        ("reserved", "<u4"), ("file", "<u8"), ("called", "<u8"),
    ]
)  # fmt: skip
_FRAMES_AT, _BLOCKS_AT = 4096, TAIL_BYTES - 2 * BLOCK_BYTES
_COUNT = re.compile(r"[0-9]{1,9}")
# Shared and ThreadPlace of native/io/trace/process.hpp, Why and Unseen of unseen.hpp.
_KINDS = 8
_SHARED = struct.Struct(f"<8sQQ{3 * _KINDS}Q")
ACCOUNT_BYTES, PLACE_BYTES, PLACES = 4096, 65536, 16
_PLACE = struct.Struct("<IIII1008s")
_PLACE_HEADER_AT, _PLACE_FILE_AT = 4096, PLACE_BYTES - TAIL_BYTES
_PROCESS = re.compile(r"[^/]+-[0-9]{1,10}-[0-9a-f]{1,16}")

_GIVEN = ".descriptors"
_MORE_ROOM = "raise --max-trace, or trace fewer layers with --layers"
# Why calls are missing in the trace, and a hint, in the order of Why.
_WHYS = (
    ("the trace was at its limit", _MORE_ROOM),
    (
        "a filter of system calls (seccomp) of the program does not let the tracer write",
        "as root, --kernel traces its system calls",
    ),
    (
        "the program may not write files as large as the trace (ulimit -f)",
        "raise that limit: 'ulimit -f' shows it in units of 1 KiB or 512 B",
    ),
    (
        "the program had no file descriptor left (ulimit -n)",
        "raise that limit, or have fewer files open at once",
    ),
    ("there was no room on the disk", "free space where the run's folder is, or write elsewhere: --output"),
    (
        "the program had no right to write to the run's folder, for example after it became another user, "
        "or had no memory left",
        "choose a folder that it may write to: --output; 'ulimit -v' shows how much memory it may have",
    ),
    (
        "the program has several threads and closed standard streams, whose numbers the trace's files "
        "would get",
        "start it with these streams open: </dev/null >/dev/null 2>&1",
    ),
)
# I/O that the tracer cannot see, in the order of Unseen: docs/explain/io-engines.md has the table.
_UNSEEN = (
    (
        "loaded libraries into their own namespace (dlmopen), whose calls are not traced",
        "load them with dlopen, or as root add --kernel, which traces their system calls",
    ),
    (
        "passed requests to the kernel through io_uring, which needs no call",
        "choose another engine in the program if it has one; --kernel traces io_uring_enter, not the "
        "requests",
    ),
    (
        "did I/O with syscall(2), which bypasses the C library's functions and is not traced",
        "as root, --kernel traces all system calls",
    ),
    (
        "passed requests to the kernel with io_submit, which is not traced",
        "as root, --kernel traces io_submit, not the requests",
    ),
    (
        "loaded libraries later whose functions could not be recorded, and are not traced",
        "see the reason in the other warnings",
    ),
    (
        "gave up the processor's clock, through strict mode of seccomp or PR_SET_TSC; later calls are not "
        "traced",
        "as root, --kernel traces its system calls",
    ),
)


def account(folder: Path, host: str) -> None:
    """Create the account of a node's processes, and places for threads that cannot have their own files: the file size
    limit of a program may be smaller than they need. If there is no room, the tracer creates what it can."""
    with (
        suppress(OSError),
        Folder(folder) as run,
        os.fdopen(run.make(f"{host.replace('/', '_')}.shared", 0o600), "wb") as file,
    ):
        os.posix_fallocate(file.fileno(), 0, ACCOUNT_BYTES + PLACES * PLACE_BYTES)


def unpack(folder: Path) -> None:
    """Create files from the places that threads were given instead of their own files. Errors of `close`."""
    with Folder(folder) as run:
        _unpack(run)


def _unpack(run: Folder) -> None:
    for name in _named(run, ".shared"):
        text = run.read(name)
        for at in range(ACCOUNT_BYTES, len(text) - PLACE_BYTES + 1, PLACE_BYTES):
            in_use, number, header, _, name_bytes = _PLACE.unpack_from(text, at)
            process = name_bytes.split(b"\0")[0].decode("utf-8", "replace")
            if in_use != 1 or not _PROCESS.fullmatch(process) or header > _PLACE_FILE_AT - _PLACE_HEADER_AT:
                continue
            _refuse_unless_own(run)
            tail, path = f"{process}-{number}.tail", f"{process}-{number}.blk"
            tail_bytes = bytearray(text[at + _PLACE_FILE_AT : at + PLACE_BYTES])
            fields = list(_TAIL.unpack_from(tail_bytes))
            if fields[-1] == 0 or run.facts(path) is None:  # the thread never got a block file
                fields[-1] = header
                _TAIL.pack_into(tail_bytes, 0, *fields)
                begin = at + _PLACE_HEADER_AT
                with os.fdopen(run.change_or_make(path, 0o600), "r+b") as file:
                    file.truncate()
                    file.write(text[begin : begin + header])
            if run.facts(tail) is None:
                with os.fdopen(run.make(tail, 0o600), "wb") as file:
                    file.write(tail_bytes)
            with os.fdopen(run.change(name), "r+b", buffering=0) as file:  # the place is done
                os.pwrite(file.fileno(), bytes(4), at)


def _refuse_unless_own(run: Folder) -> None:
    own = f"own-{run.path.name}"
    hint = f"{typed('cp', '-r', run.path, own)}; {typed('sonde', 'data', 'recover', own)}"
    run.refuse_unless_own("finish what was traced", hint)


def close(folder: Path, ended: bool = True) -> tuple[dict[str, Any], list[Warning]]:
    """Complete the block files in a run's folder. Returns the additions to the run's plan, and warnings.

    The plan gains `servers`, the counters of a file system's servers, if requested (`sonde.io.trace.servers`);
    `tables`, lists of (number, rule, symbol, library); `table_of`, the table of each process, by the prefix of its
    files; and `given`, by the same prefix, [(descriptor, path)] of each program at its start.

    ended : the traced command has ended; a warning reports processes that still run, and their trace ends here

    Raises
    ------
    EnvironmentFailure  io.still_running: a traced process still writes, and the command may not be over;
    core.disk_full, core.cannot_write; core.unsafe_folder: there is something to be closed, and the folder is another
    user's; core.unsafe_file: a file is a link, or not the folder owner's own.
    """
    with Folder(folder) as run:
        return _close(run, ended)


def _close(run: Folder, ended: bool) -> tuple[dict[str, Any], list[Warning]]:
    folder, warnings = run.path, list[Warning]()
    if living := _living(folder):
        named = ", ".join(living[:5]) + (", …" if len(living) > 5 else "")
        what = f"{'processes' if len(living) > 1 else 'process'} {named}"
        if not ended:
            raise EnvironmentFailure(
                "io.still_running",
                f"{what} still write{'' if len(living) > 1 else 's'} into {folder}",
                "wait for the program to end, or end it; then recover again",
            )
        warnings.append(
            Warning(
                "io.still_running",
                f"{what} still ran when the command ended; {'their' if len(living) > 1 else 'its'} later "
                "calls are not in the trace",
                "trace a command that waits for the processes it starts",
            )
        )
    _unpack(run)
    tails = _named(run, ".tail")
    if tails:
        _refuse_unless_own(run)
    for tail in tails:
        try:
            _finish(run, tail)
        except OSError as error:
            hint = f"recover it elsewhere: copy {folder} to a disk with enough space"
            raise cannot_write(folder / _block_file(tail), error, hint) from None
    tables: list[list[tuple[int, int, str, str]]] = []
    table_of: dict[str, int] = {}
    for name in _named(run, ".functions"):
        table = _rows(run.read_text(name))
        if table not in tables:
            tables.append(table)
        table_of[name.removesuffix(".functions")] = tables.index(table)
    given = {name.removesuffix(_GIVEN): _descriptors(run.read_text(name)) for name in _named(run, _GIVEN)}
    warnings += _not_traced(run)
    counted, more_warnings = _servers(run, ended)
    return {"tables": tables, "table_of": table_of} | (
        {"given": given} if given else {}
    ) | counted, warnings + more_warnings


def _named(run: Folder, suffix: str) -> list[str]:
    return [name for name in run.names() if name.endswith(suffix)]


def _descriptors(text: str) -> list[tuple[int, str]]:
    """The descriptors that a program was given at its start; "" for a socket, a pipe and the like."""
    found = []
    for line in text.splitlines():
        number, _, path = line.partition("\t")
        if _COUNT.fullmatch(number):
            found.append((int(number), decoded(path)))
    return found


def _block_file(tail: str) -> str:
    return f"{tail.removesuffix('.tail')}.blk"


def _servers(run: Folder, ended: bool) -> tuple[dict[str, Any], list[Warning]]:
    try:
        content = json.loads(run.read(servers.FILE))
    except FileNotFoundError:  # no counters were requested
        return {}, []
    except (OSError, ValueError, RecursionError):
        return {}, [_no_counters(run)]
    if not servers.is_whole(content):
        return {}, [_no_counters(run)]
    if content["servers"]:
        return {"servers": content}, []
    return {}, [] if ended else [servers.killed(content)]


def _no_counters(run: Folder) -> Warning:
    return Warning(
        "io.no_server_counters",
        f"the dataset has no server counters: {run.path / servers.FILE} is damaged",
        "measure again to get them; the rest is complete",
    )


def _finish(run: Folder, tail: str) -> None:
    """Complete one thread's block file: cut it after its last whole block, set checksums, append the mapped records."""
    path = _block_file(tail)
    content = run.read(tail)
    if len(content) < TAIL_BYTES or not content.startswith(b"SONDETHR") or run.facts(path) is None:
        return  # the thread was about to begin and has recorded nothing
    (_, _, _, _, depth, current, sequence, dropped, last_ticks, last_ns, used0, used1, _, _, appended) = (
        _TAIL.unpack_from(content)
    )
    current &= 1
    used = (used0, used1)
    records = [
        np.frombuffer(
            content, RECORD, min(used[k], BLOCK_RECORDS), _BLOCKS_AT + k * BLOCK_BYTES + _BLOCK_HEAD.size
        )
        for k in (current ^ 1, current)  # the block that is being filled is the later one
    ]
    records[-1] = _written(records[-1], last_ticks)
    frames = np.frombuffer(content, _FRAME, min(depth, _MOST_FRAMES), _FRAMES_AT)
    frames = frames[
        (frames["sp"] != UNKNOWN) & ((frames["flags"] & _FRAME_RECORDED) == 0)
    ]  # filled in, and not recorded yet
    under_way = np.zeros(len(frames), RECORD)
    for name in ("begin", "size", "offset", "function", "depth"):
        under_way[name] = frames[name]
    under_way["file"] = folded(frames["handle"])
    under_way["flags"] = UNFINISHED
    clock = np.zeros(1, RECORD)
    clock["begin"], clock["end"], clock["size"], clock["function"] = last_ticks, last_ns, 0, CLOCK
    # Inner calls are recorded before the calls around them, because they end first.
    last = np.concatenate([*records, under_way[::-1], clock])
    with os.fdopen(run.change(path), "r+b", buffering=0) as file:
        if os.pread(file.fileno(), len(FILE_MAGIC), 0) != FILE_MAGIC:
            return  # not a block file: leave it as it is; reading it reports that
        # A host that went down may have lost the end of the file; do not leave a gap there.
        appended = min(appended, os.fstat(file.fileno()).st_size)
        file.truncate(appended)
        _set_checksums(file.fileno(), appended)
        crc = zlib.crc32(
            last.tobytes(), zlib.crc32(_BLOCK_HEAD.pack(BLOCK_MAGIC, 0, sequence, len(last), dropped)[8:])
        )
        block = _BLOCK_HEAD.pack(BLOCK_MAGIC, crc, sequence, len(last), dropped) + last.tobytes()
        try:
            _append(file.fileno(), appended, block)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            run.remove(tail)  # there is no other space: a kill at this moment would lose its content
            try:
                _append(file.fileno(), appended, block)
            except OSError:
                with os.fdopen(run.make(tail, 0o600), "wb") as back:
                    back.write(content)
                raise
    with suppress(FileNotFoundError):
        run.remove(tail)


def _append(descriptor: int, at: int, block: bytes) -> None:
    try:
        done = 0
        while done < len(block):
            done += os.pwrite(descriptor, block[done:], at + done)
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, at)
        raise


def _living(folder: Path) -> list[str]:
    """Traced processes of this host that still run: "4711 (python3)"."""
    host, found = socket.gethostname().replace("/", "_"), []
    begun = {path.stem.rsplit("-", 2)[0].rpartition("-")[::2] for path in folder.glob("*.tail")}
    for name, rest in sorted(begun):
        if name != host or not rest.isdigit():
            continue
        try:
            maps = Path(f"/proc/{rest}/maps").read_text("utf-8", "replace")
            command = Path(f"/proc/{rest}/comm").read_text("utf-8", "replace").strip()
        except OSError:
            continue
        if (
            str(folder.resolve()) in maps
        ):  # it has mapped its tails, so it is not another process with the same number
            found.append(f"{rest} ({command})")
    return found


def _written(records: np.ndarray, since: int) -> np.ndarray:
    """The records without the last one if a kill came before it was written: its place holds a record of two blocks
    ago."""
    end = len(records)
    while end and records["function"][end - 1] < CALL_NUMBERS and records["end"][end - 1] < since:
        end -= 1
    return records[:end]


def _set_checksums(descriptor: int, end: int) -> None:
    head = os.pread(descriptor, 24, 0)
    if len(head) < 24:
        return
    at = 24 + struct.unpack_from("<I", head, 12)[0]
    while at < end:
        block = os.pread(descriptor, BLOCK_BYTES, at)
        if len(block) < _BLOCK_HEAD.size:
            return
        _, _, _, count, _ = _BLOCK_HEAD.unpack_from(block)
        length = _BLOCK_HEAD.size + count * RECORD.itemsize
        if not block.startswith(BLOCK_MAGIC) or length > len(block):
            return  # the reader of the file finds and reports that
        crc = zlib.crc32(block[_BLOCK_HEAD.size : length], zlib.crc32(block[8 : _BLOCK_HEAD.size]))
        os.pwrite(descriptor, struct.pack("<I", crc), at + 4)
        at += length


def functions(folder: Path, name: str = "") -> list[tuple[int, int, str, str]]:
    """(number, rule, symbol, library) of all functions that were found in processes, or in one table."""
    with Folder(folder) as run:
        names = [name] if name else _named(run, ".functions")
        return [row for one in names if run.facts(one) for row in _rows(run.read_text(one))]


def _rows(text: str) -> list[tuple[int, int, str, str]]:
    table = []
    for line in text.splitlines():
        match line.split("\t"):
            case [number, rule, symbol, library] if _COUNT.fullmatch(number) and _COUNT.fullmatch(rule):
                path = decoded(library)
                # A program and its modules may refer to one library by several paths: $ORIGIN/../lib.
                file = os.path.normpath(path) if "/../" in path else path
                table.append((int(number), int(rule), decoded(symbol), file))
    return table


def not_traced(folder: Path) -> list[Warning]:
    """Warnings about what the tracer left out, with reasons."""
    with Folder(folder) as run:
        return _not_traced(run)


def _not_traced(run: Folder) -> list[Warning]:
    accounts = [warning for name in _named(run, ".shared") for warning in _account(name, run.read(name))]
    return _refused(run) + accounts


def _refused(run: Folder) -> list[Warning]:
    """Warnings about programs that the tracer did not trace, one for each reason."""
    reasons: dict[str, list[str]] = {}
    for name in _named(run, ".refused"):
        for line in run.read_text(name).splitlines():
            reasons.setdefault(line, []).append(name.removesuffix(".refused"))
    return [
        Warning(
            "io.not_traced",
            f"{len(names)} {'processes were' if len(names) > 1 else 'process was'} not traced: {reason} "
            f"({', '.join(names[:3])}{', …' if len(names) > 3 else ''})",
            "'sonde io layers check' shows what can be traced here",
        )
        for reason, names in reasons.items()
    ]


def _account(name: str, text: bytes) -> list[Warning]:
    """Warnings about calls of a node's processes that could not be stored, or are not traced."""
    content = text[: _SHARED.size]
    if len(content) < _SHARED.size or not content.startswith(b"SONDESH2"):
        return []
    numbers = _SHARED.unpack(content)[3:]
    refused, lost, unseen = (numbers[k : k + _KINDS] for k in range(0, 3 * _KINDS, _KINDS))
    host, found = name.removesuffix(".shared"), []
    for calls, (why, hint) in zip(lost, _WHYS):
        if calls:
            full = hint == _MORE_ROOM
            what = (
                f"{calls} calls on {host} came after the trace reached its limit"
                if full
                else f"{calls} calls on {host}: {why}"
            )
            found.append(
                Warning(
                    "io.trace_full" if full else "io.calls_lost",
                    f"{what}, and are missing" if full else f"the trace lacks {what}",
                    hint,
                )
            )
    for times, (why, hint) in zip(refused, _WHYS):
        if times:
            found.append(
                Warning(
                    "io.threads_not_traced",
                    f"{times} calls on {host} were not traced, because their thread could not create its "
                    f"files, which need {format_size(TAIL_BYTES + HEADER_BYTES)}: {why}",
                    hint,
                )
            )
    for processes, (what, hint) in zip(unseen, _UNSEEN):
        if processes:
            some = "a process" if processes == 1 else f"{processes} processes"
            found.append(Warning("io.not_seen", f"{some} on {host} {what}", hint))
    return found

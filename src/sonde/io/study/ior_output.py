"""Parse the output of the real `ior` (3.x, 4.x) and of NAS BT-IO (NPB 3.x) into the form of sonde-ioload's `--json`.

So results of other people, or of machines that have only these programs, can be compared with Sonde's own. Values that
the text does not contain are None. sonde-ioload's own tables have the same columns and are parsed as well. Form:
docs/reference/ioload.md.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sonde.core.errors import DataError

SCHEMA = "ioload/1"
LONGEST_LINE = 4096  # characters that are parsed
_MIB = 2**20

# Column of ior's table of results -> key of --json. Before 3.3 there was neither IOPS nor latency.
_COLUMNS = {
    "bw(MiB/s)": "bandwidth_MiB_per_s",
    "IOPS": "transfers_per_s",
    "Latency(s)": "latency_s",
    "open(s)": "open_s",
    "wr/rd(s)": "move_s",
    "close(s)": "close_s",
    "total(s)": "total_s",
}
_SUMMARY = (
    "max_MiB_per_s",
    "min_MiB_per_s",
    "mean_MiB_per_s",
    "sd_MiB_per_s",
    "max_transfers_per_s",
    "min_transfers_per_s",
    "mean_transfers_per_s",
    "sd_transfers_per_s",
    "mean_s",
)
_STONEWALL = ("stonewallingtime", "stonewalling time", "using stonewalling")  # 3.2 on; ours; before 3.2
_MODES = {"FULL MPI-IO": "full", "SIMPLE MPI-IO": "simple", "EPIO": "epio", "FORTRAN IO": "fortran"}
_SCALES = {"bytes": 1, "byte": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_SCALES |= {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}


def parse(text: str) -> dict[str, Any]:
    """The output of one run, in the form of sonde-ioload's --json.

    Parameters
    ----------
    text : all that `ior`, BT-IO or sonde-ioload wrote to stdout; other lines, of an MPI or a batch system, are skipped

    Raises
    ------
    DataError  io.bad_output: output of neither program, of several tests, or without a result.

    Source
    ------
    ior.readthedocs.io, "First Steps with IOR" (the table and the options); of NPB 3.4 BT/bt.f90 and
    common/print_results.f90.
    """
    # All lines that are parsed are short; on a long one a regular expression may take quadratic time.
    text = "\n".join(line[:LONGEST_LINE] for line in text.splitlines())
    if re.search(r"^access[ \t]+bw\(MiB/s\)", text, re.M):
        return _ior(text)
    if "BTIO -- statistics" in text:
        return _bt_io(text)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    begun = re.search(r"^(IOR-|sonde-ioload )|MPI Coordinated Test of Parallel I/O|BT Benchmark", text, re.M)
    what = "it ends before the first result" if begun else f"it begins with {first[:60]!r}"
    raise DataError(
        "io.bad_output",
        f"this is no readable output of ior, NAS BT-IO or sonde-ioload: {what}",
        "give everything that the program wrote to stdout",
    )


@dataclass(frozen=True)
class Rates:
    """Rates of one run of a benchmark, B/s, and its time in I/O, s; None if the output has none.

    With several repetitions in a run, a rate is that of all their bytes in all their time.
    """

    write: float | None = None
    read: float | None = None
    io_s: float | None = None


def rates(document: Mapping[str, Any]) -> Rates:
    """The rates of a document in the form of sonde-ioload's --json.

    Raises
    ------
    DataError  io.wrong_data: the benchmark read other data than it wrote.
    """
    if document.get("wrong_words"):
        raise DataError(
            "io.wrong_data",
            f"{document['wrong_words']} words were read with values that nobody wrote",
            "the file system, or the stack in this configuration, loses data",
        )
    if document["workload"] == "bt-io":
        moved, wrote_s, read_s = document.get("bytes"), document.get("io_s"), document.get("verify_s")
        times = [time_s for time_s in (wrote_s, read_s) if time_s]
        return Rates(_rate(moved, wrote_s), _rate(moved, read_s), sum(times) if times else None)
    found: dict[str, float | None] = {}
    whole = 0.0
    for access in ("write", "read"):
        rows = [
            row
            for row in document["iterations"]
            if row["access"] == access and row["total_s"] and row["bytes"]
        ]
        time_s = sum(row["total_s"] for row in rows)
        whole += time_s
        found[access] = _rate(sum(row["bytes"] for row in rows), time_s)
    return Rates(found["write"], found["read"], whole or None)


def _rate(moved: float | None, time_s: float | None) -> float | None:
    return moved / time_s if moved and time_s else None


def _document(program: str, version: str | None, workload: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "program": program,
        "version": version,
        "workload": workload,
        "command": None,
        "began": None,
        "host": None,
        "mpi": None,
        "mpi_version": None,
        "tasks": None,
        "nodes": None,
        "tasks_per_node": None,
    }


def _ior(text: str) -> dict[str, Any]:
    lines = text.splitlines()
    heads = [k for k, line in enumerate(lines) if re.match(r"access[ \t]+bw\(MiB/s\)", line)]
    if len(heads) > 1:
        raise DataError(
            "io.bad_output",
            f"this is the output of {len(heads)} tests of ior",
            "split it before each 'Options:'",
        )
    fields = _fields(lines[: heads[0]])
    version = re.search(r"^(IOR-|sonde-ioload )(\S+)", text, re.M)
    ours = bool(version and version[1].startswith("sonde"))
    out = _document("sonde-ioload" if ours else "ior", version[2].rstrip(":") if version else None, "ior")
    command = fields.get("command line", fields.get("command line used"))
    out["command"] = _words(command)
    out["began"] = fields.get("began")
    machine = fields.get("machine", "").split()
    out["host"] = machine[1] if len(machine) > 1 else None
    out["mpi_version"] = fields.get("mpi")
    clients = re.match(r"(\d{1,18}) \((\d{1,18}) per node\)", fields.get("clients", ""))  # 3.0 to 3.2
    out["tasks"] = int(clients[1]) if clients else _whole(fields.get("tasks"))
    out["tasks_per_node"] = int(clients[2]) if clients else _whole(fields.get("clients per node"))
    out["nodes"] = _whole(fields.get("nodes"))
    out["options"] = _options(fields, ours)

    names = lines[heads[0]].split()
    iterations = []
    for line in lines[heads[0] + 1 :]:
        words = line.split()
        if not words or words[0] not in ("write", "read") or len(words) != len(names):
            continue
        row = dict(zip(names, words))
        found: dict[str, Any] = {"access": row["access"], "iteration": _whole(row.get("iter"))}
        found |= {key: _number(row.get(name)) for name, key in _COLUMNS.items()}
        iterations.append(found)
    out["iterations"] = iterations
    out["summary"] = _summaries(lines[heads[0] :], out)
    if not iterations and not out["summary"]:
        raise DataError("io.bad_output", "ior's table of results has no row", "see ior's messages")
    for one in iterations:
        one["bytes"] = _bytes_of(one, out["options"])
    return out


def _bytes_of(row: dict[str, Any], options: dict[str, Any]) -> int | None:
    """Bytes that a row moved: all, except with stonewalling, where only rate times time gives them, to the shown
    digits."""
    if options["stonewall_s"] is None:
        return options["aggregate_B"]
    rate, took = row["bandwidth_MiB_per_s"], row["total_s"]
    return None if rate is None or took is None else _rounded(rate * _MIB * took)


def _fields(lines: list[str]) -> dict[str, str]:
    """ "key : value" (3.3 on) and "key = value" (before); if a key comes twice, the first counts."""
    out: dict[str, str] = {}
    for line in lines:
        if found := re.match(r"\s*([A-Za-z][\w \t/-]*)[:=](.*)", line):
            out.setdefault(found[1].rstrip().lower(), found[2].strip())
    return out


def _options(fields: dict[str, str], ours: bool) -> dict[str, Any]:
    def given(name: str) -> bool | None:
        return None if name not in fields else fields[name] != ""

    access = fields.get("access", "")
    between = fields.get("ordering inter file", "")
    shifted = re.search(r"constant task offsets?(?:\s*=\s*(\d+))?", between)
    offset = _whole(shifted[1] if shifted and shifted[1] else fields.get("task offset"))
    kind = fields.get("type") or access.partition(",")[2].strip()  # 3.0: "single-shared-file, collective"
    stonewall = next((fields[key] for key in _STONEWALL if fields.get(key)), None)
    return {
        "api": fields.get("api", "").partition("-")[0].split("(")[0].strip() or None,
        "file": fields.get("test filename"),
        "transfer_B": _size(fields.get("xfersize")),
        "block_B": _size(fields.get("blocksize")),
        "segments": _whole(fields.get("segments")),
        "aggregate_B": _size(fields.get("aggregate filesize")),
        "file_per_process": access.startswith("file-per-process") if access else None,
        "collective": kind == "collective" if kind else None,
        "random": fields["ordering in a file"].startswith("random") if given("ordering in a file") else None,
        "shift_tasks": bool(shifted) if between else None,
        "shift_ranks": (offset if shifted else 0) if ours else None,
        "shift_nodes": offset if shifted and not ours else None,
        "repetitions": _whole(fields.get("repetitions")),
        "stonewall_s": _number(stonewall.split()[0]) if stonewall else None,
    }


def _summaries(lines: list[str], out: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of "Summary of all tests"; its exact sizes replace the rounded ones of the options."""
    head = next((k for k, line in enumerate(lines) if re.match(r"Operation\s+Max\(MiB\)", line)), None)
    if head is None:
        return []
    names = lines[head].split()
    found = []
    for line in lines[head + 1 :]:
        words = line.split()
        if not words or words[0] not in ("write", "read"):
            break
        if len(words) <= len(_SUMMARY):
            break
        found.append({"access": words[0]} | {key: _number(word) for key, word in zip(_SUMMARY, words[1:])})
        if len(words) == len(names):
            row = dict(zip(names, words))
            for name, key in (("blksiz", "block_B"), ("xsize", "transfer_B"), ("segcnt", "segments")):
                if (exact := _whole(row.get(name))) is not None:
                    out["options"][key] = exact
            if (tasks := _whole(row.get("#Tasks"))) is not None:
                out["tasks"] = tasks
    options = out["options"]
    parts = (options["block_B"], options["segments"], out["tasks"])
    if None not in parts:
        options["aggregate_B"] = parts[0] * parts[1] * parts[2]
    return found


def _bt_io(text: str) -> dict[str, Any]:
    ours = re.search(r"^sonde-ioload (\S+)", text, re.M)
    fields = _fields(text.splitlines())
    completed = _fields(re.split(r"BT-?(?: Benchmark |IO )[Cc]ompleted", text)[-1].splitlines())
    version = ours[1] if ours else completed.get("version")
    out = _document("sonde-ioload" if ours else "bt-io", version, "bt-io")
    if ours:
        command = fields.get("command line")
        out["command"] = _words(command)
        out["began"] = fields.get("began")
        machine = fields.get("machine", "").split()
        out["host"] = machine[1] if len(machine) > 1 else None
        out["mpi_version"] = fields.get("mpi")
    out["tasks"] = _whole(completed.get("total processes"))
    mode = re.search(r"BTIO -- (\S+(?: \S+){0,7}?) write interval:[ \t]*(\d{1,18})", text)
    points = re.match(r"\s*(\d{1,9})\s*x\s*(\d{1,9})\s*x\s*(\d{1,9})", completed.get("size", ""))
    out["options"] = {
        "class": completed.get("class"),
        "mode": _MODES.get(mode[1]) if mode else fields.get("mode"),
        "points": int(points[1]) if points else None,
        "steps": _whole(completed.get("iterations")),
        "interval_steps": int(mode[2]) if mode else _whole(fields.get("write interval")),
    }

    def statistic(pattern: str) -> float | None:
        found = re.search(rf"^[ \t]*{pattern}[ \t]*:[ \t]*(\S+)", text, re.M)
        return _number(found[1]) if found else None

    megabytes = statistic(r"Total data written [(\[]MB[)\]]")
    dump = 40 * int(points[1]) * int(points[2]) * int(points[3]) if points else 0
    # The text has megabytes with two digits; only whole dumps are possible.
    dumps = _rounded(megabytes * 1e6 / dump) if megabytes and dump else None
    exact = dumps * dump if dumps is not None else None
    verified = completed.get("verification", "")
    return out | {
        "bytes": exact
        if exact is not None
        else (_rounded(megabytes * 1e6) if megabytes is not None else None),
        "total_s": _number(completed.get("time in seconds")),
        "io_s": statistic("I/O timing in seconds"),
        "verify_s": statistic("I/O timing in verify"),
        "rate_MB_per_s": statistic(r"I/O data rate\s+[(\[]MB/sec[)\]]"),
        "verification": verified.split()[0] if verified else None,
    }


def _words(command: str | None) -> list[str] | None:
    try:
        return shlex.split(command) if command else None
    except ValueError:  # a quote that does not end
        return command.split() if command else None


def _number(text: str | None) -> float | None:
    """A number; None also for "-", "NA", infinite values, and the asterisks of a Fortran field that overflowed."""
    try:
        found = float(text) if text is not None else None
    except ValueError:
        return None
    return found if found is not None and math.isfinite(found) else None


def _rounded(value: float) -> int | None:
    return round(value) if math.isfinite(value) else None


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\d{1,18}", text.strip()) else None


def _size(text: str | None) -> int | None:
    """Bytes from "262144 bytes" or "1.17 GiB", which ior has rounded to two digits."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)", text.strip()) if text else None
    scale = _SCALES.get(found[2].lower()) if found else None
    return _rounded(float(found[1]) * scale) if found and scale else None

"""Parsers of Sonde's Python that read what others wrote: how each is called, where damage begins, what may come out.

A parser is given bytes. It returns, or raises its own documented error; anything else is a fault, and so are a hang and
memory beyond LEAST_BYTES and TIMES times the input.
"""

from __future__ import annotations

import io
import json
import os
import signal
import struct
import tempfile
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from sonde.bus import plan as bus_plan
from sonde.cluster.plan import Plan as ClusterPlan
from sonde.core import config, events, hostlist, lines, printable, seal, units
from sonde.core.blocks import BlockFile, BlockWriter
from sonde.core.errors import SondeError
from sonde.core.launch import mpirun, srun
from sonde.core.owned_files import Folder
from sonde.io import gluster, ior_output, layers, run_close, run_elf, servers
from sonde.net import clustbench
from sonde.net.classic import ClassicWriter, check_whole
from sonde.noise import run_osnoise
from sonde.power import slurm_job, workflow
from sonde.power.job_target import Turns
from sonde.power.jobs import JobState, Part, Spec
from sonde.store import address
from sonde.store import plan as store_plan

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data"
FOUND = DATA / "fuzz"
LEAST_BYTES, TIMES = 32 << 20, 256
HANGS_S = 60
"""Far more than any input of at most 64 KiB takes on a busy machine."""


class Wrong(AssertionError):
    """A parser broke its promise."""


@dataclass(frozen=True)
class Parser:
    """errors: that it may raise besides SondeError, as its docstring says."""

    name: str
    read: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]
    errors: tuple[type[Exception], ...] = ()


PARSERS: dict[str, Parser] = {}


def parser(
    name: str,
    *seeds: str | bytes,
    errors: tuple[type[Exception], ...] = (),
    made: Callable[[], list[bytes]] | None = None,
) -> Callable[[Callable[[bytes], object]], Callable[[bytes], object]]:
    """Enters a function as a parser. seeds: sound inputs; made: makes some."""

    def entered(read: Callable[[bytes], object]) -> Callable[[bytes], object]:
        sound = [seed.encode() if isinstance(seed, str) else seed for seed in seeds]

        @cache
        def all_seeds() -> tuple[bytes, ...]:
            kept = sorted((FOUND / name).glob("*")) if (FOUND / name).is_dir() else []
            return (*sound, *(made() if made else ()), *(path.read_bytes() for path in kept))

        PARSERS[name] = Parser(name, read, lambda: list(all_seeds()), errors)
        return read

    return entered


# ---- whether one keeps its promise ----


@contextmanager
def no_hang(data: bytes) -> Iterator[None]:
    """Where this is the main thread: raises in the middle of what takes longer than HANGS_S."""

    def late(number: int, frame: FrameType | None) -> None:
        raise Wrong(f"it hangs at {data[:200]!r}, {len(data)} bytes")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, HANGS_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def hold(one: Parser, data: bytes, measured: bool = True) -> bool:
    """Has a parser read an input. Returns whether it took it.

    measured: whether its memory is looked at, which takes three times as long.

    Raises
    ------
    Wrong  with the input, where it raised another error than its own, hung, or took too much memory.
    """
    if measured:
        tracemalloc.start()
    try:
        with no_hang(data):
            one.read(data)
        return True
    except SondeError as error:
        if not error.code or not error.what:
            raise Wrong(f"{one.name}: an error without code or words at {data[:200]!r}") from error
        return False
    except one.errors:
        return False
    except Wrong as error:
        raise Wrong(f"{one.name}: {error}") from None
    except Exception as error:
        raise Wrong(
            f"{one.name}: {type(error).__name__}: {error} at {data[:200]!r}, {len(data)} bytes"
        ) from error
    finally:
        if measured:
            most = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            if most > LEAST_BYTES + TIMES * len(data):
                raise Wrong(f"{one.name}: {most} bytes of memory for {len(data)} of input, {data[:200]!r}")


# ---- files ----


@cache
def _folder() -> Path:
    """A folder of this process, in memory where there is room."""
    place = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="sonde-fuzz-", dir=place if os.access(place, os.W_OK) else None))


def clear() -> None:
    """Removes what files were made for parsers."""
    if _folder.cache_info().currsize:
        for path in _folder().glob("*"):
            path.unlink()
        _folder().rmdir()
        _folder.cache_clear()


def _file(name: str, data: bytes) -> Path:
    path = _folder() / name
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    return path


def _text(data: bytes) -> str:
    """As a file is read, or what another program printed."""
    return data.decode("utf-8", "replace")


# ---- core ----


def _blocks() -> list[bytes]:
    path = _folder() / "made.blk"
    dtype = np.dtype([("kind", "<u4"), ("t0", "<f8"), ("value", "<f8", (3,))])
    writer = BlockWriter(path, dtype, {"schema": "net", "rank": 0, "host": "n1"})
    for _ in range(2):
        writer.write(np.ones(3, dtype))
    writer.close()
    data = path.read_bytes()
    path.unlink()
    return [data]


def _mended(data: bytes) -> bytes:
    """With checksums that fit, so that what is behind them is reached: the first byte chooses."""
    out = bytearray(data)
    if len(out) < 24:
        return data
    length = struct.unpack_from("<I", out, 12)[0]
    struct.pack_into("<I", out, 16, zlib.crc32(out[24 : 24 + length], zlib.crc32(out[8:16])))
    return bytes(out)


@parser("core-blocks", made=_blocks)
def read_blocks(data: bytes) -> None:
    for bytes_of_file in (data, _mended(data)):
        try:
            file = BlockFile(_file("a.blk", bytes_of_file))
        except SondeError:
            continue
        for _ in file:
            pass
        assert file.records >= 0
        file.warnings  # noqa: B018  they are made when they are asked for


_RUN = {"room": "net", "schema": "net/1", "attrs": {"seed": 1}, "plan": {"a": [1]}, "env": {"cpu": "x"}}


@parser(
    "core-run",
    json.dumps({**_RUN, "warnings": [{"code": "a.b", "evidence": "c", "hint": ""}]}),
    json.dumps(_RUN),
)
def read_run(data: bytes) -> None:
    _file("run.json", data)
    run = seal.read_run(_folder())
    assert all(isinstance(text, str) for one in run.warnings for text in (one.code, one.evidence, one.hint))


@parser(
    "core-config", '# c\ncolor = "never"\n[net.run]\nsizes = "0:1000:100"\nbudget = 60\na.b = [1, {c = 2}]\n'
)
def read_config(data: bytes) -> None:
    config.read(_file("config.toml", data))


@parser(
    "core-events",
    '{"event":"end","stop_reason":"converged","samples":3,"elapsed_s":1.5,"dropped":0}',
    '[1,0]<stdout>: {"event":"warning","code":"net.a","evidence":"b","hint":"c"}\n',
)
def read_event(data: bytes) -> None:
    reader = events.Reader()
    event = reader.read(data)
    assert event is None or isinstance(event["event"], str)


@parser("core-units", "1h30min", "64KiB", "1.5 kW", "100 Mbit/s", "n[001-016,020],^n007", "a%0Ab")
def read_units(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")  # as the command line has it
    for parse in (
        units.parse_duration, units.parse_size, units.parse_power, units.parse_rate, hostlist.expand, hostlist.check
    ):  # fmt: skip
        try:
            parse(text)
        except SondeError:
            continue
    lines.decoded(text)
    assert "\x1b" not in printable.printable(text)


@parser(
    "core-launchers",
    "mpirun (Open MPI) 4.1.4\n",
    "HYDRA build details:\n Version: 4.0.2\n",
    "srun: pmi2\n16(x2),8",
)
def read_launchers(data: bytes) -> None:
    text = _text(data)
    mpirun.parse_version(text)
    srun.parse_plugins(text)
    srun.job_cpus({"SLURM_JOB_CPUS_PER_NODE": text})
    mpirun.split_slots(text)


# ---- net ----


def _classic() -> list[bytes]:
    stream = io.BytesIO()
    ClassicWriter(
        stream,
        [("x", 2), ("n", None), ("z", 3)],
        [("proc_num", "<i4", ()), ("data", "<f8", ("n", "x", "z"))],
        {"": {"title": "t"}, "data": {"units": "s"}},
        2,
    )
    return [
        stream.getvalue() + bytes(256),
        *(path.read_bytes() for path in sorted((DATA / "clustbench").glob("*amount.nc"))),
    ]


@parser("net-classic", made=_classic)
def read_classic(data: bytes) -> None:
    check_whole(io.BytesIO(data), len(data), "a.nc")


@parser(
    "net-structure",
    '{"dims": [["x", 2], ["n", null]], "variables": [["data", "<f8", ["n", "x"]]], "values": {"proc_num": 2},'
    ' "attributes": {"": {"a": 1}}}',
    errors=(KeyError, TypeError, ValueError),
)
def read_structure(data: bytes) -> None:
    clustbench.Structure.from_json(_text(data))


@parser("net-names", "delays-MSK-2024-05-16_average.nc", "n1\nn2\n")
def read_names(data: bytes) -> None:
    text = _text(data)
    clustbench.split_name(text)
    clustbench.spectrum_of(text)
    clustbench.read_hosts(text, 2)


# ---- io ----

_IOR = """IOR-4.0.0: MPI Coordinated Test of Parallel I/O
Began               : Mon Nov 16 10:00:00 2026
Command line        : ior -a MPIIO -b 1m 'a b'
Machine             : Linux n1
Options:
api                 : MPIIO-(3.1)
test filename       : /tmp/a
access              : single-shared-file
type                : collective
segments            : 1
ordering in a file  : sequential
ordering inter file : constant task offset
task offset         : 1
nodes               : 1
tasks               : 4
clients per node    : 4
repetitions         : 1
xfersize            : 262144 bytes
blocksize           : 1 MiB
aggregate filesize  : 4 MiB
stonewallingTime    : 3

Results:

access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter
------    ---------  ----       ----------  ---------- ---------  --------   --------   --------   --------   ----
write     500.10     2000.4     0.001       1024.00    256.00     0.0001     0.008      0.0001     0.008      0

Summary of all tests:
Operation   Max(MiB)   Min(MiB)  Mean(MiB)     StdDev   Max(OPs)   Min(OPs)  Mean(OPs)     StdDev    Mean(s)
write         500.10     500.10     500.10       0.00    2000.40    2000.40    2000.40       0.00    0.00800
"""
_BT = """ BTIO -- FULL MPI-IO write interval:   5
 BTIO -- statistics:
   I/O timing in seconds   :          0.12
   I/O timing in verify    :          0.02
   Total data written (MB) :         16.53
   I/O data rate  (MB/sec) :        137.79
 BT Benchmark Completed.
 Class           =                        S
 Size            =             12x  12x  12
 Iterations      =                       60
 Total processes =                        4
 Verification    =               SUCCESSFUL
 Version         =                    3.4.2
"""


@parser("io-ior", _IOR, _BT, _IOR.replace("IOR-4.0.0:", "sonde-ioload 0.1.0"))
def read_ior(data: bytes) -> None:
    ior_output.rates(ior_output.parse(_text(data)))


@parser(
    "io-map", made=lambda: [path.read_bytes() for path in sorted((ROOT / "src/sonde/io/maps").glob("*.toml"))]
)
def read_map(data: bytes) -> None:
    layers.parse(_text(data), "a.toml")


@parser("io-value", "arg(3):i32 * mpi(4)", "ref(1, 8):u32", "result", "text(0)")
def read_value(data: bytes) -> None:
    layers.value(_text(data))


def _programs() -> list[bytes]:
    """The head of a program, which has all that is to be found."""
    small = next(
        (path for path in map(Path, ("/usr/bin/true", "/bin/true", "/bin/sh")) if path.is_file()), None
    )
    return [small.read_bytes()[: 1 << 16]] if small else [b"\x7fELF\2\1\1" + b"\0" * 57]


@parser("io-program", b"#!/bin/sh\n", b"\x7fELF\2\1\1" + b"\0" * 57, made=_programs)
def read_program(data: bytes) -> None:
    path = _file("program", data)
    run_elf.Program.read(path)
    found = run_elf.read_object(path)
    assert found is None or found.machine >= 0


_GLUSTER = """<cliOutput><opRet>0</opRet><opErrno>0</opErrno><opErrstr/><volInfo><volumes><volume><name>d</name>
<status>1</status><typeStr>Distribute</typeStr><bricks><brick><name>h:/b</name></brick></bricks>
<options><option><name>features.shard</name><value>on</value></option></options></volume></volumes></volInfo>
<volList><volume>d</volume></volList><volProfile><brick><brickName>h:/b</brickName><cumulativeStats>
<blockStats><block><size>4096</size><reads>1</reads><writes>2</writes></block></blockStats><fopStats><fop>
<name>WRITE</name><hits>3</hits><avgLatency>1.5</avgLatency><minLatency>1</minLatency><maxLatency>2</maxLatency></fop>
</fopStats><totalRead>1</totalRead><totalWrite>2</totalWrite></cumulativeStats></brick></volProfile></cliOutput>"""


@parser("io-gluster", _GLUSTER, "  10.5 us   1.0 us")
def read_gluster(data: bytes) -> None:
    text = _text(data)
    gluster.unit_s(text)
    root = gluster.answer(text).root
    if root is None:
        return
    gluster.volumes(root)
    if found := gluster.volume(root):
        found.describe()
        gluster.as_servers(found.bricks, gluster.counted(root, "cumulative"), 1e-6)


_SERVERS = {
    "system": "GlusterFS",
    "mounts": ["/mnt"],
    "cwd": "/",
    "servers": [
        {
            "name": "h:/b",
            "answered": 1,
            "bytes": [1, 2],
            "sizes": [[4096, [1, 2]]],
            "operations": {"WRITE": [3, 1.5, 1.0, None]},
        }
    ],
}


@parser("io-run", json.dumps(_SERVERS), json.dumps({"servers": []}))
def read_servers(data: bytes) -> None:
    """What lies in a run's folder besides blocks: what servers counted, and names of functions."""
    folder = _folder()
    for name in ("t.tail", "t.blk", "t.functions"):
        (folder / name).unlink(missing_ok=True)
    _file(servers.FILE, data)
    _file("t.functions", data)
    try:
        run_close.close(folder)
    finally:
        (folder / servers.FILE).unlink(missing_ok=True)
        (folder / "t.functions").unlink(missing_ok=True)


def _tails() -> list[bytes]:
    return [
        b"SONDETHR" + struct.pack("<IIIIIIQQQIIQQQ", 1, 0, 0, 2, 0, 1, 0, 5, 5, 3, 2, 0, 0, 200) + b"\1" * 600
    ]


@parser("io-tail", made=_tails)
def read_tail(data: bytes) -> None:
    """The mapped end of a thread's trace, beside a block file."""
    folder = _folder()
    blocks = _blocks()[0]
    _file("t.blk", blocks)
    _file("t.tail", data.ljust(run_close.TAIL_BYTES, data[-1:] or b"\0"))
    try:
        with Folder(folder) as run:
            run_close._finish(run, "t.tail")
        for _ in BlockFile(folder / "t.blk"):
            pass
    finally:
        for name in ("t.tail", "t.blk"):
            (folder / name).unlink(missing_ok=True)


# ---- noise ----


@parser(
    "noise-osnoise",
    "  osnoise/0-17 [000] d..1. 12.345678: irq_noise: local_timer:236 start 12.345670000 duration 5000 ns\n",
)
def read_osnoise(data: bytes) -> None:
    run_osnoise.totals(_text(data).splitlines(), [0, 1])


# ---- power ----


_WORKFLOW = """name = "w"
[defaults]
nodes = 1
power = "350 W"
[jobs.first]
command = ["./solve", "-n", "4"]
foreach = { a = [1, 2], b = ["x"] }
target = { slowdown = "5%" }
on_failure = "retry 2, continue"
[jobs.second]
command = "echo {a}"
nodes = "n[001-004]"
after = ["first"]
environment = { OMP = 1 }
"""


@parser("power-workflow", _WORKFLOW)
def read_workflow(data: bytes) -> None:
    workflow.read(_text(data))


@parser("power-slurm", "power=350W guaranteed=250W weight=2", "n[1-4]\nalice\n1000\n2000\npower=1kW")
def read_slurm(data: bytes) -> None:
    text = _text(data)
    nodes, user, start, end, comment, *_ = (*text.split("\n"), "", "", "", "", "")
    job = slurm_job.job_of(
        {
            "SLURM_JOB_ID": "17",
            "SLURM_JOB_NODELIST": nodes,
            "SLURM_JOB_USER": user,
            "SLURM_JOB_START_TIME": start,
            "SLURM_JOB_END_TIME": end,
            "SLURM_JOB_COMMENT": comment,
        }
    )
    wish, _ = slurm_job.wish_of(text, slurm_job.Wish())
    slurm_job.command(job, wish, job.nodes)


@parser("power-turns", "0.1 0.5\n0.2 0.4\n", "0.5\n")
def read_turns(data: bytes) -> None:
    turns = Turns()
    half = len(data) // 2
    turns.take(data[:half], 1.0)
    turns.take(data[half:], 2.0)
    assert len(turns._rest) <= max(256, len(data))


_JOB = {
    "job": "a",
    "command": ["b"],
    "hosts": ["n1"],
    "nodes": 1,
    "target": {"slowdown": 0.1},
    "limit_s": 5.0,
}


def _mapping(data: bytes) -> Mapping[str, Any]:
    """As a role reads its own files: what is no JSON of an object never gets further."""
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


@parser(
    "power-jobs",
    json.dumps(
        {"spec": _JOB, "state": "running", "parts": [{"node": "n1", "cores": [0, 1]}], "started_ns": 5}
    ),
    errors=(KeyError, TypeError, ValueError, AttributeError, OverflowError),
)
def read_jobs(data: bytes) -> None:
    told = _mapping(data)
    JobState.of(told)
    Spec.of(told["spec"])
    for part in told["parts"]:
        Part.of(part)


# ---- store, bus, cluster ----


@parser("store-words", "kv:runs/42", "object:a%2Fb/c", "hdf5:/a/b", "kv.put:4KiB:16:1", "mine=tcp,nodelay=no")
def read_store_words(data: bytes) -> None:
    text = _text(data)
    for parse in (address.parse, store_plan.Case.read, store_plan.read_variant):
        try:
            parse(text)
        except SondeError:
            continue


@parser("bus-words", "cyclonedds/udp4/peers", "mine=cyclonedds,batch=1ms", "latency,fanout")
def read_bus_words(data: bytes) -> None:
    text = _text(data)
    for parse in (bus_plan.read_variant, lambda one: bus_plan.read_tests([one])):
        try:
            parse(text)
        except SondeError:
            continue


@parser(
    "cluster-plan",
    json.dumps(
        {"name": "a", "hostnames": ["a-0"], "addresses": ["10.0.0.1"], "subnet": "10.0.0.0/24", "private": []}
    ),
    errors=(KeyError, TypeError, ValueError),
)
def read_cluster_plan(data: bytes) -> None:
    ClusterPlan.from_json(_mapping(data))

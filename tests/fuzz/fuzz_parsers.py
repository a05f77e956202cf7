"""Parsers of Sonde's Python that read what others wrote: how each is called, where damage begins, what may come out.

A parser is given bytes. It returns, or raises its own documented error; anything else is a fault, and so are a hang and
memory beyond LEAST_BYTES and TIMES times the input.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import sqlite3
import struct
import tempfile
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np

from sonde.bus import cases as bus_cases
from sonde.bus import run_keys
from sonde.bus import variants as bus_variants
from sonde.cluster import run_state
from sonde.cluster.plan import Plan as ClusterPlan
from sonde.core import config, distribution, events, hostlist, lines, printable, provenance, run_folder, units
from sonde.core.blocks import BlockFile, BlockWriter
from sonde.core.errors import SondeError
from sonde.core.launch import cpus, mpirun, srun
from sonde.core.owned_files import Folder
from sonde.data import history_index
from sonde.io.maps import layers, run_elf
from sonde.io.record import gluster, run_gluster, run_probe, run_tracefs
from sonde.io.study import ior_output, run_limits
from sonde.io.trace import run_close, servers  # fmt: skip
from sonde.net import clustbench, convert, export
from sonde.net.classic import ClassicWriter, check_whole
from sonde.noise.host import analyse as noise_host
from sonde.noise.host import run_osnoise
from sonde.power.jobs import queue_rows, run_job_folder, run_resource_manager, slurm_job
from sonde.power.jobs.job_target import Turns
from sonde.power.jobs.jobs import JobState, Part, Spec
from sonde.power.jobs.run_jobs_store import Store
from sonde.power.monitor import run_history, run_http
from sonde.power.stack.config import Listen, NodeLimits, Stack
from sonde.power.stack.telemetry import ClusterSample, JobSample, NodeSample
from sonde.power.workflows import run_workflow_engine, workflow  # fmt: skip
from sonde.store import address, server_status
from sonde.store import plan as store_plan
from sonde.store.client import ServerStatus

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
        shutil.rmtree(_folder())
        _folder.cache_clear()


def _file(name: str, data: bytes) -> Path:
    path = _folder() / name
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    return path


def _fresh(name: str) -> Path:
    """A folder with nothing in it."""
    path = _folder() / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    return path


def _parts(data: bytes, n: int) -> list[bytes]:
    """n pieces, of one input for several files: NUL is between them."""
    return (data.split(b"\0", n - 1) + [b""] * n)[:n]


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
    run = run_folder.read(_folder())
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


_MACHINE = b"\0".join(
    (
        b"0::/user.slice/a b\n1:cpu,cpuacct:/c\n",
        b"200000 100000\n",
        b"processor\t: 0\nmodel name\t: x\ncpu MHz\t\t: 2400.0\n\nprocessor\t: 1\n",
        b'ID=debian\nVERSION_ID="12"\nID_LIKE=x\n',
        b"MemTotal:       16000 kB\nHugePages_Total: 0\n",
    )
)


@parser("core-machine", _MACHINE)
def read_machine(data: bytes) -> None:
    """What the kernel and a distribution say, which a container or a mount of somebody's may change."""
    root = _fresh("root")
    files = (
        *("proc/self/cgroup", "sys/fs/cgroup/user.slice/cpu.max", "proc/cpuinfo", "etc/os-release"),
        "proc/meminfo",
    )
    for name, text in zip(files, _parts(data, len(files))):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text)
    lines.kernel_lines(root / "proc/self/cgroup")
    cpus.quota(root)
    distribution.family(root)
    provenance._cpuinfo(root)
    provenance._memory_bytes(root)


@parser(
    "data-index",
    json.dumps(
        {
            "schema": "net/1",
            "created": "",
            "complete": True,
            "key": {},
            "attrs": {},
            "scalars": {"a": {"name": "a", "value": 1.0, "units": "", "better": ""}},
        }
    ),
)
def read_index(data: bytes) -> None:
    """What an index says of a dataset, where several may write to the folder."""
    folder = _fresh("runs")
    dataset = folder / "a.nc"
    dataset.write_bytes(b"x")
    facts = dataset.stat()
    with closing(sqlite3.connect(folder / history_index.INDEX)) as index:
        history_index.create(index)
        row = ("a.nc", facts.st_size, facts.st_mtime_ns, _text(data), None)
        index.execute("INSERT INTO run VALUES (?, ?, ?, ?, ?)", row)
        index.commit()
    runs, warnings, _ = history_index.indexed(folder)
    assert len(runs) + len(warnings) == 1


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


_STRUCTURE = (
    '{"dims": [["x", 2], ["n", null]], "variables": [["data", "<f8", ["n", "x"]]], "values": {"proc_num": 2},'
    ' "attributes": {"": {"a": 1}}}'
)


@parser(
    "net-structure",
    _STRUCTURE,
    errors=(KeyError, TypeError, ValueError),
)
def read_structure(data: bytes) -> None:
    clustbench.Structure.from_json(_text(data))


@parser(
    "net-stored",
    made=lambda: [json.dumps({"form": "clustbench-v1", "files": {"a": json.loads(_STRUCTURE)}}).encode()],
)
def read_stored(data: bytes) -> None:
    tree: Any = SimpleNamespace(attrs={convert.STORED: _text(data)})
    assert isinstance(export._stored(tree, "clustbench-v1"), dict)


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


_KERNEL = """7f00-7f10 r-xp 00000000 08:01 123                        /usr/lib/a.so (deleted)
22 1 0:20 /a / rw - ext4 /dev/vda rw
h:/vol /mnt/a\\040b fuse.glusterfs rw 0 0
sonde /sys/kernel/tracing tracefs rw 0 0
Name:\tx
NSpid:\t7\t1
"""


@parser("io-kernel", _KERNEL)
def read_kernel(data: bytes) -> None:
    """Files of /proc in which names stand that others chose: of mounts, programs and files."""
    found = lines.kernel_lines(_file("proc", data))
    assert not any("\n" in line for line in found)
    for path, _ in run_probe.mapped_in(found, 7).values():
        assert path.is_absolute()
    run_limits.file_system_in(found, "0:20")
    run_gluster.mounts_of(found, "vol")
    run_tracefs.is_mounted_by_sonde(run_tracefs.PLACES[0], "\n".join(found))


@parser(
    "io-fio",
    'fio: x\n{"jobs": [{"write": {"bw_bytes": 5, "io_bytes": 7, "runtime": 9}}]}',
    errors=(ValueError,),
)
def read_fio(data: bytes) -> None:
    said = run_limits.parse_fio(_text(data), "write")
    assert isinstance(said.moved, int)


# ---- noise ----


@parser("noise-attributes", '[{"name": "a", "cpu": 1, "pid": 2, "cpu_s": 0.5}]')
def read_attributes(data: bytes) -> None:
    summary: Any = SimpleNamespace(attrs={"processes": _text(data)})
    assert all(isinstance(one, dict) for one in noise_host.processes(summary, None))


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


def _database(make: Callable[[Path], None]) -> list[bytes]:
    """The file of a database that is made, without its journal."""
    path = _fresh("made") / "made.sqlite"
    make(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=DELETE")
        db.execute("VACUUM")
    return [path.read_bytes()]


def _make_history(path: Path) -> None:
    history = run_history.History(path, 60.0)
    history.add(
        [
            NodeSample("n1", 1),
            JobSample("17", 2, nodes=("n1",), node_iteration_s=(0.5,)),
            ClusterSample("c", 3),
        ]
    )
    history.close()


@parser("power-history", made=lambda: _database(_make_history))
def read_history(data: bytes) -> None:
    path = _fresh("history") / "h.sqlite"
    path.write_bytes(data)
    samples = 0
    for kind in ("node", "job", "cluster"):
        try:
            for sample in run_history.read(path, kind):
                assert isinstance(sample.at_ns, int)
                samples += 1
        except SondeError as error:
            last = error
    if not samples:
        raise last


_ROWS = (
    {
        "kind": "job",
        "job": "17",
        "at_ns": 2,
        "user": "a",
        "name": "",
        "nodes": '["n1"]',
        "node_iteration_s": "[0.5, null]",
    },
    {"kind": "node", "node": "n1", "at_ns": 2, "leased": 1, "epoch": -1, "power_w": None},
    {"kind": "cluster", "cluster": "c", "at_ns": 2, "nodes": 4, "state": None},
)


@parser("power-row", *map(json.dumps, _ROWS), errors=(KeyError, TypeError, ValueError, RecursionError))
def read_row(data: bytes) -> None:
    """A row of a history, whatever its columns are declared as."""
    row = dict(_mapping(data))
    sample = run_history._sample(str(row.pop("kind", "node")), row)
    assert isinstance(sample.at_ns, int)


def _stack() -> Stack:
    node = NodeLimits("n1", 60, 400, 100, cores=4)
    return Stack("", "demo", "", "", 1000, "fair", 3, 1, (node,), Listen("127.0.0.1", 0), "", 1, 1)


_ENTRY = {"state": {"spec": _JOB, "state": "running", "parts": [{"node": "n1"}]}, "sent": _JOB, "number": 3}
_HELD = {"job": "a", "parts": [{"node": "n1", "whole": False, "cores": [0, 1]}], "guaranteed_w": 100.0}


@parser(
    "power-kept",
    json.dumps({"a": _ENTRY, "usage": {"at_s": 5.0, "had": {"alice": [1.0, 2.0]}}}),
    json.dumps({"a": _HELD}),
)
def read_kept(data: bytes) -> None:
    """What the scheduler and the resource manager of jobs have kept."""
    store = Store.__new__(Store)  # of which only the name is needed
    store.path = Path("kept.sqlite")
    for make in (
        lambda kept: queue_rows.queue_of(kept, _stack(), {"root"}).set_back(5),
        lambda kept: [run_resource_manager.held_of(one) for one in kept.values()],
    ):
        refused = None
        try:
            with store.decoding():
                make(dict(json.loads(data)))
        except SondeError as error:
            refused = error
        else:
            return
    assert refused is not None
    raise refused


def _make_store(path: Path) -> None:
    folder = path.parent
    store = Store(folder, "made")
    store.save({"a": _ENTRY, "b": _HELD})
    store.close()


@parser("power-store", made=lambda: _database(_make_store))
def read_store(data: bytes) -> None:
    folder = _fresh("store")
    (folder / "kept.sqlite").write_bytes(data)
    store = Store(folder, "kept")
    try:
        assert all(isinstance(name, str) for name in store.load())
    finally:
        store.close()


_FLOW = 'name = "w"\n[jobs.a]\ncommand = "x"\n[jobs.b]\ncommand = "y"\nafter = ["a"]\n'
_HEAD = {
    "what": "workflow",
    "version": 1,
    "run": "r",
    "user": "u",
    "path": "/w.toml",
    "text": _FLOW,
    "at_ns": 5,
}
_NOTES = (
    {"what": "submit", "step": "a", "attempt": 1},
    {"what": "accepted", "step": "a", "attempt": 1},
    {"what": "over", "step": "a", "attempt": 1, "state": "ended", "energy_j": 5.0, "seconds": 1.0, "why": ""},
    {"what": "cancel", "why": "u"},
)


@parser(
    "power-journal",
    "".join(json.dumps(one) + "\n" for one in (_HEAD, *_NOTES)),
    json.dumps(_HEAD) + "\n" + json.dumps({"what": "skipped", "step": "b", "why": "x"}) + "\ncut",
    errors=(OSError, ValueError, KeyError, TypeError, OverflowError),
)
def read_journal(data: bytes) -> None:
    """A workflow's file; errors are those that the engine leaves a file out for."""
    engine: Any = SimpleNamespace(mutex=threading.RLock(), listed={})
    one = run_workflow_engine.Workflow(engine, run_workflow_engine.Journal(_file("w.jsonl", data)))
    json.dumps(one.shown(True))
    one.course.next()


_KEEPER = {"pid": 4711, "began": 5, "boot": "x", "at_ns": 7}
_JOB_FILES = ("job.json", "keeper.json", "start.json", "meter.json", "target.json", "stop.json")


@parser(
    "power-job",
    "\0".join(
        json.dumps(one)
        for one in (
            {"spec": _JOB, "parts": [{"node": "n1"}]}, _KEEPER, {"cgroup": ""}, {"energy_j": 1.0, "at_j": {"n1": 2.0}},
            {"slowdown": 0.1}, {"grace_s": 5.0},
        )
    ),
    "\0".join(json.dumps(one) for one in ({"spec": _JOB, "parts": []}, _KEEPER)),
    errors=(ValueError,),
)  # fmt: skip
def read_job(data: bytes) -> None:
    """The folder of a job that a manager of before had."""
    folder = _fresh("a")
    for name, text in zip(_JOB_FILES, _parts(data, len(_JOB_FILES))):
        if text:
            (folder / name).write_bytes(text)
    assert run_job_folder.grace_of(folder) >= 0
    if (found := run_job_folder.stored_job(folder)) is not None:
        assert found[0].pid > 0
        assert found[0].run().job == "a"


_TOKEN, _SECRET = "0123456789abcdef", "what only those with the token see"


class _Socket:
    """One end of a connection over which everything has come, and then nothing more does."""

    def __init__(self, data: bytes) -> None:
        self.data, self.out = data, bytearray()

    def makefile(self, *_: object) -> io.BytesIO:
        return io.BytesIO(self.data)

    def sendall(self, data: bytes) -> None:
        self.out += data

    def settimeout(self, _: float) -> None:
        pass

    def setsockopt(self, *_: object) -> None:
        pass


def _requests() -> list[bytes]:
    ask = "GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n"
    bearer, cookie = f"Authorization: Bearer {_TOKEN}\r\n", f"Cookie: a=b; {run_http.COOKIE}={_TOKEN}\r\n"
    return [
        ask.format(*one).encode()
        for one in (
            ("/metrics", bearer), ("/now", cookie), ("/", ""), (f"/?token={_TOKEN}", ""), ("/events", cookie),
            ("/health", ""), ("/live.css", bearer), ("/nowhere", bearer),
        )
    ] + [b"".join((ask.format("/health", "").encode(), ask.format("/metrics", bearer).encode()))]  # fmt: skip


@parser("power-http", made=_requests)
def read_http(data: bytes) -> None:
    """The monitor's page: whatever is asked, nothing is shown without the token, and its threads do not end."""
    ended = threading.Event()
    ended.set()

    class Handler(run_http._Handler):
        pass

    for token in (_TOKEN, ""):
        content = run_http.Content(
            lambda _: _SECRET, lambda: (1, _SECRET), lambda n, s: None, lambda: _SECRET
        )
        site: Any = SimpleNamespace(
            asks_token=bool(token),
            admits=lambda offered, token=token: offered == token,
            content=content,
            places=run_http.Places(),
            closing=ended,
            _tls=None,
        )
        Handler.site = site
        connection: Any = _Socket(data)
        site.places.take(connection, "loopback", run_http.IDLE)
        server: Any = None
        Handler(connection, ("127.0.0.1", 1), server)
        assert not token or _SECRET.encode() not in connection.out or token.encode() in data
    run_http.token_of(_text(data), _text(data))


# ---- store, bus, cluster ----


@parser("store-words", "kv:runs/42", "object:a%2Fb/c", "hdf5:/a/b", "kv.put:4KiB:16:1", "mine=tcp,nodelay=no")
def read_store_words(data: bytes) -> None:
    text = _text(data)
    for parse in (address.parse, store_plan.Case.read, store_plan.read_variant):
        try:
            parse(text)
        except SondeError:
            continue


_REPORT = {
    "up_s": 5.0,
    "auth": "none",
    "roles": [
        {
            **{"role": "kv", "backend": "memory", "detail": "x", "messages": 3, "syncs": 1, "broken": "y"},
            **{f"{stage}_{at}_s": 1e-3 for stage in ("wait", "backend", "sync") for at in ("p50", "p99")},
        }
    ],
    "operations": {"kv.put": 3},
    "outcomes": {},
    **{
        "connections": 1,
        "connections_ever": 2,
        "refused": 1,
        "bad_frames": 1,
        "bytes_in": 5,
        "bytes_out": 1 << 63,
    },
    **{"last_error": "z", "last_error_s_ago": 5.0, "last_refused": "", "last_refused_s_ago": 0},
}


@parser("store-report", json.dumps(_REPORT), "{}", "")
def read_report(data: bytes) -> None:
    """What a server says of itself: whatever is taken can be shown."""
    status = ServerStatus("h:1", ["kv"], "tcp", "", "", server_status.report_of(data, "h:1"))
    server_status.tables(status)
    server_status.warnings([status])
    server_status.verdict([status])
    server_status.troubled(status)
    json.dumps(server_status.as_json("h:1", status))


_PERMISSIONS = "<publish><topics><topic>a</topic></topics></publish><min>0</min><max>232</max>"


@cache
def _certificate() -> bytes:
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a")])
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, begin, begin + timedelta(days=9))
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@parser("bus-keys", made=lambda: [_certificate() + b"\0" + _PERMISSIONS.encode()])
def read_keys(data: bytes) -> None:
    """An identity of a folder of keys."""
    home = _fresh("keys")
    certificate, permissions = _parts(data, 2)
    (home / "cert.pem").write_bytes(certificate)
    (home / "permissions.p7s").write_bytes(permissions)
    assert run_keys._identity(home).name == "keys"


@parser("bus-words", "cyclonedds/udp4/peers", "mine=cyclonedds,batch=1ms", "latency,fanout")
def read_bus_words(data: bytes) -> None:
    text = _text(data)
    for parse in (bus_variants.read_variant, lambda one: bus_cases.read_tests([one])):
        try:
            parse(text)
        except SondeError:
            continue


_PLAN = {
    "name": "a",
    "hostnames": ["a-0"],
    "addresses": ["10.0.0.1"],
    "subnet": "10.0.0.0/24",
    "private": [],
}


@parser(
    "cluster-state",
    json.dumps(
        {"plan": _PLAN, "pid": 5, "started": 7, "complete": True, "created_utc": "", "space": "net:[1]"}
    ),
)
def read_cluster_state(data: bytes) -> None:
    """What a cluster's folder says; None where it says nothing."""
    folder = _fresh("cluster")
    (folder / "state.json").write_bytes(data)
    kept = run_state.kept_in(folder)
    assert kept is None or isinstance(kept.reaper.pid, int)


@parser(
    "cluster-plan",
    json.dumps(
        {"name": "a", "hostnames": ["a-0"], "addresses": ["10.0.0.1"], "subnet": "10.0.0.0/24", "private": []}
    ),
    errors=(KeyError, TypeError, ValueError),
)
def read_cluster_plan(data: bytes) -> None:
    ClusterPlan.from_json(_mapping(data))

"""The installed MPIs: whether a probe was built for each, whether ranks start, and the transports."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sonde.core import distribution, launch
from sonde.core.diagnosis import FACT, GOOD, NONE, POOR, Answer, Here, Need, check
from sonde.core.launch.mpirun import FLAVOURS, Mpi, Mpirun, candidates
from sonde.core.launch.process import ProbeProcess
from sonde.core.surroundings import place_of_ranks

HELLO_S = 30.0
PROBE = "sonde-net"
NAMES = {"openmpi": "Open MPI", "mpich": "MPICH"}


def _found(flavour: str) -> Mpi | None:
    return next((mpi for mpi in candidates() if mpi.flavour == flavour), None)


def _installed(flavour: str) -> Answer:
    """Check mpirun, its probe, whether the probe uses the library of this mpirun, and a hello of 2 ranks."""
    mpi = _found(flavour)
    built = flavour in launch.built_flavours() and (launch.libexec() / flavour / PROBE).exists()
    values: dict[str, Any] = {"mpirun": None, "version": None, "built": built, "works": False}
    install = distribution.install(flavour)
    if mpi is None:
        text = "built, but no mpirun is found" if built else "not installed"
        return Answer(text, POOR if built else NONE, values, [Need(NAMES[flavour], install)])
    values |= {"mpirun": str(mpi.mpirun), "version": mpi.version, "name": mpi.name}
    if not built:
        need = Need(f"{PROBE} for {mpi.name}", f"{install}, then 'make setup'")
        return Answer(f"{mpi.version}, {mpi.mpirun}; no probe was built for it", NONE, values, [need])
    probe = launch.probe(PROBE, flavour)
    version = probe_version(Here().run([str(probe), "--version"], 10).out)
    values["probe"] = version
    if not version:
        text = (
            f"{mpi.version}, {mpi.mpirun}; {PROBE} does not start: its library is missing or is another one"
        )
        return Answer(text, NONE, values, [Need(f"{PROBE} for {mpi.name}", "make setup")])
    hello = say_hello(mpi, probe)
    values |= {"works": hello == "", "error": hello or None}
    if hello:
        return Answer(f"{mpi.version}, {mpi.mpirun}; two ranks do not start: {hello}", NONE, values)
    text = f"{mpi.version}, {mpi.mpirun}; two ranks start"
    theirs, ours = number(str(version.get("mpi_version", ""))), number(mpi.version)
    if theirs and ours and theirs[:2] != ours[:2]:
        advice = f"{PROBE} uses the library of {version['mpi_version']}: run 'make setup' again to build it for {mpi}"
        return Answer(text, POOR, values, advice=advice)
    return Answer(text, GOOD, values)


@check("openmpi", NAMES["openmpi"], "MPI", HELLO_S + 15)
def openmpi(here: Here) -> Answer:
    return _installed("openmpi")


@check("mpich", NAMES["mpich"], "MPI", HELLO_S + 15)
def mpich(here: Here) -> Answer:
    return _installed("mpich")


def probe_version(text: str) -> Mapping[str, Any]:
    """The output of `sonde-net --version`; {} if it is not valid."""
    try:
        answer = json.loads(text)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) and "mpi" in answer else {}


def say_hello(mpi: Mpi, probe: Path) -> str:
    """Start two ranks that only report where they are; "" if both did, else the failure."""
    events: list[Mapping[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="sonde-doctor-") as folder:
        command = Mpirun(found=mpi).command([str(probe), "--hello"], [], 2, {})
        with ProbeProcess(command, Path(folder), events.append, cwd=place_of_ranks()) as run:
            ending = run.wait(HELLO_S)
    if ending.error:
        return ending.error.what
    ranks = next((event.get("ranks") for event in events if event.get("event") == "hello"), None)
    if ranks == 2:
        return ""
    return (
        f"no answer within {HELLO_S:g} s"
        if ending.reason == "timeout"
        else f"{ranks or 'none'} of 2 answered"
    )


def number(text: str) -> tuple[int, ...]:
    """The first dotted number of a text: (4, 1, 4) for "Open MPI v4.1.4"."""
    match = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


@check("transports", "Transports", "MPI", 20)
def transports(here: Here) -> Answer:
    """The transports that each MPI was built with. A run's dataset records those that it uses."""
    values: dict[str, Any] = {}
    descriptions = []
    for flavour in FLAVOURS:
        mpi = _found(flavour)
        if mpi is None:
            continue
        names = openmpi_transports(here, mpi) if flavour == "openmpi" else mpich_transports(here, mpi)
        values[flavour] = names
        descriptions.append(f"{mpi.name}: {', '.join(names) or 'unknown'}")
    if here.which("ucx_info"):
        devices = re.findall(r"Transport:\s*(\S+)", here.run(["ucx_info", "-d"], 10).out)
        values["ucx"] = sorted(set(devices))
    if here.which("fi_info"):
        values["libfabric"] = sorted(set(re.findall(r"^(\w+):", here.run(["fi_info", "-l"], 10).out, re.M)))
        descriptions.append(f"libfabric: {', '.join(values['libfabric']) or 'none'}")
    return Answer("; ".join(descriptions) or "no MPI", FACT if descriptions else NONE, values)


def openmpi_transports(here: Here, mpi: Mpi) -> list[str]:
    """Transports among Open MPI's components: its own (btl), and the libraries that it can pass messages to."""
    program = beside(mpi, "ompi_info", here)
    out = here.run([program, "--parsable"], 15).out if program else ""
    parts = set(re.findall(r"^mca:(btl|pml|mtl):(\w+):version", out, re.M))
    known = {
        ("btl", "vader"): "shared memory (vader)",
        ("btl", "sm"): "shared memory (sm)",
        ("btl", "tcp"): "tcp",
        ("pml", "ucx"): "ucx",
        ("mtl", "ofi"): "libfabric",
        ("btl", "openib"): "verbs",
        ("mtl", "psm2"): "psm2",
    }
    return [name for part, name in known.items() if part in parts]


def mpich_transports(here: Here, mpi: Mpi) -> list[str]:
    """MPICH's device, chosen at its build: "ch4:ucx" is shared memory within a host, UCX between hosts."""
    out = here.run([str(mpi.mpirun), "--version"], 15).out
    if not (match := re.search(r"--with-device=([\w:]+)", out)) and (
        program := beside(mpi, "mpichversion", here)
    ):
        match = re.search(r"Device:\s*([\w:]+)", here.run([program], 15).out)
    if not match:
        return []
    net = match[1].partition(":")[2]
    return [f"shared memory ({match[1].partition(':')[0]})", {"ofi": "libfabric"}.get(net, net or "tcp")]


def beside(mpi: Mpi, program: str, here: Here) -> str | None:
    """A program of the same MPI: in mpirun's folder, else on PATH."""
    for folder in (mpi.mpirun.parent, mpi.mpirun.resolve().parent):
        if (folder / program).exists():
            return str(folder / program)
    return here.which(program)


@check("cma", "Single copy", "MPI", 25)
def cma(here: Here) -> Answer:
    """Cross memory attach, tried between two child processes of one parent."""
    ran = here.run([sys.executable, "-I", "-S", str(Path(__file__).with_name("try_cma.py"))], 20)
    answer = ran.out.strip() or ran.err.strip().splitlines()[-1:] or "no answer"
    scope = here.number("proc/sys/kernel/yama/ptrace_scope")
    kernel = [name for name in ("knem", "xpmem") if (here.root / "dev" / name).exists()]
    values = {"cma": answer == "yes", "ptrace_scope": scope, "modules": kernel}
    more = f"; also {', '.join(kernel)}" if kernel else ""
    if answer == "yes":
        return Answer(f"cross memory attach works between ranks of a host{more}", GOOD, values)
    advice = "large messages within a host are copied twice: sysctl kernel.yama.ptrace_scope=0"
    if scope in (None, 0):
        advice = "large messages within a host are copied twice; a container needs --cap-add=SYS_PTRACE"
    return Answer(f"cross memory attach: {answer}{more}", POOR, values, advice=advice)


CHECKS = (openmpi, mpich, transports, cma)

"""Hints for MPI-IO: by which way a program that is not changed can be given one, and which a finding suggests. Pure.

ROMIO reads a file that ROMIO_HINTS names, in every MPI that has it (Open MPI's romio components, MPICH, Intel MPI).
OMPIO reads none: what a program passes in an MPI_Info reaches it, and so do Open MPI's own parameters, which anybody
can set. ROMIO within Open MPI 5 reads no hint that a program passes when it opens a file, nor then that hint in the
file (seen with 5.0.7).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sonde.core.errors import UsageError

MCA = "mca:"  # before the name of a parameter of Open MPI
VARIABLE = "ROMIO_HINTS"
OF_A_LOAD = "IOR_HINT__MPI__"  # sonde-ioload and IOR pass such variables on in their MPI_Info

# Hints that OMPIO has as parameters. Source: `ompi_info --param io ompio --level 9` of Open MPI 4.1 and 5.0.
OMPIO = {"cb_nodes": "io_ompio_num_aggregators", "cb_buffer_size": "io_ompio_bytes_per_agg"}

# Hints that ROMIO alone has. Source: ROMIO user's guide, 3.1 Hints; of these OMPIO's libraries name none.
_ROMIOS = re.compile(r"romio_\w+|ind_(rd|wr)_buffer_size|cb_config_list|direct_(read|write)")
# Parameters of the frameworks that OMPIO alone is made of. Source: Open MPI's documentation, "OMPIO".
_OMPIOS = re.compile(rf"{MCA}(io_ompio|fcoll|fbtl|fs|sharedfp)(_\w+)?")
# What Open MPI 4 and Open MPI 5 call their ROMIO.
ROMIO = "romio321 (romio341 in Open MPI 5)"


def is_ompio(io: str) -> bool:
    """Whether an --io is OMPIO."""
    return io == "ompio"


def unread(io: str, names: Iterable[str]) -> tuple[str, ...]:
    """Which hints a component does not read, whatever way they come: OMPIO none of ROMIO's, ROMIO none of OMPIO's."""
    others = _ROMIOS if is_ompio(io) else _OMPIOS if io.startswith("romio") else None
    return tuple(name for name in names if others is not None and others.fullmatch(name))


def check_hints(io: str, hints: Mapping[str, str], load: bool) -> None:
    """Refuses a hint that has no way to the stack. load: the program passes variables of IOR on in its MPI_Info.

    Raises
    ------
    UsageError  io.bad_hints.
    """
    for name in hints:
        if is_ompio(io) and not load and not name.startswith(MCA) and name not in OMPIO:
            raise UsageError(
                "io.bad_hints",
                f"the hint {name} has no way to OMPIO but through the program itself; allowed from outside: "
                f"{', '.join(OMPIO)}, and parameters as mca:fcoll=individual",
                f"measure it with --io {ROMIO}, or with sonde-ioload",
            )


def environment(io: str, hints: Mapping[str, str], load: bool, file: str) -> tuple[dict[str, str], str]:
    """Variables that give a program hints, and what the file that ROMIO_HINTS names must hold; "" for no file.

    io : Open MPI's component, or "default". load: as for `check_hints`. file: where it will be
    """
    env = {} if io == "default" else {"OMPI_MCA_io": io}
    lines = []
    for name, value in hints.items():
        if name.startswith(MCA):
            env[f"OMPI_MCA_{name.removeprefix(MCA)}"] = value
            continue
        if load and not io.startswith("romio"):
            env[f"{OF_A_LOAD}{name}"] = value
        elif not is_ompio(io):
            lines.append(f"{name} {value}\n")
        if is_ompio(io) and name in OMPIO:
            env[f"OMPI_MCA_{OMPIO[name]}"] = value
    if lines:
        env[VARIABLE] = file
    return env, "".join(lines)


def not_taken(hints: Mapping[str, str], of_file: Mapping[str, str]) -> dict[str, str]:
    """The hints that the open file has with another value than was given: name -> the file's value.

    of_file: what MPI_File_get_info tells. A hint that it does not name cannot be judged: Open MPI tells few.
    """
    return {
        name: of_file[name]
        for name, value in hints.items()
        if name in of_file and of_file[name].strip().lower() != value.strip().lower()
    }


def merged(text: str, hints: Mapping[str, str]) -> str:
    """A file of hints, "name value" a line, with some of them changed or added."""
    kept = [line for line in text.splitlines() if line.split()[:1] and line.split()[0] not in hints]
    return "".join(f"{line}\n" for line in (*kept, *(f"{name} {value}" for name, value in hints.items())))


@dataclass(frozen=True)
class Trial:
    """What may be tried for a finding without changing the program.

    hints: for ROMIO, through the file of ROMIO_HINTS. variables: for OMPIO, Open MPI's parameters. One of both is
    empty. direction: the finding is of "read" or "write" alone; "" of both.
    """

    code: str
    text: str
    hints: tuple[tuple[str, str], ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    direction: str = ""

    @property
    def channel(self) -> str:
        """How the program is given it, in words."""
        return f"the file of {VARIABLE}" if self.hints else "parameters of Open MPI (OMPI_MCA_…)"


@dataclass(frozen=True)
class Untried:
    """A finding that cannot be tried without changing the program, and why."""

    code: str
    why: str


def trials(found: Sequence[Any], middle: str) -> tuple[list[Trial], list[Untried]]:
    """What each finding of a trace suggests that can be tried, once each.

    found : of `findings.findings`. middle: "romio", "ompio", or "" where neither layer was called: an MPI that hides
    its own, as MPICH, whose ROMIO reads the file as well
    """
    made: dict[tuple[Any, ...], Trial] = {}
    untried: list[Untried] = []
    for one in found:
        trial = _trial(one, middle)
        if isinstance(trial, Trial):
            made.setdefault((trial.hints, trial.variables), trial)
        elif trial is not None and trial not in untried:
            untried.append(trial)
    return list(made.values()), untried


def direction_of(finding: Any) -> str:
    """Whether a finding is of reading or of writing alone: there may be one of each, and one hint mends one."""
    return str(finding.evidence.get("direction", ""))


_BY_HAND = {
    "io.small_requests": "larger requests take a change of the program",
    "io.split_requests": "which buffer is too small depends on the program's pattern",
    "io.sync": "how often the program syncs is its own affair",
    "io.metadata": "how often the program opens and asks is its own affair",
    "io.uneven": "who does how much is the program's own affair",
    "io.failed_calls": "why a call failed is for the program to say",
    "io.slow_server": "a server is mended where it is, not by a hint",
    "io.slow_server_link": "a link is mended where it is, not by a hint",
}


def _trial(one: Any, middle: str) -> Trial | Untried | None:
    code = str(one.code)
    gathering = code in ("io.small_requests", "io.split_requests") and one.evidence.get("collective")
    if code in _BY_HAND and not gathering:
        return Untried(code, _BY_HAND[code])
    if code == "io.tracer_overhead":
        return None  # of the tracer, which no trial has on
    hints: dict[str, str] = {}
    variables: dict[str, str] = {}
    if code == "io.collective_exchange":
        direction = str(one.evidence.get("direction", "write"))
        if middle == "ompio":
            variables = {"OMPI_MCA_fcoll": "individual"}
            text = "each rank by itself (fcoll individual)"
        else:
            hints = {f"romio_cb_{direction}": "disable"}
            text = f"no aggregators (romio_cb_{direction}=disable)"
    elif gathering:  # collective calls that the library has not made large ones of
        direction = str(one.evidence.get("direction", "write"))
        if middle == "ompio":
            variables = {"OMPI_MCA_io": "^ompio"}
            text = "another implementation of MPI-IO (io ^ompio)"
        else:
            hints = {f"romio_cb_{direction}": "enable"}
            text = f"collective buffering whatever the requests are like (romio_cb_{direction}=enable)"
    elif code in ("io.read_to_write", "io.read_more"):
        direction = "write" if code == "io.read_to_write" else "read"
        if middle == "ompio":
            return Untried(code, f"OMPIO has no switch for data sieving; --mca io {ROMIO} has")
        hints = {f"romio_ds_{direction}": "disable"}
        text = f"no data sieving (romio_ds_{direction}=disable)"
    else:
        return None
    return Trial(code, text, tuple(hints.items()), tuple(variables.items()), direction_of(one))

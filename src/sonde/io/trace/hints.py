"""Hints for MPI-IO: how an unchanged program can get one, and which hint a finding suggests. Pure.

ROMIO reads the file that ROMIO_HINTS names, in every MPI that contains it (Open MPI's romio components, MPICH, Intel
MPI). OMPIO reads no such file: it gets what a program passes in an MPI_Info, and Open MPI's own parameters, which
anybody can set. ROMIO within Open MPI 5 ignores hints that a program passes when it opens a file, and then also ignores
the same hint in the file (seen with 5.0.7)."""

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

# Hints that only ROMIO has. Source: ROMIO user's guide, 3.1 Hints, without those that OMPIO's libraries name.
_ROMIOS = re.compile(r"romio_\w+|ind_(rd|wr)_buffer_size|cb_config_list|direct_(read|write)")
# Parameters of the frameworks that only OMPIO uses. Source: Open MPI's documentation, "OMPIO".
_OMPIOS = re.compile(rf"{MCA}(io_ompio|fcoll|fbtl|fs|sharedfp)(_\w+)?")
# The names of ROMIO in Open MPI 4 and Open MPI 5.
ROMIO = "romio321 (romio341 in Open MPI 5)"


def is_ompio(io: str) -> bool:
    """Whether an --io is OMPIO."""
    return io == "ompio"


def unread(io: str, names: Iterable[str]) -> tuple[str, ...]:
    """The hints that a component does not read, however they come: OMPIO none of ROMIO's, ROMIO none of OMPIO's."""
    others = _ROMIOS if is_ompio(io) else _OMPIOS if io.startswith("romio") else None
    return tuple(name for name in names if others is not None and others.fullmatch(name))


def check_hints(io: str, hints: Mapping[str, str], load: bool) -> None:
    """Refuse a hint that cannot reach the stack. load: the program passes variables of IOR on in its MPI_Info.

    Raises
    ------
    UsageError  io.bad_hints.
    """
    for name in hints:
        if is_ompio(io) and not load and not name.startswith(MCA) and name not in OMPIO:
            raise UsageError(
                "io.bad_hints",
                f"the hint {name} can reach OMPIO only through the program itself; allowed from outside: "
                f"{', '.join(OMPIO)}, and parameters such as mca:fcoll=individual",
                f"use --io {ROMIO}, or sonde-ioload",
            )


def environment(io: str, hints: Mapping[str, str], load: bool, file: str) -> tuple[dict[str, str], str]:
    """Variables that give a program hints, and the content of the file that ROMIO_HINTS names; "" for no file.

    io : Open MPI's component, or "default". load: as for `check_hints`. file: its path
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
    """The hints whose value in the open file differs from the given one: name -> the file's value.

    of_file: the result of MPI_File_get_info. Hints that are not in it cannot be judged: Open MPI returns few.
    """
    return {
        name: of_file[name]
        for name, value in hints.items()
        if name in of_file and of_file[name].strip().lower() != value.strip().lower()
    }


def merged(text: str, hints: Mapping[str, str]) -> str:
    """A file of hints, "name value" a line, with some of them changed or added."""
    unchanged = [line for line in text.splitlines() if line.split()[:1] and line.split()[0] not in hints]
    return "".join(
        f"{line}\n" for line in (*unchanged, *(f"{name} {value}" for name, value in hints.items()))
    )


@dataclass(frozen=True)
class Attempt:
    """A change to try for a finding, without changing the program.

    hints: for ROMIO, through the file of ROMIO_HINTS. variables: for OMPIO, Open MPI's parameters. One of the two is
    empty. direction: "read" or "write" if the finding is only about one; "" for both."""

    code: str
    text: str
    hints: tuple[tuple[str, str], ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    direction: str = ""

    @property
    def channel(self) -> str:
        """How the program gets it, as text."""
        return f"the file of {VARIABLE}" if self.hints else "parameters of Open MPI (OMPI_MCA_…)"


@dataclass(frozen=True)
class Untried:
    """A finding that cannot be tried without changing the program, and why."""

    code: str
    why: str


def attempts(found: Sequence[Any], middle: str) -> tuple[list[Attempt], list[Untried]]:
    """The attempts that the findings of a trace suggest, each once.

    found : from `findings.findings`. middle: "romio", "ompio", or "" if neither layer was called: an MPI that hides its
    own (MPICH), whose ROMIO reads the file as well
    """
    made: dict[tuple[Any, ...], Attempt] = {}
    untried: list[Untried] = []
    for one in found:
        attempt = _attempt(one, middle)
        if isinstance(attempt, Attempt):
            made.setdefault((attempt.hints, attempt.variables), attempt)
        elif attempt is not None and attempt not in untried:
            untried.append(attempt)
    return list(made.values()), untried


def direction_of(finding: Any) -> str:
    """The direction of a finding, "read" or "write"; "" for both: one hint corrects one direction."""
    return str(finding.evidence.get("direction", ""))


_BY_HAND = {
    "io.small_requests": "larger requests need a change of the program",
    "io.split_requests": "which buffer is too small depends on the program's pattern",
    "io.sync": "only the program can change how often it syncs",
    "io.metadata": "only the program can change how often it opens and queries files",
    "io.uneven": "only the program can distribute its work differently",
    "io.failed_calls": "only the program knows why a call failed",
    "io.slow_server": "a server must be repaired; a hint does not help",
    "io.slow_server_link": "a link must be repaired; a hint does not help",
}


def _attempt(one: Any, middle: str) -> Attempt | Untried | None:
    code = str(one.code)
    gathering = code in ("io.small_requests", "io.split_requests") and one.evidence.get("collective")
    if code in _BY_HAND and not gathering:
        return Untried(code, _BY_HAND[code])
    if code == "io.tracer_overhead":
        return None  # a finding about the tracer, not about the program
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
    elif gathering:  # collective calls whose requests the library has not merged
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
    return Attempt(code, text, tuple(hints.items()), tuple(variables.items()), direction_of(one))

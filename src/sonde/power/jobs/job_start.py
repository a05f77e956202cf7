"""The command line and environment with which a job's command starts on each of its nodes. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sonde.core import hostlist
from sonde.core.errors import UsageError
from sonde.power.jobs.jobs import JOB_ID, Part, Spec

KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
"""The variables that a job gets from the job manager's own environment."""
NOTHING_CAME = 125
"""Exit status of a launcher's other end that received no environment."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PLAIN = re.compile(r"[A-Za-z0-9_.:-]+", re.ASCII)

# The script at a launcher's other end that starts the command. Its standard input carries the environment, one variable
# a line, and then nothing until it ends: the command ends with it, because ssh does not end the commands that it
# started. So the environment is in no argument list, which everybody could read. The command has a process group of its
# own; processes that left the group are found by a variable in their environment. $1: seconds between TERM and KILL.
# $2: the file to which this command writes its progress.
REMOTE = (
    'g=$1; m=SONDE_JOB_PROGRESS=$2; shift 2; set -- "$(command -v setsid)" "$@"; e=; '
    "sonde_line=$(printf '\\n.'); sonde_line=${sonde_line%.}; "
    # `command`: a name that the shell does not allow to be set is skipped, and does not end the shell.
    'while IFS= read -r l && [ "$l" != . ]; do e="$e command export $l 2>/dev/null;"; done; '
    '[ "$l" = . ] || { echo "no environment arrived: does the launcher pass on standard input?" >&2; '
    f"exit {NOTHING_CAME}; }}; "
    'exec 3<&0; ( eval "$e"; exec "$@" ) </dev/null 3<&- & p=$!; '
    # Until its process group exists, the process itself is signalled.
    '{ cat <&3; { kill -TERM "-$p" || kill -TERM "$p"; } && sleep "$g" && kill -KILL "-$p"; } >/dev/null 2>&1 & w=$!; '
    # A shell's message about a killed process would kill the shell if nobody reads it any more.
    'exec 3<&- 2>/dev/null; wait "$p"; s=$?; kill -KILL "-$p" 2>/dev/null; kill "$w" 2>/dev/null; '
    'for f in $(grep -lzxFe "$m" /proc/[0-9]*/environ 2>/dev/null); do '
    'f=${f#/proc/}; kill -KILL "${f%/environ}" 2>/dev/null; done; '
    'exit "$s"'
)


@dataclass(frozen=True)
class Start:
    """A command on a node. remote: the words run at a launcher's other end, which reads `told` from its input and ends
    with it.
    """

    node: str
    words: tuple[str, ...]
    environment: Mapping[str, str]
    folder: str
    output: str
    remote: bool
    told: str = ""


def check(spec: Spec, parts: Sequence[Part], nodes: Sequence[str]) -> None:
    """
    Raises
    ------
    UsageError  power.bad_job, power.unknown_node.
    """

    def bad(what: str) -> UsageError:
        return UsageError("power.bad_job", f"job '{spec.job}': {what}")

    if not JOB_ID.fullmatch(spec.job):
        raise bad("its id must have 1 to 64 letters, digits, '_', '.', ':', '-', the first a letter or digit")
    if not spec.command or not spec.command[0]:
        raise bad("it has no command")
    if not parts:
        raise bad("it has no nodes")
    if any("\0" in text for text in (*spec.command, *spec.environment, spec.folder, spec.output)):
        raise bad("none of its texts may contain a NUL byte")
    for text in spec.environment:
        if not _NAME.fullmatch(text.partition("=")[0]) or "=" not in text:
            raise bad(f"'{text[:60]}' in its environment; allowed: NAME=value")
    for folder in (spec.folder, spec.output):
        if folder and not folder.startswith("/"):
            raise bad(f"'{folder[:60]}' is not an absolute path")
    for part in parts:
        if part.node not in nodes:
            raise UsageError("power.unknown_node", f"job '{spec.job}': no node is called '{part.node}'")
    if len({part.node for part in parts}) < len(parts):
        raise bad("it has a node twice")


def environment(
    spec: Spec, parts: Sequence[Part], index: int, own: Mapping[str, str], progress: str
) -> dict[str, str]:
    """The environment of the command on node `index`. own: the job manager's. progress: the file for its progress."""
    part = parts[index]
    power = spec.demand_w or spec.guaranteed_w
    out = {name: own[name] for name in KEPT if name in own}
    out |= dict(text.split("=", 1) for text in spec.environment)
    out |= {
        "SONDE_JOB_ID": spec.job,
        "SONDE_JOB_NAME": spec.name,
        "SONDE_JOB_NODES": hostlist.fold([one.node for one in parts]),
        "SONDE_JOB_NODE": part.node,
        "SONDE_JOB_INDEX": str(index),
        "SONDE_JOB_COUNT": str(len(parts)),
        "SONDE_JOB_POWER_W": f"{power * len(parts):g}" if power > 0 else "",
        "SONDE_JOB_CORES": ",".join(map(str, part.cores)),
        "SONDE_JOB_PROGRESS": progress,
    }
    return out


def starts(
    spec: Spec,
    parts: Sequence[Part],
    launcher: Sequence[str],
    own: Mapping[str, str],
    home: str,
    grace_s: float,
) -> list[Start]:
    """The commands of a job, one for each node. home: the folder for its output files, and its working folder if it
    sets none.
    """
    folder = spec.folder or home
    out = []
    for index, part in enumerate(parts):
        variables = environment(spec, parts, index, own, f"{home}/progress.{index}")
        output = spec.output or (f"{home}/output" if len(parts) == 1 else f"{home}/output.{part.node}")
        if not launcher:
            out.append(Start(part.node, spec.command, variables, folder, output, False))
            continue
        # The other end has another folder and an environment of its own: it gets only the variables that the job asked
        # for.
        asked = {text.partition("=")[0] for text in spec.environment}
        pairs = {name: value for name, value in variables.items() if name not in KEPT or name in asked}
        cd = ["/bin/sh", "-c", 'cd -- "$1" && shift && exec "$@"', "sh", folder]
        head_words = [f"{grace_s:g}", f"{home}/progress.{index}"]
        words = ["/bin/sh", "-c", REMOTE, "sh", *head_words, *cd, *spec.command]
        head = [word.replace("{host}", part.node) for word in launcher]
        if _by_shell(head[0]):
            words = [shlex.quote(word) for word in words]
        plain = {name: own[name] for name in (*KEPT, "HOME", "USER", "SSH_AUTH_SOCK") if name in own}
        out.append(Start(part.node, (*head, *words), plain, home, output, True, _lines(pairs)))
    return out


def _lines(pairs: Mapping[str, str]) -> str:
    """The input of REMOTE: arguments of `export`, one variable a line, whatever the value contains."""
    line = '"$sonde_line"'
    last = sorted(
        pairs.items(), key=lambda pair: pair[0] == "sonde_line"
    )  # the other variables are built from it
    out = [f"{name}={line.join(map(shlex.quote, value.split(chr(10))))}" for name, value in last]
    return "\n".join([*out, ".", ""])


def _by_shell(program: str) -> bool:
    """Whether a launcher passes its arguments to a shell at the other end, as one line."""
    return program.rsplit("/", 1)[-1] in ("ssh", "rsh", "pdsh")


def shown(start: Start) -> str:
    return " ".join(word if _PLAIN.fullmatch(word) else shlex.quote(word) for word in start.words)

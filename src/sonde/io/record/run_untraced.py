"""Why a run shows less than the user asked for: no trace, no function of a layer, a command that failed."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from sonde.core.errors import EnvironmentFailure, Warning, typed
from sonde.core.printable import one_line
from sonde.io.maps import run_exports
from sonde.io.maps.layers import Layer
from sonde.io.maps.run_elf import Program, why_not
from sonde.io.maps.table import rule_names
from sonde.io.record.run_request import STARTERS, STARTERS_OF_RANKS, Request, system_tools
from sonde.io.trace import run_close


def of_status(status: int, command: Sequence[str], interrupted: bool) -> list[Warning]:
    """The warning about a command that failed; [] for one that ended well or was interrupted."""
    if status == 0 or interrupted:
        return []
    how = f"with exit status {status}"
    if status > 128:
        with suppress(ValueError):
            how = f"by signal {status - 128} ({signal.Signals(status - 128).name})"
    return [
        Warning(
            "io.command_failed",
            f"'{one_line(Path(command[0]).name)}' ended {how}; the trace holds its calls until then",
            "see its own messages above",
        )
    ]


def not_exported(request: Request, run_dir: Path) -> list[Warning]:
    """Warnings about functions in the user's own maps that no library of the traced processes exports."""
    own = [layer for layer in request.layers if not layer.shipped]
    if not own:
        return []
    seen = {Path(library) for _, _, _, library in run_close.functions(run_dir)}
    probed = {symbol for _, _, symbol, _ in run_close.functions(run_dir, "watch.functions")}
    lost = run_exports.nowhere(run_exports.found_in(own, sorted(path for path in seen if path.exists())))
    unseen = [
        Warning(
            "io.layer_not_found",
            f"no function of the layer '{layer.name}' was found in the traced programs: "
            f"{run_exports.why_nothing(layer)}",
            f"{typed('sonde', 'io', 'layers', 'check', '--map', layer.source)} lists what the libraries "
            "here export",
        )
        for layer in own
        if not (
            request.uprobes or request.attach or _found(request, run_dir, layer)
        )  # `Watching` reports on these
    ]
    return unseen + [
        Warning(
            "io.not_exported",
            f"no library of the traced programs exports '{name}'{near}, which a layer map lists",
            "correct the map, or delete the name from it",
        )
        for name, near in lost.items()
        if name not in probed
    ]


def _found(request: Request, run_dir: Path, layer: Layer) -> bool:
    """Whether any traced program has a function of a layer."""
    rules = {
        k for k, (number, *_) in enumerate(rule_names(request.layers)) if request.layers[number] is layer
    }
    return any(rule in rules for _, rule, _, _ in run_close.functions(run_dir))


def nothing_traced(request: Request, status: int, refused: Sequence[Warning]) -> EnvironmentFailure:
    """The error for a run without a trace. Its exit code is the command's, or an error code after success: the user
    asked for a trace."""
    error = _why_nothing(request, status, refused)
    error.exit = status or error.exit
    return error


def _why_nothing(request: Request, status: int, refused: Sequence[Warning]) -> EnvironmentFailure:
    """The error with a reason: the tracer's own message, the first program that it cannot enter, or no traced call."""
    layers = ", ".join(layer.name for layer in request.layers)
    if not request.command:
        return EnvironmentFailure(
            "io.nothing_traced",
            f"nothing was traced: no function of {layers} was called during that time",
            "trace for longer, or while the processes work; --kernel traces system calls, too",
        )
    reason, hint = (
        _refused(refused)
        or _environment_lost(request.command)
        or _not_entered(request)
        or _starters_only(request)
        or (
            f"no traced process called a function of {layers}",
            f"{typed('sonde', 'io', 'layers', 'check', request.command[0])} shows what can be traced in it",
        )
    )
    return EnvironmentFailure(
        "io.nothing_traced", f"nothing was traced (exit status {status}): {reason}", hint
    )


_Reason = tuple[str, str] | None  # the reason and the hint, if this is why


def _refused(refused: Sequence[Warning]) -> _Reason:
    """The reports of the tracer itself."""
    return (refused[0].evidence, refused[0].hint) if refused else None


def _environment_lost(command: Sequence[str]) -> _Reason:
    """The command removes the variables that load the tracer."""
    if clears := _clears(command):
        return (
            f"'{clears}' clears the environment, and with it the variables that load the tracer",
            f"leave that out, or put it before Sonde: {typed(*clears.split())} {typed('PATH=…')} sonde io run -- …",
        )
    own = next((word for word in command if word.startswith("LD_PRELOAD=")), "")
    if own or "LD_PRELOAD" in command:
        what = own.partition("=")[2] or "LIBRARY"
        return (
            "the command sets LD_PRELOAD itself, which removes the tracer",
            f"set it for Sonde instead, which adds the tracer to it: {typed('env', f'LD_PRELOAD={what}')} "
            "sonde io run …",
        )
    return None


def _not_entered(request: Request) -> _Reason:
    """A program of the command cannot load the tracer."""
    for word in request.command:
        found = shutil.which(word)
        reason = why_not(Program.read(Path(found))) if found and Path(found).name not in STARTERS else ""
        if reason:
            return (
                f"{found} {reason}",
                "it has no function that a layer map lists, perhaps because it is stripped; --kernel traces its "
                "system calls"
                if request.uprobes
                else "as root, --uprobes traces functions that it contains and names, and --kernel its system calls",
            )
    return None


def _starters_only(request: Request) -> _Reason:
    """Only a program ran that mostly starts others."""
    if not (left_out := _left_out(request)):
        return None
    return (
        f"only {left_out} ran, a program that mostly starts others; its own calls are left out",
        f"{typed('sonde', 'io', 'run', '--starters', '--', *request.command)} traces it, too",
    )


def _clears(command: Sequence[str]) -> str:
    """The words with which an env in the command removes LD_PRELOAD: "env -i"; "" if there are none."""
    for k, word in enumerate(command):
        if Path(word).name != "env":
            continue
        rest = list(command[k + 1 :])
        for at, option in enumerate(rest):
            if option in ("-", "--ignore-environment") or re.fullmatch(r"-[0v]*i[0iv]*", option):
                return f"env {option}"
            if option in ("-u", "--unset") and rest[at + 1 : at + 2] == ["LD_PRELOAD"]:
                return f"env {option} LD_PRELOAD"
            if option in ("-uLD_PRELOAD", "--unset=LD_PRELOAD"):
                return f"env {option}"
            if not option.startswith("-") and "=" not in option and rest[at - 1 : at] not in (["-u"], ["-C"]):
                break
    return ""


def _left_out(request: Request) -> str:
    """The name of the first program in the command that is left out because it mostly starts others; "" if there is
    none."""
    if request.starters:
        return ""
    tools = set(system_tools())
    for word in request.command:
        found = shutil.which(word)
        if found and (Path(found).name in STARTERS_OF_RANKS or os.path.realpath(found) in tools):
            return Path(word).name
    return ""

"""From any exception to what the user is told: the same four things every time, and an exit code."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass

import click

from sonde.core import config
from sonde.core.errors import Exit, SondeError, nearest
from sonde.core.options import SHARED


@dataclass(frozen=True)
class Fault:
    """What failed, what to type next, where the log is, and with which code to exit. See core/errors.py."""

    code: str
    what: str
    hint: str = ""
    log: str = ""
    exit: Exit = Exit.INTERNAL

    def as_json(self) -> dict[str, str]:
        return {"code": self.code, "what": self.what, "hint": self.hint, "log": self.log}


# The machine's refusals, wherever they come up; any other OSError is a mistake of ours.
_MACHINE = {
    errno.ENOSPC: "make room there, or choose another place with --output",
    errno.EDQUOT: "make room there, or choose another place with --output",
    errno.EACCES: "choose another place, or ask its owner",
    errno.EPERM: "choose another place, or ask its owner",
    errno.EROFS: "choose another place with --output",
    errno.EIO: "the device is failing; see dmesg",
    errno.EMFILE: "raise the limit of open files with ulimit -n",
    errno.ENFILE: "too many files are open on this machine",
    errno.ENOMEM: "free some memory, or ask for less",
}


def fault_of(error: BaseException) -> Fault:
    """What to tell about an exception that left a command."""
    if isinstance(error, SondeError):
        return Fault(error.code, error.what, error.hint, error.log, error.exit)
    if isinstance(error, click.ClickException):
        return _usage(error)
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return Fault("core.interrupted", "interrupted", exit=Exit.INTERRUPTED)
    if isinstance(error, OSError) and error.errno in _MACHINE:
        where = f"{error.filename}: " if error.filename else ""
        reason = (error.strerror or str(error)).lower()
        return Fault("core.refused", f"{where}{reason}", _MACHINE[error.errno], exit=Exit.ENVIRONMENT)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Fault(
        "core.internal",
        f"internal: {text}",
        "a mistake in Sonde: run it again with --debug, and report what it prints to Sonde's developers",
    )


def _usage(error: click.ClickException) -> Fault:
    """click's complaints in our words, each with the nearest thing there is."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "sonde"
    name = path.split()[-1]
    listing = f"'{path} --help' lists what there is"
    message = error.message.rstrip(".")

    def say(code: str, what: str, hint: str = listing) -> Fault:
        return Fault(code, what, hint, exit=Exit.USAGE)

    if isinstance(error, click.NoSuchOption):
        known = [opt for p in context.command.params for opt in p.opts] if context else []
        shared = {"--" + option.replace("_", "-") for option in SHARED}
        if error.option_name in shared and isinstance(getattr(context, "command", None), click.Group):
            return say(
                "core.no_option",
                f"{error.option_name} belongs after the verb",
                f"{path} ... {error.option_name} ...",
            )
        return say(
            "core.no_option", f"{name} has no option {error.option_name}{nearest(error.option_name, known)}"
        )
    if match := re.match(r"No such command '(.*)'", message):
        known = context.command.list_commands(context) if context else []
        kind = "command" if name == "sonde" else "verb"
        return say("core.no_command", f"{name} has no {kind} '{match[1]}'{nearest(match[1], known)}")
    if isinstance(error, click.MissingParameter) and error.param:
        usage = context.get_usage().replace("Usage: ", "") if context else ""
        return say(
            "core.missing", f"{name} needs {config.spelt(error.param)}", f"usage: {' '.join(usage.split())}"
        )
    if isinstance(error, click.BadParameter) and error.param:
        spelt = config.spelt(error.param)
        if (value := re.match(r"'?(.*?)'? is not (?:one of|in the range|a valid)", message)) is not None:
            allowed = config.allowed(error.param)
            choices = [str(c) for c in getattr(error.param.type, "choices", ())]
            return say(
                "core.bad_value",
                f"{spelt}: '{value[1]}' is not allowed{nearest(value[1], choices)}; allowed: {allowed}",
            )
        return say("core.bad_value", f"{spelt}: {message[:1].lower()}{message[1:]}")
    if match := re.match(r"Option '(.*)' requires", message):
        return say("core.missing", f"{match[1]} needs a value")
    if match := re.match(r"Option '(.*)' does not take a value", message):
        return say("core.bad_value", f"{match[1]} takes no value")
    if match := re.match(r"Got unexpected extra arguments? \((.*)\)", message):
        return say("core.extra", f"{name} does not know what to do with '{match[1]}'")
    return say("core.usage", message[:1].lower() + message[1:])

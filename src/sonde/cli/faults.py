"""From any exception to the message for the user: always the same four parts, and an exit code."""

from __future__ import annotations

import errno
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sonde.core import config
from sonde.core.errors import Exit, SondeError, Warning, nearest
from sonde.core.options import SHARED

if TYPE_CHECKING:
    from sonde.core.dataset import Check


@dataclass(frozen=True)
class Fault:
    """An error: its cause, the next command, the log, and the exit code. See core/errors.py.

    warnings: those known before the failure.
    """

    code: str
    what: str
    hint: str = ""
    log: str = ""
    exit: int = Exit.INTERNAL
    warnings: list[Warning] = field(default_factory=list)

    def as_json(self) -> dict[str, str]:
        return {"code": self.code, "what": self.what, "hint": self.hint, "log": self.log}


# Refusals of the machine, wherever they occur; any other OSError is a mistake of ours.
_MACHINE = {
    errno.ENOSPC: "make room there, or choose another place with --output",
    errno.EDQUOT: "make room there, or choose another place with --output",
    errno.EACCES: "choose another place, or ask its owner",
    errno.EPERM: "choose another place, or ask its owner",
    errno.EROFS: "choose another place with --output",
    errno.EIO: "the device is failing; see dmesg",
    errno.EMFILE: "raise the limit of open files with ulimit -n",
    errno.ENFILE: "too many files are open on this machine",
    errno.ENOMEM: "free some memory, or request less",
}


def fault_of(error: BaseException) -> Fault:
    """The message about an exception that left a command."""
    if isinstance(error, SondeError):
        return Fault(error.code, error.what, error.hint, error.log, error.exit, error.warnings)
    if isinstance(error, click.ClickException):
        return _usage(error)
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return Fault("core.interrupted", "interrupted", exit=Exit.INTERRUPTED)
    if isinstance(error, OSError) and error.errno in _MACHINE:
        where = f"{error.filename}: " if error.filename else ""
        reason = (error.strerror or str(error)).lower()
        return Fault("core.refused", f"{where}{reason}", _MACHINE[error.errno], exit=Exit.ENVIRONMENT)
    if isinstance(error, FileNotFoundError) and _folder_is_gone():
        what = "the current folder was removed, but the command needs it for its files"
        return Fault("core.no_folder", what, "change to a folder that exists: cd", exit=Exit.ENVIRONMENT)
    dataset = sys.modules.get(
        "sonde.core.dataset"
    )  # loaded by any command that has read one; --help must be quick
    if dataset is not None and (data_error := dataset.blamed(error, _room_check)):
        return fault_of(data_error)
    if isinstance(error, MemoryError):
        reason = f"not enough memory{f': {error}' if str(error) else ''}"
        return Fault("core.refused", reason, _MACHINE[errno.ENOMEM], exit=Exit.ENVIRONMENT)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Fault(
        "core.internal",
        f"internal: {text}",
        "a mistake in Sonde: run it again with --debug, and report what it prints to Sonde's developers",
    )


def _folder_is_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    except OSError:  # such as a folder above that must not be read
        return False
    return False


def _room_check(path: Path, any_size: bool) -> Check:
    """The check of a dataset's room; loaded only after an error."""
    from sonde.data.validate import room_check

    return room_check(path, any_size)


def _usage(error: click.ClickException) -> Fault:
    """click's messages in our words, each with the nearest known name."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "sonde"
    name = path.split()[-1]
    message = error.message.rstrip(".")
    # click's parser does not report the command that it was parsing for.
    more = f"more: '{path} --help'" if context else "more: the same line with --help"

    def say(code: str, what: str, hint: str = more) -> Fault:
        return Fault(code, what, hint, exit=Exit.USAGE)

    if isinstance(error, click.NoSuchOption) and context:
        return say("core.no_option", *_no_option(error.option_name, context))
    if (match := re.match(r"No such command '(.*)'", message)) and context:
        near = nearest(match[1], context.command.list_commands(context))
        what = f"sonde has no command '{match[1]}'" if name == "sonde" else f"there is no verb '{match[1]}'"
        return say("core.no_command", what + near, f"'{path} --help' lists them")
    if isinstance(error, click.MissingParameter) and error.param:
        usage = context.get_usage().replace("Usage: ", "") if context else ""
        return say(
            "core.missing", f"{name} needs {config.spelt(error.param)}", f"usage: {' '.join(usage.split())}"
        )
    if isinstance(error, click.BadParameter) and error.param:
        spelt = config.spelt(error.param)
        if match := re.match(r"'?(.*?)'? is not (?:one of|in the range|a valid)", message):
            near = nearest(match[1], [str(choice) for choice in getattr(error.param.type, "choices", ())])
            allowed = config.allowed(error.param)
            return say("core.bad_value", f"{spelt}: '{match[1]}' is not allowed{near}; allowed: {allowed}")
        return say("core.bad_value", f"{spelt}: {message[:1].lower()}{message[1:]}")
    if match := re.match(r"Option '(.*)' requires", message):
        return say("core.missing", f"{match[1]} needs a value")
    if match := re.match(r"Option '(.*)' does not take a value", message):
        return say("core.bad_value", f"{match[1]} takes no value")
    if match := re.match(r"Got unexpected extra arguments? \((.*)\)", message):
        return say("core.extra", f"{name} does not accept the argument '{match[1]}'")
    return say("core.usage", message[:1].lower() + message[1:])


def _no_option(option: str, context: click.Context) -> tuple[str, str]:
    """The message about an option that a command does not have, and the hint."""
    path = context.command_path
    if isinstance(context.command, click.Group) and option.lstrip("-").replace("-", "_") in SHARED:
        between = "<room> <verb>" if context.parent is None else "<verb>"
        return f"{option} must follow the verb", f"{path} {between} {option} ..."
    # All options have the same dashes, which would make any two options look alike.
    known = [name.lstrip("-") for param in context.command.params for name in param.opts]
    near = nearest(option.lstrip("-"), known).replace("nearest: ", "nearest: --")
    return f"{path.split()[-1]} has no option {option}{near}", f"'{path} --help' lists them"

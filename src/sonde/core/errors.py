"""Errors, warnings and exit codes: how Sonde reports problems."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import IntEnum
from typing import Any

from sonde.core.printable import command_line


class Exit(IntEnum):
    """Exit codes of `sonde`, the same for every command."""

    DONE = 0  # reaching a cap or a budget is a result, not an error
    FINDING = 1  # only check, diff, noise run, store and bus conformance, power demo and status
    USAGE = 2
    ENVIRONMENT = 3
    INCOMPLETE = 4  # saved, but at least one requested cell has no data
    INTERNAL = 5
    INTERRUPTED = 130  # Ctrl-C; what was measured is saved


class SondeError(Exception):
    """The failure, the value and what is allowed (`what`); what to type next (`hint`); where the log is.

    `code` is stable ("net.peer_timeout") and appears in JSON. `exit` is the command's exit code. warnings: those known
    when the error came; no outcome is left to report them.
    """

    exit: int = Exit.ENVIRONMENT

    def __init__(self, code: str, what: str, hint: str = "", log: str = "") -> None:
        super().__init__(what)
        self.code, self.what, self.hint, self.log = code, what, hint, log
        self.warnings: list[Warning] = []

    def beside(self, warnings: Sequence[Warning]) -> None:
        """Add warnings to report with this error, without duplicates and without those that only repeat the error."""
        for warning in warnings:
            if warning.evidence != self.what and warning not in self.warnings:
                self.warnings.append(warning)


class UsageError(SondeError):
    """The command line, a config file or an argument is not understood."""

    exit = Exit.USAGE


class DataError(SondeError):
    """A file or an array is not what it must be."""

    exit = Exit.ENVIRONMENT


class EnvironmentFailure(SondeError):
    """The machine lacks something, or something on it failed."""

    exit: int = Exit.ENVIRONMENT


def from_code(code: str, what: str, hint: str = "") -> SondeError:
    """The exception for an error of the native code. Its class follows from the code's kind."""
    return class_of(code, {}, EnvironmentFailure)(code, what, hint)


def class_of(code: str, classes: Mapping[str, type[SondeError]], other: type[SondeError]) -> type[SondeError]:
    """The class for a code: a room's class for the code's kind, UsageError, DataError, or `other`.

    classes: the room's own, by kind ("not_found"). native/core/error_kind.cpp lists the kind of each code; a code that
    is not there, such as one of a newer server, gives `other`.
    """
    from sonde._core import error_kind

    known: dict[str, type[SondeError]] = {"usage": UsageError, "data": DataError, **classes}
    return known.get(error_kind(code) or "", other)


class Interrupted(SondeError):
    """Ctrl-C came before there was a dataset: nothing was measured, or the result was not saved yet."""

    exit = Exit.INTERRUPTED


@dataclass(frozen=True)
class Warning:
    """Something a reader of the result must know. It is stored in the dataset, then printed, then shown in the
    report.
    """

    code: str
    evidence: str
    hint: str = ""

    def as_json(self) -> dict[str, str]:
        return {"code": self.code, "evidence": self.evidence, "hint": self.hint}


@dataclass(frozen=True)
class Finding:
    """Something the tool was asked to look for, and found."""

    code: str
    text: str
    evidence: dict[str, Any] = field(default_factory=dict)
    next: str = ""  # the command for a closer look, which begins with "sonde "; or advice in words

    @property
    def is_command(self) -> bool:
        """Whether `next` is a command line to copy, and not advice in words."""
        return self.next.startswith("sonde ")

    def as_json(self) -> dict[str, Any]:
        return {"code": self.code, "text": self.text, "evidence": self.evidence, "next": self.next}


_REASONS = {
    errno.ENOSPC: "no space left",
    errno.EDQUOT: "your quota is used up",
    errno.EACCES: "you have no permission to write there",
    errno.EPERM: "the operation is not permitted there",
    errno.EROFS: "the file system there is read-only",
    errno.ENOENT: "the folder does not exist, or nothing can be created in it",
    errno.ENOTDIR: "a part of its path is not a folder",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "its symbolic links form a loop",
    errno.EIO: "the device reports an error",
}


def reason_not_written(error: OSError | RuntimeError) -> str:
    """The reason why something could not be written, in our words; the system's text in lower case if we have none.

    The errors of netCDF have numbers below zero, or none: their text is used unchanged.
    """
    number = getattr(error, "errno", None) or 0
    if number > 0:
        return _REASONS.get(number) or os.strerror(number).lower()
    return getattr(error, "strerror", None) or str(error)


def typed(*words: object) -> str:
    """A command line to copy, with shell quoting."""
    return command_line(words)


def nearest(name: str, known: list[str] | tuple[str, ...]) -> str:
    """' (nearest: X)' for a misspelt name, or '' if no known name is close."""
    match = get_close_matches(name, known, n=1, cutoff=0.5)
    return f" (nearest: {match[0]})" if match else ""

"""Errors, warnings and exit codes: how Sonde says that something is wrong."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import IntEnum
from typing import Any

from sonde.core.printable import command_line


class Exit(IntEnum):
    """Exit codes of `sonde`, the same for every command."""

    DONE = 0  # a cap or a budget reached is data, not an error
    FINDING = 1  # only check, diff, noise run, store and bus conformance, power demo and status
    USAGE = 2
    ENVIRONMENT = 3
    INCOMPLETE = 4  # saved, but a requested cell has no data
    INTERNAL = 5
    INTERRUPTED = 130  # Ctrl-C; what was measured is saved


class SondeError(Exception):
    """What failed, which value, what is allowed (`what`); what to type next (`hint`); where the log is.

    `code` is stable ("net.peer_timeout") and appears in JSON. `exit` is the command's exit code. warnings: what was
    known until then, which no outcome is left to tell.
    """

    exit: int = Exit.ENVIRONMENT

    def __init__(self, code: str, what: str, hint: str = "", log: str = "") -> None:
        super().__init__(what)
        self.code, self.what, self.hint, self.log = code, what, hint, log
        self.warnings: list[Warning] = []

    def beside(self, warnings: Sequence[Warning]) -> None:
        """Adds warnings that are to be told with it; what says no more than the error itself, or is there, is not."""
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


class Interrupted(SondeError):
    """Ctrl-C came before there was a dataset: nothing was measured, or it was not yet saved."""

    exit = Exit.INTERRUPTED


@dataclass(frozen=True)
class Warning:
    """Something a reader of the result must know. Kept in the dataset, then printed, then shown in the report."""

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
    next: str = ""  # what to type to look closer, which begins with "sonde "; or what to try, in words

    @property
    def is_command(self) -> bool:
        """Whether `next` is a command line to copy, and not words about what to try."""
        return self.next.startswith("sonde ")

    def as_json(self) -> dict[str, Any]:
        return {"code": self.code, "text": self.text, "evidence": self.evidence, "next": self.next}


_REASONS = {
    errno.ENOSPC: "no space is left there",
    errno.EDQUOT: "your quota there is used up",
    errno.EACCES: "you have no permission to write there",
    errno.EPERM: "that is not permitted there",
    errno.EROFS: "the file system there is read-only",
    errno.ENOENT: "there is no such folder, or nothing can be made in it",
    errno.ENOTDIR: "a part of its path is no folder",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "its symbolic links lead in a circle",
    errno.EIO: "the device fails",
}


def reason_not_written(error: OSError | RuntimeError) -> str:
    """Why something could not be written, in our words; the system's, in lower case, where we have none.

    The errors of netCDF have numbers of their own, below zero, or none: their text is told as it is.
    """
    number = getattr(error, "errno", None) or 0
    if number > 0:
        return _REASONS.get(number) or os.strerror(number).lower()
    return getattr(error, "strerror", None) or str(error)


def typed(*words: object) -> str:
    """A command line to copy: words that a shell would take apart are quoted."""
    return command_line(words)


def nearest(word: str, known: list[str] | tuple[str, ...]) -> str:
    """' (nearest: X)' for a misspelt word, or '' when nothing is near."""
    match = get_close_matches(word, known, n=1, cutoff=0.5)
    return f" (nearest: {match[0]})" if match else ""

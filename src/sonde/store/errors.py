"""The exceptions of the store. Their codes begin with "store."; see docs/reference/store.md."""

from __future__ import annotations

from collections.abc import Sequence

from sonde.core.errors import EnvironmentFailure, SondeError, class_of


class StoreError(EnvironmentFailure):
    """A store, or the connection to it, failed."""


class NotFound(StoreError, KeyError):
    """There is no such key or object. Also a KeyError."""

    def __str__(self) -> str:  # a KeyError would show it in quotes
        return self.what


class Exists(StoreError):
    """The name exists already, but the operation was to create a new one."""


class Unreachable(StoreError, ConnectionError):
    """No server answers, or the connection to it was lost. Also a ConnectionError."""

    def __str__(self) -> str:
        return self.what


class TimedOut(StoreError, TimeoutError):
    """The operation was not done in time. Also a TimeoutError."""

    def __str__(self) -> str:
        return self.what


class Denied(StoreError):
    """The server refuses this client, or the system refuses the server access to a file."""


class BatchError(StoreError):
    """Operations of a batch failed. failed: their indexes in the batch."""

    def __init__(self, code: str, what: str, hint: str = "", failed: Sequence[int] = ()) -> None:
        super().__init__(code, what, hint)
        self.failed = list(failed)


_CLASSES: dict[str, type[SondeError]] = {
    "not_found": NotFound,
    "exists": Exists,
    "unreachable": Unreachable,
    "timed_out": TimedOut,
    "denied": Denied,
}

HINTS = {
    "not_found": "'sonde store ls' lists what there is",
    "exists": "leave 'exclusive' out to replace it",
    "invalid": "see the limits of names and sizes in docs/reference/store.md",
    "too_large": "see the limits of names and sizes in docs/reference/store.md; an object has no such limit",
    "no_space": "make room where the server stores its data: 'sonde store status' shows the place",
    "denied": "the server may not read or write its own files: see its log",
    "io_error": "see the server's log, and dmesg on its machine",
    "corrupt": "try again; if the error returns, the network or the disk damages data",
    "unsupported": "see the backends with 'sonde store status'; memory and null do not survive power loss",
    "aborted": "correct the operation that failed; no operation of this batch was executed on its server",
    "unavailable": "the server is shutting down or too busy; try again",
    "timed_out": "raise the timeout, or ask for less at once",
    "internal": "this is an error in the code of the backend or module that is named: report it to its author",
    "disconnected": "the operation may or may not have been executed; see the server's log, then try again",
}


def from_code(code: str, what: str, hint: str = "") -> SondeError:
    """The exception for an error of the native library, which may have a code of another part ("core.bad_size").

    An unknown code gives a StoreError.
    """
    return class_of(code, _CLASSES, StoreError)(code, what, hint)


def of_status(status: str, what: str) -> SondeError:
    """The exception for an operation's status, such as "no_space". what: the operation and its name."""
    return from_code(f"store.{status}", what, HINTS.get(status, ""))

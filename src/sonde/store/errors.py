"""What can go wrong with a store, as exceptions. Their codes begin with "store."; see docs/reference/store.md."""

from __future__ import annotations

from collections.abc import Sequence

from sonde.core.errors import EnvironmentFailure, SondeError, UsageError


class StoreError(EnvironmentFailure):
    """A store, or the way to it, failed."""


class NotFound(StoreError, KeyError):
    """There is no such key or object. Also a KeyError."""

    def __str__(self) -> str:  # a KeyError would show it in quotes
        return self.what


class Exists(StoreError):
    """There is one already, and the operation was to make a new one."""


class Unreachable(StoreError, ConnectionError):
    """No server answers, or the connection to it was lost. Also a ConnectionError."""

    def __str__(self) -> str:
        return self.what


class TimedOut(StoreError, TimeoutError):
    """It was not done in time. Also a TimeoutError."""

    def __str__(self) -> str:
        return self.what


class Denied(StoreError):
    """The server does not let this client in, or a file does not let the server in."""


class BatchError(StoreError):
    """Operations of a batch failed. failed: their places in the batch."""

    def __init__(self, code: str, what: str, hint: str = "", failed: Sequence[int] = ()) -> None:
        super().__init__(code, what, hint)
        self.failed = list(failed)


# What a caller wrote wrongly, as against what the machine or the server refused.
_USAGE = (
    "bad_address",
    "bad_auth",
    "bad_backend",
    "bad_buffer",
    "bad_distribution",
    "bad_duration",
    "bad_encoding",
    "bad_name",
    "bad_role",
    "bad_safety",
    "bad_setting",
    "bad_size",
    "bad_value",
    "busy",
    "closed",
    "empty_batch",
    "forked",
    "invalid",
    "no_backend",
    "not_loopback",
    "not_started",
    "other_servers",
    "started",
    "too_large",
    "unknown_backend",
    "unknown_transport",
    "usage",
)
_KINDS: dict[str, type[SondeError]] = {
    **{name: UsageError for name in _USAGE},
    "not_found": NotFound,
    "exists": Exists,
    "unreachable": Unreachable,
    "disconnected": Unreachable,
    "unavailable": Unreachable,
    "timed_out": TimedOut,
    "denied": Denied,
    "bad_token": Denied,
    "no_key": Denied,
    "version": Denied,
}

HINTS = {
    "not_found": "'sonde store ls' lists what there is",
    "exists": "leave 'exclusive' out to replace it",
    "invalid": "see the limits of names and sizes in docs/reference/store.md",
    "too_large": "see the limits of names and sizes in docs/reference/store.md; an object has no such limit",
    "no_space": "make room where the server keeps its data: its 'status' says where",
    "denied": "the server may not read or write its own files: see its log",
    "io_error": "see the server's log, and dmesg on its machine",
    "corrupt": "send it again; if it comes back, the network or the disk damages data",
    "unsupported": "ask the server's 'status' for its backends; memory and null keep nothing through power loss",
    "aborted": "correct the operation that failed; nothing of this batch was done on its server",
    "unavailable": "the server is shutting down or too busy; try again",
    "timed_out": "raise the timeout, or ask for less at once",
    "internal": "a fault in the code of the backend or module that is named: tell who wrote it",
    "disconnected": "it may or may not have been done; see the server's log, then try again",
}


def made(code: str, what: str, hint: str = "") -> SondeError:
    """The exception for an error of the native library, be it of another room's part ("core.bad_size").

    A code that is not known makes a StoreError.
    """
    return _KINDS.get(code.rpartition(".")[2], StoreError)(code, what, hint)


def of_status(status: str, what: str) -> SondeError:
    """The exception for an operation's status, such as "no_space". what: the operation and its name."""
    return made(f"store.{status}", what, HINTS.get(status, ""))

"""The exceptions of a bus. Their codes begin with "bus."."""

from __future__ import annotations

from sonde.core.errors import EnvironmentFailure, SondeError, UsageError


class BusError(EnvironmentFailure):
    """A bus, or the machine below it, failed."""


class TimedOut(BusError, TimeoutError):
    """The operation did not finish in time. Also a TimeoutError."""

    def __str__(self) -> str:
        return self.what


class Refused(BusError):
    """A server answered with a code other than ok. reply: the code's name; server: the server's name.

    number: the code as sent; codes from 1000 on belong to the service and are all called "user".
    """

    def __init__(
        self, code: str, what: str, hint: str = "", reply: str = "", server: str = "", number: int = 0
    ) -> None:
        super().__init__(code, what, hint)
        self.reply, self.server, self.number = reply, server, number


# Errors of the caller; all others come from the machine or from an implementation.
_USAGE = (
    "bad_idl",
    "bad_name",
    "bad_profile",
    "bad_type",
    "bad_value",
    "closed",
    "malformed",
    "no_file",
    "no_profile",
    "too_large",
    "unknown_implementation",
    "unknown_key",
    "unknown_topic",
    "unknown_type",
    "unprotected",
    "unsupported",
)
_KINDS: dict[str, type[SondeError]] = {**{name: UsageError for name in _USAGE}, "timed_out": TimedOut}


def made(code: str, what: str, hint: str = "") -> SondeError:
    """The exception for an error of the native library. An unknown code gives a BusError."""
    return _KINDS.get(code.rpartition(".")[2], BusError)(code, what, hint)

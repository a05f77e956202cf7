"""What can go wrong on a bus, as exceptions. Their codes begin with "bus."."""

from __future__ import annotations

from sonde.core.errors import EnvironmentFailure, SondeError, UsageError


class BusError(EnvironmentFailure):
    """A bus, or the machine below it, failed."""


class TimedOut(BusError, TimeoutError):
    """It was not done in time. Also a TimeoutError."""

    def __str__(self) -> str:
        return self.what


class Refused(BusError):
    """A server answered, and with another code than ok. reply: the code's name; server: who said it.

    number: the code as it travels; from 1000 on a service's own, all of which are called "user".
    """

    def __init__(
        self, code: str, what: str, hint: str = "", reply: str = "", server: str = "", number: int = 0
    ) -> None:
        super().__init__(code, what, hint)
        self.reply, self.server, self.number = reply, server, number


# What a caller wrote wrongly, as against what the machine or an implementation refused.
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
    """The exception for an error of the native library. A code that is not known makes a BusError."""
    return _KINDS.get(code.rpartition(".")[2], BusError)(code, what, hint)

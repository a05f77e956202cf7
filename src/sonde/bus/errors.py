"""The exceptions of a bus. Their codes begin with "bus."."""

from __future__ import annotations

from sonde.core.errors import EnvironmentFailure, SondeError, class_of


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


def from_code(code: str, what: str, hint: str = "") -> SondeError:
    """The exception for an error of the native library. An unknown code gives a BusError."""
    return class_of(code, {"timed_out": TimedOut}, BusError)(code, what, hint)

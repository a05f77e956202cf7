"""The clocks that the job scheduler reads: those of the module time, or of a test. Pure."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """The functions of the module time that the scheduler calls."""

    def time(self) -> float: ...

    def time_ns(self) -> int: ...

    def monotonic(self) -> float: ...

"""What a probe says while it runs: one JSON object a line on its stdout. See "Probes and their parent"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

# Every event and the keys it must have.
KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "start": ("ranks", "cells", "mpi", "mpi_version", "oversubscribed"),
        "progress": ("done", "active", "cells", "epoch", "samples", "elapsed_s"),
        "warning": ("code", "evidence", "hint"),
        "error": ("code", "what", "hint"),
        "end": ("stop_reason", "samples", "elapsed_s", "dropped"),
    }
)


@dataclass(frozen=True)
class Event:
    """One event: its name and its keys."""

    name: str
    data: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.data[key]


class Progress(Protocol):
    """Something that shows events to a person. Used as a context manager."""

    def __enter__(self) -> Progress: ...
    def __exit__(self, *exc: object) -> None: ...
    def show(self, event: Event) -> None:
        """Takes any event; ignores those it does not draw."""


class NullProgress:
    """Shows nothing."""

    def __enter__(self) -> NullProgress:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def show(self, event: Event) -> None:
        pass

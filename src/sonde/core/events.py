"""What a probe says while it runs: one JSON object a line on its stdout. See "Probes and their parent"."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

# Every event, the keys it must have and what they hold.
KEYS: Mapping[str, Mapping[str, type]] = MappingProxyType(
    {
        "start": {"ranks": int, "cells": int, "mpi": str, "mpi_version": str, "oversubscribed": bool},
        "progress": {
            "done": int,
            "active": int,
            "cells": int,
            "epoch": int,
            "samples": int,
            "elapsed_s": float,
        },
        "warning": {"code": str, "evidence": str, "hint": str},
        "error": {"code": str, "what": str, "hint": str},
        "end": {"stop_reason": str, "samples": int, "elapsed_s": float, "dropped": int},
    }
)
LONGEST_LINE = 1 << 20  # characters; more is no event of ours
_BEGIN = '{"event"'


@dataclass(frozen=True)
class Event:
    """One event: its name, and its keys, which KEYS promises. `event["samples"]` reads one."""

    name: str
    data: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.data[key]


class Progress(Protocol):
    """Something that shows events to a person. Used as a context manager."""

    def __enter__(self) -> Progress: ...

    def __exit__(self, *exc: object) -> None: ...

    def show(self, event: Event) -> None:
        """Takes any event, and ignores those it does not draw."""


class NullProgress:
    """Shows nothing."""

    def __enter__(self) -> NullProgress:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def show(self, event: Event) -> None:
        pass


@dataclass
class Reader:
    """Reads events from the lines of a probe's stdout, which launchers and libraries write to as well.

    A line that holds no whole event is foreign: it is counted, and the last `keep` of them are kept for the
    log. Text before an event on its line (a launcher's rank label, a print without a newline) is foreign too.
    No input raises an exception.
    """

    keep: int = 200
    foreign: int = 0
    last: deque[str] = field(init=False)

    def __post_init__(self) -> None:
        self.last = deque(maxlen=self.keep)

    def read(self, line: str | bytes) -> Event | None:
        """The event on a line, or None."""
        text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
        at = text.find(_BEGIN) if len(text) <= LONGEST_LINE else -1
        event = _parse(text[at:]) if at >= 0 else None
        rest = text[:at] if event else text
        if rest.strip():
            self.foreign += 1
            self.last.append(rest.strip()[:1000])
        return event

    def events(self, lines: Iterable[str | bytes]) -> Iterator[Event]:
        """The events among the lines, as they come."""
        for line in lines:
            if event := self.read(line):
                yield event


def _parse(text: str) -> Event | None:
    import json  # here and not above: every start of `sonde` imports this module, and few read events

    try:
        data, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):  # not JSON, a number of too many digits, nested too deep
        return None
    name = data.pop("event")
    keys = KEYS.get(name) if isinstance(name, str) else None
    if keys is None or not all(key in data and _fits(data[key], kind) for key, kind in keys.items()):
        return None
    return Event(name, data)


def _fits(value: Any, kind: type) -> bool:
    """Whether a value is of a kind; numbers must be finite and count from 0."""
    if kind is str or kind is bool:
        return isinstance(value, kind)
    if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else int):
        return False
    return value >= 0 and (isinstance(value, int) or math.isfinite(value))

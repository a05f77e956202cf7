"""The events of a probe while it runs: one JSON object a line on its stdout. See "Probes and their parent".

An event is a mapping with its name under "event". It is whole if it has the keys that its name requires. An unknown
name requires none, so that an older Sonde can drive a newer probe.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

Event = Mapping[str, Any]

# The keys that an event must have, and their types. It may have more keys.
KEYS: Mapping[str, Mapping[str, type]] = MappingProxyType(
    {
        "start": {"ranks": int, "mpi": str, "mpi_version": str, "oversubscribed": bool},
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
LONGEST_LINE = 1 << 20  # a longer line is no event of ours
_BEGIN = '{"event"'


class Progress(Protocol):
    """Shows events to a person. Used as a context manager."""

    def __enter__(self) -> Progress: ...

    def __exit__(self, *exc: object) -> None: ...

    def show(self, event: Event) -> None:
        """Take any event, and ignore those that it does not draw."""


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

    A line without a whole event is foreign: it is counted, and the last `keep` of them are stored for the log. Text
    before an event on its line (a launcher's rank label, a print without a newline) is foreign too. No input raises an
    exception.
    """

    keep: int = 200
    foreign: int = 0
    last: deque[str] = field(init=False)

    def __post_init__(self) -> None:
        self.last = deque(maxlen=self.keep)

    def read(self, line: str | bytes) -> Event | None:
        """The event on a line, or None."""
        text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
        event, at = _find(text)
        event = event if event and is_whole(event) else None
        rest = text[:at].strip() if event else text.strip()
        if rest:
            self.foreign += 1
            self.last.append(rest[:1000])
        return event

    def events(self, lines: Iterable[str | bytes]) -> Iterator[Event]:
        """The events among the lines, in their order."""
        for line in lines:
            if event := self.read(line):
                yield event


def parse(line: str | bytes) -> Event | None:
    """The event on a line, complete or not, or None. No input raises an exception."""
    return _find(line.decode("utf-8", "replace") if isinstance(line, bytes) else line)[0]


def is_whole(event: Event) -> bool:
    """Whether an event has a name and, if the name is known, all its keys with valid values."""
    name = event.get("event")
    if not isinstance(name, str):
        return False
    return all(key in event and _fits(event[key], kind) for key, kind in KEYS.get(name, {}).items())


def _find(text: str) -> tuple[Event | None, int]:
    """The event in a line, and the position where it begins."""
    import json  # imported here: every start of `sonde` imports this module, and few read events

    if len(text) > LONGEST_LINE:
        return None, 0
    at = text.find(_BEGIN)
    if at < 0:  # if another key comes first, the event must be the whole line
        at = len(text) - len(text.lstrip())
        if not text.startswith("{", at):
            return None, 0
    try:
        event, _ = json.JSONDecoder().raw_decode(text, at)
    except (ValueError, RecursionError):  # not JSON, a number of too many digits, nested too deep
        return None, 0
    return (event, at) if isinstance(event.get("event"), str) else (None, 0)


def _fits(value: Any, kind: type) -> bool:
    """Whether a value is of a kind; numbers must be finite and not negative."""
    if kind is str or kind is bool:
        return isinstance(value, kind)
    if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else int):
        return False
    return value >= 0 and (isinstance(value, int) or math.isfinite(value))

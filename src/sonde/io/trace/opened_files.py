"""Which file a handle of a process meant, and when: openings, closings, copies, and what a fork inherits."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

STANDARD = 2  # the last standard descriptor, which every program is given
DESCRIPTORS = 1 << 16  # handles below are descriptors, handles above are pointers
ANY_LAYER = -1  # for files opened before: any layer may have opened them, for all layers share descriptors
GIVEN = -3  # a copy of a standard descriptor; unknown, like the standard descriptors themselves


@dataclass
class ProcessFiles:
    """Files that a process opened, by handle, over time. key : (layer, handle)."""

    by_handle: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=dict)  # (ticks, file)
    # Calls that open, with begin, end and file, and calls that close; in_order() merges them
    openings: dict[tuple[int, int], list[tuple[int, int, int]]] = field(default_factory=dict)
    closings: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=dict)
    openings_traced: bool = False  # descriptors are known from their opening on,
    blind: bool = False  # but some openings were missed
    given: bool = False  # it is known which descriptors its program began with

    def lists(self, layer: int, handle: int) -> list[list[tuple[int, int]]]:
        """All entries about a handle. A layer that does not name files, such as system calls, uses the openings of
        other layers."""
        own = self.by_handle.get((layer, handle), [])
        if any(file >= 0 for _, file in own):
            return [own, self.by_handle.get((ANY_LAYER, handle), [])]
        return [entries for (_, other), entries in self.by_handle.items() if other == handle]

    def add(self, layer: int, handle: int, ticks: int, file: int) -> None:
        """file: -1 if the handle is closed: after that it means a file whose opening was not traced."""
        self.by_handle.setdefault((layer, handle), []).append((ticks, file))

    def opens(self, layer: int, handle: int, call: np.void, file: int) -> None:
        self.openings.setdefault((layer, handle), []).append((int(call["begin"]), int(call["end"]), file))

    def closes(self, layer: int, handle: int, call: np.void) -> None:
        self.closings.setdefault((layer, handle), []).append((int(call["begin"]), int(call["end"])))

    def in_order(self) -> None:
        """Merge openings and closings in the order of time.

        A handle means a file from the begin of the call that opens it to the end of the call that closes it: what
        libraries do within these calls belongs to the file. But a thread may be given a handle while another thread's
        closing call is still running, or may have asked for it before that call began: then the handle was already
        free.
        """
        for key in self.openings.keys() | self.closings.keys():
            entries = self.by_handle.setdefault(key, [])
            closings = sorted(self.closings.get(key, ()))
            closed = [end for _, end in closings]
            for begin, end, file in sorted(self.openings.get(key, ())):
                # The last closing call that began before the opening call was given the handle
                k = bisect_left(closings, (end, 0)) - 1
                if k >= 0 and closings[k][1] > begin:
                    begin = max(begin, closings[k][0])
                    closed[k] = min(closed[k], begin)
                entries.append((begin, file))
            entries += [(ticks, -1) for ticks in closed]
        for entries in self.by_handle.values():
            entries.sort()
        self.openings.clear()
        self.closings.clear()


@dataclass(frozen=True)
class Copy:
    """A second handle of a file, made by a call. begin, end: ticks of the call."""

    begin: int
    end: int
    process: int
    layer: int
    old: int
    new: int


@dataclass
class OpenedFiles:
    """The files that all processes opened.

    processes: each one's. parents: the process that each was forked from; -1: none. began: ticks.
    """

    processes: list[ProcessFiles]
    parents: list[int]
    began: list[int]
    opened_unseen: int = (
        -1
    )  # the file that stands for descriptors whose opening no traced call was; -1: none is needed

    def settle(
        self, copies: Iterable[Copy], given: Mapping[int, Sequence[tuple[int, int]]] | None = None
    ) -> None:
        """Bring all entries into the order of time, and make each copy of a handle mean, from its call on, what the
        original means then.

        given: for a process the descriptors and files that its program began with.
        """
        for process in self.processes:
            process.in_order()
        for process_number, descriptors in sorted((given or {}).items()):
            self._begin_with(process_number, dict(descriptors))
        for copy in sorted(copies, key=lambda copy: copy.end):
            file = self.file_at(copy.process, copy.layer, copy.old, copy.begin)
            if file == -1 and copy.old <= STANDARD:
                file = GIVEN
            known = self.processes[copy.process].by_handle
            old = known.setdefault((copy.layer, copy.old), [])
            new = known.setdefault((copy.layer, copy.new), [])
            insort(new, (copy.end, file))
            # A copy by fileno or fdopen: both handles are closed together.
            if (copy.old < DESCRIPTORS) != (copy.new < DESCRIPTORS):
                for one, other in ((old, new), (new, old)):
                    k = bisect_left(one, (copy.end + 1, GIVEN))
                    if k < len(one) and one[k][1] == -1:
                        insort(other, one[k])

    def meant(self, process: int, layer: int, handle: int, when: np.ndarray) -> np.ndarray | None:
        """The file that a handle means at each time, -1 if unknown; None if nothing is known about it.

        when: (n,) ticks. Returns (n,) int32.
        """
        openings = sorted(
            (ticks, file)
            for known, until in self._known_to(process)
            for entries in self.processes[known].lists(layer, handle)
            for ticks, file in entries
            if ticks < until
        )
        if not openings:
            return None
        ticks = np.array([tick for tick, _ in openings], np.uint64)
        files = np.array([-1, *(file for _, file in openings)], np.int32)
        found: np.ndarray = files[np.searchsorted(ticks, when, side="right")]
        return found

    def all_traced(self, process: int) -> bool:
        """Whether the trace has all openings of a process's files, by it or by processes that it was forked from."""
        known = [self.processes[k] for k, _ in self._known_to(process)]
        return any(one.openings_traced or one.given for one in known) and not any(one.blind for one in known)

    def all_given(self, process: int) -> bool:
        """Whether it is also known what the program began with, or the one that it was forked from: then a descriptor
        that nothing is known about was opened unseen."""
        return self.all_traced(process) and any(self.processes[k].given for k, _ in self._known_to(process))

    def _begin_with(self, process: int, given: Mapping[int, int]) -> None:
        """A program begins with exactly these descriptors, whatever was known of those before."""
        began, files = self.began[process], self.processes[process]
        before = {
            handle
            for known, _ in self._known_to(process)
            for _, handle in self.processes[known].by_handle
            if STANDARD < handle < DESCRIPTORS
        }
        for handle in before | given.keys():
            known = self.file_at(process, ANY_LAYER, handle, began + 1)
            now = given.get(handle, -1)
            # A file that a traced call opened keeps the name that it was given there.
            if known < 0 <= now or (now < 0 and known != now):
                insort(files.by_handle.setdefault((ANY_LAYER, handle), []), (began, now))

    def file_at(self, process: int, layer: int, handle: int, ticks: int) -> int:
        """The file of a handle at a time, -1 if unknown. Every list must be in the order of time."""
        for known, until in self._known_to(process):
            last = [
                entries[k - 1]
                for entries in self.processes[known].lists(layer, handle)
                if (k := bisect_left(entries, (min(ticks, until), GIVEN)))
            ]
            if last:
                return max(last)[1]
        return -1

    def _known_to(self, process: int) -> Iterator[tuple[int, int]]:
        """Yield a process and those that it was forked from, each with the ticks until which it inherits their
        openings."""
        seen: set[int] = set()
        until = 1 << 64
        while process >= 0 and process not in seen:
            seen.add(process)
            yield process, until
            until = min(until, self.began[process])
            process = self.parents[process]

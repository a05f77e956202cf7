"""The bounds for what users may have stored at a service, and what is removed beyond them. Pure.

Each kind of thing (jobs that wait, jobs that are over, workflows) has a bound for each user and one for all users
together, in number and in bytes.
"""

from __future__ import annotations

import heapq
import json
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sized
from dataclasses import dataclass
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Bounds:
    """The most that is stored, for each user and for all users together. Sizes in B."""

    of_user: int
    of_all: int
    size_of_user: int
    size_of_all: int


def size_of_text(text: str) -> int:
    """Size of a text in memory (as CPython has it), or as JSON on a disk, whichever is more, B."""
    return 64 + max(len(text) * (1 if text.isascii() else 4), len(json.dumps(text)))


class Tally:
    """The number and total size of each user's stored things."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.number = self.size = 0
        self._numbers: dict[str, int] = {}
        self._sizes: dict[str, int] = {}

    def add(self, user: str, size: int, number: int = 1) -> None:
        """Negative values take away what was added."""
        self.number += number
        self.size += size
        self._numbers[user] = self._numbers.get(user, 0) + number
        self._sizes[user] = self._sizes.get(user, 0) + size
        if not self._numbers[user] and not self._sizes[user]:
            del self._numbers[user], self._sizes[user]

    def number_of(self, user: str) -> int:
        return self._numbers.get(user, 0)

    def size_of(self, user: str) -> int:
        return self._sizes.get(user, 0)

    @property
    def beyond(self) -> bool:
        """Whether a bound is exceeded."""
        bounds = self.bounds
        return (
            self.number > bounds.of_all
            or self.size > bounds.size_of_all
            or any(number > bounds.of_user for number in self._numbers.values())
            or any(size > bounds.size_of_user for size in self._sizes.values())
        )

    def surplus(self, removable: Iterable[tuple[str, Key, int]]) -> list[Key]:
        """Keys of the things to remove so that no bound is exceeded; [] if none is.

        After a bound was exceeded, things are removed until an eighth of it is free, so that the next thing does not
        start this again. Things beyond a user's own bounds are removed first, then things of the user who has most.

        removable: user, key and size of the things that may be removed, the oldest first. The tally is not changed.
        """
        bounds = self.bounds
        if not self.beyond:
            return []
        beyond = {user for user, number in self._numbers.items() if number > bounds.of_user}
        beyond |= {user for user, size in self._sizes.items() if size > bounds.size_of_user}
        left = Tally(bounds)
        left.number, left.size = self.number, self.size
        left._numbers, left._sizes = dict(self._numbers), dict(self._sizes)
        those: dict[str, deque[tuple[Key, int]]] = {}
        for user, key, size in removable:
            those.setdefault(user, deque()).append((key, size))
        gone: list[Key] = []

        def drop(user: str) -> None:
            key, size = those[user].popleft()
            gone.append(key)
            left.add(user, -size, -1)

        for user in beyond & those.keys():
            many = self.number_of(user) > bounds.of_user
            large = self.size_of(user) > bounds.size_of_user
            while those[user] and (
                (many and left.number_of(user) > _undercut(bounds.of_user))
                or (large and left.size_of(user) > _undercut(bounds.size_of_user))
            ):
                drop(user)
        if left.number > bounds.of_all:
            _level(left.number_of, drop, those, lambda: left.number <= _undercut(bounds.of_all))
        if left.size > bounds.size_of_all:
            _level(left.size_of, drop, those, lambda: left.size <= _undercut(bounds.size_of_all))
        return gone


def _undercut(bound: int) -> int:
    return bound - bound // 8


def _level(
    amount: Callable[[str], int],
    drop: Callable[[str], None],
    those: Mapping[str, Sized],
    enough: Callable[[], bool],
) -> None:
    """Remove things of the user who has most, one after another."""
    users = [(-amount(user), user) for user, left in those.items() if left]
    heapq.heapify(users)
    while users and not enough():
        _, user = heapq.heappop(users)
        drop(user)
        if those[user]:
            heapq.heappush(users, (-amount(user), user))

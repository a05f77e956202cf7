"""A clock that advances with each call, for deadlines without waiting."""

from __future__ import annotations


class FakeClock:
    """now: s. Each call advances it by `step_s`, as if the work between two calls took this time."""

    def __init__(self, step_s: float = 0.0, now: float = 100.0) -> None:
        self.step_s, self.now = step_s, now

    def __call__(self) -> float:
        self.now += self.step_s
        return self.now

    def move(self, seconds: float) -> None:
        self.now += seconds

"""A clock that moves by what is done, for deadlines without waiting."""

from __future__ import annotations


class FakeClock:
    """now: s. Each call moves it on by `step_s`, as if what is done between two looks took so long."""

    def __init__(self, step_s: float = 0.0, now: float = 100.0) -> None:
        self.step_s, self.now = step_s, now

    def __call__(self) -> float:
        self.now += self.step_s
        return self.now

    def move(self, seconds: float) -> None:
        self.now += seconds

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

class NoiseBlocks:
    def __init__(
        self,
        segment: NDArray[Any],
        on: NDArray[Any],
        begin_s: NDArray[Any],
        length_s: NDArray[Any],
        resumed_s: NDArray[Any],
        levels: NDArray[Any],
        stall_block: NDArray[Any],
        stall_t_s: NDArray[Any],
        stall_length_s: NDArray[Any],
    ) -> None: ...
    def __len__(self) -> int: ...
    def test(
        self, periods_s: Sequence[float], fold_weight: float, permutations: int, seed: int
    ) -> dict[str, Any]: ...
    def looks(
        self,
        ends: Sequence[int],
        spend: Sequence[float],
        periods_s: Sequence[float],
        fold_weight: float,
        permutations: int,
        seed: int,
        proceed: Callable[[], bool] | None = None,
        before: int = 0,
        p_before: float = 1.0,
    ) -> list[dict[str, Any]]: ...
    def power(
        self,
        rounds: Sequence[int],
        spend: Sequence[float],
        alpha: float,
        period_s: float,
        burst_s: float,
        shortest_s: float,
        periods_s: Sequence[float],
        fold_weight: float,
        permutations: int,
        seed: int,
        runs: int,
    ) -> tuple[float, list[int]]: ...
    def detectable_burst(
        self,
        rounds: Sequence[int],
        spend: Sequence[float],
        alpha: float,
        period_s: float,
        shortest_s: float,
        periods_s: Sequence[float],
        fold_weight: float,
        permutations: int,
        seed: int,
        wanted: float,
        runs: int,
        proceed: Callable[[], bool] | None = None,
    ) -> tuple[float | None, int, int]: ...

def noise_plan(shares: Sequence[int], rounds: Sequence[int], seed: int) -> list[tuple[int, int]]: ...
def noise_edges() -> list[int]: ...
def __getattr__(name: str) -> Any: ...
def clock_pair() -> tuple[int, int]: ...
def tick_kind() -> str: ...
def bus_sizes() -> dict[str, int]: ...
def error_kind(code: str) -> str | None: ...

"""How clustbench itself writes its files: their layouts, its statistics, and the sizes that it can express."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, BinaryIO, Literal

import numpy as np

from sonde.core.errors import DataError, nearest
from sonde.net.classic import ClassicWriter
from sonde.net.clustbench import KINDS, STATISTICS, TEST_TYPES, Header, Structure

STRING_LENGTH_V1 = 101
LARGEST_INT = 2**31 - 1


def standard(form: Literal["v1", "v2"], kind: str, header: Header) -> Structure:
    """The layout of a file as clustbench itself writes it: its dims and variables, in its order.

    Parameters
    ----------
    kind : one of KINDS; v1 has only STATISTICS

    Raises
    ------
    DataError  net.clustbench_range: a number does not fit 32 bits, or v1 has no number for the mode.
    """
    if form == "v1" and header.mode not in TEST_TYPES:
        raise DataError(
            "net.clustbench_range",
            f"clustbench v1 stores modes as numbers and has no number for '{header.mode}'"
            + nearest(header.mode, list(TEST_TYPES)),
            "export it with --to clustbench-v2, which writes the name",
        )
    _check_range(header)
    name = header.mode + "\0"
    dims: list[tuple[str, int | None]] = [("x", header.ranks), ("y", header.ranks)]
    if kind == "all":
        dims.append(("z", header.repeats))
    dims += [("n", None), ("strings", STRING_LENGTH_V1 if form == "v1" else len(name.encode()))]
    values: dict[str, Any] = {
        "proc_num": header.ranks,
        "test_type": TEST_TYPES[header.mode] if form == "v1" else name.encode().decode("latin-1"),
        "data_type": KINDS[kind],
        "begin_mes_length": header.begin,
        "end_mes_length": header.end,
        "step_length": header.step,
    }
    if form == "v1":  # clustbench's Qt viewer cannot open a file without them
        values["noise_mes_length"] = header.noise_size
        values["num_noise_mes"] = header.noise_messages
        values["num_noise_proc"] = header.noise_ranks
    values["num_repeates"] = header.repeats
    data = ("data", "<f8", ("n", "x", "y", "z") if kind == "all" else ("n", "x", "y"))
    return Structure(tuple(dims), (*_declared(values), data), values)


def fixed_length(header: Header, repetitions: int) -> Structure:
    """The layout of a fixed-length file as clustbench's slicer writes it.

    The slicer always writes 0, 1000, 1 and 1000 for begin, end, step and num_repeats. Here they are 0, n, 1 and n, so
    that its viewer counts repetitions.
    """
    _check_range(header)
    name = header.mode + "\0"
    dims = (("n", repetitions), ("x", header.ranks), ("y", header.ranks), ("strings", len(name.encode())))
    before: dict[str, Any] = {
        "proc_num": header.ranks,
        "test_type": name.encode().decode("latin-1"),
        "data_type": KINDS["all"],
        "begin_mes_length": 0,
        "end_mes_length": repetitions,
        "step_length": 1,
        "num_repeats": repetitions,
    }
    after: dict[str, Any] = {
        "noise_mes_length": header.noise_size,
        "num_noise_mes": header.noise_messages,
        "num_noise_proc": header.noise_ranks,
    }
    data = ("data", "<f8", ("n", "x", "y"))
    return Structure(dims, (*_declared(before), data, *_declared(after)), {**before, **after})


def spectrum(ranks: int, positions: int, window: int) -> Structure:
    """The layout of a spectrum file as clustbench's slicer writes it. The axis named "src" is the row of `data`."""
    dims = (("src", ranks), ("dest", ranks), ("pos", positions), ("spek", window // 2 + 1))
    return Structure(dims, (("data", "<f8", tuple(name for name, _ in dims)),), {})


def build(stream: BinaryIO, structure: Structure, records: int) -> Data:
    """Begin a file of clustbench: the header and all values except those of `data`, which the result accepts.

    Parameters
    ----------
    stream : an empty file, seekable, opened for writing in binary
    records : length of the unlimited dim

    Raises
    ------
    OSError  from the stream. DataError  net.clustbench_range: a type that NetCDF-3 does not have.
    """
    file = ClassicWriter(stream, structure.dims, structure.variables, structure.attributes, records)
    for name, value in structure.values.items():
        values = np.frombuffer(value.encode("latin-1"), "S1") if isinstance(value, str) else np.asarray(value)
        shape = file.shape(name)
        file.put(name, (0,) * len(shape), values.reshape(shape))
    return Data(file)


class Data:
    """`data` of a file that is being written."""

    def __init__(self, file: ClassicWriter) -> None:
        self._file = file

    def put(self, start: Sequence[int], values: np.ndarray) -> None:
        """Write a block of values (s) whose first has the position `start`. Raises OSError from the stream."""
        self._file.put("data", start, values)


def _declared(values: Mapping[str, Any]) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    return tuple(
        (name, "|S1", ("strings",)) if isinstance(value, str) else (name, "<i4", ())
        for name, value in values.items()
    )


def _check_range(header: Header) -> None:
    for what, value in vars(header).items():
        if isinstance(value, int) and not 0 <= value <= LARGEST_INT:
            raise DataError(
                "net.clustbench_range",
                f"{what} is {value}; a file of clustbench can hold 0 to {LARGEST_INT}",
                "choose smaller sizes with --sizes",
            )


def statistics(series: np.ndarray, n: np.ndarray) -> dict[str, np.ndarray]:
    """average, median, deviation and min of each series, bit for bit as clustbench computes them.

    Parameters
    ----------
    series : (cells, samples) float, s; NaN from n on
    n : (cells,) int

    Returns
    -------
    By name of STATISTICS, (cells,) s; NaN where n is 0.

    deviation is the population's (divisor n), median the upper of the middle two (sorted[n / 2]). Sonde's own
    statistics are different (n - 1, and the mean of the two), so they cannot be used here.
    """
    cells, samples = series.shape
    out = {name: np.full(cells, np.nan) for name in STATISTICS}
    some = np.flatnonzero(n > 0)
    if not len(some) or not samples:
        return out
    delays, count = series[some], n[some]
    last = (np.arange(len(some)), count - 1)
    # accumulate adds one by one, as clustbench does; np.sum adds in pairs and gives other bits.
    average = np.add.accumulate(delays, axis=1)[last] / count
    square = np.add.accumulate((delays - average[:, None]) ** 2, axis=1)[last] / count
    ordered = np.sort(delays, axis=1)  # NaN is sorted last
    out["average"][some] = average
    out["deviation"][some] = np.sqrt(square)
    out["median"][some] = ordered[np.arange(len(some)), count // 2]
    out["min"][some] = ordered[:, 0]
    return out


def progression(sizes: Sequence[int]) -> tuple[int, int, int]:
    """(begin, end, step) whose matrices are for exactly these sizes, in B; end is not included.

    Raises
    ------
    DataError  net.uneven_sizes: clustbench cannot express these sizes; the hint names the longest subset that it can.
    """
    ordered = sorted(sizes)
    if len(ordered) == 1:
        return ordered[0], ordered[0] + 1, 1
    step = ordered[1] - ordered[0]
    if step > 0 and all(b - a == step for a, b in pairwise(ordered)):
        return ordered[0], ordered[-1] + step, step
    best = longest_progression(ordered[:1000])  # its cost is quadratic
    step = best[1] - best[0]
    raise DataError(
        "net.uneven_sizes",
        f"the sizes {_listed(ordered)} B are not evenly spaced; clustbench has only begin, end and step",
        f"export {len(best)} of the {len(ordered)}: --sizes {best[0]}:{best[-1] + step}:{step}",
    )


def longest_progression(sizes: Sequence[int]) -> list[int]:
    """The longest evenly spaced subset of distinct ascending sizes; among several the first one found."""
    known = set(sizes)
    best = list(sizes[:1])
    seen: set[tuple[int, int]] = set()
    for i, first in enumerate(sizes):
        for second in sizes[i + 1 :]:
            step = second - first
            if (first, step) in seen:
                continue
            chain = [first]
            while chain[-1] + step in known:
                chain.append(chain[-1] + step)
                seen.add((chain[-1], step))
            if len(chain) > len(best):
                best = chain
    return best


def _listed(values: Sequence[int], most: int = 8) -> str:
    text = ", ".join(str(v) for v in values[:most])
    return text + (f", … {values[-1]}" if len(values) > most else "")

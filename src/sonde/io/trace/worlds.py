"""Which MPI program a rank is of: a job's script may run several, one after another or at once, and each has a rank 0.
Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import xarray as xr

NONE = -1
_RANKS = 1 << 32  # more than any program has


def of_headers(headers: Sequence[Mapping[str, Any]]) -> list[int]:
    """For each process the number of its MPI program, in the order in which these began; NONE of what is no rank.

    A header names the program by `world`, on all hosts (`world_everywhere`) or on one: what a launcher without names
    started on several hosts is one program as long as no host and no rank is in it twice.
    """
    begun: dict[tuple[str, str], list[int]] = {}
    for k, header in enumerate(headers):
        if int(header["rank"]) >= 0:
            host = "" if header.get("world_everywhere", 1) else str(header["host"])
            begun.setdefault((host, str(header.get("world", ""))), []).append(k)
    found = [NONE] * len(headers)
    order = sorted(begun, key=lambda key: min(_began(headers[k]) for k in begun[key]))
    parts: list[tuple[set[str], set[int]]] = []  # of each program, hosts and ranks that are put together
    for host, name in order:
        mine = begun[host, name]
        ranks = {int(headers[k]["rank"]) for k in mine}
        number = next(
            (
                k
                for k, (hosts, others) in enumerate(parts)
                if host and hosts and host not in hosts and not ranks & others
            ),
            len(parts),
        )
        if number == len(parts):
            parts.append((set(), set()))
        if host:
            parts[number][0].add(host)
        parts[number][1].update(ranks)
        for k in mine:
            found[k] = number
    return found


def _began(header: Mapping[str, Any]) -> int:
    return int(header["began_utc_ns"])


def of(data: xr.Dataset) -> np.ndarray:
    """The program of each process of /raw or /summary; 0 where an earlier version stored none."""
    ranks = data["process_rank"].values
    if "process_world" in data:
        return np.asarray(data["process_world"].values, np.int64)
    return np.where(ranks >= 0, 0, NONE).astype(np.int64)


def members(data: xr.Dataset) -> np.ndarray:
    """A number for each process that only those of its rank in its program have; NONE of what is no rank."""
    ranks = data["process_rank"].values.astype(np.int64)
    return np.where(ranks >= 0, of(data) * _RANKS + ranks, NONE)


def named(data: xr.Dataset) -> list[str]:
    """The name of the rank of each process: "3", or "2:3" of the second of several programs; "" of no rank."""
    ranks, worlds = data["process_rank"].values.tolist(), of(data).tolist()
    several = len({world for world in worlds if world >= 0}) > 1
    return [
        "" if rank < 0 else f"{world + 1}:{rank}" if several else f"{rank}"
        for rank, world in zip(ranks, worlds)
    ]

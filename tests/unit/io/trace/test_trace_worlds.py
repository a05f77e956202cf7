"""Ranks of several MPI programs of one job are not one program's."""

from __future__ import annotations

import numpy as np
import xarray as xr

from sonde.io.trace import worlds


def header(rank: int, began: int, world: str = "", host: str = "n1", everywhere: int = 1) -> dict:
    return {
        "rank": rank, "began_utc_ns": began, "world": world, "host": host, "world_everywhere": everywhere,
    }  # fmt: skip


def test_programs_are_numbered_as_they_began():
    headers = [
        header(0, 50, "b"),
        header(0, 10, "a"),
        header(1, 11, "a"),
        header(-1, 1),
        header(1, 60, "b", "n2"),
    ]
    assert worlds.of_headers(headers) == [1, 0, 0, worlds.NONE, 1]


def test_what_an_earlier_version_traced_is_one_program():
    assert worlds.of_headers([{"rank": k, "began_utc_ns": 1, "host": "n1"} for k in (0, 1, -1)]) == [0, 0, -1]


def test_without_a_name_hosts_of_one_program_are_put_together():
    headers = [
        header(0, 10, "hydra=1", "n1", 0),
        header(1, 11, "hydra=1", "n2", 0),  # the same number on another host
        header(0, 50, "hydra=9", "n1", 0),
        header(1, 51, "hydra=8", "n2", 0),
        header(0, 90, "hydra=7", "n3", 0),  # of neither: both have a rank 0
    ]
    assert worlds.of_headers(headers) == [0, 0, 1, 1, 2]


def data(ranks: list[int], of: list[int] | None = None) -> xr.Dataset:
    columns = {"process_rank": ("process", np.array(ranks, np.int32))}
    if of is not None:
        columns["process_world"] = ("process", np.array(of, np.int32))
    return xr.Dataset(columns)


def test_ranks_are_called_by_their_program_where_there_are_several():
    assert worlds.named(data([0, 1, -1])) == ["0", "1", ""]
    assert worlds.named(data([0, 1, -1], [0, 0, -1])) == ["0", "1", ""]
    assert worlds.named(data([0, 0, 3, -1], [0, 1, 1, -1])) == ["1:0", "2:0", "2:3", ""]


def test_a_rank_is_one_however_many_programs_it_runs():
    members = worlds.members(data([0, 0, 0, 1, -1], [0, 0, 1, 1, -1])).tolist()
    assert members[0] == members[1]
    assert len(set(members)) == 4
    assert members[4] == worlds.NONE

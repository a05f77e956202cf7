"""Joining a server's work to the requests of its clients, on calls made up for it."""

from __future__ import annotations

import random

import numpy as np

from sonde.io.trace.join import Calls, by_likeness, by_number

READ, WRITE = 3, 4


def calls(*rows: tuple[int, ...]) -> Calls:
    """rows: begin, end, function, process, size, offset, kind, file; what is left out is -1."""
    whole = np.array([(*row, *[-1] * (8 - len(row))) for row in rows], np.int64).reshape(-1, 8)
    return Calls(*whole.T)


def numbers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


class TestByNumber:
    def test_a_request_lasts_from_the_first_call_for_it_to_the_last(self):
        # A message of 10..14 and its answer at 90; the server's frames and reply in between, its backend's thread late.
        client = calls((10, 14, 0, 0, 4096), (90, 91, 1, 0, 0))
        server = calls((70, 75, 3, 5), (20, 30, 2, 5), (35, 60, 4, 5))
        found = by_number(client, numbers(7, 7), server, numbers(7, 7, 7))
        assert (found.function.tolist(), found.size.tolist()) == ([0], [4096])
        assert (found.begin.tolist(), found.end.tolist()) == ([10], [91])
        assert (found.server_begin.tolist(), found.server_end.tolist()) == ([20], [75])
        assert found.server_process.tolist() == [5]
        assert found.of_call.tolist() == [0, 0, 0]
        assert found.strays == 0

    def test_requests_under_way_at_once_are_distinguished(self):
        client = calls(
            (0, 5, 0, 0), (1, 6, 0, 0), (2, 7, 0, 1), (50, 50, 1, 0), (40, 40, 1, 0), (60, 60, 1, 1)
        )
        server = calls((10, 12, 2, 8), (11, 13, 2, 9), (14, 15, 2, 8), (45, 46, 3, 8))
        found = by_number(client, numbers(1, 2, 3, 1, 2, 3), server, numbers(2, 3, 1, 1))
        assert found.end.tolist() == [50, 40, 60]
        assert found.server_process.tolist() == [8, 8, 9]
        assert found.server_begin.tolist() == [14, 10, 11]
        assert found.server_end.tolist() == [46, 12, 13]
        assert found.of_call.tolist() == [1, 2, 0, 0]

    def test_what_has_no_other_side_is_reported(self):
        client = calls((0, 5, 0, 0), (1, 6, 0, 0))
        found = by_number(client, numbers(-4, 2), calls((3, 4, 2, 8), (3, 4, 2, 8)), numbers(2, 9))
        assert found.server_process.tolist() == [-1, 8]
        assert found.server_begin.tolist() == [0, 3]
        assert found.strays == 1
        assert found.of_call.tolist() == [1, -1]

    def test_one_side_alone_and_none(self):
        found = by_number(calls((0, 5, 0, 0)), numbers(1), calls(), numbers())
        assert (found.server_process.tolist(), found.strays) == ([-1], 0)
        found = by_number(calls(), numbers(), calls((0, 5, 0, 3), (6, 7, 0, 3)), numbers(4, 4))
        assert (len(found.begin), found.strays, found.of_call.tolist()) == (0, 1, [-1, -1])
        found = by_number(calls(), numbers(), calls(), numbers())
        assert (len(found.begin), found.strays) == (0, 0)

    def test_it_finds_what_was_made_up(self):
        rng = random.Random(5)
        truth = {
            rng.randint(-(2**63), 2**63 - 1): (rng.randint(0, 10**6), rng.choice((8, 9))) for _ in range(500)
        }
        rows, own, theirs, served = [], [], [], []
        for n, (at, process) in truth.items():
            rows += [(at, at + 5, 0, 0), (at + 1000, at + 1001, 1, 0)]
            own += [n, n]
            for step in range(rng.randint(1, 4)):
                served.append((at + 100 + 10 * step, at + 105 + 10 * step, 2, process))
                theirs.append(n)
        shuffled = rng.sample(range(len(served)), len(served))
        found = by_number(
            calls(*rows),
            numbers(*own),
            calls(*(served[k] for k in shuffled)),
            numbers(*(theirs[k] for k in shuffled)),
        )
        assert [truth[n][1] for n in sorted(truth)] == found.server_process.tolist()
        assert [truth[n][0] for n in sorted(truth)] == found.begin.tolist()
        assert (found.server_begin - found.begin == 100).all()
        assert [sorted(truth)[k] for k in found.of_call] == [theirs[k] for k in shuffled]


class TestByLikeness:
    def test_size_offset_kind_and_file_tell(self):
        client = calls(
            (0, 100, 0, 0, 64, 0, WRITE, 1), (0, 100, 0, 1, 64, 64, WRITE, 1), (0, 100, 0, 2, 64, 0, READ, 1),
            (0, 100, 0, 3, 64, 0, WRITE, 2),
        )  # fmt: skip
        server = calls(
            (50, 60, 9, 8, 64, 0, WRITE, 2), (50, 60, 9, 8, 64, 64, WRITE, 1), (51, 60, 9, 8, 64, 0, WRITE, 1),
            (52, 60, 9, 8, 64, 0, READ, 1), (53, 60, 9, 8, 65, 0, READ, 1),
        )  # fmt: skip
        found = by_likeness(client, server)
        assert found.of_call.tolist() == [3, 1, 0, 2, -1]
        assert found.server_process.tolist() == [8, 8, 8, 8]
        assert found.strays == 1

    def test_like_requests_are_joined_in_the_order_of_time(self):
        client = calls(*((at, at + 10, 0, 0, 64, 0, WRITE) for at in (0, 20, 40)))
        server = calls(*((at, at + 1, 9, 8, 64, 0, WRITE) for at in (45, 5, 25)))
        assert by_likeness(client, server).of_call.tolist() == [2, 0, 1]

    def test_one_whose_work_was_not_seen_takes_nobody_else_s(self):
        client = calls(*((at, at + 10, 0, 0, 64, 0, WRITE) for at in (0, 20, 40)))
        found = by_likeness(client, calls((25, 26, 9, 8, 64, 0, WRITE), (45, 46, 9, 8, 64, 0, WRITE)))
        assert found.server_process.tolist() == [-1, 8, 8]

    def test_of_several_under_way_as_many_as_possible_are_joined(self):
        # The long one could take the first of the server's calls; then the short one would have none.
        client = calls((0, 100, 0, 0, 64, 0, WRITE), (5, 20, 0, 1, 64, 0, WRITE))
        server = calls((10, 12, 9, 8, 64, 0, WRITE), (50, 60, 9, 8, 64, 0, WRITE))
        assert by_likeness(client, server).of_call.tolist() == [1, 0]

    def test_clocks_that_are_apart(self):
        client, server = calls((100, 200, 0, 0, 64)), calls((90, 95, 9, 8, 64))
        assert by_likeness(client, server).strays == 1
        assert by_likeness(client, server, error_ns=20).strays == 0
        assert by_likeness(calls(), server).strays == 1
        assert by_likeness(client, calls()).server_process.tolist() == [-1]

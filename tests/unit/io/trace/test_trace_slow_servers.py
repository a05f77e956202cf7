"""Servers that are slower than the others, by single requests and by counters, and what could not be said."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from traces import add, call, run, sealed

import io_traces
import sonde
from sonde.core import peers
from sonde.io.maps.layers import KINDS
from sonde.io.trace import join, slow_servers
from sonde.io.trace import verdict as trace_verdict
from sonde.io.trace.analyse import analyse
from sonde.io.trace.findings import findings

SERVERS = 4
KIB = 1024
NS = 100_000  # of a request at a server, and as long on its way


def requests(seed, n=1600, slow=1.0, way=1.0, sizes=(4 * KIB,), only=None, sigma=1.5):
    """Requests with heavy-tailed times at four equal servers, but for the third.

    slow, way : factors of its time, and of that on the way to it and back. only : the size that is slower
    """
    rng = np.random.default_rng(seed)
    server, size = rng.integers(0, SERVERS, n), rng.choice(np.array(sizes), n)
    worse = (server == 2) & ((size == only) if only else True)
    served, away = (
        np.where(worse, factor, 1) * NS * np.exp(rng.normal(0, sigma, n)) * (1 + size / 1e6)
        for factor in (slow, way)
    )
    begin = np.arange(n) * 1000 * NS
    end = begin + (served + away).astype(int) + 1
    none = np.full(n, 0)
    return join.Requests(
        np.arange(n), none, size, begin, end, 10 + server, begin, begin + served.astype(int), 0, np.arange(n)
    )


def verdict(found, client=None):
    """A /summary with these requests alone."""
    n = len(found.call)
    tables = slow_servers.tables(
        [(1, found, np.zeros(n, int), np.zeros(n, int) if client is None else client)]
    )
    summary = xr.Dataset(
        {name: (slow_servers.SUMMARY[name].dims, values) for name, values in tables.items()}
        | {
            "function_name": ("function", np.array(["send"], object)),
            "process_host": ("process", np.array([f"n{k}" for k in range(14)], object)),
            "process_pid": ("process", np.arange(14)),
        }
    )
    return slow_servers.verdict(summary)


def named(found):
    return {(one.server, ("server", "way")[one.way]) for one in found.slow}


class TestRequests:
    def test_equal_servers_are_seldom_named(self):
        runs = 40
        wrong = sum(bool(verdict(requests(seed, 800)).slow) for seed in range(runs))
        print(f"{wrong} of {runs} clean traces name a server")
        assert wrong <= 0.05 * runs

    @pytest.mark.parametrize(("slow", "n"), [(1.5, 6000), (2.0, 3200), (5.0, 800)])
    def test_a_slower_server_is_named_alone(self, slow, n):
        found = [verdict(requests(seed, n, slow)) for seed in range(10)]
        right = sum(named(one) == {("n12", "server")} for one in found)
        print(f"{slow} times slower: named in {right} of 10")
        assert right >= 9
        one = found[-1].slow[0]
        assert one.low < slow < one.high
        assert one.operations == ("send of 4 KiB or more",)
        assert one.every
        assert one.share == pytest.approx(
            1 - 1 / one.ratio, rel=0.5
        )  # half of a request's time is on its way

    def test_a_slow_link_to_a_server_is_named_as_that(self):
        found = verdict(requests(1, 3200, way=5))
        assert named(found) == {("n12", "way")}

    def test_a_server_that_is_slow_in_one_size_is_named_with_that(self):
        found = verdict(requests(2, 6000, 5, sizes=(4 * KIB, 64 * KIB, 1024 * KIB), only=64 * KIB))
        assert named(found) == {("n12", "server")}
        (one,) = found.slow
        assert one.operations == ("send of 64 KiB or more",)
        assert not one.every
        assert one.low < 5 < one.high

    def test_a_server_that_is_slow_in_all_sizes_is_reported_once(self):
        (one,) = verdict(requests(3, 9000, 3, sizes=(4 * KIB, 64 * KIB, 1024 * KIB))).slow
        assert one.every
        assert len(one.operations) == 3
        assert one.requests == pytest.approx(9000 / SERVERS, rel=0.1)

    def test_a_slowness_in_what_takes_next_to_no_time_is_none(self):
        found = requests(4, 6000, 5, sizes=(4 * KIB, 64 * KIB), only=4 * KIB, sigma=0.5)
        long = found.size == 64 * KIB
        found.server_end[long] += 1000 * NS
        found.end[long] += 1000 * NS
        assert verdict(found).slow == []

    def test_few_requests_name_nobody_and_say_so(self):
        found = verdict(requests(5, 40, 50))
        assert found.slow == []
        assert {one.detectable for one in found.power} == {None}
        assert all(one.reason.startswith("too few operations: a server had ") for one in found.power)
        assert "send of 4 KiB or more: not compared, too few operations" in slow_servers.note(
            found, "requests"
        )
        json = slow_servers.values(found)
        assert [one["part"] for one in json] == ["server", "way"]
        assert json[0]["detectable_ratio"] is None

    def test_how_slow_a_server_would_have_been_found(self):
        found = verdict(requests(6, 6000))
        (served, _) = found.power
        assert 1 + peers.MATTERS <= served.detectable < 1.5
        assert slow_servers.note(found, "requests") == (
            f"Smallest detectable slowdown of a server: send of 4 KiB or more: {served.detectable:.3g} times or more."
        )

    def test_of_two_servers_neither_is_the_odd_one(self):
        found = requests(7, slow=9)
        two = found.server_process >= 12
        some = join.Requests(*(getattr(found, name)[two] for name in ("call", "function", "size", "begin", "end",
            "server_process", "server_begin", "server_end")), 0, found.of_call)  # fmt: skip
        assert verdict(some) == slow_servers.Verdict([], [])

    def test_a_client_that_is_slow_is_no_server(self):
        found = requests(8, 3200)
        client = (found.server_process == 12).astype(int)
        swap = np.random.default_rng(8).random(3200) < 0.3
        client[swap] = 1 - client[swap]
        found.end[client == 1] += 20 * NS
        assert verdict(found, client).slow == []


LAYERS = [
    {"name": "app", "title": "Client", "serves": ""},
    {"name": "daemon", "title": "Server", "serves": "app"},
]
WRITE = KINDS.index("write")
FUNCTIONS = "0\t0\tsend\tlib.so\n1\t1\tserve\tlib.so\n"


def test_from_the_tracer_s_files_to_a_finding(tmp_path):
    plan = {
        "layers": LAYERS,
        "rules": [[0, WRITE, 1], [1, WRITE, 1]],
        "clocks": [["n1", 0, 0], ["n1", 10**9, 10**9]],
    }
    folder = run(tmp_path / "a.run", plan)
    rng, at = np.random.default_rng(9), 0
    sent, served = [], [[] for _ in range(SERVERS)]
    for k in range(1200):
        spent, server = int(1000 * rng.lognormal() * (4 if k % SERVERS == 2 else 1)), k % SERVERS
        sent.append(call(0, at, at + spent + 500, size=4096, offset=1 + k))
        served[server].append(call(1, at + 200, at + 200 + spent, size=4096, offset=1 + k))
        at += spent + 600
    add(folder, sent, FUNCTIONS, pid=100)
    for server, calls in enumerate(served):
        add(folder, calls, FUNCTIONS, pid=200 + server)
    with sonde.open(sealed(folder)) as tree:
        summary = tree["summary"].to_dataset().load()
    (one,) = (one for one in findings(summary) if one.code.startswith("io.slow_server"))
    assert one.code == "io.slow_server"
    assert one.evidence["server"] == "n1 (process 202)"
    assert one.evidence["low"] < 4 < one.evidence["high"]
    assert one.text.startswith("n1 (process 202) takes ")
    assert (
        "times as long as the median of the other servers for all requests (95 % confidence interval "
        in one.text
    )
    assert "significant at 1 %" in one.text
    (table,) = (table for table in trace_verdict.tables(summary) if table.title == "Requests to Server")
    assert "Smallest detectable slowdown of a server: send of 4 KiB or more: " in table.note
    assert trace_verdict.values(summary)["slow_servers"][0]["operation"] == "send of 4 KiB or more"
    before = summary.drop_vars([name for name in summary.data_vars if str(name).startswith("peer_")])
    assert slow_servers.verdict(before) == slow_servers.Verdict([], [])


def counted(*writes, **more):
    """The verdict where each server's writes had this mean, shortest and longest time, s, and so many calls."""
    each = [
        (f"n{k}:/b", {"WRITE": [calls, mean, least, longest]} | more)
        for k, (calls, mean, least, longest) in enumerate(writes)
    ]
    return analyse(io_traces.with_servers(io_traces.collective(reads=False), *each))


class TestCounters:
    def test_a_mean_that_one_pause_made_names_nobody(self):
        # As bricks counted them on a healthy volume: the slowest mean is ten times the median of the others.
        usual = (432, 110e-6, 26e-6, 2e-3)
        summary = counted(usual, (144, 1.13e-3, 30e-6, 55.3e-3), usual, usual)
        assert slow_servers.verdict(summary).slow == []

    def test_a_server_that_is_slower_beyond_its_error_is(self):
        usual = (20_000, 1e-3, 0.5e-3, 4e-3)
        found = slow_servers.verdict(counted(usual, usual, (20_000, 1.5e-3, 0.7e-3, 6e-3), usual))
        assert [(one.server, one.operations) for one in found.slow] == [("n2", ("WRITE",))]
        assert found.slow[0].low < 1.5 < found.slow[0].high
        (one,) = found.power
        assert (one.by, one.operation, one.servers, one.compared) == ("counters", "WRITE", 4, 4)
        assert one.detectable < 2

    def test_requests_of_unlike_sizes_are_no_equal_operations(self):
        summary = counted(*[(20_000, 1e-3, 0.5e-3, 4e-3)] * 3, (20_000, 8e-3, 4e-3, 32e-3))
        assert slow_servers.verdict(summary).slow
        summary["server_bytes"].values[3, 1] *= 8
        assert slow_servers.verdict(summary).slow == []
        summary["server_bytes"].values[:, 1] = 1, 10, 100, 1000
        found = slow_servers.verdict(summary)
        assert "WRITE: not compared, the servers' requests have different sizes" in slow_servers.note(
            found, "counters"
        )

    def test_without_shortest_and_longest_a_mean_has_no_error(self):
        nan = float("nan")
        found = slow_servers.verdict(counted(*[(900, 1e-3, nan, nan)] * 3, (900, 9e-3, nan, nan)))
        assert found.slow == []
        assert "the shortest and longest times are unknown" in found.power[0].reason

    def test_few_calls_and_few_servers_are_reported(self):
        few = slow_servers.verdict(
            counted((1, 1e-3, 1e-3, 1e-3), (1, 9e-3, 9e-3, 9e-3), (1, 1e-3, 1e-3, 1e-3))
        )
        assert "WRITE: not compared, too few operations: a server had 1 call" in slow_servers.note(
            few, "counters"
        )
        two = slow_servers.verdict(counted(*[(900, 1e-3, 1e-3, 1e-3)] * 2))
        assert "2 servers had it, but a comparison needs 3" in two.power[0].reason

    def test_times_that_vary_too_much_are_reported(self):
        found = slow_servers.verdict(counted(*[(40, 1e-3, 0, 1.0)] * 3))
        assert "WRITE: none, its times vary too much for this number of operations" in slow_servers.note(
            found, "counters"
        )
        assert slow_servers.values(found)[0]["detectable_ratio"] is None

    def test_a_server_that_is_slow_in_all_operations_is_named_for_these(self):
        def server(slow):
            return {name: [60, 1e-3 * slow, 0.3e-3 * slow, 6e-3 * slow] for name in ("WRITE", "LOOKUP", "STAT", "OPEN",
                "MKNOD", "UNLINK")}  # fmt: skip

        each = [(f"n{k}:/b", server(4 if k == 1 else 1)) for k in range(SERVERS)]
        found = slow_servers.verdict(
            analyse(io_traces.with_servers(io_traces.collective(reads=False), *each))
        )
        (one,) = found.slow
        assert (one.server, one.every, one.ratio) == ("n1", True, pytest.approx(4))
        assert found.power[-1].operation == "all operations"

    def test_no_servers_at_all(self):
        assert slow_servers.verdict(analyse(io_traces.collective())) == slow_servers.Verdict([], [])

"""`sonde bus run --hosts`: what is measured between the nodes of a virtual cluster, and what is refused or left out."""

from __future__ import annotations

import os
import shutil
import signal
import uuid
from collections.abc import Iterator

import pytest

import sonde as library
from sonde.bus import run_probe
from sonde.bus.plan import Plan
from sonde.bus.variants import variant_of
from sonde.cluster import Cluster, run
from sonde.core.errors import SondeError
from sonde.core.launch import libexec
from sonde.core.launch.mpirun import Mpi
from sonde_shell import PROGRAM, Shell, Typed, finish
from watching import samples_in, wait_for

pytestmark = pytest.mark.skipif(
    not os.access(libexec() / run_probe.PROBE, os.X_OK), reason="this build has no data bus"
)
needs_nodes = pytest.mark.root
MISSING = [name for name in run.PROGRAMS if not shutil.which(name, path=run.program_path(os.environ))]

HERE = ("--hosts", "localhost,127.0.0.1", "--launcher", "local")
SHORT = ("--rule", "fixed:60", "--epoch-length", "10", "--seed", "3", "--budget", "2min")


@pytest.fixture(scope="module")
def dds() -> list[str]:
    """The implementations of DDS that can be opened here."""
    plan = Plan(tuple(variant_of(name, "udp4") for name in ("cyclonedds", "fastdds")), ())
    try:
        told = run_probe.check(plan)
    except SondeError:
        told = []
    found = [str(event["implementation"]) for event in told if event["event"] == "variant"]
    if not found:
        pytest.skip("no implementation of DDS is here")
    return found


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    if MISSING:
        pytest.skip(f"{', '.join(MISSING)}: not there; install iproute2 and util-linux")
    with Cluster.up(f"b{uuid.uuid4().hex[:8]}", 2) as cluster:
        yield cluster
        assert wait_for(lambda: cluster.reaper.inside() == [])


def words(nodes: Cluster, *more: object) -> tuple[object, ...]:
    """The command that runs in the first node, over both."""
    inside = (PROGRAM, "bus", "run", *more, "--hosts", f"{nodes.name}-[0-1]", "--launcher", "mpirun")
    return ("cluster", "exec", "--name", nodes.name, "--", *inside)


@needs_nodes
class TestBetweenNodes:
    def test_latency_goes_over_the_link_and_advice_says_between_whom(
        self, sonde: Shell, typed: Typed, default_mpi: Mpi, nodes: Cluster, dds: list[str]
    ):
        variants = ",".join([*dds, "raw/udp4", "raw/tcp4"])
        before = [nodes.counters(node) for node in range(2)]
        more = ("latency", "fanout", "--sizes", "64", "--variants", variants, "--unprotected", *SHORT)
        told = sonde(*words(nodes, *more, "-o", sonde.cwd / "h.nc")).expect(0)
        after = [nodes.counters(node) for node in range(2)]
        assert f"Between {nodes.name}-[0-1]" in told.out
        assert "fanout is not measured between hosts" in told.said

        shown = typed("bus", "show", "h.nc", "--json").expect(0).json
        assert shown["complete"]
        rtt = {row["variant"]: row for row in shown["results"] if row["quantity"] == "rtt"}
        assert set(rtt) == {*(f"{name}/udp4" for name in dds), "raw/udp4", "raw/tcp4"}
        assert all(row["value"] > 0 and row["lost"] == 0 for row in rtt.values())
        # Two hosts have two clocks: one way is not known, and t_start is by the clock of who started it.
        assert not [row for row in shown["results"] if row["quantity"] == "one_way"]
        with library.open(sonde.cwd / "h.nc") as tree:
            assert tree.attrs["hosts"] == 2
            assert tree.attrs["hostlist"] == f"{nodes.name}-[0-1]"
            assert tree.attrs["launcher"] == "mpirun"
            assert tree.attrs["host_addresses"] == ", ".join(
                f"{nodes.name}-{node} {nodes.address(node)}" for node in range(2)
            )
            t_start = tree["raw/t_start"].values
            assert (t_start[t_start == t_start] < 300).all()
        # Each round trip is at least one datagram in each direction, and none of them stays in a node.
        least = sum(row["samples"] for row in rtt.values())
        for earlier, later in zip(before, after):
            assert later.packets_out - earlier.packets_out >= least
            assert later.packets_in - earlier.packets_in >= least

        advice = typed("bus", "advise", "--remote", "--from", "h.nc", "--json").expect(0).json
        assert advice["between"] == f"{nodes.name}-[0-1]"
        assert all(not one["outside"] for one in advice["advice"])
        assert f"between {nodes.name}-[0-1]" in advice["advice"][0]["because"][0]
        local = typed("bus", "advise", "--local", "--from", "h.nc").expect(0)
        assert "has no results within one host" in local.out
        typed("data", "validate", "h.nc").expect(0)

    def test_datagrams_of_discovery_are_those_of_both(
        self, sonde: Shell, default_mpi: Mpi, nodes: Cluster, dds: list[str]
    ):
        variants = ",".join([*dds, *(f"{name}/udp4/peers" for name in dds)])
        before = [nodes.counters(node).packets_out for node in range(2)]
        more = (
            "discovery",
            "--participants",
            "2,6",
            "--steady",
            "100ms",
            "--variants",
            variants,
            "--unprotected",
        )
        told = sonde(
            *words(nodes, *more, "--rule", "fixed:1", "--budget", "2min", "-o", sonde.cwd / "d.nc", "--json")
        ).expect(0)
        after = [nodes.counters(node).packets_out for node in range(2)]
        found = {(row["variant"], row["n"], row["quantity"]): row["value"] for row in told.json["results"]}
        ways = [f"{name}/udp4{kind}" for name in dds for kind in ("", "/peers")]
        for way in ways:
            assert found[way, 2, "matched"] == found[way, 6, "matched"] == 1
            assert 0 < found[way, 2, "datagrams"] < found[way, 6, "datagrams"]
        # What was counted left a node, or was for another participant of its own.
        assert min(end - begin for begin, end in zip(before, after)) > 0
        assert "a network namespace cannot span several hosts" in " ".join(
            warning["evidence"] for warning in told.json["warnings"]
        )

    def test_a_server_of_discovery_is_found_from_the_other_node(
        self, sonde: Shell, default_mpi: Mpi, nodes: Cluster, dds: list[str]
    ):
        if "fastdds" not in dds:
            pytest.skip("fastdds is not here, the one that has servers")
        more = ("latency", "--sizes", "64", "--variants", "fastdds/udp4/server", "--unprotected", *SHORT)
        told = sonde(*words(nodes, *more, "-o", sonde.cwd / "s.nc", "--json")).expect(0).json
        assert [row["discovery"] for row in told["results"] if row["quantity"] == "rtt"] == ["server"]

    def test_with_keys_nobody_has_to_say_that_it_is_open(
        self, sonde: Shell, typed: Typed, default_mpi: Mpi, nodes: Cluster, dds: list[str]
    ):
        typed("bus", "keys", "init", "keys").expect(0)
        typed("bus", "keys", "add", "keys", "probe", "--publish", "*", "--subscribe", "*").expect(0)
        each = [f"{name}-keys={name},security=keys,identity=probe" for name in dds]
        more = [word for text in each for word in ("--variants", text)]
        told = sonde(
            *words(nodes, "latency", "--sizes", "64", *more, *SHORT, "-o", sonde.cwd / "k.nc", "--json")
        ).expect(0)
        assert {row["variant"] for row in told.json["results"]} == {f"{name}-keys" for name in dds}
        assert all(row["value"] > 0 for row in told.json["results"] if row["quantity"] == "rtt")

    def test_ctrl_c_saves_and_leaves_nothing_in_the_nodes(
        self, sonde: Shell, default_mpi: Mpi, nodes: Cluster, dds: list[str]
    ):
        started = self.endless(sonde, nodes, dds)
        started.send_signal(signal.SIGINT)
        finish(started)
        with library.open(sonde.cwd / "a.nc") as tree:
            assert tree.attrs["stop_reason"] == "interrupted"
            assert tree.attrs["hosts"] == 2
        assert wait_for(lambda: nodes.reaper.inside() == [])

    def test_a_kill_leaves_nothing_in_the_nodes_but_what_was_measured(
        self, sonde: Shell, default_mpi: Mpi, nodes: Cluster, dds: list[str]
    ):
        started = self.endless(sonde, nodes, dds)
        probes = [pid for pid, name in sonde.processes().items() if name == str(PROGRAM.with_name("python"))]
        assert probes
        for pid in [*probes, started.pid]:
            os.kill(pid, signal.SIGKILL)
        started.communicate()
        assert wait_for(lambda: nodes.reaper.inside() == [])
        sonde("data", "recover", "a.run").expect(4)
        with library.open(sonde.cwd / "a.nc") as tree:
            assert tree.attrs["stop_reason"] == "killed"
            assert tree.attrs["hostlist"] == f"{nodes.name}-[0-1]"

    @staticmethod
    def endless(sonde: Shell, nodes: Cluster, dds: list[str]):
        more = (
            "latency",
            "--sizes",
            "64",
            "--variants",
            dds[0],
            "--unprotected",
            "--rule",
            "fixed:100000000",
        )
        line = words(nodes, *more, "--cap", "100000000", "--budget", "3min", "-o", sonde.cwd / "a.nc")
        started = sonde.start(*line)
        assert wait_for(lambda: samples_in(sonde.cwd / "a.run") > 50, 90)
        return started


def test_two_names_of_one_machine_are_no_hosts(sonde: Shell, typed: Typed, dds: list[str]):
    told = sonde(
        *("bus", "run", "latency", "--sizes", "64", "--variants", f"{dds[0]},raw/udp4", *HERE),
        *("--unprotected", *SHORT, "-o", "a.nc", "--json"),
    ).expect(0).json  # fmt: skip
    assert "localhost, 127.0.0.1 are the same machine" in " ".join(w["evidence"] for w in told["warnings"])
    remote = typed("bus", "advise", "--remote", "--from", "a.nc").expect(0)
    assert "a.nc has no results between hosts" in " ".join(remote.out.split())
    assert "sonde bus run latency discovery throughput --hosts" in remote.said
    assert sonde.left() == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((*HERE,), "add --unprotected"),
        ((*HERE, "--variants", "fastdds/shm", "--unprotected"), "cannot leave a host"),
        ((*HERE, "--variants", "raw/udp4,null", "--unprotected"), "null cannot leave a host"),
        (("--unprotected",), "name the hosts with --hosts"),
        (("--interfaces", "eth0"), "name the hosts with --hosts"),
        (("--hosts", "n[1-2]", "--launcher", "local", "--unprotected"), "this machine only"),
        ((*HERE, "--variants", "a=cyclonedds,security=keys", "--variants", "cyclonedds"), "cyclonedds/udp4"),
    ],
)
def test_what_would_be_open_or_stays_on_a_host_is_refused(typed: Typed, more, said):
    ran = typed("bus", "run", "latency", *more).expect(2)
    assert said in ran.said
    assert list(typed.cwd.iterdir()) == []


def test_fanout_alone_is_not_measured_between_hosts(typed: Typed):
    assert "within one host" in typed("bus", "run", "fanout", *HERE, "--unprotected").expect(2).said


def test_an_interface_that_is_not_there_is_reported_with_those_that_are(typed: Typed, dds: list[str]):
    ran = typed("bus", "run", *HERE, "--unprotected", "--variants", dds[0], "--interfaces", "nonet0").expect(
        3
    )
    assert "on the host localhost" in ran.said
    assert "nonet0" in ran.said
    assert list(typed.cwd.iterdir()) == []

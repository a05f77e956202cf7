"""Names, addresses and limits of a virtual cluster, and the lines that build it."""

from __future__ import annotations

import json
import subprocess

import pytest

from sonde.cluster import plan
from sonde.cluster.plan import NAMESPACES, Plan
from sonde.core.errors import UsageError


def batch(text: str, device: str) -> list[str]:
    return [line for line in text.splitlines() if f"dev {device} " in line]


def test_nodes_are_named_and_numbered():
    made = plan.plan("test", 3)
    assert made.hostnames == ("test-0", "test-1", "test-2")
    assert made.addresses == ("10.77.0.1", "10.77.0.2", "10.77.0.3")
    assert plan.plan("test", 2, prefix="node").hostnames == ("node0", "node1")


def test_a_plan_survives_json():
    made = plan.plan("test", 2, rate=10**9, delay_s=1e-3, private=["/tmp"])
    assert Plan.from_json(json.loads(json.dumps(made.as_json()))) == made


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a_b", "a/b", "..", "a" * 32, "é"])
def test_bad_names_are_refused(name):
    with pytest.raises(UsageError) as caught:
        plan.plan(name, 2)
    assert caught.value.code == "cluster.bad_name"
    assert "a-z, 0-9" in caught.value.what


@pytest.mark.parametrize("prefix", ["", "0n", "-n", "N", "n.", "n" * 31])
def test_bad_prefixes_are_refused(prefix):
    with pytest.raises(UsageError) as caught:
        plan.plan("test", 2, prefix=prefix)
    assert caught.value.code == "cluster.bad_name"


@pytest.mark.parametrize("nodes", [0, -1, 255])
def test_bad_numbers_of_nodes_are_refused(nodes):
    with pytest.raises(UsageError) as caught:
        plan.plan("test", nodes)
    assert caught.value.code == "cluster.bad_nodes"
    assert "1 to 254" in caught.value.what


@pytest.mark.parametrize(
    "subnet",
    ["", "10.0.0.0", "10.0.0.1/24", "fd00::/64", "127.0.0.0/8", "224.0.0.0/8", "0.0.0.0/8", "10.0.0.0/30"],
)
def test_bad_subnets_are_refused(subnet):
    with pytest.raises(UsageError) as caught:
        plan.plan("test", 3, subnet=subnet)
    assert caught.value.code == "cluster.bad_subnet"
    assert "10.77.0.0/24" in caught.value.hint


def test_a_subnet_may_be_just_large_enough():
    assert plan.plan("test", 254).addresses[-1] == "10.77.0.254"
    assert plan.plan("test", 2, subnet="192.168.7.4/30").addresses == ("192.168.7.5", "192.168.7.6")


@pytest.mark.parametrize("folder", ["tmp", "/", "/run", "/dev", "/proc", "/sys", "/proc/sys", "/tmp/../etc"])
def test_folders_that_no_node_can_have_are_refused(folder):
    with pytest.raises(UsageError) as caught:
        plan.plan("test", 2, private=[folder])
    assert caught.value.code == "cluster.bad_private"


def test_glusterfs_has_its_state_in_each_node_and_a_place_that_hides_nothing():
    made = plan.plan("test", 2, private=["/tmp", "/var/log/glusterfs"], gluster="/mnt/")
    assert made.gluster == "/mnt"
    assert made.private == ("/tmp", "/var/log/glusterfs", "/run", "/var/lib/glusterd")
    assert plan.describe(made) == "2 nodes, GlusterFS at /mnt"
    assert Plan.from_json(json.loads(json.dumps(made.as_json()))) == made
    # What the nodes' /run hides must not be what mpirun's agent lies in.
    assert plan.orders(made, "/run/sonde-cluster/test/hosts")["kept"] == "/run/sonde-cluster"
    for folder in ("mnt", "/", "/run", "/tmp", "/proc/x", "/a/../b"):
        with pytest.raises(UsageError) as caught:
            plan.plan("test", 2, gluster=folder)
        assert caught.value.code == "cluster.bad_gluster", folder


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("all", [0, 1, 2, 3]),
        ("0,2-3", [0, 2, 3]),
        ("3,1", [3, 1]),
        ("2,2", [2]),
        ("test-[1-2]", [1, 2]),
        ("^test-1", [0, 2, 3]),
    ],
)
def test_nodes_are_chosen_by_number_or_name(text, nodes):
    assert plan.chosen(plan.plan("test", 4), text) == nodes


@pytest.mark.parametrize("text", ["4", "0-4", "test-4", "other-1"])
def test_a_node_that_is_not_there_is_named(text):
    with pytest.raises(UsageError) as caught:
        plan.chosen(plan.plan("test", 4), text)
    assert caught.value.code == "cluster.no_such_node"
    assert "nodes 0 to 3, test-[0-3]" in caught.value.what


@pytest.mark.parametrize("text", ["", "1-", "-1", "3-1", "a b]"])
def test_what_is_no_list_of_nodes_is_refused(text):
    with pytest.raises(UsageError):
        plan.chosen(plan.plan("test", 4), text)


def test_a_rate_holds_at_both_ends_of_a_link():
    orders = plan.orders(plan.plan("test", 2, rate=10**9), "/hosts")
    expected = "root tbf rate 1000000000bit burst 125000b limit 6375000b"
    assert [line.partition("eth0 ")[2] for line in batch(orders["nodes"][1]["tc"], "eth0")] == [expected]
    assert [line.partition("node1 ")[2] for line in batch(orders["tc"], "node1")] == [expected]


def test_a_slow_link_lets_ten_packets_through_at_once():
    made = plan.plan("test", 1, rate=10**6)
    assert plan.burst_bytes(made) == 16384
    assert "burst 16384b" in plan.orders(made, "/hosts")["tc"]
    assert plan.burst_bytes(plan.plan("test", 1)) == 0


def test_a_delay_is_on_the_way_out_of_a_node_only_and_the_rate_below_it():
    orders = plan.orders(plan.plan("test", 1, rate=10**8, delay_s=1.5e-3), "/hosts")
    late, limited = batch(orders["nodes"][0]["tc"], "eth0")
    assert "root handle 1: netem delay 1500us limit 1000000" in late
    assert "parent 1:1 handle 2: tbf rate 100000000bit" in limited
    assert "netem" not in orders["tc"]
    assert plan.orders(plan.plan("test", 1), "/hosts")["tc"] == ""


def test_every_namespace_and_the_root_of_every_node_has_a_descriptor_of_its_own():
    made = plan.plan("test", 254)
    numbers = [plan.fd(node, kind) for node in made.nodes for kind in (*NAMESPACES, "root")]
    assert numbers == list(range(plan.FIRST_FD, plan.FIRST_FD + 5 * 254))
    entering = plan.enter("/proc/7", 2)
    assert f"--mount=/proc/7/fd/{plan.fd(2, 'mnt')}" in entering
    assert f"--root=/proc/7/fd/{plan.fd(2, 'root')}" in entering


def test_the_hosts_file_has_all_nodes():
    lines = plan.hosts_file(plan.plan("test", 2)).splitlines()
    assert lines == ["127.0.0.1 localhost", "::1 localhost", "10.77.0.1 test-0", "10.77.0.2 test-1"]


def run_agent(tmp_path, *words):
    """The agent with an nsenter that tells what it was given."""
    agent, nsenter = tmp_path / "agent", tmp_path / "nsenter"
    agent.write_text(plan.agent(plan.plan("test", 3)))
    nsenter.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    for program in (agent, nsenter):
        program.chmod(0o755)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    return subprocess.run([str(agent), *words], env=path, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("host", ["test-2", "10.77.0.3"])
def test_the_agent_starts_commands_as_ssh_does(tmp_path, host):
    ran = run_agent(tmp_path, "-x", "-q", host, "PATH=/bin", "orted -x 'a b'")
    *flags, dashes, shell, how, line = ran.stdout.splitlines()
    assert flags == plan.enter("/proc/1", 2)[1:]
    assert (dashes, shell, how, line) == ("--", "/bin/sh", "-c", "PATH=/bin orted -x 'a b'")


def test_the_agent_names_a_host_that_is_not_there(tmp_path):
    ran = run_agent(tmp_path, "test-3", "true")
    assert ran.returncode == 255  # as ssh
    assert "no node 'test-3'" in ran.stderr


def test_a_cluster_is_described_in_words():
    assert plan.describe(plan.plan("test", 1)) == "1 node"
    assert (
        plan.describe(plan.plan("test", 5, rate=10**9, delay_s=1e-3)) == "5 nodes at 1 Gbit/s, 1.00 ms delay"
    )

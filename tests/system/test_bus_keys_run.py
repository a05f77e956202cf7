"""`sonde bus run` over variants with keys, and over those of a profile: what they cost, and what is wrong with them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from claimed import domains
from sonde_shell import Shell, Typed, finish, shell

pytest.importorskip("sonde._bus", reason="the bus is not built")

from sonde._bus import caps, implementations

OVER = [name for name in ("cyclonedds", "fastdds") if name in implementations() and caps(name)["security"]]
pytestmark = pytest.mark.skipif(not OVER, reason="no DDS here has security")

PROFILES = """<sonde-bus version="1">
  <profile name="plain" domain="{0}"/>
  <profile name="keys" domain="{1}"><security folder="keys" identity="probe"/></profile>
  <profile name="shut" domain="{1}"><transport kind="udp4" interfaces="127.0.0.1"/></profile>
</sonde-bus>
"""
SOME_OF_ALL = (
    *("latency", "fanout", "throughput", "partitions", "discovery", "calls", "--sizes", "64"),
    *("--subscribers", "2", "--participants", "3", "--groups", "2", "--clients", "2", "--calls", "5"),
    *("--steady", "100ms"),
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of keys, with one identity for everything and one that may write nothing of a measurement."""
    opened = shell(tmp_path_factory.mktemp("keys"), None)
    sonde = next(opened)
    sonde("bus", "keys", "init", "keys").expect(0)
    sonde("bus", "keys", "add", "keys", "probe", "--publish", "*", "--subscribe", "*").expect(0)
    sonde("bus", "keys", "add", "keys", "node", "--role", "node-manager").expect(0)
    yield sonde.cwd / "keys"
    next(opened, None)


@pytest.fixture
def with_keys(made: Path, tmp_path: Path) -> None:
    """The test's own copy of that folder."""
    shutil.copytree(made, tmp_path / "keys")
    (tmp_path / "bus.xml").write_text(PROFILES.format(*domains(2)))


@pytest.fixture
def keys(with_keys: None, sonde: Shell) -> Shell:
    return sonde


@pytest.fixture
def typed_keys(with_keys: None, typed: Typed) -> Typed:
    """For commands that are refused, only read, or make files."""
    return typed


def variants(*texts: str) -> list[str]:
    return [word for text in texts for word in ("--variants", text)]


@pytest.mark.parametrize("dds", OVER)
def test_what_keys_cost_is_a_ratio_over_the_same_without(keys: Shell, typed_keys: Typed, dds: str):
    told = keys(
        *("bus", "run", "latency", "--sizes", "64,1KiB", "--rule", "fixed:100", "--epoch-length", "10"),
        *("--budget", "90s"),
        *variants(dds, f"secured={dds},security=keys,identity=probe"),
        *("-o", "k.nc", "--json"),
    ).expect(0).json  # fmt: skip
    assert told["complete"]
    found = {
        row["size"]: row for row in told["results"] if (row["variant"], row["quantity"]) == ("secured", "rtt")
    }
    assert set(found) == {64, 1024}
    for row in found.values():
        assert row["ratio_to"] == f"{dds}/udp4"
        assert row["ratio_ci"][0] <= row["ratio"] <= row["ratio_ci"][1]
        assert row["lost"] == 0
    (lesson,) = (one for one in told["lessons"] if one["code"] == "bus.keys")
    assert {row["size"]: row["ratio"] for row in lesson["evidence"]["ratios"]} == {
        size: row["ratio"] for size, row in found.items()
    }
    shown = typed_keys("bus", "show", "k.nc").expect(0).out
    assert "Cost of keys" in shown
    assert f"secured relative to {dds}/udp4" in shown
    typed_keys("report", "k.nc", "-o", "k.html").expect(0)
    assert "Cost of keys" in (keys.cwd / "k.html").read_text()

    # The same by what two runs are compared with: a variant of the one against one of the other.
    differ = typed_keys("bus", "diff", "k.nc", "k.nc", "--variants", f"{dds}/udp4,secured", "--json")
    assert differ.code in (0, 1, 4)
    assert differ.json["cells"] + differ.json["drifted"] > 0
    assert "secured of k.nc" in differ.json["verdict"]
    assert (
        "nearest: secured"
        in typed_keys("bus", "diff", "k.nc", "k.nc", "--variants", f"{dds}/udp4,secure").expect(2).said
    )


@pytest.mark.parametrize("dds", OVER)
def test_every_test_is_measured_with_keys_and_by_a_profile(keys: Shell, dds: str):
    started = keys.start(
        *("bus", "run", *SOME_OF_ALL, "--rule", "fixed:1", "--budget", "140s"),
        *variants(f"secured={dds},security=keys,identity=probe", f"plain={dds},profile=bus.xml#plain"),
        *variants(f"both={dds},profile=bus.xml#keys"),
        *("-o", "k.nc", "--json"),
    )
    told = finish(started, 240).expect(0).json  # a run may take 30 s more than its budget
    assert told["complete"]
    there = {(row["variant"], row["test"]) for row in told["results"]}
    tests = ("latency", "fanout", "throughput", "partitions", "discovery", "calls")
    assert there == {(name, test) for name in ("secured", "plain", "both") for test in tests}
    # A profile says its domain, so that there are no groups of domains.
    divisions = {
        row["treatment"] for row in told["results"] if (row["variant"], row["test"]) == ("both", "partitions")
    }
    assert divisions == {"topic", "partition", "wildcard"}
    # Fast DDS 2.9.1 does not always end an authentication (docs/reference/bus-security.md); a run says where not.
    warned = [one["evidence"] for one in told["warnings"] if one["code"] == "bus.not_matched"]
    unmatched = {evidence.split(",")[0] for evidence in warned}
    assert unmatched <= ({"secured", "both"} if dds == "fastdds" else set())
    for row in told["results"]:
        if row["quantity"] == "matched":
            assert (row["value"] == 1) == (row["variant"] not in unmatched)
        if row["quantity"] == "lost" and row["treatment"] != "best-effort":
            assert row["value"] == 0


@pytest.mark.parametrize("dds", OVER)
@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ("security=nokeys,identity=probe", 3, "cannot read nokeys/identity_ca.pem"),
        ("security=keys,identity=nobody", 3, "cannot read keys/nobody/cert.pem"),
        ("security=keys,identity=node", 3, "--publish '*' --subscribe '*'"),
        ("identity=probe", 2, "security=FOLDER,identity=NAME"),
        ("profile=bus.xml#none", 2, "it has: keys, plain, shut"),
        ("profile=none.xml", 3, "cannot read the profile none.xml"),
        ("profile=bus.xml#plain,multicast=all", 2, "is the profile's to say"),
    ],
)
def test_what_is_wrong_with_keys_or_a_profile_is_reported_before_anything_is_measured(
    typed_keys: Typed, dds: str, options: str, code: int, said: str
):
    ran = typed_keys(
        "bus", "run", "latency", *variants(f"x={dds},{options}"), "--budget", "5s", "-o", "x.nc"
    ).expect(code)
    assert said in ran.said
    assert not list(typed_keys.cwd.glob("x.*"))


def test_null_has_no_keys(typed_keys: Typed):
    ran = typed_keys("bus", "run", "latency", *variants("x=null,security=keys,identity=probe")).expect(2)
    assert "null cannot do what is asked for: security" in ran.said


def test_an_identity_is_made_anew_as_it_was(typed_keys: Typed):
    def node() -> dict[str, object]:
        (found,) = (
            one
            for one in typed_keys("bus", "keys", "show", "keys", "--json").json["identities"]
            if one["name"] == "n017"
        )
        return {name: found[name] for name in ("domains", "publish", "subscribe")}

    typed_keys("bus", "keys", "add", "keys", "n017", "--role", "node-manager", "--domains", "5").expect(0)
    before, key = node(), (typed_keys.cwd / "keys/n017/key.pem").read_bytes()
    assert before["domains"] == [5, 5]
    typed_keys("bus", "keys", "add", "keys", "n017", "--renew").expect(0)
    assert node() == before
    assert (typed_keys.cwd / "keys/n017/key.pem").read_bytes() != key
    typed_keys("bus", "keys", "add", "keys", "n017", "--role", "node-manager", "--renew").expect(0)
    assert node() == before
    typed_keys("bus", "keys", "add", "keys", "n017", "--renew", "--domains", "0:9").expect(0)
    assert node() == before | {"domains": [0, 9]}
    typed_keys("bus", "keys", "add", "keys", "n018", "--renew").expect(2)


def test_days_beyond_the_calendar_are_a_mistake_and_no_crash(typed_keys: Typed):
    assert "--days" in typed_keys("bus", "keys", "init", "more", "--days", "10000000").expect(2).said
    said = (
        typed_keys("bus", "keys", "add", "keys", "n017", "--role", "monitor", "--days", "10000000")
        .expect(2)
        .said
    )
    assert "allowed: 1 to 36500" in " ".join(said.split())

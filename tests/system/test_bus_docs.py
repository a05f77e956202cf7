"""The pages on joining a bus do what they say: their programs are built and run as they stand there, over each DDS."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("sonde._bus", reason="the bus is not built")

from sonde._bus import implementations

from claimed import free_domain
from sonde_shell import PROGRAM

DOCS = Path(__file__).parents[2] / "docs"
OVER = [name for name in ("cyclonedds", "fastdds") if name in implementations()]
DOMAIN = 17  # of the pages


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def blocks_of(page: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w*)\n(.*?)^```", (DOCS / page).read_text(), re.S | re.M)


@pytest.fixture
def env(sonde):
    return sonde.env | {"PATH": f"{PROGRAM.parent}:{sonde.env['PATH']}"}


@pytest.mark.parametrize("implementation", OVER)
def test_the_programs_of_the_page_on_python_understand_each_other(sonde, env, implementation):
    blocks = blocks_of("howto/bus-python.md")
    assert [kind for kind, _ in blocks] == ["idl", "xml", "python", "python"]
    (sonde.cwd / "power.idl").write_text(blocks[0][1])
    profile = blocks[1][1]
    assert f'domain="{DOMAIN}"' in profile
    (sonde.cwd / "bus.xml").write_text(profile.replace(f'domain="{DOMAIN}"', f'domain="{free_domain()}"'))
    env = env | {"SONDE_BUS": implementation}
    line = [sys.executable, "-c"]
    publisher = subprocess.Popen([*line, blocks[2][1]], cwd=sonde.cwd, env=env, stdin=subprocess.PIPE)
    try:
        ran = subprocess.run(
            [*line, blocks[3][1]],
            cwd=sonde.cwd,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        publisher.communicate(b"\n", timeout=30)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "n017 211.5 [20.0, 21.5]\nn017 211.5\n"
    assert publisher.returncode == 0


def test_the_program_of_the_page_on_cpp_is_built_and_runs(sonde, env):
    shutil.which("g++") or pytest.skip("no g++")
    blocks = blocks_of("howto/bus-cpp.md")
    assert [kind for kind, _ in blocks] == ["cpp", "sh"]
    (sonde.cwd / "join.cpp").write_text(
        blocks[0][1].replace(
            "Bus::open(Profile{})", f"Bus::open([] {{ Profile p; p.domain = {free_domain()}; return p; }}())"
        )
    )
    env.pop("LD_LIBRARY_PATH", None)
    build, run = blocks[1][1].splitlines()
    for k, (line, also) in enumerate([(build, {}), *((run, {"SONDE_BUS": name}) for name in OVER)]):
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            cwd=sonde.cwd, env=env | also, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, f"{line}\n{ran.stdout}\n{ran.stderr}"
        assert ran.stdout == ("n017 211.5\n" if k else "")


def test_the_commands_of_the_page_on_security_work(sonde, env):
    blocks = [text for kind, text in blocks_of("howto/bus-security.md") if kind == "sh"]
    assert len(blocks) == 2
    said = ""
    for block in blocks:
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=sonde.cwd, env=env, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        said = ran.stdout
    for word in ("system-manager", "NodeManager_set", "weather", "Weather_*"):
        assert word in said


HERE = """
import sys, time
import sonde.bus.client as bus

role, profile, others = sys.argv[1], sys.argv[2], int(sys.argv[3])
with bus.open(profile) as here:
    print("open", flush=True)
    end = here.writer("Power") if role == "manager" else here.reader("Power") if role == "node" else None
    if end is not None and not end.wait_matched(others, 60):
        sys.exit(f"{role}: {end.status()['matched']} of {others} matched")
    print("met", flush=True)
    sys.stdin.readline()
    print(0 if end is None else end.status()["matched"], len(here.peers()), flush=True)
    sys.stdin.read()
"""


TYPES = "<types><idl>module site { struct NodePower { @key string node; double power_w; }; };</idl></types>"


def on_loopback(profile: str, domain: int, port: int) -> str:
    """A profile of the page as it is on one machine, without keys."""
    for what, instead in (
        (r"<(transport|security) .*/>", ""),
        (r"<types .*/>", TYPES),
        (r'domain="17"', f'domain="{domain}"'),
        (r'peers="head"', 'peers="127.0.0.1"'),
        (r'servers="10.1.0.1:11811"', f'servers="127.0.0.1:{port}"'),
        (r' backup="[^"]*"', ""),
    ):
        profile = re.sub(what, instead, profile)
    assert "10.1." not in profile
    return profile


def meet(sonde, env, roles: list[tuple[str, str, int]]) -> list[list[int]]:
    """Programs with profiles, started in this order, each when the one before says that it is open; whom each has
    met: how many matches, and how many participants it knows.
    """
    started: list[subprocess.Popen[str]] = []
    try:
        for k, (role, profile, others) in enumerate(roles):
            (sonde.cwd / f"{k}.xml").write_text(profile)
            line = [sys.executable, "-c", HERE, role, f"{k}.xml", str(others)]
            started.append(
                subprocess.Popen(
                    line, cwd=sonde.cwd, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
            assert started[-1].stdout.readline() == "open\n"
        for one in started:
            assert one.stdout.readline() == "met\n"
        time.sleep(2)  # what should not be found has time to be
        for one in started:
            one.stdin.write("\n")
            one.stdin.flush()
        said = [one.stdout.readline() for one in started]
        for one in started:
            one.communicate(timeout=60)
    finally:
        for one in started:
            one.kill()
            one.wait()
    return [[int(word) for word in text.split()] for text in said]


def profiles_of_many() -> list[str]:
    blocks = [text for kind, text in blocks_of("howto/bus-many.md") if kind == "xml"]
    assert len(blocks) == 3
    return blocks


@pytest.mark.parametrize("implementation", OVER)
def test_by_the_profile_of_the_page_nodes_meet_their_manager_alone(sonde, env, implementation):
    profile = on_loopback(profiles_of_many()[0], free_domain(), 0)
    env = env | {"SONDE_BUS": implementation}
    met = meet(sonde, env, [("manager", profile, 3), *[("node", profile, 1)] * 3])
    assert met == [[3, 3], [1, 1], [1, 1], [1, 1]]


@pytest.mark.skipif("fastdds" not in OVER, reason="Fast DDS was not there at set-up")
def test_by_the_profiles_of_the_page_a_server_tells_whom_a_topic_concerns(sonde, env):
    port, domain = free_port(), free_domain()
    server, others = (on_loopback(text, domain, port) for text in profiles_of_many()[1:])
    met = meet(sonde, env, [("server", server, 0), ("manager", others, 2), *[("node", others, 1)] * 2])
    assert met[1:] == [[2, 3], [1, 2], [1, 2]]  # each knows the server, too, and nodes not each other

"""The pages on joining a bus do what they say: their programs are built and run as they stand there, over each DDS."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sonde._bus", reason="the bus is not built")

from sonde._bus import implementations
from sonde_shell import PROGRAM

DOCS = Path(__file__).parents[2] / "docs"
OVER = [name for name in ("cyclonedds", "fastdds") if name in implementations()]
DOMAIN = 17  # of the pages


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
    (sonde.cwd / "bus.xml").write_text(profile.replace(f'domain="{DOMAIN}"', 'domain="117"'))
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
            "Bus::open(Profile{})", "Bus::open([] { Profile p; p.domain = 118; return p; }())"
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

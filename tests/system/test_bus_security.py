"""Keys of `sonde bus keys` on a real bus: who has none joins nothing, and nobody sets what was not granted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from claimed import free_domain

pytest.importorskip("sonde._bus", reason="the bus is not built")

from sonde._bus import caps, implementations

OVER = [name for name in ("cyclonedds", "fastdds") if name in implementations() and caps(name)["security"]]
pytestmark = pytest.mark.skipif(not OVER, reason="no DDS here has security")

IDL = "module t { struct Cap { @key string node; double cap_w; }; };"
TOPIC = "NodeManager_set"

# One participant: says what it matched and what came, as one line of JSON. argv: profile, "write" or "read", s.
PROGRAM = """
import json, sys, time
import sonde.bus.client as bus
try:
    with bus.open(sys.argv[1]) as here:
        until = time.monotonic() + float(sys.argv[3])
        seen, matched = [], False
        with (here.writer if sys.argv[2] == "write" else here.reader)("NodeManager_set") as end:
            while time.monotonic() < until:
                matched = end.wait_matched(1, 0.2) or matched
                if sys.argv[2] == "write":
                    end.write(node="n017", cap_w=99999)
                    time.sleep(0.05)
                else:
                    seen += [sample["cap_w"] for sample in end.take()]
        print(json.dumps({"matched": matched, "seen": len(seen)}))
except Exception as error:
    print(json.dumps({"refused": getattr(error, "code", ""), "said": str(error), "hint": getattr(error, "hint", "")}))
"""


@pytest.fixture
def profile(sonde):
    """profile(domain, identity) -> a file. identity "": without security."""
    (sonde.cwd / "t.idl").write_text(IDL)
    sonde("bus", "keys", "init", "keys").expect(0)
    sonde("bus", "keys", "add", "keys", "manager", "--role", "system-manager").expect(0)
    sonde("bus", "keys", "add", "keys", "node", "--role", "node-manager").expect(0)
    sonde("bus", "keys", "init", "other").expect(0)
    sonde("bus", "keys", "add", "other", "manager", "--role", "system-manager").expect(0)

    def made(domain: int, identity: str, folder: str = "keys") -> Path:
        secured = f'<security folder="{folder}" identity="{identity}"/>' if identity else ""
        path = sonde.cwd / f"{folder}-{identity or 'nobody'}.xml"
        path.write_text(
            f'<sonde-bus version="1"><profile name="default" domain="{domain}">{secured}<types idl="t.idl"/>'
            f'<topic name="{TOPIC}" type="t::Cap" durability="transient-local"/></profile></sonde-bus>'
        )
        return path

    return made


def together(sonde, implementation: str, writer: Path, reader: Path, seconds: float = 6) -> tuple[dict, dict]:
    """What both ends say after so long."""
    env = sonde.env | {"SONDE_BUS": implementation}
    words = [(writer, "write"), (reader, "read")]
    ends = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(file), what, str(seconds)],
            cwd=sonde.cwd, env=env, stdout=subprocess.PIPE, text=True,
        )
        for file, what in words
    ]  # fmt: skip
    return tuple(json.loads(end.communicate(timeout=90)[0].splitlines()[-1]) for end in ends)  # type: ignore[return-value]


@pytest.mark.parametrize("implementation", OVER)
class TestSecured:
    def test_a_manager_sets_a_node(self, sonde, profile, implementation):
        domain = free_domain()
        wrote, read = together(sonde, implementation, profile(domain, "manager"), profile(domain, "node"), 15)
        assert wrote.get("matched"), wrote
        assert read["matched"]
        assert read["seen"] > 0

    def test_a_node_that_would_set_another_is_refused(self, sonde, profile, implementation):
        domain = free_domain()
        wrote, read = together(sonde, implementation, profile(domain, "node"), profile(domain, "node"))
        assert wrote["refused"] == "bus.open"
        assert "permissions of this participant's subject" in wrote["hint"]
        assert wrote["said"].count("NodeManager_set") == 1  # and not what its own log says besides
        assert read == {"matched": False, "seen": 0}

    def test_who_has_no_key_matches_nothing(self, sonde, profile, implementation):
        domain = free_domain()
        wrote, read = together(sonde, implementation, profile(domain, ""), profile(domain, "node"))
        assert wrote["matched"] is False
        assert read == {"matched": False, "seen": 0}

    def test_who_has_a_key_of_another_folder_matches_nothing(self, sonde, profile, implementation):
        domain = free_domain()
        wrote, read = together(
            sonde, implementation, profile(domain, "manager", "other"), profile(domain, "node")
        )
        assert wrote["matched"] is False
        assert read == {"matched": False, "seen": 0}


@pytest.mark.parametrize("implementation", OVER)
def test_files_that_are_not_there_are_named(sonde, profile, implementation):
    path = profile(free_domain(), "node")
    (sonde.cwd / "keys/node/key.pem").unlink()
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), "read", "1"],
        cwd=sonde.cwd, env=sonde.env | {"SONDE_BUS": implementation},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    told = json.loads(ran.stdout)
    assert told["refused"] == "bus.no_file"
    assert "key.pem" in told["said"]


ONE_PROCESS = """
import sys
import sonde.bus.client as bus
from sonde.core.errors import SondeError
files, opened, came = dict(zip("pk", sys.argv[1:3])), [], []
for what in sys.argv[3]:
    if what == "x":
        opened.pop().close()
        continue
    try:
        opened.append(bus.open(files[what]))
        came.append("opened")
    except SondeError as error:
        assert "keys" in str(error) and "<security>" in error.hint, error
        came.append(error.code)
for one in opened:
    one.close()
print(*came)
"""


@pytest.mark.parametrize("order", ["kp", "pk", "pkxp", "kxp", "pxk", "kk"])
@pytest.mark.parametrize("implementation", OVER)
def test_buses_of_one_process_in_a_domain_all_have_keys_or_cyclone_refuses_it(
    sonde, profile, implementation, order
):
    """Cyclone DDS 0.10.2 has one set of security plug-ins for a domain of a process, and crashed at "pkxp"."""
    domain = free_domain()
    words = [sys.executable, "-c", ONE_PROCESS, str(profile(domain, "")), str(profile(domain, "node")), order]
    done = subprocess.run(
        words, cwd=sonde.cwd, env=sonde.env | {"SONDE_BUS": implementation}, capture_output=True, text=True
    )
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr[-2000:])
    expected = ["opened"] * len(order.replace("x", ""))
    if implementation == "cyclonedds" and order in ("kp", "pk", "pkxp"):
        expected[1] = "bus.open"
    assert done.stdout.split() == expected

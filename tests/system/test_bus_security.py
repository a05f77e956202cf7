"""Keys of `sonde bus keys` on a real bus: who has none joins nothing, and nobody sets what was not granted."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sonde_shell import Shell, free_domain, shell

from power_daemons import until

pytest.importorskip("sonde._bus", reason="the bus is not built")

from sonde._bus import caps, implementations

OVER = [name for name in ("cyclonedds", "fastdds") if name in implementations() and caps(name)["security"]]
pytestmark = pytest.mark.skipif(not OVER, reason="no DDS here has security")

IDL = "module t { struct Cap { @key string node; double cap_w; }; };"
TOPIC = "NodeManager_set"

# One participant, of a writer or a reader: what it matched and what came, as one line of JSON each time that it reads a
# line, until its input ends; before that why it was refused, or "open". argv: profile, "write" or "read", cap_w.
PROGRAM = """
import json, select, sys
import sonde.bus.client as bus
try:
    with bus.open(sys.argv[1]) as here:
        seen = []
        with (here.writer if sys.argv[2] == "write" else here.reader)("NodeManager_set") as end:
            print(json.dumps("open"), flush=True)
            while True:
                if select.select([sys.stdin], [], [], 0.05)[0]:
                    if not sys.stdin.readline():
                        break
                    print(json.dumps({"matched": end.status()["matched"], "seen": sorted(set(seen))}), flush=True)
                elif sys.argv[2] == "write":
                    end.write(node="n017", cap_w=float(sys.argv[3]))
                else:
                    seen += [sample["cap_w"] for sample in end.take()]
except Exception as error:
    told = {"refused": getattr(error, "code", ""), "said": str(error), "hint": getattr(error, "hint", "")}
    print(json.dumps(told), flush=True)
"""


class End:
    """The process of PROGRAM."""

    def __init__(self, sonde: Shell, implementation: str, profile: Path, what: str, cap_w: float = 0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(profile), what, str(cap_w)],
            cwd=sonde.cwd, env=sonde.env | {"SONDE_BUS": implementation},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def says(self) -> Any:
        """Its next line."""
        return json.loads(self.process.stdout.readline())

    def told(self) -> dict[str, Any]:
        """Whom it has matched by now, how many, and which caps it has seen."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return dict(self.says())

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


Made = Callable[..., Path]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two folders of keys, `keys` and `other`."""
    opened = shell(tmp_path_factory.mktemp("keys"), None)
    sonde = next(opened)
    for folder in ("keys", "other"):
        sonde("bus", "keys", "init", folder).expect(0)
        sonde("bus", "keys", "add", folder, "manager", "--role", "system-manager").expect(0)
    sonde("bus", "keys", "add", "keys", "node", "--role", "node-manager").expect(0)
    yield sonde.cwd
    next(opened, None)


@pytest.fixture
def profile(sonde: Shell, keys: Path) -> Made:
    """profile(domain, identity) -> a file. identity "": without security."""
    (sonde.cwd / "t.idl").write_text(IDL)
    for folder in ("keys", "other"):
        shutil.copytree(keys / folder, sonde.cwd / folder)

    def made(domain: int, identity: str, folder: str = "keys") -> Path:
        secured = f'<security folder="{folder}" identity="{identity}"/>' if identity else ""
        path = sonde.cwd / f"{folder}-{identity or 'nobody'}.xml"
        path.write_text(
            f'<sonde-bus version="1"><profile name="default" domain="{domain}">{secured}<types idl="t.idl"/>'
            f'<topic name="{TOPIC}" type="t::Cap" durability="transient-local"/></profile></sonde-bus>'
        )
        return path

    return made


@pytest.mark.timeout(300)
@pytest.mark.parametrize("implementation", OVER)
def test_a_manager_sets_a_node_and_who_has_no_key_or_anothers_matches_nothing(
    sonde: Shell, profile: Made, implementation: str
):
    domain = free_domain()
    with ExitStack() as ends:

        def end(identity: str, what: str, cap_w: float = 0, folder: str = "keys") -> End:
            made = End(sonde, implementation, profile(domain, identity, folder), what, cap_w)
            ends.callback(made.close)
            return made

        node, nobody, stranger = end("node", "read"), end("", "write", 1), end("manager", "write", 2, "other")
        # A node that would set another. It is refused by its own permissions, before it meets anybody.
        wrote = end("node", "write", 3).says()
        assert wrote["refused"] == "bus.open"
        assert "permissions of this participant's subject" in wrote["hint"]
        assert wrote["said"].count("NodeManager_set") == 1  # and not what its own log says besides
        assert [one.says() for one in (node, nobody, stranger)] == ["open"] * 3
        # Who comes last is met: those before it had their time.
        manager = end("manager", "write", 4)
        assert manager.says() == "open"
        until(lambda: node.told()["seen"], "the node is set")
        until(lambda: manager.told()["matched"] == 1, "so does the manager know")
        time.sleep(1)  # others may be slower by a little
        assert node.told() == {"matched": 1, "seen": [4.0]}
        assert nobody.told()["matched"] == 0
        assert stranger.told()["matched"] == 0


@pytest.mark.parametrize("implementation", OVER)
def test_files_that_are_not_there_are_named(sonde: Shell, profile: Made, implementation: str):
    path = profile(free_domain(), "node")
    (sonde.cwd / "keys/node/key.pem").unlink()
    reader = End(sonde, implementation, path, "read")
    told = reader.says()
    reader.close()
    assert told["refused"] == "bus.no_file"
    assert "key.pem" in told["said"]

"""Real agents through `sonde-keeper`: they work, are paused, are ended, and leave nothing; and what is asked of
the keeper when things go wrong. The agents come from the packages of the group `test` (deploy/packages)."""

from __future__ import annotations

import json
import mmap
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import powercap_machine
import pytest

from sonde.core.errors import EnvironmentFailure, UsageError
from sonde.core.launch.remains import segments
from sonde.noise.agents import run as run_agents
from sonde.noise.agents.recipes import AgentPlan, Recipe, find_recipe, plan_for
from sonde.noise.agents.run import SupervisorProcess, states
from sonde_shell import Shell, Typed
from watching import wait_for

REAL = ("node-exporter", "collectd", "pcp", "node-manager-simulated")
PERIOD_S = 0.2


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The TMPDIR of everything that is started, in an empty working folder; both are empty at the end."""
    folder = Path(tempfile.mkdtemp(prefix="sa-"))
    folder.chmod(0o711)  # a PMDA that has given up root must get through
    monkeypatch.setenv("TMPDIR", str(folder))
    here = Path(tempfile.mkdtemp(prefix="sc-"))
    here.chmod(0o777)
    monkeypatch.chdir(here)
    shared = names()
    yield folder
    left = [path.name for path in (*folder.iterdir(), *here.iterdir())]
    shutil.rmtree(folder)
    shutil.rmtree(here)
    assert left == []
    wait_for(lambda: not left_since(shared), 10)
    assert left_since(shared) == set()


def names() -> set[str]:
    """What /dev/shm holds that an agent or its keeper may have made. Other rooms' programs, which others may run beside
    these tests, have names there at any moment.
    """
    mine = ("sonde-noise", "sonde-keeper", "sonde-agent-", "sonde-test-left")
    return {name for name in os.listdir("/dev/shm") if name.startswith(mine) or "pcp" in name}


def left_since(before: set[str]) -> set[str]:
    """New names that nobody uses. When all that a test started is gone, what is still mapped is somebody else's."""
    new = names() - before
    processes = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return new - {path.name for path in segments(processes)}


def test_what_is_left_in_shared_memory_is_distinguished_from_what_others_use() -> None:
    before = names()
    path = Path(f"/dev/shm/sonde-test-left-{os.getpid()}")
    path.write_bytes(bytes(4096))
    try:
        assert path.name in left_since(before)
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 4096):
            assert path.name not in left_since(before)
        assert path.name not in left_since(names())
    finally:
        path.unlink()
    assert path.name not in left_since(before)


def real(name: str) -> Recipe:
    recipe = find_recipe(name)
    if lacks := run_agents.missing(recipe):
        pytest.skip(
            f"no {', no '.join(lacks)}: {recipe.install('debian') or 'this build has no power stack'}"
        )
    return recipe


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Heard:
    """What an agent publishes on the bus in its folder."""

    def __init__(self, folder: Path, topic: str) -> None:
        from sonde.power.stack import run_bus

        self.bus = run_bus.open_bus(run_bus.load(folder / "power.toml"), "listener")
        self.reader = run_bus.reader(self.bus, topic)
        self.samples: list[dict[str, Any]] = []

    def all(self) -> list[dict[str, Any]]:
        time.sleep(0.1)  # what it sent before it was paused is on its way
        self.samples += [sample.value for sample in self.reader.take() if sample.has_data]
        return self.samples

    def close(self) -> None:
        self.reader.close()
        self.bus.close()


@pytest.fixture
def heard() -> Iterator[dict[Path, Heard]]:
    """By the agent's folder."""
    ears: dict[Path, Heard] = {}
    yield ears
    for one in ears.values():
        one.close()


def worked(usage: dict[str, Any], recipe: Recipe, heard: dict[Path, Heard]) -> int:
    """A number that grows as the agent works: bytes it was scraped for or wrote, samples it published."""
    if recipe.drive:
        return int(usage["drive_bytes"])
    if recipe.topic:
        folder = Path(usage["folder"])
        if folder not in heard:
            heard[folder] = Heard(folder, recipe.topic)
        return len(heard[folder].all())
    files = [path for path in Path(usage["folder"]).glob(recipe.work) if path.is_file()]
    return sum(path.stat().st_size for path in files)


@pytest.mark.parametrize("name", REAL)
def test_a_real_agent_works_is_paused_resumed_and_ended(
    name: str, scratch: Path, heard: dict[Path, Heard]
) -> None:
    recipe = real(name)
    plan = plan_for(name, PERIOD_S if name != "collectd" else 0.5)
    with SupervisorProcess(plan) as keeper:
        keeper.ask("start")
        usage = keeper.ask("usage")
        assert usage["alive"]
        folder = Path(usage["folder"])
        assert folder.parent == scratch
        first = worked(usage, recipe, heard)
        assert wait_for(lambda: worked(keeper.ask("usage"), recipe, heard) > first), "it did no work"

        keeper.ask("pause")
        paused = keeper.ask("usage")
        assert paused["processes"] == len(paused["pids"]) >= 1
        assert set(states(paused["pids"])) == {"T"}
        still = worked(paused, recipe, heard)
        time.sleep(4 * plan.period_s)
        after = keeper.ask("usage")
        assert worked(after, recipe, heard) == still
        assert after["cpu_s"] == paused["cpu_s"]
        assert after["paused_cpu_s"] == 0
        assert after["drives_done"] == paused["drives_done"]

        keeper.ask("resume")
        assert wait_for(lambda: worked(keeper.ask("usage"), recipe, heard) > still), "it did not go on"
        end = keeper.ask("usage")
        assert end["cpu_s"] > after["cpu_s"]
        assert end["wakeups"] > after["wakeups"]
        assert end["drives_failed"] == 0
        port = folder / "port"
        number = int(port.read_text()) if port.exists() else 0
        assert not number or listening(number)

        keeper.ask("stop")
        assert set(keeper.left()) == {keeper.process.pid, keeper.pid}
        assert not folder.exists()
        assert not number or not listening(number)
    assert keeper.left() == []


def test_the_node_manager_reads_the_hardware_that_is_there_and_sets_nothing(
    scratch: Path, tmp_path: Path, heard: dict[Path, Heard]
) -> None:
    """With RAPL and frequencies in a folder, as on a node that has them."""
    real("node-manager-simulated")  # the same program
    recipe = find_recipe("node-manager")
    powercap_machine.build(tmp_path)
    limits = list(tmp_path.glob("class/powercap/*/constraint_0_power_limit_uw"))
    before = [limit.read_text() for limit in limits]
    plan = plan_for(recipe.name, PERIOD_S)
    with SupervisorProcess(
        plan.with_changes(command=plan.command.replace("sys=/sys", f"sys={tmp_path}"))
    ) as keeper:
        keeper.ask("start")
        usage = keeper.ask("usage")
        assert wait_for(lambda: worked(usage, recipe, heard) > 1), "it told nothing"
        (sample, *_) = heard[Path(usage["folder"])].samples
        assert {domain["source"] for domain in sample["domains"]} == {"SOURCE_POWERCAP"}
        assert {frequency["current_hz"] for frequency in sample["frequencies"]} == {2.1e9}
        keeper.ask("stop")
    assert keeper.left() == []
    assert limits
    assert [limit.read_text() for limit in limits] == before


@pytest.mark.parametrize("name", REAL)
def test_nothing_of_a_real_agent_outlives_a_kill_9_of_what_started_it(name: str, scratch: Path) -> None:
    real(name)
    with SupervisorProcess(plan_for(name, PERIOD_S)) as keeper:
        keeper.ask("start")
        keeper.ask("pause")
        keeper.process.kill()
        assert wait_for(lambda: not keeper.left()), "the keeper did not end it"
        assert wait_for(lambda: not any(scratch.iterdir())), "the keeper did not tidy up"


@pytest.mark.parametrize("name", REAL)
def test_nothing_of_a_real_agent_outlives_a_kill_9_of_its_keeper(name: str, scratch: Path) -> None:
    real(name)
    with SupervisorProcess(plan_for(name, PERIOD_S)) as keeper:
        keeper.ask("start")
        os.kill(keeper.pid, signal.SIGKILL)
        with pytest.raises(EnvironmentFailure) as raised:
            keeper.ask("usage")
        assert raised.value.code == "noise.agent_keeper_died"
        assert keeper.left() == [keeper.process.pid]
        with pytest.raises(EnvironmentFailure):
            keeper.ask("start")


LEAVES_A_NAME = """
import mmap, os, time
with open("/dev/shm/{name}", "w+b") as file:
    file.truncate(4096)
    mapped = mmap.mmap(file.fileno(), 4096)
open(os.environ["SONDE_AGENT_DIR"] + "/up", "w")
time.sleep(1000)
"""


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_what_an_agent_left_in_shared_memory_goes_with_it(killed: bool, scratch: Path) -> None:
    name = f"sonde-agent-{uuid.uuid4().hex}"
    command = f"exec {sys.executable} -c '{LEAVES_A_NAME.format(name=name)}'"
    with SupervisorProcess(AgentPlan(command, ready="file:{dir}/up")) as keeper:
        keeper.ask("start")
        assert name in names()
        if killed:
            keeper.process.kill()
            assert wait_for(lambda: not keeper.left()), "the keeper did not end it"
        else:
            keeper.ask("stop")
        assert name not in names()


MANY_MAPPINGS = """
import mmap, os, time
maps = [mmap.mmap(-1, 4096) for _ in range(20000)]
open(os.environ["SONDE_AGENT_DIR"] + "/up", "w")
time.sleep(1000)
"""


def test_a_keeper_that_gets_no_memory_says_so_and_leaves_nobody(scratch: Path) -> None:
    """It reads the mappings of all processes of the agent before it ends them: 2 MB of text."""
    daemon = "setsid sleep 1000.75 &"
    command = f"({daemon}) ; exec {sys.executable} -c '{MANY_MAPPINGS}'"
    plan = AgentPlan(command, ready="file:{dir}/up", grace_s=0.5).with_changes(pause="start-stop")
    with SupervisorProcess(plan) as keeper:
        keeper.ask("start")
        assert wait_for(lambda: len(keeper.ask("usage")["pids"]) == 2)
        resource.prlimit(keeper.pid, resource.RLIMIT_AS, (1 << 20, 1 << 20))
        with pytest.raises(EnvironmentFailure) as raised:
            keeper.ask("pause")
        assert raised.value.code == "noise.agent_keeper_died"
        assert f"the agent's supervisor (process {keeper.pid}) failed: std::bad_alloc" in raised.value.what
        assert keeper.left() == [keeper.process.pid]


def as_nobody(scratch: Path, plan: AgentPlan, commands: str) -> list[dict[str, Any]]:
    """What sonde-keeper answers a user without rights."""
    program = SupervisorProcess(plan).program
    who = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if subprocess.run([*who, "test", "-x", str(program)]).returncode:
        pytest.skip(f"a user may not get to {program}")
    scratch.chmod(0o777)
    ran = subprocess.run(
        [*who, str(program), *plan.argv()],
        input="".join(f"{word}\n" for word in commands.split()),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert not ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()[1:]]


@pytest.mark.root
@pytest.mark.parametrize("name", REAL)
def test_a_real_agent_needs_no_root(name: str, scratch: Path) -> None:
    """And so its script writes nowhere but in its folder."""
    real(name)
    answers = as_nobody(scratch, plan_for(name, 0.5), "start pause resume usage stop")
    assert [answer["ok"] for answer in answers] == [True] * 5, answers
    assert answers[3]["processes"] > 0


@pytest.mark.root
def test_an_agent_that_became_another_user_is_named_and_told_how_to_end(
    scratch: Path, tmp_path: Path
) -> None:
    setpriv = shutil.which("setpriv")
    assert setpriv
    with tempfile.TemporaryDirectory(prefix="sb-") as folder:
        Path(folder).chmod(0o755)
        gate = Path(folder) / "gate"
        shutil.copy(setpriv, gate)
        gate.chmod(0o4755)
        if os.statvfs(folder).f_flag & os.ST_NOSUID:
            pytest.skip(f"{folder} is mounted nosuid")
        plan = AgentPlan(f"exec {gate} --reuid=0 --clear-groups sleep 1000.25", grace_s=0.1)
        answers = as_nobody(scratch, plan, "start pause place usage stop")
    start, pause, place, usage, stop = answers
    assert start["ok"], start
    (pid,) = usage["pids"]
    try:
        for answer in (pause, place, stop):
            assert answer["code"] == "noise.agent_not_permitted", answer
            assert f"sleep (process {pid})" in answer["what"]
        assert stop["hint"] == f"end it as root: kill {pid}"
        assert states([pid]) == "S"
    finally:
        os.kill(pid, signal.SIGKILL)
        shutil.rmtree(usage["folder"], ignore_errors=True)


# the drive, against a server that says what it was asked

SERVER = """
import http.server, os, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with open(os.environ["SONDE_AGENT_DIR"] + "/asked", "a") as file:
            file.write(self.path + " " + self.headers.get("Accept-Encoding", "") + "\\n")
        body = b"x" * 100000
        self.send_response({status})
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Page)
with open(os.environ["SONDE_AGENT_DIR"] + "/port", "w") as file:
    file.write(str(server.server_address[1]))
server.serve_forever()
"""


def served(folder: Path, status: int = 200) -> AgentPlan:
    script = folder / "server.py"
    script.write_text(SERVER.format(status=status))
    return AgentPlan(
        f"exec {sys.executable} {script}",
        ready="port:{port}",
        drive="http://127.0.0.1:{port}/metrics?x=1",
        drive_period_s=0.05,
    )


def test_a_drive_is_a_whole_http_request(tmp_path: Path, scratch: Path) -> None:
    with SupervisorProcess(served(tmp_path)) as keeper:
        keeper.ask("start")
        assert wait_for(lambda: keeper.ask("usage")["drives_done"] >= 3)
        keeper.ask("pause")
        usage = keeper.ask("usage")
        asked = (Path(usage["folder"]) / "asked").read_text().splitlines()
        assert usage["drives_failed"] == 0
        assert len(asked) == usage["drives_done"]
        assert set(asked) == {"/metrics?x=1 gzip"}
        assert usage["drive_bytes"] > 100_000 * usage["drives_done"]
        assert 0 < usage["drive_min_s"] <= usage["drive_max_s"] <= usage["drive_s"]


def test_an_answer_that_is_an_error_is_a_failed_drive(tmp_path: Path, scratch: Path) -> None:
    with SupervisorProcess(served(tmp_path, 503)) as keeper:
        keeper.ask("start")
        assert wait_for(lambda: keeper.ask("usage")["drives_failed"])
        usage = keeper.ask("usage")
        assert usage["drives_done"] == 0
        assert usage["drive_failure"] == "answered with status 503"


def test_a_port_that_is_taken_is_not_taken_for_the_agents(scratch: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with SupervisorProcess(AgentPlan("exec sleep 100", ready=f"port:{port}")) as keeper:
            with pytest.raises(EnvironmentFailure) as raised:
                keeper.ask("start")
            assert raised.value.code == "noise.agent_port_taken"
            assert str(port) in raised.value.what


def test_the_log_is_appended_to_and_quoted(tmp_path: Path, scratch: Path) -> None:
    log = tmp_path / "log"
    log.write_text("of another run\n")
    with SupervisorProcess(AgentPlan("echo first; echo second >&2; exit 9", log=str(log))) as keeper:
        with pytest.raises(EnvironmentFailure) as raised:
            keeper.ask("start")
        assert "exit status 9" in raised.value.what
        assert raised.value.hint.splitlines() == ["its log ends with", "    first", "    second"]
    assert log.read_text() == "of another run\nfirst\nsecond\n"


def test_what_the_keeper_does_not_understand(scratch: Path) -> None:
    with SupervisorProcess(AgentPlan("exec sleep 100")) as keeper:
        for command, code in (("dance", "noise.bad_option"), ("place x", "noise.agent_bad_cpus")):
            with pytest.raises(UsageError) as raised:
                keeper.ask(command)
            assert raised.value.code == code


def test_a_keeper_that_gets_no_spec_says_so(tmp_path: Path) -> None:
    program = SupervisorProcess(AgentPlan("")).program
    ran = subprocess.run([program, "--agent-colour", "red"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2
    assert "--agent-colour" in ran.stdout


SPAWNER = "import subprocess\nwhile True: subprocess.run(['/bin/true'])"


def test_an_agent_that_spawns_all_the_time_is_paused_wholly(scratch: Path) -> None:
    """With vfork: a parent that waits for its child's exec cannot be stopped while the child is."""
    with SupervisorProcess(AgentPlan(f'exec {sys.executable} -c "{SPAWNER}"')) as keeper:
        keeper.ask("start")
        for _ in range(20):
            keeper.ask("pause")
            usage = keeper.ask("usage")
            assert set(states(usage["pids"])) == {"T"}
            assert usage["paused_cpu_s"] == 0
            keeper.ask("resume")
            time.sleep(0.01)


# sonde noise agents


def test_the_list_says_what_is_here(typed: Typed) -> None:
    listed = typed("noise", "agents", "--json").expect(0).json["agents"]
    by_name = {agent["name"]: agent for agent in listed}
    assert set(REAL) <= set(by_name)
    for name in REAL:
        assert by_name[name]["here"] is (not run_agents.missing(find_recipe(name)))


def test_a_recipe_is_shown_with_its_script(typed: Typed) -> None:
    shown = typed("noise", "agents", "collectd", "--period", "2s", "--json").expect(0).json
    assert "Interval 2\\n" in shown["script"]
    assert shown["asked_period_s"] == 2


def test_a_trial_tells_what_an_agent_used(sonde: Shell, scratch: Path) -> None:
    recipe = real("node-exporter")
    ran = sonde("noise", "agents", recipe.name, "--try", "--period", "200ms", "--json").expect(0)
    trial = ran.json["trial"]
    assert trial["held"] is True
    assert trial["left"] == []
    assert trial["drives"] > 0
    assert trial["cpu_s"] > 0
    assert sonde.left() == []


def test_a_trial_of_what_does_not_start_tells_its_last_words(sonde: Shell) -> None:
    ran = sonde("noise", "agents", "echo no config; exit 5", "--try").expect(3)
    assert "exit status 5" in ran.said
    assert "no config" in ran.said
    assert sonde.left() == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_trial_that_is_interrupted_or_killed_leaves_nothing(
    sonde: Shell, number: signal.Signals, code: int
) -> None:
    real("collectd")
    trial = sonde.start("noise", "agents", "collectd", "--try", "--period", "60s")
    assert wait_for(lambda: any("collectd" in name for name in sonde.processes().values()))
    trial.send_signal(number)
    trial.communicate(timeout=60)
    assert trial.returncode == code
    assert sonde.left() == []


def test_bad_input_is_reported_with_what_to_type(typed: Typed) -> None:
    assert "nearest: pcp" in typed("noise", "agents", "pcpd").expect(2).said
    assert "sonde noise agents collectd --try" in typed("noise", "agents", "--try").expect(2).said
    assert "10 ms to 1 h" in typed("noise", "agents", "pcp", "--period", "1ms").expect(2).said

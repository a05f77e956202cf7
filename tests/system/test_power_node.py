"""sonde-powerd node-manager: real processes on a real bus, over a powercap tree in a folder and simulated hardware."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

import sonde._power as _power
from sonde._bus import caps

import sonde.bus.client as bus
from power_daemons import DAEMON, Rapl, make_bus, powerd, until
from sonde.bus.errors import BusError, Refused
from sonde.core.processes import began

OVER = [name for name in ("cyclonedds", "fastdds") if name in bus.implementations()]
ANSWERED_S = 20.0  # at most; it is no measure of anything
pytestmark = [
    pytest.mark.skipif(not OVER, reason="no DDS is here"),
    pytest.mark.skipif(
        "node-manager"
        not in json.loads(subprocess.run([DAEMON, "--list"], capture_output=True).stdout)["roles"],
        reason="this build has no node-manager",
    ),
]


class Stack:
    """One node manager, and a client on its bus."""

    def __init__(
        self, folder: Path, over: str, hardware: str, more: str = "", telemetry: str = "200ms"
    ) -> None:
        self.folder = folder
        self.name = f"n-{uuid.uuid4().hex[:12]}"
        self.config = folder / "power.toml"
        make_bus(folder, over)
        self.config.write_text(
            f'[bus]\nprofile = "bus.xml"\n[[nodes]]\nhosts = "{self.name}"\nmin = 60\nmax = 190\nsafe = 80\n'
            f'[node-manager]\nname = "{self.name}"\ntelemetry = "{telemetry}"\nstate = "state"\n{more}\n'
            f"[[node-manager.hardware]]\n{hardware}"
        )
        (folder / "client.xml").write_text(_power.bus_profile(str(self.config), "test"))
        self.bus = bus.open(folder / "client.xml")
        types = "sonde::power::NodeQuery", "sonde::power::NodeCommand", "sonde::power::NodeAnswer"
        self.get = self.bus.client("NodeManager_get", types[0], types[2])
        self.set = self.bus.client("NodeManager_set", types[1], types[2])
        self.telemetry = self.bus.reader("Monitor_report_node_telemetry")
        self.sequence = 0
        self.daemon: subprocess.Popen[str] | None = None
        self.ready: dict[str, Any] = {}

    def start(self, *words: str, **options: Any) -> dict[str, Any]:
        self.log = (self.folder / "log").open("a")
        self.daemon = subprocess.Popen(
            powerd("node-manager", self.config, *words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            **options,
        )
        self.ready = self.event()
        return self.ready

    def event(self) -> dict[str, Any]:
        assert self.daemon is not None
        assert self.daemon.stdout is not None
        line = self.daemon.stdout.readline()
        assert line, f"the daemon ended: {(self.folder / 'log').read_text()}"
        return dict(json.loads(line))

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        assert self.daemon is not None
        self.daemon.send_signal(how)
        code = self.daemon.wait(20)
        for pipe in (self.daemon.stdin, self.daemon.stdout):
            assert pipe is not None
            pipe.close()
        self.log.close()
        self.daemon = None
        return code

    def ask(self, what: str = "GET_POWERCAP_NODE") -> dict[str, Any]:
        return dict(self.get.call({"ask": what}, self.name, ANSWERED_S).body)

    def grant(
        self, cap_w: float, lease_s: float = 15.0, epoch: int = 1, manager: str = "m", **other: Any
    ) -> dict[str, Any]:
        # A lease runs from its ticket: whom to order is known before that.
        assert self.set.wait_for_server(ANSWERED_S)
        lease = self.ask()["lease"]
        self.sequence += 1
        return {
            "order": "SET_POWER_NODE",
            "epoch": epoch,
            "manager": manager,
            "sequence": self.sequence,
            "instance": lease["instance"],
            "ticket_ns": lease["ticket_ns"],
            "lease_s": lease_s,
            "cap_w": cap_w,
            **other,
        }

    def order(self, cap_w: float, **other: Any) -> Any:
        return self.set.call(self.grant(cap_w, **other), self.name, ANSWERED_S).body

    def refusal(self, cap_w: float, **other: Any) -> int:
        """The number of the code with which an order was answered."""
        (answer,) = self.set.call_all(self.grant(cap_w, **other), self.name, ANSWERED_S, 1)
        return int(answer["number"])

    def close(self) -> None:
        if self.daemon is not None:
            self.daemon.kill()
            self.end(signal.SIGKILL)
        for part in (self.get, self.set, self.telemetry, self.bus):
            part.close()


# One participant asks a node, and orders it to obey a fence: what was answered, as JSON. argv: profile, node, epoch, s
# for the question, s for the order.
ASKING = """
import json, sys
import sonde.bus.client as bus
of = "sonde::power::".__add__
profile, node, epoch, *limits_s = sys.argv[1:]
question = "NodeManager_get", "NodeQuery", {"ask": "GET_INFO_NODE"}
order = "NodeManager_set", "NodeCommand", {"order": "FENCE_NODE", "epoch": int(epoch), "manager": "chief"}
told = []
with bus.open(profile) as here:
    for (service, request, body), limit_s in zip((question, order), limits_s):
        try:
            with here.client(service, of(request), of("NodeAnswer")) as asking:
                answer = asking.call(body, node, float(limit_s)).body
                told.append([answer["node"], answer["lease"]["seen_epoch"]])
        except bus.EnvironmentFailure as error:
            told.append(error.code)
print(json.dumps(told))
"""


@pytest.fixture(params=OVER)
def over(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def rapl(tmp_path: Path) -> Rapl:
    return Rapl(tmp_path / "sys")


@pytest.fixture
def made(tmp_path: Path, rapl: Rapl) -> Iterator[Callable[..., Stack]]:
    stacks: list[Stack] = []

    def make(over: str = OVER[0], hardware: str = "", more: str = "", telemetry: str = "200ms") -> Stack:
        stacks.append(Stack(tmp_path, over, hardware or rapl.toml, more, telemetry))
        return stacks[-1]

    yield make
    for stack in stacks:
        stack.close()


def test_requests_are_answered_and_a_grant_is_obeyed_until_its_lease_ends(made, rapl, over):
    stack = made(over)
    ready = stack.start()
    assert (ready["event"], ready["bus"], ready["cap_w"]) == ("ready", over, 80)
    assert rapl.cap_w == 80
    info = stack.ask("GET_INFO_NODE")
    assert (info["node"], info["min_w"], info["max_w"], info["safe_w"]) == (stack.name, 60, 190, 80)
    assert info["implementation"] == "powercap"
    assert not info["lease"]["leased"]
    reply = stack.order(120, lease_s=3)
    assert rapl.cap_w == 120
    assert (reply["lease"]["leased"], reply["lease"]["lease_w"], reply["lease"]["cap_w"]) == (True, 120, 120)
    answer = until(lambda: stack.ask() if stack.ask()["domains"] else None, "a reading")
    assert [(d["name"], d["source"]) for d in answer["domains"]] == [("package-0", "SOURCE_POWERCAP")]
    assert isinstance(stack.ask("GET_FREQ_NODE")["frequencies"], list)
    # Nobody says anything more: by its own clock it goes back.
    assert stack.event()["event"] == "lease_ended"
    assert rapl.cap_w == 80
    assert not stack.ask()["lease"]["leased"]


def test_telemetry_says_its_source_and_carries_the_ticket(made, over):
    stack = made(over, 'kind = "simulated"\nidle = 60\nbusy = 180\n')
    stack.start()

    def last():
        samples = [s.value for s in stack.telemetry.take() if s.has_data and s.value["node"] == stack.name]
        return samples[-1] if samples else None

    sample = until(lambda: (s := last()) and s["energy_j"] > 0 and s, "telemetry with energy")
    assert sample["source"] == "SOURCE_SIMULATED"
    assert {domain["source"] for domain in sample["domains"]} == {"SOURCE_SIMULATED"}
    assert sample["lease"]["instance"] == stack.ask()["lease"]["instance"]
    assert sample["power_w"] > 0
    assert sample["trouble"] == ""


def test_who_begins_to_look_is_reported_the_last_report_and_need_not_wait_for_the_next(made, over):
    stack = made(over, 'kind = "simulated"\n', telemetry="1h")
    stack.start()
    stack.ask()
    with (
        bus.open(stack.folder / "client.xml") as late,
        late.reader("Monitor_report_node_telemetry") as reader,
    ):
        (node,) = until(lambda: {s.value["node"] for s in reader.take() if s.has_data}, "its first report")
    assert node == stack.name


def test_what_is_refused_has_its_code(made, rapl):
    stack = made()
    stack.start()
    stack.order(120, epoch=5)
    assert stack.refusal(130, epoch=4) == 1000
    assert stack.refusal(130, epoch=5, sequence=1) == 1001
    assert stack.refusal(130, epoch=5, instance=17) == 1002
    assert stack.refusal(130, epoch=5, lease_s=0.0) == 1004
    assert stack.refusal(130, epoch=5, lease_s=float("nan")) == 1004
    for cap_w in (59.0, 191.0, 99_999.0, float("nan"), float("inf"), -1.0):
        assert stack.refusal(cap_w, epoch=5) == 1005
    assert rapl.cap_w == 120
    # Nobody else's node answers to this name.
    with pytest.raises(BusError):
        stack.get.call({"ask": "GET_INFO_NODE"}, stack.name + "x", 0.5)


def test_a_fence_survives_kill_9_and_a_ticket_does_not(made, rapl):
    stack = made()
    stack.start()
    fence = {"order": "FENCE_NODE", "epoch": 9, "manager": "next"}
    stack.set.call(fence, stack.name, ANSWERED_S)
    before = stack.ask()["lease"]
    stack.end(signal.SIGKILL)
    stack.start()
    lease = stack.ask()["lease"]
    assert (lease["seen_epoch"], lease["seen_manager"]) == (9, "next")
    assert lease["instance"] != before["instance"]
    assert stack.refusal(130, epoch=8, manager="z") == 1000
    assert stack.refusal(130, epoch=9, manager="next", instance=before["instance"]) == 1002
    assert stack.order(130, epoch=9, manager="next")["lease"]["cap_w"] == 130


def test_after_kill_9_the_guardian_sets_the_safe_cap_and_is_gone(made, rapl):
    stack = made()
    ready = stack.start()
    stack.order(150, lease_s=600)
    assert rapl.cap_w == 150
    stack.end(signal.SIGKILL)
    until(lambda: rapl.cap_w == 80, "the safe cap")
    until(lambda: began(ready["guardian"]) == 0, "the guardian's end")


def test_one_that_is_stopped_keeps_no_cap_past_its_lease_and_knows_it_when_it_goes_on(made, rapl):
    stack = made()
    ready = stack.start()
    stack.order(150, lease_s=3)
    assert rapl.cap_w == 150
    os.kill(ready["pid"], signal.SIGSTOP)
    try:
        until(lambda: rapl.cap_w == 80, "the safe cap")
        rapl.overwrite(150)  # a write of before that took its time
        until(lambda: rapl.cap_w == 80, "the safe cap again")
    finally:
        os.kill(ready["pid"], signal.SIGCONT)
    until(lambda: stack.event()["event"] == "guardian_acted", "that it knows")
    lease = stack.ask()["lease"]
    assert (lease["leased"], lease["cap_w"]) == (False, 80)
    assert stack.order(140)["lease"]["cap_w"] == 140
    assert rapl.cap_w == 140
    assert stack.end() == 0
    assert not Path(f"/proc/{ready['guardian']}").exists()


def test_a_cap_that_changes_is_reported_at_once_and_since_when_it_is(made):
    stack = made(telemetry="1h")
    stack.start()

    def samples() -> list[dict[str, Any]]:
        taken = [s.value for s in stack.telemetry.take() if s.has_data]
        return [dict(s) for s in taken if s["node"] == stack.name]

    caps = itertools.cycle((110.0, 111.0))
    until(lambda: stack.order(next(caps), lease_s=600) and samples(), "that it is heard")
    stack.order(112, lease_s=600)
    until(lambda: any(s["lease"]["cap_w"] == 112 for s in samples()), "the last one of these")
    before = time.time_ns()
    stack.order(120, lease_s=600)
    after = time.time_ns()
    (sample,) = until(samples, "one for the change")
    assert sample["lease"]["cap_w"] == 120
    assert before <= sample["cap_since_ns"] <= after
    assert sample["period_s"] == 3600  # when the next one comes that is none for a change
    # However often it changes.
    begin = time.monotonic()
    for k in range(30):
        stack.order(100 + k % 2, lease_s=600)
    heard: list[dict[str, Any]] = []
    until(lambda: heard.extend(samples()) or (heard and heard[-1]["lease"]["cap_w"] == 101), "the last one")
    assert len(heard) <= (time.monotonic() - begin) / 0.1 + 1


def test_originals_are_those_before_the_first_cap_also_after_kill_9(made, rapl):
    stack = made()
    stack.start()
    stack.order(150, lease_s=600)
    stack.end(signal.SIGKILL)
    stack.start("--restore")
    stack.order(140, lease_s=600, epoch=2)
    assert stack.end() == 0
    assert rapl.cap_w == 180


def test_release_sets_the_safe_cap_or_puts_back_what_was_there(made, rapl):
    stack = made()
    ready = stack.start()
    release = [DAEMON, "release", "--config", stack.config]
    running = subprocess.run(release, capture_output=True, text=True)
    assert running.returncode == 3
    assert "power.already_running" in running.stdout
    os.kill(ready["guardian"], signal.SIGKILL)
    assert stack.event()["code"] == "power.no_guardian"
    stack.order(150, lease_s=600)
    stack.end(signal.SIGKILL)
    assert rapl.cap_w == 150
    done = subprocess.run(release, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["cap_w"] == 80
    assert rapl.cap_w == 80
    done = subprocess.run([*release, "--restore"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["restored"] is True
    assert rapl.cap_w == 180


@pytest.mark.parametrize(
    "words",
    [(), ("--observe",), ("--restore",), ("--observe", "--restore")],
    ids=["configured", "typed", "configured, and restores", "typed, and restores"],
)
def test_one_that_observes_leaves_the_hardware_as_it_is(made, rapl, words):
    stack = made()
    configured = "--observe" not in words
    if configured:
        stack.config.write_text(stack.config.read_text() + "[budget]\nobserve = true\n")
    ready = stack.start(*words)
    assert (ready["settable"], rapl.cap_w) == (False, 180)
    assert stack.refusal(120) == 1006  # read_only
    sample = until(lambda: next((s.value for s in stack.telemetry.take() if s.has_data), None), "telemetry")
    assert (sample["domains"][0]["cap_w"], sample["lease"]["leased"], sample["trouble"]) == (180, False, "")
    stack.end(signal.SIGKILL)
    until(lambda: began(ready["guardian"]) == 0, "the guardian's end")
    assert rapl.cap_w == 180
    release = [DAEMON, "release", "--config", stack.config]
    if configured:
        subprocess.run(release, capture_output=True, check=True)
        assert rapl.cap_w == 180
    stack.start(*words)
    stack.end()
    assert rapl.cap_w == 180


def test_in_order_it_ends_at_the_safe_cap_and_leaves_no_process(made, rapl):
    stack = made()
    ready = stack.start()
    stack.order(150, lease_s=600)
    assert stack.end() == 0
    assert rapl.cap_w == 80
    assert not Path(f"/proc/{ready['guardian']}").exists()
    stack.start()
    assert stack.daemon is not None
    assert stack.daemon.stdin is not None
    stack.daemon.stdin.close()
    assert stack.daemon.wait(20) == 0


def test_a_reader_of_its_events_that_is_stuck_holds_up_nothing(made, rapl):
    stack = made()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writing, b"x" * 4096):
            pass
    os.set_blocking(writing, True)
    daemon = subprocess.Popen(
        [DAEMON, "node-manager", "--config", stack.config, "--with-parent"],
        stdin=subprocess.PIPE,
        stdout=writing,
        stderr=writing,
    )
    try:
        assert stack.order(120, lease_s=3)["lease"]["cap_w"] == 120
        until(lambda: rapl.cap_w == 80, "the safe cap")
        rapl.overwrite(200)
        until(lambda: rapl.cap_w == 80, "the safe cap again")
        assert daemon.stdin is not None
        daemon.stdin.close()
        assert daemon.wait(20) == 0
    finally:
        daemon.kill()
        daemon.wait()
        os.close(reading)
        os.close(writing)


def test_what_firmware_overwrites_is_set_again_and_reported(made, rapl):
    stack = made()
    stack.start()
    stack.order(120, lease_s=600)
    rapl.overwrite(200)
    trouble = stack.event()
    assert (trouble["event"], trouble["code"]) == ("trouble", "power.overwritten")
    assert rapl.cap_w == 120
    until(
        lambda: [
            s for s in stack.telemetry.take() if s.has_data and "power.overwritten" in s.value["trouble"]
        ],
        "telemetry that tells it",
    )


# A BMC of words: `hangs` beside it makes it one that does not answer.
IPMITOOL = """#!/bin/sh
cd {folder}
echo "$*" >> asked
[ -e hangs ] && exec sleep 60
case "$*" in
  *"power reading"*) printf ' Instantaneous power reading: 120 Watts\\n Power reading state is: activated\\n' ;;
  *"get_limit"*) printf ' Current Limit State: Power Limit Active\\n Exception actions: Log Event to SEL\\n'
    printf ' Power Limit: %s Watts\\n Correction time: 1000 milliseconds\\n' "$(cat limit)"
    printf ' Sampling period: 1 seconds\\n' ;;
  *"set_limit limit"*) for last; do :; done; echo "$last" > limit ;;
esac
"""


def test_a_bmc_that_hangs_does_not_make_the_watchdog_kill_it_and_renewals_write_nothing(
    made, tmp_path, monkeypatch
):
    tool = tmp_path / "ipmitool"
    tool.write_text(IPMITOOL.format(folder=tmp_path))
    tool.chmod(0o755)
    (tmp_path / "limit").write_text("180\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        told: list[float] = []

        def hear() -> None:
            with contextlib.suppress(OSError):
                while word := systemd.recv(4096):
                    if word == b"WATCHDOG=1":
                        told.append(time.monotonic())

        hearing = threading.Thread(target=hear)
        hearing.start()
        stack = made(hardware='kind = "ipmi"\ntimeout = "8s"\nmin = 60\nmax = 190\n')
        stack.start()
        writes = lambda: (tmp_path / "asked").read_text().count("set_limit limit")  # noqa: E731
        stack.order(150, lease_s=60)
        before = writes()
        for _ in range(3):
            assert stack.order(150, lease_s=60)["lease"]["cap_w"] == 150
        assert writes() == before
        (tmp_path / "hangs").touch()
        # It is in a look then, which takes 5 s more.
        until(lambda: stack.event().get("code") == "power.hardware_slow", "that it hangs", 30)
        begun = time.monotonic()
        until(lambda: sum(at > begun for at in told) >= 3, "it says that it lives while it waits", 60)
        assert (tmp_path / "hangs").exists()
        (tmp_path / "hangs").unlink()
        stack.end(signal.SIGKILL)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as nothing:
            nothing.sendto(b"", str(tmp_path / "notify"))
        hearing.join()


def test_files_that_vanish_are_trouble_and_it_goes_on_when_they_are_back(made, rapl):
    stack = made()
    stack.start()
    away = rapl.root / "away"
    rapl.zone.rename(away)
    event = until(lambda: (e := stack.event())["event"] == "trouble" and e, "trouble")
    assert event["code"] in ("power.hardware_gone", "power.hardware_failed")
    assert stack.refusal(120) == 1007
    assert stack.ask()["node"] == stack.name
    away.rename(rapl.zone)
    rapl.overwrite(200)
    until(lambda: rapl.cap_w == 80, "the safe cap", 30)
    until(lambda: stack.event().get("event") == "mended", "that all is well")
    assert stack.order(120)["lease"]["cap_w"] == 120


def test_hostile_samples_change_nothing(made, rapl):
    stack = made()
    stack.start()
    random.seed(7)
    for _ in range(50):
        body = {
            "order": random.choice(["SET_POWER_NODE", "FENCE_NODE"]),
            "epoch": 0,
            "manager": "".join(chr(random.randint(1, 126)) for _ in range(random.randint(0, 64))),
            "sequence": random.getrandbits(64),
            "instance": random.getrandbits(64),
            "ticket_ns": random.getrandbits(63) * random.choice((1, -1)),
            "lease_s": random.choice((1e308, -1e308, 5e-324, 10.0)),
            "cap_w": random.choice((1e308, -1e308, 0.0, 120.0)),
        }
        with pytest.raises(Refused):
            stack.set.call(body, stack.name, ANSWERED_S)
    raw = stack.bus.client("NodeManager_set")
    for n in (0, 1, 3, 4, 17, 64, 4096):
        with pytest.raises(BusError):
            raw.call(random.randbytes(n), stack.name, 0.3)
    raw.close()
    assert rapl.cap_w == 80
    assert stack.order(120)["lease"]["cap_w"] == 120


def test_with_a_full_disk_it_is_at_its_safe_cap_and_says_why_it_lends_nothing(made):
    stack = made(hardware='kind = "simulated"\nidle = 60\nbusy = 180\n')
    ready = stack.start(
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    )
    assert ready["cap_w"] == 80
    assert stack.event()["code"] == "power.state"
    with pytest.raises(Refused, match=r"power\.state.*File too large"):
        stack.order(120)
    assert stack.ask()["lease"]["cap_w"] == 80
    # There is room again: what could not be kept is kept now.
    assert stack.daemon is not None
    resource.prlimit(
        stack.daemon.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    )
    until(lambda: stack.event().get("event") == "mended", "that all is well")
    assert stack.order(120)["lease"]["cap_w"] == 120


def test_on_a_bus_with_keys_only_the_system_manager_sets_caps(made, rapl, sonde):
    over = [name for name in OVER if caps(name)["security"]]
    if not over:
        pytest.skip("no DDS here has security")
    sonde("bus", "keys", "init", "keys").expect(0)
    for who, role in {"node": "node-manager", "chief": "system-manager", "guest": "monitor"}.items():
        sonde("bus", "keys", "add", "keys", who, "--role", role).expect(0)
    stack = made(over[0])
    text = (stack.folder / "bus.xml").read_text()
    plain = stack.folder / "client.xml"

    def secured(who: str) -> Path:
        keys = f'<security folder="{sonde.cwd}/keys" identity="{who}"/></profile>'
        (stack.folder / "bus.xml").write_text(text.replace("</profile>", keys))
        path = stack.folder / f"{who}.xml"
        path.write_text(_power.bus_profile(str(stack.config), who))
        return path

    chief, guest = secured("chief"), secured("guest")
    secured("node")
    stack.start()

    def ask(profile: Path, epoch: int, *limits_s: float) -> Any:
        words = [sys.executable, "-c", ASKING, profile, stack.name, *map(str, (epoch, *limits_s))]
        run = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout)

    assert ask(chief, 3, ANSWERED_S, ANSWERED_S) == [[stack.name, 0], [stack.name, 3]]
    # It may ask, and its orders reach nobody.
    asked, ordered = ask(guest, 4, ANSWERED_S, 1)
    assert asked == [stack.name, 3]
    assert str(ordered).startswith("bus.")
    # One without keys is heard by nobody.
    assert all(str(told).startswith("bus.") for told in ask(plain, 5, 1, 1))
    assert ask(chief, 3, ANSWERED_S, ANSWERED_S) == [[stack.name, 3], [stack.name, 3]]


def test_a_node_that_is_not_named_and_one_without_hardware_are_refused(made):
    stack = made()
    run = subprocess.run(
        [DAEMON, "node-manager", "--config", stack.config, "--name", stack.name + "x"],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 2
    assert json.loads(run.stdout)["code"] == "power.unknown_node"
    assert f"(nearest: {stack.name})" in run.stdout
    stack.config.write_text(stack.config.read_text().partition("[[node-manager.hardware]]")[0])
    run = subprocess.run([DAEMON, "node-manager", "--config", stack.config], capture_output=True, text=True)
    assert (run.returncode, json.loads(run.stdout)["code"]) == (2, "power.no_hardware")


def test_roles_of_python_are_started_as_sonde(tmp_path):
    sonde = tmp_path / "sonde"
    sonde.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:])\n")
    sonde.chmod(0o755)
    run = subprocess.run(
        [DAEMON, "monitor", "--config", "x.toml", "--anything"],
        env={**os.environ, "SONDE_COMMAND": str(sonde)},
        capture_output=True,
        text=True,
    )
    assert run.stdout.strip() == "['power', 'serve', 'monitor', '--config', 'x.toml', '--anything']"
    run = subprocess.run(
        [DAEMON, "monitor"], env={"SONDE_COMMAND": "/nowhere/sonde"}, capture_output=True, text=True
    )
    assert (run.returncode, json.loads(run.stdout)["code"]) == (3, "power.no_command")

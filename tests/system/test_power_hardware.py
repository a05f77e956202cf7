"""Power hardware, each kind over what stands for it here: files in a folder, a BMC's Redfish over TLS, ipmi_sim."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import ipmi_machine
import pytest
import redfish_service

from sonde.core.launch import libexec
from watching import wait_for

PROGRAM = libexec() / "sonde-powerconform"
HERE = Path(__file__).parent
HANGS_S = 400  # over IPMI each exchange is a process that computes: two minutes on a machine that has much else to do

pytestmark = pytest.mark.skipif(not os.access(PROGRAM, os.X_OK), reason="this build has no power room")


@dataclass
class Told:
    code: int
    events: list[dict[str, object]]
    words: str

    def outcomes(self, outcome: str) -> dict[str, str]:
        return {str(e["name"]): str(e["reason"]) for e in self.events if e.get("outcome") == outcome}

    @property
    def error(self) -> tuple[str, str]:
        (one,) = (e for e in self.events if e["event"] == "error")
        return str(one["code"]), f"{one['what']} {one['hint']}"


def conform(kind: str, *words: object, **env: str) -> Told:
    ran = subprocess.run(
        [PROGRAM, kind, "--json", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        env=os.environ | env,
    )
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    return Told(ran.returncode, events, ran.stdout + ran.stderr)


def keeps_everything(told: Told, but: tuple[str, ...] = ()) -> None:
    assert told.outcomes("failed") == {}
    assert set(told.outcomes("unsupported")) == set(but)
    assert told.code == 0, told.words
    assert len(told.outcomes("passed")) + len(but) == len(cases())


def cases() -> list[str]:
    return subprocess.run([PROGRAM, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()


@contextmanager
def beside(script: str, *words: object) -> Iterator[str]:
    """A machine in a process of its own; its first line. It ends when this one does."""
    process = subprocess.Popen(
        [sys.executable, HERE / script, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    try:
        first = process.stdout.readline().strip()
        assert first, f"{script} did not start"
        yield first
    finally:
        with suppress(OSError):
            process.stdin.close()
        process.wait(30)
        process.stdout.close()


# Files in a folder


def test_powercap_of_a_machine_in_a_folder(tmp_path: Path):
    with beside("powercap_machine.py", tmp_path):
        keeps_everything(conform("powercap", "--root", tmp_path))
        # What was there before is there again.
        zone = tmp_path / "class/powercap/intel-rapl:1"
        assert (zone / "constraint_0_power_limit_uw").read_text().strip() == "200000000"
        assert (zone / "constraint_1_power_limit_uw").read_text().strip() == "240000000"


def test_killed_while_it_has_set_a_cap_it_leaves_what_was_there_before(tmp_path: Path):
    with beside("powercap_machine.py", tmp_path):
        limit = tmp_path / "class/powercap/intel-rapl:0/constraint_0_power_limit_uw"
        words = [PROGRAM, "powercap", "--root", tmp_path, "--case", "cap: it is obeyed"]

        def start() -> subprocess.Popen[str]:
            return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

        running, end = start(), time.monotonic() + 60
        while time.monotonic() < end:
            if running.poll() is not None:  # it was too quick
                running.communicate()
                running = start()
            running.send_signal(signal.SIGSTOP)
            if limit.read_text().strip() not in ("", "200000000"):
                break
            running.send_signal(signal.SIGCONT)
            time.sleep(0.005)
        else:
            running.kill()
            pytest.fail("it never had a cap of its own")
        running.kill()
        assert wait_for(lambda: limit.read_text().strip() == "200000000", 20)
        assert "were restored" in running.communicate(timeout=30)[1]  # and who did that is gone


def test_powercap_that_cannot_be_capped_says_why(tmp_path: Path):
    with beside("powercap_machine.py", tmp_path):
        for k in range(2):
            (tmp_path / f"class/powercap/intel-rapl:{k}/constraint_1_power_limit_uw").unlink()
        told = conform("powercap", "--root", tmp_path, "--no-set")
        assert told.outcomes("failed") == {}
        assert told.code == 0
        assert len(told.outcomes("unsupported")) == 8
    (tmp_path / "class/powercap/intel-rapl:0/constraint_0_power_limit_uw").unlink()
    (tmp_path / "class/powercap/intel-rapl:1/constraint_0_power_limit_uw").unlink()
    reasons = set(conform("powercap", "--root", tmp_path, "--case", "cap*").outcomes("unsupported").values())
    assert reasons == {"no domain can be capped: constraint_0_power_limit_uw does not exist"}


def test_gpus_by_the_library_that_the_loader_finds():
    fake = next(iter(sorted(PROGRAM.parents[1].rglob("nvml/libnvidia-ml.so.1"))), None)
    fake = fake or next(
        iter(sorted((HERE.parents[1] / "build").glob("*/tests/nvml/libnvidia-ml.so.1"))), None
    )
    if fake is None:
        pytest.skip("the native tests, which have a small NVML, are not built")
    keeps_everything(conform("nvml", LD_LIBRARY_PATH=str(fake.parent)))


def test_simulated_keeps_its_cap_in_a_folder(tmp_path: Path):
    (tmp_path / "load").write_text("0.8\n")
    keeps_everything(conform("simulated", "--root", tmp_path, "--load-file", tmp_path / "load"))


# Redfish


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a certificate of 127.0.0.1 that it signed, and the password."""
    folder = tmp_path_factory.mktemp("redfish")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(
        "req",
        "-x509",
        *curve,
        "-days",
        "2",
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-subj",
        "/CN=Test authority",
    )
    openssl("req", *curve, "-keyout", "key.pem", "-out", "request.pem", "-subj", "/CN=bmc")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl(
        *("x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
        *("-days", "2", "-extfile", "names", "-out", "cert.pem"),
    )
    password = folder / "password"
    password.write_text(redfish_service.PASSWORD + "\n")
    password.chmod(0o600)
    return folder


Bmc = Callable[..., list[str]]


@pytest.fixture
def bmc(certificates: Path, tmp_path: Path) -> Iterator[Bmc]:
    """bmc("--schema", "new") starts one, and gives the words by which it is found."""
    with ExitStack() as opened:
        for name in ("cert.pem", "key.pem"):
            (tmp_path / name).symlink_to(certificates / name)

        def start(*words: str) -> list[str]:
            port = opened.enter_context(beside("redfish_service.py", tmp_path, *words))
            return [
                *("--url", f"https://127.0.0.1:{port}", "--ca", str(certificates / "ca.pem")),
                *("--user", redfish_service.USER, "--password-file", str(certificates / "password")),
            ]

        yield start


def redfish_is_built() -> bool:
    kinds = subprocess.run([PROGRAM, "--kinds", "--json"], capture_output=True, text=True, check=True).stdout
    return any(e["kind"] == "redfish" and not e["missing"] for e in map(json.loads, kinds.splitlines()))


needs_redfish = pytest.mark.skipif(
    os.access(PROGRAM, os.X_OK) and not redfish_is_built(), reason="this build has no libcurl"
)
RANGE = ("--min", "150", "--max", "600")


@needs_redfish
@pytest.mark.parametrize(
    ("schema", "manner"), [("old", "anything"), ("new", "anything"), ("controls", "good")]
)
def test_redfish_keeps_its_promises(bmc: Bmc, tmp_path: Path, schema: str, manner: str):
    # The older schema tells no least cap; the newer ones need nothing of the configuration.
    limits = ("--min", "150") if schema == "old" else ()
    told = conform("redfish", *bmc("--schema", schema, "--manner", manner), *limits)
    keeps_everything(told)
    # Whatever a BMC takes, none of what is out of range was sent to it.
    sent = [json.loads(line) for line in (tmp_path / "patches").read_text().splitlines()]
    watts = [w for one in sent for w in numbers(one)]
    assert len(watts) > 10
    assert all(150 <= w <= 600 for w in watts)


def numbers(of: object) -> list[float]:
    if isinstance(of, dict):
        return [w for part in of.values() for w in numbers(part)]
    if isinstance(of, list):
        return [w for part in of for w in numbers(part)]
    return [of] if isinstance(of, int | float) else []


@needs_redfish
def test_redfish_restores_that_nothing_was_limited(bmc: Bmc, tmp_path: Path):
    assert conform("redfish", *bmc(), *RANGE, "--case", "cap: what is set*").code == 0
    last = (tmp_path / "patches").read_text().splitlines()[-1]
    assert json.loads(last) == {"PowerControl": [{"PowerLimit": {"LimitInWatts": None}}]}


@needs_redfish
def test_redfish_restores_that_the_limit_was_off(bmc: Bmc, tmp_path: Path):
    assert conform("redfish", *bmc("--schema", "new"), "--case", "cap: what is set*").code == 0
    sent = [json.loads(line)["PowerLimitWatts"] for line in (tmp_path / "patches").read_text().splitlines()]
    assert sent[0]["ControlMode"] == "Automatic"
    assert {"ControlMode": "Disabled"} in sent[-2:]


@needs_redfish
@pytest.mark.parametrize("kept", [500, None])
def test_redfish_restores_what_was_kept_while_it_was_off(bmc: Bmc, tmp_path: Path, kept: int | None):
    # Strict as BMCs are, it takes no SetPoint of null.
    words = bmc("--schema", "new", *([] if kept else ["--unset"]))
    told = conform("redfish", *words, "--case", "cap: what is set*")
    assert told.code == 0, told.words
    sent = [json.loads(line)["PowerLimitWatts"] for line in (tmp_path / "patches").read_text().splitlines()]
    off = {"ControlMode": "Disabled"}
    assert sent[-2:] == [off, {"SetPoint": 500}] if kept else sent[-1] == off


@needs_redfish
def test_redfish_that_would_switch_the_node_off_is_told_to_log_first(bmc: Bmc, tmp_path: Path):
    told = conform("redfish", *bmc("--exception", "HardPowerOff"), *RANGE, "--case", "cap: it is obeyed")
    assert told.code == 0, told.words
    sent = [
        json.loads(line)["PowerControl"][0]["PowerLimit"]
        for line in (tmp_path / "patches").read_text().splitlines()
    ]
    assert sent == [
        {"LimitException": "LogEventOnly"},
        {"LimitInWatts": 150},
        {"LimitInWatts": None},
        {"LimitException": "HardPowerOff"},
    ]


@needs_redfish
def test_redfish_that_would_switch_the_node_off_whatever_it_is_told_is_not_capped(bmc: Bmc, tmp_path: Path):
    words = bmc("--exception", "HardPowerOff", "--manner", "headstrong")
    told = conform("redfish", *words, *RANGE, "--timeout", "1", "--case", "cap: it is obeyed")
    assert "keeps LimitException" in told.words
    assert not [
        w for line in (tmp_path / "patches").read_text().splitlines() for w in numbers(json.loads(line))
    ]


@needs_redfish
@pytest.mark.parametrize("schema", ["old", "new", "controls"])
def test_redfish_that_shows_the_old_limit_for_a_moment_is_not_taken_for_disobedient(bmc: Bmc, schema: str):
    words = bmc("--schema", schema, "--lag", "0.5", "--exception", "HardPowerOff")
    told = conform("redfish", *words, *RANGE, "--case", "cap: what is set*")
    assert told.code == 0, told.words


@needs_redfish
def test_redfish_has_a_time_for_each_chassis(bmc: Bmc, tmp_path: Path):
    # Each of 7 takes four answers of 0.1 s; one has 4 x 0.5 s.
    words = bmc("--chassis", "7", "--delay", "0.1")
    told = conform("redfish", *words, "--timeout", "0.5", "--no-set", "--case", "domains: each has*")
    assert told.code == 0, told.words
    assert len((tmp_path / "delayed").read_text().splitlines()) > 20  # over more than one has


@needs_redfish
def test_redfish_has_a_time_for_each_setting_that_is_put_back(bmc: Bmc, tmp_path: Path):
    # To put back four limits and what is done above each takes sixteen answers of 0.2 s; each setting has 2 x 1 s.
    words = bmc("--chassis", "4", "--delay-back", "0.2", "--exception", "HardPowerOff")
    told = conform("redfish", *words, *RANGE, "--timeout", "1", "--case", "cap: what is set*")
    assert told.code == 0, told.words
    sent = (tmp_path / "patches").read_text().splitlines()
    assert sum('"HardPowerOff"' in line for line in sent) == 4, sent
    assert len((tmp_path / "delayed").read_text().splitlines()) > 10  # over more than one setting has


@needs_redfish
def test_redfish_asks_those_chassis_alone_that_are_meant(bmc: Bmc, tmp_path: Path):
    words = bmc("--chassis", "4")
    told = conform("redfish", *words, "--domains", "Sled[12]", "--no-set", "--case", "domains: each has*")
    assert told.code == 0, told.words
    asked = {
        line.split("/")[4] for line in (tmp_path / "asked").read_text().splitlines() if line.count("/") > 3
    }
    assert asked == {"Sled1", "Sled2"}


@needs_redfish
def test_redfish_leaves_a_control_alone_that_is_switched_off(bmc: Bmc, tmp_path: Path):
    assert conform("redfish", *bmc("--schema", "controls"), "--case", "cap: what is set*").code == 0
    assert "/redfish/v1/Chassis/Self/Controls/Power" in (tmp_path / "asked").read_text()


@needs_redfish
def test_redfish_tries_again_when_somebody_was_quicker(bmc: Bmc):
    keeps = conform("redfish", *bmc("--manner", "stale"), *RANGE, "--case", "cap: what is set*")
    assert keeps.outcomes("failed") == {}
    assert keeps.code == 0


@needs_redfish
def test_redfish_that_takes_a_cap_and_does_nothing_is_found_out(bmc: Bmc):
    words = bmc("--schema", "controls", "--manner", "deaf")
    told = conform("redfish", *words, "--timeout", "1", "--case", "cap: what is set*")
    assert told.code == 1
    assert "was set to 600 W, and cap() read back 500 W" in next(iter(told.outcomes("failed").values()))


@needs_redfish
def test_redfish_without_limits_of_its_own_is_read_only(bmc: Bmc):
    told = conform("redfish", *bmc(), "--case", "cap: it is obeyed")
    assert next(iter(told.outcomes("unsupported").values())).endswith("set `min` in the configuration")


@needs_redfish
def test_redfish_that_does_not_answer_in_time(bmc: Bmc):
    began = time.monotonic()
    told = conform("redfish", *bmc("--manner", "slow"), *RANGE, "--timeout", "0.2")
    assert told.code == 3
    assert told.error[0] == "power.bmc_timeout"
    assert time.monotonic() - began < 60  # not for ever: the limit is some 1 s


@needs_redfish
@pytest.mark.parametrize(
    "answer",
    [
        "",
        "<html>",
        "[]",
        '{"PowerControl": [',
        '{"PowerControl": [{"PowerConsumedWatts": "200"}]}',
        '{"PowerControl": [{"PowerConsumedWatts": -3}]}',
        '{"PowerControl": [{"PowerConsumedWatts": 1e12}]}',
        '{"PowerControl": {"0": 1}}',
        "[" * 100_000,
        '{"a": "' + "x" * 2_000_000 + '"}',
    ],
    ids=["empty", "html", "list", "cut", "text", "negative", "huge", "object", "deep", "long"],
)
def test_redfish_that_answers_nonsense(bmc: Bmc, tmp_path: Path, answer: str):
    words = bmc("--manner", "nonsense")
    (tmp_path / "nonsense").write_text(answer)
    told = conform("redfish", *words, *RANGE, "--no-set", "--case", "reading*")
    # Refused as hardware, or told to be without power; never a number.
    if told.code == 3:
        code, said = told.error
        assert code in ("power.hardware_failed", "power.no_hardware")
        assert "127.0.0.1" in said
    else:
        assert told.code == 1
        assert "reports no power" in told.words


@needs_redfish
def test_redfish_is_not_talked_to_without_trust(bmc: Bmc, certificates: Path, tmp_path: Path):
    words = bmc()
    url = words[1]
    password = str(certificates / "password")
    login = ("--user", redfish_service.USER, "--password-file", password)
    code, said = conform("redfish", "--url", url, *login).error
    assert code == "power.hardware_failed"
    assert "`ca`" in said
    stranger = url.replace("127.0.0.1", "localhost")  # which the certificate does not name
    assert (
        conform("redfish", "--url", stranger, *login, "--ca", certificates / "ca.pem").error[0]
        == "power.hardware_failed"
    )
    assert conform("redfish", "--url", url.replace("https", "http"), *login).error[0] == "power.bad_hardware"
    assert conform("redfish", "--url", f"{url}/redfish", *login).error[0] == "power.bad_hardware"
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong\n")
    assert (
        conform(
            "redfish",
            "--url",
            url,
            "--ca",
            certificates / "ca.pem",
            "--user",
            "sonde",
            "--password-file",
            wrong,
        ).error[0]
        == "power.bad_hardware"
    )
    wrong.chmod(0o600)
    code, said = conform(
        "redfish", "--url", url, "--ca", certificates / "ca.pem", "--user", "sonde", "--password-file", wrong
    ).error
    assert code == "power.bmc_denied"
    assert "wrong\n" not in said


# IPMI


@pytest.fixture(scope="module")
def ipmi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ipmi_machine.Bmc]:
    if what := ipmi_machine.missing():
        pytest.skip(f"{what} is not installed")
    with ipmi_machine.ipmi_machine(tmp_path_factory.mktemp("ipmi")) as bmc:
        yield bmc


@pytest.mark.timeout(2 * HANGS_S)
def test_ipmi_keeps_its_promises(ipmi: ipmi_machine.Bmc):
    # Some seconds: each exchange is a process, and there are over a hundred.
    keeps_everything(conform("ipmi", *ipmi.words, "--min", "150", "--max", "450"))
    asked = ipmi.asked()
    limits = [one for one in asked if one[0] == 4]
    # A limit is first set after "switch it off" was taken away: 11h is "tell it"; and put back at the end.
    assert limits[0][5] == 0x11
    assert limits[-1][5] == 0x01
    assert all(150 <= one[6] + 256 * one[7] <= 450 for one in limits[1:-2])
    assert limits[-1][6] + 256 * limits[-1][7] == 500
    assert [one for one in asked if one[0] == 5][-1][2] == 0


@contextmanager
def ipmi_of(folder: Path, manner: str) -> Iterator[ipmi_machine.Bmc]:
    if what := ipmi_machine.missing():
        pytest.skip(f"{what} is not installed")
    with ipmi_machine.ipmi_machine(folder, manner) as bmc:
        yield bmc


def test_ipmi_puts_back_that_the_node_is_switched_off_above_its_limit_only_when_none_is_active(
    tmp_path: Path,
):
    with ipmi_of(tmp_path, "fresh") as bmc:
        told = conform("ipmi", *bmc.words, "--min", "150", "--max", "450", "--case", "cap: it is obeyed")
        assert told.code == 0, told.words
        asked = bmc.asked()
    assert [0xFF] not in asked  # it was not switched off
    assert [0x05, 0xDC, 0x00, 0x00, 0x00] in asked
    # At the end as at the beginning; no limit of 0 W is asked for, which it would refuse.
    limits = [one for one in asked if one[0] == 4]
    assert limits[-1][5] == 0x01
    assert all(one[6] + 256 * one[7] for one in limits)


@pytest.mark.timeout(3 * HANGS_S)
@pytest.mark.parametrize("manner", ["bare", "short"])
@pytest.mark.parametrize(
    "some",
    [
        pytest.param(("cap: what is set*", "cap: it is obeyed", "originals: another*"), id="what sets it"),
        pytest.param((), id="all", marks=pytest.mark.soak),
    ],
)
def test_ipmi_that_tells_no_limit_where_none_is_active_is_capped(
    tmp_path: Path, manner: str, some: tuple[str, ...]
):
    with ipmi_of(tmp_path, manner) as bmc:
        words = ("ipmi", *bmc.words, "--min", "150", "--max", "450")
        for case in some:
            told = conform(*words, "--case", case)
            assert (told.code, len(told.outcomes("passed"))) == (0, 1), told.words
        if not some:
            keeps_everything(conform(*words))
        asked = bmc.asked()
    assert [0xFF] not in asked
    limits = [one for one in asked if one[0] == 4]
    # Log it, in 1000 ms and 1 s, which nobody told it.
    assert all(one[5] == 0x11 and one[8:12] == [0xE8, 0x03, 0, 0] and one[14] == 1 for one in limits)
    assert [one for one in asked if one[0] == 5][-1][2] == 0


def test_ipmi_sensors_and_model(ipmi: ipmi_machine.Bmc):
    assert conform("ipmi", *ipmi.words, "--no-set", "--case", "sensors*").code == 0


def test_ipmi_tells_who_is_refused_from_who_is_not_heard(ipmi: ipmi_machine.Bmc, tmp_path: Path):
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong\n")
    wrong.chmod(0o600)
    at = f"127.0.0.1:{ipmi.port}"
    assert (
        conform("ipmi", "--url", at, "--user", "sonde", "--password-file", wrong).error[0]
        == "power.bmc_denied"
    )
    nobody = f"127.0.0.1:{ipmi_machine.free_port()}"
    assert (
        conform(
            "ipmi", "--url", nobody, "--user", "sonde", "--password-file", wrong, "--timeout", "0.2"
        ).error[0]
        == "power.bmc_timeout"
    )
    assert conform("ipmi", "--url", at).error[0] == "power.bad_hardware"
    assert (
        conform("ipmi", "--url", "-x", "--user", "sonde", "--password-file", wrong).error[0]
        == "power.bad_hardware"
    )


@pytest.mark.parametrize(
    ("says", "code"),
    [
        ("exec sleep 60", "power.bmc_timeout"),
        ("exec >/dev/null 2>&1; sleep 60 & wait", "power.bmc_timeout"),
        ("yes", "power.no_hardware"),
        ("echo broken >&2; exit 1", "power.no_hardware"),
    ],
    ids=["hangs", "hangs in silence", "does not stop", "fails"],
)
def test_an_ipmitool_that_behaves_badly(tmp_path: Path, says: str, code: str):
    program = tmp_path / "ipmitool"
    # By its path, which its command line then has.
    sleep = tmp_path / "sleep"
    sleep.symlink_to(shutil.which("sleep"))
    program.write_text(f"#!/bin/sh\n{says.replace('sleep', str(sleep))}\n")
    program.chmod(0o755)
    timeout_s = 0.1 if code == "power.bmc_timeout" else 10
    told = conform("ipmi", "--timeout", timeout_s, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert told.error[0] == code
    # Neither it nor what it started is left.
    assert wait_for(lambda: not processes_with(str(tmp_path)), 10)


def processes_with(word: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if word in line:
                found.append(line)
    return found


# The program


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no kind of hardware"),
        (("nonsense",), "no kind 'nonsense'"),
        (("simulated", "--nonsense"), "no option --nonsense"),
        (("simulated", "--min"), "needs a value"),
        (("simulated", "--min", "100K"), "cannot be '100K'"),
        (("simulated", "--case", "nothing*"), "no case fits"),
        (("simulated", "--url", "https://x"), "has no url"),
        (("simulated", "nvml"), "two kinds"),
    ],
)
def test_what_is_asked_wrongly_is_reported(words: tuple[str, ...], said: str):
    ran = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    assert ran.returncode == 2
    assert said in ran.stderr


def test_an_end_in_the_middle_puts_back_what_was_there(tmp_path: Path):
    with beside("powercap_machine.py", tmp_path):
        limit = tmp_path / "class/powercap/intel-rapl:0/constraint_0_power_limit_uw"
        process = subprocess.Popen([PROGRAM, "powercap", "--root", tmp_path], stdout=subprocess.DEVNULL)
        assert wait_for(lambda: limit.read_text().strip() not in ("", "200000000"), 30)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 1
        assert limit.read_text().strip() == "200000000"

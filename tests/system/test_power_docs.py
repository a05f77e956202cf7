"""The page on the power stack's configuration has what the parser has; units of systemd say what sonde-powerd knows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

import sonde._power as _power

from sonde.bus.keys import ROLES
from sonde.core.errors import UsageError
from sonde.core.launch import libexec
from sonde.power.recording.policy import policies

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/power-config.md").read_text()
DAEMON = libexec() / "sonde-powerd"
UNITS = sorted((ROOT / "deploy/systemd").glob("sonde-power-*.service"))
STORED = ROOT / "deploy/systemd/sonde-stored.service"


def tables() -> list[dict[str, str]]:
    """The rows of the page's tables of keys, as config_keys() would tell them."""
    rows = []
    for section in re.split(r"^## ", PAGE, flags=re.M)[1:]:
        title = section.partition("\n")[0]
        name = "" if title == "At the top" else title.strip("`[]")
        if "| key | type | default | what |" not in section:
            continue
        for row in re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*) \|$", section, re.M):
            rows.append(
                {"section": name, "key": row[0], "type": row[1], "default": row[2].strip("`"), "what": row[3]}
            )
    return rows


def test_the_page_has_every_key_and_no_other():
    assert tables() == _power.config_keys()


def test_the_page_has_every_policy_and_no_other():
    section = PAGE.partition("## Policies")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.M) == list(policies().items())


def test_the_example_of_the_page_is_one():
    (example,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.M | re.S)
    config = _power.parse_config(example, "/etc/sonde/power.toml")
    assert [node["name"] for node in config["nodes"]] == ["n001", "n002", "n003", "n004"]
    assert config["nodes"][0]["safe_w"] == 150
    said = {"power_limit_w": 1200, "policy": "fair", "lease_s": 15, "soft_w": None}
    assert config["budget"] == {**config["budget"], **said}
    assert config["bus"]["profile"] == "/etc/sonde/bus.xml"
    assert config["racks"]["r1"] == {"power_limit_w": 20000, "cooling_w": 15000}
    assert config["node_manager"]["hardware"][0]["kind"] == "powercap"


def test_errors_of_the_page_are_those_that_there_are():
    for text, code in {
        "x = ": "power.bad_toml",
        "[budget]\npolcy = 1": "power.unknown_key",
        "[budget]\nlease = -1": "power.bad_value",
        '[[nodes]]\nhosts = "a"\nmin = 2\nmax = 1': "power.bad_node",
        '[budget]\npower_limit = 1\n[[nodes]]\nhosts = "a"\nmin = 2\nmax = 3': "power.safe_above_budget",
        '[budget]\npolicy = "x"': "power.unknown_policy",
    }.items():
        with pytest.raises(UsageError) as error:
            _power.parse_config(text)
        assert error.value.code == code
        assert f"`{code}`" in PAGE
    with pytest.raises(UsageError) as error:
        _power.load_config("/nowhere/power.toml")
    assert error.value.code == "power.no_file"


def test_the_idl_of_the_messages_is_that_of_the_package():
    own = (ROOT / "src/sonde/power/stack/power.idl").read_text()
    names = re.compile(r"\b(?:struct|enum)\s+(\w+)")
    assert sorted(names.findall(own)) == sorted(names.findall(_power.idl()))


def test_hardware_that_can_be_had_is_reported():
    kinds = {kind["kind"]: kind["missing"] for kind in _power.hardware_kinds()}
    assert kinds.keys() >= {"powercap", "nvml", "redfish", "ipmi", "simulated"}
    assert kinds["simulated"] == ""


def test_units_have_users_that_are_made_folders_of_their_own_and_keys_of_their_role():
    every = [*UNITS, STORED]
    said = {
        unit.stem: dict(re.findall(r"^(User|StateDirectory|Environment)=(.+)$", unit.read_text(), re.M))
        for unit in every
    }
    folders = [Path(one["StateDirectory"]) for one in said.values()]
    # systemd gives a folder to its unit's user with all that is in it: none may be another's, or be above it.
    assert not [(a, b) for a in folders for b in folders if a is not b and a in (b, *b.parents)]
    page = ROOT / "deploy/systemd/sonde.sysusers"
    made = re.findall(r"^u (\S+) ", page.read_text(), re.M)
    assert {one["User"] for one in said.values()} == {*made, "root"}
    # Who gets into one of them has what is that one's alone.
    assert Counter(one["User"] for one in said.values()) == Counter([*made, "root", "root"])
    for unit in UNITS:
        role = unit.stem.removeprefix("sonde-power-")
        assert said[unit.stem]["Environment"] == f"SONDE_BUS_IDENTITY={role}"
        assert role in ROLES
    if shutil.which("systemd-sysusers"):
        words = ["systemd-sysusers", "--dry-run", page]
        told = subprocess.run(words, capture_output=True, text=True)
        assert told.returncode == 0, told.stderr
        there = [
            user
            for user in made
            if subprocess.run(["getent", "passwd", user], capture_output=True).returncode == 0
        ]
        assert {*re.findall(r"^Creating user '(\S+)'", told.stdout + told.stderr, re.M), *there} == set(made)


@pytest.mark.parametrize("unit", [*UNITS, STORED], ids=lambda unit: unit.stem)
def test_units_may_do_little_or_say_why_not(unit: Path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    words = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    ran = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
    (score,) = re.findall(r"exposure level for \S+: ([\d.]+)", ran.stdout)
    (said,) = re.findall(
        r"^# `systemd-analyze security` calls this ([\d.]+) of 10", unit.read_text(), re.M
    ) or ["2.0"]
    assert float(score) <= float(said), ran.stdout


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_units_start_roles_that_there_are(unit, tmp_path):
    text = unit.read_text()
    usage = subprocess.run([DAEMON, "--help"], capture_output=True, text=True, check=True).stdout
    started = re.findall(
        r"^Exec(?:Start|StopPost)=/opt/sonde/(?:libexec/sonde-powerd|bin/sonde power serve) (\S+) --config \S+$",
        text,
        re.M,
    )
    assert started
    roles = usage.partition("\noptions\n")[0]
    assert all(re.search(rf"(^  |, ){role}\b", roles, re.M) for role in started)
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    copy = tmp_path / unit.name
    sonde = str(Path(sys.executable).with_name("sonde"))
    there = text.replace("/opt/sonde/libexec/sonde-powerd", str(DAEMON))
    copy.write_text(there.replace("/opt/sonde/bin/sonde", sonde))
    said = subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True)
    # A key that an older systemd does not know yet; the unit says what is lost then.
    lines = [line for line in (said.stdout + said.stderr).splitlines() if "'DelegateSubgroup'" not in line]
    assert (said.returncode, lines) == (0, [])

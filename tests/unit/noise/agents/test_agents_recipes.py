"""Recipes of agents: what a name, a misspelt name and a command become, and that the scripts are sound."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from sonde.core.distribution import INSTALL
from sonde.core.errors import UsageError
from sonde.core.launch import libexec
from sonde.noise.agents.recipes import RECIPES, AgentPlan, find_recipe, names, plan_for, recipe_for

TOP = Path(__file__).parents[4]


def test_names_are_unique_and_can_be_typed():
    assert len(set(names())) == len(RECIPES)
    assert all(re.fullmatch(r"[a-z][a-z-]*", name) for name in names())


@pytest.mark.parametrize("name", names())
def test_a_script_is_what_a_shell_understands_and_ends_with_exec(name: str):
    script = plan_for(name).command
    assert subprocess.run(["/bin/sh", "-n", "-c", script], capture_output=True, text=True).stderr == ""
    assert script.strip().splitlines()[-1].startswith("exec "), "the keeper watches what it started"
    assert not re.search(r"@[A-Z]", script)
    assert "$SONDE_AGENT_DIR" in script


@pytest.mark.parametrize("name", names())
def test_a_script_without_its_program_ends_with_the_status_of_a_missing_command(name: str, tmp_path: Path):
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("grep", "sed", "mkdir", "id", "touch", "cat"):
        (tools / tool).symlink_to(f"/bin/{tool}" if Path(f"/bin/{tool}").exists() else f"/usr/bin/{tool}")
    # The places of daemons are put on PATH by the script itself, so these must not be looked at either.
    script = plan_for(name).command.replace("/usr/local/sbin:/usr/sbin:/sbin", "/proc/nonexistent")
    script = script.replace(str(libexec()), "/proc/nonexistent")
    ran = subprocess.run(
        ["/bin/sh", "-c", script],
        env={"PATH": str(tools), "SONDE_AGENT_DIR": str(tmp_path), "PCP_DIR": "/proc/nonexistent"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode in (2, 127)  # 2: dash's own for a file that `.` does not find
    assert ran.stderr


@pytest.mark.parametrize("recipe", RECIPES, ids=names())
def test_what_a_recipe_says_is_complete(recipe):
    assert recipe.what
    assert recipe.notes
    assert recipe.programs
    assert recipe.daemons
    assert recipe.usual_s >= recipe.period_s > 0
    assert recipe.pause in ("stop-cont", "start-stop")
    assert recipe.drive or recipe.work or recipe.topic or not recipe.tested, (
        "its tests must see that it works"
    )
    assert set(recipe.packages) <= set(INSTALL)


@pytest.mark.parametrize(
    "recipe", [r for r in RECIPES if r.tested], ids=[r.name for r in RECIPES if r.tested]
)
@pytest.mark.parametrize("family", ["debian", "ubuntu", "fedora", "suse"])
def test_packages_are_those_of_the_lists(recipe, family: str):
    rows = (TOP / f"deploy/packages/{family}.txt").read_text().splitlines()
    (row,) = (line.split() for line in rows if line.split()[:2] == ["test", "noise"])
    wanted = recipe.packages.get("debian" if family == "ubuntu" else family, "").split()
    assert wanted or set(recipe.daemons) == {"sonde-powerd"}, "what is not Sonde's own comes from a package"
    assert set(wanted) <= set(row[2:])


def test_what_to_type_to_install_keeps_services_from_starting():
    recipe = find_recipe("collectd")
    assert recipe.install("debian") == "env RUNLEVEL=1 SYSTEMD_OFFLINE=1 apt-get install collectd-core"
    assert recipe.install("fedora").startswith("dnf install collectd")
    assert recipe.install("") == ""
    assert find_recipe("ldms").install("debian") == ""


@pytest.mark.parametrize(
    ("typed", "near"), [("node-exportr", "node-exporter"), ("Collectd", "collectd"), ("PCP", "pcp")]
)
def test_a_misspelt_recipe_is_an_error_that_names_the_nearest(typed: str, near: str):
    for find in (find_recipe, recipe_for, plan_for):
        with pytest.raises(UsageError) as raised:
            find(typed)
        assert raised.value.code == "noise.agent_unknown"
        assert f"'{typed}' (nearest: {near})" in raised.value.what


def test_a_word_that_is_a_program_is_a_command_however_near():
    assert recipe_for("telegraph", lambda word: word == "telegraph") is None
    with pytest.raises(UsageError, match="nearest: telegraf"):
        recipe_for("telegraph")


@pytest.mark.parametrize(
    "command", ["sleep 10", "./collectd", "/usr/sbin/collectd -f", "mydaemon", "pcp; true"]
)
def test_anything_else_is_a_command_that_is_run_as_it_is(command: str):
    plan = plan_for(command)
    assert plan == AgentPlan(command)
    assert plan.argv()[:2] == ["--agent-command", command]
    assert "--agent-drive" not in plan.argv()


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_an_empty_agent_is_an_error(text: str):
    with pytest.raises(UsageError) as raised:
        plan_for(text)
    assert raised.value.code == "noise.agent_empty"
    assert "collectd" in raised.value.hint


def test_the_period_reaches_the_script_and_the_drive():
    assert "Interval 0.25\\n" in plan_for("collectd", 0.25).command
    assert "every 250 msec" in plan_for("pcp", 0.25).command
    assert "interval=250000\\n" in plan_for("ldms", 0.25).command
    plan = plan_for("node-exporter", 0.25)
    assert (plan.drive_period_s, plan.period_s) == (0.25, 0.25)
    flags = plan.argv()
    assert flags[flags.index("--agent-drive-period-s") + 1] == "0.25"
    assert flags[flags.index("--agent-ready") + 1] == "port:{port}"


def test_an_agent_has_its_period_and_more_to_become_ready():
    assert plan_for("pcp", 60.0).ready_deadline_s > 60


@pytest.mark.parametrize("period_s", [0.0, 0.009, 3601.0, float("nan"), float("inf"), -1.0])
def test_a_period_that_cannot_be_measured_is_refused(period_s: float):
    for agent in ("collectd", "sleep 10"):
        with pytest.raises(UsageError) as raised:
            plan_for(agent, period_s)
        assert raised.value.code == "noise.agent_period"


def test_netdata_works_in_whole_seconds():
    with pytest.raises(UsageError) as raised:
        plan_for("netdata", 1.5)
    assert raised.value.hint == "give --period 2s"
    assert plan_for("netdata", 2.0).period_s == 2.0


def test_a_plan_is_changed_only_where_something_is_given():
    plan = plan_for("collectd", 1.0)
    assert plan.with_changes(pause=None, log=None) == plan
    changed = plan.with_changes(pause="start-stop", log="/tmp/x")
    assert changed.argv()[-2:] == ["--agent-log", "/tmp/x"]
    assert (changed.pause, changed.command) == ("start-stop", plan.command)


def test_the_notes_say_how_often_an_exporter_is_really_scraped():
    assert "once a minute" in " ".join(find_recipe("node-exporter").notes)

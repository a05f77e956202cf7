"""deploy/slurm: what the scripts make of Sonde's answers, with a Sonde that answers as told."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

SLURM = Path(__file__).parents[2] / "deploy" / "slurm"
FINDING = "! 1 finding\n  would drain: scontrol update NodeName=n1 State=DRAIN 'Reason=sonde: slow'\n"


def program(path: Path, text: str) -> Path:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


@pytest.fixture
def answering(tmp_path):
    """Runs a script with a Sonde that notes its words, prints `text` and ends with `status`."""

    def run(
        script: str,
        text: str = "✓ 0 findings in 1 of 1 rooms\n",
        status: int = 0,
        first: int | None = None,
        **env,
    ):
        (tmp_path / "text").write_text(text)
        early = f'[ "$2" != run ] || exit {first}\n' if first is not None else ""
        body = f'printf "%s\\n" "$*" >>{tmp_path}/asked\n{early}cat {tmp_path}/text\nexit {status}\n'
        sonde = program(tmp_path / "sonde", body)
        tools = tmp_path / "bin"
        tools.mkdir(exist_ok=True)
        for tool in ("scontrol", "logger"):
            program(tools / tool, f'echo "$@" >>{tmp_path}/{tool}\ncat >>{tmp_path}/{tool}.stdin\n')
        variables = {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "SONDE": str(sonde),
            "SONDE_BASE": str(tmp_path / "base"),
        }
        return subprocess.run(
            ["/bin/bash" if script.endswith(".sbatch") else "/bin/sh", SLURM / script],
            env={**variables, **env},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def test_a_node_that_is_well_passes(answering, tmp_path):
    ran = answering("healthcheck")
    assert ran.returncode == 0
    assert "0 findings" in ran.stdout
    asked = (tmp_path / "asked").read_text()
    assert asked.startswith("check --budget 40s")
    assert "--against" not in asked
    assert (tmp_path / "logger.stdin").read_text() == "✓ 0 findings in 1 of 1 rooms\n"


@pytest.mark.parametrize("script", ["healthcheck", "power-prolog", "power-epilog"])
@pytest.mark.parametrize("handed", [{}, {"HOME": "/tmp", "TMPDIR": "/tmp"}])
def test_the_settings_of_an_mpi_are_looked_for_where_nobody_else_can_put_any(
    answering, tmp_path, script, handed
):
    """Open MPI of a root whose HOME is /tmp loads the libraries that /tmp/.openmpi/mca-params.conf names."""
    seen = program(
        tmp_path / "seen", f'stat -c "%n %u %a" "$HOME" "$TMPDIR" >{tmp_path}/stat; ls -A "$HOME"\n'
    )
    ran = answering(script, SONDE=str(seen), **handed)
    assert ran.returncode == 0, ran.stderr
    home, temporary = (line.rsplit(" ", 2) for line in (tmp_path / "stat").read_text().splitlines())
    assert home == temporary
    assert home[1:] == [str(os.geteuid()), "700"]
    assert home[0] != "/tmp"
    assert not Path(home[0]).exists()


def test_a_finding_is_reported_and_nothing_is_drained(answering, tmp_path):
    ran = answering("healthcheck", FINDING, 1)
    assert ran.returncode == 1
    assert re.search(r"^ *would drain: scontrol update NodeName=n1", ran.stdout, re.M)
    assert "would drain" in (tmp_path / "logger.stdin").read_text()
    assert not (tmp_path / "scontrol").exists()


@pytest.mark.parametrize("status", [2, 3, 5, 130])
def test_what_could_not_be_measured_is_no_finding(answering, status):
    assert answering("healthcheck", "error: core: no\n", status).returncode == status


@pytest.mark.parametrize(("number", "status"), [("HUP", 129), ("INT", 130), ("TERM", 143)])
def test_a_health_check_that_is_ended_says_what_was_not_done_and_what_is_left(
    answering, tmp_path, number, status
):
    """The signal comes while Sonde measures; it is passed on, and what Sonde then says is told, too."""
    ending = program(
        tmp_path / "ending",
        f"""echo "$HOME" >{tmp_path}/home
trap 'echo "net is measured"; exit 130' TERM
read -r _ _ _ timeout _ </proc/$$/stat
read -r _ _ _ check _ </proc/$timeout/stat
kill -{number} "$check"
exec 3<>{tmp_path}/never
read -r _ <&3
""",
    )
    os.mkfifo(tmp_path / "never")
    ran = answering("healthcheck", SONDE=str(ending))
    assert ran.returncode == status
    assert ran.stdout.splitlines()[:2] == [
        "net is measured",
        f"error: healthcheck: ended by SIG{number}: this node is not checked to the end, "
        "and nothing of the check is left",
    ]
    assert f"run it again: {SLURM}/healthcheck" in ran.stdout
    assert f"ended by SIG{number}" in (tmp_path / "logger.stdin").read_text()
    assert not Path((tmp_path / "home").read_text().strip()).exists()


def test_a_survey_of_better_days_is_compared_with(answering, tmp_path):
    (tmp_path / "base").mkdir()
    answering("healthcheck")
    assert f"--against {tmp_path / 'base'}" in (tmp_path / "asked").read_text()


def test_without_a_sonde_it_says_so(answering, tmp_path):
    ran = answering("healthcheck", SONDE="/nowhere/sonde", PATH="/usr/bin:/bin")
    assert ran.returncode == 3
    assert "set SONDE" in ran.stderr
    assert not (tmp_path / "asked").exists()


JOB = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "16"}


@pytest.mark.parametrize("status", [0, 1])
def test_a_job_ends_as_its_check_does(answering, tmp_path, status):
    ran = answering("links.sbatch", FINDING, status, first=0, SLURM_SUBMIT_DIR=str(tmp_path), **JOB)
    assert ran.returncode == status
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [" ".join(line.split()[:2]) for line in asked] == ["net run", "report links-7.nc", "net check"]
    assert "--ntasks 16" in asked[0]
    assert not (tmp_path / "scontrol").exists()


def test_a_job_that_measured_nothing_checks_nothing(answering, tmp_path):
    ran = answering("links.sbatch", "", 0, first=3, SLURM_SUBMIT_DIR=str(tmp_path), **JOB)
    assert ran.returncode == 3
    assert len((tmp_path / "asked").read_text().splitlines()) == 1


def test_a_job_with_pairs_missing_is_checked_all_the_same(answering, tmp_path):
    ran = answering("links.sbatch", FINDING, 1, first=4, SLURM_SUBMIT_DIR=str(tmp_path), **JOB)
    assert ran.returncode == 1
    assert len((tmp_path / "asked").read_text().splitlines()) == 3


@pytest.mark.parametrize("script", ["healthcheck", "links.sbatch"])
def test_the_shell_has_no_complaint(script):
    words = ["shellcheck", "-x"] if shutil.which("shellcheck") else ["bash", "-n"]
    ran = subprocess.run([*words, SLURM / script], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.parametrize("hook", ["prolog", "epilog"])
@pytest.mark.parametrize("status", [0, 2, 3, 5, 137])
def test_no_job_fails_by_a_hook_of_the_power_stack(answering, tmp_path, hook, status):
    ran = answering(
        f"power-{hook}", "it is said\n", status, SONDE_POWER_JOB="300W", SONDE_SLURM_DEFAULTS="/none"
    )
    assert ran.returncode == 0
    asked = (tmp_path / "asked").read_text()
    assert asked.startswith(f"power slurm {hook} --config /etc/sonde/power.toml")
    assert ("--power 300W" in asked) == (hook == "prolog")
    logged = (tmp_path / "logger").read_text()
    assert "it is said" in logged
    assert ("the job goes on without" in logged) == (status != 0)


@pytest.mark.parametrize("number", ["HUP", "INT", "TERM"])
def test_a_hook_that_gets_a_signal_is_no_failure_and_leaves_nothing(answering, tmp_path, number):
    ending = program(
        tmp_path / "ending",
        f'echo "$HOME" >{tmp_path}/home\nread -r _ _ _ hook _ </proc/$PPID/stat\nkill -{number} "$hook"\n',
    )
    assert answering("power-prolog", SONDE=str(ending)).returncode == 0
    assert not Path((tmp_path / "home").read_text().strip()).exists()


def test_a_hook_without_sonde_is_no_failure_either(answering, tmp_path):
    ran = answering("power-prolog", SONDE=str(tmp_path / "none"), PATH="/usr/bin:/bin")
    assert ran.returncode == 0
    assert "set SONDE" in ran.stderr


def test_what_differs_from_the_defaults_stands_in_a_file(answering, tmp_path):
    (tmp_path / "defaults").write_text("SONDE_POWER_JOB=222W\nSONDE_POWER_CONFIG=/srv/power.toml\n")
    assert answering("power-prolog", SONDE_SLURM_DEFAULTS=str(tmp_path / "defaults")).returncode == 0
    asked = (tmp_path / "asked").read_text()
    assert "--config /srv/power.toml" in asked
    assert "--power 222W" in asked

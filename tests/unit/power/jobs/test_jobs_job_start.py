"""What a job's commands are started with."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from power_daemons import until
from sonde.core.errors import UsageError
from sonde.power.jobs.job_start import NOTHING_CAME, check, environment, starts
from sonde.power.jobs.jobs import Part, Spec

SPEC = Spec("j1", ("./solve", "a b", "$HOME"), "ada", "lbm", environment=("X=1=2",), demand_w=250.0)
PARTS = (Part("n1", True, (0, 1)), Part("n2", True, (0, 1)))
OWN = {"PATH": "/bin:/usr/bin", "SECRET": "of the daemon", "LANG": "C"}


def test_a_command_knows_its_job_and_nothing_of_the_daemon():
    told = environment(SPEC, PARTS, 1, OWN, "/f/progress.1")
    assert told == {
        "PATH": "/bin:/usr/bin",
        "LANG": "C",
        "X": "1=2",
        "SONDE_JOB_ID": "j1",
        "SONDE_JOB_NAME": "lbm",
        "SONDE_JOB_NODES": "n[1-2]",
        "SONDE_JOB_NODE": "n2",
        "SONDE_JOB_INDEX": "1",
        "SONDE_JOB_COUNT": "2",
        "SONDE_JOB_POWER_W": "500",
        "SONDE_JOB_CORES": "0,1",
        "SONDE_JOB_PROGRESS": "/f/progress.1",
    }


def test_a_job_cannot_say_that_it_is_another():
    assert (
        environment(replace(SPEC, environment=("SONDE_JOB_ID=x",)), PARTS, 0, {}, "")["SONDE_JOB_ID"] == "j1"
    )


def test_without_a_launcher_commands_are_started_here_one_a_node():
    made = starts(SPEC, PARTS, (), OWN, "/runs/j1", 5.0)
    assert [(one.node, one.words, one.remote) for one in made] == [
        ("n1", SPEC.command, False),
        ("n2", SPEC.command, False),
    ]
    assert [one.output for one in made] == ["/runs/j1/output.n1", "/runs/j1/output.n2"]
    assert starts(SPEC, PARTS[:1], (), OWN, "/runs/j1", 5.0)[0].output == "/runs/j1/output"


def test_a_launcher_gets_the_host_and_quotes_only_where_a_shell_reads_it():
    (srun,) = starts(SPEC, PARTS[:1], ("srun", "-w", "{host}"), OWN, "/r", 5.0)
    assert srun.words[:3] == ("srun", "-w", "n1")
    assert "a b" in srun.words
    (ssh,) = starts(SPEC, PARTS[:1], ("/usr/bin/ssh", "{host}", "--"), OWN, "/r", 5.0)
    assert ssh.words[:3] == ("/usr/bin/ssh", "n1", "--")
    assert "'a b'" in ssh.words
    assert "'$HOME'" in ssh.words
    assert "SECRET" not in ssh.environment


def test_an_environment_is_in_no_list_of_arguments_which_everybody_can_read():
    (ssh,) = starts(SPEC, PARTS[:1], ("ssh", "{host}", "--"), OWN, "/r", 5.0)
    assert not any("1=2" in word for word in ssh.words)
    assert "X=1=2\n" in ssh.told
    assert ssh.told.endswith("\n.\n")


def test_what_a_job_says_is_passed_on_also_where_the_daemon_has_the_same():
    spec = replace(SPEC, environment=("PATH=/bin:/usr/bin", "N=8"))
    (ssh,) = starts(spec, PARTS[:1], ("ssh", "{host}", "--"), {**OWN, "N": "8"}, "/r", 5.0)
    assert "PATH=/bin:/usr/bin\n" in ssh.told
    assert "N=8\n" in ssh.told
    assert "LANG=" not in ssh.told  # of the daemon, and asked for by nobody


def through_a_shell(
    command: str,
    folder: str,
    close_after_s: float | None = None,
    environment: tuple[str, ...] = SPEC.environment,
    told: str | None = None,
    reads: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Words for a node as a shell at the other end of ssh reads them."""
    spec = replace(SPEC, command=("/bin/sh", "-c", command), folder=folder, environment=environment)
    (start,) = starts(spec, PARTS[:1], ("ssh", "{host}", "--"), OWN, folder, 0.3)
    line = ["/bin/sh", "-c", " ".join(start.words[3:])]
    process = subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdin is not None
        process.stdin.write(start.told if told is None else told)
        process.stdin.flush()
        if told is not None:
            process.stdin.close()
            process.stdin = None
        if close_after_s is not None:
            assert process.stdout is not None
            if reads:
                process.stdout.readline()  # it runs
            assert process.stdin is not None
            process.stdin.close()
            process.stdin = None
            process.wait(60)
            return subprocess.CompletedProcess(line, process.returncode, "", "")
        assert process.stdout is not None
        out = process.stdout.read()
        return subprocess.CompletedProcess(line, process.wait(60), out, "")
    finally:
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def test_at_the_other_end_a_command_has_its_folder_its_environment_and_its_exit_status(tmp_path):
    ran = through_a_shell('pwd; echo "$SONDE_JOB_ID $X"; exit 7', str(tmp_path))
    assert (ran.stdout, ran.returncode) == (f"{tmp_path}\nj1 1=2\n", 7)


def test_at_the_other_end_a_value_is_what_it_was_whatever_is_in_it(tmp_path):
    value = "a  b\n.\n'\"$HOME`id`\\ ä\n"
    mine = (f"X={value}", "g=1", "e=2", "l=3", "p=4", "d=5", "sonde_line=6", "PPID=1", "PATH=/nowhere")
    mine = (mine[-2], *mine, f"Y={value}")
    words = 'printf "%s|" "$X" $g $e $l $p $d $sonde_line "$Y" "$PATH"'
    ran = through_a_shell(words, str(tmp_path), environment=mine)
    assert ran.stdout == f"{value}|1|2|3|4|5|6|{value}|/nowhere|"
    assert ran.returncode == 0


def test_at_the_other_end_what_has_a_session_of_its_own_ends_with_the_command(tmp_path):
    pytest.importorskip("sonde._power", reason="the power stack is not built")
    from sonde.core.processes import began

    left = tmp_path / "left"
    command = f"setsid sh -c 'echo $$ > {left}.part; mv {left}.part {left}; exec sleep 300' & "
    ran = through_a_shell(f"{command} while [ ! -e {left} ]; do sleep .01; done; exit 5", str(tmp_path))
    assert ran.returncode == 5
    until(lambda: not began(int(left.read_text())), "it is gone")


def test_at_the_other_end_one_that_is_to_end_at_once_ends(tmp_path):
    pid = tmp_path / "pid"
    for _ in range(40):
        ran = through_a_shell(f"echo $$ > {pid}; exec sleep 300", str(tmp_path), close_after_s=0, reads=False)
        assert ran.returncode > 128


def test_at_the_other_end_nothing_is_started_without_its_environment(tmp_path):
    ran = through_a_shell(f"touch {tmp_path}/begun", str(tmp_path), told="X=1\n")
    assert ran.returncode == NOTHING_CAME
    assert not (tmp_path / "begun").exists()


@pytest.mark.parametrize(
    "command", ["echo on; sleep 300", "trap '' TERM; echo on; sleep 300 & sleep 300; sleep 300"]
)
def test_at_the_other_end_it_ends_when_its_input_does(tmp_path, command):
    assert through_a_shell(command, str(tmp_path), close_after_s=0).returncode > 128


@pytest.mark.parametrize(
    ("spec", "parts", "code", "what"),
    [
        (replace(SPEC, job="../x"), PARTS, "power.bad_job", "its id"),
        (replace(SPEC, command=()), PARTS, "power.bad_job", "no command"),
        (SPEC, (), "power.bad_job", "no nodes"),
        (replace(SPEC, environment=("A B=1",)), PARTS, "power.bad_job", "'A B=1'"),
        (replace(SPEC, folder="here"), PARTS, "power.bad_job", "'here'"),
        (replace(SPEC, output="x\0"), PARTS, "power.bad_job", "NUL byte"),
        (SPEC, (Part("n9"),), "power.unknown_node", "'n9'"),
        (SPEC, (PARTS[0], PARTS[0]), "power.bad_job", "twice"),
    ],
)
def test_what_cannot_be_started_is_refused(spec, parts, code, what):
    with pytest.raises(UsageError) as error:
        check(spec, parts, ["n1", "n2"])
    assert error.value.code == code
    assert what in error.value.what

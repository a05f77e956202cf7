"""What a workflow's file may say, and what is said of one that cannot be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sonde.core.errors import UsageError
from sonde.power.jobs.jobs import Target
from sonde.power.workflows.workflow import JOB_KEYS, OnFailure, read, spec_of

HEAD = 'name = "w"\n'


BAD, UNKNOWN, PARAMETER = "power.bad_value", "power.unknown_key", "power.unknown_parameter"
TOO_MANY = ", ".join(f"p{k} = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]" for k in range(5))


def job(name: str, *lines: str) -> str:
    return f"[jobs.{name}]\n" + "\n".join(('command = ["true"]', *lines)) + "\n"


def test_a_file_is_read():
    told = read(
        'name = "study"\n[defaults]\nnodes = 2\nqueue = "long"\npower = "300W"\n'
        '[jobs.mesh]\ncommand = ["./mesh", "wing.cad"]\nnodes = 1\ntime = "1h"\n'
        '[jobs.solve]\ncommand = "./solve > out"\nguaranteed = "200W"\nafter = ["mesh"]\non_failure = "retry 2"\n'
        'folder = "runs"\nmemory = "4GiB"\nenvironment = { OMP_NUM_THREADS = 8 }\ntarget = { slowdown = "5%" }\n'
        '[jobs.tell]\ncommand = ["mail"]\nafter_any = ["solve"]\nhosts_are_not_a_key = 1\n'.replace(
            "hosts_are_not_a_key = 1\n", 'nodes = "n[1-2]"\n'
        )
    )
    assert (told.name, list(told.steps)) == ("study", ["mesh", "solve", "tell"])
    mesh, solve, tell = told.steps.values()
    assert (mesh.command, mesh.nodes, mesh.queue, mesh.demand_w, mesh.time_s) == (
        ("./mesh", "wing.cad"), 1, "long", 300, 3600,
    )  # fmt: skip
    assert (solve.command, solve.nodes, solve.guaranteed_w) == (("/bin/sh", "-c", "./solve > out"), 2, 200)
    assert (solve.after, solve.after_any, solve.on_failure) == (("mesh",), (), OnFailure(2, "stop"))
    assert solve.target == Target(slowdown=0.05)
    assert (tell.after_any, tell.hosts, tell.nodes) == (("solve",), ("n1", "n2"), 2)
    spec = spec_of(solve, "r.2.1", "ada", "/home/ada/study")
    assert (spec.job, spec.user, spec.name, spec.folder) == ("r.2.1", "ada", "solve", "/home/ada/study/runs")
    assert spec.environment == ("OMP_NUM_THREADS=8", "SONDE_WORKFLOW_JOB=solve")
    assert (spec.memory_bytes, spec.demand_w, spec.guaranteed_w, spec.target) == (
        4 << 30,
        300,
        200,
        solve.target,
    )


def test_jobs_stand_behind_what_they_wait_for_wherever_they_are_in_the_file():
    told = read(HEAD + job("c", 'after = ["b"]') + job("a") + job("b", 'after_any = ["a"]'))
    assert list(told.steps) == ["a", "b", "c"]


def test_a_loop_makes_a_job_of_each_combination():
    told = read(
        HEAD
        + '[jobs.run]\ncommand = ["./s", "{n}", "{{x}} ${n} {mode}"]\nfolder = "r-{n}"\noutput = "{mode}.txt"\n'
        + 'environment = { N = "{n}" }\nforeach = { n = [1, 2], mode = ["a", "b"] }\n'
    )
    assert list(told.steps) == ["run[n=1,mode=a]", "run[n=1,mode=b]", "run[n=2,mode=a]", "run[n=2,mode=b]"]
    one = told.steps["run[n=2,mode=a]"]
    assert one.command == ("./s", "2", "{x} ${n} a")
    assert (one.folder, one.output, one.environment) == ("r-2", "a.txt", (("N", "2"),))


def test_without_a_loop_braces_are_what_they_are():
    assert read(HEAD + '[jobs.a]\ncommand = ["awk", "{print $1}"]\n').steps["a"].command == (
        "awk",
        "{print $1}",
    )


def test_a_loop_waits_for_its_own_values_and_else_for_all():
    told = read(
        HEAD
        + job("mesh", "foreach = { n = [1, 2] }")
        + job("solve", 'foreach = { n = [1, 2], m = ["x", "y"] }', 'after = ["mesh"]')
        + job("plot", 'after = ["solve"]')
    )
    assert told.steps["solve[n=2,m=x]"].after == ("mesh[n=2]",)
    assert told.steps["plot"].after == tuple(name for name in told.steps if name.startswith("solve"))


def refused(text: str) -> UsageError:
    with pytest.raises(UsageError) as error:
        read(text, "w.toml")
    return error.value


@pytest.mark.parametrize(
    ("text", "code", "what"),
    [
        ("x = ", "power.bad_toml", "w.toml:1"),
        (
            HEAD + 'nmae = "x"\n' + job("a"),
            UNKNOWN,
            "w.toml:2: unknown key 'nmae' at the top (nearest: name)",
        ),
        (HEAD, BAD, "no job"),
        (HEAD + "[jobs.a]\nnodes = 1\n", BAD, "w.toml:2: [jobs.a] has no command"),
        (
            HEAD + job("a", 'afer = ["b"]'),
            UNKNOWN,
            "w.toml:4: unknown key 'afer' in [jobs.a] (nearest: after)",
        ),
        (
            HEAD + "[defaults]\nafter = []\n" + job("a"),
            UNKNOWN,
            "unknown key 'after' in [defaults]",
        ),
        (
            HEAD + job("mesh") + job("b", 'after = ["msh"]'),
            "power.unknown_job",
            "'msh', which is not a job (nearest: mesh)",
        ),
        (HEAD + job("a", 'after = ["a"]'), "power.cycle", "a <- a"),
        (
            HEAD + job("a", "nodes = 0"),
            BAD,
            "w.toml:4: [jobs.a] nodes is 0; allowed: a whole number of 1",
        ),
        (HEAD + job("a", "nodes = true"), BAD, "nodes is true"),
        (HEAD + job("a", 'power = "300V"'), BAD, "power is '300V'; allowed: a power"),
        (HEAD + job("a", 'time = "0s"'), BAD, "allowed: a time above 0"),
        (HEAD + job("a", 'power = "1W"', 'guaranteed = "2W"'), BAD, "up to its power, 1W"),
        (HEAD + job("a", 'on_failure = "contnue"'), BAD, "(nearest: continue)"),
        (HEAD + job("a", 'on_failure = "retry 0"'), BAD, "1 to 100"),
        (HEAD + job("a", 'target = { slowdwn = "5%" }'), UNKNOWN, "(nearest: slowdown)"),
        (HEAD + job("a", 'target = { slowdown = "500%" }'), BAD, "up to 100 %"),
        (HEAD + job("a", "foreach = { n = [] }"), BAD, "at least one text or number"),
        (HEAD + job("a", "foreach = { n = [1, 1] }"), BAD, "each value once"),
        (HEAD + job("a", "foreach = { n = ['a,b'] }"), BAD, "values without , = [ ]"),
        (
            HEAD + "[jobs.a]\ncommand = ['{siez}']\nforeach = { size = [1] }\n",
            PARAMETER,
            "(nearest: size)",
        ),
        (
            HEAD + job("a", "foreach = { n = [1] }") + job("b", "foreach = { n = [1, 2] }", 'after = ["a"]'),
            "power.unreachable",
            "'b[n=2]' can never start",
        ),
        (
            HEAD + job("a") + job("b", 'after = ["a"]', 'after_any = ["a"]'),
            BAD,
            "in 'after' and in 'after_any'",
        ),
        (HEAD + job("a", f"foreach = {{ {TOO_MANY} }}"), BAD, "more than 10000"),
    ],
)
def test_what_cannot_be_is_refused_with_its_line_and_the_nearest_word(text, code, what):
    error = refused(text)
    assert error.code == code
    assert what in error.what


def test_a_circle_is_reported_with_what_is_behind_it():
    text = HEAD + job("a", 'after = ["c"]') + job("b", 'after = ["a"]') + job("c", 'after_any = ["b"]')
    error = refused(text + job("d", 'after = ["b"]') + job("fine"))
    assert error.code == "power.cycle"
    assert "a <- c <- b <- a" in error.what
    assert "never reached after it: d" in error.what


def test_each_key_of_a_job_is_one_that_is_read():
    """A key that is listed and forgotten in the reader would be taken for nothing."""
    values = {
        "command": '["x"]', "folder": '"/f"', "output": '"o"', "environment": '{ A = "b" }', "nodes": "3", "cores": "4",
        "memory": '"1GiB"', "disks": "1", "nics": "1", "power": '"9W"', "guaranteed": '"8W"', "weight": "2",
        "time": '"5s"', "queue": '"q"', "target": '{ iteration = "2s" }', "on_failure": '"continue"',
        "after": '["o"]', "after_any": '["o"]', "foreach": "{ k = [1] }",
    }  # fmt: skip
    assert set(values) == set(JOB_KEYS)
    plain = read(HEAD + job("o") + job("a")).steps["a"]
    for key, value in values.items():
        line = "" if key == "command" else 'command = ["true"]\n'
        told = read(HEAD + job("o") + f"[jobs.a]\n{line}{key} = {value}\n")
        assert next(step for step in told.steps.values() if step.base == "a") != plain, key


PAGE = (Path(__file__).parents[4] / "docs/reference/power-workflow.md").read_text()


def test_the_example_of_the_page_is_one():
    (example,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.M | re.S)
    told = read(example)
    assert list(told.steps) == ["mesh", *(f"solve[angle={n}]" for n in (0, 5, 10)), "plot"]


def test_the_page_has_every_key_of_a_job_and_no_other():
    table = PAGE.partition("| key | type | what |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.+?`) \|", table, re.M)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(JOB_KEYS)


def test_commands_that_grow_by_their_parameters_have_a_bound():
    values = ", ".join(f'"{k:064d}"' for k in range(1000))
    words = ", ".join(['"' + "{a}" * 1365 + '"'] * 225)
    error = refused(HEAD + f"[jobs.j]\ncommand = [{words}]\nforeach = {{ a = [{values}] }}\n")
    assert error.code == "power.too_large"
    assert "more than 32 MiB" in error.what


def test_environments_that_many_jobs_have_count_for_each():
    many = "\n".join(f"E{k} = 1" for k in range(2000))
    jobs = "\n".join(f"[jobs.j{k}]" for k in range(1000))
    error = refused(f'{HEAD}[defaults]\ncommand = ["true"]\n[defaults.environment]\n{many}\n{jobs}\n')
    assert error.code == "power.too_large"
    values = ", ".join(str(k) for k in range(1000))
    words = "\n".join(f'E{k} = "{"{a}" * 1000}"' for k in range(100))
    error = refused(
        f'{HEAD}[jobs.j]\ncommand = ["true"]\nforeach = {{ a = [{values}] }}\n[jobs.j.environment]\n{words}\n'
    )
    assert error.code == "power.too_large"


def test_jobs_that_all_wait_for_all_others_have_a_bound():
    values = ", ".join(str(k) for k in range(2000))
    head = 'command = ["true"]\nforeach = '
    error = refused(
        f'{HEAD}[jobs.a]\n{head}{{ x = [{values}] }}\n[jobs.b]\n{head}{{ y = [{values}] }}\nafter = ["a"]\n'
    )
    assert (error.code, "put one job between 'a' and 'b'" in (error.hint or "")) == ("power.too_large", True)

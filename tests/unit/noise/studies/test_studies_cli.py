"""sonde noise sensitivity and stability: their options and designs."""

from __future__ import annotations

import click
import pytest

from sonde.core.errors import Exit, UsageError
from sonde.noise.detector.plan import design_for
from sonde.noise.studies import cli
from sonde.noise.studies.cli import Levels

CONSOLE = {"json", "progress", "color", "config", "debug"}
SHARED = {"output", "launcher", "hosts", "ntasks", "budget_s", "seed", "dry_run"}


def options(command: click.Command) -> set[str]:
    return {str(param.name) for param in command.params} - CONSOLE - SHARED


def test_a_study_takes_what_concerns_it():
    loop = {"ops", "block_s", "size", "poll", "keep", "every", "timeout_s"}
    assert options(cli.stability) == loop | {"groups"}
    judging = {"alpha", "matters", "grain_s"}
    assert options(cli.sensitivity) == loop | judging | {
        "levels", "period_s", "sweep", "cpus", "words",
    }  # fmt: skip


def test_names_are_known_and_come_once():
    names = cli.Names(("sync", "period"), "sweep")
    assert names.read("period, sync") == ("period", "sync")
    for text, code in (
        ("sync,moon", "noise.unknown_sweep"),
        ("sync,sync", "noise.twice"),
        ("", "noise.unknown_sweep"),
    ):
        with pytest.raises(UsageError) as error:
            names.read(text)
        assert error.value.code == code


def test_levels_have_a_variant_each_and_off_has_more():
    variants = cli._levels((0.01, 0.005, 0.003, 0.001, 0.0005, 0.0003, 0.0001), 1.0, 1000, 7, (3,))
    assert [variant.share for variant in variants] == [3, *[1] * 7]
    assert variants[0].agent is None
    assert [variant.name for variant in variants[1:3]] == ["1 %", "0.5 %"]
    commands = {variant.agent.command for variant in variants[1:]}
    assert len(commands) == 7  # a keeper for each
    assert {variant.cpus for variant in variants[1:]} == {(3,)}


def test_a_budget_too_short_is_incomplete_not_usage():
    with pytest.raises(UsageError) as error:
        cli._afford(5, 3, lambda: design_for(5, 1.0))
    assert error.value.exit == Exit.INCOMPLETE
    assert error.value.code == "noise.budget_too_short"
    assert "each of the 3 operations" in error.value.hint


def wishes(ntasks=2):
    return cli.Wishes(None, "auto", None, ntasks, 60, 7, True, 60)


def swept(monkeypatch, sweeps, cpus=(0, 1), siblings=()):
    from sonde.noise.detector import run
    from sonde.noise.studies import run_sources

    monkeypatch.setattr(run, "last_cpu", lambda: cpus[-1])
    monkeypatch.setattr(run, "siblings", lambda cpu: siblings)
    monkeypatch.setattr(run_sources, "rank_cpus", lambda count: cpus[:count])
    told = []
    return cli._swept(sweeps, 0.01, 1.0, 1000, wishes(), told), told


def test_sources_burst_together_or_apart_on_the_same_cores(monkeypatch):
    variants, told = swept(monkeypatch, ("sync",))
    together, apart = variants[1:]
    assert told == []
    assert (together.name, apart.name) == ("together", "apart")
    assert together.sources == apart.sources == 2
    assert together.agent.command.count("--phase-s 0") == 2
    assert apart.agent.command.count("--unsync") == 2


def test_periods_keep_the_level(monkeypatch):
    variants, _ = swept(monkeypatch, ("period",))
    assert [variant.period_s for variant in variants[1:]] == [0.01, 0.1, 1.0]
    assert {variant.level for variant in variants[1:]} == {0.01}


def test_a_sibling_needs_smt(monkeypatch):
    with pytest.raises(UsageError, match="none of these questions"):
        swept(monkeypatch, ("sibling",))
    variants, told = swept(monkeypatch, ("sibling",), siblings=(5,))
    assert [(variant.name, variant.cpus) for variant in variants[1:]] == [("pinned", (1,)), ("sibling", (5,))]
    assert told == []


def test_what_cannot_be_asked_is_left_out_with_a_word(monkeypatch):
    variants, told = swept(monkeypatch, ("sync", "sibling", "placement"), cpus=(0,))
    assert [variant.name for variant in variants[1:]] == ["pinned", "free"]
    assert [warning.code for warning in told] == ["noise.one_core", "noise.no_sibling"]


def test_levels_come_from_the_highest_to_the_lowest():
    assert Levels().read("0.1%, 1%,0.003") == (0.01, 0.003, 0.001)


@pytest.mark.parametrize(
    "text", ["0", "0%", "1%,0", "100%", "-1%", "1%,0.01", "1%,1.0%", "", "1%,", "much", "nan"]
)
def test_levels_that_make_no_sense(text):
    with pytest.raises(UsageError) as error:
        Levels().read(text)
    assert error.value.code in ("core.bad_share", "noise.bad_levels")
    assert error.value.hint

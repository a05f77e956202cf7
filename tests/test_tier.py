"""Every test is in a tier, and not in two of those that CI runs."""

from __future__ import annotations

import sys
from itertools import combinations
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

import tier

MARKS = ("alone", "mpi", "slow", "soak")
MARKED = [chosen for size in range(len(MARKS) + 1) for chosen in combinations(MARKS, size)]


def selections(phases: tier.Tier) -> list[tuple[tier.Part, str, tuple[str, ...]]]:
    """(part, marker expression, folders and files) of the parts that are pytest's."""
    found = []
    for part in (part for lanes in phases for lane in lanes for part in lane):
        (command, *_) = part.commands
        if "pytest" in command:
            places = tuple(word for word in command if word.startswith("tests/"))
            found.append((part, command[command.index("-m", command.index("pytest")) + 1], places))
    return found


def takes(expression: str, marks: tuple[str, ...]) -> bool:
    return Expression.compile(expression).evaluate(lambda name, **_: name in marks)


@pytest.mark.parametrize("place", [tier.FUNCTIONS[0], tier.PROGRAMS[0]])
@pytest.mark.parametrize("marks", MARKED, ids="-".join)
def test_ci_runs_each_test_once_with_each_mpi(place: str, marks: tuple[str, ...]):
    first, other = 0, 0
    for part, expression, places in selections([*tier.check(), *tier.system(), *tier.test_all()]):
        if takes(expression, marks) and any(Path(one).is_relative_to(place) for one in places):
            if part.env.get("SONDE_TEST_MPI") == "other":
                other += 1
            else:
                first += 1  # slow tests have both MPIs at once
    assert first == (0 if "soak" in marks else 1)
    of_functions = place in tier.FUNCTIONS
    assert other == int("mpi" in marks and not {"slow", "soak"} & set(marks) and not of_functions)


def test_a_part_for_a_mark_has_every_file_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, text in (
        ("a/test_a.py", "@pytest.mark.slow"),
        ("test_b.py", "pytestmark = [pytest.mark.slow]"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "test_c.py").write_text("def test_it(): ...")
    monkeypatch.setattr(tier, "ROOT", tmp_path)
    assert tier.files_with_mark("slow", ".") == ["a/test_a.py", "test_b.py"]


@pytest.mark.parametrize("mark", ["slow", "alone"])
def test_marks_are_given_where_a_part_looks_for_them(mark: str):
    """In the file of the test: a mark from a helper would leave its test out of every tier."""
    for path in (tier.ROOT / "tests").rglob("*.py"):
        if not path.name.startswith("test_") and path.name != "tier.py":
            assert f"mark.{mark}" not in path.read_text(), path


def test_what_is_for_the_soak_is_in_it():
    taken = [expression for _, expression, places in selections(tier.soak()) if not places]
    assert any(takes(expression, ("soak",)) for expression in taken)


def test_every_test_file_is_below_a_place_that_a_tier_names():
    places = [tier.ROOT / place for place in (*tier.FUNCTIONS, *tier.PROGRAMS)]
    for path in (tier.ROOT / "tests").rglob("test_*.py"):
        assert any(path == place or place in path.parents for place in places), path


def test_a_part_that_fails_fails_its_tier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setattr(tier, "LOGS", tmp_path)
    monkeypatch.setattr(tier, "ROOT", tmp_path)
    good, bad = (
        tier.Part("good", (("true",),)),
        tier.Part(
            "bad", (("sh", "-c", "echo broken; echo FAILED test_it.py::test_it; echo; false"), ("true",))
        ),
    )
    monkeypatch.setitem(tier.TIERS, "check", lambda: [[[bad, good]]])
    assert tier.main(["check"]) == 1
    out = capsys.readouterr().out
    assert "broken" in out
    assert "✗ bad" in out
    assert "✓ good" in out
    *_, named, outcome = out.splitlines()
    assert named == "  FAILED test_it.py::test_it"
    assert outcome.endswith("failed: bad")
    monkeypatch.setitem(tier.TIERS, "check", lambda: [[[good]]])
    assert tier.main(["check"]) == 0


def test_parts_are_chosen_by_their_names_and_the_others_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    parts = [tier.Part(name, ((sys.executable, "-c", "print('1 passed')"),)) for name in ("one", "two")]
    monkeypatch.setattr(tier, "LOGS", tmp_path)
    monkeypatch.setattr(tier, "ROOT", tmp_path)
    monkeypatch.setitem(tier.TIERS, "soak", lambda: [[parts]])
    monkeypatch.setenv("SONDE_TEST_PARTS", "t*")
    assert tier.main(["soak"]) == 0
    said = capsys.readouterr().out
    assert "| two | 1 | 0 |" in said
    assert "| one |" not in said
    assert "not run: one\n" in said
    monkeypatch.setenv("SONDE_TEST_PARTS", "three")
    assert tier.main(["soak"]) == 2
    assert "there are: one, two" in capsys.readouterr().err


def test_an_unknown_tier_is_refused(capsys):
    assert tier.main(["chekc"]) == 2
    assert "allowed: check, system, test-all, fuzz, soak" in capsys.readouterr().err


def test_a_part_of_pytest_that_finds_no_test_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tier, "LOGS", tmp_path)
    monkeypatch.delenv("SONDE_TEST_ARGS", raising=False)
    none = tier.Part("none", (("sh", "-c", "exit 5", "pytest"),))
    assert not tier.run(none).passed
    monkeypatch.setenv("SONDE_TEST_ARGS", "-k launch")
    assert tier.run(none).passed


def test_who_wants_no_bytecode_beside_the_sources_has_it_in_the_build(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert "PYTHONDONTWRITEBYTECODE" not in tier.environment()
    assert tier.environment()["PYTHONPYCACHEPREFIX"] == str(tier.ROOT / "build/pycache")
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE")
    assert "PYTHONPYCACHEPREFIX" not in tier.environment()

"""deploy/constraints.txt and pyproject.toml: every package that set-up installs has one version and its hashes."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "deploy"))
import audit  # noqa: E402 - the script that asks about them
import lock  # noqa: E402 - the script that writes the file

NEWEST = "3.14"


def sections() -> dict[str, list[str]]:
    text = lock.LOCKED.read_text()
    found = re.findall(r"^# section: (\S+)\n((?:[^#\n].*\n)*)", text, re.MULTILINE)
    return {
        name: re.findall(r"^\S.*(?:\n    --hash=\S+.*)*", entries, re.MULTILINE) for name, entries in found
    }


def test_each_entry_names_one_version_and_its_hashes():
    entries = [entry for some in sections().values() for entry in some]
    assert len(entries) > 50
    for entry in entries:
        assert re.match(r"[a-z0-9-]+==[0-9a-z.]+( ; .*)? \\\n", entry), entry[:80]
        assert re.findall(r"--hash=sha256:[0-9a-f]{64}\b", entry), entry[:80]


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", NEWEST])
def test_each_requirement_has_a_version_within_its_bounds(python):
    env = default_environment() | {"python_version": python, "python_full_version": f"{python}.0"}
    there: dict[str, str] = {}
    for name, requirements in lock.wanted().items():
        if name in lock.STAGES:
            stage = there
        else:
            stage = dict[str, str]()
        for entry in sections()[name]:
            pinned = Requirement(entry.split(" \\")[0])
            if pinned.marker is None or pinned.marker.evaluate(env):
                assert pinned.name not in stage, f"{pinned.name} twice for Python {python}"
                stage[pinned.name] = str(pinned.specifier).removeprefix("==")
        for text in requirements:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate(env):
                version = stage.get(requirement.name.lower())
                assert version is not None, f"{requirement.name} is not locked: run `make lock`"
                assert requirement.specifier.contains(version), (
                    f"{text}, locked is {version}: run `make lock`"
                )


def test_pyproject_has_an_extra_for_each_stage():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {extra for stage in lock.STAGES.values() for extra in stage} <= set(extras)


def test_an_audit_says_what_is_known_and_what_it_could_not_ask():
    sound = {"name": "numpy", "version": "2.4.6", "vulns": []}
    flawed = {"name": "jinja2", "version": "3.1.6", "vulns": [{"id": "GHSA-1", "fix_versions": ["3.1.7"]}]}
    unseen = {"name": "mpich", "skip_reason": "not found"}
    assert audit.judged([sound])[1] == 0
    lines, status = audit.judged([sound, flawed])
    assert status == 1
    assert "  jinja2 3.1.6: GHSA-1, mended in 3.1.7" in lines
    lines, status = audit.judged([sound, flawed, unseen])
    assert status == 3, "one that nobody was asked about is no sound one"
    assert "asked about: 2 of 3" in lines[-1]
    assert audit.judged([])[1] == 3

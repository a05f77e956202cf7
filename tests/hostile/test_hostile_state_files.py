"""Files of daemons and agents: no link in their folders redirects a write, and no name is predictable.

Each daemon has a folder of its own, but an administrator may have put it where others can write.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from other_users import STRANGER, as_user, place, stranger, victim

from sonde.core.errors import EnvironmentFailure
from sonde.core.owned_files import write_whole
from sonde.power.jobs.run_job_shim import write_durably
from sonde.power.stack import run_state

__all__ = ["place", "stranger", "victim"]
pytestmark = pytest.mark.root
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["keeper.json.part", "keeper.part", "keeper.json"])
@pytest.mark.parametrize(
    "write", [write_durably, lambda path, text: write_whole(path, text.encode())], ids=["kept", "whole"]
)
def test_a_link_that_waits_for_a_state_file_leads_it_nowhere(stranger, victim, write, name):
    before = victim.read_bytes()
    stranger.chmod(0o777)
    as_user(STRANGER, lambda: (stranger / name).symlink_to(victim))
    write(stranger / "keeper.json", json.dumps({"pid": 1}))
    assert victim.read_bytes() == before
    assert json.loads((stranger / "keeper.json").read_text()) == {"pid": 1}
    assert [path.name for path in stranger.glob("*.part")] == [name] * name.endswith("part")


def test_the_lock_of_a_role_is_not_made_through_a_link(place):
    elsewhere, shared = place / "nologin", place / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    as_user(STRANGER, lambda: (shared / "lock").symlink_to(elsewhere))
    with pytest.raises(Exception, match="lock"):
        run_state.held(shared, "job-manager")
    assert not elsewhere.exists()


def test_a_role_keeps_nothing_in_a_folder_of_somebody_else(stranger):
    with pytest.raises(EnvironmentFailure, match=f"belongs to user {STRANGER}") as refused:
        run_state.held(stranger / "state", "job-manager")
    assert refused.value.code == "core.folder_of_others"
    assert refused.value.hint.startswith("set 'state' of [job-manager] to /")
    assert list(stranger.iterdir()) == []


def test_no_program_makes_a_file_through_a_link_or_under_a_name_that_can_be_foreseen():
    """native/core/owned_file.cpp is the only way; code that is safe without it is listed here, with the reason."""
    safe = {
        "native/core/owned_file.cpp": "it is the one way",
        "native/bus/module/fastdds/shared_memory.cpp": "Fast DDS's own file, with O_NOFOLLOW",
    }
    wrong = []
    for path in sorted([*(ROOT / "native").rglob("*.cpp"), *(ROOT / "native").rglob("*.hpp")]):
        name = path.relative_to(ROOT).as_posix()
        # The store has its own folder; sonde-ioload's files are those that its user names, as for any program.
        if name in safe or name.startswith(("native/store/", "native/io/load/")):
            continue
        text = path.read_text()
        wrong += [
            f"{name}: {call}"
            for call in re.findall(r"open(?:at)?\([^;]*?O_CREAT[^;]*;", text)
            if not re.search("O_EXCL|O_NOFOLLOW", call)
        ]
        wrong += [f"{name}: {call}" for call in re.findall(r'\+ "\.(?:part|new|tmp)"', text)]
    assert wrong == []

"""Rooms: each is what its own modules say."""

from __future__ import annotations

import pytest

from sonde.cli.diagnosis import checks
from sonde.core import room
from sonde.core.room import find_room, rooms


@pytest.mark.parametrize("name", room.NAMES)
def test_a_room_is_what_its_modules_say(name):
    one = room.room(name)
    schema = one.schema()
    assert (one.name, schema.room, schema.version) == (name, name, one.version)
    assert one.title
    assert one.help.endswith(".")


def test_a_room_of_another_sonde_is_not_found():
    assert find_room("attic") is None
    assert find_room("core") is None
    assert find_room("../net") is None


@pytest.mark.parametrize("name", room.NAMES)
def test_what_a_room_stands_on_is_checked(name):
    one = room.room(name)
    assert {*one.any_of, *one.all_of, *one.asks} <= set(checks())


def test_the_checks_of_a_room_have_names_of_their_own():
    names = [check.name for one in rooms() for check in one.checks()]
    assert len(names) == len(set(names))

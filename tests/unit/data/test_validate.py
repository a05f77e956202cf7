"""sonde data validate: asks the format and the room."""

from __future__ import annotations

import fakeroom
import pytest

from sonde.core import dataset_file, room
from sonde.core.errors import DataError, Finding
from sonde.data import rooms
from sonde.data.validate import validate


def test_a_sound_dataset_breaks_nothing(sound):
    assert validate(sound) == []


def test_the_rooms_own_check_is_asked(sound, monkeypatch):
    odd = Finding("lab.odd", "this is odd")
    monkeypatch.setattr(fakeroom.SCHEMA, "validate", lambda tree: [odd], raising=False)
    assert validate(sound) == [odd]


def test_what_does_not_open_is_one_finding(tmp_path):
    (tmp_path / "a.nc").write_bytes(b"hello, this is text")
    (finding,) = validate(tmp_path / "a.nc")
    assert finding.code == "core.not_netcdf"
    (finding,) = validate(tmp_path / "none.nc")
    assert finding.code == "core.no_such_file"


def test_a_room_that_is_not_here_is_one_finding(tmp_path):
    dataset_file.write_dataset(tmp_path / "a.nc", None, None, {"schema": "attic/1"})
    (finding,) = validate(tmp_path / "a.nc")
    assert finding.code == "data.unknown_room"


def test_the_schema_of_a_room_is_found_by_name():
    assert rooms.schema("lab") is fakeroom.SCHEMA
    assert (rooms.schema("net").room, rooms.schema("net").version) == ("net", 1)
    with pytest.raises(DataError, match="room 'attic'"):
        rooms.schema("attic")


def test_a_schema_that_does_not_load_is_not_taken_for_a_missing_room(tmp_path, monkeypatch):
    (tmp_path / "cellar").mkdir()
    (tmp_path / "cellar" / "room.py").write_text("import no_such_library\n")
    import sonde

    monkeypatch.setattr(sonde, "__path__", [*sonde.__path__, str(tmp_path)])
    monkeypatch.setattr(room, "NAMES", (*room.NAMES, "cellar"))
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        rooms.schema("cellar")


def test_what_this_sonde_reads_is_what_its_rooms_write():
    for one in room.rooms():
        assert (rooms.schema(one.name).room, rooms.schema(one.name).version) == (one.name, one.version)

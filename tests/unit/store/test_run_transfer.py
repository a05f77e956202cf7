"""HDF5 files of the connector, as `sonde store ls`, `stat` and `rm` see them; laid out as container.hpp says."""

from __future__ import annotations

import os
import signal

import pytest

pytest.importorskip("sonde._store", reason="the store is not built")

from sonde.core.errors import SondeError, UsageError
from sonde.store import embedded, errors
from sonde.store import run_transfer as transfer
from sonde.store.address import parse

FILES = {
    "/a/one.h5": "h5.0000000000000001",
    "/a/two.h5": "h5.0000000000000002",
    "/b.h5": "h5.0000000000000003",
}


@pytest.fixture
def client():
    with embedded(kv="memory", data="memory") as client:
        for number, (name, space) in enumerate(FILES.items(), 1):
            client.put("h5.files", name, space.encode())
            client.put(space, "f", b"f" * 10)
            client.put(space, "o0000000000000001", b"o" * 20)
            client.write(space, "0000000000000002d", b"d" * 1000 * number)
            client.write(space, "0000000000000003p", b"p" * 5)
        yield client


def listed(client, text: str, long: bool = False):
    return list(transfer.names(client, parse(text, whole_space=True), long))


def test_they_are_listed_by_the_names_that_programs_give_them(client):
    assert listed(client, "hdf5:") == [{"address": f"hdf5:{name}"} for name in FILES]
    assert listed(client, "hdf5:/a/") == [{"address": "hdf5:/a/one.h5"}, {"address": "hdf5:/a/two.h5"}]
    assert listed(client, "hdf5:/c") == []


def test_a_size_is_that_of_all_records_and_objects(client):
    sizes = [entry["bytes"] for entry in listed(client, "hdf5:/a", long=True)]
    assert sizes == [1035, 2035]
    facts = transfer.stat(client, parse("hdf5:/b.h5"))
    assert facts == {"address": "hdf5:/b.h5", "bytes": 3035, "space": FILES["/b.h5"]}


def test_one_is_removed_whole_and_no_other(client, monkeypatch):
    monkeypatch.setattr(transfer, "AT_ONCE", 1)
    assert transfer.remove(client, parse("hdf5:/a/one.h5"), False) == (1, [])
    assert [entry["address"] for entry in listed(client, "hdf5:")] == ["hdf5:/a/two.h5", "hdf5:/b.h5"]
    gone = FILES["/a/one.h5"]
    assert list(client.keys(gone)) == list(client.objects(gone)) == []
    assert transfer.stat(client, parse("hdf5:/a/two.h5"))["bytes"] == 2035


def test_all_below_a_folder_are_removed(client):
    assert transfer.remove(client, parse("hdf5:/a/", True), True) == (2, [])
    assert [entry["address"] for entry in listed(client, "hdf5:")] == ["hdf5:/b.h5"]


def test_one_that_is_not_there_is_reported_by_its_name(client):
    with pytest.raises(errors.NotFound, match=r"there is no hdf5:/none\.h5") as told:
        transfer.stat(client, parse("hdf5:/none.h5"))
    assert "sonde store ls hdf5:" in told.value.hint
    target = parse("hdf5:/none.h5")
    assert transfer.remove(client, target, False) == (0, [target])


# ---- items


def cut_short(error: Exception):
    """Pieces of which the second one never comes."""
    yield b"a" * 1000
    raise error


def put_item(client, pieces) -> int:
    return transfer.put(client, parse("item:c/i"), pieces, False)


def test_an_item_that_is_put_is_complete_and_shows_no_mark(client):
    assert put_item(client, iter([b"a" * 10])) == 10
    facts = transfer.stat(client, parse("item:c/i"))
    assert (facts["complete"], facts["metadata"]) == (True, {})
    assert dict(client.item("c", "i").metadata) == {}


def test_a_new_item_that_cannot_be_finished_is_removed_again(client):
    with pytest.raises(errors.StoreError) as told:
        put_item(client, cut_short(errors.StoreError("store.no_space", "full")))
    assert "1000 B of the new content were written, and item:c/i was removed again" in told.value.what
    assert list(client.items("c")) == []


@pytest.mark.parametrize("error", [errors.Unreachable("store.disconnected", "gone"), KeyboardInterrupt()])
def test_an_item_whose_put_was_cut_off_is_distinguished(client, error):
    with pytest.raises(SondeError):
        put_item(client, cut_short(error))
    assert [(one["bytes"], one["complete"]) for one in listed(client, "item:c", long=True)] == [(1000, False)]
    assert transfer.stat(client, parse("item:c/i"))["complete"] is False
    put_item(client, iter([b"b" * 10]))
    facts = transfer.stat(client, parse("item:c/i"))
    assert (facts["bytes"], facts["complete"]) == (10, True)


def test_an_item_that_was_there_stays_with_its_metadata(client):
    client.create_item("c", "i", {"case": "cavity"})
    with pytest.raises(errors.StoreError) as told:
        put_item(client, cut_short(errors.StoreError("store.no_space", "full")))
    assert "first 1000 B of the new content are written; item:c/i is not complete" in told.value.what
    facts = transfer.stat(client, parse("item:c/i"))
    assert (facts["complete"], facts["metadata"]) == (False, {"case": "cavity"})
    put_item(client, iter([b"b"]))
    assert dict(client.item("c", "i").metadata) == {"case": "cavity"}


@pytest.mark.parametrize("text", ["kv:h5.files/foo", "kv:sonde.items/foo", "object:h5.0000000000000001/x"])
def test_nothing_is_put_into_a_reserved_space(client, text):
    with pytest.raises(UsageError, match="reserved space"):
        transfer.put(client, parse(text), iter([b"1"]), False)
    assert len(listed(client, "hdf5:")) == len(FILES)
    assert list(client.keys("sonde.items")) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_the_file_is_made_leaves_none(number, tmp_path, monkeypatch):
    made = transfer.NewFile

    def ended_meanwhile(path):
        new = made(path)
        os.kill(os.getpid(), number)
        return new

    monkeypatch.setattr(transfer, "NewFile", ended_meanwhile)
    if (pid := os.fork()) == 0:
        signal.signal(number, signal.SIG_DFL)
        with transfer.sink(tmp_path / "back") as write:
            write(b"more")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -number
    assert list(tmp_path.iterdir()) == []

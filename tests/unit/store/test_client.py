"""The client for Python, on backends in this process."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

pytest.importorskip("sonde._store", reason="the store is not built")

import sonde.store
from sonde.core.errors import SondeError, UsageError
from sonde.store import BatchError, Exists, NotFound


@pytest.fixture
def client():
    with sonde.store.embedded(kv="memory", data="memory") as made:
        yield made


def test_a_key_is_put_got_and_removed(client):
    client.put("runs", "42/input", b"alpha")
    assert client.get("runs", "42/input") == b"alpha"
    client.put("runs", "42/input", bytearray(b""))
    assert client.get("runs", "42/input") == b""
    client.remove("runs", "42/input")
    with pytest.raises(KeyError, match="runs/42/input"):
        client.get("runs", "42/input")
    with pytest.raises(NotFound):
        client.remove("runs", "42/input")


def test_exclusive_replaces_nothing(client):
    client.put("s", "k", b"1", exclusive=True)
    with pytest.raises(Exists):
        client.put("s", "k", b"2", exclusive=True)
    assert client.get("s", "k") == b"1"
    client.create("s", "o", exclusive=True)
    with pytest.raises(Exists):
        client.create("s", "o", exclusive=True)


@pytest.mark.parametrize("key", [b"\xff\x00\x01", "µ/ ß", b"%", "x" * 440])
def test_any_bytes_are_a_key_and_come_back_from_a_list(client, key):
    client.put("bin", key, b"v")
    (listed,) = client.keys("bin")
    assert client.get("bin", listed) == b"v"
    raw = key if isinstance(key, bytes) else key.encode()
    assert listed.encode("utf-8", "surrogateescape") == raw


@pytest.mark.parametrize(
    ("space", "key", "code"),
    [("", "k", "invalid"), ("s", "", "invalid"), ("s", "x" * 441, "too_large"), ("x" * 64, "k", "too_large")],
)
def test_names_beyond_the_limits_are_refused(client, space, key, code):
    with pytest.raises(UsageError) as caught:
        client.put(space, key, b"v")
    assert caught.value.code in (f"store.{code}", "store.invalid", "store.too_large")


def test_an_array_goes_in_and_comes_out_as_it_was(client):
    array = np.arange(3000.0).reshape(30, 100)
    client.write("fields", "p", array)
    again = client.read("fields", "p", dtype="f8").reshape(array.shape)
    assert np.array_equal(array, again)
    assert client.stat("fields", "p").size == array.nbytes


def test_what_was_read_outlives_batch_and_client():
    client = sonde.store.embedded(data="memory")
    client.write("f", "o", b"x" * 100_000)
    read = client.read("f", "o")
    client.close()
    del client
    gc.collect()
    assert read.tobytes() == b"x" * 100_000
    read[0] = 1  # memory of its own, and not the backend's


def test_a_read_arrives_in_the_array_that_was_given(client):
    client.write("f", "o", bytes(range(100)))
    into = np.zeros(10, np.uint8)
    got = client.read("f", "o", 95, into=into)
    assert got.tolist() == [95, 96, 97, 98, 99]
    assert into[:5].tolist() == got.tolist()
    assert np.shares_memory(got, into)


def test_writes_take_any_memory_in_one_piece(client):
    for data in (b"abc", bytearray(b"abc"), memoryview(b"xabc")[1:], np.frombuffer(b"abc", "S1")):
        client.write("f", "o", data)
        assert client.read("f", "o").tobytes() == b"abc"


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (np.zeros((4, 4))[:, ::2], "not contiguous"),
        (np.zeros((4, 4), order="F"), "not contiguous"),
        ("text", "encode"),
        (3, "no buffer"),
        (None, "no buffer"),
    ],
)
def test_other_data_is_refused_with_what_to_do(client, data, word):
    with pytest.raises(UsageError) as caught:
        client.write("f", "o", data)
    assert word in f"{caught.value.what} {caught.value.hint}"
    assert caught.value.hint
    with pytest.raises(NotFound):
        client.stat("f", "o")


def test_nothing_is_read_into_what_cannot_be_written(client):
    client.write("f", "o", b"abc")
    with pytest.raises(UsageError, match="read-only"):
        client.read("f", "o", into=b"xyz")


def test_reads_at_and_beyond_the_end(client):
    client.write("f", "o", b"0123456789")
    assert client.read("f", "o", 8, 100).tobytes() == b"89"
    assert client.read("f", "o", 10).size == 0
    assert client.read("f", "o", 1000).size == 0
    assert client.read("f", "o", 0, 0).size == 0
    with pytest.raises(NotFound):
        client.read("f", "none")
    with pytest.raises(UsageError, match="whole number of float64"):
        client.read("f", "o", dtype="f8")
    with pytest.raises(UsageError, match="offset is -1 B"):
        client.read("f", "o", -1)


def test_a_gap_reads_as_zeros_and_truncate_cuts(client):
    client.write("f", "o", b"x", 5)
    assert client.read("f", "o").tobytes() == b"\0\0\0\0\0x"
    client.truncate("f", "o", 2)
    assert client.stat("f", "o").size == 2
    client.remove_object("f", "o")
    with pytest.raises(NotFound):
        client.stat("f", "o")
    with pytest.raises(NotFound):
        client.write("f", "o", b"x", must_exist=True)


def test_lists_go_on_over_pages(client):
    with client.batch() as batch:
        for k in range(10_000):
            batch.put("many", f"k/{k:05}", b"v" * 200)
        batch.put("many", "other", b"")
    assert list(client.keys("many", "k/")) == [f"k/{k:05}" for k in range(10_000)]
    found = dict(client.scan("many"))
    assert len(found) == 10_001
    assert found["k/09999"] == b"v" * 200
    first = client.keys("many")
    assert next(first) == "k/00000"
    with client.batch() as batch:
        for k in range(5000):
            batch.create("many", f"{k:04}")
    assert list(client.objects("many", "49")) == [f"49{k:02}" for k in range(100)]
    assert list(client.keys("nothing")) == []


def test_a_batch_tells_every_operation_apart(client):
    batch = client.batch()
    batch.put("s", "k", b"value")
    missing = batch.get("s", "none")
    batch.write("s", "o", 0, b"12345")
    size = batch.status("s", "o")
    batch.run()
    assert batch[missing].status.name == "not_found"
    assert batch[size].value == 5
    assert [batch[k].ok for k in range(4)] == [True, False, True, True]
    assert batch.statuses.tolist() == [0, 1, 0, 0]
    assert batch.values.tolist()[size] == 5
    assert batch.failed == 1
    assert batch[-1].value == 5
    with pytest.raises(IndexError):
        batch[4]
    with pytest.raises(BatchError, match="s/none") as caught:
        batch.check()
    assert caught.value.failed == [missing]
    assert batch.timing["total_s"] >= 0


def test_a_batch_of_keys_is_all_or_nothing(client):
    client.put("s", "there", b"1")

    def both():
        with client.batch() as batch:
            batch.put("s", "new", b"2")
            batch.put("s", "there", b"3", exclusive=True)

    with pytest.raises(BatchError, match="there") as caught:
        both()
    assert caught.value.failed == [0, 1]
    assert caught.value.code == "store.exists"
    with pytest.raises(NotFound):
        client.get("s", "new")


def test_a_batch_that_was_interrupted_halfway_is_not_sent(client):

    def half():
        with client.batch() as batch:
            batch.put("s", "k", b"1")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()
    assert list(client.keys("s")) == []


def test_more_operations_than_a_batch_may_have_are_refused_before_anything_is_sent(client):
    batch = client.batch()
    for k in range((1 << 20) + 1):
        batch.get("s", f"{k}")
    with pytest.raises(SondeError) as caught:
        batch.run()
    assert (caught.value.code, "1048576" in str(caught.value)) == ("store.too_large", True)
    client.put("s", "k", b"v")
    assert client.get("s", "k") == b"v"


def test_arrays_of_python_objects_are_refused(client):
    things = np.array([{}, []], dtype=object)
    mixed = np.zeros(2, dtype=[("Order", "f8"), ("thing", "O")])
    for data in (things, mixed, memoryview(things)):
        with pytest.raises(SondeError) as caught:
            client.write("s", "o", data)
        assert caught.value.code == "store.bad_buffer"
    with pytest.raises(SondeError):
        client.read("s", "o", into=things)
    client.write("s", "o", np.ones(3, dtype=[("Order", "f8")]))
    client.write("s", "p", np.array(["2026-11-21"], dtype="M8[s]"))
    assert client.read("s", "p", dtype="M8[s]") == np.datetime64("2026-11-21")


def test_an_empty_block_sends_nothing(client):
    with client.batch():
        pass


def test_a_batch_used_out_of_order_says_what_to_do(client):
    batch = client.batch()
    with pytest.raises(UsageError) as caught:
        batch.run()
    assert caught.value.code == "store.empty_batch"
    batch.put("s", "k", b"1")
    batch.run()
    with pytest.raises(UsageError) as caught:
        batch.put("s", "k", b"2")
    assert caught.value.code == "store.started"
    batch.clear()
    assert len(batch) == 0
    batch.put("s", "k", b"2")
    batch.run()
    assert client.get("s", "k") == b"2"
    with pytest.raises(UsageError) as caught:
        client.batch().wait()
    assert caught.value.code == "store.not_started"


def test_memory_that_a_batch_uses_cannot_be_taken_away(client):
    batch = client.batch()
    data = bytearray(b"abc")
    batch.put("s", "k", data)
    with pytest.raises(BufferError):
        data.append(1)
    batch.run()
    data.append(1)
    into = bytearray(3)
    batch.clear()
    batch.get("s", "k", into)
    batch.run()
    with pytest.raises(BufferError):
        into.append(1)
    del batch
    gc.collect()
    into.append(1)
    assert into == b"abc\x01"


def test_arrays_survive_the_clearing_of_their_batch(client):
    client.write("s", "o", b"first")
    client.write("s", "p", b"other")
    batch = client.batch()
    batch.read("s", "o", 0, 5)
    batch.run()
    kept = batch[0].data
    batch.clear()
    batch.read("s", "p", 0, 5)
    batch.run()
    assert kept.tobytes() == b"first"
    assert batch[0].data.tobytes() == b"other"


def test_a_value_that_was_got_cannot_be_changed_where_it_lies(client):
    client.put("s", "k", b"a" * 4096)
    batch = client.batch()
    batch.get("s", "k")
    batch.run()
    with pytest.raises(ValueError, match="read-only"):
        batch[0].data[:] = 0
    assert client.get("s", "k") == b"a" * 4096


def test_a_value_is_read_in_part_and_its_length_told(client):
    client.put("s", "k", b"0123456789")
    batch = client.batch()
    into = bytearray(4)
    batch.get("s", "k", into)
    batch.run()
    assert into == b"0123"
    assert batch[0].value == 10
    assert bytes(batch[0]) == b"0123"


def test_striped_objects(client):
    array = np.random.default_rng(1).integers(0, 256, 300_000, dtype=np.uint8)
    striped = client.striped("s", "o", "round-robin,block=64KiB")
    striped.write(0, array)
    into = np.empty_like(array)
    assert striped.read_into(0, into) == array.size
    assert np.array_equal(into, array)
    assert striped.status()[0] == array.size
    striped.truncate(10)
    assert striped.status()[0] == 10
    with pytest.raises(SondeError):
        client.striped("s", "o", "round-robin,block=0")


def test_items_have_metadata(client):
    item = client.create_item("results", "42", {"unit": "Pa", "µ": b"\xff"})
    item.data.write(0, b"abc")
    again = client.item("results", "42")
    assert again.metadata == {"unit": "Pa", "µ": "\udcff"}
    assert again.created_ns > 1_600_000_000_000_000_000
    into = bytearray(3)
    assert again.data.read_into(0, into) == 3
    assert into == b"abc"
    again.describe({"unit": "hPa"})
    assert client.item("results", "42").metadata == {"unit": "hPa"}
    assert list(client.items("results")) == ["42"]
    with pytest.raises(Exists):
        client.create_item("results", "42")
    client.remove_item("results", "42")
    with pytest.raises(NotFound):
        client.item("results", "42")


def test_an_items_metadata_is_whole_while_another_thread_describes_it(client):
    item = client.create_item("results", "43", {str(n): "0" for n in range(200)})

    def work():
        for k in range(300):
            item.describe({str(n): str(k) for n in range(200)})

    thread = threading.Thread(target=work)
    thread.start()
    seen = []
    while thread.is_alive():
        seen.append(item.metadata)
    thread.join()
    assert seen
    assert all(len(one) == 200 and len(set(one.values())) == 1 for one in seen)


def test_a_closed_client_says_so(client):
    client.close()
    assert client.closed
    with pytest.raises(UsageError, match="closed"):
        client.get("s", "k")
    client.close()


def test_threads_share_a_client(client):
    wrong = []

    def work(name):
        for k in range(200):
            client.put("t", f"{name}/{k}", f"{name}/{k}".encode())
            if client.get("t", f"{name}/{k}") != f"{name}/{k}".encode():
                wrong.append((name, k))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(list(client.keys("t"))) == 800


def test_a_fork_may_not_use_its_parents_client(client):
    batch = client.batch()
    batch.put("s", "k", b"v")
    child = os.fork()
    if child == 0:
        told = 1
        try:
            client.put("s", "k", b"v")
        except UsageError as error:
            try:
                batch.run()
            except UsageError as second:
                told = 0 if error.code == second.code == "store.forked" else 2
        os._exit(told)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    batch.run()


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: sonde.store.connect(), "store.no_server"),
        (lambda: sonde.store.connect("nowhere"), "store.unreachable"),
        (lambda: sonde.store.connect("x@127.0.0.1:1"), "store.bad_address"),
        (lambda: sonde.store.connect("127.0.0.1:1", timeout=3), "store.bad_value"),
        (lambda: sonde.store.connect("127.0.0.1:1"), "store.unreachable"),
        (lambda: sonde.store.embedded(), "store.no_server"),
        (lambda: sonde.store.embedded(kv="memry"), "store.unknown_backend"),
        (lambda: sonde.store.embedded(kv="memory,limt=3"), "store.bad_setting"),
        (lambda: sonde.store.embedded(keys="memory"), "store.bad_role"),
        (lambda: sonde.store.embedded(kv="memory", safety="disk").put("s", "k", b""), "store.bad_safety"),
    ],
)
def test_what_cannot_be_opened_says_why(make, code):
    with pytest.raises(SondeError) as caught:
        make()
    assert caught.value.code == code
    assert caught.value.hint


def test_libraries_that_are_loaded_leave_signals_alone():
    """A library below libfabric takes SIGINT when it is loaded: Ctrl-C would end the process without a word."""
    code = (
        "import os, signal, sonde._store as s\n"
        "s.transports()\n"
        "s.backends('kv')\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    signal.sigtimedwait([], 1)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "interrupted\n"), ran.stderr


def test_memory_cannot_promise_stable_storage(client):
    with pytest.raises(SondeError) as caught:
        client.put("s", "k", b"v", safety="storage")
    assert caught.value.code == "store.unsupported"


def test_a_role_that_is_not_there_is_named():
    with sonde.store.embedded(kv="memory") as client, pytest.raises(SondeError, match="data"):
        client.create("s", "o")


def test_everything_the_package_names_is_there():
    for name in sonde.store.__all__:
        assert getattr(sonde.store, name)
    with pytest.raises(AttributeError):
        sonde.store.nothing  # noqa: B018

"""HDF5 files in the store whose records somebody changed, as everybody with write access to a store can: the effect on
their readers.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("sonde._store", reason="the store is not built")

from sonde.core.launch import libexec
from sonde.store.client import Client, connect
from store_frames import Stored, stored

PLUGINS = libexec().parent / "lib" / "hdf5"
h5py = pytest.importorskip("h5py", reason="h5py is not installed")
HDF5 = ".".join(h5py.version.hdf5_version.split(".")[:2])
pytestmark = pytest.mark.skipif(
    not (PLUGINS / "connector" / f"sonde-h5-{HDF5}.so").exists(),
    reason=f"no HDF5 connector for h5py's HDF5 {HDF5} was built",
)
MIB = 1 << 20
CHUNK = struct.Struct("<QIII")  # offset, bytes, capacity, mask of filters (native/store/h5/records.hpp)
HEAD = """
import resource, sys
import h5py
import numpy as np
"""
# It prints how many megabytes more it used at its maximum.
READ = (
    HEAD
    + """
with h5py.File(sys.argv[1]) as file:
    dataset = file["d"]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        dataset[sys.argv[2:] and slice(1) or ()]
    except OSError as error:
        print(error, file=sys.stderr)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
)


@pytest.fixture
def server() -> Iterator[Stored]:
    with stored("--backend", "data=memory", "--auth", "none") as one:
        yield one


def run(server: Stored, code: str, file: Path, *words: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HDF5_", "SONDE_STORE_"))}
    settings = {
        "HDF5_PLUGIN_PATH": str(PLUGINS),
        "HDF5_VOL_CONNECTOR": f"sonde servers={server.address};auth=none",
    }
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-X", "faulthandler", "-c", code, file, *words],
        env=clean | settings, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


def made(server: Stored, file: Path, code: str) -> None:
    done = run(server, HEAD + f'with h5py.File(sys.argv[1], "w") as file:\n    {code}\n', file)
    assert done.returncode == 0, done.stderr


def records(client: Client, file: Path, kind: str) -> tuple[str, dict[str, bytes]]:
    """The space of a file, and its records of a kind: c for chunks, o for objects."""
    space = client.get("h5.files", str(file)).decode()
    return space, {key: value for key, value in client.scan(space) if key.startswith(kind)}


def held(server: Stored, file: Path, *words: str) -> tuple[int, str]:
    """The megabytes that a reader used, and its error."""
    done = run(server, READ, file, *words)
    assert done.returncode == 0, done.stderr
    return int(done.stdout), done.stderr


@pytest.mark.parametrize("filters", ['compression="gzip"', ""])
def test_a_chunk_that_claims_more_than_its_dataset_can_have_takes_no_memory(
    server: Stored, tmp_path: Path, filters: str
) -> None:
    file = tmp_path / "a.h5"
    made(server, file, f'file.create_dataset("d", data=np.arange(1000.0), chunks=(100,), {filters})')
    assert held(server, file)[1] == ""
    with connect(server.address, auth="none") as client:
        space, chunks = records(client, file, "c")
        assert len(chunks) == 10
        for key, record in chunks.items():
            offset, _, _, mask = CHUNK.unpack(record)
            client.put(space, key, CHUNK.pack(offset, 2048 * MIB, 2048 * MIB, mask))
    for words in ((), ("one",)):
        more, error = held(server, file, *words)
        assert (more < 200, "a chunk in the store is damaged" in error) == (True, True), (more, error)


def test_a_large_chunk_that_claims_what_did_not_come_takes_as_much_as_came(
    server: Stored, tmp_path: Path
) -> None:
    # Within the size that a chunk of this dataset may have, but none of its data exists.
    file = tmp_path / "a.h5"
    shape = '(1 << 30,), "u1", chunks=(1 << 30,), compression="gzip"'
    made(server, file, f'file.create_dataset("d", {shape}).id.write_direct_chunk((0,), b"x")')
    with connect(server.address, auth="none") as client:
        space, chunks = records(client, file, "c")
        ((key, record),) = chunks.items()
        offset, _, _, mask = CHUNK.unpack(record)
        client.put(space, key, CHUNK.pack(offset, 1000 * MIB, 1000 * MIB, mask))
    more, error = held(server, file, "one")
    assert (more < 200, "is truncated in the store" in error) == (True, True), (more, error)


def test_a_text_that_claims_what_is_not_in_its_heap_takes_as_much_as_came(
    server: Stored, tmp_path: Path
) -> None:
    file = tmp_path / "a.h5"
    made(server, file, 'file.create_dataset("d", data=["abc"], dtype=h5py.string_dtype())')
    with connect(server.address, auth="none") as client:
        space, objects = records(client, file, "o")
        large = struct.pack("<Q", 2048 * MIB)
        (key,) = [key for key, record in objects.items() if record[1] == 2]
        # The fields near the end of a dataset's record: data_end, heap_end, pool, pool_at, u32 length of the fill
        # value.
        whole = objects[key]
        at = len(whole) - 4 - 3 * 8
        assert whole[at : at + 8] == struct.pack("<Q", 3)
        client.put(space, key, whole[:at] + large + whole[at + 8 :])
        # An element in the store: the position of its data, from 1 on, and its length.
        (name,) = [name for name in client.objects(space) if name.endswith(("p", "d"))]
        stored_bytes = bytes(client.read(space, name, 0, MIB))
        begin = stored_bytes.index(struct.pack("<QQ", 1, 3))
        client.write(space, name, struct.pack("<QQ", 1, 2047 * MIB), begin)
    more, error = held(server, file)
    assert (more < 200, "is truncated in the store" in error) == (True, True), (more, error)

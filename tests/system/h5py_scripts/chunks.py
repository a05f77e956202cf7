"""Datasets that grow and shrink, filters, fill values."""

import sys

import h5py
import numpy as np

rng = np.random.default_rng(2)
with h5py.File(sys.argv[1], "w") as f:
    for name, options in {
        "plain": {},
        "gzip": {"compression": "gzip", "compression_opts": 9},
        "lzf": {"compression": "lzf"},
        "shuffled": {"compression": "gzip", "shuffle": True},
        "checked": {"fletcher32": True},
        "all": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    }.items():
        d = f.create_dataset(name, (0, 8), "f4", maxshape=(None, 16), chunks=(16, 5), fillvalue=-1, **options)
        truth = np.full((0, 8), -1, "f4")
        for _ in range(20):
            rows = np.round(rng.random((7, 8)), 2).astype("f4")
            d.resize(d.shape[0] + 7, axis=0)
            d[-7:] = rows
            truth = np.concatenate([truth, rows])
        d.resize((200, 16))
        truth = np.pad(truth, ((0, 60), (0, 8)), constant_values=-1)
        d[150:160, 10:12] = 0.25
        truth[150:160, 10:12] = 0.25
        d.resize((33, 9))
        d.resize((50, 12))  # what was cut off is gone, not hidden
        truth = np.pad(truth[:33, :9], ((0, 17), (0, 3)), constant_values=-1)
        assert np.array_equal(d[:], truth), name
        f.flush()
        assert np.array_equal(d[10:20, 3:7], truth[10:20, 3:7]), name
    f.create_dataset("scaled", data=rng.integers(0, 500, (40, 40)), chunks=(7, 7), scaleoffset=0)[
        3:5, 3:5
    ] = 1000
    f.create_dataset("never written", (5, 5), "i4", fillvalue=42)
    f.create_dataset("partly written", (1000,), "i8", fillvalue=9)[500:510] = 1
    f.create_dataset("chunk partly written", (1000,), "i8", fillvalue=9, chunks=(64,))[500:510] = 1
    f.create_dataset("zeros", (4,), "u1")
    log = f.create_dataset("log", (0,), "i4", maxshape=(None,), chunks=(1000,))
    for k in range(500):
        log.resize(k + 1, axis=0)
        log[k] = k * k
    assert (log[:] == np.arange(500) ** 2).all()
    one = f.create_dataset("unlimited in all", (2, 2, 2), maxshape=(None, None, None), dtype="i2")
    one[:] = 1
    one.resize((3, 4, 5))
    one[2, 3, 4] = 5
    raw = f.create_dataset("raw chunks", (20,), "u1", chunks=(10,), compression="gzip")
    raw[:] = np.arange(20)
    mask, data = raw.id.read_direct_chunk((10,))
    raw.id.write_direct_chunk((0,), data, mask)
    assert raw.id.get_num_chunks() == 2
    assert (raw[:10] == raw[10:]).all()

with h5py.File(sys.argv[1], "r+") as f:
    f["gzip"][0, 0] = 77
    f["log"].resize((501,))
    f["log"][500] = -1

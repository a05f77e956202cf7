"""Selections of every kind, read and written."""

import sys

import h5py
import numpy as np

rng = np.random.default_rng(1)
with h5py.File(sys.argv[1], "w") as f:
    for layout, options in {
        "contiguous": {},
        "chunked": {"chunks": (3, 5, 4)},
        "filtered": {"chunks": (4, 4, 4), "compression": "gzip"},
    }.items():
        truth = rng.integers(0, 1000, (10, 11, 12))
        d = f.create_dataset(layout, data=truth, **options)
        for s in [
            np.s_[:],
            np.s_[...],
            np.s_[3],
            np.s_[3, 4, 5],
            np.s_[2:7],
            np.s_[:, 3],
            np.s_[..., 5],
            np.s_[1:9:2, ::3, 1::4],
            np.s_[0:0],
            np.s_[[1, 4, 7]],
            np.s_[:, [0, 10]],
            np.s_[2:4, [1, 3, 8], ::2],
            np.s_[5:6, 5:6, 5:6],
            np.s_[-1],
            np.s_[:, -3:],
        ]:
            assert np.array_equal(d[s], truth[s]), (layout, s)
        mask = truth > 500
        assert np.array_equal(d[mask], truth[mask])
        for s in [
            np.s_[3],
            np.s_[2:7, 1],
            np.s_[::3, ::2, ::5],
            np.s_[[0, 5, 9]],
            np.s_[9, 10, 11],
            np.s_[4:6, :, [2, 3, 7]],
        ]:
            new = rng.integers(0, 1000, truth[s].shape)
            d[s] = new
            truth[s] = new
        d[mask] = 7
        truth[mask] = 7
        d[0, :, :] = 3  # a scalar for all
        truth[0] = 3
        d[1] = np.arange(12)  # broadcast
        truth[1] = np.arange(12)
        assert np.array_equal(d[:], truth)
        out = np.zeros((20, 12), int)
        d.read_direct(out, np.s_[2, 0:10], np.s_[5:15])
        assert np.array_equal(out[5:15], truth[2, :10])
        source = rng.integers(0, 9, (20, 12))
        d.write_direct(source, np.s_[5:8], np.s_[4, 2:5])
        truth[4, 2:5] = source[5:8]
        assert np.array_equal(d[:], truth)
    f["floats as integers"] = np.arange(10)
    f["floats as integers"][2:5] = [1.9, 2.9, -3.9]
    assert f["floats as integers"].astype("f4")[3] == 2.0
    f["big endian"] = np.arange(10, dtype=">u2")
    f["big endian"][3] = 40000
    scalar = f.create_dataset("scalar", data=5.5)
    assert scalar[()] == 5.5
    scalar[...] = 6.5
    points = f.create_dataset("points", (100, 100), "i4", chunks=(7, 9))
    space = points.id.get_space()
    at = np.array([[5, 5], [99, 0], [0, 99], [50, 50]])
    space.select_elements(at)
    points.id.write(h5py.h5s.create_simple((4,)), space, np.arange(1, 5, dtype="i4"))
    assert [points[tuple(p)] for p in at] == [1, 2, 3, 4]
    f.create_dataset("nothing", (0, 5), "f8", maxshape=(None, 5))
    f["empty"] = h5py.Empty("i2")

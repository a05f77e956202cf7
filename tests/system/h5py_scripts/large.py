"""A dataset of 64 MiB, written whole and read in parts; one that is written in parts and read whole."""

import sys

import h5py
import numpy as np

truth = np.random.default_rng(3).integers(0, 2**63, (1024, 8192))
with h5py.File(sys.argv[1], "w") as f:
    f["whole"] = truth
    assert (f["whole"][100:200, 4000:5000] == truth[100:200, 4000:5000]).all()
    parts = f.create_dataset("parts", truth.shape, truth.dtype, chunks=(128, 1024))
    for k in range(0, 1024, 100):
        parts[k : k + 100] = truth[k : k + 100]
    assert (parts[:] == truth).all()
    assert (parts[:, 77] == truth[:, 77]).all()

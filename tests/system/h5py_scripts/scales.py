"""Dimension scales."""

import sys

import h5py
import numpy as np

with h5py.File(sys.argv[1], "w") as f:
    f["x"] = np.linspace(0, 1, 5)
    f["y"] = np.arange(3)
    f["x"].make_scale("the x axis")
    f["y"].make_scale()
    d = f.create_dataset("field", (5, 3))
    d.dims[0].attach_scale(f["x"])
    d.dims[1].attach_scale(f["y"])
    d.dims[0].label = "x"

with h5py.File(sys.argv[1], "r+") as f:
    assert f["field"].dims[0]["the x axis"] == f["x"]
    assert len(f["field"].dims[1]) == 1
    f["field"].dims[1].detach_scale(f["y"])

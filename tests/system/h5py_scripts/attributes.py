"""Attributes of every type, changed, renamed and removed."""

import sys

import h5py
import numpy as np

with h5py.File(sys.argv[1], "w") as f:
    a = f.attrs
    for kind in "bBhHiIlLqQefdgFD?":
        a[f"scalar {kind}"] = np.ones((), kind)
        a[f"array {kind}"] = np.arange(6).reshape(2, 3).astype(kind)
    a["big endian"] = np.arange(5, dtype=">i4")
    a["text"] = "Grüße 日本"
    a["bytes"] = np.bytes_(b"fixed")
    a["texts"] = np.array(["a", "", "ccc"], dtype=object)
    a["fixed texts"] = np.array([b"one", b"three"])
    a["empty"] = h5py.Empty("f8")
    a["empty text"] = ""
    a["void"] = np.void(b"\x00\x01\xff")
    a["compound"] = np.array([(1, 2.5, b"x"), (3, 4.5, b"yz")], dtype=[("i", "i4"), ("d", "f8"), ("s", "S3")])
    a.create("enum", [0, 1, 1], dtype=h5py.enum_dtype({"RED": 0, "BLUE": 1}, basetype="i1"))
    a.create(
        "sequences",
        np.array([np.arange(3), np.arange(0), np.arange(5)], dtype=object),
        dtype=h5py.vlen_dtype("i4"),
    )
    a["reference"] = f.create_group("target").ref
    a["many"] = np.arange(5000)
    f["target"].attrs["own"] = 1
    a["to change"] = 1
    a["to change"] = "now text"
    a.modify("many", np.arange(5000)[::-1])
    a["to go"] = 1
    del a["to go"]
    h5py.h5a.rename(f.id, b"to change", b"renamed")
    d = f.create_dataset("d", data=[1.0])
    for k in range(100):
        d.attrs[f"{k:03d} " + "x" * k] = k
    g = f.create_group("ordered", track_order=True)
    for name in "zmab":
        g.attrs[name] = name

with h5py.File(sys.argv[1], "r+") as f:
    assert f.attrs["renamed"] == "now text"
    assert "to go" not in f.attrs
    assert len(f["d"].attrs) == 100
    assert list(f["ordered"].attrs) == list("zmab")
    f.attrs["later"] = f.attrs["array d"] * 2
    del f["d"].attrs["050 " + "x" * 50]

"""Every type that h5py knows."""

import sys

import h5py
import numpy as np

with h5py.File(sys.argv[1], "w") as f:
    for kind in [
        "i1",
        "u1",
        "<i2",
        ">i2",
        "<u4",
        ">u4",
        "i8",
        "u8",
        "f2",
        "<f4",
        ">f4",
        "f8",
        "g",
        "c8",
        "c16",
        "?",
        "S5",
        "V7",
    ]:
        values = np.frombuffer(bytes(range(1, 49)) * 8, "u1")[: 3 * np.dtype(kind).itemsize]
        f["kind " + kind.replace("<", "little ").replace(">", "big ")] = np.frombuffer(
            values % 2 if kind == "?" else values, kind
        )
    text = h5py.string_dtype()
    f.create_dataset("texts", (5,), text)[1:4] = ["ä", "", "long " * 100]
    f.create_dataset("chunked texts", (10,), text, chunks=(3,), compression="gzip", maxshape=(None,))[2:9] = [
        str(k) * k for k in range(7)
    ]
    f.create_dataset("texts with fill", (3,), text, fillvalue="none yet")[1] = "one"
    f["fixed utf-8"] = np.array(["é".encode(), b"abc"], dtype=h5py.string_dtype("utf-8", 6))
    f.create_dataset("ascii", data=[b"x", b"yy"], dtype=h5py.string_dtype("ascii"))
    d = f.create_dataset("sequences", (4,), h5py.vlen_dtype("f8"))
    d[0] = [1, 2, 3]
    d[2] = np.arange(1000)
    d[0] = [9]
    f.create_dataset("sequences of texts", (2,), h5py.vlen_dtype(text))[0] = np.array(["p", "qq"], object)
    compound = np.dtype(
        [("id", "i4"), ("where", "f8", (3,)), ("name", "S8"), ("inner", [("a", "u1"), ("b", ">f4")])]
    )
    table = np.zeros(6, compound)
    table["id"] = np.arange(6)
    table["where"] = np.arange(18).reshape(6, 3)
    table["name"] = [b"n%d" % k for k in range(6)]
    table["inner"]["b"] = 1.5
    f["table"] = table
    f["table"]["id"] = np.arange(6) * 10  # one field of all
    assert (f["table"]["where"][3] == [9, 10, 11]).all()
    assert f["table"][2]["id"] == 20
    assert f["table"].fields(["id", "name"])[1]["name"] == b"n1"
    mixed = np.dtype([("key", text), ("n", "i4"), ("data", h5py.vlen_dtype("i2"))])
    m = f.create_dataset("mixed", (2,), mixed)
    m[0] = ("first", 1, np.arange(3, dtype="i2"))
    m[1] = ("second", 2, np.arange(0, dtype="i2"))
    f.create_dataset("enum", data=[0, 2, 1], dtype=h5py.enum_dtype({"A": 0, "B": 1, "C": 2}, basetype="u1"))
    f.create_dataset("arrays", (3,), np.dtype(("i2", (2, 2))))[1] = [[1, 2], [3, 4]]
    f["opaque"] = np.array([np.datetime64("2020-01-01"), np.datetime64("2021-06-07")]).astype(
        h5py.opaque_dtype("M8[D]")
    )
    f["named type"] = np.dtype("f8")
    f["named compound"] = compound
    named = f.create_dataset("of named type", (2,), dtype=f["named type"])
    named[:] = [1.5, 2.5]
    assert h5py.h5t.TypeID.committed(named.id.get_type())
    f.attrs.create("of named type", [3.5], dtype=f["named type"])
    refs = f.create_dataset("references", (3,), h5py.ref_dtype)
    refs[0] = f["table"].ref
    refs[1] = f.ref
    assert f[refs[0]] == f["table"]
    regions = f.create_dataset("regions", (2,), h5py.regionref_dtype)
    regions[0] = f["arrays"].regionref[1:2]
    assert f[f[regions[0]].name][regions[0]].shape == (1, 2, 2)
    f.create_dataset("complex compound", data=np.array([1 + 2j, 3 - 4j]))

with h5py.File(sys.argv[1], "r") as f:
    assert f["texts"].asstr()[3] == "long " * 100
    assert f["texts with fill"].asstr()[2] == "none yet"
    assert list(f["sequences"][0]) == [9]
    assert f["mixed"][0]["key"] == b"first"
    assert f[f["references"][0]].name == "/table"

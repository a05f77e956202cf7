"""Hypothesis strategies for small programs of HDF5 operations, which hdf5_program_runner.py runs."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Operation = dict[str, Any]

NAMES = ["a", "b", "c", "data", "é", "x y*?"]
ATTRIBUTES = ["p", "q", "r", "ü"]
# Types whose values compare by their bytes are more frequent: they reach filters and chunks most directly.
PLAIN = ["<i1", ">i2", "<i4", ">i8", "<u1", ">u2", "<u4", ">u8", "<f2", ">f4", "<f8"]
OTHERS = [
    "bits",
    "bool",
    "enum",
    "S5",
    "utf8",
    "spaces",
    "terminated",
    "texts",
    "ascii texts",
    "lists",
    "lists of structs",
    "struct",
    "struct of text",
    "nested",
    "array",
    "array of texts",
    "complex",
    "opaque",
    "void",
    "object",
    "region",
    "struct of object",
    "committed",
]
# For fill values of these h5py 3.16 passes HDF5 memory with a different layout, also with files on disk.
NO_FILL = (
    "lists",
    "lists of structs",
    "struct of text",
    "array of texts",
    "object",
    "region",
    "struct of object",
    "committed",
    "S5",
    "utf8",
    "spaces",
    "terminated",
)
ORDER_UNTRACKED, ORDER_TRACKED, ORDER_INDEXED = 0, 1, 3
FILL_ALLOC, FILL_IFSET, FILL_NEVER = 0, 2, 1  # as h5py.h5d has them
ALLOC_DEFAULT, ALLOC_EARLY, ALLOC_LATE, ALLOC_INCR = 0, 1, 2, 3
COPY_SHALLOW, COPY_SOFT, COPY_EXTERNAL, COPY_REFERENCES, COPY_NO_ATTRIBUTES = 1, 2, 4, 8, 16

numbers = st.integers(0, 11)
seeds = st.integers(0, 999)
types = st.one_of(st.sampled_from(PLAIN), st.sampled_from(OTHERS))
names = st.sampled_from(NAMES)


def operation(kind: str, /, **more: st.SearchStrategy[Any]) -> st.SearchStrategy[Operation]:
    return st.fixed_dictionaries({"op": st.just(kind), **more})


def rarely(value: Any = True, other: Any = False) -> st.SearchStrategy[Any]:
    return st.sampled_from([other, other, other, other, value])


@st.composite
def selections(draw: st.DrawFn) -> list[Operation]:
    """An empty list is the whole dataset."""
    return draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "kind": st.sampled_from(["slab", "slab", "slab", "points", "none", "outside"]),
                    "how": st.sampled_from(["or", "and", "xor", "not"]),
                    "numbers": st.lists(numbers, min_size=3, max_size=6),
                }
            ),
            max_size=2,
        )
    )


@st.composite
def filters(draw: st.DrawFn, type_name: str) -> list[list[Any]]:
    ways: list[st.SearchStrategy[list[Any]]] = [
        st.just(["shuffle"]),
        st.tuples(st.just("deflate"), st.sampled_from([0, 1, 9])).map(list),
        st.just(["fletcher32"]),
        st.just(["lzf"]),
        st.just(["nbit"]),
        st.tuples(st.just("missing"), st.just(7)).map(list),
    ]
    if type_name[0] in "<>":
        float_way, integer_way = 0, 2
        if type_name[1] == "f":
            ways.append(st.tuples(st.just("scaleoffset"), st.just(float_way), st.integers(0, 3)).map(list))
        else:
            ways.append(st.tuples(st.just("scaleoffset"), st.just(integer_way), st.integers(0, 4)).map(list))
    chosen = draw(st.lists(st.one_of(ways), max_size=3, unique_by=lambda way: way[0]))
    return chosen


@st.composite
def datasets(draw: st.DrawFn) -> Operation:
    type_name = draw(types)
    out: Operation = {
        "op": "dataset",
        "in": draw(numbers),
        "name": draw(names),
        "type": type_name,
        "committed": draw(numbers),
        "layout": draw(st.sampled_from(["chunked", "chunked", "chunked", "contiguous", "compact"])),
        "hold": draw(rarely()),
        "utf8": draw(st.booleans()),
        "times": draw(rarely()),
        "between": draw(rarely()),
    }
    kind = draw(st.sampled_from(["simple"] * 8 + ["scalar", "null"]))
    if kind != "simple":
        out["shape"] = kind
        out["chunk"] = [2]
    else:
        rank = draw(st.integers(1, 3))
        shape = [draw(st.integers(0, 7)) for _ in range(rank)]
        growing = out["layout"] == "chunked" or draw(rarely())
        out["shape"] = shape
        out["most"] = [draw(st.sampled_from([n, n, None, n + 3])) if growing else n for n in shape]
        out["chunk"] = [
            draw(st.integers(1, max(1, most)))
            if most is not None and draw(st.booleans())
            else draw(st.integers(1, 5))
            for most in out["most"]
        ]
    if out["layout"] == "chunked" or draw(rarely()):
        out["filters"] = draw(filters(type_name))
    if type_name not in NO_FILL and draw(st.booleans()):
        out["fill"] = draw(seeds)
    if draw(rarely()):
        out["fill_time"] = draw(st.sampled_from([FILL_ALLOC, FILL_IFSET, FILL_NEVER]))
    if draw(rarely()):
        out["alloc_time"] = draw(st.sampled_from([ALLOC_DEFAULT, ALLOC_EARLY, ALLOC_LATE, ALLOC_INCR]))
    if draw(rarely()):
        out["attributes"] = draw(st.sampled_from([ORDER_TRACKED, ORDER_INDEXED]))
    return out


shapes = st.one_of(st.sampled_from(["scalar", "null"]), st.lists(st.integers(0, 3), min_size=1, max_size=2))
held = rarely()
group = operation(
    "group",
    **{"in": numbers},
    name=names,
    order=st.sampled_from([ORDER_UNTRACKED, ORDER_TRACKED, ORDER_INDEXED]),
    times=rarely(),
    hold=rarely(),
    utf8=st.booleans(),
    between=rarely(),
)
write = operation(
    "write",
    of=numbers,
    held=held,
    seed=seeds,
    selects=selections(),
    field=st.sampled_from([0, 0, 1, 2]),
    strided=rarely(),
    **{"as": rarely("f8", "") | rarely("i4", "") | rarely("u8", "")},
)
read = operation(
    "read",
    of=numbers,
    held=held,
    selects=selections(),
    field=st.sampled_from([0, 0, 1, 2]),
    strided=rarely(),
    **{"as": rarely("f8", "") | rarely("i4", "") | rarely("i1", "")},
)
resize = operation("resize", of=numbers, held=held, sizes=st.lists(st.integers(0, 9), min_size=1, max_size=3))
attribute = operation(
    "attribute",
    of=numbers,
    held=held,
    name=st.sampled_from(ATTRIBUTES),
    type=types,
    committed=numbers,
    shape=shapes,
    seed=seeds,
    replace=st.booleans(),
    unwritten=rarely(),
)
of_attributes = st.one_of(
    operation("write_attribute", of=numbers, held=held, attribute=numbers, seed=seeds),
    operation("read_attribute", of=numbers, attribute=numbers, **{"as": st.sampled_from(["f8", "i4", "i1"])}),
    operation("rename_attribute", of=numbers, held=held, attribute=numbers, name=st.sampled_from(ATTRIBUTES)),
    operation("delete_attribute", of=numbers, held=held, attribute=numbers),
)
chunks = st.one_of(
    operation(
        "write_chunk",
        of=numbers,
        held=held,
        chunk=numbers,
        seed=seeds,
        apply=numbers,
        **{"no mask": rarely()},
        damaged=rarely(),
    ),
    operation("copy_chunk", of=numbers, chunk=numbers, to=numbers),
    operation("chunk_info", of=numbers, chunk=numbers),
)
targets = st.one_of(numbers, st.sampled_from(["a", "/a", "./b/c", "nowhere", "/", "a/../b", "/b/"]))
between = rarely()
links = st.one_of(
    operation("soft", **{"in": numbers}, name=names, target=targets, utf8=st.booleans(), between=between),
    operation("hard", **{"in": numbers}, of=numbers, held=held, name=names, utf8=st.booleans()),
    operation(
        "external",
        **{"in": numbers},
        name=names,
        to=st.sampled_from(["b.h5", "b.h5", "a.h5", "missing.h5"]),
        target=st.sampled_from(["/", "/a", "/b", "a/b", "nowhere"]),
        utf8=st.booleans(),
    ),
    operation("unlink", **{"in": numbers}, link=numbers),
    operation("exists", path=st.sampled_from(["a", "a/b", "b/a/c", "/data", "data/a/b", ".", "c/nowhere"])),
    operation("move", **{"in": numbers}, link=numbers, to=numbers, name=names, utf8=st.booleans()),
    operation(
        "move",
        **{"in": numbers},
        link=numbers,
        to=numbers,
        name=st.sampled_from(["new/deep", "a/b"]),
        between=between,
    ),
)
copies = operation(
    "copy",
    of=numbers,
    file=st.sampled_from([0, 0, 0, 1]),
    into=st.sampled_from([0, 0, 1]),
    name=names,
    utf8=st.booleans(),
    flags=st.one_of(
        st.just(0),
        st.sampled_from([COPY_SHALLOW, COPY_SOFT, COPY_EXTERNAL, COPY_REFERENCES, COPY_NO_ATTRIBUTES]),
        st.integers(0, 31),
    ),
    **{"in": numbers},
)
others = st.one_of(
    operation("comment", of=numbers, any=st.booleans()),
    operation("commit", **{"in": numbers}, name=names, type=types, committed=numbers, hold=rarely()),
    operation("hold", of=numbers),
    operation("let_go", of=numbers),
    operation("facts", of=numbers, held=st.booleans()),
    operation("flush", file=st.sampled_from([0, 1])),
    operation("flush_dataset", of=numbers),
    operation("refresh_dataset", of=numbers),
    operation("dump", file=st.sampled_from([0, 1])),
    operation(
        "reopen", file=st.sampled_from([0, 0, 0, 1]), mode=st.sampled_from(["r+", "r+", "r+", "a", "r"])
    ),
    operation("scale", of=numbers),
    operation("attach", of=numbers, scale=numbers, axis=numbers),
    operation("detach", of=numbers, scale=numbers, axis=numbers),
)
step = st.one_of(
    datasets(),
    datasets(),
    datasets(),
    write,
    write,
    write,
    read,
    read,
    resize,
    resize,
    group,
    attribute,
    attribute,
    of_attributes,
    chunks,
    chunks,
    links,
    links,
    copies,
    others,
)
creating = operation(
    "create",
    file=st.just(0),
    libver=st.sampled_from([None, None, "latest", "earliest"]),
    track_order=st.booleans(),
    userblock_size=rarely(512, 0),
)


@st.composite
def programs(draw: st.DrawFn) -> list[Operation]:
    """Two files are created, operations change them, and all their contents are read before and after a close."""
    begin = [draw(creating), {"op": "create", "file": 1}]
    first = [draw(datasets()) | {"in": 0}, draw(group)]
    steps = draw(st.lists(step, min_size=1, max_size=24))
    ends = [{"op": kind, "file": file, "mode": "r"} for file in (0, 1) for kind in ("dump", "reopen")]
    return [*begin, *first, *steps, *ends]

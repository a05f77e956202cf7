"""Runs small programs of HDF5 operations, and reports what each returned: python hdf5_program_runner.py FOLDER

Reads programs from standard input, one JSON list of operations a line (hdf5_programs.py makes them), and writes one
JSON list a line: for each operation a dictionary of facts. The environment decides where HDF5 has its files, so two
such processes, one with files on disk and one with HDF5_VOL_CONNECTOR, can be compared fact by fact.

Operations address objects by number: the n-th of the file's objects, modulo their count. So a program still runs and
does something after operations were removed from it.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import h5py
import numpy as np
from h5py import h5, h5a, h5d, h5ds, h5f, h5g, h5i, h5l, h5o, h5p, h5r, h5s, h5t, h5z

Facts = dict[str, Any]
Operation = dict[str, Any]
FILES = ("a.h5", "b.h5")
LZF = 32000
COMMENT = b"a comment"
ON_DISK = "HDF5_VOL_CONNECTOR" not in os.environ
DEPTH = 4  # limit for listed groups: hard links can make cycles


def plain(value: Any) -> Any:
    """A JSON value; equal only for equal values."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return ["objects", list(value.shape), [plain(one) for one in value.ravel().tolist()]]
        return [value.dtype.str, list(value.shape), np.ascontiguousarray(value).tobytes().hex()]
    if isinstance(value, np.generic):
        return plain(np.asarray(value)) if not isinstance(value, np.void) else plain(np.array(value))
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, float):
        return value.hex()
    return value if value is None or isinstance(value, (bool, int, str)) else repr(value)


def type_facts(tid: h5t.TypeID) -> Any:
    """A datatype as a description, without the bytes in which a library stores it."""
    kind = tid.get_class()
    out: list[Any] = [kind, tid.get_size()]
    if isinstance(tid, h5t.TypeIntegerID):
        out += [tid.get_order(), tid.get_precision(), tid.get_offset(), tid.get_sign(), tid.get_pad()]
    elif isinstance(tid, h5t.TypeFloatID):
        out += [tid.get_order(), tid.get_precision(), tid.get_offset(), tid.get_fields(), tid.get_ebias()]
    elif isinstance(tid, h5t.TypeStringID):
        out += [tid.is_variable_str(), tid.get_cset(), tid.get_strpad()]
    elif isinstance(tid, h5t.TypeOpaqueID):
        out += [tid.get_tag()]
    elif isinstance(tid, h5t.TypeEnumID):
        out += [type_facts(tid.get_super())]
        out += [[tid.get_member_name(k), tid.get_member_value(k)] for k in range(tid.get_nmembers())]
    elif isinstance(tid, h5t.TypeCompoundID):
        for k in range(tid.get_nmembers()):
            out += [[tid.get_member_name(k), tid.get_member_offset(k), type_facts(tid.get_member_type(k))]]
    elif isinstance(tid, h5t.TypeArrayID):
        out += [tid.get_array_dims(), type_facts(tid.get_super())]
    elif isinstance(tid, h5t.TypeVlenID):
        out += [type_facts(tid.get_super())]
    elif isinstance(tid, h5t.TypeReferenceID):
        out += [tid.equal(h5t.STD_REF_OBJ)]
    return plain(out)


ENUM = {"red": 1, "green": 7, "blue": 3}


def bits() -> h5t.TypeID:
    tid = h5t.STD_I16LE.copy()
    tid.set_precision(12)
    tid.set_offset(2)
    return tid


def text(padding: int, charset: int) -> h5t.TypeID:
    tid = h5t.C_S1.copy()
    tid.set_size(6)
    tid.set_strpad(padding)
    tid.set_cset(charset)
    return tid


def opaque() -> h5t.TypeID:
    tid = h5t.create(h5t.OPAQUE, 3)
    tid.set_tag(b"a tag")
    return tid


def of(dtype: Any) -> Callable[[], h5t.TypeID]:
    return lambda: h5t.py_create(np.dtype(dtype), logical=True)


TYPES: dict[str, Callable[[], h5t.TypeID]] = {
    **{
        name: of(name)
        for name in ("<i1", ">i2", "<i4", ">i8", "<u1", ">u2", "<u4", ">u8", "<f2", ">f4", "<f8")
    },
    "bits": bits,
    "bool": of(bool),
    "enum": of(h5py.enum_dtype(ENUM, basetype="i2")),
    "S5": of("S5"),
    "utf8": of(h5py.string_dtype("utf-8", 4)),
    "spaces": lambda: text(h5t.STR_SPACEPAD, h5t.CSET_ASCII),
    "terminated": lambda: text(h5t.STR_NULLTERM, h5t.CSET_UTF8),
    "texts": of(h5py.string_dtype()),
    "ascii texts": of(h5py.string_dtype("ascii")),
    "lists": of(h5py.vlen_dtype(np.dtype("<i4"))),
    "lists of structs": of(h5py.vlen_dtype(np.dtype([("x", "<i2"), ("y", "<f8")]))),
    "struct": of([("a", "<i4"), ("b", ">f8"), ("c", "S3")]),
    "struct of text": of([("n", "<u2"), ("t", h5py.string_dtype()), ("l", h5py.vlen_dtype(np.dtype("<i2")))]),
    "nested": of([("in", [("x", "<i2"), ("y", "<f4", (2,))]), ("z", "<u1")]),
    "array": of((np.dtype("<i2"), (2, 3))),
    "array of texts": of((h5py.string_dtype(), (2,))),
    "complex": of("<c8"),
    "opaque": opaque,
    "void": of("V4"),
    "object": of(h5py.ref_dtype),
    "region": of(h5py.regionref_dtype),
    "struct of object": of([("r", h5py.ref_dtype), ("n", "<i4")]),
}
# Used in memory in addition to the file's own type.
CONVERTED = {"f8": h5t.NATIVE_DOUBLE, "i4": h5t.NATIVE_INT32, "i1": h5t.NATIVE_INT8, "u8": h5t.NATIVE_UINT64}


def memory_type(tid: h5t.TypeID) -> h5t.TypeID:
    """Its numpy type. An opaque type would lose its tag, and HDF5 does not convert between different tags."""
    return tid if isinstance(tid, h5t.TypeOpaqueID) else h5t.py_create(tid.dtype)


class Runner:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.files: dict[str, h5py.File] = {}
        self.held: list[Any] = []

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    # ---- programs

    def run(self, program: list[Operation]) -> list[Facts]:
        self.files, self.held = {}, []
        out = []
        for operation in program:
            facts: Facts = {}
            try:
                getattr(self, "do_" + operation["op"])(operation, facts)
            except Exception as error:
                facts["error"] = type(error).__name__
                facts["# message"] = str(error)
            out.append(facts)
        facts = {}
        try:
            self.close()
        except Exception as error:
            facts["error"] = type(error).__name__
            facts["# message"] = str(error)
        self.forget()
        return [*out, facts]

    def close(self) -> None:
        self.held.clear()
        for file in self.files.values():
            file.close()

    def forget(self) -> None:
        """Closes all that a program left open, or the next one could not create its files again."""
        self.held.clear()
        self.files.clear()
        gc.collect()
        for one in h5f.get_obj_ids(h5f.OBJ_ALL, h5f.OBJ_ALL):
            while one.valid and not (isinstance(one, h5t.TypeID) and not one.committed()):
                h5i.dec_ref(one)

    # ---- what a file has

    def file(self, operation: Operation) -> h5py.File:
        return self.files[FILES[operation.get("file", 0)]]

    def listing(self, file: h5py.File) -> Iterator[tuple[str, Any]]:
        """Path and object of everything that hard links lead to, each once, in the order of paths."""
        root = file["/"].id
        yield "/", root
        yield from self.below(root, "", 0, {root})

    def below(self, group: h5g.GroupID, path: str, depth: int, seen: set[Any]) -> Iterator[tuple[str, Any]]:
        for name in sorted(group):
            if group.links.get_info(name).type != h5l.TYPE_HARD:
                continue
            found = h5o.open(group, name)
            if found in seen:
                continue
            seen.add(found)
            at = f"{path}/{name.decode()}"
            yield at, found
            if isinstance(found, h5g.GroupID) and depth < DEPTH:
                yield from self.below(found, at, depth + 1, seen)

    def pick(self, operation: Operation, kind: type | tuple[type, ...], key: str = "of") -> tuple[str, Any]:
        found = [(path, one) for path, one in self.listing(self.file(operation)) if isinstance(one, kind)]
        if not found:
            raise LookupError("nothing of this kind")
        return found[operation[key] % len(found)]

    def group(self, operation: Operation, key: str = "in") -> h5g.GroupID:
        return self.pick(operation, h5g.GroupID, key)[1]

    def dataset(self, operation: Operation, key: str = "of") -> h5d.DatasetID:
        if operation.get("held") and (held := [one for one in self.held if isinstance(one, h5d.DatasetID)]):
            return held[operation[key] % len(held)]
        return self.pick(operation, h5d.DatasetID, key)[1]

    def any(self, operation: Operation, key: str = "of") -> Any:
        if operation.get("held") and self.held:
            return self.held[operation[key] % len(self.held)]
        return self.pick(operation, (h5d.DatasetID, h5g.GroupID, h5t.TypeID), key)[1]

    # ---- values

    def type(self, operation: Operation) -> h5t.TypeID:
        name = operation["type"]
        if name == "committed":
            return self.pick(operation, h5t.TypeID, "committed")[1]
        return TYPES[name]()

    def values(self, tid: h5t.TypeID, shape: tuple[int, ...], seed: int) -> np.ndarray:
        """Values of numpy's type for this one. An even seed makes values that compress well."""
        rng = np.random.default_rng(seed)
        dtype = tid.dtype
        base, more = (dtype.subdtype[0], dtype.subdtype[1]) if dtype.subdtype else (dtype, ())
        out = np.zeros(shape + more, dtype=base)
        flat = out.reshape(-1)
        for k in range(flat.size):
            flat[k] = self.value(base, rng, seed)
        return out

    def value(self, dtype: np.dtype, rng: np.random.Generator, seed: int) -> Any:
        few = seed % 2 == 0
        if dtype.names:
            out = np.zeros((), dtype)
            for name in dtype.names:
                part = dtype[name]
                if part.subdtype:
                    out[name] = [self.value(part.subdtype[0], rng, seed) for _ in range(part.subdtype[1][0])]
                else:
                    out[name] = self.value(part, rng, seed)
            return out[()]
        if h5py.check_ref_dtype(dtype):
            return self.reference(dtype, rng)
        if h5py.check_string_dtype(dtype):
            letters = ["", "a", "bc", "déf", "ghijklmno"][int(rng.integers(5))]
            encoded = letters.encode()
            return encoded if dtype.kind == "S" or dtype.hasobject else letters
        if (base := h5py.check_vlen_dtype(dtype)) is not None:
            return np.array([self.value(base, rng, seed) for _ in range(int(rng.integers(4)))], dtype=base)
        if dtype.kind == "V":
            return rng.bytes(dtype.itemsize)
        if h5py.check_enum_dtype(dtype):
            return list(h5py.check_enum_dtype(dtype).values())[
                int(rng.integers(len(h5py.check_enum_dtype(dtype))))
            ]
        if dtype.kind == "b":
            return bool(rng.integers(2))
        if dtype.kind in "fc":
            return rng.choice([0.0, 1.5, -2.25]) if few else rng.normal() * 100
        return int(rng.integers(3)) if few else int(rng.integers(-120 if dtype.kind == "i" else 0, 120))

    def reference(self, dtype: np.dtype, rng: np.random.Generator) -> Any:
        file = self.files[FILES[0]]
        everything = list(self.listing(file))
        if h5py.check_ref_dtype(dtype) is h5py.Reference:
            choice = int(rng.integers(len(everything) + 1))
            if choice == len(everything):
                return h5py.Reference()
            return h5r.create(file.id, everything[choice][0].encode(), h5r.OBJECT)
        datasets = [(path, one) for path, one in everything if isinstance(one, h5d.DatasetID) and one.shape]
        choice = int(rng.integers(len(datasets) + 1))
        if choice == len(datasets):
            return h5py.RegionReference()
        path, dataset = datasets[choice]
        space = dataset.get_space()
        if 0 in dataset.shape:
            space.select_none()
        else:
            space.select_hyperslab((0,) * len(dataset.shape), tuple(max(1, n // 2) for n in dataset.shape))
        return h5r.create(file.id, path.encode(), h5r.DATASET_REGION, space)

    def shown(self, file: h5py.File, value: Any) -> Any:
        """As plain(), with the targets of references in their place."""
        if isinstance(value, np.ndarray) and value.dtype.hasobject:
            return [list(value.shape), [self.shown(file, one) for one in value.ravel()]]
        if isinstance(value, np.void) and value.dtype.hasobject:
            return [self.shown(file, value[name]) for name in value.dtype.names]
        if isinstance(value, (h5py.Reference, h5py.RegionReference)):
            return self.shown_reference(file, value)
        return plain(value)

    def shown_reference(self, file: h5py.File, reference: Any) -> Any:
        if not reference:
            return "null"
        try:
            target = h5r.dereference(reference, file.id)
        except Exception as error:
            return ["dangling", type(error).__name__]
        paths = [path for path, one in self.listing(file) if one == target]
        out = ["leads to", paths, str(h5r.get_obj_type(reference, file.id))]
        if isinstance(reference, h5py.RegionReference):
            try:
                out.append(self.selection(h5r.get_region(reference, file.id)))
            except Exception as error:
                out.append(type(error).__name__)
        return out

    def selection(self, space: h5s.SpaceID) -> Any:
        kind = space.get_select_type()
        out = [kind, space.get_select_npoints(), space.get_simple_extent_dims()]
        if kind == h5s.SEL_HYPERSLABS:
            out.append(space.get_select_hyper_blocklist())
        elif kind == h5s.SEL_POINTS:
            out.append(space.get_select_elem_pointlist())
        return plain(out)

    def space(self, shape: tuple[int, ...], selects: list[dict[str, Any]]) -> h5s.SpaceID:
        """A dataspace of this shape with a selection; numbers are taken modulo the shape's limits."""
        space = h5s.create_simple(shape)
        for number, select in enumerate(selects):
            how = {
                "set": h5s.SELECT_SET,
                "or": h5s.SELECT_OR,
                "xor": h5s.SELECT_XOR,
                "and": h5s.SELECT_AND,
                "not": h5s.SELECT_NOTB,
            }["set" if number == 0 else select["how"]]
            n = select["numbers"]
            if select["kind"] == "points":
                if 0 in shape:
                    space.select_none()
                    continue
                points = [
                    [n[(3 * p + d) % len(n)] % size for d, size in enumerate(shape)]
                    for p in range(1 + n[0] % 4)
                ]
                space.select_elements(np.array(points, dtype="u8"))
            elif select["kind"] == "none":
                space.select_none()
            elif select["kind"] == "outside":
                space.select_hyperslab(tuple(shape), (1,) * len(shape))
            else:
                start, count, stride, block = [], [], [], []
                for d, size in enumerate(shape):
                    begin = n[d % len(n)] % max(size, 1)
                    long = 1 + n[(d + 1) % len(n)] % 3
                    step = long + n[(d + 2) % len(n)] % 3
                    times = max(0, (size - begin - long) // step + 1) if size - begin >= long else 0
                    start.append(begin)
                    block.append(long)
                    stride.append(step)
                    count.append(min(times, 1 + n[(d + 3) % len(n)] % 4))
                if 0 in count:
                    space.select_none()
                else:
                    space.select_hyperslab(tuple(start), tuple(count), tuple(stride), tuple(block), op=how)
        return space

    # ---- files

    def do_create(self, operation: Operation, facts: Facts) -> None:
        name = FILES[operation["file"]]
        if name in self.files:
            self.held.clear()
            self.files.pop(name).close()
        options = {
            key: operation[key] for key in ("libver", "track_order", "userblock_size") if operation.get(key)
        }
        self.files[name] = h5py.File(self.path(name), operation.get("mode", "w"), **options)
        facts.update(self.file_facts(self.files[name]))

    def do_reopen(self, operation: Operation, facts: Facts) -> None:
        self.held.clear()
        name = FILES[operation["file"]]
        self.files.pop(name).close()
        self.files[name] = h5py.File(self.path(name), operation["mode"])
        facts.update(self.file_facts(self.files[name]))
        facts.update(self.everything(self.files[name]))

    def do_flush(self, operation: Operation, facts: Facts) -> None:
        self.file(operation).flush()

    def do_dump(self, operation: Operation, facts: Facts) -> None:
        facts.update(self.everything(self.file(operation)))

    def file_facts(self, file: h5py.File) -> Facts:
        properties = file.id.get_create_plist()
        return {
            "file: mode": file.mode,
            "file: userblock": properties.get_userblock(),
            "file: link order": properties.get_link_creation_order(),
            "file: attribute order": properties.get_attr_creation_order(),
            "file: open objects": h5f.get_obj_count(file.id, h5f.OBJ_ALL),
        }

    # ---- all queries

    def everything(self, file: h5py.File) -> Facts:
        out: Facts = {}
        listing = list(self.listing(file))
        out["paths"] = [path for path, _ in listing]
        for path, one in listing:
            for name, fact in self.object_facts(file, one).items():
                out[f"{path} | {name}"] = fact
        return out

    def asked(self, out: Facts, name: str, question: Callable[[], Any]) -> None:
        try:
            out[name] = question()
        except Exception as error:
            out[name] = ["error", type(error).__name__]
            out["# " + name] = str(error)

    def object_facts(self, file: h5py.File, one: Any) -> Facts:
        out: Facts = {}
        info = h5o.get_info(one)
        out["kind"] = type(one).__name__
        out["hard links"] = info.rc
        out["attributes"] = h5a.get_num_attrs(one)
        # If an object has no comment, h5py returns uninitialised memory.
        self.asked(out, "comment", lambda: h5o.get_comment(one, b".") == COMMENT)
        self.asked(out, "name", lambda: plain(h5i.get_name(one)))
        self.attribute_facts(file, one, out)
        if isinstance(one, h5g.GroupID):
            self.group_facts(one, out)
        elif isinstance(one, h5d.DatasetID):
            self.dataset_facts(file, one, out)
        else:
            self.asked(out, "type", lambda: type_facts(one))
            self.asked(out, "committed", one.committed)
        return out

    def attribute_facts(self, file: h5py.File, one: Any, out: Facts) -> None:
        tracked = one.get_create_plist().get_attr_creation_order() & h5p.CRT_ORDER_TRACKED
        for index, label in ((h5.INDEX_NAME, "name"), (h5.INDEX_CRT_ORDER, "creation")):
            for order in (h5.ITER_INC, h5.ITER_DEC):
                if label == "creation" and not tracked:
                    continue  # HDF5 answers in their order in the file
                names: list[Any] = []
                self.asked(
                    out,
                    f"attributes by {label} {order}",
                    lambda index=index, order=order, names=names: (
                        h5a.iterate(
                            one, lambda name: names.append(plain(name)), index_type=index, order=order
                        ),
                        names,
                    )[1],
                )
        names = []
        h5a.iterate(one, lambda name: names.append(name))
        for name in sorted(names):
            at = f"attribute {name.decode()}"
            self.asked(out, f"{at}: info", lambda name=name: self.attribute_info(one, name))
            self.asked(out, f"{at}: type", lambda name=name: type_facts(h5a.open(one, name).get_type()))
            self.asked(out, f"{at}: space", lambda name=name: self.extent(h5a.open(one, name).get_space()))
            self.asked(out, f"{at}: value", lambda name=name: self.attribute_value(file, one, name))

    def attribute_info(self, one: Any, name: bytes) -> Any:
        info = h5a.get_info(one, name)
        # Without a tracked order, HDF5 answers in an arbitrary one.
        tracked = one.get_create_plist().get_attr_creation_order() & h5p.CRT_ORDER_TRACKED
        regions = h5a.open(one, name).get_type().detect_class(h5t.REFERENCE)
        return [
            info.corder_valid and info.corder if tracked else None,
            info.cset,
            None if regions else info.data_size,
        ]

    def attribute_value(self, file: h5py.File, one: Any, name: bytes) -> Any:
        attribute = h5a.open(one, name)
        if attribute.get_space().get_simple_extent_type() == h5s.NULL:
            return "empty"
        dtype = attribute.get_type().dtype
        base, more = (dtype.subdtype[0], dtype.subdtype[1]) if dtype.subdtype else (dtype, ())
        value = np.zeros(attribute.shape + more, dtype=base)
        attribute.read(value, mtype=memory_type(attribute.get_type()))
        return self.shown(file, value)

    def extent(self, space: h5s.SpaceID) -> Any:
        kind = space.get_simple_extent_type()
        if kind != h5s.SIMPLE:
            return kind
        return plain([kind, space.get_simple_extent_dims(), space.get_simple_extent_dims(True)])

    def group_facts(self, group: h5g.GroupID, out: Facts) -> None:
        properties = group.get_create_plist()
        out["link order"] = properties.get_link_creation_order()
        out["attribute order"] = properties.get_attr_creation_order()
        out["attribute phases"] = properties.get_attr_phase_change()
        out["times"] = properties.get_obj_track_times()
        out["number of links"] = group.get_num_objs()
        for index, label in ((h5.INDEX_NAME, "name"), (h5.INDEX_CRT_ORDER, "creation")):
            for order in (h5.ITER_INC, h5.ITER_DEC):
                self.asked(
                    out,
                    f"links by {label} {order}",
                    lambda index=index, order=order: self.links(group, index, order),
                )
                self.asked(
                    out,
                    f"visited links by {label} {order}",
                    lambda index=index, order=order: self.visited_links(group, index, order),
                )
                self.asked(
                    out,
                    f"visited objects by {label} {order}",
                    lambda index=index, order=order: self.visited_objects(group, index, order),
                )
        for name in sorted(group):
            at = f"link {name.decode()}"
            self.asked(out, f"{at}: info", lambda name=name: self.link_info(group, name))
            self.asked(out, f"{at}: leads to", lambda name=name: type(h5o.open(group, name)).__name__)
            self.asked(out, f"{at}: exists", lambda name=name: h5o.exists_by_name(group, name))

    def links(self, group: h5g.GroupID, index: int, order: int) -> Any:
        names: list[bytes] = []
        group.links.iterate(names.append, idx_type=index, order=order)
        return plain(names)

    def visited_links(self, group: h5g.GroupID, index: int, order: int) -> Any:
        names: list[bytes] = []
        group.links.visit(names.append, idx_type=index, order=order)
        return plain(names)

    def visited_objects(self, group: h5g.GroupID, index: int, order: int) -> Any:
        names: list[bytes] = []
        h5o.visit(group, names.append, idx_type=index, order=order)
        return plain(names)

    def link_info(self, group: h5g.GroupID, name: bytes) -> Any:
        info = group.links.get_info(name)
        value = group.links.get_val(name) if info.type != h5l.TYPE_HARD else None
        tracked = group.get_create_plist().get_link_creation_order() & h5p.CRT_ORDER_TRACKED
        return plain([info.type, info.corder_valid and info.corder if tracked else None, info.cset, value])

    def dataset_facts(self, file: h5py.File, one: h5d.DatasetID, out: Facts) -> None:
        properties = one.get_create_plist()
        tid = one.get_type()
        out["type"] = type_facts(tid)
        out["own form"] = tid.dtype.hasobject
        out["committed"] = tid.committed()
        out["space"] = self.extent(one.get_space())
        self.property_facts(properties, tid, out)
        self.asked(out, "storage", one.get_storage_size)
        self.asked(out, "status", one.get_space_status)
        if properties.get_layout() == h5d.CHUNKED:
            self.chunk_facts(one, out)
        if one.get_space().get_simple_extent_type() != h5s.NULL:
            self.asked(out, "data", lambda: self.shown(file, self.read(one, tid)))

    def property_facts(self, properties: h5p.PropDCID, tid: h5t.TypeID, out: Facts) -> None:
        out["layout"] = properties.get_layout()
        self.asked(
            out,
            "filters",
            lambda: plain([properties.get_filter(k)[:3] for k in range(properties.get_nfilters())]),
        )
        self.asked(out, "filters available", properties.all_filters_avail)
        self.asked(out, "fill time", properties.get_fill_time)
        self.asked(out, "alloc time", properties.get_alloc_time)
        self.asked(out, "fill state", properties.fill_value_defined)
        self.asked(out, "fill", lambda: self.fill(properties, tid))
        self.asked(out, "attribute order", properties.get_attr_creation_order)
        self.asked(out, "attribute phases", properties.get_attr_phase_change)
        self.asked(out, "times", properties.get_obj_track_times)
        self.asked(out, "external", properties.get_external_count)
        if properties.get_layout() == h5d.CHUNKED:
            self.asked(out, "chunk", lambda: plain(properties.get_chunk()))

    def fill(self, properties: h5p.PropDCID, tid: h5t.TypeID) -> Any:
        dtype = tid.dtype
        if dtype.hasobject and not h5py.check_string_dtype(dtype):
            return None  # h5py cannot query it
        value = np.zeros((), dtype) if not dtype.subdtype else np.zeros(dtype.subdtype[1], dtype.subdtype[0])
        if dtype.subdtype:
            return None
        properties.get_fill_value(value)
        return plain(value)

    def chunk_facts(self, one: h5d.DatasetID, out: Facts) -> None:
        self.asked(out, "chunks", one.get_num_chunks)
        found: list[Any] = []

        def each() -> Any:
            for k in range(one.get_num_chunks()):
                info = one.get_chunk_info(k)
                found.append(plain([info.chunk_offset, info.filter_mask, info.size]))
            return sorted(found)

        self.asked(out, "chunk infos", each)
        seen: list[Any] = []
        self.asked(
            out,
            "chunks by iteration",
            lambda: (
                one.chunk_iter(lambda info: seen.append(plain([info[0], info[1], info[3]]))),
                sorted(seen),
            )[1],
        )

        def raw() -> Any:
            out = []
            for k in range(one.get_num_chunks()):
                at = one.get_chunk_info(k).chunk_offset
                out.append([list(at), hashlib.sha1(bytes(one.read_direct_chunk(at)[1])).hexdigest()])
            return sorted(out)

        self.asked(out, "raw chunks", raw)

    def read(self, one: h5d.DatasetID, tid: h5t.TypeID) -> np.ndarray:
        dtype = tid.dtype
        base, more = (dtype.subdtype[0], dtype.subdtype[1]) if dtype.subdtype else (dtype, ())
        value = np.zeros(one.shape + more, dtype=base)
        one.read(h5s.ALL, h5s.ALL, value, mtype=memory_type(tid))
        return value

    # ---- groups, links, objects

    def link_properties(self, operation: Operation) -> h5p.PropLCID:
        properties = h5p.create(h5p.LINK_CREATE)
        properties.set_create_intermediate_group(bool(operation.get("between")))
        properties.set_char_encoding(h5t.CSET_UTF8 if operation.get("utf8") else h5t.CSET_ASCII)
        return properties

    def name(self, operation: Operation, key: str = "name") -> bytes:
        return operation[key].encode()

    def do_group(self, operation: Operation, facts: Facts) -> None:
        properties = h5p.create(h5p.GROUP_CREATE)
        order = operation["order"]
        properties.set_link_creation_order(order)
        properties.set_attr_creation_order(order)
        if "phases" in operation:
            properties.set_attr_phase_change(*operation["phases"])
        properties.set_obj_track_times(bool(operation.get("times")))
        created = h5g.create(
            self.group(operation), self.name(operation), self.link_properties(operation), properties
        )
        self.hold(operation, created)
        facts.update(self.object_facts(self.file(operation), created))

    def hold(self, operation: Operation, one: Any) -> None:
        if operation.get("hold"):
            self.held.append(one)

    def do_hold(self, operation: Operation, facts: Facts) -> None:
        self.held.append(self.any(operation))

    def do_let_go(self, operation: Operation, facts: Facts) -> None:
        if self.held:
            self.held.pop(operation["of"] % len(self.held))

    def do_facts(self, operation: Operation, facts: Facts) -> None:
        facts.update(self.object_facts(self.file(operation), self.any(operation)))

    def do_soft(self, operation: Operation, facts: Facts) -> None:
        target = operation["target"]
        if isinstance(target, int):
            target = self.pick(operation, object, "target")[0]
        group = self.group(operation)  # its links are gone with it
        group.links.create_soft(self.name(operation), target.encode(), self.link_properties(operation))

    def do_external(self, operation: Operation, facts: Facts) -> None:
        target = operation["target"].encode()
        group = self.group(operation)
        group.links.create_external(
            self.name(operation), operation["to"].encode(), target, self.link_properties(operation)
        )

    def do_hard(self, operation: Operation, facts: Facts) -> None:
        target = self.any(operation)
        h5o.link(target, self.group(operation), self.name(operation), self.link_properties(operation))

    def names_in(self, group: h5g.GroupID, operation: Operation) -> bytes:
        names = sorted(group)
        if not names:
            raise LookupError("no link")
        return names[operation["link"] % len(names)]

    def do_unlink(self, operation: Operation, facts: Facts) -> None:
        group = self.group(operation)
        group.unlink(self.names_in(group, operation))

    def do_move(self, operation: Operation, facts: Facts) -> None:
        group = self.group(operation)
        name = self.names_in(group, operation)
        group.links.move(
            name, self.group(operation, "to"), self.name(operation), self.link_properties(operation)
        )

    def do_copy(self, operation: Operation, facts: Facts) -> None:
        properties = h5p.create(h5p.OBJECT_COPY)
        properties.set_copy_object(operation["flags"])
        path, _ = self.pick(operation, object)
        if ON_DISK:
            # HDF5 2.0 copies an open dataset without the data in its sieve buffer.
            self.file(operation).flush()
        into = self.group(operation | {"file": operation["into"]})
        if self.files[FILES[operation["into"]]].mode == "r":
            raise LookupError("HDF5 2.0 writes to a file that is open for reading, and cannot close it then")
        h5o.copy(
            self.file(operation).id,
            path.encode(),
            into,
            self.name(operation),
            properties,
            self.link_properties(operation),
        )

    def do_exists(self, operation: Operation, facts: Facts) -> None:
        path = self.name(operation, "path")
        self.asked(facts, "object", lambda: h5o.exists_by_name(self.file(operation).id, path))
        self.asked(facts, "link", lambda: self.file(operation).id.links.exists(path))

    def do_comment(self, operation: Operation, facts: Facts) -> None:
        h5o.set_comment(self.any(operation), COMMENT if operation["any"] else b"", obj_name=b".")

    def do_commit(self, operation: Operation, facts: Facts) -> None:
        tid = self.type(operation)
        tid.commit(self.group(operation), self.name(operation), self.link_properties(operation))
        self.hold(operation, tid)
        facts["committed"] = tid.committed()

    # ---- attributes

    def do_attribute(self, operation: Operation, facts: Facts) -> None:
        one = self.any(operation)
        tid = self.type(operation)
        name = self.name(operation)
        shape = operation["shape"]
        space = (
            h5s.create(h5s.NULL if shape == "null" else h5s.SCALAR)
            if isinstance(shape, str)
            else h5s.create_simple(tuple(shape))
        )
        if operation.get("replace") and h5a.exists(one, name):
            h5a.delete(one, name)
        attribute = h5a.create(one, name, tid, space)
        if shape != "null" and not operation.get("unwritten"):
            value = self.values(tid, tuple(shape) if not isinstance(shape, str) else (), operation["seed"])
            attribute.write(value, mtype=memory_type(tid))

    def attribute_name(self, one: Any, operation: Operation) -> bytes:
        names: list[bytes] = []
        h5a.iterate(one, lambda name: names.append(name))
        if not names:
            raise LookupError("no attribute")
        return sorted(names)[operation["attribute"] % len(names)]

    def do_write_attribute(self, operation: Operation, facts: Facts) -> None:
        one = self.any(operation)
        attribute = h5a.open(one, self.attribute_name(one, operation))
        attribute.write(
            self.values(attribute.get_type(), attribute.shape, operation["seed"]),
            mtype=memory_type(attribute.get_type()),
        )

    def do_read_attribute(self, operation: Operation, facts: Facts) -> None:
        one = self.any(operation)
        attribute = h5a.open(one, self.attribute_name(one, operation))
        into = np.full(attribute.shape, 1, dtype=operation["as"])
        attribute.read(into, mtype=CONVERTED[operation["as"]])
        facts["value"] = plain(into)

    def do_rename_attribute(self, operation: Operation, facts: Facts) -> None:
        one = self.any(operation)
        h5a.rename(one, self.attribute_name(one, operation), self.name(operation))

    def do_delete_attribute(self, operation: Operation, facts: Facts) -> None:
        one = self.any(operation)
        h5a.delete(one, self.attribute_name(one, operation))

    # ---- datasets

    def do_dataset(self, operation: Operation, facts: Facts) -> None:
        tid = self.type(operation)
        shape = operation["shape"]
        if isinstance(shape, str):
            space = h5s.create(h5s.NULL if shape == "null" else h5s.SCALAR)
        else:
            most = tuple(h5s.UNLIMITED if n is None else n for n in operation["most"])
            space = h5s.create_simple(tuple(shape), most)
        properties = self.creation(operation, tid)
        created = h5d.create(
            self.group(operation),
            self.name(operation),
            tid,
            space,
            properties,
            self.link_properties(operation),
        )
        self.hold(operation, created)
        facts.update(self.object_facts(self.file(operation), created))

    def creation(self, operation: Operation, tid: h5t.TypeID) -> h5p.PropDCID:
        properties = h5p.create(h5p.DATASET_CREATE)
        if operation["layout"] == "chunked":
            properties.set_chunk(tuple(operation["chunk"]))
        else:
            properties.set_layout({"compact": h5d.COMPACT, "contiguous": h5d.CONTIGUOUS}[operation["layout"]])
        for name, *numbers in operation.get("filters", ()):
            if name == "deflate":
                properties.set_deflate(*numbers)
            elif name == "shuffle":
                properties.set_shuffle()
            elif name == "fletcher32":
                properties.set_fletcher32()
            elif name == "scaleoffset":
                properties.set_scaleoffset(*numbers)
            elif name == "nbit":
                properties.set_filter(h5z.FILTER_NBIT, h5z.FLAG_OPTIONAL, ())
            elif name == "lzf":
                properties.set_filter(LZF, h5z.FLAG_OPTIONAL, ())
            elif name == "missing":
                properties.set_filter(300, h5z.FLAG_OPTIONAL, tuple(numbers))
        if "fill" in operation:
            value = self.values(tid, (), operation["fill"])
            properties.set_fill_value(value)
        if "fill_time" in operation:
            properties.set_fill_time(operation["fill_time"])
        if "alloc_time" in operation:
            properties.set_alloc_time(operation["alloc_time"])
        if "attributes" in operation:
            properties.set_attr_creation_order(operation["attributes"])
        properties.set_obj_track_times(bool(operation.get("times")))
        return properties

    def do_write(self, operation: Operation, facts: Facts) -> None:
        one = self.dataset(operation)
        tid = one.get_type()
        if one.get_space().get_simple_extent_type() != h5s.SIMPLE:
            value = self.values(tid, one.shape or (), operation["seed"])
            one.write(h5s.ALL, h5s.ALL, value, mtype=memory_type(tid))
            return
        space = (
            self.space(one.shape, operation["selects"])
            if operation["selects"]
            else h5s.create_simple(one.shape)
        )
        n = int(space.get_select_npoints())
        facts["points"] = n
        if operation.get("as"):
            value = np.asarray(self.values(CONVERTED[operation["as"]], (n,), operation["seed"]))
            memory = CONVERTED[operation["as"]]
        elif operation.get("field") and tid.dtype.names:
            field = tid.dtype.names[operation["field"] % len(tid.dtype.names)]
            part = np.dtype([(field, tid.dtype[field])])
            memory = h5t.py_create(part)
            value = self.values(tid, (n,), operation["seed"])[[field]].astype(part)
        else:
            memory = memory_type(tid)
            value = self.values(tid, (n,), operation["seed"])
        lines = h5s.create_simple((n,))
        if operation.get("strided"):  # every second element of memory
            wide = np.zeros((2 * n, *value.shape[1:]), dtype=value.dtype)
            wide[::2] = value
            lines = h5s.create_simple((2 * n,))
            if n:
                lines.select_hyperslab((0,), (n,), (2,))
            else:
                lines.select_none()
            value = wide
        one.write(lines, space, np.ascontiguousarray(value), mtype=memory)

    def do_read(self, operation: Operation, facts: Facts) -> None:
        one = self.dataset(operation)
        tid = one.get_type()
        if one.get_space().get_simple_extent_type() != h5s.SIMPLE:
            facts["data"] = self.shown(self.file(operation), self.read(one, tid))
            return
        space = (
            self.space(one.shape, operation["selects"])
            if operation["selects"]
            else h5s.create_simple(one.shape)
        )
        n = int(space.get_select_npoints())
        facts["fill time"] = one.get_create_plist().get_fill_time()
        dtype = np.dtype(operation["as"]) if operation.get("as") else tid.dtype
        if operation.get("field") and dtype.names:
            field = dtype.names[operation["field"] % len(dtype.names)]
            dtype = np.dtype([(field, dtype[field])])
            memory = h5t.py_create(dtype)
        else:
            memory = CONVERTED[operation["as"]] if operation.get("as") else memory_type(tid)
        base, more = (dtype.subdtype[0], dtype.subdtype[1]) if dtype.subdtype else (dtype, ())
        wide = 2 if operation.get("strided") else 1
        value = np.zeros((wide * n, *more), dtype=base)
        lines = h5s.create_simple((wide * n,))
        if wide == 2:
            if n:
                lines.select_hyperslab((0,), (n,), (2,))
            else:
                lines.select_none()
        one.read(lines, space, value, mtype=memory)
        facts["data"] = self.shown(self.file(operation), value)

    def do_resize(self, operation: Operation, facts: Facts) -> None:
        one = self.dataset(operation)
        sizes = operation["sizes"]
        one.set_extent(tuple(sizes[d % len(sizes)] for d in range(len(one.shape))))
        facts["space"] = self.extent(one.get_space())

    def do_flush_dataset(self, operation: Operation, facts: Facts) -> None:
        self.dataset(operation).flush()

    def do_refresh_dataset(self, operation: Operation, facts: Facts) -> None:
        self.dataset(operation).refresh()

    def chunk_at(self, one: h5d.DatasetID, number: int) -> tuple[int, ...]:
        chunk = one.get_create_plist().get_chunk()
        at = []
        for size, length in zip(one.shape, chunk):
            count = max(1, -(-size // length))
            at.append(number % count * length)
            number //= count
        return tuple(at)

    def do_write_chunk(self, operation: Operation, facts: Facts) -> None:
        """The chunk after the filters that can be created here; the mask leaves the others out."""
        one = self.dataset(operation)
        properties = one.get_create_plist()
        chunk = properties.get_chunk()
        tid = one.get_type()
        if tid.dtype.hasobject:
            raise LookupError("its elements are the library's own")
        raw = np.zeros(int(np.prod(chunk)) * tid.get_size(), "u1")
        raw[:] = np.random.default_rng(operation["seed"]).integers(0, 4, raw.size)
        data, mask = raw.tobytes(), 0
        for k in range(properties.get_nfilters()):
            number, _, parameters, *_ = properties.get_filter(k)
            if number == h5z.FILTER_DEFLATE and operation["apply"] % 2:
                # With the filter's own level: HDF5 compresses the copy of a chunk in its cache again.
                data = zlib.compress(data, parameters[0])
            else:
                mask |= 1 << k
        if operation.get("damaged"):
            data = data[: len(data) // 2]
        if operation.get("no mask"):
            mask = 0
        self.write_direct_chunk(one, self.chunk_at(one, operation["chunk"]), data, mask)

    def write_direct_chunk(self, one: h5d.DatasetID, at: tuple[int, ...], data: bytes, mask: int) -> None:
        # For an open dataset's chunk HDF5 2.0 uses the mask that it already has, and writes another one into the file
        # only with a chunk of a different length.
        self.held.clear()
        if ON_DISK and one.get_create_plist().get_nfilters():
            one.write_direct_chunk(at, data + b"\0", mask)
        one.write_direct_chunk(at, data, mask)

    def do_copy_chunk(self, operation: Operation, facts: Facts) -> None:
        one = self.dataset(operation)
        if one.get_type().dtype.hasobject:
            raise LookupError("its elements are the library's own")
        facts["layout"], facts["alloc time"] = h5d.CHUNKED, one.get_create_plist().get_alloc_time()
        at = self.chunk_at(one, operation["chunk"])
        if one.get_chunk_info_by_coord(at).byte_offset is None:
            raise LookupError("no chunk was written here")
        # The mask from read_direct_chunk() is 0 for a chunk in HDF5's cache, whatever its real value is.
        mask, data = one.get_chunk_info_by_coord(at).filter_mask, one.read_direct_chunk(at)[1]
        self.write_direct_chunk(one, self.chunk_at(one, operation["to"]), bytes(data), mask)

    def do_chunk_info(self, operation: Operation, facts: Facts) -> None:
        one = self.dataset(operation)
        info = one.get_chunk_info_by_coord(self.chunk_at(one, operation["chunk"]))
        facts["own form"] = one.get_type().dtype.hasobject
        facts["fill time"] = one.get_create_plist().get_fill_time()
        facts["layout"], facts["alloc time"] = h5d.CHUNKED, one.get_create_plist().get_alloc_time()
        # If there is no chunk, HDF5 leaves the mask unset, and h5py returns uninitialised memory.
        absent = info.byte_offset is None
        facts["chunk"] = plain([info.chunk_offset, None if absent else info.filter_mask, info.size, absent])

    # ---- dimension scales

    def do_scale(self, operation: Operation, facts: Facts) -> None:
        h5ds.set_scale(self.dataset(operation), b"scale")

    def do_attach(self, operation: Operation, facts: Facts) -> None:
        one = self.dataset(operation)
        h5ds.attach_scale(one, self.dataset(operation, "scale"), operation["axis"] % max(1, len(one.shape)))
        facts["scales"] = h5ds.get_num_scales(one, 0)

    def do_detach(self, operation: Operation, facts: Facts) -> None:
        one = self.dataset(operation)
        h5ds.detach_scale(one, self.dataset(operation, "scale"), operation["axis"] % max(1, len(one.shape)))


def main(folder: str) -> int:
    runner = Runner(folder)
    for line in sys.stdin:
        print(json.dumps(runner.run(json.loads(line))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

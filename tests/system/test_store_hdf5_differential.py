"""Small programs of HDF5 operations with their files in the store and on disk: what each operation reports is the same.

Random ones by Hypothesis, and those in which a difference was found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from hdf5_differential import KNOWN, PLUGINS, Pair, Program
from hdf5_programs import programs

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
HDF5 = ".".join(h5py.version.hdf5_version.split(".")[:2])
pytestmark = pytest.mark.skipif(
    not (PLUGINS / "connector" / f"sonde-h5-{HDF5}.so").exists(),
    reason=f"no HDF5 connector for h5py's HDF5 {HDF5} was built",
)
PAGE = Path(__file__).resolve().parents[2] / "docs/reference/store-hdf5.md"
# Small caches make chunks leave memory in the middle of a program; a folder is a store with LMDB and POSIX files.
CAMPAIGNS = {
    "sonde embedded=memory": 2000,
    "sonde embedded=memory;chunk_cache=64": 2000,
    "sonde embedded={folder}/store;chunk_cache=64": 1000,
}
CRASHES_MAX = 0.02  # share of programs that HDF5 itself does not survive on disk


def compare(pair: Pair, count: int, **profile: Any) -> None:
    """Runs that many random programs."""
    chosen = settings(
        max_examples=count, database=None, deadline=None, phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck), **profile,
    )  # fmt: skip

    @seed(count)
    @chosen
    @given(programs())
    def one(program: Program) -> None:
        differences = pair.differences(program)
        assert not differences, "\n".join(map(str, differences[:5]))

    one()
    assert pair.crashes <= CRASHES_MAX * pair.programs


def test_random_programs_report_the_same_in_the_store_as_on_disk(tmp_path: Path) -> None:
    with Pair(tmp_path) as pair:
        compare(pair, 60)
    assert pair.programs >= 60


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("connector", "count"), CAMPAIGNS.items())
def test_thousands_of_random_programs_report_the_same(
    connector: str, count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Pair(tmp_path, connector.format(folder=tmp_path)) as pair:
        compare(pair, count)
    with capsys.disabled():
        print(
            f"\nHDF5 in the store against files, {connector}: {pair.programs} programs, {pair.operations} operations, "
            f"0 differences that are not in the docs, {pair.crashes} programs that HDF5 did not survive on disk; "
            f"known ones: {', '.join(f'{row} {n}' for row, n in sorted(pair.met.items()))}"
        )


def test_what_may_differ_is_in_the_docs_and_nothing_else_is() -> None:
    section = PAGE.read_text().split("\n## What differs\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \|", section, re.MULTILINE)
    assert rows[1:] == list(KNOWN)  # the first is the head


def create(**more: Any) -> dict[str, Any]:
    return {"op": "create", "file": 0, **more}


def dataset(**more: Any) -> dict[str, Any]:
    plain = {
        "op": "dataset",
        "in": 0,
        "name": "d",
        "type": "<i4",
        "layout": "chunked",
        "shape": [4],
        "chunk": [4],
    }
    most = more.get("shape", plain["shape"])
    return plain | {"most": most if isinstance(most, list) else []} | more


def attribute(name: str, **more: Any) -> dict[str, Any]:
    return {"op": "attribute", "of": 0, "name": name, "type": "<i4", "shape": "scalar", "seed": 1, **more}


def group(name: str, order: int = 0, where: int = 0, **more: Any) -> dict[str, Any]:
    return {"op": "group", "in": where, "name": name, "order": order, **more}


def write(**more: Any) -> dict[str, Any]:
    return {"op": "write", "of": 0, "selects": [], "seed": 7, **more}


DUMP = {"op": "dump"}
REOPEN = {"op": "reopen", "file": 0, "mode": "r+"}
EARLY, LATE = 1, 2  # as h5py.h5d has them
TRACKED, INDEXED = 1, 3
FOUND: dict[str, Program] = {
    "a chunk longer than an axis without elements": [
        create(),
        dataset(name="a", shape=[0], chunk=[10], filters=[["deflate", 1]]),
        dataset(name="b", shape=[0, 3], most=[4, 3], chunk=[10, 2]),
        dataset(name="c", shape=[2, 3], most=[4, 3], chunk=[10, 2]),
        dataset(name="d", shape=[0, 3], chunk=[10, 10]),
        {"op": "resize", "of": 1, "sizes": [4, 3]},
        write(of=1),
        DUMP,
    ],
    "an optional filter that is missing": [
        create(),
        dataset(filters=[["missing", 7], ["shuffle"], ["lzf"]]),
        write(),
        DUMP,
        REOPEN,
    ],
    "scaleoffset leaves the fill value out": [
        create(),
        dataset(name="f", type="<f8", filters=[["scaleoffset", 0, 2]], shape=[6], fill=1),
        dataset(name="i", filters=[["scaleoffset", 2, 0]], shape=[6], fill=4),
        dataset(name="n", filters=[["scaleoffset", 2, 3]], shape=[6]),
        write(of=0, selects=[{"kind": "slab", "numbers": [1, 1, 1]}]),
        write(of=1, selects=[{"kind": "slab", "numbers": [1, 1, 1]}]),
        write(of=2),
        DUMP,
        REOPEN,
    ],
    "elements of variable length are always filled": [
        create(),
        dataset(name="a", type="texts", fill_time=2),
        dataset(name="b", type="struct of text", fill_time=1),
        dataset(name="c", type="texts", fill_time=2, fill=8),
        REOPEN,
    ],
    "storage that is allocated with the dataset": [
        create(),
        dataset(name="a", layout="compact"),
        dataset(name="b", layout="contiguous", alloc_time=EARLY),
        dataset(name="c", layout="contiguous", alloc_time=LATE),
        dataset(name="d", layout="contiguous", shape="null", alloc_time=EARLY),
        dataset(name="e", layout="compact", alloc_time=LATE),
        DUMP,
    ],
    "the root group's creation properties, also of its copy": [
        create(track_order=True),
        group("g"),
        {"op": "copy", "of": 0, "in": 1, "into": 0, "flags": 0, "name": "copy"},
        DUMP,
        {"op": "dump", "file": 0},
    ],
    "creation order begins anew where nothing is left": [
        create(track_order=True),
        group("a", INDEXED),
        {"op": "unlink", "in": 0, "link": 0},
        group("b", INDEXED),
        attribute("p", of=1),
        {"op": "delete_attribute", "of": 1, "attribute": 0},
        attribute("q", of=1),
        DUMP,
        REOPEN,
    ],
    "a visit of objects in a circle of links": [
        create(),
        group("a"),
        group("b", where=1),
        {"op": "hard", "in": 2, "of": 0, "name": "up"},
        DUMP,
    ],
    "objects behind soft links that lead in a circle or nowhere": [
        create(),
        {"op": "soft", "in": 0, "name": "loop", "target": "loop"},
        {"op": "soft", "in": 0, "name": "dangling", "target": "nowhere/a"},
        *({"op": "exists", "path": path} for path in ("loop", "dangling", "loop/a", "nowhere", "nowhere/a")),
        DUMP,
    ],
    "links to where one is": [
        create(),
        group("a"),
        *({"op": "exists", "path": path} for path in (".", "/", "//", "a")),
    ],
    "comments in a file that is open for reading": [
        create(),
        REOPEN | {"mode": "r"},
        {"op": "comment", "of": 0, "any": False},
        {"op": "comment", "of": 0, "any": True},
        DUMP,
    ],
    "a direct chunk without its checksum, shorter than that": [
        create(),
        dataset(type="<i1", shape=[1], chunk=[1], filters=[["fletcher32"]]),
        {"op": "write_chunk", "of": 0, "chunk": 0, "seed": 0, "apply": 0},
        DUMP,
    ],
    "slashes in the target of a soft link": [
        create(),
        {"op": "soft", "in": 0, "name": "link", "target": "//a///b/"},
        {"op": "soft", "in": 0, "name": "root", "target": "//"},
        DUMP,
    ],
    "filters of what cannot have any": [
        create(),
        dataset(name="a", layout="contiguous", shape="scalar", filters=[["deflate", 1], ["shuffle"]]),
        dataset(name="b", layout="contiguous", shape="scalar", filters=[["fletcher32"]]),
        dataset(name="c", layout="contiguous", filters=[["deflate", 1]]),
        dataset(name="d", layout="contiguous", type="texts", filters=[["lzf"]]),
        dataset(name="e", type="texts", filters=[["fletcher32"]]),
        REOPEN,
    ],
    "a chunk that is asked for outside of the extent": [
        create(),
        dataset(shape=[7, 0], most=[None, 0], chunk=[2, 5]),
        {"op": "chunk_info", "of": 0, "chunk": 6},
    ],
    "an attribute that was not written, as any type": [
        create(),
        attribute("p", type="void", unwritten=True),
        {"op": "read_attribute", "of": 0, "attribute": 0, "as": "i4"},
        REOPEN,
    ],
    "the size of an attribute with texts": [create(), attribute("p", type="struct of text"), DUMP],
    "a group on the way has its links as the one above": [
        create(track_order=True),
        group("a"),
        {"op": "move", "in": 0, "link": 0, "to": 0, "name": "new/deep", "between": True},
        DUMP,
    ],
    "a type of HDF5's own is not committed": [
        create(),
        {"op": "commit", "in": 0, "name": "t", "type": "region"},
        dataset(type="region"),
        DUMP,
    ],
    "no elements, and no way to convert them": [
        create(),
        dataset(shape=[0], most=[None], type="opaque"),
        {"op": "read", "of": 0, "selects": [], "as": "f8"},
        {"op": "write", "of": 0, "selects": [], "as": "f8", "seed": 1},
    ],
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with Pair(tmp_path_factory.mktemp("found")) as both:
        yield both


@pytest.mark.parametrize("name", FOUND)
def test_difference_that_was_found(name: str, pair: Pair) -> None:
    assert not pair.differences(FOUND[name])
    assert pair.on_disk
    # Each operation came as far as HDF5.
    errors = [
        facts.get("# message")
        for facts in pair.on_disk
        if facts.get("error") in ("LookupError", "AttributeError")
    ]
    assert not errors

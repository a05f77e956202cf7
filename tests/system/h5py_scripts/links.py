"""Groups and links: made, moved, copied, removed, listed and followed."""

import sys

import h5py
import numpy as np

path = sys.argv[1]
with h5py.File(path + ".other", "w") as other:
    other["there/data"] = np.arange(7)

with h5py.File(path, "w") as f:
    f["a/b/c"] = np.arange(4)
    f["hard"] = f["a/b"]
    f["soft"] = h5py.SoftLink("/a/b/c")
    f["a/relative"] = h5py.SoftLink("b/c")
    f["dangling"] = h5py.SoftLink("/nowhere")
    f["external"] = h5py.ExternalLink(path + ".other", "/there/data")
    f["lost"] = h5py.ExternalLink(path + ".nowhere", "/x")
    f["cycle/self"] = f["/"]
    assert (f["external"][:] == np.arange(7)).all()
    assert f["hard"] == f["a/b"]
    assert f["soft"].name == "/soft"
    f.move("hard", "moved/deep/inside")
    f.copy("a", "copy of a")
    f.copy(f["a"], "expanded", expand_soft=True)
    f.copy("a", "shallow", shallow=True)
    f.copy("external", "copied from outside", expand_external=True)
    ordered = f.create_group("ordered", track_order=True)
    for name in ["zeta", "alpha", "mid", "beta"]:
        ordered.create_group(name)
    assert list(ordered) == ["zeta", "alpha", "mid", "beta"]
    assert list(reversed(ordered)) == ["beta", "mid", "alpha", "zeta"]
    f["many"] = f.create_group(None)
    for k in range(300):
        f[f"many/{k:04d}"] = k
    del f["many/0100"]
    f["ünïcode/ключ"] = 1
    f["n" * 600] = 2
    removed = f.create_dataset("removed", data=[1, 2, 3])
    del f["removed"]
    assert removed[1] == 2  # what is open stays
    names = []
    f.visit(names.append)
    assert "a/b/c" in names
    assert "removed" not in names
    links = []
    f["a"].visititems_links(lambda name, link: links.append((name, type(link).__name__)))
    assert ("relative", "SoftLink") in links
    f.require_group("a/b").require_dataset("c", (4,), f["a/b/c"].dtype)
    f["a/loop"] = h5py.SoftLink("/a/loop")
    for bad in ("nope", "a/nope", "dangling", "lost", "a/loop"):
        try:
            f[bad]
        except (KeyError, OSError, RuntimeError):
            continue
        raise AssertionError(bad)
    del f["a/loop"]

with h5py.File(path, "a") as f:
    assert len(f["many"]) == 299
    assert "a/b/c" in f
    assert "a/b/d" not in f
    assert f.get("nothing", 5) == 5
    assert f["a/b/c"].parent == f["a/b"]
    assert f["moved/deep/inside/c"] == f["a/b/c"]

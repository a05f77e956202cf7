"""A backend from outside the tree: built as the page says, tested, measured, served."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("sonde._store", reason="the store is not built")

from store_service import serving

EXAMPLE = Path(__file__).parents[2] / "examples" / "store-backend" / "rot13.cpp"


def build(sonde, source: Path, name: str) -> Path:
    flags = sonde("store", "conformance", "--flags").expect(0).out.split()
    out = sonde.cwd / name
    compiler = shutil.which("c++") or pytest.skip("no C++ compiler")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", str(source), *flags, "-o", str(out)], check=True, timeout=200
    )
    return out


def test_the_example_keeps_every_promise_and_is_served(sonde):
    module = build(sonde, EXAMPLE, "rot13.so")
    told = sonde("store", "conformance", module, "--json").expect(0).json
    assert len(told["checks"]) > 10
    assert all(check["passed"] for check in told["checks"])
    assert {rate["what"] for rate in told["rates"]} == {"write", "read"}
    with serving(sonde, "--module", module, "--backend", "kv=rot13") as service:
        (sonde.cwd / "text").write_text("Uryyb")
        where = ("--server", service.address)
        sonde("store", "put", "kv:s/k", "text", *where).expect(0)
        assert sonde("store", "get", "kv:s/k", *where).expect(0).out == "Uryyb"


def test_a_broken_promise_is_named(sonde):
    source = sonde.cwd / "broken.cpp"
    text = EXAMPLE.read_text()
    assert "pairs_ = before;" in text
    source.write_text(text.replace("pairs_ = before;", ""))
    module = build(sonde, source, "broken.so")
    ran = sonde("store", "conformance", module).expect(1)
    assert "breaks" in ran.out
    assert "undo" in ran.out


def test_what_is_no_module_is_an_error(sonde):
    (sonde.cwd / "text.so").write_text("no library")
    assert "cannot load the module" in sonde("store", "conformance", "./text.so").expect(3).err
    assert "no module was named" in sonde("store", "conformance").expect(2).err

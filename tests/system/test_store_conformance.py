"""Backends and transports from outside the tree: built as the page says, tested, measured, served."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("sonde._store", reason="the store is not built")

from sonde_shell import PROGRAM
from store_service import build_module, plain, serving

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "store-backend" / "rot13.cpp"
UNIX = ROOT / "examples" / "store-transport" / "unix.cpp"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", (ROOT / "docs/howto/store-module.md").read_text(), re.S | re.M)


def test_the_example_keeps_every_promise_and_is_served(sonde):
    module = build_module(sonde, EXAMPLE, "rot13.so")
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
    module = build_module(sonde, source, "broken.so")
    ran = sonde("store", "conformance", module).expect(1)
    assert "breaks" in ran.out
    assert "undo" in ran.out
    told = sonde("store", "conformance", module, "--json").expect(1).json
    seen = [check["message"] for check in told["checks"] if not check["passed"]]
    assert all(seen)
    shown = plain(ran.out)
    assert all(plain(message) in shown for message in seen)


def test_why_a_backend_does_not_open_is_shown(sonde):
    source = sonde.cwd / "closed.cpp"
    text = EXAMPLE.read_text()
    opens = 'if (auto ok = no_more_settings(settings, "rot13", "none"); !ok) return ok.error();'
    assert opens in text
    refuses = 'if (settings.empty()) return Error{"store.bad_setting", "it needs path=DIR", ""};'
    source.write_text(text.replace(opens, refuses))
    ran = sonde("store", "conformance", build_module(sonde, source, "closed.so")).expect(1)
    assert "kv=rot13: " in ran.out
    assert "it does not open: it needs path=DIR" in plain(ran.out)


def test_what_is_no_module_is_an_error(sonde):
    (sonde.cwd / "text.so").write_text("no library")
    assert "cannot load the module" in sonde("store", "conformance", "./text.so").expect(3).err
    assert "no module was named" in sonde("store", "conformance").expect(2).err


def test_every_block_of_the_page_works(sonde):
    assert [kind for kind, _ in BLOCKS] == ["sh", "serve", "sh", "serve", "sh"]
    shutil.which("g++") or pytest.skip("no g++")
    for example in (EXAMPLE, UNIX):
        shutil.copy(example, sonde.cwd)
    env = {"SONDE_STORE_MODULES": str(sonde.cwd), "PATH": f"{PROGRAM.parent}:{sonde.env['PATH']}"}
    said = ""
    with ExitStack() as servers:
        for kind, block in BLOCKS:
            if kind == "serve":
                service = servers.enter_context(serving(sonde, *block.split()[3:], **env))
                env["SONDE_STORE_SERVERS"] = service.address
                continue
            ran = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block],
                cwd=sonde.cwd,
                env=sonde.env | env,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            assert ran.returncode == 0, f"{block}\n{ran.stdout}\n{ran.stderr}"
            said += ran.stdout
    assert said.count("keeps all of") == 2
    assert "hello" in said
    assert "unix" in said


def test_a_transport_from_outside_is_known_to_clients_and_measured(sonde):
    module = build_module(sonde, UNIX, "sonde-store-unix.so")
    told = sonde("store", "conformance", module, "--json").expect(0).json
    assert {check["name"] for check in told["checks"]} >= {"rubbish", "peer-killed", "idle-peer-killed"}
    assert {rate["what"] for rate in told["rates"]} == {"write", "write over tcp"}
    folder = {"SONDE_STORE_MODULES": f"nowhere:{sonde.cwd}"}
    (sonde.cwd / "large").write_bytes(os.urandom(3_000_000))
    with serving(sonde, "--memory", **folder) as service:
        where = ("--server", service.address, "--transport", "unix")
        sonde("store", "put", "object:s/o", "large", *where, **folder).expect(0)
        sonde("store", "get", "object:s/o", "again", *where, **folder).expect(0)
        assert (sonde.cwd / "again").read_bytes() == (sonde.cwd / "large").read_bytes()
        assert "unix" in sonde("store", "status", *where, **folder).expect(0).out
        nobody = sonde("store", "status", *where).expect(2)  # this one does not know the folder
        assert "there is no transport 'unix'" in nobody.said


def test_why_a_module_of_the_folder_was_not_loaded_is_reported(sonde):
    (sonde.cwd / "sonde-store-text.so").write_text("no library")
    with serving(sonde, "--memory") as service:
        words = ("--transport", "text", "--server", service.address)
        told = sonde("store", "status", *words, SONDE_STORE_MODULES=str(sonde.cwd)).expect(3)
    assert "cannot load the module" in told.said
    assert "sonde-store-text.so" in told.said

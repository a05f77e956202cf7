"""Modules that throw, and modules that do not load: who asks is told which, why, and what to do; the server lives."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("sonde._store", reason="the store is not built")

from sonde._store import load_module

import sonde.store as sonde_store
from sonde.core.diagnosis import POOR, Here
from sonde.store import run, run_doctor
from sonde.store.errors import BatchError, StoreError
from store_service import build_module, serving

# Keys in a map that is changed in place, so that only roll_back() undoes a batch in which "boom" was thrown.
THROWS = """
#include <map>
#include <stdexcept>

#include "store/module.hpp"

using namespace sonde;
using namespace sonde::store;

class Throws final : public Backend {
 public:
  Caps caps() const override { return {Role::kv, false, true, true}; }
  void execute(std::span<const Op> ops, Safety, std::span<Outcome> outcomes, Arena& arena) override {
    before_ = pairs_;
    for (std::size_t k = 0; k < ops.size(); ++k) {
      const std::string key(ops[k].key);
      if (key == "boom") throw std::runtime_error("page 7 is upside down");
      if (ops[k].code == Code::kv_put) {
        pairs_[key] = text_of(ops[k].data);
        outcomes[k] = {Status::ok, 0, 0, {}};
      } else {
        outcomes[k] = {Status::not_found, 0, 0, {}};
        if (pairs_.count(key)) outcomes[k] = give(bytes_of(pairs_[key]), ops[k], arena);
      }
    }
  }
  void roll_back() override { pairs_ = before_; }
  Result<void> sync(bool) override { return {}; }
  std::string describe() const override { return "a map"; }

 private:
  std::map<std::string, std::string> pairs_, before_;
};

Result<std::unique_ptr<Backend>> open_it(Role, const Settings& settings) {
  if (!settings.empty()) throw std::runtime_error("settings frighten it");
  return std::unique_ptr<Backend>(std::make_unique<Throws>());
}

const BackendEntry backends[] = {{"throws", 1u << static_cast<unsigned>(Role::kv), open_it}};
const Module module{module_abi, "throws", backends, {}};

extern "C" const Module* sonde_store_module() { return &module; }
"""


def build(sonde, text: str, name: str) -> Path:
    source = sonde.cwd / f"{name}.cpp"
    source.write_text(text)
    return build_module(sonde, source, name)


def harms_its_batch_only(client) -> None:
    client.put("s", "kept", b"old")
    batch = client.batch()
    for key in ("kept", "new", "boom", "last"):
        batch.put("s", key, b"value")
    batch.run()
    assert [batch[k].status.name for k in range(4)] == ["aborted", "aborted", "internal", "aborted"]
    with pytest.raises(BatchError) as caught:
        batch.check()
    assert caught.value.code == "store.internal"
    assert "throws.so threw an exception: page 7 is upside down" in caught.value.what
    assert "the backend throws of the module" in caught.value.what
    assert client.get("s", "kept") == b"old"
    with pytest.raises(KeyError):
        client.get("s", "new")
    room = bytearray(8)
    reading = client.batch()
    reading.get("s", "boom", room)
    reading.run()
    assert reading[0].status.name == "internal"
    assert room == bytearray(8)
    with pytest.raises(StoreError, match="upside down"):
        client.put("s", "boom", b"", safety="storage")


def test_a_backend_that_throws_harms_its_batch_only(sonde):
    module = build(sonde, THROWS, "throws.so")
    with serving(sonde, "--module", module, "--backend", "kv=throws") as service:
        with sonde_store.connect(service.address) as client:
            harms_its_batch_only(client)
        where = ("--server", service.address)
        (sonde.cwd / "text").write_text("x")
        ran = sonde("store", "put", "kv:s/boom", "text", *where).expect(3)
        assert "page 7 is upside down" in ran.said
        assert "report it to its author" in ran.said
        status = sonde("store", "status", "--json", *where).expect(0).out
        assert "kv.put of 'boom' in 's': the backend throws of the module" in status
        assert "page 7 is upside down" in status
        assert service.process.poll() is None
    ran = sonde("store", "serve", "--module", module, "--backend", "kv=throws,a=1").expect(3)
    assert "throw an exception" not in ran.said
    assert "threw an exception: settings frighten it" in ran.said


def test_a_backend_that_throws_in_this_process_harms_its_batch_only(sonde):
    load_module(str(build(sonde, THROWS, "throws.so")))
    with sonde_store.embedded(kv="throws") as client:
        harms_its_batch_only(client)


def broken_folder(sonde) -> tuple[dict[str, str], dict[str, str]]:
    """Modules none of which loads, and what is to be said of each."""
    folder = sonde.cwd / "modules"
    folder.mkdir()
    (folder / "sonde-store-text.so").write_text("no library")
    (folder / "sonde-store-gone.so").symlink_to("nowhere.so")
    build(sonde, "int nothing = 1;", "bare.so").rename(folder / "sonde-store-bare.so")
    old = THROWS.replace("{module_abi,", "{module_abi - 1,")
    build(sonde, old, "old.so").rename(folder / "sonde-store-old.so")
    return {"SONDE_STORE_MODULES": f"{folder}:{sonde.cwd}/absent:{folder}/sonde-store-text.so"}, {
        "sonde-store-text.so": "file too short",
        "sonde-store-gone.so": "No such file",
        "sonde-store-bare.so": "it has no symbol sonde_store_module",
        "sonde-store-old.so": "it was built for interface 1, this is 2",
        "absent": "No such file",
        "SONDE_STORE_MODULES names": "Not a directory",
    }


def test_modules_that_do_not_load_are_reported_of(sonde):
    env, reasons = broken_folder(sonde)
    has = subprocess.run(
        [str(run.program()), "--list"],
        env=sonde.env | env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    broken = json.loads(has.stdout)["broken_modules"]
    for name, why in reasons.items():
        assert [one for one in broken if name in one["what"] and why in one["what"] and one["hint"]], (
            name,
            broken,
        )
    with serving(sonde, "--memory", **env) as service:
        ended = service.end()
    for name, why in reasons.items():
        assert name in ended.said
        assert why in ended.said
    assert "build it again with this version's headers" in ended.said

    ran = sonde("store", "serve", "--backend", "kv=old", "--listen", "127.0.0.1:0", **env).expect(3)
    assert "there is no backend 'old' for the role kv: cannot load the module" in ran.said
    assert "it was built for interface 1, this is 2" in ran.said
    ran = sonde("store", "status", "--transport", "bare", "--server", "127.0.0.1:1", **env)
    assert ran.code == 3


def test_the_doctor_names_modules_that_do_not_load(sonde, monkeypatch):
    env, reasons = broken_folder(sonde)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    answer = run_doctor.store(Here())
    assert answer.mark == POOR
    assert answer.values["works"]
    for name, why in reasons.items():
        assert name in answer.text
        assert why in answer.text
    assert "build it again" in answer.advice

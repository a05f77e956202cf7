"""What libraries export, held against maps: real libraries of this machine, and one of the test's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sonde.core import launch
from sonde.core.errors import UsageError
from sonde.io.maps import run_exports, run_maps
from sonde.io.maps.layers import parse

FAKE = Path(__file__).parents[3] / "data" / "io" / "fake.c"
HEAD = 'layer = "fake"\nlibraries = ["libfake.so"]\n[[functions]]\nnames = '


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("library") / "libfake.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(path), str(FAKE)], check=True)
    return path


def test_functions_are_those_that_nm_tells(library):
    told = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
    )
    lines = [line.split() for line in told.stdout.splitlines()]
    assert run_exports.functions(library) == {name: int(at, 16) for at, kind, name in lines if kind == "T"}


def test_the_c_library_has_what_the_map_of_posix_names():
    posix = next(layer for layer in run_maps.shipped() if layer.name == "posix")
    libc = next(path for path in run_exports.of_machine([posix]) if path.name == "libc.so.6")
    (found,) = run_exports.found_in([posix], [libc])
    assert {"open", "pwrite64", "fsync", "fwrite"} <= set(found.names)
    assert len(found.missing) < len(found.names) / 4


def test_sonde_s_own_libraries_are_of_this_machine():
    library = launch.libexec().parent / "lib" / "libsonde-store.so"
    if not library.exists():
        pytest.skip("the store is not built")
    store = [layer for layer in run_maps.shipped() if layer.name.startswith("store")]
    found = run_exports.found_in(store, run_exports.of_machine(store))
    assert {one.library for one in found} == {library.resolve()}
    assert [one.missing for one in found] == [()] * len(store)


def test_names_and_patterns_are_found_and_what_is_missing_names_the_nearest(library):
    layer = parse(HEAD + '["fake_write", "fake_wirte", "fake_c*"]\n', "own.toml")
    (found,) = run_exports.found_in([layer], [library])
    assert found.names == ("fake_call", "fake_complex", "fake_write")
    assert found.missing == ("fake_wirte",)
    assert run_exports.nowhere([found]) == {"fake_wirte": " (nearest: fake_write)"}


def test_a_name_that_another_library_of_the_layer_has_is_not_lost(library, tmp_path):
    layer = parse(HEAD.replace('"libfake.so"', '"lib*.so*"') + '["fake_write", "puts"]\n', "own.toml")
    libc = next(path for path in run_exports.of_program(library) if path.name == "libc.so.6")
    found = run_exports.found_in([layer], [library, libc])
    assert [one.missing for one in found] == [("puts",), ("fake_write",)]
    assert run_exports.nowhere(found) == {}


def test_a_layer_of_which_nothing_is_there_is_not_held_against_its_map(library):
    layer = parse(HEAD.replace("libfake.so", "libother.so") + '["fake_write"]\n', "own.toml")
    assert run_exports.found_in([layer], [library]) == []
    assert run_exports.nowhere([]) == {}


def test_a_map_of_which_every_name_is_misspelt_is_reported(library):
    layer = parse(HEAD + '["fake_wirte"]\n', "own.toml")
    assert run_exports.nowhere(run_exports.found_in([layer], [library])) == {
        "fake_wirte": " (nearest: fake_write)"
    }


def test_a_layer_whose_library_is_nowhere_is_reported(library):
    layer = parse(HEAD.replace("libfake.so", "libfaek.so*") + '["fake_write"]\n', "own.toml")
    assert run_exports.without_library([layer], [library]) == {"fake": "'libfaek.so*' (nearest: libfake.so)"}
    assert run_exports.without_library([parse(HEAD + '["fake_write"]\n', "own.toml")], [library]) == {}


def test_why_nothing_of_a_layer_was_found(library, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    why = [
        run_exports.why_nothing(parse(HEAD.replace("libfake.so", name) + f'["{function}"]\n', "own.toml"))
        for name, function in (
            ("libnowhere.so", "a"),
            ("libfake.so", "fake_wirte"),
            ("libfake.so", "fake_write"),
        )
    ]
    assert why[0].startswith("no library in the usual places here has the name 'libnowhere.so'")
    assert why[1] == f"{library} exports none of it, as 'fake_wirte' (nearest: fake_write)"
    assert why[2] == "no program has loaded libfake.so"


@pytest.mark.parametrize("content", [b"", b"no library", b"\x7fELF" + b"\xff" * 80])
def test_what_is_no_library_is_refused(tmp_path, content):
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(UsageError) as told:
        run_exports.functions(path)
    assert told.value.code == "io.not_a_library"
    with pytest.raises(UsageError, match="cannot read"):
        run_exports.functions(tmp_path / "nowhere")

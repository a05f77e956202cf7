"""The program that runs the fuzzers: what it makes of what they print, and the words that it takes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import fuzz_hunt
import fuzz_parsers
import pytest
from fuzz_mutations import MOST_BYTES, drawn, spoiled


def load() -> ModuleType:
    """By its path: there is another program of this name (tests/native/run.py)."""
    spec = importlib.util.spec_from_file_location("fuzz_run", Path(__file__).with_name("run.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_run"] = module
    spec.loader.exec_module(module)
    return module


run = load()
LLVM = run.Harness("bus-idl", Path("/nowhere/bus-idl"))
PYTHON = run.Harness("py-io-ior")


@pytest.mark.parametrize(
    ("status", "said", "wrong", "inputs"),
    [
        (0, "#4\tDONE\nstat::number_of_executed_units: 123\n", "", 123),
        (77, "#7\tNEW\nSUMMARY: x\nTest unit written to f/bus-idl-crash-12\n", "crashes", 7),
        (77, "#8\tpulse\nERROR: LeakSanitizer\nTest unit written to f/bus-idl-leak-12\n", "leaks", 8),
        (77, "ERROR: LeakSanitizer: detected memory leaks\n", "leaks", 0),
        (70, "#9\tNEW\nTest unit written to f/bus-idl-timeout-12\n", "time-outs", 9),
        (71, "Test unit written to f/bus-idl-oom-12\n", "crashes", 0),
        (127, "error while loading shared libraries\n", "crashes", 0),
        (None, "#10\tNEW\n", "time-outs", 10),
    ],
)
def test_what_libfuzzer_prints_is_counted(status: int | None, said: str, wrong: str, inputs: int):
    ended = run.judged(LLVM, status, said, 1.0)
    assert (ended.wrong, ended.inputs) == (wrong, inputs)
    assert bool(ended.said) == bool(wrong)


@pytest.mark.parametrize(
    ("status", "said", "wrong"),
    [
        (0, "inputs 12\n", ""),
        (1, "inputs 12\nio-ior: KeyError: 'a' at b'', 0 bytes\n", "crashes"),
        (1, "inputs 12\nio-ior: it hangs at b'', 0 bytes\n", "time-outs"),
        (-11, "", "crashes"),
    ],
)
def test_what_a_hunt_prints_is_counted(status: int, said: str, wrong: str):
    ended = run.judged(PYTHON, status, said, 1.0)
    assert (ended.wrong, ended.inputs) == (wrong, 12 if said else 0)


def test_the_table_has_a_row_a_harness_and_a_mark_where_something_was_found():
    ended = [
        run.judged(LLVM, 0, "stat::number_of_executed_units: 5\n", 2.0),
        run.judged(PYTHON, 1, "inputs 3\n", 1.0),
    ]
    assert run.table(ended).splitlines() == [
        "| harness   | inputs | crashes | leaks | time-outs | s |",
        "|-----------|-------:|--------:|------:|----------:|--:|",
        "| bus-idl   |      5 |       0 |     0 |         0 | 2 |",
        "| py-io-ior |      3 |       1 |     0 |         0 | 1 |",
    ]


def test_a_harness_that_is_not_there_is_named_with_those_that_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as left:
        run.main(["--build", str(tmp_path), "py-io-iro"])
    assert left.value.code == 2
    assert "no harness py-io-iro; there are: py-bus-keys, py-bus-words, " in capsys.readouterr().err


def test_without_its_programs_it_fails_where_all_are_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SONDE_TEST_REQUIRE", "all")
    assert run.main(["--build", str(tmp_path), "--list"]) == 1
    monkeypatch.delenv("SONDE_TEST_REQUIRE")
    assert run.main(["--build", str(tmp_path), "--list"]) == 0


def test_a_parser_that_breaks_its_promise_ends_the_hunt_with_a_short_input():
    def fragile(data: bytes) -> None:
        if b"[" in data:
            raise KeyError("bracket")

    one = fuzz_parsers.Parser("fragile", fragile, lambda: [b"sound"])
    done, wrong = fuzz_hunt.hunt(one, 60, 100_000, 1)
    assert wrong is not None
    assert b"[" in wrong
    assert done < 100_000
    assert fuzz_hunt.hunt(one, 60, done - 1, 1) == (done - 1, None)


def test_each_harness_of_the_build_has_its_source_and_each_source_its_harness():
    native = Path(__file__).parents[2] / "native"
    listed = (native / "cmake/SondeFuzz.cmake").read_text()
    sources = {
        str(path.relative_to(native))
        for path in native.glob("*/fuzz/*.cpp")
        if "LLVMFuzzerTestOneInput" in path.read_text()
    }
    assert sources
    assert not [source for source in sources if source not in listed]
    for path in Path(__file__).parents[1].joinpath("data/fuzz").iterdir():
        assert (
            path.is_file()
            or path.name in fuzz_parsers.PARSERS
            or f"sonde_fuzzer({path.name} " in listed
            or (path.name.startswith("power-"))
        ), f"{path} belongs to no fuzzer"


def test_one_input_is_read_again_by_its_file(tmp_path: Path):
    (tmp_path / "input").write_bytes(b"1h")
    script = str(Path(__file__).with_name("fuzz_hunt.py"))
    words = [sys.executable, script, "core-units", "--input", str(tmp_path / "input")]
    again = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (again.returncode, again.stdout) == (0, "inputs 1\n"), again.stderr


def test_damage_is_bounded_and_the_same_for_the_same_steps():
    import random

    for seed in range(50):
        steps = drawn(random.Random(seed))
        out = spoiled(b"sound input" * 10, steps)
        assert out == spoiled(b"sound input" * 10, steps)
        assert len(out) <= MOST_BYTES

"""What damaged inputs found, where an example alone does not show that it is mended (tests/data/fuzz has those)."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from sonde.core import config, seal
from sonde.core.blocks import BlockFile
from sonde.core.errors import DataError, UsageError
from sonde.io import ior_output, run_close, run_elf, servers
from sonde.net import convert
from sonde.power import workflow

FOUND = Path(__file__).parents[1] / "data/fuzz"


@pytest.mark.parametrize("text", ["a = " + "1" * 5000, "a = 0x" + "f" * 5000, "a = " + "[" * 5000])
def test_toml_that_python_cannot_hold_is_a_bad_config(text: str, tmp_path: Path):
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as refused:
        config.read(file)
    assert refused.value.code == "core.bad_config"
    with pytest.raises(UsageError) as refused:
        workflow.read(text)
    assert refused.value.code == "power.bad_toml"


def test_toml_numbers_of_64_bits_are_taken():
    assert config.toml(f"a = {2**63 - 1}\nb = {-(2**63)}") == {"a": 2**63 - 1, "b": -(2**63)}
    with pytest.raises(ValueError, match="a whole number of 64 bits"):
        config.toml(f"a = [{{b = {2**63}}}]")


def test_symbols_that_share_one_long_name_cost_no_memory():
    assert run_elf.read_object(FOUND / "io-program/symbols-share-a-long-name") is None
    found = run_elf.read_object(FOUND / "io-program/one-function")
    assert found is not None
    assert [one.name for one in found.functions] == ["main"]


def test_a_table_of_symbols_that_grows_without_end_is_read_to_a_limit(monkeypatch: pytest.MonkeyPatch):
    asked = []

    class Decompressor:
        def decompress(self, data: bytes, most: int) -> bytes:
            asked.append(most)
            return b"no ELF file"

    class Section:
        def data(self) -> bytes:
            return lzma.compress(bytes(1000))

    class Elf:
        def get_section_by_name(self, name: str) -> Any:
            return Section() if name == ".gnu_debugdata" else None

    monkeypatch.setattr(run_elf.lzma, "LZMADecompressor", Decompressor)
    with pytest.raises(Exception, match="Magic number does not match"):
        run_elf._debug_functions(Elf())  # type: ignore[arg-type]
    assert asked == [run_elf._MOST_DEBUG_BYTES]


def whole() -> dict[str, Any]:
    one = {
        "name": "h",
        "answered": 1,
        "bytes": [1, 2],
        "sizes": [[4096, [1, 2]]],
        "operations": {"WRITE": [3, 1.5, 1, None]},
    }
    return {"system": "GlusterFS", "mounts": ["/mnt"], "cwd": "/", "servers": [one]}


def test_counters_that_were_written_are_taken():
    assert servers.is_whole(whole())
    assert servers.tables_of(whole(), ["/mnt/a"])["server_calls"].tolist() == [[3]]
    assert servers.is_whole({"servers": []})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", 5),
        ("answered", 2),
        ("bytes", [1]),
        ("bytes", [1, -1]),
        ("bytes", [1, 2**63]),
        ("sizes", [[4096, [1]]]),
        ("sizes", [["4096", [1, 2]]]),
        ("sizes", [[4096]]),
        ("operations", {"WRITE": [3]}),
        ("operations", {"WRITE": [1.5, 1, 1, 1]}),
        ("operations", {"WRITE": [3, "x", 1, 1]}),
        ("operations", []),
    ],
)
def test_counters_that_nobody_wrote_so_are_left_out_with_a_warning(key: str, value: Any, tmp_path: Path):
    told = whole()
    told["servers"][0][key] = value
    assert not servers.is_whole(told)
    (tmp_path / servers.FILE).write_text(json.dumps(told))
    plan, warnings = run_close.close(tmp_path)
    assert "servers" not in plan
    assert [one.code for one in warnings] == ["io.no_server_counters"]


@pytest.mark.parametrize(
    "words", ["[]", "5", "[" * 5000, '{"form": "clustbench-v1", "files": [1]}', '{"form": "clustbench-v1"}']
)
def test_what_a_dataset_says_of_its_files_is_not_believed(words: str):
    import xarray as xr

    tree = xr.DataTree()
    tree.attrs[convert.STORED] = words
    assert convert._stored(tree, "clustbench-v1") == {}


def test_a_long_line_of_a_benchmark_takes_no_time_that_grows_with_its_square():
    """With the expression of before, a line of 64 KiB took minutes: the run's own limit of time ends it then."""
    long = "a" + " " * (1 << 20) + "\nBTIO -- " + "a " * (1 << 18) + "\n" + "\n" * (1 << 18)
    with pytest.raises(DataError):
        ior_output.parse("access bw(MiB/s) \n" + long)
    with pytest.raises(DataError):
        ior_output.parse(long)
    assert ior_output.parse("BTIO -- statistics\n" + long)["bytes"] is None


def test_a_plan_that_does_not_fit_its_blocks_is_told_of_the_folder(tmp_path: Path):
    class Room:
        def layout(self, plan: Any, files: list[BlockFile], part: str) -> Any:
            return plan["ranks"] + 1

    for plan in ({}, {"ranks": "two"}, {"ranks": []}):
        with pytest.raises(DataError) as refused, seal._fitting(tmp_path, []):
            Room().layout(plan, [], "")
        assert refused.value.code == "core.not_a_run"
        assert str(tmp_path) in refused.value.what

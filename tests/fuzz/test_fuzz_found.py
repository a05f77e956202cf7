"""What damaged inputs found, where an example alone does not show that it is mended (tests/data/fuzz has those)."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from sonde.cluster import run_state
from sonde.core import config, lines, seal
from sonde.core.blocks import BlockFile
from sonde.core.errors import DataError, SondeError, UsageError
from sonde.core.launch import cpus
from sonde.io.maps import run_elf
from sonde.io.record import run_gluster, run_probe
from sonde.io.study import ior_output, run_limits
from sonde.io.trace import run_close, servers
from sonde.net import convert, export
from sonde.power.jobs import run_job_folder
from sonde.power.jobs.run_jobs_store import Store
from sonde.power.monitor import run_http
from sonde.power.monitor.run_history import History, read
from sonde.power.stack.telemetry import NodeSample
from sonde.power.workflows import run_workflow_engine, workflow
from sonde.store import server_status

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
    assert export._stored(tree, "clustbench-v1") == {}


def test_a_long_line_of_a_benchmark_takes_no_time_that_grows_with_its_square():
    """With the expression of before, a line of 64 KiB took minutes: the run's own limit of time ends it then."""
    long = "a" + " " * (1 << 20) + "\nBTIO -- " + "a " * (1 << 18) + "\n" + "\n" * (1 << 18)
    with pytest.raises(DataError):
        ior_output.parse("access bw(MiB/s) \n" + long)
    with pytest.raises(DataError):
        ior_output.parse(long)
    assert ior_output.parse("BTIO -- statistics\n" + long)["bytes"] is None


def test_a_plan_that_does_not_fit_its_blocks_is_reported_of_the_folder(tmp_path: Path):
    class Room:
        def layout(self, plan: Any, files: list[BlockFile], part: str) -> Any:
            return plan["ranks"] + 1

    for plan in ({}, {"ranks": "two"}, {"ranks": []}):
        with pytest.raises(DataError) as refused, seal.fitting(tmp_path):
            Room().layout(plan, [], "")
        assert refused.value.code == "core.not_a_run"
        assert str(tmp_path) in refused.value.what


def test_names_that_others_chose_end_no_line_of_the_kernel(tmp_path: Path):
    """str.splitlines() ends lines at form feeds and line separators, which the kernel does not escape in names."""
    file = tmp_path / "proc"
    name = "a\x0cb\x1c\x85c\u2028d"
    file.write_bytes(f"22 1 0:20 / /mnt/{name} rw - ext4 /dev/x rw\nlast\n".encode() + b"\xff\n")
    found = lines.kernel_lines(file)
    assert len(found) == 3
    assert name in found[0]
    assert found[2] == "\ufffd"
    assert run_limits.file_system_in(found, "0:20") == "ext4 on /dev/x"
    assert run_limits.file_system_in(["x"], "0:20") == "unknown"
    mounts = [f"h:/vol /mnt/{name} fuse.glusterfs rw 0 0", "x"]
    assert run_gluster.mounts_of(mounts, "vol") == [f"/mnt/{name}"]


def test_a_file_that_is_called_like_a_line_of_maps_is_one_file():
    line = "7f00-7f10 r-xp 00000000 08:01 123                        /tmp/a\x0czz-q r-x q z:z q /etc/passwd"
    (found,) = run_probe.mapped_in([line, "zz-q r-x q z:z q /etc/passwd", ""], 7).values()
    assert found == (Path("/tmp/a\x0czz-q r-x q z:z q /etc/passwd"), Path("/proc/7/map_files/7f00-7f10"))


def test_a_control_group_of_no_known_form_grants_nothing(tmp_path: Path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_bytes(b"x\n:\n0::/g\xff\n")
    assert cpus.quota(tmp_path) is None


@pytest.mark.parametrize(
    ("cookies", "token"),
    [
        ("sonde_power=abc", "abc"),
        ("a=b; sonde_power=abc;c=d", "abc"),
        ("sonde_powers=abc", ""),
        ('sonde_power="' + '\\"' * 30_000 + '"', '"' + '\\"' * 30_000 + '"'),
        ("", ""),
    ],
)
def test_a_cookie_is_taken_as_it_came(cookies: str, token: str):
    """http.cookies took seconds for the fourth of these, and held up all others meanwhile."""
    assert run_http.token_of("", cookies) == token
    assert run_http.token_of("Bearer x", cookies) == "x"


def test_a_history_whose_tables_are_no_text_is_none(tmp_path: Path):
    path = tmp_path / "h.sqlite"
    history = History(path, 60.0)
    history.add([NodeSample("n1", 1)])
    history.close()
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE", b"CREATE \xffABLE"))
    with pytest.raises(SondeError) as refused:
        list(read(path, "node"))
    assert refused.value.code in ("power.not_a_history", "power.cannot_keep")
    with pytest.raises(SondeError):
        History(path, 60.0)


def test_a_row_of_a_history_that_another_program_wrote_is_refused(tmp_path: Path):
    import sqlite3

    path = tmp_path / "h.sqlite"
    History(path, 60.0).close()
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO job (job, at_ns, user, name, nodes) VALUES ('17', 1, 'a', '', '[')")
    db.close()
    with pytest.raises(DataError) as refused:
        list(read(path, "job"))
    assert refused.value.code == "power.not_a_history"


@pytest.mark.parametrize("text", ["5", "[", "[" * 5000, '{"state": {}}', '{"state": 5, "sent": 5}'])
def test_what_roles_of_jobs_cannot_have_kept_is_damage(text: str, tmp_path: Path):
    store = Store(tmp_path, "kept")
    try:
        with pytest.raises(DataError) as refused, store.decoding():
            json.loads(text)["state"]["spec"]["job"].strip()
        assert refused.value.code == "power.not_a_store"
        assert str(tmp_path) in refused.value.what
    finally:
        store.close()


def test_a_workflow_whose_file_is_nested_or_holds_no_objects_is_left_out(tmp_path: Path):
    file = tmp_path / "w.jsonl"
    for text in ("[" * 100_000 + "\n", '{"what": "workflow"}\n5\n', "\n", "5\n"):
        file.write_text(text)
        with pytest.raises(ValueError):  # noqa: PT011  whatever it says, the engine passes it on
            run_workflow_engine.Journal(file)


def job_folder(folder: Path, **files: Any) -> Path:
    whole: dict[str, Any] = {
        "job": {"spec": {"job": "a", "command": ["x"]}, "parts": [{"node": "n1"}]},
        "keeper": {"pid": 4711, "began": 5, "boot": "x", "at_ns": 7},
        "meter": {"energy_j": 1.0, "at_j": {"n1": 2.0}},
    }
    (folder / "a").mkdir(exist_ok=True)
    for name, value in (whole | files).items():
        (folder / "a" / f"{name}.json").write_text(value if isinstance(value, str) else json.dumps(value))
    return folder / "a"


@pytest.mark.parametrize(
    "files",
    [
        {"keeper": ""},
        {"keeper": "[]"},
        {"keeper": "{}"},
        {"keeper": {"pid": 1 << 70, "began": 0, "boot": "x", "at_ns": 7}},
        {"keeper": {"pid": 4711, "began": "5", "boot": "x", "at_ns": 7}},
        {"job": {"spec": {"job": ["a"]}, "parts": []}},
        {"job": {"spec": {"job": "b"}, "parts": []}},
        {"job": "[" * 100_000},
    ],
)
def test_the_folder_of_a_job_that_is_damaged_is_reported_and_stays(files: dict[str, Any], tmp_path: Path):
    folder = job_folder(tmp_path, **files)
    with pytest.raises(ValueError, match=r"is damaged|belongs to another job"):
        run_job_folder.stored_job(folder)
    assert (folder / "job.json").exists()


@pytest.mark.parametrize(
    "files",
    [
        {"meter": {"energy_j": "x", "at_j": {"n1": 2.0}}},
        {"meter": {"energy_j": 5.0, "at_j": []}},
        {"meter": ""},
        {"target": {"slowdown": []}},
        {"target": "["},
        {"start": "[]"},
    ],
)
def test_a_job_may_run_and_is_followed_without_what_is_damaged_beside_it(
    files: dict[str, Any], tmp_path: Path
):
    spec = {"job": "a", "command": ["x"], "target": {"slowdown": 0.5}}
    folder = job_folder(tmp_path, job={"spec": spec, "parts": [{"node": "n1"}]}, **files)
    found = run_job_folder.stored_job(folder)
    assert found is not None
    job, keeper, damaged = found
    (name,) = files
    assert len(damaged) == 1
    assert f"{folder}/{name}.json" in damaged[0]
    assert keeper["pid"] == job.pid == 4711
    assert job.target.slowdown == 0.5
    assert (job.meter.energy_j, job.meter.at_j) == ((0.0, {}) if name == "meter" else (1.0, {"n1": 2.0}))


def test_the_folder_of_a_job_is_read(tmp_path: Path):
    found = run_job_folder.stored_job(job_folder(tmp_path, stop={"grace_s": 5}))
    assert found is not None
    assert found[0].pid == 4711
    assert found[0].meter.at_j == {"n1": 2.0}
    assert found[2] == []
    assert run_job_folder.grace_of(tmp_path / "a") == 5
    for grace in ("[]", {}, {"grace_s": "x"}, {"grace_s": -1}, {"grace_s": 1e400}):
        job_folder(tmp_path, stop=grace)
        assert run_job_folder.grace_of(tmp_path / "a") == 0
    (tmp_path / "a/keeper.json").unlink()
    assert run_job_folder.stored_job(tmp_path / "a") is None


def test_a_cluster_whose_state_is_nonsense_is_none(tmp_path: Path):
    for text in ("[" * 100_000, "[]", '{"pid": 1e400}', '{"plan": 5, "pid": 1, "started": 1}'):
        (tmp_path / "state.json").write_text(text)
        assert run_state.kept_in(tmp_path) is None


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "[" * 100_000,
        "\udcff",
        '{"up_s": "x"}',
        '{"up_s": NaN}',
        '{"roles": 5}',
        '{"roles": [{"role": "kv"}]}',
        '{"operations": [1]}',
        '{"operations": {"kv.put": 1e400}}',
        '{"last_error": "x"}',
        '{"bytes_in": ' + "9" * 400 + "}",
    ],
)
def test_a_server_that_says_nonsense_of_itself_is_refused_with_its_address(text: str):
    with pytest.raises(SondeError) as refused:
        server_status.report_of(text.encode("utf-8", "surrogateescape"), "host:1")
    assert refused.value.code == "store.bad_report"
    assert "host:1" in refused.value.what


def test_what_a_server_says_of_itself_is_shown_whatever_bytes_strangers_sent_it():
    report = server_status.report_of(b'{"last_error": "\xff", "last_error_s_ago": 5}', "host:1")
    assert report["last_error"] == "\ufffd"
    assert server_status.report_of(b"", "host:1") == {}

"""`sonde io study` and `sonde io run --try` on real programs: what they measure, keep, and say when it goes wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess

import pytest

import sonde as library
from sonde.cluster import run
from sonde.core.launch.mpirun import Mpi
from sonde_shell import PROGRAM, Shell, finish
from watching import wait_for

MIB = 1 << 20
SMALL = ("--ntasks", "2", "--size", "4MiB")


def codes(told: dict) -> list[str]:
    return [warning["code"] for warning in told["warnings"]]


@pytest.mark.mpi
class TestStudy:
    def test_two_workloads_without_and_with_the_tracer(self, sonde_mpi: Shell):
        words = ("--workload", "ior:-a MPIIO -c -t 1m -e", "--workload", "ior:-t 1m -F", "--repetitions", "2")
        ran = sonde_mpi(
            "io",
            "study",
            *SMALL,
            *words,
            "--traced-rounds",
            "1",
            "--seed",
            "5",
            "--keep-traces",
            "kept",
            "-o",
            "a.nc",
            "--json",
        )
        told = ran.expect(0).json
        assert told["verdict"]
        by_workload = {cell["workload"]: cell for cell in told["cells"]}
        posix = by_workload["ior -t 1m -F"]
        assert (posix["runs"], posix["traced_runs"], posix["failed_runs"]) == (2, 1, 0)
        assert (posix["size_B"], posix["io"]) == (4 * MIB, "default")
        for cell in told["cells"]:
            assert cell["write"]["rate_B_per_s"] > 0 < cell["read"]["rate_B_per_s"]
            calls = {one["function"]: one for one in cell["functions"]}
            # Four transfers of a MiB, by whatever is above them: of these, and of nothing else, is told.
            assert (calls["pwrite"]["calls"], calls["pwrite"]["bytes"]) == (4, 4 * MIB)
            assert (calls["pread"]["calls"], calls["pread"]["bytes"]) == (4, 4 * MIB)
        collective = next(cell for cell in told["cells"] if "MPIIO" in cell["workload"])
        assert collective["layers"]["mpiio"] > 0
        assert "MPI_File_write_at_all" in {one["function"] for one in collective["functions"]} or any(
            one["function"].startswith("MPI_File_write_at_all") for one in collective["functions"]
        )
        assert {one["what"] for one in told["limits"]} == {"write", "read"}
        assert sorted(os.listdir(sonde_mpi.cwd)) == ["a.nc", "kept"]
        kept = sorted(os.listdir(sonde_mpi.cwd / "kept"))
        assert kept == [f"cell-{k:02}.nc" for k in range(len(told["cells"]))]
        assert sonde_mpi("io", "show", "kept/cell-00.nc", "--json").expect(0).json["layers"]
        sonde_mpi("data", "validate", "a.nc").expect(0)
        page = sonde_mpi("report", "a.nc").expect(0)
        assert "a.html" in page.out
        html = (sonde_mpi.cwd / "a.html").read_text()
        assert html.count('class="figure bar"') == 2
        assert "Functions of each layer that are called" in html
        again = sonde_mpi("io", "show", "a.nc", "--json").expect(0).json
        assert again["cells"] == told["cells"]
        assert sonde_mpi.left() == []

    def test_hints_reach_the_stack(self, sonde_mpi: Shell):
        words = (
            "--workload",
            "bt-io:",
            "--ntasks",
            "4",
            "--size",
            "500kB",
            "--repetitions",
            "1",
            "--no-limits",
        )
        stack = through_romio(sonde_mpi)
        hints = ("--hints", "none", "--hints", "romio_cb_write=disable,romio_ds_write=disable")
        told = sonde_mpi("io", "study", *words, *stack, *hints, "-o", "a.nc", "--json").expect(0).json
        writes = [
            {one["function"]: one["calls"] for one in cell["functions"]}.get("pwrite", 0)
            for cell in told["cells"]
        ]
        assert [cell["hints"] for cell in told["cells"]] == [
            "",
            "romio_cb_write=disable,romio_ds_write=disable",
        ]
        assert 0 < 10 * writes[0] < writes[1]  # without buffers each row of the grid is a write
        assert "io.hint_not_taken" not in codes(told)

    def test_a_hint_that_the_file_has_with_another_value_is_a_warning(self, sonde_mpi: Shell, mpi: Mpi):
        words = ("--workload", "ior:-a MPIIO -c -t 1m -H", "--repetitions", "1", "--no-limits")
        # ROMIO takes one node for each host, and MPI_File_get_info shows it, but not within Open MPI 4.
        hints = ("--hints", "cb_nodes=7")
        study = sonde_mpi("io", "study", *words, *SMALL, *hints, "-o", "a.nc", "--json").expect(0).json
        ios = {cell["io"] for cell in study["cells"]}
        telling = ios if mpi.flavour == "mpich" else ios & {"romio341"}
        evidence = [one["evidence"] for one in study["warnings"] if one["code"] == "io.hint_not_taken"]
        assert evidence == [
            f"{io}: cb_nodes=7 was given, and the open file has cb_nodes=1" for io in sorted(telling)
        ]

    def test_a_program_of_ones_own_that_prints_what_ior_prints(self, sonde_mpi: Shell):
        words = (
            "--workload",
            "real:sonde-ioload -a MPIIO -t 1m -b {block}",
            "--repetitions",
            "1",
            "--no-limits",
        )
        path = {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}
        told = sonde_mpi("io", "study", *SMALL, *words, "-o", "a.nc", "--json", **path).expect(0).json
        for cell in told["cells"]:
            assert cell["workload"].startswith("sonde-ioload -a MPIIO")
            assert cell["write"]["rate_B_per_s"] > 0

    def test_a_dry_run_measures_nothing(self, sonde_mpi: Shell):
        told = sonde_mpi("io", "study", *SMALL, "--dry-run", "--json").expect(0).json
        assert told["expected_s"] > 0
        assert len(told["commands"]) == len(told["cells"]) >= 1
        assert "-b 2097152" in told["commands"][0]
        assert os.listdir(sonde_mpi.cwd) == []

    def test_from_a_config_file(self, sonde_mpi: Shell):
        (sonde_mpi.cwd / "study.toml").write_text(
            '[io.study]\nworkload = ["ior:-t 1m", "ior:-t 2m"]\nsize = ["4MiB", "8MiB"]\nntasks = 2\nrepetitions = 3\n'
        )
        told = sonde_mpi("io", "study", "--config", "study.toml", "--dry-run", "--json").expect(0).json
        assert told["rounds"] == 3
        assert [(cell["workload"], cell["size"]) for cell in told["cells"]] == [
            ("ior -t 1m", 4 * MIB),
            ("ior -t 1m", 8 * MIB),
            ("ior -t 2m", 4 * MIB),
            ("ior -t 2m", 8 * MIB),
        ]
        (sonde_mpi.cwd / "study.toml").write_text('[io.study]\nworkload = ["irr:-t 1m"]\n')
        ran = sonde_mpi("io", "study", "--config", "study.toml").expect(2)
        assert "nearest: ior" in ran.said

    def test_a_cell_that_fails_costs_only_itself(self, sonde_mpi: Shell):
        words = (
            "--workload",
            "real:false {size}",
            "--workload",
            "ior:-t 1m",
            "--repetitions",
            "3",
            "--no-limits",
        )
        told = sonde_mpi("io", "study", *SMALL, *words, "-o", "a.nc", "--json").expect(4).json
        assert not told["complete"]
        by_workload = {cell["workload"]: cell for cell in told["cells"]}
        assert by_workload["ior -t 1m"]["runs"] == 3
        failed = by_workload["false '{size}'"]
        assert (failed["runs"], failed["failed_runs"]) == (0, 2)  # after which it was left out
        assert {"io.run_failed", "io.cell_without_data"} <= set(codes(told))

    def test_when_nothing_succeeds_nothing_is_left(self, sonde_mpi: Shell):
        ran = sonde_mpi("io", "study", *SMALL, "--workload", "real:false {size}", "-o", "a.nc").expect(3)
        assert "io: no run of the study succeeded" in ran.said
        assert os.listdir(sonde_mpi.cwd) == []

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            (("--workload", "ior:-t 1m", "--size", "3MiB"), 2, "give --size 4MiB"),
            (("--workload", "bt-io:"), 2, "give --ntasks 1 or 4"),
            (("--place", "nowhere"), 2, "nowhere does not exist"),
            (("--size", "100TiB"), 3, "but a run writes 100 TiB"),
            (("--io", "no_such"), 2, "no_such"),
            (("--hints", "cb_nodes"), 2, "'cb_nodes' is not a hint"),
            (("--cluster", "x", "--hosts", "y"), 2, "exclude each other"),
        ],
    )
    def test_what_cannot_be_is_refused_before_anything_starts(self, sonde_mpi: Shell, words, code, said):
        ran = sonde_mpi("io", "study", "--ntasks", "2", *words, "-o", "a.nc").expect(code)
        assert said in ran.said
        assert os.listdir(sonde_mpi.cwd) == []

    def test_ctrl_c_keeps_what_there_is(self, sonde_mpi: Shell):
        process = begin(sonde_mpi)
        assert wait_for(lambda: blocks(sonde_mpi) >= 2, 60)
        process.send_signal(signal.SIGINT)
        ran = finish(process, 60)
        assert ran.code == 130, ran.err
        assert ran.json["stop_reason"] == "interrupted"
        assert sum(cell["runs"] for cell in ran.json["cells"]) >= 1
        assert os.listdir(sonde_mpi.cwd) == ["a.nc"]
        assert sonde_mpi.left() == []

    def test_what_a_kill_leaves_is_recovered(self, sonde_mpi: Shell):
        process = begin(sonde_mpi)
        assert wait_for(lambda: blocks(sonde_mpi) >= 2, 60)
        process.kill()
        process.communicate(timeout=60)
        told = sonde_mpi("data", "recover", "a.run", "--json").expect(4).json
        assert told["datasets"][0]["dataset"].endswith("a.nc")
        with library.open(sonde_mpi.cwd / "a.nc") as tree:
            assert tree.attrs["stop_reason"] == "killed"
            assert tree["summary"]["runs"].values.sum() >= 1
        assert not (sonde_mpi.cwd / "a.run").exists()

    def test_two_studies_beside_each_other(self, sonde_mpi: Shell):
        for name in ("a.nc", "b.nc"):
            sonde_mpi(
                "io",
                "study",
                *SMALL,
                "--workload",
                "ior:-t 1m",
                "--repetitions",
                "3",
                "--no-limits",
                "-o",
                name,
            )
        ran = sonde_mpi("io", "diff", "a.nc", "b.nc", "--json")
        assert ran.code in (0, 1, 4), ran.err
        assert ran.json["cells"] == 2
        sonde_mpi("io", "run", "-o", "t.nc", "--", "cat", "/dev/null").expect(0)
        refused = sonde_mpi("io", "diff", "a.nc", "t.nc").expect(3)
        assert "the first dataset is a study, the second a trace" in refused.said


@pytest.mark.root
def test_a_cluster_stands_beside_this_host(sonde: Shell, default_mpi: Mpi):
    if missing := [
        name for name in run.PROGRAMS if not shutil.which(name, path=run.program_path(os.environ))
    ]:
        pytest.skip(f"{', '.join(missing)}: not there; install iproute2 and util-linux")
    with run.Cluster.up(f"study{os.getpid()}", 2, rate=10**9) as cluster:
        words = ("--workload", "ior:-a MPIIO -c -t 1m", "--cluster", "host", "--cluster", cluster.name)
        told = (
            sonde("io", "study", *SMALL, *words, "--repetitions", "1", "-o", "a.nc", "--json").expect(0).json
        )
    pairs = {(cell["io"], cell["cluster"]): cell for cell in told["cells"]}
    assert {name for _, name in pairs} == {None, cluster.name}
    for (component, name), cell in pairs.items():
        assert cell["runs"] == 1
        assert cell["baseline"] == 0
        written = sum(one["bytes"] for one in cell["functions"] if one["function"] == "pwrite")
        assert written == 4 * MIB, (component, name)
    (network,) = [one for one in told["limits"] if one["what"] == "network"]
    assert network["cluster"] == cluster.name
    assert (
        0 < network["rate_B_per_s"] < 10**9 / 8 * 1.2
    )  # what goes through the bucket at once is above the rate
    assert "on this host" in sonde("io", "show", "a.nc").expect(0).out


def components(shell: Shell) -> list[str]:
    """Those for MPI-IO that a study takes by itself: Open MPI's, or "default"."""
    told = shell("io", "study", *SMALL, "--dry-run", "--json").expect(0).json
    return [cell["io"] for cell in told["cells"]]


def through_romio(shell: Shell) -> tuple[str, ...]:
    """romio321 of Open MPI 4, romio341 of 5; MPICH has nothing else."""
    return next((("--io", name) for name in components(shell) if name.startswith("romio")), ())


def begin(shell: Shell) -> subprocess.Popen[str]:
    return shell.start(
        "io", "study", *SMALL, "--workload", "ior:-t 1m", "--repetitions", "1000", "--budget", "2min", "--no-limits",
        "-o", "a.nc", "--json",
    )  # fmt: skip


def blocks(shell: Shell) -> int:
    return len(list(shell.cwd.glob("a.run/run-*.blk")))


@pytest.mark.mpi
class TestTry:
    def line(self, sonde_mpi: Shell, *words: str) -> list[str]:
        """BT-IO on ROMIO: 4 ranks, which wait for each other without spinning."""
        told = (
            sonde_mpi("io", "study", "--ntasks", "4", "--workload", "bt-io:", "--dry-run", "--json")
            .expect(0)
            .json
        )
        commands = [command for command in told["commands"] if "ompio" not in command]
        line = commands[0].split(" --json ")[0].split()
        return [*line, *words]

    def test_a_hint_is_tried_and_reaches_romio(self, sonde_mpi: Shell):
        # Without collective buffering ROMIO sieves: it reads all that lies between the rows it writes.
        (sonde_mpi.cwd / "mine").write_text("romio_cb_write disable\n")
        line = self.line(sonde_mpi, "--size", "500kB")
        ran = sonde_mpi(
            "io", "run", "--try", "--json", "-o", "a.nc", "--", *line, ROMIO_HINTS=str(sonde_mpi.cwd / "mine")
        )
        told = ran.expect(0).json
        assert "io.read_to_write" in [finding["code"] for finding in told["findings"]]
        tried = next(one for one in told["tries"] if one["code"] == "io.read_to_write")
        assert tried["hints"] == {"romio_ds_write": "disable"}
        assert (tried["rounds"], tried["reached"], tried["finding_gone_in"], tried["failed"]) == (
            6,
            True,
            6,
            None,
        )
        low, high = tried["io"]["ci95"]
        assert 0 < low <= tried["io"]["gain"] <= high
        assert tried["answer"] in ("faster", "slower", "no gain", "not settled")
        shown = sonde_mpi("io", "show", "a.nc", "--json").expect(0).json
        assert shown["tries"] == told["tries"]  # the dataset keeps it
        sonde_mpi("data", "validate", "a.nc").expect(0)
        assert sorted(os.listdir(sonde_mpi.cwd)) == ["a.nc", "mine"]
        assert sonde_mpi.left() == []

    def test_ctrl_c_ends_trying_and_keeps_the_trace(self, sonde_mpi: Shell):
        (sonde_mpi.cwd / "mine").write_text("romio_cb_write disable\n")
        (sonde_mpi.cwd / "tmp").mkdir()
        line = self.line(sonde_mpi, "--size", "500kB")
        process = sonde_mpi.start(
            "io", "run", "--try", "500", "--json", "-o", "a.nc", "--", *line,
            ROMIO_HINTS=str(sonde_mpi.cwd / "mine"), TMPDIR=str(sonde_mpi.cwd / "tmp"),
        )  # fmt: skip
        assert wait_for(lambda: list(sonde_mpi.cwd.glob("tmp/sonde-try-*/again.*")), 60)
        process.send_signal(signal.SIGINT)
        ran = finish(process, 60)
        assert ran.code == 130, ran.err
        assert "io.read_to_write" in [finding["code"] for finding in ran.json["findings"]]
        assert all(one.get("failed") is None for one in ran.json["tries"])
        assert list((sonde_mpi.cwd / "tmp").glob("sonde-try-*")) == []
        assert sonde_mpi("io", "show", "a.nc").expect(0)
        assert sonde_mpi.left() == []

    def test_a_finding_that_takes_a_change_of_the_program_says_so(self, sonde_mpi: Shell):
        script = (
            "import os\nf = os.open('data', os.O_CREAT | os.O_WRONLY | os.O_SYNC)\n"
            "for k in range(400): os.write(f, bytes(64))\n"
        )
        ran = sonde_mpi(
            "io", "run", "--try", "7", "--layers", "posix", "-o", "a.nc", "--", "python3", "-c", script
        )
        ran.expect(0)
        text = " ".join(ran.err.split())
        assert "cannot be tried without changing the program" in text
        assert "Tried:" not in text

    def test_a_program_without_findings(self, sonde: Shell):
        line = ("python3", "-c", "open('data', 'wb').write(bytes(1 << 24))")
        ran = sonde("io", "run", "--layers", "posix", "--try", "--json", "-o", "a.nc", "--", *line).expect(0)
        told = {finding["code"] for finding in ran.json["findings"]} - {"io.tracer_overhead"}
        assert {one["code"] for one in ran.json["tries"]} == told
        assert all(one["tried"] is None for one in ran.json["tries"])

    def test_fewer_rounds_than_an_interval_takes_are_refused(self, sonde: Shell):
        ran = sonde("io", "run", "--try", "5", "--", "cat", "/dev/null").expect(2)
        assert "whole numbers from 6 up" in ran.said


def test_the_text_fits_eighty_columns(sonde_mpi: Shell):
    ran = sonde_mpi("io", "study", *SMALL, "--repetitions", "1", "-o", "a.nc", COLUMNS="80").expect(0)
    assert max(map(len, ran.out.splitlines())) <= 80
    assert re.search(r"Raw limits", ran.out)
    assert json.loads(sonde_mpi("io", "show", "a.nc", "--json").expect(0).out)["ranks"] == 2

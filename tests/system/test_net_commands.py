"""Every command of `sonde net` on what a real MPI gave, as a user types them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

import sonde as library
from sonde.core.launch.mpirun import Mpi
from sonde_shell import Shell, Typed, environment, shell

pytestmark = pytest.mark.mpi

SIZES = (8, 1024, 16384)
# A second's work. The budget is only there for a machine so busy that it would never end.
QUICK = ("--ntasks", "2", "--sizes", "8,1KiB,16KiB", "--rule", "fixed:200", "--gap", "1ms", "--budget", "60s")

EVERY = {"room", "verb", "schema", "dataset", "complete", "verdict", "findings", "warnings"}
RUN = EVERY | {"cells", "converged", "capped", "drift", "median_s", "slow_links", "stop_reason"}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, mpi: Mpi) -> Iterator[Shell]:
    """A folder with a.nc and b.nc, two runs of the same plan and seed."""
    for made in shell(tmp_path_factory.mktemp("bench"), mpi):
        for name in ("a.nc", "b.nc"):
            ran = made("net", "run", *QUICK, "--seed", "7", "-o", name, "--json").expect(0)
            (made.cwd / f"{name}.json").write_text(ran.out)
        yield made
        assert made.left() == []


@pytest.fixture
def bench(measured: Shell, capfd: pytest.CaptureFixture[str]) -> Typed:
    """Commands that only read, typed in that folder."""
    return Typed(measured.cwd, measured.env, capfd)


@pytest.fixture
def typed_mpi(typed: Typed, mpi: Mpi) -> Typed:
    """Commands that start nothing, with the MPI that is being tested, in an empty folder."""
    return replace(typed, env=environment(mpi, "typed"))


def attrs(path: Path) -> dict[str, Any]:
    with library.open(path) as tree:
        return dict(tree.attrs)


def contract(value: Any) -> bool:
    """Whether no NaN hides in a JSON object; json.loads takes them."""
    if isinstance(value, dict):
        return all(map(contract, value.values()))
    if isinstance(value, list):
        return all(map(contract, value))
    return not isinstance(value, float) or bool(np.isfinite(value))


class TestRun:
    def test_json_is_the_contract(self, bench):
        told = json.loads((bench.cwd / "a.nc.json").read_text())
        assert set(told) >= RUN
        assert (told["room"], told["verb"], told["schema"]) == ("net", "run", "net/1")
        assert told["dataset"] == "a.nc"
        assert told["complete"] is True
        assert told["cells"] == 2 * len(SIZES)
        assert told["stop_reason"] == "converged"
        assert told["converged"] == told["cells"]
        assert 0 < told["median_s"]["min"] <= told["median_s"]["median"] <= told["median_s"]["max"]
        assert contract(told)

    def test_dataset_holds_the_samples_and_says_how_they_came(self, bench):
        with library.open(bench.cwd / "a.nc") as tree:
            assert tree.attrs["seed"] == 7
            assert tree.attrs["mode"] == "one_to_one"
            assert tree.attrs["rule"] == "fixed:200"
            assert "net run" in tree.attrs["command"]
            raw = tree["raw"].to_dataset().load()
        assert tuple(raw["size"].values) == SIZES
        off = ~np.eye(2, dtype=bool)
        assert (raw["n"].values[off] >= 200).all()
        assert (raw["n"].values[~off] == 0).all()
        latency = raw["latency"].values
        assert np.isfinite(latency).sum() == raw["n"].values.sum()
        assert np.nanmin(latency) > 0

    def test_nothing_but_the_dataset_stays(self, bench):
        assert not list(bench.cwd.glob("*.run"))
        assert not list(bench.cwd.glob("*.part"))

    def test_same_seed_measures_in_the_same_order(self, bench):
        orders = []
        for name in ("a.nc", "b.nc"):
            with library.open(bench.cwd / name) as tree:
                raw = tree["raw"].to_dataset().load()
            first = raw["t_start"].where(raw["epoch"] == 1).min("sample")
            orders.append(first.stack(cell=("src", "dst", "size")).dropna("cell"))
        ranked = [list(order["cell"].values[np.argsort(order.values)]) for order in orders]
        assert len(ranked[0]) == 2 * len(SIZES)
        assert ranked[0] == ranked[1]

    def test_two_modes_are_two_files_of_one_run(self, sonde_mpi):
        told = sonde_mpi(
            "net", "run", *QUICK, "--mode", "one_to_one,all_to_all", "-o", "two.nc", "--json"
        ).expect(0)
        names = [row["dataset"] for row in told.json["datasets"]]
        assert [row["mode"] for row in told.json["datasets"]] == ["one_to_one", "all_to_all"]
        found = [attrs(sonde_mpi.cwd / name) for name in names]
        assert [f["mode"] for f in found] == ["one_to_one", "all_to_all"]
        assert len({f["run_id"] for f in found}) == 1
        assert sorted(p.name for p in sonde_mpi.cwd.glob("*.nc")) == sorted(names)

    def test_no_raw_keeps_the_summary_alone(self, sonde_mpi, typed):
        sonde_mpi("net", "run", *QUICK, "--no-raw", "-o", "small.nc").expect(0)
        with library.open(sonde_mpi.cwd / "small.nc") as tree:
            assert "raw" not in tree.children
            assert tree["summary"]["n"].values.sum() >= 2 * len(SIZES) * 200
            assert np.isfinite(tree["summary"]["median"].values).sum() == 2 * len(SIZES)
        typed("data", "validate", "small.nc").expect(0)
        typed("net", "show", "small.nc").expect(0)
        refused = typed("net", "replay", "small.nc").expect(3)
        assert "no single samples" in refused.said

    def test_a_gap_of_no_time_is_one(self, typed_mpi):
        ran = typed_mpi("net", "run", *QUICK, "--gap", "0s", "--dry-run", "-o", "a.nc", "--json").expect(0)
        assert " --gap-s 0 " in ran.json["command"]

    def test_dry_run_starts_nothing(self, typed_mpi):
        ran = typed_mpi("net", "run", *QUICK, "--dry-run", "-o", "a.nc", "--json").expect(0)
        assert ran.json["cells"] == 2 * len(SIZES)
        assert "sonde-net" in ran.json["command"]
        assert "--rule fixed:200" in ran.json["command"]
        assert list(typed_mpi.cwd.iterdir()) == []

    def test_by_class_measures_a_few_links_of_each(self, sonde_mpi):
        words = ("--ntasks", "4", "--sizes", "8,4KiB", "--rule", "fixed:100", "--budget", "30s", "--by-class")
        ran = sonde_mpi("net", "run", *words, "--seed", "3", "-o", "k.nc", "--json")
        assert ran.code in (0, 4), ran.err  # four ranks on few cores may not get through in time
        found = attrs(sonde_mpi.cwd / "k.nc")
        assert found["selection"] == "by-class"
        classes = int(found["link_classes"])
        chosen = [pairs.split(",") for pairs in found["class_pairs"].split(";")]
        assert len(chosen) == classes >= 1
        missed = [pair for pair in found.get("unclassed_pairs", "").split(",") if pair]
        assert sum(map(int, found["class_links"].split(","))) + len(missed) == 6
        told = {warning["code"] for warning in ran.json["warnings"]}
        assert ("net.unclassed_links" in told) == bool(missed)
        assert all(1 <= len(pairs) <= 4 for pairs in chosen)
        asked = {tuple(map(int, pair.split("-"))) for pairs in [*chosen, missed] for pair in pairs}
        with library.open(sonde_mpi.cwd / "k.nc") as tree:
            n = tree["raw"]["n"].values.sum(axis=2)
        measured = {(min(a, b), max(a, b)) for a, b in np.argwhere(n > 0)}
        assert measured <= asked
        assert measured

    def test_terminal_shows_verdict_table_and_file(self, sonde_mpi):
        ran = sonde_mpi("net", "run", *QUICK, "-o", "a.nc", "--color", "never").expect(0)
        assert "2 ranks, 8 B to 16 KiB: median delay" in " ".join(ran.out.split())
        assert "Median delay by message size" in ran.out
        assert "→ a.nc" in ran.out


class TestLook:
    def test_show(self, bench):
        told = bench("net", "show", "a.nc", "--json").expect(0).json
        assert set(told) >= RUN
        assert told["verb"] == "show"
        assert told["cells"] == 2 * len(SIZES)
        assert contract(told)

    def test_show_several_files(self, bench):
        told = bench("net", "show", "a.nc", "b.nc", "--json").expect(0).json
        assert [row["dataset"] for row in told["datasets"]] == ["a.nc", "b.nc"]

    def test_show_one_pair(self, bench):
        ran = bench("net", "show", "a.nc", "--pair", "1,0", "--color", "never").expect(0)
        assert "1→0" in ran.out
        assert "0→1" in ran.out
        for size in ("8 B", "1 KiB", "16 KiB"):
            assert ran.out.count(f" {size} ") >= 2

    @pytest.mark.parametrize("pair", ["0,2", "1,1", "x,y"])
    def test_show_a_pair_that_is_not_there(self, bench, pair):
        ran = bench("net", "show", "a.nc", "--pair", pair).expect(2)
        assert "error: net:" in ran.said
        assert pair in ran.said
        assert "hint: give a pair as 0,1" in ran.said

    def test_report(self, bench):
        ran = bench("report", "a.nc", "b.nc", "-o", "both.html").expect(0)
        assert ran.out.rstrip().endswith("both.html")
        page = (bench.cwd / "both.html").read_text()
        assert page.lstrip().lower().startswith("<!doctype html")
        assert "a.nc" in page
        assert "b.nc" in page

    @pytest.mark.parametrize("verb", ["modes", "rules"])
    def test_what_there_is_to_choose_from(self, bench, verb):
        told = bench("net", verb, "--json").expect(0).json
        assert {"mode", "text", "sample"} <= set(told["modes"][0]) if verb == "modes" else told["rules"]


def table_rows(out: str) -> list[int]:
    """Lines of each table drawn, head and note left out."""
    blocks = re.findall(r"^ *─+\n((?:.+\n)+)", out, re.M)
    return [sum(not line.lstrip().startswith(NOTES) for line in block.splitlines()) for block in blocks]


NOTES = ("ratio:", "n, error:", "run:", "converged:", "left out:", "detectable:", "A: ", "B: ")


class TestTables:
    """At 80 columns every row of figures is one line, also with names as long as Sonde's own."""

    A, B = "net-cluster-20261121T035834Z-3f9a.nc", "net-cluster-20261121T035850Z-ab12.nc"

    @pytest.fixture
    def folder(self, bench) -> Typed:
        for short, long in (("a.nc", self.A), ("b.nc", self.B)):
            (bench.cwd / "named").mkdir(exist_ok=True)
            (bench.cwd / "named" / long).write_bytes((bench.cwd / short).read_bytes())
        return replace(bench, cwd=bench.cwd / "named")

    @pytest.mark.parametrize(
        ("words", "rows"),
        [
            (("net", "show", A), [3]),
            (("net", "show", A, "--pair", "0,1"), [3, 3]),
            (("net", "diff", A, B), [3]),
            (("net", "check", A, "--against", B), [3]),
            (("net", "replay", A), [7]),
            (("data", "history", "."), [2]),
        ],
        ids=lambda value: " ".join(value[:2]) if value and isinstance(value[0], str) else "",
    )
    def test_no_row_is_wrapped(self, folder, words, rows):
        out = folder(*words, COLUMNS="80", PYTHONIOENCODING="utf-8").out
        assert table_rows(out)[: len(rows)] == rows, out
        drawn = [
            line for line in out.splitlines() if not line.lstrip().startswith(("next:", "would drain:", "→"))
        ]
        assert max(map(len, drawn)) <= 80

    def test_a_rule_is_named_in_one_piece(self, folder):
        out = folder("net", "replay", self.A, COLUMNS="80").out
        assert re.search(r"^ *clustbench-modified +\d", out, re.M)


def without_findings(told: dict) -> int:
    """The exit code of a comparison that found nothing: on a busy machine it may say nothing, too."""
    return 4 if told["detectable"] is None or told["detectable"] > 1 else 0


class TestHold:
    def test_check_without_limits_finds_nothing(self, bench):
        ran = bench("net", "check", "a.nc", "--no-slow-links").expect(0)
        assert "0 findings in a.nc" in ran.out
        assert "would drain" not in ran.out

    def test_check_a_limit_that_nothing_can_keep(self, bench):
        ran = bench("net", "check", "a.nc", "--max-median", "1ns", "--color", "never").expect(1)
        host = attrs(bench.cwd / "a.nc")["hostlist"]
        assert (
            f"would drain: scontrol update NodeName={host} State=DRAIN" in ran.out
        )  # on one line, as scripts want it
        assert re.search(r"^ *would drain: scontrol .*'$", ran.out, re.M)
        assert "net.median_over_limit" in ran.out
        told = bench("net", "check", "a.nc", "--max-median", "1ns", "--json").expect(1).json
        assert {row["code"] for row in told["findings"]} >= {"net.median_over_limit"}
        assert all(row["next"] for row in told["findings"])
        assert [row["evidence"]["sizes"] for row in told["findings"]] == [list(SIZES)] * 2  # one a link
        assert "net.single_link" in {row["code"] for row in told["warnings"]}

    def test_check_a_limit_that_anything_keeps(self, bench):
        bench("net", "check", "a.nc", "--max-median", "1h", "--no-slow-links").expect(0)

    def test_check_against_itself(self, bench):
        ran = bench("net", "check", "a.nc", "--against", "a.nc", "--no-slow-links", "--json")
        assert ran.code == without_findings(ran.json)

    def test_diff_with_itself_finds_nothing(self, bench):
        ran = bench("net", "diff", "a.nc", "a.nc", "--json")
        told = ran.json
        assert ran.code == without_findings(told)
        assert set(told) >= EVERY | {"cells", "slower", "faster", "median_ratio", "detectable"}
        assert (told["slower"], told["faster"], told["median_ratio"]) == (0, 0, 1.0)

    def test_diff_says_the_same_in_json_and_by_its_exit_code(self, bench):
        ran = bench("net", "diff", "a.nc", "b.nc", "--json")
        assert ran.code == (1 if ran.json["findings"] else without_findings(ran.json)), ran.err
        assert ran.json["cells"] == 2 * len(SIZES)

    def test_diff_finds_a_delay_put_in_on_purpose(self, bench, measured):
        words = (*QUICK, "--inject-slow", "0:1:1e-2,1:0:1e-2", "--seed", "7", "-o", "slow.nc")
        measured("net", "run", *words).expect(0)
        told = bench("net", "diff", "a.nc", "slow.nc", "--json").expect(1).json
        assert told["median_ratio"] > 1
        assert told["slower"] > 0
        assert {row["code"] for row in told["findings"]} == {"net.slower"}
        bench("net", "check", "slow.nc", "--against", "a.nc", "--no-slow-links").expect(1)


class TestWorkOn:
    def test_replay_every_rule(self, bench):
        told = bench("net", "replay", "a.nc", "--rule", "all", "--json").expect(0).json
        known = [row["rule"] for row in bench("net", "rules", "--json").json["rules"]]
        assert [row["rule"] for row in told["rules"]] == known
        for row in told["rules"]:
            assert {"n", "error", "coverage", "time_saved"} <= set(row)
            assert row["cells"] == 2 * len(SIZES)
        assert contract(told)

    def test_replay_of_the_rule_that_ran_takes_what_was_taken(self, bench):
        told = bench("net", "replay", "a.nc", "--rule", "fixed:100", "--json").expect(0).json
        assert told["rules"][0]["n"] == 100

    def test_model_forecasts(self, bench):
        told = bench("net", "model", "a.nc", "--forecast", "8,4KiB", "--json").expect(0).json
        for fit in told["models"]:
            assert [row["size"] for row in fit["forecast"]] == [8, 4096]
            for row in fit["forecast"]:
                assert row["low_s"] <= row["value_s"] <= row["high_s"]

    def test_model_says_what_it_extrapolates(self, bench):
        told = bench("net", "model", "a.nc", "--forecast", "1KiB,1MiB", "--json").expect(0).json
        for fit in told["models"]:
            assert [row["extrapolated"] for row in fit["forecast"]] == [False, True]
        assert "net.extrapolated" in {row["code"] for row in told["warnings"]}

    def test_noise_says_in_clustbench_1_what_it_was(self, sonde_mpi, typed):
        words = (
            "--ntasks",
            "4",
            "--mode",
            "noise",
            "--sizes",
            "8,16",
            "--rule",
            "fixed:20",
            "--noise-size",
            "2KiB",
        )
        sonde_mpi("net", "run", *words, "--budget", "60s", "-o", "a.nc").expect(0)
        found = attrs(sonde_mpi.cwd / "a.nc")
        assert (found["noise_bytes"], found["noise_ranks"]) == (2048, 2)
        typed("net", "convert", "a.nc", "old", "--to", "clustbench-v1").expect(0)
        with netCDF4.Dataset(sonde_mpi.cwd / "old_median.nc") as file:
            assert int(file["noise_mes_length"][...]) == 2048
            assert int(file["num_noise_proc"][...]) == 2

    def test_slice(self, bench):
        told = bench("net", "slice", "a.nc", "--size", "1KiB", "-o", "slice.nc", "--json").expect(0).json
        assert told["files"]
        for name in told["files"]:
            with netCDF4.Dataset(bench.cwd / name) as file:
                assert file.variables or file.groups

    def test_spectrum(self, bench):
        words = ("--size", "8", "--window", "32", "-o", "spectrum.nc", "--json")
        told = bench("net", "spectrum", "a.nc", *words).expect(0).json
        assert told["files"]
        assert all((bench.cwd / name).is_file() for name in told["files"])

    def test_convert_to_clustbench_and_back(self, bench):
        words = ("--to", "clustbench-v2", "--sizes", "8,1KiB", "--json")  # its sizes are evenly spaced
        told = bench("net", "convert", "a.nc", "classic", *words).expect(0).json
        assert len(told["files"]) > 1
        back = bench("net", "convert", "classic", "back.nc", "--to", "sonde", "--json").expect(0).json
        assert back["files"] == ["back.nc"]
        bench("data", "validate", "back.nc").expect(0)
        with library.open(bench.cwd / "a.nc") as a, library.open(bench.cwd / "back.nc") as b:
            ours = np.sort(a["raw"]["latency"].values[0, 1, 0])
            theirs = np.sort(b["raw"]["latency"].values[0, 1, 0])
        ours, theirs = ours[np.isfinite(ours)], theirs[np.isfinite(theirs)]
        assert len(theirs) > 0
        assert len(ours) == len(theirs)
        np.testing.assert_allclose(theirs, ours, rtol=1e-6, atol=1e-9)

    def test_validate(self, bench):
        told = bench("data", "validate", "a.nc", "b.nc", "--json").expect(0).json
        assert [row["violations"] for row in told["files"]] == [0, 0]

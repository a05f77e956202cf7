import pytest

from sonde.core import dataset as core_dataset
from sonde.core.errors import DataError, Warning
from sonde.report import collect


def collected(*paths, **more):
    trees = {p.name: core_dataset.open(p) for p in paths}
    try:
        return collect.collect(trees, **more)
    finally:
        for tree in trees.values():
            tree.close()


def test_the_room_says_the_section_and_the_report_its_verdict(lab, dataset):
    report = collected(dataset(), created_utc="now")
    assert report.verdict == "All 12 pairs fit their link class within 3 %."
    assert report.title == "Interconnect of n[001-002]"
    assert (report.created_utc, report.measured_utc) == ("now", "2026-11-20 21:47 UTC")
    assert [m.name for m in report.method] == ["Interval of a median", "Slow links", "Latency model"]


def test_a_run_that_was_interrupted_says_so_in_its_section_and_in_the_warnings(lab, dataset):
    report = collected(dataset(stop_reason="interrupted"))
    assert report.verdict.startswith("Interrupted before its end: All 12 pairs")
    assert "core.run_was_interrupted" in {warning.code for warning in report.warnings}


def test_what_ran_and_on_what_machine_come_from_the_root_and_env(lab, dataset):
    report = collected(dataset())
    assert report.runs == [
        {
            "command": "sonde lab run --ntasks 4",
            "dataset": "lab-alpha.nc",
            "started": "2026-11-20T21:47:57Z",
            "stopped because": "converged",
            "complete": "yes",
            "seed": "20261120",
            "schema": "lab/1",
            "Sonde": "0.1.0",
        }
    ]
    assert {k: v.replace("\u00a0", " ") for k, v in report.machine.items()} == {
        "Hosts": "n[001-002]",
        "CPU model": "EPYC 7543",
        "Memory": "256 GiB",
        "Load average": "0.5, 0.25, 0.125",
        "Clock source": "tsc",
        "Governor": "performance",
    }


def test_warnings_of_file_and_room_are_reported_once(lab, dataset):
    one = dataset("a.nc", (("net.oversubscribed", "8 ranks on 2 cores", "ask for fewer"),))
    two = dataset(
        "b.nc", (("net.oversubscribed", "8 ranks on 2 cores", "ask for fewer"), ("core.governor", "x", ""))
    )
    assert collected(one, two).warnings == [
        Warning("net.oversubscribed", "8 ranks on 2 cores", "ask for fewer"),
        Warning("core.governor", "x", ""),
    ]


def test_a_warning_of_one_of_several_datasets_says_whose_it_is(lab, dataset):
    shared = ("net.oversubscribed", "8 ranks on 2 cores", "ask for fewer")
    report = collected(dataset("a.nc", (shared,)), dataset("b.nc", (shared, ("core.governor", "x", ""))))
    assert report.told_by == {("core.governor", "x"): ["b.nc"]}
    assert collected(dataset("c.nc", (shared,))).told_by == {}


def test_memory_is_reported_in_three_digits(lab, dataset):
    assert collected(dataset(memory_b=25276502016)).machine["Memory"] == "23.5 GiB"


def test_several_datasets_keep_their_order_and_say_where_the_machines_differ(lab, dataset):
    lab.ranks = 32
    report = collected(dataset("b.nc", cpu_model="X"), dataset("a.nc", cpu_model="Y"))
    assert [run["dataset"] for run in report.runs] == ["b.nc", "a.nc"]
    assert report.machine["CPU model"] == "X (b.nc); Y (a.nc)"
    assert report.verdict.startswith("4 findings in 2 of 2 datasets")
    assert len(report.method) == 3


def test_a_room_without_figures_is_refused_by_name(dataset):
    with pytest.raises(DataError) as refused:
        collected(dataset(schema="tomorrow/1"))
    assert refused.value.code == "report.no_figures"
    assert "'lab-alpha.nc' belongs to the room 'tomorrow'" in refused.value.what


def test_the_machine_begins_with_what_is_asked_first_and_ends_with_what_is_not_known(lab, dataset):
    report = collected(dataset(aslr=2, cpu="EPYC", turbo="unknown", bios="unknown", job_id="none"))
    names = list(report.machine)
    assert names[:2] == ["Hosts", "CPU"]
    assert report.machine["ASLR"] == "2"
    assert names[-1] == "Not known"
    assert set(report.machine["Not known"].split(", ")) == {"BIOS", "Turbo"}
    assert "job" not in report.runs[0]


@pytest.mark.parametrize(("kept", "told"), [(1, "yes"), (0, "no")])
def test_truths_are_reported_as_yes_and_no(lab, dataset, kept, told):
    report = collected(dataset(oversubscribed=kept, complete=kept))
    assert report.machine["Oversubscribed"] == told
    assert report.runs[0]["complete"] == told


def test_attributes_meant_for_programs_are_left_out(lab, dataset):
    told = collected(dataset(clustbench='{"files": {' + '"x": 1, ' * 50 + "}}", plan='{"n": 4}')).machine
    assert "Clustbench" not in told
    assert told["Plan"] == '{"n": 4}'


def test_a_very_long_value_is_cut(lab, dataset):
    report = collected(dataset(cpu_flags=" ".join(["avx512"] * 500)))
    assert len(report.machine["CPU flags"]) == collect.LONGEST
    assert report.machine["CPU flags"].endswith("…")


def test_the_headline_tells_when_the_runs_began_not_when_the_page_was_made(lab, dataset):
    later = dataset("b.nc", created_utc="2026-11-21T03:04:05Z")
    report = collected(dataset(), later, created_utc="now")
    assert report.measured_utc == "2026-11-20 21:47 UTC to 2026-11-21 03:04 UTC"


def test_what_means_nothing_of_a_run_is_not_reported(lab, dataset):
    with core_dataset.open(dataset()) as tree:
        made = collect.section("a.nc", tree)
        assert "seed" in collect.run("a.nc", tree, made)
        made.untold = ("seed",)
        assert "seed" not in collect.run("a.nc", tree, made)

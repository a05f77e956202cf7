import numpy as np
import pytest

from sonde.core.errors import Finding, Warning
from sonde.core.section import Method, Section
from sonde.report import page


def test_one_section_speaks_for_the_report():
    assert page.verdict_of([Section("net", "t", "All links are alike.")]) == "All links are alike."


def test_nothing_measured():
    assert page.verdict_of([]) == "Nothing was measured."


def test_several_sections_are_counted():
    found = Section("net", "Latency", "bad", findings=[Finding("a", "b"), Finding("c", "d")])
    clear = Section("net", "Other", "good")
    assert page.verdict_of([clear, clear]) == "No findings in 2 datasets."
    assert page.verdict_of([clear, found]) == "2 findings in 1 of 2 datasets: Latency."


def test_no_findings_in_doubtful_datasets_are_no_praise():
    clear, doubtful = Section("net", "a", "v"), Section("net", "b", "v", doubt="Nothing converged")
    assert "in 1 of 2 datasets to be sure" in page.verdict_of([clear, doubtful])
    assert "in them to be sure" in page.verdict_of([doubtful, doubtful])
    assert page.Report("t", "v", [doubtful, doubtful]).doubt == "Nothing converged"
    assert page.Report("t", "v", [clear]).doubt == ""


def test_anchors_are_unique_and_safe():
    sections = [
        Section("net", "", ""),
        Section("net", "", ""),
        Section('"><script>', "", ""),
        Section("…", "", ""),
    ]
    assert page.anchors(sections) == ["net", "net-2", "script", "section"]


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("median_s", 2.5e-6, ("median", "2.5 µs")),
        ("size_b", 65536, ("size", "64 KiB")),
        ("sizes", [8, 65536], ("sizes", "8 B to 64 KiB")),
        ("ci_s", [1e-6, 2e-6], ("ci", "1 µs to 2 µs")),
        ("hosts", ["n1", "n2", "n3"], ("hosts", "n1, n2, n3")),
        ("ranks", list(range(20)), ("ranks", "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 8 more")),
        ("slowdown_pct", 4.25, ("slowdown", "4.25 %")),
        ("n", np.int64(12), ("n", "12")),
        ("p", None, ("p", "–")),
        ("by_rank", {"3": 1, "4": 2}, ("by rank", "3: 1, 4: 2")),
        ("_s", 3, (" s", "3")),
    ],
)
def test_evidence_is_reported_in_its_unit(key, value, told):
    ((name, text),) = page.evidence(Finding("code", "text", {key: value}))
    assert (name, text.replace("\u00a0", " ")) == told


def test_methods_are_reported_once():
    a, b = Method("median", "x", "y"), Method("links", "x")
    assert page.merge_methods([[a, b], [Method("median", "other")], []]) == [a, b]


def test_machines_that_differ_say_in_what():
    merged = page.merge_machines(
        {"a.nc": {"CPU": "x", "Kernel": "6.1"}, "b.nc": {"CPU": "x", "Kernel": "6.2"}}
    )
    assert merged == {"CPU": "x", "Kernel": "6.1 (a.nc); 6.2 (b.nc)"}


def test_warnings_of_one_kind_are_one_with_examples_and_a_count():
    said = [Warning("a", f"cell {k}", "wait") for k in range(6)]
    told_by = {("a", "cell 0"): ["x.nc"]}
    report = page.Report("t", "v", warnings=[*said, Warning("b", "once", "")], told_by=told_by)
    many, one = page.group_warnings(report)
    assert many == page.WarningGroup("a", "wait", [("x.nc", "cell 0"), ("", "cell 1"), ("", "cell 2")], 3)
    assert one == page.WarningGroup("b", "", [("", "once")])


def test_a_group_of_warnings_is_one_for_the_terminal():
    group = page.WarningGroup("a", "wait", [("x.nc", "cell 0"), ("", "cell 1"), ("", "cell 2")], 3)
    said = "6 of one kind: cell 0 (x.nc); cell 1; cell 2; and 3 more"
    assert group.as_one() == Warning("a", said, "wait")
    two = page.WarningGroup("a", "wait", [("x.nc", "cell 0"), ("y.nc", "cell 1")])
    assert two.as_one().evidence == "cell 0 (x.nc); cell 1 (y.nc)"
    assert page.WarningGroup("b", "", [("", "once")]).as_one() == Warning("b", "once", "")


def test_warnings_with_different_hints_stay_apart():
    report = page.Report("t", "v", warnings=[Warning("a", "x", "do this"), Warning("a", "y", "do that")])
    assert len(page.group_warnings(report)) == 2


def test_runs_tell_once_what_they_have_in_common():
    one, two = {"command": "c", "mode": "m", "rule": "r"}, {"command": "c", "mode": "n"}
    assert page.split_runs([one, two]) == (
        {"command": "c"},
        [{"mode": "m", "rule": "r"}, {"mode": "n", "rule": "–"}],
    )
    assert page.split_runs([one]) == (one, [])
    assert page.split_runs([]) == ({}, [])

"""What a summary comes to in words: sentence, numbers, findings, warnings and tables."""

import json
import math
import re

import numpy as np
import pytest
import xarray as xr

from sonde.core.errors import UsageError
from sonde.core.status import CAP, CONVERGED, DRIFT, NOT_MEASURED, UNDECIDED
from sonde.core.units import format_duration
from sonde.net import verdict
from sonde.net.analyse import analyse, structure
from sonde.net.synthetic import Network, summary_of_medians


@pytest.fixture(scope="module")
def slow() -> xr.Dataset:
    """A network of 12 ranks whose link 3–9 is 40 % slower."""
    return analyse(Network(ranks=12, sizes=(8, 1024), slow_links={(3, 9): 1.4}).raw(20, 15, seed=1))


def flat(ranks: int = 3, sizes: tuple[int, ...] = (8, 1024), value_s: float = 2e-6) -> xr.Dataset:
    """A summary in which every median is the same and known exactly."""
    medians = np.full((ranks, ranks, len(sizes), 8), value_s)
    medians[range(ranks), range(ranks)] = np.nan
    return summary_of_medians(sizes, medians)


def with_status(summary: xr.Dataset, *codes: int) -> xr.Dataset:
    """The summary with these codes in its first measured cells, CONVERGED in the rest."""
    status = np.where(np.isfinite(summary["median"].values), CONVERGED, NOT_MEASURED).astype(np.int8)
    for cell, code in zip(np.argwhere(status == CONVERGED), codes):
        status[tuple(cell)] = code
    return summary.assign(status=(("src", "dst", "size"), status))


def link(summary: xr.Dataset, **row) -> xr.Dataset:
    """The summary with one row of what is slow."""
    facts = {
        "subject": "link",
        "src": 0,
        "dst": 1,
        "host": "",
        "size_low": 8,
        "size_high": 1024,
        "ratio": 1.5,
        "ratio_low": 1.4,
        "ratio_high": 1.6,
        "expected": 1e-6,
        "p": 1e-6,
        "q": 1e-4,
        **row,
    }
    return summary.assign({f"link_{name}": ("link", np.array([value])) for name, value in facts.items()})


class TestSizes:
    @pytest.mark.parametrize(
        ("sizes", "text"),
        [([], "no size"), ([8], "8 B"), ([8, 65536], "8 B to 64 KiB"), ([65536, 8, 9], "8 B to 64 KiB")],
    )
    def test_text(self, sizes, text):
        assert verdict.sizes_text(sizes) == text
        assert verdict.sizes_text(np.array(sizes, int)) == text


class TestCounts:
    def test_each_decision_is_counted(self):
        summary = with_status(flat(), CAP, CAP, DRIFT, UNDECIDED)
        assert verdict.counts(summary) == {
            "cells": 12,
            "converged": 8,
            "capped": 2,
            "drift": 1,
            "undecided": 1,
        }

    def test_cells_that_were_not_measured_do_not_count(self):
        assert verdict.counts(with_status(flat(), NOT_MEASURED))["cells"] == 11

    def test_without_status_there_are_cells_alone(self):
        assert verdict.counts(flat()) == {"cells": 12}


class TestValues:
    def test_medians(self):
        summary = flat()
        summary["median"][0, 1, 0], summary["median"][1, 0, 0] = 1e-6, 9e-6
        assert verdict.values(summary)["median_s"] == {"min": 1e-6, "median": 2e-6, "max": 9e-6}

    def test_slow_links_are_the_evidence_of_the_findings(self, slow):
        (row,) = verdict.values(slow)["slow_links"]
        assert (row["src"], row["dst"]) == (3, 9)
        assert row["ci"][0] < 1.4 < row["ci"][1]

    def test_they_are_plain_json(self, slow):
        told = json.loads(json.dumps(verdict.values(slow), allow_nan=False))
        assert sum(row["links"] for row in told["classes"]) == 12 * 11 // 2
        assert all(math.isfinite(m) for row in told["classes"] for m in row["median_s"].values())

    def test_nothing_measured_is_null_not_nan(self):
        told = verdict.values(flat(value_s=np.nan))
        assert told["median_s"] == {"min": None, "median": None, "max": None}
        assert told["cells"] == 0
        assert told["slow_links"] == []


class TestSentence:
    def test_plain(self):
        assert verdict.sentence(flat()) == (
            "3 ranks, 8 B to 1 KiB: median delay 2.00 µs (2.00 µs to 2.00 µs between cells)."
        )

    def test_nothing_measured(self):
        assert verdict.sentence(flat(value_s=np.nan)) == "No delay was measured."

    def test_slow_link_and_classes(self, slow):
        told = verdict.sentence(slow, "a.nc")
        assert "link 3–9 is" in told
        assert f"{slow.sizes['link_class']} classes of links" in told
        assert "no slow link" not in told

    def test_many_slow_links_are_counted_not_listed(self):
        one = link(flat())
        five = xr.concat(
            [one[[name for name in one if name.startswith("link_")]]] * 5, "link", data_vars="all"
        )
        told = verdict.sentence(flat().merge(five))
        assert told.count("slower than its class") == 2
        assert "and 3 more" in told

    def test_silence_says_what_it_could_have_heard(self):
        assert "no slow link (one that is 12% slower is detectable)" in verdict.sentence(
            flat().assign_attrs(detectable_slowdown=0.12)
        )

    def test_no_word_of_slow_links_where_none_could_be_found(self):
        assert "slow link" not in verdict.sentence(flat().assign_attrs(detectable_slowdown=np.nan))

    def test_cells_that_did_not_converge(self):
        assert verdict.sentence(with_status(flat(), CAP)).endswith("; 11 of 12 cells converged.")
        assert "converged" not in verdict.sentence(with_status(flat()))


class TestFindings:
    def test_slow_link(self, slow):
        (found,) = verdict.findings(slow, "a.nc")
        assert found.code == "net.slow_link"
        assert found.next == "sonde net show a.nc --pair 3,9"
        assert found.evidence["sizes"] == [8, 1024]
        assert found.evidence["q"] <= 0.05

    def test_direction_shows_only_where_there_is_one(self):
        both, one = link(flat()), link(flat().assign_attrs(value="one_way"))
        assert verdict.findings(both)[0].text == (
            "link 0–1 is 50% slower than its class and ranks explain at 8 B to 1 KiB"
        )
        assert "link 0→1" in verdict.findings(one)[0].text

    def test_slow_host_is_to_be_left_out(self):
        (found,) = verdict.findings(link(flat(), subject="host", src=-1, dst=-1, host="n007"))
        assert found.code == "net.slow_host"
        assert found.evidence["host"] == "n007"
        assert "--hosts '^n007'" in found.next

    @pytest.mark.parametrize("rank", [0, 1, 2])
    def test_slow_rank_is_looked_at_with_a_rank_that_is_there(self, rank):
        (found,) = verdict.findings(link(flat(), subject="rank", src=rank, dst=rank, host="n001"), "a.nc")
        assert found.code == "net.slow_rank"
        assert f"rank {rank} on n001" in found.text
        pair = [int(end) for end in found.next.split()[-1].split(",")]
        assert pair[0] == rank
        verdict.pair_table(flat(), *pair)

    def test_rank_on_an_unknown_host(self):
        (found,) = verdict.findings(link(flat(), subject="rank", src=1, dst=1))
        assert "rank 1 are" in found.text

    @pytest.mark.parametrize("attribute", [1, "1", True, "True"])
    def test_shared_cores_make_no_finding_but_a_warning(self, attribute):
        summary = link(flat()).assign_attrs(oversubscribed=attribute)
        assert verdict.findings(summary) == []
        assert [w.code for w in verdict.warnings(summary)] == ["net.slow_or_shared"]

    @pytest.mark.parametrize(
        ("mode", "crowded"), [("one_to_one", False), ("put", False), ("all_to_all", True), ("noise", True)]
    )
    def test_nodes_of_one_kernel_hold_up_each_other_where_all_send_at_the_same_time(self, mode, crowded):
        summary = link(flat()).assign_attrs(mode=mode, crowded_kernel=1)
        assert verdict.oversubscribed(summary) is crowded
        assert (verdict.findings(summary) == []) is crowded
        assert verdict.oversubscribed(summary.assign_attrs(crowded_kernel=0)) is False

    @pytest.mark.parametrize("attribute", [0, "0", False, "False", ""])
    def test_ranks_with_cores_of_their_own(self, attribute):
        assert not verdict.oversubscribed(flat().assign_attrs(oversubscribed=attribute))
        assert not verdict.oversubscribed(flat())


def undecided(known_to: float, **attrs) -> xr.Dataset:
    """A summary of which no cell converged, each median known to +- known_to."""
    summary = with_status(flat(), *[UNDECIDED] * 12).assign_attrs(attrs)
    for name, side in (("median_low", 1 - known_to), ("median_high", 1 + known_to)):
        summary[name] = summary["median"] * side
    return summary


class TestSoundness:
    def test_a_run_whose_cells_converged_is_sound(self):
        assert verdict.sound(with_status(flat()))
        assert verdict.doubt(with_status(flat())) == ""

    def test_without_a_rule_or_without_cells_there_is_nothing_to_doubt(self):
        assert verdict.sound(flat())
        assert verdict.sound(with_status(flat(value_s=np.nan)))

    @pytest.mark.parametrize(("stopped", "sound"), [(6, True), (7, False), (12, False)])
    def test_half_of_the_cells_must_have_converged(self, stopped, sound):
        assert verdict.sound(with_status(flat(), *[UNDECIDED] * stopped)) is sound

    def test_nothing_converged_is_reported_with_what_to_type_next(self):
        summary = undecided(0.03, rule="ci:1%", command="sonde net run --ntasks 4 --budget 30s -o a.nc")
        told = verdict.sentence(summary)
        assert "none of 12 cells converged" in told
        assert "--budget 5min" in told, "nine times the time narrows an interval to a third"
        assert "--rule ci:5%" in told
        assert verdict.doubt(summary) == "Nothing converged"

    def test_few_converged(self):
        summary = with_status(flat(), *[UNDECIDED] * 10)
        assert "only 2 of 12 cells converged" in verdict.sentence(summary)
        assert verdict.doubt(summary) == "2 of 12 converged"

    def test_a_rule_without_a_precision_names_no_numbers(self):
        told = verdict.advice(undecided(0.03, rule="spectral"))
        assert told == "measure longer (--budget) or choose a coarser --rule"

    def test_no_time_is_named_that_nobody_would_wait(self):
        told = verdict.advice(undecided(0.3, rule="ci:1%", command="sonde net run --budget=10min"))
        assert told == "measure longer (--budget)", "and no precision of 50 % is offered"

    def test_a_survey_has_no_rule_to_choose(self):
        summary = undecided(0.03, rule="ci:1%", command="sonde survey --budget 60s")
        assert verdict.advice(summary) == "measure longer (--budget 10min)"

    def test_a_budget_that_nobody_can_read_is_left_out(self):
        told = verdict.advice(undecided(0.03, rule="ci:1%", command="sonde net run --budget soon"))
        assert told.startswith("measure longer (--budget) ")

    def test_capped_cells_need_a_higher_cap_and_drift_a_quiet_machine(self):
        capped, drifted = (with_status(flat(), *[code] * 12) for code in (CAP, DRIFT))
        assert "--cap" in verdict.advice(capped)
        assert "--budget" not in verdict.advice(capped)
        assert "quiet" in verdict.advice(drifted)


class TestWarnings:
    def codes(self, summary: xr.Dataset) -> list[str]:
        return [warning.code for warning in verdict.warnings(summary)]

    def test_plain_summary_has_none(self):
        assert self.codes(flat()) == []

    def test_laws_of_a_part_of_the_cells(self):
        summary = flat().assign_attrs(fitted_cells=5, measured_cells=12)
        assert self.codes(summary) == ["net.sampled_cells"]
        assert "5 of 12 cells" in verdict.warnings(summary)[0].evidence
        assert self.codes(flat().assign_attrs(fitted_cells=12, measured_cells=12)) == []

    @pytest.mark.parametrize("name", ["cyclic", "outlier"])
    def test_periods_that_survive_the_false_discovery_control(self, name):
        p = np.full((3, 3, 2), np.nan)
        p[~np.eye(3, dtype=bool)] = 0.5
        quiet = flat().assign({f"{name}_p": (("src", "dst", "size"), p)})
        period = xr.full_like(quiet["median"], 0.004).assign_attrs(units="s")
        quiet[f"{name}_period"] = period
        assert self.codes(quiet) == []
        loud = quiet.copy(deep=True)
        loud[f"{name}_p"][0, 1, :] = 1e-9
        assert self.codes(loud) == [f"net.{name}"]
        assert "2 of 12 analysed cells" in verdict.warnings(loud)[0].evidence
        assert "4.00 ms" in verdict.warnings(loud)[0].evidence

    @pytest.mark.parametrize(
        ("period_s", "named"),
        [(8.45e-6, "the exchange"), (0.99e-3, "the exchange"), (1e-3, "a daemon"), (1.0, "a daemon")],
    )
    def test_a_rhythm_of_a_few_round_trips_is_not_laid_to_a_daemon(self, period_s, named):
        p = np.full((3, 3, 2), np.nan)
        p[~np.eye(3, dtype=bool)] = 1e-9
        summary = flat().assign(cyclic_p=(("src", "dst", "size"), p))
        summary["cyclic_period"] = xr.full_like(summary["median"], period_s)
        (told,) = verdict.warnings(summary)
        assert [word for word in ("the exchange", "a daemon") if word in told.hint.split(", not")[0]] == [
            named
        ]

    def test_a_period_in_samples_alone_is_reported_in_samples(self):
        p = np.full((3, 3, 2), np.nan)
        p[~np.eye(3, dtype=bool)] = 1e-9
        summary = flat().assign(cyclic_p=(("src", "dst", "size"), p))
        summary["cyclic_samples"] = xr.full_like(summary["median"], 7.0)
        assert "every 7 samples" in verdict.warnings(summary)[0].evidence

    def test_one_low_p_among_many_is_no_discovery(self):
        p = np.full((3, 3, 2), np.nan)
        p[~np.eye(3, dtype=bool)] = 0.5
        p[0, 1, 0] = 0.009
        summary = flat().assign(cyclic_p=(("src", "dst", "size"), p))
        summary["cyclic_period"] = xr.full_like(summary["median"], 1.0)
        assert self.codes(summary) == []

    def test_machine_event(self):
        summary = flat().assign(
            event_t=("event", [12.5]), event_ratio=("event", [1.5]), event_share=("event", [0.8])
        )
        assert self.codes(summary) == ["net.machine_event"]
        told = verdict.warnings(summary)[0].evidence
        assert "12.5 s" in told
        assert "1.50 times" in told
        assert "80% of cells" in told

    def test_many_machine_events_make_one_warning_with_the_largest_first(self):
        summary = flat().assign(
            event_t=("event", [2.0, 5.0, 9.0, 11.0, 14.0]),
            event_ratio=("event", [1.1, 0.4, 1.9, 1.06, 0.8]),
            event_share=("event", [0.9, 0.8, 1.0, 0.9, 0.9]),
        )
        assert self.codes(summary) == ["net.machine_event"]
        told = verdict.warnings(summary)[0].evidence
        assert "5 times" in told
        assert "largest: from 5.00 s on delays are 0.40 times" in told
        assert told.count(" s on") == 3, "the largest and two examples more"
        assert summary.sizes["event"] == 5, "the dataset keeps them all"

    def test_why_slow_links_were_not_looked_for(self):
        summary = flat().assign_attrs(slow_links_note="too few links")
        assert self.codes(summary) == ["net.slow_links_limited"]


class TestTables:
    def test_by_size(self):
        (table,) = verdict.tables(flat())
        assert [row[0] for row in table.rows] == ["8 B", "1 KiB"]
        assert table.rows[0][1:4] == ["2.00 µs"] * 3
        assert table.rows[0][5] == "6"
        assert table.note == ""

    def test_size_without_data_is_dashes(self):
        summary = flat()
        summary["median"][..., 1] = np.nan
        assert verdict.tables(summary)[0].rows[1] == ["1 KiB", "—", "—", "—", "—", "0"]

    def test_many_sizes_are_thinned_with_both_ends_kept(self):
        (table,) = verdict.tables(flat(sizes=tuple(range(0, 1000, 10))))
        assert len(table.rows) == verdict.MOST_ROWS
        assert (table.rows[0][0], table.rows[-1][0]) == ("0 B", "990 B")
        assert table.note == f"{verdict.MOST_ROWS} of 100 sizes"

    def test_medians_without_intervals(self):
        (table,) = verdict.tables(flat()[["median"]])
        assert [row[4] for row in table.rows] == ["—", "—"]

    def test_classes(self, slow):
        by_class = verdict.tables(slow)[1]
        assert len(by_class.rows) == slow.sizes["link_class"]
        assert all(len(row) == len(by_class.columns) for row in by_class.rows)

    def test_every_row_is_text_as_wide_as_its_head(self, slow):
        for table in [*verdict.tables(slow), verdict.pair_table(slow, 0, 1)]:
            for row in table.rows:
                assert len(row) == len(table.columns)
                assert all(isinstance(cell, str) for cell in row)


class TestPairTable:
    def test_direction_counts(self):
        summary = flat()
        summary["median"][0, 1, 0], summary["median"][1, 0, 0] = 1e-6, 9e-6
        assert verdict.pair_table(summary, 0, 1).rows[0][1] == "1.00 µs"
        assert verdict.pair_table(summary, 1, 0).rows[0][1] == "9.00 µs"

    @pytest.mark.parametrize(
        ("low", "high", "text"),
        [
            (2.03e-6, 2.04e-6, "2.03–2.04 µs"),
            (9.6e-7, 1.04e-6, "960 ns–1.04 µs"),
            (float("nan"), 1e-6, "–"),
            (50.0, 61.0, f"{format_duration(50.0)}–{format_duration(61.0)}"),
        ],
    )
    def test_an_interval_names_its_unit_once(self, low, high, text):
        assert verdict._interval(low, high) == text

    def test_interval_samples_and_ratio(self, slow):
        table = verdict.pair_table(slow, 3, 9)
        assert table.title == "3→9 (n001 to n004)"
        column = {name: k for k, name in enumerate(table.columns)}
        assert [row[0] for row in table.rows] == ["8 B", "1 KiB"]
        for row in table.rows:
            assert re.fullmatch(r"\S+–\S+ µs", row[column["95 % interval"]])
            assert row[column["n"]] == "300"
            assert float(row[column["ratio"]]) == pytest.approx(1.4, rel=0.1)

    def test_size_without_data_has_no_row(self):
        summary = flat()
        summary["median"][0, 1, 0] = np.nan
        assert [row[0] for row in verdict.pair_table(summary, 0, 1).rows] == ["1 KiB"]
        assert len(verdict.pair_table(summary, 1, 0).rows) == 2

    def test_medians_alone(self):
        row = verdict.pair_table(flat()[["median"]], 0, 1).rows[0]
        assert row == ("8 B", "2.00 µs", "–", "–", "–", "–", "–", "–")

    @pytest.mark.parametrize("pair", [(0, 3), (3, 0), (-1, 0)])
    def test_pair_that_is_not_there(self, pair):
        with pytest.raises(UsageError, match="the ranks are 0 to 2") as told:
            verdict.pair_table(flat(), *pair)
        assert told.value.code == "net.bad_pair"


@pytest.fixture(scope="module")
def summary():
    net = Network(ranks=16, slow_links={(3, 9): 1.4}, slow_ranks={12: 1.5})
    return structure(net.summary(20, np.random.default_rng(4)))


def test_findings_name_link_and_rank_with_evidence_and_what_to_type(summary):
    found = {f.code: f for f in verdict.findings(summary, "a.nc")}
    link, rank = found["net.slow_link"], found["net.slow_rank"]
    assert "3–9" in link.text
    assert link.next == "sonde net show a.nc --pair 3,9"
    assert link.evidence["ratio"] == pytest.approx(1.4, rel=0.06)
    assert link.evidence["ci"][0] < link.evidence["ratio"] < link.evidence["ci"][1]
    assert link.evidence["q"] <= 0.05
    assert rank.evidence["rank"] == 12
    assert "n006" in rank.text


def test_sentence_is_one_sentence_and_ends(summary):
    text = verdict.sentence(summary)
    assert text.endswith(".")
    assert "16 ranks, 8 B to 64 KiB" in text
    assert "slower" in text


def test_without_slow_links_it_says_what_would_have_been_found():
    text = verdict.sentence(structure(Network(ranks=16).summary(20, np.random.default_rng(5))))
    assert "no slow link" in text
    assert "is detectable" in text


def test_shared_cores_leave_no_findings(summary):
    shared = summary.assign_attrs(oversubscribed=1)
    assert verdict.findings(shared) == []
    assert next(w.code for w in verdict.warnings(shared)) == "net.slow_or_shared"
    assert verdict.oversubscribed(summary.assign_attrs(oversubscribed=0)) is False


def test_values_can_be_json(summary):
    import json

    values = verdict.values(summary)
    text = json.loads(json.dumps(values))
    assert text["cells"] == 720
    assert text["median_s"]["min"] <= text["median_s"]["median"] <= text["median_s"]["max"]
    assert sum(row["links"] for row in text["classes"]) == 120


def test_counts_follow_status(summary):
    status = np.ones((16, 16, 3), np.int8)
    status[range(16), range(16)] = 0
    status[0, 1] = [2, 3, 4]
    told = verdict.counts(summary.assign(status=(("src", "dst", "size"), status)))
    assert told == {"cells": 720, "converged": 717, "capped": 1, "drift": 1, "undecided": 1}


def test_tables_have_a_row_a_size_and_a_row_a_class(summary):
    by_size, by_class = verdict.tables(summary)
    assert [row[0] for row in by_size.rows] == ["8 B", "1 KiB", "64 KiB"]
    assert all(len(row) == len(by_size.columns) for row in by_size.rows)
    assert len(by_class.rows) == summary.sizes["link_class"] == 2


def test_sizes_are_named_by_their_ends():
    assert verdict.sizes_text([]) == "no size"
    assert verdict.sizes_text([64]) == "64 B"
    assert verdict.sizes_text(np.array([8, 1024])) == "8 B to 1 KiB"


def test_errors_of_clocks_are_reported_where_they_matter():
    summary = Network(ranks=4, ranks_per_host=1, sizes=(8, 64)).summary(20, np.random.default_rng(0))
    delay = float(np.nanmedian(summary["median"].values))

    def codes(**attrs):
        return [one.code for one in verdict.warnings(one_way.assign_attrs(**attrs))]

    one_way = summary.assign_attrs(value="one_way")
    assert codes() == ["net.unknown_clocks"]
    one_way["clock_error"] = ("rank", [0.0, 0.01 * delay, 0.01 * delay, 0.01 * delay])
    assert codes() == []
    one_way["clock_error"] = ("rank", [0.0, 0.7 * delay, 0.1 * delay, np.nan])
    assert codes() == ["net.clock_error"]
    (warning,) = verdict.warnings(one_way)
    assert f"±{format_duration(0.7 * delay)}" in warning.evidence
    assert "--value rtt_half" in warning.hint
    assert codes(value="rtt_half") == []


class TestRhythms:
    """Questions of the source about single delays, with pair and length: on the terminal, in check and in JSON."""

    def planted(self) -> xr.Dataset:
        summary = flat()
        for name, spot, period in (("cyclic", (0, 1, 1), 0.004), ("outlier", (2, 0, 0), 1.5)):
            p = np.where(np.isfinite(summary["median"].values), 0.5, np.nan)
            p[spot] = 1e-9
            value = np.full(p.shape, np.nan)
            value[spot] = period
            summary[f"{name}_p"] = (("src", "dst", "size"), p)
            summary[f"{name}_period"] = (("src", "dst", "size"), value)
        summary["outlier_share"] = xr.full_like(summary["median"], 0.02)
        columns = {
            "src": [-1, 1],
            "dst": [-1, 2],
            "class": [0, -1],
            "size_low": [600, 8],
            "size_high": [650, 1024],
        }
        columns |= {"height": [3e-6, -1e-6], "ratio": [1.4, 0.8], "share": [1.0, np.nan], "p": [1e-12, 1e-5]}
        return summary.assign({f"jump_{name}": ("jump", np.array(of)) for name, of in columns.items()})

    def test_they_stand_in_json(self):
        values = verdict.values(self.planted())
        (cycle,) = values["cycles"]
        assert (cycle["src"], cycle["dst"], cycle["size"], cycle["period_s"]) == (0, 1, 1024, 0.004)
        assert cycle["period_samples"] is None
        (outlier,) = values["periodic_outliers"]
        assert (outlier["src"], outlier["dst"], outlier["size"]) == (2, 0, 8)
        assert (outlier["period_s"], outlier["share"]) == (1.5, 0.02)
        whole, pair = values["jumps"]
        assert (whole["src"], whole["link_class"], whole["size_low"], whole["size_high"]) == (
            None,
            0,
            600,
            650,
        )
        assert (whole["height_s"], whole["share"]) == (3e-6, 1.0)
        assert (pair["src"], pair["dst"], pair["link_class"], pair["share"]) == (1, 2, None, None)

    def test_they_are_a_table(self):
        (table,) = (t for t in verdict.tables(self.planted()) if t.title == verdict.RHYTHM_TITLE)
        assert list(table.rows) == [
            ("cycle", "0→1", "1 KiB", "every 4.00 ms"),
            ("periodic outliers", "2→0", "8 B", "every 1.50 s, 2.0 % of samples"),
            ("jump", "all", "600 B to 650 B", "+3.00 µs, 1.4 times, 100 % of pairs"),
            ("jump", "1→2", "8 B to 1 KiB", "−1.00 µs, 0.8 times"),
        ]

    def test_warnings_name_the_clearest(self):
        cyclic, outlier = verdict.warnings(self.planted())
        assert cyclic.evidence.endswith("; the clearest is 0→1 at 1 KiB, every 4.00 ms")
        assert outlier.evidence.endswith("; the clearest is 2→0 at 8 B, every 1.50 s")

    def test_where_there_are_none_there_is_no_table(self):
        values = verdict.values(flat())
        assert (values["cycles"], values["periodic_outliers"], values["jumps"]) == ([], [], [])
        assert verdict.rhythm_table(flat()) is None

    def test_of_many_the_terminal_has_the_clearest(self):
        summary = flat(ranks=5)
        p = np.where(np.isfinite(summary["median"].values), 1e-9, np.nan)
        p[3, 4, 1] = 1e-12
        summary["cyclic_p"] = (("src", "dst", "size"), p)
        summary["cyclic_samples"] = xr.full_like(summary["median"], 12.0)
        table = verdict.rhythm_table(summary)
        assert len(table.rows) == verdict.MAX_RHYTHM_ROWS
        assert table.rows[0] == ("cycle", "3→4", "1 KiB", "every 12 samples")
        assert table.note.startswith("and 35 of cycle more")
        assert len(verdict.values(summary)["cycles"]) == 40

    @pytest.mark.parametrize("verb", ["show", "check"])
    def test_show_and_check_have_them(self, verb, tmp_path, monkeypatch):
        from sonde.net import cli, figures

        planted = self.planted()
        path = tmp_path / "a.nc"
        xr.DataTree.from_dict({"/": xr.Dataset(attrs={"schema": "net/1", "room": "net"})}).to_netcdf(path)
        monkeypatch.setattr(figures, "summary_of", lambda tree: planted)
        outcome = getattr(cli, verb).main([str(path)], standalone_mode=False)
        assert verdict.RHYTHM_TITLE in [table.title for table in outcome.tables]
        assert {"net.cyclic", "net.outlier"} <= {warning.code for warning in outcome.warnings}
        assert len(outcome.as_json()["jumps"]) == 2

"""Lessons, rows and tables say what was planted, and nothing beyond it."""

from __future__ import annotations

import json
import math
from typing import ClassVar

import numpy as np
import pytest
from probe_runs import made, near, planned, sealed, summary_of, values_of

from sonde.bus import lessons, tables, verdict
from sonde.bus.cases import Case
from sonde.bus.variants import read_variant, variant_of

CYCLONE, MULTICAST, FAST, RAW, SERVER = (
    variant_of("cyclonedds", "udp4"),
    variant_of("cyclonedds", "multicast"),
    variant_of("fastdds", "udp4"),
    variant_of("raw", "udp4"),
    variant_of("fastdds", "udp4", "server"),
)


def lesson(told, code):
    return next(one for one in lessons.lessons(told) if one["code"] == f"bus.{code}")


class TestLatency:
    LEVELS: ClassVar = {CYCLONE: 30e-6, FAST: 60e-6, RAW: 10e-6}

    def level(self, variant, case, epoch, rng):
        return {"rtt": near(rng, self.LEVELS[variant])}

    def test_who_is_fastest_and_how_far_from_the_limit(self, tmp_path):
        told = values_of(tmp_path, planned([Case("latency", 64)], CYCLONE, FAST, RAW), self.level)
        assert "cyclonedds/udp4 at 64 B (30" in lesson(told, "latency")["text"]
        assert "cyclonedds/udp4 3.00 times" in lesson(told, "above_raw")["text"]

    def test_two_that_are_alike_are_both_named(self, tmp_path):
        def alike(variant, case, epoch, rng):
            return {"rtt": near(rng, 30e-6, jitter=0.05)}

        told = values_of(tmp_path, planned([Case("latency", 64)], CYCLONE, FAST), alike)
        assert "not significantly faster than" in lesson(told, "latency")["text"]


class TestKeys:
    """Two implementations with keys and without: each is held against its own."""

    KEYS: ClassVar = [
        read_variant(f"{name}={implementation},security=keys,identity=probe")
        for name, implementation in (("cs", "cyclonedds"), ("fs", "fastdds"))
    ]
    RTT: ClassVar = {"cyclonedds/udp4": 30e-6, "fastdds/udp4": 60e-6, "cs": 45e-6, "fs": 150e-6}
    PLAN = planned(
        [Case("latency", 64), Case("throughput", 64, 1, treatment="reliable")], CYCLONE, FAST, *KEYS
    )

    def level(self, variant, case, epoch, rng):
        cost = self.RTT[variant.name]
        if case.test == "latency":
            return {"rtt": near(rng, cost)}
        return {"message_rate": near(rng, 1 / cost, 1), "lost": 0.0}

    def test_the_ratio_is_over_the_same_without(self, tmp_path):
        told = values_of(tmp_path, self.PLAN, self.level)
        ratios = {
            v.way.name: (told.ways[v.base].name, v.ratio[0]) for v in told.keyed() if v.quantity == "rtt"
        }
        assert ratios == {
            "cs": ("cyclonedds/udp4", pytest.approx(1.5, rel=0.01)),
            "fs": ("fastdds/udp4", pytest.approx(2.5, rel=0.01)),
        }
        found = lesson(told, "keys")
        assert "cs relative to cyclonedds/udp4: 1.50 times" in found["text"]
        assert "fs relative to fastdds/udp4: 2.5" in found["text"]
        assert [row["against"] for row in found["evidence"]["ratios"]] == ["cyclonedds/udp4", "fastdds/udp4"]

    def test_of_a_rate_it_is_told_how_many_times_lower_it_is(self, tmp_path):
        summary = summary_of(tmp_path, self.PLAN, made(self.PLAN, self.level))
        table = tables.tables(summary)[-1]
        assert table.title == "Cost of keys, relative to the same variant without keys"
        assert table.columns == ("case", "cs", "fs")
        assert [row[1].split(" ")[0] for row in table.rows] == ["1.50", "1.50"]
        assert "cs relative to cyclonedds/udp4; fs relative to fastdds/udp4" in table.note

    def test_another_transport_is_not_the_same(self, tmp_path):
        other = planned([Case("latency", 64)], variant_of("fastdds", "shm"), self.KEYS[1])

        def level(variant, case, epoch, rng):
            return {"rtt": near(rng, 30e-6)}

        told = values_of(tmp_path, other, level)
        assert told.keyed() == []
        (keyed,) = (value for value in told.find("latency") if value.way.name == "fs")
        assert told.ways[keyed.base].name == "fastdds/shm"  # the first, as for any other
        assert not [one for one in lessons.lessons(told) if one["code"] == "bus.keys"]


class TestFanout:
    def test_slopes_are_those_that_were_planted(self, tmp_path):
        slope = {CYCLONE: 6e-6, MULTICAST: 0.0}

        def level(variant, case, epoch, rng):
            one = 5e-6 + slope[variant] * case.subscribers
            return {"publish": near(rng, one, 4), "last": near(rng, 2 * one, 4)}

        cases = [Case("fanout", 64, n) for n in (1, 4, 16)]
        told = values_of(tmp_path, planned(cases, CYCLONE, MULTICAST), level)
        lines = {way.name: line for way, _, line in lessons.fanout_lines(told)}
        assert lines["cyclonedds/udp4"].slope == pytest.approx(6e-6, rel=0.01)
        text = lesson(told, "fanout_publish")["text"]
        assert "cyclonedds/multicast nothing significant" in text
        assert (
            "cyclonedds/udp4 6.0" in text or "cyclonedds/udp4 5.9" in text or "cyclonedds/udp4 6 µs" in text
        )


class TestDiscovery:
    CASES: ClassVar = [Case("discovery", entities=n, treatment="all") for n in (8, 16, 32, 64, 96)]

    def told(self, tmp_path, simple, server=lambda n: 80 * n):
        def level(variant, case, epoch, rng):
            n = case.entities
            return {"datagrams": near(rng, server(n) if variant == SERVER else simple(n), 1, 0.02)}

        return values_of(tmp_path, planned(self.CASES, CYCLONE, FAST, SERVER), level, epochs=3)

    def test_a_planted_square_is_called_one(self, tmp_path):
        found = lesson(self.told(tmp_path, lambda n: 2.37 * n * n), "discovery_growth")
        assert found["evidence"]["quadratic"] is True
        assert found["evidence"]["exponential"] is False
        assert found["evidence"]["square"] == pytest.approx(2.37, rel=0.05)
        assert "the growth is quadratic" in found["text"]
        assert "an exponential fits worse" in found["text"]
        assert "2.37·N²" in found["text"]

    def test_a_planted_line_is_not(self, tmp_path):
        found = lesson(self.told(tmp_path, lambda n: 50.0 * n), "discovery_growth")
        assert found["evidence"]["quadratic"] is False
        assert "slower than quadratic" in found["text"]

    def test_an_exponential_is_called_one(self, tmp_path):
        found = lesson(self.told(tmp_path, lambda n: 20 * np.exp(0.08 * n)), "discovery_growth")
        assert "an exponential fits better" in found["text"]

    def test_from_how_many_on_a_server_pays(self, tmp_path):
        found = lesson(self.told(tmp_path, lambda n: 2.37 * n * n), "discovery_kinds")
        assert found["evidence"]["crossing"] == pytest.approx(80 / 2.37, rel=0.1)
        assert "it needs fewer datagrams with 64 participants or more" in found["text"]
        assert "with 96 participants" in found["text"]
        assert "1/2.8" in found["text"]

    @pytest.mark.parametrize(
        ("shape", "words"),
        [("star", "one writer and one reader on each"), ("all", "each matches all others")],
    )
    def test_it_says_who_was_to_match_whom(self, tmp_path, shape, words):
        cases = [Case("discovery", entities=n, treatment=shape) for n in (8, 16)]

        def level(variant, case, epoch, rng):
            n = case.entities
            return {"datagrams": near(rng, 80 * n if variant == SERVER else 9 * n * n, 1, 0.02)}

        told = values_of(tmp_path, planned(cases, FAST, SERVER), level, epochs=3)
        for code in ("discovery_growth", "discovery_kinds"):
            assert words in lesson(told, code)["text"]

    def test_a_visit_that_was_given_up_has_no_datagrams_and_is_reported(self, tmp_path):
        def level(variant, case, epoch, rng):
            if variant == SERVER and case.entities == 96:
                lost = {"datagrams": np.nan, "time_to_match": np.nan}
                return lost | {"matched": 0.25, "datagrams_unmatched": 52930.0}
            return {"datagrams": 100.0 * case.entities, "time_to_match": 1.0, "matched": 1.0}

        told = values_of(tmp_path, planned(self.CASES, FAST, SERVER), level, epochs=3)
        found = lesson(told, "discovery_unmatched")
        assert (found["evidence"]["participants"], found["evidence"]["matched"]) == (96, 0.25)
        assert "52930 datagrams" in found["text"]
        rows = [row for row in verdict.rows(told) if row["variant"] == SERVER.name and row["n"] == 96]
        assert {row["quantity"] for row in rows} == {"matched", "datagrams_unmatched"}
        assert all(row["lost"] is None for row in rows)
        kinds = lesson(told, "discovery_kinds")  # of the most that both have
        assert kinds["evidence"]["participants"] == 64

    def test_a_server_that_never_pays_is_not_praised(self, tmp_path):
        found = lesson(self.told(tmp_path, lambda n: 2.0 * n, lambda n: 80.0 * n), "discovery_kinds")
        assert "not fewer than" in found["text"]


class TestDivisions:
    def told(self, tmp_path, cost):
        cases = [
            Case("partitions", 64, entities=n, treatment=t)
            for n in (1, 32)
            for t in ("topic", "partition", "wildcard", "domain")
        ]

        def level(variant, case, epoch, rng):
            return {"publish": near(rng, 1e-5 * cost[case.treatment])}

        return values_of(tmp_path, planned(cases, CYCLONE), level)

    def test_what_costs_more_is_named(self, tmp_path):
        cost = {"topic": 1, "partition": 1, "wildcard": 1.5, "domain": 0.8}
        text = lesson(self.told(tmp_path, cost), "divisions")["text"]
        assert "wildcards 1.5" in text
        assert "domains 0.8" in text
        assert "partitions no significant difference" in text
        assert "with 32 groups" in text

    def test_too_few_epochs_are_reported_of_all_variants_in_one_sentence(self, tmp_path):
        cases = [Case("partitions", 64, entities=1, treatment=t) for t in ("topic", "partition", "wildcard")]

        def level(variant, case, epoch, rng):
            return {"publish": near(rng, 1e-5 * (2 if case.treatment == "wildcard" else 1), 1)}

        told = values_of(tmp_path, planned(cases, CYCLONE, MULTICAST), level, epochs=2)
        found = [one for one in lessons.lessons(told) if one["code"] == "bus.divisions"]
        assert [one["evidence"]["variant"] for one in found] == ["cyclonedds/udp4", "cyclonedds/multicast"]
        (together,) = lessons.merged_lessons(found)
        text = together["text"]
        assert text.startswith(
            "time of a publish with 1 group, relative to topics: cyclonedds/udp4 partitions about 1"
        )
        assert "wildcards about 2" in text
        assert "; cyclonedds/multicast partitions about 1" in text
        assert text.count("too few epochs for an interval") == 1
        other = {"code": "bus.loss", "text": "x", "evidence": {}, "brief": None}
        assert [one["text"] for one in lessons.merged_lessons([found[0], other, found[1]])] == [
            found[0]["text"],
            "x",
            found[1]["text"],
        ]
        assert all(
            set(one) == {"code", "text", "evidence"} for one in verdict.values(told.summary)["lessons"]
        )


@pytest.mark.parametrize(("epochs", "shown"), [(2, False), (6, True)])
def test_an_interval_of_few_epochs_is_not_shown(tmp_path, epochs, shown):
    plan = planned([Case("latency", 64)], CYCLONE)
    told = values_of(
        tmp_path, plan, lambda variant, case, epoch, rng: {"rtt": near(rng, 30e-6)}, epochs=epochs
    )
    (value,) = told.find("latency")
    assert (math.isfinite(value.low), math.isfinite(value.ends[0])) == (True, shown)
    assert ("95 %" in tables.case_tables(told.summary, "latency")[0].columns) == shown
    assert ("(" in tables.tables(told.summary, intervals=True)[0].rows[0][1]) == shown


class TestThroughput:
    CASES: ClassVar = [Case("throughput", 64, 1, treatment=t) for t in ("reliable", "best-effort")]

    def level(self, variant, case, epoch, rng):
        if case.treatment == "reliable":
            return {"message_rate": near(rng, 3e5, 1), "byte_rate": near(rng, 64 * 3e5, 1), "lost": 0.0}
        return {"message_rate": near(rng, 9e5, 1), "byte_rate": near(rng, 64 * 9e5, 1), "lost": 0.08}

    def test_a_rate_with_loss_is_not_called_the_best(self, tmp_path):
        told = values_of(tmp_path, planned(self.CASES, CYCLONE), self.level)
        text = lesson(told, "message_rate")["text"]
        assert "300 k messages/s" in text
        assert "reliable" in text
        assert "8.0 %" in lesson(told, "loss")["text"]

    def test_loss_stands_beside_each_rate(self, tmp_path):
        plan = planned(self.CASES, CYCLONE)
        summary = summary_of(tmp_path, plan, made(plan, self.level))
        rows = [row for row in verdict.values(summary)["results"] if row["quantity"] == "message_rate"]
        assert {row["treatment"]: row["lost"] for row in rows} == {
            "reliable": 0.0,
            "best-effort": pytest.approx(0.08),
        }
        by_title = {table.title: table for table in tables.tables(summary)}
        rates = by_title["Throughput, 1 subscriber, 64 B: messages a second to each subscriber"]
        assert any(cell.startswith(tables.LOSSY) for row in rates.rows for cell in row)
        assert "Throughput, 1 subscriber, 64 B: share lost" in by_title


class TestOutput:
    PLAN = planned([Case("latency", 64), Case("latency", 1024)], CYCLONE, FAST, RAW)

    def level(self, variant, case, epoch, rng):
        return {
            "rtt": near(rng, TestLatency.LEVELS[variant] * (1 + case.size / 1e4)),
            "cycles": near(rng, 9000),
        }

    def test_rows_have_what_the_contract_says(self, tmp_path):
        summary = summary_of(tmp_path, self.PLAN, made(self.PLAN, self.level))
        values = verdict.values(summary)
        json.dumps(values, allow_nan=False)
        assert values["cells"] == 6
        assert values["converged"] == 6
        assert len(values["results"]) == 12
        row = next(r for r in values["results"] if r["variant"] == "fastdds/udp4" and r["size"] == 1024)
        assert set(row) >= {
            "test", "implementation", "transport", "n", "size", "value", "unit", "ci", "lost"
        }  # fmt: skip
        assert row["test"] == "latency"
        assert row["n"] is None
        assert row["unit"] == "s"
        assert row["value"] == pytest.approx(66e-6, rel=0.01)
        assert row["ci"][0] < row["value"] < row["ci"][1]

    def test_a_sentence_a_table_a_case(self, tmp_path):
        summary = summary_of(tmp_path, self.PLAN, made(self.PLAN, self.level))
        assert verdict.sentence(summary).startswith("Shortest round trip: cyclonedds/udp4 at 64 B (30")
        assert verdict.sound(summary)
        (latency,) = tables.tables(summary)
        assert latency.columns == ("case", "cyclonedds/udp4", "fastdds/udp4", "raw/udp4")
        assert tables.case_tables(summary, "no such") == []

    def test_one_case_has_a_table_a_quantity(self, tmp_path):
        def level(variant, case, epoch, rng):
            return {**self.level(variant, case, epoch, rng), "lost": 0.25}

        summary = summary_of(tmp_path, self.PLAN, made(self.PLAN, level))
        rtt, *_, lost = tables.case_tables(summary, "latency, 1 KiB")
        assert rtt.title == "Latency, 1 KiB: rtt"
        assert rtt.columns == ["variant", "median", "95 %", "99 %", "ratio", "× raw", "n"]
        assert [row[0] for row in rtt.rows] == ["cyclonedds/udp4", "fastdds/udp4", "raw/udp4"]
        assert rtt.rows[1][2].endswith(" µs")
        assert rtt.rows[1][2].count("µs") == 1  # 65.9–66.1 µs
        assert rtt.note == "ratio: relative to cyclonedds/udp4"
        assert [row[1] for row in lost.rows] == ["25 %"] * 3

    def test_many_variants_of_few_cases_are_rows(self, tmp_path):
        many = [*(variant_of("cyclonedds", way) for way in ("udp4", "multicast", "udp6")), FAST, RAW]
        plan = planned([Case("latency", 64), Case("latency", 1024)], *many)

        def level(variant, case, epoch, rng):
            return {"rtt": near(rng, 30e-6)} if (variant, case.size) != (RAW, 1024) else {}

        (rtt,) = tables.tables(summary_of(tmp_path, plan, made(plan, level)))
        assert rtt.columns == ("variant", "64 B", "1 KiB")
        assert [row[0] for row in rtt.rows] == [variant.name for variant in many]
        assert rtt.rows[-1] == ["raw/udp4", "30.0 µs", tables.NONE]

    def test_what_all_rows_have_in_common_is_in_the_title(self, tmp_path):
        cases = [Case("throughput", 64, n, treatment=t) for n in (1, 8) for t in ("reliable", "best-effort")]

        def level(variant, case, epoch, rng):
            return {"message_rate": near(rng, 1e5, 1), "lost": 0.0}

        (rate, _) = tables.tables(
            summary_of(tmp_path, planned(cases, CYCLONE), made(planned(cases, CYCLONE), level))
        )
        assert rate.title == "Throughput, 64 B: messages a second to each subscriber"
        assert [row[0] for row in rate.rows][:2] == ["reliable, 1 subscriber", "best-effort, 1 subscriber"]

    def test_little_data_is_not_sound(self, tmp_path):
        summary = summary_of(tmp_path, self.PLAN, made(self.PLAN, self.level, epochs=2, code=0))
        assert not verdict.sound(summary)
        assert "none of 6 cells converged" in verdict.sentence(summary)

    @pytest.mark.parametrize(("code", "good"), [(1, True), (0, False)])
    def test_a_run_of_which_nothing_converged_asks_for_a_second_look(self, tmp_path, code, good):
        from sonde.bus.cli_run import outcome_of

        outcome = outcome_of(sealed(tmp_path, self.PLAN, made(self.PLAN, self.level, code=code)).path, "show")
        assert ("converged" in outcome.verdict) is not good
        assert outcome.sound is good

    def test_a_drift_is_warned_of(self, tmp_path):
        summary = summary_of(tmp_path, self.PLAN, made(self.PLAN, self.level, code=3))
        (warning,) = verdict.warnings(summary)
        assert warning.code == "bus.drift"
        assert "6 cells" in warning.evidence

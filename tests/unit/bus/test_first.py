"""Causes of a slow first message that were planted are found, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
from probe_runs import near, planned, values_of

from sonde.bus import first
from sonde.bus.cases import Case
from sonde.bus.variants import variant_of

CYCLONE = variant_of("cyclonedds", "udp4")
USUAL = 36e-6


def case(treatment):
    return Case("first-message", 64, treatment=treatment)


def broken_down(tmp_path, levels, epochs=14, jitter=0.02, wander=0.0):
    """levels: treatment → s."""

    def level(variant, case, epoch, rng):
        slow = 1 + wander * np.sin(epoch)
        n = 8 if case.treatment == "steady" else 1
        return {"rtt": slow * near(rng, levels[case.treatment], n, jitter)}

    told = values_of(tmp_path, planned([case(t) for t in levels], CYCLONE), level, epochs)
    return {found.slow: found for found in first.breakdowns(told)}


TRUTH = {
    "steady": USUAL,
    "first-ever": 350e-6,
    "pause": 340e-6,
    "warm-other-topic": 100e-6,
    "prefaulted": 349e-6,
    "after-lookup": 320e-6,
    "pause+spinning-subscriber": 200e-6,
    "pause+awake-cores": 60e-6,
}


class TestBreakdown:
    def test_shares_are_those_that_were_planted(self, tmp_path):
        found = broken_down(tmp_path, TRUTH)["first-ever"]
        assert found.ratio[0] == pytest.approx(350 / 36, rel=0.03)
        assert found.ratio[1] < 350 / 36 < found.ratio[2]
        excess = 350 - 36
        truth = {
            "pause": (340 - 36) / excess,
            "warm-other-topic": (350 - 100) / excess,
            "prefaulted": 1 / excess,
            "after-lookup": 30 / excess,
        }
        assert {part.treatment for part in found.parts} == set(truth)
        for part in found.parts:
            assert part.share == pytest.approx(truth[part.treatment], abs=0.04), part.treatment
            assert part.low < truth[part.treatment] < part.high
        judged = {part.treatment: part.judged for part in found.parts}
        assert judged["pause"] == "most"
        assert judged["warm-other-topic"] == "most"
        assert judged["prefaulted"] == "none"

    def test_a_pause_is_taken_apart_by_its_own_treatments(self, tmp_path):
        found = broken_down(tmp_path, TRUTH)["pause"]
        assert {part.treatment for part in found.parts} == {"pause+spinning-subscriber", "pause+awake-cores"}
        assert found.cause.treatment == "pause+awake-cores"
        assert found.cause.share == pytest.approx((340 - 60) / (340 - 36), abs=0.04)

    def test_the_verdict_names_the_cause_that_was_planted_and_the_one_that_was_not(self, tmp_path):
        told = broken_down(tmp_path, TRUTH)
        text = first.sentence(told["first-ever"])
        assert "the silence before it" in text
        assert "the first access to memory" in text.partition("; no effect: ")[2]
        assert "processor cores" in first.sentence(told["pause"])

    def test_another_truth_has_another_verdict(self, tmp_path):
        other = TRUTH | {
            "pause": 40e-6,
            "prefaulted": 50e-6,
            "warm-other-topic": 345e-6,
            "after-lookup": 349e-6,
        }
        found = broken_down(tmp_path, other)["first-ever"]
        assert found.cause.treatment == "prefaulted"
        text = first.sentence(found)
        assert "of the difference is the first access to memory" in text
        assert "the silence before it" in text.partition("; no effect: ")[2]

    def test_what_moves_the_machine_does_not_move_shares(self, tmp_path):
        found = broken_down(tmp_path, TRUTH, epochs=24, wander=0.3)["first-ever"]
        share = {part.treatment: part.share for part in found.parts}
        assert share["pause"] == pytest.approx(0.97, abs=0.05)
        assert share["prefaulted"] == pytest.approx(0, abs=0.05)

    def test_no_difference_has_no_cause(self, tmp_path):
        same = dict.fromkeys(TRUTH, USUAL)
        found = broken_down(tmp_path, same)["first-ever"]
        assert not found.real
        assert "is not significantly slower" in first.sentence(found)

    def test_few_epochs_say_nothing(self, tmp_path):
        found = broken_down(tmp_path, TRUTH, epochs=4)["first-ever"]
        assert found.cause is None
        assert {part.judged for part in found.parts} == {"unclear"}
        assert first.sentence(found).endswith("; 4 epochs are too few to find the cause")
        assert first.brief(found)[2] == "; too few epochs to find the cause"
        whole = broken_down(tmp_path, TRUTH)["first-ever"]
        assert first.brief(whole) is None

    def test_nothing_that_was_tried_helps(self, tmp_path):
        levels = {"steady": USUAL, "first-ever": 350e-6, "prefaulted": 350e-6, "after-lookup": 349e-6}
        found = broken_down(tmp_path, levels)["first-ever"]
        assert found.cause is None
        assert "no treatment removes a significant part" in first.sentence(found)

    def test_without_a_usual_message_there_is_nothing_to_compare(self, tmp_path):
        assert not broken_down(tmp_path, {"first-ever": 350e-6, "pause": 300e-6})

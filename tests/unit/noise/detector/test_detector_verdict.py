"""The verdict of a noise run, for each possible result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

from sonde.noise.detector import verdict
from sonde.noise.detector.scale import SCALES
from sonde.noise.detector.summary import OF_VARIANT

RANKS = 2
FOUND = {"detected": 1, "p_adjusted": 0.0004, "detected_s": 15.1, "p_fold": 0.0004, "effect_window": 1}


def summary(
    *rows: dict[str, Any], lost: float = 0.002, iteration_s: float = 2e-5, **attrs: Any
) -> xr.Dataset:
    """/summary of a run. rows: for each variant, its differences from a variant in which nothing was found."""
    names = [str(row.get("name", f"agent {k + 1}")) for k, row in enumerate(rows)]
    sizes = {"scale": len(SCALES), "cell": 80, "rank": RANKS}
    plain: dict[str, Any] = {
        **dict.fromkeys(OF_VARIANT, np.nan),
        **dict(
            detected=0, p=0.6, p_adjusted=0.6, p_fold=0.5, p_ranked=0.7, period=1.0, phase=0.4, from_resume=0
        ),
        **dict(feature=0, slowdown=0.0001, slowdown_low=-0.0002, slowdown_high=0.0004, effect_pairs=12),
        **dict(
            stalls=0.0001,
            stalls_low=-0.0002,
            stalls_high=0.0004,
            typical=0.0,
            typical_low=-1e-4,
            typical_high=1e-4,
        ),
        **dict(
            effect_fresh=0,
            effect_window=0,
            mde=0.0005,
            mde_period=1.0,
            noisy_rank=-1,
            drives=0,
            drives_failed=0,
        ),
        **dict(source_detected=0, source_gap=-0.01),
    }
    data = {}
    for key, what in OF_VARIANT.items():
        shape = tuple(sizes[dim] for dim in what.dims[1:])
        values = [np.broadcast_to((plain | row)[key], shape) for row in rows]
        if rows:
            data[key] = (what.dims, np.array(values, float))
    data |= {
        "clean_iteration": ((), iteration_s),
        "clean_lost": ((), lost),
        "keeping_share": ((), 0.004),
        "keeping_low": ((), 0.002),
        "keeping_high": ((), 0.006),
    }
    described = dict(
        op="alltoall",
        size=1024,
        ranks=RANKS,
        alpha=0.01,
        matters=0.001,
        study="run",
        grain_s=0.001,
        agent="any",
    )
    return xr.Dataset(
        data, {"variant": np.array(names, dtype="U"), "scale": np.array(SCALES)}, described | attrs
    )


def found(slowdown: float, low: float, high: float, **more: Any) -> dict[str, Any]:
    return FOUND | dict(slowdown=slowdown, slowdown_low=low, slowdown_high=high) | more


MATERIAL = found(0.012, 0.011, 0.013)
IMMATERIAL = found(0.0004, 0.0003, 0.0005)
UNSETTLED = found(0.0012, 0.0004, 0.002)
UNSEEN: dict[str, Any] = {}
BLIND = {"mde": 0.02}
NO_MDE = {"mde": np.nan}


class TestOneAgent:
    @pytest.mark.parametrize(
        ("row", "words", "findings", "sound"),
        [
            (
                MATERIAL,
                "detected after 15.1 s (p = 0.0004); 1.2 % slowdown (1.1 to 1.3 %): above your limit of 0.10 %",
                1,
                True,
            ),
            (IMMATERIAL, "0.040 % slowdown (0.030 to 0.050 %): below your limit of 0.10 %", 0, True),
            (UNSETTLED, "it is open whether this exceeds your limit of 0.10 %", 0, False),
            (
                UNSEEN,
                "nothing detected (p = 0.60, false alarms 1.0 %); costs of 0.050 % or more, in bursts every 1.00 s,",
                0,
                True,
            ),
            (
                BLIND,
                "inconclusive (p = 0.60): only costs of 2.0 % or more were detectable; your limit is 0.10 %.",
                0,
                False,
            ),
            (NO_MDE, "inconclusive: this run was too short or too noisy to detect any burst", 0, False),
        ],
        ids=["material", "immaterial", "unsettled", "not detected", "blind", "blind to all"],
    )
    def test_each_way_it_can_come_out(self, row, words, findings, sound):
        run = summary(row)
        assert words in verdict.sentence(run)
        assert [finding.code for finding in verdict.findings(run)] == ["noise.slowdown"] * findings
        assert verdict.sound(run) is sound
        assert bool(verdict.doubt(run)) is not sound

    def test_what_is_not_known_beside_other_programs_is_not_called_too_short(self):
        run = summary(NO_MDE, lost=0.79)
        assert "other programs took 79 % of the time, so the smallest detectable cost is unknown" in (
            verdict.sentence(run)
        )
        assert (verdict.sound(run), verdict.findings(run)) == (False, [])

    def test_a_finding_on_an_agent_says_how_to_look_for_a_cheaper_place(self):
        (finding,) = verdict.findings(summary(MATERIAL, agent="my agent"))
        assert finding.next == "sonde noise run --agent 'my agent' --compare pinned,free,sibling"
        assert finding.evidence["ci_pct"] == pytest.approx([1.1, 1.3])

    def test_stalls_alone_may_settle_what_a_wandering_level_hides(self):
        row = found(0.05, -0.01, 0.12, stalls=0.03, stalls_low=0.028, stalls_high=0.031, typical_high=0.09)
        run = summary(row)
        assert verdict.values(run)["material"] == "yes"
        assert "3.0 % of the time in stalls alone (2.8 to 3.1 %): above your limit" in verdict.sentence(run)
        faster = summary(row | dict(typical_low=-0.04, typical_high=-0.02))
        assert verdict.values(faster)["material"] == "unsettled"

    def test_the_noise_source_needs_no_cheaper_place(self):
        (finding,) = verdict.findings(summary(MATERIAL | {"duty_asked": 0.01}))
        assert finding.next == ""

    @pytest.mark.parametrize(
        ("paused", "told"), [(0.0, False), (0.0004, False), (0.002, True), (np.nan, False)]
    )
    def test_a_pause_that_did_not_hold(self, paused, told):
        run = summary(MATERIAL | {"agent_cpu": 0.01, "agent_paused": paused})
        codes = [warning.code for warning in verdict.warnings(run)]
        assert ("noise.agent_not_paused" in codes) is told

    def test_a_clean_run(self):
        run = summary()
        assert (
            verdict.sentence(run) == "clean run: an iteration takes 20.0 µs; stalls took 0.20 % of the time."
        )
        assert verdict.findings(run) == []
        assert verdict.tables(run) == []

    def test_an_interval_never_ends_at_minus_zero(self):
        assert verdict.interval(-0.17, -0.0001) == "-17 to 0 %"
        assert verdict.interval(-0.0004, 0.0012) == "-0.04 to 0.12 %"
        assert verdict.interval(np.nan, 1.0) == "too few blocks for an interval"


class TestWhoWasLate:
    def test_one_rank(self):
        row = MATERIAL | dict(noisy_rank=1, late_share=[0.02, 0.98], late_known=1.0)
        assert (
            verdict.noisy_rank(summary(row).isel(variant=0))
            == "rank 1, late at the wake-up in 98 % of blocks"
        )

    def test_the_kernel_kept_nobody(self):
        row = MATERIAL | dict(late_share=[0.0, 0.1], late_known=0.1)
        assert verdict.noisy_rank(summary(row).isel(variant=0)).startswith(
            "none: the kernel delayed a rank in only 10 %"
        )

    def test_nobody_in_particular(self):
        row = MATERIAL | dict(late_share=[0.5, 0.5], late_known=1.0)
        assert verdict.noisy_rank(summary(row).isel(variant=0)) == "no single rank (0: 50 %, 1: 50 %)"

    def test_without_a_wake_up(self):
        assert verdict.noisy_rank(summary(MATERIAL).isel(variant=0)) == "unknown: no wake-up was found"


class TestCompared:
    def test_the_cheapest_harmless_placement(self):
        run = summary(
            MATERIAL | {"name": "pinned"},
            IMMATERIAL | {"name": "free"},
            UNSEEN | {"name": "sync"},
            study="compare",
        )
        assert verdict.sentence(run).startswith("sync is the cheapest harmless placement")
        assert [finding.evidence["variant"] for finding in verdict.findings(run)] == ["pinned"]

    def test_none_is_harmless_where_the_run_was_blind(self):
        run = summary(
            MATERIAL | {"name": "pinned"}, BLIND | {"name": "free", "slowdown_high": 0.003}, study="compare"
        )
        assert verdict.sentence(run).startswith("no placement was proven harmless; free costs least")
        assert not verdict.sound(run)

    def test_the_cheapest_is_named_only_where_intervals_tell_them_apart(self):
        run = summary(
            MATERIAL | {"name": "pinned"}, BLIND | {"name": "free", "slowdown_high": 0.012}, study="compare"
        )
        assert "it is open which of them costs least" in verdict.sentence(run)

    def test_the_table_has_a_row_for_each(self):
        table = verdict.tables(summary(MATERIAL, UNSEEN))[0]
        assert [row[0] for row in table.rows] == ["agent 1", "agent 2"]
        assert [row[4] for row in table.rows] == ["15.1 s", "–"]


class TestScale:
    def test_what_is_modelled_is_said_to_be(self):
        row = MATERIAL | dict(cost=[0.01, 0.6, 6.0, 10.0], cost_synchronised=0.01)
        table = verdict.tables(summary(row))[1]
        assert "a model, not a measurement" in table.note
        assert [line[0] for line in table.rows] == ["1", "64", "1 024", "16 384", "any, in step"]

    def test_a_survey_models_nothing_of_its_own_source(self):
        row = MATERIAL | dict(cost=[0.01, 0.6, 6.0, 10.0], cost_synchronised=0.01)
        assert len(verdict.tables(summary(row, study="survey"))) == 1


class TestWarnings:
    def codes(self, run: xr.Dataset) -> list[str]:
        return [warning.code for warning in verdict.warnings(run)]

    def test_none_of_a_quiet_machine(self):
        assert self.codes(summary(UNSEEN)) == []

    def test_a_busy_machine(self):
        assert self.codes(summary(UNSEEN, lost=0.4)) == ["noise.busy_machine"]

    @pytest.mark.parametrize(
        ("medians", "told"),
        [
            ([1.0, 1.01, 1.0, 0.99, 1.0, 1.02], False),
            ([1.0, 1.3, 1.0, 1.3, 1.2, 1.1], True),
            ([1.0, 1.3, 1.1], False),
        ],
        ids=["steady", "wanders", "too few"],
    )
    def test_a_level_that_wanders(self, medians, told):
        """Blocks with the agent on have no say in it."""
        run = summary(UNSEEN)
        run["block_median"] = ("block", 1e-6 * np.array([*medians, 5.0]))
        run["block_variant"] = ("block", np.array([0] * len(medians) + [1]))
        assert ("noise.level_wanders" in self.codes(run)) is told

    def test_crowded_ranks_are_not_called_a_busy_machine(self):
        assert self.codes(summary(UNSEEN, lost=0.4, iteration_s=8e-3)) == ["noise.crowded"]

    def test_failed_drives(self):
        (warning,) = verdict.warnings(summary(UNSEEN | dict(drives=3, drives_failed=1)))
        assert (warning.code, "1 of 4 drives failed" in warning.evidence) == ("noise.drives_failed", True)


class TestSurvey:
    """The survey switches its noise source on itself: to detect it is no finding, to miss it is one."""

    def survey(self, row: dict[str, Any], **more: Any) -> xr.Dataset:
        return summary(row, study="survey", matters=0.01, **more)

    def test_found(self):
        run = self.survey(MATERIAL)
        assert verdict.sentence(run) == (
            "Self-test: a 1.0 % disturbance was detected after 15.1 s; 0.050 % or more is detected reliably. "
            "With nothing on, stalls took 0.20 % of the time."
        )
        assert (verdict.findings(run), verdict.sound(run), verdict.doubt(run)) == ([], True, "")

    def test_found_but_nothing_smaller_would_have_been(self):
        assert "reliably" not in verdict.sentence(self.survey(MATERIAL | NO_MDE))

    def test_blind(self):
        run = self.survey(UNSEEN)
        assert verdict.sentence(run).startswith("Self-test: a 1.0 % disturbance was not detected (p = 0.60).")
        (finding,) = verdict.findings(run)
        assert finding.code == "noise.blind"
        assert not verdict.sound(run)
        assert verdict.doubt(run) == "a 1.0 % disturbance was not detected"

    def test_a_run_that_ended_before_its_first_look_accuses_nobody(self):
        run = self.survey(UNSEEN | dict(z_fold=0.0, z_ranked=0.0, p_adjusted=1.0))
        assert verdict.sentence(run).startswith(
            "Self-test: the time was over before the first test for a 1.0 % disturbance."
        )
        assert (verdict.findings(run), verdict.sound(run)) == ([], False)
        assert verdict.doubt(run) == "a 1.0 % disturbance could not be tested"

    def test_a_busy_machine_is_a_finding_not_a_warning(self):
        run = self.survey(MATERIAL, lost=0.08)
        (finding,) = verdict.findings(run)
        assert (finding.code, finding.next) == ("noise.busy_machine", "sonde noise host")
        assert finding.text == "Machine busy: other programs took 8.0 % of the time."
        assert verdict.warnings(run) == []

    def test_more_ranks_than_cores_say_nothing_about_the_machine(self):
        run = self.survey(UNSEEN, lost=0.9, oversubscribed=1)
        assert verdict.findings(run) == []
        assert not verdict.sound(run)
        assert verdict.doubt(run) == "ranks wait for each other's time slices"

    @pytest.mark.parametrize(
        ("before", "now", "count"),
        [(0.002, 0.02, 1), (0.002, 0.004, 0), (0.0, 0.004, 0), (0.1, 0.15, 0), (np.nan, 0.5, 0)],
    )
    def test_worse_is_twice_the_time_lost(self, before, now, count):
        old, new = self.survey(MATERIAL, lost=before), self.survey(MATERIAL, lost=now)
        found = verdict.worse(old, new, ("before/noise.nc", "now/noise.nc"))
        assert [finding.code for finding in found] == ["noise.noisier"] * count


def test_values_are_ready_for_json():
    values = verdict.values(summary(MATERIAL | NO_MDE, UNSEEN))
    assert (values["detected"], values["material"], values["mde_pct"]) == (True, "yes", None)
    assert [each["variant"] for each in values["variants"]] == ["agent 1", "agent 2"]
    assert verdict.values(summary())["clean_lost_pct"] == pytest.approx(0.2)


class TestASearchThatTheBudgetEnded:
    """The detectable burst is then not known, or for long bursts alone."""

    def test_without_any_step_nobody_says_that_nothing_would_have_been_found(self):
        run = summary({"mde": np.nan, "mde_searched": 0.0})
        text = verdict.sentence(run)
        assert text.startswith(
            "agent 1: inconclusive: nothing was detected (p = 0.60), and --budget ended before"
        )
        assert "any burst" not in text
        assert not verdict.sound(run)

    def test_a_long_burst_that_would_be_found_is_no_bound(self):
        run = summary({"mde": 0.02, "mde_searched": 0.5})
        text = verdict.sentence(run)
        assert "costs of 2.0 % or more were detectable; your limit is 0.10 %" in text
        assert "--budget ended before smaller costs were tested" in text
        assert not verdict.sound(run)
        assert "perhaps shorter ones: --budget ended the search" in str(verdict.tables(run)[0].rows)

    def test_a_burst_short_enough_to_clear_the_agent_clears_it(self):
        run = summary({"mde": 0.0005, "mde_searched": 0.9})
        assert verdict.sentence(run).startswith("agent 1: nothing detected")
        assert verdict.sound(run)

    def test_values(self):
        assert verdict.values(summary({"mde_searched": 0.5}))["mde_searched_pct"] == 50
        assert verdict.values(summary({}))["mde_searched_pct"] is None

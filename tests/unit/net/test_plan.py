"""Plans: what they count, what they refuse, and the words sonde-net is started with."""

import time
from itertools import pairwise

import pytest

from sonde.core.errors import UsageError
from sonde.net import run
from sonde.net.cells import MAX_FITTED
from sonde.net.modes import modes, read_modes
from sonde.net.plan import Plan, gap_for, read_pair, read_pairs


def plan(mode: str = "one_to_one", **options) -> Plan:
    return Plan(**{"modes": read_modes(mode), "sizes": (8, 1024), "ntasks": 4, **options})


def of_pattern(pattern: str) -> str:
    return next(name for name, mode in modes().items() if mode.pattern == pattern)


def words_of(made: Plan, budget_s: float = 5.0) -> dict[str, str]:
    argv = made.argv("a.run", budget_s)
    assert len(argv) % 2 == 0
    return dict(zip(argv[::2], argv[1::2]))


class TestCounts:
    @pytest.mark.parametrize("pattern", ["pairs", "one_pair", "everyone", "rooted"])
    def test_cells_are_all_ordered_pairs_at_every_size(self, pattern):
        assert plan(of_pattern(pattern)).cells == 4 * 3 * 2

    def test_chosen_pairs_count_in_both_directions(self):
        assert plan(pairs=((0, 1), (2, 3)), sizes=(8,)).cells == 4

    def test_chosen_pairs_do_not_cut_a_mode_of_everyone(self):
        both = f"{of_pattern('pairs')},{of_pattern('everyone')}"
        assert plan(both, pairs=((0, 1),), sizes=(8,)).cells == 2 + 12

    @pytest.mark.parametrize(
        ("ntasks", "parallel", "steps"),
        [
            (2, True, 1),
            (2, False, 1),
            (3, True, 3),
            (3, False, 3),
            (4, True, 3),
            (4, False, 6),
            (64, True, 63),
            (64, False, 2016),
        ],
    )
    def test_steps_of_pairs_are_those_of_a_round_robin(self, ntasks, parallel, steps):
        assert plan(ntasks=ntasks, sizes=(8,)).steps(parallel) == steps

    def test_few_chosen_pairs_need_no_full_round_robin(self):
        assert plan(ntasks=64, pairs=((0, 1), (2, 3)), sizes=(8,)).steps(True) == 2

    @pytest.mark.parametrize(("pattern", "steps"), [("one_pair", 6), ("everyone", 1), ("rooted", 4)])
    def test_steps_of_other_patterns_do_not_depend_on_pairing(self, pattern, steps):
        made = plan(of_pattern(pattern), sizes=(8,))
        assert made.steps(True) == made.steps(False) == steps

    def test_steps_add_up_over_modes_and_sizes(self):
        both = plan(f"{of_pattern('pairs')},{of_pattern('rooted')}", sizes=(0, 8, 64))
        assert both.steps(True) == (3 + 4) * 3


class TestRefusals:
    @pytest.mark.parametrize("ntasks", [1, 0, -2])
    def test_fewer_than_two_ranks(self, ntasks):
        with pytest.raises(UsageError, match=f"--ntasks is {ntasks}") as told:
            plan(ntasks=ntasks)
        assert told.value.code == "net.too_few_ranks"
        assert "--ntasks 2" in told.value.hint

    def test_unknown_rule_is_refused_with_the_nearest(self):
        with pytest.raises(UsageError, match="nearest: fixed") as told:
            plan(rule="fixd:100")
        assert told.value.code == "core.bad_rule"

    @pytest.mark.parametrize("pair", [(0, 4), (4, 0), (-1, 2), (2, 2)])
    def test_pair_that_is_not_two_of_the_ranks(self, pair):
        with pytest.raises(UsageError, match=r"4 ranks \(0 to 3\)") as told:
            plan(pairs=((0, 1), pair))
        assert told.value.code == "net.bad_pair"

    def test_value_for_modes_that_offer_no_choice(self):
        fixed = next(name for name, mode in modes().items() if not mode.value_choice)
        with pytest.raises(UsageError, match=f"one_way has no meaning for {fixed}") as told:
            plan(fixed, value="one_way")
        assert told.value.code == "net.no_value_choice"


class TestSamples:
    def test_value_reaches_only_modes_that_offer_it(self):
        fixed = next(name for name, mode in modes().items() if not mode.value_choice)
        made = plan(f"one_to_one,{fixed}", value="recv_duration")
        assert made.samples["one_to_one"] == ("recv_duration", "dst")
        assert made.samples[fixed] == modes()[fixed].sample(None)


class TestWords:
    def test_every_option_of_the_probe_is_reported(self):
        words = words_of(
            plan("one_to_one,all_to_all", rule="fixed:200", seed=7, gap_s=0.25, sizes=(0, 65536)), 2.5
        )
        assert words["--dir"] == "a.run"
        assert words["--modes"] == "one_to_one,all_to_all"
        assert words["--sizes"] == "0,65536"
        assert words["--rule"] == "fixed:200"
        assert words["--seed"] == "7"
        assert words["--gap-s"] == "0.25"
        assert words["--budget-s"] == "2.5"
        assert words["--forward"] == "no"

    def test_what_was_not_asked_for_is_not_reported(self):
        assert not {"--value", "--pairs", "--inject-clock", "--inject-slow"} & set(words_of(plan()))

    def test_pairs_are_reported_as_they_are_typed(self):
        pairs = ((0, 1), (2, 3))
        text = words_of(plan(pairs=pairs))["--pairs"]
        assert text == "0-1,2-3"
        assert read_pairs(text) == pairs

    def test_hidden_options_are_passed_on(self):
        words = words_of(plan(value="one_way", forward=True, inject_slow="0:1:1e-6", inject_clock="1:1e-3:0"))
        assert words["--value"] == "one_way"
        assert words["--forward"] == "yes"
        assert words["--inject-slow"] == "0:1:1e-6"
        assert words["--inject-clock"] == "1:1e-3:0"


class TestDocument:
    def test_it_says_what_the_schema_reads(self):
        document = plan("one_to_one", value="one_way", rule="fixed:9").document({"pairing": "serial"})
        assert document["ranks"] == 4
        assert document["sizes"] == [8, 1024]
        assert document["modes"] == ["one_to_one"]
        assert document["values"] == {"one_to_one": "one_way"}
        assert document["measured_by"] == {"one_to_one": "dst"}
        assert document["rule"] == "fixed:9"
        assert document["pairing"] == "serial"
        assert "pairs" not in document

    def test_pairs_are_there_in_both_directions(self):
        assert plan(pairs=((0, 1), (1, 3))).document({})["pairs"] == [[0, 1], [1, 0], [1, 3], [3, 1]]


class TestWarnings:
    @staticmethod
    def codes(made: Plan) -> list[str]:
        return [warning.code for warning in made.warnings()]

    def test_plain_plan_has_none(self):
        assert self.codes(plan()) == []

    @pytest.mark.parametrize("options", [{"ntasks": 3}, {"noise_ranks": 1}])
    def test_noise_mode_without_a_pair_to_make_noise(self, options):
        assert self.codes(plan(of_pattern("one_pair"), **options)) == ["net.no_noise"]
        assert self.codes(plan(of_pattern("one_pair"))) == []

    def test_broadcast_of_nothing(self):
        assert self.codes(plan("bcast", sizes=(0, 8))) == ["net.empty_bcast"]
        assert self.codes(plan("bcast", sizes=(8,))) == []

    def test_injected_errors_are_reported_with_their_values(self):
        made = plan(inject_slow="0:1:5e-6")
        assert self.codes(made) == ["net.injected"]
        assert "0:1:5e-6" in made.warnings()[0].evidence


class TestPairs:
    @pytest.mark.parametrize(
        ("text", "pairs"),
        [
            ("0-1", ((0, 1),)),
            ("1-0", ((0, 1),)),
            ("0-1, 2-5", ((0, 1), (2, 5))),
            ("0-1,1-0,0-1", ((0, 1),)),
            ("10-9", ((9, 10),)),
        ],
    )
    def test_lists(self, text, pairs):
        assert read_pairs(text) == pairs

    @pytest.mark.parametrize("text", ["", "0", "0-0", "0-00", "0-1-2", "a-b", "0-1,", "0--1", "-1-2", "²-1"])
    def test_no_lists(self, text):
        with pytest.raises(UsageError) as told:
            read_pairs(text)
        assert told.value.code == "net.bad_pair"
        assert "0-1,2-5" in told.value.hint

    @pytest.mark.parametrize(
        ("text", "pair"), [("0,1", (0, 1)), ("1,0", (1, 0)), ("3-2", (3, 2)), (" 4 , 7 ", (4, 7))]
    )
    def test_one_pair_keeps_its_direction(self, text, pair):
        assert read_pair(text) == pair

    @pytest.mark.parametrize("text", ["", "1", "1,1", "1,01", "1,2,3", "a,1", "1,-2", "²,1", "1.0,2"])
    def test_no_pair(self, text):
        with pytest.raises(UsageError) as told:
            read_pair(text)
        assert told.value.code == "net.bad_pair"


class TestGap:
    def test_no_budget_no_gap(self):
        assert gap_for(None) == 0.0

    @pytest.mark.parametrize(
        ("budget_s", "gap_s"), [(1.0, 0.005), (10.0, 0.05), (50.0, 0.25), (86400.0, 0.25)]
    )
    def test_two_hundred_epochs_fit_and_a_gap_is_never_long(self, budget_s, gap_s):
        assert gap_for(budget_s) == pytest.approx(gap_s)

    def test_it_never_falls_as_the_budget_grows(self):
        gaps = [gap_for(budget) for budget in (0.1, 1, 5, 49, 50, 51, 1000)]
        assert all(a <= b for a, b in pairwise(gaps))


class TestNoise:
    @pytest.mark.parametrize(
        ("ntasks", "asked", "made"), [(4, 2, 2), (4, 8, 2), (6, 3, 2), (2, 2, 0), (8, 6, 6)]
    )
    def test_the_run_records_how_many_ranks_make_noise(self, ntasks, asked, made):
        document = plan("noise,one_to_one", ntasks=ntasks, noise_ranks=asked, noise_bytes=512).document({})
        assert document["noise"] == {"noise": {"noise_bytes": 512, "noise_ranks": made}}

    def test_other_modes_record_no_noise(self):
        assert "noise" not in plan().document({})


class TestBudget:
    def test_an_ample_budget_fits_all_that_ever_are(self):
        assert run._fitted(plan(), None) == {}
        assert run._fitted(plan(), 60.0) == {}

    @pytest.mark.parametrize("modes_asked", ["one_to_one", "one_to_one,all_to_all"])
    def test_a_short_budget_fits_as_many_cells_as_its_half_has_time_for(self, modes_asked):
        made = plan(modes_asked, sizes=tuple(range(0, 1000, 100)))
        most = run._fitted(made, 10.0)["fitted_at_most"]
        assert run.FEWEST_FITTED < most < MAX_FITTED
        spent = run._reading(made, 10.0) + run.RESERVE_FIT_S * most * len(made.modes)
        assert 4 < spent <= 5
        assert run._fitted(made, 0.1) == {"fitted_at_most": run.FEWEST_FITTED}

    def test_measuring_gets_at_least_half_and_never_nothing(self):
        began = time.monotonic()
        assert run._left(plan(), 10.0, began) >= 4.9
        assert run._left(plan(), 0.01, began) == 0.2


class TestByClass:
    def test_pairs_without_data_are_unseen_whichever_way_they_were_measured(self):
        from types import SimpleNamespace

        import numpy as np

        from sonde.net.run import unseen

        links = SimpleNamespace(src=np.array([1, 0]), dst=np.array([0, 2]))
        assert unseen(links, 4) == [(0, 3), (1, 2), (1, 3), (2, 3)]

    def test_nothing_seen_is_all_unseen(self):
        from types import SimpleNamespace

        import numpy as np

        from sonde.net.run import unseen

        none = np.array([], int)
        assert unseen(SimpleNamespace(src=none, dst=none), 3) == [(0, 1), (0, 2), (1, 2)]

    def test_links_that_the_first_pass_missed_are_reported(self):
        (warning,) = plan(labels={"unclassed_pairs": "0-1,2-3"}).warnings()
        assert warning.code == "net.unclassed_links"
        assert "2 links" in warning.evidence

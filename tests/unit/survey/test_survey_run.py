"""How a survey shares its time between rooms and what becomes of their results, with rooms made up."""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fakeroom
import netCDF4
import pytest

from sonde.core import room as core_room
from sonde.core import run_folder, seal
from sonde.core.errors import (
    DataError,
    EnvironmentFailure,
    Finding,
    Interrupted,
    SondeError,
    UsageError,
    Warning,
)
from sonde.core.events import NullProgress
from sonde.core.launch.measured import Measured
from sonde.core.launch.start import ranks_for, start_for
from sonde.core.survey_entry import Call, Compared, Judgement, SurveyEntry
from sonde.survey import run
from sonde.survey.result import RoomResult

BUDGET_S = 1000.0  # so long that the time the tests take is none


class Room(SurveyEntry):
    """A survey entry whose measuring ends as the test says."""

    def __init__(self, name: str, weight: float = 1.0, drained: str = "", least_s: float = 0.0) -> None:
        self.name, self.weight, self.drained, self.least_s = name, weight, drained, least_s
        self.spread = 1.5
        self.lacks: SondeError | None = None
        self.calls: list[Call] = []
        self.ends: Callable[[], object] = lambda: None
        self.interrupted = False
        self.error: SondeError | None = None
        self.sound = True
        self.doubt = ""
        self.blunt_beside = ""  # part of the path of a baseline that can show nothing

    def needs_s(self, call: Call) -> float:
        if self.lacks is not None:
            raise self.lacks
        return self.least_s

    def measure(self, call: Call) -> Measured:
        self.calls.append(call)
        call.progress()
        self.ends()
        folder = fakeroom.make_run(call.folder / f"{self.name}.run", ranks=1)
        run_folder.end(folder, {}, [Warning(f"{self.name}.odd", "odd", "")])
        made = seal.seal(folder, call.folder / f"{self.name}.nc", fakeroom.SCHEMA)
        return Measured(made, "converged", self.interrupted, self.error)

    def judge(self, tree: Any, name: str) -> Judgement:
        median = float(tree["summary"]["median"][0, 0])
        found = [Finding(f"{self.name}.found", "it is slow", {"host": self.name})]
        return Judgement(f"{median * 1e6:.0f} µs in {Path(name).name}", found, self.sound)

    def compare(self, before: Any, now: Any, names: tuple[str, str]) -> Compared:
        worse = float(now["summary"]["median"][0, 0] / before["summary"]["median"][0, 0])
        found = [Finding(f"{self.name}.slower", f"{worse:g} times {names[0]}", {"ratio": worse})]
        if self.blunt_beside and self.blunt_beside in names[0]:
            return Compared((), "too short")
        return Compared(found if worse > 1 else (), self.doubt)

    def unfit(self, finding: Finding) -> bool:
        return finding.code.endswith(".unfit")

    def drains(self, finding: Finding) -> bool:
        return finding.code == self.drained


@pytest.fixture
def entries(monkeypatch):
    def make(*wanted: Room) -> None:
        known = {room.name: room for room in wanted}
        monkeypatch.setattr(run, "NAMES", tuple(known))
        monkeypatch.setattr(run, "entry", known.__getitem__)

    return make


@pytest.fixture
def survey(tmp_path):
    def go(budget_s: float = BUDGET_S, began: float | None = None, **changes: Any) -> list[RoomResult]:
        told: dict[str, Any] = {
            "launcher": "auto",
            "hosts": None,
            "ntasks": 2,
            "seed": None,
            "bar": lambda title, budget_s: NullProgress(),
            **changes,
        }
        since = time.monotonic() if began is None else began
        return run.survey(tmp_path / "here", budget_s=budget_s, began=since, **told)

    return go


def fails(error: BaseException) -> Callable[[], object]:
    def fail() -> None:
        raise error

    return fail


NO_MPI = EnvironmentFailure("net.no_mpi", "there is no MPI", "install one")


class TestShares:
    def test_one_room_gets_all_of_the_time_since_the_command_began(self, entries, survey):
        net, began = Room("net"), time.monotonic() - 3.0
        entries(net)
        survey(began=began)
        (call,) = net.calls
        assert call.budget_s == pytest.approx(BUDGET_S)  # the sum of two clock readings is rounded
        assert call.began == began

    def test_rooms_share_by_weight(self, entries, survey):
        net, noise = Room("net", 1.0), Room("noise", 3.0)
        entries(net, noise)
        survey()
        assert net.calls[0].budget_s == pytest.approx(BUDGET_S / 4)
        assert noise.calls[0].budget_s > BUDGET_S * 0.9  # net was done at once, and left its share
        assert noise.calls[0].began > net.calls[0].began

    def test_a_skipped_room_leaves_its_share(self, entries, survey):
        net, noise = Room("net"), Room("noise")
        net.ends = fails(NO_MPI)
        entries(net, noise)
        survey()
        assert net.calls[0].budget_s == pytest.approx(BUDGET_S / 2)
        assert BUDGET_S * 0.9 < noise.calls[0].budget_s <= BUDGET_S * 1.001

    def test_a_room_that_cannot_run_here_leaves_its_time_to_those_before_it_too(self, entries, survey):
        net, noise, io = Room("net"), Room("noise", 3.0, least_s=900.0), Room("io")
        noise.lacks = NO_MPI
        entries(net, noise, io)
        first, second, third = survey()
        assert net.calls[0].budget_s == pytest.approx(BUDGET_S / 2)
        assert (second.skipped, second.hint) == ("there is no MPI", "install one")
        assert (noise.calls, first.skipped, third.skipped) == ([], "", "")

    def test_all_shares_of_weights(self):
        assert run.share([(1.0, 0.0)], 40.0) == [40.0]
        assert run.share([(1.0, 0.0), (3.0, 0.0)], 40.0) == [10.0, 30.0]
        assert run.share([], 40.0) == []

    def test_each_room_has_what_it_needs_before_the_rest_is_shared(self):
        assert run.share([(3.0, 2.0), (1.0, 10.0)], 20.0) == [8.0, 12.0]
        assert run.share([(3.0, 2.0), (1.0, 10.0)], 12.0) == [2.0, 10.0]

    def test_who_needs_most_is_left_out_where_it_is_too_little_for_all(self):
        assert run.share([(1.0, 2.0), (9.0, 20.0), (1.0, 4.0)], 16.0) == [7.0, None, 9.0]
        assert run.share([(1.0, 4.0), (1.0, 4.0)], 7.0) == [7.0, None]  # of equals the later
        assert run.share([(1.0, 4.0), (1.0, 4.0)], 3.0) == [None, None]
        assert run.share([(1.0, 0.0)], -4.0) == [None]

    def test_where_rooms_overran_those_after_them_are_content_with_less(self):
        assert run.share([(3.0, 4.0), (1.0, 6.0)], 7.0, 0.6) == pytest.approx([2.8, 4.2])
        assert run.share([(3.0, 4.0), (1.0, 6.0)], 5.0, 0.6) == [5.0, None]
        assert run.share([(3.0, 4.0), (1.0, 6.0)], 20.0, 0.6) == [11.5, 8.5]

    def test_a_room_that_does_not_fit_says_what_it_takes_and_which_budget_has_time(self, entries, survey):
        net, noise, io = (
            Room("net", least_s=200.0),
            Room("noise", 3.0, least_s=900.0),
            Room("io", least_s=100.0),
        )
        entries(net, noise, io)
        first, second, third = survey()
        assert second.skipped == "it needs 900.0 s or more: too long for 1000 s together with the others"
        assert (
            second.hint
            == f"give --budget {run.needed_s('noise', {'net': 200, 'noise': 900, 'io': 100})}s or more"
        )
        assert second.hint == "give --budget 1201s or more"
        assert net.calls[0].budget_s == pytest.approx(200 + 700 / 2)  # noise takes none of it
        assert (noise.calls, first.skipped, third.skipped) == ([], "", "")

    def test_what_is_reserved_for_the_report_is_not_shared(self, entries, survey):
        net, noise = Room("net"), Room("noise", least_s=997.0)
        entries(net, noise)
        _, late = survey(reserved_s=5.0)
        assert net.calls[0].budget_s == pytest.approx(995.0, abs=1)
        assert late.hint == "give --budget 1003s or more"

    def test_a_room_to_which_others_left_too_little_says_so(self, entries, survey):
        net, noise = Room("net", least_s=1.0), Room("noise", least_s=900.0)
        entries(net, noise)
        first, second = survey(began=time.monotonic() - 600)  # as if another had taken them
        assert first.skipped == ""
        assert re.fullmatch(
            r"it needs 900\.0 s or more, and [34]\d\d\.\d of the 1000 s are left", second.skipped
        )
        assert second.hint == "give a longer --budget"

    def test_where_no_time_is_left_the_rest_is_skipped_and_reported(self, entries, survey):
        net, noise, io = Room("net"), Room("noise"), Room("io")
        entries(net, noise, io)
        net.ends = lambda: time.sleep(1)
        first, second, third = survey(budget_s=0.8)
        assert first.skipped == ""
        assert (
            second.skipped == third.skipped == "net took all of the 0.8 s"
        )  # and not noise, which was not visited
        assert "--budget" in second.hint
        assert noise.calls == []


class TestVisits:
    def test_what_rooms_say_comes_into_their_results(self, entries, survey, tmp_path):
        net, noise = Room("net"), Room("noise")
        noise.sound = False
        entries(net, noise)
        bars: list[str] = []
        first, second = survey(
            bar=lambda title, budget_s: bars.append(title) or NullProgress(), seed=5, hosts="n[1-2]"
        )
        assert bars == ["survey: net", "survey: noise"]
        assert first.datasets == [tmp_path / "here" / "net.nc"]
        assert second.datasets == [tmp_path / "here" / "noise.nc"]
        assert (first.verdict, first.lines) == ("1 µs in net.nc", ["1 µs in net.nc"])
        assert [finding.code for finding in second.findings] == ["noise.found"]
        assert [warning.code for warning in first.warnings] == ["net.odd"]
        assert (first.complete, first.sound, second.sound) == (True, True, False)
        assert {(call.seed, call.hosts, call.ntasks) for call in net.calls + noise.calls} == {
            (5, "n[1-2]", 2)
        }

    def test_without_a_seed_all_rooms_take_the_same(self, entries, survey):
        net, noise = Room("net"), Room("noise")
        entries(net, noise)
        survey()
        assert net.calls[0].seed == noise.calls[0].seed

    def test_what_a_room_lacks_is_its_result(self, entries, survey):
        net, noise = Room("net"), Room("noise")
        net.ends = fails(NO_MPI)
        entries(net, noise)
        first, second = survey()
        assert (first.skipped, first.hint, first.datasets) == ("there is no MPI", "install one", [])
        assert second.skipped == ""
        assert run.summary([first]) == ["net: skipped: there is no MPI", "  install one"]
        assert run.summary([second]) == [
            "noise 1 µs in noise.nc"
        ]  # its finding and its warning are told by themselves

    def test_what_was_measured_before_an_error_counts(self, entries, survey):
        net = Room("net")
        net.error = NO_MPI
        entries(net)
        (result,) = survey()
        assert result.skipped == "there is no MPI"
        assert len(result.datasets) == len(result.lines) == 1

    def test_a_folder_that_cannot_be_made(self, entries, survey, tmp_path):
        entries(Room("net"))
        (tmp_path / "here").write_text("")
        with pytest.raises(EnvironmentFailure) as told:
            survey()
        assert told.value.code == "core.cannot_write"


class TestInterrupted:
    def test_before_anything_was_measured_no_folder_is_left(self, entries, survey, tmp_path):
        net, noise = Room("net"), Room("noise")
        net.ends = fails(Interrupted("net.interrupted", "interrupted", ""))
        entries(net, noise)
        with pytest.raises(Interrupted):
            survey()
        assert noise.calls == []
        assert not (tmp_path / "here").exists()

    def test_a_room_cut_short_is_the_last(self, entries, survey):
        net, noise = Room("net"), Room("noise")
        net.interrupted = True
        entries(net, noise)
        first, second = survey()
        assert (first.interrupted, len(first.datasets)) == (True, 1)
        assert second.skipped == "the survey was interrupted"
        assert noise.calls == []

    def test_what_earlier_rooms_measured_is_not_lost(self, entries, survey):
        net, noise = Room("net"), Room("noise")
        noise.ends = fails(Interrupted("noise.interrupted", "interrupted too soon", "run it again"))
        entries(net, noise)
        first, second = survey()
        assert len(first.datasets) == 1
        assert (second.interrupted, second.skipped) == (True, "interrupted too soon")

    def test_other_errors_of_a_room_are_not_hidden(self, entries, survey):
        net = Room("net")
        net.ends = fails(ZeroDivisionError())
        entries(net)
        with pytest.raises(ZeroDivisionError):
            survey()


class TestCompare:
    def results(self, folder: Path, *names: str, scale: float = 1.0) -> list[RoomResult]:
        folder.mkdir(exist_ok=True)
        made = []
        for name in names:
            run_dir = fakeroom.make_run(folder / f"{name}.run", ranks=1, scale=scale)
            made.append(
                RoomResult(
                    name, datasets=[seal.seal(run_dir, folder / f"{name}.nc", fakeroom.SCHEMA)[0].path]
                )
            )
        return made

    def test_each_room_holds_its_own_datasets_against_the_earlier_ones(self, entries, tmp_path):
        entries(Room("net"), Room("noise"))
        self.results(tmp_path / "before", "net", "noise")
        results = self.results(tmp_path / "now", "net", "noise", scale=2.0)
        run.compare(results, [tmp_path / "before"])
        for result in results:
            (suspect,) = result.suspects
            assert suspect.code == f"{result.room}.slower"
            assert suspect.text == f"2 times {tmp_path / 'before' / result.room}.nc"
            assert result.findings == []

    def test_nothing_to_hold_it_against_is_nothing(self, entries, tmp_path):
        entries(Room("net"))
        results = self.results(tmp_path / "now", "net")
        run.compare(results, [])
        assert (results[0].suspects, results[0].warnings) == ([], [])

    @pytest.mark.parametrize(("second", "suspects"), [(1.0, 1), (2.5, 0)])
    def test_of_several_baselines_it_has_to_be_worse_than_all(self, entries, tmp_path, second, suspects):
        entries(Room("net"))
        self.results(tmp_path / "one", "net")
        self.results(tmp_path / "two", "net", scale=second)
        (net,) = self.results(tmp_path / "now", "net", scale=2.0)
        run.compare([net], [tmp_path / "one", tmp_path / "two"])
        assert len(net.suspects) == suspects

    def test_a_room_that_the_earlier_survey_did_not_measure_is_not_clean(self, entries, tmp_path):
        entries(Room("net"), Room("noise"))
        self.results(tmp_path / "before", "net")
        net, noise = self.results(tmp_path / "now", "net", "noise", scale=2.0)
        run.compare([net, noise], [tmp_path / "before"])
        assert len(net.suspects) == 1
        assert (noise.suspects, noise.comparable) == ([], False)
        assert [warning.code for warning in noise.warnings] == ["survey.nothing_to_compare"]

    def test_a_room_that_was_skipped_now_is_not_clean(self, entries, tmp_path):
        entries(Room("net"), Room("noise"))
        self.results(tmp_path / "before", "net", "noise")
        (net,) = self.results(tmp_path / "now", "net", scale=2.0)
        skipped = RoomResult("noise", skipped="there is no MPI")
        run.compare([skipped, net], [tmp_path / "before"])
        assert (skipped.suspects, skipped.comparable) == ([], False)
        assert "was not measured now" in skipped.warnings[0].evidence
        assert len(net.suspects) == 1

    def test_what_can_see_nothing_says_so(self, entries, tmp_path):
        net, noise = Room("net"), Room("noise")
        noise.doubt = "too short"
        entries(net, noise)
        self.results(tmp_path / "before", "net", "noise")
        results = self.results(tmp_path / "now", "net", "noise")
        run.compare(results, [tmp_path / "before"])
        assert [result.comparable for result in results] == [True, False]
        assert not any(result.suspects for result in results)
        (warning,) = results[1].warnings
        assert (warning.code, warning.evidence) == ("survey.blunt", "too short")

    def test_a_baseline_that_can_show_nothing_acquits_nobody(self, entries, tmp_path):
        net = Room("net")
        net.blunt_beside = "dull"
        entries(net)
        for folder in ("sharp", "dull"):
            self.results(tmp_path / folder, "net")
        (now,) = self.results(tmp_path / "now", "net", scale=2.0)
        run.compare([now], [tmp_path / "dull", tmp_path / "sharp"])
        assert (len(now.suspects), now.comparable, now.warnings, now.baselines) == (1, True, [], 1)

    def test_a_room_whose_modes_no_baseline_has_is_not_clean(self, entries, tmp_path):
        entries(Room("net"))
        (old,) = self.results(tmp_path / "before", "net")
        old.datasets[0].rename(tmp_path / "before" / "net-all.nc")
        (now,) = self.results(tmp_path / "now", "net", scale=2.0)
        run.compare([now], [tmp_path / "before"])
        assert (now.suspects, now.comparable) == ([], False)
        assert [warning.code for warning in now.warnings] == ["survey.nothing_to_compare"]

    def test_a_room_is_compared_where_one_of_its_modes_is(self, entries, tmp_path):
        net = Room("net")
        net.blunt_beside = "net-all"
        entries(net)
        for folder in ("before", "now"):
            (result,) = self.results(tmp_path / folder, "net")
            result.datasets.append(shutil.copy(result.datasets[0], tmp_path / folder / "net-all.nc"))
        run.compare([result], [tmp_path / "before"])
        assert result.comparable
        assert [warning.code for warning in result.warnings] == ["survey.blunt"]

    def again(self, tmp_path, scale, others=0.0):
        """A function that measures a room once more; and what it was asked for."""
        asked: list[list[str]] = []

        def measure(rooms):
            asked.append(list(rooms))
            results = self.results(tmp_path / "again", *rooms, scale=scale)
            for result in results:
                result.others = others
            return results

        return measure, asked

    @pytest.mark.parametrize(
        ("now", "again", "others", "findings", "warnings"),
        [
            ((1.0, 0.0), 1.0, 0.0, 0, []),
            ((2.0, 0.0), 2.0, 0.0, 1, []),
            ((1.2, 0.0), 1.2, 0.0, 0, ["survey.few_baselines"]),
            ((2.0, 0.0), 1.0, 0.0, 0, ["survey.did_not_come_again"]),
            ((2.0, 0.3), 2.0, 0.0, 0, ["survey.busy"]),
            ((2.0, 0.0), 2.0, 0.3, 0, ["survey.busy"]),
            ((1.0, 0.3), 1.0, 0.0, 0, ["survey.busy"]),
        ],
        ids=[
            "like before",
            "slower twice",
            "a little slower",
            "slower once",
            "busy",
            "busy the second time",
            "busy and like before",
        ],
    )
    def test_what_is_a_fault_of_this_machine(self, entries, tmp_path, now, again, others, findings, warnings):
        entries(Room("net"))
        self.results(tmp_path / "before", "net")
        scale, first_others = now
        (net,) = self.results(tmp_path / "now", "net", scale=scale)
        net.others = first_others
        measure, asked = self.again(tmp_path, again, others)
        run.hold_against([net], [tmp_path / "before"], measure)
        assert asked == ([["net"]] if scale > 1.5 and first_others == 0 else [])
        assert len(net.findings) == findings
        assert [warning.code for warning in net.warnings] == warnings
        assert net.comparable is (warnings != ["survey.busy"])

    def test_a_room_that_others_disturbed_on_another_host_is_not_judged(self, entries, tmp_path):
        entries(Room("net"))
        self.results(tmp_path / "before", "net")
        (first,) = self.results(tmp_path / "now", "net", scale=2.0)
        with netCDF4.Dataset(first.datasets[0], "a") as file:
            file.setncattr("others_hosts", ["n1", "n2"])
            file.setncattr("others_share", [0.0, 0.6])
        net = run.read("net", first.datasets)
        measure, asked = self.again(tmp_path, 2.0, 0.0)
        run.hold_against([net], [tmp_path / "before"], measure)
        assert (asked, [finding.code for finding in net.findings]) == ([], ["net.found"]), (
            "none of the comparison"
        )
        assert not net.comparable
        assert "took up to 60 % of the processors' time on n2 while net" in net.warnings[0].evidence
        assert net.as_json()["others_host"] == "n2"

    def test_what_could_not_be_measured_again_is_no_finding(self, entries, tmp_path):
        entries(Room("net"))
        self.results(tmp_path / "before", "net")
        (net,) = self.results(tmp_path / "now", "net", scale=2.0)
        run.hold_against([net], [tmp_path / "before"], lambda rooms: [RoomResult("net", skipped="no time")])
        assert (net.findings, net.comparable, len(net.suspects)) == ([], False, 1)
        assert [warning.code for warning in net.warnings] == [
            "survey.not_repeated",
        ]

    def test_a_machine_that_could_not_be_judged_is_not_at_fault(self, entries):
        entries(Room("noise"))
        noise = RoomResult("noise", findings=[Finding("noise.unfit", "busy"), Finding("noise.real", "x")])
        run.hold_against([noise], [], lambda rooms: [])
        assert [finding.code for finding in noise.findings] == ["noise.real"]
        assert [warning.code for warning in noise.warnings] == ["noise.unfit"]
        assert (noise.comparable, noise.sound) == (False, False)


class TestBaselines:
    def test_a_folder_that_is_not_there_or_no_survey(self, entries, tmp_path):
        entries(Room("net"))
        with pytest.raises(DataError) as told:
            run.check_baselines([tmp_path / "nowhere"])
        assert told.value.code == "core.no_such_file"
        with pytest.raises(DataError) as told:
            run.check_baselines([tmp_path])
        assert told.value.code == "survey.no_baseline"

    @pytest.mark.parametrize("complete", [1, 0])
    def test_one_that_did_not_end_is_refused(self, entries, tmp_path, complete):
        entries(Room("net"))
        TestCompare().results(tmp_path / "before", "net")
        with netCDF4.Dataset(tmp_path / "before" / "net.nc", "a") as file:
            file.complete = complete
        if complete:
            run.check_baselines([tmp_path / "before"])
            return
        with pytest.raises(DataError) as told:
            run.check_baselines([tmp_path / "before"])
        assert told.value.code == "survey.incomplete_baseline"
        assert "net.nc comes from a run that did not finish" in told.value.what

    def test_one_run_is_no_two_baselines(self, entries, tmp_path):
        entries(Room("net"))
        TestCompare().results(tmp_path / "before", "net")
        with netCDF4.Dataset(tmp_path / "before" / "net.nc", "a") as file:
            file.run_id = "0123"
        shutil.copytree(tmp_path / "before", tmp_path / "copy")
        run.check_baselines([tmp_path / "before"])
        for twice in ("copy", "before"):
            with pytest.raises(DataError) as told:
                run.check_baselines([tmp_path / "before", tmp_path / twice])
            assert told.value.code == "survey.same_baseline"
            assert f"the same run as in the baseline {tmp_path / 'before'}" in told.value.what


def test_only_what_a_room_says_drains_a_host(entries):
    entries(Room("net", drained="net.found"), Room("noise"))
    bad, odd, loud = Finding("net.found", "x"), Finding("net.odd", "x"), Finding("noise.found", "x")
    results = [RoomResult("net", findings=[odd, bad]), RoomResult("noise", findings=[loud])]
    assert run.draining(results) == [bad]


class TestRooms:
    @pytest.mark.parametrize("room", core_room.NAMES)
    def test_every_room_has_a_survey_entry(self, room):
        found = run.entry(room)
        assert isinstance(found, SurveyEntry)
        assert found.weight > 0
        assert found.spread > 1

    def test_the_usual_budget_of_check_is_enough_for_all_rooms_and_a_short_one_for_all_but_noise(
        self, monkeypatch, tmp_path
    ):
        monkeypatch.setattr("sonde.core.launch.start.prepare", lambda *words: None)
        for module, name in (
            ("sonde.io.record.run_request", "library"),
            ("sonde.store.run", "program"),
            ("sonde.bus.run_probe", "program"),
            ("sonde.power.demo.run", "program"),
        ):
            monkeypatch.setattr(f"{module}.{name}", lambda: None)
        call = Call("lab", tmp_path, "auto", None, 2, 1, (), 0.0, 0.0, lambda *_: NullProgress())
        needs = {room: run.entry(room).needs_s(call) for room in core_room.NAMES}
        assert run.needed_s("noise", needs) <= 37  # of 40 s: rooms before it may overrun a little
        shares = run.share([(run.entry(room).weight, needs[room]) for room in core_room.NAMES], 16.0)
        assert [room for room, share in zip(core_room.NAMES, shares) if share is None] == ["noise"]

    def test_a_call_starts_a_program_of_its_room(self, monkeypatch, tmp_path):
        monkeypatch.setenv("SONDE_MPI", "/nonexistent/mpi")
        call = Call("lab", tmp_path, "auto", None, None, 1, (), 10.0, 0.0, lambda *_: NullProgress())
        with pytest.raises(EnvironmentFailure) as told:
            start_for(call, "sonde-lab")
        assert told.value.code == "lab.no_mpi"
        monkeypatch.setenv("SLURM_NTASKS", "12")
        assert ranks_for(call) == 12

    def test_hosts_that_cannot_be_read_skip_the_room(self, tmp_path):
        call = Call("lab", tmp_path, "auto", "n[1-", None, 1, (), 10.0, 0.0, lambda *_: NullProgress())
        with pytest.raises(UsageError):
            start_for(call, "sonde-lab")


class TestReportInterruption:
    @staticmethod
    def measure(folder, measured, number):
        for room in measured:
            (folder / f"{room}-n1-20261120T214757Z-3f9a.nc").touch()
        signal.raise_signal(number)

    def test_datasets_of_an_earlier_survey_of_the_folder_are_not_this_ones(self, tmp_path):
        (tmp_path / "net-a.nc").touch()
        with pytest.raises(Interrupted) as told, run.report_interruption(tmp_path, True):
            self.measure(tmp_path, (), signal.SIGTERM)
        assert told.value.what.startswith("interrupted: net, noise")
        assert told.value.what.endswith("no results are left")
        assert (tmp_path / "net-a.nc").exists()

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    @pytest.mark.parametrize(
        ("measured", "saved", "said"),
        [
            ((), True, "net, noise, io, store, bus, power not measured completely; no results are left"),
            (
                ("net", "noise"),
                True,
                "io, store, bus, power not measured completely; the results so far are in {}",
            ),
            (("net", "noise"), False, "io, store, bus, power not measured completely; no results are left"),
            (core_room.NAMES, True, "not judged completely; the results so far are in {}"),
        ],
    )
    def test_a_signal_between_rooms_is_reported_with_what_was_not_done_and_what_is_left(
        self, tmp_path, number, measured, saved, said
    ):
        before = signal.getsignal(number)
        folder = tmp_path / "survey"
        folder.mkdir()
        with pytest.raises(Interrupted) as told, run.report_interruption(folder, saved):
            self.measure(folder, measured, number)
        assert told.value.code == "survey.interrupted"
        assert told.value.what == f"interrupted: {said.format(folder)}"
        assert told.value.hint
        assert folder.exists() == bool(measured)
        assert signal.getsignal(number) is before

    @pytest.mark.parametrize("saved", [True, False])
    def test_what_a_room_says_of_a_run_that_is_left_is_told_where_it_is(self, tmp_path, saved):
        left = Interrupted(
            "net.interrupted", f"what was measured is in {tmp_path}/a.run", "sonde data recover"
        )
        with pytest.raises(Interrupted) as told, run.report_interruption(tmp_path, saved):
            raise left
        assert (told.value is left) == saved
        assert ("a.run" in told.value.what) == saved

    def test_a_survey_that_was_cut_within_a_room_names_it_and_those_after_it(self, tmp_path):
        results = [RoomResult("net"), RoomResult("io", interrupted=True), RoomResult("bus", skipped="so")]
        told = run.interrupted_warning(results, tmp_path)
        assert told is not None
        assert told.evidence == (
            f"interrupted: io, bus not measured completely; the results so far are in {tmp_path}"
        )
        assert run.interrupted_warning(results[:1], tmp_path) is None

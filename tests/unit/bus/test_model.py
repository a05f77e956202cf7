"""Advice from runs whose truth is known: the right way first, the numbers behind it, and what was not measured."""

from __future__ import annotations

import math

import pytest
from probe_runs import made, near, planned, sealed, values_of

from sonde.bus import lessons, model
from sonde.bus.cases import Case
from sonde.bus.model import Need, advise, best_discovery
from sonde.bus.variants import read_variant, variant_of
from sonde.core.errors import DataError

CYCLONE, MULTICAST, SHM = (
    variant_of("cyclonedds", "udp4"),
    variant_of("cyclonedds", "multicast"),
    variant_of("fastdds", "shm"),
)
FAST, SERVER, RAW, NULL = (
    variant_of("fastdds", "udp4"),
    variant_of("fastdds", "udp4", "server"),
    variant_of("raw", "udp4"),
    variant_of("null", ""),
)
CASES = [
    *(Case("latency", size) for size in (64, 16384)),
    *(Case("fanout", 64, n) for n in (1, 8, 32)),
    *(Case("throughput", 64, n, treatment="reliable") for n in (1, 8)),
    *(Case("discovery", entities=n, treatment="all") for n in (8, 16, 32, 64)),
]
ONE_WAY = {CYCLONE: 20e-6, MULTICAST: 24e-6, SHM: 7e-6, FAST: 32e-6, RAW: 2e-6, NULL: 1e-7}
SLOPE = {CYCLONE: 6e-6, MULTICAST: 0.2e-6, SHM: 4e-6, FAST: 8e-6}


def level(variant, case, epoch, rng):
    match case.test:
        case "latency":
            one = ONE_WAY[variant] * (1 + case.size / 65536)
            return {"one_way": near(rng, one), "rtt": near(rng, 2 * one), "publish": near(rng, one / 4)}
        case "fanout":
            one = ONE_WAY[variant] + SLOPE[variant] * (case.subscribers - 1)
            return {
                "last": near(rng, one, 3),
                "publish": near(rng, 5e-6 + SLOPE[variant] * case.subscribers, 3),
            }
        case "throughput":
            return {"message_rate": near(rng, 3e5, 1), "lost": 0.02 if variant == SHM else 0.0}
        case "discovery":
            n = case.entities
            datagrams = 80 * n if variant == SERVER else 2.37 * n * n
            return {"datagrams": near(rng, datagrams, 1), "time_to_match": near(rng, 0.01 * n, 1)}
    return {}


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    plan = planned(CASES, CYCLONE, MULTICAST, FAST, SHM, RAW, NULL, SERVER)
    return values_of(tmp_path_factory.mktemp("model"), plan, _for_raw, 8)


def _for_raw(variant, case, epoch, rng):
    if variant in (RAW, NULL) and case.test != "latency":
        return {}
    return level(variant, case, epoch, rng)


def ways(found):
    return [advice.way.name for advice in found]


class TestRanking:
    def test_one_subscriber_on_one_host_takes_shared_memory(self, told):
        found = advise(told, Need(1, 1, 64, local=True))
        assert ways(found) == ["fastdds/shm", "cyclonedds/udp4", "cyclonedds/multicast", "fastdds/udp4"]
        assert found[0].latency_s == pytest.approx(7e-6, rel=0.01)
        assert found[0].latency_ends[0] < 7.01e-6 < found[0].latency_ends[1] * 1.005
        assert not found[0].outside

    def test_many_subscribers_take_multicast(self, told):
        found = advise(told, Need(1, 32, 64, local=True))
        assert found[0].way.name == "cyclonedds/multicast"
        assert found[0].latency_s == pytest.approx(24e-6 + 31 * 0.2e-6, rel=0.02)

    def test_numbers_between_are_distinguished_from_their_neighbours(self, told):
        (best, *_) = advise(told, Need(1, 20, 64, local=True))
        assert best.latency_s == pytest.approx(24e-6 + 19 * 0.2e-6, rel=0.02)
        assert any("8 and 32 subscribers" in line for line in best.because)
        assert not best.outside

    def test_between_hosts_there_is_no_shared_memory(self, told):
        found = advise(told, Need(1, 1, 64, local=False))
        assert "fastdds/shm" not in ways(found)
        assert all("within one host" in " ".join(advice.outside) for advice in found)

    def test_what_was_measured_between_hosts_says_between_whom(self, told):
        found = advise(told, Need(1, 1, 64, local=False), "n[1-2]")
        assert not found[0].outside
        assert found[0].because[0].endswith("measured at 64 B between n[1-2]")
        local = advise(told, Need(1, 1, 64, local=True), "n[1-2]")
        assert "between n[1-2], not within one host" in local[0].outside[0]

    def test_bare_sockets_and_what_stays_in_a_process_are_no_advice(self, told):
        assert not {"raw/udp4", "null"} & set(ways(advise(told, Need(1, 1, 64, local=True))))

    def test_where_latency_is_alike_the_load_decides(self, tmp_path):
        def alike(variant, case, epoch, rng):
            busy = 9e-6 if variant == CYCLONE else 3e-6
            latency = 20e-6 if variant == CYCLONE else 21e-6
            return {"one_way": near(rng, latency), "publish": near(rng, busy)}

        values = values_of(tmp_path, planned(CASES[:1], CYCLONE, FAST), alike)
        assert ways(advise(values, Need(1, 1, 64, True))) == ["fastdds/udp4", "cyclonedds/udp4"]

    def test_what_is_not_known_stands_at_the_end_however_little_it_keeps_a_writer_busy(self, tmp_path):
        def some(variant, case, epoch, rng):
            if case.test == "fanout" and variant == CYCLONE:
                return {}
            found = level(variant, case, epoch, rng)
            return found | {"publish": near(rng, 1e-9)} if variant == CYCLONE else found

        values = values_of(tmp_path, planned(CASES[:5], CYCLONE, FAST, SHM), some)
        found = advise(values, Need(1, 8, 64, True))
        assert ways(found) == ["fastdds/shm", "fastdds/udp4", "cyclonedds/udp4"]
        assert math.isnan(found[-1].latency_s)
        # Where fan-out takes nothing more of a writer, the one that is not known would have been the first.
        unknown = found[-1].__class__(found[-1].way, math.nan, (math.nan, math.nan), 1e-9, math.nan, None)
        assert model._ranked([unknown, found[0]])[0] is found[0]


class TestFanoutOfManyAlone:
    """One subscriber alone was not measured: what was is taken as it is, and not as if it cost nothing more."""

    LAST = {CYCLONE: 400e-6, FAST: 90e-6}  # noqa: RUF012

    def told(self, tmp_path, *many, size=64):
        def level(variant, case, epoch, rng):
            if case.test == "latency":
                one = ONE_WAY[variant]
                return {"one_way": near(rng, one), "publish": near(rng, one / 4)}
            last = self.LAST[variant] * case.subscribers / 8
            return {"last": near(rng, last, 3), "publish": near(rng, last / 2, 3)}

        cases = [Case("latency", 64), Case("latency", 16384), *(Case("fanout", size, n) for n in many)]
        return values_of(tmp_path, planned(cases, CYCLONE, FAST), level)

    def test_the_number_that_was_measured(self, tmp_path):
        best, other = advise(self.told(tmp_path, 8), Need(1, 8, 64, True))
        assert (best.way.name, other.way.name) == ("fastdds/udp4", "cyclonedds/udp4")
        assert best.latency_s == pytest.approx(90e-6, rel=0.01)
        assert other.latency_s == pytest.approx(400e-6, rel=0.01)
        assert other.latency_ends[0] < other.latency_s < other.latency_ends[1] < 410e-6
        assert best.publish_s == pytest.approx(45e-6, rel=0.01)
        assert best.because[0].startswith("the last of 8 subscribers receives it after 90")
        assert not best.outside

    def test_one_between_two(self, tmp_path):
        best = advise(self.told(tmp_path, 4, 8), Need(1, 6, 64, True))[0]
        assert best.latency_s == pytest.approx(90e-6 * 6 / 8, rel=0.01)
        assert math.isfinite(best.latency_ends[1])

    def test_one_number_beyond_which_nothing_is_known(self, tmp_path):
        found = advise(self.told(tmp_path, 8), Need(1, 32, 64, True))
        assert [advice.too_few for advice in found] == [["fan-out was measured only with 8 subscribers"]] * 2
        assert all(math.isnan(advice.latency_s) for advice in found)

    @pytest.mark.parametrize("many", [(4, 8), (1, 8)])
    def test_beyond_them_there_is_no_interval(self, tmp_path, many):
        best = advise(self.told(tmp_path, *many), Need(1, 32, 64, True))[0]
        assert "32 subscribers are outside the measured range" in " ".join(best.outside)
        assert best.latency_s > 80e-6
        assert all(math.isnan(end) for end in best.latency_ends)

    def test_of_another_size_that_is_reported(self, tmp_path):
        best = advise(self.told(tmp_path, 8), Need(1, 8, 16384, True))[0]
        assert best.outside == ["several subscribers were measured only with 64 B"]


class TestOutside:
    def test_a_size_that_was_not_measured(self, told):
        best = advise(told, Need(1, 1, 1 << 20, local=True))[0]
        assert "1 MiB is outside the measured range" in best.outside[0]

    def test_more_subscribers_than_were_measured(self, told):
        best = advise(told, Need(1, 100, 64, local=True))[0]
        assert any("100 subscribers" in text for text in best.outside)

    def test_without_fanout_several_subscribers_are_not_known(self, tmp_path):
        def latency(variant, case, epoch, rng):
            return {"rtt": near(rng, 40e-6)}

        values = values_of(tmp_path, planned(CASES[:1], CYCLONE), latency)
        (only,) = advise(values, Need(1, 8, 64, local=True))
        assert only.latency_s != only.latency_s
        assert "several subscribers were not measured" in only.outside
        (one,) = advise(values, Need(1, 1, 64, local=True))
        assert one.latency_s == pytest.approx(20e-6, rel=0.01)  # half a round trip

    def test_without_latencies_one_subscriber_of_several_tells(self, tmp_path):
        values = values_of(tmp_path, planned(CASES[2:5], CYCLONE), level)
        (only,) = advise(values, Need(1, 8, 64, local=True))
        assert only.latency_s == pytest.approx(20e-6 + 7 * 6e-6, rel=0.02)

    def test_nothing_to_advise(self, tmp_path):
        values = values_of(tmp_path, planned(CASES[:1], RAW), level)
        with pytest.raises(DataError) as caught:
            advise(values, Need(1, 1, 64, local=True))
        assert caught.value.code == "bus.nothing_to_advise"
        with pytest.raises(DataError) as caught:
            advise(values, Need(1, 1, 64, local=False))
        assert "--hosts" in caught.value.hint


class TestDiscovery:
    def test_few_participants_need_no_server(self, told):
        way = next(way for way in told.ways if way.name == "fastdds/shm")
        assert best_discovery(told, way, 16).kind == "simple"

    def test_many_participants_need_one(self, told):
        way = next(way for way in told.ways if way.name == "fastdds/shm")
        found = best_discovery(told, way, 96)
        # At 64 simple has 9707 datagrams and a server 5120; at 96, by the law, 21842 and 7680.
        assert found.kind == "server"
        assert found.datagrams == pytest.approx(7680, rel=0.05)
        assert found.beyond
        assert "according to the fitted law" in found.because

    def test_an_implementation_without_a_server_has_none(self, told):
        way = next(way for way in told.ways if way.name == "cyclonedds/udp4")
        assert best_discovery(told, way, 64).kind == "simple"

    def test_it_is_part_of_the_advice(self, told):
        best = advise(told, Need(64, 1, 64, local=True))[0]
        assert best.discovery.datagrams == pytest.approx(2.37 * 64**2, rel=0.01)
        assert any("measured with 64" in line for line in best.because)

    def test_loss_at_full_speed_is_reported_beside_the_rate(self, told):
        best = advise(told, Need(1, 1, 64, local=True))[0]
        assert best.lost == pytest.approx(0.02)
        assert any("2.0 % lost" in line for line in best.because)


class TestDiscoveryOfAnother:
    """Keys make ten times as many datagrams: whose numbers they are is said, and the nearest are taken."""

    KEYS = read_variant("secured=cyclonedds,security=keys,identity=probe")
    DATAGRAMS = {"cyclonedds/udp4": 3195, "secured": 32000, "cyclonedds/udp4/peers": 3000}  # noqa: RUF012

    def told(self, tmp_path, *variants, without=()):
        def level(variant, case, epoch, rng):
            if case.test == "latency":
                return {"one_way": near(rng, 20e-6)}
            if variant.name in without or variant.name not in self.DATAGRAMS:
                return {}
            return {"datagrams": near(rng, self.DATAGRAMS[variant.name] * case.entities / 32, 1)}

        cases = [Case("latency", 64), *(Case("discovery", entities=n, treatment="star") for n in (16, 32))]
        return values_of(tmp_path, planned(cases, *variants), level)

    def advice(self, told, name):
        return next(one for one in advise(told, Need(32, 1, 64, True)) if one.way.name == name)

    @pytest.mark.parametrize("turned", [False, True])
    def test_with_keys_and_without_each_has_its_own(self, tmp_path, turned):
        both = [CYCLONE, self.KEYS][:: -1 if turned else 1]
        told = self.told(tmp_path, *both, variant_of("cyclonedds", "udp4", "peers"))
        for name in ("cyclonedds/udp4", "secured"):
            found = self.advice(told, name)
            assert found.discovery.datagrams == pytest.approx(self.DATAGRAMS[name], rel=0.02)
            assert found.discovery.way.name == name
            assert found.because[-1].endswith(f"measured with 32 over {name}")
            assert not found.outside

    def test_where_keys_were_not_measured_the_bare_one_is_named(self, tmp_path):
        found = self.advice(self.told(tmp_path, CYCLONE, self.KEYS, without=["secured"]), "secured")
        assert found.discovery.way.name == "cyclonedds/udp4"
        assert found.outside == ["discovery was measured without keys, over cyclonedds/udp4"]

    def test_another_transport_is_named(self, tmp_path):
        found = self.advice(self.told(tmp_path, CYCLONE, MULTICAST), "cyclonedds/multicast")
        assert found.because[-1].endswith("over cyclonedds/udp4")
        assert not found.outside

    def test_a_lesson_holds_like_against_like(self, tmp_path):
        told = self.told(tmp_path, self.KEYS, CYCLONE, variant_of("cyclonedds", "udp4", "peers"))
        (kinds,) = (one for one in lessons.lessons(told) if one["code"] == "bus.discovery_kinds")
        assert kinds["evidence"]["against"] == "cyclonedds/udp4"
        assert kinds["evidence"]["simple"] == pytest.approx(3195, rel=0.02)
        assert "peers discovery over cyclonedds/udp4/peers" in kinds["text"]
        assert "of simple discovery over cyclonedds/udp4" in kinds["text"]

    def test_a_kind_with_keys_is_not_held_against_one_without(self, tmp_path):
        keyed = read_variant("listed=cyclonedds,security=keys,identity=probe,discovery=peers")
        self.DATAGRAMS["listed"] = 30000
        told = self.told(tmp_path, CYCLONE, keyed)
        assert not [one for one in lessons.lessons(told) if one["code"] == "bus.discovery_kinds"]
        assert self.advice(told, "cyclonedds/udp4").discovery.kind == "simple"
        assert self.advice(told, "listed").discovery.kind == "peers"


class TestTooFewNumbers:
    """A value measured at one number alone says nothing of another: it has no rank, and the answer says so."""

    PEERS = variant_of("fastdds", "udp4", "peers")

    def run(self, tmp_path, cases, *variants, epochs=12, without=()):
        def level(variant, case, epoch, rng):
            number = case.entities if case.test == "discovery" else case.size
            if (variant.name, case.test, number) in without:
                return {}
            if case.test == "discovery":
                n = case.entities
                return {"datagrams": near(rng, 14.4 * n * n if variant.discovery == "simple" else 80 * n, 1)}
            one = ONE_WAY.get(variant, 30e-6)
            if case.test == "latency":
                return {"one_way": near(rng, one), "publish": near(rng, one / 4)}
            return {"last": near(rng, one * case.subscribers, 3), "publish": near(rng, one / 4, 3)}

        return values_of(tmp_path, planned(cases, *variants), level, epochs)

    def discovery(self, *simple, peers=(8, 16)):
        cases = [Case("latency", 64)]
        numbers = sorted({*simple, *peers})
        cases += [Case("discovery", entities=n, treatment="star") for n in numbers]
        without = {(FAST.name, "discovery", n) for n in numbers if n not in simple}
        return cases, without | {(self.PEERS.name, "discovery", n) for n in numbers if n not in peers}

    def test_a_kind_of_discovery_with_one_number_is_not_chosen(self, tmp_path):
        cases, without = self.discovery(16)
        run = self.run(tmp_path, cases, FAST, self.PEERS, without=without)
        best = advise(run, Need(96, 1, 64, True))[0]
        assert best.discovery.kind == ""
        (text,) = best.outside
        assert "the best discovery for 96 participants is unknown" in text
        assert "simple discovery was measured only with 16 participants" in text
        assert not best.too_few  # its latency is known
        # With two numbers of each kind there is an answer.
        (tmp_path / "two").mkdir()
        cases, without = self.discovery(8, 16)
        run = self.run(tmp_path / "two", cases, FAST, self.PEERS, without=without)
        assert advise(run, Need(96, 1, 64, True))[0].discovery.kind == "peers"
        # At the number that was measured one is enough.
        assert advise(run, Need(16, 1, 64, True))[0].discovery.kind == "peers"

    def test_a_size_beside_the_only_one(self, tmp_path):
        run = self.run(tmp_path, [Case("latency", 64)], CYCLONE, FAST)
        found = advise(run, Need(1, 1, 1024, True))
        assert [advice.too_few for advice in found] == [["latency was measured only at 64 B"]] * 2
        assert not any(advice.because for advice in found)

    def test_one_subscriber_alone(self, tmp_path):
        run = self.run(tmp_path, [Case("latency", 64), Case("fanout", 64, 1)], CYCLONE)
        (only,) = advise(run, Need(1, 8, 64, True))
        assert only.too_few == ["fan-out was measured only with 1 subscribers"]
        assert math.isnan(only.latency_s)

    def test_fewer_bursts_than_an_interval_takes(self, tmp_path):
        run = self.run(tmp_path, [Case("latency", 64)], CYCLONE, FAST, epochs=2)
        found = advise(run, Need(1, 1, 64, True))
        assert [advice.too_few for advice in found] == [
            ["it was measured in 2 bursts: an interval needs 6"]
        ] * 2

    def test_those_that_are_known_come_first(self, tmp_path):
        cases = [Case("latency", 64), Case("latency", 4096)]
        without = {(SHM.name, "latency", 4096)}
        run = self.run(tmp_path, cases, SHM, CYCLONE, FAST, without=without)
        assert ways(advise(run, Need(1, 1, 64, True)))[0] == "fastdds/shm"
        found = advise(run, Need(1, 1, 1024, True))
        assert ways(found) == ["cyclonedds/udp4", "fastdds/udp4", "fastdds/shm"]
        assert [bool(advice.too_few) for advice in found] == [False, False, True]

    @pytest.fixture
    def path(self, tmp_path):
        cases = [Case("latency", 64), Case("latency", 4096)]
        plan = planned(cases, CYCLONE, FAST, SHM)

        def some(variant, case, epoch, rng):
            if variant == SHM and case.size == 4096:
                return {}
            return {"one_way": near(rng, ONE_WAY[variant]), "publish": near(rng, 5e-6)}

        return sealed(tmp_path, plan, made(plan, some)).path

    def test_the_command_says_what_is_missing_instead_of_a_rank(self, path):
        from sonde.bus.cli_advise import advise as command

        def typed(**more):
            options = [word for name, value in more.items() for word in (f"--{name}", str(value))]
            return command.main(["--local", "--from", str(path), *options], standalone_mode=False)

        known = typed()
        assert known.verdict.startswith("Best for 1 subscriber of 64 B on one host: fastdds/shm")
        assert known.sound
        assert [one["rank"] for one in known.values["advice"]] == [1, 2, 3]

        partly = typed(size=1024)
        assert partly.verdict.startswith("Best for 1 subscriber of 1 KiB on one host: cyclonedds/udp4")
        assert not partly.sound
        assert [(one["variant"], one["rank"]) for one in partly.values["advice"]] == [
            ("cyclonedds/udp4", 1),
            ("fastdds/udp4", 2),
            ("fastdds/shm", None),
        ]
        assert partly.values["advice"][2]["latency_s"] is None
        assert partly.tables[0].rows[2][0] == "–"
        assert [w.code for w in partly.warnings] == ["bus.too_few"]
        assert "sonde bus run latency --sizes 1024 -o bus.nc" in partly.warnings[0].hint

        none = typed(subscribers=8)
        assert none.verdict.startswith("Too few numbers to rank 3 variants for 8 subscribers of 64 B")
        assert not none.sound
        assert {one["rank"] for one in none.values["advice"]} == {None}
        assert none.tables[0].title == "Measured, not ranked"
        (warning,) = (w for w in none.warnings if w.code == "bus.too_few")
        assert "bus run latency fanout --sizes 64 --subscribers 1,8 -o bus.nc" in warning.hint


def test_what_holds_of_all_advice_is_reported_once_and_of_some_by_a_letter(told):
    from sonde.bus.cli_advise import _table

    inside = _table(advise(told, Need(1, 8, 64, local=True)))
    assert "note" not in inside.columns
    beyond = advise(told, Need(1, 200, 64, local=True))
    of_all, *_ = (text for text in beyond[0].outside if "200 subscribers" in text)
    beyond[1].outside.append("it was raining")
    table = _table(beyond)
    assert f"all variants: {of_all}" in table.note.splitlines()
    assert "a: it was raining" in table.note.splitlines()
    assert table.columns[-1] == "note"
    assert [row[-1] for row in table.rows[:3]] == ["", "a", ""]

"""Advice from runs whose truth is known: the right way first, the numbers behind it, and what was not measured."""

from __future__ import annotations

import pytest
from probe_runs import near, planned, values_of

from sonde.bus.model import Need, advise, best_discovery
from sonde.bus.plan import Case, variant_of
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

    def test_numbers_between_are_told_from_their_neighbours(self, told):
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
        assert "between n[1-2], and not within one host" in local[0].outside[0]

    def test_bare_sockets_and_what_stays_in_a_process_are_no_advice(self, told):
        assert not {"raw/udp4", "null"} & set(ways(advise(told, Need(1, 1, 64, local=True))))

    def test_where_latency_is_alike_the_load_decides(self, tmp_path):
        def alike(variant, case, epoch, rng):
            busy = 9e-6 if variant == CYCLONE else 3e-6
            latency = 20e-6 if variant == CYCLONE else 21e-6
            return {"one_way": near(rng, latency), "publish": near(rng, busy)}

        values = values_of(tmp_path, planned(CASES[:1], CYCLONE, FAST), alike)
        assert ways(advise(values, Need(1, 1, 64, True))) == ["fastdds/udp4", "cyclonedds/udp4"]


class TestOutside:
    def test_a_size_that_was_not_measured(self, told):
        best = advise(told, Need(1, 1, 1 << 20, local=True))[0]
        assert "1 MiB is outside what was measured" in best.outside[0]

    def test_more_subscribers_than_were_measured(self, told):
        best = advise(told, Need(1, 100, 64, local=True))[0]
        assert any("100 subscribers" in text for text in best.outside)

    def test_without_fanout_several_subscribers_are_not_known(self, tmp_path):
        def latency(variant, case, epoch, rng):
            return {"rtt": near(rng, 40e-6)}

        values = values_of(tmp_path, planned(CASES[:1], CYCLONE), latency)
        (only,) = advise(values, Need(1, 8, 64, local=True))
        assert only.latency_s != only.latency_s
        assert "it was not measured with several subscribers" in only.outside
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
        assert "by the law" in found.because

    def test_an_implementation_without_a_server_has_none(self, told):
        way = next(way for way in told.ways if way.name == "cyclonedds/udp4")
        assert best_discovery(told, way, 64).kind == "simple"

    def test_it_is_part_of_the_advice(self, told):
        best = advise(told, Need(64, 1, 64, local=True))[0]
        assert best.discovery.datagrams == pytest.approx(2.37 * 64**2, rel=0.01)
        assert any("measured at 64" in line for line in best.because)

    def test_loss_at_full_speed_is_told_beside_the_rate(self, told):
        best = advise(told, Need(1, 1, 64, local=True))[0]
        assert best.lost == pytest.approx(0.02)
        assert any("2.0 % lost" in line for line in best.because)


def test_what_holds_of_all_advice_is_told_once_and_of_some_by_a_letter(told):
    from sonde.bus.cli_advise import _table

    inside = _table(advise(told, Need(1, 8, 64, local=True)))
    assert "but" not in inside.columns
    beyond = advise(told, Need(1, 200, 64, local=True))
    of_all, *_ = (text for text in beyond[0].outside if "200 subscribers" in text)
    beyond[1].outside.append("it was raining")
    table = _table(beyond)
    assert f"of all: {of_all}" in table.note.splitlines()
    assert "a: it was raining" in table.note.splitlines()
    assert table.columns[-1] == "but"
    assert [row[-1] for row in table.rows[:3]] == ["", "a", ""]

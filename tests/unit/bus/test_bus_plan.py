"""From options to cases, variants and the probe's command line; what is refused, and in which words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from probe_runs import QUANTITIES

from sonde.bus.cases import (
    LEAST_SIZE,
    MOST_CLIENTS,
    MOST_PARTICIPANTS,
    MOST_SIZE,
    TESTS,
    TREATMENTS,
    Case,
    Wanted,
    between,
    cases_of,
    read_tests,
)
from sonde.bus.figure_data import WORDS
from sonde.bus.plan import EPOCHS, Host, Plan, fitting, step_s
from sonde.bus.tables import SHOWN
from sonde.bus.variants import (
    RAW,
    VARIANT_OPTIONS,
    choose_variants,
    guarded,
    read_variant,
    usual_variants,
    with_paths,
)
from sonde.core.errors import UsageError


class TestTests:
    def test_none_is_latency(self):
        assert read_tests(()) == ("latency",)

    def test_all_and_lists(self):
        assert read_tests(("all",)) == tuple(TESTS)
        assert read_tests(("fanout,calls", "fanout")) == ("fanout", "calls")
        assert read_tests(("first",)) == ("first-message",)

    def test_a_typo_is_reported_with_what_was_meant(self):
        with pytest.raises(UsageError) as caught:
            read_tests(("discvery",))
        assert caught.value.code == "bus.bad_test"
        assert "nearest: discovery" in caught.value.what


class TestCases:
    def test_each_test_has_cases_that_the_probe_understands(self):
        specs = [case.spec for case in cases_of(tuple(TESTS))]
        assert "latency:size=64" in specs
        assert "fanout:subscribers=48,size=64" in specs
        assert "throughput:subscribers=1,size=1024,reliability=best-effort" in specs
        assert "partitions:treatment=wildcard,count=32,size=64" in specs
        assert "discovery:entities=96,treatment=star" in specs
        assert "first:treatment=pause+awake-cores,size=64" in specs
        assert "calls:clients=100,size=64,calls=100" in specs
        assert len(set(specs)) == len(specs)

    def test_tests_take_turns_so_that_a_short_budget_has_some_of_all(self):
        first = [case.test for case in cases_of(("latency", "discovery", "calls"))[:3]]
        assert first == ["latency", "discovery", "calls"]

    def test_options_choose_numbers(self):
        wanted = Wanted(
            sizes=(100,), subscribers=(3,), participants=(5, 7), clients=(2,), groups=(9,), calls=11
        )
        found = cases_of(tuple(TESTS), wanted)
        assert {c.size for c in found if c.test != "discovery"} == {100}
        assert [c.entities for c in found if c.test == "discovery"] == [5, 7]
        assert {c.subscribers for c in found if c.test in ("fanout", "throughput")} == {3}
        assert [c.spec for c in found if c.test == "calls"] == ["calls:clients=2,size=100,calls=11"]
        assert {c.entities for c in found if c.test == "partitions"} == {9}

    def test_discovery_is_of_one_writer_unless_all_are_to_match_all(self):
        def spec(**wanted):
            return cases_of(("discovery",), Wanted(participants=(8,), **wanted))[0].spec

        assert spec() == "discovery:entities=8,treatment=star"
        assert spec(all_to_all=True) == "discovery:entities=8,treatment=all"
        assert spec(within_s=90, steady_s=0.5) == "discovery:entities=8,treatment=star,within=90s,steady=0.5s"

    def test_sizes_and_subscribers_of_throughput_go_with_each_other(self):
        found = cases_of(("throughput",), Wanted(sizes=(64, 128), subscribers=(1, 2)))
        assert {(c.size, c.subscribers) for c in found} == {(64, 1), (64, 2), (128, 1), (128, 2)}

    @pytest.mark.parametrize(
        ("wanted", "code"),
        [
            (Wanted(participants=(MOST_PARTICIPANTS + 1,)), "bus.too_many_participants"),
            (Wanted(subscribers=(MOST_PARTICIPANTS,)), "bus.too_many_participants"),
            (Wanted(clients=(4, MOST_CLIENTS + 1)), "bus.too_many_clients"),
            (Wanted(sizes=(LEAST_SIZE - 1,)), "bus.bad_size"),
            (Wanted(sizes=(64, MOST_SIZE + 1)), "bus.bad_size"),
            (Wanted(calls=10**6), "bus.too_many_calls"),
            (Wanted(groups=(5000,)), "bus.too_many_groups"),
        ],
    )
    def test_what_no_host_can_do_is_refused(self, wanted, code):
        with pytest.raises(UsageError) as caught:
            cases_of(("latency",), wanted)
        assert caught.value.code == code
        assert caught.value.hint

    def test_the_limits_of_a_size_are_the_probes_and_are_named(self):
        assert len(cases_of(("latency",), Wanted(sizes=(LEAST_SIZE, MOST_SIZE)))) == 2
        with pytest.raises(UsageError) as caught:
            cases_of(("latency",), Wanted(sizes=(LEAST_SIZE - 1,)))
        assert f"{LEAST_SIZE} B" in caught.value.what
        assert "32 MiB" in caught.value.what

    def test_clients_are_threads_and_need_no_ports(self):
        assert len(cases_of(("calls",), Wanted(clients=(500, MOST_CLIENTS)))) == 2

    def test_as_many_participants_as_there_are_ports_are_allowed(self):
        assert len(cases_of(("discovery",), Wanted(participants=(MOST_PARTICIPANTS,)))) == 1

    def test_a_title_tells_all_that_makes_the_case(self):
        assert Case("fanout", 64, 8).title == "fanout, 8 subscribers, 64 B"
        assert Case("discovery", entities=1).title == "discovery, 1 participant"
        assert Case("latency", 8, entities=3).title == "latency, 3 others, 8 B"  # a stranger's dataset
        titles = [
            cases_of(("discovery",), Wanted(participants=(8,), all_to_all=all_))[0].title
            for all_ in (False, True)
        ]
        assert titles == ["discovery, star, 8 participants", "discovery, all to all, 8 participants"]
        titles = [case.title for case in cases_of(tuple(TESTS))]
        assert len(set(titles)) == len(titles)


class TestVariants:
    def test_names(self):
        assert read_variant("cyclonedds").spec == "cyclonedds/udp4=cyclonedds"
        assert read_variant("fastdds/shm").spec == (
            "fastdds/shm=fastdds,transport=shared-memory,without=discovery"
        )
        assert read_variant("fastdds/tcp").transport == "tcp4"
        server = read_variant("fastdds/udp4/server")
        assert (server.discovery, server.asked) == ("server", True)
        assert read_variant("raw/shm").spec.startswith("raw/shm=raw-shm,without=")
        assert read_variant("raw/shm").implementation == RAW
        assert read_variant("cyclonedds/multicast").transport == "udp4-multicast"

    def test_whole(self):
        found = read_variant("mine=cyclonedds,batch=1ms,only=latency+first")
        assert found.options == "batch=1ms"
        assert found.tests == ("latency", "first-message")
        assert found.spec == "mine=cyclonedds,batch=1ms,without=fanout+discovery+partitions+throughput+calls"

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("cyclondds", "nearest: cyclonedds"),
            ("cyclonedds/sm", "after cyclonedds/"),
            ("raw/multicast", "unknown part 'multicast'"),
            ("null/udp4", "null has no transport"),
            ("mine=cyclonedds,btch=1ms", "nearest: batch"),
            ("mine=cyclonedds,multicast=some", "unknown option 'multicast=some'"),
            ("a b=cyclonedds", "NAME=IMPLEMENTATION"),
            ("x=fastdds,only=latncy", "nearest: latency"),
        ],
    )
    def test_what_is_not_understood(self, text, said):
        with pytest.raises(UsageError) as caught:
            read_variant(text)
        assert caught.value.code == "bus.bad_variant"
        assert said in f"{caught.value.what} {caught.value.hint}"

    def test_the_usual_ones_are_those_that_a_test_is_measured_on(self):
        names = [variant.name for variant in choose_variants((), ("discovery",))]
        assert names == [
            "cyclonedds/udp4", "fastdds/udp4", "cyclonedds/udp4/peers", "fastdds/udp4/peers",
            "fastdds/udp4/server",
        ]  # fmt: skip
        assert "discovery" in read_variant("cyclonedds/multicast").tests  # who names it may
        assert "discovery" not in read_variant("fastdds/shm").tests  # which sends no datagrams
        assert "raw/udp4" in [v.name for v in choose_variants((), ("latency",))]
        assert len({v.name for v in usual_variants()}) == len(usual_variants())

    def test_lists_and_wholes_go_together(self):
        found = choose_variants(("cyclonedds,fastdds/shm", "mine=cyclonedds,batch=1ms"), ("latency",))
        assert [v.name for v in found] == ["cyclonedds/udp4", "fastdds/shm", "mine"]
        assert all(v.asked for v in found)

    def test_one_name_for_two(self):
        with pytest.raises(UsageError):
            choose_variants(("a=cyclonedds", "a=fastdds"), ("latency",))

    def test_nothing_but_limits_is_refused(self):
        with pytest.raises(UsageError) as caught:
            choose_variants(("raw/udp4",), ("latency",))
        assert caught.value.code == "bus.nothing_to_measure"


class TestHosts:
    HOSTS = ("n1", "n2")

    def test_what_stays_on_a_host_is_not_among_the_usual_ones(self):
        names = [variant.name for variant in choose_variants((), ("latency",), across=True)]
        assert "cyclonedds/udp4" in names
        assert "raw/tcp4" in names
        assert not {"null", "fastdds/shm", "raw/shm"} & set(names)

    @pytest.mark.parametrize("name", ["null", "fastdds/shm", "x=fastdds,transport=shared-memory"])
    def test_what_stays_on_a_host_is_refused_where_it_is_named(self, name):
        with pytest.raises(UsageError) as caught:
            choose_variants((name, "cyclonedds"), ("latency",), across=True)
        assert caught.value.code == "bus.one_host"

    def test_fanout_is_left_out_with_a_word(self):
        kept, (note,) = between(("latency", "fanout"))
        assert kept == ("latency",)
        assert note.code == "bus.one_host"
        with pytest.raises(UsageError):
            between(("fanout",))

    def test_what_is_open_takes_keys_or_a_word(self):
        secured = read_variant("a=cyclonedds,security=keys,identity=x")
        profile = read_variant("b=cyclonedds,profile=bus.xml#p")
        said = read_variant("c=cyclonedds,unprotected=yes")
        bare = read_variant("cyclonedds/multicast")
        assert guarded((secured, profile, said), False, self.HOSTS) == (secured, profile, said)
        with pytest.raises(UsageError) as caught:
            guarded((secured, bare), False, self.HOSTS)
        assert caught.value.code == "bus.unprotected"
        assert "n[1-2]" in caught.value.what
        assert "cyclonedds/multicast" in caught.value.what
        assert [v.options for v in guarded((secured, bare), True, self.HOSTS)] == [
            "security=keys,identity=x",
            "multicast=all,unprotected=yes",
        ]

    def test_files_are_named_as_other_hosts_find_them(self):
        absolute = "/home/me/{}".format
        found = with_paths(read_variant("a=cyclonedds,security=keys,batch=1ms"), absolute)
        assert found.options == "security=/home/me/keys,batch=1ms"
        assert with_paths(read_variant("a=cyclonedds,profile=b.xml#p"), absolute).options == (
            "profile=/home/me/b.xml#p"
        )
        assert with_paths(read_variant("cyclonedds"), absolute) == read_variant("cyclonedds")

    def test_the_probe_is_told_how_a_program_is_started_on_each(self):
        plan = Plan(
            (read_variant("cyclonedds"),),
            (Case("latency", 64),),
            hosts=(Host("n1"), Host("n2", ("ssh", "n2"))),
            launcher="mpirun",
            interfaces=("eth0", "10.0.0.0/8"),
        )
        words = plan.cells_argv()
        assert words[:8] == ["--host", "n1", "--host", "n2", "--start", "ssh", "--start", "n2"]
        assert words[8:10] == ["--interfaces", "eth0,10.0.0.0/8"]
        assert (plan.labels()["hostlist"], plan.labels()["launcher"]) == ("n[1-2]", "mpirun")
        assert "hostlist" not in Plan(plan.variants, plan.cases).labels()


class TestProbe:
    """What the probe's own help says that it takes, and records."""

    HELP = (Path(__file__).parents[3] / "native/bus/probe/help.hpp").read_text()

    def test_it_has_every_test_and_every_treatment(self):
        for test in TESTS.values():
            assert re.search(rf"^      {test.word} ", self.HELP, re.M), test.word
        for word in {word for treatment in TREATMENTS for word in treatment.split("+")}:
            assert word in self.HELP, word

    def test_it_has_every_option_of_a_variant(self):
        for option in VARIANT_OPTIONS:
            assert f"{option}=" in self.HELP, option

    def test_it_records_what_is_shown(self):
        names = {name for name, _ in QUANTITIES}
        shown = {name for found in SHOWN.values() for name, _ in found}
        assert {test.quantity for test in TESTS.values()} | shown | set(WORDS) | {
            "lost",
            "mismatched",
        } <= names


class TestPlan:
    def plan(self, *tests, budget=60.0):
        variants = choose_variants((), tests)
        cases = cases_of(tests)
        kept = fitting(cases, variants, budget)
        return Plan(variants, tuple(kept), left_out=tuple(c for c in cases if c not in kept))

    def test_the_command_line(self):
        words = self.plan("latency").argv("/x/a.run", 12.5)
        assert words[:3] == ["run", "--dir", "/x/a.run"]
        assert words[words.index("--budget-s") + 1] == "12.5"
        assert words.count("--case") == 4
        assert "cyclonedds/udp4=cyclonedds,without=" in " ".join(words)

    def test_a_short_budget_leaves_the_long_ones_out_and_says_so(self):
        plan = self.plan("discovery", budget=60)
        assert [case.entities for case in plan.cases][:2] == [4, 8]
        assert any(case.entities == 96 for case in plan.left_out)
        (warning,) = plan.warnings()
        assert warning.code == "bus.cases_postponed"
        enough = plan.full_budget_s()
        assert fitting(plan.left_out, plan.variants, enough) != []
        assert len(self.plan("discovery", budget=enough).left_out) == 0

    def test_a_budget_is_not_overdrawn_but_for_the_first_cases(self):
        plan = self.plan("latency", "calls", budget=40)
        need = sum(EPOCHS * step_s(c) for v in plan.variants for c in plan.cases if v.takes(c))
        assert need <= 40 * 1.5

    def test_a_wrong_rule_is_refused(self):
        with pytest.raises(UsageError):
            Plan(choose_variants((), ("latency",)), (Case("latency", 64),), rule="maybe")

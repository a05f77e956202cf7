"""Plans of the store's bench: cases, variants, what a budget has time for."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import replace

import pytest

from sonde.core.errors import UsageError
from sonde.core.launch import libexec
from sonde.store.cli_run import OperationSizes
from sonde.store.plan import (
    DEFAULT_VARIANTS,
    HDF5,
    MAX_AT_ONCE,
    MAX_ATTRIBUTE,
    MAX_BATCH,
    MAX_BYTES,
    MAX_DEPTH,
    MAX_KV_BATCH,
    MAX_VALUE,
    MIN_ROW,
    OPERATIONS,
    VARIANT_OPTIONS,
    VARIANTS,
    Case,
    Plan,
    Variant,
    cases_of,
    choose_variants,
    default_cases,
    fitting,
    measuring_s,
    read_operations,
    read_variant,
    without_hopeless,
)
from sonde.store.run_bench import PROBE

EVERY = choose_variants((), ["tcp", "ofi-msg", "ofi-rdm", "ofi-rma"])


class TestCases:
    def test_a_size_beyond_any_operation_is_reported_with_the_true_limit(self):
        assert OperationSizes.largest == MAX_BYTES
        assert OperationSizes().read("1GiB") == (MAX_BYTES,)
        with pytest.raises(UsageError, match="allowed: up to 1 GiB"):
            OperationSizes().read("99GiB")

    def test_a_case_reads_what_it_writes(self):
        for case in default_cases():
            assert Case.read(case.spec) == case

    @pytest.mark.parametrize(
        "text", ["", "object.write", "object.put:1:1:1", "disk.write:1:1:1", "object.write:1:1:1:1"]
    )
    def test_what_is_no_case_is_refused(self, text):
        with pytest.raises(UsageError) as told:
            Case.read(text)
        assert told.value.code == "store.bad_case"

    def test_a_title_says_batch_and_depth_only_where_there_are(self):
        assert Case("object", "write", 4096).title == "object write, 4 KiB"
        assert Case("kv", "get", 4096, 1000, 16).title == "key-value get, 1000 × 4 KiB, 16 under way"

    def test_the_usual_cases_are_those_of_the_bench_that_is_repeated(self):
        cases = default_cases()
        assert len(set(cases)) == len(cases)
        assert not any(case.refused() for case in cases)
        singles = {
            "db": {(4096, 1)},
            "dataset": {(4096, 1), (4 << 20, 1)},
            "attribute": {(64, 1)},
        }
        every = {(64, 1), (4096, 1), (65536, 1), (4 << 20, 1)}
        for client, ops in OPERATIONS.items():
            for op in ops:
                own = {(case.size, case.batch) for case in cases if (case.client, case.op) == (client, op)}
                assert singles.get(client, every) <= own
                batch = 10_000 if client in ("object", "striped", "item") else 1000
                assert (64 if client == "attribute" else 4096, batch) in own

    def test_a_client_alone_means_all_it_can_do(self):
        assert read_operations("kv,object.read") == [("kv", "put"), ("kv", "get"), ("object", "read")]
        assert len(read_operations("all")) == sum(map(len, OPERATIONS.values()))

    def test_hdf5_means_datasets_and_attributes(self):
        assert read_operations("hdf5") == [
            ("dataset", "write"), ("dataset", "read"), ("attribute", "write"), ("attribute", "read")
        ]  # fmt: skip
        with pytest.raises(UsageError, match="nearest: hdf5"):
            read_operations("hfd5")

    def test_a_misspelt_operation_names_the_nearest(self):
        with pytest.raises(UsageError, match=r"object\.wriet.*nearest: object\.write"):
            read_operations("object.wriet")

    def test_options_make_every_case_with_every_other(self):
        cases, warnings = cases_of("object.write", (64, 4096), (1, 10), (1, 4))
        assert len(set(cases)) == 8
        assert not warnings

    def test_of_a_product_what_is_too_large_is_left_out_and_named(self):
        cases, warnings = cases_of("object,kv", (64, 4 << 20), (1, 10_000), None)
        assert all(case.size * case.batch * case.depth <= MAX_AT_ONCE for case in cases)
        assert Case("object", "write", 64, 10_000) in cases
        assert [w.code for w in warnings] == ["store.cases_left_out"]
        assert "object.write:4194304:10000:1" in warnings[0].evidence

    def test_nothing_left_is_an_error_that_says_why(self):
        with pytest.raises(UsageError, match="256 MiB") as told:
            cases_of("object", (4 << 20,), (10_000,), None)
        assert told.value.code == "store.no_case"

    @pytest.mark.parametrize(
        ("case", "why"),
        [
            (Case("object", "write", 0), "1 B"),
            (Case("object", "write", 1, 0), "from 1"),
            (Case("object", "write", 1, 1, 1025), "1024"),
            (Case("kv", "put", 17 << 20), "16 MiB"),
            (Case("kv", "put", 65536, 1000), "32 MiB"),
            (Case("db", "insert", 63), "64 B"),
            (Case("db", "query", 17 << 20), "16 MiB"),
            (Case("db", "update", 65536, 1000), "32 MiB"),
            (Case("attribute", "write", 9 << 20), "8 MiB"),
            (Case("dataset", "read", 64, 1, 2), "one operation under way"),
        ],
    )
    def test_limits_of_the_probe_are_known_before_it_starts(self, case, why):
        assert why in case.refused()


class TestVariants:
    def test_without_libfabric_only_tcp_is_compared(self):
        assert [v.name for v in choose_variants((), ["tcp"])] == ["raw", "tcp", "plain"]

    def test_with_libfabric_all_usual_ones_are(self):
        found = choose_variants((), ["tcp", "ofi-msg", "ofi-rdm", "ofi-rma"])
        assert [v.name for v in found] == list(DEFAULT_VARIANTS)
        assert found[3].spec == "plain=tcp,nodelay=no,gather=no,clients=object"

    @pytest.mark.parametrize("name", ["raw", "raw-ofi", "raw-ofi/tcp", "mine=raw-ofi,provider=net"])
    def test_a_raw_limit_has_messages_and_no_calls_of_hdf5(self, name):
        (variant,) = choose_variants((name,), [])
        assert variant.style == "raw"
        assert variant.takes(Case("db", "insert", 64))
        assert not any(variant.takes(Case(client, "write", 64)) for client in HDF5)
        plan = Plan((variant, VARIANTS["tcp"]), (Case("dataset", "write", 64), Case("kv", "put", 64)))
        assert plan.cells == 3
        first, second = (row["clients"] for row in plan.document()["variants"])
        assert set(OPERATIONS) - set(first) == set(HDF5)
        assert second == []

    def test_a_list_may_be_given_at_once_or_again(self):
        assert choose_variants(("raw,tcp", "plain"), []) == tuple(
            VARIANTS[n] for n in ("raw", "tcp", "plain")
        )

    def test_a_provider_is_named_behind_a_slash(self):
        assert read_variant("ofi-rdm/tcp;ofi_rxm") == Variant(
            "ofi-rdm/tcp;ofi_rxm", "provider", "ofi-rdm", "provider=tcp;ofi_rxm", "ofi-rdm over tcp;ofi_rxm"
        )

    def test_a_whole_variant_keeps_its_options(self):
        (variant,) = choose_variants(("mine=tcp,nodelay=no,cork=yes",), [])
        assert (variant.spec, variant.style) == ("mine=tcp,nodelay=no,cork=yes", "mine")

    @pytest.mark.parametrize(
        "text",
        [
            *("tpc", "ofi-msg/", "=tcp", "a b=tcp", "mine="),
            *("x=tcp,foo=1", "x=tcp,nodelay=maybe", "x=tcp,nodelay", "x=tcp,rma=-1", "x=tcp,,cork=no"),
        ],
    )
    def test_what_is_no_variant_is_refused(self, text):
        with pytest.raises(UsageError) as told:
            read_variant(text)
        assert told.value.code == "store.bad_variant"

    def test_a_misspelt_option_is_reported_with_the_nearest(self):
        with pytest.raises(UsageError, match="nearest: nodelay"):
            read_variant("x=tcp,nodelya=no")

    def test_every_option_that_the_probe_takes_is_taken(self):
        text = "x=ofi-rdm,nodelay=no,cork=yes,gather=no,await=yes,provider=tcp;ofi_rxm,rma=4096,spin=20us"
        text += ",checksum=head,tls=yes,clients=object+kv"
        assert read_variant(text).spec == text

    def test_one_name_for_two_is_refused(self):
        with pytest.raises(UsageError, match="two variants are called 'tcp'"):
            choose_variants(("tcp", "tcp=tcp,nodelay=no"), [])

    def test_twice_the_same_is_once(self):
        assert choose_variants(("tcp,tcp",), []) == (VARIANTS["tcp"],)


class TestPlan:
    def test_the_raw_limit_alone_is_no_comparison(self):
        with pytest.raises(UsageError) as told:
            Plan((VARIANTS["raw"],), (Case("object", "write", 64),))
        assert told.value.code == "store.nothing_to_compare"

    def test_an_unknown_rule_is_refused(self):
        with pytest.raises(UsageError):
            Plan((VARIANTS["tcp"],), (Case("object", "write", 64),), rule="magic")

    def test_a_short_budget_measures_what_says_most(self):
        cases = default_cases()
        few = fitting(cases, EVERY, 5.0)
        assert few == cases[: len(few)]
        assert 2 <= len(few) < len(fitting(cases, EVERY, 20.0)) < len(cases)
        assert fitting(cases, EVERY, measuring_s(60.0, len(cases) * len(EVERY))) == cases

    def test_fewer_variants_leave_time_for_more_cases(self):
        cases = default_cases()
        assert len(fitting(cases, EVERY[:2], 5.0)) > len(fitting(cases, EVERY, 5.0))

    def test_a_budget_of_nothing_still_has_two_cases(self):
        assert len(fitting(default_cases(), EVERY, 0.0)) == 2

    def test_mistakes_are_shown_with_objects_alone_unless_they_are_asked_for(self):
        for variant in EVERY:
            slow = variant.style in ("plain", "thesis")
            assert variant.takes(Case("kv", "put", 64)) != slow
            assert variant.takes(Case("object", "write", 64))
        assert Plan(EVERY, tuple(default_cases())).cells < len(EVERY) * len(default_cases())
        (plain,) = choose_variants(("plain",), [])
        assert plain.takes(Case("kv", "put", 64))

    def test_what_is_left_out_is_reported_with_a_budget_that_has_time_for_it(self):
        cases = default_cases()
        few = fitting(cases, EVERY, 5.0)
        plan = Plan(EVERY, tuple(few), left_out=tuple(cases[len(few) :]))
        (warning,) = plan.warnings()
        assert warning.code == "store.cases_postponed"
        assert f"--budget {plan.full_budget_s():.0f}s" in warning.hint
        time_s = measuring_s(plan.full_budget_s() - 2, len(cases) * len(EVERY))
        assert fitting(cases, EVERY, time_s) == cases

    def test_measuring_never_takes_all_of_the_budget_and_never_none(self):
        plan = Plan(choose_variants((), ["tcp"]), tuple(default_cases()))
        for left_s in (-3.0, 0.0, 1.0, 5.0, 60.0, 3600.0):
            assert plan.measuring_s(left_s) >= 0.5
            assert plan.measuring_s(left_s) < max(left_s, 0.6)

    def test_bursts_are_short_where_there_are_many_cells(self):
        plan = Plan(choose_variants((), ["tcp"]), tuple(default_cases()))
        assert plan.burst_s(1.0) < plan.burst_s(20.0) <= plan.burst_s(0.0)

    def test_the_probe_gets_every_variant_case_and_server(self):
        plan = Plan(choose_variants((), ["tcp"]), tuple(default_cases()[:3]), seed=9)
        words = plan.argv("/run", 3.0, ["127.0.0.1:1", "127.0.0.1:2"], ["--auth", "token"])
        pairs = list(zip(words[::2], words[1::2]))
        assert len(words) % 2 == 0
        assert [value for name, value in pairs if name == "--server"] == ["127.0.0.1:1", "127.0.0.1:2"]
        assert [value for name, value in pairs if name == "--variant"] == [v.spec for v in plan.variants]
        assert [value for name, value in pairs if name == "--case"] == [c.spec for c in plan.cases]
        assert "--hdf5" not in words
        with_hdf5 = replace(plan, hdf5="/lib/libhdf5.so").argv("/run", 3.0, [])
        assert with_hdf5[with_hdf5.index("--hdf5") + 1] == "/lib/libhdf5.so"
        assert {("--dir", "/run"), ("--seed", "9"), ("--auth", "token"), ("--safety", "network")} <= set(
            pairs
        )


class TestHopeless:
    """What is slow on purpose, and takes longer than an answer is waited for."""

    LONG = Case("object", "write", 4096, 10_000)
    SHORT = Case("object", "write", 4096)

    def of(self, *names: str) -> tuple[Variant, ...]:
        return tuple(VARIANTS[name] for name in names)

    def test_its_cell_is_left_out_and_named(self):
        found, (warning,) = without_hopeless(self.of("raw", "tcp", "thesis"), [self.SHORT, self.LONG], 17.0)
        assert [variant.without for variant in found] == [(), (), (self.LONG.spec,)]
        assert found[2].takes(self.SHORT)
        assert not found[2].takes(self.LONG)
        assert found[2].spec.endswith(f",without={self.LONG.spec}")
        assert warning.code == "store.cells_left_out"
        assert "1 cell slow on purpose is left out (thesis, object.write:4096:10000:1)" in warning.evidence
        assert not re.search(r"\d\.\d{3}|\d{4} s", warning.evidence)  # three digits are enough
        plan = Plan(found, (self.SHORT, self.LONG), hopeless=(warning,))
        assert plan.cells == 5
        assert plan.warnings() == [warning]
        assert plan.document()["variants"][2]["without"] == [self.LONG.spec]

    def test_the_budget_of_its_hint_is_enough(self):
        cases = default_cases()
        variants = self.of("raw", "tcp", "plain", "thesis")
        _, (warning,) = without_hopeless(variants, cases, 17.0)
        budget_s = float(re.search(r"--budget (\d+)s", warning.hint)[1])
        cells = len(variants) * len(cases)
        assert without_hopeless(variants, cases, measuring_s(budget_s - 1, cells))[1] == []

    def test_what_no_budget_is_enough_for_is_reported(self):
        huge = Case("object", "write", 4096, 100_000)
        _, (warning,) = without_hopeless(self.of("tcp", "thesis"), [huge], 3600.0)
        assert "--budget" not in warning.hint

    def test_alone_it_is_what_the_run_is_made_for(self):
        for names in (("thesis",), ("raw", "thesis", "plain")):
            assert without_hopeless(self.of(*names), [self.LONG], 5.0) == (self.of(*names), [])

    def test_what_is_as_it_should_be_is_never_left_out(self):
        slow = Case("object", "write", 1 << 20, 256)
        assert without_hopeless(self.of("tcp", "ofi-msg"), [slow], 0.5)[1] == []


@pytest.mark.skipif(not os.access(libexec() / PROBE, os.X_OK), reason="this build has no storage server")
class TestAsTheProbeHasIt:
    """What this module says of cases and variants, held against the program that reads them."""

    def refused(self, *words: str) -> str:
        """The code of the probe's error: it reads its words in order, and stops at the first that it refuses."""
        words = (*words, "--rule")
        ran = subprocess.run([libexec() / PROBE, *words], capture_output=True, text=True, check=False)
        assert ran.returncode == 2
        return str(json.loads(ran.stdout)["code"])

    @pytest.mark.parametrize(
        ("case", "beyond"),
        [
            (Case("object", "write", MAX_BYTES), {"size": MAX_BYTES + 1}),
            (Case("object", "read", 64, MAX_BATCH), {"batch": MAX_BATCH + 1}),
            (Case("object", "read", 64, 1, MAX_DEPTH), {"depth": MAX_DEPTH + 1}),
            (Case("kv", "put", MAX_VALUE), {"size": MAX_VALUE + 1}),
            (Case("kv", "get", 4096, MAX_KV_BATCH // 4096), {"batch": MAX_KV_BATCH // 4096 + 1}),
            (Case("db", "insert", MIN_ROW), {"size": MIN_ROW - 1}),
            (Case("attribute", "write", MAX_ATTRIBUTE), {"size": MAX_ATTRIBUTE + 1}),
            (Case("dataset", "read", 64), {"depth": 2}),
        ],
    )
    def test_a_case_at_a_limit_is_taken_and_one_beyond_is_not(self, case, beyond):
        assert not case.refused() or "moved at once" in case.refused()  # which the probe leaves to its caller
        assert self.refused("--case", case.spec) == "store.bad_option"  # for want of a --rule
        more = replace(case, **beyond)
        assert more.refused()
        assert "moved at once" not in more.refused()
        assert self.refused("--case", more.spec) == "store.bad_case"

    @pytest.mark.parametrize("option", VARIANT_OPTIONS)
    def test_an_option_of_a_variant_is_one_of_the_probe(self, option):
        value = {
            "provider": "net;x",
            "rma": "4096",
            "spin": "20us",
            "checksum": "head",
            "clients": "object+kv",
        }
        text = f"mine=tcp,{option}={value.get(option, 'no')}"
        assert read_variant(text).options == text.partition(",")[2]
        assert self.refused("--variant", text) == "store.bad_option"  # for want of a --rule
        assert self.refused("--variant", f"{text},{option}x=1") == "store.bad_variant"

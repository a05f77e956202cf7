"""The verdict, rows and tables of a run, made from numbers whose true values are known."""

from __future__ import annotations

import json
import math
import re
import time

import numpy as np
import pytest
from bench_runs import BURST, made, sealed, summary_of, variants

from sonde.core.outcome import Table
from sonde.store import figures, limits, verdict
from sonde.store.plan import Case, Plan, Variant, choose_variants, default_cases

CASES = (
    Case("object", "write", 4096),
    Case("object", "read", 4096),
    Case("object", "write", 64),
    Case("object", "write", 4096, 10_000),
    Case("kv", "put", 4096),
    Case("kv", "get", 4096, 1000),
)
NAMES = ("raw", "tcp", "plain", "ofi-msg", "ofi-rdm", "ofi-rma", "thesis")
FACTOR = {
    "raw": 0.5,
    "tcp": 1.0,
    "plain": 400.0,
    "ofi-msg": 1.25,
    "ofi-rdm": 0.4,
    "ofi-rma": 1.01,
    "thesis": 10.0,
}


def plan() -> Plan:
    return Plan(variants(*NAMES), CASES)


def level(variant: int, case: int, epoch: int) -> float:
    """ofi-rdm is faster than tcp at 4 KiB only; in batches plain costs nothing."""
    name, of = NAMES[variant], CASES[case]
    factor = FACTOR[name]
    if name == "ofi-rdm" and of.size == 64:
        factor = 1.5
    if name == "plain" and of.batch > 1:
        factor = 1.0
    return 2e-5 * math.sqrt(of.batch) * factor


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    return summary_of(tmp_path_factory.mktemp("runs"), plan(), made(plan(), level, 20))


class TestLessons:
    def test_the_best_transport_is_named_size_by_size(self, summary):
        write, read = verdict.lessons(summary)[:2]
        assert write["code"] == read["code"] == "store.best_transport"
        assert "at 64 B tcp" in write["text"]
        assert "at 4 KiB ofi-rdm (shm), 2.5" in write["text"]
        assert [(row["size"], row["name"]) for row in write["evidence"]["by_size"]] == [
            (64, "tcp"),
            (4096, "ofi-rdm"),
        ]

    def test_what_plain_tcp_costs_is_distinguished_for_batches(self, summary):
        (plain,) = [lesson for lesson in verdict.lessons(summary) if lesson["code"] == "store.plain_tcp"]
        assert "40" in plain["text"]
        assert "times as slow as tcp in single operations" in plain["text"]
        assert "no slower in batches" in plain["text"]

    def test_so_is_what_awaiting_costs(self, summary):
        (thesis,) = [lesson for lesson in verdict.lessons(summary) if lesson["code"] == "store.awaited"]
        worst = [row["ratio_to_tcp"] for row in thesis["evidence"]["worst"]]
        assert np.allclose(worst, 0.1, rtol=0.02)

    def test_the_bare_socket_is_the_measure(self, summary):
        (raw,) = [lesson for lesson in verdict.lessons(summary) if lesson["code"] == "store.against_raw"]
        assert np.allclose([row["ratio_to_raw"] for row in raw["evidence"]["cases"]], 0.5, rtol=0.02)

    def test_bare_libfabric_is_the_measure_of_the_variant_over_its_provider(self, tmp_path):
        names = ("raw-ofi", "tcp", "ofi-msg", "ofi-rdm")
        some = Plan(variants(*names), CASES[:2])
        found = summary_of(tmp_path, some, made(some, lambda v, c, e: (1e-5, 2e-5, 3e-5, 4e-5)[v], 8))
        (lesson,) = [one for one in verdict.lessons(found) if one["code"] == "store.against_raw_ofi"]
        assert lesson["text"].startswith("over ofi-rdm (shm), objects reach 0.2")
        assert "libfabric's own rate" in lesson["text"]
        assert np.allclose([row["ratio_to_raw_ofi"] for row in lesson["evidence"]["cases"]], 0.25, rtol=0.02)
        told = {row["name"]: row["ratio_to_raw_ofi"] for row in verdict.rows(found) if row["op"] == "write"}
        assert told["tcp"] == pytest.approx(0.5, rel=0.02)
        assert told["raw-ofi"] is None

    def test_bare_libfabric_over_a_provider_that_no_variant_has_measures_nobody(self, tmp_path):
        some = Plan(variants("raw-ofi", "tcp", "ofi-msg"), CASES[:1])
        found = summary_of(tmp_path, some, made(some, lambda v, c, e: 2e-5, 8))
        assert verdict.limited_by(found, "raw-ofi") is None
        assert not [one for one in verdict.lessons(found) if one["code"] == "store.against_raw_ofi"]
        figures.by_size(found)  # and yet is drawn

    def test_a_run_from_before_there_was_that_limit_is_still_reported(self, summary):
        old = summary.drop_vars([name for name in summary if "raw_ofi" in name])
        assert {row["ratio_to_raw_ofi"] for row in verdict.rows(old)} == {None}
        assert [one["code"] for one in verdict.lessons(old)] == [
            one["code"] for one in verdict.lessons(summary)
        ]

    def test_a_limit_that_is_exceeded_is_called_none_and_marked(self, tmp_path):
        some = Plan(variants("raw", "raw-ofi", "tcp", "ofi-rdm"), CASES[:4])
        slow = {
            (0, 0): 4e-5,
            (0, 1): 2.02e-5,
            (1, 2): 6e-5,
        }  # raw, 4 KiB written: half as fast; read: about as fast
        told = summary_of(
            tmp_path, some, made(some, lambda v, c, e: slow.get((v, c), (1e-5, 1e-5, 2e-5, 2e-5)[v]), 8)
        )
        texts = {one["code"]: one["text"] for one in verdict.lessons(told)}
        assert re.fullmatch(
            r"over tcp, objects reach 0\.5\d* to 1\.01 of a bare socket's rate in single operations and 0\.\d+ of a "
            r"bare socket's rate in batches; a bare socket \(which sleeps at once, while the store spins first\) was "
            "slower in 1 of 4 cases, so it is not a limit there",
            texts["store.against_raw"],
        ), texts["store.against_raw"]
        assert "; libfabric alone was slower in 1 of 4 cases" in texts["store.against_raw_ofi"]
        table = next(t for t in verdict.tables(told) if t.title == "Object: MiB/s")
        marked = {(row[0], n) for row in table.rows for n, cell in zip(table.columns, row) if cell[0] == "*"}
        assert marked == {("write 4 KiB", "raw"), ("write 64 B", "raw-ofi")}
        assert table.note == "* before a raw limit: it was slower than its variant, so it is not a limit"

    def test_one_that_is_exceeded_everywhere_is_said_to_be_none(self, tmp_path):
        some = Plan(variants("raw", "tcp"), CASES[:2])
        told = summary_of(tmp_path, some, made(some, lambda v, c, e: (4e-5, 1e-5)[v], 8))
        (text,) = [one["text"] for one in verdict.lessons(told) if one["code"] == "store.against_raw"]
        assert text.endswith("was slower than objects over tcp in 2 of 2 cases, so it is not a limit there")
        assert "reach" not in text

    def test_without_objects_the_client_with_the_most_data_is_reported_of(self, tmp_path):
        keys = Plan(
            variants("tcp", "ofi-rdm"), (Case("db", "query", 64), *(Case("kv", "get", s) for s in (64, 4096)))
        )
        told = summary_of(tmp_path, keys, made(keys, lambda v, c, e: (2e-5, 1e-5)[v], 8))
        (lesson,) = [one for one in verdict.lessons(told) if one["code"] == "store.best_transport"]
        assert lesson["text"].startswith("best for key-value get at 64 B and 4 KiB: ofi-rdm")
        assert "ofi-rdm (shm)" in verdict.sentence(told)

    def test_a_difference_that_is_not_beyond_doubt_is_none(self, tmp_path):
        few = Plan(variants("tcp", "ofi-rdm"), CASES[:1])
        (lesson,) = verdict.lessons(summary_of(tmp_path, few, made(few, lambda v, c, e: 2e-5, 20)))
        assert (
            lesson["text"] == "for writes of objects at 4 KiB no transport is significantly faster than tcp"
        )

    def test_without_an_interval_nothing_is_known(self, tmp_path):
        few = Plan(variants("tcp", "ofi-rdm"), CASES[:1])
        for name, factor in (("faster", 0.5), ("slower", 2.0)):
            level = made(few, lambda v, c, e, f=factor: 2e-5 * (f if v else 1.0), 3)  # six epochs are needed
            (lesson,) = verdict.lessons(summary_of(tmp_path, few, level, name))
            assert lesson["text"] == f"for writes of objects at 4 KiB {verdict.UNKNOWN}"
            assert lesson["evidence"]["by_size"] == [{"size": 4096, "name": None, "ratio_to_tcp": None}]

    def test_nor_with_one_that_holds_everything(self, tmp_path):
        few = Plan(variants("tcp", "ofi-rdm"), CASES[:1])
        found = summary_of(tmp_path, few, made(few, lambda v, c, e: 2e-5, 20))
        found["ratio_to_tcp_low"].values[1, 0], found["ratio_to_tcp_high"].values[1, 0] = 0.1, 9.0
        (lesson,) = verdict.lessons(found)
        assert lesson["text"].endswith(verdict.UNKNOWN)

    @pytest.mark.parametrize("rival", ["plain", "thesis", "mine"])
    def test_against_what_is_slow_on_purpose_nobody_is_the_fastest(self, tmp_path, rival):
        of = variants(rival) if rival != "mine" else (Variant("mine", "mine", "tcp", "nodelay=no"),)
        few = Plan((*variants("raw", "tcp"), *of), (CASES[2], CASES[0]))
        found = summary_of(tmp_path, few, made(few, lambda v, c, e: (1e-5, 2e-5, 8e-3)[v], 20))
        (lesson,) = [one for one in verdict.lessons(found) if one["code"] == "store.best_transport"]
        assert lesson["text"] == (
            f"for writes of objects {verdict.UNKNOWN}: at 64 B and 4 KiB tcp had no transport to be compared with"
        )
        assert lesson["evidence"]["by_size"] == []

    def test_only_sizes_at_which_there_was_a_choice_are_named(self, tmp_path):
        few = Plan(variants("tcp", "ofi-msg"), (CASES[2], CASES[0]))
        records = made(few, lambda v, c, e: 2e-5 * (1 + v), 20, skip=[(1, 0)])
        (lesson,) = verdict.lessons(summary_of(tmp_path, few, records))
        assert lesson["text"] == "for writes of objects at 4 KiB tcp is the fastest"

    def test_a_variant_of_the_user_can_be_the_best(self, tmp_path):
        few = Plan((*variants("tcp"), Variant("u", "u", "unix")), CASES[:1])
        found = summary_of(tmp_path, few, made(few, lambda v, c, e: (2e-5, 1e-5)[v], 20))
        (lesson,) = verdict.lessons(found)
        assert lesson["text"].startswith("best for writes of objects at 4 KiB: u, 2.0")

    def test_who_is_not_distinguished_from_the_best_is_named_beside_it(self, tmp_path):
        few = Plan(variants("tcp", "ofi-msg", "ofi-rma"), CASES[:1])
        found = summary_of(tmp_path, few, made(few, lambda v, c, e: (2e-5, 1e-5, 1e-5)[v], 20))
        (lesson,) = verdict.lessons(found)
        assert " or " in lesson["text"]
        assert {"ofi-msg", "ofi-rma"} <= set(re.findall(r"[\w-]+", lesson["text"]))

    def test_what_a_mistake_costs_is_about_where_no_interval_is_known(self, tmp_path):
        few = Plan(variants("tcp", "plain"), (CASES[0], CASES[3]))
        level = made(few, lambda v, c, e: 2e-5 * (400 if v and c == 0 else 1), 3)
        (_, cost) = verdict.lessons(summary_of(tmp_path, few, level))
        assert "about 4" in cost["text"]
        assert "not significantly slower in batches" in cost["text"]

    def test_without_tcp_there_is_none(self, tmp_path):
        few = Plan(variants("ofi-msg", "ofi-rdm"), CASES[:2])
        assert verdict.lessons(summary_of(tmp_path, few, made(few, level, 8))) == []


class TestRows:
    def test_every_cell_has_one(self, summary):
        rows = verdict.rows(summary)
        assert len(rows) == len(NAMES) * len(CASES)
        assert len(
            {(row["name"], row["client"], row["op"], row["size"], row["batch"], row["depth"]) for row in rows}
        ) == len(rows)

    def test_one_default_a_case_and_transport(self, summary):
        rows = [row for row in verdict.rows(summary) if row["variant"] == "default"]
        keys = [
            (row["client"], row["op"], row["size"], row["batch"], row["depth"], row["transport"])
            for row in rows
        ]
        assert len(set(keys)) == len(keys)
        assert {row["transport"] for row in rows} == {"tcp", "ofi-msg", "ofi-rdm", "ofi-rma"}

    def test_numbers_agree_with_each_other(self, summary):
        for row in verdict.rows(summary):
            operations = row["batch"] * row["depth"]
            assert row["ops_s"] == pytest.approx(operations / row["p50_s"])
            assert row["mib_s"] == pytest.approx(row["ops_s"] * row["size"] / 2**20)
            assert row["ci"][0] <= row["ops_s"] <= row["ci"][1]
            if row["name"] != "tcp":
                expected = (
                    1
                    / (level(NAMES.index(row["name"]), [c.spec for c in CASES].index(spec(row)), 0) / 2e-5)
                    * math.sqrt(row["batch"])
                )
                assert row["ratio_to_tcp"] == pytest.approx(expected, rel=0.02)
            else:
                assert row["ratio_to_tcp"] is None
                assert row["ratio_to_tcp_ci"] is None

    def test_nothing_in_json_is_nan(self, summary):
        json.dumps(verdict.values(summary), allow_nan=False)


def spec(row) -> str:
    return Case(row["client"], row["op"], row["size"], row["batch"], row["depth"]).spec


def width(table: Table) -> int:
    """Columns of the terminal that a table takes, two blanks of margin and three between columns."""
    widths = [max(len(line[k]) for line in (table.columns, *table.rows)) for k in range(len(table.columns))]
    return 2 + sum(widths) + 3 * (len(widths) - 1)


class TestTables:
    def test_they_keep_to_80_columns(self, tmp_path):
        every = Plan(choose_variants((), ["tcp", "ofi-msg", "ofi-rdm", "ofi-rma"]), tuple(default_cases()))

        def real(variant: int, case: int, epoch: int) -> float:
            of = every.cases[case]
            slow = {"plain": 0.0437, "thesis": 0.0031}.get(every.variants[variant].name, 2e-5)
            return slow + of.batch * of.depth * (1e-7 + of.size / 2.3e9)

        told = verdict.tables(summary_of(tmp_path, every, made(every, real, 2)))
        assert list(dict.fromkeys(table.title.partition(":")[0] for table in told)) == [
            "Object",
            "Key-value",
            "Item",
            "Distributed object",
            "HDF5 dataset",
            "HDF5 attribute",
            "Database",
        ]
        assert max(map(width, told)) <= 80

    def test_columns_are_the_variants_that_were_measured(self, tmp_path):
        cases = (Case("object", "write", 64), Case("db", "query", 64), Case("dataset", "read", 64))
        every = Plan(choose_variants((), ["tcp", "ofi-rdm"]), cases)
        told = verdict.tables(summary_of(tmp_path, every, made(every, lambda v, c, e: 3e-5, 2)))
        columns = {table.title: list(table.columns[1:]) for table in told}
        assert columns["Object: MiB/s"] == ["raw", "raw-ofi", "tcp", "plain", "ofi-rdm"]
        assert columns["Database: 1000/s"] == ["raw", "raw-ofi", "tcp", "ofi-rdm"]
        assert columns["HDF5 dataset: MiB/s"] == ["tcp", "ofi-rdm"]
        assert columns["HDF5 dataset: rate relative to tcp"] == ["ofi-rdm"]

    def test_in_a_report_they_have_intervals(self, summary):
        (table, *_) = verdict.tables(summary, intervals=True)
        cell = table.rows[0][table.columns.index("tcp")]
        middle, low, high = map(float, re.fullmatch(r"([\d.]+) \(([\d.]+)–([\d.]+)\)", cell).groups())
        assert low <= middle <= high
        assert middle == pytest.approx(4096 / 2e-5 / 2**20, rel=0.02)
        assert "95 %" in table.note

    def test_an_interval_that_tells_nothing_is_not_shown(self, summary):
        wide = summary.copy(deep=True)
        where = NAMES.index("tcp"), 0
        wide["throughput_high"].values[where] = 1e20
        (table, *_) = verdict.tables(wide, intervals=True)
        assert re.fullmatch(r"[\d.]+", table.rows[0][table.columns.index("tcp")])
        wide["median_high"].values[where] = 1e20
        (known,) = [fact for fact in figures.facts(wide) if fact.name == "precision of the medians"]
        assert known.note == "worst cell: interval too wide to be useful"

    def test_a_ratio_that_may_be_1_is_marked(self, summary):
        table = next(t for t in verdict.tables(summary) if t.title.startswith("Object: rate relative"))
        row = next(line for line in table.rows if line[0] == "write 4 KiB")
        told = dict(zip(table.columns[1:], row[1:]))
        assert "tcp" not in told
        assert not told["ofi-rdm"].startswith("~")
        assert told["ofi-rdm"].startswith("2.5")

    def test_a_mark_is_explained_where_there_is_one_and_only_there(self, tmp_path):
        some = Plan(variants("tcp", "ofi-msg"), CASES[:1])
        for k, (factor, marked) in enumerate(((2.0, False), (1.0, True))):
            records = made(some, lambda v, c, e, factor=factor: 2e-5 * (factor if v else 1), 8)
            table = verdict.tables(summary_of(tmp_path, some, records, f"run{k}"))[1]
            assert table.rows[0][1].startswith("~") is marked
            assert ("~ before a ratio" in table.note) is marked

    def test_more_variants_than_a_table_holds_make_another(self, tmp_path):
        many = Plan((*variants(*NAMES), *variants("thesis-tcp")), CASES[:1])
        told = verdict.tables(summary_of(tmp_path, many, made(many, lambda v, c, e: 3e-5, 2)))
        of_rates = [t for t in told if t.title == "Object: MiB/s"]
        assert [len(t.columns) for t in of_rates] == [5, 5]  # of about as many columns each
        assert [name for t in of_rates for name in t.columns[1:]] == [*NAMES, "thesis-tcp"]

    def test_one_case_in_full(self, summary):
        table = verdict.case_table(summary, 0)
        assert table.title == "object write, 4 KiB"
        assert [row[0] for row in table.rows] == list(NAMES)


class TestDegenerate:
    @pytest.fixture
    def nothing(self, tmp_path):
        return summary_of(tmp_path, plan(), np.zeros(0, made(plan(), level, 1).dtype))

    def test_nothing_measured_is_reported_and_drawn_nowhere(self, nothing):
        assert verdict.sentence(nothing) == "Nothing was measured."
        assert verdict.rows(nothing) == []
        assert verdict.lessons(nothing) == []
        assert verdict.tables(nothing) == []
        assert not verdict.valid(nothing)
        assert figures.figures(nothing) == ()
        assert [fact.value for fact in figures.facts(nothing)] == ["0 of 0"]

    def test_one_cell_is_enough_for_a_verdict(self, tmp_path):
        few = Plan(variants("plain"), CASES[:1])
        found = summary_of(tmp_path, few, made(few, lambda *_: 8e-3, 20))
        assert verdict.sentence(found) == "Object write, 4 KiB: 125/s over plain."

    @pytest.mark.parametrize(
        ("rate", "text"),
        [(0.5, "0.500/s"), (999.4, "999/s"), (1000, "1.00 k/s"), (31_234, "31.2 k/s"), (2.5e6, "2.50 M/s")],
    )
    def test_rates_have_three_digits(self, rate, text):
        assert verdict.rate_text(rate) == text


class TestFigures:
    def test_every_figure_is_sound(self, summary):
        from sonde.report import prepare

        made_ = figures.figures(summary)
        assert [figure.id for figure in made_] == [
            "store-size", "store-clients", "store-operations", "store-ratio", "store-latency", "store-stages"
        ]  # fmt: skip
        for figure in made_:
            prepare.check(figure)

    def test_throughput_is_a_line_a_variant(self, summary):
        data = figures.by_size(summary).data
        points = data.isel(series=(data["style"] == "points").values)
        assert [str(name) for name in points["series"].values] == [
            verdict.label(summary, v) for v in range(len(NAMES))
        ]
        at = points.sel(operation="object write")
        assert np.allclose(at["x"].values[0], [64, 4096])
        assert np.isnan(at["y"].values[0]).all()  # the raw limit is a line only
        assert len(set(points["hue"].values)) == len(NAMES) - 1
        assert at["y"].values[1] == pytest.approx([64 / 2e-5 / 2**20, 4096 / 2e-5 / 2**20], rel=0.01)

    def test_a_raw_limit_lies_pale_beneath_the_variant_whose_limit_it_is(self, tmp_path):
        names = ("raw", "raw-ofi", "tcp", "ofi-msg", "ofi-rdm")
        two = Plan(variants(*names), (Case("object", "write", 64), Case("object", "write", 4096)))
        data = figures.by_size(summary_of(tmp_path, two, made(two, lambda v, c, e: 1e-5, 3))).data
        lines = data.isel(series=(data["style"] == "line").values)
        hue = dict(zip(names, lines["hue"].values))
        assert hue["raw"] == hue["tcp"]
        assert hue["raw-ofi"] == hue["ofi-rdm"]
        assert len(set(hue.values())) == 3
        assert list(lines["tone"].values) == [1, 1, 0, 0, 0]
        assert [str(key) for key in lines["key"].values[:2]] == [
            "raw: a socket alone", "raw-ofi: libfabric alone"
        ]  # fmt: skip

    def test_of_a_client_writes_and_reads_single_and_in_batches_stand_together(self, tmp_path):
        cases = (
            Case("db", "insert", 4096), Case("db", "query", 4096), Case("db", "update", 4096),
            Case("dataset", "write", 4 << 20), Case("dataset", "write", 4096, 1000),
            Case("object", "read", 64), Case("object", "read", 4096, 1, 16),
        )  # fmt: skip
        some = Plan(variants("raw", "tcp"), cases)
        data = figures.by_client(summary_of(tmp_path, some, made(some, lambda v, c, e: 1e-3, 3))).data
        assert list(data["series"].values) == ["write", "read", "update", "write, batch"]
        assert list(data["bar"].values) == ["raw", "tcp"]
        assert list(data["client"].values) == [
            "database, 4 KiB",
            "HDF5 dataset, 4 MiB",
            "HDF5 dataset, 4 KiB",
        ]
        large = data["y"].sel(client="HDF5 dataset, 4 MiB", series="write")
        assert float(large.sel(bar="tcp")) == pytest.approx(4000, rel=0.02)
        assert np.isnan(float(large.sel(bar="raw")))

    def test_single_operations_and_batches_stand_side_by_side(self, summary):
        data = figures.by_operation(summary).data
        assert list(data["operation"].values) == [
            "object write",
            "object read",
            "key-value put",
            "key-value get",
        ]
        assert list(data["series"].values) == ["single", "batch"]
        assert np.isnan(data["y"].sel(operation="object read", series="batch")).all()
        put = data["y"].sel(operation="key-value put", bar="tcp", series="single")
        assert float(put) == pytest.approx(4096 / 2e-5 / 2**20, rel=0.01)

    def test_stages_leave_out_what_is_slow_on_purpose(self, summary):
        data = figures.stages(summary).data
        assert [str(name) for name in data["bar"].values] == ["tcp", "ofi-msg", "ofi-rdm (shm)", "ofi-rma"]
        assert np.allclose(data["y"].sel(bar="tcp", operation="object write, 4 KiB").sum(), 2e-5, rtol=0.02)

    def test_a_section_names_what_a_reader_must_know(self, tmp_path):
        import sonde

        with sonde.open(sealed(tmp_path, plan(), made(plan(), level, 8)).path) as tree:
            section = figures.section(tree, "a.nc")
        assert section.room == "store"
        assert section.doubt == ""
        assert section.verdict.startswith(
            "Object write, 4 KiB: 50.0 k/s over tcp; best for writes of objects"
        )
        assert section.tables[0].title == "Variants"
        assert "no slower in batches" in section.figures[0].caption


class TestLimits:
    def test_a_run_does_not_differ_from_itself(self, summary):
        same = limits.diff(summary, summary)
        assert (same.slower, same.faster, same.findings) == (0, 0, [])
        assert same.cells == len(NAMES) * len(CASES)
        assert same.median_ratio == 1.0
        assert 0 < same.detectable < 0.1

    def test_what_became_slower_is_found_and_nothing_else(self, summary, tmp_path):
        worse = made(plan(), lambda v, c, e: level(v, c, e) * (1.3 if (v, c) == (4, 0) else 1.0), 20, seed=8)
        found = limits.diff(summary, summary_of(tmp_path, plan(), worse), ("a.nc", "b.nc"))
        assert (found.slower, found.faster) == (1, 0)
        (finding,) = found.findings
        assert finding.code == "store.slower"
        assert finding.text.startswith("ofi-rdm is 30% slower in b.nc in object write, 4 KiB")
        assert finding.next == "sonde store show b.nc --case object.write:4096:1:1"
        back = limits.diff(summary_of(tmp_path, plan(), worse, "again"), summary)
        assert (back.slower, back.faster) == (0, 1)

    def test_the_mark_of_what_changed_is_explained_where_there_is_one(self, summary, tmp_path):
        slower = summary_of(
            tmp_path,
            plan(),
            made(plan(), lambda v, c, e: level(v, c, e) * (2 if (v, c) == (1, 0) else 1), 20, seed=6),
        )
        for other, marked in ((summary, False), (slower, True)):
            table = limits.diff(summary, other).table
            assert any(row[-1] == "!" for row in table.rows) is marked
            assert ("! at the end of a row" in table.note) is marked

    def test_a_difference_that_matters_to_nobody_is_none(self, summary, tmp_path):
        little = made(plan(), lambda v, c, e: level(v, c, e) * 1.03, 20, seed=8)
        found = limits.diff(summary, summary_of(tmp_path, plan(), little))
        assert found.slower == 0
        assert limits.diff(summary, summary_of(tmp_path, plan(), little, "again"), matters=0.01).slower > 0

    def test_runs_without_a_common_case_are_not_compared(self, summary, tmp_path):
        other = Plan(variants(*NAMES), (Case("item", "read", 64),))
        with pytest.raises(limits.DataError) as told:
            limits.diff(summary, summary_of(tmp_path, other, made(other, lambda v, c, e: 1e-5, 3)))
        assert told.value.code == "store.not_comparable"

    def test_another_provider_under_the_same_name_is_reported(self, summary, tmp_path):
        again = summary_of(
            tmp_path, plan(), made(plan(), level, 20), providers=["", "", "", "", "net", "", ""]
        )
        (warning,) = limits.diff(summary, again).warnings
        assert warning.code == "store.other_provider"

    def test_what_is_below_a_limit_is_found_but_not_in_what_is_slow_on_purpose(self, summary):
        held = limits.below(summary, 0.9, "a.nc")
        assert {finding.evidence["name"] for finding in held.findings} == {"ofi-msg", "ofi-rdm"}
        assert all(finding.evidence["ratio_to_tcp"] < 0.9 for finding in held.findings)
        assert (held.judged, held.cells) == (3 * len(CASES), 3 * len(CASES))
        assert limits.below(summary, 0.1).findings == []

    def test_what_the_user_named_is_judged_too_unless_it_is_a_mistake(self, tmp_path):
        own = (Variant("u", "u", "unix"), Variant("slow", "slow", "tcp", "nodelay=no,gather=no"))
        few = Plan((*variants("tcp"), *own), CASES[:1])
        held = limits.below(summary_of(tmp_path, few, made(few, lambda v, c, e: 2e-5 * (1 + v), 20)), 0.9)
        assert [finding.evidence["name"] for finding in held.findings] == ["u"]
        assert (held.judged, held.cells) == (1, 1)


class TestTold:
    def test_the_first_lesson_is_reported_once(self, tmp_path):
        from sonde.store.cli_run import outcome_of

        path = sealed(tmp_path, plan(), made(plan(), level, 8)).path
        told = outcome_of(path, "show")
        first, *rest = [lesson["text"] for lesson in told.values["lessons"]]
        assert first in told.verdict
        assert told.lines == rest

    @pytest.mark.parametrize(("code", "good"), [(1, True), (0, False)])
    def test_a_run_of_which_nothing_converged_asks_for_a_second_look(self, tmp_path, code, good):
        from sonde.store.cli_run import outcome_of

        outcome = outcome_of(sealed(tmp_path, plan(), made(plan(), level, 20, code=code)).path, "show")
        assert ("converged" in outcome.verdict) is not good
        assert outcome.sound is good

    def test_what_is_not_installed_where_it_ran_is_no_fact_of_the_file(self, tmp_path):
        import sonde
        from sonde.core import dataset
        from sonde.core.errors import Warning
        from sonde.store.cli_run import outcome_of

        note = Warning("store.cases_left_out", "there is no HDF5", "pip install h5py")
        late = (Case("object", "write", 1 << 20),)
        few = Plan(variants("tcp", "ofi-msg"), CASES[:1], notes=(note,), left_out=late)
        path = sealed(tmp_path, few, made(few, level, 8)).path
        assert [w.code for w in outcome_of(path, "show").warnings] == ["store.cases_postponed"]
        with sonde.open(path) as tree:  # of which the report takes them
            assert [w.code for w in dataset.warnings_of(tree)] == ["store.cases_postponed"]


class TestCheck:
    """The command itself, on files made here."""

    @pytest.fixture
    def said(self, capsys):
        from sonde.cli.entry import main

        def said(*words: object) -> tuple[int, dict]:
            code = main(["store", *map(str, words), "--json"])
            return code, json.loads(capsys.readouterr().out)

        return said

    def test_a_run_without_any_interval_gets_no_verdict(self, said, tmp_path):
        few = Plan(variants("tcp", "ofi-msg"), CASES[:2])
        path = sealed(tmp_path, few, made(few, lambda v, c, e: 2e-5, 3)).path
        code, told = said("check", path, "--min-ratio", "0.75")
        assert code == 4
        assert "none of 2 ratios could be judged" in told["verdict"]

    def test_how_much_could_be_judged_is_reported(self, said, tmp_path):
        few = Plan(variants("tcp", "ofi-msg"), CASES[:2])
        records = made(few, lambda v, c, e: 2e-5, 20)
        short = (records["variant"] == 1) & (records["case"] == 1) & (records["epoch"] > 2)
        path = sealed(tmp_path, few, records[~(short & (records["kind"] == BURST))]).path
        code, told = said("check", path, "--min-ratio", "0.75")
        assert code == 0
        assert "1 of 2 ratios could be judged" in told["verdict"]
        assert (told["judged"], told["to_judge"]) == (1, 2)

    def test_tcp_alone_has_nothing_to_judge(self, said, tmp_path):
        few = Plan(variants("raw", "tcp"), CASES[:1])
        path = sealed(tmp_path, few, made(few, lambda v, c, e: 2e-5, 20)).path
        assert said("check", path, "--min-ratio", "0.75")[0] == 4

    def test_a_finding_is_one_however_little_was_judged(self, said, tmp_path):
        few = Plan(variants("tcp", "ofi-msg"), CASES[:1])
        path = sealed(tmp_path, few, made(few, lambda v, c, e: 2e-5 * (1 + v), 20)).path
        assert said("check", path, "--min-ratio", "0.75")[0] == 1

    @pytest.mark.parametrize("limit", ["0", "-1", "10.01", "750", "nan", "inf", "much"])
    def test_a_limit_that_can_mean_nothing_is_refused(self, said, tmp_path, limit):
        code, told = said("check", tmp_path / "a.nc", "--min-ratio", limit)
        assert code == 2
        assert "above 0, at most 10" in json.dumps(told)

    def test_against_a_run_too_unsteady_to_show_a_change_nothing_is_reported(self, said, tmp_path):
        few = Plan(variants("tcp", "ofi-msg"), CASES[:1])
        path = sealed(tmp_path, few, made(few, lambda v, c, e: 2e-5 * 30 ** (e % 2), 6)).path
        code, told = said("diff", path, path)
        assert told["detectable"] is None or told["detectable"] > 1
        assert code == 4
        code, told = said("check", path, "--against", path)
        assert code == 4
        assert "0 findings" in told["verdict"]
        assert told["verdict"].count(";") >= 1


def test_a_dry_run_plans_what_the_run_will_however_long_starting_takes(monkeypatch, capsys, tmp_path):
    from sonde.cli.entry import main
    from sonde.store import run, run_bench

    there = {"transports": ["tcp", "ofi-msg", "ofi-rdm", "ofi-rma"], "data": ["null"], "kv": ["memory"]}
    monkeypatch.setattr(run_bench, "runnable", lambda cases, roles: (list(cases), [], ""))
    clock, late_s = time.monotonic, 0.0
    monkeypatch.setattr(time, "monotonic", lambda: clock() + late_s)
    monkeypatch.setattr(run_bench.Request, "line", lambda *_: ["sonde-storebench"])
    planned = []

    def has() -> dict[str, list[str]]:
        nonlocal late_s
        late_s += 3.0 * len(planned)  # a machine with much else to do
        return there

    monkeypatch.setattr(run, "has", has)
    for _ in range(3):
        assert (
            main(["store", "run", "--budget", "20s", "--dry-run", "--json", "-o", str(tmp_path / "a.nc")])
            == 0
        )
        told = json.loads(capsys.readouterr().out)
        planned.append((told["variants"], told["cases"], told["cells"]))
    assert planned[0] == planned[1] == planned[2]
    assert planned[0][2] > len(planned[0][1]) > 2

"""What a study measures: how it is written, what it becomes, and in which order."""

from __future__ import annotations

from collections import Counter

import pytest

import studies
from sonde.core.errors import UsageError
from sonde.io.study.plan import (
    Cell,
    Stack,
    bytes_of,
    cells_of,
    read_hints,
    read_workload,
    rough_s,
    sized,
    unread_hints,
)

MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "ntasks", "size", "words"),
    [
        ("ior:-a MPIIO -t 1m", 4, 64 * MIB, ("-a", "MPIIO", "-t", "1m", "-b", str(16 * MIB))),
        ("ior:-t 1m -s 4 -b 8m", 2, 64 * MIB, ("-t", "1m", "-s", "4", "-b", str(8 * MIB))),
        ("ior:-t4k -b=1m --segments=2", 1, MIB, ("-t4k", "--segments=2", "-b", str(MIB // 2))),
        ("ior:--transfer 64KiB --block 3m", 2, MIB, ("--transfer", "64KiB", "-b", str(MIB // 2))),
        ("bt-io:--class W --niter 7", 4, 64 * MIB, ("--class", "W", "--size", str(64 * MIB))),
        ("real:ior -b {block} -o x", 4, 64 * MIB, ("ior", "-b", str(16 * MIB), "-o", "x")),
        ("real:bt {size}", 4, MIB, ("bt", str(MIB))),
    ],
)  # fmt: skip
def test_a_workload_is_reported_its_size(text, ntasks, size, words):
    assert sized(read_workload(text), size, ntasks) == words


def test_without_a_size_a_workload_is_as_it_was_written():
    assert sized(read_workload("ior:-t 1m -b 3m"), None, 2) == ("-t", "1m", "-b", "3m")
    assert sized(read_workload("real:ior -b 3m"), None, 2) == ("ior", "-b", "3m")


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("irr:-t 1m", "io.bad_workload", "nearest: ior"),
        ("-a MPIIO", "io.bad_workload", "allowed: ior, bt-io, real"),
        ("ior:-t 1m -o file", "io.bad_workload", "has -o"),
        ("ior:--json=x", "io.bad_workload", "has --json"),
        ("bt-io:--size 1m", "io.bad_workload", "has --size"),
        ("ior:-t '1m", "io.bad_workload", "quotes"),
        ("ior:-t 1x", "io.bad_workload", "has -t 1x"),
        ("ior:-t 0", "io.bad_workload", "has -t 0"),
        ("bt-io:--class Q", "io.bad_workload", "S, W, A, B, C"),
        ("real: ", "io.bad_workload", "names no program"),
    ],
)
def test_a_workload_that_cannot_be_is_refused(text, code, said):
    with pytest.raises(UsageError) as caught:
        read_workload(text)
    assert caught.value.code == code
    assert said in caught.value.what
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "size", "said", "hint"),
    [
        ("ior:-t 1m", 3 * MIB, "make multiples of 2 MiB", "--size 4MiB"),
        ("ior:-t 1m", 0, "make multiples of 2 MiB", "--size 2MiB"),
        ("real:ior -b 4m", MIB, "has no {block} or {size}", "leave --size out"),
    ],
)
def test_a_size_that_cannot_be_names_one_that_can(text, size, said, hint):
    with pytest.raises(UsageError) as caught:
        sized(read_workload(text), size, 2)
    assert said in caught.value.what
    assert hint in caught.value.hint


def test_a_place_for_a_size_wants_one():
    with pytest.raises(UsageError, match="there is no --size"):
        sized(read_workload("real:ior -b {block}"), None, 2)


def test_hints():
    assert read_hints("none") == ()
    assert read_hints("romio_cb_write=disable, cb_nodes=2") == (
        ("romio_cb_write", "disable"),
        ("cb_nodes", "2"),
    )
    for text in ("romio_cb_write", "a=1,a=2", "=1", "a=", "a b=1"):
        with pytest.raises(UsageError) as caught:
            read_hints(text)
        assert caught.value.code == "io.bad_hints"


def test_cells_are_all_combinations_with_benchmarks_outermost():
    plan = studies.plan(
        ("ior:-a MPIIO -t 1m", "ior:-a MPIIO -c -t 1m"), (2 * MIB, 4 * MIB), hints=("none", "cb_nodes=1"),
        places=("/a", "/b"), clusters=("", "test"),
    )  # fmt: skip
    assert len(plan.cells) == 2 * 2 * 2 * 2 * 2 * 2
    assert len({cell.benchmark for cell in plan.cells[:16]}) == 1
    assert plan.cells[0] == Cell(read_workload("ior:-a MPIIO -t 1m"), 2 * MIB, Stack("romio321"), "/a", "")
    assert plan.cells[0].benchmark == "ior -a MPIIO -t 1m, 2 MiB"


def test_beside_mpi_io_neither_components_nor_hints_are_varied():
    for text in ("ior:-t 1m", "ior:-a POSIX -t 1m", "bt-io:--mode epio", "bt-io:--mode=fortran"):
        (cell,) = studies.plan((text,), hints=("none", "cb_nodes=1"), ntasks=4).cells
        assert cell.stack == Stack()
    assert len(studies.plan(("ior:-a HDF5 -t 1m",)).cells) == 2
    assert len(studies.plan(("bt-io:",), ntasks=4).cells) == 2


def test_a_component_has_no_configuration_of_hints_that_it_does_not_read():
    hints = ("none", "romio_cb_write=disable", "cb_nodes=1,romio_ds_write=disable", "mca:fcoll=individual")
    cells = studies.plan(hints=hints).cells
    assert [cell.stack.name for cell in cells] == [
        "romio321", "romio321, romio_cb_write=disable", "romio321, cb_nodes=1, romio_ds_write=disable",
        "ompio", "ompio, cb_nodes=1", "ompio, mca:fcoll=individual",
    ]  # fmt: skip
    workloads, chosen = [read_workload("ior:-a MPIIO")], [read_hints(text) for text in hints]
    told = unread_hints(workloads, ("romio321", "ompio"), chosen)
    assert [one.code for one in told] == ["io.hints_not_read"] * 3
    assert told[0].evidence == (
        "ompio does not read romio_cb_write: with romio_cb_write=disable it is measured with no hints"
    )
    assert told[1].evidence.endswith("with cb_nodes=1,romio_ds_write=disable it is measured with cb_nodes=1")
    assert told[2].evidence.startswith("romio321 does not read mca:fcoll")
    assert unread_hints([read_workload("ior:-t 1m")], ("romio321", "ompio"), chosen) == []
    assert unread_hints(workloads, ("default",), chosen) == []


def test_hints_that_no_component_reads_are_refused():
    with pytest.raises(UsageError, match="ompio reads none of romio_cb_write=disable") as caught:
        unread_hints([read_workload("ior:-a MPIIO")], ("ompio",), [(), (("romio_cb_write", "disable"),)])
    assert caught.value.code == "io.bad_hints"


def test_bt_io_wants_a_square_number_of_ranks():
    with pytest.raises(UsageError) as caught:
        studies.plan(("bt-io:",), ntasks=6)
    assert (caught.value.code, caught.value.hint) == ("io.not_square", "give --ntasks 4 or 9")


def test_names_of_stacks():
    assert Stack().name == "default"
    assert Stack("ompio").name == "ompio"
    assert Stack("default", (("cb_nodes", "1"),)).name == "cb_nodes=1"
    assert Stack("romio321", (("cb_nodes", "1"),)).name == "romio321, cb_nodes=1"


def test_a_round_has_every_step_once_in_an_order_that_the_seed_draws():
    plan = studies.plan(seed=5, places=("/a", "/b"), clusters=("", "test"))
    steps = [plan.round(number) for number in range(6)]
    wanted = Counter((cell, traced, ("", "")) for cell in range(len(plan.cells)) for traced in (True, False))
    wanted.update((None, False, limit) for limit in (("/a", ""), ("/b", ""), ("", "test")))
    for steps_of_one in steps:
        assert Counter((step.cell, step.traced, step.limit) for step in steps_of_one) == wanted
    orders = {tuple((step.cell, step.traced, step.limit) for step in one) for one in steps}
    assert len(orders) == 6
    assert plan.round(3) == studies.plan(seed=5, places=("/a", "/b"), clusters=("", "test")).round(3)
    assert plan.round(3) != studies.plan(seed=6, places=("/a", "/b"), clusters=("", "test")).round(3)


def test_every_round_has_rates_and_the_first_have_traces():
    plan = studies.plan(traced_rounds=2, limits=False)
    of = [Counter(step.traced for step in plan.round(number)) for number in range(4)]
    assert of == [{False: 2, True: 2}, {False: 2, True: 2}, {False: 2}, {False: 2}]


def test_limits_may_be_left_out():
    plan = studies.plan(limits=False)
    assert plan.places() == []
    assert all(step.cell is not None for step in plan.round(0))


def test_the_estimate_grows_with_what_is_measured():
    plan = studies.plan()
    assert plan.expected_s() == pytest.approx(
        sum(rough_s(plan, step) for number in range(plan.rounds) for step in plan.round(number))
    )
    assert studies.plan(traced_rounds=10).expected_s() > plan.expected_s()
    assert studies.plan(sizes=(512 * MIB,)).expected_s() > plan.expected_s()


@pytest.mark.parametrize(
    ("text", "ntasks", "told"),
    [
        ("ior:-t 1m -b 8m -s 2", 4, 64 * MIB),
        ("ior:", 2, 2 * MIB),
        ("bt-io:--class W --niter 10", 4, 2 * 40 * 24**3),  # a dump each five steps
        ("bt-io:", 4, 12 * 40 * 12**3),
        ("real:bt", 4, None),
    ],
)
def test_bytes_as_far_as_the_command_line_tells(text, ntasks, told):
    (cell, *_) = cells_of([read_workload(text)], (), ("default",), [()], ["/a"], [""], ntasks)
    assert bytes_of(cell, ntasks) == told

"""What of a cluster is free: each thing once, and power by what is guaranteed."""

from __future__ import annotations

import random

import pytest

from sonde.power.jobs.jobs import Part, Spec
from sonde.power.jobs.resources import Conflict, Lack, Node, Resources

GIB = 1 << 30


def cluster(nodes: int = 3, **more) -> Resources:
    return Resources(
        [
            Node(f"n{k}", 100, 400, f"r{k % 2}", cores=4, memory_bytes=8 * GIB, disks=1, nics=2)
            for k in range(nodes)
        ],
        **more,
    )


def parts(found) -> tuple[Part, ...]:
    assert not isinstance(found, Lack), found
    return found


def lack(found) -> Lack:
    assert isinstance(found, Lack)
    return found


def test_whole_nodes_are_had_once():
    here = cluster()
    first = parts(here.find(Spec("a", nodes=2)))
    here.take("a", first)
    assert [part.node for part in parts(here.find(Spec("b")))] == ["n2"]
    assert lack(here.find(Spec("b", nodes=2))).kind == "nodes"
    with pytest.raises(Conflict):
        here.take("b", first)
    assert here.give_back("a")
    assert not here.give_back("a")
    assert len(parts(here.find(Spec("b", nodes=3)))) == 3


def test_cores_memory_disks_and_nics_are_had_once():
    here = cluster(1)
    spec = Spec("a", cores=2, memory_bytes=3 * GIB, nics=1)
    (mine,) = parts(here.find(spec))
    assert (mine.cores, mine.nics, mine.whole) == ((0, 1), (0,), False)
    here.take("a", (mine,))
    (other,) = parts(here.find(spec))
    assert (other.cores, other.nics) == ((2, 3), (1,))
    assert here.free("n0") == (2, 5 * GIB, 1, 1)
    for asked in (Spec("b", cores=3), Spec("b", cores=1, memory_bytes=6 * GIB), Spec("b", cores=1, nics=2)):
        assert lack(here.find(asked)).kind == "nodes"
    assert isinstance(here.find(Spec("b")), Lack)  # the whole node: somebody is there
    for stolen in (
        Part("n0", False, (1,)),
        Part("n0", False, (7,)),
        Part("n0", False, (), 6 * GIB),
        Part("n0"),
    ):
        with pytest.raises(Conflict):
            here.take("b", (stolen,))


def test_who_asks_for_cores_shares_a_node_before_it_breaks_another():
    here = cluster()
    here.take("a", parts(here.find(Spec("a", cores=1))))
    assert parts(here.find(Spec("b", cores=1)))[0].node == "n0"


def test_named_nodes_and_no_others():
    here = cluster()
    assert [part.node for part in parts(here.find(Spec("a", hosts=("n2", "n1"))))] == ["n1", "n2"]
    here.take("a", (Part("n1"),))
    assert "n1, which are in use" in lack(here.find(Spec("b", hosts=("n2", "n1")))).what
    silent = lack(here.find(Spec("b", hosts=("n2",)), usable={"n0"}))
    assert "n2, which do not answer" in silent.what


def test_nodes_that_do_not_answer_are_not_given():
    assert [part.node for part in parts(cluster().find(Spec("a"), usable={"n2"}))] == ["n2"]
    assert "do not answer" in lack(cluster().find(Spec("a", nodes=2), usable={"n2"})).what


def test_power_counts_from_the_safe_cap_on():
    here = cluster()
    assert here.total_w == 300
    assert parts(here.find(Spec("a", nodes=3, guaranteed_w=100), budget_w=300))  # costs nothing
    lacking = lack(here.find(Spec("a", nodes=2, guaranteed_w=150), budget_w=399))
    assert lacking.kind == "power"
    assert "needs 100 W, 99 W of 399 W are left" in lacking.what
    here.take("a", parts(here.find(Spec("a", nodes=2, guaranteed_w=150), budget_w=400)), 150)
    assert (here.total_w, here.guaranteed_w("n0")) == (400, 150)
    here.give_back("a")
    assert here.total_w == 300


def test_guarantees_on_one_node_add_up_to_what_it_can_draw():
    here = cluster(1)
    spec = Spec("a", cores=1, guaranteed_w=250)
    here.take("a", parts(here.find(spec)), 250)
    assert here.total_w == 250
    assert isinstance(here.find(Spec("b", cores=1, guaranteed_w=151)), Lack)
    here.take("b", parts(here.find(Spec("b", cores=1, guaranteed_w=150))), 150)
    assert here.total_w == 400
    here.give_back("a")
    assert here.total_w == 150


def test_racks_hold_what_they_can():
    here = cluster(4, racks={"r0": 500})  # n0 and n2: 200 W when nothing runs
    assert [part.node for part in parts(here.find(Spec("a", guaranteed_w=400)))] == ["n0"]
    here.take("a", (Part("n0"),), 400)
    assert [part.node for part in parts(here.find(Spec("b", guaranteed_w=110)))] == ["n1"]
    lacking = lack(here.find(Spec("b", hosts=("n2",), guaranteed_w=110)))
    assert lacking.kind == "rack"
    assert "rack r0: 0 W of 500 W" in lacking.what
    assert parts(here.find(Spec("b", hosts=("n2",), guaranteed_w=100)))


def test_a_node_that_draws_more_than_it_is_lent_counts_at_that():
    here = cluster(at_least_w={"n0": 400})
    assert here.total_w == 600
    assert [part.node for part in parts(here.find(Spec("a", guaranteed_w=300), budget_w=600))] == ["n0"]


def test_of_what_a_job_has_the_rest_counts_where_a_configuration_has_less():
    here = cluster(2)
    had = (Part("n1", False, (2, 3, 4), 9 * GIB, (0, 1), (1, 2)), Part("n7"))
    with pytest.raises(Conflict):
        here.take("a", had)
    left = here.present(had)
    assert left == (Part("n1", False, (2, 3), 8 * GIB, (0,), (1,)),)
    here.take("a", left, 150)
    assert here.present((Part("n1", False, (0,), GIB),)) == (Part("n1", False, (0,), 0),)
    assert here.present((Part("n0"), Part("n1"))) == (Part("n0"), Part("n1"))
    assert (here.total_w, here.give_back("a"), here.total_w) == (250, True, 200)
    assert here.present((Part("n7"),)) == ()


def test_a_copy_is_nobody_elses():
    here = cluster()
    other = here.copy()
    other.take("a", parts(other.find(Spec("a", cores=1))), 300)
    assert here.free("n0")[0] == 4
    assert here.total_w == 300
    assert not here.held


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_taken_and_given_back_adds_up(seed):
    chance = random.Random(seed)
    here = cluster(5, racks={"r0": 900, "r1": 600})
    budget, there = 1300.0, {}
    refused = given = 0
    for step in range(1500):
        if there and chance.random() < 0.45:
            here.give_back(job := chance.choice(sorted(there)))
            del there[job]
        else:
            spec = Spec(
                f"j{step}",
                nodes=chance.randint(1, 3),
                cores=chance.choice((0, 1, 2, 4)),
                nics=chance.randint(0, 1),
                memory_bytes=chance.randint(0, 4) * GIB,
                guaranteed_w=chance.choice((0, 80, 150, 390)),
            )
            found = here.find(spec, budget)
            if isinstance(found, Lack):
                refused += 1
                continue
            given += 1
            here.take(spec.job, found, spec.guaranteed_w)
            there[spec.job] = spec, found
        total = 0.0
        racks = dict.fromkeys(here.racks, 0.0)
        for name, node in here.nodes.items():
            on = [(spec, part) for spec, found in there.values() for part in found if part.node == name]
            assert not any(part.whole for _, part in on) or len(on) == 1
            for of, numbers in ((node.cores, "cores"), (node.nics, "nics"), (node.disks, "disks")):
                used = [k for _, part in on for k in getattr(part, numbers)]
                assert len(used) == len(set(used))
                assert all(0 <= k < of for k in used)
            assert sum(part.memory_bytes for _, part in on) <= node.memory_bytes
            counts = max(node.safe_w, sum(spec.guaranteed_w for spec, _ in on))
            assert counts <= node.max_w
            racks[node.rack] += counts
            total += counts
        assert total == pytest.approx(here.total_w)
        assert total <= budget + 1e-6
        assert all(racks[rack] <= limit + 1e-6 for rack, limit in here.racks.items())
    assert min(refused, given) > 100

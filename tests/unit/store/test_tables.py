from __future__ import annotations

import numpy as np
import pytest

from sonde.core.errors import UsageError
from sonde.store.tables import condition

FIELDS = {
    "case": "text",
    "step": "int64",
    "residual": "float64",
    "done": "boolean",
    "raw": "blob",
    "small": "uint32",
}


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("step >= 10", ("step", ">=", 10)),
        ("step=10", ("step", "==", 10)),
        ("residual<1e-3", ("residual", "<", 1e-3)),
        ("case like cav%", ("case", "like", "cav%")),
        ("case == 'two words'", ("case", "==", "two words")),
        ('case == ""', ("case", "==", "")),
        ("case ==", ("case", "==", "")),
        ("done != true", ("done", "!=", True)),
        ("raw prefix 00ff", ("raw", "prefix", b"\x00\xff")),
        ("residual is null", ("residual", "is null", None)),
        ("residual is not null", ("residual", "is not null", None)),
        ("_id > 3", ("_id", ">", 3)),
    ],
)
def test_a_condition_is_read(text, meant):
    assert condition(text, FIELDS) == meant


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not a condition"),
        ("step", "not a condition"),
        ("step ~ 3", "no comparison '~'"),
        ("step >> 90", "no comparison '>>' in 'step >> 90'"),
        ("stp > 3", "no field 'stp'"),
        ("step > many", "field step is int64"),
        ("done == perhaps", "field done is boolean"),
        ("raw == xyz", "field raw is blob"),
        ("residual is null 3", "text after"),
    ],
)
def test_what_is_no_condition_is_refused(text, why):
    with pytest.raises(UsageError, match=why) as caught:
        condition(text, FIELDS)
    assert caught.value.code == "store.bad_condition"
    assert caught.value.hint


# with a database


@pytest.fixture
def client(tmp_path):
    store = pytest.importorskip("sonde._store", reason="the store is not built")
    if "sqlite" not in store.backends("db"):
        pytest.skip("built without SQLite")
    from sonde.store import embedded

    (tmp_path / "db").mkdir()
    with embedded(db=f"sqlite,path={tmp_path / 'db'}") as made:
        yield made


@pytest.fixture
def runs(client):
    table = client.define("lab", "runs", FIELDS, indexes=["step"], unique=[("case", "step")])
    table.insert(
        [
            {
                "case": f"case {k % 3}",
                "step": k,
                "residual": 1.0 / (k + 1),
                "done": k % 2 == 0,
                "raw": bytes([k]),
            }
            for k in range(30)
        ]
    )
    return table


def test_rows_come_back_as_they_were(client):
    from sonde.store import Exists

    table = client.define("lab", "t", FIELDS)
    row = {
        "case": "µ",
        "step": -(2**63),
        "residual": 0.1,
        "done": False,
        "raw": b"\x00\xff",
        "small": 2**32 - 1,
    }
    last = table.insert([row, {"step": np.int64(7), "residual": np.float32(0.5)}])
    first, second = table.select()
    assert {name: first[name] for name in row} == row
    assert second == {"_id": last, **dict.fromkeys(FIELDS), "step": 7, "residual": 0.5}
    again = client.table("lab", "t")
    assert again.fields == FIELDS
    assert client.define("lab", "t", FIELDS).fields == FIELDS
    with pytest.raises(Exists):
        client.define("lab", "t", {"other": "text"})


def test_rows_are_chosen_ordered_and_cut(runs):
    assert [row["step"] for row in runs.select(("step", "<", 3))] == [0, 1, 2]
    assert [row["step"] for row in runs.select(order=["-step"], limit=3)] == [29, 28, 27]
    both = ("all", [("case", "==", "case 1"), ("any", [("step", "<", 5), ("step", ">=", 28)])])
    assert [row["step"] for row in runs.select(both)] == [1, 4, 28]
    assert next(iter(runs.select(("step", "==", 3), fields=["case"]))).keys() == {"_id", "case"}
    assert list(runs.select(("all", []), limit=1))
    assert list(runs.select(("any", []))) == []
    assert len(list(runs.select(("small", "is null", None)))) == 30


def test_many_rows_come_in_pages(client):
    table = client.define("lab", "many", {"k": "int64", "text": "text"})
    table.insert([{"k": k, "text": "x" * 500} for k in range(5000)])
    assert [row["k"] for row in table.select(order=["k"])] == list(range(5000))
    assert len(list(table.select(limit=4999))) == 4999


def test_rows_are_updated_and_removed(runs):
    assert runs.update(("step", ">=", 20), {"residual": None, "done": True}) == 10
    assert len(list(runs.select(("residual", "is null", None)))) == 10
    assert runs.remove(("done", "==", True)) == 20
    assert runs.remove(None) == 10
    assert list(runs.select()) == []


def test_a_unique_index_holds_and_nothing_of_the_insert_stays(runs):
    from sonde.store import Exists

    with pytest.raises(Exists):
        runs.insert([{"case": "new", "step": 1}, {"case": "case 0", "step": 0}])
    assert list(runs.select(("case", "==", "new"))) == []


def test_a_table_that_is_dropped_is_gone(client, runs):
    from sonde.store import NotFound

    runs.drop()
    with pytest.raises(NotFound):
        client.table("lab", "runs")
    with pytest.raises(NotFound):
        list(runs.select())


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"stp": 1}, "no field 'stp'"),
        ({"step": 2**63}, "out of range"),
        ({"small": -1}, "out of range"),
        ({"step": 1.5}, "field step is int64"),
        ({"step": True}, "field step is int64"),
        ({"done": 1}, "field done is boolean"),
        ({"case": b"x"}, "field case is text"),
        ({"case": "a\0b"}, "field case is text"),
        ({"residual": "1"}, "field residual is float64"),
        ({"residual": float("nan")}, "field residual is float64"),
        ({"raw": "text"}, "field raw is blob"),
    ],
)
def test_a_value_that_its_field_cannot_hold_is_refused(runs, row, why):
    with pytest.raises(UsageError, match=why):
        runs.insert([{"case": "good"}, row])
    assert list(runs.select(("case", "==", "good"))) == []


@pytest.mark.parametrize(
    "where",
    [("step", "~", 1), ("step", ">"), "step > 1", ("some", []), ("stp", ">", 1), ("all", [3]), 5],
)
def test_what_chooses_no_rows_is_refused(runs, where):
    with pytest.raises(UsageError):
        list(runs.select(where))
    with pytest.raises(UsageError):
        runs.remove(where)
    assert len(list(runs.select())) == 30


@pytest.mark.parametrize(
    ("fields", "indexes"),
    [({}, []), ({"a": "int"}, []), ({"_a": "text"}, []), ({"a" * 64: "text"}, []), ({"a": "text"}, ["b"])],
)
def test_a_table_that_makes_no_sense_is_refused(client, fields, indexes):
    with pytest.raises(UsageError):
        client.define("lab", "t", fields, indexes)


def test_no_row_is_no_insert(runs):
    with pytest.raises(UsageError, match="no row"):
        runs.insert([])

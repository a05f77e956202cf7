from __future__ import annotations

from types import SimpleNamespace

from sonde.store import server_status

ROLE = {
    "role": "kv",
    "backend": "lmdb",
    "detail": "3 keys",
    "messages": 4,
    "wait_p50_s": 1e-6,
    "wait_p99_s": 2e-6,
    "backend_p50_s": 4e-6,
    "backend_p99_s": 8e-6,
    "syncs": 0,
    "sync_p50_s": 0,
    "sync_p99_s": 0,
}


def server(**report):
    return SimpleNamespace(
        address="n1:5440",
        roles=["kv"],
        transport="tcp",
        provider="",
        detail="",
        report={"up_s": 60.0, "auth": "none", "roles": [ROLE], "operations": {"kv.put": 2, "kv.get": 1}}
        | report,
    )


def test_all_operations_of_all_servers_are_counted():
    assert server_status.verdict([server()]) == "1 server answers; 3 operations so far"
    assert server_status.verdict([server(), server()]) == "2 servers answer; 6 operations so far"
    assert server_status.verdict([server(operations={})]) == "1 server answers; 0 operations so far"
    assert server_status.verdict([server()], 3) == "1 of 3 servers answers; 3 operations so far"
    assert server_status.verdict([], 2) == "none of 2 servers answers"


def test_what_never_happened_has_no_time():
    turned_away = {"last_refused": "10.0.0.9: store.denied", "last_refused_s_ago": 1.0}
    serves, times, facts = server_status.tables(
        server(last_error="disk", last_error_s_ago=2.0, refused=3, **turned_away)
    )
    assert serves.rows == [("keys", "lmdb", "3 keys")]
    assert times.rows == [("keys", "4", "1.00 µs", "2.00 µs", "4.00 µs", "8.00 µs", "–", "–")]
    assert dict(facts.rows)["last error"] == "disk (2.00 s ago)"
    assert dict(facts.rows)["last refused"] == "10.0.0.9: store.denied (1.00 s ago)"
    assert "3 refused" in dict(facts.rows)["connections"]


def test_a_server_without_roles_has_tables_too():
    serves, times, facts = server_status.tables(server(roles=[], operations=None))
    assert (serves.rows, times.rows) == ([], [])
    assert dict(facts.rows)["operations"] == "none"


def test_a_broken_backend_and_damaged_frames_are_warned_of():
    sick = server(roles=[ROLE | {"broken": "sync failed: EIO"}], bad_frames=1)
    assert server_status.troubled(sick)
    assert not server_status.troubled(server())
    assert [warning.code for warning in server_status.warnings([sick, server()])] == [
        "store.broken",
        "store.bad_frames",
    ]
    assert "EIO" in server_status.warnings([sick])[0].evidence

"""What is told of a GlusterFS server that does not begin. The logs are of glusterd 10.3."""

from __future__ import annotations

from sonde.cluster.run_gluster import errors_in

LIMIT = (
    "[2026-01-01 20:48:12.853361 +0000] E [MSGID: 106053] [glusterd.c:1467:init] 0-management: Failed to set extended"
    " attribute [{Failed to set 'ulimit -n 65536'}, {errno=1}, {error=Operation not permitted}] \n"
)
LAST = (
    "[2026-01-01 20:48:14.859487 +0000] E [MSGID: 101019] [xlator.c:640:xlator_init] 0-management: Initialization of"
    " volume failed. review your volfile again. [{name=management}] \n"
    "[2026-01-01 20:48:14.859495 +0000] E [MSGID: 101066] [graph.c:424:glusterfs_graph_init] 0-management:"
    " initializing translator failed \n"
    "[2026-01-01 20:48:14.859590 +0000] E [MSGID: 101176] [graph.c:765:glusterfs_graph_activate] 0-graph: init"
    " failed \n"
    "[2026-01-01 20:48:14.860589 +0000] W [glusterfsd.c:1458:cleanup_and_exit] (-->glusterd(+0xc4) [0x55] ) 0-:"
    " received signum (-1), shutting down \n"
)


def test_the_cause_is_reported_and_not_that_it_did_not_begin():
    log = (
        LIMIT + "[2026-01-01 20:48:13.0 +0000] I [MSGID: 106479] [glusterd.c:1560:init] 0-management: Using"
        " /var/lib/glusterd \n"
        + "[2026-01-01 20:48:13.1 +0000] E [MSGID: 106229] [glusterd.c:500:glusterd_check_gsync_present] 0-glusterd:"
        " geo-replication module not working as desired \n" + LAST
    )
    told = errors_in(log)
    assert told.endswith("; geo-replication module not working as desired")
    assert "init failed" not in told


def test_a_cause_that_comes_before_what_it_led_to_and_twice():
    bound = "E [socket.c:938:__socket_server_bind] 0-socket.management: binding to  failed: Address already in use\n"
    log = (
        LIMIT
        + f"[2026-01-01 20:48:12.858752 +0000] {bound}[2026-01-01 20:48:13.858968 +0000] {bound}"
        + "[2026-01-01 20:48:14.8 +0000] E [socket.c:3733:socket_listen] 0-socket.management: __socket_server_bind"
        " failed;closing socket 8\n"
        "[2026-01-01 20:48:14.9 +0000] E [MSGID: 106244] [glusterd.c:1853:init] 0-management: creation of listener"
        " failed \n" + LAST
    )
    assert errors_in(log) == (
        "binding to  failed: Address already in use; __socket_server_bind failed;closing socket 8;"
        " creation of listener failed"
    )


def test_a_critical_one_and_a_log_without_any():
    log = (
        "[2026-01-01 20:48:15.1 +0000] C [MSGID: 106031] [glusterd.c:1581:init] 0-management: Unable to create snap"
        " backend folder \n"
    )
    assert errors_in(log) == "Unable to create snap backend folder"
    assert errors_in("") == errors_in("Final graph:\n+---+\n") == ""

"""What may go wrong with watching the kernel, without a kernel."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sonde.core.errors import EnvironmentFailure
from sonde.io.maps import run_maps
from sonde.io.maps.layers import Value
from sonde.io.record import run_watch

END = {"event": "end", "lost": 0, "lost_unknown": False, "dropped": 0, "failed": 0, "left": 0}


def program(script: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-c", script]
    return subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("end", "code", "words"),
    [
        ({}, None, ""),
        ({"lost": 12}, "io.kernel_events_lost", "12 events"),
        ({"lost": 12, "lost_unknown": True}, "io.kernel_events_lost", "12 and more events"),
        ({"failed": 3}, "io.watch_failed", "3 writes"),
        ({"left": 5}, "io.ends_not_seen", "for 5 calls"),
    ],
)
def test_what_was_lost_is_reported(end, code, words):
    _, said = run_watch._ended(program(f"import json; input(); print(json.dumps({END | end!r}))"))
    assert [warning.code for warning in said] == ([code] if code else [])
    assert all(words in warning.evidence for warning in said)


def test_a_watcher_that_dies_is_reported():
    last, (warning,) = run_watch._ended(program("raise SystemExit(9)"))
    assert last == {}
    assert warning.code == "io.watch_died"
    assert "status 9" in warning.evidence


def test_one_that_does_not_begin_says_why():
    with pytest.raises(EnvironmentFailure) as told:
        run_watch._first_report(
            program('print(\'{"event":"error","code":"io.cannot_watch","what":"w","hint":"h"}\')')
        )
    assert (told.value.code, told.value.what) == ("io.cannot_watch", "w")
    with pytest.raises(EnvironmentFailure, match="ended with status 7"):
        run_watch._first_report(program("raise SystemExit(7)"))


def test_the_kernel_is_a_layer_only_where_it_is_asked_for():
    assert "kernel" not in [layer.name for layer in run_maps.chosen(())]
    assert "kernel" not in [layer.name for layer in run_maps.chosen(("posix",))]
    assert [layer.name for layer in run_maps.chosen(("posix",), kernel=True)] == ["posix", "kernel"]
    assert [layer.name for layer in run_maps.chosen(("kernel",))] == ["kernel"]
    assert run_watch.asked(run_maps.chosen((), kernel=True))
    assert not run_watch.asked(run_maps.chosen(()))


def test_every_call_of_the_kernel_s_map_has_a_number_here():
    (kernel,) = run_maps.chosen(("kernel",))
    named = {name for function in kernel.functions for name in function.names}
    known = run_watch.known_calls()
    assert named <= set(known)
    assert (known["read"], known["write"]) == (0, 1)


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (Value(), "-"),
        (Value("result"), "r"),
        (Value("arg", 3), "@40"),
        (Value("arg", 0, width="i32"), "@16:i32"),
        (Value("arg", 7), "-"),
        (Value("iov", 1, 2), "-"),
    ],
)
def test_where_the_kernel_has_a_value(value, where):
    assert run_watch._where(value) == where

"""What the parent of sonde-net makes of its events."""

from __future__ import annotations

from typing import Any

import pytest

from sonde.core.events import NullProgress
from sonde.net.run import Listener

END: dict[str, Any] = {"event": "end", "stop_reason": "done", "samples": 8, "elapsed_s": 1.0, "dropped": 0}


def after(**more: Any) -> Listener:
    listener = Listener(NullProgress())
    listener.take({**END, **more})
    return listener


def test_a_host_that_others_use_is_named():
    listener = after(others_hosts=["n1", "n2", "n3"], others_share=[0.01, 0.6, 0.02])
    assert listener.attrs["others_hosts"] == ["n1", "n2", "n3"]
    assert listener.attrs["others_share"] == [0.01, 0.6, 0.02]
    [warning] = listener.warnings
    assert warning.code == "net.busy_hosts"
    assert "took 60 % of the processors' time on n2 during" in warning.evidence


def test_the_busiest_of_several_is_named_and_the_others_are_counted():
    [warning] = after(others_hosts=["n1", "n2", "n3"], others_share=[0.5, 0.9, 0.02]).warnings
    assert "90 % of the processors' time on n2 and up to that on 1 more" in warning.evidence


@pytest.mark.parametrize(
    ("hosts", "shares"),
    [(["n1", "n2"], [0.1, 0.2]), (["n1"], [0.9]), ([], []), (None, None), ("n1", "much")],
    ids=["little", "this host alone: the survey knows it better", "none", "an older probe", "no numbers"],
)
def test_there_is_no_warning_of(hosts, shares):
    assert after(others_hosts=hosts, others_share=shares).warnings == []


def test_an_older_probe_reports_nothing():
    listener = after()
    assert "others_hosts" not in listener.attrs
    assert listener.warnings == []


def test_a_hosts_name_is_shown_without_what_steers_a_terminal():
    [warning] = after(others_hosts=["n1", "n\x1b[2J"], others_share=[0.0, 0.9]).warnings
    assert "\x1b" not in warning.evidence

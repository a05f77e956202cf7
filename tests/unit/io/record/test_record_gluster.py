"""What gluster prints, read; the text is that of GlusterFS 10.3, shortened."""

from __future__ import annotations

import math

import pytest

from sonde.io.record import gluster
from sonde.io.record.gluster import Counted

STATS = """
        <blockStats>
          <block><size>65536</size><reads>3</reads><writes>0</writes></block>
          <block><size>131072</size><reads>0</reads><writes>32</writes></block>
          <block><size>262144</size><reads>0</reads><writes>0</writes></block>
        </blockStats>
        <fopStats>
          <fop><name>WRITE</name><hits>32</hits><avgLatency>92778.625000</avgLatency>
            <minLatency>66428.000000</minLatency><maxLatency>126605.000000</maxLatency></fop>
          <fop><name>RELEASE</name><hits>2</hits><avgLatency>0.000000</avgLatency>
            <minLatency>0.000000</minLatency><maxLatency>0.000000</maxLatency></fop>
        </fopStats>
        <duration>1</duration><totalRead>196608</totalRead><totalWrite>4194304</totalWrite>
"""


def output(inside: str, result: int = 0, why: str = "") -> str:
    return (
        '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
        f"<cliOutput><opRet>{result}</opRet><opErrno>30800</opErrno><opErrstr>{why}</opErrstr>{inside}</cliOutput>\n"
    )


def profile(*bricks: str, kind: str = "interval") -> str:
    each = "".join(
        f"<brick><brickName>{brick}</brickName><{kind}Stats>{STATS}</{kind}Stats></brick>" for brick in bricks
    )
    return output(
        f"<volProfile><volname>vol</volname><brickCount>{len(bricks)}</brickCount>{each}</volProfile>"
    )


def test_what_bricks_counted_and_that_one_is_down():
    found = gluster.answer(profile("a:/brick", "b:/brick"))
    assert found.why == ""
    counted = gluster.counted(found.root, "interval")
    assert list(counted) == ["a:/brick", "b:/brick"]
    one = counted["a:/brick"]
    assert one.operations["WRITE"] == (32, 92778.625, 66428.0, 126605.0)
    assert (one.read, one.written) == (196608, 4194304)
    assert one.sizes == {65536: (3, 0), 131072: (0, 32)}
    assert gluster.counted(found.root, "cumulative") == {}

    first, second = gluster.as_servers(("a:/brick", "c:/brick"), counted, 1e-9)
    assert first["answered"] == 1
    assert first["operations"]["WRITE"] == pytest.approx([32, 92778.625e-9, 66428e-9, 126605e-9])
    assert first["operations"]["RELEASE"] == [
        2,
        None,
        None,
        None,
    ]  # it has no duration, which is not one of 0 s
    assert first["bytes"] == [196608, 4194304]
    assert second == {"name": "c:/brick", "answered": 0, "bytes": [0, 0], "sizes": [], "operations": {}}
    assert gluster.as_servers(("a:/brick",), counted, None)[0]["operations"]["WRITE"] == [
        32,
        None,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("line", "unit"),
    [
        ("     25.66  316022.78 ns   67432.00 ns 1112040.00 ns             32       WRITE", 1e-9),
        ("     25.66     316.02 us      67.43 us    1112.04 us             32       WRITE", 1e-6),
        ("   Avg-latency   Min-Latency   Max-Latency   No. of calls         Fop", None),
    ],
)
def test_the_unit_of_durations_is_the_one_that_is_printed(line, unit):
    assert gluster.unit_s(f"Cumulative Stats:\n{line}\n \n    Duration: 2 seconds\n") == unit


def test_errors_are_in_the_document_not_in_the_exit_status():
    assert gluster.answer(output("", -1, "Volume vol does not exist")).why == "Volume vol does not exist"
    assert gluster.answer(output("", -1)).why == "error 30800"
    failed = gluster.answer("Connection failed. Please check if gluster daemon is operational.\n")
    assert (failed.why, failed.root) == (
        "Connection failed. Please check if gluster daemon is operational.",
        None,
    )
    assert gluster.answer("").why == "it printed nothing"


def test_a_volume():
    text = output(
        "<volInfo><volumes><volume><name>vol</name><id>x</id><status>1</status><statusStr>Started</statusStr>"
        "<typeStr>Distribute</typeStr><bricks><brick uuid='1'>a:/brick<name>a:/brick</name></brick>"
        "<brick uuid='2'>b:/brick<name>b:/brick</name></brick></bricks><options>"
        "<option><name>features.shard-block-size</name><value>4MB</value></option>"
        "<option><name>features.shard</name><value>on</value></option></options></volume></volumes></volInfo>"
    )
    found = gluster.volume(gluster.answer(text).root)
    assert found.started
    assert found.bricks == ("a:/brick", "b:/brick")
    assert found.describe() == "GlusterFS volume vol, Distribute, shards of 4MB"
    assert gluster.volume(gluster.answer(output("<volInfo/>")).root) is None
    listed = gluster.answer(output("<volList><count>2</count><volume>a</volume><volume>b</volume></volList>"))
    assert gluster.volumes(listed.root) == ["a", "b"]


def test_counters_that_go_on_are_taken_as_differences():
    before = Counted({"WRITE": (10, 100.0, 50.0, 200.0)}, 100, 1000, {4096: (0, 10)})
    after = Counted(
        {"WRITE": (30, 200.0, 50.0, 900.0), "READ": (4, 10.0, 5.0, 20.0)}, 140, 3000, {4096: (4, 30)}
    )
    gained = gluster.since(before, after)
    calls, mean, least, most = gained.operations["WRITE"]
    assert (calls, mean) == (20, 250.0)
    assert math.isnan(least)  # of all since the brick was started, which says nothing of these 20
    assert math.isnan(most)
    assert gained.operations["READ"] == (4, 10.0, 5.0, 20.0)
    assert (gained.read, gained.written, gained.sizes) == (40, 2000, {4096: (4, 20)})
    assert gluster.since(after, after).operations == {}
    again = gluster.since(after, before)  # the brick was started again meanwhile
    assert again.operations["WRITE"][:2] == (10, 100.0)
    assert (again.read, again.written) == (100, 1000)

"""How a run of sonde-net may end: asked to, by its budget, by a dead rank, by a killed parent, by a full disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import numpy as np
import pytest

from sonde.core.blocks import BlockFile
from watching import samples_in, wait_for

ENDLESS = {
    "modes": "one_to_one",
    "sizes": "8,1024",
    "rule": "fixed:100000000",
    "cap": "100000000",
    "budget-s": "60",
    "epoch-length": "1000",  # a run has 100000 epochs at most, which two ranks in one memory can do in five seconds
}


def in_thread(process):
    result = {}

    def go():
        with process:
            result["ending"] = process.wait(timeout_s=120)

    thread = threading.Thread(target=go)
    thread.start()
    return thread, result


def test_budget_ends_it_and_says_so(sonde_net):
    heard = sonde_net(2, **(ENDLESS | {"budget-s": "1.0"}))
    assert heard.event("end")["stop_reason"] == "budget"
    assert heard.event("end")["samples"] > 0


def test_stop_on_stdin_ends_it_with_all_samples_written(sonde_net, run_dir, ranks_left):
    process, heard = sonde_net(2, wait=False, **ENDLESS)
    thread, result = in_thread(process)
    assert wait_for(lambda: any(e["event"] == "progress" for e in heard.events))
    process.stop()
    thread.join(60)
    assert result["ending"].reason == "stopped"
    assert heard.event("end")["stop_reason"] == "interrupted"
    assert samples_in(run_dir) == heard.event("end")["samples"]
    assert ranks_left() == []


def test_a_killed_rank_leaves_what_was_flushed_and_nobody_behind(sonde_net, run_dir, ranks_left):
    process, _heard = sonde_net(2, wait=False, **ENDLESS)
    thread, result = in_thread(process)
    assert wait_for(lambda: run_dir.exists() and samples_in(run_dir) > 0)
    assert len(ranks_left()) == 2
    os.kill(ranks_left()[0], signal.SIGKILL)
    thread.join(90)
    assert result["ending"].error is not None
    assert result["ending"].error.code == "net.rank_died"
    assert samples_in(run_dir) > 0
    assert wait_for(lambda: ranks_left() == [])


def test_kill_9_of_everything_costs_half_a_second_at_most(sonde_net, run_dir, ranks_left):
    process, _heard = sonde_net(2, wait=False, **ENDLESS)
    thread, _ = in_thread(process)
    assert wait_for(lambda: run_dir.exists() and samples_in(run_dir) > 0)
    seen = samples_in(run_dir)
    assert len(ranks_left()) == 2
    for pid in ranks_left():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    thread.join(90)
    assert samples_in(run_dir) >= seen
    for path in run_dir.glob("rank-*.blk"):
        if path.stat().st_size == 0:  # just made, its header not yet written
            continue
        for records in BlockFile(path):
            bursts = records[records["kind"] == 0]
            taken = [np.isfinite(b["value"][: b["n"]]).all() for b in bursts]
            assert all(taken)


def test_a_parent_that_dies_takes_the_ranks_with_it(mpirun, run_dir, ranks_left):
    from sonde.core.launch import probe

    argv = [str(probe("sonde-net", mpirun.mpi.flavour)), "--dir", str(run_dir)]
    for name, value in ENDLESS.items():
        argv += [f"--{name}", value]
    command = mpirun.command(argv, (), 2, {})
    code = (
        "import sys; from pathlib import Path; from sonde.core.launch.process import ProbeProcess\n"
        f"ProbeProcess({command!r}, Path({str(run_dir)!r}), lambda e: print(e, flush=True)).start().wait()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert "start" in parent.stdout.readline()
        assert len(ranks_left()) == 2
        parent.kill()
    assert wait_for(lambda: ranks_left() == [])


@pytest.mark.root
def test_a_full_disk_is_reported_and_what_fits_is_preserved(sonde_net, run_dir, ranks_left):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(run_dir)], check=True)
    try:
        process, heard = sonde_net(2, wait=False, **ENDLESS)
        thread, _ = in_thread(process)
        thread.join(90)
        assert heard.event("error")["code"] == "core.disk_full"
        assert heard.event("end")["stop_reason"] == "failed"
        assert samples_in(run_dir) > 0
        assert ranks_left() == []
    finally:
        subprocess.run(["umount", str(run_dir)], check=True)


def test_ranks_without_a_shared_folder_send_their_blocks(sonde_net, run_dir):
    heard = sonde_net(3, modes="one_to_one", sizes="8,64", rule="fixed:200", forward="yes")
    assert heard.event("start")["forwarding_ranks"] == 2
    assert len(heard.files()) == 3
    assert samples_in(run_dir) == heard.event("end")["samples"]
    assert {key[2:] for key in heard.series()} == {(a, b) for a in range(3) for b in range(3) if a != b}


def test_one_rank_is_an_error_that_says_what_to_do(sonde_net):
    process, heard = sonde_net(1, wait=False, modes="one_to_one", sizes="8")
    with process:
        ending = process.wait(60)
    assert ending.error is not None
    assert heard.event("error")["code"] == "net.too_few_ranks"
    assert "--ntasks 2" in heard.event("error")["hint"]


def test_a_folder_that_is_not_there_is_an_error(sonde_net):
    process, heard = sonde_net(2, wait=False, modes="one_to_one", sizes="8", dir="/proc/nonexistent/sonde")
    with process:
        process.wait(60)
    assert heard.event("error")["code"] == "core.cannot_write"


def test_a_cap_on_bytes_holds(sonde_net, run_dir):
    process, heard = sonde_net(2, wait=False, **(ENDLESS | {"cap-bytes": "100000"}))
    with process:
        process.wait(90)
    assert heard.event("error")["code"] == "core.cap_reached"
    for path in run_dir.glob("rank-*.blk"):
        assert path.stat().st_size <= 100000


def test_the_end_reports_what_other_programs_used_on_each_host(sonde_net):
    spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        end = sonde_net(2, **(ENDLESS | {"budget-s": "2.0"})).event("end")
    finally:
        spinning.kill()
        spinning.wait()
    assert end["others_hosts"] == [os.uname().nodename], "nodes under one kernel are one host"
    [share] = end["others_share"]
    assert 0 < share <= 1

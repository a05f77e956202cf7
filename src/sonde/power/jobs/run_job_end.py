"""How a job ended: the result that its shim wrote, or what is left to end if the shim was killed."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from sonde.core.processes import began, carriers, of_user, signal_one
from sonde.power.jobs.jobs import ENDED, FAILED
from sonde.power.jobs.run_job_folder import Job
from sonde.power.jobs.run_job_shim import end_group, write_durably


def end_orphans(folder: Path, user: int, cgroup: str = "") -> int:
    """End what is left of a job whose shim was killed: its commands ended with the shim, but not the processes they
    started. user: the job's user id.

    Returns the number of processes of this user that could not be examined, and may belong to the job. A cgroup leaves
    none: it knows its processes.
    """
    if end_group(cgroup):
        return 0
    # Looked up before the signal and again for it: by then the number may belong to another process.
    start = {pid: began(pid) for pid in of_user(user)}
    carrying = carriers(f"SONDE_JOB_PROGRESS={folder}/progress.", start)
    for pid in carrying.found:
        signal_one(pid, signal.SIGKILL, partial(_is_same, pid, start[pid]))
    return len(carrying.unread)


def _is_same(pid: int, start: int) -> bool:
    return began(pid) == start != 0


def _user_of(job: Job) -> int:
    """The user id with which the job's shim started its commands."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        if (uid := json.loads((job.folder / "start.json").read_text("utf-8"))["uid"]) is not None:
            return int(uid)
    return os.geteuid()


def take_result(job: Job) -> None:
    """Take over the result of a job whose shim is gone, as the shim wrote it."""
    try:
        lost = job.folder / "lost.json"
        result = json.loads((lost if lost.exists() else job.folder / "exit.json").read_text("utf-8"))
        job.ended_ns, job.exit_status = int(result["ended_ns"]), int(result["exit_status"])
        job.signal, job.reason = int(result["signal"]), str(result["why"])
        job.state = FAILED if lost.exists() else ENDED
        if result["left"]:
            job.reason += f"; {result['left']} of its processes could not be ended"
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        job.ended_ns, job.state = time.time_ns(), FAILED
        begun = (job.folder / "begun").exists()
        job.reason = (
            "its job shim was killed, or the machine stopped: the job's exit status is unknown"
            if begun
            else "its job shim was killed before it started anything"
        )
        if unread := end_orphans(job.folder, _user_of(job), job.cgroup):
            job.reason += f"; {unread} processes of its user could not be examined, and may be left of it"
        result = {"ended_ns": job.ended_ns, "exit_status": -1, "signal": 0, "why": job.reason, "left": 0}
        with suppress(OSError):
            write_durably(job.folder / "lost.json", json.dumps(result))

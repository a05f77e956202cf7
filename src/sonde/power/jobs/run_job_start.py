"""Starts a job: the rights of its user, its folder with all files, and its shim."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sonde.core.errors import UsageError
from sonde.core.owned_files import make_folder
from sonde.core.processes import began
from sonde.core.surroundings import place_of_ranks
from sonde.power.jobs import job_start, run_job_account
from sonde.power.jobs.jobs import Part, Spec
from sonde.power.jobs.run_job_cgroup import LIMITS, make_group
from sonde.power.jobs.run_job_folder import Job, boot, job_text
from sonde.power.jobs.run_job_settings import NAME, Settings
from sonde.power.jobs.run_job_shim import end_group, write_durably
from sonde.power.stack import run_state

SHIM = Path(__file__).with_name("run_job_shim.py")
LEAST_UID = 1000  # lower numbers are system accounts: UID_MIN of login.defs(5) as distributions set it


def account_of(user: str, settings: Settings) -> pwd.struct_passwd | None:
    """The account whose rights a job gets; None: the manager's own. Raises UsageError  power.not_allowed.

    The check is by number, since several names may share one: a second name of uid 0 is root. Accounts of services
    have keys and sockets of their own; they get jobs only if the configuration names them.
    """
    own, root = run_state.own_user(), os.geteuid() == 0
    allowed = settings.users
    try:
        found = pwd.getpwnam(user)
    except (KeyError, ValueError):  # ValueError: a name with a null character
        raise UsageError("power.not_allowed", f"this host knows no user '{user}'") from None
    fine = user in allowed if allowed else found.pw_uid >= LEAST_UID if root else user == own
    if not fine:
        people = f"all users whose uid is {LEAST_UID} or more"
        whose = ", ".join(allowed) if allowed else people if root else own
        raise UsageError(
            "power.not_allowed",
            f"jobs of user '{user}' are not allowed; allowed users: {whose}",
            f"an administrator may name it in 'users' of [{NAME}]",
        )
    if found.pw_uid == os.geteuid():
        return None
    if not root:
        raise UsageError("power.not_allowed", f"{NAME} runs as '{own}', and cannot become '{user}'")
    return found


def not_admitted(user: str, settings: Settings) -> str:
    """The reason why PAM refuses an account now; "" if PAM admits it or is not asked."""
    if not settings.pam_service:
        return ""
    try:
        who = account_of(user, settings)
    except UsageError:
        return ""  # the start of the job reports it
    return run_job_account.refusal(settings.pam_service, who.pw_name) if who is not None else ""


def prepare(spec: Spec, parts: tuple[Part, ...], settings: Settings) -> Job:
    """A new job with its folder and cgroup, ready for launch(). Raises UsageError  power.not_allowed; OSError."""
    who = account_of(spec.user, settings)
    grace = spec.grace_s if spec.grace_s > 0 else settings.grace_s
    folder = settings.state / spec.job
    shutil.rmtree(folder, ignore_errors=True)  # of a job that started nothing
    make_folder(folder, 0o711)  # the job's user passes through to its own files
    job = Job(folder, spec, parts)
    begins = job_start.starts(spec, parts, settings.launcher, os.environ, str(folder), grace)
    # The files that the job writes in our folder. The user chooses none of their names: a name could be one of ours.
    files = [f"{folder}/progress.{index}" for index in range(len(parts))]
    _make_files(files if spec.output else [*files, *(begin.output for begin in begins)], who)
    own: dict[str, Any] = {"uid": None}
    if who is not None:
        groups = os.getgrouplist(who.pw_name, who.pw_gid)
        own = {"uid": who.pw_uid, "gid": who.pw_gid, "groups": groups}
    limits = {LIMITS["pids"]: settings.max_tasks, LIMITS["memory"]: settings.max_memory_b}
    job.cgroup = make_group(spec.job, limits)
    own |= {"cgroup": job.cgroup, "max_tasks": settings.max_tasks}
    plan = {**own, "limit_s": spec.limit_s, "grace_s": grace, "starts": [asdict(one) for one in begins]}
    write_durably(folder / "start.json", json.dumps(plan))
    write_durably(folder / "job.json", job_text(job))
    return job


def _make_files(paths: Iterable[str], who: pwd.struct_passwd | None) -> None:
    for path in paths:
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if who is not None:
            os.fchown(fd, who.pw_uid, who.pw_gid)
        os.close(fd)


def launch(job: Job) -> None:
    """Start the shim of a prepared job. Raises OSError: nothing of it runs; its cgroup may still be emptying."""
    process = _shim(job.folder)
    assert process.stdin is not None
    try:
        mark: dict[str, Any] = {
            "pid": process.pid,
            "began": began(process.pid),
            "boot": boot(),
            "at_ns": time.time_ns(),
        }
        write_durably(job.folder / "keeper.json", json.dumps(mark))
        # From here on the job counts as begun: whatever happens to the manager, the next one looks for this
        # process id.
        process.stdin.write(b"g")
        process.stdin.close()
    except OSError:
        process.kill()
        process.wait()
        end_group(job.cgroup)
        if not (job.folder / "begun").exists():
            # otherwise the next manager would find it as a run that failed
            shutil.rmtree(job.folder, ignore_errors=True)
        raise
    job.process, job.pid, job.started_ns = process, process.pid, int(mark["at_ns"])


def _shim(folder: Path) -> subprocess.Popen[bytes]:
    # A SIGTERM that comes before the shim handles it stays pending.
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        with (folder / "keeper.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-I", str(SHIM), str(folder.absolute())],
                cwd=place_of_ranks(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)

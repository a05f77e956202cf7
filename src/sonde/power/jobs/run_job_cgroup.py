"""The cgroups of jobs: made next to the job manager's own, limited, and removed when their last process is gone."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from sonde.core.lines import kernel_lines
from sonde.power.jobs import run_job_account
from sonde.power.jobs.run_job_settings import Settings

SUBGROUP = (
    "sonde-manager"  # DelegateSubgroup= of the unit: the manager's own cgroup, next to those of its jobs
)
LIMITS = {"pids": "pids.max", "memory": "memory.max"}  # controllers, and their files


def own_group() -> Path | None:
    """The cgroup (version 2) of this process; None if it has no such cgroup, or may not create others in it."""
    try:
        mounts = kernel_lines(Path("/proc/self/mountinfo"))
        groups = kernel_lines(Path("/proc/self/cgroup"))
    except OSError:
        return None
    # proc_pid_mountinfo(5): the fourth field is the mounted part of the file system, the fifth is where it is
    # mounted; its type follows " - ".
    at = [line.split(" ")[3:5] for line in mounts if line.partition(" - ")[2].startswith("cgroup2 ")]
    within = [line.removeprefix("0::") for line in groups if line.startswith("0::")]
    for root, mount in at:
        for path in within:
            inside = Path(path).relative_to(root) if Path(path).is_relative_to(root) else Path()
            group = Path(mount) / inside
            if (group / "cgroup.kill").exists() or inside == Path():  # the root cgroup has no cgroup.kill
                # Next to the manager, not below it: a cgroup with processes of its own cannot set limits for others.
                group = group.parent if group.name == SUBGROUP else group
                return group if os.access(group, os.W_OK) else None
    return None


def share_limits(own: Path) -> None:
    """Enable the controllers for cgroups in ours, where possible: in a unit with DelegateSubgroup (systemd 254).

    Source: cgroups(7), cgroup.subtree_control; a cgroup that has processes itself gets EBUSY.
    """
    for controller in LIMITS:
        with suppress(OSError):
            (own / "cgroup.subtree_control").write_text(f"+{controller}")


def make_group(job: str, limits: Mapping[str, int] | None = None) -> str:
    """A new cgroup for a job in ours; "" where none can be created: then only their parents identify a job's processes.

    limits: value by file of the cgroup (pids.max, memory.max in B), where the kernel enforces it; 0: no limit.
    """
    if (own := own_group()) is None:
        return ""
    group = own / f"sonde-job-{job}-{secrets.token_hex(4)}"
    try:
        group.mkdir(mode=0o755)
    except OSError:
        return ""
    if not (group / "cgroup.kill").exists():  # since Linux 5.14
        group.rmdir()
        return ""
    for file, most in (limits or {}).items():
        if most > 0 and (group / file).exists():
            with suppress(OSError):
                (group / file).write_text(str(most))
    return str(group)


def removed(cgroup: str) -> bool:
    """Whether a job's cgroup no longer exists; False: some process of the job still runs, or is ending."""
    try:
        os.rmdir(cgroup)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def protections(settings: Settings) -> dict[str, bool]:
    """The protections between jobs and the manager, for the event `ready`. pam: PAM checks the accounts. limits: the
    kernel enforces a limit for each job, and not only for the number of a user's tasks.
    """
    own = own_group()
    if own is not None:
        share_limits(own)
    controllers = (own / "cgroup.subtree_control").read_text().split() if own is not None else []
    return {
        "cgroups": own is not None,
        "limits": set(LIMITS) <= set(controllers),
        "pam": bool(settings.pam_service) and run_job_account.available(),
    }

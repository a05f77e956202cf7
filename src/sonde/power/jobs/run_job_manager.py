"""The job manager: starts jobs on their nodes, sees them end, meters what they draw, and steers them to their targets.

Each job has a job shim (run_job_shim.py), a process of its own. The job manager may be killed; it finds the shim again
by its process id and its start time. Each job has a folder on disk. start.json and job.json are written before the shim
starts; keeper.json is written before the shim may start any command; the shim writes `begun` and exit.json. So at each
instant the folder shows whether the job runs, ran, or never did.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import pwd
import secrets
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonde.bus.errors import Refused
from sonde.core.errors import SondeError, UsageError
from sonde.core.lines import kernel_lines
from sonde.core.owned_files import write_whole
from sonde.core.processes import began, signal_one
from sonde.power.jobs import job_start, jobs, run_job_account, run_jobs_bus, run_proof
from sonde.power.jobs.job_target import Meter, Steering, Turns, asks_for_something, of_job, shares
from sonde.power.jobs.jobs import ENDED, FAILED, RUNNING, STOPPING, Part, Run, Spec, Target, to_plain
from sonde.power.jobs.retention import Bounds, Tally
from sonde.power.jobs.run_job_shim import end_group, write_durably
from sonde.power.jobs.run_job_turns import Progress, TurnReader
from sonde.power.stack import run_bus, run_state
from sonde.power.stack.config import Stack
from sonde.power.stack.run_events import Ending, line, notify, until_ended
from sonde.power.stack.telemetry import JOB, NAN, NODE, known

if TYPE_CHECKING:
    from sonde.bus.client import Bus, Client, Reader, Writer

NAME = "job-manager"
SHIM = Path(__file__).with_name("run_job_shim.py")
NODE_S = 1.0  # timeout of a request to a node
ASKING = 8  # nodes that are asked at the same time
SILENT_S = (
    30.0  # a node that gave no answer is asked again after this time, or when a message from it arrives
)
SHIM_S = 20.0  # time that a shim has beyond a job's grace to end it and to write the result
SWEEP_S = 600.0
OVER = Bounds(of_user=5_000, of_all=20_000, size_of_user=32 << 20, size_of_all=128 << 20)
"""Bounds for jobs that are over. Beyond them the oldest jobs are removed before `keep` has passed, with what they wrote
into their folder. Their output belongs to their user and counts against the quotas of the file system, not here.
"""
NO_ROOM = "jobs that are over exceeded the storage limit: see docs/reference/power-jobs.md for the limits"
GONE = ".gone-"  # folders that are being removed; no job has such a name
SUBGROUP = (
    "sonde-manager"  # DelegateSubgroup= of the unit: the manager's own cgroup, next to those of its jobs
)
LIMITS = {"pids": "pids.max", "memory": "memory.max"}  # controllers, and their files
_DAMAGE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
LEAST_UID = 1000  # lower numbers are system accounts: UID_MIN of login.defs(5) as distributions set it


class Settings:
    """The section [job-manager] of the configuration."""

    def __init__(self, path: str) -> None:
        section = run_bus._power.load_config(path)["job_manager"]
        self.state = Path(section["state"])
        self.launcher = tuple(str(word) for word in section["launcher"])
        self.grace_s, self.report_s = float(section["grace_s"]), float(section["report_s"])
        self.keep_s = float(section["keep_s"])
        self.users = tuple(str(user) for user in section["users"])
        # Defaults for a module that was built before these keys existed.
        self.pam_service = str(section.get("pam_service", "login"))
        self.max_tasks = int(section.get("max_tasks", 10000))
        self.max_memory_b = int(section.get("max_memory_bytes", 0))


def boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _readable(fd: int) -> bool:
    one = select.poll()  # select() takes no descriptor above 1023
    one.register(fd, select.POLLIN)
    return bool(one.poll(0))


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


def guards(settings: Settings) -> dict[str, bool]:
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


def _removed(cgroup: str) -> bool:
    """Whether a job's cgroup no longer exists; False: some process of the job still runs, or is ending."""
    try:
        os.rmdir(cgroup)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _end_orphans(folder: Path, cgroup: str = "") -> None:
    """End what is left of a job whose shim was killed: its commands ended with the shim, but not the processes they
    started.
    """
    end_group(cgroup)
    mark = f"\0SONDE_JOB_PROGRESS={folder}/progress.".encode()

    def marked(pid: int) -> bool:
        try:
            return mark in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False

    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        if marked(pid):
            signal_one(pid, signal.SIGKILL, lambda pid=pid: marked(pid))  # type: ignore[misc]


def _digest(spec: Spec) -> str:
    """Distinguishes a job from another one of the same name: its command and its user."""
    return hashlib.sha256(json.dumps([spec.command, spec.user]).encode()).hexdigest()


class Job:
    """A job of this manager."""

    def __init__(self, folder: Path, spec: Spec, parts: tuple[Part, ...]) -> None:
        self.folder, self.spec, self.parts = folder, spec, parts
        self.digest = _digest(spec)
        self.target = spec.target
        self.state, self.reason = jobs.STARTING, ""
        self.started_ns = self.ended_ns = 0
        self.exit_status, self.signal = jobs.NO_STATUS, 0
        self.pid, self.pidfd = 0, -1
        self.process: subprocess.Popen[bytes] | None = None
        self.meter = Meter()
        self.progress = Progress(folder, len(parts))
        self.steering: Steering | None = None
        self.cgroup = ""
        self.kill_at_s = math.inf  # from then on the shim, which should have ended the job, is killed itself
        self.published = ""  # the state in the last telemetry sample
        self.forgotten = False
        self.counted_b = -1  # its size in the count of jobs that are over; -1: it is not over

    @property
    def over(self) -> bool:
        return self.state in jobs.OVER

    @property
    def nodes(self) -> list[str]:
        return [part.node for part in self.parts]

    @property
    def turns(self) -> list[Turns]:
        return self.progress.turns

    def run(self) -> Run:
        _, progress = of_job(self.turns)
        power = self.meter.power(self.nodes)
        return Run(
            self.spec.job,
            self.state,
            self.reason[:1000],
            self.started_ns,
            self.ended_ns,
            self.exit_status,
            self.signal,
            0.0 if self.over or math.isnan(power) else power,
            self.meter.energy_j,
            0.0 if math.isnan(progress) else progress,
            self.target,
            self.steering.demand_w if self.steering and not self.over else 0.0,
        )


def _job_text(job: Job) -> str:
    return json.dumps({"spec": to_plain(job.spec), "parts": to_plain(job.parts), "digest": job.digest})


def _object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; {} if the file is missing or holds no object."""
    try:
        read = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def stored_job(folder: Path) -> tuple[Job, dict[str, Any], list[str]] | None:
    """The job of a folder, the stored data of its shim, and what else is damaged; None if it never had a shim.

    The manager follows the job without its target, its cgroup or its meter if these files are damaged: the job may run.

    Raises
    ------
    ValueError  job.json or keeper.json is not what was written there.
    """
    stored = _object(folder / "job.json")
    try:
        job = Job(folder, Spec.of(stored["spec"]), tuple(Part.of(part) for part in stored["parts"]))
    except _DAMAGE:
        raise ValueError(f"{folder}/job.json is damaged") from None
    job.digest = str(stored.get("digest") or job.digest)
    if job.spec.job != folder.name:
        raise ValueError(f"{folder}/job.json belongs to another job")
    path = folder / "keeper.json"
    if not path.exists():
        return None
    shim = _object(path)
    try:
        job.started_ns, job.pid = int(shim["at_ns"]), int(shim["pid"])
        began_at = shim["began"] if shim["boot"] else 0
        if not (0 < job.pid < 1 << 31 and isinstance(began_at, int) and began_at > 0):
            raise ValueError
    except _DAMAGE:
        raise ValueError(f"{path} is damaged") from None
    damaged = []
    for name, load in (("target", _load_target), ("start", _load_cgroup), ("meter", _load_meter)):
        path = folder / f"{name}.json"
        try:
            if path.exists():
                if not (stored := _object(path)):
                    raise ValueError
                load(job, stored)
        except _DAMAGE:
            damaged.append(f"{path} is damaged: the job runs on without it")
    return job, shim, damaged


def _load_target(job: Job, stored: dict[str, Any]) -> None:
    job.target = Target.of(stored)


def _load_cgroup(job: Job, stored: dict[str, Any]) -> None:
    job.cgroup = str(stored.get("cgroup", ""))


def _load_meter(job: Job, stored: dict[str, Any]) -> None:
    energy_j = float(stored.get("energy_j", 0.0))
    job.meter.at_j = {str(node): float(value) for node, value in stored.get("at_j", {}).items()}
    job.meter.energy_j = energy_j


def grace_of(folder: Path) -> float:
    """The grace period of a job that is being stopped, s, as stored in its folder; 0: not stored."""
    try:
        grace = known(_object(folder / "stop.json").get("grace_s"))
    except _DAMAGE:
        return 0.0
    return grace if math.isfinite(grace) and grace >= 0 else 0.0


class JobManager:
    """All jobs; threads of the bus handle requests, and one thread supervises the jobs."""

    def __init__(self, stack: Stack, settings: Settings) -> None:
        self.stack, self.settings = stack, settings
        self.mutex = threading.RLock()
        self.jobs: dict[str, Job] = {}
        self.limits = {node.name: node for node in stack.nodes}
        self._events: list[bytes] = []
        self._reader = TurnReader()
        self._groups: set[str] = set()  # cgroups of jobs that are over, in which a process was still ending
        self._poll = select.poll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll.register(self._wake, select.POLLIN)
        self._swept_s = -math.inf
        # A job cannot have this name; each job has a folder next to it.
        self._lock = run_state.held(settings.state, NAME, 0o711, lock=".lock")
        self._over = Tally(OVER)
        self.removed = 0  # number of jobs that were removed early for lack of room
        for folder in sorted(settings.state.iterdir()):
            if folder.name.startswith(GONE):  # left by a manager that was killed meanwhile
                self._remove([folder])
            elif (folder / "job.json").is_file():
                self._find(folder)
        self._remove(self._surplus())

    # ---- requests

    def query(self, body: dict[str, Any]) -> dict[str, Any]:
        job = str(body["job"])
        with self.mutex:
            if not job:
                return {"runs": [to_plain(one.run()) for one in self.jobs.values() if not one.forgotten]}
            return self._answer(self._job(job))

    def order(self, body: dict[str, Any]) -> dict[str, Any]:
        """Raises Refused."""
        run_jobs_bus.check_proof(self.stack.users, jobs.JOB_SET, body)
        job = str(body["job"]) or str(body["spec"]["job"])
        # Asked before the lock is taken: a directory that PAM asks may not answer for a while.
        refusal = self._not_admitted(str(body["spec"]["user"])) if body["order"] == "START_JOB" else ""
        with self.mutex:
            try:
                if refusal and job not in self.jobs:
                    raise UsageError("power.not_allowed", refusal)
                if body["order"] == "START_JOB":
                    return self._answer(self._start(body))
                one = self._job(job)
                match body["order"]:
                    case "STOP_JOB":
                        self._stop(one, known(body["grace_s"]), str(body["reason"]))
                    case "SET_TARGET":
                        one.target = Target.of(body["target"])
                        write_durably(one.folder / "target.json", json.dumps(asdict(one.target)))
                        self._aim(one)
                    case _:
                        if not one.over:
                            raise run_jobs_bus.refused(
                                "wrong_state", f"job '{job}' is {one.state}: it is not over"
                            )
                        one.forgotten = True
                        write_durably(one.folder / "forgotten", f"{time.time_ns()}\n")
                return self._answer(one)
            except UsageError as error:
                raise run_jobs_bus.refused(error.code.removeprefix("power."), error.what) from None
            except OSError as error:
                where = error.filename or self.settings.state
                raise run_jobs_bus.refused("cannot_keep", f"{where}: {error.strerror}") from None

    def _job(self, name: str) -> Job:
        if name not in self.jobs:
            raise run_jobs_bus.refused("no_job", f"no job is called '{name}'")
        return self.jobs[name]

    @staticmethod
    def _answer(job: Job) -> dict[str, Any]:
        return {"runs": [to_plain(job.run())]}

    # ---- starting

    def _start(self, body: dict[str, Any]) -> Job:
        spec = Spec.of(body["spec"])
        parts = tuple(Part.of(part) for part in body["parts"])
        before = self.jobs.get(spec.job)
        if before is not None:
            if before.digest != _digest(spec):
                raise run_jobs_bus.refused(
                    "other_job", f"job '{spec.job}' is another one: its command or user differs"
                )
            return before
        job_start.check(spec, parts, list(self.limits))
        who = self._user(spec.user)
        grace = spec.grace_s if spec.grace_s > 0 else self.settings.grace_s
        folder = self.settings.state / spec.job
        shutil.rmtree(folder, ignore_errors=True)  # of a job that started nothing
        folder.mkdir(mode=0o711)  # the job's user passes through to its own files
        job = Job(folder, spec, parts)
        begins = job_start.starts(spec, parts, self.settings.launcher, os.environ, str(folder), grace)
        own: dict[str, Any] = {"uid": None}
        # The files that the job writes in our folder. The user chooses none of their names: a name could be one of
        # ours.
        files = [f"{folder}/progress.{index}" for index in range(len(parts))]
        files += [] if spec.output else [begin.output for begin in begins]
        for path in files:
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            if who is not None:
                os.fchown(fd, who.pw_uid, who.pw_gid)
            os.close(fd)
        if who is not None:
            groups = os.getgrouplist(who.pw_name, who.pw_gid)
            own = {"uid": who.pw_uid, "gid": who.pw_gid, "groups": groups}
        most = self.settings.max_tasks
        job.cgroup = make_group(
            spec.job, {LIMITS["pids"]: most, LIMITS["memory"]: self.settings.max_memory_b}
        )
        own |= {"cgroup": job.cgroup, "max_tasks": most}
        plan = {**own, "limit_s": spec.limit_s, "grace_s": grace, "starts": [asdict(one) for one in begins]}
        write_durably(folder / "start.json", json.dumps(plan))
        write_durably(folder / "job.json", _job_text(job))
        # A SIGTERM that comes before the shim handles it stays pending.
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        try:
            with (folder / "keeper.log").open("ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-I", str(SHIM), str(folder)],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
        assert process.stdin is not None
        try:
            mark: dict[str, Any] = {
                "pid": process.pid,
                "began": began(process.pid),
                "boot": boot(),
                "at_ns": time.time_ns(),
            }
            write_durably(folder / "keeper.json", json.dumps(mark))
            # From here on the job counts as begun: whatever happens to the manager, the next one looks for this
            # process id.
            process.stdin.write(b"g")
            process.stdin.close()
        except OSError:
            process.kill()
            process.wait()
            end_group(job.cgroup)
            self._emptied(job.cgroup)
            if not (folder / "begun").exists():
                shutil.rmtree(
                    folder, ignore_errors=True
                )  # otherwise the next manager would find it as a run that failed
            raise
        job.process, job.pid = process, process.pid
        self._hold(job)
        job.state, job.started_ns = RUNNING, int(mark["at_ns"])
        self.jobs[spec.job] = job
        self._aim(job)
        self._say(job)
        self.wake()
        return job

    def _user(self, user: str) -> pwd.struct_passwd | None:
        """The account whose rights a job gets; None: the manager's own. Raises UsageError  power.not_allowed.

        The check is by number, since several names may share one: a second name of uid 0 is root. Accounts of services
        have keys and sockets of their own; they get jobs only if the configuration names them.
        """
        own, root = run_state.own_user(), os.geteuid() == 0
        allowed = self.settings.users
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

    def _not_admitted(self, user: str) -> str:
        """The reason why PAM refuses an account now; "" if PAM admits it or is not asked."""
        if not self.settings.pam_service:
            return ""
        try:
            who = self._user(user)
        except UsageError:
            return ""  # the start of the job reports it
        return run_job_account.refusal(self.settings.pam_service, who.pw_name) if who is not None else ""

    def _hold(self, job: Job) -> None:
        """Watch the shim, so that its end wakes this thread. The next look finds a shim that is gone by now."""
        with suppress(OSError):
            job.pidfd = os.pidfd_open(job.pid)
            self._poll.register(job.pidfd, select.POLLIN)

    def _aim(self, job: Job) -> None:
        if not asks_for_something(job.target):
            job.steering = None
            return
        limits = [self.limits[node] for node in job.nodes if node in self.limits]
        if not limits:  # the configuration no longer has any of its nodes
            job.steering = None
            return
        most = job.spec.demand_w or min(one.max_w for one in limits)
        least = min(most, max([job.spec.guaranteed_w, *(one.min_w for one in limits)]))
        job.steering = Steering(least, most)

    # ---- after a restart

    def _find(self, folder: Path) -> None:
        try:
            found = stored_job(folder)
        except ValueError as error:
            self._events.append(line("trouble", code="power.damaged", what=str(error)))
            return
        if found is None:
            shutil.rmtree(
                folder, ignore_errors=True
            )  # no command was started, and nobody got the answer that one was
            return
        job, shim, damaged = found
        self._events += [line("trouble", code="power.damaged", what=what) for what in damaged]
        job.forgotten = (folder / "forgotten").exists()
        self.jobs[job.spec.job] = job
        alive = shim["boot"] == boot() and began(job.pid) == shim["began"]
        if alive:
            self._hold(job)
        if alive and job.pidfd >= 0 and began(job.pid) == shim["began"]:
            job.state = STOPPING if (folder / "stop.json").exists() else RUNNING
            if job.state == STOPPING:
                job.kill_at_s = time.monotonic() + grace_of(folder) + SHIM_S
                # The manager that wrote it may have been killed before it sent the signal; a second one does no harm.
                self._signal(job)
            self._aim(job)
            self._events.append(
                line("job", job=job.spec.job, state=job.state, user=job.spec.user, why="found again")
            )
            return
        self._let_go(job)
        job.published = "known" if job.forgotten else ""
        self._settle(job)

    # ---- ending jobs

    def _stop(self, job: Job, grace_s: float, reason: str) -> None:
        if job.over or job.state == STOPPING:
            return
        grace = (
            grace_s if grace_s > 0 else job.spec.grace_s if job.spec.grace_s > 0 else self.settings.grace_s
        )
        write_durably(job.folder / "stop.json", json.dumps({"grace_s": grace, "reason": reason}))
        job.state = STOPPING
        job.kill_at_s = time.monotonic() + grace + SHIM_S
        self._signal(job)
        self._say(job)

    @staticmethod
    def _signal(job: Job) -> None:
        with suppress(OSError):
            signal.pidfd_send_signal(job.pidfd, signal.SIGTERM)

    def _let_go(self, job: Job) -> None:
        if job.pidfd >= 0:
            with suppress(KeyError):
                self._poll.unregister(job.pidfd)
            os.close(job.pidfd)
            job.pidfd = -1

    def _settle(self, job: Job) -> None:
        """Take over the result of a job whose shim is gone, as the shim wrote it."""
        job.steering = None
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
            _end_orphans(job.folder, job.cgroup)
            result = {"ended_ns": job.ended_ns, "exit_status": -1, "signal": 0, "why": job.reason, "left": 0}
            with suppress(OSError):
                write_durably(job.folder / "lost.json", json.dumps(result))
        self._emptied(job.cgroup)
        self._shrink(job)
        self._say(job)

    def _shrink(self, job: Job) -> None:
        """Remove what a job that is over no longer needs, in memory and in its folder: its environment, and all but the
        beginning of its command.
        """
        if job.counted_b >= 0:
            return
        if (spec := job.spec.trimmed) != job.spec or (job.folder / "start.json").exists():
            job.spec = spec
            with suppress(OSError):  # the next start repeats it
                write_whole(job.folder / "job.json", _job_text(job).encode(), 0o600, sync=True)
                (job.folder / "start.json").unlink(missing_ok=True)
                if job.cgroup in self._groups:  # after a restart it must still be removed
                    write_whole(job.folder / "start.json", json.dumps({"cgroup": job.cgroup}).encode(), 0o600)
        job.counted_b = job.spec.size_b + jobs.size_of_parts(job.parts)
        self._over.add(job.spec.user, job.counted_b)

    def _surplus(self) -> list[Path]:
        """Forget the oldest jobs that exceed the bounds. Returns the folders to remove."""
        gone = self._over.surplus((job.spec.user, job.spec.job, job.counted_b) for job in self._oldest())
        if gone:
            self.removed += len(gone)
            users = Counter(self.jobs[name].spec.user for name in gone)
            for user, number in users.most_common(20):
                self._events.append(
                    line("forgotten", jobs=number, user=user, why=NO_ROOM, total=self.removed)
                )
        return [self._forget(name) for name in gone]

    def _oldest(self) -> Iterator[Job]:
        """Jobs that may be removed: the scheduler has recorded their end."""
        those = [job for job in self.jobs.values() if job.over and job.forgotten]
        yield from sorted(those, key=lambda job: job.ended_ns)

    def _forget(self, name: str) -> Path:
        """Rename the job's folder and return its new path: the old name may belong to another job from now on."""
        job = self.jobs.pop(name)
        self._over.add(job.spec.user, -job.counted_b, -1)
        to = self.settings.state / f"{GONE}{secrets.token_hex(8)}"
        with suppress(OSError):
            job.folder.rename(to)
            return to
        return job.folder

    @staticmethod
    def _remove(folders: Iterable[Path]) -> None:
        """Remove folders. No lock is held: there may be thousands."""
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _emptied(self, cgroup: str) -> None:
        """Remove a job's cgroup, now or when the last of its processes is gone."""
        if cgroup and not _removed(cgroup):
            self._groups.add(cgroup)

    def _say(self, job: Job) -> None:
        if job.published not in (job.state, "known"):
            job.published = job.state
            why = {"why": job.reason} if job.reason else {}
            status = {"exit_status": job.exit_status, "signal": job.signal} if job.over else {}
            self._events.append(
                line("job", job=job.spec.job, state=job.state, user=job.spec.user, **status, **why)
            )

    # ---- supervision

    def wake(self) -> None:
        os.eventfd_write(self._wake, 1)

    def wait(self, seconds: float) -> None:
        """Wait until a shim is gone, wake() is called, or the time is over."""
        self._poll.poll(max(0.0, seconds) * 1000)
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)

    def add_event(self, event: bytes) -> None:
        with self.mutex:
            self._events.append(event)

    def look(self) -> tuple[list[bytes], list[Job]]:
        """Check all jobs. Returns events, and the jobs that are over since the last call."""
        over = []
        with self.mutex:
            for job in self.jobs.values():
                if job.over:
                    continue
                if time.monotonic() > job.kill_at_s and job.pidfd >= 0:
                    with suppress(
                        OSError
                    ):  # then the job's processes die with it, and the next look searches for leftovers
                        signal.pidfd_send_signal(job.pidfd, signal.SIGKILL)
                if job.process is not None:
                    gone = job.process.poll() is not None
                else:
                    gone = job.pidfd < 0 or _readable(job.pidfd)
                if gone:
                    self._let_go(job)
                    over.append(job)
            self._groups = {cgroup for cgroup in self._groups if not _removed(cgroup)}
            events, self._events = self._events, []
        return events, over

    def settle(self, job: Job) -> None:
        with self.mutex:
            self._settle(job)
            self._keep_meter(job)
            gone = self._surplus()
        self._remove(gone)

    def meter(self, node: str, counter_j: float, power_w: float) -> None:
        """Record a node's energy counter and power."""
        with self.mutex:
            present = [job for job in self.jobs.values() if not job.over and node in job.nodes]
            if not present:
                return
            cores = {
                job.spec.job: 0 if part.whole else len(part.cores)
                for job in present
                for part in job.parts
                if part.node == node
            }
            share = shares({node: cores})[node]
            for job in present:
                after_s = max(0.0, (time.time_ns() - job.started_ns) / 1e9)
                job.meter.take(node, counter_j, power_w, share[job.spec.job], after_s)

    def _keep_meter(self, job: Job) -> None:
        self._keep_meters([(job, self._meter_text(job))])

    @staticmethod
    def _meter_text(job: Job) -> bytes:
        return json.dumps({"energy_j": job.meter.energy_j, "at_j": job.meter.at_j}).encode()

    @staticmethod
    def _keep_meters(texts: Iterable[tuple[Job, bytes]]) -> None:
        for job, text in texts:
            with suppress(OSError):  # the next write may succeed
                write_whole(job.folder / "meter.json", text, 0o600)

    def report(self) -> list[tuple[Job, dict[str, Any]]]:
        """Telemetry of running jobs, and the demand that their targets lead to. Files are read and written without the
        lock.
        """
        with self.mutex:
            running = [job for job in self.jobs.values() if not job.over]
        self._reader.look((job.spec.user, job.progress) for job in running)
        out, meters = [], []
        with self.mutex:
            for job in running:
                if job.over:
                    continue
                meters.append((job, self._meter_text(job)))
                iteration, progress = of_job(job.turns)
                if job.steering is not None:
                    before = job.steering.demand_w
                    energy = job.meter.energy_j if job.meter.known else NAN
                    now = job.steering.look(job.target, iteration, energy, progress)
                    if now != before:
                        event = line("target", job=job.spec.job, demand_w=now, iteration_s=iteration)
                        self._events.append(event.replace(b"NaN", b"null"))
                out.append((job, self.sample(job)))
        self._keep_meters(meters)
        return out

    def sample(self, job: Job) -> dict[str, Any]:
        """JobTelemetry."""
        iteration, progress = of_job(job.turns)
        state = FAILED if job.state == ENDED and (job.exit_status or job.signal) else job.state
        own = [] if job.over else [turns.own_s for turns in job.turns]
        return {
            "job": job.spec.job,
            "user": job.spec.user,
            "name": job.spec.name or job.spec.job,
            "at_ns": time.time_ns(),
            "nodes": job.nodes,
            "power_w": 0.0 if job.over else job.meter.power(job.nodes),
            "energy_j": job.meter.energy_j if job.meter.known else NAN,
            "iteration_s": iteration,
            "progress": progress,
            "state": state,
            "node_iteration_s": own if any(map(math.isfinite, own)) else [],
        }

    def sweep(self) -> None:
        """Remove the folders of forgotten jobs that were stored long enough."""
        now = time.monotonic()
        if now - self._swept_s < SWEEP_S:
            return
        self._swept_s = now
        with self.mutex:
            late = [
                name
                for name, job in self.jobs.items()
                if job.forgotten and job.over and time.time_ns() - job.ended_ns > self.settings.keep_s * 1e9
            ]
            gone = [self._forget(name) for name in late]
        self._remove(gone)


class Nodes:
    """Reads data of nodes: telemetry as it arrives, and by requests."""

    def __init__(self, bus: Bus, manager: JobManager, open_ones: ExitStack) -> None:
        self._manager = manager
        self._reader: Reader = open_ones.enter_context(run_bus.reader(bus, NODE))
        self._client: Client = open_ones.enter_context(run_bus.client(bus, "NodeManager_get"))
        self._ended = threading.Event()
        self._pool = ThreadPoolExecutor(ASKING)
        self._looker = ThreadPoolExecutor(1)
        self._looking: Future[None] | None = None
        self._silent: dict[str, float] = {}  # until when nodes that gave no answer are not asked again
        self._thread = threading.Thread(target=self._hear, daemon=True)
        self._thread.start()
        open_ones.callback(self.close)

    def _hear(self) -> None:
        while not self._ended.is_set():
            with suppress(SondeError):
                for sample in self._reader.samples(0.5):
                    if self._ended.is_set():
                        return
                    if sample.has_data and sample.state == "alive":
                        value = sample.value
                        self._silent.pop(str(value["node"]), None)
                        self._manager.meter(
                            str(value["node"]), known(value["energy_j"]), known(value["power_w"])
                        )

    def _ask(self, node: str, what: str) -> dict[str, Any]:
        if time.monotonic() < self._silent.get(node, 0.0):
            return {}
        with suppress(SondeError, RuntimeError):
            try:
                reply = dict(self._client.call({"ask": what}, node, NODE_S).body)
            except (SondeError, RuntimeError):
                self._silent[node] = time.monotonic() + SILENT_S
                raise
            self._silent.pop(node, None)
            return reply
        return {}

    def _ask_all(self, nodes: Sequence[str], what: str) -> dict[str, dict[str, Any]]:
        return dict(zip(nodes, self._pool.map(lambda node: self._ask(node, what), nodes)))

    def meter(self, nodes: Iterable[str]) -> None:
        """Ask nodes for their energy counters now, at the start or end of a job: telemetry comes at its own pace."""
        for node, reply in self._ask_all(sorted(set(nodes)), "GET_POWER_NODE").items():
            if reply:
                self._manager.meter(node, known(reply["energy_j"]), known(reply["power_w"]))

    def look(self, nodes_of: Mapping[str, Sequence[str]]) -> None:
        """Publish caps and frequencies of jobs' nodes as events. A silent node delays only the next look."""
        if nodes_of and (self._looking is None or self._looking.done()):
            with suppress(RuntimeError):
                self._looking = self._looker.submit(self._look, nodes_of)

    def _look(self, nodes_of: Mapping[str, Sequence[str]]) -> None:
        every = sorted({node for nodes in nodes_of.values() for node in nodes})
        with suppress(RuntimeError):  # the thread pool is shutting down
            caps, freqs = self._ask_all(every, "GET_POWERCAP_NODE"), self._ask_all(every, "GET_FREQ_NODE")
            for job, nodes in nodes_of.items():
                found = [known(caps[node]["lease"]["cap_w"]) for node in nodes if caps[node]]
                hertz = [
                    known(one["current_hz"])
                    for node in nodes
                    if freqs[node]
                    for one in freqs[node]["frequencies"]
                ]
                out: dict[str, Any] = {"nodes": len(nodes), "answered": len(found)}
                for key, values in (("cap_w", found), ("frequency_hz", hertz)):
                    finite = [value for value in values if math.isfinite(value)]
                    if finite:
                        out[key] = {"least": min(finite), "most": max(finite)}
                self._manager.add_event(line("nodes", job=job, **out))
            self._manager.wake()

    def close(self) -> None:
        self._ended.set()
        self._thread.join(2)
        for pool in (self._looker, self._pool):
            pool.shutdown(wait=False, cancel_futures=True)


def serve(stack: Stack, name: str = "", with_parent: bool = False) -> Iterator[bytes]:
    """Run until a signal to end; yields events, "ready" first, as JSON lines. Running jobs go on without the manager.

    Raises
    ------
    UsageError  power.open_bus; a fault in the bus profile. EnvironmentFailure  power.cannot_keep,
    power.already_running, power.cannot_prove, bus.open.
    """
    called = name or NAME
    settings = Settings(stack.path)
    if stack.users.proof == "none" and not run_bus.asks_who_joins(stack):
        raise UsageError(
            "power.open_bus",
            f"the {NAME} starts jobs that are ordered on its bus, and this bus checks no identity: each user of this "
            f"machine could run anything as '{run_state.own_user()}'",
            "add <security> to the profile of [bus], with keys that 'sonde bus keys init' makes, or have MUNGE prove "
            'the sender of each order: proof = "munge" under [users]',
        )
    run_proof.trial(stack.users)
    with ExitStack() as open_ones, until_ended(with_parent) as ending:
        manager = JobManager(stack, settings)
        bus = open_ones.enter_context(run_jobs_bus.open_bus(stack, called))
        nodes = Nodes(bus, manager, open_ones)
        writer: Writer = open_ones.enter_context(run_bus.writer(bus, JOB))
        open_ones.enter_context(run_jobs_bus.serve(bus, jobs.JOB_GET, manager.query, called))
        threads = run_proof.threads(stack.users)
        open_ones.enter_context(run_jobs_bus.serve(bus, jobs.JOB_SET, manager.order, called, threads))
        running = sum(not job.over for job in manager.jobs.values())
        ready = {"state": str(settings.state), "running": running, **guards(settings)}
        yield line("ready", role=NAME, name=called, **ready)
        notify("READY=1")
        # poll() itself goes on after a signal; this thread ends the wait.
        threading.Thread(target=_wake_when, args=(ending, manager), daemon=True).start()
        yield from _look_after(manager, nodes, writer, ending)
        notify("STOPPING=1")
        running = sum(not job.over for job in manager.jobs.values())
        yield line("end", role=NAME, why=ending.why, running=running)


def _wake_when(ending: Ending, manager: JobManager) -> None:
    while not ending.wait(3600):
        pass
    manager.wake()


def _look_after(manager: JobManager, nodes: Nodes, writer: Writer, ending: Ending) -> Iterator[bytes]:
    next_s = time.monotonic()
    seen: set[str] = set()
    while not ending.asked:
        events, over = manager.look()
        if over:
            nodes.meter(
                node for job in over for node in job.nodes
            )  # before they are over: the energy drawn until now is theirs
        for job in over:
            manager.settle(job)
            with suppress(SondeError, Refused):
                writer.write(manager.sample(job))
        yield from events
        fresh = [job for name, job in list(manager.jobs.items()) if name not in seen and not job.over]
        seen |= {job.spec.job for job in fresh}
        if fresh:
            nodes.meter(node for job in fresh for node in job.nodes)
        if fresh or time.monotonic() >= next_s:
            next_s = time.monotonic() + manager.settings.report_s
            reports = manager.report()
            for _, sample in reports:
                with suppress(SondeError, Refused):
                    writer.write(sample)
            nodes.look({job.spec.job: job.nodes for job, _ in reports})
            manager.sweep()
            seen &= set(manager.jobs)
        if over or fresh:
            continue
        manager.wait(next_s - time.monotonic())

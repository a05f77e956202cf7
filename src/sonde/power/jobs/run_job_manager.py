"""The job manager: starts jobs on their nodes, sees them end, meters what they draw, and steers them to their targets.

A job lives by its keeper (run_job_shim.py), a process of its own: the job manager may be killed, and finds it again
by its number and the time it began. Of each job there is on disk, in a folder of its own: start.json and job.json
before its keeper begins; keeper.json before the keeper is told to start anything; `begun` and exit.json by the keeper.
So each instant tells whether it runs, ran, or never did.
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
from sonde.power.jobs.jobs import ENDED, FAILED, RUNNING, STOPPING, Part, Run, Spec, Target, said
from sonde.power.jobs.retention import Bounds, Tally
from sonde.power.jobs.run_job_shim import end_group, kept
from sonde.power.jobs.run_job_turns import Progress, TurnReader
from sonde.power.stack import run_bus, run_state
from sonde.power.stack.config import Stack
from sonde.power.stack.run_events import Ending, line, notify, until_told
from sonde.power.stack.telemetry import JOB, NAN, NODE, known

if TYPE_CHECKING:
    from sonde.bus.client import Bus, Client, Reader, Writer

NAME = "job-manager"
KEEPER = Path(__file__).with_name("run_job_shim.py")
NODE_S = 1.0  # to ask a node
ASKING = 8  # nodes at a time
SILENT_S = 30.0  # a node that gave no answer is not asked again for so long, unless it is heard
KEEPER_S = 20.0  # what a keeper has beyond a job's grace to end it and to say so
SWEEP_S = 600.0
OVER = Bounds(of_user=5_000, of_all=20_000, size_of_user=32 << 20, size_of_all=128 << 20)
"""Jobs that are over. Beyond this the oldest are removed before `keep` is over, with what they wrote into their folder.
Their output counts as their user's own, by the file system's quotas, and not here.
"""
NO_ROOM = "no more jobs that are over are stored: docs/reference/power-jobs.md says how many"
GONE = ".gone-"  # folders that are being removed; no job has such a name
SUBGROUP = (
    "sonde-manager"  # DelegateSubgroup= of the unit: the manager's own cgroup, beside those of its jobs
)
LIMITS = {"pids": "pids.max", "memory": "memory.max"}  # controllers, and their files
_DAMAGE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
LEAST_UID = 1000  # below are accounts of the system: UID_MIN of login.defs(5) as distributions set it


class Settings:
    """[job-manager] of the configuration."""

    def __init__(self, path: str) -> None:
        told = run_bus._power.load_config(path)["job_manager"]
        self.state = Path(told["state"])
        self.launcher = tuple(str(word) for word in told["launcher"])
        self.grace_s, self.report_s = float(told["grace_s"]), float(told["report_s"])
        self.keep_s = float(told["keep_s"])
        self.users = tuple(str(user) for user in told["users"])
        # Defaults of a module that was built before these keys were.
        self.pam_service = str(told.get("pam_service", "login"))
        self.max_tasks = int(told.get("max_tasks", 10000))
        self.max_memory_b = int(told.get("max_memory_bytes", 0))


def boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _readable(fd: int) -> bool:
    one = select.poll()  # select() takes no descriptor above 1023
    one.register(fd, select.POLLIN)
    return bool(one.poll(0))


def own_group() -> Path | None:
    """The cgroup (version 2) of this process; None if it has no such cgroup, or may not make others in it."""
    try:
        mounts = kernel_lines(Path("/proc/self/mountinfo"))
        groups = kernel_lines(Path("/proc/self/cgroup"))
    except OSError:
        return None
    # proc_pid_mountinfo(5): the fourth field is what of the file system is mounted, the fifth where; its type is behind
    # " - ".
    at = [line.split(" ")[3:5] for line in mounts if line.partition(" - ")[2].startswith("cgroup2 ")]
    within = [line.removeprefix("0::") for line in groups if line.startswith("0::")]
    for root, mount in at:
        for path in within:
            inside = Path(path).relative_to(root) if Path(path).is_relative_to(root) else Path()
            group = Path(mount) / inside
            if (group / "cgroup.kill").exists() or inside == Path():  # the root of all has no cgroup.kill
                # Beside the manager, and not below it: who has processes of its own cannot give limits to others.
                group = group.parent if group.name == SUBGROUP else group
                return group if os.access(group, os.W_OK) else None
    return None


def share_limits(own: Path) -> None:
    """Has the kernel keep limits for cgroups in ours, where it can: in a unit with DelegateSubgroup (systemd 254).

    Source: cgroups(7), cgroup.subtree_control; a group that has processes itself gets EBUSY.
    """
    for controller in LIMITS:
        with suppress(OSError):
            (own / "cgroup.subtree_control").write_text(f"+{controller}")


def make_group(job: str, limits: Mapping[str, int] | None = None) -> str:
    """A cgroup for a job, in ours; "": none can be made here, and a job is known by its processes' parents alone.

    limits: by file of it (pids.max, memory.max in B), where the kernel keeps them; 0: none.
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
    """What is between jobs and the manager here: for the event `ready`. pam: accounts are asked for; limits: the kernel
    keeps a job's limits as a whole, and not only a user's number of tasks.
    """
    own = own_group()
    if own is not None:
        share_limits(own)
    kept_there = (own / "cgroup.subtree_control").read_text().split() if own is not None else []
    return {
        "cgroups": own is not None,
        "limits": set(LIMITS) <= set(kept_there),
        "pam": bool(settings.pam_service) and run_job_account.available(),
    }


def _removed(cgroup: str) -> bool:
    """Whether a job's cgroup is no more; False: something of the job is still there, or just ending."""
    try:
        os.rmdir(cgroup)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _end_orphans(folder: Path, cgroup: str = "") -> None:
    """Ends what is left of a job whose keeper was killed: its commands ended with that, but not what they had begun."""
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
    """Distinguishes a job from another one of its name: its command and its user."""
    return hashlib.sha256(json.dumps([spec.command, spec.user]).encode()).hexdigest()


class Job:
    """One job of this manager."""

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
        self.kill_at_s = math.inf  # from then on its keeper, which should have ended it, is ended itself
        self.told = ""  # the state that telemetry told last
        self.forgotten = False
        self.counted_b = -1  # as it counts among those that are over; -1: it is not over

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
    return json.dumps({"spec": said(job.spec), "parts": said(job.parts), "digest": job.digest})


def _object(path: Path) -> dict[str, Any]:
    """{} for a file that is not there, or does not hold an object."""
    try:
        told = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def stored_job(folder: Path) -> tuple[Job, dict[str, Any], list[str]] | None:
    """The job of a folder, what is known of its keeper, and what of the rest is damaged; None: it never had a keeper.

    A job is followed without its target, its cgroup or what its meter said: it may run.

    Raises
    ------
    ValueError  job.json or keeper.json is not what was written there.
    """
    told = _object(folder / "job.json")
    try:
        job = Job(folder, Spec.of(told["spec"]), tuple(Part.of(part) for part in told["parts"]))
    except _DAMAGE:
        raise ValueError(f"{folder}/job.json is not what was written") from None
    job.digest = str(told.get("digest") or job.digest)
    if job.spec.job != folder.name:
        raise ValueError(f"{folder}/job.json is of another job")
    path = folder / "keeper.json"
    if not path.exists():
        return None
    keeper = _object(path)
    try:
        job.started_ns, job.pid = int(keeper["at_ns"]), int(keeper["pid"])
        began_at = keeper["began"] if keeper["boot"] else 0
        if not (0 < job.pid < 1 << 31 and isinstance(began_at, int) and began_at > 0):
            raise ValueError
    except _DAMAGE:
        raise ValueError(f"{path} is not what was written") from None
    damaged = []
    for name, take in (("target", _take_target), ("start", _take_cgroup), ("meter", _take_meter)):
        path = folder / f"{name}.json"
        try:
            if path.exists():
                if not (told := _object(path)):
                    raise ValueError
                take(job, told)
        except _DAMAGE:
            damaged.append(f"{path} is not what was written: the job goes on without it")
    return job, keeper, damaged


def _take_target(job: Job, told: dict[str, Any]) -> None:
    job.target = Target.of(told)


def _take_cgroup(job: Job, told: dict[str, Any]) -> None:
    job.cgroup = str(told.get("cgroup", ""))


def _take_meter(job: Job, told: dict[str, Any]) -> None:
    energy_j = float(told.get("energy_j", 0.0))
    job.meter.at_j = {str(node): float(value) for node, value in told.get("at_j", {}).items()}
    job.meter.energy_j = energy_j


def grace_of(folder: Path) -> float:
    """s that a job which is being stopped has, as its folder says; 0: it does not say."""
    try:
        grace = known(_object(folder / "stop.json").get("grace_s"))
    except _DAMAGE:
        return 0.0
    return grace if math.isfinite(grace) and grace >= 0 else 0.0


class JobManager:
    """Jobs, for requests in threads of the bus and for one thread that looks after them."""

    def __init__(self, stack: Stack, settings: Settings) -> None:
        self.stack, self.settings = stack, settings
        self.mutex = threading.RLock()
        self.jobs: dict[str, Job] = {}
        self.limits = {node.name: node for node in stack.nodes}
        self._events: list[bytes] = []
        self._reader = TurnReader()
        self._groups: set[str] = set()  # of jobs that are over, in which something was still ending
        self._poll = select.poll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll.register(self._wake, select.POLLIN)
        self._swept_s = -math.inf
        # Not a name that a job can have: each has a folder beside it.
        self._lock = run_state.held(settings.state, NAME, 0o711, lock=".lock")
        self._over = Tally(OVER)
        self.removed = 0  # jobs that are over, removed before their time, for lack of room
        for folder in sorted(settings.state.iterdir()):
            if folder.name.startswith(GONE):  # of a manager that was killed meanwhile
                self._remove([folder])
            elif (folder / "job.json").is_file():
                self._find(folder)
        self._remove(self._surplus())

    # ---- what is asked

    def told(self, body: dict[str, Any]) -> dict[str, Any]:
        job = str(body["job"])
        with self.mutex:
            if not job:
                return {"runs": [said(one.run()) for one in self.jobs.values() if not one.forgotten]}
            return self._answer(self._job(job))

    def order(self, body: dict[str, Any]) -> dict[str, Any]:
        """Raises Refused."""
        run_jobs_bus.check_proof(self.stack.users, jobs.JOB_SET, body)
        job = str(body["job"]) or str(body["spec"]["job"])
        # Asked before anything is held: a directory that PAM asks may not answer for a while.
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
                        kept(one.folder / "target.json", json.dumps(asdict(one.target)))
                        self._aim(one)
                    case _:
                        if not one.over:
                            raise run_jobs_bus.refused(
                                "wrong_state", f"job '{job}' is {one.state}: it is not over"
                            )
                        one.forgotten = True
                        kept(one.folder / "forgotten", f"{time.time_ns()}\n")
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
        return {"runs": [said(job.run())]}

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
        shutil.rmtree(folder, ignore_errors=True)  # what began nothing
        folder.mkdir(mode=0o711)  # its user goes through to the files that are its own
        job = Job(folder, spec, parts)
        begins = job_start.starts(spec, parts, self.settings.launcher, os.environ, str(folder), grace)
        own: dict[str, Any] = {"uid": None}
        # What the job writes into a folder that is ours. Nothing of a name that it chose: it could be one of ours.
        made = [f"{folder}/progress.{index}" for index in range(len(parts))]
        made += [] if spec.output else [begin.output for begin in begins]
        for path in made:
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
        kept(folder / "start.json", json.dumps(plan))
        kept(folder / "job.json", _job_text(job))
        # A word to stop that comes before the keeper listens waits for it.
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        try:
            with (folder / "keeper.log").open("ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-I", str(KEEPER), str(folder)],
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
            kept(folder / "keeper.json", json.dumps(mark))
            # From here on it counts as begun: whatever happens to us, it is looked for by this number.
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
                )  # else it would be found again, as a run that failed
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
        """Whose rights a job gets; None: ours. Raises UsageError  power.not_allowed.

        By number, since several accounts may have one: a second one of root's is root. Accounts of services, which have
        keys and sockets of their own, are named in the configuration or have no jobs.
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
                f"jobs of user '{user}' are not started; jobs are of: {whose}",
                f"an administrator may name it in 'users' of [{NAME}]",
            )
        if found.pw_uid == os.geteuid():
            return None
        if not root:
            raise UsageError("power.not_allowed", f"{NAME} runs as '{own}', and cannot become '{user}'")
        return found

    def _not_admitted(self, user: str) -> str:
        """Why PAM does not let an account be used now; "": it does, or is not asked."""
        if not self.settings.pam_service:
            return ""
        try:
            who = self._user(user)
        except UsageError:
            return ""  # said when it is started
        return run_job_account.refusal(self.settings.pam_service, who.pw_name) if who is not None else ""

    def _hold(self, job: Job) -> None:
        """So that its end wakes us. A keeper that is gone by now is found at the next look."""
        with suppress(OSError):
            job.pidfd = os.pidfd_open(job.pid)
            self._poll.register(job.pidfd, select.POLLIN)

    def _aim(self, job: Job) -> None:
        if not asks_for_something(job.target):
            job.steering = None
            return
        limits = [self.limits[node] for node in job.nodes if node in self.limits]
        if not limits:  # all of them were taken out of the configuration since
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
            )  # nothing of it was begun, and nobody was told that it was
            return
        job, keeper, damaged = found
        self._events += [line("trouble", code="power.damaged", what=what) for what in damaged]
        job.forgotten = (folder / "forgotten").exists()
        self.jobs[job.spec.job] = job
        alive = keeper["boot"] == boot() and began(job.pid) == keeper["began"]
        if alive:
            self._hold(job)
        if alive and job.pidfd >= 0 and began(job.pid) == keeper["began"]:
            job.state = STOPPING if (folder / "stop.json").exists() else RUNNING
            if job.state == STOPPING:
                job.kill_at_s = time.monotonic() + grace_of(folder) + KEEPER_S
                self._signal(job)  # who wrote that may have been killed before it said so; twice does no harm
            self._aim(job)
            self._events.append(
                line("job", job=job.spec.job, state=job.state, user=job.spec.user, why="found again")
            )
            return
        self._let_go(job)
        job.told = "known" if job.forgotten else ""
        self._settle(job)

    # ---- the end

    def _stop(self, job: Job, grace_s: float, reason: str) -> None:
        if job.over or job.state == STOPPING:
            return
        grace = (
            grace_s if grace_s > 0 else job.spec.grace_s if job.spec.grace_s > 0 else self.settings.grace_s
        )
        kept(job.folder / "stop.json", json.dumps({"grace_s": grace, "reason": reason}))
        job.state = STOPPING
        job.kill_at_s = time.monotonic() + grace + KEEPER_S
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
        """Its keeper is gone: how it ended, as the keeper wrote it."""
        job.steering = None
        try:
            lost = job.folder / "lost.json"
            told = json.loads((lost if lost.exists() else job.folder / "exit.json").read_text("utf-8"))
            job.ended_ns, job.exit_status = int(told["ended_ns"]), int(told["exit_status"])
            job.signal, job.reason = int(told["signal"]), str(told["why"])
            job.state = FAILED if lost.exists() else ENDED
            if told["left"]:
                job.reason += f"; {told['left']} of its processes could not be ended"
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            job.ended_ns, job.state = time.time_ns(), FAILED
            begun = (job.folder / "begun").exists()
            job.reason = (
                "its keeper was killed, or the machine stopped: how it ended is not known"
                if begun
                else "its keeper was killed before it started anything"
            )
            _end_orphans(job.folder, job.cgroup)
            told = {"ended_ns": job.ended_ns, "exit_status": -1, "signal": 0, "why": job.reason, "left": 0}
            with suppress(OSError):
                kept(job.folder / "lost.json", json.dumps(told))
        self._emptied(job.cgroup)
        self._shrink(job)
        self._say(job)

    def _shrink(self, job: Job) -> None:
        """Removes what a job that is over needs no more: its environment, and all but the beginning of its command, in
        memory and in its folder.
        """
        if job.counted_b >= 0:
            return
        if (spec := job.spec.trimmed) != job.spec or (job.folder / "start.json").exists():
            job.spec = spec
            with suppress(OSError):  # the next start finds it, and does it
                write_whole(job.folder / "job.json", _job_text(job).encode(), 0o600, sync=True)
                (job.folder / "start.json").unlink(missing_ok=True)
                if job.cgroup in self._groups:  # after a restart it is still to be removed
                    write_whole(job.folder / "start.json", json.dumps({"cgroup": job.cgroup}).encode(), 0o600)
        job.counted_b = job.spec.size_b + jobs.size_of_parts(job.parts)
        self._over.add(job.spec.user, job.counted_b)

    def _surplus(self) -> list[Path]:
        """Forgets jobs that have no room any more. Returns folders that are to be removed."""
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
        """Jobs that may be removed: the scheduler has noted their end."""
        those = [job for job in self.jobs.values() if job.over and job.forgotten]
        yield from sorted(those, key=lambda job: job.ended_ns)

    def _forget(self, name: str) -> Path:
        """Returns its folder, by another name: its own may be another job's from now on."""
        job = self.jobs.pop(name)
        self._over.add(job.spec.user, -job.counted_b, -1)
        to = self.settings.state / f"{GONE}{secrets.token_hex(8)}"
        with suppress(OSError):
            job.folder.rename(to)
            return to
        return job.folder

    @staticmethod
    def _remove(folders: Iterable[Path]) -> None:
        """With no lock held: they may be thousands."""
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _emptied(self, cgroup: str) -> None:
        """Removes a job's cgroup, now or when the last of its processes is gone."""
        if cgroup and not _removed(cgroup):
            self._groups.add(cgroup)

    def _say(self, job: Job) -> None:
        if job.told not in (job.state, "known"):
            job.told = job.state
            why = {"why": job.reason} if job.reason else {}
            status = {"exit_status": job.exit_status, "signal": job.signal} if job.over else {}
            self._events.append(
                line("job", job=job.spec.job, state=job.state, user=job.spec.user, **status, **why)
            )

    # ---- looking after them

    def wake(self) -> None:
        os.eventfd_write(self._wake, 1)

    def wait(self, seconds: float) -> None:
        """Until a keeper is gone, somebody called wake(), or the time is over."""
        self._poll.poll(max(0.0, seconds) * 1000)
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)

    def tell(self, event: bytes) -> None:
        with self.mutex:
            self._events.append(event)

    def look(self) -> tuple[list[bytes], list[Job]]:
        """Events, and jobs that are over since the last look."""
        over = []
        with self.mutex:
            for job in self.jobs.values():
                if job.over:
                    continue
                if time.monotonic() > job.kill_at_s and job.pidfd >= 0:
                    with suppress(
                        OSError
                    ):  # then the job's processes die with it, and what they left is looked for
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
        """What a node told."""
        with self.mutex:
            there = [job for job in self.jobs.values() if not job.over and node in job.nodes]
            if not there:
                return
            cores = {
                job.spec.job: 0 if part.whole else len(part.cores)
                for job in there
                for part in job.parts
                if part.node == node
            }
            share = shares({node: cores})[node]
            for job in there:
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
            with suppress(OSError):  # the next one may do
                write_whole(job.folder / "meter.json", text, 0o600)

    def report(self) -> list[tuple[Job, dict[str, Any]]]:
        """Telemetry of jobs that run, and where their targets lead. Files are read and written with no lock held."""
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
                        told = line("target", job=job.spec.job, demand_w=now, iteration_s=iteration)
                        self._events.append(told.replace(b"NaN", b"null"))
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
        """Removes what forgotten jobs left, when it was kept long enough."""
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
    """What nodes tell: telemetry as it comes, and by asking."""

    def __init__(self, bus: Bus, manager: JobManager, open_ones: ExitStack) -> None:
        self._manager = manager
        self._reader: Reader = open_ones.enter_context(run_bus.reader(bus, NODE))
        self._client: Client = open_ones.enter_context(run_bus.client(bus, "NodeManager_get"))
        self._ended = threading.Event()
        self._pool = ThreadPoolExecutor(ASKING)
        self._looker = ThreadPoolExecutor(1)
        self._looking: Future[None] | None = None
        self._silent: dict[str, float] = {}  # nodes that gave no answer: until when they are not asked again
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
                told = dict(self._client.call({"ask": what}, node, NODE_S).body)
            except (SondeError, RuntimeError):
                self._silent[node] = time.monotonic() + SILENT_S
                raise
            self._silent.pop(node, None)
            return told
        return {}

    def _ask_all(self, nodes: Sequence[str], what: str) -> dict[str, dict[str, Any]]:
        return dict(zip(nodes, self._pool.map(lambda node: self._ask(node, what), nodes)))

    def meter(self, nodes: Iterable[str]) -> None:
        """Asks for counters at an instant that counts: telemetry comes when it comes."""
        for node, told in self._ask_all(sorted(set(nodes)), "GET_POWER_NODE").items():
            if told:
                self._manager.meter(node, known(told["energy_j"]), known(told["power_w"]))

    def look(self, nodes_of: Mapping[str, Sequence[str]]) -> None:
        """Caps and frequencies of jobs' nodes, told as events. Who does not answer holds up the next look alone."""
        if nodes_of and (self._looking is None or self._looking.done()):
            with suppress(RuntimeError):
                self._looking = self._looker.submit(self._look, nodes_of)

    def _look(self, nodes_of: Mapping[str, Sequence[str]]) -> None:
        every = sorted({node for nodes in nodes_of.values() for node in nodes})
        with suppress(RuntimeError):  # it ends
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
                    there = [value for value in values if math.isfinite(value)]
                    if there:
                        out[key] = {"least": min(there), "most": max(there)}
                self._manager.tell(line("nodes", job=job, **out))
            self._manager.wake()

    def close(self) -> None:
        self._ended.set()
        self._thread.join(2)
        for pool in (self._looker, self._pool):
            pool.shutdown(wait=False, cancel_futures=True)


def serve(stack: Stack, name: str = "", with_parent: bool = False) -> Iterator[bytes]:
    """Runs until told to end; gives events, "ready" first, as JSON lines. Jobs that run go on without it.

    Raises
    ------
    UsageError  power.open_bus; the profile. EnvironmentFailure  power.cannot_keep, power.already_running,
    power.cannot_prove, bus.open.
    """
    called = name or NAME
    settings = Settings(stack.path)
    if stack.users.proof == "none" and not run_bus.asks_who_joins(stack):
        raise UsageError(
            "power.open_bus",
            f"the {NAME} starts what it is told on its bus, and this one asks nobody who they are: each user of this "
            f"machine could run anything as '{run_state.own_user()}'",
            "give the profile of [bus] a <security>, whose keys 'sonde bus keys init' makes, or have orders proven by "
            'MUNGE: proof = "munge" under [users]',
        )
    run_proof.trial(stack.users)
    with ExitStack() as open_ones, until_told(with_parent) as ending:
        manager = JobManager(stack, settings)
        bus = open_ones.enter_context(run_jobs_bus.open_bus(stack, called))
        nodes = Nodes(bus, manager, open_ones)
        writer: Writer = open_ones.enter_context(run_bus.writer(bus, JOB))
        open_ones.enter_context(run_jobs_bus.serve(bus, jobs.JOB_GET, manager.told, called))
        threads = run_proof.threads(stack.users)
        open_ones.enter_context(run_jobs_bus.serve(bus, jobs.JOB_SET, manager.order, called, threads))
        running = sum(not job.over for job in manager.jobs.values())
        ready = {"state": str(settings.state), "running": running, **guards(settings)}
        yield line("ready", role=NAME, name=called, **ready)
        notify("READY=1")
        # A signal ends a wait by this: poll() itself goes on after it.
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
            )  # before they are over: what was drawn until now is theirs
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

"""A user who fills the job scheduler: its memory, its state folder, and the answers that others wait for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

from sonde.bus.errors import Refused
from sonde.core.errors import EnvironmentFailure
from sonde.power.jobs.entry import as_text
from sonde.power.jobs.jobs import Spec, to_plain
from sonde.power.jobs.run_job_scheduler import NAME, Scheduler
from sonde.power.jobs.run_jobs_store import Store
from sonde.power.stack import run_bus

MIB = 1 << 20


class Nobody:
    """Replaces the other roles: none of them answers."""

    def ask(self, service: str, body: dict[str, Any]) -> dict[str, Any]:
        raise EnvironmentFailure("power.no_answer", f"nobody answers {service}")

    system = ask


class Site:
    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        config = folder / "power.toml"
        config.write_text(
            '[budget]\npower_limit = 1000\n[[nodes]]\nhosts = "n[1-4]"\nmin = 50\nmax = 300\nsafe = 100\n'
            f'[job-scheduler]\nkind = "built-in"\nstate = "{self.state}"\n'
        )
        self.store = Store(self.state, NAME)
        self.scheduler = Scheduler(run_bus.load(config), self.store, Nobody())  # type: ignore[arg-type]

    def order(self, order: str, job: str, user: str = "eve", **more: Any) -> dict[str, Any]:
        body = {
            "order": order,
            "job": job,
            "user": user,
            "spec": to_plain(Spec(job, ("true",), user, **more)),
        }
        return self.scheduler.order(body)

    def listed(self, over: bool = False) -> list[dict[str, Any]]:
        body = {"ask": "GET_QUEUE", "job": "", "user": "", "queue": "", "over": over}
        return list(self.scheduler.query(body)["jobs"])

    @property
    def stored_b(self) -> int:
        """In memory, without Python's overhead."""
        return sum(len(json.dumps(as_text(one))) for one in self.scheduler.queue.entries.values())

    @property
    def disk_b(self) -> int:
        return sum(path.stat().st_size for path in self.state.iterdir())


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.store.close()


def test_who_submits_and_cancels_without_end_fills_neither_memory_nor_disk(site: Site):
    site.order("SUBMIT_JOB", "first", "ada")
    site.order("CANCEL_JOB", "first", "ada")
    for k in range(60):
        job = f"j{k}"
        site.order("SUBMIT_JOB", job, environment=(f"X={k:>{MIB - 100}}",))
        site.order("CANCEL_JOB", job)
    assert site.stored_b < MIB
    assert site.disk_b < 24 * MIB
    assert site.listed(over=True)[0]["spec"]["job"] == "first"


def test_who_submits_and_cancels_many_loses_the_oldest_and_others_lose_nothing(site: Site):
    queue = site.scheduler.queue
    site.order("SUBMIT_JOB", "first", "ada")
    site.order("CANCEL_JOB", "first", "ada")
    site.store.save = lambda *_: None  # type: ignore[method-assign]  # a disk would take a minute
    for k in range(5_500):
        site.order("SUBMIT_JOB", f"j{k}")
        site.order("CANCEL_JOB", f"j{k}")
    assert len(queue.entries) <= 5_001
    assert "j5499" in queue.entries
    assert "first" in queue.entries
    events = [json.loads(event) for event in site.scheduler.turn()]
    forgotten = [one for one in events if one["event"] == "forgotten"]
    assert sum(one["jobs"] for one in forgotten) == 5_501 - len(queue.entries)
    assert {one["user"] for one in forgotten} == {"eve"}


def test_a_listing_of_long_commands_and_many_hosts_is_short(site: Site):
    for k in range(20):
        body = to_plain(Spec(f"j{k}", ("x" * (MIB - 100),), "eve", hosts=("n1", "n2", "n3", "n4")))
        site.scheduler.order({"order": "SUBMIT_JOB", "job": "", "user": "eve", "spec": body})
    assert len(json.dumps(site.listed())) < 20 * 3000


def test_what_waits_of_all_users_has_a_bound(site: Site):
    site.store.save = lambda *_: None  # type: ignore[method-assign]  # 250 MiB are much for a disk that tests share

    def fill() -> None:
        for k in range(400):
            site.order("SUBMIT_JOB", f"j{k}", f"user{k % 40}", environment=(f"X={k:>{MIB - 100}}",))

    with pytest.raises(Refused, match="all jobs that are not over"):
        fill()
    assert 200 < len(site.scheduler.queue.entries) < 260


@pytest.mark.parametrize("job", ["on:n1", "slurm-17"])
def test_nobody_takes_names_of_the_system_s(site: Site, job: str):
    """A job with such a name once ended the guarantee of a shared node, or of a job of Slurm's, at its own end."""
    with pytest.raises(Refused) as no:
        site.order("SUBMIT_JOB", job)
    assert no.value.code == "power.bad_job"

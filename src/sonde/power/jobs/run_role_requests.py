"""Requests of the job scheduler to the other roles."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

from sonde.core.errors import EnvironmentFailure, SondeError, UsageError
from sonde.power.jobs import jobs, proof, run_jobs_bus, run_proof
from sonde.power.stack import run_bus
from sonde.power.stack.config import Users
from sonde.power.stack.telemetry import ACTIVE

if TYPE_CHECKING:
    from sonde.bus.client import Bus, Client

CALL_S = 3.0


class Roles(Protocol):
    """The other roles. If one cannot be asked, a SondeError is raised."""

    def ask(self, service: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask a role of jobs. Raises UsageError, EnvironmentFailure."""

    def system(self, service: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask the leading system manager. Raises Refused, TimedOut, BusError."""


class RolesOnBus:
    """The other roles, asked over the bus."""

    def __init__(self, bus: Bus, open_ones: ExitStack, users: Users) -> None:
        self._bus, self._open_ones, self._users = bus, open_ones, users
        self._clients: dict[str, Client] = {}

    def ask(self, service: str, body: dict[str, Any]) -> dict[str, Any]:
        """Raises UsageError, EnvironmentFailure."""
        if service not in self._clients:
            self._clients[service] = self._open_ones.enter_context(run_jobs_bus.client(self._bus, service))
        if service in proof.SERVICES:
            body = run_proof.proven(self._users, service, body)
        try:
            return dict(run_jobs_bus.call(self._clients[service], service, body, CALL_S).body)
        except UsageError as no:
            if no.code == "power.not_proven":  # this process is refused; the job has no fault
                raise EnvironmentFailure(no.code, no.what, no.hint) from None
            raise

    def system(self, service: str, body: dict[str, Any]) -> dict[str, Any]:
        """Raises Refused, TimedOut, BusError."""
        if service not in self._clients:
            self._clients[service] = self._open_ones.enter_context(run_bus.client(self._bus, service))
        return dict(self._clients[service].call(body, ACTIVE, CALL_S).body)


def unanswered(error: SondeError) -> bool:
    """Whether a role of jobs gave no answer, as opposed to a refusal."""
    return error.code == "power.no_answer" or not error.code.startswith("power.")


class Requests:
    """Asks the other roles, and remembers what goes wrong.

    troubles: the current troubles, by subject.
    """

    def __init__(self, roles: Roles) -> None:
        self.roles = roles
        self.troubles: dict[str, str] = {}

    def ask(self, about: str, service: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Ask a role. None: no answer, which is a trouble until it answers. Raises SondeError: it refused."""
        try:
            answer = self.roles.ask(service, body)
        except SondeError as error:
            if unanswered(error) and not isinstance(error, UsageError):
                self.troubles[about] = error.what
                return None
            self.troubles.pop(about, None)
            raise
        self.troubles.pop(about, None)
        return answer

    def attempt(self, about: str, service: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Ask a role. None: no answer or a refusal, which is a trouble until the role accepts. Raises UsageError."""
        try:
            return self.ask(about, service, body)
        except UsageError:
            raise
        except SondeError as error:
            self.troubles[about] = error.what
            return None

    def order_job(self, job: str, order: str, **more: Any) -> bool:
        """Order something of the job manager. False: no answer. "Unknown job" is an answer. Raises EnvironmentFailure:
        it refused.
        """
        try:
            return self.ask("job-manager", jobs.JOB_SET, {"order": order, "job": job, **more}) is not None
        except UsageError:
            return True

    def release(self, job: str) -> bool:
        """Have the resource manager release what a job has. False: no answer. Raises EnvironmentFailure: it refused."""
        try:
            return self.ask("resources", jobs.RESOURCES_SET, {"order": "RELEASE", "job": job}) is not None
        except UsageError:  # it has nothing on these nodes
            return True

    def note(self, about: str, what: str) -> None:
        """Set or clear a trouble. what: the trouble; "": none."""
        if what:
            self.troubles[about] = what
        else:
            self.troubles.pop(about, None)

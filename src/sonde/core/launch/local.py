"""One process on this machine without MPI: for programs that need no ranks."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from sonde.core.errors import UsageError
from sonde.core.launch import Placement, with_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Local:
    """Runs the program itself. It accepts no other host and no second rank."""

    name = "local"

    def __init__(self, mpi: str | None = None) -> None:
        del mpi  # every launcher is created the same way

    def placement(self, hosts: Sequence[str], ntasks: int) -> Placement:
        return Placement("none", False, "one process, not bound")

    def command(
        self, argv: Sequence[str], hosts: Sequence[str], ntasks: int, env: Mapping[str, str]
    ) -> list[str]:
        if ntasks != 1:
            raise UsageError(
                "launch.local_ranks",
                f"the launcher 'local' starts 1 process, but {ntasks} were requested",
                "use --launcher mpirun, or leave --launcher out",
            )
        self._only_here(hosts)
        return with_environment(argv, env)

    def inject(self, user_command: Sequence[str], env: Mapping[str, str]) -> list[str]:
        return with_environment(user_command, env)

    def per_host(self, argv: Sequence[str], hosts: Sequence[str]) -> list[list[str]]:
        self._only_here(hosts)
        return [list(argv)]

    @staticmethod
    def _only_here(hosts: Sequence[str]) -> None:
        here = {"localhost", "127.0.0.1", "::1", socket.gethostname(), socket.gethostname().partition(".")[0]}
        away = [host for host in hosts if host.partition(":")[0] not in here and host not in here]
        if away:
            raise UsageError(
                "launch.local_hosts",
                f"the launcher 'local' runs on this machine only, not on {', '.join(away[:5])}",
                "use --launcher mpirun or --launcher srun",
            )

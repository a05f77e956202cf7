"""The options that the client commands of `sonde store` have in common, and the client that they select."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sonde.core.options import BuiltinType, Duration

if TYPE_CHECKING:
    from sonde.core.errors import SondeError
    from sonde.store.client import Client, ServerStatus

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_SERVER = "127.0.0.1:5440"
CONNECT_S = 15.0  # maximum time to connect, even when --timeout is longer; as in native/store/store.hpp


class Servers(BuiltinType):
    """Servers, separated by commas. Value: tuple of their addresses."""

    name, allowed = "servers", "addresses such as n17:5440, or kv@n17:5440 for one role"

    def read(self, text: str) -> tuple[str, ...]:
        return tuple(word.strip() for word in text.split(",") if word.strip())


class AuthType(click.Choice):
    """user, token, munge or none."""

    def __init__(self) -> None:
        super().__init__(["user", "token", "munge", "none"])


AUTH = click.option(
    "--auth",
    type=AuthType(),
    envvar="SONDE_STORE_AUTH",
    metavar="HOW",
    help="user, token, munge, none.  [default: user or token, whichever the server requests]",
)


@dataclass(frozen=True)
class Where:
    """The store that a command uses, and how to connect to it."""

    servers: tuple[str, ...]
    folder: Path | None
    safety: str
    options: dict[str, Any]

    @contextmanager
    def open(self, roles: Sequence[str], make: bool = False) -> Iterator[Client]:
        """A client, for a with block. roles: the roles it needs. make: whether to create a missing embedded store."""
        from sonde.store.errors import TimedOut

        try:
            with self._opened(roles, make) as client:
                yield client
        except TimedOut as error:  # its hint names an option of connect()
            error.hint = error.hint.replace("timeout_s", "--timeout")
            raise

    def _opened(self, roles: Sequence[str], make: bool) -> Client:
        from sonde.store import client

        if self.folder is None:
            servers = self.servers or (DEFAULT_SERVER,)
            with self._in_time(servers):
                return self._connected(servers)
        import sonde._store as _store
        from sonde.store import run

        backends = run.backends_in(self.folder, _store.backends, roles, make)
        for role in roles:
            if role not in backends:
                from sonde.core.errors import EnvironmentFailure
                from sonde.store.server_status import HOLDS

                names = " or ".join(name for name, _ in run.FOLDER_BACKENDS[role])
                raise EnvironmentFailure(
                    "store.no_backend",
                    f"this build has no backend that stores {HOLDS[role]} in a folder; it needs {names}",
                    "'sonde doctor' shows what to install",
                )
        options = {name: value for name, value in self.options.items() if name == "timeout_s"}
        return client.Client([], list(backends.items()), self.safety, options)  # type: ignore[arg-type]

    def ask(self) -> Iterator[tuple[str, ServerStatus | SondeError]]:
        """The status of each server, in the order in which they were named, or the error that prevented it.

        Raises
        ------
        UsageError: an option is wrong, so that no server can be asked.
        """
        from sonde.core.errors import SondeError, UsageError

        for server in self.servers or (DEFAULT_SERVER,):
            try:
                with self._in_time((server,)), self._connected((server,)) as client:
                    (status,) = client.status()
                yield server, status
            except UsageError:
                raise
            except SondeError as error:
                yield server, error

    def _connected(self, servers: Sequence[str]) -> Client:
        from sonde.store import client

        options = self.options | {"connect_timeout_s": self._connect_s()}
        return client.Client(servers, [], self.safety, options)  # type: ignore[arg-type]

    def _connect_s(self) -> float:
        """The maximum time to connect, s: --timeout, but at most CONNECT_S."""
        return min(self.options["timeout_s"] or CONNECT_S, CONNECT_S)

    @contextmanager
    def _in_time(self, servers: Sequence[str]) -> Iterator[None]:
        """Replaces TimedOut by one that names the server and the time it had, with a hint that fits."""
        from sonde.store.errors import TimedOut

        try:
            yield
        except TimedOut as error:
            from sonde.core.units import format_duration

            server = servers[0] if len(servers) == 1 else f"one of {', '.join(servers)}"
            limit_s = self._connect_s()
            hint = error.hint
            if "timeout_s" in hint:
                hint = "it is stopped or very busy: see its log" + (
                    "; or raise --timeout" if limit_s < CONNECT_S else ""
                )
            raise TimedOut(
                error.code, f"{server} did not answer within {format_duration(limit_s)}", hint
            ) from None


TOKEN_FILE = click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    envvar="SONDE_STORE_TOKEN_FILE",
    metavar="FILE",
    help="The shared secret; see 'sonde store token'.",
)


def store_options(safety: bool = False, embedded: bool = True) -> Callable[[Command], Command]:
    """Adds the options that select a store; `where_of` makes a Where from them.

    safety: whether to add --safety. embedded: whether to add --embedded, for a store without a server.
    """
    options = [
        click.option(
            "--server",
            "servers",
            type=Servers(),
            multiple=True,
            envvar="SONDE_STORE_SERVERS",
            metavar="HOST:PORT",
            help=f"A server ({DEFAULT_SERVER}); may be repeated. All clients must name the same servers in one order.",
        ),
        click.option(
            "--embedded",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="DIR",
            help="Use the files in this folder directly, without a server.",
        ),
        click.option("--transport", metavar="NAME", help="tcp, or another that 'sonde doctor' lists."),
        click.option(
            "--provider",
            metavar="NAME",
            help="Provider of a libfabric transport.  [default: chosen by where the server is]",
        ),
        AUTH,
        TOKEN_FILE,
        click.option(
            "--tls",
            is_flag=True,
            envvar="SONDE_STORE_TLS",
            help="Encrypt the connection with TLS 1.3, with keys from the secret of user or token.",
        ),
        click.option(
            "--timeout",
            "timeout_s",
            type=Duration(zero=True),
            default="30s",
            show_default=True,
            metavar="TIME",
            help="Maximum time of one batch; 0: no limit.",
        ),
    ]
    if not embedded:
        del options[1]
    if safety:
        options.append(
            click.option(
                "--safety",
                type=click.Choice(["network", "storage"]),
                default="network",
                show_default=True,
                help="When a write is acknowledged: executed by the server, or on stable storage.",
            )
        )

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def where_of(given: dict[str, Any]) -> Where:
    """The store that the options of store_options() select.

    Raises
    ------
    UsageError  store.two_stores: --server and --embedded were both given.
    """
    servers = tuple(server for group in given["servers"] for server in group)
    folder = given.get("embedded")
    if folder is not None and servers:
        context = click.get_current_context(silent=True)
        typed = context is not None and context.get_parameter_source("servers") in (
            click.core.ParameterSource.COMMANDLINE,
        )
        if typed:
            from sonde.core.errors import UsageError

            raise UsageError(
                "store.two_stores", "--server and --embedded were both given", "give one or the other"
            )
    options = {
        name: given[name] for name in ("transport", "provider", "auth", "token_file", "tls", "timeout_s")
    }
    return Where(servers, folder, given.get("safety", "network"), options)

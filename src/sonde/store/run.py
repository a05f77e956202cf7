"""Starts and ends the server of `sonde store`; creates its folders and token files."""

from __future__ import annotations

import json
import os
import pwd
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sonde.core import launch
from sonde.core.errors import EnvironmentFailure, SondeError, UsageError, reason_not_written
from sonde.core.interrupt import signals
from sonde.core.owned_files import make_folder, write_whole
from sonde.core.processes import stat_fields
from sonde.core.surroundings import place_of_ranks
from sonde.store.errors import Exists, from_code

PROGRAM = "sonde-stored"
ROLES = ("data", "kv", "db")
# Backends that store a role in a folder, and the name of their own subfolder. The first one in this build is used.
FOLDER_BACKENDS = {
    "data": (("posix", "objects"),),
    "kv": (("lmdb", "keys"), ("rocksdb", "keys-rocksdb")),
    "db": (("sqlite", "tables"),),
}
MARKER = "sonde-store"  # the file by which a backend recognises its folder, as in native/store/folder.cpp
START_S = 30.0  # a large database may have to read a log first
END_S = 15.0  # the server answers what is under way, then syncs everything
SOON_S = 1.0  # when ending takes longer, the user gets a message
GRACE_S = 5.0  # from SIGTERM until SIGKILL
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def program() -> Path:
    """The path of the server. EnvironmentFailure  store.not_built."""
    path = launch.libexec() / PROGRAM
    if not os.access(path, os.X_OK):
        raise EnvironmentFailure(
            "store.not_built",
            "this build of Sonde has no storage server",
            "'sonde doctor' shows what to install; then 'make setup' builds it",
        )
    return path


def has() -> dict[str, list[Any]]:
    """The features of this build: backends by role, "transports", "auth"; "broken_modules": `what` and `hint` of each.

    Raises
    ------
    EnvironmentFailure  store.not_built, store.broken: the server does not start.
    """
    argv = [str(program()), "--list"]
    try:
        ran = subprocess.run(
            argv,
            cwd=place_of_ranks(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10,
            check=False,
        )
        features = json.loads(ran.stdout)
        return {name: list(values) for name, values in features.items()}
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise EnvironmentFailure(
            "store.broken", f"{PROGRAM} does not start: {error}", "build it again with 'make setup'"
        ) from None


def backends_in(
    folder: Path, names: Callable[[str], Sequence[str]], roles: Sequence[str] = ROLES, make: bool = True
) -> dict[str, str]:
    """The backends that store their data below `folder`, by role, in the form of --backend.

    names: gives the available backends of a role. make: whether to create missing folders, except the parent of
    `folder`; without it nothing is written.

    Raises
    ------
    EnvironmentFailure  store.cannot_open: the folder cannot be created, does not exist, or holds no store.
    UsageError  store.bad_path.
    """
    if "," in str(folder):
        raise UsageError(
            "store.bad_path", f"the folder {folder} has a comma in its name", "choose another name"
        )
    if not make and not folder.is_dir():
        raise EnvironmentFailure(
            "store.cannot_open",
            f"there is no folder {folder}",
            "put something into it first, or correct its name",
        )
    found = {}
    for role in roles:
        available = names(role)
        for name, below in FOLDER_BACKENDS[role]:
            if name in available:
                found[role] = f"{name},path={folder.resolve() / below}"
                break
    if not make:
        _check_store_exists(folder, found)
        return found
    try:
        make_folder(folder, 0o700, exist_ok=True)
        for text in found.values():
            make_folder(text.partition("path=")[2], 0o700, exist_ok=True)
    except OSError as error:
        raise EnvironmentFailure(
            "store.cannot_open",
            f"cannot make {error.filename}: {reason_not_written(error)}",
            "create it yourself, or choose another folder",
        ) from None
    return found


def _check_store_exists(folder: Path, found: Mapping[str, str]) -> None:
    """EnvironmentFailure  store.cannot_open: the folder has no store, or the store lacks the part of a backend."""
    from sonde.store.server_status import HOLDS

    hint = "put something into it first, or correct its name"
    subfolders = [below for backends in FOLDER_BACKENDS.values() for _, below in backends]
    if not any((folder / below / MARKER).exists() for below in subfolders):
        raise EnvironmentFailure("store.cannot_open", f"the folder {folder} holds no store", hint)
    for role, text in found.items():
        if not (Path(text.partition("path=")[2]) / MARKER).exists():
            raise EnvironmentFailure(
                "store.cannot_open", f"the store in {folder} holds no {HOLDS[role]} yet", hint
            )


def check_address(text: str) -> None:
    """Raises UsageError  store.bad_address when the text is not HOST:PORT or ROLE@HOST:PORT."""
    import sonde._store as _store

    _store.check_address(text.rpartition("@")[2])


def make_token(path: Path, replace: bool = False) -> None:
    """Writes a new shared secret of 32 random bytes, in hexadecimal, to a file that only its owner can read.

    Raises
    ------
    Exists: the file exists. EnvironmentFailure  core.cannot_write.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            if replace:
                os.replace(part, path)
            else:
                os.link(part, path)  # unlike a rename, this replaces nothing
        finally:
            part.unlink(missing_ok=True)
    except FileExistsError:
        raise Exists(
            "store.exists",
            f"{path} exists already",
            "servers and clients may be using it; --force replaces it",
        ) from None
    except OSError as error:
        raise EnvironmentFailure(
            "core.cannot_write", f"cannot write {path}: {reason_not_written(error)}", "choose another place"
        ) from None


def user_number(name: str) -> int:
    """The number of a user of this machine, given by name or number. UsageError  store.bad_user."""
    if name.isascii() and name.isdigit():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise UsageError(
            "store.bad_user", f"there is no user '{name}' here", "give the name or number of one"
        ) from None


@dataclass(frozen=True)
class Ended:
    """The end of a server. how: "interrupted" (Ctrl-C), "stopped" (SIGTERM or SIGHUP). served_s: how long it served."""

    how: str
    served_s: float


def serve(
    argv: Sequence[str],
    ready: Callable[[Mapping[str, Any]], None],
    say: Callable[[str], None],
) -> Ended:
    """Runs a server until a signal asks this process to end.

    argv: arguments of the server. ready: called with the event of that name: `listen`, `port`, `pid`, `metrics_port`.
    say: called with each line of the server's log. The server also ends by itself when this process dies in any way. A
    second Ctrl-C while the server ends sends it SIGTERM, and continues it if it is stopped; a third one kills it.

    Raises
    ------
    SondeError: the server's own error when it refuses to start. EnvironmentFailure  store.server_died.
    """
    came: list[int] = []
    with signals(lambda number, _: came.append(number), ENDING):
        child = subprocess.Popen(
            [str(program()), *argv, "--with-parent"],
            cwd=place_of_ranks(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C reaches this process alone, which then ends the server
        )
        assert child.stdin
        assert child.stdout
        assert child.stderr
        events: list[dict[str, Any]] = []
        log: list[str] = []
        heard = threading.Event()
        serving = False
        lock = threading.Lock()  # protects `log` and `serving`: each line is printed once

        def read_events(stream: IO[str]) -> None:
            for line in stream:
                try:
                    events.append(json.loads(line))
                except ValueError:
                    continue
                heard.set()

        def read_log(stream: IO[str]) -> None:
            for line in stream:
                with lock:
                    log.append(line.rstrip("\n"))
                    del log[:-50]
                    if serving:
                        say(log[-1])

        readers = [
            threading.Thread(target=read_events, args=(child.stdout,), daemon=True),
            threading.Thread(target=read_log, args=(child.stderr,), daemon=True),
        ]
        for reader in readers:
            reader.start()
        began_s = time.monotonic()
        try:
            while not came and child.poll() is None and not _named(events, "ready"):
                heard.wait(0.05)
                heard.clear()
                if time.monotonic() - began_s > START_S:
                    raise EnvironmentFailure(
                        "store.server_died", f"{PROGRAM} was not ready within {START_S:g} s", _last(log)
                    )
            began_s = time.monotonic()
            if first := _named(events, "ready"):
                with lock:  # the lines were held back: they might have been the reason for a failed start
                    for line in log:
                        say(line)
                    serving = True
                ready(first)
            while not came and child.poll() is None:
                time.sleep(0.05)
        finally:
            killed = _end(child, came, say)
            for reader in readers:
                reader.join(2)
    served_s = time.monotonic() - began_s
    if error := _named(events, "error"):
        raise from_code(str(error.get("code")), str(error.get("what")), str(error.get("hint", "")))
    if killed:
        raise EnvironmentFailure(
            "store.server_died",
            f"{PROGRAM} did not end when it was asked to, and was killed",
            _last(log) or "start it again: acknowledged data is not lost",
        )
    if not came or child.returncode:
        raise _died(child.returncode, log)
    return Ended("interrupted" if came[0] == signal.SIGINT else "stopped", served_s)


def _end(child: subprocess.Popen[str], came: list[int], say: Callable[[str], None]) -> bool:
    """Asks the server to end, and waits. Returns whether it had to be killed.

    came: the signals received so far; a handler adds to it. After one more signal, or END_S, the server gets SIGTERM.
    After two more, or GRACE_S later, it is killed.
    """
    assert child.stdin
    with suppress(OSError):
        child.stdin.close()
    asked = len(came)
    began_s = time.monotonic()
    announced = False
    while not _gone(child):
        waited_s = time.monotonic() - began_s
        if len(came) > asked or waited_s > END_S:
            break
        if not announced and waited_s > SOON_S:
            announced = True
            say(f"waiting up to {END_S:g} s for {_process_text(child)} to end; Ctrl-C again ends it at once")
    else:
        return False
    asked, began_s = len(came), time.monotonic()
    say(
        f"ending {_process_text(child)} by SIGTERM, and after {GRACE_S:g} s by SIGKILL; Ctrl-C again kills it"
    )
    child.send_signal(signal.SIGTERM)
    child.send_signal(signal.SIGCONT)  # a stopped process does not handle SIGTERM
    while not _gone(child):
        if len(came) > asked or time.monotonic() - began_s > GRACE_S:
            child.kill()
            child.wait()
            return True
    return False


def _gone(child: subprocess.Popen[str]) -> bool:
    with suppress(subprocess.TimeoutExpired):
        child.wait(0.05)
    return child.returncode is not None


def _process_text(child: subprocess.Popen[str]) -> str:
    """The server as text: "sonde-stored (process 42, which is stopped)"."""
    state = next(iter(stat_fields(child.pid)), "")
    return f"{PROGRAM} (process {child.pid}{', which is stopped' if state in ('T', 't') else ''})"


def _named(events: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any] | None:
    return next((event for event in events if event.get("event") == name), None)


def _last(log: Sequence[str]) -> str:
    return f"the last line of its log: {log[-1]}" if log else ""


def _died(status: int, log: Sequence[str]) -> SondeError:
    how = f"with exit status {status}"
    if status < 0:
        how = f"by signal {-status} ({signal.Signals(-status).name})"
    return EnvironmentFailure(
        "store.server_died",
        f"the server ended {how}",
        _last(log) or "start it again: acknowledged data is not lost",
    )


def write_ready(path: Path, event: Mapping[str, Any]) -> None:
    """Writes a file from which scripts learn where the server listens. It is written whole or not at all."""
    text = json.dumps(dict(event) | {"event": "ready"}) + "\n"
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise EnvironmentFailure(
            "core.cannot_write", f"cannot write {path}: {reason_not_written(error)}", "choose another place"
        ) from None

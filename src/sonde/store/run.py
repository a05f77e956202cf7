"""What `sonde store` starts and touches: the server, its folders, token files."""

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
from sonde.core.owned_files import write_whole
from sonde.core.processes import stat_fields
from sonde.store.errors import Exists, made

PROGRAM = "sonde-stored"
ROLES = ("data", "kv", "db")
# What keeps a role in a folder: the first that this build has, and what its own folder or file is called there.
KEEPERS = {
    "data": (("posix", "objects"),),
    "kv": (("lmdb", "keys"), ("rocksdb", "keys-rocksdb")),
    "db": (("sqlite", "tables"),),
}
MARKER = "sonde-store"  # the file by which a backend knows its folder, as in native/store/folder.cpp
START_S = 30.0  # a large database may have a log to read first
END_S = 15.0  # what is under way is answered, then everything is synced
SOON_S = 1.0  # what takes longer to end is told of
GRACE_S = 5.0  # between being told to end by signal and being killed
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def program() -> Path:
    """The server's path. EnvironmentFailure  store.not_built."""
    path = launch.libexec() / PROGRAM
    if not os.access(path, os.X_OK):
        raise EnvironmentFailure(
            "store.not_built",
            "this build of Sonde has no storage server",
            "'sonde doctor' says what to install; then 'make setup' builds it",
        )
    return path


def has() -> dict[str, list[Any]]:
    """What this build has: backends by role, "transports", "auth"; "broken_modules": `what` and `hint` of each.

    Raises
    ------
    EnvironmentFailure  store.not_built, store.broken: the server does not start.
    """
    words = [str(program()), "--list"]
    try:
        ran = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10,
            check=False,
        )
        told = json.loads(ran.stdout)
        return {name: list(values) for name, values in told.items()}
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise EnvironmentFailure(
            "store.broken", f"{PROGRAM} does not start: {error}", "build it again with 'make setup'"
        ) from None


def kept_in(
    folder: Path, names: Callable[[str], Sequence[str]], roles: Sequence[str] = ROLES, make: bool = True
) -> dict[str, str]:
    """Backends that keep their data below `folder`, by role, as --backend takes them.

    names: the backends that there are for a role. make: what is not there yet is made, except the folder above it; else
    nothing is written.

    Raises
    ------
    EnvironmentFailure  store.cannot_open: it cannot be made, is not there, or holds no store.
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
        there = names(role)
        keeper = next(((name, below) for name, below in KEEPERS[role] if name in there), None)
        if keeper:
            found[role] = f"{keeper[0]},path={folder.resolve() / keeper[1]}"
    if not make:
        _check_held(folder, found)
        return found
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for text in found.values():
            Path(text.partition("path=")[2]).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise EnvironmentFailure(
            "store.cannot_open",
            f"cannot make {error.filename}: {reason_not_written(error)}",
            "make it by hand, or choose another folder",
        ) from None
    return found


def _check_held(folder: Path, found: Mapping[str, str]) -> None:
    """EnvironmentFailure  store.cannot_open: a backend would have to make its part of the store to read it."""
    from sonde.store.server_status import HOLDS

    hint = "put something into it first, or correct its name"
    if not any((folder / below / MARKER).exists() for keepers in KEEPERS.values() for _, below in keepers):
        raise EnvironmentFailure("store.cannot_open", f"the folder {folder} holds no store", hint)
    for role, text in found.items():
        if not (Path(text.partition("path=")[2]) / MARKER).exists():
            raise EnvironmentFailure(
                "store.cannot_open", f"the store in {folder} holds no {HOLDS[role]} yet", hint
            )


def check_address(text: str) -> None:
    """UsageError  store.bad_address: it is no HOST:PORT, or ROLE@HOST:PORT."""
    import sonde._store as _store

    _store.check_address(text.rpartition("@")[2])


def make_token(path: Path, replace: bool = False) -> None:
    """Writes a new shared secret of 32 random bytes, in hexadecimal, that only its owner may read.

    Raises
    ------
    Exists: there is such a file. EnvironmentFailure  core.cannot_write.
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
                os.link(part, path)  # which, unlike a rename, replaces nothing
        finally:
            part.unlink(missing_ok=True)
    except FileExistsError:
        raise Exists(
            "store.exists",
            f"{path} is there already",
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
    """How a server ended. how: "interrupted" (Ctrl-C), "stopped" (SIGTERM or SIGHUP). served_s: how long it served."""

    how: str
    served_s: float


def serve(
    words: Sequence[str],
    ready: Callable[[Mapping[str, Any]], None],
    say: Callable[[str], None],
) -> Ended:
    """Runs a server with the words of its command line until this process is told to end.

    ready: is given the event of that name: `listen`, `port`, `pid`, `metrics_port`. say: is given the lines of its log.
    The server ends by itself when this process is gone, however it went. A second Ctrl-C while it ends sends it
    SIGTERM, and wakes it for that if it is stopped; a third one kills it.

    Raises
    ------
    SondeError: the one with which the server refused to start. EnvironmentFailure  store.server_died.
    """
    came: list[int] = []
    with signals(lambda number, _: came.append(number), ENDING):
        child = subprocess.Popen(
            [str(program()), *words, "--with-parent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C reaches this process alone, which then tells it
        )
        assert child.stdin
        assert child.stdout
        assert child.stderr
        events: list[dict[str, Any]] = []
        log: list[str] = []
        heard = threading.Event()
        serving = False
        turn = threading.Lock()  # of `log` and `serving`: each line is said once

        def listen(stream: IO[str]) -> None:
            for line in stream:
                try:
                    events.append(json.loads(line))
                except ValueError:
                    continue
                heard.set()

        def keep(stream: IO[str]) -> None:
            for line in stream:
                with turn:
                    log.append(line.rstrip("\n"))
                    del log[:-50]
                    if serving:
                        say(log[-1])

        readers = [
            threading.Thread(target=listen, args=(child.stdout,), daemon=True),
            threading.Thread(target=keep, args=(child.stderr,), daemon=True),
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
                with turn:  # until now they might have been the reason why it does not start
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
        raise made(str(error.get("code")), str(error.get("what")), str(error.get("hint", "")))
    if killed:
        raise EnvironmentFailure(
            "store.server_died",
            f"{PROGRAM} did not end when it was told to, and was killed",
            _last(log) or "start it again: what was acknowledged as stored is there",
        )
    if not came or child.returncode:
        raise _died(child.returncode, log)
    return Ended("interrupted" if came[0] == signal.SIGINT else "stopped", served_s)


def _end(child: subprocess.Popen[str], came: list[int], say: Callable[[str], None]) -> bool:
    """Asks it to end, and waits; True: it had to be killed.

    came: signals that came so far, to which more are added. One more than now makes it urgent, as END_S does; two more,
    or GRACE_S, kill it.
    """
    assert child.stdin
    with suppress(OSError):
        child.stdin.close()
    asked = len(came)
    began_s = time.monotonic()
    told = False
    while not _gone(child):
        waited_s = time.monotonic() - began_s
        if len(came) > asked or waited_s > END_S:
            break
        if not told and waited_s > SOON_S:
            told = True
            say(f"waiting for {_who(child)} to end, for up to {END_S:g} s; Ctrl-C again ends it at once")
    else:
        return False
    asked, began_s = len(came), time.monotonic()
    say(f"ending {_who(child)} by SIGTERM, and by SIGKILL after {GRACE_S:g} s; Ctrl-C again kills it")
    child.send_signal(signal.SIGTERM)
    child.send_signal(signal.SIGCONT)  # one that is stopped gets no other signal
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


def _who(child: subprocess.Popen[str]) -> str:
    """ "sonde-stored (process 42, which is stopped)"."""
    state = next(iter(stat_fields(child.pid)), "")
    return f"{PROGRAM} (process {child.pid}{', which is stopped' if state in ('T', 't') else ''})"


def _named(events: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any] | None:
    return next((event for event in events if event.get("event") == name), None)


def _last(log: Sequence[str]) -> str:
    return f"its last words: {log[-1]}" if log else ""


def _died(status: int, log: Sequence[str]) -> SondeError:
    how = f"with exit status {status}"
    if status < 0:
        how = f"by signal {-status} ({signal.Signals(-status).name})"
    return EnvironmentFailure(
        "store.server_died",
        f"the server ended {how}",
        _last(log) or "start it again: what was acknowledged as stored is there",
    )


def write_ready(path: Path, event: Mapping[str, Any]) -> None:
    """Tells scripts in a file where the server listens, whole or not at all."""
    text = json.dumps(dict(event) | {"event": "ready"}) + "\n"
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise EnvironmentFailure(
            "core.cannot_write", f"cannot write {path}: {reason_not_written(error)}", "choose another place"
        ) from None

"""Attempts to get into a store: by other users of the machine, by an attacker between a client and its server, and by
servers that are not the intended one.

The attacked store was started without any option.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sonde._store", reason="the store is not built")

from other_users import STRANGER, as_user, place, stranger
from relays import Relay, pass_on, port_of, to
from sonde._store import auth_methods

from sonde.core.errors import SondeError
from sonde.store.client import connect
from store_frames import CHALLENGE, GOODBYE, HELLO, PROOF, WELCOME, Caller, frame, stored, text

__all__ = ["place", "stranger"]
NONCE = "0123456789abcdef" * 4
PROTOCOL = "3"
CLONE_NEWNET = 0x40000000
Methods = dict[str, tuple[list[str], dict[str, Any]]]


def refusal(address: str, **options: Any) -> str:
    """The code of the error with which a client is refused; "" if it gets in."""
    try:
        with connect(address, connect_timeout_s=30, **options) as client:
            client.put("s", "k", b"v")
            assert client.get("s", "k") == b"v"
    except SondeError as error:
        return error.code
    return ""


@pytest.fixture
def home(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of this user's alone, whose path others know."""
    folder = place / "home"
    folder.mkdir(mode=0o755)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    return folder


# ---- another user of the machine


@pytest.mark.root
def test_another_user_of_the_machine_does_not_get_into_a_store_that_was_started_without_options(
    home: Path, stranger: Path
) -> None:
    with stored() as server:
        assert refusal(server.address) == ""  # its own user needs no option

        def by_hand() -> None:
            one = Caller(server.address)
            one.say(frame(HELLO, text(protocol=PROTOCOL, client="stranger", nonce=NONCE)))
            kind, challenge = one.hear()
            assert (kind, b"auth=user" in challenge) == (CHALLENGE, True)
            one.say(frame(PROOF, text(server=server.address, proof="0" * 64)))
            assert one.hear()[0] == GOODBYE

        def without_a_word() -> None:
            one = Caller(server.address)
            one.say(frame(HELLO, text(client="stranger", nonce="0")), frame(PROOF))
            assert one.hear()[0] not in (CHALLENGE, WELCOME)

        def with_a_key_of_its_own() -> None:
            os.environ["HOME"] = str(stranger)
            key = stranger / ".local/state/sonde/store-key"
            key.parent.mkdir(parents=True)
            key.write_text("f" * 64)
            key.chmod(0o600)
            assert refusal(server.address) == "store.denied"
            assert refusal(server.address, auth="none") == "store.denied"

        def with_the_owners_home() -> None:
            os.environ["HOME"] = str(home)
            assert refusal(server.address) == "store.no_key"
            with pytest.raises(PermissionError):
                (home / ".local/state/sonde/store-key").read_text()

        for attack in (by_hand, without_a_word, with_a_key_of_its_own, with_the_owners_home):
            as_user(STRANGER, attack)
        assert refusal(server.address) == ""


def test_the_key_is_made_once_for_its_user_alone_and_found_by_every_server_and_client(home: Path) -> None:
    key = home / ".local/state/sonde/store-key"
    with stored() as one, stored() as two:
        first = key.read_text()
        assert (key.stat().st_mode & 0o777, len(first.strip())) == (0o600, 64)
        assert (refusal(one.address), refusal(two.address)) == ("", "")
        # Root, or a user to whom its owner gives a copy.
        copy = home / "copy"
        copy.write_text(first)
        copy.chmod(0o600)
        with pytest.MonkeyPatch.context() as elsewhere:
            elsewhere.setenv("HOME", str(home / "another"))
            assert refusal(one.address) == "store.no_key"
            assert refusal(one.address, token_file=str(copy)) == ""
    with stored():
        assert key.read_text() == first
    assert list(key.parent.iterdir()) == [key]


@pytest.mark.root
@pytest.mark.parametrize("spoiled", ["shared", "link", "foreign", "folder", "short"])
def test_a_key_that_others_may_know_is_refused_by_server_and_client(home: Path, spoiled: str) -> None:
    key = home / ".local/state/sonde/store-key"
    with stored() as server:
        if spoiled == "shared":
            key.chmod(0o644)
        elif spoiled == "link":
            (home / "elsewhere").write_text("f" * 64)
            (home / "elsewhere").chmod(0o600)
            key.unlink()
            key.symlink_to(home / "elsewhere")
        elif spoiled == "foreign":
            os.chown(key, STRANGER, STRANGER)
        elif spoiled == "folder":
            key.parent.chmod(0o777)
        else:
            key.write_text("short\n")
        assert refusal(server.address) in ("store.bad_token", "store.no_key")
    with pytest.raises(AssertionError), stored():
        pass


# ---- between a client and its server


@pytest.fixture
def methods(home: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Methods:
    """By method: options of the server, options of the client."""
    token = home / "token"
    token.write_text("a-token-of-at-least-16-characters\n")
    token.chmod(0o600)
    found = {
        "user": ([], {}),
        "token": (["--auth", "token", "--token-file", str(token)], {"token_file": str(token)}),
    }
    if "munge" in auth_methods():
        monkeypatch.setenv("SONDE_MUNGE_SOCKET", str(request.getfixturevalue("munge")))
        found["munge"] = (["--auth", "munge"], {"auth": "munge"})
    return found


@pytest.mark.parametrize("method", ["user", "token", "munge"])
def test_a_proof_that_is_passed_on_gets_nobody_in(methods: Methods, method: str) -> None:
    if method not in methods:
        pytest.skip("built without MUNGE")
    words, options = methods[method]
    with stored(*words) as server:
        assert refusal(server.address, **options) == ""
        rogue = Relay(to(server.address))
        assert refusal(rogue.address, **options) == "store.denied"
        assert rogue.kinds() == [CHALLENGE, GOODBYE]
        rogue.end()
    # An intended forwarder: the server knows its address.
    rogue = Relay(lambda: socket.create_connection(("127.0.0.1", port_of(server.address))))
    with stored(*words, "--known-as", rogue.address) as server:
        assert refusal(rogue.address, **options) == ""
    rogue.end()


@pytest.mark.parametrize("method", ["user", "token", "munge"])
def test_a_proof_that_is_passed_on_by_who_was_at_the_address_before_its_server_gets_nobody_in(
    methods: Methods, method: str
) -> None:
    """The client, the server and the attacker between them all see the same address of the same machine."""
    if method not in methods:
        pytest.skip("built without MUNGE")
    words, options = methods[method]
    taken, started = threading.Event(), threading.Event()

    def late() -> socket.socket:
        rogue.end()  # frees the port for the server, and holds the client that has connected
        taken.set()
        started.wait(60)
        return to(rogue.address)()

    rogue = Relay(late)
    codes: list[str] = []
    client = threading.Thread(target=lambda: codes.append(refusal(rogue.address, **options)))
    client.start()
    assert taken.wait(60)
    with stored(*words, listen=rogue.address):
        started.set()
        client.join(60)
        assert codes == ["store.denied"]
        assert rogue.kinds() == [CHALLENGE, GOODBYE]
        assert refusal(rogue.address, **options) == ""


def in_a_network_of_its_own(act: Callable[[], object]) -> None:
    """Runs it in a process with its own loopback, as on another machine."""
    pid = os.fork()
    if pid == 0:
        status = 1
        with suppress(BaseException):
            assert ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) == 0, os.strerror(
                ctypes.get_errno()
            )
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            act()
            status = 0
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.root
def test_a_proof_for_the_same_loopback_address_of_another_machine_gets_nobody_in(
    methods: Methods, place: Path
) -> None:
    words, options = methods["user"]
    with stored(*words) as server:
        listener = socket.socket(socket.AF_UNIX)  # a connection from one loopback to the other
        listener.bind(str(place / "s"))
        listener.listen()

        def passed_on() -> None:
            peer, _ = listener.accept()
            real = to(server.address)()
            back = threading.Thread(target=pass_on, args=(real, peer), daemon=True)
            back.start()
            pass_on(peer, real)

        threading.Thread(target=passed_on, daemon=True).start()

        def as_the_owner_elsewhere() -> None:
            def tunnel() -> socket.socket:
                end = socket.socket(socket.AF_UNIX)
                end.connect(str(place / "s"))
                return end

            rogue = Relay(tunnel, port_of(server.address))
            assert rogue.address == server.address
            assert refusal(rogue.address, **options) == "store.denied"
            assert rogue.kinds() == [CHALLENGE, GOODBYE]

        in_a_network_of_its_own(as_the_owner_elsewhere)
        listener.close()


# ---- servers that are not the intended one


@contextmanager
def rogue_server(*answers: bytes) -> Iterator[tuple[str, list[tuple[int, bytes]]]]:
    """Answers each frame of a client with the next of these; yields its address and the frames that it received."""
    heard: list[tuple[int, bytes]] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError, ConnectionError):
            peer = Caller(listener.accept()[0])
            for answer in answers:
                heard.append(peer.hear())
                peer.say(answer)
            while True:
                heard.append(peer.hear())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}", heard
    finally:
        listener.close()
        thread.join(30)


def challenge(auth: str, protocol: str = PROTOCOL) -> bytes:
    return frame(3, text(auth=auth, nonce=NONCE, protocol=protocol))


@pytest.mark.parametrize("auth", ["none", "munge"])
def test_a_server_that_proves_nothing_gets_nothing_unless_the_client_says_so(home: Path, auth: str) -> None:
    with rogue_server(challenge(auth), frame(WELCOME, text(roles="kv"))) as (address, heard):
        assert refusal(address) == "store.denied"
    assert [kind for kind, _ in heard] == [HELLO]


def test_a_server_that_does_not_know_the_key_gets_a_proof_of_no_use_and_no_data(home: Path) -> None:
    with stored() as server:
        for last in (text(roles="kv"), text(roles="kv", proof="0" * 64)):
            with rogue_server(challenge("user"), frame(WELCOME, last)) as (address, heard):
                assert refusal(address) == "store.denied"
            assert [kind for kind, _ in heard] == [HELLO, PROOF]
            # Not even at the server that the client normally uses.
            one = Caller(server.address)
            one.say(heard[0][1] and frame(HELLO, heard[0][1]))
            assert one.hear()[0] == CHALLENGE
            one.say(frame(PROOF, heard[1][1]))
            assert one.hear()[0] == GOODBYE


# ---- versions


def test_a_client_and_a_server_that_prove_in_different_ways_say_so(home: Path) -> None:
    with stored() as server:
        one = Caller(server.address)
        one.say(frame(HELLO, text(client="of an older Sonde", nonce=NONCE)))
        kind, words = one.hear()
        assert (kind, b"store.version" in words) == (GOODBYE, True)
        assert b"run the same version" in words
        assert refusal(server.address) == ""
    with rogue_server(frame(3, text(auth="token", nonce=NONCE))) as (address, heard):
        assert refusal(address, token_file=str(home / ".local/state/sonde/store-key")) == "store.version"
    assert [kind for kind, _ in heard] == [HELLO]


# ---- MUNGE that does not answer


def test_a_munged_that_hangs_holds_up_only_those_who_have_to_be_asked_for(
    methods: Methods, munge: Path
) -> None:
    if "munge" not in methods:
        pytest.skip("built without MUNGE")
    words, options = methods["munge"]
    daemon = int((munge.parent / "pid").read_text())
    with stored(*words) as server, connect(server.address, timeout_s=60, **options) as client:
        client.put("s", "k", b"v")
        os.kill(daemon, signal.SIGSTOP)
        try:
            strangers = [Caller(server.address) for _ in range(12)]
            for one in strangers:
                one.say(frame(HELLO, text(protocol=PROTOCOL, client="stranger", nonce=NONCE)))
                assert one.hear()[0] == CHALLENGE
                name, port = one.socket.getpeername()
                own = "{}:{}".format(*one.socket.getsockname())
                ends = {"server": f"{name}:{port}", "machine": machine(), "from": own}
                one.say(frame(PROOF, text(**ends, proof="MUNGE:AwQDAAA:")))
            for k in range(100):
                client.put("s", f"k{k}", b"v")
            assert client.get("s", "k99") == b"v"
            # The server limits their time meanwhile; libmunge alone would have used it several times over.
            for one in strangers:
                kind, told = one.hear()
                assert (kind, b"did not answer within 3.00 s" in told) == (GOODBYE, True), told
        finally:
            os.kill(daemon, signal.SIGCONT)
        assert refusal(server.address, **options) == ""


def machine() -> str:
    """The name that both ends of a connection over loopback have for this machine."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/net')}"

"""An attacker between a client and a server, which forwards their messages."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def pass_on(
    source: socket.socket,
    sink: socket.socket,
    kept: list[bytes] | None = None,
    change: Callable[[bytes, int], bytes] = lambda piece, _: piece,
) -> None:
    before = 0
    with suppress(OSError):
        while piece := source.recv(65536):
            if kept is not None:
                kept.append(piece)
            sink.sendall(change(piece, before))
            before += len(piece)
        sink.shutdown(socket.SHUT_WR)


class Relay:
    """Listens on a port of its own; forwards all data to the server, and the server's answers back.

    change: returns a replacement for a piece that a client sent; its second argument is the number of bytes before the
    piece.
    """

    def __init__(
        self,
        server: Callable[[], socket.socket],
        port: int = 0,
        change: Callable[[bytes, int], bytes] = lambda piece, _: piece,
    ) -> None:
        self._server = server
        self._change = change
        self.asked: list[bytes] = []  # by clients
        self.said: list[bytes] = []  # by the server
        self._listener = socket.create_server(("127.0.0.1", port))
        self.address = "127.0.0.1:" + str(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = self._server()
                threading.Thread(
                    target=pass_on, args=(client, server, self.asked, self._change), daemon=True
                ).start()
                threading.Thread(target=pass_on, args=(server, client, self.said), daemon=True).start()

    def kinds(self) -> list[int]:
        """The kinds of the frames that the server sent."""
        stream, kinds = b"".join(self.said), []
        while len(stream) >= 64:
            table, data = struct.unpack_from("<II", stream, 20)
            kinds.append(stream[5])
            stream = stream[64 + table + data :]
        return kinds

    def end(self) -> None:
        self._listener.close()


def to(address: str) -> Callable[[], socket.socket]:
    return lambda: socket.create_connection(("127.0.0.1", port_of(address)))

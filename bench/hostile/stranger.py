"""Who has no token: python -m bench.hostile.stranger ADDRESS frames SEED | crowd COUNT

frames: sends hostile frames, connection after connection, and says after each thousand how many.
crowd: opens so many connections and says when they stand; half of them send nothing, half a byte a second.
Ends when its input does.
"""

from __future__ import annotations

import json
import random
import select
import socket
import sys
from contextlib import suppress

import store_frames as wire
from bench.hostile.served import step_back

STREAMS = 256
KINDS = tuple(range(16))


def hostile_stream(draw: random.Random) -> bytes:
    """1 to 16 frames: pings and requests before any proof, hellos and proofs of random text, damage of all kinds."""
    frames = []
    if draw.random() < 0.7:
        transport = draw.choice(["tcp", "ofi-rdm", ""])
        hello = f"client=x\nnonce={draw.getrandbits(64):x}\nprotocol=2\ntransport={transport}\n"
        frames.append(wire.frame(wire.HELLO, hello.encode()))
    for _ in range(draw.randint(0, 15)):
        body = draw.randbytes(draw.choice([0, 1, 31, 32, 33, 300]))
        whole = wire.frame(
            draw.choice(KINDS),
            body[: draw.randint(0, len(body))],
            body[: draw.randint(0, len(body))],
            draw.choice([0, 1, 8192, 2**32 - 1]),
            draw.randint(0, 255) if draw.random() < 0.3 else wire.KV,
            draw.choice([0, 1, wire.MOST_OPS, 2**32 - 1]),
        )
        damage = draw.random()
        if damage < 0.2:
            at = draw.randrange(len(whole))
            whole = whole[:at] + bytes([whole[at] ^ 1 << draw.randrange(8)]) + whole[at + 1 :]
        elif damage < 0.3:
            whole = whole[: draw.randrange(len(whole))]
        frames.append(whole)
    return b"".join(frames) or wire.frame(wire.PING)


def send_frames(address: tuple[str, int], seed: int) -> None:
    draw = random.Random(seed)
    streams = [hostile_stream(draw) for _ in range(STREAMS)]
    connections = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(200):
            with suppress(OSError), socket.create_connection(address, timeout=10) as there:
                # Else each leaves a port that is not free for a minute.
                there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                there.sendall(streams[connections % STREAMS])
                if draw.random() < 0.5:
                    there.shutdown(socket.SHUT_WR)
                    while there.recv(65536):
                        pass
            connections += 1
        print(json.dumps({"connections": connections}), flush=True)


def crowd(address: tuple[str, int], count: int) -> None:
    there: list[socket.socket] = []
    refused = 0
    for _ in range(count):
        try:
            there.append(socket.create_connection(address, timeout=10))
        except OSError:
            refused += 1
    print(json.dumps({"standing": len(there), "refused": refused}), flush=True)
    ended = 0
    dripping = there[::2]
    hello = wire.frame(wire.HELLO, b"client=slow\nnonce=0\ntransport=tcp\n")
    sent = 0
    while not select.select([sys.stdin], [], [], 1)[0]:
        for k, one in enumerate(dripping):
            try:
                one.send(hello[sent % len(hello) :][:1])
            except OSError:  # the server has ended it: another comes
                ended += 1
                with suppress(OSError):
                    one.close()
                    dripping[k] = socket.create_connection(address, timeout=10)
        sent += 1
    print(json.dumps({"ended": ended}), flush=True)


def main(address: str, what: str, number: str) -> None:
    step_back()
    host, _, port = address.rpartition(":")
    if what == "frames":
        send_frames((host, int(port)), int(number))
    else:
        crowd((host, int(port)), int(number))


if __name__ == "__main__":
    main(*sys.argv[1:])

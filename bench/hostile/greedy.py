"""A client with the token that takes what it can: python -m bench.hostile.greedy ADDRESS TOKEN giant|slow|query"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
from contextlib import suppress

from bench.hostile.served import step_back
from sonde.core.errors import SondeError
from sonde.store.client import Client, connect

MIB = 1 << 20


def giant(client: Client) -> None:
    with client.batch() as batch:
        for k in range(100_000):
            batch.put("greedy", f"k{k}", b"v")
    client.write("greedy", "object", bytes(64 * MIB))


def slow(client: Client) -> None:
    client.read("greedy", "object", 0, 64 * MIB)


def query(client: Client) -> None:
    table = client.table("greedy", "rows")
    # Each letter of the pattern is tried at each of the text's.
    list(table.select(("t", "like", "%" + 1000 * "a" + "b%")))


def prepare(client: Client, way: str) -> None:
    if way == "slow":
        client.create("greedy", "object")
        client.write("greedy", "object", bytes(64 * MIB))
    elif way == "giant":
        client.create("greedy", "object")
    else:
        table = client.define("greedy", "rows", {"t": "text"})
        for _ in range(20):
            table.insert([{"t": 900_000 * "a"}])


def main(address: str, token: str, way: str) -> None:
    act = {"giant": giant, "slow": slow, "query": query}[way]
    clients = [connect(address, auth="token", token_file=token) for _ in range(4)]
    prepare(clients[0], way)
    step_back()
    print(json.dumps({"way": way}), flush=True)

    begun, ended = [0] * len(clients), [0] * len(clients)

    def work(k: int) -> None:
        while True:
            begun[k] += 1
            with suppress(SondeError):  # refused or out of time: it asks again
                act(clients[k])
            ended[k] += 1

    for k in range(len(clients)):
        threading.Thread(target=work, args=(k,), daemon=True).start()
    select.select([sys.stdin], [], [])
    print(json.dumps({"begun": sum(begun), "ended": sum(ended)}), flush=True)
    os._exit(0)  # its threads are at work: nothing of them is to be put in order


if __name__ == "__main__":
    main(*sys.argv[1:])

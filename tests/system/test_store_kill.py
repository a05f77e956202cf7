"""A server killed at random under load: what was acknowledged as stored is there, and batches are whole or absent."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("sonde._store", reason="the store is not built")

from sonde.core import launch
from sonde.core.errors import SondeError
from sonde.store.client import connect
from sonde.store.errors import NotFound

WRITERS = 4
KEYS = 7  # of a batch: all of them are there afterwards, or none
BLOCK = 4096


class Stored:
    """A server process over a folder, started again after every kill."""

    def __init__(self, folder: Path, kv: str) -> None:
        self.words = [str(launch.libexec() / "sonde-stored"), "--listen", "127.0.0.1:0", "--with-parent"]
        self.words += ["--backend", f"data=posix,path={folder / 'objects'}"]
        self.words += ["--backend", f"kv={kv},path={folder / 'keys'}"]
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> str:
        self.process = subprocess.Popen(
            self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read() if self.process.stderr else ""
        return str(json.loads(line)["listen"])

    def kill(self) -> None:
        assert self.process
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=30)

    def end(self) -> int:
        assert self.process
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(30)


class Writer(threading.Thread):
    """Stores batch after batch until its server is gone; remembers how far it was acknowledged.

    Batch n puts KEYS keys with the value n, and writes block n % 64 of an object with bytes n.
    """

    def __init__(self, name: str, address: str, there: int, tried: int) -> None:
        """there: the batch that was found after the last kill; tried: the last that was sent."""
        super().__init__(daemon=True)
        self.named, self.address = name, address
        self.there, self.acknowledged, self.tried = there, 0, tried
        self.count = 0

    def run(self) -> None:
        with suppress(SondeError), connect(self.address, safety="storage", timeout_s=20) as client:
            while True:
                n = self.tried + 1
                batch = client.batch()
                for k in range(KEYS):
                    batch.put("kill", f"{self.named}/{k}", str(n).encode())
                batch.write("kill", self.named, (n % 64) * BLOCK, n.to_bytes(8, "little") * (BLOCK // 8))
                self.tried = n
                batch.run()
                batch.check()
                self.acknowledged = n
                self.count += 1


def look(address: str, writer: Writer) -> int:
    """Which batch of the writer is there: of keys the last acknowledged or a later one, and one batch only."""
    least = max(writer.there, writer.acknowledged)
    with connect(address) as client:
        found = set()
        for k in range(KEYS):
            with suppress(NotFound):
                found.add(bytes(client.get("kill", f"{writer.named}/{k}")))
                continue
            found.add(b"0")
        assert len(found) == 1, f"{writer.named}: a batch is there in part: {sorted(found)}"
        n = int(found.pop())
        assert least <= n <= writer.tried, f"{writer.named}: {n} is there, {least} was acknowledged"
        if done := writer.acknowledged:
            # A later batch writes this block only 64 batches later.
            block = bytes(client.read("kill", writer.named, (done % 64) * BLOCK, BLOCK))
            assert block == done.to_bytes(8, "little") * (BLOCK // 8), (
                f"{writer.named}: the block of batch {done}"
            )
        return n


def _kills(folder: Path, kv: str, kills: int, seed: int) -> int:
    """Batches that were acknowledged as stored, over all kills."""
    rng = random.Random(seed)
    server = Stored(folder, kv)
    there, tried = [0] * WRITERS, [0] * WRITERS
    acknowledged = 0
    for kill in range(kills):
        address = server.start()
        writers = [Writer(f"w{k}", address, there[k], tried[k]) for k in range(WRITERS)]
        for writer in writers:
            writer.start()
        time.sleep(rng.uniform(0.0, 0.25))
        server.kill()
        for writer in writers:
            writer.join(30)
            assert not writer.is_alive(), "a client hangs after its server was killed"
        address = server.start()
        for k, writer in enumerate(writers):
            acknowledged += writer.count
            there[k], tried[k] = look(address, writer), writer.tried
        if kill % 2:
            server.kill()
        else:
            assert server.end() == 0
    return acknowledged


@pytest.mark.parametrize("kv", ["lmdb", "rocksdb"])
def test_ten_kills_under_load_lose_nothing_acknowledged(tmp_path, kv):
    assert _kills(tmp_path, kv, 10, 7) > 0


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_two_hundred_kills_under_load_lose_nothing_acknowledged(tmp_path):
    stored = _kills(tmp_path, "lmdb", 200, 11)
    print(f"\n200 kills; {stored} acknowledged batches, none lost, none in part")
    assert stored > 200


@pytest.mark.timeout(900)
@pytest.mark.parametrize("frames", [20_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_hostile_frames(frames):
    """The server lives, and its memory stays bounded."""
    ran = subprocess.run(
        [str(launch.libexec() / "sonde-storefuzz"), str(frames), "23"],
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    told = json.loads(ran.stdout)
    print(f"\n{ran.stdout}")
    assert ran.returncode == 0
    assert told["alive"] is True
    assert told["frames"] >= frames
    assert told["rss_most_kib"] < 512 << 10

"""Daemons of the power stack on a bus of their own, and the powercap trees below them: for tests and benches."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from claimed import a_domain
from sonde.bus import run_keys
from sonde.bus.keys import DOMAINS, Grant
from sonde.core.launch import libexec

DAEMON = libexec() / "sonde-powerd"


def until(
    true: Callable[[], Any],
    what: str | Callable[[], str] = "so",
    timeout_s: float = 90,
    each_s: float = 0.02,
) -> Any:
    """The value of `true`, as soon as it is true. Fails after timeout_s, which is only a limit, not a measurement.

    what: the words of the failure; a function where they depend on what happened until then.
    """
    end = time.monotonic() + timeout_s
    while not (value := true()):
        if time.monotonic() >= end:
            raise AssertionError(f"not within {timeout_s:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(each_s)
    return value


def within_keys(folder: Path) -> str:
    """A profile's <security>, with a folder of keys, the same for all."""
    run_keys.init(folder / "keys", 30, DOMAINS, "encrypt")
    run_keys.add(folder / "keys", "everybody", Grant(("*",), ("*",)), 30, None, False)
    return '<security folder="keys" identity="everybody"/>'


def make_bus(folder: Path, over: str = "cyclonedds", first: int = 0, keys: bool = False) -> None:
    """bus.xml for a bus of its own. first: this many programs, the first to open it, discover each other, and no
    others; 0: all do.

    keys: programs without a key from the folder `keys`, which is made, are not admitted; all have the same key.
    """
    within = f'<discovery kind="peers" peers="127.0.0.1:{first}"/>' if first else ""
    if keys:
        within += within_keys(folder)
    attributes = f'name="power" domain="{a_domain()}" implementation="{over}"'
    attributes += "" if keys else ' unprotected="yes"'
    head = f'<sonde-bus version="1"><profile {attributes}>'
    (folder / "bus.xml").write_text(f"{head}{within}</profile></sonde-bus>")


class Rapl:
    """A powercap tree with one package, 200 W at most, 180 W set."""

    def __init__(self, root: Path) -> None:
        self.root, self.zone = root, root / "class/powercap/intel-rapl:0"
        self.make()

    def make(self) -> None:
        self.zone.mkdir(parents=True)
        for name, text in {
            "name": "package-0",
            "enabled": "1",
            "energy_uj": "1000000",
            "max_energy_range_uj": "262143328850",
            "constraint_0_name": "long_term",
            "constraint_0_max_power_uw": "200000000",
            "constraint_0_power_limit_uw": "180000000",
            "constraint_0_time_window_us": "999424",
        }.items():
            (self.zone / name).write_text(text + "\n")

    @property
    def cap_w(self) -> float:
        # Unlike in sysfs, a file is empty for a moment while it is written.
        text = until((self.zone / "constraint_0_power_limit_uw").read_text, "a limit", each_s=0)
        return int(text) / 1e6

    def overwrite(self, cap_w: float) -> None:
        (self.root / "next").write_text(f"{int(cap_w * 1e6)}\n")
        (self.root / "next").replace(self.zone / "constraint_0_power_limit_uw")

    @property
    def toml(self) -> str:
        return f'kind = "powercap"\nroot = "{self.root}"\n'


class Daemon:
    """A process that prints events on standard output, a line each, and ends with the process that started it."""

    def __init__(self, words: Sequence[str | Path], log: Path) -> None:
        self.log = log
        with log.open("a") as to:
            self.process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=to, text=True
            )
        self.events: list[dict[str, Any]] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def said(self, event: str, timeout_s: float = 90, **values: Any) -> dict[str, Any]:
        """The first event of this kind with these values, when it is reported."""

        def told() -> dict[str, Any] | None:
            going = self.reader.is_alive()
            for one in list(self.events):
                if one["event"] == event and values.items() <= one.items():
                    return one
            assert going, f"it ended: {self.log.read_text()[-2000:]}"
            return None

        return dict(until(told, f"{event} {values}", timeout_s))

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        with suppress(OSError):
            self.process.send_signal(how)
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            pipe.close()
        return code


def powerd(role: str, config: Path, *words: str) -> list[str | Path]:
    """The command of a role of sonde-powerd."""
    return [DAEMON, role, "--config", config, "--with-parent", *words]

"""Programs of this bench, built once for it, and pairs of them that talk to each other."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SONDE = str(Path(sys.executable).parent / "sonde")
# Both ends of a raw program: as the bus configures Cyclone DDS for loopback.
CYCLONE = (
    "<CycloneDDS><Domain><General><Interfaces><NetworkInterface address='127.0.0.1' multicast='true'/></Interfaces>"
    "<AllowMulticast>spdp</AllowMulticast></General><Internal><GenerateKeyhash>true</GenerateKeyhash></Internal></Domain></CycloneDDS>"
)
MORE = ["-O2", "-Wall"]
_domains = count(os.getpid() % 60)

Words = Sequence[str]


def domain() -> str:
    """One that no pair before it had: participants that are just ending are not met. Programs that connect are given no
    port of domains up to 100."""
    return str(1 + next(_domains) % 100)


@contextmanager
def workshop() -> Iterator[Path]:
    """A folder with those of through_bus, raw_cyclone, raw_fastdds that can be built here."""
    with tempfile.TemporaryDirectory(prefix="sonde-bench-") as name:
        folder = Path(name)
        flags = json.loads(_said([SONDE, "bus", "conformance", "--flags", "--json"]))["flags"]
        _said(["g++", *MORE, HERE / "through_bus.cpp", *flags, "-o", folder / "through_bus"])
        if shutil.which("idlc"):
            _said(["idlc", "-l", "c", HERE / "raw.idl"], cwd=folder)
            sources = [HERE / "raw_cyclone.c", folder / "raw.c"]
            _said(["cc", *MORE, "-I", folder, *sources, "-lddsc", "-o", folder / "raw_cyclone"])
        if Path("/usr/include/fastdds").is_dir():
            link = ["-lfastrtps", "-lfastcdr", "-o", folder / "raw_fastdds"]
            _said(["g++", "-std=c++17", *MORE, HERE / "raw_fastdds.cpp", *link])
        yield folder


def _said(words: Sequence[Any], **keywords: Any) -> str:
    ran = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False, **keywords)
    if ran.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}\n{ran.stderr}")
    return ran.stdout


class Pair:
    """Two programs that talk to each other: the second is measured, or the first where it drains."""

    def __init__(self) -> None:
        self._left: list[subprocess.Popen[str]] = []

    def talk(
        self, first: Words, second: Words, environment: Mapping[str, str] | None = None, timeout_s: float = 60
    ) -> tuple[dict[str, Any], subprocess.Popen[str]]:
        """What the second says. The first is given back: it ends by itself a second after the last message."""
        whole = os.environ | {"CYCLONEDDS_URI": CYCLONE} | dict(environment or {})
        one = subprocess.Popen(first, env=whole, stdout=subprocess.PIPE, text=True)
        self._left.append(one)
        two = subprocess.run(
            second, env=whole, stdout=subprocess.PIPE, text=True, timeout=timeout_s, check=False
        )
        if two.returncode:
            raise SystemExit(f"{' '.join(second)} ended with {two.returncode}")
        return json.loads(two.stdout), one

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._left:
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()


def in_turn(rounds: int, ways: Mapping[str, Callable[[], Any]]) -> dict[str, list[Any]]:
    """What each way gives in so many rounds. Each round begins with another way, every other goes backwards."""
    found: dict[str, list[Any]] = {name: [] for name in ways}
    names = list(ways)
    for k in range(rounds):
        first = k // 2 % len(names)
        for name in (names[first:] + names[:first])[:: -1 if k % 2 else 1]:
            found[name].append(ways[name]())
    return found


def ratio(over: Sequence[float], under: Sequence[float]) -> tuple[float, list[float]]:
    """The median of the rounds' ratios, and their quartiles."""
    each = sorted(a / b for a, b in zip(over, under, strict=True))
    quartiles = statistics.quantiles(each, n=4) if len(each) > 1 else [each[0]] * 3
    return quartiles[1], [quartiles[0], quartiles[2]]


def run(test: str, budget: str, **options: str | Sequence[str]) -> dict[str, Any]:
    """`sonde bus run`, as JSON. options: "_" for "-" in names; a sequence gives one several times; "" a mere flag."""
    with tempfile.TemporaryDirectory() as folder:
        words = [
            SONDE,
            "bus",
            "run",
            test,
            "--json",
            "--budget",
            budget,
            "-o",
            str(Path(folder) / "bench.nc"),
        ]
        for name, value in options.items():
            for one in [value] if isinstance(value, str) else value:
                words += [f"--{name.replace('_', '-')}", *([one] if one else [])]
        ran = subprocess.run(words, capture_output=True, text=True, check=False)
        if ran.returncode not in (0, 4):
            raise SystemExit(f"{' '.join(words)}\n{ran.stderr}")
        told: dict[str, Any] = json.loads(ran.stdout)
        for warning in told["warnings"]:
            print(f"  {warning['code']}: {warning['evidence']}", file=sys.stderr)
        return told


def found(told: Mapping[str, Any], variant: str, quantity: str, **at: Any) -> dict[str, Any] | None:
    """The result of a variant; None where there is none."""
    wanted = {"variant": variant, "quantity": quantity, **at}
    return next((r for r in told["results"] if wanted.items() <= r.items()), None)

"""BMCs and sysfs trees as people have met them, each under a node manager: a cap is in force, or a sentence says why.

Rows are in tests/redfish_dialects.py, and in TREES. Never is a row silent: what the node manager reports is what the
hardware has.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

import sonde._power as _power

from power_daemons import Daemon, make_bus, powerd, until
from redfish_dialects import DIALECTS, ONE, SAFE_W, Dialect, State, speaking

AT_ONCE = 4  # node managers
TICK_S = 0.05


@dataclass
class Ran:
    """The result of a node manager: its event `ready`, and all of its sentences."""

    ready: dict[str, Any] | None
    text: str
    patched: tuple[str, ...] = ()
    asked_elsewhere: int = 0


def run(folder: Path, name: str, hardware: str, says: str, meanwhile: Callable[[], bool]) -> Ran:
    """A node manager over this hardware, until it ended, or is ready and has reported what it has to."""
    config = folder / "power.toml"
    config.write_text(
        f'cluster = "t"\n[bus]\nprofile = "../bus.xml"\n[budget]\npower_limit = "5kW"\n'
        f'[[nodes]]\nhosts = "{name}"\nmin = "10W"\nmax = "5kW"\nsafe = {SAFE_W}\n'
        f'[node-manager]\ntelemetry = "300ms"\nstate = "state"\n[[node-manager.hardware]]\n{hardware}\n'
    )
    daemon = Daemon([*powerd("node-manager", config), "--name", name], folder / "log")

    def sentences() -> str:
        texts = [
            f"{e.get('code', '')}: {e['what']} {e.get('hint', '')}" for e in daemon.events if "what" in e
        ]
        return "\n".join([*texts, (folder / "log").read_text()])

    def over() -> bool:
        ended = daemon.process.poll() is not None and not daemon.reader.is_alive()
        ready = any(e["event"] == "ready" for e in daemon.events)
        return ended or (ready and says in sentences() and meanwhile())

    try:
        until(over, f"{name}: ready, and {says!r} in {sentences()}")
        ready = next((e for e in daemon.events if e["event"] == "ready"), None)
        return Ran(ready, sentences())
    finally:
        daemon.end()
        watchdog = next((e["guardian"] for e in daemon.events if e["event"] == "ready"), None)
        if watchdog is not None:  # it may be at work for some seconds yet
            until(lambda: not Path(f"/proc/{watchdog}").exists(), "the watchdog ends")


# ---- Redfish


def certificate(folder: Path) -> None:
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout key.pem -out cert.pem"
    more = ["-subj", "/CN=bmc", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", *words.split(), *more], cwd=folder, check=True, capture_output=True)


def redfish(row: Dialect, folder: Path, name: str) -> Ran:
    folder.mkdir()
    stranger = Dialect("another host", lambda s: {})
    with speaking(stranger, folder.parent) as (other, other_state):
        elsewhere = f"https://127.0.0.1:{other}"
        with speaking(row, folder.parent, elsewhere) as (port, state):
            hardware = (
                f'kind = "redfish"\nurl = "https://127.0.0.1:{port}"\nca = "{folder.parent / "cert.pem"}"\n'
                f'min = "100W"\nmax = "700W"\ntimeout = "2s"\n{row.hardware}'
            )
            ran = run(folder, name, hardware, row.says, lambda: not row.cap or in_force(row, state))
            ran.patched = tuple(path for path, _ in state.patched)
            ran.asked_elsewhere = len(other_state.asked)
            return ran


def in_force(row: Dialect, state: State) -> bool:
    return state.cap == SAFE_W and (state.mode == "Automatic" or row.keeps_mode)


# ---- sysfs


@dataclass(frozen=True)
class Tree:
    """One row: zones by their folder, files that are other than usual (None: not there), and what has to come of it.

    caps: by folder what its long limit is at the end, W. mirrored: all counters are one.
    """

    name: str
    zones: dict[str, str]
    caps: dict[str, float]
    says: str = ""
    files: tuple[tuple[str, str | None], ...] = ()
    mirrored: bool = False


LIMITS = {
    "constraint_0_name": "long_term",
    "constraint_0_power_limit_uw": "300000000",
    "constraint_0_max_power_uw": "300000000",
    "constraint_0_time_window_us": "976",
    "constraint_1_name": "short_term",
    "constraint_1_power_limit_uw": "360000000",
}
PARTS = ("core", "uncore", "dram")
TWO = {"intel-rapl:0": "package-0", "intel-rapl:1": "package-1"}
HALF = {"intel-rapl:0": 100.0, "intel-rapl:1": 100.0}
PACKAGE = {"intel-rapl:0": "package-0"}
WHOLE = {"intel-rapl:0": 200.0}


def none_of(folder: str, *names: str) -> tuple[tuple[str, None], ...]:
    return tuple((f"{folder}/{name}", None) for name in names)


TREES = (
    Tree("one package", PACKAGE, WHOLE),
    Tree("two packages", TWO, HALF),
    Tree(
        "Sapphire Rapids: the platform between the packages, and all is switched off",
        {
            "intel-rapl:0": "package-0",
            "intel-rapl:1": "psys",
            "intel-rapl:2": "package-1",
            "intel-rapl:0:0": "dram",
        },
        {"intel-rapl:0": 100.0, "intel-rapl:2": 100.0, "intel-rapl:1": 300.0},
        files=tuple((f"intel-rapl:{k}/enabled", "0") for k in range(3)),
    ),
    Tree(
        "Cascade Lake-AP: dies with names of their own",
        {f"intel-rapl:{k}": f"package-{k // 2}-die-{k % 2}" for k in range(4)},
        {},
        "which is outside of its hardware's range; allowed: 300 W",
    ),
    Tree("an older kernel: dies of one name", dict.fromkeys(TWO, "package-0"), HALF),
    Tree(
        "Threadripper: two dies, of which each counts the energy of both",
        {"intel-rapl:0": "package-0-die-0", "intel-rapl:1": "package-0-die-1"},
        {"intel-rapl:0": 200.0, "intel-rapl:1": 200.0},
        "move as one, so they are one meter",
        mirrored=True,
    ),
    Tree(
        "a laptop: registers and memory-mapped registers have the same package",
        {"intel-rapl:0": "package-0", "intel-rapl-mmio:0": "package-0"},
        {"intel-rapl:0": 200.0, "intel-rapl-mmio:0": 300.0},
    ),
    Tree(
        "sixteen packages, whose folders end with f",
        {f"intel-rapl:{k:x}": f"package-{k}" for k in range(16)},
        {},
        "which is outside of its hardware's range; allowed: 1.2 kW",
    ),
    Tree("AMD: energy without limits", PACKAGE, {}, "does not exist", none_of("intel-rapl:0", *LIMITS)),
    Tree(
        "no highest cap",
        PACKAGE,
        {},
        "set `min` in the configuration",
        (("intel-rapl:0/constraint_0_max_power_uw", "0"),),
    ),
    Tree(
        "no file with the highest cap",
        PACKAGE,
        {},
        "set `min`",
        none_of("intel-rapl:0", "constraint_0_max_power_uw"),
    ),
    Tree(
        "the short term comes first",
        PACKAGE,
        {},
        files=(
            ("intel-rapl:0/constraint_0_name", "short_term"),
            ("intel-rapl:0/constraint_1_name", "long_term"),
            ("intel-rapl:0/constraint_1_max_power_uw", "300000000"),
            ("expected", "intel-rapl:0/constraint_1_power_limit_uw 200000000"),
        ),
    ),
    Tree(
        "a peak power beside both",
        PACKAGE,
        WHOLE,
        files=(
            ("intel-rapl:0/constraint_2_name", "peak_power"),
            ("intel-rapl:0/constraint_2_power_limit_uw", "400000000"),
        ),
    ),
    Tree("the platform alone", {"intel-rapl:0": "psys"}, WHOLE),
    Tree("no range of the counter", PACKAGE, WHOLE, files=none_of("intel-rapl:0", "max_energy_range_uj")),
    Tree("no counter", PACKAGE, WHOLE, "energy_uj", none_of("intel-rapl:0", "energy_uj")),
    Tree(
        "a counter that is no number",
        PACKAGE,
        WHOLE,
        "which is not a count",
        (("intel-rapl:0/energy_uj", "n/a"),),
    ),
    Tree("no switch", PACKAGE, WHOLE, files=none_of("intel-rapl:0", "enabled")),
    Tree("no powercap", {}, {}, "RAPL is not available"),
    Tree("other power zones alone", {"dtpm:0": "dtpm"}, {}, "no package in"),
    Tree(
        "zones that are no zones beside it",
        PACKAGE | {"intel-rapl:3": "", "intel-rapl:0:0": "core"},
        WHOLE,
        files=(("intel-rapl/enabled", "1"),),
    ),
)


@contextmanager
def tree_of(row: Tree, root: Path) -> Iterator[Path]:
    """Its files; the energy of its zones grows until the end."""
    powercap = root / "class/powercap"
    for folder, name in row.zones.items():
        at = powercap / folder
        at.mkdir(parents=True)
        limits = {} if name in PARTS else LIMITS
        usual = {"name": name, "energy_uj": "1000000", "max_energy_range_uj": "262143328850", "enabled": "1"}
        for file, text in (usual | limits).items():
            (at / file).write_text(text + "\n")
    for path, text in row.files:
        file = powercap / path
        if text is None:
            file.unlink()
        elif path != "expected":
            file.parent.mkdir(exist_ok=True)
            file.write_text(text + "\n")
    counters = [p for p in powercap.glob("*/energy_uj") if p.read_text().strip().isdigit()]
    ended = threading.Event()

    def grow() -> None:
        turn = 0
        while not ended.wait(TICK_S):
            turn += 1
            for k, counter in enumerate(counters):
                step = 3_000_000 if row.mirrored else 3_000_000 + 500_000 * k
                (root / "next").write_text(f"{1_000_000 + turn * step}\n")
                (root / "next").replace(counter)

    thread = threading.Thread(target=grow, daemon=True)
    thread.start()
    try:
        yield powercap
    finally:
        ended.set()
        thread.join()


def limits_of(powercap: Path, row: Tree) -> dict[str, str]:
    """The limits that a row names, as they are; what is being written is empty."""
    named = {f"{folder}/constraint_0_power_limit_uw" for folder in row.caps}
    named |= {text.split()[0] for path, text in row.files if path == "expected" and text}
    found = {}
    for name in named:
        with suppress(OSError):
            found[name] = (powercap / name).read_text().strip()
    return found


def expected_of(row: Tree) -> dict[str, str]:
    out = {f"{folder}/constraint_0_power_limit_uw": str(int(cap * 1e6)) for folder, cap in row.caps.items()}
    for path, text in row.files:
        if path == "expected" and text:
            name, value = text.split()
            out[name] = value
    return out


def sysfs(row: Tree, folder: Path, name: str) -> Ran:
    folder.mkdir()
    root = folder / "sys"
    with tree_of(row, root) as powercap:

        def in_force() -> bool:
            return limits_of(powercap, row) == expected_of(row)

        return run(folder, name, f'kind = "powercap"\nroot = "{root}"', row.says, in_force)


# ---- all rows, some at once


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Ran]]:
    folder = tmp_path_factory.mktemp("dialects")
    make_bus(folder)
    certificate(folder)
    kinds = {kind["kind"]: kind["missing"] for kind in _power.hardware_kinds()}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        rows: dict[str, Any] = {}
        for k, row in enumerate(DIALECTS if not kinds["redfish"] else ()):
            rows[row.name] = pool.submit(redfish, row, folder / f"bmc{k}", f"bmc{k}")
        for k, tree in enumerate(TREES):
            rows[tree.name] = pool.submit(sysfs, tree, folder / f"tree{k}", f"tree{k}")

        def result(name: str) -> Ran:
            if name not in rows:
                pytest.skip(f"this build has no Redfish: {kinds['redfish']}")
            out: Ran = rows[name].result()
            return out

        yield result


def never_silent(name: str, row: Ran, capped: bool, says: str) -> None:
    if says:
        assert says in row.text, f"{name}: {row.text}"
    if capped:
        assert row.ready, f"{name}: {row.text}"
        assert row.ready["settable"], name
        assert abs(row.ready["cap_w"] - SAFE_W) < 1, name
    else:
        assert says, f"{name}: a row without a cap has a sentence"
        assert row.ready is None or row.ready["cap_w"] is None or row.ready["cap_w"] != SAFE_W, name
        assert "power." in row.text, name


@pytest.mark.parametrize("row", DIALECTS, ids=lambda row: row.name)
def test_a_bmc_is_capped_or_says_why_not(ran: Callable[[str], Ran], row: Dialect):
    did = ran(row.name)
    never_silent(row.name, did, row.cap, row.says)
    assert did.asked_elsewhere == 0
    if row.cap:
        assert set(did.patched) == {row.patched or only(did.patched)}
    if row.cap and not row.says:
        assert "power." not in did.text, did.text


def only(paths: tuple[str, ...]) -> str:
    """The path of the older or the newer schema, whichever was changed, with or without a slash."""
    (path,) = set(paths)
    assert path.rstrip("/") in (f"{ONE}/Power", f"{ONE}/EnvironmentMetrics")
    return path


@pytest.mark.parametrize("row", TREES, ids=lambda row: row.name)
def test_a_tree_is_capped_or_says_why_not(ran: Callable[[str], Ran], row: Tree):
    did = ran(row.name)
    never_silent(row.name, did, bool(expected_of(row)), row.says)
    if expected_of(row) and not row.says:
        assert "power." not in did.text, did.text


def test_there_are_rows_enough_and_each_has_its_name():
    names = [row.name for row in (*DIALECTS, *TREES)]
    assert len(set(names)) == len(names) >= 40
    json.dumps(names)

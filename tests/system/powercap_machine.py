"""A machine with RAPL in a folder: two packages whose energy grows as their limits let them, and wraps; for tests.

    python powercap_machine.py FOLDER

Says "ready" and ends when standard input ends.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

RANGE_UJ = 30_000_000  # it wraps several times a second or so
DEMAND_UW = 180_000_000
PACKAGES = 2


def zone(folder: Path, number: int) -> Path:
    return folder / "class/powercap" / f"intel-rapl:{number}"


def build(folder: Path) -> None:
    for k in range(PACKAGES):
        at = zone(folder, k)
        at.mkdir(parents=True)
        files = {
            "name": f"package-{k}",
            "energy_uj": str(RANGE_UJ - 5_000_000 * (k + 1)),
            "max_energy_range_uj": str(RANGE_UJ),
            "enabled": "1",
            "constraint_0_name": "long_term",
            "constraint_0_power_limit_uw": "200000000",
            "constraint_0_max_power_uw": "200000000",
            "constraint_1_name": "short_term",
            "constraint_1_power_limit_uw": "240000000",
        }
        for name, text in files.items():
            (at / name).write_text(text + "\n")
    cpu = folder / "devices/system/cpu/cpufreq/policy0"
    cpu.mkdir(parents=True)
    for name, text in {
        "scaling_cur_freq": "2100000",
        "scaling_min_freq": "800000",
        "scaling_max_freq": "3500000",
        "cpuinfo_min_freq": "800000",
        "cpuinfo_max_freq": "3500000",
        "scaling_governor": "schedutil",
        "scaling_available_governors": "performance schedutil",
        "related_cpus": "0 1",
    }.items():
        (cpu / name).write_text(text + "\n")


def run(folder: Path, ended: threading.Event) -> None:
    energy = [int((zone(folder, k) / "energy_uj").read_text()) for k in range(PACKAGES)]
    limit = [200_000_000] * PACKAGES
    last = time.monotonic()
    while not ended.wait(0.002):
        now = time.monotonic()
        for k in range(PACKAGES):
            # A file that is being written is empty for a moment: the limit is then what it was.
            with suppress(ValueError):
                limit[k] = int((zone(folder, k) / "constraint_0_power_limit_uw").read_text())
            energy[k] = (energy[k] + int(min(DEMAND_UW, limit[k]) * (now - last))) % (RANGE_UJ + 1)
            # In place and at once, as sysfs gives it: never empty, never gone.
            with (zone(folder, k) / "energy_uj").open("r+") as out:
                out.write(f"{energy[k]:<12d}\n")
        last = now


def main() -> None:
    folder = Path(sys.argv[1])
    build(folder)
    ended = threading.Event()
    thread = threading.Thread(target=run, args=(folder, ended))
    thread.start()
    print("ready", flush=True)
    sys.stdin.read()
    ended.set()
    thread.join()


if __name__ == "__main__":
    main()

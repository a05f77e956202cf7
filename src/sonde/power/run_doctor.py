"""The needs of the power room: its daemon with its roles, and hardware that it can read and cap here."""

from __future__ import annotations

import json
from typing import Any

from sonde.core.diagnosis import GOOD, NONE, POOR, Answer, Here, Need, check
from sonde.core.errors import SondeError

WANTED = ("node-manager", "system-manager", "mqtt-bridge")


@check("power", "Power stack", "Power", 30)
def power(here: Here) -> Answer:
    """Ask sonde-powerd for its roles, and for the hardware that it was built for."""
    from sonde.power.demo import run

    values: dict[str, Any] = {"built": False, "works": False, "roles": [], "hardware": []}
    try:
        program = run.program()
    except SondeError:
        need = Need("power", "libtomlplusplus-dev (Debian's name), then 'make setup'")
        return Answer("not built: toml++ was not found", NONE, values, [need])
    ran = here.run([str(program), "--list"], 20)
    try:
        report = json.loads(ran.out)
    except ValueError:
        return Answer(
            f"{program} cannot run: {ran.err.strip()[-200:]}", NONE, values, [Need("power", "make setup")]
        )
    kinds = [str(one["kind"]) for one in report.get("hardware", []) if not one.get("missing")]
    roles = [str(role) for role in report["roles"]]
    values |= {
        "built": True,
        "works": "node-manager" in roles,
        "roles": roles,
        "hardware": kinds,
        "program": str(program),
    }
    zones = sorted(path.name for path in (here.root / "sys/class/powercap").glob("intel-rapl:*"))
    values["powercap"] = zones
    caps = (
        f"{len(zones)} RAPL zones" if zones else "no RAPL here: node managers need a BMC, or can be simulated"
    )
    lacking = [role for role in WANTED if role not in roles]
    if lacking:
        need = Need(", ".join(lacking), "libmosquitto-dev and libssl-dev (Debian's names), then 'make setup'")
        return Answer(
            f"{', '.join(roles)}; not built: {', '.join(lacking)}", POOR, values, [need], "see 'make setup'"
        )
    return Answer(f"{', '.join(roles)}; {caps}", GOOD, values)

"""What the bus room needs: its probe, and the implementations of DDS that it can load, each opened in a process of
its own.
"""

from __future__ import annotations

from typing import Any

from sonde.core import distribution
from sonde.core.diagnosis import GOOD, NONE, POOR, Answer, Here, Need, check
from sonde.core.errors import SondeError

# What may be missing: an implementation, and Debian's package of it. Other distributions have none, or another name.
IMPLEMENTATIONS = {"cyclonedds": "cyclonedds-dev", "fastdds": "libfastrtps-dev"}


@check("bus", "Data bus", "Bus", 60)
def bus(here: Here) -> Answer:
    """Asks the probe to open each implementation."""
    from sonde.bus import run_probe
    from sonde.bus.plan import TITLES, Plan, variant_of

    values: dict[str, Any] = {"built": False, "works": False, "implementations": {}}
    try:
        probe = run_probe.program()
    except SondeError:
        need = Need("bus", f"{distribution.install('pugixml', here.root)}, then 'make setup'")
        return Answer("not built: pugixml was not there", NONE, values, [need])
    values |= {"built": True, "probe": str(probe)}
    plan = Plan(tuple(variant_of(name, "udp4") for name in IMPLEMENTATIONS), ())
    try:
        told = run_probe.check(plan)
    except SondeError as error:
        return Answer(error.what, NONE, values | {"error": error.what}, [Need("bus", "make setup")])
    there = {str(e["implementation"]): str(e.get("version", "")) for e in told if e["event"] == "variant"}
    absent = {str(e.get("variant")).partition("/")[0]: e for e in told if e.get("code") == run_probe.ABSENT}
    values |= {"works": bool(there), "implementations": there}
    needs = [
        Need(TITLES[name], f"{package} (Debian's name), then 'make setup'")
        for name, package in IMPLEMENTATIONS.items()
        if name not in there
    ]
    if not there:
        return Answer("no implementation of DDS can be opened", NONE, values, needs)
    text = ", ".join(f"{TITLES.get(name, name)} {version}".strip() for name, version in there.items())
    broken = [str(e["evidence"]) for e in absent.values() if "not in this build" not in str(e["evidence"])]
    if broken:
        values["broken"] = broken
        return Answer(f"{text}; {'; '.join(broken)}", POOR, values, needs, "see the reason that is named")
    return Answer(f"{text} can be opened", GOOD, values, needs)

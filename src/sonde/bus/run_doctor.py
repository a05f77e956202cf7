"""Requirements of the bus room: its probe, and implementations of DDS, each opened in a separate process."""

from __future__ import annotations

from typing import Any

from sonde.core import distribution
from sonde.core.diagnosis import GOOD, NONE, POOR, Answer, Here, Need, check
from sonde.core.errors import SondeError

# Optional implementations, and their Debian packages. Other distributions lack the package or use another name.
IMPLEMENTATIONS = {"cyclonedds": "cyclonedds-dev", "fastdds": "libfastrtps-dev"}


@check("bus", "Data bus", "Bus", 60)
def bus(here: Here) -> Answer:
    """Let the probe open each implementation."""
    from sonde.bus import run_probe
    from sonde.bus.plan import Plan
    from sonde.bus.variants import TITLES, variant_of

    values: dict[str, Any] = {"built": False, "works": False, "implementations": {}}
    try:
        probe = run_probe.program()
    except SondeError:
        need = Need("bus", f"{distribution.install('pugixml', here.root)}, then 'make setup'")
        return Answer("not built: pugixml was missing", NONE, values, [need])
    values |= {"built": True, "probe": str(probe)}
    plan = Plan(tuple(variant_of(name, "udp4") for name in IMPLEMENTATIONS), ())
    try:
        events = run_probe.check(plan)
    except SondeError as error:
        return Answer(error.what, NONE, values | {"error": error.what}, [Need("bus", "make setup")])
    found = {str(e["implementation"]): str(e.get("version", "")) for e in events if e["event"] == "variant"}
    absent = {str(e.get("variant")).partition("/")[0]: e for e in events if e.get("code") == run_probe.ABSENT}
    values |= {"works": bool(found), "implementations": found}
    needs = [
        Need(TITLES[name], f"{package} (Debian's name), then 'make setup'")
        for name, package in IMPLEMENTATIONS.items()
        if name not in found
    ]
    if not found:
        return Answer("no implementation of DDS can be opened", NONE, values, needs)
    text = ", ".join(f"{TITLES.get(name, name)} {version}".strip() for name, version in found.items())
    broken = [str(e["evidence"]) for e in absent.values() if "not in this build" not in str(e["evidence"])]
    if broken:
        values["broken"] = broken
        return Answer(f"{text}; {'; '.join(broken)}", POOR, values, needs, "see the reason above")
    return Answer(f"{text} can be opened", GOOD, values, needs)

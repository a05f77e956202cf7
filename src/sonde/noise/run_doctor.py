"""The doctor's check of the noise room: its own programs, the kernel's scheduling statistics, and agents."""

from __future__ import annotations

import os

from sonde.core import launch
from sonde.core.diagnosis import GOOD, NONE, POOR, Answer, Here, Need, check

PROGRAMS = ("sonde-agent", "sonde-detour", "sonde-keeper")


@check("noise", "Noise", "Agents", 10)
def noise(here: Here) -> Answer:
    """The installed programs, whether this thread has a run_delay, and the recipes whose agents are installed."""
    from sonde.noise.agents.recipes import RECIPES
    from sonde.noise.agents.run import missing

    absent = [name for name in PROGRAMS if not os.access(launch.libexec() / name, os.X_OK)]
    absent += [
        f"sonde-noise for {flavour}"
        for flavour in launch.built_flavours()
        if not os.access(launch.libexec() / flavour / "sonde-noise", os.X_OK)
    ]
    found = [recipe.name for recipe in RECIPES if not missing(recipe)]
    delay = (here.root / "proc/thread-self/schedstat").exists()
    values = {"works": not absent, "programs_missing": absent, "agents": found, "run_delay": delay}
    if absent:
        return Answer(f"{', '.join(absent)}: not built", NONE, values, [Need(absent[0], "make setup")])
    agents = (
        f"agents with a recipe here: {', '.join(found)}" if found else "no agent with a recipe is installed"
    )
    if delay:
        return Answer(f"{agents}; the kernel reports which rank was delayed", GOOD, values)
    advice = "late ranks are shown only with sonde noise run --poll, because this kernel has no schedstat"
    return Answer(f"{agents}; the kernel does not report which rank was delayed", POOR, values, advice=advice)

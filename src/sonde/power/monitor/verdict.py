"""This room's judgement of a budget, as text and as JSON. Pure."""

from __future__ import annotations

import math
from typing import Any

from sonde.core.outcome import Table
from sonde.core.units import format_duration, format_power, format_share
from sonde.power.monitor.budget import Held
from sonde.power.monitor.live import number

METER = 0.02  # as a share: the meters of nodes cannot resolve less


def values(of: Held | None) -> dict[str, Any]:
    """The keys of every command that judges a budget; null where nothing is known."""
    held = of or Held()
    unknown = of is None
    return {
        "budget_w": number(held.budget_w),
        "max_sum_caps_w": number(held.max_sum_caps_w),
        "max_possible_w": number(held.max_possible_w),
        "max_power_w": number(held.max_power_w),
        "over_budget_s": None if unknown else number(held.over_budget_s),
        "violations": None if unknown else held.violations,
        "unknown_s": None if unknown else number(held.unknown_s),
        "lease_s": number(held.lease_s),
        "failover_s": number(held.failover_s),
        "report_s": number(held.report_s),
        "period_s": number(held.period_s),
        "comply_s": number(held.comply_s),
        "energy_j": number(held.energy_j),
    }


def sentence(of: Held) -> str:
    """One sentence on whether the budget was held."""
    if not math.isfinite(of.budget_w):
        return "No budget was reported, so nothing can be checked against it"
    if not math.isfinite(of.max_sum_caps_w):
        return f"The budget was {format_power(of.budget_w)}, but no node reported its cap"
    budget = f"the budget of {format_power(of.budget_w)}"
    if of.violations:
        times = "once" if of.violations == 1 else f"{of.violations} times"
        text = f"Caps were above {budget} {times}, for {format_duration(of.violation_s)} in total: up to "
        text += format_power(of.max_sum_caps_w)
    else:
        if of.max_sum_caps_w > of.budget_w:  # it was within the budget of that time
            budget = f"the budget, which was {format_power(of.budget_w)} at the end"
        text = f"The sum of caps stayed within {budget}: at most {format_power(of.max_sum_caps_w)}"
    if math.isfinite(of.max_power_w):
        text += f"; power drawn: at most {format_power(of.max_power_w)}"
        if of.over_budget_s > 0:
            text += f", above the budget for {format_duration(of.over_budget_s)}"
            if of.max_power_w <= of.budget_w * (1 + METER):
                text += f", within the meters' error of {format_share(METER, trim=True)}"
    if of.unknown_s > 0 and not of.violations:
        text += f"; unknown for {format_duration(of.unknown_s)} between reports"
    if of.failovers:
        text += f"; another manager took over after {format_duration(of.failover_s)}"
    return text


def joules(energy_j: float) -> str:
    """ "12.5 kJ", "1.2 kWh"."""
    if not math.isfinite(energy_j):
        return "–"
    for least, factor, unit in ((3.6e9, 3.6e9, "MWh"), (3.6e6, 3.6e6, "kWh"), (1e3, 1e3, "kJ"), (0, 1, "J")):
        if energy_j >= least:
            return f"{energy_j / factor:.4g} {unit}"
    return f"{energy_j:.4g} J"


def table(of: Held) -> Table:
    """All values, one row each."""
    watts = [
        ("budget", of.budget_w),
        ("largest sum of caps", of.max_sum_caps_w),
        ("largest possible sum of caps", of.max_possible_w),
        ("largest power", of.max_power_w),
        ("most that the manager counted", of.max_committed_w),
    ]
    rows = [(name, format_power(value)) for name, value in watts if math.isfinite(value)]
    if of.max_unknown_w > 0:
        rows.append(("most unknown after a takeover", format_power(of.max_unknown_w)))
    rows.append(("caps above the budget", f"{of.violations} times, {format_duration(of.violation_s)}"))
    rows.append(("caps possibly above the budget", format_duration(of.unknown_s)))
    rows.append(("power above the budget", format_duration(of.over_budget_s)))
    if math.isfinite(of.report_s) and math.isfinite(of.period_s):
        rows.append(("time between reports of a node", format_duration(of.report_s)))
        rows.append(("time between decisions", format_duration(of.period_s)))
    if math.isfinite(of.lease_s):
        rows.append(("lease", format_duration(of.lease_s)))
    rows += [
        (f"takeover by {one.after}, epoch {one.epoch}", format_duration(one.gap_s)) for one in of.failovers
    ]
    if math.isfinite(of.comply_s):
        rows.append(("time until a lower budget was held", format_duration(of.comply_s)))
    rows.append(("leases that ended", str(of.expired)))
    if math.isfinite(of.energy_j):
        rows.append(("energy of all nodes", joules(of.energy_j)))
    return Table("Budget", ("what", "value"), rows, right=(1,))

"""What this room says of a budget, in words and as JSON. Pure."""

from __future__ import annotations

import math
from typing import Any

from sonde.core.outcome import Table
from sonde.core.units import format_duration, format_power, format_share
from sonde.power.monitor.budget import Held
from sonde.power.monitor.live import number

METER = 0.02  # as a share: meters of nodes cannot resolve less


def values(of: Held | None) -> dict[str, Any]:
    """The keys that every verb has which judges a budget; null where nothing is known."""
    told = of or Held()
    unknown = of is None
    return {
        "budget_w": number(told.budget_w),
        "max_sum_caps_w": number(told.max_sum_caps_w),
        "max_possible_w": number(told.max_possible_w),
        "max_power_w": number(told.max_power_w),
        "over_budget_s": None if unknown else number(told.over_budget_s),
        "violations": None if unknown else told.violations,
        "unknown_s": None if unknown else number(told.unknown_s),
        "lease_s": number(told.lease_s),
        "failover_s": number(told.failover_s),
        "report_s": number(told.report_s),
        "period_s": number(told.period_s),
        "comply_s": number(told.comply_s),
        "energy_j": number(told.energy_j),
    }


def sentence(of: Held) -> str:
    """Whether the budget was held."""
    if not math.isfinite(of.budget_w):
        return "No budget was told, so that nothing can be held against it"
    if not math.isfinite(of.max_sum_caps_w):
        return f"The budget was {format_power(of.budget_w)}, and no node told its cap"
    budget = f"the budget of {format_power(of.budget_w)}"
    if of.violations:
        times = "once" if of.violations == 1 else f"{of.violations} times"
        text = f"Caps were above {budget} {times}, for {format_duration(of.violation_s)} together: up to "
        text += format_power(of.max_sum_caps_w)
    else:
        if of.max_sum_caps_w > of.budget_w:  # it was within what the budget was then
            budget = f"the budget, {format_power(of.budget_w)} in the end"
        text = f"The sum of caps stayed within {budget}: at most {format_power(of.max_sum_caps_w)}"
    if math.isfinite(of.max_power_w):
        text += f"; at most {format_power(of.max_power_w)} drawn"
        if of.over_budget_s > 0:
            text += f", above it for {format_duration(of.over_budget_s)}"
            if of.max_power_w <= of.budget_w * (1 + METER):
                text += f" within the meters' error of {format_share(METER, trim=True)}"
    if of.unknown_s > 0 and not of.violations:
        text += f"; for {format_duration(of.unknown_s)} between reports it is not known"
    if of.failovers:
        text += f"; another manager led after {format_duration(of.failover_s)}"
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
    """All of it, a row each."""
    watts = [
        ("budget", of.budget_w),
        ("sum of caps, at most", of.max_sum_caps_w),
        ("sum of caps that may have been", of.max_possible_w),
        ("power, at most", of.max_power_w),
        ("counted at most by the manager", of.max_committed_w),
    ]
    rows = [(name, format_power(value)) for name, value in watts if math.isfinite(value)]
    if of.max_unknown_w > 0:
        rows.append(("not known yet after a takeover, at most", format_power(of.max_unknown_w)))
    rows.append(("caps above the budget", f"{of.violations} times, {format_duration(of.violation_s)}"))
    rows.append(("caps may have been above it", format_duration(of.unknown_s)))
    rows.append(("power above the budget", format_duration(of.over_budget_s)))
    if math.isfinite(of.report_s) and math.isfinite(of.period_s):
        rows.append(("between reports of a node", format_duration(of.report_s)))
        rows.append(("between decisions", format_duration(of.period_s)))
    if math.isfinite(of.lease_s):
        rows.append(("lease", format_duration(of.lease_s)))
    rows += [
        (f"takeover by {one.after}, epoch {one.epoch}", format_duration(one.gap_s)) for one in of.failovers
    ]
    if math.isfinite(of.comply_s):
        rows.append(("until a lower budget was held", format_duration(of.comply_s)))
    rows.append(("leases that ended", str(of.expired)))
    if math.isfinite(of.energy_j):
        rows.append(("energy of all nodes", joules(of.energy_j)))
    return Table("Budget", ("what", "value"), rows, right=(1,))

"""The shares of processor time that programs other than Sonde's used on the hosts of a run, as probes report them."""

from __future__ import annotations

import math
from typing import Any

HOSTS, SHARES = "others_hosts", "others_share"
"""The names of both lists in a probe's event and among a dataset's root attributes. Shares are from 0 to 1."""


def by_host(facts: Any) -> dict[str, float]:
    """The share of each host, from an event or from a dataset's attributes; {} if they report none.

    They come from other hosts or from a file: hosts without a name and shares that are no numbers are left out.
    """
    hosts, shares = (_listed(facts.get(name)) for name in (HOSTS, SHARES))
    found: dict[str, float] = {}
    for host, share in zip(hosts, shares, strict=False):
        try:
            value = float(share)
        except (TypeError, ValueError):
            continue
        if isinstance(host, str) and host and math.isfinite(value) and value >= 0:
            found[host] = max(value, found.get(host, 0.0))
    return found


def _listed(value: Any) -> list[Any]:
    """NetCDF reads a list of one as its item."""
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    try:
        return list(value)
    except TypeError:
        return [value]

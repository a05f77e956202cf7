"""Numbers of this room as text: rates, ratios and quantities with their units. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sonde.core.units import format_duration, format_size


def short_text(value: float) -> str:
    """A number with at most three significant digits and no exponent."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 4)}f}" if abs(value) < 1000 else f"{value:.0f}"


def ratio_text(ratio: float, low: float = math.nan, high: float = math.nan) -> str:
    """ "2.31 times (2.2 to 2.4)"."""
    text = f"{short_text(ratio)} times"
    return (
        f"{text} ({short_text(low)} to {short_text(high)})"
        if math.isfinite(low) and math.isfinite(high)
        else text
    )


def rate_text(rate: float, unit: str) -> str:
    """ "31.2 k messages/s"."""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= factor:
            return f"{short_text(rate / factor)} {letter}{'' if unit == 'B/s' else ' '}{unit}"
    return f"{short_text(rate)} {unit}"


def text_of(value: float, unit: str) -> str:
    """A number of a quantity, with its unit."""
    if not math.isfinite(value):
        return "–"
    if unit == "s":
        return format_duration(value)
    if unit in ("1/s", "B/s"):
        return rate_text(value, unit).replace(" 1/s", "/s").replace("k1/s", "k/s")
    if unit == "B":
        return format_size(round(value))
    return short_text(value) if value < 1000 else f"{value:,.0f}".replace(",", " ")


def listed(items: Sequence[str], last: str = "and") -> str:
    """ "a, b and c"; the last two are joined by `last`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}"


def capitalised(text: str) -> str:
    """The text with a capital first letter."""
    return f"{text[0].upper()}{text[1:]}"

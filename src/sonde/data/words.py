"""Numbers with units as people read them."""

from __future__ import annotations

import math

from sonde.core import units


def quantity(value: float, unit: str) -> str:
    """ "1.23 µs" for seconds, "64 KiB" for whole bytes, else four digits and the unit; "none" for NaN."""
    if math.isnan(value):
        return "none"
    if unit == "s":
        return units.format_duration(value)
    if unit == "B" and value >= 0 and float(value).is_integer():
        return units.format_size(int(value))
    return f"{value:.4g} {unit}".rstrip() if unit != "1" else f"{value:.4g}"


def share(value: float) -> str:
    """ "+12.3 %" for 0.123; "none" for NaN."""
    return "none" if math.isnan(value) else f"{value:+.1%}".replace("%", " %")


def count(number: int, one: str, many: str = "") -> str:
    """ "1 run", "3 runs"."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def cut(text: object, length: int = 60) -> str:
    """One line of at most `length` characters."""
    line = " ".join(str(text).split())
    return line if len(line) <= length else line[: length - 1] + "…"

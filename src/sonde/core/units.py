"""Durations, sizes, rates and shares as people write them; the first two use `native/core/units.hpp`."""

from __future__ import annotations

import math
import re

import sonde._core as _core
from sonde.core.errors import UsageError
from sonde.core.printable import encodable

LEAST_RATE, MOST_RATE = 1000, 10**12  # bit/s
_RATE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?) ?(?:([kmgt])(i?))?bit(?:/s)?", re.ASCII | re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def format_duration(value_s: float) -> str:
    """Text with three significant digits and an engineering unit: "1.23 µs", "450 ms", "2 min 5 s".

    value_s: s, any sign; NaN gives "nan", infinity "inf". `parse_duration` reads every finite text back.
    """
    return str(_core.format_duration(value_s))


def parse_duration(text: str) -> float:
    """Seconds, >= 0, from "60s", "2min", "1h30min", "250 ms" or a bare number of seconds.

    Raises
    ------
    UsageError  core.bad_duration: no number, an unknown unit, negative, or longer than 36525 days.
    """
    return float(_core.parse_duration(encodable(text)))


def format_size(size: int, exact: bool = False) -> str:
    """Bytes as "64 KiB": three significant digits, or a text that `parse_size` reads back to `size` exactly.

    Message lengths want `exact`: two lengths must not share a label. Memory and files do not.
    """
    return str(_core.format_size(size, exact))


def parse_size(text: str) -> int:
    """Bytes from "64KiB" (2^10), "64kB" (10^3), "1.5 MiB" or a bare number.

    Raises
    ------
    UsageError  core.bad_size: no number, an unknown or ambiguous unit ("64K"), negative, not a whole number
    of bytes, or above 2^62.
    """
    return int(_core.parse_size(encodable(text)))


def format_power(value_w: float) -> str:
    """ "250 W", "1.25 kW", "20 MW": up to four significant digits."""
    return str(_core.format_power(value_w))


def parse_power(text: str) -> float:
    """Watts from "1500", "1.5 kW", "20MW", "350 mW"; case matters.

    Raises
    ------
    UsageError  core.bad_power.
    """
    return float(_core.parse_power(encodable(text)))


def parse_rate(text: str) -> int:
    """bit/s from "1gbit", "100 Mbit/s" (10^8), "64mibit" (2^26), with the meaning that tc(8) gives these units.

    Raises
    ------
    UsageError  core.bad_rate: no number, no unit or one that is read in two ways ("10mbps"), below 1 kbit/s or above
    1 Tbit/s.
    """
    found = _RATE.fullmatch(text.strip())
    if not found:
        hint = "write it like 1gbit or 100mbit; kibit, mibit, gibit count in powers of 1024"
        if re.fullmatch(r"[\d.]+ ?[kmgt]?i?b?ps", text.strip(), re.IGNORECASE):
            hint = "write it like 10mbit: 'bps' means bytes to tc, and bits to other programs"
        raise UsageError(
            "core.bad_rate", f"'{text}' is not a rate; allowed: a number and kbit, mbit, gbit", hint
        )
    value: int = round(float(found[1]) * (1024 if found[3] else 1000) ** _POWERS[(found[2] or "").lower()])
    if not LEAST_RATE <= value <= MOST_RATE:
        raise UsageError(
            "core.bad_rate",
            f"'{text}' is out of range; allowed: {format_rate(LEAST_RATE)} to {format_rate(MOST_RATE)}",
            "write it like 1gbit or 100mbit",
        )
    return value


def format_rate(rate: float) -> str:
    """bit/s as "1 Gbit/s", with up to six significant digits; `parse_rate` reads it back."""
    power = max((n for n in _POWERS.values() if rate >= 1000**n), default=0)
    unit = next(name for name, n in _POWERS.items() if n == power)
    return f"{rate / 1000**power:.6g} {unit.upper() if unit not in ('', 'k') else unit}bit/s"


def format_share(share: float, digits: int = 2, trim: bool = False) -> str:
    """A share as "0.98 %": `digits` significant digits, without exponents; "–" if it is unknown.

    trim: without zeros at the end, as people write levels ("1 %").
    """
    if not math.isfinite(share):
        return "–"
    value = 100 * share
    if value == 0:
        return "0 %"
    decimals = min(6, max(0, digits - 1 - math.floor(math.log10(abs(value)))))
    text = f"{value:.{decimals}f}"
    return f"{text.rstrip('0').rstrip('.') if trim and decimals else text} %"

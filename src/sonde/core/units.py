"""Durations, sizes and shares as people write them; the first two are the face of `native/core/units.hpp`."""

from __future__ import annotations

import math

import sonde._core as _core


def format_duration(value_s: float) -> str:
    """Text with three significant digits and an engineering unit: "1.23 µs", "450 ms", "2 min 5 s".

    value_s: s, any sign; NaN gives "nan", infinity "inf". `parse_duration` reads every finite text back.
    """
    return _core.format_duration(value_s)


def parse_duration(text: str) -> float:
    """Seconds, >= 0, from "60s", "2min", "1h30min", "250 ms" or a bare number of seconds.

    Raises
    ------
    UsageError  core.bad_duration: no number, an unknown unit, negative, or longer than 36525 days.
    """
    return _core.parse_duration(text)


def format_size(size: int, exact: bool = False) -> str:
    """Bytes as "64 KiB": three significant digits, or a text that `parse_size` reads back to `size` exactly.

    Message lengths want `exact`: two lengths must not share a label. Memory and files do not.
    """
    return _core.format_size(size, exact)


def parse_size(text: str) -> int:
    """Bytes from "64KiB" (2^10), "64kB" (10^3), "1.5 MiB" or a bare number.

    Raises
    ------
    UsageError  core.bad_size: no number, an unknown or ambiguous unit ("64K"), negative, not a whole number
    of bytes, or above 2^62.
    """
    return _core.parse_size(text)


def format_share(share: float, digits: int = 2, trim: bool = False) -> str:
    """A share as "0.98 %": that many significant digits, none lost to exponents; "–" where it is not known.

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

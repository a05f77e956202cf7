"""Readable units, chosen by the data: ns, µs or ms, B, KiB or MiB; ticks and number texts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

SI = (
    (1e-12, "p"),
    (1e-9, "n"),
    (1e-6, "µ"),
    (1e-3, "m"),
    (1.0, ""),
    (1e3, "k"),
    (1e6, "M"),
    (1e9, "G"),
    (1e12, "T"),
)
BINARY = ((1.0, ""), (2.0**10, "Ki"), (2.0**20, "Mi"), (2.0**30, "Gi"), (2.0**40, "Ti"))
PREFIXED = {
    "s",
    "Hz",
    "W",
    "J",
    "flop/s",
    "/s",
}  # units with SI prefixes; bytes have binary ones, all others have none


@dataclass(frozen=True)
class Scale:
    """shown = value * factor, in `unit`."""

    unit: str
    factor: float


def steps(unit: str) -> tuple[tuple[float, str], ...]:
    """(worth in `unit`, prefix) for every prefix of the unit, ascending."""
    if unit in ("B", "B/s"):
        return BINARY
    if unit == "s":
        return SI[:5]  # minutes are clearer than kiloseconds
    return SI if unit in PREFIXED else ((1.0, ""),)


def choose(values: Any, unit: str) -> Scale:
    """Scale for an axis: the largest prefix in which the 90 % quantile is still 1 or more.

    values: any array in `unit`; NaN, infinities and zeros do not count. Without other values: the unit itself.
    """
    unit = "" if unit == "1" else unit
    a = np.abs(np.asarray(values, dtype=float).ravel())
    a = a[np.isfinite(a) & (a > 0)]
    known = steps(unit)
    if a.size == 0 or len(known) == 1:
        return Scale(unit, 1.0)
    worth, prefix = _fitting(float(np.quantile(a, 0.9)), known)
    return Scale(prefix + unit, 1.0 / worth)


def _fitting(magnitude: float, known: tuple[tuple[float, str], ...]) -> tuple[float, str]:
    # 1 - 1e-9: 1e-6 s computed as 0.99999999999e-6 is still a microsecond
    return next((s for s in reversed(known) if magnitude >= s[0] * (1 - 1e-9)), known[0])


def number(value: float, digits: int = 4) -> str:
    """Text with at most `digits` significant digits and no exponent between 1e-3 and 1e7.

    NaN gives "–", infinity "∞". Whole numbers keep all their digits.
    """
    if value != value:
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    if float(value).is_integer() and abs(value) < 1e15:
        text = f"{abs(int(value)):d}"
        if len(text) > 4:
            text = f"{abs(int(value)):,d}".replace(",", "\u2009")
    elif 1e-3 <= abs(value) < 1e7:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
        text = f"{abs(value):.{decimals}f}"
        if "." in text:
            text = text.rstrip("0").rstrip(".")
        whole, dot, rest = text.partition(".")
        if len(whole) > 4:
            text = f"{int(whole):,d}".replace(",", "\u2009") + dot + rest
    else:
        mantissa, exponent = f"{abs(value):.{digits - 1}e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        power = f"10{superscript(int(exponent))}"
        text = power if mantissa == "1" else f"{mantissa}·{power}"
    return ("−" if value < 0 else "") + text


def superscript(n: int) -> str:
    """An exponent as text: "⁻³"."""
    return "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(c)] if c.isdigit() else "⁻" for c in str(n))


def quantity(value: Any, unit: str = "", digits: int = 4) -> str:
    """A value with a suitable unit: "1.24 µs", "64 KiB", "12 %". No two sizes share a text.

    A value that is not a number is returned as its text.
    """
    unit = "" if unit == "1" else unit  # udunits' name for "no unit"
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if not isinstance(value, (int, float, np.integer, np.floating)):
        return str(value)
    v = float(value)
    if not math.isfinite(v):
        return number(v)
    known = steps(unit)
    if unit == "B" and v.is_integer():
        exact = [(w, p) for w, p in known if v >= w and (v / w * 1000).is_integer()]
        worth, prefix = exact[-1] if exact else known[0]
        return f"{number(v / worth, 7)}\u00a0{prefix}B"
    if unit == "s" and abs(v) >= 120:
        minutes, seconds = divmod(round(abs(v)), 60)
        hours, minutes = divmod(minutes, 60)
        parts = [(hours, "h"), (minutes, "min"), (seconds, "s")]
        return ("−" if v < 0 else "") + " ".join(f"{n}\u00a0{u}" for n, u in parts if n)
    worth, prefix = _fitting(abs(v), known) if v else (1.0, "")
    text = number(v / worth, digits)
    return f"{text}\u00a0{prefix}{unit}" if unit else text


def rounded(value: float, unit: str = "", digits: int = 4) -> str:
    """`quantity` with at most that number of digits, also for bytes: nobody needs the last byte of a sum."""
    fitting = choose([value], unit)
    text = number(float(value) * fitting.factor, digits)
    return f"{text}\u00a0{fitting.unit}" if fitting.unit and math.isfinite(value) else text


def ticks(
    low: float, high: float, unit: str = "", log: bool = False, most: int = 7
) -> list[tuple[float, str]]:
    """(value, text) of ticks between low and high; on a logarithmic axis each text has its own prefix.

    low, high: finite, low <= high, and above 0 where log. Equal ends give that one value.
    """
    if low == high:
        return [(low, quantity(low, unit, 3) if log else number(low))]
    if not log:
        step = _nice((high - low) / most)
        first = math.ceil(low / step - 1e-9)
        places = [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]
        return [(p, number(float(f"{p:.10g}"), 6)) for p in places]
    if unit in ("B", "B/s"):
        span = max(1, math.ceil(math.log2(high / low) / most))
        powers = range(
            math.ceil(math.log2(low) / span - 1e-9) * span, math.floor(math.log2(high) + 1e-9) + 1, span
        )
        places = [2.0**k for k in powers]
    else:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        wide = math.log10(high / low)
        within = (1, 1.5, 2, 3, 5, 7) if wide < 0.9 else (1, 2, 5) if wide < 2.5 else (1,)
        every = max(1, math.ceil(wide / most)) if within == (1,) else 1
        places = [m * 10.0**d for d in decades if d % every == 0 for m in within]
        places = [p for p in places if low * (1 - 1e-9) <= p <= high * (1 + 1e-9)]
    if len(places) < 2:  # less than one step: use evenly spaced positions
        return [(v, quantity(v, unit, 3)) for v, _ in ticks(low, high, unit, False, 4)]
    return [(p, quantity(p if unit in ("B", "B/s") else float(f"{p:.6g}"), unit, 3)) for p in places]


def _nice(rough: float) -> float:
    magnitude = 10.0 ** math.floor(math.log10(rough))
    return next(m * magnitude for m in (1, 2, 2.5, 5, 10) if rough <= m * magnitude * (1 + 1e-9))

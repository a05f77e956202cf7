"""Colours: safe for colour-blind readers (Okabe and Ito 2008; viridis, cividis), AA contrast for text."""

from __future__ import annotations

# Series: (full tone, pale tone) on light ground, then on dark ground. Okabe-Ito hues, darkened or lightened to have 3:1
# contrast against the ground; black and yellow are left out, because one of them vanishes on either ground.
LIGHT = (
    ("#0072B2", "#7DB6DC"),
    ("#D55E00", "#F0A878"),
    ("#008F68", "#79C6AC"),
    ("#A8517F", "#D9A5C2"),
    ("#3A3F45", "#9AA1A9"),
    ("#B07C00", "#DDBE76"),
)
DARK = (
    ("#56B4E9", "#2C6C94"),
    ("#F08A4B", "#9C5426"),
    ("#2FC79A", "#1A7A5E"),
    ("#DE9CC0", "#8A5875"),
    ("#D5DAE0", "#7C858F"),
    ("#E6B84A", "#8F7228"),
)

# Codes of a status matrix. 0 means "no data" by convention and is grey; neighbours also differ in lightness.
STATUS = ("#B8BEC5", "#0072B2", "#E69F00", "#D55E00", "#CC79A7", "#56B4E9", "#009E73", "#F0E442")

SEQUENTIAL = "viridis"  # for delays and similar values
POWER = "cividis"  # for spectra, so that the two are not confused

# Both maps at 16 even steps, by their matplotlib names. Sources: S. van der Walt, N. Smith 2015 (CC0);
# J. R. Nunez, C. R. Anderton, R. S. Renslow, PLOS ONE 13 (2018) e0199239.
MAPS = {
    "viridis": (
        "#440154", "#481a6c", "#472f7d", "#414487", "#39568c", "#31688e", "#2a788e", "#23888e",
        "#1f988b", "#22a884", "#35b779", "#54c568", "#7ad151", "#a5db36", "#d2e21b", "#fde725",
    ),
    "cividis": (
        "#00224e", "#002e6c", "#1e3a6f", "#35456c", "#47516c", "#575d6d", "#666970", "#757575",
        "#848279", "#948e77", "#a59c74", "#b7a96e", "#c8b866", "#dbc75a", "#eed649", "#fee838",
    ),
}  # fmt: skip

# Ratios: purple below, grey about the middle, orange above. ColorBrewer's PuOr (C. Brewer, Apache-2.0), safe for
# colour-blind readers, with a middle that is dark enough to differ from a hole.
DIVERGING = (
    "#2d004b", "#542788", "#7564a5", "#9c93c4", "#b9b5d2", "#cfced6",
    "#e2c8a2", "#f0ac5c", "#dd7d12", "#b35806", "#7f3b08",
)  # fmt: skip


def area(hue: int) -> tuple[int, int]:
    """The colour index and tone of an area with this hue: adjacent areas may need more colours than lines have."""
    return hue % len(LIGHT), hue // len(LIGHT) % 2


def status(code: int) -> str:
    """Colour of a code; codes beyond the palette start again after the grey."""
    return STATUS[code] if code < len(STATUS) else STATUS[1 + (code - 1) % (len(STATUS) - 1)]


def luminance(colour: str) -> float:
    """Relative luminance of "#rrggbb", 0 to 1. Source: WCAG 2.1."""
    parts = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, 1 to 21. Text needs 4.5. Source: WCAG 2.1."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def ink_on(ground: str) -> str:
    """Black or white: the colour that is easier to read on a ground."""
    return max("#111111", "#ffffff", key=lambda ink: contrast(ink, ground))

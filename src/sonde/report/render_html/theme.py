"""Colours of the page and of its drawings, for both themes."""

from __future__ import annotations

from functools import lru_cache

from sonde.report import palette


@lru_cache(maxsize=1)
def tokens() -> dict[str, dict[str, str]]:
    """The colours that drawings share with the page, by theme. In specifications they are written as "@name"."""
    themes = {
        "light": {
            "ink": "#1d2328",
            "quiet": "#545e68",
            "grid": "#e8e6e1",
            "axis": "#a9aeb3",
            "ground": "#ffffff",
            "hole": "#f1efeb",
            "accent": "#0b5c86",
            "band": "rgba(29,35,40,0.075)",
            "rule": "#6a737c",
        },
        "dark": {
            "ink": "#e4e7ea",
            "quiet": "#a4aeb8",
            "grid": "#2b3239",
            "axis": "#5a646e",
            "ground": "#1a1f24",
            "hole": "#242a30",
            "accent": "#74bfe8",
            "band": "rgba(228,231,234,0.085)",
            "rule": "#98a2ac",
        },
    }
    for theme, colours in (("light", palette.LIGHT), ("dark", palette.DARK)):
        for k, pair in enumerate(colours):
            for letter, colour in zip("sp", pair):
                themes[theme][f"{letter}{k}"] = colour
                themes[theme][f"on-{letter}{k}"] = palette.ink_on(colour)
    return themes


def tone(series: int, pale: bool = False) -> str:
    """The colour of a series by number."""
    return f"@{'p' if pale else 's'}{series % len(palette.LIGHT)}"


def fill(hue: int) -> str:
    """The name of the colour of an area."""
    k, tone = palette.area(hue)
    return f"{'sp'[tone]}{k}"


def css_tokens() -> str:
    """The colours as CSS variables, for both themes."""

    def block(theme: str) -> str:
        return "".join(f"--{k}:{v};" for k, v in tokens()[theme].items())

    light, dark = block("light"), block("dark")
    return (
        f":root{{{light}}}"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
        f"@media screen{{:root[data-theme=dark]{{{dark}}}}}"
    )

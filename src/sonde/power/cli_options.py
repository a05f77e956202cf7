"""Options that several commands of this room share."""

from __future__ import annotations

import re
from pathlib import Path

import click

from sonde.core import units
from sonde.core.errors import UsageError
from sonde.core.options import BuiltinType, Duration, Settings


class Power(BuiltinType):
    """A power: "1.2kW", "350W". Value: float, W."""

    name, allowed = "power", "powers such as 350W, 1.2kW"

    def read(self, text: str) -> float:
        return units.parse_power(text)


class Part(BuiltinType):
    """A share of the budget: "20%". Value: float, above 0 and below 1."""

    name, allowed = "share", "shares such as 20% or 0.2"

    def read(self, text: str) -> float:
        bare = text.strip()
        try:
            value = float(bare[:-1]) / 100 if bare.endswith("%") else float(bare)
        except ValueError:
            value = float("nan")
        if not 0 < value < 1:
            raise UsageError(
                "power.bad_share",
                f"'{text}' is not a share of a budget; allowed: above 0% and below 100%",
                "write it like 20% or 0.2",
            )
        return value


class Span(Duration):
    """A time span; this room also accepts "30m", as operators write it. Value: float, s."""

    def read(self, text: str) -> float:
        minutes = re.fullmatch(r"\s*[0-9.]+m\s*", text, re.ASCII)
        return super().read(f"{text.strip()}in" if minutes else text)


def _named(context: click.Context, param: click.Parameter, value: Path) -> Path:
    """The extra work of the console's --config: recording which command runs."""
    context.ensure_object(Settings).command = context.command_path.split()[1:]
    return value


CONFIG = click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    required=True,
    envvar="SONDE_POWER_CONFIG",
    metavar="FILE",
    callback=_named,
    help="The power stack's configuration; also by SONDE_POWER_CONFIG.",
)

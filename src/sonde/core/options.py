"""The options that mean the same in every command, and the types of option values.

    @group.command()
    @common("output", "hosts", "ntasks", "budget", "seed", "dry_run")
    @click.option("--sizes", type=SIZES, default="0:1000:100", help="...")
    def run(output, hosts, ntasks, budget_s, seed, dry_run, sizes) -> Outcome: ...

`--json --progress --color --debug` belong to the console, not to the command: `common` adds them to every command
without passing them on, and they may equally stand before the room (`sonde --json net show A.nc`). Where they are
given twice, the later one counts. A command that draws progress asks `settings().bar()` for something to feed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from sonde.core import hostlist, units
from sonde.core.errors import UsageError
from sonde.core.events import NullProgress, Progress

Command = TypeVar("Command", bound=Callable[..., Any])

LARGEST_SIZE = 2**31 - 1  # an MPI count is an int
MOST_SIZES = 65536


class HouseType(click.ParamType):
    """An option value read by `read`, whose UsageError is told with the option's name in front."""

    def read(self, text: str) -> Any:
        raise NotImplementedError

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self.read(value)
        except UsageError as error:
            name = param.opts[-1] if param and param.opts[-1].startswith("-") else (param and param.human_readable_name)
            if name:
                error.what = f"{name}: {error.what}"
            raise


class Duration(HouseType):
    """A time span above zero: "60s", "2min", "1h30min". Value: float, s."""

    name = "time"

    def read(self, text: str) -> float:
        value = units.parse_duration(text)
        if value <= 0:
            raise UsageError("core.bad_duration", f"'{text}' is no time at all; allowed: above 0 s", "e.g. 60s, 2min, 1h")
        return value


class Size(HouseType):
    """A number of bytes: "64KiB", "1MB", "4096". Value: int, B."""

    name = "size"

    def read(self, text: str) -> int:
        return units.parse_size(text)


class Sizes(HouseType):
    """Message lengths: "begin:end:step" with the end left out, or a list "8,1KiB,64KiB". Value: tuple of int, B."""

    name = "sizes"

    def read(self, text: str) -> tuple[int, ...]:
        def bad(why: str) -> UsageError:
            return UsageError(
                "core.bad_sizes",
                f"'{text}': {why}",
                "give begin:end:step, the end left out (0:1000:100), or a list (8,1KiB,64KiB)",
            )

        if not text.strip():
            raise bad("no size is given")
        if ":" in text:
            parts = text.split(":")
            if len(parts) not in (2, 3):
                raise bad(f"{len(parts)} numbers; allowed: begin:end:step")
            begin, end = units.parse_size(parts[0]), units.parse_size(parts[1])
            step = units.parse_size(parts[2]) if len(parts) == 3 else 1
            if step == 0:
                raise bad("a step of 0 B never ends; allowed: 1 B and above")
            if end <= begin:
                raise bad(f"begins at {begin} B and ends before {end} B, which holds no size; allowed: begin < end")
            if len(range(begin, end, step)) > MOST_SIZES:
                raise bad(f"{len(range(begin, end, step))} sizes; allowed: {MOST_SIZES}")
            sizes = tuple(range(begin, end, step))
        else:
            sizes = tuple(units.parse_size(part) for part in text.split(","))
            if len(sizes) > MOST_SIZES:
                raise bad(f"{len(sizes)} sizes; allowed: {MOST_SIZES}")
            if len(set(sizes)) < len(sizes):
                twice = next(s for s in sizes if sizes.count(s) > 1)
                raise bad(f"{twice} B is given twice")
        if max(sizes) > LARGEST_SIZE:
            raise bad(f"{max(sizes)} B; allowed: up to {LARGEST_SIZE} B, the largest count of an MPI message")
        return sizes


class Share(HouseType):
    """A share above 0 and below 1: "1%" or "0.01". Value: float."""

    name = "share"

    def read(self, text: str) -> float:
        number, percent = (text.strip()[:-1], 100.0) if text.strip().endswith("%") else (text.strip(), 1.0)
        try:
            value = float(number) / percent
        except ValueError:
            value = float("nan")
        if not 0 < value < 1:
            raise UsageError(
                "core.bad_share", f"'{text}' is not a share; allowed: above 0% and below 100%", "e.g. 1% or 0.01"
            )
        return value


class HostList(HouseType):
    """A host list: "n[001-016],^n007". Value: str that `hostlist.expand` understands, as written."""

    name = "hosts"

    def read(self, text: str) -> str:
        return hostlist.check(text)


DURATION, SIZE, SIZES, SHARE, HOSTS = Duration(), Size(), Sizes(), Share(), HostList()


@dataclass
class Settings:
    """What the user asked of the console, wherever on the command line it stood."""

    json: bool = False
    progress: str = "auto"
    color: str = "auto"
    debug: bool = False
    bar: Callable[[], Progress] = NullProgress  # the console puts its own here
    _rank: dict[str, int] = field(default_factory=dict)


def settings() -> Settings:
    """Settings of the running command; plain defaults outside `sonde`."""
    ctx = click.get_current_context(silent=True)
    return ctx.meta.setdefault("sonde.settings", Settings()) if ctx else Settings()


_SOURCE_RANK = {ParameterSource.DEFAULT: 0, ParameterSource.DEFAULT_MAP: 1, ParameterSource.ENVIRONMENT: 2}


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keeps a console option. A config file does not override what was typed, wherever that stood."""
    name = str(param.name)
    source = ctx.get_parameter_source(name)
    rank = _SOURCE_RANK.get(source, 3) if source else 0
    kept: Settings = ctx.meta.setdefault("sonde.settings", Settings())
    if rank and rank >= kept._rank.get(name, 0):
        setattr(kept, name, value)
        kept._rank[name] = rank


def _console(*flags: str, **keywords: Any) -> Callable[[Command], Command]:
    return click.option(*flags, expose_value=False, callback=_remember, **keywords)


_WHEN = click.Choice(["auto", "always", "never"])
CONSOLE = (
    _console("--json", is_flag=True, help="Print one JSON object instead of text."),
    _console("--progress", type=_WHEN, default="auto", help="Progress bar on stderr: auto, always or never.", metavar="WHEN"),
    _console("--color", type=_WHEN, default="auto", help="Colour: auto, always or never.", metavar="WHEN"),
    _console("--debug", is_flag=True, help="Show tracebacks."),
)

SHARED: dict[str, Callable[[Any], Any]] = {
    "output": click.option("-o", "--output", type=click.Path(path_type=Path), help="Where the result goes."),
    "launcher": click.option("--launcher", default="auto", metavar="NAME", help="How ranks are started: auto, local, mpirun, srun."),
    "hosts": click.option("--hosts", type=HOSTS, help="Hosts to use: n[01-16],^n07 leaves out n07."),
    "ntasks": click.option("--ntasks", type=click.IntRange(min=1), help="Number of ranks."),
    "budget": click.option("--budget", "budget_s", type=DURATION, help="Time all of it may take, start-up and analysis included: 60s, 2min, 1h."),
    "precision": click.option("--precision", type=SHARE, help="Relative width of the confidence interval to reach: 1%."),
    "seed": click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="Seed of the measuring order; the same seed gives the same order."),
    "dry_run": click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing."),
}


def common(*names: str) -> Callable[[Command], Command]:
    """Adds the console options, and those of SHARED that are named, to a click command or group.

    names: output launcher hosts ntasks budget precision seed dry_run. The command receives them as keywords of
    that name, `budget` as `budget_s` (s). Those not given are None (launcher: "auto", dry_run: False).
    """
    wanted = [SHARED[name] for name in names]

    def decorate(command: Command) -> Command:
        for option in reversed([*wanted, *CONSOLE]):
            command = option(command)
        return command

    return decorate

"""The options that mean the same in every command, and the types of option values.

    @group.command()
    @common("output", "hosts", "ntasks", "budget", "seed", "dry_run")
    @click.option("--sizes", type=SIZES, default="0:1000:100", help="...")
    def run(output, hosts, ntasks, budget_s, seed, dry_run, sizes) -> Outcome:
        with settings().bar("net run", budget_s) as bar:
            ...  # bar.show(event) for each event
`--json --progress --color --config --debug` belong to the console, not to the command: `common` adds them to every
command without passing them on, and they may also come before the room (`sonde --json net show A.nc`). If one is given
twice, the later one counts.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from sonde.core import config, hostlist, units
from sonde.core.errors import UsageError
from sonde.core.events import NullProgress, Progress
from sonde.core.launch.cpus import parse_cpu_list

Command = TypeVar("Command", bound=Callable[..., Any])

LARGEST_SIZE = 2**31 - 1  # the count of an MPI message is an int
MOST_SIZES = 65536
_CPU_LIST = re.compile(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*", re.ASCII)


class BuiltinType(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5, but 8.2 is enough
    """A type whose `read` turns a text into a value; its UsageError is reported with the option's name in front.

    allowed: the accepted values, as text.
    """

    allowed = ""

    def read(self, text: str) -> Any:
        raise NotImplementedError

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self.read(value)
        except UsageError as error:
            name = config.spelt(param) if param else self.name
            raise UsageError(error.code, f"{name}: {error.what}", error.hint) from None


class Whole(BuiltinType):
    """A whole number from `least` up. Value: int."""

    name = "number"

    def __init__(self, least: int) -> None:
        self.least = least
        self.allowed = f"whole numbers from {least} up"

    def read(self, text: str) -> int:
        bare = text.strip()
        value = (
            int(bare) if bare.isascii() and bare.isdigit() and len(bare) < 19 else -1
        )  # 18 digits: 64 bits
        if value < self.least:
            raise UsageError(
                "core.bad_number",
                f"'{text}' is not allowed; allowed: {self.allowed}",
                f"write it in digits, like {max(self.least, 4)}",
            )
        return value


class Counts(BuiltinType):
    """Whole numbers from 1 up: "1,16". Value: tuple of int, each once."""

    name, allowed = "numbers", "whole numbers from 1 up, comma-separated"

    def read(self, text: str) -> tuple[int, ...]:
        parts = [part.strip() for part in text.split(",")]
        if not all(part.isascii() and part.isdigit() and len(part) < 10 and int(part) > 0 for part in parts):
            raise UsageError(
                "core.bad_number", f"'{text}' is not allowed; allowed: {self.allowed}", "write it like 1,16"
            )
        return tuple(dict.fromkeys(map(int, parts)))


class Duration(BuiltinType):
    """A time span: "60s", "2min", "1h30min"; above zero, unless `zero` allows 0. Value: float, s.

    unit: the likely unit of a bare number if seconds are unlikely; a bare number is then refused. "": a bare number
    counts seconds.
    """

    name, allowed = "time", "times such as 60s, 2min, 1h"

    def __init__(self, zero: bool = False, unit: str = "") -> None:
        self.zero, self.unit = zero, unit
        if unit:
            self.allowed = f"times with a unit, such as 300{unit}"

    def read(self, text: str) -> float:
        bare = text.strip()
        if self.unit and re.fullmatch(r"[0-9.]*[1-9][0-9.]*(e[+-]?[0-9]+)?", bare, re.ASCII | re.IGNORECASE):
            raise UsageError(
                "core.bad_duration",
                f"'{text}' has no unit; allowed: ns us ms s min h",
                f"did you mean {bare}{self.unit}?",
            )
        value = units.parse_duration(text)
        if value <= 0 and not self.zero:
            raise UsageError(
                "core.bad_duration",
                f"'{text}' is not a time; allowed: above 0 s",
                "write it like 60s, 2min or 1h",
            )
        return value


class Size(BuiltinType):
    """A number of bytes: "64KiB", "1MB", "4096". Value: int, B."""

    name, allowed = "size", "sizes such as 4096, 64KiB, 64kB"

    def read(self, text: str) -> int:
        return units.parse_size(text)


class Sizes(BuiltinType):
    """Message lengths: "begin:end:step" without the end itself, or a list "8,1KiB". Value: tuple of int, B."""

    name, allowed = "sizes", "begin:end:step, or a list such as 8,1KiB,64KiB"
    largest, largest_is = LARGEST_SIZE, f"{LARGEST_SIZE} B, the largest count of one MPI message"

    def read(self, text: str) -> tuple[int, ...]:
        hint = "write begin:end:step, the end not included (0:1000:100), or a list (8,1KiB,64KiB)"

        def bad(why: str) -> UsageError:
            shown = text if len(text) <= 40 else text[:37] + "..."
            return UsageError("core.bad_sizes", f"'{shown}' {why}", hint)

        if not text.strip():
            raise bad("has no size")
        parts = text.split(":")
        if len(parts) > 3:
            raise bad(f"has {len(parts)} parts; allowed: begin:end:step")
        if len(parts) > 1:
            begin, end = units.parse_size(parts[0]), units.parse_size(parts[1])
            step = units.parse_size(parts[2]) if len(parts) == 3 else 1
            if step == 0:
                raise bad("has a step of 0 B; allowed: 1 B and above")
            if end <= begin:
                raise bad(f"begins at {begin} B and ends before {end} B, so it has no size")
            count = -((begin - end) // step)
            largest = begin + (count - 1) * step
            sizes: list[int] = list(range(begin, end, step)) if count <= MOST_SIZES else []
        else:
            sizes = [units.parse_size(part) for part in text.split(",")]
            count, largest = len(sizes), max(sizes)
            seen: set[int] = set()
            for size in sizes:
                if size in seen:
                    raise bad(f"has {size} B twice")
                seen.add(size)
        if largest > self.largest:
            raise bad(f"has {largest} B; allowed: up to {self.largest_is}")
        if count > MOST_SIZES:
            raise bad(f"has {count} sizes; allowed: up to {MOST_SIZES}")
        return tuple(sizes)


class Rate(BuiltinType):
    """The rate of a link: "1gbit", "100mbit". Value: int, bit/s."""

    name, allowed = "rate", "rates such as 100mbit, 1gbit"

    def read(self, text: str) -> int:
        return units.parse_rate(text)


class Share(BuiltinType):
    """A share below 1: "1%" or "0.01"; zero: whether 0 is allowed. Value: float."""

    name, allowed = "share", "shares such as 1% or 0.01"

    def __init__(self, zero: bool = False) -> None:
        self.zero = zero

    def read(self, text: str) -> float:
        bare = text.strip()
        try:
            value = float(bare[:-1]) / 100 if bare.endswith("%") else float(bare)
        except ValueError:
            value = float("nan")
        if not 0 <= value < 1 or (value == 0 and not self.zero):
            least = "0 for none, or above 0% and" if self.zero else "above 0% and"
            raise UsageError(
                "core.bad_share",
                f"'{text}' is not a share; allowed: {least} below 100%",
                "write it like 1% or 0.01",
            )
        return value


class CpuList(BuiltinType):
    """CPUs: "0,2-5", or "all". Value: tuple of int, in order, each once; () for all."""

    name, allowed = "cpus", "CPU numbers and ranges such as 0,2-5, or all"

    def read(self, text: str) -> tuple[int, ...]:
        bare = "".join(text.split())
        if bare == "all":
            return ()
        found = parse_cpu_list(bare) if _CPU_LIST.fullmatch(bare) else []
        if not found:  # also for a range whose end is before its begin
            raise UsageError(
                "core.bad_cpus",
                f"'{text}' is not a list of CPUs; allowed: {self.allowed}",
                "write it like 0,2-5",
            )
        return tuple(sorted(set(found)))


class Output(click.Path):
    """The path of a result. Value: Path; the settings record a slash at its end, which Path drops."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if ctx is not None and isinstance(value, str):
            ctx.ensure_object(Settings).output_folder = value.endswith("/")
        return super().convert(value, param, ctx)


class HostList(BuiltinType):
    """A host list: "n[001-016],^n007". Value: the text, which `hostlist.expand` understands."""

    name, allowed = "hosts", "host lists such as n[01-16],^n07"

    def read(self, text: str) -> str:
        return hostlist.check(text)


DURATION, SIZE, SIZES, SHARE, HOSTS, CPUS = Duration(), Size(), Sizes(), Share(), HostList(), CpuList()
RATE = Rate()
PAUSE = Duration(zero=True)  # a time between two steps; 0 is allowed
DELAY = Duration(unit="us")  # of a message: if a bare number meant seconds, it would never be reached


def _unheard(text: str) -> None:
    pass


def _unseen(lines: Sequence[str]) -> None:
    pass


def _no_bar(title: str, budget_s: float | None = None) -> Progress:
    return NullProgress()


@dataclass
class Settings:
    """The user's settings of the console, wherever on the command line they are given.

    bar: called with a title and the budget in s, makes an object that takes events; the console sets its own here.
    say: reports at once to a person on stderr what cannot wait for the Outcome: where a service listens.
    screen: shows lines on stdout in place of the lines before, on a terminal; elsewhere below them.
    began: time.monotonic() at the start of the program, loading included; a --budget counts from it.
    output_folder: whether --output ends in a slash and so means a folder, whether it exists or not.
    config: the file that --config names. command: the names of the running command, e.g. ["net", "run"].
    """

    json: bool = False
    progress: str = "auto"
    color: str = "auto"
    debug: bool = False
    began: float = field(default_factory=time.monotonic, compare=False)
    output_folder: bool = False
    config: Path | None = None
    command: list[str] = field(default_factory=list)
    bar: Callable[[str, float | None], Progress] = _no_bar
    say: Callable[[str], None] = _unheard
    screen: Callable[[Sequence[str]], None] = _unseen
    rank: dict[str, int] = field(default_factory=dict)  # by option: the rank of the source of its value


def settings() -> Settings:
    """Settings of the running command; plain defaults outside of one."""
    context = click.get_current_context(silent=True)
    return context.ensure_object(Settings) if context else Settings()


_RANK = {ParameterSource.DEFAULT: 0, ParameterSource.DEFAULT_MAP: 1}


def _remember(context: click.Context, param: click.Parameter, value: Any) -> None:
    """Store a console option. A value from a config file never overrides one from the command line."""
    name = str(param.name)
    source = context.get_parameter_source(name)
    rank = _RANK.get(source, 2) if source else 0
    stored = context.ensure_object(Settings)
    if rank and rank >= stored.rank.get(name, 0):
        setattr(stored, name, value)
        stored.rank[name] = rank


def _configure(context: click.Context, param: click.Parameter, value: Path | None) -> None:
    """Read the config file before click processes the command's other options, so that they find its values."""
    stored = context.ensure_object(Settings)
    stored.command = context.command_path.split()[1:]
    stored.config = value or stored.config
    if isinstance(context.command, click.Group) or context.resilient_parsing:
        return  # a --config may still follow the verb
    if path := config.find(stored.config, passed_over=lambda why: stored.say(f"warning: {why}")):
        context.default_map = config.read(path).defaults(context, shared=(*SHARED, *CONSOLE_NAMES))


class SharedOption(click.Option):
    """An option from SHARED."""


class ConsoleOption(click.Option):
    """An option of the console itself."""


def _shared(*flags: str, **keywords: Any) -> Callable[[Any], Any]:
    return click.option(*flags, cls=SharedOption, **keywords)


def _console(*flags: str, **keywords: Any) -> Callable[[Command], Command]:
    return click.option(*flags, cls=ConsoleOption, expose_value=False, **{"callback": _remember, **keywords})


_WHEN: dict[str, Any] = {
    "type": click.Choice(["auto", "always", "never"]),
    "default": "auto",
    "metavar": "WHEN",
}
CONSOLE_NAMES = ("json", "progress", "color", "debug")
_CONFIG = _console(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    is_eager=True,
    callback=_configure,
    help="Take defaults from this TOML file.",
)
_CONSOLE = (
    _console("--json", is_flag=True, help="Print the result as one JSON object."),
    _console("--progress", **_WHEN, help="Draw a progress bar: auto, always, never."),
    _console("--color", **_WHEN, help="Use colour: auto, always, never."),
    _CONFIG,
    _console("--debug", is_flag=True, help="Show the traceback of an error."),
)

SHARED: dict[str, Callable[[Any], Any]] = {
    "output": _shared("-o", "--output", type=Output(), metavar="PATH", help="File or folder for the result."),
    "launcher": _shared(
        "--launcher", default="auto", metavar="NAME", help="Launcher of the ranks: auto, local, mpirun, srun."
    ),
    "hosts": _shared(
        "--hosts", type=HOSTS, metavar="LIST", help="Hosts to use: n[01-16]; ^n07 leaves n07 out."
    ),
    "ntasks": _shared("--ntasks", type=Whole(1), metavar="N", help="Number of ranks."),
    "budget": _shared(
        "--budget",
        "budget_s",
        type=DURATION,
        metavar="TIME",
        help="Time limit of the whole command: 60s, 2min, 1h.",
    ),
    "precision": _shared(
        "--precision", type=SHARE, metavar="SHARE", help="Width of the confidence interval to reach: 1%."
    ),
    "seed": _shared(
        "--seed",
        type=Whole(0),
        metavar="N",
        help="Seed of the random order of measurements.",
    ),
    "dry_run": _shared("--dry-run", is_flag=True, help="Show what would be done, and do nothing."),
}

# For verbs that start a probe. Not in SHARED: a configuration file may give defaults of SHARED for every verb.
TIMEOUT = click.option(
    "--timeout",
    "timeout_s",
    type=DURATION,
    default="60s",
    show_default=True,
    metavar="TIME",
    help="Longest time without a sign from a rank.",
)


# For verbs that compare a run with an earlier one.
FILE = click.argument("file", metavar="FILE.nc", type=click.Path(path_type=Path))
A_NC = click.argument("a", metavar="A.nc", type=click.Path(path_type=Path))
B_NC = click.argument("b", metavar="B.nc", type=click.Path(path_type=Path))
AGAINST = click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="BASE.nc",
    help="Earlier run to compare with: report what is slower.",
)
MATTERS = click.option(
    "--matters",
    type=SHARE,
    default="5%",
    metavar="SHARE",
    help="Smallest relative difference that is reported.",
)


def common(*names: str, own_config: bool = False) -> Callable[[Command], Command]:
    """Adds the console options, and the named ones of SHARED, to a click command or group.

    names: output launcher hosts ntasks budget precision seed dry_run. The command receives them as keywords of that
    name, budget as `budget_s` (s). Options that were not given are None (launcher: "auto", dry_run: False).

    own_config: the command's --config is a file of its own, so the command reads no defaults from it.
    """
    console = [option for option in _CONSOLE if not (own_config and option is _CONFIG)]
    chosen = [*(SHARED[name] for name in names), *console]

    def decorate(command: Command) -> Command:
        for option in reversed(chosen):
            command = option(command)
        return command

    return decorate


def arrange(command: click.Command) -> click.Command:
    """The command with a help that shows its own options first, then the shared ones, then the console's.

    Its group's list shows the whole first paragraph of its help, which click would cut short; the same holds for all
    commands below a group. The order within each kind of options stays.
    """
    command.params.sort(key=_place)
    if command.help and not command.short_help:
        command.short_help = " ".join(command.help.strip().partition("\n\n")[0].split()).rstrip(".")
    if isinstance(command, click.Group):
        for child in command.commands.values():
            arrange(child)
    return command


def _place(param: click.Parameter) -> int:
    return 2 if isinstance(param, ConsoleOption) else 1 if isinstance(param, SharedOption) else 0

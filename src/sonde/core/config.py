"""Defaults from a TOML file.

    color = "never"          # above all tables: every command that has this option
    [net]
    launcher = "srun"        # every verb of net
    [net.run]
    sizes = "0:1000:100"     # `sonde net run`

A key is an option's long name; the command line overrides it. Only the tables that lead to the running command are
read, which keeps the start quick. Not a pure module: it reads the file.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from sonde.core.errors import SondeError, UsageError, nearest

LONGEST = 1 << 20  # bytes; a config file is small
HERE = Path("sonde.toml")
NOT_HERE = ("agent", "env", "listen", "module", "profile", "server", "user")
"""Settings that choose what runs, who gets access, and where secrets go. They are never read from the current folder,
which may be somebody's repository.
"""


def find(
    named: Path | None,
    environ: Mapping[str, str] = os.environ,
    system: Path = Path("/etc"),
    passed_over: Callable[[str], None] = lambda why: None,
) -> Path | None:
    """The config file in force: `named`, else $SONDE_CONFIG, else the first that exists of the usual places.

    None if there is no such file, or if $SONDE_CONFIG is set and empty. Files of other users are skipped; passed_over
    is called with the reason.
    """
    if named:
        return named
    if "SONDE_CONFIG" in environ:
        return Path(environ["SONDE_CONFIG"]) if environ["SONDE_CONFIG"] else None
    user = Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or "/") / ".config")
    for place in (HERE, user / "sonde" / "config.toml", system / "sonde" / "config.toml"):
        if not place.is_file():
            continue
        if why := _not_ours(place):
            passed_over(f"{place} is not read: {why}; to read it, type --config {place}")
            continue
        return place
    return None


def _not_ours(place: Path) -> str:
    """The reason why this user may not have written the file; "" if there is no such reason."""
    own = os.geteuid()
    if place == HERE and own == 0:
        return "root reads no defaults from the current folder"
    try:
        file, folder = place.stat(), place.absolute().parent.stat()
    except OSError as error:
        return (error.strerror or str(error)).lower()
    for what, found in (("the file", file), ("its folder", folder)):
        if found.st_uid not in (own, 0):
            return f"{what} belongs to user {found.st_uid}"
        if found.st_mode & stat.S_IWOTH and not (what != "the file" and found.st_mode & stat.S_ISVTX):
            return f"everybody may write {what}"
    return ""


def read(path: Path) -> Config:
    """Reads a config file.

    Raises
    ------
    UsageError  core.no_config: it cannot be read; core.bad_config: it is not TOML, with the line.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(LONGEST + 1)
    except OSError as error:
        raise UsageError(
            "core.no_config",
            f"config file {path} cannot be read: {(error.strerror or str(error)).lower()}",
            "name another with --config or $SONDE_CONFIG",
        ) from None
    if len(raw) > LONGEST:
        raise UsageError("core.bad_config", f"{path} is larger than {LONGEST} bytes, so it is no config file")
    try:
        text = raw.decode()
        return Config(path, toml(text), lines_of(text))
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise UsageError("core.bad_config", f"{path}:{line}: not UTF-8", "save it as UTF-8") from None
    except ValueError as error:
        at = re.search(r" \(at line (\d+), column \d+\)", str(error))
        line = int(at[1]) if at else text.count("\n") + 1
        why = str(error).replace(at[0], "") if at else str(error)
        hint = 'a text stands in quotes: budget = "60s"'
        raise UsageError("core.bad_config", f"{path}:{line}: not TOML: {why}", hint) from None


def toml(text: str) -> dict[str, Any]:
    """The values in a TOML text. Whole numbers have 64 bits, as in TOML: a larger one could not even be printed.

    Raises
    ------
    ValueError  tomllib.TOMLDecodeError among others: it is not TOML, nested too deep, or has a number that is too
    large.
    """
    import tomllib  # imported here: most starts have no config file, and --help must be quick

    try:
        table = tomllib.loads(text)
        _check_numbers(table)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    return table


def _check_numbers(value: Any) -> None:
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            _check_numbers(one)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"a whole number of {value.bit_length()} bits; allowed: 64 bits, with its sign")


@dataclass(frozen=True)
class Config:
    """A config file that was read: its values, and the line of each key."""

    path: Path
    data: Mapping[str, Any]
    lines: Mapping[tuple[str, ...], int]

    def defaults(self, context: click.Context, shared: Iterable[str]) -> dict[str, Any]:
        """Defaults for the command of `context`, by parameter name, as click's default_map wants them.

        shared: names of the options that may stand above all tables.

        Raises
        ------
        UsageError  core.bad_config: an unknown key, with the nearest known one, or a value it refuses.
        """
        chain = [context]
        while chain[0].parent:
            chain.insert(0, chain[0].parent)
        options = {key_of(param): param for param in context.command.params if _is_key(param)}
        of_folder = self.path == HERE
        values: dict[str, Any] = {}
        table: Mapping[str, Any] = self.data
        place: tuple[str, ...] = ()
        for depth, step in enumerate(chain):
            self._check_keys(step, table, place, shared if depth == 0 else None)
            for key, value in table.items():
                if of_folder and key in NOT_HERE and not isinstance(value, dict):
                    what = f"'{key}' is not read from the current folder, which others may have created"
                    raise self._bad((*place, key), what, f"type --{key}, or name the file: --config ./{HERE}")
                if key in options and not isinstance(value, dict):
                    values[str(options[key].name)] = self._checked(
                        context, options[key], value, (*place, key)
                    )
            if depth + 1 < len(chain):
                place = (*place, str(chain[depth + 1].info_name))
                table = table.get(place[-1], {})
        return values

    def _check_keys(
        self,
        step: click.Context,
        table: Mapping[str, Any],
        place: tuple[str, ...],
        shared: Iterable[str] | None,
    ) -> None:
        tables: list[str] = []
        if isinstance(step.command, click.Group):
            tables = step.command.list_commands(step)
            if shared is not None:
                keys = {name.replace("_", "-") for name in shared}
            else:
                verbs = [step.command.get_command(step, name) for name in tables]
                keys = {key_of(param) for verb in verbs if verb for param in verb.params if _is_key(param)}
        else:
            keys = {key_of(param) for param in step.command.params if _is_key(param)}
        for key, value in table.items():
            if key in tables and isinstance(value, dict):
                continue
            if key in keys and not isinstance(value, dict):
                continue
            where = f" in [{'.'.join(place)}]" if place else ""
            known = tables if isinstance(value, dict) else sorted(keys)
            if key in tables or key in keys:
                fault = f"'{key}'{where} is a {'table' if key in tables else 'value, not a table'}"
                raise self._bad(
                    (*place, key), fault, f"write [{'.'.join((*place, key))}]" if key in tables else ""
                )
            what = "table" if isinstance(value, dict) else "key"
            allowed = f"allowed: {', '.join(known)}" if known else "this table has no tables below it"
            raise self._bad((*place, key), f"unknown {what} '{key}'{where}{nearest(key, known)}", allowed)

    def _checked(
        self, context: click.Context, param: click.Parameter, value: Any, place: tuple[str, ...]
    ) -> Any:
        """`value` as the option's type reads it; an error names its place in the file."""
        flag = isinstance(param, click.Option) and param.is_flag
        if flag != isinstance(value, bool):
            takes = "allowed: true, false" if flag else f"allowed: {allowed(param)}"
            raise self._bad(place, f"{place[-1]} is {_shown(value)}; {takes}")
        if not flag and not param.multiple:
            if isinstance(value, list):
                value = ",".join(str(v) for v in value)
            elif not isinstance(value, str):
                value = str(value)
        try:
            param.type_cast_value(context, value)
        except SondeError as error:
            why = error.what.removeprefix(f"{spelt(param)}: ")
            raise self._bad(place, f"{place[-1]}: {why}", error.hint) from None
        except click.UsageError:
            raise self._bad(place, f"{place[-1]} is {_shown(value)}; allowed: {allowed(param)}") from None
        return value

    def _bad(self, place: Sequence[str], what: str, hint: str = "") -> UsageError:
        line = next(
            (
                self.lines[tuple(place[:n])]
                for n in range(len(place), 0, -1)
                if tuple(place[:n]) in self.lines
            ),
            1,
        )
        return UsageError("core.bad_config", f"{self.path}:{line}: {what}", hint)


def spelt(param: click.Parameter) -> str:
    """The name of a parameter on the command line: "--sizes", or FILE for an argument."""
    return max(param.opts, key=len) if isinstance(param, click.Option) else param.human_readable_name


def key_of(param: click.Parameter) -> str:
    """The key of an option in a config file: its long name without dashes in front."""
    return spelt(param).lstrip("-")


def _is_key(param: click.Parameter) -> bool:
    return isinstance(param, click.Option) and key_of(param) not in ("help", "version", "config")


def allowed(param: click.Parameter) -> str:
    """The values that a parameter takes, as text."""
    if text := getattr(param.type, "allowed", ""):
        return str(text)
    if isinstance(param.type, click.Choice):
        return ", ".join(str(choice) for choice in param.type.choices)
    if isinstance(param.type, click.IntRange):
        low, high = param.type.min, param.type.max
        return f"whole numbers {low} to {high}" if high is not None else f"whole numbers from {low} up"
    if isinstance(param.type, click.types.IntParamType):
        return "whole numbers"
    if isinstance(param.type, click.FloatRange):
        least, most = param.type.min, param.type.max
        if least is not None:
            bound = "above" if param.type.min_open else "from"
            return f"numbers {bound} {least:g}" + ("" if most is None else f" to {most:g}")
        if most is not None:
            return f"numbers up to {most:g}"
    if isinstance(param.type, click.types.FloatParamType):
        return "numbers"
    return f"a text ({param.type.name})"


def _shown(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"'{text}'" if len(text) <= 40 else f"'{text[:37]}...'"


# Compiled when they are used: most starts read no config file.
_PART = r"(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')"
_KEY = rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*="
_TABLE = rf"\s*\[\[?\s*({_PART}(?:\s*\.\s*{_PART})*)\s*\]\]?\s*(?:#.*)?$"


def lines_of(text: str) -> dict[tuple[str, ...], int]:
    """The line of each key and table, which tomllib does not report. A line inside a long text may mislead."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(_TABLE, line):
            table = _split(match[1])
            found.setdefault(table, number)
        elif match := re.match(_KEY, line):
            parts = (*table, *_split(match[1]))
            for n in range(len(table) + 1, len(parts) + 1):
                found.setdefault(parts[:n], number)
    return found


def _split(key: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in re.findall(_PART, key))

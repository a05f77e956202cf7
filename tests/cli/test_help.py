"""--help of every command: it fits a terminal, and shows the options that all commands have."""

from __future__ import annotations

import click
import pytest

from sonde.cli import commands
from sonde.core.errors import EnvironmentFailure
from sonde.core.options import CONSOLE_NAMES


def every_command() -> list[tuple[str, ...]]:
    """The words of every command of the table that can be loaded here, groups included."""
    found: list[tuple[str, ...]] = [()]

    def walk(words: tuple[str, ...], command: click.Command) -> None:
        found.append(words)
        if isinstance(command, click.Group):
            for name, child in command.commands.items():
                walk((*words, name), child)

    for name in commands.COMMANDS:
        try:
            walk((name,), commands.load(name))
        except EnvironmentFailure:
            assert name not in ("doctor",), f"{name} must always be there"
    return found


WORDS = every_command()


@pytest.fixture(autouse=True)
def no_help_option_of_another_root():
    """click stores a command's help option at its first use; a unit test may have called it outside `sonde`."""

    def forget(command: click.Command) -> None:
        if hasattr(command, "_help_option"):
            command._help_option = None
        for below in getattr(command, "commands", {}).values():
            forget(below)

    for words in WORDS:
        if len(words) == 1:
            forget(commands.load(words[0]))


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_help_fits_eighty_columns_and_says_something(sonde, words):
    ran = sonde(*words, "--help")
    assert ran.code == 0
    assert ran.err == ""
    lines = ran.out.splitlines()
    assert lines[0].startswith("Usage: sonde")
    assert [line for line in lines if len(line) > 80] == []
    assert lines[2].strip(), "a command says in its first line what it does"
    assert sonde(*words, "-h").out == ran.out


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_every_command_has_the_console_options(words):
    command: click.Command = commands.root
    for word in words:
        command = commands.load(word) if command is commands.root else command.commands[word]
    if isinstance(command, click.Group) and words:
        return  # a room's group has no options: they come before the room or after the verb
    names = {param.name for param in command.params}
    assert set(CONSOLE_NAMES) <= names


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_every_option_has_a_help_text(words):
    command: click.Command = commands.root
    for word in words:
        command = commands.load(word) if command is commands.root else command.commands[word]
    silent = [param.name for param in command.params if isinstance(param, click.Option) and not param.help]
    assert silent == []


def test_the_first_help_names_every_command_without_loading_it(sonde, monkeypatch):
    def refuse(name: str) -> click.Command:
        raise AssertionError(f"{name} was loaded")

    monkeypatch.setattr(commands, "load", refuse)
    out = sonde("--help").out
    for name, entry in commands.COMMANDS.items():
        assert f"  {name} " in out
        assert entry.text.split()[0] in out


def test_sonde_alone_prints_its_help_as_a_usage_error(sonde):
    ran = sonde()
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err == sonde("--help").out


def test_a_room_alone_prints_its_help_as_a_usage_error(sonde):
    ran = sonde("fake")
    assert ran.code == 2
    assert ran.err == sonde("fake", "--help").out


def test_version(sonde):
    import sonde as package

    ran = sonde("--version")
    assert ran.code == 0
    assert ran.out == f"sonde {package.__version__}\n"

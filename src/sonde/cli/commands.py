"""The table of commands, and the group that loads one only when it is called."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

import sonde
from sonde.core.errors import EnvironmentFailure
from sonde.core.options import Settings, arrange, common
from sonde.core.room import rooms

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


@dataclass(frozen=True)
class Command:
    """The place of a command and its line in --help, so that --help need not load it."""

    module: str
    attribute: str
    text: str
    section: str


ROOMS, FILES, HERE = "Rooms", "Everything at once", "Files and machine"
COMMANDS = {
    **{room.name: Command(f"sonde.{room.name}.cli", "group", room.help, ROOMS) for room in rooms()},
    "survey": Command(
        "sonde.survey.cli", "command", "Quick form of every room, ending in one report.", FILES
    ),
    "check": Command(
        "sonde.survey.cli", "check", "Compare this machine with limits; exit 1 on a finding.", FILES
    ),
    "report": Command("sonde.report.cli", "command", "One self-contained HTML page from datasets.", HERE),
    "data": Command("sonde.data.cli", "group", "Validate, convert, compare, recover any dataset.", HERE),
    "cluster": Command(
        "sonde.cluster.cli", "group", "Virtual nodes on this machine for tests of parallel programs.", HERE
    ),
    "doctor": Command(
        "sonde.cli.doctor", "command", "Show what is built, what works here, what to install.", HERE
    ),
}


class Root(click.Group):
    """`sonde`: its commands are those of the table."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        return load(name) if name in COMMANDS else None

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in COMMANDS:  # set before it loads, so that a failure to load is reported for this room
            context.ensure_object(Settings).command = [args[0]]
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        for section in dict.fromkeys(command.section for command in COMMANDS.values()):
            with formatter.section(section):
                rows = [(name, c.text) for name, c in COMMANDS.items() if c.section == section]
                formatter.write_dl(rows, col_spacing=4)

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer the table's names without loading their commands."""
        from click.shell_completion import CompletionItem

        names = [(name, entry.text) for name, entry in COMMANDS.items() if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, context, incomplete)
        return [*(CompletionItem(name, help=text) for name, text in names), *options]


def load(name: str) -> click.Command:
    """The click command for a name of the table.

    Raises
    ------
    EnvironmentFailure  core.room_missing: its module, or one that it imports, is not installed.
    """
    entry = COMMANDS[name]
    try:
        command = getattr(importlib.import_module(entry.module), entry.attribute)
    except ModuleNotFoundError as error:
        missing = error.name or str(error)
        what = f"needs the module '{missing}', which is not installed"
        if entry.module.startswith(missing):
            what = "not part of this installation"
        elif missing.startswith("sonde."):
            what = f"incomplete in this installation: {missing} is missing"
        hint = "'sonde doctor' shows what is missing and what to install"
        raise EnvironmentFailure("core.room_missing", what, hint) from error
    except (ImportError, AttributeError) as error:
        hint = "build it again ('make setup'), or run 'sonde doctor'"
        raise EnvironmentFailure("core.room_missing", f"does not load: {error}", hint) from error
    assert isinstance(command, click.Command)
    return arrange(command)


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog="\b\nMore: sonde <command> --help. Docs: docs/reference/cli.md\nWords: docs/reference/glossary.md",
    subcommand_metavar="COMMAND [VERB]",
)
@click.version_option(sonde.__version__, message="sonde %(version)s")
@common()
def root() -> None:
    """See, steer and swap the layers between a parallel application and the hardware.

    Each command reports the cost of its layer, from measurements that can be checked again years later.
    """

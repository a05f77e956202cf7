"""Manual pages from the commands themselves: `python -m sonde.cli.manual DIR` writes DIR/man1/sonde*.1."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

import sonde
from sonde.cli.commands import COMMANDS, load, root
from sonde.core.errors import EnvironmentFailure, Exit

Words = tuple[str, ...]

EXITS = {
    Exit.DONE: "done",
    Exit.FINDING: "finding (check, diff, noise run)",
    Exit.USAGE: "usage",
    Exit.ENVIRONMENT: "environment",
    Exit.INCOMPLETE: "a requested cell has no data, or the result is inconclusive",
    Exit.INTERNAL: "internal",
    Exit.INTERRUPTED: "interrupted, saved",
}


def commands() -> Iterator[tuple[Words, click.Command]]:
    """Every command with its words, the root first. Rooms that do not load are left out."""
    yield (), root
    for name in COMMANDS:
        try:
            yield from _below((name,), load(name))
        except EnvironmentFailure:
            continue


def _below(words: Words, command: click.Command) -> Iterator[tuple[Words, click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        for name, child in sorted(command.commands.items()):
            yield from _below((*words, name), child)


def page(words: Words, command: click.Command) -> str:
    """One manual page, in man(7) roff."""
    name = "-".join(("sonde", *words))
    names = root.context_settings["help_option_names"]
    context = click.Context(command, info_name=" ".join(("sonde", *words)), help_option_names=names)
    text = (command.help or "").replace("\b\n", "")
    first, _, rest = text.strip().partition("\n\n")
    short = " ".join(first.split()).rstrip(".")
    usage = " ".join(context.command_path.split()) + " " + " ".join(command.collect_usage_pieces(context))
    lines = [
        f'.TH {_quoted(name.upper())} 1 "" {_quoted(f"sonde {sonde.__version__}")} "Sonde"',
        ".SH NAME",
        f"{_escaped(name)} \\- {_escaped(short)}",
        ".SH SYNOPSIS",
        f"\\fB{_escaped(usage)}\\fR",
        ".SH DESCRIPTION",
        *_paragraphs(rest.strip() or first),
    ]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for child in command.list_commands(context):
            summary = COMMANDS[child].text if command is root else _short(command.get_command(context, child))
            lines += [".TP", f"\\fB{_escaped(child)}\\fR", _escaped(summary)]
    lines.append(".SH OPTIONS")
    for param in command.get_params(context):
        if record := param.get_help_record(context):
            lines += [".TP", f"\\fB{_escaped(record[0])}\\fR", _escaped(record[1])]
    lines.append(".SH EXIT STATUS")
    for code, meaning in EXITS.items():
        lines += [".TP", f"\\fB{int(code)}\\fR", _escaped(meaning)]
    return "\n".join(lines) + "\n"


def write(folder: Path) -> list[Path]:
    """Writes all pages below `folder`, and returns their paths."""
    place = folder / "man1"
    place.mkdir(parents=True, exist_ok=True)
    written = []
    for words, command in commands():
        path = place / f"{'-'.join(('sonde', *words))}.1"
        path.write_text(page(words, command), encoding="utf-8")
        written.append(path)
    return written


def _short(command: click.Command | None) -> str:
    return command.get_short_help_str(200) if command else ""


def _paragraphs(text: str) -> list[str]:
    lines: list[str] = []
    for part in text.split("\n\n"):
        verbatim = part.lstrip().startswith(("sonde ", "$ "))
        body = [_escaped(line) for line in part.splitlines()]
        lines += [".PP", *([".nf", *body, ".fi"] if verbatim else body)]
    return lines


def _escaped(text: str) -> str:
    """Text with roff's special characters escaped: backslashes, dashes to be copied, a dot at the beginning of a
    line.
    """
    plain = text.replace("\\", "\\e").replace("-", "\\-").strip()
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


def _quoted(text: str) -> str:
    return '"' + text.replace('"', "") + '"'


if __name__ == "__main__":
    for path in write(Path(sys.argv[1] if len(sys.argv) == 2 else "man")):
        print(path)

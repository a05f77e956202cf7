"""The one place that prints: results to stdout, the rest to stderr."""

from __future__ import annotations

import codecs
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO

from sonde.cli import streams
from sonde.cli.faults import Fault
from sonde.core.errors import Exit, Finding, UsageError
from sonde.core.events import NullProgress, Progress
from sonde.core.options import Settings
from sonde.core.outcome import Outcome, Table
from sonde.core.printable import SPELT, encodable, one_line, printable, printable_json

if TYPE_CHECKING:
    from rich.console import Console as Rich

MARKS = {"✓": "green", "!": "yellow", "✗": "red"}  # cells of a table that contain only a mark
WIDEST = 110  # columns; longer lines are hard to read
# A command within a text: "... with: sonde io show a.nc", "run 'make setup' again".
# No line breaks between a number and its unit.
_UNITS = r"(?:%|[nµm]?s|min|h|[kKMGT]?i?B(?:/s)?|[kMG]? ?(?:/s|messages/s)|[mkM]?[WJ]|[kMG]?Hz|°C)(?![\w])"
UNIT = re.compile(rf"(?<=\d) (?={_UNITS})")
# A number in a cell, with its sign, its unit and similar parts: "-5.9 %", "1e-05", "2026-11-26".
NUMBER = re.compile(
    rf"\d{{4}}-\d\d-\d\d|(?:(?<!\w)[-+±−~≈≤≥<>])?\d(?:[.,:]?\d)*(?:[eE][-+]?\d+)?(?: ?{_UNITS})?"
)
COMMAND = re.compile(r"(?<=: )(?:sonde|pip) [^;]*|'(?:sonde|pip|make|mount) [^']*'")


def foreseen(arguments: Sequence[str]) -> Settings:
    """Console options read from the command line before it is parsed, for errors on the way there."""
    arguments = arguments[: arguments.index("--")] if "--" in arguments else arguments
    settings = Settings(json="--json" in arguments, debug="--debug" in arguments)
    for argument, value in zip(arguments, [*arguments[1:], ""]):
        if argument == "--color" and value in ("always", "never"):
            settings.color = value
        elif argument in ("--color=always", "--color=never"):
            settings.color = argument.removeprefix("--color=")
    return settings


class Console:
    """Prints an Outcome or a Fault as the settings require, and returns the exit code."""

    def __init__(self, settings: Settings, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.settings = settings
        self.out, self.err = out or sys.stdout, err or sys.stderr
        settings.bar, settings.say, settings.screen = self.bar, self.say, self.screen
        for stream in (self.out, self.err):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(
                    errors=SPELT
                )  # a terminal without µ must neither end a run nor lose the unit

    def show(self, outcome: Outcome) -> int:
        """Print a command's result. The exit code does not change when the reader of stdout has gone."""
        with suppress(streams.ReaderGone):
            self._result(outcome)
            self.out.flush()
        if self.settings.json or outcome.stream is not None:
            return self.close(outcome.exit)
        if outcome.warnings and _is_terminal(self.err):
            self.err.write("\n")
        for warning in outcome.warnings:
            self._message("warning", "33", warning.evidence, [("hint", warning.hint)])
        return self.close(outcome.exit)

    def _result(self, outcome: Outcome) -> None:
        if outcome.stream is not None:
            self._pour(outcome.stream)
        elif self.settings.json:
            self._json(
                outcome.as_json() | ({} if outcome.document is None else {"document": outcome.document})
            )
        elif outcome.document is not None:
            # A file or the reader of a pipe gets every byte: it may be data.
            self.out.write(printable(outcome.document) if _is_terminal(self.out) else outcome.document)
        else:
            self._render(outcome)

    def fail(self, fault: Fault, error: BaseException) -> int:
        """Print an error."""
        room, verb, *_ = [*self.settings.command, "", ""]
        if self.settings.debug:
            import traceback

            self.err.write(printable("".join(traceback.format_exception(error))))
        document: dict[str, Any] = {"error": fault.as_json(), "room": room, "verb": verb}
        if fault.warnings:
            document["warnings"] = [warning.as_json() for warning in fault.warnings]
        unwritable = isinstance(error, OSError) and error.filename == streams.STDOUT
        if self.settings.json and not unwritable and self._took(document):
            pass
        elif fault.exit == Exit.INTERRUPTED:
            bare = fault.what == "interrupted"  # raised by Python itself
            self.err.write(printable(f"\n{fault.what if bare or not room else f'{room}: {fault.what}'}\n"))
            self._message("  hint", "36", fault.hint, [])
        else:
            for warning in fault.warnings:  # above the error, because the last line is the result
                self._message("warning", "33", warning.evidence, [("hint", warning.hint)])
            what = f"{room}: {fault.what}" if room else fault.what
            self._message("error", "1;31", what, [("hint", fault.hint), ("log", fault.log)])
        return self.close(fault.exit)

    def _took(self, value: Any) -> bool:
        """Prints JSON; False if stdout itself fails (`> /dev/full`)."""
        try:
            self._json(value)
            self.out.flush()
        except streams.ReaderGone:
            return True
        except OSError:
            return False
        return True

    def help(self, text: str) -> int:
        """Print the help of a group without a verb, as an error."""
        self.err.write(printable(text) + "\n")
        return self.close(Exit.USAGE)

    def close(self, code: int) -> int:
        """Flush, so that a reader that has gone is noticed here and not at the interpreter's end."""
        self.out.flush()
        self.err.flush()
        return int(code)

    def say(self, text: str) -> None:
        """Print a line for a person at once; a line that begins with a blank is a command to copy, and is not
        wrapped.
        """
        for line in printable(text).splitlines():
            self.err.write("".join(f"{part}\n" for part in _wrapped(line, _width(self.err))))
        self.err.flush()

    def screen(self, lines: Sequence[str]) -> None:
        """Show a screenful in place of the one before; below it if stdout is not a terminal."""
        text = "".join(f"{printable(line)}\n" for line in lines)
        # Go to the top, draw each line to its end, then clear below: clearing everything first would flicker.
        drawn = "\x1b[H" + text.replace("\n", "\x1b[K\n") + "\x1b[J" if _is_terminal(self.out) else text
        self.out.write(drawn)
        self.out.flush()

    def _pour(self, stream: Iterable[bytes]) -> None:
        """Write bytes to stdout. A terminal gets only text, and only complete characters."""
        raw = self.out.buffer
        guarded = _is_terminal(self.out)
        decoder = codecs.getincrementaldecoder("utf-8")()
        for piece in stream:
            if guarded and not _readable(piece, decoder):
                raise UsageError(
                    "core.binary",
                    "this output is not text, and stdout is a terminal",
                    "write it to a file, or pipe it: ... | od -c",
                )
            raw.write(piece)
            raw.flush()  # readers want events of a daemon at once

    def bar(self, title: str, budget_s: float | None = None) -> Progress:
        """A progress bar on stderr if the settings want one, otherwise an object that draws nothing."""
        wanted = self.settings.progress
        if wanted == "never" or (wanted == "auto" and (self.settings.json or not _is_terminal(self.err))):
            return NullProgress()
        from sonde.cli.bar import Bar

        return Bar(self._rich(self.err, force=True), title, budget_s)

    def _colour(self, stream: TextIO) -> bool:
        if self.settings.color != "auto":
            return self.settings.color == "always"
        return _is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def _rich(self, stream: TextIO, force: bool = False) -> Rich:
        from rich.console import Console as Rich

        colour = self._colour(stream)
        return Rich(
            file=stream,
            width=_width(stream),
            force_terminal=colour or force,
            no_color=not colour,
            # Sixteen colours follow the terminal's theme, so that text stays readable on dark and light ones.
            color_system="standard" if colour else None,
            highlight=False,
            markup=False,
            emoji=False,
        )

    def _json(self, value: Any) -> None:
        import json

        ascii_only = (getattr(self.out, "encoding", None) or "utf-8").lower().replace("-", "") != "utf8"
        text = json.dumps(plain(value), ensure_ascii=ascii_only, allow_nan=False, indent=2)
        self.out.write(printable_json(text) + "\n")

    def _message(self, kind: str, style: str, what: str, more: Sequence[tuple[str, str]]) -> None:
        """`kind: what` and its indented lines on stderr, wrapped with a hanging indent."""
        colour, width = self._colour(self.err), _width(self.err)
        parts = [(kind, what, style), *((f"  {label}", text, "36") for label, text in more)]
        for label, text, paint in parts:
            if not text:
                continue
            head = f"{label}:".ljust(8 if label.startswith("  ") else 0) + " " * (not label.startswith("  "))
            lines = [
                line for part in printable(text).splitlines() for line in _wrapped(part, width - len(head))
            ]
            shown = f"\n{' ' * len(head)}".join(lines)
            self.err.write((f"\x1b[{paint}m{head}\x1b[0m" if colour else head) + shown + "\n")

    def _render(self, outcome: Outcome) -> None:
        """Draw into memory first: rich pads lines with blanks, which disturb copying and diffs."""
        from rich.padding import Padding
        from rich.text import Text

        to = self.err if outcome.beside else self.out
        rich, outcome = self._rich(to), _printable(outcome, getattr(to, "encoding", None) or "utf-8")
        good = (outcome.exit == Exit.DONE or outcome.meant) and not outcome.findings and outcome.sound
        with rich.capture() as drawn:
            if outcome.verdict:
                mark, colour = ("✓", "green") if good else ("!", "yellow")
                verdict = "\n".join(
                    part for line in outcome.verdict.splitlines() for part in _wrapped(line, rich.width - 2)
                )
                rich.print(_hanging(Text(mark, f"bold {colour}"), Text(verdict, "bold")))
            for line in outcome.lines:
                for part in _wrapped(line, rich.width - 2):
                    rich.print(Text(f"  {part}"), soft_wrap=True)
            for table in outcome.tables:
                rich.print()
                rich.print(Padding(_table(table, rich.width - 2), (0, 0, 0, 2)))
            for finding in outcome.findings:
                rich.print()
                text = Text(f"{finding.text}  ").append(finding.code, "dim")
                rich.print(_hanging(Text("!", "bold yellow"), text))
                if finding.next:
                    rich.print(
                        Text("  next: ", "cyan").append(_next(finding, rich.width), "default"), soft_wrap=True
                    )
            path = outcome.values.get("report") or outcome.dataset  # the user asked for the page
            if path:
                rich.print()
                rich.print(Text("→ ", "cyan").append(path, "default"), soft_wrap=True)
        to.write("".join(f"{_trimmed(line)}\n" for line in drawn.get().splitlines()))
        to.flush()  # before the texts on stderr


def plain(value: Any) -> Any:
    """A value that JSON can hold: NaN and infinities become null, numpy's numbers plain ones, paths texts. A byte of a
    name that is no text becomes its number, because most readers of JSON refuse surrogates.
    """
    if isinstance(value, dict):
        return {encodable(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return encodable(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if hasattr(value, "tolist"):  # numpy, without importing it
        return plain(value.tolist())
    return encodable(str(value))


def _printable(outcome: Outcome, encoding: str) -> Outcome:
    """The drawn parts of an outcome: each of them may contain names and texts of others.

    Characters outside of the encoding are spelt before the layout: a spelling may take more columns.
    """

    def of(text: str) -> str:
        return printable(text).encode(encoding, SPELT).decode(encoding)

    def cell(text: str) -> str:
        return of(one_line(text))

    def of_table(table: Table) -> Table:
        rows = [[cell(text) for text in row] for row in table.rows]
        columns = [cell(name) for name in table.columns]
        return replace(table, title=of(table.title), columns=columns, rows=rows, note=of(table.note))

    findings = [
        replace(one, text=of(one.text), code=of(one.code), next=of(one.next)) for one in outcome.findings
    ]
    values = {"report": cell(str(page))} if (page := outcome.values.get("report")) else {}
    return replace(
        outcome,
        verdict=of(outcome.verdict),
        lines=[of(line) for line in outcome.lines],
        tables=[of_table(table) for table in outcome.tables],
        findings=findings,
        values=values,
        dataset=cell(outcome.dataset) if outcome.dataset else None,
    )


def _wrapped(line: str, width: int) -> list[str]:
    """Lines of at most `width` columns. No word is broken: it may be a path. A command stays one line: a terminal
    copies it as one line, even if it shows it as two.
    """
    import textwrap

    if line.startswith(" "):
        return [line]
    glued = UNIT.sub("\0", COMMAND.sub(lambda found: found[0].replace(" ", "\0"), line))
    lines = textwrap.wrap(glued, max(20, width), break_long_words=False, break_on_hyphens=False) or [""]
    return [one.replace("\0", " ") for one in lines]


def _next(finding: Finding, width: int) -> str:
    """The advice of a finding after "  next: ": a command unbroken; words in wrapped lines."""
    if finding.is_command:
        return finding.next
    head = len("  next: ")
    return f"\n{' ' * head}".join(_wrapped(finding.next, width - head))


def _trimmed(line: str) -> str:
    """A line without blanks at its end; a colour that is switched off after them stays switched off."""
    return re.sub(r"(?: |\x1b\[[0-9;]*m)+$", lambda end: end[0].replace(" ", ""), line)


def _readable(piece: bytes, decoder: codecs.IncrementalDecoder) -> bool:
    """Whether a terminal can show the piece. The decoder holds a character that the end of the piece cuts."""
    try:
        return all(char.isprintable() or char in "\t\n\r" for char in decoder.decode(piece))
    except UnicodeDecodeError:
        return False


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def _width(stream: TextIO) -> int:
    """The number of columns to use: $COLUMNS, else the terminal's up to WIDEST, else 80."""
    if (asked := os.environ.get("COLUMNS", "")).isdecimal() and int(asked) > 0:
        return int(asked)
    try:
        return min(WIDEST, os.get_terminal_size(stream.fileno()).columns) or 80
    except (OSError, ValueError):  # not a terminal, no descriptor, or closed
        return 80


def _hanging(mark: Any, text: Any) -> Any:
    """Text next to a mark, wrapped so that its lines begin at the same column."""
    from rich.table import Table as Grid

    grid = Grid.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=1)
    grid.add_column(overflow="fold")
    grid.add_row(mark, text)
    return grid


# After these characters a name may continue on the next line, except within a number.
_SEAMS = re.compile(r"(?<=[_/=.,:;-])(?!:)(?=.)|(?<= )")
_LEAST = 8  # columns, at least, of a text that is cut into lines
_BETWEEN = 3  # space between two columns of a table


def _widths(table: Table, width: int) -> list[int] | None:
    """The widths of the columns of a table that is wider than the terminal. Words and names shrink first, from the
    widest column on, then numbers, between their words. None if the table fits unchanged; [] if no widths leave every
    number in one piece.
    """
    cells = [[row[k] for row in table.rows] for k in range(len(table.columns))]
    widest = [max(map(len, (head, *below)), default=0) for head, below in zip(table.columns, cells)]
    room = width - _BETWEEN * (len(widest) - 1)
    if sum(widest) <= room:
        return None

    def least(numbers: Callable[[str], int]) -> list[int]:
        heads = [_longest_word(head) for head in table.columns]
        pieces = [max(map(_longest_number, below), default=0) for below in cells]
        return [
            max(head, piece, *map(numbers, cells[k]), 0)
            if k in table.right
            else min(widest[k], max(head, piece, _LEAST))
            for k, (head, piece) in enumerate(zip(heads, pieces))
        ]

    floor = next((one for one in map(least, (len, _longest_word)) if sum(one) <= room), None)
    if floor is None:
        return []
    for k in table.right:  # a head with several words may take several lines
        widest[k] -= min(widest[k] - floor[k], sum(widest) - room)
    while sum(widest) > room:
        widest[max((k for k in range(len(widest)) if widest[k] > floor[k]), key=widest.__getitem__)] -= 1
    return widest


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)


def _longest_number(text: str) -> int:
    return max((len(found[0]) for found in NUMBER.finditer(text)), default=0)


def _in_lines(cell: str, width: int) -> str:
    """A cell in lines of at most `width`, broken at a seam of a name, else anywhere except within a number."""
    whole = {at for found in NUMBER.finditer(cell) for at in range(found.start() + 1, found.end())}
    seams = [found.start() for found in _SEAMS.finditer(cell) if found.start() not in whole]
    lines, begin = [], 0
    while len(cell[begin:].rstrip()) > width:
        fits = [at for at in seams if begin < at and len(cell[begin:at].rstrip()) <= width]
        anywhere = (at for at in range(min(begin + width, len(cell)), begin, -1) if at not in whole)
        end = fits[-1] if fits else next(anywhere, None)
        if end is None:  # a single number that is wider than the column
            end = next(at for at in range(begin + width, len(cell) + 1) if at not in whole)
        lines.append(cell[begin:end].rstrip())
        begin = end
    return "\n".join([*lines, cell[begin:].rstrip()])


def _below_each_other(table: Table, width: int) -> Any:
    """A table that is too wide for the terminal: the cells of each row below each other, with their names."""
    from rich.text import Text

    names = max((len(name) for name in table.columns), default=0)
    beside = names + 2 if names + 2 + _LEAST <= width // 2 + _LEAST else 2
    text = Text()
    for k, row in enumerate(table.rows):
        if k:
            text.append("\n\n")
        shown = [(name, cell) for name, cell in zip(table.columns, row) if cell]
        for n, (name, cell) in enumerate(shown):
            text.append("\n" if n else "")
            if name:
                text.append(name.ljust(names) + "  " if beside > 2 else f"{name}:\n  ", "dim")
            indent = beside if name else 0
            lines = _in_lines(cell, max(1, width - indent)).split("\n")
            text.append(f"\n{' ' * indent}".join(lines), MARKS.get(cell, ""))
    return text


def _table(table: Table, width: int) -> Any:
    from rich import box
    from rich.console import Group
    from rich.table import Table as Rich
    from rich.text import Text

    parts: list[Any] = [Text(table.title, "bold")] if table.title else []
    widths = _widths(table, width)
    drawn = Rich(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        show_header=any(table.columns),
        header_style="dim",
        border_style="dim",
    )
    for index, name in enumerate(table.columns):
        drawn.add_column(
            Text(name),
            justify="right" if index in table.right else "left",
            overflow="fold",
            width=widths[index] if widths else None,
        )
    for row in table.rows:
        cells = [_in_lines(cell, n) for cell, n in zip(row, widths)] if widths else row
        drawn.add_row(*(Text(cell, MARKS.get(cell, "")) for cell in cells))
    parts.append(_below_each_other(table, width) if widths == [] and table.rows else drawn)
    if table.note:
        lines = [part for line in table.note.splitlines() for part in _wrapped(line, width)]
        parts.append(Text("\n".join(lines), "dim"))
    return Group(*parts)

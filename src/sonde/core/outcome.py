"""The result of a command. A room returns it; only `sonde.cli` prints it and exits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sonde.core.errors import Exit, Finding, Warning, typed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


CUT = "…"  # marks a script that was cut short for the terminal


@dataclass(frozen=True)
class Table:
    """A table for the terminal: head and rows of finished text; columns in `right` are right-aligned.

    Without column names no head is drawn. A cell that is only ✓, ! or ✗ is drawn in its colour. names: columns whose
    head is a name, which never gets a capital letter.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[int] = ()  # indices of right-aligned columns
    note: str = ""
    names: Sequence[int] = ()


@dataclass
class Outcome:
    """The result of one command.

    room, verb: the command that ran. verdict: one sentence. schema, dataset, complete: the file that it wrote or read.
    findings, warnings: typed. values: the results of the verb, merged into the JSON object.
    tables, lines: the text on the terminal; a line that begins with a blank is a command to copy, and is not wrapped.
    sound: False if nothing is wrong but too little is known to be sure. The verdict then gives the reason. Its mark
    means the same in every command: docs/reference/cli.md, "Marks".
    document: raw text for stdout instead (CSV, Markdown). stream: raw bytes for stdout instead, taken piece by piece
    while they are written; a terminal gets them only if they are text. exit: the exit code; for `io run` and `cluster
    exec` that of the command which they ran. meant: it ended as intended, whatever its exit code is, such as a server
    that Ctrl-C ends. beside: stdout belongs to a command that it ran, and the result goes to stderr.
    """

    room: str
    verb: str
    verdict: str = ""
    schema: str | None = None
    dataset: str | None = None
    complete: bool = True
    findings: list[Finding] = field(default_factory=list)
    warnings: list[Warning] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    document: str | None = None
    stream: Iterable[bytes] | None = None
    sound: bool = True
    meant: bool = False
    beside: bool = False
    exit: Exit | int = Exit.DONE

    @classmethod
    def dry_run(
        cls,
        room: str,
        verb: str,
        plans: Sequence[Sequence[tuple[str, str]]],
        commands: Sequence[Sequence[str]],
        values: dict[str, Any],
        warnings: Sequence[Warning] = (),
    ) -> Outcome:
        """The steps of a command under --dry-run. plans: rows (what, value), one table each. commands: a command line
        each.

        An argument of several lines, a script, is shown by its first line only: it would fill the terminal.
        """
        shown = [[_first_line(argument) for argument in line] for line in commands]
        lines = ["It would start:", *(f"  {typed(*line)}" for line in shown)] if shown else []
        if shown != [list(line) for line in commands]:
            lines.append(f"Scripts are cut short at {CUT}; --json has the whole command.")
        return cls(
            room,
            verb,
            "nothing was done (--dry-run)",
            tables=[Table("Would measure", ("what", "value"), rows) for rows in plans],
            lines=lines,
            values=values,
            warnings=list(warnings),
        )

    def hold(self, found: Sequence[Finding], file: Path) -> None:
        """Record the result of a `check` of a file: findings, their number as the verdict, and the exit code."""
        self.findings = list(found)
        self.verdict = f"{len(found)} finding{'' if len(found) == 1 else 's'} in {file}"
        self.exit = Exit.FINDING if found else Exit.DONE

    def tell_interrupted(self, paths: Sequence[Path]) -> None:
        """Record that the user ended the command: before the verdict, in a first warning, and by the exit code."""
        self.exit = Exit.INTERRUPTED
        self.verdict = f"interrupted: {self.verdict}"
        saved = ", ".join(map(str, paths))
        evidence = f"interrupted before the end; the results until then are saved in {saved}"
        interrupted = Warning(f"{self.room}.interrupted", evidence, "run it again for the complete result")
        # The file has the same warning for later readers, about a run in the past: drop it here.
        self.warnings = [interrupted, *(w for w in self.warnings if w.code != "core.run_was_interrupted")]

    def as_json(self) -> dict[str, Any]:
        """The object that --json prints. See docs/reference/json.md."""
        return {
            "room": self.room,
            "verb": self.verb,
            "schema": self.schema,
            "dataset": self.dataset,
            "complete": self.complete,
            "verdict": self.verdict,
            "findings": [f.as_json() for f in self.findings],
            "warnings": [w.as_json() for w in self.warnings],
            **self.values,
        }


def _first_line(text: str) -> str:
    first, *others = [line.strip() for line in text.strip().splitlines()] or [""]
    return f"{first} {CUT}" if others else text

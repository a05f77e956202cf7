"""Comments and docstrings that a stranger reads twice, by patterns: a gate of `make check` (tests/gates.py).

    python tests/sentences.py FILE ...

Python: comments and docstrings; C and C++: comments. Prints a line for each place: where it is, and what to write
instead. Exit status: 0 none, 1 some.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

BEGINS = re.compile(r"(Of|Who|Whoever|That) [a-z]")
"""A sentence begins with its subject. (`What` stays out: it may begin a question.)"""

PHRASES = {
    r"(?<!there )\b(is|are) none\b": "there is no …",
    r"\bso many (?!\w+ as\b)": "this many, or the number itself",
    r"\b(is|are|was|were|be) told\b": "is reported, is named",
    r"\bsays of itself\b": "reports",
    r"\bwho asks\b": "the caller",
}
"""Patterns of the text, and what to write instead."""


def python_comments(text: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each comment and docstring."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#! ")
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.lineno, node.value.value.strip()


def cpp_comments(text: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each comment: lines of `//` that follow each other are one."""
    begun, block = 0, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        found = re.match(r"\s*//[/<!]*\s?(.*)", line) or re.search(r"\s//[/<!]*\s?(.*)", line)
        alone = bool(found) and line.lstrip().startswith("//")
        if block and not alone:
            yield begun, " ".join(block)
            block = []
        if found and not alone:
            yield number, found[1]
        elif found:
            begun = begun if block else number
            block.append(found[1])


def faults(path: str, text: str) -> Iterator[str]:
    """A line for each place."""
    comments = python_comments(text) if path.endswith(".py") else cpp_comments(text)
    for line, comment in comments:
        words = " ".join(comment.split())
        if found := BEGINS.match(words):
            yield f"{path}:{line}: begins with '{found[1]}': begin with the subject: {words[:60]}"
        for pattern, instead in PHRASES.items():
            if found := re.search(pattern, words):
                near = words[max(0, found.start() - 30) : found.end() + 20]
                yield f"{path}:{line}: '{found[0].strip()}': write {instead}: … {near}"


def main(paths: list[str]) -> int:
    found = [fault for path in paths for fault in faults(path, Path(path).read_text())]
    print("\n".join(found), end="\n" * bool(found))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

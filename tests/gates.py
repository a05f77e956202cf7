"""The gates of `make check` that read the sources and run nothing of them: layout, lint, types, spelling, scripts.

python tests/gates.py [--all] [--since REVISION] [NAME ...]

NAME: gates to run, by default all. clang-tidy takes a quarter of an hour for all of the C++ sources, so it reads those
that changed since the branch left its upstream (or REVISION), and all with --all. A gate without its tool is skipped
with the reason; with SONDE_TEST_REQUIRE=all that fails. Prints a line for each gate, with its seconds, and the output
of a failed one. Exit status: 0 all passed, 1 one failed, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
COMPILE_COMMANDS = ROOT / "build/Release"
OF_GCC = ("-mgeneral-regs-only", "-fno-tree-loop-distribute-patterns")
CPP = (".cpp", ".hpp", ".c", ".h")
# Files from other projects, generated files, and files that are wrong on purpose.
LEFT_OUT = ("third_party/", "tests/data/", "tests/cli/wording.txt")
SHEBANGS = {"sh", "bash"}


@dataclass(frozen=True)
class Gate:
    """commands: makes command lines from the paths below the root; none may fail. tool: the program that they run."""

    name: str
    tool: str
    commands: Callable[[list[str]], list[list[str]]]
    hint: str  # how to correct the faults


def ending(paths: list[str], *suffixes: str) -> list[str]:
    return [path for path in paths if path.endswith(suffixes)]


def scripts(paths: list[str]) -> list[str]:
    """Those that a shell reads, by their first line."""
    found = []
    for path in paths:
        with (ROOT / path).open("rb") as file:
            first = file.readline(80).decode(errors="replace").split()
        if (
            first
            and first[0].startswith("#!")
            and {Path(word.removeprefix("#!")).name for word in first} & SHEBANGS
        ):
            found.append(path)
    return found


def in_turns(command: list[str], paths: list[str], size: int) -> list[list[str]]:
    """The command for at most `size` of the paths at a time."""
    return [[*command, *paths[k : k + size]] for k in range(0, len(paths), size)]


def format_cpp(paths: list[str]) -> list[list[str]]:
    return in_turns(["clang-format", "--dry-run", "-Werror"], ending(paths, *CPP), 300)


def spelling(paths: list[str]) -> list[list[str]]:
    """Tests contain misspelt words on purpose: their quoted texts are left out."""
    read = [path for path in paths if not path.endswith((".png", ".svg", ".nc", ".json", ".js"))]
    tests = [path for path in read if path.startswith("tests/")]
    others = [path for path in read if not path.startswith("tests/")]
    quoted = ["--ignore-regex", r'"(\\.|[^"\\])*"|' + r"'(\\.|[^'\\])*'"]
    return [*in_turns(["codespell"], others, 2000), *in_turns(["codespell", *quoted], tests, 2000)]


def sentences(paths: list[str]) -> list[list[str]]:
    """Comments and docstrings of the sources."""
    read = [path for path in ending(paths, ".py", *CPP) if path.startswith(("src/", "native/"))]
    return in_turns(["python", str(Path(__file__).with_name("sentences.py"))], read, 2000)


def tidy(paths: list[str]) -> list[list[str]]:
    """Uses the build's own command lines. A file without one is read with those of its neighbours, which may not need
    the headers of native/.
    """
    read = [path for path in ending(paths, ".cpp", ".hpp") if path.startswith(("native/", "tests/native/"))]
    more = [
        f"--extra-arg=-I{ROOT / 'native'}",
        "--extra-arg=-Wno-unknown-warning-option",
    ]  # GCC's own warnings
    return in_turns(["clang-tidy", "--quiet", "-p", str(for_clang(COMPILE_COMMANDS)), *more], read, 3)


def for_clang(commands: Path) -> Path:
    """A folder with the build's command lines, without options that clang refuses, or treats differently from GCC: with
    -mgeneral-regs-only it does not even let headers name a long double.
    """
    made = commands / "for-clang"
    try:
        text = (commands / "compile_commands.json").read_text()
    except OSError:  # nothing is built: the tool reports that
        return commands
    made.mkdir(exist_ok=True)
    for word in OF_GCC:
        text = text.replace(f" {word} ", " ")
    (made / "compile_commands.json").write_text(text)
    return made


GATES = (
    Gate("format-python", "ruff", lambda paths: [["ruff", "format", "--check", "-q"]], "ruff format"),
    Gate("lint-python", "ruff", lambda paths: [["ruff", "check", "-q"]], "ruff check --fix mends some"),
    Gate("types", "mypy", lambda paths: [["mypy", "--no-error-summary"]], "pyproject.toml says how strict"),
    Gate("format-c++", "clang-format", format_cpp, "make format"),
    Gate("spelling", "codespell", spelling, "words that are right: [tool.codespell] in pyproject.toml"),
    Gate("sentences", "python", sentences, "say it with a subject, a verb, an object: CONTRIBUTING.md"),
    Gate(
        "scripts",
        "shellcheck",
        lambda paths: in_turns(["shellcheck", "-S", "warning"], scripts(paths), 100),
        "each SC number has a page in ShellCheck's wiki",
    ),
    Gate("lint-c++", "clang-tidy", tidy, "what is left out, and why: .clang-tidy"),
)


def git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True).stdout


def sources() -> list[str]:
    """All files that git tracks or would add, below the root."""
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    return [
        path for path in sorted(listed) if path and not path.startswith(LEFT_OUT) and (ROOT / path).is_file()
    ]


def base() -> str:
    """The revision from which changes count: where this branch left its upstream; for a branch without upstream, its
    last commit.
    """
    try:
        left = git("merge-base", "HEAD", "@{upstream}").strip()
    except subprocess.CalledProcessError:
        left = ""
    head = git("rev-parse", "HEAD").strip()
    if left and left != head:
        return left
    # A clone with one commit has no earlier one; then everything in that commit is new.
    return "HEAD~1" if git("rev-list", "--count", "-n", "2", "HEAD").strip() == "2" else head


def changed(since: str, paths: list[str]) -> list[str]:
    """The paths that differ from the revision, or that git does not track yet."""
    names = git("diff", "--name-only", "-z", since, "--").split("\0")
    names += git("ls-files", "-z", "--others", "--exclude-standard").split("\0")
    return [path for path in paths if path in set(names)]


def run(gate: Gate, paths: list[str]) -> Iterator[str]:
    """The output of its commands that fail."""
    for words in gate.commands(paths):
        done = subprocess.run(
            [str(BIN / words[0]) if (BIN / words[0]).exists() else words[0], *words[1:]],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
        )
        if done.returncode:
            yield done.stdout.strip() or f"{words[0]} ended with {done.returncode} and said nothing"


def judge(gate: Gate, paths: list[str], require: bool) -> tuple[str, str, float]:
    """(mark, what to print below, s)."""
    began = time.monotonic()
    if not (BIN / gate.tool).exists() and not shutil.which(gate.tool):
        what = f"{gate.tool} is not there: 'make setup' could not install it"
        return ("✗" if require else "-"), what, 0.0
    said = list(run(gate, paths))
    text = "\n".join([*said, f"hint: {gate.hint}"]) if said else ""
    return ("✗" if said else "✓"), text, time.monotonic() - began


def main(words: list[str]) -> int:
    there_are = ", ".join(gate.name for gate in GATES)
    parser = argparse.ArgumentParser(prog="gates", description="Reads the sources and runs nothing of them.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=there_are)
    parser.add_argument("--all", action="store_true", help="clang-tidy reads all C++ sources")
    parser.add_argument("--since", metavar="REVISION", help="clang-tidy reads what changed since it")
    asked = parser.parse_args(words)
    unknown = sorted(set(asked.names) - {gate.name for gate in GATES})
    if unknown:
        parser.error(f"no gate is called {', '.join(unknown)}; there are {there_are}")
    require = os.environ.get("SONDE_TEST_REQUIRE") == "all"
    paths = sources()
    recent = paths if asked.all else changed(asked.since or base(), paths)
    failed = 0
    chosen = [gate for gate in GATES if not asked.names or gate.name in asked.names]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 2) as pool:
        # The longest come first.
        order = sorted(chosen, key=lambda gate: gate.name not in ("types", "lint-c++"))
        under_way = {}
        for gate in order:
            read = recent if gate.name == "lint-c++" else paths
            under_way[pool.submit(judge, gate, read, require)] = gate
        for future in as_completed(under_way):
            gate, (mark, text, seconds) = under_way[future], future.result()
            failed += mark == "✗"
            of = f", {len(ending(recent, '.cpp', '.hpp'))} files" if gate.name == "lint-c++" else ""
            print(f"  {mark} {gate.name + of:<24} {seconds:6.1f} s", flush=True)
            if text:
                print("\n".join(f"      {line}" for line in text.splitlines()), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Lines and branches that the tests reach, per room: python tests/covered.py [--unit] [--root FOLDER] [--against FILE]

Python: what the tests of `make test` reach, in all processes of Sonde's that they start; with --unit those of `make
check` alone. C++: what the C++ unit tests reach, in a build of its own (FOLDER/build/coverage); the MPI probes and the
tracer are in its lines, and mostly run by tests of whole programs, which are not counted for C++; the bindings are not.
A killed process leaves no coverage data.
--root: another checkout, set up for tests. --against: the FILE that an earlier run of the same tests wrote; rooms whose
share of lines fell by a point or more are named.
Writes FOLDER/build/coverage/summary.json. Exit status: 0 measured, 1 a test failed or a room fell by a point or more.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# For GCC: gcovr reads coverage data of clang in a different way.
FLAGS = "-O0 -g --coverage -fprofile-update=atomic"
KINDS = ("lines", "branches")
RC = """
[run]
branch = true
parallel = true
sigterm = true
source_pkgs = sonde
patch = subprocess, fork, execv, _exit
data_file = {folder}/python/data
disable_warnings = no-data-collected, module-not-measured
[report]
exclude_also =
    if TYPE_CHECKING:
    @abstractmethod
"""

Counts = dict[str, list[int]]  # kind: reached, total


def room_of(path: str) -> str:
    """The room of a source below the root: src/sonde/ROOM/… or native/ROOM/…; else `(beside)`."""
    parts = path.split("/")
    below = parts[2:] if parts[0] == "src" else parts[1:]
    return below[0] if len(below) > 1 else "(beside)"


def call(words: list[str], root: Path, log: Path, **env: str) -> bool:
    """Runs a command and appends its output to the log. Returns whether it exited with 0."""
    print(f"  … {log}", flush=True)
    with log.open("a") as file:
        done = subprocess.run(
            words,
            cwd=root,
            env=os.environ | env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    print(f"  {'✓' if done.returncode == 0 else '✗'} {' '.join(words)[:100]}", flush=True)
    return done.returncode == 0


def python(root: Path, folder: Path, unit: bool) -> tuple[dict[str, Counts], bool]:
    (folder / "python").mkdir(parents=True, exist_ok=True)
    for old in (folder / "python").glob("data*"):
        old.unlink()
    rc, log = folder / "coveragerc", folder / "python.log"
    log.unlink(missing_ok=True)
    rc.write_text(RC.format(folder=folder))
    run = [f"{root}/.venv/bin/python", "-m", "coverage"]
    tests = [*run, "run", f"--rcfile={rc}", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m"]
    marks = "not slow and not soak"
    where = [str(path.relative_to(root)) for path in sorted(root.glob("tests/test_*.py"))]
    spread = ["-n", "4", "--dist", "loadfile"]
    passed = call([*tests, marks, *spread, "tests/unit", "tests/cli", *where], root, log)
    if not unit:
        system = ["tests/system", "tests/hostile", "tests/mpi"]
        passed &= call([*tests, f"{marks} and not alone", *spread, *system], root, log)
        passed &= call([*tests, f"{marks} and alone", *system], root, log)
    found = folder / "python.json"
    for words in (["combine", "-q"], ["json", "-q", "-i", "-o", str(found)]):
        if not call([*run, words[0], f"--rcfile={rc}", *words[1:]], root, log):
            raise SystemExit(f"error: coverage.py failed; {log} says why")
    rooms: dict[str, Counts] = defaultdict(lambda: {kind: [0, 0] for kind in KINDS})
    for name, file in json.loads(found.read_text())["files"].items():
        path = str((root / name).resolve().relative_to(root.resolve()))
        totals, counts = file["summary"], rooms[room_of(path)]
        add(counts["lines"], totals["covered_lines"], totals["num_statements"])
        add(counts["branches"], totals["covered_branches"], totals["num_branches"])
    return rooms, passed


def cpp(root: Path, folder: Path) -> tuple[dict[str, Counts], bool]:
    build, log = folder / "c++", folder / "c++.log"
    folder.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    set_up = [
        "cmake",
        "-S",
        ".",
        "-B",
        str(build),
        "-G",
        "Ninja",
        "-DCMAKE_BUILD_TYPE=None",
        "-DSONDE_BIND=OFF",
    ]
    flags = [f"-DCMAKE_{language}_FLAGS={FLAGS}" for language in ("C", "CXX")]
    for words in ([*set_up, *flags], ["cmake", "--build", str(build), "--target", "all", "sonde-tests"]):
        if not call(words, root, log):
            raise SystemExit(f"error: the build failed; {log} says why")
    for old in build.rglob("*.gcda"):
        old.unlink()
    run = [sys.executable, "tests/native/run.py", "--build", str(build), "--", "-tse=soak"]
    passed = call(run, root, log)
    found = folder / "c++.json"
    reader = [f"{ROOT}/.venv/bin/gcovr", "-r", ".", "--object-directory", str(build), "--filter", "native/"]
    reader += ["--exclude-throw-branches", "--exclude-unreachable-branches", "-j", str(os.cpu_count() or 1)]
    reader += ["--gcov-ignore-parse-errors", "--json-summary", str(found), str(build)]
    if not call(reader, root, log):
        raise SystemExit(f"error: gcovr failed; {log} says why")
    rooms: dict[str, Counts] = defaultdict(lambda: {kind: [0, 0] for kind in KINDS})
    for file in json.loads(found.read_text())["files"]:
        counts = rooms[room_of(file["filename"])]
        add(counts["lines"], file["line_covered"], file["line_total"])
        add(counts["branches"], file["branch_covered"], file["branch_total"])
    return rooms, passed


def add(counts: list[int], reached: int, total: int) -> None:
    counts[0] += reached
    counts[1] += total


def percent(counts: list[int]) -> float | None:
    return 100 * counts[0] / counts[1] if counts[1] else None


def table(summary: dict[str, dict[str, Counts]]) -> list[str]:
    """One line for each room, with both languages."""
    languages = list(summary)
    rows = [["room", *(f"{language} {kind}" for language in languages for kind in KINDS)]]
    for room in sorted({room for rooms in summary.values() for room in rooms}):
        cells = [room]
        for language in languages:
            for kind in KINDS:
                counts = summary[language].get(room, {}).get(kind, [0, 0])
                share = percent(counts)
                cells.append("-" if share is None else f"{share:.1f} % of {counts[1]}")
        rows.append(cells)
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def regressed(summary: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """Rooms whose share of lines fell by a point or more; a room that no longer exists counts too."""
    out = []
    for language, rooms in before.items():
        if language not in summary:
            continue  # not measured this time
        for room, counts in rooms.items():
            was = percent(counts["lines"])
            now = percent(summary.get(language, {}).get(room, {}).get("lines", [0, 0])) or 0.0
            if was is not None and now <= was - 1:
                out.append(f"{room}, {language} lines: {was:.1f} % before, {now:.1f} % now")
    return out


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="covered", description="Lines and branches that the tests reach, per room."
    )
    parser.add_argument("--unit", action="store_true", help="Python: only the tests of `make check`")
    parser.add_argument("--only", choices=("python", "c++"), help="one language")
    parser.add_argument("--root", type=Path, default=ROOT, metavar="FOLDER", help="another checkout")
    parser.add_argument("--against", type=Path, metavar="FILE", help="summary.json of an earlier run")
    asked = parser.parse_args(words)
    root = asked.root.resolve()
    folder = root / "build/coverage"
    before = json.loads(asked.against.read_text()) if asked.against else {}
    summary, passed = {}, True
    if asked.only != "c++":
        summary["Python"], passed = python(root, folder, asked.unit)
    if asked.only != "python":
        summary["C++"], cpp_passed = cpp(root, folder)
        passed &= cpp_passed
    (folder / "summary.json").write_text(json.dumps(summary, indent=1))
    print("\n".join(table(summary)))
    regressions = regressed(summary, before)
    if regressions:
        print("\n".join(f"coverage fell: {line}" for line in regressions))
    if not passed:
        print("error: tests failed, so coverage may be too low; the logs above say which")
    return 1 if regressions or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

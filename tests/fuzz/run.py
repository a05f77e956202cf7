"""Runs the fuzzers, several at a time, and prints a table: harness, inputs, crashes, leaks, time-outs.

    python tests/fuzz/run.py [--seconds S | --total S] [--inputs N] [--jobs N] [--build FOLDER] [--only c++|python]
        [--list] [NAME ...]

NAME: harnesses, by default all: programs of libFuzzer in FOLDER/fuzzers (cmake --preset fuzz; cmake --build --preset
fuzz --target sonde-fuzzers), and parsers of Python (tests/fuzz/fuzz_parsers.py). --seconds: for each, by default 30 or
$SONDE_FUZZ_SECONDS. --total: for all of them, shared out. --inputs: a harness ends after so many, too. --jobs: at once,
by default 2. --seed: the same inputs each time; by default others. --only: parsers of this language. --list: names
them, and runs none.

A harness begins with tests/data/fuzz/NAME, keeps what is new to it in FOLDER/corpus/NAME, and ends with the first input
that goes wrong, which is written to FOLDER/found. Exit status: 0 nothing did, 1 something did, or one could not run,
2 bad words. With SONDE_TEST_REQUIRE=all programs of libFuzzer must be there.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data"
SEEDS = {"store-connection": (DATA / "storefuzz",)}
"""Folders of inputs that tests have besides tests/data/fuzz/NAME."""
MOST_BYTES = 8192  # of an input
HANGS_S = 60
MOST_MIB = 2048  # with what the sanitizers take
SLACK_S = 120  # until one that does not end by itself is ended
LEAST_S = 2.0
COLUMNS = ("crashes", "leaks", "time-outs")
# How libFuzzer names the file of an input that went wrong.
KINDS = {"crash": "crashes", "oom": "crashes", "leak": "leaks", "timeout": "time-outs", "slow-unit": ""}


@dataclass(frozen=True)
class Harness:
    name: str
    program: Path | None = None  # of libFuzzer; None: a parser of Python


@dataclass(frozen=True)
class Ended:
    """wrong: column of the table that it counts in, "": nothing was found. said: what is to be read then."""

    harness: Harness
    inputs: int
    wrong: str
    seconds: float
    said: str = ""


def harnesses(build: Path) -> list[Harness]:
    """All that are there, by name."""
    sys.path.insert(0, str(Path(__file__).parent))
    from fuzz_parsers import PARSERS

    programs = sorted((build / "fuzzers").glob("*"))
    found = [Harness(path.name, path) for path in programs if os.access(path, os.X_OK) and path.is_file()]
    return [*found, *(Harness(f"py-{name}") for name in sorted(PARSERS))]


def command(one: Harness, build: Path, seconds: float, inputs: int, seed: int | None) -> list[str]:
    found = build / "found"
    if one.program is None:
        script, name = str(Path(__file__).with_name("fuzz_hunt.py")), one.name.removeprefix("py-")
        bounds = ("--seconds", f"{seconds:g}", "--inputs", str(inputs), "--found", str(found))
        bounds += ("--seed", str(seed)) if seed is not None else ()
        return [sys.executable, script, name, *bounds]
    corpus = build / "corpus" / one.name
    corpus.mkdir(parents=True, exist_ok=True)
    kept = [path for path in (DATA / "fuzz" / one.name, *SEEDS.get(one.name, ())) if path.is_dir()]
    return [
        str(one.program),
        f"-max_total_time={max(1, round(seconds))}",
        *([f"-runs={inputs}"] if inputs < 1 << 31 else []),
        *([f"-seed={seed}"] if seed is not None else []),
        f"-max_len={MOST_BYTES}",
        f"-timeout={HANGS_S}",
        f"-rss_limit_mb={MOST_MIB}",
        f"-artifact_prefix={found}/{one.name}-",
        "-print_final_stats=1",
        "-verbosity=1",
        str(corpus),
        *map(str, kept),
    ]


def judged(one: Harness, status: int | None, said: str, seconds: float) -> Ended:
    """What became of a harness. status: None where it had to be ended."""
    pattern = r"^inputs (\d+)$" if one.program is None else r"^stat::number_of_executed_units: +(\d+)"
    counted = re.search(pattern, said, re.M)
    # Without statistics, as after a crash: the last line that tells how far it was.
    steps = [int(number) for number in re.findall(r"^#(\d+)\t", said, re.M)]
    inputs = int(counted[1]) if counted else max(steps, default=0)
    if status == 0:
        return Ended(one, inputs, "", seconds)
    if status is None:
        return Ended(one, inputs, "time-outs", seconds, f"it did not end by itself\n{said[-4000:]}")
    kind = re.search(r"Test unit written to \S*?-(crash|oom|leak|timeout)-", said)
    wrong = KINDS[kind[1]] if kind else "leaks" if "LeakSanitizer" in said else "crashes"
    if one.program is None and "it hangs at" in said:
        wrong = "time-outs"
    return Ended(one, inputs, wrong, seconds, said[-4000:])


def run(one: Harness, build: Path, seconds: float, inputs: int, seed: int | None) -> Ended:
    began = time.monotonic()
    env = os.environ | {
        "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=0:new_delete_type_mismatch=0",
        "LSAN_OPTIONS": f"suppressions={ROOT}/tests/native/lsan.supp:print_suppressions=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    with subprocess.Popen(
        command(one, build, seconds, inputs, seed),
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as child:
        status: int | None
        try:
            said, _ = child.communicate(timeout=seconds + HANGS_S + SLACK_S)
            status = child.returncode
        except subprocess.TimeoutExpired:
            child.kill()
            said, _ = child.communicate()
            status = None
    return judged(one, status, said, time.monotonic() - began)


def table(ended: Sequence[Ended]) -> str:
    rows = [("harness", "inputs", *COLUMNS, "s")]
    for one in ended:
        found = (str(int(one.wrong == column)) for column in COLUMNS)
        rows.append((one.harness.name, str(one.inputs), *found, f"{one.seconds:.0f}"))
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = [
        "| "
        + " | ".join(
            cell.ljust(width) if k == 0 else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths))
        )
        + " |"
        for row in rows
    ]
    rule = "|" + "|".join("-" * (width + 1) + (":" if k else "-") for k, width in enumerate(widths)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def chosen(names: Sequence[str], there: Sequence[Harness]) -> list[Harness]:
    """Raises SystemExit with 2 for a name that nothing has."""
    known = {one.name: one for one in there}
    if wrong := [name for name in names if name not in known]:
        print(f"error: no harness {', '.join(wrong)}; there are: {', '.join(known)}", file=sys.stderr)
        raise SystemExit(2)
    return [known[name] for name in names] or list(there)


def main(words: list[str]) -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("names", nargs="*", metavar="NAME")
    asked.add_argument("--seconds", type=float, default=float(os.environ.get("SONDE_FUZZ_SECONDS") or 30))
    asked.add_argument("--total", type=float)
    asked.add_argument("--inputs", type=int, default=1 << 62)
    asked.add_argument("--jobs", type=int, default=2)
    asked.add_argument("--build", type=Path, default=ROOT / "build/fuzz")
    asked.add_argument("--seed", type=int)
    asked.add_argument("--only", choices=("c++", "python"))
    asked.add_argument("--list", action="store_true")
    options = asked.parse_args(words)
    build = options.build.resolve()
    there = [one for one in harnesses(build) if options.only != ("c++" if one.program is None else "python")]
    todo = chosen(options.names, there)
    if options.only != "python" and all(one.program is None for one in there):
        print(f"no programs of libFuzzer in {build / 'fuzzers'}: parsers of C++ are left out")
        if os.environ.get("SONDE_TEST_REQUIRE") == "all":
            print(
                "error: they must be there (SONDE_TEST_REQUIRE=all); hint: install clang, and build the preset 'fuzz'"
            )
            return 1
    if options.list:
        print("\n".join(one.name for one in todo))
        return 0
    seconds = options.seconds
    if options.total:
        seconds = max(LEAST_S, options.total * options.jobs / len(todo))
    (build / "found").mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        ended = list(pool.map(lambda one: run(one, build, seconds, options.inputs, options.seed), todo))
    for one in ended:
        if one.wrong:
            print(f"---- {one.harness.name}: {one.wrong}\n{one.said}")
            print(f"FAILED {one.harness.name}; what went wrong is in {build / 'found'}")
    print(table(ended))
    failed = sum(bool(one.wrong) for one in ended)
    print(f"{len(ended) - failed} passed, {failed} failed, {sum(one.inputs for one in ended)} inputs")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

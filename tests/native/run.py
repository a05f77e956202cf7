"""Runs the C++ tests, several processes at a time, as they wait much more than they compute.

    python tests/native/run.py [--build FOLDER] [--jobs N] [--cases N] [NAME ...] [-- words for doctest]

NAME: programs, as `bus` or `sonde-test-bus`; by default all that the build has (FOLDER/tests/programs.txt). A process
runs --cases cases of one program. Prints whole what a failed process said, then the seconds of each program, a line
`FAILED …` for each case that failed, and last the cases of all. Exit status: 0 all passed; 1 one failed, a program is
missing, a process ran other cases than it was asked for, or no case was asked for; 2 bad words. With
SONDE_TEST_REQUIRE=all each program must be there.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("core", "noise", "io", "store", "hostile", "power", "powerd", "bus")
LONGEST_S = 540
# How doctest heads what it says of a case that failed: where it stands, then its name.
HEADS = re.compile(r"^(?:\.\./)*(\S+:\d+):?\nTEST CASE:  (.+)$", re.MULTILINE)
COUNTS = re.compile(r"test cases: +(\d+) \| +(\d+) passed \| +(\d+) failed")


@dataclass(frozen=True)
class Share:
    """Cases first to last of a program, counted from 1 among the `total` that its words select."""

    program: Path
    first: int
    last: int
    total: int


@dataclass(frozen=True)
class Ended:
    share: Share
    passed: int
    failed: int
    seconds: float
    said: str  # empty: nothing was wrong

    def names(self) -> list[str]:
        """Where each case that failed stands, and its name; of a process that named none, its share of the cases."""
        if not self.said:
            return []
        named = [f"{where} {name}" for where, name in HEADS.findall(self.said)]
        return named or [f"{self.share.program.name} --first={self.share.first} --last={self.share.last}"]


def program_name(word: str) -> str:
    return word if word.startswith("sonde-test-") else f"sonde-test-{word}"


def count(program: Path, words: list[str]) -> int:
    """How many cases the words select; doctest itself does not count those that it skips."""
    listed = subprocess.run([program, "--count", *words], capture_output=True, text=True, check=True).stdout
    found = re.search(r"filters: (\d+)", listed)
    if found is None:
        raise SystemExit(f"error: {program} did not say how many cases it has: {listed.strip()}")
    return int(found[1])


def run(share: Share, words: list[str]) -> Ended:
    command = [share.program, f"--first={share.first}", f"--last={share.last}", *words]
    began = time.monotonic()
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LONGEST_S,
        )
        said, status = done.stdout.decode(errors="replace"), done.returncode
    except subprocess.TimeoutExpired as late:
        said, status = (late.stdout or b"").decode(errors="replace"), None
    seconds = time.monotonic() - began
    asked = share.last - share.first + 1
    *_, counted = [None, *COUNTS.finditer(said)]
    # doctest counts all that its words select, those before and after the share as well.
    selected, failed = (int(counted[1]), int(counted[3])) if counted else (0, asked)
    right = status == 0 and selected == share.total and not failed
    if not right:
        how = f"was ended after {LONGEST_S} s" if status is None else f"ended with {status}"
        said += f"\n{share.program.name} {how}, having counted {selected} of {share.total} cases: "
        said += f"{' '.join(map(str, command))}"
        failed = max(failed, 1)
    passed = max(asked - failed, 0)
    return Ended(share, passed, failed, seconds, "" if right else said)


def main(words: list[str]) -> int:
    more = words[words.index("--") + 1 :] if "--" in words else []
    parser = argparse.ArgumentParser(prog="run", description="Runs the C++ tests.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PROGRAMS)}")
    parser.add_argument("--build", type=Path, default=ROOT / "build/Release", metavar="FOLDER")
    parser.add_argument("--jobs", type=int, default=3 * len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--cases", type=int, default=4, metavar="N", help="cases of one process")
    asked = parser.parse_args(words[: len(words) - len(more) - ("--" in words)])
    if asked.jobs < 1 or asked.cases < 1:
        parser.error("--jobs and --cases are at least 1")
    known = {program_name(word) for word in PROGRAMS}
    unknown = sorted({program_name(word) for word in asked.names} - known)
    if unknown:
        parser.error(f"no program is called {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")

    listed = asked.build / "tests/programs.txt"
    if not listed.exists():
        print(
            f"error: {listed} is not there\n  hint: build the C++ tests: deploy/setup check", file=sys.stderr
        )
        return 1
    built = listed.read_text().split()
    names = [program_name(word) for word in asked.names]
    if not names:
        names = [program_name(word) for word in PROGRAMS]
        if os.environ.get("SONDE_TEST_REQUIRE") != "all":
            for name in names:
                if name not in built:
                    print(f"  - {name}: its library is not built here")
            names = [name for name in names if name in built]
    programs = [asked.build / "bin" / name for name in names]
    absent = [str(path) for path in programs if not os.access(path, os.X_OK)]
    if absent:
        print(f"error: {', '.join(absent)} missing\n  hint: build: deploy/setup check", file=sys.stderr)
        return 1

    began = time.monotonic()
    cases = {program: count(program, more) for program in programs}
    shares = [
        Share(program, first, min(first + asked.cases - 1, total), total)
        for program, total in cases.items()
        for first in range(1, total + 1, asked.cases)
    ]
    # Those of the bus and of the daemons wait longest, so they come first.
    shares.reverse()
    ended = []
    with ThreadPoolExecutor(asked.jobs) as pool:
        for future in as_completed([pool.submit(run, share, more) for share in shares]):
            done = future.result()
            ended.append(done)
            if done.said:
                print(done.said, flush=True)
    for program in programs:
        own = [done for done in ended if done.share.program == program]
        seconds, failed = sum(done.seconds for done in own), sum(done.failed for done in own)
        print(f"  {'✗' if failed else '✓'} {program.name:<20} {cases[program]:4} cases {seconds:7.1f} s")
    for done in ended:
        print(*(f"FAILED {name}\n" for name in done.names()), sep="", end="")
    passed, failed = sum(done.passed for done in ended), sum(done.failed for done in ended)
    print(f"C++ tests: {passed} passed, {failed} failed, {time.monotonic() - began:.0f} s")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

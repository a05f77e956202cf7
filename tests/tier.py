"""The tiers of tests, as `make` runs them: python tests/tier.py check | system | test-all | fuzz | soak

    check     the gates (gates.py), all C++ unit tests, all Python tests of functions, the architecture
    system    what protects a behaviour of whole programs, with one MPI; `make test` is check and this
    test-all  what is left for CI: the other MPI, tests marked slow, each C++ header compiled alone, and all C++ unit
              tests once more under ASan and UBSan, compiled by clang where it is there; fuzzers of Python's parsers
    fuzz      each fuzzer, of C++ and of Python, for 30 s. Ends with a table of inputs, crashes, leaks, time-outs
    soak      what is statistical or long: campaigns, all C++ sources through clang-tidy, C++ unit tests under TSan,
              a million inputs for each fuzzer, the system tests three times beside a busy machine. Ends with a
              table of campaign, cases, failures

Parts that mostly wait run beside those that compute. What a part says goes to build/tests/PART.log, and to the terminal
where it fails. Each part's seconds stand at its end; the tier's, and the names of the tests that failed, come last.
Exit status: 0 all passed, 1 one failed, 2 no such tier or part.
SONDE_TEST_ARGS: more words for pytest. SONDE_TEST_JOBS: how many processes share the tests; 0: one, here.
SONDE_TEST_PARTS: only the parts whose name fits this pattern, as "*busy*"; a part that was not run is named at the end.
SONDE_FUZZ_TOTAL: seconds for all fuzzers of test-all together; SONDE_FUZZ_SECONDS: for each of `fuzz`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path

from busy import busy

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build/tests"
CORES = len(os.sched_getaffinity(0))
# Tests of functions compute, and some wait; those of whole programs mostly wait for them.
COMPUTING, WAITING = CORES + 1, 4 * CORES
FUNCTIONS = (
    "tests/unit",
    "tests/cli",
    "tests/fuzz",
    *sorted(f"tests/{path.name}" for path in (ROOT / "tests").glob("test_*.py")),
)
PROGRAMS = ("tests/system", "tests/hostile", "tests/mpi")
# The second compiler, which CI builds with; the newest in a current distribution.
CLANGS = ("-19", "")
# TSan's suppressions match names of functions, and clang 19 alone finds no program that resolves them.
_symbolizer = next(
    (at for name in ("llvm-symbolizer-19", "llvm-symbolizer") if (at := shutil.which(name))), ""
)
SYMBOLIZER = f" external_symbolizer_path={_symbolizer}" if _symbolizer else ""
# Fast DDS 2.9 deletes objects of its own with a smaller size.
SUPPRESSIONS = {
    "ASAN_OPTIONS": "new_delete_type_mismatch=0",
    "LSAN_OPTIONS": f"suppressions={ROOT}/tests/native/lsan.supp",
    "TSAN_OPTIONS": f"suppressions={ROOT}/tests/native/tsan.supp die_after_fork=0{SYMBOLIZER}",
}
# For the fuzzers of Python together, two at a time, in CI. `make fuzz` gives each 30 s, and continues where it stopped.
FUZZ_TOTAL_S = os.environ.get("SONDE_FUZZ_TOTAL") or "60"
FUZZ_INPUTS, FUZZ_LONGEST_S = "1000000", "1800"  # for each, in `make soak`: the first limit that is reached
NO_TESTS = 5  # pytest's exit status if no test was selected


@dataclass(frozen=True)
class Part:
    """Command lines, run one after the other until one fails. env: variables besides this process's environment."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    env: dict[str, str] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        return LOGS / (re.sub(r"[^a-z0-9+]+", "-", self.name.lower()) + ".log")


@dataclass(frozen=True)
class Ended:
    name: str
    passed: bool
    seconds: float
    said: str

    @property
    def last(self) -> str:
        """The last line of its output, without pytest's frame."""
        lines = [line.strip("= ") for line in self.said.splitlines() if line.strip("= ")]
        return lines[-1] if lines else ""

    def failures(self) -> list[str]:
        """The lines in which pytest, and the program that runs the C++ tests, name a failed test."""
        return [line for line in self.said.splitlines() if line.startswith(("FAILED ", "ERROR "))]

    def count(self, what: str) -> int:
        return sum(int(number) for number in re.findall(rf"(\d+) {what}", self.last))


Lane = list[Part]  # one part after the other, in parallel with the other lanes
Tier = list[list[Lane]]  # phases: one begins when all lanes of the phase before it have ended


def pytest(name: str, marks: str, *where: str, jobs: int, **env: str) -> Part:
    """The tests with these marks; each file in one of `jobs` processes, or all here if that is 0."""
    jobs = int(os.environ.get("SONDE_TEST_JOBS") or jobs)
    spread = ("-n", str(jobs), "--dist", "loadfile", "--no-loadscope-reorder") if jobs else ()
    more = shlex.split(os.environ.get("SONDE_TEST_ARGS", ""))
    words = ("-q", "--durations=20", "--durations-min=4", *spread, "-m", marks, *more, *where)
    return Part(name, ((sys.executable, "-m", "pytest", *words),), dict(env))


def files_with_mark(mark: str, *folders: str) -> list[str]:
    """The test files below the folders that name the mark, so that pytest collects no others."""
    files = sorted(chain.from_iterable((ROOT / folder).rglob("test_*.py") for folder in folders))
    return [str(path.relative_to(ROOT)) for path in files if f"mark.{mark}" in path.read_text()]


def native(name: str, *words: str) -> Part:
    return Part(name, ((sys.executable, "tests/native/run.py", "--", *words),))


def sanitized(name: str, preset: str, *words: str) -> Part:
    """The C++ unit tests, built under a sanitizer; by clang, the second compiler, if it is installed."""
    build = ("cmake", "--build", "--preset", preset, "--target", "sonde-tests")
    run = (sys.executable, "tests/native/run.py", "--build", f"build/{preset}", "--", *words)
    return Part(name, (("cmake", "--preset", preset, *by_clang()), build, run), SUPPRESSIONS)


def by_clang() -> tuple[str, ...]:
    """Arguments for cmake; none if clang is not installed."""
    clang = [found for number in CLANGS if (found := shutil.which(f"clang++{number}"))]
    if not clang:
        return ()
    return (f"-DCMAKE_CXX_COMPILER={clang[0]}", f"-DCMAKE_C_COMPILER={clang[0].replace('++', '')}")


def python_fuzzers() -> Part:
    """The fuzzers that need no build: that of the C++ ones takes clang ten minutes and more on two cores.

    They always use the same inputs, so that a new input does not refuse an unrelated commit; `make fuzz` looks for new
    ones.
    """
    run = (sys.executable, "tests/fuzz/run.py", "--only", "python", "--seed", "1", "--total", FUZZ_TOTAL_S)
    return Part("fuzzers of Python's parsers", (run,))


def fuzzers(*words: str) -> Part:
    """All parsers, those of C++ if clang is installed (native/cmake/SondeFuzz.cmake); words: for tests/fuzz/run.py."""
    compiler = by_clang()
    build = (
        ("cmake", "--preset", "fuzz", *compiler),
        ("cmake", "--build", "--preset", "fuzz", "--target", "sonde-fuzzers"),
    )
    return Part("fuzzers", (*(build if compiler else ()), (sys.executable, "tests/fuzz/run.py", *words)))


def headers() -> Part:
    """Each C++ header compiled alone (native/cmake/SondeHeaders.cmake); gates.py only reads those that changed."""
    return Part(
        "C++ headers",
        (("nice", "-n", "19", "cmake", "--build", "build/Release", "--target", "sonde-headers"),),
    )


def check() -> Tier:
    functions = pytest("Python unit tests", "not slow and not soak", *FUNCTIONS, jobs=COMPUTING)
    return [
        [
            [Part("gates", ((sys.executable, "tests/gates.py"),)), functions],
            [native("C++ unit tests", "-tse=soak")],
        ]
    ]


def system() -> Tier:
    marks = "not slow and not soak"
    return [
        [[pytest("system tests", f"{marks} and not alone", *PROGRAMS, jobs=WAITING)]],
        [[pytest("system tests, alone", f"{marks} and alone", *files_with_mark("alone", *PROGRAMS), jobs=0)]],
    ]


def test_all() -> Tier:
    chosen = os.environ.get("SONDE_TEST_MPI") or "both"
    other = {"SONDE_TEST_MPI": "other"}
    marks, alone = "not soak and not alone", "not soak and alone"
    slow = files_with_mark("slow", "tests")
    return [
        [
            [
                pytest("the other MPI", f"mpi and not slow and {marks}", *PROGRAMS, jobs=WAITING, **other),
                pytest("slow tests", f"slow and {marks}", *slow, jobs=WAITING, SONDE_TEST_MPI=chosen),
            ],
            [headers(), python_fuzzers()],
        ],
        # Not in parallel with surveys, whose DDS domains may be those of C++ tests.
        [[sanitized("C++ unit tests under ASan and UBSan", "asan", "-tse=soak")]],
        [
            [
                pytest(
                    "the other MPI, alone",
                    f"mpi and not slow and {alone}",
                    *files_with_mark("alone", *PROGRAMS),
                    jobs=0,
                    **other,
                ),
                pytest("slow tests, alone", f"slow and {alone}", *slow, jobs=0, SONDE_TEST_MPI=chosen),
            ],
        ],
    ]


def fuzz() -> Tier:
    return [[[fuzzers()]]]


def soak() -> Tier:
    campaigns = [
        native("C++ campaigns", "-ts=soak"),
        pytest("Python campaigns", "soak", jobs=0),
        sanitized("C++ unit tests under TSan", "tsan", "-tse=soak"),
        fuzzers("--inputs", FUZZ_INPUTS, "--seconds", FUZZ_LONGEST_S),
        Part("clang-tidy on all sources", ((sys.executable, "tests/gates.py", "--all", "lint-c++"),)),
    ]
    return [[[*campaigns, *busy_thrice()]]]


def busy_thrice() -> Iterator[Part]:
    """The system tests, three times, while other programs keep every core busy."""
    for turn in (1, 2, 3):
        yield pytest(
            f"system tests, busy, {turn}",
            "not soak and not alone",
            *PROGRAMS,
            jobs=WAITING,
            SONDE_TEST_BUSY="1",
        )
        yield pytest(
            f"system tests, busy, alone, {turn}",
            "not soak and alone",
            *files_with_mark("alone", *PROGRAMS),
            jobs=0,
            SONDE_TEST_BUSY="1",
        )


TIERS = {"check": check, "system": system, "test-all": test_all, "fuzz": fuzz, "soak": soak}


def environment() -> dict[str, str]:
    """The environment of this process. If bytecode next to the sources is switched off, it goes to build/: without any,
    each process compiles all that it imports, and pytest rewrites each test file.
    """
    env = dict(os.environ)
    if env.pop("PYTHONDONTWRITEBYTECODE", ""):
        env.setdefault("PYTHONPYCACHEPREFIX", str(ROOT / "build/pycache"))
    return env


def run(part: Part) -> Ended:
    began = time.monotonic()
    passed = True
    with part.log.open("w") as log, busy("SONDE_TEST_BUSY" in part.env):
        for command in part.commands:
            log.write(f"$ {shlex.join(command)}\n")
            log.flush()
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=environment() | part.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            # Arguments such as -k may leave a part without a test. Without such arguments that is a fault.
            none_asked = (
                done.returncode == NO_TESTS and "pytest" in command and os.environ.get("SONDE_TEST_ARGS")
            )
            passed = done.returncode == 0 or bool(none_asked)
            if not passed:
                break
    return Ended(part.name, passed, time.monotonic() - began, part.log.read_text(errors="replace"))


def drive(lane: Lane) -> list[Ended]:
    """A failed part does not prevent those after it."""
    ended = []
    for part in lane:
        print(f"  … {part.name}: {part.log.relative_to(ROOT)}", flush=True)
        done = run(part)
        if not done.passed:
            print("\n".join(f"    {line}" for line in done.said.splitlines()), flush=True)
        print(f"  {'✓' if done.passed else '✗'} {done.name}, {done.seconds:.0f} s: {done.last}", flush=True)
        ended.append(done)
    return ended


def chosen(tier: Tier, pattern: str) -> tuple[Tier, list[str]]:
    """The parts whose names match, in their lanes, and the names of the others."""
    left = [
        part.name for lanes in tier for lane in lanes for part in lane if not fnmatchcase(part.name, pattern)
    ]
    fit = [[[part for part in lane if fnmatchcase(part.name, pattern)] for lane in lanes] for lanes in tier]
    phases = [[lane for lane in lanes if lane] for lanes in fit]
    return [lanes for lanes in phases if lanes], left


def main(words: list[str]) -> int:
    if len(words) != 1 or words[0] not in TIERS:
        print(f"error: which tier? allowed: {', '.join(TIERS)}", file=sys.stderr)
        return 2
    name = words[0]
    LOGS.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    ended: list[Ended] = []
    phases, left = chosen(TIERS[name](), os.environ.get("SONDE_TEST_PARTS") or "*")
    if not phases:
        print(f"error: SONDE_TEST_PARTS fits no part; there are: {', '.join(left)}", file=sys.stderr)
        return 2
    for lanes in phases:
        with ThreadPoolExecutor(len(lanes)) as pool:
            ended += chain.from_iterable(pool.map(drive, lanes))
    failed = [part.name for part in ended if not part.passed]
    if name == "fuzz":
        print("".join(f"{line}\n" for one in ended for line in one.said.splitlines() if line.startswith("|")))
    if name == "soak":
        print("\n| campaign | passed | failed | s |\n|---|---|---|---|")
        for part in ended:
            print(f"| {part.name} | {part.count('passed')} | {part.count('failed')} | {part.seconds:.0f} |")
    outcome = f"failed: {', '.join(failed)}" if failed else "all passed"
    # People often read only the end of a log.
    for line in chain.from_iterable(part.failures() for part in ended if not part.passed):
        print(f"  {line}")
    if left:
        print(f"  not run: {', '.join(left)}")
    print(f"{name}: {time.monotonic() - began:.0f} s, {outcome}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

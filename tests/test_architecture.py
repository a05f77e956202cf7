"""Checks the rules of ARCHITECTURE.md on every source file, and each rule on a sample that breaks it.

A rule is a function from one file (its path below the project's root, its text) to its faults.
"""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

from sonde.core.room import NAMES

ROOT = Path(__file__).parent.parent
ROOMS = NAMES
BELOW = ("cluster",)  # packages that rooms may import, besides core
UPON = {"power": ("bus",)}  # rooms that may import another one
ABOVE = ("survey", "report", "data", "cli")
TOUCHES_MACHINE = re.compile(r"(run|cli|client)(_\w+)?\.py")

Rule = Callable[[PurePosixPath, str], list[str]]


@cache
def read(path: PurePosixPath) -> str:
    """A file's text; `path` below the project's root."""
    return (ROOT / path).read_text()


@cache
def parsed(text: str) -> ast.Module:
    """The syntax tree of a file's text, parsed once for all rules."""
    return ast.parse(text)


@cache
def nodes(text: str) -> tuple[ast.AST, ...]:
    """All nodes of a file's syntax tree, in the order of `ast.walk`."""
    return tuple(ast.walk(parsed(text)))


def imports(path: PurePosixPath, text: str) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything that a module imports, also in functions and for types."""
    package = path.relative_to("src").parent.parts if path.is_relative_to("src") else ()
    for node in nodes(text):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            head = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{head}.{alias.name}") for alias in node.names)


def part_of(name: str) -> str:
    """ "net" for "sonde.net.schema"; "" for names that are not Sonde's, or belong to no part."""
    pieces = name.split(".")
    return pieces[1] if pieces[0] == "sonde" and len(pieces) > 1 else ""


def layers(path: PurePosixPath, text: str) -> list[str]:
    """1. core <- cluster <- rooms <- survey, report, data <- cli; rooms do not import each other."""
    part = path.parts[2] if len(path.parts) > 3 else ""
    allowed = {"core", "_core", part}
    if part in ABOVE:
        allowed |= {*BELOW, *ROOMS, *ABOVE} - ({"cli"} if part != "cli" else set())
    elif part in ROOMS:
        allowed |= {*BELOW, *UPON.get(part, ())}
    elif part != "core" and part not in BELOW:
        return []
    parts = {"core", *BELOW, *ROOMS, *ABOVE}
    return [
        f"line {line}: {part} imports {name}"
        for line, name in imports(path, text)
        if part_of(name) in parts - allowed
    ]


INCLUDES = {
    "core": ("core",),
    "mpi": ("core", "mpi"),
    "bind": ("core", "service", "bind", *ROOMS),
    "service": ("core", "service"),
    **{room: ("core", "mpi", "service", room, *UPON.get(room, ())) for room in ROOMS},
}


def include_layers(path: PurePosixPath, text: str) -> list[str]:
    """1. The same for C++ includes."""
    allowed = INCLUDES.get(path.parts[1], ())
    return [
        f"line {number}: native/{path.parts[1]} includes {match[1]}"
        for number, line in enumerate(text.splitlines(), 1)
        if (match := re.match(r'\s*#\s*include\s+"([^"]+)"', line)) and match[1].split("/")[0] not in allowed
    ]


MACHINE = {
    "asyncio",
    "ctypes",
    "fcntl",
    "glob",
    "http",
    "mmap",
    "multiprocessing",
    "os",
    "platform",
    "random",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "urllib",
}
CLOCKS = {"now", "utcnow", "today"}


def pure(path: PurePosixPath, text: str) -> list[str]:
    """2. Outside run.py, cli.py and client.py modules of rooms and cluster touch no process, socket, clock, file."""
    if path.parts[2] not in (*ROOMS, *BELOW) or TOUCHES_MACHINE.fullmatch(path.name) or len(path.parts) < 4:
        return []
    found = [
        f"line {line}: imports {name}"
        for line, name in imports(path, text)
        if name.split(".")[0] in MACHINE and not name.startswith(("os.PathLike", "urllib.parse"))
    ]
    for node in nodes(text):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in ("open", "input"):
            found.append(f"line {node.lineno}: calls {node.func.id}()")
        if isinstance(node.func, ast.Attribute) and node.func.attr in CLOCKS:
            found.append(f"line {node.lineno}: reads a clock with .{node.func.attr}()")
    return found


DRAWING = {"plotly", "matplotlib", "bokeh", "altair", "seaborn", "PIL", "pygal"}


def drawing(path: PurePosixPath, text: str) -> list[str]:
    """2. Only report/render_*.py imports a plotting library."""
    if path.parts[2] == "report" and path.name.startswith("render_"):
        return []
    return [
        f"line {line}: imports {name}" for line, name in imports(path, text) if name.split(".")[0] in DRAWING
    ]


def attribute(node: ast.AST) -> tuple[str, str]:
    """("sys", "exit") for `sys.exit`; ("", "") for a node that is not an attribute of a plain name."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.value.id, node.attr
    return "", ""


PRINTERS = {("sys", "exit"), ("sys", "stdout"), ("click", "echo"), ("click", "secho"), ("click", "exit")}


def printing(path: PurePosixPath, text: str) -> list[str]:
    """3. Only sonde/cli prints and exits."""
    if path.parts[2] == "cli":
        return []
    found = [f"line {n}: imports {name}" for n, name in imports(path, text) if name.split(".")[0] == "rich"]
    for node in nodes(text):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("print", "exit", "quit")
        ):
            found.append(f"line {node.lineno}: calls {node.func.id}()")
        if isinstance(node, ast.Attribute) and attribute(node) in PRINTERS:
            found.append(f"line {node.lineno}: uses {ast.unparse(node)}")
        if isinstance(node, ast.Name) and node.id == "SystemExit":
            found.append(f"line {node.lineno}: uses SystemExit")
    return found


def outcomes(path: PurePosixPath, text: str) -> list[str]:
    """3. Every command is annotated to return an Outcome."""
    if path.name not in ("cli.py", "doctor.py"):
        return []
    found = []
    for node in nodes(text):
        if not isinstance(node, ast.FunctionDef):
            continue
        words = [ast.unparse(decorator).split("(")[0].split(".")[-1] for decorator in node.decorator_list]
        returns = ast.unparse(node.returns) if node.returns else "nothing"
        if "command" in words and returns != "Outcome":
            found.append(f"line {node.lineno}: command {node.name} returns {returns}")
    return found


def public_functions(text: str) -> set[str]:
    return {
        node.name
        for node in parsed(text).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }


STATISTICS = [PurePosixPath(f"src/sonde/core/{name}.py") for name in ("stats", "lognormal", "spectra")]


@cache
def statistics() -> dict[str, str]:
    """The statistics, each of which exists once, and the module of sonde.core that has it."""
    return {name: path.stem for path in STATISTICS for name in public_functions(read(path))}


def once(path: PurePosixPath, text: str) -> list[str]:
    """4. A statistic exists once: a function with its name must call it."""
    if path in STATISTICS:
        return []
    return [
        f"line {node.lineno}: defines {node.name}, which sonde.core.{module} has, without calling it"
        for node in parsed(text).body
        if isinstance(node, ast.FunctionDef)
        and (module := statistics().get(node.name))
        and not any(attribute(part) == (module, node.name) for part in ast.walk(node))
    ]


def no_formats(path: PurePosixPath, text: str) -> list[str]:
    """5. No native program links NetCDF or reads TOML. (The HDF5 connector and the bench only have headers.
    sonde-ioload makes the I/O of programs that use HDF5, so it uses HDF5. Daemons of the power stack run on nodes
    without Python: one parser reads their configuration, and Python's.)
    """
    if path == PurePosixPath("native/power/config.cpp"):
        return []
    allowed = ("native/store/h5", "native/store/storebench", "native/io/load")
    library = (
        "(netcdf|toml)" if any(path.is_relative_to(folder) for folder in allowed) else "(netcdf|hdf5|toml)"
    )
    pattern = rf"#\s*include\s*[<\"][^>\"]*{library}|find_package\s*\(\s*{library}|\bnc_(open|create)\b"
    return [
        f"line {number}: {line.strip()}"
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(pattern, line, re.IGNORECASE)
    ]


EMPTY_WORDS = re.compile(r"(?:^|_)(utils?|helpers?|misc|common_stuff)(?:_|$)")


def names(path: PurePosixPath, text: str) -> list[str]:
    """7. Names without meaning: no utils, helpers, misc."""
    parts = path.with_suffix("").parts
    found = [f"the path has '{part}'" for part in parts if EMPTY_WORDS.search(part)]
    if path.suffix == ".py":
        for node in nodes(text):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.name).lower()
                if EMPTY_WORDS.search(snake):
                    found.append(f"line {node.lineno}: '{node.name}'")
    return found


# Parts that work in run folders, /tmp and /dev/shm, or next to outputs, where other users may write.
AMONG_OTHERS = ("core", "cluster", *ROOMS, "survey", "report", "data")
OWN_WAYS = "src/sonde/core/owned_files.py"  # the only allowed way
# Exceptions: their number, and why they are safe.
SAFE: dict[tuple[str, str], tuple[int, str]] = {
    ("src/sonde/bus/run_keys.py", "shutil.rmtree"): (
        3,
        "of folders that it made itself, by names nobody foresees",
    ),
    ("src/sonde/bus/run_keys.py", "a foreseeable part"): (
        2,
        "its name has random digits, and mkdir takes no other's",
    ),
    ("src/sonde/store/run.py", "a foreseeable part"): (
        1,
        "its name has random digits, and O_EXCL takes no other's",
    ),
    ("src/sonde/store/run_bench.py", "shutil.rmtree"): (
        1,
        "of the servers' folders in its own run folder, 0700",
    ),
    ("src/sonde/io/study/run.py", "a foreseeable part"): (1, "in its own run folder, 0700"),
    ("src/sonde/power/jobs/run_job_shim.py", "a foreseeable part"): (
        1,
        "its name has random digits, and O_EXCL",
    ),
    ("src/sonde/power/jobs/run_job_shim.py", "os.open to make"): (
        1,
        "a job's output, with the job's own rights",
    ),
    ("src/sonde/core/tracefs.py", "mkdir"): (1, "an instance of tracefs, where only root makes any"),
    ("src/sonde/io/record/run_tracefs.py", "mkdir"): (1, "an instance of tracefs, where only root makes any"),
    ("src/sonde/power/jobs/run_job_cgroup.py", "mkdir"): (1, "a cgroup, whose files are the kernel's"),
    ("src/sonde/cluster/run_reaper.py", "mkdir"): (1, "in a new file system of its own"),
    ("src/sonde/report/render_static.py", "mkdir"): (
        1,
        "of figures, which NewFile writes: nothing reads them",
    ),
    ("src/sonde/data/convert.py", "mkdir"): (1, "of tables, which NewFile writes: nothing reads them"),
    ("src/sonde/power/jobs/run_job_archive.py", "shutil.rmtree"): (1, "of jobs' folders, in its own state"),
    ("src/sonde/power/jobs/run_job_manager.py", "shutil.rmtree"): (1, "of jobs' folders, in its own state"),
    ("src/sonde/power/jobs/run_job_start.py", "shutil.rmtree"): (2, "of jobs' folders, in its own state"),
}


def other_ways(path: PurePosixPath, text: str) -> list[str]:
    """6. Only sonde.core.owned_files makes, changes and removes files where others may write: no link is followed, no
    name is predictable, nothing is removed that is not Sonde's. Only its make_folder makes folders: none that somebody
    else could rename. SAFE lists the exceptions, each with its reason.
    """
    if path.parts[2] not in AMONG_OTHERS or path == PurePosixPath(OWN_WAYS):
        return []
    found: dict[str, list[int]] = {}
    for node in nodes(text):
        if isinstance(node, ast.Call):
            what = ast.unparse(node.func)
            said = " ".join(map(ast.unparse, [*node.args, *(word.value for word in node.keywords)]))
            if what.split(".")[-1] in ("mkdir", "makedirs"):
                found.setdefault("mkdir", []).append(node.lineno)
            elif what == "shutil.rmtree":
                found.setdefault(what, []).append(node.lineno)
            elif what == "os.open" and "O_CREAT" in said and not re.search("O_EXCL|O_NOFOLLOW", said):
                found.setdefault("os.open to make", []).append(node.lineno)
            elif what == "os.truncate":
                found.setdefault(what, []).append(node.lineno)
            elif (
                what.split(".")[-1] in ("open", "fdopen")
                and re.search(r"'[rw]b?\+b?'", said)
                and what != "os.fdopen"
            ):
                found.setdefault("open to change", []).append(node.lineno)
            elif what.split(".")[-1] in ("with_name", "with_suffix") and ".part" in said:
                found.setdefault("a foreseeable part", []).append(node.lineno)
    return [
        f"line {line}: {what}, which is safe in owned_files"
        for what, lines in found.items()
        for line in lines[SAFE.get((str(path), what), (0, ""))[0] :]
    ]


STARTED_HERE = {
    "src/sonde/cluster/run_reaper.py": "it starts in the right folder itself, and cannot import sonde (-I -S)",
}


def starts(path: PurePosixPath, text: str) -> list[str]:
    """Programs start in the folder of surroundings.place_of_ranks(), or in one that the call names: for root never in a
    folder where somebody else may put settings of a library. A Python looks for modules there only without -P and -I.
    """
    found = []
    for node in nodes(text):
        if isinstance(node, ast.Call) and str(path) not in STARTED_HERE:
            what = ast.unparse(node.func)
            started = what in (
                "subprocess.run",
                "subprocess.Popen",
                "subprocess.check_output",
                "subprocess.call",
            )
            if started and not any(word.arg == "cwd" for word in node.keywords):
                found.append(f"line {node.lineno}: {what} without cwd=place_of_ranks()")
        if isinstance(node, ast.List | ast.Tuple):
            words = [ast.unparse(word) for word in node.elts]
            for one, after in itertools.pairwise([*words, ""]):
                if one == "sys.executable" and after in ("'-c'", "'-m'"):
                    found.append(f"line {node.lineno}: a Python that looks for modules in its start folder")
    return found


OPEN_DATASETS = {
    "src/sonde/cli/diagnosis/libraries.py": "a file that it has just written, in a folder of its own",
    "src/sonde/core/dataset.py": "through netcdf.named",
    "src/sonde/core/dataset_file.py": "through the descriptor of a new file",
    "src/sonde/core/netcdf.py": "in memory",
    "src/sonde/core/seal.py": "through the descriptor of a new file",
    "src/sonde/net/cli_convert.py": "through netcdf.named",
}


def plain_files(path: PurePosixPath, text: str) -> list[str]:
    """Datasets are opened by netcdf.named, which refuses what is no plain file: a pipe would be waited for."""
    libraries = (
        "netCDF4.Dataset",
        "xr.open_dataset",
        "xr.open_datatree",
        "xr.load_dataset",
        "xr.open_mfdataset",
    )
    return [
        f"line {node.lineno}: {ast.unparse(node.func)}"
        for node in nodes(text)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in libraries
        and str(path) not in OPEN_DATASETS
    ]


PROCESS_NAMES = re.compile(r"/proc/\{.*/(stat|status|comm|maps)|'(stat|comm)'")


def texts_of_others(path: PurePosixPath, text: str) -> list[str]:
    """Names are bytes: bytes that are not text, in the output of programs and the kernel's reports on processes, end no
    command.
    """
    found = []
    for node in nodes(text):
        if not isinstance(node, ast.Call) or "errors" in (given := {word.arg for word in node.keywords}):
            continue
        if "text" in given and any(ast.unparse(word) == "text=True" for word in node.keywords):
            found.append(f"line {node.lineno}: text=True without errors=")
        what = ast.unparse(node.func)
        if what.endswith(".read_text") and PROCESS_NAMES.search(what) and len(node.args) < 2:
            found.append(f"line {node.lineno}: a process may be called what is no text")
    return found


MAX_FILE, MAX_FUNCTION = 700, 100  # lines


def sizes(path: PurePosixPath, text: str) -> list[str]:
    """No function has more than 100 lines, without its decorators. No file has more than 700, unless a line of its
    docstring gives the reason: "Long because: ...".
    """
    found = [
        f"line {node.lineno}: {node.name} has {lines} lines; at most {MAX_FUNCTION}"
        for node in nodes(text)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION
    ]
    lines = text.count("\n")
    reason = re.search(r"^Long because: \S", ast.get_docstring(parsed(text)) or "", re.MULTILINE)
    if lines > MAX_FILE and not reason:
        found.append(f"{lines} lines; at most {MAX_FILE}, or a line 'Long because: ...' in its docstring")
    return found


PYTHON: tuple[Rule, ...] = (
    layers,
    pure,
    drawing,
    printing,
    outcomes,
    once,
    names,
    other_ways,
    starts,
    plain_files,
    texts_of_others,
    sizes,
)
NATIVE: tuple[Rule, ...] = (include_layers, no_formats, names)


def below(folder: str, *suffixes: str) -> list[PurePosixPath]:
    found = (path for suffix in suffixes for path in (ROOT / folder).rglob(f"*{suffix}"))
    return sorted(PurePosixPath(path.relative_to(ROOT).as_posix()) for path in found)


SOURCES = below("src/sonde", ".py")
NATIVES = below("native", ".cpp", ".hpp", ".c", ".h", "CMakeLists.txt", ".cmake")


@pytest.mark.parametrize("rule", PYTHON, ids=lambda rule: rule.__name__)
def test_python_follows(rule: Rule):
    broken = [f"{path} {what}" for path in SOURCES for what in rule(path, read(path))]
    assert broken == [], rule.__doc__


@pytest.mark.parametrize("rule", NATIVE, ids=lambda rule: rule.__name__)
def test_native_code_follows(rule: Rule):
    broken = [f"{path} {what}" for path in NATIVES for what in rule(path, read(path))]
    assert broken == [], rule.__doc__


def test_every_exception_is_still_taken():
    for (path, what), (times, _) in SAFE.items():
        text = read(PurePosixPath(path))
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(SAFE, (path, what), (0, ""))
            found = [one for one in other_ways(PurePosixPath(path), text) if f": {what}," in one]
        assert len(found) == times, (path, what)


def test_there_is_something_to_hold_the_rules_against():
    assert len(SOURCES) > 20
    assert len(NATIVES) > 20
    assert {"median", "quantile_ci", "periodogram"} <= statistics().keys()


BREAKS = [
    (texts_of_others, "src/sonde/io/run_x.py", "subprocess.run(['x'], text=True)"),
    (texts_of_others, "src/sonde/io/run_x.py", "Path(f'/proc/{pid}/stat').read_text()"),
    (texts_of_others, "src/sonde/io/run_x.py", "(task / 'comm').read_text()"),
    (layers, "src/sonde/core/x.py", "import sonde.net.schema"),
    (layers, "src/sonde/core/x.py", "from sonde.report import page"),
    (layers, "src/sonde/core/x.py", "def f():\n    from sonde import net"),
    (layers, "src/sonde/core/launch/x.py", "from ...cli import console"),
    (layers, "src/sonde/net/x.py", "from sonde.io import trace"),
    (layers, "src/sonde/net/x.py", "from ..data import verbs"),
    (layers, "src/sonde/bus/x.py", "from sonde.power import policy"),
    (
        layers,
        "src/sonde/net/x.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import sonde.report.page",
    ),
    (layers, "src/sonde/data/x.py", "from sonde.cli.console import Console"),
    (layers, "src/sonde/core/x.py", "from sonde.cluster import Cluster"),
    (layers, "src/sonde/cluster/run.py", "from sonde.net import plan"),
    (layers, "src/sonde/cluster/cli.py", "from sonde.report import page"),
    (include_layers, "native/core/x.cpp", '#include "mpi/team.hpp"'),
    (include_layers, "native/mpi/x.hpp", '#include "net/probe.hpp"'),
    (include_layers, "native/net/x.cpp", '  #  include "io/trace.hpp"'),
    (include_layers, "native/core/x.cpp", '#include "bind/raise.hpp"'),
    (pure, "src/sonde/net/analyse.py", "import os"),
    (pure, "src/sonde/net/analyse.py", "from subprocess import run"),
    (pure, "src/sonde/net/analyse.py", "def f():\n    import socket"),
    (pure, "src/sonde/net/deep/x.py", "import time"),
    (pure, "src/sonde/cluster/plan.py", "import subprocess"),
    (pure, "src/sonde/net/analyse.py", "def f(p):\n    return open(p)"),
    (pure, "src/sonde/net/analyse.py", "import datetime\nx = datetime.datetime.now()"),
    (drawing, "src/sonde/net/figures.py", "import plotly.graph_objects as go"),
    (drawing, "src/sonde/report/page.py", "from matplotlib import pyplot"),
    (drawing, "src/sonde/cli/x.py", "def f():\n    import matplotlib"),
    (printing, "src/sonde/net/run.py", "print('done')"),
    (printing, "src/sonde/net/cli.py", "import sys\nsys.exit(1)"),
    (printing, "src/sonde/data/cli.py", "import click\nclick.echo('x')"),
    (printing, "src/sonde/core/x.py", "raise SystemExit(3)"),
    (printing, "src/sonde/core/x.py", "import sys\nsys.stdout.write('x')"),
    (printing, "src/sonde/net/cli.py", "from rich.table import Table"),
    (outcomes, "src/sonde/net/cli.py", "@group.command()\n@common()\ndef run() -> None: ..."),
    (outcomes, "src/sonde/survey/cli.py", "@click.command('x')\ndef command(): ..."),
    (once, "src/sonde/net/analyse.py", "def {statistic}(x): ..."),
    (no_formats, "native/net/x.cpp", "#include <netcdf.h>"),
    (no_formats, "native/core/x.cpp", '#include "toml++/toml.hpp"'),
    (no_formats, "native/CMakeLists.txt", "find_package(netCDF REQUIRED)"),
    (no_formats, "native/store/client/x.cpp", "#include <hdf5.h>"),
    (no_formats, "native/io/trace/x.cpp", "#include <hdf5.h>"),
    (names, "src/sonde/core/utils.py", ""),
    (names, "native/power/misc.cpp", ""),
    (names, "src/sonde/net/x.py", "class LinkHelper: ..."),
    (names, "src/sonde/net/x.py", "def time_helper(): ..."),
    (names, "native/core/string_util.hpp", ""),
    (other_ways, "src/sonde/core/seal.py", "import shutil\nshutil.rmtree(folder)"),
    (other_ways, "src/sonde/io/trace/run_close.py", "with path.open('r+b', buffering=0) as file: ..."),
    (other_ways, "src/sonde/io/trace/run_close.py", "with open(path, 'r+') as file: ..."),
    (other_ways, "src/sonde/core/x.py", "os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)"),
    (other_ways, "src/sonde/survey/run.py", "folder.mkdir(parents=True, exist_ok=True)"),
    (other_ways, "src/sonde/power/demo/run.py", "os.makedirs(folder)"),
    (starts, "src/sonde/net/run.py", "subprocess.run(['mpirun', '--version'])"),
    (starts, "src/sonde/net/run.py", "subprocess.Popen(words, env=env)"),
    (starts, "src/sonde/net/run.py", "words = [sys.executable, '-m', 'sonde']"),
    (plain_files, "src/sonde/net/run.py", "xr.open_dataset(path)"),
    (other_ways, "src/sonde/report/publish.py", "part = output.with_name(output.name + '.part')"),
    pytest.param(sizes, "src/sonde/net/x.py", "x = 1\n" * (MAX_FILE + 1), id="long-file"),
    pytest.param(
        sizes, "src/sonde/net/x.py", '"""Long because of habit."""\n' + "x = 1\n" * MAX_FILE, id="no-reason"
    ),
    pytest.param(
        sizes,
        "src/sonde/net/x.py",
        "class A:\n    def f(self):\n" + "        x = 1\n" * MAX_FUNCTION,
        id="long-function",
    ),
    (other_ways, "src/sonde/store/run.py", "a = p.with_name('.part')\nb = p.with_name(f'{p.name}.part')"),
]


@pytest.mark.parametrize(("rule", "path", "text"), BREAKS)
def test_a_rule_finds_what_breaks_it(rule: Rule, path: str, text: str):
    assert rule(PurePosixPath(path), text.replace("{statistic}", min(statistics())))


KEEPS = [
    (
        layers,
        "src/sonde/net/cli.py",
        "from sonde.core.options import common\nfrom sonde.net import run\nimport click",
    ),
    (layers, "src/sonde/survey/cli.py", "from sonde.net import run\nfrom sonde.report import page"),
    (layers, "src/sonde/cli/doctor.py", "from sonde.net import schema\nfrom sonde.cli import console"),
    (layers, "src/sonde/core/units.py", "import sonde._core as _core\nimport sonde"),
    (layers, "src/sonde/io/run.py", "from sonde.cluster import Cluster"),
    (layers, "src/sonde/power/run.py", "from sonde.bus import client"),
    (layers, "src/sonde/cluster/run.py", "from sonde.core import units"),
    (
        include_layers,
        "native/net/x.cpp",
        '#include "core/clock.hpp"\n#include "mpi/team.hpp"\n#include <mpi.h>',
    ),
    (pure, "src/sonde/net/run.py", "import os, subprocess, time"),
    (pure, "src/sonde/core/config.py", "import os"),
    (pure, "src/sonde/cluster/run_reaper.py", "import os, ctypes"),
    (
        pure,
        "src/sonde/net/analyse.py",
        "import numpy as np\nfrom pathlib import Path\nfrom os import PathLike",
    ),
    (drawing, "src/sonde/report/render_static.py", "import plotly"),
    (printing, "src/sonde/cli/console.py", "print('x')"),
    (printing, "src/sonde/net/run.py", "def fingerprint(): ...\nfingerprint()"),
    (
        outcomes,
        "src/sonde/net/cli.py",
        "@group.command()\ndef run() -> Outcome: ...\n\n@click.group()\ndef g() -> None: ...",
    ),
    (no_formats, "native/core/x.cpp", "// what NetCDF calls a dimension"),
    (no_formats, "native/io/load/x.cpp", "#include <hdf5.h>"),
    (no_formats, "native/power/config.cpp", "#include <toml++/toml.h>"),
    (once, "src/sonde/net/x.py", "def {statistic}(series):\n    return stats.{statistic}(series.values)"),
    (names, "native/power/powerd/node_manager.cpp", ""),
    (names, "src/sonde/net/x.py", "class Futile: ...\nclass LinkManager: ..."),
    (
        other_ways,
        "src/sonde/core/owned_files.py",
        "os.open(name, os.O_CREAT | os.O_EXCL, mode, dir_fd=folder)",
    ),
    (
        other_ways,
        "src/sonde/io/trace/run_close.py",
        "with os.fdopen(run.change(name), 'r+b', buffering=0) as file: ...",
    ),
    (other_ways, "src/sonde/cli/x.py", "shutil.rmtree(folder)"),
    (other_ways, "src/sonde/survey/run.py", "make_folder(folder, parents=True, exist_ok=True)"),
    (starts, "src/sonde/net/run.py", "subprocess.run([sys.executable, '-P', '-c', x], cwd=place_of_ranks())"),
    (plain_files, "src/sonde/net/run.py", "dataset.open(path)"),
    pytest.param(sizes, "src/sonde/net/x.py", "x = 1\n" * MAX_FILE, id="file"),
    pytest.param(
        sizes,
        "src/sonde/net/x.py",
        '"""One table.\n\nLong because: a row for each name.\n"""\n' + "x = 1\n" * MAX_FILE,
        id="reason",
    ),
    pytest.param(
        sizes,
        "src/sonde/net/x.py",
        "@option\ndef f():\n" + "    x = 1\n" * (MAX_FUNCTION - 1),
        id="decorated",
    ),
    (texts_of_others, "src/sonde/io/run_x.py", "subprocess.run(['x'], text=True, errors='replace')"),
    (texts_of_others, "src/sonde/io/run_x.py", "Path(f'/proc/{pid}/stat').read_text('utf-8', 'replace')"),
]


@pytest.mark.parametrize(("rule", "path", "text"), KEEPS)
def test_a_rule_leaves_alone_what_keeps_it(rule: Rule, path: str, text: str):
    assert rule(PurePosixPath(path), text.replace("{statistic}", min(statistics()))) == []


def test_a_room_has_the_same_name_everywhere():
    for room in ROOMS:
        there = {place for place in ("native", "src/sonde", "tests/unit") if (ROOT / place / room).is_dir()}
        assert there in (set(), {"native", "src/sonde", "tests/unit"}), f"{room} is only in {there}"


def modules_of(path: PurePosixPath) -> str:
    """sonde.core.units for src/sonde/core/units.py; sonde.core for its __init__.py."""
    return ".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__")


def circles(imported: dict[str, set[str]]) -> list[set[str]]:
    """Sets of modules that import each other, directly or indirectly. imported: the imports of each module."""
    reached: dict[str, set[str]] = {}
    for module in imported:
        seen, waiting = set[str](), [module]
        while waiting:
            new = imported.get(waiting.pop(), set()) - seen
            seen |= new
            waiting += new
        reached[module] = seen
    found = {
        frozenset(other for other in seen if module in reached[other]) for module, seen in reached.items()
    }
    return [set(each) for each in found if each]


def imported_by_all(depth: int | None = None) -> dict[str, set[str]]:
    """The imports of each module, also in functions and for types. depth: number of parts after which names are cut."""
    known = {modules_of(path): path for path in SOURCES}
    out: dict[str, set[str]] = {}
    for name, path in known.items():
        others = {
            other if other in known else other.rpartition(".")[0] for _, other in imports(path, read(path))
        }
        short = [".".join(each.split(".")[:depth]) for each in (name, *others & set(known))]
        out.setdefault(short[0], set()).update(set(short[1:]) - {short[0], "sonde"})
    return out


def test_no_modules_import_each_other():
    assert circles(imported_by_all()) == []


# Rooms that have packages: the largest numbers of parts (packages, and modules beside them) and of imports among these.
TOP_OF_A_ROOM = {"io": (10, 24), "noise": (11, 26), "power": (10, 26)}


@pytest.mark.parametrize("room", TOP_OF_A_ROOM)
def test_packages_of_a_room_stand_on_each_other_one_way(room):
    """Commands, and modules that pass a dataset to a package, import the packages; no package imports them."""
    packages = {
        f"sonde.{room}.{path.name}" for path in (ROOT / "src/sonde" / room).iterdir() if path.is_dir()
    }
    among = {name: others & packages for name, others in imported_by_all(3).items() if name in packages}
    assert circles(among) == []
    assert any(among.values())


@pytest.mark.parametrize("room", TOP_OF_A_ROOM)
def test_the_top_of_a_room_is_seen_at_once(room):
    parts = {name: others for name, others in imported_by_all(3).items() if name.startswith(f"sonde.{room}.")}
    among = [other for others in parts.values() for other in others if other in parts]
    max_parts, max_imports = TOP_OF_A_ROOM[room]
    assert len(parts) <= max_parts
    assert len(among) <= max_imports


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [{"a", "b", "c"}]
    assert circles({"a": {"b"}, "b": set()}) == []


ROOM_OF_A_TEST = {
    "room.py": """
from sonde.core.room import Room
class LabRoom(Room):
    name, title, help = "lab", "Laboratory", "What a room of a test costs."
    all_of = ("bench",)
    def schema(self):
        from sonde.lab.schema import SCHEMA
        return SCHEMA
    def section(self, tree, dataset):
        from sonde.core.section import Section
        return Section("lab", "Of a test", f"It weighs {float(tree['raw']['weight']):g} kg.")
    def survey_entry(self):
        from sonde.lab.run_survey import LabSurvey
        return LabSurvey()
    def checks(self):
        from sonde.core.diagnosis import GOOD, Answer, check
        return (check("bench", "Bench", "Laboratory")(lambda here: Answer("it stands", GOOD, {"works": True})),)
ROOM = LabRoom()
""",
    "cli.py": """
import click
@click.group()
def group(): "What a room of a test costs."
""",
    "schema.py": """
class LabSchema:
    room, version = "lab", 1
    def validate(self, tree): return []
SCHEMA = LabSchema()
""",
    "run_survey.py": """
import numpy as np, xarray as xr
from sonde.core import dataset_file, provenance
from sonde.core.layout import SealedFile
from sonde.core.launch.measured import Measured
from sonde.core.survey_entry import Compared, Judgement, SurveyEntry
class LabSurvey(SurveyEntry):
    weight, spread = 1.0, 2.0
    def needs_s(self, call): return 0.0
    def measure(self, call):
        attrs = provenance.attrs(command=call.command, seed=1, hostlist="here")
        attrs |= {"schema": "lab/1", "stop_reason": "converged", "complete": 1}
        kilograms = {"units": "kg", "long_name": "weight"}
        raw = xr.Dataset({name: ((), 3.0, kilograms) for name in ("weight", "weight_low", "weight_high")})
        path = dataset_file.write_dataset(call.folder / "lab.nc", raw, raw, attrs)
        return Measured([SealedFile(path, True, [])], "converged", False, None)
    def judge(self, tree, name): return Judgement("it was weighed")
    def compare(self, before, now, names): return Compared()
""",
}


def test_to_add_a_room_is_to_add_its_folder_and_one_name(tmp_path):
    """Each part above the rooms finds it: help, doctor, survey, report, validate, diff."""
    (tmp_path / "lab").mkdir()
    for name, text in ROOM_OF_A_TEST.items():
        (tmp_path / "lab" / name).write_text(text)
    here = f"import sonde; sonde.__path__.append({str(tmp_path)!r})"
    one_line = "from sonde.core import room; room.NAMES = ('lab',)"
    run = "import sys; from sonde.cli import entry; sys.exit(entry.main(sys.argv[1:]))"

    def sonde(*words: str) -> str:
        command = [sys.executable, "-c", f"{here}\n{one_line}\n{run}", *words]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            errors="replace",
            env=os.environ | {"SONDE_CONFIG": ""},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "What a room of a test costs." in sonde("--help")
    doctor = json.loads(sonde("doctor", "--json"))
    assert next(room for room in doctor["rooms"] if room["room"] == "lab")["works"]
    assert doctor["checks"]["bench"]["text"] == "it stands"
    survey = json.loads(sonde("survey", "-o", "here", "--budget", "5s", "--json"))
    assert [(room["room"], room["verdict"]) for room in survey["rooms"]] == [("lab", "it was weighed")]
    page = (tmp_path / "here" / "report.html").read_text()
    assert "It weighs 3 kg." in page
    assert "Laboratory" in page
    sonde("data", "validate", "here/lab.nc")
    sonde("data", "diff", "here/lab.nc", "here/lab.nc")


def unit_tests() -> list[PurePosixPath]:
    return [path for path in below("tests/unit", ".py") if path.name.startswith("test_")]


def mirrored(test: PurePosixPath) -> list[PurePosixPath]:
    """The modules that a unit test may be about: src/sonde/core/x.py or x/ for tests/unit/core/test_x.py."""
    folder = PurePosixPath("src/sonde") / test.parent.relative_to("tests/unit")
    words = test.stem.split("_")[1:]  # test_stats_golden.py is about stats.py as well
    if words[0] == test.parent.name and len(words) > 1:
        words = words[1:]  # tests/unit/data/test_data_cli.py: pytest wants file names that differ
    names = ["_".join(words[:n]) for n in range(len(words), 0, -1)]
    return [path for name in names for path in (folder / f"{name}.py", folder / name / "__init__.py")]


def test_unit_tests_mirror_modules():
    assert unit_tests()
    orphans = [
        str(test) for test in unit_tests() if not any((ROOT / path).exists() for path in mirrored(test))
    ]
    assert orphans == []


def test_the_mirror_finds_what_it_should():
    assert PurePosixPath("src/sonde/core/units.py") in mirrored(
        PurePosixPath("tests/unit/core/test_units.py")
    )
    assert PurePosixPath("src/sonde/core/launch/srun.py") in mirrored(
        PurePosixPath("tests/unit/core/launch/test_srun.py")
    )
    assert not any(
        (ROOT / path).exists() for path in mirrored(PurePosixPath("tests/unit/core/test_nothing.py"))
    )


def has_logic(text: str) -> bool:
    """Whether a module has logic: a function with more than a docstring, `...` or one plain return."""
    for node in nodes(text):
        if isinstance(node, ast.FunctionDef):
            body = [
                part
                for part in node.body
                if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
                and not isinstance(part, ast.Import | ast.ImportFrom)
            ]
            if len(body) > 1 or any(
                isinstance(part, ast.For | ast.If | ast.While | ast.Try | ast.With) for part in body
            ):
                return True
    return False


def subjects(test: PurePosixPath) -> set[str]:
    """The modules that a unit test is about: those in its name, and those that it imports directly."""
    about = {".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__") for path in mirrored(test)}
    named = {name for _, name in imports(test, read(test))}
    return about | named | {name.rpartition(".")[0] for name in named}


def test_every_module_of_core_and_every_pure_module_of_a_room_has_a_unit_test():
    covered = {name for test in unit_tests() for name in subjects(test)}
    untested = []
    for path in SOURCES:
        name = ".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__")
        package = name.rpartition(".")[0]
        pure = path.parts[2] in ("core", *BELOW, *ROOMS) and not TOUCHES_MACHINE.fullmatch(path.name)
        # test_launch.py is about the whole of launch/
        about = {name} if package.count(".") < 2 else {name, package}
        if pure and has_logic(read(path)) and not about & covered:
            untested.append(str(path))
    assert untested == []


def test_logic_is_distinguished_from_definitions():
    assert has_logic("def f(x):\n    y = x\n    return y")
    assert has_logic("class A:\n    def f(self, x):\n        if x: return 1")
    assert not has_logic('def f(x):\n    """Says."""\n    return x')
    assert not has_logic("def f(x):\n    from a import b\n    return b")
    assert not has_logic("class P:\n    x: int\n    def f(self) -> int: ...")

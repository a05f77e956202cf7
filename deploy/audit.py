"""Asks a database of advisories about each Python package in deploy/constraints.txt: `make audit`.

Words are passed to pip-audit, such as --osv-url URL for a copy of the database within reach. What the system's packages
bring (MPI, HDF5, libfabric, DDS, ...) is the distribution's to watch, and said so.
Exit status: 0 nothing is known; 1 something is; 3 not every package could be asked about.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from sonde.core import surroundings

LOCKED = Path(__file__).resolve().parent / "constraints.txt"
HINT = "--osv-url names another copy of the database: .venv/bin/python deploy/audit.py --osv-url https://…"


def judged(packages: list[dict[str, Any]]) -> tuple[list[str], int]:
    """Returns what to print of pip-audit's list, and the exit status."""
    known = [(one["name"], one["version"], flaw) for one in packages for flaw in one.get("vulns", [])]
    skipped = [one for one in packages if "skip_reason" in one]
    lines = [
        f"  {name} {version}: {flaw['id']}, mended in {', '.join(flaw['fix_versions']) or 'no version yet'}"
        for name, version, flaw in known
    ]
    lines += [f"  {one['name']}: not asked: {one['skip_reason']}" for one in skipped]
    lines.append(
        f"Python packages asked about: {len(packages) - len(skipped)} of {len(packages)}; advisories: {len(known)}. "
        "System packages: see your distribution's security updates"
    )
    if skipped or not packages:
        return lines, 3
    return lines, 1 if known else 0


def main(words: list[str]) -> int:
    options = ("--require-hashes", "--disable-pip", "--format", "json", "--progress-spinner", "off")
    for line in surroundings.make_safe(os.environ, LOCKED.parent):
        print(f"warning: {line}", file=sys.stderr)
    # -P: not a pip_audit of the current folder, whosever that is
    asked = (sys.executable, "-P", "-m", "pip_audit", "-s", "osv", *options, "-r", str(LOCKED), *words)
    done = subprocess.run(asked, text=True, capture_output=True)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        last = done.stderr.strip().splitlines()[-1:] or ["pip-audit said nothing"]
        print(
            f"error: the advisories could not be asked for: {last[0][:300]}\n  hint: {HINT}", file=sys.stderr
        )
        return 3
    lines, status = judged(packages)
    print("\n".join(lines))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

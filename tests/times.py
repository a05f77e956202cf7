"""Where the time of the tests goes: seconds running and seconds waiting, of each file.

    SONDE_TEST_TIMES=FILE make test; python tests/times.py FILE [FILE …]

The first writes a line of JSON a test to FILE: name, begin and end (s since 1970), CPU time of the test's own process
and of all that it started and waited for (s). The second prints the sums of each test file as a table, longest first.
Running is CPU time, on as many cores as were used; waiting is the rest of the wall time, none where several cores ran.
What others take from the processors counts as waiting, so measure on a quiet machine.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest


def cpu_s() -> float:
    """s, of this process and of its children that were waited for, in user and in system mode."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    began, before = time.time(), cpu_s()
    result = yield
    line = json.dumps([item.nodeid, began, time.time(), cpu_s() - before])
    with open(os.environ["SONDE_TEST_TIMES"], "a") as file:
        file.write(line + "\n")
    return result


def table(lines: Iterable[str]) -> str:
    """Markdown: file, tests, seconds, running, waiting; the sums in the last row."""
    rows: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0])
    for line in lines:
        name, began, ended, cpu, *_ = json.loads(line)
        for row in (rows[name.split("::")[0]], rows["all"]):
            row[0] += 1
            row[1] += ended - began
            row[2] += cpu
    total = rows.pop("all")
    text = ["| file | tests | s | running | waiting |", "|---|---:|---:|---:|---:|"]
    for name, (tests, wall, cpu) in [*sorted(rows.items(), key=lambda row: -row[1][1]), ("all", total)]:
        text.append(f"| {name} | {tests:.0f} | {wall:.1f} | {cpu:.1f} | {max(0.0, wall - cpu):.1f} |")
    return "\n".join(text)


if __name__ == "__main__":
    print(table(line for name in sys.argv[1:] for line in Path(name).read_text().splitlines()))

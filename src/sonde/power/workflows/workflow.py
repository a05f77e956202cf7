"""Workflows: jobs that wait for each other, read from TOML. Pure; docs/reference/power-workflow.md is the manual.

name = "study"

[defaults]
nodes = 2

[jobs.mesh]
command = ["./mesh", "wing.cad"]

[jobs.solve]
command = ["./solve", "--angle", "{angle}"]
foreach = { angle = [0, 5, 10] }
after = ["mesh"]
on_failure = "retry 2"
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from sonde.core import hostlist
from sonde.core.config import lines_of, toml
from sonde.core.errors import UsageError, nearest
from sonde.core.units import parse_duration, parse_power, parse_size
from sonde.power.jobs.jobs import Spec, Target
from sonde.power.jobs.retention import size_of_text

TOP_KEYS = ("name", "defaults", "jobs")
WAIT_KEYS = ("after", "after_any", "foreach")  # keys that [defaults] cannot set
JOB_KEYS = (
    "command", "folder", "output", "environment", "nodes", "cores", "memory", "disks", "nics", "power", "guaranteed",
    "weight", "time", "queue", "target", "on_failure", *WAIT_KEYS,
)  # fmt: skip
TARGET_KEYS = ("slowdown", "iteration", "energy")
NO_TARGET = Target()
STOP, CONTINUE = "stop", "continue"
MOST_JOBS, MOST_RETRIES, MOST_TEXT, LONGEST = 10_000, 100, 4095, 1 << 20
MAX_FILLED = 32 << 20  # commands, environments and folders of all jobs, B
MAX_WAITS = 1_000_000  # number of dependencies of all jobs together
STEP_B, WAIT_B = (
    2500,
    16,
)  # about what Python needs for a job and its state, and for a dependency

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}", re.ASCII)
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_FIELD = re.compile(r"(?<!\$)\{\{|\}\}|(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)
_RETRY = re.compile(r"retry (\d{1,3})(?:, (stop|continue))?", re.ASCII)


@dataclass(frozen=True)
class OnFailure:
    """retries: how often the job is submitted again. then: whether the other jobs go on if no retry helped."""

    retries: int = 0
    then: str = STOP


@dataclass(frozen=True)
class Step:
    """A job of a workflow. Powers are for each node, W, 0: not set. nodes: number of nodes, if no hosts are named.

    base: its name in the file, which all jobs of a `foreach` share. values: its parameters.
    """

    name: str
    base: str
    command: tuple[str, ...]
    values: tuple[tuple[str, str], ...] = ()
    folder: str = ""
    output: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    nodes: int = 1
    hosts: tuple[str, ...] = ()
    cores: int = 0
    memory_bytes: int = 0
    disks: int = 0
    nics: int = 0
    demand_w: float = 0.0
    guaranteed_w: float = 0.0
    weight: float = 1.0
    time_s: float = 0.0
    queue: str = ""
    target: Target = NO_TARGET
    on_failure: OnFailure = OnFailure()
    after: tuple[str, ...] = ()
    after_any: tuple[str, ...] = ()

    @property
    def waits_for(self) -> tuple[str, ...]:
        return self.after + self.after_any

    @property
    def text_b(self) -> int:
        """Approximate size of its texts in memory."""
        pairs = (f"{name}={value}" for name, value in self.environment)
        return sum(map(size_of_text, (*self.command, *pairs, self.folder, self.output)))


@dataclass(frozen=True)
class Workflow:
    """Steps by name, each after the steps that it waits for. text: the file it was read from."""

    name: str
    steps: Mapping[str, Step]
    text: str = ""
    path: str = ""

    @property
    def size_b(self) -> int:
        """Its approximate size in memory."""
        steps = self.steps.values()
        waits = sum(len(step.after) + len(step.after_any) for step in steps)
        return size_of_text(self.text) + WAIT_B * waits + sum(STEP_B + step.text_b for step in steps)


def read(text: str, path: str = "workflow.toml") -> Workflow:
    """A workflow from its file's text. path: for error messages, and for the name if the file sets none.

    Raises
    ------
    UsageError  power.bad_toml, power.unknown_key, power.bad_value, power.unknown_job, power.cycle, power.unreachable.
    """
    if len(text) > LONGEST:
        raise UsageError("power.bad_toml", f"{path} has {len(text)} characters; allowed: {LONGEST}")
    try:
        table = toml(text)
    except ValueError as error:
        at = re.search(r" \(at line (\d+), column \d+\)", str(error))
        line = int(at[1]) if at else text.count("\n") + 1
        why = str(error).replace(at[0], "") if at else str(error)
        raise UsageError("power.bad_toml", f"{path}:{line}: not TOML: {why}", "put texts in quotes") from None
    return _Reader(text, path).workflow(table)


def spec_of(step: Step, job: str, user: str, folder: str) -> Spec:
    """The job that is submitted for a step. folder: the workflow file's folder, to which its paths are relative."""

    def placed(path: str) -> str:
        return str(PurePosixPath(folder) / path) if path else ""

    return Spec(
        job,
        step.command,
        user,
        step.name[:256],
        step.queue,
        (*(f"{name}={value}" for name, value in step.environment), f"SONDE_WORKFLOW_JOB={step.name}"),
        placed(step.folder or "."),
        placed(step.output),
        step.nodes,
        step.hosts,
        step.cores,
        step.memory_bytes,
        step.disks,
        step.nics,
        step.time_s,
        0.0,
        step.guaranteed_w,
        step.demand_w,
        step.weight,
        step.target,
    )


class _Reader:
    def __init__(self, text: str, path: str) -> None:
        self.text, self.path, self._lines = text, path, lines_of(text)
        self._filled = self._waits = 0

    def fail(self, code: str, place: Sequence[str], what: str, hint: str = "") -> UsageError:
        heads: list[tuple[str, ...]] = [tuple(place[:n]) for n in range(len(place), 0, -1)]
        at = next((f"{self._lines[head]}:" for head in heads if head in self._lines), "")
        return UsageError(f"power.{code}", f"{self.path}:{at} {what}", hint)

    def keys(self, table: Mapping[str, Any], place: tuple[str, ...], known: Sequence[str]) -> None:
        where = f"in [{'.'.join(place)}]" if place else "at the top"
        for key in table:
            if key not in known:
                what = f"unknown key '{key}' {where}{nearest(key, list(known))}"
                raise self.fail("unknown_key", (*place, key), what, f"allowed there: {', '.join(known)}")

    def bad(self, place: Sequence[str], value: Any, allowed: str) -> UsageError:
        shown = (
            f"'{value}'"
            if isinstance(value, str)
            else str(value).lower()
            if isinstance(value, bool)
            else f"{value}"
        )
        if len(shown) > 60:
            shown = f"{shown[:57]}..."
        table = f"[{'.'.join(place[:-1])}] " if len(place) > 1 else ""
        return self.fail("bad_value", tuple(place), f"{table}{place[-1]} is {shown}; allowed: {allowed}")

    def table(self, value: Any, place: Sequence[str]) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self.bad(place, value, f"a table, [{'.'.join(place)}]")
        return value

    # ---- values

    def text_of(self, value: Any, place: Sequence[str], most: int = MOST_TEXT) -> str:
        if not isinstance(value, str) or len(value) > most or "\0" in value:
            raise self.bad(place, value, f"a text of at most {most} characters")
        return value

    def texts_of(self, value: Any, place: Sequence[str]) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise self.bad(place, value, "a list of texts")
        return tuple(self.text_of(one, place) for one in value)

    def whole(self, value: Any, place: Sequence[str], least: int, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.bad(place, value, f"a whole number of {least} to {most}")
        return value

    def quantity(self, value: Any, place: Sequence[str], parse: Any, allowed: str, above: float = 0.0) -> Any:
        """A number with a unit, or a plain number in the SI unit."""
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise self.bad(place, value, allowed)
        try:
            number = parse(value if isinstance(value, str) else repr(value))
        except (UsageError, ValueError):
            raise self.bad(place, value, allowed) from None
        if not number >= above:
            raise self.bad(place, value, allowed)
        return number

    def command(self, value: Any, place: Sequence[str]) -> tuple[str, ...]:
        if isinstance(value, str) and value.strip():
            return ("/bin/sh", "-c", self.text_of(value, place))
        command = self.texts_of(value, place) if isinstance(value, list) else ()
        if not command or not command[0]:
            raise self.bad(place, value, 'a list of texts, ["./solve", "-n", "4"], or a line for /bin/sh')
        return command

    def nodes(self, value: Any, place: Sequence[str]) -> tuple[int, tuple[str, ...]]:
        if isinstance(value, str):
            try:
                hosts = tuple(hostlist.expand(value))
            except UsageError:
                raise self.bad(place, value, 'a number, or a host list such as "n[001-004]"') from None
            return len(hosts), hosts
        return self.whole(value, place, 1, 100_000), ()

    def on_failure(self, value: Any, place: Sequence[str]) -> OnFailure:
        allowed = '"stop", "continue", "retry N" or "retry N, continue"'
        if value in (STOP, CONTINUE):
            return OnFailure(0, value)
        found = _RETRY.fullmatch(value) if isinstance(value, str) else None
        if not found:
            near = nearest(value, [STOP, CONTINUE, "retry 1"]) if isinstance(value, str) else ""
            raise self.bad(place, value, allowed + near)
        return OnFailure(self.whole(int(found[1]), place, 1, MOST_RETRIES), found[2] or STOP)

    def target(self, value: Any, place: tuple[str, ...]) -> Target:
        table = self.table(value, place)
        self.keys(table, place, TARGET_KEYS)
        if len(table) != 1:
            raise self.bad(place, value, f"one of {', '.join(TARGET_KEYS)}")
        ((key, one),) = table.items()
        at = (*place, key)
        if key == "slowdown":
            allowed = 'a share above 0 and up to 100 %, such as "5%"'
            number = float(self.quantity(one, at, _share, allowed, 1e-6))
            if number > 1:
                raise self.bad(at, one, allowed)
            return Target(slowdown=number)
        if key == "iteration":
            return Target(iteration_s=self.quantity(one, at, parse_duration, 'a time such as "2s"', 1e-9))
        return Target(energy_j=self.quantity(one, at, float, "a number of J", 1e-9))

    def environment(self, value: Any, place: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        out = []
        for key, one in self.table(value, place).items():
            if not _PARAMETER.fullmatch(key):
                raise self.bad((*place, key), key, "names of letters, digits and _")
            if isinstance(one, bool) or not isinstance(one, (str, int, float)):
                raise self.bad((*place, key), one, "texts and numbers")
            out.append((key, self.text_of(str(one), (*place, key))))
        return tuple(out)

    def foreach(self, value: Any, place: tuple[str, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
        out = []
        for key, many in self.table(value, place).items():
            at = (*place, key)
            if not _PARAMETER.fullmatch(key):
                raise self.bad(at, key, "parameters named by letters, digits and _")
            if not isinstance(many, list) or not many:
                raise self.bad(at, many, "a list of at least one text or number")
            if any(isinstance(one, bool) or not isinstance(one, (str, int, float)) for one in many):
                raise self.bad(at, many, "a list of texts or numbers")
            texts = tuple(self.text_of(str(one), at, 64) for one in many)
            if len(set(texts)) < len(texts):
                raise self.bad(at, many, "each value once")
            if any(set(text) & set(",=[]") or not text.isprintable() for text in texts):
                raise self.bad(at, many, "values without , = [ ]: they are part of the job's name")
            out.append((key, texts))
        if len(out) > 8:
            raise self.bad(place, len(out), "up to 8 parameters")
        return tuple(out)

    # ---- jobs

    def workflow(self, table: Mapping[str, Any]) -> Workflow:
        self.keys(table, (), TOP_KEYS)
        stem = re.sub(r"\.toml$", "", self.path.rsplit("/", 1)[-1]) or "workflow"
        name = self.text_of(table.get("name", re.sub(r"[^A-Za-z0-9_.-]", "-", stem)[:40]), ("name",), 40)
        if not _NAME.fullmatch(name):
            raise self.bad(("name",), name, "letters, digits, '_', '.', '-'")
        defaults = self.table(table.get("defaults", {}), ("defaults",))
        self.keys(defaults, ("defaults",), [key for key in JOB_KEYS if key not in WAIT_KEYS])
        jobs = self.table(table.get("jobs", {}), ("jobs",))
        if not jobs:
            raise self.fail(
                "bad_value", ("jobs",), "there is no job", "write a table [jobs.NAME] with its command"
            )
        steps: dict[str, Step] = {}
        of_base: dict[str, list[Step]] = {}
        for base, body in jobs.items():
            if not _NAME.fullmatch(base):
                raise self.bad(("jobs", base), base, "letters, digits, '_', '.', '-', at most 63 of them")
            for step in self.steps(base, defaults, self.table(body, ("jobs", base))):
                steps[step.name] = step
                of_base.setdefault(base, []).append(step)
                if len(steps) > MOST_JOBS:
                    what = f"there are more than {MOST_JOBS} jobs"
                    raise self.fail("bad_value", ("jobs", base), what, "shorten the lists of 'foreach'")
        wired = {name: self.wired(step, of_base) for name, step in steps.items()}
        return Workflow(name, {name: wired[name] for name in self.order(wired)}, self.text, self.path)

    def steps(self, base: str, defaults: Mapping[str, Any], body: Mapping[str, Any]) -> Iterable[Step]:
        """One job of the file: one step, or one step for each combination of its parameters."""
        own = ("jobs", base)
        self.keys(body, own, JOB_KEYS)
        both = {**defaults, **body}

        def at(key: str) -> tuple[str, ...]:
            return (*(own if key in body else ("defaults",)), key)

        if "command" not in both:
            raise self.fail(
                "bad_value", own, f"[jobs.{base}] has no command", 'write command = ["./program"]'
            )
        fields: dict[str, Any] = {"command": self.command(both["command"], at("command"))}
        power = 'a power above 0 of each node, such as "300W"'
        for key, value in both.items():
            match key:
                case "folder" | "output":
                    fields[key] = self.text_of(value, at(key))
                case "queue":
                    fields[key] = self.text_of(value, at(key), 64)
                case "environment":
                    fields[key] = self.environment(value, at(key))
                case "nodes":
                    fields["nodes"], fields["hosts"] = self.nodes(value, at(key))
                case "cores" | "disks" | "nics":
                    fields[key] = self.whole(value, at(key), 0, 65536)
                case "memory":
                    fields["memory_bytes"] = self.quantity(
                        value, at(key), parse_size, 'a size such as "4GiB"'
                    )
                case "power" | "guaranteed":
                    name = "demand_w" if key == "power" else "guaranteed_w"
                    fields[name] = self.quantity(value, at(key), parse_power, power, 1e-3)
                case "weight":
                    fields[key] = self.quantity(value, at(key), float, "a number of 0.001 to 1000000", 1e-3)
                    if not fields[key] <= 1e6:
                        raise self.bad(at(key), value, "a number of 0.001 to 1000000")
                case "time":
                    long = 'a time above 0 such as "2h"'
                    fields["time_s"] = self.quantity(value, at(key), parse_duration, long, 1e-3)
                case "target":
                    fields[key] = self.target(value, at(key))
                case "on_failure":
                    fields[key] = self.on_failure(value, at(key))
                case "after" | "after_any":
                    fields[key] = self.texts_of(value, at(key))
        step = Step(base, base, **fields)
        if step.demand_w and step.guaranteed_w > step.demand_w:
            raise self.bad(at("guaranteed"), both["guaranteed"], f"up to its power, {both['power']}")
        loops = self.foreach(body.get("foreach", {}), (*own, "foreach"))
        if not loops:
            return [self.counted(step)]
        names = [name for name, _ in loops]
        return (
            self.filled(step, dict(zip(names, values)))
            for values in itertools.product(*(values for _, values in loops))
        )

    def filled(self, step: Step, values: Mapping[str, str]) -> Step:
        """The step of one combination: `{name}` is replaced; `{{` and `}}` are braces; `${name}` is left
        for a shell.
        """

        def put(text: str, key: str) -> str:
            def one(found: re.Match[str]) -> str:
                if found[1] is None:
                    return found[0][0]
                if found[1] not in values:
                    what = f"[jobs.{step.base}] {key} has '{{{found[1]}}}', but its 'foreach' has no such parameter"
                    what += nearest(found[1], list(values))
                    hint = f"there are: {', '.join(values)}; write a brace as {{{{"
                    raise self.fail("unknown_parameter", ("jobs", step.base, key), what, hint)
                return values[found[1]]

            return _FIELD.sub(one, text)

        suffix = ",".join(f"{name}={value}" for name, value in values.items())
        command = tuple(put(argument, "command") for argument in step.command)
        filled = replace(
            step,
            name=f"{step.base}[{suffix}]",
            values=tuple(values.items()),
            command=command,
            folder=put(step.folder, "folder"),
            output=put(step.output, "output"),
            environment=tuple((name, put(value, "environment")) for name, value in step.environment),
        )
        return self.counted(filled)

    def counted(self, step: Step) -> Step:
        """The same step, after checking that all jobs together are not too large with it."""
        self._filled += step.text_b
        if self._filled > MAX_FILLED:
            what = f"commands, environments and folders of all jobs take more than {MAX_FILLED >> 20} MiB together"
            hint = (
                "shorten them, for example with a script that takes the parameters; or make several workflows"
            )
            raise self.fail("too_large", ("jobs", step.base, "foreach"), what, hint)
        return step

    def wired(self, step: Step, of_base: Mapping[str, Sequence[Step]]) -> Step:
        """The step with its dependencies by names of steps. Where both steps have the same parameters, only those with
        equal values.
        """
        both = set(step.after) & set(step.after_any)
        if both:
            what = f"[jobs.{step.base}] names '{min(both)}' in 'after' and in 'after_any'"
            raise self.fail("bad_value", ("jobs", step.base, "after"), what, "'after' alone is stricter")
        waits = dict[str, tuple[str, ...]]()
        for key in ("after", "after_any"):
            found: dict[str, None] = {}
            for base in getattr(step, key):
                if base not in of_base:
                    what = f"[jobs.{step.base}] {key} names '{base}', which is not a job{nearest(base, list(of_base))}"
                    raise self.fail(
                        "unknown_job", ("jobs", step.base, key), what, f"there are: {_few(of_base)}"
                    )
                own = dict(step.values)
                fitting = [
                    other.name
                    for other in of_base[base]
                    if all(own.get(name, value) == value for name, value in other.values)
                ]
                if not fitting:
                    what = f"'{step.name}' can never start: no '{base}' has its parameters"
                    hint = "give both the same values, or rename the parameter in one of them"
                    raise self.fail("unreachable", ("jobs", step.base, key), what, hint)
                found.update(dict.fromkeys(fitting))
                self._waits += len(fitting)
                if self._waits > MAX_WAITS:
                    what = f"the jobs have more than {MAX_WAITS} dependencies together"
                    hint = (
                        f"put one job between '{base}' and '{step.base}', on which each '{step.base}' depends"
                    )
                    raise self.fail("too_large", ("jobs", step.base, key), what, hint)
            waits[key] = tuple(found)
        return replace(step, after=waits["after"], after_any=waits["after_any"])

    def order(self, steps: Mapping[str, Step]) -> list[str]:
        """Names, each after the steps that it waits for, otherwise in the order of the file."""
        left = {name: len(step.waits_for) for name, step in steps.items()}
        waiting: dict[str, list[str]] = {name: [] for name in steps}
        for name, step in steps.items():
            for other in step.waits_for:
                waiting[other].append(name)
        order = [name for name, count in left.items() if count == 0]
        for name in order:  # grows
            for other in waiting[name]:
                left[other] -= 1
                if left[other] == 0:
                    order.append(other)
        if len(order) == len(steps):
            return order
        stuck = [name for name, count in left.items() if count > 0]
        circle = _circle(steps, stuck)
        behind = sorted({steps[name].base for name in stuck} - {steps[name].base for name in circle})
        what = f"jobs wait for each other in a circle: {' <- '.join(steps[name].base for name in circle)}"
        if behind:
            what += f"; never reached after it: {_few(behind)}"
        base = steps[circle[0]].base
        raise self.fail(
            "cycle", ("jobs", base, "after"), what, "remove one of these names from 'after' or 'after_any'"
        )


def _share(text: str) -> float:
    """Raises UsageError if the text is not a share."""
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise UsageError("power.bad_share", f"'{text}' is not a share") from None


def _circle(steps: Mapping[str, Step], stuck: Sequence[str]) -> list[str]:
    """The names of one cycle among the stuck steps, closed: the first name is also the last."""
    among, seen, name = set(stuck), dict[str, int](), stuck[0]
    path: list[str] = []
    while name not in seen:
        seen[name] = len(path)
        path.append(name)
        name = next(other for other in steps[name].waits_for if other in among)
    return [*path[seen[name] :], name]


def _few(names: Iterable[str], most: int = 12) -> str:
    all_of = list(names)
    return ", ".join(all_of[:most]) + (f" and {len(all_of) - most} more" if len(all_of) > most else "")

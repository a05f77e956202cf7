"""Write a first version of a layer map, from the names that a library exports. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Parts of names, in the order in which they decide.
KINDS = {
    "close": "close|release|shutdown|fini",
    "open": "open|create|creat|init",
    "sync": "sync|flush|commit",
    "write": "write|put|store|append|send",
    "read": "read|get|fetch|load|recv",
    "seek": "seek|lseek",
    "wait": "wait|poll|test",
    "meta": "stat|mkdir|unlink|remove|rename|truncate|attr|list|lookup|setattr|getattr",
}


def skeleton(layer: str, library: str, names: Iterable[str]) -> str:
    """The map as TOML. library: its file name; a wildcard replaces its version number."""
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(kind_of(name), []).append(name)
    lines = [
        f'layer = "{layer}"',
        f'title = "{layer}"',
        '# after = ["mpiio"]  # layers that call this one, so that it is shown below them',
        f'libraries = ["{re.sub(r"[.]so[.].*", ".so*", library)}"]',
        'fails = "negative"  # or never, nonzero, null: which results are failures',
        "",
        "# Arguments are counted from 0. Delete what you do not need: each traced call costs some 50 ns.",
    ]
    for kind in (*KINDS, "other"):
        if kind not in groups:
            continue
        lines += ["", "[[functions]]", f"names = [{', '.join(quoted(name) for name in groups[kind])}]"]
        if kind != "other":
            lines.append(f'kind = "{kind}"')
        if kind in ("read", "write"):
            lines += ['# size = "arg(2)"', '# offset = "arg(3)"']
        if kind == "open":
            lines += ['# path = "text(0)"', '# file = "result"']
        elif kind != "other":
            lines.append('# file = "arg(0)"')
    return "\n".join(lines) + "\n"


def kind_of(name: str) -> str:
    """The probable kind of a function, from its name."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    for kind, pattern in KINDS.items():
        if re.search(rf"(?:^|_|\d)[a-z]?(?:{pattern})", words):
            return kind
    return "other"


def quoted(name: str) -> str:
    return f'"{name}"'

"""With security: who has no credential matches nobody, who has the wrong role sets nothing, and what it costs."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.bus.programs import SONDE, domain, found, run
from bench.rows import row

TOPIC = "NodeManager_set"
TRY_S = 8.0
# One participant: what it matched, and how many samples came. argv: profile, write|read, s.
END = """
import json, sys, time
import sonde.bus.client as bus
seen, matched = 0, False
try:
    with bus.open(sys.argv[1]) as here:
        with (here.writer if sys.argv[2] == "write" else here.reader)("NodeManager_set") as end:
            until = time.monotonic() + float(sys.argv[3])
            while time.monotonic() < until:
                matched = end.wait_matched(1, 0.2) or matched
                if sys.argv[2] == "write":
                    end.write(node="n017", cap_w=200)
                    time.sleep(0.05)
                else:
                    seen += len(list(end.take()))
    print(json.dumps({"matched": matched, "seen": seen}))
except Exception as error:
    said = f"{getattr(error, 'code', type(error).__name__)}: {error} {getattr(error, 'hint', '')}"
    print(json.dumps({"refused": said, "matched": matched, "seen": seen}))
"""
# What an end says that its own permissions do not allow.
NOT_ALLOWED = "permissions of this participant's subject do not allow it"
ROLE = "a node-manager"  # whose own permissions keep it from writing
# Who writes, whether samples may come.
CASES = {
    "a system-manager": True,
    "nobody's credential": False,
    "another site's manager": False,
    ROLE: False,
}


def rows() -> list[dict[str, Any]]:
    """Rows of this bench."""
    out = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for where, who, role in (
            ("keys", "manager", "system-manager"),
            ("keys", "node", "node-manager"),
            ("keys", "probe", "everything"),
            ("other", "manager", "system-manager"),
        ):
            if not (folder / where).exists():
                subprocess.run(
                    [SONDE, "bus", "keys", "init", where], cwd=folder, check=True, capture_output=True
                )
            add = [SONDE, "bus", "keys", "add", where, who, "--role", role]
            subprocess.run(add, cwd=folder, check=True, capture_output=True)
        for implementation in ("cyclonedds", "fastdds"):
            for who, may in CASES.items():
                out.append(_try(folder, implementation, who, may))
            secured = f"secured={implementation},security={folder / 'keys'},identity=probe"
            told = run("latency", "20s", sizes="64", variants=[f"open={implementation}", secured])
            own, bare = found(told, "secured", "rtt", size=64), found(told, "open", "rtt", size=64)
            note = f"{own['value'] * 1e6:.1f} us against {bare['value'] * 1e6:.1f} us" if own and bare else ""
            out.append(
                row(
                    f"{implementation}, 64 B, RTT with security against without",
                    "(stated)",
                    own["ratio"] if own else None,
                    own["ratio_ci"] if own else None,
                    None,
                    note,
                )
            )
    return out


def _try(folder: Path, implementation: str, who: str, may: bool) -> dict[str, Any]:
    identity, keys = {
        "a system-manager": ("manager", "keys"),
        "nobody's credential": ("", "keys"),
        "another site's manager": ("manager", "other"),
        ROLE: ("node", "keys"),
    }[who]
    at = domain()
    ends = {}
    for what, (name, where) in {"write": (identity, keys), "read": ("node", "keys")}.items():
        secured = f'<security folder="{folder / where}" identity="{name}"/>' if name else ""
        path = folder / f"{implementation}-{at}-{what}.xml"
        path.write_text(
            f'<sonde-bus version="1"><profile name="default" implementation="{implementation}" domain="{at}">{secured}'
            f'<types idl="t.idl"/><topic name="{TOPIC}" type="t::Cap" durability="transient-local"/>'
            "</profile></sonde-bus>"
        )
        (folder / "t.idl").write_text("module t { struct Cap { @key string node; double cap_w; }; };")
        words = [sys.executable, "-c", END, str(path), what, str(TRY_S)]
        ends[what] = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    told = {what: _said(end.communicate(timeout=60)[0]) for what, end in ends.items()}
    return judged(f"{implementation}: a node that {who} would set, samples that it took", who, may, told)


def _said(text: str) -> dict[str, Any]:
    """What an end printed last; one that died without a word was refused."""
    lines = text.splitlines()
    if not lines:
        return {"refused": "it said nothing", "matched": False, "seen": 0}
    last: dict[str, Any] = json.loads(lines[-1])
    return last


def judged(what: str, who: str, may: bool, told: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The row of a try. told: what either end said. One that could not begin saw nothing for a reason that has nothing
    to do with keys: then nothing was measured, unless a node-manager's own permissions kept it from writing.
    """
    refused = {end: str(said["refused"]) for end, said in told.items() if "refused" in said}
    note = f"in {TRY_S:g} s; matched: {told['write']['matched'] and told['read']['matched']}"
    names = {"write": "writer", "read": "reader"}
    note += "".join(f"; the {names[end]} was refused: {why}" for end, why in refused.items())
    foreign = {end for end, why in refused.items() if (end, who) != ("write", ROLE) or NOT_ALLOWED not in why}
    seen = None if foreign else told["read"]["seen"]
    if may:
        return row(what, "> 0", seen, None, lambda v: v > 0, note)
    return row(what, "0, no match", seen, None, lambda v: v == 0 and not told["read"]["matched"], note)

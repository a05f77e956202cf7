"""The backends of a server, from the options of sonde store serve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sonde.core.errors import UsageError


def backends_of(path: Path | None, memory: bool, given: Sequence[str], modules: bool) -> dict[str, str]:
    """The backends of a server, by role.

    Raises
    ------
    UsageError  store.two_places, store.bad_backend, store.unknown_backend, store.no_backend.
    """
    from sonde.store import run

    has = run.has()
    chosen: dict[str, str] = {}
    if path is not None and memory:
        raise UsageError("store.two_places", "--path and --memory were both given", "give one or the other")
    if path is not None:
        chosen = run.backends_in(path, lambda role: has[role])
    elif memory:
        chosen = {role: "memory" for role in run.ROLES if "memory" in has[role]}
    typed_roles = set()
    for word in given:
        role, equals, text = word.partition("=")
        if role not in run.ROLES or not equals:
            raise UsageError(
                "store.bad_backend",
                f"--backend '{word}' does not begin with a role: it must begin with data=, kv= or db=",
                "write it like kv=lmdb,path=/scratch/keys",
            )
        if role in typed_roles:
            raise UsageError(
                "store.bad_backend",
                f"--backend names the role {role} twice",
                "start a second server for the other backend",
            )
        name = text.partition(",")[0]
        # When a module that should bring the backend does not load, the server reports it.
        if not modules and name not in has[role] and not has.get("broken_modules"):
            from sonde.core.errors import nearest

            raise UsageError(
                "store.unknown_backend",
                f"there is no backend '{name}' for the role {role}{nearest(name, has[role])}",
                f"available: {', '.join(has[role])}; 'sonde doctor' shows how to get more",
            )
        typed_roles.add(role)
        chosen[role] = text
    if not chosen:
        raise UsageError(
            "store.no_backend",
            "no place was given for the server's data",
            "give --path DIR, or --memory to try it out",
        )
    return chosen


def described(chosen: dict[str, str]) -> str:
    """The backends of a server as text: "objects in /scratch/objects (posix), keys in memory"."""
    from sonde.store.server_status import HOLDS

    parts = []
    for role, text in chosen.items():
        name, _, more = text.partition(",")
        where = next((word[5:] for word in more.split(",") if word.startswith("path=")), "")
        parts.append(f"{HOLDS[role]} in {f'{where} ({name})' if where else name}")
    return ", ".join(parts)

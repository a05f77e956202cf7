"""The doctor's checks of the storage room: tests server and client with a key and an object, and lists the features."""

from __future__ import annotations

import os
from typing import Any

from sonde.core import distribution
from sonde.core.diagnosis import FACT, GOOD, NONE, POOR, Answer, Here, Need, check
from sonde.core.errors import SondeError

# Optional features: the package's key, its role or kind and its name in the server's list, and what it provides.
OPTIONAL = (
    ("lmdb", "kv", "lmdb", "keys in LMDB"),
    ("rocksdb", "kv", "rocksdb", "keys in RocksDB"),
    ("sqlite", "db", "sqlite", "tables in SQLite"),
    ("libfabric", "transports", "ofi-msg", "transports over libfabric"),
    ("munge", "auth", "munge", "authentication by MUNGE"),
)
PROBE_S = 15.0


@check("store", "Store", "Storage", 30)
def store(here: Here) -> Answer:
    """Asks the server for its features; stores and reads back a key and an object in this process."""
    from sonde.store import run

    absent = [Need("store", f"{distribution.install('store', here.root)}, then 'make setup'")]
    values: dict[str, Any] = {"built": False, "works": False}
    try:
        program = run.program()
    except SondeError:
        return Answer("not built: ISA-L or OpenSSL was missing", NONE, values, absent)
    values |= {"built": True, "server": str(program)}
    try:
        has = run.has()
        values |= has
        _try_it()
    except SondeError as error:
        return Answer(error.what, NONE, values | {"error": error.what}, [Need("store", "make setup")])
    values["works"] = True
    needs = [
        Need(what, f"{distribution.install(package, here.root)}, then 'make setup'")
        for package, kind, name, what in OPTIONAL
        if name not in has.get(kind, ())
    ]
    durable = [name for role in run.ROLES for name in has[role] if name not in ("null", "memory")]
    text = (
        f"works: a key and an object were read back; stores data with {', '.join(durable) or 'memory only'}"
    )
    if auth := [name for name in has["auth"] if name != "none"]:
        if "munge" in auth and (silent := _munge_silent()):
            auth.remove("munge")
            needs.append(silent)
            text += "; munged does not answer"
        values["munge_works"] = "munge" in auth
        text += f"; authentication: {', '.join(auth)}" if auth else ""
    if broken := has.get("broken_modules", ()):
        text += "".join(f"; {one['what']}" for one in broken)
        advice = "; ".join(dict.fromkeys(one["hint"] for one in broken))
        return Answer(text, POOR, values, needs, advice)
    return Answer(text, GOOD, values, needs)


def _munge_silent() -> Need | None:
    """The need to start munged, when libmunge is built in but its daemon creates no credential; else None."""
    from sonde._store import try_munge

    try:
        try_munge()
    except SondeError:
        socket = os.environ.get("SONDE_MUNGE_SOCKET")
        hint = f", or correct SONDE_MUNGE_SOCKET, which is {socket}" if socket else ""
        return Need("authentication by MUNGE", f"systemctl start munge{hint}")
    return None


def _try_it() -> None:
    from sonde.store.client import embedded
    from sonde.store.errors import from_code

    with embedded(kv="memory", data="memory") as client:
        client.put("doctor", "key", b"value")
        client.write("doctor", "object", b"content")
        if client.get("doctor", "key") != b"value" or client.read("doctor", "object").tobytes() != b"content":
            raise from_code("store.corrupt", "the data read back differs from the data stored")


@check("fabric", "Fabric", "Storage", PROBE_S + 15)
def fabric(here: Here) -> Answer:
    """Tests which libfabric providers transfer a message on this machine, each in a process of its own."""
    try:
        from sonde.store.client import providers
    except SondeError as error:
        return Answer(error.what, FACT, {"works": False})
    try:
        tried = providers("ofi-msg", PROBE_S) + providers("ofi-rdm", PROBE_S)
    except SondeError:
        return Answer("built without libfabric: tcp only", FACT, {"works": False})
    values = {"works": any(one["works"] for one in tried), "providers": tried}
    good = sorted(
        {one["provider"]: one["half_round_trip_s"] for one in tried if one["works"]}.items(),
        key=lambda pair: pair[1],
    )
    if not good:
        return Answer("no provider of libfabric transfers a message on this machine", POOR, values)
    from sonde.core.units import format_duration

    shown = ", ".join(f"{name} {format_duration(time_s)}" for name, time_s in good)
    return Answer(f"64 B one way: {shown}", GOOD, values)

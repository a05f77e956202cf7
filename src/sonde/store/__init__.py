"""A storage service whose transport can be swapped and measured: keys, objects, tables.

    import sonde.store

    with sonde.store.connect("127.0.0.1:5440") as client:
        client.put("runs", "42/input", b"...")
        client.write("fields", "pressure", array)

See docs/tutorial/store.md. The names of this module are loaded at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sonde.store.client import Batch, Client, connect, embedded
    from sonde.store.errors import BatchError, Exists, NotFound, StoreError, TimedOut, Unreachable

__all__ = [
    "Batch",
    "BatchError",
    "Client",
    "Exists",
    "NotFound",
    "StoreError",
    "TimedOut",
    "Unreachable",
    "connect",
    "embedded",
]

_CLIENT = ("Batch", "Client", "connect", "embedded")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sonde.store' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"sonde.store.{'client' if name in _CLIENT else 'errors'}"), name)

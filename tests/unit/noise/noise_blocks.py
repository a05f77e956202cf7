"""Block files as this room's programs write them, from arrays."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def write_blocks(path: Path, records: np.ndarray, header: Mapping[str, Any], dropped: int = 0) -> None:
    """One file with one block. records: structured, little-endian, packed."""
    assert records.dtype.fields is not None
    fields = []
    for name in records.dtype.names or ():
        kind, shape = records.dtype[name].subdtype or (records.dtype[name], ())
        fields.append([name, kind.str, list(shape)])
    text = json.dumps({"fields": fields, "schema": "noise/1", **header}).encode()
    text += b" " * (-len(text) % 8)
    front = struct.pack("<II", 1, len(text))
    out = b"SONDEBLK" + front + struct.pack("<II", zlib.crc32(text, zlib.crc32(front)), 0) + text
    if len(records):
        body = struct.pack("<IIQ", 0, len(records), dropped) + records.tobytes()
        out += b"SBLK" + struct.pack("<I", zlib.crc32(body)) + body
    path.write_bytes(out)

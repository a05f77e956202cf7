"""An owner's client: python -m bench.hostile.asking ADDRESS TOKEN SECONDS [anew]

Puts and gets 4 KiB, one call after the other, and prints what each took. anew: connects for each pair of calls, and
that is what is timed.
"""

from __future__ import annotations

import json
import sys
import time

from sonde.core.errors import SondeError
from sonde.store.client import connect


def main(address: str, token: str, seconds: str, *words: str) -> None:
    secret = {"auth": "token", "token_file": token}
    value = b"v" * 4096
    times: list[float] = []
    failed: list[str] = []
    until = time.monotonic() + float(seconds)
    client = None
    while time.monotonic() < until:
        began = time.monotonic()
        try:
            if client is None:
                client = connect(address, **secret)
            if "anew" in words:
                client.put("bench", "k", value)
                client.get("bench", "k")
                client.close()
                client = None
            elif len(times) % 2:
                client.get("bench", "k")
            else:
                client.put("bench", "k", value)
        except SondeError as error:
            failed.append(error.code)
            client = None
        times.append(time.monotonic() - began)
    print(json.dumps({"times": times, "failed": failed}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

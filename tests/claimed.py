"""Domains of a bus that no other test of this machine uses. tests/native/claimed.hpp is the same for C++.

A claim is a name in the abstract namespace of Unix sockets: it ends with its process however that ends, and reaches as
far as a network namespace does. It lasts until the process has made some more claims, and as long as somebody is in the
domain.
"""

from __future__ import annotations

import random
import socket
import time
from pathlib import Path

# Domain N uses 250 ports from 7400 + 250 N on. The system gives the ports of domains 101 to 214 to programs when they
# connect; DDS Security allows none above 230. Programs that choose their domains themselves, such as `sonde bus run`,
# have 1 to 100.
LOW, HIGH = range(1, 101), range(215, 231)
_OLDER = {LOW: 4, HIGH: 0}  # claims that remain in addition to those of the last call
_PATIENCE_S = 20

_claims: dict[range, dict[int, socket.socket]] = {LOW: {}, HIGH: {}}


def occupied() -> set[int]:
    """The domains of this network namespace that are in use."""
    ports: set[int] = set()
    for table in ("udp", "udp6"):
        path = Path("/proc/net", table)
        lines = path.read_text().splitlines()[1:] if path.exists() else []
        ports |= {int(line.split()[1].rsplit(":", 1)[1], 16) for line in lines}
    return {(port - 7400) // 250 for port in ports if port >= 7400}


def _claim(domain: int) -> socket.socket | None:
    one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        one.bind(f"\0sonde-test-domain-{domain}")
    except OSError:
        one.close()
        return None
    return one


def domains(count: int, among: range = HIGH) -> list[int]:
    """`count` domains, each for itself. If others claim all: domains that nobody is in."""
    claims = _claims[among]
    end = time.monotonic() + _PATIENCE_S
    got: list[int] = []
    while len(got) < count:
        taken = occupied()
        for old in list(claims)[: max(0, len(claims) - len(got) - _OLDER[among])]:
            if old not in taken:
                claims.pop(old).close()
        free = [domain for domain in among if domain not in taken and domain not in claims]
        random.shuffle(free)
        late = time.monotonic() > end
        assert free or not late, f"somebody is in each domain of {among}"
        for domain in free:
            one = _claim(domain)
            if one is not None:
                claims[domain] = one
            if one is not None or late:
                got.append(domain)
                break
        else:
            time.sleep(0.05)
    return got


def a_domain() -> int:
    """A domain whose ports are below those that programs get when they connect."""
    return domains(1, LOW)[0]


def free_domain() -> int:
    """A domain whose ports are above them, and that no `sonde bus run` uses."""
    return domains(1)[0]

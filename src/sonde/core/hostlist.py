"""Host lists as Slurm writes them: `n[001-016,020],login1,^n007`. Python interface of `native/core/hostlist.hpp`."""

from __future__ import annotations

from collections.abc import Iterable

import sonde._core as _core
from sonde.core.errors import UsageError
from sonde.core.printable import encodable


def expand(text: str, within: Iterable[str] = ()) -> list[str]:
    """Host names in the order written, without duplicates and excluded ones.

    text: host list; items that begin with ^ are left out. within: all hosts, to which a text with exclusions only is
    applied.

    Raises
    ------
    UsageError  core.bad_hosts: not a host list, more than 65536 hosts, or no host left.
    """
    return list(_core.hostlist_expand(encodable(text), list(within)))


def fold(hosts: Iterable[str]) -> str:
    """The shortest text that `expand` turns into the same hosts in the same order; "" for no hosts.

    Raises
    ------
    UsageError  core.bad_hosts: a name holds a character that no host name has.
    """
    return str(_core.hostlist_fold([encodable(host) for host in hosts]))


def listed(hosts: Iterable[str]) -> str:
    """Hosts by names as they were found: their `fold`; if one is no valid host name, a plain list.

    A kernel accepts any bytes as a name, and a finding about such a host must not be lost.
    """
    names = [encodable(host) for host in hosts]
    try:
        return fold(names)
    except UsageError:
        return ",".join(dict.fromkeys(names))


def check(text: str) -> str:
    """`text` unchanged, if `expand` understands it.

    Raises
    ------
    UsageError  core.bad_hosts.
    """
    _core.hostlist_check(encodable(text))
    return text

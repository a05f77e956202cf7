"""From findings to the command that would take their hosts out of service. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sonde.core.errors import Finding, typed
from sonde.core.hostlist import listed

LISTED = 3  # pairs of hosts that a line names


def drain_command(findings: Sequence[Finding]) -> str:
    """`drain_words` as one line, for people to read. No program may look for it in an output, which holds the words of
    others as well: it gets the list, from --json.
    """
    return typed(*drain_words(findings))


def drain_words(findings: Sequence[Finding]) -> list[str]:
    """The command that would take the hosts behind findings out of service in Slurm, word by word; never run by Sonde.

    Which hosts those are: see `blamed`. [] where there are none: a run that was too short is no fault of a node.
    """
    hosts = blamed(findings)
    if not hosts:
        return []
    first = next(finding for finding in findings if hosts & set(hosts_of(finding)))
    text = " ".join(first.text.partition(" (also at ")[0].split())  # in one line for any shell
    reason = f"sonde: {text}"[:120]
    return ["scontrol", "update", f"NodeName={listed(sorted(hosts))}", "State=DRAIN", f"Reason={reason}"]


def drain_lines(findings: Sequence[Finding]) -> list[str]:
    """What a check prints below its findings: the command, and between which hosts a fault is that blames neither."""
    hosts = blamed(findings)
    lines = [f" would drain: {drain_command(findings)}"] if hosts else []
    unclear = sorted({tuple(sorted(pair)) for pair in _pairs(findings) if not hosts & pair})
    if unclear:
        some = ", ".join("–".join(pair) for pair in unclear[:LISTED])
        more = f" and {len(unclear) - LISTED} more pairs" if len(unclear) > LISTED else ""
        lines.append(f" would not drain: {some}{more}: which end is at fault, these findings do not tell")
    return lines


def blamed(findings: Sequence[Finding]) -> set[str]:
    """The hosts at fault.

    A finding names hosts in its evidence, under `host` or `hosts`. One that names a single host blames it. Those that
    name pairs blame the host that they share, where it has two partners or more: a host that is slow is slow towards
    each, and they are healthy. A host with less than half as many partners as the worst one is not blamed: a few of its
    links are slow, and it is not. A pair that shares no end with others blames neither. Where half of the hosts or more
    would be blamed by pairs, what is slow is no host, and none is.
    """
    alone = {hosts[0] for finding in findings if len(hosts := hosts_of(finding)) == 1}
    pairs = _pairs(findings)
    involved = set().union(*pairs)
    left = {pair for pair in pairs if not pair & alone}
    shared: set[str] = set()
    first = max(Counter(host for pair in pairs for host in pair).values(), default=0)
    while left:
        partners = Counter(host for pair in left for host in pair)
        host, most = max(sorted(partners.items()), key=lambda item: item[1])
        left = {pair for pair in left if host not in pair}
        after = Counter(other for pair in left for other in pair)
        if most < max(2, first / 2) or most <= max(after.values(), default=0):
            break
        shared.add(host)
    return alone | (shared if 2 * len(shared) < len(involved) else set())


def hosts_of(finding: Finding) -> list[str]:
    """The hosts that a finding names in its evidence, each once."""
    named = finding.evidence.get("hosts") or finding.evidence.get("host") or []
    return list(
        dict.fromkeys(host for host in ([named] if isinstance(named, str) else map(str, named)) if host)
    )


def _pairs(findings: Sequence[Finding]) -> set[frozenset[str]]:
    return {frozenset(hosts) for finding in findings if len(hosts := hosts_of(finding)) > 1}

"""The command that takes hosts with findings out of service. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sonde.core.errors import Finding, typed
from sonde.core.hostlist import listed

LISTED = 3  # pairs of hosts that a line names


def drain_command(findings: Sequence[Finding]) -> str:
    """`drain_words` as one line, for people to read. No program may search an output for it, because the output also
    holds texts of others: programs get the list from --json.
    """
    return typed(*drain_words(findings))


def drain_words(findings: Sequence[Finding]) -> list[str]:
    """The command that would take the hosts behind findings out of service in Slurm, as a list of words. Sonde never
    runs it.

    For the hosts see `blamed`. [] if there are no such hosts: a run that was too short is no fault of a node.
    """
    hosts = blamed(findings)
    if not hosts:
        return []
    first = next(finding for finding in findings if hosts & set(hosts_of(finding)))
    text = " ".join(first.text.partition(" (also at ")[0].split())  # in one line for any shell
    reason = f"sonde: {text}"[:120]
    return ["scontrol", "update", f"NodeName={listed(sorted(hosts))}", "State=DRAIN", f"Reason={reason}"]


def drain_lines(findings: Sequence[Finding]) -> list[str]:
    """Lines of a check below its findings: the command, and pairs of hosts with a fault that blames neither host."""
    hosts = blamed(findings)
    lines = [f" would drain: {drain_command(findings)}"] if hosts else []
    unclear = sorted({tuple(sorted(pair)) for pair in _pairs(findings) if not hosts & pair})
    if unclear:
        some = ", ".join("–".join(pair) for pair in unclear[:LISTED])
        more = f" and {len(unclear) - LISTED} more pairs" if len(unclear) > LISTED else ""
        lines.append(f" would not drain: {some}{more}: these findings do not show which end is at fault")
    return lines


def blamed(findings: Sequence[Finding]) -> set[str]:
    """The hosts at fault.

    A finding names hosts in its evidence, under `host` or `hosts`. A finding with a single host blames it. Findings
    with pairs blame the host that they share, if it has two partners or more: a slow host is slow towards each partner,
    and the partners are healthy. A host with less than half as many partners as the worst one is not blamed: it only
    has a few slow links. A pair that shares no end with others blames neither. If pairs would blame half of the hosts
    or more, the cause is no single host, and no host is blamed.
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
    """The hosts that a finding names in its evidence, without duplicates."""
    named = finding.evidence.get("hosts") or finding.evidence.get("host") or []
    return list(
        dict.fromkeys(host for host in ([named] if isinstance(named, str) else map(str, named)) if host)
    )


def _pairs(findings: Sequence[Finding]) -> set[frozenset[str]]:
    return {frozenset(hosts) for finding in findings if len(hosts := hosts_of(finding)) > 1}

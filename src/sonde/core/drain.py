"""From findings to the command that would take their hosts out of service. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from sonde.core.errors import Finding
from sonde.core.hostlist import fold


def drain_command(findings: Sequence[Finding]) -> str:
    """`drain_words` as one line, for people to read. No program may look for it in an output, which holds the words of
    others as well: it gets the list, from --json.
    """
    return shlex.join(drain_words(findings))


def drain_words(findings: Sequence[Finding]) -> list[str]:
    """The command that would take the hosts behind findings out of service in Slurm, word by word; never run by Sonde.

    A finding that blames hosts names them in its evidence, under `host` or `hosts`. [] where none does: a run
    that was too short is no fault of a node.
    """
    blaming = [finding for finding in findings if _hosts_of(finding)]
    if not blaming:
        return []
    hosts = sorted({host for finding in blaming for host in _hosts_of(finding)})
    reason = f"sonde: {blaming[0].text.partition(' (also at ')[0]}"[:120]
    return ["scontrol", "update", f"NodeName={fold(hosts)}", "State=DRAIN", f"Reason={reason}"]


def _hosts_of(finding: Finding) -> list[str]:
    named = finding.evidence.get("hosts") or finding.evidence.get("host") or []
    return [host for host in ([named] if isinstance(named, str) else map(str, named)) if host]

"""From findings to the command that would take their hosts out of service. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from sonde.core.errors import Finding
from sonde.core.hostlist import fold


def drain_command(findings: Sequence[Finding]) -> str:
    """The command that would take the hosts behind findings out of service in Slurm; for printing, never for running.

    A finding that blames hosts names them in its evidence, under `host` or `hosts`. "" where none does: a run
    that was too short is no fault of a node.
    """
    blaming = [finding for finding in findings if _hosts_of(finding)]
    if not blaming:
        return ""
    hosts = sorted({host for finding in blaming for host in _hosts_of(finding)})
    reason = f"sonde: {blaming[0].text.partition(' (also at ')[0]}"[:120]
    return shlex.join(["scontrol", "update", f"NodeName={fold(hosts)}", "State=DRAIN", f"Reason={reason}"])


def _hosts_of(finding: Finding) -> list[str]:
    named = finding.evidence.get("hosts") or finding.evidence.get("host") or []
    return [host for host in ([named] if isinstance(named, str) else map(str, named)) if host]

"""Documents of DDS Security as text: governance (how a domain is protected) and permissions (what an identity may do).

Source of the format: OMG DDS Security 1.1, sections 9.4.1.2 and 9.4.1.3. `run_keys.py` creates the keys and signs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from xml.sax.saxutils import escape

from sonde.core.errors import UsageError, nearest

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", re.ASCII)
TOPIC = re.compile(r"[A-Za-z0-9_:/*?.-]{1,255}", re.ASCII)
# Domains above 230 have ports beyond 65535; implementations refuse documents that name them.
DOMAINS = (0, 230)
PROTECTIONS = ("sign", "encrypt")
MOST_DAYS = 36500  # a hundred years; dates in certificates end with the year 9999
# The files of a folder of keys besides its identities.
SHARED = ("identity_ca.pem", "permissions_ca.pem", "governance.p7s", "private")
_SCHEMA = (
    'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
    'xsi:noNamespaceSchemaLocation="https://www.omg.org/spec/DDS-SECURITY/20170901/omg_shared_ca'
)


@dataclass(frozen=True)
class Grant:
    """The topics, with `*` and `?`, that an identity may publish and subscribe to. All others are forbidden."""

    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()

    def __or__(self, other: Grant) -> Grant:
        return Grant(
            tuple(dict.fromkeys((*self.publish, *other.publish))),
            tuple(dict.fromkeys((*self.subscribe, *other.subscribe))),
        )

    def may_publish(self, topic: str) -> bool:
        return any(fnmatchcase(topic, pattern) for pattern in self.publish)

    def may_subscribe(self, topic: str) -> bool:
        return any(fnmatchcase(topic, pattern) for pattern in self.subscribe)


def asks(*services: str) -> Grant:
    """The grant of a client of these services: it writes their requests and reads their replies."""
    return Grant(services, tuple(f"{service}_reply" for service in services))


def answers(*services: str) -> Grant:
    """The grant of a server of these services."""
    return Grant(tuple(f"{service}_reply" for service in services), services)


_REPORTS = (
    "Monitor_report_job_telemetry",
    "Monitor_report_node_telemetry",
    "Monitor_report_cluster_telemetry",
)

# The roles on a power stack's bus. Only a system manager sets a node. Only a scheduler allocates nodes and starts jobs.
# A scheduler, Slurm's hooks and an operator set the system. A submitter may submit, cancel and hold jobs in the name of
# any user. A bridge only exports telemetry. Each further right of a bridge needs a separate role, because everyone with
# access to the broker then has this right.
ROLES: dict[str, Grant] = {
    "node-manager": answers("NodeManager_get", "NodeManager_set") | Grant((_REPORTS[1],)),
    "system-manager": answers("SystemPowerManager_get", "SystemPowerManager_set")
    | asks("NodeManager_get", "NodeManager_set", "SystemPowerManager_get")  # a standby asks for the state
    | Grant((_REPORTS[2],), _REPORTS),
    "job-scheduler": answers("JobScheduler_get", "JobScheduler_set")
    | asks("SystemPowerManager_get", "SystemPowerManager_set", "NodeManager_get")
    | asks("ResourceManager_get", "ResourceManager_set", "JobManager_get", "JobManager_set")
    | Grant((), _REPORTS),
    "resource-manager": answers("ResourceManager_get", "ResourceManager_set"),
    "job-manager": answers("JobManager_get", "JobManager_set")
    | asks("SystemPowerManager_get", "NodeManager_get")
    | Grant((_REPORTS[0],), _REPORTS),
    "workflow-engine": answers("WorkflowEngine_get", "WorkflowEngine_set")
    | asks("JobScheduler_get", "JobScheduler_set", "JobManager_get"),
    "submitter": asks("JobScheduler_get", "JobScheduler_set", "WorkflowEngine_get", "WorkflowEngine_set"),
    "slurm": asks("SystemPowerManager_set"),  # its prolog and epilog
    "monitor": asks("SystemPowerManager_get", "NodeManager_get") | Grant((), _REPORTS),
    "operator": asks("SystemPowerManager_get", "SystemPowerManager_set", "NodeManager_get", "JobManager_get")
    | asks("JobScheduler_get", "JobScheduler_set", "WorkflowEngine_get", "WorkflowEngine_set")
    | Grant((), _REPORTS),  # a person who runs `sonde power ...`
    "mqtt-bridge": Grant((), _REPORTS),
    "mqtt-questions": asks("SystemPowerManager_get", "NodeManager_get"),
    "mqtt-orders": asks("SystemPowerManager_set"),
    "everything": Grant(("*",), ("*",)),
}


def check_name(name: str) -> str:
    """The checked name of an identity. Raises UsageError."""
    if name in SHARED:
        raise UsageError(
            "bus.bad_identity",
            f"'{name}' cannot be the name of an identity: the folder has a file of this name",
            "name it after a role or a host, like node-manager or n017",
        )
    if not NAME.fullmatch(name):
        raise UsageError(
            "bus.bad_identity",
            f"'{name}' cannot be the name of an identity; allowed: 1 to 63 letters, digits, '_', '.', '-', the first a "
            "letter or digit",
            "name it after a role or a host, like node-manager or n017",
        )
    return name


def grant_of(roles: Sequence[str], publish: Sequence[str], subscribe: Sequence[str]) -> Grant:
    """The union of the roles and topics. Raises UsageError: unknown role, bad topic, or an empty grant."""
    grant = Grant(tuple(publish), tuple(subscribe))
    for topic in (*publish, *subscribe):
        if not TOPIC.fullmatch(topic):
            raise UsageError(
                "bus.bad_topic",
                f"the topic is '{topic}'; allowed: letters, digits, '_', ':', '/', '.', '-' and the wildcards '*', '?'",
                "quote wildcards: --publish 'Monitor_*'",
            )
    for role in roles:
        if role not in ROLES:
            raise UsageError(
                "bus.unknown_role",
                f"unknown role '{role}'{nearest(role, list(ROLES))}; known roles: {', '.join(ROLES)}",
                "use one of these roles, or --publish and --subscribe",
            )
        grant = grant | ROLES[role]
    if not grant.publish and not grant.subscribe:
        raise UsageError(
            "bus.no_grant",
            "the identity has no permissions",
            "give --role, or --publish and --subscribe",
        )
    return grant


def check_days(days: int) -> int:
    """The checked number of days. Raises UsageError."""
    if not 1 <= days <= MOST_DAYS:
        raise UsageError(
            "bus.bad_days",
            f"--days: {days} is not allowed; allowed: 1 to {MOST_DAYS}",
            f"--days {MOST_DAYS} is a hundred years",
        )
    return days


def check_domains(first: int, last: int) -> tuple[int, int]:
    """The checked range of domains. Raises UsageError."""
    if not DOMAINS[0] <= first <= last <= DOMAINS[1]:
        raise UsageError(
            "bus.bad_domain",
            f"the domains are {first} to {last}; allowed: {DOMAINS[0]} to {DOMAINS[1]}, the smaller first",
            "--domains 0:230 means all domains",
        )
    return first, last


def _domains(first: int, last: int) -> str:
    return f"<domains><id_range><min>{first}</min><max>{last}</max></id_range></domains>"


def governance(domains: tuple[int, int], protection: str) -> str:
    """The governance document: participants need credentials, and every topic is checked against permissions.

    protection: `encrypt` encrypts samples and discovery data, `sign` only detects changes to them.
    """
    kind = protection.upper()
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<dds {_SCHEMA}_governance.xsd">
  <domain_access_rules>
    <domain_rule>
      {_domains(*domains)}
      <allow_unauthenticated_participants>false</allow_unauthenticated_participants>
      <enable_join_access_control>true</enable_join_access_control>
      <discovery_protection_kind>{kind}</discovery_protection_kind>
      <liveliness_protection_kind>{kind}</liveliness_protection_kind>
      <rtps_protection_kind>NONE</rtps_protection_kind>
      <topic_access_rules>
        <topic_rule>
          <topic_expression>*</topic_expression>
          <enable_discovery_protection>true</enable_discovery_protection>
          <enable_liveliness_protection>true</enable_liveliness_protection>
          <enable_read_access_control>true</enable_read_access_control>
          <enable_write_access_control>true</enable_write_access_control>
          <metadata_protection_kind>SIGN</metadata_protection_kind>
          <data_protection_kind>{kind}</data_protection_kind>
        </topic_rule>
      </topic_access_rules>
    </domain_rule>
  </domain_access_rules>
</dds>
"""


def _rule(word: str, topics: Sequence[str]) -> str:
    if not topics:
        return ""
    named = "".join(f"<topic>{escape(topic)}</topic>" for topic in topics)
    # Without partitions, a rule covers only the default partition; replies use a partition for each client.
    return f"        <{word}><topics>{named}</topics><partitions><partition>*</partition></partitions></{word}>\n"


def permissions(
    name: str, grant: Grant, domains: tuple[int, int], not_before: datetime, not_after: datetime
) -> str:
    """The permissions document. name: the common name of the identity's certificate. Times are UTC."""
    stamp = "%Y-%m-%dT%H:%M:%SZ"
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<dds {_SCHEMA}_permissions.xsd">
  <permissions>
    <grant name="{escape(name)}">
      <subject_name>CN={escape(name)}</subject_name>
      <validity><not_before>{not_before.strftime(stamp)}</not_before><not_after>{not_after.strftime(stamp)}</not_after></validity>
      <allow_rule>
        {_domains(*domains)}
{_rule("publish", grant.publish)}{_rule("subscribe", grant.subscribe)}      </allow_rule>
      <default>DENY</default>
    </grant>
  </permissions>
</dds>
"""

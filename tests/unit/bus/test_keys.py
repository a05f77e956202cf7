from __future__ import annotations

from datetime import UTC, datetime
from xml.etree import ElementTree

import pytest

from sonde.bus import keys
from sonde.core.errors import UsageError

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_only_a_system_manager_may_set_a_node():
    assert [name for name, grant in keys.ROLES.items() if grant.may_publish("NodeManager_set")] == [
        "system-manager",
        "everything",
    ]
    assert [name for name, grant in keys.ROLES.items() if grant.may_publish("SystemPowerManager_set")] == [
        "job-scheduler",
        "slurm",
        "operator",
        "mqtt-orders",
        "everything",
    ]


def test_a_bridge_carries_telemetry_out_and_no_more_than_was_asked_for():
    services = ("NodeManager_get", "NodeManager_set", "SystemPowerManager_get", "SystemPowerManager_set")

    def asked(*roles: str) -> list[str]:
        grant = keys.grant_of(roles, [], [])
        assert grant.may_subscribe("Monitor_report_node_telemetry")
        assert not grant.may_publish("Monitor_report_node_telemetry")
        return [s for s in services if grant.may_publish(s) and grant.may_subscribe(f"{s}_reply")]

    assert keys.ROLES["mqtt-bridge"].publish == ()
    assert asked("mqtt-bridge") == []
    assert asked("mqtt-bridge", "mqtt-questions") == ["NodeManager_get", "SystemPowerManager_get"]
    assert asked("mqtt-bridge", "mqtt-orders") == ["SystemPowerManager_set"]


def test_who_asks_hears_the_replies_and_who_answers_the_requests():
    asking, answering = keys.asks("S"), keys.answers("S")
    assert asking.may_publish("S")
    assert asking.may_subscribe("S_reply")
    assert not asking.may_publish("S_reply")
    assert answering.may_subscribe("S")
    assert answering.may_publish("S_reply")
    assert not answering.may_publish("S")


def test_permissions_are_what_was_granted():
    text = keys.permissions("n<1", keys.Grant(("A", "B*"), ()), (3, 9), NOW, NOW.replace(year=2031))
    grant = ElementTree.fromstring(text.encode()).find("permissions/grant")
    assert grant is not None
    assert grant.findtext("subject_name") == "CN=n<1"
    assert grant.findtext("validity/not_before") == "2030-01-02T03:04:05Z"
    assert grant.findtext("validity/not_after") == "2031-01-02T03:04:05Z"
    assert [topic.text for topic in grant.findall("allow_rule/publish/topics/topic")] == ["A", "B*"]
    assert grant.find("allow_rule/subscribe") is None
    assert grant.findtext("default") == "DENY"
    assert grant.findtext("allow_rule/domains/id_range/min") == "3"


@pytest.mark.parametrize("protection", keys.PROTECTIONS)
def test_governance_lets_nobody_in_without_credentials(protection):
    rule = ElementTree.fromstring(keys.governance((0, 230), protection).encode()).find(
        "domain_access_rules/domain_rule"
    )
    assert rule is not None
    assert rule.findtext("allow_unauthenticated_participants") == "false"
    assert rule.findtext("topic_access_rules/topic_rule/enable_write_access_control") == "true"
    assert rule.findtext("topic_access_rules/topic_rule/data_protection_kind") == protection.upper()


def test_roles_and_topics_add_up():
    grant = keys.grant_of(["monitor", "node-manager"], ["Mine"], [])
    assert grant.may_publish("Mine")
    assert grant.may_publish("Monitor_report_node_telemetry")
    assert grant.may_subscribe("Monitor_report_cluster_telemetry")


@pytest.mark.parametrize(
    ("roles", "publish", "what", "hint"),
    [
        (["node-manger"], [], "unknown role 'node-manger' .nearest: node-manager.", "--publish"),
        ([], ["a b"], "the topic is 'a b'", "quote"),
        ([], [], "has no permissions", "--role"),
    ],
)
def test_what_cannot_be_granted_is_reported(roles, publish, what, hint):
    with pytest.raises(UsageError, match=what) as told:
        keys.grant_of(roles, publish, [])
    assert hint in told.value.hint


@pytest.mark.parametrize("name", ["", "a/b", "../a", ".hidden", "private", "a" * 64, "é"])
def test_names_that_are_no_identity(name):
    with pytest.raises(UsageError, match="cannot be the name of an identity"):
        keys.check_name(name)


@pytest.mark.parametrize("name", keys.SHARED)
def test_the_folder_s_own_files_are_no_names(name):
    with pytest.raises(UsageError, match="the folder has a file of this name"):
        keys.check_name(name)


@pytest.mark.parametrize("days", [0, keys.MOST_DAYS + 1, 10_000_000])
def test_days_that_no_calendar_has_are_refused(days):
    with pytest.raises(UsageError, match=f"--days: {days} is not allowed; allowed: 1 to 36500"):
        keys.check_days(days)


@pytest.mark.parametrize("domains", [(0, 231), (5, 3), (-1, 3)])
def test_domains_beyond_the_last_port_are_refused(domains):
    with pytest.raises(UsageError, match="the domains are"):
        keys.check_domains(*domains)

"""What ACLs allow, and which ones filters mean."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from samelog.kafka.access.acls import (
    AclDecisions,
    AclOperation,
    AclPermission,
    AclResource,
    decision,
    fits,
)
from samelog.sequencer.state.tables.access import AccessTable, AclBinding

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
TOPIC, GROUP = AclResource.TOPIC, AclResource.GROUP
LITERAL, PREFIXED, MATCH, ANY = 3, 4, 2, 1
ANN, HOST = "User:ann", "10.0.0.1"


def acl(
    operation: AclOperation = READ, name: str = "t", pattern: int = LITERAL, **other: Any
) -> AclBinding:
    given: dict[str, Any] = {
        "principal": ANN,
        "host": "*",
        "permission": ALLOW,
        "resource": TOPIC,
    } | other
    return AclBinding(name=name, pattern=pattern, operation=operation, **given)


def may(acls: list[AclBinding], operation: AclOperation = READ, name: str = "topic") -> bool:
    return bool(decision(acls, (ANN, HOST), operation, (TOPIC, name)))


@pytest.mark.parametrize(
    "binding",
    [
        acl(name="topic"),
        acl(name="*"),
        acl(name="to", pattern=PREFIXED),
        acl(AclOperation.ALL, "topic"),
        acl(name="topic", principal="User:*"),
        acl(name="topic", host=HOST),
    ],
)
def test_what_allows_reading(binding: AclBinding) -> None:
    assert may([binding])
    assert may([binding], DESCRIBE)
    assert not may([binding, acl(name="*", permission=DENY)])
    assert not may([acl(AclOperation.ALL, "topic", permission=DENY), binding])


@pytest.mark.parametrize(
    "binding",
    [
        acl(WRITE, "topic"),
        acl(DESCRIBE, "topic"),
        acl(name="to"),
        acl(name="topics", pattern=PREFIXED),
        acl(name="topic", principal="User:bob"),
        acl(name="topic", host="10.0.0.2"),
        acl(name="topic", resource=GROUP),
        acl(name="topic", permission=DENY),
    ],
)
def test_what_does_not(binding: AclBinding) -> None:
    assert not may([binding])


def test_what_implies_describing_and_that_denying_it_denies_nothing_else() -> None:
    for operation in (READ, WRITE, AclOperation.DELETE, AclOperation.ALTER):
        assert may([acl(operation, "topic")], DESCRIBE)
    assert not may([acl(AclOperation.CREATE, "topic")], DESCRIBE)
    assert may([acl(AclOperation.ALTER_CONFIGS, "topic")], AclOperation.DESCRIBE_CONFIGS)
    denied = [acl(name="topic"), acl(DESCRIBE, "topic", permission=DENY)]
    assert may(denied, READ)
    assert not may(denied, DESCRIBE)


def wanted(**given: Any) -> Any:
    every = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    return SimpleNamespace(**every | given)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, "t*p"),
        ({"pattern_type_filter": LITERAL}, "t*"),
        ({"pattern_type_filter": PREFIXED, "resource_name_filter": "p"}, "p"),
        ({"pattern_type_filter": MATCH, "resource_name_filter": "pt"}, "*p"),
        ({"pattern_type_filter": MATCH, "resource_name_filter": "t"}, "t*"),
        ({"resource_name_filter": "t"}, "t"),
        ({"operation": WRITE}, "*"),
        ({"principal_filter": "User:bob"}, "p"),
        ({"permission_type": DENY}, ""),
        ({"host_filter": "h"}, ""),
        ({"resource_type_filter": GROUP}, ""),
    ],
)
def test_what_filters_mean(given: dict[str, Any], names: str) -> None:
    acls = [acl(), acl(WRITE, "*"), acl(name="p", pattern=PREFIXED, principal="User:bob")]
    assert "".join(each.name for each in acls if fits(wanted(**given), each)) == names


def test_decisions_follow_changes_and_identities_are_users() -> None:
    access = AccessTable()
    decisions = AclDecisions(lambda: access)
    ann, dns = ("samelog://user/ann", HOST), ("dns:host", HOST)

    def decide() -> list[bool]:
        return [decisions.allow(who, READ, (TOPIC, "t")) for who in (ann, dns)]

    assert decide() == [False, False]
    access.acls, access.version = [acl()], 1
    assert decide() == [True, False]
    access.acls, access.version = [acl(principal="User:dns:host")], 2
    assert decide() == [False, True]

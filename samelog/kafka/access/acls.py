"""Kafka's ACLs: what they allow, and which ones a filter means. Pure.

Invariant: what no ACL allows is denied, and what one denies no other allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any

from samelog.config.authorisation import USER_PREFIX
from samelog.sequencer.state.tables.access import AccessTable, AclBinding

CLUSTER = "kafka-cluster"
"""The name of the one resource of its kind."""
ANY = 1
"""In a filter: of any kind."""
EVERYTHING = "*"
PRINCIPAL = "User:"
DECIDED_MAX = 10_000


class AclResource(IntEnum):
    """What ACLs are about (ResourceType)."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPattern(IntEnum):
    """How a name is meant (PatternType); MATCH is for filters only."""

    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What a client may do, by the numbers of its bit."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    """Whether it may (AclPermissionType)."""

    DENY = 2
    ALLOW = 3


_IMPLIED_BY = {
    AclOperation.DESCRIBE: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    ),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}


def principal_of(identity: str) -> str:
    """An identity as Kafka writes it: `User:ann`, or `User:` and a certificate's name."""
    return PRINCIPAL + identity.removeprefix(USER_PREFIX)


def decision(
    acls: Iterable[AclBinding],
    client: tuple[str, str],
    operation: AclOperation,
    resource: tuple[AclResource, str],
) -> bool | None:
    """Whether these allow it to a client, (principal, host), or deny it; None if they do neither.
    Allowing more may imply it; denying more does not deny it.
    """
    about = [acl for acl in acls if _is_about(acl, client, resource)]
    denied = (AclOperation.ALL, operation)
    if any(acl.permission == AclPermission.DENY and acl.operation in denied for acl in about):
        return False
    allowed = (*denied, *_IMPLIED_BY.get(operation, ()))
    if any(acl.permission == AclPermission.ALLOW and acl.operation in allowed for acl in about):
        return True
    return None


def _is_about(acl: AclBinding, client: tuple[str, str], resource: tuple[AclResource, str]) -> bool:
    principal, host = client
    kind, name = resource
    return (
        acl.resource == kind
        and acl.principal in (principal, PRINCIPAL + EVERYTHING)
        and acl.host in (host, EVERYTHING)
        and _names(acl, name)
    )


def _names(acl: AclBinding, name: str) -> bool:
    if acl.pattern == AclPattern.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (name, EVERYTHING)


def fits(wanted: Any, acl: AclBinding) -> bool:
    """Whether a filter (of DescribeAcls, DeleteAcls) means an ACL."""
    return (
        wanted.resource_type_filter in (ANY, acl.resource)
        and _name_fits(wanted.pattern_type_filter, wanted.resource_name_filter, acl)
        and wanted.principal_filter in (None, acl.principal)
        and wanted.host_filter in (None, acl.host)
        and wanted.operation in (ANY, acl.operation)
        and wanted.permission_type in (ANY, acl.permission)
    )


def _name_fits(pattern: int, name: str | None, acl: AclBinding) -> bool:
    if pattern not in (ANY, AclPattern.MATCH, acl.pattern):
        return False
    if name is None:
        return True
    return _names(acl, name) if pattern == AclPattern.MATCH else acl.name == name


class AclDecisions:
    """Answers by the replicated ACLs; remembers answers until something changes."""

    def __init__(self, access: Callable[[], AccessTable]) -> None:
        self._access = access
        self._version = -1
        self._decided: dict[tuple[Any, ...], bool | None] = {}

    def allow(
        self,
        client: tuple[str, str],
        operation: AclOperation,
        resource: tuple[AclResource, str],
    ) -> bool:
        """Whether a client, (identity, host), may do this with it."""
        return bool(self.decision(client, operation, resource))

    def decision(
        self,
        client: tuple[str, str],
        operation: AclOperation,
        resource: tuple[AclResource, str],
    ) -> bool | None:
        """Whether a client, (identity, host), may do this with it; None if no ACL says so."""
        access = self._access()
        if not access.acls:
            return None
        if access.version != self._version or len(self._decided) >= DECIDED_MAX:
            self._version, self._decided = access.version, {}
        question = (client, operation, resource)
        if question not in self._decided:
            who = principal_of(client[0]), client[1]
            self._decided[question] = decision(access.acls, who, operation, resource)
        return self._decided[question]

"""What administrators set over the Kafka protocol: ACLs, users, quotas, settings of groups.

Numbers are Kafka's: of AclBinding's kinds and operations, and names are those of its settings.

Invariant: a command that would leave more than `ENTRIES_MAX` of a kind changes nothing; one that is
applied twice changes nothing the second time, but `version`. Of a password nothing is kept but what
a proof is checked with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from samelog.sequencer.state.command_base import Command, WhyNot


class AclBinding(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A principal may, or may not, do something with resources of a name, or whose names begin so;
    from a host, or from any (`*`).
    """

    resource: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int


class ScramCredential(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a user's proof is checked with (RFC 5802)."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes


class QuotaChange(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A rate of an owner (kafka.clients.quota_owners; None: every user without quotas): this, or
    none.
    """

    user: str | None
    key: str
    rate: int | None


class ChangeAcls(Command, frozen=True, tag=50):
    """Forget ACLs, and then add others."""

    add: list[AclBinding]
    remove: list[AclBinding]


class ChangeUsers(Command, frozen=True, tag=51):
    """Forget credentials by user and mechanism, and then set others."""

    upsert: list[ScramCredential]
    remove: list[tuple[str, int]]


class ChangeQuotas(Command, frozen=True, tag=52):
    """Set rates, and take them away."""

    changes: list[QuotaChange]


class AlterGroup(Command, frozen=True, tag=53):
    """Change settings of a consumer group: those in `settings` are set, those in `unset` have their
    default again.
    """

    group: str
    settings: dict[str, str]
    unset: list[str]


AccessCommand = ChangeAcls | ChangeUsers | ChangeQuotas | AlterGroup

ENTRIES_MAX = 10_000
EVERY_USER = ""
"""No user has this name."""

HEARTBEAT_MS, SESSION_MS = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
"""The settings of groups."""


class AccessTable(msgspec.Struct):
    """All of it. `version` rises with every change: who keeps something that follows from the rest
    compares it.
    """

    version: int = 0
    acls: list[AclBinding] = []
    credentials: dict[str, dict[int, ScramCredential]] = {}
    """User -> mechanism -> what proofs are checked with."""
    quotas: dict[str, dict[str, int]] = {}
    """Whose (kafka.clients.quota_owners; a user, or EVERY_USER, at first) -> key -> rate."""
    groups: dict[str, dict[str, str]] = {}
    """Group -> its settings."""

    def apply(self, command: AccessCommand) -> WhyNot:
        """Apply a command; return why it changed nothing, if it did not."""
        problem = _CHANGES[type(command)](self, command)
        if problem is None:
            self.version += 1
        return problem

    def group_ms(self, group: str, key: str, by_default: int) -> int:
        """A time that a group has set, or what counts for others."""
        return int(self.groups.get(group, {}).get(key, by_default))


def _change_acls(access: AccessTable, command: ChangeAcls) -> WhyNot:
    gone = set(command.remove)
    kept = [acl for acl in access.acls if acl not in gone]
    acls = list(dict.fromkeys([*kept, *command.add]))
    if len(acls) > max(ENTRIES_MAX, len(access.acls)):
        return _too_many("ACLs")
    access.acls = acls
    return None


def _change_users(access: AccessTable, command: ChangeUsers) -> WhyNot:
    new = {each.user for each in command.upsert} - access.credentials.keys()
    if new and len(access.credentials) + len(new) > ENTRIES_MAX:
        return _too_many("users")
    for user, mechanism in command.remove:
        _take_away(access.credentials, user, mechanism)
    for each in command.upsert:
        access.credentials.setdefault(each.user, {})[each.mechanism] = each
    return None


def _change_quotas(access: AccessTable, command: ChangeQuotas) -> WhyNot:
    set_for = {each.user or EVERY_USER for each in command.changes if each.rate is not None}
    new = set_for - access.quotas.keys()
    if new and len(access.quotas) + len(new) > ENTRIES_MAX:
        return _too_many("quotas")
    for each in command.changes:
        user = each.user or EVERY_USER
        if each.rate is None:
            _take_away(access.quotas, user, each.key)
        else:
            access.quotas.setdefault(user, {})[each.key] = each.rate
    return None


def _alter_group(access: AccessTable, command: AlterGroup) -> WhyNot:
    is_new = command.group not in access.groups and bool(command.settings)
    if is_new and len(access.groups) >= ENTRIES_MAX:
        return _too_many("groups with settings")
    for key in command.unset:
        _take_away(access.groups, command.group, key)
    if command.settings:
        access.groups.setdefault(command.group, {}).update(command.settings)
    return None


def _take_away(values: dict[str, dict[Any, Any]], name: str, key: Any) -> None:
    """Nothing is left of a name that has nothing more."""
    known = values.get(name, {})
    known.pop(key, None)
    if not known:
        values.pop(name, None)


def _too_many(what: str) -> WhyNot:
    return "TOO_MANY", f"there would be more than {ENTRIES_MAX} {what}"


_CHANGES: Mapping[type, Callable[[Any, Any], WhyNot]] = {
    ChangeAcls: _change_acls,
    ChangeUsers: _change_users,
    ChangeQuotas: _change_quotas,
    AlterGroup: _alter_group,
}

ACCESS_COMMANDS = tuple(_CHANGES)

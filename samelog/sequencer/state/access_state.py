"""What administrators set over the Kafka protocol: ACLs, users, quotas, settings of groups.

Invariant: a command that would leave more than `ENTRIES_MAX` of a kind changes nothing; one that is
applied twice changes nothing the second time, but `version`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from samelog.sequencer.state.access_commands import (
    AclBinding,
    AlterGroup,
    ChangeAcls,
    ChangeQuotas,
    ChangeUsers,
    ScramCredential,
)

ENTRIES_MAX = 10_000
EVERY_USER = ""
"""No user has this name."""
HEARTBEAT_MS, SESSION_MS = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
"""The settings of groups."""
Problem = tuple[str, str] | None


class AccessState(msgspec.Struct):
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

    def group_ms(self, group: str, key: str, by_default: int) -> int:
        """A time that a group has set, or what counts for others."""
        return int(self.groups.get(group, {}).get(key, by_default))


def _change_acls(access: AccessState, command: ChangeAcls) -> Problem:
    gone = set(command.remove)
    kept = [acl for acl in access.acls if acl not in gone]
    acls = list(dict.fromkeys([*kept, *command.add]))
    if len(acls) > max(ENTRIES_MAX, len(access.acls)):
        return _too_many("ACLs")
    access.acls = acls
    return None


def _change_users(access: AccessState, command: ChangeUsers) -> Problem:
    new = {each.user for each in command.upsert} - access.credentials.keys()
    if new and len(access.credentials) + len(new) > ENTRIES_MAX:
        return _too_many("users")
    for user, mechanism in command.remove:
        _take_away(access.credentials, user, mechanism)
    for each in command.upsert:
        access.credentials.setdefault(each.user, {})[each.mechanism] = each
    return None


def _change_quotas(access: AccessState, command: ChangeQuotas) -> Problem:
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


def _alter_group(access: AccessState, command: AlterGroup) -> Problem:
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


def _too_many(what: str) -> Problem:
    return "TOO_MANY", f"there would be more than {ENTRIES_MAX} {what}"


_CHANGES: Mapping[type, Callable[[Any, Any], Problem]] = {
    ChangeAcls: _change_acls,
    ChangeUsers: _change_users,
    ChangeQuotas: _change_quotas,
    AlterGroup: _alter_group,
}
ACCESS_COMMANDS = tuple(_CHANGES)


def change_access(access: AccessState, command: Any) -> Problem:
    """Apply one of these commands: why it changed nothing, if it did not."""
    problem = _CHANGES[type(command)](access, command)
    if problem is None:
        access.version += 1
    return problem

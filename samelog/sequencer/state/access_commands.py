"""Commands about who may do what, and how much: what administrators set over the Kafka protocol.

Numbers are Kafka's: of AclBinding's kinds and operations, and names are those of its settings.

Invariant: applying a command needs nothing but the state; field order is the format
(docs/state-machine.md). Of a password nothing is kept but what a proof is checked with.
"""

from __future__ import annotations

import msgspec

from samelog.sequencer.state.command_base import Command


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

"""The commands about consumer groups: generations, members, assignments and committed offsets.

The leader's group coordinator decides everything and proposes what it decided; times in a command
are the leader's wall clock, so that no node's own clock matters. Heartbeats are never replicated.

Invariant: applying a command needs nothing but the state; field order is the format
(docs/state-machine.md).
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from samelog.sequencer.state.command_base import Command


class Phase(IntEnum):
    """Where a classic group stands; Kafka's names are Empty, PreparingRebalance,
    CompletingRebalance and Stable.
    """

    EMPTY = 0
    PREPARING = 1
    COMPLETING = 2
    STABLE = 3


STATE_NAMES = {
    Phase.EMPTY: "Empty",
    Phase.PREPARING: "PreparingRebalance",
    Phase.COMPLETING: "CompletingRebalance",
    Phase.STABLE: "Stable",
}
"""Kafka's words."""


class ClassicMember(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One member of a classic group; `protocols` are (name, metadata), the liked ones first."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: list[tuple[str, bytes]]
    assignment: bytes = b""


class SaveGroup(Command, frozen=True, tag=40):
    """A classic group, as its coordinator wants it remembered.

    `members` are new or changed ones, `gone` the ids of those that are no members any more (before
    `members` are looked at), `assignments` what members that stay are given. `generation` never
    falls. `at_ms` is when the group came into this phase.
    """

    group: str
    generation: int
    phase: int
    protocol_type: str
    protocol: str | None
    leader: str | None
    members: list[ClassicMember]
    gone: list[str]
    assignments: list[tuple[str, bytes]]
    at_ms: int


class CommittedOffset(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A committed offset; `leader_epoch` is -1 if the consumer did not say, `at_ms` when it was
    committed.
    """

    offset: int
    leader_epoch: int
    metadata: str
    at_ms: int


class CommitOffsets(Command, frozen=True, tag=41):
    """Committed offsets of one round, of any number of groups: (group, [(partition, offset)]).

    A group that does not exist begins with its first commit. A partition that is gone is passed
    over. `only_empty`: nothing is done if one of the groups has members.
    """

    commits: list[tuple[str, list[tuple[int, CommittedOffset]]]]
    only_empty: bool = False


class DropOffsets(Command, frozen=True, tag=42):
    """Forget committed offsets: (group, partition, at_ms).

    With an `at_ms` of 0 or more only what was committed at that time, so that a newer commit that
    was on its way while an old one expired is kept; -1: whatever is there.
    """

    drops: list[tuple[str, int, int]]


class DeleteGroups(Command, frozen=True, tag=43):
    """End groups that have no members, with their offsets; `unused_only`: only those without
    offsets. Others are left alone.
    """

    groups: list[str]
    unused_only: bool = False


class ConsumerMember(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One member of a group of the consumer protocol: what it said of itself, its epochs, the
    partitions (by number, sorted) it may use, and those it was asked to give up and has not yet;
    the expression it subscribes by, empty if it has none, and the topics that this meant last.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topics: list[str]
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = -1
    assigned: list[int] = []
    revoking: list[int] = []
    pattern: str = ""
    matched: list[str] = []

    @property
    def subscribed(self) -> set[str]:
        """All topics that it subscribes to."""
        return {*self.topics, *self.matched}


class SaveConsumerGroup(Command, frozen=True, tag=44):
    """A group of the consumer protocol, as its coordinator wants it remembered: new or changed
    members, ids of those that are gone, and targets (member id, partitions) that changed. `epoch`
    never falls. A group of the other protocol without members becomes one of this.
    """

    group: str
    epoch: int
    members: list[ConsumerMember]
    gone: list[str]
    targets: list[tuple[str, list[int]]]
    at_ms: int


class NativeMember(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What is known besides of a member that is one of samelog's own subscribers: whose it is, when
    it joined, and when it last was given or gave up partitions.
    """

    identity: str
    joined_ms: int
    moved_ms: int


class SaveNativeGroup(SaveConsumerGroup, frozen=True, tag=120):
    """The same of a group of samelog's own subscribers; `natives` are new or changed."""

    natives: list[tuple[str, NativeMember]]


GroupCommand = (
    SaveNativeGroup | SaveConsumerGroup | SaveGroup | CommitOffsets | DropOffsets | DeleteGroups
)

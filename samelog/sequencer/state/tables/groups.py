"""Consumer groups: generations, members, assignments and committed offsets.

The leader's group coordinator decides everything and proposes what it decided; times in a command
are the leader's wall clock, so that no node's own clock matters. Heartbeats are never replicated.
Committed offsets are kept by the cluster-wide number of their partition, which is never used twice:
a topic that is created again under an old name shares none of them.

Invariant: the same commands in the same order give the same groups on every node; a group's
generation never falls while the group exists; every offset belongs to a living partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator
from enum import IntEnum
from typing import Any

import msgspec

from samelog.sequencer.state.command_base import Command
from samelog.sequencer.state.tables.feeds import ITSELF, Key


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


class ConsumerGroupRecord(msgspec.Struct):
    """One consumer group. One that only ever committed offsets has no protocol type."""

    generation: int = 0
    phase: int = Phase.EMPTY
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, ClassicMember] = {}
    since_ms: int = 0
    offsets: dict[int, CommittedOffset] = {}
    """Partition number -> what was committed last."""
    consumers: dict[str, ConsumerMember] = {}
    """Members by the consumer protocol; then there are none by the classic one."""
    targets: dict[str, list[int]] = {}
    """What those are to have."""
    natives: dict[str, NativeMember] = {}
    """What is known besides of those that are samelog's own subscribers: all, or none."""
    first_number: int = -1
    """Partitions from this number on were created after samelog's own subscribers first joined; -1:
    none ever joined.
    """

    @property
    def state_name(self) -> str:
        """Kafka's name of where the group stands."""
        if not self.consumers:
            return STATE_NAMES[Phase(self.phase)]
        settled = all(
            not member.revoking and sorted(member.assigned) == self.targets.get(name, [])
            for name, member in self.consumers.items()
        )
        return STATE_NAMES[Phase.STABLE] if settled else "Reconciling"

    @property
    def has_members(self) -> bool:
        """Whether there are members of either protocol."""
        return bool(self.members or self.consumers)


class GroupsTable(msgspec.Struct):
    """All consumer groups by their ids."""

    by_id: dict[str, ConsumerGroupRecord] = {}

    def committed(self, group: str, partition: int) -> int:
        """The offset that a group has committed; 0: none."""
        known = self.by_id.get(group)
        if known is None or partition not in known.offsets:
            return 0
        return known.offsets[partition].offset

    def forget_partitions(self, gone: Collection[int]) -> None:
        """A topic is deleted: what was committed in it means nothing any more."""
        for group in self.by_id.values():
            for number in gone:
                group.offsets.pop(number, None)

    def apply(self, command: GroupCommand, living: Container[int]) -> str | None:
        """Apply a committed command, `living` being the partitions there are; why it changed
        nothing, or None.
        """
        return _APPLY[type(command)](self, command, living)

    def keys_of(self, command: GroupCommand) -> list[Key]:
        """Return the groups and offsets that a command is about, before it is applied."""
        if isinstance(command, CommitOffsets):
            return [(group, n) for group, commits in command.commits for n, _ in commits]
        if isinstance(command, DropOffsets):
            return [(group, number) for group, number, _ in command.drops]
        if isinstance(command, DeleteGroups):
            return [*self._keys_of_known(command.groups)]
        return [(command.group, ITSELF)]

    def _keys_of_known(self, names: Iterable[str]) -> Iterator[Key]:
        for name in names:
            if (group := self.by_id.get(name)) is not None:
                yield from ((name, number) for number in (*group.offsets, ITSELF))

    def is_native(self, group: str) -> bool:
        """Whether its members are samelog's own subscribers."""
        known = self.by_id.get(group)
        return known is not None and bool(known.natives)

    def _save(self, command: SaveGroup, living: Container[int]) -> str | None:
        group = self.by_id.get(command.group)
        if group is not None and command.generation < group.generation:
            return f"generation {command.generation} after {group.generation}"
        if group is None:
            group = self.by_id[command.group] = ConsumerGroupRecord()
        group.generation, group.phase = command.generation, command.phase
        group.protocol_type, group.protocol = command.protocol_type, command.protocol
        group.leader, group.since_ms = command.leader, command.at_ms
        for known in (group.consumers, group.targets, group.natives):
            known.clear()
        _change_members(group.members, command)
        return None

    def _save_consumers(self, command: SaveConsumerGroup, living: Container[int]) -> str | None:
        group = self.by_id.get(command.group, ConsumerGroupRecord())
        if command.epoch < group.generation:
            return f"epoch {command.epoch} after {group.generation}"
        self.by_id[command.group] = group
        for member_id in command.gone:
            group.consumers.pop(member_id, None)
            group.targets.pop(member_id, None)
            group.natives.pop(member_id, None)
        group.consumers.update((member.member_id, member) for member in command.members)
        group.targets.update(command.targets)
        group.generation, group.since_ms = command.epoch, command.at_ms
        group.phase = Phase.STABLE if group.consumers else Phase.EMPTY
        group.protocol_type, group.protocol = "consumer", None
        return None

    def begin_native(self, group: str, next_partition: int) -> None:
        """Note that a group has members that are samelog's own subscribers, and which partition
        comes next in the cluster.
        """
        known = self.by_id[group]
        if known.first_number < 0:
            known.first_number = next_partition

    def _save_natives(self, command: SaveNativeGroup, living: Container[int]) -> str | None:
        problem = self._save_consumers(command, living)
        if problem is None:
            self.by_id[command.group].natives.update(command.natives)
        return problem

    def _commit(self, command: CommitOffsets, living: Container[int]) -> str | None:
        for group_id, _ in command.commits if command.only_empty else ():
            group = self.by_id.get(group_id)
            if group is not None and group.has_members:
                return f"group {group_id!r} has members"
        for group_id, commits in command.commits:
            group = self.by_id.get(group_id)
            if group is None:
                group = self.by_id[group_id] = ConsumerGroupRecord()
            group.offsets.update((number, new) for number, new in commits if number in living)
        return None

    def _drop(self, command: DropOffsets, living: Container[int]) -> None:
        for group_id, partition, at_ms in command.drops:
            group = self.by_id.get(group_id)
            known = None if group is None else group.offsets.get(partition)
            if group is not None and known is not None and at_ms in (-1, known.at_ms):
                del group.offsets[partition]

    def _delete(self, command: DeleteGroups, living: Container[int]) -> None:
        for group_id in command.groups:
            group = self.by_id.get(group_id)
            if group is None or group.has_members or (command.unused_only and group.offsets):
                continue
            del self.by_id[group_id]


def _change_members(members: dict[str, ClassicMember], command: SaveGroup) -> None:
    for member_id in command.gone:
        members.pop(member_id, None)
    for member in command.members:
        members[member.member_id] = member
    for member_id, assignment in command.assignments:
        if member_id in members:
            members[member_id] = msgspec.structs.replace(members[member_id], assignment=assignment)


_APPLY: dict[type, Callable[[GroupsTable, Any, Container[int]], str | None]] = {
    SaveGroup: GroupsTable._save,
    SaveConsumerGroup: GroupsTable._save_consumers,
    SaveNativeGroup: GroupsTable._save_natives,
    CommitOffsets: GroupsTable._commit,
    DropOffsets: GroupsTable._drop,
    DeleteGroups: GroupsTable._delete,
}

GROUP_COMMANDS: Iterable[type] = tuple(_APPLY)

"""What the replicated state machine knows of consumer groups, and how commands change it.

Committed offsets are kept by the cluster-wide number of their partition, which is never used twice:
a topic that is created again under an old name shares none of them.

Invariant: the same commands in the same order give the same groups on every node; a group's
generation never falls while the group exists; every offset belongs to a living partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable
from typing import Any

import msgspec

from samelog.sequencer.state.feeds.feed import Feeds
from samelog.sequencer.state.group_commands import (
    STATE_NAMES,
    ClassicMember,
    CommitOffsets,
    CommittedOffset,
    ConsumerMember,
    DeleteGroups,
    DropOffsets,
    GroupCommand,
    NativeMember,
    Phase,
    SaveConsumerGroup,
    SaveGroup,
    SaveNativeGroup,
)


class GroupState(msgspec.Struct):
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


class Groups(msgspec.Struct):
    """All consumer groups by their ids."""

    by_id: dict[str, GroupState] = {}
    feeds: Feeds = msgspec.field(default_factory=Feeds)
    """What is told of them, and of transactions, as topics."""

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

    def is_native(self, group: str) -> bool:
        """Whether its members are samelog's own subscribers."""
        known = self.by_id.get(group)
        return known is not None and bool(known.natives)

    def _save(self, command: SaveGroup, living: Container[int]) -> str | None:
        group = self.by_id.get(command.group)
        if group is not None and command.generation < group.generation:
            return f"generation {command.generation} after {group.generation}"
        if group is None:
            group = self.by_id[command.group] = GroupState()
        group.generation, group.phase = command.generation, command.phase
        group.protocol_type, group.protocol = command.protocol_type, command.protocol
        group.leader, group.since_ms = command.leader, command.at_ms
        for known in (group.consumers, group.targets, group.natives):
            known.clear()
        _change_members(group.members, command)
        return None

    def _save_consumers(self, command: SaveConsumerGroup, living: Container[int]) -> str | None:
        group = self.by_id.get(command.group, GroupState())
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
                group = self.by_id[group_id] = GroupState()
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


_APPLY: dict[type, Callable[[Groups, Any, Container[int]], str | None]] = {
    SaveGroup: Groups._save,
    SaveConsumerGroup: Groups._save_consumers,
    SaveNativeGroup: Groups._save_natives,
    CommitOffsets: Groups._commit,
    DropOffsets: Groups._drop,
    DeleteGroups: Groups._delete,
}

GROUP_COMMANDS: Iterable[type] = tuple(_APPLY)

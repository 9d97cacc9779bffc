"""One classic group as its coordinator sees it: members, generation, who waits for what.

Invariant: `saved` is what the replicated state holds, or will once everything proposed is
committed; `static` names exactly the members that have an instance id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from samelog.format.consumer_protocol import CONSUMER, subscribed_topics
from samelog.kafka.groups.outbox import Requester
from samelog.sequencer.state.tables.groups import (
    STATE_NAMES,
    ClassicMember,
    ConsumerGroupRecord,
    Phase,
    SaveGroup,
)

DEAD = "Dead"


@dataclass(slots=True)
class GroupMember:
    """One member, and its requests that are not answered yet."""

    record: ClassicMember
    joining: Requester | None = None
    syncing: Requester | None = None
    is_new: bool = False
    """It has never been answered with a generation."""

    def metadata(self, protocol: str | None) -> bytes:
        """What it said of itself for a protocol."""
        return next((data for name, data in self.record.protocols if name == protocol), b"")


@dataclass(slots=True)
class ClassicGroup:
    """A group of the classic protocol."""

    group_id: str
    generation: int = 0
    phase: Phase = Phase.EMPTY
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    since_ms: int = 0
    members: dict[str, GroupMember] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    """Ids that were given to members that have not joined with them yet."""
    unsynced: set[str] = field(default_factory=set)
    """Members that have not asked for their assignment in this generation."""
    delay_left_s: float | None = None
    """By how much its first rebalance may still be put off, in favour of members that start a
    little later; None: it is not being put off.
    """
    has_newcomer: bool = False
    was_used: bool = False
    """Somebody committed since the last look for groups that nobody uses."""
    saved: dict[str, ClassicMember] = field(default_factory=dict)

    @classmethod
    def restored(cls, group_id: str, state: ConsumerGroupRecord) -> ClassicGroup:
        """A group as the replicated state remembers it."""
        group = cls(
            group_id,
            state.generation,
            Phase(state.phase),
            state.protocol_type,
            state.protocol,
            state.leader,
            state.since_ms,
        )
        group.members = {name: GroupMember(record) for name, record in state.members.items()}
        group.static = {
            record.instance_id: name
            for name, record in state.members.items()
            if record.instance_id is not None
        }
        group.saved = dict(state.members)
        return group

    # --- questions --------------------------------------------------------------------------------

    @property
    def is_waiting(self) -> bool:
        """Whether somebody has an id and has not joined with it yet."""
        return bool(self.pending)

    def subscriptions(self) -> set[str] | None:
        """The topics that members subscribe to; None if they are no consumers, or one cannot be
        read.
        """
        if self.protocol_type != CONSUMER:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            subscribed = subscribed_topics(member.metadata(self.protocol))
            if subscribed is None:
                return None
            topics |= subscribed
        return topics

    @property
    def state_name(self) -> str:
        """Kafka's name of where the group stands."""
        return STATE_NAMES[self.phase]

    @property
    def rebalance_timeout_s(self) -> float:
        """How long members may take to come to a rebalance."""
        longest = max((m.record.rebalance_timeout_ms for m in self.members.values()), default=0)
        return longest / 1000

    @property
    def all_have_joined(self) -> bool:
        """Whether every member has joined."""
        return not self.pending and all(m.joining is not None for m in self.members.values())

    def common_protocols(self) -> set[str]:
        """The protocols that every member speaks."""
        spoken = [{name for name, _ in m.record.protocols} for m in self.members.values()]
        return set.intersection(*spoken) if spoken else set()

    def understands(self, protocol_type: str, protocols: Sequence[tuple[str, bytes]]) -> bool:
        """Whether a member with these protocols can belong to the group."""
        if not self.members:
            return bool(protocol_type and protocols)
        common = self.common_protocols()
        return self.protocol_type == protocol_type and any(name in common for name, _ in protocols)

    def voted_protocol(self) -> str | None:
        """Of the protocols that all speak, the one that most members like best."""
        common = self.common_protocols()
        votes: dict[str, int] = {}
        for member in self.members.values():
            liked = next((name for name, _ in member.record.protocols if name in common), None)
            if liked is not None:
                votes[liked] = votes.get(liked, 0) + 1
        return max(votes, key=lambda name: votes[name], default=None)

    def metadata_of_all(self) -> tuple[tuple[str, str | None, bytes], ...]:
        """(id, instance id, metadata) of all members, for the one that assigns."""
        return tuple(
            (name, member.record.instance_id, member.metadata(self.protocol))
            for name, member in self.members.items()
        )

    def size_without(self, member_id: str) -> int:
        """What all members but one take in the replicated state, in bytes."""
        return sum(size_of(m.record) for name, m in self.members.items() if name != member_id)

    # --- changes ----------------------------------------------------------------------------------

    def add(self, member: GroupMember) -> None:
        """Take in a member."""
        record = member.record
        self.members[record.member_id] = member
        self.pending.discard(record.member_id)
        if record.instance_id is not None:
            self.static[record.instance_id] = record.member_id

    def remove(self, member_id: str) -> GroupMember:
        """Remove a member."""
        member = self.members.pop(member_id)
        self.unsynced.discard(member_id)
        if member.record.instance_id is not None:
            del self.static[member.record.instance_id]
        if self.leader == member_id:
            self.leader = None
        return member

    def elect_leader(self) -> bool:
        """Have a leader that has joined; False if no member has."""
        if self.leader in self.members and self.members[self.leader].joining is not None:
            return True
        joined = (name for name, member in self.members.items() if member.joining is not None)
        self.leader = next(joined, self.leader)
        return self.leader in self.members and self.members[self.leader].joining is not None

    def assign(self, assignments: Iterable[tuple[str, bytes]]) -> None:
        """Give members their assignments; who is not named gets an empty one."""
        given = dict(assignments)
        for name, member in self.members.items():
            member.record = msgspec.structs.replace(member.record, assignment=given.get(name, b""))

    def difference(self) -> SaveGroup:
        """What makes the replicated state equal to this, and is taken to be proposed."""
        records = {name: member.record for name, member in self.members.items()}
        changed: list[ClassicMember] = []
        assignments: list[tuple[str, bytes]] = []
        for name, record in records.items():
            known = self.saved.get(name)
            if known is record or known == record:
                continue
            if known is not None and _with_assignment(known, record.assignment) == record:
                assignments.append((name, record.assignment))
            else:
                changed.append(record)
        gone = [name for name in self.saved if name not in records]
        self.saved = records
        return SaveGroup(
            self.group_id,
            self.generation,
            self.phase,
            self.protocol_type,
            self.protocol,
            self.leader,
            changed,
            gone,
            assignments,
            self.since_ms,
        )


def _with_assignment(record: ClassicMember, assignment: bytes) -> ClassicMember:
    return msgspec.structs.replace(record, assignment=assignment)


def size_of(record: ClassicMember) -> int:
    """About what a member takes in the replicated state, in bytes, without its assignment."""
    texts = (record.member_id, record.instance_id or "", record.client_id, record.client_host)
    protocols = sum(len(name.encode()) + len(data) for name, data in record.protocols)
    return protocols + sum(len(text.encode()) for text in texts)

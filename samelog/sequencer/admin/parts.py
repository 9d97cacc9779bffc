"""What handlers of administrative requests, views and metrics see of a node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from samelog.admin.answers import StageDropped, StageHeld, StagePublished
from samelog.admin.group_answers import GroupBeaten
from samelog.admin.group_requests import BeatGroup
from samelog.admin.requests import DropStage, HoldStage, PublishStage
from samelog.consensus import NotLeader
from samelog.placement.members import MemberStates
from samelog.placement.needs import Need
from samelog.placement.table import PlacementTable
from samelog.sequencer.admin.openings import OpeningGroups
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.host import NodeSyncer, Service
from samelog.sequencer.parts import CareParts, LogParts, MemberParts, PeerParts, RaftParts
from samelog.wire.errors import FaultCode

ReplicaParts = tuple[LogParts, RaftParts, CareParts]


class HeldGroups(OpeningGroups, Protocol):
    """The data groups, as this node knows them."""

    def leader(self, group: int) -> tuple[int, int] | None:
        """(term, member) of who leads a group, as far as is known here."""

    def parts(self, partition: int) -> tuple[LogParts, RaftParts] | None:
        """Of the group that has a partition; None: it has no replica on this node."""

    def care_of(self, partition: int) -> CareParts | None:
        """What looks after the files of such a group; None: as above."""

    @property
    def here(self) -> Iterable[tuple[int, LogParts, RaftParts]]:
        """By group: what has a replica on this node."""

    @property
    def troubles(self) -> Iterable[str]:
        """What is wrong with replicas of this node, in words."""

    @property
    def damaged(self) -> Mapping[int, str]:
        """Groups whose replica cannot begin here, and why."""

    @property
    def damaged_replicas(self) -> int:
        """How many cannot begin here, or are halted."""

    @property
    def held(self) -> Iterable[ReplicaParts]:
        """Of the groups that have a replica here."""

    def lag(self, group: int) -> Mapping[int, int]:
        """Member -> entries that it lacks; empty if the group is not led here."""


class PlacementDesk(Protocol):
    """What the leader of group 0 knows of placement."""

    @property
    def needs(self) -> list[Need]:
        """What is to be done and is not under way."""

    @property
    def waits(self) -> Mapping[int, str]:
        """Task -> what it waits for."""

    def look(self) -> PlacementTable:
        """The table as it is now."""

    def states(self) -> MemberStates:
        """The states of all members now."""


class StageDesk(Protocol):
    """Publishes what is staged, in whatever groups it is."""

    async def hold(self, request: HoldStage) -> StageHeld:
        """Wait until majorities hold the runs. Raises NotLeader, ChangeRefused, as all of these."""

    async def publish(self, request: PublishStage) -> StagePublished:
        """Publish a batch."""

    async def drop(self, request: DropStage) -> StageDropped:
        """End the runs of a stage."""


class MembersDesk(Protocol):
    """Coordinates consumer groups, while this node leads."""

    async def beat(self, request: BeatGroup, identity: str) -> GroupBeaten:
        """A subscriber joins, stays or leaves. Raises NotLeader, ChangeRefused."""

    async def note(self, group: str, positions: Iterable[tuple[int, int]]) -> bool:
        """Have positions of somebody committed who is no member; whether they are. Raises
        NotLeader.
        """

    def times(self, group: str, member: str) -> tuple[int, int]:
        """When a member was heard of last, and polled, in ms of the wall clock; -1: not known."""


@dataclass(slots=True)
class NodeServices:
    """What else a node offers once it knows what the cluster knows, in the order in which it
    begins; one of them coordinates consumer groups, if anything does.
    """

    all: list[Service] = field(default_factory=list)
    group_desk: MembersDesk | None = None


class ServedNode(Protocol):
    """Its parts, in records."""

    @property
    def member(self) -> MemberParts:
        """The parts that a member of the cluster has once."""

    @property
    def logs(self) -> LogParts:
        """Its logs, and the replicated state."""

    @property
    def raft(self) -> RaftParts:
        """Its part in the Raft group."""

    @property
    def peers(self) -> PeerParts:
        """The other members."""

    @property
    def care(self) -> CareParts:
        """The parts that look after the node's files."""

    @property
    def data_groups(self) -> HeldGroups:
        """The data groups."""

    @property
    def placing(self) -> PlacementDesk:
        """Placement, as the leader of group 0 sees it."""

    @property
    def stages(self) -> StageDesk:
        """What writers stage."""

    @property
    def group_desk(self) -> MembersDesk | None:
        """What coordinates consumer groups; None: nothing on this node ever does."""

    def fail(self, error: BaseException) -> None:
        """End the node's life, because of this."""

    @property
    def syncers(self) -> Sequence[NodeSyncer]:
        """What makes merged logs, Raft's files and session logs durable, in this order."""


def parts_of(node: ServedNode, partition: int) -> tuple[LogParts, RaftParts] | None:
    """The logs and the Raft group that have a partition, by its number; None: other nodes do."""
    if not node.logs.machine.state.placement.group_of(partition):
        return node.logs, node.raft
    return node.data_groups.parts(partition)


def groups_here(node: ServedNode) -> Iterator[tuple[LogParts, RaftParts]]:
    """Of group 0, and of the data groups that have a replica on this node."""
    yield node.logs, node.raft
    for _, logs, raft in node.data_groups.here:
        yield logs, raft


class KeptElsewhere(NotLeader):
    """Other members have a partition: `hint` is one that is there."""


def parts_here(node: ServedNode, partition: int) -> tuple[LogParts, RaftParts]:
    """As parts_of. Raises KeptElsewhere or ChangeRefused if other nodes have it."""
    parts = parts_of(node, partition)
    if parts is None:
        raise elsewhere(node, partition)
    return parts


def elsewhere(node: ServedNode, partition: int) -> Exception:
    """The refusal of a node that does not have a partition: who leads there is best to ask."""
    placement = node.logs.machine.state.placement
    number = placement.group_of(partition)
    leader = node.data_groups.leader(number)
    asked = (() if leader is None else (leader[1],)) + tuple(placement.groups[number].members)
    others = (each for each in asked if each != node.peers.number)
    there = next(filter(node.peers.presence.is_there, others), None)
    if there is not None:
        return KeptElsewhere(there)
    text = f"other nodes have it: {where(node, partition)}"
    return ChangeRefused(FaultCode.NOT_READY, text, "ask one of them")


def where(node: ServedNode, partition: int) -> str:
    """The members that have a partition of a data group, for people."""
    placement = node.logs.machine.state.placement
    group = placement.groups[placement.group_of(partition)]
    return ", ".join(map(node.peers.members.name, group.members))

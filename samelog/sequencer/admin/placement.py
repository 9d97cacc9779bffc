"""Answers which groups there are, and which partition is where; plans where new topics go.

Invariant: who has a replica is what the table says; who leads, and what members lack, is what this
node knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import structs

from samelog.admin.answers import GroupPlacement, PartitionPlacement, PlacementStatus
from samelog.admin.placement_requests import GetPlacement
from samelog.consensus import Raft
from samelog.placement.changes import AnyChange
from samelog.placement.converting import change_copies
from samelog.placement.members import MemberStates, PlacementLimits
from samelog.placement.table import PlacedMember, PlacementTable
from samelog.placement.topics import TopicPlacement, place_by_hand, place_topic
from samelog.placement.values import METADATA, Placement
from samelog.sequencer.admin.parts import HeldGroups, ServedNode
from samelog.sequencer.state.commands import CreateTopicCommand
from samelog.sequencer.state.placement.changes import place
from samelog.sequencer.state.placement.commands import PlacePartitions, PlaceTopic
from samelog.sequencer.state.types import Partition, State, Topic


def placement_status(node: ServedNode, request: GetPlacement) -> PlacementStatus:
    """As this node knows it."""
    groups = {each.group: each for each in _groups(node)}
    state = node.logs.machine.state
    drained = sorted(state.members.keys() & set(state.placement.draining))
    partitions = tuple(_partitions(node, groups))
    return PlacementStatus(tuple(groups.values()), partitions, _names(node, drained))


def _groups(node: ServedNode) -> Iterator[GroupPlacement]:
    state, raft = node.logs.machine.state, node.raft.group
    everybody = sorted(node.peers.members.all)
    yield GroupPlacement(
        METADATA,
        None if raft.raft.leader is None else _name(node, raft.raft.leader),
        _names(node, everybody),
        len(everybody),
        {_name(node, number): lag for number, lag in raft.lag.items()},
    )
    here = {number: parts.group.raft for number, _, parts in node.data_groups.here}
    for number, group in sorted(state.placement.groups.items()):
        leader = node.data_groups.leader(number)
        yield GroupPlacement(
            number,
            None if leader is None else _name(node, leader[1]),
            _names(node, group.members),
            group.copies,
            {_name(node, member): lag for member, lag in node.data_groups.lag(number).items()},
            number in state.placement.resetting,
            *_replica_here(node, here.get(number)),
            _names(node, (each.member for each in group.readers)),
        )


def _replica_here(
    node: ServedNode, raft: Raft | None
) -> tuple[dict[str, tuple[int, int]], tuple[str, ...]]:
    """(its newest entry, whether it counts for nothing), both under this node's name."""
    own = _name(node, node.peers.number)
    if raft is None:
        return {}, ()
    newest = {own: (raft.log.last_term, raft.log.last_index)}
    return newest, () if raft.may_vote else (own,)


def _partitions(
    node: ServedNode, groups: dict[int, GroupPlacement]
) -> Iterator[PartitionPlacement]:
    state = node.logs.machine.state
    for topic in sorted(state.topics.values(), key=lambda each: each.name):
        for index, number in enumerate(topic.partition_numbers):
            group = groups[state.placement.group_of(number)]
            yield PartitionPlacement(topic.name, index, group.group, group.leader, group.members)


def _names(node: ServedNode, numbers: Iterable[int]) -> tuple[str, ...]:
    return tuple(_name(node, number) for number in numbers)


def _name(node: ServedNode, number: int) -> str:
    return node.peers.members.name(number)


# --- new topics -----------------------------------------------------------------------------------


Plan = int | Sequence[Sequence[int]]
"""How many copies, or the members of each partition."""


def table_now(state: State, is_there: Callable[[int], bool], now_ms: int) -> PlacementTable:
    """The table, with the members as this node knows them."""
    table = PlacementTable(state.placement, _members(state, is_there, now_ms))
    table.own = state.partitions
    return table


def may_hold(node: ServedNode) -> Callable[[int], bool]:
    """Who may begin a replica of a new group."""
    state, now = node.logs.machine.state, node.member.clock.now()
    return lambda number: node.peers.may_hold(number, state, now)


def other_copies(
    state: State,
    may_hold: Callable[[int], bool],
    partitions: Sequence[int],
    copies: int,
    now_ms: int,
) -> list[AnyChange]:
    """Have partitions moved to where there are so many copies. Raises PlacementRefused."""
    table = table_now(state, may_hold, now_ms)
    states = MemberStates(table, PlacementLimits(), now_ms)
    return change_copies(table, states, partitions, copies)


class PlacementPlan:
    """Plans where the new partitions of several topics go, each as if those before it were there.
    All commands together are for one entry.
    """

    def __init__(self, state: State, may_hold: Callable[[int], bool], now_ms: int) -> None:
        """`state`: as it is now, which the plan does not change."""
        self._placement = _copy_of(state.placement)
        self._table = PlacementTable(self._placement, _members(state, may_hold, now_ms))
        self._table.own = state.partitions
        self._now_ms = now_ms
        self._next_partition = state.next_partition

    def topic(self, command: CreateTopicCommand, plan: Plan) -> PlaceTopic:
        """A new topic in data groups. Raises PlacementRefused."""
        placed = self._planned(plan, command.partitions)
        made = PlaceTopic(
            self._placement.version,
            command.topic_id,
            command.name,
            command.settings,
            command.at_ms,
            list(placed.new_groups),
            list(placed.groups),
        )
        self._note(made, len(placed.groups))
        return made

    def partitions(
        self, topic: Topic, partitions: int, *, by_hand: Plan | None = None
    ) -> PlacePartitions:
        """More partitions of a topic in data groups, with as many copies as its others have unless
        an operator names members. Raises PlacementRefused.
        """
        groups = map(self._placement.group_of, topic.partition_numbers)
        copies = next(self._placement.groups[each].copies for each in groups if each != METADATA)
        plan = copies if by_hand is None else by_hand
        placed = self._planned(plan, partitions - topic.partitions)
        made = PlacePartitions(
            self._placement.version,
            topic.topic_id,
            partitions,
            list(placed.new_groups),
            list(placed.groups),
        )
        self._note(made, len(placed.groups))
        return made

    def _planned(self, plan: Plan, partitions: int) -> TopicPlacement:
        if not isinstance(plan, int):
            return place_by_hand(self._table, plan)
        limits = PlacementLimits()
        states = MemberStates(self._table, limits, self._now_ms)
        return place_topic(self._table, states, limits, partitions, plan)

    def _note(self, command: PlaceTopic | PlacePartitions, count: int) -> None:
        """Have the table as it is once the command is carried out."""
        first, self._next_partition = self._next_partition, self._next_partition + count
        place(self._placement, command, range(first, first + count))
        self._table.follow(self._placement)


def _copy_of(placement: Placement) -> Placement:
    """With its own groups and partitions; their values are replaced, never changed."""
    groups, partitions = dict(placement.groups), dict(placement.partitions)
    return structs.replace(placement, groups=groups, partitions=partitions)


def _members(state: State, is_there: Callable[[int], bool], now_ms: int) -> list[PlacedMember]:
    """All members, as this node knows them."""
    return [
        PlacedMember(
            number,
            member.name,
            state.rack_of(number),
            state.maintenance.get(member.name, 0),
            None if is_there(number) else now_ms,
        )
        for number, member in state.members.items()
    ]


def partitions_here(groups: HeldGroups, numbers: Iterable[int]) -> Iterator[Partition]:
    """Partitions of data groups, as those groups' states have them on this node."""
    for number in numbers:
        parts = groups.parts(number)
        known = None if parts is None else parts[0].machine.state.partitions.get(number)
        if known is not None:
            yield known

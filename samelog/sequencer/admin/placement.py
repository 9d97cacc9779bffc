"""Answers which groups there are, and which partition is where; plans where new topics go.

Invariant: who has a replica is what the table says; who leads, and what members lack, is what this
node knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from samelog.admin.answers import GroupPlacement, PartitionPlacement, PlacementStatus
from samelog.admin.placement_requests import GetPlacement
from samelog.consensus import Raft
from samelog.format.steps import StepWork
from samelog.placement.changes import AnyChange
from samelog.placement.colocation import are_kept, home_of
from samelog.placement.converting import change_copies
from samelog.placement.defaults import default_copies, is_pair, risk_of_pairs
from samelog.placement.members import MemberStates, PlacementLimits
from samelog.placement.table import PlacedMember, PlacementTable
from samelog.placement.tasks import PlacementRefused
from samelog.placement.topics import PlannedTable, TopicPlacement, place_by_hand, place_topic
from samelog.placement.values import METADATA
from samelog.sequencer.admin.parts import HeldGroups, ServedNode
from samelog.sequencer.state.tables.partitions import Partition
from samelog.sequencer.state.tables.placement import PlacePartitions, PlaceTopic
from samelog.sequencer.state.tables.topics import CreateTopicCommand, Topic
from samelog.sequencer.state.types import State


def placement_status(node: ServedNode, request: GetPlacement) -> StepWork[PlacementStatus]:
    """As this node knows it."""
    groups: dict[int, GroupPlacement] = {}
    for each in _groups(node):
        groups[each.group] = each
        yield
    partitions = yield from _partitions(node, groups)
    state = node.logs.machine.state
    drained = sorted(state.members.by_number.keys() & set(state.placement.draining))
    return PlacementStatus(
        tuple(groups.values()),
        tuple(partitions),
        _names(node, drained),
        default_copies(state.placement),
        warnings_of(node),
    )


def _groups(node: ServedNode) -> Iterator[GroupPlacement]:
    state, raft = node.logs.machine.state, node.raft.group
    everybody = sorted(node.peers.members.all)
    yield GroupPlacement(
        METADATA,
        None if raft.raft.leader is None else _name(node, raft.raft.leader),
        _names(node, everybody),
        len(everybody),
        {_name(node, number): lag for number, lag in raft.lag.items()},
        voters=len(raft.raft.voters),
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
            len(group.voters),
        )


def warnings_of(node: ServedNode) -> tuple[str, ...]:
    """What the loss of one node would stop: groups that have two voters."""
    groups = node.logs.machine.state.placement.groups.values()
    pairs = [each.number for each in groups if is_pair(len(each.voters))]
    if is_pair(len(node.raft.group.raft.voters)):
        pairs.append(METADATA)
    return (risk_of_pairs(pairs),) if pairs else ()


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
    node: ServedNode, groups: Mapping[int, GroupPlacement]
) -> StepWork[list[PartitionPlacement]]:
    state, found = node.logs.machine.state, []
    for topic in sorted(state.topics.by_id.values(), key=attrgetter("name")):
        for index, number in enumerate(tuple(topic.partition_numbers)):
            group = groups.get(state.placement.group_of(number))
            if group is not None:  # it was not made meanwhile
                placed = group.group, group.leader, group.members
                found.append(PartitionPlacement(topic.name, index, *placed))
            yield
    return found


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
    table.own = state.partitions.by_number
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
        self._state = state
        self._group_of = state.placement.group_of
        self._table = PlannedTable(state.placement, _members(state, may_hold, now_ms))
        self._now_ms = now_ms

    def topic(self, command: CreateTopicCommand, plan: Plan) -> PlaceTopic:
        """A new topic in data groups. Raises PlacementRefused."""
        version, placed = self._planned(plan, command.partitions)
        return PlaceTopic(
            version,
            command.topic_id,
            command.name,
            command.settings,
            command.at_ms,
            list(placed.new_groups),
            list(placed.groups),
            source=command.source,
        )

    def topic_beside(self, command: CreateTopicCommand) -> CreateTopicCommand | PlaceTopic:
        """A new topic in the group of another one. Raises PlacementRefused."""
        group = self._home_of(command.beside)
        if group == METADATA:
            return command
        return PlaceTopic(
            self._table.placement.version,
            command.topic_id,
            command.name,
            command.settings,
            command.at_ms,
            [],
            [group] * command.partitions,
            command.beside,
        )

    def _home_of(self, topic_id: str) -> int:
        """The group of a topic. Raises PlacementRefused."""
        topic = self._state.topics.by_id.get(topic_id)
        if topic is None:
            text = f"no topic has the id {topic_id}"
            raise PlacementRefused("UNKNOWN_TOPIC", text, "samelog topic list")
        known = self._state.placement
        return home_of(known, self._table, topic.name, topic.partition_numbers)

    def partitions(
        self, topic: Topic, partitions: int, *, by_hand: Plan | None = None
    ) -> PlacePartitions:
        """More partitions of a topic in data groups, with as many copies as its others have unless
        an operator names members. Raises PlacementRefused.
        """
        if are_kept(self._state.placement, topic.topic_id):
            return self._partitions_beside(topic, partitions, by_hand)
        groups = map(self._group_of, topic.partition_numbers)
        copies = next(self._table.groups[each].copies for each in groups if each != METADATA)
        plan = copies if by_hand is None else by_hand
        version, placed = self._planned(plan, partitions - topic.partitions)
        return PlacePartitions(
            version,
            topic.topic_id,
            partitions,
            list(placed.new_groups),
            list(placed.groups),
        )

    def _partitions_beside(
        self, topic: Topic, partitions: int, by_hand: Plan | None
    ) -> PlacePartitions:
        """More partitions of a topic that stays in one group. Raises PlacementRefused."""
        if by_hand is not None:
            text = f"topic {topic.name!r} shares the group of another one: name no members"
            raise PlacementRefused("COLOCATED", text)
        groups = [self._home_of(topic.topic_id)] * (partitions - topic.partitions)
        version = self._table.placement.version
        return PlacePartitions(version, topic.topic_id, partitions, [], groups)

    def _planned(self, plan: Plan, partitions: int) -> tuple[int, TopicPlacement]:
        """Plan new partitions: the version of the table that they are planned from, and where they
        go. Raises PlacementRefused.
        """
        table, limits = self._table, PlacementLimits()
        version = table.placement.version
        if isinstance(plan, int):
            states = MemberStates(table, limits, self._now_ms)
            placed = place_topic(table, states, limits, partitions, plan)
        else:
            placed = place_by_hand(table, plan)
        table.add(placed)
        return version, placed


def _members(state: State, is_there: Callable[[int], bool], now_ms: int) -> list[PlacedMember]:
    """All members, as this node knows them."""
    return [
        PlacedMember(
            number,
            member.name,
            state.rack_of(number),
            state.members.maintenance.get(member.name, 0),
            None if is_there(number) else now_ms,
            host=state.members.host_of(number),
        )
        for number, member in state.members.by_number.items()
    ]


def partitions_here(groups: HeldGroups, numbers: Iterable[int]) -> Iterator[Partition]:
    """Partitions of data groups, as those groups' states have them on this node."""
    for number in numbers:
        parts = groups.parts(number)
        known = None if parts is None else parts[0].machine.state.partitions.by_number.get(number)
        if known is not None:
            yield known

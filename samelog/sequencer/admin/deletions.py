"""Deleted topics whose data groups have yet to drop them.

A topic is deleted, and its name free, with one entry of group 0. A data group continues with it
until a majority of the group has dropped it: its leader may be cut off from group 0.

Invariant: a group that is not named any more has dropped the topic by an entry of its own, or is
gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from samelog.admin.answers import DeletingTopic
from samelog.placement.values import METADATA, Placement
from samelog.sequencer.admin.waits import until_settled
from samelog.sequencer.raft.replica import Replica
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.types import State


def groups_of(state: State, topic: Topic) -> set[int]:
    """The data groups that have partitions of a topic."""
    return {state.placement.group_of(number) for number in topic.partition_numbers} - {METADATA}


async def until_dropped(
    replica: Replica, wanted: Mapping[str, Collection[int]], over_at: float
) -> dict[str, list[int]]:
    """Wait until groups have dropped deleted topics, by id; return those topics that groups still
    have at `over_at`, by the clock of the event loop. `replica`: of group 0.
    """

    def left() -> dict[str, list[int]]:
        return dict(_left(replica.machine.state.placement, wanted))

    return await until_settled(
        left, lambda: replica.wait_applied(replica.applied_index + 1), over_at
    )


def _left(
    table: Placement, wanted: Mapping[str, Collection[int]]
) -> Iterator[tuple[str, list[int]]]:
    for topic_id, groups in wanted.items():
        known = (table.groups[number] for number in sorted(groups) if number in table.groups)
        lagging = [
            group.number for group in known if any(topic_id == each.topic_id for each in group.owed)
        ]
        if lagging:
            yield topic_id, lagging


def still_deleting(table: Placement) -> list[DeletingTopic]:
    """All deleted topics that some group still has."""
    found: dict[str, DeletingTopic] = {}
    for number, group in sorted(table.groups.items()):
        for each in group.owed:
            known = found.get(each.topic_id)
            groups = () if known is None else known.groups
            found[each.topic_id] = DeletingTopic(each.name, each.topic_id, (*groups, number))
    return sorted(found.values(), key=lambda each: (each.name, each.topic_id))


def lag_text(name: str, groups: Collection[int]) -> str:
    """Why a deletion is not over."""
    which = ", ".join(map(str, groups))
    have = f"group {which} has" if len(groups) == 1 else f"groups {which} have"
    return f"topic {name!r} is deleted and its name free, but data {have} yet to drop it"

"""What an order makes of a group's replicas: judged by the group's leader, of what it knows itself.

Invariant: an order that was given for another configuration, or another replica, changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from samelog.placement.guards import refuse_removal
from samelog.placement.tasks import Action, GroupOrder
from samelog.placement.values import PlacedGroup, PlacedReplica


def ordered(
    order: GroupOrder, group: PlacedGroup, new: PlacedReplica | None, healthy: Collection[int]
) -> tuple[PlacedReplica, ...] | None:
    """The group's next configuration; None if there is nothing to change, or it may not be.

    `group`: as its own log has it; `new`: the member's replica as the table of placement has it;
    `healthy`: members whose replicas are whole and can be reached, be they learners. The removal of
    what is not there is an entry all the same: it makes late orders void.
    """
    if _is_void(order, group) or order.member is None:
        return None
    if order.action is Action.ADD_LEARNER:
        return _added(order, group, order.member, new)
    meant = order.member, order.replica
    is_it = meant in [(each.member, each.replica) for each in group.replicas]
    if order.action is Action.PROMOTE and is_it and order.member in healthy:
        return _promoted(group, order.member)
    if order.action is Action.REMOVE:
        return _removed(order, group, order.member, healthy) if is_it else group.replicas
    return None


def _is_void(order: GroupOrder, group: PlacedGroup) -> bool:
    """Whether it is for another configuration, or the group has yet to take its first one."""
    return order.version != group.version or not group.replicas


def _added(
    order: GroupOrder, group: PlacedGroup, member: int, new: PlacedReplica | None
) -> tuple[PlacedReplica, ...] | None:
    if new is None or new.replica != order.replica or member in group.members:
        return None
    return (*group.replicas, new)


def _promoted(group: PlacedGroup, member: int) -> tuple[PlacedReplica, ...]:
    return tuple(
        replace(each, votes=True, is_whole=True) if each.member == member else each
        for each in group.replicas
    )


def _removed(
    order: GroupOrder, group: PlacedGroup, member: int, healthy: Collection[int]
) -> tuple[PlacedReplica, ...] | None:
    voters = [each for each in healthy if each in group.voters]
    if refuse_removal(group, member, voters, order.copies):
        return None
    return tuple(each for each in group.replicas if each.member != member)

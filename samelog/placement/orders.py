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
    `healthy`: members whose replicas are whole and can be reached, be they learners.
    """
    if order.version != group.version or order.member is None:
        return None
    has = group.replica_of(order.member)
    if order.action is Action.ADD_LEARNER:
        is_known = new is not None and new.replica == order.replica
        return (*group.replicas, new) if is_known and has is None and new is not None else None
    is_it = has is not None and has.replica == order.replica
    if order.action is Action.PROMOTE:
        if not is_it or order.member not in healthy:
            return None
        return _with(group, order.member, votes=True)
    if order.action is not Action.REMOVE:
        return None
    if not is_it:  # an entry all the same: it makes late orders void
        return group.replicas
    voters = [each for each in healthy if each in group.voters]
    if refuse_removal(group, order.member, voters, order.copies):
        return None
    return tuple(each for each in group.replicas if each.member != order.member)


def _with(group: PlacedGroup, member: int, *, votes: bool) -> tuple[PlacedReplica, ...]:
    return tuple(
        replace(each, votes=votes, is_whole=True) if each.member == member else each
        for each in group.replicas
    )

"""When a replica may be removed: asked when a task comes to that step, and once more by the group's
own leader, of what it knows itself.

Invariant: a copy that can be reached goes only when as many others can be as there shall be; one
that cannot be reached only when at most one copy is lacking then. The rest are a majority.
"""

from __future__ import annotations

from collections.abc import Collection

from samelog.placement.values import PlacedGroup


def refuse_removal(group: PlacedGroup, member: int, healthy: Collection[int], copies: int) -> str:
    """Why a member's replica has to stay; empty if it may go. `healthy`: members whose replicas
    vote, are whole and can be reached.
    """
    replica = group.replica_of(member)
    if replica is None or not replica.votes:
        return ""
    rest = len(healthy) - (member in healthy)
    if not rest:
        return f"it has the only copy of group {group.number}"
    is_up = member in healthy
    least, voters = (copies, len(group.voters) - 1) if is_up else (copies - 1, len(group.voters))
    if rest < least:
        return _too_few(group, rest, least)
    if rest * 2 <= voters:  # of those that stay; one that is down does not vote for its removal
        return f"{rest} of {voters} voters of group {group.number} are no majority"
    return ""


def _too_few(group: PlacedGroup, rest: int, wanted: int) -> str:
    return f"group {group.number} would have {rest} whole copies, and needs {wanted}"

"""Who goes on after the promotion of a site: the members of that site that the promoted one names.
Pure.

A member that follows takes the cluster's new id before it has the state that the promoted one began
with. Until then its own state is of before, and names everybody.

Invariant: that somebody stays is said only by who has the state of the promotion, and not of one
that got more since (rules sites.12 and sites.14).
"""

from __future__ import annotations

from typing import NamedTuple

from samelog.placement.cluster_ids import parse_cluster_id
from samelog.sequencer.state.types import State


class KnownAs(NamedTuple):
    """What a member of before says: which cluster it is of, and its newest entry."""

    cluster_id: str
    term: int
    entry: int


def stays(state: State, cluster_id: str, own: int, other: int, known_as: KnownAs) -> bool | None:
    """Whether the member `other` goes on in the cluster of this id; None: it is not known here."""
    sites = state.placement.sites
    if state.members.cluster_id == cluster_id:
        known = parse_cluster_id(known_as.cluster_id).promotions
        has_more = sites.has_more(known, known_as.term, known_as.entry)
        return other in state.members.by_number and not has_more
    is_mate = other in sites.members and sites.members[other] == sites.members.get(own)
    return None if is_mate else False

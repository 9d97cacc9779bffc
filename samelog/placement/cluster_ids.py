"""Ids of clusters, which say how often a site of theirs was promoted.

A promotion gives a cluster another id: that of before, the number of the promotion, and its random
id. Whoever has an earlier id of the same cluster is of before, however high its Raft term is: it
has to stop, or to follow (docs/sites.md, S2).

Invariant: of two ids of one cluster, the one with more promotions ends the other; two that differ
and have as many are two clusters, and neither ends the other.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_PROMOTED = re.compile(r"\A(.+)-([1-9][0-9]{0,8})-([0-9a-f]{16})\Z")


class IdParts(NamedTuple):
    """The parts of an id: what the cluster was called first, how many promotions there were, and
    the id of the newest one.
    """

    root: str
    promotions: int = 0
    newest: str = ""


def parse_cluster_id(text: str) -> IdParts:
    """An id that was never promoted is its own root."""
    found = _PROMOTED.match(text)
    return IdParts(text) if found is None else IdParts(found[1], int(found[2]), found[3])


def root_of(text: str) -> str:
    """What stays the same over promotions."""
    return parse_cluster_id(text).root


def promoted_id(text: str, promotion: str) -> str:
    """What a cluster is called after a promotion; `promotion`: 16 hexadecimal digits."""
    known = parse_cluster_id(text)
    return f"{known.root}-{known.promotions + 1}-{promotion}"


def ends(newer: str, older: str) -> bool:
    """Whether the first is the id of the same cluster after further promotions."""
    new, old = parse_cluster_id(newer), parse_cluster_id(older)
    return new.root == old.root and new.promotions > old.promotions

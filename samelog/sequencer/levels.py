"""Feature levels: what versions of samelog that run side by side agree on.

A build supports every level of this table. A cluster has one level, in its replicated state; an
entry raises it, once every member supports the new one (docs/upgrades.md). What a level brings is
used from that entry on: a kind of command or message says which level it `needs`. So a new level is
one line here, and `needs` in each kind that it brings.

Invariant: a level keeps its meaning. Who meets something of a level that it does not support takes
no part any more, and skips nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

LEVELS: Mapping[int, str] = {1: "Everything of this version."}
"""Level -> what it brings."""
LOWEST, SUPPORTED = min(LEVELS), max(LEVELS)


class OtherVersion(Exception):
    """The Raft log, or a snapshot, has something that this build does not know."""

    remedy = (
        "upgrade samelog on this node to the version of the other members and restart it; nothing "
        "of its files is lost: docs/upgrades.md"
    )

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: another version of samelog wrote it")


def check_level(level: int, supported: int) -> None:
    """Raises OtherVersion if a build supports less than the cluster has."""
    if level > supported:
        raise OtherVersion(f"the feature level is {level}, this node supports {supported}")

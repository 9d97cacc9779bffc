"""New partitions that data groups have yet to open.

Group 0 creates a topic by one entry. The leader of each of its groups then opens the partitions by
an entry of the group, and says so to all members.

Invariant: a partition that is not named any more was opened by a leader of its group, or is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Protocol

from samelog.format.nouns import counted
from samelog.runtime.flag import Flag
from samelog.sequencer.admin.waits import until_settled

HERE_S = 1.0
"""So long the replica of the member that is asked may be behind the leader."""
_NAMED_AT_MOST = 5


class OpeningGroups(Protocol):
    """The data groups, as one member knows them."""

    @property
    def openings(self) -> Flag:
        """Set for a moment when a leader or a replica has opened partitions."""

    def unopened(self, partitions: Iterable[int]) -> list[int]:
        """Return those partitions that no leader has opened in their groups."""

    def unopened_here(self, partitions: Iterable[int]) -> list[int]:
        """Return those partitions that this member's own replicas have yet to open."""


async def until_open(
    groups: OpeningGroups, partitions: Collection[int], over_at: float
) -> list[int]:
    """Wait until leaders have opened these partitions, by number; return those that they have not
    opened at `over_at`, by the clock of the event loop.
    """
    moved = groups.openings.wait
    left = await until_settled(lambda: groups.unopened(partitions), moved, over_at)
    if not left:
        over_at = min(over_at, asyncio.get_running_loop().time() + HERE_S)
        await until_settled(lambda: groups.unopened_here(partitions), moved, over_at)
    return left


def unopened_text(name: str, numbers: Collection[int], left: Iterable[int]) -> str:
    """Why a creation is not over. `numbers`: the topic's partitions; `left`: some of these."""
    found = sorted(map([*numbers].index, left))
    named = ", ".join(map(str, found[:_NAMED_AT_MOST]))
    if (more := len(found) - _NAMED_AT_MOST) > 0:
        named += f" and {more} more"
    have = f"partition {named} has" if len(found) == 1 else f"partitions {named} have"
    there = f"topic {name!r} exists with {counted(len(numbers), 'partition')}"
    return f"{there}, but {have} no leader yet"

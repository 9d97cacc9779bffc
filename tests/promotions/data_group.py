"""A data group in worlds of promotions: three members of the first site vote, and one of each other
site only reads.

Who goes on with it is the product's decision: the table of placement, as it is at each member, and
what a promotion makes of it. The group's own Raft is a model here: what a majority of its voters
has is committed at once, and who only reads has a prefix of that.

Invariant: in each cluster one history of the group is written on, with all that it acknowledged;
a promoted site that had a replica, and did not give it up, has a group that goes on.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec

from samelog.placement.values import NewGroup, PlacedGroup, PlacedReplica
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.placement import PlaceTopic
from tests.promotions.harm import Harm
from tests.promotions.member import Member

if TYPE_CHECKING:
    from tests.promotions.world import World

GROUP = 1


def place(base: StateMachine, voters: list[int], readers: list[int]) -> None:
    """The group, with a topic of its own."""
    table = base.state.placement
    new = NewGroup(len(voters), tuple(voters), voters[0])
    done = base.apply(PlaceTopic(table.version, "g" * 32, "g", {}, 1, [new], [GROUP]))
    if isinstance(done, Rejection):
        raise Harm(done.message)
    only_read = tuple(
        PlacedReplica(member, table.next_replica + number, votes=False)
        for number, member in enumerate(readers)
    )
    table.groups[GROUP] = msgspec.structs.replace(table.groups[GROUP], readers=only_read)
    table.next_replica += len(readers)


class DataGroup:
    """Who has how much of its log."""

    def __init__(self, holders: list[int], chance: random.Random) -> None:
        self.chance = chance
        self.logs: dict[int, list[int]] = {number: [] for number in holders}
        self.acknowledged: dict[str, list[int]] = {}
        """Cluster id -> what was acknowledged as a part of it."""
        self.alone: dict[str, int] = {}
        """Cluster id -> who went on alone."""
        self._next = 0

    def step(self, world: World) -> None:
        """Somebody writes, somebody copies."""
        member = world.members[self.chance.choice(sorted(self.logs))]
        if not member.up or member.told is not None:
            return
        placed = member.machine.state.placement.groups[GROUP]
        if member.number in placed.voters:
            self._write(world, member, placed)
        elif member.number in placed.everybody:
            self._copy(world, member, placed)

    def _there(self, world: World, member: Member, placed: PlacedGroup) -> list[int]:
        """Voters that a member reaches, itself included."""
        others = (world.members[each] for each in placed.voters if each != member.number)
        linked = [each.number for each in others if world.links_both(member, each)]
        return [*linked, *([member.number] if member.number in placed.voters else [])]

    def _write(self, world: World, member: Member, placed: PlacedGroup) -> None:
        there = self._there(world, member, placed)
        if 2 * len(there) <= len(placed.voters):
            return
        self._goes_on(member, placed)
        newest = max((self.logs[each] for each in there), key=len)
        log = [*newest, self._next]
        for each in there:
            self.logs[each] = list(log)
        self.acknowledged.setdefault(member.cluster_id, []).append(self._next)
        self._next += 1

    def _goes_on(self, member: Member, placed: PlacedGroup) -> None:
        if not placed.recovered:
            return
        first = self.alone.setdefault(member.cluster_id, member.number)
        if first != member.number:
            raise Harm(f"n{first} and n{member.number} both go on alone with the group")

    def _copy(self, world: World, member: Member, placed: PlacedGroup) -> None:
        """What is committed: a part of it, over a long line."""
        there, own = self._there(world, member, placed), self.logs[member.number]
        if 2 * len(there) <= len(placed.voters):
            return
        newest = max((self.logs[each] for each in there), key=len)
        if newest[: len(own)] != own:
            raise Harm(f"n{member.number} has another history of the group")
        self.logs[member.number] = newest[: len(own) + self.chance.randint(0, 3)]

    def check(self, world: World) -> None:
        """Raises Harm."""
        for member in world.members:
            if member.leads and member.told is None:
                placed = member.machine.state.placement.groups[GROUP]
                self._check_promoted(member, placed)
                self._check_acknowledged(member.cluster_id, placed)

    def _check_promoted(self, member: Member, placed: PlacedGroup) -> None:
        """A site that had a replica goes on with it, unless it was given up."""
        state = member.machine.state
        if not state.placement.sites.promotions:
            return
        had = [each for each in self.logs if each in state.members.by_number]
        left = [each for each in placed.voters if each in state.members.by_number]
        if had and not left:
            raise Harm(f"{had} had the group, and nobody goes on with it")

    def _check_acknowledged(self, cluster_id: str, placed: PlacedGroup) -> None:
        acknowledged = set(self.acknowledged.get(cluster_id, ()))
        newest = max((self.logs[each] for each in placed.voters), key=len)
        if not acknowledged <= set(newest):
            raise Harm(f"{cluster_id} lost what its group acknowledged")

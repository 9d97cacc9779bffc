"""The leader's care for the membership: one change at a time, each carried on whoever leads.

A new node is a learner first. It becomes a voter by itself once it has the log and the merged bytes
and takes little time for a round of catching up (Raft thesis, section 4.2.1); what it replaces is
removed after that. All of this is in the replicated member list, so the next leader goes on.

Invariant: no change begins before a majority of the present voters has merged durably what was
committed when the last change was: two changes in a row could otherwise leave acknowledged bytes
on nodes that are no majority any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from samelog.config.authorisation import NODE_PREFIX
from samelog.consensus import ChangePending, NotLeader, Role
from samelog.consensus.types import MAX_NODE_ID
from samelog.placement.voters import promotable
from samelog.runtime.clock import Clock
from samelog.runtime.log import log_event
from samelog.sequencer.cluster.group_keeper import is_in_maintenance
from samelog.sequencer.cluster.keeper_steps import CLOSE_ENTRIES, KeeperStep, StepKind, WantedGroup
from samelog.sequencer.raft.group import ProposalLost, RaftGroup
from samelog.sequencer.sites.leading import LeaderPlace, patience
from samelog.sequencer.state.commands import decode_commands
from samelog.sequencer.state.tables.members import Member, SetMembers
from samelog.sequencer.state.tables.placement import PLACING
from samelog.wire.bounds import Life
from samelog.wire.errors import FaultCode

if TYPE_CHECKING:
    from samelog.sequencer.cluster.lives import Lives
    from samelog.sequencer.cluster.members import Members
    from samelog.sequencer.raft.coordinator import Coordinator
    from samelog.sequencer.state.machine import StateMachine

log = logging.getLogger(__name__)

LOOK_S = 0.02
HAND_OVER_TICKS = 50
FREE_TIMEOUT_S = 5.0
CHANGE_TIMEOUT_S = 3.0
ROUND_S = 1.0
"""A member is close to group 0 if it has merged everything that is older than this many seconds."""


class ChangeRefused(Exception):
    """A change that cannot be, or not now; with the reason and the remedy."""

    def __init__(self, code: FaultCode, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.remedy = remedy


class Changes:
    """One node's part in changing the membership; only the leader's acts. Implements
    group_keeper.KeptGroup for group 0: what the keeper goes by, and what operators ask for.
    """

    round_s = ROUND_S

    def __init__(
        self,
        number: int,
        *,
        group: RaftGroup,
        machine: StateMachine,
        members: Members,
        coordinator: Coordinator,
        clock: Clock,
        connected: Callable[[], list[int]],
        lives: Lives,
    ) -> None:
        self._number = number
        self._group = group
        self._machine = machine
        self._members = members
        self._coordinator = coordinator
        self._clock = clock
        self._connected = connected
        self._lives = lives
        self._led_term = -1
        self._seen_version = -1
        self._needed: dict[int, int] = {}
        """Partition -> offset that a majority must have merged durably before the next change."""
        self._place = LeaderPlace()

    # --- carrying on ------------------------------------------------------------------------------

    def tick(self) -> None:
        """Take the next step, if there is one and it is allowed."""
        state = self._machine.state
        sites, raft = state.placement.sites, self._group.raft
        raft.patience.weigh(patience(self._number, sites))
        raft.gather_for(sites.who_only_read(raft.learners))
        if not self._group.is_leader:
            self._place.forget()
            return
        self._note_what_is_needed()
        if not state.members.by_number:
            self._propose_soon(list(self._members.all.values()))

    # --- what the keeper goes by ------------------------------------------------------------------

    def wanted(self) -> WantedGroup:
        """Who should lead, vote and go, by the member list and the sites."""
        state = self._machine.state
        members = state.members.by_number.values()
        return WantedGroup(
            leaders=self._leaders(),
            promoted=self._promoted(),
            replaced=tuple(
                (each.replaces, each.number)
                for each in members
                if each.voter
                and each.replaces in state.members.by_number
                and self._is_empty(each.replaces)  # replicas move away first
            ),
        )

    def _promoted(self) -> frozenset[int]:
        """Learners of which one becomes a voter next. One that comes in place of another does not
        wait until other hosts have voters: the other one leaves for it.
        """
        members, candidates = self._machine.state.members, self._candidates()
        coming = {n for n, each in candidates.items() if each.replaces in members.by_number}
        voters = [number for number, each in members.by_number.items() if each.voter]
        return promotable(voters, candidates.keys() - coming, members.host_of) | coming

    def _candidates(self) -> dict[int, Member]:
        """Learners that may become voters, and have said on which host they are."""
        state = self._machine.state
        may_vote, started = state.placement.sites.may_vote, state.members.started
        return {
            number: each
            for number, each in state.members.by_number.items()
            if self._is_to_vote(each) and may_vote(number) and number in started
        }

    def stands_by(self, number: int) -> bool:
        """Whether a member is a learner that becomes a voter only once its host, or another one,
        has fewer voters.
        """
        return number in self._candidates() and number not in self._promoted()

    def _is_to_vote(self, member: Member) -> bool:
        """Whether a member is a learner that may become a voter."""
        reads = self._machine.state.placement.sites.only_reads(member.number)
        return member.promote and not member.voter and not reads

    def _leaders(self) -> tuple[int, ...]:
        """A voter in a site that should have leadership."""
        well = [each for each in self._voters_there() if self._keeps_up(each)]
        sites = self._machine.state.placement.sites
        return tuple(self._place.look(self._number, sites, well, self._clock.now())[:1])

    def _keeps_up(self, number: int) -> bool:
        """Whether a voter is not in maintenance, and lacks nothing but what came in just now."""
        raft = self._group.raft
        progress = raft.progress(number)
        is_close = progress is not None and raft.last_index - progress.match <= CLOSE_ENTRIES
        return is_close and not self._in_maintenance(number)

    @property
    def may_change(self) -> bool:
        """Whether a change is wanted, and the last one is over."""
        return self._is_step_left() and self._is_free()

    def life(self, number: int) -> tuple[Life, bool] | None:
        """A member's life as it introduced itself, and whether it is sure by its own word."""
        life = self._lives.met.get(number)
        return None if life is None else (life, life.is_sure)

    def change(self, step: KeeperStep) -> None:
        """Make a learner a voter, or remove a member that another one came in place of."""
        rest = self._without(step.member)
        if step.kind is StepKind.PROMOTE:
            member = self._machine.state.members.by_number[step.member]
            log_event(log, logging.INFO, "learner becomes a voter", node=member.name)
            rest = [*rest, msgspec.structs.replace(member, voter=True)]
        self._propose_soon(rest)

    # --- one change after another -----------------------------------------------------------------

    def _note_what_is_needed(self) -> None:
        """A new leader, or a new membership: what is committed by now has to be on a majority."""
        version, term = self._machine.state.members.version, self._group.raft.term
        if (self._led_term, self._seen_version) != (term, version):
            self._led_term, self._seen_version = term, version
            self._needed = self._offsets()

    def _offsets(self) -> dict[int, int]:
        partitions = self._machine.state.partitions.by_number
        return {number: partition.next_offset for number, partition in partitions.items()}

    def _is_free(self) -> bool:
        """Whether the last change is over: committed, applied, and its bytes on a majority."""
        self._note_what_is_needed()
        if self._group.raft.membership_index > self._group.applied_index:
            return False
        return self._has(self._coordinator.majority_merged(self._needed), self._needed)

    def _has(self, merged: dict[int, int], wanted: dict[int, int]) -> bool:
        is_here = self._machine.state.has_here  # others are gone, or in data groups by now
        return all(merged.get(n, 0) >= offset for n, offset in wanted.items() if is_here(n))

    def _is_step_left(self) -> bool:
        members = self._machine.state.members.by_number.values()
        return any(not member.voter or member.replaces is not None for member in members)

    def _is_empty(self, number: int) -> bool:
        """Whether a member has no replica of a data group, nor is about to get one: what was
        proposed before its removal comes before that.
        """
        return not (self._machine.state.placement.has_replicas(number) or self._are_groups_placed())

    def _are_groups_placed(self) -> bool:
        """Whether anything that is proposed and not applied may place replicas."""
        log, first = self._group.raft.log, self._group.applied_index + 1
        return any(
            isinstance(command, PLACING)
            for entry in log.entries(first, log.last_index + 1)
            if entry.data
            for command in decode_commands(entry.data)
        )

    def _without(self, number: int) -> list[Member]:
        """The members but one, and nobody waits to replace that one any more."""
        return [
            msgspec.structs.replace(member, replaces=None) if member.replaces == number else member
            for member in self._machine.state.members.by_number.values()
            if member.number != number
        ]

    def _propose_soon(self, members: list[Member]) -> None:
        """Propose; whatever comes of it shows in the member list."""
        try:
            future = self._group.propose_members(SetMembers(members, self._new_cluster_id()))
        except (NotLeader, ChangePending):
            return
        future.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _new_cluster_id(self) -> str:
        """Of the first entry of a cluster; empty once it has one."""
        return "" if self._machine.state.members.cluster_id else self._lives.own().incarnation

    # --- what an operator asks for ----------------------------------------------------------------

    async def add(
        self, name: str, address: str, *, promote: bool = True, replaces: str | None = None
    ) -> Member:
        """Add a learner, that becomes a voter when it has caught up. Raises ChangeRefused."""
        await self._until_free()
        old = None if replaces is None else self._named(replaces)
        self._check_new(name, address)
        state = self._machine.state
        member = Member(
            state.members.next_number,
            name,
            address,
            NODE_PREFIX + name,
            voter=False,
            promote=promote,
            replaces=None if old is None else old.number,
        )
        await self._propose([*state.members.by_number.values(), member])
        return member

    def _check_new(self, name: str, address: str) -> None:
        members = self._machine.state.members.by_number.values()
        self._refuse_while_joining()
        for member in members:
            if name == member.name or address == member.address:
                raise ChangeRefused(
                    FaultCode.ALREADY_EXISTS, f"{member.name} at {member.address} is a member"
                )
        if self._machine.state.members.next_number > MAX_NODE_ID:
            raise ChangeRefused(FaultCode.OUT_OF_RANGE, "the cluster has no node numbers left")

    def _refuse_while_joining(self) -> None:
        for member in self._machine.state.members.by_number.values():
            is_joining = self._is_to_vote(member) and not self.stands_by(member.number)
            if is_joining or member.replaces is not None:
                raise ChangeRefused(
                    FaultCode.CHANGE_PENDING,
                    f"{member.name} is being added",
                    f"wait, or undo it: samelog node remove {member.name}",
                )

    async def remove(self, name: str) -> Member:
        """Remove a node; a learner that never caught up too. Raises ChangeRefused."""
        await self._until_free()
        member = self._named(name)
        if member.voter:
            self._refuse_while_joining()
            if sum(other.voter for other in self._machine.state.members.by_number.values()) == 1:
                raise ChangeRefused(FaultCode.OUT_OF_RANGE, f"{name} is the last voter")
            self._check_rest(member)
        if not self._is_empty(member.number):
            text = f"{name} has replicas of data groups, or just gets some"
            raise ChangeRefused(FaultCode.GROUP_IN_USE, text, f"samelog node drain {name}")
        if member.number == self._number:
            await self.hand_over()
            raise NotLeader(self._group.raft.leader)
        await self._propose(self._without(member.number))
        return member

    def _check_rest(self, leaving: Member) -> None:
        """Without it, those that count must be a majority: suspects are let in by nobody else."""
        raft = self._group.raft
        rest = [number for number in raft.voters if number != leaving.number]
        suspects = [each for each in rest if each != self._number and not raft.counts(each)]
        if len(suspects) * 2 >= len(rest):
            names = ", ".join(map(self._members.name, suspects))
            raise ChangeRefused(
                FaultCode.NOT_READY,
                f"without {leaving.name} too few voters count: {names} may have forgotten promises",
                "samelog node wait-ready NAME, for each of them",
            )

    async def readmit(self, name: str) -> Member:
        """Give a node that lost its directory a number of its own, as a learner, instead of the old
        one, whose promises it forgot. Raises ChangeRefused.
        """
        await self._until_free()
        self._refuse_while_joining()
        old = self._named(name)
        if old.number == self._number:
            raise ChangeRefused(FaultCode.OUT_OF_RANGE, f"{name} leads, thus lost nothing")
        new = msgspec.structs.replace(
            old,
            number=self._machine.state.members.next_number,
            voter=False,
            promote=True,
            replaces=None,
        )
        await self._propose([*self._without(old.number), new])
        return new

    def _named(self, name: str) -> Member:
        for member in self._machine.state.members.by_number.values():
            if member.name == name:
                return member
        names = ", ".join(member.name for member in self._machine.state.members.by_number.values())
        raise ChangeRefused(
            FaultCode.NOT_A_MEMBER, f"no node is called {name!r}", f"there are {names}"
        )

    async def _until_free(self) -> None:
        """Wait for the end of the last change. Raises ChangeRefused, or NotLeader."""
        deadline = self._clock.now() + FREE_TIMEOUT_S
        while not (self._machine.state.members.by_number and self._is_free()):
            if not self._group.is_leader:
                raise NotLeader(self._group.raft.leader)
            if self._clock.now() > deadline:
                raise ChangeRefused(
                    FaultCode.CHANGE_PENDING, "the last change is not settled", "try again later"
                )
            await asyncio.sleep(LOOK_S)
        if not self._group.is_leader:
            raise NotLeader(self._group.raft.leader)

    async def _propose(self, members: list[Member]) -> None:
        try:
            future = self._group.propose_members(SetMembers(members))
            async with asyncio.timeout(CHANGE_TIMEOUT_S):
                await future
        except ChangePending as error:
            raise ChangeRefused(FaultCode.CHANGE_PENDING, str(error), "try again later") from error
        except ProposalLost as error:
            raise ChangeRefused(
                FaultCode.TIMEOUT, "leadership moved; it may have been done", "samelog node list"
            ) from error

    # --- leadership -------------------------------------------------------------------------------

    def _in_maintenance(self, number: int) -> bool:
        return is_in_maintenance(self._machine.state, number, self._clock.wall_ms())

    def give_leadership_away(self, to: int | None = None) -> int | None:
        """Ask a voter, the most advanced that is there, to lead: whom; None if there is nobody."""
        raft = self._group.raft
        if raft.role is not Role.LEADER:
            return None
        matches = {
            number: progress.match
            for number in ([to] if to is not None else self._best_voters())
            if raft.counts(number) and (progress := raft.progress(number)) is not None
        }
        if not matches:
            return None
        best = max(matches, key=lambda number: matches[number])
        raft.transfer_leadership(best, self._clock.now())
        self._group.pump()
        return best

    def _best_voters(self) -> list[int]:
        """Those that are not in maintenance, if there are any, and where leaders should be."""
        there, sites = self._voters_there(), self._machine.state.placement.sites
        rested = [number for number in there if not self._in_maintenance(number)]
        return [number for number in rested if sites.may_lead(number)] or rested or there

    def _voters_there(self) -> list[int]:
        """Voters besides this one that are connected to it, and whose votes count."""
        raft = self._group.raft
        return [each for each in self._connected() if each in raft.voters and raft.counts(each)]

    async def hand_over(self, to: int | None = None) -> bool:
        """Give leadership away, and wait a moment: whether somebody else leads."""
        if self.give_leadership_away(to) is None:
            return self._group.raft.role is not Role.LEADER
        for _ in range(HAND_OVER_TICKS):
            if self._group.raft.role is not Role.LEADER:
                return True
            await asyncio.sleep(LOOK_S)
        return False

    async def transfer(self, name: str | None) -> str:
        """Move leadership to a node, or to whoever is best: its name. Raises ChangeRefused."""
        if not self._group.is_leader:
            raise NotLeader(self._group.raft.leader)
        to = None if name is None else self._named(name).number
        if to == self._number:
            return self._members.name(to)
        self._check_may_lead(to, name)
        if not await self.hand_over(to):
            raise ChangeRefused(FaultCode.TIMEOUT, "nobody took over", "samelog status")
        for _ in range(HAND_OVER_TICKS):
            if (leader := self._group.raft.leader) is not None:
                return self._members.name(leader)
            await asyncio.sleep(LOOK_S)
        raise ChangeRefused(FaultCode.TIMEOUT, "no leader is known yet", "samelog status")

    def _check_may_lead(self, to: int | None, name: str | None) -> None:
        raft = self._group.raft
        if to is not None and to not in raft.voters:
            raise ChangeRefused(FaultCode.OUT_OF_RANGE, f"{name} is no voter")
        if to is not None and not raft.counts(to):
            reason = f"{name} is suspect: it cannot lead before it is let in"
            raise ChangeRefused(FaultCode.NOT_READY, reason, "samelog node list")
        if not self._voters_there():
            reason = "no other voter that counts is connected to the leader"
            raise ChangeRefused(FaultCode.NOT_READY, reason, "samelog node list")

"""Beats of this member with each other one, which speak for all data groups that rest between them.

Invariant: a group that rests here is known to the beats, in its term, and no other one is; whoever
is silent, or in another life, wakes all that rested with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from samelog.consensus import Role
from samelog.sequencer.cluster.links import Links
from samelog.sequencer.host import NodeResources
from samelog.sequencer.raft.group import RaftGroup
from samelog.wire.member_beats import MemberBeats, Rest, Silence
from samelog.wire.pair_liveness import BeatReply, PairBeat
from samelog.wire.peer_messages import Beat, BeatAnswer, NotQuiet

PATIENCE = 1.5
"""Times the election timeout: so long a member is silent before what rests with it wakes."""
DIGEST_BYTES = 16
SPARSE = 2
"""Heartbeats that a group would have sent to one beat: each member exchanges beats with every other
one, in both directions, for as long as nothing happens.
"""
BEATS_HEARD = 5
"""Of these there are at least so many in an election timeout, if heartbeats are as many."""


class QuietGroups:
    """One member's."""

    def __init__(
        self,
        given: NodeResources,
        links: Links,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._settings = given.config.raft
        self._clock = given.clock
        self._links = links
        self._spawn = spawn
        self._beats = MemberBeats()
        self._is_beating = False
        self._rafts: dict[int, RaftGroup] = {}

    def begin(self, group: int, raft: RaftGroup, others: Iterable[int]) -> None:
        """A replica may rest from now on. `others`: connected members of its group; the one that
        leads may rest, as this one was away when it was made.
        """
        self._rafts[group] = raft
        for number in others:
            self._links.send(number, NotQuiet((group,)))
        raft.raft.allow_quiet(lambda: self._beats.heard(group))
        if not self._is_beating:
            self._is_beating = True
            self._spawn(self._run())

    def end(self, group: int) -> None:
        """The replica is gone."""
        self._rafts.pop(group, None)
        self._beats.woke(group)

    def look(self, group: int, raft: RaftGroup) -> bool:
        """A core may rest now, or may have woken: whether it rests."""
        core, now = raft.raft, self._clock.now()
        if not core.rests or raft.halted:
            self._beats.woke(group)
            return False
        if core.role is Role.LEADER:
            self._beats.rests(group, Rest(core.term, core.rests_with, is_led=True), now)
        elif core.leader is not None:
            self._beats.rests(group, Rest(core.term, (core.leader,)), now)
        return True

    def lost(self, node: int) -> None:
        """Another member is gone, or in another life."""
        self._wake(self._beats.lost(node))

    @property
    def _pause_s(self) -> float:
        heartbeat_ms, election_ms = self._settings.heartbeat_ms, self._settings.election_ms
        longest_ms = max(heartbeat_ms, election_ms / BEATS_HEARD)
        return min(SPARSE * heartbeat_ms, longest_ms) / 1000

    async def _run(self) -> None:
        """Until cancelled."""
        patience_s = PATIENCE * self._settings.election_ms / 1000
        while True:
            await asyncio.sleep(self._pause_s)
            now = self._clock.now()
            for number, beat in self._beats.due(now):
                digest = beat.digest.to_bytes(DIGEST_BYTES, "big")
                self._links.send(number, Beat(beat.number, digest))
            self._wake(self._beats.silent(now, patience_s))

    def _wake(self, silence: Silence) -> None:
        for number in silence.led & self._rafts.keys():
            self._rafts[number].leader_lost()
        for number in silence.followed & self._rafts.keys():
            self._rafts[number].wake()

    def hear(self, node: int, message: Beat | BeatAnswer | NotQuiet) -> None:
        """What another member says for all groups that rest between us."""
        now = self._clock.now()
        if isinstance(message, Beat):
            beat = PairBeat(message.number, int.from_bytes(message.digest, "big"))
            self._links.send(node, BeatAnswer(*self._beats.hear(node, beat, now)))
            return
        if isinstance(message, NotQuiet):
            here = self._beats.not_led(node, message.groups) | self._led_without(node, message)
        else:
            reply = BeatReply(message.number, message.agrees, message.followed)
            here, there = self._beats.answered(node, reply, now)
            if there:
                self._links.send(node, NotQuiet(tuple(sorted(there))))
        for number in here & self._rafts.keys():
            self._rafts[number].wake()

    def _led_without(self, node: int, message: NotQuiet) -> frozenset[int]:
        """Return the groups of a message that this member leads and that do not rest with the other
        member: this member may have counted the other one as away, also while it was about to rest.
        """
        known = {each: self._rafts[each].raft for each in message.groups if each in self._rafts}
        led = {each: raft for each, raft in known.items() if raft.role is Role.LEADER}
        return frozenset(n for n, raft in led.items() if node not in raft.rests_with)

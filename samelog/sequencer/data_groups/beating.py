"""Beats of one member: what it says to the others for all groups that rest, and what wakes then.

Invariant: a group that rests here is known to the beats, and no other one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping

from samelog.config.tables.node import RaftSettings
from samelog.consensus import Role
from samelog.runtime.clock import Clock
from samelog.sequencer.cluster.links import Links
from samelog.sequencer.data_groups.replica import DataReplica
from samelog.wire.member_beats import MemberBeats, Rest, Silence
from samelog.wire.pair_liveness import BeatReply, PairBeat
from samelog.wire.peer_messages import Beat, BeatAnswer, NotQuiet

PATIENCE = 1.5
"""Times the election timeout: so long a member is silent before what rests with it wakes."""
DIGEST_BYTES = 16


class Beating:
    """One member's."""

    def __init__(
        self,
        settings: RaftSettings,
        clock: Clock,
        links: Links,
        replicas: Mapping[int, DataReplica],
        spawn: Callable[[Coroutine[None, None, None]], object],
    ) -> None:
        self.beats = MemberBeats()
        self._settings = settings
        self._clock = clock
        self._links = links
        self._replicas = replicas
        self._spawn = spawn
        self._runs = False

    def begin(self, replica: DataReplica) -> None:
        """The replica may rest from now on."""
        number = replica.number
        replica.raft.raft.allow_quiet(lambda: self.beats.heard(number))
        if not self._runs:
            self._runs = True
            self._spawn(self._run())

    async def _run(self) -> None:
        """Until cancelled."""
        patience_s = PATIENCE * self._settings.election_ms / 1000
        while True:
            await asyncio.sleep(self._settings.heartbeat_ms / 1000)
            now = self._clock.now()
            for number, beat in self.beats.due(now):
                digest = beat.digest.to_bytes(DIGEST_BYTES, "big")
                self._links.send(number, Beat(beat.number, digest))
            self._wake(self.beats.silent(now, patience_s))

    def look(self, replica: DataReplica) -> None:
        """Its core may rest now, or may have woken."""
        raft, number = replica.raft.raft, replica.number
        if not raft.rests or replica.raft.halted:
            self.beats.woke(number)
        elif raft.role is Role.LEADER:
            rest = Rest(raft.term, raft.rests_with, is_led=True)
            self.beats.rests(number, rest, self._clock.now())
        elif raft.leader is not None:
            self.beats.rests(number, Rest(raft.term, (raft.leader,)), self._clock.now())

    def lost(self, node: int) -> None:
        """Another member is gone, or in another life: what rested with it wakes."""
        self._wake(self.beats.lost(node))

    def _wake(self, silence: Silence) -> None:
        for number in silence.led & self._replicas.keys():
            self._replicas[number].raft.leader_lost()
        for number in silence.followed & self._replicas.keys():
            self._replicas[number].raft.wake()

    def on_beat(self, node: int, message: Beat | BeatAnswer | NotQuiet) -> None:
        """What another member says for all groups that rest between us."""
        now = self._clock.now()
        if isinstance(message, Beat):
            beat = PairBeat(message.number, int.from_bytes(message.digest, "big"))
            self._links.send(node, BeatAnswer(*self.beats.hear(node, beat, now)))
            return
        if isinstance(message, NotQuiet):
            here = self.beats.not_led(node, message.groups)
        else:
            reply = BeatReply(message.number, message.agrees, message.followed)
            here, there = self.beats.answered(node, reply, now)
            if there:
                self._links.send(node, NotQuiet(tuple(sorted(there))))
        for number in here & self._replicas.keys():
            self._replicas[number].raft.wake()

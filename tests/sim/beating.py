"""What a simulated node says for its group while that rests, and makes of what others say: the
driver of samelog.wire.member_beats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samelog.consensus import Role
from samelog.wire.member_beats import MemberBeats, Rest, Silence
from samelog.wire.pair_liveness import BeatReply, PairBeat

if TYPE_CHECKING:
    from tests.sim.node import SimNode

GROUP = 1
PATIENCE = 1.5


class Beating:
    """Of one life of a node."""

    def __init__(self, node: SimNode) -> None:
        self._node = node
        self._beats = MemberBeats()

    def heard(self) -> float:
        """When the leader was heard of while it rests."""
        return self._beats.heard(GROUP)

    def look(self) -> None:
        """The core may rest now, or may have woken."""
        raft = self._node.raft
        if not raft.rests:
            self._beats.woke(GROUP)
        elif raft.role is Role.LEADER:
            self._beats.rests(GROUP, Rest(raft.term, raft.rests_with, is_led=True), self._node.now)
        elif raft.leader is not None:
            self._beats.rests(GROUP, Rest(raft.term, (raft.leader,)), self._node.now)

    def tick(self) -> None:
        """To be called every heartbeat's time."""
        node, config = self._node, self._node.world.options.config
        for number, beat in self._beats.due(node.now):
            self._say(number, beat)
        self._wake(self._beats.silent(node.now, PATIENCE * config.election_timeout_s))

    def lost(self, number: int) -> None:
        """Another node is in another life."""
        self._wake(self._beats.lost(number))

    def _wake(self, silence: Silence) -> None:
        if GROUP in silence.led:
            self._node.leader_lost()
        if GROUP in silence.followed:
            self._node.wake()

    def _say(self, to: int, said: PairBeat | BeatReply | tuple[int, ...]) -> None:
        own = self._node.number
        self._node.world.carry(self._node, to, lambda node, boot: node.beats.hear(own, boot, said))

    def hear(self, sender: int, boot: int, said: PairBeat | BeatReply | tuple[int, ...]) -> None:
        """Another node says this."""
        node = self._node
        node.meet(sender, boot)
        if isinstance(said, PairBeat):
            self._say(sender, self._beats.hear(sender, said, node.now))
            return
        if isinstance(said, BeatReply):
            here, there = self._beats.answered(sender, said, node.now)
            if there:
                self._say(sender, tuple(there))
        else:
            here = self._beats.not_led(sender, said)
        if GROUP in here:
            node.wake()

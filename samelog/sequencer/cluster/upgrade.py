"""What the members support, and so whether the cluster's feature level can be raised.

A member tells its level twice: in the entry that records its present life, by which every node
checks the raise, and once a second in its own word, by which a raise is not even proposed while a
member is away, or runs an older build than was recorded.

Invariant: a level is proposed only if every member, learners too, supports it by both.
"""

from __future__ import annotations

from samelog.admin.answers import FRESH_S, MemberLevel, UpgradeStatus
from samelog.runtime.clock import Clock
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.levels import LEVELS
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.members import MemberLives, RaiseLevel


class Upgrade:
    """One node's view."""

    def __init__(
        self, machine: StateMachine, presence: Presence, clock: Clock, *, supported: int
    ) -> None:
        self.supported = supported
        """The newest level of this build."""
        self._machine = machine
        self._presence = presence
        self._clock = clock

    def status(self) -> UpgradeStatus:
        """Where the cluster is, and what stands between it and the newest level."""
        state, told = self._machine.state, self._told()
        newest = max([state.members.level, *told.values()])
        names = {number: state.members.by_number[number].name for number in told}
        return UpgradeStatus(
            state.members.level,
            newest,
            tuple(MemberLevel(names[number], level) for number, level in told.items()),
            {
                level: text
                for level, text in LEVELS.items()
                if state.members.level < level <= newest
            },
            tuple(
                f"{names[number]} {why}"
                for number, level in told.items()
                if (why := self._obstacle(number, level, newest))
            ),
        )

    def first_level(self) -> RaiseLevel | None:
        """What a cluster that has just begun begins with: the newest that all members support."""
        state = self._machine.state
        if state.members.level or not state.members.by_number:
            return None
        told = self._told()
        lowest = min(told.values())
        if not lowest or any(self._obstacle(number, lowest, lowest) for number in told):
            return None
        return RaiseLevel(0, lowest, self._clock.wall_ms())

    def _told(self) -> dict[int, int]:
        """The newest level of each member, in its own words; 0: it has said nothing lately."""
        return {number: self._word_of(number) for number in self._machine.state.members.by_number}

    def _word_of(self, number: int) -> int:
        if number == self._presence.number:
            return self.supported
        said, age_s = self._presence.said(number, self._clock.now())
        return said.level if age_s <= FRESH_S else 0

    def _obstacle(self, number: int, level: int, wanted: int) -> str:
        """Why a member keeps the cluster from a level; empty: it does not."""
        if not level:
            return "is not connected: wait for it, or remove it"
        if level < wanted:
            return f"supports level {level}, not {wanted}: upgrade it"
        recorded = self._machine.state.members.started.get(number, MemberLives()).level
        return "has just started: wait until it is ready" if recorded < wanted else ""

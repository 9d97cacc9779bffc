"""Which members are up, and what they say of themselves, whatever groups they share.

Invariant: a member is up from its first report until the last connection that it dialled is gone;
this one always is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container

from samelog.wire.bounds import Health
from samelog.wire.holds import HeldPart
from samelog.wire.peer_messages import MemberState

INTAKE_STOPPED = "intake stopped"
"""How a member says that it takes nothing in, among what is wrong with it."""
SILENT_S = 5.0
"""A member tells its state once a second."""
OFFLINE = MemberState("offline", "it is not connected", "", "", 0, 0, 0, is_cut_off=False)


class Presence:
    """The members, as one of them knows them."""

    def __init__(
        self, number: int, clock_heard: Callable[[int, int], None] = lambda member, wall_ms: None
    ) -> None:
        """`number`: of this member; `clock_heard` receives the wall clock of each member."""
        self.number = number
        self._clock_heard = clock_heard
        self.health: dict[int, Health] = {}
        """Of those who have said it, this member included."""
        self.log_bytes: dict[int, int] = {}
        """Of those who have logs of several groups: bytes that are part of the policy's limit."""
        self.lacks: dict[int, tuple[str, ...]] = {}
        """Libraries that others say they lack, so that they cannot check records."""
        self.holds: dict[int, dict[str, tuple[HeldPart, ...]]] = {}
        """By member and session: what publishers that are connected to it hold."""
        self.is_cut_off = False
        """Whether this member has heard no leader of group 0 for two election timeouts."""
        self._up = {number}
        self._left: dict[int, float] = {}
        """When those who were up and are not any more went."""
        self._said: dict[int, tuple[MemberState, float]] = {}
        """Each other member's own word, and when it came."""
        self._dialled: Counter[int] = Counter()

    @property
    def up(self) -> list[int]:
        """The members that are up, as far as is known here."""
        return sorted(self._up)

    def is_there(self, number: int) -> bool:
        """Whether a member is up, as far as is known here."""
        return number in self._up

    def is_heard(self, number: int, now: float) -> bool:
        """Whether a member is up and has told its state lately. The connection to a member that
        lost its power may look open for longer.
        """
        return number in self._up and self.said(number, now)[1] < SILENT_S

    def was_there(self, number: int, now: float, within_s: float) -> bool:
        """Whether a member is up, or was within the last seconds."""
        left = self._left.get(number)
        return number in self._up or (left is not None and now - left < within_s)

    def heard(self, number: int, health: Health | None) -> None:
        """A member reported; its disk and clock, if it said so."""
        self._up.add(number)
        if health is not None:
            self.health[number] = health
            self._clock_heard(number, health.wall_ms)

    def say(self, number: int, said: MemberState, now: float) -> None:
        """A member's own word."""
        self._said[number] = said, now

    def said(self, number: int, now: float) -> tuple[MemberState, float]:
        """A member's newest own word, and how many seconds old it is: nobody else has one for it.
        OFFLINE without a connection, on which it would say more.
        """
        said, at = self._said.get(number, (OFFLINE, now))
        return said, now - at

    def takes_in(self, number: int, now: float) -> bool:
        """Whether a member has not said that its disk is full, or failing: else it is not to lead,
        nor to get copies.
        """
        return INTAKE_STOPPED not in self.said(number, now)[0].detail

    def dialled(self, number: int) -> None:
        """A member dialled a connection, on which it tells everything again."""
        self._dialled[number] += 1
        self.holds.pop(number, None)

    def broke(self, number: int, now: float) -> bool:
        """A connection that a member dialled broke: whether that was the last one."""
        self._dialled[number] -= 1
        if self._dialled[number]:
            return False
        self._up.discard(number)
        self._left[number] = now
        self._said.pop(number, None)
        self.lacks.pop(number, None)
        self.holds.pop(number, None)
        return True

    def told_holds(self, number: int, session: str, parts: tuple[HeldPart, ...]) -> None:
        """A member told what a publisher holds that is connected to it."""
        told = self.holds.setdefault(number, {})
        if parts:
            told[session] = parts
        else:
            told.pop(session, None)

    def forget_others(self, members: Container[int]) -> None:
        """What nodes that are gone once said of themselves is nothing any more."""
        known = self._up | self._left.keys() | self.health.keys() | self._said.keys()
        known |= self.lacks.keys() | self.holds.keys()
        for number in known - {self.number}:
            if number not in members:
                self._up.discard(number)
                self._left.pop(number, None)
                self.health.pop(number, None)
                self.log_bytes.pop(number, None)
                self.lacks.pop(number, None)
                self.holds.pop(number, None)
                self._said.pop(number, None)

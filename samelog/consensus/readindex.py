"""Reads that are linearizable without writing to the log (Raft thesis, section 6.4).

The leader notes its commit index, proves by a round of heartbeats that it led after the read was
asked for, and answers. Reads asked for while effects gather share one round. Followers forward
their reads to the leader under numbers that no earlier life of theirs has used, so that an old
answer is never taken for a new one.

Invariant: a read is answered with an index at least as high as every index committed before it was
asked for.
"""

from __future__ import annotations

from typing import NamedTuple

from samelog.consensus import quorum


class _PendingRead(NamedTuple):
    round_number: int
    read_index: int
    origin: int
    context: int


class LeaderReads:
    """Reads that wait for a leader's proof. `waiting` ones have no round yet."""

    __slots__ = ("_acknowledged", "_pending", "round", "waiting")

    def __init__(self) -> None:
        self.round = 0
        self.waiting: list[tuple[int, int]] = []
        self._acknowledged: dict[int, int] = {}
        self._pending: list[_PendingRead] = []

    @property
    def is_open(self) -> bool:
        """Whether any read waits."""
        return bool(self.waiting or self._pending)

    def follow(self, voters: tuple[int, ...]) -> None:
        """These are the voters from now on, for reads under way as well."""
        known = self._acknowledged
        self._acknowledged = {voter: known.get(voter, 0) for voter in voters}

    def start_round(self, commit: int, node_id: int) -> None:
        """All waiting reads get a new round, which the caller must announce to the followers."""
        self.round += 1
        if node_id in self._acknowledged:
            self._acknowledged[node_id] = self.round
        self._pending.extend(
            _PendingRead(self.round, commit, origin, context) for origin, context in self.waiting
        )
        self.waiting.clear()

    def acknowledge(self, voter: int, round_number: int) -> None:
        """A voter confirms that this node led in that round."""
        if round_number > self._acknowledged.get(voter, round_number):
            self._acknowledged[voter] = round_number

    def take_proved(self) -> list[_PendingRead]:
        """The reads whose rounds a majority has acknowledged, in order."""
        if not self._pending:
            return []
        reached = quorum.reached(self._acknowledged.values())
        proved = []
        while self._pending and self._pending[0].round_number <= reached:
            proved.append(self._pending.pop(0))
        return proved

    def abandon(self) -> list[tuple[int, int]]:
        """Every read (origin, context) that will get no answer, because leadership ended."""
        lost = [(read.origin, read.context) for read in self._pending] + self.waiting
        self._pending.clear()
        self.waiting = []
        return lost


class ForwardedReads:
    """Reads of a follower that the leader was asked about: wire number -> (driver's context,
    deadline).
    """

    __slots__ = ("_asked", "_next_number")

    def __init__(self, first_number: int) -> None:
        self._asked: dict[int, tuple[int, float]] = {}
        self._next_number = first_number

    def add(self, context: int, deadline: float) -> int:
        """The number under which to ask the leader."""
        number = self._next_number
        self._next_number += 1
        self._asked[number] = (context, deadline)
        return number

    def answered(self, number: int) -> int | None:
        """The context that an answer belongs to; None if nobody waits for it any more."""
        asked = self._asked.pop(number, None)
        return None if asked is None else asked[0]

    def expired(self, now: float) -> list[int]:
        """Contexts whose deadline has passed; they are forgotten."""
        numbers = [number for number, (_, deadline) in self._asked.items() if deadline <= now]
        return [self._asked.pop(number)[0] for number in numbers]

    def next_deadline(self) -> float:
        """When the oldest question expires; infinity if none is open."""
        return next((deadline for _, deadline in self._asked.values()), float("inf"))

    def abandon(self) -> list[int]:
        """All contexts, because the leader who was asked is gone."""
        contexts = [context for context, _ in self._asked.values()]
        self._asked.clear()
        return contexts

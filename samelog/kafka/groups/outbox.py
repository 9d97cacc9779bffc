"""What the coordinator's parts share: what time it is, what is to be proposed and answered, and
which deadlines run.

Answers are collected with the commands of the same round. Whoever carries them out proposes the
commands as one entry and lets the answers go when it is committed, so no client ever learns of
something that a new leader would not know.

Invariant: answers leave in the order in which they were given, none before the commands of its
round.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from samelog.kafka.groups.requests import AnyAnswer
from samelog.sequencer.state.tables.groups import CommitOffsets, CommittedOffset, GroupCommand

COMMIT_OFFSETS = 200
"""At most so many in one command, so that it fits into an entry whatever their metadata."""

Requester = object
"""Whoever waits for an answer; only the driver knows what it is."""


@dataclass(slots=True, eq=False)
class Round:
    """The commands and answers of one or more requests."""

    commands: list[GroupCommand] = field(default_factory=list)
    answers: list[tuple[Requester, AnyAnswer]] = field(default_factory=list)


class Timers:
    """Deadlines by name. Moving one later costs nothing until its old time comes."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, tuple[str, str]]] = []
        self._at: dict[tuple[str, str], float] = {}
        self._queued: dict[tuple[str, str], float] = {}

    def set(self, group: str, name: str, at: float) -> None:
        """Set or move the deadline `name` of a group."""
        key = (group, name)
        self._at[key] = at
        if at < self._queued.get(key, float("inf")):
            self._queued[key] = at
            heapq.heappush(self._heap, (at, key))

    def cancel(self, group: str, name: str) -> None:
        """Remove a deadline."""
        self._at.pop((group, name), None)

    def runs(self, group: str, name: str) -> bool:
        """Whether there is such a deadline."""
        return (group, name) in self._at

    def next(self) -> float | None:
        """When `due` is worth asking next; None: never, as far as is known."""
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> tuple[str, str] | None:
        """Remove and return one deadline that has passed; None if there is none."""
        while self._heap and self._heap[0][0] <= now:
            queued, key = heapq.heappop(self._heap)
            if self._queued.get(key) == queued:
                del self._queued[key]
            at = self._at.get(key)
            if at is None:
                continue
            if at <= now:
                del self._at[key]
                return key
            self.set(*key, at)
        return None


class Outbox:
    """The present moment, the round that is being made, and the deadlines."""

    def __init__(self) -> None:
        self.now = 0.0
        self.wall_ms = 0
        self.timers = Timers()
        self._round = Round()

    def at(self, now: float, wall_ms: int) -> None:
        """Set the time: monotonic seconds, and ms of the wall clock."""
        self.now, self.wall_ms = now, wall_ms

    def answer(self, waiter: Requester | None, answer: AnyAnswer) -> None:
        """Answer a waiting request, if there is one."""
        if waiter is not None:
            self._round.answers.append((waiter, answer))

    def propose(self, command: GroupCommand) -> None:
        """Have a command committed."""
        self._round.commands.append(command)

    def commit(self, group: str, offsets: list[tuple[int, CommittedOffset]]) -> None:
        """Have offsets committed, together with those that were given just before."""
        for first in range(0, len(offsets), COMMIT_OFFSETS):
            piece = offsets[first : first + COMMIT_OFFSETS]
            self._commits_with_room(len(piece)).append((group, piece))

    def _commits_with_room(self, count: int) -> list[tuple[str, list[tuple[int, CommittedOffset]]]]:
        commands = self._round.commands
        last = commands[-1] if commands else None
        commits = last.commits if isinstance(last, CommitOffsets) else None
        if commits is None or sum(len(offsets) for _, offsets in commits) + count > COMMIT_OFFSETS:
            commits = []
            commands.append(CommitOffsets(commits))
        return commits

    def drain(self) -> Round:
        """What was collected since the last call."""
        taken, self._round = self._round, Round()
        return taken

"""Events of the cluster: the newest ones, which every node remembers, and those that are to be
written to the topic `__events`, and are not there yet.

Invariant: an event that is to be written has one number, without gaps (rule readers.21).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from samelog.sequencer.state.command_base import Command

EVENTS_REMEMBERED = 256
WAITING_MOST = 10_000
NOT_SAID = -1
Happened = tuple[int, str, str, str]
"""When (ms; NOT_SAID: now), what kind of thing, to what, and more of it."""


class RecordEvent(Command, frozen=True, tag=12):
    """Something an operator must be able to read years later, such as what a recovery may have
    lost.
    """

    at_ms: int
    kind: str
    text: str


class NoteElection(Command, frozen=True, tag=121):
    """A node leads in this term; told once, whoever says it how often."""

    term: int
    node: str
    at_ms: int


class EventsWritten(Command, frozen=True, tag=122):
    """A majority of the topic's group has merged all events up to this number durably."""

    topic_id: str
    number: int


EventCommand = RecordEvent | NoteElection | EventsWritten


class ToldEvent(msgspec.Struct, frozen=True, array_like=True):
    """Something that happened."""

    number: int
    at_ms: int
    kind: str
    subject: str
    detail: str


class EventsTable(msgspec.Struct):
    """What is remembered, and what is to be written to the topic. `term`: of the newest election
    that was; `untold`: how many events were not kept, because too many waited.
    """

    remembered: list[RecordEvent] = []
    next_number: int = 0
    waiting: list[ToldEvent] = []
    term: int = 0
    untold: int = 0

    def remember(self, event: RecordEvent) -> None:
        """Keep an event, and forget the oldest."""
        self.remembered.append(event)
        del self.remembered[:-EVENTS_REMEMBERED]

    def note_election(self, command: NoteElection) -> None:
        """Note an election: events tell of the newest term only."""
        self.term = max(self.term, command.term)

    def written(self, last: int) -> None:
        """Forget events that the topic has, up to the one with this number."""
        self.waiting = [each for each in self.waiting if each.number > last]

    def wait(self, found: Iterable[Happened]) -> None:
        """Let these wait until they are written to the topic, unless too many wait."""
        for happened in found:
            if len(self.waiting) >= WAITING_MOST:
                self.untold += 1
                continue
            self.waiting.append(ToldEvent(self.next_number, *happened))
            self.next_number += 1

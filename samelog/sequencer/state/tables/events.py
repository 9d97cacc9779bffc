"""Events of the cluster: the newest ones, which every node remembers, and those that are to be
written to the topic `__events`, and are not there yet.

Invariant: an event that is to be written has one number, without gaps (rule readers.21).
"""

from __future__ import annotations

import msgspec

from samelog.sequencer.state.command_base import Command

EVENTS_REMEMBERED = 256


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


EventCommand = RecordEvent | NoteElection


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

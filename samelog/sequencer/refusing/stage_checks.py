"""Checks what is staged for topics whose records nodes check, before it may be published.

What is staged is judged once, and merged later: a version that is set in between would be that of
records without a mark. So each record that is staged has to say its version. One that does not fit
keeps the whole batch from being published, and is named to who publishes it.

Invariant: no staged record is published into such a topic that was not found to fit its version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from samelog.format.batch import LENGTH_PREFIX_BYTES, told_size
from samelog.format.positions import SessionPosition
from samelog.sequencer.judging.process import CannotCheck
from samelog.sequencer.merge.session_store import SessionStore
from samelog.sequencer.refusing.schema_filter import SchemaFilter, tasks
from samelog.sequencer.state.instructions import Range
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.topics import Topic
from samelog.typed.enforcing import oldest_accepted
from samelog.typed.judging import BatchMisfits, Terms
from samelog.typed.misfits import Misfit

KNOWN_MOST = 1 << 17
Ranges = Mapping[int, Sequence[Range]]
"""Partition -> what is staged in it."""


class StageChecks:
    """One replica's."""

    def __init__(
        self, machine: StateMachine, sessions: SessionStore, schemas: SchemaFilter
    ) -> None:
        self.sessions = sessions
        self._machine = machine
        self._schemas = schemas
        self._fitting: set[tuple[Range, int, int]] = set()
        """Ranges that were found to fit, and by what: who publishes may ask several times."""

    async def why_unfit(self, ranges: Ranges) -> str:
        """The first record that keeps a batch from being published; empty: there is none. Raises
        CannotCheck.
        """
        for number, parts in ranges.items():
            if not self._schemas.concerns(number):
                continue
            state = self._machine.state
            topic = state.topics.by_id[state.partitions.by_number[number].topic_id]
            why = await self._of_topic(topic, parts)
            if why:
                return f"topic {topic.name!r}: {why}"
        return ""

    async def _of_topic(self, topic: Topic, parts: Sequence[Range]) -> str:
        newest = len(topic.schemas)
        if not newest:  # a data group hears of a schema later
            raise CannotCheck(f"{topic.name!r} has no schema yet", is_for_long=False)
        texts = self._machine.state.schema_texts(topic.topic_id, newest)
        terms = Terms(oldest_accepted(topic.settings, newest), needs_mark=True)
        for part in parts:
            key = part, newest, terms.oldest
            if key in self._fitting:
                continue
            for together in tasks(self._batches(part)):
                session = self._session(part)
                found = await self._schemas.judged(topic, texts, session, together, terms=terms)
                if found is None:
                    raise CannotCheck("its records cannot be checked now", is_for_long=False)
                if why := _first(found):
                    return why
            if len(self._fitting) >= KNOWN_MOST:
                self._fitting.clear()
            self._fitting.add(key)
        return ""

    def _session(self, part: Range) -> str:
        entry = self._machine.state.sessions.inputs.get(part.input)
        return "" if entry is None else entry.session

    def _batches(self, part: Range) -> Iterator[bytes]:
        place = SessionPosition(part.run, part.roll, part.start)
        data = self.sessions.read(part.input, place, part.stop)
        at = 0
        while at < len(data):
            size = told_size(data[at : at + LENGTH_PREFIX_BYTES])
            yield bytes(data[at : at + size])
            at += size


def _first(found: Sequence[BatchMisfits]) -> str:
    """The first record of those that do not fit, in words."""
    told = next((each.told[0] for each in found if each.told), None)
    return "" if told is None else str(Misfit(*told))

"""What one reader gets of a partition's rows: a filter that it asked for, a view, or both.

Invariant: a view is read only while its owner may read the base (docs/typed.md, T25); what is asked
of a view can name only its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from samelog.replicator.interfaces import MergedStream
from samelog.sequencer.filtering.pieces import PieceSource, RowFilters
from samelog.sequencer.filtering.view_stream import ViewCondition
from samelog.sequencer.state.machine import StateMachine
from samelog.typed.filters.passing import NO_SCHEMA, Passing
from samelog.typed.filters.selection import RowsWanted
from samelog.typed.schema import Schema, parse_schema
from samelog.wire.bounds import RowsAsked

_parsed = lru_cache(maxsize=256)(parse_schema)


def passing_of(
    schemas: Mapping[int, Schema], asked: RowsAsked, condition: ViewCondition | None = None
) -> Passing:
    """The filter that is asked for. Raises BadFilter, ArrowMissing."""
    if condition is not None:
        condition.check()
    wanted = RowsWanted(asked.where or None, asked.columns or None)
    return Passing(wanted, schemas, asked.version, skips_unread=asked.skips_unread)


@dataclass(frozen=True, slots=True)
class RowsHere:
    """Of a partition that is here. Implements interfaces.RowReading."""

    stream: MergedStream
    """As the reader knows it."""
    base: MergedStream
    machine: StateMachine
    """Of the group that has the partition."""
    number: int
    asked: RowsAsked
    filters: RowFilters
    who: str
    check: Callable[[], None] = lambda: None
    """Raises RequestRefused, if it may not be read any more."""
    condition: ViewCondition | None = None
    """What is asked of a view beside its own condition."""

    @property
    def end(self) -> int:
        """See RowReading."""
        return self.source.end

    @property
    def source(self) -> PieceSource:
        """What pieces are computed from, as the schema is now."""
        partition = self.machine.state.partitions.by_number[self.number]
        topic = self.machine.state.topics.by_id[partition.topic_id]
        texts = self.machine.state.schema_texts(topic.topic_id, len(topic.schemas))
        schemas = {version: _parsed(text) for version, text in enumerate(texts, 1)}
        is_read, condition = self.asked.version != NO_SCHEMA, self.condition
        return PieceSource(
            self.base,
            (self.base.topic_id, self.number, self.asked, len(texts) if is_read else 0, condition),
            lambda: passing_of(schemas, self.asked, condition),
            lambda: tuple(partition.schema_since),
            self.asked.is_committed,
            (self.number, self.asked[:3]),
        )

    async def piece(self, offset: int) -> tuple[bytes, int]:
        """See RowReading."""
        self.check()
        if self.base.fault is not None:
            raise self.base.fault
        found = await self.filters.piece(self.source, self.who, offset)
        return found.data, found.next_offset

"""One partition of a view, as a node lets it be read; and what may be asked of it.

Invariant: a view is gone when the replicated state does not have it any more, whoever still reads
it; its offsets are those of its base.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from samelog.config.authorisation import Rights
from samelog.replicator.interfaces import (
    MergedReading,
    MergedStream,
    RequestRefused,
    StreamListener,
)
from samelog.sequencer.state.tables.views import View
from samelog.sequencer.state.types import State
from samelog.typed.arrow_types import import_arrow
from samelog.typed.filters.filter import Filter
from samelog.typed.filters.passing import records_schema
from samelog.typed.schema import Schema
from samelog.typed.values.codec import reading_schema
from samelog.wire.bounds import RowsAsked
from samelog.wire.errors import FaultCode


class ViewStream:
    """Implements interfaces.MergedStream."""

    def __init__(self, view: View, base: MergedStream, known: Callable[[], State]) -> None:
        """`known`: of the replicated state as it is now, which has the view as long as there is
        one. A snapshot brings another state, with another object for the same view.
        """
        self.view, self.base = view, base
        self.topic, self.topic_id = view.name, view.log_id
        self.index = base.index
        self.known = known
        self._first = view.partition_numbers[:1]

    @property
    def partitions(self) -> int:
        """How many the base has."""
        return self.base.partitions

    @property
    def log(self) -> MergedReading:
        """Of the base: offsets are its."""
        return self.base.log

    @property
    def fault(self) -> RequestRefused | None:
        """Why nothing can be read any more."""
        if not self._is_known():
            text = f"view {self.topic!r} was dropped"
            return RequestRefused(FaultCode.TOPIC_GONE, text, "let it go")
        return self.base.fault

    def _is_known(self) -> bool:
        """Numbers are never given twice, so a view that was recreated is another one."""
        found = self.known().views.by_id.get(self.view.topic_id)
        if found is None:
            return False
        return found.log_id != self.topic_id or found.partition_numbers[:1] == self._first

    def add_listener(self, listener: StreamListener) -> None:
        """When the base changes."""
        self.base.add_listener(listener)

    def remove_listener(self, listener: StreamListener) -> None:
        """Call it no more."""
        self.base.remove_listener(listener)

    def suspect(self, base_offset: int) -> None:
        """What was read was computed."""


def check_owner(rights: Rights, view: View, base: str) -> None:
    """Raises RequestRefused, if the owner of a view may not read its base any more."""
    if not rights.may_subscribe(view.owner, base):
        text = f"{view.owner}, whose view {view.name!r} is, may not read {base!r}"
        raise RequestRefused(FaultCode.NOT_AUTHORISED, text, "grant it, or recreate the view")


def rows_of_view(view: View) -> RowsAsked:
    """All of a view. What cannot be read has nobody to be told of it: it is counted."""
    return RowsAsked(view.where, tuple(view.columns), view.version, skips_unread=True)


@dataclass(frozen=True, slots=True)
class ViewCondition:
    """What somebody asks of a view, which may name its columns only; `rows` are these, None: it has
    no schema. Who has an equal one asks the same of the same view.
    """

    log_id: str
    where: str
    rows: Schema | None = field(compare=False)

    def check(self) -> None:
        """For threads: parsing takes its time. Raises BadFilter, ArrowMissing."""
        records, rows = records_schema(), import_arrow().schema([])
        Filter(self.where, rows if self.rows is None else reading_schema(self.rows), records)


def narrowed(stream: ViewStream, asked: RowsAsked | None) -> tuple[RowsAsked, ViewCondition | None]:
    """What is asked of a view, of its base, and what is to be checked before that is looked for.
    Raises RequestRefused.
    """
    whole = rows_of_view(stream.view)
    if asked is None:
        return whole, None
    columns = asked.columns or whole.columns
    unknown = sorted({*columns} - {*whole.columns}) if whole.columns else []
    if unknown:
        text = f"view {stream.topic!r} has no column {unknown[0]!r}"
        raise RequestRefused(FaultCode.OUT_OF_RANGE, text)
    parts = [part for part in (whole.where, asked.where) if part]
    where = " AND ".join(f"({part}\n)" for part in parts) if asked.where else whole.where
    wanted = whole._replace(where=where, columns=columns, is_committed=asked.is_committed)
    return wanted, _condition(stream, asked.where) if asked.where else None


def _condition(stream: ViewStream, where: str) -> ViewCondition:
    schema = stream.view.schema
    rows = None if schema is None else stream.known().schemas.schema_of(schema)
    return ViewCondition(stream.topic_id, where, rows)

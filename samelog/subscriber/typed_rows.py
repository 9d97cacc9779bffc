"""Records as rows of one version of their topic's schema, whatever version wrote them.

Invariant: a record gives its rows, in order, or ends what is handed out before it; nothing is left
out but what the application chose to skip, and that is logged (docs/typed.md, T10, T24).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from samelog.admin.known_schemas import KnownSchemas, TopicSchemas
from samelog.format.directory_files import RowsFile
from samelog.store.disk.files import OsFileSystem
from samelog.subscriber.cursor import Cursor
from samelog.subscriber.errors import UnreadableRecord
from samelog.subscriber.filters import Corrupt
from samelog.subscriber.setup import Setup
from samelog.typed.filters.operands import BadFilter
from samelog.typed.filters.selection import Selection
from samelog.typed.reading import TypedReader, TypedRows, covers, unread_of
from samelog.typed.schema import NobodyAnswers, NoSchema, Schema, parse_schema
from samelog.typed.values.codec import reading_schema
from samelog.typed.versions import FIRST

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

LEARN_S = 5.0
"""How long nodes may lag that say which versions were in force."""
RETRY_S = 0.05
RECORD_COLUMNS = {
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
    "_key": "key",
}
"""What a typed table says of the record that a row is of, behind the columns of the schema."""
_NULL = "_null"
"""Whether the record has no value; not for applications."""


class TypedRow(NamedTuple):
    """One row. `values`: by column; None: the record's value is null. `timestamp` in ms."""

    values: Mapping[str, Any] | None
    key: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows up to a record that cannot be read: why, if there is one."""

    table: pa.Table | None
    """None: no rows."""
    problem: Exception | None = None


class RowReader:
    """Of one subscriber. Not thread-safe."""

    def __init__(self, setup: Setup) -> None:
        self._known = KnownSchemas(OsFileSystem(), setup.directory, setup.client)
        self._version, self._corrupt = setup.version, setup.corrupt
        self._wanted, self._registry = setup.wanted, setup.registry
        self._passed = setup.engine.choice.rows
        self._chosen: dict[str, tuple[str, int, Selection]] = {}
        """Of each topic: its id, the version that it is read as, and what is wanted of it."""
        self._readers: dict[str, tuple[Mapping[int, Schema], TypedReader]] = {}

    def read(self, cursor: Cursor, records: pa.Table) -> FoundRows:
        """The rows of what a cursor handed out. It goes back to a record that cannot be read."""
        topic, partition = cursor.reader.topic, cursor.reader.partition
        passed = self._passed.get(topic)
        if passed is not None:
            return self._read_passed(cursor, records, passed)
        try:
            known = self._schemas(cursor, records)
            reader, selection = self._reader(topic, known, records.schema)
            found = selection.of(reader.read(records, known.since(partition)), records)
        except (NoSchema, BadFilter) as problem:
            cursor.put_back(records["offset"][0].as_py())
            return FoundRows(None, problem)
        if found.unread and self._corrupt is Corrupt.RAISE:
            return self._up_to_unread(cursor, records, found)
        for each in found.unread:
            log.warning("%s-%d: a record is skipped: %s", topic, partition, each)
        return FoundRows(_with_records(found, records))

    def _read_passed(self, cursor: Cursor, records: pa.Table, passed: RowsFile) -> FoundRows:
        """As `read`, of what passed a filter at a node: rows of the columns that are wanted."""
        first, problem = records["offset"][0].as_py(), None
        if not passed.schema_text:
            cursor.put_back(first)
            text = f"topic {passed.topic!r} has no schema: take its records"
            return FoundRows(None, NoSchema(text))
        unread = unread_of(records)
        if unread is not None:
            place, why = unread
            offset = records["offset"][place].as_py()
            cursor.put_back(offset)
            reader = cursor.reader
            problem = UnreadableRecord(reader.topic, reader.partition, offset, why)
            records = records.slice(0, place)
        schema = parse_schema(passed.schema_text)
        found = TypedReader({FIRST: schema}, FIRST).read(records, ())
        return FoundRows(_with_records(found, records), problem)

    def _up_to_unread(self, cursor: Cursor, records: pa.Table, found: TypedRows) -> FoundRows:
        first, reader = found.unread[0], cursor.reader
        cursor.put_back(first.offset)
        kept = sum(1 for source in found.sources if source < first.misfit.index)
        rows = TypedRows(found.table.slice(0, kept), found.sources[:kept], [])
        problem = UnreadableRecord(reader.topic, reader.partition, first.offset, str(first))
        return FoundRows(_with_records(rows, records), problem)

    # --- schemas -------------------------------------------------------------------------------

    def _reader(
        self, topic: str, known: TopicSchemas, columns: pa.Schema
    ) -> tuple[TypedReader, Selection]:
        """`columns`: of records."""
        chosen = self._chosen.get(topic)
        if chosen is None or chosen[0] != known.topic_id:
            found = self._known.version(topic, self._version, of=known.topic_id)
            known = found.known
            selection = Selection(self._wanted, reading_schema(found.schema), columns)
            chosen = self._chosen[topic] = known.topic_id, found.number, selection
        _, version, selection = chosen
        schemas, reader = self._readers.get(topic, (None, None))
        if reader is None or schemas is not known.schemas:
            reader = TypedReader(known.schemas, version, self._registry)
            self._readers[topic] = known.schemas, reader
        return reader, selection

    def _schemas(self, cursor: Cursor, records: pa.Table) -> TopicSchemas:
        """Enough to read these records. Raises NoSchema."""
        topic, partition = cursor.reader.topic, cursor.reader.partition
        known = self._known.known(topic)
        deadline = time.monotonic() + LEARN_S
        is_of_log = known is not None and known.topic_id == cursor.reader.topic_id
        while known is None or not is_of_log or not _covers(known, partition, records):
            known = self._known.learn(topic, partition, of=cursor.reader.topic_id)
            is_of_log = True
            if _covers(known, partition, records):
                break
            if time.monotonic() > deadline:
                raise NobodyAnswers(f"{topic}-{partition}: the nodes that answer lag behind")
            time.sleep(RETRY_S)
        return known


def _covers(known: TopicSchemas, partition: int, records: pa.Table) -> bool:
    return covers(known.newest, known.complete(partition), records)


def _with_records(found: TypedRows, records: pa.Table) -> pa.Table | None:
    """The rows, and what their records say; None: there are none."""
    import pyarrow as arrow

    if not found.table.num_rows:
        return None
    taken = records.take(arrow.array(found.sources, arrow.int64()))
    table = found.table
    for name, column in RECORD_COLUMNS.items():
        table = table.append_column(name, taken[column])
    return table.append_column(_NULL, taken["value"].is_null())


def joined(tables: Sequence[pa.Table]) -> pa.Table | None:
    """One table, as an application gets it."""
    if not tables:
        return None
    import pyarrow as arrow

    return arrow.concat_tables(tables).drop_columns([_NULL])


def as_rows(tables: Iterable[pa.Table]) -> list[TypedRow]:
    """The rows of tables, one by one."""
    import pyarrow as arrow

    found: list[TypedRow] = []
    for table in tables:
        names = [name for name in table.schema.names if not name.startswith("_")]
        times = table["_timestamp"].cast(arrow.int64())
        others = [table[name] for name in ("_key", "_topic", "_partition", "_offset")]
        columns = [column.to_pylist() for column in (*others, times, table[_NULL])]
        for values, *record, is_null in zip(table.select(names).to_pylist(), *columns, strict=True):
            found.append(TypedRow(None if is_null else values, *record))
    return found

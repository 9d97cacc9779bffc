"""The subscriber: hands an application the records of topics, from local files.

Invariant: each partition's records are handed out in order, none skipped; after a restart a named
subscriber goes on with what it was not done with (at least once).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

from samelog.format._kernels import Record
from samelog.format.arguments import check_choice, check_integer
from samelog.format.arrow import to_arrow
from samelog.format.numbers import OFFSETS
from samelog.subscriber.cursor import ARROW_CHUNK_BYTES, CHUNK_BYTES, Cursor
from samelog.subscriber.errors import UnknownTopic
from samelog.subscriber.handling import BatchForm, Handling, HandlingKeywords
from samelog.subscriber.pacing import Pacing, TakeLimits, deadline_after
from samelog.subscriber.setup import SubscriberKeywords

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from samelog.subscriber.groups.sharing import InHand
    from samelog.subscriber.typed_rows import FoundRows, RowReader, TypedRow


class Subscriber(Pacing):
    """Reads topics below one directory, and keeps the copies there up to date. A context manager.

    One thread reads; `close`, `pause`, `resume` and the properties may be used from any.

    Args:
        topics: one topic, or several. Their records come in turns; order holds within a partition.
            "ed*", "re:ed[0-9]+" (RE2) and "*" are patterns: all topics with such names that may be
            read, also those that are made later. Default: `topics` in [subscriber] of the config,
            as they are at the start.
        directory: holds the copies, a directory for each partition. Default: `dir` in [subscriber]
            of the config.
        config: client.toml, its https:// URL, or its value. None: read local files only, which a
            sidecar keeps up to date; for a node's own files name the `merged` directory in its data
            directory.
        start: "earliest", "latest", "stored", an offset, an offset for each partition, or a
            datetime (the first record at or after it). Default: "stored" with a name, else
            "earliest". "latest" is the cluster's end, as its leader confirms it; partitions and
            topics that are created later are read from their first record.
        name: the positions are stored under this name in the directory.
        group: be a member of this consumer group: its partitions are shared among its members, on
            whatever hosts; each copies what it is given, from the committed position on (`start`
            counts where there is none). Needs a config. Positions are in the cluster.
        rebalance_timeout_s: how long the application may take to ask for more when its member is to
            give a partition up; then it is no member any more.
        positions: where an application has its group's positions beside its results, such as a
            PositionTable: they count, and those in the cluster are for showing.
        partitions: read these only. Default: all, also those that come later.
        auto_commit: store positions every `commit_interval_s`, and on close. A record counts once
            the application asks for the next one.
        auto_offset_reset: "earliest" or "latest": go on there when an offset is archived, or beyond
            the end; "error": raise OffsetOutOfRange.
        follow: False: end at the end that there is at the start.
        isolation: "read_uncommitted" (the default, as of Kafka's consumers): records as they are
            merged, also those of transactions that are open or were aborted. "read_committed":
            records up to where the oldest open transaction begins, without what was aborted.
            Markers of transactions are no records for anybody.
        version: of the topic's schema, as which rows are read. Default: the newest that there is
            when a topic's rows are first read.
        where: a condition of SQL over the columns of the schema, and over _key, _offset,
            _timestamp, _partition and _header('name'); `rows`, `arrow` and `pandas` have the rows
            that meet it. Positions count what was passed over.
        columns: of the schema, which they have. Default: all.
        replay: hand records out as far apart as their timestamps are, this many times as fast (1:
            in their own time), those of all partitions in the order of time. It begins when the
            copies hold what the cluster has. Default: as soon as they are there.
        max_gap: seconds that a replay waits at most between two records; float("inf"): as long as
            the timestamps say. Default: 10.
        registry: URL of a schema registry (http://name:password:8081): values in Confluent's
            wire format are read by the schema that their id has there.
        corrupt: "raise" UnreadableRecord for a record that is no row of that version, or "skip" it,
            with a warning.

    Raises:
        ValueError, InvalidName, ConfigError: an option or the config is wrong.
        OffsetOutOfRange: the start is not there.
        UnsupportedFormat, CorruptLog, DiskFault: local files cannot be used.
    """

    def __init__(
        self, topics: str | Iterable[str] | None = None, **options: Unpack[SubscriberKeywords]
    ) -> None:
        """Open the copies, and start keeping them."""
        super().__init__(topics, **options)
        self._rows: RowReader | None = None
        self._is_released = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- reading -------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Record]:
        """All records, waiting for more; ends on `close`, and at the end if not following.

        Raises: as `poll`.
        """
        self._check_whole()
        if self._replay is not None:
            yield from self._one_by_one(None)
            return
        while (cursor := self._ready(None, CHUNK_BYTES)) is not None:
            yield from self._hand_out(cursor)

    def _one_by_one(self, timeout: float | None) -> Iterator[Record]:
        """Each in its time."""
        while not self._is_closed and (records := self.batch(1, timeout)):
            yield from records

    def present(self) -> Iterator[Record]:
        """The records that are there, without waiting for more. Raises: as `poll`."""
        self._check_whole()
        if self._replay is not None:
            yield from self._one_by_one(0.0)
            return
        while (cursor := self._ready(0.0, CHUNK_BYTES)) is not None:
            yield from self._hand_out(cursor)

    @property
    def is_of_rows(self) -> bool:
        """Whether only `rows`, `arrow` and `pandas` give what is wanted: where or columns count,
        and a topic has a schema.
        """
        rows = self._engine.choice.rows
        is_of_records = rows and not any(each.schema_text for each in tuple(rows.values()))
        return not self._setup.wanted.is_all and not is_of_records

    def _check_whole(self) -> None:
        """Raises ValueError if only some rows are wanted, of topics with a schema."""
        if self.is_of_rows:
            raise ValueError("where and columns are for rows, arrow and pandas: records come all")

    def _hand_out(self, cursor: Cursor) -> Iterator[Record]:
        """The rest of a partition's chunk; ends early on `pause`, `close` and `seek`."""
        chunk, ticks = cursor.chunk, self._ticks
        for record in cursor.records():
            cursor.position = record.offset + 1
            yield record
            cursor.done = cursor.position
            if self._attention or (ticks and time.monotonic() >= self._next_commit):
                self._tend()
                if self._attention:
                    return
        cursor.finish(chunk)

    def poll(self, timeout: float | None = None) -> Record | None:
        """The next record; None if none comes within `timeout` seconds, or ever.

        Raises:
            OffsetOutOfRange: what comes next was archived (auto_offset_reset="error").
            CorruptLog, DiskFault: local files cannot be read.
            SubscriberClosed
        """
        records = self.batch(1, timeout)
        return records[0] if records else None

    def batch(self, max_records: int = 1000, timeout: float | None = None) -> list[Record]:
        """The records that are there, as soon as there is one; empty if none comes in time.

        Raises: as `poll`.
        """
        return self._take_records(max_records, TakeLimits(deadline_after(timeout), CHUNK_BYTES))

    def _take_records(self, max_records: int, limits: TakeLimits) -> list[Record]:
        self._check_whole()
        self._settle()
        records: list[Record] = []
        while len(records) < max_records:
            cursor = self._ready_after(records, limits)
            if cursor is None:
                break
            records += cursor.next_records(self._most(max_records - len(records)))
        return records

    def batches(
        self, max_records: int = 1000, timeout: float | None = None
    ) -> Iterator[list[Record]]:
        """Batch after batch; an empty one whenever nothing came for `timeout` seconds.

        Ends on `close`, and at the end if not following. Raises: as `poll`.
        """
        while not self.is_over:
            records = self.batch(max_records, timeout)
            if records or not self.is_over:
                yield records
                self._dealt_with()

    def arrow_records(self, max_records: int = 100_000, timeout: float | None = None) -> pa.Table:
        """As `batch`, as an Arrow table; without rows if none comes in time. Records are as they
        are: `arrow` gives the rows of topics with a schema.

        Columns: key, value (binary), topic (string), partition (int32), offset (int64), timestamp
        (ms, UTC), timestampType (int32), headers (list of struct of key and value).

        Raises: as `poll`; ArrowMissing without pyarrow.
        """
        return _concatenated(self._take(max_records, timeout))

    def _take(self, max_records: int, timeout: float | None) -> list[pa.Table]:
        self._check_whole()
        limits = TakeLimits(deadline_after(timeout), ARROW_CHUNK_BYTES)
        self._settle()
        tables: list[pa.Table] = []
        rows = 0
        while rows < max_records:
            cursor = self._ready_after(tables, limits)
            if cursor is None:
                break
            table = cursor.take_table(self._most(max_records - rows))
            if table is not None:
                tables.append(table)
                rows += table.num_rows
        return tables

    # --- rows ----------------------------------------------------------------------------------

    def rows(self, max_records: int = 1000, timeout: float | None = None) -> list[TypedRow]:
        """As `batch`, as rows of the topics' schemas: those of up to `max_records` records. The
        value of a record that is an Arrow stream has many rows.

        Raises: as `poll`; NoSchema; UnreadableRecord (corrupt="raise"): no row before that record
            is left; BadFilter; ArrowMissing without pyarrow, or sqlglot for a filter.
        """
        from samelog.subscriber.typed_rows import as_rows

        return as_rows(self._take_typed(max_records, timeout))

    def arrow(self, max_records: int = 100_000, timeout: float | None = None) -> pa.Table | None:
        """As `rows`, as an Arrow table of one topic; None if none comes in time.

        Columns: those of the schema, and _topic, _partition, _offset, _timestamp and _key of the
        record that a row is of. The row of a record without a value is null in all columns.

        Raises: as `rows`.
        """
        from samelog.subscriber.typed_rows import joined

        return joined(self._take_typed(max_records, timeout))

    def pandas(
        self, max_records: int = 100_000, timeout: float | None = None
    ) -> pd.DataFrame | None:
        """As `arrow`, as a DataFrame of pandas. Raises: as `rows`; ImportError without pandas."""
        found = self.arrow(max_records, timeout)
        return None if found is None else found.to_pandas()

    def _take_typed(
        self, max_records: int, timeout: float | None, throttle_s: float = 0.0
    ) -> list[pa.Table]:
        """Tables of one topic."""
        limits = TakeLimits(deadline_after(timeout), ARROW_CHUNK_BYTES, throttle_s)
        self._settle()
        tables: list[pa.Table] = []
        taken = 0
        while taken < max_records:
            cursor = self._ready_after(tables, limits)
            if cursor is None or not self._is_of_same_topic(cursor, tables):
                break
            has_before = cursor.done < cursor.position
            records = cursor.take_table(self._most(max_records - taken))
            if records is None:
                continue
            found = self._read_rows(cursor, records, has_before=has_before)
            if found.table is not None:
                tables.append(found.table)
            taken += records.num_rows if tables else 0
            if found.problem is not None and not tables:
                raise found.problem
            if found.problem is not None:
                break  # the next call meets it again
        return tables

    def _read_rows(self, cursor: Cursor, records: pa.Table, *, has_before: bool) -> FoundRows:
        """`has_before`: the application has records of this partition already."""
        found = self._row_reader().read(cursor, records)
        if found.table is None and not has_before:
            cursor.done = cursor.position  # nothing of it is for the application
        return found

    def _is_of_same_topic(self, cursor: Cursor, tables: Sequence[pa.Table]) -> bool:
        """If it is not, it is the cursor's turn when the next table is taken."""
        if not tables or tables[0]["_topic"][0].as_py() == cursor.reader.topic:
            return True
        self._engine.keep_turn(cursor)
        return False

    def _row_reader(self) -> RowReader:
        if self._rows is None:
            from samelog.subscriber.typed_rows import RowReader

            self._rows = RowReader(self._setup)
        return self._rows

    def run(
        self,
        handler: Callable[[Any], object],
        *,
        batch: int | None = None,
        throttle_s: float = 1.0,
        as_: str | BatchForm = BatchForm.RECORDS,
        **failing: Unpack[HandlingKeywords],
    ) -> None:
        """Call `handler` with every record until `close`, or with batches. Also ends at the end if
        not following.

        A record is dealt with when the handler returns.

        Args:
            batch: call it with so many records at once, or with fewer `throttle_s` after the first
                of them came.
            as_: what a batch is: "records", a list; "rows", as `rows` gives them; "arrow", as
                `arrow`, so of one topic; "pandas", as `pandas`.
            on_error: what the handler raises ends the run ("stop", the default), with the position
                before what it failed for; or it is called again with the same ("retry"), after
                0.1 s, then after longer, up to 30 s; or that is left out ("skip"), with a warning.
            on_skipped: called with what was left out (`Skipped`) of each partition.

        Raises: as `poll`, and as `rows`.
        """
        form = check_choice("as_", as_, BatchForm)
        if batch is None and form is not BatchForm.RECORDS:
            raise ValueError(f"as_={form.value!r} goes with batch: how many records at once")
        handling = Handling(handler, self._engine, self._closed, failing)
        items = self if batch is None else self._batches_of(form, batch, throttle_s)
        handling.run(items, self._tend)

    def _batches_of(self, form: BatchForm, count: int, throttle_s: float) -> Iterator[Any]:
        while not self.is_over:
            found = self._batch_of(form, count, throttle_s)
            if found is not None and not self._is_closed:
                yield found
                self._dealt_with()

    def _batch_of(self, form: BatchForm, count: int, throttle_s: float) -> Any:
        """The next batch; None: there is none."""
        if form is BatchForm.RECORDS:
            return self._take_records(count, TakeLimits(None, CHUNK_BYTES, throttle_s)) or None
        from samelog.subscriber.typed_rows import as_rows, joined

        tables = self._take_typed(count, None, throttle_s)
        if form is BatchForm.ROWS:
            return as_rows(tables) or None
        table = joined(tables)
        return table if table is None or form is BatchForm.ARROW else table.to_pandas()

    # --- control -------------------------------------------------------------------------------

    def wait_caught_up(self, timeout: float | None = None) -> None:
        """Wait until the local copies hold everything that the cluster has merged by now.

        Without a config there is nothing to wait for. Raises NotCaughtUp, a TimeoutError.
        """
        self._engine.keeper.wait_caught_up(timeout)
        self._engine.rescan_soon()

    def in_hand(self) -> list[InHand]:
        """What was handed out and is not dealt with, by partition: for a transaction of one's own,
        in which it is dealt with.
        """
        sharing = self._engine.sharing
        return [] if sharing is None else sharing.in_hand(self._engine.undone())

    @property
    def assignment(self) -> list[tuple[str, int]]:
        """(topic, partition) of what a member of a group has now."""
        sharing = self._engine.sharing
        return [] if sharing is None else sharing.assignment

    def position(self, partition: int = 0, *, topic: str | None = None) -> int:
        """The offset that is handed out next. Raises UnknownTopic before that is known."""
        return self._cursor(partition, topic).position

    def seek(self, partition: int, offset: int, *, topic: str | None = None) -> None:
        """Hand out `offset` next. Raises OffsetOutOfRange; UnknownTopic before it has started."""
        with self._using:
            self._cursor(partition, topic).seek(check_integer("offset", offset, OFFSETS))

    def _cursor(self, partition: int, topic: str | None) -> Cursor:
        topics = self._setup.topics.names
        if topic is None and len(topics) > 1:
            raise ValueError(f"name the topic: one of {', '.join(topics)}")
        name = (topic or topics[0], partition)
        cursor = self._engine.cursors.get(name)
        if cursor is None:
            raise UnknownTopic(f"{name[0]}-{name[1]} is not (yet) in {self._setup.directory}")
        return cursor

    def commit(self) -> None:
        """Store, durably, that everything handed out so far is dealt with.

        Raises: ValueError without a name or a group; DiskFault; NotCommitted.
        """
        if not self.has_positions:
            raise ValueError("a subscriber without a name or a group has no stored positions")
        with self._using:
            self._engine.settle()
            self._engine.commit(durable=True)

    def close(self) -> None:
        """Stop handing out, store the positions (auto_commit), and keep the copies no more.

        Whoever waits in another thread gets nothing more. More calls do nothing.
        """
        self.stop_soon()
        with self._using:
            if self._is_released:
                return
            self._is_released = True
            self._engine.stop_copying()
            try:
                if self._commits:
                    self._engine.commit(durable=self._engine.sharing is None)
            finally:
                self._engine.close()


def _concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """One table of all, without copying; one without rows has the same columns as any other. Raises
    ArrowMissing without pyarrow.
    """
    if not tables:
        return to_arrow(b"", 0, 0, topic="", partition=0)
    import pyarrow as arrow

    return tables[0] if len(tables) == 1 else arrow.concat_tables(tables)

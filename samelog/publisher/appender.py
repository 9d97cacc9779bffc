"""How records get into a session's files: placed in a partition, put into a batch, at once or after
a linger time, and again once there is room.

Invariant: when an append returns, its records are in the session's file (or, with a linger time, in
a batch that is on its way there), in the order of the appends of each partition, exactly once; when
it raises that they are refused, none of them is.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, cast

from samelog.config.tables.client import OnFull
from samelog.format import _kernels as kernels
from samelog.publisher.budget import NoRoom, wait_for_release
from samelog.publisher.dedup_ids import as_ids
from samelog.publisher.errors import BudgetExceeded
from samelog.publisher.lanes import Lane, Lanes, RunPart
from samelog.publisher.options import (
    Headers,
    PlacingKeywords,
    PublisherOptions,
    Timestamp,
    as_column_of_pairs,
    as_milliseconds,
    as_pairs,
    as_timestamps,
    misfit_among,
    misfit_of,
)
from samelog.publisher.records import NumberedRecord, RecordColumns
from samelog.publisher.session_writer import SessionWriter
from samelog.replicator.client_errors import held_remedy

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

    from samelog.admin.known_schemas import KnownSchemas
    from samelog.admin.registry import SchemaRegistry
    from samelog.publisher.row_checks import GivenValues, HeadersColumn, RowChecks
    from samelog.publisher.typed_rows import RowEncoder

log = logging.getLogger(__name__)

BLOCKED_WARNING_S = 60.0
"""From one warning of an append that waits for room to the next."""
SESSION_HEADER = "samelog.session"
"""Of records that say by which session they were published."""


class Appender:
    """Appends to the files of one session: the part of a publisher that needs no cluster. One lock
    keeps appends apart.
    """

    def __init__(
        self, writer: SessionWriter, options: PublisherOptions, learn: Callable[[str], int]
    ) -> None:
        """`learn`: how many partitions a topic has in the cluster; 0: not known."""
        self._options = options
        self._writer = writer
        self._lock = threading.Lock()
        self._lanes = Lanes(writer, options, learn)
        self._plain_lane: Lane | None = None
        """Of a record that names neither topic nor partition, if there is but one for it."""
        self._linger_s = options.linger_s
        self._max_record_bytes = options.limits.max_record_bytes
        session = options.session.encode()
        self._session_header = (SESSION_HEADER, session) if options.has_session_header else None
        self._lingering = threading.Condition(self._lock)
        self._next_warning = -math.inf
        """When an append that waits for room may log a warning, by the monotonic clock."""
        self._encoder: RowEncoder | None = None
        self._registry: SchemaRegistry | None = None
        """If rows are to be in Confluent's wire format."""
        self._checked: frozenset[str] = frozenset()
        """Topics whose records are checked."""
        self._checks: RowChecks | None = None
        self._numbered: set[str] = set()
        """Topics of records with ids of which it was asked whether they are checked."""

    def _find_lane(
        self,
        topic: str | None,
        partition: int | None,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]] | None,
    ) -> Lane:
        """The lane of a record, which is checked if it is to be: then none is kept for the next."""
        lane = self._lanes.choose(topic, partition, key, value)
        own = self._options.topic
        if topic is None and partition is None and self._lanes.count(own) == 1:
            self._plain_lane = lane
        if self._checked:
            self._plain_lane = None
            self._check(topic, (value,), (headers,))
        return lane

    def append(
        self,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        headers: Headers = (),
        timestamp: Timestamp | None = None,
        partition: int | None = None,
        topic: str | None = None,
        id: int | None = None,  # noqa: A002  # what its users call it
    ) -> None:
        """Append one record; without a linger time it is in the file when this returns.

        Args:
            value, key: bytes-like, or None (null).
            headers: pairs of a name and bytes (or None), or a mapping.
            timestamp: ms since the epoch, or a datetime with a time zone. Default: now.
            id: with `dedup_id`, and only then: a number above all earlier ones; gaps are legal.

        Raises:
            RecordTooLarge, InvalidId, TypeError, ValueError: the record is refused.
            RowMisfit: so is one that does not fit its topic's schema, where the topic's setting
                `schema.enforce` asks for that: its index, column, type and beginning.
            BudgetExceeded: there is no room (on_full="raise"), or never will be.
            DiskFull, DiskFault: the disk failed; nothing was kept.
            PublisherClosed
        """
        stamp = int(time.time() * 1000) if timestamp is None else as_milliseconds(timestamp)
        pairs = as_pairs(headers) if headers else None
        if self._session_header is not None:
            pairs = (*(pairs or ()), self._session_header)
        if id is not None or self._options.dedup_id is not None:
            self._lanes.check_numbered(is_numbered=id is not None)
            record = NumberedRecord(value, key, pairs, stamp, cast(int, id))
            self._append_numbered(record, topic, partition)
            return
        while True:
            try:
                with self._lock:
                    lane = self._plain_lane
                    if lane is None or topic is not None or partition is not None:
                        lane = self._find_lane(topic, partition, key, value, pairs)
                    if self._linger_s == 0:
                        lane.output.write_record(value, key, pairs, stamp, self._max_record_bytes)
                    elif lane.add(value, key, pairs, stamp):
                        self._linger_on(lane)
                    return
            except NoRoom:
                self._wait_for_room_or_raise()
            except (TypeError, ValueError) as error:
                raise misfit_of(value, key, pairs, error) from None

    def _append_numbered(
        self, record: NumberedRecord, topic: str | None, partition: int | None
    ) -> None:
        def append() -> None:
            name = topic or self._options.topic
            if name not in self._numbered:
                self._numbered.add(name)
                self._lanes.count(name)
            if self._checked:
                self._check(name, (record.value,), (record.headers,))
            lane = self._lanes.append_numbered(record, topic, partition)
            if lane is not None:
                self._linger_on(lane)

        try:
            self._locked(append)
        except (TypeError, ValueError) as error:
            raise misfit_of(record.value, record.key, record.headers, error) from None

    def _linger_on(self, lane: Lane) -> None:
        """A batch began to linger: have it written in time."""
        lane.deadline = time.monotonic() + self._linger_s
        self._lingering.notify()

    def append_many(
        self,
        values: Iterable[Buffer | None],
        *,
        keys: Iterable[Buffer | None] | None = None,
        headers: Iterable[Headers | None] | None = None,
        timestamps: Timestamp | Iterable[Timestamp] | None = None,
        partition: int | None = None,
        topic: str | None = None,
        ids: Iterable[int] | None = None,
        first_id: int | None = None,
    ) -> None:
        """Append records given by column, in batches; they are in the files when this returns.

        One record that is refused refuses all. Those of one partition are written together, or not
        at all; with `dedup_id`, those between two gaps of the ids. Ten times faster than one
        `append` each.

        Args:
            keys, headers, timestamps: one each per value; `timestamps` may be one for all.
            ids: with `dedup_id`, one per value; or `first_id`, counting on from there.

        Raises: as `append`.
        """
        stamps = int(time.time() * 1000) if timestamps is None else as_timestamps(timestamps)
        column, pairs = _as_column(values), as_column_of_pairs(headers)
        if self._session_header is not None:
            given = [None] * len(column) if pairs is None else pairs
            pairs = [(*(each or ()), self._session_header) for each in given]
        columns = RecordColumns(column, None if keys is None else _as_column(keys), pairs, stamps)
        columns.check_lengths()
        numbers = as_ids(ids, first_id, len(columns.values))
        self._lanes.check_numbered(is_numbered=numbers is not None)
        with self._lock:
            partition = self._lanes.checked_partition(topic, partition)
        if not columns.values:
            return
        try:
            with self._lock:
                by_run = self._split(columns, numbers, topic, partition)
            steps = self._build(by_run)
        except (TypeError, ValueError) as error:
            raise misfit_among(columns, error) from None
        for step in steps:
            self._locked(step)

    def _split(
        self,
        columns: RecordColumns,
        numbers: Sequence[int] | None,
        topic: str | None,
        partition: int | None,
    ) -> list[RunPart]:
        """The records by run and lane, once they are checked, if they are to be."""
        by_run = self._lanes.split(columns, numbers, topic, partition)
        if self._checked:
            self._check(topic, columns.values, columns.headers)
        return by_run

    def _check(self, topic: str | None, values: GivenValues, headers: HeadersColumn | None) -> None:
        """Raises RowMisfit if the topic's schema is to be kept to, and is not. The lock is held."""
        name = topic or self._options.topic
        if name not in self._checked:
            return
        if self._checks is None:
            from samelog.publisher.row_checks import RowChecks

            self._checks = RowChecks(self._known_schemas())
        self._checks.check(name, values, headers)

    def _known_schemas(self) -> KnownSchemas:
        from samelog.admin.known_schemas import KnownSchemas
        from samelog.store.disk.files import OsFileSystem

        return KnownSchemas(OsFileSystem(), self._options.directory, self._options.config)

    def _forget_schema(self, topic: str, topic_id: str) -> None:
        """Forget the schema of a topic that was deleted. In the shipper's thread."""
        self._known_schemas().forget(topic, topic_id)
        if self._checks is not None:
            self._checks.forget(topic)

    def _build(self, by_run: Sequence[RunPart]) -> list[Callable[[], None]]:
        """What is to be done, one after the other, each of it whole or not at all. All batches are
        built: one record that cannot be encoded refuses all.
        """
        steps: list[Callable[[], None]] = []
        for base, parts in by_run:
            if base is not None:
                steps.append(partial(self._lanes.begin_run, base))
            for lane, part, numbers in parts:
                steps += self._lanes.writes(lane, part, numbers)
        return steps

    def append_arrow(
        self,
        table: pa.Table | pa.RecordBatch,
        *,
        value_column: str | None = "value",
        key_column: str | None = None,
        timestamp_column: str | None = None,
        headers_column: str | None = None,
        **placing: Unpack[PlacingKeywords],
    ) -> None:
        """Append a record per row of an Arrow table, as `append_many`, with its partition, topic,
        ids and first_id.

        With a value column (binary or string), the columns named key, timestamp and headers count
        too if they are there and no others are named, so that what a subscriber's `arrow` gave can
        be appended as it is. With value_column=None a record's value is its whole row as a JSON
        object, and only named columns give keys, timestamps and headers.

        Raises: as `append`; ValueError when a column is missing or of another type.
        """
        from samelog.publisher.arrow_rows import columns_of

        columns = columns_of(table, value_column, key_column, timestamp_column, headers_column)
        self.append_many(
            columns.values,
            keys=columns.keys,
            headers=columns.headers,
            timestamps=columns.timestamps,
            **placing,
        )

    def append_rows(
        self,
        rows: Any,
        *,
        version: int | None = None,
        key_column: str | None = None,
        timestamp_column: str | None = None,
        **placing: Unpack[PlacingKeywords],
    ) -> None:
        """Append rows of the topic's schema, as `append_many`, with its partition, topic, ids and
        first_id. All rows are checked before the first is appended.

        Args:
            rows: dicts or tuples, or a table of Arrow, pandas or Polars.
            version: of the schema. Default: the newest that there was when this publisher first
                appended rows to the topic; if no node answers then, the newest that this session
                has heard of.
            key_column, timestamp_column: give each record its key (binary or string column), and
                its time. Not where a value is an Arrow stream, which has many rows.

        Raises: as `append`; RowMisfit, which names the row, the column and what was expected;
            NoSchema.
        """
        columns = self._row_encoder().columns(rows, version, key_column, timestamp_column, placing)
        self.append_many(
            columns.values,
            keys=columns.keys,
            headers=columns.headers,
            timestamps=columns.timestamps,
            **placing,
        )

    def _row_encoder(self) -> RowEncoder:
        with self._lock:
            if self._encoder is None:
                from samelog.publisher.typed_rows import RowEncoder

                known = self._known_schemas()
                self._encoder = RowEncoder(self._options.topic, known, self._registry)
            return self._encoder

    # --- waiting for room ----------------------------------------------------------------------

    def _locked(self, action: Callable[[], None], deadline: float | None = None) -> None:
        """Do it under the lock; again whenever room was made, if it needs some."""
        while True:
            try:
                with self._lock:
                    return action()
            except NoRoom:
                self._wait_for_room_or_raise(deadline)

    def _wait_for_room_or_raise(self, deadline: float | None = None) -> None:
        late = deadline is not None and time.monotonic() > deadline
        if late or self._options.on_full is OnFull.RAISE:
            raise BudgetExceeded(self._no_room()) from None
        self._wait_for_room()

    def _wait_for_room(self) -> None:
        if time.monotonic() >= self._next_warning:
            self._next_warning = time.monotonic() + BLOCKED_WARNING_S
            log.warning("append waits: %s", self._no_room())
        wait_for_release(self._writer.directory)

    def _no_room(self) -> str:
        session, held = self._options.session, self._writer.held_bytes()
        reason = "see that it is shipped"
        if held:
            remedy = held_remedy(session)
            reason = f"{held} bytes are held, because their topic was deleted: {remedy}"
        return (
            f"session {session!r} holds its disk budget, {self._options.budget_bytes} bytes, in "
            f"{self._options.directory}, and nothing of it is released yet: {reason}, or raise "
            "budget_bytes"
        )


def _as_column(values: Iterable[Buffer | None]) -> Sequence[Buffer | None]:
    return values if isinstance(values, list | tuple | kernels.BytesColumn) else list(values)

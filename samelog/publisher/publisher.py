"""The publisher: appends records to local files, and never waits for the cluster unless asked to.

Invariant: when an append returns, its records are in the session's file (or, with a linger time, in
a batch that is on its way there), in the order of the appends of each partition, exactly once.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Self, Unpack, cast

from samelog.config.tables.client import OnFull
from samelog.publisher.budget import NoRoom, wait_for_release
from samelog.publisher.dedup_ids import as_ids, stretches
from samelog.publisher.errors import (
    BudgetExceeded,
    NotMerged,
    NotShipping,
    PublisherClosed,
    ShippingStopped,
)
from samelog.publisher.lanes import Lane, Lanes, LingerThread
from samelog.publisher.options import (
    Headers,
    PlacingKeywords,
    PublisherKeywords,
    PublisherOptions,
    Timestamp,
    as_column_of_pairs,
    as_milliseconds,
    as_pairs,
    as_timestamps,
    not_bytes,
    resolve,
)
from samelog.publisher.records import NumberedRecord, PartitionPositions, Positions, RecordColumns
from samelog.publisher.session_writer import SessionWriter
from samelog.store.disk.disk_errors import DiskFault
from samelog.store.disk.files import OsFileSystem

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

    from samelog.publisher.shipper import Shipper

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 5.0
RELEASE_TIMEOUT_S = 1.0
"""Of a close, for the cluster to close the run, so that its last files can be removed."""
SESSION_HEADER = "samelog.session"
"""Of records that say by which session they were published."""


class Publisher:
    """Appends to topics, in one session. A context manager.

    All methods may be called from any thread; one lock keeps appends apart. A forked child must
    make a publisher of its own, with a session of its own: the parent's raises PublisherClosed.

    Args:
        topic: where records go unless an append names another topic.
        session: this publisher's name, unique in the cluster and kept across restarts.
        directory: holds the sessions, each in a directory of its name; it must survive restarts.
            Default: `dir` in [publisher] of the config.
        config: client.toml, its https:// URL, or its value. None: local files only, for a sidecar.
        ship: False: write local files only although there is a config.
        partitions: with how many a topic is created that is not there. One that is there has what
            it has: the first append to a topic asks the cluster, for up to 2 s, and more partitions
            count soon after they are added. Without an answer, or without shipping, the given
            number counts, or 1; with a dedup_id always, so give all its publishers the same. A key
            decides by Kafka's murmur2; records without a key stay with one partition for
            `batch_bytes`, then go to the next.
        dedup_id: shared by publishers that append the same records under the same ids; each record
            is then merged once.
        linger_ms: 0: every append is written at once, as a batch of its own. Otherwise records wait
            up to this long, in memory, to share a batch.
        batch_bytes: size of a batch, at most 1 MiB.
        max_record_bytes: size of an encoded record; nodes take up to 1 MiB by default.
        budget_bytes: limit of what the session holds on disk until it is merged. Default: the
            config's, or 8 GiB.
        on_full: "block" appends until something is released, or "raise" BudgetExceeded.
        roll_bytes: a file is sealed at this size. Default: the config's, or 1 GiB; less with a
            small budget.
        stage: the records are held by the cluster until this is published (`staging`); the session
            may never have been used.
        session_header: every record says whose it is, in the header `samelog.session`.

    Raises:
        DirectoryInUse: another process, or another publisher of this one, has the session.
        ValueError, InvalidName, ConfigError: an option or the config is wrong.
        UnsupportedFormat, CorruptLog, DiskFault: the directory cannot be used.
    """

    def __init__(self, topic: str, *, session: str, **options: Unpack[PublisherKeywords]) -> None:
        """Open the session's directory, and start shipping it."""
        self._options = resolve(topic, session, options)
        self._fs = OsFileSystem()
        self._writer = _open_writer(self._fs, self._options)
        self._lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._sync_failure: DiskFault | None = None
        self._lanes = Lanes(self._writer, self._options, self._learn)
        self._closed = False
        self._plain_lane: Lane | None = None
        """Of a record that names neither topic nor partition, if there is but one for it."""
        self._linger_s = self._options.linger_s
        self._max_record_bytes = self._options.limits.max_record_bytes
        has_header = self._options.has_session_header
        self._session_header = (SESSION_HEADER, session.encode()) if has_header else None
        self._lingering = threading.Condition(self._lock)
        self._shipper = self._start_shipper()
        self._linger = self._start_linger() if self._linger_s > 0 else None
        _living.add(self)

    def _start_linger(self) -> LingerThread:
        name = f"samelog-linger-{self._options.session}"
        return LingerThread(self._lingering, self._lanes.all, name)

    def _start_shipper(self) -> Shipper | None:
        config = self._options.config
        if config is None or not self._options.ship:
            return None
        from samelog.publisher.shipper import Shipper

        try:
            left = self._writer.left_behind()
            return Shipper(self._options.directory, config, left, self._learned)
        except BaseException:
            self._writer.close()
            raise

    def _learn(self, topic: str) -> int:
        if self._shipper is None:
            return 0
        return self._shipper.learn_topic(topic, self._options.partitions or 0)

    def _learned(self, topics: Mapping[str, int]) -> None:
        """In the shipper's thread."""
        self._lanes.learned(topics)
        self._plain_lane = None

    def _find_lane(
        self, topic: str | None, partition: int | None, key: Buffer | None, value: Buffer | None
    ) -> Lane:
        lane = self._lanes.choose(topic, partition, key, value)
        own = self._options.topic
        if topic is None and partition is None and self._lanes.count(own) == 1:
            self._plain_lane = lane
        return lane

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- appending -----------------------------------------------------------------------------

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
                        lane = self._find_lane(topic, partition, key, value)
                    if self._linger_s == 0:
                        lane.output.write_record(value, key, pairs, stamp, self._max_record_bytes)
                    elif lane.add(value, key, pairs, stamp):
                        self._linger_on(lane)
                    return
            except NoRoom:
                self._wait_for_room_or_raise()
            except TypeError as error:
                raise not_bytes(value, key, error) from None

    def _append_numbered(
        self, record: NumberedRecord, topic: str | None, partition: int | None
    ) -> None:
        def append() -> None:
            lane = self._lanes.append_numbered(record, topic, partition)
            if lane is not None:
                self._linger_on(lane)

        try:
            self._locked(append)
        except TypeError as error:
            raise not_bytes(record.value, record.key, error) from None

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

        Those of one partition are written together, or not at all; with `dedup_id`, those between
        two gaps of the ids. Ten times faster than one `append` each.

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
            self._lanes.check_partition(topic, partition)
        if not columns.values:
            return
        with self._lock:
            by_run = self._lanes.split(columns, numbers, topic, partition)
        try:
            for base, parts in by_run:
                if base is not None:
                    self._locked(partial(self._lanes.begin_run, base))
                for lane, part, of_part in parts:
                    self._append_part(lane, part, of_part)
        except TypeError as error:
            raise TypeError(f"values and keys must be bytes or None: {error}") from None

    def _append_part(self, lane: Lane, part: RecordColumns, numbers: Sequence[int] | None) -> None:
        if numbers is None:
            self._locked(partial(lane.write, lane.build(part)))
            return
        for start, stop in stretches(numbers):
            data = lane.build(part.cut(start, stop, numbers[start]))
            self._locked(partial(self._lanes.write_numbered, lane, data, numbers[stop - 1]))

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

    # --- inside an append ----------------------------------------------------------------------

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
        wait_for_release(self._writer.directory)

    def _no_room(self) -> str:
        return (
            f"session {self._options.session!r} holds its disk budget, "
            f"{self._options.budget_bytes} bytes, in {self._options.directory}, and nothing of it "
            "is released yet: see that it is shipped, or raise budget_bytes"
        )

    # --- after appending -----------------------------------------------------------------------

    def flush(self, *, durable: bool = False) -> None:
        """Write what lingers; `durable` also waits until everything appended is on disk.

        Raises: as `append`; after a failed sync, every durable flush raises that failure.
        """
        if self._closed:
            raise PublisherClosed("the publisher is closed")
        for lane in self._taken_lanes():
            self._locked(lane.flush)
        if durable:
            self._sync()

    def _taken_lanes(self) -> list[Lane]:
        with self._lock:
            return self._lanes.all()

    def _sync(self) -> None:
        with self._sync_lock:
            if self._sync_failure is not None:
                raise self._sync_failure
            with self._lock:
                unsynced = self._writer.take_unsynced()
            try:
                unsynced.sync(self._fs)
                self._writer.directory.check_place()
            except DiskFault as fault:
                self._sync_failure = fault
                raise

    @property
    def positions(self) -> Positions:
        """How far each partition is appended, acknowledged and merged."""
        appended = self._appended()
        if self._shipper is None:
            return Positions(appended)
        return Positions(appended, self._shipper.acknowledged(), self._shipper.merged())

    def _appended(self) -> PartitionPositions:
        with self._lock:
            return dict(self._writer.positions())

    def wait_merged(self, timeout: float | None = None) -> None:
        """Flush, and wait until everything appended so far is merged, durably on a majority; also
        what earlier publishers of this session left in its directory.

        Raises:
            NotMerged: a TimeoutError: not within `timeout` seconds; names what is missing, and the
                nodes that cannot be reached.
            NotShipping: this publisher only writes local files.
        """
        self.flush()
        if self._shipper is None:
            raise NotShipping(
                "this publisher only writes local files: give it a config, or watch the sidecar"
            )
        self._shipper.wait_merged(tuple(self._appended().items()), timeout)

    def close(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """Write what lingers, end the run, and let go of the session; more calls do nothing.

        If this publisher ships, up to `timeout` seconds are spent on having everything that the
        session has on disk acknowledged, and a moment on having its last files released. What is
        not stays in the directory, a warning says so, and the session's next publisher (or a
        sidecar) ships it.

        Raises: as `append`, when something that lingers cannot be written.
        """
        if self._closed:
            return
        self._closed = True
        deadline = time.monotonic() + timeout
        _living.discard(self)
        if self._linger is not None:
            self._linger.stop()
        with self._lock:
            self._lanes.close()
        try:
            for lane in self._taken_lanes():
                self._locked(lane.close, deadline)
        finally:
            with self._lock:
                self._writer.close()
            self._stop_shipping(deadline)

    def _stop_shipping(self, deadline: float) -> None:
        if self._shipper is None:
            return
        try:
            if self._options.stage is not None:
                return  # whoever publishes the stage waits for it
            appended = tuple(self._appended().items())
            self._shipper.wait_acknowledged(appended, max(0.0, deadline - time.monotonic()))
            self._shipper.wait_released(min(RELEASE_TIMEOUT_S, deadline - time.monotonic()))
        except (NotMerged, ShippingStopped) as error:
            log.warning(
                "session %r is closed before all is shipped: %s", self._options.session, error
            )
        finally:
            self._shipper.stop()

    def _abandon(self) -> None:
        """In a forked child: the files and threads are the parent's."""
        self._lock = threading.Lock()
        self._lingering = threading.Condition(self._lock)
        if self._shipper is not None:
            self._shipper.abandon()
        self._closed, self._linger, self._shipper = True, None, None
        self._writer.abandon(
            "this publisher belongs to the parent process: make one in the child, with a session "
            "of its own"
        )


def _open_writer(fs: OsFileSystem, options: PublisherOptions) -> SessionWriter:
    os.makedirs(os.path.dirname(options.directory), mode=0o700, exist_ok=True)
    return SessionWriter.open(
        fs,
        options.directory,
        session=options.session,
        cluster=None if options.config is None else options.config.cluster,
        budget_bytes=options.budget_bytes,
        roll_bytes=options.roll_bytes,
        dedup_id=options.dedup_id,
        stage=options.stage,
    )


def _as_column(values: Iterable[Buffer | None]) -> Sequence[Buffer | None]:
    return values if isinstance(values, list | tuple) else list(values)


_living: weakref.WeakSet[Publisher] = weakref.WeakSet()


def _abandon_in_child() -> None:
    for publisher in list(_living):
        publisher._abandon()
    _living.clear()


os.register_at_fork(after_in_child=_abandon_in_child)

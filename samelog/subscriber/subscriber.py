"""The subscriber: hands an application the records of topics, from local files.

Invariant: each partition's records are handed out in order, none skipped; after a restart a named
subscriber goes on with what it was not done with (at least once).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

from samelog.format._kernels import Record
from samelog.format.arrow import to_arrow
from samelog.format.errors import LogFormatError
from samelog.subscriber.cursor import ARROW_CHUNK_BYTES, CHUNK_BYTES, Cursor
from samelog.subscriber.errors import SubscriberClosed, SubscriberError, UnknownTopic
from samelog.subscriber.setup import Setup, SubscriberKeywords, prepare

if TYPE_CHECKING:
    import pyarrow as pa

FOREVER = float("inf")


class Subscriber:
    """Reads topics below one directory, and keeps the copies there up to date. A context manager.

    One thread reads; `close`, `pause`, `resume` and the properties may be used from any.

    Args:
        topics: one topic, or several. Their records come in turns; order holds within a partition.
            Default: `topics` in [subscriber] of the config, as they are at the start.
        directory: holds the copies, a directory for each partition. Default: `dir` in [subscriber]
            of the config.
        config: client.toml, its https:// URL, or its value. None: read local files only, which a
            sidecar keeps up to date; for a node's own files name the `merged` directory in its data
            directory.
        start: "earliest", "latest", "stored", an offset, an offset for each partition, or a
            datetime
            (the first record at or after it). Default: "stored" with a name, else "earliest".
        name: the positions are stored under this name in the directory.
        partitions: read these only. Default: all, also those that come later.
        auto_commit: store positions every `commit_interval_s`, and on close. A record counts once
            the application asks for the next one.
        auto_offset_reset: "earliest" or "latest": go on there when an offset is archived, or beyond
            the end; "error": raise OffsetOutOfRange.
        follow: False: end at the end that there is at the start.

    Raises:
        ValueError, InvalidName, ConfigError: an option or the config is wrong.
        OffsetOutOfRange: the start is not there.
        UnsupportedFormat, CorruptLog, DiskFault: local files cannot be used.
    """

    def __init__(
        self, topics: str | Iterable[str] | None = None, **options: Unpack[SubscriberKeywords]
    ) -> None:
        """Open the copies, and start keeping them."""
        self._setup: Setup = prepare(topics, options)
        self._engine = self._setup.engine
        self._commit_interval_s = options.get("commit_interval_s", 1.0)
        self._commits = options.get("auto_commit", True) and self._setup.name is not None
        now = time.monotonic()
        self._next_commit = now + self._commit_interval_s if self._commits else FOREVER
        self._using = threading.Lock()
        """Held while the engine is used; not while the application has a record."""
        self._is_closed = False
        self._is_released = False
        self._is_paused = False
        self._attention = False
        """Closed or paused: look before handing out another record."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- reading -------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Record]:
        """All records, waiting for more; ends on `close`, and at the end if not following.

        Raises: as `poll`.
        """
        while (cursor := self._ready(None, CHUNK_BYTES)) is not None:
            yield from self._hand_out(cursor)

    def present(self) -> Iterator[Record]:
        """The records that are there, without waiting for more. Raises: as `poll`."""
        while (cursor := self._ready(0.0, CHUNK_BYTES)) is not None:
            yield from self._hand_out(cursor)

    def _hand_out(self, cursor: Cursor) -> Iterator[Record]:
        """The rest of a partition's chunk; ends early on `pause`, `close` and `seek`."""
        chunk, commits = cursor.chunk, self._commits
        for record in cursor.records():
            cursor.position = record.offset + 1
            yield record
            cursor.done = cursor.position
            if self._attention or (commits and time.monotonic() >= self._next_commit):
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
        deadline = _deadline(timeout)
        self._settle()
        records: list[Record] = []
        while len(records) < max_records:
            cursor = self._ready_after(records, deadline, CHUNK_BYTES)
            if cursor is None:
                break
            records += cursor.next_records(max_records - len(records))
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

    def arrow(self, max_records: int = 100_000, timeout: float | None = None) -> pa.Table:
        """As `batch`, as an Arrow table; without rows if none comes in time.

        Columns: key, value (binary), topic (string), partition (int32), offset (int64), timestamp
        (ms, UTC), timestampType (int32), headers (list of struct of key and value).

        Raises: as `poll`; ArrowMissing without pyarrow.
        """
        deadline = _deadline(timeout)
        self._settle()
        tables: list[pa.Table] = []
        rows = 0
        while rows < max_records:
            cursor = self._ready_after(tables, deadline, ARROW_CHUNK_BYTES)
            if cursor is None:
                break
            table = cursor.take_table(max_records - rows)
            if table is not None:
                tables.append(table)
                rows += table.num_rows
        return _concatenated(tables)

    def run(
        self,
        handler: Callable[[Record], object] | Callable[[list[Record]], object],
        *,
        batch: bool = False,
        max_records: int = 1000,
    ) -> None:
        """Call `handler` with every record (`batch`: with lists of them) until `close`.

        A record is dealt with when the handler returns; what it raises ends the run. Also ends at
        the end if not following. Raises: as `poll`.
        """
        items: Iterable[Any] = self.batches(max_records) if batch else self
        for item in items:
            handler(item)

    # --- waiting -------------------------------------------------------------------------------

    def _settle(self) -> None:
        """The application asks for more: what it was handed is dealt with."""
        with self._using:
            if self._is_closed:
                raise SubscriberClosed("the subscriber is closed")
            self._engine.settle()
            self._commit_if_due()

    def _ready_after(
        self, taken: Sequence[object], deadline: float | None, limit_bytes: int
    ) -> Cursor | None:
        """A partition with more; once something was taken, without waiting, and without an error:
        the next call meets it again.
        """
        if not taken:
            return self._ready(deadline, limit_bytes)
        try:
            return self._ready(0.0, limit_bytes)
        except (SubscriberError, LogFormatError):
            return None

    def _ready(self, deadline: float | None, limit_bytes: int) -> Cursor | None:
        """A partition with something to hand out; None: not in time, or never more."""
        engine = self._engine
        with self._using:
            while not self._is_closed:
                if not self._is_paused:
                    cursor = engine.next_filled(limit_bytes)
                    if cursor is not None:
                        return cursor
                    if not engine.choice.follow and engine.is_finished:
                        return None
                left_s = FOREVER if deadline is None else deadline - time.monotonic()
                if left_s > 0:
                    engine.waiter.wait(min(self._wait_s(), left_s))
                elif not engine.rescan_if_due():
                    return None
        return None

    def _wait_s(self) -> float:
        """Do what is due; how long to wait for the engine's waiter before reading again."""
        engine = self._engine
        if time.monotonic() >= self._next_commit:
            self._commit_if_due()
        if engine.watch() or engine.rescan_if_due():
            return 0.0
        return max(0.0, min(engine.next_rescan, self._next_commit) - time.monotonic())

    def prepare_wait(self) -> float:
        """For event loops: how many seconds to wait for `fileno` to be readable, then try again."""
        with self._using:
            return 0.0 if self._is_closed else self._wait_s()

    def fileno(self) -> int:
        """For event loops: readable when there may be more; then call `take_events`."""
        return self._engine.waiter.fileno()

    def take_events(self) -> None:
        """For event loops: take note of what made `fileno` readable."""
        with self._using:
            if not self._is_closed:
                self._engine.waiter.wait(0.0)

    def _tend(self) -> None:
        with self._using:
            if not self._is_closed:
                self._commit_if_due()

    def _commit_if_due(self) -> None:
        if time.monotonic() >= self._next_commit:
            self._engine.commit(durable=False)
            self._next_commit = time.monotonic() + self._commit_interval_s

    # --- control -------------------------------------------------------------------------------

    def pause(self) -> None:
        """Hand out nothing until `resume`; the local files keep growing."""
        self._is_paused = self._attention = True

    def resume(self) -> None:
        """Hand out records again."""
        self._is_paused = False
        self._attention = self._is_closed
        self._engine.waiter.wake()

    @property
    def is_paused(self) -> bool:
        """Whether `pause` is in force."""
        return self._is_paused

    @property
    def caught_up(self) -> bool:
        """Whether the application was handed everything there is: what comes now is live."""
        return self._engine.is_at_end

    @property
    def is_over(self) -> bool:
        """Whether nothing will be handed out again: closed, or not following and at the end."""
        return self._is_closed or self._engine.is_finished

    def wait_caught_up(self, timeout: float | None = None) -> None:
        """Wait until the local copies hold everything that the cluster has merged by now.

        Without a config there is nothing to wait for. Raises NotCaughtUp, a TimeoutError.
        """
        self._engine.keeper.wait_caught_up(timeout)
        self._engine.rescan_soon()

    def position(self, partition: int = 0, *, topic: str | None = None) -> int:
        """The offset that is handed out next. Raises UnknownTopic before that is known."""
        return self._cursor(partition, topic).position

    def seek(self, partition: int, offset: int, *, topic: str | None = None) -> None:
        """Hand out `offset` next. Raises OffsetOutOfRange; UnknownTopic before it has started."""
        with self._using:
            self._cursor(partition, topic).seek(offset)

    def _cursor(self, partition: int, topic: str | None) -> Cursor:
        topics = self._setup.topics
        if topic is None and len(topics) > 1:
            raise ValueError(f"name the topic: one of {', '.join(topics)}")
        name = (topic or topics[0], partition)
        cursor = self._engine.cursors.get(name)
        if cursor is None:
            raise UnknownTopic(f"{name[0]}-{name[1]} is not (yet) in {self._setup.directory}")
        return cursor

    def commit(self) -> None:
        """Store, durably, that everything handed out so far is dealt with.

        Raises: ValueError without a name; DiskFault.
        """
        if self._setup.name is None:
            raise ValueError("a subscriber without a name has no stored positions")
        with self._using:
            self._engine.settle()
            self._engine.commit(durable=True)

    def stop_soon(self) -> None:
        """Hand out nothing more, and end what waits; `close` is still to be called."""
        self._is_closed = self._attention = True
        self._engine.waiter.wake()

    def close(self) -> None:
        """Stop handing out, store the positions (auto_commit), and keep the copies no more.

        Whoever waits in another thread gets nothing more. More calls do nothing.
        """
        self.stop_soon()
        with self._using:
            if self._is_released:
                return
            self._is_released = True
            self._engine.keeper.stop()
            try:
                if self._commits:
                    self._engine.commit(durable=True)
            finally:
                self._engine.close()


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """One table of all, without copying; one without rows has the same columns as any other. Raises
    ArrowMissing without pyarrow.
    """
    if not tables:
        return to_arrow(b"", 0, 0, topic="", partition=0)
    import pyarrow as arrow

    return tables[0] if len(tables) == 1 else arrow.concat_tables(tables)

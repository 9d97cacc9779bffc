"""Records on their way into one partition: batches that linger, and those that are written at once.

A record that lingers is in memory only; it is written when its batch is full, when the linger time
is over, on flush and on close. A batch that could not be written (no room) is kept, and goes first.

Invariant: records reach the file in the order in which they came, each exactly once. Nothing
lingers much longer than it may, unless it cannot be written; then it stays in its lane, is tried
again, and the next append to that lane raises the reason.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from samelog.format import _kernels as kernels
from samelog.format.errors import LogFormatError
from samelog.publisher.dedup_ids import sequence_of
from samelog.publisher.errors import PublisherClosed, PublisherError
from samelog.publisher.output import Output
from samelog.publisher.records import BatchLimits, RecordColumns

if TYPE_CHECKING:
    from typing_extensions import Buffer


log = logging.getLogger(__name__)

RETRY_S = 0.1


class Lane:
    """The way into one partition. Not thread-safe: the publisher's lock is held."""

    __slots__ = (
        "_builder",
        "_first",
        "_is_closed",
        "_limits",
        "_next",
        "_pending",
        "deadline",
        "output",
    )

    def __init__(self, output: Output, limits: BatchLimits) -> None:
        self.output = output
        self.deadline: float | None = None
        """When what lingers is due, in monotonic seconds; None: nothing lingers."""
        self._limits = limits
        self._builder = kernels.BatchBuilder(limits.max_record_bytes)
        self._first: int | None = None
        self._next: int | None = None
        self._pending = b""
        self._is_closed = False

    def write(self, data: bytes) -> None:
        """Append finished batches, behind what lingers. Raises as `Output.write`."""
        self.flush()
        self.output.write(data)

    def build(self, columns: RecordColumns) -> bytes:
        """Records as batches; their numbers, if any, follow each other."""
        first = columns.first_number
        return kernels.build_batches(
            columns.values,
            keys=columns.keys,
            headers=columns.headers,
            timestamps=columns.timestamps,
            producer_id=self._limits.producer_id,
            producer_epoch=self._limits.epoch,
            base_sequence=-1 if first is None else sequence_of(first),
            batch_bytes=self._limits.batch_bytes,
            max_record_bytes=self._limits.max_record_bytes,
        )

    def add(
        self,
        value: Buffer | None,
        key: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]] | None,
        timestamp: int,
        number: int | None = None,
    ) -> bool:
        """Let a record linger; whether it is the first of its batch.

        Raises as `Output.write`, when an earlier batch has to be written first: it was not added.
        """
        builder = self._builder
        if self._pending or self._is_closed or number != self._next:
            self._make_way(number)
        batch_bytes = self._limits.batch_bytes
        if builder.add(value, key, headers, timestamp, batch_bytes) < 0:
            self.flush()
            builder.add(value, key, headers, timestamp)
        if number is not None:
            self._next = number + 1
        if builder.records > 1:
            return False
        self._first = number
        return True

    def _make_way(self, number: int | None) -> None:
        """What is there cannot share a batch with the record `number`."""
        if self._is_closed:
            raise PublisherClosed("the publisher is closed")
        if self._pending or self._builder.records:
            self.flush()
        self._next = number

    def flush(self) -> None:
        """Write what lingers. Raises as `Output.write`: it is kept."""
        if self._builder.records:  # then nothing is pending: `add` saw to that
            first = self._first
            self._pending = self._builder.finish(
                producer_id=self._limits.producer_id,
                producer_epoch=self._limits.epoch,
                base_sequence=-1 if first is None else sequence_of(first),
            )
        if self._pending:
            self.output.write(self._pending)
            self._pending, self.deadline = b"", None

    def close(self) -> None:
        """Write what lingers, and let nothing linger any more. Raises as `Output.write`."""
        self._is_closed = True
        self.flush()


class LingerThread:
    """The thread that flushes lanes that are due; `condition` is of the publisher's lock."""

    def __init__(
        self, condition: threading.Condition, lanes: Callable[[], Iterable[Lane]], name: str
    ) -> None:
        self._condition = condition
        self._lanes = lanes
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop and wait for the thread; what lingers stays."""
        with self._condition:
            self._stopped = True
            self._condition.notify()
        self._thread.join()

    def _run(self) -> None:
        with self._condition:
            while not self._stopped:
                now = time.monotonic()
                for lane in self._lanes():
                    if lane.deadline is not None and lane.deadline <= now:
                        self._flush(lane)
                due = [lane.deadline for lane in self._lanes() if lane.deadline is not None]
                self._condition.wait(max(0.0, min(due) - time.monotonic()) if due else None)

    def _flush(self, lane: Lane) -> None:
        try:
            lane.flush()
        except (PublisherError, LogFormatError) as error:
            lane.deadline = time.monotonic() + RETRY_S
            log.debug("a batch for %s waits: %s", lane.output.name, error)

"""Records on their way into one partition: batches that linger, and those that are written at once.

A record that lingers is in memory only; it is written when its batch is full, when the linger time
is over, on flush and on close. A batch that could not be written (no room) is kept, and goes first.

Invariant: records reach the file in the order in which they came, each exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from samelog.format import _kernels as kernels
from samelog.publisher.dedup_ids import sequence_of
from samelog.publisher.entries import BatchLimits, Entries
from samelog.publisher.errors import PublisherClosed
from samelog.publisher.output import Output

if TYPE_CHECKING:
    from typing_extensions import Buffer


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

    def build(self, entries: Entries) -> bytes:
        """Records as batches; their numbers, if any, follow each other."""
        first = entries.first_number
        return kernels.build_batches(
            entries.values,
            keys=entries.keys,
            headers=entries.headers,
            timestamps=entries.timestamps,
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

"""Records on their way into one partition: batches that linger, and those that are written at once.

A record that lingers is in memory only; it is written when its batch is full, when the linger time
is over, on flush and on close. A batch that could not be written (no room) is kept, and goes first.

Invariant: records reach the file in the order in which they came, each exactly once.
"""

from __future__ import annotations

from shiplog.logformat import _kernels as kernels
from shiplog.publisher.dedup_ids import sequence_of
from shiplog.publisher.entries import BatchLimits, Entries, Entry
from shiplog.publisher.output import Output


class Lane:
    """The way into one partition. Not thread-safe: the publisher's lock is held."""

    __slots__ = (
        "_builder",
        "_first",
        "_limits",
        "_next",
        "_pending",
        "_size",
        "deadline",
        "output",
    )

    def __init__(self, output: Output, limits: BatchLimits) -> None:
        self.output = output
        self.deadline: float | None = None
        """When what lingers is due, in monotonic seconds; None: nothing lingers."""
        self._limits = limits
        self._builder = kernels.BatchBuilder(limits.max_record_bytes)
        self._size = 0
        self._first: int | None = None
        self._next: int | None = None
        self._pending = b""

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

    def add(self, entry: Entry, deadline: float) -> bool:
        """Let a record linger until `deadline` at most; whether it is the first of its batch.

        Raises as `Output.write`, when an earlier batch has to be written first: it was not added.
        """
        full = self._size + entry.size > self._limits.batch_bytes
        if self._pending or (self._builder.records and (full or entry.number != self._next)):
            self.flush()
        is_first = self._builder.records == 0
        self._size = self._builder.add(entry.value, entry.key, entry.headers, entry.timestamp)
        if is_first:
            self._first, self.deadline = entry.number, deadline
        self._next = None if entry.number is None else entry.number + 1
        return is_first

    def flush(self) -> None:
        """Write what lingers. Raises as `Output.write`: it is kept."""
        if self._builder.records:  # then nothing is pending: `add` saw to that
            first = self._first
            self._pending = self._builder.finish(
                producer_id=self._limits.producer_id,
                producer_epoch=self._limits.epoch,
                base_sequence=-1 if first is None else sequence_of(first),
            )
            self._size = 0
        if self._pending:
            self.output.write(self._pending)
            self._pending, self.deadline = b"", None

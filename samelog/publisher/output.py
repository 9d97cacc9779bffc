"""The growing file of one partition in a session, and the one comparison that every write makes.

A write goes straight to the file while it stays below `limit`: what is reserved on disk and granted
by the disk budget, and where the file rolls. Everything else (no run yet, no file yet, a roll, a
full budget, a closed publisher) happens in `make_room`, which is called when that comparison fails.

Invariant: the file holds whole batches up to `byte`, and nothing behind: a failed write is cut
back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from samelog.format import _kernels as kernels
from samelog.format.errors import LogFormatError
from samelog.format.positions import SessionPosition
from samelog.publisher.errors import DiskFull
from samelog.publisher.records import TopicPartition
from samelog.store.disk.append_file import FIRST_STEP_BYTES, LAST_STEP_BYTES
from samelog.store.disk.disk_errors import NoSpace, fault_of
from samelog.store.disk.files import File

if TYPE_CHECKING:
    from typing_extensions import Buffer

NO_LIMIT_YET = -1
"""Every write passes it, and so asks for room."""


class Output:
    """Where the batches of one partition go. Not thread-safe: the publisher's lock is held."""

    __slots__ = (
        "_descriptor",
        "_make_room",
        "byte",
        "end",
        "file",
        "limit",
        "name",
        "next_roll",
        "roll",
        "step_bytes",
        "synced",
    )

    def __init__(self, name: TopicPartition, make_room: Callable[[Output, int], None]) -> None:
        self.name = name
        self.file: File | None = None
        self.roll = 0
        self.next_roll = 0
        """Of the file that follows once this one is finished; 0 when a run begins."""
        self.byte = 0
        self.limit = NO_LIMIT_YET
        self.synced = 0
        """Bytes of the file that are durable, or on the way."""
        self.end: SessionPosition | None = None
        """Of the last byte in a sealed file."""
        self.step_bytes = FIRST_STEP_BYTES
        """How much to reserve next: doubling, so that a small session stays small on disk."""
        self._make_room = make_room
        self._descriptor = -1

    def write(self, data: bytes | memoryview) -> None:
        """Append whole batches; they can be read from the file when this returns.

        Raises:
            NoRoom: the budget has none for this now.
            BudgetExceeded: the budget can never hold this.
            DiskFull, DiskFault: nothing was kept.
            PublisherClosed
        """
        end = self.byte + len(data)
        if end > self.limit:
            self._make_room(self, len(data))
            end = self.byte + len(data)
        try:
            kernels.write_at(self._descriptor, data, self.byte)
        except OSError as error:
            raise self._cut_back(error) from error
        self.byte = end

    def write_record(
        self,
        value: Buffer | None,
        key: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]] | None,
        timestamp: int,
        max_record_bytes: int,
    ) -> None:
        """Append one record as a batch of its own. Raises as `write`, and RecordTooLarge."""
        try:
            end = kernels.write_record(
                self._descriptor,
                self.byte,
                self.limit,
                value,
                key,
                headers,
                timestamp,
                max_record_bytes,
            )
        except OSError as error:
            raise self._cut_back(error) from error
        if end < 0:
            self.write(kernels.build_record(value, key, headers, timestamp, max_record_bytes))
        else:
            self.byte = end

    def _cut_back(self, error: OSError) -> Exception:
        """Remove what a failed write left; the error to raise instead."""
        if self.file is None:
            return error
        self.limit = NO_LIMIT_YET
        self.file.truncate(self.byte)
        return explained(fault_of(self.file.path, "write", error))

    def reserve(self, length: int) -> None:
        """Reserve blocks for `length` bytes behind the end, and let writes come that far."""
        if self.file is not None:
            self.file.preallocate(self.byte, length)
        self.limit = self.byte + length
        self.step_bytes = min(2 * self.step_bytes, LAST_STEP_BYTES)

    def begin(self, file: File, roll: int) -> None:
        """Go on at the start of an empty file."""
        self.file, self._descriptor = file, file.fileno()
        self.roll, self.next_roll, self.byte, self.synced = roll, roll + 1, 0, 0
        self.limit = NO_LIMIT_YET

    def finish(self, run: int) -> None:
        """Give back what is reserved, and close the file: it is sealed."""
        if self.file is not None:
            self.end = self.position(run)
            try:
                self.file.truncate(self.byte)
            finally:
                self.abandon()

    def abandon(self) -> None:
        """Close the file as it is."""
        if self.file is not None:
            self.file.close()
        self.file, self._descriptor, self.limit = None, -1, NO_LIMIT_YET

    def position(self, run: int) -> SessionPosition | None:
        """The end of what was appended; None if nothing was."""
        has_bytes = self.file is not None and self.byte > 0
        return SessionPosition(run, self.roll, self.byte) if has_bytes else self.end


def explained(fault: LogFormatError) -> Exception:
    """The fault, or if the disk is full, the error that says what to do about it."""
    if not isinstance(fault, NoSpace):
        return fault
    return DiskFull(
        f"{fault}; nothing of this append was kept. Make room on that file system, or let the "
        "session be shipped, then append again; a lower budget_bytes prevents it"
    )

"""Shows records as far apart in time as they were written.

Invariant: a record is shown no earlier than its time has come, and in the order it was read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import BinaryIO

from samelog.cli.output import fail
from samelog.format._kernels import Record
from samelog.subscriber.subscriber import Subscriber


class Pace:
    """When records are due, by their timestamps. `speed`: 2 is twice as fast as they came."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._begin: tuple[float, int] | None = None
        """When the first record was shown, and its timestamp."""

    def wait_s(self, timestamp_ms: int, now: float) -> float:
        """Seconds until a record is due; one that is older than those before it is due at once."""
        if self._begin is None:
            self._begin = now, timestamp_ms
        began_at, first_ms = self._begin
        return max(0.0, began_at + (timestamp_ms - first_ms) / 1000 / self._speed - now)


class Replay:
    """One partition's records, shown in their time."""

    def __init__(self, subscriber: Subscriber, speed: float) -> None:
        self._subscriber = subscriber
        self._pace = Pace(speed)
        self._stop = threading.Event()
        self._partition: int | None = None
        self.is_cut_short = False
        """Whether a record was read and not shown."""

    def stop_soon(self) -> None:
        """Show nothing more."""
        self._stop.set()
        self._subscriber.stop_soon()

    def copy_out(self, out: BinaryIO, show: Callable[[Record], bytes], limit: int | None) -> int:
        """Write records until there are no more, or `limit` are written; how many."""
        count = 0
        while not self._subscriber.is_over and (limit is None or count < limit):
            for record in self._subscriber.batch(1):
                self._check(record)
                if self._stop.wait(self._pace.wait_s(record.timestamp, time.monotonic())):
                    self.is_cut_short = True
                    return count
                out.write(show(record) + b"\n")
                out.flush()
                count += 1
        return count

    def _check(self, record: Record) -> None:
        """Partitions have no order among each other, so only one can be shown in its time."""
        if self._partition not in (None, record.partition):
            fail("--replay shows one partition, and there are more: choose one with --partition")
        self._partition = record.partition

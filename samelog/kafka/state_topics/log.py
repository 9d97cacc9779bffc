"""A partition of a generated topic, to be read like a merged log.

What lies where is told by the feed in the replicated state. A reader keeps, of each feed that is
read, the places in the order of their offsets, so that nobody looks through all of it for each
fetch; it follows the feed from its end, and nothing is done while nobody reads.

A *position* of this log is an offset times a typical record's size: readers count bytes by it.

Invariant: what is handed out from an offset on is, in order, all that has its newest record there
or further on; one read holds the event loop for about a millisecond at most.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from samelog.format.transactions import Aborted
from samelog.kafka.state_topics.records import ToldRecord, time_of, told, tombstone
from samelog.replicator.interfaces import RequestRefused, StreamListener
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.feeds import Feed, Key, StateTopic, Tombstone
from samelog.store.merged.reader import OffsetNotHeld

TYPICAL_BYTES = 160
READ_BYTES = 16 << 10
"""At a time."""
NOTHING = memoryview(b"")
_EMPTY = Feed()

FeedPlace = tuple[int, Key | Tombstone]


class FeedLog:
    """What Kafka clients read of one feed. Implements any_broker.ReadableLog."""

    layout = 0

    def __init__(self, machine: StateMachine, topic: StateTopic, partition: int) -> None:
        self._machine = machine
        self._topic = topic
        self._partition = partition
        self._feed = _EMPTY
        self._places: list[FeedPlace] = []
        """(offset, what changed then), in order; some are not the newest of theirs any more."""

    @property
    def feed(self) -> Feed:
        """What is replicated of it."""
        return self._machine.state.feeds.of(self._topic).get(self._partition, _EMPTY)

    # --- as of a merged log -----------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """Compacted topics begin where they ever began."""
        return 0

    @property
    def next_offset(self) -> int:
        """The offset of the next change."""
        return self.feed.next_offset

    @property
    def last_stable_offset(self) -> int:
        """All of it is decided."""
        return self.next_offset

    def aborted(self, first: int, stop: int) -> list[Aborted]:
        """Nothing ever is."""
        return []

    def end(self) -> tuple[int, int]:
        """The position of the next offset."""
        return 0, self.next_offset * TYPICAL_BYTES

    def locate(self, offset: int) -> tuple[int, int]:
        """The position of an offset. Raises OffsetNotHeld."""
        if not 0 <= offset <= self.next_offset:
            raise OffsetNotHeld(self._topic, offset, 0, self.next_offset)
        return 0, offset * TYPICAL_BYTES

    def view(self, base: int, byte: int, limit_bytes: int) -> memoryview:
        """Whole batches from a position on: at most `limit_bytes`, but at least one if there is
        any.
        """
        found: list[bytes] = []
        size = 0
        for offset, record in self._records(byte // TYPICAL_BYTES):
            batch = record.batch(offset)
            if found and size + len(batch) > min(limit_bytes, READ_BYTES):
                break
            found.append(batch)
            size += len(batch)
        return memoryview(b"".join(found))

    def epoch_at(self, offset: int) -> int:
        """None: nothing is ever cut off."""
        return -1

    def end_of_epoch(self, epoch: int) -> int:
        """The end: nothing is ever cut off."""
        return self.next_offset

    def highest_timestamp(self) -> int | None:
        """Of all records; None if there are none."""
        return max((at_ms for _, _, at_ms in self._times()), default=None)

    def batches_since(self, timestamp: int) -> Iterator[bytes]:
        """The batches with a timestamp that is at least this, in order."""
        for offset, what, at_ms in self._times():
            if at_ms >= timestamp and (record := self._record(what)) is not None:
                yield record.batch(offset)

    # --- places -----------------------------------------------------------------------------------

    def _records(self, first: int) -> Iterator[tuple[int, ToldRecord]]:
        """The newest record of everything that has it at this offset or further on."""
        for offset, what in self._newest(first):
            record = self._record(what)
            if record is not None:
                yield offset, record

    def _newest(self, first: int) -> Iterator[FeedPlace]:
        """The places that are not those of something that has a newer one."""
        self._follow()
        feed, places = self._feed, self._places
        for index in range(bisect_left(places, first, key=_offset_of), len(places)):
            offset, what = places[index]
            if isinstance(what, Tombstone):
                if feed.gone and feed.gone[0].offset <= offset:
                    yield offset, what
            elif feed.newest.get(what) == offset:
                yield offset, what

    def _record(self, what: Key | Tombstone) -> ToldRecord | None:
        if isinstance(what, Tombstone):
            return tombstone(self._topic, what)
        return told(self._machine.state, self._topic, what)

    def _times(self) -> Iterator[tuple[int, Key | Tombstone, int]]:
        """(offset, what, its record's timestamp) of everything."""
        for offset, what in self._newest(0):
            yield offset, what, self._time(what)

    def _time(self, what: Key | Tombstone) -> int:
        if isinstance(what, Tombstone):
            return what.at_ms
        return time_of(self._machine.state, self._topic, what)

    def _follow(self) -> None:
        """Take up what changed since."""
        feed, places = self.feed, self._places
        if feed is not self._feed or len(places) > 2 * (len(feed.newest) + len(feed.gone)) + 100:
            places = []
            self._feed, self._places = feed, places
        known = places[-1][0] + 1 if places else 0
        if known < feed.next_offset:
            changed = takewhile(lambda each: each[1] >= known, reversed(feed.newest.items()))
            gone = takewhile(lambda each: each.offset >= known, reversed(feed.gone))
            new: list[FeedPlace] = [(offset, key) for key, offset in changed]
            new += ((each.offset, each) for each in gone)
            places += sorted(new, key=_offset_of)


def _offset_of(place: Any) -> int:
    offset: int = place[0]
    return offset


class FeedStream:
    """Implements any_broker.WatchedLog."""

    def __init__(self, machine: StateMachine, topic: StateTopic, partition: int) -> None:
        self.log = FeedLog(machine, topic, partition)
        self._listeners: list[StreamListener] = []
        self._listen = machine.feed_listeners
        self._told = 0

    @property
    def fault(self) -> RequestRefused | None:
        """It can be read always."""
        return None

    def add_listener(self, listener: StreamListener) -> None:
        """Tell `listener` when something changes."""
        if not self._listeners:
            self._told = self.log.next_offset
            self._listen.append(self._moved)
        self._listeners.append(listener)

    def remove_listener(self, listener: StreamListener) -> None:
        """Tell it no more."""
        self._listeners.remove(listener)
        if not self._listeners:
            self._listen.remove(self._moved)

    def _moved(self) -> None:
        if self.log.next_offset != self._told:
            self._told = self.log.next_offset
            for listener in tuple(self._listeners):
                listener()

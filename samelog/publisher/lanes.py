"""All lanes of a publisher: which one a record takes, and which dedup numbers may follow.

Invariant: a record's lane depends on its key alone if it has one; dedup numbers rise, across lanes
and runs. Not thread-safe: the publisher's lock is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from samelog.publisher.dedup_ids import DedupIds
from samelog.publisher.entries import Entries, Entry
from samelog.publisher.errors import InvalidId, PublisherClosed
from samelog.publisher.lane import Lane
from samelog.publisher.options import PublisherOptions
from samelog.publisher.partitioner import Partitioner
from samelog.publisher.places import TopicPartition
from samelog.publisher.session_writer import SessionWriter

if TYPE_CHECKING:
    from typing_extensions import Buffer

Part = tuple[Lane, Entries, Sequence[int] | None]
"""The records that take one lane, with their dedup numbers."""
Piece = tuple[int | None, list[Part]]
"""Records that go into one run; a new one with this base, if that is not None."""
Names = Sequence[TopicPartition] | TopicPartition
"""Where each record goes, or all."""


class Lanes:
    """The lanes of one publisher, made when they are first taken."""

    def __init__(self, writer: SessionWriter, options: PublisherOptions) -> None:
        self._writer = writer
        self._options = options
        self._lanes: dict[TopicPartition, Lane] = {}
        self._partitioners: dict[str, Partitioner] = {}
        self._ids = DedupIds()
        self._is_closed = False

    def all(self) -> list[Lane]:
        """Those that were taken so far."""
        return list(self._lanes.values())

    def lane(self, topic: str, partition: int) -> Lane:
        """The lane of a partition. Raises InvalidName."""
        name = TopicPartition(topic, partition)
        lane = self._lanes.get(name)
        if lane is None and self._is_closed:
            raise PublisherClosed("the publisher is closed")
        if lane is None:
            lane = Lane(self._writer.output(topic, partition), self._options.limits)
            self._lanes[name] = lane
        return lane

    # --- one record ----------------------------------------------------------------------------

    def append(self, entry: Entry, topic: str | None, partition: int | None) -> Lane | None:
        """Append a record, or let it linger; the lane, if a batch begins to linger there with it.

        Raises as `Output.write`: nothing was appended.
        """
        lane = self._lane_of(entry, topic or self._options.topic, partition)
        number = entry.number
        if number is not None:
            self._ids.check((number,))
            if self._ids.needs_new_run(lane.output.name, number):
                self.begin_run(number)
        is_first = False
        if self._options.linger_s > 0:
            is_first = lane.add(*entry)
        else:
            lane.write(lane.build(entry.alone()))
        if number is not None:
            self._ids.appended(lane.output.name, number)
        return lane if is_first else None

    def _lane_of(self, entry: Entry, topic: str, partition: int | None) -> Lane:
        if partition is None:
            partition = self._choose(topic, entry.key, entry.value_bytes)
        return self.lane(topic, partition)

    def _choose(self, topic: str, key: Buffer | None, size: int) -> int:
        if self._options.partitions == 1:
            return 0
        partitioner = self._partitioner(topic)
        return partitioner.sticky(size) if key is None else partitioner.of_key(key)

    def _partitioner(self, topic: str) -> Partitioner:
        partitioner = self._partitioners.get(topic)
        if partitioner is None:
            partitioner = Partitioner(self._options.partitions, self._options.limits.batch_bytes)
            self._partitioners[topic] = partitioner
        return partitioner

    # --- many records --------------------------------------------------------------------------

    def split(
        self,
        entries: Entries,
        numbers: Sequence[int] | None,
        topic: str | None,
        partition: int | None,
    ) -> list[Piece]:
        """The records by run and lane, in order within each; those without a key stay together.

        Raises InvalidId, InvalidName.
        """
        topic = topic or self._options.topic
        chosen = self._partitions_of(entries, topic, partition)
        if numbers is None:
            return [(None, self._by_lane(entries, None, topic, chosen))]
        self._ids.check(numbers)
        pieces: list[Piece] = []
        names = self._named(topic, chosen)
        for start, stop, is_new in self._ids.cut_into_runs(names, numbers):
            own = chosen if isinstance(chosen, int) else chosen[start:stop]
            parts = self._by_lane(entries.cut(start, stop), numbers[start:stop], topic, own)
            pieces.append((numbers[start] if is_new else None, parts))
        return pieces

    def _partitions_of(
        self, entries: Entries, topic: str, partition: int | None
    ) -> Sequence[int] | int:
        """Where each record goes, or all."""
        if partition is not None or self._options.partitions == 1:
            return partition or 0
        keyless = self._choose_keyless(topic, entries.keys)
        if entries.keys is None:
            return keyless
        return self._partitioner(topic).of_keys(entries.keys, keyless)

    def _named(self, topic: str, chosen: Sequence[int] | int) -> Names:
        if isinstance(chosen, int):
            return TopicPartition(topic, chosen)
        names = [TopicPartition(topic, number) for number in range(self._options.partitions)]
        return [names[number] for number in chosen]

    def _choose_keyless(self, topic: str, keys: Sequence[Buffer | None] | None) -> int:
        if keys is not None and None not in keys:
            return 0
        return self._choose(topic, None, self._options.limits.batch_bytes)

    def _by_lane(
        self,
        entries: Entries,
        numbers: Sequence[int] | None,
        topic: str,
        chosen: Sequence[int] | int,
    ) -> list[Part]:
        if isinstance(chosen, int):
            return [(self.lane(topic, chosen), entries, numbers)]
        places: dict[int, list[int]] = {number: [] for number in dict.fromkeys(chosen)}
        for place, number in enumerate(chosen):
            places[number].append(place)
        return [
            (
                self.lane(topic, number),
                entries.pick(own),
                None if numbers is None else [numbers[place] for place in own],
            )
            for number, own in places.items()
        ]

    def close(self) -> None:
        """Take no other lane from now on."""
        self._is_closed = True

    def append_numbered(self, lane: Lane, data: bytes, last: int) -> None:
        """Append batches with numbers up to `last`. Raises as `Output.write`."""
        lane.write(data)
        self._ids.appended(lane.output.name, last)

    # --- dedup numbers -------------------------------------------------------------------------

    def begin_run(self, base: int) -> None:
        """What comes goes into a new run, in which numbers from `base` on can be told."""
        for lane in self._lanes.values():
            lane.flush()
        self._writer.end_run()
        self._ids.begin_run(base)
        self._writer.dedup_base = base

    def check_numbered(self, *, is_numbered: bool) -> None:
        """Records have numbers exactly if the publisher has a dedup id. Raises InvalidId."""
        if is_numbered and self._options.dedup_id is None:
            raise InvalidId("ids mean something only with a dedup_id: give one to the publisher")
        if not is_numbered and self._options.dedup_id is not None:
            raise InvalidId(f"with dedup_id {self._options.dedup_id!r} every record needs an id")

    def check_partition(self, partition: int | None) -> None:
        """Raise ValueError unless the publisher has this partition."""
        if partition is not None and not 0 <= partition < self._options.partitions:
            raise ValueError(
                f"partition {partition} is not one of the publisher's {self._options.partitions}: "
                "set partitions"
            )

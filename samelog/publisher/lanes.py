"""All lanes of a publisher: which one a record takes, and which dedup numbers may follow.

Invariant: a record's lane depends on its key alone if it has one, and equal keys have equal
partitions in every Kafka client and here; dedup numbers rise, across lanes and runs. Not
thread-safe: the publisher's lock is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from samelog.format import _kernels as kernels
from samelog.publisher.dedup_ids import DedupIds
from samelog.publisher.errors import InvalidId, PublisherClosed
from samelog.publisher.lane import Lane
from samelog.publisher.options import PublisherOptions
from samelog.publisher.positions import TopicPartition
from samelog.publisher.records import NumberedRecord, RecordColumns
from samelog.publisher.session_writer import SessionWriter

if TYPE_CHECKING:
    from typing_extensions import Buffer

LanePart = tuple[Lane, RecordColumns, Sequence[int] | None]
"""The records that take one lane, with their dedup numbers."""
RunPart = tuple[int | None, list[LanePart]]
"""Records that go into one run; a new one with this base, if that is not None."""
Names = Sequence[TopicPartition] | TopicPartition
"""Where each record goes, or all."""


_POSITIVE = 0x7FFFFFFF


class Partitioner:
    """Chooses the partition of each record of one topic, as Kafka's own producers do, so that both
    can write one topic.

    A key decides by murmur2 (Apache Kafka, `org.apache.kafka.common.utils.Utils.toPositive`).
    Records without a key stick to one partition until it has had a batch's worth of bytes, then go
    on to the next: KIP-480, but round robin instead of random.
    """

    __slots__ = ("_current", "_room_bytes", "_sticky_bytes", "partitions")

    def __init__(self, partitions: int, sticky_bytes: int) -> None:
        self.partitions = partitions
        self._sticky_bytes = sticky_bytes
        self._room_bytes = sticky_bytes
        self._current = 0

    def of_key(self, key: Buffer) -> int:
        """The partition of every record with this key."""
        return (kernels.murmur2(key) & _POSITIVE) % self.partitions

    def of_keys(self, keys: Sequence[Buffer | None], keyless: int) -> list[int]:
        """The partitions of records with these keys; of those without one, `keyless`."""
        count, hashed = self.partitions, kernels.murmur2
        return [keyless if key is None else (hashed(key) & _POSITIVE) % count for key in keys]

    def sticky(self, size_bytes: int) -> int:
        """The partition of `size_bytes` of records without a key."""
        if self._room_bytes <= 0:
            self._current = (self._current + 1) % self.partitions
            self._room_bytes = self._sticky_bytes
        self._room_bytes -= size_bytes
        return self._current


class Lanes:
    """The lanes of one publisher, made when they are first taken."""

    def __init__(self, writer: SessionWriter, options: PublisherOptions) -> None:
        self._writer = writer
        self._options = options
        self._lanes: dict[tuple[str, int], Lane] = {}
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

    def choose(
        self, topic: str | None, partition: int | None, key: Buffer | None, value: Buffer | None
    ) -> Lane:
        """The lane of a record: of `partition`, else of the one that its key, or its size, decides.

        Raises InvalidName; ValueError unless the publisher has this partition.
        """
        if topic is None:
            topic = self._options.topic
        if partition is not None:
            self.check_partition(partition)
        elif self._options.partitions == 1:
            partition = 0
        elif key is not None:
            partition = self._partitioner(topic).of_key(key)
        else:
            size = 0 if value is None else memoryview(value).nbytes
            partition = self._partitioner(topic).sticky(size)
        lane = self._lanes.get((topic, partition))
        return self.lane(topic, partition) if lane is None else lane

    def append_numbered(
        self, record: NumberedRecord, topic: str | None, partition: int | None
    ) -> Lane | None:
        """Append a record, or let it linger; the lane, if a batch begins to linger there with it.

        Raises as `Output.write`: nothing was appended.
        """
        lane, number = self.choose(topic, partition, record.key, record.value), record.number
        self._ids.check((number,))
        if self._ids.needs_new_run(lane.output.name, number):
            self.begin_run(number)
        is_first = False
        if self._options.linger_s > 0:
            is_first = lane.add(*record)
        else:
            lane.write(lane.build(record.as_columns()))
        self._ids.appended(lane.output.name, number)
        return lane if is_first else None

    def _partitioner(self, topic: str) -> Partitioner:
        partitioner = self._partitioners.get(topic)
        if partitioner is None:
            partitioner = Partitioner(self._options.partitions, self._options.limits.batch_bytes)
            self._partitioners[topic] = partitioner
        return partitioner

    # --- many records --------------------------------------------------------------------------

    def split(
        self,
        columns: RecordColumns,
        numbers: Sequence[int] | None,
        topic: str | None,
        partition: int | None,
    ) -> list[RunPart]:
        """The records by run and lane, in order within each; those without a key stay together.

        Raises InvalidId, InvalidName.
        """
        topic = topic or self._options.topic
        chosen = self._partitions_of(columns, topic, partition)
        if numbers is None:
            return [(None, self._by_lane(columns, None, topic, chosen))]
        self._ids.check(numbers)
        pieces: list[RunPart] = []
        names = self._named(topic, chosen)
        for start, stop, is_new in self._ids.cut_into_runs(names, numbers):
            own = chosen if isinstance(chosen, int) else chosen[start:stop]
            parts = self._by_lane(columns.cut(start, stop), numbers[start:stop], topic, own)
            pieces.append((numbers[start] if is_new else None, parts))
        return pieces

    def _partitions_of(
        self, columns: RecordColumns, topic: str, partition: int | None
    ) -> Sequence[int] | int:
        """Where each record goes, or all."""
        if partition is not None or self._options.partitions == 1:
            return partition or 0
        keyless = self._choose_keyless(topic, columns.keys)
        if columns.keys is None:
            return keyless
        return self._partitioner(topic).of_keys(columns.keys, keyless)

    def _named(self, topic: str, chosen: Sequence[int] | int) -> Names:
        if isinstance(chosen, int):
            return TopicPartition(topic, chosen)
        names = [TopicPartition(topic, number) for number in range(self._options.partitions)]
        return [names[number] for number in chosen]

    def _choose_keyless(self, topic: str, keys: Sequence[Buffer | None] | None) -> int:
        if keys is not None and None not in keys:
            return 0
        return self._partitioner(topic).sticky(self._options.limits.batch_bytes)

    def _by_lane(
        self,
        columns: RecordColumns,
        numbers: Sequence[int] | None,
        topic: str,
        chosen: Sequence[int] | int,
    ) -> list[LanePart]:
        if isinstance(chosen, int):
            return [(self.lane(topic, chosen), columns, numbers)]
        indexes: dict[int, list[int]] = {number: [] for number in dict.fromkeys(chosen)}
        for index, number in enumerate(chosen):
            indexes[number].append(index)
        return [
            (
                self.lane(topic, number),
                columns.pick(own),
                None if numbers is None else [numbers[index] for index in own],
            )
            for number, own in indexes.items()
        ]

    def close(self) -> None:
        """Take no other lane from now on."""
        self._is_closed = True

    def write_numbered(self, lane: Lane, data: bytes, last: int) -> None:
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
        """Raise ValueError unless the publisher has this partition, or it is None."""
        if partition is not None and not 0 <= partition < self._options.partitions:
            raise ValueError(
                f"partition {partition} is not one of the publisher's {self._options.partitions}: "
                "set partitions"
            )

"""All lanes of a publisher: which one a record takes, and which dedup numbers may follow.

A lane has the records on their way into one partition. A record that lingers is in memory only; it
is written when its batch is full, when the linger time is over, on flush and on close. A batch that
could not be written (no room) is kept, and goes first.

Invariant: a record's lane depends on its key alone if it has one, and equal keys have equal
partitions in every Kafka client and here; dedup numbers rise, across lanes and runs. Not
thread-safe: the publisher's lock is held.
Also: records reach the file in the order in which they came, each exactly once. Nothing
lingers much longer than it may, unless it cannot be written; then it stays in its lane, is tried
again, and the next append to that lane raises the reason.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from samelog.format import _kernels as kernels
from samelog.format.arguments import check_integer, shown
from samelog.format.compression import Codec
from samelog.format.errors import LogFormatError
from samelog.format.numbers import PARTITIONS
from samelog.publisher.dedup_ids import DedupIds, sequence_of, stretches
from samelog.publisher.errors import InvalidId, PublisherClosed
from samelog.publisher.options import PublisherOptions
from samelog.publisher.output import Output
from samelog.publisher.packing_output import PackingOutput
from samelog.publisher.records import BatchLimits, NumberedRecord, RecordColumns, TopicPartition
from samelog.publisher.session_writer import SessionWriter
from samelog.replicator.client_errors import PublisherError

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

    def __init__(self, output: Output | PackingOutput, limits: BatchLimits) -> None:
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

    def __init__(
        self,
        writer: SessionWriter,
        options: PublisherOptions,
        learn: Callable[[str], int] = lambda topic: 0,
    ) -> None:
        """`learn`: how many partitions a topic has in the cluster; 0: not known."""
        self._learn = learn
        self._counts: dict[str, int] = {}
        self._told: Mapping[str, int] = {}
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
            output, codec = self._writer.output(topic, partition), self._options.codec
            way = output if codec is Codec.NONE else PackingOutput(output, codec)
            self._lanes[name] = lane = Lane(way, self._options.limits)
        return lane

    # --- partitions ---------------------------------------------------------------------------

    def count(self, topic: str) -> int:
        """How many partitions a topic has: as the cluster says, once it did; else as was given.
        Publishers that share ids must not differ, or ids are merged in two partitions: for them
        the given number always counts.
        """
        known = self._counts.get(topic)
        if known is None:
            given = self._options.partitions or 1
            learned = self._learn(topic)
            self._counts[topic] = known = given if self._is_fixed else learned or given
            self._check_idea(topic, learned)
            self.learned(self._told)  # while the first answer was given up
        return known

    @property
    def _is_fixed(self) -> bool:
        return self._options.dedup_id is not None or self._options.stage is not None

    def learned(self, topics: Mapping[str, int]) -> None:
        """The cluster says how many partitions topics have. May be called from another thread."""
        self._told = topics
        for topic, count in topics.items():
            known = self._counts.get(topic)
            if count and known not in (None, count):
                if not self._is_fixed:
                    self._counts[topic] = count
                log.info("topic %s has %d partitions now, not %s", topic, count, known)

    def _check_idea(self, topic: str, learned: int) -> None:
        given = self._options.partitions
        if given is not None and learned not in (0, given):
            counts = given if self._is_fixed else learned
            text = "topic %s has %d partitions, the publisher was given %d: %d count"
            log.warning(text, topic, learned, given, counts)

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
            partition = self.check_partition(topic, partition)
        elif self.count(topic) == 1:
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
        count = self.count(topic)
        if partitioner is None or partitioner.partitions != count:
            partitioner = Partitioner(count, self._options.limits.batch_bytes)
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
        if partition is not None or self.count(topic) == 1:
            return partition or 0
        keyless = self._choose_keyless(topic, columns.keys)
        if columns.keys is None:
            return keyless
        return self._partitioner(topic).of_keys(columns.keys, keyless)

    def _named(self, topic: str, chosen: Sequence[int] | int) -> Names:
        if isinstance(chosen, int):
            return TopicPartition(topic, chosen)
        names = [TopicPartition(topic, number) for number in range(max(chosen) + 1)]
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

    def writes(
        self, lane: Lane, part: RecordColumns, numbers: Sequence[int] | None
    ) -> list[Callable[[], None]]:
        """Records as batches, and how each stretch of them is written."""
        if numbers is None:
            return [partial(lane.write, lane.build(part))]
        return [
            partial(
                self._write_numbered,
                lane,
                lane.build(part.cut(start, stop, numbers[start])),
                numbers[stop - 1],
            )
            for start, stop in stretches(numbers)
        ]

    def _write_numbered(self, lane: Lane, data: bytes, last: int) -> None:
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

    def checked_partition(self, topic: str | None, partition: int | None) -> int | None:
        """Return the partition as an int, None if none is given."""
        return None if partition is None else self.check_partition(topic, partition)

    def check_partition(self, topic: str | None, partition: int) -> int:
        """Return the partition as an int. Raises ValueError unless the topic has it, and TypeError
        unless it is an integer.
        """
        name = topic or self._options.topic
        if type(partition) is not int:
            partition = check_integer("partition", partition, PARTITIONS)
        count = self.count(name)
        if not 0 <= partition < count:
            raise ValueError(
                f"partition {shown(partition)} is not one of the {count} of topic {name!r}: "
                "set partitions, or samelog topic add-partitions"
            )
        return partition

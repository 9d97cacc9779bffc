"""The partitions of a group: how far each is planned, and what is known of its log.

Invariant: a number is given to one partition only, ever.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from samelog.archiver.compaction import HasCompactions
from samelog.format.numbers import Unsigned32
from samelog.sequencer.state.command_base import Command
from samelog.sequencer.state.instructions import VoidRecordsCommand


class Checkpoint(Command, frozen=True, tag=7):
    """Checksums that a majority agrees on: (partition, offset, running checksum up to it)."""

    values: list[tuple[int, int, int]]


class Partition(HasCompactions, msgspec.Struct, gc=False):
    """One merged log: what comes next in it, and its last agreed checksum. There are many, most of
    which nothing was written to: these share their empty tuples.
    """

    number: Unsigned32
    topic_id: str
    index: int
    next_offset: int = 0
    segment_bytes: int = 0
    segment_started_ms: int = 0
    append_ms: int = -1
    checked_offset: int = 0
    checked_sum: int | None = 0
    """None: records were given up since. Then `checked_offset` is up to where the log was planned:
    what was sampled up to there may be of what was given up.
    """
    voids: tuple[VoidRecordsCommand, ...] = ()
    """Records that no node had any more, as given up."""
    log_start: int = 0
    """Records below this offset are archived."""
    start_segment: int = 0
    """The first segment that is kept: it holds `log_start`."""
    start_checksum: int = 0
    """The running checksum where it begins."""
    rolls: tuple[tuple[int, int], ...] = ()
    """(base offset, append time in ms of its first instruction) of the later segments, in order."""
    schema_since: tuple[tuple[int, int], ...] = ()
    """(offset, version): from there on, that version of the topic's schema was in force."""
    came: Unsigned32 = 0
    """The task that moved it into this group, where it may have been before; 0: it was created in
    it. Files of its earlier stays are not files of this one.
    """

    def given_up(self, command: VoidRecordsCommand) -> VoidRecordsCommand | str | None:
        """The earlier command that has given up these records, or why they cannot be given up;
        None: they can.
        """
        first, behind = command.base_offset, command.next_offset
        if not 0 <= first < behind <= self.next_offset:
            return f"offsets {first} to {behind} are not all planned"
        for known in self.voids:
            if (known.base_offset, known.next_offset) == (first, behind):
                return known  # proposed twice, because its fate was not known
            if first < known.next_offset and known.base_offset < behind:
                return f"some offsets from {first} to {behind} are void"
        return None

    def begin_version(self, version: int) -> None:
        """A version of the topic's schema is in force from the next offset on."""
        since = self.schema_since
        if since and since[-1][0] == self.next_offset:
            since = since[:-1]  # no record has it
        self.schema_since = (*since, (self.next_offset, version))


GONE = Partition(0, "", 0, next_offset=-1)
"""Of a topic that was deleted."""
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Partition)


class PartitionsTable(msgspec.Struct):
    """All partitions of a group. The metadata group has those of data groups, too, empty."""

    by_number: dict[int, Partition] = {}
    next_number: int = 1

    def put(self, partition: Partition) -> None:
        """Add a partition, or replace the one of that number."""
        self.by_number[partition.number] = partition
        self.next_number = max(self.next_number, partition.number + 1)

    def agree(self, command: Checkpoint) -> Checkpoint:
        """Agree on checksums; return those that are news."""
        news = []
        for number, offset, checksum in command.values:
            partition = self.by_number.get(number)
            if partition is not None and offset > partition.checked_offset:
                partition.checked_offset, partition.checked_sum = offset, checksum
                news.append((number, offset, checksum))
        return Checkpoint(news)

    def drop(self, numbers: Collection[int]) -> None:
        """See PartitionTable."""
        for number in numbers:
            self.by_number.pop(number, None)

    def renumber(self, moved: Mapping[int, int]) -> None:
        """See PartitionTable. Schema versions begin again, once it is known which are in force."""
        for old, number in moved.items():
            known = self.by_number.pop(old)
            self.put(Partition(number, known.topic_id, known.index))

    def export(self, number: int) -> bytes:
        """See PartitionTable."""
        return _encoder.encode(self.by_number[number])

    def import_(self, number: int, exported: bytes) -> None:
        """See PartitionTable."""
        self.put(decode_partition(exported))

    def give_up(self, command: VoidRecordsCommand) -> None:
        """See PartitionTable. What was agreed of a checksum may be of these records."""
        partition = self.by_number[command.partition]
        partition.voids = (*partition.voids, command)
        partition.checked_offset, partition.checked_sum = partition.next_offset, None

    def expire(self, producers: Collection[int]) -> None:
        """See PartitionTable: it has no facts about producers."""


def decode_partition(exported: bytes) -> Partition:
    """What `Partitions.export` has written."""
    return _decoder.decode(exported)

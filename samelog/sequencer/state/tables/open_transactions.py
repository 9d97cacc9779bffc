"""Transactions in the logs of a group: those that are open there, and the newest that ended.

Invariant: a producer's transactions are numbered and follow each other in every log: one begins
only behind the marker of the one before, and a marker counts once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from samelog.format.numbers import Unsigned32
from samelog.sequencer.state.command_base import Command
from samelog.sequencer.state.instructions import Begin, End, Merge, MergeExtras, VoidRecordsCommand


class TakePart(Command, frozen=True, tag=85):
    """In a data group: these partitions of it take part in a producer's transaction, as group 0 has
    it.
    """

    producer_id: int
    epoch: int
    number: int
    partitions: list[Unsigned32]


OpenTransaction = tuple[int, int, int]
"""(partition, producer id, number)."""


class OpenInLog(msgspec.Struct, frozen=True, array_like=True):
    """A transaction that is open in a log, and where it began there."""

    epoch: int
    number: int
    first_offset: int
    at_ms: int


class EndedInLog(msgspec.Struct, frozen=True, array_like=True):
    """A producer's newest transaction that ended in a log; older epochs are fenced there."""

    epoch: int
    number: int
    coordinator_epoch: int


class JoinedInLog(msgspec.Struct, frozen=True, array_like=True):
    """A transaction that may have batches in a log, as the log's group knows it."""

    epoch: int
    number: int


class LogTransactions(msgspec.Struct):
    """Of one partition, by producer id."""

    open: dict[int, OpenInLog] = {}
    ended: dict[int, EndedInLog] = {}
    joined: dict[int, JoinedInLog] = {}
    """Of a data group, which asks nothing of the coordinator when it applies an instruction."""

    def first_open(self) -> int | None:
        """Where the oldest one that is open begins."""
        return min((each.first_offset for each in self.open.values()), default=None)

    def has_ended(self, end: Begin | End) -> bool:
        """Whether a transaction has its marker."""
        known = self.ended.get(end.producer_id)
        return known is not None and end.number <= known.number


_NOTHING = LogTransactions()
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(LogTransactions)


class OpenTransactionsTable(msgspec.Struct):
    """Those of all partitions of a group."""

    by_partition: dict[int, LogTransactions] = {}

    def in_log(self, partition: int) -> LogTransactions:
        """What is known of a partition's log; not to be changed."""
        return self.by_partition.get(partition, _NOTHING)

    def stable_offset(self, partition: int, next_offset: int) -> int:
        """Below it, every transaction of what is planned is decided, with its marker in place."""
        first = self.in_log(partition).first_open()
        return next_offset if first is None else first

    def problem_with(self, partition: int, extras: MergeExtras) -> str | None:
        """Why an instruction cannot be applied; None if it can."""
        log = self.in_log(partition)
        for begin in extras.begins:
            if begin.producer_id in log.open or log.has_ended(begin):
                return f"transaction {begin.number} of producer {begin.producer_id} is over"
        for end in extras.ends:
            if log.has_ended(end):
                return f"transaction {end.number} of producer {end.producer_id} has its marker"
        return None

    def merged(self, merge: Merge, extras: MergeExtras) -> None:
        """Apply an instruction with which nothing is wrong."""
        log = self.by_partition.setdefault(merge.partition, LogTransactions())
        for begin in extras.begins:
            log.open[begin.producer_id] = OpenInLog(
                begin.epoch, begin.number, begin.offset, merge.append_ms
            )
        for end in extras.ends:
            log.open.pop(end.producer_id, None)
            log.joined.pop(end.producer_id, None)
            log.ended[end.producer_id] = EndedInLog(end.epoch, end.number, merge.epoch)

    def take_part(self, command: TakePart) -> list[int]:
        """In a data group: let partitions take part in a transaction, unless it is over in some,
        which are returned.
        """
        late = [each for each in command.partitions if self.is_over(each, command)]
        for number in command.partitions if not late else ():
            log = self.by_partition.setdefault(number, LogTransactions())
            log.joined[command.producer_id] = JoinedInLog(command.epoch, command.number)
        return late

    def is_over(self, partition: int, part: TakePart) -> bool:
        """In a data group: whether a transaction has its marker, or a newer one takes part."""
        log = self.in_log(partition)
        ended, joined = log.ended.get(part.producer_id), log.joined.get(part.producer_id)
        is_ended = ended is not None and part.number <= ended.number
        return is_ended or (joined is not None and part.number < joined.number)

    def is_open(self, partition: int, producer_id: int, number: int) -> bool:
        """Whether this transaction of a producer is open in a partition."""
        opened = self.in_log(partition).open.get(producer_id)
        return opened is not None and opened.number == number

    def has_any(self, producer_id: int) -> bool:
        """Whether a transaction of a producer is open, or may have batches, in a log."""
        return any(
            producer_id in log.joined or producer_id in log.open
            for log in self.by_partition.values()
        )

    def drop(self, numbers: Collection[int]) -> None:
        """See PartitionTable."""
        for number in numbers:
            self.by_partition.pop(number, None)

    def renumber(self, moved: Mapping[int, int]) -> None:
        """See PartitionTable. Nothing is open in a log that is empty."""
        self.drop(moved)

    def export(self, number: int) -> bytes:
        """See PartitionTable."""
        return _encoder.encode(self.in_log(number))

    def import_(self, number: int, exported: bytes) -> None:
        """See PartitionTable."""
        log = _decoder.decode(exported)
        if log != _NOTHING:
            self.by_partition[number] = log

    def give_up(self, command: VoidRecordsCommand) -> None:
        """See PartitionTable: transactions end by their markers, as planned."""

    def expire(self, producers: Collection[int]) -> None:
        """See PartitionTable. They have no transactional id any more."""
        for log in self.by_partition.values():
            for producer in producers:
                log.ended.pop(producer, None)

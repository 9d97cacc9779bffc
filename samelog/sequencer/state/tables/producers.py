"""What is remembered of idempotent producers' batches, so that a retry is recognised.

Invariant: the newest five batches of a producer's newest epoch, as in Kafka's broker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from samelog.sequencer.state.instructions import Sequence5, VoidRecordsCommand

BATCHES_REMEMBERED = 5


class _Exported(msgspec.Struct, frozen=True, array_like=True):
    """A producer's batches in one partition, and the append time (ms) of its newest anywhere."""

    producer: int
    batches: list[Sequence5]
    seen_ms: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[_Exported])


class ProducersTable(msgspec.Struct):
    """All idempotent producers that are remembered."""

    batches: dict[int, dict[int, list[Sequence5]]] = {}
    """Producer id -> partition -> its last batches, oldest first."""
    seen_ms: dict[int, int] = {}
    """Producer id -> append time (ms) of its newest batch."""

    def learn(self, partition: int, sequences: Iterable[Sequence5], append_ms: int) -> None:
        """An instruction has merged these batches into a partition."""
        for sequence in sequences:
            known = self.batches.setdefault(sequence.producer_id, {})
            remember(known.setdefault(partition, []), sequence)
            self.seen_ms[sequence.producer_id] = append_ms

    def take(self, partition: int, producer: int, batches: list[Sequence5], seen_ms: int) -> None:
        """What another log knew of a producer counts in this partition from now on."""
        self.batches.setdefault(producer, {})[partition] = batches
        self.seen_ms[producer] = max(seen_ms, self.seen_ms.get(producer, 0))

    def drop(self, numbers: Collection[int]) -> None:
        """See PartitionTable."""
        gone = set(numbers)
        for known in self.batches.values():
            for number in gone.intersection(known):
                del known[number]

    def renumber(self, moved: Mapping[int, int]) -> None:
        """See PartitionTable. Retries are still recognised; their offsets were the old log's."""
        for known in self.batches.values():
            for number in [each for each in known if each in moved]:
                batches = known.pop(number)
                known[moved[number]] = [msgspec.structs.replace(b, offset=-1) for b in batches]

    def export(self, number: int) -> bytes:
        """See PartitionTable."""
        return _encoder.encode(
            [
                _Exported(producer, known[number], self.seen_ms.get(producer, 0))
                for producer, known in self.batches.items()
                if number in known
            ]
        )

    def import_(self, number: int, exported: bytes) -> None:
        """See PartitionTable."""
        for each in _decoder.decode(exported):
            self.take(number, each.producer, each.batches, each.seen_ms)

    def give_up(self, command: VoidRecordsCommand) -> None:
        """See PartitionTable: a retry of a batch that was given up is a duplicate all the same."""

    def expire(self, producers: Collection[int]) -> None:
        """See PartitionTable."""
        for producer in producers:
            self.seen_ms.pop(producer, None)
            self.batches.pop(producer, None)


def remember(batches: list[Sequence5], sequence: Sequence5) -> None:
    """Add a batch to a producer's memory, forgetting those of an older epoch and all but the newest
    few.
    """
    if batches and batches[-1].epoch != sequence.epoch:
        batches.clear()
    batches.append(sequence)
    del batches[:-BATCHES_REMEMBERED]

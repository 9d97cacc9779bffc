"""Leader epochs: how far those of each partition are above the terms of its group.

Invariant: the leader epochs of a partition rise, whatever group it is in and however often its log
is restarted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from samelog.placement.values import EPOCHS_PER_MOVE
from samelog.sequencer.state.instructions import VoidRecordsCommand

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(int)


class EpochsTable(msgspec.Struct):
    """`base` plus Raft's term is the leader epoch: it rises with every hard reset. The epochs of
    the present logs are at least `first`.
    """

    base: int = 0
    first: int = 0
    by_partition: dict[int, int] = {}
    """What is added to `base` for a partition, if anything is."""

    def base_of(self, number: int) -> int:
        """How far the leader epochs of a partition are above the terms of this group."""
        return self.base + self.by_partition.get(number, 0)

    def drop(self, numbers: Collection[int]) -> None:
        """See PartitionTable."""
        for number in numbers:
            self.by_partition.pop(number, None)

    def renumber(self, moved: Mapping[int, int]) -> None:
        """See PartitionTable."""
        for old, number in moved.items():
            if old in self.by_partition:
                self.by_partition[number] = self.by_partition.pop(old)

    def export(self, number: int) -> bytes:
        """See PartitionTable."""
        return _encoder.encode(self.base_of(number))

    def import_(self, number: int, exported: bytes) -> None:
        """See PartitionTable. Terms of this group may be lower than those of the other one."""
        self.by_partition[number] = _decoder.decode(exported) + EPOCHS_PER_MOVE

    def give_up(self, command: VoidRecordsCommand) -> None:
        """See PartitionTable: void batches have the epochs of the records before them."""

    def expire(self, producers: Collection[int]) -> None:
        """See PartitionTable: it has no facts about producers."""

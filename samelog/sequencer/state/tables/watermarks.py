"""The highest record id that was merged under each dedup id.

Invariant: within a partition, the watermark of a dedup id never falls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from samelog.sequencer.state.instructions import VoidRecordsCommand

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(dict[str, int])


class WatermarksTable(msgspec.Struct):
    """Those of all dedup ids."""

    by_dedup_id: dict[str, dict[int, int]] = {}
    """Dedup id -> partition -> highest id merged."""

    def learn(self, partition: int, watermarks: Iterable[tuple[str, int]]) -> None:
        """An instruction has raised these in a partition."""
        for dedup_id, highest in watermarks:
            self.by_dedup_id.setdefault(dedup_id, {})[partition] = highest

    def drop(self, numbers: Collection[int]) -> None:
        """See PartitionTable."""
        gone = set(numbers)
        for known in self.by_dedup_id.values():
            for number in gone.intersection(known):
                del known[number]

    def renumber(self, moved: Mapping[int, int]) -> None:
        """See PartitionTable. What was merged is never merged again, so watermarks stay."""
        for known in self.by_dedup_id.values():
            for number in [each for each in known if each in moved]:
                known[moved[number]] = known.pop(number)

    def export(self, number: int) -> bytes:
        """See PartitionTable."""
        return _encoder.encode(
            {name: known[number] for name, known in self.by_dedup_id.items() if number in known}
        )

    def import_(self, number: int, exported: bytes) -> None:
        """See PartitionTable."""
        self.learn(number, _decoder.decode(exported).items())

    def give_up(self, command: VoidRecordsCommand) -> None:
        """See PartitionTable: ids of records that were given up count as merged."""

    def expire(self, producers: Collection[int]) -> None:
        """See PartitionTable: a dedup id is no producer."""

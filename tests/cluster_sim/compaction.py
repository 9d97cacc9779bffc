"""Compaction in a world: records with keys, and what must be left of them.

The model knows records and orders, and nothing of batches. What the first node has of a compacted
segment is held against it; all others must have the same bytes.

Invariant: looking changes nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from samelog.archiver.compaction import CompactCommand
from samelog.archiver.compaction_plan import DELETE_RETENTION_MS, MIN_CLEANABLE_RATIO
from samelog.archiver.policy import CLEANUP_POLICY
from samelog.format import _kernels as kernels
from samelog.format.compression import decompress
from tests.cluster_sim.violation import Violation

if TYPE_CHECKING:
    from tests.cluster_sim.canonical import CanonicalLog
    from tests.cluster_sim.options import Options

TOMBSTONES = 0.2


def keyed(chance: random.Random, options: Options, values: list[bytes]) -> bytes:
    """Batches of these records, with keys; a tombstone says in a header whose it is."""
    is_tombstone = [chance.random() < TOMBSTONES for _ in values]
    return kernels.build_batches(
        [None if dead else value for value, dead in zip(values, is_tombstone, strict=True)],
        keys=[b"key %d" % chance.randrange(options.keys) for _ in values],
        headers=[
            [("said", value)] if dead else []
            for value, dead in zip(values, is_tombstone, strict=True)
        ],
        timestamps=1,
        batch_bytes=1 << 14,
        max_record_bytes=1 << 20,
    )


def compacts(options: Options) -> dict[str, str]:
    """The settings of a compacted topic."""
    return {
        CLEANUP_POLICY: "compact" if options.retention_bytes < 0 else "compact,delete",
        DELETE_RETENTION_MS: str(options.tombstones_stay_ms),
        MIN_CLEANABLE_RATIO: "0",
    }


@dataclass(slots=True)
class CompactedLog:
    """What was ordered for one log, and what nodes have of it."""

    orders: dict[int, CompactCommand] = field(default_factory=dict)
    seen: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """(number of the compaction, base offset) -> the segment, as the first node had it."""
    stop: int = 0
    """Up to where anything was ever ordered."""
    stay_ms: int = 0
    """How long tombstones stay."""

    def ordered(self, order: CompactCommand) -> None:
        """An order is committed."""
        self.orders[order.number] = order
        self.stop = max(self.stop, order.stop)

    def look(self, who: str, log: CanonicalLog, at: tuple[int, int, int], data: bytes) -> None:
        """A node has a compacted segment. `at`: number, first offset, offset behind it."""
        number, base, _ = at
        known = self.seen.setdefault((number, base), data)
        if known != data:
            raise Violation(
                "compacted logs differ", f"{who} has another segment {base} of compaction {number}"
            )
        if known is data:
            self._judge(who, log, at, data)

    def holds(self, base: int, begin: int, data: memoryview) -> bool:
        """Whether a compacted segment that begins there has these bytes."""
        segments = (each for (_, first), each in self.seen.items() if first == base)
        return any(each[begin : begin + len(data)] == data for each in segments)

    def _judge(self, who: str, log: CanonicalLog, at: tuple[int, int, int], data: bytes) -> None:
        number, base, stop = at
        order = self.orders.get(number)
        if order is None:
            raise Violation("compaction is ordered", f"{who} has compaction {number}, unasked")
        records = kernels.decode_records(data, 0, len(data), "t", 0, decompress)
        found = {record.offset: record for record in records}
        if [*found] != sorted(found):
            raise Violation("compaction keeps order", f"{who}: {[*found]}")
        for offset, must, may in self._expected(log, order):
            if not base <= offset < stop:
                continue
            if must and offset not in found:
                raise Violation("the newest stays", f"{who} lacks {offset} in {number}:{base}")
            if offset in found and not may:
                raise Violation("the others go", f"{who} still has {offset} in {number}:{base}")

    def _expected(self, log: CanonicalLog, order: CompactCommand) -> list[tuple[int, bool, bool]]:
        """(offset, whether it must be there, whether it may)."""
        below = [each for each in log.keyed if each[0] < order.stop]
        newest = {key: offset for offset, key, _ in below}
        gone = self._may_go(order)
        return [
            (offset, is_newest and not (dead and offset < gone), is_newest)
            for offset, key, dead in below
            for is_newest in [newest[key] == offset]
        ]

    def _may_go(self, order: CompactCommand) -> int:
        """Tombstones below were there in a compaction that is old enough."""
        return max(
            (
                each.stop
                for each in self.orders.values()
                if each.number < order.number and each.at_ms <= order.at_ms - self.stay_ms
            ),
            default=0,
        )

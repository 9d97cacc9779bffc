"""A merged log of records with keys, what compaction must leave of it, and compacting it.

Invariant: the model keeps records in a dict, and knows nothing of batches.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from samelog.format import _kernels as kernels
from samelog.format.compaction import CompactedSegment
from samelog.format.compression import Codec, compress, decompress
from samelog.format.transactions import marker_batch
from samelog.store.merged.log import MergedLog
from samelog.store.merged.rewriting import Rewriting
from tests.store.storage import FS, open_merged, sync_merged

SEED = bytes(range(16))
Kept = tuple[int, bytes | None, bytes | None]
"""(offset, key, value) of a record."""


@dataclass(frozen=True)
class Order:
    """What the cluster decided."""

    number: int = 1
    seed: bytes = SEED
    tombstones_below: int = 0
    segment_bytes: int = 1 << 20


@dataclass
class KeyedLog:
    """A merged log under test, and its records."""

    log: MergedLog
    records: list[Kept] = field(default_factory=list)
    dropped: set[int] = field(default_factory=set)
    """Offsets of aborted transactions."""
    producers: int = 0

    def append(
        self,
        pairs: list[tuple[bytes | None, bytes | None]],
        *,
        codec: Codec = Codec.NONE,
        producer: int = -1,
        is_transactional: bool = False,
    ) -> int:
        """One batch; its first offset."""
        data = _batch(pairs, codec, producer, is_transactional=is_transactional)
        first = self.log.next_offset
        self.log.append(data, base_offset=first, leader_epoch=3)
        self.records += [(first + n, *pair) for n, pair in enumerate(pairs)]
        return first

    def transact(self, pairs: list[tuple[bytes | None, bytes | None]], *, is_commit: bool) -> None:
        """One transaction of one batch, and its marker."""
        self.producers += 1
        first = self.append(pairs, producer=self.producers, is_transactional=True)
        if not is_commit:
            self.dropped.update(range(first, self.log.next_offset))
        marker = marker_batch(self.producers, 0, is_commit=is_commit, coordinator_epoch=1, at_ms=5)
        self.log.append(marker, base_offset=self.log.next_offset, leader_epoch=3)

    def expected(self, stop: int, tombstones_below: int = 0) -> list[Kept]:
        """What compaction below `stop` leaves."""
        below = [r for r in self.records if r[0] < stop and r[0] not in self.dropped]
        newest = {key: offset for offset, key, _ in below}
        kept = [
            (offset, key, value)
            for offset, key, value in below
            if key is None
            or (newest[key] == offset and not (value is None and offset < tombstones_below))
        ]
        return kept + [record for record in self.records if record[0] >= stop]


def _batch(
    pairs: list[tuple[bytes | None, bytes | None]],
    codec: Codec,
    producer: int,
    *,
    is_transactional: bool,
) -> bytearray:
    data = bytearray(
        kernels.build_batches(
            [value for _, value in pairs],
            keys=[key for key, _ in pairs],
            timestamps=1000,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=0 if producer >= 0 else -1,
            batch_bytes=1 << 20,
            max_record_bytes=1 << 20,
        )
    )
    if codec is Codec.NONE and not is_transactional:
        return data
    body = compress(codec, bytes(data[61:])) if codec is not Codec.NONE else bytes(data[61:])
    attributes = int(codec) | (0x10 if is_transactional else 0)
    head = bytearray(data[:61])
    head[21:23] = attributes.to_bytes(2, "big")
    head[8:12] = (49 + len(body)).to_bytes(4, "big")
    head[17:21] = kernels.crc32c(bytes(head[21:]) + body).to_bytes(4, "big")
    return head + body


def random_log(path: Path, seed: int, *, segments: int = 4, keys: int = 12) -> KeyedLog:
    """A durable log of some segments, the last of them growing."""
    source, keyed = random.Random(seed), KeyedLog(open_merged(path))
    for _ in range(segments):
        keyed.log.roll()
        for _ in range(source.randint(1, 12)):
            pairs = [_pair(source, keys) for _ in range(source.choice([1, 1, 2, 5]))]
            match source.randrange(6):
                case 0:
                    keyed.transact(pairs, is_commit=source.random() < 0.5)
                case 1:
                    keyed.append(pairs, codec=source.choice([Codec.GZIP, Codec.ZSTD]))
                case _:
                    keyed.append(pairs)
    sync_merged(keyed.log)
    keyed.log.save_marks()
    return keyed


def _pair(source: random.Random, keys: int) -> tuple[bytes | None, bytes | None]:
    key = b"key %d" % source.randrange(keys)
    value = None if source.random() < 0.2 else source.randbytes(source.choice([0, 5, 40]))
    return None if source.random() < 0.03 else key, value


def rewrite(
    log: MergedLog, stop: int, order: Order | None = None, *, memory_bytes: int = 1 << 16
) -> list[CompactedSegment]:
    """What all segments below `stop` become; they are in the folder then."""
    order = Order() if order is None else order
    first = log.segments()[0].base_offset
    work = Rewriting(
        FS,
        log.generations.make_folder(order.number),
        log.generations.sources(first, stop),
        order,
        aborted=log.aborted(first, stop),
        memory_bytes=memory_bytes,
    )
    while work.step():
        pass
    return work.written


def read_all(log: MergedLog) -> list[Kept]:
    """Every record of a log but control records."""
    found: list[Kept] = []
    for segment in log.segments():
        data = log.read(segment.base_offset, 0, 1 << 30) if segment.size else b""
        records = kernels.decode_records(data, 0, len(data), "flights", 0, decompress)
        found += [(each.offset, each.key, each.value) for each in records]
    return found

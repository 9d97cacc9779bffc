"""Grows merged logs with transactions, and says what a reader of what is committed has to get."""

from __future__ import annotations

from samelog.format import _kernels as kernels
from samelog.format.transactions import marker_batch
from tests.subscriber.merged import Growing


def transactional(producer: int, *values: bytes, batch_bytes: int = 1 << 20) -> bytearray:
    """Batches of a transaction, as a Kafka producer sends them."""
    data = bytearray(
        kernels.build_batches(
            values,
            keys=[b"k"] * len(values),
            timestamps=1,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            batch_bytes=batch_bytes,
            max_record_bytes=1 << 20,
        )
    )
    for start, size, *_ in kernels.batch_headers(data, 0, len(data)):
        data[start + 22] |= 0x10
        crc = kernels.crc32c(memoryview(data)[start + 21 : start + size])
        data[start + 17 : start + 21] = crc.to_bytes(4, "big")
    return data


class Transactions:
    """One log, and what of it is committed."""

    def __init__(self, growing: Growing) -> None:
        self.growing = growing
        self.open: dict[int, int] = {}
        """Producer -> first offset."""
        self._records: list[tuple[int, bytes, int | None]] = []
        """(offset, value, producer of a transaction that is open)."""
        self._count = 0

    def plain(self, count: int) -> None:
        """Append records of no transaction."""
        offset, values = self.growing.log.next_offset, self._values(count)
        self.growing.append(*values, batch_bytes=100)
        self._records += [(offset + n, value, None) for n, value in enumerate(values)]

    def send(self, producer: int, count: int) -> None:
        """Append records of a transaction, which begins if need be."""
        offset, values = self.growing.log.next_offset, self._values(count)
        self._append(transactional(producer, *values, batch_bytes=100))
        self.open.setdefault(producer, offset)
        self._records += [(offset + n, value, producer) for n, value in enumerate(values)]

    def end(self, producer: int, *, is_commit: bool) -> None:
        """Append a marker."""
        self._append(marker_batch(producer, 0, is_commit=is_commit, coordinator_epoch=1, at_ms=1))
        self.open.pop(producer, None)
        self._records = [
            (offset, value, None if whose == producer else whose)
            for offset, value, whose in self._records
            if is_commit or whose != producer
        ]

    @property
    def stable(self) -> int:
        """Where the oldest open transaction begins, or the end."""
        return min(self.open.values(), default=self.growing.log.next_offset)

    def committed(self, start: int = 0) -> list[bytes]:
        """What there is from an offset on."""
        return [value for offset, value, _ in self._records if start <= offset < self.stable]

    def _values(self, count: int) -> list[bytes]:
        self._count += count
        return [b"%06d" % number for number in range(self._count - count, self._count)]

    def _append(self, data: bytearray) -> None:
        log = self.growing.log
        log.append(data, base_offset=log.next_offset, leader_epoch=1)

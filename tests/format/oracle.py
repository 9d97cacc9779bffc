"""The kernels in plain Python, written from the format and not from the kernels.

Invariant: slow and obvious. Bytes that are not a valid batch raise `Invalid` with the position of
the batch; everything else is a value that the kernel must give too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from samelog.format.compression import decompress

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
UNLIMITED = (1 << 31) - 1

Header = tuple[str, bytes | None]
Fields = tuple[int, int, int, bytes | None, bytes | None, tuple[Header, ...]]


class Invalid(Exception):
    """What a kernel reports as CorruptBatch."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position = position


class Short(Exception):
    """The data stops inside a batch of which nothing so far is invalid."""


class BadRecord(Exception):
    """A record inside a batch is invalid."""


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        state = byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
        table.append(state)
    return table


CRC_TABLE = _crc_table()


def crc32c(data: bytes, value: int = 0) -> int:
    state = value ^ 0xFFFFFFFF
    for byte in data:
        state = state >> 8 ^ CRC_TABLE[(state ^ byte) & 255]
    return state ^ 0xFFFFFFFF


def wrap(number: int) -> int:
    """The signed 64-bit number that is left of any number."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


@dataclass(frozen=True)
class Batch:
    body: bytes
    start: int
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def size(self) -> int:
        return 12 + self.length

    @property
    def span(self) -> int:
        """The offsets that it takes."""
        return self.last_offset_delta + 1

    @property
    def is_sparse(self) -> int:
        """The offsets without a record."""
        return self.span - self.count

    @property
    def append_time(self) -> bool:
        return bool(self.attributes & 8)

    @property
    def codec(self) -> int:
        return self.attributes & 7

    def encode(self) -> bytes:
        """The bytes of the batch, with the length and CRC that fit."""
        tail = struct.pack(
            ">HiqqqhiI",
            self.attributes & 0xFFFF,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count & 0xFFFFFFFF,
        )
        tail += self.body
        head = struct.pack(
            ">qiibI", self.base_offset, len(tail) + 9, self.leader_epoch, self.magic, crc32c(tail)
        )
        return head + tail


def read_batch(data: bytes, start: int, stop: int, limit: int) -> Batch:
    """The batch at `start`, all but its CRC checked."""
    if stop - start < 12:
        raise Short
    length = int.from_bytes(data[start + 8 : start + 12], "big", signed=True)
    if not HEADER_BYTES <= 12 + length <= limit:
        raise Invalid(start, "length")
    if stop - start >= 17 and data[start + 16] != 2:
        raise Invalid(start, "magic")
    if stop - start < HEADER_BYTES:
        raise Short
    body = bytes(data[start + HEADER_BYTES : start + 12 + length])
    batch = Batch(body, start, *HEADER.unpack_from(data, start))
    if batch.attributes & 0xFF80 or batch.codec > 4:
        raise Invalid(start, "attributes")
    if batch.count < 0 or batch.last_offset_delta < 0 or batch.is_sparse < 0:
        raise Invalid(start, "count")
    if start + batch.size > stop:
        raise Short
    return batch


def check_crc(data: bytes, batch: Batch) -> None:
    if crc32c(data[batch.start + 21 : batch.start + batch.size]) != batch.crc:
        raise Invalid(batch.start, "crc")


def read_batches(data: bytes, start: int, stop: int, *, verify_crc: bool) -> Iterator[Batch]:
    while start < stop:
        try:
            batch = read_batch(data, start, stop, UNLIMITED)
        except Short:
            raise Invalid(start, "short") from None
        if verify_crc:
            check_crc(data, batch)
        yield batch
        start += batch.size


def scan(
    data: bytes,
    *,
    start: int = 0,
    stop: int = -1,
    verify_crc: bool = True,
    max_batch_bytes: int = 1024 * 1024 + 64 * 1024,
    max_batches: int = -1,
    max_bytes: int = -1,
) -> dict[str, Any]:
    stop = len(data) if stop == -1 else stop
    taken: list[Batch] = []
    at, error, short = start, False, False
    while at < stop and len(taken) != max_batches:
        try:
            batch = read_batch(data, at, stop, max_batch_bytes)
            if taken and 0 <= max_bytes < at + batch.size - start:
                break
            if verify_crc:
                check_crc(data, batch)
        except Short:
            short = True
            break
        except Invalid:
            error = True
            break
        taken.append(batch)
        at += batch.size
    digest = attributes = 0
    for batch in taken:
        digest = (digest * 0x9E3779B97F4A7C15 + batch.crc + 1) % (1 << 64)
        attributes |= batch.attributes
    return {
        "end": at,
        "batches": len(taken),
        "records": sum(batch.span for batch in taken),
        "is_sparse": any(batch.is_sparse for batch in taken),
        "last_start": taken[-1].start if taken else -1,
        "last_crc": taken[-1].crc if taken else 0,
        "max_timestamp": max((batch.max_timestamp for batch in taken), default=-1),
        "digest": digest,
        "attributes": attributes,
        "has_producer": any(batch.producer_id >= 0 for batch in taken),
        "error": error,
        "short": short,
    }


def batch_headers(data: bytes, start: int, stop: int) -> list[tuple[int, ...]]:
    return [
        (
            batch.start,
            batch.size,
            batch.count,
            batch.attributes,
            batch.base_timestamp,
            batch.max_timestamp,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.crc,
        )
        for batch in read_batches(data, start, stop, verify_crc=False)
    ]


def assign_offsets(
    data: bytearray,
    start: int,
    stop: int,
    base_offset: int,
    leader_epoch: int,
    *,
    file_position: int,
    bytes_since_index: int,
    index_interval: int,
    points: list[tuple[int, int, int, int]],
) -> tuple[int, int, int]:
    highest: tuple[int, int] | None = None  # timestamp, offset
    attributes = 0
    for batch in list(read_batches(bytes(data), start, stop, verify_crc=False)):
        data[batch.start : batch.start + 8] = base_offset.to_bytes(8, "big")
        data[batch.start + 12 : batch.start + 16] = leader_epoch.to_bytes(4, "big", signed=True)
        base_offset += batch.count
        attributes |= batch.attributes
        if highest is None or batch.max_timestamp > highest[0]:
            highest = (batch.max_timestamp, base_offset - 1)
        if bytes_since_index > index_interval:
            points.append((base_offset - 1, file_position + batch.start - start, *highest))
            bytes_since_index = 0
        bytes_since_index += batch.size
    return base_offset, bytes_since_index, attributes


# --- records -----------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    """The zigzag varint of a signed 64-bit number."""
    rest = number * 2 if number >= 0 else -number * 2 - 1
    out = bytearray()
    while rest > 127:
        out.append(rest % 128 + 128)
        rest //= 128
    out.append(rest)
    return bytes(out)


def field(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


class Reader:
    """Takes values off the front of some bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise BadRecord("outside")
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self, bits: int) -> int:
        number = shift = 0
        while shift < bits:
            byte = self.take(1)[0]
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                if number >= 1 << bits:
                    raise BadRecord("too large")
                return number // 2 if number % 2 == 0 else -(number // 2) - 1
        raise BadRecord("too long")

    def field(self) -> bytes | None:
        size = self.varint(32)
        return None if size == -1 else self.take(size)


@dataclass(frozen=True)
class Parsed:
    attributes: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    header_bytes: bytes  # with their count


def read_record(reader: Reader, offsets: range) -> Parsed:
    """`offsets`: the offset deltas that it may have."""
    record = Reader(reader.take(reader.varint(32)))
    attributes = record.take(1)[0]
    timestamp_delta = record.varint(64)
    offset_delta = record.varint(32)
    if offset_delta not in offsets:
        raise BadRecord("offset delta")
    key, value = record.field(), record.field()
    header_bytes = record.data[record.at :]
    headers = []
    count = record.varint(32)
    if count < 0:
        raise BadRecord("header count")
    for _ in range(count):
        name = record.take(record.varint(32))
        headers.append((name.decode(errors="replace"), record.field()))
    if record.left:
        raise BadRecord("surplus")
    return Parsed(
        attributes, timestamp_delta, offset_delta, key, value, tuple(headers), header_bytes
    )


def read_records(batch: Batch, codec_decompress: Callable[[int, bytes], bytes]) -> list[Parsed]:
    reader = Reader(codec_decompress(batch.codec, batch.body) if batch.codec else batch.body)
    try:
        records: list[Parsed] = []
        for index in range(batch.count):
            least = records[-1].offset_delta + 1 if records else 0
            is_sparse = bool(batch.is_sparse)
            offsets = range(least, batch.span) if is_sparse else range(index, index + 1)
            records.append(read_record(reader, offsets))
        if reader.left:
            raise BadRecord("surplus")
    except BadRecord as error:
        raise Invalid(batch.start, str(error)) from error
    return records


def decode_records(
    data: bytes,
    start: int,
    stop: int,
    codec_decompress: Callable[[int, bytes], bytes] = decompress,
) -> list[Fields]:
    """Offset, timestamp, its type, key, value and headers of each record."""
    result = []
    for batch in read_batches(data, start, stop, verify_crc=True):
        if batch.attributes & 32:
            continue
        for record in read_records(batch, codec_decompress):
            timestamp = wrap(batch.base_timestamp + record.timestamp_delta)
            result.append(
                (
                    wrap(batch.base_offset + record.offset_delta),
                    batch.max_timestamp if batch.append_time else timestamp,
                    int(batch.append_time),
                    record.key,
                    record.value,
                    record.headers,
                )
            )
    return result


def encode_record(
    index: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    header_bytes: bytes,
    *,
    attributes: int = 0,
) -> bytes:
    body = bytes([attributes]) + varint(wrap(timestamp_delta)) + varint(index)
    body += field(key) + field(value) + header_bytes
    return varint(len(body)) + body


def encode_headers(headers: Sequence[Header] | None) -> bytes:
    pairs = [field(key.encode()) + field(value) for key, value in headers or ()]
    return varint(len(pairs)) + b"".join(pairs)


def build_batches(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Sequence[Header] | None] | None = None,
    timestamps: int | Sequence[int],
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    batch_bytes: int,
) -> bytes:
    out = b""
    body = b""
    times: list[int] = []

    def close() -> None:
        nonlocal out, body, base_sequence
        if not times:
            return
        count = len(times)
        out += Batch(
            start=0,
            base_offset=0,
            length=0,
            leader_epoch=0,
            magic=2,
            crc=0,
            attributes=0,
            last_offset_delta=count - 1,
            base_timestamp=times[0],
            max_timestamp=max(times),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            count=count,
            body=body,
        ).encode()
        if base_sequence >= 0:
            base_sequence = (base_sequence + count) % (1 << 31)
        body = b""
        times.clear()

    for i, value in enumerate(values):
        timestamp = timestamps if isinstance(timestamps, int) else timestamps[i]
        key = keys[i] if keys else None
        header_bytes = encode_headers(headers[i] if headers else None)
        first = times[0] if times else timestamp
        record = encode_record(len(times), timestamp - first, key, value, header_bytes)
        if times and HEADER_BYTES + len(body) + len(record) > batch_bytes:
            close()
            record = encode_record(0, 0, key, value, header_bytes)
        body += record
        times.append(timestamp)
    close()
    return out


def slice_batch(data: bytes, skip: int) -> bytes:
    """The rule of `samelog.format.batch.slice_batch`."""
    try:
        batch = read_batch(data, 0, len(data), UNLIMITED)
    except Short:
        raise Invalid(0, "short") from None
    check_crc(data, batch)
    if batch.size != len(data) or batch.is_sparse:
        raise Invalid(0, "surplus, or sparse")
    if batch.attributes & 32 or not 0 <= skip < batch.count:
        raise ValueError("skip")
    return with_some(batch, [False] * skip + [True] * (batch.count - skip))


def with_some(batch: Batch, staying: list[bool]) -> bytes:
    """Rewrite a batch with the records that stay."""
    skip, sequence = staying.index(True), batch.base_sequence
    kept = [each for at, each in enumerate(read_records(batch, decompress)) if staying[at]]
    times = [wrap(batch.base_timestamp + each.timestamp_delta) for each in kept]
    body = b""
    for at, each in enumerate(kept):
        fields = times[at] - times[0], each.key, each.value, each.header_bytes
        body += encode_record(at, *fields, attributes=each.attributes)
    return replace(
        batch,
        base_offset=wrap(batch.base_offset + skip),
        attributes=batch.attributes & ~7,
        last_offset_delta=len(kept) - 1,
        base_timestamp=times[0],
        max_timestamp=batch.max_timestamp if batch.append_time else max(times),
        base_sequence=(sequence + skip) % (1 << 31) if sequence >= 0 else sequence,
        count=len(kept),
        body=body,
    ).encode()

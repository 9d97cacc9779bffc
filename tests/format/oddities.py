"""Compressed blobs that decoders take differently, and whether every Kafka client reads them."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import cramjam

from samelog.format.compression import Codec, compress


class Oddity(NamedTuple):
    """What is odd, and whether a node takes it."""

    what: str
    codec: Codec
    blob: bytes
    is_taken: bool


def oddities(records: bytes) -> Iterator[Oddity]:
    """Blobs of these records."""
    yield from _of_gzip(records)
    yield from _of_lz4(records)
    yield from _of_zstd(records)
    yield from _of_snappy(records)


def _of_gzip(records: bytes) -> Iterator[Oddity]:
    whole, half = gzip.compress(records), len(records) // 2
    two = gzip.compress(records[:half]) + gzip.compress(records[half:])
    named = bytearray(whole)
    named[3] |= 8
    named[10:10] = b"name\0"
    yield Oddity("a member with a name", Codec.GZIP, bytes(named), True)
    yield Oddity("stored, not compressed", Codec.GZIP, gzip.compress(records, 0), True)
    yield Oddity("two members", Codec.GZIP, two, False)
    yield Oddity("an empty member before", Codec.GZIP, gzip.compress(b"") + whole, False)
    yield Oddity("an empty member behind", Codec.GZIP, whole + gzip.compress(b""), True)
    yield Oddity("two empty members behind", Codec.GZIP, whole + gzip.compress(b"") * 2, True)
    yield Oddity("bytes behind", Codec.GZIP, whole + b"behind", False)
    yield Oddity("zeros behind", Codec.GZIP, whole + bytes(8), False)
    yield Oddity("the trailer again", Codec.GZIP, whole + whole[-8:], False)
    yield Oddity("zlib, not gzip", Codec.GZIP, zlib.compress(records), False)


def lz4(records: bytes, flags: int, *, size: int | None = None, bd: int = 0x40) -> bytes:
    """A frame of one stored block."""
    head = bytes((flags, bd)) + (b"" if size is None else size.to_bytes(8, "little"))
    if flags & 1:
        head += bytes(4)
    check = _xxh32(head) >> 8 & 0xFF
    block = (len(records) | 1 << 31).to_bytes(4, "little") + records
    block += _xxh32(records).to_bytes(4, "little") if flags & 0x10 else b""
    end = bytes(4) + (_xxh32(records).to_bytes(4, "little") if flags & 4 else b"")
    return bytes.fromhex("04224d18") + head + bytes((check,)) + block + end


def _of_lz4(records: bytes) -> Iterator[Oddity]:
    whole, half, size = compress(Codec.LZ4, records), len(records) // 2, len(records)
    two = compress(Codec.LZ4, records[:half]) + compress(Codec.LZ4, records[half:])
    skippable = struct.pack("<II", 0x184D2A50, 3) + b"abc"
    linked = bytes(cramjam.lz4.compress(records * 500))
    yield Oddity("its size", Codec.LZ4, lz4(records, 0x68, size=size), True)
    yield Oddity("checksums", Codec.LZ4, lz4(records, 0x74), True)
    yield Oddity("larger blocks", Codec.LZ4, lz4(records, 0x60, bd=0x70), True)
    yield Oddity("another size", Codec.LZ4, lz4(records, 0x68, size=size + 1), False)
    yield Oddity("dependent blocks", Codec.LZ4, lz4(records, 0x40), False)
    yield Oddity("many dependent blocks", Codec.LZ4, linked, False)
    yield Oddity("a dictionary", Codec.LZ4, lz4(records, 0x61), False)
    yield Oddity("a reserved bit", Codec.LZ4, lz4(records, 0x62), False)
    yield Oddity("two frames", Codec.LZ4, two, False)
    yield Oddity("a frame of another format behind", Codec.LZ4, whole + skippable, False)
    yield Oddity("a frame of another format before", Codec.LZ4, skippable + whole, False)
    yield Oddity("bytes behind", Codec.LZ4, whole + b"behind", False)
    yield Oddity("no end", Codec.LZ4, whole[:-4], False)


def _of_zstd(records: bytes) -> Iterator[Oddity]:
    whole, half = compress(Codec.ZSTD, records), len(records) // 2
    two = compress(Codec.ZSTD, records[:half]) + compress(Codec.ZSTD, records[half:])
    skippable = struct.pack("<II", 0x184D2A53, 3) + b"abc"
    raw = (1 | len(records) << 3).to_bytes(3, "little") + records
    unsized = bytes.fromhex("28b52ffd0058") + raw
    dictionary = bytes.fromhex("28b52ffd015807") + raw
    empty = compress(Codec.ZSTD, b"")
    yield Oddity("no size", Codec.ZSTD, unsized, True)
    yield Oddity("two frames", Codec.ZSTD, two, True)
    yield Oddity("an empty frame before", Codec.ZSTD, empty + whole, True)
    yield Oddity("an empty frame behind", Codec.ZSTD, whole + empty, True)
    yield Oddity("a skippable frame before", Codec.ZSTD, skippable + whole, True)
    yield Oddity("a skippable frame behind", Codec.ZSTD, whole + skippable, True)
    yield Oddity("a skippable frame that is cut", Codec.ZSTD, whole + skippable[:-1], False)
    yield Oddity("a frame of a dictionary behind", Codec.ZSTD, whole + dictionary, False)
    yield Oddity("a dictionary", Codec.ZSTD, dictionary, False)
    yield Oddity("bytes behind", Codec.ZSTD, whole + b"behind", False)


def _of_snappy(records: bytes) -> Iterator[Oddity]:
    block = bytes(cramjam.snappy.compress_raw(records))
    framed = len(block).to_bytes(4, "big") + block
    head = b"\x82SNAPPY\0" + bytes((0, 0, 0, 1)) * 2
    yield Oddity("java's framing", Codec.SNAPPY, head + framed, True)
    yield Oddity("version 0", Codec.SNAPPY, head[:8] + bytes(8) + framed, True)
    yield Oddity("another version", Codec.SNAPPY, head[:8] + b"\xff" * 8 + framed, True)
    yield Oddity("bytes behind a block", Codec.SNAPPY, block + b"behind", False)
    yield Oddity("bytes behind blocks", Codec.SNAPPY, head + framed + b"xx", False)
    yield Oddity("google's framing", Codec.SNAPPY, bytes(cramjam.snappy.compress(records)), False)


def _xxh32(data: bytes) -> int:
    """XXH32 of seed 0, as lz4 frames check themselves."""
    mask, p1, p2, p3, p4, p5 = (
        (1 << 32) - 1,
        2654435761,
        2246822519,
        3266489917,
        668265263,
        374761393,
    )

    def turned(value: int, by: int) -> int:
        return (value << by | value >> 32 - by) & mask

    at, total = 0, p5
    if len(data) >= 16:
        lanes = [p1 + p2 & mask, p2, 0, -p1 & mask]
        while at + 16 <= len(data):
            for place, word in enumerate(struct.unpack_from("<4I", data, at)):
                lanes[place] = turned(lanes[place] + word * p2 & mask, 13) * p1 & mask
            at += 16
        total = sum(turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
    total = total + len(data) & mask
    while at + 4 <= len(data):
        word = struct.unpack_from("<I", data, at)[0]
        total, at = turned(total + word * p3 & mask, 17) * p4 & mask, at + 4
    for byte in data[at:]:
        total = turned(total + byte * p5 & mask, 11) * p1 & mask
    total = (total ^ total >> 15) * p2 & mask
    total = (total ^ total >> 13) * p3 & mask
    return total ^ total >> 16

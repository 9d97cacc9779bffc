"""A process that unpacks a decompression bomb of 1 GiB with an address space too small for it.

Usage: python -m tests.format.bombs NAME. It prints "refused: ..." and exits 0 if the bomb was
refused as such each time, with all refusals kept; running out of memory, or unpacking it, ends in a
traceback or another message.
"""

from __future__ import annotations

import gzip
import resource
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import cramjam

from samelog.format.compression import Codec, compress, decompress
from samelog.format.errors import DecompressionError

GIB = 1 << 30
LIMIT_BYTES = 16 << 20
SLACK_BYTES = 24 << 20  # for decoders and the interpreter
TIMES = 4  # as often as refusals that keep what came out would not fit
UNIT_BYTES = 1 << 20


def gzip_bomb() -> bytes:
    """One member: blocks of a megabyte each, flushed, so that they can be repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    unit = packer.compress(bytes(UNIT_BYTES)) + packer.flush(zlib.Z_FULL_FLUSH)
    return gzip.compress(b"")[:10] + unit * (GIB // UNIT_BYTES) + b"\x03\x00" + bytes(8)


def gzip_members() -> bytes:
    """Many whole members."""
    return gzip.compress(bytes(UNIT_BYTES)) * (GIB // UNIT_BYTES)


def snappy_bomb() -> bytes:
    """A megabyte of literal and copies, honest about the size of the output."""
    return bytes(cramjam.snappy.compress_raw(bytes(64 << 20)))


def snappy_lie() -> bytes:
    """A few bytes that claim to become 1 GiB."""
    return bytes([0x80, 0x80, 0x80, 0x80, 0x04]) + b"\x00a"


def xerial_bomb() -> bytes:
    """Java's framing with many honest blocks."""
    block = bytes(cramjam.snappy.compress_raw(bytes(UNIT_BYTES)))
    head = b"\x82SNAPPY\x00" + bytes((0, 0, 0, 1)) * 2
    return head + (len(block).to_bytes(4, "big") + block) * 64


def _lz4_blocks() -> bytes:
    block = bytes(cramjam.lz4.compress_block(bytes(64 << 10), store_size=False))
    return (len(block).to_bytes(4, "little") + block) * (GIB >> 16) + bytes(4)


def lz4_bomb() -> bytes:
    """One frame of independent blocks that says nothing about its size."""
    return bytes.fromhex("04224d18604082") + _lz4_blocks()


def lz4_lie() -> bytes:
    """One frame that claims 1 EiB; its header checksum is found by trying."""
    head = bytes.fromhex("04224d186840") + (1 << 60).to_bytes(8, "little")
    candidates = (head + bytes([checksum]) for checksum in range(256))
    return next(filter(_lz4_header_fits, candidates)) + _lz4_blocks()


def _lz4_header_fits(header: bytes) -> bool:
    try:
        cramjam.lz4.decompress(header + bytes(4))
    except cramjam.DecompressionError as error:
        return "headerChecksum" not in str(error)
    return True


def _zstd_blocks() -> bytes:
    size = 128 << 10
    block = (size << 3 | 1 << 1).to_bytes(3, "little") + b"\x00"  # one byte, repeated
    last = (size << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\x00"
    return block * (GIB // size - 1) + last


def zstd_bomb() -> bytes:
    """One frame of 32 KiB with a window of 1 MiB that says nothing about its size."""
    return bytes.fromhex("28b52ffd00") + bytes([10 << 3]) + _zstd_blocks()


def zstd_lie() -> bytes:
    """One frame that claims 10 bytes."""
    return bytes.fromhex("28b52ffd40") + bytes([10 << 3, 10, 0]) + _zstd_blocks()


BOMBS: dict[str, tuple[Codec, Callable[[], bytes]]] = {
    "gzip": (Codec.GZIP, gzip_bomb),
    "gzip-members": (Codec.GZIP, gzip_members),
    "snappy": (Codec.SNAPPY, snappy_bomb),
    "snappy-lie": (Codec.SNAPPY, snappy_lie),
    "xerial": (Codec.SNAPPY, xerial_bomb),
    "lz4": (Codec.LZ4, lz4_bomb),
    "lz4-lie": (Codec.LZ4, lz4_lie),
    "zstd": (Codec.ZSTD, zstd_bomb),
    "zstd-lie": (Codec.ZSTD, zstd_lie),
}


def main() -> int:
    codec, make = BOMBS[sys.argv[1]]
    blob = make()
    decompress(codec, compress(codec, b"small"))  # whatever is loaded late is now loaded
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    space = pages * resource.getpagesize() + LIMIT_BYTES + SLACK_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    kept: list[DecompressionError] = []
    while len(kept) < TIMES:
        try:
            size = len(decompress(codec, blob, limit_bytes=LIMIT_BYTES))
        except DecompressionError as error:
            kept.append(error)
        else:
            sys.stdout.write(f"unpacked to {size} bytes\n")
            return 1
    sys.stdout.write(f"refused: {kept[-1]}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The codecs of record batches, with a bound on what they may unpack to.

A compressed batch says nothing about the size of its records, and 32 KiB of zstd can unpack to
1 GiB. Invariant: unpacking never takes more memory for its output than `limit_bytes`, whatever the
blob claims or does, and the answer is the whole output or `DecompressionError`. The decoders' own
state is bounded too: zstd frames that want a window above 8 MiB and the limit are refused.

Shapes: gzip and lz4 are one frame and nothing behind it but empty members of gzip, since some
readers end there, others read on, and librdkafka stops for good. Frames of lz4 have independent
blocks and no dictionary, as Kafka's Java client demands. Zstd is any number of frames without a
dictionary, and skippable ones. Snappy is one raw block, or Java's "xerial" framing: 16 bytes of
header, of which no client reads the version, then blocks, each behind its 4-byte length.

Invariant: a blob that `decompress` accepts unpacks to the same bytes in every Kafka client that we
test with (tests/kafka/test_codec_oddities.py, tests/interop/test_codec_oddities.py).
"""

from __future__ import annotations

import mmap
import zlib
from enum import IntEnum
from typing import TYPE_CHECKING

import cramjam

from samelog.format.errors import DecompressionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Buffer

    _Into = Callable[[Buffer, Buffer], int]

LIMIT_BYTES_DEFAULT = 65 << 20  # as much as the largest batch may have that is not compressed


class Codec(IntEnum):
    """How the records of a batch are compressed; the lowest three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_STREAMS: dict[int, _Into] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}
_FIRST_GUESS_BYTES = 64 * 1024
_FIRST_GUESS_RATIO = 8

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16  # the magic, a version and a lowest compatible version
_SNAPPY_RATIO = 32  # a copy element of at least 2 bytes gives at most 64

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE = 0x184D2A5
"""The magic of a skippable frame, without its lowest four bits."""
_ZSTD_WINDOW_BYTES = 8 * 1024 * 1024  # what every decoder should support (RFC 8878, 3.1.1.1.2)

# An lz4 frame of version 1: independent blocks of at most 64 KiB, no sizes and checksums; the last
# byte is the header's own checksum. Kafka's Java client refuses frames of dependent blocks.
_LZ4_HEADER = bytes.fromhex("04224d18604082")
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_STORED = 1 << 31
_LZ4_MAGIC = 0x184D2204
_LZ4_FLAGS, _LZ4_WANTED_FLAGS = 0b11100011, 0b01100000
"""Version 1, independent blocks, no dictionary, no reserved bit."""
_LZ4_BLOCK_CHECKSUMS, _LZ4_SIZE, _LZ4_CHECKSUM = 1 << 4, 1 << 3, 1 << 2
_GZIP_TRAILER_BYTES = 8
_GZIP_HEADER_BYTES = 10
_GZIP_PLAIN = bytes.fromhex("1f8b0800")
"""How a member without a name, a comment and extra fields begins."""
_GZIP_NOTHING = b"\x03\0" + bytes(_GZIP_TRAILER_BYTES)
"""An empty block, and the trailer of nothing."""
_GZIP_MOST_HEADER_BYTES = 64 * 1024


def decompress(codec: int, blob: Buffer, *, limit_bytes: int = LIMIT_BYTES_DEFAULT) -> bytes:
    """What `blob` unpacks to. Raises as `unpack`."""
    return bytes(unpack(codec, blob, limit_bytes=limit_bytes))


def unpack(
    codec: int, blob: Buffer, *, limit_bytes: int, scratch: memoryview | None = None
) -> bytes | memoryview:
    """Return what `blob` unpacks to, where it was unpacked to: copying it would hold the
    interpreter, which unpacking does not. That may be `scratch`, of at least `limit_bytes`.

    Raises:
        DecompressionError: the blob is corrupt or cut off, the codec is unknown, or the output is
            larger than `limit_bytes`.
    """
    if codec == Codec.NONE:
        return _plain(blob, limit_bytes)
    try:
        if codec == Codec.SNAPPY:
            return _unpack_snappy(bytes(blob), limit_bytes)
        if codec == Codec.ZSTD:
            _check_zstd_frames(bytes(blob), max(limit_bytes, _ZSTD_WINDOW_BYTES))
        if codec in _STREAMS:
            if scratch is not None:
                found = scratch[: _STREAMS[codec](blob, scratch[:limit_bytes])]
            else:
                found = _unpack_stream(_STREAMS[codec], blob, limit_bytes)
            _check_end(codec, memoryview(blob).cast("B"), found)
            return found
    except cramjam.DecompressionError as error:
        # A refusal may be kept for long: with its traceback it would keep what came out so far.
        raise DecompressionError(
            f"{Codec(codec).name.lower()}: {error} (at most {limit_bytes} bytes may come out)"
        ) from error.with_traceback(None)
    raise DecompressionError(f"codec {codec} is unknown")


def compress(codec: int, blob: Buffer) -> bytes:
    """Return `blob` compressed, in a shape that every Kafka client reads; snappy as a raw block.

    Raises:
        ValueError: the codec is unknown.
    """
    match codec:
        case Codec.NONE:
            return bytes(blob)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(blob))
        case Codec.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(blob))
        case Codec.LZ4:
            return _pack_lz4(memoryview(blob).cast("B"))
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(blob))
    raise ValueError(f"codec {codec} is unknown")


def _plain(blob: Buffer, limit_bytes: int) -> bytes:
    size = memoryview(blob).nbytes
    if size > limit_bytes:
        raise DecompressionError(f"{size} bytes are more than {limit_bytes}")
    return bytes(blob)


def _unpack_stream(into: _Into, blob: Buffer, limit_bytes: int) -> memoryview:
    """Unpack into a small buffer, and only if that fails into one of the full limit.

    The large one is fresh anonymous memory, of which only what is written to becomes real.
    """
    guess = max(_FIRST_GUESS_BYTES, _FIRST_GUESS_RATIO * memoryview(blob).nbytes)
    if guess < limit_bytes:
        small = bytearray(guess)
        try:
            return memoryview(small)[: into(blob, small)]
        except cramjam.DecompressionError:
            del small  # it was too small, or the blob is corrupt: the second try tells
    large = mmap.mmap(-1, max(1, limit_bytes))
    size = into(blob, large)
    if size > limit_bytes:
        raise cramjam.DecompressionError("too large")
    return memoryview(large)[:size]


def _check_end(codec: int, blob: memoryview, found: memoryview) -> None:
    """Raises DecompressionError unless one frame is the whole of a sound blob."""
    if codec == Codec.GZIP:
        _check_gzip_member(_without_empty_members(blob) if len(found) else blob, found)
    elif codec == Codec.LZ4:
        _check_lz4_frame(bytes(blob), len(found))


def _without_empty_members(blob: memoryview) -> memoryview:
    """A blob of gzip without plain empty members at its end, which no client stumbles over."""
    size = _GZIP_HEADER_BYTES + len(_GZIP_NOTHING)
    while blob[-size:][:4] == _GZIP_PLAIN and blob[-len(_GZIP_NOTHING) :] == _GZIP_NOTHING:
        blob = blob[:-size]
    return blob


def _check_gzip_member(blob: memoryview, found: memoryview) -> None:
    """The blob ends with the checksum and the length of all that came out, so there is one member
    and nothing behind it; unless members before it are empty.
    """
    trailer = zlib.crc32(found).to_bytes(4, "little") + len(found).to_bytes(4, "little")
    first = zlib.decompressobj(wbits=31)
    out = first.decompress(blob[:_GZIP_MOST_HEADER_BYTES], 1)
    is_empty_before = first.eof and len(out) < min(1, len(found))
    if blob[-_GZIP_TRAILER_BYTES:] != trailer or is_empty_before or first.unused_data:
        raise DecompressionError("gzip: there are bytes behind the first member")


def _check_lz4_frame(blob: bytes, size: int) -> None:
    """Raise DecompressionError for a frame that some clients unpack to other than `size` bytes."""
    magic, flags = int.from_bytes(blob[:4], "little"), blob[4]
    if magic != _LZ4_MAGIC or flags & _LZ4_FLAGS != _LZ4_WANTED_FLAGS:
        raise DecompressionError("lz4: no frame of independent blocks without a dictionary")
    most, at = 1 << (8 + 2 * (blob[5] >> 4)), 7
    if flags & _LZ4_SIZE:
        claimed, at = int.from_bytes(blob[6:14], "little"), 15
        if claimed != size:
            raise DecompressionError(f"lz4: {claimed} bytes are claimed, {size} came out")
    while header := int.from_bytes(blob[at : at + 4], "little"):
        length = header & ~_LZ4_STORED
        if length > most:
            raise DecompressionError(f"lz4: a block of {length} bytes, more than {most}")
        at += 4 + length + (4 if flags & _LZ4_BLOCK_CHECKSUMS else 0)
    if at + 4 + (4 if flags & _LZ4_CHECKSUM else 0) != len(blob):
        raise DecompressionError("lz4: there are bytes behind the first frame")


def _unpack_snappy(blob: bytes, limit_bytes: int) -> bytes:
    blocks = list(_xerial_blocks(blob)) if blob.startswith(_XERIAL_MAGIC) else [memoryview(blob)]
    sizes = [_snappy_size(block) for block in blocks]
    if sum(sizes) > limit_bytes:
        raise DecompressionError(f"snappy: {sum(sizes)} bytes are more than {limit_bytes}")
    out = bytearray(sum(sizes))
    view = memoryview(out)
    at = 0
    for block, size in zip(blocks, sizes, strict=True):
        written = cramjam.snappy.decompress_raw_into(block, view[at : at + size])
        if written != size:
            raise cramjam.DecompressionError(f"a block of {size} bytes unpacked to {written}")
        at += size
    return bytes(out)


def _snappy_size(block: memoryview) -> int:
    """The size that a raw block claims to unpack to, refused if no block of its size can."""
    size: int = cramjam.snappy.decompress_raw_len(block)
    if size > _SNAPPY_RATIO * block.nbytes:
        raise DecompressionError(f"snappy: {block.nbytes} bytes cannot unpack to {size}")
    return size


def _xerial_blocks(blob: bytes) -> Iterator[memoryview]:
    view = memoryview(blob)
    if len(view) < _XERIAL_HEADER_BYTES:
        raise DecompressionError("snappy: the header of the framing is cut off")
    at = _XERIAL_HEADER_BYTES
    while at < len(blob):
        size = int.from_bytes(view[at : at + 4], "big")
        block = view[at + 4 : at + 4 + size]
        if at + 4 > len(blob) or block.nbytes != size:
            raise DecompressionError("snappy: a block is cut off")
        yield block
        at += 4 + size


def _pack_lz4(data: memoryview) -> bytes:
    parts = [_LZ4_HEADER]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        plain = bytes(data[start : start + _LZ4_BLOCK_BYTES])
        packed = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(packed) < len(plain):
            parts += (len(packed).to_bytes(4, "little"), packed)
        else:
            parts += ((len(plain) | _LZ4_STORED).to_bytes(4, "little"), plain)
    parts.append(bytes(4))
    return b"".join(parts)


def _check_zstd_frames(blob: bytes, limit_bytes: int) -> None:
    """Refuse frames that would make the decoder allocate a larger window or have a dictionary, and
    bytes that are no frames; corrupt ones pass.

    Walks over their blocks as RFC 8878 lays them out, without unpacking.
    """
    at = frames = 0
    while at < len(blob):
        magic = int.from_bytes(blob[at : at + 4], "little")
        if magic >> 4 == _ZSTD_SKIPPABLE and at + 8 <= len(blob):
            at += 8 + int.from_bytes(blob[at + 4 : at + 8], "little")
        elif magic == _ZSTD_MAGIC and at + 4 < len(blob):
            at = _check_zstd_frame(blob, at, limit_bytes)
            frames += 1
        else:
            raise DecompressionError(f"zstd: there is no frame at byte {at}")
    if not frames:
        raise DecompressionError("zstd: there is no frame")


def _check_zstd_frame(blob: bytes, at: int, limit_bytes: int) -> int:
    """Check the header of the frame at `at`; return the position behind the frame."""
    descriptor = blob[at + 4]
    if descriptor & 3:
        raise DecompressionError("zstd: the frame needs a dictionary")
    window, blocks = _zstd_frame_header(blob, at + 4)
    if window > limit_bytes:
        raise DecompressionError(f"zstd: a window of {window} bytes, more than {limit_bytes}")
    return _zstd_blocks_end(blob, blocks) + (4 if descriptor & 0x04 else 0)


def _zstd_frame_header(blob: bytes, at: int) -> tuple[int, int]:
    """Return the window of the frame whose descriptor is at `at`, and where its blocks begin."""
    descriptor = blob[at]
    single_segment = bool(descriptor & 0x20)
    dictionary = (0, 1, 2, 4)[descriptor & 3]
    content = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    at += 1
    if single_segment:
        start = at + dictionary
        size = int.from_bytes(blob[start : start + content], "little")
        return size + (256 if content == 2 else 0), start + content
    if at >= len(blob):
        return 0, at
    base = 1 << (10 + (blob[at] >> 3))
    return base + base // 8 * (blob[at] & 7), at + 1 + dictionary + content


def _zstd_blocks_end(blob: bytes, at: int) -> int:
    """Return the position behind the blocks that begin at `at`."""
    last = False
    while not last and at + 3 <= len(blob):
        header = int.from_bytes(blob[at : at + 3], "little")
        last = bool(header & 1)
        run = header >> 1 & 3 == 1  # one byte, repeated
        at += 3 + (1 if run else header >> 3)
    return at

"""Batches in another codec: those of Kafka's producers at a node, those of native publishers before
they are written.

Invariant: only the codec, the length and the CRC of a batch change; its records stay to the byte,
and so do their count, producer and numbers.
"""

from __future__ import annotations

from samelog.format import _kernels as kernels
from samelog.format.batch import CODEC_BITS, HEADER_BYTES, LENGTH_PREFIX_BYTES
from samelog.format.compression import Codec, compress, unpack

PLAIN_LIMIT_BYTES = 4 << 20
"""What is longer is never packed: nodes unpack no more than 7 MiB where batches have dedup ids."""
_ATTRIBUTES_AT = 21


def packed(data: bytes, codec: Codec) -> bytes:
    """Uncompressed batches, each of them compressed where that makes it smaller."""
    if codec is Codec.NONE:
        return data
    batches = []
    for start, size, *_ in kernels.batch_headers(data, 0, len(data)):
        plain = memoryview(data)[start : start + size]
        made = recompressed(plain, codec, size) if size <= PLAIN_LIMIT_BYTES else plain
        batches.append(made if len(made) < size else plain)
    return b"".join(batches)


def recompressed(batch: memoryview, codec: Codec, limit_bytes: int) -> bytes:
    """A sound batch in another codec. `limit_bytes`: what it may unpack to."""
    attributes = int.from_bytes(batch[_ATTRIBUTES_AT : _ATTRIBUTES_AT + 2], "big")
    body = unpack(attributes & CODEC_BITS, batch[HEADER_BYTES:], limit_bytes=limit_bytes)
    changed = (attributes & ~CODEC_BITS | codec).to_bytes(2, "big")
    covered = b"".join(
        (changed, batch[_ATTRIBUTES_AT + 2 : HEADER_BYTES], compress(codec, bytes(body)))
    )
    length = (len(covered) + _ATTRIBUTES_AT - LENGTH_PREFIX_BYTES).to_bytes(4, "big")
    crc = kernels.crc32c(covered).to_bytes(4, "big")
    return b"".join((batch[:8], length, batch[12:17], crc, covered))

"""Record batches as clients send them, and broken ones."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from samelog.format import _kernels as kernels
from samelog.format.batch import HEADER_BYTES, LENGTH_PREFIX_BYTES
from samelog.format.compression import Codec, compress


def batch(*values: bytes, **producer: Any) -> bytes:
    """A batch as a client sends it."""
    return kernels.build_batches(
        list(values or (b"x",)),
        timestamps=5,
        batch_bytes=2 << 20,
        max_record_bytes=1 << 20,
        **producer,
    )


def put(at: int, layout: str, *numbers: int) -> Callable[[bytes], bytes]:
    """A change of header fields, with the CRC made right again."""

    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        struct.pack_into(layout, changed, at, *numbers)
        struct.pack_into(">I", changed, 17, kernels.crc32c(memoryview(changed)[21:]))
        return bytes(changed)

    return change


def packed(codec: Codec, *values: bytes, timestamps: int | list[int] = 5) -> bytes:
    """A batch as a client sends it that compresses."""
    plain = kernels.build_batches(
        list(values), timestamps=timestamps, batch_bytes=1 << 29, max_record_bytes=1 << 28
    )
    return with_blob(plain, codec, compress(codec, plain[HEADER_BYTES:]))


def with_blob(plain: bytes, codec: Codec, blob: bytes) -> bytes:
    """The batch whose records are compressed as `blob`."""
    data = bytearray(plain[:HEADER_BYTES] + blob)
    struct.pack_into(">i", data, 8, len(data) - LENGTH_PREFIX_BYTES)
    data[22] |= codec
    struct.pack_into(">I", data, 17, kernels.crc32c(memoryview(data)[21:]))
    return bytes(data)

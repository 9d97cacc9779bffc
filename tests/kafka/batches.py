"""Record batches as clients send them, and broken ones."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from samelog.format import _kernels as kernels


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

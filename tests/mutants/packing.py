"""Planted bugs in what becomes of batches that publishers compress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from samelog.format import _kernels as kernels
from samelog.format import recompression
from samelog.format.compression import Codec
from samelog.publisher import packing_output


@contextmanager
def pack_what_nodes_refuse() -> Iterator[None]:
    """A batch is compressed though it unpacks to more than a node takes with dedup ids."""
    with patch.object(recompression, "PLAIN_LIMIT_BYTES", 1 << 30):
        yield


@contextmanager
def forget_numbers_of_what_is_packed() -> Iterator[None]:
    """A batch that is compressed has neither producer nor numbers any more."""
    original = recompression.packed

    def packed(data: bytes, codec: Codec) -> bytes:
        bare = bytearray(data)
        for start, size, *_ in kernels.batch_headers(data, 0, len(data)):
            bare[start + 43 : start + 57] = b"\xff" * 14
            crc = kernels.crc32c(memoryview(bare)[start + 21 : start + size])
            bare[start + 17 : start + 21] = crc.to_bytes(4, "big")
        return original(bytes(bare), codec)

    with patch.object(packing_output, "packed", packed):
        yield


_PUBLISHER = "tests/publisher/test_compression.py::"

PACKING = (
    (
        "logs.6",
        pack_what_nodes_refuse,
        _PUBLISHER + "test_nodes_take_every_batch_that_was_compressed",
    ),
    (
        "logs.6",
        forget_numbers_of_what_is_packed,
        _PUBLISHER + "test_batches_are_those_that_were_not_compressed",
    ),
)
"""Rule, bug, and the test that finds it."""

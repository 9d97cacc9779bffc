"""Codecs of record batches; see the next step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shiplog.logformat.errors import DecompressionError

if TYPE_CHECKING:
    from typing_extensions import Buffer


def decompress(codec: int, blob: Buffer) -> bytes:
    """Return the bytes of an uncompressed blob."""
    if codec == 0:
        return bytes(blob)
    raise DecompressionError(f"codec {codec} is not supported")

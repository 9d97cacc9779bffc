"""JSON objects that carry a checksum of themselves, for small files whose every bit counts.

The last member, `crc32c`, is the CRC-32C of all bytes before it (from the comma on it is not
covered).

Invariant: what was written differs from what is read in no bit that matters, or reading fails.
"""

from __future__ import annotations

from typing import Any

import msgspec

from samelog.format import _kernels as kernels

_MEMBER = b',\n "crc32c": '
_END = b"\n}\n"


def encode_checked(value: Any) -> bytes:
    """The text of a file with at least one member."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=1).removesuffix(b"\n}")
    return text + _MEMBER + b"%d" % kernels.crc32c(text) + _END


def checked(data: bytes) -> bytes:
    """The same text, if it is as it was written. Raises ValueError."""
    text, member, end = data.rpartition(_MEMBER)
    if not member:
        raise ValueError("it has no checksum: an older version wrote it, or somebody edited it")
    if end != b"%d" % kernels.crc32c(text) + _END:
        raise ValueError("its checksum is wrong")
    return data

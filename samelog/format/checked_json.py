"""JSON objects that carry a checksum of themselves, for small files whose every bit counts.

The member `crc32c` is the CRC-32C of all bytes before it (from the comma on it is not covered). A
text of up to `TWICE_BYTES` stands in its file twice: the second one, whole, is the member `again`.

Invariant: what was written differs from what is read in no bit that matters, or reading fails. It
does not fail while one of two texts is intact, or both are damaged in a few different places.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from typing import Any

import msgspec

from samelog.format import _kernels as kernels

TWICE_BYTES = 4 << 10
"""Larger files change often, or can be fetched or made again."""
_MEMBER = b',\n "crc32c": '
_AGAIN = b',\n "again": '
_END = b"\n}\n"
_PLACES_MAX = 8
_PLACE_GAP_BYTES = 16
_CHECKSUM = re.compile(re.escape(_MEMBER) + rb"\d+")


def encode_checked(value: Any) -> bytes:
    """The text of a file with at least one member."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=1).removesuffix(b"\n}")
    text += _MEMBER + b"%d" % kernels.crc32c(text) + _END
    if len(text) > TWICE_BYTES:
        return text
    return text.removesuffix(_END) + _AGAIN + text.removesuffix(b"\n") + _END


def checked(data: bytes) -> bytes:
    """Return the text of a file as it was written. Raises ValueError: no intact one is left."""
    error = ValueError("it is empty")
    for text in _texts(data):
        try:
            return _verified(text)
        except ValueError as damage:
            error = damage
    for text in _combinations(data):
        with suppress(ValueError):
            return _verified(text)
    raise error


def is_intact(data: bytes) -> bool:
    """Whether all of a file is as it was written, not only one of its two texts."""
    text = checked(data)
    again = text.removesuffix(_END) + _AGAIN + text.removesuffix(b"\n") + _END
    return data in (text, again)


def _texts(data: bytes) -> Iterator[bytes]:
    """Where texts may be in a file: the first ends behind a checksum, the second has a known
    length.
    """
    if (first := _CHECKSUM.search(data)) is not None:
        yield data[: first.end()] + _END
    end = (len(data) - len(_AGAIN) + 1) // 2 - len(_END)
    if end > 0:
        yield data[end + len(_AGAIN) : len(data) - len(_END)] + b"\n"
    yield data


def _combinations(data: bytes) -> Iterator[bytes]:
    """Texts that take each place in which two texts differ from one of the two. If they are damaged
    in different places, one combination is as it was written.
    """
    end = (len(data) - len(_AGAIN) + 1) // 2 - len(_END)
    first, second = data[: max(end, 0)], data[end + len(_AGAIN) : 2 * end + len(_AGAIN)]
    places: list[tuple[int, int]] = []
    for at, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other and places and at < places[-1][1] + _PLACE_GAP_BYTES:
            places[-1] = places[-1][0], at + 1
        elif one != other:
            places.append((at, at + 1))
    if len(places) > _PLACES_MAX:
        return
    for choice in product((first, second), repeat=len(places)):
        text = bytearray(first)
        for (start, stop), chosen in zip(places, choice, strict=True):
            text[start:stop] = chosen[start:stop]
        yield bytes(text) + _END


def _verified(data: bytes) -> bytes:
    text, member, end = data.rpartition(_MEMBER)
    if not member:
        raise ValueError("it has no checksum: an older version wrote it, or somebody edited it")
    if end != b"%d" % kernels.crc32c(text) + _END:
        raise ValueError("its checksum is wrong")
    return data

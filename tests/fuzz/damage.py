"""Random damage to valid input: the kinds that parsers are known to stumble over.

Invariant: depends on nothing but the random source.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

_EDGES = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, (1 << 63) - 1]


def _flip(source: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    data[source.randrange(len(data))] ^= 1 << source.randrange(8)


def _set_number(source: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    size = source.choice([1, 2, 4, 8])
    value = source.choice(_EDGES) & ((1 << 8 * size) - 1)
    at = source.randrange(len(data))
    data[at : at + size] = value.to_bytes(size, source.choice(["big", "little"]))


def _cut(source: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    at = source.randrange(len(data))
    del data[at : source.choice([at + 1, at + source.randrange(1, 64), len(data)])]


def _insert(source: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    at = source.randrange(len(data) + 1)
    data[at:at] = source.randbytes(source.randrange(1, 20))


def _splice(source: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    other = source.choice(seeds)
    if other:
        data[source.randrange(len(data)) :] = other[source.randrange(len(other)) :]


def _repeat(source: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    start = source.randrange(len(data))
    data[start:start] = data[start : start + source.randrange(1, 100)]


_KINDS: list[Callable[[random.Random, bytearray, Sequence[bytes]], None]] = [
    _flip,
    _set_number,
    _cut,
    _insert,
    _splice,
    _repeat,
]


def damaged(source: random.Random, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds, damaged a few times."""
    data = bytearray(source.choice(seeds))
    for _ in range(source.choice([1, 1, 2, 4, 9])):
        if data:
            source.choice(_KINDS)(source, data, seeds)
    return bytes(data)

"""Random record batches, good and bad, and memory whose end may not be overstepped.

Invariant: everything here is made by the oracle, so that no kernel is tested with its own output
alone.
"""

from __future__ import annotations

import ctypes
import mmap
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from samelog.format.compression import Codec, compress, decompress
from samelog.format.errors import CorruptBatch
from tests.format import oracle

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TIMES = st.one_of(st.integers(-3, 3), st.integers(1_700_000_000_000, 1_700_000_100_000), INT64)
BYTES = st.one_of(st.none(), st.just(b""), st.binary(max_size=12), st.binary(max_size=150))
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
HEADERS = st.one_of(st.none(), st.lists(st.tuples(KEYS, BYTES), max_size=3))
RECORDS = st.lists(st.tuples(BYTES, BYTES, HEADERS, TIMES), min_size=1, max_size=6)

LOG_APPEND_TIME = 8
CONTROL = 32


def _random_field(source: random.Random) -> bytes | None:
    size = source.choice([-1, 0, 1, 5, 30, 70])
    return None if size < 0 else source.randbytes(size)


def _random_record(source: random.Random) -> tuple[Any, ...]:
    headers = [
        (source.choice(["", "k", "é", "long name"]), _random_field(source))
        for _ in range(source.choice([0, 0, 0, 1, 2]))
    ]
    timestamp = source.choice(
        [0, 1_700_000_000_000, source.getrandbits(64) - (1 << 63), 1_700_000_000_007]
    )
    return _random_field(source), _random_field(source), headers, timestamp


@st.composite
def whole_batches(draw: st.DrawFn) -> oracle.Batch:
    """A batch that is valid in every respect; its records come from a seed, which is fast."""
    source = random.Random(draw(st.integers(0, 1 << 32)))
    records = [_random_record(source) for _ in range(draw(st.integers(1, 8)))]
    values, keys, headers, times = zip(*records, strict=True)
    data = oracle.build_batches(
        values,
        keys=keys,
        headers=headers,
        timestamps=times,
        producer_id=draw(st.sampled_from([-1, 0, 77])),
        producer_epoch=draw(st.sampled_from([-1, 5])),
        base_sequence=draw(st.sampled_from([-1, 0, 9, (1 << 31) - 2])),
        batch_bytes=1 << 30,
    )
    batch = oracle.read_batch(data, 0, len(data), 1 << 30)
    codec = draw(st.sampled_from([Codec.NONE, Codec.NONE, *Codec]))
    flags = draw(st.sampled_from([0, 0, LOG_APPEND_TIME, CONTROL, 16, 64]))
    return replace(
        batch,
        base_offset=draw(st.one_of(st.just(0), st.integers(0, 1 << 40), INT64)),
        leader_epoch=draw(st.integers(-1, 5)),
        attributes=codec | flags,
        max_timestamp=draw(st.one_of(st.just(batch.max_timestamp), TIMES)),
        body=compress(codec, batch.body),
    )


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """`data` with some bytes flipped, cut out, put in, or missing at the end."""
    out = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(out)))
        match draw(st.sampled_from(["flip", "set", "cut", "put", "end"])):
            case "flip" if at < len(out):
                out[at] ^= 1 << draw(st.integers(0, 7))
            case "set" if at < len(out):
                out[at] = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF]))
            case "cut":
                del out[at : at + draw(st.integers(1, 20))]
            case "put":
                out[at:at] = draw(st.sampled_from([b"\x00", b"\x80", b"\xff" * 9, b"samelog"]))
            case "end":
                del out[at:]
    return bytes(out)


@st.composite
def lying_batches(draw: st.DrawFn) -> oracle.Batch:
    """A batch whose CRC and length are right and whose records are damaged."""
    batch = draw(whole_batches())
    plain = decompress(batch.codec, batch.body)
    body = draw(st.one_of(damaged(plain), st.binary(max_size=40)))
    body = compress(batch.codec, body) if draw(st.booleans()) else body
    count = batch.count + draw(st.sampled_from([0, 0, 0, 1, -1, 1 << 20]))
    return replace(batch, body=body, count=count, last_offset_delta=count - 1)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Some batches one behind the other, most of them good."""
    kinds = st.one_of(whole_batches(), whole_batches(), lying_batches())
    data = b"".join(batch.encode() for batch in draw(st.lists(kinds, max_size=4)))
    return draw(st.one_of(st.just(data), st.just(data), damaged(data)))


def changes(data: bytes) -> Iterator[bytes]:
    """`data` with each single byte changed in each way that often matters."""
    for at, byte in enumerate(data):
        for other in {0, 1, 2, 3, 0x7F, 0x80, 0xFF, byte ^ 1, byte ^ 2, (byte + 2) % 256}:
            yield data[:at] + bytes([other]) + data[at + 1 :]


def good_logs(max_size: int = 4) -> st.SearchStrategy[bytes]:
    """Some valid batches one behind the other."""
    batches = st.lists(whole_batches(), min_size=1, max_size=max_size)
    return batches.map(lambda several: b"".join(batch.encode() for batch in several))


def outcome(call: Callable[[], Any]) -> Any:
    """What a kernel or its twin answers: a value, or where the batch is that it rejects."""
    try:
        return call()
    except (CorruptBatch, oracle.Invalid) as error:
        return ("invalid", error.position)


class _Guard:
    """Memory whose last byte lies before a page that may not be touched."""

    def __init__(self, size: int) -> None:
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.memory = mmap.mmap(-1, size + mmap.PAGESIZE)
        self.end = ctypes.addressof(ctypes.c_char.from_buffer(self.memory)) + size
        self.size = size
        if self.libc.mprotect(ctypes.c_void_p(self.end), ctypes.c_size_t(mmap.PAGESIZE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")


_guard = _Guard(64 * mmap.PAGESIZE)


def guarded(data: bytes | bytearray) -> memoryview:
    """A writable copy of `data`, valid until the next call; reading behind it ends the process."""
    if len(data) > _guard.size:
        raise ValueError("too much data")
    array = (ctypes.c_ubyte * len(data)).from_address(_guard.end - len(data))
    view = memoryview(array).cast("B")
    view[:] = data
    return view

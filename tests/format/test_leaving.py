"""Leaving records out of ranges of batches: the kernel agrees with its plain twin, runs with lists
of what stays.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.format import _kernels as kernels
from samelog.format.batch import count_staying, joined, leave_out, runs_of, slice_batch
from samelog.format.compression import Codec, compress, decompress
from samelog.format.errors import CorruptBatch
from tests.format import oracle
from tests.format.batches import guarded, whole_batches

STAYING = st.lists(st.booleans(), max_size=40)


def plain(runs: list[int], records: int) -> list[bool]:
    """Record by record, what runs say."""
    said = [place % 2 == 0 for place, length in enumerate(runs) for _ in range(length)]
    return said + [True] * (records - len(said))


@given(STAYING)
def test_runs_say_what_stays(staying: list[bool]) -> None:
    runs = runs_of(staying)
    assert plain(runs, len(staying)) == staying
    assert len(runs) % 2 == 0
    assert all(runs[1:])


@given(STAYING, STAYING)
def test_runs_are_joined(first: list[bool], second: list[bool]) -> None:
    runs = joined(runs_of(first), len(first), runs_of(second))
    assert plain(runs, len(first) + len(second)) == first + second
    assert runs == runs_of(first + second)


@given(STAYING, st.integers(0, 50), st.integers(0, 50))
def test_staying_records_are_counted(staying: list[bool], start: int, records: int) -> None:
    part = plain(runs_of(staying), 100)[start : start + records]
    assert count_staying(runs_of(staying), start, records) == sum(part)


def plain_leave_out(data: bytes, staying: list[bool]) -> bytes:
    """The rule of `samelog.format.batch.leave_out`, by what stays record by record."""
    at, out, staying = 0, b"", [*staying]
    while at < len(data):
        batch = oracle.read_batch(data, at, len(data), oracle.UNLIMITED)
        own, staying = staying[: batch.count], staying[batch.count :]
        if all(own):
            out += data[at : at + batch.size]
        elif any(own):
            out += oracle.with_some(batch, own)
        at += batch.size
    return out


@given(st.lists(whole_batches(), min_size=1, max_size=4), st.data())
def test_what_stays_agrees(parts: list[oracle.Batch], draw: st.DataObject) -> None:
    parts = [replace(each, attributes=each.attributes & ~32) for each in parts]
    data = b"".join(each.encode() for each in parts)
    count = sum(each.count for each in parts)
    staying = draw.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    result = bytes(leave_out(guarded(data), runs_of(staying)))
    assert result == plain_leave_out(data, staying)
    records = oracle.decode_records(data, 0, len(data))
    kept = [record for record, stays in zip(records, staying, strict=True) if stays]
    found = oracle.decode_records(result, 0, len(result))
    assert [each[1:] for each in found] == [each[1:] for each in kept]
    assert kernels.scan(result, max_batch_bytes=1 << 30).error is None


def built(*values: bytes) -> bytes:
    return kernels.build_batches(
        list(values), timestamps=5, batch_bytes=1 << 20, max_record_bytes=1 << 20
    )


def test_whole_batches_stay_to_the_byte_or_go() -> None:
    first, second = built(b"a", b"b"), built(b"c", b"d")
    packed = oracle.read_batch(second, 0, len(second), 1000)
    zipped = replace(packed, attributes=4, body=compress(Codec.ZSTD, packed.body)).encode()
    assert leave_out(first + zipped, []) == first + zipped
    assert leave_out(first + zipped, [0, 2]) == zipped
    assert leave_out(first + zipped, [2, 2]) == first
    assert leave_out(first + zipped, [0, 4]) == b""
    assert leave_out(first + zipped, [0, 3]) == slice_batch(zipped, 1)


def test_records_from_the_middle_are_left_out_by_hand() -> None:
    left = leave_out(built(b"a", b"b", b"c"), [1, 1])
    assert left == built(b"a", b"c")


def test_runs_of_too_many_records_and_broken_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="fewer records"):
        leave_out(built(b"a", b"b"), [1, 2])
    with pytest.raises(ValueError, match="fewer records"):
        leave_out(built(b"a", b"b"), [2, 1])
    with pytest.raises(ValueError, match="a run of"):
        leave_out(built(b"a", b"b"), [-1, 2])
    with pytest.raises(CorruptBatch):
        leave_out(built(b"a", b"b")[:-1], [1, 1])


# --- keys ---------------------------------------------------------------------------------------


@given(st.lists(whole_batches(), max_size=4))
def test_keys_agree(parts: list[oracle.Batch]) -> None:
    data = b"".join(each.encode() for each in parts)
    expected: list[bytes | None] = []
    for each in parts:
        own = each.encode()
        records = oracle.decode_records(own, 0, len(own))
        expected += [record[3] for record in records] or [None] * each.count
    assert kernels.keys_of(guarded(data), 0, len(data), decompress) == expected


@given(st.lists(st.one_of(st.none(), st.binary(max_size=20)), max_size=10), st.integers(0, 1 << 40))
def test_the_digest_of_keys_is_that_of_a_set(keys: list[bytes | None], offset: int) -> None:
    whole = kernels.digest_keys(keys, offset)
    parts = [kernels.digest_keys([key], offset + at) for at, key in enumerate(keys)]
    assert whole == sum(parts) % (1 << 64)
    half = len(keys) // 2
    begun = kernels.digest_keys(keys[:half], offset)
    assert kernels.digest_keys(keys[half:], offset + half, begun) == whole

"""Batch headers as values, and slicing by its one rule."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.format import _kernels as kernels
from samelog.format.batch import HEADER_BYTES, BatchHeader, read_header, slice_batch
from samelog.format.compression import LIMIT_BYTES_DEFAULT, Codec, compress, decompress
from samelog.format.errors import CorruptBatch, DecompressionError
from tests.format import oracle
from tests.format.batches import changes, guarded, logs, lying_batches, outcome, whole_batches


@given(whole_batches(), st.integers(0, 5))
def test_header_fields(batch: oracle.Batch, start: int) -> None:
    data = bytes(start) + batch.encode()
    header = read_header(guarded(data[: start + HEADER_BYTES]), start)
    assert header == BatchHeader(
        base_offset=batch.base_offset,
        size=len(data) - start,
        leader_epoch=batch.leader_epoch,
        crc=oracle.crc32c(data[start + 21 :]),
        attributes=batch.attributes,
        last_offset_delta=batch.last_offset_delta,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        records=batch.count,
    )
    assert header.codec == batch.codec
    assert header.next_offset == batch.base_offset + batch.count


@given(logs())
def test_header_is_accepted_where_scan_accepts_it(data: bytes) -> None:
    scan = kernels.scan(data, verify_crc=False, max_batches=1, max_batch_bytes=1 << 40)
    whole = scan.batches == 1 or (scan.short and len(data) >= HEADER_BYTES)
    assert (outcome(lambda: read_header(data)) != ("invalid", 0)) == whole


@pytest.mark.parametrize("start", [-1, 1, 1000])
def test_header_must_be_inside_the_buffer(start: int) -> None:
    with pytest.raises(CorruptBatch):
        read_header(kernels.build_record(b"")[:HEADER_BYTES], start)


# --- slicing -----------------------------------------------------------------------------------


@given(whole_batches(), st.data())
def test_slice_agrees(batch: oracle.Batch, draw: st.DataObject) -> None:
    batch = replace(batch, attributes=batch.attributes & ~32)
    data = batch.encode()
    skip = draw.draw(st.integers(0, batch.count - 1))
    result = slice_batch(guarded(data), skip)
    assert result == oracle.slice_batch(data, skip)
    kept = oracle.decode_records(data, 0, len(data))[skip:]
    assert oracle.decode_records(result, 0, len(result)) == kept
    assert kernels.scan(result, max_batch_bytes=1 << 30).error is None


@given(st.one_of(lying_batches().map(oracle.Batch.encode), logs()), st.integers(0, 3))
def test_slice_of_lying_batches_agrees(data: bytes, skip: int) -> None:
    try:
        expected = outcome(lambda: oracle.slice_batch(data, skip))
    except (DecompressionError, ValueError) as error:
        with pytest.raises(type(error)):
            slice_batch(guarded(data), skip)
    else:
        view = guarded(data)
        assert outcome(lambda: slice_batch(view, skip)) == expected


def test_slice_agrees_on_every_changed_byte_of_the_records() -> None:
    data = oracle.build_batches(
        [b"v", None], headers=[[("h", b"v")], None], timestamps=5, batch_bytes=1000
    )
    batch = oracle.read_batch(data, 0, len(data), 1000)
    for body in [*changes(batch.body), batch.body[:-1], batch.body + b"\x00"]:
        broken = replace(batch, body=body).encode()
        expected = outcome(partial(oracle.slice_batch, broken, 1))
        assert outcome(partial(slice_batch, guarded(broken), 1)) == expected


def test_slice_by_hand() -> None:
    batch = kernels.build_batches(
        [b"a", b"b", b"c"],
        keys=[None, b"k", None],
        timestamps=[100, 90, 95],
        producer_id=9,
        producer_epoch=2,
        base_sequence=(1 << 31) - 1,
        batch_bytes=1000,
        max_record_bytes=1000,
    )
    sliced = slice_batch(batch, 1)
    expected = kernels.build_batches(
        [b"b", b"c"],
        keys=[b"k", None],
        timestamps=[90, 95],
        producer_id=9,
        producer_epoch=2,
        base_sequence=0,
        batch_bytes=1000,
        max_record_bytes=1000,
    )
    assert sliced[:8] == (1).to_bytes(8, "big")
    assert sliced[8:] == expected[8:]


@pytest.mark.parametrize("codec", list(Codec))
def test_slice_does_not_depend_on_the_codec(codec: Codec) -> None:
    data = oracle.build_batches([b"x" * 50, b"y" * 50], timestamps=[1, 2], batch_bytes=1000)
    batch = oracle.read_batch(data, 0, len(data), 1000)
    packed = replace(batch, attributes=int(codec), body=compress(codec, batch.body)).encode()
    assert slice_batch(packed, 1) == slice_batch(data, 1)
    assert read_header(slice_batch(packed, 1)).codec == Codec.NONE


def test_slice_keeps_record_attributes_and_strange_headers() -> None:
    header_bytes = b"\x82\x00" + oracle.field(b"\xff") + oracle.field(None)  # a long way to write 1
    body = oracle.encode_record(0, 0, None, b"", b"\x00")
    body += oracle.encode_record(1, 0, None, b"", header_bytes, attributes=0x55)
    data = oracle.build_batches([b"", b""], timestamps=0, batch_bytes=1000)
    batch = replace(oracle.read_batch(data, 0, len(data), 1000), body=body)
    expected = oracle.encode_record(0, 0, None, b"", header_bytes, attributes=0x55)
    assert slice_batch(batch.encode(), 1)[HEADER_BYTES:] == expected


def test_slice_refuses_what_leaves_nothing_and_control_batches() -> None:
    record = kernels.build_record(b"x")
    for skip in (-1, 1, 2):
        with pytest.raises(ValueError, match="cannot drop"):
            slice_batch(record, skip)
    control = replace(oracle.read_batch(record, 0, len(record), 1000), attributes=32).encode()
    with pytest.raises(ValueError, match="control"):
        slice_batch(control, 0)


def test_slice_refuses_a_second_batch_and_a_part_of_one() -> None:
    record = kernels.build_record(b"x")
    for data in (record + record, record + b"x", record[:-1], b""):
        with pytest.raises(CorruptBatch):
            slice_batch(data, 0)


def test_the_decompressor_that_slices_is_bounded() -> None:
    data = kernels.build_record(b"x")
    batch = replace(
        oracle.read_batch(data, 0, len(data), 1000),
        attributes=int(Codec.ZSTD),
        body=compress(Codec.ZSTD, bytes(LIMIT_BYTES_DEFAULT + 1)),
    )
    with pytest.raises(DecompressionError):
        slice_batch(batch.encode(), 0)
    unpacked = decompress(Codec.ZSTD, batch.body, limit_bytes=LIMIT_BYTES_DEFAULT + 1)
    assert len(unpacked) == LIMIT_BYTES_DEFAULT + 1

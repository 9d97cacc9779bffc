"""CRC, scan, headers and offsets: the kernels against the oracle, on good, bad and random bytes."""

from __future__ import annotations

import mmap
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import crc32c as reference
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.format import _kernels as kernels
from samelog.format.batch import read_head
from samelog.format.compression import decompress
from tests.format import oracle
from tests.format.batches import changes, good_logs, guarded, logs, outcome, whole_batches

ATTRIBUTES = [
    "end",
    "batches",
    "records",
    "last_start",
    "last_crc",
    "max_timestamp",
    "digest",
    "attributes",
    "has_producer",
    "is_sparse",
    "short",
]


Assign = Callable[..., tuple[int, int, int]]


# --- CRC ---------------------------------------------------------------------------------------


def test_crc_of_the_standard_check_string() -> None:
    assert kernels.crc32c(b"123456789") == 0xE3069283


def test_crc_of_all_small_sizes_and_alignments() -> None:
    data = random.Random(1).randbytes(1000)
    view = memoryview(data)
    for size in range(900):
        for start in (0, 1, 3, 7):
            part = view[start : start + size]
            assert kernels.crc32c(part) == reference.crc32c(part)


@pytest.mark.parametrize("size", [768, 4096, 12287, 12288, 12289, 25000, 65536, 200_001])
def test_crc_of_big_buffers(size: int) -> None:
    data = random.Random(size).randbytes(size)
    expected = reference.crc32c(data)
    assert kernels.crc32c(data) == expected
    assert kernels.crc32c(bytearray(data)) == expected
    half = size // 3
    assert kernels.crc32c(data[half:], kernels.crc32c(data[:half])) == expected


@given(st.binary(max_size=300), st.integers(0, (1 << 32) - 1))
def test_crc_continues_from_any_value(data: bytes, value: int) -> None:
    assert kernels.crc32c(guarded(data), value) == oracle.crc32c(data, value)
    assert kernels.crc32c_portable(data, value) == oracle.crc32c(data, value)


def test_crc_takes_a_memory_map() -> None:
    with mmap.mmap(-1, 5000) as memory:
        assert kernels.crc32c(memory) == reference.crc32c(bytes(5000))


def test_crc_refuses_what_is_not_a_buffer() -> None:
    with pytest.raises(TypeError):
        kernels.crc32c("text")  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        kernels.crc32c(b"", -1)


# --- scan --------------------------------------------------------------------------------------


def as_dict(scan: kernels.Scan) -> dict[str, Any]:
    return {name: getattr(scan, name) for name in ATTRIBUTES} | {"error": scan.error is not None}


@given(logs(), st.data())
def test_scan_agrees(data: bytes, draw: st.DataObject) -> None:
    start = draw.draw(st.one_of(st.just(0), st.integers(0, len(data))))
    stop = draw.draw(st.one_of(st.just(-1), st.integers(start, len(data))))
    options: dict[str, Any] = {
        "start": start,
        "stop": stop,
        "verify_crc": draw.draw(st.booleans()),
        "max_batches": draw.draw(st.sampled_from([-1, -1, 0, 1, 2])),
        "max_bytes": draw.draw(st.sampled_from([-1, -1, 0, 100, 300, 1000])),
        "max_batch_bytes": draw.draw(st.sampled_from([1 << 20, 61, 150])),
    }
    assert as_dict(kernels.scan(guarded(data), **options)) == oracle.scan(data, **options)


@given(st.binary(max_size=150))
def test_scan_of_random_bytes_agrees(data: bytes) -> None:
    assert as_dict(kernels.scan(guarded(data))) == oracle.scan(data)


@given(whole_batches(), st.sampled_from([8, 16, 17, 21, 22, 23, 57, 60]), st.integers(0, 255))
def test_scan_agrees_on_every_header_field(batch: oracle.Batch, at: int, byte: int) -> None:
    data = bytearray(batch.encode())
    data[at] = byte
    for verify in (True, False):
        expected = oracle.scan(bytes(data), verify_crc=verify)
        assert as_dict(kernels.scan(guarded(data), verify_crc=verify)) == expected


@given(good_logs(), st.data())
def test_scan_of_a_cut_log_is_short(data: bytes, draw: st.DataObject) -> None:
    cut = draw.draw(st.integers(0, len(data)))
    scan = kernels.scan(guarded(data[:cut]))
    assert scan.error is None
    assert scan.short == (scan.end < cut)
    assert not kernels.scan(data).short


def test_every_cut_and_every_changed_header_byte() -> None:
    data = kernels.build_batches(
        [b"a", b"bc"], timestamps=5, producer_id=1, batch_bytes=0, max_record_bytes=100
    )
    for cut in range(len(data)):
        assert as_dict(kernels.scan(guarded(data[:cut]))) == oracle.scan(data[:cut])
        expected = outcome(partial(oracle.batch_headers, data[:cut], 0, cut))
        assert outcome(partial(kernels.batch_headers, guarded(data[:cut]), 0, cut)) == expected
    for changed in changes(data[:61]):
        broken = changed + data[61:]
        for verify in (True, False):
            expected = oracle.scan(broken, verify_crc=verify)
            assert as_dict(kernels.scan(guarded(broken), verify_crc=verify)) == expected


def test_scan_says_what_is_wrong() -> None:
    good = kernels.build_record(b"x")
    bad = bytearray(good)
    bad[-1] ^= 1
    scan = kernels.scan(good + bad)
    assert (scan.end, scan.batches, scan.error) == (len(good), 1, "its CRC does not match")
    assert "CRC" in repr(scan)


def test_scan_of_zeros_is_an_error_not_a_short_batch() -> None:
    scan = kernels.scan(bytes(100))
    assert scan.error is not None
    assert not scan.short


def test_scan_of_a_large_buffer_releases_and_agrees() -> None:
    data = kernels.build_batches(
        [b"v" * 1000] * 300, timestamps=1, batch_bytes=20_000, max_record_bytes=2000
    )
    assert len(data) > 65536
    assert as_dict(kernels.scan(data)) == oracle.scan(data)


def test_digest_depends_on_the_order_of_batches() -> None:
    first, second = kernels.build_record(b"1"), kernels.build_record(b"2")
    assert kernels.scan(first + second).digest != kernels.scan(second + first).digest


def test_ranges_outside_the_data_are_refused() -> None:
    data = kernels.build_record(b"x")
    for start, stop in ((-1, 3), (5, 4), (0, len(data) + 1), (0, -2)):
        with pytest.raises(ValueError, match="not inside"):
            kernels.scan(data, start=start, stop=stop)
        with pytest.raises(ValueError, match="not inside"):
            kernels.batch_headers(data, start, stop)
        with pytest.raises(ValueError, match="not inside"):
            kernels.decode_records(data, start, stop, "t", 0, decompress)


# --- headers and offsets -----------------------------------------------------------------------


@given(logs())
def test_batch_headers_agree(data: bytes) -> None:
    view, size = guarded(data), len(data)
    expected = outcome(lambda: oracle.batch_headers(data, 0, size))
    assert outcome(lambda: kernels.batch_headers(view, 0, size)) == expected


@given(good_logs(), st.integers(-1, 3000))
def test_a_batch_is_found_by_offset(data: bytes, cut: int) -> None:
    """Of whole batches, the first one that reaches the offset; nothing behind a cut is found."""
    size = min(len(data), cut) if cut >= 0 else len(data)
    heads = [*whole_heads(data, size)]
    near = {min(last + more, (1 << 63) - 1) for _, last in heads for more in (-1, 0, 1)}
    for offset in {0, *near}:
        expected = next((at for at, last in heads if last >= offset), -1)
        assert kernels.find_batch(guarded(data[:size]), offset) == expected


def whole_heads(data: bytes, size: int) -> Iterator[tuple[int, int]]:
    """(position, last offset) of each batch that is whole within `size` bytes."""
    at = 0
    while (head := read_head(data[:size], at, at)) is not None and at + head.size <= size:
        yield at, head.last_offset
        at += head.size


@given(logs(), st.integers(0, 1 << 62), st.integers(-(1 << 31), (1 << 31) - 1), st.data())
def test_assign_offsets_agrees(data: bytes, offset: int, epoch: int, draw: st.DataObject) -> None:
    options: dict[str, Any] = {
        "file_position": draw.draw(st.integers(0, 1 << 31)),
        "bytes_since_index": draw.draw(st.sampled_from([0, 1, 150, 5000])),
        "index_interval": draw.draw(st.sampled_from([0, 100, 300, 4096])),
    }
    results = []
    for assign, buffer in (
        (cast(Assign, oracle.assign_offsets), bytearray(data)),
        (kernels.assign_offsets, guarded(data)),
    ):
        points: list[tuple[int, int, int, int]] = []
        call = partial(assign, buffer, 0, len(data), offset, epoch, points=points, **options)
        results.append((outcome(call), bytes(buffer), points))
    assert results[0] == results[1]


@given(good_logs())
def test_assigning_offsets_keeps_the_crc(data: bytes) -> None:
    buffer = bytearray(data)
    assign(buffer, 1000)
    before, after = kernels.scan(data), kernels.scan(buffer)
    assert as_dict(before) == as_dict(after)
    assert after.error is None


@given(good_logs(), st.integers(0, 1 << 62))
def test_stamping_the_append_time_changes_nothing_else(data: bytes, append_ms: int) -> None:
    buffer = guarded(data)
    kernels.stamp_append_time(buffer, append_ms)
    scan = kernels.scan(buffer)
    assert (scan.error, scan.end, scan.batches) == (None, len(data), kernels.scan(data).batches)
    for before, after in zip(
        kernels.batch_headers(data, 0, len(data)),
        kernels.batch_headers(buffer, 0, len(data)),
        strict=True,
    ):
        assert after[3] == before[3] | 0x08
        assert after[5] == append_ms
        assert (after[:3], after[4], after[6:9]) == (before[:3], before[4], before[6:9])
        start, size = before[:2]
        assert bytes(buffer[start + 61 : start + size]) == data[start + 61 : start + size]


@given(logs())
def test_stamping_refuses_what_is_no_batch(data: bytes) -> None:
    expected = outcome(lambda: oracle.batch_headers(data, 0, len(data)) and None)
    found = outcome(lambda: kernels.stamp_append_time(guarded(data), 1))
    assert (found or None) == (expected or None)


def assign(buffer: bytearray | bytes, base_offset: int) -> tuple[int, int, int]:
    return kernels.assign_offsets(
        buffer,
        0,
        len(buffer),
        base_offset,
        7,
        file_position=0,
        bytes_since_index=0,
        index_interval=0,
        points=[],
    )


def test_offsets_never_pass_63_bits() -> None:
    buffer = bytearray(kernels.build_record(b"x"))
    assert assign(buffer, (1 << 63) - 2) == ((1 << 63) - 1, len(buffer), 0)
    before = bytes(buffer)
    for base in ((1 << 63) - 1, -1):
        with pytest.raises(ValueError, match="no offsets"):
            assign(buffer, base)
    assert buffer == before


def test_only_writable_buffers_get_offsets() -> None:
    with pytest.raises(BufferError):
        assign(kernels.build_record(b"x"), 0)

"""Void batches: dense, valid, passed over by readers; and what lies behind one comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from samelog.format import _kernels as kernels
from samelog.format.arrow import to_arrow
from samelog.format.batch import Attribute, read_header
from samelog.format.compression import decompress
from samelog.format.errors import NotContiguous
from samelog.format.void_batch import RECORDS_LIMIT, is_void, void_batches
from samelog.store.merged.lost_records import append_spare, append_void
from tests.store.merged_parts import LOG_0, ONE, THREE, TWO, write
from tests.store.storage import open_merged


@pytest.mark.parametrize("records", [1, 5, RECORDS_LIMIT, RECORDS_LIMIT + 1])
def test_void_batches_are_valid_and_readers_pass_over_them(records: int) -> None:
    data = void_batches(records, 77)
    scan = kernels.scan(data)
    assert (scan.end, scan.records, scan.error) == (len(data), records, None)
    assert kernels.decode_records(data, 0, len(data), "t", 0, decompress) == []
    assert to_arrow(data, 0, len(data), topic="t", partition=0).num_rows == 0


def test_a_void_batch_is_known_by_its_header() -> None:
    data = bytes(void_batches(3, 77))
    header = read_header(data)
    assert is_void(data)
    assert not is_void(ONE)
    assert header.attributes == Attribute.CONTROL
    assert (header.max_timestamp, header.producer_id) == (77, -1)


def test_what_lies_behind_a_void_comes_from_what_was_set_aside(tmp_path: Path) -> None:
    """Though it is not where it was: a void batch has another length than what it stands for."""
    path = tmp_path / "t-0"
    log, oracle = write(path, [ONE, TWO, THREE, ONE, TWO], [TWO])
    log.close()
    spoil(path / LOG_0, len(ONE) + 70)
    (path / "marks").unlink()  # they would spare the reading of what is below them
    log = open_merged(path)
    for _ in log.spares.read_new():
        pass
    assert (log.next_offset, append_spare(log)) == (1, False)
    assert log.spares.next_after(1) == 4
    append_void(log, 3, segment_base=0, epoch=2, timestamp=5)
    while append_spare(log):
        pass
    assert (log.next_offset, [segment.base_offset for segment in log.segments()]) == (
        oracle.next_offset,
        [0, 10],
    )
    segment, byte = log.locate(2)
    assert is_void(log.read(segment, byte, 61))
    assert read_header(log.read(segment, byte, 61)).leader_epoch == 2
    log.close()


def test_a_batch_that_stands_alone_is_not_believed_elsewhere(tmp_path: Path) -> None:
    """Its offset lies outside its CRC, and no neighbour confirms it."""
    path = tmp_path / "t-0"
    log, _ = write(path, [ONE, TWO, THREE])
    log.close()
    spoil(path / LOG_0, len(ONE) + 70)
    (path / "marks").unlink()  # they would spare the reading of what is below them
    log = open_merged(path)
    for _ in log.spares.read_new():
        pass
    assert (log.next_offset, log.spares.next_after(1)) == (1, None)
    append_void(log, 3, segment_base=0, epoch=2, timestamp=5)
    assert not append_spare(log)
    log.close()


def test_a_void_goes_into_the_segment_it_is_meant_for(tmp_path: Path) -> None:
    log, _ = write(tmp_path / "t-0", [ONE], [TWO])
    with pytest.raises(NotContiguous):
        append_void(log, 3, segment_base=0, epoch=2, timestamp=5)
    append_void(log, 3, segment_base=log.next_offset, epoch=2, timestamp=5)
    assert [segment.base_offset for segment in log.segments()] == [0, 1, 4]
    log.close()


def spoil(file: Path, position: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 4
    file.write_bytes(data)

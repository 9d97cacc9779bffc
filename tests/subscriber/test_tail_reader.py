"""Reading merged files that somebody else writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samelog.format import _kernels as kernels
from samelog.format.compression import decompress
from samelog.format.errors import CorruptLog
from samelog.subscriber import OffsetNotHere
from samelog.subscriber.tail_reader import TailReader
from tests.examples import at_most
from tests.store.compacting import KeyedLog
from tests.store.storage import open_merged
from tests.subscriber.merged import FS, Growing, numbers

LIMIT_BYTES = 1000


def open_reader(growing: Growing) -> TailReader:
    reader = TailReader.open(FS, str(growing.path))
    if reader is None:
        raise AssertionError("there is no partition")
    reader.seek_earliest()
    return reader


def read_all(reader: TailReader, limit_bytes: int = LIMIT_BYTES) -> list[bytes | None]:
    """The values up to what is there now; offsets must be dense."""
    values: list[bytes | None] = []
    while (chunk := reader.read(limit_bytes)) is not None:
        records = kernels.decode_records(chunk.data, 0, chunk.size, "t", 0, decompress)
        offsets = [record.offset for record in records]
        assert offsets == list(range(chunk.first_offset, chunk.next_offset))
        values += [record.value for record in records]
    return values


def test_there_may_be_nothing_yet(tmp_path: Path) -> None:
    assert TailReader.open(FS, str(tmp_path)) is None
    reader = open_reader(Growing(tmp_path))
    assert read_all(reader) == []
    assert not reader.has_more()


@settings(max_examples=at_most(40))
@given(
    steps=st.lists(st.one_of(st.integers(1, 30), st.sampled_from(["roll", "read"])), max_size=20),
    limit_bytes=st.integers(1, 3000),
)
def test_whatever_is_appended_is_read_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int | str], limit_bytes: int
) -> None:
    growing = Growing(tmp_path_factory.mktemp("tail"))
    reader = open_reader(growing)
    count, found = 0, []
    for step in steps:
        if isinstance(step, int):
            growing.count(count, count + step)
            count += step
            assert reader.has_more()
        elif step == "roll":
            growing.roll()
        else:
            found += read_all(reader, limit_bytes)
            assert not reader.has_more()
    found += read_all(reader, limit_bytes)
    assert found == numbers(0, count)
    growing.log.close()
    reader.close()


def test_a_batch_larger_than_the_limit_comes_whole(tmp_path: Path) -> None:
    growing = Growing(tmp_path)
    growing.append(bytes(500_000))
    growing.append(b"small")
    assert read_all(open_reader(growing), 100) == [bytes(500_000), b"small"]


@settings(max_examples=at_most(30))
@given(cut=st.integers(1, 199))
def test_a_batch_that_is_being_written_is_not_there_yet(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    growing = Growing(tmp_path_factory.mktemp("torn"))
    growing.append(b"first")
    size = growing.segment(0).stat().st_size
    growing.append(b"x" * 200)
    whole = growing.segment(0).read_bytes()
    growing.segment(0).write_bytes(whole[: size + cut])
    reader = open_reader(growing)
    assert read_all(reader) == [b"first"]
    reader.recheck_segment()
    assert read_all(reader) == []
    growing.segment(0).write_bytes(whole[: size + cut] + b"\0" * (len(whole) - size - cut))
    assert read_all(reader) == []
    growing.segment(0).write_bytes(whole)
    assert read_all(reader) == [b"x" * 200]


def damage(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("why", ["a successor", "the durable mark"])
def test_a_bad_batch_that_must_be_whole_is_damage(tmp_path: Path, why: str) -> None:
    growing = Growing(tmp_path)
    growing.append(b"first")
    size = growing.segment(0).stat().st_size
    growing.append(b"second")
    if why == "a successor":
        growing.roll()
    else:
        growing.make_durable()
    damage(growing.segment(0), size + 70)
    reader = open_reader(growing)
    assert read_all(reader) == [b"first"]
    with pytest.raises(CorruptLog, match=f"byte {size}"):
        reader.recheck_segment()


def test_bytes_of_other_offsets_are_damage(tmp_path: Path) -> None:
    growing = Growing(tmp_path)
    growing.append(b"first")
    reader = open_reader(growing)
    assert read_all(reader) == [b"first"]
    with growing.segment(0).open("ab") as file:
        file.write(growing.segment(0).read_bytes())
    with pytest.raises(CorruptLog, match="offset 1 is not here"):
        reader.read(LIMIT_BYTES)


def test_seeking_finds_every_offset(tmp_path: Path) -> None:
    growing = Growing(tmp_path)
    for segment in range(3):
        growing.count(segment * 40, segment * 40 + 40)
        growing.roll()
    reader = open_reader(growing)
    for offset in range(121):
        reader.seek(offset)
        values = read_all(reader)
        assert values[-(120 - offset) :] == numbers(offset, 120) if offset < 120 else values == []
    with pytest.raises(
        OffsetNotHere, match="the earliest available is 0, the end is 120"
    ) as caught:
        reader.seek(121)
    assert (caught.value.earliest, caught.value.end) == (0, 120)


def test_archived_segments_are_skipped_from_the_start_and_refused_later(tmp_path: Path) -> None:
    growing = Growing(tmp_path)
    growing.count(0, 40)
    growing.roll()
    growing.count(40, 80)
    growing.roll()
    growing.count(80, 90)
    growing.make_durable()
    behind = open_reader(growing)
    started = open_reader(growing)
    started.read(1)
    growing.archive(0)
    reader = open_reader(growing)
    assert reader.next_offset == 40
    assert read_all(reader) == numbers(40, 90)
    assert read_all(behind) == []
    with pytest.raises(OffsetNotHere):
        behind.recheck_segment()
    assert read_all(started)[-1] == b"000089"


def test_a_file_that_was_replaced_is_opened_again(tmp_path: Path) -> None:
    growing = Growing(tmp_path)
    growing.append(b"first")
    reader = open_reader(growing)
    assert read_all(reader) == [b"first"]
    copy = growing.path / "copy"
    copy.write_bytes(growing.segment(0).read_bytes())
    os.replace(copy, growing.segment(0))
    again = Growing(tmp_path)
    again.append(b"second")
    assert read_all(reader) == []
    reader.recheck_segment()
    assert read_all(reader) == [b"second"]


def test_timestamps_are_found(tmp_path: Path) -> None:
    growing = Growing(tmp_path)
    growing.append(b"a", b"b", timestamp=[10, 30])
    growing.append(b"c", timestamp=20)
    reader = open_reader(growing)
    assert [reader.locate_timestamp(ms) for ms in (5, 10, 11, 30)] == [0, 0, 1, 1]
    assert reader.locate_timestamp(31) is None


def test_what_was_compacted_may_come_again(tmp_path: Path) -> None:
    """A copy fetches a segment again, of which the reader has read more than was fetched so far."""
    keyed = KeyedLog(open_merged(tmp_path))
    for number in range(4):
        keyed.append([(b"key", b"%d" % number)])
    reader = TailReader.open(FS, str(tmp_path))
    assert reader is not None
    reader.seek_earliest()
    assert read_all(reader) == [b"0", b"1", b"2", b"3"]
    keyed.log.cut_back(0)
    for number in range(6):
        keyed.append([(b"key", b"%d, and more than that" % number)])
        reader.recheck_segment()
    assert read_all(reader) == [b"4, and more than that", b"5, and more than that"]
    reader.close()
    keyed.log.close()

"""Log files: what was written is read, torn writes are cut, damage to durable records never is."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samelog.consensus import CorruptRecord, Entry, HardState, UnfinishedFile
from samelog.consensus.wal import (
    Base,
    Cut,
    SnapshotMark,
    WalEncoder,
    WalHeader,
    WalRecord,
    scan_wal,
)
from samelog.format._kernels import crc32c
from samelog.format.errors import UnsupportedFormat
from tests.examples import at_most

HEADER = WalHeader("demo", 2, 7)
KEY = (3, 5)
NUMBERS = st.integers(0, 2**62)
RECORDS = st.lists(
    st.builds(Entry, NUMBERS, NUMBERS, st.binary(max_size=60))
    | st.builds(HardState, NUMBERS, st.none() | st.integers(0, 6), NUMBERS)
    | st.builds(SnapshotMark, NUMBERS, NUMBERS)
    | st.builds(Base, NUMBERS)
    | st.builds(Cut, NUMBERS),
    max_size=12,
)


def make_file(rounds: list[list[WalRecord]], header: WalHeader = HEADER) -> tuple[bytes, list[int]]:
    """A file whose rounds were each written when all before were synced; where each round ends."""
    encoder = WalEncoder(header)
    data, ends = encoder.header_bytes, [encoder.position]
    for records in rounds:
        data += encoder.encode(KEY, 0, records, synced=len(data))
        ends.append(len(data))
    return data, ends


def entries(first: int, count: int, size: int = 20) -> list[WalRecord]:
    draw = random.Random(first)
    return [Entry(first + number, 3, draw.randbytes(size)) for number in range(count)]


@given(st.lists(RECORDS, max_size=4))
def test_round_trip(rounds: list[list[WalRecord]]) -> None:
    data, _ = make_file(rounds)
    scan = scan_wal(data)
    assert scan.header == HEADER
    assert scan.records == [record for records in rounds for record in records]
    assert (scan.end, scan.torn, scan.corrupt) == (len(data), False, None)


def test_what_was_not_written_is_taken_back() -> None:
    encoder = WalEncoder(HEADER)
    data = encoder.header_bytes + encoder.encode(KEY, 0, entries(1, 2), synced=0)
    encoder.encode(KEY, 0, entries(3, 1), synced=0)
    encoder.take_back()
    data += encoder.encode(KEY, 0, entries(4, 1), synced=0)
    assert scan_wal(data).records == [*entries(1, 2), *entries(4, 1)]


@given(RECORDS, RECORDS)
def test_writing_goes_on_behind_a_scan(first: list[WalRecord], second: list[WalRecord]) -> None:
    data, _ = make_file([first])
    encoder = WalEncoder.resume(scan_wal(data))
    data += encoder.encode(KEY, 0, second, synced=len(data))
    assert scan_wal(data).records == first + second


@settings(deadline=None)
@given(st.integers(0, 10_000), st.binary(max_size=80))
def test_a_torn_write_is_cut(cut: int, garbage: bytes) -> None:
    """The last round was not synced: any of its bytes may be missing or wrong."""
    rounds = [entries(100, 3), entries(103, 5)]
    data, ends = make_file(rounds)
    cut = ends[1] + cut % (ends[2] - ends[1])
    scan = scan_wal(data[:cut] + garbage)
    assert scan.corrupt is None
    assert scan.end >= ends[1]
    assert scan.records[:3] == rounds[0]
    assert scan.records == (rounds[0] + rounds[1])[: len(scan.records)]
    assert scan.torn == bool((data[:cut] + garbage)[scan.end :].strip(b"\0"))


def test_a_torn_write_whose_later_sectors_survive_is_cut() -> None:
    """The disk may write the sectors of one unsynced round in any order."""
    data, ends = make_file([entries(100, 3), entries(103, 50)])
    damaged = bytearray(data)
    damaged[ends[1] + 30 : ends[1] + 130] = bytes(100)
    scan = scan_wal(damaged)
    assert (scan.end, scan.torn, scan.corrupt) == (ends[1], True, None)


@settings(deadline=None, max_examples=at_most(300))
@given(st.data())
def test_damage_to_durable_records_is_never_cut(data: st.DataObject) -> None:
    """Whatever byte of a durable record is damaged, as long as two whole records follow."""
    written, ends = make_file([entries(100, 2), entries(102, 2), entries(104, 2), entries(106, 2)])
    damaged = bytearray(written)
    place = data.draw(st.integers(ends[0], ends[2] - 1))
    damaged[place] ^= data.draw(st.integers(1, 255))
    scan = scan_wal(damaged)
    assert scan.corrupt is not None
    assert not scan.torn
    assert scan.end <= place
    whole, *behind = scan.pieces
    records = [record for first in (100, 102, 104, 106) for record in entries(first, 2)]
    assert [tagged.record for tagged in whole] == records[: len(whole)]
    assert behind
    for piece in behind:
        assert {tagged.record for tagged in piece} <= set(records[len(whole) + 1 :])
    assert scan.records[-2:] == records[-2:]


@pytest.mark.parametrize("place", [0, 4, 8, 9, 13, 40])
def test_one_record_behind_the_damage_is_proof_enough(place: int) -> None:
    """Length, checksum, kind, synced or data of the record before it may be what is damaged."""
    data, ends = make_file([entries(100, 1), entries(101, 1), entries(102, 1)])
    damaged = bytearray(data)
    damaged[ends[1] + place] ^= 0x41
    scan = scan_wal(damaged)
    assert scan.corrupt is not None
    assert scan.end == ends[1]


def test_a_whole_lost_sector_is_corruption() -> None:
    data, ends = make_file([entries(100 + number, 1, 60) for number in range(40)])
    damaged = bytearray(data)
    damaged[1024:1536] = bytes(512)
    scan = scan_wal(damaged)
    assert scan.corrupt is not None
    assert max(end for end in ends if end <= 1024) == scan.end


def test_damage_to_the_last_record_cannot_be_told_from_a_torn_write() -> None:
    data, ends = make_file([entries(100, 1), entries(101, 1)])
    scan = scan_wal(data[:-1] + b"?")
    assert (scan.end, scan.torn, scan.corrupt) == (ends[1], True, None)


def test_zeros_behind_the_records_are_no_damage() -> None:
    data, _ = make_file([entries(100, 2)])
    scan = scan_wal(data + bytes(5000))
    assert (scan.end, scan.torn, scan.corrupt) == (len(data), False, None)


def test_records_of_an_earlier_file_in_the_same_blocks_are_not_taken() -> None:
    """Same sizes, same place, even the same contents but for the file's number."""
    old, _ = make_file([entries(100, 3), entries(103, 3), entries(106, 3)])
    header = WalHeader("demo", 2, 8)
    for count in (0, 1, 3):
        new, _ = make_file([entries(100, count)], header)
        scan = scan_wal(new + old[len(new) :])
        assert scan.records == entries(100, count)
        assert (scan.end, scan.torn, scan.corrupt) == (len(new), True, None)


def test_records_cut_off_earlier_in_this_file_are_not_taken() -> None:
    old, ends = make_file([entries(100, 1), entries(101, 4)])
    encoder = WalEncoder.resume(scan_wal(old[: ends[1]]))
    other: list[WalRecord] = [Entry(101, 9, bytes(20))]
    new = old[: ends[1]] + encoder.encode(KEY, 0, other, synced=ends[1])
    scan = scan_wal(new + old[len(new) :])
    assert scan.records == [*entries(100, 1), *other]
    assert (scan.end, scan.corrupt) == (len(new), None)


@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_a_scan_or_a_typed_error(tail: bytes) -> None:
    data, _ = make_file([])
    assert scan_wal(data + tail).records == []
    with pytest.raises((CorruptRecord, UnsupportedFormat)):
        scan_wal(tail)


def test_damaged_headers_and_other_versions_are_refused() -> None:
    data, ends = make_file([entries(100, 1)])
    for place in (*range(8), *range(10, ends[0])):
        damaged = bytearray(data)
        damaged[place] ^= 1
        with pytest.raises(CorruptRecord):
            scan_wal(damaged)
    for cut in range(ends[0]):
        with pytest.raises(UnfinishedFile):
            scan_wal(data[:cut])
    with pytest.raises(UnfinishedFile):
        scan_wal(bytes(4096))
    with pytest.raises(UnsupportedFormat, match="version 2"):
        scan_wal(data[:8] + b"\x00\x02" + data[10:])


def test_limits() -> None:
    encoder = WalEncoder(HEADER)
    with pytest.raises(ValueError, match="too large"):
        encoder.encode(KEY, 0, [Entry(1, 1, bytes(64 << 20))], synced=0)
    with pytest.raises(ValueError, match="cannot be durable"):
        encoder.encode(KEY, 0, [], synced=encoder.position + 1)
    with pytest.raises(ValueError, match="too long"):
        WalEncoder(WalHeader("x" * 2000, 1, 1))


def test_the_bytes_are_the_documented_ones() -> None:
    encoder = WalEncoder(WalHeader("demo", 2, 3))
    fixed = "53414d4552414654 0001 0004 00000002 0000000000000003"
    assert encoder.header_bytes[:-4] == bytes.fromhex(fixed) + b"demo"
    entry, state = Entry(4, 1, b"ab"), HardState(1, None, 3)
    records: list[WalRecord] = [entry, state, SnapshotMark(3, 1), Base(2), Cut(5)]
    data = encoder.encode((1, 9), 2**32 - 1, records, synced=9)
    data += encoder.encode((1, 9), 4, [entry], synced=9, moved=True)
    tag = "00000009 00000001 00000009"
    bodies = (
        ("00000023", f"01 {tag} ffffffff 0000000000000004 0000000000000001 6162"),
        ("00000025", f"02 {tag} 00000000 0000000000000001 ffffffff 0000000000000003"),
        ("00000021", f"03 {tag} 00000001 0000000000000003 0000000000000001"),
        ("00000019", f"04 {tag} 00000002 0000000000000002"),
        ("00000019", f"05 {tag} 00000003 0000000000000005"),
        ("00000023", f"81 {tag} 00000004 0000000000000004 0000000000000001 6162"),
    )
    position, salt, chain = 0, int.from_bytes(encoder.header_bytes[-4:]), 0
    assert salt == crc32c(encoder.header_bytes[:-4])
    for length, body in bodies:
        stop = position + 8 + int(length, 16)
        chain = crc32c(bytes.fromhex(length + body), chain ^ salt)
        expected = bytes.fromhex(length) + chain.to_bytes(4) + bytes.fromhex(body)
        assert data[position:stop] == expected
        position = stop
    assert position == len(data)

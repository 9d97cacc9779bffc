"""Kafka's sparse indexes: their bytes, and what a lookup answers."""

from __future__ import annotations

import struct
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from samelog.format.index import OffsetIndex, TimeIndex
from samelog.store.merged.segment_files import append_entries, write_entries
from tests.format.oracle import crc32c
from tests.store.storage import FS

BASE = 1000
RISING = st.lists(st.integers(1, 50), max_size=40).map(
    lambda steps: [sum(steps[: n + 1]) for n in range(len(steps))]
)


def offset_index(entries: list[tuple[int, int]]) -> OffsetIndex:
    """An index with these (relative offset, position) entries."""
    index = OffsetIndex(BASE)
    for relative, position in entries:
        index.append(BASE + relative, position)
    return index


@given(RISING, RISING, st.integers(-5, 2200))
def test_an_offset_is_looked_up_as_kafka_does(
    offsets: list[int], positions: list[int], asked: int
) -> None:
    entries = list(zip(offsets, positions, strict=False))
    index = offset_index(entries)
    below = [(BASE + o, p) for o, p in entries if BASE + o <= BASE + asked]
    assert index.lookup(BASE + asked) == (below[-1] if below else (BASE, 0))
    assert len(index) == len(entries)
    assert index.last == ((BASE + entries[-1][0], entries[-1][1]) if entries else (BASE, 0))


@given(
    st.lists(st.tuples(st.integers(-1, 60), st.integers(0, 9)), max_size=30), st.integers(-2, 70)
)
def test_a_timestamp_is_looked_up_as_kafka_does(pairs: list[tuple[int, int]], asked: int) -> None:
    index = TimeIndex(BASE)
    kept: list[tuple[int, int]] = []
    offset = BASE
    for timestamp, step in pairs:
        offset += step
        index.maybe_append(timestamp, offset)
        if timestamp > (kept[-1][0] if kept else -1):
            kept.append((timestamp, offset))
    below = [entry for entry in kept if entry[0] <= asked]
    assert index.lookup(asked) == (below[-1] if below else (-1, BASE))
    assert index.last == (kept[-1] if kept else (-1, BASE))


def test_the_bytes_are_kafkas(tmp_path: Path) -> None:
    offsets, times = offset_index([(3, 5000), (9, 12000)]), TimeIndex(BASE)
    times.maybe_append(1_700_000_000_000, BASE + 2)
    file = FS.open(tmp_path / "i", create=True)
    append_entries(offsets, file)
    assert file.pread(100, 0) == struct.pack(">iiii", 3, 5000, 9, 12000)
    write_entries(times, file)
    assert file.pread(100, 0) == struct.pack(">qi", 1_700_000_000_000, 2)
    file.close()


def test_only_new_entries_are_written(tmp_path: Path) -> None:
    file = FS.open(tmp_path / "i", create=True)
    index = offset_index([(1, 10)])
    append_entries(index, file)
    file.pwrite(b"\xff", 0)
    index.append(BASE + 2, 20)
    append_entries(index, file)
    assert file.pread(100, 0) == b"\xff" + struct.pack(">iiii", 1, 10, 2, 20)[1:]
    write_entries(index, file)
    assert file.pread(100, 0) == struct.pack(">iiii", 1, 10, 2, 20)
    file.close()


@given(RISING, st.integers(0, 45))
def test_a_count_and_a_checksum_vouch_for_the_first_entries(offsets: list[int], count: int) -> None:
    entries = [(offset, 7 * offset) for offset in offsets]
    index = offset_index(entries)
    data = b"".join(struct.pack(">ii", *entry) for entry in entries)
    assert index.checksum == crc32c(data)
    loaded = OffsetIndex(BASE, data + b"tail")
    assert (len(loaded), loaded.checksum) == (len(entries), index.checksum)
    right = crc32c(data[: count * 8])
    assert loaded.begins_with(count, right) == (count <= len(entries))
    if 0 < count <= len(entries):
        assert not loaded.begins_with(count, right ^ 1)


@given(RISING, st.integers(0, 2200))
def test_entries_are_dropped_by_position_and_by_offset(offsets: list[int], limit: int) -> None:
    entries = [(offset, 3 * offset) for offset in offsets]
    index = offset_index(entries)
    index.keep_before(limit)
    kept = [entry for entry in entries if entry[1] < limit]
    assert (len(index), index.checksum) == (len(kept), offset_index(kept).checksum)
    times = TimeIndex(BASE)
    for offset in offsets:
        times.maybe_append(10 * offset, BASE + offset)
    times.keep_up_to(BASE + limit)
    assert len(times) == len([offset for offset in offsets if offset <= limit])


def test_an_entry_that_does_not_fit_is_left_out() -> None:
    index, times = offset_index([(5, 100)]), TimeIndex(BASE)
    index.append(BASE + (1 << 31), 200)
    index.append(BASE + 6, 1 << 31)
    times.maybe_append(5000, BASE + (1 << 31))
    assert index.last == (BASE + 5, 100)
    assert times.last == (-1, BASE)
    index.append(BASE + (1 << 31) - 1, (1 << 31) - 1)
    assert len(index) == 2

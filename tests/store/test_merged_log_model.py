"""A merged log against its oracle: the files are the same bytes, however the batches arrived."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from samelog.store.merged.log import MergedLog
from tests.examples import at_most
from tests.store.merged import Oracle
from tests.store.storage import batches, contents, open_merged, sync_merged


@contextmanager
def directory() -> Iterator[Path]:
    """A new directory for one example."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


class Node:
    """A node's log and the places where it was restarted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = open_merged(path)

    def restart(self, how: str) -> None:
        """Nothing, a sync, a clean restart, a crash, or one that took the unsynced index too.

        "marks": a crash after the marks were saved, which is not after every sync.
        """
        if how in {"sync", "restart"}:
            sync_merged(self.log)
        if how in {"restart", "marks"}:
            self.log.save_marks()
        if how in {"restart", "marks", "crash", "index lost"}:
            base = self.log.end()[0]
            self.log.close()
            if how == "index lost":
                for file in self.path.glob(f"{base:020d}.*index"):
                    file.write_bytes(file.read_bytes()[:-5])
            self.log = open_merged(self.path)
            assert self.log.damaged == []

    def files(self) -> dict[str, bytes]:
        """The segments' files, once everything is written."""
        self.log.save_marks()
        found = contents(self.path)
        del found["partition.json"]
        return found


HOW = st.sampled_from(["", "", "", "sync", "restart", "marks", "crash", "index lost"])
CHUNKS = st.lists(st.tuples(st.integers(1, 9), HOW), min_size=1, max_size=8)


def cut(items: list[bytes], sizes: list[int]) -> list[list[bytes]]:
    """The items in groups of these sizes, over and over."""
    groups: list[list[bytes]] = []
    while items:
        size = sizes[len(groups) % len(sizes)]
        groups.append(items[:size])
        items = items[size:]
    return groups


def write_merged(path: Path, oracle: Oracle, chunks: list[tuple[int, str]], seed: int) -> Node:
    """Merge batches in chunks, now and then into a new segment, with restarts in between."""
    node = Node(path)
    for number, group in enumerate(cut(batches(seed, 30), [size for size, _ in chunks])):
        if number % 3 == 2:
            node.log.roll()
            oracle.roll()
        epoch = number // 4
        base = oracle.next_offset
        for data in group:
            oracle.append(data, epoch=epoch)
        reached = node.log.append(bytearray(b"".join(group)), base_offset=base, leader_epoch=epoch)
        assert reached == oracle.next_offset == node.log.next_offset
        node.restart(chunks[number % len(chunks)][1])
    return node


def copy(source: MergedLog, path: Path, chunks: list[tuple[int, str]]) -> Node:
    """Copy a log in pieces of other sizes, with restarts in between."""
    node, number = Node(path), 0
    for segment in source.segments():
        byte = 0
        while byte < segment.size:
            size, how = chunks[number % len(chunks)]
            data = source.read(segment.base_offset, byte, size * size * 700)
            node.log.append_copy(segment.base_offset, byte, data)
            node.restart(how)
            byte += len(data)
            number += 1
    return node


@settings(max_examples=at_most(40))
@given(CHUNKS, CHUNKS, st.integers(0, 1 << 30))
def test_every_copy_is_the_same_bytes(
    chunks: list[tuple[int, str]], other: list[tuple[int, str]], seed: int
) -> None:
    with directory() as path:
        oracle = Oracle()
        node = write_merged(path / "node", oracle, chunks, seed)
        assert node.files() == oracle.files()
        assert node.log.checksum == oracle.checksum
        copied = copy(node.log, path / "copy", other)
        assert copied.files() == oracle.files()
        assert copied.log.checksum == oracle.checksum
        assert copied.log.last_batch() == node.log.last_batch()
        node.log.close()
        copied.log.close()


def check_places(log: MergedLog, oracle: Oracle) -> None:
    """Every offset and every interesting time is found where it is."""
    for offset in range(oracle.next_offset + 1):
        assert log.locate(offset) == oracle.place(offset)
    times = sorted({batch.timestamp for batch in oracle.batches})
    for time in [0, *times, *(time + 1 for time in times)]:
        found = next(
            (batch.first for batch in oracle.batches if batch.timestamp >= time),
            oracle.next_offset,
        )
        assert log.locate_timestamp(time) == found


def check_reads(log: MergedLog, oracle: Oracle) -> None:
    """Reads give whole batches from any batch on."""
    for segment in oracle.segments:
        starts = segment.starts()
        for start in starts[:-1]:
            for limit in (1, 5000):
                data = log.read(segment.base, start, limit)
                assert segment.data.startswith(data, start) if start else True
                assert start + len(data) in starts[1:]
                assert len(data) <= limit or start + len(data) == starts[starts.index(start) + 1]
            crc = int.from_bytes(segment.data[start + 17 : start + 21], "big")
            assert log.batch_at(segment.base, start) == crc
            assert log.batch_at(segment.base, start + 1) is None
        assert log.read(segment.base, starts[-1], 100) == b""
        assert log.batch_at(segment.base, starts[-1]) is None


@settings(max_examples=at_most(25))
@given(CHUNKS, st.integers(0, 1 << 30))
def test_offsets_times_and_batches_are_found(chunks: list[tuple[int, str]], seed: int) -> None:
    with directory() as path:
        oracle = Oracle()
        node = write_merged(path / "node", oracle, chunks, seed)
        reader = open_merged(path / "node", read_only=True)
        for log in (node.log, reader):
            check_places(log, oracle)
            check_reads(log, oracle)
            last = oracle.batches[-1]
            base, start = oracle.place(last.first)
            crc = int.from_bytes(last.data[17:21], "big")
            assert log.last_batch() == (base, start, crc)
        reader.close()
        node.log.close()


@settings(max_examples=at_most(25))
@given(CHUNKS, st.lists(st.booleans(), min_size=1, max_size=5), st.integers(0, 1 << 30))
def test_a_reader_follows(chunks: list[tuple[int, str]], looks: list[bool], seed: int) -> None:
    with directory() as path:
        oracle, node = Oracle(), Node(path / "node")
        reader = open_merged(path / "node", read_only=True)
        for number, group in enumerate(cut(batches(seed, 20), [size for size, _ in chunks])):
            if number % 2:
                node.log.roll()
                oracle.roll()
            for data in group:
                merged = oracle.append(data, epoch=0)
                (base, byte), size = node.log.end(), len(merged)
                assert node.log.append_copy(base, byte, merged) == oracle.next_offset
                assert node.log.end() == (base, byte + size)
            if looks[number % len(looks)]:
                assert reader.refresh()
                assert not reader.refresh()
                assert reader.segments() == node.log.segments()
                assert reader.checksum == node.log.checksum == oracle.checksum
            node.restart(chunks[number % len(chunks)][1])
        reader.refresh()
        assert reader.segments() == node.log.segments()
        check_places(reader, oracle)
        reader.close()
        node.log.close()

"""The newest bytes of logs in memory: what is read there is what the file has, and no more is kept
than the limit.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.format.batch import HEADER_BYTES
from samelog.store.disk.tail_memory import PIECE_COST_BYTES, TailMemory, is_lasting
from samelog.store.merged.log import MergedLog
from tests.store.merged_parts import ONE, THREE, TWO, merge
from tests.store.storage import batches, open_merged, sync_merged

LIMIT = 64 << 10


def kept(path: Path, memory: TailMemory) -> MergedLog:
    log = open_merged(path)
    log.recent = memory.new_log()
    return log


def from_file(log: MergedLog, segment: int, byte: int, limit: int) -> bytes:
    recent, log.recent = log.recent, None
    try:
        return log.read(segment, byte, limit)
    finally:
        log.recent = recent


def places(log: MergedLog) -> list[tuple[int, int]]:
    """Where batches begin."""
    found = []
    for segment in log.segments():
        byte = 0
        while byte < segment.size:
            found.append((segment.base_offset, byte))
            byte += len(from_file(log, segment.base_offset, byte, 1))
    return found


def compare(log: MergedLog, source: random.Random) -> None:
    for segment, byte in places(log):
        limit = source.choice([1, HEADER_BYTES, 5000, 1 << 20])
        assert log.read(segment, byte, limit) == from_file(log, segment, byte, limit)


@given(st.integers(0, 1 << 32))
def test_what_is_read_is_what_the_files_have_whatever_was_done(seed: int) -> None:
    source = random.Random(seed)
    memory = TailMemory(source.choice([2000, 20_000, LIMIT]))
    with TemporaryDirectory() as directory:
        logs = [kept(Path(directory, name), memory) for name in ("a", "b")]
        for data in batches(seed, 24):
            log = source.choice(logs)
            merge(log, data)
            if source.random() < 0.2:
                log.roll()
            if source.random() < 0.1:
                log.cut_back(source.choice(log.segments()).base_offset)
            assert memory.held_bytes <= memory.limit_bytes
            compare(log, source)
        for log in logs:
            compare(log, source)
            log.close()


def test_who_is_current_reads_from_memory_and_who_is_behind_from_the_file(tmp_path: Path) -> None:
    memory = TailMemory(LIMIT)
    log = kept(tmp_path / "t", memory)
    merge(log, ONE, TWO, THREE)
    assert log.read(0, 0, 1 << 20) == from_file(log, 0, 0, 1 << 20)
    assert memory.reads == 1
    while memory.held_bytes < LIMIT - 2 * len(THREE):
        merge(log, THREE)
    merge(log, *[THREE] * 20)
    memory.reads = 0
    assert log.read(0, 0, 1) == from_file(log, 0, 0, 1)
    assert memory.reads == 0  # the oldest is gone
    newest = places(log)[-1]
    assert log.read(*newest, 1 << 20) == from_file(log, *newest, 1 << 20)
    assert memory.reads == 1
    log.close()


def test_the_oldest_of_all_logs_goes_first(tmp_path: Path) -> None:
    memory = TailMemory(4 * (len(THREE) + PIECE_COST_BYTES))
    first, second = (kept(tmp_path / name, memory) for name in ("a", "b"))
    merge(first, THREE)
    merge(second, THREE)
    merge(first, THREE)
    merge(second, THREE)
    merge(second, THREE)
    memory.reads = 0
    first.read(0, 0, 1)
    assert memory.reads == 0
    second.read(*places(second)[-1], 1)
    assert memory.reads == 1
    first.close()
    second.close()


def test_a_log_that_was_cut_is_not_read_as_it_was(tmp_path: Path) -> None:
    memory = TailMemory(LIMIT)
    log = kept(tmp_path / "t", memory)
    merge(log, ONE, TWO)
    log.roll()
    merge(log, THREE)
    sync_merged(log)
    log.cut_back(0)
    merge(log, TWO)
    assert log.read(0, 0, 1 << 20) == from_file(log, 0, 0, 1 << 20) != b""
    log.close()


def test_much_that_lasts_is_kept_without_a_copy_and_what_would_be_copied_is_not_kept() -> None:
    memory = TailMemory(LIMIT, copies_large=False)
    log = memory.new_log()
    assert log is not None
    large, buffer = bytes(memory.large_bytes), bytearray(memory.large_bytes)
    given_away, part = memoryview(bytearray(large)).toreadonly(), memoryview(large * 2)[1:-1]
    assert [is_lasting(x) for x in (large, given_away, part)] == [True, True, True]
    assert [is_lasting(x) for x in (buffer, memoryview(buffer), part[: len(large)])] == [False] * 3
    before = sys.getrefcount(large)
    log.wrote(0, 0, 0, large, is_final=is_lasting(large))
    assert sys.getrefcount(large) > before
    log.wrote(0, 0, len(large), b"ab", is_final=True)
    log.wrote(0, 0, len(large) + 2, b"c")
    assert log.copy(0, 0, 1, len(large) + 2) == bytearray(large[1:] + b"abc")
    log.wrote(0, 0, len(large) + 3, buffer, is_final=is_lasting(buffer))
    assert log.read(0, 0, len(large) + 3, len(buffer)) is None
    assert log.read(0, 0, 0, 1) is None  # what is kept of a log has no gap
    assert memory.held_bytes <= 4 * PIECE_COST_BYTES
    log.wrote(0, 0, len(large) + 3 + len(buffer), b"d")
    assert log.read(0, 0, len(large) + 3 + len(buffer), 1) == b"d"


@pytest.mark.parametrize("limit", [0])
def test_nothing_is_kept_where_none_is_wanted(limit: int) -> None:
    assert TailMemory(limit).new_log() is None

"""What a merged log is after a power loss: a prefix of what was merged, no shorter than durable."""

from __future__ import annotations

import itertools
import random
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samelog.replicator.pull.copy import make_copy
from samelog.store.merged.log import MergedLog
from samelog.store.merged.partition_file import find_partition_directories, read_partition_topic
from samelog.store.merged.topic_dirs import TopicDirs
from tests.cluster_sim.disk import Disk
from tests.cluster_sim.files import SimFileSystem
from tests.cluster_sim.process import Process, ProcessDied
from tests.examples import at_most
from tests.store.merged import Oracle, Segment
from tests.store.storage import batches, open_merged, sync_merged, unwritten_merged
from tests.store.test_merged_log_model import directory


def write(path: Path, seed: int, durable_after: int) -> tuple[Oracle, int]:
    """Merge 25 batches, rolling now and then, synced once; and the offset synced up to."""
    source, oracle, durable = random.Random(seed), Oracle(), 0
    log = source.choice([open_merged, unwritten_merged])(path)
    for number, data in enumerate(batches(seed, 25)):
        if source.random() < 0.15:
            log.roll()
            oracle.roll()
        base = oracle.next_offset
        oracle.append(data, epoch=1)
        log.append(bytearray(data), base_offset=base, leader_epoch=1)
        if number == durable_after:
            sync_merged(log)
            log.save_marks()
            durable = log.next_offset
    log.take_dirty()  # writes the index entries
    if source.random() < 0.5:
        log.save_marks()  # they vouch for index entries above the durable mark
    log.close()
    return oracle, durable


def file_of(path: Path, segment: Segment, suffix: str) -> Path:
    """One of a segment's files."""
    return path / f"{segment.base:020d}{suffix}"


def lose(path: Path, oracle: Oracle, durable: int, source: random.Random) -> int:
    """Lose some of what was not durable; the next offset of what is left."""
    unsynced = [segment for segment in oracle.segments if segment.end > durable]
    if not unsynced:
        return oracle.next_offset
    hit = source.choice(unsynced)
    least = oracle.place(durable)[1] if hit.base <= durable else 0
    boundaries = [start for start in hit.starts() if start >= least]
    keep = source.choice([source.choice(boundaries), source.randint(least, len(hit.data))])
    tail = source.choice([b"", bytes(70), b"junk", hit.data[:100] if keep else b"more"])
    left = hit.data[:keep] + tail
    file_of(path, hit, ".log").write_bytes(left)
    for suffix in source.choice([(), (".index", ".timeindex")]):
        index = file_of(path, hit, suffix)
        found = index.read_bytes()
        index.write_bytes(found[: source.randint(0, len(found))] + bytes(source.choice([0, 12])))
    whole = [end for end in hit.starts() if left[:end] == hit.data[:end]]
    kept = hit.batches[: len(whole) - 1]
    if left == hit.data:
        return oracle.next_offset
    return kept[-1].last + 1 if kept else hit.base


def merge_rest(log: MergedLog, oracle: Oracle) -> None:
    """Merge what was lost once more, by the same instructions."""
    for segment in oracle.segments:
        if segment.base >= log.next_offset and log.end()[0] != segment.base:
            log.roll()
        for batch in segment.batches:
            if batch.first >= log.next_offset:
                log.append(bytearray(batch.data), base_offset=batch.first, leader_epoch=1)


def check_newest_times(log: MergedLog, oracle: Oracle) -> None:
    """The highest timestamps are those of the batches that are left."""
    for segment in log.segments():
        offsets = range(segment.base_offset, segment.next_offset)
        times = [batch.timestamp for batch in oracle.batches if batch.first in offsets]
        assert segment.max_timestamp == max(times, default=-1)


@settings(max_examples=at_most(40))
@given(st.integers(0, 1 << 30), st.integers(-1, 24))
def test_a_power_loss_leaves_a_prefix(seed: int, durable_after: int) -> None:
    with directory() as path:
        oracle, durable = write(path, seed, durable_after)
        left = lose(path, oracle, durable, random.Random(seed + 1))
        log = open_merged(path)
        assert log.damaged == []
        assert (log.durable_offset, log.next_offset) == (durable, left)
        check_newest_times(log, oracle)
        merge_rest(log, oracle)
        log.save_marks()
        assert log.checksum == oracle.checksum
        expected = oracle.files()
        assert {name: (path / name).read_bytes() for name in expected} == expected
        log.close()


@settings(max_examples=at_most(25))
@given(st.integers(0, 1 << 30), st.integers(-1, 24), st.sampled_from([None, b"", b"{}\n0\n"]))
def test_without_marks_nothing_that_is_cut_is_lost(
    seed: int, durable_after: int, marks: bytes | None
) -> None:
    with directory() as path:
        oracle, durable = write(path, seed, durable_after)
        left = lose(path, oracle, durable, random.Random(seed + 1))
        (path / "marks").unlink()
        if marks is not None:
            (path / "marks").write_bytes(marks)
        before = {file.name: file.read_bytes() for file in (path).glob("*.log")}
        log = open_merged(path)
        assert log.next_offset == left
        assert log.checksum == checksum_up_to(oracle, left)
        log.close()
        aside = {file.name: file.read_bytes() for file in (path).glob("*.quarantined-*")}
        assert len(log.damaged) == len(aside)
        for name, found in before.items():
            file = path / name
            kept = file.read_bytes() if file.exists() else b""
            names = (f"{name}.quarantined-1", f"{name}.from-{len(kept)}.quarantined-1")
            assert kept + b"".join(aside.get(other, b"") for other in names) == found


def checksum_up_to(oracle: Oracle, offset: int) -> int:
    """The running checksum of the batches below an offset."""
    part = Oracle()
    part.segments[0].batches = [batch for batch in oracle.batches if batch.first < offset]
    return part.checksum


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_subscriber_starts_after_it_ended_at_any_step_of_making_a_copy(
    loses_power: bool,
) -> None:
    """It refused to start because of a directory without partition.json (world 43505027: the disk
    was full).
    """
    name, topic_id = ("t", 0), "f" * 32
    for effects in itertools.count(1):
        disk, process = Disk(f"copy {effects}"), Process("r0.1", "r0")
        SimFileSystem(disk, Process("r0.0", "r0")).make_directory("/copies")
        process.fuse = effects
        try:
            make_copy(cast(Any, SimFileSystem(disk, process)), "/copies", name, topic_id, None)
        except ProcessDied:
            if loses_power:
                disk.lose_power()
        fs = cast(Any, SimFileSystem(disk, Process("r0.2", "r0")))
        fs.make_directory("/copies")
        assert find_partition_directories(fs, "/copies", "t") in ([], [("t", topic_id, 0)])
        make_copy(fs, "/copies", name, topic_id, None)
        assert find_partition_directories(fs, "/copies", "t") == [("t", topic_id, 0)]
        if process.fuse is not None:
            break
    assert effects > 3


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_directory_is_whole_or_gone_after_a_crash_at_any_step_of_its_removal(
    loses_power: bool,
) -> None:
    """A node died after it had removed partition.json of a deleted topic, and before the segments:
    it never started again (found by worlds that delete topics on their way to data groups).
    """
    folder, path, topic_id = "/merged", "/merged/t-0", "f" * 32
    whose: Any = {"topic": "t", "topic_id": topic_id, "partition": 0}
    for effects in itertools.count(1):
        disk, process = Disk(f"removal {effects}"), Process("n0.1", "n0")
        first = cast(Any, SimFileSystem(disk, Process("n0.0", "n0")))
        first.make_directory(folder)
        log = MergedLog.open(first, path, **whose)
        log.append(bytearray(next(iter(batches(1, 1)))), base_offset=0, leader_epoch=1)
        sync_merged(log)
        log.close()
        fs = cast(Any, SimFileSystem(disk, process))
        dirs = TopicDirs(fs, partial(read_partition_topic, fs))
        dirs.remove_later(path, topic_id, 0)
        process.fuse = effects
        try:
            dirs.remove_next()
        except ProcessDied:
            if loses_power:
                disk.lose_power()
        fs = cast(Any, SimFileSystem(disk, Process("n0.2", "n0")))
        log = MergedLog.open(fs, path, **whose)
        assert log.next_offset in (0, 1)
        log.close()
        dirs = TopicDirs(fs, partial(read_partition_topic, fs))
        dirs.forget_others(folder, lambda owner, _: owner == topic_id)
        assert fs.list_directory(folder) == ["t-0"]
        if process.fuse is not None:
            break
    assert effects > 3

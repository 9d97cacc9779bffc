"""A directory of merged logs as a source, on real files: as `samelog restore` or a subscriber
leaves it, or a node whose cluster is lost.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from samelog.admin.known_schemas import KnownSchemas
from samelog.admin.mirror_answers import SourceState
from samelog.mirror.copying import PartitionMirror
from samelog.mirror.errors import SourceUnreadable
from samelog.mirror.files_source import CLUSTER, FilesSource
from samelog.mirror.source import BatchBefore, Where, first_of
from samelog.store.disk.files import OsFileSystem
from samelog.store.merged.log import MergedLog
from samelog.store.merged.truncation import LogStart
from tests.mirror.fakes import FakeDestination, batches
from tests.sequencer.mirroring import source_batch

FS = OsFileSystem()
WHERE = Where("t", "log", 0)
ValueT = TypeVar("ValueT")


def write(
    directory: Path, *segments: list[bytes], partition: int = 0, log_id: str = "log", start: int = 0
) -> MergedLog:
    """A partition of the topic, with a file for each of these lists of batches."""
    path = directory / f"t-{partition}"
    directory.mkdir(exist_ok=True)
    log = MergedLog.open(FS, path, topic="t", topic_id=log_id, partition=partition)
    if start:
        log.start_at(start, checksum=99)
    for number, segment in enumerate(segments):
        if number:
            log.roll()
        for batch in segment:
            base = int.from_bytes(batch[:8], "big")
            log.append(bytearray(batch), base_offset=base, leader_epoch=None)
    log.close()
    return log


def done(source: FilesSource, work: Coroutine[Any, Any, ValueT]) -> ValueT:
    async def run() -> ValueT:
        try:
            return await work
        finally:
            await source.close()

    return asyncio.run(run())


def state(directory: Path) -> SourceState:
    source = FilesSource(str(directory))
    return done(source, source.state(("*",), ()))


def mirror(directory: Path, destination: FakeDestination, where: Where = WHERE) -> None:
    """To the end."""

    async def ready() -> None:
        return

    async def run() -> None:
        source = FilesSource(str(directory))
        (topic,) = (await source.state(("*",), ())).topics
        there = topic.partitions[where.partition]
        made = PartitionMirror(
            source,
            destination,  # type: ignore[arg-type]
            where,
            "eu.t",
            is_ready=ready,
            stop=there.next_offset,
        )
        await made.run(destination.here, there, 0)
        await source.close()

    asyncio.run(run())


def test_all_files_of_a_partition_are_mirrored_byte_by_byte(tmp_path: Path) -> None:
    first, second = batches(3, 2), batches(4, 1, first=5)
    write(tmp_path, first, second)
    destination = FakeDestination()
    mirror(tmp_path, destination)
    assert destination.log == b"".join([*first, *second])


def test_it_goes_on_where_the_mirror_ends_if_that_is_the_same_log(tmp_path: Path) -> None:
    known = batches(3, 2)
    write(tmp_path / "less", known)
    write(tmp_path / "more", known, batches(4, first=5))
    destination = FakeDestination()
    mirror(tmp_path / "less", destination)
    mirror(tmp_path / "more", destination)
    assert destination.here.next_offset == 9
    source = FilesSource(str(tmp_path / "more"))
    assert done(source, source.batch_before(WHERE, 5)) == first_of(known[1])
    assert done(source, source.batch_before(WHERE, 0)) is None
    assert done(source, source.batch_before(WHERE, 10)) is None


def test_a_log_that_begins_later_is_mirrored_from_there(tmp_path: Path) -> None:
    """As `samelog restore` leaves a range: whole segments, and a start within the first one."""
    log = write(tmp_path, batches(3, 2, first=10), start=10)
    log = MergedLog.open(FS, log.path, topic="t", topic_id="log", partition=0)
    log.archive(LogStart(11, 10, 99))
    log.close()
    (topic,) = state(tmp_path).topics
    found = topic.partitions[0]
    begins = found.start_offset, found.next_offset, found.start_segment, found.start_checksum
    assert begins == (11, 15, 10, 99)
    destination = FakeDestination()
    mirror(tmp_path, destination)
    assert [(each.next_offset, each.start_offset) for each in destination.gaps] == [(10, 11)]
    assert destination.log == b"".join(batches(3, 2, first=10))


def test_what_it_says_of_a_topic(tmp_path: Path) -> None:
    write(tmp_path, batches(3))
    write(tmp_path, batches(2), partition=1)
    (tmp_path / "positions").mkdir()
    known = KnownSchemas(FS, str(tmp_path), None)
    known.note("t", "log", ("one", "two"), {1: (2, ((0, 1), (1, 2)))}, durable=True)
    found = state(tmp_path)
    assert (found.cluster_id, found.positions, found.placed) == (CLUSTER, (), {})
    (topic,) = found.topics
    assert (topic.topic, topic.log_id, topic.schemas, topic.settings) == ("t", "log", 2, {})
    assert [each.next_offset for each in topic.partitions] == [3, 2]
    assert [each.since for each in topic.partitions] == [(), ((0, 1), (1, 2))]
    source = FilesSource(str(tmp_path))
    assert tuple(done(source, source.schemas("t"))) == ("one", "two")


def test_schemas_of_another_log_of_the_name_do_not_count(tmp_path: Path) -> None:
    write(tmp_path, batches(3))
    KnownSchemas(FS, str(tmp_path), None).note("t", "older", ("one",), {}, durable=True)
    (topic,) = state(tmp_path).topics
    assert topic.schemas == 0


def test_a_topic_of_which_a_partition_is_missing_is_not_mirrored(tmp_path: Path) -> None:
    write(tmp_path, batches(3))
    write(tmp_path, batches(3), partition=2)
    found = state(tmp_path)
    assert (found.topics, found.placed) == ((), {"t": 3})


def test_partitions_of_two_logs_of_one_name_are_not_one_topic(tmp_path: Path) -> None:
    write(tmp_path, batches(3))
    write(tmp_path, batches(3), partition=1, log_id="newer")
    found = state(tmp_path)
    assert (found.topics, found.placed) == ((), {"t": 2})


def test_a_time_is_found(tmp_path: Path) -> None:
    """The batches have their offsets as timestamps."""
    write(tmp_path, batches(3, 2))
    source = FilesSource(str(tmp_path))
    assert done(source, source.offset_at(WHERE, 3)) == 3
    assert done(source, source.offset_at(WHERE, 99)) == 5


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(SourceUnreadable):
        state(tmp_path / "nowhere")
    write(tmp_path, batches(3))
    (tmp_path / "t-0" / "partition.json").write_text("{}")
    (tmp_path / "t-0" / "marks").write_text("{}")  # they repeat it
    with pytest.raises(SourceUnreadable, match=r"partition\.json"):
        state(tmp_path)


def test_a_batch_that_was_cut_off_is_not_there(tmp_path: Path) -> None:
    """A node was killed while it wrote."""
    write(tmp_path, batches(3, 2))
    (path,) = (tmp_path / "t-0").glob("*.log")
    os.truncate(path, path.stat().st_size - 1)
    (topic,) = state(tmp_path).topics
    assert topic.partitions[0].next_offset == 3


def test_it_reads_no_further_than_the_logs_go(tmp_path: Path) -> None:
    write(tmp_path, batches(3))

    async def read() -> bytes:
        source = FilesSource(str(tmp_path))
        reader = await source.read(WHERE, 1)
        data = await reader.next()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.next(), 0.05)
        await source.close()
        return data

    assert asyncio.run(read()) == source_batch(0, 3)
    assert first_of(source_batch(0, 3)) == BatchBefore(3, first_of(source_batch(0, 3)).crc)

"""Pulling what passes a filter over real TLS: offsets are the log's, files the reader's."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from samelog.format import _kernels as kernels
from samelog.format.compression import decompress
from samelog.format.directory_files import RowsFile
from samelog.format.errors import UnsupportedFormat
from samelog.format.file_names import ROWS_FILE
from samelog.replicator.pull import served_rows
from samelog.replicator.pull.client import PullClient
from samelog.store.disk.files import OsFileSystem
from samelog.store.disk.json_files import read_json_file
from samelog.store.merged.log import MergedLog
from samelog.store.merged.partition_file import find_partition_directories
from samelog.wire.bounds import RowsAsked
from samelog.wire.messages import Start
from samelog.wire.pull.copies import StartAt
from tests.replicator.fake_source import FakeMerged, FakeRows
from tests.replicator.test_pull_client import Pulling, pulling, until_copied
from tests.runtime.peers import in_loop, until

WANTED = RowsFile(topic="flights", topic_id="", partition=0, where="_key IN ('1', '3')")


def fill(stream: FakeMerged, source: random.Random, count: int) -> None:
    """Records whose keys are 0 to 99."""
    for _ in range(count):
        keys = [b"%d" % source.randrange(100) for _ in range(source.randrange(1, 40))]
        data = kernels.build_batches(
            [b"v" * 20] * len(keys), keys=keys, timestamps=1, batch_bytes=500, max_record_bytes=500
        )
        stream.append(data)
        if source.random() < 0.1:
            stream.roll()


def records_of(log: MergedLog) -> list[tuple[int, bytes | None]]:
    """(offset, key) of all that a log has."""
    found = []
    for segment in log.segments():
        data, byte = b"", 0
        while byte < segment.size:
            data = log.read(segment.base_offset, byte, 1 << 20)
            byte += len(data)
            records = kernels.decode_records(data, 0, len(data), "flights", 0, decompress)
            found += [(record.offset, record.key) for record in records]
    return found


def passing(stream: FakeMerged, first: int = 0) -> list[tuple[int, bytes | None]]:
    """What passes of a node's log."""
    return [each for each in records_of(stream.log) if each[1] in (b"1", b"3") and each[0] >= first]


def kept(client: PullClient) -> MergedLog:
    return client.copies["flights", 0].log


def test_what_passes_comes_and_goes_on_at_any_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_rows, "SEGMENT_BYTES", 700)

    async def main() -> None:
        async with pulling(tmp_path, 2, partitions=1) as made:
            sources = [source.merged[0] for source in made.sources]

            def grow(count: int) -> None:
                number = len(records_of(sources[0].log))
                for stream in sources:
                    fill(stream, random.Random(number), count)

            grow(30)
            for turn in range(4):
                address = made.world.nodes[turn % 2].address
                async with made.client(rows=WANTED, addresses=(address,)) as client:
                    await until_copied(client, made.sources[0])
                    assert records_of(kept(client)) == passing(sources[0])
                    grow(5)
                    await until_copied(client, made.sources[0])
                    assert records_of(kept(client)) == passing(sources[0])
                    assert len(kept(client).segments()) > turn
                whole = sum(map(len, sources[0].files().values()))
                assert sum(segment.size for segment in kept(client).segments()) < whole / 2

    in_loop(main)


def test_what_was_archived_before_it_came_is_passed_over(tmp_path: Path) -> None:
    async def main() -> None:
        async with pulling(tmp_path, partitions=1) as made:
            stream = made.sources[0].merged[0]
            fill(stream, random.Random(1), 20)
            async with made.client(rows=WANTED) as client:
                await until_copied(client, made.sources[0])
            fill(stream, random.Random(2), 40)
            start = stream.archive(stream.log.segments()[-1].base_offset).offset
            async with made.client(rows=WANTED) as client:
                await until_copied(client, made.sources[0])
                assert kept(client).start_offset == start
                assert records_of(kept(client)) == passing(stream, start)

    in_loop(main)


def test_a_reader_that_takes_nothing_has_little_computed_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_rows, "AHEAD_BYTES", 300)

    async def main() -> None:
        async with pulling(tmp_path, partitions=1) as made:
            stream = made.sources[0].merged[0]
            fill(stream, random.Random(1), 30)
            rows = FakeRows(stream, RowsAsked("_key IS NOT NULL", (), 0))
            served = served_rows.ServedRows(rows)
            served.stream.begin(0, (0, 0))
            served.stream.add_listener(lambda: None)
            await until(lambda: sum(len(each.data) for each in served.stream.ready) >= 300)
            for _ in range(300):  # turns in which more could be computed
                await asyncio.sleep(0)
            assert served.read(0, 0, 1 << 20)
            assert 0 < served.stream.looked < stream.log.next_offset
            assert len(served.stream.ready) < 4
            before = served.stream.looked
            served.stream.ready.clear()  # all of it was sent
            served.stream.go_on()
            await until(lambda: served.stream.looked > before)

    in_loop(main)


def test_a_start_within_a_segment_is_where_files_begin(tmp_path: Path) -> None:
    async def main() -> None:
        async with pulling(tmp_path, partitions=1) as made:
            stream = made.sources[0].merged[0]
            fill(stream, random.Random(3), 20)
            async with made.client(rows=WANTED, start=StartAt(Start.OFFSET, 50)) as client:
                await until_copied(client, made.sources[0])
                assert kept(client).start_offset == 50
                assert records_of(kept(client)) == passing(stream, 50)

    in_loop(main)


async def _copied(made: Pulling, rows: RowsFile | None, directory: str) -> None:
    async with made.client(rows=rows, directory=directory) as client:
        await until_copied(client, made.sources[0])


def test_a_directory_has_what_passed_one_filter_or_the_log(tmp_path: Path) -> None:
    async def main() -> None:
        async with pulling(tmp_path, partitions=1) as made:
            fill(made.sources[0].merged[0], random.Random(4), 5)
            await _copied(made, WANTED, "rows")
            await _copied(made, None, "log")
            others = [("rows", None), ("log", WANTED)]
            others += [("rows", RowsFile(topic="", topic_id="", partition=0, where="_key = '1'"))]
            for directory, rows in others:
                with pytest.raises(UnsupportedFormat, match="take another directory"):
                    await _copied(made, rows, directory)
            file = str(tmp_path / "rows" / "flights-0" / ROWS_FILE)
            known = read_json_file(OsFileSystem(), file, RowsFile)
            assert known is not None
            assert (known.topic_id, known.where) == ("topic-1", WANTED.where)
            with pytest.raises(UnsupportedFormat):
                find_partition_directories(OsFileSystem(), str(tmp_path / "rows"), "flights")

    in_loop(main)

"""Archives as a source, and publishing what is in one again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from samelog.admin.client import ask
from samelog.admin.requests import CreateTopic
from samelog.archiver.copies.manifests import PARQUET, SEGMENTS
from samelog.cli.main import main
from samelog.spark.errors import BadOption, DataLoss, NotReadable, TopicNotFound
from samelog.spark.jobs.republish import RepublishRange
from samelog.spark.options import parse_options
from tests.archiver.test_copying import records_in
from tests.e2e.harness import World
from tests.spark.archives import Archive, flip, only
from tests.spark.cluster import config
from tests.spark.local import Journal, batch_reader, rows

KINDS = (SEGMENTS, PARQUET)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path)


def read(archive: Archive, **options: object) -> list[dict[str, Any]]:
    """The rows of a batch query."""
    told = {"archive": archive.path, "subscribe": "t", "includeHeaders": True, **options}
    reader = batch_reader(**told)
    return rows(reader, reader.partitions())


def expected(archive: Archive) -> list[tuple[Any, ...]]:
    """What the log had that was copied."""
    end = archive.manifests[-1].next_offset
    return [
        (each.offset, each.key, each.value, [*each.headers], each.timestamp)
        for each in records_in(archive.merged)
        if each.offset < end
    ]


def facts(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (
            row["offset"],
            row["key"],
            row["value"],
            [(entry["key"], entry["value"]) for entry in row["headers"]],
            round(row["timestamp"].timestamp() * 1000),
        )
        for row in found
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_archives_are_read_as_logs_are(archive: Archive, kind: str) -> None:
    only(archive, kind)
    whole = expected(archive)
    assert facts(read(archive)) == whole
    first, behind = archive.manifests[0].next_offset - 3, archive.manifests[1].first_offset + 4
    bounds = {
        "startingOffsets": json.dumps({"t": {"0": first}}),
        "endingOffsets": json.dumps({"t": {"0": behind}}),
    }
    assert facts(read(archive, **bounds)) == [r for r in whole if first <= r[0] < behind]
    some = read(archive, maxRecordsPerPartition=4, columns="offset,value", includeHeaders=False)
    assert [(row["offset"], row["value"]) for row in some] == [(r[0], r[2]) for r in whole]


@pytest.mark.parametrize("kind", KINDS)
def test_times_are_found(archive: Archive, kind: str) -> None:
    only(archive, kind)
    whole = expected(archive)
    first = next(r[0] for r in whole if r[4] >= 4000)
    assert facts(read(archive, startingTimestamp=4000)) == [r for r in whole if r[0] >= first]
    late = {"startingTimestamp": 10**15, "startingOffsetsByTimestampStrategy": "latest"}
    assert read(archive, **late) == []


def test_a_stream_reads_what_is_copied_and_then_more(archive: Archive) -> None:
    newer = archive.manifest(1)
    there = newer.read_bytes()
    newer.unlink()
    told = {"archive": archive.path, "subscribePattern": "t", "startingOffsets": "earliest"}
    journal = Journal(**told, maxOffsetsPerTrigger=20)
    first = [value for batch in journal.run() for value in batch]
    newer.write_bytes(there)
    journal.restart()
    assert first + [value for batch in journal.run() for value in batch] == [
        r[2] for r in expected(archive)
    ]


# --- what goes wrong ------------------------------------------------------------------------------


def test_a_hole_between_copies_is_data_loss(archive: Archive) -> None:
    first = archive.manifests[0].next_offset
    archive.change(0, next_offset=first - 2)
    with pytest.raises(DataLoss, match=rf"no copy of offsets {first - 2} to {first - 1}"):
        read(archive)
    whole = [r for r in expected(archive) if not first - 2 <= r[0] < first]
    assert facts(read(archive, failOnDataLoss=False)) == whole


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_copies_are_not_read(archive: Archive, kind: str) -> None:
    only(archive, kind)
    planned = batch_reader(archive=archive.path, subscribe="t")
    tasks = planned.partitions()
    flip(archive.file(0, kind), 0.3)
    with pytest.raises(NotReadable, match=r"t-0 \[0, .*: the archive .* cannot be read"):
        rows(planned, tasks)
    archive.file(0, kind).write_bytes(b"short")
    with pytest.raises(NotReadable, match="has 5 bytes, its manifest says"):
        rows(planned, tasks)
    archive.file(0, kind).unlink()
    with pytest.raises(NotReadable, match="is not there, but its manifest is"):
        rows(planned, tasks)


def test_what_is_not_in_an_archive_is_said(archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(TopicNotFound, match="there is no topic u"):
        read(archive, subscribe="u")
    (archive.path / "d").mkdir()
    (archive.path / "c" / "t").rename(archive.path / "d" / "t")
    with pytest.raises(NotReadable, match="somebody has moved it"):
        read(archive)
    with pytest.raises(BadOption, match="archive and directory contradict each other"):
        parse_options({"subscribe": "t", "archive": "a", "directory": "b"})
    with pytest.raises(BadOption, match="archiveCluster and archiveLog need an archive"):
        parse_options({"subscribe": "t", "archiveLog": "a"})


def test_a_range_that_cannot_be_is_refused() -> None:
    with pytest.raises(BadOption, match="offsets are those of one partition"):
        RepublishRange(topic="t", first=5).options()
    with pytest.raises(BadOption, match="starting at an offset and at a time contradict"):
        RepublishRange(topic="t", partition=0, first=5, from_ms=5).options()
    told = RepublishRange(topic="t", partition=1, first=5, to_ms=9).options()
    assert told["startingOffsets"] == '{"t": {"1": 5}}'
    assert told["endingTimestamp"] == "9"


# --- publishing it again --------------------------------------------------------------------------


def republish(world: World, archive: Archive, target: str, checkpoint: Path, *more: str) -> Any:
    places = ("--archive", str(archive.path), "--config", config(world), "--to", target)
    told = ("t", *places, "--checkpoint", str(checkpoint), *more, "--json")
    return CliRunner().invoke(main, ["spark", "republish", *told])


def published(world: World, topic: str) -> list[dict[str, Any]]:
    reader = batch_reader(config=config(world), subscribe=topic, includeHeaders=True)
    return rows(reader, reader.partitions())


@pytest.mark.timeout(400)
def test_records_are_published_again_once_though_the_job_dies(
    spark: SparkSession, world: World, archive: Archive, tmp_path: Path
) -> None:
    only(archive, PARQUET)
    ask(world.cluster.client_config(), CreateTopic("again", 1, {}))
    newer = archive.manifest(1)
    there = newer.read_bytes()
    newer.unlink()
    checkpoint = tmp_path / "checkpoint"
    ended = republish(world, archive, "again", checkpoint)
    assert ended.exit_code == 0, ended.output
    end = archive.manifests[0].next_offset
    assert json.loads(ended.stdout)["read_to"] == {"t-0": end}
    commits = checkpoint / "commits"
    for name in ("1", ".1.crc"):  # as if it had died before it wrote that
        (commits / name).unlink()
    newer.write_bytes(there)
    ended = republish(world, archive, "again", checkpoint)
    assert ended.exit_code == 0, ended.output
    whole = expected(archive)
    world.wait_offset(len(whole), "again")
    assert [r[1:] for r in facts(published(world, "again"))] == [r[1:] for r in whole]


def test_what_cannot_be_published_again_is_said(
    spark: SparkSession, world: World, archive: Archive, tmp_path: Path
) -> None:
    ask(world.cluster.client_config(), CreateTopic("small", 1, {}))
    ended = republish(world, archive, "nowhere", tmp_path / "c")
    assert ended.exit_code == 1
    assert "nowhere" in ended.output
    ended = republish(world, archive, "small", tmp_path / "c", "--partition", "1")
    assert "small has 1 partition, t has copies of partition 1" in ended.output
    ended = republish(world, archive, "small", tmp_path / "c", "--from-offset", "5")
    assert "offsets are those of one partition: say which" in ended.output

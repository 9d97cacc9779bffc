"""Copies say which versions of a schema their records were written with."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from pyarrow.parquet import read_table

from samelog import Subscriber
from samelog.archiver.copies import required
from samelog.archiver.copies.copying import copy_segment
from samelog.archiver.copies.manifests import (
    CopiedLog,
    CopyFault,
    CopyJob,
    SegmentSchemas,
    decode_manifest,
)
from samelog.archiver.copies.restoring import RangeRestore, SegmentCopy, manifests_of
from samelog.archiver.copies.targets import Target, open_target
from samelog.format import _kernels as kernels
from samelog.format.segment import Segment
from samelog.sequencer.state.tables.partitions import Partition
from samelog.sequencer.state.tables.schemas import SchemasTable, SchemaVersion
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.types import State
from samelog.store.disk.files import OsFileSystem
from samelog.store.merged.log import MergedLog
from samelog.typed.schema import parse_schema
from samelog.typed.versions import mark
from tests.typed.known import schema_text

FS = OsFileSystem()
LOG = CopiedLog("c", "t", "f" * 32, 0)
TEXTS = tuple(
    parse_schema(schema_text(*columns)).text
    for columns in (("a int32",), ("a int64",), ("a int64", "b string"))
)


def write(root: Path, *more: bytes | None) -> list[CopyJob]:
    """Two segments: version 2 is in force from offset 1 on, version 3 from offset 3 on."""
    root.mkdir()
    log = MergedLog.open(FS, root / "t-0", topic="t", topic_id=LOG.topic_id, partition=0)
    late = [(mark(1, parse_schema(TEXTS[0]).fingerprint),)]
    for values, headers in (
        ([b'{"a":0}', b'{"a":1}'], None),
        ([b'{"a":2}', b'{"a":3,"b":"x"}', *more], [*late, *[None] * (1 + len(more))]),
    ):
        data = kernels.build_batches(
            values, headers=headers, timestamps=1, batch_bytes=1 << 16, max_record_bytes=1 << 16
        )
        log.append(bytearray(data), base_offset=log.next_offset, leader_epoch=1)
        log.roll()
    told = [
        SegmentSchemas(TEXTS[:2], ((0, 1), (1, 2))),
        SegmentSchemas(TEXTS, ((1, 2), (3, 3))),
    ]
    jobs = []
    for segment, schemas in zip(log.segments()[:2], told, strict=True):
        begin, end = log.checksums(segment.base_offset)
        path = f"{log.path}/{segment.base_offset:020d}.log"
        facts = segment.base_offset, segment.next_offset, segment.size, segment.max_timestamp
        jobs.append(CopyJob("", path, LOG, *facts, begin, end or 0, ("segments",), schemas=schemas))
    log.close()
    return jobs


@pytest.fixture
def target(tmp_path: Path) -> Target:
    (tmp_path / "target").mkdir()
    return open_target(str(tmp_path / "target"))


def copy(target: Target, jobs: list[CopyJob]) -> None:
    for job in jobs:
        copy_segment(FS, target, job, now_ms=1, progress=lambda count: None)


def restore(target: Target, to: Path) -> None:
    copies = [SegmentCopy(target, each) for each in manifests_of(target, LOG)]
    RangeRestore(FS, copies, "segments", progress=lambda count: None).into(str(to))


def test_what_was_copied_is_read_as_rows_without_the_cluster(
    tmp_path: Path, target: Target
) -> None:
    copy(target, write(tmp_path / "merged"))
    restore(target, tmp_path / "back")
    with Subscriber("t", directory=tmp_path / "back", follow=False) as subscriber:
        found = [(row.offset, row.values) for row in subscriber.rows()]
    assert found == [
        *((0, {"a": 0, "b": None}), (1, {"a": 1, "b": None}), (2, {"a": 2, "b": None})),
        (3, {"a": 3, "b": "x"}),
    ]


def test_a_copy_of_an_older_version_gets_its_schemas_without_being_made_anew(
    tmp_path: Path, target: Target
) -> None:
    jobs = write(tmp_path / "merged")
    copy(target, [replace(job, schemas=SegmentSchemas()) for job in jobs])
    file = tmp_path / "target" / LOG.file("segments", 0)
    before = file.stat().st_mtime_ns
    copy(target, jobs)
    assert [each.schemas for each in manifests_of(target, LOG)] == [job.schemas for job in jobs]
    assert file.stat().st_mtime_ns == before


def test_a_directory_has_the_schema_of_one_log(tmp_path: Path, target: Target) -> None:
    copy(target, write(tmp_path / "merged"))
    restore(target, tmp_path / "back")
    (tmp_path / "back" / "t-0").rename(tmp_path / "elsewhere")
    other = replace(LOG, topic_id="e" * 32)
    copies = [SegmentCopy(target, replace(each, log=other)) for each in manifests_of(target, LOG)]
    (tmp_path / "target" / LOG.directory).rename(tmp_path / "target" / other.directory)
    again = RangeRestore(FS, copies, "segments", progress=lambda count: None)
    with pytest.raises(CopyFault, match="has the schema of another log of t"):
        again.into(str(tmp_path / "back"))


def test_a_segment_names_the_versions_up_to_the_one_in_force_at_its_end() -> None:
    schemas = SchemasTable()
    versions = []
    for text in TEXTS:
        schema = parse_schema(text)
        assert schemas.keep(schema)
        versions.append(SchemaVersion(schema.fingerprint, 1))
    state = State(schemas=schemas)
    state.topics.by_id["id"] = Topic("id", "t", {}, 1, [7], schemas=versions)
    partition = Partition(7, "id", 0, schema_since=((5, 1), (10, 2), (20, 3)))
    for base, behind, wanted in (
        (0, 5, SegmentSchemas()),
        (0, 6, SegmentSchemas(TEXTS[:1], ((5, 1),))),
        (5, 10, SegmentSchemas(TEXTS[:1], ((5, 1),))),
        (7, 20, SegmentSchemas(TEXTS[:2], ((5, 1), (10, 2)))),
        (12, 20, SegmentSchemas(TEXTS[:2], ((10, 2),))),
        (12, 21, SegmentSchemas(TEXTS, ((10, 2), (20, 3)))),
        (30, 40, SegmentSchemas(TEXTS, ((20, 3),))),
    ):
        segment = Segment(base, 1, sealed=True, next_offset=behind, max_timestamp=1)
        assert required.schemas_of(state, partition, segment) == wanted, (base, behind)


def test_parquet_has_the_rows_of_all_versions(tmp_path: Path, target: Target) -> None:
    jobs = write(tmp_path / "merged", b"no json", None)
    copy(target, [replace(job, formats=("parquet",)) for job in jobs])
    found = [
        read_table(tmp_path / "target" / LOG.file("parquet", job.base))["fields"] for job in jobs
    ]
    assert found[0].to_pylist() == [{"a": 0}, {"a": 1}]
    assert found[1].to_pylist() == [{"a": 2, "b": None}, {"a": 3, "b": "x"}, None, None]
    again = CopyJob(*(getattr(jobs[1], name) for name in jobs[1].__struct_fields__[:10]))
    other = open_target(str(tmp_path / "merged"))
    copy(other, [replace(again, formats=("parquet",), value_schema='{"b": "string"}')])
    own = read_table(tmp_path / "merged" / LOG.file("parquet", again.base))["fields"]
    assert own.to_pylist() == [{"b": None}, {"b": "x"}, None, None]  # the setting goes first


def test_arrow_streams_have_no_fields(tmp_path: Path, target: Target) -> None:
    [job, _] = write(tmp_path / "merged")
    text = schema_text("a int32", value_format="arrow")
    copy(
        target,
        [replace(job, formats=("parquet",), schemas=SegmentSchemas((text,), ((0, 1),)))],
    )
    assert "fields" not in read_table(tmp_path / "target" / LOG.file("parquet", 0)).column_names


def test_a_manifest_of_an_older_version_has_none(tmp_path: Path, target: Target) -> None:
    copy(target, write(tmp_path / "merged")[:1])
    name = LOG.manifest(0)
    file = tmp_path / "target" / name
    data = file.read_bytes()
    without = data[: data.index(b',\n "schemas"')] + b"\n}\n"
    assert decode_manifest(without, name).schemas == SegmentSchemas()

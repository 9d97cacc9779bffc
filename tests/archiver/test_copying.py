"""Copies of segments: made, checked, made again, and brought back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from samelog import Record, Subscriber
from samelog.archiver.copies.copying import copy_segment, read_manifest
from samelog.archiver.copies.manifests import (
    FORMATS,
    PARQUET,
    SEGMENTS,
    CopiedLog,
    CopyFault,
    CopyJob,
    Manifest,
    SourceFault,
    TornManifest,
)
from samelog.archiver.copies.restoring import (
    RangeRestore,
    Restored,
    SegmentCopy,
    common_format,
    find_copied_log,
    manifests_of,
)
from samelog.archiver.copies.targets import Target, open_target
from samelog.format import _kernels as kernels
from samelog.store.merged.log import MergedLog
from samelog.store.merged.lost_records import append_void
from tests.store.storage import FS, batches

COPIED = CopiedLog("c", "t", "f" * 32, 0)


@dataclass(frozen=True, slots=True)
class Source:
    """A merged log and jobs to copy its sealed segments."""

    path: Path
    jobs: list[CopyJob]

    def copy(self, target: Target) -> list[Manifest]:
        return [copy(target, job) for job in self.jobs]

    def read(self) -> list[Record]:
        return records_in(self.path.parent)


def copy(target: Target, job: CopyJob) -> Manifest:
    return copy_segment(FS, target, job, now_ms=5, progress=lambda count: None)


def records_in(directory: Path) -> list[Record]:
    """All that a subscriber reads there."""
    with Subscriber("t", directory=str(directory), follow=False) as subscriber:
        return list(subscriber.present())


def facts(records: list[Record]) -> list[tuple[object, ...]]:
    return [
        (each.offset, each.timestamp, each.timestamp_type, each.key, each.value, each.headers)
        for each in records
    ]


def make_source(root: Path) -> Source:
    """Two segments of all kinds of records, voids among them, and a third that grows."""
    root.mkdir()
    log = MergedLog.open(FS, root / "t-0", topic="t", topic_id=COPIED.topic_id, partition=0)
    for number, data in enumerate([*batches(1, 12), stamped(3), *batches(2, 12), stamped(9)]):
        log.append(bytearray(data), base_offset=log.next_offset, leader_epoch=3)
        if number == 5:
            append_void(log, 7, segment_base=log.end()[0], epoch=3, timestamp=1)
        if number in {12, 25}:
            log.roll()
    log.append(bytearray(stamped(1)), base_offset=log.next_offset, leader_epoch=3)
    jobs = []
    for each in log.segments()[:2]:
        begin, end = log.checksums(each.base_offset)
        path = f"{log.path}/{each.base_offset:020d}.log"
        facts = each.base_offset, each.next_offset, each.size, each.max_timestamp, begin, end or 0
        jobs.append(CopyJob("", path, COPIED, *facts, FORMATS))
    for file in log.take_dirty():
        file.datasync()
    log.close()
    return Source(root / "t-0", jobs)


def stamped(count: int) -> bytes:
    """Records with keys, nulls and headers, and the time of appending."""
    data = bytearray(
        kernels.build_batches(
            [None, *[b"v%d" % n for n in range(count)]],
            keys=[b"key", *[None] * count],
            headers=[[("a", b"1"), ("a", None)], *[None] * count],
            timestamps=[5, *range(count)],
            batch_bytes=60,
            max_record_bytes=1 << 20,
        )
    )
    kernels.stamp_append_time(data, 4321)
    return bytes(data)


def restore(target: Target, to: Path, kind: str, **how: Any) -> Restored:
    copies = [SegmentCopy(target, each) for each in manifests_of(target, COPIED)]
    return RangeRestore(FS, copies, kind, progress=lambda count: None).into(str(to), **how)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return make_source(tmp_path / "merged")


@pytest.fixture
def target(tmp_path: Path) -> Target:
    (tmp_path / "target").mkdir()
    return open_target(str(tmp_path / "target"))


# --- there and back -------------------------------------------------------------------------------


def test_segments_come_back_to_the_byte(source: Source, target: Target, tmp_path: Path) -> None:
    made = source.copy(target)
    assert [set(each.files) for each in made] == [set(FORMATS)] * 2
    restored = restore(target, tmp_path / "back", SEGMENTS)
    assert (restored.first_offset, restored.next_offset) == (0, source.jobs[-1].next_offset)
    for job in source.jobs:
        for suffix in (".log", ".index", ".timeindex"):
            original = Path(job.path).with_suffix(suffix)
            again = tmp_path / "back" / "t-0" / original.name
            assert again.read_bytes() == original.read_bytes()
    expected = [each for each in source.read() if each.offset < restored.next_offset]
    assert facts(records_in(tmp_path / "back")) == facts(expected)


def test_records_come_back_from_parquet(source: Source, target: Target, tmp_path: Path) -> None:
    source.copy(target)
    restored = restore(target, tmp_path / "back", PARQUET)
    expected = [each for each in source.read() if each.offset < restored.next_offset]
    assert facts(records_in(tmp_path / "back")) == facts(expected)
    assert len(expected) < restored.next_offset  # there are voids


def test_parquet_is_what_others_read(source: Source, target: Target, tmp_path: Path) -> None:
    """One directory is the topic."""
    from pyarrow.dataset import dataset

    source.copy(target)
    table = dataset(tmp_path / "target" / COPIED.directory / "parquet").to_table()
    expected = [each for each in source.read() if each.offset < source.jobs[-1].next_offset]
    rows = table.sort_by("offset").to_pylist()
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        (each.offset, each.key, each.value) for each in expected
    ]
    assert table.schema.names == (
        ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    )


def copy_typed(root: Path, target: Target) -> list[bytes | None]:
    """Copy a segment whose values are typed as Parquet; the values."""
    log = MergedLog.open(FS, root / "t-0", topic="t", topic_id=COPIED.topic_id, partition=0)
    values = [b'{"price": 1.5, "more": 1}', b"not JSON", None, b'{"price": "high"}']
    data = kernels.build_batches(values, timestamps=1, batch_bytes=99, max_record_bytes=1 << 20)
    log.append(bytearray(data), base_offset=0, leader_epoch=1)
    log.roll()
    segment = log.segments()[0]
    ends = segment.max_timestamp, 0, log.checksum
    path = f"{log.path}/{0:020d}.log"
    job = CopyJob("", path, COPIED, 0, segment.next_offset, segment.size, *ends, (PARQUET,))
    copy(target, replace(job, value_schema='{"price": "float64"}'))
    return values


def test_values_are_typed_by_the_topics_schema(tmp_path: Path, target: Target) -> None:
    """What does not fit is null there, and is brought back all the same."""
    from pyarrow.parquet import read_table

    values = copy_typed(tmp_path, target)
    table = read_table(tmp_path / "target" / COPIED.file(PARQUET, 0))
    assert table.column("fields").to_pylist() == [{"price": 1.5}, None, None, None]
    assert table.column("value").to_pylist() == values
    restore(target, tmp_path / "back", PARQUET)
    assert facts(records_in(tmp_path / "back")) == facts(records_in(tmp_path))


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=20),
            st.none() | st.binary(max_size=20),
            st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
            st.integers(-1, 1 << 60),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_record_survives_parquet(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[Any, Any, Any, int]]
) -> None:
    root = tmp_path_factory.mktemp("any")
    log = MergedLog.open(FS, root / "t-0", topic="t", topic_id=COPIED.topic_id, partition=0)
    keys, values, headers, timestamps = zip(*records, strict=True)
    data = kernels.build_batches(
        values,
        keys=keys,
        headers=headers,
        timestamps=timestamps,
        batch_bytes=1 << 10,
        max_record_bytes=1 << 20,
    )
    log.append(bytearray(data), base_offset=0, leader_epoch=1)
    log.roll()
    segment = log.segments()[0]
    ends = segment.max_timestamp, 0, log.checksum
    path = f"{log.path}/{0:020d}.log"
    job = CopyJob("", path, COPIED, 0, segment.next_offset, segment.size, *ends, (PARQUET,))
    (root / "target").mkdir()
    target = open_target(str(root / "target"))
    copy(target, job)
    restore(target, root / "back", PARQUET)
    assert facts(records_in(root / "back")) == facts(records_in(root))


def test_reading_begins_where_it_is_asked_for(
    source: Source, target: Target, tmp_path: Path
) -> None:
    source.copy(target)
    offset = source.jobs[0].next_offset + 3
    assert restore(target, tmp_path / "o", SEGMENTS, first=offset).first_offset == offset
    assert records_in(tmp_path / "o")[0].offset == offset
    first = next(each for each in source.read() if each.timestamp >= 3000)
    assert restore(target, tmp_path / "t", SEGMENTS, from_ms=3000).first_offset == first.offset


def test_any_other_file_system(source: Source, tmp_path: Path) -> None:
    """fsspec's, in memory."""
    target = open_target("memory://archive/copies")
    made = source.copy(target)
    assert source.copy(target) == made
    place = find_copied_log(target, "t", 0, cluster=None)
    assert (place, manifests_of(target, place)) == (COPIED, made)
    assert target.list(f"{COPIED.directory}/segments/0") == [Path(j.path).name for j in source.jobs]
    restore(target, tmp_path / "back", PARQUET)
    copy(target, replace(source.jobs[0], log=replace(COPIED, topic_id="later")))
    with pytest.raises(CopyFault, match="several logs of this name"):
        find_copied_log(target, "t", 0, cluster=None)
    assert find_copied_log(target, "t", 0, cluster=None, log_id="later").topic_id == "later"
    with pytest.raises(CopyFault, match="no copy of other-0"):
        find_copied_log(target, "other", 0, cluster="c")


# --- what is there already ------------------------------------------------------------------------


def test_a_copy_that_is_whole_is_found(source: Source, target: Target, tmp_path: Path) -> None:
    made = source.copy(target)
    Path(source.jobs[0].path).unlink()  # nobody needs to read it again
    assert copy(target, source.jobs[0]) == made[0]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("damage", [b"", b"junk", None])
def test_a_copy_that_is_not_whole_is_made_again(
    source: Source, target: Target, tmp_path: Path, kind: str, damage: bytes | None
) -> None:
    made = source.copy(target)
    file = tmp_path / "target" / COPIED.file(kind, 0)
    before = file.read_bytes()
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(damage)
    assert copy(target, source.jobs[0]).files == made[0].files
    assert file.read_bytes() == before


def test_a_format_is_added(source: Source, target: Target) -> None:
    assert set(copy(target, replace(source.jobs[0], formats=(SEGMENTS,))).files) == {SEGMENTS}
    assert set(copy(target, replace(source.jobs[0], formats=(PARQUET,))).files) == set(FORMATS)


def test_other_bytes_of_the_same_offsets_are_not_replaced(
    source: Source, target: Target, tmp_path: Path
) -> None:
    source.copy(target)
    copies = {path: path.read_bytes() for path in (tmp_path / "target").rglob("*.*")}
    with pytest.raises(CopyFault, match="other bytes of the same offsets"):
        copy(target, replace(source.jobs[0], end_checksum=1))
    assert {path: path.read_bytes() for path in (tmp_path / "target").rglob("*.*")} == copies


def test_a_manifest_of_another_place_is_refused(
    source: Source, target: Target, tmp_path: Path
) -> None:
    """Its names would become paths."""
    source.copy(target)
    file = tmp_path / "target" / COPIED.manifest(0)
    file.write_bytes(file.read_bytes().replace(b'"topic": "t"', b'"topic": "../../t"'))
    with pytest.raises(CopyFault, match="somebody has moved it"):
        manifests_of(target, COPIED)


# --- what fails -----------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 100, -1])
def test_what_has_rotted_here_is_no_copy(source: Source, target: Target, at: int) -> None:
    path = Path(source.jobs[0].path)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(SourceFault, match=path.name):
        copy(target, source.jobs[0])
    assert read_manifest(target, COPIED, COPIED.manifest(0)) is None
    assert target.list(f"{COPIED.directory}/segments/0") == []


class Failing:
    """A target that fails at the n-th thing that it is to do, or loses what it was given."""

    def __init__(
        self, target: Target, fails_at: int, *, loses: bool = False, what: str = "log"
    ) -> None:
        """`what`: how the names end of the files of which it loses something."""
        self.target = target
        self.left = fails_at
        self.loses = loses
        self.what = what

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise CopyFault("the target fails")

    def create(self, name: str) -> Any:
        self._count()
        upload = self.target.create(name)
        write, commit, parent = upload.write, upload.commit, self

        class Counted:
            def write(self, data: Any) -> int:
                parent._count()
                kept = bytes(data)[:-2] if parent.loses and name.endswith(parent.what) else data
                return write(kept)

            def commit(self) -> None:
                parent._count()
                commit()

            def abort(self) -> None:
                upload.abort()

        return Counted()

    def open(self, name: str) -> BinaryIO | None:
        self._count()
        file: BinaryIO | None = self.target.open(name)
        return file

    def list(self, directory: str) -> list[str]:
        return self.target.list(directory)


def test_wherever_a_target_fails_there_is_no_copy_until_there_is(
    source: Source, target: Target, tmp_path: Path
) -> None:
    fails_at, made, written = 0, None, None
    while made is None:
        assert written is None  # only reading the manifest back is left to fail then
        try:
            made = copy(Failing(target, fails_at), source.jobs[0])
        except CopyFault:
            written = read_manifest(target, COPIED, COPIED.manifest(0))
            assert not list((tmp_path / "target").rglob("*.tmp"))
            fails_at += 1
            if written is not None:
                made = copy(target, source.jobs[0])
    assert fails_at > 8
    assert read_manifest(target, COPIED, COPIED.manifest(0)) == made == written


def test_a_target_that_loses_what_it_was_given_is_found_out(source: Source, target: Target) -> None:
    with pytest.raises(CopyFault, match="is not what was written"):
        copy(Failing(target, 1 << 30, loses=True), source.jobs[0])
    assert read_manifest(target, COPIED, COPIED.manifest(0)) is None


def test_a_manifest_that_is_not_whole_is_none(
    source: Source, target: Target, tmp_path: Path
) -> None:
    """Its target was interrupted. It stopped the copies of the partition for good."""
    made = copy(target, source.jobs[0])
    path = tmp_path / "target" / COPIED.manifest(0)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TornManifest):
        read_manifest(target, COPIED, COPIED.manifest(0))
    assert copy(target, source.jobs[0]).files == made.files
    path.write_bytes(whole.replace(b'"format_version": 1', b'"format_version": 9'))
    with pytest.raises(CopyFault, match="has version 9"):
        copy(target, source.jobs[0])  # of a later program: it is not replaced


def test_a_manifest_that_was_not_kept_makes_no_copy(source: Source, target: Target) -> None:
    with pytest.raises(CopyFault):
        copy(Failing(target, 1 << 30, loses=True, what="json"), source.jobs[0])


def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path, source: Source) -> None:
    """Somebody forgot to mount it."""
    with pytest.raises(CopyFault, match="is it mounted"):
        source.copy(open_target(str(tmp_path / "nothing")))
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    ("url", "why"), [("nosuch://a/b", "nosuch"), ("s3://", "s3"), ("hdfs://nowhere/x", "hdfs")]
)
def test_a_target_that_cannot_be_used_is_said(url: str, why: str, source: Source) -> None:
    with pytest.raises(CopyFault, match=why):
        source.copy(open_target(url))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_damaged_copy_is_not_brought_back(
    source: Source, target: Target, tmp_path: Path, kind: str
) -> None:
    source.copy(target)
    file = tmp_path / "target" / COPIED.file(kind, source.jobs[1].base)
    data = bytearray(file.read_bytes())
    for at in (0, len(data) // 2, len(data) - 1):
        data[at] ^= 1
        file.write_bytes(data)
        with pytest.raises(CopyFault, match=file.name):
            restore(target, tmp_path / "back", kind)
        assert not (tmp_path / "back" / "t-0").exists()
        data[at] ^= 1
    file.write_bytes(data)
    restore(target, tmp_path / "back", kind)  # what was left of the attempts is in nobody's way
    with pytest.raises(CopyFault, match="there already"):
        restore(target, tmp_path / "back", kind)


def test_copies_that_have_no_format_in_common(source: Source, target: Target) -> None:
    made = source.copy(target)
    halves = [replace(each, files={kind: each.files[kind]}) for each, kind in zip(made, FORMATS)]  # noqa: B905
    with pytest.raises(CopyFault, match="two ranges"):
        common_format([SegmentCopy(target, each) for each in halves])

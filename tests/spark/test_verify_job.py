"""Verifying archives: whatever is wrong in one is found, and named; what is whole passes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from samelog.admin.client import log_history
from samelog.archiver.copies.manifests import PARQUET, SEGMENTS
from samelog.cli.commands.spark import command, tasks_done
from samelog.spark.jobs.archives import runs_of
from samelog.spark.jobs.findings import (
    Checked,
    Link,
    Series,
    VerifyReport,
    broken_links,
    check_runs,
    compare,
    deal,
    report,
)
from samelog.spark.jobs.verify import VerifyTargets, check_all, plan
from tests.e2e.harness import World
from tests.patience import PATIENCE_S
from tests.spark.archives import Archive, flip, only
from tests.spark.cluster import config, publish
from tests.subscriber.merged import Growing

SERIES = Series("here", "t", "id", 0)


def verified(places: VerifyTargets) -> VerifyReport:
    """The job, in this process."""
    planned = plan(places)
    shares = deal(planned.tasks, 3)
    assert sum(len(share) for share in shares) == len(planned.tasks)
    return report((each for share in shares for each in check_all(share)), planned.findings)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path)


def in_archive(archive: Archive) -> VerifyReport:
    return verified(VerifyTargets(archives=[str(archive.path)]))


# --- archives -------------------------------------------------------------------------------------


def test_a_whole_archive_passes_beside_its_log(archive: Archive) -> None:
    found = verified(VerifyTargets([str(archive.merged)], [str(archive.path)]))
    assert found.findings == ()
    facts = [(each.files, each.first) for each in found.checked]
    assert facts == [(2, 0), (2, 0), (3, 0)]
    assert len({each.behind for each in found.checked[:2]}) == 1


@pytest.mark.parametrize("kind", [SEGMENTS, PARQUET])
def test_damage_is_found(archive: Archive, kind: str) -> None:
    flip(archive.file(1, kind))
    found = in_archive(archive).findings
    assert found
    assert {each.file for each in found} == {str(archive.file(1, kind).relative_to(archive.path))}
    assert any("SHA-256" in each.wanted for each in found)
    first = archive.manifests[1].first_offset
    assert all(first <= each.offset < archive.manifests[1].next_offset for each in found)


def test_the_batch_that_is_damaged_is_named(archive: Archive) -> None:
    last = archive.batches(0)[-1]
    flip(archive.file(0, SEGMENTS), 0.999)
    [crc] = [each for each in in_archive(archive).findings if "whole valid batch" in each.wanted]
    assert crc.offset == int.from_bytes(last[:8], "big")
    assert (crc.topic, crc.partition) == ("t", 0)
    assert "CRC" in crc.found.upper()


@pytest.mark.parametrize("kind", [SEGMENTS, PARQUET])
def test_a_file_that_is_gone_is_found(archive: Archive, kind: str) -> None:
    archive.file(0, kind).unlink()
    found = in_archive(archive).findings
    assert [each.file for each in found if "it is not there" in each.found]


def test_a_file_that_is_cut_is_found(archive: Archive) -> None:
    path = archive.file(0, SEGMENTS)
    path.write_bytes(path.read_bytes()[:-1])
    assert any("the last batch is cut" in each.found for each in in_archive(archive).findings)


def test_a_manifest_that_is_gone_is_a_hole(archive: Archive) -> None:
    archive.manifest(0).unlink()
    [found] = in_archive(archive).findings
    assert (found.offset, found.found) == (0, "none")
    assert found.file.endswith("segments/0/00000000000000000000.log")


def test_manifests_that_say_nothing_or_of_others_are_found(archive: Archive) -> None:
    archive.manifest(0).write_bytes(b"{")
    elsewhere = archive.path / "c" / "u"
    shutil.copytree(archive.path / "c" / "t", elsewhere)
    found = in_archive(archive).findings
    assert any("is no manifest of a copy" in each.found for each in found)
    assert any("somebody has moved it" in each.found for each in found if each.topic == "u")


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "hole": ({"next_offset": -1}, "a hole of 1 offsets"),
    "double": ({"next_offset": 2}, "2 offsets that are there twice"),
    "sha": ({"sha256": "0" * 64}, "SHA-256 0000"),
    "size": ({"size": 5}, "5 bytes, as its manifest says of the segment"),
    "checksum": ({"end_checksum": 7}, "the running checksum 7"),
    "end": ({"next_offset": -3}, "an end at offset"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_manifest_that_says_something_else_is_found(archive: Archive, name: str) -> None:
    facts, said = CHANGES[name]
    if "next_offset" in facts:
        facts = {"next_offset": archive.manifests[0].next_offset + facts["next_offset"]}
    archive.change(0, **facts)
    told = [f"{each.wanted}: {each.found}" for each in in_archive(archive).findings]
    assert any(said in text for text in told), told


def test_batches_that_are_missing_doubled_or_out_of_order_are_found(archive: Archive) -> None:
    """Though the manifest believes them, and all CRCs are right."""
    whole = archive.batches(1)
    for changed in (whole[:3] + whole[4:], whole[:3] + whole[2:], [*whole[1::-1], *whole[2:]]):
        archive.put_batches(1, changed)
        [found, *_] = [each for each in in_archive(archive).findings if "batch" in each.wanted]
        assert "its offset is not" in found.found
    archive.put_batches(1, whole[:-1])
    told = [each.wanted for each in in_archive(archive).findings]
    assert any(text.startswith("an end at offset") for text in told)


def test_rows_that_are_missing_doubled_or_out_of_order_are_found(archive: Archive) -> None:
    archive.put_rows(1, lambda table: pa.concat_tables([table[:3], table[4:]]))
    [found] = in_archive(archive).findings
    assert found.offset == archive.manifests[1].first_offset + 3
    assert found.found.startswith("no row for offsets")


def test_doubled_rows_are_found(archive: Archive) -> None:
    archive.put_rows(1, lambda table: pa.concat_tables([table[:4], table[3:]]))
    [found] = in_archive(archive).findings
    assert "there twice, or out of order" in found.found
    archive.put_rows(1, lambda table: table.take(list(range(len(table)))[::-1]))
    assert in_archive(archive).findings


def test_rows_of_elsewhere_are_found(archive: Archive) -> None:
    def move(table: Any) -> Any:
        other = pa.array([7] * len(table), pa.int32())
        return table.set_column(table.schema.get_field_index("partition"), "partition", other)

    archive.put_rows(0, move)
    [found, *_] = in_archive(archive).findings
    assert (found.wanted, found.found) == ("rows of partition 0", "rows of [7]")


def test_parquet_alone_cannot_tell_a_void_from_a_loss(archive: Archive) -> None:
    only(archive, PARQUET)
    [found] = in_archive(archive).findings
    assert "void in the log: there are no segments to tell from" in found.found
    only(archive, SEGMENTS)
    assert in_archive(archive).findings == ()


# --- directories ----------------------------------------------------------------------------------


def log(path: Path, stop: int = 300) -> Growing:
    """Three segments."""
    path.mkdir()
    made = Growing(path)
    for start in range(0, stop, 100):
        made.count(start, start + 100)
        if start + 100 < stop:
            made.roll()
    made.make_durable()
    return made


def in_directories(*paths: Path) -> list[str]:
    return [str(each) for each in verified(VerifyTargets([str(path) for path in paths])).findings]


def test_directories_that_are_whole_pass(tmp_path: Path) -> None:
    log(tmp_path / "a")
    log(tmp_path / "b", 200)
    assert in_directories(tmp_path / "a", tmp_path / "b") == []


SPOILT: dict[str, tuple[Callable[[Growing], object], str]] = {
    "flipped": (lambda made: flip(made.segment(100)), "whole valid batch"),
    "gone": (lambda made: made.segment(100).unlink(), "a file behind it that begins at offset 100"),
    "first gone": (lambda made: made.segment(0).unlink(), "a file that begins at offset 0"),
    "emptied": (lambda made: made.archive(100), "begins at offset 100"),
    "cut": (
        lambda made: made.segment(200).write_bytes(made.segment(200).read_bytes()[:-1]),
        "the last batch is cut",
    ),
    "index": (lambda made: flip(made.segment(0).with_suffix(".timeindex")), ".timeindex"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_what_is_wrong_in_a_directory_is_found(tmp_path: Path, name: str) -> None:
    made = log(tmp_path / "a", 300)
    made.append(b"x" * 20_000)
    spoil, said = SPOILT[name]
    spoil(made)
    told = in_directories(tmp_path / "a")
    assert any(said in text for text in told), told
    assert all(text.startswith("t-0, offset ") for text in told)


def test_directories_that_differ_are_found(tmp_path: Path) -> None:
    log(tmp_path / "a").append(b"one")
    log(tmp_path / "b").append(b"two")
    other = log(tmp_path / "c", 100)
    other.append(b"other")
    told = in_directories(*(tmp_path / name for name in "abc"))
    assert any("offset 200" in text and "SHA-256" in text for text in told), told
    assert any("c/t-0/" in text and " bytes, as in " in text for text in told), told


def test_the_newest_segments_are_compared_as_far_as_both_reach(tmp_path: Path) -> None:
    for name, values in (("a", [b"one", b"more"]), ("b", [b"two"])):
        made = log(tmp_path / name)
        for value in values:
            made.append(value)
    [told] = in_directories(tmp_path / "a", tmp_path / "b")
    assert "others from byte" in told


# --- what decides ---------------------------------------------------------------------------------

OFFSETS = st.lists(st.integers(0, 30), max_size=30)


@given(OFFSETS)
def test_runs_are_the_rows_again(offsets: list[int]) -> None:
    runs = list(runs_of(pa.array(offsets, pa.int64())))
    assert [offset for run in runs for offset in range(*run)] == offsets


@given(OFFSETS)
def test_rows_pass_only_if_each_offset_is_there_once_in_order(offsets: list[int]) -> None:
    runs = runs_of(pa.array(offsets, pa.int64()))
    gaps, found = check_runs(SERIES, "file", runs, (5, 20))
    is_right = offsets == sorted(set(offsets)) and all(5 <= each < 20 for each in offsets)
    assert is_right == (not found)
    if is_right:
        missing = sorted(set(range(5, 20)) - set(offsets))
        assert [offset for gap in gaps for offset in range(*gap)] == missing


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=6))
def test_chains_pass_only_if_dense(spans: list[tuple[int, int]]) -> None:
    links = [Link("f", first, first + size) for first, size in spans]
    dense = all(a.next_offset == b.first_offset for a, b in pairwise(links))
    assert bool(broken_links(SERIES, links)) != dense


def test_copies_with_other_voids_are_found() -> None:
    batches = Checked(SERIES, "a.log", 0, 9, 1, "sha", ((3, 5),))
    rows = Checked(SERIES, "a.parquet", 0, 9, 1, "", ((3, 5),))
    assert compare([batches, rows]) == []
    [found] = compare([batches, rows._replace(voids=((3, 6),))])
    assert found.found == "no row for offsets 3 to 5"


# --- in Spark -------------------------------------------------------------------------------------


def run(*arguments: object) -> tuple[int, dict[str, Any]]:
    """`samelog spark verify … --json`."""
    texts = [str(each) for each in arguments]
    ended = CliRunner().invoke(command, ["verify", *texts, "--json"])
    assert ended.stdout, ended.output
    return ended.exit_code, json.loads(ended.stdout)


@pytest.mark.timeout(400)
def test_one_job_verifies_all_kinds_of_places(
    spark: SparkSession, world: World, archive: Archive
) -> None:
    for start in range(0, 9_000, 3_000):
        publish(world, "verified", start, start + 3_000)
    copies = ("--archive", archive.path)
    places = (archive.merged, world.cluster.nodes[1].data, *copies, "--config", config(world))
    code, told = run(*places)
    assert (code, told["verified"], told["findings"]) == (0, True, [])
    covered = {(each["series"]["where"], each["behind"]) for each in told["checked"]}
    names = {f"node {node.name}" for node in world.cluster.nodes}
    assert {where for where, behind in covered if behind == 9_000} >= names
    assert len(list(log_history(config(world), "verified"))) > 1
    flip(archive.file(0, SEGMENTS))
    flip(archive.file(1, PARQUET))
    code, told = run(*places)
    assert (code, told["verified"]) == (1, False)
    files = {each["file"].rpartition(".")[2] for each in told["findings"]}
    assert files == {"log", "parquet"}


def test_a_log_whose_first_records_were_deleted_passes(world: World) -> None:
    publish(world, "shorter", 0, 6_000)
    kafka = AdminClient({"bootstrap.servers": world.cluster.client_config().kafka_bootstrap})
    for each in kafka.delete_records([TopicPartition("shorter", 0, 2_345)]).values():
        each.result(PATIENCE_S)
    found = verified(VerifyTargets(clusters=[config(world)], topics=["shorter"]))
    assert found.findings == ()
    assert {each.behind for each in found.checked} == {6_000}
    assert len(found.checked) == 3


def test_nothing_to_check_is_no_success(tmp_path: Path, spark: SparkSession) -> None:
    ended = CliRunner().invoke(command, ["verify", "--archive", str(tmp_path)])
    assert ended.exit_code == 1
    assert "there is nothing to check" in ended.output
    ended = CliRunner().invoke(command, ["verify"])
    assert ended.exit_code == 2


def test_progress_is_that_of_the_stages_that_run() -> None:
    known = {
        3: SimpleNamespace(numTasks=4, numCompletedTasks=1),
        4: SimpleNamespace(numTasks=6, numCompletedTasks=2),
    }
    tracker: Any = SimpleNamespace(getActiveStageIds=lambda: [3, 4, 5], getStageInfo=known.get)
    assert tasks_done(tracker) == (3, 10, "tasks of Spark")
    tracker.getActiveStageIds = list
    assert tasks_done(tracker) == (0, None, "tasks of Spark")

"""The pipelines of the lake: every record once, whatever fails; compaction, replay; and that other
readers of Delta tables see the same.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from samelog.spark.errors import LakeConflict, LakeError, PipelineError
from samelog.spark.pipelines import delta_checkpoint, lake_upkeep
from samelog.spark.pipelines.delta_log import LakeCommit
from samelog.spark.pipelines.hadoop_files import HadoopFiles
from samelog.spark.pipelines.lake import Lake, start
from samelog.spark.pipelines.lake_table import LakeTable
from samelog.spark.pipelines.lake_upkeep import ReplayedRange, replay
from samelog.spark.pipelines.running import wait_for_end
from tests.e2e.harness import wait_for
from tests.subscriber.merged import Growing, numbers

pytestmark = pytest.mark.timeout(400)
DAY_MS = 86_400_000


class Injected(Exception):
    """A failure that a test wants."""


def lake_of(tmp_path: Path, **source: Any) -> Lake:
    told = {"directory": str(tmp_path), "subscribe": "t", "readMode": "local", **source}
    return Lake(
        path=str(tmp_path / "lake"), source={name: str(value) for name, value in told.items()}
    )


def fill(spark: SparkSession, lake: Lake) -> None:
    wait_for_end(start(spark, lake, trigger="available-now"))


def values(spark: SparkSession, lake: Lake) -> list[bytes]:
    rows = lake.table(spark).read().orderBy("offset", "value").select("value").collect()
    return [bytes(row.value) for row in rows]


def failing(method: Any, *, after: bool, times: int = 1) -> Callable[..., Any]:
    """A method that fails the first `times`, before or after it has done its work."""
    left = [times]

    def call(*arguments: Any, **options: Any) -> Any:
        fails = left[0] > 0
        left[0] -= 1
        if fails and not after:
            raise Injected("before")
        result = method(*arguments, **options)
        if fails:
            raise Injected("after")
        return result

    return call


def timestamped(log: Growing, days: int) -> None:
    """A hundred records on each of some days."""
    for day in range(days):
        times = [day * DAY_MS + number for number in range(100)]
        log.append(*numbers(100 * day, 100 * day + 100), timestamp=times)


def test_the_life_of_a_lake(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timestamped(Growing(tmp_path), 2)
    lake = lake_of(tmp_path, maxOffsetsPerTrigger=80)
    fails_at_every_step(spark, lake, monkeypatch)
    assert values(spark, lake) == numbers(0, 200)
    seen_by_others(lake)
    compacts(spark, lake, monkeypatch)
    replays(spark, lake)
    refuses(spark, lake)


def fails_at_every_step(spark: SparkSession, lake: Lake, patching: pytest.MonkeyPatch) -> None:
    """Before and after files are written, before and after the commit is there."""
    steps = [(LakeTable, "write"), (HadoopFiles, "create")]
    for kind, name in steps:
        for after in (False, True):
            with patching.context() as patch:
                patch.setattr(kind, name, failing(getattr(kind, name), after=after))
                with pytest.raises(PipelineError, match="after" if after else "before"):
                    fill(spark, lake)
            seen = len(values(spark, lake)) if lake.table(spark).snapshot().shape else 0
            assert seen in (0, 80), (name, after)
    fill(spark, lake)


def seen_by_others(lake: Lake) -> None:
    """An independent reader of Delta tables sees the same rows and partitions."""
    table = DeltaTable(lake.path)
    found = table.to_pyarrow_table()
    assert sorted(found["value"].to_pylist()) == numbers(0, 200)
    assert table.metadata().partition_columns == ["topic", "date"]
    assert {str(day) for day in found["date"].to_pylist()} == {"1970-01-01", "1970-01-02"}


def compacts(spark: SparkSession, lake: Lake, patching: pytest.MonkeyPatch) -> None:
    table = lake.table(spark)
    before = list(table.snapshot().files.values())
    assert len(before) > 2
    with patching.context() as patch:
        patch.setattr(HadoopFiles, "create", failing(HadoopFiles.create, after=False))
        with pytest.raises(Injected):
            lake_upkeep.compact(table)
    assert values(spark, lake) == numbers(0, 200)
    told: list[tuple[int, int]] = []
    done = lake_upkeep.compact(table, on_progress=lambda *reached: told.append(reached))
    assert sum(each.before for each in done) == len(before)
    assert len(told) == len(done)
    assert told[0] == (0, sum(each.size for each in before))
    assert all(read < total for read, total in told)
    assert len(table.snapshot().files) == 2
    assert values(spark, lake) == numbers(0, 200)
    assert lake_upkeep.compact(table) == []
    with pytest.raises(LakeConflict, match="was replaced meanwhile"):
        table.commit(LakeCommit(operation="DELETE", remove=before[:1]), table.read().schema)
    kept = set(table.snapshot().files)
    assert table.vacuum(1 << 62) >= len(before)
    on_disk = {
        path.relative_to(lake.path).as_posix() for path in Path(lake.path).rglob("*.parquet")
    }
    assert on_disk == kept
    assert values(spark, lake) == numbers(0, 200)


def replays(spark: SparkSession, lake: Lake) -> None:
    """Rows that were lost, and rows that are there twice, are put right; others stay."""
    table = lake.table(spark)
    one = next(iter(table.snapshot().files.values()))
    schema = table.read().schema
    twice = table.write(table.read([one]).where("offset % 2 = 0"), "twice")
    table.commit(LakeCommit(operation="WRITE", add=twice), schema)
    assert len(values(spark, lake)) == 250
    range_ = {"startingOffsets": '{"t": {"0": 0}}', "endingOffsets": '{"t": {"0": 100}}'}
    days = {"startingTimestamp": DAY_MS, "endingTimestamp": 2 * DAY_MS}
    done = [replay(spark, lake_of(Path(lake.path).parent, **told)) for told in (range_, days)]
    assert [each.ranges for each in done] == [
        (ReplayedRange("t", 0, 0, 100),),
        (ReplayedRange("t", 0, 100, 200),),
    ]
    assert values(spark, lake) == numbers(0, 200)
    lost = list(table.snapshot().files.values())
    table.commit(LakeCommit(operation="DELETE", remove=lost[:1]), schema)
    assert len(values(spark, lake)) < 200
    replay(spark, lake_of(Path(lake.path).parent, startingOffsets="earliest"))
    assert [value for value in values(spark, lake) if value] == numbers(0, 200)


def test_a_checkpoint_stands_for_the_versions_before_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To this reader and to another one; what comes behind it counts, too."""
    monkeypatch.setattr(delta_checkpoint, "EVERY_VERSIONS", 4)
    records = Growing(tmp_path)
    records.count(0, 100)
    lake = lake_of(tmp_path, maxOffsetsPerTrigger=20)
    fill(spark, lake)
    log = Path(lake.path, "_delta_log")
    assert json.loads((log / "_last_checkpoint").read_bytes())["version"] == 4
    whole = lake.table(spark).snapshot()
    for version in range(4):
        (log / f"{version:020d}.json").unlink()
    seen = lake.table(spark).snapshot()
    assert (seen.version, seen) == (4, whole)
    records.count(100, 140)
    fill(spark, lake)
    assert values(spark, lake) == numbers(0, 140)
    assert sorted(DeltaTable(lake.path).to_pyarrow_table()["value"].to_pylist()) == numbers(0, 140)


def refuses(spark: SparkSession, lake: Lake) -> None:
    """Other columns, another partitioning, a query that starts over, a lake that does not exist."""
    table = lake.table(spark)
    with pytest.raises(LakeError, match="has other columns: key"):
        table.write(table.read().drop("key"), "x")
    with pytest.raises(LakeError, match="no column nowhere to partition by"):
        LakeTable(spark, lake.path + "-new", ["nowhere"]).write(table.read(), "x")
    with pytest.raises(LakeError, match="is partitioned by topic, date, not by topic"):
        LakeTable(spark, lake.path, ["topic"]).write(table.read(), "x")
    with pytest.raises(LakeError, match="there is no lake at"):
        LakeTable(spark, lake.path + "-none").read()
    shutil.rmtree(Path(lake.path) / "_checkpoint")
    with pytest.raises(PipelineError, match="filled by another query with the name lake"):
        fill(spark, lake)
    assert values(spark, lake) == numbers(0, 200)


@pytest.mark.parametrize("is_local", [True, False])
def test_of_two_that_create_a_file_one_does(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_local: bool
) -> None:
    """By a hard link, and by Hadoop's rename, as on file systems that are not this host's."""
    files = HadoopFiles(spark, str(tmp_path / "a b"))
    monkeypatch.setattr(files, "_is_local", is_local)
    (tmp_path / "a b" / "log").mkdir(parents=True)
    assert files.read("log/0.json") is None
    assert [files.create("log/0.json", data) for data in (b"one", b"other")] == [True, False]
    assert files.read("log/0.json") == b"one"
    assert [each.path for each in files.walk() if ".crc" not in each.path] == ["log/0.json"]
    files.remove("log")
    assert list(files.walk()) == []


def reached(table: LakeTable, version: int) -> bool:
    return table.snapshot().version >= version


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_a_killed_driver_writes_every_row_once(spark: SparkSession, tmp_path: Path) -> None:
    """At whatever it does; readers see whole micro-batches all the time."""
    Growing(tmp_path).count(0, 300)
    command = [sys.executable, "-m", "tests.spark.lake_driver", str(tmp_path)]
    table = lake_of(tmp_path).table(spark)
    with subprocess.Popen(command, start_new_session=True) as driver:
        try:
            wait_for(partial(reached, table, 0), "a version", 400)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
    assert table.read().count() % 50 == 0
    fill(spark, lake_of(tmp_path, maxOffsetsPerTrigger=50))
    assert values(spark, lake_of(tmp_path)) == numbers(0, 300)

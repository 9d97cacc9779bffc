"""Parts of the pipelines that need no session: the table's log, plans, messages, the picture."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from samelog.cli.main import main
from samelog.cli.output import EXIT_FAILED
from samelog.examples.demo import proof as demo_pipeline
from samelog.examples.flights.picture import draw, report
from samelog.spark.errors import LakeError, NoSpark
from samelog.spark.pipelines import delta_checkpoint, running
from samelog.spark.pipelines.delta_log import (
    REMOVED_KEPT_MS,
    DataFile,
    LakeCommit,
    LakeVersion,
    TableShape,
    conflict,
    data_file,
    encode,
    file_name,
)
from samelog.spark.pipelines.lake_upkeep import plan
from samelog.spark.pipelines.session import check_installed

SHAPE = TableShape('{"type":"struct","fields":[]}', ("date",))
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/"), min_size=1)
files = st.builds(
    DataFile,
    names.map(lambda name: f"_commit=a/date=x/{name}"),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 42),
    st.tuples(st.tuples(st.just("date"), st.none() | names)),
)


MADE = replace(SHAPE, table_id="id", created_ms=1)
"""As the log has it."""


def after(at: LakeVersion, commit: LakeCommit) -> LakeVersion:
    return at.after(encode(commit, at, now_ms=1, table_id="id", shape=SHAPE))


# --- the log ----------------------------------------------------------------------------------


@given(st.lists(files, unique_by=lambda file: file.path, max_size=8), st.randoms())
def test_a_version_has_what_was_added_and_not_removed(
    added: Sequence[DataFile], chance: random.Random
) -> None:
    first = after(LakeVersion(), LakeCommit(operation="WRITE", add=added, batch=("q", 7)))
    assert dict(first.files) == {file.path: file for file in added}
    assert (first.version, first.shape, first.batches) == (0, MADE, {"q": 7})
    removed = [file for file in added if chance.random() < 0.5]
    second = after(first, LakeCommit(operation="DELETE", remove=removed))
    assert set(second.files) == {file.path for file in added} - {file.path for file in removed}
    assert (second.version, second.shape, second.batches) == (1, MADE, {"q": 7})
    assert set(second.removed) == {file.path for file in removed}
    data, last = delta_checkpoint.encode(second, now_ms=2)
    assert delta_checkpoint.version_of(last) == 1
    assert delta_checkpoint.decode(1, data) == second
    later, _ = delta_checkpoint.encode(second, now_ms=2 + REMOVED_KEPT_MS)
    assert delta_checkpoint.decode(1, later) == replace(second, removed={})
    gone = conflict(LakeCommit(operation="DELETE", remove=removed), second)
    assert (gone is None) == (not removed)


def test_the_first_version_describes_the_table_and_later_ones_do_not() -> None:
    commit = LakeCommit(operation="WRITE")
    texts = []
    at = LakeVersion()
    for _ in range(2):
        texts.append(encode(commit, at, now_ms=1, table_id="id", shape=SHAPE))
        at = at.after(texts[-1])
    kinds = [[next(iter(json.loads(line))) for line in text.splitlines()] for text in texts]
    assert kinds == [["commitInfo", "protocol", "metaData"], ["commitInfo"]]
    assert file_name(12) == "_delta_log/00000000000000000012.json"


def test_a_checkpoint_in_several_files_is_left_to_others() -> None:
    assert delta_checkpoint.version_of('{"version":7,"size":9,"parts":2}') is None


def test_a_table_of_a_later_protocol_is_refused() -> None:
    text = '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":[]}}'
    with pytest.raises(LakeError, match="version 3 of Delta's reader protocol"):
        LakeVersion().after(text)


def test_partitions_are_read_from_the_directories_that_spark_writes() -> None:
    found = data_file("_commit=a/t=x%2Fy/date=__HIVE_DEFAULT_PARTITION__/part-0.parquet", 3, 4)
    assert found.partition == (("t", "x/y"), ("date", None))


# --- compaction -------------------------------------------------------------------------------


@given(st.lists(files, unique_by=lambda file: file.path), st.integers(1, 1 << 30))
def test_a_plan_makes_fewer_files_of_small_ones(found: Sequence[DataFile], target: int) -> None:
    for partition, small, count in plan(found, target):
        assert 1 <= count < len(small)
        assert all(file.size < target and file.partition == partition for file in small)


def test_a_compacted_partition_is_left_alone() -> None:
    small = [DataFile(f"{number}", 10, 0) for number in range(5)]
    assert [(len(each), count) for _, each, count in plan(small, 100)] == [(5, 1)]
    assert plan([DataFile("1", 50, 0)], 100) == []
    assert plan([DataFile("1", 100, 0), DataFile("2", 80, 0)], 100) == []


# --- what is said -----------------------------------------------------------------------------


def test_the_reason_is_what_python_raised_last() -> None:
    text = (
        "[STREAM_FAILED] Query terminated: Traceback (most recent call last):\n"
        "  File x\nOSError: inner\n\nThe above\n\nTraceback (most recent call last):\n"
        "  File y\n    line\nsamelog.spark.errors.NotReadable: no node answers\n SQLSTATE: 1\n"
    )
    assert running.reason(Exception(text)) == "no node answers"
    assert running.reason(Exception("[CODE] short\n== more ==")) == "Spark: [CODE] short"


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (None, "pipelines need Java 17 or newer, and there is none"),
        ('echo "openjdk version \\"11.0.2\\" 2020" >&2', "is Java 11: "),
        ('echo "java version \\"1.8.0_1\\"" >&2', "is Java 8: "),
    ],
)
def test_java_that_is_missing_or_old_is_said(
    program: str | None, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    if program is not None:
        java = tmp_path / "bin" / "java"
        java.write_text(f"#!/bin/sh\n{program}\n")
        java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoSpark, match=text) as caught:
        check_installed()
    assert "apt-get install openjdk-17" in str(caught.value)


WITHOUT_PYSPARK = """
from importlib.machinery import PathFinder
find, hidden = PathFinder.find_spec, ("pyspark", "py4j")
PathFinder.find_spec = lambda name, *more: None if name in hidden else find(name, *more)
from samelog.cli.main import main
main(["pipeline", "run", "lake-compact", "--path", "/nowhere"])
"""


def test_a_host_without_pyspark_is_told_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PYSPARK], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("samelog: pipelines need pyspark, not installed here: install")


def test_a_demo_without_java_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipeline's command is run as the demo does; it fails before it looks for the cluster."""
    config, empty = tmp_path / "client.toml", tmp_path / "empty.pem"
    empty.touch(0o600)
    config.write_text(CLIENT.format(empty))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    made = demo_pipeline.Pipeline(str(config), str(tmp_path / "lake"), str(tmp_path / "p.png"))
    told = made.run(str(tmp_path / "log"))
    assert "pipelines need Java 17 or newer" in told["error"]


CLIENT = """\
cluster = "c"
nodes = ["127.0.0.1:1"]
ca = "{0}"
cert = "{0}"
key = "{0}"
"""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["flights", "--path", "x"], "Missing option '--config'"),
        (["flights", "--config", "/nowhere/client.toml", "--path", "x"], "/nowhere/client.toml"),
        (["lake-compact", "--path", "x", "--conf", "novalue"], "'novalue' is not KEY=VALUE"),
    ],
)
def test_what_cannot_be_understood_is_said(arguments: list[str], text: str) -> None:
    done = CliRunner().invoke(main, ["pipeline", "run", *arguments])
    assert (done.exit_code, text in done.stderr, done.stdout) == (2, True, ""), done.stderr


# --- the picture ------------------------------------------------------------------------------


def monday(day: int) -> datetime:
    return datetime(2013, 1, day, tzinfo=UTC)


def row(**values: Any) -> SimpleNamespace:
    told: dict[str, Any] = {
        "flights": 50,
        "cancelled": 1,
        "arrived": 49,
        "late": 10,
        "mean_arrival_delay": 5.0,
    }
    told |= {"week": monday(7), "carrier": "B6", "origin": "JFK", "weather": "fair"}
    return SimpleNamespace(**(told | values))


def test_means_are_weighted_by_the_flights_that_arrived() -> None:
    rows = [
        row(arrived=30, mean_arrival_delay=10.0),
        row(arrived=10, mean_arrival_delay=-10.0, week=monday(14)),
        row(arrived=0, late=0, mean_arrival_delay=None, weather="rain"),
    ]
    found = report(rows)
    assert found is not None
    assert (found.flights, found.cancelled) == (150, 3)
    assert found.by_carrier["B6", "fair"].mean == 5.0
    assert found.by_origin["JFK", "fair"].late_share == 0.5
    assert set(found.by_week) == {("JFK", monday(day)) for day in (7, 14)}
    assert ("B6", "rain") not in found.by_carrier


@pytest.mark.parametrize("carriers", [["B6"], ["B6", "??", "AA"]])
def test_a_picture_is_drawn_of_few_flights_too(carriers: list[str], tmp_path: Path) -> None:
    rows = [
        row(carrier=carrier, origin=origin, week=monday(7) + timedelta(weeks=week))
        for carrier in carriers
        for origin in ("JFK", "BOS")
        for week in range(3)
    ]
    found = report([*rows, row(arrived=2, weather="rain", mean_arrival_delay=200.0)])
    assert found is not None
    draw(found, str(tmp_path / "p.png"))
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"


def test_nothing_has_no_report() -> None:
    assert report([]) is None
    assert EXIT_FAILED == 1

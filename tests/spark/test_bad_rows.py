"""Rows that the sink cannot take: what their tasks say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from samelog.admin.client import ask
from samelog.admin.requests import CreateTopic
from samelog.format.errors import InvalidName
from samelog.spark.errors import NotReadable, SourceError
from samelog.spark.logs.nodes import Nodes
from samelog.spark.sink import SamelogBatchWriter, SinkOptions, TaskWriters
from tests.e2e.harness import World
from tests.spark.cluster import config


@pytest.fixture(scope="module")
def nodes(world: World) -> Iterator[Nodes]:
    ask(world.cluster.client_config(), CreateTopic("bad-rows", 2, {}))
    with closing(Nodes(config(world), timeout_s=10)) as made:
        yield made


TIME = pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            {"partition": pa.array([0, 7], pa.int32())},
            "a row is for bad-rows-7, but bad-rows has the partitions",
        ),
        (
            {"partition": pa.array([0, -1], pa.int32())},
            "a row is for bad-rows--1, but",
        ),
        ({"timestamp": pa.array([1, None], TIME)}, "1 of 2 rows have no timestamp: fill"),
        ({"topic": pa.array([None, "bad-rows"])}, "a row has no topic"),
        ({"topic": pa.array(["nowhere", "bad-rows"])}, "there is no topic 'nowhere'"),
        ({"topic": pa.array(["../x", "bad-rows"])}, "'../x'"),
    ],
)
def test_rows_that_cannot_be_written(nodes: Nodes, columns: dict[str, Any], said: str) -> None:
    batch = pa.record_batch({"value": pa.array([b"a", b"b"]), **columns})
    topic = None if "topic" in columns else "bad-rows"
    with (
        TaskWriters(nodes, "spark-bad", SinkOptions(topic=topic)) as writers,
        pytest.raises((SourceError, InvalidName), match=said),
    ):
        writers.add(batch)


def test_no_certificate_where_a_task_writes() -> None:
    writer = SamelogBatchWriter(SinkOptions(topic="bad-rows", config="/nowhere/client.toml"))
    said = "this host cannot reach the cluster: /nowhere/client.toml: .* every executor need"
    with pytest.raises(NotReadable, match=said):
        writer.write(iter([]))

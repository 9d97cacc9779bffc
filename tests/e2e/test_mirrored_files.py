"""A cluster is lost; what is left of it becomes topics of another one: the files of one node, and
copies that a subscriber had.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from samelog import Publisher, Subscriber
from samelog.admin.client import ask
from samelog.admin.mirror_requests import PromoteTopics
from samelog.cli.local_cluster import Process
from tests.e2e.commands import as_json
from tests.e2e.harness import wait_for
from tests.e2e.mirroring import TwoClusters, two_clusters
from tests.patience import PATIENCE_S

COUNT = 300
ROWS = [{"symbol": "A", "price": 1.5}, {"symbol": "B", "price": 2.5}]
SCHEMA = '{"format": "json", "columns": [{"name": "symbol", "type": "string"}, '
SCHEMA += '{"name": "price", "type": "float64"}]}'


def restored(pair: TwoClusters, files: str, *topics: str) -> None:
    """Everything that is in a directory, by a sidecar that ends."""
    text = f"name = 'again'\ndir = '{pair.directory / 'restoring'}'\nsource = '{files}'\n"
    text += f"destination = '{pair.destination.cluster.client_file}'\n"
    text += f"topics = {[*topics]}\nas = 'eu.{{topic}}'\nuntil = 'end'\n"
    Path(pair.config).write_text(text, "utf-8")
    with pair.sidecar() as process:
        assert ended(process) == 0, pair.log.read_text("utf-8")


def ended(process: Process) -> int:
    return process.wait(PATIENCE_S)


@pytest.mark.usefixtures("starts_nodes")
def test_what_is_left_of_a_lost_cluster_becomes_topics_of_another_one(tmp_path: Path) -> None:
    with two_clusters(tmp_path) as pair:
        source = pair.source.cluster
        config = ("--config", source.client_file)
        as_json("topic", "create", "t", "--partitions", "2", *config)
        with pair.source.publisher("p", "t") as publisher:
            for number in range(2 * COUNT):
                publisher.append(b"%d" % number, partition=number % 2)
            publisher.wait_merged(timeout=PATIENCE_S)
        copies = copied_rows(pair, tmp_path)
        there = [pair.source.merged_bytes(source.nodes[0], "t", n) for n in (0, 1)]
        source.nodes[0].kill()

        restored(pair, str(Path(source.nodes[0].data) / "merged"), "t")
        restored(pair, str(copies), "rows")
        (node,) = pair.destination.cluster.nodes
        assert [pair.destination.merged_bytes(node, "eu.t", n) for n in (0, 1)] == there
        ask(
            pair.destination.cluster.client_config(),
            PromoteTopics(("eu.t", "eu.rows"), confirm="eu.t,eu.rows"),
        )
        assert rows_of("eu.rows", pair.destination.cluster.client_file, tmp_path / "r") == ROWS


def copied_rows(pair: TwoClusters, directory: Path) -> Path:
    """A subscriber's copies of a topic with a schema."""
    config, schema = pair.source.cluster.client_file, directory / "schema.json"
    schema.write_text(SCHEMA, "utf-8")
    as_json("topic", "create", "rows", "--config", config)
    as_json("schema", "set", "rows", str(schema), "--config", config)
    with Publisher(
        "rows", session="rows", config=config, directory=str(directory / "pub")
    ) as publisher:
        publisher.append_rows(ROWS)
        publisher.wait_merged(PATIENCE_S)
    copies = directory / "copies"
    assert rows_of("rows", config, copies) == ROWS
    return copies


def rows_of(topic: str, config: str, directory: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    with Subscriber(topic, directory=directory, config=config, start="earliest") as subscriber:

        def are_there() -> bool:
            found.extend(dict(each.values or {}) for each in subscriber.rows(timeout=0.2))
            return len(found) >= len(ROWS)

        wait_for(are_there, "all rows")
    return found

"""What tests do with a real cluster that Spark reads from."""

from __future__ import annotations

from tests.e2e.harness import World
from tests.patience import PATIENCE_S
from tests.subscriber.merged import numbers


def config(world: World) -> str:
    """The clients' configuration."""
    return world.cluster.client_file


def publish(world: World, topic: str, start: int, stop: int, *, partition: int = 0) -> None:
    """Publish the numbers [start, stop) and wait until every node has merged them."""
    session = f"spark-{topic}-{partition}-{start}"
    with world.publisher(session, topic, partitions=partition + 1) as publisher:
        publisher.append_many(numbers(start, stop), partition=partition)
        publisher.wait_merged(timeout=PATIENCE_S)
    world.wait_offset(stop, topic, partition)

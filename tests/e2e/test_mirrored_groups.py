"""A mirror of a topic in data groups, whose partitions are on some nodes of the source only."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.commands import as_json
from tests.e2e.harness import World
from tests.e2e.mirroring import two_clusters
from tests.patience import PATIENCE_S

PARTITIONS, COUNT = 3, 100


@pytest.mark.usefixtures("starts_nodes")
def test_partitions_are_read_from_who_has_them(tmp_path: Path) -> None:
    with two_clusters(tmp_path, source_nodes=3) as pair:
        config = ("--config", pair.source.cluster.client_file)
        options = ("--partitions", str(PARTITIONS), "--replication-factor", "1")
        as_json("topic", "create", "p", *options, *config)
        publish(pair.source, COUNT)
        pair.configure(["p"])
        with pair.sidecar():
            for partition in range(PARTITIONS):
                pair.wait_mirrored(COUNT, "eu.p", partition)
        publish(pair.source, 2 * COUNT, first=COUNT)
        with pair.sidecar():
            for partition in range(PARTITIONS):
                pair.wait_mirrored(2 * COUNT, "eu.p", partition)
                (node,) = pair.destination.cluster.nodes
                here = pair.destination.merged_bytes(node, "eu.p", partition)
                assert here == placed_bytes(pair.source.cluster.directory, partition)
        records = pair.destination.read(PARTITIONS * 2 * COUNT, topic="eu.p")
        assert {record.value for record in records} == {b"%d" % n for n in range(2 * COUNT)}


def publish(world: World, end: int, *, first: int = 0) -> None:
    """The same records into each partition."""
    with world.publisher(f"p-{first}", "p") as publisher:
        for partition in range(PARTITIONS):
            for number in range(first, end):
                publisher.append(b"%d" % number, partition=partition)
        publisher.wait_merged(timeout=PATIENCE_S)


def placed_bytes(directory: str, partition: int) -> bytes:
    """Of the one node of the source that has the partition."""
    (found,) = Path(directory).glob(f"*/**/groups/*/merged/p-{partition}")
    return b"".join(path.read_bytes() for path in sorted(found.glob("*.log")))

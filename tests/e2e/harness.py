"""What end-to-end tests share: publishing, reading back, waiting, comparing files."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from samelog import Publisher, Record, Subscriber
from samelog.admin.answers import NodeState, Status
from samelog.admin.client import node_status
from samelog.admin.errors import AdminError
from samelog.cli.local_cluster import LocalCluster, LocalNode
from samelog.config.schema.render import to_toml
from samelog.publisher import NotMerged
from tests.patience import PATIENCE_S

POLLS_S = (0.005, 0.01, 0.02, 0.05)
"""Seconds before each of the first looks at a condition; the last for all later ones."""


def wait_for(condition: Callable[[], bool], what: str, deadline_s: float = PATIENCE_S) -> None:
    """Wait until `condition` holds; fail the test when it does not in time."""
    deadline = time.monotonic() + deadline_s
    between_looks = threading.Event()
    pauses_s = chain(POLLS_S, repeat(POLLS_S[-1]))
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {deadline_s} s: {what}")
        between_looks.wait(next(pauses_s))


def not_merged(publisher: Publisher) -> str:
    """Return why the publisher's records are not merged, as far as it knows by now."""
    with pytest.raises(NotMerged) as caught:
        publisher.wait_merged(timeout=0.1)
    return str(caught.value)


class World:
    """A running cluster and a directory for clients."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory

    def publisher(self, session: str, topic: str = "t", **options: Any) -> Publisher:
        """A publisher with its own directory below the test's."""
        options.setdefault("directory", str(self.directory / "publishers"))
        return Publisher(topic, session=session, config=self.cluster.client_file, **options)

    def subscriber(self, name: str = "s", topic: str = "t", **options: Any) -> Subscriber:
        """A subscriber with its own copy."""
        options.setdefault("start", "earliest")
        directory = str(self.directory / "subscribers" / name)
        return Subscriber(topic, directory=directory, config=self.cluster.client_file, **options)

    def read(self, count: int, *, name: str = "s", topic: str = "t") -> list[Record]:
        """The first `count` records of a topic."""
        records: list[Record] = []
        with self.subscriber(name, topic) as subscriber:
            deadline = time.monotonic() + PATIENCE_S
            while len(records) < count:
                records.extend(subscriber.batch(max_records=count - len(records), timeout=0.5))
                if time.monotonic() > deadline:
                    raise AssertionError(f"{len(records)} of {count} records within {PATIENCE_S} s")
        return records

    def status(self, node: LocalNode) -> Status | None:
        """A node's status, None while it does not answer."""
        try:
            return node_status(self.cluster.client_config(), node.address)
        except AdminError:
            return None

    def only(self, *nodes: LocalNode) -> str:
        """A client.toml that names these nodes only, as a disaster leaves it."""
        config = self.cluster.client_config()
        known = tuple(node.address for node in nodes), tuple(node.name for node in nodes)
        file = self.directory / f"only-{'-'.join(known[1])}.toml"
        file.write_text(to_toml(replace(config, nodes=known[0], node_names=known[1])))
        return str(file)

    def leader(self) -> LocalNode:
        """The node that leads, waiting for one."""
        found: list[LocalNode] = []

        def look() -> bool:
            for node in self.cluster.nodes:
                status = self.status(node) if node.pid is not None else None
                if status is not None and status.leader is not None:
                    leader = next(n for n in self.cluster.nodes if n.name == status.leader)
                    if leader.pid is not None:
                        found.append(leader)
                        return True
            return False

        wait_for(look, "a leader")
        return found[0]

    def followers(self) -> list[LocalNode]:
        """The nodes that do not lead."""
        leader = self.leader()
        return [node for node in self.cluster.nodes if node is not leader]

    def wait_offset(self, offset: int, topic: str = "t", partition: int = 0) -> None:
        """Wait until every running node has merged up to `offset`."""

        def reached(node: LocalNode) -> bool:
            status = self.status(node)
            return status is not None and any(
                (info.topic, info.partition, info.end_offset) == (topic, partition, offset)
                for info in status.partitions
            )

        running = [node for node in self.cluster.nodes if node.pid is not None]
        wait_for(lambda: all(map(reached, running)), f"{topic}-{partition} at {offset} everywhere")

    def wait_live(self, node: LocalNode) -> None:
        """Wait until a node says that it is Live."""

        def live() -> bool:
            status = self.status(node)
            return status is not None and any(
                info.name == node.name and info.state is NodeState.LIVE for info in status.nodes
            )

        wait_for(live, f"{node.name} is Live")

    def merged_bytes(self, node: LocalNode, topic: str = "t", partition: int = 0) -> bytes:
        """A node's merged log, all segments."""
        return read_segments(os.path.join(node.data, "merged", f"{topic}-{partition}"))

    def copied_bytes(self, name: str = "s", topic: str = "t", partition: int = 0) -> bytes:
        """A subscriber's copy, all segments."""
        return read_segments(str(self.directory / "subscribers" / name / f"{topic}-{partition}"))

    def assert_identical(self, topic: str = "t", partition: int = 0) -> None:
        """Every node's merged log is the same, to the byte, once all have merged as much."""

        def logs() -> list[bytes]:
            return [self.merged_bytes(node, topic, partition) for node in self.cluster.nodes]

        wait_for(lambda: len({len(log) for log in logs()}) == 1, "as much is merged everywhere")
        first, *others = logs()
        assert first
        assert all(log == first for log in others)


def read_segments(directory: str) -> bytes:
    """All segment files of a merged directory, in order."""
    names = sorted(name for name in os.listdir(directory) if name.endswith(".log"))
    return b"".join(Path(directory, name).read_bytes() for name in names)

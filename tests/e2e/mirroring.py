"""Two real clusters and the sidecar between them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from samelog.admin.client import ask
from samelog.admin.mirror_answers import MirrorInfo
from samelog.admin.mirror_requests import ListMirrors
from samelog.cli.local_cluster import ClusterOptions, LocalCluster, Process
from tests import forking
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S


class TwoClusters:
    """A source, a destination, and a directory for the sidecar."""

    def __init__(self, source: World, destination: World, directory: Path) -> None:
        self.source = source
        self.destination = destination
        self.directory = directory
        self.config = str(directory / "mirror.toml")
        self.log = directory / "sidecar.log"

    def configure(self, topics: list[str] | None = None, **keys: Any) -> None:
        """Write the sidecar's configuration."""
        values = {
            "name": re.sub(r"[^a-z0-9]", "", self.directory.name.lower()),
            "dir": str(self.directory / "sidecar"),
            "source": self.source.cluster.client_file,
            "destination": self.destination.cluster.client_file,
            "topics": topics or ["t"],
            "as": "eu.{topic}",
            **keys,
        }
        text = "".join(f"{key} = {_toml(value)}\n" for key, value in values.items())
        Path(self.config).write_text(text, "utf-8")

    @contextmanager
    def sidecar(self) -> Iterator[Process]:
        """A process that mirrors, killed at the end."""
        with self.log.open("ab") as out:
            process = forking.fork(["mirror", "run", "--config", self.config], out)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(PATIENCE_S)

    def mirror(self, topic: str = "eu.t") -> MirrorInfo | None:
        """A mirror, as the destination knows it."""
        rows = ask(self.destination.cluster.client_config(), ListMirrors()).mirrors
        return next((each for each in rows if each.topic == topic), None)

    def mirrored(self, topic: str = "eu.t", partition: int = 0) -> int:
        """Up to which offset a mirror is planned; -1: there is none."""
        known = self.mirror(topic)
        if known is None or partition >= len(known.partitions):
            return -1
        return known.partitions[partition].next_offset

    def wait_planned(self, offset: int, topic: str = "eu.t") -> None:
        """Wait until a mirror is so far."""
        wait_for(lambda: self.mirrored(topic) >= offset, f"{topic} is mirrored to {offset}")

    def wait_mirrored(self, offset: int, topic: str = "eu.t", partition: int = 0) -> None:
        """Wait until a mirror is so far, merged on every node."""
        wait_for(
            lambda: self.mirrored(topic, partition) >= offset, f"{topic} is mirrored to {offset}"
        )
        self.destination.wait_offset(offset, topic, partition)

    def assert_same_bytes(self, topic: str = "t", partition: int = 0) -> None:
        """Every node of the destination has the source's bytes."""
        there = self.source.merged_bytes(self.source.cluster.nodes[0], topic, partition)
        assert there
        for node in self.destination.cluster.nodes:
            here = self.destination.merged_bytes(node, f"eu.{topic}", partition)
            assert here == there


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else f"'{value}'"


@contextmanager
def two_clusters(
    directory: Path, nodes: int = 1, *, source_nodes: int = 1
) -> Iterator[TwoClusters]:
    """Fresh ones."""
    first = ClusterOptions(nodes=source_nodes, cluster="first")
    source = LocalCluster(str(directory / "source"), first)
    options = ClusterOptions(nodes=nodes, cluster="second")
    destination = LocalCluster(str(directory / "destination"), options)
    with source, destination:
        source.start()
        destination.start()
        os.makedirs(directory / "sidecar", exist_ok=True)
        worlds = World(source, directory / "s"), World(destination, directory / "d")
        yield TwoClusters(*worlds, directory)

"""Makes the golden files: `python -m tests.golden.make`. Needed only when a format changes.

A real cluster of three nodes in one process, a real publisher and a real subscriber, over real TLS:
what one node has on its disk, the publisher's directory, and the frames of three connections.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from samelog import Publisher, Subscriber
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.runtime.network.channel import Channel
from samelog.runtime.network.connection import Connection
from samelog.sequencer.node import Node
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.wire.frames import FrameType, encode_frame
from samelog.wire.messages import ConnectionRole, Hello
from tests.golden.facts import facts
from tests.golden.frames import FRAMES_KEPT, describe, split
from tests.patience import PATIENCE_S
from tests.sequencer.cluster import Session, batch, leader_of, offset, run_with, until

HERE = Path(__file__).parent
RECORDS = 44
SMALL = 4
IN_FIRST = 31
"""Records of partition 0."""
VALUE = b"the same log, everywhere; " * 100
LONGEST_FRAME = 4096
SETTINGS = {"segment.bytes": str(1 << 16)}


class Transcripts:
    """The frames of every connection that was dialled in this process: `>` sent, `<` received."""

    def __init__(self) -> None:
        self.of: dict[Connection, list[tuple[str, bytes]]] = {}
        write: Any = Connection._write
        handle: Any = Connection._handle_frame
        transcripts = self.of

        def sent(connection: Connection, header: bytes, payload: bytes | memoryview) -> None:
            if not connection._endpoint.server_side:
                transcripts.setdefault(connection, []).append((">", header + bytes(payload)))
            write(connection, header, payload)

        def received(
            connection: Connection,
            kind: FrameType,
            payload: memoryview,
            channel: Channel | None = None,
        ) -> object:
            if not connection._endpoint.server_side:
                number = 0 if channel is None else channel.number
                frame = encode_frame(kind, bytes(payload), number)
                transcripts.setdefault(connection, []).append(("<", frame))
            return handle(connection, kind, payload, channel)

        setattr(Connection, "_write", sent)  # noqa: B010 - types know no methods that change
        setattr(Connection, "_handle_frame", received)  # noqa: B010

    def longest(self, role: ConnectionRole) -> list[tuple[str, bytes]]:
        """The longest conversation of a role, without its large frames."""
        found = []
        for frames in self.of.values():
            _, hello = split(frames[0][1])
            if isinstance(hello, Hello) and hello.role is role:
                found.append(frames)
        small = [each for each in max(found, key=len) if len(each[1]) <= LONGEST_FRAME]
        return small[:FRAMES_KEPT]


async def use(nodes: list[Node], cluster: LocalCluster, path: Path) -> None:
    """Publish into two partitions, more than a segment, and read it all."""
    leader = await leader_of(nodes)
    now_ms = leader.member.clock.wall_ms()
    await leader.raft.proposer.propose(
        CreateTopicCommand("golden-topic", "golden", 2, SETTINGS, now_ms)
    )
    await asyncio.to_thread(publish_and_read, cluster, path)
    late = Session("late", "golden")
    await late.send(nodes, batch(b"in the second segment"))
    await until(lambda: all(offset(node, "golden") == IN_FIRST for node in nodes), "all merged")
    await asyncio.sleep(1.5)  # until the marks are written and a snapshot is taken


def publish_and_read(cluster: LocalCluster, path: Path) -> None:
    """One publisher, one subscriber."""
    config = cluster.client_config()
    with Publisher(
        "golden",
        session="golden",
        directory=str(path / "publisher"),
        config=config,
        partitions=2,
        roll_bytes=1 << 16,
    ) as publisher:
        for number in range(RECORDS):
            value = VALUE if number >= SMALL else b"small"
            publisher.append(b"%d: %b" % (number, value), partition=number % 3 // 2)
            if number < SMALL:
                publisher.wait_merged(PATIENCE_S)
    with Subscriber(
        "golden", directory=str(path / "copies"), config=config, start="earliest"
    ) as records:
        handed = iter(records)
        for _ in range(RECORDS):
            next(handed)


def publish_locally(path: Path) -> None:
    """A publisher's directory that nobody has shipped: two runs, the first with two files."""
    for run in range(2):
        with Publisher(
            "golden", session="golden", directory=str(path), roll_bytes=1 << 16
        ) as publisher:
            for number in range(RECORDS if run == 0 else 3):
                publisher.append(b"%d: %b" % (number, VALUE))


def make(directory: Path) -> None:
    """Write everything below `directory`."""
    transcripts = Transcripts()
    with tempfile.TemporaryDirectory() as made:
        path = Path(made)
        cluster = LocalCluster(str(path), ClusterOptions(nodes=3))
        cluster.prepare()
        run_with(path, 3, lambda nodes: use(nodes, cluster, path))
        for name in ("node", "publisher"):
            shutil.rmtree(directory / name, ignore_errors=True)
        shutil.copytree(cluster.nodes[0].data, directory / "node")
    publish_locally(directory / "publisher")
    with tempfile.TemporaryDirectory() as opened:
        for name in ("node", "publisher"):
            shutil.copytree(directory / name, Path(opened) / name)
        lines = [f"{line}\n" for line in facts(Path(opened))]
    (directory / "facts.txt").write_text("".join(lines))
    for role in (ConnectionRole.PUSH, ConnectionRole.PULL, ConnectionRole.RAFT):
        text = "".join(describe(*frame) for frame in transcripts.longest(role))
        (directory / f"{role.name.lower()}.txt").write_text(text)


if __name__ == "__main__":
    os.umask(0o022)
    make(HERE)

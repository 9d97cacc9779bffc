"""Pulling merged logs over real TLS: copies are the nodes' files, byte for byte."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from samelog.config.tables.client import SubscriberConfig
from samelog.config.tables.node import Grant
from samelog.config.values import Address
from samelog.format.directory_files import RowsFile
from samelog.format.errors import DirectoryInUse, LogFormatError
from samelog.replicator.interfaces import RequestRefused
from samelog.replicator.pull.client import PullClient
from samelog.replicator.pull.copy import Copy, FindStart
from samelog.replicator.pull.options import PullOptions, PullParts
from samelog.runtime.clock import SystemClock
from samelog.runtime.disk.syncer import GroupSync
from samelog.runtime.network.tls import ReloadingContext
from samelog.store.disk.files import OsFileSystem
from samelog.wire.errors import FaultCode
from samelog.wire.messages import Start
from samelog.wire.pull.copies import CopyState, StartAt
from samelog.wire.pull.refusal import Refusal
from tests.replicator.cutting import CuttingProxy
from tests.replicator.fake_nodes import FakeNode, World
from tests.replicator.fake_source import FakeSource, segment_files
from tests.replicator.session_files import batch, random_batches
from tests.runtime.peers import in_loop, until


class Pulling:
    """Nodes with logs, and clients that copy them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.world = World(path, 0)
        self.sources: list[FakeSource] = []

    async def add_node(self, *, source: FakeSource | None = None, partitions: int = 2) -> FakeNode:
        """One more node; with logs of its own unless told otherwise."""
        number = len(self.sources)
        if source is None:
            source = FakeSource(self.path / f"node-{number}", partitions=partitions)
        self.sources.append(source)
        made = FakeNode(f"n{number}", self.world.authority, self.world.cluster, source=source)
        self.world.nodes.append(made)
        await made.start()
        return made

    @asynccontextmanager
    async def client(
        self,
        *,
        addresses: tuple[Address, ...] = (),
        start: StartAt | None = None,
        directory: str = "copies",
        topics: tuple[str, ...] = ("flights",),
        keep: bool = False,
        rows: RowsFile | None = None,
    ) -> AsyncIterator[PullClient]:
        """A running pull client."""
        path = self.path / directory
        path.mkdir(exist_ok=True)
        config = self.world.config(addresses=addresses)
        config = replace(config, subscriber=SubscriberConfig(keep=keep))
        syncer = GroupSync(str(path))
        find: FindStart = lambda *name: start or StartAt(Start.EARLIEST)  # noqa: E731
        client = PullClient(
            str(path),
            topics,
            config,
            PullParts(
                tls=ReloadingContext(config.tls),
                fs=OsFileSystem(),
                syncer=syncer,
                clock=SystemClock(),
                random=random.Random(4),
            ),
            PullOptions(find_start=find, poll_s=0.1, rows={"flights": rows} if rows else {}),
        )
        client.start()
        try:
            yield client
        finally:
            await client.stop()
            await syncer.close()


@asynccontextmanager
async def pulling(path: Path, nodes: int = 1, *, partitions: int = 2) -> AsyncIterator[Pulling]:
    """Nodes, the same logs in each of them if there are several."""
    made = Pulling(path)
    for _ in range(nodes):
        await made.add_node(partitions=partitions)
    try:
        yield made
    finally:
        await made.world.stop()


async def until_copied(client: PullClient, source: FakeSource) -> None:
    """Wait until all partitions are copied, and known to be."""
    await until(
        lambda: all(
            ("flights", n) in client.copies
            and client.copies["flights", n].log.next_offset == stream.log.next_offset
            and client.copies["flights", n].caught_up
            for n, stream in enumerate(source.merged)
        )
    )


def copy_files(made: Pulling, partition: int = 0, directory: str = "copies") -> dict[str, bytes]:
    """The segments of a copy."""
    return segment_files(made.path / directory / f"flights-{partition}")


def test_copies_are_the_nodes_files_and_grow_with_them(tmp_path: Path) -> None:
    async def main() -> None:
        async with pulling(tmp_path) as made:
            [source] = made.sources
            rng = random.Random(1)
            for stream in source.merged:
                stream.fill(rng, 40)
            async with made.client() as client:
                await until_copied(client, source)
                for _ in range(30):
                    source.merged[rng.randrange(2)].fill(rng, 1)
                    await until_copied(client, source)
                for n, stream in enumerate(source.merged):
                    assert copy_files(made, n) == stream.files()
                    copy = client.copies["flights", n]
                    assert copy.cluster_end == stream.log.next_offset
                    assert copy.wanted_offset == 0
                    assert copy.log.checksum == stream.log.checksum
            async with made.client() as client:  # and again, from what is there
                source.merged[0].fill(rng, 5)
                await until_copied(client, source)
                assert copy_files(made) == source.merged[0].files()

    in_loop(main)


def test_nothing_is_copied_from_a_cluster_made_anew_under_the_same_name(tmp_path: Path) -> None:
    async def main() -> None:
        async with pulling(tmp_path) as made:
            [source], [node] = made.sources, made.world.nodes
            node.cluster_id = "first"
            async with made.client() as client:
                await until_copied(client, source)
            node.cluster_id = "second"
            source.merged[0].fill(random.Random(1), 5)
            async with made.client() as client:
                await until(lambda: "with the id first" in str(client.status.last_error))
            assert copy_files(made) != source.merged[0].files()
            node.cluster_id = "first"
            async with made.client() as client:
                await until_copied(client, source)
            assert copy_files(made) == source.merged[0].files()

    in_loop(main)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_breaks_copies_stay_the_same(seed: int, tmp_path: Path) -> None:
    async def main() -> None:
        rng = random.Random(seed)
        async with pulling(tmp_path, nodes=2) as made:
            nodes = made.world.nodes
            for node in nodes:
                node.window_bytes = rng.choice([1 << 20, 1 << 24])
            async with (
                CuttingProxy(nodes[0].address, rng, 150_000) as one,
                CuttingProxy(nodes[1].address, rng, 150_000) as other,
                made.client(addresses=(one.address, other.address)) as client,
            ):
                for step in range(25):
                    for partition in range(2):
                        for source in made.sources:  # the same bytes at both nodes
                            source.merged[partition].fill(random.Random(1000 * seed + step), 2)
                    if rng.random() < 0.1:
                        connections = one.connections + other.connections
                        if one.cut() or other.cut():
                            await until(
                                lambda: one.connections + other.connections > connections  # noqa: B023
                            )
                one.budget_bytes = other.budget_bytes = None
                await until_copied(client, made.sources[0])
                for n in range(2):
                    assert copy_files(made, n) == made.sources[0].merged[n].files()

    in_loop(main)


def test_the_next_node_goes_on_at_the_same_byte(tmp_path: Path) -> None:
    async def main() -> None:
        async with pulling(tmp_path, nodes=3) as made:
            for source in made.sources:
                source.merged[0].fill(random.Random(1), 30)
            async with made.client() as client:
                await until_copied(client, made.sources[0])
                connected = [
                    node
                    for node in made.world.nodes
                    if any(connection.is_open for connection in node.connections)
                ]
                [node] = connected
                await node.stop()
                for source in made.sources:
                    source.merged[0].append(batch(b"more"))
                await until_copied(client, made.sources[0])
                assert copy_files(made) == made.sources[0].merged[0].files()
                await node.start()

    in_loop(main)


@pytest.mark.parametrize("start", ["latest", "offset", "timestamp", "earliest"])
def test_a_copy_begins_with_the_segment_that_holds_the_start(tmp_path: Path, start: str) -> None:
    async def main() -> None:
        async with pulling(tmp_path, partitions=1) as made:
            stream = made.sources[0].merged[0]
            stream.append(batch(b"a", b"b"))
            stream.roll()
            stream.append(batch(b"c") + batch(b"d"))
            wanted = {
                "latest": (StartAt(Start.LATEST), 4, 2),
                "offset": (StartAt(Start.OFFSET, 3), 3, 2),
                "timestamp": (StartAt(Start.TIMESTAMP, 99), 4, 2),
                "earliest": (StartAt(Start.EARLIEST), 0, 0),
            }
            at, offset, base = wanted[start]
            async with made.client(start=at) as client:
                await until_copied(client, made.sources[0])
                copy = client.copies["flights", 0]
                assert copy.wanted_offset == offset
                assert copy.log.start_offset == base
                stream.append(batch(b"e"))
                await until_copied(client, made.sources[0])
                files = {
                    name: data for name, data in stream.files().items() if int(name[:20]) >= base
                }
                assert copy_files(made) == files
            async with made.client(start=StartAt(Start.EARLIEST)) as client:
                stream.append(batch(b"f"))
                await until_copied(client, made.sources[0])
                assert client.copies["flights", 0].log.start_offset == base

    in_loop(main)


def test_an_offset_that_is_not_there_stops_the_copy(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            pulling(tmp_path) as made,
            made.client(start=StartAt(Start.OFFSET, 77)) as client,
        ):
            await until(lambda: stopped(client) is not None)
            fault = stopped(client)
            assert "offset 77 is not in [0, 0]" in str(fault)

    in_loop(main)


def stopped(client: PullClient) -> Refusal | LogFormatError | None:
    """Why the first copy has stopped, if so."""
    copy = client.copies.get(("flights", 0))
    return copy.fault if copy is not None and copy.state is CopyState.STOPPED else None


def test_a_node_with_other_bytes_is_left_and_if_all_have_them_the_copy_stops(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with pulling(tmp_path, nodes=2) as made:
            for source in made.sources:
                source.merged[0].append(batch(b"same"))
            async with made.client() as client:
                await until_copied(client, made.sources[0])
            own = copy_files(made)
            forked = FakeSource(tmp_path / "forked")
            for word in (b"diff", b"also", b"over"):
                forked.merged[0].append(batch(word))
            await made.add_node(source=forked)
            other = made.world.nodes[2].address
            good = made.world.nodes[0].address
            async with made.client(addresses=(other, good)) as client:
                made.sources[0].merged[0].append(batch(b"more"))
                await until_copied(client, made.sources[0])
                own = copy_files(made)
            async with made.client(addresses=(other,)) as client:
                await until(lambda: stopped(client) is not None)
                assert "FORK" in str(stopped(client))
            assert copy_files(made) == own

    in_loop(main)


def test_a_node_that_lags_is_waited_for_or_left(tmp_path: Path) -> None:
    async def main() -> None:
        async with pulling(tmp_path, nodes=2) as made:
            for source in made.sources:
                source.merged[0].append(batch(b"a"))
            made.sources[0].merged[0].append(batch(b"b"))
            first, second = (node.address for node in made.world.nodes)
            async with made.client(addresses=(first,)) as client:
                await until_copied(client, made.sources[0])
            async with made.client(addresses=(second,)) as client:
                await until(lambda: any(waits(copy) for copy in client.copies.values()))
                made.sources[1].merged[0].append(batch(b"b"))
                made.sources[1].merged[0].append(batch(b"c"))
                await until_copied(client, made.sources[1])

    def waits(copy: Copy) -> bool:
        return copy.state is CopyState.WAITING and "NOT_READY" in str(copy.fault)

    in_loop(main)


def test_topics_come_grow_and_go(tmp_path: Path) -> None:
    async def main() -> None:
        async with pulling(tmp_path) as made:
            [source] = made.sources
            source.refusal = RequestRefused(FaultCode.UNKNOWN_TOPIC, "no such topic")
            async with made.client() as client:
                await until(lambda: "flights" in client.status.problems)
                source.refusal = None
                source.merged[0].append(batch(b"a"))
                await until_copied(client, source)
                assert client.status.problems == {}
                source.delete()
                await until(
                    lambda: all(copy.state is CopyState.GONE for copy in client.copies.values())
                )
                assert copy_files(made) == source.merged[0].files()

    in_loop(main)


def test_a_topic_created_again_is_not_mixed_with_the_old_copy(tmp_path: Path) -> None:
    async def main() -> None:
        async with pulling(tmp_path) as made:
            [source] = made.sources
            source.merged[0].append(batch(b"a"))
            async with made.client() as client:
                await until_copied(client, source)
            own = copy_files(made)
            for stream in source.merged:
                stream.topic_id = "topic-2"
            async with made.client() as client:
                await until(
                    lambda: [copy.state for copy in client.copies.values()] == [CopyState.GONE] * 2
                )
            assert copy_files(made) == own

    in_loop(main)


def test_only_granted_topics_can_be_copied(tmp_path: Path) -> None:
    async def main() -> None:
        made = Pulling(tmp_path)
        node = await made.add_node()
        made.sources[0].merged[0].append(batch(b"secret"))
        node.rights = FakeNode(
            "n1",
            made.world.authority,
            made.world.cluster,
            grants=(Grant(identity="samelog://publisher/p", subscribe_topics=("public-*",)),),
        ).rights
        async with made.client() as client:
            await until(lambda: "flights" in client.status.problems)
            assert client.status.problems["flights"].code is FaultCode.NOT_AUTHORISED
            assert client.copies == {}
        await made.world.stop()

    in_loop(main)


def test_two_clients_cannot_keep_the_same_copies(tmp_path: Path) -> None:
    async def main() -> None:
        async with pulling(tmp_path) as made, made.client():
            with pytest.raises(DirectoryInUse):
                async with made.client():
                    pass

    in_loop(main)


def test_a_slow_subscriber_costs_the_node_no_memory(tmp_path: Path) -> None:
    async def main() -> None:
        async with pulling(tmp_path) as made:
            stream = made.sources[0].merged[0]
            async with made.client() as client:
                await until_copied(client, made.sources[0])
                connection = client._link.connection
                assert connection is not None
                connection.pause_reading()
                [served] = made.world.nodes[0].connections
                data = random_batches(random.Random(1), 300, size=9000)
                for _ in range(30):
                    stream.append(data)
                await until(lambda: not served.writable)
                transport = served._transport
                assert transport.get_write_buffer_size() < (6 << 20)
                connection.resume_reading()
                await until_copied(client, made.sources[0])
                assert copy_files(made) == stream.files()

    in_loop(main)

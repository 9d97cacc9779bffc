"""Nodes that pull from each other: pieces of logs into sinks, and every way that can fail."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import pytest

from samelog.replicator.interfaces import RequestRefused
from samelog.replicator.pull.handles import PullRefused
from samelog.replicator.pull.repair_pull import (
    MergedName,
    RepairPull,
    SessionRunName,
    _Request,
)
from samelog.runtime.errors import ConnectFault, RuntimeFault
from samelog.runtime.network.link import PeerPlace
from samelog.runtime.network.tls import ReloadingContext
from samelog.wire.errors import FaultCode
from samelog.wire.messages import ConnectionRole, Hello
from samelog.wire.receiver import ResumePoint
from tests.replicator.fake_nodes import CLUSTER, FakeNode, World
from tests.replicator.fake_source import FakeSource
from tests.replicator.session_files import batch, random_batches
from tests.runtime.peers import in_loop, until

MERGED = MergedName("flights", "topic-1", 0)
SESSION = SessionRunName("s", "flights", "topic-1", 0, 5)
START = ResumePoint(0, 0)


@dataclass(slots=True)
class Sink:
    """Keeps what comes, until it has `wanted` bytes."""

    wanted: int = 1 << 60
    files: dict[int, bytes] = field(default_factory=dict)
    sealed: list[tuple[int, int, int]] = field(default_factory=list)
    error: Exception | None = None

    def on_data(self, file: int, byte: int, data: memoryview) -> None:
        """Keep it."""
        if self.error is not None:
            raise self.error
        assert len(self.files.get(file, b"")) == byte
        self.files[file] = self.files.get(file, b"") + bytes(data)

    def on_sealed(self, file: int, length: int, next_file: int) -> None:
        """Note it."""
        assert len(self.files.get(file, b"")) == length
        self.sealed.append((file, length, next_file))

    def has_enough(self) -> bool:
        """By size."""
        return sum(map(len, self.files.values())) >= self.wanted


class Peer(FakeNode):
    """A node that knows its world."""

    world: World


@asynccontextmanager
async def peer(path: Path) -> AsyncIterator[tuple[Peer, FakeSource, RepairPull]]:
    """A node with logs, and another one's pull from it."""
    world = World(path, 0)
    source = FakeSource(path / "node")
    node = Peer("n0", world.authority, world.cluster, source=source)
    node.world = world
    world.nodes.append(node)
    await node.start()
    pull = repair_of(world, node, "n1")
    try:
        yield node, source, pull
    finally:
        pull.close()
        await world.stop()


def repair_of(world: World, node: FakeNode, name: str) -> RepairPull:
    """What the node `name` pulls from `node` with."""
    return RepairPull(
        PeerPlace("n0", (node.address,)),
        ReloadingContext(world.authority.node(name)),
        hello=lambda: Hello(ConnectionRole.PULL, cluster=CLUSTER, node=name, boot=1),
    )


def test_a_merged_log_is_pulled_to_its_end_or_to_where_it_is_wanted(tmp_path: Path) -> None:
    async def main() -> None:
        async with peer(tmp_path) as (_, source, pull):
            stream = source.merged[0]
            stream.fill(random.Random(1), 50)
            names = {int(name[:20]): data for name, data in stream.files().items() if data}
            sink = Sink()
            assert not await pull.merged(MERGED, START, sink)
            assert sink.files == names
            assert [sealed[0] for sealed in sink.sealed] == sorted(names)[: len(sink.sealed)]
            wanted = Sink(wanted=2000)
            assert await pull.merged(MERGED, START, wanted)
            for file, data in wanted.files.items():
                assert names[file].startswith(data)

    in_loop(main)


def test_a_pull_goes_on_where_a_copy_ends(tmp_path: Path) -> None:
    async def main() -> None:
        async with peer(tmp_path) as (_, source, pull):
            stream = source.merged[0]
            stream.append(batch(b"a"))
            last = stream.log.last_batch()
            assert last is not None
            file, byte = stream.log.end()
            stream.append(batch(b"b"))
            sink = Sink(files={0: stream.files()["0" * 20 + ".log"][:byte]})
            await pull.merged(MERGED, ResumePoint(file, byte, *last[1:]), sink)
            assert sink.files[0] == stream.files()["0" * 20 + ".log"]
            with pytest.raises(PullRefused, match="FORK"):
                await pull.merged(MERGED, ResumePoint(file, byte, last[1], last[2] ^ 1), sink)

    in_loop(main)


def test_a_sessions_bytes_come_with_their_rolls(tmp_path: Path) -> None:
    async def main() -> None:
        async with peer(tmp_path) as (_, source, pull):
            rng = random.Random(2)
            log = source.session.log
            for _ in range(3):
                source.session.append(5, random_batches(rng, 30))
                log.seal(5, *log.end(5))
            source.session.append(5, random_batches(rng, 1))
            sink = Sink()
            assert not await pull.session(SESSION, START, sink)
            assert sink.files == {roll: log.read(5, roll, 0, 1 << 30) for roll in range(4)}
            assert [sealed[::2] for sealed in sink.sealed] == [(0, 1), (1, 2), (2, 3)]
            end = ResumePoint(*log.end(5))
            assert not await pull.session(SESSION, end, Sink())
            with pytest.raises(PullRefused, match="NOT_READY"):
                await pull.session(SESSION, ResumePoint(7, 0), Sink())
            log.release(5, 1)
            with pytest.raises(PullRefused, match="OUT_OF_RANGE"):
                await pull.session(SESSION, ResumePoint(1, 0), Sink())

    in_loop(main)


def test_many_pulls_share_a_connection(tmp_path: Path) -> None:
    async def main() -> None:
        async with peer(tmp_path) as (node, source, pull):
            node.window_bytes = 1 << 21
            for stream in source.merged:
                for _ in range(20):
                    stream.append(random_batches(random.Random(3), 100, size=6000))
            sinks = [Sink() for _ in range(8)]
            await asyncio.gather(
                *(
                    pull.merged(MERGED._replace(partition=n % 2), START, sink)
                    for n, sink in enumerate(sinks)
                )
            )
            for n, sink in enumerate(sinks):
                assert list(sink.files.values()) == list(source.merged[n % 2].files().values())
            assert len(node.connections) == 1

    in_loop(main)


def test_what_a_sink_raises_ends_its_pull_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with peer(tmp_path) as (node, source, pull):
            source.merged[0].fill(random.Random(4), 20)
            good = Sink()
            bad = Sink(error=ValueError("mine"))
            outcomes = await asyncio.gather(
                pull.merged(MERGED, START, bad),
                pull.merged(MERGED, START, good),
                return_exceptions=True,
            )
            assert isinstance(outcomes[0], ValueError)
            assert outcomes[1] is False
            source.merged[1].fill(random.Random(4), 0)
            empty = Sink()
            with (
                patch.object(Sink, "has_enough", side_effect=LookupError("gone")),
                pytest.raises(LookupError),  # the peer has no more for now
            ):
                await pull.merged(MERGED._replace(partition=1), START, empty)
            assert len(node.connections) == 1
            await until(lambda: not source.merged[0].listeners)

    in_loop(main)


def test_refusals_come_out_as_such(tmp_path: Path) -> None:
    async def main() -> None:
        async with peer(tmp_path) as (_, source, pull):
            with pytest.raises(PullRefused) as gone:
                await pull.merged(MERGED._replace(topic_id="older"), START, Sink())
            assert gone.value.code is FaultCode.TOPIC_GONE
            source.refusal = RequestRefused(FaultCode.NOT_READY, "halted")
            with pytest.raises(PullRefused, match="halted"):
                await pull.merged(MERGED, START, Sink())

    in_loop(main)


def test_a_pull_that_is_cancelled_in_the_turn_of_its_refusal_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    """A replica that ends cancels its pulls in the turn in which a peer refuses them. The errors
    ended the node: asyncio reports them as unhandled (cases/14).
    """
    unhandled: list[dict[str, object]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: unhandled.append(context))
        async with peer(tmp_path) as (_, source, pull):
            source.refusal = RequestRefused(FaultCode.NOT_READY, "it is being made")
            tasks = {asyncio.create_task(pull.merged(MERGED, START, Sink()))}

            def refuse_and_cancel(request: _Request, error: Exception) -> None:
                request.outcome.set_exception(error)
                for task in tasks:
                    task.cancel()

            with patch.object(_Request, "on_fault", refuse_and_cancel):
                await asyncio.wait(tasks)
            assert tasks.pop().cancelled()
            gc.collect()
            await asyncio.sleep(0)

    in_loop(main)
    assert not unhandled


def test_a_node_that_goes_away_fails_what_is_under_way(tmp_path: Path) -> None:
    async def main() -> None:
        async with peer(tmp_path) as (node, source, pull):
            source.merged[0].append(batch(b"a"))
            await pull.merged(MERGED, START, Sink())
            await node.stop()
            with pytest.raises(ConnectFault):
                await pull.merged(MERGED, START, Sink())
            await node.start()
            sink = Sink()
            await pull.merged(MERGED, START, sink)
            assert sink.files

    in_loop(main)


def test_a_cut_connection_fails_the_pull(tmp_path: Path) -> None:
    async def main() -> None:
        async with peer(tmp_path) as (node, source, pull):
            source.merged[0].append(batch(b"a"))

            class Cutting(Sink):
                """Ends the connection at the first byte."""

                def on_data(self, file: int, byte: int, data: memoryview) -> None:
                    """Cut."""
                    super().on_data(file, byte, data)
                    node.connections[0].close()

            source.merged[0].fill(random.Random(5), 400)
            node.window_bytes = 1
            with pytest.raises(RuntimeFault):
                await pull.merged(MERGED, START, Cutting())

    in_loop(main)


def test_only_peers_may_read_session_logs(tmp_path: Path) -> None:
    async def main() -> None:
        async with peer(tmp_path) as (node, source, _):
            source.session.append(5, batch(b"secret"))
            stranger = repair_of(node.world, node, "stranger")
            with pytest.raises(PullRefused, match="may not read session logs"):
                await stranger.session(SESSION, START, Sink())
            with pytest.raises(PullRefused, match="may not subscribe"):
                await stranger.merged(MERGED, START, Sink())
            stranger.close()

    in_loop(main)

"""What a reader without a copy is told of transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from samelog.format.transactions import Aborted, marker_batch
from samelog.replicator.pull import range_pull, streams
from samelog.replicator.pull.range_pull import RangePull, Wanted
from samelog.runtime.network.tls import ReloadingContext
from samelog.wire.messages import Start
from tests.replicator.fake_nodes import CLUSTER, FakeNode, World
from tests.replicator.fake_source import FakeMerged, FakeSource
from tests.replicator.session_files import batch
from tests.runtime.peers import in_loop, until
from tests.subscriber.transactions import transactional

END = Wanted("flights", None, 0, Start.LATEST)
Ask = Callable[[RangePull, FakeMerged], Coroutine[Any, Any, None]]


def ask(path: Path, script: Ask) -> None:
    """Run a script with a connection to a node, and the node's partition 0."""

    async def main() -> None:
        made = World(path, 0)
        source = FakeSource(path / "node")
        node = FakeNode("n0", made.authority, made.cluster, source=source)
        made.nodes.append(node)
        await node.start()
        tls = ReloadingContext(made.authority.publisher("p"))
        pull = await RangePull.open(node.address, tls, identity=None, cluster=CLUSTER)
        try:
            await script(pull, source.merged[0])
        finally:
            pull.connection.close()
            await pull.connection.wait_ended()
            await made.stop()

    in_loop(main)


def send(stream: FakeMerged, producer: int) -> None:
    stream.append(bytes(transactional(producer, b"v")))


def end(stream: FakeMerged, producer: int, *, is_commit: bool) -> None:
    commits = {"coordinator_epoch": 1, "at_ms": 1}
    stream.append(bytes(marker_batch(producer, 0, is_commit=is_commit, **commits)))


def test_what_was_aborted_is_told_once_all_is_decided(tmp_path: Path) -> None:
    async def script(pull: RangePull, stream: FakeMerged) -> None:
        send(stream, 1)
        end(stream, 1, is_commit=False)
        send(stream, 2)
        asked = asyncio.ensure_future(pull.aborted(END, 0, 3))
        for _ in range(3):  # it is asked again and again
            await pull.locate(END)
        assert not asked.done()
        end(stream, 2, is_commit=False)
        assert await asked == [Aborted(1, 0, 1, 0), Aborted(2, 2, 3, 0)]
        assert await pull.aborted(END, 2, 3) == [Aborted(2, 2, 3, 0)]

    ask(tmp_path, script)


def test_many_are_told_piece_by_piece(tmp_path: Path, monkeypatch: Any) -> None:
    for module in (range_pull, streams):
        monkeypatch.setattr(module, "ABORTED_TOLD", 2)

    async def script(pull: RangePull, stream: FakeMerged) -> None:
        for producer in range(5):
            send(stream, producer)
        for producer in reversed(range(5)):
            end(stream, producer, is_commit=False)
        found = await pull.aborted(END, 0, 5)
        assert [each.producer_id for each in found] == [4, 3, 2, 1, 0]

    ask(tmp_path, script)


def test_the_end_of_what_is_committed_is_that_of_the_cluster(tmp_path: Path) -> None:
    async def script(pull: RangePull, stream: FakeMerged) -> None:
        stream.append(batch(b"a", b"b"))
        send(stream, 1)
        assert (await pull.stable(END)).end_offset == 2
        stream.committed = 4
        asked = asyncio.ensure_future(pull.stable(END, confirmed=True))
        await pull.locate(END)
        assert not asked.done()
        end(stream, 1, is_commit=True)
        await until(asked.done)
        assert asked.result().end_offset == 4

    ask(tmp_path, script)

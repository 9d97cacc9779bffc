"""The node's end of a push: who may do what, what is answered, and how little is said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from samelog.config.tables.node import Grant
from samelog.replicator.interfaces import RequestRefused
from samelog.runtime.errors import PeerFault
from samelog.wire.bounds import Ack, RunEnd
from samelog.wire.errors import FaultCode
from samelog.wire.messages import (
    AnyMessage,
    CaughtUp,
    Close,
    EndRun,
    OpenInput,
    OpenRun,
    Refused,
    RollSealed,
    RunClosed,
    RunOpened,
    SessionReleased,
    SessionStartsAt,
    TopicGone,
)
from tests.replicator.fake_intake import FakeIntake
from tests.replicator.fake_nodes import EVERYTHING, FakeNode, World, world
from tests.replicator.session_files import FLIGHTS, batch
from tests.replicator.talk import PUSH, Talk, push_talks
from tests.runtime.peers import in_loop, until

Script = Callable[[Talk, FakeNode], Coroutine[Any, Any, None]]

NARROW = Grant(
    identity="samelog://publisher/p",
    publish_sessions=("s",),
    publish_topics=("flights",),
    publish_dedup_ids=("mine",),
)


def with_server(path: Path, script: Script, grant: Grant | None = None) -> None:
    """Run a script against one node."""

    async def main() -> None:
        made = World(path, 0)
        node = FakeNode("n0", made.authority, made.cluster, grants=(grant or EVERYTHING,))
        made.nodes.append(node)
        await node.start()
        try:
            await script((await push_talks(made, node)).open(), node)
        finally:
            await made.stop()
        watchers = node.intake.watchers
        assert (watchers.by_input, watchers.by_session) == ({}, {})

    in_loop(main)


async def fault_of(client: Talk) -> FaultCode:
    """Why the node has ended the connection."""
    await until(lambda: client.closed)
    error = client.error
    assert isinstance(error, PeerFault)
    return error.code


def test_bytes_are_taken_and_acknowledged(tmp_path: Path) -> None:
    async def script(client: Talk, node: FakeNode) -> None:
        position = await client.open_input()
        assert position == SessionStartsAt(0, "topic-1", 4, 0, 0)
        data = batch(b"a")
        client.connection.send_data(0, 0, 0, data)
        client.connection.send(RollSealed(0, 0, len(data)))
        await until(lambda: client.all(Ack) and client.all(Ack)[-1].durable_roll == 1)
        assert client.all(Ack)[-1] == Ack(1, 0, 1, 0, 1, 0, 1, 0)
        assert node.intake.run("s", FLIGHTS).sealed == {0: len(data)}

    with_server(tmp_path, script)


def test_files_are_sealed_one_in_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session of thousands of partitions that ends never holds the loop."""
    turns, sealed = [0], []
    original = FakeIntake.seal

    def seal(intake: FakeIntake, *arguments: int) -> None:
        sealed.append(turns[0])
        original(intake, *arguments)

    async def count_turns() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    async def script(client: Talk, node: FakeNode) -> None:
        await client.open_input()
        counting = asyncio.ensure_future(count_turns())
        data = batch(b"a")
        for roll in range(20):
            client.connection.send_data(0, roll, 0, data)
            client.connection.send(RollSealed(0, roll, len(data)))
        await until(lambda: len(sealed) == 20)
        counting.cancel()
        assert len(set(sealed)) == 20
        assert node.intake.run("s", FLIGHTS).sealed == dict.fromkeys(range(20), len(data))

    monkeypatch.setattr(FakeIntake, "seal", seal)
    with_server(tmp_path, script)


def test_a_position_tells_the_batch_before_it(tmp_path: Path) -> None:
    async def script(client: Talk, node: FakeNode) -> None:
        await client.open_input()
        data = [batch(b"a"), batch(b"b")]
        client.connection.send_data(0, 0, 0, b"".join(data))
        client.connection.send(OpenInput(1, "flights", 0, "run-0"))
        position = await client.next(SessionStartsAt, 2)
        assert (position.byte, position.last_start) == (len(data[0] + data[1]), len(data[0]))
        assert position.last_crc == int.from_bytes(data[1][17:21], "big")
        client.connection.send(RollSealed(1, 0, len(data[0] + data[1])))
        client.connection.send(OpenInput(2, "flights", 0, "run-0"))
        assert await client.next(SessionStartsAt, 3) == SessionStartsAt(2, "topic-1", 4, 1, 0)

    with_server(tmp_path, script)


def test_many_moves_in_one_turn_make_one_acknowledgement(tmp_path: Path) -> None:
    async def script(client: Talk, node: FakeNode) -> None:
        await client.open_input()
        [listener] = node.intake.watchers.of_session("s")
        for byte in range(100, 200):
            listener.on_progress(0, 0, ((0, byte), (0, byte - 50), (0, byte - 100)), None)
        listener.on_progress(0, 0, ((0, 7), (0, 7), (0, 7)), None)
        listener.on_progress(5, 0, ((9, 9), (9, 9), (9, 9)), None)
        await until(lambda: client.all(Ack) and client.all(Ack)[-1].durable_byte == 199)
        assert client.all(Ack)[-1] == Ack(1, 0, 0, 199, 0, 149, 0, 99)
        assert len(client.all(Ack)) <= 2

    with_server(tmp_path, script)


def test_progress_of_a_newer_run_completes_an_older_one(tmp_path: Path) -> None:
    async def script(client: Talk, node: FakeNode) -> None:
        cluster = node.intake.cluster
        cluster.releases = False
        await client.open_input()
        data = batch(b"a")
        client.connection.send_data(0, 0, 0, data)
        client.connection.send(EndRun("run-0", (RunEnd("flights", 0, 0, len(data)),)))
        closed = await client.next(RunClosed)
        assert closed == RunClosed("run-0", (RunEnd("flights", 0, 0, len(data)),))
        assert cluster.runs["s"]["run-0"].asked_ends == {FLIGHTS: (0, len(data))}
        [listener] = node.intake.watchers.of_session("s")
        listener.on_progress(0, 1, ((0, 0), (0, 0), (0, 0)), None)
        client.connection.send_data(0, 0, len(data), batch(b"too late"))
        cluster.released[0, 0] = (0, len(data))
        listener.on_progress(0, 1, ((0, 0), (0, 0), (0, 0)), None)
        await until(lambda: client.all(Ack)[-1].merged_byte)
        assert client.all(Ack)[-1] == Ack(1, 0, 0, len(data), 0, len(data), 0, len(data))
        assert len(node.intake.run("s", FLIGHTS).files[0]) == len(data)

    with_server(tmp_path, script)


def test_a_closed_run_tells_its_ends_and_lets_its_progress_be_watched(tmp_path: Path) -> None:
    async def script(client: Talk, node: FakeNode) -> None:
        await client.open_input()
        data = batch(b"a")
        client.connection.send_data(0, 0, 0, data)
        client.connection.send(EndRun("run-0"))
        await client.next(RunClosed)
        client.connection.send(OpenRun(0, "run-0"))
        opened = await client.next(RunOpened, 2)
        assert opened == RunOpened("run-0", 0, True, (RunEnd("flights", 0, 0, len(data)),))
        client.connection.send(OpenInput(7, "flights", 0, "run-0"))
        client.connection.send(OpenInput(8, "flights", 1, "run-0"))
        assert await client.next(SessionStartsAt, 2) == SessionStartsAt(
            7, "topic-1", 4, 0, len(data)
        )
        refused = await client.next(Refused)
        assert (refused.handle, refused.code) == (8, FaultCode.OUT_OF_RANGE)
        await until(lambda: client.all(Ack)[-1].handle == 7)
        assert client.all(Ack)[-1].merged_byte == len(data)
        assert len(node.intake.cluster.inputs) == 1

    with_server(tmp_path, script)


def test_a_deleted_topic_ends_its_handles_only(tmp_path: Path) -> None:
    async def script(client: Talk, node: FakeNode) -> None:
        await client.open_input()
        client.connection.send(OpenInput(1, "weather", 0, "run-0"))
        await client.next(SessionStartsAt, 2)
        node.intake.cluster.delete_topic("flights")
        assert await client.next(TopicGone) == TopicGone(0)
        client.connection.send_data(0, 0, 0, batch(b"under way"))
        client.connection.send(Close(0))
        client.connection.send_data(1, 0, 0, batch(b"b"))
        await until(lambda: client.all(Ack) and client.all(Ack)[-1].handle == 1)

    with_server(tmp_path, script)


def test_an_input_is_watched_while_a_handle_stands_for_it(tmp_path: Path) -> None:
    async def script(client: Talk, node: FakeNode) -> None:
        await client.open_input()
        client.connection.send(OpenInput(1, "flights", 0, "run-0"))
        await client.next(SessionStartsAt, 2)
        client.connection.send(Close(0))
        client.connection.send(OpenInput(2, "weather", 0, "run-0"))
        await client.next(SessionStartsAt, 3)
        assert node.intake.watchers.by_input.keys() == {0, 1}
        client.connection.send(Close(1))
        await until(lambda: node.intake.watchers.by_input.keys() == {1})

    with_server(tmp_path, script)


def test_what_was_released_is_skipped_only_if_it_is_merged(tmp_path: Path) -> None:
    async def script(client: Talk, node: FakeNode) -> None:
        await client.open_input()
        client.connection.send(SessionReleased(0, 3, 0))
        refused = await client.next(Refused)
        assert (refused.handle, refused.code) == (0, FaultCode.OUT_OF_RANGE)
        client.connection.send_data(0, 3, 0, batch(b"under way"))
        node.intake.cluster.merged[0, 0] = (3, 50)
        client.connection.send(OpenInput(1, "flights", 0, "run-0"))
        await client.next(SessionStartsAt, 2)
        client.connection.send(SessionReleased(1, 3, 0))
        await until(lambda: node.intake.run("s", FLIGHTS).end == (3, 50))

    with_server(tmp_path, script)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (OpenInput(0, "flights", 0, "unknown-run"), FaultCode.PROTOCOL),
        (EndRun("unknown-run"), FaultCode.PROTOCOL),
        (RollSealed(9, 0, 0), FaultCode.PROTOCOL),
        (SessionReleased(9, 0, 0), FaultCode.PROTOCOL),
        (CaughtUp(0, 0), FaultCode.PROTOCOL),
        (PUSH, FaultCode.PROTOCOL),
        (OpenRun(0, "run-1", "not-mine", 0), FaultCode.NOT_AUTHORISED),
    ],
)
def test_what_has_no_place_ends_the_session(
    tmp_path: Path, message: AnyMessage, code: FaultCode
) -> None:
    async def script(client: Talk, node: FakeNode) -> None:
        client.connection.send(message)
        assert await fault_of(client) is code

    with_server(tmp_path, script, NARROW)


def test_bytes_at_a_wrong_place_end_the_session(tmp_path: Path) -> None:
    async def script(client: Talk, node: FakeNode) -> None:
        await client.open_input()
        client.connection.send_data(0, 0, 1, batch(b"a"))
        assert await fault_of(client) is FaultCode.GAP
        assert node.intake.run("s", FLIGHTS).end == (0, 0)

    with_server(tmp_path, script)


def test_a_bad_batch_ends_its_handle_only(tmp_path: Path) -> None:
    async def script(client: Talk, node: FakeNode) -> None:
        await client.open_input()
        data = bytearray(batch(b"a"))
        data[-1] ^= 1
        client.connection.send_data(0, 0, 0, bytes(data))
        refused = await client.next(Refused)
        assert (refused.handle, refused.code) == (0, FaultCode.INVALID_BATCH)
        assert node.intake.run("s", FLIGHTS).end == (0, 0)
        await client.open_input(handle=1)

    with_server(tmp_path, script)


def test_a_roll_cannot_be_left_out(tmp_path: Path) -> None:
    async def script(client: Talk, node: FakeNode) -> None:
        await client.open_input()
        client.connection.send(RollSealed(0, 1, 0))
        assert await fault_of(client) is FaultCode.GAP

    with_server(tmp_path, script)


def test_rights_are_asked_for_session_topic_and_dedup_id(tmp_path: Path) -> None:
    async def main() -> None:
        made = World(tmp_path, 0)
        node = FakeNode("n0", made.authority, made.cluster, grants=(NARROW,))
        made.nodes.append(node)
        await node.start()
        stranger, talks = await push_talks(made, node, "q"), await push_talks(made, node)
        assert await fault_of(stranger.open()) is FaultCode.NOT_AUTHORISED
        assert await fault_of(talks.open(1, "t", "id-2")) is FaultCode.NOT_AUTHORISED
        client = talks.open(2)
        client.connection.send(OpenRun(0, "run-0", "mine", 0))
        client.connection.send(OpenInput(0, "weather", 0, "run-0"))
        client.connection.send(OpenInput(1, "flights", 0, "run-0"))
        refused = await client.next(Refused)
        assert (refused.handle, refused.code) == (0, FaultCode.NOT_AUTHORISED)
        await client.next(SessionStartsAt)
        assert list(made.cluster.topics) == ["flights"]
        await made.stop()

    in_loop(main)


def test_requests_wait_in_order_and_are_dropped_with_the_session(tmp_path: Path) -> None:
    async def script(client: Talk, node: FakeNode) -> None:
        gate = asyncio.Event()
        opened: list[str] = []
        open_run = node.intake.open_run

        async def slow(**asked: Any) -> Any:
            opened.append(asked["run_id"])
            await gate.wait()
            return await open_run(**asked)

        node.intake.open_run = slow  # type: ignore[method-assign]
        client.connection.send(OpenRun(0, "run-0"))
        client.connection.send(OpenInput(0, "flights", 0, "run-0"))
        client.connection.send(EndRun("run-0"))
        client.connection.send(OpenRun(1, "run-1"))
        await until(lambda: opened)
        gate.set()
        await client.next(RunOpened, 2)
        kinds = [type(message) for message in client.messages if not isinstance(message, Ack)]
        assert kinds[:3] == [RunOpened, SessionStartsAt, RunClosed]
        gate.clear()
        client.connection.send(OpenRun(2, "run-2"))
        await until(lambda: len(opened) == 3)
        client.connection.close()
        await until(lambda: not node.intake.watchers.by_session)

    with_server(tmp_path, script)


def test_a_cluster_that_does_not_open_a_run_is_told(tmp_path: Path) -> None:
    async def script(client: Talk, node: FakeNode) -> None:
        async def refuse(**asked: Any) -> Any:
            raise RequestRefused(FaultCode.NOT_READY, "an older run is not closed", "retry")

        node.intake.open_run = refuse  # type: ignore[method-assign]
        client.connection.send(OpenRun(0, "run-0"))
        assert await fault_of(client) is FaultCode.NOT_READY

    with_server(tmp_path, script)


def test_a_defect_of_the_node_ends_that_session_with_internal(tmp_path: Path) -> None:
    async def main() -> None:
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, found: failures.append(found))
        async with world(tmp_path) as made:
            client = (await push_talks(made, made.nodes[0])).open()

            async def fail(**asked: Any) -> Any:
                raise RuntimeError("a secret")

            made.nodes[0].intake.open_run = fail  # type: ignore[method-assign]
            client.connection.send(OpenRun(0, "run-0"))
            assert await fault_of(client) is FaultCode.INTERNAL
            assert "secret" not in str(client.error)
            assert len(failures) == 1

    in_loop(main)

"""The node's end of a pull: where it starts, what is refused, watermarks and the window."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from samelog.config.tables.node import Grant
from samelog.format.errors import CorruptLog
from samelog.replicator.interfaces import RequestRefused
from samelog.replicator.pull.server import PullServer
from samelog.wire.errors import FaultCode
from samelog.wire.messages import (
    NO_BATCH,
    AnyMessage,
    CaughtUp,
    Close,
    ConfirmEnd,
    EndConfirmed,
    EndRun,
    MergedStartsAt,
    OpenMerged,
    OpenSessionLog,
    Received,
    Refused,
    SegmentSealed,
    Start,
    TopicGone,
    Welcome,
)
from samelog.wire.pull.sender import PullSender
from tests.replicator.fake_nodes import EVERYTHING, FakeNode, World
from tests.replicator.fake_source import FakeMerged, FakeSource
from tests.replicator.session_files import batch, random_batches
from tests.replicator.talk import PULL, Talk, talk
from tests.runtime.peers import in_loop, until

LOOKS = 4
Script = Callable[[Talk, FakeNode, FakeSource], Coroutine[Any, Any, None]]


def with_server(path: Path, script: Script, *grants: Grant, window_bytes: int = 1 << 24) -> None:
    """Run a script against one node."""

    async def main() -> None:
        made = World(path, 0)
        source = FakeSource(path / "node")
        given = grants or (EVERYTHING,)
        node = FakeNode("n0", made.authority, made.cluster, source=source, grants=given)
        node.window_bytes = window_bytes
        made.nodes.append(node)
        await node.start()
        try:
            await script(await talk(made, node, PULL), node, source)
        finally:
            await made.stop()
        assert all(not stream.listeners for stream in source.merged)
        assert source.session.listeners == []

    in_loop(main)


def open_at(
    start: Start, value: int = 0, *, handle: int = 0, topic_id: str | None = None
) -> OpenMerged:
    """Subscribe to the first partition."""
    return OpenMerged(handle, "flights", topic_id, 0, start, value)


def open_behind(stream: FakeMerged, **changes: Any) -> OpenMerged:
    """Go on behind all of a stream."""
    last = stream.log.last_batch() or (0, NO_BATCH, 0)
    file, byte = stream.log.end()
    known = {"base_offset": file, "byte": byte, "last_start": last[1], "last_crc": last[2]}
    return OpenMerged(0, "flights", "topic-1", 0, Start.POSITION, **{**known, **changes})


def three_segments(stream: FakeMerged) -> None:
    """Offsets 0 to 7, in segments at 0, 2 and 5."""
    for values in ((b"a", b"b"), (b"c",), (b"d", b"e"), (b"f", b"g", b"h")):
        stream.append(batch(*values))
        if values != (b"c",):
            stream.roll()


@pytest.mark.parametrize(
    ("start", "value", "offset", "place"),
    [
        (Start.EARLIEST, 0, 0, (0, 0)),
        (Start.LATEST, 0, 8, (8, 0)),
        (Start.OFFSET, 4, 4, (2, len(batch(b"c")))),
        (Start.OFFSET, 8, 8, (8, 0)),
        (Start.TIMESTAMP, 1, 0, (0, 0)),
        (Start.TIMESTAMP, 2, 8, (8, 0)),
    ],
)
def test_a_subscription_starts_where_it_is_wanted(
    tmp_path: Path, start: Start, value: int, offset: int, place: tuple[int, int]
) -> None:
    async def script(client: Talk, node: FakeNode, source: FakeSource) -> None:
        stream = source.merged[0]
        three_segments(stream)
        client.connection.send(open_at(start, value))
        position = await client.next(MergedStartsAt)
        assert position == MergedStartsAt(0, "topic-1", 2, *place, offset, 0, 8)
        watermark = await client.next(CaughtUp)
        assert watermark == CaughtUp(0, 8)
        sent = {(file, byte): data for _, file, byte, data in client.data}
        expected = stream.files()[f"{place[0]:020}.log"][place[1] :]
        assert sent.get(place, b"") == expected
        stream.append(batch(b"new"))
        await until(lambda: client.data and client.data[-1][1:3] == (8, 0))

    with_server(tmp_path, script)


def test_a_reader_may_be_due_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handle of uvloop for what is due within half a millisecond has no `when`."""
    looks = list[float]()

    def rest(self: PullSender, now: float) -> float | None:
        looks.append(now)
        return now if len(looks) < LOOKS else None

    async def script(client: Talk, node: FakeNode, source: FakeSource) -> None:
        await client.next(Welcome)
        connection: Any = node.connections[0]
        server = PullServer(connection, source, node.rights)
        for _ in range(2):  # the second one compares with the timer of the first one
            server._rest()
        await until(lambda: len(looks) == LOOKS)

    monkeypatch.setattr(PullSender, "rest", rest)
    with_server(tmp_path, script)


def test_a_log_is_sent_segment_after_segment(tmp_path: Path) -> None:
    async def script(client: Talk, node: FakeNode, source: FakeSource) -> None:
        three_segments(source.merged[0])
        client.connection.send(open_at(Start.EARLIEST))
        await client.next(CaughtUp)
        sealed = [
            (message.base_offset, message.next_offset) for message in client.all(SegmentSealed)
        ]
        assert sealed == [(0, 2), (2, 5), (5, 8)]
        data = b"".join(data for *_, data in client.data)
        assert data == b"".join(source.merged[0].files().values())

    with_server(tmp_path, script)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, None),
        ({"last_crc": 1}, FaultCode.FORK),
        ({"last_start": 0}, FaultCode.FORK),
        ({"last_start": 3}, FaultCode.FORK),
        ({"byte": 4000}, FaultCode.NOT_READY),
        ({"base_offset": 5}, FaultCode.NOT_READY),
        ({"base_offset": 0, "byte": 4000}, FaultCode.FORK),
        ({"base_offset": 1}, FaultCode.FORK),
        ({"base_offset": 0, "byte": 0, "last_start": NO_BATCH}, None),
    ],
)
def test_a_copy_goes_on_only_where_both_have_the_same(
    tmp_path: Path, changes: dict[str, int], code: FaultCode | None
) -> None:
    async def script(client: Talk, node: FakeNode, source: FakeSource) -> None:
        stream = source.merged[0]
        stream.append(batch(b"a", b"b"))
        stream.roll()
        stream.append(batch(b"c"))
        stream.append(batch(b"d"))
        client.connection.send(open_behind(stream, **changes))
        if code is None:
            position = await client.next(MergedStartsAt)
            assert position.byte == changes.get("byte", stream.log.end()[1])
        else:
            assert (await client.next(Refused)).code is code

    with_server(tmp_path, script)


def test_offsets_that_are_not_there_are_refused(tmp_path: Path) -> None:
    async def script(client: Talk, node: FakeNode, source: FakeSource) -> None:
        client.connection.send(open_at(Start.OFFSET, 1))
        client.connection.send(open_at(Start.OFFSET, -1))
        for count in (1, 2):
            assert (await client.next(Refused, count)).code is FaultCode.OUT_OF_RANGE
        client.connection.send(open_at(Start.EARLIEST, topic_id="older"))
        await client.next(TopicGone)
        client.connection.send(OpenMerged(3, "flights", None, 9, Start.EARLIEST))
        assert (await client.next(Refused, 3)).code is FaultCode.UNKNOWN_TOPIC
        client.connection.send(open_at(Start.EARLIEST))  # the handle is free
        await client.next(MergedStartsAt)

    with_server(tmp_path, script)


def test_session_logs_are_for_peers_only_and_topics_for_whom_they_are_granted(
    tmp_path: Path,
) -> None:
    grant = Grant(identity="samelog://publisher/p", subscribe_topics=("public",))

    async def script(client: Talk, node: FakeNode, source: FakeSource) -> None:
        client.connection.send(open_at(Start.EARLIEST))
        client.connection.send(OpenSessionLog(1, "s", "flights", "topic-1", 0, 0, 0, 0))
        codes = [(await client.next(Refused, count)).code for count in (1, 2)]
        assert codes == [FaultCode.NOT_AUTHORISED] * 2

    with_server(tmp_path, script, grant)


def test_the_window_bounds_what_is_under_way(tmp_path: Path) -> None:
    async def script(client: Talk, node: FakeNode, source: FakeSource) -> None:
        stream = source.merged[0]
        for _ in range(20):
            stream.append(random_batches(random.Random(1), 200, size=3000))
        size = stream.log.end()[1]
        client.connection.send(open_at(Start.EARLIEST))
        client.connection.send(OpenMerged(1, "flights", None, 1, Start.EARLIEST))
        await client.next(CaughtUp)  # of the empty partition
        taken = 0
        while taken < size:
            before = taken
            await until(lambda: received(client) > before)  # noqa: B023
            taken = received(client)
            assert taken - before <= (2 << 20)
            client.connection.send(Received(0, taken - before))
        assert b"".join(data for *_, data in client.data) == next(iter(stream.files().values()))

    def received(client: Talk) -> int:
        return sum(len(data) for *_, data in client.data)

    with_server(tmp_path, script, window_bytes=1 << 20)


def test_taking_what_was_never_sent_ends_the_connection(tmp_path: Path) -> None:
    async def script(client: Talk, node: FakeNode, source: FakeSource) -> None:
        source.merged[0].append(batch(b"a"))
        client.connection.send(open_at(Start.EARLIEST))
        await client.next(CaughtUp)
        client.connection.send(Received(0, 4000))
        await until(lambda: client.closed)
        assert "OUT_OF_RANGE" in str(client.error)

    with_server(tmp_path, script)


@pytest.mark.parametrize("message", [EndRun("x"), open_at(Start.EARLIEST)])
def test_what_has_no_place_ends_the_connection(tmp_path: Path, message: AnyMessage) -> None:
    async def script(client: Talk, node: FakeNode, source: FakeSource) -> None:
        client.connection.send(open_at(Start.EARLIEST))
        client.connection.send(message)
        await until(lambda: client.closed)
        assert "PROTOCOL" in str(client.error)

    with_server(tmp_path, script)


def test_bytes_and_raft_have_no_place_here(tmp_path: Path) -> None:
    async def main() -> None:
        made = World(tmp_path, 0)
        node = FakeNode("n0", made.authority, made.cluster, source=FakeSource(tmp_path / "node"))
        made.nodes.append(node)
        await node.start()
        for send in ("send_data", "send_raft"):
            client = await talk(made, node, PULL)
            arguments = (0, 0, 0, b"x") if send == "send_data" else (b"x",)
            getattr(client.connection, send)(*arguments)
            await until(lambda: client.closed)  # noqa: B023
            assert "PROTOCOL" in str(client.error)
        await made.stop()

    in_loop(main)


def test_a_closed_handle_gets_nothing_more(tmp_path: Path) -> None:
    async def script(client: Talk, node: FakeNode, source: FakeSource) -> None:
        stream = source.merged[0]
        client.connection.send(open_at(Start.EARLIEST))
        await client.next(CaughtUp)
        client.connection.send(Close(0))
        client.connection.send(Received(0, 0))
        await until(lambda: not stream.listeners)
        stream.append(batch(b"a"))
        client.connection.send(open_at(Start.LATEST, handle=1))
        await client.next(CaughtUp, 2)
        assert client.data == []

    with_server(tmp_path, script)


def test_a_topic_that_goes_and_a_partition_that_halts_end_their_handles(tmp_path: Path) -> None:
    async def script(client: Talk, node: FakeNode, source: FakeSource) -> None:
        client.connection.send(open_at(Start.EARLIEST))
        client.connection.send(OpenMerged(1, "flights", None, 1, Start.EARLIEST))
        await client.next(CaughtUp, 2)
        source.merged[0].fault = RequestRefused(FaultCode.NOT_READY, "halted", "see the node's log")
        source.merged[0].changed()
        refused = await client.next(Refused)
        assert refused == Refused(0, FaultCode.NOT_READY, "halted", "see the node's log")
        source.delete()
        assert await client.next(TopicGone) == TopicGone(1)

    with_server(tmp_path, script)


def test_a_log_that_was_cut_is_not_sent_on(tmp_path: Path) -> None:
    async def script(client: Talk, node: FakeNode, source: FakeSource) -> None:
        stream = source.merged[0]
        stream.append(batch(b"a"))
        stream.append(batch(b"b"))
        client.connection.send(open_at(Start.EARLIEST))
        await client.next(CaughtUp)
        stream.lose_everything()
        stream.changed()
        assert "was cut" in (await client.next(Refused)).message

    with_server(tmp_path, script)


def test_what_cannot_be_read_is_refused_not_skipped(tmp_path: Path) -> None:
    async def script(client: Talk, node: FakeNode, source: FakeSource) -> None:
        stream = source.merged[0]
        stream.append(batch(b"a"))

        def fail(base: int, byte: int, limit_bytes: int) -> bytes:
            raise CorruptLog("log", 7, "is rotten")

        stream.log.read = fail  # type: ignore[method-assign]
        client.connection.send(open_at(Start.EARLIEST))
        refused = await client.next(Refused)
        assert refused.code is FaultCode.NOT_READY
        assert "is rotten" in refused.message

    with_server(tmp_path, script)


def test_a_confirmed_end_is_followed_by_a_watermark_when_all_of_it_is_sent(tmp_path: Path) -> None:
    async def script(client: Talk, node: FakeNode, source: FakeSource) -> None:
        stream = source.merged[0]
        stream.append(batch(b"a"))
        stream.committed = 3
        client.connection.send(open_at(Start.EARLIEST))
        await client.next(CaughtUp)
        client.connection.send(ConfirmEnd(0))
        assert await client.next(EndConfirmed) == EndConfirmed(0, 3)
        stream.append(batch(b"b", b"c"))
        await until(lambda: client.all(CaughtUp)[-1] == CaughtUp(0, 3))

    with_server(tmp_path, script)


def test_growth_is_sent_within_the_call_that_tells_of_it(tmp_path: Path) -> None:
    async def script(client: Talk, node: FakeNode, source: FakeSource) -> None:
        stream = source.merged[0]
        client.connection.send(open_at(Start.EARLIEST))
        await client.next(CaughtUp)
        [connection] = node.connections
        sent: list[bytes] = []
        send_data = connection.send_data

        def spy(
            handle: int, file: int, byte: int, data: bytes | memoryview, channel: int = 0
        ) -> None:
            sent.append(bytes(data))
            send_data(handle, file, byte, data, channel)

        connection.send_data = spy  # type: ignore[method-assign]
        stream.append(batch(b"now"))
        assert len(sent) == 1
        stream.append(batch(b"together"))
        stream.append(batch(b"later"))
        assert len(sent) == 1, "the rest of the turn is sent at its end"
        await until(lambda: len(sent) == 2)

    with_server(tmp_path, script)


def test_a_defect_in_a_log_ends_the_connection_not_the_node(tmp_path: Path) -> None:
    async def script(client: Talk, node: FakeNode, source: FakeSource) -> None:
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, found: failures.append(found))
        stream = source.merged[0]
        client.connection.send(open_at(Start.EARLIEST))
        await client.next(CaughtUp)

        def fail() -> tuple[int, int]:
            raise RuntimeError("a defect")

        end = stream.log.end
        stream.log.end = fail  # type: ignore[method-assign]
        stream.changed()  # must not raise into the node
        stream.log.end = end  # type: ignore[method-assign]
        await until(lambda: client.closed)
        assert len(failures) == 1

    with_server(tmp_path, script)

"""A connection to a node on behalf of a client: answers in order, and what breaks it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from samelog.config.values import Address
from samelog.kafka.apis import group_members
from samelog.kafka.codec.errors import Unanswerable
from samelog.kafka.sidecar.groups import ForwardedResponse, Upstream
from tests.patience import PATIENCE_S

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]
VERSION = 4


def run(serve: Serve, body: Callable[[Upstream], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        is_over = asyncio.Event()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await serve(reader, writer)
            await reader.read()
            writer.close()
            await writer.wait_closed()
            is_over.set()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        where = Address("127.0.0.1", port)
        async with server, asyncio.timeout(PATIENCE_S):
            _, upstream = await loop.create_connection(lambda: Upstream(where), *where)
            await body(upstream)
            upstream.close()
            await is_over.wait()

    asyncio.run(whole())


async def request(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


def frame(body: bytes) -> bytes:
    """An answer with the header of a flexible version."""
    return (5 + len(body)).to_bytes(4, "big") + bytes(5) + body


def ask(upstream: Upstream, body: bytes) -> asyncio.Future[ForwardedResponse]:
    return upstream.ask(group_members.heartbeat, VERSION, "client", body)


def test_answers_come_in_order_without_their_headers() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = [await request(reader) for _ in range(2)]
        for whole in asked:
            assert whole[:4] == bytes((0, group_members.heartbeat.key, 0, VERSION))
            writer.write(frame(whole[-1:] * 3))

    async def body(upstream: Upstream) -> None:
        first, second = ask(upstream, b"1"), ask(upstream, b"2")
        assert [(await each).body for each in (first, second)] == [b"111", b"222"]

    run(serve, body)


def test_who_waits_is_told_when_the_connection_is_lost() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.close()

    async def body(upstream: Upstream) -> None:
        with pytest.raises(Unanswerable):
            await ask(upstream, b"1")
        with pytest.raises(Unanswerable):
            await ask(upstream, b"2")

    run(serve, body)


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", frame(b"1") + frame(b"nobody asked")])
def test_what_is_no_answer_ends_the_connection(data: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(data)

    async def body(upstream: Upstream) -> None:
        await asyncio.gather(ask(upstream, b"1"), return_exceptions=True)
        assert upstream.is_over

    run(serve, body)


def test_a_retired_connection_answers_what_was_asked() -> None:
    may_answer = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        await may_answer.wait()
        writer.write(frame(b"late"))

    async def body(upstream: Upstream) -> None:
        answer = ask(upstream, b"1")
        upstream.retire()
        may_answer.set()
        assert (await answer).body == b"late"
        assert upstream.is_over

    run(serve, body)

"""Peers that are slow, silent or in the way, over real connections with shortened deadlines."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from pathlib import Path

import pytest

from samelog.runtime.errors import ConnectFault, ConnectProblem, DeadlinePassed
from samelog.runtime.network.connection import STALL_S
from samelog.runtime.network.transport import Deadlines
from samelog.wire.errors import FaultCode
from samelog.wire.frames import FrameType, encode_data_header, encode_header
from samelog.wire.messages import Fault, Hello, Ping, decode_message, encode_message
from tests.patience import PATIENCE_S
from tests.runtime.peers import (
    HELLO,
    QUICK,
    RawPeer,
    in_loop,
    open_raw,
    raw_peer,
    serving,
    until,
)
from tests.wire.frame_decoder import FrameDecoder


def last_fault(messages: list[object]) -> Fault:
    assert isinstance(messages[-1], Fault)
    return messages[-1]


async def said_until_closed(peer: RawPeer) -> list[object]:
    return [message for message in await peer.messages() if not isinstance(message, Ping)]


def test_no_handshake(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, deadlines=QUICK) as service:
            reader, writer = await open_raw(service.address, None)
            async with asyncio.timeout(PATIENCE_S):
                assert await reader.read() == b""
            writer.transport.abort()
            assert service.accepted == []

    in_loop(main)


def test_a_handshake_trickled_byte_by_byte(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, deadlines=QUICK) as service:
            reader, writer = await open_raw(service.address, None)
            answer = asyncio.create_task(reader.read())
            writer.write(b"\x16\x03\x01\x02\x00")
            while not answer.done():
                writer.write(b"\x01")
                await asyncio.sleep(0.02)
            writer.transport.abort()
            assert service.accepted == []

    in_loop(main)


def test_no_first_frame(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, deadlines=QUICK) as service, raw_peer(service) as peer:
            fault = last_fault(await said_until_closed(peer))
            assert (fault.code, fault.message) == (FaultCode.TIMEOUT, "no first frame in time")
            assert isinstance(service.accepted[0].error, DeadlinePassed)

    in_loop(main)


def test_a_ping_is_not_a_first_frame(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, deadlines=QUICK) as service, raw_peer(service) as peer:
            answer = asyncio.create_task(said_until_closed(peer))
            while not answer.done():
                peer.writer.write(encode_message(Ping()))
                await asyncio.sleep(0.02)
            assert last_fault(answer.result()).message == "no first frame in time"

    in_loop(main)


def test_a_silent_peer(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, deadlines=QUICK) as service, raw_peer(service) as peer:
            peer.writer.write(encode_message(HELLO))
            fault = last_fault(await said_until_closed(peer))
            assert (fault.code, fault.message) == (FaultCode.TIMEOUT, "silent for too long")

    in_loop(main)


def test_a_side_that_stood_still_reads_before_it_calls_the_peer_silent(tmp_path: Path) -> None:
    """Timers run first when a process that got no time comes to itself."""

    async def main() -> None:
        async with serving(tmp_path, deadlines=QUICK) as service, raw_peer(service) as peer:
            peer.writer.write(encode_message(HELLO))
            await until(lambda: service.accepted and service.accepted[0].messages)
            peer.writer.write(encode_data_header(1, 0, 0, 1) + b"x")
            threading.Event().wait(QUICK.idle_s + 2 * STALL_S)  # nobody runs
            await until(lambda: service.accepted[0].data or service.accepted[0].closed)
            assert service.accepted[0].data

    in_loop(main)


def test_a_frame_trickled_byte_by_byte(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, deadlines=QUICK) as service, raw_peer(service) as peer:
            peer.writer.write(encode_message(HELLO) + encode_data_header(1, 0, 0, 1 << 20))
            answer = asyncio.create_task(said_until_closed(peer))
            while not answer.done():
                peer.writer.write(b"x")
                await asyncio.sleep(0.02)
            assert last_fault(answer.result()).message == "no whole frame in time"
            assert service.accepted[0].data == []

    in_loop(main)


def test_a_slow_frame_that_is_whole_in_time(tmp_path: Path) -> None:
    deadlines = Deadlines(frame_s=2.0, idle_s=2.0)

    async def main() -> None:
        async with serving(tmp_path, deadlines=deadlines) as service, raw_peer(service) as peer:
            peer.writer.write(encode_message(HELLO) + encode_data_header(1, 0, 0, 20))
            for _ in range(20):
                peer.writer.write(b"x")
                await asyncio.sleep(0.02)
            await until(lambda: service.accepted[0].data)
            assert service.accepted[0].closed == []

    in_loop(main)


def test_two_idle_peers_keep_each_other_alive(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, deadlines=QUICK) as service:
            client = await service.connect(deadlines=QUICK)
            client.connection.send(HELLO)
            await until(lambda: service.accepted)
            service.accepted[0].connection.send(HELLO)
            await asyncio.sleep(3 * QUICK.idle_s)
            assert client.closed == service.accepted[0].closed == []
            assert client.messages == service.accepted[0].messages == [HELLO]

    in_loop(main)


def test_pings_come_only_when_nothing_else_does(tmp_path: Path) -> None:
    async def main() -> None:
        sent = [time.monotonic()]  # nor is anything before the first
        async with serving(tmp_path, deadlines=QUICK) as service, raw_peer(service) as peer:
            peer.writer.write(encode_message(HELLO))
            await until(lambda: service.accepted)
            decoder = FrameDecoder()
            found: list[object] = []
            for _ in range(15):
                sent.append(time.monotonic())
                service.accepted[0].connection.send(HELLO)
                peer.writer.write(encode_message(HELLO))
                await asyncio.sleep(QUICK.ping_s / 5)
            while not any(isinstance(message, Ping) for message in found):
                decoder.feed(await peer.reader.read(1000))
                while (frame := decoder.next()) is not None:
                    found.append(decode_message(frame.payload))
            first_ping = next(n for n, message in enumerate(found) if isinstance(message, Ping))
            assert all(isinstance(message, Hello) for message in found[:first_ping])
            quiet = max(after - before for before, after in itertools.pairwise(sent))
            assert first_ping >= 15 or quiet >= QUICK.ping_s, "a machine that stalls is pinged"

    in_loop(main)


def test_a_peer_is_not_blamed_while_this_side_does_not_read(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, deadlines=QUICK) as service, raw_peer(service) as peer:
            peer.writer.write(encode_message(HELLO))
            await until(lambda: service.accepted and service.accepted[0].messages)
            server = service.accepted[0]
            server.connection.pause_reading()
            await asyncio.sleep(2 * QUICK.idle_s)
            assert server.closed == []
            server.connection.resume_reading()
            await until(lambda: server.closed)
            assert isinstance(server.error, DeadlinePassed)

    in_loop(main)


def test_a_server_that_never_answers_the_handshake(tmp_path: Path) -> None:
    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def main() -> None:
        listener = await asyncio.start_server(never, "127.0.0.1", 0)
        async with serving(tmp_path) as service:
            service.fixed_address = service.address._replace(
                port=listener.sockets[0].getsockname()[1]
            )
            with pytest.raises(ConnectFault) as caught:
                await service.connect(deadlines=QUICK)
            assert caught.value.problem is ConnectProblem.TIMEOUT
            assert caught.value.remedy
        listener.close()

    in_loop(main)


def test_memory_of_a_big_frame_is_given_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, deadlines=QUICK) as service:
            client = await service.connect(deadlines=QUICK)
            client.connection.send(HELLO)
            client.connection.send_data(1, 0, 0, bytes(4 << 20))
            await until(lambda: service.accepted and service.accepted[0].data)
            buffer = service.accepted[0].connection._buffer
            assert buffer.capacity > 4 << 20
            await until(lambda: buffer.capacity <= 16 << 10)
            client.connection.send_data(1, 0, 0, b"x")
            await until(lambda: len(service.accepted[0].data) == 2)

    in_loop(main)


def test_a_header_announced_and_never_filled_is_timed_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, deadlines=QUICK) as service, raw_peer(service) as peer:
            peer.writer.write(encode_message(HELLO) + encode_header(FrameType.RAFT, 100))
            fault = last_fault(await said_until_closed(peer))
            assert fault.message in ("silent for too long", "no whole frame in time")

    in_loop(main)

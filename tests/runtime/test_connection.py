"""Connections over real sockets and real TLS: what is sent arrives, and every end is told."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samelog.format.errors import CorruptBatch, InvalidName, InvariantError
from samelog.runtime.errors import ConnectionLost, PeerFault
from samelog.runtime.network import connection
from samelog.runtime.network.connection import HIGH_WATER_BYTES
from samelog.runtime.network.transport import Deadlines
from samelog.wire.errors import FaultCode, FrameError, ProtocolFault
from samelog.wire.frames import (
    DATA_HEADER_BYTES,
    DATA_LIMIT_BYTES,
    FrameType,
    encode_data_header,
    encode_frame,
    encode_header,
)
from samelog.wire.messages import AnyMessage, CaughtUp, Fault, Received, encode_message
from tests.patience import PATIENCE_S
from tests.runtime.peers import HELLO, Recorder, in_loop, raw_peer, serving, until

pytestmark = pytest.mark.usefixtures("session_kind")


def test_everything_sent_arrives_in_order_both_ways(tmp_path: Path) -> None:
    sizes = [1, 100, 8 << 10, (8 << 10) + 1, 16 << 10, 65_536, 100_000, 1 << 20, 3_000_000]
    payloads = [os.urandom(size) for size in sizes]

    async def main() -> None:
        async with serving(tmp_path) as service:
            client, server = await service.pair()
            for one, other in ((client, server), (server, client)):
                for index, payload in enumerate(payloads):
                    one.connection.send_data(index, 1, 2, payload)
                    one.connection.send(Received(index, 3))
                    one.connection.send_raft(payload[:1000])
                await until(lambda: len(other.raft) == len(sizes))  # noqa: B023 - awaited at once
                assert other.data == [(n, 1, 2, payload) for n, payload in enumerate(payloads)]
                assert other.messages[1:] == [Received(n, 3) for n in range(len(sizes))]
                assert other.raft == [payload[:1000] for payload in payloads]

    in_loop(main)


def test_frames_that_follow_each_other_are_sent_together_at_the_end_of_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "RECENT_S", 1000.0)  # of which no machine is late

    async def main() -> None:
        async with serving(tmp_path) as service:
            client, server = await service.pair()
            sending = client.connection
            sending._watch.last_sent -= 2000.0
            flushed: list[int] = []
            written = sending._transport

            def write(data: bytes) -> None:
                flushed.append(len(data))
                written.write(data)

            sending._transport = SimpleNamespace(  # type: ignore[assignment]
                write=write, is_closing=written.is_closing
            )
            for number in range(20):
                sending.send(Received(number, 3))
            assert len(flushed) == 1, "the first one does not wait"
            await until(lambda: len(server.messages) == 21)
            assert len(flushed) == 2
            sending._transport = written
            assert server.messages[1:] == [Received(number, 3) for number in range(20)]
            sending.send(Received(99, 3))
            sending.close()
            await until(lambda: bool(server.closed))
            assert server.messages[-1] == Received(99, 3), "what waits is sent at the end"

    in_loop(main)


def test_both_sides_know_each_other(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as service:
            client, server = await service.pair()
            assert client.connection.identity == "samelog://node/n1"
            assert client.connection.peername == str(service.address)
            assert server.connection.identity == "samelog://publisher/p"
            assert server.connection.is_open
            assert server.connection.writable
            assert "OPEN samelog://publisher/p" in repr(server.connection)

    in_loop(main)


def test_a_local_close_sends_what_waits_and_tells_both(tmp_path: Path) -> None:
    payload = os.urandom(6_000_000)

    async def main() -> None:
        async with serving(tmp_path) as service:
            client, server = await service.pair()
            client.connection.send_data(1, 0, 0, payload)
            client.connection.close()
            client.connection.close()
            client.connection.send(HELLO)
            client.connection.send_data(1, 0, 0, payload)
            assert not client.connection.is_open
            assert not client.connection.writable
            await client.connection.wait_ended()
            assert client.closed == [None]
            await until(lambda: server.closed)
            assert isinstance(server.error, ConnectionLost)
            assert server.data == [(1, 0, 0, payload)]
            assert server.messages == [HELLO]

    in_loop(main)


def test_a_fault_is_told_to_the_peer(tmp_path: Path) -> None:
    fault = Fault(FaultCode.NOT_READY, "starting", "retry")

    async def main() -> None:
        async with serving(tmp_path) as service:
            client, server = await service.pair()
            server.connection.close(fault)
            await until(lambda: client.closed and server.closed)
            assert isinstance(client.error, PeerFault)
            said = client.error.code, client.error.message, client.error.remedy
            assert said == (FaultCode.NOT_READY, "starting", "retry")
            assert isinstance(server.error, ProtocolFault)
            assert len(client.messages) == 1

    in_loop(main)


def test_a_killed_peer_is_a_lost_connection(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as service:
            async with raw_peer(service) as peer:
                peer.writer.write(encode_message(HELLO))
                await until(lambda: service.accepted and service.accepted[0].messages)
                peer.writer.transport.abort()
            await until(lambda: service.accepted[0].closed)
            assert isinstance(service.accepted[0].error, ConnectionLost)

    in_loop(main)


BAD_FRAMES = {
    "unknown type": bytes.fromhex("00000001 09 01 0000 00000000 00"),
    "too long": bytes.fromhex("ffffffff 02 01 0000 00000000 00"),
    "bad version": bytes.fromhex("00000001 01 02 0000 00000000 00"),
    "no message": encode_frame(FrameType.CONTROL, b"\x93\x63\x00\x00"),
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a position of 64 bits": encode_frame(FrameType.DATA, b"\xff" * 21),
}


@pytest.mark.parametrize("data", BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
def test_a_bad_frame_ends_only_its_own_connection(tmp_path: Path, data: bytes) -> None:
    async def main() -> None:
        async with serving(tmp_path) as service:
            good, _ = await service.pair()
            async with raw_peer(service) as peer:
                peer.writer.write(encode_message(HELLO) + data)
                [fault] = await peer.messages()
                assert isinstance(fault, Fault)
                assert fault.code is FaultCode.PROTOCOL
                assert fault.message
                assert fault.remedy or data == BAD_FRAMES["no message"]
            assert good.connection.is_open

    in_loop(main)


def test_a_name_that_could_be_a_path_is_refused_by_name(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as service, raw_peer(service) as peer:
            bad = b"\x95\x0c\x01\xa9../../etc\x00\xa2ab"
            peer.writer.write(encode_frame(FrameType.CONTROL, bad))
            [fault] = await peer.messages()
            assert isinstance(fault, Fault)
            assert fault.code is FaultCode.INVALID_NAME

    in_loop(main)


def test_a_peer_cut_in_the_middle_of_a_frame_leaves_no_half_frame(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as service:
            async with raw_peer(service) as peer:
                frame = encode_data_header(1, 0, 0, 1000) + bytes(1000)
                peer.writer.write(encode_message(HELLO) + frame + frame[:500])
                await until(lambda: service.accepted and service.accepted[0].data)
                peer.writer.transport.abort()
            await until(lambda: service.accepted[0].closed)
            assert len(service.accepted[0].data) == 1

    in_loop(main)


def test_frames_trickled_byte_by_byte_arrive(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as service, raw_peer(service) as peer:
            stream = encode_message(HELLO) + encode_data_header(1, 2, 3, 5) + b"abcde"
            for index in range(len(stream)):
                peer.writer.write(stream[index : index + 1])
                await asyncio.sleep(0)
            await until(lambda: service.accepted and service.accepted[0].data)
            assert service.accepted[0].messages == [HELLO]
            assert service.accepted[0].data == [(1, 2, 3, b"abcde")]

    in_loop(main)


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32))
def test_any_cutting_gives_the_same_frames(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    source = random.Random(seed)
    payloads = [source.randbytes(source.choice([1, 30, 5000, 70_000])) for _ in range(12)]
    stream = b"".join(encode_data_header(1, 0, n, len(p)) + p for n, p in enumerate(payloads))

    async def main() -> None:
        directory = tmp_path_factory.mktemp("pki")
        async with serving(directory) as service, raw_peer(service) as peer:
            rest = encode_message(HELLO) + stream
            while rest:
                size = source.choice([1, 7, 100, 16_384, 50_000])
                peer.writer.write(rest[:size])
                rest = rest[size:]
                await peer.writer.drain()
                await asyncio.sleep(0)
            await until(lambda: service.accepted and len(service.accepted[0].data) == len(payloads))
            assert [data for *_, data in service.accepted[0].data] == payloads

    in_loop(main)


def test_the_longest_frame_arrives(tmp_path: Path) -> None:
    payload = os.urandom(DATA_LIMIT_BYTES - DATA_HEADER_BYTES)

    async def main() -> None:
        async with serving(tmp_path) as service:
            client, server = await service.pair()
            client.connection.send_data(1, 0, 0, payload)
            await until(lambda: server.data)
            assert server.data[0][3] == payload

    in_loop(main)


FAILURES = {
    "protocol": (ProtocolFault(FaultCode.GAP, "gap", "resume"), FaultCode.GAP),
    "batch": (CorruptBatch(7, "bad CRC"), FaultCode.INVALID_BATCH),
    "name": (InvalidName("bad"), FaultCode.INVALID_NAME),
    "defect": (KeyError("secret"), FaultCode.INTERNAL),
}


@pytest.mark.parametrize(("error", "code"), FAILURES.values(), ids=FAILURES.keys())
def test_what_a_handler_raises_ends_its_connection_with_a_fault(
    tmp_path: Path, error: Exception, code: FaultCode
) -> None:
    def react(recorder: Recorder, message: AnyMessage) -> None:
        raise error

    async def main() -> None:
        async with serving(tmp_path, react=react) as service:
            client = await service.connect()
            client.connection.send(HELLO)
            await until(lambda: client.closed and service.accepted[0].closed)
            assert service.accepted[0].error is error
            assert isinstance(client.error, PeerFault)
            assert client.error.code is code
            assert "secret" not in str(client.error)

    in_loop(main)


def test_a_broken_invariant_goes_to_the_loop(tmp_path: Path) -> None:
    error = InvariantError("broken")
    seen: list[object] = []

    def react(recorder: Recorder, message: AnyMessage) -> None:
        raise error

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
        async with serving(tmp_path, react=react) as service:
            client = await service.connect()
            client.connection.send(HELLO)
            await until(lambda: client.closed)

    in_loop(main)
    assert seen == [error]


def test_a_channel_that_fails_at_the_end_hides_the_end_from_no_other_one(tmp_path: Path) -> None:
    """Its node would never be dialled again, and the other sessions never be forgotten."""

    async def main() -> None:
        async with serving(tmp_path) as service:
            client, _ = await service.pair()
            ended: list[int] = []

            class Ending(Recorder):
                number = 0

                def on_closed(self, error: Exception | None) -> None:
                    ended.append(self.number)
                    if self.number == 1:
                        raise ValueError("made up")

            for number in (1, 2):
                channel = client.connection.open_channel(number, lambda channel, fault: None)
                channel.handler = handler = Ending(client.connection)
                handler.number = number
            client.connection.close()
            await until(lambda: client.closed)
            assert ended == [1, 2]
            assert client.closed == [None]

    in_loop(main)


def test_a_view_kept_after_the_call_is_dead(tmp_path: Path) -> None:
    kept: list[memoryview] = []

    class Keeper(Recorder):
        """Does what it must not."""

        def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
            """Keep the view instead of a copy."""
            kept.append(data)

    async def main() -> None:
        async with serving(tmp_path) as service:
            client, server = await service.pair()
            server.connection._own.handler = Keeper(server.connection)
            client.connection.send_data(1, 0, 0, b"x")
            await until(lambda: kept)
            with pytest.raises(ValueError, match="released"):
                bytes(kept[0])
            server.connection._own.handler = server

    in_loop(main)


def test_back_pressure_is_told_and_released(tmp_path: Path) -> None:
    payload = os.urandom(1 << 20)

    async def main() -> None:
        async with serving(tmp_path) as service:
            client, server = await service.pair()
            server.connection.pause_reading()
            server.connection.pause_reading()
            sent = 0
            while client.connection.writable:
                client.connection.send_data(1, 0, sent, payload)
                sent += 1
                await asyncio.sleep(0)
            assert client.writable_calls == 0
            assert server.data == []
            server.connection.resume_reading()
            server.connection.resume_reading()
            await until(lambda: len(server.data) == sent)
            assert client.writable_calls == 1
            assert client.connection.writable
            assert [byte for _, _, byte, _ in server.data] == list(range(sent))

    in_loop(main)


def test_a_handler_that_pauses_gets_nothing_more_of_the_same_read(tmp_path: Path) -> None:
    def react(recorder: Recorder, message: AnyMessage) -> None:
        if isinstance(message, Received):
            recorder.connection.pause_reading()

    async def main() -> None:
        async with serving(tmp_path, react=react) as service, raw_peer(service) as peer:
            frames: list[AnyMessage] = [HELLO, *(Received(n, 0) for n in range(5))]
            peer.writer.write(b"".join(encode_message(frame) for frame in frames))
            await until(lambda: service.accepted and len(service.accepted[0].messages) == 2)
            server = service.accepted[0]
            for count in range(3, 7):
                server.connection.resume_reading()
                await until(lambda: len(server.messages) >= count)  # noqa: B023 - awaited at once
                await asyncio.sleep(0)
                assert server.messages == frames[:count]

    in_loop(main)


def test_one_busy_connection_leaves_turns_to_others(tmp_path: Path) -> None:
    payload = os.urandom(1 << 20)

    async def main() -> None:
        async with serving(tmp_path) as service:
            busy, _ = await service.pair()
            quiet, answering = await service.pair()
            for index in range(40):
                busy.connection.send_data(1, 0, index, payload)
            quiet.connection.send(CaughtUp(1, 1))
            await until(lambda: len(answering.messages) == 2)
            assert len(service.accepted[0].data) < 40
            await until(lambda: len(service.accepted[0].data) == 40)

    in_loop(main)


def test_a_peer_that_reads_nothing_is_not_waited_for_at_the_end(tmp_path: Path) -> None:
    deadlines = Deadlines(close_s=0.2)

    async def main() -> None:
        async with serving(tmp_path, deadlines=deadlines) as service, raw_peer(service) as peer:
            peer.writer.write(encode_message(HELLO))
            await until(lambda: service.accepted and service.accepted[0].messages)
            cast(asyncio.Transport, peer.writer.transport).pause_reading()
            server = service.accepted[0].connection
            while server.writable:
                server.send_data(1, 0, 0, bytes(HIGH_WATER_BYTES))
                await asyncio.sleep(0)
            server.close()
            await until(lambda: service.accepted[0].closed)
            async with asyncio.timeout(PATIENCE_S):
                await server.wait_ended()

    in_loop(main)


def test_announcing_the_longest_frame_costs_no_memory(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as service, raw_peer(service) as peer:
            header = encode_header(FrameType.DATA, DATA_LIMIT_BYTES)
            peer.writer.write(encode_message(HELLO) + header + bytes(100))
            await until(lambda: service.accepted and service.accepted[0].messages)
            assert service.accepted[0].connection._buffer.capacity <= 64 << 10

    in_loop(main)


def test_sending_into_a_reset_connection_raises_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as service, raw_peer(service) as peer:
            peer.writer.write(encode_message(HELLO))
            await until(lambda: service.accepted and service.accepted[0].messages)
            server = service.accepted[0]
            raw = peer.writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            server.connection.send_data(1, 0, 0, bytes(4 << 20))
            peer.writer.transport.abort()
            while not server.closed:
                server.connection.send_data(1, 0, 0, bytes(1 << 20))
                server.connection.pause_reading()
                server.connection.send(HELLO)
                server.connection.resume_reading()
                await asyncio.sleep(0)
            assert isinstance(server.error, ConnectionLost)

    in_loop(main)


def broken_streams(source: random.Random) -> list[bytes]:
    """Random bytes, and valid streams with bytes changed, left out or put in."""
    valid = b"".join(
        [
            encode_message(HELLO),
            encode_data_header(1, 2, 3, 50) + bytes(50),
            encode_frame(FrameType.RAFT, b"raft"),
            encode_message(Received(1, 2)),
        ]
    )
    streams = [source.randbytes(source.randrange(1, 100)) for _ in range(20)]
    for _ in range(60):
        at = source.randrange(len(valid))
        streams.append(valid[:at] + source.randbytes(source.randrange(3)) + valid[at + 1 :])
    return streams


def test_any_bytes_end_in_frames_a_fault_or_silence(tmp_path: Path) -> None:
    seen: list[object] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: seen.append(context))
        async with serving(tmp_path) as service:
            for number, stream in enumerate(broken_streams(random.Random(1))):
                async with raw_peer(service) as peer:
                    peer.writer.write(stream)
                    peer.writer.close()
                    await until(lambda: len(service.accepted) > number)  # noqa: B023
                await until(lambda: service.accepted[number].closed)  # noqa: B023
                error = service.accepted[number].error
                assert isinstance(error, FrameError | ProtocolFault | ConnectionLost), error

    in_loop(main)
    assert seen == []

"""Byte-level TCP proxies between nodes, and between clients and nodes: weather on every link.

Each directed link (who connects, to whom) has a proxy of its own, so partitions can be partial and
of one direction. Bytes that a link holds back are delivered when it is opened again, as TCP itself
would do; bytes of a connection that is cut are lost.

Invariant: in clear weather a link delivers exactly the bytes it was given, in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from samelog.config.tables.node import NodeConfig, PeerConfig
from samelog.config.values import Address
from tests.chaos.field import Field

HOST = "127.0.0.1"
CHUNK_BYTES = 16 << 10
QUEUE_CHUNKS = 64
TRICKLE_BYTES = 16
HOLD_POLL_S = 0.02
CLIENT = "client"
PRODUCER = "producer"
"""Who connects as a client of Kafka's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """What a link does to bytes."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    bytes_per_s: float | None = None
    corrupt_share: float = 0.0
    """Of chunks in which one bit is turned."""
    cut_share: float = 0.0
    """Of chunks behind whose first half the connection is cut."""
    hold_forth: bool = False
    """Nothing gets from the one who connected to the other."""
    hold_back: bool = False


CLEAR = Weather()
HELD = Weather(hold_forth=True, hold_back=True)


class Link:
    """One proxy."""

    def __init__(self, target: Address, seed: int) -> None:
        self.weather = CLEAR
        self.target = target
        self.port = 0
        self._random = random.Random(seed)
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Listen no more, end every connection."""
        if self._server is not None:
            self._server.close()
        self.reset()

    def reset(self) -> None:
        """End every connection with RST."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await self._wait_open(lambda now: now.hold_forth or now.hold_back)
            there_reader, there = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        finally:
            self._writers.discard(writer)
        self._writers |= {writer, there}
        try:
            await asyncio.gather(
                self._carry(reader, there, forth=True),
                self._carry(there_reader, writer, forth=False),
            )
        finally:
            self._writers -= {writer, there}
            for end in (writer, there):
                end.transport.abort()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, forth: bool
    ) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUE_CHUNKS)
        delivering = asyncio.create_task(self._deliver(queue, writer, forth=forth))
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                weather = self.weather
                delay = weather.delay_s + self._random.random() * weather.jitter_s
                await queue.put((loop.time() + delay, data))
        await queue.put((loop.time(), b""))
        await delivering

    async def _deliver(
        self,
        queue: asyncio.Queue[tuple[float, bytes]],
        writer: asyncio.StreamWriter,
        *,
        forth: bool,
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await queue.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            await self._wait_open(lambda now: now.hold_forth if forth else now.hold_back)
            if not data or not await self._send(writer, data):
                writer.transport.abort() if data else writer.close()
                break
        while data:  # keep the reading side from waiting for room
            _, data = await queue.get()

    async def _wait_open(self, is_held: Callable[[Weather], bool]) -> None:
        while True:
            if not is_held(self.weather):
                return
            await asyncio.sleep(HOLD_POLL_S)

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> bool:
        """Whether the connection goes on."""
        weather = self.weather
        if self._random.random() < weather.corrupt_share:
            data = turn_bit(data, self._random)
        is_cut = self._random.random() < weather.cut_share
        if is_cut:
            data = data[: len(data) // 2]
        try:
            for piece in _pieces(data, weather):
                writer.write(piece)
                await writer.drain()
                if weather.bytes_per_s is not None:
                    await asyncio.sleep(len(piece) / weather.bytes_per_s)
        except OSError:
            return False
        return not is_cut


def _pieces(data: bytes, weather: Weather) -> list[bytes]:
    if weather.bytes_per_s is None:
        return [data]
    return [data[at : at + TRICKLE_BYTES] for at in range(0, len(data), TRICKLE_BYTES)]


def turn_bit(data: bytes, chance: random.Random) -> bytes:
    """The data with one bit changed."""
    changed = bytearray(data)
    changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


class Network:
    """All links of a field, in a thread of their own."""

    def __init__(self, field: Field) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.links: dict[tuple[str, str], Link] = {}
        self._random = field.random
        addresses = {node.name: node.address for node in field.nodes}
        for source in (CLIENT, *addresses):
            for name, address in addresses.items():
                if source != name:
                    self.connect(source, name, address)
        field.on_leave(self.close)
        field.on_heal(self.clear)

    def connect(self, source: str, name: str, address: Address) -> Address:
        """Make a link: where to connect instead."""
        link = Link(address, self._random.randrange(1 << 30))
        self._call(link.open())
        self.links[source, name] = link
        return Address(HOST, link.port)

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def close(self) -> None:
        """End every connection, and the thread."""
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for link in self.links.values():
            link.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_asyncgens()

    def clear(self) -> None:
        """Fair weather everywhere."""
        self.set(CLEAR)

    def set(self, weather: Weather, where: Callable[[str, str], bool] | None = None) -> None:
        """Change the weather on the links (who connects, to whom) that `where` picks."""
        for (source, target), link in self.links.items():
            if where is None or where(source, target):
                link.weather = weather

    def reset(self, where: Callable[[str, str], bool] | None = None) -> None:
        """End connections with RST."""
        for (source, target), link in self.links.items():
            if where is None or where(source, target):
                self._loop.call_soon_threadsafe(link.reset)

    def stop_bytes(self, source: str, target: str) -> None:
        """Hold what `source` sends to `target`, on whoever's connection."""
        for pair, held in (
            ((source, target), {"hold_forth": True}),
            ((target, source), {"hold_back": True}),
        ):
            if pair in self.links:
                link = self.links[pair]
                link.weather = replace(link.weather, **held)


def put_between(field: Field) -> None:
    """Give a field links, and make nodes and clients use them."""
    network = Network(field)
    for node in field.nodes:
        name = node.name

        def edit(config: NodeConfig, name: str = name) -> NodeConfig:
            peers = tuple(_through(network, name, peer) for peer in config.peers)
            return replace(config, peers=peers)

        node.change(edit)
    ports = [network.links[CLIENT, node.name].port for node in field.nodes]
    field.client = replace(field.client, nodes=tuple(Address(HOST, port) for port in ports))
    field.equip(network)


def _through(network: Network, source: str, peer: PeerConfig) -> PeerConfig:
    if peer.name == source:
        return peer
    return replace(peer, address=Address(HOST, network.links[source, peer.name].port))

"""Handshakes and messages of clients share the slices of a server's event loop."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections import Counter
from collections.abc import Hashable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from samelog.config.tables.shared import TlsFiles
from samelog.runtime import slices
from samelog.runtime.network.connection import TURN_FRAMES, Connection
from samelog.runtime.network.tls_transport import TlsTransport
from samelog.wire.messages import CaughtUp
from tests.runtime.peers import HELLO, Service, in_loop, serving, until
from tests.runtime.pki import Authority
from tests.runtime.test_tls_transport import Side

CLIENTS = 12
MESSAGES = 20 * TURN_FRAMES
HOST = "127.0.0.1"


class Steps:
    """The steps of handshakes, each of which takes a whole slice, by turn of the loop."""

    def __init__(self) -> None:
        self.count = 0
        self.turn = 0
        self.turns: list[int] = []

    def of(self, kind: type[Connection] | type[TlsTransport]) -> Any:
        """Count the steps of connections of this kind."""
        original = kind._take_handshake

        def step(connection: Any, data: Any) -> None:
            if not isinstance(connection, Connection) or connection._endpoint.server_side:
                self.count += 1
                self.turns.append(self.turn)
            original(connection, data)

        return patch.object(kind, "_take_handshake", step)

    def begin(self) -> None:
        """Count turns of the running loop."""
        slices.slices().now = lambda: 2 * self.count * slices.SLICE_S
        self._tick()

    def _tick(self) -> None:
        self.turn += 1
        asyncio.get_running_loop().call_soon(self._tick)

    @property
    def most(self) -> int:
        """The most steps of one turn."""
        return max(Counter(self.turns).values())


def test_a_turn_has_a_slice_of_handshakes(tmp_path: Path) -> None:
    steps = Steps()

    async def main() -> None:
        async with serving(tmp_path) as service:
            steps.begin()
            await asyncio.gather(*(service.connect() for _ in range(CLIENTS)))
            await until(lambda: len(service.accepted) == CLIENTS)

    with steps.of(Connection):
        in_loop(main)
    assert steps.count >= 2 * CLIENTS
    assert steps.most == 1


def test_a_turn_has_a_slice_of_handshakes_of_other_protocols(tmp_path: Path) -> None:
    steps = Steps()

    authority = Authority(tmp_path / "pki")
    trusting = ssl.create_default_context(cafile=str(authority.ca_path))
    trusting.check_hostname = False

    async def main() -> None:
        side = Side(authority)
        async with side.serving():
            steps.begin()
            streams = await asyncio.gather(*(side.connect(trusting) for _ in range(CLIENTS)))
            await until(lambda: len(side.protocols) == CLIENTS)
            for _, writer in streams:
                writer.close()

    with steps.of(TlsTransport):
        in_loop(main)
    assert steps.count >= 2 * CLIENTS
    assert steps.most == 1


def waits(work: Any) -> list[tuple[Hashable, bool]]:
    """Run a coroutine function; which clients have waited for slices, which were preferred."""
    found: list[tuple[Hashable, bool]] = []
    original = slices.Slices.wait

    def wait(self: slices.Slices, client: Hashable, *, preferred: bool = False) -> Any:
        found.append((client, preferred))
        return original(self, client, preferred=preferred)

    with patch.object(slices.Slices, "wait", wait):
        in_loop(work)
    return found


def test_handshakes_of_hosts_of_nodes_are_preferred(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as service:
            await service.connect()
            await until(lambda: service.accepted)
            assert not service.server.is_preferred(HOST)
            await service.connect(service.authority.node("n2"))
            await until(lambda: len(service.accepted) == 2)
            assert service.server.is_preferred(HOST)
            slices.slices().now = partial(next, itertools.count())
            await asyncio.gather(*(service.connect() for _ in range(CLIENTS)))

    assert (HOST, True) in waits(main)


def test_a_preferred_client_has_every_second_slice() -> None:
    had = list[str]()

    async def main() -> None:
        shared = slices.Slices()
        assert shared.may_work()
        for name in ("a", "b", "peer") * 3:
            turn = shared.wait(name, preferred=name == "peer")
            turn.add_done_callback(partial(lambda name, _: had.append(name), name))
        await until(lambda: len(had) == 9)

    asyncio.run(main())
    assert had[:6] == ["peer", "a", "peer", "b", "peer", "a"]


async def send_messages(service: Service, files: TlsFiles) -> None:
    """Send many messages at once, and wait until the server has them."""
    client = await service.connect(files)
    client.connection.send(HELLO)
    await until(lambda: service.accepted and service.accepted[-1].messages)
    client.connection.cork()
    for number in range(MESSAGES):
        client.connection.send(CaughtUp(1, number))
    client.connection.uncork()
    server = service.accepted[-1]
    await until(lambda: len(server.messages) == MESSAGES + 1)
    assert server.messages[1:] == [CaughtUp(1, number) for number in range(MESSAGES)]


@pytest.mark.parametrize("is_node", [False, True])
def test_many_messages_of_a_client_wait_for_slices(tmp_path: Path, *, is_node: bool) -> None:
    async def main() -> None:
        async with serving(tmp_path) as service:
            authority = service.authority
            files = authority.node("n2") if is_node else authority.publisher("p")
            slices.slices().now = partial(next, itertools.count())
            await send_messages(service, files)

    found = [client for client, _ in waits(main) if str(client).startswith("samelog://")]
    assert bool(found) != is_node

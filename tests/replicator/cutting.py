"""A network that breaks: passes bytes on, and cuts connections after a random number of them."""

from __future__ import annotations

import asyncio
import random
from typing import Self

from samelog.config.values import Address

PIECE_BYTES = 16 << 10


class CuttingProxy:
    """Listens for one target. Each connection gets a budget of bytes; `None`: no limit any more."""

    def __init__(self, target: Address, source: random.Random, budget_bytes: int | None) -> None:
        self.address = Address("127.0.0.1", 0)
        self.connections = 0
        self.budget_bytes = budget_bytes
        self._target = target
        self._source = source
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = Address("127.0.0.1", self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()

    def cut(self) -> bool:
        """Break all connections there are; whether there was one."""
        writers = list(self._writers)
        self._writers.clear()
        for writer in writers:
            writer.transport.abort()
        return bool(writers)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            onward_reader, onward = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, onward}
        self._writers |= pair
        limit = self.budget_bytes
        left = [1 << 60 if limit is None else self._source.randrange(8000, limit)]
        await asyncio.gather(
            self._pass(reader, onward, pair, left), self._pass(onward_reader, writer, pair, left)
        )

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        pair: set[asyncio.StreamWriter],
        left: list[int],
    ) -> None:
        try:
            while data := await reader.read(PIECE_BYTES):
                left[0] -= len(data)
                if left[0] <= 0:
                    break
                writer.write(data)
                await writer.drain()
        except OSError:
            pass  # the other direction has cut it
        for one in pair:
            one.transport.abort()
        self._writers -= pair

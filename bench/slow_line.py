"""A line between two sites: TCP connections that are passed on, each byte later by so much as the
line is long, in both directions.

It takes the place of `tc netem`, which not every kernel has. What waits on the line is held in
memory; a line that is cut (SIGUSR1) passes nothing on and closes nothing, until it is mended
(SIGUSR2), as where a cable is cut.

    python -m bench.slow_line --delay-ms 40 127.0.0.1:7001=10.77.0.2:7000 ...
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Sequence

from bench.processes import ready

PIECE_BYTES = 64 << 10
WAITING_PIECES = 1024
"""Of one connection and direction: 64 MiB may be under way."""

Waiting = asyncio.Queue[tuple[float, bytes]]


class SlowLine:
    """All connections of the line."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._is_whole = asyncio.Event()
        self._is_whole.set()
        self._tasks: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Pass nothing on from now on."""
        self._is_whole.clear()

    def mend(self) -> None:
        """Pass on what waits, and what comes."""
        self._is_whole.set()

    async def listen(self, near: str, far: str) -> None:
        """Pass on what connects to one address to the other one."""
        (host, port), target = near.rsplit(":", 1), far.rsplit(":", 1)

        async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._is_whole.wait()
            try:
                there = await asyncio.open_connection(target[0], int(target[1]))
            except OSError:
                writer.close()
                return
            self._spawn(reader, there[1])
            self._spawn(there[0], writer)

        await asyncio.start_server(passed_on, host, int(port))

    def _spawn(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        waiting: Waiting = asyncio.Queue(WAITING_PIECES)
        for work in (self._take(reader, waiting), self._give(waiting, writer)):
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _take(self, reader: asyncio.StreamReader, waiting: Waiting) -> None:
        loop, data = asyncio.get_running_loop(), b"-"
        while data:
            try:
                data = await reader.read(PIECE_BYTES)
            except OSError:
                data = b""
            await waiting.put((loop.time() + self._delay_s, data))

    async def _give(self, waiting: Waiting, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await waiting.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            await self._is_whole.wait()
            if not data:
                writer.close()
                return
            writer.write(data)
            try:
                await writer.drain()
            except OSError:
                return


async def serve(delay_s: float, ways: Sequence[str]) -> None:
    """Pass on until the process is ended."""
    line, loop = SlowLine(delay_s), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, line.cut)
    loop.add_signal_handler(signal.SIGUSR2, line.mend)
    for way in ways:
        await line.listen(*way.split("="))
    ready()
    await asyncio.Event().wait()


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay-ms", type=float, required=True, help="one way")
    parser.add_argument("ways", nargs="+", metavar="NEAR=FAR")
    given = parser.parse_args()
    asyncio.run(serve(given.delay_ms / 1000, given.ways))


if __name__ == "__main__":
    main()

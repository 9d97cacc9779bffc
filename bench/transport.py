"""Measures one mutually authenticated connection between two processes.

Throughput of DATA frames against the simplest possible loop over blocking TLS sockets, with the CPU
time of both ends, and the round trip of a small frame. Systems are interleaved; the median of the
runs is reported with their range.

Run: PYTHONPATH=. python bench/transport.py [--megabytes N] [--runs N]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import socket
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import NamedTuple

from samelog.runtime.loop import run
from samelog.runtime.network import _tls
from samelog.runtime.network.tls import ReloadingContext
from samelog.runtime.network.transport import Address, Connection, connect, serve
from samelog.wire.messages import AnyMessage, CaughtUp, Received
from tests.runtime.pki import Authority

HANDLE = 1
ROUND_TRIPS = 20_000
WARM_UP = 1_000


class Job(NamedTuple):
    """What one run sends: `total_bytes` in frames of `frame_bytes`."""

    frame_bytes: int
    total_bytes: int


class Outcome(NamedTuple):
    """One end of one run."""

    seconds: float
    cpu_seconds: float


class Sink:
    """Counts DATA, echoes messages."""

    def __init__(self, connection: Connection, total_bytes: int) -> None:
        self.connection = connection
        self.closed = asyncio.Event()
        self._left = total_bytes
        connection.send(CaughtUp(HANDLE, 0))

    def on_message(self, message: AnyMessage) -> None:
        """Echo."""
        self.connection.send(message)

    def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        """Count; say when all is here."""
        self._left -= len(data)
        if self._left <= 0:
            self.connection.send(CaughtUp(HANDLE, 1))

    def on_raft(self, payload: memoryview) -> None:
        """Not measured."""

    def on_writable(self) -> None:
        """Nothing waits."""

    def on_closed(self, error: Exception | None) -> None:
        """The run is over."""
        self.closed.set()


class Source:
    """Sends DATA as fast as the connection takes it."""

    def __init__(self, connection: Connection, job: Job) -> None:
        self.done = asyncio.Event()
        self._connection = connection
        self._job = job
        self._payload = memoryview(os.urandom(job.frame_bytes))
        self._sent = 0

    def start(self) -> None:
        """Send until the connection is full."""
        while self._connection.writable and self._sent < self._job.total_bytes:
            self._connection.send_data(HANDLE, 0, self._sent, self._payload)
            self._sent += self._job.frame_bytes

    def on_message(self, message: AnyMessage) -> None:
        """The receiver is there, or has everything."""
        if isinstance(message, CaughtUp) and message.end_offset == 1:
            self.done.set()

    def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        """Nothing comes."""

    def on_raft(self, payload: memoryview) -> None:
        """Nothing comes."""

    def on_writable(self) -> None:
        """There is room again."""
        self.start()

    def on_closed(self, error: Exception | None) -> None:
        """The run is over; too early, if `done` is not set."""
        if not self.done.is_set():
            raise RuntimeError(f"the connection did not last: {error}")


class Pinger(Source):
    """Sends a small message whenever the last one has come back."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, Job(1, 0))
        self.times_s: list[float] = []
        self._connection = connection
        self._sent_at = 0.0

    def start(self) -> None:
        """Send one."""
        self._sent_at = time.perf_counter()
        self._connection.send(Received(HANDLE, 0))

    def on_message(self, message: AnyMessage) -> None:
        """It is back."""
        if not isinstance(message, Received):
            return
        self.times_s.append(time.perf_counter() - self._sent_at)
        if len(self.times_s) == ROUND_TRIPS + WARM_UP:
            self.done.set()
        else:
            self.start()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        authority = Authority(Path(directory))
        server, client = authority.node("bench"), authority.publisher("bench")
        tls = ReloadingContext(server), ReloadingContext(client)
        how = "called directly" if _tls.is_usable else "through Python's ssl"
        print(f"load average {os.getloadavg()[0]:.2f}, TLS 1.3, {ssl.OPENSSL_VERSION} {how}")
        for frame_bytes in (64 << 10, 256 << 10, 1 << 20):
            job = Job(frame_bytes, options.megabytes * 1_000_000 // frame_bytes * frame_bytes)
            compare(tls, job, options.runs)
        round_trips(tls)


def compare(tls: tuple[ReloadingContext, ReloadingContext], job: Job, runs: int) -> None:
    """One line per system, runs interleaved."""
    systems = {
        "samelog": (samelog_sink, samelog_source),
        "blocking ssl": (plain_sink, plain_source),
    }
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in systems}
    for _ in range(runs):
        for name, (sink, source) in systems.items():
            receiving, sending = in_two_processes(sink, source, tls, job)
            gigabytes = job.total_bytes / 1e9
            rate = job.total_bytes / 1e6 / sending.seconds
            found[name].append(
                (rate, sending.cpu_seconds / gigabytes, receiving.cpu_seconds / gigabytes)
            )
    for name, rows in found.items():
        rates, sends, receives = zip(*rows, strict=True)
        print(
            f"{job.frame_bytes >> 10:5d} KiB {name:13s} {statistics.median(rates):6.0f} MB/s "
            f"({min(rates):.0f} to {max(rates):.0f}); CPU s/GB: "
            f"send {statistics.median(sends):.2f}, receive {statistics.median(receives):.2f}"
        )


def round_trips(tls: tuple[ReloadingContext, ReloadingContext]) -> None:
    """Round trip of a message of a few bytes."""
    context = multiprocessing.get_context("fork")
    near, far = context.Pipe()
    process = context.Process(target=samelog_sink, args=(far, tls[0], Job(1, 1)))
    process.start()
    times_us = sorted(1e6 * second for second in run(_ping(near.recv(), tls[1])))
    process.join()
    p50, p99 = times_us[len(times_us) // 2], times_us[len(times_us) * 99 // 100]
    print(f"small frame, round trip: p50 {p50:.0f} us, p99 {p99:.0f} us (one way: half)")


def in_two_processes(
    sink: Callable[[Pipe, ReloadingContext, Job], None],
    source: Callable[[int, ReloadingContext, Job], Outcome],
    tls: tuple[ReloadingContext, ReloadingContext],
    job: Job,
) -> tuple[Outcome, Outcome]:
    """(receiving end, sending end)."""
    context = multiprocessing.get_context("fork")
    near, far = context.Pipe()
    process = context.Process(target=sink, args=(far, tls[0], job))
    process.start()
    sending = source(near.recv(), tls[1], job)
    receiving: Outcome = near.recv()
    process.join()
    return receiving, sending


def samelog_sink(pipe: Pipe, tls: ReloadingContext, job: Job) -> None:
    """The receiving process."""
    run(_sink(pipe, tls, job))


def samelog_source(port: int, tls: ReloadingContext, job: Job) -> Outcome:
    """The sending process."""
    return run(_source(port, tls, job))


async def _sink(pipe: Pipe, tls: ReloadingContext, job: Job) -> None:
    accepted: asyncio.Future[Sink] = asyncio.get_running_loop().create_future()

    def accept(connection: Connection) -> Sink:
        accepted.set_result(Sink(connection, job.total_bytes))
        return accepted.result()

    server = await serve(Address("127.0.0.1", 0), tls, accept)
    pipe.send(server.port)
    sink = await accepted
    started, cpu = time.perf_counter(), time.process_time()
    await sink.closed.wait()
    pipe.send(Outcome(time.perf_counter() - started, time.process_time() - cpu))
    server.close()
    await server.wait_closed()


async def _source(port: int, tls: ReloadingContext, job: Job) -> Outcome:
    sources: list[Source] = []

    def accept(connection: Connection) -> Source:
        sources.append(Source(connection, job))
        return sources[0]

    connection = await connect(
        Address("127.0.0.1", port), tls, accept, expected_identity="samelog://node/bench"
    )
    started, cpu = time.perf_counter(), time.process_time()
    sources[0].start()
    await sources[0].done.wait()
    outcome = Outcome(time.perf_counter() - started, time.process_time() - cpu)
    connection.close()
    await connection.wait_ended()
    return outcome


async def _ping(port: int, tls: ReloadingContext) -> list[float]:
    pingers: list[Pinger] = []

    def accept(connection: Connection) -> Pinger:
        pingers.append(Pinger(connection))
        return pingers[0]

    connection = await connect(Address("127.0.0.1", port), tls, accept, expected_identity=None)
    pingers[0].start()
    await pingers[0].done.wait()
    connection.close()
    await connection.wait_ended()
    return pingers[0].times_s[WARM_UP:]


def plain_sink(pipe: Pipe, tls: ReloadingContext, job: Job) -> None:
    """The receiving process of the blocking loop."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pipe.send(listener.getsockname()[1])
        accepted, _ = listener.accept()
    with tls.server.wrap_socket(accepted, server_side=True) as connection:
        started, cpu = time.perf_counter(), time.process_time()
        buffer = memoryview(bytearray(64 << 10))
        left = job.total_bytes
        while left > 0:
            left -= connection.recv_into(buffer)
        connection.sendall(b"!")
        pipe.send(Outcome(time.perf_counter() - started, time.process_time() - cpu))


def plain_source(port: int, tls: ReloadingContext, job: Job) -> Outcome:
    """The sending process of the blocking loop."""
    payload = memoryview(os.urandom(job.frame_bytes))
    with tls.client.wrap_socket(socket.create_connection(("127.0.0.1", port))) as connection:
        started, cpu = time.perf_counter(), time.process_time()
        for _ in range(job.total_bytes // job.frame_bytes):
            connection.sendall(payload)
        connection.recv(1)
        return Outcome(time.perf_counter() - started, time.process_time() - cpu)


if __name__ == "__main__":
    main()

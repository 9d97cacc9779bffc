"""The plain limit: what the machine does when nothing is decided, checked, ordered or synced.

The same bytes take the same way as a record through samelog, as fast as simple loops can: a writer
writes them to a file and sends them over TLS to three receivers; each writes them to two files
(session and merged log), and one sends them on to a last process, which writes them to a file. All
of that is there several times, side by side, where that is faster; so are the other ways that a
loop has: the size of pieces, and OpenSSL on sockets or on memory. The fastest way of all is looked
for first; connecting is not counted. Invariant: nothing of ours beats it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import socket
import ssl
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from multiprocessing.connection import Connection
from typing import NamedTuple

from samelog.config.pki.authority import CertificateRole, create_authority, issue

HOST = "127.0.0.1"
TRY_MEGABYTES = 24
LANES, PIECES, BUFFERED = (1, 2), (16 << 10, 64 << 10, 256 << 10), (False, True)
FORK = multiprocessing.get_context("fork")
Paths = tuple[str, str, str]
"""CA, certificate, key."""


class Shape(NamedTuple):
    """One way to do it. `buffered`: OpenSSL works on memory, and sockets are read in pieces."""

    lanes: int
    piece_bytes: int
    buffered: bool


class Work(NamedTuple):
    """What each process of a lane is told."""

    paths: Paths
    shape: Shape
    total: int


class Limit(NamedTuple):
    """What was reached, and how."""

    mb_per_s: float
    shape: Shape


def measure(megabytes: int) -> Limit:
    """MB/s through the whole way, in the way that was fastest here."""
    shape = fastest()
    return Limit(run(shape, megabytes), shape)


@cache
def fastest() -> Shape:
    """Tries all ways."""
    shapes = [Shape(*each) for each in itertools.product(LANES, PIECES, BUFFERED)]
    rates = {shape: run(shape, TRY_MEGABYTES) for shape in shapes}
    best = sorted(shapes, key=rates.__getitem__)[-3:]
    return max(best, key=lambda shape: run(shape, 2 * TRY_MEGABYTES))


def run(shape: Shape, megabytes: int) -> float:
    """MB/s in one way."""
    with tempfile.TemporaryDirectory() as directory:
        authority = create_authority(os.path.join(directory, "pki"), "plain")
        files = issue(os.path.join(directory, "pki"), CertificateRole.NODE, "plain", hosts=(HOST,))
        paths = (authority.cert, files.cert, files.key)
        lane_bytes = megabytes * 1_000_000 // shape.lanes // shape.piece_bytes * shape.piece_bytes
        lanes = [
            Lane(os.path.join(directory, str(number)), paths, shape, lane_bytes)
            for number in range(shape.lanes)
        ]
        for lane in lanes:
            lane.wait_connected()
        begin = time.monotonic()
        for lane in lanes:
            lane.go()
        ended = max(lane.ended() for lane in lanes)
        return lane_bytes * shape.lanes / (ended - begin) / 1e6


class Lane:
    """One writer, three receivers and a last one, each a process."""

    def __init__(self, directory: str, paths: Paths, shape: Shape, total: int) -> None:
        os.mkdir(directory)
        self._pipes: list[Connection] = []
        self._processes: list[multiprocessing.process.BaseProcess] = []
        self._work = Work(paths, shape, total)
        last = self._receiver([f"{directory}/last"], None)
        ports = [self._receiver([f"{directory}/0a", f"{directory}/0b"], last)]
        ports += [
            self._receiver([f"{directory}/{each}a", f"{directory}/{each}b"], None)
            for each in (1, 2)
        ]
        self._start(_write, f"{directory}/source", ports)

    def _receiver(self, names: Sequence[str], forward: int | None) -> int:
        with socket.create_server((HOST, 0)) as listener:
            self._start(_receive, listener, names, forward)
            return int(listener.getsockname()[1])

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        near, far = FORK.Pipe()
        process = FORK.Process(target=work, args=(far, self._work, *arguments))
        process.start()
        self._pipes.append(near)
        self._processes.append(process)

    def wait_connected(self) -> None:
        """Until all processes are."""
        for pipe in self._pipes:
            pipe.recv()

    def go(self) -> None:
        """Have the writer begin."""
        self._pipes[-1].send(None)

    def ended(self) -> float:
        """When the last byte was written."""
        times = [pipe.recv() for pipe in self._pipes]
        for process in self._processes:
            process.join()
        return float(max(times))


def context_of(paths: Paths, *, server: bool) -> ssl.SSLContext:
    """Mutual TLS by these files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(paths[0])
    context.load_cert_chain(paths[1], paths[2])
    context.verify_mode = ssl.CERT_REQUIRED
    if server:
        context.num_tickets = 0  # nobody reads them, and closing before they are read is a reset
    return context


def connect_to(paths: Paths, port: int) -> ssl.SSLSocket:
    """A connection to a port of this machine."""
    raw = socket.create_connection((HOST, port))
    return context_of(paths, server=False).wrap_socket(raw, server_hostname=HOST)


class Secure:
    """One connection, in either way."""

    def __init__(self, paths: Paths, shape: Shape, raw: socket.socket, *, server: bool) -> None:
        context = context_of(paths, server=server)
        name = None if server else HOST
        self._raw, self._piece = raw, memoryview(bytearray(max(shape.piece_bytes, 64 << 10)))
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._buffered = shape.buffered
        if shape.buffered:
            self._tls = context.wrap_bio(self._in, self._out, server, name)
            while not self._shaken():
                self._fill()
            self._flush()
        else:
            self._socket = context.wrap_socket(raw, server, server_hostname=name)

    def _shaken(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        return True

    def _fill(self) -> None:
        count = self._raw.recv_into(self._piece)
        if not count:
            raise ConnectionError("closed")
        self._in.write(self._piece[:count])

    def _flush(self) -> None:
        if self._out.pending:
            self._raw.sendall(self._out.read())

    def send(self, data: memoryview) -> None:
        """All of it."""
        if self._buffered:
            self._tls.write(data)
            self._flush()
        else:
            self._socket.sendall(data)

    def receive(self, buffer: memoryview) -> int:
        """Something of what comes."""
        if not self._buffered:
            count = self._socket.recv_into(buffer)
            if not count:
                raise ConnectionError("closed")
            return count
        while True:
            try:
                return self._tls.read(len(buffer), buffer)  # type: ignore[return-value]
            except ssl.SSLWantReadError:
                self._fill()


def _receive(
    pipe: Connection,
    work: Work,
    listener: socket.socket,
    names: Sequence[str],
    forward: int | None,
) -> None:
    outputs = [open(name, "wb", buffering=0) for name in names]  # noqa: SIM115 - ends with the process
    target = None if forward is None else _connected(work, forward)
    source = Secure(work.paths, work.shape, listener.accept()[0], server=True)
    pipe.send(None)
    buffer, left = memoryview(bytearray(work.shape.piece_bytes)), work.total
    while left:
        there = 0
        while there < len(buffer):
            there += source.receive(buffer[there:])
        for output in outputs:
            output.write(buffer)
        if target is not None:
            target.send(buffer)
        left -= there
    pipe.send(time.monotonic())


def _connected(work: Work, port: int) -> Secure:
    raw = socket.create_connection((HOST, port))
    return Secure(work.paths, work.shape, raw, server=False)


def _write(pipe: Connection, work: Work, name: str, ports: Sequence[int]) -> None:
    targets = [_connected(work, port) for port in ports]
    pipe.send(None)
    pipe.recv()
    piece = memoryview(bytes(work.shape.piece_bytes))
    senders = [threading.Thread(target=_send, args=(each, piece, work.total)) for each in targets]
    for sender in senders:
        sender.start()
    with open(name, "wb", buffering=0) as file:
        for _ in range(work.total // len(piece)):
            file.write(piece)
    for sender in senders:
        sender.join()
    pipe.send(time.monotonic())


def _send(target: Secure, piece: memoryview, total: int) -> None:
    for _ in range(total // len(piece)):
        target.send(piece)


def main() -> None:
    """Print the median of some runs as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    rates = [measure(given.megabytes).mb_per_s for _ in range(given.rounds)]
    found = {"mb_per_s": statistics.median(rates), "range": [min(rates), max(rates)]}
    print(json.dumps({**found, **fastest()._asdict()}))


if __name__ == "__main__":
    main()

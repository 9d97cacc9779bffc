"""The client programs for NATS JetStream: the little of its protocol that they need, over one TLS
connection.

Records go to a stream of three replicas with an answer to each; at most `WINDOW` are without one. A
reader gets them pushed, with nothing to acknowledge. Answers and records are counted, not parsed
one by one, so that the client costs as little as may be.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bench.latency import STAMP
from bench.processes import Clock, ready, stand_by

HOST = "127.0.0.1"
ANSWER_S = 10.0
ANSWER = b'{"type":'
WINDOW = 4_000
CHUNK = 500
READ_BYTES = 1 << 18
SUBJECTS = ("answer", "stored", "read")
"""Each by its name: JetStream pushes to no pattern."""
CONNECT = {"verbose": False, "pedantic": False, "headers": False, "tls_required": True}


class Refused(Exception):
    """The server answered with an error, or not at all."""


class Connection:
    """One connection, of one thread."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        """`told`: the port, and the files of TLS."""
        raw = socket.create_connection((HOST, told["port"]), ANSWER_S)
        while not raw.recv(1 << 14).endswith(b"\r\n"):  # INFO, in plaintext
            pass
        context = ssl.create_default_context(cafile=told["ca"])
        context.load_cert_chain(told["cert"], told["key"])
        self._socket = context.wrap_socket(raw, server_hostname=HOST)
        self.inbox = f"inbox{time.monotonic_ns()}"
        subjects = "".join(f"SUB {self.inbox}.{each} {each}\r\n" for each in SUBJECTS)
        self.send(f"CONNECT {json.dumps(CONNECT)}\r\n{subjects}".encode())
        self._rest = bytearray()
        self._early: list[bytes] = []
        """Records that came with an answer."""

    def send(self, data: bytes) -> None:
        """All of it."""
        self._socket.sendall(data)

    def has_answers(self, seconds: float) -> bool:
        """Whether something comes within this time."""
        return bool(self._socket.pending() or select.select([self._socket], [], [], seconds)[0])

    def take(self) -> Iterator[list[bytes]]:
        """Payloads, as many at a time as have come."""
        while True:
            if self._early:
                found, self._early = self._early, []
                yield found
            piece = self._socket.recv(READ_BYTES)
            if not piece:
                raise Refused("the server closed the connection")
            self._rest += piece
            yield self._whole()

    def _whole(self) -> list[bytes]:
        found, at, data = [], 0, self._rest
        while (line_end := data.find(b"\r\n", at)) >= 0:
            if data.startswith(b"MSG", at):
                begin = line_end + 2
                end = begin + int(data[data.rfind(b" ", at, line_end) + 1 : line_end])
                if end + 2 > len(data):
                    break
                found.append(bytes(data[begin:end]))
                at = end + 2
            else:
                self._answer(bytes(data[at:line_end]))
                at = line_end + 2
        del data[:at]
        return found

    def _answer(self, line: bytes) -> None:
        if line.startswith(b"PING"):
            self.send(b"PONG\r\n")
        elif line.startswith(b"-ERR"):
            raise Refused(line.decode())

    def ask(self, subject: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """What JetStream's API answers. Raises Refused."""
        payload = json.dumps(body).encode()
        head = f"PUB $JS.API.{subject} {self.inbox}.answer {len(payload)}\r\n".encode()
        self.send(head + payload + b"\r\n")
        records, coming, answers = list[bytes](), self.take(), list[bytes]()
        while not answers:
            records += next(coming)
            answers = [each for each in records if each.startswith(ANSWER)]
        self._early = [each for each in records if not each.startswith(ANSWER)]
        answer: dict[str, Any] = json.loads(answers[0])
        if "error" in answer:
            raise Refused(f"{subject}: {answer['error'].get('description')}")
        return answer


class Writer:
    """Publishes with a window, and counts what was stored."""

    def __init__(self, told: Mapping[str, Any], stream: str) -> None:
        self._connection = Connection(told)
        self._head = f"PUB {stream} {self._connection.inbox}.stored".encode()
        self._answers = self._connection.take()
        self.sent = self.stored = 0

    def frame(self, value: bytes) -> bytes:
        """A record as it is sent."""
        return b"%b %d\r\n%b\r\n" % (self._head, len(value), value)

    def write(self, frames: bytes, count: int) -> None:
        """Send so many, once there is room."""
        self.wait(self.sent + count - WINDOW)
        self.sent += count
        self._connection.send(frames)

    def wait(self, stored: int) -> None:
        """Until so many are. Raises Refused."""
        while self.stored < stored:
            self._count()

    def count_for(self, seconds: float) -> None:
        """Take answers that come meanwhile."""
        end = time.monotonic() + seconds
        while self._connection.has_answers(max(0.0, end - time.monotonic())):
            self._count()

    def _count(self) -> None:
        for answer in next(self._answers):
            if b'"error"' in answer:
                raise Refused(answer.decode())
            self.stored += 1


def started(told: Mapping[str, Any], stream: str) -> Writer:
    """A writer whose first record is stored."""
    writer = Writer(told, stream)
    writer.write(writer.frame(b"start"), 1)
    writer.wait(1)
    return writer


def produce(told: Mapping[str, Any], stream: str, given: argparse.Namespace) -> None:
    """As fast as it goes, until the last answer."""
    writer = started(told, stream)
    frame = writer.frame(bytes(given.size))
    stand_by()
    clock, left = Clock(), given.records
    while left > 0:
        count = min(CHUNK, left)
        writer.write(frame * count, count)
        left -= count
    writer.wait(writer.sent)
    clock.found()


def paced(told: Mapping[str, Any], stream: str, given: argparse.Namespace) -> None:
    """So many a second, open loop, each stamped with when it was due."""
    writer, padding = started(told, stream), bytes(given.size - STAMP.size)
    stand_by()
    clock, begun = Clock(), time.monotonic_ns()
    for number in range(given.records):
        due = begun + number * 1_000_000_000 // given.rate
        while (wait := due - time.monotonic_ns()) > 0:
            writer.count_for(wait / 1e9)
        writer.write(writer.frame(STAMP.pack(due) + padding), 1)
    writer.wait(writer.sent)
    clock.found()


def reader(told: Mapping[str, Any], stream: str) -> Iterator[list[bytes]]:
    """Records as they come, from the second one on; the first one is there."""
    connection = Connection(told)
    config = {
        "deliver_subject": f"{connection.inbox}.read",
        "deliver_policy": "all",
        "ack_policy": "none",
    }
    connection.ask(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config})
    coming = connection.take()
    first = next(found for found in coming if found)
    yield first[1:]
    yield from coming


def follow(told: Mapping[str, Any], stream: str, given: argparse.Namespace) -> None:
    """Behind a producer: ready with its first record, done with its last one."""
    coming = reader(told, stream)
    received = len(next(coming))
    ready()
    clock = Clock()
    while received < given.records:
        received += len(next(coming))
    clock.found()


def latencies(told: Mapping[str, Any], stream: str, given: argparse.Namespace) -> None:
    """Of every record behind a paced producer: milliseconds since it was due."""
    coming, found = reader(told, stream), list[float]()
    next(coming)
    ready()
    clock = Clock()
    while len(found) < given.records:
        values, now = next(coming), time.monotonic_ns()
        found += [(now - STAMP.unpack_from(value)[0]) / 1e6 for value in values]
    clock.found(ms=found)


ROLES: dict[str, Callable[[Mapping[str, Any], str, argparse.Namespace], None]] = {
    each.__name__: each for each in (produce, follow, paced, latencies)
}


def main() -> None:
    """One role."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--told", type=json.loads, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--rate", type=int, default=0)
    given = parser.parse_args()
    ROLES[given.role](given.told, given.topic, given)


if __name__ == "__main__":
    main()

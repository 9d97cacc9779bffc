"""The little of the NATS protocol that a comparison needs, over a plain socket: publish with
acknowledgements, ask, read a stream back.

Invariant: a number counts as acknowledged only when JetStream's answer to it named a sequence.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import Any

ANSWER_S = 5.0
QUIET_S = 3.0


class NatsError(Exception):
    """The server refused, or did not answer."""


class Client:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S)
        self._file = self._socket.makefile("rb")
        self._lock = threading.Lock()
        self._answers: dict[str, bytes] = {}
        self._inbox = f"inbox{time.monotonic_ns()}"
        self.acknowledged: set[int] = set()
        self.read: list[bytes] = []
        self.last_read = time.monotonic()
        self._file.readline()  # INFO
        self._send(b'CONNECT {"verbose":false,"pedantic":false,"headers":false}\r\nPING\r\n')
        self._send(f"SUB {self._inbox}.> 1\r\nSUB {self._inbox}read 2\r\n".encode())
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _send(self, data: bytes) -> None:
        with self._lock:
            self._socket.sendall(data)

    def _receive(self) -> None:
        self._socket.settimeout(None)
        try:
            while line := self._file.readline():
                if line.startswith(b"MSG"):
                    words = line.split()
                    payload = self._file.read(int(words[-1]) + 2)[:-2]
                    self._take(words[1].decode(), words[2] == b"2", payload)
                elif line.startswith(b"PING"):
                    self._send(b"PONG\r\n")
        except (OSError, ValueError):
            return

    def _take(self, subject: str, is_read: bool, payload: bytes) -> None:
        if is_read:  # under the subject that it was published to
            self.read.append(payload)
            self.last_read = time.monotonic()
            return
        kind, _, tail = subject.removeprefix(self._inbox + ".").partition(".")
        if kind == "ack":
            if json.loads(payload).get("seq"):
                self.acknowledged.add(int(tail))
        else:
            self._answers[tail] = payload

    def publish(self, subject: str, number: int, payload: bytes) -> None:
        """Publish; the answer will add `number` to `acknowledged`."""
        head = f"PUB {subject} {self._inbox}.ack.{number} {len(payload)}\r\n".encode()
        self._send(head + payload + b"\r\n")

    def ask(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        """What JetStream's API answers. Raises NatsError."""
        name = str(time.monotonic_ns())
        payload = json.dumps(body).encode()
        head = f"PUB $JS.API.{subject} {self._inbox}.answer.{name} {len(payload)}\r\n".encode()
        self._send(head + payload + b"\r\n")
        deadline = time.monotonic() + ANSWER_S
        between_looks = threading.Event()
        while name not in self._answers:
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise NatsError(f"{subject}: no answer")
            between_looks.wait(0.02)
        answer: dict[str, Any] = json.loads(self._answers.pop(name))
        if "error" in answer:
            raise NatsError(f"{subject}: {answer['error'].get('description')}")
        return answer

    def read_stream(self, stream: str) -> list[bytes]:
        """Every message of a stream, through a consumer of its own. Raises NatsError."""
        config = {
            "deliver_subject": f"{self._inbox}read",
            "deliver_policy": "all",
            "ack_policy": "none",
            "replay_policy": "instant",
        }
        self.ask(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config})
        self.last_read = time.monotonic()
        between_looks = threading.Event()
        while time.monotonic() - self.last_read < QUIET_S:
            between_looks.wait(0.1)
        return self.read

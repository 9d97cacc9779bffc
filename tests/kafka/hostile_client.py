"""A client that sends the worst request of every Kafka API, as fast as it is answered."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress

from tests.kafka.worst import worst_requests

PIPELINED, CONNECTIONS = 64, 2
ELEMENTS = 9_000
"""As many as a node takes."""
HOST = "127.0.0.2"
Address = tuple[str, int]


def worst_frames() -> list[bytes]:
    """One of each API, or more where it has several lists."""
    return [each.frame(ELEMENTS) for each in worst_requests()]


def requests(address: Address, frames: Sequence[bytes], sent: list[int]) -> None:
    """Send the worst request of each API in turn, until the process ends."""
    turns = itertools.cycle(frames)
    while True:
        with (
            suppress(OSError),
            socket.create_connection(address, 10, source_address=(HOST, 0)) as bad,
        ):
            bad.settimeout(None)
            room = threading.Semaphore(PIPELINED)
            threading.Thread(target=read_answers, args=(bad, room), daemon=True).start()
            while room.acquire():
                bad.sendall(next(turns))
                sent[0] += 1


def read_answers(bad: socket.socket, room: threading.Semaphore) -> None:
    """Make room for another request behind each answer, until the connection is over."""
    with suppress(OSError):
        while answered(bad):
            room.release()
    with suppress(OSError):
        bad.shutdown(socket.SHUT_RDWR)
    room.release()


def answered(bad: socket.socket) -> bool:
    """Read one answer; False if the connection is closed."""
    head = bad.recv(4, socket.MSG_WAITALL)
    size = int.from_bytes(head, "big")
    return len(head) == 4 and len(bad.recv(size, socket.MSG_WAITALL)) == size

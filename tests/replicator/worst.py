"""The worst native messages: as many of each kind as one read of a socket has room for, and the
longest one of each kind.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

from samelog.config.tables.shared import TlsFiles
from samelog.format import _kernels as kernels
from samelog.runtime.network.tls import client_context
from samelog.wire.bounds import ENDS_TOLD, RowsAsked, RunEnd
from samelog.wire.frames import HEADER_BYTES, encode_data_header
from samelog.wire.holds import HELD_PARTS_TOLD, HeldPart, SessionHolds
from samelog.wire.messages import (
    AnyMessage,
    Close,
    ConfirmEnd,
    ConnectionRole,
    EndRun,
    Hello,
    OpenInput,
    OpenMerged,
    OpenRows,
    OpenRun,
    OpenSession,
    OpenSessionLog,
    OpenTopic,
    Received,
    RollSealed,
    SessionReleased,
    Start,
    encode_message,
)
from samelog.wire.refusals import RefusalsKept
from samelog.wire.transaction_messages import FindAborted
from tests.patience import PATIENCE_S

TOPIC = "hostile"
PARTITIONS = 200
RUN, ID = "a" * 32, "b" * 32


class WorstMessages(NamedTuple):
    """What a connection sends: its first frames, and then `each` for numbers that count up."""

    name: str
    role: ConnectionRole
    first: tuple[AnyMessage, ...]
    each: Callable[[int], AnyMessage | bytes]

    @property
    def hello(self) -> Hello:
        """Who the client is."""
        return Hello(self.role)

    @property
    def channel(self) -> int:
        """Where the frames go: each kind that is pushed has a session of its own."""
        return 1 if self.role is ConnectionRole.PUSH else 0

    def frames(self, size: int) -> bytes:
        """At least `size` bytes of frames, and one that the node answers by closing."""
        made = bytearray()
        for number in count():
            if len(made) >= size:
                break
            frame = self.each(number)
            made += frame if isinstance(frame, bytes) else encode_message(frame, self.channel)
        return bytes(made + encode_message(self.hello))

    def send(self, address: tuple[str, int], tls: TlsFiles, size: int) -> bytes:
        """Send all, once the first messages are answered; what the node has answered then."""
        with open_link(address, tls) as link:
            link.sendall(encode_message(self.hello))
            if self.channel:
                link.sendall(encode_message(OpenSession(self.channel, self.name.lower(), ID)))
            link.sendall(b"".join(encode_message(each, self.channel) for each in self.first))
            for _ in (self.hello, *self.first):
                read_frame(link)
            link.sendall(self.frames(size))
            return b"".join(iter(lambda: link.recv(1 << 16), b""))


def worst_messages() -> Iterator[WorstMessages]:
    """Every kind of message that a client may send, with as much in it as it may have."""
    push, pull = ConnectionRole.PUSH, ConnectionRole.PULL
    run: tuple[AnyMessage, ...] = (OpenRun(0, RUN),)
    in_run, opened = (
        (*run, OpenInput(0, TOPIC, 0, RUN)),
        OpenMerged(0, TOPIC, None, 0, Start.EARLIEST),
    )
    ends = tuple(RunEnd(f"t{n}", n, 0, 0) for n in range(ENDS_TOLD))
    held = tuple(HeldPart(f"t{n}", n, "", 9) for n in range(HELD_PARTS_TOLD))
    data = kernels.build_batches(
        [b"v"], timestamps=1, batch_bytes=1 << 14, max_record_bytes=1 << 20
    )
    yield WorstMessages("OpenRun", push, (), lambda n: OpenRun(n, f"{n:032d}"))
    yield WorstMessages("OpenInput", push, run, lambda n: OpenInput(n, TOPIC, n % PARTITIONS, RUN))
    yield WorstMessages("OpenTopic", push, run, lambda n: OpenTopic(TOPIC, PARTITIONS))
    yield WorstMessages("Close", push, run, Close)
    yield WorstMessages("EndRun", push, run, lambda n: EndRun(RUN, ends, more=True))
    named = tuple(RunEnd(TOPIC, n % PARTITIONS, 0, 9) for n in range(ENDS_TOLD))
    yield WorstMessages("EndRun.named", push, run, lambda n: EndRun(RUN, named, more=False))
    yield WorstMessages("SessionHolds", push, run, lambda n: SessionHolds(held))
    for message in (RollSealed(0, 0, 0), SessionReleased(0, 0, 0), RefusalsKept(0, 0, 0)):
        yield WorstMessages(type(message).__name__, push, in_run, always(message))
    yield WorstMessages(
        "DATA",
        push,
        in_run,
        lambda n: encode_data_header(0, 0, n * len(data), len(data), 1) + data,
    )
    for start in Start:
        yield WorstMessages(f"OpenMerged {start.name}", pull, (), opens(start))
    where = " OR ".join(f"a{n} = {n}" for n in range(500))
    rows = RowsAsked(where[:8000].rsplit(" OR ", 1)[0], (), 0)
    yield WorstMessages(
        "OpenRows",
        pull,
        (),
        lambda n: OpenRows(n, TOPIC, None, n % PARTITIONS, Start.EARLIEST, rows=rows),
    )
    columns = RowsAsked("", tuple(f"c{n}" for n in range(1000)), 1)
    yield WorstMessages(
        "OpenRows columns",
        pull,
        (),
        lambda n: OpenRows(n, TOPIC, None, n % PARTITIONS, Start.EARLIEST, rows=columns),
    )
    yield WorstMessages(
        "OpenSession", push, (), lambda n: encode_message(OpenSession(n + 2, f"s{n}", ID))
    )
    yield WorstMessages(
        "OpenSessionLog",
        pull,
        (),
        lambda n: OpenSessionLog(n, "hostile", TOPIC, ID, n % PARTITIONS, 0, 0, 0),
    )
    yield WorstMessages("Received", pull, (opened,), lambda n: Received(0, 0))
    yield WorstMessages("ConfirmEnd", pull, (opened,), lambda n: ConfirmEnd(0))
    yield WorstMessages("FindAborted", pull, (opened,), lambda n: FindAborted(0, 0, 1 << 60))


def opens(start: Start) -> Callable[[int], AnyMessage]:
    """Open the topic's partitions in turn."""
    return lambda number: OpenMerged(number, TOPIC, None, number % PARTITIONS, start)


def always(message: AnyMessage) -> Callable[[int], AnyMessage]:
    """Make the same message for each number."""
    return lambda number: message


def open_link(address: tuple[str, int], tls: TlsFiles) -> ssl.SSLSocket:
    """A connection of a client that speaks samelog's protocol."""
    context = client_context(tls)
    context.check_hostname = False
    return context.wrap_socket(socket.create_connection(address, PATIENCE_S))


def read_frame(link: ssl.SSLSocket) -> bytes:
    """One whole frame."""
    head = _read(link, HEADER_BYTES)
    return head + _read(link, int.from_bytes(head[:4], "big"))


def _read(link: ssl.SSLSocket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = link.recv(size - len(data))
        if not more:
            raise ConnectionError("the node has closed the connection")
        data += more
    return bytes(data)

"""What a member sends another one on their bulk connection: the logs of many groups side by side,
each group with credit of its own.

A credit is for what one group sends of one kind: session bytes, which records wait for, or merged
bytes, of which whoever catches up wants as many as it can get. Each credit is a window, as a
connection to a subscriber has one, and they take turns. Of merged bytes, a log of which nothing is
under way gets a small piece though the window is full: its reader may hold back others (recovery is
paced), and a batch that mends damage must not wait for that.

Invariant: what is under way by one credit takes nothing from the window of another one, and a
credit that has something to send and room is asked again after at most one step of every other one.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import NamedTuple

from samelog.wire.sender import FIRST_BYTES, PartTurn, ReadRange, Seal, Sender, SentStream


class Credit(NamedTuple):
    """Whose a window is: of a group, for one kind of bytes."""

    group: int
    is_merged: bool


class SharedSender:
    """All that one connection has to send. It is used as a `Sender` is."""

    def __init__(self, *, window_bytes: int, read_bytes: int) -> None:
        """`window_bytes`: of each credit."""
        self.streams: dict[int, SentStream] = {}
        """By handle; for others to read."""
        self.ready: deque[Credit] = deque()
        """Credits with something to send, though perhaps their windows are full."""
        self._window_bytes = window_bytes
        self._read_bytes = read_bytes
        self._credits: dict[Credit, Sender] = {}
        self._credit_of: dict[int, Credit] = {}
        self._part = PartTurn()
        self._queued: set[Credit] = set()
        """What is in `ready`."""

    def assign(self, handle: int, credit: Credit) -> None:
        """`handle` is about to be added: it uses this credit."""
        self._credit_of[handle] = credit
        if credit not in self._credits:
            sender = Sender(
                window_bytes=self._window_bytes, read_bytes=self._read_bytes, part=self._part
            )
            sender.streams = self.streams
            self._credits[credit] = sender

    def in_flight_bytes(self, credit: Credit) -> int:
        """Sent and not acknowledged."""
        return self._credits[credit].in_flight_bytes if credit in self._credits else 0

    def position(self, handle: int) -> tuple[int, int]:
        """See Sender."""
        stream = self.streams[handle]
        return stream.file, stream.byte

    def add(self, handle: int, file: int, byte: int) -> None:
        """See Sender; the handle was assigned."""
        self._sender(handle).add(handle, file, byte)

    def remove(self, handle: int) -> None:
        """See Sender."""
        credit = self._credit_of.pop(handle, None)
        if credit is not None:
            self._credits[credit].remove(handle)

    def available(self, handle: int, file: int, end: int, *, next_file: int | None = None) -> None:
        """See Sender."""
        self._sender(handle).available(handle, file, end, next_file=next_file)
        self._enqueue(self._credit_of[handle])

    def jump(self, handle: int, file: int, byte: int) -> None:
        """See Sender."""
        self._sender(handle).jump(handle, file, byte)
        self._enqueue(self._credit_of[handle])

    def next_read(self) -> ReadRange | Seal | None:
        """What to do next; None: nothing to send, or every window is full."""
        for _ in range(len(self.ready)):
            credit = self.ready[0]
            sender = self._credits[credit]
            step = sender.next_read()
            if step is None and sender.ready and credit.is_merged:
                step = sender.next_first_read(FIRST_BYTES)
            if step is not None:
                return step
            self.ready.popleft()
            if sender.ready:
                self.ready.append(credit)
            else:
                self._queued.discard(credit)
        return None

    def begin_part(self, handle: int, size_bytes: int) -> bool:
        """See Sender."""
        return self._sender(handle).begin_part(handle, size_bytes, partial(self._go_on, handle))

    def _go_on(self, handle: int) -> None:
        credit = self._credit_of.get(handle)
        if credit is not None:
            self._credits[credit].go_on(handle)
            self._enqueue(credit)

    def sent(self, handle: int, size_bytes: int) -> None:
        """See Sender; it is the next credit's turn."""
        self._sender(handle).sent(handle, size_bytes)
        if self.ready and self.ready[0] == self._credit_of[handle]:
            self.ready.rotate(-1)

    def received(self, handle: int, size_bytes: int) -> None:
        """See Sender."""
        credit = self._credit_of.get(handle)
        if credit is not None:
            self._credits[credit].received(handle, size_bytes)

    def _sender(self, handle: int) -> Sender:
        return self._credits[self._credit_of[handle]]

    def _enqueue(self, credit: Credit) -> None:
        if self._credits[credit].ready and credit not in self._queued:
            self._queued.add(credit)
            self.ready.append(credit)

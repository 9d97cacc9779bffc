"""What a member sends another one on their bulk connection: the logs of many groups side by side,
each group with credit of its own.

A lane is what one group sends of one kind: session bytes, which records wait for, or merged bytes,
of which whoever catches up wants as many as it can get. Each lane has a window, as a connection to
a subscriber has, and lanes take turns. In a lane of merged bytes a log of which nothing is under
way gets a small piece though the window is full: its reader may hold back others (recovery is
paced), and a batch that mends damage must not wait for that.

Invariant: what is under way of one lane takes nothing from the window of another one, and a lane
that has something to send and room is asked again after at most one step of every other lane.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from samelog.wire.sender import ReadRange, Seal, Sender, SentStream

FIRST_BYTES = 64 << 10
"""Of a log of which nothing is under way, in a window that others have filled."""


class Lane(NamedTuple):
    """What shares a window."""

    group: int
    is_merged: bool


class SharedSender:
    """All lanes of one connection. It is used as a `Sender` is."""

    def __init__(self, *, window_bytes: int, read_bytes: int) -> None:
        """`window_bytes`: of each lane."""
        self.streams: dict[int, SentStream] = {}
        """By handle; for others to read."""
        self.ready: deque[Lane] = deque()
        """Lanes with something to send, though perhaps their windows are full."""
        self._window_bytes = window_bytes
        self._read_bytes = read_bytes
        self._lanes: dict[Lane, Sender] = {}
        self._lane_of: dict[int, Lane] = {}
        self._queued: set[Lane] = set()
        """What is in `ready`."""

    def assign(self, handle: int, lane: Lane) -> None:
        """`handle` is about to be added: it belongs there."""
        self._lane_of[handle] = lane
        if lane not in self._lanes:
            sender = Sender(window_bytes=self._window_bytes, read_bytes=self._read_bytes)
            sender.streams = self.streams
            self._lanes[lane] = sender

    def in_flight_bytes(self, lane: Lane) -> int:
        """Sent and not acknowledged."""
        return self._lanes[lane].in_flight_bytes if lane in self._lanes else 0

    def position(self, handle: int) -> tuple[int, int]:
        """See Sender."""
        stream = self.streams[handle]
        return stream.file, stream.byte

    def add(self, handle: int, file: int, byte: int) -> None:
        """See Sender; the handle was assigned."""
        self._sender(handle).add(handle, file, byte)

    def remove(self, handle: int) -> None:
        """See Sender."""
        lane = self._lane_of.pop(handle, None)
        if lane is not None:
            self._lanes[lane].remove(handle)

    def available(self, handle: int, file: int, end: int, *, next_file: int | None = None) -> None:
        """See Sender."""
        self._sender(handle).available(handle, file, end, next_file=next_file)
        self._enqueue(self._lane_of[handle])

    def jump(self, handle: int, file: int, byte: int) -> None:
        """See Sender."""
        self._sender(handle).jump(handle, file, byte)
        self._enqueue(self._lane_of[handle])

    def next_read(self) -> ReadRange | Seal | None:
        """What to do next; None: nothing to send, or every window is full."""
        for _ in range(len(self.ready)):
            lane = self.ready[0]
            sender = self._lanes[lane]
            step = sender.next_read()
            if step is None and sender.ready and lane.is_merged:
                step = sender.next_first_read(FIRST_BYTES)
            if step is not None:
                return step
            self.ready.popleft()
            if sender.ready:
                self.ready.append(lane)
            else:
                self._queued.discard(lane)
        return None

    def sent(self, handle: int, size_bytes: int) -> None:
        """See Sender; it is the next lane's turn."""
        self._sender(handle).sent(handle, size_bytes)
        if self.ready and self.ready[0] == self._lane_of[handle]:
            self.ready.rotate(-1)

    def received(self, handle: int, size_bytes: int) -> None:
        """See Sender."""
        lane = self._lane_of.get(handle)
        if lane is not None:
            self._lanes[lane].received(handle, size_bytes)

    def _sender(self, handle: int) -> Sender:
        return self._lanes[self._lane_of[handle]]

    def _enqueue(self, lane: Lane) -> None:
        if self._lanes[lane].ready and lane not in self._queued:
            self._queued.add(lane)
            self.ready.append(lane)

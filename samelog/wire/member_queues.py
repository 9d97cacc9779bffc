"""What waits to be sent to another member, on each of the two connections to it.

Control carries what the members' agreement needs: short frames, heartbeats and votes before
anything else. Bulk carries what is long: frames of many groups, each with credit of its own, which
take turns.

Invariant: no frame of a control queue is longer than `CONTROL_FRAME_BYTES`; what is urgent never
waits behind what is not; what a group has waiting takes nothing from the credit of another one.
"""

from __future__ import annotations

from collections import deque

from samelog.wire.errors import FrameError, FrameProblem
from samelog.wire.frames import HEADER_BYTES

CONTROL_FRAME_BYTES = 64 << 10
"""Payload of a frame on a control connection."""
URGENT_BYTES = 256 << 10
OTHER_BYTES = 1 << 20
"""May wait; more is dropped, as on a connection that is away."""
GROUP_BYTES = 2 << 20
"""Each group may have so much waiting; a first frame may be longer."""


class ControlQueue:
    """Whole frames for one control connection, while it cannot take them."""

    def __init__(self) -> None:
        self._urgent: deque[bytes] = deque()
        self._others: deque[bytes] = deque()
        self._room = {True: URGENT_BYTES, False: OTHER_BYTES}

    def __bool__(self) -> bool:
        return bool(self._urgent or self._others)

    def put(self, frame: bytes, *, urgent: bool) -> bool:
        """False: there is no room, and the frame is dropped. Raises FrameError if it is too long
        for a control connection.
        """
        check_control(len(frame) - HEADER_BYTES)
        if len(frame) > self._room[urgent]:
            return False
        self._room[urgent] -= len(frame)
        (self._urgent if urgent else self._others).append(frame)
        return True

    def take(self) -> bytes:
        """The next frame. Raises IndexError when there is none."""
        urgent = bool(self._urgent)
        frame = (self._urgent if urgent else self._others).popleft()
        self._room[urgent] += len(frame)
        return frame

    def clear(self) -> None:
        """The connection is over: lost messages are sent again, or repeated by Raft."""
        self._urgent.clear()
        self._others.clear()
        self._room = {True: URGENT_BYTES, False: OTHER_BYTES}


class GroupQueues:
    """Whole frames for one bulk connection, of each group in order."""

    def __init__(self) -> None:
        self._waiting: dict[int, deque[bytes]] = {}
        """Groups with something to send; the first one's turn it is."""
        self._bytes: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, group: int, frame: bytes) -> bool:
        """False: the group has used its credit, and the frame is dropped."""
        used = self._bytes.get(group, 0)
        if used and used + len(frame) > GROUP_BYTES:
            return False
        self._bytes[group] = used + len(frame)
        self._waiting.setdefault(group, deque()).append(frame)
        return True

    def take(self) -> bytes:
        """The next frame. Raises StopIteration when there is none."""
        group = next(iter(self._waiting))
        frames = self._waiting.pop(group)
        frame = frames.popleft()
        self._bytes[group] -= len(frame)
        if frames:
            self._waiting[group] = frames
        else:
            del self._bytes[group]
        return frame

    def clear(self) -> None:
        """The connection is over."""
        self._waiting.clear()
        self._bytes.clear()


def check_control(size_bytes: int) -> None:
    """Raises FrameError for a payload that is too long for a control connection."""
    if size_bytes > CONTROL_FRAME_BYTES:
        text = f"{size_bytes} bytes on a control connection, the limit is {CONTROL_FRAME_BYTES}"
        raise FrameError(FrameProblem.TOO_LONG, text)

"""A node's end of a pull connection, as a pure state: what is sent of which log, and what is told.

The driver opens logs, reads them and says when they change; after each call it carries out
`effects` in their order, goes on with `next_step` as long as the connection takes more, and calls
`rest` when there is nothing more to send.

Invariant: what is sent for a handle is contiguous, and within the log as it was offered; a handle
that was refused gets nothing more.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from typing import Protocol

import msgspec

from samelog.wire.effects import Send, SendMore
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import (
    AnyMessage,
    CaughtUp,
    LogArchived,
    Refused,
    RollSealed,
    SegmentSealed,
    TopicGone,
)
from samelog.wire.pull.refusal import Refusal
from samelog.wire.push.effects import FileExtent
from samelog.wire.sender import ReadRange, Seal, Sender
from samelog.wire.shared_sender import SharedSender

READ_BYTES = 1 << 20
MAX_HANDLES = 1 << 14
REST_HANDLES = 128
"""Handles that one `rest` checks."""
CAUGHT_UP_INTERVAL_S = 0.1
"""CaughtUp follows new data of a handle at most this often; the first one at once."""
BEGINNING = (0, 0, 0)

FilePosition = tuple[int, int]
"""(file, byte): the file is the roll of a session log, the base offset of a segment."""


class SentLog(Protocol):
    """A log that is sent: values only, no access to its files."""

    def extent(self, file: int) -> FileExtent | None:
        """How far `file` reaches; None if it is not held."""

    def sealed(self, seal: Seal) -> RollSealed | SegmentSealed:
        """The message that says that a file is sent to its end."""

    def end(self) -> FilePosition:
        """Where the log ends."""

    def end_offset(self) -> int:
        """The next offset of a merged log; 0 for a session log."""

    @property
    def shows_end(self) -> bool:
        """Whether DATA shows a reader that has caught up where the log ends."""

    def log_start(self) -> tuple[int, int, int]:
        """(first offset, segment that holds it, checksum there) of a merged log; else zeros."""


@dataclass(slots=True)
class _SentHandle:
    """One open handle. `offered`: the file that is being sent, and how far it reaches."""

    number: int
    log: SentLog
    offered: FilePosition = (-1, 0)
    told_start: tuple[int, int, int] = BEGINNING
    told_end: FilePosition | None = None
    """An end of the log that the reader knows to be one; None: none yet."""
    next_caught_up_at: float = 0.0
    confirmed_end: int = 0
    """The offset that EndConfirmed named, until a CaughtUp has told that it was reached."""


class LetGo(msgspec.Struct, frozen=True):
    """The log of this handle is sent no more."""

    handle: int


PullEffect = Send | SendMore | LetGo


class PullSender:
    """One connection."""

    def __init__(self, sender: Sender | SharedSender) -> None:
        self.effects: list[PullEffect] = []
        """To be carried out in this order; whoever does takes them off."""
        self._sender = sender
        self.ready: Sized = sender.ready
        """What has something to send."""
        self._handles: dict[int, _SentHandle] = {}
        self._sent_to: set[int] = set()
        """Handles that may have caught up since that was told last."""
        self._told_lately: dict[int, float] = {}
        """Such handles that have just got a CaughtUp, and when the next one is due."""

    def position(self, number: int) -> FilePosition:
        """The position up to which a handle's bytes were sent."""
        return self._sender.position(number)

    # --- opening and ending -------------------------------------------------------------------

    def check_free(self, number: int) -> None:
        """Raises ProtocolFault if a handle cannot be opened."""
        if number in self._handles:
            raise ProtocolFault(FaultCode.PROTOCOL, f"handle {number} is open already")
        if len(self._handles) >= MAX_HANDLES:
            raise ProtocolFault(FaultCode.TOO_MANY, f"more than {MAX_HANDLES} handles")

    def open(
        self,
        number: int,
        log: SentLog,
        opened: AnyMessage,
        at: FilePosition,
        *,
        skips: bool = False,
    ) -> None:
        """Send a log from `at` on; `opened` says so. `skips`: the reader's end is archived here."""
        handle = self._handles[number] = _SentHandle(number, log)
        if skips:
            self._tell_start(handle)
        self.effects.append(Send(opened))
        self._sender.add(number, *at)
        self._sent_to.add(number)
        if self.changed(number):
            self.effects.append(SendMore())

    def refuse(self, number: int, refusal: Refusal) -> None:
        """End one handle. The connection stays open."""
        self.close(number)
        code, message, remedy, earliest, successor = refusal
        if code is FaultCode.TOPIC_GONE:
            self.effects.append(Send(TopicGone(number, successor or None)))
        else:
            self.effects.append(Send(Refused(number, code, message, remedy, earliest)))

    def close(self, number: int) -> None:
        """Stop sending for a handle."""
        self._sender.remove(number)
        self._sent_to.discard(number)
        self._told_lately.pop(number, None)
        if self._handles.pop(number, None) is not None:
            self.effects.append(LetGo(number))

    # --- sending ------------------------------------------------------------------------------

    def changed(self, number: int) -> bool:
        """A log grew, or was archived; return whether there may be more to send."""
        handle = self._handles.get(number)
        if handle is None:
            return False
        if handle.log.log_start() != handle.told_start:
            self._follow_start(handle)
        if not self._offer(handle):
            return False
        self._sent_to.add(number)
        return True

    def _follow_start(self, handle: _SentHandle) -> None:
        """What is archived is sent no more; the other side archives it too."""
        segment = self._tell_start(handle)
        if self._sender.position(handle.number) < (segment, 0):
            self._sender.jump(handle.number, segment, 0)
            handle.offered = (-1, 0)

    def _tell_start(self, handle: _SentHandle) -> int:
        """Tell the other side where the log starts now; the segment."""
        start = handle.told_start = handle.log.log_start()
        offset, segment, checksum = start
        if start != BEGINNING:
            self.effects.append(Send(LogArchived(handle.number, segment, offset, checksum)))
        return segment

    def _offer(self, handle: _SentHandle) -> bool:
        """Tell the sender how far the file reaches that it is sending; False: the handle ended."""
        number = handle.number
        stream = self._sender.streams[number]
        file, byte = stream.file, stream.byte
        extent = handle.log.extent(file)
        least = handle.offered[1] if handle.offered[0] == file else byte
        if extent is None or extent.end < least:
            text = "this node's log was cut here"
            self.refuse(number, Refusal(FaultCode.NOT_READY, text, "ask another node"))
            return False
        handle.offered = (file, extent.end)
        self._sender.available(number, file, extent.end, next_file=extent.next_file)
        return True

    def next_step(self) -> ReadRange | RollSealed | SegmentSealed | None:
        """What to do next: ship what is to be read, and answer with `sent` or `refuse`; or say that
        a file is sent. None: nothing, or a full window.
        """
        wanted = self._sender.next_read()
        if not isinstance(wanted, Seal):
            return wanted
        handle = self._handles[wanted.handle]
        self._sent_to.add(wanted.handle)
        self._offer(handle)
        return handle.log.sealed(wanted)

    def begin_part(self, number: int, size_bytes: int) -> bool:
        """Whether a batch that is too long for a frame can be sent in parts now."""
        return self._sender.begin_part(number, size_bytes)

    def sent(self, number: int, size_bytes: int) -> None:
        """Note that bytes were sent."""
        self._sender.sent(number, size_bytes)
        self._sent_to.add(number)

    def received(self, number: int, size_bytes: int) -> None:
        """Note that the reader has received bytes. Raises ProtocolFault (OUT_OF_RANGE)."""
        self._sender.received(number, size_bytes)
        self.effects.append(SendMore())

    def confirmed(self, number: int, end_offset: int) -> None:
        """Note that the reader has learnt that the log reaches to an offset: this node may have
        less, so a CaughtUp is to follow once all of it is sent.
        """
        handle = self._handles.get(number)
        if handle is not None:
            handle.confirmed_end = end_offset

    def rest(self, now: float) -> float | None:
        """All is sent that can be: tell who has caught up, but those told a moment ago later.

        Returns when to call again for that; None: there is nothing more to tell.
        """
        due_at = min(self._told_lately.values(), default=now)
        if due_at <= now:
            self._sent_to.update(self._told_lately)
            self._told_lately.clear()
        for _ in range(min(REST_HANDLES, len(self._sent_to))):
            handle = self._handles[self._sent_to.pop()]
            end, stream = handle.log.end(), self._sender.streams[handle.number]
            told = handle.told_end
            if (stream.file, stream.byte) != end or end == told:
                continue
            if told and told[0] == end[0] and handle.log.shows_end and not handle.confirmed_end:
                handle.told_end = end  # DATA has shown it
            else:
                self._caught_up(handle, end, now)
        if self._sent_to:
            return now
        return min(self._told_lately.values(), default=None)

    def _caught_up(self, handle: _SentHandle, end: FilePosition, now: float) -> None:
        """Everything is sent: send CaughtUp, unless one was sent lately."""
        if now < handle.next_caught_up_at:
            self._told_lately[handle.number] = handle.next_caught_up_at
        else:
            handle.told_end, handle.next_caught_up_at = end, now + CAUGHT_UP_INTERVAL_S
            end_offset = handle.log.end_offset()
            if end_offset >= handle.confirmed_end:
                handle.confirmed_end = 0
            self.effects.append(Send(CaughtUp(handle.number, end_offset)))

"""What this side has open on one pull connection: handles, and who reads each of them.

Invariant: a reader gets its log's bytes in order, without gap or overlap, from where it was opened;
after `close`, or a fault, it is never called again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from samelog.replicator.handler import ReplicatorHandler, unexpected
from samelog.replicator.interfaces import FilePosition
from samelog.replicator.pull.acknowledger import Acknowledger, Budget
from samelog.runtime.errors import ConnectionLost, RuntimeFault
from samelog.runtime.network.transport import Connection
from samelog.wire.bounds import Holder
from samelog.wire.errors import FaultCode
from samelog.wire.messages import (
    AnyMessage,
    CaughtUp,
    Close,
    ConfirmEnd,
    EndConfirmed,
    Holders,
    LogArchived,
    MergedStartsAt,
    OpenMerged,
    OpenSessionLog,
    Refused,
    RollSealed,
    SegmentSealed,
    SessionStartsAt,
    TopicGone,
    Welcome,
)
from samelog.wire.receiver import Receiver
from samelog.wire.transaction_messages import AbortedFound, FindAborted

StartsAt = MergedStartsAt | SessionStartsAt
MakeOpen = Callable[[int], OpenMerged | OpenSessionLog]
"""Makes the request for a handle of this number."""


class PullRefused(RuntimeFault):
    """The peer will not, or cannot, send what was asked for."""

    def __init__(self, code: FaultCode, message: str, remedy: str, earliest: int = -1) -> None:
        """`earliest`: the first offset that can be read; -1: not said."""
        super().__init__(f"{code.name}: {message}" + (f" ({remedy})" if remedy else ""))
        self.code = code
        self.earliest = earliest
        self.message = message
        self.remedy = remedy
        self.holders: tuple[Holder, ...] = ()
        """With NOT_LEADER: the nodes that have it, as the one that was asked said."""


class PullReader(Protocol):
    """Who reads one handle, in the event loop."""

    @property
    def place(self) -> FilePosition | None:
        """Where it wants to begin; None: wherever the peer says."""

    def on_opened(self, opened: StartsAt) -> None:
        """DATA will come. Raises ProtocolFault, which ends the connection."""

    def on_data(self, file: int, byte: int, data: memoryview) -> int:
        """Whole batches for `byte` of `file`; `data` is valid during the call only. Returns how
        many bytes are taken now; of the others `Handles.taken` tells.
        """

    def on_sealed(self, file: int, length: int, next_file: int) -> None:
        """`file` ends at `length`; what follows is for `next_file`."""

    def on_caught_up(self) -> None:
        """The peer has no more for now."""

    def on_end(self, end_offset: int) -> None:
        """`Handles.confirm_end` was asked: the cluster has so much."""

    def on_aborted(self, found: AbortedFound) -> None:
        """`Handles.find_aborted` was asked."""

    def on_fault(self, error: Exception) -> None:
        """Nothing more will come."""


class Handles(ReplicatorHandler):
    """One connection. Implements transport.Handler."""

    def __init__(self, connection: Connection, acknowledger: Acknowledger) -> None:
        self.connection = connection
        self._acknowledger = acknowledger
        self._receiver = Receiver()
        self._readers: dict[int, PullReader] = {}
        self._budgets: dict[int, Budget] = {}
        self._next = 0
        self._holders: tuple[Holder, ...] = ()
        """Of what is refused next."""
        self.told: tuple[Holder, ...] = ()
        """Nodes that the peer told of last, and where they are."""

    def open(self, reader: PullReader, make_open: MakeOpen, budget: Budget | None = None) -> int:
        """Ask the peer to send a log to `reader`, no faster than `budget` allows; the handle."""
        handle, self._next = self._next, self._next + 1
        self._readers[handle] = reader
        if budget is not None:
            self._budgets[handle] = budget
        self.connection.send(make_open(handle))
        return handle

    def taken(self, handle: int, size_bytes: int) -> None:
        """A reader has taken so much of what it was given."""
        self._acknowledger.took(handle, size_bytes)

    def confirm_end(self, handle: int) -> None:
        """Ask where the merged log ended at this moment, also where the peer lags behind that."""
        self.connection.send(ConfirmEnd(handle))

    def find_aborted(self, handle: int, first: int, stop: int, behind: int) -> None:
        """Ask which transactions with records in [first, stop) were aborted, by markers that are
        behind an offset.
        """
        self.connection.send(FindAborted(handle, first, stop, behind))

    def close(self, handle: int) -> None:
        """Let go of a handle, if it is there: the peer sends no more for it."""
        self._budgets.pop(handle, None)
        if self._readers.pop(handle, None) is not None:
            self._receiver.forget(handle)
            self.connection.send(Close(handle))

    @property
    def is_idle(self) -> bool:
        """Whether nobody reads anything."""
        return not self._readers

    # --- from the connection ------------------------------------------------------------------

    def on_message(self, message: AnyMessage) -> None:
        """Anything a pull server sends."""
        match message:
            case Holders():
                self._holders = self.told = message.nodes
            case Welcome():
                self._holders = ()
            case MergedStartsAt() | SessionStartsAt():
                self._opened(message)
            case RollSealed(handle, roll, length):
                self._sealed(handle, roll, length, roll + 1)
            case SegmentSealed(handle, base_offset, length, next_offset):
                self._sealed(handle, base_offset, length, next_offset)
            case CaughtUp() | EndConfirmed() | AbortedFound():
                self._told_end(message)
            case LogArchived():
                self._archived(message)
            case TopicGone() | Refused():
                self._refused(message)
            case _:
                raise unexpected(message)

    def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        """A piece. (What comes for a handle let go of was sent before the peer knew.)"""
        if not self._receiver.expects(handle):
            return
        self._receiver.receive(handle, file, byte, len(data))
        taken = self._readers[handle].on_data(file, byte, data)
        if taken:
            self._acknowledger.took(handle, taken, self._budgets.get(handle))

    def on_closed(self, error: Exception | None) -> None:
        """All handles fail."""
        self._acknowledger.close()
        readers, self._readers = self._readers, {}
        for reader in readers.values():
            reader.on_fault(error or ConnectionLost("this side closed the connection"))

    def _opened(self, message: StartsAt) -> None:
        reader = self._readers.get(message.handle)
        if reader is None or self._receiver.expects(message.handle):
            return
        reader.on_opened(message)
        file = message.base_offset if isinstance(message, MergedStartsAt) else message.roll
        self._receiver.expect(message.handle, file, message.byte)

    def _sealed(self, handle: int, file: int, length: int, next_file: int) -> None:
        if self._receiver.expects(handle):
            self._receiver.sealed(handle, file, length, next_file)
            self._readers[handle].on_sealed(file, length, next_file)

    def _told_end(self, message: CaughtUp | EndConfirmed | AbortedFound) -> None:
        reader = self._readers.get(message.handle)
        if reader is None:
            return
        if isinstance(message, CaughtUp):
            reader.on_caught_up()
        elif isinstance(message, AbortedFound):
            reader.on_aborted(message)
        else:
            reader.on_end(message.end_offset)

    def _archived(self, message: LogArchived) -> None:
        """What was archived is sent no more; what came before that can still be taken."""
        reader = self._readers.get(message.handle)
        if reader is None:
            return
        is_open = self._receiver.expects(message.handle)
        place = self._receiver.position(message.handle) if is_open else reader.place
        if place is not None and place < (message.base_offset, 0):
            text = f"archived below offset {message.offset}"
            self.close(message.handle)
            reader.on_fault(PullRefused(FaultCode.OUT_OF_RANGE, text, "", message.offset))

    def _refused(self, message: TopicGone | Refused) -> None:
        """The peer does not, or does no more, send what was asked for."""
        if isinstance(message, TopicGone):
            refused = PullRefused(FaultCode.TOPIC_GONE, "the topic was deleted", "let it go")
        else:
            code, text, remedy = message.code, message.message, message.remedy
            refused = PullRefused(code, text, remedy, message.earliest)
            refused.holders, self._holders = self._holders, ()
        self._receiver.forget(message.handle)
        reader = self._readers.pop(message.handle, None)
        if reader is not None:
            reader.on_fault(refused)

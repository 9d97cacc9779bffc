"""One run of a session on its way to one node, over one connection: its inputs and their bytes.

Every input is opened at the node, which says where to resume. If the bytes before that are not the
same on both sides, that is a fork, and nothing more is shipped. A node may hold more than this
side: after a power loss here, or because it got the bytes from another node.

Invariant: of each input whole valid batches are sent, contiguous from the position the node has
given; nothing of an input goes to a topic of another id than the run has begun with.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from samelog.format.directory_files import RunFile
from samelog.format.errors import LogFormatError
from samelog.replicator.handler import failing
from samelog.replicator.interfaces import InputName, Place
from samelog.replicator.push.local_session import LocalSession
from samelog.replicator.push.session_tail import RunTail
from samelog.replicator.turns import Turns
from samelog.runtime.network.transport import Connection
from samelog.store.disk.files import NoSuchFile
from samelog.wire.bounds import RunEnd
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import (
    Close,
    OpenInput,
    Refused,
    RollSealed,
    SessionReleased,
    SessionStartsAt,
)
from samelog.wire.receiver import check_common
from samelog.wire.sender import ReadRange, Seal, Sender

MAX_OPENING = 64
ANSWER_S = 60.0
"""The node may have to wait for its cluster before it answers."""
RETRY_S = 1.0
GIVE_UP_S = 10.0
LASTING = frozenset(
    {
        FaultCode.UNKNOWN_TOPIC,
        FaultCode.NOT_AUTHORISED,
        FaultCode.INVALID_NAME,
        FaultCode.INVALID_BATCH,
    }
)
"""Refusals that time alone does not mend."""


class State(Enum):
    """Of one input."""

    WAITING = auto()
    """To be opened, when it is its turn."""
    OPENING = auto()
    AHEAD = auto()
    """The node holds more than is known to be whole here."""
    SHIPPING = auto()
    BLOCKED = auto()
    """Refused, or unreadable here: to be opened again in a while."""
    GONE = auto()
    """Nothing is to be sent any more: the topic was deleted, or the files were released."""


@dataclass(slots=True, eq=False)
class ShippedInput:
    """One input. `since`: when it came into its state; `refused_since`: for good, as it seems."""

    name: InputName
    tail: RunTail
    listener: Callable[[], None]
    state: State = State.WAITING
    since: float = 0.0
    handle: int = -1
    position: SessionStartsAt | None = None
    reason: str = ""
    refused_since: float | None = None


@dataclass(slots=True, eq=False)
class Channel:
    """A connection as its shipments use it."""

    connection: Connection
    sender: Sender
    turns: Turns
    window_bytes: int
    now: Callable[[], float]
    next_handle: int = 0

    def new_handle(self) -> int:
        """A number that was never used on this connection."""
        self.next_handle += 1
        return self.next_handle - 1


class RunShipment:
    """One run, one node, one connection."""

    def __init__(
        self,
        channel: Channel,
        session: LocalSession,
        record: RunFile,
        *,
        on_gone: Callable[[InputName], None],
        is_given_up: Callable[[int, InputName], bool],
    ) -> None:
        self.record = record
        self._channel = channel
        self._session = session
        self._on_gone = on_gone
        self._is_given_up = is_given_up
        self._inputs: dict[InputName, ShippedInput] = {}
        self._by_handle: dict[int, ShippedInput] = {}
        self._waiting: deque[ShippedInput] = deque()
        self._hungry: dict[ShippedInput, None] = {}
        """Inputs whose files may hold more than is known."""

    # --- opening ------------------------------------------------------------------------------

    def look(self) -> None:
        """Take up inputs that are new."""
        for name in self._session.inputs_of(self.record.run):
            if name not in self._inputs:
                self._add(name)
        self._open_some()

    def _add(self, name: InputName) -> None:
        tail = self._session.tail(self.record.run, name)
        added = ShippedInput(name, tail, lambda: self._tail_changed(added))
        self._inputs[name] = added
        self._waiting.append(added)
        tail.add_listener(added.listener)

    def _open_some(self) -> None:
        opening = sum(shipped.state is State.OPENING for shipped in self._by_handle.values())
        while self._waiting and opening < MAX_OPENING:
            shipped = self._waiting.popleft()
            shipped.handle = self._channel.new_handle()
            self._by_handle[shipped.handle] = shipped
            self._enter(shipped, State.OPENING)
            opening += 1
            self._channel.connection.send(
                OpenInput(shipped.handle, *shipped.name, self.record.run_id)
            )

    def find(self, handle: int) -> ShippedInput | None:
        """The input of a handle; None if it was let go."""
        return self._by_handle.get(handle)

    def opened(self, shipped: ShippedInput, position: SessionStartsAt) -> None:
        """The node says where to resume. Raises ProtocolFault (FORK)."""
        try:
            if not self._session.bind(shipped.name, position.topic_id):
                self.gone(shipped)
                return
            shipped.position = position
            self._enter(shipped, State.AHEAD)
            self._resume(shipped)
        except LogFormatError as error:
            self._fail(shipped, error)
        self._open_some()
        self._channel.turns.work()

    def _resume(self, shipped: ShippedInput) -> None:
        """Begin to ship once the bytes before the node's position are known to be the same."""
        position, tail = shipped.position, shipped.tail
        if position is None:
            return
        self._hungry[shipped] = None
        place = position.roll, position.byte
        if place < tail.first:
            self._begin(shipped, place)
            self._skip_released(shipped)
        elif self._is_common(position, tail):
            tail.raise_to(place)
            self._begin(shipped, place)

    def _is_common(self, position: SessionStartsAt, tail: RunTail) -> bool:
        """Whether this side has what is before the position. Raises ProtocolFault (FORK)."""
        place = position.roll, position.byte
        if place <= tail.first:
            return True
        if position.last_start < 0:
            return place <= tail.end or (position.byte == 0 and position.roll in tail.rolls)
        own = tail.batch_at(position.roll, position.last_start, position.byte)
        if own is None:
            return False
        check_common(position.handle, place, (position.last_start, position.last_crc), own)
        return True

    def _begin(self, shipped: ShippedInput, place: Place) -> None:
        shipped.position = None
        self._enter(shipped, State.SHIPPING)
        self._channel.sender.add(shipped.handle, *place)
        self._offer(shipped)

    # --- leaving ------------------------------------------------------------------------------

    def refused(self, shipped: ShippedInput, message: Refused) -> None:
        """The node will not take this input for now."""
        self._drop_handle(shipped)
        if message.code not in LASTING:
            shipped.refused_since = None
        elif shipped.refused_since is None:
            shipped.refused_since = self._channel.now()
        self._block(shipped, f"{message.code.name}: {message.message}")

    def gone(self, shipped: ShippedInput) -> None:
        """The topic was deleted: let go."""
        self._close_handle(shipped)
        self._enter(shipped, State.GONE)
        self._on_gone(shipped.name)
        self._open_some()

    def _fail(self, shipped: ShippedInput, error: LogFormatError) -> None:
        """The input cannot be read here, for now."""
        self._close_handle(shipped)
        self._block(shipped, str(error))

    def _block(self, shipped: ShippedInput, reason: str) -> None:
        shipped.reason = reason
        self._enter(shipped, State.BLOCKED)
        self._open_some()

    def _close_handle(self, shipped: ShippedInput) -> None:
        if shipped.handle >= 0:
            self._channel.connection.send(Close(shipped.handle))
            self._drop_handle(shipped)

    def _drop_handle(self, shipped: ShippedInput) -> None:
        self._by_handle.pop(shipped.handle, None)
        self._channel.sender.remove(shipped.handle)
        self._hungry.pop(shipped, None)
        shipped.handle, shipped.position = -1, None

    def close(self) -> list[tuple[int, InputName]]:
        """Ship nothing more; the handles that stay, for their acknowledgements."""
        for shipped in self._inputs.values():
            shipped.tail.remove_listener(shipped.listener)
            self._channel.sender.remove(shipped.handle)
        kept = [(handle, shipped.name) for handle, shipped in self._by_handle.items()]
        self._inputs.clear()
        self._by_handle.clear()
        self._waiting.clear()
        self._hungry.clear()
        return kept

    def tick(self) -> None:
        """Open again what was blocked. Raises ProtocolFault when the node owes an answer."""
        now = self._channel.now()
        for shipped in self._inputs.values():
            if shipped.state is State.BLOCKED and now >= shipped.since + RETRY_S:
                self._enter(shipped, State.WAITING)
                self._waiting.append(shipped)
            elif shipped.state is State.OPENING and now >= shipped.since + ANSWER_S:
                text = f"the node has not opened {shipped.name} in {ANSWER_S:g} s"
                raise ProtocolFault(FaultCode.TIMEOUT, text)
        self._open_some()

    def _enter(self, shipped: ShippedInput, state: State) -> None:
        shipped.state, shipped.since = state, self._channel.now()

    # --- sending ------------------------------------------------------------------------------

    def _tail_changed(self, shipped: ShippedInput) -> None:
        """There may be more in the files, or is."""
        if shipped.state not in (State.AHEAD, State.SHIPPING):
            return
        with failing(self._channel.connection):
            if shipped.state is State.SHIPPING:
                self._offer(shipped)
            self._hungry[shipped] = None
            self._channel.turns.work()

    def _offer(self, shipped: ShippedInput) -> None:
        """Tell the sender how far the file reaches that it is sending."""
        sender = self._channel.sender
        file, byte = sender.position(shipped.handle)
        extent = shipped.tail.extent(file)
        if extent is not None and extent.end >= byte:
            sender.available(shipped.handle, file, extent.end, next_file=extent.next_file)

    def step(self) -> bool:
        """Send a piece, or look for one; False: there is none, or the window is full."""
        sender = self._channel.sender
        step = sender.next_read()
        if step is None:
            return not self._is_full and self._look_for_more()
        shipped = self._by_handle[step.handle]
        if isinstance(step, Seal):
            self._channel.connection.send(RollSealed(*step[:3]))
            self._offer(shipped)
        else:
            self._send(shipped, step)
        return True

    @property
    def _is_full(self) -> bool:
        """Whether the window is: only an acknowledgement makes room."""
        return self._channel.sender.in_flight_bytes >= self._channel.window_bytes

    def _look_for_more(self) -> bool:
        while self._hungry:
            shipped = next(iter(self._hungry))
            del self._hungry[shipped]
            try:
                if shipped.tail.advance():
                    self._moved(shipped)
                    return True
            except LogFormatError as error:
                self._fail(shipped, error)
        return False

    def _moved(self, shipped: ShippedInput) -> None:
        """A piece more is known of an input; there may be yet more, but others come first."""
        if shipped.state is State.AHEAD:
            self._resume(shipped)
        if shipped.state in (State.AHEAD, State.SHIPPING):
            self._hungry.pop(shipped, None)
            self._hungry[shipped] = None

    def _send(self, shipped: ShippedInput, wanted: ReadRange) -> None:
        try:
            data = shipped.tail.read(wanted.file, wanted.byte, wanted.limit_bytes)
        except NoSuchFile as error:
            if not self._skip_released(shipped):
                self._fail(shipped, error)
            return
        except LogFormatError as error:
            self._fail(shipped, error)
            return
        self._channel.connection.send_data(shipped.handle, wanted.file, wanted.byte, data)
        self._channel.sender.sent(shipped.handle, len(data))

    def _skip_released(self, shipped: ShippedInput) -> bool:
        """What would be next is merged and was removed here: go on where the files begin, if so."""
        self._session.look_again()
        sender, first = self._channel.sender, shipped.tail.first
        if not shipped.tail.has_bytes:
            self._close_handle(shipped)
            self._enter(shipped, State.GONE)
        elif first > sender.position(shipped.handle):
            self._channel.connection.send(SessionReleased(shipped.handle, *first))
            sender.jump(shipped.handle, *first)
            self._offer(shipped)
        else:
            return False
        return True

    def acknowledged(self, shipped: ShippedInput, durable: Place) -> None:
        """The node vouches for everything below.

        That may be more than was sent: what is merged it can get from other nodes. It is sent all
        the same, because the node's own log of the session goes on where it is.
        """
        if shipped.state is State.SHIPPING:
            sender = self._channel.sender
            was_full = self._is_full
            sender.acknowledged(shipped.handle, *min(durable, sender.position(shipped.handle)))
            if was_full:
                self._channel.turns.work()

    # --- the end ------------------------------------------------------------------------------

    def look_closely(self) -> None:
        """The run is over: whatever was noticed so far, look once more at all files."""
        self.look()
        for shipped in self._inputs.values():
            if shipped.state in (State.AHEAD, State.SHIPPING):
                self._hungry[shipped] = None

    @property
    def is_complete(self) -> bool:
        """Whether all that is known of the files was sent, or the node has it, or a newer run waits
        behind bytes that no node takes.
        """
        return not self._hungry and all(
            self._is_sent(shipped) or self._is_left_behind(shipped)
            for shipped in self._inputs.values()
        )

    def _is_left_behind(self, shipped: ShippedInput) -> bool:
        return shipped.state is State.BLOCKED and self._is_given_up(self.record.run, shipped.name)

    def refuses(self, name: InputName) -> bool:
        """Whether the node has refused an input for so long that it will not take it."""
        shipped = self._inputs.get(name)
        since = None if shipped is None else shipped.refused_since
        return since is not None and self._channel.now() >= since + GIVE_UP_S

    def _is_sent(self, shipped: ShippedInput) -> bool:
        match shipped.state:
            case State.GONE | State.AHEAD:
                return True
            case State.SHIPPING:
                tail = shipped.tail
                at = tail.normal(self._channel.sender.position(shipped.handle))
                return at >= tail.normal(tail.end)
            case _:
                return False

    def ends(self) -> tuple[RunEnd, ...]:
        """Where the files end that the cluster is to have."""
        return tuple(
            RunEnd(*name, *shipped.tail.end)
            for name, shipped in sorted(self._inputs.items())
            if shipped.state is not State.GONE and not self._is_left_behind(shipped)
        )

    @property
    def problems(self) -> dict[InputName, str]:
        """Inputs that cannot be shipped at the moment, and why."""
        blocked = {
            name: shipped.reason
            for name, shipped in self._inputs.items()
            if shipped.state is State.BLOCKED
        }
        bad = {
            name: f"the bytes behind {shipped.tail.end} are no batch: {shipped.tail.blocked}"
            for name, shipped in self._inputs.items()
            if shipped.tail.blocked is not None
        }
        return {**bad, **blocked}

"""The inputs of one run on their way to one node: opened, resumed, shipped, refused, given up.

Every input is opened at the node, which says where to resume. If the bytes before that are not the
same on both sides, that is a fork, and nothing more is shipped. A node may hold more than this
side: after a power loss here, or because it got the bytes from another node.

Invariant: of each input whole batches are sent, contiguous from the position that the node has
given; nothing of an input goes to a topic of another id than the run has begun with.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from samelog.format.directory_files import RunFile
from samelog.wire.bounds import Ack, RunEnd
from samelog.wire.effects import Send, SendMore
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import (
    AnyMessage,
    Close,
    OpenInput,
    Refused,
    SessionReleased,
    SessionStartsAt,
)
from samelog.wire.push.effects import (
    BeginAt,
    Bind,
    ClusterKnowledge,
    FindBatch,
    Follow,
    Forked,
    InputIsGone,
    InputName,
    InputState,
    ListFiles,
    LoseStart,
    ProgressTold,
    PushEffect,
    Reached,
    RollByte,
    RunEnds,
    RunFiles,
    SessionView,
    ShippedInput,
    StatusChanged,
    Unfollow,
)
from samelog.wire.push.topics import AskedTopics
from samelog.wire.receiver import check_common
from samelog.wire.sender import Sender

MAX_OPENING = 64
ANSWER_S = 60.0
"""The node may have to wait for its cluster before it answers."""
RETRY_S = 1.0
HELD_UP_S = 3.0
"""An input whose group has not answered for so long does not keep a run from being ended."""
PLACED_S = 10.0
"""Partitions move seldom."""
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


class OpenHandle(NamedTuple):
    """A handle of an input, and the topic that it was opened for; None: not named by the node."""

    number: int
    topic_id: str | None


class RunInputs:
    """The inputs of one run that is shipped on a connection; without a run there are none."""

    def __init__(
        self,
        session: SessionView,
        cluster: ClusterKnowledge,
        topics: AskedTopics,
        effects: list[PushEffect],
        sender: Sender,
        *,
        handles: Iterator[int],
    ) -> None:
        """`handles`: numbers that were never used on this connection."""
        self.run: RunFile | None = None
        """The run that is open at the node."""
        self.parts: dict[InputName, RollByte] | None = None
        """Of a closed run: the inputs that are yet to come to data groups, with their ends; None:
        the run is open.
        """
        self.sender = sender
        self._session = session
        self._cluster = cluster
        self._topics = topics
        self._effects = effects
        self.handles = handles
        self._inputs: dict[InputName, ShippedInput] = {}
        self.by_handle: dict[int, ShippedInput] = {}
        """The inputs that were not let go."""
        self._waiting: deque[ShippedInput] = deque()
        self._opening: set[int] = set()
        """The handles in the state OPENING."""
        self.unscanned: dict[ShippedInput, None] = {}
        """Inputs whose files may hold more than is known."""
        self._early: dict[int, Ack] = {}
        """By handle: what the node told before the input was bound."""
        self._named: RunEnds = {}
        """The ends of the run in the newest EndRun."""

    def another(self) -> RunInputs:
        """The inputs of another run on the same connection: there are none yet."""
        given = self._session, self._cluster, self._topics, self._effects, self.sender
        return RunInputs(*given, handles=self.handles)

    def _send(self, message: AnyMessage) -> None:
        self._effects.append(Send(message))

    # --- questions ----------------------------------------------------------------------------

    @property
    def problems(self) -> dict[InputName, str]:
        """Inputs that cannot be shipped at the moment, and why."""
        found = {}
        for name, shipped in self._inputs.items():
            if shipped.state is InputState.BLOCKED:
                found[name] = shipped.reason
            elif shipped.files.blocked is not None:
                end, why = shipped.files.end, shipped.files.blocked
                found[name] = f"the bytes behind {tuple(end)} are no batch: {why}"
        return found

    def lacks_start(self, name: InputName, now: float) -> bool | None:
        """Whether the node has wanted older bytes of an input than there are for so long that they
        are lost; None: that is for others to say, who have the partition.
        """
        shipped = self._inputs.get(name)
        if shipped is not None and shipped.state is InputState.ELSEWHERE:
            return None
        since = None if shipped is None else shipped.lacking_since
        return since is not None and now >= since + GIVE_UP_S

    def refuses(self, name: InputName, now: float) -> bool | None:
        """Whether the node has refused an input for so long that it will not take it; None: that is
        for others to say, who have the partition.
        """
        shipped = self._inputs.get(name)
        if shipped is not None and shipped.state is InputState.ELSEWHERE:
            return None
        since = None if shipped is None else shipped.refused_since
        return since is not None and now >= since + GIVE_UP_S

    @property
    def is_at_rest(self) -> bool:
        """Whether all inputs are shipped to their ends, and none waits for a retry."""
        return not (self._waiting or self.unscanned) and all(
            shipped.state in (InputState.SHIPPING, InputState.AHEAD, InputState.GONE)
            and shipped.files.blocked is None
            for shipped in self._inputs.values()
        )

    # --- opening ------------------------------------------------------------------------------

    def begin_run(self, run: RunFile, now: float) -> None:
        """The node has opened a run."""
        self.run = run
        self.open_new_inputs(now)

    def leave_run(self) -> dict[InputName, OpenHandle]:
        """Ship nothing more of the run; the handles that stay, for their acknowledgements."""
        kept = self.leave(tuple(self._inputs))
        self.run = None
        return kept

    def leave(self, names: Iterable[InputName]) -> dict[InputName, OpenHandle]:
        """Ship nothing more of these inputs; the handles that stay, for their acknowledgements."""
        kept: dict[InputName, OpenHandle] = {}
        left = [self._inputs.pop(name) for name in names if name in self._inputs]
        for shipped in left:
            if shipped.handle >= 0:
                kept[shipped.name] = OpenHandle(shipped.handle, shipped.topic_id)
                self._drop_handle(shipped)
            self.unscanned.pop(shipped, None)
            shipped.state, shipped.handle, shipped.position = InputState.GONE, -1, None
        self._waiting = deque(each for each in self._waiting if each.state is not InputState.GONE)
        self._effects.append(Unfollow(tuple(left)))
        return kept

    def has(self, shipped: ShippedInput) -> bool:
        """Whether an input is one of these."""
        return self._inputs.get(shipped.name) is shipped

    def is_wanted(self, name: InputName) -> bool:
        """Whether an input of the run may still be shipped."""
        return self.parts is None or name in self.parts

    @property
    def names(self) -> list[InputName]:
        """The inputs that are open, or will be opened."""
        return list(self._inputs)

    def open_new_inputs(self, now: float, name: InputName | None = None) -> None:
        """Open session partitions of the run, or this one of them, that are not open yet."""
        run = self._run().run
        if not self._session.is_current(self._run()):
            return  # this part is closed; the node is about to say so
        for each in self._session.to_ship(run, name):
            if each not in self._inputs and self.is_wanted(each):
                shipped = ShippedInput(each, self._session.tail(run, each), unanswered_since=now)
                self._inputs[each] = shipped
                self._waiting.append(shipped)
                self._effects.append(Follow(shipped))
        self._open_some(now)

    def _run(self) -> RunFile:
        if self.run is None:
            raise ValueError("no run is being shipped")
        return self.run

    def _open_some(self, now: float) -> None:
        while self._waiting and len(self._opening) < MAX_OPENING:
            shipped = self._waiting.popleft()
            shipped.handle = next(self.handles)
            self.by_handle[shipped.handle] = shipped
            shipped.state, shipped.since = InputState.OPENING, now
            self._opening.add(shipped.handle)
            topic_id = shipped.topic_id = self._session.topic_id(shipped.name)
            if topic_id is None:
                self._topics.create(shipped.name[0])
            self._send(OpenInput(shipped.handle, *shipped.name, self._run().run_id, topic_id))

    def time_passed(self, now: float) -> None:
        """Open again what was blocked. Raises ProtocolFault when the node owes an answer."""
        for shipped in self._inputs.values():
            self._look_for_lost_start(shipped, now)
            patience_s = PLACED_S if shipped.state is InputState.ELSEWHERE else RETRY_S
            is_out = shipped.state in (InputState.BLOCKED, InputState.ELSEWHERE)
            if is_out and now >= shipped.since + patience_s:
                if shipped.state is InputState.BLOCKED and shipped.files.may_have_more:
                    self.unscanned[shipped] = None  # its end may be wanted before it is shipped
                shipped.state, shipped.since = InputState.WAITING, now
                self._waiting.append(shipped)
            elif shipped.state is InputState.OPENING and now >= shipped.since + ANSWER_S:
                text = f"the node has not opened {shipped.name} in {ANSWER_S:g} s"
                raise ProtocolFault(FaultCode.TIMEOUT, text)
        self._open_some(now)

    def _look_for_lost_start(self, shipped: ShippedInput, now: float) -> None:
        is_known = shipped.files.part_end <= (0, 0)
        if not self.lacks_start(shipped.name, now) or is_known:
            return
        if self._cluster.is_start_lost(self._run().run, shipped.name):
            self._effects.append(LoseStart(shipped))

    def opened(self, message: SessionStartsAt) -> None:
        """The node says where to resume."""
        shipped = self.by_handle.get(message.handle)
        if shipped is None:
            self._send(Close(message.handle))  # its run was closed meanwhile
            return
        shipped.position, shipped.topic_id = message, message.topic_id
        self._effects.append(Bind(shipped, message.topic_id))

    def bound(self, shipped: ShippedInput, now: float, *, is_same: bool) -> None:
        """Take the answer to Bind: whether that is the topic that the input's bytes belong to. A
        node that lags may know only the previous topic.
        """
        if shipped.position is None:
            return
        if is_same:
            self._opening.discard(shipped.handle)
            shipped.state, shipped.since = InputState.AHEAD, now
            early = self._early.pop(shipped.handle, None)
            if early is not None:
                self.acknowledged(shipped, early)
            self._resume(shipped)
        else:
            self.unreadable(shipped, "the node knows another topic of that name", now)
        self._open_some(now)
        self._effects.append(SendMore())

    def _resume(self, shipped: ShippedInput) -> None:
        """Begin to ship once the bytes before the node's position are known to be the same."""
        position, files = shipped.position, shipped.files
        if position is None:
            return
        self.unscanned[shipped] = None
        place = position.roll, position.byte
        if place <= files.first:
            self.begin(shipped)
        elif position.last_start >= 0:
            batch = position.roll, position.last_start, position.byte
            self._effects.append(FindBatch(shipped, *batch))
        elif place <= files.end or (position.byte == 0 and position.roll in files.rolls):
            self._effects.append(BeginAt(shipped, place))

    def batch_found(self, shipped: ShippedInput, own: tuple[int, int] | None) -> None:
        """The answer to FindBatch: (end, CRC) of the batch; None: there is none here, yet."""
        position = shipped.position
        if position is None or own is None:
            return
        place = position.roll, position.byte
        try:
            check_common(position.handle, place, (position.last_start, position.last_crc), own)
        except ProtocolFault as fault:
            self._effects.append(Forked(fault))
        else:
            self._effects.append(BeginAt(shipped, place))

    def begin(self, shipped: ShippedInput) -> None:
        """The answer to BeginAt: `files` reach as far."""
        position = shipped.position
        if position is None:
            return
        shipped.position = None
        shipped.state = InputState.SHIPPING
        self.sender.add(shipped.handle, position.roll, position.byte)
        self.offer(shipped)
        self._effects.append(SendMore())

    # --- leaving ------------------------------------------------------------------------------

    def refused(self, shipped: ShippedInput, message: Refused, now: float) -> None:
        """The node will not take this input for now."""
        is_taken = shipped.state in (InputState.AHEAD, InputState.SHIPPING)
        if is_taken or message.code is not FaultCode.NOT_READY:
            shipped.unanswered_since = now
        self._drop_handle(shipped)
        if message.code is FaultCode.NOT_LEADER:
            shipped.refused_since = None
            shipped.state, shipped.since = InputState.ELSEWHERE, now
            self._open_some(now)
            return
        if message.code is not FaultCode.OUT_OF_RANGE:
            shipped.lacking_since = None
        elif shipped.lacking_since is None:
            shipped.lacking_since = now
        if message.code not in LASTING:
            shipped.refused_since = None
        else:
            self._cluster.note_refused(self._run().run, shipped.name, message.code)
            shipped.refused_since = now if shipped.refused_since is None else shipped.refused_since
        fault = ProtocolFault(message.code, message.message, message.remedy)
        self._block(shipped, str(fault), now)

    def gone(self, shipped: ShippedInput, now: float) -> None:
        """Stop sending an input whose topic was deleted. If the node never named the topic, open
        the input again later: its bytes belong to the next topic of the name.
        """
        topic_id = shipped.topic_id
        if topic_id is None:
            self.unreadable(shipped, "the topic was deleted while the input was opened", now)
            return
        self._close_handle(shipped)
        shipped.state, shipped.since = InputState.GONE, now
        self._effects.append(InputIsGone(self._run().run, shipped.name, topic_id))
        self._open_some(now)

    def forget(self, name: InputName) -> ShippedInput | None:
        """Close an input and forget where it was, because it is shipped differently from now on."""
        shipped = self._inputs.pop(name, None)
        if shipped is not None:
            self._close_handle(shipped)
            shipped.state = InputState.GONE
            self.unscanned.pop(shipped, None)
            if shipped in self._waiting:
                self._waiting.remove(shipped)
        return shipped

    def unreadable(self, shipped: ShippedInput, reason: str, now: float) -> None:
        """Close an input that cannot be read now; it is opened again later."""
        if shipped.state is not InputState.GONE:
            self._close_handle(shipped)
            self._block(shipped, reason, now)

    def _block(self, shipped: ShippedInput, reason: str, now: float) -> None:
        shipped.reason = reason
        self._effects.append(StatusChanged())
        shipped.state, shipped.since = InputState.BLOCKED, now
        self._open_some(now)

    def _close_handle(self, shipped: ShippedInput) -> None:
        if shipped.handle >= 0:
            self._send(Close(shipped.handle))
            self._drop_handle(shipped)

    def _drop_handle(self, shipped: ShippedInput) -> None:
        self.by_handle.pop(shipped.handle, None)
        self._opening.discard(shipped.handle)
        self.sender.remove(shipped.handle)
        self._early.pop(shipped.handle, None)
        shipped.handle, shipped.position = -1, None

    # --- shipping -----------------------------------------------------------------------------

    def files_changed(self, shipped: ShippedInput) -> bool:
        """There may be more in an input's files, or is; whether that matters. How much there is,
        the next scan finds.
        """
        if shipped.state not in (InputState.SHIPPING, InputState.AHEAD):
            return False
        self.unscanned[shipped] = None
        return True

    def offer(self, shipped: ShippedInput) -> None:
        """Tell the sender how far the file reaches that it is sending. If that file is gone, list
        all: it was released, or is missing.
        """
        stream = self.sender.streams[shipped.handle]
        if (stream.file, stream.byte) < shipped.files.first:
            self._effects.append(ListFiles(shipped))
            return
        roll, extent = stream.file, shipped.files.extent(stream.file)
        if extent is not None and extent.end >= stream.byte:
            self.sender.available(shipped.handle, roll, extent.end, next_file=extent.next_file)

    def scanned(self, shipped: ShippedInput, *, has_moved: bool = True) -> None:
        """An input's files were scanned, by this conversation or just before by another one.
        `has_moved`: this one found a piece more; there may be yet more, but others come first.
        """
        if shipped.state is InputState.AHEAD:
            self._resume(shipped)
        elif shipped.state is InputState.SHIPPING:
            self.offer(shipped)
        elif shipped.state is InputState.GONE:  # of others, EndRun names the end
            return
        self.unscanned.pop(shipped, None)
        if has_moved and shipped.files.may_have_more:
            self.unscanned[shipped] = None

    def not_there(self, shipped: ShippedInput, reason: str, now: float) -> None:
        """The file to be shipped is gone: go on where the files begin, if it was released."""
        if shipped.state is InputState.SHIPPING and not self._skip_released(shipped, now):
            self.unreadable(shipped, reason, now)

    def listed(self, shipped: ShippedInput, now: float) -> None:
        """The answer to ListFiles."""
        if shipped.state is InputState.SHIPPING:
            self._skip_released(shipped, now)

    def _skip_released(self, shipped: ShippedInput, now: float) -> bool:
        """Go on where the files begin; False: what would be next was not released."""
        first = shipped.files.first
        if not shipped.files.has_bytes:
            self._close_handle(shipped)
            shipped.state, shipped.since = InputState.GONE, now
        elif first > self.sender.position(shipped.handle):
            self._send(SessionReleased(shipped.handle, *first))
            self.sender.jump(shipped.handle, *first)
            self.offer(shipped)
        else:
            return False
        return True

    def acknowledged(self, shipped: ShippedInput, message: Ack) -> None:
        """The node tells how far it and the cluster are. Before the input is bound, that may be
        about a topic that was deleted: it waits, and is dropped with the handle.
        """
        if shipped.state is InputState.OPENING:
            self._early[shipped.handle] = message
            return
        places = places_of(message)
        if shipped.state is InputState.SHIPPING:
            # The node may vouch for more than was sent: it can get merged bytes from other nodes.
            # They are sent nonetheless, because its own log of the session goes on where it is.
            sender = self.sender
            stream, was_full = sender.streams[shipped.handle], sender.room_bytes <= 0
            sender.acknowledged(shipped.handle, *min(places[0], (stream.file, stream.byte)))
            if was_full:
                self._effects.append(SendMore())
        if self.run is not None:
            layout = shipped.files.layout
            self._effects.append(Reached(self.run.run, shipped.name, places, layout))

    # --- the end ------------------------------------------------------------------------------

    def scan_all(self, now: float) -> None:
        """List all files of a finished run once more."""
        self.open_new_inputs(now)
        readable = InputState.AHEAD, InputState.SHIPPING, InputState.ELSEWHERE
        for shipped in self._inputs.values():
            is_gone = shipped.state is InputState.GONE
            if shipped.state in readable or not (is_gone or shipped.files.is_damaged):
                self.unscanned[shipped] = None

    def is_held_up(self, now: float, *, is_listed: bool) -> bool:
        """Whether all of the run was sent except for inputs whose groups have not answered for a
        while: they do not hold up the next run. Once all files are listed, those of these inputs
        must be known to their ends.
        """
        return not self.unscanned and all(
            self._is_sent(shipped)
            or self._is_left_behind(shipped)
            or (self._is_unanswered(shipped, now) and not (is_listed and _has_unknown(shipped)))
            for shipped in self._inputs.values()
        )

    def _is_unanswered(self, shipped: ShippedInput, now: float) -> bool:
        is_out = shipped.state in (InputState.OPENING, InputState.BLOCKED, InputState.WAITING)
        return is_out and now >= shipped.unanswered_since + HELD_UP_S

    @property
    def is_complete(self) -> bool:
        """Whether all that is known of the files was sent, or the node has it, or a newer run waits
        behind bytes that no node takes.
        """
        return not self.unscanned and all(
            self._is_sent(shipped) or self._is_left_behind(shipped)
            for shipped in self._inputs.values()
        )

    def _is_left_behind(self, shipped: ShippedInput) -> bool:
        is_blocked = shipped.state is InputState.BLOCKED
        return is_blocked and self._cluster.is_given_up(self._run().run, shipped.name)

    def _is_sent(self, shipped: ShippedInput) -> bool:
        match shipped.state:
            case InputState.GONE | InputState.AHEAD | InputState.ELSEWHERE:
                return True
            case InputState.SHIPPING:
                files = shipped.files
                at = files.normal(self.sender.position(shipped.handle))
                return at >= files.normal(files.part_end)
            case InputState.BLOCKED:
                return shipped.files.is_damaged
            case _:
                return False

    def name_ends(self) -> tuple[RunEnd, ...]:
        """Return the ends for EndRun, and note them."""
        ends = self.ends()
        self._named = by_name(ends)
        return ends

    @property
    def has_named_damage(self) -> bool:
        """Whether damage was found in front of an end in the newest EndRun. Without a smaller end,
        the cluster would wait for bytes that no longer exist.
        """
        damaged = () if self.run is None else self._session.damaged_inputs(self.run.run)
        return any(
            _end_of_bytes(shipped.files) < self._named.get(name, (0, 0))
            for name in damaged
            if (shipped := self._inputs.get(name)) is not None and self._has_end(shipped)
        )

    def ends(self) -> tuple[RunEnd, ...]:
        """Where the files end that the cluster is to have, whichever nodes have the partition. An
        input that is left behind ends at (0, 0): only its group knows how much of it is there.
        """
        found = []
        for name, shipped in sorted(self._inputs.items()):
            if shipped.state is InputState.GONE:
                continue
            is_left_behind = self._is_left_behind(shipped)
            end = (0, 0) if is_left_behind else _end_of_bytes(shipped.files)
            if is_left_behind or end > (0, 0):
                found.append(RunEnd(*name, *end))
        return tuple(found)

    def _has_end(self, shipped: ShippedInput) -> bool:
        return shipped.state is not InputState.GONE and not self._is_left_behind(shipped)


def _has_unknown(shipped: ShippedInput) -> bool:
    """Whether an input's files may hold more than is known."""
    return shipped.files.may_have_more or shipped.files.blocked is not None


def by_name(ends: tuple[RunEnd, ...]) -> RunEnds:
    """The same ends by input."""
    return {(end.topic, end.partition): (end.roll, end.byte) for end in ends}


def places_of(message: Ack) -> ProgressTold:
    """Durable, acknowledged and merged, as a node tells them."""
    acknowledged = message.acknowledged_roll, message.acknowledged_byte
    merged = message.merged_roll, message.merged_byte
    return (message.durable_roll, message.durable_byte), acknowledged, merged


def _end_of_bytes(files: RunFiles) -> RollByte:
    """Where the last file that has bytes ends. The start of an empty file behind it means the same,
    but not to a node that never held the file before: a member of the group that a partition moved
    to has only what is merged of it, and waited for ever to learn that it is sealed there.
    """
    roll, byte = files.part_end
    while not byte and roll:
        extent = files.extent(roll - 1)
        if extent is None or extent.next_file != roll:
            break
        roll, byte = roll - 1, extent.end
    return roll, byte

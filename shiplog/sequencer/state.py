"""The replicated state machine: the same commands in the same order give the same state on every
node.

It holds topics, sessions and their runs, the merged position of every input, the next offset of
every partition and what dedup must remember. It knows nothing of files: whether merged bytes are
already written here is the merger's cursor, not this one (docs/ARCHITECTURE.md, "Two cursors").

Invariant: a command whose preconditions do not hold changes nothing and answers with a Rejection,
on every node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from shiplog.logformat.errors import InvariantError
from shiplog.sequencer.commands import (
    AnyCommand,
    Checkpoint,
    CloseRun,
    CreateTopic,
    DeleteTopic,
    Member,
    Merge,
    NodeStarted,
    OpenInput,
    OpenRun,
    Place,
    Range,
    RecordEvent,
    RetireSession,
    Sequence5,
    SetMaintenance,
    SetMembers,
    Verdict,
)
from shiplog.sequencer.group_commands import GroupCommand
from shiplog.sequencer.group_state import GROUP_COMMANDS, Groups
from shiplog.sequencer.sequences import remember

STATE_VERSION = 1


class Topic(msgspec.Struct):
    """A living topic; `partition_numbers[i]` is the cluster-wide number of partition i."""

    topic_id: str
    name: str
    settings: dict[str, str]
    created_ms: int
    partition_numbers: list[int]

    @property
    def partitions(self) -> int:
        """How many partitions the topic has."""
        return len(self.partition_numbers)


class Partition(msgspec.Struct):
    """One merged log: what comes next in it, and its last agreed checksum."""

    number: int
    topic_id: str
    index: int
    next_offset: int = 0
    segment_bytes: int = 0
    segment_started_ms: int = 0
    append_ms: int = -1
    checked_offset: int = 0
    checked_sum: int = 0


class Run(msgspec.Struct):
    """One run of a session, under the number the cluster gave it."""

    run_id: str
    number: int
    closed: bool = False
    dedup_id: str | None = None
    dedup_base: int | None = None
    ends: list[tuple[int, int, int]] = []
    """(input, roll, byte) per input, once closed."""
    asked: int = -1
    """The publisher's own number of it."""


class Session(msgspec.Struct):
    """A publisher's name, the directory that owns it, and its newest runs in number order."""

    name: str
    session_id: str
    identity: str
    runs: list[Run] = []
    retired: bool = False
    fenced_ids: list[str] = []
    forgotten: int = -1
    """The highest own number of a run of this directory that is not remembered any more."""


class Input(msgspec.Struct):
    """A session's part of one partition, merged up to (run, roll, byte)."""

    number: int
    session: str
    partition: int
    run: int = 0
    roll: int = 0
    byte: int = 0
    last_id: int | None = None

    @property
    def place(self) -> Place:
        """The merged position."""
        return Place(self.run, self.roll, self.byte)


class State(msgspec.Struct):
    """Everything replicated. Its MessagePack encoding is the body of a snapshot."""

    version: int = STATE_VERSION
    topics: dict[str, Topic] = {}
    names: dict[str, str] = {}
    partitions: dict[int, Partition] = {}
    sessions: dict[str, Session] = {}
    inputs: dict[int, Input] = {}
    producers: dict[int, dict[int, list[Sequence5]]] = {}
    """Producer id -> partition -> its last batches, oldest first."""
    watermarks: dict[str, dict[int, int]] = {}
    """Dedup id -> partition -> highest id merged."""
    boots: dict[str, int] = {}
    started: dict[int, int] = {}
    """Member -> boot with which it last started; one that is missing never has."""
    members: dict[int, Member] = {}
    """Empty until the first leader has written down whom the configuration files name."""
    members_version: int = 0
    next_member: int = 0
    maintenance: dict[str, int] = {}
    events: list[RecordEvent] = []
    next_partition: int = 1
    next_input: int = 1
    groups: Groups = msgspec.field(default_factory=Groups)


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a command changed nothing: a stable code and a sentence."""

    code: str
    message: str


EVENTS_REMEMBERED = 256
RUNS_REMEMBERED = 64
"""Closed runs kept per session, so that a late sender learns where its run ended."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(State)


class StateMachine:
    """Applies commands. `apply` returns the value the proposer waits for, or a Rejection."""

    def __init__(self, state: State | None = None) -> None:
        self.state = state if state is not None else State()
        self._by_place: dict[tuple[str, int], int] = {}
        self.reindex()

    def reindex(self) -> None:
        """Rebuild the lookups; to be called when `state` was replaced."""
        self._by_place = {
            (entry.session, entry.partition): entry.number for entry in self.state.inputs.values()
        }

    def encode(self) -> bytes:
        """The whole state, for a snapshot."""
        return _encoder.encode(self.state)

    @classmethod
    def decode(cls, data: bytes) -> StateMachine:
        """The state machine of a snapshot. Raises ValueError on a body this version cannot read."""
        try:
            state = _decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ValueError(f"unreadable state: {error}") from error
        if state.version != STATE_VERSION:
            raise ValueError(f"state version {state.version}, this program reads {STATE_VERSION}")
        return cls(state)

    def apply(self, command: AnyCommand) -> Any:
        """Apply one committed command: the value its proposer waits for, or a Rejection."""
        return _APPLY[type(command)](self, command)

    # --- lookups ----------------------------------------------------------------------------------

    def topic_named(self, name: str) -> Topic | None:
        """The living topic of that name."""
        topic_id = self.state.names.get(name)
        return None if topic_id is None else self.state.topics[topic_id]

    def partition_of(self, topic_id: str, index: int) -> Partition | None:
        """The partition of a living topic."""
        topic = self.state.topics.get(topic_id)
        if topic is None or not 0 <= index < topic.partitions:
            return None
        return self.state.partitions[topic.partition_numbers[index]]

    def input_of(self, session: str, partition: int) -> Input | None:
        """A session's input of one partition number."""
        number = self._by_place.get((session, partition))
        return None if number is None else self.state.inputs[number]

    def inputs_of(self, session: str) -> list[Input]:
        """All inputs of a session."""
        return [entry for entry in self.state.inputs.values() if entry.session == session]

    def open_run_of(self, session: str) -> Run | None:
        """The session's run that is not closed, if any: there is at most one, the newest."""
        known = self.state.sessions.get(session)
        if known is None or not known.runs or known.runs[-1].closed:
            return None
        return known.runs[-1]

    def run_of(self, session: str, run_id: str) -> Run | None:
        """A run by its id."""
        known = self.state.sessions.get(session)
        runs = () if known is None else known.runs
        return next((run for run in runs if run.run_id == run_id), None)

    # --- topics -----------------------------------------------------------------------------------

    def _create_topic(self, command: CreateTopic) -> Topic | Rejection:
        known = self.state.topics.get(command.topic_id)
        if known is not None:  # proposed twice, because its fate was not known
            return known
        if command.name in self.state.names:
            return Rejection("TOPIC_EXISTS", f"topic {command.name!r} exists already")
        if command.partitions < 1:
            return Rejection("INVALID_TOPIC", f"topic {command.name!r} would have no partitions")
        topic = Topic(command.topic_id, command.name, command.settings, command.at_ms, [])
        for index in range(command.partitions):
            number = self.state.next_partition
            self.state.next_partition += 1
            self.state.partitions[number] = Partition(number, command.topic_id, index)
            topic.partition_numbers.append(number)
        self.state.topics[command.topic_id] = topic
        self.state.names[command.name] = command.topic_id
        return topic

    def _delete_topic(self, command: DeleteTopic) -> Topic | Rejection:
        topic = self.state.topics.pop(command.topic_id, None)
        if topic is None:
            return Rejection("UNKNOWN_TOPIC", f"no topic has the id {command.topic_id}")
        del self.state.names[topic.name]
        gone = set(topic.partition_numbers)
        for number in gone:
            del self.state.partitions[number]
        for entry in [entry for entry in self.state.inputs.values() if entry.partition in gone]:
            del self.state.inputs[entry.number]
            del self._by_place[entry.session, entry.partition]
        for number in gone:
            for batches in self.state.producers.values():
                batches.pop(number, None)
            for watermarks in self.state.watermarks.values():
                watermarks.pop(number, None)
        self.state.groups.forget_partitions(gone)
        return topic

    # --- sessions ---------------------------------------------------------------------------------

    def _open_run(self, command: OpenRun) -> Run | Rejection:
        session = self.state.sessions.get(command.session)
        refusal = self._claim_session(session, command)
        if refusal is not None:
            return refusal
        if session is None:
            session = Session(command.session, command.session_id, command.identity, [])
            self.state.sessions[command.session] = session
        known = self.run_of(command.session, command.run_id)
        if known is not None:
            return known
        if command.number <= session.forgotten:
            return Rejection(
                "RUN_FORGOTTEN", f"run {command.number} of {command.session!r} was closed long ago"
            )
        if session.runs and not session.runs[-1].closed:
            return Rejection("RUN_OPEN", f"session {command.session!r} has an open run")
        return self._start_run(session, command)

    def _claim_session(self, session: Session | None, command: OpenRun) -> Rejection | None:
        """Whether this directory may speak for the session; takes over a retired one."""
        if session is None:
            return None
        if command.session_id in session.fenced_ids:
            return Rejection("SESSION_FENCED", f"this directory of {command.session!r} was retired")
        if session.identity != command.identity:
            return Rejection(
                "SESSION_CONFLICT", f"session {command.session!r} belongs to {session.identity}"
            )
        if session.session_id == command.session_id:
            return None
        if not session.retired:
            return Rejection(
                "SESSION_CONFLICT",
                f"another directory (id {session.session_id}) has the session {command.session!r}",
            )
        session.session_id, session.retired = command.session_id, False
        session.forgotten = -1  # another directory, with numbers of its own
        return None

    def _start_run(self, session: Session, command: OpenRun) -> Run:
        free = session.runs[-1].number + 1 if session.runs else 0
        run = Run(
            run_id=command.run_id,
            number=max(free, command.number),
            dedup_id=command.dedup_id,
            dedup_base=command.dedup_base,
            asked=command.number,
        )
        session.runs.append(run)
        for old in session.runs[:-RUNS_REMEMBERED]:
            session.forgotten = max(session.forgotten, old.asked)
        del session.runs[:-RUNS_REMEMBERED]
        for entry in self.inputs_of(session.name):
            entry.run, entry.roll, entry.byte = run.number, 0, 0
            entry.last_id = None
        return run

    def _open_input(self, command: OpenInput) -> Input | Rejection:
        partition = self.partition_of(command.topic_id, command.partition)
        run = self.open_run_of(command.session)
        if partition is None:
            return Rejection(
                "UNKNOWN_TOPIC", f"no partition {command.partition} of {command.topic_id}"
            )
        if run is None:
            return Rejection("RUN_CLOSED", f"session {command.session!r} has no open run")
        known = self.input_of(command.session, partition.number)
        if known is not None:
            return known
        number = self.state.next_input
        self.state.next_input += 1
        entry = Input(number, command.session, partition.number, run=run.number)
        self.state.inputs[number] = entry
        self._by_place[command.session, partition.number] = number
        return entry

    def _close_run(self, command: CloseRun) -> Run | Rejection:
        run = self.run_of(command.session, command.run_id)
        if run is None:
            return Rejection("UNKNOWN_RUN", f"session {command.session!r}: no run {command.run_id}")
        if not run.closed:
            run.closed = True
            run.ends = [
                (entry.number, entry.roll, entry.byte)
                for entry in self.inputs_of(command.session)
                if entry.run == run.number
            ]
        return run

    def _retire_session(self, command: RetireSession) -> Session | Rejection:
        session = self.state.sessions.get(command.session)
        if session is None:
            return Rejection("UNKNOWN_SESSION", f"no session {command.session!r}")
        if command.session_id not in ("", session.session_id):
            return session  # retired before, and taken over by another directory meanwhile
        run = self.open_run_of(command.session)
        if run is not None:
            self._close_run(CloseRun(command.session, run.run_id))
        if not session.retired:
            session.retired = True
            session.fenced_ids.append(session.session_id)
        return session

    def _node_started(self, command: NodeStarted) -> int | Rejection:
        known = self.state.boots.get(command.node, 0)
        if command.boot < known:
            return Rejection("STALE_BOOT", f"{command.node}: boot {command.boot} after {known}")
        self.state.boots[command.node] = command.boot
        if command.number >= 0:
            self.state.started[command.number] = command.boot
        return command.boot

    # --- members ----------------------------------------------------------------------------------

    def _set_members(self, command: SetMembers) -> SetMembers:
        """Raft has accepted them already, so there is nothing to refuse."""
        state = self.state
        state.members = {member.number: member for member in command.members}
        state.members_version += 1
        state.next_member = max([state.next_member, *(number + 1 for number in state.members)])
        state.started = {n: boot for n, boot in state.started.items() if n in state.members}
        names = {member.name for member in command.members}
        state.maintenance = {n: until for n, until in state.maintenance.items() if n in names}
        return command

    def _set_maintenance(self, command: SetMaintenance) -> SetMaintenance | Rejection:
        if command.node not in {member.name for member in self.state.members.values()}:
            return Rejection("UNKNOWN_NODE", f"no node is called {command.node!r}")
        if command.until_ms:
            self.state.maintenance[command.node] = command.until_ms
        else:
            self.state.maintenance.pop(command.node, None)
        return command

    def _record_event(self, command: RecordEvent) -> RecordEvent:
        self.state.events.append(command)
        del self.state.events[:-EVENTS_REMEMBERED]
        return command

    # --- merging ----------------------------------------------------------------------------------

    def _merge(self, command: Merge) -> Merge | Rejection:
        partition = self.state.partitions.get(command.partition)
        if partition is None:
            return Rejection("UNKNOWN_TOPIC", f"partition {command.partition} is gone")
        if partition.next_offset != command.base_offset:
            return Rejection("PRECONDITION", f"base offset {command.base_offset}")
        places = self._places_after(command)
        if places is None:
            return Rejection("PRECONDITION", f"positions of partition {command.partition}")
        for number, place in places.items():
            entry = self.state.inputs[number]
            entry.run, entry.roll, entry.byte = place
        self._advance(partition, command)
        self._learn(command)
        return command

    def _places_after(self, command: Merge) -> dict[int, Place] | None:
        """Where each input stands after the instruction; None if a range starts elsewhere, or its
        run is closed.
        """
        places: dict[int, Place] = {}
        for part in command.ranges:
            entry = self.state.inputs.get(part.input)
            if entry is None or entry.partition != command.partition:
                return None
            if part.input not in places and self.open_run_of(entry.session) is None:
                return None
            if not follows(places.get(part.input, entry.place), part):
                return None
            places[part.input] = Place(part.run, part.roll, part.stop)
        return places

    def _advance(self, partition: Partition, command: Merge) -> None:
        if command.roll or partition.next_offset == 0:
            partition.segment_bytes = 0
            partition.segment_started_ms = command.append_ms
        partition.segment_bytes += command.size
        partition.next_offset = command.next_offset
        partition.append_ms = max(partition.append_ms, command.append_ms)

    def _learn(self, command: Merge) -> None:
        """Take over what dedup learns from an instruction."""
        for sequence in command.sequences:
            per_partition = self.state.producers.setdefault(sequence.producer_id, {})
            remember(per_partition.setdefault(command.partition, []), sequence)
        for dedup_id, watermark in command.watermarks:
            self.state.watermarks.setdefault(dedup_id, {})[command.partition] = watermark
        for number, last_id in command.unwrapped:
            self.state.inputs[number].last_id = last_id

    def _checkpoint(self, command: Checkpoint) -> Checkpoint:
        for number, offset, checksum in command.values:
            partition = self.state.partitions.get(number)
            if partition is not None and offset > partition.checked_offset:
                partition.checked_offset, partition.checked_sum = offset, checksum
        return command

    def _change_groups(self, command: GroupCommand) -> GroupCommand | Rejection:
        problem = self.state.groups.apply(command, self.state.partitions)
        return command if problem is None else Rejection("PRECONDITION", problem)


def follows(place: Place, part: Range) -> bool:
    """Whether a range starts at `place`, or with a later file: those in between are empty."""
    if part.stop < part.start or part.verdict not in Verdict.__members__.values():
        raise InvariantError(f"malformed range {part}")
    goes_on = (part.roll, part.start) == (place.roll, place.byte)
    return part.run == place.run and (goes_on or (part.roll > place.roll and part.start == 0))


_APPLY: dict[type, Any] = {
    CreateTopic: StateMachine._create_topic,
    DeleteTopic: StateMachine._delete_topic,
    OpenRun: StateMachine._open_run,
    OpenInput: StateMachine._open_input,
    CloseRun: StateMachine._close_run,
    Merge: StateMachine._merge,
    Checkpoint: StateMachine._checkpoint,
    RetireSession: StateMachine._retire_session,
    NodeStarted: StateMachine._node_started,
    SetMembers: StateMachine._set_members,
    SetMaintenance: StateMachine._set_maintenance,
    RecordEvent: StateMachine._record_event,
    **dict.fromkeys(GROUP_COMMANDS, StateMachine._change_groups),
}

"""The replicated state machine: the same commands in the same order give the same state on every
node.

It holds topics, sessions and their runs, the merged position of every input, the next offset of
every partition and what dedup must remember. It knows nothing of files: whether merged bytes are
already written here is the merger's cursor, not this one (docs/ARCHITECTURE.md, "Two cursors").

Invariant: a command whose preconditions do not hold changes nothing and answers with a Rejection,
on every node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from samelog.archiver.command import ArchiveCommand, apply_archive
from samelog.format.positions import SessionPosition
from samelog.sequencer.levels import OtherVersion
from samelog.sequencer.state.commands import (
    AnyCommand,
    Checkpoint,
    CloseRun,
    CreateTopicCommand,
    DeleteTopicCommand,
    Expire,
    LetIn,
    Merge,
    MergeTransactions,
    NodeStarted,
    OpenInputCommand,
    OpenRunCommand,
    PublishStageCommand,
    RecordEvent,
    RetireSessionCommand,
    VoidRecordsCommand,
)
from samelog.sequencer.state.group_commands import GroupCommand
from samelog.sequencer.state.group_state import GROUP_COMMANDS
from samelog.sequencer.state.reset_commands import ResetCommand
from samelog.sequencer.state.reset_state import RESETS, event_of
from samelog.sequencer.state.schema_commands import SchemaCommand
from samelog.sequencer.state.sequences import learn
from samelog.sequencer.state.setting_commands import SettingCommand
from samelog.sequencer.state.setting_state import CHANGES
from samelog.sequencer.state.stage_state import problem_with, release_runs
from samelog.sequencer.state.transactions.changes import (
    TRANSACTION_COMMANDS,
    ProducerIdAndEpoch,
    TransactionRefused,
    change_transactions,
)
from samelog.sequencer.state.transactions.commands import TransactionCommand
from samelog.sequencer.state.types import (
    STATE_VERSION,
    Input,
    MemberLives,
    Partition,
    Rejection,
    Run,
    Session,
    State,
    Topic,
    follows,
)
from samelog.sequencer.state.void_state import agree, give_up

RUNS_REMEMBERED = 64
"""Closed runs kept per session, so that a late sender learns where its run ended."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(State)


class StateMachine:
    """Applies commands. `apply` returns the value the proposer waits for, or a Rejection."""

    def __init__(self, state: State | None = None) -> None:
        self.state = state if state is not None else State()
        self._by_place: dict[tuple[str, int], int] = {}
        self._by_log: dict[str, str] = {}
        self.reindex()

    def reindex(self) -> None:
        """Rebuild the lookups; to be called when `state` was replaced."""
        self._by_place = {
            (entry.session, entry.partition): entry.number for entry in self.state.inputs.values()
        }
        self._by_log = {topic.log_id: topic.topic_id for topic in self.state.topics.values()}

    def encode(self) -> bytes:
        """The whole state, for a snapshot."""
        return _encoder.encode(self.state)

    @classmethod
    def decode(cls, data: bytes) -> StateMachine:
        """The state machine of a snapshot. Raises OtherVersion on one this build cannot read."""
        try:
            state = _decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise OtherVersion(f"unreadable state: {error}") from error
        if state.version != STATE_VERSION:
            raise OtherVersion(f"state version {state.version}, this program reads {STATE_VERSION}")
        return cls(state)

    def apply(self, command: AnyCommand) -> Any:
        """Apply one committed command: the value its proposer waits for, or a Rejection."""
        return _APPLY[type(command)](self, command)

    # --- lookups ----------------------------------------------------------------------------------

    def topic_named(self, name: str) -> Topic | None:
        """The living topic of that name."""
        topic_id = self.state.names.get(name)
        return None if topic_id is None else self.state.topics[topic_id]

    def topic_of_log(self, log_id: str) -> Topic | None:
        """The living topic whose present log has that id."""
        topic_id = self._by_log.get(log_id)
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

    def _create_topic(self, command: CreateTopicCommand) -> Topic | Rejection:
        known = self.state.topics.get(command.topic_id)
        if known is not None:  # proposed twice, because its fate was not known
            return known
        if command.name in self.state.names:
            return Rejection("TOPIC_EXISTS", f"topic {command.name!r} exists already")
        if command.partitions < 1:
            return Rejection("INVALID_TOPIC", f"topic {command.name!r} would have no partitions")
        topic = Topic(command.topic_id, command.name, command.settings, command.at_ms, [])
        for _ in range(command.partitions):
            self.state.add_partition(topic)
        self.state.topics[command.topic_id] = topic
        self.state.names[command.name] = self._by_log[topic.log_id] = command.topic_id
        return topic

    def _delete_topic(self, command: DeleteTopicCommand) -> Topic | Rejection:
        topic = self.state.topics.pop(command.topic_id, None)
        if topic is None:
            return Rejection("UNKNOWN_TOPIC", f"no topic has the id {command.topic_id}")
        del self.state.names[topic.name]
        del self._by_log[topic.log_id]
        self.state.schemas.forget(topic.schemas)
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
        self.state.transactions.forget_partitions(gone)
        return topic

    # --- sessions ---------------------------------------------------------------------------------

    def _open_run(self, command: OpenRunCommand) -> Run | Rejection:
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
        if session.runs and (command.stage is not None or session.is_staged):
            text = f"session {command.session!r} has had a run: what is staged has one of its own"
            return Rejection("SESSION_CONFLICT", text)
        if session.runs and not session.runs[-1].closed:
            return Rejection("RUN_OPEN", f"session {command.session!r} has an open run")
        return self._start_run(session, command)

    def _claim_session(self, session: Session | None, command: OpenRunCommand) -> Rejection | None:
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

    def _start_run(self, session: Session, command: OpenRunCommand) -> Run:
        free = session.runs[-1].number + 1 if session.runs else session.next_run
        run = Run(
            run_id=command.run_id,
            number=max(free, command.number),
            dedup_id=command.dedup_id,
            dedup_base=command.dedup_base,
            asked=command.number,
            stage=command.stage,
        )
        session.runs.append(run)
        session.idle_since_ms = -1
        for old in session.runs[:-RUNS_REMEMBERED]:
            session.forgotten = max(session.forgotten, old.asked)
        del session.runs[:-RUNS_REMEMBERED]
        for entry in self.inputs_of(session.name):
            entry.run, entry.roll, entry.byte = run.number, 0, 0
            entry.last_id = None
        return run

    def _open_input(self, command: OpenInputCommand) -> Input | Rejection:
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
            self.state.sessions[command.session].idle_since_ms = command.at_ms
        return run

    def _retire_session(self, command: RetireSessionCommand) -> Session | Rejection:
        session = self.state.sessions.get(command.session)
        if session is None:
            return Rejection("UNKNOWN_SESSION", f"no session {command.session!r}")
        if command.session_id not in ("", session.session_id):
            return session  # retired before, and taken over by another directory meanwhile
        run = self.open_run_of(command.session)
        if run is not None:
            self._close_run(CloseRun(command.session, run.run_id, command.at_ms))
        if not session.retired:
            session.retired = True
            session.fenced_ids.append(session.session_id)
        return session

    def _node_started(self, command: NodeStarted) -> int | Rejection:
        known = self.state.started.get(command.number, MemberLives())
        if command.boot < known.boot:
            return Rejection("STALE_BOOT", f"{command.node} had boot {known.boot} already")
        lives = MemberLives(command.boot, command.incarnation, known.let_in, command.level)
        self.state.started[command.number] = lives
        return command.boot

    def _let_in(self, command: LetIn) -> None:
        self.state.let_in(command.number, command.incarnation)

    def _expire(self, command: Expire) -> list[Input]:
        """Forget what an Expire command names. Returns the inputs that are gone."""
        for producer, seen_ms in command.producers:
            if self.state.producers_seen.get(producer) == seen_ms:
                del self.state.producers_seen[producer]
                self.state.producers.pop(producer, None)
                self.state.transactions.forget_producer(producer)
        gone = []
        for name, idle_since_ms in command.sessions:
            session = self.state.sessions.get(name)
            if session is not None and session.idle_since_ms == idle_since_ms >= 0:
                gone += self._forget_runs(session)
        return gone

    def _forget_runs(self, session: Session) -> list[Input]:
        """Keep of a session only what refuses a late sender and an impostor."""
        session.forgotten = max([session.forgotten, *(run.asked for run in session.runs)])
        was_staged = session.runs[-1].stage is not None
        session.next_run = session.runs[-1].number + 1
        session.runs, session.idle_since_ms = [], -1
        gone = self.inputs_of(session.name)
        for entry in gone:
            del self.state.inputs[entry.number]
            del self._by_place[entry.session, entry.partition]
        if was_staged:  # a late sender's records would be staged again, and never published
            del self.state.sessions[session.name]
        return gone

    # --- members ----------------------------------------------------------------------------------

    def _change_settings(
        self, command: SettingCommand | SchemaCommand
    ) -> SettingCommand | SchemaCommand | Rejection:
        problem = CHANGES[type(command)](self.state, command)
        return command if problem is None else Rejection(*problem)

    def _reset(self, command: ResetCommand) -> ResetCommand | Rejection:
        if not RESETS[type(command)](self.state, command):
            return Rejection("RESET_DONE", f"reset {command.reset_id} is done already")
        self.reindex()
        self.state.remember(event_of(command, len(self.state.topics)))
        return command

    def _record_event(self, command: RecordEvent) -> RecordEvent:
        self.state.remember(command)
        return command

    # --- merging ----------------------------------------------------------------------------------

    def merge(self, command: Merge) -> Merge | Rejection:
        """Apply an instruction, as `apply` does."""
        partition = self.state.partitions.get(command.partition)
        if partition is None:
            return Rejection("UNKNOWN_TOPIC", f"partition {command.partition} is gone")
        if partition.next_offset != command.base_offset:
            return Rejection("PRECONDITION", f"base offset {command.base_offset}")
        places = self.places_after(command, {})
        if places is None:
            return Rejection("PRECONDITION", f"positions of partition {command.partition}")
        if isinstance(command, MergeTransactions):
            problem = self.state.transactions.problem_with(command)
            if problem is not None:
                return Rejection("PRECONDITION", problem)
            self.state.transactions.merged(command)
        for number, place in places.items():
            entry = self.state.inputs[number]
            entry.run, entry.roll, entry.byte = place
        self._advance(partition, command)
        if command.sequences or command.watermarks or command.unwrapped:
            learn(self.state, command)
        return command

    def places_after(
        self, command: Merge, before: Mapping[int, SessionPosition], *, staged: bool = False
    ) -> dict[int, SessionPosition] | None:
        """Where each input stands after the instruction; None if a range starts elsewhere, or its
        run is closed or, unless `staged`, held. `before`: where inputs stand that will have moved
        by then.
        """
        places = dict(before)
        for part in command.ranges:
            entry = self.state.inputs.get(part.input)
            if entry is None or entry.partition != command.partition:
                return None
            place = places.get(part.input, entry)
            if place is entry and not self.takes(entry.session, staged=staged):
                return None
            if not follows(place, part):
                return None
            places[part.input] = SessionPosition(part.run, part.roll, part.stop)
        return places

    def takes(self, session: str, *, staged: bool = False) -> bool:
        """Whether a run of the session is open whose records may be merged; `staged`: one that is
        held.
        """
        known = self.state.sessions.get(session)
        run = known.runs[-1] if known is not None and known.runs else None
        if run is None or run.closed:
            return False
        return (run.stage is not None and not run.published) is staged

    def _publish_stage(self, command: PublishStageCommand) -> PublishStageCommand | Rejection:
        problem = problem_with(self, command)
        if problem is not None:
            return problem
        release_runs(self, command)
        for merge in command.merges:
            self.merge(merge)
        for session, run_id in command.runs:
            self._close_run(CloseRun(session, run_id, command.at_ms))
        return command

    def _advance(self, partition: Partition, command: Merge) -> None:
        if command.roll and partition.next_offset > 0:
            partition.rolls.append((command.base_offset, command.append_ms))
        if command.roll or partition.next_offset == 0:
            partition.segment_bytes = 0
            partition.segment_started_ms = command.append_ms
        partition.segment_bytes += command.size
        partition.next_offset = command.next_offset
        partition.append_ms = max(partition.append_ms, command.append_ms)

    def _void_records(self, command: VoidRecordsCommand) -> VoidRecordsCommand | Rejection:
        partition = self.state.partitions.get(command.partition)
        if partition is None:
            return Rejection("UNKNOWN_TOPIC", f"partition {command.partition} is gone")
        given_up = give_up(partition, command)
        if isinstance(given_up, str):
            return Rejection("PRECONDITION", given_up)
        if given_up is command:
            name = f"{self.state.topics[partition.topic_id].name}-{partition.index}"
            offsets = f"offsets {command.base_offset} to {command.next_offset - 1}"
            text = f"{name}: {offsets} are void: no node had their records"
            self.state.remember(RecordEvent(command.at_ms, "void", text))
        return given_up

    def _archive(self, command: ArchiveCommand) -> ArchiveCommand | Rejection:
        partition = self.state.partitions.get(command.partition)
        if partition is None:
            return Rejection("UNKNOWN_TOPIC", f"partition {command.partition} is gone")
        problem = apply_archive(partition, self.state.copy_targets, command)
        return command if problem is None else Rejection("PRECONDITION", problem)

    def _checkpoint(self, command: Checkpoint) -> Checkpoint:
        """What of it is news."""
        news = []
        for number, offset, checksum in command.values:
            partition = self.state.partitions.get(number)
            if partition is not None and agree(partition, offset, checksum):
                news.append((number, offset, checksum))
        return Checkpoint(news)

    def _change_groups(self, command: GroupCommand) -> GroupCommand | Rejection:
        problem = self.state.groups.apply(command, self.state.partitions)
        return command if problem is None else Rejection("PRECONDITION", problem)

    def _change_transactions(self, command: TransactionCommand) -> ProducerIdAndEpoch | Rejection:
        try:
            return change_transactions(self.state, command)
        except TransactionRefused as refusal:
            return Rejection(refusal.code, refusal.text)


_APPLY: dict[type, Any] = {
    CreateTopicCommand: StateMachine._create_topic,
    DeleteTopicCommand: StateMachine._delete_topic,
    OpenRunCommand: StateMachine._open_run,
    OpenInputCommand: StateMachine._open_input,
    CloseRun: StateMachine._close_run,
    Merge: StateMachine.merge,
    MergeTransactions: StateMachine.merge,
    Checkpoint: StateMachine._checkpoint,
    RetireSessionCommand: StateMachine._retire_session,
    NodeStarted: StateMachine._node_started,
    LetIn: StateMachine._let_in,
    RecordEvent: StateMachine._record_event,
    VoidRecordsCommand: StateMachine._void_records,
    Expire: StateMachine._expire,
    ArchiveCommand: StateMachine._archive,
    PublishStageCommand: StateMachine._publish_stage,
    **dict.fromkeys(RESETS, StateMachine._reset),
    **dict.fromkeys(CHANGES, StateMachine._change_settings),
    **dict.fromkeys(GROUP_COMMANDS, StateMachine._change_groups),
    **dict.fromkeys(TRANSACTION_COMMANDS, StateMachine._change_transactions),
}

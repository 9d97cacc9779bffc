"""The replicated state machine: the same commands in the same order give the same state on every
node.

It holds topics, sessions and their runs, the merged position of every input, the next offset of
every partition and what dedup must remember. It knows nothing of files: whether merged bytes are
already written here is the merger's cursor, not this one (docs/ARCHITECTURE.md, "Two cursors").

Invariant: a command whose preconditions do not hold changes nothing and answers with a Rejection,
on every node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from samelog.archiver.command import ArchiveCommand
from samelog.format.positions import SessionPosition
from samelog.sequencer.levels import OtherVersion
from samelog.sequencer.state.command_base import Rejection, WhyNot
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.instructions import NO_EXTRAS, Merge, MergeExtras, VoidRecordsCommand
from samelog.sequencer.state.tables.access import ACCESS_COMMANDS
from samelog.sequencer.state.tables.events import NoteElection
from samelog.sequencer.state.tables.groups import GROUP_COMMANDS
from samelog.sequencer.state.tables.members import MemberLives, NodeStarted
from samelog.sequencer.state.tables.mirrors import CreateMirror, FollowSource
from samelog.sequencer.state.tables.partitions import GONE, Checkpoint, Partition
from samelog.sequencer.state.tables.placement import (
    BeginAnew,
    LowerOffsets,
    OpenNewLog,
    OpenPartition,
    PlacementCommand,
    PlaceTopic,
)
from samelog.sequencer.state.tables.resets import HardReset, ResetCommand
from samelog.sequencer.state.tables.sessions import (
    ClosePlacedRun,
    CloseRun,
    Expire,
    Input,
    OpenInputCommand,
    OpenPlacedInput,
    OpenRunCommand,
    RetireSessionCommand,
    Run,
    Session,
    SessionIndex,
    follows,
)
from samelog.sequencer.state.tables.stages import PublishStageCommand
from samelog.sequencer.state.tables.topics import CreateTopicCommand, DeleteTopicCommand, Topic
from samelog.sequencer.state.tables.transfers import PassPartition
from samelog.sequencer.state.types import STATE_VERSION, State, not_next
from samelog.sequencer.state.units.events import TELLERS, note_election, note_events
from samelog.sequencer.state.units.groups import change_groups
from samelog.sequencer.state.units.logs import LOG_CHANGES, archive_records, news_of, void_records
from samelog.sequencer.state.units.members import MEMBER_CHANGES
from samelog.sequencer.state.units.mirrors import (
    MIRROR_CHANGES,
    follow_source,
    problem_with_ends,
    settle,
    take_mirrored,
)
from samelog.sequencer.state.units.placement import PLACEMENT_CHANGES
from samelog.sequencer.state.units.recovered_offsets import lower_offsets
from samelog.sequencer.state.units.resets import RESETS, event_of, why_no_hard_reset
from samelog.sequencer.state.units.schemas import SCHEMA_CHANGES
from samelog.sequencer.state.units.sessions import begin_run
from samelog.sequencer.state.units.sites import SITE_CHANGES
from samelog.sequencer.state.units.stages import STAGE_CHANGES, problem_with, release_runs
from samelog.sequencer.state.units.topics import (
    TOPIC_CHANGES,
    add_topic,
    drop_topic,
    problem_with_new,
    why_no_input,
)
from samelog.sequencer.state.units.transactions import (
    TRANSACTION_COMMANDS,
    change_transactions,
    merged,
)
from samelog.sequencer.state.units.validation import VALIDATION_CHANGES, note_refused, why_unchecked
from samelog.sequencer.state.units.views import VIEW_CHANGES, why_not_dropped

_encoder = msgspec.msgpack.Encoder()

_decoder = msgspec.msgpack.Decoder(State)


class StateMachine:
    """Applies commands. `apply` returns the value the proposer waits for, or a Rejection."""

    def __init__(self, state: State | None = None) -> None:
        self.state = state if state is not None else State()
        self.index = SessionIndex()
        self._by_log: dict[str, str] = {}
        self.feed_listeners: list[Callable[[], None]] = []
        """Of whoever reads what is told of groups and transactions."""
        self.reindex()

    def reindex(self) -> None:
        """Rebuild the lookups; to be called when `state` was replaced."""
        self.index = SessionIndex.of(self.state.sessions)
        self._by_log = {topic.log_id: topic.topic_id for topic in self.state.topics.by_id.values()}
        self.feeds_moved()

    def feeds_moved(self) -> None:
        """Something may be told of groups and transactions that was not."""
        for listener in self.feed_listeners:
            listener()

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
        state.share_names()
        return cls(state)

    def apply(self, command: AnyCommand) -> Any:
        """Apply one committed command: the value its proposer waits for, or a Rejection."""
        tell = TELLERS.get(type(command))
        happened = () if tell is None else tuple(tell(self.state, command))
        outcome = _APPLY[type(command)](self, command)
        if happened and not isinstance(outcome, Rejection):
            note_events(self.state, happened)
        return outcome

    # --- lookups ----------------------------------------------------------------------------------

    def topic_named(self, name: str) -> Topic | None:
        """The living topic of that name."""
        topic_id = self.state.topics.by_name.get(name)
        return None if topic_id is None else self.state.topics.by_id[topic_id]

    def topic_of_log(self, log_id: str) -> Topic | None:
        """The living topic whose present log has that id."""
        topic_id = self._by_log.get(log_id)
        return None if topic_id is None else self.state.topics.by_id[topic_id]

    def partition_of(self, topic_id: str, index: int) -> Partition | None:
        """The partition of a living topic; None if there is none, or it is in another group."""
        topic = self.state.topics.by_id.get(topic_id)
        if topic is None or not 0 <= index < topic.partitions:
            return None
        return self.state.partitions.by_number.get(topic.partition_numbers[index])

    def input_of(self, session: str, partition: int) -> Input | None:
        """A session's input of one partition number."""
        number = self.index.input_of(session, partition)
        return None if number is None else self.state.sessions.inputs[number]

    def inputs_of(self, session: str) -> list[Input]:
        """All inputs of a session."""
        return [self.state.sessions.inputs[number] for number in self.index.inputs_of(session)]

    def open_run_of(self, session: str) -> Run | None:
        """The session's run that is not closed, if any: there is at most one, the newest."""
        known = self.state.sessions.by_name.get(session)
        if known is None or not known.runs or known.runs[-1].closed:
            return None
        return known.runs[-1]

    def run_of(self, session: str, run_id: str) -> Run | None:
        """A run by its id."""
        known = self.state.sessions.by_name.get(session)
        runs = () if known is None else known.runs
        return next((run for run in runs if run.run_id == run_id), None)

    # --- topics -----------------------------------------------------------------------------------

    def _create_topic(
        self, command: CreateTopicCommand | PlaceTopic | CreateMirror
    ) -> Topic | Rejection:
        known = self.state.topics.by_id.get(command.topic_id)
        if known is not None:  # proposed twice, because its fate was not known
            return known
        problem = problem_with_new(self.state, command)
        if problem is not None:
            return Rejection(*problem)
        topic = Topic(command.topic_id, command.name, command.settings, command.at_ms, [])
        self._by_log[topic.log_id] = command.topic_id
        return add_topic(self.state, topic, command)

    def _delete_topic(self, command: DeleteTopicCommand) -> Topic | Rejection:
        problem = why_not_dropped(self.state, command.topic_id)
        if problem is not None:
            return Rejection(*problem)
        topic = self.state.topics.by_id.pop(command.topic_id, None)
        if topic is None:
            return Rejection("UNKNOWN_TOPIC", f"no topic has the id {command.topic_id}")
        del self.state.topics.by_name[topic.name]
        del self._by_log[topic.log_id]
        self.state.schemas.forget(topic.schemas)
        for entry in drop_topic(self.state, topic):
            self.index.drop_input(entry)
            self.index.note(self.state.sessions.by_name[entry.session])
        self.feeds_moved()
        return topic

    # --- sessions ---------------------------------------------------------------------------------

    def _open_run(self, command: OpenRunCommand) -> Run | Rejection:
        session = self.state.sessions.by_name.get(command.session)
        if session is None:
            session = Session(command.session, command.session_id, command.identity, [])
        problem = session.problem_with_claim(command)
        known = self.run_of(command.session, command.run_id) if problem is None else None
        if known is not None:
            return known
        problem = problem or session.problem_with_run(command)
        if problem is not None:
            return Rejection(*problem)
        self.state.sessions.by_name[command.session] = session
        session.take_over(command.session_id)
        run = session.begin(command, max(session.next_number, command.number), command.number)
        self._begin_inputs(run, session)
        return run

    def _begin_inputs(self, run: Run, session: Session) -> None:
        for entry in self.inputs_of(session.name):
            entry.run, entry.roll, entry.byte = run.number, 0, 0
            entry.last_id = None
        self.index.note(session)

    def _open_placed_input(self, command: OpenPlacedInput) -> Input | Rejection:
        run: Run | Rejection | None = self.run_of(command.session, command.run_id)
        if run is None:
            problem = self._problem_with_input(command, command.stage)
            if problem is not None:
                return Rejection(*problem)
            run = begin_run(self.state, command)
            if isinstance(run, Rejection):
                return run
            self._begin_inputs(run, self.state.sessions.by_name[command.session])
        return self._open_input(
            OpenInputCommand(command.session, command.topic_id, command.partition)
        )

    def _close_placed_run(self, command: ClosePlacedRun) -> Run | Rejection:
        run = self.run_of(command.session, command.run_id)
        spanning = self.state.stages
        stays = run is None or run.closed or spanning.is_pinned(command.session)
        numbers, inputs = self.index.places_of(command.session), self.state.sessions.inputs
        for partition, roll, byte in () if stays else command.ends:
            if partition in numbers:  # a call for each of thousands would take a long turn
                entry = inputs[numbers[partition]]
                entry.roll, entry.byte = roll, byte
        return self._close_run(CloseRun(command.session, command.run_id, command.at_ms))

    def _open_input(self, command: OpenInputCommand) -> Input | Rejection:
        run = self.open_run_of(command.session)
        problem = self._problem_with_input(command, None if run is None else run.stage)
        if problem is not None:
            return Rejection(*problem)
        if run is None:
            return Rejection("RUN_CLOSED", f"session {command.session!r} has no open run")
        partition = self.state.topics.by_id[command.topic_id].partition_numbers[command.partition]
        known = self.input_of(command.session, partition)
        if known is not None:
            return known
        entry = self.state.sessions.open_input(command.session, partition, run.number)
        self.index.add_input(entry)
        self.index.note(self.state.sessions.by_name[command.session])
        return entry

    def _problem_with_input(
        self, command: OpenInputCommand | OpenPlacedInput, stage: str | None
    ) -> WhyNot:
        """Why a session cannot write to a partition in a run that is for `stage`."""
        partition = self.partition_of(command.topic_id, command.partition)
        if partition is None:
            return "UNKNOWN_TOPIC", f"no partition {command.partition} of {command.topic_id}"
        return why_no_input(self.state, command.session, partition, stage)

    def _close_run(self, command: CloseRun) -> Run | Rejection:
        run = self.run_of(command.session, command.run_id)
        if run is None:
            return Rejection("UNKNOWN_RUN", f"{command.session!r} has no run {command.run_id}")
        if not run.closed and self.state.stages.is_pinned(command.session):
            return Rejection("PINNED", f"run {command.run_id} is being published")
        if not run.closed:
            run.close(self.inputs_of(command.session))
            session = self.state.sessions.by_name[command.session]
            session.idle_since_ms = command.at_ms
            self.index.note(session)
        return run

    def _retire_session(self, command: RetireSessionCommand) -> Session | Rejection:
        session = self.state.sessions.by_name.get(command.session)
        if session is None:
            return Rejection("UNKNOWN_SESSION", f"no session {command.session!r}")
        if command.session_id not in ("", session.session_id):
            return session  # retired before, and taken over by another directory meanwhile
        run = self.open_run_of(command.session)
        if run is not None:
            closed = self._close_run(CloseRun(command.session, run.run_id, command.at_ms))
            if isinstance(closed, Rejection):
                return closed
        session.retire()
        return session

    def _node_started(self, command: NodeStarted) -> int | Rejection:
        known = self.state.members.started.get(command.number, MemberLives())
        if command.boot < known.boot:
            return Rejection("STALE_BOOT", f"{command.node} had boot {known.boot} already")
        lives = MemberLives(command.boot, command.incarnation, known.let_in, command.level)
        self.state.members.started[command.number] = lives
        return command.boot

    def _expire(self, command: Expire) -> list[Input]:
        """Forget what an Expire command names. Returns the inputs that are gone."""
        seen_ms = self.state.producers.seen_ms
        idle = [producer for producer, at_ms in command.producers if seen_ms.get(producer) == at_ms]
        for table in self.state.partition_tables.values():
            table.expire(idle)
        gone = []
        for name, idle_since_ms in command.sessions:
            session = self.state.sessions.by_name.get(name)
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
            del self.state.sessions.inputs[entry.number]
            self.index.drop_input(entry)
        self.index.note(session)
        if was_staged:  # a late sender's records would be staged again, and never published
            del self.state.sessions.by_name[session.name]
        return gone

    # --- members ----------------------------------------------------------------------------------

    def _change(self, command: AnyCommand) -> AnyCommand | Rejection:
        problem = CHANGES[type(command)](self.state, command)
        return command if problem is None else Rejection(*problem)

    def _change_placement(self, command: PlacementCommand) -> PlacementCommand | Rejection:
        problem = PLACEMENT_CHANGES[type(command)](self.state, command)
        if problem is not None:
            return Rejection(*problem)
        if isinstance(command, OpenPartition | OpenNewLog):
            self._by_log[self.state.topics.by_id[command.topic_id].log_id] = command.topic_id
        elif isinstance(command, PassPartition | BeginAnew):
            self.reindex()
        if isinstance(command, BeginAnew):
            self.state.events.remember(event_of(command, len(command.logs)))
        return command

    def _reset(self, command: ResetCommand) -> ResetCommand | Rejection:
        is_news = command.reset_id not in self.state.resets.ids
        if isinstance(command, HardReset) and is_news and (why := why_no_hard_reset(self.state)):
            return Rejection(*why)
        if not RESETS[type(command)](self.state, command):
            return Rejection("RESET_DONE", f"reset {command.reset_id} is done already")
        self.reindex()
        self.state.events.remember(event_of(command, len(self.state.topics.by_id)))
        return command

    # --- merging ----------------------------------------------------------------------------------

    def merge(self, command: Merge) -> Merge | Rejection:
        """Apply an instruction, as `apply` does."""
        partition = self.state.partitions.by_number.get(command.partition, GONE)
        if partition.next_offset != command.base_offset:
            return not_next(partition, command)
        extras = command.extras or NO_EXTRAS
        if (extras.mirrored is not None) is not (command.partition in self.state.mirrors.places):
            return Rejection("MIRROR", f"partition {command.partition} is one of a mirror, or none")
        if self.state.schemas.enforced and (why := why_unchecked(self.state, partition, command)):
            return Rejection("UNCHECKED", why)
        places = self.places_after(command, {})
        if places is None:
            return Rejection("PRECONDITION", f"positions of partition {command.partition}")
        if extras is not NO_EXTRAS and (reason := self._apply_extras(command, extras)):
            return Rejection("PRECONDITION", reason)
        for number, place in places.items():
            entry = self.state.sessions.inputs[number]
            entry.run, entry.roll, entry.byte = place
        self._advance(partition, command)
        return command

    def _apply_extras(self, command: Merge, extras: MergeExtras) -> str | None:
        """Apply what a plain instruction does not have; return why it cannot be applied, if so."""
        if extras.mirrored is not None:
            take_mirrored(self.state, command, extras.mirrored)
            return None
        if extras.begins or extras.ends:
            reason = self.state.open_transactions.problem_with(command.partition, extras)
            reason = reason or problem_with_ends(self.state, command.partition, extras.ends)
            if reason is not None:
                return reason
            merged(self, command, extras)
            settle(self.state, command.partition, extras.ends)
        note_refused(self.state, extras.refused)
        return None

    def places_after(
        self, command: Merge, before: Mapping[int, SessionPosition], *, staged: bool = False
    ) -> dict[int, SessionPosition] | None:
        """Where each input stands after the instruction; None if a range starts elsewhere, or its
        run is closed or, unless `staged`, held, or the partition is on its way to another group.
        `before`: where inputs stand that will have moved by then.
        """
        placement, transfers = self.state.placement, self.state.transfers
        number = command.partition
        passes = transfers.passing is not None and transfers.is_on_its_way(number)
        if passes or number in placement.partitions:
            return None
        places = dict(before)
        for part in command.ranges:
            entry = self.state.sessions.inputs.get(part.input)
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
        known = self.state.sessions.by_name.get(session)
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
            partition.rolls = (*partition.rolls, (command.base_offset, command.append_ms))
        if command.roll or partition.next_offset == 0:
            partition.segment_bytes = 0
            partition.segment_started_ms = command.append_ms
        size, partition.next_offset = command.extent
        partition.segment_bytes += size
        partition.append_ms = max(partition.append_ms, command.append_ms)
        if (
            self.state.keys.by_partition
            and (keyed := self.state.keys.by_partition.get(partition.number)) is not None
        ):
            settings = self.state.topics.by_id[partition.topic_id].settings
            keyed.merged(command.base_offset, command.next_offset, command.append_ms, settings)
        if command.sequences or command.watermarks or command.unwrapped:
            self._learn(command)

    def _learn(self, command: Merge) -> None:
        """Take over what dedup learns from an instruction. One for a mirror teaches it nothing,
        before the mirror is promoted.
        """
        if command.extras is not None and command.extras.mirrored is not None:
            return
        state, number = self.state, command.partition
        state.producers.learn(number, command.sequences, command.append_ms)
        state.watermarks.learn(number, command.watermarks)
        for each, last_id in command.unwrapped:
            state.sessions.inputs[each].last_id = last_id

    def _checkpoint(self, command: Checkpoint) -> Checkpoint:
        return Checkpoint(news_of(self.state.partitions.by_number, command))


CHANGES: Mapping[type, Callable[[Any, Any], WhyNot]] = {
    **dict.fromkeys(ACCESS_COMMANDS, lambda state, command: state.access.apply(command)),
    **MEMBER_CHANGES,
    **TOPIC_CHANGES,
    **LOG_CHANGES,
    **SCHEMA_CHANGES,
    **VALIDATION_CHANGES,
    **MIRROR_CHANGES,
    **SITE_CHANGES,
    **VIEW_CHANGES,
}
"""Why a command changes nothing, if it does not; it is its own answer otherwise."""

_APPLY: dict[type, Any] = {
    CreateTopicCommand: StateMachine._create_topic,
    PlaceTopic: StateMachine._create_topic,
    CreateMirror: StateMachine._create_topic,
    FollowSource: follow_source,
    DeleteTopicCommand: StateMachine._delete_topic,
    OpenRunCommand: StateMachine._open_run,
    OpenInputCommand: StateMachine._open_input,
    CloseRun: StateMachine._close_run,
    Merge: StateMachine.merge,
    Checkpoint: StateMachine._checkpoint,
    RetireSessionCommand: StateMachine._retire_session,
    NodeStarted: StateMachine._node_started,
    NoteElection: note_election,
    VoidRecordsCommand: lambda machine, command: void_records(machine.state, command),
    Expire: StateMachine._expire,
    ArchiveCommand: lambda machine, command: archive_records(machine.state, command),
    PublishStageCommand: StateMachine._publish_stage,
    **dict.fromkeys(RESETS, StateMachine._reset),
    **dict.fromkeys(CHANGES, StateMachine._change),
    **dict.fromkeys(PLACEMENT_CHANGES, StateMachine._change_placement),
    OpenPlacedInput: StateMachine._open_placed_input,
    ClosePlacedRun: StateMachine._close_placed_run,
    **STAGE_CHANGES,
    **dict.fromkeys(GROUP_COMMANDS, change_groups),
    LowerOffsets: lower_offsets,
    **dict.fromkeys(TRANSACTION_COMMANDS, change_transactions),
}

"""One node's replica of the cluster's state: applies entries and passes on what they mean here.

Two cursors stay apart: the state machine advances as soon as an entry is committed, the mergers
when the bytes are there. Between the two lie the pending instructions, which every snapshot
carries.

Invariant: entries are applied once, in order; a snapshot body read back gives the same state and
the same pending instructions.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import Any, get_args

import msgspec

from samelog.archiver.command import ArchiveCommand
from samelog.consensus import Entry, Snapshot
from samelog.format.errors import InvariantError, LogFormatError
from samelog.format.positions import SessionPosition
from samelog.placement.tasks import Action
from samelog.runtime.flag import Flag
from samelog.sequencer.events import ApplyEvents
from samelog.sequencer.levels import SUPPORTED, OtherVersion, check_level
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.merge.session_store import GoneInput, SessionStore
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand, decode_commands
from samelog.sequencer.state.instructions import Merge, VoidRecordsCommand
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.members import LetIn, RaiseLevel, SetMembers
from samelog.sequencer.state.tables.mirrors import MirrorGap, PromoteMirrors
from samelog.sequencer.state.tables.partitions import Checkpoint
from samelog.sequencer.state.tables.placement import (
    BeginAnew,
    OpenNewLog,
    OpenPartition,
    PlacementCommand,
    PlacePartitions,
    PlaceTopic,
)
from samelog.sequencer.state.tables.resets import HardReset, SoftReset
from samelog.sequencer.state.tables.schemas import SetSchemaCommand
from samelog.sequencer.state.tables.sessions import (
    CloseRun,
    Expire,
    Input,
    OpenPlacedInput,
    OpenRunCommand,
    RetireSessionCommand,
)
from samelog.sequencer.state.tables.stages import (
    EndStage,
    PublishStageCommand,
    StageCommand,
)
from samelog.sequencer.state.tables.topics import (
    AddPartitions,
    AlterTopicCommand,
    CreateTopicCommand,
    DeleteTopicCommand,
)
from samelog.sequencer.state.tables.transfers import PassPartition
from samelog.sequencer.state.tables.views import DropViewCommand
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units import merges
from samelog.sequencer.state.units.mirrors import archived_by
from samelog.sequencer.state.units.moves import decoded
from samelog.sequencer.state.units.transactions import TRANSACTION_COMMANDS

log = logging.getLogger(__name__)

RunChange = OpenRunCommand | CloseRun | RetireSessionCommand | OpenPlacedInput
RUN_CHANGES = get_args(RunChange)
PLACED = (PlaceTopic, PlacePartitions)
GROWTH = (CreateTopicCommand, AddPartitions, *PLACED, OpenPartition)
"""Nothing goes with them: topics are new, or have more partitions."""
TopicChange = (
    CreateTopicCommand
    | AddPartitions
    | PlaceTopic
    | PlacePartitions
    | OpenPartition
    | DeleteTopicCommand
    | OpenNewLog
)
TOPIC_CHANGES = get_args(TopicChange)
REMOVING = frozenset(
    {DeleteTopicCommand, Expire, OpenNewLog, OpenPartition, PassPartition, *PLACED}
)
"""Files of inputs or partitions may go behind these."""
UNIT_CHANGES = (
    *get_args(StageCommand),
    *TRANSACTION_COMMANDS,
)


class SnapshotBody(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot holds: the state machine, and the instructions committed but not executed."""

    state: bytes
    pending: list[Merge]


class _Mark(msgspec.Struct, frozen=True):
    """Once a majority has merged up to `offset`, the inputs are released up to these places."""

    offset: int
    places: tuple[tuple[int, SessionPosition], ...]


class Replica:
    """The state machine with what hangs on it. Implements group.Applier."""

    def __init__(
        self,
        machine: StateMachine,
        sessions: SessionStore,
        merging: Merging,
        events: ApplyEvents,
        supported: int = SUPPORTED,
    ) -> None:
        """`supported`: the newest feature level that this build knows."""
        self.machine = machine
        self.supported = supported
        self.applied_index = 0
        self.released: dict[int, SessionPosition] = {}
        """Input -> place up to which a majority has it merged-durable."""
        self.decoded: dict[bytes, list[AnyCommand]] = {}
        """What entries say, by their data, where somebody has looked at them before."""
        self._sessions = sessions
        self.merging = merging
        self._events = events
        self._marks: dict[int, deque[_Mark]] = {}
        self._cursors: dict[int, int] = {}
        """Partition -> offset that a majority is known to have merged-durable."""
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._next_waiter = 0
        self._tidied = Flag(is_set=True)

    @property
    def level(self) -> int:
        """The cluster's feature level."""
        return self.machine.state.members.level

    # --- starting and snapshots -------------------------------------------------------------------

    def start(self, pending: list[Merge], index: int) -> None:
        """Take up what a snapshot left: open the logs, queue the pending instructions."""
        self.applied_index = index
        self.merging.take_up()
        self._sessions.forget_left()
        self._tidy_soon()
        for merge in pending:
            self.merging.enqueue(merge)
        self._mark_planned()

    def _mark_planned(self) -> None:
        """What was planned so far is released together."""
        state, places = self.machine.state, defaultdict(list)
        for entry in state.sessions.inputs.values():
            places[entry.partition].append((entry.number, entry.place))
        self._marks = {
            number: deque([_Mark(state.partitions.by_number[number].next_offset, tuple(known))])
            for number, known in places.items()
            if number in state.partitions.by_number
        }

    def body(self) -> bytes:
        """The body of a snapshot of this moment."""
        return msgspec.msgpack.encode(SnapshotBody(self.machine.encode(), self.merging.pending()))

    def install(self, snapshot: Snapshot) -> None:
        """Replace the state by the leader's: this node is too far behind for entries."""
        machine, pending = read_body(snapshot.data, self.supported)
        gone, sessions = (
            self._lost_inputs(machine.state),
            self.machine.state.sessions.by_name.keys(),
        )
        views = self.machine.state.views.by_id
        dropped = {v.base_id for i, v in views.items() if i not in machine.state.views.by_id}
        self.machine.restore(machine.state)
        self._let_go(gone, sessions)
        self.merging.drop_pending()
        self.start(pending, snapshot.last_index)
        self._release(self._cursors)
        self._events.views_dropped(dropped)
        for session in machine.state.sessions.by_name.values():
            if session.fenced_ids:
                self._events.session_retired(session.name)
        self._events.snapshot_installed()
        self._wake_waiters()

    def _lost_inputs(self, newer: State) -> list[GoneInput]:
        """The inputs that this group has, and does not have in a newer state."""
        known = self.machine.state
        return [
            self._sessions.gone(entry)
            for entry in known.sessions.inputs.values()
            if entry.number not in newer.sessions.inputs
            or (known.has_here(entry.partition) and not newer.has_here(entry.partition))
        ]

    def _let_go(self, gone: list[GoneInput], sessions: Iterable[str]) -> None:
        """Let go of inputs, and of sessions that are forgotten, as the entries would have done that
        a snapshot stands for. A log that stayed open would save its marks in a directory that is
        another topic's by now.
        """
        state = self.machine.state
        if gone:
            moved = [each.number for each in gone if each.topic_id in state.topics.by_id]
            deleted = [each.number for each in gone if each.topic_id not in state.topics.by_id]
            self._events.inputs_moved(moved)
            self._events.inputs_deleted(deleted)
            self._forget(gone)
        for session in sessions:
            if session not in state.sessions.by_name:
                self._sessions.forget_session(session)

    # --- applying ---------------------------------------------------------------------------------

    def apply(self, entry: Entry) -> list[Any]:
        """Apply one committed entry. Raises CommitNotKept: nothing has changed, and the entry is to
        be applied again.
        """
        if entry.index <= self.applied_index:
            raise InvariantError(f"entry {entry.index} applied twice")
        commands = self.decoded.pop(entry.data, None) or decode_commands(entry.data)
        for command in commands:
            if type(command) in REMOVING:
                self._events.files_go()
                break
        outcomes = list(map(self._apply, commands))
        self.applied_index = entry.index
        if not entry.data:  # a new leader's first
            self.merging.sample()
        rejected = Rejection in map(type, outcomes) and any(
            isinstance(command, Merge | PublishStageCommand | EndStage)
            and isinstance(outcome, Rejection)
            for command, outcome in zip(commands, outcomes, strict=True)
        )
        self._events.entry_applied(entry.index, commands, rejected=rejected)
        if self._waiters:
            self._wake_waiters()
        return outcomes

    def _apply(self, command: AnyCommand) -> Any:
        if not isinstance(command, Merge):
            return self._apply_change(command)
        outcome = merges.merge(self.machine.state, command)
        if isinstance(outcome, Rejection):
            log.warning("merge instruction rejected: %s", outcome.message)
        else:
            partition = self.machine.state.partitions.by_number[command.partition]
            self._merged(command, partition.next_offset)
            if command.extras is not None and command.extras.ends:
                self._events.units_moved()
        return outcome

    def _apply_change(self, command: AnyCommand) -> Any:
        """Anything but a merge instruction."""
        gone, before = self._inputs_concerned(command), self._newest_run(command)
        dropped = self._bases_of_dropped(command)
        outcome = self.machine.apply(command)
        if isinstance(outcome, Rejection):
            return outcome
        if isinstance(command, PassPartition):
            self._passed(command, gone)
        elif isinstance(command, TOPIC_CHANGES):
            self._topic_changed(command, gone)
            self._events.topic_changed(command.topic_id)
            if isinstance(command, PLACED):
                self._events.placement_changed()
        elif isinstance(command, RUN_CHANGES):
            self._runs_changed(command, is_new=self._newest_run(command) != before)
        elif isinstance(command, UNIT_CHANGES):
            self._unit_changed(command)
        elif dropped:
            self._events.views_dropped(dropped)
        else:
            self._pass_on(command, outcome)
        return outcome

    def _bases_of_dropped(self, command: AnyCommand) -> list[str]:
        """The topic of a view that is about to be dropped."""
        if not isinstance(command, DropViewCommand):
            return []
        view = self.machine.state.views.by_id.get(command.topic_id)
        return [] if view is None else [view.base_id]

    def _runs_changed(self, command: RunChange, *, is_new: bool) -> None:
        """A run was opened or closed, or a session retired; `is_new`: the newest run has moved."""
        if is_new:
            self._events.run_changed(command.session)
        if isinstance(command, RetireSessionCommand):
            self._events.session_retired(command.session)

    def _pass_on(self, command: AnyCommand, outcome: Any) -> None:
        """What a command means here that is about neither topics nor runs."""
        if isinstance(command, SetMembers | LetIn):
            self._events.members_changed()
        elif isinstance(command, SoftReset | HardReset | BeginAnew):
            self._reset(command)
        elif isinstance(command, PlacementCommand):
            self._events.placement_changed()
        elif isinstance(command, AlterTopicCommand | SetSchemaCommand | PromoteMirrors):
            self._topics_changed(command)
        elif isinstance(command, RaiseLevel):
            check_level(self.level, self.supported)
        elif isinstance(command, Checkpoint):
            self.merging.compare(outcome.values)
        elif isinstance(command, VoidRecordsCommand | ArchiveCommand | MirrorGap):
            self._records_gone(command)
        elif isinstance(command, Expire):
            self._inputs_expired(command, outcome)

    def _topics_changed(
        self, command: AlterTopicCommand | SetSchemaCommand | PromoteMirrors
    ) -> None:
        several = command.topic_ids if isinstance(command, PromoteMirrors) else (command.topic_id,)
        for topic_id in several:
            self._events.topic_changed(topic_id)

    def _records_gone(self, command: VoidRecordsCommand | ArchiveCommand | MirrorGap) -> None:
        """Some are void, or archived; an empty mirror begins later."""
        if isinstance(command, VoidRecordsCommand):
            return self.merging.follow_voids(command.partition)
        if isinstance(command, ArchiveCommand):
            return self._events.records_archived(command)
        self.merging.partition(command.partition)
        archived = archived_by(self.machine.state, command)
        if archived is None:
            return self.merging.follow_voids(command.partition)
        return self._events.records_archived(archived)

    def _unit_changed(self, command: AnyCommand) -> None:
        """Something that may span groups has moved; what was staged may be published."""
        if isinstance(command, PublishStageCommand | EndStage):
            for merge in command.merges:
                self._merged(merge, merge.next_offset)
            for session, _ in command.runs:
                if session in self.machine.state.sessions.by_name:
                    self._events.run_changed(session)
        self._events.units_moved()

    def _reset(self, command: SoftReset | HardReset | BeginAnew) -> None:
        """After a hard one nobody needs the bytes of what was merged before: none are waited for,
        and all of it is released.
        """
        if not isinstance(command, SoftReset):
            self.merging.follow()
            self._mark_planned()
            self._release(list(self._marks))
        self._events.reset_applied(command)

    def _newest_run(self, command: AnyCommand) -> tuple[str, bool] | None:
        """(run id, closed) of the newest run of the session that a command is about."""
        if not isinstance(command, RUN_CHANGES):
            return None
        session = self.machine.state.sessions.by_name.get(command.session)
        run = session.runs[-1] if session is not None and session.runs else None
        return None if run is None else (run.run_id, run.closed)

    def _merged(self, merge: Merge, offset: int) -> None:
        """An instruction is applied; its partition's next offset is `offset` behind it."""
        places = {}
        for part in merge.ranges:
            places[part.input] = SessionPosition(part.run, part.roll, part.stop)
        marks = self._marks.get(merge.partition)
        if marks is None:  # not kept while it is empty: a deque takes 0.7 KB
            marks = self._marks[merge.partition] = deque()
        marks.append(_Mark(offset, tuple(places.items())))
        self.merging.enqueue(merge)
        self._events.merge_committed(merge)
        if offset <= self._cursors.get(merge.partition, 0):
            self._release([merge.partition])  # it adds nothing, or this node was slower than others

    def needed(self, entry: Input) -> SessionPosition:
        """From where on bytes of an input's run may still have to be executed here."""
        partition = self.merging.partitions.get(entry.partition)
        waiting = None if partition is None else partition.merger.needed(entry.number, entry.run)
        return entry.place if waiting is None else waiting

    def is_released(self, entry: Input) -> bool:
        """Whether a majority has all of an input merged durably that was ever planned."""
        return self.released.get(entry.number, SessionPosition(-1, 0, 0)) >= entry.place

    def releasable(self, entry: Input) -> SessionPosition | None:
        """Below this a majority has an input merged-durable, and nothing here waits for bytes."""
        released = self.released.get(entry.number)
        return (
            None if released is None else min(released, next(iter(self._waiting(entry)), released))
        )

    def _waiting(self, entry: Input) -> Iterable[SessionPosition]:
        """Where the ranges of an input start that instructions wait for, in its order."""
        partition = self.merging.partitions.get(entry.partition)
        return () if partition is None else partition.merger.starts(entry.number)

    def _inputs_concerned(self, command: AnyCommand) -> list[GoneInput]:
        """The inputs of a topic or a partition that is about to go."""
        state, numbers = self.machine.state, set[int]()
        if isinstance(command, PassPartition):
            numbers = {command.partition} & state.partitions.by_number.keys()
        elif isinstance(command, DeleteTopicCommand):
            topic = state.topics.by_id.get(command.topic_id)
            numbers = set() if topic is None else set(topic.partition_numbers)
        if not numbers:
            return []
        return [
            self._sessions.gone(entry)
            for entry in state.sessions.inputs.values()
            if entry.partition in numbers
        ]

    def _topic_changed(self, command: TopicChange, gone: list[GoneInput]) -> None:
        if isinstance(command, GROWTH):
            self.merging.grow(self.machine.state.topics.by_id[command.topic_id])
        else:
            self._events.inputs_deleted([entry.number for entry in gone])
            self._forget(gone)
            self.merging.follow()
        self._tidy_soon()

    def _passed(self, command: PassPartition, inputs: list[GoneInput]) -> None:
        """A partition comes from another group, or goes to one."""
        number, known = command.partition, self.machine.state.partitions.by_number
        is_here = self.machine.state.has_here(number)
        gone = [
            e for e in inputs if not is_here or e.number not in self.machine.state.sessions.inputs
        ]
        self._events.inputs_moved([each.number for each in inputs])
        self._forget(gone)
        if not is_here:
            self.merging.follow()
            self._tidy_soon()
            return
        self.merging.take_over(number)
        if command.action is Action.OPEN_PARTITION:
            came = decoded(command)
            self._events.history_came(number, came.history, came.copy_targets)
        places = tuple(
            (entry.number, entry.place)
            for entry in self.machine.state.sessions.inputs.values()
            if entry.partition == number
        )
        self._marks.setdefault(number, deque()).append(_Mark(known[number].next_offset, places))
        self._release([number])

    def _inputs_expired(self, command: Expire, inputs: list[Input]) -> None:
        """A majority has all of these merged durably: who has not copies merged bytes."""
        self._forget([self._sessions.gone(entry) for entry in inputs])
        for session, _ in command.sessions:
            if session not in self.machine.state.sessions.by_name:
                self._sessions.forget_session(session)
        self._tidy_soon()

    def _forget(self, gone: list[GoneInput]) -> None:
        self._events.inputs_removed([entry.number for entry in gone])
        for entry in gone:
            self._sessions.remove(entry)
            self.released.pop(entry.number, None)

    def _tidy_soon(self) -> None:
        if self._tidied.is_set():
            self._tidied.clear()
            asyncio.get_running_loop().call_soon(self._tidy)

    def _tidy(self) -> None:
        """Remove one directory of what was let go of, and the next one in another turn."""
        try:
            is_done = not (self._sessions.remove_next() or self.merging.remove_next())
        except LogFormatError as fault:  # in nobody's way but the disk's
            log.error("what is left of a deleted topic cannot be removed: %s", fault)
            is_done = False
        if is_done:
            self._tidied.set()
        else:
            asyncio.get_running_loop().call_soon(self._tidy)

    async def wait_tidied(self) -> None:
        """Return once what was let go of is removed, which the entries behind a snapshot are the
        only ones to tell a node that starts again.
        """
        await self._tidied.wait()

    def forget_deleted(self) -> None:
        """Everything that was ever committed is applied: what is left of other topics may go."""
        topics = self.machine.state.topics.by_id
        logs = {log for each in topics.values() for log in (each.log_id, *each.former_logs)}
        self._sessions.forget_deleted()
        self.merging.forget_deleted()
        self._events.logs_known(logs)

    def role_changed(self) -> None:
        """Pass on that leadership moved."""
        self._events.leadership_changed()

    # --- cursors ----------------------------------------------------------------------------------

    def merged_by_majority(self, cursors: Mapping[int, int]) -> None:
        """A majority has merged-durable up to these offsets: release the inputs below."""
        for number, offset in cursors.items():
            self._cursors[number] = max(offset, self._cursors.get(number, 0))
        self._release(cursors)

    def _release(self, partitions: Iterable[int]) -> None:
        moved: list[int] = []
        for number in partitions:
            marks, cursor = self._marks.get(number), self._cursors.get(number, 0)
            while marks and marks[0].offset <= cursor:
                for entry, place in marks.popleft().places:
                    if place > self.released.get(entry, SessionPosition(-1, 0, 0)):
                        self.released[entry] = place
                        moved.append(entry)
            if marks is not None and not marks:
                del self._marks[number]
        for known in filter(None, map(self.machine.state.sessions.inputs.get, moved)):
            self.machine.index.released(known.session)
        if moved:
            self._events.inputs_released(moved)

    # --- waiting ----------------------------------------------------------------------------------

    async def wait_applied(self, index: int) -> None:
        """Return once entry `index` is applied here."""
        if index <= self.applied_index:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._next_waiter += 1
        heapq.heappush(self._waiters, (index, self._next_waiter, future))
        await future

    def _wake_waiters(self) -> None:
        while self._waiters and self._waiters[0][0] <= self.applied_index:
            future = heapq.heappop(self._waiters)[2]
            if not future.done():
                future.set_result(None)


def read_body(data: bytes, supported: int = SUPPORTED) -> tuple[StateMachine, list[Merge]]:
    """The state in the body of a snapshot, and the instructions that wait. Raises OtherVersion on
    one that this build cannot read, or whose feature level it does not support.
    """
    if not data:
        return StateMachine(), []
    try:
        body = msgspec.msgpack.decode(data, type=SnapshotBody)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise OtherVersion(f"unreadable snapshot body: {error}") from error
    machine = StateMachine.decode(body.state)
    check_level(machine.state.members.level, supported)
    return machine, body.pending


def what_was_saved(
    snapshot: Snapshot | None, supported: int
) -> tuple[StateMachine, list[Merge], OtherVersion | None]:
    """The newest snapshot's state, and what waited then. If this build does not know what is in it:
    nothing, which opens no file, and why.
    """
    try:
        return *read_body(b"" if snapshot is None else snapshot.data, supported), None
    except OtherVersion as unknown:
        return StateMachine(), [], unknown

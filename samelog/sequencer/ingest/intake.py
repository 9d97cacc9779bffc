"""The node's intake: session bytes from publishers and peers, written, reported and acknowledged.

Bytes are written to the page cache as they come and synced in rounds. A position is reported to the
leader only behind its sync (with `fsync=interval`, behind its write). Whatever fails on this node's
disk stops intake here, with a clear state; the other nodes go on.

Invariant: an input's files hold exactly the publisher's bytes, contiguous from where they start;
nothing unchecked is ever written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, Protocol

from msgspec.structs import replace

from samelog.archiver.policy import CLEANUP_POLICY, is_compacted
from samelog.format.batch import MAX_BATCH_BYTES_DEFAULT
from samelog.format.compression import LIMIT_BYTES_DEFAULT
from samelog.format.positions import SessionPosition
from samelog.replicator.interfaces import OpenedRun, RequestRefused, ResumePoint, RunEnds
from samelog.replicator.watchers import Watchers
from samelog.runtime.disk.syncer import Syncer
from samelog.sequencer.events import IntakeEvents
from samelog.sequencer.ingest.batch_check import (
    SLICED_LIMIT_BYTES,
    Taken,
    check_keys,
    own_producer,
    whole_batches,
    without_long,
)
from samelog.sequencer.ingest.checking import BatchChecker
from samelog.sequencer.ingest.key_placement import KeyPlacement
from samelog.sequencer.ingest.quotas import QuotaKeeper
from samelog.sequencer.ingest.refusals import refused
from samelog.sequencer.ingest.room import FREE_SPACE, Room
from samelog.sequencer.ingest.runs import GROUP_BITS, RunIntake
from samelog.sequencer.ingest.session_rounds import SessionRounds
from samelog.sequencer.ingest.untold import UntoldInputs
from samelog.sequencer.measures import Traffic
from samelog.sequencer.merge.session_store import BeingMade, SessionStore
from samelog.sequencer.raft.proposer import Proposer
from samelog.sequencer.raft.replica import Replica
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.instructions import Merge, Range
from samelog.sequencer.state.tables.sessions import Input
from samelog.sequencer.state.tables.topics import Topic
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.files import DiskFault, NoSuchFile
from samelog.store.session.log import InputLog
from samelog.wire.errors import FaultCode

BATCH_OVERHEAD_BYTES = MAX_BATCH_BYTES_DEFAULT - (1 << 20)

log = logging.getLogger(__name__)

_INPUT: Callable[[Range], int] = attrgetter("input")


class VerdictListener(Protocol):
    """Wants to know what becomes of each batch."""

    def merge_committed(self, merge: Merge) -> None:
        """A merge instruction is committed: it says what becomes of the batches in its ranges."""

    def on_run_closed(self, session: str, run_id: str, ends: RunEnds) -> None:
        """The cluster has closed a run at these ends."""

    def on_topic_gone(self, number: int) -> None:
        """The input's topic was deleted."""

    def on_input_moved(self, number: int) -> None:
        """The input's partition goes to another group, with what is committed of it."""

    def on_state_replaced(self) -> None:
        """A snapshot replaced the replicated state: verdicts up to it are not reported."""


@dataclass(frozen=True, slots=True)
class IntakeSettings:
    """The configuration of an intake."""

    sync_always: bool
    sync_interval_s: float
    batch_bytes: int
    """The largest batch that is taken."""
    auto_create_topics: bool


@dataclass(slots=True)
class _DueInputs:
    """Inputs that something is due for. `written`: in this turn, with `fsync=interval`;
    `to_release`: their files may go.
    """

    written: set[int] = field(default_factory=set)
    to_release: set[int] = field(default_factory=set)


class Intake(RunIntake):
    """Implements replicator.interfaces.SessionIntake over the node's session store."""

    def __init__(
        self,
        replica: Replica,
        sessions: SessionStore,
        proposer: Proposer,
        *,
        settings: IntakeSettings,
        checker: BatchChecker | None,
        syncer: Syncer,
        quotas: QuotaKeeper,
        events: IntakeEvents,
    ) -> None:
        create = settings.auto_create_topics
        super().__init__(replica.machine, proposer, quotas, events, auto_create_topics=create)
        self._replica = replica
        self._sessions = sessions
        self._syncer = syncer
        self._settings = settings
        self.checker = checker or BatchChecker(settings.batch_bytes)
        self._verdict_listeners: list[VerdictListener] = []
        self.room = Room()
        """Why this node takes nothing in, if it does not."""
        self.rounds = SessionRounds(
            sessions,
            syncer,
            self.room,
            pause_s=0 if settings.sync_always else settings.sync_interval_s,
            on_synced=self._report if settings.sync_always else None,
            on_failed=events.session_sync_failed,
        )
        self._due = _DueInputs()
        self.untold = UntoldInputs(self._tell_of)
        self.received_at: dict[int, float] = {}
        self.key_placement = KeyPlacement()
        self.traffic = Traffic()

    def share(self, group: int, traffic: Traffic, watchers: Watchers) -> None:
        """Use the counters and the listeners of the member, as the replica of a group."""
        self.first_input = group << GROUP_BITS
        self.traffic, self.watchers = traffic, watchers

    @property
    def is_busy(self) -> bool:
        """Whether something is to be synced, released or ended."""
        return not self.rounds.is_idle or bool(self._due.to_release or self.ended)

    # --- positions --------------------------------------------------------------------------------

    def is_released(self, number: int, run_number: int, end: tuple[int, int]) -> bool:
        """Whether a majority has all of a closed run merged-durable."""
        released = self._replica.released.get(number)
        return released is not None and released >= SessionPosition(run_number, *end)

    def position(self, entry: Input) -> ResumePoint:
        """Where the sender resumes: behind what is written here (at the start of a file no batch is
        before that in it). If nothing is, where the first byte is needed: what is merged, but for
        committed instructions that wait for bytes that a publisher may have. Raises RequestRefused.
        """
        held = self._log(entry.number)
        roll, byte = held.end(entry.run)
        last = held.last_batch(entry.run)
        start, crc = last if last is not None and last[0] < byte else (-1, 0)
        if (roll, byte) == (0, 0) and entry.place > SessionPosition(entry.run, 0, 0):
            _, roll, byte = self._replica.needed(entry)
            held.start_at(entry.run, roll, byte)
            start, crc = -1, 0
        return ResumePoint(roll, byte, start, crc)

    # --- bytes ------------------------------------------------------------------------------------

    def append(
        self, number: int, run_number: int, roll: int, byte: int, data: bytes | memoryview
    ) -> Coroutine[Any, Any, None] | None:
        """Take a publisher's whole batches, but those held already. What this turn of the loop has
        no room for is taken when what is returned is awaited; it may come again meanwhile. Raises
        RequestRefused, there too.
        """
        entry = self._open_entry(number, run_number)
        self._quotas.accept(entry, len(data))
        held = self._sessions.opened.get(number) or self._log(number)
        at = held.end(entry.run)
        fresh = memoryview(data) if at == (roll, byte) else _behind(at, (roll, byte), data)
        if not fresh:
            return None
        own = partial(own_producer, self._machine, entry.session)
        state = self._machine.state
        is_keyed = entry.partition in state.keys.by_partition
        if state.schemas.enforced and not is_keyed:
            is_keyed = self._is_filtered(entry)
        limit = self._longest_of_keyed() if is_keyed else LIMIT_BYTES_DEFAULT
        checked = self.checker.now(entry.session, fresh, own, limit)
        if checked is None:
            return self._append_later(number, run_number, at, memoryview(bytes(fresh)))
        self._write(entry, held, at, without_long(checked.taken) if is_keyed else checked.taken)
        return None

    def _is_filtered(self, entry: Input) -> bool:
        """Whether records of an input may be left out when they are merged."""
        state = self._machine.state
        is_checked = state.partitions.by_number[entry.partition].topic_id in state.schemas.enforced
        return is_checked or entry.partition in state.keys.by_partition

    def _longest_of_keyed(self) -> int:
        """What a batch may unpack to where keys count once, or records are checked."""
        return max(SLICED_LIMIT_BYTES, self.longest_batch())

    async def _append_later(
        self, number: int, run_number: int, at: tuple[int, int], data: memoryview
    ) -> None:
        """Take batches of a run that lie at a place, unless it is over by the time that they are
        checked.
        """
        entry = self._open_entry(number, run_number)
        own = own_producer(self._machine, entry.session)
        is_keyed = self._is_filtered(entry)
        limit = self._longest_of_keyed() if is_keyed else LIMIT_BYTES_DEFAULT
        taken = (await self.checker.later(entry.session, data, lambda: own, limit)).taken
        taken = without_long(taken) if is_keyed else taken
        entry = self._open_entry(number, run_number)
        held = self._log(number)
        end = held.end(entry.run)
        fresh = _behind(end, at, taken.data)
        taken = replace(taken, data=data[:0] if fresh is None else fresh)
        self._write(entry, held, end, taken)

    def append_checked(
        self, number: int, run_number: int, taken: Taken, roll_bytes: int
    ) -> tuple[int, int]:
        """Append batches of the node's own run that `checker` has found sound, in the next file if
        this one has `roll_bytes`; return where they begin. Raises RequestRefused.
        """
        entry = self._open_entry(number, run_number)
        self._quotas.accept(entry, len(taken.data))
        held = self._sessions.opened.get(number) or self._log(number)
        at = held.end(run_number)
        if at[1] >= roll_bytes:
            self.seal(number, run_number, *at)
            at = at[0] + 1, 0
        self._write(entry, held, at, taken)
        return at

    def restore(
        self, number: int, run_number: int, roll: int, byte: int, data: bytes | memoryview
    ) -> None:
        """As `append`, from a peer, which has looked into the records, whatever the publisher's
        quota. Raises RequestRefused.
        """
        entry = self._open_entry(number, run_number)
        held = self._sessions.opened.get(number) or self._log(number)
        at = held.end(entry.run)
        fresh = _behind(at, (roll, byte), data)
        if fresh is not None:
            self._write(entry, held, at, whole_batches(fresh))

    def _write(self, entry: Input, held: InputLog, at: tuple[int, int], taken: Taken) -> None:
        """Write what passed the checks at the end of the input. Raises RequestRefused, also for
        what did not pass.
        """
        fresh = taken.data
        state = self._machine.state
        partition = state.partitions.by_number[entry.partition]
        topic = state.topics.by_id[partition.topic_id]
        has_policy = CLEANUP_POLICY in topic.settings
        if has_policy and not taken.has_keys:
            check_keys(topic)
        if has_policy or entry.partition in state.keys.by_partition:
            self._compare_keys(entry, topic, partition.index, fresh)
        if fresh:
            size = len(fresh)
            self.room.use(size)
            try:
                held.append(entry.run, *at, fresh)
            except (DiskFault, NoSuchFile) as fault:
                raise self._stopped_by(fault) from fault
            self.mark_dirty(entry.number)
            now = self.received_at[entry.number]
            self.traffic.took(entry.session, size, taken.records, now)
        if taken.refusal is not None:
            raise taken.refusal

    def _compare_keys(self, entry: Input, topic: Topic, index: int, data: memoryview) -> None:
        """Notice keys that belong in other partitions, where keys count."""
        policy = topic.settings.get(CLEANUP_POLICY, "")
        counts = entry.partition in self._machine.state.keys.by_partition or is_compacted(policy)
        if data and counts and topic.partitions > 1 and self._proposer.leads:
            self.key_placement.look(entry, topic, index, data)

    async def prepare(self, entry: Input) -> None:
        """See RunIntake."""
        if entry.number in self._sessions.opened:
            return
        try:
            await self._sessions.make(entry.number, self._syncer)
        except (DiskFault, NoSuchFile) as fault:
            raise self._stopped_by(fault) from fault

    def _log(self, number: int) -> InputLog:
        """An input's files. Raises RequestRefused."""
        try:
            return self._sessions.log(number)
        except (DiskFault, NoSuchFile) as fault:
            raise self._stopped_by(fault) from fault
        except BeingMade:
            raise RequestRefused(
                FaultCode.NOT_READY, "the input is being opened", "retry"
            ) from None

    def _open_entry(self, number: int, run_number: int) -> Input:
        if self.room.stopped is not None:
            raise RequestRefused(
                FaultCode.DISK_FULL, f"intake is stopped: {self.room.stopped}", "see the node's log"
            )
        state = self._machine.state
        entry, transfers = state.sessions.inputs.get(number), state.transfers
        is_moved = entry.partition in state.placement.partitions if entry else state.placement.own
        if is_moved or (transfers.passing and entry and transfers.is_on_its_way(entry.partition)):
            raise RequestRefused(FaultCode.NOT_READY, "it goes to other members", "reopen it")
        if entry is None:
            raise RequestRefused(FaultCode.TOPIC_GONE, "the topic was deleted", "let it go")
        if entry.run != run_number:
            raise RequestRefused(
                FaultCode.OUT_OF_RANGE, f"run {run_number} is not the open one", "reconnect"
            )
        return entry

    def seal(self, number: int, run_number: int, roll: int, length: int) -> None:
        """The sender's file ends at `length`. Raises RequestRefused."""
        entry = self._open_entry(number, run_number)
        held = self._log(number)
        at = held.end(entry.run)
        if roll < at[0]:
            return
        if (roll, length) != at:
            raise RequestRefused(
                FaultCode.GAP, f"file {roll} ends at {length}, held up to {at}", "resume there"
            )
        try:
            held.seal(entry.run, roll, length)
        except (DiskFault, NoSuchFile) as fault:
            raise self._stopped_by(fault) from fault
        self.mark_dirty(number)

    def start_at(self, number: int, run_number: int, roll: int, byte: int) -> None:
        """The sender has nothing below this position any more. Raises RequestRefused unless it is
        all merged.
        """
        entry = self._open_entry(number, run_number)
        if SessionPosition(entry.run, roll, byte) > entry.place:
            message = f"bytes up to {(roll, byte)} are needed, merged is {(entry.roll, entry.byte)}"
            raise RequestRefused(
                FaultCode.OUT_OF_RANGE, message, "retry: this node catches up from its peers"
            )
        if self._log(number).end(entry.run) < (roll, byte):
            held = self._log(number)
            try:
                held.start_at(entry.run, entry.roll, entry.byte)
            except (DiskFault, NoSuchFile) as fault:
                raise self._stopped_by(fault) from fault
            self.mark_dirty(number)

    def _stopped_by(self, fault: DiskFault | NoSuchFile) -> RequestRefused:
        """The disk is full, fails, or is not there any more: nothing more is taken in."""
        self.room.stop(str(fault), for_good=not isinstance(fault, NoSpace))
        return RequestRefused(FaultCode.DISK_FULL, str(fault), FREE_SPACE)

    def longest_batch(self) -> int:
        """The largest batch that is taken, in bytes."""
        return self._settings.batch_bytes

    # --- durability -------------------------------------------------------------------------------

    def mark_dirty(self, number: int) -> None:
        """An input has bytes that are not synced."""
        self.received_at[number] = self._proposer.clock.now()
        self.rounds.dirty.add(number)
        if self._events.bytes_received(number):
            self.rounds.begin_later()
        else:
            self.rounds.begin_soon()
        if not self._settings.sync_always:
            self._report_soon(number)

    def _report_soon(self, number: int) -> None:
        """With `fsync=interval` what is written counts; what came in one turn is reported once."""
        if not self._due.written:
            asyncio.get_running_loop().call_soon(self._report_written)
        self._due.written.add(number)

    def _report_written(self) -> None:
        numbers, self._due.written = self._due.written, set()
        self._report(numbers)

    def _report(self, numbers: Iterable[int]) -> None:
        """This node vouches for more of these inputs."""
        places = self.vouched(numbers)
        if places:
            self._events.positions_durable(places)
            if self.watchers.by_input:
                self.untold.add(places)

    @property
    def stopped(self) -> str | None:
        """Why the node receives no session bytes; None if it does."""
        return self.room.stopped

    # --- acknowledgements -------------------------------------------------------------------------

    def watch_verdicts(self, listener: VerdictListener) -> None:
        """Tell `listener` of merge instructions, and of runs and topics that end, from now on."""
        if listener not in self._verdict_listeners:
            self._verdict_listeners.append(listener)

    def unwatch_verdicts(self, listener: VerdictListener) -> None:
        """Stop telling a listener; does nothing if it was not told."""
        if listener in self._verdict_listeners:
            self._verdict_listeners.remove(listener)

    def committed(self, merge: Merge) -> None:
        """A merge instruction is committed: its ranges are acknowledged."""
        if self.watchers.by_input:
            places = self.vouched(map(_INPUT, merge.ranges))
            if self.untold.numbers:
                self.untold.told(places)
            self._tell(places)
        for listener in tuple(self._verdict_listeners):
            listener.merge_committed(merge)

    def released(self, inputs: Sequence[int]) -> None:
        """A majority has more of these inputs merged-durable: say so; their files may go soon."""
        self._tell_of(inputs)
        self._due.to_release.update(inputs)

    def take_releasable(self) -> set[int]:
        """Inputs whose files may go once it is durable that what was merged of them is committed:
        nobody could get their bytes any more from a node that does not know that.
        """
        numbers, self._due.to_release = self._due.to_release, set()
        return numbers

    def release(self, inputs: Iterable[int]) -> None:
        """Let go the files of these inputs, as far as nobody needs them."""
        known = self._machine.state.sessions.inputs
        for entry in [known[number] for number in inputs if number in known]:
            self._release(entry)

    def _release(self, entry: Input) -> None:
        """The last file of a closed run goes too: nothing is added to it any more."""
        place = self._replica.releasable(entry)
        if place is not None:
            is_closed = self._machine.state.sessions.open_run_of(entry.session) is None
            is_over = is_closed and place >= entry.place
            self._sessions.release(entry.number, place, is_over=is_over)

    def vouched(self, numbers: Iterable[int]) -> dict[int, SessionPosition]:
        """Up to where this node vouches for each of these inputs that there is; what is merged of
        it, if its files fail.
        """
        inputs, places = self._machine.state.sessions.inputs, {}
        placed = self._machine.state.placement.partitions  # in data groups
        sessions, sync_always = self._sessions, self._settings.sync_always
        for number in numbers:
            entry = inputs.get(number)
            if entry is None or entry.partition in placed:
                continue
            try:
                places[number] = sessions.durable(entry) if sync_always else sessions.written(entry)
            except (DiskFault, NoSuchFile) as fault:
                self._stopped_by(fault)
                places[number] = entry.place
        return places

    def _tell_of(self, numbers: Iterable[int]) -> None:
        """Say how far these inputs are, to those who have them."""
        watched, first = self.watchers.by_input, self.first_input
        if watched:
            self._tell(self.vouched([each for each in numbers if first | each in watched]))

    def _tell(self, places: Mapping[int, SessionPosition]) -> None:
        """Say how far inputs are for which this node vouches up to these places."""
        inputs, watched = self._machine.state.sessions.inputs, self.watchers.by_input
        leader = self._proposer.other_leader
        for number, place in places.items():
            known = self.first_input | number
            listeners = watched.get(known)
            if listeners is None:
                continue
            entry, durable = inputs[number], place[1:]
            released = self._replica.released.get(number)
            merged = (0, 0) if released is None or released.run != entry.run else released[1:]
            told = durable, (entry.roll, entry.byte), merged
            for listener in tuple(listeners):
                if entry.refused:
                    listener.on_refused(known, entry.refused)
                listener.on_progress(known, entry.run, told, leader)

    def run_changed(self, session: str) -> None:
        """A run of the session was opened or closed."""
        self._note_run_changed(session)
        known = self._machine.state.sessions.by_name.get(session)
        newest = known.runs[-1] if known is not None and known.runs else None
        if newest is not None and newest.closed:
            self._tell_closed(session, newest.run_id, self._opened(newest))
            self._due.to_release.update(
                entry.number for entry in self._machine.state.sessions.inputs_of(session)
            )

    def session_retired(self, session: str) -> None:
        """End the connections of a session's fenced directories."""
        known = self._machine.state.sessions.by_name[session]
        why = refused(Rejection(*known.fence()))
        for listener in self.watchers.of_session(session):
            listener.on_session_retired(known.fenced_ids, why)

    def _tell_closed(self, session: str, run_id: str, closed: OpenedRun) -> None:
        """A data group closes its part; that the next run may begin, group 0 says."""
        ends = closed.ends
        for listener in self.watchers.of_session(session):
            if self.first_input:
                listener.on_part_closed(session, run_id, ends)
            else:
                listener.on_run_closed(session, run_id, ends, closed.parts)
        for verdict_listener in tuple(self._verdict_listeners):
            verdict_listener.on_run_closed(session, run_id, ends)

    def topic_gone(self, inputs: Sequence[int]) -> None:
        """The inputs' topic was deleted."""
        for number in inputs:
            known = self.first_input | number
            for listener in self.watchers.of_input(known):
                listener.on_topic_gone(known)
            for verdict_listener in tuple(self._verdict_listeners):
                verdict_listener.on_topic_gone(number)

    def moved(self, inputs: Sequence[int]) -> None:
        """The inputs' partition goes to another group."""
        for number in inputs:
            known = self.first_input | number
            for listener in self.watchers.of_input(known):
                listener.on_input_moved(known)
            for verdict_listener in tuple(self._verdict_listeners):
                verdict_listener.on_input_moved(number)

    def state_replaced(self) -> None:
        """Tell verdict listeners of a snapshot that replaced the replicated state."""
        for listener in tuple(self._verdict_listeners):
            listener.on_state_replaced()

    def forget(self, inputs: Sequence[int]) -> None:
        """Forget inputs that the state machine has removed."""
        self.rounds.dirty.difference_update(inputs)
        for number in inputs:
            self.watchers.forget(self.first_input | number)


def _behind(
    at: tuple[int, int], place: tuple[int, int], data: bytes | memoryview
) -> memoryview | None:
    """What of `data`, which belongs at `place`, is behind the end `at` of what is held; None if
    nothing is. Raises RequestRefused if something is missing in between.
    """
    roll, byte = place
    skip = at[1] - byte if place < at and roll == at[0] else 0
    if roll < at[0] or skip >= len(data):
        return None
    if (roll, byte + skip) != at:
        text = f"bytes for {place}, this node holds up to {at}"
        raise RequestRefused(FaultCode.GAP, text, "resume there")
    return memoryview(data)[skip:]

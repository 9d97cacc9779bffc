"""The node's intake: session bytes from publishers and peers, made durable in rounds, reported and
acknowledged.

Bytes are written to the page cache as they come and synced in group rounds: while one round runs,
the next gathers. A position is reported to the leader only behind its sync (with `fsync=interval`,
behind its write). Whatever fails on this node's disk stops intake here, with a clear state; the
other nodes go on.

Invariant: an input's files hold exactly the publisher's bytes, contiguous from where they start;
nothing unchecked is ever written.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping

from samelog.format.names import check_session_name, check_topic_name
from samelog.format.positions import SessionPosition
from samelog.replicator.interfaces import (
    InputPosition,
    IntakeListener,
    OpenedInput,
    OpenedRun,
    Refused,
    RunEnds,
)
from samelog.runtime.disk.syncer import Syncer
from samelog.sequencer.ingest.batch_check import Taken, own_producer, sound_batches, whole_batches
from samelog.sequencer.ingest.node_sessions import check_owner
from samelog.sequencer.ingest.quotas import QuotaKeeper
from samelog.sequencer.ingest.refusals import answered, refused
from samelog.sequencer.ingest.room import FREE_SPACE, Room
from samelog.sequencer.ingest.traffic import Traffic
from samelog.sequencer.merge.session_store import SessionStore
from samelog.sequencer.raft.coordinator import Ends
from samelog.sequencer.raft.proposer import Proposer
from samelog.sequencer.raft.replica import Replica
from samelog.sequencer.state.commands import AnyCommand, CreateTopic, Merge, OpenInput, OpenRun
from samelog.sequencer.state.types import Input, Rejection, Run, Topic
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.files import DiskFault, NoSuchFile
from samelog.wire.errors import FaultCode

log = logging.getLogger(__name__)

CLOSE_WAIT_S = 30.0


class Intake:
    """Implements replicator.interfaces.Intake over the node's session store."""

    def __init__(
        self,
        replica: Replica,
        sessions: SessionStore,
        proposer: Proposer,
        *,
        syncer: Syncer,
        sync_always: bool,
        sync_interval_s: float,
        batch_bytes: int,
        auto_create_topics: bool,
        quotas: QuotaKeeper,
    ) -> None:
        self._replica = replica
        self._sessions = sessions
        self._proposer = proposer
        self._syncer = syncer
        self._sync_always = sync_always
        self._sync_interval_s = sync_interval_s
        self._batch_bytes = batch_bytes
        self._auto_create_topics = auto_create_topics
        self._quotas = quotas
        self._dirty: set[int] = set()
        self._written_now: set[int] = set()
        self._wake = asyncio.Event()
        self._listeners: list[IntakeListener] = []
        self._run_waiters: dict[str, list[asyncio.Future[None]]] = {}
        self.room = Room()
        """Why this node takes nothing in, if it does not."""
        self.ended: dict[str, tuple[str, Ends]] = {}
        """Session -> (run id, ends) that senders here have finished and that are not closed yet."""
        self.received_at: dict[int, float] = {}
        self.traffic = Traffic()
        self.on_durable: Callable[[Mapping[int, SessionPosition]], None] = lambda places: None
        sessions.on_unsynced = self._mark_dirty
        self.on_received: Callable[[int], None] = lambda number: None
        self.on_verdicts: Callable[[Merge], None] = lambda merge: None
        self.on_ended: Callable[[str, str, Ends], None] = lambda *args: None

    # --- runs and inputs --------------------------------------------------------------------------

    async def open_run(
        self,
        *,
        identity: str,
        session: str,
        session_id: str,
        run: int,
        run_id: str,
        dedup_id: str | None,
        dedup_base: int | None,
        stage: str | None = None,
    ) -> OpenedRun:
        """Claim or find a run. An older run of the session is ended first. Raises Refused."""
        check_owner(identity, check_session_name(session))
        command = OpenRun(session, session_id, identity, run, run_id, dedup_id, dedup_base, stage)
        if self._is_known(command):
            return self._opened(self._known_run(session, run_id))
        self._quotas.check_session(identity, session)
        deadline = asyncio.get_running_loop().time() + CLOSE_WAIT_S
        while True:
            outcome = await self._propose(command)
            if not isinstance(outcome, Rejection):
                return self._opened(self._known_run(session, run_id))
            if outcome.code == "RUN_FORGOTTEN":  # closed, and nobody knows where: nothing is taken
                return OpenedRun(run, closed=True, ends={})
            if outcome.code != "RUN_OPEN":
                raise refused(outcome)
            await self._close_open_run(command, deadline)

    def _is_known(self, command: OpenRun) -> bool:
        """Whether the run is in the replicated state already, of the same directory and owner."""
        session = self._replica.machine.state.sessions.get(command.session)
        if session is None or session.identity != command.identity:
            return False
        known = self._replica.machine.run_of(command.session, command.run_id)
        return known is not None and session.session_id == command.session_id

    def _known_run(self, session: str, run_id: str) -> Run:
        run = self._replica.machine.run_of(session, run_id)
        if run is None:
            raise Refused(FaultCode.NOT_READY, f"run {run_id} is not known here yet", "retry")
        return run

    def _opened(self, run: Run) -> OpenedRun:
        ends: dict[tuple[str, int], tuple[int, int]] = {}
        state = self._replica.machine.state
        for number, roll, byte in run.ends:
            entry = state.inputs.get(number)
            if entry is not None:
                partition = state.partitions[entry.partition]
                name = state.topics[partition.topic_id].name
                ends[name, partition.index] = (roll, byte)
        return OpenedRun(run.number, run.closed, ends)

    async def _close_open_run(self, wanted: OpenRun, deadline: float) -> None:
        """A newer run wants to start: end the open one at what reached the cluster, and wait for
        its close. It may have been started through another node meanwhile, and even be closed:
        then the open one is the newer.
        """
        session, machine = wanted.session, self._replica.machine
        run = machine.open_run_of(session)
        if run is None or machine.run_of(session, wanted.run_id) is not None:
            return
        if wanted.number <= machine.state.sessions[session].forgotten:
            return
        self.end_run(session, run.run_id, {})
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._run_waiters.setdefault(session, []).append(future)
        try:
            async with asyncio.timeout_at(deadline):
                await future
        except TimeoutError:
            message = f"run {run.number} of session {session!r} is not closed yet"
            raise Refused(
                FaultCode.NOT_READY, message, "retry: it closes once it is merged"
            ) from None

    async def open_input(
        self, *, identity: str, session: str, run_id: str, topic: str, partition: int
    ) -> OpenedInput:
        """One partition of a run, the topic created if it may be. Raises Refused."""
        known = await self._topic(check_topic_name(topic), partition)
        if not 0 <= partition < known.partitions:
            message = f"topic {topic!r} has {known.partitions} partitions, no partition {partition}"
            raise Refused(FaultCode.UNKNOWN_TOPIC, message, "publish to an existing partition")
        entry = self._find_entry(session, run_id, known.topic_id, partition)
        run = self._known_run(session, run_id)
        if entry is None and not run.closed:
            self._quotas.check_partition(session)
            outcome = await self._propose(OpenInput(session, known.topic_id, partition))
            if isinstance(outcome, Rejection):
                raise refused(outcome)
            entry = self._find_entry(session, run_id, known.topic_id, partition)
        if entry is None:
            raise Refused(FaultCode.NOT_READY, "the input is not known here yet", "retry")
        asyncio.get_running_loop().call_soon(self._tell, [entry.number])
        return OpenedInput(
            input=entry.number,
            topic_id=known.topic_id,
            partitions=known.partitions,
            position=InputPosition(0, 0, -1, 0) if run.closed else self.position(entry),
            merged=(entry.roll, entry.byte),
        )

    async def _topic(self, name: str, partition: int) -> Topic:
        topic = self._replica.machine.topic_named(name)
        if topic is None or partition >= topic.partitions:
            with answered():  # what this node does not know might only be new
                await self._proposer.catch_up()
            topic = self._replica.machine.topic_named(name)
        if topic is None and self._auto_create_topics and 0 <= partition < 1024:
            command = CreateTopic(
                uuid.uuid4().hex, name, partition + 1, {}, self._proposer.clock.wall_ms()
            )
            await self._propose(command)
            topic = self._replica.machine.topic_named(name)
        if topic is None:
            message = f"there is no topic {name!r}, and topics are not created by publishing"
            raise Refused(FaultCode.UNKNOWN_TOPIC, message, f"samelog topic create {name}")
        return topic

    def _find_entry(self, session: str, run_id: str, topic_id: str, index: int) -> Input | None:
        """The input, if it and the run are known here."""
        machine = self._replica.machine
        partition = machine.partition_of(topic_id, index)
        if partition is None or machine.run_of(session, run_id) is None:
            return None
        return machine.input_of(session, partition.number)

    def is_released(self, number: int, run_number: int, end: tuple[int, int]) -> bool:
        """Whether a majority has all of a closed run merged-durable."""
        released = self._replica.released.get(number)
        return released is not None and released >= SessionPosition(run_number, *end)

    def position(self, entry: Input) -> InputPosition:
        """Where the sender resumes: behind what is written here (at the start of a file no batch
        is before that in it). If nothing is, where the first byte is needed: what is merged, but
        for committed instructions that wait for bytes that a publisher may have. Raises Refused.
        """
        self._on_disk(lambda: self._sessions.log(entry.number))
        held = self._sessions.log(entry.number)
        roll, byte = held.end(entry.run)
        last = held.last_batch(entry.run)
        start, crc = last if last is not None and last[0] < byte else (-1, 0)
        if (roll, byte) == (0, 0) and entry.place > SessionPosition(entry.run, 0, 0):
            _, roll, byte = self._replica.needed(entry)
            held.start_at(entry.run, roll, byte)
            start, crc = -1, 0
        return InputPosition(roll, byte, start, crc)

    async def _propose(self, command: AnyCommand) -> object:
        with answered():
            return await self._proposer.propose(command)

    # --- bytes ------------------------------------------------------------------------------------

    def append(
        self, number: int, run_number: int, roll: int, byte: int, data: bytes | memoryview
    ) -> None:
        """Take a publisher's whole batches, but those held already. Raises Refused."""
        entry = self._open_entry(number, run_number)
        self._quotas.take(entry.session, len(data))
        self._take(entry, (roll, byte), data, lambda fresh: self._check(entry, fresh))

    def restore(
        self, number: int, run_number: int, roll: int, byte: int, data: bytes | memoryview
    ) -> None:
        """As `append`, from a peer, which has looked into the records, whatever the publisher's
        quota. Raises Refused.
        """
        self._take(self._open_entry(number, run_number), (roll, byte), data, whole_batches)

    def _take(
        self,
        entry: Input,
        place: tuple[int, int],
        data: bytes | memoryview,
        check: Callable[[memoryview], Taken],
    ) -> None:
        """Write what is new of `data`, as far as it passes the check. Raises Refused."""
        roll, byte = place
        held = self._sessions.log(entry.number)
        at = held.end(entry.run)
        skip = at[1] - byte if (roll, byte) < at and roll == at[0] else 0
        if roll < at[0] or skip >= len(data):
            return
        if (roll, byte + skip) != at:
            raise Refused(
                FaultCode.GAP,
                f"bytes for {(roll, byte)}, this node holds up to {at}",
                "resume there",
            )
        fresh, records, refusal = check(memoryview(data)[skip:])
        if fresh:
            self.room.use(len(fresh))
            self._on_disk(lambda: held.append(entry.run, at[0], at[1], fresh))
            self._mark_dirty(entry.number)
            now = self.received_at[entry.number]
            self.traffic.took(entry.session, len(fresh), records, now)
        if refusal is not None:
            raise refusal

    def _open_entry(self, number: int, run_number: int) -> Input:
        if self.stopped is not None:
            raise Refused(
                FaultCode.DISK_FULL, f"intake is stopped: {self.stopped}", "see the node's log"
            )
        entry = self._replica.machine.state.inputs.get(number)
        if entry is None:
            raise Refused(FaultCode.TOPIC_GONE, "the topic was deleted", "let it go")
        if entry.run != run_number:
            raise Refused(
                FaultCode.OUT_OF_RANGE, f"run {run_number} is not the open one", "reconnect"
            )
        return entry

    def _check(self, entry: Input, data: memoryview) -> Taken:
        own = own_producer(entry.session, self._replica.machine.open_run_of(entry.session))
        return sound_batches(data, batch_bytes=self._batch_bytes, producer_id=own)

    def seal(self, number: int, run_number: int, roll: int, length: int) -> None:
        """The sender's file ends at `length`. Raises Refused."""
        entry = self._open_entry(number, run_number)
        held = self._sessions.log(number)
        at = held.end(entry.run)
        if roll < at[0]:
            return
        if (roll, length) != at:
            raise Refused(
                FaultCode.GAP, f"file {roll} ends at {length}, held up to {at}", "resume there"
            )
        self._on_disk(lambda: held.seal(entry.run, roll, length))
        self._mark_dirty(number)

    def start_at(self, number: int, run_number: int, roll: int, byte: int) -> None:
        """The sender has nothing below this position any more. Raises Refused unless it is all
        merged.
        """
        entry = self._open_entry(number, run_number)
        if SessionPosition(entry.run, roll, byte) > entry.place:
            message = f"bytes up to {(roll, byte)} are needed, merged is {(entry.roll, entry.byte)}"
            raise Refused(
                FaultCode.OUT_OF_RANGE, message, "retry: this node catches up from its peers"
            )
        if self._sessions.log(number).end(entry.run) < (roll, byte):
            held = self._sessions.log(number)
            self._on_disk(lambda: held.start_at(entry.run, entry.roll, entry.byte))
            self._mark_dirty(number)

    def _on_disk(self, change: Callable[[], object]) -> None:
        """Change files. Raises Refused, with intake stopped, when the disk is full, fails, or is
        not there any more.
        """
        try:
            change()
        except (DiskFault, NoSuchFile) as fault:
            self.room.stop(str(fault), for_good=not isinstance(fault, NoSpace))
            raise Refused(FaultCode.DISK_FULL, str(fault), FREE_SPACE) from fault

    def end_run(self, session: str, run_id: str, ends: RunEnds) -> None:
        """The sender has finished a run."""
        run = self._replica.machine.run_of(session, run_id)
        if run is not None and not run.closed:
            self.ended[session] = (run_id, dict(ends))
            self.on_ended(session, run_id, dict(ends))

    # --- durability -------------------------------------------------------------------------------

    def _mark_dirty(self, number: int) -> None:
        self.received_at[number] = self._proposer.clock.now()
        self._dirty.add(number)
        self._wake.set()
        if not self._sync_always:
            self._report_soon(number)
        self.on_received(number)

    def _report_soon(self, number: int) -> None:
        """With `fsync=interval` what is written counts; what came in one turn is reported once."""
        if not self._written_now:
            asyncio.get_running_loop().call_soon(self._report_written)
        self._written_now.add(number)

    def _report_written(self) -> None:
        numbers, self._written_now = self._written_now, set()
        self._report(self._written(numbers))

    async def run_syncer(self) -> None:
        """Make what came in durable, round after round, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._sync_always:
                await asyncio.sleep(self._sync_interval_s)
            try:
                await self._round()
            except DiskFault as fault:
                self.room.stop(str(fault), for_good=True)
                return

    async def _round(self) -> None:
        dirty, self._dirty = self._dirty, set()
        written = self._written(dirty)
        ends = self._sessions.ends(dirty)
        await self._syncer.sync(self._sessions.take_dirty(dirty))
        self._sessions.mark_durable(ends)
        if self._sync_always:
            self._report(written)

    def _written(self, numbers: set[int]) -> dict[int, SessionPosition]:
        inputs = self._replica.machine.state.inputs
        return {n: self._sessions.written(inputs[n]) for n in numbers if n in inputs}

    def _report(self, places: Mapping[int, SessionPosition]) -> None:
        if places:
            self.on_durable(places)
            self._tell(places)

    @property
    def stopped(self) -> str | None:
        """Why nothing is taken in; None if something is."""
        return self.room.stopped

    # --- acknowledgements -------------------------------------------------------------------------

    def watch(self, listener: IntakeListener) -> None:
        """Tell `listener` of progress from now on."""
        self._listeners.append(listener)

    def unwatch(self, listener: IntakeListener) -> None:
        """Tell it no more."""
        self._listeners.remove(listener)

    def committed(self, merge: Merge) -> None:
        """A merge instruction is committed: its ranges are acknowledged."""
        self._tell({part.input for part in merge.ranges})
        self.on_verdicts(merge)

    def released(self, inputs: list[int]) -> None:
        """A majority has more of these inputs merged-durable: say so, and let their files go."""
        self._tell(inputs)
        known = self._replica.machine.state.inputs
        for entry in [known[number] for number in inputs if number in known]:
            self._release(entry)

    def _release(self, entry: Input) -> None:
        """The last file of a closed run goes too: nothing is added to it any more."""
        place = self._replica.releasable(entry)
        if place is not None:
            is_closed = self._replica.machine.open_run_of(entry.session) is None
            is_over = is_closed and place >= entry.place
            self._sessions.release(entry.number, place, is_over=is_over)

    def _tell(self, numbers: Mapping[int, SessionPosition] | set[int] | list[int]) -> None:
        if not self._listeners:
            return
        inputs = self._replica.machine.state.inputs
        for number in numbers:
            entry = inputs.get(number)
            if entry is None:
                continue
            durable = self.vouched(entry)[1:]
            released = self._replica.released.get(number)
            merged = (0, 0) if released is None or released.run != entry.run else released[1:]
            for listener in tuple(self._listeners):
                listener.on_progress(number, entry.run, durable, (entry.roll, entry.byte), merged)

    def vouched(self, entry: Input) -> SessionPosition:
        """Up to where this node vouches for an input; what is merged, if its files fail."""
        try:
            self._on_disk(lambda: self._sessions.log(entry.number))
        except Refused:
            return entry.place
        return self._sessions.durable(entry) if self._sync_always else self._sessions.written(entry)

    def run_changed(self, session: str) -> None:
        """A run of the session was opened or closed."""
        for future in self._run_waiters.pop(session, ()):
            if not future.done():
                future.set_result(None)
        known = self.ended.get(session)
        run = None if known is None else self._replica.machine.run_of(session, known[0])
        if known is not None and (run is None or run.closed):
            del self.ended[session]
        newest = self._replica.machine.state.sessions[session].runs[-1]
        if newest.closed:
            ends = self._opened(newest).ends
            for listener in tuple(self._listeners):
                listener.on_run_closed(session, newest.run_id, ends)
            for entry in self._replica.machine.inputs_of(session):
                self._release(entry)

    def topic_gone(self, inputs: list[int]) -> None:
        """The inputs' topic was deleted."""
        for number in inputs:
            for listener in tuple(self._listeners):
                listener.on_topic_gone(number)

    def forget(self, inputs: list[int]) -> None:
        """These inputs are gone."""
        self._dirty.difference_update(inputs)

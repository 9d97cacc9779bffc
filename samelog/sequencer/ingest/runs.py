"""Opening of runs and inputs: the part of the intake that waits for the cluster.

Invariant: what is answered to a sender is in the replicated state, and applied here.
"""

from __future__ import annotations

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress

from samelog.format.names import check_session_name, check_topic_name
from samelog.format.nouns import counted
from samelog.replicator.interfaces import (
    OpenedInput,
    OpenedRun,
    RequestRefused,
    ResumePoint,
    RunEnds,
)
from samelog.replicator.watchers import IntakeListener, Watchers
from samelog.runtime.loop import spawn
from samelog.sequencer.events import Ends, IntakeEvents
from samelog.sequencer.ingest.node_sessions import check_owner
from samelog.sequencer.ingest.quotas import QuotaKeeper
from samelog.sequencer.ingest.refusals import answered, refused
from samelog.sequencer.raft.closing import UNKNOWN
from samelog.sequencer.raft.proposer import PROPOSE_TIMEOUT_S, Proposer
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.sessions import (
    ForgetRefused,
    Input,
    OpenInputCommand,
    OpenPlacedInput,
    OpenRunCommand,
    Run,
)
from samelog.sequencer.state.tables.topics import CreateTopicCommand, Topic
from samelog.typed.enforcing import is_checked
from samelog.wire.errors import FaultCode

CLOSE_WAIT_S = 30.0
ANSWERS_S = 3.0
"""A data group that is well opens an input sooner. Other requests of the session wait meanwhile."""
GROUP_BITS = 32
"""A member's number of an input has the number of its group in front of so many bits."""


class RunIntake(ABC):
    """What senders open before they send."""

    def __init__(
        self,
        machine: StateMachine,
        proposer: Proposer,
        quotas: QuotaKeeper,
        events: IntakeEvents,
        *,
        auto_create_topics: bool,
    ) -> None:
        self._machine = machine
        self._proposer = proposer
        self._quotas = quotas
        self._events = events
        self._auto_create_topics = auto_create_topics
        self.create_topic: Callable[[CreateTopicCommand], Awaitable[object]] = proposer.propose
        """Of group 0, where the member knows where a new topic goes."""
        self.watchers = Watchers()
        """Of the member, which all its intakes share."""
        self.first_input = 0
        """Added to the group's number of an input, it is the member's."""
        self._run_waiters: dict[str, list[asyncio.Future[None]]] = {}
        self.ended: dict[str, tuple[str, Ends]] = {}
        """Session -> (run id, ends) that senders here have finished and that are not closed yet."""

    @abstractmethod
    def position(self, entry: Input) -> ResumePoint:
        """Where the sender of an input resumes. Raises RequestRefused."""

    @abstractmethod
    async def prepare(self, entry: Input) -> None:
        """Have the files of an input open for `position`. Raises RequestRefused."""

    @abstractmethod
    def _tell_of(self, numbers: Sequence[int]) -> None:
        """Tell listeners where these inputs stand."""

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
        """Claim or find a run. An older one is ended first. Raises RequestRefused."""
        check_owner(identity, check_session_name(session))
        command = OpenRunCommand(
            session, session_id, identity, run, run_id, dedup_id, dedup_base, stage
        )
        if self._is_known(command):
            return self._opened(self._known_run(session, run_id))
        self._quotas.check_session(identity, session)
        deadline = asyncio.get_running_loop().time() + CLOSE_WAIT_S
        while True:
            outcome = await self._propose(command)
            if not isinstance(outcome, Rejection):
                return self._opened(self._known_run(session, run_id))
            if outcome.code == "RUN_FORGOTTEN":  # closed, its ends are forgotten: nothing is taken
                return OpenedRun(run, closed=True, ends={})
            if outcome.code != "RUN_OPEN" or asyncio.get_running_loop().time() > deadline:
                raise refused(outcome)
            await self._close_open_run(command, deadline)

    def _is_known(self, command: OpenRunCommand) -> bool:
        """Whether the run is in the replicated state already, of the same directory and owner."""
        session = self._machine.state.sessions.by_name.get(command.session)
        if session is None or session.identity != command.identity:
            return False
        known = self._machine.state.sessions.run_of(command.session, command.run_id)
        return known is not None and session.session_id == command.session_id

    def _known_run(self, session: str, run_id: str) -> Run:
        run = self._machine.state.sessions.run_of(session, run_id)
        if run is None:
            raise RequestRefused(
                FaultCode.NOT_READY, f"run {run_id} is not known here yet", "retry"
            )
        return run

    def _opened(self, run: Run) -> OpenedRun:
        ends: dict[tuple[str, int], tuple[int, int]] = {}
        state, parts = self._machine.state, set[tuple[str, int]]()
        for number, roll, byte in run.ends:
            entry = state.sessions.inputs.get(number)
            if entry is not None:
                partition = state.partitions.by_number[entry.partition]
                name = state.topics.by_id[partition.topic_id].name
                ends[name, partition.index] = (roll, byte)
                if number in run.to_come:
                    parts.add((name, partition.index))
        return OpenedRun(run.number, run.closed, ends, frozenset(parts))

    async def _close_open_run(self, wanted: OpenRunCommand, deadline: float) -> None:
        """A newer run wants to start: end the open one at what reached the cluster, and wait for
        its close. It may have been started through another node meanwhile, and even be closed:
        then the open one is the newer.
        """
        session, machine = wanted.session, self._machine
        run = machine.state.sessions.open_run_of(session)
        if run is None or machine.state.sessions.run_of(session, wanted.run_id) is not None:
            return
        if wanted.number <= machine.state.sessions.by_name[session].forgotten:
            return
        self.end_run(session, run.run_id, dict.fromkeys(self._names_of(session), UNKNOWN))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._run_waiters.setdefault(session, []).append(future)
        try:
            async with asyncio.timeout_at(deadline):
                await future
        except TimeoutError:
            message = f"run {run.number} of session {session!r} is not closed yet"
            remedy = f"retry: it closes once it is merged{self._groups_of(session)}"
            raise RequestRefused(FaultCode.NOT_READY, message, remedy) from None

    def _names_of(self, session: str) -> Iterator[tuple[str, int]]:
        """The partitions that a session wrote to."""
        state = self._machine.state
        for entry in state.sessions.inputs_of(session):
            partition = state.partitions.by_number[entry.partition]
            yield state.topics.by_id[partition.topic_id].name, partition.index

    def _groups_of(self, session: str) -> str:
        """Where else a session's bytes are merged, for people."""
        placement = self._machine.state.placement
        inputs = self._machine.state.sessions.inputs_of(session)
        numbers = sorted({placement.group_of(each.partition) for each in inputs} - {0})
        return f", in data groups {', '.join(map(str, numbers))} too" if numbers else ""

    async def open_topic(self, topic: str, partitions: int) -> tuple[int, bool]:
        """How many partitions a topic has, created with so many if it may be and that is not 0, and
        whether what is published to it is to be checked. Raises RequestRefused.
        """
        known = await self.find_topic(check_topic_name(topic), partitions - 1)
        return known.partitions, is_checked(known.settings)

    def check_session(self, session: str, session_id: str) -> None:
        """Raise RequestRefused if this directory of a session is fenced, as far as is known now."""
        known = self._machine.state.sessions.by_name.get(session)
        if known is not None and session_id in known.fenced_ids:
            raise refused(Rejection(*known.fence()))

    async def check_topic(self, topic_id: str | None) -> None:
        """Raise RequestRefused (TOPIC_GONE) if the cluster has deleted the topic; a topic that this
        replica does not know might only be newer than what it has applied.
        """
        if topic_id is None or topic_id in self._machine.state.topics.by_id:
            return
        with answered():
            await self._proposer.catch_up()
        if topic_id not in self._machine.state.topics.by_id:
            raise RequestRefused(FaultCode.TOPIC_GONE, "the topic was deleted", "let it go")

    async def open_input(
        self,
        *,
        identity: str,
        session: str,
        run_id: str,
        topic: str,
        partition: int,
        topic_id: str | None = None,
        listener: IntakeListener | None = None,
    ) -> OpenedInput:
        """One partition of a run, the topic created if it may be. Raises RequestRefused."""
        await self.check_topic(topic_id)
        known = await self.find_topic(check_topic_name(topic), partition)
        if not 0 <= partition < known.partitions:
            count = counted(known.partitions, "partition")
            message = f"topic {topic!r} has {count}, no partition {partition}"
            raise RequestRefused(
                FaultCode.UNKNOWN_TOPIC, message, f"samelog topic add-partitions {topic} N"
            )
        place = session, run_id, known.topic_id, partition
        if self._find_entry(*place) is None and not self._known_run(session, run_id).closed:
            self._quotas.check_partition(session)
            outcome = await self._propose(OpenInputCommand(session, known.topic_id, partition))
            if isinstance(outcome, Rejection):
                raise refused(outcome)
        return await self._opened_input(place, known, listener)

    async def note_input(self, session: str, run_id: str, topic: Topic, partition: int) -> Run:
        """Have it known in group 0 that a run has bytes in a data group: the run. Raises
        RequestRefused.
        """
        run = self._known_run(session, run_id)
        entry = self._find_entry(session, run_id, topic.topic_id, partition)
        if entry is None and not run.closed:
            self._quotas.check_partition(session)
            outcome = await self._propose(OpenInputCommand(session, topic.topic_id, partition))
            if isinstance(outcome, Rejection):
                raise refused(outcome)
        return run

    async def open_placed(
        self, command: OpenPlacedInput, listener: IntakeListener | None = None
    ) -> OpenedInput:
        """One of this data group's partitions in a run that group 0 has opened. Raises
        RequestRefused.
        """
        place = command.session, command.run_id, command.topic_id, command.partition
        if self._find_entry(*place) is None:
            outcome = await self._propose(command, within_s=ANSWERS_S)
            if isinstance(outcome, Rejection):
                raise refused(outcome)
        topic = self._machine.state.topics.by_id.get(command.topic_id)
        if topic is None:
            raise RequestRefused(FaultCode.NOT_READY, "the topic is not known here yet", "retry")
        return await self._opened_input(place, topic, listener)

    async def _opened_input(
        self, place: tuple[str, str, str, int], known: Topic, listener: IntakeListener | None
    ) -> OpenedInput:
        """`place`: session, run id, topic id and partition. The listener is known before the
        position is read, so that it misses no progress.
        """
        entry = self._find_entry(*place)
        if entry is not None and not self._known_run(*place[:2]).closed:
            await self.prepare(entry)
            entry = self._find_entry(*place)
        if entry is None:
            raise RequestRefused(FaultCode.NOT_READY, "the input is not known here yet", "retry")
        run = self._known_run(*place[:2])
        if listener is not None:
            self.watchers.watch_input(listener, self.first_input | entry.number)
        asyncio.get_running_loop().call_soon(self._tell_of, [entry.number])
        ends = {number: (roll, byte) for number, roll, byte in run.ends}
        end = ends.get(entry.number, (0, 0)) if run.closed else None
        return OpenedInput(
            input=entry.number,
            topic_id=known.topic_id,
            partitions=known.partitions,
            position=self.position(entry) if end is None else ResumePoint(*end),
            merged=(entry.roll, entry.byte),
            end=end,
        )

    async def find_topic(self, name: str, partition: int) -> Topic:
        """Return a topic, created if it may be and is not there. Raises RequestRefused."""
        topic = self._machine.state.topics.named(name)
        self._refuse_view(name)
        if topic is None or partition >= topic.partitions:
            with answered():  # what this node does not know might only be new
                await self._proposer.catch_up()
            topic = self._machine.state.topics.named(name)
        if topic is None and self._auto_create_topics and 0 <= partition < 1024:
            command = CreateTopicCommand(
                uuid.uuid4().hex, name, partition + 1, {}, self._proposer.clock.wall_ms()
            )
            with answered():
                await self.create_topic(command)
            topic = self._machine.state.topics.named(name)
        if topic is None:
            message = f"there is no topic {name!r}, and topics are not created by publishing"
            raise RequestRefused(FaultCode.UNKNOWN_TOPIC, message, f"samelog topic create {name}")
        return topic

    def _refuse_view(self, name: str) -> None:
        if self._machine.state.views.named(name) is not None:
            text = f"{name!r} is a view: it has no records of its own, and takes none"
            raise RequestRefused(FaultCode.NOT_AUTHORISED, text, "publish to its base")

    def _find_entry(self, session: str, run_id: str, topic_id: str, index: int) -> Input | None:
        """The input; None if this node does not know it or its run."""
        machine = self._machine
        partition = machine.state.partition_of(topic_id, index)
        if partition is None or machine.state.sessions.run_of(session, run_id) is None:
            return None
        return machine.state.sessions.input_of(session, partition.number)

    async def _propose(self, command: AnyCommand, *, within_s: float = PROPOSE_TIMEOUT_S) -> object:
        with answered():
            return await self._proposer.propose(command, longer_s=within_s - PROPOSE_TIMEOUT_S)

    def refusals_kept(self, number: int, run_number: int, roll: int, start: int) -> None:
        """The sender has kept what was refused, up to the batch that begins there."""
        entry, place = self._machine.state.sessions.inputs.get(number), (run_number, roll, start)
        if entry is not None and any(each.place <= place for each in entry.refused):
            spawn(self._forget_refused(ForgetRefused(number, *place)), "what was refused")

    async def _forget_refused(self, command: ForgetRefused) -> None:
        """A sender that is not heard is told again when it connects again."""
        with suppress(RequestRefused):
            await self._propose(command)

    def end_run(self, session: str, run_id: str, ends: RunEnds) -> None:
        """The sender has finished a run."""
        run = self._machine.state.sessions.run_of(session, run_id)
        if run is not None and not run.closed:
            self.ended[session] = (run_id, dict(ends))
            self._events.run_finished(session, run_id, dict(ends))

    @property
    def awaited(self) -> set[str]:
        """Sessions of which a run is to be closed: somebody waits for it, or tells of its end."""
        return {*self.ended, *self._run_waiters}

    def _note_run_changed(self, session: str) -> None:
        """Wake the requests that wait until the session's open run is closed."""
        for future in self._run_waiters.pop(session, ()):
            if not future.done():
                future.set_result(None)
        known = self.ended.get(session)
        run = None if known is None else self._machine.state.sessions.run_of(session, known[0])
        if known is not None and (run is None or run.closed):
            del self.ended[session]

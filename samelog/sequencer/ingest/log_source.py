"""What pull servers may read of this node: merged logs for everybody with the right, session logs
for peers.

Invariant: only executed, therefore committed, bytes of a partition that is not halted can be
opened. Implements replicator.interfaces.LogSource.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from samelog.replicator.interfaces import MergedStream, RequestRefused, SessionStream
from samelog.replicator.pull.listening import Listening
from samelog.sequencer.ingest.unknown_logs import UnknownLogs
from samelog.sequencer.merge.merged_partition import gone_log
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.merge.session_store import BeingMade, SessionStore
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.partitions import Partition
from samelog.sequencer.state.tables.topics import Topic
from samelog.store.session.log import InputLog
from samelog.wire.errors import FaultCode


class SessionLog(Listening):
    """One input of this node for its peers. Implements replicator.interfaces.SessionStream."""

    def __init__(self, topic: Topic, log: InputLog) -> None:
        super().__init__()
        self.topic_id = topic.topic_id
        self.partitions = topic.partitions
        self.log = log
        self.fault: RequestRefused | None = None


class NodeLogSource:
    """Finds streams by what clients call them."""

    def __init__(
        self,
        machine: StateMachine,
        merging: Merging,
        sessions: SessionStore,
        *,
        catch_up: Callable[[], Awaitable[None]],
        unknown: UnknownLogs,
    ) -> None:
        """`catch_up` returns when this node is current; it raises TimeoutError without a leader."""
        self._machine = machine
        self._merging = merging
        self._sessions = sessions
        self._catch_up = catch_up
        self._unknown = unknown
        self.session_logs: dict[int, SessionLog] = {}
        """Input -> the stream of its session log; whoever adds bytes to the input notifies it."""

    def open_merged(self, topic: str, topic_id: str | None, partition: int) -> MergedStream:
        """A merged partition. Raises RequestRefused."""
        found = self._machine.state.topics.named(topic)
        if topic_id is not None and (found is None or found.log_id != topic_id):
            raise self._not_here(topic, found, topic_id)
        known = self._partition(topic, found, partition)
        stream = self._merging.partition(known.number)
        if stream.fault is not None:
            raise stream.fault
        return stream

    async def confirm_end(self, stream: MergedStream) -> int:
        """Where what is committed ends, executed here or not. Raises RequestRefused."""
        try:
            await self._catch_up()
        except TimeoutError as error:
            text = "no leader has answered: where the log ends is not certain"
            raise RequestRefused(FaultCode.NOT_READY, text, "ask another node") from error
        found = self._machine.state.topics.named(stream.topic)
        if found is None or found.log_id != stream.topic_id:
            raise self._not_here(stream.topic, found, stream.topic_id)
        return self._partition(stream.topic, found, stream.index).next_offset

    def open_session(
        self, *, session: str, topic: str, topic_id: str, partition: int, run: int
    ) -> SessionStream:
        """One run of an input. Raises RequestRefused."""
        found = self._machine.state.topics.named(topic)
        if found is None or found.topic_id != topic_id:
            raise gone_log(topic, None)
        known = self._partition(topic, found, partition)
        entry = self._machine.state.sessions.input_of(session, known.number)
        if entry is None or entry.run != run:
            raise RequestRefused(
                FaultCode.OUT_OF_RANGE, f"run {run} of session {session!r} is not open here"
            )
        stream = self.session_logs.get(entry.number)
        if stream is None:
            try:
                stream = SessionLog(found, self._sessions.log(entry.number))
            except BeingMade:
                text = f"input {entry.number} is being opened"
                raise RequestRefused(FaultCode.NOT_READY, text, "ask again") from None
            self.session_logs[entry.number] = stream
        return stream

    def _not_here(self, name: str, found: Topic | None, log_id: str) -> RequestRefused:
        if found is not None and log_id in found.former_logs:
            return gone_log(name, found)
        if self._unknown.is_gone(log_id):
            return gone_log(name, None)
        text = f"this node does not know log {log_id} of topic {name!r}, and asks the others"
        return RequestRefused(FaultCode.NOT_READY, text, "ask again")

    def _partition(self, name: str, topic: Topic | None, index: int) -> Partition:
        partition = (
            None if topic is None else self._machine.state.partition_of(topic.topic_id, index)
        )
        if partition is None:
            raise RequestRefused(
                FaultCode.UNKNOWN_TOPIC,
                f"there is no partition {index} of a topic {name!r}",
                f"samelog topic create {name}, or publish to it",
            )
        return partition

    def session_gone(self, number: int) -> None:
        """An input's topic was deleted."""
        stream = self.session_logs.pop(number, None)
        if stream is not None:
            stream.fault = RequestRefused(
                FaultCode.TOPIC_GONE, "the topic was deleted", "let it go"
            )
            stream.changed()

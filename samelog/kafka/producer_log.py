"""The session that this node's Kafka clients write, and what became of their batches.

Batches are appended to the node's own session log and take the way of every session's records: to
the other nodes, into a merge instruction, which says of each what became of it. Small ones that
come in one turn of the event loop are written together. One run lasts as
long as the process, or until the cluster closes it because this node was away; then its batches
that were not merged never will be, and clients are told to send them again.

Invariant: a batch is answered from the committed instruction that is about it, or as not taken once
it can not be merged any more; order within a partition is the order of `append`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

import msgspec

from samelog.format.batch import count_staying
from samelog.format.errors import InvariantError
from samelog.kafka.any_broker import AppendResult
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.replicator.interfaces import RequestRefused, RollByte
from samelog.runtime.loop import InLoop
from samelog.runtime.network.tls import NODE_PREFIX
from samelog.sequencer.ingest.batch_check import Taken
from samelog.sequencer.ingest.node_sessions import session_of
from samelog.sequencer.parts import LogParts
from samelog.sequencer.state.instructions import NO_EXTRAS, Merge, MergeExtras, Range, Verdict
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.units.mirrors import why_only_source
from samelog.wire.errors import FaultCode
from samelog.wire.refusals import RefusedBatch, why_unfit

ROLL_BYTES = 64 << 20
"""Files are removed as a whole, once they are merged on a majority."""
LARGE_BYTES = 64 << 10
"""A batch that is written as it is, and at once: to copy it would cost more than it saves."""
GATHERED_BYTES = 256 << 10
"""So many are written without waiting for the end of the turn."""
OPEN_TRIES = 5
_MERGED = (Verdict.TAKE, Verdict.LEAVE_OUT)
_VERDICTS = {
    Verdict.OUT_OF_ORDER: ErrorCode.out_of_order_sequence_number,
    Verdict.FENCED: ErrorCode.invalid_producer_epoch,
    Verdict.INVALID_TRANSACTION: ErrorCode.invalid_txn_state,
}
_REFUSED = {
    FaultCode.DISK_FULL: ErrorCode.kafka_storage_error,
    FaultCode.TOO_MANY: ErrorCode.throttling_quota_exceeded,
    FaultCode.TOPIC_GONE: ErrorCode.unknown_topic_or_partition,
    FaultCode.UNKNOWN_TOPIC: ErrorCode.unknown_topic_or_partition,
    FaultCode.NOT_AUTHORISED: ErrorCode.topic_authorization_failed,
}


class _Waiting(msgspec.Struct, frozen=True):
    """A batch that was appended at (roll, byte)."""

    at: RollByte
    records: int
    outcome: asyncio.Future[AppendResult]


class _Gathered(msgspec.Struct, frozen=True):
    """A batch that is not written yet."""

    data: memoryview
    records: int
    outcome: asyncio.Future[AppendResult]


_RECORDS: Callable[[_Gathered], int] = attrgetter("records")


class _ProducerRun(msgspec.Struct):
    """The run that batches go into now, under the cluster's number; partition number -> input."""

    run_id: str
    number: int
    inputs: dict[int, int]


NOT_TAKEN = AppendResult(ErrorCode.not_leader_or_follower)
"""Clients ask who leads, and send it again."""
UNKNOWN_FATE = AppendResult(
    ErrorCode.request_timed_out,
    message="this node was behind and does not know what became of the batch: send it again",
)
"""Clients send it again, and know that it may be merged already."""


class OwnSession(msgspec.Struct):
    """Which session of the node it is; with a dedup id, records have ids of their own, from
    `dedup_base` on in the next run.
    """

    name: str
    dedup_id: str | None = None
    dedup_base: int | None = None


class ProducerLog(InLoop):
    """Implements any_broker.BatchLog and intake.VerdictListener."""

    def __init__(
        self,
        name: str,
        number: int,
        logs: LogParts,
        session: OwnSession | None = None,
        cluster: StateMachine | None = None,
    ) -> None:
        """`name` and `number`: of the node. `session`: whose records these are, None if they are
        those of the node's Kafka clients. `cluster`: of group 0, if the logs are another group's.
        """
        self._machine = logs.machine
        self._cluster = cluster or logs.machine
        self._intake = logs.intake
        self.checker = logs.intake.checker
        self._identity = NODE_PREFIX + name
        self._own = session or OwnSession(session_of(number))
        self._session = self._own.name
        self._session_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self._identity}/{number}"))
        self._run: _ProducerRun | None = None
        self._opening = asyncio.Lock()
        self._waiting: dict[int, deque[_Waiting]] = {}
        """Input -> its batches whose fate is not known, in order."""
        self._gathered: dict[int, list[_Gathered]] = {}
        """Input -> those behind them, which are not written."""
        self._gathered_bytes = 0

    def start(self) -> None:
        """Hear of what the cluster decides."""
        self._intake.watch_verdicts(self)

    def close(self) -> None:
        """Answer the batches whose fate is not known, and stop. May be called without `start`."""
        self._intake.unwatch_verdicts(self)
        self.end_run()

    # --- opening ----------------------------------------------------------------------------------

    def is_open(self, topic: Topic, index: int) -> bool:
        """Whether `append` may be called for a partition."""
        return self._run is not None and topic.partition_numbers[index] in self._run.inputs

    async def open(self, topic: Topic, index: int) -> None:
        """Make a partition ready for `append`. Raises ApiError."""
        reason = why_only_source(self._cluster.state, topic)
        if reason is not None:
            raise ApiError(ErrorCode.policy_violation, reason)
        async with self._opening:
            try:
                for _ in range(OPEN_TRIES):
                    if self.is_open(topic, index):
                        return
                    run = self._run or await self._open_run()
                    await self._open_input(run, topic, index)
            except RequestRefused as refused:
                raise _api_error(refused) from refused
        raise ApiError(ErrorCode.not_leader_or_follower, "this node cannot take records now")

    async def _open_run(self) -> _ProducerRun:
        known = self._machine.state.sessions.by_name.get(self._session)
        last = known.runs[-1].number if known is not None and known.runs else -1
        number = 1 + max(last, -1 if known is None else known.forgotten)
        run_id = uuid.uuid4().hex
        opened = await self._intake.open_run(
            identity=self._identity,
            session=self._session,
            session_id=self._session_id,
            run=number,
            run_id=run_id,
            dedup_id=self._own.dedup_id,
            dedup_base=self._own.dedup_base,
        )
        run = _ProducerRun(run_id, opened.number, {})
        if not opened.closed:
            self._run = run
        return run

    async def _open_input(self, run: _ProducerRun, topic: Topic, index: int) -> None:
        opened = await self._intake.open_input(
            identity=self._identity,
            session=self._session,
            run_id=run.run_id,
            topic=topic.name,
            partition=index,
        )
        run.inputs[topic.partition_numbers[index]] = opened.input

    # --- appending --------------------------------------------------------------------------------

    def append(
        self, topic: Topic, index: int, data: memoryview, records: int
    ) -> asyncio.Future[AppendResult] | None:
        """Take one sound batch: what will become of it; None if the partition is not open. `data`
        must not change. Raises ApiError.
        """
        run, loop = self._run, self.loop
        number = None if run is None else run.inputs.get(topic.partition_numbers[index])
        if number is None:
            return None
        if (stopped := self._intake.room.stopped) is not None:
            raise ApiError(ErrorCode.kafka_storage_error, stopped)
        size = len(data)
        is_large = size >= LARGE_BYTES
        if is_large:
            self._write_gathered()
        elif not self._gathered:
            loop.call_soon(self._write_gathered)
        outcome: asyncio.Future[AppendResult] = loop.create_future()
        gathered = self._gathered.setdefault(number, [])
        gathered.append(_Gathered(data, records, outcome))
        self._gathered_bytes += size
        if is_large or self._gathered_bytes >= GATHERED_BYTES:
            self._write_gathered()
        return outcome

    def _write_gathered(self) -> None:
        """Write what came in this turn of the loop: what is refused is answered."""
        found, self._gathered, self._gathered_bytes = self._gathered, {}, 0
        for number, batches in found.items():
            try:
                self._write(number, batches)
            except RequestRefused as refused:
                error = _api_error(refused)
                for batch in batches:
                    _answer(batch.outcome, AppendResult(error.code, message=error.message))

    def _write(self, number: int, batches: Sequence[_Gathered]) -> None:
        """Append batches to an input as one piece. Raises RequestRefused."""
        run, intake = self._run, self._intake
        if run is None:
            raise InvariantError("batches of a run that has ended")
        data, records = batches[0].data, sum(map(_RECORDS, batches))
        if len(batches) > 1:
            data = memoryview(b"".join([batch.data for batch in batches]))
        taken = Taken(data, records, None)
        roll, byte = intake.append_checked(number, run.number, taken, ROLL_BYTES)
        queue = self._waiting.setdefault(number, deque())
        for batch in batches:
            queue.append(_Waiting((roll, byte), batch.records, batch.outcome))
            byte += len(batch.data)

    # --- what became of it ------------------------------------------------------------------------

    def merge_committed(self, merge: Merge) -> None:
        """A merge instruction is committed: it says what became of the batches in it."""
        offset = merge.base_offset
        for part in merge.ranges:
            queue = self._waiting.get(part.input)
            if queue and self._run is not None and part.run == self._run.number:
                self._settle(merge, part, queue, offset)
            offset += part.records

    def _settle(self, merge: Merge, part: Range, queue: deque[_Waiting], offset: int) -> None:
        before, extras = 0, merge.extras or NO_EXTRAS
        while queue and queue[0].at < (part.roll, part.stop):
            batch = queue.popleft()
            if part.verdict in _MERGED:
                left = batch.records
                if part.verdict != Verdict.TAKE:
                    left = count_staying(extras.left_out[part.detail], before, left)
                stamp = merge.append_ms if extras.stamp else -1
                found = AppendResult(ErrorCode.none, offset if left else -1, stamp)
                offset += left
                before += batch.records
            else:
                found = _not_merged(part, extras, offset)
            _answer(batch.outcome, found)

    def on_run_closed(
        self, session: str, run_id: str, ends: Mapping[tuple[str, int], RollByte]
    ) -> None:
        """What is not merged of a closed run never will be."""
        if self._run is not None and run_id == self._run.run_id:
            self.end_run()

    def on_state_replaced(self) -> None:
        """Answer the batches whose verdicts the snapshot stands for. The snapshot tells how far an
        input is decided, but neither the verdicts nor the offsets.
        """
        run = self._run
        if run is None:
            return
        inputs = self._machine.state.sessions.inputs
        for number, queue in self._waiting.items():
            entry = inputs.get(number)
            while queue and entry is not None and (run.number, *queue[0].at) < entry.place:
                _answer(queue.popleft().outcome, UNKNOWN_FATE)
        known = self._machine.state.sessions.open_run_of(self._session)
        if known is None or known.run_id != run.run_id:
            self.end_run()

    def end_run(self) -> None:
        """Take nothing more into the present run; the next one ends it."""
        self._run = None
        for number in {*self._waiting, *self._gathered}:
            self._give_up(number, NOT_TAKEN)

    def on_topic_gone(self, number: int) -> None:
        """A topic was deleted."""
        self._let_go(number, AppendResult(ErrorCode.unknown_topic_or_partition))

    def on_input_moved(self, number: int) -> None:
        """A partition goes to another group: what is not committed by now will not be here."""
        self._let_go(number, NOT_TAKEN)

    def _let_go(self, number: int, outcome: AppendResult) -> None:
        self._give_up(number, outcome)
        if self._run is not None:
            self._run.inputs = {p: n for p, n in self._run.inputs.items() if n != number}

    def _give_up(self, number: int, outcome: AppendResult) -> None:
        for batch in (*self._waiting.pop(number, ()), *self._gathered.pop(number, ())):
            _answer(batch.outcome, outcome)


def _not_merged(part: Range, extras: MergeExtras, offset: int) -> AppendResult:
    """What became of batches that add nothing, or of whose front records were there before."""
    if part.verdict == Verdict.REFUSED:
        return _refused(extras.refused[part.detail], extras.version)
    if part.verdict == Verdict.DUPLICATE:
        return AppendResult(ErrorCode.none, part.detail)
    if part.verdict == Verdict.SLICE:
        return AppendResult(ErrorCode.none, offset)
    return AppendResult(_VERDICTS[Verdict(part.verdict)])


def _refused(batch: RefusedBatch, version: int | None) -> AppendResult:
    """Records of a batch do not fit the topic's schema: none of it is taken. Its client may send
    the others again, in another batch.
    """
    bad = tuple((told.record, why_unfit(told)) for told in batch.told)
    count = sum(batch.runs[1::2])
    text = f"{count} of its records do not fit version {version} of the schema; record {bad[0][0]}"
    return AppendResult(ErrorCode.invalid_record, message=f"{text}: {bad[0][1]}", bad_records=bad)


def _answer(outcome: asyncio.Future[AppendResult], result: AppendResult) -> None:
    if not outcome.done():
        outcome.set_result(result)


def _api_error(refused: RequestRefused) -> ApiError:
    code = _REFUSED.get(refused.code, ErrorCode.not_leader_or_follower)
    return ApiError(code, refused.message)

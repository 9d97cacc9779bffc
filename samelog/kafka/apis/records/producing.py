"""One Produce request: each partition's batch is taken or refused, then their fates are waited for.

Invariant: a connection's batches are appended in the order of its requests; with acks 0 nothing is
answered, and a refusal ends the connection, as with Kafka's broker.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from samelog.kafka.any_broker import AppendResult
from samelog.kafka.api import AnyCall
from samelog.kafka.apis.records.record_check import check_records
from samelog.kafka.apis.topics.topics import denied
from samelog.kafka.codec.errors import ApiError, Unanswerable
from samelog.kafka.codec.produce import (
    ProducedPartition,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
)

if TYPE_CHECKING:
    from samelog.sequencer.state.types import Topic

OLDEST = 3
TIMED_OUT = AppendResult(ErrorCode.request_timed_out)


@dataclass(slots=True)
class _PartitionWrite:
    """One partition of the request."""

    topic: str
    asked: ProducePartition
    refusal: ApiError | None = None
    outcome: asyncio.Future[AppendResult] | None = None


class Producing:
    """A request under way."""

    def __init__(self, call: AnyCall, request: ProduceRequest) -> None:
        self._call = call
        self._request = request
        self._parts = [
            _PartitionWrite(topic, asked)
            for topic, partitions in request.topics
            for asked in partitions
        ]
        self._left = 0
        self._answer: asyncio.Future[ProduceResponse] | None = None
        self._timer: asyncio.TimerHandle | None = None

    # --- taking -----------------------------------------------------------------------------------

    @property
    def has_to_wait(self) -> bool:
        """Whether something must be opened, or asked for, before anything can be taken."""
        return self._has_unknown() or bool(self._unopened())

    def _has_unknown(self) -> bool:
        """Whether a topic is not known here: it might only be new."""
        return any(self._call.broker.topic(part.topic) is None for part in self._parts)

    def _unopened(self) -> list[tuple[Topic, int]]:
        """Partitions that nothing was written to yet through this node."""
        found = []
        for part in self._parts:
            topic = self._call.broker.topic(part.topic)
            index = part.asked.partition
            if topic is None or not 0 <= index < topic.partitions:
                continue
            is_open = self._call.broker.batches.is_open(topic, index)
            if not is_open and self._call.broker.may_write(self._call.client, part.topic):
                found.append((topic, index))
        return found

    async def open_and_take(self) -> asyncio.Future[ProduceResponse] | ProduceResponse | None:
        """Open what is not open yet; then as `take`."""
        await self._call.broker.look_for(part.topic for part in self._parts)
        for topic, index in self._unopened():
            try:
                await self._call.broker.batches.open(topic, index)
            except ApiError as refusal:
                self._refuse(topic.name, index, refusal)
        return self.take()

    def _refuse(self, topic: str, index: int, refusal: ApiError) -> None:
        for part in self._parts:
            if (part.topic, part.asked.partition) == (topic, index):
                part.refusal = refusal

    def take(self) -> asyncio.Future[ProduceResponse] | ProduceResponse | None:
        """Append every batch: the answer, now or later. Raises Unanswerable."""
        for part in self._parts:
            try:
                if part.refusal is None:
                    part.outcome = self._append(part)
            except ApiError as refusal:
                part.refusal = refusal
        if self._request.acks == 0:
            self._check_taken()
            return None
        waited = [part.outcome for part in self._parts if part.outcome is not None]
        if not waited:
            return self._answers()
        return self._wait(waited)

    def _append(self, part: _PartitionWrite) -> asyncio.Future[AppendResult]:
        """Raises ApiError."""
        call, broker, index = self._call, self._call.broker, part.asked.partition
        if call.version < OLDEST:
            text = f"Produce version {call.version}; the oldest that is taken is {OLDEST}"
            raise ApiError(ErrorCode.unsupported_version, text)
        if self._request.acks not in (-1, 0, 1):
            text = f"acks {self._request.acks}; there are 0, 1 and -1"
            raise ApiError(ErrorCode.invalid_required_acks, text)
        if self._request.transactional_id is not None:
            raise ApiError(ErrorCode.invalid_txn_state, "there are no transactions")
        if not broker.may_write(call.client, part.topic):
            raise denied(part.topic)
        topic = broker.topic(part.topic)
        if topic is None or not 0 <= index < topic.partitions:
            text = f"there is no partition {index} of topic {part.topic!r}"
            raise ApiError(ErrorCode.unknown_topic_or_partition, text)
        limit = broker.max_message_bytes(topic)
        records = part.asked.records
        header = check_records(records, version=call.version, limit_bytes=limit)
        return broker.batches.append(topic, index, records or memoryview(b""), header.records)

    def _check_taken(self) -> None:
        """Raises Unanswerable if anything was refused."""
        for part in self._parts:
            if part.refusal is not None:
                text = f"acks=0, and a batch for {part.topic}: {part.refusal.message}"
                raise Unanswerable(text)

    # --- waiting ----------------------------------------------------------------------------------

    def _wait(self, waited: list[asyncio.Future[AppendResult]]) -> asyncio.Future[ProduceResponse]:
        loop = asyncio.get_running_loop()
        self._answer = loop.create_future()
        self._left = len(waited)
        timeout_s = max(0, self._request.timeout_ms) / 1000
        self._timer = loop.call_later(timeout_s, self._finish)
        self._answer.add_done_callback(lambda _: self._forget_timer())
        for outcome in waited:
            outcome.add_done_callback(self._settled)
        return self._answer

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _settled(self, _: asyncio.Future[AppendResult]) -> None:
        self._left -= 1
        if self._left == 0:
            self._finish()

    def _finish(self) -> None:
        """Answer; what is not settled by now has taken too long, and may still be merged."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(self._answers())

    def _answers(self) -> ProduceResponse:
        parts = iter(self._parts)
        return [
            (topic, [self._said(part) for _, part in zip(partitions, parts, strict=False)])
            for topic, partitions in self._request.topics
        ]

    def _said(self, part: _PartitionWrite) -> ProducedPartition:
        index = part.asked.partition
        if part.outcome is None:
            refusal = part.refusal or ApiError(ErrorCode.unknown_server_error, "not looked at")
            return ProducedPartition(index, int(refusal.code), message=refusal.message)
        outcome = part.outcome.result() if part.outcome.done() else TIMED_OUT
        stream = self._call.broker.partition(part.topic, index)
        start = -1 if stream is None or outcome.error else stream.log.start_offset
        return ProducedPartition(
            index, int(outcome.error), outcome.base_offset, outcome.append_ms, start
        )

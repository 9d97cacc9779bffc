"""Produce (0): takes record batches as they came, and answers when they are merged.

Any node takes them, into its own session (producer_log.py). acks=1 means the same as acks=all: the
batch is durable on a majority and has its offset. A retry of an idempotent producer is recognised
whichever node it comes to. Versions 0 to 2 are listed, because librdkafka takes that for the sign
that gzip, snappy and lz4 are understood, and refused.

Invariant: a connection's batches are appended in the order of its requests; with acks 0 nothing is
answered, and a refusal ends the connection, as with Kafka's broker.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop, timeout_at, wait
from collections.abc import Sequence
from functools import partial
from itertools import filterfalse, islice
from uuid import UUID

import msgspec
from msgspec.structs import replace

from samelog.archiver.policy import CLEANUP_POLICY
from samelog.format.batch import Attribute
from samelog.format.recompression import recompressed
from samelog.format.steps import StepWork, mapped
from samelog.kafka.any_broker import AppendResult
from samelog.kafka.api import AnyCall, MaybeResponse, Reply, kafka_api
from samelog.kafka.apis.checks import check_transactional, check_unpacked, denied, no_partition
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError, Unanswerable
from samelog.kafka.codec.fetch import TopicKey
from samelog.kafka.codec.produce import (
    FLEXIBLE_FROM,
    ProducedPartition,
    ProduceRequest,
    ProduceResponse,
    read_produce,
    reading_produce,
)
from samelog.kafka.recompression import other_codec
from samelog.kafka.record_check import check_crc, check_records, unpacked_limit
from samelog.kafka.shared_timers import SharedTimer
from samelog.replicator.interfaces import RequestRefused
from samelog.runtime.slices import give_way, in_background, paced
from samelog.sequencer.ingest.batch_check import any_producer, check_keys
from samelog.sequencer.ingest.checking import CheckedBatches
from samelog.sequencer.state.tables.topics import Topic

OLDEST = 3
JOINS_FROM = 12
"""From this version on a batch's partition takes part in its transaction by the batch (KIP-890)."""
TIMED_OUT = AppendResult(ErrorCode.request_timed_out)
REPEATED = ApiError(ErrorCode.invalid_request, "the request names the partition twice")
LEAST_TIMEOUT_MS = 5_000
"""Opening a partition takes some entries, which a client with a short timeout needs, too."""


@kafka_api(
    0,
    "Produce",
    0,
    13,
    flexible_from=FLEXIBLE_FROM,
    read=read_produce,
    reading=reading_produce,
    notes="Versions 0 to 2 are refused. Any node accepts it. acks=1 is acks=all. Batches of "
    "transactions need acks=all.",
)
def produce(call: AnyCall, request: ProduceRequest) -> Reply:
    """Answer a request, once all its batches are merged or refused."""
    if call.is_long:
        return ProduceWork(call, replace(request, topics=[])).run_long(request)
    return ProduceWork(call, request).start()


class _PartitionWrite(msgspec.Struct):
    """One partition of the request; `result` or `error` is set once it is taken or refused."""

    key: str | UUID
    """The topic's name, or its id."""
    index: int
    records: memoryview | None
    """None once they are taken: who asked may be gone long before it is known what became of them.
    """
    count: int = 0
    """Of records, once the batch was found sound."""
    topic: Topic | None = None
    result: Future[AppendResult] | None = None
    error: ApiError | None = None
    producer: tuple[int, int] | None = None
    """(id, epoch) of a transaction's batch."""
    is_confirmed: bool = False
    """What is known here of its transaction is as new as the request."""


class ProduceWork:
    """A request under way."""

    def __init__(self, call: AnyCall, request: ProduceRequest) -> None:
        self._call = call
        self._acks = request.acks
        self._timeout_ms = request.timeout_ms
        self._transactional_id = request.transactional_id
        self._flags = 0 if request.transactional_id is None else int(Attribute.TRANSACTIONAL)
        self._counts: list[tuple[TopicKey, int]] = []
        self._writes: list[_PartitionWrite] = []
        for topic, partitions in request.topics:
            self._counts.append((topic, len(partitions)))
            key = UUID(bytes=topic) if isinstance(topic, bytes) else topic
            for asked in partitions:
                self._writes.append(_PartitionWrite(key, asked.partition, asked.records))
        self._pending = 0
        self._response: Future[MaybeResponse] | None = None
        self._timer: SharedTimer | None = None

    # --- taking -----------------------------------------------------------------------------------

    def start(self) -> Reply:
        """Append every batch, at once if everything is open; then wait for their fates."""
        refusal = self._refusal()
        if refusal is None:
            unopened = list(filterfalse(self._appended, self._writes))
            if unopened:
                return self._open_and_append(unopened)
        for write in self._writes if refusal is not None else ():
            write.error = refusal
        return self._settle()

    async def run_long(self, request: ProduceRequest) -> MaybeResponse | Future[MaybeResponse]:
        """As `start`, for a request of many partitions, in slices of the event loop."""
        unopened = await paced(self._taking(request))
        if unopened:
            await self._open_and_append_all(unopened)
        if self._acks == 0:
            self._check_taken()
            return None
        return in_background(self._answer_long())

    def _taking(self, request: ProduceRequest) -> StepWork[list[_PartitionWrite]]:
        """Append or refuse every batch that can be; returns the others. A partition that is named
        again gets one batch, as with Kafka.
        """
        refusal = self._refusal()
        unopened: list[_PartitionWrite] = []
        seen: set[tuple[str | UUID, int]] = set()
        for topic, partitions in request.topics:
            key = UUID(bytes=topic) if isinstance(topic, bytes) else topic
            self._counts.append((topic, len(partitions)))
            for asked in partitions:
                write = _PartitionWrite(key, asked.partition, asked.records)
                self._writes.append(write)
                if refusal is not None or (key, asked.partition) in seen:
                    write.error, write.records = refusal or REPEATED, None
                elif not self._appended(write):
                    unopened.append(write)
                seen.add((key, asked.partition))
                yield
        return unopened

    async def _answer_long(self) -> ProduceResponse:
        """The response, once everything that was taken is merged, or it is too late."""
        waiting = [write.result for write in self._writes if write.result is not None]
        if waiting:
            await wait(waiting, timeout=max(0, self._timeout_ms) / 1000)
        results = iter(await paced(mapped(self._result_of, self._writes)))
        return ProduceResponse([(topic, [*islice(results, n)]) for topic, n in self._counts])

    def _refusal(self) -> ApiError | None:
        """Why the request as a whole is refused, if it is."""
        call = self._call
        if call.version < OLDEST:
            text = f"Produce version {call.version}; the oldest that is taken is {OLDEST}"
            return ApiError(ErrorCode.unsupported_version, text)
        if self._acks not in (-1, 0, 1):
            text = f"acks {self._acks}; there are 0, 1 and -1"
            return ApiError(ErrorCode.invalid_required_acks, text)
        return None if self._transactional_id is None else self._no_transaction()

    def _no_transaction(self) -> ApiError | None:
        """Why no batches of transactions are taken from this client, if they are not."""
        broker, name = self._call.broker, self._transactional_id or ""
        if broker.transactions is None:
            return ApiError(ErrorCode.invalid_txn_state, "there are no transactions here")
        if not broker.may_use_transactions(self._call.client, name):
            text = f"no right to the transactional id {name!r}"
            return ApiError(ErrorCode.transactional_id_authorization_failed, text)
        if self._acks != -1:
            return ApiError(ErrorCode.invalid_required_acks, "a transaction needs acks=all")
        return None

    def _appended(self, write: _PartitionWrite) -> bool:
        """Append a batch, or refuse it; False if something is to be asked for or opened first."""
        broker = self._call.broker
        write.topic = broker.topic(write.key)
        if write.topic is None and isinstance(write.key, UUID):
            return False
        try:
            name = str(write.key) if write.topic is None else write.topic.name
            if not broker.may_write(self._call.client, name):
                raise denied(name)
            if write.topic is not None:
                if not 0 <= write.index < len(write.topic.partition_numbers):
                    raise no_partition(name, write.index)
                write.result = self._append(write.topic, write)
        except ApiError as error:
            write.error = error
            return True
        return write.result is not None

    def _append(self, topic: Topic, write: _PartitionWrite) -> Future[AppendResult] | None:
        """None if the partition is not open, this turn of the loop has no room to check the batch,
        the topic has another codec, or it is not known whether a transaction has room for it.
        Raises ApiError.
        """
        broker, data = self._call.broker, write.records or memoryview(b"")
        if not write.count:
            limit = broker.max_message_bytes(topic)
            version, flags = self._call.version, self._flags
            header = check_records(write.records, version=version, limit_bytes=limit, flags=flags)
            if header.attributes & flags:
                write.producer = header.producer_id, header.producer_epoch
            who = self._call.client.who
            checked = broker.batches.checker.now(who, data, any_producer, unpacked_limit(limit))
            if checked is None:
                return None
            self._note(write, data, checked)
        is_special = topic.settings or write.producer is not None
        if is_special and self._is_to_wait(topic, write, data):
            return None
        batches = broker.batches
        if topic.is_placed:
            batches = broker.batches_of(topic, write.index)
        result = batches.append(topic, write.index, data, write.count)
        write.records = write.records if result is None else None
        return result

    def _is_to_wait(self, topic: Topic, write: _PartitionWrite, data: memoryview) -> bool:
        """Whether a batch needs another codec, or is not known to belong to an open transaction.
        Raises ApiError if it is known not to.
        """
        problem = self._problem(topic, write)
        if problem is not None and write.is_confirmed:
            raise problem
        return problem is not None or other_codec(topic, data) is not None

    def _problem(self, topic: Topic, write: _PartitionWrite) -> ApiError | None:
        """Why a batch belongs to no open transaction, as far as is known here."""
        gate, name = self._call.broker.transactions, self._transactional_id
        if write.producer is None or gate is None or name is None:
            return None
        return gate.problem_with(name, write.producer, topic.partition_numbers[write.index])

    async def _confirm(self, topic: Topic, write: _PartitionWrite) -> None:
        """Have the leader say what there is to be known of a batch's transaction."""
        gate, name = self._call.broker.transactions, self._transactional_id
        if write.producer is None or gate is None or name is None:
            return
        try:
            number = topic.partition_numbers[write.index]
            if self._call.version >= JOINS_FROM:
                await gate.join(name, write.producer, number)
            else:
                await self._call.broker.catch_up()
            await gate.take_part(name, number)
        except ApiError as error:
            write.error = error
        write.is_confirmed = True

    def _note(self, write: _PartitionWrite, data: memoryview, checked: CheckedBatches) -> None:
        """Charge the client for what was looked into. Raises ApiError if it cannot be taken."""
        client, refusal = self._call.client, checked.taken.refusal
        client.uncharged.unpacked_bytes += checked.bytes - len(data)
        if refusal is not None:
            client.refusals.add(self._call.broker.clock.now())
            check_crc(data)
            raise ApiError(ErrorCode.invalid_record, refusal.message)
        try:
            topic, has_keys = write.topic, checked.taken.has_keys
            if topic is not None and CLEANUP_POLICY in topic.settings and not has_keys:
                check_keys(topic)
        except RequestRefused as refused:
            raise ApiError(ErrorCode.invalid_record, refused.message) from refused
        if write.topic is not None and write.topic.settings:
            check_unpacked(write.topic, data, checked)
        if write.topic is not None and self._transactional_id is not None:
            check_transactional(write.topic)
        write.count = checked.taken.records

    async def _open(self, write: _PartitionWrite) -> None:
        topic = self._call.broker.topic(write.key)
        try:
            if topic is None and isinstance(write.key, UUID):
                raise ApiError(ErrorCode.unknown_topic_id, f"no topic has the id {write.key}")
            if topic is None or not 0 <= write.index < len(topic.partition_numbers):
                raise no_partition(str(write.key), write.index)
            await self._call.broker.batches_of(topic, write.index).open(topic, write.index)
        except ApiError as error:
            write.error = error

    async def _check_and_append(self, write: _PartitionWrite) -> None:
        """Append a batch for which a turn of the event loop has no room, or of whose transaction
        nothing is known here.
        """
        if write.topic is not None and self._problem(write.topic, write) is not None:
            await self._confirm(write.topic, write)
        if write.error is None and not write.count:
            await self._check(write)
        if write.error is None:
            await self._recompress(write)
        if write.error is None and not self._appended(write):
            text = "it was closed meanwhile"
            write.error = ApiError(ErrorCode.not_leader_or_follower, text)

    async def _check(self, write: _PartitionWrite) -> None:
        """Check a batch outside of the event loop."""
        broker, data = self._call.broker, write.records or memoryview(b"")
        limit = unpacked_limit(broker.max_message_bytes(write.topic))
        checker = broker.batches.checker
        try:
            self._note(
                write, data, await checker.later(self._call.client.who, data, any_producer, limit)
            )
        except ApiError as error:
            write.error = error

    async def _recompress(self, write: _PartitionWrite) -> None:
        """Give a batch the codec that its topic has, outside of the event loop."""
        broker, data = self._call.broker, write.records
        topic = broker.topic(write.key)
        codec = None if topic is None or data is None else other_codec(topic, data)
        if topic is None or data is None or codec is None:
            return
        limit = broker.max_message_bytes(topic)
        work = partial(recompressed, data, codec, unpacked_limit(limit))
        write.records = memoryview(await broker.batches.checker.look(self._call.client.who, work))
        if len(write.records) > limit:
            text = f"{len(write.records)} bytes as {codec.name.lower()}; at most {limit} are taken"
            write.error = ApiError(ErrorCode.message_too_large, text)

    async def _open_and_append(
        self, unopened: Sequence[_PartitionWrite]
    ) -> MaybeResponse | Future[MaybeResponse]:
        await self._open_and_append_all(unopened)
        return self._settle()

    async def _open_and_append_all(self, unopened: Sequence[_PartitionWrite]) -> None:
        """Open what is not open yet, and check what takes long; then append, in the time that the
        client gives: while this waits, its connection does nothing else. After a restart each group
        may first close the node's previous run, one after the other.
        """
        loop = get_running_loop()
        over_at = loop.time() + max(self._timeout_ms, LEAST_TIMEOUT_MS) / 1000
        try:
            async with timeout_at(over_at):
                await self._open_all(unopened)
        except TimeoutError:
            text = "the partition could not be opened in time: ask again"
            for write in unopened:
                if write.error is None and write.result is None:
                    write.error = ApiError(ErrorCode.request_timed_out, text)
        self._timeout_ms = max(0, int((over_at - loop.time()) * 1000))

    async def _open_all(self, unopened: Sequence[_PartitionWrite]) -> None:
        """A topic that is not known might only be new."""
        await self._call.broker.look_for(write.key for write in unopened)
        for write in unopened:
            await give_way()
            await self._open(write)
        for write in unopened:
            await give_way()
            if write.error is None and not self._appended(write):
                await self._check_and_append(write)

    # --- waiting ----------------------------------------------------------------------------------

    def _settle(self) -> MaybeResponse | Future[MaybeResponse]:
        """The response, now or once everything that was taken is merged. Raises Unanswerable."""
        if self._acks == 0:
            self._check_taken()
            return None
        for write in self._writes:
            if write.result is not None:
                self._pending += 1
                write.result.add_done_callback(self._settled)
        if not self._pending:
            return self._make_response()
        timers = self._call.broker.timers
        self._response = timers.loop.create_future()
        self._timer = timers.add(self._timeout_ms, self._finish)
        return self._response

    def _check_taken(self) -> None:
        """Raises Unanswerable if anything was refused."""
        for write in self._writes:
            if write.error is not None:
                text = f"acks=0, and a batch for {write.key}: {write.error.message}"
                raise Unanswerable(text)

    def _settled(self, _: Future[AppendResult]) -> None:
        self._pending -= 1
        if self._pending == 0:
            self._finish()

    def _finish(self) -> None:
        """Answer; what is not settled by now has taken too long, and may still be merged."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        if self._response is not None and not self._response.done():
            self._response.set_result(self._make_response())

    def _make_response(self) -> ProduceResponse:
        results = map(self._result_of, self._writes)
        topics: list[tuple[TopicKey, list[ProducedPartition]]] = []
        for topic, count in self._counts:
            topics.append((topic, list(islice(results, count))))
        return ProduceResponse(topics)

    def _result_of(self, write: _PartitionWrite) -> ProducedPartition:
        if write.error is not None:
            return ProducedPartition(write.index, write.error.code, message=write.error.message)
        is_settled = write.result is not None and write.result.done()
        result = write.result.result() if write.result is not None and is_settled else TIMED_OUT
        start = -1
        if result.error is ErrorCode.none and write.topic is not None:
            stream = self._call.broker.partition(write.topic, write.index)
            start = -1 if stream is None else stream.log.start_offset
        found = result.base_offset, result.append_ms, start, result.message, result.bad_records
        return ProducedPartition(write.index, result.error, *found)

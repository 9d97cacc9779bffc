"""What handlers of several APIs check: names and settings of topics, partitions that a client may
read, which operations it may carry out; and how they answer each part of a request by itself.

Invariant: what is refused changed nothing, and is refused with the code that makes Kafka's clients
do the right thing: ask for metadata again, wait, or give up. An operation is only told to be
allowed if the request that it stands for would not be denied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar
from uuid import UUID

import msgspec

from samelog.format.errors import InvalidName, LogFormatError
from samelog.format.names import check_topic_name
from samelog.format.nouns import counted
from samelog.kafka.access.acls import AclOperation, AclResource
from samelog.kafka.any_broker import AnyBroker, KafkaClient, WatchedLog
from samelog.kafka.api import AnyCall
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import TopicAnswers, TopicsResponse
from samelog.placement.defaults import EVERYWHERE, copies_of_new
from samelog.runtime.slices import slices
from samelog.sequencer.ingest.batch_check import (
    KEYED_RECORDS,
    SLICED_LIMIT_BYTES,
    too_long_if_keyed,
)
from samelog.sequencer.ingest.checking import CheckedBatches
from samelog.sequencer.state.tables.keys import has_keys, problem_with_keys
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.topic_settings import KNOWN, MAX_MESSAGE_BYTES, problem_with
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units.mirrors import why_only_source
from samelog.wire.errors import FaultCode

PARTITIONS_MAX = 10_000
TURN_S = 0.001
NO_OPERATIONS = -(1 << 31)
"""The client did not ask for them."""

WantedT = TypeVar("WantedT")
AnswerT = TypeVar("AnswerT")


# --- parts of a request -------------------------------------------------------------------------


class Turn:
    """A request's turn of the event loop: a millisecond at once, then slices."""

    def __init__(self) -> None:
        self._slices = slices()
        self._over_at = self._slices.now() + TURN_S

    async def give_way(self) -> None:
        """Let others have the event loop if the turn is over."""
        if self._slices.now() >= self._over_at and self._slices.is_over:
            await self._slices.next()


async def answer_each(
    wanted: Iterable[WantedT],
    answer: Callable[[WantedT], Awaitable[AnswerT]],
    refuse: Callable[[WantedT, ApiError], AnswerT],
    *,
    failure: ApiError | None = None,
    turn: Turn | None = None,
) -> list[AnswerT]:
    """Answer every part of a request, in order and each by itself: what `answer` returns, or what
    `refuse` makes of the ApiError that it raises. `failure`: what all of them are refused with.
    After a millisecond the rest is done in slices of the event loop; `turn`: the millisecond has
    begun.
    """
    found: list[AnswerT] = []
    turn = turn or Turn()
    for each in wanted:
        await turn.give_way()
        try:
            if failure is not None:
                raise failure
            found.append(await answer(each))
        except ApiError as error:
            found.append(refuse(each, error))
        except LogFormatError as fault:
            found.append(refuse(each, ApiError(ErrorCode.kafka_storage_error, str(fault))))
    return found


async def answer_topics(
    topics: Iterable[tuple[str, Iterable[WantedT]]],
    answer: Callable[[str, WantedT], Awaitable[AnswerT]],
    refuse: Callable[[WantedT, ApiError], AnswerT],
    *,
    failure: ApiError | None = None,
) -> TopicsResponse[AnswerT]:
    """The same for the partitions of topics, by name; `answer` gets the topic's, too."""
    turn = Turn()
    return TopicsResponse(
        [
            TopicAnswers(
                name,
                await answer_each(parts, partial(answer, name), refuse, failure=failure, turn=turn),
            )
            for name, parts in topics
        ]
    )


async def catch_up(
    broker: AnyBroker, asked: Iterable[tuple[str | UUID, int]] = ()
) -> ApiError | None:
    """Wait until what was committed before is known here, of these partitions too; why that cannot
    be told.
    """
    try:
        await broker.catch_up_with(asked)
    except ApiError as error:
        return error
    return None


# --- topics -------------------------------------------------------------------------------------


def check_name(name: str) -> str:
    """Raises ApiError unless `name` is one for topics."""
    try:
        return check_topic_name(name)
    except InvalidName as error:
        raise ApiError(ErrorCode.invalid_topic_exception, str(error)) from error


def check_partitions(count: int) -> int:
    """Raises ApiError unless a topic may have this number of partitions."""
    if not 1 <= count <= PARTITIONS_MAX:
        text = f"{count} partitions; a topic has 1 to {PARTITIONS_MAX}"
        raise ApiError(ErrorCode.invalid_partitions, text)
    return count


def check_replicas(state: State, count: int) -> None:
    """Raises ApiError unless there are so many hosts, or none is said."""
    is_everywhere = (
        copies_of_new(state.placement, count, len(state.members.by_number)) == EVERYWHERE
    )
    if count == 0 or count < -1 or (count > state.hosts and not is_everywhere):
        text = f"replication factor {count}; there are {counted(state.hosts, 'host')}"
        raise ApiError(ErrorCode.invalid_replication_factor, text)


def check_transactional(topic: Topic) -> None:
    """Raises ApiError if a topic takes no transactional batches: what a transaction aborts would
    take along the record for which another one of its key was dropped.
    """
    if has_keys(topic.settings):
        text = f"keys of topic {topic.name!r} count once: it takes no transactional batches"
        raise ApiError(ErrorCode.invalid_txn_state, text)


def check_unpacked(topic: Topic, data: memoryview, checked: CheckedBatches) -> None:
    """Raises ApiError if a topic whose keys count once cannot take a batch, as it is unpacked."""
    if not has_keys(topic.settings):
        return
    if checked.bytes > max(SLICED_LIMIT_BYTES, len(data)):
        text = f"a batch of {checked.bytes} bytes unpacked; a topic whose keys count once takes"
        raise ApiError(ErrorCode.message_too_large, f"{text} {SLICED_LIMIT_BYTES}")
    if checked.taken.records > KEYED_RECORDS:
        raise ApiError(ErrorCode.message_too_large, too_long_if_keyed(checked.taken.records))


def check_settings(
    settings: Mapping[str, str | None], majority: int, longest: int
) -> dict[str, str]:
    """The settings, those left out that are null (their default). `longest`: the bytes of the
    longest batch that this node takes. Raises ApiError.
    """
    found: dict[str, str] = {}
    for key, value in settings.items():
        if value is None and key in KNOWN:
            continue
        problem = problem_with(key, value or "", majority)
        if problem is not None:
            raise ApiError(ErrorCode.invalid_config, problem)
        if key == MAX_MESSAGE_BYTES:
            _check_length(int(value or ""), longest)
        found[key] = value or ""
    if (why := problem_with_keys(None, found)) is not None:
        raise ApiError(ErrorCode.invalid_config, why)
    return found


def _check_length(wanted: int, longest: int) -> None:
    """Raises ApiError if a topic's batches would be longer than those that this node takes."""
    if wanted > longest:
        text = f"{MAX_MESSAGE_BYTES}={wanted}: this node takes batches of up to {longest} bytes"
        raise ApiError(ErrorCode.invalid_config, f"{text} ([node] max_record_bytes)")


def id_of(topic: Topic) -> UUID:
    """The topic's id, as Kafka writes ids: another one after a hard reset."""
    return UUID(topic.log_id)


def denied(topic: str) -> ApiError:
    """A client has no right to a topic."""
    return ApiError(ErrorCode.topic_authorization_failed, f"no right to topic {topic!r}")


def unknown(topic: str) -> ApiError:
    """There is no such topic."""
    return ApiError(ErrorCode.unknown_topic_or_partition, f"there is no topic {topic!r}")


def no_partition(topic: str, index: int) -> ApiError:
    """There is no such partition."""
    text = f"there is no partition {index} of topic {topic!r}"
    return ApiError(ErrorCode.unknown_topic_or_partition, text)


def administered(
    broker: AnyBroker, client: KafkaClient, operation: AclOperation, name: str
) -> Topic:
    """A topic with which the client may do this. Raises ApiError."""
    if not broker.may(client, operation, AclResource.TOPIC, name):
        raise denied(name)
    topic = broker.topic(name)
    if topic is None:
        raise unknown(name)
    return topic


# --- partitions ---------------------------------------------------------------------------------


class Readable(msgspec.Struct, frozen=True):
    """A partition that a client may read. Offsets below `committed` exist, here or soon."""

    topic: Topic
    stream: WatchedLog
    committed: int


def readable(call: AnyCall, key: str | UUID, index: int, epoch: int = -1) -> Readable:
    """A partition to read from; `epoch`: what the client takes for the leader epoch, -1 if it does
    not say. Raises ApiError.
    """
    broker = call.broker
    topic = broker.shown(key)
    if topic is None and isinstance(key, UUID):
        raise ApiError(ErrorCode.unknown_topic_id, f"no topic has the id {key}")
    name = str(key) if topic is None else topic.name
    if not broker.may_read(call.client, name):
        raise denied(name)
    stream = None if topic is None else broker.partition(topic, index)
    if topic is None or stream is None:
        raise no_partition(name, index)
    if stream.fault is not None:
        raise _of_fault(stream.fault.code, stream.fault.message)
    if epoch >= 0:
        check_epoch(broker.epoch_of(topic, index), epoch)
    there = Readable(topic, stream, broker.committed(topic, index))
    _check_copied(broker, there)
    return there


def _check_copied(broker: AnyBroker, there: Readable) -> None:
    """Raises ApiError if others can serve what this node still copies."""
    if broker.is_syncing and there.stream.log.next_offset < there.committed:
        raise ApiError(ErrorCode.not_leader_or_follower, "this node copies it: ask the leader")


def check_epoch(present: int, epoch: int) -> None:
    """Raises ApiError if the client knows of a newer leader than this node, or of an older one."""
    if present < 0 or epoch == present:
        return
    if epoch < present:
        raise ApiError(ErrorCode.fenced_leader_epoch, f"the leader epoch is {present}")
    raise ApiError(ErrorCode.unknown_leader_epoch, f"epoch {epoch} is not known here yet")


def _of_fault(code: FaultCode, message: str) -> ApiError:
    is_gone = code is FaultCode.TOPIC_GONE
    error = ErrorCode.unknown_topic_or_partition if is_gone else ErrorCode.kafka_storage_error
    return ApiError(error, message)


async def until_executed(stream: WatchedLog, offset: int, deadline: float) -> None:
    """Wait until the records below an offset are in this node's log. Raises ApiError."""
    if stream.log.next_offset >= offset:
        return
    reached = asyncio.Event()

    def changed() -> None:
        if stream.fault is not None or stream.log.next_offset >= offset:
            reached.set()

    stream.add_listener(changed)
    try:
        async with asyncio.timeout_at(deadline):
            await reached.wait()
    except TimeoutError as error:
        text = "this node is behind: ask again"
        raise ApiError(ErrorCode.offset_not_available, text) from error
    finally:
        stream.remove_listener(changed)
    if stream.fault is not None:
        raise _of_fault(stream.fault.code, stream.fault.message)


# --- operations ---------------------------------------------------------------------------------


_OF_TOPICS = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
_OF_THE_CLUSTER = (
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
_OF_EVERYBODY = (AclOperation.DESCRIBE, AclOperation.IDEMPOTENT_WRITE)


def _bits(operations: Iterable[AclOperation]) -> int:
    return sum(1 << operation for operation in operations)


def topic_operations(broker: AnyBroker, client: KafkaClient, topic: str) -> int:
    """What a client may do with a topic, as a bit field."""
    may = partial(broker.may, client, kind=AclResource.TOPIC, name=topic)
    return _bits(operation for operation in _OF_TOPICS if may(operation))


def cluster_operations(broker: AnyBroker, client: KafkaClient) -> int:
    """What a client may do with the cluster, as a bit field."""
    allowed = [operation for operation in _OF_THE_CLUSTER if broker.may(client, operation)]
    return _bits((*_OF_EVERYBODY, *allowed))


def check_no_mirror(state: State, topic: Topic | None) -> None:
    """Raises ApiError if a topic's records are brought from another cluster, and only these."""
    reason = None if topic is None else why_only_source(state, topic)
    if reason is not None:
        raise ApiError(ErrorCode.policy_violation, reason)

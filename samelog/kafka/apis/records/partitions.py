"""A partition as a client may read it: known, allowed, in the epoch it believes in.

Invariant: what is refused is refused with the code that makes Kafka's clients do the right thing:
ask for metadata again, wait, or give up.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from uuid import UUID

from kio.schema.errors import ErrorCode

from samelog.kafka.any_broker import AnyBroker, MergedStream
from samelog.kafka.api import AnyCall
from samelog.kafka.apis.topics.topics import denied
from samelog.kafka.codec.errors import ApiError
from samelog.wire.errors import FaultCode


@dataclass(frozen=True, slots=True)
class Readable:
    """A partition that a client may read. Offsets below `committed` exist, here or soon."""

    stream: MergedStream
    committed: int


def readable(call: AnyCall, key: str | UUID, index: int, epoch: int) -> Readable:
    """A partition to read from; `epoch`: what the client takes for the leader epoch, -1 if it does
    not say. Raises ApiError.
    """
    broker = call.broker
    topic = broker.topic(key)
    if topic is None and isinstance(key, UUID):
        raise ApiError(ErrorCode.unknown_topic_id, f"no topic has the id {key}")
    name = key if topic is None or isinstance(key, str) else topic.name
    if not broker.may_read(call.client, str(name)):
        raise denied(str(name))
    stream = broker.partition(key, index)
    if stream is None:
        text = f"there is no partition {index} of topic {name!r}"
        raise ApiError(ErrorCode.unknown_topic_or_partition, text)
    if stream.fault is not None:
        raise _of_fault(stream.fault.code, stream.fault.message)
    check_epoch(broker, epoch)
    return Readable(stream, broker.committed(key, index))


def check_epoch(broker: AnyBroker, epoch: int) -> None:
    """Raises ApiError if the client knows of a newer leader than this node, or of an older one."""
    if epoch < 0 or broker.epoch < 0 or epoch == broker.epoch:
        return
    if epoch < broker.epoch:
        raise ApiError(ErrorCode.fenced_leader_epoch, f"the leader epoch is {broker.epoch}")
    raise ApiError(ErrorCode.unknown_leader_epoch, f"epoch {epoch} is not known here yet")


def _of_fault(code: FaultCode, message: str) -> ApiError:
    if code is FaultCode.TOPIC_GONE:
        return ApiError(ErrorCode.unknown_topic_or_partition, message)
    return ApiError(ErrorCode.kafka_storage_error, message)


async def until_executed(there: Readable, offset: int, deadline: float) -> None:
    """Wait until the records below an offset are in this node's log. Raises ApiError."""
    stream = there.stream
    if stream.log.next_offset >= offset:
        return
    reached = asyncio.Event()

    def look() -> None:
        if stream.fault is not None or stream.log.next_offset >= offset:
            reached.set()

    stream.add_listener(look)
    try:
        async with asyncio.timeout_at(deadline):
            await reached.wait()
    except TimeoutError as error:
        text = "this node is behind: ask again"
        raise ApiError(ErrorCode.offset_not_available, text) from error
    finally:
        stream.remove_listener(look)
    if stream.fault is not None:
        raise _of_fault(stream.fault.code, stream.fault.message)

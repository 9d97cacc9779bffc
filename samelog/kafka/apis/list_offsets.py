"""ListOffsets (2): where a partition begins and ends, and from where on a time was reached.

The end is what was committed when the request came, confirmed by the leader: it is the same on all
nodes and never falls. What leads answers for the beginning by itself, as Kafka's leader does: it
has executed everything that was committed before it led, and what moved a beginning since was
executed here before anybody was told of it. Times are looked for inside batches, compressed ones
too; for that the node first executes what was committed. For who reads what is
committed, the log ends at its last stable offset.

Invariant: an end was confirmed after it was asked for; an error is told only of what a round has
confirmed.
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import chain
from operator import itemgetter

from samelog.format.batch import Attribute, read_header
from samelog.format.errors import LogFormatError
from samelog.kafka.api import AnyCall, MaybeResponse, Reply, kafka_api
from samelog.kafka.apis.checks import (
    Readable,
    Turn,
    answer_each,
    catch_up,
    readable,
    until_executed,
)
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.list_offsets import (
    FLEXIBLE_FROM,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetFound,
    OffsetWanted,
    read_list_offsets,
    reading_list_offsets,
)
from samelog.store.merged.reader import record_since

ANSWER_S = 3.0
"""How long this may take to get what is committed."""
LATEST, EARLIEST, YOUNGEST, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
BEGINNINGS = frozenset((EARLIEST, EARLIEST_LOCAL))
ENDS = BEGINNINGS | {LATEST}
READ_COMMITTED = 1
AT_ONCE = 100
"""Partitions that one turn of the event loop has room for."""
_PARTS = itemgetter(1)


@kafka_api(
    2,
    "ListOffsets",
    1,
    10,
    flexible_from=FLEXIBLE_FROM,
    read=read_list_offsets,
    reading=reading_list_offsets,
    notes="Any node answers. The leader confirms the end, which never falls, and returns the start "
    "without a round of Raft.",
)
def list_offsets(call: AnyCall, request: ListOffsetsRequest) -> Reply:
    """Answer a request, as soon as is known what is committed."""
    if call.is_long:
        return _look_for_all(call, request)
    asked = list(chain.from_iterable(map(_PARTS, request.topics)))
    if _takes_long(call, request, asked):
        return _look_for_all(call, request)
    if call.broker.leads and all(each.timestamp in BEGINNINGS for each in asked):
        found = _find_all(call, request)
        if not any(part.error for part in chain.from_iterable(map(_PARTS, found.topics))):
            return found
    return _find_confirmed(call, request)


def _takes_long(call: AnyCall, request: ListOffsetsRequest, asked: list[OffsetWanted]) -> bool:
    if len(asked) > AT_ONCE or any(each.timestamp not in ENDS for each in asked):
        return True
    return any(_is_placed(call, name) for name, _ in request.topics)


def _is_placed(call: AnyCall, name: str) -> bool:
    """Whether a topic's partitions have ends that group 0 does not know."""
    topic = call.broker.topic(name)
    return topic is not None and topic.is_placed


def _find_confirmed(call: AnyCall, request: ListOffsetsRequest) -> asyncio.Future[MaybeResponse]:
    """The ends of logs, once it is known what is committed."""
    future: asyncio.Future[MaybeResponse] = asyncio.get_running_loop().create_future()

    def told(error: ApiError | None) -> None:
        if future.done():
            return
        try:
            future.set_result(_find_all(call, request, error))
        except Exception as fault:  # noqa: BLE001 - the seam: it ends this client's connection only
            future.set_exception(fault)

    call.broker.read_rounds.join(told)
    return future


def _find_all(
    call: AnyCall, request: ListOffsetsRequest, failure: ApiError | None = None
) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        [
            (name, [_find(call, name, asked, request.isolation, failure) for asked in partitions])
            for name, partitions in request.topics
        ]
    )


def _find(
    call: AnyCall, topic: str, asked: OffsetWanted, isolation: int, failure: ApiError | None
) -> OffsetFound:
    """One of ENDS."""
    try:
        if failure is not None:
            raise failure
        there = readable(call, topic, asked.partition, asked.epoch)
        offset = _end(call, there, asked, isolation)
        return _found(call, there, asked, offset)
    except ApiError as error:
        return _refuse(asked, error)
    except LogFormatError:
        return OffsetFound(asked.partition, ErrorCode.kafka_storage_error)


def _end(call: AnyCall, there: Readable, asked: OffsetWanted, isolation: int) -> int:
    """Raises LogFormatError."""
    if asked.timestamp == LATEST and isolation == READ_COMMITTED:
        return call.broker.stable(there.topic, asked.partition)
    if asked.timestamp == LATEST:
        return there.committed
    return max(there.stream.log.start_offset, call.broker.log_start(there.topic, asked.partition))


def _found(
    call: AnyCall, there: Readable, asked: OffsetWanted, offset: int, timestamp: int = -1
) -> OffsetFound:
    """With the leader epoch of the record at the offset; of the end, the present one."""
    epoch = call.broker.epoch_of(there.topic, asked.partition)
    if offset < 0 or epoch < 0:
        epoch = -1
    elif offset < there.stream.log.next_offset:
        epoch = there.stream.log.epoch_at(offset)
    return OffsetFound(asked.partition, ErrorCode.none, timestamp, offset, epoch)


def _refuse(asked: OffsetWanted, error: ApiError) -> OffsetFound:
    return OffsetFound(asked.partition, error.code)


# --- what takes longer ----------------------------------------------------------------------------


async def _look_for_all(call: AnyCall, request: ListOffsetsRequest) -> ListOffsetsResponse:
    places = [(name, each.partition) for name, parts in request.topics for each in parts]
    failure = await catch_up(call.broker, places)
    deadline = asyncio.get_running_loop().time() + ANSWER_S
    topics, turn = [], Turn()
    for name, partitions in request.topics:
        look = partial(_look, call, deadline, request.isolation, name)
        found = await answer_each(partitions, look, _refuse, failure=failure, turn=turn)
        topics.append((name, found))
    return ListOffsetsResponse(topics)


async def _look(
    call: AnyCall, deadline: float, isolation: int, topic: str, asked: OffsetWanted
) -> OffsetFound:
    """Raises ApiError, LogFormatError."""
    there = readable(call, topic, asked.partition, asked.epoch)
    if asked.timestamp in ENDS:
        return _found(call, there, asked, _end(call, there, asked, isolation))
    if asked.timestamp == LATEST_TIERED:
        return _found(call, there, asked, -1)
    if asked.timestamp < YOUNGEST:
        text = f"timestamp {asked.timestamp} means nothing here"
        raise ApiError(ErrorCode.unsupported_version, text)
    await until_executed(there.stream, there.committed, deadline)
    offset, timestamp = await _record_since(call, there, asked.timestamp)
    if isolation == READ_COMMITTED and offset >= call.broker.stable(there.topic, asked.partition):
        offset, timestamp = -1, -1
    return _found(call, there, asked, offset, timestamp)


async def _record_since(call: AnyCall, there: Readable, wanted: int) -> tuple[int, int]:
    """(offset, timestamp) of the first record that is not older; -1 if there is none. Where nothing
    is as new as a marker, that is the newest, as with Kafka. Raises LogFormatError.
    """
    log, marker = there.stream.log, None
    since = log.highest_timestamp() if wanted == YOUNGEST else wanted
    for batch in () if since is None else log.batches_since(since):
        look = partial(record_since, batch, since or 0, log.start_offset)
        found = await call.broker.batches.checker.look(call.client.who, look)
        if found is not None:
            return found
        marker = marker or _marker(batch)
    return marker if marker is not None and wanted == YOUNGEST else (-1, -1)


def _marker(batch: bytes) -> tuple[int, int] | None:
    """(offset, timestamp) of a batch without records of clients; None for all others."""
    header = read_header(batch)
    is_marker = header.attributes & Attribute.CONTROL
    return (header.base_offset, header.max_timestamp) if is_marker else None

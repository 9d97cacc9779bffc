"""Fetch (1): record batches as they lie in the merged log, from any node.

Long polls are parked until enough has been merged. Fetch sessions are each node's own: at another
node, or after a restart, clients begin a new one. Without transactions both isolation
levels see the same: the last stable offset is the high watermark, what is committed and executed
here. An offset above the end is out of range only when the leader has confirmed that.
"""

from __future__ import annotations

from asyncio import Future
from typing import TYPE_CHECKING, Any

from samelog.kafka.api import AnyCall, KafkaApi
from samelog.kafka.apis.records.fetching import Fetching
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.fetch import (
    FLEXIBLE_FROM,
    IDS_FROM,
    FetchRequest,
    FetchResponse,
    read_fetch,
    write_fetch,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer


def handle(call: AnyCall, request: FetchRequest) -> Fetching | FetchResponse | Future[Fetching]:
    """Answer a request, now or when there is something to read."""
    now, by_id = call.broker.clock.now(), call.version >= IDS_FROM
    try:
        context = call.broker.fetch_sessions.begin(request, now, by_id=by_id)
    except ApiError as refusal:
        return FetchResponse(int(refusal.code), [])
    fetching = Fetching(call, request, context)
    if fetching.is_ready() or request.max_wait_ms <= 0:
        return fetching
    return fetching.wait()


def _read(api: KafkaApi[Any], version: int, body: memoryview) -> FetchRequest:
    return read_fetch(version, body)


def _settle(found: FetchResponse | Fetching) -> tuple[FetchResponse, int]:
    answer = found.answer() if isinstance(found, Fetching) else found
    parts = (part for _, partitions in answer.topics for part in partitions)
    return answer, sum(len(piece) for part in parts for piece in part.records)


def _write(
    api: KafkaApi[Any], version: int, answer: FetchResponse, throttle_ms: int
) -> list[Buffer]:
    return write_fetch(version, answer, throttle_ms)


API = KafkaApi(
    key=1,
    name="Fetch",
    first=4,
    last=17,
    flexible_from=FLEXIBLE_FROM,
    handle=handle,
    read=_read,
    settle=_settle,
    write=_write,
    notes=(
        "Any node serves what it has merged. An answer holds at most 8 MiB, or one batch. A node "
        "keeps 1000 fetch sessions of 200000 partitions together."
    ),
)

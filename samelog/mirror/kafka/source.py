"""Apache Kafka as a source: batches by Fetch, which gives a consumer nothing above the high
watermark, with all that transactions left (docs/mirror.md, M3).

Kafka does not say when a group committed. So a position has the time at which it was seen first.

Invariant: a topic is fetched by its id, so that one that was recreated under its name gives nothing
(M1); each fetch says the leader epoch of the batch before, so that a log that was cut is noticed
(M2).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from samelog.admin.mirror_answers import SourcePartition, SourcePosition, SourceState, SourceTopic
from samelog.archiver.policy import CLEANUP_POLICY
from samelog.config.tables.mirror import KafkaSource
from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES, MAGIC
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.mirror.choosing import COPIED_SETTINGS, is_chosen, matches
from samelog.mirror.errors import MirrorStopped, SourceUnreadable
from samelog.mirror.following import refused_batch
from samelog.mirror.kafka.cluster import EARLIEST, LATEST, KafkaCluster, KafkaTopic
from samelog.mirror.kafka.connection import BrokerConnection, check
from samelog.mirror.source import READ_BYTES, BatchBefore, BatchReader, Where, first_of

FETCH = (1, 13)
WAIT_MS = 500
NO_EPOCH = -1
_MAGIC_AT, _EPOCH_AT = 16, 12
_EPOCH = struct.Struct(">i")
_ALWAYS_TOLD = {*COPIED_SETTINGS, CLEANUP_POLICY}


class KafkaClusterSource:
    """Implements source.SourceCluster."""

    keeps_epochs = False

    def __init__(self, config: KafkaSource) -> None:
        """Raises OSError."""
        self._cluster = KafkaCluster(config)
        self._seen: dict[tuple[str, str, int], tuple[int, int]] = {}
        """(group, topic, partition) -> offset, and since when it is known (ms)."""

    async def state(self, patterns: Sequence[str], groups: Sequence[str]) -> SourceState:
        cluster = self._cluster
        await cluster.refresh()
        chosen = [
            topic
            for name, topic in cluster.topics.items()
            if is_chosen(patterns, name, is_mirror=topic.is_internal)
        ]
        starts = await cluster.offsets(chosen, EARLIEST)
        ends = await cluster.offsets(chosen, LATEST)
        settings = await cluster.settings([topic.name for topic in chosen])
        topics = tuple(
            _source_topic(each, starts, ends, settings.get(each.name, {})) for each in chosen
        )
        return SourceState(cluster.id, topics, await self._positions(groups))

    async def _positions(self, patterns: Sequence[str]) -> tuple[SourcePosition, ...]:
        if not patterns:
            return ()
        names = [
            name
            for name in await self._cluster.groups()
            if any(matches(pattern, name) for pattern in patterns)
        ]
        now_ms, found = time.time_ns() // 1_000_000, []
        for each in await self._cluster.positions(names):
            key = each.group, each.topic, each.partition
            offset, since_ms = self._seen.get(key, (-1, now_ms))
            since_ms = since_ms if offset == each.offset else now_ms
            self._seen[key] = each.offset, since_ms
            found.append(SourcePosition(*key, each.offset, NO_EPOCH, each.metadata, since_ms))
        return tuple(found)

    async def schemas(self, topic: str) -> Sequence[str]:
        return ()

    async def read(self, where: Where, offset: int) -> BatchReader:
        return await self._fetcher(where, offset)

    async def _fetcher(self, where: Where, offset: int) -> FetchedBatches:
        topic = self._cluster.topics.get(where.topic)
        if topic is None or topic.id != where.log_id:
            raise SourceUnreadable(f"topic {where.topic} is gone, or another one")
        leader = topic.partitions[where.partition].leader
        return FetchedBatches(await self._cluster.connect(leader), where, offset)

    async def batch_before(self, where: Where, offset: int) -> BatchBefore | None:
        topic = self._cluster.topics.get(where.topic)
        if topic is None:
            raise SourceUnreadable(f"topic {where.topic} is gone")
        name = where.topic, where.partition
        if not (await self._cluster.offsets([topic], EARLIEST))[name] < offset:
            return None
        fetcher = await self._fetcher(where, offset - 1)
        try:
            data = await fetcher.next()
        finally:
            await fetcher.close()
        return first_of(data)

    async def offset_at(self, where: Where, timestamp_ms: int) -> int:
        topic = self._cluster.topics[where.topic]
        name = where.topic, where.partition
        found = (await self._cluster.offsets([topic], timestamp_ms))[name]
        return found if found >= 0 else (await self._cluster.offsets([topic], LATEST))[name]

    async def close(self) -> None:
        self._cluster.close()


def _source_topic(
    topic: KafkaTopic,
    starts: dict[tuple[str, int], int],
    ends: dict[tuple[str, int], int],
    settings: dict[str, tuple[str, bool]],
) -> SourceTopic:
    told = {
        key: value for key, (value, is_own) in settings.items() if is_own or key in _ALWAYS_TOLD
    }
    partitions = tuple(
        SourcePartition(
            each.number,
            starts[topic.name, each.number],
            ends[topic.name, each.number],
            -1,
            0,
            0,
            None,
            (),
        )
        for each in topic.partitions
    )
    return SourceTopic(topic.name, topic.id, told, 0, (), is_mirror=False, partitions=partitions)


class FetchedBatches:
    """Implements source.BatchReader: one partition, over a connection of its own."""

    def __init__(self, connection: BrokerConnection, where: Where, offset: int) -> None:
        self._connection = connection
        self._where = where
        self._offset = offset
        self._epoch = NO_EPOCH

    async def next(self) -> bytes:
        while True:
            part = await self._fetch()
            self._check(part)
            data = self._whole(part.records or b"")
            if data:
                return data

    async def _fetch(self) -> Any:
        wanted = {
            "partition": self._where.partition,
            "current_leader_epoch": NO_EPOCH,
            "fetch_offset": self._offset,
            "last_fetched_epoch": self._epoch,
            "log_start_offset": -1,
            "partition_max_bytes": READ_BYTES,
        }
        request = {
            "replica_id": -1,
            "max_wait_ms": WAIT_MS,
            "min_bytes": 1,
            "max_bytes": READ_BYTES,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic_id": UUID(self._where.log_id), "partitions": [wanted]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        answer = await self._connection.ask(*FETCH, request)
        check(answer.error_code, f"fetch from {self._where.topic}")
        return answer.responses[0].partitions[0]

    def _check(self, part: Any) -> None:
        name = f"{self._where.topic}-{self._where.partition}"
        if part.error_code in (ErrorCode.unknown_topic_id, ErrorCode.topic_authorization_failed):
            raise MirrorStopped(f"{name}: {ErrorCode(part.error_code).name}")
        check(part.error_code, name)
        if part.diverging_epoch is not None and part.diverging_epoch.end_offset >= 0:
            end = part.diverging_epoch.end_offset
            raise MirrorStopped(f"{name}: the source lost records: both have them up to {end}")

    def _whole(self, data: bytes) -> bytes:
        """The whole batches, as they are, up to one that cannot be held; the last one may be cut.
        Raises MirrorStopped, BatchRefused.
        """
        if len(data) > _MAGIC_AT and data[_MAGIC_AT] != MAGIC:
            text = f"a batch at offset {self._offset} or before has magic {data[_MAGIC_AT]}, not 2"
            raise MirrorStopped(text)
        scan = kernels.scan(data, verify_crc=True, max_batch_bytes=HELD_BATCH_BYTES)
        if scan.error is not None and not scan.end:
            raise refused_batch(data, scan.error)
        headers = kernels.batch_headers(data, 0, scan.end)
        if headers:
            last = headers[-1][0]
            self._offset = int.from_bytes(data[last : last + 8], "big") + headers[-1][2]
            self._epoch = _EPOCH.unpack_from(data, last + _EPOCH_AT)[0]
        return bytes(data[: scan.end])

    async def close(self) -> None:
        self._connection.close()

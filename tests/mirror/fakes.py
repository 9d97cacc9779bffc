"""A source and a destination in memory: the destination takes what follows, as the planner does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import UNSET
from msgspec.structs import replace

from samelog.admin.mirror_answers import (
    MirroredPartition,
    MirrorInfo,
    MirrorRows,
    SourcePartition,
    SourceState,
    SourceTopic,
)
from samelog.admin.mirror_requests import FollowMirrored, LeaveGap, PutMirror
from samelog.format import _kernels as kernels
from samelog.format.batch import HEADER_BYTES
from samelog.format.compression import Codec, compress
from samelog.mirror.errors import SourceUnreadable
from samelog.mirror.source import BatchBefore, Where, first_of
from tests.kafka.batches import with_blob
from tests.sequencer.mirroring import source_batch

WHERE = Where("t", "log", 0)


def next_of(batch: bytes) -> int:
    """The offset behind a batch."""
    return int.from_bytes(batch[:8], "big") + kernels.batch_headers(batch, 0, len(batch))[0][2]


class FakeSource:
    """One partition of one topic. Implements source.SourceCluster."""

    keeps_epochs = True

    def __init__(self, *batches: bytes) -> None:
        self.batches = list(batches)
        self.start = 0
        self.moment: int | None = None
        """The offset of whatever time is asked for; None: the end."""
        self.placed: dict[str, int] = {}
        self.is_away = False
        self.texts: list[str] = []
        self.looks = 0
        self.grew = asyncio.Event()

    def add(self, *batches: bytes) -> None:
        self.batches += batches
        self.grew.set()

    @property
    def end(self) -> int:
        return next_of(self.batches[-1]) if self.batches else 0

    def partition(self) -> SourcePartition:
        return SourcePartition(0, self.start, self.end, -1, 0, 0, None, ())

    async def state(self, patterns: Sequence[str], groups: Sequence[str]) -> SourceState:
        self.looks += 1
        if self.is_away:
            raise SourceUnreadable("it is away")
        schemas = len(self.texts)
        topic = SourceTopic(
            "t", "log", {}, schemas, (), is_mirror=False, partitions=(self.partition(),)
        )
        return SourceState("there", (topic,), (), self.placed)

    async def schemas(self, topic: str) -> Sequence[str]:
        return self.texts

    async def read(self, where: Where, offset: int) -> FakeReader:
        if offset < self.start:
            raise SourceUnreadable(f"offset {offset} is archived")
        return FakeReader(self, offset)

    async def batch_before(self, where: Where, offset: int) -> BatchBefore | None:
        for batch in self.batches if offset > self.start else ():
            if next_of(batch) >= offset:
                return first_of(batch)
        return None

    async def offset_at(self, where: Where, timestamp_ms: int) -> int:
        return self.end if self.moment is None else self.moment

    async def close(self) -> None:
        return


class FakeReader:
    """Implements source.BatchReader."""

    def __init__(self, source: FakeSource, offset: int) -> None:
        self._source = source
        self._left = [batch for batch in source.batches if next_of(batch) > offset]
        self._seen = len(source.batches)

    async def next(self) -> bytes:
        while not self._left:
            self._left = self._source.batches[self._seen :]
            self._seen = len(self._source.batches)
            if not self._left:
                self._source.grew.clear()
                await self._source.grew.wait()
        return self._left.pop(0)

    async def close(self) -> None:
        return


def odd(first: int) -> bytes:
    """A batch that Kafka takes, with bytes behind its gzip member."""
    plain = source_batch(first, 2)
    return with_blob(plain, Codec.GZIP, compress(Codec.GZIP, plain[HEADER_BYTES:]) + b"behind")


class FakeDestination:
    """One mirror, `eu.t`. Implements what is used of destination.Destination."""

    def __init__(self) -> None:
        self.log = b""
        self.here = MirroredPartition(0, 0, 0, None, 0)
        self.gaps: list[LeaveGap] = []
        self.schemas: list[str] = []
        self.is_made = False
        self.promoted_ms = -1
        self.cluster_id = "here"
        self.followed: list[FollowMirrored] = []

    async def start(self) -> None:
        return

    async def stop(self) -> None:
        return

    async def write(self, topic: str, partition: int, data: bytes) -> None:
        """What does not follow is passed over."""
        for header in kernels.batch_headers(data, 0, len(data)):
            batch = data[header[0] : header[0] + header[1]]
            if int.from_bytes(batch[:8], "big") == self.here.next_offset:
                self.log += batch
                checksum = kernels.crc32c(batch, self.here.checksum or 0)
                known = {"crc": header[9], "checksum": checksum, "behind": None}
                self.here = replace(self.here, next_offset=next_of(batch), **known)

    async def leave_gap(self, request: LeaveGap) -> None:
        assert request.base_offset == self.here.next_offset
        self.gaps.append(request)
        checksum = None if request.checksum is UNSET else request.checksum
        known = {"checksum": checksum, "behind": self.here.behind}
        if self.here.crc is not None and self.here.behind is None:
            known["behind"] = request.base_offset
        self.here = replace(self.here, next_offset=request.next_offset, **known)

    def is_settled(self, topic: str, partition: int) -> bool:
        return True

    async def settled(self, topic: str, partition: int) -> None:
        return

    def is_gone(self, topic: str, partition: int) -> bool:
        return False

    def problem(self, topic: str, partition: int) -> str:
        return ""

    def info(self) -> MirrorInfo:
        return MirrorInfo(
            "eu.t",
            "id",
            "there",
            "t",
            "log",
            ("there",),
            keeps_epochs=True,
            since_ms=0,
            promoted_ms=self.promoted_ms,
            ends=(),
            settings={},
            schemas=len(self.schemas),
            partitions=(self.here,),
            partition_count=1,
        )

    async def mirrors(self) -> MirrorRows:
        return MirrorRows(self.cluster_id, (self.info(),) if self.is_made else ())

    async def put(self, request: PutMirror) -> MirrorInfo:
        self.is_made = True
        return self.info()

    async def copy_schema(self, topic: str, follows: int, schema: str) -> None:
        assert follows == len(self.schemas)
        self.schemas.append(schema)

    async def follow(self, mirror: MirrorInfo, request: FollowMirrored) -> tuple[str, ...]:
        self.followed.append(request)
        return ()


def batches(*counts: int, first: int = 0) -> list[bytes]:
    """Batches one behind the other."""
    made = []
    for count in counts:
        made.append(source_batch(first, count))
        first += count
    return made

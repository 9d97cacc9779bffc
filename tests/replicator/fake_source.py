"""Logs for pull servers: real directories, written by tests, told of by hand."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from samelog.config.authorisation import Rights
from samelog.replicator.interfaces import (
    MergedStream,
    RequestRefused,
    SessionStream,
    StreamListener,
)
from samelog.store.disk.files import OsFileSystem
from samelog.store.merged.log import MergedLog
from samelog.store.merged.truncation import LogStart, not_truncated, truncate_segments
from samelog.store.session.log import InputLog
from samelog.typed.filters.passing import Passing
from samelog.typed.filters.selection import RowsWanted
from samelog.wire.bounds import RowsAsked
from samelog.wire.errors import FaultCode
from tests.replicator.session_files import random_batches

FS = OsFileSystem()


class _Listeners:
    """What both streams have in common."""

    def __init__(self) -> None:
        self.topic_id = "topic-1"
        self.partitions = 2
        self.fault: RequestRefused | None = None
        self.listeners: list[StreamListener] = []

    def add_listener(self, listener: StreamListener) -> None:
        """Tell it of changes."""
        self.listeners.append(listener)

    def remove_listener(self, listener: StreamListener) -> None:
        """No more."""
        self.listeners.remove(listener)

    def changed(self) -> None:
        """Tell everybody."""
        for listener in tuple(self.listeners):
            listener()


class FakeMerged(_Listeners):
    """One merged partition. Implements interfaces.MergedStream."""

    def __init__(self, path: Path, partition: int) -> None:
        super().__init__()
        self.suspicions = 0
        self.topic = "flights"
        self.path, self.index = path, partition
        self.committed: int | None = None
        """Where the cluster's log ends, if this node lags behind it."""
        self.log = self._open(path)

    def _open(self, path: Path) -> MergedLog:
        return MergedLog.open(
            OsFileSystem(),
            path,
            topic="flights",
            topic_id=self.topic_id,
            partition=self.index,
        )

    def lose_everything(self) -> None:
        """Go on with an empty log."""
        self.log.close()
        self.log = self._open(self.path.with_name("restarted"))

    def suspect(self, base_offset: int) -> None:
        """Remember that somebody complained."""
        self.suspicions += 1

    def append(self, data: bytes) -> None:
        """Merge some batches, and tell."""
        self.log.append(bytearray(data), base_offset=self.log.next_offset, leader_epoch=1)
        self.changed()

    def roll(self) -> None:
        """Begin another segment, and tell."""
        self.log.roll()
        self.changed()

    def archive(self, offset: int) -> LogStart:
        """Archive what is below an offset, and tell."""
        start = LogStart(offset, *self.log.segment_of(offset))
        self.log.archive(start)
        truncate_segments(FS, self.log.path, not_truncated(FS, self.log.path, start.segment))
        self.changed()
        return start

    def fill(self, source: random.Random, count: int, *, rolls: float = 0.1) -> None:
        """Merge random batches, over several segments."""
        for _ in range(count):
            self.append(random_batches(source, source.randrange(1, 6)))
            if source.random() < rolls:
                self.roll()

    def files(self) -> dict[str, bytes]:
        """The segments' bytes, by name."""
        return segment_files(self.path)


class FakeSession(_Listeners):
    """One run of an input. Implements interfaces.SessionStream."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.log = InputLog.open(OsFileSystem(), path, topic_id=self.topic_id)

    def append(self, run: int, data: bytes) -> None:
        """Take some batches, and tell."""
        self.log.append(run, *self.log.end(run), data)
        self.changed()


class FakeRows:
    """What passes of one partition. Implements interfaces.RowReading."""

    def __init__(self, stream: MergedStream, asked: RowsAsked) -> None:
        self.stream = stream
        self._passing = Passing(RowsWanted(asked.where, None), {}, asked.version)

    @property
    def end(self) -> int:
        """All that there is."""
        return self.stream.log.next_offset

    async def piece(self, offset: int) -> tuple[bytes, int]:
        """A small one."""
        log = self.stream.log
        data = log.read(*log.locate(offset), 2000)
        bounds = offset, self.end
        found = self._passing.piece(data, ("flights", self.stream.index), bounds, ())
        return found.data, found.next_offset


class FakeSource:
    """The logs of one node. Implements interfaces.RowSource."""

    def __init__(self, path: Path, *, partitions: int = 2) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.merged = [FakeMerged(path / f"flights-{n}", n) for n in range(partitions)]
        self.session = FakeSession(path / "session")
        self.refusal: RequestRefused | None = None
        self.leaderless = False
        self.current = asyncio.Event()
        """Not set: this node has not caught up with the cluster yet."""
        self.current.set()
        self._renumber()

    def _renumber(self) -> None:
        for stream in self.merged:
            stream.partitions = len(self.merged)

    def add_partition(self, path: Path) -> None:
        """One more."""
        self.merged.append(FakeMerged(path, len(self.merged)))
        self._renumber()

    def open_merged(self, topic: str, topic_id: str | None, partition: int) -> MergedStream:
        """By its name."""
        if self.refusal is not None:
            raise self.refusal
        if topic != "flights" or partition >= len(self.merged):
            raise RequestRefused(FaultCode.UNKNOWN_TOPIC, f"no {topic}-{partition}")
        stream = self.merged[partition]
        if topic_id not in (None, stream.topic_id):
            raise RequestRefused(FaultCode.TOPIC_GONE, "deleted")
        if stream.fault is not None:
            raise stream.fault
        return stream

    def rows_of(
        self, stream: MergedStream, asked: RowsAsked | None, identity: str, rights: Rights
    ) -> FakeRows | None:
        """What passes of it, if anything is asked for."""
        return None if asked is None else FakeRows(stream, asked)

    async def confirm_end(self, stream: MergedStream) -> int:
        """What the cluster has, if it has a leader."""
        await self.current.wait()
        if self.leaderless:
            raise RequestRefused(FaultCode.NOT_READY, "no leader has answered", "ask another node")
        log = self.merged[stream.index]
        return log.log.next_offset if log.committed is None else log.committed

    def open_session(
        self, *, session: str, topic: str, topic_id: str, partition: int, run: int
    ) -> SessionStream:
        """There is but one."""
        return self.session

    def delete(self) -> None:
        """The topic is gone."""
        for stream in self.merged:
            stream.fault = RequestRefused(FaultCode.TOPIC_GONE, "deleted")
            stream.changed()


def segment_files(path: Path) -> dict[str, bytes]:
    """Name -> bytes of a merged log's segments."""
    return {file.name: file.read_bytes() for file in sorted(path.glob("*.log"))}

"""A directory with merged logs as a source: what `samelog restore` brought back, a subscriber's
copies, or what is left of a node whose cluster is lost.

Nothing may write there meanwhile, so where the logs end is the end. Positions of groups are in no
file. Schemas are beside the logs where `restore` or a subscriber has put them.

Invariant: files are read and never changed; a topic is given out only if each of its partitions is
there, up to the highest, of one and the same log (rule mirrors.15).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from samelog.admin.known_schemas import KnownSchemas, TopicSchemas
from samelog.admin.mirror_answers import SourcePartition, SourceState, SourceTopic
from samelog.archiver.policy import CLEANUP_POLICY, COMPACT
from samelog.format import _kernels as kernels
from samelog.format.directory_files import RowsFile
from samelog.format.errors import LogFormatError
from samelog.format.file_names import COMPACTED_FILE, parse_input_name
from samelog.mirror.choosing import is_chosen
from samelog.mirror.errors import SourceUnreadable
from samelog.mirror.source import READ_BYTES, BatchBefore, Where, first_of
from samelog.store.disk.files import OsFileSystem
from samelog.store.merged.log import MergedLog
from samelog.store.merged.partition_file import copy_path, read_whose

CLUSTER = "files"
"""Stands for the id of the cluster that the records are of, which no file says."""
ValueT = TypeVar("ValueT")


class FilesSource:
    """Implements source.SourceCluster."""

    keeps_epochs = True

    def __init__(self, directory: str) -> None:
        self._fs = OsFileSystem()
        self._directory = directory
        self._schemas = KnownSchemas(self._fs, directory, None)
        self._logs: dict[Where, MergedLog] = {}
        self._reading = asyncio.Lock()

    async def state(self, patterns: Sequence[str], groups: Sequence[str]) -> SourceState:
        return await self._do(lambda: self._state(patterns))

    async def schemas(self, topic: str) -> Sequence[str]:
        known = await self._do(lambda: self._schemas.known(topic))
        return () if known is None else known.texts

    async def read(self, where: Where, offset: int) -> FileBatches:
        return FileBatches(self, where, offset)

    async def batches(self, where: Where, offset: int) -> bytes:
        """Whole batches, the first of which holds an offset; empty at the end. Raises
        SourceUnreadable.
        """
        return await self._do(lambda: _read(self._log(where), offset, READ_BYTES))

    async def batch_before(self, where: Where, offset: int) -> BatchBefore | None:
        def before() -> BatchBefore | None:
            log = self._log(where)
            if not log.start_offset < offset <= log.next_offset:
                return None
            return first_of(_read(log, offset - 1, 1))

        return await self._do(before)

    async def offset_at(self, where: Where, timestamp_ms: int) -> int:
        return await self._do(lambda: self._log(where).locate_timestamp(timestamp_ms))

    async def close(self) -> None:
        logs, self._logs = self._logs, {}
        for log in logs.values():
            log.close()

    # --- files ------------------------------------------------------------------------------------

    async def _do(self, work: Callable[[], ValueT]) -> ValueT:
        """In a thread, one thing after the other. Raises SourceUnreadable."""
        async with self._reading:
            try:
                return await asyncio.to_thread(work)
            except LogFormatError as error:
                raise SourceUnreadable(str(error)) from error

    def _state(self, patterns: Sequence[str]) -> SourceState:
        topics, placed = [], {}
        for topic, logs in self._found().items():
            if not is_chosen(patterns, topic, is_mirror=False):
                continue
            if is_whole(logs):
                topics.append(self._topic(topic, [logs[each] for each in sorted(logs)]))
            else:
                placed[topic] = max(logs) + 1
        return SourceState(CLUSTER, tuple(topics), (), placed)

    def _found(self) -> dict[str, dict[int, Where]]:
        """Logs by topic and partition."""
        found: dict[str, dict[int, Where]] = {}
        for name in sorted(self._fs.list_directory(self._directory)):
            parsed = parse_input_name(name)
            whose = parsed and read_whose(self._fs, os.path.join(self._directory, name))
            if whose is not None and not isinstance(whose, RowsFile):
                where = Where(whose.topic, whose.topic_id, whose.partition)
                found.setdefault(whose.topic, {})[whose.partition] = where
        return found

    def _topic(self, name: str, logs: Sequence[Where]) -> SourceTopic:
        known, log_id = self._schemas.known(name), logs[0].log_id
        if known is not None and known.topic_id != log_id:
            known = None
        settings = {CLEANUP_POLICY: COMPACT} if any(map(self._is_compacted, logs)) else {}
        partitions = tuple(self._partition(each, known) for each in logs)
        newest = 0 if known is None else known.newest
        told = name, log_id, settings, newest, ()
        return SourceTopic(*told, is_mirror=False, partitions=partitions)

    def _is_compacted(self, where: Where) -> bool:
        return self._fs.exists(os.path.join(self._path(where), COMPACTED_FILE))

    def _partition(self, where: Where, known: TopicSchemas | None) -> SourcePartition:
        log = self._log(where)
        start, end = log.log_start, log.next_offset
        since = () if known is None else tuple(known.since(where.partition))
        begins = start.offset, end, start.segment, start.checksum
        return SourcePartition(where.partition, *begins, end, None, since)

    def _log(self, where: Where) -> MergedLog:
        known = self._logs.get(where)
        if known is None:
            topic, log_id, partition = where
            log = MergedLog.open(
                self._fs,
                self._path(where),
                topic=topic,
                topic_id=log_id,
                partition=partition,
                read_only=True,
            )
            while log.refresh():  # up to where it is whole
                pass
            known = self._logs[where] = log
        return known

    def _path(self, where: Where) -> str:
        return copy_path(self._directory, where.topic, where.partition)


def is_whole(logs: Mapping[int, Where]) -> bool:
    """Whether partitions are all there are, up to the highest, and of one log."""
    return set(logs) == set(range(len(logs))) and len({each.log_id for each in logs.values()}) == 1


def _read(log: MergedLog, offset: int, limit_bytes: int) -> bytes:
    segment, byte = log.locate(offset)
    return log.read(segment, byte, limit_bytes)


class FileBatches:
    """Implements source.BatchReader."""

    def __init__(self, source: FilesSource, where: Where, offset: int) -> None:
        self._source = source
        self._where = where
        self._offset = offset

    async def next(self) -> bytes:
        data = await self._source.batches(self._where, self._offset)
        if not data:
            await asyncio.Event().wait()  # nothing comes any more
        start, _, offsets = kernels.batch_headers(data, 0, len(data))[-1][:3]
        self._offset = int.from_bytes(data[start : start + 8], "big") + offsets
        return data

    async def close(self) -> None:
        return

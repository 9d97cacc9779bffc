"""Merged logs in a directory of this host: a subscriber's copies, or a node's own.

Invariant: nothing is ever changed there. What is found are prefixes of what Raft has committed.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Iterator

from samelog.format.errors import LogFormatError
from samelog.format.file_names import parse_input_name
from samelog.format.transactions import Isolation
from samelog.spark.errors import DataLoss, NotReadable, SourceError
from samelog.spark.plan.catalogue import Catalogue, OffsetBounds, TopicState, record_bytes
from samelog.spark.plan.offsets import OffsetRange, PartitionName
from samelog.store.disk.files import FileSystem, OsFileSystem
from samelog.store.merged.log import MergedLog
from samelog.store.merged.partition_file import copy_path, find_partition_directories
from samelog.subscriber.committed_reader import CommittedReader
from samelog.subscriber.errors import OffsetNotHere
from samelog.subscriber.tail_reader import Chunk, TailReader

READ_BYTES = 1 << 21
POLL_S = 0.02
MERGED = "merged"
"""Where a node's data directory has its merged logs."""


def logs_directory(path: str) -> str:
    """Where the partitions are: `path` itself, or its `merged`, if it is a node's."""
    merged = os.path.join(path, MERGED)
    return merged if os.path.isdir(merged) else path


class LocalLogs:
    """For the driver. Implements catalogue.Logs."""

    def __init__(self, directory: str, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> None:
        self._isolation = isolation
        self._directory = logs_directory(directory)
        self._fs: FileSystem = OsFileSystem()
        self._open: dict[tuple[str, int], MergedLog] = {}

    def names(self) -> list[str]:
        """All topics that have a copy on this host."""
        parsed = map(parse_input_name, self._names())
        return sorted({found[0] for found in parsed if found is not None})

    def _names(self) -> list[str]:
        try:
            return list(self._fs.list_directory(self._directory))
        except LogFormatError as error:
            raise NotReadable(
                f"{self._directory}: there are no logs to read here: {error}; set the option "
                "directory to a subscriber's directory, or config to read from nodes"
            ) from error

    def topic_states(self, topics: Iterable[str]) -> Catalogue:
        """The states of these topics by the copies on this host. Raises NotReadable."""
        found = {}
        for topic in topics:
            state = self._topic(topic)
            if state is not None:
                found[topic] = state
        return found

    def _topic(self, topic: str) -> TopicState | None:
        try:
            copies = find_partition_directories(self._fs, self._directory, topic)
            logs = {number: self._log(topic, topic_id, number) for _, topic_id, number in copies}
            bounds = {number: self._bounds(log) for number, log in logs.items()}
        except LogFormatError as error:
            raise NotReadable(f"{topic}: the local copy cannot be read: {error}") from error
        ids = {log.topic_id for log in logs.values()}
        if len(ids) > 1:
            raise NotReadable(
                f"{topic}: the copies in {self._directory} are of topics with different ids, "
                f"{', '.join(sorted(ids))}: remove those of the one that was deleted"
            )
        return TopicState(ids.pop(), bounds) if ids else None

    def _log(self, topic: str, topic_id: str, partition: int) -> MergedLog:
        log = self._open.get((topic, partition))
        is_plain = self._isolation is Isolation.READ_UNCOMMITTED
        if log is not None and log.topic_id == topic_id and is_plain:
            log.refresh()
            return log
        if log is not None:  # find the files again: those that were open may be compacted now
            log.close()
        path = copy_path(self._directory, topic, partition)
        log = self._open[topic, partition] = MergedLog.open(
            self._fs, path, topic=topic, topic_id=topic_id, partition=partition, read_only=True
        )
        return log

    def offset_at(self, name: PartitionName, timestamp_ms: int) -> int | None:
        """The first offset with this timestamp or a later one. `look` was called before."""
        try:
            found = self._open[name].locate_record(timestamp_ms)
        except LogFormatError as error:
            raise NotReadable(f"{name}: the local copy cannot be read: {error}") from error
        return None if found is None else found[0]

    def _bounds(self, log: MergedLog) -> OffsetBounds:
        end, is_plain = log.next_offset, self._isolation is Isolation.READ_UNCOMMITTED
        size = record_bytes(log.end(), end)
        return OffsetBounds(log.start_offset, end if is_plain else log.last_stable_offset, size)

    def turn(self) -> None:
        """Do nothing: every call reads the directory again."""

    def close(self) -> None:
        """Close all files."""
        for log in self._open.values():
            log.close()
        self._open.clear()


def read_local(
    directory: str,
    wanted: OffsetRange,
    *,
    wait_s: float,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> Iterator[Chunk]:
    """The batches that hold a range, from the copy in `directory`; the first and the last one may
    hold more. Waits for the copy to reach the end of the range, and what decides it.

    Raises:
        NotReadable: there is no such copy, or it does not get there in time, or it is damaged.
        DataLoss: the beginning is archived.
    """
    path = copy_path(logs_directory(directory), *wanted.name)
    reader = _open_reader(path, wanted, isolation)
    try:
        _wait_for_end(reader, wanted, wait_s)
        reader.seek(wanted.start)
        while reader.next_offset < wanted.end:
            yield _read(reader, wanted)
    except OffsetNotHere as error:
        raise archived(wanted, error.earliest) from error
    except LogFormatError as error:
        raise NotReadable(f"{wanted}: the copy cannot be read: {error}") from error
    finally:
        reader.close()


def archived(wanted: OffsetRange, earliest: int) -> DataLoss:
    """The error of a range whose beginning is not there any more."""
    return DataLoss(
        f"{wanted.name}: wanted are [{wanted.start}, {wanted.end}), but the first offset there is "
        f"is {earliest}: the records were archived before they were read (set failOnDataLoss to "
        "false to go on behind them, or let the archiving policy keep more)",
        earliest,
    )


def _open_reader(path: str, wanted: OffsetRange, isolation: Isolation) -> TailReader:
    kind = CommittedReader if isolation is Isolation.READ_COMMITTED else TailReader
    try:
        reader = kind.open(OsFileSystem(), path)
    except LogFormatError as error:
        raise NotReadable(f"{wanted}: the copy cannot be read: {error}") from error
    if reader is None:
        raise NotReadable(
            f"{wanted}: there is no copy at {path} on host {socket.gethostname()}: name a place "
            "that this host sees (the option directory, or SAMELOG_DIRECTORY there), or give the "
            "option config, to read from nodes where there is none"
        )
    if reader.topic_id != wanted.topic_id:
        raise NotReadable(
            f"{wanted}: wanted is the topic with id {wanted.topic_id}, the copy at {path} is of "
            f"the one with id {reader.topic_id}: it was created again, or is another cluster's"
        )
    return reader


def _wait_for_end(reader: TailReader, wanted: OffsetRange, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while (end := reader.stable_end()) < wanted.end:
        if time.monotonic() >= deadline:
            raise NotReadable(
                f"{wanted}: the copy at {reader.path} ends at {end}, and got no further in "
                f"{wait_s:g} s: see to it that its subscriber runs, or raise localWaitMs"
            )
        time.sleep(POLL_S)


def _read(reader: TailReader, wanted: OffsetRange) -> Chunk:
    chunk = reader.read(READ_BYTES)
    if chunk is None:
        reader.recheck_segment()  # says what is damaged
        chunk = reader.read(READ_BYTES)
    if chunk is None:
        raise SourceError(
            f"{wanted}: the copy at {reader.path} was cut at {reader.next_offset} while it was read"
        )
    return chunk

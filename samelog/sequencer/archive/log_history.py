"""Every file there ever was of merged logs, as a node tells it: the archived ones from its history,
the others from its logs. A page at a time, so that a million files take no memory.

Invariant: files come in order of topic, partition and offset, each once; a node whose history is
not complete yet says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from samelog.archiver.copies import formats_in
from samelog.format.errors import LogFormatError
from samelog.format.history import CopyNote
from samelog.format.segment import Segment
from samelog.sequencer.archive.rounds import rolled_ms
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.state.types import Partition
from samelog.wire.admin_archive import LogFile, LogHistory, LogHistoryPage
from samelog.wire.errors import FaultCode

if TYPE_CHECKING:
    from samelog.sequencer.node import Node

PAGE_FILES = 500
HISTORY_FILES = 64
NONE = -1


def log_history(node: Node, request: LogHistory) -> LogHistoryPage:
    """One page. Raises ChangeRefused."""
    try:
        files = tuple(islice(_files(node, request), PAGE_FILES + 1))
    except LogFormatError as error:
        text = f"this node cannot read its history: {error}"
        raise ChangeRefused(FaultCode.NOT_READY, text, "ask another node") from error
    return LogHistoryPage(files[:PAGE_FILES], len(files) > PAGE_FILES)


def _files(node: Node, request: LogHistory) -> Iterator[LogFile]:
    state = node.replica.machine.state
    if request.topic and request.topic not in state.names:
        text = f"there is no topic {request.topic!r}"
        raise ChangeRefused(FaultCode.UNKNOWN_TOPIC, text, "samelog topic list")
    begin = request.from_topic, request.from_partition
    for name in sorted(state.names):
        topic = state.topics[state.names[name]]
        for number in topic.partition_numbers:
            partition = state.partitions[number]
            place = name, partition.index
            is_wanted = request.topic in ("", name) and request.partition in (
                NONE,
                partition.index,
            )
            if is_wanted and place >= begin:
                offset = request.from_offset if place == begin else 0
                yield from _archived(node, place, partition, offset)
                yield from _held(node, place, partition, offset)


def _archived(
    node: Node, place: tuple[str, int], partition: Partition, offset: int
) -> Iterator[LogFile]:
    history, number = node.archive.history, partition.number
    if history.lacks(number):
        text = f"this node fetches the history of {place[0]}-{place[1]}"
        raise ChangeRefused(FaultCode.NOT_READY, text, "ask another node, or again")
    while offset < partition.start_segment:
        files = history.read(number, offset, HISTORY_FILES)
        for each in files:
            known = LogFile(
                *place,
                each.base,
                each.next_offset,
                each.first_ms,
                each.last_ms,
                each.size,
                each.rolled_ms,
                each.archived_ms,
                each.sha256.hex(),
                each.reason,
            )
            yield known if each.copy is None else _with_copy(node, known, each.copy)
        if not files:
            return
        offset = files[-1].next_offset


def _with_copy(node: Node, file: LogFile, note: CopyNote) -> LogFile:
    url = node.replica.machine.state.copy_targets[note.target]
    formats = ",".join(formats_in(note.formats))
    return file._replace(copied_ms=note.copied_ms, copy_url=url, copy_formats=formats)


def _held(
    node: Node, place: tuple[str, int], partition: Partition, offset: int
) -> Iterator[LogFile]:
    here, digests = node.merging.partitions[partition.number], node.archive.digests
    log = here.log
    for segment in log.segments():
        if segment.base_offset >= max(offset, partition.start_segment) and segment.size:
            yield LogFile(
                *place,
                segment.base_offset,
                segment.next_offset,
                log.first_timestamp(segment.base_offset),
                segment.max_timestamp,
                segment.size,
                _rolled(partition, segment),
                NONE,
                digests.of(here, segment.base_offset).hex() if segment.sealed else "",
                "",
            )


def _rolled(partition: Partition, segment: Segment) -> int:
    found = rolled_ms(partition, segment) if segment.sealed else None
    return NONE if found is None else found

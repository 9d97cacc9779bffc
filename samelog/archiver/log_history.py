"""Every file there ever was of merged logs, as a node tells it: the archived ones from its history,
the others from its logs. A page at a time, so that a million files take no memory.

Invariant: files come in order of topic, partition and offset, each once; a node whose history is
not complete yet says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET
from msgspec.structs import replace

from samelog.admin.answers import LogFile, LogHistoryPage
from samelog.admin.requests import LogHistory
from samelog.archiver.copies.manifests import formats_in
from samelog.archiver.history import ArchiveHistory, Digests
from samelog.archiver.parts import ArchiverParts, PartitionView
from samelog.archiver.rounds import rolled_ms
from samelog.format.errors import LogFormatError
from samelog.format.history import CopyNote
from samelog.format.segment import Segment
from samelog.format.steps import StepWork
from samelog.wire.errors import FaultCode

PAGE_FILES = 500
HISTORY_FILES = 64
NONE = -1


class HistoryRefused(Exception):
    """The history cannot be told, or not now; with the reason and the remedy."""

    def __init__(self, code: FaultCode, message: str, remedy: str) -> None:
        super().__init__(message)
        self.code = code
        self.remedy = remedy


class LogHistoryReader:
    """Tells what one node knows of the files of merged logs."""

    def __init__(self, parts: ArchiverParts, history: ArchiveHistory, digests: Digests) -> None:
        self._machine = parts.machine
        self._merging = parts.merging
        self._history = history
        self._digests = digests

    def page(self, request: LogHistory) -> StepWork[LogHistoryPage]:
        """One page. Raises HistoryRefused."""
        files: list[LogFile] = []
        try:
            for file in self._files(request):
                if file is not None:
                    files.append(file)
                if len(files) > PAGE_FILES:
                    break
                yield
        except LogFormatError as error:
            text = f"this node cannot read its history: {error}"
            raise HistoryRefused(FaultCode.NOT_READY, text, "ask another node") from error
        return LogHistoryPage(tuple(files[:PAGE_FILES]), len(files) > PAGE_FILES)

    def _files(self, request: LogHistory) -> Iterator[LogFile | None]:
        """Yield the files of a request, and None for each partition; the state may change."""
        state = self._machine.state
        if request.topic is not UNSET and request.topic not in state.topics.by_name:
            text = f"there is no topic {request.topic!r}"
            raise HistoryRefused(FaultCode.UNKNOWN_TOPIC, text, "samelog topic list")
        first = request.from_topic if request.from_topic is not UNSET else request.topic
        begin = "" if first is UNSET else first, request.from_partition
        for name in sorted(state.topics.by_name):
            for partition in self._partitions(name):
                of = name, partition.index
                if _is_wanted(request, of) and of >= begin:
                    offset = request.from_offset if of == begin else 0
                    yield from self._archived(of, partition, offset)
                    yield from self._kept(of, partition, offset)
                yield None

    def _partitions(self, name: str) -> Iterator[PartitionView]:
        """The partitions of a topic, as far as they are there when it is their turn."""
        state = self._machine.state
        topic = state.topics.by_id.get(state.topics.by_name.get(name, ""))
        for number in () if topic is None else tuple(topic.partition_numbers):
            if (partition := state.partitions.by_number.get(number)) is not None:
                yield partition

    def _archived(
        self, of: tuple[str, int], partition: PartitionView, offset: int
    ) -> Iterator[LogFile]:
        number = partition.number
        if self._history.lacks(number):
            text = f"this node fetches the history of {of[0]}-{of[1]}"
            raise HistoryRefused(FaultCode.NOT_READY, text, "ask another node, or again")
        while offset < partition.start_segment:
            files = self._history.read(number, offset, HISTORY_FILES)
            for each in files:
                known = LogFile(
                    *of,
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
                yield known if each.copy is None else self._with_copy(known, each.copy)
            if not files:
                return
            offset = files[-1].next_offset

    def _with_copy(self, file: LogFile, note: CopyNote) -> LogFile:
        url = self._machine.state.copy_targets[note.target]
        formats = ",".join(formats_in(note.formats))
        return replace(file, copied_ms=note.copied_ms, copy_url=url, copy_formats=formats)

    def _kept(
        self, of: tuple[str, int], partition: PartitionView, offset: int
    ) -> Iterator[LogFile]:
        known = self._merging.partitions.get(partition.number)
        if known is None:
            return
        for segment in known.log.segments():
            base = segment.base_offset
            if base >= max(offset, partition.start_segment) and segment.size:
                yield LogFile(
                    *of,
                    base,
                    segment.next_offset,
                    known.log.first_timestamp(base),
                    segment.max_timestamp,
                    segment.size,
                    _rolled(partition, segment),
                    NONE,
                    self._digests.digest_of(known, base).hex() if segment.sealed else "",
                    "",
                )


def _is_wanted(request: LogHistory, of: tuple[str, int]) -> bool:
    return request.topic in (UNSET, of[0]) and request.partition in (UNSET, of[1])


def _rolled(partition: PartitionView, segment: Segment) -> int:
    found = rolled_ms(partition, segment) if segment.sealed else None
    return NONE if found is None else found

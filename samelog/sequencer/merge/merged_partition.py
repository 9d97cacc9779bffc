"""One partition as this node has it: its merged log, the merger that writes it, who listens to it,
and what is known against it.

Invariant: a partition with a fault is neither executed nor read any more.
"""

from __future__ import annotations

from samelog.archiver.compaction_progress import CompactionProgress
from samelog.format.batch import HEADER_BYTES
from samelog.format.errors import LogFormatError
from samelog.format.void_batch import is_void
from samelog.replicator.interfaces import RequestRefused
from samelog.replicator.pull.listening import Listening
from samelog.sequencer.events import MergingEvents
from samelog.sequencer.merge.merger import PartitionMerger
from samelog.sequencer.state.instructions import VoidRecordsCommand
from samelog.sequencer.state.tables.topics import Topic
from samelog.store.merged.log import MergedLog
from samelog.wire.errors import FaultCode


class MergedPartition(Listening):
    """Implements replicator.interfaces.MergedStream."""

    def __init__(
        self,
        topic: Topic,
        index: int,
        log: MergedLog,
        merger: PartitionMerger,
        events: MergingEvents,
    ) -> None:
        super().__init__()
        self.made_of = topic
        self.topic = topic.name
        self.topic_id = topic.log_id
        """Of the log: a topic whose log was restarted is another one to readers."""
        self.partitions = topic.partitions
        self.index = index
        self.log = log
        self.merger = merger
        self.fault: RequestRefused | None = None
        """Why it can neither be executed nor read any more."""
        self.waits_for_room = False
        """It is not executed before the next attempt."""
        self.lacks_room = False
        """The disk was full at the last attempt, which is logged."""
        self.agreed: tuple[int, int] | None = None
        """Offset and checksum that a majority agrees on, where the log has yet to get to it."""
        self.suspects: set[int] = set()
        """Segments of which readers got something not valid, and nobody has looked since."""
        self.compaction: CompactionProgress | None = None
        """How far this node is with the one that was ordered last."""
        self._events = events

    def suspect(self, base_offset: int) -> None:
        """A reader got something of this segment that is not valid."""
        self.suspects.add(base_offset)
        self._events.reader_complained()


def gone_log(name: str, successor: Topic | None) -> RequestRefused:
    """Why a log that somebody reads is not there any more."""
    if successor is None:
        return RequestRefused(FaultCode.TOPIC_GONE, f"topic {name!r} was deleted", "let it go")
    text = f"the log of topic {name!r} was restarted by a hard reset"
    return RequestRefused(FaultCode.TOPIC_GONE, text, "start over", successor=successor.log_id)


def moved_log(gone: MergedPartition) -> RequestRefused:
    """Why a partition that went to another group is not read here any more."""
    text = f"partition {gone.index} of topic {gone.topic!r} is on other members now"
    return RequestRefused(FaultCode.NOT_LEADER, text, "samelog placement names them")


def agrees(log: MergedLog, void: VoidRecordsCommand) -> bool:
    """Whether a merged log begins behind a void, ends before it where it can go on, or has it."""
    first = void.base_offset
    if not log.start_offset <= first <= log.next_offset:
        return True
    segment, byte = log.locate(first)
    if first == log.next_offset:
        return void.segment in (segment, first)
    try:
        return is_void(log.read(segment, byte, HEADER_BYTES))
    except LogFormatError:
        return False

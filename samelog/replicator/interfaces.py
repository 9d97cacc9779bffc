"""What the replicator's servers ask of the node they run in.

`SessionIntake` takes session bytes in (push); `LogSource` gives logs out (pull). Both are called in
the event loop only. The `async` calls may wait for the cluster; all others answer at once and never
block. Progress comes back through listeners, in the event loop, never from within a call that the
listener's owner makes to `watch` or `add_listener`.

Invariant: whatever a node refuses, it refuses with `RequestRefused`; any other exception is a bug
of the node and ends the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from samelog.config.authorisation import Rights
from samelog.format.transactions import Aborted
from samelog.replicator.watchers import IntakeListener, Watchers
from samelog.store.merged.truncation import LogStart
from samelog.wire.bounds import Holder, RowsAsked
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.pull.sender import FilePosition
from samelog.wire.push.effects import InputName, RollByte, RunEnds
from samelog.wire.push.receiver import OpenedInput, OpenedRun
from samelog.wire.receiver import ResumePoint

__all__ = [
    "FilePosition",
    "HeldElsewhere",
    "InputName",
    "LogSource",
    "MergedReading",
    "MergedStream",
    "OpenedInput",
    "OpenedRun",
    "RequestRefused",
    "ResumePoint",
    "RollByte",
    "RowReading",
    "RowSource",
    "RunEnds",
    "SegmentView",
    "SessionIntake",
    "SessionReading",
    "SessionStream",
    "StreamListener",
]

StreamListener = Callable[[], None]


class RequestRefused(ProtocolFault):
    """The node will not do what was asked; the code decides whether asking again makes sense.

    Out of `open_*` it answers the request. Out of the other calls it ends the connection, after
    which the sender asks for the position again; but TOPIC_GONE only ends the input.
    """

    def __init__(
        self,
        code: FaultCode,
        message: str,
        remedy: str = "",
        *,
        earliest: int = -1,
        successor: str = "",
    ) -> None:
        """`earliest`: the first offset that can be read, if another one was asked for. `successor`:
        the id of the log that took the place of the one that is gone; empty: none did.
        """
        super().__init__(code, message, remedy)
        self.earliest = earliest
        self.successor = successor


class HeldElsewhere(RequestRefused):
    """Other nodes have the partition."""

    def __init__(self, topic: str, partition: int, holders: Sequence[Holder]) -> None:
        names = ", ".join(holder.name for holder in holders) or "nodes that are not known here yet"
        text = f"partition {partition} of topic {topic!r} is on {names}"
        super().__init__(FaultCode.NOT_LEADER, text, "samelog placement says what is where")
        self.holders = tuple(holders)


# --- push ---------------------------------------------------------------------------------------


class SessionIntake(Protocol):
    """Takes session bytes in. The sequencer implements it."""

    watchers: Watchers
    """Of all sessions and inputs of the member."""

    async def open_run(
        self,
        *,
        identity: str,
        session: str,
        session_id: str,
        run: int,
        run_id: str,
        dedup_id: str | None,
        dedup_base: int | None,
        stage: str | None = None,
    ) -> OpenedRun:
        """Claim or find a run; an older one is ended first. Raises RequestRefused."""

    async def open_topic(self, topic: str, partitions: int) -> tuple[int, bool]:
        """How many partitions a topic has, created with so many if need be, and whether what is
        published to it is to be checked. Raises RequestRefused.
        """

    def check_session(self, session: str, session_id: str) -> None:
        """Raise RequestRefused (SESSION_CONFLICT) if this directory of a session is fenced."""

    async def check_topic(self, topic_id: str | None) -> None:
        """Raise RequestRefused (TOPIC_GONE) if the cluster has deleted the topic."""

    async def open_input(
        self,
        *,
        identity: str,
        session: str,
        run_id: str,
        topic: str,
        partition: int,
        topic_id: str | None = None,
        listener: IntakeListener | None = None,
    ) -> OpenedInput:
        """One partition of a run, open or closed. `listener` watches it from now on, and soon hears
        its positions as they are.

        Of a closed run nothing more is taken, and nothing is created for it; its progress is told.
        Raises RequestRefused: TOPIC_GONE if `topic_id` is given and that topic was deleted.
        """

    def is_released(self, number: int, run_number: int, end: RollByte) -> bool:
        """Whether a majority has an input of a closed run merged-durable up to its end."""

    def append(
        self, number: int, run_number: int, roll: int, byte: int, data: bytes | memoryview
    ) -> Coroutine[Any, Any, None] | None:
        """Take batches for a position; validates them, and skips what is held already. Where that
        is too much for a turn of the event loop, what is returned has to be awaited, before more
        comes from the same sender.

        `data` is valid during the call only. Raises RequestRefused (GAP, INVALID_BATCH, DISK_FULL
        and others), in both places.
        """

    def seal(self, number: int, run_number: int, roll: int, length: int) -> None:
        """The sender's file ends at `length`. Raises RequestRefused."""

    def start_at(self, number: int, run_number: int, roll: int, byte: int) -> None:
        """The sender has nothing below. Raises RequestRefused (OUT_OF_RANGE) unless that is all
        merged.
        """

    def refusals_kept(self, number: int, run_number: int, roll: int, start: int) -> None:
        """The sender has kept what was refused, up to the batch that begins there."""

    def end_run(self, session: str, run_id: str, ends: RunEnds) -> None:
        """The sender has sent all of a run, or all it has of it."""


# --- pull ---------------------------------------------------------------------------------------


class SegmentView(Protocol):
    """One segment of a merged log."""

    @property
    def base_offset(self) -> int:
        """The offset of its first record; its name."""

    @property
    def size(self) -> int:
        """Bytes in it."""

    @property
    def sealed(self) -> bool:
        """Whether it will never grow again."""

    @property
    def next_offset(self) -> int:
        """The offset behind its last record; of a sealed one: the name of the next."""


class MergedReading(Protocol):
    """What a pull server reads of a merged log; `store.merged.log.MergedLog` has it all."""

    @property
    def start_offset(self) -> int:
        """The first offset there is."""

    @property
    def log_start(self) -> LogStart:
        """From where on it is kept."""

    @property
    def next_offset(self) -> int:
        """The offset behind the last one there is."""

    @property
    def last_stable_offset(self) -> int:
        """Below it all transactions are decided. Raises LogFormatError."""

    def aborted(self, first: int, stop: int, most: int | None = None) -> Sequence[Aborted]:
        """The first `most` aborted transactions with records in [first, stop), by the order of
        their markers. Raises LogFormatError.
        """

    def end(self) -> FilePosition:
        """(base offset of the active segment, bytes in it)."""

    def segment(self, base: int) -> SegmentView | None:
        """The segment that begins at this offset; None if there is none."""

    def segments(self) -> Sequence[SegmentView]:
        """All segments in order, the active one last."""

    @property
    def layout(self) -> int:
        """As long as this is the same, segments are of the compactions that they were of."""

    def number_of(self, segment_base: int) -> int:
        """Of the compaction that made a segment; 0: it is as it was merged."""

    def compacted_around(self, base: int) -> int | None:
        """Where the compacted segment begins that stands for one that began there, if any."""

    def read(self, segment_base: int, byte: int, limit_bytes: int) -> bytes:
        """Whole batches from `byte` on; at least one, whatever its size; empty at the end."""

    def detached(self, segment_base: int, byte: int, limit_bytes: int) -> Callable[[], bytes]:
        """What reads the same when it is called, in any thread. Raises LogFormatError, then too."""

    def read_part(self, segment_base: int, byte: int, size_bytes: int) -> bytes:
        """Bytes of a batch that was read before."""

    def locate(self, offset: int) -> FilePosition:
        """Where the batch begins that contains `offset`; the end for `next_offset`."""

    def locate_timestamp(self, timestamp_ms: int) -> int:
        """The first offset with this timestamp or a later one; `next_offset` if none has."""


class MergedStream(Protocol):
    """One merged partition as a node lets it be read."""

    @property
    def topic(self) -> str:
        """The topic's name."""

    @property
    def index(self) -> int:
        """Which partition of the topic it is."""

    @property
    def topic_id(self) -> str:
        """The topic's id."""

    @property
    def partitions(self) -> int:
        """How many the topic has."""

    @property
    def log(self) -> MergedReading:
        """The bytes."""

    @property
    def fault(self) -> RequestRefused | None:
        """Why nothing can be read any more: TOPIC_GONE, or the partition is halted."""

    def add_listener(self, listener: StreamListener) -> None:
        """Call `listener` when the log has grown or changed otherwise, or `fault` is set."""

    def remove_listener(self, listener: StreamListener) -> None:
        """Call it no more."""

    def suspect(self, base_offset: int) -> None:
        """Something that was read from this segment is not valid."""


class SessionReading(Protocol):
    """What a pull server reads of an input log; `store.session.log.InputLog` has it all."""

    def start(self, run: int) -> RollByte:
        """Where the bytes held of the run begin."""

    def end(self, run: int) -> RollByte:
        """Where they end."""

    def sealed_length(self, run: int, roll: int) -> int | None:
        """The length of a file that will never grow; None if it may, or is not held."""

    def read(self, run: int, roll: int, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of a file; fewer where they are not held."""


class SessionStream(Protocol):
    """One run of an input as a node lets its peers read it."""

    @property
    def topic_id(self) -> str:
        """The topic's id."""

    @property
    def partitions(self) -> int:
        """How many the topic has."""

    @property
    def log(self) -> SessionReading:
        """The bytes."""

    @property
    def fault(self) -> RequestRefused | None:
        """Why nothing can be read any more."""

    def add_listener(self, listener: StreamListener) -> None:
        """Call `listener` when the log has grown or changed otherwise, or `fault` is set."""

    def remove_listener(self, listener: StreamListener) -> None:
        """Call it no more."""


class RowReading(Protocol):
    """What passes of one partition, for one reader."""

    @property
    def stream(self) -> MergedStream:
        """What it is of, as the reader knows it: a view has a name and an id of its own."""

    @property
    def end(self) -> int:
        """Up to where it can be looked now. Raises LogFormatError."""

    async def piece(self, offset: int) -> tuple[bytes, int]:
        """What passes from an offset on, in whole batches, and up to where that looked: further
        than `offset`, which is below `end`. Raises RequestRefused.
        """


class LogSource(Protocol):
    """Gives logs out. The sequencer implements it."""

    def open_merged(self, topic: str, topic_id: str | None, partition: int) -> MergedStream:
        """A merged partition, by name, and by id if the client knows it already.

        Raises RequestRefused: TOPIC_GONE (the id is not that of the topic any more), UNKNOWN_TOPIC
        (no such topic or partition), NOT_READY.
        """

    async def confirm_end(self, stream: MergedStream) -> int:
        """The next offset that the cluster had of it, this node or not, when it was asked: nothing
        acknowledged before is at or above it. Raises RequestRefused: NOT_READY, TOPIC_GONE.
        """

    def open_session(
        self, *, session: str, topic: str, topic_id: str, partition: int, run: int
    ) -> SessionStream:
        """One run of an input. Raises RequestRefused, as `open_merged`."""


class RowSource(LogSource, Protocol):
    """What also gives rows: of topics, by a filter, and of views."""

    def rows_of(
        self, stream: MergedStream, asked: RowsAsked | None, identity: str, rights: Rights
    ) -> RowReading | None:
        """What passes of a partition that was opened; None: all of it, as it is. Raises
        RequestRefused.
        """

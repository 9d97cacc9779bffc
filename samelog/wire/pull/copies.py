"""How a subscriber's copy of one merged partition stands, and what is done with copies.

Invariant: of the log that is copied only values are looked at here; its files are the driver's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from samelog.format.errors import LogFormatError
from samelog.wire.bounds import Holder, RowsAsked
from samelog.wire.effects import Send
from samelog.wire.messages import LogArchived, MergedStartsAt, Start
from samelog.wire.pull.refusal import Refusal


class StartAt(NamedTuple):
    """Where a copy that does not exist yet begins; `value`: the offset, or the timestamp in ms."""

    start: Start
    value: int = 0


EARLIEST = StartAt(Start.EARLIEST)


class CopyState(Enum):
    """Of one copy."""

    WAITING = auto()
    """Not open at a node."""
    OPENING = auto()
    COPYING = auto()
    STOPPED = auto()
    """For good: every node refuses, or the local copy cannot be used. `fault` says why."""
    GONE = auto()
    """The topic was deleted, or its log restarted (then there is a successor); the copy stays."""


class LogOfCopy(Protocol):
    """The log of a copy: values only, no access to its files."""

    topic: str
    topic_id: str
    partition: int

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""

    def end(self) -> tuple[int, int]:
        """(segment, byte) where it ends."""


@dataclass(slots=True, eq=False)
class PulledCopy:
    """One copy. `retry_at`: when a waiting one is to be opened again."""

    log: LogOfCopy
    rows: RowsAsked | None = None
    """What passes of it is wanted, and the log has only that; None: all."""
    state: CopyState = CopyState.WAITING
    fault: Refusal | LogFormatError | None = None
    """Why it waits or has stopped."""
    cluster_end: int | None = None
    """The offset behind the newest record of the cluster, as far as that was told."""
    first_end: int | None = None
    """Where the cluster confirmed that the log ended, when it was first asked; None: not yet."""
    caught_up: bool = False
    """Whether the node that is asked had no more when it was heard last."""
    wanted_offset: int | None = None
    """The first offset that was asked for, of a copy that was begun by this client."""
    is_from_end: bool = False
    """Whether it was begun at the end of the log: the node that was asked may be behind that."""
    successor: str = ""
    """The id of the log that the topic has now, instead of this one; empty: it has none."""
    retry_at: float = 0.0
    since: float = 0.0
    refused_by: dict[str, Refusal] = field(default_factory=dict)
    """Node -> why it cannot go on with this copy."""
    name: tuple[str, int] = field(init=False)
    """(topic, partition)."""

    def __post_init__(self) -> None:
        self.name = self.log.topic, self.log.partition

    @property
    def is_begun(self) -> bool:
        """Whether it is settled where it begins."""
        return self.wanted_offset is not None or self.log.end() != (0, 0)

    def enter(self, state: CopyState, now: float) -> None:
        """It is in another state from now on."""
        self.state, self.since = state, now

    def ask_again(self) -> None:
        """There is a node that has not been asked yet: what others refused counts no more."""
        if self.state is CopyState.STOPPED and isinstance(self.fault, Refusal):
            self.state, self.fault = CopyState.WAITING, None
        self.refused_by.clear()


CopyT = TypeVar("CopyT", bound=PulledCopy)


class FindPlace(msgspec.Struct, Generic[CopyT], frozen=True):
    """Find out where the copy ends, or is to begin; answer with `place_found`."""

    handle: int
    copy: CopyT


class BeginCopy(msgspec.Struct, Generic[CopyT], frozen=True):
    """Let the copy begin with the segment that the node names; answer with `begun`."""

    copy: CopyT
    at: MergedStartsAt


class ArchiveCopy(msgspec.Struct, Generic[CopyT], frozen=True):
    """The copy has to go on at this place at least; answer with `archived`."""

    copy: CopyT
    start: LogArchived


class CutCopy(msgspec.Struct, Generic[CopyT], frozen=True):
    """Cut the copy back to where this segment begins: it was compacted, and is sent again."""

    copy: CopyT
    base: int


class RollSegment(msgspec.Struct, Generic[CopyT], frozen=True):
    """What follows is for the next segment."""

    copy: CopyT


class CopyChanged(msgspec.Struct, Generic[CopyT], frozen=True):
    """It caught up, or its state changed."""

    copy: CopyT


class CopyGivenUp(msgspec.Struct, Generic[CopyT], frozen=True):
    """Every node refuses it: it has stopped."""

    copy: CopyT


class LogBegunAnew(msgspec.Struct, Generic[CopyT], frozen=True):
    """The copy belongs to a log that the cluster restarted."""

    copy: CopyT


class TopicFound(msgspec.Struct, frozen=True):
    """The topic is so: see that there are its copies; answer with `copies_made`."""

    topic: str
    topic_id: str
    partitions: int


class TopicRefused(msgspec.Struct, frozen=True):
    """The topic cannot be copied, for now."""

    topic: str
    refusal: Refusal


class LeaveNode(msgspec.Struct, frozen=True):
    """Another node may do better: end the connection."""


class HeldByOthers(msgspec.Struct, frozen=True):
    """Other nodes have what was asked for: these, or nodes that were not told of."""

    nodes: tuple[Holder, ...] = ()


class TakeCopy(msgspec.Struct, Generic[CopyT], frozen=True):
    """This node shall give the copy from now on: whoever copies it from another one lets go."""

    copy: CopyT


CopyNews = (
    CopyChanged[CopyT]
    | CopyGivenUp[CopyT]
    | CutCopy[CopyT]
    | LogBegunAnew[CopyT]
    | TakeCopy[CopyT]
    | HeldByOthers
)
"""What whoever keeps the copies is to know."""

CopyEffect = (
    Send
    | FindPlace[CopyT]
    | BeginCopy[CopyT]
    | ArchiveCopy[CopyT]
    | RollSegment[CopyT]
    | CopyNews[CopyT]
    | TopicFound
    | TopicRefused
    | LeaveNode
)

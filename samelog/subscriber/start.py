"""Where an application starts in a partition, and when that can be told.

A local copy may not have come as far as the wanted start yet; then the start is not known for now.

Invariant: a start that was told is an offset that can be read, or the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol, SupportsIndex, TypeAlias

from samelog.format.arguments import check_integer, shown
from samelog.format.numbers import OFFSETS, PARTITIONS
from samelog.subscriber.errors import LogReset, OffsetNotHere
from samelog.subscriber.keeper import KeptCopy
from samelog.subscriber.tail_reader import TailReader
from samelog.wire.messages import Start
from samelog.wire.pull.copies import StartAt


class NamedStart(Enum):
    """The starts that have a name."""

    EARLIEST = "earliest"
    LATEST = "latest"
    STORED = "stored"


class AutoOffsetReset(Enum):
    """What happens when the wanted offset is archived, or beyond the end."""

    EARLIEST = "earliest"
    LATEST = "latest"
    ERROR = "error"


_STARTS = (
    f"{', '.join(repr(each.value) for each in NamedStart)}, an offset, a datetime, or offsets by "
    "partition"
)
StartOption: TypeAlias = NamedStart | str | int | datetime | Mapping[int, int]
"""A name, an offset, a moment, or an offset for each partition (others start at earliest)."""


@dataclass(frozen=True, slots=True)
class WantedStart:
    """One partition's start: a name, an offset, or a timestamp in ms."""

    at: NamedStart | None = None
    offset: int | None = None
    timestamp_ms: int | None = None
    was_stored: bool = False
    """The offset was reached before: if it is not here, it will come again."""


EARLIEST = WantedStart(NamedStart.EARLIEST)
LATEST = WantedStart(NamedStart.LATEST)


def parse_start(
    start: StartOption | None, *, is_named: bool
) -> Mapping[int, WantedStart] | WantedStart:
    """What was asked for. Default: stored for a named subscriber, else earliest.

    Raises ValueError, TypeError.
    """
    match start:
        case None:
            return WantedStart(NamedStart.STORED if is_named else NamedStart.EARLIEST)
        case str() | NamedStart():
            return _named(_start_named(start), is_named=is_named)
        case bool():
            raise TypeError(f"start is {start}; it must be {_STARTS}")
        case datetime():
            if start.tzinfo is None:
                raise ValueError(f"start {start} has no time zone: add tzinfo=timezone.utc")
            return WantedStart(timestamp_ms=int(start.timestamp() * 1000))
        case Mapping():
            return dict(map(_partition_start, start.items()))
        case SupportsIndex():
            return WantedStart(offset=check_integer("start", start, OFFSETS))
        case _:
            raise TypeError(f"start is {shown(start)}; it must be {_STARTS}")


def _partition_start(given: tuple[int, int]) -> tuple[int, WantedStart]:
    partition = check_integer("a partition in start", given[0], PARTITIONS)
    offset = check_integer(f"start of partition {partition}", given[1], OFFSETS)
    return partition, WantedStart(offset=offset)


def _start_named(start: str | NamedStart) -> NamedStart:
    try:
        return NamedStart(start)
    except ValueError:
        raise ValueError(f"start is {shown(start)}; it must be {_STARTS}") from None


def _named(at: NamedStart, *, is_named: bool) -> WantedStart:
    if at is NamedStart.STORED and not is_named:
        raise ValueError("start='stored' needs a name: positions are stored under it")
    return WantedStart(at)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a partition: offsets [start, end) are held here, the cluster's end is
    `cluster_end`, and was `first_end` when it was first asked for (None: not known yet).
    `is_local`: nobody here knows the cluster.
    """

    start: int
    end: int
    cluster_end: int | None
    first_end: int | None
    is_local: bool = False


class StoredStarts(Protocol):
    """Where a subscriber goes on."""

    def get(self, topic: str, topic_id: str, partition: int) -> int | None:
        """The stored next offset, None if there is none for this very log."""


class StartFinder:
    """Finds the start of each partition."""

    def __init__(
        self,
        wanted: Mapping[int, WantedStart] | WantedStart,
        reset: AutoOffsetReset,
        store: StoredStarts | None,
        *,
        is_shared: bool = False,
    ) -> None:
        """`is_shared`: the store is a group's, and whatever is wanted counts only where it has
        nothing.
        """
        self._wanted = wanted
        self._reset = reset
        self._store = store
        self._is_shared = is_shared
        self._anew: set[tuple[str, int]] = set()
        """Partitions whose logs were restarted since the start."""
        self._new: set[str | tuple[str, int]] = set()
        """Topics and partitions that were created after the start."""

    def note_new(self, names: Iterable[str | tuple[str, int]]) -> None:
        """Read these topics, and (topic, partition)s, from their first record: they were created
        after the start.
        """
        self._new.update(names)

    def wanted_of(self, topic: str, topic_id: str, partition: int) -> WantedStart:
        """What is wanted of one partition, its stored position looked up."""
        if (topic, partition) in self._anew:
            return LATEST if self._reset is AutoOffsetReset.LATEST else EARLIEST
        wanted = self._wanted
        if not isinstance(wanted, WantedStart):
            wanted = wanted.get(partition, EARLIEST)
        is_stored = wanted.at is NamedStart.STORED
        offset = None
        if self._store is not None and (is_stored or self._is_shared):
            offset = self._store.get(topic, topic_id, partition)
        if offset is not None:
            return WantedStart(offset=offset, was_stored=True)
        return EARLIEST if is_stored or self._is_newer(topic, partition, wanted) else wanted

    def _is_newer(self, topic: str, partition: int, wanted: WantedStart) -> bool:
        """Whether a partition was created after the start, for any wanted offset."""
        is_new = not self._new.isdisjoint((topic, (topic, partition)))
        return is_new and wanted.timestamp_ms is None

    def settle(self, wanted: WantedStart, kept: KeptCopy) -> WantedStart:
        """Where the cluster, when first asked, said that a latest or timed start is."""
        if wanted.at is NamedStart.LATEST:
            offset = kept.first_end if kept.asked_for is None else kept.asked_for
        elif wanted.timestamp_ms is not None:
            offset = kept.asked_for
        else:
            return wanted
        return wanted if offset is None else WantedStart(offset=offset)

    def find(self, reader: TailReader, wanted: WantedStart, known: Known) -> int | None:
        """The offset to start at; None: not known, or not here yet. Raises OffsetOutOfRange."""
        if wanted.timestamp_ms is not None:
            found = reader.locate_timestamp(wanted.timestamp_ms)
            return self._end(known) if found is None else found
        if wanted.offset is not None:
            return self._offset(reader, wanted, wanted.offset, known)
        return known.start if wanted.at is NamedStart.EARLIEST else self._end(known)

    def _end(self, known: Known) -> int | None:
        """The end of the log when the cluster was first reached, once the copy holds it."""
        end = known.first_end
        return end if end is not None and end <= known.end else None

    def _offset(
        self, reader: TailReader, wanted: WantedStart, offset: int, known: Known
    ) -> int | None:
        if known.start <= offset <= known.end:
            return offset
        is_coming = known.cluster_end is None or offset <= known.cluster_end
        if offset > known.end and (is_coming or (wanted.was_stored and known.is_local)):
            return None
        return self.reset(reader, offset, known)

    def reset(self, reader: TailReader, offset: int, known: Known) -> int:
        """Where to go on instead of an offset that is not there. Raises OffsetOutOfRange."""
        match self._reset:
            case AutoOffsetReset.EARLIEST:
                return known.start
            case AutoOffsetReset.LATEST:
                return known.end
            case AutoOffsetReset.ERROR:
                raise OffsetNotHere(reader.topic, reader.partition, offset, known.start, known.end)

    def begin_anew(self, topic: str, partition: int) -> None:
        """Drop the position wanted in a log that was restarted. Raises LogReset."""
        if self._reset is AutoOffsetReset.ERROR:
            raise LogReset(topic, partition)
        if not self._is_shared:  # the group's positions say which log they are of
            self._anew.add((topic, partition))

    def begin_copy(self, topic: str, topic_id: str, partition: int) -> StartAt:
        """Where a copy that does not exist yet begins, as a node is asked for it.

        An offset that may be archived is not asked for if there is another rule for that: it would
        be refused.
        """
        wanted = self.wanted_of(topic, topic_id, partition)
        if wanted.timestamp_ms is not None:
            return StartAt(Start.TIMESTAMP, wanted.timestamp_ms)
        if wanted.offset is not None and self._reset is AutoOffsetReset.ERROR:
            return StartAt(Start.OFFSET, wanted.offset)
        if wanted.at is NamedStart.LATEST:
            return StartAt(Start.LATEST)
        return StartAt(Start.EARLIEST)
